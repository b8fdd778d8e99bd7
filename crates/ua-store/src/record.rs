//! Rows, as callers read them. Names of columns are those of Durable Jobs v1 spec §5 where it has them.

use std::collections::BTreeMap;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use ua_core::{
    ArgsHash, Budgets, CallId, CallPolicy, CallStatus, CheckpointId, CorrectedTo, Destination, EvidenceLevel, Handle,
    IdempotencyKey, Message, ModelTurn, Money, PhaseBudgets, Position, PossibleEffect, QuestionId, RawReply,
    Resolution, RunId, RunSpec, RunStatus, RunStop, Scope, Settlement, Sha256, Shared, ShortNames, StepId, StepStatus,
    Timestamp, TokenPrice, ToolCharge, ToolName, Trace, Usage,
};

use crate::lifted::Lifted;
use crate::lineage::{ForkPoint, LineageRecords};
use crate::overrides::{OverrideKind, OverrideRecord, budgets_with};
use crate::standing::LeftOut;
use crate::taint::Taint;

/// Proof that a process owns a run: the run, the epoch under which it took it, and who it is, since a restored database may give an epoch
/// twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunLease {
    /// The run.
    pub run_id: RunId,
    /// Rises by one each time the run is taken.
    pub epoch: u64,
    /// The trace of the work that it was taken for.
    pub id: Trace,
}

/// Which process took a run. A process id alone can be reused; with its start time and the boot it cannot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerStamp {
    /// The process id.
    pub pid: u32,
    /// The process's start time in clock ticks since boot.
    pub start_ticks: u64,
    /// The kernel's id of this boot.
    pub boot_id: String,
    /// The machine's name.
    pub host: String,
    /// The trace of this process.
    pub trace: Trace,
    /// Processes that a person ended at once while they held what this one takes, as their lock says: whoever takes a run stores it of its
    /// predecessor. It is nothing of the process itself, and is not kept with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended_before: Vec<EndedAtOnce>,
}

impl OwnerStamp {
    /// What tells the process from others of its machine, as it stands in [`ProcessSpan::process`].
    pub fn process(&self) -> String {
        format!("{}@{}", self.pid, self.start_ticks)
    }

    /// Whether both are the same process of the same machine.
    pub fn is_same_process(&self, other: &Self) -> bool {
        let process = |stamp: &Self| (stamp.pid, stamp.start_ticks);
        process(self) == process(other) && self.boot_id == other.boot_id && self.host == other.host
    }
}

/// A process that ended before it could say so in the run: a person ended it at once, or an error did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedAtOnce {
    /// Which one: [`OwnerStamp::process`].
    pub process: String,
    /// By what.
    pub by: EndedBy,
}

/// What ended a process that drove a run, before it could say in the run that it left it: a second signal of a person, or an error of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// SIGINT, as Ctrl-C sends it.
    Interrupt,
    /// SIGHUP: its terminal went away.
    HangUp,
    /// SIGTERM.
    Terminate,
    /// A stop that waits for what is under way, and waited no longer: that of the gateway's broker.
    Drained,
    /// An error, such as that of a full disk. The process said it where it was seen, and could not write it into the run.
    Error,
}

impl EndedBy {
    /// By what a process was ended, for people.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Interrupt => "a second Ctrl-C",
            Self::HangUp => "a second signal (SIGHUP)",
            Self::Terminate => "a second signal (SIGTERM)",
            Self::Drained => "a stop that waited no longer",
            Self::Error => "an error",
        }
    }

    /// Whether a person wanted it.
    pub const fn is_wanted(self) -> bool {
        match self {
            Self::Interrupt | Self::HangUp | Self::Terminate | Self::Drained => true,
            Self::Error => false,
        }
    }
}

