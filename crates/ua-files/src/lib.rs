//! Files below a folder that a program, a model or a checkout can touch.
//!
//! `ua` writes beside what others write: the transcript lies in the workspace in which a program of a model works, `RESTART.md` in a root
//! that a checkout may have brought along. Whoever can make a name there can make it a link to a file of the user, a pipe that nobody
//! writes to, or a device without an end. So everything of this program that reads or writes there goes through a [`Folder`]:
//!
//! - **No links.** A path is walked part by part from an open folder, and no part of it may be a link. There is one way through the code on
//!   every kernel: `openat2` would take one call instead of a few, and needs this walk as its fallback anyway.
//! - **Regular files only.** A file is opened without waiting (`O_NONBLOCK`), and then asked what it is: asking before would leave time to
//!   exchange it.
//! - **Names that nobody can guess.** A file is replaced by a temporary one that only this call can have made (`O_EXCL`, 128 random bits).
//! - **Bounded.** Whoever reads says how much at most.
//! - **Nobody inherits it.** Everything is opened with `O_CLOEXEC`.
//!
//! The folder that is opened first is the caller's word: a person's `--root` may be a link.
//!
//! What of such a folder nobody is shown, because it is private, is told by [`Closed`], to all who read below it.
//!
//! Threats S5 and S8 of `docs/security.md`. Proved by: the tests below and `cargo xtask attacks`.

// The first crate of all that is compiled only there: what is said here stands above errors about names that are missing.
#[cfg(not(unix))]
compile_error!("`ua` needs a Unix system: it is developed and tested on Linux; on Windows, WSL 2 is one");

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io::{self, BufWriter, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

mod closed;
mod owned;
mod secret;
mod tcp;
mod user;

pub use closed::{Closed, is_hidden};
pub use owned::{OwnedFolder, clear_abandoned};
pub use secret::{Believe, secret};
pub use tcp::{TCP_TABLES, TcpSocket, plain_address, read_tcp_table, tcp_listeners, tcp_sockets};
pub use user::{is_own_group, user_in_words, user_name};

/// How often a name is drawn anew that somebody has.
const DRAWS: u32 = 8;

/// An open folder. Clones share it.
#[derive(Debug, Clone)]
pub struct Folder {
    open: Arc<OwnedFd>,
    path: PathBuf,
}

/// A file that is being written, and takes its place when it is whole. One that is dropped before leaves nothing behind.
#[derive(Debug)]
pub struct Replacement {
    folder: Folder,
    name: OsString,
    temporary: OsString,
    /// None once it is in its place.
    file: Option<BufWriter<File>>,
}

impl Replacement {
    /// Puts it in its place.
    pub fn place(mut self) -> io::Result<()> {
        self.flush()?;
        let open = &self.folder.open;
        rustix::fs::renameat(open, &self.temporary, open, &self.name)?;
        self.file = None;
        Ok(())
    }

    /// The same where others write, too: a folder that stands in its place is given another name, with all that is in it.
    pub fn place_whatever_is_there(mut self) -> io::Result<()> {
        self.flush()?;
        let open = &self.folder.open;
        for _ in 0..DRAWS {
            match rustix::fs::renameat(open, &self.temporary, open, &self.name) {
                Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => {}
                placed => {
                    placed?;
                    self.file = None;
                    return Ok(());
                }
            }
            let mut aside = self.name.clone();
            aside.push(format!(".{}.folder", unguessable()?));
            match rustix::fs::renameat(open, &self.name, open, &aside) {
                // Whoever put it there may have taken it away.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Errno::ISDIR.into())
    }

    /// Makes what was written so far durable; its name is not yet.
    fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        self.file.as_ref().map_or(Ok(()), |file| file.get_ref().sync_all())
    }

    /// Appends what was written so far to another file.
    pub fn append_to(&mut self, other: &mut impl io::Write) -> io::Result<()> {
        self.flush()?;
        let Some(file) = &mut self.file else { return Ok(()) };
        file.get_mut().rewind()?;
        io::copy(file.get_mut(), other).map(drop)
    }
}

impl io::Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_mut().map_or(Ok(0), |file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), BufWriter::flush)
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if self.file.is_some() {
            // What is left of it would only take room; that it may not be there is no second failure.
            rustix::fs::unlinkat(&self.folder.open, &self.temporary, AtFlags::empty()).ok();
        }
    }
}

/// What stands in a folder under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A link, a pipe, a socket or a device: nothing that is followed or read.
    Other,
}

impl Folder {
    /// Opens a folder that a person named: links in its path are theirs.
    pub fn open(path: &Path) -> io::Result<Self> {
        let open = rustix::fs::open(path, FOLDER, Mode::empty())?;
        Ok(Self { open: Arc::new(open), path: path.to_path_buf() })
    }

