//! Lock files of tool servers, and the fence: is an earlier process of a tool server really gone?
//!
//! Durable runner, current state §6. One file `<run>.<server>.<generation>` per started process. Its shim locks it and writes
//! a [`LockRecord`] into it; the server holds the pipe beside it ([`life`]). Invariants: a generation is called
//! gone only while its lock is free (or its file removed, which happens only then), nobody holds its pipe and no process
//! carries its mark; a process is killed only when it
//! is proved to belong to the generation: it carries the mark, or it is in the session of the recorded shim, whose process
//! number, start time and boot agree with the record.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use ua_core::{Env, RunId, ShowPath as _, Timestamp};
use ua_dispatch::Fence;
use ua_files::Folder;

use crate::destination::KEY_FILE;
use crate::life;
use crate::process::{self, Process, Table};

/// How long a fence waits for a killed process to let go of its files.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it looks.
const POLL: Duration = Duration::from_millis(20);
/// How often something is looked at that is ended beside other work, which does not wait for it longer.
const ROUNDS_BESIDE: u32 = 10;
/// Hexadecimal digits of a generation: 11 of the time in milliseconds, 8 of chance.
const GENERATION_DIGITS: usize = 19;
/// Those of the time.
const MILLIS_DIGITS: usize = 11;
/// A start takes nowhere near as long.
const LONG_AGO: Duration = Duration::from_hours(1);

/// The most that is read of a lock file.
const MAX_RECORD_BYTES: u64 = 64 * 1024;

/// What a shim writes into its lock file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRecord {
    /// The shim's process number, which is also its session's and its group's.
    pub pid: i32,
    /// When the shim started, in clock ticks since boot (field 22 of `/proc/<pid>/stat`); `None` where that is not told.
    pub start_ticks: Option<u64>,
    /// The boot of the machine that this happened in.
    pub boot_id: Option<String>,
    /// The server's name in the configuration.
    pub server: Option<String>,
    /// The server's program, without folder and arguments.
    pub command: String,
}

impl LockRecord {
    pub(crate) fn of_this_process(server: Option<String>, command: String) -> Self {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let start_ticks = Process::find(pid).map(|process| process.start_ticks);
        Self { pid, start_ticks, boot_id: process::boot_id(), server, command }
    }

    /// The session of the shim, if the shim is provably the process that now has its number.
    fn live_session(&self) -> Option<i32> {
        let same_boot = self.boot_id.is_some() && self.boot_id == process::boot_id();
        let same_process =
            self.start_ticks.is_some() && Process::find(self.pid).map(|p| p.start_ticks) == self.start_ticks;
        (same_boot && same_process).then_some(self.pid)
    }
}

/// The three parts of a lock file's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockName {
    pub(crate) run: String,
    pub(crate) server: String,
    pub(crate) generation: String,
}

impl LockName {
    /// Reads a file's name from its end, because a run's id may hold dots and the other parts may not.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let (rest, generation) = path.file_name()?.to_str()?.rsplit_once('.')?;
        let (run, server) = rest.rsplit_once('.')?;
        let is_generation = generation.len() == GENERATION_DIGITS && generation.chars().all(|c| c.is_ascii_hexdigit());
        is_generation.then(|| Self {
            run: run.to_owned(),
            server: server.to_owned(),
            generation: generation.to_owned(),
        })
    }

    /// Whether the generation was begun so long before `now`, by its name.
    fn is_older_than(&self, span: Duration, now: Timestamp) -> bool {
        let begun = self.generation.get(..MILLIS_DIGITS).and_then(|digits| i64::from_str_radix(digits, 16).ok());
        begun.is_some_and(|begun| Timestamp::from_millis(begun).plus(span) < now)
    }
}

/// The lock files of one run's tool servers. Clones share what they know about the generations of this process.
#[derive(Debug, Clone)]
pub struct LockDir {
    dir: PathBuf,
    /// The folder with the secret of destinations.
    secrets: PathBuf,
    run: RunId,
    env: Env,
    patience: Duration,
    /// Generations that this process started and did not retire.
    live: Arc<Mutex<BTreeSet<(String, String)>>>,
}

