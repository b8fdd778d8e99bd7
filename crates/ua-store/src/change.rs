//! What a store is asked to write: changes as data, and the batch in which they are committed together.
//!
//! Every write of the port is a [`Change`]; what it does to the rows is written once, in `apply`, for every store. A [`Batch`] is one
//! transaction. What *stands* in it is refused by a lost lease or by rows that are not as its writer saw them; what is *provided* stands
//! behind it, and is left out when a guard of its own refuses it, with nothing of the rest lost: so a start that may not be made never
//! costs an answer that is in hand. `record turn` with the first start, `settle` with the next start, `commit turn` with the next request
//! are written so. Proved by: `conformance::batches`.

use std::time::Duration;

use ua_core::{CallId, IdempotencyKey, Message, PlannedCall, QuestionId, RunId, Settlement, Timestamp, Usage};

use crate::Durability;
use crate::archive_store::{DeletedRun, RunDeletion};
use crate::blob_store::{BlobPrune, BlobPruned};
use crate::commit::{
    CallCancel, CorrectCall, KeepHandle, NewAnswer, NewCheckpoint, NewFork, NewQuestion, NewRun, NewStep, RecallCall,
    RequestEnd, RequestReservation, RunEnd, SettleAttempt, StartAttempt, StepEnd, StepEntry, TurnCommit, TurnDraft,
    UnknownResolution,
};
use crate::error::StoreError;
use crate::gateway::{Delivery, NewArrival, NewSession};
use crate::overrides::{NewOverride, OverrideRecord};
use crate::record::{
    AttemptRecord, CallRecord, OwnerStamp, QuestionRecord, ReplayStatus, RequestId, RunLease, RunRecord, StepRecord,
};
use crate::store::Store;

/// Who writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Author {
    /// The process that owns the run of the lease. A lease that is not the newest refuses everything.
    Owner(RunLease),
    /// Whoever gives a command or an answer: what needs no lease. Insert-only, or applied by the run's owner later.
    Command,
}

