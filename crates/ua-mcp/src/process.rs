//! What the operating system says about the processes of a tool server.
//!
//! Reads Linux's `/proc`. Where there is none, nothing is ever found, so nothing is ever killed by mistake and a lock that
//! stays busy is reported instead.
//!
//! A reading is of all processes of the machine, whoever asks for how few of them. So it is a value ([`Table`]), and those who ask at the same
//! time have one between them ([`Table::newest`]): with so many tool servers that end at once, each of which has processes of its own, what
//! is read would otherwise be their square.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::sync::Mutex;
use ua_dispatch::beside;

/// The environment variable that every process below a shim inherits; its value is the path of the shim's lock file. It
/// finds those that left the session or closed their pipe.
pub(crate) const MARK: &str = "UA_TOOL_SERVER_LOCK";

/// What is between two readings of the environment of a process that becomes another program, and how many there are at most. It takes the
/// kernel less than one of these, unless it reads the program from a slow disk.
const PAUSE: Duration = Duration::from_millis(1);
const MOST_READS: u32 = 500;

/// One process that is not a zombie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) session: i32,
    /// When it started, in clock ticks since boot: with the boot id, this tells a process from a later one of its number.
    pub(crate) start_ticks: u64,
}

impl Process {
    /// Looks a process up; `None` when it is gone or only waits to be reaped.
    #[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
    pub(crate) fn find(pid: i32) -> Option<Self> {
        parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Whether it is still there: a process of its number that started when it did, and is not a zombie.
    pub(crate) fn is_there(self) -> bool {
        Self::find(self.pid).is_some_and(|now| now.start_ticks == self.start_ticks)
    }

    /// Sends `signal`, unless the process is gone.
    pub(crate) fn signal(self, signal: Signal) {
        // The number is looked at once more, so that a process which got it since the scan is left alone.
        if self.is_there()
            && let Some(pid) = Pid::from_raw(self.pid)
            && let Err(error) = rustix::process::kill_process(pid, signal)
        {
            tracing::debug!(pid = self.pid, %error, "signal not delivered");
        }
    }

    /// The locks of the shims that it was started below, by its mark.
    fn marks(self) -> Vec<Box<[u8]>> {
        let environment = self.environment();
        let values = environment.split(|byte| *byte == 0).filter_map(|one| {
            let (name, value) = one.split_at_checked(MARK.len())?;
            value.strip_prefix(b"=").filter(|_| name == MARK.as_bytes())
        });
        values.map(Box::from).collect()
    }

    /// Its environment. While the kernel makes another program of it, there is none to be read, and that is waited for: else a process that is
    /// started while others are looked for would be missed.
    fn environment(self) -> Vec<u8> {
        for _ in 0..MOST_READS {
            // What is another user's, or the kernel's, or ended, is not for this one to read.
            let Ok(environment) = self.environment_now() else { break };
            if !environment.is_empty() || !self.has_an_environment() {
                return environment;
            }
            thread::sleep(PAUSE);
        }
        Vec::new()
    }

    /// What is to be read of its environment now: at once, because a file of a program that is not its any more seems to end there.
    #[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
    fn environment_now(self) -> io::Result<Vec<u8>> {
        let mut room = 32 * 1024;
        loop {
            let mut environment = vec![0; room];
            let read = fs::File::open(format!("/proc/{}/environ", self.pid))?.read(&mut environment)?;
            if read < room {
                environment.truncate(read);
                return Ok(environment);
            }
            room *= 8;
        }
    }

    /// Whether it has memory of its own, and in that an environment, or is not yet the program that it becomes: then the kernel does not say
    /// where its code begins.
    #[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
    fn has_an_environment(self) -> bool {
        let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", self.pid)) else { return false };
        let Some((_, fields)) = stat.rsplit_once(')') else { return false };
        // Of proc_pid_stat(5), which counts from the number and the name on.
        let field = |number: usize| fields.split_ascii_whitespace().nth(number - 3).unwrap_or("0");
        let (memory, program, begins, ends) = (field(23), field(26), field(50), field(51));
        memory != "0" && (matches!(program, "0" | "1") || begins != ends)
    }

    /// Whether it has the file of this device and inode open.
    pub(crate) fn holds(self, device: u64, inode: u64) -> bool {
        let Ok(open_files) = fs::read_dir(format!("/proc/{}/fd", self.pid)) else { return false };
        open_files
            .flatten()
            .any(|file| fs::metadata(file.path()).is_ok_and(|meta| meta.dev() == device && meta.ino() == inode))
    }

    /// The name of its program, as the kernel keeps it.
    #[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
    pub(crate) fn name(self) -> String {
        fs::read_to_string(format!("/proc/{}/comm", self.pid))
            .map_or_else(|_| "?".to_owned(), |name| name.trim_end().to_owned())
    }
}

/// Reads `/proc/<pid>/stat`. The program's name stands in parentheses and may hold anything, so fields count from the last
/// closing one.
fn parse(pid: i32, stat: &str) -> Option<Process> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    let parent = fields.next()?.parse().ok()?; // field 4
    let session = fields.nth(1)?.parse().ok()?; // field 6
    let start_ticks = fields.nth(15)?.parse().ok()?; // field 22
    Some(Process { pid, parent, session, start_ticks })
}

