//! One connection while it is used for one write or one read.

use std::cell::RefCell;

use rusqlite::Connection;
use serde_json::Value;

use crate::effects;
use crate::error::DbError;
use ua_core::{RunId, Timestamp};
use ua_store::{CallRecord, QuestionRecord, RunRecord};

/// A connection inside a transaction, and what is to be logged once that transaction is committed. The SQL is in
/// `run_rows`, `ledger_rows` and `blob_rows`.
pub(crate) struct Db<'c> {
    pub(crate) connection: &'c Connection,
    effects: RefCell<Vec<Value>>,
    /// The run that was read or stored last: each change of a batch begins by looking at its run.
    run: RefCell<Option<RunRecord>>,
}

impl<'c> Db<'c> {
    pub(crate) fn new(connection: &'c Connection) -> Self {
        Self { connection, effects: RefCell::default(), run: RefCell::default() }
    }

    /// A run that this transaction has seen, as it is stored.
    pub(crate) fn known_run(&self, id: &RunId) -> Option<RunRecord> {
        self.run.borrow().as_ref().filter(|run| run.run_id == *id).cloned()
    }

    pub(crate) fn keep_run(&self, run: &RunRecord) {
        *self.run.borrow_mut() = Some(run.clone());
    }

    /// Whatever is stored of runs may be another now.
    pub(crate) fn forget_run(&self) {
        *self.run.borrow_mut() = None;
    }

    /// Notes a change of an external call for `effects.log`.
    pub(crate) fn note_effect(&self, call: &CallRecord, event: &str, epoch: u64, at: Timestamp) -> Result<(), DbError> {
        if call.policy.is_kept_outside() {
            let tree = self.top_of_tree(&call.run_id)?;
            self.effects.borrow_mut().push(effects::line(call, &tree, event, epoch, at));
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
        let (root, tree) = (self.run(run)?.root_run_id, self.top_of_tree(run)?);
        self.effects.borrow_mut().push(effects::word(run, &root, &tree, question, word, at));
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

    pub(crate) fn into_effects(self) -> Vec<Value> {
        self.effects.into_inner()
    }
}
