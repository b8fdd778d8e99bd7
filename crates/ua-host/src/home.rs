//! Where things are: the workspace root, the runtime database, the locks.

use std::fs;
use std::path::{Path, PathBuf};

use ua_core::{RunId, Timestamp};
use ua_store_sqlite::{SqliteConfig, SqliteStore};

use crate::error::HostError;
use crate::settings::Settings;

/// Closes the database in good order. Whatever was committed stays, even if this fails.
pub fn close(store: SqliteStore) {
    if let Err(error) = store.close() {
        tracing::warn!(error = crate::error::chain(&error), "the runtime database was not closed in good order");
    }
}

/// The folder that holds all workspaces when nobody says which.
const DEFAULT_ROOT: &str = "AGENT_RUN_WORKSPACES";

/// The folders of this installation.
#[derive(Debug, Clone)]
pub struct Home {
    root: PathBuf,
    database: PathBuf,
    is_default: bool,
}

impl Home {
    /// Takes `root`, else reads `UA_ROOT`, and `UA_RUNTIME_DB_PATH`; the default is `AGENT_RUN_WORKSPACES` in the current folder.
    pub fn new(settings: &Settings, root: Option<&Path>) -> Result<Self, HostError> {
        let root = root.map(Path::to_path_buf).or_else(|| settings.var("UA_ROOT").map(PathBuf::from));
        let root = root.unwrap_or_else(|| PathBuf::from(DEFAULT_ROOT));
        let root = settings.absolute(&root)?;
        if root.to_str().is_none() {
            return Err(HostError::usage(format!("cannot use {}: its name is no UTF-8 text", root.display()))
                .hint("choose another folder with --root; its path is stored as text"));
        }
        let database = match settings.var("UA_RUNTIME_DB_PATH") {
            Some(path) => settings.absolute(Path::new(&path))?,
            None => root.join("runtime_state.db"),
        };
        let is_default = settings.absolute(Path::new(DEFAULT_ROOT)).is_ok_and(|default| default == root);
        Ok(Self { root, database, is_default })
    }

    /// The folder that holds all workspaces.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether a command that names no root, given in the same folder, has this one.
    pub fn is_default(&self) -> bool {
        self.is_default
    }

    /// The runtime database.
    pub fn database(&self) -> &Path {
        &self.database
    }

    /// The folder of the lock files.
    pub fn locks(&self) -> PathBuf {
        self.state().join("locks")
    }

    /// The folder that says which alerts were sent.
    pub fn alerts(&self) -> PathBuf {
        self.state().join("alerts")
    }

    fn state(&self) -> &Path {
        self.database.parent().unwrap_or(&self.root)
    }

    /// Opens the database for work; makes it if this is the first run.
    pub fn open(&self) -> Result<SqliteStore, HostError> {
        fs::create_dir_all(&self.root).map_err(|e| {
            HostError::storage(format!("cannot create {}: {e}", self.root.display()))
                .hint("choose another folder with --root")
        })?;
        // Workspaces without their database: its receipts are what keeps effects from happening twice, so it is never made anew.
        // A file that was emptied is as good as gone.
        let is_gone = fs::metadata(&self.database).map_or(true, |file| file.len() == 0);
        let expected = is_gone && self.has_workspaces();
        let config = SqliteConfig { expected_existing: expected, ..SqliteConfig::new(&self.database) };
        SqliteStore::open(config).map_err(|error| {
            let failure = HostError::store(&format!("open the runtime database {}", self.database.display()), &error);
            if expected {
                failure.hint(format!(
                    "there are workspaces in {}, but their database is gone; put it back, or choose another --root for new runs",
                    self.root.display()
                ))
            } else {
                failure
            }
        })
    }

    /// Opens the database for looking only; it is never made or changed.
    pub fn open_read_only(&self) -> Result<SqliteStore, HostError> {
        if !self.database.exists() {
            return Err(HostError::usage(format!("there is no runtime database at {}", self.database.display()))
                .hint("no job was run here yet; start one with `ua job FILE`, or name another folder with --root"));
        }
        SqliteStore::open_read_only(&self.database).map_err(|error| {
            HostError::store(&format!("open the runtime database {}", self.database.display()), &error)
        })
    }

