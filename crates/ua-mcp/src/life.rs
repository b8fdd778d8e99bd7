//! The pipe by which a tool server is seen to live: it holds the end that is read, and whoever asks tries to open the other one.
//!
//! Durable runner, current state §6. A lock that a server inherits it can give up without ending, for its shim too: `flock` belongs to the open
//! file, whoever has it. So no lock is open in a server, and what it has instead can do nothing but end with it: nothing is ever written into
//! this pipe, and closing it says no more than an end does. It lies beside the generation's lock file and goes with it.
//!
//! Proved by: `tests::shim`.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use rustix::fs::OFlags;
use rustix::io::Errno;
use ua_core::ShowPath as _;

/// What the name of a pipe has behind that of its lock file.
const ENDING: &str = ".life";

/// The pipe that belongs to a lock file.
pub(crate) fn path(lock: &Path) -> PathBuf {
    let mut name = lock.as_os_str().to_owned();
    name.push(ENDING);
    name.into()
}

/// Makes the pipe that belongs to a lock file and opens the end that a server holds; it is not inherited unless somebody says so.
///
/// # Errors
/// It cannot be made, or it is there already.
#[expect(
    clippy::disallowed_methods,
    reason = "a pipe is what is wanted here; it is waited for by nobody, and no link leads to it"
)]
pub(crate) fn make(lock: &Path) -> io::Result<File> {
    let path = path(lock);
    mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)?;
    // The other end is never opened to stay, so this must not wait for it.
    let ours = File::options().read(true).custom_flags(flags()).open(&path)?;
    if !ours.metadata()?.file_type().is_fifo() {
        return Err(io::Error::other(format!("{} was replaced", path.shown())));
    }
    Ok(ours)
}

/// Whether any process holds the end that a server has.
///
/// # Errors
/// It cannot be opened. That it is not there, or is no pipe, is no error: then nobody holds it.
#[expect(
    clippy::disallowed_methods,
    reason = "a pipe is what is wanted here; it is waited for by nobody, and no link leads to it"
)]
pub(crate) fn is_held(lock: &Path) -> io::Result<bool> {
    match File::options().write(true).custom_flags(flags()).open(path(lock)) {
        Ok(end) => Ok(end.metadata()?.file_type().is_fifo()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => Ok(false),
        Err(error) => Err(error),
    }
}

fn flags() -> i32 {
    (OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY).bits().cast_signed()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;

    #[test]
    fn it_is_held_as_long_as_somebody_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("run.srv.1");
        assert!(!is_held(&lock).unwrap(), "it is not there");
        let ours = make(&lock).unwrap();
        assert!(make(&lock).is_err(), "it is made once");
        let theirs = ours.try_clone().unwrap();
        assert!(is_held(&lock).unwrap());
        drop(ours);
        assert!(is_held(&lock).unwrap());
        drop(theirs);
        assert!(!is_held(&lock).unwrap());
        std::fs::remove_file(path(&lock)).unwrap();
        std::fs::write(path(&lock), "").unwrap();
        assert!(!is_held(&lock).unwrap(), "it is not a pipe");
    }
}
