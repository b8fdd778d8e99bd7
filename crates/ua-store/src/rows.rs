//! The rows under the port, one operation each: what a store implements so that [`apply`](fn@crate::apply) can write to it.
//!
//! All of it happens inside one transaction. An insert refuses a row that is there (`Exists`); an update stores the record as it is, for the
//! rules were applied before.

use std::sync::Arc;

use ua_core::{BlobRef, CallId, IdempotencyKey, QuestionId, RunId, Scope, StepId, Timestamp};

use crate::archive_store::RunDeletion;
use crate::blob_store::BlobUse;
use crate::error::StoreError;
use crate::gateway::{ArrivalRecord, SessionRecord};
use crate::lifted::NewBlob;
use crate::overrides::OverrideRecord;
use crate::record::{
    AttemptRecord, CallRecord, CheckpointRecord, MessageRecord, QuestionRecord, ReceiptRecord, RequestId,
    RequestRecord, RunRecord, StepRecord, TurnRecord,
};
use crate::relations::{Around, Relations};
use crate::taint::Taint;

/// A transaction of a store.
pub trait Tables {
    /// What can go wrong below the port.
    type Error: From<StoreError>;
    /// Runs `work`. What refuses it is returned, and what it wrote until then is as if it had not been written; the transaction goes on. An
    /// error of the database itself ends the transaction.
    fn nested<T>(&self, work: impl FnOnce() -> Result<T, Self::Error>) -> Result<Result<T, StoreError>, Self::Error>;
}

/// What has been written about a run, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Written {
    /// Numbered batches of its owner, since it was taken.
    pub batches: u64,
    /// Words of people: answers, marks, corrections, changed settings.
    pub words: u64,
}

/// Rows of runs, steps, turns, requests and questions.
pub trait RunRows: Tables {
    /// What has been written about a run.
    fn written(&self, run: &RunId) -> Result<Written, Self::Error>;
    /// How many numbered batches of its owner there are.
    fn set_batches(&self, run: &RunId, batches: u64) -> Result<(), Self::Error>;
    /// Counts a word of a person about a run.
    fn count_word(&self, run: &RunId) -> Result<(), Self::Error>;
    /// One run.
    fn run(&self, id: &RunId) -> Result<RunRecord, Self::Error>;
    /// One run, to be looked at: what a store has at hand it need not copy.
    fn run_to_look_at(&self, id: &RunId) -> Result<Arc<RunRecord>, Self::Error> {
        self.run(id).map(Arc::new)
    }
    /// What was read into the history of a run; nothing when there is no such run.
    fn taint_of(&self, run: &RunId) -> Result<Taint, Self::Error>;
    /// All runs below a run, parents before their children.
    fn runs_below(&self, run: &RunId) -> Result<Vec<RunRecord>, Self::Error>;
    /// The run that answers for a job key: the newest that is not finished, else the newest.
    fn run_of_job_key(&self, job_key: &str) -> Result<Option<RunRecord>, Self::Error>;
    /// Refuses a job key that a run of another lineage has.
    fn check_job_key(&self, run: &RunRecord) -> Result<(), Self::Error>;
    /// When anything of the run was written last by an owner: the newest of the times of its steps, its last turn, its last request, the last
    /// change of any of its calls, and its last marker. Rows are written in their order, so no others are read.
    fn last_write(&self, run: &RunId) -> Result<Option<Timestamp>, Self::Error>;
    /// Where a turn of a run's history ends, and the provider's conversation id of it.
    fn end_of_turn(&self, run: &RunRecord, turn: u32) -> Result<(u64, Option<String>), Self::Error>;
    /// A new run; its name must never have been taken.
    fn insert_run(&self, run: &RunRecord) -> Result<(), Self::Error>;
    /// What may change about a run.
    fn update_run(&self, run: &RunRecord) -> Result<(), Self::Error>;
    /// When its owner was last seen, and nothing else.
    fn update_seen(&self, run: &RunRecord) -> Result<(), Self::Error>;
    /// Notes for every run of a lineage that a record of it is another one than its model was told: a word to each of them.
    fn note_corrected(&self, root: &RunId, at: Timestamp) -> Result<(), Self::Error>;
    /// The runs of a lineage, newest first, and those of them that were deleted.
    fn lineage_members(&self, root: &RunId) -> Result<(Vec<RunId>, Vec<RunId>), Self::Error>;
    /// Notes that a run was deleted, of the lineage of `root`.
    fn note_deleted(&self, deletion: &RunDeletion, root: &RunId) -> Result<(), Self::Error>;
    /// Removes every row of a lineage, and the blobs that no other run refers to.
    fn remove_lineage(&self, root: &RunId) -> Result<(), Self::Error>;

