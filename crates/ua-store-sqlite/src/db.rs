//! One connection while it is used for one write or one read.

use std::cell::RefCell;

use rusqlite::{Connection, ToSql};

use crate::effects::{self, Line, Word};
use crate::error::DbError;
use crate::kept::{Kept, OfRun};
use crate::statement;
use ua_core::{RunId, Timestamp};
use ua_store::{CallRecord, QuestionRecord};

/// A connection inside a transaction, and what is to be logged once that transaction is committed. The SQL is in
/// `run_rows`, `ledger_rows` and `blob_rows`.
pub(crate) struct Db<'c> {
    pub(crate) connection: &'c Connection,
    effects: RefCell<Vec<Line>>,
    kept: RefCell<Kept>,
}

impl<'c> Db<'c> {
    pub(crate) fn new(connection: &'c Connection) -> Self {
        Self::knowing(connection, Kept::default())
    }

    /// A connection of which it is known what is stored in these rows.
    pub(crate) fn knowing(connection: &'c Connection, kept: Kept) -> Self {
        Self { connection, effects: RefCell::default(), kept: RefCell::new(kept) }
    }

    /// What is known, or what `read` finds.
    pub(crate) fn known_or<T: PartialEq + std::fmt::Debug>(
        &self,
        known: impl FnOnce(&Kept) -> Option<T>,
        read: impl FnOnce() -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        let known = known(&self.kept.borrow());
        match known {
            Some(known) => {
                if cfg!(debug_assertions) {
                    assert_eq!(known, read()?, "what is kept is what is stored");
                }
                Ok(known)
            }
            None => read(),
        }
    }

    /// What is made of a row beside what is known to be stored in its place, if it is known; `look` finds it by [`Db::known_or`].
    pub(crate) fn beside_known<T, R, L>(
        &self,
        known: impl Fn(&Kept) -> Option<&T>,
        look: impl FnOnce() -> Result<L, DbError>,
        make: impl FnOnce(Option<&T>) -> Result<R, DbError>,
    ) -> Result<R, DbError> {
        if cfg!(debug_assertions) && known(&self.kept.borrow()).is_some() {
            look()?;
        }
        make(known(&self.kept.borrow()))
    }

    /// Runs a statement with its values, in the order in which it names them.
    pub(crate) fn run_named(&self, sql: &str, values: &[(&str, &dyn ToSql)]) -> rusqlite::Result<usize> {
        statement::run(self.connection, sql, values)
    }

    /// Notes what is stored now.
    pub(crate) fn note(&self, note: impl FnOnce(&mut Kept)) {
        note(&mut self.kept.borrow_mut());
    }

    /// Notes what is stored now of a run.
    pub(crate) fn note_of(&self, run: &RunId, note: impl FnOnce(&mut OfRun)) {
        note(self.kept.borrow_mut().of_mut(run));
    }

    /// Whatever is stored may be another now.
    pub(crate) fn forget(&self) {
        self.kept.take();
    }

    /// Notes a change of an external call for `effects.log`.
    pub(crate) fn note_effect(&self, call: &CallRecord, event: &str, epoch: u64, at: Timestamp) -> Result<(), DbError> {
        if call.policy.is_kept_outside() {
            let tree = self.top_of_tree(&call.run_id)?;
            let found_by = (event == effects::START).then(|| call.names_if_sent());
            self.effects.borrow_mut().push(effects::line(call, &tree, event, found_by, epoch, at)?);
        }
        Ok(())
    }

    /// Notes what a person said about a run for `effects.log`.
    pub(crate) fn note_word(
        &self,
        run: &RunId,
        question: Option<&QuestionRecord>,
        word: &str,
        at: Timestamp,
    ) -> Result<(), DbError> {
        self.note_word_of(run, question, Word { said: word, by: None, at })
    }

    /// The same where no row keeps who said it.
    pub(crate) fn note_word_of(
        &self,
        run: &RunId,
        question: Option<&QuestionRecord>,
        word: Word<'_>,
    ) -> Result<(), DbError> {
        let (root, tree) = (self.run(run)?.root_run_id, self.top_of_tree(run)?);
        self.effects.borrow_mut().push(effects::word(run, &root, &tree, question, word)?);
        Ok(())
    }

    /// How many changes were noted.
    pub(crate) fn effects_noted(&self) -> usize {
        self.effects.borrow().len()
    }

    /// Forgets the changes behind the first so many: they were rolled back.
    pub(crate) fn forget_effects_behind(&self, noted: usize) {
        self.effects.borrow_mut().truncate(noted);
    }

    /// The changes that were noted, and what is known of the rows.
    pub(crate) fn into_parts(self) -> (Vec<Line>, Kept) {
        (self.effects.into_inner(), self.kept.into_inner())
    }
}
