//! The home of `claude`: its sessions, and nothing else that anybody could have put there.
//!
//! What lies in a home says what is started: settings with hooks, plugins, modules that a runtime looks for there. A home comes into the place of a
//! run's with a checkout, or with a folder of runs that somebody passed on, and a run that goes on needs of it only what was said. So at each start
//! all the rest is removed; `claude` makes again what it wants.
//! Proved by: the tests below and of the provider.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use ua_files::{Folder, Kind};

use crate::config::HOME;

/// Where `claude` keeps its own things, below its home, and among them its sessions: a folder for each working directory.
const OWN: &str = ".claude";
const SESSIONS: &str = "projects";
/// The ending of a session.
const SESSION: &str = ".jsonl";

/// Makes the home of a run's folder, or leaves of the one that is there the sessions.
pub(crate) fn keep_sessions_only(folder: &Folder) -> io::Result<()> {
    let home = folder.make_folder(HOME)?;
    keep_folders(&home, |name| name == OWN)?;
    let Some(own) = below(&home, OWN)? else { return Ok(()) };
    keep_folders(&own, |name| name == SESSIONS)?;
    let Some(sessions) = below(&own, SESSIONS)? else { return Ok(()) };
    keep_folders(&sessions, |_| true)?;
    for (name, _) in sessions.entries()? {
        let place = sessions.folder(&name)?;
        for (file, kind) in place.entries()? {
            if kind != Kind::File || !file.as_encoded_bytes().ends_with(SESSION.as_bytes()) {
                take_out(&place, &file, kind)?;
            }
        }
    }
    Ok(())
}

/// The folder of this name, if it is there.
fn below(folder: &Folder, name: &str) -> io::Result<Option<Folder>> {
    match folder.folder(name) {
        Ok(below) => Ok(Some(below)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes all but folders with such names.
fn keep_folders(folder: &Folder, is_kept: impl Fn(&OsStr) -> bool) -> io::Result<()> {
    for (name, kind) in folder.entries()? {
        if kind != Kind::Folder || !is_kept(&name) {
            take_out(folder, &name, kind)?;
        }
    }
    Ok(())
}

fn take_out(folder: &Folder, name: &OsStr, kind: Kind) -> io::Result<()> {
    match kind {
        Kind::Folder => remove(&folder.path().join(name)),
        Kind::File | Kind::Other => folder.remove(name),
    }
}

/// Removes a folder with what is in it, or a link in its place.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use std::fs;

    use super::*;

    /// Links are removed and not followed, wherever they stand.
    #[test]
    fn s9_of_a_home_that_is_there_only_its_sessions_stay() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        keep_sessions_only(&folder).unwrap();
        let (home, outside) = (dir.path().join(HOME), dir.path().join("outside"));
        let kept = ".claude/projects/-work/s-1.jsonl";
        let brought = [
            ".claude.json",
            ".bunfig.toml",
            ".node_modules/bufferutil/index.js",
            ".claude/settings.json",
            ".claude/plugins/own/hooks/hooks.json",
            ".claude/projects/loose.jsonl",
            ".claude/projects/-work/memory/MEMORY.md",
            ".claude/projects/-work/s-1/tool-results/1.txt",
            "outside/s-1.jsonl",
        ];
        for name in brought.iter().chain([&kept]) {
            fs::create_dir_all(home.join(name).parent().unwrap()).unwrap();
            fs::write(home.join(name), "brought").unwrap();
        }
        fs::rename(home.join("outside"), &outside).unwrap();
        for link in [".claude/agents", ".claude/projects/elsewhere", ".claude/projects/-work/s-2.jsonl"] {
            std::os::unix::fs::symlink(&outside, home.join(link)).unwrap();
        }
        keep_sessions_only(&folder).unwrap();
        let mut found = Vec::new();
        let mut left = vec![home.clone()];
        while let Some(folder) = left.pop() {
            for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
                let path = entry.path();
                let name = path.strip_prefix(&home).unwrap().display().to_string();
                if entry.file_type().unwrap().is_dir() { left.push(path) } else { found.push(name) }
            }
        }
        assert_eq!(found, [kept]);
        assert!(outside.join("s-1.jsonl").exists());
        // A link in its place is no home.
        fs::rename(&home, dir.path().join("moved")).unwrap();
        std::os::unix::fs::symlink(&outside, &home).unwrap();
        assert!(keep_sessions_only(&folder).is_err() && outside.join("s-1.jsonl").exists());
    }
}
