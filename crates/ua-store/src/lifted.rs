//! Taking large parts out of a reply, and putting them back.
//!
//! Granular Execution PRD §8.1. What a tool answered is stored once. The text that the model is given is a blob. Of the reply, strings over
//! the threshold, and lists or objects that are still over twice of it without them, are taken out: what stands in a blob of the receipt already
//! is said by where it stands there ([`MadeOf`]), anything else is a blob of its own. In the reply a marker stands in their place, and a map
//! from JSON pointers to references, stored beside the reply, says which markers are real.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use ua_core::{BlobRef, Block, Message, RawReply, ToolText};

use crate::blob_store::Blob;
use crate::error::{RowRef, StoreError};
use crate::made::{Base, MadeOf, made_of};
use crate::record::ReceiptRecord;
use crate::store::Store;

/// Beyond this depth nothing is lifted, so that what is lifted can be read back by any JSON reader.
const MAX_DEPTH: usize = 100;

/// So deep lists and objects are compared whole with what is stored already. Each level looks through what lies in it once more.
const COMPARED_DEPTH: usize = 3;

/// How many texts of a receipt others of it are made of. Each is looked through for each of the others.
const MOST_BASES: usize = 4;

/// A text that is to be stored as a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBlob {
    /// Its name and size.
    pub blob: BlobRef,
    /// The text.
    pub content: String,
}

impl NewBlob {
    /// Names `content`.
    pub fn new(content: String) -> Self {
        Self { blob: BlobRef::of(&content), content }
    }
}

/// A part of a reply that is kept as a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifted {
    /// Its name and size: those of the blob that holds it, unless it is made of others.
    #[serde(flatten)]
    pub blob: BlobRef,
    /// Whether it is the JSON of the part; otherwise it is the string itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_json: bool,
    /// How it is made of blobs that say the same; `None` when it is a blob itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Box<MadeOf>>,
}

impl Lifted {
    /// The blobs that are needed to put it back.
    pub fn blobs(&self) -> impl Iterator<Item = &BlobRef> {
        let own = self.made.is_none().then_some(&self.blob);
        own.into_iter().chain(self.made.iter().flat_map(|made| made.blobs()))
    }
}

/// Takes what is over `threshold` bytes out of a receipt: the text that the model is given, then the reply.
pub fn keep_apart(receipt: &mut ReceiptRecord, threshold: u64) -> Vec<NewBlob> {
    let content = receipt.settlement.as_mut().and_then(|settlement| settlement.content.as_mut());
    let given = content.and_then(|content| offload(&mut content.text, threshold));
    let (lifted, mut blobs) = lift(&mut receipt.raw, given.as_ref(), threshold);
    receipt.lifted = lifted;
    // The reply names its own parts first: one that is the text itself is the same blob.
    if let Some(given) = given {
        blobs.push(given);
    }
    blobs
}

/// Takes a text over `threshold` bytes out of its place. One that refers to a blob already is left as it is.
pub(crate) fn offload(text: &mut ToolText, threshold: u64) -> Option<NewBlob> {
    if text.blob().is_some() || text.len() as u64 <= threshold {
        return None;
    }
    let blob = NewBlob::new(text.as_str().to_owned());
    *text = ToolText::by_reference(blob.blob.clone());
    Some(blob)
}

/// Takes the results over `threshold` bytes out of messages that are about to be committed. Those of single calls refer to blobs
/// already; what is put together from several becomes one here.
pub fn offload_results(messages: &mut [Message], threshold: u64) -> Vec<NewBlob> {
    let blocks = messages.iter_mut().flat_map(|message| &mut message.blocks);
    let new = blocks.filter_map(|block| match block {
        Block::ToolResult { content, .. } => offload(content, threshold),
        Block::Text { .. } | Block::ToolUse(_) | Block::Opaque { .. } => None,
    });
    new.collect()
}

/// Takes what is over `threshold` bytes out of a reply, of which the model is `given` this.
pub(crate) fn lift(
    raw: &mut RawReply,
    given: Option<&NewBlob>,
    threshold: u64,
) -> (BTreeMap<String, Lifted>, Vec<NewBlob>) {
    let bases = given.map(Base::new).into_iter().collect();
    let mut lifting = Lifting { threshold, bases, lifted: BTreeMap::new(), blobs: Vec::new() };
    match raw {
        RawReply::ToolResult { result } | RawReply::Found { item: result, .. } => {
            lifting.value(result, "", 0);
        }
        RawReply::RpcError { message: text, .. }
        | RawReply::HttpStatus { body: text, .. }
        | RawReply::Refused { why: text } => lifting.string(text, ""),
        RawReply::Statement { .. } => {}
    }
    (lifting.lifted, lifting.blobs)
}

/// The list of parts of a tool's result.
const CONTENT: &str = "/content";

struct Lifting {
    threshold: u64,
    bases: Vec<Base>,
    lifted: BTreeMap<String, Lifted>,
    blobs: Vec<NewBlob>,
}

/// What remains of a value: its bytes as JSON, roughly, and its depth.
struct Rest {
    bytes: u64,
    depth: usize,
}

