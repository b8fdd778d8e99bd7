//! The sockets that bridges and those behind them meet at: files that only their user may open, whatever the length of their paths.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The longest path that a socket's address holds.
const LONGEST: usize = 100;

/// A socket's path as it fits into an address, for as long as this is kept.
#[derive(Debug)]
pub struct Address {
    path: PathBuf,
    /// The folder through which it is reached, where its path is too long.
    _folder: Option<File>,
}

impl Address {
    /// The address of the socket at a path.
    ///
    /// # Errors
    /// Its path is long, and its folder cannot be opened.
    pub fn of(path: &Path) -> io::Result<Self> {
        if path.as_os_str().len() <= LONGEST {
            return Ok(Self { path: path.to_path_buf(), _folder: None });
        }
        let folder = File::open(path.parent().unwrap_or(Path::new("/")))?;
        let reached =
            Path::new(&format!("/proc/self/fd/{}", folder.as_raw_fd())).join(path.file_name().unwrap_or_default());
        Ok(Self { path: reached, _folder: Some(folder) })
    }
}

impl AsRef<Path> for Address {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

/// Listens at a path, in the place of whoever did before, with a socket that does not block. Its folder has to be the owner's alone, so that
/// nobody gets there before the file is this user's alone, too.
///
/// # Errors
/// The folder is not there, or cannot be written.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(Address::of(path)?)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_socket_is_met_at_however_long_its_path_is_and_is_its_users_alone() {
        let folder = tempfile::tempdir().unwrap();
        for length in [1, 100, 200] {
            let folder = folder.path().join("x".repeat(length));
            fs::create_dir(&folder).unwrap();
            let path = folder.join("socket");
            let connect = || UnixStream::connect(Address::of(&path).unwrap());
            assert_eq!(connect().unwrap_err().kind(), ErrorKind::NotFound);
            let first = listen(&path).unwrap();
            drop(first);
            assert_eq!(connect().unwrap_err().kind(), ErrorKind::ConnectionRefused);
            let second = listen(&path).unwrap();
            let _connected = connect().unwrap();
            second.accept().unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}
