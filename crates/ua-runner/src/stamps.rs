//! Which files of a workspace changed since somebody last looked, without reading those that did not.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ua_evidence::Artifact;

use crate::workspace::digests::{Digests, Look, MOST_FILES};
use crate::workspace::{MOST_LOOKED, Workspace, in_order, is_entered, is_own, open_file};

/// What tells that a file was written: size, inode, and the instant of its last change in nanoseconds.
type Stamp = (u64, u64, i64, i64);

/// Files as they were when somebody last looked, by path.
#[derive(Debug, Default)]
pub(crate) struct FileStamps(BTreeMap<String, Stamp>);

/// The most files that are looked at, and the most bytes that are read of those that changed, while an answer waits to be stored.
const LITTLE: (usize, u64) = (256, 64 * 1024);

/// The most bytes of all files that are read where they are looked at.
const LITTLE_OF_ALL: u64 = 1 << 20;

impl Workspace {
    /// The same as [`changed_files`](Self::changed_files) where that is done in no time: there are few files, and of those that changed little
    /// is to be read. `None` where it would take a while; `seen` stays as it is then.
    pub(crate) fn little_news(&self, seen: &mut FileStamps) -> Option<Vec<Artifact>> {
        let (mut files, mut bytes, mut new) = (0, 0, Vec::new());
        let is_little = self.each_file(|path, name| {
            files += 1;
            let Some(stamp) = stamp(path) else { return true };
            if seen.0.get(&name) != Some(&stamp) {
                bytes += stamp.0;
                new.push((path.to_path_buf(), name, stamp));
            }
            files <= LITTLE.0 && bytes <= LITTLE.1
        });
        let mut read = Look::of_turn();
        let mut look =
            |(path, name, stamp): (PathBuf, String, Stamp)| seen.read(&self.digests, &path, name, stamp, &mut read);
        is_little.then(|| by_path(new.into_iter().filter_map(&mut look)))
    }

    /// Whether there are few files with little in them, so that all is read in no time.
    pub(crate) fn is_little(&self) -> bool {
        let (mut files, mut bytes) = (0, 0_u64);
        self.each_file(|path, _| {
            files += 1;
            bytes = bytes.saturating_add(stamp(path).map_or(0, |(bytes, ..)| bytes));
            files <= LITTLE.0 && bytes <= LITTLE_OF_ALL
        })
    }

    /// The files that tools made and that are not as `seen` knows them, with their digests, by path. A file that goes away or
    /// changes while it is read is left for the next look: nobody may take it for what it was. What is too large or too much to be read
    /// ([`Digests`]) is passed over until it changes again.
    pub(crate) fn changed_files(&self, seen: &mut FileStamps) -> Vec<Artifact> {
        let (mut changed, mut read, mut files) = (Vec::new(), Look::of_turn(), 0);
        // Most of what it knows of is gone: files of before that have other names now.
        if seen.0.len() > 8 * MOST_FILES {
            seen.0.clear();
        }
        let busy = self.looked_through();
        self.each_file(|path, name| {
            changed.extend(seen.look(&self.digests, path, name, &mut read));
            files += 1;
            busy.files(files);
            files < MOST_FILES
        });
        by_path(changed)
    }

    /// Visits every file that tools made, as long as it is gone on with; false if it was not.
    pub(crate) fn each_file(&self, mut visit: impl FnMut(&Path, String) -> bool) -> bool {
        let (mut folders, mut looked_at) = (vec![self.root().to_path_buf()], 0);
        while let Some(folder) = folders.pop().filter(|_| looked_at < MOST_LOOKED) {
            let mut entries = Vec::new();
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
                let Ok(relative) = path.strip_prefix(self.root()) else { continue };
                let name = relative.to_string_lossy().into_owned();
                if !is_own(&name) {
                    entries.push((name, path, kind));
                }
            }
            looked_at += entries.len();
            entries.sort_by(|(one, _, kind), (other, _, of_other)| {
                in_order(one, kind.is_dir()).cmp(&in_order(other, of_other.is_dir()))
            });
            let mut inner = Vec::new();
            for (name, path, kind) in entries {
                if kind.is_dir() {
                    inner.extend(is_entered(&name).then_some(path));
                } else if kind.is_file() && !visit(&path, name) {
                    return false;
                }
            }
            folders.extend(inner.into_iter().rev());
        }
        true
    }
}

impl FileStamps {
    fn look(&mut self, digests: &Digests, path: &Path, name: String, read: &mut Look) -> Option<Artifact> {
        let before = stamp(path)?;
        if self.0.get(&name) == Some(&before) {
            return None;
        }
        self.read(digests, path, name, before, read)
    }

    /// Reads a file that was `before` when it was found, and counts it among what was `read` in this look.
    fn read(
        &mut self,
        digests: &Digests,
        path: &Path,
        name: String,
        before: Stamp,
        read: &mut Look,
    ) -> Option<Artifact> {
        let digested = open_file(path).and_then(|file| digests.of(file, read)).ok()?;
        if stamp(path) != Some(before) {
            self.0.remove(&name);
            return None;
        }
        self.0.insert(name.clone(), before);
        digested.map(|(bytes, sha256)| Artifact { path: name, bytes, sha256 })
    }
}

fn by_path(files: impl IntoIterator<Item = Artifact>) -> Vec<Artifact> {
    let mut files = Vec::from_iter(files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = fs::symlink_metadata(path).ok()?;
    Some((file.size(), file.ino(), file.ctime(), file.ctime_nsec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_named_again() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = Workspace::create(&dir.path().join("ws")).unwrap();
        let mut seen = FileStamps::default();
        let mut changed =
            || -> Vec<String> { workspace.changed_files(&mut seen).into_iter().map(|file| file.path).collect() };
        workspace.replace("work_products/a.md", "one").unwrap();
        workspace.replace("tasks/b.md", "two").unwrap();
        workspace.append_line("run.log", "x").unwrap();
        assert_eq!(changed(), ["tasks/b.md", "work_products/a.md"]);
        assert!(changed().is_empty());
        workspace.replace("work_products/a.md", "six").unwrap();
        assert_eq!(changed(), ["work_products/a.md"]);
        fs::remove_file(workspace.path("tasks/b.md")).unwrap();
        assert!(changed().is_empty());
    }

    #[test]
    fn much_news_is_told_without_reading_it() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = Workspace::create(&dir.path().join("ws")).unwrap();
        let mut seen = FileStamps::default();
        let little = |seen: &mut FileStamps| {
            workspace.little_news(seen).map(|files| files.into_iter().map(|file| file.path).collect::<Vec<_>>())
        };
        assert_eq!(little(&mut seen), Some(vec![]));
        workspace.replace("tasks/small.md", "one").unwrap();
        workspace.replace("tasks/a.md", "two").unwrap();
        assert_eq!(little(&mut seen), Some(vec!["tasks/a.md".to_owned(), "tasks/small.md".to_owned()]));
        assert_eq!(little(&mut seen), Some(vec![]), "what was read is no news");
        workspace.replace("tasks/large.bin", vec![0; 70_000]).unwrap();
        workspace.replace("tasks/small.md", "three").unwrap();
        assert_eq!(little(&mut seen), None);
        assert_eq!(workspace.changed_files(&mut seen).len(), 2, "nothing was taken for seen");
        assert_eq!(little(&mut seen), Some(vec![]));
        for number in 0..300 {
            workspace.replace(&format!("tasks/{number}"), "").unwrap();
        }
        workspace.changed_files(&mut seen);
        assert_eq!(little(&mut seen), None, "to look at many files takes a while, too");
    }
}
