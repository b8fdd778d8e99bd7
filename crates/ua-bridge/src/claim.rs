//! Who starts the next broker: of many bridges that find none one does, and the others wait for it.
//!
//! A claim is a lock of a file beside the broker's socket. The kernel takes it back when its last holder has ended, however that ended: a bridge
//! hands it down to the program that it starts (as standard input, which that program has no other use for), so that it lasts until neither of the
//! two is there. It saves processes, and nothing else goes by it: what makes a broker the only one is its own lock. So whoever cannot have a claim,
//! on a file system without locks for example, starts a broker without one, and whoever waited too long for one holder, which may have been stopped,
//! takes its place. Where no broker starts, the file says why, so that whoever would start it in the same way knows it without trying.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use nix::libc::O_NOFOLLOW;

use crate::carry::now;

/// How long one holder is waited for: a broker is up long before.
const TOO_LONG: Duration = Duration::from_secs(10);

/// The longest record of a failure that is read.
const LONGEST: usize = 64 * 1024;

/// Why a broker did not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// In words.
    pub(crate) why: String,
    /// With what the program that starts it ended, if it ended by itself.
    pub(crate) code: Option<i32>,
}

/// What the file beside a socket says, if the last that was tried there is that no broker started: when that was, and why. A program that does not
/// get as far as to write down its own failure is known by this alone.
pub fn last_failure(socket: &Path) -> Option<(SystemTime, String)> {
    let file = File::options().read(true).custom_flags(O_NOFOLLOW).open(beside(socket)).ok()?;
    let (_, failure) = written(&file)?;
    Some((file.metadata().ok()?.modified().ok()?, failure.why))
}

fn beside(socket: &Path) -> PathBuf {
    socket.with_extension("starting")
}

/// The failure that the file tells of, with the way in which it was tried.
fn written(file: &File) -> Option<(String, Failure)> {
    let mut text = vec![0; LONGEST];
    let length = file.read_at(&mut text, 0).ok()?;
    let text = String::from_utf8_lossy(&text[..length]);
    let (first, why) = text.split_once('\n')?;
    let (way, code) = first.strip_prefix("failed ")?.split_once(' ')?;
    Some((way.to_owned(), Failure { why: why.to_owned(), code: code.parse().ok() }))
}

/// The right to start a broker, for as long as this, or what it was handed down to, is there.
#[derive(Debug)]
pub struct Claim(Option<File>);

impl Claim {
    /// A broker is started now: for whoever waits this is another holder than before.
    pub fn begins(&self) {
        self.write(&format!("{}\n", std::process::id()));
    }

    /// None came up, for whoever looks why (see [`last_failure`]); bridges, which may start one in another way, find out for themselves.
    pub fn failed(&self, why: &str) {
        self.write(&format!("failed - -\n{why}"));
    }

    /// A full disk is no reason not to start.
    fn write(&self, text: &str) {
        if let Some(mut file) = self.0.as_ref() {
            let _unread = file.set_len(0).and_then(|()| file.write_all(text.as_bytes()));
        }
    }

    /// It, as the standard input of the program that starts the broker; that holds it as well from then on.
    pub fn handed_down(&self) -> Stdio {
        let file = self.0.as_ref().and_then(|file| file.try_clone().ok());
        file.map_or_else(Stdio::null, Stdio::from)
    }
}

/// One file, by one holder: it changes with each.
type Held = (u64, u64, i64, i64);

/// Asks for the claim beside one socket.
#[derive(Debug)]
pub struct Claims {
    path: PathBuf,
    too_long: Duration,
    /// Who was found to have it, and since when.
    waits_for: Option<(Held, Instant)>,
    /// The last that is known of what holders wrote.
    known: Option<Held>,
}

