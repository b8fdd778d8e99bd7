//! Where things are: the workspace root, the runtime database, the locks.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ua_core::{RunId, Timestamp};
use ua_files::Folder;
use ua_resume::Commands;
use ua_runner::LateFile;
use ua_store::StoreError;
#[cfg(feature = "postgres")]
use ua_store_postgres::{Place, PostgresConfig, PostgresStore};
use ua_store_sqlite::{SqliteConfig, SqliteStore};

use crate::database::Database;
use crate::error::HostError;
use crate::paths::{resolved, resolved_parent};
use crate::roots::{Belief, MARKER, Roots, first_link, state_folder};
use crate::settings::Settings;
use crate::text::plain;

/// Closes the database in good order. Whatever was committed stays, even if this fails.
pub fn close(store: Database) {
    if let Err(error) = store.close() {
        tracing::warn!(error = crate::error::chain(&error), "the runtime database was not closed cleanly");
    }
}

/// What keeps a folder of workspaces out of version control.
const GIT_IGNORE: (&str, &[u8]) =
    (".gitignore", b"# Mails, transcripts and the runtime database: nothing of it belongs into a repository.\n*\n");

/// The folder that holds all workspaces when nobody says which: in the current folder, or in the nearest folder above it that has one which
/// a `ua` of this user made or was told to use.
const DEFAULT_ROOT: &str = "AGENT_RUN_WORKSPACES";

/// The folders of this installation.
#[derive(Debug, Clone)]
pub struct Home {
    root: PathBuf,
    database: PathBuf,
    #[cfg(feature = "postgres")]
    server: Option<PostgresConfig>,
    is_default: bool,
    roots: Roots,
    /// A person named the root; one that nobody named, or only a project's file, has to be this user's own.
    root_is_named: bool,
}

/// What lies in a root, or beside a database, and belongs to no run.
const OWN: [&str; 10] = [
    "agent_core.db",
    "alerts",
    "effects.log",
    "late_replies.log",
    "locks",
    "notifications",
    "objects",
    "outbox",
    "policy_audit",
    "RESTART.md",
];

/// Whether something in a root is there because of its runs: what belongs to none of them, and workspaces under the names that they get by
/// themselves.
pub(crate) fn is_written_by_runs(name: &str, is_folder: bool) -> bool {
    OWN.contains(&name) || name == MARKER || name == ".gitignore" || (is_folder && name.starts_with("session_"))
}

impl Home {
    /// Takes `root`, else reads `UA_ROOT`, and `UA_RUNTIME_DB_PATH`; the default is `AGENT_RUN_WORKSPACES` in the current folder, or the
    /// one of this user in the nearest folder above.
    pub fn new(settings: &Settings, root: Option<&Path>) -> Result<Self, HostError> {
        let root_is_named = root.is_some() || settings.is_the_users("UA_ROOT");
        let root = root.map(Path::to_path_buf).or_else(|| settings.var("UA_ROOT").map(PathBuf::from));
        let roots = Roots::new(state_folder(settings));
        let usual = resolved_parent(&usual_root(settings, &roots)?);
        // Once, here: what is stored, compared and shown is the folder itself, whichever way a command spelt it.
        let spelt = if root_is_named { resolved } else { resolved_parent };
        let root =
            root.map_or_else(|| Ok::<_, HostError>(usual.clone()), |root| Ok(spelt(&settings.absolute(&root)?)))?;
        if root.to_str().is_none() {
            return Err(HostError::usage(format!("cannot use {}: its name is not UTF-8 text", root.display()))
                .hint("choose another folder with --root; its path is stored as text"));
        }
        let database = match settings.var("UA_RUNTIME_DB_PATH") {
            Some(path) => resolved(&settings.absolute(Path::new(&path))?),
            None => root.join("runtime_state.db"),
        };
        #[cfg(not(feature = "postgres"))]
        if settings.var("UA_DATABASE_URL").is_some() {
            return Err(
                HostError::usage("this ua was built without PostgreSQL").hint("build it with the feature `postgres`")
            );
        }
        // What a file says counts for every command that is given in the same folder; a flag and a variable may not be there again.
        let by_file = settings.of_files("UA_ROOT").map(|said| settings.absolute(Path::new(&said.value))).transpose()?;
        let is_default = resolved(&by_file.unwrap_or(usual)) == resolved(&root);
        Ok(Self {
            #[cfg(feature = "postgres")]
            server: server(settings)?,
            root,
            database,
            is_default,
            roots,
            root_is_named,
        })
    }

