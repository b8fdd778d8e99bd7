//! The model's rows and how they are found.

use std::collections::{BTreeMap, BTreeSet};

use ua_core::{BlobId, CallId, QuestionId, RunId, StepId, Timestamp};

use super::blobs::StoredBlob;
use super::table::Table;
use crate::error::StoreError;
use crate::fleet::{QueueEntry, QueueLine, ScheduleRecord, WorkerRecord};
use crate::gateway::{ArrivalRecord, SessionRecord};
use crate::overrides::OverrideRecord;
use crate::record::{
    AttemptRecord, CallRecord, CheckpointRecord, EventRecord, MessageRecord, QuestionRecord, QuestionStatus,
    ReceiptRecord, RequestId, RequestRecord, RunRecord, RunRecords, StepRecord, TurnRecord,
};
use crate::rows::Written;
use crate::rules;
use crate::standing::LeftOut;

/// All rows, in the order in which they were made. Rows that do not name their run are kept beside its id.
#[derive(Debug, Default, Clone)]
pub(super) struct Model {
    pub(super) runs: Table<RunRecord>,
    pub(super) written: BTreeMap<RunId, Written>,
    pub(super) steps: Table<StepRecord>,
    pub(super) turns: Table<TurnRecord>,
    pub(super) messages: Table<(RunId, MessageRecord)>,
    pub(super) calls: Table<CallRecord>,
    pub(super) attempts: Table<AttemptRecord>,
    pub(super) receipts: Table<ReceiptRecord>,
    pub(super) events: Table<EventRecord>,
    pub(super) questions: Table<QuestionRecord>,
    pub(super) overrides: Table<OverrideRecord>,
    pub(super) checkpoints: Table<CheckpointRecord>,
    pub(super) requests: Table<(RunId, RequestRecord)>,
    pub(super) blobs: Table<StoredBlob>,
    pub(super) blob_refs: BTreeSet<(RunId, BlobId)>,
    pub(super) deleted: BTreeSet<RunId>,
    pub(super) sessions: Table<SessionRecord>,
    pub(super) arrivals: Table<ArrivalRecord>,
    pub(super) workers: BTreeMap<String, WorkerRecord>,
    pub(super) queue: BTreeMap<RunId, QueueEntry>,
    pub(super) lines: BTreeMap<u64, QueueLine>,
    pub(super) queue_clock: u64,
    pub(super) schedules: BTreeMap<String, ScheduleRecord>,
}

impl Model {
    pub(super) fn run(&self, id: &RunId) -> Result<RunRecord, StoreError> {
        self.runs.iter().find(|run| run.run_id == *id).cloned().ok_or_else(|| rules::not_found("runs", id))
    }

    pub(super) fn put_run(&mut self, run: RunRecord) {
        let id = run.run_id.clone();
        self.runs.put(run, |stored| stored.run_id == id);
    }

    pub(super) fn newest_runs(&self) -> Vec<RunRecord> {
        let mut runs: Vec<RunRecord> = self.runs.iter().rev().cloned().collect();
        runs.sort_by_key(|run| std::cmp::Reverse(run.created_at));
        runs
    }

    pub(super) fn step(&self, id: &StepId) -> Option<StepRecord> {
        self.steps.iter().find(|step| step.step_id == *id).cloned()
    }

    pub(super) fn put_step(&mut self, step: StepRecord) {
        let id = step.step_id.clone();
        self.steps.put(step, |stored| stored.step_id == id);
    }

    pub(super) fn last_step_index(&self, run: &RunId) -> u32 {
        self.steps.iter().filter(|step| step.run_id == *run).map(|step| step.step_index).max().unwrap_or(0)
    }

    pub(super) fn open_turn(&self, run: &RunId) -> Option<TurnRecord> {
        self.turns.iter().find(|turn| turn.run_id == *run && turn.committed_at.is_none()).cloned()
    }

    pub(super) fn put_turn(&mut self, turn: TurnRecord) {
        let (run_id, number) = (turn.run_id.clone(), turn.turn);
        self.turns.put(turn, |stored| stored.run_id == run_id && stored.turn == number);
    }

    pub(super) fn messages_of(&self, run: &RunId) -> impl Iterator<Item = &MessageRecord> {
        self.messages.iter().filter(move |(id, _)| id == run).map(|(_, message)| message)
    }

    pub(super) fn last_seq(&self, run: &RunId) -> u64 {
        self.messages_of(run).map(|message| message.seq).max().unwrap_or(0)
    }

    pub(super) fn requests_of(&self, run: &RunId) -> impl Iterator<Item = &RequestRecord> {
        self.requests.iter().filter(move |(id, _)| id == run).map(|(_, request)| request)
    }

    pub(super) fn request(&self, run: &RunId, id: RequestId) -> Option<RequestRecord> {
        self.requests_of(run).find(|request| request.request_id == id).cloned()
    }

    pub(super) fn put_request(&mut self, run: &RunId, request: RequestRecord) {
        let id = request.request_id;
        self.requests.put((run.clone(), request), |(owner, stored)| owner == run && stored.request_id == id);
    }

    pub(super) fn question(&self, id: &QuestionId) -> Result<QuestionRecord, StoreError> {
        let found = self.questions.iter().find(|question| question.question_id == *id);
        found.cloned().ok_or_else(|| rules::not_found("questions", id))
    }

    /// Questions that are not closed, of `run` or of all, oldest first.
    pub(super) fn waiting_questions(&self, run: Option<&RunId>) -> Vec<QuestionRecord> {
        let is_asked = |question: &&QuestionRecord| {
            question.status != QuestionStatus::Closed && run.is_none_or(|run| question.run_id == *run)
        };
        self.questions.iter().filter(is_asked).cloned().collect()
    }

