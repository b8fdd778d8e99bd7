//! Whether the database of a root is on a server.
//!
//! Whoever forgets the URL of the server is not given another database beside it in silence: the runs and the queue of that one know nothing
//! of what this one sends. What a move leaves under another name says so, and so does the name that a root has for a server. Nor is a server
//! used where the file still has the runs: it would do again what they did, and nobody would do what waits there.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use ua_files::Folder;

#[cfg(feature = "postgres")]
use ua_store_sqlite::keeps_runs;
use ua_store_sqlite::{SqliteStore, holds_nothing, is_copy, left_of};

use super::{DATABASE, Home};
use crate::error::HostError;
use crate::forgotten::TWO_COPIES;
use crate::hint::{Word, text};
use ua_core::{PrintedCommand, ShowPath as _};

/// What to do where the runs of a root are on a server that was not named.
pub(super) const NAME_IT: &str = "name it with --database-url, or in UA_DATABASE_URL";

/// The file beside the locks with the name that a root has for databases on servers.
const ROOT_ID: &str = "root_id";

/// The file in a root that says in which database in another folder its runs are.
pub(super) const OTHER_DATABASE: &str = ".ua-database";
/// The longest path that is read there.
const MAX_PATH_BYTES: u64 = 64 * 1024;

/// The database in another folder that a root names.
fn noted_database(root: &Path) -> Option<PathBuf> {
    let noted = Folder::open(root).and_then(|root| root.read(OTHER_DATABASE, MAX_PATH_BYTES)).ok()?;
    Some(PathBuf::from(OsString::from_vec(noted)))
}

impl Home {
    /// Notes in the root that its runs are in this database, which lies elsewhere: whoever forgets to name it is told so, and not that it is gone.
    /// Beside a database in the root it may be a copy of that one, to which nobody is to be sent.
    pub(super) fn note_other_database(&self) {
        let own = self.root.join(DATABASE);
        if self.is_on_a_server() || self.database == own || !holds_nothing(&own) {
            return;
        }
        let path = self.database.as_os_str().as_encoded_bytes();
        let noted = Folder::open(&self.root).and_then(|root| {
            let is_noted = root.read(OTHER_DATABASE, MAX_PATH_BYTES).is_ok_and(|noted| noted == path);
            if is_noted { Ok(()) } else { root.replace(OTHER_DATABASE, path) }
        });
        if let Err(error) = noted {
            tracing::debug!(%error, "it could not be noted in which database the runs of the root are");
        }
    }

    /// The database in another place that has runs of this root, if it is there and is not the one that is named.
    fn other_database(&self) -> Option<PathBuf> {
        let noted = noted_database(&self.root)?;
        (noted.is_absolute() && noted != self.database && !holds_nothing(&noted)).then_some(noted)
    }

    /// Whether runs of a root of this user's are in this database: on a server those of any may be, and of files each root says which has its own.
    /// The folder that a database is in is noted like a root, and may be the user's home.
    pub(super) fn has_runs_of(&self, root: &Path) -> bool {
        let is_said = || noted_database(root).is_some_and(|noted| noted == self.database);
        self.is_on_a_server() || root == self.root || is_said()
    }

    /// The refusal of a file where the runs of this root are in another one, which nobody named.
    pub(super) fn only_in_another_file(&self) -> Option<HostError> {
        let other = self.other_database()?;
        let mut variable = OsString::from("UA_RUNTIME_DB_PATH=");
        variable.push(&other);
        let how = PrintedCommand::of("export").word(variable);
        Some(
            HostError::storage(format!(
                "there is no runtime database at {}: the runs of {} are in {} (UA_RUNTIME_DB_PATH)",
                self.database.shown(),
                self.root.shown(),
                other.shown()
            ))
            .hint([
                text(format!("{} and ", how.in_code())),
                Word::Again,
                text(format!("; for new runs, {}; nothing was changed", self.another_database())),
            ]),
        )
    }

    /// Whether another database has runs of this root.
    pub(super) fn has_another_database(&self) -> bool {
        self.other_database().is_some()
    }