    /// Opens a folder whose own name may not be a link, wherever the folder above it is.
    pub fn open_itself(path: &Path) -> io::Result<Self> {
        let open =
            rustix::fs::open(path, FOLDER | OFlags::NOFOLLOW, Mode::empty()).map_err(|error| named(error, path))?;
        Ok(Self { open: Arc::new(open), path: path.to_path_buf() })
    }

    /// Opens a folder that a person named and makes what is missing of it, for this user alone: links in its path are theirs.
    pub fn make(path: &Path) -> io::Result<Self> {
        make_path(path)?;
        Self::open(path)
    }

    /// The same for a folder whose own name may not be a link, wherever the folder above it is.
    pub fn make_itself(path: &Path) -> io::Result<Self> {
        make_path(path)?;
        Self::open_itself(path)
    }

    /// Where it was when it was opened; for messages, and for programs that are told where to work.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a folder below this one.
    pub fn folder(&self, name: impl AsRef<Path>) -> io::Result<Self> {
        self.walk(name.as_ref(), false)
    }

    /// The same, and makes what is missing of it, for this user alone.
    pub fn make_folder(&self, name: impl AsRef<Path>) -> io::Result<Self> {
        self.walk(name.as_ref(), true)
    }

    fn walk(&self, name: &Path, make: bool) -> io::Result<Self> {
        let mut here = self.clone();
        for part in parts(name)? {
            here = here.enter(part, make)?;
        }
        Ok(here)
    }

    fn enter(&self, part: &OsStr, make: bool) -> io::Result<Self> {
        let path = self.path.join(part);
        let enter = || rustix::fs::openat(&self.open, part, FOLDER | OFlags::NOFOLLOW, Mode::empty());
        let entered = match enter() {
            Err(Errno::NOENT) if make => match rustix::fs::mkdirat(&self.open, part, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => enter(),
                Err(error) => Err(error),
            },
            entered => entered,
        };
        // A link is `ELOOP` or, asked for as a folder, `ENOTDIR`: what it is, is worth a word of its own.
        let open = entered.map_err(|error| if self.is_link(part) { link(&path) } else { error.into() })?;
        Ok(Self { open: Arc::new(open), path })
    }

