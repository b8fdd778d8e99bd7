//! Workspaces: the folder that a run gets in the root.
//!
//! Invariants: no workspace is a folder of ours, or leads out of the root; a workspace belongs to one run.

use std::path::{Path, PathBuf};

use ua_core::{RunId, Timestamp};

use super::{Home, OWN};
use crate::error::HostError;
use crate::text::plain;

impl Home {
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

    /// The first part of a name in the root that no workspace may have. Some file systems take `Locks` for `locks`.
    fn own_name(&self, name: &Path) -> Option<String> {
        let first = name.components().find(|part| *part != std::path::Component::CurDir)?;
        let first = first.as_os_str().to_string_lossy().to_lowercase();
        let database = self.database.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let is_of = |own: &str| first == own || first.strip_prefix(own).is_some_and(|rest| rest.starts_with('-'));
        let is_own = first.starts_with('.')
            || OWN.iter().any(|own| is_of(&own.to_lowercase()))
            || is_of(&database)
            || is_of("runtime_state.db");
        (is_own && first != "..").then_some(first)
    }

    /// The path of a folder of this name in the root.
    fn inside(&self, name: &str) -> Result<PathBuf, HostError> {
        let path = Path::new(name);
        if plain(name) != name || name.contains(['\n', '\t']) {
            return Err(HostError::usage(format!(
                "`artifacts.workspace_dir` is {name:?}, which has control or invisible characters"
            ))
            .hint("name a folder in plain text; nothing was started"));
        }
        if let Some(own) = self.own_name(path) {
            return Err(HostError::usage(format!(
                "`artifacts.workspace_dir` is {name:?}, but ua keeps `{own}` in the workspace root for itself"
            ))
            .hint(format!("name another folder below {}; nothing was started", self.root.display())));
        }
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
    use std::fs;

    use super::super::tests::home;
    use super::*;

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

    #[test]
    fn no_workspace_has_a_name_that_is_ours_or_drives_a_terminal() {
        let folder = tempfile::tempdir().unwrap();
        let (home, run, now) =
            (home(folder.path(), None), RunId::parse("comments").unwrap(), Timestamp::from_millis(0));
        for name in [
            "locks",
            "Locks",
            "./locks",
            "locks/x",
            "effects.log",
            "outbox",
            "objects",
            "RESTART.md",
            "restart.md",
            "agent_core.db",
            "agent_core.db-wal",
            "runtime_state.db",
            "runtime_state.db-journal",
            "alerts",
            "policy_audit",
            ".fork_x",
            ".ua-root",
            "a\u{1b}]52;c;ZXZpbA==\u{7}",
            "a\0b",
            "a\u{202e}b",
            "a\nb",
            "a\u{200b}b",
        ] {
            let refused = home.workspace_for(&run, Some(name), now).unwrap_err();
            assert_eq!(refused.kind(), crate::error::Kind::Usage, "{name:?}");
            assert_eq!(plain(&refused.to_string()), refused.to_string());
        }
        assert!(home.workspace_for(&run, Some("mine/locks"), now).is_ok());
    }
}