/// Every process but this one.
pub(crate) fn others() -> Vec<Process> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| *pid != me).filter_map(Process::find).collect()
}

/// Every process but this one, as they were within the time that it took to read that.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<(Process, Vec<Box<[u8]>>)>);

impl Table {
    /// Reads it.
    pub(crate) fn read() -> Self {
        Self(others().into_iter().map(|process| (process, process.marks())).collect())
    }

    /// One that was begun to be read since this was called, beside the runtime: of those who wait for one meanwhile all have the next.
    pub(crate) async fn newest() -> Arc<Self> {
        static SHARED: Shared<Table> = Shared::new();
        SHARED.newest(Self::read).await
    }

    /// The processes that a shim started, directly or not: those below it, those of its session, and those that carry the mark of its lock. The
    /// shim itself, if it is among them, comes last: as long as it lives, what loses its parent becomes its child.
    /// `shim` is only to be given while that process is known to be the shim; its number is its session's, too.
    pub(crate) fn below_shim(&self, shim: Option<i32>, lock: &Path) -> Vec<Process> {
        let lock = lock.as_os_str().as_bytes();
        let mut below: BTreeSet<i32> = BTreeSet::new();
        if let Some(shim) = shim {
            let mut new = vec![shim];
            while let Some(parent) = new.pop() {
                let children = self.0.iter().map(|(process, _)| process).filter(|process| process.parent == parent);
                new.extend(children.map(|process| process.pid).filter(|pid| below.insert(*pid)));
            }
        }
        let belongs = |(process, marks): &&(Process, Vec<Box<[u8]>>)| {
            below.contains(&process.pid) || shim == Some(process.session) || marks.iter().any(|mark| **mark == *lock)
        };
        let mut all: Vec<Process> = self.0.iter().filter(belongs).map(|(process, _)| *process).collect();
        all.sort_by_key(|process| shim == Some(process.pid));
        all
    }
}

/// What is read for all who ask at the same time. Nobody gets what was begun to be read before they asked.
struct Shared<T> {
    /// How often it was asked for.
    asked: AtomicU64,
    /// The newest, and how often it had been asked for when it was begun. Whoever reads holds it.
    newest: Mutex<Option<(u64, Arc<T>)>>,
}

impl<T: Send + Sync + 'static> Shared<T> {
    const fn new() -> Self {
        Self { asked: AtomicU64::new(0), newest: Mutex::const_new(None) }
    }

    async fn newest(&self, read: impl FnOnce() -> T + Send + 'static) -> Arc<T> {
        let own = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut newest = self.newest.lock().await;
        if let Some((_, shared)) = newest.as_ref().filter(|(asked, _)| *asked >= own) {
            return shared.clone();
        }
        let asked = self.asked.load(Ordering::SeqCst);
        let shared = Arc::new(beside(read).await);
        *newest = Some((asked, shared.clone()));
        shared
    }
}

/// Whether this process already is the leader of its session.
pub(crate) fn leads_its_session() -> bool {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    Process::find(me).is_some_and(|process| process.session == me)
}