impl Lifting {
    fn string(&mut self, text: &mut String, pointer: &str) {
        if text.len() as u64 > self.threshold {
            *text = self.take(std::mem::take(text), pointer, false);
        }
    }

    fn take(&mut self, content: String, pointer: &str, is_json: bool) -> String {
        self.take_as_made(&content, pointer, is_json).unwrap_or_else(|| {
            let blob = NewBlob::new(content);
            if self.bases.len() < MOST_BASES {
                self.bases.push(Base::new(&blob));
            }
            let marker = self.named(blob.blob.clone(), pointer, is_json, None);
            self.blobs.push(blob);
            marker
        })
    }

    /// Takes what has enough in common with what is stored already; `None` when it has not.
    fn take_as_made(&mut self, content: &str, pointer: &str, is_json: bool) -> Option<String> {
        let blob = BlobRef::of(content);
        let (made, kept) = made_of(&self.bases, content, is_json, self.threshold)?;
        let is_the_same = made.is_all_of(&blob);
        self.blobs.extend(kept);
        Some(self.named(blob, pointer, is_json, (!is_the_same).then(|| Box::new(made))))
    }

    fn named(&mut self, blob: BlobRef, pointer: &str, is_json: bool, made: Option<Box<MadeOf>>) -> String {
        let marker = blob.marker();
        self.lifted.insert(pointer.to_owned(), Lifted { blob, is_json, made });
        marker
    }

    /// A list or an object that says what is stored already, whole. The reply itself and its content stay readable where they are.
    fn whole(&mut self, value: &Value, pointer: &str, depth: usize) -> Option<String> {
        let is_content = pointer == CONTENT || pointer.strip_prefix(CONTENT).is_some_and(|rest| rest.starts_with('/'));
        if self.bases.is_empty() || is_content || !(1..=COMPARED_DEPTH).contains(&depth) {
            return None;
        }
        let json = value.to_string();
        let is_read_back = || serde_json::from_str::<Value>(&json).is_ok_and(|read| read == *value);
        (json.len() as u64 > self.threshold && is_read_back()).then(|| self.take_as_made(&json, pointer, true))?
    }

    fn value(&mut self, value: &mut Value, pointer: &str, depth: usize) -> Rest {
        if (value.is_array() || value.is_object())
            && let Some(marker) = self.whole(value, pointer, depth)
        {
            let bytes = marker.len() as u64 + 2;
            *value = Value::String(marker);
            return Rest { bytes, depth: 0 };
        }
        let mut rest = Rest { bytes: 8, depth: 0 };
        let mut add = |inner: Rest, name: usize| {
            rest.bytes += inner.bytes + name as u64 + 4;
            rest.depth = rest.depth.max(inner.depth + 1);
        };
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => return rest,
            Value::String(text) => {
                self.string(text, pointer);
                return Rest { bytes: text.len() as u64 + 2, depth: 0 };
            }
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    add(self.value(item, &format!("{pointer}/{index}"), depth + 1), 0);
                }
            }
            Value::Object(map) => {
                for (name, item) in map {
                    let escaped = name.replace('~', "~0").replace('/', "~1");
                    add(self.value(item, &format!("{pointer}/{escaped}"), depth + 1), name.len());
                }
            }
        }
        // The reply itself and its list of content stay readable where they are.
        if depth > 0 && rest.bytes > self.threshold.saturating_mul(2) && rest.depth + depth < MAX_DEPTH {
            let marker = self.take(value.to_string(), pointer, true);
            rest = Rest { bytes: marker.len() as u64 + 2, depth: 0 };
            *value = Value::String(marker);
        }
        rest
    }
}

/// The blobs that a receipt refers to.
pub fn blobs_of(receipt: &ReceiptRecord) -> impl Iterator<Item = &BlobRef> {
    let content = receipt.settlement.as_ref().and_then(|settlement| settlement.content.as_ref());
    receipt.lifted.values().flat_map(Lifted::blobs).chain(content.and_then(|content| content.text.blob()))
}

/// The reply of a receipt as it came, with everything that was taken out of it back in its place.
///
/// # Errors
/// `Corrupt`, naming the blob, when one of them is gone or is not what was stored; `Unavailable` when the store cannot be read.
pub async fn whole_reply(blobs: &dyn Store, receipt: &ReceiptRecord) -> Result<RawReply, StoreError> {
    let mut texts = HashMap::new();
    for blob in receipt.lifted.values().flat_map(Lifted::blobs) {
        if !texts.contains_key(blob) {
            texts.insert(blob.clone(), whole_text(blobs, blob).await?);
        }
    }
    put_back(&receipt.raw, &receipt.lifted, &texts)
}

