//! Tasks: calls behind which a child run stands.
//!
//! Durability Architecture (Task relaunch rules: reuse the output, else resume the sub-agent). RUNNING of a task and its child run are
//! one write. After that the task is never in doubt: the child's rows, in the same database, say where it stands, so a task found
//! RUNNING goes on, without a new attempt, whoever drove it before. Proved by: `conformance::tasks`, `crash_anywhere::tasks`.

use ua_store::{CallRecord, NewRun};

use crate::admission::Prepared;
use crate::error::LedgerError;
use crate::ledger::Ledger;
use crate::permit::Permit;

/// What stands for a tool server's process with a task.
const GENERATION: &str = "a-child-run";

impl Ledger {
    /// Commits RUNNING of a task together with its child run. `None` as with [`Ledger::start`].
    ///
    /// # Errors
    /// Those of the store.
    pub async fn start_task(&self, prepared: Prepared, child: NewRun) -> Result<Option<Permit>, LedgerError> {
        self.start_with(prepared, GENERATION, Some(child)).await
    }

    /// The permit of a task that is RUNNING: its intent is on stable storage, and nothing of it was answered yet.
    pub(crate) fn ongoing_task(&self, call: &CallRecord) -> Option<Permit> {
        let key = call.idempotency_key.clone().filter(|_| call.name.is_task())?;
        let traceparent = self.trace.traceparent(&self.env);
        Some(Permit::new(call.clone(), key, self.lease.clone(), GENERATION.to_owned(), traceparent))
    }
}