    fn has_workspaces(&self) -> bool {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        entries
            .into_iter()
            .any(|entry| entry.file_name().to_string_lossy().starts_with("session_") && entry.path().is_dir())
    }

    /// The folder of a new run: what the job says, inside the root, or a fresh name. A name that we made up gives way to a folder
    /// that is there already; a name that the job gives is refused.
    pub fn workspace_for(&self, run: &RunId, wanted: Option<&str>, now: Timestamp) -> Result<PathBuf, HostError> {
        let tail: String = run.as_str().chars().rev().take(8).collect::<Vec<_>>().into_iter().rev().collect();
        let id = format!("{}_{}", now.compact(), tail.trim_start_matches(['_', '.', '-']));
        let pattern = wanted.unwrap_or("session_<id>").trim_end_matches('/');
        let pattern = pattern.strip_prefix("AGENT_RUN_WORKSPACES/").unwrap_or(pattern);
        let folder = self.inside(&pattern.replace("<id>", &id))?;
        if !folder.exists() {
            return Ok(folder);
        }
        if !pattern.contains("<id>") {
            return Err(HostError::usage(format!(
                "the workspace {} exists already; a workspace belongs to one run",
                folder.display()
            ))
            .hint("put `<id>` into `artifacts.workspace_dir`, or leave the field out"));
        }
        // The same run, started twice within a second, or a second run whose id ends alike.
        let mut next = 2;
        loop {
            let folder = self.inside(&pattern.replace("<id>", &format!("{id}_{next}")))?;
            if !folder.exists() {
                return Ok(folder);
            }
            next += 1;
        }
    }

    /// The path of a folder of this name in the root.
    fn inside(&self, name: &str) -> Result<PathBuf, HostError> {
        let path = Path::new(name);
        let is_inside =
            path.components().all(|part| matches!(part, std::path::Component::Normal(_))) && !name.is_empty();
        if !is_inside {
            return Err(HostError::usage(format!(
                "`artifacts.workspace_dir` is {name:?}, which leads out of the workspace root"
            ))
            .hint(format!("name a folder below {}", self.root.display())));
        }
        Ok(self.root.join(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Process;

    fn home(folder: &Path, root: Option<&str>) -> Home {
        let settings = Settings::read(Process { folder: Some(folder.to_path_buf()), ..Process::default() });
        Home::new(&settings, root.map(Path::new)).unwrap()
    }

    #[test]
    fn a_relative_root_is_of_the_folder_that_was_given() {
        let folder = Path::new("/somewhere/else");
        assert_eq!(home(folder, Some("runs")).root(), folder.join("runs"));
        assert_eq!(home(folder, None).root(), folder.join(DEFAULT_ROOT));
        assert!(home(folder, Some(DEFAULT_ROOT)).is_default() && !home(folder, Some("runs")).is_default());
    }

    #[test]
    fn a_made_up_name_gives_way_and_one_that_a_job_gives_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let (home, run, now) =
            (home(folder.path(), None), RunId::parse("comments").unwrap(), Timestamp::from_millis(0));
        let name = |wanted: Option<&str>| {
            let path = home.workspace_for(&run, wanted, now)?;
            fs::create_dir_all(&path).unwrap();
            Ok::<_, HostError>(path.strip_prefix(home.root()).unwrap().display().to_string())
        };
        let first = name(None).unwrap();
        assert_eq!(name(None).unwrap(), format!("{first}_2"));
        assert_eq!(name(None).unwrap(), format!("{first}_3"));
        let own = name(Some("mine/<id>/work")).unwrap();
        assert_eq!(name(Some("mine/<id>/work")).unwrap(), own.replace("/work", "_2/work"));
        assert_eq!(name(Some("mine/fixed")).unwrap(), "mine/fixed");
        assert!(name(Some("mine/fixed")).unwrap_err().to_string().contains("exists already"));
        assert!(name(Some("../out")).is_err());
    }
}
