//! What somebody put beside the database of a root that is this user's own: a log or a journal, whose pages SQLite takes for the database's.

use ua_store_sqlite::foreign_beside;

use super::Home;
use crate::error::HostError;
use ua_core::ShowPath as _;

impl Home {
    /// Refuses it before anything is read, unless a person names the root: what is in it is theirs then.
    pub(super) fn refuse_planted(&self) -> Result<(), HostError> {
        let Some(planted) = foreign_beside(&self.database) else { return Ok(()) };
        Err(HostError::usage(format!(
            "{} was not left beside the database by ua: somebody put it there, as a checkout may do",
            planted.shown()
        ))
        .hint(format!(
            "it would change what is in the database, and so which programs its runs start. If a program of yours that writes to the database has it \
             open (`sqlite3`), close that first; if you put the file there together with the database, or an earlier version of ua was killed, {}; \
             otherwise move it away; nothing was read",
            self.how_to_trust()
        )))
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::super::{DEFAULT_ROOT, close};
    use super::*;
    use crate::env::Process;
    use crate::settings::Settings;
    use crate::skips::skipped;
    use crate::words::KnownSecrets;

    /// Whether files have attributes where tests are.
    fn keeps_marks(folder: &Path) -> bool {
        let scratch = folder.join("scratch");
        fs::write(&scratch, "").unwrap();
        rustix::fs::lsetxattr(&scratch, "user.ua.scratch", b"x", rustix::fs::XattrFlags::empty()).is_ok()
    }

    #[test]
    fn a_log_that_somebody_put_beside_the_own_database_is_refused_until_it_is_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("work");
        fs::create_dir(&work).unwrap();
        let variables = [("HOME".to_owned(), folder.path().join("me").display().to_string())].into();
        let own = Settings::read(Process { folder: Some(work.clone()), variables, ..Process::default() });
        let home = || Home::new(&own, None, &KnownSecrets::default()).unwrap();
        close(home().open().unwrap());
        let database = home().database().to_path_buf();
        if !keeps_marks(folder.path()) {
            return skipped("files here have no attributes, so nothing tests what is put beside a database");
        }
        let beside = |ending: &str| PathBuf::from(format!("{}{ending}", database.display()));
        let before = fs::read(&database).unwrap();
        let root = work.join(DEFAULT_ROOT);
        let trusting: [&dyn Fn(); 3] = [
            &|| Home::adopt(&own, &root).unwrap(),
            &|| {
                close(
                    Home::new(&own, Some(Path::new(DEFAULT_ROOT)), &KnownSecrets::default()).unwrap().open().unwrap(),
                );
            },
            &|| close(home().trusted().open().unwrap()),
        ];
        for ending in ["-wal", "-journal"] {
            for trust in trusting {
                fs::remove_file(beside(ending)).unwrap_or_default();
                // What SQLite finds no page in is as good as any other.
                fs::write(beside(ending), [0; 64]).unwrap();
                for refused in [
                    home().open().unwrap_err(),
                    home().open_read_only().unwrap_err(),
                    home().open_file().unwrap_err(),
                    home().could_open().unwrap_err(),
                ] {
                    assert_eq!(refused.kind(), crate::error::Kind::Usage, "{refused}");
                    assert!(
                        refused.to_string().contains(&format!("runtime_state.db{ending} was not left")),
                        "{refused}"
                    );
                    assert!(refused.hint_text().unwrap().contains("ua trust"), "{refused}");
                }
                assert!(fs::read(&database).unwrap() == before && fs::read(beside(ending)).unwrap() == [0; 64]);
                trust();
                close(home().open().unwrap());
            }
        }
        // Its own, of processes that were killed: both that are there at once, and the next one.
        let killed = [home().open().unwrap(), home().open().unwrap()];
        close(home().open().unwrap());
        std::mem::forget(killed);
        close(home().open().unwrap());
        close(home().open_read_only().unwrap());
    }
}
