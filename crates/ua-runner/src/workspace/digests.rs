//! Digests of what tools made, each file read once for as long as it stays what it is, and never more than can be read in some seconds.
//!
//! A program of a model makes a file of terabytes in an instant (a sparse one takes no room), and a run that reads it could neither go on nor
//! end. So a file above [`LARGEST`], and what comes behind [`MOST`] of all, in the order of names, is no artifact; nor is what would be read in
//! one look beyond what a look may ([`Look`]), until a later one. Once the run is to stop, hardly anything is read any more. Names cost, too: what
//! comes behind [`MOST_FILES`] is counted, and neither opened nor kept. All of it stays where it is. What a job names is looked at by itself, and is
//! there however much lies beside it ([`Workspace::artifacts_of`](super::Workspace::artifacts_of)).

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::Digest as _;
use ua_core::Sha256;
use ua_dispatch::StopSignal;

/// The longest file that is an artifact, in bytes: as much as can be sent.
const LARGEST: u64 = 2 << 30;
/// As much of a workspace is artifacts, in bytes.
const MOST: u64 = 16 << 30;
/// The most that one look at a workspace reads of files that nobody read before, in bytes.
const MOST_READ: u64 = MOST;
/// The same behind each turn, where a file that is only touched is new each time.
const MOST_READ_OF_TURN: u64 = 512 << 20;
/// The same once the run is to stop.
const MOST_READ_AT_STOP: u64 = 32 << 20;
/// As many files are artifacts. Each is kept in memory, in markers and in pages.
pub(crate) const MOST_FILES: usize = 50_000;
/// So many digests are kept; nobody knows which files of before are still there.
const MOST_KNOWN: usize = 3 * MOST_FILES;
/// A file that was changed so recently, in seconds, may be changed again without another time: it is read again.
const SETTLED_SECONDS: i64 = 2;

/// What was read of one workspace.
#[derive(Debug, Default)]
pub(crate) struct Digests {
    known: Mutex<HashMap<Stamp, Sha256>>,
    told: Mutex<LeftOut>,
    /// What ends the process that looks; none where nobody could.
    stop: Mutex<Option<StopSignal>>,
}

/// One look at the files of a workspace.
#[derive(Debug)]
pub(crate) struct Look {
    /// The lengths of what is among the artifacts, together.
    bytes: u64,
    /// What may still be read of files that nobody read before, in bytes.
    unread: u64,
}

impl Look {
    /// At everything.
    pub(crate) const fn whole() -> Self {
        Self { bytes: 0, unread: MOST_READ }
    }

    /// At what a turn changed.
    pub(crate) const fn of_turn() -> Self {
        Self { bytes: 0, unread: MOST_READ_OF_TURN }
    }
}

/// Files of which nothing is recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    first: Option<String>,
    count: usize,
}

impl LeftOut {
    pub(crate) fn add(&mut self, name: String) {
        self.first.get_or_insert(name);
        self.count += 1;
    }
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
    /// From now on this signal ends the process that looks.
    pub(crate) fn heed(&self, stop: &StopSignal) {
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(stop.clone());
    }

    fn is_stopping(&self) -> bool {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(StopSignal::is_stopping)
    }

    /// The length and digest of a file, which count among what is seen in this `look`; `None` where it is too large, or would take too long now.
    pub(crate) fn of(&self, file: File, look: &mut Look) -> io::Result<Option<(u64, Sha256)>> {
        let meta = file.metadata()?;
        let bytes = look.bytes.saturating_add(meta.len());
        if meta.len() > LARGEST || bytes > MOST {
            return Ok(None);
        }
        let stamp = Stamp::of(&meta);
        let known = |stamp: &Stamp| self.known.lock().unwrap_or_else(PoisonError::into_inner).get(stamp).copied();
        if let Some(sha256) = stamp.as_ref().and_then(known) {
            look.bytes = bytes;
            return Ok(Some((meta.len(), sha256)));
        }
        if self.is_stopping() {
            look.unread = look.unread.min(MOST_READ_AT_STOP);
        }
        if meta.len() > look.unread {
            return Ok(None);
        }
        // What grows meanwhile is read to where it was.
        let Some((read, sha256)) = self.digest(io::Read::take(file, meta.len()))? else { return Ok(None) };
        (look.bytes, look.unread) = (bytes, look.unread - meta.len());
        if let Some(stamp) = stamp.filter(|_| read == meta.len()) {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= MOST_KNOWN {
                known.clear();
            }
            known.insert(stamp, sha256);
        }
        Ok(Some((read, sha256)))
    }

