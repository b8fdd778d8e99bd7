//! The file of answers that the database did not take: one line of JSON each, synced.
//!
//! It is written when nothing else can be, so it is opened anew each time, and what is wrong with it is told and no more. A database that takes
//! nothing takes nothing of anybody: what waits while one writes is written behind that, all of it with one sync, on a thread that may wait.
//!
//! A full disk takes nothing here either. So room is kept behind the end of the file, where no reader sees it: what is written at the end takes that
//! room first.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use ua_core::{CallId, ShowPath as _};
use ua_ledger::{LateReplies, said};
use ua_store::LateReply;

use crate::watch::{RunEvent, Watcher};

/// As much of it is read.
const MOST: u64 = 64 << 20;

/// So much room is kept behind its end, for the answers of all calls that are under way at once; most have a few kilobytes.
const ROOM: u64 = 1 << 20;

/// With less than this it is made anew before the next call.
const LEAST_ROOM: u64 = ROOM / 2;

/// In such units a file says how much it takes.
const BLOCK: u64 = 512;

/// The file of one root.
#[derive(Debug, Clone)]
pub struct LateFile {
    path: PathBuf,
    /// Whether room is kept for what may have to be written.
    keeps_room: bool,
    /// Attempts whose answer it could not take, which is logged once: whoever waits for room tries again and again.
    logged: Arc<Mutex<BTreeSet<(CallId, u32)>>>,
    /// What is to be written next.
    waiting: Arc<Mutex<Vec<Waiting>>>,
    /// Whoever writes has it.
    turn: Arc<Mutex<()>>,
}

/// A line that is not written yet, and whoever waits for that.
#[derive(Debug)]
struct Waiting {
    line: String,
    told: oneshot::Sender<Result<(), Arc<io::Error>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LateFile {
    /// Its name in a root.
    pub const NAME: &str = "late_replies.log";

    /// The file at `path`; it is made with the first answer.
    pub fn at(path: PathBuf) -> Self {
        Self { path, keeps_room: false, logged: Arc::default(), waiting: Arc::default(), turn: Arc::default() }
    }

    /// The same, which has room on the disk before a call is started whose answer it may have to take.
    #[must_use]
    pub fn with_room(self) -> Self {
        Self { keeps_room: true, ..self }
    }

    /// Opens it: no link is followed, no pipe is waited for, and what is no file is none.
    fn open(&self, options: &mut OpenOptions) -> io::Result<File> {
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = options.read(true).custom_flags(flags.bits().cast_signed()).open(&self.path)?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a file")) }
    }

    #[expect(clippy::disallowed_methods, reason = "options alone open nothing")]
    fn append(&self, lines: &str) -> io::Result<()> {
        let mut file = self.open(OpenOptions::new().append(true).create(true).mode(0o600))?;
        // A line that a kill cut in half takes no other along.
        let mut last = [b'\n'];
        if file.metadata()?.len() > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        let cut = if last == [b'\n'] { "" } else { "\n" };
        file.write_all(format!("{cut}{lines}").as_bytes())?;
        file.sync_all()
    }

    /// Takes room behind its end, if there is little. A file system that keeps none is as it was; and what else is wrong with the file is told when
    /// an answer is to be written.
    #[expect(clippy::disallowed_methods, reason = "options alone open nothing")]
    fn take_room(&self) -> io::Result<()> {
        let taken = self.open(OpenOptions::new().append(true).create(true).mode(0o600)).and_then(|file| {
            let found = file.metadata()?;
            let has_room = found.blocks() * BLOCK >= found.len() + LEAST_ROOM;
            if has_room { Ok(()) } else { reserve(&file, found.len()) }
        });
        taken.or_else(|error| {
            if matches!(Errno::from_io_error(&error), Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) {
                return Err(error);
            }
            tracing::debug!(path = %self.path.shown(), %error, "no room is kept for answers");
            Ok(())
        })
    }

    /// Writes what waits by now, all of it at once.
    fn write_waiting(&self) {
        let _turn = lock(&self.turn);
        let all = std::mem::take(&mut *lock(&self.waiting));
        // Whoever had the turn before wrote them as well.
        if all.is_empty() {
            return;
        }
        let lines: String = all.iter().flat_map(|one| [one.line.as_str(), "\n"]).collect();
        let written = self.append(&lines).map_err(Arc::new);
        for Waiting { told, .. } in all {
            let _gone = told.send(written.clone());
        }
    }

    /// Has a line written, with those that wait at that time: whether or not anybody waits for it still. Each sees to it by itself, since whoever
    /// came first may have been of a runtime that has ended.
    async fn written(&self, line: String) -> Result<(), Arc<io::Error>> {
        let (told, written) = oneshot::channel();
        lock(&self.waiting).push(Waiting { line, told });
        let file = self.clone();
        if Handle::try_current().is_ok() {
            drop(tokio::task::spawn_blocking(move || file.write_waiting()));
        } else {
            file.write_waiting();
        }
        written.await.unwrap_or_else(|_| Err(Arc::new(io::Error::other("this program ends"))))
    }
}

/// Takes blocks behind the end of a file, which stays where it is: readers and earlier versions see none of it.
#[cfg(target_os = "linux")]
fn reserve(file: &File, end: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, rustix::fs::FallocateFlags::KEEP_SIZE, end, ROOM)?)
}

