//! Changes of modes, owners and times where mounts cannot be closed: made for the program, and only in what it may write.
//!
//! Without mounts of its own nothing of the kernel keeps a program from changing these outside of its workspace, so the filter lets none of these
//! calls through ([`super::calls`]). Here it hands them to the keeper, which traces the program and everything it starts. The keeper reads
//! once what is asked for, opens what the path means *to the program* without opening it for anything (`O_PATH`), looks where that is, makes
//! the change by what it opened, and has the call skipped: the kernel never looks at the path itself, so nobody exchanges it, or a folder on
//! the way, after it was judged.
//!
//! Invariants:
//! - A call that came here is never made by the program. Where its number cannot be taken from it, the program is killed; where the keeper is
//!   gone, so is the program (`PTRACE_O_EXITKILL`); a process that slipped the tracer (`CLONE_UNTRACED`) gets `ENOSYS` from the kernel.
//! - What is changed is found to be in the folders that may be written *after* it is held, by the name that the kernel has for it. Nothing
//!   comes in there from outside: Landlock refuses the program to move or link what it may not write.
//! - Nothing is done that gives somebody rights: no set-user-id, no owner but this user, nothing for a process that became another user.
//!
//! Extended attributes and flags of file systems stay refused. Programs in here are not traced by anybody else (`strace`, `gdb`), and real-time
//! signals do not reach them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use rustix::process::WaitOptions;

use super::report::{self, Report};
use super::{Confinement, PROBE_TRACED, RUN_TRACED, alone};

/// The numbers of the calls that are handed over: those of modes, of owners, of times.
pub(super) const CALLS: &[u32] =
    &[CHMOD, FCHMOD, FCHMODAT, FCHMODAT2, CHOWN, FCHOWN, LCHOWN, FCHOWNAT, UTIME, UTIMES, FUTIMESAT, UTIMENSAT];

const CHMOD: u32 = 90;
const FCHMOD: u32 = 91;
const CHOWN: u32 = 92;
const FCHOWN: u32 = 93;
const LCHOWN: u32 = 94;
const UTIME: u32 = 132;
const UTIMES: u32 = 235;
const FCHOWNAT: u32 = 260;
const FUTIMESAT: u32 = 261;
const FCHMODAT: u32 = 268;
const UTIMENSAT: u32 = 280;
const FCHMODAT2: u32 = 452;

const AT_FDCWD: i32 = -100;
const AT_SYMLINK_NOFOLLOW: u32 = 0x100;
const AT_EMPTY_PATH: u32 = 0x1000;
/// The bits of a mode that give whoever runs a file the rights of its owner or group.
const SET_IDS: u32 = 0o6000;
const MODE: u32 = 0o1777;
/// The longest path, with its end.
const MAX_PATH: usize = 4096;
/// Waits for threads as well.
const WAIT_ALL: u32 = 0x4000_0000;
/// What a wait says of a call that the filter handed over.
const EVENT_SECCOMP: i32 = 7;

fn options() -> Options {
    Options::PTRACE_O_TRACESECCOMP
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL
}

/// Whether a process that this one starts can be traced here.
pub(super) fn is_possible(args: &[OsString]) -> bool {
    let Ok(mut child) = alone::again(args, PROBE_TRACED).stdin(std::process::Stdio::null()).spawn() else {
        return false;
    };
    let traced = i32::try_from(child.id()).is_ok_and(|pid| take(Pid::from_raw(pid)).is_ok());
    // Both fail when it has ended by itself.
    child.kill().ok();
    child.wait().ok();
    traced
}

/// Lets the process that started this one trace it, and waits until it does.
pub(super) fn begin() -> Result<(), String> {
    ptrace::traceme().map_err(|error| format!("it cannot be traced: {error}"))?;
    nix::sys::signal::raise(Signal::SIGSTOP).map_err(|error| format!("it cannot wait to be traced: {error}"))
}

/// Waits for a child that lets itself be traced, and says what of it is told.
fn take(child: Pid) -> Result<(), String> {
    let status = nix::sys::wait::waitpid(child, None).map_err(|error| format!("it is not waited for: {error}"))?;
    if !matches!(status, nix::sys::wait::WaitStatus::Stopped(_, Signal::SIGSTOP)) {
        return Err("it ended before it was traced".to_owned());
    }
    ptrace::setoptions(child, options()).map_err(|error| format!("it cannot be traced: {error}"))
}