impl Claims {
    /// Those of the broker that listens at this socket.
    pub fn beside(socket: &Path) -> Self {
        let path = beside(socket);
        // What was so before says nothing about now.
        let known = fs::symlink_metadata(&path).ok().map(|found| held(&found));
        Self { path, too_long: TOO_LONG, waits_for: None, known }
    }

    /// Why whoever had the claim before, since this was looked at last, could not start a broker in the same way. So of many bridges one tries at
    /// a time, and all know of it.
    pub(crate) fn failed_meanwhile(&mut self, claim: &Claim, way: u64) -> Option<Failure> {
        let file = claim.0.as_ref()?;
        let found = held(&file.metadata().ok()?);
        if self.known.replace(found) == Some(found) {
            return None;
        }
        written(file).filter(|(of, _)| *of == way.to_string()).map(|(_, failure)| failure)
    }

    /// No broker started in this way, for whoever waits as well.
    pub(crate) fn failed(&mut self, claim: &Claim, way: u64, failure: &Failure) {
        let code = failure.code.map_or_else(|| "-".to_owned(), |code| code.to_string());
        claim.write(&format!("failed {way} {code}\n{}", failure.why));
        self.known = claim.0.as_ref().and_then(|file| file.metadata().ok()).map(|found| held(&found));
    }

    /// Takes the claim; `None` as long as another process has it. Whoever has it looks for a broker once more before it starts one.
    pub fn take(&mut self) -> Option<Claim> {
        let Ok(file) = self.open() else { return Some(Claim(None)) };
        match file.try_lock() {
            // Somebody may have taken the place of its last holder, by a file of their own.
            Ok(()) if self.is_there(&file) => {
                self.waits_for = None;
                Some(Claim(Some(file)))
            }
            Ok(()) => None,
            Err(TryLockError::WouldBlock) => {
                self.wait_for(&file);
                None
            }
            Err(TryLockError::Error(_)) => Some(Claim(None)),
        }
    }

    /// Another one has it. Of one that has it for too long the file is removed, so that the next one that is made can be had.
    fn wait_for(&mut self, file: &File) {
        let Ok(held) = file.metadata().map(|found| held(&found)) else { return };
        match self.waits_for {
            Some((known, since)) if known == held => {
                if since.elapsed() >= self.too_long && self.is_there(file) {
                    let _gone = fs::remove_file(&self.path);
                }
            }
            Some(_) | None => self.waits_for = Some((held, now())),
        }
    }

    /// The file: where it was handed down to this process, as that, which has its lock already.
    fn open(&self) -> io::Result<File> {
        if let Ok(input) = io::stdin().as_fd().try_clone_to_owned().map(File::from)
            && self.is_there(&input)
        {
            return Ok(input);
        }
        OpenOptions::new().read(true).append(true).create(true).mode(0o600).custom_flags(O_NOFOLLOW).open(&self.path)
    }

    fn is_there(&self, file: &File) -> bool {
        let place = |found: fs::Metadata| (found.dev(), found.ino());
        let found = fs::symlink_metadata(&self.path).map(place).ok();
        found.is_some() && file.metadata().map(place).ok() == found
    }
}