    /// One step.
    fn step(&self, id: &StepId) -> Result<Option<StepRecord>, Self::Error>;
    /// The number of the newest step; 0 when there is none.
    fn last_step_index(&self, run: &RunId) -> Result<u32, Self::Error>;
    /// A new step.
    fn insert_step(&self, step: &StepRecord) -> Result<(), Self::Error>;
    /// What may change about a step.
    fn update_step(&self, step: &StepRecord) -> Result<(), Self::Error>;

    /// The turn that is recorded and not committed.
    fn open_turn(&self, run: &RunId) -> Result<Option<TurnRecord>, Self::Error>;
    /// A new turn.
    fn insert_turn(&self, turn: &TurnRecord) -> Result<(), Self::Error>;
    /// What may change about a turn.
    fn update_turn(&self, turn: &TurnRecord) -> Result<(), Self::Error>;
    /// The place of the run's newest message; 0 when there is none.
    fn last_seq(&self, run: &RunId) -> Result<u64, Self::Error>;
    /// The end of the run's own history, oldest first.
    fn last_messages(&self, run: &RunId, count: usize) -> Result<Vec<MessageRecord>, Self::Error>;
    /// A new message.
    fn insert_message(&self, run: &RunId, message: &MessageRecord) -> Result<(), Self::Error>;
    /// A new checkpoint marker.
    fn insert_checkpoint(&self, checkpoint: &CheckpointRecord) -> Result<(), Self::Error>;

    /// One request.
    fn request(&self, run: &RunId, id: RequestId) -> Result<Option<RequestRecord>, Self::Error>;
    /// The newest request.
    fn last_request(&self, run: &RunId) -> Result<Option<RequestRecord>, Self::Error>;
    /// Requests that are not charged yet.
    fn reserved_requests(&self, run: &RunId) -> Result<Vec<RequestRecord>, Self::Error>;
    /// A new request.
    fn insert_request(&self, run: &RunId, request: &RequestRecord) -> Result<(), Self::Error>;
    /// What may change about a request.
    fn update_request(&self, run: &RunId, request: &RequestRecord) -> Result<(), Self::Error>;

    /// One question.
    fn question(&self, id: &QuestionId) -> Result<QuestionRecord, Self::Error>;
    /// The question about a call that is not closed.
    fn waiting_question(&self, call: &CallId) -> Result<Option<QuestionRecord>, Self::Error>;
    /// The questions of a run that are not closed, oldest first.
    fn waiting_questions_of(&self, run: &RunId) -> Result<Vec<QuestionRecord>, Self::Error>;
    /// A new question.
    fn insert_question(&self, question: &QuestionRecord) -> Result<(), Self::Error>;
    /// Where a question stands, with its answer.
    fn update_question(&self, question: &QuestionRecord) -> Result<(), Self::Error>;

    /// What a person changed about a run, oldest first.
    fn overrides_of(&self, run: &RunId) -> Result<Vec<OverrideRecord>, Self::Error>;
    /// A new change.
    fn insert_override(&self, row: &OverrideRecord) -> Result<(), Self::Error>;
}