/// Starts what becomes the program, makes the changes that it may make, and ends when it does; with this process, everything that it left ends.
pub(super) fn keep(args: &[OsString], confinement: &Confinement) -> Result<i32, String> {
    let inner = Confinement { server: std::process::id(), ..confinement.clone() };
    let text = serde_json::to_string(&inner).map_err(|error| error.to_string())?;
    let inner_args: Vec<OsString> =
        args.iter().take(1).cloned().chain([text.into()]).chain(args.iter().skip(2).cloned()).collect();
    let writable = confinement.write.iter().map(|folder| folder.canonicalize()).collect::<Result<Vec<_>, _>>();
    let writable = writable.map_err(|error| format!("what it may write: {error}"))?;
    let child = alone::again_with(args.len(), RUN_TRACED, &inner_args).spawn();
    let child = child.map_err(|error| format!("its process: {error}"))?;
    let program = i32::try_from(child.id()).map_err(|error| error.to_string())?;
    if let Err(why) = take(Pid::from_raw(program)) {
        // One that could not begin has said why.
        report::send(&Report::Refused { why });
        return Ok(0);
    }
    resume(Pid::from_raw(program), None);
    let mut known = BTreeSet::from([program]);
    loop {
        let (pid, status) = match rustix::process::wait(WaitOptions::from_bits_retain(WAIT_ALL)) {
            Ok(Some((pid, status))) => (pid.as_raw_nonzero().get(), status),
            Ok(None) | Err(Errno::INTR) => continue,
            Err(error) => return Err(format!("it was started but not waited for: {error}")),
        };
        if status.exited() || status.signaled() {
            known.remove(&pid);
            if pid == program {
                report::send(&Report::Ended { code: status.exit_status(), signal: status.terminating_signal() });
                return Ok(0);
            }
            continue;
        }
        let traced = Pid::from_raw(pid);
        // 16 bits of how it ended or was stopped; above, why.
        let (event, signal) = (status.as_raw() >> 16, status.stopping_signal().unwrap_or_default());
        if event == EVENT_SECCOMP {
            answer(traced, &writable);
        }
        let is_new = known.insert(pid);
        let is_delivered = event == 0 && !(is_new && signal == Signal::SIGSTOP as i32);
        // A stop that is over has no signal that could be asked about.
        let signal =
            if is_delivered && ptrace::getsiginfo(traced).is_ok() { Signal::try_from(signal).ok() } else { None };
        resume(traced, signal);
    }
}

fn resume(traced: Pid, signal: Option<Signal>) {
    // It may have been killed meanwhile.
    ptrace::cont(traced, signal).ok();
}

/// Makes the change that a stopped process asks for, or refuses it; the call itself is skipped.
fn answer(traced: Pid, writable: &[PathBuf]) {
    let answered = ptrace::getregs(traced).and_then(|mut registers| {
        let call = Call {
            number: registers.orig_rax,
            arguments: [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8],
            process: traced.as_raw(),
        };
        let result = match call.perform(writable) {
            Ok(()) => 0,
            Err(error) => -i64::from(error.raw_os_error()),
        };
        registers.orig_rax = u64::MAX;
        registers.rax = result.cast_unsigned();
        ptrace::setregs(traced, registers)
    });
    if answered.is_err() {
        // Going on, it would make the call by itself.
        nix::sys::signal::kill(traced, Signal::SIGKILL).ok();
    }
}

/// A call of a traced process.
struct Call {
    number: u64,
    arguments: [u64; 5],
    process: i32,
}

/// What is asked for.
enum Change {
    Mode(u32),
    Owner(u32, u32),
    Times(Timestamps),
}

/// What it is asked for.
struct Target {
    folder: i32,
    /// The thing that `folder` is, when there is none.
    path: Option<Vec<u8>>,
    follows: bool,
}

impl Call {
    fn perform(&self, writable: &[PathBuf]) -> Result<(), Errno> {
        let (target, change) = self.read()?;
        if !self.is_ours() {
            return Err(Errno::PERM);
        }
        let held = self.open(&target)?;
        let place = rustix::fs::readlink(in_proc(&held), Vec::new())?;
        let place = PathBuf::from(OsString::from_vec(place.into_bytes()));
        if !writable.iter().any(|folder| place.starts_with(folder)) {
            return Err(Errno::PERM);
        }
        change.make(&held)
    }