#[cfg(not(target_os = "linux"))]
fn reserve(_file: &File, _end: u64) -> io::Result<()> {
    Ok(())
}

#[async_trait]
impl LateReplies for LateFile {
    /// Mostly a look at the file, for which no thread is worth waiting.
    async fn make_room(&self) -> Result<(), String> {
        if !self.keeps_room {
            return Ok(());
        }
        let path = self.path.shown();
        self.take_room().map_err(|error| format!("{path} has no room for the answer: {error}"))
    }

    async fn keep(&self, late: &LateReply) -> Result<(), String> {
        let (call, path) = (&late.tool_call_id, self.path.shown());
        let line = serde_json::to_string(late).map_err(|error| format!("{path} cannot be written: {error}"))?;
        self.written(line).await.map_err(|error| {
            let mut logged = lock(&self.logged);
            if logged.insert((call.clone(), late.attempt)) {
                tracing::error!(%call, %path, %error, "an answer that the database does not accept was not kept");
            }
            format!("{path} cannot be written: {error}")
        })?;
        // No warning: nothing has to be done, and who is to know that the database is waited for is told by what waits.
        tracing::info!(%call, file = %path, "the database has not taken an answer yet; it is kept in a file, and stored from there");
        Ok(())
    }

    fn all(&self) -> Vec<LateReply> {
        self.having("").unwrap_or_default()
    }

    fn about(&self, call: &CallId) -> Vec<LateReply> {
        let mut late = self.having(call.as_str()).unwrap_or_default();
        late.retain(|late| late.tool_call_id == *call);
        late
    }
}

impl LateFile {
    /// The answers whose lines have this in them. There is no file, but after such a trouble.
    #[expect(clippy::disallowed_methods, reason = "options alone open nothing")]
    fn having(&self, word: &str) -> io::Result<Vec<LateReply>> {
        let mut text = String::new();
        self.open(&mut OpenOptions::new())?.take(MOST).read_to_string(&mut text)?;
        let lines = text.lines().filter(|line| line.contains(word));
        Ok(lines.filter_map(|line| serde_json::from_str(line).ok()).collect())
    }
}

/// Keeps answers elsewhere, and has whoever watches the run told of one that could not be kept, once.
#[derive(Clone)]
pub(crate) struct TellingLate {
    late: Arc<dyn LateReplies>,
    watcher: Watcher,
    told: Arc<Mutex<BTreeSet<(CallId, u32)>>>,
}

