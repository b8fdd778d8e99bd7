//! Which database this user's own roots have.
//!
//! A root in a checkout is ignored by its version control, which replaces ignored files without a word: what is in the folder may be
//! somebody else's although the folder is this user's own. So the identity of each database that this user's `ua` made, or was told to
//! use, is noted in the user's state folder, by the database's path. Nobody else knows it.

use std::fs::File;
use std::io;
use std::path::Path;

use ua_core::KeyBuilder;
use ua_files::{Folder, unguessable};
use ua_store_sqlite::{foreign_beside, identity_of};

use super::Roots;

/// The folder, in the user's state folder, of the databases that are believed.
const DATABASES: &str = "databases";
/// The longest identity that is read.
const MAX_IDENTITY_BYTES: u64 = 256;

/// A database that is about to be made.
#[derive(Debug)]
pub(crate) struct NewDatabase {
    /// What it will be known by.
    pub(crate) identity: String,
    /// Held until it is there.
    _lock: File,
}

impl Roots {
    /// The identity that the database at this path had when it was used last; `None` when nothing is noted.
    pub(crate) fn database_at(&self, database: &Path) -> Option<String> {
        let databases = Folder::open(self.state.as_deref()?).ok()?.folder(DATABASES).ok()?;
        let noted = String::from_utf8(databases.read(name_of(database), MAX_IDENTITY_BYTES).ok()?).ok()?;
        Some(noted.trim_end().to_owned()).filter(|identity| !identity.is_empty())
    }

    /// Draws the identity of a database that is to be made at this path, and notes it, so that there is no moment in which nothing says which
    /// database this user's own is. As long as what is given back is kept, nobody else begins to make one there. `is_to_be_made` is asked when
    /// nobody else does: `None` when the answer is no by then, or when nothing can be noted.
    pub(crate) fn note_new_database(&self, database: &Path, is_to_be_made: impl Fn() -> bool) -> Option<NewDatabase> {
        if !is_to_be_made() {
            return None;
        }
        let drawn = || {
            let databases = self.make_state()?.make_folder(DATABASES)?;
            let name = name_of(database);
            // In the folder of the user's state, where nobody else can put anything in its place.
            let lock = databases.open_or_make(format!("{name}.lock"))?;
            lock.lock()?;
            if !is_to_be_made() {
                return Ok(None);
            }
            let identity = unguessable()?;
            databases.replace(&name, format!("{identity}\n").as_bytes())?;
            Ok(Some(NewDatabase { identity, _lock: lock }))
        };
        drawn().unwrap_or_else(|error: io::Error| {
            tracing::debug!(%error, "the new database could not be noted as this user's own");
            None
        })
    }

    /// Whether the database at this path is the one that this user's `ua` left there, with what stands beside it, as far as that can be told.
    pub(crate) fn is_own_database(&self, database: &Path) -> bool {
        let is_other = |own: String| identity_of(database).is_some_and(|found| found != own);
        foreign_beside(database).is_none() && !self.database_at(database).is_some_and(is_other)
    }

    /// Notes that the database at this path is this user's own, by its identity.
    ///
    /// # Errors
    /// Nothing can be written in the state folder.
    pub(crate) fn note_database(&self, database: &Path, identity: &str) -> io::Result<()> {
        if self.database_at(database).as_deref() == Some(identity) {
            return Ok(());
        }
        let databases = self.make_state()?.make_folder(DATABASES)?;
        databases.replace(name_of(database), format!("{identity}\n").as_bytes())
    }
}

/// Its file among the notes, and what seals name it by.
pub(crate) fn name_of(database: &Path) -> String {
    let path = crate::paths::resolved(database);
    KeyBuilder::new("ua.database.v1").field("path", &path.to_string_lossy()).finish().as_str().to_owned()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_known_by_its_path_and_its_identity() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one.db"), dir.path().join("other.db"));
        let roots = Roots::new(Some(dir.path().join("state")));
        assert_eq!(roots.database_at(&one), None);
        roots.note_database(&one, "a1").unwrap();
        assert_eq!((roots.database_at(&one).as_deref(), roots.database_at(&other)), (Some("a1"), None));
        roots.note_database(&one, "b2").unwrap();
        assert_eq!(roots.database_at(&one).as_deref(), Some("b2"));
        assert!(Roots::new(None).note_database(&one, "a1").is_err());
    }

    #[test]
    fn a_new_database_is_noted_before_it_is_there_and_by_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let (one, roots) = (dir.path().join("one.db"), Roots::new(Some(dir.path().join("state"))));
        roots.note_database(&one, "a1").unwrap();
        assert!(roots.note_new_database(&one, || false).is_none());
        assert_eq!(roots.database_at(&one).as_deref(), Some("a1"), "what is there stays what it is");
        // Several that find none at once: one makes it, and the others take what is there then.
        let made = std::thread::scope(|scope| {
            let make = || {
                let new = roots.note_new_database(&one, || !one.exists())?;
                std::fs::write(&one, &new.identity).unwrap();
                Some(new.identity)
            };
            let all: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
            all.into_iter().filter_map(|one| one.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(made.len(), 1);
        assert_eq!(roots.database_at(&one), Some(std::fs::read_to_string(&one).unwrap()));
        assert!(Roots::new(None).note_new_database(&one, || true).is_none());
    }
}
