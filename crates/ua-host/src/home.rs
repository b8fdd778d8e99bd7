//! Where things are: the workspace root, the runtime database, the locks.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ua_core::{RunId, ShowPath as _};
use ua_files::Folder;
use ua_resume::Commands;
use ua_runner::LateFile;
#[cfg(feature = "postgres")]
use ua_store_postgres::{Place, PostgresConfig};

mod copies;
mod elsewhere;
mod launches;
mod opening;
mod planted;
mod workspaces;

use self::elsewhere::OTHER_DATABASE;
pub use self::opening::{cannot_write, close};
pub(crate) use self::opening::{of_another_user, owner_of_database};
use crate::error::HostError;
use crate::hint::{Word, text};
use crate::paths::{resolved, resolved_parent};
use crate::roots::{Belief, MARKER, Roots, state_folder};
use crate::settings::Settings;
use crate::words::KnownSecrets;

/// The folder that holds all workspaces when nobody says which: in the current folder, or in the nearest folder above it that has one which
/// a `ua` of this user made or was told to use.
pub(crate) const DEFAULT_ROOT: &str = "AGENT_RUN_WORKSPACES";
/// The name of the database in a root, unless it is said to be elsewhere.
pub(crate) const DATABASE: &str = "runtime_state.db";
/// The folder of locks.
pub(crate) const LOCKS: &str = "locks";

