//! The bridge: what `claude` starts as an MCP server. It only carries lines between its standard streams and the desk's socket.
//!
//! It has no lock, no store and no say: whatever kills it, the process that drives the run knows what was asked and what came of it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;

/// The longest path that a socket's address holds.
const LONGEST: usize = 100;

/// A path of the socket `path` that fits into an address, and what has to stay open while it is used.
pub(crate) fn address(path: &Path) -> io::Result<(PathBuf, Option<File>)> {
    if path.as_os_str().len() <= LONGEST {
        return Ok((path.to_path_buf(), None));
    }
    let folder = File::open(path.parent().unwrap_or(Path::new("/")))?;
    let name = path.file_name().unwrap_or_default();
    Ok((Path::new(&format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name), Some(folder)))
}

/// Runs the bridge with its raw arguments, a socket and the name of the tool server it stands for, and returns the exit code for `main`.
pub fn run_bridge(args: impl IntoIterator<Item = OsString>) -> i32 {
    let args: Vec<OsString> = args.into_iter().collect();
    let [socket, server] = args.as_slice() else {
        let _unread = writeln!(io::stderr(), "tool bridge: a socket and the name of a tool server are needed");
        return 64;
    };
    match carry(Path::new(socket), &server.to_string_lossy()) {
        Ok(()) => 0,
        Err(error) => {
            let _unread = writeln!(io::stderr(), "tool bridge: {}: {error}", Path::new(socket).display());
            69
        }
    }
}

fn carry(socket: &Path, server: &str) -> io::Result<()> {
    let (address, _open) = address(socket)?;
    let mut stream = UnixStream::connect(address)?;
    writeln!(stream, "{}", serde_json::json!({"server": server}))?;
    let mut to_desk = stream.try_clone()?;
    // Not joined: it ends with the process, when the desk has closed its side.
    thread::spawn(move || {
        let done = copy(&mut io::stdin().lock(), &mut to_desk).and_then(|()| to_desk.shutdown(Shutdown::Write));
        done.ok();
    });
    copy(&mut stream, &mut io::stdout().lock())
}

/// Copies what comes as it comes.
fn copy(from: &mut impl Read, into: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        into.write_all(&buffer[..read])?;
        into.flush()?;
    }
}