    /// The same, taken for this user's own whoever made it.
    #[must_use]
    pub(crate) fn trusted(mut self) -> Self {
        self.root_is_named = true;
        let root = resolved(&self.root);
        if let Ok(inside) = self.database.strip_prefix(&self.root) {
            self.database = root.join(inside);
        }
        self.root = root;
        self
    }

    /// The server that the runtime database is on, if it is no file.
    #[cfg(feature = "postgres")]
    pub fn server(&self) -> Option<&PostgresConfig> {
        self.server.as_ref()
    }

    /// This root as a place that a database on a server belongs to; it gets a name if it has none.
    #[cfg(feature = "postgres")]
    pub fn place(&self) -> Result<Place, HostError> {
        Place::of(&self.root, &self.locks(), &ua_core::system::env().uuid_v7()).map_err(|e| {
            HostError::storage(format!("cannot make files in {}: {e}", self.locks().display()))
                .hint("make that folder writable; nothing was started")
        })
    }

    /// The folder that holds all workspaces.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where a folder lies below the root, if it does; runs that an older version stored may spell it through `..` or a link.
    pub fn inside_root(&self, folder: &Path) -> Option<PathBuf> {
        let below = |folder: &Path| folder.strip_prefix(&self.root).ok().map(Path::to_path_buf);
        let is_plain = |path: &PathBuf| {
            path.components().next().is_some()
                && path.components().all(|part| matches!(part, std::path::Component::Normal(_)))
        };
        // Its own name may be a link, which leads wherever it leads; only what is above it is looked through.
        below(folder).filter(is_plain).or_else(|| below(&resolved_parent(folder)).filter(is_plain))
    }