/// The folders of this installation.
#[derive(Debug, Clone)]
pub struct Home {
    root: PathBuf,
    database: PathBuf,
    #[cfg(feature = "postgres")]
    server: Option<PostgresConfig>,
    is_default: bool,
    /// A command that is given in the same folder finds the database, without being told where it is.
    database_is_default: bool,
    roots: Roots,
    /// Where the root is named: a variable, or a file and its line; `None` where a flag names it, or nothing.
    root_is_said_in: Option<String>,
    /// Where the database is named, if it is not simply in the root.
    database_is_said_in: Option<String>,
    /// Where a root was found that nobody named, if that is not the current folder.
    found_where: Option<&'static str>,
    /// A person named the root; one that nobody named, or only a project's file, has to be this user's own.
    root_is_named: bool,
    /// A person said with this command that the runs in it are theirs, with the programs that they start.
    root_is_trusted: bool,
    /// Every file and folder that a setting names, where it leads, with the key of the setting.
    named: Vec<(&'static str, PathBuf)>,
    /// What no word that is stored here may hold.
    known: KnownSecrets,
    /// The number of the user who called `sudo`.
    called_by: Option<u32>,
}

/// The folder, beside the locks, with what the program behind the provider `claude-code` keeps of each run. No tool may write there.
const AGENTS: &str = "claude-code";

/// What lies in a root, or beside a database, and belongs to no run.
const OWN: [&str; 11] = [
    "agent_core.db",
    "alerts",
    AGENTS,
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
    OWN.contains(&name)
        || name == MARKER
        || name == OTHER_DATABASE
        || name == ".gitignore"
        || (is_folder && name.starts_with("session_"))
}

fn another_root(said_in: Option<&str>) -> String {
    match said_in {
        Some(place) => format!("choose another folder in {place}, or with --root"),
        None => "choose another folder with --root".to_owned(),
    }
}

impl Home {
    /// Takes `root`, else reads `UA_ROOT`, and `UA_RUNTIME_DB_PATH`; the default is `AGENT_RUN_WORKSPACES` in the current folder, or the
    /// one of this user in the nearest folder above. What is stored in its database holds none of the secrets that are `known`.
    pub fn new(settings: &Settings, root: Option<&Path>, known: &KnownSecrets) -> Result<Self, HostError> {
        // A flag says more than a variable.
        let said_by = ["UA_RUNTIME_DB_PATH", "UA_DATABASE_URL"].into_iter().chain(root.is_none().then_some("UA_ROOT"));
        for variable in said_by {
            settings.not_empty(variable)?;
        }
        let is_said = root.is_none() && settings.var("UA_ROOT").is_some();
        let root_is_said_in = is_said.then(|| settings.said_as("UA_ROOT"));
        let root_is_named = root.is_some() || settings.is_the_users("UA_ROOT");
        let root = root.map(Path::to_path_buf).or_else(|| settings.var("UA_ROOT").map(PathBuf::from));
        let roots = Roots::new(state_folder(settings));
        let usual = usual_root(settings, &roots)?;
        let is_above = root.is_none() && usual != settings.absolute(Path::new(DEFAULT_ROOT))?;
        let usual = resolved_parent(&usual);
        // Once, here: what is stored, compared and shown is the folder itself, whichever way a command spelt it.
        let spelt = if root_is_named { resolved } else { resolved_parent };
        let root =
            root.map_or_else(|| Ok::<_, HostError>(usual.clone()), |root| Ok(spelt(&settings.absolute(&root)?)))?;
        if root.to_str().is_none() {
            return Err(HostError::usage(format!("cannot use {}: its name is not UTF-8 text", root.shown()))
                .hint(format!("{}; its path is stored as text", another_root(root_is_said_in.as_deref()))));
        }
        // Whose the place is, said so: a file in a checkout names no database.
        let of_broker = if root_is_named { crate::gateway::with_database(settings, &root)? } else { None };
        let settings = of_broker.as_ref().unwrap_or(settings);
        let database = match settings.var("UA_RUNTIME_DB_PATH") {
            Some(path) => resolved(&settings.absolute(Path::new(&path))?),
            None => root.join(DATABASE),
        };
        #[cfg(not(feature = "postgres"))]
        if settings.var("UA_DATABASE_URL").is_some() {
            return Err(
                HostError::usage("this ua was built without PostgreSQL").hint("build it with the feature `postgres`")
            );
        }
        if of_broker.is_some() {
            known.learn_own(settings);
        }
        // What a file says counts for every command that is given in the same folder; a flag and a variable may not be there again.
        let by_file = settings.of_files("UA_ROOT").map(|said| settings.absolute(Path::new(&said.value))).transpose()?;
        let is_default = resolved(&by_file.unwrap_or(usual)) == resolved(&root);
        let of_files = settings.of_files("UA_RUNTIME_DB_PATH");
        let by_file = of_files.map(|said| settings.absolute(Path::new(&said.value))).transpose()?;
        let database_is_default = resolved(&by_file.unwrap_or_else(|| root.join(DATABASE))) == resolved(&database);
        Ok(Self {
            #[cfg(feature = "postgres")]
            server: server(settings)?,
            root,
            database,
            is_default,
            database_is_default,
            roots,
            found_where: is_above.then_some("the nearest folder above this one that has runs"),
            root_is_said_in,
            database_is_said_in: settings.var("UA_RUNTIME_DB_PATH").map(|_| settings.said_as("UA_RUNTIME_DB_PATH")),
            root_is_named,
            root_is_trusted: false,
            known: known.clone(),
            called_by: settings.of_environment("SUDO_UID").and_then(|number| number.parse().ok()),
            named: settings.places().into_iter().map(|(key, place)| (key, resolved(&place))).collect(),
        })
    }

    /// How another folder is chosen, as the end of a hint: where this one was named, or by the flag that is stronger.
    pub fn another_root(&self) -> String {
        another_root(self.root_is_said_in.as_deref())
    }

    /// The variable of the environment that names the root, if that is what does.
    pub fn variable_of_root(&self) -> Option<&str> {
        // What a file says stands with its line.
        self.root_is_said_in.as_deref().filter(|place| !place.starts_with('`'))
    }

    /// How another database is chosen: with the root that it is in, unless it is named itself.
    pub(crate) fn another_database(&self) -> String {
        match &self.database_is_said_in {
            Some(place) => format!("name another file in {place}, or none there for the one in the root"),
            None => self.another_root(),
        }
    }

    /// The same, taken for this user's own whoever made it.
    #[must_use]
    pub(crate) fn trusted(mut self) -> Self {
        self.root_is_named = true;
        self.root_is_trusted = true;
        let root = resolved(&self.root);
        if let Ok(inside) = self.database.strip_prefix(&self.root) {
            self.database = root.join(inside);
        }
        self.root = root;
        self
    }

