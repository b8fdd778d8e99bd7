//! One connection while it is used for one write or one read.

use std::cell::RefCell;

use rusqlite::Connection;
use serde_json::Value;

use crate::effects;
use crate::error::DbError;
use ua_core::Timestamp;
use ua_store::CallRecord;

/// A connection inside a transaction, and what is to be logged once that transaction is committed. The SQL is in
/// `run_rows`, `ledger_rows` and `blob_rows`.
pub(crate) struct Db<'c> {
    pub(crate) connection: &'c Connection,
    effects: RefCell<Vec<Value>>,
}

impl<'c> Db<'c> {
    pub(crate) fn new(connection: &'c Connection) -> Self {
        Self { connection, effects: RefCell::new(Vec::new()) }
    }

    /// Notes a change of an external call for `effects.log`.
    pub(crate) fn note_effect(&self, call: &CallRecord, event: &str, epoch: u64, at: Timestamp) -> Result<(), DbError> {
        if call.policy.is_kept_outside() {
            let tree = self.top_of_tree(&call.run_id)?;
            self.effects.borrow_mut().push(effects::line(call, &tree, event, epoch, at));
        }
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
