//! Looking at the files that a call sends out, just before it is admitted.
//!
//! A server may mean a path by what the arguments say, an address of one, a folder; it may begin at the workspace or at the folder that it works
//! in. All that can be meant is looked at, wherever it is, and what cannot be looked at is told as unknown, never left out. No link leads out of
//! the workspace; elsewhere the last part of a path may be none. Only regular files are read, and no more of them than [`MOST_BYTES`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use rustix::fs::OFlags;
use sha2::Digest as _;
use ua_core::{NamedFile, Sha256};
use ua_files::{Folder, Kind};
use ua_ledger::{FileContent, SentFile, SentFiles};

/// How much is read at most of all the files of one call.
pub const MOST_BYTES: u64 = 2 * 1024 * 1024 * 1024;
/// How many files and folders are looked at in the folders that one call sends.
const MOST_ENTRIES: u32 = 20_000;
/// How deep a folder may be that a call sends.
const DEEPEST: u32 = 64;

/// Without it, opening a named pipe would wait until somebody writes to it. For a file it changes nothing.
#[expect(clippy::cast_possible_wrap, reason = "flags of open(2) are a C int")]
const NONBLOCK: i32 = OFlags::NONBLOCK.bits() as i32;

/// Finds what calls of one run send.
#[derive(Debug)]
pub struct FileLookup {
    /// As it was named, which may be by way of a link.
    named: PathBuf,
    root: PathBuf,
    dir: Dir,
}

/// Where the server is that sends a file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ServedFrom<'a> {
    /// The built-in one, which knows the workspace and nothing else: what is not there under the very words is nowhere. It is told what was
    /// found, and sends that or nothing.
    Workspace,
    /// It works in this folder; where it looks besides is its affair.
    Folder(&'a Path),
    /// Not on this machine, or nobody knows.
    Elsewhere,
}

/// The files of one call, looked at.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    /// By their places in the arguments.
    pub(crate) files: SentFiles,
    /// The digests by what the arguments call them.
    digests: BTreeMap<String, Sha256>,
}

impl Looked {
    /// The digest of what the arguments call `text`.
    pub(crate) fn digest_of(&self, text: &str) -> Option<Sha256> {
        self.digests.get(text).copied()
    }
}

/// What stands at a path.
struct Found {
    at: PathBuf,
    digest: Sha256,
    bytes: u64,
}

/// What may still be read for a call.
struct Left {
    bytes: u64,
    entries: u32,
}

impl FileLookup {
    /// Opens the workspace.
    ///
    /// # Errors
    /// When there is none, or it cannot be opened.
    pub fn open(workspace: &Path) -> io::Result<Self> {
        let root = workspace.canonicalize()?;
        let dir = Dir::open_ambient_dir(&root, ambient_authority())?;
        Ok(Self { named: std::path::absolute(workspace)?, root, dir })
    }

    /// Looks at the files of a call, each with its place in the arguments.
    pub(crate) fn look_at(&self, named: &[(String, String)], from: ServedFrom<'_>) -> Looked {
        let mut left = Left { bytes: MOST_BYTES, entries: MOST_ENTRIES };
        self.look_within(named, from, &mut left)
    }

    fn look_within(&self, named: &[(String, String)], from: ServedFrom<'_>, left: &mut Left) -> Looked {
        let mut known: BTreeMap<&str, Option<SentFile>> = BTreeMap::new();
        for (_, text) in named {
            if !known.contains_key(text.as_str()) {
                known.insert(text, self.look(text, from, left));
            }
        }
        let files = named.iter().filter_map(|(place, text)| Some((place.clone(), known.get(text.as_str())?.clone()?)));
        let digest = |(text, file): (&&str, &Option<SentFile>)| Some(((*text).to_owned(), file.as_ref()?.digest()?));
        Looked { files: SentFiles::new(files), digests: known.iter().filter_map(digest).collect() }
    }