    /// Refuses a file where the runs of this root are on a server: one that would be made there, and one that is a copy of what was moved.
    pub(super) fn refuse_what_is_on_a_server(&self) -> Result<(), HostError> {
        if holds_nothing(&self.database) {
            // A file that is gone may have its copy; what never was a file has none.
            let is_elsewhere = self.was_served() && !self.has_effects() && !self.was_moved();
            return if is_elsewhere { Err(self.only_on_a_server()) } else { Ok(()) };
        }
        match left_of(&self.database).find(|left| is_copy(&self.database, left)) {
            // What was moved itself and has its old name again says so, with what is done about it.
            Some(left) => Err(SqliteStore::open_read_only(&self.database)
                .map_or_else(|error| self.cannot_open(&error), |_| was_moved(&self.database, &left))),
            None => Ok(()),
        }
    }

    fn only_on_a_server(&self) -> HostError {
        HostError::storage(format!(
            "the runs of {} are in a database on a server, and no server is named",
            self.root.shown()
        ))
        .hint(format!("{NAME_IT}; for a database in a file, {}; nothing was changed", self.another_root()))
    }

    /// The refusal of a server where the runs of this root are in its file: `ua db copy` would have moved them.
    #[cfg(feature = "postgres")]
    pub fn only_in_a_file(&self) -> Option<HostError> {
        self.server()?;
        let own = self.root.join(DATABASE);
        let file = [&self.database, &own].into_iter().find(|file| keeps_runs(file))?;
        // What is moved is the one that the variable names.
        let how = if *file == self.database { "" } else { " without UA_RUNTIME_DB_PATH" };
        Some(
            HostError::usage(format!(
                "the runs of {} are in the file {}, and a server is named, which knows nothing of them: what they did would be done again, and \
                 what waits there would not be done",
                self.root.shown(),
                file.shown()
            ))
            .hint(format!(
                "`ua db copy`{how} moves them to the server, while its database is empty; to use them where they are, leave the server's URL out \
                 (--database-url, UA_DATABASE_URL, or database_url of config.toml); for other runs, {}; nothing was changed",
                self.another_root()
            )),
        )
    }

    /// Says what is to be known of a server with this identity: that another one is used from here.
    #[cfg(feature = "postgres")]
    pub fn is_used_with_another_server(&self, identity: &str) -> Option<String> {
        let noted = match ua_store_postgres::database_beside(&self.locks()) {
            Ok(noted) => noted?,
            Err(error) => {
                let locks = self.locks();
                return Some(format!(
                    "which database on a server is used here cannot be read in {}: {error}",
                    locks.shown()
                ));
            }
        };
        (noted != identity).then(|| {
            format!("{} is used with another database on a server, and its runs are not in this one", self.root.shown())
        })
    }

    /// What other databases this root was used with, a sentence each: their runs have workspaces here that the one with this identity knows
    /// nothing of. Empty only says that nothing here tells of another one.
    #[cfg_attr(not(feature = "postgres"), expect(unused_variables, reason = "a file is known by its path"))]
    pub fn used_with_others(&self, identity: &str) -> Vec<String> {
        #[cfg(feature = "postgres")]
        if self.server.is_some() {
            if let Some(other) = self.is_used_with_another_server(identity) {
                return vec![other];
            }
            let is_noted = ua_store_postgres::database_beside(&self.locks()).is_ok_and(|noted| noted.is_some());
            let moved = left_of(&self.database).filter(|_| !is_noted);
            return moved
                .map(|left| format!("{} was moved to a server, which may be another one", left.shown()))
                .collect();
        }
        let root = self.root.shown();
        let server = self.was_served().then(|| format!("{root} was used with a database on a server"));
        let own = self.root.join(DATABASE);
        let is_another = own != self.database && !holds_nothing(&own);
        let file = is_another.then(|| format!("{} is another database", own.shown()));
        let kept = ua_store_sqlite::kept_by_restores(&self.database).into_iter();
        let kept = kept.map(|kept| format!("{} is the database that a restore put aside", kept.shown()));
        let noted = self.other_database().map(|other| format!("{} has runs of {root}", other.shown()));
        server.into_iter().chain(file).chain(noted).chain(kept).collect()
    }

    /// Forgets which database on a server is used from here: the runs of this root were moved to one, or taken back.
    ///
    /// # Errors
    /// The note cannot be removed.
    #[cfg(feature = "postgres")]
    pub fn forget_the_server(&self) -> Result<(), HostError> {
        ua_store_postgres::forget_database_beside(&self.locks())
            .map_err(|e| HostError::storage(format!("cannot change {}: {e}", self.locks().shown())))
    }

