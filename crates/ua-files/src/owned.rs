//! Temporary folders that say whose they are.
//!
//! A process that is killed clears nothing up. So what it leaves in the folder of temporary files carries a mark: a file that the owner keeps
//! locked as long as it lives, which the kernel lets go of however it ends. Whoever comes next removes what has a mark that nobody holds
//! ([`clear_abandoned`]), and touches nothing else: not what another user made, not what has no mark, not what a link leads to.
//!
//! The mark gets its name only once it is locked, so no folder is ever there with a free mark and a living owner. It lies beside the folder
//! that is handed on, not in it: whoever works in there cannot reach it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;

use super::{Folder, Kind, unguessable};

/// The file that the owner keeps locked.
const MARK: &str = "owner";
/// What it is called before it is locked.
const MARK_TO_BE: &str = "owner.new";
/// The folder that is handed on.
const INSIDE: &str = "tmp";
/// How deep folders in folders are removed. Deeper ones stay: nobody but an attacker makes them.
const MAX_DEPTH: usize = 256;

/// A temporary folder of this process, which goes when this is dropped, or after the process was killed by [`clear_abandoned`].
#[derive(Debug)]
pub struct OwnedFolder {
    parent: Folder,
    name: OsString,
    inside: PathBuf,
    lock: File,
}

impl OwnedFolder {
    /// Makes one in the folder `parent`, under a name that begins with `prefix` and that nobody can guess, for this user alone.
    ///
    /// # Errors
    ///
    /// The folder of temporary files cannot be written, or is full.
    pub fn make(parent: &Path, prefix: &str) -> io::Result<Self> {
        let parent = Folder::open(parent)?;
        let name = OsString::from(format!("{prefix}{}", &unguessable()?[..16]));
        rustix::fs::mkdirat(&parent.open, &name, Mode::RWXU)?;
        match Self::fill(&parent, &name) {
            Ok((inside, lock)) => Ok(Self { parent, name, inside, lock }),
            Err(error) => {
                remove_whole(&parent, &name, &mut usize::MAX.clone(), 0).ok();
                Err(error)
            }
        }
    }

    fn fill(parent: &Folder, name: &OsStr) -> io::Result<(PathBuf, File)> {
        let folder = parent.folder(name)?;
        let lock = folder.make_file(MARK_TO_BE)?;
        lock.try_lock()?;
        folder.rename(MARK_TO_BE, MARK)?;
        let inside = folder.make_folder(INSIDE)?;
        Ok((inside.path().to_path_buf(), lock))
    }

    /// The folder to work in. The mark is not in it.
    pub fn path(&self) -> &Path {
        &self.inside
    }
}

impl Drop for OwnedFolder {
    fn drop(&mut self) {
        // What cannot be removed now is there for the next one.
        remove(&self.parent, &self.name, &mut usize::MAX.clone()).ok();
        self.lock.unlock().ok();
    }
}

/// Removes the folders of [`OwnedFolder::make`] in `parent` whose owner is gone, and says how many. At most `steps` files and folders are looked
/// at or removed, so that nobody waits long; what is left is for the next one.
///
/// # Errors
///
/// `parent` cannot be read. A single folder that cannot be removed is passed over.
pub fn clear_abandoned(parent: &Path, prefix: &str, mut steps: usize) -> io::Result<usize> {
    let parent = Folder::open(parent)?;
    let mut cleared = 0;
    for (name, kind) in parent.entries()? {
        let is_ours = kind == Kind::Folder && name.as_encoded_bytes().starts_with(prefix.as_bytes());
        if !is_ours || steps == 0 {
            continue;
        }
        steps -= 1;
        // One that its owner is just removing, or that somebody else made, is no error of ours.
        if let Ok(Some(lock)) = abandoned(&parent, &name) {
            cleared += usize::from(remove(&parent, &name, &mut steps).is_ok());
            drop(lock); // until here nobody else believes it to be theirs to remove
        }
    }
    Ok(cleared)
}

/// The lock of a folder that has a mark nobody holds.
fn abandoned(parent: &Folder, name: &OsStr) -> io::Result<Option<File>> {
    let folder = parent.folder(name)?;
    let (me, stat) = (rustix::process::geteuid().as_raw(), rustix::fs::fstat(&folder.open)?);
    if stat.st_uid != me || stat.st_mode & 0o077 != 0 {
        return Ok(None);
    }
    let mark = folder.open_file(MARK)?;
    if rustix::fs::fstat(&mark)?.st_uid != me || mark.try_lock().is_err() {
        return Ok(None);
    }
    Ok(Some(mark))
}

/// Removes a folder with a mark, the mark last: what is removed in part is still known for what it is.
fn remove(parent: &Folder, name: &OsStr, steps: &mut usize) -> io::Result<()> {
    let folder = parent.folder(name)?;
    for (inner, kind) in folder.entries()? {
        if inner != MARK {
            remove_entry(&folder, &inner, kind, steps, 0)?;
        }
    }
    folder.remove(MARK)?;
    Ok(rustix::fs::unlinkat(&parent.open, name, AtFlags::REMOVEDIR)?)
}

fn remove_entry(folder: &Folder, name: &OsStr, kind: Kind, steps: &mut usize, depth: usize) -> io::Result<()> {
    *steps = steps.checked_sub(1).ok_or(io::ErrorKind::TimedOut)?;
    match kind {
        Kind::Folder => remove_whole(folder, name, steps, depth + 1),
        // A link is removed, not followed.
        Kind::File | Kind::Other => Ok(rustix::fs::unlinkat(&folder.open, name, AtFlags::empty())?),
    }
}

