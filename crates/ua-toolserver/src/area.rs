//! A directory tree that tools write to, so that a kill at any instant leaves the old state or the new one.
//!
//! New content is staged in a temporary file, synced, and then takes its name in one step: by a rename, which replaces,
//! or by a hard link, which never does. The directory is synced after that. Writers of one area take its lock first, so
//! that a temporary file found under its name is always a dead writer's.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, OpenOptions};
use rustix::fs::{Mode, OFlags};

use crate::answer::Failure;
use crate::digest::sha256_hex;
use crate::regular;

/// The start of every temporary file's name.
pub(crate) const STAGED: &str = ".ua-tmp-";

/// A directory that cannot be left through it.
#[derive(Debug)]
pub(crate) struct Area {
    dir: Dir,
    path: PathBuf,
}

/// A write that did not succeed.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// It was not visible to anybody.
    Untouched(io::Error),
    /// It was visible when something failed.
    Unsure(io::Error),
}

impl WriteError {
    /// What to tell the caller; `action` reads after "could not".
    pub(crate) fn into_failure(self, action: impl std::fmt::Display) -> Failure {
        match self {
            Self::Untouched(error) => Failure::io(action, &error),
            Self::Unsure(error) => Failure::Unclear(format!("could not {action} to the end: {error}")),
        }
    }
}

/// Whether a name was still free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Created {
    /// It was, and now has the content.
    Now,
    /// It was not, and nothing changed.
    Before,
}