    /// What makes the commands complete that people are told here.
    pub fn commands(&self) -> Commands {
        if self.is_default { Commands::default() } else { Commands::naming(&self.root) }
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

    /// The file of answers that the database did not take.
    pub fn late_replies(&self) -> PathBuf {
        self.state().join(LateFile::NAME)
    }

    /// The folder that says which alerts were sent.
    pub fn alerts(&self) -> PathBuf {
        self.state().join("alerts")
    }

    fn state(&self) -> &Path {
        #[cfg(feature = "postgres")]
        if self.server.is_some() {
            return &self.root;
        }
        self.database.parent().unwrap_or(&self.root)
    }

    /// Opens the database for work; makes it if this is the first run.
    pub fn open(&self) -> Result<Database, HostError> {
        self.believe()?;
        self.make()?;
        if let Some(link) = self.foreign_link() {
            return Err(link);
        }
        #[cfg(feature = "postgres")]
        if let Some(server) = &self.server {
            return served(server, Some(self.place()?));
        }
        // Workspaces without their database: its receipts are what keeps effects from happening twice, so it is never made anew.
        // A file that was emptied is as good as gone.
        let is_gone = fs::metadata(&self.database).map_or(true, |file| file.len() == 0);
        let expected = is_gone && self.was_used();
        let config = SqliteConfig { expected_existing: expected, ..SqliteConfig::new(&self.database) };
        SqliteStore::open(config).map(Database::File).map_err(|error| {
            let failure = cannot_open(&self.database, &error);
            if expected { failure.hint(self.put_it_back()) } else { failure }
        })
    }

    /// Refuses what [`Self::open`] would refuse of the folders, and leaves them as they are.
    ///
    /// # Errors
    /// The root cannot be made, or nothing can be written there.
    pub(crate) fn could_open(&self) -> Result<(), HostError> {
        self.believe()?;
        if let Some(link) = self.foreign_link() {
            return Err(link);
        }
        if fs::metadata(&self.database).is_ok_and(|file| file.len() > 0) {
            let opened = fs::OpenOptions::new().append(true).open(&self.database);
            return opened.map(drop).map_err(|e| {
                HostError::storage(format!("cannot open the runtime database {}: {e}", self.database.display()))
                    .hint("make it writable, or choose another folder with --root; nothing was started")
            });
        }
        // Only making something there tells for every file system: root may write anywhere, and not in /proc.
        let there = self.root.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
        let scratch = there.join(format!(".ua-check-{}", std::process::id()));
        let made = fs::create_dir(&scratch);
        if made.is_ok() {
            fs::remove_dir(&scratch).ok();
        }
        made.map_err(|e| self.cannot_make(&e))
    }

    fn cannot_make(&self, error: &std::io::Error) -> HostError {
        HostError::storage(format!("cannot create {}: {error}", self.root.display()))
            .hint("choose another folder with --root")
    }

    /// The refusal of a root in which something of ours is a link or a device.
    fn foreign_link(&self) -> Option<HostError> {
        let link = first_link(&self.root, &OWN).or_else(|| first_link(self.state(), &OWN))?;
        Some(
            HostError::usage(format!("{} is a link or a device, and ua writes there", link.display()))
                .hint("remove it, or choose another --root; nothing was started"),
        )
    }

    /// Makes the root if it is not there, and notes that it is this user's own.
    fn make(&self) -> Result<(), HostError> {
        let was_there = self.root.exists();
        // Without a place to note it, the root is good for this command: the next one asks for `--root`.
        if !self.root_is_named
            && self.roots.judge(&self.root) == Belief::Empty
            && let Err(error) = self.roots.make(&self.root)
        {
            tracing::debug!(%error, "the root could not be noted as this user's own");
        }
        fs::create_dir_all(&self.root).map_err(|e| self.cannot_make(&e))?;
        if !was_there {
            self.keep_out_of_git();
        }
        let adopted = self.root_is_named.then(|| self.roots.adopt(&self.root)).transpose();
        let beside = (self.state() != self.root).then(|| {
            fs::create_dir_all(self.state())?;
            self.roots.adopt(self.state())
        });
        if let (Err(error), _) | (_, Some(Err(error))) = (adopted, beside) {
            tracing::debug!(%error, "the root could not be noted as this user's own");
        }
        Ok(())
    }

    /// Keeps a root that this program made out of version control. A folder that was there already is its owner's to care for: it may hold
    /// more than runs.
    fn keep_out_of_git(&self) {
        let (name, text) = GIT_IGNORE;
        if let Err(error) = Folder::open_itself(&self.root).and_then(|root| root.replace(name, text)) {
            tracing::debug!(%error, "the root is not kept out of version control");
        }
    }

    /// Refuses a root or a database that nobody named and that this user's `ua` did not make: it came with a checkout, for instance, and a
    /// run in it would be driven as its maker said.
    fn believe(&self) -> Result<(), HostError> {
        let refused = |folder: &Path, why: &str| {
            Err(HostError::usage(format!("{} {why}", folder.display())).hint(format!(
                "its runs may start programs of somebody else; if it is yours, say so with `ua trust {0}` or --trust-root, or name it with --root {0}; \
                 nothing was read",
                folder.display()
            )))
        };
        if !self.root_is_named {
            match self.roots.judge(&self.root) {
                Belief::Empty | Belief::Own => {}
                Belief::Foreign if let Some(error) = unreadable(&self.root) => {
                    return Err(cannot_read(&self.root, &error));
                }
                Belief::Link => return refused(&self.root, "is a link that you did not name"),
                Belief::Foreign => return refused(&self.root, "was not made by your installation of ua"),
            }
        }
        Ok(())
    }

    /// Takes a folder with a database for this user's own.
    pub fn adopt(settings: &Settings, folder: &Path) -> Result<(), HostError> {
        let folder = settings.absolute(folder)?;
        Roots::new(state_folder(settings)).adopt(&folder).map_err(|e| {
            HostError::storage(format!("cannot note that {} is yours: {e}", folder.display()))
                .hint("set HOME or XDG_STATE_HOME, and make sure that both folders are writable; or name it with --root each time")
        })
    }

    /// Opens the database for looking only; it is never made or changed.
    pub fn open_read_only(&self) -> Result<Database, HostError> {
        self.believe()?;
        #[cfg(feature = "postgres")]
        if let Some(server) = &self.server {
            return served(server, Place::known(&self.root, &self.locks()));
        }
        self.file().map(Database::File)
    }

    /// The same of a file, with what only files have.
    pub fn open_file(&self) -> Result<SqliteStore, HostError> {
        self.believe()?;
        self.file()
    }

    fn file(&self) -> Result<SqliteStore, HostError> {
        match fs::metadata(&self.database) {
            Ok(_) => {}
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(cannot_read(&self.database, &error)),
            Err(_) if self.was_used() => {
                return Err(HostError::storage(format!("the runtime database {} is gone", self.database.display()))
                    .hint(self.put_it_back()));
            }
            Err(_) => {
                return Err(HostError::usage(format!("there is no runtime database at {}", self.database.display()))
                    .hint(
                        "no job was run here yet; start one with `ua job FILE`, or name another folder with --root",
                    ));
            }
        }
        SqliteStore::open_read_only(&self.database).map_err(|error| cannot_open(&self.database, &error))
    }

    /// Whether no job was run here yet: there is no database, and nothing that a run leaves. Lists are empty then.
    pub fn is_unused(&self) -> bool {
        // Whether a server has runs of this root, it is asked itself.
        #[cfg(feature = "postgres")]
        if self.server.is_some() {
            return false;
        }
        let is_there =
            fs::metadata(&self.database).map_or_else(|error| error.kind() != io::ErrorKind::NotFound, |_| true);
        !is_there && !self.was_used() && unreadable(&self.root).is_none()
    }

    /// Whether runs left something here, whatever became of the database: a workspace, or a line about an effect.
    fn was_used(&self) -> bool {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let has_workspaces = entries
            .into_iter()
            .any(|entry| entry.file_name().to_string_lossy().starts_with("session_") && entry.path().is_dir());
        has_workspaces || fs::metadata(self.state().join("effects.log")).is_ok_and(|log| log.len() > 0)
    }

    /// Whether the database was moved to a server, by what is kept of it.
    fn was_moved(&self) -> bool {
        let name = self.database.file_name().unwrap_or_default().to_string_lossy();
        let kept = format!("{name}.moved-");
        let entries = fs::read_dir(self.database.parent().unwrap_or(&self.root)).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(&kept))
    }

