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
        is_private || SECRET.iter().any(is_secret)
    }

    /// What is private, and what there is of secrets directly in these folders: a list, for walls that are built of paths.
    pub(crate) fn in_folders(mut self, folders: &[PathBuf]) -> Vec<PathBuf> {
        let secrets = folders.iter().flat_map(|folder| SECRET.iter().map(|name| folder.join(name)));
        self.0.extend(secrets.filter_map(|path| path.canonicalize().ok()));
        self.0
    }
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
}