impl TellingLate {
    pub(crate) fn new(late: Arc<dyn LateReplies>, watcher: Watcher) -> Self {
        Self { late, watcher, told: Arc::default() }
    }
}

impl std::fmt::Debug for TellingLate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("TellingLate").field(&self.late).finish()
    }
}

#[async_trait]
impl LateReplies for TellingLate {
    async fn make_room(&self) -> Result<(), String> {
        self.late.make_room().await
    }

    async fn keep(&self, late: &LateReply) -> Result<(), String> {
        let kept = self.late.keep(late).await;
        let (call_id, mut told) = (late.tool_call_id.clone(), lock(&self.told));
        let attempt = (call_id.clone(), late.attempt);
        match &kept {
            Err(why) => {
                if told.insert(attempt) {
                    let (said, why) = (said(&late.reply), why.clone());
                    (self.watcher)(RunEvent::AnswerNotKept { call_id, said, why });
                }
            }
            Ok(()) => {
                if told.remove(&attempt) {
                    (self.watcher)(RunEvent::AnswerKept { call_id });
                }
            }
        }
        kept
    }

    fn all(&self) -> Vec<LateReply> {
        self.late.all()
    }

    fn about(&self, call: &CallId) -> Vec<LateReply> {
        self.late.about(call)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests damage the file that they look at")]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;
    use ua_core::{RawReply, RunId, Timestamp};

    use super::*;

    #[tokio::test]
    async fn an_answer_is_found_by_its_call_and_a_cut_line_takes_none_along() {
        let folder = tempfile::tempdir().unwrap();
        let file = LateFile::at(folder.path().join(LateFile::NAME));
        let late = |call: &str, attempt| LateReply {
            at: Timestamp::from_millis(1_767_323_045_000),
            run_id: RunId::parse("run_1").unwrap(),
            tool_call_id: CallId::parse(call).unwrap(),
            attempt,
            sent_at: None,
            reply: RawReply::ToolResult { result: json!({"content": [{"type": "text", "text": "sent"}]}) },
        };
        assert!(file.about(&late("call_1", 1).tool_call_id).is_empty());
        file.keep(&late("call_1", 1)).await.unwrap();
        let path = folder.path().join(LateFile::NAME);
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"at\": \"20").unwrap();
        file.keep(&late("call_2", 1)).await.unwrap();
        file.keep(&late("call_1", 2)).await.unwrap();
        assert_eq!(file.about(&late("call_1", 1).tool_call_id), [late("call_1", 1), late("call_1", 2)]);
        assert_eq!(file.about(&late("call_2", 1).tool_call_id), [late("call_2", 1)]);
        assert_eq!(file.all(), [late("call_1", 1), late("call_2", 1), late("call_1", 2)]);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    fn answer(call: &str, words: &str) -> LateReply {
        LateReply {
            at: Timestamp::from_millis(0),
            run_id: RunId::parse("run_1").unwrap(),
            tool_call_id: CallId::parse(call).unwrap(),
            attempt: 1,
            sent_at: None,
            reply: RawReply::http(200, words),
        }
    }

    /// Room is kept where no reader sees it, before each call and behind each answer.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn room_is_kept_behind_the_end_and_nobody_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(LateFile::NAME);
        let file = LateFile::at(path.clone());
        file.make_room().await.unwrap();
        assert!(!path.exists(), "only who wants room takes it");
        let file = file.with_room();
        let mut kept = Vec::new();
        for number in 0..4 {
            file.make_room().await.unwrap();
            let found = std::fs::metadata(&path).unwrap();
            // Some file systems keep none.
            let keeps_room = rustix::fs::fallocate(
                File::create(folder.path().join("tried")).unwrap(),
                rustix::fs::FallocateFlags::KEEP_SIZE,
                0,
                ROOM,
            );
            assert!(keeps_room.is_err() || found.blocks() * BLOCK >= found.len() + LEAST_ROOM, "{number}: {found:?}");
            let late = answer(&format!("call_{number}"), &"x".repeat(300_000));
            file.keep(&late).await.unwrap();
            kept.push(late);
            assert_eq!(file.all(), kept);
            assert!(!std::fs::read(&path).unwrap().contains(&0));
        }
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    /// A disk of its own that fills while a call is under way: its answer is kept all the same, and the next call is not started without room.
    #[cfg(target_os = "linux")]
    #[test]
    fn an_answer_has_room_on_a_disk_that_filled_since() {
        let folder = tempfile::tempdir().unwrap();
        let (disk, own) = (folder.path().display(), std::env::current_exe().unwrap());
        let script = format!("mount -t tmpfs -o size=3m tmpfs '{disk}' && cd '{disk}' && exec \"$@\"");
        let alone = ["--user", "--map-root-user", "--mount", "sh", "-c"];
        let unshare = |script: &str, args: &[&str]| {
            let mut command = std::process::Command::new("unshare");
            command.args(alone).args([script, "sh"]).args(args).output()
        };
        if !unshare(&script, &["true"]).is_ok_and(|tried| tried.status.success()) {
            return ua_testkit::skipped("no disk can be mounted here");
        }
        let inner = "late_file::tests::on_a_small_disk_that_fills";
        let own = own.to_str().unwrap();
        let ended = unshare(&script, &[own, "--exact", inner, "--include-ignored", "--nocapture"]).unwrap();
        let said = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success() && said.contains("it was full"), "{said}");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    #[ignore = "on a disk that another test mounts, and that it fills"]
    async fn on_a_small_disk_that_fills() {
        let disk = rustix::fs::statvfs(".").unwrap();
        if disk.f_blocks * disk.f_frsize > 4 << 20 {
            return;
        }
        let file = LateFile::at(LateFile::NAME.into()).with_room();
        let late = answer("call_1", &"sent ".repeat(10_000));
        file.make_room().await.unwrap();
        let mut filler = File::create("filler").unwrap();
        while filler.write_all(&[0x20; 4096]).is_ok() {}
        file.keep(&late).await.unwrap();
        assert_eq!(file.all(), [late]);
        // One that has no room yet gets none, and is told so.
        let other = LateFile::at("other.log".into()).with_room();
        let refused = other.make_room().await.unwrap_err();
        assert!(refused.contains("has no room for the answer"), "{refused}");
        drop(filler);
        std::fs::remove_file("filler").unwrap();
        other.make_room().await.unwrap();
        eprintln!("it was full");
    }

    /// Whoever was to write it was of a runtime that ended before it came to that.
    #[tokio::test]
    async fn an_answer_that_a_runtime_left_is_written_with_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let file = LateFile::at(folder.path().join(LateFile::NAME));
        let late = |call: &str| LateReply {
            at: Timestamp::from_millis(1_767_323_045_000),
            run_id: RunId::parse("run_1").unwrap(),
            tool_call_id: CallId::parse(call).unwrap(),
            attempt: 1,
            sent_at: None,
            reply: RawReply::ToolResult { result: json!({"content": []}) },
        };
        let (told, left) = oneshot::channel();
        lock(&file.waiting).push(Waiting { line: serde_json::to_string(&late("call_1")).unwrap(), told });
        drop(left);
        tokio::time::timeout(std::time::Duration::from_mins(1), file.keep(&late("call_2"))).await.unwrap().unwrap();
        assert_eq!(file.all(), [late("call_1"), late("call_2")]);
    }