/// One change of what is stored. Those in the first part need no lease; all others are the owner's.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A new run (synced).
    Submit(NewRun),
    /// A new run of a job whose key is taken by a run that succeeded (synced).
    SubmitAgain {
        /// The run.
        run: NewRun,
        /// The run that answered for the key.
        seen: RunId,
    },
    /// A fork: its row, its prompt and the note behind what it shares (synced).
    Fork(NewFork),
    /// A person's answer to an open question (synced).
    Answer(NewAnswer),
    /// What a person changed about a run (synced). Written by the run's owner where a resume accepts it.
    Override(NewOverride),
    /// The wish that a run and all child runs below it are cancelled (synced).
    RequestCancel {
        /// Which run.
        run: RunId,
        /// Why.
        reason: String,
        /// When.
        at: Timestamp,
    },
    /// A run gets a new owner (synced). Written by the owner of the run above it for the run of a sub-agent.
    Acquire {
        /// Which run.
        run: RunId,
        /// Who.
        owner: OwnerStamp,
        /// When.
        at: Timestamp,
    },
    /// A person's word about a call of a run that has ended (synced).
    ResolveLate {
        /// Which call.
        call: CallId,
        /// What holds.
        resolution: UnknownResolution,
        /// The question that it answers.
        question: QuestionId,
        /// When.
        at: Timestamp,
    },
    /// A person's word that puts a record right (synced).
    Correct(CorrectCall),
    /// Attempts of a call that are known beside the database alone (synced).
    Recall(RecallCall),
    /// A session of a client at the gateway, with its run (synced).
    OpenSession(Box<NewSession>),
    /// The content of blobs goes (synced).
    PruneBlobs(BlobPrune),
    /// A run is let go (synced).
    Delete(RunDeletion),

    /// The owner is alive (relaxed).
    NoteAlive {
        /// How long its process stood still since it last said so.
        suspended: Duration,
        /// When.
        at: Timestamp,
    },
    /// This process's work on the run ends (synced).
    EndRun(RunEnd),
    /// A step opens (relaxed).
    OpenStep(NewStep),
    /// One step ends and the next one opens (relaxed).
    EnterStep(StepEntry),
    /// A step ends (relaxed).
    CloseStep(StepEnd),
    /// A request is about to leave (relaxed).
    Reserve(RequestReservation),
    /// The provider's name of a reply that has begun (relaxed).
    NoteResponse {
        /// Which request.
        request: RequestId,
        /// The name.
        response_id: String,
    },
    /// What has been heard of a reply's cost (relaxed).
    NoteUsage {
        /// Which request.
        request: RequestId,
        /// How much.
        heard: Usage,
    },
    /// A request brought no turn (relaxed).
    CloseRequest {
        /// Which request.
        request: RequestId,
        /// How it is charged.
        end: RequestEnd,
        /// When.
        at: Timestamp,
    },
    /// Requests of a process that died are charged (relaxed).
    CloseLostRequests {
        /// When.
        at: Timestamp,
    },
    /// A reply, its cost and the calls it plans (relaxed).
    RecordTurn(TurnDraft),
    /// A turn is over (relaxed).
    CommitTurn(TurnCommit),
    /// Messages between turns (relaxed).
    AppendMessages {
        /// The messages.
        messages: Vec<Message>,
        /// When.
        at: Timestamp,
    },
    /// A checkpoint marker (relaxed).
    SaveCheckpoint(NewCheckpoint),
    /// A question for a person (synced).
    RaiseQuestion(NewQuestion),
    /// A question was acted on, or is not asked any more (synced).
    CloseQuestion {
        /// Which question.
        question: QuestionId,
        /// It is withdrawn because nobody has answered it: refused where somebody has by now, whose word has to be heard.
        is_withdrawn: bool,
        /// When.
        at: Timestamp,
    },
    /// RUNNING (synced for calls with an effect).
    StartAttempt(StartAttempt),
    /// What a running attempt goes on with (synced).
    KeepHandle(KeepHandle),
    /// The end of an attempt (synced for calls with an effect).
    SettleAttempt(SettleAttempt),
    /// The meaning of a receipt that was stored without one.
    InterpretReceipt {
        /// Which call.
        call: CallId,
        /// What its newest receipt means.
        settlement: Settlement,
        /// Synced for calls with an effect.
        durability: Durability,
        /// When.
        at: Timestamp,
    },
    /// A call is answered by the receipt of another (relaxed).
    Deduplicate {
        /// Which call.
        call: CallId,
        /// The other one.
        from: CallId,
        /// The key that both have.
        key: IdempotencyKey,
        /// When.
        at: Timestamp,
    },
    /// Calls that will not be sent (relaxed).
    CancelCalls {
        /// Which, and why.
        cancels: Vec<CallCancel>,
        /// When.
        at: Timestamp,
    },
    /// Running calls of a process that died are unknown (relaxed).
    MarkLost {
        /// What is known of it, in words.
        why: String,
        /// When.
        at: Timestamp,
    },
    /// A client's request for a tool at the gateway, with its call if it is a new one (relaxed).
    Arrive(NewArrival),
    /// Answers that were written to their client, are known to have reached it, or were not taken by it (relaxed).
    Deliver {
        /// Of which requests.
        arrivals: Vec<String>,
        /// How far they came.
        delivery: Delivery,
        /// When.
        at: Timestamp,
    },
    /// An unknown call is settled by evidence or a person's word (synced).
    ResolveUnknown {
        /// Which call.
        call: CallId,
        /// What holds.
        resolution: UnknownResolution,
        /// The question that it answers.
        question: Option<QuestionId>,
        /// When.
        at: Timestamp,
    },
    /// What a resume did with a call (relaxed).
    NoteReplay {
        /// Which call.
        call: CallId,
        /// What.
        status: ReplayStatus,
        /// When.
        at: Timestamp,
    },
}