    /// The length and digest of what can be read; `None` where the run is to stop before much of it was.
    fn digest(&self, mut file: impl io::Read) -> io::Result<Option<(u64, Sha256)>> {
        let mut hasher = sha2::Sha256::new();
        let mut buffer = vec![0; 64 * 1024];
        let mut bytes = 0;
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                return Ok(Some((bytes, Sha256::from_bytes(hasher.finalize().into()))));
            }
            bytes += read as u64;
            hasher.update(&buffer[..read]);
            if bytes > MOST_READ_AT_STOP && self.is_stopping() {
                return Ok(None);
            }
        }
    }

    /// Says of which files nothing is recorded, once of the same.
    pub(super) fn tell(&self, left_out: &LeftOut) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if *told == *left_out {
            return;
        }
        told.clone_from(left_out);
        if let Some(first) = &left_out.first {
            let more = match left_out.count {
                1 => String::new(),
                all => format!(" and {} more", all - 1),
            };
            tracing::warn!(
                "too large, too deep or too many to be recorded as results (2 GiB a file, 16 GiB, 64 folders deep and {MOST_FILES} files in \
                 all): {first}{more}"
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
        let now = || digests.of(File::open(&path).unwrap(), &mut Look::whole()).unwrap().unwrap();
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
        let (digests, mut look) = (Digests::default(), Look { bytes: MOST - 4, ..Look::whole() });
        assert!(digests.of(File::open(&path).unwrap(), &mut look).unwrap().is_some());
        assert!(digests.of(File::open(&path).unwrap(), &mut look).unwrap().is_none());
        assert_eq!(look.bytes, MOST - 1);
    }

    #[test]
    fn no_look_reads_more_than_it_may_and_later_ones_read_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        for path in [&one, &other] {
            std::fs::write(path, "123").unwrap();
        }
        let digests = Digests::default();
        let mut look = Look { unread: 5, ..Look::whole() };
        let is_read =
            |path: &std::path::Path, look: &mut Look| digests.of(File::open(path).unwrap(), look).unwrap().is_some();
        assert_eq!((is_read(&one, &mut look), is_read(&other, &mut look), look.unread), (true, false, 2));
        assert!(is_read(&other, &mut Look::whole()));
        assert!(Look::of_turn().unread < Look::whole().unread);
    }

    /// What a program made large in an instant, by holes: a run that is to stop does not read it first.
    #[test]
    fn a_run_that_is_to_stop_reads_no_large_file_first() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = Workspace::create(&dir.path().join("ws")).unwrap();
        workspace.replace("work_products/z.md", "z").unwrap();
        for number in 0..8 {
            let sparse = File::create(workspace.path(&format!("work_products/{number}.bin"))).unwrap();
            sparse.set_len(LARGEST - number).unwrap();
        }
        let stop = StopSignal::default();
        workspace.digests.heed(&stop);
        stop.stop_gently();
        let mut seen = crate::stamps::FileStamps::default();
        for found in [workspace.artifacts().unwrap(), workspace.changed_files(&mut seen)] {
            let names: Vec<String> = found.into_iter().map(|one| one.path).collect();
            assert_eq!(names, ["work_products/z.md"]);
        }
    }

    /// What a job names is what a run is for: it is there however much lies beside it, and also where nobody can read all of it now.
    #[test]
    fn what_a_job_names_is_found_however_much_lies_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = Workspace::create(&dir.path().join("ws")).unwrap();
        workspace.make_folder("app").unwrap();
        for number in 0..MOST_FILES + 50 {
            File::create(workspace.path(&format!("app/{number:06}"))).unwrap();
        }
        for folder in ["site/deep", "zoo", "logs"] {
            workspace.make_folder(folder).unwrap();
        }
        for name in ["site/index.html", "site/deep/page.html", "zoo/page.html", "logs/own.txt"] {
            workspace.replace(name, "x").unwrap();
        }
        for (name, bytes) in [("zoo/one.mp4", LARGEST + 1), ("zoo/two.mp4", 2 * MOST_READ_AT_STOP)] {
            File::create(workspace.path(name)).unwrap().set_len(bytes).unwrap();
        }
        let job = r#"{"objective": "x", "artifacts": {"expected_outputs": ["site/index.html", "page.html", "zoo/one.mp4", "zoo/two.mp4",
            "zoo/none.mp4", "logs/own.txt", "site"]}}"#;
        let spec = ua_core::RunSpec::parse(job).unwrap();
        let stop = StopSignal::default();
        workspace.digests.heed(&stop);
        for (is_to_stop, read, unread) in [
            (false, &["site/index.html", "zoo/page.html", "zoo/two.mp4"][..], &["zoo/one.mp4"][..]),
            (true, &["site/index.html", "zoo/page.html"][..], &["zoo/one.mp4", "zoo/two.mp4"][..]),
        ] {
            if is_to_stop {
                // It became another one, which nobody read yet.
                File::create(workspace.path("zoo/two.mp4")).unwrap().set_len(3 * MOST_READ_AT_STOP).unwrap();
                stop.stop_gently();
            }
            let artifacts = workspace.artifacts_of(&spec).unwrap();
            assert!(artifacts.is_sorted_by(|one, other| one.path < other.path), "each once");
            let named: Vec<&str> =
                artifacts.iter().map(|file| file.path.as_str()).filter(|path| !path.starts_with("app/")).collect();
            assert_eq!(named, read);
            let left = workspace.unread(&spec, &artifacts);
            assert_eq!(left.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), unread);
            let report = ua_evidence::evaluate_scope(
                &spec,
                ua_evidence::EvidenceScope::at_end_of(&spec, ""),
                &[],
                &[],
                &artifacts,
                &left,
                &|_| None,
            );
            let met: Vec<bool> = report.conditions.iter().map(|condition| condition.met).collect();
            assert_eq!(met, [true, true, true, true, false, false, false]);
        }
    }

    /// A file without end that says stop after some blocks.
    struct Endless<'a> {
        blocks: u64,
        stop_at: u64,
        stop: &'a StopSignal,
    }

    impl io::Read for Endless<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.blocks += 1;
            if self.blocks == self.stop_at {
                self.stop.stop_gently();
            }
            buffer.fill(0);
            Ok(buffer.len())
        }
    }

    #[test]
    fn a_stop_is_heard_while_a_file_is_read() {
        let least = MOST_READ_AT_STOP / (64 * 1024);
        for (stop_at, wanted) in [(1, least + 1), (least + 40, least + 40)] {
            let (digests, stop) = (Digests::default(), StopSignal::default());
            digests.heed(&stop);
            let mut endless = Endless { blocks: 0, stop_at, stop: &stop };
            assert_eq!(digests.digest(&mut endless).unwrap(), None);
            assert_eq!(endless.blocks, wanted);
        }
    }

    #[test]
    fn what_tools_made_is_kept_up_to_a_number_of_files_and_what_a_person_looks_for_first() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = Workspace::create(&dir.path().join("ws")).unwrap();
        workspace.make_folder("a/b").unwrap();
        workspace.make_folder("work_products/deep").unwrap();
        for number in 0..MOST_FILES + 50 {
            File::create(workspace.path(&format!("a/b/{number:06}"))).unwrap();
        }
        for name in ["transcript.md", "work_products/deep/report.pdf", "z.md"] {
            workspace.replace(name, "x").unwrap();
        }
        let mut seen = crate::stamps::FileStamps::default();
        for found in [workspace.artifacts().unwrap(), workspace.changed_files(&mut seen)] {
            assert_eq!(found.len(), MOST_FILES);
            for name in ["transcript.md", "work_products/deep/report.pdf", "z.md", "a/b/000000"] {
                assert!(found.iter().any(|one| one.path == name), "{name}");
            }
        }
        let told = workspace.digests.told.lock().unwrap().clone();
        assert_eq!((told.first.as_deref(), told.count), (Some("a/b/049997"), 53));
    }
}
