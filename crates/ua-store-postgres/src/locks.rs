//! Which writes follow each other.
//!
//! One connection writes SQLite, so what a write read is the newest until it is committed. Here many write at once. A write begins by locking
//! the root rows of the lineages that it is about: within a lineage it is as it is in SQLite, and different lineages do not wait for each
//! other. What reaches over lineages is locked by name, behind the rows, always in this order: job key, project, blobs; and the history before the
//! fleet.

use ua_core::{CallId, QuestionId, RunId};
use ua_store::{Author, Batch, Change, NewRun};

use crate::value::Value;

/// What lineages share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shared {
    /// A job key names one lineage.
    JobKey,
    /// A project of the gateway.
    Project,
    /// The blobs, of which one may be referred to by many runs.
    Blobs,
    /// Workers and the queue.
    Fleet,
    /// Whose the gateway of the database is.
    Gateway,
    /// Which history the server has.
    History,
    /// What one process does at a time of all that use the database ([`OnlyOne`](crate::OnlyOne)).
    OnlyOne,
}

impl Shared {
    /// Tells locks of one kind from those of another; and, as they are kept for good, from those of other programs in the database.
    pub(crate) const fn seed(self) -> i64 {
        match self {
            Self::JobKey => 0x7561_0001,
            Self::Project => 0x7561_0002,
            Self::Blobs => 0x7561_0003,
            Self::Fleet => 0x7561_0004,
            Self::OnlyOne => 0x7561_0005,
            Self::Gateway => 0x7561_0006,
            Self::History => 0x7561_0007,
        }
    }
}

/// What names the lineages that a batch is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    runs: Vec<String>,
    calls: Vec<String>,
    questions: Vec<String>,
    job_keys: Vec<String>,
}

impl Plan {
    /// Of a batch.
    pub(crate) fn of(by: &Author, batch: &Batch) -> Self {
        let mut plan = Self::default();
        if let Author::Owner(lease) = by {
            plan.run(&lease.run_id);
        }
        batch.changes().for_each(|change| plan.change(change));
        plan.job_keys.sort();
        plan.job_keys.dedup();
        plan
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.calls.is_empty() && self.questions.is_empty()
    }

    /// The run, if one run is all that the batch names.
    pub(crate) fn one_run(&self) -> Option<&str> {
        match self.runs.as_slice() {
            [run] if self.calls.is_empty() && self.questions.is_empty() => Some(run),
            _ => None,
        }
    }

    pub(crate) fn runs(&self) -> Value {
        Value::Texts(self.runs.clone())
    }

    pub(crate) fn calls(&self) -> Value {
        Value::Texts(self.calls.clone())
    }

    pub(crate) fn questions(&self) -> Value {
        Value::Texts(self.questions.clone())
    }

    pub(crate) fn job_keys(&self) -> &[String] {
        &self.job_keys
    }

    fn run(&mut self, run: &RunId) {
        let name = run.to_string();
        if !self.runs.contains(&name) {
            self.runs.push(name);
        }
    }

    fn call(&mut self, call: &CallId) {
        self.calls.push(call.to_string());
    }

    fn question(&mut self, question: &QuestionId) {
        self.questions.push(question.to_string());
    }

    /// The lineage that a new run joins; and the run itself, which is there when its submission is repeated.
    fn new_run(&mut self, run: &NewRun) {
        self.run(&run.run_id);
        if let Some(parent) = &run.parent_run_id {
            self.run(parent);
        }
        self.job_keys.extend(run.spec.job_key.clone());
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Submit(run) => self.new_run(run),
            Change::SubmitAgain { run, seen } => {
                self.new_run(run);
                self.run(seen);
            }
            Change::Fork(fork) => self.new_run(&fork.run),
            Change::OpenSession(new) => self.new_run(&new.run),
            Change::Answer(answer) => self.question(&answer.question_id),
            Change::Override(change) => self.run(&change.run_id),
            Change::RequestCancel { run, .. } | Change::Acquire { run, .. } => self.run(run),
            Change::ResolveLate { call, .. } => self.call(call),
            Change::Recall(recall) => self.call(&recall.call_id),
            Change::Correct(correct) => self.call(&correct.call_id),
            Change::Delete(deletion) => self.run(&deletion.run_id),
            Change::StartAttempt(start) => start.child.iter().for_each(|child| self.new_run(child)),
            // A prune is of all lineages, for which no row stands. The others are written by the owner of a run, whose lineage it is.
            Change::PruneBlobs(_)
            | Change::NoteAlive { .. }
            | Change::EndRun(_)
            | Change::OpenStep(_)
            | Change::EnterStep(_)
            | Change::CloseStep(_)
            | Change::Reserve(_)
            | Change::NoteResponse { .. }
            | Change::NoteUsage { .. }
            | Change::CloseRequest { .. }
            | Change::CloseLostRequests { .. }
            | Change::RecordTurn(_)
            | Change::CommitTurn(_)
            | Change::AppendMessages { .. }
            | Change::SaveCheckpoint(_)
            | Change::RaiseQuestion(_)
            | Change::CloseQuestion { .. }
            | Change::KeepHandle(_)
            | Change::SettleAttempt(_)
            | Change::InterpretReceipt { .. }
            | Change::Deduplicate { .. }
            | Change::CancelCalls { .. }
            | Change::MarkLost { .. }
            | Change::Arrive(_)
            | Change::Deliver { .. }
            | Change::ResolveUnknown { .. }
            | Change::NoteReplay { .. } => {}
        }
    }
}
