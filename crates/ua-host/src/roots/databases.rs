//! Which database this user's own roots have.
//!
//! A root in a checkout is ignored by its version control, which replaces ignored files without a word: what is in the folder may be
//! somebody else's although the folder is this user's own. So the identity of each database that this user's `ua` made, or was told to
//! use, is noted in the user's state folder, by the database's path. Nobody else knows it.

use std::io;
use std::path::Path;

use ua_core::KeyBuilder;
use ua_files::Folder;
use ua_store_sqlite::{foreign_beside, identity_of};

use super::Roots;

/// The folder, in the user's state folder, of the databases that are believed.
const DATABASES: &str = "databases";
/// The longest identity that is read.
const MAX_IDENTITY_BYTES: u64 = 256;

impl Roots {
    /// The identity that the database at this path had when it was used last; `None` when nothing is noted.
    pub(crate) fn database_at(&self, database: &Path) -> Option<String> {
        let databases = Folder::open(self.state.as_deref()?).ok()?.folder(DATABASES).ok()?;
        let noted = String::from_utf8(databases.read(name_of(database), MAX_IDENTITY_BYTES).ok()?).ok()?;
        Some(noted.trim_end().to_owned()).filter(|identity| !identity.is_empty())
    }

    /// Forgets which database was at this path, which is gone.
    pub(crate) fn forget_database(&self, database: &Path) {
        let noted = || Folder::open(self.state.as_deref()?).ok()?.folder(DATABASES).ok();
        if let Some(Err(error)) = noted().map(|databases| databases.remove(name_of(database)))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(%error, "the note about a database that is gone stays");
        }
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

/// Its file among the notes.
fn name_of(database: &Path) -> String {
    let path = crate::paths::resolved(database);
    KeyBuilder::new("ua.database.v1").field("path", &path.display().to_string()).finish().as_str().to_owned()
}

#[cfg(test)]
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
}