impl LockDir {
    /// The lock files of `run` in `dir`, which the first start of a server creates.
    ///
    /// # Errors
    ///
    /// The working directory cannot be told, so a relative `dir` means nothing.
    pub fn new(dir: &Path, run: RunId, env: Env) -> io::Result<Self> {
        let dir = std::path::absolute(dir)?;
        Ok(Self { secrets: dir.clone(), dir, run, env, patience: PATIENCE, live: Arc::default() })
    }

    /// The same files, with destinations that compare to those of the locks in `dir`: for what asks about calls that were sent from there.
    ///
    /// # Errors
    ///
    /// The working directory cannot be told, so a relative `dir` means nothing.
    pub fn with_destinations_of(self, dir: &Path) -> io::Result<Self> {
        Ok(Self { secrets: std::path::absolute(dir)?, ..self })
    }

    /// The same files, with another limit to how long a fence waits for a killed process (10 s).
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The lock file of a generation.
    pub fn path(&self, server: &str, generation: &str) -> PathBuf {
        self.dir.join(format!("{}.{server}.{generation}", self.run))
    }

    /// The file that keeps the secret by which destinations of calls are known; the first one who needs it makes it.
    pub(crate) fn destination_key(&self) -> PathBuf {
        self.secrets.join(KEY_FILE)
    }

    /// Names a new generation of `server` and remembers it as this process's. The shim makes its file.
    ///
    /// # Errors
    ///
    /// The folder of locks cannot be made.
    pub fn begin(&self, server: &str) -> io::Result<String> {
        Folder::make_itself(&self.dir)?;
        let generation = self.unique();
        self.live().insert((server.to_owned(), generation.clone()));
        Ok(generation)
    }

    /// Whether these are the same files: of the same run, in the same folder.
    pub(crate) fn are_those_of(&self, other: &Self) -> bool {
        (&self.dir, &self.run) == (&other.dir, &other.run)
    }

    /// Remembers a generation as this process's that was [begun](Self::begin) by other eyes on the same files.
    pub(crate) fn adopt(&self, server: &str, generation: &str) {
        self.live().insert((server.to_owned(), generation.to_owned()));
    }

    /// A name that no other generation has; names sort by the time they were made.
    pub fn unique(&self) -> String {
        let millis = u64::try_from(self.env.now().as_millis()).unwrap_or(0) & 0xFFF_FFFF_FFFF;
        let chance = self.env.entropy.next_u64() >> 32;
        format!("{millis:011x}{chance:08x}")
    }

