//! Whose word it is how the runs of a database are started.

use std::collections::BTreeSet;

use super::Home;
use crate::launch::SaidBy;
use crate::roots::{Belief, Earlier, name_of_database};

impl Home {
    /// Whether the database is believed about it.
    pub(crate) fn believes_launches(&self, has_key: bool) -> bool {
        self.word_of_database(has_key) != SaidBy::Database
    }

    /// What the word of the database is as good as: this user's own of one on a server, which several users and machines have by their
    /// configuration, and of one in a root that is named where nothing can be noted, so that the name is all there is; for the command at work, of
    /// one in a root that a person said to trust with it.
    pub(crate) fn word_of_database(&self, has_key: bool) -> SaidBy {
        if self.is_on_a_server() || (self.root_is_named && !has_key) {
            SaidBy::User
        } else if self.root_is_trusted {
            SaidBy::BelievedNow
        } else {
            SaidBy::Database
        }
    }

    /// The place that seals of how runs are started are good for: the one of the database, whichever root a command was given.
    pub(crate) fn place_of_launches(&self) -> String {
        name_of_database(&self.database)
    }

    /// The key of this user's seals; `None` where none can be kept.
    pub(crate) fn launch_key(&self) -> Option<String> {
        self.roots
            .launch_key()
            .inspect_err(|error| tracing::debug!(%error, "there is no key for how runs are started"))
            .ok()
    }

    /// What an earlier version stored in the database of this root.
    pub(crate) fn earlier_launches(&self) -> Earlier {
        self.roots.earlier_launches(&self.database)
    }

    /// Notes the seals of that.
    pub(crate) fn keep_earlier_launches(&self, seals: &BTreeSet<String>) {
        if let Err(error) = self.roots.keep_earlier_launches(&self.database, seals) {
            tracing::debug!(%error, "what an earlier version stored could not be noted");
        }
    }

    /// Whether root and database were this user's own before the command that is at work.
    pub(super) fn is_noted(&self) -> bool {
        let mut folders = [self.root.as_path(), self.state()].into_iter();
        folders.all(|folder| self.roots.judge(folder) == Belief::Own) && self.roots.is_own_database(&self.database)
    }

    /// Notes whether what is stored by now counts, the first time that this version has the database.
    pub(super) fn note_launches(&self, identity: &str, was_own: bool) {
        if let Err(error) = self.roots.note_launches(&self.database, identity, was_own) {
            tracing::debug!(%error, "it could not be noted whose word the runs of the database are");
        }
    }
}
