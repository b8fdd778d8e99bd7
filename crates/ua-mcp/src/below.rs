//! Who was started by a tool server: a program that finds a shim among the processes above it.
//!
//! Tool servers live below a shim ([`crate::run_shim`]), which is the parent of whatever loses its own below it, so that a daemon is found as well.
//! The ancestors are read from the kernel's own `/proc`, with nothing mounted over a part of it. Where the system hides processes, what a shim starts
//! is known by a limit ([`crate::mark`]).
//!
//! This is no wall against code that runs with the user's rights: it could have another program of the user start what it wants started.

/// Which process is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Process {
    /// This one.
    This,
    /// The one of this number, as this process sees it.
    Of(u32),
}

/// In which namespaces a process is, as `/proc` names them; empty where the kernel has none of that kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespaces {
    /// Of processes.
    pub processes: String,
    /// Of users.
    pub users: String,
}

/// Whether a process was started, over however many others, by a tool server.
///
/// # Errors
/// Why that cannot be told, in words.
pub fn is_below_a_shim(process: Process) -> Result<bool, String> {
    system::is_below_a_shim(process)
}

/// Where this process is; `None` on systems that have no such namespaces.
///
/// # Errors
/// Why that cannot be told, in words.
pub fn namespaces() -> Result<Option<Namespaces>, String> {
    system::namespaces()
}

/// What is known where a process on the way is hidden: another user's, unless the process that is asked about has the mark of those below a shim. The
/// system's administrator sees every process and can take the mark off, so for that user somebody has hidden it.
#[cfg(any(target_os = "linux", test))]
fn hidden(is_marked: bool, is_administrator: bool) -> Result<bool, String> {
    let hides = "processes above it are hidden (/proc with hidepid)";
    if is_administrator {
        return Err(format!("{hides}, which root sees where nobody takes that away"));
    }
    if is_marked {
        return Err(format!("{hides}, and it has the limits of what a tool server starts"));
    }
    Ok(false)
}

/// Whether the command line of a process, as the kernel shows it, is a shim's: `ua __shim …`.
fn is_shim(line: &[u8]) -> bool {
    line.split(|byte| *byte == 0).nth(1) == Some(b"__shim")
}

#[cfg(target_os = "linux")]
mod system {
    use std::collections::BTreeSet;
    use std::fs::File;
    use std::io::Read as _;
    use std::os::fd::OwnedFd;

    use super::{Namespaces, Process};
    use rustix::fs::{CWD, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, fstat, fstatfs, openat2, readlinkat};
    use rustix::io::Errno;

    /// How often the walk begins anew because a process on the way ended meanwhile.
    const WALKS: usize = 5;

    /// More than a line of `stat`, and enough of a command line to see its second word.
    const MAX_BYTES: u64 = 64 * 1024;

    pub(super) fn is_below_a_shim(process: Process) -> Result<bool, String> {
        let proc = Proc::open()?;
        for _ in 0..WALKS {
            let first = match process {
                Process::This => proc.own()?,
                Process::Of(process) => process,
            };
            if let Some(found) = proc.walk(first, process)? {
                return Ok(found);
            }
        }
        Err("a parent process of it ended each time that they were looked at".to_owned())
    }

    /// A kernel without one of them has no name for it, and this process is in the same one as everybody.
    pub(super) fn namespaces() -> Result<Option<Namespaces>, String> {
        let proc = Proc::open()?;
        let name = |kind: &str| proc.namespace(kind).unwrap_or_default();
        Ok(Some(Namespaces { processes: name("pid"), users: name("user") }))
    }

    /// The kernel's own table of processes.
    struct Proc(OwnedFd);

    impl Proc {
        fn open() -> Result<Self, String> {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let proc = rustix::fs::openat(CWD, "/proc", flags, Mode::empty()).map_err(|e| format!("/proc: {e}"))?;
            let system = fstatfs(&proc).map_err(|e| format!("/proc: {e}"))?;
            let root = fstat(&proc).map_err(|e| format!("/proc: {e}"))?;
            // The root of the file system of processes has this number; a folder of it that was mounted there has another.
            if system.f_type == PROC_SUPER_MAGIC && root.st_ino == 1 {
                Ok(Self(proc))
            } else {
                Err("/proc is not the kernel's".to_owned())
            }
        }

        /// The namespace of this kind that this process is in.
        fn namespace(&self, kind: &str) -> Result<String, String> {
            let fail = |why: Errno| format!("/proc/self/ns/{kind}: {why}");
            let own = readlinkat(&self.0, "self", Vec::new()).map_err(fail)?;
            let path = format!("{}/ns/{kind}", own.to_string_lossy());
            let link = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let within = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
            let link = openat2(&self.0, path.as_str(), link, Mode::empty(), within).map_err(fail)?;
            Ok(readlinkat(&link, "", Vec::new()).map_err(fail)?.to_string_lossy().into_owned())
        }

        /// This process, not by the number that it knows itself by: in a process namespace that is another one than `/proc` has.
        fn own(&self) -> Result<u32, String> {
            let own = readlinkat(&self.0, "self", Vec::new()).map_err(|e| format!("/proc/self: {e}"))?;
            let own = own.to_str().ok().and_then(|own| own.parse::<u32>().ok());
            own.ok_or_else(|| "/proc/self names no process".to_owned())
        }

