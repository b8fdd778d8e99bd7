//! The lock of a run: one process drives it, and the kernel lets go when that process ends, however it ends.

use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use ua_core::{RunId, ShowPath as _};
use ua_files::Folder;
use ua_store::{EndedAtOnce, EndedBy, OwnerStamp};

/// The most that is read of what a lock file says about its holder.
pub(crate) const MAX_STAMP_BYTES: u64 = 64 * 1024;

/// How long a lock is waited for that nobody who lives is said to hold. Between fork and exec a child has its parent's lock, and on a busy
/// machine it takes its time.
const TAKEN_FOR: Duration = Duration::from_secs(1);

/// How long a lock that nobody is said to hold is looked at for one who has taken it just now.
const LOOKED_FOR: Duration = Duration::from_millis(100);

/// How many processes that ended at once a lock remembers: those that were ended before they took the run are among them.
const REMEMBERED_ENDS: usize = 8;

/// The locks of this process, for the moment at which it is ended at once.
static HELD: Mutex<Vec<Weak<Held>>> = Mutex::new(Vec::new());

/// What stands in a lock in the place of the stamp of a process that a person or an error ended at once, and beside the stamp of whoever took it
/// since. It is no stamp: nobody drives the run.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Ends {
    /// The newest ones, oldest first. Which of them drove the run last is the run's to say.
    #[serde(default)]
    ended_before: Vec<EndedAtOnce>,
}

impl Ends {
    fn read(text: &[u8]) -> Self {
        serde_json::from_slice(text).unwrap_or_default()
    }

    fn of(dir: &Path, run: &RunId) -> Self {
        let read = Folder::open_itself(dir).and_then(|folder| folder.read(format!("{run}.run"), MAX_STAMP_BYTES));
        read.map_or_else(|_| Self::default(), |text| Self::read(&text))
    }

    fn and(mut self, end: EndedAtOnce) -> Self {
        self.ended_before.push(end);
        let surplus = self.ended_before.len().saturating_sub(REMEMBERED_ENDS);
        self.ended_before.drain(..surplus);
        self
    }
}

/// Why a run cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process drives it.
    #[error("run {run} is already driven by {}", holder_in_words(owner.as_deref()))]
    Held {
        /// The run.
        run: RunId,
        /// Who holds it, when that could be read.
        owner: Option<Box<OwnerStamp>>,
    },
    /// The lock file cannot be used.
    #[error("cannot lock {}", path.shown())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// The lock, held until it is dropped or the process ends.
#[derive(Debug)]
pub struct RunLock {
    held: Arc<Held>,
}

#[derive(Debug)]
struct Held {
    file: File,
    /// What stood in the lock when it was taken.
    ends: Ends,
    /// By what the work under it ended, where it did not leave the run in order.
    ended: OnceLock<EndedBy>,
    /// Whether the run was taken under it: what the lock said of this process then is stored with that, and is over.
    is_taken: AtomicBool,
}

impl Held {
    /// Puts this in the place of what stands in the lock. Nothing depends on it: without it the run is resumed as one whose process died.
    fn note(&self, ends: &Ends) {
        let mut file = &self.file;
        let text = if *ends == Ends::default() { Vec::new() } else { serde_json::to_vec(ends).unwrap_or_default() };
        // Over what stands there: a full disk has the room that the file has, and may not give it again.
        let _unmarked =
            file.rewind().and_then(|()| file.write_all(&text)).and_then(|()| file.set_len(text.len() as u64));
    }

    /// Notes that this process ends at once.
    fn mark(&self, process: String, by: EndedBy) {
        self.note(&self.those_before().and(EndedAtOnce { process, by }));
    }

    /// What the lock is to say of those before.
    fn those_before(&self) -> Ends {
        let mut ended_before = self.ends.ended_before.clone();
        if self.is_taken.load(Ordering::Relaxed) {
            let own = crate::host::this_process();
            ended_before.retain(|end| end.process != own);
        }
        Ends { ended_before }
    }
}