    fn number(&self, at: usize) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "the kernel takes these from the lower half of a register")]
        let lower = self.arguments[at] as u32;
        lower
    }

    fn descriptor(&self, at: usize) -> i32 {
        self.number(at).cast_signed()
    }

    fn read(&self) -> Result<(Target, Change), Errno> {
        let here =
            |at: usize, follows| Ok::<_, Errno>(Target { folder: AT_FDCWD, path: Some(self.path(at)?), follows });
        let open = |at: usize| Target { folder: self.descriptor(at), path: None, follows: true };
        let below = |flags: u32| {
            if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
                return Err(Errno::INVAL);
            }
            let path = Some(self.path(1)?).filter(|path| !path.is_empty() || flags & AT_EMPTY_PATH == 0);
            Ok(Target { folder: self.descriptor(0), path, follows: flags & AT_SYMLINK_NOFOLLOW == 0 })
        };
        Ok(match u32::try_from(self.number).map_err(|_| Errno::NOSYS)? {
            CHMOD => (here(0, true)?, Change::Mode(self.number(1))),
            FCHMOD => (open(0), Change::Mode(self.number(1))),
            FCHMODAT => (below(0)?, Change::Mode(self.number(2))),
            FCHMODAT2 => (below(self.number(3))?, Change::Mode(self.number(2))),
            CHOWN => (here(0, true)?, Change::Owner(self.number(1), self.number(2))),
            LCHOWN => (here(0, false)?, Change::Owner(self.number(1), self.number(2))),
            FCHOWN => (open(0), Change::Owner(self.number(1), self.number(2))),
            FCHOWNAT => (below(self.number(4))?, Change::Owner(self.number(2), self.number(3))),
            UTIME => (here(0, true)?, Change::Times(self.times(1, Unit::Seconds)?)),
            UTIMES => (here(0, true)?, Change::Times(self.times(1, Unit::Micros)?)),
            // Without a path these two are about the descriptor.
            FUTIMESAT if self.arguments[1] == 0 => (open(0), Change::Times(self.times(2, Unit::Micros)?)),
            FUTIMESAT => (below(0)?, Change::Times(self.times(2, Unit::Micros)?)),
            UTIMENSAT if self.arguments[1] == 0 => (open(0), Change::Times(self.times(2, Unit::Nanos)?)),
            UTIMENSAT => (below(self.number(3))?, Change::Times(self.times(2, Unit::Nanos)?)),
            _ => return Err(Errno::NOSYS),
        })
    }

    /// Whether the process is this user still: nothing is done for one that took another one's rights, or gave up some.
    fn is_ours(&self) -> bool {
        #[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process)).unwrap_or_default();
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let all_are = |name: &str, wanted: u32| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.is_some_and(|line| line.split_whitespace().all(|number| number.parse() == Ok(wanted)))
        };
        all_are("Uid:", user) && all_are("Gid:", group)
    }

    /// Holds what a path means to the process.
    fn open(&self, target: &Target) -> Result<OwnedFd, Errno> {
        let process = self.process;
        let place = match target.folder {
            AT_FDCWD => format!("/proc/{process}/cwd"),
            folder if folder < 0 => String::new(),
            folder => format!("/proc/{process}/fd/{folder}"),
        };
        let base = || match place.as_str() {
            "" => Err(Errno::BADF),
            place => {
                rustix::fs::open(place, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(|error| match error {
                    Errno::NOENT => Errno::BADF,
                    error => error,
                })
            }
        };
        let Some(path) = &target.path else { return base() };
        let mut how = OFlags::PATH | OFlags::CLOEXEC;
        how.set(OFlags::NOFOLLOW, !target.follows);
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        if !path.starts_with(b"/") {
            return rustix::fs::openat(base()?, path.as_slice(), how, Mode::empty());
        }
        // The process means its own by these.
        let own = [&b"/proc/self/"[..], b"/proc/thread-self/"].into_iter().find_map(|own| path.strip_prefix(own));
        let path = own.map_or_else(|| path.clone(), |rest| [format!("/proc/{process}/").as_bytes(), rest].concat());
        rustix::fs::openat(CWD, path, how, Mode::empty())
    }

    fn memory(&self) -> Result<File, Errno> {
        #[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
        File::open(format!("/proc/{}/mem", self.process)).map_err(|_| Errno::FAULT)
    }

    fn path(&self, at: usize) -> Result<Vec<u8>, Errno> {
        let (memory, address) = (self.memory()?, self.arguments[at]);
        let mut path = vec![0; MAX_PATH];
        let mut length = 0;
        loop {
            // What lies behind its end may not be there, and a piece that crosses into that is not read at all.
            let piece = MAX_PATH - usize::try_from((address + length as u64) % MAX_PATH as u64).unwrap_or(0);
            let room = path.get_mut(length..(length + piece).min(MAX_PATH)).unwrap_or_default();
            if room.is_empty() {
                return Err(Errno::NAMETOOLONG);
            }
            let read =
                memory.read_at(room, address + length as u64).ok().filter(|read| *read > 0).ok_or(Errno::FAULT)?;
            if let Some(end) = memchr(&path[length..length + read]) {
                path.truncate(length + end);
                return Ok(path);
            }
            length += read;
        }
    }

    fn times(&self, at: usize, unit: Unit) -> Result<Timestamps, Errno> {
        if self.arguments[at] == 0 {
            let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
            return Ok(Timestamps { last_access: now, last_modification: now });
        }
        let mut bytes = [0; 32];
        let length = if matches!(unit, Unit::Seconds) { 16 } else { 32 };
        self.memory()?.read_exact_at(&mut bytes[..length], self.arguments[at]).map_err(|_| Errno::FAULT)?;
        let mut numbers = [0; 4];
        for (number, bytes) in numbers.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *number = i64::from_ne_bytes(*bytes);
        }
        let micros = |micros: i64| if (0..1_000_000).contains(&micros) { Ok(micros * 1000) } else { Err(Errno::INVAL) };
        let [(a, b), (c, d)] = match unit {
            Unit::Seconds => [(numbers[0], 0), (numbers[1], 0)],
            Unit::Micros => [(numbers[0], micros(numbers[1])?), (numbers[2], micros(numbers[3])?)],
            Unit::Nanos => [(numbers[0], numbers[1]), (numbers[2], numbers[3])],
        };
        Ok(Timestamps {
            last_access: Timespec { tv_sec: a, tv_nsec: b },
            last_modification: Timespec { tv_sec: c, tv_nsec: d },
        })
    }
}

