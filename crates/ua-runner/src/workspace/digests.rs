//! Digests of what tools made, each file read once for as long as it stays what it is, and never more than can be read in some seconds.
//!
//! A program of a model makes a file of terabytes in an instant (a sparse one takes no room), and a run that reads it could neither go on nor
//! end. So a file above [`LARGEST`], and what comes behind [`MOST`] of all, in the order of names, is no artifact. It stays where it is.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ua_core::Sha256;

/// The longest file that is an artifact, in bytes: as much as can be sent.
const LARGEST: u64 = 2 << 30;
/// As much of a workspace is artifacts, in bytes.
const MOST: u64 = 16 << 30;
/// A file that was changed so recently, in seconds, may be changed again without another time: it is read again.
const SETTLED_SECONDS: i64 = 2;

/// What was read of one workspace.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    known: Mutex<HashMap<Stamp, Sha256>>,
    told: Mutex<Vec<String>>,
}

/// Tells a file from what it is after somebody wrote to it. Nobody chooses when the kernel says that it was changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// `None` where the same might be said of the file after another change.
    #[expect(
        clippy::disallowed_methods,
        reason = "it is compared with a time that the kernel gave the file, whatever a simulation says"
    )]
    fn of(file: &Metadata) -> Option<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
        let is_settled = i64::try_from(now).ok()? - file.ctime() > SETTLED_SECONDS;
        is_settled.then(|| Self {
            device: file.dev(),
            inode: file.ino(),
            bytes: file.len(),
            changed: (file.ctime(), file.ctime_nsec()),
        })
    }
}

impl Digests {
    /// The length and digest of a file, which count among `so_far` then; `None` where it is too large.
    pub(crate) fn of(&self, file: File, so_far: &mut u64) -> io::Result<Option<(u64, Sha256)>> {
        let meta = file.metadata()?;
        let bytes = so_far.saturating_add(meta.len());
        if meta.len() > LARGEST || bytes > MOST {
            return Ok(None);
        }
        *so_far = bytes;
        let stamp = Stamp::of(&meta);
        let known = |stamp: &Stamp| self.known.lock().unwrap_or_else(PoisonError::into_inner).get(stamp).copied();
        if let Some(sha256) = stamp.as_ref().and_then(known) {
            return Ok(Some((meta.len(), sha256)));
        }
        // What grows meanwhile is read to where it was.
        let (read, sha256) = super::digest(io::Read::take(file, meta.len()))?;
        if let Some(stamp) = stamp.filter(|_| read == meta.len()) {
            self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(stamp, sha256);
        }
        Ok(Some((read, sha256)))
    }

    /// Says of which files nothing is recorded, once of the same.
    pub(super) fn tell(&self, left_out: &[String]) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if *told == left_out {
            return;
        }
        *told = left_out.to_vec();
        if let Some(first) = left_out.first() {
            let more = match left_out.len() {
                1 => String::new(),
                all => format!(" and {} more", all - 1),
            };
            tracing::warn!(
                "too large or too deep to be recorded as results (2 GiB a file, 16 GiB and 64 folders deep in all): {first}{more}"
            );
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::super::Workspace;
    use super::*;

    #[test]
    fn files_of_terabytes_keep_no_run_from_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = Workspace::create(&dir.path().join("ws")).unwrap();
        workspace.replace("work_products/a.md", "a").unwrap();
        workspace.replace("work_products/z.md", "z").unwrap();
        for number in 0..100 {
            let sparse = File::create(workspace.path(&format!("work_products/r{number}.bin"))).unwrap();
            sparse.set_len(LARGEST + 1 + number).unwrap();
        }
        let mut seen = crate::stamps::FileStamps::default();
        let looks: [&mut dyn FnMut() -> Vec<ua_evidence::Artifact>; 3] =
            [&mut || workspace.artifacts().unwrap(), &mut || workspace.changed_files(&mut seen), &mut || {
                workspace.artifacts().unwrap()
            }];
        for look in looks {
            let names: Vec<String> = look().into_iter().map(|one| one.path).collect();
            assert_eq!(names, ["work_products/a.md", "work_products/z.md"]);
        }
        assert!(workspace.changed_files(&mut seen).is_empty(), "and nothing is opened again");
        let large = super::super::digest_file(&workspace.path("work_products/r0.bin"));
        assert_eq!(large.unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn a_file_is_what_it_is_now_however_often_it_is_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let digests = Digests::default();
        let now = || digests.of(File::open(&path).unwrap(), &mut 0).unwrap().unwrap();
        for number in 0..50_u8 {
            std::fs::write(&path, [number; 7]).unwrap();
            assert_eq!(now(), (7, ua_core::sha256([number; 7])));
        }
    }

    #[test]
    fn only_what_is_settled_is_known_by_its_times() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(Stamp::of(&file.as_file().metadata().unwrap()), None, "it was made just now");
        assert!(Stamp::of(&std::fs::metadata("/usr").unwrap()).is_some());
    }

    #[test]
    fn what_is_too_much_together_is_left_out_behind_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "123").unwrap();
        let (digests, mut so_far) = (Digests::default(), MOST - 4);
        assert!(digests.of(File::open(&path).unwrap(), &mut so_far).unwrap().is_some());
        assert!(digests.of(File::open(&path).unwrap(), &mut so_far).unwrap().is_none());
        assert_eq!(so_far, MOST - 1);
    }
}