impl Drop for RunLock {
    /// The stamp goes with the lock: a drive that was dropped in a process that lives on drives nothing any more. After a kill the stamp's
    /// process is gone, which says the same. What a person ended before stays for whoever takes the run: this one may not have come to it.
    fn drop(&mut self) {
        match self.held.ended.get() {
            Some(by) => self.held.mark(crate::host::this_process(), *by),
            None => self.held.note(&self.held.those_before()),
        }
    }
}

impl RunLock {
    /// Takes the lock `<dir>/<run>.run` and writes `owner` into it.
    #[expect(
        clippy::disallowed_methods,
        reason = "the folder of locks is its caller's word; a link in its place is refused below"
    )]
    pub fn take(dir: &Path, run: &RunId, owner: &OwnerStamp) -> Result<Self, LockError> {
        let path = dir.join(format!("{run}.run"));
        let io = |source| LockError::Io { path: path.clone(), source };
        std::fs::create_dir_all(dir).map_err(io)?;
        // A root may have come with a checkout: neither the folder of locks nor a lock may be a link to somewhere else.
        let folder = Folder::open_itself(dir).map_err(io)?;
        loop {
            let mut file = folder.open_or_make(format!("{run}.run")).map_err(io)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let owner = stamp_in(&mut file);
                    let is_driven = owner.as_ref().is_some_and(|owner| crate::host::process_is_alive(owner));
                    // One who only looks has it for a moment; so has a program that a killed driver was starting, until it runs.
                    if !is_driven && retried(TAKEN_FOR, || file.try_lock().is_ok()) {
                        continue;
                    }
                    return Err(LockError::Held { run: run.clone(), owner });
                }
                Err(TryLockError::Error(source)) => return Err(io(source)),
            }
            // Somebody may have removed the file between open and lock; a lock on a removed file protects nothing.
            let on_disk = std::fs::metadata(&path).map(|m| (m.dev(), m.ino())).ok();
            let ours = file.metadata().map_err(io)?;
            if on_disk != Some((ours.dev(), ours.ino())) {
                continue;
            }
            let mut before = Vec::new();
            (&file).take(MAX_STAMP_BYTES).read_to_end(&mut before).map_err(io)?;
            let ends = Ends::read(&before);
            // What it said of an error of its own is over: it drives the run again, and may be killed now.
            let before = ends.ended_before.iter().filter(|end| end.process != owner.process()).cloned().collect();
            let stamp = OwnerStamp { ended_before: before, ..owner.clone() };
            let stamp = serde_json::to_string(&stamp).unwrap_or_default();
            file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(stamp.as_bytes())).map_err(io)?;
            let held = Arc::new(Held { file, ends, ended: OnceLock::new(), is_taken: AtomicBool::default() });
            let mut all = HELD.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|other| other.strong_count() > 0);
            all.push(Arc::downgrade(&held));
            return Ok(Self { held });
        }
    }

    /// The stamp of a process that takes the run of this lock: it says besides what the lock says of those before it.
    #[must_use]
    pub fn after_those_before(&self, owner: OwnerStamp) -> OwnerStamp {
        OwnerStamp { ended_before: self.held.ends.ended_before.clone(), ..owner }
    }

    /// Whether a living process drives `run` right now, as far as its stamp tells. For showing only: trying the lock would
    /// keep it, for a moment, from one who wants it.
    pub fn is_held(dir: &Path, run: &RunId) -> bool {
        let read = Folder::open_itself(dir).and_then(|folder| folder.read(format!("{run}.run"), MAX_STAMP_BYTES));
        let Ok(text) = read else { return false };
        serde_json::from_slice::<OwnerStamp>(&text).is_ok_and(|owner| crate::host::process_is_alive(&owner))
    }

    /// Notes in the locks of this process that a person ends it at once, so that nobody takes its runs for crashed. Nothing of it drives
    /// them after this: the caller ends the process.
    pub fn mark_ended_at_once(by: EndedBy) {
        let process = crate::host::this_process();
        let held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        for held in held.iter().filter_map(Weak::upgrade) {
            held.mark(process.clone(), *held.ended.get_or_init(|| by));
        }
    }

    /// Removes the lock of a run that is not there any more, and lets go of it. A file that stays is without a run, and in nobody's way.
    pub fn remove(self, dir: &Path, run: &RunId) {
        Folder::open_itself(dir).and_then(|folder| folder.remove(format!("{run}.run"))).ok();
    }

    /// Notes that this process took the run under this lock. Whoever may be dropped in the middle of its work and take the run again has to:
    /// what ended an earlier work of the process did not end this one.
    pub fn note_taken(&self) {
        self.held.is_taken.store(true, Ordering::Relaxed);
    }

    /// Notes that this process ends its work on the run by an error, for the moment in which the lock is dropped. Where the run says that it was
    /// left in order, this says nothing.
    pub fn note_error(&self) {
        self.note_end(EndedBy::Error);
    }

    /// The same of what a person ends at once by a second signal.
    pub fn note_end(&self, by: EndedBy) {
        self.held.ended.get_or_init(|| by);
    }

    /// Says in the lock what was noted of the end of this process, which is about to end and may not come to drop the lock.
    pub fn say_end(&self) {
        if let Some(by) = self.held.ended.get() {
            self.held.mark(crate::host::this_process(), *by);
        }
    }

    /// The processes that held the lock of `run` and ended at once; the newest ones, oldest first. Whoever drove the run since, or
    /// before, is none of them.
    pub fn ended_at_once(dir: &Path, run: &RunId) -> Vec<EndedAtOnce> {
        Ends::of(dir, run).ended_before
    }

    /// A run of `dir` whose lock is held although no process that can be seen from here holds it: its driver is in another process namespace.
    /// Only locks whose stamp names nobody who lives are tried.
    ///
    /// # Errors
    /// [`LockError::Io`] when a lock file cannot be opened.
    pub fn held_by_nobody_seen(dir: &Path) -> Result<Option<RunId>, LockError> {
        for entry in Self::files(dir) {
            let (run, mut file) = entry?;
            if stamp_in(&mut file).is_some_and(|owner| crate::host::process_is_alive(&owner)) {
                continue;
            }
            match file.try_lock_shared() {
                Ok(()) => {}
                // Unless it was taken just now, by one who is seen.
                Err(TryLockError::WouldBlock) => {
                    let is_seen = || {
                        let rewound = file.rewind().is_ok();
                        rewound && stamp_in(&mut file).is_some_and(|owner| crate::host::process_is_alive(&owner))
                    };
                    if !retried(LOOKED_FOR, is_seen) {
                        return Ok(Some(run));
                    }
                }
                Err(TryLockError::Error(source)) => {
                    return Err(LockError::Io { path: dir.join(format!("{run}.run")), source });
                }
            }
        }
        Ok(None)
    }

    /// Refuses when any process holds the lock of a run in `dir`, this machine's other PID namespaces included: each lock is tried, and let
    /// go again. For whoever made sure that nobody takes a run meanwhile.
    ///
    /// # Errors
    /// [`LockError::Held`] names one of them.
    pub fn none_held(dir: &Path) -> Result<(), LockError> {
        for entry in Self::files(dir) {
            let (run, mut file) = entry?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(LockError::Held { run, owner: stamp_in(&mut file) }),
                Err(TryLockError::Error(source)) => {
                    return Err(LockError::Io { path: dir.join(format!("{run}.run")), source });
                }
            }
        }
        Ok(())
    }

    /// The lock files of a folder, open.
    fn files(dir: &Path) -> impl Iterator<Item = Result<(RunId, File), LockError>> {
        std::fs::read_dir(dir).into_iter().flatten().flatten().filter_map(move |entry| {
            let name = entry.file_name();
            let run = name.to_str().and_then(|name| RunId::parse(name.strip_suffix(".run")?).ok())?;
            match Folder::open_itself(dir).and_then(|folder| folder.open_to_change(&name)) {
                Ok(file) => Some(Ok((run, file))),
                Err(source) if source.kind() == std::io::ErrorKind::NotFound => None,
                Err(source) => Some(Err(LockError::Io { path: entry.path(), source })),
            }
        })
    }
}

