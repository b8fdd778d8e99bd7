//! What callers hand to a write. Each is one transaction.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use ua_core::{
    Block, CallId, CallStatus, CheckpointId, Destination, EvidenceLevel, Handle, IdempotencyKey, Message, ModelTurn,
    PlannedCall, QuestionId, QuestionText, RawReply, Resolution, RunId, RunSpec, RunStatus, RunStop, Scope, Settlement,
    Sha256, Shared, StepId, StepStatus, Timestamp, TokenPrice, Usage,
};

use crate::Durability;
use crate::iteration::NewIteration;
use crate::lifted::NewBlob;
use crate::record::{CheckpointKind, Choice, Correction, QuestionKind, ReplayStatus, RequestId};
use crate::relations::Seen;

/// A run to be submitted; it starts `queued`, with its opening prompt as the first message.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRun {
    /// Its id.
    pub run_id: RunId,
    /// When.
    pub created_at: Timestamp,
    /// `cli`, `telegram`, `ws`, `worker` or `library`.
    pub entrypoint: String,
    /// `job`, `harness`, `task` or `library`.
    pub run_mode: String,
    /// The contract.
    pub spec: RunSpec,
    /// What the files of the contract hold, as far as it is not stored yet.
    pub files: Vec<NewBlob>,
    /// Where the job file is.
    pub job_path: Option<String>,
    /// What the model is told first.
    pub opening: Message,
    /// The run's folder, absolute.
    pub workspace_dir: String,
    /// How to start it again.
    pub launch: Value,
    /// The run it is forked from or started by; its lineage root is inherited.
    pub parent_run_id: Option<RunId>,
}

/// A fork to be made: a run that shares the first turns of its parent by reference. It starts `queued`.
#[derive(Debug, Clone, PartialEq)]
pub struct NewFork {
    /// The fork, which names its parent. Its opening prompt stands in the place of the parent's.
    pub run: NewRun,
    /// The last turn it shares; must be committed.
    pub at_turn: u32,
    /// What the model is told behind the shared turns: that this is a fork, what changed, what was done since.
    pub note: Message,
}

/// A step to be opened.
#[derive(Debug, Clone, PartialEq)]
pub struct NewStep {
    /// Its id.
    pub step_id: StepId,
    /// Its phase.
    pub phase: String,
    /// When.
    pub created_at: Timestamp,
    /// Digests of what shapes it.
    pub fingerprint: Option<Value>,
}

/// The boundary between two steps, or the beginning of the first one, in one write.
#[derive(Debug, Clone, PartialEq)]
pub struct StepEntry {
    /// The end of the current step; `None` for the first step.
    pub end: Option<StepEnd>,
    /// Markers of the boundary; each belongs to the step that ends or to the one that opens.
    pub checkpoints: Vec<NewCheckpoint>,
    /// The step that opens. One that is the current step already is entered: the write was repeated.
    pub step: NewStep,
    /// What the model is told; appended in order.
    pub messages: Vec<Message>,
    /// The iteration that begins with the step, if one does.
    pub iteration: Option<NewIteration>,
}

/// The end of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepEnd {
    /// Which step.
    pub step_id: StepId,
    /// How it ended.
    pub status: StepStatus,
    /// A short code of its failure.
    pub error_code: Option<String>,
    /// Its failure in words.
    pub error_detail: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// A reservation for one request to a model, written just before it leaves (`network_attempted = 1`).
#[derive(Debug, Clone, PartialEq)]
pub struct RequestReservation {
    /// The turn asked for; must be `turn_index + 1` and not yet recorded.
    pub turn: u32,
    /// Digest of the request.
    pub request_sha256: Sha256,
    /// The provider asked.
    pub provider: String,
    /// The model asked.
    pub model: String,
    /// What its tokens cost when it was asked; `None` when nobody knows.
    pub price: Option<TokenPrice>,
    /// Name and version of what made the estimate.
    pub estimator: String,
    /// Estimated input tokens.
    pub estimated_tokens: u64,
    /// The most output tokens that were allowed; held while the request is under way.
    pub reserved_output_tokens: u64,
    /// The reply that it continues from; `None` when it carries the whole history.
    pub continued_from: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// The bytes of a reply that count as a token where nobody counted any.
const BYTES_PER_TOKEN: u64 = 4;

/// How a request is charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEnd {
    /// The provider said what it cost.
    Actual(Usage),
    /// It left us and its reply broke off, or nobody counted it: what was heard of it is charged, and at least the estimate of its input.
    Partial(Usage),
    /// It left us and was not answered: the estimate is charged as input tokens.
    Baseline,
    /// It left us and the provider refused it before it began: nothing is charged.
    Refused,
    /// It never left us.
    Zero,
}