/// Rows of calls, attempts and receipts.
pub trait LedgerRows: Tables {
    /// One call.
    fn call(&self, id: &CallId) -> Result<CallRecord, Self::Error>;
    /// The calls of one turn of a run, by position.
    fn calls_of_turn(&self, run: &RunId, turn: u32) -> Result<Vec<CallRecord>, Self::Error>;
    /// The calls of a run of turns up to one, by position.
    fn calls_until(&self, run: &RunId, turn: u32) -> Result<Vec<CallRecord>, Self::Error>;
    /// The calls of a run that are running, by position.
    fn running_calls(&self, run: &RunId) -> Result<Vec<CallRecord>, Self::Error>;
    /// The call that holds a key.
    fn key_holder(&self, key: &IdempotencyKey) -> Result<Option<CallRecord>, Self::Error>;
    /// The calls of a lineage with an effect kind whose record a person corrected, oldest first.
    fn corrected_calls(&self, root: &RunId) -> Result<Vec<CallRecord>, Self::Error>;
    /// How many other calls of the lineage with the effect kind of this one had it or may have had it; counted up to `most`.
    fn other_effects(&self, call: &CallRecord, most: u32) -> Result<u32, Self::Error>;
    /// The calls of the lineage of `root` that are answered by the receipt of a call ([`CallRecord::answered_by`]), oldest first.
    fn answered_by(&self, root: &RunId, call: &CallId) -> Result<Vec<CallRecord>, Self::Error>;
    /// What a call might repeat whose effect is `scope`.
    fn relations(&self, call: &CallRecord, scope: Option<&Scope>) -> Result<Relations, Self::Error>;
    /// A new call.
    fn insert_call(&self, call: &CallRecord, epoch: u64) -> Result<(), Self::Error>;
    /// What may change about a call. A change of its status, and a correction, becomes an event.
    fn update_call(&self, call: &CallRecord, epoch: u64) -> Result<(), Self::Error>;
    /// The newest attempt of a call.
    fn current_attempt(&self, call: &CallRecord) -> Result<Option<AttemptRecord>, Self::Error>;
    /// A new attempt.
    fn insert_attempt(&self, attempt: &AttemptRecord) -> Result<(), Self::Error>;
    /// What an attempt goes on with.
    fn keep_handle(&self, attempt: &AttemptRecord) -> Result<(), Self::Error>;
    /// How an attempt ended.
    fn end_attempt(&self, attempt: &AttemptRecord) -> Result<(), Self::Error>;
    /// The newest receipt of a call.
    fn newest_receipt(&self, call: &CallId) -> Result<Option<ReceiptRecord>, Self::Error>;
    /// A new receipt.
    fn insert_receipt(&self, receipt: &ReceiptRecord) -> Result<(), Self::Error>;
    /// A call and the answer that made it what it is, which is its newest receipt then.
    fn answer_call(&self, call: &CallRecord, epoch: u64, receipt: &ReceiptRecord) -> Result<(), Self::Error> {
        self.update_call(call, epoch)?;
        self.insert_receipt(receipt)
    }
    /// The meaning of a call's newest receipt.
    fn fill_newest_receipt(&self, receipt: &ReceiptRecord) -> Result<(), Self::Error>;
    /// Notes a change of a call that is kept outside the database as well, once it is committed.
    fn note_effect(&self, call: &CallRecord, event: &str, epoch: u64, at: Timestamp) -> Result<(), Self::Error>;
    /// Notes what a person said about a run, or answered to a question of it, the same way.
    fn note_word(
        &self,
        run: &RunId,
        question: Option<&QuestionRecord>,
        word: &str,
        at: Timestamp,
    ) -> Result<(), Self::Error>;
}

/// What a decision about a call goes by.
///
/// # Errors
///
/// `NotFound` when there is no such call.
pub fn around<R: Rows>(
    rows: &R,
    call: &CallId,
    scope: Option<&Scope>,
    key: Option<&IdempotencyKey>,
    most_effects: u32,
) -> Result<Around, R::Error> {
    let call = rows.call(call)?;
    let run = rows.run(&call.run_id)?;
    let holder = key.map(|key| rows.key_holder(key)).transpose()?.flatten();
    let is_other = |holder: &CallRecord| holder.call_id != call.call_id && holder.root_run_id == run.root_run_id;
    // What a read of a fork asks for may have been an effect by what its parent's tools said of themselves.
    let may_repeat = call.policy.class.has_effect() || run.forked_at.is_some();
    let relations = if may_repeat { rows.relations(&call, scope)? } else { Relations::default() };
    Ok(Around {
        question: rows.waiting_question(&call.call_id)?,
        holder: holder.filter(is_other),
        other_effects: if most_effects > 0 { rows.other_effects(&call, most_effects)? } else { 0 },
        relations,
        run,
        call,
    })
}

/// Rows of blobs.
pub trait BlobRows: Tables {
    /// Blobs that a run refers to. One that is there is left as it is; one that was pruned has its content back.
    fn put_blobs(&self, run: &RunId, blobs: &[NewBlob], at: Timestamp) -> Result<(), Self::Error>;
    /// Notes that a run refers to these blobs, which must be there.
    fn refer_to_blobs<'b>(&self, run: &RunId, blobs: impl Iterator<Item = &'b BlobRef>) -> Result<(), Self::Error>;
    /// Every blob that has its content, with who refers to it.
    fn blob_uses(&self) -> Result<Vec<BlobUse>, Self::Error>;
    /// Lets the content of a blob go.
    fn prune_blob(&self, blob: &BlobRef, at: Timestamp) -> Result<(), Self::Error>;
}

/// Rows of the gateway.
pub trait GatewayRows: Tables {
    /// A new session.
    fn insert_session(&self, session: &SessionRecord) -> Result<(), Self::Error>;
    /// One arrival.
    fn arrival(&self, id: &str) -> Result<Option<ArrivalRecord>, Self::Error>;
    /// A new arrival.
    fn insert_arrival(&self, arrival: &ArrivalRecord) -> Result<(), Self::Error>;
    /// What may change about an arrival: when it was answered, and acknowledged.
    fn update_arrival(&self, arrival: &ArrivalRecord) -> Result<(), Self::Error>;
}

/// All rows.
pub trait Rows: RunRows + LedgerRows + BlobRows + GatewayRows {}

impl<T: RunRows + LedgerRows + BlobRows + GatewayRows> Rows for T {}