fn remove_whole(parent: &Folder, name: &OsStr, steps: &mut usize, depth: usize) -> io::Result<()> {
    if depth > MAX_DEPTH {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // A program may have closed it to itself.
    let folder = parent.folder(name).or_else(|error| {
        let is_closed = error.raw_os_error() == Some(Errno::ACCESS.raw_os_error());
        if is_closed { open_up(parent, name).and_then(|()| parent.folder(name)) } else { Err(error) }
    })?;
    let is_shut = rustix::fs::fstat(&folder.open)?.st_mode & Mode::RWXU.as_raw_mode() != Mode::RWXU.as_raw_mode();
    if is_shut {
        rustix::fs::fchmod(&folder.open, Mode::RWXU)?;
    }
    for (inner, kind) in folder.entries()? {
        remove_entry(&folder, &inner, kind, steps, depth)?;
    }
    drop(folder);
    Ok(rustix::fs::unlinkat(&parent.open, name, AtFlags::REMOVEDIR)?)
}

/// Makes a folder that cannot be opened one that can. Only inside of a folder that is this user's alone, so nobody puts a link in its place.
fn open_up(parent: &Folder, name: &OsStr) -> io::Result<()> {
    let stat = rustix::fs::statat(&parent.open, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    Ok(rustix::fs::chmodat(&parent.open, name, Mode::RWXU, AtFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    const STEPS: usize = 1_000;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = entries.collect();
        names.sort();
        names
    }

    /// What a killed owner leaves: the same, with a mark that nobody holds.
    fn left_behind(dir: &Path) -> PathBuf {
        let owned = OwnedFolder::make(dir, "ua-x-").unwrap();
        let place = owned.path().parent().unwrap().to_path_buf();
        owned.lock.unlock().unwrap();
        std::mem::forget(owned);
        place
    }

    #[test]
    fn what_is_owned_stays_and_goes_with_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let owned = OwnedFolder::make(dir.path(), "ua-x-").unwrap();
        fs::create_dir_all(owned.path().join("a/b")).unwrap();
        fs::write(owned.path().join("a/b/c"), "c").unwrap();
        let place = owned.path().parent().unwrap();
        assert_eq!(fs::metadata(place).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(clear_abandoned(dir.path(), "ua-x-", STEPS).unwrap(), 0);
        assert!(owned.path().join("a/b/c").exists());
        drop(owned);
        assert_eq!(names(dir.path()), [""; 0]);
    }

    #[test]
    fn what_a_killed_owner_left_is_cleared_and_no_link_in_it_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (bed, mine) = (dir.path().join("bed"), dir.path().join("mine"));
        fs::create_dir(&bed).unwrap();
        fs::create_dir(&mine).unwrap();
        fs::write(mine.join("file"), "mine").unwrap();
        let place = left_behind(&bed);
        let inside = place.join(INSIDE);
        fs::create_dir_all(inside.join("shut/deep")).unwrap();
        fs::write(inside.join("shut/deep/file"), "").unwrap();
        symlink(&mine, inside.join("link")).unwrap();
        symlink(mine.join("file"), inside.join("shut/link")).unwrap();
        for mode in [0o000, 0o500] {
            fs::set_permissions(inside.join("shut"), fs::Permissions::from_mode(mode)).unwrap();
        }
        assert_eq!(clear_abandoned(&bed, "ua-x-", STEPS).unwrap(), 1);
        assert_eq!(names(&bed), [""; 0]);
        assert_eq!(fs::read_to_string(mine.join("file")).unwrap(), "mine");
    }

    #[test]
    fn what_is_not_surely_ours_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let (bed, elsewhere) = (dir.path().join("bed"), dir.path().join("elsewhere"));
        fs::create_dir(&bed).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        // Without a mark; with a mark that is a link; open to others; of another name; a link to one that is abandoned.
        fs::create_dir(bed.join("ua-x-unmarked")).unwrap();
        let linked = left_behind(&bed);
        fs::rename(linked.join(MARK), elsewhere.join("mark")).unwrap();
        symlink(elsewhere.join("mark"), linked.join(MARK)).unwrap();
        let open = left_behind(&bed);
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        let other = bed.join("else-1");
        fs::rename(left_behind(&bed), &other).unwrap();
        symlink(left_behind(&elsewhere), bed.join("ua-x-link")).unwrap();
        fs::write(bed.join("ua-x-file"), "").unwrap();
        let before = names(&bed);
        assert_eq!(before.len(), 6);
        assert_eq!(clear_abandoned(&bed, "ua-x-", STEPS).unwrap(), 0);
        assert_eq!(names(&bed), before);
        assert_eq!(names(&elsewhere).len(), 2);
    }

    #[test]
    fn clearing_is_bounded_and_goes_on_where_it_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let place = left_behind(dir.path());
        for number in 0..50 {
            fs::write(place.join(INSIDE).join(number.to_string()), "").unwrap();
        }
        assert_eq!(clear_abandoned(dir.path(), "ua-x-", 20).unwrap(), 0);
        let left = names(&place.join(INSIDE)).len();
        assert!((30..50).contains(&left), "{left}");
        let mut rounds = 0;
        while clear_abandoned(dir.path(), "ua-x-", 20).unwrap() == 0 {
            rounds += 1;
            assert!(rounds < 5, "it never ends");
        }
        assert_eq!(names(dir.path()), [""; 0]);
    }
}
