//! What the driver of a run reads and writes.

use std::time::Duration;

use async_trait::async_trait;
use ua_core::{QuestionId, RunId, Timestamp, Usage};

use crate::commit::{
    NewAnswer, NewCheckpoint, NewFork, NewQuestion, NewRun, NewStep, RequestEnd, RequestReservation, RunEnd, StepEnd,
    StepEntry, TurnCommit, TurnDraft,
};
use crate::error::StoreError;
use crate::overrides::{NewOverride, OverrideRecord};
use crate::record::{
    MessageRecord, OwnerStamp, QuestionRecord, RequestId, RunLease, RunRecord, RunRecords, StepRecord,
};

/// Runs, steps, turns, questions. Each write says whether it is synced.
#[async_trait]
pub trait RunStore: Send + Sync {
    // --- Writes that need no lease: insert-only, applied by the run's owner.

    /// Stores a new run (synced). Fails with `Exists` when the id, or the job key within another lineage, is taken.
    async fn submit_run(&self, run: NewRun) -> Result<RunRecord, StoreError>;

    /// Stores a new run of a job whose key is taken by `seen`, which succeeded: a new lineage under the same key (synced). Fails
    /// with `Conflict` when another run answers for the key by now, or `seen` has not succeeded; with `Exists` when the id is
    /// taken.
    async fn submit_again(&self, run: NewRun, seen: &RunId) -> Result<RunRecord, StoreError>;

    /// Stores a fork: its row, its prompt and the note behind what it shares (synced). What it shares is not copied. Fails with
    /// `Exists` when the id is taken, or a job key that is not the parent's; with `Conflict` when the turn is not committed.
    async fn fork_run(&self, fork: NewFork) -> Result<RunRecord, StoreError>;

    /// Stores a person's answer to an open question (synced). An `abort` marks the run, and the child runs below it that have not
    /// ended, in the same write; sticky.
    async fn insert_answer(&self, answer: NewAnswer) -> Result<QuestionRecord, StoreError>;

    /// Asks the owner of a run to cancel it and all child runs below it (synced); sticky. A run that nobody owns is cancelled by its
    /// next resume.
    async fn request_cancel(&self, run: &RunId, reason: &str, at: Timestamp) -> Result<RunRecord, StoreError>;

    /// Stores what a person changed about a run (synced). The newest change of the component that says the same already is
    /// returned instead. Fails with `Conflict` when the run is terminal.
    async fn insert_override(&self, change: NewOverride) -> Result<OverrideRecord, StoreError>;

    // --- Ownership.

    /// Takes a run that is not terminal: epoch + 1, status `running`, the owner's trace appended (synced). The caller
    /// holds the run's lock.
    async fn acquire_run(
        &self,
        run: &RunId,
        owner: &OwnerStamp,
        at: Timestamp,
    ) -> Result<(RunLease, RunRecord), StoreError>;

    /// As [`acquire_run`](Self::acquire_run), for the run of a sub-agent: the lease of the run above it is checked in the same write, so
    /// that an owner who was replaced there takes no run of the tree any more.
    async fn acquire_task_run(
        &self,
        above: &RunLease,
        run: &RunId,
        owner: &OwnerStamp,
        at: Timestamp,
    ) -> Result<(RunLease, RunRecord), StoreError>;

    /// Says that the owner is alive (relaxed). When it is killed, its time counts as held until then, but for `suspended`: how long since
    /// it last said so its process stood still.
    async fn note_alive(&self, lease: &RunLease, suspended: Duration, at: Timestamp) -> Result<(), StoreError>;

    /// Checks that the lease still is the newest; called just before each dispatch.
    async fn check_lease(&self, lease: &RunLease) -> Result<(), StoreError>;

    /// Ends this process's work on the run, with the calls and questions that end with it, in one write (synced). The lease is of no
    /// use afterwards.
    async fn end_run(&self, lease: &RunLease, end: RunEnd) -> Result<RunRecord, StoreError>;

    // --- Steps and turns (relaxed).

    /// Opens a step and makes it the current one.
    async fn open_step(&self, lease: &RunLease, step: NewStep) -> Result<StepRecord, StoreError>;

    /// Ends the current step and opens the next one with its markers and what the model is told, or opens the first one, in one
    /// write; the new step is the current one. A step that is the current one already is returned as it is.
    async fn enter_step(&self, lease: &RunLease, entry: StepEntry) -> Result<StepRecord, StoreError>;