/// A run (`runs`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Its id.
    pub run_id: RunId,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When its row last changed.
    pub updated_at: Timestamp,
    /// Where it stands.
    pub status: RunStatus,
    /// Why it is `stopped`.
    pub stop_reason: Option<RunStop>,
    /// A sentence about the status: what was reached, what is missing, what failed.
    pub status_detail: Option<String>,
    /// `cli`, `telegram`, `ws`, `worker` or `library`.
    pub entrypoint: String,
    /// `job`, `harness`, `task` or `library`.
    pub run_mode: String,
    /// The immutable contract (`run_spec_json`).
    pub spec: Arc<RunSpec>,
    /// Where the job file was.
    pub job_path: Option<String>,
    /// The name of the intended execution.
    pub job_key: Option<String>,
    /// What the model was told first.
    pub last_job_prompt: String,
    /// The run's folder, absolute.
    pub workspace_dir: String,
    /// How the run was started (provider, model, configuration files); read by the composition root only.
    pub launch: Value,
    /// The first run of its lineage: itself, unless it is a fork or a sub-agent.
    pub root_run_id: RunId,
    /// What tells its lineage from another one whose first run has the same name, in another copy of the database: where and when that run was
    /// submitted, as a digest. `None` of a lineage that an earlier version began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage_mark: Option<String>,
    /// The run it was forked from or started by.
    pub parent_run_id: Option<RunId>,
    /// The task it works on, when it is the run of a sub-agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_call_id: Option<CallId>,
    /// For a fork, up to where it shares its parent's history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_at: Option<ForkPoint>,
    /// The provider's conversation id of the last committed turn.
    pub provider_session_id: Option<String>,
    /// The provider's conversation it was forked from.
    pub provider_session_forked_from: Option<String>,
    /// The step being executed.
    pub current_step_id: Option<StepId>,
    /// The newest checkpoint.
    pub last_checkpoint_id: Option<CheckpointId>,
    /// The main artifact, relative to the workspace.
    pub final_artifact_ref: Option<String>,
    /// The model's last words.
    pub final_output: Option<String>,
    /// Number of committed turns.
    pub turn_index: u32,
    /// Raised each time the run is taken.
    pub lease_epoch: u64,
    /// Who took it last.
    pub owner: Option<OwnerStamp>,
    /// When a person asked to cancel it; sticky.
    pub cancel_requested_at: Option<Timestamp>,
    /// Why.
    pub cancel_reason: Option<String>,
    /// When a person answered `abort` to a question of it, or of a run above it whose task it works on; sticky.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abort_requested_at: Option<Timestamp>,
    /// That question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abort_question: Option<QuestionId>,
    /// When a person last corrected a record of its lineage, or it became known what came of a call that a run of it had continued without:
    /// whoever drives the run tells its model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected_at: Option<Timestamp>,
    /// What was read into its history.
    #[serde(default, skip_serializing_if = "Taint::is_none")]
    pub taint: Taint,
    /// Iterations that began; 0 for a job without a harness.
    pub iteration_count: u32,
    /// Iterations that may begin, as it counted when the last one did.
    pub max_iterations: Option<u32>,
    /// What the model must promise, verified against evidence.
    pub completion_promise: Option<String>,
    /// Milliseconds in which a process held the run.
    pub held_millis: u64,
    /// Since when the owner's time is not in `held_millis` yet; `None` while nobody holds the run.
    #[serde(default)]
    pub held_from: Option<Timestamp>,
    /// When the owner last said that it is alive; `None` when it did not since it took the run.
    #[serde(default)]
    pub seen_at: Option<Timestamp>,
    /// When the run was taken from a process that had died while driving it; the newest ones, oldest first.
    pub unclean_ends: Vec<Timestamp>,
    /// One trace per process that drove the run, oldest first.
    pub traces: Vec<Trace>,
    /// When each process took the run and left it; the newest ones, oldest first. Runs of earlier versions have none of before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<ProcessSpan>,
}

/// One process's work on a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSpan {
    /// The number of its ownership.
    pub epoch: u64,
    /// When it took the run.
    pub taken_at: Timestamp,
    /// When it left the run in order, or was last known to be alive; `None` while it holds the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_at: Option<Timestamp>,
    /// Whether it died while it held the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub died: bool,
    /// By what a person ended it at once, where it did not die of itself. Rows of earlier versions do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<EndedBy>,
    /// What tells its process from others: one that asks somebody at its terminal takes the run anew after each answer. Rows of earlier
    /// versions do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
}

impl ProcessSpan {
    /// Whether its process lived on when it died, as a later one of `all` shows: the program dropped what drove the run.
    pub fn was_dropped(&self, all: &[ProcessSpan]) -> bool {
        let is_of_it = |later: &ProcessSpan| later.epoch > self.epoch && later.process == self.process;
        self.died && self.ended_by.is_none() && self.process.is_some() && all.iter().any(is_of_it)
    }
}

/// A person's word that a run is to end. It stands in the run's row until the run has ended: from then on nothing is started in it,
/// and whoever takes it ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndMark {
    /// It was cancelled: it ends `cancelled`.
    Cancel,
    /// A question was answered `abort`: it ends `failed`.
    Abort,
}

/// Why a call was lost that was under way when the run was taken anew, for people. A process that lives on is said to have ended by nobody.
pub fn lost_because(run: &RunRecord) -> &'static str {
    let mut died = run.processes.iter().filter(|process| process.died).peekable();
    if died.peek().is_some() && died.all(|process| process.was_dropped(&run.processes)) {
        "its program dropped the run before an answer was stored"
    } else {
        "the process that sent it ended before an answer was stored"
    }
}

impl RunRecord {
    /// Whether a person said that the run is to end. A cancel, which names the run itself, counts before an abort.
    pub fn end_mark(&self) -> Option<EndMark> {
        if self.cancel_requested_at.is_some() {
            return Some(EndMark::Cancel);
        }
        self.abort_requested_at.map(|_| EndMark::Abort)
    }