    pub(super) fn questions_of(&self, run: &RunId) -> Vec<QuestionRecord> {
        self.questions.iter().filter(|question| question.run_id == *run).cloned().collect()
    }

    pub(super) fn put_question(&mut self, question: QuestionRecord) {
        let id = question.question_id.clone();
        self.questions.put(question, |stored| stored.question_id == id);
    }

    /// Notes for every run of a lineage that a record of it was corrected.
    pub(super) fn put_corrected_at(&mut self, root: &RunId, at: Timestamp) {
        for run in self.runs.iter_mut().filter(|run| run.root_run_id == *root) {
            run.corrected_at = Some(at);
        }
    }

    pub(super) fn call(&self, id: &CallId) -> Result<CallRecord, StoreError> {
        self.calls.iter().find(|call| call.call_id == *id).cloned().ok_or_else(|| rules::not_found("tool_calls", id))
    }

    /// Stores a call; a change of its status, and a person's correction, becomes an event.
    pub(super) fn put_call(&mut self, call: CallRecord, epoch: u64) {
        let stored = self.call(&call.call_id).ok();
        let from = stored.as_ref().map(|stored| stored.status);
        let before = stored.and_then(|stored| stored.correction);
        let correction = call.correction.clone().filter(|correction| before.as_ref() != Some(correction));
        if from != Some(call.status) || correction.is_some() {
            // A deletion takes events of a lineage out of the middle.
            let seq = self.events.iter().next_back().map_or(0, |last| last.seq) + 1;
            let (call_id, to, at) = (call.call_id.clone(), call.status, call.updated_at);
            self.events.push(EventRecord { seq, call_id, from, to, epoch, at, correction });
        }
        let id = call.call_id.clone();
        self.calls.put(call, |stored| stored.call_id == id);
    }

    pub(super) fn calls_of(&self, run: &RunId, turn: Option<u32>) -> Vec<CallRecord> {
        let is_wanted = |call: &&CallRecord| call.run_id == *run && turn.is_none_or(|turn| call.position.turn == turn);
        let mut calls: Vec<CallRecord> = self.calls.iter().filter(is_wanted).cloned().collect();
        calls.sort_by_key(|call| call.position);
        calls
    }

    pub(super) fn attempts_of(&self, call: &CallId) -> impl Iterator<Item = &AttemptRecord> {
        self.attempts.iter().filter(move |attempt| attempt.call_id == *call)
    }

    pub(super) fn current_attempt(&self, call: &CallRecord) -> Option<AttemptRecord> {
        self.attempts_of(&call.call_id).find(|attempt| attempt.attempt == call.attempt).cloned()
    }

    pub(super) fn put_attempt(&mut self, attempt: AttemptRecord) {
        let (call_id, number) = (attempt.call_id.clone(), attempt.attempt);
        self.attempts.put(attempt, |stored| stored.call_id == call_id && stored.attempt == number);
    }

    pub(super) fn receipts_of(&self, call: &CallId) -> impl Iterator<Item = &ReceiptRecord> {
        self.receipts.iter().filter(move |receipt| receipt.call_id == *call)
    }

    /// Stores the meaning of a call's newest receipt.
    pub(super) fn fill_newest_receipt(&mut self, receipt: ReceiptRecord) {
        if let Some(stored) = self.receipts.iter_mut().rev().find(|stored| stored.call_id == receipt.call_id) {
            *stored = receipt;
        }
    }

    pub(super) fn overrides_of(&self, run: &RunId) -> Vec<OverrideRecord> {
        self.overrides.iter().filter(|row| row.run_id == *run).cloned().collect()
    }

    /// When anything of the run was written last by an owner.
    pub(super) fn last_write(&self, run: &RunId) -> Option<Timestamp> {
        let steps = self.steps.iter().filter(|step| step.run_id == *run).map(|step| step.updated_at).max();
        let turn = self.turns.iter().filter(|turn| turn.run_id == *run).max_by_key(|turn| turn.turn);
        let is_of_run = |event: &&EventRecord| self.call(&event.call_id).is_ok_and(|call| call.run_id == *run);
        let event = self.events.iter().rev().find(is_of_run);
        let request = self.requests_of(run).max_by_key(|request| request.request_id);
        let marker = self.checkpoints.iter().rev().find(|marker| marker.run_id == *run);
        let newest = [
            steps,
            turn.map(|turn| turn.recorded_at),
            event.map(|event| event.at),
            request.map(|request| request.closed_at.unwrap_or(request.reserved_at)),
            marker.map(|marker| marker.created_at),
        ];
        newest.into_iter().flatten().max()
    }

    pub(super) fn load(&self, id: &RunId) -> Result<RunRecords, StoreError> {
        let run = self.run(id)?;
        let calls = self.calls_of(id, None);
        let attempts = calls.iter().flat_map(|call| self.attempts_of(&call.call_id)).cloned().collect();
        let receipts = calls.iter().flat_map(|call| self.receipts_of(&call.call_id)).cloned().collect();
        let (messages, lineage) = (self.whole_history(&run)?, self.lineage_of(&run)?);
        Ok(RunRecords {
            run,
            steps: self.steps.iter().filter(|step| step.run_id == *id).cloned().collect(),
            turns: self.turns.iter().filter(|turn| turn.run_id == *id).cloned().collect(),
            messages,
            calls,
            attempts,
            receipts,
            questions: self.questions_of(id),
            overrides: self.overrides_of(id),
            checkpoints: self.checkpoints.iter().filter(|checkpoint| checkpoint.run_id == *id).cloned().collect(),
            requests: self.requests_of(id).cloned().collect(),
            lineage,
            left_out: LeftOut::default(),
        })
    }
}
