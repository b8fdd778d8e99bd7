//! Idempotency keys: what makes two calls one effect.
//!
//! Durable Jobs v1 spec §8.2 joins the parts as bare strings, so that `"ab" + "c"` equals `"a" + "bc"`; here every label and
//! every value is hashed with its length.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::Digest as _;

use crate::canonical::{ArgsHash, Sha256};

/// The name of one intended effect: 64 hexadecimal digits, handed to the tool unchanged on every attempt.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IdempotencyKey(Arc<str>);

impl IdempotencyKey {
    /// Reads a stored key.
    pub fn from_stored(text: String) -> Self {
        Self(text.into())
    }

    /// The key's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Builds a key out of labelled fields.
#[derive(Debug)]
pub struct KeyBuilder {
    hasher: sha2::Sha256,
}

impl KeyBuilder {
    /// Starts a key of the given kind; a new way to build keys takes a new kind, so that old ones stay valid.
    pub fn new(kind: &str) -> Self {
        Self { hasher: sha2::Sha256::new() }.field("kind", kind)
    }

    /// Adds a field. Order matters.
    #[must_use]
    pub fn field(mut self, label: &str, value: &str) -> Self {
        for part in [label, value] {
            self.hasher.update((part.len() as u64).to_be_bytes());
            self.hasher.update(part.as_bytes());
        }
        self
    }

    /// Ends the key.
    pub fn finish(self) -> IdempotencyKey {
        IdempotencyKey(self.digest().to_hex().into())
    }

    /// The digest of the fields, for scopes and fingerprints.
    pub fn digest(self) -> Sha256 {
        Sha256::from_bytes(self.hasher.finalize().into())
    }
}

/// What the effect is, whatever the wording and the route: recipients and subject of an e-mail, content and
/// destination of an upload (Durable Jobs v1 spec §8.2, `side_effect_scope`). Stored as readable text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Scope(Arc<str>);

/// How the projection of a whole call begins; no projection of chosen arguments does.
const WHOLE_CALL: &str = r#"{"arguments":"#;

/// Where a projection names files. In a text of it the second quote has a backslash.
const FILES: &str = r#""files":["#;

impl Scope {
    /// Makes a scope from an effect kind and the canonical text of the projected arguments.
    pub fn new(effect: &str, projection: &str) -> Self {
        Self(format!("{effect} {projection}").into())
    }

    /// Makes the scope of an effect of which nothing says what names it: all arguments do, and the contents of the files
    /// it sends. It finds the same call asked for again, not the same effect in other words.
    pub fn of_whole_call(effect: &str, arguments: &ArgsHash, files: impl IntoIterator<Item = Sha256>) -> Self {
        let mut files: Vec<String> = files.into_iter().map(|digest| format!(r#""sha256:{digest}""#)).collect();
        files.sort();
        let files = if files.is_empty() { String::new() } else { format!(r#","files":[{}]"#, files.join(",")) };
        Self(format!(r#"{effect} {WHOLE_CALL}"{arguments}"{files}}}"#).into())
    }

    /// Whether this is the scope of a whole call.
    pub fn is_of_whole_call(&self) -> bool {
        self.0.split_once(' ').is_some_and(|(_, projection)| projection.starts_with(WHOLE_CALL))
    }

    /// How it begins, up to where it names files: so begin the scopes of all calls that have this effect but for what their files hold. `None`
    /// where no files name it.
    pub fn up_to_files(&self) -> Option<&str> {
        let (effect, projection) = self.0.split_once(' ')?;
        let length = match projection.strip_prefix(WHOLE_CALL) {
            // One without files names none, and another call in these words may.
            Some(arguments) => WHOLE_CALL.len() + arguments.get(1..)?.find('"')? + 2,
            None => projection.find(FILES)? + FILES.len(),
        };
        self.0.get(..effect.len() + 1 + length)
    }

    /// The scope for people: that of a whole call says that, and not a digest that tells nobody anything.
    pub fn in_words(&self) -> Cow<'_, str> {
        match self.0.split_once(' ') {
            Some((effect, projection)) if projection.starts_with(WHOLE_CALL) => {
                let files = if projection.contains(r#","files":["#) { " and files" } else { "" };
                format!("{effect} with exactly these arguments{files}").into()
            }
            Some(_) | None => Cow::Borrowed(&self.0),
        }
    }

    /// Reads a stored scope.
    pub fn from_stored(text: String) -> Self {
        Self(text.into())
    }

    /// The scope's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::sha256;

    #[test]
    fn fields_are_framed() {
        let key = |a: &str, b: &str| KeyBuilder::new("t").field("run", a).field("tool", b).finish();
        assert_ne!(key("r1", "0mcp"), key("r10", "mcp"));
        assert_ne!(key("ab", "c"), key("a", "bc"));
    }

    #[test]
    fn scopes_that_differ_in_their_files_alone_begin_alike() {
        let whole = |words: &str, files: &[&str]| {
            Scope::of_whole_call("message.post", &sha256(words), files.iter().map(sha256))
        };
        let begins = |scope: &Scope| scope.up_to_files().map(str::to_owned);
        let (first, bare) = (whole("a", &["x", "y"]), whole("a", &[]));
        assert_eq!(begins(&first), Some(format!(r#"message.post {{"arguments":"{}""#, sha256("a"))));
        assert_eq!(begins(&first), begins(&bare));
        assert_ne!(begins(&first), begins(&whole("b", &["x", "y"])));
        let of = |projection: &str| Scope::new("email.send", projection);
        let named = of(r#"{"addresses":["a@b"],"files":["path:r.pdf"],"values":{"subject":"s"}}"#);
        assert_eq!(named.up_to_files(), Some(r#"email.send {"addresses":["a@b"],"files":["#));
        for without in [r#"{"addresses":["a@b"]}"#, r#"{"addresses":["\"files\":["]}"#, "boss"] {
            assert_eq!(of(without).up_to_files(), None, "{without}");
        }
        for scope in [&first, &bare, &named] {
            assert!(scope.as_str().starts_with(scope.up_to_files().unwrap()), "{scope:?}");
        }
    }

    #[test]
    fn the_scope_of_a_whole_call_is_its_arguments_and_its_files() {
        let scope =
            |files: &[&str]| Scope::of_whole_call("message.post", &sha256("arguments"), files.iter().map(sha256));
        let hash = sha256("arguments");
        assert_eq!(scope(&[]).as_str(), format!(r#"message.post {{"arguments":"{hash}"}}"#));
        assert_eq!(scope(&["a", "b"]), scope(&["b", "a"]));
        assert_ne!(scope(&["a"]), scope(&["b"]));
        assert!(scope(&["a"]).is_of_whole_call());
        assert_eq!(scope(&[]).in_words(), "message.post with exactly these arguments");
        assert_eq!(scope(&["a"]).in_words(), "message.post with exactly these arguments and files");
        let chosen = Scope::new("message.post", r#"{"values":{"arguments":"x"}}"#);
        assert!(!chosen.is_of_whole_call() && chosen.in_words() == chosen.as_str());
    }

    #[test]
    fn a_golden_key_never_changes() {
        let key = KeyBuilder::new("ua.idempotency.v1").field("root", "run_1").field("tool", "send_email").finish();
        assert_eq!(key.as_str(), "4e52c32388e69c4ccb9540caa70caf9abafe48ea9a37a8eb7475b6a050be6939");
    }
}