    /// What `text` names; `None` where it is no name, but the content.
    fn look(&self, text: &str, from: ServedFrom<'_>, left: &mut Left) -> Option<SentFile> {
        let unknown = |why: String| Some(SentFile { at: text.to_owned(), content: FileContent::Unknown { why } });
        let paths = match NamedFile::of(text) {
            // It takes what it is given for a path, and for nothing else.
            _ if matches!(from, ServedFrom::Workspace) => vec![text.to_owned()],
            NamedFile::Paths(paths) => paths,
            NamedFile::Inline => return None,
            NamedFile::Elsewhere(why) => return unknown(why.to_owned()),
        };
        let mut found: Vec<Found> = Vec::new();
        for path in self.candidates(&paths, from) {
            match self.read(&path, left) {
                Ok(Some(one)) => found.push(one),
                Ok(None) => {}
                Err(why) => return unknown(why),
            }
        }
        let digests: BTreeSet<Sha256> = found.iter().map(|one| one.digest).collect();
        let Some(first) = found.first() else {
            if matches!(from, ServedFrom::Workspace) {
                return Some(SentFile { at: text.to_owned(), content: FileContent::Nothing });
            }
            return unknown("nothing of that name is there".to_owned());
        };
        let shown = |one: &Found| one.at.to_string_lossy().into_owned();
        if digests.len() == 1 {
            let content = FileContent::Known { digest: first.digest, bytes: first.bytes };
            return Some(SentFile { at: shown(first), content });
        }
        // Which of them the server means nobody knows: a change of either is a change.
        let mut hasher = sha2::Sha256::new();
        hasher.update(b"ua.files.either.v1");
        for digest in &digests {
            hasher.update(digest.to_string());
        }
        let digest = Sha256::from_bytes(hasher.finalize().into());
        let at: Vec<String> = found.iter().map(shown).collect();
        let bytes = found.iter().map(|one| one.bytes).fold(0, u64::saturating_add);
        Some(SentFile { at: at.join(" or "), content: FileContent::Known { digest, bytes } })
    }

    /// Every place that one of `paths` can mean, each once.
    fn candidates(&self, paths: &[String], from: ServedFrom<'_>) -> Vec<PathBuf> {
        let folder = match from {
            ServedFrom::Folder(folder) => Some(folder),
            ServedFrom::Workspace | ServedFrom::Elsewhere => None,
        };
        let mut all: Vec<PathBuf> = Vec::new();
        for path in paths {
            for base in std::iter::once(self.root.as_path()).chain(folder) {
                // Of an absolute path it stays as it is.
                let path = base.join(path);
                if !all.contains(&path) {
                    all.push(path);
                }
            }
        }
        all
    }

    /// Reads what stands at an absolute path; `None` when nothing does.
    ///
    /// # Errors
    /// Why it cannot be looked at.
    fn read(&self, path: &Path, left: &mut Left) -> Result<Option<Found>, String> {
        let opened = match self.inside(path) {
            Some(inside) => self.open_inside(&inside),
            None => open_outside(path),
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let at = path.to_path_buf();
        match opened {
            Opened::File(file) => {
                let (digest, bytes) = left.hash(file).map_err(|error| error.to_string())?;
                Ok(Some(Found { at, digest, bytes }))
            }
            Opened::Folder(folder) => {
                let (digest, bytes) = left.hash_tree(&folder, DEEPEST)?;
                Ok(Some(Found { at, digest, bytes }))
            }
        }
    }

    /// The path within the workspace, if its words lead there.
    fn inside(&self, path: &Path) -> Option<PathBuf> {
        let plain = without_dots(path);
        let root = [&self.root, &self.named].into_iter().find(|root| plain.starts_with(root))?;
        // With its own dots, where they stand behind the workspace: what they mean behind a link is the file system's affair.
        let inside = path
            .strip_prefix(root)
            .map_or_else(|_| plain.strip_prefix(root).map(Path::to_path_buf).ok(), |own| Some(own.to_path_buf()))?;
        Some(if inside.as_os_str().is_empty() { PathBuf::from(".") } else { inside })
    }

    fn open_inside(&self, inside: &Path) -> io::Result<Opened> {
        let file = self.dir.open_with(inside, OpenOptions::new().read(true).custom_flags(NONBLOCK))?;
        // Of what was opened, not of the name, which may mean something else by now.
        let kind = file.metadata()?;
        if kind.is_dir() {
            return Ok(Opened::Folder(Folder::open(&self.root)?.folder(without_dots(inside))?));
        }
        if kind.is_file() { Ok(Opened::File(file.into_std())) } else { Err(io::Error::other(NO_FILE)) }
    }
}

const NO_FILE: &str = "it is a pipe, a socket or a device";

/// What was opened.
enum Opened {
    File(File),
    Folder(Folder),
}

/// Opens what lies outside the workspace. The folders that lead there are whose they are; the thing itself may be no link.
fn open_outside(path: &Path) -> io::Result<Opened> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("it names no file"));
    };
    let parent = Folder::open(parent)?;
    match parent.open_file(name) {
        Ok(file) => Ok(Opened::File(file)),
        Err(error) if error.kind() == ErrorKind::IsADirectory => Ok(Opened::Folder(parent.folder(name)?)),
        Err(error) => Err(error),
    }
}

