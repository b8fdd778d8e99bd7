//! The session that `claude` works in, kept beside its home from its first event on (Durable runner, current state, known limitation 1).
//!
//! Tentative: the run's own row is told by the commit of a turn. A session is only gone on with by a run that has a turn.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use ua_files::Folder;

const FILE: &str = "session.json";

#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    session_id: String,
}

/// The most of the file that is read.
const MOST: u64 = 4096;

/// The longest name of a session: those of `claude` have 36 characters.
const LONGEST: usize = 100;

/// Whether a word can be the name of a session. It stands on a command line, where another word could be an option that starts programs, and in
/// the name of a file; and it comes from a row and a file that somebody else may have written.
pub(crate) fn is_name(word: &str) -> bool {
    let is_plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    is_plain && word.len() <= LONGEST && word.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
}

/// The session that was told last.
pub(crate) fn load(folder: &Path) -> Option<String> {
    let stored = Folder::open_itself(folder).ok()?.read(FILE, MOST).ok()?;
    serde_json::from_slice::<Stored>(&stored).ok().map(|stored| stored.session_id)
}

/// Keeps `session_id`: whoever reads it sees this one or the one before.
pub(crate) fn save(folder: &Path, session_id: &str) -> io::Result<()> {
    if load(folder).as_deref() == Some(session_id) {
        return Ok(());
    }
    let stored = serde_json::to_vec(&Stored { session_id: session_id.to_owned() })?;
    Folder::open_itself(folder)?.replace(FILE, &stored)
}

/// Forgets the session: another one is about to begin, and until it says its name there is none to go on with.
pub(crate) fn forget(folder: &Path) -> io::Result<()> {
    match Folder::open_itself(folder)?.remove(FILE) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s9_an_option_or_a_path_is_no_name_of_a_session() {
        for name in ["s-1", "a", "3fa85f64-5717-4562-b3fc-2c963f66afa6", "stand_in_7"] {
            assert!(is_name(name), "{name}");
        }
        let long = "a".repeat(LONGEST + 1);
        for word in [
            "",
            "-",
            "--settings={}",
            "--dangerously-skip-permissions",
            "-c",
            "_x",
            "../x",
            "/x.jsonl",
            "a b",
            "a=b",
            "é",
            long.as_str(),
        ] {
            assert!(!is_name(word), "{word}");
        }
    }

    #[test]
    fn the_session_that_was_told_last_is_the_one_that_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(load(folder.path()), None);
        for session in ["one", "two", "two"] {
            save(folder.path(), session).unwrap();
            assert_eq!(load(folder.path()).as_deref(), Some(session));
        }
        for _ in 0..2 {
            forget(folder.path()).unwrap();
            assert_eq!(load(folder.path()), None);
        }
    }
}