    /// The same for a job: where nobody named a place, and there is none of this user's here or above, the one that lies beside the job's file
    /// or above it. A job that is started from another folder finds its runs, and what they did.
    #[must_use]
    pub(crate) fn beside(mut self, settings: &Settings, job: &Path) -> Self {
        let is_said = settings.var("UA_ROOT").is_some() || self.database_is_said_in.is_some() || self.is_on_a_server();
        if self.root_is_named || is_said || fs::symlink_metadata(&self.root).is_ok() {
            return self;
        }
        let Ok(job) = settings.absolute(job) else { return self };
        let above = job.ancestors().skip(1).map(|folder| folder.join(DEFAULT_ROOT));
        if let Some(root) = above.into_iter().find(|root| self.roots.judge(root) == Belief::Own) {
            self.root = resolved_parent(&root);
            self.database = self.root.join(DATABASE);
            self.is_default = false;
            // Whoever asked for it is told so, and says it.
            self.found_where = None;
        }
        self
    }

    /// Where else runs of a job may be that is started here: in a place of this user's in the current folder or above it, or beside the job's file
    /// or above that. A project's settings may lead from one to the other. Nowhere else where a person named the place.
    pub(crate) fn other_places(&self, settings: &Settings, job: &Path) -> Vec<Self> {
        if self.root_is_named || self.database_is_said_in.is_some() || self.is_on_a_server() {
            return Vec::new();
        }
        let from = [settings.absolute(Path::new(DEFAULT_ROOT)), settings.absolute(job)].into_iter().flatten();
        let above: Vec<PathBuf> = from
            .flat_map(|path| path.ancestors().skip(1).map(|folder| folder.join(DEFAULT_ROOT)).collect::<Vec<_>>())
            .collect();
        let mut found: Vec<Self> = Vec::new();
        for root in above.into_iter().filter(|root| self.roots.judge(root) == Belief::Own) {
            let root = resolved_parent(&root);
            if root != self.root && found.iter().all(|other| other.root != root) {
                let database = root.join(DATABASE);
                found.push(Self { root, database, is_default: false, found_where: None, ..self.clone() });
            }
        }
        found
    }

    /// What somebody is told who begins a run: that it is kept where nobody said, and where other runs are that the same words may mean.
    pub(crate) fn found_elsewhere(&self) -> Option<String> {
        let why = self.found_where.filter(|_| fs::symlink_metadata(&self.root).is_ok())?;
        Some(format!("runs are kept in {}, {why}; `--root DIR` names another folder", self.root.shown()))
    }

    /// Whether the runtime database is on a server.
    pub fn is_on_a_server(&self) -> bool {
        #[cfg(feature = "postgres")]
        return self.server.is_some();
        #[cfg(not(feature = "postgres"))]
        false
    }

    /// Whether both have their runs in one database.
    pub(crate) fn has_the_database_of(&self, other: &Self) -> bool {
        #[cfg(feature = "postgres")]
        if self.server.is_some() || other.server.is_some() {
            return self.server.as_ref().zip(other.server.as_ref()).is_some_and(|(own, other)| own.is_where(other));
        }
        self.database == other.database
    }

    /// The server that the runtime database is on, if it is no file.
    #[cfg(feature = "postgres")]
    pub fn server(&self) -> Option<&PostgresConfig> {
        self.server.as_ref()
    }