    /// What to do about a database that is gone.
    fn put_it_back(&self) -> String {
        if self.was_moved() {
            return "it was moved to a server (`ua db copy`): name it with --database-url, or in UA_DATABASE_URL; nothing was changed"
                .to_owned();
        }
        format!(
            "runs were made in {}, and only their database knows what they did outside: put it back (`ua db restore COPY` takes a copy \
             that `ua db backup` made), or choose another --root for new runs; nothing was changed",
            self.root.display()
        )
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
                "`artifacts.workspace_dir` is {name:?}, which has characters that no name needs"
            ))
            .hint("name a folder in plain text; nothing was started"));
        }
        if let Some(own) = self.own_name(path) {
            return Err(HostError::usage(format!(
                "`artifacts.workspace_dir` is {name:?}, and `{own}` in the workspace root is ua's own"
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

/// A database file that cannot be opened: nothing was done with it yet, whoever wanted to.
fn cannot_open(database: &Path, error: &StoreError) -> HostError {
    let opening = format!("open the runtime database {}", database.display());
    match error {
        // What SQLite says below says the same once more.
        StoreError::Unavailable { why, .. } if !why.contains("is full") => {
            HostError::storage(format!("cannot {opening}: {why}")).hint(
                "nothing was changed; see who owns the file and whether it is one of ua's, put a copy back with `ua db restore COPY` that \
                 `ua db backup` made, or name another folder with --root",
            )
        }
        StoreError::Unavailable { .. }
        | StoreError::Corrupt { .. }
        | StoreError::NotFound { .. }
        | StoreError::Conflict { .. }
        | StoreError::Exists { .. }
        | StoreError::Fenced { .. }
        | StoreError::KeyTaken { .. }
        | StoreError::ScopeTouched { .. }
        | StoreError::EffectLimit { .. }
        | StoreError::Repeated { .. }
        | StoreError::WentBack { .. }
        | StoreError::TailLost { .. } => HostError::store(&opening, error),
    }
}

/// Where workspaces are when nobody says: in the folder of this process, else in the nearest folder above it that has them, if they are this
/// user's own. What somebody else left above is not even looked into.
fn usual_root(settings: &Settings, roots: &Roots) -> Result<PathBuf, HostError> {
    let here = settings.absolute(Path::new(DEFAULT_ROOT))?;
    if fs::symlink_metadata(&here).is_ok() {
        return Ok(here);
    }
    let above = here.ancestors().skip(2).map(|folder| folder.join(DEFAULT_ROOT));
    let found = above.into_iter().find(|root| roots.judge(root) == Belief::Own);
    Ok(found.unwrap_or(here))
}

/// Why a folder cannot be looked into, if it is there and cannot.
fn unreadable(folder: &Path) -> Option<io::Error> {
    fs::read_dir(folder).err().filter(|error| error.kind() != io::ErrorKind::NotFound)
}

fn cannot_read(path: &Path, error: &io::Error) -> HostError {
    HostError::storage(format!("cannot read {}: {error}", path.display()))
        .hint("make it yours (`chown`, `chmod u+rwX`), or choose another folder with --root; nothing was changed")
}

/// The database on a server, as it is used from a place.
#[cfg(feature = "postgres")]
fn served(server: &PostgresConfig, place: Option<Place>) -> Result<Database, HostError> {
    let mut config = server.clone();
    config.place = place;
    let store = PostgresStore::lazy(&config);
    store.map(Database::Server).map_err(|error| HostError::store("reach the runtime database", &error))
}

/// The server that the settings name.
#[cfg(feature = "postgres")]
fn server(settings: &Settings) -> Result<Option<PostgresConfig>, HostError> {
    let Some(url) = settings.var("UA_DATABASE_URL") else { return Ok(None) };
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(HostError::usage("the database URL does not begin with postgres://").hint(
            "for example postgres://ua@db.example/ua; a file is named by UA_RUNTIME_DB_PATH, or lies in --root",
        ));
    }
    let config = PostgresConfig::from_url(&url).map_err(|error| {
        HostError::usage(crate::error::chain(&error))
            .hint("for example postgres://ua@db.example/ua?sslmode=verify-full")
    })?;
    Ok(Some(config))
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
    fn a_root_is_one_folder_however_it_is_spelt() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().canonicalize().unwrap();
        fs::create_dir_all(place.join("w/sub")).unwrap();
        std::os::unix::fs::symlink(place.join("w"), place.join("link")).unwrap();
        // Before it is made, and after.
        for _ in 0..2 {
            for (from, spelling) in
                [("", "w/runs"), ("w/sub", "../runs"), ("w/sub", "../../link/./runs"), ("link", "runs")]
            {
                let home = home(&place.join(from), Some(spelling));
                assert_eq!(home.root(), place.join("w/runs"), "{spelling} from {from}");
                assert_eq!(home.database(), place.join("w/runs/runtime_state.db"));
                assert_eq!(home.inside_root(&place.join("link/runs/session_1")), Some("session_1".into()));
                assert_eq!(home.inside_root(&place.join("w/sub/../runs/a/b")), Some("a/b".into()));
                assert_eq!(home.inside_root(&place.join("w/runs/../sub")), None);
            }
            fs::create_dir_all(place.join("w/runs")).unwrap();
        }
        std::os::unix::fs::symlink(place.join("w/runs"), place.join("runs_by_link")).unwrap();
        assert_eq!(home(&place, Some("runs_by_link")).root(), place.join("w/runs"));
    }

    #[test]
    fn a_root_that_the_project_names_needs_no_flag() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ua.toml"), "root = \"runs\"\n").unwrap();
        assert_eq!(home(folder.path(), None).root(), folder.path().join("runs"));
        assert!(home(folder.path(), None).is_default() && !home(folder.path(), Some("others")).is_default());
        assert!(!home(folder.path(), Some(DEFAULT_ROOT)).is_default(), "another one than the project's");
    }

    #[test]
    fn a_root_above_is_found_if_it_is_this_users_own() {
        let folder = tempfile::tempdir().unwrap();
        let (work, user) = (folder.path().join("work"), folder.path().join("home"));
        let below = work.join("a/b");
        fs::create_dir_all(&below).unwrap();
        let variables = [("HOME".to_owned(), user.display().to_string())];
        let home = |folder: &Path| {
            let process = Process {
                folder: Some(folder.to_path_buf()),
                variables: variables.clone().into(),
                ..Process::default()
            };
            Home::new(&Settings::read(process), None).unwrap()
        };
        // Somebody else's is passed over, as if it were not there.
        fs::create_dir_all(work.join(DEFAULT_ROOT).join("locks")).unwrap();
        assert_eq!(home(&below).root(), below.join(DEFAULT_ROOT));
        fs::remove_dir_all(work.join(DEFAULT_ROOT)).unwrap();
        close(home(&work).open().unwrap());
        assert_eq!(home(&below).root(), work.join(DEFAULT_ROOT));
        assert!(home(&below).is_default(), "a command given there needs no --root");
        assert!(!home(&below).is_unused());
        // One that is there already, or is named, comes first.
        fs::create_dir(below.join(DEFAULT_ROOT)).unwrap();
        assert_eq!(home(&below).root(), below.join(DEFAULT_ROOT));
    }

    #[test]
    fn a_root_that_ua_makes_stays_out_of_version_control() {
        let folder = tempfile::tempdir().unwrap();
        close(home(folder.path(), Some("runs")).open().unwrap());
        let ignored = fs::read_to_string(folder.path().join("runs/.gitignore")).unwrap();
        assert!(ignored.lines().any(|line| line == "*"), "{ignored}");
        // A folder that was there may hold more than runs.
        fs::create_dir(folder.path().join("project")).unwrap();
        close(home(folder.path(), Some("project")).open().unwrap());
        assert!(!folder.path().join("project/.gitignore").exists());
    }

    #[test]
    fn a_database_that_is_gone_is_no_empty_folder() {
        let folder = tempfile::tempdir().unwrap();
        let home = home(folder.path(), Some("runs"));
        assert!(home.is_unused());
        assert_eq!(home.open_read_only().unwrap_err().kind(), crate::error::Kind::Usage);
        fs::create_dir_all(home.root()).unwrap();
        fs::write(home.root().join("effects.log"), "{}\n").unwrap();
        assert!(!home.is_unused());
        for refused in [home.open_read_only().unwrap_err(), home.open().unwrap_err()] {
            assert_eq!(refused.kind(), crate::error::Kind::Storage, "{refused}");
            assert!(refused.hint_text().unwrap().contains("put it back"), "{refused}");
        }
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

    #[test]
    fn a_root_that_nobody_named_has_to_be_this_users_own() {
        let folder = tempfile::tempdir().unwrap();
        let (work, user) = (folder.path().join("work"), folder.path().join("home"));
        fs::create_dir_all(work.join(DEFAULT_ROOT)).unwrap();
        let variables = [("HOME".to_owned(), user.display().to_string())];
        let process =
            || Process { folder: Some(work.clone()), variables: variables.clone().into(), ..Process::default() };
        let settings = Settings::read(process());
        let home = |root: Option<&str>| Home::new(&settings, root.map(Path::new)).unwrap();
        fs::write(work.join(DEFAULT_ROOT).join("runtime_state.db"), "theirs").unwrap();
        let refused = home(None).open().unwrap_err();
        assert!(refused.to_string().contains("was not made by your installation of ua"), "{refused}");
        assert!(home(None).open_read_only().unwrap_err().to_string().contains("was not made by"));
        // A name is a word: now it is a file that is no database.
        assert!(!home(Some(DEFAULT_ROOT)).open().unwrap_err().to_string().contains("was not made by"));
        fs::remove_dir_all(work.join(DEFAULT_ROOT)).unwrap();
        close(home(None).open().unwrap());
        close(home(None).open().unwrap());
        // A project names no database, its own or one in the user's root.
        for database in ["db/x.db", "AGENT_RUN_WORKSPACES/other.db"] {
            fs::write(work.join("ua.toml"), format!("database = \"{database}\"\n")).unwrap();
            let refused = Settings::read(process()).check().unwrap_err();
            assert!(refused.to_string().contains("a project may not set `database`"), "{refused}");
        }
        // Links among its own files.
        fs::remove_file(work.join("ua.toml")).unwrap();
        let settings = Settings::read(process());
        std::os::unix::fs::symlink(&user, work.join(DEFAULT_ROOT).join("outbox")).unwrap();
        let refused = Home::new(&settings, None).unwrap().open().unwrap_err();
        assert!(refused.to_string().contains("outbox is a link"), "{refused}");
    }
}