    /// The open folder that `name` is in, and the last part of `name`.
    fn place<'n>(&self, name: &'n Path, make: bool) -> io::Result<(Self, &'n OsStr)> {
        let mut all = parts(name)?;
        let last = all.pop().ok_or_else(|| invalid(format!("{} names no file", shown(name))))?;
        let mut here = self.clone();
        for part in all {
            here = here.enter(part, make)?;
        }
        Ok((here, last))
    }

    fn is_link(&self, part: &OsStr) -> bool {
        rustix::fs::statat(&self.open, part, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
    }

    /// What stands here under `name`; `None` when nothing does.
    pub fn kind(&self, name: impl AsRef<Path>) -> io::Result<Option<Kind>> {
        let (here, last) = match self.place(name.as_ref(), false) {
            Ok(place) => place,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match rustix::fs::statat(&here.open, last, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(kind_of(FileType::from_raw_mode(stat.st_mode)))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a regular file for reading.
    pub fn open_file(&self, name: impl AsRef<Path>) -> io::Result<File> {
        let (here, last) = self.place(name.as_ref(), false)?;
        here.open_regular(last, OFlags::RDONLY)
    }

    /// All of a regular file, if it has at most `limit` bytes.
    pub fn read(&self, name: impl AsRef<Path>, limit: u64) -> io::Result<Vec<u8>> {
        let name = name.as_ref();
        let mut bytes = Vec::new();
        self.open_file(name)?.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            return Err(too_large(&self.path.join(name), limit));
        }
        Ok(bytes)
    }

    /// Opens a regular file for appending; makes it, for this user alone, if it is not there.
    pub fn append(&self, name: impl AsRef<Path>) -> io::Result<File> {
        let (here, last) = self.place(name.as_ref(), false)?;
        here.open_regular(last, OFlags::RDWR | OFlags::APPEND | OFlags::CREATE)
    }

    /// Opens a regular file for reading and writing, as it is; makes it, for this user alone, if it is not there.
    pub fn open_or_make(&self, name: impl AsRef<Path>) -> io::Result<File> {
        let (here, last) = self.place(name.as_ref(), false)?;
        here.open_regular(last, OFlags::RDWR | OFlags::CREATE)
    }

    /// Opens a regular file for reading and writing, as it is.
    pub fn open_to_change(&self, name: impl AsRef<Path>) -> io::Result<File> {
        let (here, last) = self.place(name.as_ref(), false)?;
        here.open_regular(last, OFlags::RDWR)
    }

    /// Makes a file that nobody had, for this user alone.
    pub fn make_file(&self, name: impl AsRef<Path>) -> io::Result<File> {
        let (here, last) = self.place(name.as_ref(), false)?;
        here.open_regular(last, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    fn open_regular(&self, name: &OsStr, how: OFlags) -> io::Result<File> {
        let path = self.path.join(name);
        let flags = how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let opened = rustix::fs::openat(&self.open, name, flags, Mode::RUSR | Mode::WUSR);
        let open = opened.map_err(|error| match error {
            Errno::LOOP => link(&path),
            // A pipe that nobody reads, or a socket.
            Errno::NXIO => special(&path),
            error => error.into(),
        })?;
        match FileType::from_raw_mode(rustix::fs::fstat(&open)?.st_mode) {
            // Reading and writing a regular file is the same with `O_NONBLOCK`.
            FileType::RegularFile => Ok(open.into()),
            FileType::Directory => Err(io::ErrorKind::IsADirectory.into()),
            FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Err(special(&path)),
        }
    }

    /// Puts a file in the place of whatever has its name, but for a folder: whoever reads it sees the old content or the new, never a part.
    pub fn replace(&self, name: impl AsRef<Path>, content: &[u8]) -> io::Result<()> {
        let mut replacement = self.replacement(name)?;
        replacement.write_all(content)?;
        replacement.place()
    }

    /// The same, and on stable storage when this returns, with its name.
    pub fn replace_durably(&self, name: impl AsRef<Path>, content: &[u8]) -> io::Result<()> {
        let mut replacement = self.replacement(name)?;
        replacement.write_all(content)?;
        replacement.sync()?;
        let folder = replacement.folder.clone();
        replacement.place()?;
        folder.sync()
    }

    /// Begins to write a file that will stand in the place of whatever has the name, but for a folder.
    pub fn replacement(&self, name: impl AsRef<Path>) -> io::Result<Replacement> {
        let (here, last) = self.place(name.as_ref(), false)?;
        let (temporary, file) = here.make_temporary(last)?;
        Ok(Replacement { folder: here, name: last.to_owned(), temporary, file: Some(BufWriter::new(file)) })
    }

    /// A new file beside `name`, under a name that was nobody's. Names of the same file look alike, so that what a kill left is known.
    fn make_temporary(&self, name: &OsStr) -> io::Result<(OsString, File)> {
        let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
        for _ in 0..DRAWS {
            let mut temporary = OsString::from(".");
            // A name may be as long as a name can be.
            temporary.push(name.to_string_lossy().chars().take(64).filter(char::is_ascii).collect::<String>());
            temporary.push(format!(".{}.tmp", unguessable()?));
            match self.open_regular(&temporary, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL) {
                Ok(file) => return Ok((temporary, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Gives what has the name `from` the name `to`, in this folder.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        let ((from_in, from), (to_in, to)) = (self.place(from.as_ref(), false)?, self.place(to.as_ref(), false)?);
        Ok(rustix::fs::renameat(&from_in.open, from, &to_in.open, to)?)
    }

    /// Gives what has the name `from` in this folder the name `to` in another one of the same disk. Whoever has it open has it open still.
    ///
    /// # Errors
    ///
    /// It is not there, the other folder is on another disk, or one of them cannot be changed.
    pub fn move_to(&self, from: impl AsRef<Path>, other: &Self, to: impl AsRef<Path>) -> io::Result<()> {
        let ((from_in, from), (to_in, to)) = (self.place(from.as_ref(), false)?, other.place(to.as_ref(), false)?);
        Ok(rustix::fs::renameat(&from_in.open, from, &to_in.open, to)?)
    }

    /// Removes a file, or a link.
    pub fn remove(&self, name: impl AsRef<Path>) -> io::Result<()> {
        let (here, last) = self.place(name.as_ref(), false)?;
        Ok(rustix::fs::unlinkat(&here.open, last, AtFlags::empty())?)
    }

    /// What is in this folder, by name.
    pub fn entries(&self) -> io::Result<Vec<(OsString, Kind)>> {
        let mut all = Vec::new();
        for entry in Dir::read_from(&self.open)? {
            let entry = entry?;
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            if name == "." || name == ".." {
                continue;
            }
            // Some file systems do not say.
            let told = Some(entry.file_type()).filter(|kind| *kind != FileType::Unknown).map(kind_of);
            let kind = if told.is_some() { told } else { self.kind(&name)? };
            all.extend(kind.map(|kind| (name, kind)));
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(all)
    }

    /// Makes the names in this folder durable.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(self.open.as_fd())?)
    }
}

/// The text of a file that a person or a configuration names, if it has at most `limit` bytes. Links in its path are theirs; a pipe is only waited
/// for where it is one of this process's own (`/dev/stdin`, `/dev/fd/63` of a shell's `<(…)`): one that lies in a checkout would hold this
/// process up for ever.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    text_of(open_named(path)?, path, limit)
}

/// Why a file with a secret in it is not read.
#[derive(Debug)]
pub enum Exposed {
    /// It cannot be opened or read, or is no file of text.
    Unread(io::Error),
    /// It is this other user's, who can put another one in its place.
    OfAnother(u32),
    /// Others than this user can read or change it.
    OpenToOthers,
}

/// The same of a file with a secret in it, which is this user's and closed to all others. The very file that is read is the one that is asked
/// whose it is: under its name there may be another one a moment later.
///
/// # Errors
/// [`Exposed`]: it cannot be read, or others can.
pub fn read_private_text(path: &Path, limit: u64) -> Result<String, Exposed> {
    let own = || rustix::process::geteuid().as_raw();
    let file = open_named(path).map_err(|error| match rustix::fs::stat(path) {
        // Whose it is says more than that it cannot be opened.
        Ok(is) if error.kind() == io::ErrorKind::PermissionDenied && is.st_uid != own() => {
            Exposed::OfAnother(is.st_uid)
        }
        Ok(_) | Err(_) => Exposed::Unread(error),
    })?;
    let is = rustix::fs::fstat(&file).map_err(|error| Exposed::Unread(error.into()))?;
    if is.st_uid != own() {
        return Err(Exposed::OfAnother(is.st_uid));
    }
    if Mode::from_raw_mode(is.st_mode).intersects(Mode::RWXG | Mode::RWXO) {
        return Err(Exposed::OpenToOthers);
    }
    text_of(file, path, limit).map_err(Exposed::Unread)
}

/// A file that a person or a configuration names, open.
fn open_named(path: &Path) -> io::Result<File> {
    let is_own = OWN_STREAMS.iter().any(|stream| path.starts_with(stream));
    let wait = if is_own { OFlags::empty() } else { OFlags::NONBLOCK };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | wait;
    let file: File = rustix::fs::open(path, flags, Mode::empty())?.into();
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    if kind == FileType::Directory {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if kind != FileType::RegularFile && !is_own {
        return Err(special(path));
    }
    Ok(file)
}

fn text_of(file: File, path: &Path, limit: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(too_large(path, limit));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

/// Where a process finds what it was given open.
const OWN_STREAMS: [&str; 3] = ["/dev/fd", "/dev/stdin", "/proc/self/fd"];

/// Lets no program that this process starts inherit what it has open, but for its standard streams: whoever started this process may have
/// left a key or a log open in it.
///
/// To be called before the process starts a second thread.
pub fn keep_from_children() {
    close_fds::set_fds_cloexec(3, &[]);
}

/// 32 hexadecimal digits that nobody can guess.
pub fn unguessable() -> io::Result<String> {
    let mut chance = [0; 16];
    rustix::rand::getrandom(&mut chance, rustix::rand::GetRandomFlags::empty())?;
    Ok(format!("{:032x}", u128::from_ne_bytes(chance)))
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Makes what is missing of a path, for this user alone.
fn make_path(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn kind_of(kind: FileType) -> Kind {
    match kind {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Folder,
        FileType::Symlink
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Kind::Other,
    }
}

/// The parts of a path that stays below.
fn parts(name: &Path) -> io::Result<Vec<&OsStr>> {
    name.components()
        .filter(|part| !matches!(part, Component::CurDir))
        .map(|part| match part {
            Component::Normal(part) => Ok(part),
            Component::CurDir | Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                Err(invalid(format!("{} leads out of its folder", shown(name))))
            }
        })
        .collect()
}

/// A name as it may stand in a sentence: whoever makes a file chooses its name, and no name begins a line there.
fn shown(name: &Path) -> String {
    let name = name.to_string_lossy();
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

fn too_large(path: &Path, limit: u64) -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, format!("{} has more than {limit} bytes", shown(path)))
}

fn link(path: &Path) -> io::Error {
    invalid(format!("{} is a link, and links are not followed here", shown(path)))
}

fn special(path: &Path) -> io::Error {
    invalid(format!("{} is a pipe, a socket or a device, not a file", shown(path)))
}

/// What opening `path` as a folder of its own failed by.
fn named(error: Errno, path: &Path) -> io::Error {
    let is_link = path.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
    if is_link { link(path) } else { error.into() }
}

#[cfg(test)]
mod tests;