    /// Whether a line about an effect lies beside the database.
    pub(super) fn has_effects(&self) -> bool {
        fs::metadata(self.state().join("effects.log")).is_ok_and(|log| log.len() > 0)
    }

    /// That there is nothing to move: the database was moved to a server before.
    pub fn moved_already(&self) -> Option<HostError> {
        let is_beside = |left: &std::path::PathBuf| {
            let name = left.to_string_lossy().into_owned();
            name.ends_with("-wal") || name.ends_with("-shm")
        };
        let left = left_of(&self.database).find(|left| !is_beside(left))?;
        Some(
            HostError::usage(format!(
                "the database of {} was moved to a server already, and {} is what is kept of it",
                self.root.shown(),
                left.shown()
            ))
            .hint(format!("{NAME_IT}; nothing was changed")),
        )
    }

    /// Whether the database was moved to a server, by what is kept of it.
    pub(super) fn was_moved(&self) -> bool {
        left_of(&self.database).next().is_some()
    }

    /// Whether a database on a server was used from here.
    pub(super) fn was_served(&self) -> bool {
        self.locks().join(ROOT_ID).is_file()
    }
}

/// The refusal of a copy of a database that is on a server now; `left` is what lies there of it.
pub(super) fn was_moved(copy: &Path, left: &Path) -> HostError {
    HostError::storage(format!(
        "{} is a copy of a database that was moved to a server ({} is what is left of it here), and what was done there since is not in it",
        copy.shown(),
        left.shown()
    ))
    .hint(format!(
        "of the server, {NAME_IT}; if it is not used any more, move {} away first; nothing was changed",
        left.shown()
    ))
    .field("kind", TWO_COPIES)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::super::opening::close;
    use super::super::tests::home;
    use super::*;
    use crate::error::Kind;

    /// What refuses to make or open a file, whichever way it is asked for.
    fn refusals(home: &Home) -> Vec<HostError> {
        let opened = [home.open().map(close), home.open_read_only().map(close), home.open_file().map(drop)];
        opened.into_iter().chain([home.could_open()]).map(Result::unwrap_err).collect()
    }

    /// Over all that a root may have of a server, and all ways to open a file there: none begins another database, or uses an old one.
    #[test]
    fn no_file_is_begun_where_the_runs_are_on_a_server() {
        let folder = tempfile::tempdir().unwrap();
        for is_moved in [false, true] {
            for is_served in [false, true] {
                for left in ["", "runtime_state.db", "effects.log"] {
                    let name = format!("runs {is_moved} {is_served} {left}");
                    let home = home(folder.path(), Some(&name));
                    fs::create_dir_all(home.locks()).unwrap();
                    if is_moved {
                        fs::write(home.root().join("runtime_state.db.moved-20261127T020000Z"), "").unwrap();
                    }
                    if is_served {
                        fs::write(home.locks().join("root_id"), "a root").unwrap();
                    }
                    if !left.is_empty() {
                        // The database without a table, as a process leaves it that was killed.
                        fs::write(home.root().join(left), if left == "effects.log" { "{}\n" } else { "" }).unwrap();
                    }
                    if !is_moved && !is_served {
                        continue;
                    }
                    assert!(!home.is_unused(), "{name}");
                    for refused in refusals(&home) {
                        assert_eq!(refused.kind(), Kind::Storage, "{name}: {refused}");
                        assert!(refused.hint_text().unwrap().contains("--database-url"), "{name}: {refused}");
                    }
                    assert!(holds_nothing(home.database()), "{name}");
                }
            }
        }
    }

    /// Whichever way a root is opened whose runs are in a database in another folder: nothing is begun beside that, and it is named. What is printed
    /// names it, too.
    #[test]
    fn a_root_whose_database_lies_elsewhere_says_where() {
        use crate::env::Process;
        use crate::settings::Settings;
        use crate::words::KnownSecrets;

        let folder = tempfile::tempdir().unwrap();
        let first = home(folder.path(), Some("runs"));
        let elsewhere = folder.path().join("x y.db");
        let variables = [("UA_RUNTIME_DB_PATH".to_owned(), elsewhere.display().to_string())].into();
        let process = Process { variables, folder: Some(folder.path().to_path_buf()), program: None };
        let named = Home::new(&Settings::read(process), Some(Path::new("runs")), &KnownSecrets::default()).unwrap();
        assert!(first.is_unused());
        close(named.open().unwrap());
        assert!(!first.is_unused());
        for refused in refusals(&first) {
            assert_eq!(refused.kind(), Kind::Storage, "{refused}");
            assert!(refused.to_string().contains(&format!("are in {}", elsewhere.display())), "{refused}");
            assert!(refused.hint_text().unwrap().contains("`export 'UA_RUNTIME_DB_PATH=/"), "{refused}");
        }
        assert!(holds_nothing(first.database()), "no other one is begun");
        for commands in [named.commands(), named.commands_from_anywhere()] {
            let printed = commands.complete("ua resume r").into_owned();
            assert!(
                printed.starts_with(&format!("UA_RUNTIME_DB_PATH='{}' ua resume r", elsewhere.display())),
                "{printed}"
            );
            assert!(!first.commands().complete("ua resume r").contains("UA_RUNTIME_DB_PATH"));
        }
        close(named.open().unwrap());
        // One that is gone itself has no runs to be found.
        fs::remove_file(&elsewhere).unwrap();
        assert!(!first.has_another_database());
        // A database beside one in the root may be a copy of it, and is not noted.
        let other = home(folder.path(), Some("other"));
        close(other.open().unwrap());
        fs::copy(other.database(), folder.path().join("copy.db")).unwrap();
        let copy = Home { database: folder.path().join("copy.db"), ..other.clone() };
        copy.note_other_database();
        assert!(!other.has_another_database());
    }

    /// A folder of runs that this database does not know may be one of theirs.
    #[test]
    fn other_databases_that_a_root_was_used_with_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let first = home(folder.path(), Some("runs"));
        close(first.open().unwrap());
        assert_eq!(first.used_with_others("id"), [""; 0]);
        // What a restore put aside, and not what lies beside that.
        let kept = first.root().join("runtime_state.db.before-20261129_150601");
        fs::write(&kept, "x").unwrap();
        fs::write(first.root().join("runtime_state.db.before-20261129_150601-wal"), "x").unwrap();
        assert_eq!(
            first.used_with_others("id"),
            [format!("{} is the database that a restore put aside", kept.display())]
        );
        fs::remove_file(kept).unwrap();
        let elsewhere = folder.path().join("elsewhere.db");
        let named = Home { database: elsewhere, ..first.clone() };
        assert!(named.used_with_others("id")[0].ends_with("runtime_state.db is another database"));
        fs::write(first.locks().join(ROOT_ID), "a root").unwrap();
        let others = first.used_with_others("id");
        assert!(others[0].ends_with("was used with a database on a server"), "{others:?}");
        #[cfg(feature = "postgres")]
        {
            let server = ua_store_postgres::PostgresConfig::from_url("postgres://ua@db.example/ua").unwrap();
            let served = Home { server: Some(server), ..first.clone() };
            assert_eq!(served.used_with_others("id"), [""; 0]);
            fs::write(first.locks().join("database_id"), "id").unwrap();
            assert_eq!(served.used_with_others("id"), [""; 0]);
            assert!(served.used_with_others("other")[0].contains("is used with another database on a server"));
        }
    }

    #[test]
    fn a_copy_of_what_was_moved_is_not_used_beside_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let home = home(folder.path(), Some("runs"));
        close(home.open().unwrap());
        assert!(home.could_open().is_ok());
        let left = home.root().join("runtime_state.db.moved-20261127T020000Z");
        fs::copy(home.database(), &left).unwrap();
        for refused in refusals(&home) {
            assert!(refused.to_string().contains("was moved to a server"), "{refused}");
            assert!(refused.hint_text().unwrap().contains("--database-url"), "{refused}");
        }
        // Another database that was moved from here is none of this one's.
        fs::remove_file(&left).unwrap();
        let other = super::super::tests::home(folder.path(), Some("other"));
        close(other.open().unwrap());
        fs::copy(other.database(), &left).unwrap();
        close(home.open().unwrap());
    }
}
