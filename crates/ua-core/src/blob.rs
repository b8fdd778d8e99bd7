//! Large texts that are kept beside the history: their names, and the typed place they leave behind.
//!
//! Granular Execution PRD §8.1. A blob is named by its content, so the same bytes are stored once and what is read can be checked
//! against its name. A reference is a type of its own ([`ToolText`]); the marker `<<UA_BLOB_REF:{blob_id}:size={n}>>` is how it is
//! *shown*. Text that merely looks like a marker is text: nothing here ever parses one.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::canonical::{Sha256, sha256};

const PREFIX: &str = "blob_";

/// The name of a blob: `blob_` and the SHA-256 of its UTF-8 bytes in lower-case hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BlobId(String);

impl BlobId {
    /// Names `content`.
    pub fn of(content: &str) -> Self {
        Self(format!("{PREFIX}{}", sha256(content).to_hex()))
    }

    /// Reads a stored name.
    ///
    /// # Errors
    /// When it is not `blob_` and 64 hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, String> {
        let digest = text.strip_prefix(PREFIX).and_then(Sha256::from_hex);
        digest.map(|_| Self(text.to_owned())).ok_or_else(|| format!("{text:?} is not the name of a blob"))
    }

    /// The name, as stored and shown.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for BlobId {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }
}

impl TryFrom<String> for BlobId {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<BlobId> for String {
    fn from(id: BlobId) -> Self {
        id.0
    }
}

/// A reference to a blob: its name and its size.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlobRef {
    /// Which blob.
    pub blob_id: BlobId,
    /// Its size in bytes.
    pub size: u64,
}

impl BlobRef {
    /// The reference to `content`.
    pub fn of(content: &str) -> Self {
        Self { blob_id: BlobId::of(content), size: content.len() as u64 }
    }

    /// What people and views that do not load blobs see in its place.
    pub fn marker(&self) -> String {
        format!("<<UA_BLOB_REF:{}:size={}>>", self.blob_id, self.size)
    }

    /// Whether `content` is what this reference names, by size and digest.
    pub fn vouches_for(&self, content: &str) -> bool {
        self.size == content.len() as u64 && self.blob_id == BlobId::of(content)
    }
}

/// What a tool answered: text in place, or words followed by a reference to a blob that holds the rest.
///
/// As `&str` it is what is shown: a reference shows its marker. Serialized, text in place is a string and a reference is an object
/// with `blob_id` and `size`, so that the two are never mistaken for each other.
///
/// ```
/// use ua_core::{BlobRef, ToolText};
///
/// let large = "x".repeat(30_000);
/// let by_reference = ToolText::by_reference(BlobRef::of(&large));
/// assert!(by_reference.starts_with("<<UA_BLOB_REF:blob_"));
/// // The same characters, said by a tool, are text and stay text.
/// let said = ToolText::from(by_reference.as_str());
/// assert_eq!((said.as_str(), said.blob()), (by_reference.as_str(), None));
/// assert_ne!(said, by_reference);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolText {
    shown: String,
    blob: Option<BlobRef>,
}

impl ToolText {
    /// A reference and nothing else.
    pub fn by_reference(blob: BlobRef) -> Self {
        Self { shown: blob.marker(), blob: Some(blob) }
    }

    /// The same with `words` in front.
    #[must_use]
    pub fn after(&self, words: &str) -> Self {
        Self { shown: format!("{words}{}", self.shown), blob: self.blob.clone() }
    }

    /// What is shown: the text, with a marker in the place of a blob.
    pub fn as_str(&self) -> &str {
        &self.shown
    }

    /// The blob it refers to, if it does.
    pub fn blob(&self) -> Option<&BlobRef> {
        self.blob.as_ref()
    }

    /// Its size in bytes once the blob is in its place.
    pub fn whole_size(&self) -> u64 {
        self.blob.as_ref().map_or(self.shown.len() as u64, |blob| self.words().len() as u64 + blob.size)
    }

    /// The text with `content` in the place of the blob; text in place is returned as it is.
    #[must_use]
    pub fn filled(&self, content: &str) -> String {
        if self.blob.is_some() { format!("{}{content}", self.words()) } else { self.shown.clone() }
    }

    /// The words in front of the blob.
    fn words(&self) -> &str {
        let end = self.blob.as_ref().map_or(self.shown.len(), |blob| self.shown.len() - blob.marker().len());
        &self.shown[..end]
    }
}

impl Deref for ToolText {
    type Target = str;
    fn deref(&self) -> &str {
        &self.shown
    }
}

impl fmt::Display for ToolText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl From<String> for ToolText {
    fn from(text: String) -> Self {
        Self { shown: text, blob: None }
    }
}

impl From<&str> for ToolText {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// How a [`ToolText`] is stored.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Stored<'a> {
    Inline(std::borrow::Cow<'a, str>),
    Blob {
        #[serde(default, skip_serializing_if = "str::is_empty")]
        words: std::borrow::Cow<'a, str>,
        #[serde(flatten)]
        blob: BlobRef,
    },
}

impl Serialize for ToolText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let stored = match &self.blob {
            None => Stored::Inline(self.as_str().into()),
            Some(blob) => Stored::Blob { words: self.words().into(), blob: blob.clone() },
        };
        stored.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ToolText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Stored::deserialize(deserializer)? {
            Stored::Inline(text) => Self::from(text.into_owned()),
            Stored::Blob { words, blob } => Self::by_reference(blob).after(&words),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_golden_marker_never_changes() {
        let blob = BlobRef::of("abc");
        let marker = "<<UA_BLOB_REF:blob_ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad:size=3>>";
        assert_eq!(blob.marker(), marker);
        assert!(blob.vouches_for("abc") && !blob.vouches_for("abd") && !blob.vouches_for("abcd"));
    }

    #[test]
    fn text_that_looks_like_a_marker_stays_text_through_storage() {
        let blob = BlobRef::of("a large result");
        let texts = [
            ToolText::from("plain"),
            ToolText::from(blob.marker()),
            ToolText::from(format!("{{\"blob_id\": \"{}\", \"size\": 14}}", blob.blob_id)),
            ToolText::by_reference(blob.clone()),
            ToolText::by_reference(blob.clone()).after("[deduplicated] "),
        ];
        for text in &texts {
            let stored = serde_json::to_string(text).unwrap();
            assert_eq!(&serde_json::from_str::<ToolText>(&stored).unwrap(), text, "{stored}");
        }
        assert_eq!(serde_json::to_string(&texts[1]).unwrap(), format!("{:?}", blob.marker()));
        assert_eq!(texts.iter().filter(|text| text.blob().is_some()).count(), 2);
        assert_eq!(texts[4].filled("a large result"), "[deduplicated] a large result");
        assert_eq!((texts[4].whole_size(), texts[0].whole_size()), (29, 5));
        assert_eq!(texts[1].filled("a large result"), blob.marker(), "nothing is filled in for text");
    }

    #[test]
    fn a_stored_name_is_checked() {
        for bad in ["", "blob_", "blob_xyz", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"] {
            assert!(BlobId::parse(bad).is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<ToolText>(r#"{"blob_id": "blob_1", "size": 3}"#).is_err());
    }
}
