//! Files that leave: the one way for a tool to read what it sends away.
//!
//! Whoever makes a call may say what its files hold (`_meta["dev.universal-agent/files"]`, SHA-256 by place in the arguments): a person agreed to
//! exactly that, or a ledger wrote it down. Until the call is here, something else may stand under the name. So a file is opened once, and what
//! is sent are the very bytes whose digest was compared; where it is another one, nothing leaves.
//! Invariants: [`Leaving`] gives no byte away but whole and compared; where anything is said about the files of a call, one that nothing is
//! said about does not leave. Proved by `tests/it/wire/sent.rs`, which asks it of every tool that the shipped policy says sends files.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::fs::File;
use serde_json::Value;

use crate::answer::{ChangedFile, Failure};
use crate::digest::{copy_hashing, sha256_hex};
use crate::names;
use crate::regular;
use crate::workspace::Workspace;

/// What the files of a call hold, as its caller says, by their places in the arguments; nothing where the caller does not say. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Said(Option<Arc<BTreeMap<String, String>>>);

impl Said {
    /// Reads the field of a request.
    ///
    /// # Errors
    /// It is there, and no object of SHA-256 digests: what cannot be compared must not be left out.
    pub(crate) fn read(field: Option<&Value>) -> Result<Self, &'static str> {
        const WRONG: &str =
            "must be an object that has a SHA-256 (64 hexadecimal digits) for each place in the arguments";
        let Some(field) = field else { return Ok(Self::default()) };
        let is_digest = |text: &str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let entry = |(place, digest): (&String, &Value)| {
            let digest = digest.as_str().filter(|digest| is_digest(digest))?;
            Some((place.clone(), digest.to_ascii_lowercase()))
        };
        let entries: Option<BTreeMap<String, String>> =
            field.as_object().and_then(|fields| fields.iter().map(entry).collect());
        entries.map(|entries| Self(Some(Arc::new(entries)))).ok_or(WRONG)
    }

    /// Opens the file that stands in `place` of the arguments, where the caller calls it `given`; `doing` is what an error says could not be done.
    ///
    /// # Errors
    /// It is not in the workspace, cannot be opened, or is none of those that the caller told of.
    pub(crate) fn open(
        &self,
        doing: &'static str,
        place: &str,
        workspace: &Workspace,
        given: &str,
    ) -> Result<Leaving, Failure> {
        let path = workspace.readable(given)?;
        let (file, metadata) = regular::open(workspace.area().dir(), &path)
            .map_err(|error| Failure::io(format_args!("{doing} {given:?}"), &error))?;
        // What cannot be opened says why itself.
        let expected = match &self.0 {
            None => None,
            Some(said) => Some(said.get(place).cloned().ok_or_else(|| {
                let why = "it was not there, or could not be looked at, and is there now".to_owned();
                ChangedFile { given: given.to_owned(), why }.into_failure()
            })?),
        };
        Ok(Leaving { doing, given: given.to_owned(), path, file, is_file: metadata.is_file(), expected })
    }
}

/// A file that is about to leave, opened. Its bytes are had all at once and compared, or as a copy that is good only when the end says so.
#[derive(Debug)]
pub(crate) struct Leaving {
    doing: &'static str,
    given: String,
    path: PathBuf,
    file: File,
    is_file: bool,
    expected: Option<String>,
}

impl Leaving {
    /// Its path below the workspace, without links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its own name.
    ///
    /// # Errors
    /// It is a directory, its name is no text, or is another one for who gets it.
    pub(crate) fn name(&self) -> Result<String, Failure> {
        match self.path.file_name().and_then(|name| name.to_str()) {
            Some(name) if self.is_file => match names::misread(name) {
                None => Ok(name.to_owned()),
                Some(why) => Err(Failure::refused(
                    format!("the name of {:?} {why}", self.given),
                    "copy the file to another name",
                )),
            },
            Some(_) | None => {
                Err(Failure::refused(format!("{:?} is not a file", self.given), "name a file with a UTF-8 name"))
            }
        }
    }

    /// All its bytes, if they are at most `limit` and what the caller said.
    ///
    /// # Errors
    /// `too_large` where it is larger; else that it cannot be read, or has changed.
    pub(crate) fn read(self, limit: u64, too_large: impl FnOnce() -> Failure) -> Result<Vec<u8>, Failure> {
        let mut content = Vec::new();
        let count = self
            .file
            .take(limit.saturating_add(1))
            .read_to_end(&mut content)
            .map_err(|error| Failure::io(format_args!("{} {:?}", self.doing, self.given), &error))?;
        if count as u64 > limit {
            return Err(too_large());
        }
        compare(self.given, self.expected, || sha256_hex(&content)).map_err(ChangedFile::into_failure)?;
        Ok(content)
    }

    /// Copies it, of any size, and returns the SHA-256 and the length of what was copied.
    ///
    /// # Errors
    /// Reading or writing failed, or the copy is not what the caller said ([`ChangedFile`], which [`Failure::io`] knows): nobody may have it then.
    pub(crate) fn copy(mut self, to: &mut impl Write) -> io::Result<(String, u64)> {
        let (sha256, bytes) = copy_hashing(&mut self.file, to)?;
        compare(self.given, self.expected, || sha256.clone()).map_err(io::Error::other)?;
        Ok((sha256, bytes))
    }
}

fn compare(given: String, expected: Option<String>, found: impl FnOnce() -> String) -> Result<(), ChangedFile> {
    let Some(expected) = expected else { return Ok(()) };
    let found = found();
    if found == expected {
        return Ok(());
    }
    Err(ChangedFile { given, why: format!("its SHA-256 was {expected}, and is {found} now") })
}