    fn live(&self) -> std::sync::MutexGuard<'_, BTreeSet<(String, String)>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The generations of this run that have a lock file and were not started by this process, oldest first.
    pub fn orphans(&self) -> Vec<(String, String)> {
        let Ok(entries) = fs::read_dir(&self.dir) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| LockName::of(&entry.path()));
        let ours = names.filter(|name| name.run == self.run.as_str()).map(|name| (name.server, name.generation));
        let mut orphans: Vec<_> = ours.filter(|generation| !self.live().contains(generation)).collect();
        orphans.sort_by(|a, b| a.1.cmp(&b.1));
        orphans
    }

    /// Whether something of a generation is there, whichever run it is of; nothing is ended. What cannot be told is taken to be.
    pub fn is_there(&self, generation: &str) -> bool {
        let Ok(entries) = fs::read_dir(&self.dir) else { return false };
        let is_of_it = |path: &PathBuf| LockName::of(path).is_some_and(|name| name.generation == generation);
        entries.flatten().map(|entry| entry.path()).filter(is_of_it).any(|path| is_alive(&path).unwrap_or(true))
    }

    /// Removes what is left in `dir` of generations that ended long ago, of runs that nobody ever drove: their process died between the start of a
    /// server and the first hold on its run. Nothing that may be alive is touched, so nobody learns anything else than before.
    pub fn clear_never_driven(dir: &Path, now: Timestamp) {
        let Ok(entries) = fs::read_dir(dir) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            let Some(name) = LockName::of(&path).filter(|name| name.is_older_than(LONG_AGO, now)) else { continue };
            let is_driven = fs::symlink_metadata(dir.join(format!("{}.run", name.run))).is_ok();
            if !is_driven && is_alive(&path).is_ok_and(|is_alive| !is_alive) {
                for file in [life::path(&path), path] {
                    if let Err(error) = fs::remove_file(&file) {
                        tracing::debug!(%error, file = %file.shown(), "what is left of a tool server stays");
                    }
                }
            }
        }
    }

    /// Ends what lives on in `dir` of generations whose shim is gone, of whichever run nobody drives any more (`is_driven` tells). A shim that
    /// lives ends its server itself, so this finds what a server started, in a session of its own, say, before all of them were killed. What
    /// cannot be ended, or is not gone soon, stays for whoever takes the run.
    pub async fn end_abandoned(dir: &Path, env: &Env, is_driven: impl Fn(&RunId) -> bool) {
        let Ok(entries) = fs::read_dir(dir) else { return };
        let names: Vec<LockName> = entries.flatten().filter_map(|entry| LockName::of(&entry.path())).collect();
        let ends = names.into_iter().filter_map(|name| {
            let run = RunId::parse(&name.run).ok()?;
            // Asked behind the look at the folder: whoever began the generation of a run that was driven before held the run then.
            let was_driven = fs::symlink_metadata(dir.join(format!("{run}.run"))).is_ok();
            if !was_driven || is_driven(&run) {
                return None;
            }
            let locks = Self::new(dir, run, env.clone()).ok()?;
            let path = locks.path(&name.server, &name.generation);
            Some(async move {
                for _ in 0..ROUNDS_BESIDE {
                    if !matches!(open(&path), Ok(Some((_, true)))) {
                        return;
                    }
                    match retire(&path).await {
                        Ok(Retired::Yes) => return,
                        Ok(Retired::NotYet) => locks.env.clock.sleep(POLL).await,
                        Err(error) => {
                            tracing::debug!(%error, lock = %path.shown(), "what is left of a tool server stays");
                            return;
                        }
                    }
                }
                tracing::debug!(lock = %path.shown(), "what is left of a tool server is not gone yet");
            })
        });
        futures_util::future::join_all(ends).await;
    }

    /// Fences every generation that an earlier process of this run left behind: the first thing a resume does once it
    /// owns the run.
    pub async fn retire_all_orphans(&self) -> Vec<(String, String, Fence)> {
        let fences = self.orphans().into_iter().map(async |(server, generation)| {
            let fence = self.fence(&server, &generation).await;
            (server, generation, fence)
        });
        futures_util::future::join_all(fences).await
    }

    /// Kills what is left of a generation, waits until its lock is free and its pipe is held by nobody, and removes both files. A file that is not there
    /// belongs to a generation that never started or was fenced before.
    pub async fn fence(&self, server: &str, generation: &str) -> Fence {
        let path = self.path(server, generation);
        let rounds = (self.patience.as_millis() / POLL.as_millis()).max(1);
        let mut detail = String::new();
        for _ in 0..rounds {
            match retire(&path).await {
                Ok(Retired::Yes) => {
                    self.live().remove(&(server.to_owned(), generation.to_owned()));
                    return Fence::Gone;
                }
                Ok(Retired::NotYet) => {}
                Err(error) => detail = format!("its lock file {} cannot be read: {error}", path.shown()),
            }
            self.env.clock.sleep(POLL).await;
        }
        if detail.is_empty() {
            detail = who_is_left(&path);
        }
        tracing::warn!(server, generation, detail, "a tool server cannot be retired");
        Fence::Alive { detail }
    }
}

enum Retired {
    Yes,
    NotYet,
}