    /// Whether nothing was begun of it: there is no step, and so no request was made for it and no call.
    pub fn is_unbegun(&self) -> bool {
        self.turn_index == 0 && self.current_step_id.is_none()
    }

    /// What it came to: the JSON value of a run whose job has an `output_schema`, else the model's last words as a text.
    pub fn final_value(&self) -> Option<Value> {
        let text = self.final_output.as_ref()?;
        let value = self.spec.output_schema.as_ref().and_then(|_| serde_json::from_str(text).ok());
        Some(value.unwrap_or_else(|| Value::String(text.clone())))
    }

    /// How many of its committed turns it shares with its parent; 0 when it is no fork.
    pub fn shared_turns(&self) -> u32 {
        self.forked_at.map_or(0, |point| point.turn)
    }

    /// How many turns it committed itself.
    pub fn own_turns(&self) -> u32 {
        self.turn_index.saturating_sub(self.shared_turns())
    }
}

/// A step (`run_steps`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Its id.
    pub step_id: StepId,
    /// Its run.
    pub run_id: RunId,
    /// Its number in the run, from 1.
    pub step_index: u32,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its row last changed.
    pub updated_at: Timestamp,
    /// Where it stands.
    pub status: StepStatus,
    /// Its phase; `main` when the job has none.
    pub phase: String,
    /// A short code of its failure.
    pub error_code: Option<String>,
    /// Its failure in words.
    pub error_detail: Option<String>,
    /// Its first turn.
    pub first_turn: u32,
    /// Its last committed turn.
    pub last_turn: Option<u32>,
    /// Digests of what shapes the step, by component. It never changes, so whoever reads the step again shares it.
    pub fingerprint: Option<Arc<Value>>,
}

/// A turn (`turns`): recorded when the model's reply is, committed when its results are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnRecord {
    /// Its run.
    pub run_id: RunId,
    /// Its number in the run, from 1.
    pub turn: u32,
    /// Its step.
    pub step_id: StepId,
    /// Digest of the request it answers.
    pub request_sha256: Sha256,
    /// The reply without its blocks, which are in the message: why it ended, usage, model, response id.
    pub reply: ModelTurn,
    /// When the reply had come: a write that had to wait, for room or for the database, came later and says so nowhere.
    pub recorded_at: Timestamp,
    /// When the last result had come and the commit was made ready, which may have had to wait as well; `None` in an open turn.
    pub committed_at: Option<Timestamp>,
    /// The epoch that recorded it.
    pub epoch: u64,
}

/// A message of the history (`messages`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessageRecord {
    /// Its place in the history.
    pub seq: u64,
    /// The turn it belongs to; 0 for the opening prompt. An assistant message of turn `turn_index + 1` is not
    /// committed yet.
    pub turn: u32,
    /// The message.
    pub message: Message,
    /// When it was written.
    pub created_at: Timestamp,
}

/// What resume did with a call that was in flight (`replay_status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayStatus {
    /// A stored reply was interpreted.
    Interpreted,
    /// A stored output was reused.
    Reused,
    /// It was run again.
    Redone,
    /// Evidence settled it.
    Reconciled,
    /// A person is asked.
    Held,
    /// It was never sent and now never will be.
    Cancelled,
    /// It had never been sent and was run for the first time.
    Executed,
    /// It is a task whose child run went on where it stood.
    Resumed,
}

/// A tool call (`tool_calls`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// Its id.
    pub call_id: CallId,
    /// Its run.
    pub run_id: RunId,
    /// Its lineage.
    pub root_run_id: RunId,
    /// Its step.
    pub step_id: StepId,
    /// Where it stands in the run.
    pub position: Position,
    /// When it was planned.
    pub created_at: Timestamp,
    /// When its row last changed.
    pub updated_at: Timestamp,
    /// The provider's id of the tool use.
    pub tool_use_id: String,
    /// What is called.
    pub name: ToolName,
    /// The arguments as the model gave them (`request_ref`).
    pub arguments: Shared<Value>,
    /// Digest of the canonical arguments (`normalized_args_hash`).
    pub args_hash: ArgsHash,
    /// Digest of the tool's definition when it was offered.
    pub tool_digest: Option<Sha256>,
    /// What was decided about it.
    pub policy: Shared<CallPolicy>,
    /// Where it stands.
    pub status: CallStatus,
    /// Number of its last attempt; 0 when it was never sent.
    pub attempt: u32,
    /// The earliest of its attempts that may have had the effect, and of which nobody knows. It stands, whatever later attempts come to,
    /// until a success under its key, a probe or a person says otherwise. Only calls with an effect that must not simply be had again
    /// are ever in doubt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<u32>,
    /// Its key; empty until RUNNING or a dedupe writes it.
    pub idempotency_key: Option<IdempotencyKey>,
    /// What its effect is, whatever the wording.
    pub scope: Option<Scope>,
    /// Digests of the workspace files it sends, by argument path, taken at admission.
    pub file_digests: BTreeMap<String, Sha256>,
    /// For a reported failure, whether it may have happened.
    pub possible_effect: Option<PossibleEffect>,
    /// How it was settled, if not by its own receipt.
    pub resolution: Option<Resolution>,
    /// The call whose receipt answers it.
    pub deduplicated_from: Option<CallId>,
    /// What resume did with it.
    pub replay_status: Option<ReplayStatus>,
    /// The other side's name for what happened.
    pub external_correlation_id: Option<String>,
    /// A short code of its failure or refusal.
    pub error_code: Option<String>,
    /// Its failure or refusal in words; for a cancelled call, what the model is told. Where the code is an HTTP status ([`CallRecord::http_status`]), it is
    /// what came with that, and does not say it.
    pub error_detail: Option<String>,
    /// What a person said last that it came to, whatever had been recorded. Gone once it is sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correction: Option<Correction>,
}

