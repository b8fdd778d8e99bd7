//! Digests of workspace files that a call sends out, taken just before it is admitted.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use rustix::fs::OFlags;
use sha2::Digest as _;
use ua_core::Sha256;

/// Without it, opening a named pipe would wait until somebody writes to it. For a file it changes nothing.
#[expect(clippy::cast_possible_wrap, reason = "flags of open(2) are a C int")]
const NONBLOCK: i32 = OFlags::NONBLOCK.bits() as i32;

/// Reads files of one workspace and of nothing else: a path that leads out of it has no digest.
#[derive(Debug)]
pub struct WorkspaceFiles {
    root: PathBuf,
    dir: Dir,
}

impl WorkspaceFiles {
    /// Opens the workspace.
    pub fn open(root: &Path) -> std::io::Result<Self> {
        let root = root.canonicalize()?;
        Ok(Self { dir: Dir::open_ambient_dir(&root, ambient_authority())?, root })
    }

    /// The digest of a file's content; `None` when there is no such file in the workspace, or it is a named pipe, a
    /// device or another thing that is no file.
    pub fn digest(&self, path: &str) -> Option<Sha256> {
        let path = Path::new(path);
        let inside = if path.is_absolute() { path.strip_prefix(&self.root).ok()? } else { path };
        let mut file = self.dir.open_with(inside, OpenOptions::new().read(true).custom_flags(NONBLOCK)).ok()?;
        // Of what was opened, not of the name, which may mean something else by now.
        if !file.metadata().ok()?.is_file() {
            return None;
        }
        let mut hasher = sha2::Sha256::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = file.read(&mut buffer).ok()?;
            if read == 0 {
                return Some(Sha256::from_bytes(hasher.finalize().into()));
            }
            hasher.update(&buffer[..read]);
        }
    }

    /// Digests of the named files, by argument path; files that are not there are left out.
    pub fn digests(&self, files: &[(String, String)]) -> BTreeMap<String, Sha256> {
        files.iter().filter_map(|(argument, path)| Some((argument.clone(), self.digest(path)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s5_a_link_that_is_swapped_meanwhile_leads_nowhere() {
        use std::sync::atomic::{AtomicBool, Ordering};

        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("ws");
        std::fs::create_dir_all(root.join("real")).unwrap();
        std::fs::write(root.join("real/a.txt"), "inside").unwrap();
        std::fs::create_dir(outer.path().join("outside")).unwrap();
        std::fs::write(outer.path().join("outside/a.txt"), "outside").unwrap();
        let files = WorkspaceFiles::open(&root).unwrap();
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
                let digest = files.digest("name/a.txt");
                seen += usize::from(digest == Some(inside));
                if digest == Some(outside) {
                    break;
                }
            }
            done.store(true, Ordering::Relaxed);
            assert!(tries >= 3_000, "what lies outside was read");
        });
    }

    #[test]
    fn only_the_workspace_is_read() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("ws");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("a.txt"), "abc").unwrap();
        std::fs::write(outer.path().join("secret"), "abc").unwrap();
        std::os::unix::fs::symlink(outer.path().join("secret"), root.join("link")).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, root.join("pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let files = WorkspaceFiles::open(&root).unwrap();
        let abc = ua_core::sha256("abc");
        assert_eq!(files.digest("a.txt"), Some(abc));
        assert_eq!(files.digest(root.canonicalize().unwrap().join("a.txt").to_str().unwrap()), Some(abc));
        for outside in ["../secret", "link", "missing", "/etc/hostname", "pipe"] {
            assert_eq!(files.digest(outside), None, "{outside}");
        }
    }
}
