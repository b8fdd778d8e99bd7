//! What a store knows of the rows that a run's owner wrote last, from one transaction to the next.
//!
//! Each change of a run begins by looking at its run, its step, its open turn, its call: rows that its owner wrote itself a moment ago. So they are
//! kept, and the next batch is computed from them and leaves in one flight, with a guard behind the lock of the lineage that refuses all of it when
//! anybody else has written since: `run_writes` still is the row that the transaction left whose rows these are, with the same counts, and
//! the run has the same owner. Whatever changes a row that is kept here writes that row too: a numbered batch counts it, one without a number
//! touches it, and so does whoever takes the run, gives it a word or corrects it. A server that was put back may give a transaction's number a second
//! time, which is why the counts and the owner are compared as well.
//!
//! Invariants: nothing is decided by what is kept alone. What the guard refuses, and whatever a rule refuses here, is done again from what is
//! read. Proved by: the conformance suites, which run with every row that is kept compared with what is stored; `tests/it/known.rs`.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ua_core::{CallId, RunId, RunStatus};
use ua_store::rows::Written;
use ua_store::{AttemptRecord, CallRecord, RequestRecord, RunLease, RunRecord, StepRecord, TurnRecord};

use crate::db::Db;
use crate::error::DbError;
use crate::value::params;

/// Rows of as many runs are kept.
const MOST_RUNS: usize = 256;
/// Of turns with more calls none are.
const MOST_CALLS: usize = 64;

/// What is known of one run, and when it is still so.
#[derive(Debug)]
pub(crate) struct Kept {
    /// Whose rows they are.
    pub(crate) lease: RunLease,
    /// The transaction that wrote the run's row of `run_writes`.
    pub(crate) written_by: String,
    /// The rows.
    pub(crate) rows: OfRun,
}

/// Rows of a run as they are stored.
#[derive(Debug, Default)]
#[expect(clippy::option_option, reason = "not known, known to be none, and known are three things")]
pub(crate) struct OfRun {
    pub(crate) run: Option<RunRecord>,
    pub(crate) written: Option<Written>,
    pub(crate) step: Option<StepRecord>,
    /// The open turn, or that there is none.
    pub(crate) open_turn: Option<Option<TurnRecord>>,
    /// The place of its newest message.
    pub(crate) last_seq: Option<u64>,
    /// Its newest request, or that there is none.
    pub(crate) last_request: Option<Option<RequestRecord>>,
    /// The calls of its newest turn, once that turn was begun here.
    pub(crate) calls: Option<CallsOfTurn>,
    /// Whether nothing was related to the call that was started last, in a family of one run. No more than a guess about the next one.
    pub(crate) was_alone: bool,
}

/// All calls of a turn, by position, with the attempts that were begun here.
#[derive(Debug)]
pub(crate) struct CallsOfTurn {
    pub(crate) turn: u32,
    pub(crate) calls: Vec<CallRecord>,
    pub(crate) attempts: HashMap<CallId, AttemptRecord>,
}

