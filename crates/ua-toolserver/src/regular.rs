//! Opens files of the workspace that a caller named, and nothing but files.
//!
//! Whoever may create files there may also create a named pipe, and opening that for reading waits until somebody writes,
//! which may be never. So it is opened without waiting, and what was opened is asked what it is: asking before would leave
//! time to exchange it.

use std::io::{self, Read as _};
use std::path::Path;

use cap_std::fs::{Dir, File, FileType, FileTypeExt as _, Metadata, OpenOptions, OpenOptionsExt as _};
use rustix::fs::OFlags;

use crate::answer::Failure;

/// Opens `path` for reading: a regular file, or a directory, which the caller refuses in its own words.
///
/// # Errors
///
/// What the operating system says; a named pipe, a socket or a device is an [`io::ErrorKind::InvalidInput`] that says so.
pub(crate) fn open(dir: &Dir, path: &Path) -> io::Result<(File, Metadata)> {
    open_with(dir, path, OpenOptions::new().read(true))
}

/// As [`open()`], with other options.
pub(crate) fn open_with(dir: &Dir, path: &Path, options: &mut OpenOptions) -> io::Result<(File, Metadata)> {
    // Reading and writing a regular file is the same with this flag.
    let file = dir.open_with(path, options.custom_flags(NONBLOCK)).map_err(|error| {
        // A socket, and a pipe for writing that nobody reads, cannot be opened at all.
        match dir.metadata(path) {
            Ok(metadata) if !is_plain(&metadata) => refusal(metadata.file_type()),
            Ok(_) | Err(_) => error,
        }
    })?;
    let metadata = file.metadata()?;
    if is_plain(&metadata) { Ok((file, metadata)) } else { Err(refusal(metadata.file_type())) }
}

/// All bytes of the file `path`, which a caller calls `given`, if they are at most `limit`.
pub(crate) fn read_up_to(dir: &Dir, path: &Path, given: &str, limit: u64) -> Result<Vec<u8>, Failure> {
    let failed = |error: &io::Error| Failure::io(format_args!("read {given:?}"), error);
    let (file, metadata) = open(dir, path).map_err(|error| failed(&error))?;
    let too_large = |bytes: u64| {
        let problem = format!("{given:?} has {bytes} bytes, more than the limit of {limit}");
        Failure::refused(problem, "split the file, or make it smaller")
    };
    if metadata.is_file() && metadata.len() > limit {
        return Err(too_large(metadata.len()));
    }
    let mut bytes = Vec::new();
    let count = file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    // It may have grown since.
    if count as u64 > limit { Err(too_large(count as u64)) } else { Ok(bytes) }
}

#[expect(clippy::cast_possible_wrap, reason = "flags of open(2) are a C int")]
const NONBLOCK: i32 = OFlags::NONBLOCK.bits() as i32;

fn is_plain(metadata: &Metadata) -> bool {
    metadata.is_file() || metadata.is_dir()
}

fn refusal(kind: FileType) -> io::Error {
    let what = if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_char_device() || kind.is_block_device() {
        "a device"
    } else {
        "something special"
    };
    io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}, not a file"))
}