impl Change {
    /// What it is called where writes are counted and crossed, as `store.<name>`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Submit(_) => "store.submit_run",
            Self::SubmitAgain { .. } => "store.submit_again",
            Self::Fork(_) => "store.fork_run",
            Self::Answer(_) => "store.insert_answer",
            Self::Override(_) => "store.insert_override",
            Self::RequestCancel { .. } => "store.request_cancel",
            Self::Acquire { .. } => "store.acquire_run",
            Self::ResolveLate { .. } => "store.resolve_late",
            Self::Correct(_) => "store.correct_call",
            Self::Recall(_) => "store.recall_call",
            Self::OpenSession(_) => "store.open_session",
            Self::PruneBlobs(_) => "store.prune_blobs",
            Self::Delete(_) => "store.delete_run",
            Self::NoteAlive { .. } => "store.note_alive",
            Self::EndRun(_) => "store.end_run",
            Self::OpenStep(_) => "store.open_step",
            Self::EnterStep(_) => "store.enter_step",
            Self::CloseStep(_) => "store.close_step",
            Self::Reserve(_) => "store.reserve_request",
            Self::NoteResponse { .. } => "store.note_response",
            Self::NoteUsage { .. } => "store.note_usage",
            Self::CloseRequest { .. } => "store.close_request",
            Self::CloseLostRequests { .. } => "store.close_lost_requests",
            Self::RecordTurn(_) => "store.record_turn",
            Self::CommitTurn(_) => "store.commit_turn",
            Self::AppendMessages { .. } => "store.append_messages",
            Self::SaveCheckpoint(_) => "store.save_checkpoint",
            Self::RaiseQuestion(_) => "store.raise_question",
            Self::CloseQuestion { .. } => "store.close_question",
            Self::StartAttempt(_) => "store.start_attempt",
            Self::KeepHandle(_) => "store.keep_handle",
            Self::SettleAttempt(_) => "store.settle_attempt",
            Self::InterpretReceipt { .. } => "store.interpret_receipt",
            Self::Deduplicate { .. } => "store.deduplicate_call",
            Self::CancelCalls { .. } => "store.cancel_calls",
            Self::MarkLost { .. } => "store.mark_lost",
            Self::Arrive(_) => "store.arrive",
            Self::Deliver { .. } => "store.deliver",
            Self::ResolveUnknown { .. } => "store.resolve_unknown",
            Self::NoteReplay { .. } => "store.note_replay",
        }
    }

    /// Whether it waits for stable storage.
    pub const fn durability(&self) -> Durability {
        match self {
            Self::StartAttempt(start) => start.durability,
            Self::SettleAttempt(settle) => settle.durability,
            Self::InterpretReceipt { durability, .. } => *durability,
            Self::Submit(_)
            | Self::SubmitAgain { .. }
            | Self::Fork(_)
            | Self::Answer(_)
            | Self::Override(_)
            | Self::RequestCancel { .. }
            | Self::Acquire { .. }
            | Self::ResolveLate { .. }
            | Self::Correct(_)
            | Self::Recall(_)
            | Self::OpenSession(_)
            | Self::PruneBlobs(_)
            | Self::Delete(_)
            | Self::EndRun(_)
            | Self::RaiseQuestion(_)
            | Self::CloseQuestion { .. }
            | Self::KeepHandle(_)
            | Self::ResolveUnknown { .. } => Durability::Synced,
            Self::NoteAlive { .. }
            | Self::OpenStep(_)
            | Self::EnterStep(_)
            | Self::CloseStep(_)
            | Self::Reserve(_)
            | Self::NoteResponse { .. }
            | Self::NoteUsage { .. }
            | Self::CloseRequest { .. }
            | Self::CloseLostRequests { .. }
            | Self::RecordTurn(_)
            | Self::CommitTurn(_)
            | Self::AppendMessages { .. }
            | Self::SaveCheckpoint(_)
            | Self::Deduplicate { .. }
            | Self::CancelCalls { .. }
            | Self::MarkLost { .. }
            | Self::Arrive(_)
            | Self::Deliver { .. }
            | Self::NoteReplay { .. } => Durability::Relaxed,
        }
    }

    /// The calls that it plans.
    pub fn plans(&self) -> &[PlannedCall] {
        if let Self::RecordTurn(draft) = self {
            return &draft.calls;
        }
        if let Self::Arrive(new) = self { new.call.as_deref().map_or(&[], std::slice::from_ref) } else { &[] }
    }

    /// The one call it is about.
    pub const fn call(&self) -> Option<&CallId> {
        match self {
            Self::StartAttempt(start) => Some(&start.call_id),
            Self::KeepHandle(keep) => Some(&keep.call_id),
            Self::SettleAttempt(settle) => Some(&settle.call_id),
            Self::Correct(correct) => Some(&correct.call_id),
            Self::Recall(recall) => Some(&recall.call_id),
            Self::ResolveLate { call, .. }
            | Self::InterpretReceipt { call, .. }
            | Self::Deduplicate { call, .. }
            | Self::ResolveUnknown { call, .. }
            | Self::NoteReplay { call, .. } => Some(call),
            Self::Submit(_)
            | Self::SubmitAgain { .. }
            | Self::Fork(_)
            | Self::Answer(_)
            | Self::Override(_)
            | Self::RequestCancel { .. }
            | Self::Acquire { .. }
            | Self::OpenSession(_)
            | Self::Arrive(_)
            | Self::Deliver { .. }
            | Self::PruneBlobs(_)
            | Self::Delete(_)
            | Self::NoteAlive { .. }
            | Self::EndRun(_)
            | Self::OpenStep(_)
            | Self::EnterStep(_)
            | Self::CloseStep(_)
            | Self::Reserve(_)
            | Self::NoteResponse { .. }
            | Self::NoteUsage { .. }
            | Self::CloseRequest { .. }
            | Self::CloseLostRequests { .. }
            | Self::RecordTurn(_)
            | Self::CommitTurn(_)
            | Self::AppendMessages { .. }
            | Self::SaveCheckpoint(_)
            | Self::RaiseQuestion(_)
            | Self::CloseQuestion { .. }
            | Self::CancelCalls { .. }
            | Self::MarkLost { .. } => None,
        }
    }
}