impl RequestEnd {
    /// How a request that brought this reply is charged: by what its provider counted, and each of the halves that it did not count by the
    /// estimate: the input by that of the request, the output by what was written. So a reservation is never given back because nobody said
    /// what was taken of it. A count that cannot be is none, as servers write that count nothing, or only the half that they wrote
    /// themselves: no request is without input, and no text without output. No budget of tokens or money would ever be used up.
    pub fn of_reply(reply: &ModelTurn) -> Self {
        let told = reply.usage.unwrap_or_default();
        let written = (reply.blocks.iter().map(Block::written_bytes).sum::<usize>() as u64).div_ceil(BYTES_PER_TOKEN);
        let has_input = told.input_total() > 0;
        let has_output = told.output_tokens > 0 || written == 0;
        if has_input && has_output {
            return Self::Actual(told);
        }
        Self::Partial(if has_output { told } else { Usage { output_tokens: written, ..told } })
    }

    /// The tokens that are charged for a request of so many estimated input tokens.
    pub fn charged(self, estimated_tokens: u64) -> Usage {
        match self {
            Self::Actual(usage) => usage,
            Self::Partial(heard) => {
                let from_cache = heard.cache_read_tokens.saturating_add(heard.cache_write_tokens);
                Usage { input_tokens: heard.input_tokens.max(estimated_tokens.saturating_sub(from_cache)), ..heard }
            }
            Self::Baseline => Usage { input_tokens: estimated_tokens, ..Usage::default() },
            Self::Refused | Self::Zero => Usage::default(),
        }
    }

    /// Whether anything is charged for the request: whoever makes another one like it may pay once more.
    pub fn is_charged(self) -> bool {
        match self {
            Self::Actual(_) | Self::Partial(_) | Self::Baseline => true,
            Self::Refused | Self::Zero => false,
        }
    }
}

/// A turn to be recorded: the reply, its cost and every call it asks for, in one write.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnDraft {
    /// Its number; must be `turn_index + 1` and not yet recorded.
    pub turn: u32,
    /// Its step.
    pub step_id: StepId,
    /// The request it answers; becomes `actual`, or `partial` when nobody counted it.
    pub request_id: RequestId,
    /// Digest of that request.
    pub request_sha256: Sha256,
    /// The reply; its blocks become the assistant message.
    pub reply: ModelTurn,
    /// Every tool use, planned. Those with a refusal are stored `cancelled` at once, all others `prepared`.
    pub calls: Vec<PlannedCall>,
    /// When.
    pub at: Timestamp,
}

/// The end of a turn: results appended, `turn_index` n−1 → n.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnCommit {
    /// Its number; must be `turn_index + 1` and recorded.
    pub turn: u32,
    /// The tool results and whatever the run tells the model besides; appended in order.
    pub messages: Vec<Message>,
    /// The checkpoint marker of this boundary.
    pub checkpoint: NewCheckpoint,
    /// Milliseconds in which this process held the run since it last said so.
    pub held_millis: u64,
    /// When.
    pub at: Timestamp,
}

/// A checkpoint marker.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCheckpoint {
    /// Its id.
    pub checkpoint_id: CheckpointId,
    /// Its step.
    pub step_id: StepId,
    /// Why it is made.
    pub kind: CheckpointKind,
    /// A summary of the run's state.
    pub snapshot: Shared<Value>,
    /// Where the run stands.
    pub cursor: Shared<Value>,
    /// When.
    pub at: Timestamp,
}

/// The end of a process's work on a run: terminal, or parked until somebody resumes it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEnd {
    /// `waiting_for_human`, `stopped`, `succeeded`, `failed` or `cancelled`.
    pub status: RunStatus,
    /// Why it is `stopped`.
    pub stop_reason: Option<RunStop>,
    /// A sentence about it.
    pub detail: Option<String>,
    /// The model's last words.
    pub final_output: Option<String>,
    /// The main artifact.
    pub final_artifact_ref: Option<String>,
    /// The current step's end, when the run's end is its end too.
    pub step_end: Option<StepEnd>,
    /// Calls that were not sent and never will be. What was asked about them is closed.
    pub cancels: Vec<CallCancel>,
    /// Questions that nobody has to answer any more, and answers that the end is the consequence of.
    pub closes: Vec<QuestionId>,
    /// Milliseconds in which this process held the run since it last said so.
    pub held_millis: u64,
    /// When.
    pub at: Timestamp,
}