        /// From `first`, who is `asked` about, up to the first process; nothing when one on the way is gone.
        fn walk(&self, first: u32, asked: Process) -> Result<Option<bool>, String> {
            let mut process = first;
            let mut seen = BTreeSet::new();
            while seen.insert(process) {
                let Some(parent) = self.parent_of(process)? else {
                    return match self.read(1, "stat")? {
                        Some(_) => Ok(None),
                        // Processes of others are hidden altogether where the first one is, and so is a shim, though it is this user's. What
                        // it starts is marked.
                        None => super::hidden(self.is_marked(asked)?, rustix::process::geteuid().is_root()).map(Some),
                    };
                };
                if parent == 0 {
                    return Ok(Some(false));
                }
                if self.read(parent, "cmdline")?.is_some_and(|line| super::is_shim(&line)) {
                    return Ok(Some(true));
                }
                process = parent;
            }
            Ok(None)
        }

        /// Whether a process may have the limits of what a shim starts. Whose cannot be read has.
        fn is_marked(&self, asked: Process) -> Result<bool, String> {
            let Process::Of(process) = asked else { return Ok(crate::mark::may_be_below_a_shim()) };
            let limits = self.read(process, "limits")?.unwrap_or_default();
            Ok(crate::mark::is_lowered(&String::from_utf8_lossy(&limits)))
        }

        fn parent_of(&self, process: u32) -> Result<Option<u32>, String> {
            let Some(stat) = self.read(process, "stat")? else { return Ok(None) };
            // The name stands in parentheses and may hold anything; behind the last one come the state and the parent.
            let stat = String::from_utf8_lossy(&stat);
            let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
            parent.map(Some).ok_or_else(|| format!("/proc/{process}/stat cannot be read"))
        }

        /// A file about a process; nothing when there is none.
        fn read(&self, process: u32, file: &str) -> Result<Option<Vec<u8>>, String> {
            let path = format!("{process}/{file}");
            let fail = |why: &dyn std::fmt::Display| format!("/proc/{path}: {why}");
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            // Nothing is mounted on the way: another process's file in place of this one's would be the kernel's, too.
            let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
            let file = match openat2(&self.0, path.as_str(), flags, Mode::empty(), within) {
                Ok(file) => File::from(file),
                Err(Errno::NOENT | Errno::SRCH) => return Ok(None),
                Err(error) => return Err(fail(&error)),
            };
            let mut bytes = Vec::new();
            match file.take(MAX_BYTES).read_to_end(&mut bytes) {
                Ok(_) => Ok(Some(bytes)),
                Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
                Err(error) => Err(fail(&error)),
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_process_knows_its_parent() {
            let proc = Proc::open().unwrap();
            assert_eq!(proc.parent_of(std::process::id()), Ok(Some(std::os::unix::process::parent_id())));
            assert_eq!(proc.parent_of(u32::MAX), Ok(None));
            assert_eq!(is_below_a_shim(Process::This), Ok(false));
            assert!(proc.namespace("pid").unwrap().starts_with("pid:["));
            assert!(proc.namespace("user").unwrap().starts_with("user:["));
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::process::Command;

    use super::{Namespaces, Process};

    /// More ancestors than a process has.
    const MAX_ANCESTORS: usize = 10_000;

    /// Other systems have none.
    pub(super) fn namespaces() -> Result<Option<Namespaces>, String> {
        Ok(None)
    }

    pub(super) fn is_below_a_shim(process: Process) -> Result<bool, String> {
        let mut process = match process {
            Process::This => std::os::unix::process::parent_id(),
            Process::Of(process) => process,
        };
        for _ in 0..MAX_ANCESTORS {
            if process <= 1 {
                return Ok(false);
            }
            let output = Command::new("/bin/ps").args(["-o", "ppid=,args=", "-p", &process.to_string()]).output();
            let output = output.map_err(|error| format!("/bin/ps: {error}"))?;
            let line = String::from_utf8_lossy(&output.stdout);
            let mut words = line.split_whitespace();
            let parent = words.next().and_then(|word| word.parse().ok());
            let words = words.collect::<Vec<_>>().join("\0");
            if super::is_shim(words.as_bytes()) {
                return Ok(true);
            }
            process = parent.ok_or_else(|| format!("process {process} cannot be examined"))?;
        }
        Err("it has too many parent processes".to_owned())
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;

    #[test]
    fn where_processes_are_hidden_the_mark_decides() {
        assert_eq!(hidden(false, false), Ok(false));
        for (is_marked, is_administrator) in [(true, false), (false, true), (true, true)] {
            assert!(hidden(is_marked, is_administrator).unwrap_err().contains("hidepid"));
        }
    }

    #[test]
    fn a_shim_is_told_by_its_second_word() {
        assert!(is_shim(b"/usr/bin/ua\0__shim\0--x\0"));
        assert!(!is_shim(b"/usr/bin/ua\0job\0__shim\0"));
        assert!(!is_shim(b""));
    }

    /// A shell with the words of a shim stands for one.
    #[test]
    fn another_process_is_known_by_what_stands_above_it() {
        use std::io::{BufRead as _, BufReader};
        use std::process::{Command, Stdio};
        let started = |words: &[&str]| {
            let mut shell = Command::new("/bin/sh");
            shell.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut shell = shell.spawn().unwrap();
            let mut line = String::new();
            BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
            let found = is_below_a_shim(Process::Of(line.trim().parse().unwrap()));
            shell.kill().unwrap();
            shell.wait().unwrap();
            found
        };
        // The inner shell says its number and waits for the end of its input.
        let inner = "sh -c 'echo $$; read -r _'; :";
        let folder = tempfile::tempdir().unwrap();
        let shim = folder.path().join("__shim");
        std::fs::write(&shim, inner).unwrap();
        assert_eq!(started(&["-c", inner]), Ok(false));
        let command = format!("cd '{}' && exec sh __shim", folder.path().display());
        assert_eq!(started(&["-c", &command]), Ok(true));
        assert_eq!(is_below_a_shim(Process::This), Ok(false));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn who_is_gone_is_told_about_nobody() {
        assert!(is_below_a_shim(Process::Of(u32::MAX)).is_err());
    }
}