/// Changes of one transaction, applied in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// Which batch of its author it is, from 1. One that was committed before is refused as `Repeated`, so whoever lost an answer may send
    /// it again. What has no number says nothing about others.
    pub number: Option<u64>,
    /// All of these, or nothing.
    pub stands: Vec<Change>,
    /// Behind them: all of these, or none of these.
    pub provided: Vec<Change>,
}

impl Batch {
    /// What these changes are together.
    pub fn of(stands: impl IntoIterator<Item = Change>) -> Self {
        Self { stands: stands.into_iter().collect(), ..Self::default() }
    }

    /// The same, as batch `number` of its author.
    #[must_use]
    pub fn numbered(self, number: u64) -> Self {
        Self { number: Some(number), ..self }
    }

    /// The same, with what is left out when its own guard refuses it.
    #[must_use]
    pub fn provided(mut self, provided: impl IntoIterator<Item = Change>) -> Self {
        self.provided.extend(provided);
        self
    }

    /// All changes in order.
    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.stands.iter().chain(&self.provided)
    }

    /// Synced when any change of it is.
    pub fn durability(&self) -> Durability {
        self.changes().map(Change::durability).max().unwrap_or(Durability::Relaxed)
    }

    /// Whether it only says what it would do.
    pub fn writes_nothing(&self) -> bool {
        self.number.is_none()
            && self.changes().all(|change| matches!(change, Change::PruneBlobs(prune) if prune.dry_run))
    }
}

/// What became of one change.
#[derive(Debug, Clone, PartialEq)]
pub enum Done {
    /// Nothing to tell.
    Nothing,
    /// The run as it is stored now.
    Run(Box<RunRecord>),
    /// A lease, and the run as it is stored now.
    Owned(RunLease, Box<RunRecord>),
    /// The step.
    Step(StepRecord),
    /// The request that was reserved.
    Request(RequestId),
    /// How many rows it changed.
    Count(u32),
    /// The call as it is stored now.
    Call(CallRecord),
    /// The calls that were changed.
    Calls(Vec<CallRecord>),
    /// The attempt.
    Attempt(AttemptRecord),
    /// The question.
    Question(QuestionRecord),
    /// What a person changed.
    Override(OverrideRecord),
    /// The blobs that went.
    Pruned(BlobPruned),
    /// What remains of a run.
    Deleted(DeletedRun),
}

/// What a committed batch came to, change by change.
#[derive(Debug)]
pub struct Committed {
    /// Of what stands.
    pub stands: Vec<Done>,
    /// Of what was provided, or why it was left out; the rest is committed all the same.
    pub provided: Result<Vec<Done>, StoreError>,
    /// How many words of people the owner's run has: when it grew, what they said is to be read. 0 for whoever owns no run.
    pub words: u64,
}

/// Commits a batch of one change.
pub(crate) async fn one(store: &(impl Store + ?Sized), by: Author, batch: Batch) -> Result<Done, StoreError> {
    let mut committed = store.commit(&by, batch).await?;
    Ok(committed.stands.pop().unwrap_or(Done::Nothing))
}

/// What a change says it came to is of the kind of that change.
macro_rules! kinds {
    ($($name:ident: $made:ty = $pattern:pat => $value:expr, $what:literal;)+) => {
        impl Done {
            $(
                #[doc = concat!("What became of a change that comes to ", $what, ".")]
                ///
                /// # Panics
                ///
                /// When it was another change: each has one kind of answer.
                pub fn $name(self) -> $made {
                    match self {
                        $pattern => $value,
                        other => unreachable!("a change that comes to {} came to {other:?}", $what),
                    }
                }
            )+
        }
    };
}

kinds! {
    into_run: RunRecord = Self::Run(run) => *run, "a run";
    into_owned: (RunLease, RunRecord) = Self::Owned(lease, run) => (lease, *run), "a lease";
    into_step: StepRecord = Self::Step(step) => step, "a step";
    into_request: RequestId = Self::Request(id) => id, "a request";
    into_count: u32 = Self::Count(count) => count, "a count";
    into_call: CallRecord = Self::Call(call) => call, "a call";
    into_calls: Vec<CallRecord> = Self::Calls(calls) => calls, "calls";
    into_attempt: AttemptRecord = Self::Attempt(attempt) => attempt, "an attempt";
    into_question: QuestionRecord = Self::Question(question) => question, "a question";
    into_override_record: OverrideRecord = Self::Override(row) => row, "an override";
    into_pruned: BlobPruned = Self::Pruned(pruned) => pruned, "a prune";
    into_deleted: DeletedRun = Self::Deleted(deleted) => deleted, "a deletion";
}