/// RUNNING: the intent to send, committed before anything is sent; claims the key.
#[derive(Debug, Clone, PartialEq)]
pub struct StartAttempt {
    /// Which call.
    pub call_id: CallId,
    /// Its number; must be one more than the stored one.
    pub attempt: u32,
    /// The key; must equal the stored one if there is one.
    pub key: IdempotencyKey,
    /// What the effect is.
    pub scope: Option<Scope>,
    /// The calls that this one might repeat, as they were when the start was decided on; any that is another one now, or stands
    /// elsewhere, refuses it. `None` does not look: a read repeats nothing.
    pub seen: Option<Vec<Seen>>,
    /// The run's [`corrected_at`](crate::RunRecord::corrected_at) as whoever decided on the start knew it: where it is another one now, a first
    /// send that looks at other calls is refused.
    pub corrected_at: Option<Timestamp>,
    /// What ended the call's doubt: a person's word or a probe says that no attempt had the effect.
    pub ends_doubt: bool,
    /// Digests of the files it sends.
    pub file_digests: BTreeMap<String, Sha256>,
    /// The process of the tool server it will be sent to.
    pub server_generation: Option<String>,
    /// Where that sends to and as whom, of a call with an effect where it is known.
    pub destination: Option<Destination>,
    /// The most calls of this effect kind that may have happened in the run, this one included.
    pub max_effects: Option<u32>,
    /// The question whose `execute` answer allows this attempt; consumed by it.
    pub approved_by: Option<QuestionId>,
    /// What resume did, when it is resume that starts it.
    pub replay_status: Option<ReplayStatus>,
    /// For a task: the child run that works on it, made in the same write.
    pub child: Option<Box<NewRun>>,
    /// Synced for calls with an effect.
    pub durability: Durability,
    /// When.
    pub at: Timestamp,
}

/// What the running attempt of a call goes on with (synced): nothing is done with a handle before it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct KeepHandle {
    /// Which call.
    pub call_id: CallId,
    /// Its attempt; must be the one that runs.
    pub attempt: u32,
    /// The handle, in the place of the one before.
    pub handle: Handle,
    /// Where an answer is about to be handed over, which sends the call on: the calls that this one might repeat, as they were when that was
    /// decided. Any that is another one now, or stands elsewhere, refuses it. `None` does not look: nothing is sent.
    pub seen: Option<Vec<Seen>>,
    /// When.
    pub at: Timestamp,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "made once for an attempt and handed on; nothing keeps many of them")]
pub enum AttemptEnd {
    /// The request never left us; the call has failed, definitely.
    NotSent {
        /// Why.
        why: String,
    },
    /// It left and was not answered; the call is unknown.
    Lost {
        /// Why.
        why: String,
    },
    /// It was answered. Without a settlement only the raw reply is stored and the call stays `running`.
    Replied {
        /// The reply as it came.
        raw: RawReply,
        /// What it means.
        settlement: Option<Settlement>,
    },
}

/// The end of an attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct SettleAttempt {
    /// Which call.
    pub call_id: CallId,
    /// Which attempt; must be the stored one, and running.
    pub attempt: u32,
    /// How it ended.
    pub end: AttemptEnd,
    /// Synced for calls with an effect.
    pub durability: Durability,
    /// When.
    pub at: Timestamp,
}

/// A call that will not be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct CallCancel {
    /// Which call; must be `prepared`.
    pub call_id: CallId,
    /// Why.
    pub resolution: Resolution,
    /// A short code.
    pub code: String,
    /// What the model is told.
    pub message: String,
    /// Refused when a person has let it run, which whoever cancels it did not know.
    pub unless_allowed: bool,
}

/// Evidence, or a person's word, about a call that is `unknown`.
#[derive(Debug, Clone, PartialEq)]
pub enum UnknownResolution {
    /// It happened: a receipt of level `evidence` is stored and the call succeeds.
    Happened {
        /// The evidence, as a raw reply.
        raw: RawReply,
        /// What it means; its status must be `succeeded`.
        settlement: Settlement,
        /// How well it is vouched for.
        evidence: EvidenceLevel,
    },
    /// The answer of its newest attempt came and could not be stored then: the call is what the answer says, as if it had been, and the
    /// attempt is one that was answered.
    Answered {
        /// The answer.
        raw: RawReply,
        /// What it means; it must not leave the outcome open.
        settlement: Settlement,
        /// When it came.
        received_at: Timestamp,
        /// When the attempt was sent that it answers. `None` where that is not known: then it may not have come before the attempt began.
        sent_at: Option<Timestamp>,
    },
    /// It did not: the call has failed, definitely, and no longer blocks its scope. For calls whose turn is over; one whose
    /// turn is open is started again instead.
    NotHappened {
        /// Who says so, in words.
        why: String,
    },
    /// Nobody knows and nobody will; the call stays `unknown`, resolution `skipped`, and goes on blocking its scope.
    Skipped,
}