/// Who holds a lock. Whoever has just taken it has not said so yet, and a program of an ended driver may have it for a moment.
fn holder_in_words(owner: Option<&OwnerStamp>) -> String {
    owner.map_or_else(
        || "another process, which has not said who it is".to_owned(),
        |owner| format!("process {} on {}", owner.pid, owner.host),
    )
}

/// Whether something holds now, or within that time.
fn retried(within: Duration, mut holds: impl FnMut() -> bool) -> bool {
    const PAUSE: Duration = Duration::from_millis(20);
    (0..=within.as_millis() / PAUSE.as_millis()).any(|_| {
        holds() || {
            std::thread::sleep(PAUSE);
            false
        }
    })
}

/// Who holds the lock of this file, as far as can be read.
fn stamp_in(file: &mut File) -> Option<Box<OwnerStamp>> {
    let mut text = String::new();
    file.take(MAX_STAMP_BYTES)
        .read_to_string(&mut text)
        .ok()
        .and_then(|_| serde_json::from_str(&text).ok())
        .map(Box::new)
}

#[cfg(test)]
mod tests {
    use ua_core::{Env, Trace};

    use super::*;

    #[test]
    fn a_second_owner_is_refused_with_the_first_ones_pid() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunId::parse("run_1").unwrap();
        let owner = crate::host::owner_stamp(Trace::new(&Env::simulated(1)));
        assert!(!RunLock::is_held(dir.path(), &run));
        let lock = RunLock::take(dir.path(), &run, &owner).unwrap();
        assert!(RunLock::is_held(dir.path(), &run));
        let refused = RunLock::take(dir.path(), &run, &owner).unwrap_err();
        assert!(matches!(&refused, LockError::Held { owner: Some(o), .. } if o.pid == std::process::id()), "{refused}");
        // Somebody holds it who has not written a stamp yet.
        lock.held.file.set_len(0).unwrap();
        let refused = RunLock::none_held(dir.path()).unwrap_err().to_string();
        assert_eq!(refused, "run run_1 is already driven by another process, which has not said who it is");
        drop(lock);
        assert!(!RunLock::is_held(dir.path(), &run), "the process lives, and does not drive it any more");
        RunLock::take(dir.path(), &run, &OwnerStamp { start_ticks: 1, ..owner }).unwrap();
        assert!(!RunLock::is_held(dir.path(), &run));
    }

    /// A worker lives on after an error of one run, and may be killed when it drives the run again.
    #[test]
    fn a_process_that_ended_by_an_error_says_so_until_it_drives_the_run_again() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunId::parse("run_1").unwrap();
        let owner = crate::host::owner_stamp(Trace::new(&Env::simulated(1)));
        let known = || RunLock::ended_at_once(dir.path(), &run);
        let lock = RunLock::take(dir.path(), &run, &owner).unwrap();
        lock.note_error();
        assert_eq!(known(), []);
        drop(lock);
        let end = EndedAtOnce { process: owner.process(), by: EndedBy::Error };
        assert_eq!(known(), std::slice::from_ref(&end));
        assert!(!RunLock::is_held(dir.path(), &run));
        let again = RunLock::take(dir.path(), &run, &owner).unwrap();
        assert_eq!(again.after_those_before(owner.clone()).ended_before, std::slice::from_ref(&end));
        drop(again);
        assert_eq!(known(), std::slice::from_ref(&end), "it did not come to the run");
        let again = RunLock::take(dir.path(), &run, &owner).unwrap();
        again.note_taken();
        drop(again);
        assert_eq!(known(), [], "what drove the run was dropped");
        let again = RunLock::take(dir.path(), &run, &owner).unwrap();
        again.note_end(EndedBy::Terminate);
        again.note_error();
        drop(again);
        assert_eq!(known(), [EndedAtOnce { by: EndedBy::Terminate, ..end }], "what came first ended it");
        let again = RunLock::take(dir.path(), &run, &owner).unwrap();
        again.held.file.unlock().unwrap();
        std::mem::forget(again);
        assert_eq!(known(), [], "this time it was killed");
    }

    #[test]
    fn a_process_that_a_person_ended_at_once_is_known_to_whoever_takes_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunId::parse("run_1").unwrap();
        let owner = crate::host::owner_stamp(Trace::new(&Env::simulated(1)));
        let known = || RunLock::ended_at_once(dir.path(), &run);
        assert_eq!(known(), []);
        let ended = |process: &str, by| EndedAtOnce { process: process.to_owned(), by };
        let first = ended("7@1", EndedBy::Interrupt);
        let lock = RunLock::take(dir.path(), &run, &owner).unwrap();
        let is_noted = |held: &Weak<Held>| held.upgrade().is_some_and(|held| Arc::ptr_eq(&held, &lock.held));
        assert!(HELD.lock().unwrap().iter().any(is_noted), "the end of the process finds it");
        // Not those of the tests beside this one.
        lock.held.mark(first.process.clone(), first.by);
        assert!(!RunLock::is_held(dir.path(), &run) && known() == [first.clone()]);
        // The end of a process puts nothing into order.
        lock.held.file.unlock().unwrap();
        std::mem::forget(lock);
        let next = RunLock::take(dir.path(), &run, &owner).unwrap();
        assert!(RunLock::is_held(dir.path(), &run) && known() == [first.clone()]);
        assert_eq!(next.after_those_before(owner.clone()).ended_before, std::slice::from_ref(&first));
        // It may have been refused before it took the run: that is not the end of what was known.
        drop(next);
        assert!(!RunLock::is_held(dir.path(), &run) && known() == [first.clone()]);
        // So it may have been ended.
        let next = RunLock::take(dir.path(), &run, &owner).unwrap();
        let second = ended("8@2", EndedBy::Terminate);
        next.held.mark(second.process.clone(), second.by);
        assert_eq!(known(), [first, second]);
        for _ in 0..2 * REMEMBERED_ENDS {
            next.held.file.unlock().unwrap();
            let again = RunLock::take(dir.path(), &run, &owner).unwrap();
            again.held.mark("9@3".to_owned(), EndedBy::HangUp);
            again.held.file.unlock().unwrap();
            std::mem::forget(again);
        }
        assert_eq!(known(), vec![ended("9@3", EndedBy::HangUp); REMEMBERED_ENDS]);
        std::mem::forget(next);
    }

    #[test]
    fn a_held_lock_of_any_run_is_found_whatever_its_stamp_says() {
        let dir = tempfile::tempdir().unwrap();
        assert!(RunLock::none_held(&dir.path().join("missing")).is_ok());
        let run = RunId::parse("run_1").unwrap();
        let owner = crate::host::owner_stamp(Trace::new(&Env::simulated(1)));
        // A process that cannot be seen from here, as one of another PID namespace.
        let lock = RunLock::take(dir.path(), &run, &OwnerStamp { start_ticks: 1, ..owner }).unwrap();
        assert!(!RunLock::is_held(dir.path(), &run));
        let refused = RunLock::none_held(dir.path()).unwrap_err();
        assert!(matches!(&refused, LockError::Held { run: held, .. } if *held == run), "{refused}");
        drop(lock);
        RunLock::none_held(dir.path()).unwrap();
    }

    #[test]
    fn a_driver_that_cannot_be_seen_is_found_and_hinders_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let found = || RunLock::held_by_nobody_seen(dir.path()).unwrap();
        assert_eq!(found(), None);
        let run = RunId::parse("run_1").unwrap();
        let owner = crate::host::owner_stamp(Trace::new(&Env::simulated(1)));
        let seen = RunLock::take(dir.path(), &run, &owner).unwrap();
        assert_eq!(found(), None);
        drop(seen);
        let unseen = RunLock::take(dir.path(), &run, &OwnerStamp { start_ticks: 1, ..owner.clone() }).unwrap();
        assert_eq!(found(), Some(run.clone()));
        drop(unseen);
        assert_eq!(found(), None);
        // While somebody looks, the run can be taken.
        let looks = Folder::open_itself(dir.path()).unwrap().open_to_change("run_1.run").unwrap();
        looks.try_lock_shared().unwrap();
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| RunLock::take(dir.path(), &run, &owner));
            drop(looks);
            taken.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_removed_lock_file_protects_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunId::parse("run_1").unwrap();
        let owner = crate::host::owner_stamp(Trace::new(&Env::simulated(1)));
        let _first = RunLock::take(dir.path(), &run, &owner).unwrap();
        std::fs::remove_file(dir.path().join("run_1.run")).unwrap();
        // The path is free again, so it can be locked: what counts then is the epoch.
        assert!(RunLock::take(dir.path(), &run, &owner).is_ok());
    }
}
