//! A large result is stored once, whatever its shape: every way in which a server says one thing in parts, in an object and in both.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};
use ua_core::{BlobRef, CallId, CallPolicy, EvidenceLevel, RawReply, Timestamp};
use ua_store::{ReceiptRecord, blobs_of, keep_apart, put_back};

use crate::interpret::interpret;

const THRESHOLD: u64 = 2_000;

/// What a tool has to say, as an object.
fn saying(kind: usize, size: usize) -> Value {
    let line = |n: usize| format!("line {n}: \"für\" {} of \\ it – {}\n", n * 7919 % 1_000_003, n * n);
    let text: String = (0..size / 30).map(line).collect();
    match kind {
        0 => json!({"content": text, "lines": size / 30}),
        1 => json!({"data": text, "meta": {"etag": "7f3eae75", "size": 1.5}}),
        2 => {
            json!({"rows": (0..size / 60).map(|n| json!({"id": n, "name": format!("row für {}", n * 31), "at": n * n * 3})).collect::<Vec<_>>()})
        }
        _ => json!({"a": text.as_str(), "b": {"again": text.as_str()}}),
    }
}

/// JSON as it is laid out by others: over lines, and with other letters than those of ASCII as codes.
fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

fn ascii(value: &Value) -> String {
    let code = |letter: char| {
        if letter.is_ascii() { letter.to_string() } else { format!("\\u{:04x}", u32::from(letter)) }
    };
    pretty(value).chars().map(code).collect()
}

fn text(text: impl Into<String>) -> Value {
    json!({"type": "text", "text": text.into()})
}

/// Every form of the parts and of the object that says the same.
fn shapes(said: &Value) -> Vec<(&'static str, Value)> {
    let long = said.as_object().unwrap().values().find_map(Value::as_str).unwrap_or("3 rows").to_owned();
    let rows: Vec<Value> = said["rows"].as_array().into_iter().flatten().map(|row| text(pretty(row))).collect();
    let compact = said.to_string();
    let resource = json!({"type": "resource", "resource": {"uri": "file:///a", "text": compact}});
    let parts = [
        ("no parts", json!([])),
        ("its JSON", json!([text(compact.as_str())])),
        ("laid out", json!([text(pretty(said))])),
        ("as ASCII", json!([text(ascii(said))])),
        ("headed", json!([text("a.txt, 3 lines"), text(compact.as_str()), text("that is all")])),
        ("its words", json!([text(long.as_str())])),
        ("a resource", json!([text("see below"), resource])),
        ("a number", json!([text("3 results")])),
        ("by rows", json!(rows)),
    ];
    let objects = [("none", None), ("itself", Some(said.clone())), ("wrapped", Some(json!({"result": said})))];
    let mut shapes = Vec::new();
    for (part, content) in &parts {
        for (object, structured) in &objects {
            let name: &'static str = format!("{part}, {object}").leak();
            match structured {
                Some(structured) => shapes.push((name, json!({"content": content, "structuredContent": structured}))),
                None => shapes.push((name, json!({"content": content}))),
            }
        }
    }
    shapes
}

fn receipt(result: &Value) -> ReceiptRecord {
    let raw = RawReply::ToolResult { result: result.clone() };
    let settlement = Some(interpret(&raw, &CallPolicy::unclassified()));
    ReceiptRecord {
        call_id: CallId::parse("call_1").unwrap(),
        attempt: 1,
        received_at: Timestamp::from_millis(1),
        raw,
        lifted: BTreeMap::new(),
        settlement,
        evidence: EvidenceLevel::Reported,
    }
}

#[test]
fn a_large_result_is_stored_once_whatever_its_shape() {
    let (mut tried, mut twice) = (0, Vec::new());
    for kind in 0..4 {
        // What is cut for the model takes long to look through, so it is tried with one kind.
        for size in [6_000, 24_000, 220_000].into_iter().take(if kind == 0 { 3 } else { 2 }) {
            let said = saying(kind, size);
            for (shape, result) in shapes(&said) {
                let whole = receipt(&result);
                let given = whole.settlement.clone().unwrap().content.unwrap().text.to_string();
                let mut kept = whole.clone();
                let blobs = keep_apart(&mut kept, THRESHOLD);
                let texts: HashMap<BlobRef, String> =
                    blobs.iter().map(|new| (new.blob.clone(), new.content.clone())).collect();
                let name = format!("{kind} of {size}, {shape}");

                // To the byte: the reply as it came, and what the model is given.
                let raw = put_back(&kept.raw, &kept.lifted, &texts).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(serde_json::to_string(&raw).unwrap(), serde_json::to_string(&whole.raw).unwrap(), "{name}");
                let content = kept.settlement.as_ref().unwrap().content.as_ref().unwrap();
                let read = content.text.blob().map_or_else(|| content.text.to_string(), |blob| texts[blob].clone());
                assert_eq!(read, given, "{name}");
                // Nothing is stored that nothing refers to, and nothing is referred to that is not stored.
                let mut named: Vec<&BlobRef> = blobs_of(&kept).collect();
                named.sort();
                named.dedup();
                let mut stored: Vec<&BlobRef> = texts.keys().collect();
                stored.sort();
                assert_eq!(named, stored, "{name}");

                // Once: no more than the longest form of it, and a little for saying where the others are. Of what is too long for
                // the model the text that it is given ends early, so what comes after has its own copy in each layout.
                let given_bytes = given.len();
                let forms: Vec<String> = [whole.raw_forms(), vec![given]].concat();
                let longest = forms.iter().map(String::len).max().unwrap_or_default();
                let row = serde_json::to_string(&kept).unwrap().len();
                let bytes = texts.values().map(String::len).sum::<usize>() + row;
                let is_cut = given_bytes > 200_000;
                let most = longest + longest * if is_cut { 3 } else { 1 } / 4 + 4 * usize::try_from(THRESHOLD).unwrap();
                if bytes > most {
                    twice.push(format!("{name}: {bytes} bytes for {longest}, of them {row} in the row"));
                }
                tried += 1;
            }
        }
    }
    assert!(tried > 200, "{tried}");
    assert!(twice.is_empty(), "{}", twice.join("\n"));
}

/// The texts in which a reply says what it says.
trait Forms {
    fn raw_forms(&self) -> Vec<String>;
}

impl Forms for ReceiptRecord {
    fn raw_forms(&self) -> Vec<String> {
        let RawReply::ToolResult { result } = &self.raw else { return Vec::new() };
        vec![result["structuredContent"].to_string(), result["content"].to_string()]
    }
}