    /// Ends a step.
    async fn close_step(&self, lease: &RunLease, end: StepEnd) -> Result<StepRecord, StoreError>;

    /// Reserves one request to a model, just before it leaves. A reservation that is repeated word for word while it is
    /// open is the same one.
    async fn reserve_request(&self, lease: &RunLease, reservation: RequestReservation)
    -> Result<RequestId, StoreError>;

    /// Notes the provider's name of a reply that has begun: tentative, until a turn is recorded with it. A request that is not
    /// `reserved` is left as it is; a second name is a `Conflict`.
    async fn note_response(&self, lease: &RunLease, request: RequestId, response_id: &str) -> Result<(), StoreError>;

    /// Notes what has been heard of the reply to a request that is under way: what its provider counted, and what has arrived. Counts only
    /// grow. It is what the request is charged if nobody lives to say how it ended.
    async fn note_usage(&self, lease: &RunLease, request: RequestId, heard: Usage) -> Result<(), StoreError>;

    /// Charges a request that brought no turn. A request that is not `reserved` is left as it is.
    async fn close_request(
        &self,
        lease: &RunLease,
        request: RequestId,
        end: RequestEnd,
        at: Timestamp,
    ) -> Result<(), StoreError>;

    /// Charges every request that is still `reserved`, because its process died before it was answered: as `partial` for what was noted of
    /// its reply, and as `baseline` when nothing was.
    async fn close_lost_requests(&self, lease: &RunLease, at: Timestamp) -> Result<u32, StoreError>;

    /// Records a turn: reply, cost and planned calls in one write, guarded by turn number and epoch.
    async fn record_turn(&self, lease: &RunLease, draft: TurnDraft) -> Result<(), StoreError>;

    /// Commits a turn: messages appended, `turn_index` raised, checkpoint written. Fails with `Conflict` when the turn
    /// is not the open one, or a call of it is neither settled nor skipped.
    async fn commit_turn(&self, lease: &RunLease, commit: TurnCommit) -> Result<RunRecord, StoreError>;

    /// Appends messages between turns (resume notes, guidance), at the current `turn_index`; refused while a turn is open.
    /// Messages that are the end of the history already are not appended again.
    async fn append_messages(
        &self,
        lease: &RunLease,
        messages: Vec<ua_core::Message>,
        at: Timestamp,
    ) -> Result<(), StoreError>;

    /// Writes a checkpoint marker.
    async fn save_checkpoint(&self, lease: &RunLease, checkpoint: NewCheckpoint) -> Result<(), StoreError>;

    // --- Questions (synced).

    /// Raises a question. When its call has one that is not closed, or the run one that is open and asks the same, that one is returned
    /// and nothing is written.
    async fn raise_question(&self, lease: &RunLease, question: NewQuestion) -> Result<QuestionRecord, StoreError>;

    /// Marks a question as acted on.
    async fn close_question(&self, lease: &RunLease, question: &QuestionId, at: Timestamp) -> Result<(), StoreError>;

    // --- Reads.

    /// One run.
    async fn run(&self, run: &RunId) -> Result<RunRecord, StoreError>;

    /// The newest `limit` runs, newest first.
    async fn runs(&self, limit: u32) -> Result<Vec<RunRecord>, StoreError>;

    /// The run that answers for a job key, if any: the newest that is not finished, else the newest.
    async fn run_by_job_key(&self, job_key: &str) -> Result<Option<RunRecord>, StoreError>;

    /// The forks and sub-agents of a run, oldest first. What a fork shares is read from its parent's rows, so a run that has
    /// forks keeps its row, its turns up to their fork points and all messages of these.
    async fn children(&self, run: &RunId) -> Result<Vec<RunRecord>, StoreError>;

    /// Everything about one run, and what it has from its lineage.
    async fn load(&self, run: &RunId) -> Result<RunRecords, StoreError>;

    /// The history: all messages of turns up to the committed one, in order, those it shares with its parents included.
    async fn history(&self, run: &RunId) -> Result<Vec<MessageRecord>, StoreError>;

    /// What a person changed about a run, oldest first.
    async fn overrides(&self, run: &RunId) -> Result<Vec<OverrideRecord>, StoreError>;

    /// One question.
    async fn question(&self, question: &QuestionId) -> Result<QuestionRecord, StoreError>;

    /// Questions that are not closed, of one run or of all, oldest first.
    async fn open_questions(&self, run: Option<&RunId>) -> Result<Vec<QuestionRecord>, StoreError>;
}