/// The identity of this boot of the machine.
#[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
pub(crate) fn boot_id() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_cannot_forge_the_fields_after_it() {
        let stat = "42 (a) S 1 1 1 (b) S 7 8 9 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 1";
        assert_eq!(parse(42, stat), Some(Process { pid: 42, parent: 7, session: 9, start_ticks: 98765 }));
    }

    #[test]
    fn a_zombie_counts_as_gone() {
        assert_eq!(parse(42, "42 (a) Z 7 8 9 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 1"), None);
    }

    #[test]
    fn this_process_is_found_by_its_number_only() {
        let me = i32::try_from(std::process::id()).unwrap();
        assert_eq!(Process::find(me).unwrap().pid, me);
        assert!(others().iter().all(|other| other.pid != me));
    }

    /// As many as ask while one reads have one reading between them, which was begun behind the last of them; whoever asks later has another.
    #[tokio::test]
    async fn whoever_asks_has_what_was_begun_to_be_read_afterwards() {
        static SHARED: Shared<u64> = Shared::new();
        static READ: AtomicU64 = AtomicU64::new(0);
        let (goes_on, waits) = std::sync::mpsc::channel::<()>();
        let first = tokio::spawn(SHARED.newest(move || {
            waits.recv().unwrap();
            READ.fetch_add(1, Ordering::SeqCst)
        }));
        while SHARED.asked.load(Ordering::SeqCst) < 1 {
            tokio::task::yield_now().await;
        }
        let others: Vec<_> =
            (0..64).map(|_| tokio::spawn(SHARED.newest(|| READ.fetch_add(1, Ordering::SeqCst)))).collect();
        while SHARED.asked.load(Ordering::SeqCst) < 65 {
            tokio::task::yield_now().await;
        }
        goes_on.send(()).unwrap();
        assert_eq!(*first.await.unwrap(), 0);
        for other in others {
            assert_eq!(*other.await.unwrap(), 1);
        }
        assert_eq!(*SHARED.newest(|| READ.fetch_add(1, Ordering::SeqCst)).await, 2);
    }

    /// Whoever gives up while it reads leaves that to the next.
    #[tokio::test]
    async fn a_reading_that_nobody_waits_for_is_nobodys() {
        static SHARED: Shared<u64> = Shared::new();
        let (goes_on, waits) = std::sync::mpsc::channel::<()>();
        let given_up = tokio::spawn(SHARED.newest(move || {
            waits.recv().unwrap();
            1
        }));
        while SHARED.newest.try_lock().is_ok() {
            tokio::task::yield_now().await;
        }
        given_up.abort();
        assert!(given_up.await.unwrap_err().is_cancelled());
        assert_eq!(*SHARED.newest(|| 2).await, 2);
        goes_on.send(()).unwrap();
    }

    #[test]
    fn processes_are_a_shims_by_their_parents_their_session_and_their_mark() {
        let process = |pid, parent, session| Process { pid, parent, session, start_ticks: 1 };
        let mark = |lock: &str| vec![Box::from(lock.as_bytes())];
        let table = Table(vec![
            (process(10, 1, 10), vec![]),
            (process(11, 10, 11), vec![]),
            (process(12, 11, 12), vec![]),
            (process(13, 1, 10), vec![]),
            (process(14, 1, 14), mark("/l/a")),
            (process(15, 1, 15), mark("/l/ab")),
            (process(16, 15, 16), [mark("/l/b"), mark("/l/a")].concat()),
            (process(17, 1, 17), vec![]),
        ]);
        let pids = |shim, lock: &str| {
            table.below_shim(shim, Path::new(lock)).iter().map(|process| process.pid).collect::<Vec<_>>()
        };
        assert_eq!(pids(Some(10), "/l/a"), [11, 12, 13, 14, 16, 10]);
        assert_eq!(pids(None, "/l/a"), [14, 16]);
        assert_eq!(pids(None, "/l/c"), Vec::<i32>::new());
    }

    /// A process with this mark, when it is a program of its own.
    fn marked(mark: &str, program: &str, arguments: &[&str]) -> (std::process::Child, Process) {
        use std::process::{Command, Stdio};
        let child = Command::new(program)
            .args(arguments)
            .env(MARK, mark)
            .env("X_UA_TOOL", "1")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let process = Process::find(i32::try_from(child.id()).unwrap()).unwrap();
        // It has this process's environment until it is the other program.
        while process.name() != program {
            thread::yield_now();
        }
        (child, process)
    }

    #[test]
    fn a_process_has_the_marks_of_its_environment() {
        let (mut child, process) = marked("/l/a", "sleep", &["1000"]);
        let table = Table::read();
        assert_eq!(
            table.below_shim(None, Path::new("/l/a")).iter().map(|process| process.pid).collect::<Vec<_>>(),
            [process.pid]
        );
        assert_eq!(table.below_shim(None, Path::new("/l/")), []);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// One that becomes another program again and again has no moment in which it is nobody's.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
    fn a_process_keeps_its_marks_while_it_becomes_another_program() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("again");
        fs::write(&script, "exec sh \"$0\"\n").unwrap();
        let (mut child, process) = marked("/l/again", "sh", &[script.to_str().unwrap()]);
        for _ in 0..20_000 {
            assert_eq!(process.marks(), [Box::from(*b"/l/again")]);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