/// A person's word that puts the record of a call right; needs no lease.
#[derive(Debug, Clone, PartialEq)]
pub struct CorrectCall {
    /// Which call.
    pub call_id: CallId,
    /// Where it stood, and at which attempt, when the person looked. A call that moved on refuses.
    pub seen: (CallStatus, u32),
    /// What the person says.
    pub correction: Correction,
    /// With *happened*: the person's word as a receipt, and what it means.
    pub receipt: Option<(RawReply, Settlement)>,
    /// Whether the caller made sure that no process drives the run and that what was sent for it can no longer act. Calls of the open
    /// turn are corrected only then.
    pub is_idle: bool,
}

/// What is known beside the database about a call that the database has and of whose newest attempts it does not know; needs no lease.
#[derive(Debug, Clone, PartialEq)]
pub struct RecallCall {
    /// Which call.
    pub call_id: CallId,
    /// Its attempts by number, lowest first; those that the database has change nothing, but for the newest where that is under way: it had ended.
    pub attempts: Vec<RecalledAttempt>,
}

/// An attempt of which the database does not know.
#[derive(Debug, Clone, PartialEq)]
pub struct RecalledAttempt {
    /// Its number.
    pub attempt: u32,
    /// The key it was sent under.
    pub key: IdempotencyKey,
    /// What it touched, if that is known.
    pub scope: Option<Scope>,
    /// What its files held, where the call's own record does not say.
    pub file_digests: Option<BTreeMap<String, Sha256>>,
    /// When it was sent: from then on its key counts, and an answer may be one to it.
    pub sent_at: Timestamp,
    /// When something was noted of it last.
    pub at: Timestamp,
    /// What was noted of it, in words.
    pub said: String,
    /// Whether the other side answered it before whatever was noted last.
    pub was_answered: bool,
    /// Whether it provably did nothing.
    pub did_nothing: bool,
    /// The attempt of which the database has the send and not what came of it, where that is all that is learnt: then nothing was sent for this one.
    pub learnt_of: Option<u32>,
    /// The call that made it, if that is another one, which the database does not have: what it did is what this one is about to do.
    pub made_by: Option<MadeBy>,
}

/// A call that the database does not have, in whose place another one stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MadeBy {
    /// The call.
    pub call: String,
    /// Its run.
    pub run: String,
    /// Whether it had the same arguments.
    pub in_same_words: bool,
    /// By what that one is found on the other side, each in words: its own names, as its line in `effects.log` has them.
    pub found_by: Vec<String>,
    /// The other side's name for what it did, if that answered with one.
    pub external_id: Option<String>,
}

/// A question for a person.
#[derive(Debug, Clone, PartialEq)]
pub struct NewQuestion {
    /// Its id.
    pub question_id: QuestionId,
    /// The call it is about. A call has at most one question that is not closed.
    pub call_id: Option<CallId>,
    /// What it is about.
    pub kind: QuestionKind,
    /// The question in words.
    pub text: QuestionText,
    /// What the answer is bound to.
    pub detail: Value,
    /// What may be answered.
    pub choices: Vec<Choice>,
    /// When.
    pub at: Timestamp,
}

/// What a person says to a question, the same from whoever asks to the record: a choice, and what goes with it.
///
/// ```
/// # use ua_store::{Answer, Choice};
/// let _it_happened = Answer::from(Choice::Happened);
/// let _and_this_is_its_number = Answer::new(Choice::Happened).proof("invoice 4711");
/// let _in_words = Answer::new(Choice::Continue).text("The blue one.");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[must_use = "an answer counts when it is given"]
pub struct Answer {
    /// One of the question's choices.
    pub choice: Choice,
    /// With [`Choice::Happened`]: the other side's name for what happened. It stands in the receipt.
    pub proof: Option<String>,
    /// Words, which the model reads, or the values of a form.
    pub text: Option<String>,
}

impl Answer {
    /// A choice without words.
    pub fn new(choice: Choice) -> Self {
        Self { choice, proof: None, text: None }
    }

    /// With the other side's name for what happened.
    pub fn proof(mut self, name: impl Into<String>) -> Self {
        self.proof = Some(name.into());
        self
    }

    /// With words, or with the values of a form.
    pub fn text(mut self, words: impl Into<String>) -> Self {
        self.text = Some(words.into());
        self
    }
}

impl From<Choice> for Answer {
    fn from(choice: Choice) -> Self {
        Self::new(choice)
    }
}

/// A person's answer to a question; needs no lease.
#[derive(Debug, Clone, PartialEq)]
pub struct NewAnswer {
    /// Which question; must be open, and the choice one of its choices.
    pub question_id: QuestionId,
    /// What is said.
    pub answer: Answer,
    /// Who answers.
    pub by: String,
    /// When.
    pub at: Timestamp,
}
