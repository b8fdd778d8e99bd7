//! Which files an export may replace: what an earlier export wrote there, and nothing else.
//!
//! A name is soon mistyped, and what stood there cannot be had back. Each kind of file that an export writes has a beginning, or words within,
//! that no other file has; what is not known by that (what tools made, results in full) is replaced where the whole folder is an export.

use std::io::{self, Read as _};
use std::path::Path;

use ua_files::Folder;
use ua_host::home::Home;

use crate::error::HostError;
use ua_core::ShowPath as _;

/// So much of a file is looked at to know it.
const LOOKED_AT: u64 = 64 * 1024 * 1024;
/// What every page of a run begins with.
const PAGE: &str = "<!DOCTYPE html>\n<html lang=\"en\" data-ready=";
/// The page that every export into a folder has.
pub(super) const PAGE_NAME: &str = "timeline.html";

/// The first words of each kind of file.
const BEGINNINGS: [&str; 8] = [
    PAGE,
    "# Transcript of ",
    "# Completion of ",
    "# Resume packet of ",
    "{\n  \"checkpoints\": [",
    "{\n  \"run_id\": \"",
    "{\"at\":\"",
    "run        ",
];
/// Words within: of a run's rows, and of a log's first line.
const WITHIN: [&str; 2] = ["\n  \"format\": \"universal-agent/run-export\"", "Z process "];

/// A file that an export is about to write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planned<'a> {
    pub(super) path: &'a Path,
    /// What it is to hold; nothing where that is no file that the program itself makes.
    pub(super) text: Option<&'a str>,
}

/// Refuses, before anything is written, what would replace anything but an export.
pub(super) fn check<'a>(
    home: &Home,
    folder: Option<&Path>,
    planned: impl IntoIterator<Item = Planned<'a>>,
) -> Result<(), HostError> {
    let is_export = folder.is_some_and(|folder| begins(&folder.join(PAGE_NAME), PAGE));
    for Planned { path, text } in planned {
        let shown = path.shown();
        if home.is_own_file(path) {
            return Err(HostError::usage(format!("{shown} is where `ua` keeps its own files; nothing was written"))
                .hint(format!("name a file or a folder outside of {}", home.root().shown())));
        }
        if !is_replaceable(path, text, is_export) {
            return Err(HostError::usage(format!(
                "{shown} already exists and is not an earlier export of this kind; nothing was written"
            ))
            .hint("name another file or folder, or move that file away"));
        }
    }
    Ok(())
}

fn is_replaceable(path: &Path, text: Option<&str>, is_export: bool) -> bool {
    let old = match beginning(path, LOOKED_AT) {
        Ok(old) => old,
        // A folder, or what cannot be written either: who writes says so.
        Err(error) => return error.kind() == io::ErrorKind::NotFound || path.is_dir(),
    };
    let old = String::from_utf8_lossy(&old);
    if old.is_empty() || text == Some(&*old) {
        return true;
    }
    match text.and_then(kind) {
        Some(wanted) => kind(&old) == Some(wanted),
        None => is_export,
    }
}

/// Which kind of file a text is, if an export writes such.
fn kind(text: &str) -> Option<&'static str> {
    let begins = BEGINNINGS.into_iter().find(|words| text.starts_with(words));
    begins.or_else(|| {
        let [rows, log] = WITHIN;
        if text.starts_with('{') && text.contains(rows) {
            return Some(rows);
        }
        text.lines()
            .next()
            .filter(|line| line.get(INSTANT.saturating_sub(1)..).is_some_and(|rest| rest.starts_with(log)))
            .map(|_| log)
    })
}

/// How many characters an instant has in a log.
const INSTANT: usize = "2026-11-26T23:19:22.440Z".len();

fn begins(path: &Path, words: &str) -> bool {
    beginning(path, words.len() as u64).is_ok_and(|first| first == words.as_bytes())
}

/// The first bytes of a file, and of nothing else: a pipe would be waited for.
fn beginning(path: &Path, bytes: u64) -> io::Result<Vec<u8>> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let mut first = Vec::new();
    Folder::open(folder)?.open_file(name)?.take(bytes).read_to_end(&mut first)?;
    Ok(first)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_by_its_own_kind_alone() {
        let export = "{\n  \"artifacts\": null,\n  \"format\": \"universal-agent/run-export\"\n}\n";
        let log = "2026-11-26T23:19:22.440Z process 1 starts work on the run\n";
        let mut texts: Vec<String> = BEGINNINGS.iter().map(|words| format!("{words}x")).collect();
        texts.extend([export.to_owned(), log.to_owned()]);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        for old in &texts {
            for new in &texts {
                std::fs::write(&file, format!("{old} of an earlier time")).unwrap();
                assert_eq!(is_replaceable(&file, Some(new), true), old == new, "{old:?} by {new:?}");
            }
            let others = [
                "{\"version\": 1}\n",
                "# Notes\n",
                "SQLite format 3\0",
                "<!DOCTYPE html>\n<html lang=\"en\">\n",
                "2026-11-26T23:19:22.440Z INFO up\n",
                "mine",
            ];
            for other in others {
                std::fs::write(&file, other).unwrap();
                assert!(!is_replaceable(&file, Some(old), true), "{other:?} by {old:?}");
                // What tools made replaces what stands in a folder that is an export.
                assert!(is_replaceable(&file, None, true) && !is_replaceable(&file, None, false));
            }
        }
        std::fs::write(&file, "").unwrap();
        assert!(is_replaceable(&file, Some(export), false));
        assert!(is_replaceable(&folder.path().join("none"), None, false));
    }
}