fn held(found: &fs::Metadata) -> Held {
    (found.dev(), found.ino(), found.mtime(), found.mtime_nsec())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The claim, as soon as nobody has it: a program that another test starts has all open files of this process for a moment, claims of the tests
    /// here as well, so that one may outlive its holder by as much.
    fn soon(claims: &mut Claims) -> Claim {
        loop {
            if let Some(claim) = claims.take() {
                return claim;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn one_has_it_and_the_next_one_when_that_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("gateway.sock");
        let (mut one, mut other) = (Claims::beside(&socket), Claims::beside(&socket));
        let claim = one.take().unwrap();
        assert!(other.take().is_none() && other.take().is_none());
        drop(claim);
        let claim = soon(&mut other);
        assert!(one.take().is_none());
        drop(claim);
        drop(soon(&mut one));
    }

    /// A bridge that is killed while it starts a broker leaves the program behind that does it.
    #[test]
    fn it_lasts_as_long_as_the_program_that_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("gateway.sock");
        let (mut one, mut other) = (Claims::beside(&socket), Claims::beside(&socket));
        let claim = one.take().unwrap();
        let mut starter = Command::new("sleep").arg("1000").stdin(claim.handed_down()).spawn().unwrap();
        drop(claim);
        assert!(other.take().is_none());
        starter.kill().unwrap();
        starter.wait().unwrap();
        drop(soon(&mut other));
    }

    #[test]
    fn whoever_has_it_for_too_long_is_replaced_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("gateway.sock");
        let stopped = Claims::beside(&socket).take().unwrap();
        let mut waiting = [(); 3].map(|()| Claims { too_long: Duration::ZERO, ..Claims::beside(&socket) });
        let claims: Vec<Claim> = (0..2).flat_map(|_| waiting.each_mut().map(Claims::take)).flatten().collect();
        assert_eq!(claims.len(), 1, "{claims:?}");
        assert!(Claims::beside(&socket).take().is_none());
        // The end of the first one changes nothing.
        drop(stopped);
        assert!(Claims::beside(&socket).take().is_none());
    }

    #[test]
    fn why_no_broker_starts_is_known_to_all_who_wait_and_to_nobody_later() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("gateway.sock");
        let (mut one, mut other, mut another) =
            (Claims::beside(&socket), Claims::beside(&socket), Claims::beside(&socket));
        let failure = Failure { why: "the disk is full;\nsee there".to_owned(), code: Some(74) };
        let claim = one.take().unwrap();
        claim.begins();
        one.failed(&claim, 7, &failure);
        assert_eq!(one.failed_meanwhile(&claim, 7), None, "its own");
        assert_eq!(last_failure(&socket).map(|(_, why)| why), Some(failure.why.clone()), "while one tries, and later");
        drop(claim);
        let claim = soon(&mut other);
        assert_eq!(other.failed_meanwhile(&claim, 7), Some(failure));
        assert_eq!(other.failed_meanwhile(&claim, 7), None, "once");
        drop(claim);
        let claim = soon(&mut another);
        assert_eq!(another.failed_meanwhile(&claim, 8), None, "it would be started in another way");
        drop(claim);
        let mut later = Claims::beside(&socket);
        let claim = soon(&mut later);
        assert_eq!(later.failed_meanwhile(&claim, 7), None, "it was so before");
    }

    /// Whoever asks how the gateway stands is told why none started, until the next one is begun.
    #[test]
    fn why_no_broker_started_is_kept_until_the_next_one_is_begun() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("gateway.sock");
        let known = || last_failure(&socket).map(|(_, why)| why);
        assert_eq!(known(), None);
        let claim = Claims::beside(&socket).take().unwrap();
        assert_eq!(known(), None, "one is tried");
        claim.failed("it was killed");
        drop(claim);
        assert_eq!(known().as_deref(), Some("it was killed"));
        let mut next = Claims::beside(&socket);
        let claim = soon(&mut next);
        assert_eq!(next.failed_meanwhile(&claim, 7), None, "it was tried in a way that bridges do not know");
        claim.begins();
        assert_eq!(known(), None);
    }

    #[test]
    fn where_there_is_nothing_to_lock_nobody_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("missing/gateway.sock");
        let claims = [(); 2].map(|()| Claims::beside(&socket).take().unwrap());
        assert!(claims.iter().all(|claim| claim.0.is_none()));
        // What leads elsewhere is not written to.
        let (socket, elsewhere) = (folder.path().join("gateway.sock"), folder.path().join("elsewhere"));
        fs::write(&elsewhere, "kept").unwrap();
        std::os::unix::fs::symlink(&elsewhere, socket.with_extension("starting")).unwrap();
        assert!(Claims::beside(&socket).take().unwrap().0.is_none());
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "kept");
    }
}