/// The same with the texts of its blobs.
///
/// # Errors
/// `Corrupt`, naming what cannot be put back.
pub fn put_back<S: BuildHasher>(
    raw: &RawReply,
    lifted: &BTreeMap<String, Lifted>,
    texts: &HashMap<BlobRef, String, S>,
) -> Result<RawReply, StoreError> {
    let mut raw = raw.clone();
    let text_of = |blob: &BlobRef| texts.get(blob).map(String::as_str);
    // An outer part comes before what lies in it: its pointer is the beginning of theirs.
    for (pointer, lifted) in lifted {
        let corrupt = |why: String| StoreError::Corrupt { row: RowRef::new("blobs", &lifted.blob.blob_id), why };
        let text = match &lifted.made {
            None => text_of(&lifted.blob).map(str::to_owned),
            Some(made) => made.text(text_of).filter(|text| lifted.blob.vouches_for(text)),
        };
        let text = text.ok_or_else(|| corrupt("what it is made of does not make it".to_owned()))?;
        match &mut raw {
            RawReply::ToolResult { result } | RawReply::Found { item: result, .. } => {
                let place = result
                    .pointer_mut(pointer)
                    .ok_or_else(|| corrupt(format!("the reply has no place {pointer:?} for it")))?;
                *place = if lifted.is_json {
                    serde_json::from_str(&text).map_err(|error| corrupt(format!("it is not JSON: {error}")))?
                } else {
                    Value::String(text)
                };
            }
            RawReply::RpcError { message: place, .. }
            | RawReply::HttpStatus { body: place, .. }
            | RawReply::Refused { why: place } => *place = text,
            RawReply::Statement { .. } => return Err(corrupt("a statement has no place for it".to_owned())),
        }
    }
    Ok(raw)
}

/// The text that a reference names.
///
/// # Errors
/// As [`whole_reply`].
pub async fn whole_text(blobs: &dyn Store, blob: &BlobRef) -> Result<String, StoreError> {
    let why = match blobs.blob(blob).await? {
        Blob::Here(text) => return Ok(text),
        Blob::Missing { pruned_at: Some(at) } => format!("its content was pruned at {at}"),
        Blob::Missing { pruned_at: None } => "its content is not there".to_owned(),
        Blob::Corrupt { why } => why,
    };
    Err(StoreError::Corrupt { row: RowRef::new("blobs", &blob.blob_id), why })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Puts back what was lifted, from the blobs themselves.
    fn restored(raw: &RawReply, lifted: &BTreeMap<String, Lifted>, blobs: &[NewBlob]) -> Value {
        let texts: HashMap<_, _> = blobs.iter().map(|new| (new.blob.clone(), new.content.clone())).collect();
        let RawReply::ToolResult { result } = put_back(raw, lifted, &texts).unwrap() else { panic!("{raw:?}") };
        result
    }

    #[test]
    fn what_is_large_is_lifted_once_and_can_be_put_back() {
        let large = "é".repeat(300);
        let many: Vec<Value> = (0..200).map(|n| json!({"n": n, "a/b~c": "short"})).collect();
        let cases = [
            (json!({"content": [{"type": "text", "text": "small"}]}), 0),
            (json!({"content": [{"type": "text", "text": large}]}), 1),
            (json!({"content": [{"type": "text", "text": large}, {"type": "text", "text": large}]}), 2),
            (json!({"content": [], "structuredContent": {"rows": many}}), 1),
            (json!({"content": [], "structuredContent": {"a/b": [large], "rows": many}}), 2),
            (json!({"text": BlobRef::of(&large).marker()}), 0),
        ];
        for (result, parts) in cases {
            let mut raw = RawReply::ToolResult { result: result.clone() };
            let (lifted, blobs) = lift(&mut raw, None, 500);
            assert_eq!(lifted.len(), parts, "{lifted:?}");
            assert_eq!(restored(&raw, &lifted, &blobs), result);
            let RawReply::ToolResult { result: rest } = &raw else { unreachable!() };
            assert!(rest.to_string().len() < 1_200 || parts == 0, "{rest}");
        }
    }

    /// Receipts of earlier versions name the blob of each part, and one that has nothing else to say is written as it was.
    #[test]
    fn a_part_that_is_a_blob_itself_is_written_as_before() {
        let blob = BlobRef::of("abc");
        let before = json!({"blob_id": blob.blob_id, "size": 3, "is_json": true});
        let read: Lifted = serde_json::from_value(before.clone()).unwrap();
        assert_eq!(read, Lifted { blob: blob.clone(), is_json: true, made: None });
        assert_eq!((serde_json::to_value(&read).unwrap(), read.blobs().collect::<Vec<_>>()), (before, vec![&blob]));
    }

    #[test]
    fn nothing_is_lifted_that_could_not_be_read_back() {
        let mut deep = json!("x".repeat(300));
        for _ in 0..150 {
            deep = json!([deep, "y".repeat(200)]);
        }
        let mut raw = RawReply::ToolResult { result: deep.clone() };
        let (lifted, blobs) = lift(&mut raw, None, 250);
        assert_eq!(restored(&raw, &lifted, &blobs), deep);
    }

    #[test]
    fn errors_and_bodies_are_lifted_too() {
        let mut raw = RawReply::http(502, "x".repeat(300));
        let (lifted, blobs) = lift(&mut raw, None, 256);
        assert_eq!((lifted.len(), blobs[0].content.len()), (1, 300));
        assert_eq!(raw, RawReply::http(502, blobs[0].blob.marker()));
    }
}