    /// Has somebody write until what this returns is dropped.
    fn somebody_writes(file: &LateFile) -> std::sync::mpsc::Sender<()> {
        let turn = file.turn.clone();
        let ((begun, begins), (over, ends)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        std::thread::spawn(move || {
            let _turn = lock(&turn);
            begun.send(()).unwrap();
            ends.recv().unwrap_err();
        });
        begins.recv().unwrap();
        over
    }

    /// What many bring while one writes is written at once behind that, and each of them is told when it is.
    #[tokio::test]
    async fn what_waits_while_one_writes_is_written_with_one_sync() {
        let folder = tempfile::tempdir().unwrap();
        let file = LateFile::at(folder.path().join(LateFile::NAME));
        let late = |number: u32| LateReply {
            at: Timestamp::from_millis(0),
            run_id: RunId::parse(&format!("run_{number}")).unwrap(),
            tool_call_id: CallId::parse(&format!("call_{number}")).unwrap(),
            attempt: 1,
            sent_at: None,
            reply: RawReply::http(200, "sent"),
        };
        let turn = somebody_writes(&file);
        let keeping: Vec<_> = (0..64)
            .map(|number| {
                let (file, late) = (file.clone(), late(number));
                tokio::spawn(async move { file.keep(&late).await })
            })
            .collect();
        while lock(&file.waiting).len() < keeping.len() {
            tokio::task::yield_now().await;
        }
        assert!(file.all().is_empty() && keeping.iter().all(|one| !one.is_finished()));
        drop(turn);
        for one in keeping {
            one.await.unwrap().unwrap();
        }
        assert!(lock(&file.waiting).is_empty());
        assert_eq!(file.all(), (0..64).map(late).collect::<Vec<_>>());
        // One that nobody waits for any more is written all the same.
        let turn = somebody_writes(&file);
        let (given_up, next) = (late(64), late(65));
        tokio::select! {
            biased;
            _kept = file.keep(&given_up) => panic!("somebody else writes"),
            () = tokio::task::yield_now() => {}
        }
        drop(turn);
        file.keep(&next).await.unwrap();
        assert_eq!(file.all()[64..], [given_up, next]);
    }

    #[tokio::test]
    async fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = folder.path().join("elsewhere");
        std::os::unix::fs::symlink(&elsewhere, folder.path().join(LateFile::NAME)).unwrap();
        let late = LateReply {
            at: Timestamp::from_millis(0),
            run_id: RunId::parse("run_1").unwrap(),
            tool_call_id: CallId::parse("call_1").unwrap(),
            attempt: 1,
            sent_at: None,
            reply: RawReply::http(200, ""),
        };
        let refused = LateFile::at(folder.path().join(LateFile::NAME)).keep(&late).await.unwrap_err();
        assert!(!elsewhere.exists() && refused.contains("cannot be written"), "{refused}");
    }