    /// This root as a place that a database on a server belongs to; it gets a name if it has none.
    #[cfg(feature = "postgres")]
    pub fn place(&self) -> Result<Place, HostError> {
        self.refuse_somebody_elses()?;
        Place::of(&self.root, &self.locks(), &ua_core::system::env().uuid_v7()).map_err(|e| {
            HostError::storage(format!("cannot create files in {}: {e}", self.locks().shown()))
                .hint(crate::paths::mend_folder(&e))
                .not_begun()
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
        // One that the next command would not know by itself is named, too.
        let is_known = self.root_is_named || self.roots.cannot_note().is_none();
        let commands = if self.is_default && is_known { Commands::default() } else { Commands::naming(&self.root) };
        self.in_its_database(commands, self.database_is_default)
    }

    /// The same for what is kept or sent away: whoever reads it may be in any folder, and on the phone.
    pub fn commands_from_anywhere(&self) -> Commands {
        self.in_its_database(Commands::naming(&self.root), self.database == self.root.join(DATABASE))
    }

    /// Commands that find the database as well, which whoever gives them knows already or not.
    fn in_its_database(&self, commands: Commands, is_known: bool) -> Commands {
        match (self.is_on_a_server(), is_known) {
            (true, _) => commands.on_a_server(),
            (false, true) => commands,
            (false, false) => commands.in_database(&self.database),
        }
    }

    /// Whether a command that names no root, given in the same folder, has this one.
    pub fn is_default(&self) -> bool {
        self.is_default
    }

    /// The runtime database.
    pub fn database(&self) -> &Path {
        &self.database
    }

    /// Which database it is, for people: `database ua on db.example`, or the path of a file.
    pub fn database_in_words(&self) -> String {
        #[cfg(feature = "postgres")]
        if let Some(server) = &self.server {
            return server.shown();
        }
        format!("database {}", self.database.shown())
    }

    /// Whether a file, there or not, is one of those that everything of this root stands in: the database and what belongs to it, logs, locks.
    /// The workspaces of its runs are not.
    pub fn is_own_file(&self, file: &Path) -> bool {
        let file = std::path::absolute(file).map_or_else(|_| file.to_path_buf(), |file| resolved_parent(&file));
        let folder = file.parent().unwrap_or(Path::new(""));
        let is_below = |place: &Path| {
            let mut own = OWN.iter().map(|name| resolved(&place.join(name)));
            own.any(|own| file.starts_with(own))
        };
        let database = self.database.file_name().unwrap_or_default().as_encoded_bytes();
        let is_database = folder == resolved(self.state())
            && file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(database));
        // The database may stand in a folder that is otherwise a person's; a root is ours.
        folder == resolved(&self.root) || is_below(&self.root) || is_below(self.state()) || is_database
    }

    /// The real clock and the source of ids; the clock keeps here how it is set.
    pub(crate) fn env(&self) -> ua_core::Env {
        ua_runner::with_kept_clock(ua_core::system::env(), self.locks())
    }

    /// The folder of the lock files.
    pub fn locks(&self) -> PathBuf {
        self.state().join(LOCKS)
    }

    /// Refuses a folder of locks in which nothing new can be made, before a run is stored or taken: it needs a lock of its own, and so does each
    /// of its tool servers. `then` is what the hint ends with.
    pub(crate) fn can_lock(&self, done: Word) -> Result<(), HostError> {
        let folder = self.locks();
        let opened = Folder::make_itself(&folder);
        opened.and_then(|_| tempfile::tempfile_in(&folder)).map(drop).map_err(|e| {
            HostError::storage(format!("cannot create files in {}: {e}", folder.shown()))
                .hint([text(format!("{}, then ", crate::paths::mend_folder(&e))), Word::Again, text("; "), done])
                .of_the_machine()
        })
    }

    /// The folders in which it is noted where commands are given from.
    pub fn notes(&self) -> Vec<PathBuf> {
        let locks = Some(self.locks()).filter(|_| !self.is_somebody_elses());
        [locks, self.roots.state().map(Path::to_path_buf)].into_iter().flatten().collect()
    }

    /// The file of answers that the database did not take.
    pub fn late_replies(&self) -> PathBuf {
        self.state().join(LateFile::NAME)
    }

    /// The folder that says which alerts were sent.
    pub fn alerts(&self) -> PathBuf {
        self.state().join("alerts")
    }

    /// Where the program behind the provider `claude-code` has its home for a run.
    pub fn agent_folder(&self, run: &RunId) -> PathBuf {
        self.state().join(AGENTS).join(run.as_str())
    }

    /// Makes that folder, if it is not there.
    pub(crate) fn make_agent_folder(&self, run: &RunId) -> Result<PathBuf, HostError> {
        let made = Folder::open(self.state()).and_then(|state| state.make_folder(Path::new(AGENTS).join(run.as_str())));
        made.map(|folder| folder.path().to_path_buf()).map_err(|e| {
            HostError::storage(format!("cannot make {}: {e}", self.agent_folder(run).shown()))
                .hint("make the folder above it writable")
                .not_begun()
        })
    }

    /// Removes that folder, if it is there.
    ///
    /// # Errors
    /// It is there, and cannot be removed.
    pub fn remove_agent_folder(&self, run: &RunId) -> io::Result<()> {
        match fs::remove_dir_all(self.agent_folder(run)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn state(&self) -> &Path {
        #[cfg(feature = "postgres")]
        if self.server.is_some() {
            return &self.root;
        }
        self.database.parent().unwrap_or(&self.root)
    }

    /// Takes a folder with a database for this user's own.
    pub fn adopt(settings: &Settings, folder: &Path) -> Result<(), HostError> {
        let folder = settings.absolute(folder)?;
        let roots = Roots::new(state_folder(settings));
        let adopted = roots.adopt(&folder).and_then(|()| {
            let database = folder.join(DATABASE);
            ua_store_sqlite::adopt_beside(&database).map_err(io::Error::other)?;
            let Some(identity) = ua_store_sqlite::identity_of(&database) else { return Ok(()) };
            // How its runs were started nobody but whoever made it has said.
            roots.note_launches(&database, &identity, false)?;
            roots.note_database(&database, &identity)
        });
        adopted.map_err(|e| {
            HostError::storage(format!("cannot record that {} is yours: {e}", folder.shown()))
                .hint("set HOME or XDG_STATE_HOME, and make sure that both folders are writable; or name it with --root each time")
        })
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

/// The server that the settings name.
#[cfg(feature = "postgres")]
fn server(settings: &Settings) -> Result<Option<PostgresConfig>, HostError> {
    let Some(url) = settings.var("UA_DATABASE_URL") else { return Ok(None) };
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(HostError::usage("the database URL does not begin with postgres://").hint(
            "for example postgres://ua@db.example/ua; a database file is named by UA_RUNTIME_DB_PATH, or is in --root",
        ));
    }
    let config = PostgresConfig::from_url(&url).map_err(|error| {
        HostError::usage(crate::error::chain(&error))
            .hint("for example postgres://ua@db.example/ua?sslmode=verify-full")
    })?;
    Ok(Some(config))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;
    use crate::env::Process;

    pub(super) fn home(folder: &Path, root: Option<&str>) -> Home {
        let settings = Settings::read(Process { folder: Some(folder.to_path_buf()), ..Process::default() });
        Home::new(&settings, root.map(Path::new), &KnownSecrets::default()).unwrap()
    }

    #[test]
    fn a_relative_root_is_of_the_folder_that_was_given() {
        let folder = Path::new("/somewhere/else");
        assert_eq!(home(folder, Some("runs")).root(), folder.join("runs"));
        assert_eq!(home(folder, None).root(), folder.join(DEFAULT_ROOT));
        assert!(home(folder, Some(DEFAULT_ROOT)).is_default() && !home(folder, Some("runs")).is_default());
    }

    /// Other runs than those that were meant would be found there, and sent again what those sent.
    #[test]
    fn a_variable_that_says_where_runs_are_is_not_empty() {
        let home = |variable: &str, root: Option<&str>| {
            let variables = [(variable.to_owned(), String::new())].into();
            let process = Process { folder: Some("/somewhere".into()), variables, ..Process::default() };
            Home::new(&Settings::read(process), root.map(Path::new), &KnownSecrets::default())
                .map_err(|error| error.to_string())
        };
        for variable in ["UA_ROOT", "UA_RUNTIME_DB_PATH", "UA_DATABASE_URL"] {
            let why = home(variable, None).unwrap_err();
            assert_eq!(why, format!("the variable {variable} is set and empty"));
        }
        assert!(home("UA_ROOT", Some("runs")).is_ok() && home("UA_DATABASE_URL", Some("runs")).is_err());
        assert!(home("UA_MODELS", None).is_ok());
    }

    #[test]
    fn a_job_that_is_started_from_elsewhere_finds_the_root_beside_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().canonicalize().unwrap();
        let mill = place.join("mill");
        fs::create_dir_all(mill.join("deep")).unwrap();
        let at = |folder: &Path, root: Option<&str>, job: &str| {
            let variables = [("HOME".to_owned(), place.join("home").display().to_string())].into();
            let process = Process { folder: Some(folder.to_path_buf()), variables, ..Process::default() };
            let settings = Settings::read(process);
            Home::new(&settings, root.map(Path::new), &KnownSecrets::default())
                .unwrap()
                .beside(&settings, Path::new(job))
        };
        let (here, there) = (place.join(DEFAULT_ROOT), mill.join(DEFAULT_ROOT));
        assert_eq!(at(&place, None, "mill/job.json").root(), here, "there is none");
        opening::close(at(&mill, None, "job.json").open().unwrap());
        for job in ["mill/job.json", "mill/deep/job.json", "./mill/../mill/job.json"] {
            let home = at(&place, None, job);
            assert_eq!((home.root(), home.is_default()), (there.as_path(), false), "{job}");
            assert_eq!(home.database(), there.join(DATABASE));
            assert_eq!(home.commands(), Commands::naming(&there), "the next command is told where");
        }
        assert_eq!(at(&place, None, "other/job.json").root(), here);
        // A name is a word, and so is a root that is there.
        assert_eq!(at(&place, Some("runs"), "mill/job.json").root(), place.join("runs"));
        opening::close(at(&place, None, "other/job.json").open().unwrap());
        assert_eq!(at(&place, None, "mill/job.json").root(), here);
        // Somebody else's is not looked into.
        fs::remove_dir_all(&here).unwrap();
        fs::remove_file(there.join(MARKER)).unwrap();
        assert_eq!(at(&place, None, "mill/job.json").root(), here);
    }

    #[test]
    fn another_root_is_chosen_where_this_one_was_named() {
        let folder = tempfile::tempdir().unwrap();
        let by = |variables: &[(&str, &str)], root: Option<&str>| {
            let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let folder = Some(folder.path().to_path_buf());
            let settings = Settings::read(Process { variables, folder, ..Process::default() });
            Home::new(&settings, root.map(Path::new), &KnownSecrets::default()).unwrap().another_root()
        };
        let flag = "choose another folder with --root";
        assert_eq!(by(&[], None), flag);
        assert_eq!(by(&[("UA_ROOT", "/x")], None), "choose another folder in UA_ROOT, or with --root");
        assert_eq!(by(&[("UA_ROOT", "/x")], Some("runs")), flag, "the flag is stronger");
        fs::write(folder.path().join("ua.toml"), "root = \"AGENT_RUN_WORKSPACES\"\n").unwrap();
        let place = folder.path().join("ua.toml:1");
        assert_eq!(by(&[], None), format!("choose another folder in `root` ({}), or with --root", place.display()));
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
        let root = Path::new("deep").join(DEFAULT_ROOT);
        fs::write(folder.path().join("ua.toml"), format!("root = {root:?}\n")).unwrap();
        assert_eq!(home(folder.path(), None).root(), folder.path().join(root));
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
            Home::new(&Settings::read(process), None, &KnownSecrets::default()).unwrap()
        };
        // Somebody else's is passed over, as if it were not there.
        fs::create_dir_all(work.join(DEFAULT_ROOT).join("locks")).unwrap();
        assert_eq!(home(&below).root(), below.join(DEFAULT_ROOT));
        fs::remove_dir_all(work.join(DEFAULT_ROOT)).unwrap();
        close(home(&work).open().unwrap());
        assert_eq!(home(&below).root(), work.join(DEFAULT_ROOT));
        assert!(home(&below).is_default(), "a command given there needs no --root");
        let said = home(&below).found_elsewhere().unwrap();
        assert!(said.contains(&work.join(DEFAULT_ROOT).display().to_string()) && said.contains("--root"), "{said}");
        assert_eq!(home(&work).found_elsewhere(), None);
        assert!(!home(&below).is_unused());
        // One that is there already, or is named, comes first.
        fs::create_dir(below.join(DEFAULT_ROOT)).unwrap();
        assert_eq!(home(&below).root(), below.join(DEFAULT_ROOT));
    }
}
