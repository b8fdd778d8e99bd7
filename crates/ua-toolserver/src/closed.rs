//! What nobody reads here, although it lies below a folder that may be read: where runs and `ua` itself keep things, and where people keep
//! secrets.
//!
//! A job may lie in the user's home, or beside the root of all runs. The same rule holds for programs of `run_command` and for `file`
//! addresses. A folder that is named by itself and lies *inside* something private stays open.
//!
//! Threats S5 and S8 of `docs/security.md`. Proved by: the test below, `tests/it/wire/crawl.rs`, `tests/it/wire/sandbox.rs`.

use std::path::{Path, PathBuf};

/// Where secrets lie in a home, by well-known names; at any depth below a folder that may be read.
const SECRET: [&str; 27] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".netrc",
    "_netrc",
    ".pgpass",
    ".my.cnf",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    ".config/rclone",
    ".config/ua",
    ".local/state/ua",
    ".local/share/keyrings",
    ".password-store",
    ".mozilla",
    ".config/google-chrome",
    ".config/chromium",
    ".terraform.d",
];

/// What a folder of workspaces has in it, this user's or another's: its mark, and its database. Runs write both.
const OF_ROOT: [&str; 2] = [".ua-root", "runtime_state.db"];
/// How deep, and through how many folders, roots are looked for below a folder that programs may read.
const MAX_DEPTH: usize = 6;
const MAX_FOLDERS: usize = 2_000;

/// What is private, without links.
#[derive(Debug, Clone, Default)]
pub(crate) struct Closed(Vec<PathBuf>);

impl Closed {
    /// What of `private` there is.
    pub(crate) fn new(private: &[PathBuf]) -> Self {
        Self(private.iter().filter_map(|path| path.canonicalize().ok()).collect())
    }

    /// Whether `path` is closed to whoever may read `root`; both without links.
    pub(crate) fn has(&self, root: &Path, path: &Path) -> bool {
        let is_private = self.0.iter().any(|private| private.starts_with(root) && path.starts_with(private));
        let below: Vec<_> = path.strip_prefix(root).unwrap_or(path).components().collect();
        let is_secret = |name: &&str| {
            let name: Vec<_> = Path::new(name).components().collect();
            below.windows(name.len()).any(|part| {
                part.iter().zip(&name).all(|(found, name)| found.as_os_str().eq_ignore_ascii_case(name.as_os_str()))
            })
        };
        is_private || SECRET.iter().any(is_secret) || in_a_root(root, path)
    }

    /// What is private, what there is of secrets directly in these folders, and the roots in them: a list, for walls that are built of paths.
    pub(crate) fn in_folders(mut self, folders: &[PathBuf]) -> Vec<PathBuf> {
        let secrets = folders.iter().flat_map(|folder| SECRET.iter().map(|name| folder.join(name)));
        let roots =
            folders.iter().filter_map(|folder| folder.canonicalize().ok()).flat_map(|folder| roots_below(&folder));
        let more: Vec<PathBuf> = secrets.filter_map(|path| path.canonicalize().ok()).chain(roots).collect();
        self.0.extend(more);
        self.0
    }
}

fn is_a_root(folder: &Path) -> bool {
    OF_ROOT.iter().any(|name| folder.join(name).symlink_metadata().is_ok())
}

/// Whether `path` is in a root that is `start` or lies below it.
fn in_a_root(start: &Path, path: &Path) -> bool {
    path.ancestors().take_while(|above| above.starts_with(start)).any(is_a_root)
}

/// The roots that are `start` or lie below it, the nearest first, as far as is looked.
fn roots_below(start: &Path) -> Vec<PathBuf> {
    let mut level = vec![start.to_path_buf()];
    let (mut roots, mut looked) = (Vec::new(), 0);
    for _ in 0..=MAX_DEPTH {
        let mut next = Vec::new();
        for folder in level {
            if is_a_root(&folder) {
                roots.push(folder);
                continue;
            }
            looked += 1;
            if looked > MAX_FOLDERS {
                return roots;
            }
            let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            // A link leads to what has a place of its own.
            next.extend(
                entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
            );
        }
        level = next;
    }
    roots
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_private_below_a_folder_is_closed_and_a_folder_inside_of_it_open() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap().join("home");
        std::fs::create_dir_all(home.join("job/AGENT_RUN_WORKSPACES/run")).unwrap();
        let root = home.join("job/AGENT_RUN_WORKSPACES");
        let closed = Closed::new(&[home.clone(), root.clone(), home.join("none")]);
        let job = home.join("job");
        assert!(!closed.has(&job, &job.join("site/index.html")));
        assert!(closed.has(&job, &root.join("RESTART.md")));
        assert!(closed.has(&home, &home.join("notes.md")));
        assert!(closed.has(folder.path().canonicalize().unwrap().as_path(), &home.join("notes.md")));
        // A sub-agent reads the folder of the run that it works for.
        assert!(!closed.has(&root.join("run"), &root.join("run/a.md")));
        for secret in [".ssh/id_rsa", ".netrc", "deep/.aws/credentials", ".config/gcloud/x", ".SSH/id", ".config/ua/x"]
        {
            assert!(closed.has(&job, &job.join(secret)), "{secret}");
        }
        for open in [".config/other/x.md", "ssh/a.md", "a.ssh", ".github/README.md"] {
            assert!(!closed.has(&job, &job.join(open)), "{open}");
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "what the test makes is its own")]
    fn every_other_root_below_a_folder_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let job = folder.path().canonicalize().unwrap().join("job");
        let (own, other, old) = (job.join("AGENT_RUN_WORKSPACES"), job.join("a/b/runs"), job.join("old"));
        for root in [&own, &other, &old] {
            std::fs::create_dir_all(root.join("session_1")).unwrap();
        }
        std::fs::write(own.join(".ua-root"), "x").unwrap();
        std::fs::write(other.join(".ua-root"), "x").unwrap();
        std::fs::write(old.join("runtime_state.db"), "x").unwrap();
        std::fs::create_dir_all(job.join("site")).unwrap();
        let closed = Closed::new(&[]);
        for inside in
            [own.join("RESTART.md"), other.join("session_1/transcript.md"), old.join("effects.log"), old.clone()]
        {
            assert!(closed.has(&job, &inside), "{}", inside.display());
        }
        assert!(!closed.has(&job, &job.join("site/index.html")));
        assert!(
            !closed.has(&own.join("session_1"), &own.join("session_1/a.md")),
            "a sub-agent's folder is named by itself"
        );
        assert!(closed.has(&other, &other.join("locks/x")), "a job that lies in a root reads nothing of it");
        let mut found = closed.in_folders(std::slice::from_ref(&job));
        found.sort();
        assert_eq!(found, [own, other, old]);
    }
}