/// A person's word that puts the record of a call right. It is kept with the call and, for ever, in its history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Correction {
    /// What the person says that it came to.
    pub outcome: CorrectedTo,
    /// What was recorded before.
    pub was: CallStatus,
    /// How the person knows.
    pub reason: String,
    /// The other side's name for what happened, when the person gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
    /// Who said it.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// The call whose receipt answers this one, and whose record this one follows: a person said that it had this one's effect, or put that one
    /// right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<CallId>,
    /// Whether the other side had answered that it did it, though the database, which was put back from an older copy, has that from `effects.log` alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_answered: bool,
}

impl CallRecord {
    /// The call whose receipt answers it and whose record it follows, if that is another one: by its key, or by a person's word that it had the effect
    /// of this one, which did nothing itself.
    pub fn answered_by(&self) -> Option<&CallId> {
        self.deduplicated_from.as_ref().or_else(|| self.correction.as_ref()?.of.as_ref())
    }

    /// Whether its effect was had by another call, whose receipt is its answer; no more so once a person said that that one did not have it.
    pub fn is_answered_by_twin(&self) -> bool {
        self.answered_by().is_some() && self.status == CallStatus::Succeeded
    }

    /// By what it is found on the other side if it was sent under the key that it has, each in words
    /// ([`CallPolicy::names_outside`](ua_core::CallPolicy::names_outside)); nothing of one that does nothing there. Whether it was sent say its attempts:
    /// whoever shows names to a person asks for its [`Trace`](crate::Trace)s.
    pub fn names_if_sent(&self) -> Vec<String> {
        if !self.policy.class.has_effect() || self.attempt == 0 {
            return Vec::new();
        }
        let key = self.idempotency_key.as_ref().map(IdempotencyKey::as_str);
        self.arguments.as_object().map_or_else(Vec::new, |arguments| self.policy.names_outside(key, arguments))
    }

    /// The HTTP status that is all its tool server's endpoint answered, beside what is in [`Self::error_detail`].
    pub fn http_status(&self) -> Option<u16> {
        http_status(self.error_code.as_deref()?)
    }

    /// What went wrong with it, as a person reads it: in front of what an HTTP server said stands the status with which it said so, which is half of
    /// the answer.
    pub fn error_in_words(&self) -> Option<String> {
        error_in_words(self.error_code.as_deref(), self.error_detail.as_deref())
    }

    /// The tool that the call goes to: for an action of a composite tool that tool, not the action.
    pub fn called_tool(&self) -> &ToolName {
        self.policy.via.as_ref().map_or(&self.name, |via| &via.tool)
    }
}

fn http_status(code: &str) -> Option<u16> {
    code.strip_prefix("http_")?.parse().ok()
}

/// [`CallRecord::error_in_words`] of what is shown of a call.
pub fn error_in_words(code: Option<&str>, detail: Option<&str>) -> Option<String> {
    match (code.and_then(http_status), detail) {
        (Some(status), Some(detail)) => Some(format!("HTTP {status}: {detail}")),
        (Some(status), None) => Some(format!("HTTP {status}")),
        (None, detail) => detail.map(str::to_owned),
    }
}

impl Correction {
    /// Whether the call counted as done before, for all that was known: the other side may know its key.
    pub fn was_done(&self) -> bool {
        self.was_answered || !matches!(self.was, CallStatus::Unknown | CallStatus::Running)
    }

