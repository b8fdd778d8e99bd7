//! The files that a call sends, as they are just before something is decided about it.
//!
//! A word of a person, a repeat under the same key, and the sameness of two effects rest on what the files hold. So what nobody could look at is
//! not left out, which would make it the same as nothing: it is unknown, and equal to nothing, not even to itself a moment before.
//! Invariants: [`SentFiles`] has no equality with what was stored but [`SentFiles::are_those_of`]; what is unknown is stored as no digest.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;
use ua_core::Sha256;
use ua_store::CallRecord;

/// The files that a call sends, by their places in the arguments (`attachments[0]`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SentFiles(BTreeMap<String, SentFile>);

/// What stands in one place of the arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentFile {
    /// Where it was found, or what the arguments say where nothing was; anybody's words.
    pub at: String,
    /// What it holds.
    pub content: FileContent,
}

/// What a file, or a folder with all that is in it, holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileContent {
    /// It was looked at.
    Known {
        /// The digest of its content; of a folder, of all names and contents in it.
        digest: Sha256,
        /// How many bytes it has; of a folder, all files in it.
        bytes: u64,
    },
    /// Nothing of that name is there, and its tool would find it nowhere else.
    Nothing,
    /// Nobody could look at it.
    Unknown {
        /// Why, as the end of a sentence.
        why: String,
    },
}

impl SentFiles {
    /// What was found, by place in the arguments.
    pub fn new(files: impl IntoIterator<Item = (String, SentFile)>) -> Self {
        Self(files.into_iter().collect())
    }

    /// Files of which only the digests are known.
    pub fn of_digests(digests: impl IntoIterator<Item = (String, Sha256)>) -> Self {
        let known = |(place, digest)| {
            let content = FileContent::Known { digest, bytes: 0 };
            (place, SentFile { at: String::new(), content })
        };
        Self(digests.into_iter().map(known).collect())
    }

    /// All of them with their places.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &SentFile)> {
        self.0.iter()
    }

    /// The digests of those that could be looked at, as they are stored with an attempt.
    pub fn digests(&self) -> BTreeMap<String, Sha256> {
        let known = |(place, file): (&String, &SentFile)| Some((place.clone(), file.digest()?));
        self.0.iter().filter_map(known).collect()
    }

    /// Why the others could not be looked at.
    pub(crate) fn unknown(&self) -> BTreeMap<&str, &str> {
        fn why(file: &SentFile) -> Option<&str> {
            match &file.content {
                FileContent::Unknown { why } => Some(why),
                FileContent::Known { .. } | FileContent::Nothing => None,
            }
        }
        self.0.iter().filter_map(|(place, file)| Some((place.as_str(), why(file)?))).collect()
    }

    /// Whether all of them could be looked at.
    pub fn are_all_known(&self) -> bool {
        self.0.values().all(|file| !matches!(file.content, FileContent::Unknown { .. }))
    }

    /// Whether they are what the newest attempt of a call sent. What nobody can look at is not known to be.
    pub(crate) fn are_those_of(&self, call: &CallRecord) -> bool {
        self.are_all_known() && call.file_digests == self.digests()
    }

    /// Whether a call in the same words may have sent the same, and nobody can tell: of no file it is known that it was another one, and of some it is
    /// not known now what it holds, or was not known then.
    pub(crate) fn may_be_those_of(&self, other: &CallRecord) -> bool {
        let mut cannot_tell = false;
        for (place, file) in &self.0 {
            match (&file.content, other.file_digests.get(place)) {
                (FileContent::Known { digest, .. }, Some(then)) if digest != then => return false,
                (FileContent::Nothing, Some(_)) => return false,
                (FileContent::Known { .. }, Some(_)) | (FileContent::Nothing, None) => {}
                (FileContent::Known { .. }, None) | (FileContent::Unknown { .. }, Some(_) | None) => cannot_tell = true,
            }
        }
        cannot_tell
    }

    /// Why they are not, where they are not.
    pub(crate) fn why_others(&self) -> &'static str {
        if self.are_all_known() {
            "a file it sends has changed since"
        } else {
            "a file it sends cannot be looked at, so it may have changed since"
        }
    }
}

impl SentFile {
    /// The digest, if it could be looked at.
    pub fn digest(&self) -> Option<Sha256> {
        match &self.content {
            FileContent::Known { digest, .. } => Some(*digest),
            FileContent::Nothing | FileContent::Unknown { .. } => None,
        }
    }
}

/// For people: the digest, the size and the place; the place in quotes and on one line, since a model chooses it.
impl fmt::Display for SentFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = Value::String(self.at.clone());
        match &self.content {
            FileContent::Known { digest, .. } if self.at.is_empty() => write!(f, "sha256:{digest}"),
            FileContent::Known { digest, bytes } => write!(f, "sha256:{digest} ({bytes} bytes, {at})"),
            FileContent::Nothing => write!(f, "{at}, which is not there"),
            FileContent::Unknown { why } => write!(f, "{at}, which could not be looked at: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use ua_core::sha256;
    use ua_store::LedgerStore as _;
    use ua_store::conformance::samples;

    use super::*;

    #[tokio::test]
    async fn files_may_be_those_of_another_call_where_one_is_unknown_and_none_is_another_one() {
        let store = ua_store::MemStore::new();
        let scene = ua_store::conformance::Scene::begin(&store, "run_1").await;
        scene.turn(vec![samples::planned_email("call_1", 1, 1)]).await;
        let mut other = store.call(&samples::call_id("call_1")).await.unwrap();
        let known = |text: &str| FileContent::Known { digest: sha256(text), bytes: 1 };
        let unknown = || FileContent::Unknown { why: "it is a link".to_owned() };
        for (first, second, then, expected) in [
            (known("a"), known("b"), vec![("0", "a"), ("1", "b")], false),
            (known("a"), known("b"), vec![("0", "a")], true),
            (known("a"), known("b"), vec![("1", "a")], false),
            (known("a"), unknown(), vec![("0", "a"), ("1", "b")], true),
            (known("a"), unknown(), vec![("0", "c"), ("1", "b")], false),
            (unknown(), unknown(), vec![], true),
            (FileContent::Nothing, known("b"), vec![("1", "b")], false),
            (FileContent::Nothing, known("b"), vec![("0", "a")], false),
        ] {
            let file = |content| SentFile { at: "report.pdf".to_owned(), content };
            let files = SentFiles::new([("0".to_owned(), file(first)), ("1".to_owned(), file(second))]);
            other.file_digests = then.into_iter().map(|(place, text)| (place.to_owned(), sha256(text))).collect();
            assert_eq!(files.may_be_those_of(&other), expected, "{files:?}, then {:?}", other.file_digests);
        }
    }
}
