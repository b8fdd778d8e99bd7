//! Which roots and databases are this user's own.
//!
//! A folder of workspaces that came with a checkout holds somebody else's runs: a resume would start their tool servers, and their links
//! would lead this program's files elsewhere. So a root that nobody named is believed only if a `ua` of this user made it. It leaves a
//! random number in the root when it does (`.ua-root`), and the same number, with the root's path, in the user's state folder, where no
//! checkout reaches.
//!
//! Invariants: the number is in the state folder before it is in the root, so whoever finds a root in place can judge it; a root that is
//! made gets its name with the number in it already.

mod databases;
mod launches;

use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ua_core::{ShowPath as _, Timestamp};
use ua_files::{Folder, Kind};

use crate::home::DATABASE;
use crate::settings::Settings;
use crate::shortage::is_of_shortage;
use crate::trust::runs::TrustedRuns;

pub(crate) use self::databases::name_of as name_of_database;
pub(crate) use self::launches::Earlier;

/// The file in a root that says which one it is.
pub(crate) const MARKER: &str = ".ua-root";
/// The folder, in the user's state folder, of the roots that are believed.
const ROOTS: &str = "roots";
/// Digits of a root's number.
const DIGITS: usize = 32;
/// The longest path that is read.
const MAX_PATH_BYTES: u64 = 64 * 1024;

/// Why this user's notes are nowhere.
pub(crate) const NO_HOME: &str = "neither HOME nor XDG_STATE_HOME is set";

/// The roots of one user.
#[derive(Debug, Clone, Default)]
pub(crate) struct Roots {
    /// The user's state folder, if there is one.
    state: Option<PathBuf>,
}

/// What a folder is to this user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Belief {
    /// It is not there, or nothing is in it.
    Empty,
    /// This user's `ua` made it, or the user named it.
    Own,
    /// Somebody else made it.
    Foreign,
    /// It is a link.
    Link,
}

/// Why a folder is not known as this user's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// Nothing says where this user's notes are: they may have made it.
    NoHome,
    /// There are no notes of this user, in this folder: they may have made it.
    NoNotes(PathBuf),
    /// The user's own was here, and is somewhere else now: it was moved or renamed.
    MovedFrom(PathBuf),
    /// It is a copy of this user's own.
    CopyOf(PathBuf),
    /// Nothing speaks for it.
    Foreign,
}