    /// The correction in one sentence, for people and models. Between two corrections of a call its time tells them apart.
    pub fn sentence(&self) -> String {
        let what = match self.outcome {
            CorrectedTo::Happened => "it happened",
            CorrectedTo::NotHappened => "it did not happen",
            CorrectedTo::Skipped => "nobody knows whether it happened",
        };
        let proof = self.proof.as_ref().map_or_else(String::new, |proof| format!(" ({proof})"));
        let of = self
            .of
            .as_ref()
            .map_or_else(String::new, |of| format!(", with that of call {of}, whose answer this call has"));
        let (by, at, reason) = (&self.by, self.at, self.reason.trim().trim_end_matches('.'));
        format!("{by} corrected the record at {at}{of}: {what}{proof}. Reason: {reason}.")
    }
}

/// One dispatch of a call (`tool_attempts`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// Its call.
    pub call_id: CallId,
    /// Its number, from 1.
    pub attempt: u32,
    /// The epoch that sent it.
    pub epoch: u64,
    /// The process of the tool server it was sent to, for the fence.
    pub server_generation: Option<String>,
    /// Where it went to and as whom; `None` of a read, where nobody could say, and of attempts of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<Destination>,
    /// When RUNNING was committed.
    pub started_at: Timestamp,
    /// When it ended, as far as anyone knows.
    pub ended_at: Option<Timestamp>,
    /// `replied`, `not_sent` or `lost`.
    pub outcome: Option<String>,
    /// Why it was not sent or lost.
    pub detail: Option<String>,
    /// What it goes on with, when the tool answered before it was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<Handle>,
}

impl AttemptRecord {
    /// Whether it never left for its server.
    pub fn never_left(&self) -> bool {
        self.outcome.as_deref() == Some("not_sent")
    }

    /// Whether it left, or may have, and ended without an answer.
    pub fn was_lost(&self) -> bool {
        self.outcome.as_deref() == Some("lost")
    }

    /// Whether its answer is stored.
    pub fn was_answered(&self) -> bool {
        self.outcome.as_deref() == Some("replied")
    }

    /// The handle that a later process can go on with.
    pub fn live_handle(&self) -> Option<&Handle> {
        self.handle.as_ref().filter(|handle| self.ended_at.is_none() && handle.outlives_its_process())
    }
}

/// What an attempt brought back (`tool_receipts`). Immutable; only a missing settlement is filled in, once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReceiptRecord {
    /// Its call.
    pub call_id: CallId,
    /// Its attempt.
    pub attempt: u32,
    /// When the reply was stored.
    pub received_at: Timestamp,
    /// The reply as it came, with markers in the place of large parts; [`whole_reply`](crate::whole_reply) puts them back.
    pub raw: RawReply,
    /// Those parts, by JSON pointer into the result; the only pointer into an error or a body is the empty one.
    #[serde(default)]
    pub lifted: BTreeMap<String, Lifted>,
    /// What it means; `None` when the process died between storing and reading it.
    pub settlement: Option<Settlement>,
    /// How well it is vouched for.
    pub evidence: EvidenceLevel,
}

/// One change of a call's status (`tool_call_events`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventRecord {
    /// Its place in the database's history.
    pub seq: u64,
    /// Its call.
    pub call_id: CallId,
    /// The status before; `None` when the call was planned.
    pub from: Option<CallStatus>,
    /// The status after.
    pub to: CallStatus,
    /// The epoch that wrote it.
    pub epoch: u64,
    /// When.
    pub at: Timestamp,
    /// The person's word that made the change; a change without one was nobody's word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correction: Option<Correction>,
}

/// Why a checkpoint was made (`checkpoint_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointKind {
    /// A turn was committed or a step ended.
    StepBoundary,
    /// A phase ended.
    PhaseBoundary,
    /// Side-effecting calls are about to be dispatched.
    PreSideEffect,
    /// Only reads are about to be dispatched.
    PreReadOnly,
    /// A resume finished what was in flight.
    PostReplay,
    /// A signal stopped the run.
    Interrupt,
    /// The refined corpus was stored.
    CorpusCache,
}

/// A marker at which the run can be seen to stand (`checkpoints`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointRecord {
    /// Its id.
    pub checkpoint_id: CheckpointId,
    /// Its run.
    pub run_id: RunId,
    /// Its step.
    pub step_id: StepId,
    /// When it was made.
    pub created_at: Timestamp,
    /// Why.
    pub kind: CheckpointKind,
    /// A summary of the run's state (`state_snapshot_json`).
    pub snapshot: Shared<Value>,
    /// Where the run stands (`cursor_json`).
    pub cursor: Shared<Value>,
}

/// What a question is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionKind {
    /// A call was sent and its outcome is not known.
    UnknownOutcome,
    /// Another call may already have had this effect in other words.
    NearDuplicate,
    /// A policy wants a person's approval.
    Approval,
    /// The same failure again and again.
    RepeatedFailures,
    /// The model stopped although conditions are not met.
    MissingEvidence,
    /// A tool server of an earlier process is still alive.
    OrphanAlive,
    /// The process that drives the run died again and again.
    CrashLoop,
    /// The model asks.
    AskUser,
    /// The credentials were refused.
    AuthFailure,
    /// The recipient is not clear.
    AmbiguousRecipient,
    /// A tool server asks for something in the middle of a call.
    Elicitation,
}