impl Kept {
    /// Asserts that the rows are those that are stored, unless somebody else has written since; for tests.
    pub(crate) fn assert_stored(&self, db: &Db) -> Result<(), DbError> {
        let run = &self.lease.run_id;
        let sql = "SELECT xmin::text FROM run_writes WHERE run_id = $1";
        let written_by = db.row(sql, params![run.as_str()], |row| Ok(row.try_get::<_, String>(0)?))?;
        if written_by.as_deref() != Some(self.written_by.as_str()) {
            return Ok(());
        }
        let rows = &self.rows;
        if let Some(known) = &rows.run {
            assert_eq!(*known, db.run(run)?, "what is kept of a run is what is stored");
        }
        if let Some(known) = rows.written {
            assert_eq!(known, db.written(run)?, "what is kept of a run's counts is what is stored");
        }
        if let Some(known) = &rows.step {
            assert_eq!(Some(known), db.step(&known.step_id)?.as_ref(), "what is kept of a step is what is stored");
        }
        if let Some(known) = &rows.open_turn {
            assert_eq!(*known, db.open_turn(run)?, "what is kept of an open turn is what is stored");
        }
        if let Some(known) = rows.last_seq {
            assert_eq!(known, db.last_seq(run)?, "what is kept of the newest message is what is stored");
        }
        if let Some(known) = &rows.last_request {
            assert_eq!(*known, db.last_request(run)?, "what is kept of the newest request is what is stored");
        }
        if let Some(known) = &rows.calls {
            assert_eq!(known.calls, db.calls_of(run, Some(known.turn))?, "what is kept of calls is what is stored");
            for attempt in known.attempts.values() {
                let call = db.call(&attempt.call_id)?;
                if call.attempt == attempt.attempt {
                    let stored = db.current_attempt(&call)?;
                    assert_eq!(Some(attempt), stored.as_ref(), "what is kept of an attempt is what is stored");
                }
            }
        }
        Ok(())
    }
}

impl OfRun {
    /// A call of a turn that was begun here.
    pub(crate) fn call(&self, id: &CallId) -> Option<&CallRecord> {
        self.calls.as_ref()?.calls.iter().find(|call| call.call_id == *id)
    }

    /// The newest attempt of a call, if it was begun here.
    pub(crate) fn attempt(&self, call: &CallRecord) -> Option<&AttemptRecord> {
        self.calls.as_ref()?.attempts.get(&call.call_id).filter(|attempt| attempt.attempt == call.attempt)
    }

    /// The calls of a turn that was begun here.
    pub(crate) fn calls_of_turn(&self, turn: u32) -> Option<&[CallRecord]> {
        self.calls.as_ref().filter(|of| of.turn == turn).map(|of| of.calls.as_slice())
    }

    /// A call was planned.
    pub(crate) fn call_inserted(&mut self, call: &CallRecord) {
        if let Some(of) = self.calls.as_mut().filter(|of| of.turn == call.position.turn) {
            of.calls.push(call.clone());
            of.calls.sort_by_key(|call| call.position);
        }
        // A session of a client may have thousands.
        if self.calls.as_ref().is_some_and(|of| of.calls.len() > MOST_CALLS) {
            self.calls = None;
        }
    }

    /// A call was changed.
    pub(crate) fn call_updated(&mut self, call: &CallRecord) {
        let known = self.calls.as_mut().and_then(|of| of.calls.iter_mut().find(|known| known.call_id == call.call_id));
        if let Some(known) = known {
            known.clone_from(call);
        }
    }

    /// An attempt was begun, or ended, or goes on with something.
    pub(crate) fn attempt_put(&mut self, attempt: &AttemptRecord) {
        if let Some(of) = self.calls.as_mut().filter(|of| of.calls.iter().any(|call| call.call_id == attempt.call_id)) {
            of.attempts.insert(attempt.call_id.clone(), attempt.clone());
        }
    }
}

/// What is kept of all runs that this store writes.
#[derive(Debug, Default)]
pub(crate) struct KeptRuns(Mutex<HashMap<RunId, Kept>>);

impl KeptRuns {
    fn runs(&self) -> MutexGuard<'_, HashMap<RunId, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what is known of the run of a lease: of two writes at once one knows nothing, and neither what the other leaves behind.
    pub(crate) fn take(&self, lease: &RunLease) -> Option<Kept> {
        self.runs().remove(&lease.run_id).filter(|kept| kept.lease == *lease)
    }

    /// Keeps what a transaction left behind that is committed.
    pub(crate) fn put(&self, kept: Kept) {
        let is_driven = kept.rows.run.as_ref().is_some_and(|run| run.status == RunStatus::Running);
        if !is_driven || kept.rows.written.is_none() {
            return;
        }
        let mut runs = self.runs();
        if runs.len() >= MOST_RUNS {
            runs.clear();
        }
        runs.insert(kept.lease.run_id.clone(), kept);
    }
}
