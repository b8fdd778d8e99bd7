//! How runs were started, where this user alone can write.
//!
//! What a database says of the start of its runs counts by a seal that this user's `ua` made (`launch::vouched`). The key lies here, and the
//! seals of what an earlier version stored in a database that was this user's own by then: it made none. So of each database it is noted, when
//! this version opens it first, whether what is in it by then is to be looked at, which is done once.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use ua_files::{Believe, Folder, secret};
use ua_store_sqlite::identity_of;

use super::Roots;
use super::databases::name_of;

/// The file, in the user's state folder, with the key of the seals.
const KEY: &str = "launches.key";
/// The folder, in the user's state folder, of what earlier versions stored.
const LAUNCHES: &str = "launches";
/// Stands in the place of seals that nobody has made yet.
const TO_BE_MADE: &str = "to be made";
/// The longest note that is read: seals of a hundred thousand runs.
const MAX_NOTE_BYTES: u64 = 8 * 1024 * 1024;

/// What an earlier version stored in a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Earlier {
    /// It is this user's own, and its seals are to be made.
    ToBeMade,
    /// These are its seals, and nothing else counts without one.
    Made(BTreeSet<String>),
}

impl Roots {
    /// The key of this user's seals, made when there is none.
    ///
    /// # Errors
    /// It can be neither read nor made.
    pub(crate) fn launch_key(&self) -> io::Result<String> {
        secret(&self.make_state()?, KEY, Believe::Whatever)
    }

    /// Notes of a database whether what is in it by now counts without a seal: once, and never of another one that comes in its place.
    ///
    /// # Errors
    /// Nothing can be written in the state folder.
    pub(crate) fn note_launches(&self, database: &Path, identity: &str, are_own: bool) -> io::Result<()> {
        let before = self.note_of_launches(database);
        if before.as_deref().and_then(|note| note.lines().next()) == Some(identity) {
            return Ok(());
        }
        let seals = if are_own && before.is_none() { TO_BE_MADE } else { "" };
        let notes = self.make_state()?.make_folder(LAUNCHES)?;
        notes.replace(name_of(database), format!("{identity}\n{seals}\n").as_bytes())
    }

    /// What an earlier version stored in the database at this path, if it is the one that the note is about.
    pub(crate) fn earlier_launches(&self, database: &Path) -> Earlier {
        let note = self.note_of_launches(database).unwrap_or_default();
        let mut lines = note.lines();
        let is_of_it = lines.next().is_some_and(|noted| identity_of(database).is_some_and(|found| found == noted));
        let seals: BTreeSet<String> = lines.filter(|seal| is_of_it && !seal.is_empty()).map(str::to_owned).collect();
        if seals.contains(TO_BE_MADE) { Earlier::ToBeMade } else { Earlier::Made(seals) }
    }

    /// Notes the seals of what an earlier version stored.
    ///
    /// # Errors
    /// Nothing can be written in the state folder.
    pub(crate) fn keep_earlier_launches(&self, database: &Path, seals: &BTreeSet<String>) -> io::Result<()> {
        let note = self.note_of_launches(database).unwrap_or_default();
        let mut text = note.lines().next().unwrap_or_default().to_owned() + "\n";
        for seal in seals {
            text.push_str(seal);
            text.push('\n');
        }
        self.make_state()?.make_folder(LAUNCHES)?.replace(name_of(database), text.as_bytes())
    }

    fn note_of_launches(&self, database: &Path) -> Option<String> {
        let notes = Folder::open(self.state()?).ok()?.folder(LAUNCHES).ok()?;
        String::from_utf8(notes.read(name_of(database), MAX_NOTE_BYTES).ok()?).ok()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use ua_store_sqlite::{SqliteConfig, SqliteStore};

    use super::*;

    #[test]
    fn what_was_stored_before_counts_in_a_database_that_was_own_by_then_and_is_looked_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::new(Some(dir.path().join("state")));
        let database = |name: &str| {
            let path = dir.path().join(name);
            let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
            let identity = store.db_uuid().to_owned();
            store.close().unwrap();
            (path, identity)
        };
        let ((own, its), (foreign, others)) = (database("own.db"), database("foreign.db"));
        let none = Earlier::Made(BTreeSet::new());
        assert_eq!(roots.earlier_launches(&own), none, "of what nothing is noted nothing counts");
        roots.note_launches(&own, &its, true).unwrap();
        roots.note_launches(&foreign, &others, false).unwrap();
        // Whoever comes later says nothing about it any more.
        roots.note_launches(&own, &its, false).unwrap();
        roots.note_launches(&foreign, &others, true).unwrap();
        assert_eq!((roots.earlier_launches(&own), roots.earlier_launches(&foreign)), (Earlier::ToBeMade, none.clone()));
        let seals = BTreeSet::from(["a1".to_owned(), "b2".to_owned()]);
        roots.keep_earlier_launches(&own, &seals).unwrap();
        roots.note_launches(&own, &its, true).unwrap();
        assert_eq!(roots.earlier_launches(&own), Earlier::Made(seals));
        // Another database in its place has none, whoever put it there.
        std::fs::copy(&foreign, &own).unwrap();
        assert_eq!(roots.earlier_launches(&own), none);
        roots.note_launches(&own, &others, true).unwrap();
        assert_eq!(roots.earlier_launches(&own), none);
        let key = roots.launch_key().unwrap();
        assert!(key.len() >= 64 && roots.launch_key().unwrap() == key && Roots::new(None).launch_key().is_err());
    }
}