impl QuestionKind {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::UnknownOutcome,
        Self::NearDuplicate,
        Self::Approval,
        Self::RepeatedFailures,
        Self::MissingEvidence,
        Self::OrphanAlive,
        Self::CrashLoop,
        Self::AskUser,
        Self::AuthFailure,
        Self::AmbiguousRecipient,
        Self::Elicitation,
    ];
}

/// Where a question stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionStatus {
    /// Nobody answered.
    Open,
    /// Answered; the run's owner has not acted on it.
    Answered,
    /// Acted on, or no longer needed.
    Closed,
}

/// What a person may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// It happened.
    Happened,
    /// Do it (again).
    Execute,
    /// Leave it; the model is told that the outcome is unknown, or that it was not done.
    Skip,
    /// End the run.
    Abort,
    /// Go on as before.
    Continue,
}

impl Choice {
    /// Its name, as it is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Happened => "happened",
            Self::Execute => "execute",
            Self::Skip => "skip",
            Self::Abort => "abort",
            Self::Continue => "continue",
        }
    }
}

/// Something only a person can decide (`questions`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QuestionRecord {
    /// Its id.
    pub question_id: QuestionId,
    /// Its run.
    pub run_id: RunId,
    /// The call it is about.
    pub call_id: Option<CallId>,
    /// What it is about.
    pub kind: QuestionKind,
    /// The question in words.
    pub text: String,
    /// What the answer is bound to: key, arguments hash, tool digest, evidence.
    pub detail: Value,
    /// What may be answered.
    pub choices: Vec<Choice>,
    /// When it was raised.
    pub created_at: Timestamp,
    /// Where it stands.
    pub status: QuestionStatus,
    /// The answer.
    pub answer: Option<AnswerRecord>,
    /// Why nobody has to answer it any more, when something else than its answer closed it and said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_because: Option<String>,
}

impl QuestionRecord {
    /// What the text of a `skip` is that tells a tool that asks neither yes nor no, and the word for it.
    pub const CANCEL: &str = "cancel";

    /// Whether a tool waits for the answer on the connection of the process that drives the run, and so can have it from no other.
    pub fn waits_on_its_connection(&self) -> bool {
        self.kind == QuestionKind::Elicitation && self.detail["is_live"] == true
    }
}

/// A person's answer (`answers`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AnswerRecord {
    /// What was chosen.
    pub choice: Choice,
    /// The other side's name for what happened, when the person gave one.
    pub proof: Option<String>,
    /// Free words.
    pub text: Option<String>,
    /// Who answered.
    pub by: String,
    /// When.
    pub answered_at: Timestamp,
    /// When the run's owner acted on it.
    pub applied_at: Option<Timestamp>,
}

/// The digest that an answer is stored with, over its columns as they are stored: what somebody writes into the table beside this program has
/// none, or another one. There is no key in it: it does not hold off who computes it.
pub fn answer_link(
    question: &str,
    choice: &str,
    proof: Option<&str>,
    note: Option<&str>,
    by: &str,
    answered_at: &str,
) -> String {
    let optional = |text: Option<&str>| text.map_or_else(String::new, |text| format!("={text}"));
    ua_core::KeyBuilder::new("ua.answer.v1")
        .field("question", question)
        .field("choice", choice)
        .field("proof", &optional(proof))
        .field("note", &optional(note))
        .field("by", by)
        .field("at", answered_at)
        .digest()
        .to_hex()
}

/// What is wrong with the link of a stored answer, as a sentence; `None` when it is as this program wrote it, or older than links.
pub fn answer_finding(
    columns: (&str, &str, Option<&str>, Option<&str>, &str, &str),
    run: &str,
    link: Option<&str>,
) -> Option<String> {
    let (question, choice, proof, note, by, at) = columns;
    match link {
        Some("") => None,
        Some(link) if link == answer_link(question, choice, proof, note, by, at) => None,
        Some(_) => Some(format!(
            "the answer {choice:?} to question {question}, run {run}, is not what was written: it was edited"
        )),
        None => Some(format!(
            "the answer {choice:?} to question {question}, run {run}, by {by:?}, was not written by this program"
        )),
    }
}