/// What times are counted in, behind seconds.
#[derive(Debug, Clone, Copy)]
enum Unit {
    Seconds,
    Micros,
    Nanos,
}

fn memchr(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == 0)
}

/// The name by which what is held is found again, whatever happens to its path.
fn in_proc(held: &OwnedFd) -> PathBuf {
    Path::new("/proc/self/fd").join(held.as_raw_fd().to_string())
}

impl Change {
    fn make(&self, held: &OwnedFd) -> Result<(), Errno> {
        let is_link = FileType::from_raw_mode(rustix::fs::fstat(held)?.st_mode) == FileType::Symlink;
        match *self {
            Self::Mode(_) if is_link => Err(Errno::OPNOTSUPP),
            Self::Mode(mode) if mode & SET_IDS != 0 => Err(Errno::PERM),
            Self::Mode(mode) => {
                rustix::fs::chmodat(CWD, in_proc(held), Mode::from_raw_mode(mode & MODE), AtFlags::empty())
            }
            Self::Owner(user, group) => {
                let unchanged = u32::MAX;
                let me = rustix::process::geteuid();
                let is_own = user == unchanged || user == me.as_raw();
                // The kernel knows which groups everybody else may give a file to.
                let may_group = group == unchanged || group == rustix::process::getegid().as_raw() || !me.is_root();
                if !(is_own && may_group) {
                    return Err(Errno::PERM);
                }
                let user = (user != unchanged).then(|| Uid::from_raw(user));
                let group = (group != unchanged).then(|| Gid::from_raw(group));
                rustix::fs::chownat(held, "", user, group, AtFlags::EMPTY_PATH)
            }
            Self::Times(ref times) if is_link => rustix::fs::utimensat(held, "", times, AtFlags::EMPTY_PATH),
            Self::Times(ref times) => rustix::fs::utimensat(CWD, in_proc(held), times, AtFlags::empty()),
        }
    }
}
