//! What the writer knows of the rows that it wrote last, from one transaction to the next.
//!
//! Each change of a run begins by looking at its run, its step, its open turn, its call. The writer is the only connection that writes in this
//! process, so what it stored is what is there until another process commits something (`PRAGMA data_version`, looked at behind BEGIN).
//! Nothing outlives a transaction that is rolled back, a savepoint that is, or a statement that changes rows by something else than their key.
//! With debug assertions whatever is taken from here is read as well, and compared.

use std::collections::BTreeMap;
use std::sync::Arc;

use ua_core::{CallId, RunId, StepId};
use ua_store::rows::Written;
use ua_store::{AttemptRecord, CallRecord, RequestId, RequestRecord, RunRecord, StepRecord, TurnRecord};

/// Rows of as many runs are kept: those that a group of writes is of.
const MOST_RUNS: usize = 128;
/// Of turns with more calls none are.
const MOST_CALLS: usize = 64;

/// Rows as they are stored.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Found by comparing names: mostly one run writes, and hashing its name takes longer.
    runs: BTreeMap<RunId, OfRun>,
    /// The number of the newest receipt of all; 0 when there is none.
    pub(crate) last_receipt: Option<i64>,
}

/// What is known about one run.
#[derive(Debug, Default)]
#[expect(clippy::option_option, reason = "unknown, known to be none, and known: three states")]
pub(crate) struct OfRun {
    pub(crate) run: Option<Arc<RunRecord>>,
    /// The place before the first of its rows in tables that lie by run.
    pub(crate) places: Option<i64>,
    pub(crate) written: Option<Written>,
    pub(crate) step: Option<StepRecord>,
    /// The open turn, or that there is none.
    pub(crate) open_turn: Option<Option<TurnRecord>>,
    /// The place of its newest message.
    pub(crate) last_seq: Option<u64>,
    /// The number of its newest checkpoint; of the one before its first when it has none.
    pub(crate) last_checkpoint: Option<i64>,
    /// Its newest request, or that there is none.
    pub(crate) last_request: Option<Option<RequestRecord>>,
    /// The calls of its newest turn, once that turn was begun here.
    pub(crate) calls: Option<CallsOfTurn>,
}

/// All calls of a turn, by position, with the attempts that were begun here.
#[derive(Debug)]
pub(crate) struct CallsOfTurn {
    pub(crate) turn: u32,
    pub(crate) calls: Vec<CallRecord>,
    pub(crate) attempts: BTreeMap<CallId, AttemptRecord>,
}

impl Kept {
    /// What is known about a run.
    pub(crate) fn of(&self, run: &RunId) -> Option<&OfRun> {
        self.runs.get(run)
    }

    /// The same, to be added to.
    pub(crate) fn of_mut(&mut self, run: &RunId) -> &mut OfRun {
        if !self.runs.contains_key(run) {
            if self.runs.len() >= MOST_RUNS {
                self.runs.clear();
            }
            self.runs.insert(run.clone(), OfRun::default());
        }
        let Some(of) = self.runs.get_mut(run) else { unreachable!("a run that was not known has just been put there") };
        of
    }

    /// A step, if it is the one that is known of its run.
    pub(crate) fn step(&self, id: &StepId) -> Option<&StepRecord> {
        let mut steps = self.runs.values().filter_map(|of| of.step.as_ref());
        steps.find(|step| step.step_id == *id)
    }

    /// A call of a turn that was begun here.
    pub(crate) fn call(&self, id: &CallId) -> Option<&CallRecord> {
        let mut calls = self.runs.values().filter_map(|of| of.calls.as_ref()).flat_map(|of| &of.calls);
        calls.find(|call| call.call_id == *id)
    }

    /// A request, if it is the newest that is known of its run.
    pub(crate) fn request(&self, run: &RunId, id: RequestId) -> Option<&RequestRecord> {
        self.of(run)?.last_request.as_ref()?.as_ref().filter(|last| last.request_id == id)
    }

    /// The newest attempt of a call, if it was begun here.
    pub(crate) fn attempt(&self, call: &CallRecord) -> Option<AttemptRecord> {
        let calls = self.of(&call.run_id)?.calls.as_ref()?;
        calls.attempts.get(&call.call_id).filter(|attempt| attempt.attempt == call.attempt).cloned()
    }

    /// The calls of a turn that was begun here.
    pub(crate) fn calls_of_turn(&self, run: &RunId, turn: u32) -> Option<Vec<CallRecord>> {
        self.of(run)?.calls.as_ref().filter(|of| of.turn == turn).map(|of| of.calls.clone())
    }

    /// A call was planned.
    pub(crate) fn call_inserted(&mut self, call: &CallRecord) {
        let of = self.of_mut(&call.run_id);
        if let Some(of) = of.calls.as_mut().filter(|of| of.turn == call.position.turn) {
            of.calls.push(call.clone());
            of.calls.sort_by_key(|call| call.position);
        }
        // A session of a client may have thousands.
        if of.calls.as_ref().is_some_and(|of| of.calls.len() > MOST_CALLS) {
            of.calls = None;
        }
    }

    /// A call was changed.
    pub(crate) fn call_updated(&mut self, call: &CallRecord) {
        let Some(of) = self.runs.get_mut(&call.run_id).and_then(|of| of.calls.as_mut()) else { return };
        if let Some(known) = of.calls.iter_mut().find(|known| known.call_id == call.call_id) {
            known.clone_from(call);
        }
    }

    /// An attempt was begun, or ended, or goes on with something.
    pub(crate) fn attempt_put(&mut self, attempt: &AttemptRecord) {
        let of_turns = self.runs.values_mut().filter_map(|of| of.calls.as_mut());
        for of in of_turns {
            if of.calls.iter().any(|call| call.call_id == attempt.call_id) {
                of.attempts.insert(attempt.call_id.clone(), attempt.clone());
            }
        }
    }
}