    #[tokio::test]
    async fn whoever_watches_is_told_once_of_an_answer_that_is_kept_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = told.clone();
        let watcher: Watcher = Arc::new(move |event| heard.lock().unwrap().push(event));
        let missing = folder.path().join("missing").join(LateFile::NAME);
        let telling = TellingLate::new(Arc::new(LateFile::at(missing.clone())), watcher);
        let late = LateReply {
            at: Timestamp::from_millis(0),
            run_id: RunId::parse("run_1").unwrap(),
            tool_call_id: CallId::parse("call_1").unwrap(),
            attempt: 1,
            sent_at: None,
            reply: RawReply::http(200, "sent as 7"),
        };
        for _ in 0..2 {
            assert!(telling.keep(&late).await.is_err());
        }
        std::fs::create_dir(missing.parent().unwrap()).unwrap();
        telling.keep(&late).await.unwrap();
        let told = told.lock().unwrap();
        let [RunEvent::AnswerNotKept { call_id, said, why }, RunEvent::AnswerKept { call_id: kept }] = told.as_slice()
        else {
            panic!("{told:?}")
        };
        assert_eq!(kept, call_id);
        assert_eq!((call_id.as_str(), said.as_str()), ("call_1", "HTTP 200: sent as 7"));
        assert!(why.contains("No such file"), "{why}");
    }
}