/// A stored answer as whoever acts on it reads it, with where its question stands then: what this program did not write as it stands there is no
/// answer, and a question that was not closed with it is open.
pub fn standing_answer(
    columns: (&str, &str, Option<&str>, Option<&str>, &str, &str),
    link: Option<&str>,
    answer: AnswerRecord,
    status: QuestionStatus,
) -> (Option<AnswerRecord>, QuestionStatus) {
    match (answer_finding(columns, "", link), status) {
        (None, _) => (Some(answer), status),
        (Some(_), QuestionStatus::Closed) => (None, QuestionStatus::Closed),
        (Some(_), QuestionStatus::Open | QuestionStatus::Answered) => (None, QuestionStatus::Open),
    }
}

/// The number of one request to a model within its run, from 1.
pub type RequestId = u64;

/// How a request to a model was charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestStatus {
    /// Reserved; the request may be under way.
    Reserved,
    /// The provider said what it cost.
    Actual,
    /// It left us and its reply broke off, or nobody counted it: what was heard of it is charged, and at least the estimate of its input.
    Partial,
    /// It left us and was not answered: the estimate of its input is charged.
    Baseline,
    /// Nothing: it never left us, or it was refused before a reply began ([`RequestRecord::network_attempted`] tells them apart).
    Zero,
}

impl RequestStatus {
    /// How requests are counted that were charged like this, for people and machines: `zero` is told apart into `refused`, of one that was
    /// sent, and `never_sent`.
    pub const fn charge_name(self, was_sent: bool) -> &'static str {
        match (self, was_sent) {
            (Self::Reserved, _) => "reserved",
            (Self::Actual, _) => "actual",
            (Self::Partial, _) => "partial",
            (Self::Baseline, _) => "baseline",
            (Self::Zero, true) => "refused",
            (Self::Zero, false) => "never_sent",
        }
    }
}

/// One request to a model (`usage`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Its number.
    pub request_id: RequestId,
    /// The turn it asks for.
    pub turn: u32,
    /// Digest of the request.
    pub request_sha256: Sha256,
    /// The provider asked.
    pub provider: String,
    /// The model asked.
    pub model: String,
    /// What its tokens cost when it was asked; `None` when nobody knew.
    pub price: Option<TokenPrice>,
    /// Name and version of what made the estimate, with the scale if it was scaled by what the provider had counted before.
    pub estimator: String,
    /// Estimated input tokens, scaled.
    pub estimated_tokens: u64,
    /// The most output tokens that were allowed.
    pub reserved_output_tokens: u64,
    /// Whether it may have left us.
    pub network_attempted: bool,
    /// How it was charged.
    pub status: RequestStatus,
    /// What was charged; zero while reserved.
    pub usage: Usage,
    /// What that cost at `price`; `None` while reserved, and without a price.
    pub cost: Option<Money>,
    /// What its provider had counted and what had arrived of its reply when that was last noted; `None` when nothing was noted. It is
    /// what a request is charged whose process was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard: Option<Usage>,
    /// When it was reserved.
    pub reserved_at: Timestamp,
    /// When it was settled.
    pub closed_at: Option<Timestamp>,
    /// The provider's name of the reply, as the first event of its stream said. Tentative until a turn is recorded with it; `None`
    /// when the reply never began, or the provider keeps none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    /// The reply that it continued from; `None` when it carried the whole history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continued_from: Option<String>,
}

impl RequestRecord {
    /// How it is counted among the others: [`RequestStatus::charge_name`].
    pub const fn charge_name(&self) -> &'static str {
        self.status.charge_name(self.network_attempted)
    }

    /// By how many tokens the provider's count of the input differs from the estimate; `None` unless the provider counted.
    pub fn estimate_error(&self) -> Option<i64> {
        let input = self.usage.input_tokens + self.usage.cache_read_tokens + self.usage.cache_write_tokens;
        let signed = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
        (self.status == RequestStatus::Actual).then(|| signed(input) - signed(self.estimated_tokens))
    }

    /// Whether it used more tokens than were reserved for it.
    pub fn is_overrun(&self) -> bool {
        self.usage.total() > self.estimated_tokens.saturating_add(self.reserved_output_tokens)
    }
}

/// Everything stored about a run, in order; what resume packet and completion summary are made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecords {
    /// The run.
    pub run: RunRecord,
    /// Its steps.
    pub steps: Vec<StepRecord>,
    /// Its own turns.
    pub turns: Vec<TurnRecord>,
    /// Its whole history, shared turns and the open turn's reply included.
    pub messages: Vec<MessageRecord>,
    /// Its own calls, by position.
    pub calls: Vec<CallRecord>,
    /// Their attempts.
    pub attempts: Vec<AttemptRecord>,
    /// Their receipts.
    pub receipts: Vec<ReceiptRecord>,
    /// Its questions, oldest first.
    pub questions: Vec<QuestionRecord>,
    /// What a person changed about it, oldest first.
    #[serde(default)]
    pub overrides: Vec<OverrideRecord>,
    /// Its checkpoints, oldest first.
    pub checkpoints: Vec<CheckpointRecord>,
    /// Its requests to models.
    pub requests: Vec<RequestRecord>,
    /// What it has from others of its lineage.
    #[serde(default, skip_serializing_if = "LineageRecords::is_empty")]
    pub lineage: LineageRecords,
    /// What is not here although it belongs to the run: only its owner reads a run so, and never shows it.
    #[serde(skip)]
    pub left_out: LeftOut,
}