impl Area {
    /// Opens the directory, creating it and what is missing above it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut missing = Vec::new();
        let mut existing = std::path::absolute(path)?;
        while !existing.exists() {
            let Some(name) = existing.file_name().map(OsStr::to_owned) else {
                break;
            };
            missing.push(name);
            existing.pop();
        }
        let base = Dir::open_ambient_dir(&existing, ambient_authority())?;
        let rest: PathBuf = missing.iter().rev().collect();
        if !rest.as_os_str().is_empty() {
            Self { dir: base, path: existing.clone() }.create_dirs(&rest)?;
        }
        let path = existing.join(rest).canonicalize()?;
        Ok(Self { dir: Dir::open_ambient_dir(&path, ambient_authority())?, path })
    }

    /// The same for a store of this server's, which may not be a link itself: whoever works beside it as the same user could have put one there,
    /// and what is written would land in a folder of somebody else's.
    pub(crate) fn open_store(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Self::open(&path) };
        let above = Self::open(above)?;
        above.create_dirs(Path::new(name))?;
        let path = above.path.join(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = rustix::fs::openat(&above.dir, name, flags, Mode::empty()).map_err(|error| {
            let is_link = path.symlink_metadata().is_ok_and(|found| found.is_symlink());
            let link = || io::Error::new(io::ErrorKind::InvalidInput, "it is a link, and links are not followed there");
            if is_link { link() } else { error.into() }
        })?;
        Ok(Self { dir: Dir::from_std_file(open.into()), path })
    }

    /// The directory itself; paths given to it are relative and cannot leave it.
    pub(crate) fn dir(&self) -> &Dir {
        &self.dir
    }

    /// The directory's absolute path, without symbolic links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until no other writer holds the lock file `name`; holds it until the result is dropped. Waits for no pipe that was put there.
    pub(crate) fn lock(&self, name: &Path) -> io::Result<std::fs::File> {
        if let Some(parent) = name.parent() {
            self.create_dirs(parent)?;
        }
        let (file, _) = regular::open_with(&self.dir, name, OpenOptions::new().create(true).write(true))?;
        let file = file.into_std();
        file.lock()?;
        Ok(file)
    }

    /// Creates `directory` and what is missing above it, durably.
    pub(crate) fn create_dirs(&self, directory: &Path) -> io::Result<()> {
        let mut done = PathBuf::new();
        for component in directory.components() {
            let Component::Normal(name) = component else {
                continue;
            };
            let parent = done.clone();
            done.push(name);
            match self.dir.create_dir(&done) {
                Ok(()) => self.sync(&parent)?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes the names in `directory` durable.
    pub(crate) fn sync(&self, directory: &Path) -> io::Result<()> {
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        self.dir.open(directory)?.sync_all()
    }

    /// Removes the temporary file `temp` if a writer that died left it. The caller holds the area's lock.
    ///
    /// It may share its content with a finished name, so it is unlinked, never truncated.
    pub(crate) fn discard(&self, temp: &Path) -> io::Result<()> {
        match self.dir.remove_file(temp) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Fills the temporary file `temp` and syncs it. The caller holds the area's lock.
    pub(crate) fn stage<T>(
        &self,
        temp: PathBuf,
        fill: impl FnOnce(&mut File) -> io::Result<T>,
    ) -> Result<(Staged<'_>, T), WriteError> {
        self.discard(&temp).map_err(WriteError::Untouched)?;
        let mut file = self
            .dir
            .open_with(&temp, OpenOptions::new().read(true).write(true).create_new(true))
            .map_err(WriteError::Untouched)?;
        let staged = Staged { area: self, temp };
        let value = fill(&mut file).map_err(WriteError::Untouched)?;
        file.sync_all().map_err(WriteError::Untouched)?;
        Ok((staged, value))
    }

    /// Puts `bytes` in the place of `target`, whose directory is created. The caller holds the area's lock.
    pub(crate) fn replace(&self, target: &Path, bytes: &[u8]) -> Result<(), WriteError> {
        self.replace_with(target, |file| file.write_all(bytes))
    }

    /// Puts what `fill` writes in the place of `target`, whose directory is created. The caller holds the area's lock.
    pub(crate) fn replace_with<T>(
        &self,
        target: &Path,
        fill: impl FnOnce(&mut File) -> io::Result<T>,
    ) -> Result<T, WriteError> {
        let parent = parent_of(target);
        self.create_dirs(parent).map_err(WriteError::Untouched)?;
        if self.dir.is_dir(target) {
            return Err(WriteError::Untouched(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        let (staged, value) = self.stage(temp_beside(target), fill)?;
        staged.replace(target)?;
        Ok(value)
    }

    /// Gives `bytes` the name `target` unless it is taken. The caller holds the area's lock.
    pub(crate) fn create(&self, target: &Path, bytes: &[u8]) -> Result<Created, WriteError> {
        self.create_dirs(parent_of(target)).map_err(WriteError::Untouched)?;
        let (staged, ()) = self.stage(temp_beside(target), |file| file.write_all(bytes))?;
        staged.create(target)
    }
}

/// A temporary file with all its content on stable storage; removed when dropped.
#[derive(Debug)]
pub(crate) struct Staged<'a> {
    area: &'a Area,
    temp: PathBuf,
}

impl Staged<'_> {
    /// Takes the name `target`, whoever had it.
    fn replace(self, target: &Path) -> Result<(), WriteError> {
        self.area.dir.rename(&self.temp, &self.area.dir, target).map_err(WriteError::Untouched)?;
        self.area.sync(parent_of(target)).map_err(WriteError::Unsure)
    }

    /// Takes the name `target` if nobody has it.
    pub(crate) fn create(self, target: &Path) -> Result<Created, WriteError> {
        let created = match self.area.dir.hard_link(&self.temp, &self.area.dir, target) {
            Ok(()) => Created::Now,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Created::Before,
            Err(error) => return Err(WriteError::Untouched(error)),
        };
        // Also when it was there before: its writer may have died between naming and syncing.
        self.area.sync(parent_of(target)).map_err(WriteError::Unsure)?;
        Ok(created)
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        // After a rename there is nothing left to remove; otherwise the next writer of that name tries again.
        self.area.dir.remove_file(&self.temp).ok();
    }
}

/// The directory that holds `path`; empty for a name at the top.
pub(crate) fn parent_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// The temporary name that belongs to `target`: in the same directory, of bounded length.
pub(crate) fn temp_beside(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default();
    let digest = sha256_hex(name.as_encoded_bytes());
    target.with_file_name(format!("{STAGED}{}", digest.get(..16).unwrap_or(&digest)))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_no_link() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("theirs")).unwrap();
        std::os::unix::fs::symlink("theirs", folder.path().join("outbox")).unwrap();
        let error = Area::open_store(&folder.path().join("outbox")).unwrap_err();
        assert!(error.to_string().contains("a link"), "{error}");
        let made = Area::open_store(&folder.path().join("new/objects")).unwrap();
        made.replace(Path::new("a"), b"x").unwrap();
        assert_eq!(std::fs::read(folder.path().join("new/objects/a")).unwrap(), b"x");
        assert_eq!(std::fs::read_dir(folder.path().join("theirs")).unwrap().count(), 0);
    }

    #[test]
    fn a_pipe_in_the_place_of_a_lock_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let area = Area::open(folder.path()).unwrap();
        drop(area.lock(Path::new("mine/lock")).unwrap());
        rustix::fs::mkfifoat(rustix::fs::CWD, folder.path().join("mine/pipe"), rustix::fs::Mode::RWXU).unwrap();
        // Nobody reads it, and then somebody does.
        let error = area.lock(Path::new("mine/pipe")).unwrap_err();
        assert!(error.to_string().contains("a named pipe"), "{error}");
        let _reader = area.dir().open_with("mine/pipe", OpenOptions::new().read(true).write(true)).unwrap();
        let error = area.lock(Path::new("mine/pipe")).unwrap_err();
        assert!(error.to_string().contains("a named pipe"), "{error}");
    }
}