/// A path without `.` and `..`, read by its words alone.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => plain.push(part),
        }
    }
    plain
}

impl Left {
    /// The digest and the length of a file.
    fn hash(&mut self, file: File) -> io::Result<(Sha256, u64)> {
        let too_large = || io::Error::other(format!("more than {} MiB are not looked at", MOST_BYTES / 1024 / 1024));
        if file.metadata()?.len() > self.bytes {
            return Err(too_large());
        }
        let mut hasher = sha2::Sha256::new();
        let mut buffer = vec![0; 64 * 1024];
        let mut bytes = 0_u64;
        let mut reading = file.take(self.bytes.saturating_add(1));
        loop {
            let read = reading.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            hasher.update(&buffer[..read]);
            bytes += read as u64;
        }
        // It grew meanwhile, or has no length.
        self.bytes = self.bytes.checked_sub(bytes).ok_or_else(too_large)?;
        Ok((Sha256::from_bytes(hasher.finalize().into()), bytes))
    }

    /// The digest of all names and contents below a folder, and how many bytes its files have.
    fn hash_tree(&mut self, folder: &Folder, depth: u32) -> Result<(Sha256, u64), String> {
        if depth == 0 {
            return Err(format!("it is more than {DEEPEST} folders deep"));
        }
        let mut hasher = sha2::Sha256::new();
        hasher.update(b"ua.files.folder.v1");
        let mut bytes = 0_u64;
        for (name, kind) in folder.entries().map_err(|error| error.to_string())? {
            self.entries =
                self.entries.checked_sub(1).ok_or_else(|| format!("it has more than {MOST_ENTRIES} files"))?;
            let within = |error: String| format!("{}: {error}", name.to_string_lossy());
            let read = match kind {
                Kind::File => {
                    folder.open_file(&name).and_then(|file| self.hash(file)).map_err(|error| error.to_string())
                }
                Kind::Folder => folder
                    .folder(&name)
                    .map_err(|error| error.to_string())
                    .and_then(|inner| self.hash_tree(&inner, depth - 1)),
                Kind::Other => Err("it is a link, a pipe, a socket or a device".to_owned()),
            };
            let (digest, length) = read.map_err(within)?;
            let text = name.as_encoded_bytes();
            hasher.update(if kind == Kind::File { b"f" } else { b"d" });
            hasher.update((text.len() as u64).to_be_bytes());
            hasher.update(text);
            hasher.update(digest.to_string());
            bytes = bytes.saturating_add(length);
        }
        Ok((Sha256::from_bytes(hasher.finalize().into()), bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> [(String, String); 1] {
        [("file".to_owned(), text.to_owned())]
    }

    fn digest(files: &FileLookup, text: &str) -> Option<Sha256> {
        files.look_at(&named(text), ServedFrom::Elsewhere).digest_of(text)
    }

    /// Why what `text` names could not be looked at.
    fn why(looked: &Looked) -> String {
        let (_, file) = looked.files.iter().next().unwrap();
        match &file.content {
            FileContent::Unknown { why } => why.clone(),
            known @ (FileContent::Known { .. } | FileContent::Nothing) => panic!("{known:?}"),
        }
    }

    #[test]
    fn s5_a_link_that_is_swapped_meanwhile_leads_nowhere() {
        use std::sync::atomic::{AtomicBool, Ordering};

        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("ws");
        std::fs::create_dir_all(root.join("real")).unwrap();
        std::fs::write(root.join("real/a.txt"), "inside").unwrap();
        std::fs::create_dir(outer.path().join("outside")).unwrap();
        std::fs::write(outer.path().join("outside/a.txt"), "outside").unwrap();
        let files = FileLookup::open(&root).unwrap();
        let (inside, outside) = (ua_core::sha256("inside"), ua_core::sha256("outside"));
        let done = AtomicBool::new(false);
        let mut seen = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (spare, name) = (root.join("spare"), root.join("name"));
                while !done.load(Ordering::Relaxed) {
                    for target in [Path::new("real"), Path::new("../outside")] {
                        std::os::unix::fs::symlink(target, &spare).unwrap();
                        std::fs::rename(&spare, &name).unwrap();
                    }
                }
            });
            let mut tries = 0;
            while tries < 3_000 || seen == 0 {
                tries += 1;
                let digest = digest(&files, "name/a.txt");
                seen += usize::from(digest == Some(inside));
                if digest == Some(outside) {
                    break;
                }
            }
            done.store(true, Ordering::Relaxed);
            assert!(tries >= 3_000, "what lies outside was read");
        });
    }

    /// A workspace `ws`, and beside it `server`, the folder that the server works in.
    fn folders() -> (tempfile::TempDir, FileLookup, PathBuf) {
        let outer = tempfile::tempdir().unwrap();
        let server = outer.path().join("server");
        std::fs::create_dir_all(outer.path().join("ws/sub")).unwrap();
        std::fs::create_dir(&server).unwrap();
        let files = FileLookup::open(&outer.path().join("ws")).unwrap();
        (outer, files, server)
    }

    #[test]
    fn every_form_of_a_name_is_looked_at_and_a_change_of_the_file_changes_it() {
        let (outer, files, server) = folders();
        let root = outer.path().join("ws").canonicalize().unwrap();
        let beside = outer.path().canonicalize().unwrap();
        for (text, path) in [
            ("a b.txt".to_owned(), root.join("a b.txt")),
            ("sub/../a b.txt".to_owned(), root.join("a b.txt")),
            (format!("{}/a b.txt", root.display()), root.join("a b.txt")),
            (format!("file://{}/a%20b.txt", root.display()), root.join("a b.txt")),
            (format!("FILE://localhost{}/a b.txt", root.display()), root.join("a b.txt")),
            ("file:a%20b.txt".to_owned(), root.join("a b.txt")),
            ("../out.txt".to_owned(), beside.join("out.txt")),
            (format!("{}/out.txt", beside.display()), beside.join("out.txt")),
            (format!("file://{}/out.txt", beside.display()), beside.join("out.txt")),
            ("own.txt".to_owned(), server.join("own.txt")),
            ("file:own.txt".to_owned(), server.join("own.txt")),
            ("sub".to_owned(), root.join("sub/deep/c.txt")),
            (".".to_owned(), root.join("sub/deep/c.txt")),
            (format!("file://{}/", root.display()), root.join("sub/deep/c.txt")),
            (format!("{}/server/", beside.display()), server.join("own.txt")),
        ] {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let look = |content: &str| {
                std::fs::write(&path, content).unwrap();
                let looked = files.look_at(&named(&text), ServedFrom::Folder(&server));
                assert!(looked.files.are_all_known(), "{text}: {:?}", looked.files);
                looked.digest_of(&text).unwrap()
            };
            let (first, second, again) = (look("AAAA"), look("BBBB"), look("AAAA"));
            assert!(first != second && first == again, "{text}");
            if path.ends_with(&text) {
                assert_eq!(first, ua_core::sha256("AAAA"), "{text}");
            }
        }
    }

    #[test]
    fn a_name_that_can_mean_two_files_changes_with_either() {
        let (outer, files, server) = folders();
        let look = || files.look_at(&named("a.txt"), ServedFrom::Folder(&server)).digest_of("a.txt").unwrap();
        std::fs::write(outer.path().join("ws/a.txt"), "one").unwrap();
        let alone = look();
        std::fs::write(server.join("a.txt"), "one").unwrap();
        assert_eq!(look(), alone, "it is the same content, whichever is meant");
        std::fs::write(server.join("a.txt"), "two").unwrap();
        let either = look();
        std::fs::write(outer.path().join("ws/a.txt"), "three").unwrap();
        assert!(either != alone && look() != either);
    }

    #[test]
    fn what_cannot_be_looked_at_is_unknown_and_not_left_out() {
        let (outer, files, server) = folders();
        let root = outer.path().join("ws");
        std::fs::write(outer.path().join("secret"), "abc").unwrap();
        std::os::unix::fs::symlink(outer.path().join("secret"), root.join("link")).unwrap();
        std::os::unix::fs::symlink(outer.path().join("secret"), outer.path().join("link")).unwrap();
        std::os::unix::fs::symlink("..", root.join("sub/up")).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, root.join("pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let outside = format!("{}/link", outer.path().display());
        for (text, because) in [
            ("missing", "nothing of that name"),
            ("~/a.txt", "nothing of that name"),
            ("link", ""),
            ("pipe", "a pipe"),
            (outside.as_str(), "link"),
            ("/dev/null", "device"),
            ("sub", "up: it is a link"),
            ("https://example.test/a.pdf", "names no file of this machine"),
            ("file://elsewhere/a.txt", "on another machine"),
        ] {
            let looked = files.look_at(&named(text), ServedFrom::Folder(&server));
            assert_eq!((looked.files.are_all_known(), looked.digest_of(text)), (false, None), "{text}");
            assert!(why(&looked).contains(because), "{text}: {}", why(&looked));
        }
        // Our own tools look nowhere but there.
        let looked = files.look_at(&named("missing"), ServedFrom::Workspace);
        assert!(looked.files.are_all_known() && looked.files.digests().is_empty());
        std::fs::write(root.join("a b.txt"), "one").unwrap();
        std::fs::write(root.join("file:a%20b.txt"), "two").unwrap();
        let looked = files.look_at(&named("file:a%20b.txt"), ServedFrom::Workspace);
        assert_eq!(looked.digest_of("file:a%20b.txt"), Some(ua_core::sha256("two")), "as it sends it");
        let inline = files.look_at(&named("data:,abc"), ServedFrom::Folder(&server));
        assert_eq!(inline.files, SentFiles::default());
    }

    #[test]
    fn no_more_is_read_than_the_bound() {
        let (outer, files, _server) = folders();
        std::fs::write(outer.path().join("ws/a.txt"), "12345").unwrap();
        std::fs::write(outer.path().join("ws/sub/b.txt"), "12345").unwrap();
        let look = |names: &[&str], bytes: u64, entries: u32| {
            let named: Vec<_> = names.iter().map(|name| ((*name).to_owned(), (*name).to_owned())).collect();
            files.look_within(&named, ServedFrom::Elsewhere, &mut Left { bytes, entries }).files
        };
        assert!(look(&["a.txt", "sub"], 10, 1).are_all_known());
        for (names, bytes, entries) in [(&["a.txt"] as &[&str], 4, 9), (&["a.txt", "sub"], 9, 9), (&["sub"], 9, 0)] {
            assert!(!look(names, bytes, entries).are_all_known(), "{names:?}");
        }
        // One that has no length of its own is read up to the bound, too.
        assert!(!look(&["/proc/self/maps"], 10, 9).are_all_known());
    }
}
