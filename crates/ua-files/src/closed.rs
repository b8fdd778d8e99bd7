//! What nobody reads, although it lies below a folder that may be read: where runs and `ua` itself keep things, and where people keep secrets.
//!
//! A job may lie in the user's home, or beside the root of all runs. So everything that reads below the folder of a job asks here: the files that
//! a job names, `file` addresses, and the walls of `run_command`, which are built of paths and therefore look for secrets and roots only so deep
//! ([`Closed::in_folders`]). A folder that is named by itself and lies *inside* something private stays open.
//!
//! Threats S5 and S8 of `docs/security.md`. Proved by: the tests below, and of `ua-toolserver` `tests/it/wire/crawl.rs` and
//! `tests/it/wire/sandbox.rs`.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

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
/// How deep, and through how many folders, secrets and roots are looked for below a folder that programs may read.
const MAX_DEPTH: usize = 6;
const MAX_FOLDERS: usize = 2_000;

/// What is private below a folder: places, without links, and names.
#[derive(Debug, Clone, Default)]
pub struct Closed(Vec<PathBuf>);

impl Closed {
    /// What of `private` there is.
    pub fn new(private: &[PathBuf]) -> Self {
        Self(private.iter().filter_map(|path| path.canonicalize().ok()).collect())
    }

    /// Whether `path` is closed to whoever may read `root`, which has no links in it. Of a path with links the name alone is judged: whoever follows
    /// them asks about where they lead as well.
    pub fn has(&self, root: &Path, path: &Path) -> bool {
        let is_private = self.0.iter().any(|private| private.starts_with(root) && path.starts_with(private));
        let below: Vec<_> = path.strip_prefix(root).unwrap_or(path).components().collect();
        let is_secret = |name: &&str| {
            let name: Vec<_> = Path::new(name).components().collect();
            below.windows(name.len()).any(|part| is_same(part, &name))
        };
        is_private || SECRET.iter().any(is_secret) || in_a_root(root, path)
    }

    /// What is private, what there is of secrets directly in these folders, and the secrets and roots further below them, as far as is looked: a
    /// list, for walls that are built of paths.
    pub fn in_folders(mut self, folders: &[PathBuf]) -> Vec<PathBuf> {
        // However many folders are beside them.
        let direct = folders.iter().flat_map(|folder| SECRET.iter().map(|name| folder.join(name)));
        let real = folders.iter().filter_map(|folder| folder.canonicalize().ok());
        let more = direct.chain(real.flat_map(|folder| closed_below(&folder)));
        // A secret may be a link: what it leads to is closed.
        let more: BTreeSet<PathBuf> = more.filter_map(|path| path.canonicalize().ok()).collect();
        self.0.extend(more);
        self.0
    }
}

/// Whether a part of a path below a folder is hidden by its name, as people hide what is not for everybody. `..data` is not: what is mounted into a
/// container (a `ConfigMap`) lies in folders with two dots, and nobody hid it.
pub fn is_hidden(below: &Path) -> bool {
    below.components().any(|part| match part {
        Component::Normal(name) => {
            let name = name.as_encoded_bytes();
            name.starts_with(b".") && !name.starts_with(b"..")
        }
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => false,
    })
}

/// Whether these parts of a path are that name, in letters of whatever case: a disk may not tell them apart.
fn is_same(parts: &[Component<'_>], name: &[Component<'_>]) -> bool {
    parts.len() == name.len()
        && parts.iter().zip(name).all(|(part, name)| part.as_os_str().eq_ignore_ascii_case(name.as_os_str()))
}

/// Whether a path ends with the name of a secret.
fn is_a_secret(path: &Path) -> bool {
    let parts: Vec<_> = path.components().collect();
    SECRET.iter().any(|name| {
        let name: Vec<_> = Path::new(name).components().collect();
        parts.len() >= name.len() && is_same(&parts[parts.len() - name.len()..], &name)
    })
}

fn is_a_root(folder: &Path) -> bool {
    OF_ROOT.iter().any(|name| folder.join(name).symlink_metadata().is_ok())
}

/// Whether `path` is in a root that is `start` or lies below it.
fn in_a_root(start: &Path, path: &Path) -> bool {
    path.ancestors().take_while(|above| above.starts_with(start)).any(is_a_root)
}

/// The roots that are `start` or lie below it, and the secrets below it, the nearest first, as far as is looked.
fn closed_below(start: &Path) -> Vec<PathBuf> {
    let mut level = vec![start.to_path_buf()];
    let (mut found, mut looked) = (Vec::new(), 0);
    for _ in 0..=MAX_DEPTH {
        let mut next = Vec::new();
        for folder in level {
            if is_a_root(&folder) {
                found.push(folder);
                continue;
            }
            looked += 1;
            if looked > MAX_FOLDERS {
                return found;
            }
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                // What is above `start` was named by whoever opened it.
                if path.strip_prefix(start).is_ok_and(is_a_secret) {
                    found.push(path);
                } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    // A link leads to what has a place of its own.
                    next.push(path);
                }
            }
        }
        level = next;
    }
    found
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

    #[test]
    fn what_programs_do_not_see_are_secrets_at_any_depth_that_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let job = folder.path().canonicalize().unwrap().join(".ssh/job");
        let secrets = [".netrc", "a/b/.AWS", "a/.config/gh", "a/b/c/d/e/.npmrc"];
        for secret in secrets.map(|secret| job.join(secret)).iter().chain([&job.join("a/.config/other")]) {
            std::fs::create_dir_all(secret.parent().unwrap()).unwrap();
            std::fs::write(secret, "x").unwrap();
        }
        std::fs::create_dir_all(job.join("kept/keys")).unwrap();
        std::os::unix::fs::symlink("../kept/keys", job.join("a/.gnupg")).unwrap();
        let mut found = Closed::new(&[]).in_folders(std::slice::from_ref(&job));
        found.sort();
        let mut wanted = [secrets.as_slice(), &["kept/keys"]].concat();
        wanted.sort_unstable();
        assert_eq!(found, wanted.into_iter().map(|path| job.join(path)).collect::<Vec<_>>());
    }

    #[test]
    fn what_begins_with_one_dot_is_hidden() {
        for hidden in [".env", "a/.b/c.md", ".github/README.md"] {
            assert!(is_hidden(Path::new(hidden)), "{hidden}");
        }
        for open in ["a.md", "./a.md", "..data/a.md", "..2026_11_30/a.md", "a/b.c/d"] {
            assert!(!is_hidden(Path::new(open)), "{open}");
        }
    }
}
