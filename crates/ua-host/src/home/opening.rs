//! Opening: the database of a root, for work or for looking, and what refuses that.
//!
//! Invariants: a root that nobody named and that is not this user's own is not read; a database that is gone where runs left something is
//! never made anew.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ua_core::{PrintedCommand, RunId, ShowPath as _};
use ua_files::Folder;
use ua_store::{RunRecord, StoreError};
#[cfg(feature = "postgres")]
use ua_store_postgres::{Place, PostgresConfig, PostgresStore};
#[cfg(feature = "postgres")]
use ua_store_sqlite::Standing;
use ua_store_sqlite::{SqliteConfig, SqliteStore, Trouble, holds_nothing, refuse_others};

use super::elsewhere::NAME_IT;
use super::{DATABASE, DEFAULT_ROOT, Home, OWN};
use crate::database::Database;
use crate::error::HostError;
use crate::hint::{Hint, Word, text};
use crate::owner;
use crate::roots::{Belief, NO_HOME, Unknown, first_link, make_above};
use crate::shortage::{is_of_open_files, is_of_shortage, number_of};
use crate::standpoint::Standpoint;
use crate::words::KnownSecrets;

/// Closes the database in good order. Whatever was committed stays, even if this fails.
pub fn close(store: Database) {
    if let Err(error) = store.close() {
        tracing::warn!(error = crate::error::chain(&error), "the runtime database was not closed cleanly");
    }
}

/// What keeps a folder of workspaces out of version control.
const GIT_IGNORE: (&str, &[u8]) =
    (".gitignore", b"# Mails, transcripts and the runtime database: nothing of it belongs in a repository.\n*\n");

impl Home {
    /// Opens the database for work from this root: to begin, queue or drive something. Makes it if this is the first run. One on a server has to be
    /// the one that this root is used with.
    pub fn open(&self) -> Result<Database, HostError> {
        self.open_from(true)
    }

    /// Opens the database to write what may be written from anywhere, as an answer: nothing is begun here, so one on a server may be any.
    pub fn open_from_anywhere(&self) -> Result<Database, HostError> {
        self.open_from(false)
    }