/// One round of a fence: kill what can be proved to belong to the generation; remove the file if nothing is left.
async fn retire(path: &Path) -> io::Result<Retired> {
    let Some((file, lock_is_free)) = open(path)? else { return Ok(Retired::Yes) };
    let record = read_record(&file);
    let processes = Table::newest().await;
    // Behind that: whoever is the shim now was it then, too.
    let below = processes.below_shim(record.as_ref().and_then(LockRecord::live_session), path);
    if lock_is_free && below.is_empty() && !life::is_held(path)? {
        match fs::remove_file(life::path(path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        // Removed while locked by us: a shim that is only now getting to its lock finds that its file was replaced.
        fs::remove_file(path)?;
        return Ok(Retired::Yes);
    }
    for process in &below {
        tracing::info!(pid = process.pid, lock = %path.shown(), "killing what is left of a tool server");
        process.signal(Signal::KILL);
    }
    Ok(Retired::NotYet)
}

/// Whether something holds the lock of a generation or its pipe, or is below its shim.
fn is_alive(path: &Path) -> io::Result<bool> {
    let Some((file, lock_is_free)) = open(path)? else { return Ok(false) };
    let shim = read_record(&file).as_ref().and_then(LockRecord::live_session);
    Ok(!lock_is_free || !Table::read().below_shim(shim, path).is_empty() || life::is_held(path)?)
}

/// Opens a lock file and says whether its lock was free (it is ours then, until the file is dropped). `None` when it is not
/// there.
fn open(path: &Path) -> io::Result<Option<(File, bool)>> {
    let opened = match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => Folder::open_itself(folder).and_then(|folder| folder.open_to_change(name)),
        (_, _) => Err(io::ErrorKind::InvalidInput.into()),
    };
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let free = match file.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(error)) => return Err(error),
    };
    let (ours, there) = (file.metadata()?, fs::metadata(path));
    match there {
        Ok(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => Ok(Some((file, free))),
        Ok(_) => Ok(Some((file, false))), // replaced in between: look again
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the record; `None` while the shim has not written it.
fn read_record(file: &File) -> Option<LockRecord> {
    // Whoever holds the file for reading only cannot have written it; one of an older version could.
    serde_json::from_reader(io::Read::take(file, MAX_RECORD_BYTES)).ok()
}

/// Who still has a lock file, or the pipe beside it, open, in words.
fn who_is_left(path: &Path) -> String {
    let files: Vec<_> = [path, &life::path(path)].into_iter().filter_map(|file| fs::metadata(file).ok()).collect();
    let holds = |process: &Process| files.iter().any(|meta| process.holds(meta.dev(), meta.ino()));
    let holders = process::others().into_iter().filter(holds);
    let named: Vec<String> = holders.map(|p| format!("process {} (`{}`)", p.pid, p.name())).collect();
    if !named.is_empty() {
        return format!("{} still holds the lock {}", named.join(", "), path.shown());
    }
    if life::is_held(path).unwrap_or(false) {
        return format!("a process that cannot be seen from here still holds {}", life::path(path).shown());
    }
    // In a folder into which a checkout may have put a pipe of this name.
    let file = path.parent().zip(path.file_name());
    let file = file.and_then(|(folder, name)| Folder::open(folder).ok()?.open_file(name).ok());
    match file.as_ref().and_then(read_record) {
        Some(record) => {
            format!("the lock {} is still held; process {} (`{}`) took it", path.shown(), record.pid, record.command)
        }
        None => format!("the lock {} is still held, by a process that cannot be seen from here", path.shown()),
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;

    fn locks(dir: &Path) -> LockDir {
        LockDir::new(dir, RunId::parse("run.1").unwrap(), Env::simulated(1)).unwrap()
    }

    const OLD: &str = "00000000001deadbeef";
    const NEW: &str = "00000000002deadbeef";

    #[test]
    fn a_run_with_dots_in_its_id_finds_its_own_files_only() {
        let dir = tempfile::tempdir().unwrap();
        let locks = locks(dir.path());
        for name in [
            &format!("run.1.b.{NEW}"),
            &format!("run.1.a.{OLD}"),
            "run.1.run",
            &format!("run.a.{OLD}"),
            &format!("run.1.a.{OLD}.tmp"),
        ] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(locks.orphans(), [("a".to_owned(), OLD.to_owned()), ("b".to_owned(), NEW.to_owned())]);
    }

    #[test]
    fn generations_of_this_process_are_not_orphans() {
        let dir = tempfile::tempdir().unwrap();
        let locks = locks(dir.path());
        let generation = locks.begin("a").unwrap();
        fs::write(locks.path("a", &generation), "").unwrap();
        assert_eq!(locks.orphans(), []);
        assert_eq!(
            LockDir::new(dir.path(), RunId::parse("run.1").unwrap(), Env::simulated(2)).unwrap().orphans().len(),
            1
        );
    }

    #[test]
    fn what_is_left_of_runs_that_nobody_drove_goes_once_it_is_old_and_dead() {
        let dir = tempfile::tempdir().unwrap();
        let (run, held) = (format!("run.1.a.{OLD}"), format!("held.a.{OLD}"));
        let driven = format!("driven.a.{OLD}");
        for name in [&run, &format!("{run}.life"), &held, &driven, "driven.run", "restart.lock"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let lock = File::open(dir.path().join(&held)).unwrap();
        lock.try_lock().unwrap();
        let left = || {
            let mut names: Vec<String> = fs::read_dir(dir.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        let (all, begun) = (left(), Timestamp::from_millis(1));
        LockDir::clear_never_driven(dir.path(), begun.plus(LONG_AGO));
        assert_eq!(left(), all, "it may be starting");
        LockDir::clear_never_driven(dir.path(), begun.plus(LONG_AGO * 2));
        assert_eq!(left(), [driven.as_str(), "driven.run", held.as_str(), "restart.lock"]);
    }

    /// What a server started in a session of its own has its mark, and nobody who would end it.
    #[tokio::test]
    async fn what_outlived_its_shim_is_ended_unless_its_run_is_driven_or_was_never() {
        let dir = tempfile::tempdir().unwrap();
        let (locks, env) = (locks(dir.path()), Env::simulated(1));
        let path = locks.path("a", OLD);
        fs::write(&path, "").unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .env(process::MARK, &path)
            .stdin(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        // It has this process's environment until it is the other program.
        while Process::find(pid).unwrap().name() != "sleep" {
            std::thread::yield_now();
        }
        LockDir::end_abandoned(dir.path(), &env, |_| false).await;
        assert!(child.try_wait().unwrap().is_none(), "its run may be about to begin");
        fs::write(dir.path().join("run.1.run"), "").unwrap();
        LockDir::end_abandoned(dir.path(), &env, |run| run.as_str() == "run.1").await;
        assert!(child.try_wait().unwrap().is_none(), "its run is driven");
        let shim = File::open(&path).unwrap();
        shim.try_lock().unwrap();
        LockDir::end_abandoned(dir.path(), &env, |_| false).await;
        assert!(child.try_wait().unwrap().is_none() && path.exists(), "its shim lives");
        drop(shim);
        LockDir::end_abandoned(dir.path(), &env, |_| false).await;
        assert!(!child.wait().unwrap().success());
        LockDir::end_abandoned(dir.path(), &env, |_| false).await;
        assert!(!path.exists() && locks.orphans().is_empty());
    }

    #[tokio::test]
    async fn a_generation_without_a_file_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(locks(dir.path()).fence("a", OLD).await, Fence::Gone);
    }

    #[tokio::test]
    async fn a_free_lock_is_gone_and_its_file_removed() {
        let dir = tempfile::tempdir().unwrap();
        let locks = locks(dir.path());
        let path = locks.path("a", OLD);
        fs::write(&path, "").unwrap();
        assert_eq!(locks.retire_all_orphans().await, [("a".to_owned(), OLD.to_owned(), Fence::Gone)]);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_lock_whose_holder_is_not_proved_is_reported_and_nobody_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let locks = locks(dir.path());
        let path = locks.path("a", OLD);
        // A record whose number is ours and whose start time is not: a number that the system gave out again.
        let mut record = LockRecord::of_this_process(Some("a".into()), "tool".into());
        record.start_ticks = record.start_ticks.map(|ticks| ticks + 1);
        fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
        let held = File::open(&path).unwrap();
        held.try_lock().unwrap();
        let Fence::Alive { detail } = locks.fence("a", OLD).await else { panic!("the lock is held") };
        assert!(detail.contains("still held") && detail.contains("`tool`"), "{detail}");
        assert!(path.exists());
        drop(held);
        assert_eq!(locks.fence("a", OLD).await, Fence::Gone);
    }
}