/// The user's folder for what programs remember: `XDG_STATE_HOME`, else `~/.local/state`.
pub(crate) fn state_folder(settings: &Settings) -> Option<PathBuf> {
    let absolute = |name| settings.of_environment(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || Some(absolute("HOME")?.join(".local/state"));
    absolute("XDG_STATE_HOME").or_else(home).map(|state| state.join("ua"))
}

impl Roots {
    pub(crate) fn new(state: Option<PathBuf>) -> Self {
        Self { state }
    }

    /// The user's state folder.
    pub(crate) fn state(&self) -> Option<&Path> {
        self.state.as_deref()
    }

    /// Every root of this user's that is still there, without links: what programs of a job may not see of the others.
    pub(crate) fn all(&self) -> Vec<PathBuf> {
        let all = || {
            let roots = Folder::open(self.state.as_deref()?).ok()?.folder(ROOTS).ok()?;
            let paths = roots.entries().ok()?.into_iter().filter_map(|(name, _)| {
                let path = PathBuf::from(std::ffi::OsString::from_vec(roots.read(name, MAX_PATH_BYTES).ok()?));
                (path.is_absolute() && path.is_dir()).then_some(path)
            });
            Some(paths.collect())
        };
        all().unwrap_or_default()
    }

    /// Every folder that was noted as this user's own, by its path, and whether it still is.
    pub(crate) fn noted(&self) -> Vec<TrustedRuns> {
        let looked = |noted: TrustedRuns| {
            let is_changed = noted.is_there && !self.is_own_database(&noted.folder.join(DATABASE));
            TrustedRuns { is_changed, ..noted }
        };
        let mut all: Vec<TrustedRuns> = self.notes().into_iter().map(|(_, noted)| looked(noted)).collect();
        // Of two that make one root at once both note it.
        all.sort_by(|one, other| one.folder.cmp(&other.folder).then(one.at.cmp(&other.at)));
        all.dedup_by(|later, first| later.folder == first.folder);
        all
    }

    /// The same with the number under which each is noted.
    fn notes(&self) -> Vec<(String, TrustedRuns)> {
        let all = || {
            let roots = Folder::open(self.state.as_deref()?).ok()?.folder(ROOTS).ok()?;
            let notes = roots.entries().ok()?.into_iter().filter_map(|(name, _)| {
                let number = name.to_str()?.to_owned();
                let folder = PathBuf::from(std::ffi::OsString::from_vec(roots.read(&number, MAX_PATH_BYTES).ok()?));
                let written = roots.open_file(&number).ok()?.metadata().ok()?.mtime();
                let at = Timestamp::from_millis(written.saturating_mul(1000));
                let is_there = self.judge(&folder) == Belief::Own;
                folder.is_absolute().then_some((number, TrustedRuns { folder, at, is_there, is_changed: false }))
            });
            Some(notes.collect())
        };
        all().unwrap_or_default()
    }

    /// Takes back that a folder is this user's own. Its mark stays in it, and means nothing any more. Returns whether it was noted.
    pub(crate) fn disown(&self, folder: &Path) -> io::Result<bool> {
        let Some(state) = &self.state else { return Ok(false) };
        let mut was_noted = false;
        for (number, _) in self.notes().into_iter().filter(|(_, noted)| noted.folder == folder) {
            Folder::open(state)?.folder(ROOTS)?.remove(&number)?;
            was_noted = true;
        }
        Ok(was_noted)
    }

    /// What `root` is. What cannot be looked at is foreign.
    pub(crate) fn judge(&self, root: &Path) -> Belief {
        match fs::symlink_metadata(root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Belief::Empty,
            Ok(meta) if meta.is_symlink() => return Belief::Link,
            Ok(_) | Err(_) => {}
        }
        let Ok(folder) = Folder::open_itself(root) else { return Belief::Foreign };
        if folder.entries().is_ok_and(|entries| entries.is_empty()) {
            return Belief::Empty;
        }
        if self.knows(&folder) { Belief::Own } else { Belief::Foreign }
    }

    /// Whether a folder, by where it really is, is the user's state folder, in which `ua` alone writes.
    pub(crate) fn is_state(&self, real: &Path) -> bool {
        self.state.as_ref().and_then(|state| state.canonicalize().ok()).is_some_and(|state| state == real)
    }

    /// Whether a folder is one of this user's roots, by its own name and no link.
    pub(crate) fn are_own(&self, folder: &Path) -> bool {
        // Few folders have the file, and nothing else is read of the others.
        fs::symlink_metadata(folder.join(MARKER)).is_ok() && self.judge(folder) == Belief::Own
    }

    fn knows(&self, root: &Folder) -> bool {
        let here = root.path().canonicalize();
        self.noted_path(root).is_some_and(|noted| here.is_ok_and(|here| here == noted))
    }

    /// Where this user's own root was that has the number of this one.
    fn noted_path(&self, root: &Folder) -> Option<PathBuf> {
        let number = String::from_utf8(root.read(MARKER, DIGITS as u64 + 1).ok()?).ok()?;
        let number = number.trim_end();
        let is_number = number.len() == DIGITS && number.bytes().all(|byte| byte.is_ascii_hexdigit());
        let roots = Folder::open(self.state.as_deref()?).ok()?.folder(ROOTS).ok().filter(|_| is_number)?;
        let file = roots.open_file(number).ok()?;
        let is_ours = file.metadata().ok()?.uid() == rustix::process::geteuid().as_raw();
        let path = roots.read(number, MAX_PATH_BYTES).ok().filter(|_| is_ours)?;
        Some(PathBuf::from(std::ffi::OsString::from_vec(path)))
    }

    /// What is short at the moment, such as files that may be open, so that a root that may be this user's own is not known. It looks as
    /// [`Self::judge`] does.
    pub(crate) fn short_of(&self, root: &Path) -> Option<io::Error> {
        let look = || -> io::Result<()> {
            let folder = Folder::open_itself(root)?;
            let number = folder.read(MARKER, DIGITS as u64 + 1)?;
            let Some(state) = self.state.as_deref() else { return Ok(()) };
            let roots = Folder::open(state)?.folder(ROOTS)?;
            let number = String::from_utf8_lossy(&number).trim_end().to_owned();
            roots.read(number, MAX_PATH_BYTES)?;
            folder.path().canonicalize().map(drop)
        };
        look().err().filter(is_of_shortage)
    }

    /// Why a folder that is not known as this user's own is not.
    pub(crate) fn why_unknown(&self, root: &Path) -> Unknown {
        let Some(state) = &self.state else { return Unknown::NoHome };
        let noted = Folder::open_itself(root).ok().and_then(|root| self.noted_path(&root));
        match noted {
            Some(noted) if noted.join(MARKER).exists() => Unknown::CopyOf(noted),
            Some(noted) => Unknown::MovedFrom(noted),
            None if !state.join(ROOTS).is_dir() => Unknown::NoNotes(state.clone()),
            None => Unknown::Foreign,
        }
    }

    /// Why nothing can be noted of this user's roots, where that is so: the next command will not know one that this command makes.
    pub(crate) fn cannot_note(&self) -> Option<String> {
        let Some(state) = &self.state else { return Some(NO_HOME.to_owned()) };
        let there = state.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"));
        let error = rustix::fs::access(there, rustix::fs::Access::WRITE_OK).err()?;
        Some(format!("{} cannot be made ({})", state.shown(), io::Error::from(error)))
    }

    /// Makes `root`, as this user's own. Somebody else who makes it meanwhile is as good. An empty folder that cannot be replaced, because
    /// something is mounted there or what it is in is not this user's to change, gets its mark where it is.
    pub(crate) fn make(&self, root: &Path) -> io::Result<()> {
        let (Some(parent), Some(name)) = (root.parent(), root.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        make_above(parent)?;
        let number = ua_files::unguessable()?;
        if root.is_dir() && self.judge(root) == Belief::Empty && !is_replaceable(root, parent) {
            return self.mark(&Folder::open_itself(root)?, &root.canonicalize()?, &number);
        }
        let new = parent.join(format!(".{}.{number}", name.to_string_lossy()));
        let made = || self.mark(&Folder::make_itself(&new)?, &parent.canonicalize()?.join(name), &number);
        // Over an empty folder it works as well; one that somebody filled stays.
        let placed = made().and_then(|()| fs::rename(&new, root));
        if placed.is_err() && fs::remove_dir_all(&new).is_err() {
            // What is in a folder cannot be listed where no more files can be opened. Only the mark is in this one, if anything.
            fs::remove_file(new.join(MARKER)).ok();
            fs::remove_dir(&new).ok();
        }
        match placed {
            Err(_) if self.judge(root) == Belief::Own => Ok(()),
            placed => placed,
        }
    }

    /// Takes a folder that is there for this user's own, because the user named it.
    pub(crate) fn adopt(&self, root: &Path) -> io::Result<()> {
        let folder = Folder::open(root)?;
        if self.knows(&folder) {
            return Ok(());
        }
        self.mark(&folder, &root.canonicalize()?, &ua_files::unguessable()?)
    }

    /// The user's state folder, which is made if it is not there.
    fn make_state(&self) -> io::Result<Folder> {
        let Some(state) = &self.state else {
            return Err(io::Error::new(io::ErrorKind::NotFound, NO_HOME));
        };
        Folder::make(state)
    }

    fn mark(&self, folder: &Folder, path: &Path, number: &str) -> io::Result<()> {
        let roots = self.make_state()?.make_folder(ROOTS)?;
        roots.replace(number, path.as_os_str().as_encoded_bytes())?;
        folder.replace(MARKER, format!("{number}\n").as_bytes())
    }
}

/// Makes the folders that a root, or a database of its own, is to be in: not for this user alone, other things may come into them.
#[expect(clippy::disallowed_methods, reason = "whoever says where a root is says which links lead there")]
pub(crate) fn make_above(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)
}

/// Whether a folder may be put in the place of one that is there.
fn is_replaceable(folder: &Path, parent: &Path) -> bool {
    let device = |path: &Path| fs::symlink_metadata(path).map(|meta| meta.dev()).ok();
    let is_mounted = is_mount_point(folder) || device(folder) != device(parent);
    !is_mounted && rustix::fs::access(parent, rustix::fs::Access::WRITE_OK).is_ok()
}

/// Whether something is mounted on a folder, of the same file system as well; no where the kernel does not say.
fn is_mount_point(folder: &Path) -> bool {
    let (flags, mask) = (rustix::fs::AtFlags::SYMLINK_NOFOLLOW, rustix::fs::StatxFlags::empty());
    let attributes = rustix::fs::statx(rustix::fs::CWD, folder, flags, mask);
    attributes.is_ok_and(|found| found.stx_attributes.contains(rustix::fs::StatxAttributes::MOUNT_ROOT))
}

/// Whether nothing that belongs to the root leads elsewhere: `names` are the files and folders that this program has there.
pub(crate) fn first_link(root: &Path, names: &[&str]) -> Option<PathBuf> {
    let folder = Folder::open(root).ok()?;
    let is_link = |name: &&&str| folder.kind(**name).is_ok_and(|kind| kind == Some(Kind::Other));
    names.iter().find(is_link).map(|name| root.join(name))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;

    #[test]
    fn a_root_that_came_from_elsewhere_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let (root, state) = (dir.path().join("work/runs"), dir.path().join("state"));
        let roots = Roots::new(Some(state.clone()));
        assert_eq!(roots.judge(&root), Belief::Empty);
        roots.make(&root).unwrap();
        assert_eq!(roots.judge(&root), Belief::Own);
        roots.make(&root).unwrap();
        assert_eq!(roots.judge(&root), Belief::Own, "whoever comes second finds it");
        assert_eq!(fs::read_dir(dir.path().join("work")).unwrap().count(), 1, "nothing is left of the second one");
        // The same bytes elsewhere, another user, no marker, a made-up marker, a marker that is a path.
        let copy = dir.path().join("copy");
        fs::create_dir(&copy).unwrap();
        fs::copy(root.join(MARKER), copy.join(MARKER)).unwrap();
        assert_eq!(roots.judge(&copy), Belief::Foreign);
        let root_itself = root.canonicalize().unwrap();
        assert_eq!(roots.why_unknown(&copy), Unknown::CopyOf(root_itself.clone()));
        let other = dir.path().join("other");
        assert_eq!(Roots::new(Some(other.clone())).judge(&root), Belief::Foreign);
        assert_eq!(Roots::new(Some(other.clone())).why_unknown(&root), Unknown::NoNotes(other));
        assert_eq!(Roots::new(None).judge(&root), Belief::Foreign);
        assert_eq!(Roots::new(None).why_unknown(&root), Unknown::NoHome);
        assert!(Roots::new(None).cannot_note().is_some() && roots.cannot_note().is_none());
        // Moved, with the folder that it is in.
        fs::rename(dir.path().join("work"), dir.path().join("moved")).unwrap();
        let moved = dir.path().join("moved/runs");
        assert_eq!(
            (roots.judge(&moved), roots.why_unknown(&moved)),
            (Belief::Foreign, Unknown::MovedFrom(root_itself))
        );
        fs::rename(dir.path().join("moved"), dir.path().join("work")).unwrap();
        for text in ["0123456789abcdef0123456789abcdef\n", "../../state/x", ""] {
            fs::write(copy.join(MARKER), text).unwrap();
            assert_eq!((roots.judge(&copy), roots.why_unknown(&copy)), (Belief::Foreign, Unknown::Foreign), "{text}");
        }
        // A person says it is theirs.
        roots.adopt(&copy).unwrap();
        assert_eq!(roots.judge(&copy), Belief::Own);
        // And takes it back, of a folder that is gone as well.
        let noted = || roots.noted().into_iter().map(|noted| (noted.folder, noted.is_there)).collect::<Vec<_>>();
        let (copy_itself, root_itself) = (copy.canonicalize().unwrap(), root.canonicalize().unwrap());
        assert_eq!(noted(), [(copy_itself.clone(), true), (root_itself.clone(), true)]);
        assert!(roots.disown(&copy_itself).unwrap() && !roots.disown(&copy_itself).unwrap());
        assert_eq!((roots.judge(&copy), noted()), (Belief::Foreign, vec![(root_itself, true)]));
        roots.adopt(&copy).unwrap();
        fs::remove_dir_all(&copy).unwrap();
        assert_eq!(noted()[0], (copy_itself.clone(), false));
        assert!(roots.disown(&copy_itself).unwrap());
        std::os::unix::fs::symlink(&root, dir.path().join("link")).unwrap();
        assert_eq!(roots.judge(&dir.path().join("link")), Belief::Link);
    }

    #[test]
    fn an_empty_folder_that_cannot_be_replaced_is_marked_where_it_is() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let (parent, root) = (dir.path().join("closed"), dir.path().join("closed/runs"));
        fs::create_dir_all(&root).unwrap();
        let roots = Roots::new(Some(dir.path().join("state")));
        fs::set_permissions(&parent, fs::Permissions::from_mode(0o555)).unwrap();
        roots.make(&root).unwrap();
        fs::set_permissions(&parent, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(roots.judge(&root), Belief::Own);
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 1);
        // What is mounted is told from what is not.
        assert!(is_mount_point(Path::new("/proc")) && !is_replaceable(Path::new("/proc"), Path::new("/")));
        assert!(!is_mount_point(&root) && is_replaceable(&root, &parent));
    }

    /// Whatever is short while it is made: where it cannot be marked, it is not there, and neither is what it was made of.
    #[test]
    fn a_root_that_cannot_be_marked_is_not_made() {
        let dir = tempfile::tempdir().unwrap();
        let (work, file) = (dir.path().join("work"), dir.path().join("file"));
        fs::write(&file, "").unwrap();
        assert!(Roots::new(Some(file.join("state"))).make(&work.join("runs")).is_err());
        assert_eq!(fs::read_dir(&work).unwrap().count(), 0);
        // Nothing is short here, so nothing but its maker is said of a root that is not known.
        let roots = Roots::new(Some(dir.path().join("state")));
        roots.make(&work.join("runs")).unwrap();
        assert!(roots.short_of(&work.join("runs")).is_none() && roots.short_of(dir.path()).is_none());
    }

    #[test]
    fn a_link_among_its_own_files_is_named() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(first_link(root.path(), &["locks", "outbox"]), None);
        std::os::unix::fs::symlink("/tmp", root.path().join("outbox")).unwrap();
        assert_eq!(first_link(root.path(), &["locks", "outbox"]), Some(root.path().join("outbox")));
    }
}
