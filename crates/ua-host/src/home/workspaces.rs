//! Workspaces: the folder that a run gets in the root.
//!
//! Invariants: no workspace is a folder of ours, or leads out of the root; a workspace belongs to one run, and none lies in another. Programs
//! of a run write in its workspace whatever they like, links too, so the way from the root to a workspace is walked part by part, each time.

use std::io;
use std::path::{Component, Path, PathBuf};

use ua_core::{RunId, ShowPath as _, Timestamp};
use ua_files::Folder;
use ua_runner::{Workspace, WorkspaceError, settle_workspace};
use ua_store::{RunQuery, RunRecord, Store as _};

use super::{Home, OWN};
use crate::database::Database;
use crate::error::HostError;
use crate::roots::Belief;
use crate::text::plain;

/// The most characters of an id that somebody chose in the name of a folder.
const LONGEST_CHOSEN: usize = 40;

/// What of the name of a run stands in that of its folder. Of an id that was drawn, the end is enough; one that a person chose is recognised by the
/// whole of it.
fn in_name(run: &RunId) -> String {
    let is_drawn = run
        .as_str()
        .strip_prefix("run_")
        .is_some_and(|digits| digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let shown = if is_drawn { 8 } else { LONGEST_CHOSEN };
    let tail: String = run.as_str().chars().rev().take(shown).collect::<Vec<_>>().into_iter().rev().collect();
    tail.trim_start_matches(['_', '.', '-']).to_owned()
}

impl Home {
    /// The folder of a new run: what the job says, inside the root, or a fresh name. A name that we made up gives way to a folder
    /// that is there already; a name that the job gives is refused.
    pub fn workspace_for(&self, run: &RunId, wanted: Option<&str>, now: Timestamp) -> Result<PathBuf, HostError> {
        let id = format!("{}_{}", now.compact(), in_name(run));
        let pattern = wanted.unwrap_or("session_<id>").trim_end_matches('/');
        let pattern = pattern.strip_prefix("AGENT_RUN_WORKSPACES/").unwrap_or(pattern);
        let folder = self.inside(&pattern.replace("<id>", &id))?;
        if !self.is_taken(&folder)? {
            return Ok(folder);
        }
        if !pattern.contains("<id>") {
            return Err(HostError::usage(format!(
                "the workspace {} exists already; a workspace belongs to one run",
                folder.shown()
            ))
            .hint("put `<id>` into `artifacts.workspace_dir`, or leave the field out"));
        }
        // The same run, started twice within a second, or a second run whose id ends alike.
        let mut next = 2;
        loop {
            let folder = self.inside(&pattern.replace("<id>", &format!("{id}_{next}")))?;
            if !self.is_taken(&folder)? {
                return Ok(folder);
            }
            next += 1;
        }
    }

    /// Whether something stands where a workspace is to be.
    ///
    /// # Errors
    /// What leads there is a link, or no folder.
    fn is_taken(&self, folder: &Path) -> Result<bool, HostError> {
        let below = folder.strip_prefix(&self.root).unwrap_or(folder);
        match Folder::open(&self.root).and_then(|root| root.kind(below)) {
            Ok(kind) => Ok(kind.is_some()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                Err(HostError::usage(format!("the workspace {} cannot be made: {error}", folder.shown()))
                    .hint("name another folder in `artifacts.workspace_dir`")
                    .not_begun())
            }
            Err(error) => Err(HostError::storage(format!("the workspace {} cannot be made: {error}", folder.shown()))
                .hint("check that the folders above it are folders, and yours")
                .not_begun()),
        }
    }

    /// Refuses a workspace that holds what a setting names a place for, or lies in it: whoever empties an outbox there, or starts a program, would
    /// take what a run wrote for what it is looking for. Some file systems take `Mail` for `mail`.
    fn refuse_named(&self, folder: &Path) -> Result<(), HostError> {
        let folded = |path: &Path| PathBuf::from(path.to_string_lossy().to_lowercase());
        let (root, wanted) = (folded(&self.root), folded(folder));
        let meets = |place: &Path| {
            let place = folded(place);
            // The root may lie in a folder that a setting names, and so do all its workspaces.
            place.starts_with(&wanted) || (wanted.starts_with(&place) && !root.starts_with(&place))
        };
        let Some((key, place)) = self.named.iter().find(|(_, place)| meets(place)) else { return Ok(()) };
        Err(HostError::usage(format!(
            "the workspace {} cannot be there: the setting `{key}` names {}",
            folder.shown(),
            place.shown()
        ))
        .hint("name another folder in `artifacts.workspace_dir`, or leave the field out")
        .not_begun())
    }

    /// Refuses a workspace that a job named and that is another run's, lies in one, or has one in it: whatever is in a workspace, programs of
    /// its run write. Asked when a run is stored and again before its folder is made, so that of two that are stored at once one is seen.
    ///
    /// # Errors
    /// The refusal, with the other run's name; the database cannot be read.
    pub(crate) async fn refuse_shared(&self, store: &Database, run: &RunId, folder: &Path) -> Result<(), HostError> {
        let Some(below) = self.inside_root(folder) else { return Ok(()) };
        self.refuse_named(folder)?;
        let query = RunQuery { limit: u32::MAX, without_tasks: true, ..RunQuery::default() };
        let all = store.find_runs(&query).await.map_err(|e| HostError::store("look for other workspaces", &e))?;
        for other in all.into_iter().filter(|other| other.run_id != *run) {
            let Some(theirs) = self.inside_root(Path::new(&other.workspace_dir)) else { continue };
            let is_nested = theirs != below && (below.starts_with(&theirs) || theirs.starts_with(&below));
            // The folder of a run that has ended is free for another one when somebody took it away.
            let is_shared = theirs == below && !other.status.is_terminal();
            if (is_nested || is_shared) && store.elsewhere(&other.run_id).await?.is_none() {
                let how = match (is_shared, below.starts_with(&theirs)) {
                    (true, _) => "is that of",
                    (false, true) => "is in that of",
                    (false, false) => "has in it that of",
                };
                return Err(HostError::usage(format!(
                    "the workspace {} {how} run {}; a workspace belongs to one run",
                    folder.shown(),
                    other.run_id
                ))
                .hint("name another folder in `artifacts.workspace_dir`, or leave the field out"));
            }
        }
        Ok(())
    }

    /// Makes the folder of a run, if it is not there, with the files of a fork; no part of the way to it from the root may be a link.
    ///
    /// # Errors
    /// A part of the way is a link or no folder, or nothing can be made there.
    pub fn make_workspace(&self, run: &RunRecord) -> Result<Workspace, HostError> {
        let (root, below) = self.place_of_run(run)?;
        let root = Folder::open(&root)
            .map_err(|e| HostError::storage(format!("cannot open {}: {e}", root.shown())).of_the_machine())?;
        settle_workspace(&root, &below, run)?;
        Ok(Workspace::create_in(&root, below)?.with_commands(self.commands_from_anywhere()))
    }

    /// A folder for what is written when a session of the gateway is ended, which is gone with it: the one that its row names is where its client
    /// works, and none of ours to write to.
    ///
    /// # Errors
    /// None can be made.
    pub fn passing_workspace(&self) -> Result<(tempfile::TempDir, Workspace), HostError> {
        let folder =
            tempfile::tempdir().map_err(|e| HostError::storage(format!("cannot make a temporary folder: {e}")))?;
        let root = Folder::open(folder.path())
            .map_err(|e| HostError::storage(format!("cannot open {}: {e}", folder.path().shown())))?;
        let workspace = Workspace::create_in(&root, "session")?.with_commands(self.commands_from_anywhere());
        Ok((folder, workspace))
    }

    /// Where the workspace of a run is: in a root of this user's whose runs are in this database, under a name that a workspace may have. It is a row
    /// that says where, so whoever writes rows could have a run read and write whatever this user can, and what runs of other projects keep.
    ///
    /// # Errors
    /// It is anywhere else.
    pub fn place_of_run(&self, run: &RunRecord) -> Result<(PathBuf, PathBuf), HostError> {
        let folder = Path::new(&run.workspace_dir);
        let is_plain = |below: &Path| below.components().all(|part| matches!(part, Component::Normal(_)));
        let is_workspace = |below: &Path| is_plain(below) && self.own_name(below).is_none();
        let place = self.place_of(folder);
        place.filter(|(root, below)| is_workspace(below) && self.has_runs_of(root)).ok_or_else(|| {
            HostError::usage(format!(
                "the workspace of run {} would be {}, which is not a workspace below a root of yours",
                run.run_id,
                folder.shown()
            ))
            .hint("a run reads and writes below the root that it was started in alone; `--root DIR` names that root, if it is yours")
        })
    }

    /// Opens the folder of a run that is there; no part of the way to it from the root may be a link.
    ///
    /// # Errors
    /// It is gone, or a part of the way is a link, or it is no workspace in a root of this user's.
    pub fn open_workspace(&self, run: &RunRecord) -> Result<Workspace, WorkspaceError> {
        let folder = Path::new(&run.workspace_dir);
        let (root, below) = self.place_of_run(run).map_err(|error| {
            // In a database that came from elsewhere it is nowhere.
            if crate::paths::is_missing(folder) {
                return WorkspaceError::unopened(folder, io::ErrorKind::NotFound.into());
            }
            WorkspaceError::of_another(folder, error)
        })?;
        let root = Folder::open(&root).map_err(|error| WorkspaceError::unopened(folder, error))?;
        Ok(Workspace::open_in(&root, below)?.with_commands(self.commands_from_anywhere()))
    }

    /// Where below the root the folder of a run is that was stored at `stored`, when the folder of all runs was moved since: by its name, which has
    /// that of the run in it. A name that a job gives may be another run's by now.
    pub fn moved_workspace(&self, run: &RunId, stored: &Path) -> Option<PathBuf> {
        let root = Folder::open(&self.root).ok()?;
        let is_name = |part: &Component<'_>| matches!(part, Component::Normal(_));
        let parts: Vec<Component<'_>> = stored.components().filter(is_name).collect();
        let (name, own) = (stored.file_name()?.to_str()?, in_name(run));
        let mut ends = (0..parts.len()).rev().map(|from| parts[from..].iter().collect::<PathBuf>());
        let is_there = |below: &PathBuf| self.own_name(below).is_none() && root.folder(below).is_ok();
        ends.find(is_there).filter(|_| !own.is_empty() && name.contains(&format!("_{own}")))
    }

    /// The workspace of the run that a sub-agent works for, which works in `workspace`: two folders above, and in the same root.
    pub(crate) fn workspace_above(&self, workspace: &Path) -> Option<PathBuf> {
        let (root, below) = self.place_of(workspace)?;
        let above = below.parent()?.parent().filter(|above| !above.as_os_str().is_empty())?;
        Some(root.join(above))
    }

    /// Where in this root the workspace of a run is by its row, if that can be one: what is removed with a run.
    pub fn workspace_here(&self, folder: &Path) -> Option<PathBuf> {
        self.inside_root(folder).filter(|below| self.own_name(below).is_none())
    }

    /// The root that a run's folder is in, and where in it: this one, or another one of this user whose runs are in the same database.
    pub(super) fn place_of(&self, folder: &Path) -> Option<(PathBuf, PathBuf)> {
        if let Some(below) = self.inside_root(folder) {
            return Some((self.root.clone(), below));
        }
        let root = folder.ancestors().skip(1).find(|above| self.roots.judge(above) == Belief::Own)?;
        Some((root.to_path_buf(), folder.strip_prefix(root).ok()?.to_path_buf()))
    }

    /// The first part of a name in the root that no workspace may have. Some file systems take `Locks` for `locks`, and `lockſ` as well.
    fn own_name(&self, name: &Path) -> Option<String> {
        let said = name.components().find(|part| *part != std::path::Component::CurDir)?;
        let said = said.as_os_str().to_string_lossy();
        let folded = |name: &str| name.to_uppercase().to_lowercase();
        let first = folded(&said);
        let database = folded(&self.database.file_name().unwrap_or_default().to_string_lossy());
        let behind = |own: &str| first.strip_prefix(own).map(str::to_owned);
        let is_of = |own: &str| behind(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
        // Beside one lie its log, and the lock of its migrations.
        let is_of_database = |own: &str| is_of(own) || behind(own).is_some_and(|rest| rest.starts_with('.'));
        let is_own = first.starts_with('.')
            || OWN.iter().chain(&crate::gateway::FILES).any(|own| is_of(&folded(own)))
            || ["agent_core.db", "runtime_state.db", &database].into_iter().any(is_of_database);
        (is_own && first != "..").then(|| said.into_owned())
    }

    /// The path of a folder of this name in the root.
    fn inside(&self, name: &str) -> Result<PathBuf, HostError> {
        let path = Path::new(name);
        if plain(name) != name || name.contains(['\n', '\t']) {
            return Err(HostError::usage(format!(
                "`artifacts.workspace_dir` is {name:?}, which has control or invisible characters"
            ))
            .hint("name a folder in plain text")
            .not_begun());
        }
        if let Some(own) = self.own_name(path) {
            return Err(HostError::usage(format!(
                "`artifacts.workspace_dir` is {name:?}, but ua keeps `{own}` in the workspace root for itself"
            ))
            .hint(format!("name another folder below {}", self.root.shown()))
            .not_begun());
        }
        let is_hidden =
            |part: Component<'_>| matches!(part, Component::Normal(name) if name.as_encoded_bytes().starts_with(b"."));
        if path.components().any(is_hidden) {
            return Err(HostError::usage(format!(
                "`artifacts.workspace_dir` is {name:?}, which is hidden, or in a hidden folder"
            ))
            .hint("name folders that do not begin with a dot")
            .not_begun());
        }
        let is_inside = path.components().all(|part| matches!(part, Component::Normal(_))) && !name.is_empty();
        if !is_inside {
            return Err(HostError::usage(format!(
                "`artifacts.workspace_dir` is {name:?}, which leads out of the workspace root"
            ))
            .hint(format!("name a folder below {}", self.root.shown())));
        }
        let path = self.root.join(path);
        self.refuse_named(&path)?;
        Ok(path)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use std::fs;

    use super::super::tests::home;
    use super::*;
    use crate::words::KnownSecrets;

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
            "lock\u{17f}",
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
            "runtime_state.db.migrate.lock",
            "Runtime_State.db.migrate.lock/x",
            "alerts",
            "policy_audit",
            ".fork_x",
            ".ua-root",
            "installed",
            "Logs/x",
            "gateway.toml",
            "tokens.json",
            "a\u{1b}]52;c;ZXZpbA==\u{7}",
            "a\0b",
            "a\u{202e}b",
            "a\nb",
            "a\u{200b}b",
            "mine/.git",
            "mine/.hidden/x",
        ] {
            let refused = home.workspace_for(&run, Some(name), now).unwrap_err();
            assert_eq!(refused.kind(), crate::error::Kind::Usage, "{name:?}");
            assert_eq!(plain(&refused.to_string()), refused.to_string());
        }
        assert!(home.workspace_for(&run, Some("mine/locks"), now).is_ok());
        assert!(home.workspace_for(&run, Some("outbox.d"), now).is_ok());
        let refused = home.workspace_for(&run, Some("RESTART.md"), now).unwrap_err().to_string();
        assert!(refused.contains("ua keeps `RESTART.md`"), "{refused}");
    }

    /// Whatever a setting names, of every kind that names a place.
    #[test]
    fn no_workspace_is_where_a_setting_names_a_place() {
        use crate::env::Process;
        use crate::settings::{SETTINGS, Settings};

        let folder = tempfile::tempdir().unwrap();
        let (run, now) = (RunId::parse("comments").unwrap(), Timestamp::from_millis(0));
        let mut tried = 0;
        for setting in SETTINGS.iter().filter(|setting| setting.variable != "UA_ROOT") {
            for value in ["runs/pub/x", "maildir:runs/pub/x", "file://<here>/runs/pub/x", "a:runs/pub/x"] {
                let value = value.replace("<here>", &folder.path().display().to_string());
                let named = setting.kind.paths_in(&value).iter().any(|path| path.ends_with("runs/pub/x"));
                // An address is a path where a setting takes any text.
                if !named || (value.starts_with("file:") && setting.kind != crate::settings::ValueKind::Text) {
                    continue;
                }
                tried += 1;
                let variables = [(setting.variable.to_owned(), value)].into();
                let process = Process { variables, folder: Some(folder.path().to_path_buf()), program: None };
                let home =
                    Home::new(&Settings::read(process), Some(Path::new("runs")), &KnownSecrets::default()).unwrap();
                for name in ["pub", "pub/x", "Pub/x/<id>", "pub/x/deeper"] {
                    let refused = home.workspace_for(&run, Some(name), now).map(|_| setting.key).unwrap_err();
                    assert!(refused.to_string().contains(setting.key), "{name}: {refused}");
                }
                assert!(home.workspace_for(&run, Some("public/x"), now).is_ok());
                assert!(home.workspace_for(&run, None, now).is_ok());
            }
        }
        assert!(tried > 15, "{tried}");
    }

    #[test]
    fn a_folder_around_the_root_that_a_setting_names_is_no_hindrance() {
        use crate::env::Process;
        use crate::settings::Settings;

        let folder = tempfile::tempdir().unwrap();
        let variables = [("UA_COMMAND_READ".to_owned(), folder.path().display().to_string())].into();
        let process = Process { variables, folder: Some(folder.path().to_path_buf()), program: None };
        let home = Home::new(&Settings::read(process), Some(Path::new("runs")), &KnownSecrets::default()).unwrap();
        let run = RunId::parse("comments").unwrap();
        assert!(home.workspace_for(&run, Some("mine"), Timestamp::from_millis(0)).is_ok());
    }

    /// Nothing of ours is removed with a run, whatever its row says, and no sub-agent reads above the root.
    #[test]
    fn s9_what_is_removed_or_opened_by_a_row_is_a_workspace() {
        let folder = tempfile::tempdir().unwrap();
        let home = home(folder.path(), None);
        let here = |name: &str| home.workspace_here(&home.root().join(name));
        assert_eq!(here("session_1"), Some("session_1".into()));
        assert_eq!(here("mine/x"), Some("mine/x".into()));
        for own in ["", "locks", "outbox", "outbox/new", "objects", "claude-code/r", "runtime_state.db", "../elsewhere"]
        {
            assert_eq!(here(own), None, "{own}");
        }
        let above = |name: &str| home.workspace_above(&home.root().join(name));
        assert_eq!(above("session_1/tasks/t"), Some(home.root().join("session_1")));
        for other in ["", "session_1", "session_1/tasks", "../elsewhere/x/y"] {
            assert_eq!(above(other), None, "{other}");
        }
    }

    /// Of two roots of one user a run of the one is in no workspace of the other, unless both have their runs in one database.
    #[test]
    fn s9_a_run_works_in_no_workspace_of_a_root_whose_runs_are_elsewhere() {
        use crate::env::Process;
        use crate::settings::Settings;

        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().canonicalize().unwrap();
        let at = |root: &str, database: Option<&str>| {
            let database =
                database.map(|file| ("UA_RUNTIME_DB_PATH".to_owned(), place.join(file).display().to_string()));
            let home = [("HOME".to_owned(), place.join("home").display().to_string())];
            let variables = home.into_iter().chain(database).collect();
            let process = Process { variables, folder: Some(place.clone()), program: None };
            Home::new(&Settings::read(process), Some(Path::new(root)), &KnownSecrets::default()).unwrap()
        };
        let mut run = ua_evidence::testing::Story::new(r#"{"objective": "x"}"#).records.run;
        for (databases, is_shared) in [([None, None], false), ([Some("runs.db"), Some("runs.db")], true)] {
            let [ours, theirs] = [("ours", databases[0]), ("theirs", databases[1])]
                .map(|(root, database)| at(&format!("{root}_{is_shared}"), database));
            for home in [&ours, &theirs] {
                super::super::close(home.open().unwrap());
            }
            // The folder of a database is noted as well, and is no root.
            for (root, is_found) in [(ours.root(), true), (theirs.root(), is_shared), (place.as_path(), false)] {
                run.workspace_dir = root.join("session_1").display().to_string();
                assert_eq!(ours.place_of_run(&run).is_ok(), is_found, "{} {is_shared}", run.workspace_dir);
            }
        }
    }

    #[test]
    fn no_workspace_is_behind_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (home, run, now) =
            (home(folder.path(), None), RunId::parse("comments").unwrap(), Timestamp::from_millis(0));
        let elsewhere = folder.path().join("elsewhere");
        fs::create_dir_all(&elsewhere).unwrap();
        fs::create_dir_all(home.root().join("mine")).unwrap();
        std::os::unix::fs::symlink(&elsewhere, home.root().join("mine/link")).unwrap();
        fs::write(home.root().join("mine/file"), "").unwrap();
        for name in ["mine/link/x", "mine/link/<id>", "mine/link/x/y"] {
            let refused = home.workspace_for(&run, Some(name), now).unwrap_err();
            assert!(refused.to_string().contains("mine/link is a link"), "{name}: {refused}");
            assert_eq!(refused.kind(), crate::error::Kind::Usage);
        }
        assert!(home.workspace_for(&run, Some("mine/file/x"), now).is_err());
        assert!(home.workspace_for(&run, Some("mine/link"), now).is_err(), "the link has the name");
        assert!(home.workspace_for(&run, Some("mine/new/x"), now).is_ok());
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    }
}