    #[cfg_attr(
        not(feature = "postgres"),
        expect(unused_variables, reason = "a file is there for whoever has its root")
    )]
    fn open_from(&self, is_for_work_here: bool) -> Result<Database, HostError> {
        self.believe()?;
        if let Some(link) = self.foreign_link() {
            return Err(link);
        }
        #[cfg(feature = "postgres")]
        if let Some(server) = &self.server {
            self.refuse_what_is_in_a_file()?;
            // An answer may be given by anybody who has the server's password, and leaves nothing here.
            if !is_for_work_here && self.somebody_elses().is_some() {
                return served(server, &self.known, Place::known(&self.root, &self.locks()), None);
            }
            self.refuse_somebody_elses()?;
            self.make()?;
            return served(server, &self.known, Some(self.place()?), is_for_work_here.then(|| self.locks()));
        }
        // Before anything is made, and before the folder counts as this user's own.
        self.refuse_somebody_elses()?;
        self.refuse_file()?;
        // Workspaces without their database: its receipts are what keeps effects from happening twice, so it is never made anew.
        // A file without tables is as good as gone.
        let expected = self.was_used();
        self.refuse_what_is_on_a_server()?;
        if expected && holds_nothing(&self.database) && self.has_another_database() {
            return Err(self.gone());
        }
        // Before the folder counts as this user's own because of this very command.
        let was_own = self.is_noted();
        self.make()?;
        // One that is made now is not the one that was noted here before: what it will be is noted first. Where one was expected none is made, and what
        // was noted stays: what comes in its place later is not this user's own.
        let is_missing = || match fs::metadata(&self.database) {
            Ok(file) => file.len() == 0,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        let is_to_be_made = || !expected && is_missing();
        let new = self.roots.note_new_database(&self.database, is_to_be_made);
        let identity = new.as_ref().map_or_else(|| self.own_identity(), |new| Some(new.identity.clone()));
        let config = SqliteConfig { expected_existing: expected, identity, ..SqliteConfig::new(&self.database) };
        let store = SqliteStore::open(config).map_err(|error| {
            if let Some(replaced) = self.replaced() {
                return replaced;
            }
            let failure = self.cannot_open(&error);
            if expected && holds_nothing(&self.database) { failure.hint(self.put_it_back()) } else { failure }
        })?;
        self.note_launches(store.db_uuid(), was_own);
        self.keep_identity(store.db_uuid());
        self.note_other_database();
        Ok(Database::file(store, &self.known))
    }

    /// The identity that the database has to have, unless a person names the root: whatever is in it is theirs then.
    fn own_identity(&self) -> Option<String> {
        if self.root_is_named { None } else { self.roots.database_at(&self.database) }
    }

    /// Notes that the database is this user's own. Where nothing can be noted, the root itself is unknown to the next command.
    pub fn note_database(&self, identity: &str) {
        self.note_launches(identity, false);
        self.keep_identity(identity);
    }

    fn keep_identity(&self, identity: &str) {
        if let Err(error) = self.roots.note_database(&self.database, identity) {
            tracing::debug!(%error, "the database could not be noted as this user's own");
        }
    }

    /// The refusal of a database that is not the one that was in this root, as far as it can be read: a checkout may have brought it.
    fn replaced(&self) -> Option<HostError> {
        let (own, found) = (self.own_identity()?, ua_store_sqlite::identity_of(&self.database)?);
        (own != found).then(|| {
            HostError::usage(format!(
                "{} is not the database that your installation of ua had there: somebody put another one in its place, as a checkout may do",
                self.database.shown()
            ))
            .hint(format!(
                "its runs may start programs of somebody else; if you put it there, {}; otherwise put yours back (`ua db restore COPY`); \
                 nothing was changed",
                self.how_to_trust()
            ))
        })
    }

    /// Refuses a root, a database and what is beside it that are not this user's own, for whoever reads or moves the file as it is.
    ///
    /// # Errors
    /// They are somebody else's, as far as that can be told.
    pub fn refuse_foreign(&self) -> Result<(), HostError> {
        self.believe()?;
        self.replaced().map_or(Ok(()), Err)
    }

    /// The folder that files of this root would be made in and that is another user's, with the number of that user. One of the system's
    /// administrator that this user may write to is as good as their own: volumes of containers are given so.
    fn somebody_elses(&self) -> Option<(&Path, u32)> {
        let (us, administrator) = (rustix::process::geteuid().as_raw(), 0);
        let owner = |folder: &Path| fs::metadata(folder).map(|folder| folder.uid()).ok();
        let folders = [self.root.as_path(), self.state()];
        folders.into_iter().find_map(|folder| {
            owner(folder).filter(|owner| *owner != us && *owner != administrator).map(|owner| (folder, owner))
        })
    }

    /// Whether files of this root would be made in a folder that is another user's: nothing is made there.
    pub fn is_somebody_elses(&self) -> bool {
        self.somebody_elses().is_some()
    }

    /// How the user whose root this is calls the program; `None` where it is this user's.
    pub fn as_its_user(&self) -> Option<String> {
        self.somebody_elses().map(|(_, owner)| format!("sudo -u '#{owner}' ua"))
    }

    /// Refuses to make files in a root that is another user's, before the first is made: what root makes there (locks, names, folders) is root's,
    /// and the user whose worker uses the root cannot open it from then on.
    pub(crate) fn refuse_somebody_elses(&self) -> Result<(), HostError> {
        let Some((folder, owner)) = self.somebody_elses() else { return Ok(()) };
        Err(HostError::storage(format!(
            "{} belongs to another user ({}), who could not open the files that your user makes there",
            folder.shown(),
            owner::named(owner)
        ))
        .hint(format!("{}, or {}", owner::as_that_user(owner), self.another_root()))
        .not_begun())
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
        self.refuse_somebody_elses()?;
        #[cfg(feature = "postgres")]
        if self.server.is_some() {
            self.refuse_what_is_in_a_file()?;
        }
        if !self.is_on_a_server() {
            self.refuse_what_is_on_a_server()?;
            if self.was_used() && holds_nothing(&self.database) {
                return Err(self.gone());
            }
        }
        if fs::metadata(&self.database).is_ok_and(|file| file.len() > 0) {
            self.refuse_file()?;
            if let Some(replaced) = self.replaced() {
                return Err(replaced);
            }
            let place = (self.database.parent(), self.database.file_name());
            let opened = match place {
                (Some(folder), Some(name)) => Folder::open(folder).and_then(|folder| folder.open_to_change(name)),
                (_, _) => Err(io::ErrorKind::InvalidInput.into()),
            };
            return opened.map(drop).map_err(|e| {
                HostError::storage(format!("cannot open the runtime database {}: {e}", self.database.shown()))
                    .hint(format!("make it writable, or {}", self.another_database()))
                    .not_begun()
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
        // Another folder helps nobody who may open no more files.
        if number_of(error).is_some_and(is_of_open_files) {
            return HostError::storage(format!("cannot create {}: {error}", self.root.shown()))
                .hint("let this process open more files (`ulimit -n 1024`), or end others that have many open; nothing was changed");
        }
        HostError::storage(format!("cannot create {}: {error}", self.root.shown())).hint(self.another_root())
    }

    /// Refuses a database in whose folder nothing can be made, and a file that is no database of ours, and leaves them as they are.
    fn refuse_file(&self) -> Result<(), HostError> {
        if let Some(refused) = self.unwritable() {
            return Err(refused);
        }
        // In something that is no folder there is none, which is told by whoever wants to make it.
        if self.database.parent().is_some_and(|folder| folder.exists() && !folder.is_dir()) {
            return Ok(());
        }
        refuse_others(&self.database).map_err(|error| self.cannot_open(&error))
    }

    /// Refuses a server where the runs of this root are in its file, or to which its database may not have arrived: what a run did that is in the
    /// file, one that begins there would do again.
    #[cfg(feature = "postgres")]
    fn refuse_what_is_in_a_file(&self) -> Result<(), HostError> {
        self.refuse_half_moved()?;
        self.only_in_a_file().map_or(Ok(()), Err)
    }

    #[cfg(feature = "postgres")]
    fn refuse_half_moved(&self) -> Result<(), HostError> {
        if !self.database.is_file() {
            return Ok(());
        }
        match Standing::of(&self.database) {
            Ok(Standing::Leaving(copy)) => Err(HostError::storage(format!(
                "{} is being moved to the {} by a `ua db copy` that has not finished, so nobody knows yet whether its runs are there",
                self.database.shown(),
                copy.shown
            ))
            .hint("`ua db copy` finishes it, and `ua db copy --undo` keeps the database in the file; nothing was changed")),
            Ok(Standing::Here | Standing::Left(_)) | Err(_) => Ok(()),
        }
    }

    /// The refusal of a folder in which nothing can be made. SQLite would say of its file that it is read-only, and mean this.
    fn unwritable(&self) -> Option<HostError> {
        let folder = self.database.parent().filter(|folder| folder.is_dir())?;
        let (why, how) = cannot_write(folder)?;
        Some(HostError::storage(why).hint(format!("{how}, or {}; nothing was changed", self.another_database())))
    }

    /// The refusal of a root in which something of ours is a link or a device.
    fn foreign_link(&self) -> Option<HostError> {
        let link = first_link(&self.root, &OWN).or_else(|| first_link(self.state(), &OWN))?;
        Some(
            HostError::usage(format!("{} is a link or a device, but ua must write to it", link.shown()))
                .hint(format!("remove it, or {}", self.another_root()))
                .not_begun(),
        )
    }

    /// Whether the root, or the folder that the database is to be in, has yet to be made: it is not there, or nothing is in it.
    pub fn is_to_be_made(&self) -> bool {
        self.roots.judge(&self.root) == Belief::Empty || !self.state().exists()
    }

    /// Makes the folders for a database that a person puts there, as this user's own: whoever opens it a moment later believes it.
    ///
    /// # Errors
    /// They cannot be made, or are not this user's to make.
    pub fn make_for_restore(&self) -> Result<(), HostError> {
        self.believe()?;
        if let Some(link) = self.foreign_link() {
            return Err(link);
        }
        self.refuse_somebody_elses()?;
        // What cannot be noted, the very command that puts it there would not believe a moment later.
        if let Some(why) = self.roots.cannot_note().filter(|_| !self.root_is_named) {
            return Err(HostError::usage(format!("{why}, so nothing can note that {} is yours", self.root.shown()))
                .hint(format!("name it with --root {}; nothing was changed", ua_core::shell_word(&self.root))));
        }
        self.make()?;
        make_above(self.state()).map_err(|e| self.cannot_make(&e))
    }

    /// Makes the root if it is not there, and notes that it is this user's own.
    fn make(&self) -> Result<(), HostError> {
        let was_there = self.root.exists();
        let given_away = owner::given_to_root(&self.root, self.called_by).filter(|_| !was_there);
        // Without a place to note it, the root is good for this command: the next one asks for `--root`. Where something is short at the moment, such
        // as files that may be open, none is made: the next command would take it for somebody else's.
        if !self.root_is_named
            && self.roots.judge(&self.root) == Belief::Empty
            && let Err(error) = self.roots.make(&self.root)
        {
            if is_of_shortage(&error) {
                return Err(self.cannot_make(&error).not_begun());
            }
            tracing::debug!(%error, "the root could not be noted as this user's own");
        }
        make_above(&self.root).map_err(|e| self.cannot_make(&e))?;
        if !was_there {
            self.keep_out_of_git();
        }
        if let Some(given_away) = given_away {
            tracing::warn!("{given_away}");
        }
        let is_somebody_elses =
            self.root_is_named && self.database.exists() && self.roots.judge(&self.root) == Belief::Foreign;
        let adopted = self.root_is_named.then(|| self.roots.adopt(&self.root)).transpose();
        if is_somebody_elses && adopted.is_ok() {
            let revoke = PrintedCommand::of("ua trust").option("--revoke", &self.root).in_code();
            let programs = if self.believes_launches(self.launch_key().is_some()) {
                "With this command it says which programs its runs start"
            } else {
                "Which programs its runs start is still asked about"
            };
            tracing::warn!(
                "{} is trusted from now on, because you named it; {revoke} takes that back. {programs}",
                self.root.shown()
            );
        }
        let beside = (self.state() != self.root).then(|| {
            make_above(self.state())?;
            self.roots.adopt(self.state())
        });
        if let (Err(error), _) | (_, Some(Err(error))) = (adopted, beside) {
            if is_of_shortage(&error) {
                return Err(self.cannot_make(&error).not_begun());
            }
            tracing::debug!(%error, "the root could not be noted as this user's own");
        }
        if Folder::open(self.state()).and_then(|state| state.make_folder("locks")).is_ok() {
            self.notes().iter().for_each(|folder| Standpoint::note_first(folder));
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

    /// Refuses a root or a database that nobody named and that this user's `ua` did not make, and what somebody put beside one: it came with
    /// a checkout, for instance, and a run in it would be driven as its maker said.
    fn believe(&self) -> Result<(), HostError> {
        if self.root_is_named {
            return Ok(());
        }
        match self.roots.judge(&self.root) {
            Belief::Empty | Belief::Own => self.refuse_planted(),
            // Whatever is said of it, nobody else's program opens that database.
            Belief::Foreign | Belief::Link if let Some(owner) = self.owner_of_file() => {
                Err(of_another_user(&self.database, owner).hint(format!("{}; nothing was read", self.as_owner(owner))))
            }
            Belief::Foreign if let Some(error) = self.roots.short_of(&self.root) => Err(HostError::storage(format!(
                "cannot tell whether {} was made by your installation of ua: {error}",
                self.root.shown()
            ))
            .hint("nothing was read; it is asked again with the next command")),
            Belief::Foreign if let Some(error) = unreadable(&self.root) => Err(self.cannot_read(&self.root, &error)),
            Belief::Link => Err(self.disbelieved("is a link that you did not name", None)),
            Belief::Foreign => Err(match self.roots.why_unknown(&self.root) {
                Unknown::NoHome => self.disbelieved(
                    &format!("cannot be told from a folder of somebody else: {NO_HOME}, so nothing says where your installation of ua notes its own"),
                    Some("set HOME or XDG_STATE_HOME as they were when it was made"),
                ),
                Unknown::NoNotes(state) => self.disbelieved(
                    &format!("was not made by your installation of ua, or not with this HOME: nothing is noted in {}", state.shown()),
                    None,
                ),
                Unknown::MovedFrom(from) => self.disbelieved(
                    &format!("was moved or renamed: your installation of ua made it at {}", from.shown()),
                    Some(&format!("move it back (`{}`): its runs have their files there", way_back(&self.root, &from))),
                ),
                Unknown::CopyOf(from) => self.disbelieved(
                    &format!("is a copy: your installation of ua made the one at {}", from.shown()),
                    Some("use that one: a copy knows nothing of what its runs did since"),
                ),
                Unknown::Foreign => self.disbelieved("was not made by your installation of ua", None),
            }),
        }
    }

    /// The other user whose database is in the file of this root, if it is another one's.
    fn owner_of_file(&self) -> Option<u32> {
        if self.is_on_a_server() { None } else { owner_of_database(&self.database) }
    }

    /// What helps where the database is that of another user.
    fn as_owner(&self, owner: u32) -> String {
        owner::make_own(owner, self.database.parent().unwrap_or(&self.root))
    }

    /// The refusal of a root that nobody named; `first` is what to do before anything else, where that is known.
    fn disbelieved(&self, why: &str, first: Option<&str>) -> HostError {
        let begin = first.map_or_else(|| "its".to_owned(), |first| format!("{first}. Otherwise: its"));
        HostError::usage(format!("{} {why}", self.root.shown())).hint(format!(
            "{begin} runs may start programs of somebody else; if it is yours, {}; nothing was read",
            self.how_to_trust()
        ))
    }

    /// How a person says that a root is theirs.
    pub(super) fn how_to_trust(&self) -> String {
        let trust = PrintedCommand::of("ua trust").word(&self.root).in_code();
        let root = ua_core::shell_word(&self.root);
        if self.launch_key().is_none() {
            // With nowhere to keep a key, a name is all that a person can say.
            return format!(
                "look at it with {trust}, then name it with --root {root}: that believes it, and the programs that its runs start, since there is nowhere to note anything"
            );
        }
        format!(
            "say so with {trust}, or name it with --root {root} (which programs its runs start is asked about either way)"
        )
    }

    /// What somebody is told who begins a run in a root that the next command will not know, since nothing can be noted.
    pub fn unnoted(&self) -> Option<String> {
        let is_unknown = !self.root_is_named && self.roots.judge(&self.root) == Belief::Foreign;
        let why = self.roots.cannot_note().filter(|_| is_unknown)?;
        Some(format!(
            "warning: {why}, so `ua` cannot note that {0} is its own, and the next command that does not name it will refuse it. Name it with --root {0} \
             each time, or set HOME or XDG_STATE_HOME to a folder that you can write to",
            self.root.shown()
        ))
    }

    /// What to do about a run's workspace that is not where it was.
    pub fn find_workspace_again(&self, run: &RunId, workspace: &Path) -> String {
        let moved = workspace.file_name().map(|name| self.root.join(name)).filter(|moved| moved.is_dir());
        match (moved, workspace.parent()) {
            (Some(moved), Some(parent)) => format!(
                "a folder of its name is {}: the folder of all runs was moved or renamed. Move that back (`{}`); its files are part of the run",
                moved.shown(),
                way_back(&self.root, parent)
            ),
            (None, _) | (_, None) => format!(
                "put it back where it was; its files are part of the run. Where they are gone, as those of a run that was deleted before a \
                 copy of the database was put back, `ua runs cancel {run}` ends it and `ua runs delete {run} --force` deletes it"
            ),
        }
    }

    /// What somebody is told who looks at a run whose workspace is not where it was.
    pub fn where_workspace_is(&self, run: &RunRecord, workspace: &Path) -> String {
        if !run.status.is_terminal() {
            return self.find_workspace_again(&run.run_id, workspace);
        }
        let moved = workspace.file_name().map(|name| self.root.join(name)).filter(|moved| moved.is_dir());
        match moved {
            Some(moved) => {
                format!("the folder of all runs was moved or renamed: the workspace is {} now", moved.shown())
            }
            None => format!(
                "the workspace {} was moved or deleted; what the database has of the run is whole",
                workspace.shown()
            ),
        }
    }

    /// Opens the database for looking only; it is never made or changed.
    pub fn open_read_only(&self) -> Result<Database, HostError> {
        self.believe()?;
        #[cfg(feature = "postgres")]
        if let Some(server) = &self.server {
            self.refuse_what_is_in_a_file()?;
            return served(server, &self.known, Place::known(&self.root, &self.locks()), None);
        }
        self.file().map(|store| Database::file(store, &self.known))
    }

    /// The same of a file, with what only files have.
    pub fn open_file(&self) -> Result<SqliteStore, HostError> {
        self.believe()?;
        self.file()
    }

    fn file(&self) -> Result<SqliteStore, HostError> {
        self.refuse_what_is_on_a_server()?;
        self.has_file()?;
        let store = SqliteStore::open_read_only(&self.database).map_err(|error| self.cannot_open(&error))?;
        match self.own_identity().filter(|own| own != store.db_uuid()).and_then(|_| self.replaced()) {
            Some(replaced) => Err(replaced),
            None => Ok(store),
        }
    }

    /// Refuses a root without the file that the database is in, with what is known of where it is.
    ///
    /// # Errors
    /// It is on a server that was not named, it is gone, it cannot be read, or there never was one.
    pub fn has_file(&self) -> Result<(), HostError> {
        // Asked in this order: where something was left, the database was made before.
        let was_used = self.was_used();
        match fs::metadata(&self.database) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(self.cannot_read(&self.database, &error));
            }
            Ok(_) | Err(_) if !holds_nothing(&self.database) => return Ok(()),
            Ok(_) | Err(_) => self.refuse_what_is_on_a_server()?,
        }
        if was_used {
            return Err(self.gone());
        }
        Err(self.no_file())
    }

    /// That there is no database, where no run left anything either.
    pub fn no_file(&self) -> HostError {
        let error = HostError::usage(format!("there is no runtime database at {}", self.database.shown()));
        if let Some(within) = self.runs_within() {
            return error.hint(format!("the runs are in {}: name that folder, the root, with --root", within.shown()));
        }
        error.hint(format!("no job was run here yet; {}, or start one with `ua job FILE`", self.another_database()))
    }

    /// The root that has runs within a folder which is none, as where somebody names the folder of a project.
    pub fn runs_within(&self) -> Option<PathBuf> {
        let within = self.root.join(DEFAULT_ROOT);
        let has_runs = |root: &Path| fs::metadata(root.join(DATABASE)).is_ok_and(|file| file.len() > 0);
        (!has_runs(&self.root) && has_runs(&within)).then_some(within)
    }

    /// Whether no job was run here yet: there is no database, and nothing that a run leaves. Lists are empty then.
    pub fn is_unused(&self) -> bool {
        // Whether a server has runs of this root, it is asked itself.
        #[cfg(feature = "postgres")]
        if self.server.is_some() {
            return false;
        }
        // Asked in this order: a job that begins just now makes its database first.
        let was_used = self.was_used();
        let is_unreadable = fs::metadata(&self.database).is_err_and(|error| error.kind() != io::ErrorKind::NotFound);
        !was_used && !is_unreadable && holds_nothing(&self.database) && unreadable(&self.root).is_none()
    }

    /// The other folders of this user's that have runs, the one that was used last first.
    pub fn used_elsewhere(&self) -> Vec<PathBuf> {
        let here = self.root.canonicalize().unwrap_or_else(|_| self.root.clone());
        let used_at = |root: &PathBuf| fs::metadata(root.join(DATABASE)).and_then(|file| file.modified()).ok();
        let noted = self.roots.noted().into_iter().filter(|noted| noted.is_there && noted.folder != here);
        let mut used: Vec<_> = noted.filter_map(|noted| Some((used_at(&noted.folder)?, noted.folder))).collect();
        used.sort();
        used.into_iter().rev().map(|(_, folder)| folder).collect()
    }

    /// Whether runs left something here, whatever became of the database: a workspace, a line about an effect, that a server or a database in another
    /// place has them, or a restore that was cut off.
    fn was_used(&self) -> bool {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let has_workspaces = entries
            .into_iter()
            .any(|entry| entry.file_name().to_string_lossy().starts_with("session_") && entry.path().is_dir());
        let was_cut_off = || ua_store_sqlite::cut_off_restore(&self.database).is_some();
        has_workspaces
            || self.has_effects()
            || self.was_moved()
            || self.was_served()
            || was_cut_off()
            || self.has_another_database()
    }

    /// The refusal of a database that is gone.
    fn gone(&self) -> HostError {
        // Of a move and of a restore it is known what became of this one.
        let is_explained = self.was_moved() || ua_store_sqlite::cut_off_restore(&self.database).is_some();
        if let Some(elsewhere) = self.only_in_another_file().filter(|_| !is_explained) {
            return elsewhere;
        }
        let what = if self.database.exists() { "is empty" } else { "is gone" };
        HostError::storage(format!("the runtime database {} {what}", self.database.shown())).hint(self.put_it_back())
    }

    /// What to do about a database that is gone.
    fn put_it_back(&self) -> String {
        if self.was_moved() {
            return format!("it was moved to a server (`ua db copy`): {NAME_IT}; nothing was changed");
        }
        if let Some(left) = ua_store_sqlite::cut_off_restore(&self.database) {
            return format!(
                "a `ua db restore` was cut off after it had taken the database out of its place: {} puts that one back, which is newer than \
                 any copy, and the same restore given again puts its copy there; nothing was changed",
                PrintedCommand::of("ua db restore").word(&left.kept).in_code()
            );
        }
        let server = if self.was_served() { format!("; if a server has them, {NAME_IT}") } else { String::new() };
        format!(
            "runs were made in {}, and only their database knows what they did outside: put it back (`ua db restore COPY` takes a copy \
             that `ua db backup` made){server}; for new runs, {}; nothing was changed",
            self.root.shown(),
            self.another_database()
        )
    }

    /// Why the database file cannot be opened or looked at, and what a person does about it: nothing was done with it yet, whoever wanted to.
    pub fn cannot_open(&self, error: &StoreError) -> HostError {
        let opening = format!("open the runtime database {}", self.database.shown());
        let StoreError::Unavailable { why, .. } = error else { return HostError::store(&opening, error) };
        let another = self.another_database();
        let copy = "restore a copy that `ua db backup` made with `ua db restore COPY`";
        let again = |first: &str| [text(format!("{first}, then ")), Word::Again];
        let (why, hint): (&str, Hint) = match self.trouble(error) {
            None if let Some(owner) = self.owner_of_file() => {
                (why.as_str(), format!("{}, or {another}", self.as_owner(owner)).into())
            }
            // It says itself what to do.
            None => (why.as_str(), another.into()),
            Some(Trouble::Busy) => (why.as_str(), again("wait for that process").into()),
            Some(Trouble::Full) => (
                "the disk is full",
                again(
                    "there is nothing wrong with the database; make room on that disk by other means than `ua`, whose commands need some to open it",
                )
                .into(),
            ),
            Some(Trouble::Disk) => (
                why.as_str(),
                format!(
                    "look what the system's log says of that disk, and keep a copy of {} before anything else",
                    self.state().shown()
                )
                .into(),
            ),
            Some(Trouble::ReadOnly | Trouble::CannotOpen) if self.is_mounted_read_only() => (
                "its file system is mounted read-only, and SQLite has to write there, to read what is left in the log of a database as well",
                format!(
                    "mount it for writing, or copy {0} to a disk that you can write to and name the copy with --root",
                    self.state().shown()
                )
                .into(),
            ),
            Some(Trouble::ReadOnly | Trouble::CannotOpen | Trouble::NotAllowed) => (
                if self.is_denied() { "permission denied" } else { why.as_str() },
                format!(
                    "check who owns the file and the folder that it is in, and whether your user may write to both, or {another}"
                )
                .into(),
            ),
            Some(Trouble::Damaged) => (why.as_str(), format!("keep a copy of the file, then {copy}; or {another}").into()),
            Some(Trouble::NotADatabase) => {
                (why.as_str(), format!("check whether the file belongs to ua; if it does, {copy}, or {another}").into())
            }
            Some(Trouble::Memory) => (why.as_str(), again("end other programs").into()),
            Some(Trouble::Other) => (why.as_str(), format!("check whether the file belongs to ua, or {another}").into()),
        };
        // Words that name the file themselves are about it, or about one beside it.
        let is_named = why.contains(&self.database.shown().to_string());
        let opening = if is_named { "open the runtime database" } else { opening.as_str() };
        HostError::storage(format!("cannot {opening}: {why}")).hint(hint.and(text("nothing was changed")))
    }

    /// What an error comes from: SQLite tells a disk that is full from one that fails in some places alone.
    fn trouble(&self, error: &StoreError) -> Option<Trouble> {
        let has_no_room = || {
            let disk = rustix::fs::statvfs(self.state()).ok()?;
            Some(disk.f_bavail == 0 || (disk.f_files > 0 && disk.f_favail == 0))
        };
        let trouble = Trouble::of(error)?;
        let may_be_full = matches!(trouble, Trouble::Disk | Trouble::CannotOpen);
        Some(if may_be_full && has_no_room() == Some(true) { Trouble::Full } else { trouble })
    }

    /// Whether this user may not read the database file, or look at it. SQLite says only that it could not open it.
    fn is_denied(&self) -> bool {
        rustix::fs::access(&self.database, rustix::fs::Access::READ_OK) == Err(rustix::io::Errno::ACCESS)
    }

    fn is_mounted_read_only(&self) -> bool {
        let disk = rustix::fs::statvfs(self.state());
        disk.is_ok_and(|disk| disk.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
    }

    /// A root, or something on the way to it, that cannot be looked at.
    fn cannot_read(&self, path: &Path, error: &io::Error) -> HostError {
        if error.kind() == io::ErrorKind::NotADirectory {
            let file = path.ancestors().find(|above| above.is_file()).unwrap_or(path);
            return HostError::storage(format!("{} is a file, but must be a folder", file.shown()))
                .hint(format!("move it away, or {}; nothing was changed", self.another_root()));
        }
        HostError::storage(format!("cannot read {}: {error}", path.shown())).hint(format!(
            "{}, or {}; nothing was changed",
            owner::allow(path, "u+rwX"),
            self.another_root()
        ))
    }
}

/// The command that moves a folder back to where it was, by the highest folder that has another name now.
fn way_back(now: &Path, before: &Path) -> String {
    let (mut now, mut before) = (now, before);
    while let (Some(above), Some(above_before)) = (now.parent(), before.parent())
        && now.file_name() == before.file_name()
        && above != above_before
        // Another folder has that name by now, or it was only this one that was moved.
        && !above_before.exists()
        // The root of the file system is not moved.
        && above.parent().is_some()
        && above_before.parent().is_some()
    {
        (now, before) = (above, above_before);
    }
    PrintedCommand::of("mv").word(now).word(before).to_string()
}

/// The user, if it is another one, to whom a database in a file belongs: no program of anybody else opens it.
pub(crate) fn owner_of_database(database: &Path) -> Option<u32> {
    let file = fs::symlink_metadata(database).ok().filter(fs::Metadata::is_file)?;
    Some(file.uid()).filter(|owner| *owner != rustix::process::geteuid().as_raw())
}

/// The refusal of runs whose database is another user's.
pub(crate) fn of_another_user(database: &Path, owner: u32) -> HostError {
    let folder = database.parent().unwrap_or(database);
    HostError::usage(format!(
        "the runs in {} belong to another user ({}), and only that user's `ua` opens their database",
        folder.shown(),
        owner::named(owner)
    ))
}

/// Why a folder cannot be looked into, if it is there and cannot.
fn unreadable(folder: &Path) -> Option<io::Error> {
    fs::read_dir(folder).err().filter(|error| error.kind() != io::ErrorKind::NotFound)
}

/// The database on a server, as it is used from a place.
#[cfg(feature = "postgres")]
fn served(
    server: &PostgresConfig,
    known: &KnownSecrets,
    place: Option<Place>,
    locks: Option<PathBuf>,
) -> Result<Database, HostError> {
    let mut config = server.clone();
    (config.place, config.alone_beside) = (place, locks);
    let store = PostgresStore::lazy(&config);
    store
        .map(|store| Database::server(store, known))
        .map_err(|error| HostError::store("reach the runtime database", &error))
}

/// That nothing can be made in a folder which is there, as a sentence, and what helps; `None` where something can.
pub fn cannot_write(folder: &Path) -> Option<(String, String)> {
    let wanted = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    let why = io::Error::from(rustix::fs::access(folder, wanted).err()?);
    let is_mounted_so = why.kind() == io::ErrorKind::ReadOnlyFilesystem;
    let how = if is_mounted_so { "mount it for writing".to_owned() } else { owner::allow(folder, "u+wx") };
    Some((format!("cannot write to the folder {}: {why}", folder.shown()), how))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::super::tests::home;
    use super::*;
    use crate::env::Process;
    use crate::settings::Settings;

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

    /// Each thing that is named helps: no word of trust makes anybody read what is another user's.
    #[tokio::test]
    async fn runs_of_another_user_are_neither_trusted_nor_said_to_be_once_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().canonicalize().unwrap();
        let variables = [("HOME".to_owned(), place.join("me").display().to_string())].into();
        let settings = Settings::read(Process { folder: Some(place.clone()), variables, ..Process::default() });
        let (theirs, known) = (home(&place, Some(DEFAULT_ROOT)), KnownSecrets::default());
        close(theirs.open().unwrap());
        // Only root gives a file away.
        if std::os::unix::fs::chown(theirs.database(), Some(54_321), None).is_err() {
            return;
        }
        let at = |root: Option<&Path>| Home::new(&settings, root, &known).unwrap().open_read_only().unwrap_err();
        let review = crate::trust::runs::RunsReview::of(&settings, theirs.root()).await.unwrap_err();
        for refused in [at(None), at(Some(theirs.root())), review] {
            let (said, hint) = (refused.to_string(), refused.hint_text().unwrap().to_owned());
            assert!(said.contains("another user (uid 54321)"), "{said}");
            for helps in ["sudo -u '#54321' ua", "chown -R "] {
                assert!(hint.contains(helps), "{hint}");
            }
            assert!(!hint.contains("ua trust") && !hint.contains("--trust-root"), "{hint}");
        }
    }

    /// Whoever names the folder of a project for its root is told where the root is.
    #[test]
    fn a_folder_around_a_root_is_told_from_one_without_runs() {
        let folder = tempfile::tempdir().unwrap();
        let around = home(folder.path(), Some("."));
        assert_eq!(around.runs_within(), None);
        assert!(around.no_file().hint_text().unwrap().contains("no job was run here yet"));
        close(home(folder.path(), Some(DEFAULT_ROOT)).open().unwrap());
        let hint = around.no_file().hint_text().unwrap().to_owned();
        assert!(hint.contains(DEFAULT_ROOT) && hint.ends_with("with --root"), "{hint}");
    }

    /// A machine that was lost is set up anew by one command, whatever is there of its folders.
    #[test]
    fn a_root_that_a_database_is_put_into_is_made_as_this_users_own() {
        for root in [None, Some("runs"), Some("deep/er/runs")] {
            let folder = tempfile::tempdir().unwrap();
            let place = folder.path().canonicalize().unwrap();
            let variables = [("HOME".to_owned(), place.join("me").display().to_string())].into();
            let settings = Settings::read(Process { folder: Some(place), variables, ..Process::default() });
            let home = Home::new(&settings, root.map(Path::new), &KnownSecrets::default()).unwrap();
            assert!(home.is_to_be_made(), "{root:?}");
            home.make_for_restore().unwrap();
            assert!(!home.is_to_be_made() && home.is_unused(), "{root:?}");
            // Whoever restores puts a database of this program there.
            close(home.open().unwrap());
            close(home.open_read_only().unwrap());
        }
        // Without a place for notes nothing is made that nobody would believe.
        let folder = tempfile::tempdir().unwrap();
        assert!(home(folder.path(), None).make_for_restore().unwrap_err().hint_text().unwrap().contains("--root "));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
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
    fn a_restore_that_was_cut_off_is_said_with_what_it_kept() {
        let folder = tempfile::tempdir().unwrap();
        let home = home(folder.path(), Some("runs"));
        fs::create_dir_all(home.root()).unwrap();
        let named = |suffix: &str| home.root().join(format!("runtime_state.db{suffix}"));
        for kept in [".before-20261127_090000", ".restoring", ".before-20261128_082051", ".before-20261128_082051-wal"]
        {
            fs::write(named(kept), "").unwrap();
            // The clock of a file system has steps.
            std::thread::sleep(std::time::Duration::from_millis(30));
        }
        assert!(!home.is_unused());
        let takes_back = format!("`ua db restore {}`", named(".before-20261128_082051").display());
        for refused in [home.open_read_only().unwrap_err(), home.open().unwrap_err()] {
            assert_eq!(refused.kind(), crate::error::Kind::Storage, "{refused}");
            let hint = refused.hint_text().unwrap();
            assert!(hint.contains("was cut off") && hint.contains(&takes_back), "{hint}");
        }
        assert!(!named("").exists(), "nothing is made in its place");
    }

    #[test]
    fn a_file_that_is_no_database_of_ours_is_refused_and_nothing_is_made() {
        for (name, text) in [("passwd", "root:x:0:0\n".to_owned()), ("long", "x".repeat(10_000))] {
            let folder = tempfile::tempdir().unwrap();
            let (user, place) = (folder.path().join("home"), folder.path().join("a%b?c#d"));
            fs::create_dir_all(&place).unwrap();
            let database = place.join(name);
            fs::write(&database, text).unwrap();
            fs::set_permissions(&database, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            let variables = [("HOME", &user), ("UA_RUNTIME_DB_PATH", &database)];
            let variables = variables.map(|(name, path)| (name.to_owned(), path.display().to_string())).into();
            let process = Process { folder: Some(folder.path().join("work")), variables, ..Process::default() };
            let home = Home::new(&Settings::read(process), None, &KnownSecrets::default()).unwrap();
            for refused in [home.could_open().unwrap_err(), home.open().unwrap_err()] {
                assert_eq!(refused.kind(), crate::error::Kind::Storage, "{name}: {refused}");
                let hint = refused.hint_text().unwrap();
                assert!(hint.contains("UA_RUNTIME_DB_PATH") && hint.contains("nothing was changed"), "{name}: {hint}");
            }
            assert_eq!(fs::read_dir(&place).unwrap().count(), 1, "{name}: nothing was made beside it");
            assert!(!folder.path().join("work").exists() && !user.exists(), "{name}: and nothing was noted");
        }
    }

    #[test]
    fn a_database_that_somebody_put_in_the_place_of_the_own_one_is_refused_until_it_is_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let (work, theirs) = (folder.path().join("work"), folder.path().join("theirs"));
        let settings = |folder_of: &Path, user: &str| {
            let variables = [("HOME".to_owned(), folder.path().join(user).display().to_string())].into();
            fs::create_dir_all(folder_of).unwrap();
            Settings::read(Process { folder: Some(folder_of.to_path_buf()), variables, ..Process::default() })
        };
        let (own, foreign) = (settings(&work, "me"), settings(&theirs, "they"));
        let home = || Home::new(&own, None, &KnownSecrets::default()).unwrap();
        close(home().open().unwrap());
        close(Home::new(&foreign, None, &KnownSecrets::default()).unwrap().open().unwrap());
        // The folder, its mark and all notes stay as they are.
        let database = home().database().to_path_buf();
        let before = fs::read(&database).unwrap();
        let put = |bytes: &[u8]| fs::write(&database, bytes).unwrap();
        put(&fs::read(theirs.join(DEFAULT_ROOT).join("runtime_state.db")).unwrap());
        let planted = fs::read(&database).unwrap();
        for refused in [
            home().open().unwrap_err(),
            home().open_read_only().unwrap_err(),
            home().open_file().unwrap_err(),
            home().could_open().unwrap_err(),
        ] {
            assert_eq!(refused.kind(), crate::error::Kind::Usage, "{refused}");
            assert!(refused.to_string().contains("somebody put another one in its place"), "{refused}");
            assert!(refused.hint_text().unwrap().contains("ua trust"), "{refused}");
        }
        assert!(fs::read(&database).unwrap() == planted, "it was not changed");
        put(&before);
        close(home().open().unwrap());
        // Each of these is a person's word.
        let trusting: [&dyn Fn(); 3] = [
            &|| Home::adopt(&own, &work.join(DEFAULT_ROOT)).unwrap(),
            &|| {
                close(
                    Home::new(&own, Some(Path::new(DEFAULT_ROOT)), &KnownSecrets::default()).unwrap().open().unwrap(),
                );
            },
            &|| close(home().trusted().open().unwrap()),
        ];
        for trust in trusting {
            put(&planted);
            assert!(home().open().is_err());
            trust();
            close(home().open().unwrap());
            put(&before);
            Home::adopt(&own, &work.join(DEFAULT_ROOT)).unwrap();
            close(home().open().unwrap());
        }
    }

    #[test]
    fn a_database_that_is_made_anew_is_not_taken_for_another_one_where_its_maker_was_killed() {
        let folder = tempfile::tempdir().unwrap();
        let (work, user) = (folder.path().join("work"), folder.path().join("me"));
        fs::create_dir(&work).unwrap();
        let variables = [("HOME".to_owned(), user.display().to_string())].into();
        let settings = Settings::read(Process { folder: Some(work), variables, ..Process::default() });
        let home = || Home::new(&settings, None, &KnownSecrets::default()).unwrap();
        close(home().open().unwrap());
        let (database, before) = (home().database().to_path_buf(), home().own_identity());
        let lock = database.with_file_name("runtime_state.db.migrate.lock");
        for file in [&database, &lock] {
            fs::remove_file(file).unwrap();
        }
        // It comes as far as the database itself, which is known by then.
        fs::create_dir(&lock).unwrap();
        assert!(home().open().is_err());
        let noted = home().own_identity();
        assert!(before.is_some() && noted.is_some() && noted != before);
        fs::remove_dir(&lock).unwrap();
        // Somebody else's, by the very next checkout.
        let theirs = SqliteConfig { identity: before, ..SqliteConfig::new(&database) };
        close(
            ua_store_sqlite::SqliteStore::open(theirs)
                .map(|store| Database::file(store, &KnownSecrets::default()))
                .unwrap(),
        );
        assert!(home().open().unwrap_err().to_string().contains("somebody put another one in its place"));
        fs::remove_file(&database).unwrap();
        // Its own one, whose maker was killed before it could say so.
        let own = SqliteConfig { identity: noted.clone(), ..SqliteConfig::new(&database) };
        close(
            ua_store_sqlite::SqliteStore::open(own)
                .map(|store| Database::file(store, &KnownSecrets::default()))
                .unwrap(),
        );
        close(home().open().unwrap());
        assert_eq!(home().own_identity(), noted);
        fs::remove_file(&database).unwrap();
        close(home().open().unwrap());
        assert!(home().own_identity().is_some_and(|now| Some(now) != noted), "one that is made again is another one");
    }

    #[test]
    fn the_way_back_moves_the_folder_that_was_renamed() {
        for (now, before, wanted) in [
            ("/w/new/RUNS", "/w/old/RUNS", "mv /w/new /w/old"),
            ("/w/new/a/RUNS", "/w/old/a/RUNS", "mv /w/new /w/old"),
            ("/w/a/NEW", "/w/a/OLD", "mv /w/a/NEW /w/a/OLD"),
            ("/a/RUNS", "/b/c/RUNS", "mv /a /b/c"),
            ("/RUNS", "/b/RUNS", "mv /RUNS /b/RUNS"),
            ("/w/my project/RUNS", "/w/old/RUNS", "mv '/w/my project' /w/old"),
        ] {
            assert_eq!(way_back(Path::new(now), Path::new(before)), wanted, "{now} {before}");
        }
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
        let home = |root: Option<&str>| Home::new(&settings, root.map(Path::new), &KnownSecrets::default()).unwrap();
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
        let refused = Home::new(&settings, None, &KnownSecrets::default()).unwrap().open().unwrap_err();
        assert!(refused.to_string().contains("outbox is a link"), "{refused}");
    }
}