impl RunRecords {
    /// The run's own calls of a turn, by position.
    pub fn calls_of_turn(&self, turn: u32) -> &[CallRecord] {
        let from = self.calls.partition_point(|call| call.position.turn < turn);
        let count = self.calls[from..].partition_point(|call| call.position.turn == turn);
        &self.calls[from..from + count]
    }

    /// How its tools are called in short, by what its steps were offered and what was called.
    pub fn short_names(&self) -> ShortNames {
        let offered = self.steps.iter().filter_map(|step| step.fingerprint.as_deref()?["tools"].as_object());
        let called = self.calls.iter().map(|call| call.name.raw.as_str());
        ShortNames::among(offered.flat_map(|tools| tools.keys().map(String::as_str)).chain(called))
    }

    /// Whether a whole reply came of a request: its end and the turn are one write.
    pub fn brought_a_reply(&self, request: &RequestRecord) -> bool {
        let is_it = |turn: &TurnRecord| turn.turn == request.turn && Some(turn.recorded_at) == request.closed_at;
        self.turns.iter().any(is_it)
    }

    /// The newest receipt of `call`.
    pub fn receipt(&self, call: &CallId) -> Option<&ReceiptRecord> {
        self.receipts.iter().filter(|receipt| receipt.call_id == *call).max_by_key(|receipt| receipt.attempt)
    }

    /// The budgets that count: the contract's, with what a person changed since.
    pub fn budgets(&self) -> Budgets {
        budgets_with(&self.run.spec.budgets, &self.overrides)
    }

    /// What a phase may use, as the contract has it, with what a person changed since; without limits when the job has no phase of
    /// that name.
    pub fn phase_budgets(&self, phase: &str) -> PhaseBudgets {
        let mut budgets = self.run.spec.phase(phase).map(|(_, phase)| phase.budgets.clone()).unwrap_or_default();
        for change in self.overrides.iter().filter(|change| change.kind == OverrideKind::Budget) {
            let Some((of, budget)) = change.component.split_once('.') else { continue };
            let Ok(mut fields) = serde_json::to_value(&budgets) else { continue };
            fields[budget] = change.value.clone();
            if of == phase
                && let Ok(changed) = serde_json::from_value(fields)
            {
                budgets = changed;
            }
        }
        budgets
    }

    /// The requests to models of the run's sub-agents; they count for the run.
    pub fn requests_below(&self) -> impl Iterator<Item = &RequestRecord> {
        self.lineage.sub_agents.iter().flat_map(|child| &child.requests)
    }

    /// What the run's own tools paid to models in turns from `first` on.
    pub fn tool_charges(&self, first: u32) -> impl Iterator<Item = &ToolCharge> {
        // Few tools pay, and a long run is not looked through for each call of the others.
        let may_have_paid =
            move |call: &&CallRecord| call.position.turn >= first && ToolCharge::may_come_from(&call.name);
        let calls = self.calls.iter().filter(may_have_paid);
        let receipts = calls.flat_map(|call| self.receipts.iter().filter(|receipt| receipt.call_id == call.call_id));
        receipts.filter_map(|receipt| receipt.settlement.as_ref()?.charge.as_deref())
    }

    /// What the tools of its sub-agents paid; it counts for the run.
    pub fn tool_charges_below(&self) -> impl Iterator<Item = &ToolCharge> {
        self.lineage.sub_agents.iter().flat_map(|child| &child.charges)
    }

    /// How many tool calls the run's sub-agents asked for.
    pub fn tool_calls_below(&self) -> u64 {
        self.lineage.sub_agents.iter().map(|child| u64::from(child.tool_calls)).sum()
    }

    /// How many turns the run's sub-agents committed.
    pub fn turns_below(&self) -> u64 {
        self.lineage.sub_agents.iter().map(|child| u64::from(child.turns)).sum()
    }

    /// The step that is being executed.
    pub fn current_step(&self) -> Option<&StepRecord> {
        self.steps.iter().find(|step| Some(&step.step_id) == self.run.current_step_id.as_ref())
    }

    /// The call with this id.
    pub fn call(&self, call: &CallId) -> Option<&CallRecord> {
        self.calls.iter().find(|record| record.call_id == *call)
    }

    /// The turn that was recorded and not committed, if there is one.
    pub fn open_turn(&self) -> Option<&TurnRecord> {
        self.turns.iter().find(|turn| turn.committed_at.is_none())
    }
}
