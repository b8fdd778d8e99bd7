//! What commands write for machines. These types are the promise: `docs/guide/json.md` and `ua schema` are made from them.
//!
//! Fields are added, never renamed or removed. Where a row of the runtime database is shown as it is stored, its type here is
//! [`Row`]: its fields are those of the tables of Durable Jobs v1 spec §5.

mod before;
mod fleet;
mod gateway;
mod installation;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use ua_core::{Costs, RunStatus, RunStop, Timestamp};
use ua_host::Database;
use ua_host::gateway::Asked;
use ua_host::home::Home;
use ua_resume::answers::{KnownFact, Reach, WayToAnswer};
use ua_resume::{Commands, JobChange, Standing};
use ua_runner::{ForkFile, UsageSummary};
use ua_store::{
    AttemptRecord, CallRecord, CheckpointRecord, Correction, EventRecord, LineageRecords, MessageRecord,
    OverrideRecord, QuestionRecord, ReceiptRecord, RequestRecord, RunHead, RunRecord, RunRecords, StepRecord,
    TurnRecord,
};

use crate::error::HostError;

pub(crate) use before::{
    CheckedEffect, CheckedRule, CheckedWord, GatewayLately, JobChecked, ProjectMade, StatusRun, StatusShown,
};
pub(crate) use fleet::{
    MachineForgotten, QueueDepthRow, QueueRow, QueueStanding, RunSubmitted, ScheduleRemoved, ScheduleRow, ScheduledRun,
    WorkerDrained, WorkerRow,
};
pub(crate) use gateway::{
    GatewayBridge, GatewayBroker, GatewayCall, GatewayChanged, GatewayEntry, GatewayFault, GatewayStarted,
    GatewayStatus, GatewayStopped, GatewayToken,
};
pub(crate) use installation::{
    AuditRow, ConfigShown, DbAccepted, DbChecked, DbCopied, DbMigrated, DbMoved, DbPruned, DbRestored, DbTakenBack,
    DoctorFinding, DoctorReport, Level, LoggedOut, LoginRow, ModelPriceShown, ModelRow, ModelShown, PackRow,
    SettingRow, ToolRow, ToolsLocked, TrustRow,
};

/// A stored row, as it is.
pub(crate) type Row = Map<String, Value>;

/// A run in a list.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunRow {
    /// Its id.
    #[schemars(with = "String")]
    pub(crate) run_id: ua_core::RunId,
    /// queued, running, waiting_for_human, stopped, succeeded, failed or cancelled.
    #[schemars(with = "String")]
    pub(crate) status: RunStatus,
    /// The same as shown to a person: `crashed` for a running run without a process, `interrupted` for one whose process a person
    /// ended at once, `not begun` for a queued one that is in no queue, `outdated` for one that did more than the database, an older copy, knows of,
    /// `stopped` with its reason.
    pub(crate) shown_status: String,
    /// The same as a table has room for it.
    #[serde(skip)]
    pub(crate) status_cell: String,
    /// Why it is stopped: budget, interrupt, provider, provider_refused, unknown_model, fingerprint, tool_server or idle.
    #[schemars(with = "Option<String>")]
    pub(crate) stop_reason: Option<RunStop>,
    /// A sentence about the status.
    pub(crate) status_detail: Option<String>,
    /// When it was submitted, RFC 3339.
    #[schemars(with = "String")]
    pub(crate) created_at: Timestamp,
    /// When its row last changed.
    #[schemars(with = "String")]
    pub(crate) updated_at: Timestamp,
    /// Committed turns.
    pub(crate) turn_index: u32,
    /// Iterations that began; 0 for a job without a harness.
    pub(crate) iteration_count: u32,
    /// Iterations that may begin.
    pub(crate) max_iterations: Option<u32>,
    /// What it is for.
    pub(crate) objective: String,
    /// Its folder.
    pub(crate) workspace_dir: String,
    /// Its job file.
    pub(crate) job_path: Option<String>,
    /// The name of the intended execution.
    pub(crate) job_key: Option<String>,
    /// The run it was forked from or started by.
    #[schemars(with = "Option<String>")]
    pub(crate) parent_run_id: Option<ua_core::RunId>,
    /// The tokens that it was charged.
    pub(crate) total_tokens: u64,
    /// What those with a known price cost.
    #[schemars(with = "serde_json::Value")]
    pub(crate) cost: Costs,
    /// Requests whose price nobody knew.
    pub(crate) unpriced_requests: u32,
}

impl RunRow {
    pub(crate) fn of(run: RunHead, standing: &Standing, usage: UsageSummary) -> Self {
        Self {
            total_tokens: usage.total_tokens,
            cost: usage.cost,
            unpriced_requests: usage.unpriced_requests,
            run_id: run.run_id,
            status: run.status,
            shown_status: standing.to_string(),
            status_cell: standing.in_a_table(),
            stop_reason: run.stop_reason,
            status_detail: run.status_detail,
            created_at: run.created_at,
            updated_at: run.updated_at,
            turn_index: run.turn_index,
            iteration_count: run.iteration_count,
            max_iterations: run.max_iterations,
            objective: run.objective,
            workspace_dir: run.workspace_dir,
            job_path: run.job_path,
            job_key: run.job_key,
            parent_run_id: run.parent_run_id,
        }
    }

    /// Where it is driven, whole, if a table has no room for that; a line below it.
    pub(crate) fn where_it_is(&self) -> Option<String> {
        let (id, shown) = (crate::ids::short(self.run_id.as_str()), &self.shown_status);
        (self.status_cell != *shown).then(|| format!("\nrun {id} is {}\n", crate::output::place(shown)))
    }
}

/// What requests to models took.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "it describes what `UsageSummary` writes")]
pub(crate) struct UsageShown {
    /// How many requests were charged in which way: actual, partial, baseline, refused (nothing charged), never_sent,
    /// reserved; by_tool, those that tools made.
    requests: Map<String, Value>,
    /// The tokens charged: input_tokens, output_tokens, cache_read_tokens, cache_write_tokens.
    tokens: Map<String, Value>,
    /// Their sum.
    total_tokens: u64,
    /// What those with a known price cost, one amount per currency.
    cost: Value,
    /// Requests whose price nobody knew.
    unpriced_requests: u32,
    /// Requests that used more than was reserved.
    overruns: u32,
    /// Estimated input tokens of the requests that the provider counted.
    estimated_input_tokens: u64,
    /// The same as counted.
    counted_input_tokens: u64,
    /// The same by provider and model.
    models: Vec<Row>,
}

/// A run with everything that is stored about it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunShown<'a> {
    /// Its state as shown to a person: `crashed` for a running run without a process, `outdated` for one that did more than the database,
    /// an older copy, knows of, `stopped` with its reason.
    pub(crate) shown_status: String,
    /// The run.
    #[schemars(with = "Row")]
    pub(crate) run: &'a RunRecord,
    /// Its steps.
    #[schemars(with = "Vec<Row>")]
    pub(crate) steps: &'a [StepRecord],
    /// Its turns.
    #[schemars(with = "Vec<Row>")]
    pub(crate) turns: &'a [TurnRecord],
    /// Its history.
    #[schemars(with = "Vec<Row>")]
    pub(crate) messages: &'a [MessageRecord],
    /// Its calls, by position.
    #[schemars(with = "Vec<Row>")]
    pub(crate) calls: &'a [CallRecord],
    /// Their attempts.
    #[schemars(with = "Vec<Row>")]
    pub(crate) attempts: &'a [AttemptRecord],
    /// Their receipts.
    #[schemars(with = "Vec<Row>")]
    pub(crate) receipts: &'a [ReceiptRecord],
    /// Its questions, oldest first.
    #[schemars(with = "Vec<Row>")]
    pub(crate) questions: &'a [QuestionRecord],
    /// What a person changed about it, oldest first.
    #[schemars(with = "Vec<Row>")]
    pub(crate) overrides: &'a [OverrideRecord],
    /// Its checkpoints, oldest first.
    #[schemars(with = "Vec<Row>")]
    pub(crate) checkpoints: &'a [CheckpointRecord],
    /// Its requests to models.
    #[schemars(with = "Vec<Row>")]
    pub(crate) requests: &'a [RequestRecord],
    /// What these took.
    #[schemars(with = "UsageShown")]
    pub(crate) usage: UsageSummary,
    /// What it has from others of its lineage: shared turns, and effects that happened elsewhere.
    #[schemars(with = "Row")]
    pub(crate) lineage: &'a LineageRecords,
    /// Its forks and sub-agents.
    #[schemars(with = "Vec<String>")]
    pub(crate) children: Vec<ua_core::RunId>,
    /// Where it is in the queue: `queue`, `state`, `place`, `of`, `waits_for`; null of one that is in none.
    #[schemars(with = "Option<Row>")]
    pub(crate) queue: Option<QueueStanding>,
}

impl<'a> RunShown<'a> {
    pub(crate) fn of(
        records: &'a RunRecords,
        standing: &Standing,
        children: Vec<ua_core::RunId>,
        queue: Option<QueueStanding>,
    ) -> Self {
        Self {
            shown_status: standing.to_string(),
            lineage: &records.lineage,
            children,
            queue,
            run: &records.run,
            steps: &records.steps,
            turns: &records.turns,
            messages: &records.messages,
            calls: &records.calls,
            attempts: &records.attempts,
            receipts: &records.receipts,
            questions: &records.questions,
            overrides: &records.overrides,
            checkpoints: &records.checkpoints,
            requests: &records.requests,
            usage: UsageSummary::of(records),
        }
    }
}

/// A question that waits for an answer.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct OpenQuestion {
    /// The question as it is stored, but for `choices`.
    #[serde(flatten)]
    row: QuestionRow,
    /// The commands that answer it, one for each of its choices, in their order.
    pub(crate) answer_with: Vec<String>,
    /// The question.
    #[serde(skip)]
    pub(crate) question: QuestionRecord,
    /// The words for these answers, as they are typed behind the question.
    #[serde(skip)]
    pub(crate) words: Vec<&'static str>,
    /// What is known beside its text, as a person is shown it: `name` and `text` of each fact. A text may have words of a model or a tool in it.
    #[schemars(with = "Vec<Row>")]
    pub(crate) known: Vec<KnownFact>,
    /// What has to be said beside it about the answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remark: Option<&'static str>,
    /// Of a sub-agent's: the run at the top, which an abort of the sub-agent does not end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sub_agent_of: Option<String>,
}

/// A question as it is stored, with the words that `ua answer` takes.
#[derive(Debug, Clone, Serialize, JsonSchema)]
struct QuestionRow {
    /// Its id.
    #[schemars(with = "String")]
    question_id: ua_core::QuestionId,
    /// Its run.
    #[schemars(with = "String")]
    run_id: ua_core::RunId,
    /// The call that it is about.
    #[schemars(with = "Option<String>")]
    call_id: Option<ua_core::CallId>,
    /// What it is about.
    #[schemars(with = "String")]
    kind: ua_store::QuestionKind,
    /// The question in words.
    text: String,
    /// What the answer is bound to, and what is known: the key, digests, the call's other sends.
    detail: Value,
    /// The words that `ua answer` takes.
    choices: Vec<&'static str>,
    /// open, answered or closed.
    #[schemars(with = "String")]
    status: ua_store::QuestionStatus,
    /// The answer, once there is one.
    #[schemars(with = "Option<Row>")]
    answer: Option<ua_store::AnswerRecord>,
    /// When it was asked.
    #[schemars(with = "String")]
    created_at: Timestamp,
}

impl OpenQuestion {
    pub(crate) fn of(question: &QuestionRecord, reach: Reach) -> Self {
        Self::naming(question, reach, crate::output::command)
    }

    /// Those of this database.
    pub(crate) async fn all(
        home: &Home,
        store: &Database,
        questions: &[QuestionRecord],
    ) -> Result<Vec<Self>, HostError> {
        let mut all = Vec::with_capacity(questions.len());
        for question in questions {
            all.push(Self::with_what_is_known(home, store, question).await?);
        }
        Ok(all)
    }

    /// One of this database.
    pub(crate) async fn with_what_is_known(
        home: &Home,
        store: &Database,
        question: &QuestionRecord,
    ) -> Result<Self, HostError> {
        let top = ua_host::tree::top(store, &question.run_id).await?;
        let beside = ua_host::questions::beside(home, store, question).await?;
        Ok(Self::of(question, beside.reach).below(&top).knowing(beside.known))
    }

    /// The same with what is known about it.
    pub(crate) fn knowing(self, known: Vec<KnownFact>) -> Self {
        Self { known, ..self }
    }

    /// The same below the run at the top of its tree.
    pub(crate) fn below(self, top: &ua_core::RunId) -> Self {
        let sub_agent_of = (*top != self.question.run_id).then(|| top.to_string());
        Self { sub_agent_of, ..self }
    }

    /// One of the gateway, whose folder its commands name.
    pub(crate) fn of_gateway(asked: &Asked, commands: &Commands) -> Self {
        Self::naming(&asked.question, asked.reach, |command| commands.complete(&command).into_owned())
            .knowing(asked.known.clone())
    }

    fn naming(question: &QuestionRecord, reach: Reach, complete: impl Fn(String) -> String) -> Self {
        let ways = ua_resume::answers::ways(question, reach);
        let words = ways.iter().map(WayToAnswer::shown_word).collect();
        let of = question.clone();
        let row = QuestionRow {
            question_id: of.question_id,
            run_id: of.run_id,
            call_id: of.call_id,
            kind: of.kind,
            text: of.text,
            detail: of.detail,
            choices: ways.iter().map(|way| way.word).collect(),
            status: of.status,
            answer: of.answer,
            created_at: of.created_at,
        };
        Self {
            row,
            question: question.clone(),
            answer_with: ways.into_iter().map(|way| complete(way.command)).collect(),
            words,
            known: Vec::new(),
            remark: reach.remark(),
            sub_agent_of: None,
        }
    }
}

/// A question that was answered.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AnsweredQuestion {
    /// Its id.
    pub(crate) question_id: String,
    /// Its run.
    pub(crate) run_id: String,
    /// The call that it is about.
    pub(crate) call_id: Option<String>,
    /// What it is about.
    #[schemars(with = "String")]
    pub(crate) kind: ua_store::QuestionKind,
    /// The question in words.
    pub(crate) text: String,
    /// The arguments of the call that it is about by which the effect is known, or its first ones, in a line.
    pub(crate) in_short: Option<String>,
    /// The answer, as `ua answer` takes it.
    pub(crate) choice: &'static str,
    /// What was said beside it.
    pub(crate) said: Option<String>,
    /// The provider's id of what happened, when one was given.
    pub(crate) proof: Option<String>,
    /// Who answered.
    pub(crate) by: String,
    /// When.
    #[schemars(with = "String")]
    pub(crate) answered_at: Timestamp,
    /// When it was acted on; null if it was not yet.
    #[schemars(with = "Option<String>")]
    pub(crate) applied_at: Option<Timestamp>,
}

/// How a process's work on a run ended.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunEnded {
    /// The run.
    #[schemars(with = "String")]
    pub(crate) run_id: ua_core::RunId,
    /// Its state now.
    #[schemars(with = "String")]
    pub(crate) status: RunStatus,
    /// Why it is stopped.
    #[schemars(with = "Option<String>")]
    pub(crate) stop_reason: Option<RunStop>,
    /// A sentence about the status.
    pub(crate) status_detail: Option<String>,
    /// The result: the JSON value of a job with an `output_schema`, else the model's last words.
    pub(crate) final_output: Option<serde_json::Value>,
    /// The main artifact.
    pub(crate) final_artifact: Option<PathBuf>,
    /// Its folder.
    pub(crate) workspace_dir: String,
    /// The completion report as JSON, in that folder.
    pub(crate) completion_file: PathBuf,
    /// Questions that wait for an answer.
    pub(crate) questions: Vec<OpenQuestion>,
    /// What its requests took, over all processes.
    #[schemars(with = "UsageShown")]
    pub(crate) usage: UsageSummary,
    /// Committed turns, those shared with a parent included.
    pub(crate) turn_index: u32,
    /// The first run of its lineage.
    #[schemars(with = "String")]
    pub(crate) root_run_id: ua_core::RunId,
    /// The run it was forked from or started by.
    #[schemars(with = "Option<String>")]
    pub(crate) parent_run_id: Option<ua_core::RunId>,
    /// Of `ua fork`: the last shared turn, the changes to the job, and what became of the parent's files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fork: Option<ForkShown>,
}

/// A fork: what it shares with its parent, and what is different in it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ForkShown {
    /// The fork; null of one that was not made.
    #[schemars(with = "Option<String>")]
    pub(crate) run_id: Option<ua_core::RunId>,
    /// The run that is forked.
    #[schemars(with = "String")]
    pub(crate) parent_run_id: ua_core::RunId,
    /// The first run of their lineage.
    #[schemars(with = "String")]
    pub(crate) root_run_id: ua_core::RunId,
    /// The last turn that is shared.
    pub(crate) forked_at_turn: u32,
    /// The folder of the fork; null of one that was not made.
    pub(crate) workspace_dir: Option<PathBuf>,
    /// What is different in its job.
    #[schemars(with = "Vec<FieldChanged>")]
    pub(crate) job_changes: Vec<JobChange>,
    /// What becomes of each file of the parent's workspace.
    #[schemars(with = "Vec<FileForked>")]
    pub(crate) files: Vec<ForkFile>,
}

/// A field of a job that is another one.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "it describes what `JobChange` writes")]
pub(crate) struct FieldChanged {
    /// The field, with dots.
    field: String,
    /// What it was; null when it was not there.
    before: Option<Value>,
    /// What it is; null when it is not there.
    after: Option<Value>,
}

/// A file of the workspace of a run that is forked.
#[derive(Debug, JsonSchema)]
#[expect(dead_code, reason = "it describes what `ForkFile` writes")]
pub(crate) struct FileForked {
    /// Its path in the workspace.
    path: String,
    /// The digest that was recorded.
    sha256: Option<String>,
    /// copied, or why it is not: changed, gone, unread or unrecorded.
    fate: String,
}

/// One thing that happened in a run; one line each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct TailEvent {
    /// When, RFC 3339; of a process that was killed or interrupted its last sign of life.
    #[schemars(with = "String")]
    pub(crate) at: Timestamp,
    /// thinking, request_charged, turn_recorded, call_sending, attempt_ended (another one follows), attempt_learnt (what effects.log knows of one),
    /// call_settled, turn_committed, question, answered, process (one took the run, left it, was killed or was interrupted), sub_agent (one began,
    /// ended or waits), or run (the last line).
    pub(crate) event: &'static str,
    /// The run: the one that was asked for, or that of a sub-agent.
    #[schemars(with = "String")]
    pub(crate) run_id: ua_core::RunId,
    /// The turn it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) turn: Option<u32>,
    /// The call it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool_call_id: Option<String>,
    /// Its tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<String>,
    /// Of a call its status, of an attempt its outcome, of a request how it was charged, of a process `took`, `left`, `killed` or `interrupted`, of the
    /// run its state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<String>,
    /// Which attempt of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempt: Option<u32>,
    /// The question that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) question_id: Option<String>,
    /// Tokens that were charged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tokens: Option<u64>,
    /// What a person reads.
    pub(crate) text: String,
}

/// One thing that a worker did; one line each.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WorkerDid {
    /// When, RFC 3339.
    #[schemars(with = "String")]
    pub(crate) at: Timestamp,
    /// started, claimed (it drives a run from here on), ended (a run has), parked (a run waits for somebody to do something), released (a run is in the
    /// queue again), submitted (a schedule is due), listening, stopping (it takes no more runs) or noted (anything else). What comes again for the same
    /// reason is told once.
    pub(crate) event: &'static str,
    /// The run that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub(crate) run_id: Option<ua_core::RunId>,
    /// The state of that run now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<String>,
    /// What a person reads.
    pub(crate) text: String,
}

/// Runs that were deleted, or would be.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunsDeleted {
    /// Whether nothing was done.
    pub(crate) dry_run: bool,
    /// The runs.
    pub(crate) deleted: Vec<RunDeleted>,
}

/// A run that was deleted, or would be.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunDeleted {
    /// The run.
    #[schemars(with = "String")]
    pub(crate) run_id: ua_core::RunId,
    /// Its state at that time.
    #[schemars(with = "String")]
    pub(crate) status: RunStatus,
    /// Its job key, if it has one: it is free once the run is deleted, and the same job under it is done again.
    pub(crate) job_key: Option<String>,
    /// Its folder.
    pub(crate) workspace_dir: String,
    /// Whether the folder is gone.
    pub(crate) workspace_removed: bool,
    /// Runs of its lineage for which the database keeps what it did.
    #[schemars(with = "Vec<String>")]
    pub(crate) kept_for: Vec<ua_core::RunId>,
    /// What it sent and may have happened, in sentences: calls that nobody knows the end of, calls that only their tools say failed, and what
    /// `effects.log` knows more; the same job would do it again.
    pub(crate) may_have_happened: Vec<String>,
    /// The same as a person reads it: of one that nobody drives it is not `running`.
    #[serde(skip)]
    pub(crate) stands: String,
    /// Whether it sent anything that has an effect outside.
    #[serde(skip)]
    pub(crate) had_effects: bool,
    /// Whether it is a session of the gateway.
    #[serde(skip)]
    pub(crate) is_of_gateway: bool,
}

/// A run that was asked to end.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunCancelled {
    /// The run.
    #[schemars(with = "String")]
    pub(crate) run_id: ua_core::RunId,
    /// Whether a process drives it, which then ends it by itself. Where none does, it has ended, unless it belongs to another machine.
    pub(crate) is_driven: bool,
    /// Its status now: `cancelled` once it has ended.
    pub(crate) status: String,
}

/// A tool call.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CallRow {
    /// Its id.
    pub(crate) tool_call_id: String,
    /// Its run.
    pub(crate) run_id: String,
    /// Its step.
    pub(crate) step_id: String,
    /// Its turn.
    pub(crate) turn: u32,
    /// Its place in the turn, from 1.
    pub(crate) ordinal: u32,
    /// The tool's name, bare.
    pub(crate) tool_name: String,
    /// As the model sent it.
    pub(crate) raw_tool_name: String,
    /// Its server.
    pub(crate) tool_server: String,
    /// local, mcp, composio or claude_code.
    pub(crate) tool_namespace: Value,
    /// external, memory, local or read_only.
    pub(crate) side_effect_class: Value,
    /// prepared, running, succeeded, failed, unknown or cancelled.
    pub(crate) status: String,
    /// The same as a person is told it: `not sent yet` for prepared, `never sent` for cancelled, `not repeated` for one that the receipt of
    /// another call answers, `failed, may have happened` for one with an effect that only its tool says failed, `unanswered` for a read that was
    /// dropped or lost and is simply made again.
    pub(crate) shown_status: &'static str,
    /// Of a failed one: definite (it did not happen) or reported.
    pub(crate) failure_kind: Value,
    /// How it was settled, if not by its own receipt.
    pub(crate) resolution: Value,
    /// Its last attempt; 0 when it was never sent.
    pub(crate) attempt: u32,
    /// As the model gave them.
    pub(crate) arguments: Value,
    /// Their digest.
    pub(crate) normalized_args_hash: Value,
    /// Its key; empty until it is sent.
    pub(crate) idempotency_key: Value,
    /// What its effect is, whatever the wording.
    pub(crate) side_effect_scope: Value,
    /// What is done when its outcome is unknown, `on_unknown` of its policy: redo, redo_keyed, probe, hold or continue.
    pub(crate) replay_policy: Value,
    /// What a resume did with it.
    pub(crate) replay_status: Value,
    /// The rule that decided about it.
    pub(crate) policy_rule_id: String,
    /// Where that rule comes from.
    pub(crate) class_source: Value,
    /// The call whose receipt answers it.
    pub(crate) deduplicated_from: Value,
    /// The other side's name for what happened.
    pub(crate) external_correlation_id: Option<String>,
    /// A short code of its failure.
    pub(crate) error_code: Option<String>,
    /// Its failure in words.
    pub(crate) error_detail: Option<String>,
    /// The last correction of its record by a person: outcome, was, reason, proof, by, at.
    #[schemars(with = "Option<Row>")]
    pub(crate) correction: Option<Correction>,
    /// When it was planned.
    #[schemars(with = "String")]
    pub(crate) created_at: Timestamp,
    /// When it last changed.
    #[schemars(with = "String")]
    pub(crate) updated_at: Timestamp,
}

impl CallRow {
    pub(crate) fn of(call: &CallRecord) -> Self {
        let json = serde_json::to_value::<Value>;
        let json = |value: Result<Value, serde_json::Error>| value.and_then(json).unwrap_or_default();
        Self {
            tool_call_id: call.call_id.to_string(),
            run_id: call.run_id.to_string(),
            step_id: call.step_id.to_string(),
            turn: call.position.turn,
            ordinal: call.position.ordinal,
            tool_name: call.name.tool.clone(),
            raw_tool_name: call.name.raw.clone(),
            tool_server: call.name.server.clone(),
            tool_namespace: json(serde_json::to_value(call.name.namespace)),
            side_effect_class: json(serde_json::to_value(call.policy.class)),
            status: call.status.column().to_owned(),
            shown_status: ua_resume::call_standing(call),
            failure_kind: json(serde_json::to_value(call.status.failure_kind())),
            resolution: json(serde_json::to_value(call.resolution)),
            attempt: call.attempt,
            arguments: call.arguments.clone().unshared(),
            normalized_args_hash: json(serde_json::to_value(call.args_hash)),
            idempotency_key: json(serde_json::to_value(&call.idempotency_key)),
            side_effect_scope: json(serde_json::to_value(&call.scope)),
            replay_policy: json(serde_json::to_value(call.policy.on_unknown)),
            replay_status: json(serde_json::to_value(call.replay_status)),
            policy_rule_id: call.policy.rule_id.clone(),
            class_source: json(serde_json::to_value(call.policy.class_source)),
            deduplicated_from: json(serde_json::to_value(&call.deduplicated_from)),
            external_correlation_id: call.external_correlation_id.clone(),
            error_code: call.error_code.clone(),
            error_detail: call.error_detail.clone(),
            correction: call.correction.clone(),
            created_at: call.created_at,
            updated_at: call.updated_at,
        }
    }
}

/// A tool call of a list.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CallListed {
    /// The call.
    #[serde(flatten)]
    pub(crate) call: CallRow,
    /// When it was sent last; null if it never was.
    #[schemars(with = "Option<String>")]
    pub(crate) sent_at: Option<Timestamp>,
    /// The folder of the project whose client asked for it, if it is a client's at the gateway.
    pub(crate) project: Option<String>,
    /// The arguments by which its effect is known, such as recipient and subject, or its first ones, in a line.
    pub(crate) in_short: String,
}

/// A tool call with everything about it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CallShown {
    /// The call.
    #[serde(flatten)]
    pub(crate) call: CallRow,
    /// What was decided about it.
    pub(crate) policy: Value,
    /// By what is found on the other side what was sent for it, in words: a Message-ID, a header, a mark.
    pub(crate) found_by: Vec<String>,
    /// Its attempts, oldest first. One with `learnt_of` is no send: it is what became known of the attempt of that number.
    #[schemars(with = "Vec<Row>")]
    pub(crate) attempts: Vec<AttemptShown>,
    /// Its newest receipt.
    #[schemars(with = "Option<Row>")]
    pub(crate) receipt: Option<ReceiptRecord>,
    /// Answers that the database did not take when they came, and that are kept beside it, oldest first.
    #[schemars(with = "Vec<Row>")]
    pub(crate) late_replies: Vec<ua_store::LateReply>,
    /// Its changes, oldest first.
    #[schemars(with = "Vec<Row>")]
    pub(crate) events: Vec<EventRecord>,
    /// What persons were asked about it, with their answers, oldest first.
    #[schemars(with = "Vec<Row>")]
    pub(crate) questions: Vec<QuestionRecord>,
}

/// An attempt, or what became known of one.
#[derive(Debug, Serialize)]
pub(crate) struct AttemptShown {
    /// Its row.
    #[serde(flatten)]
    pub(crate) attempt: AttemptRecord,
    /// The attempt of which this is what became known, where nothing was sent for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) learnt_of: Option<u32>,
}

impl From<AttemptRecord> for AttemptShown {
    fn from(attempt: AttemptRecord) -> Self {
        let learnt_of = ua_store::rules::learnt_of_another(&attempt);
        Self { attempt, learnt_of }
    }
}

/// What a probe said about a call.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CallProbed {
    /// The call.
    pub(crate) tool_call_id: String,
    /// The tool that was asked.
    pub(crate) probe: Value,
    /// found, absent or unclear.
    pub(crate) finding: &'static str,
    /// The same as a clause.
    pub(crate) why: String,
    /// When it was asked.
    #[schemars(with = "String")]
    pub(crate) asked_at: Timestamp,
    /// From when on absence counts.
    #[schemars(with = "Option<String>")]
    pub(crate) absent_counts_from: Option<Timestamp>,
    /// Whether it amounts to an answer.
    pub(crate) counts: bool,
    /// What was found.
    pub(crate) item: Value,
    /// The answer it was made, by the word for it, if --apply was given.
    pub(crate) applied: Option<&'static str>,
}

/// An answer that was stored.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Answered {
    /// The question; null where none was named, and nothing waits for an answer or none was chosen.
    pub(crate) question_id: Option<String>,
    /// Its run.
    pub(crate) run_id: Option<String>,
    /// The answer, by the word for it; null where none was given.
    pub(crate) choice: Option<&'static str>,
}

/// What `ua calls resolve` stored: an answer, or a correction.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Resolved {
    /// The run.
    pub(crate) run_id: String,
    /// The question that was answered.
    pub(crate) question_id: Option<String>,
    /// The answer, by the word for it.
    pub(crate) choice: Option<&'static str>,
    /// With --as: the call as it is recorded now; null where that was given as the answer to its question (a gateway whose client is connected).
    pub(crate) call: Option<CallRow>,
}

/// A call of a turn, with what it brought back.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TurnCall {
    /// The call.
    #[serde(flatten)]
    pub(crate) call: CallRow,
    /// What the model reads of its answer; a large one is a reference, which `ua calls show CALL --full` fills in.
    pub(crate) result: Option<String>,
}

/// A turn.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TurnShown {
    /// Its run.
    pub(crate) run_id: String,
    /// Its number.
    pub(crate) turn: u32,
    /// Its step.
    pub(crate) step_id: String,
    /// The step's phase.
    pub(crate) phase: Option<String>,
    /// Digest of the request it answers.
    pub(crate) request_sha256: String,
    /// The model that answered.
    pub(crate) model: String,
    /// Why the reply ended.
    pub(crate) stop_reason: String,
    /// The provider's name of the reply.
    pub(crate) response_id: Option<String>,
    /// What the model said.
    pub(crate) reply: String,
    /// What it asked for, and what came of it.
    pub(crate) calls: Vec<TurnCall>,
    /// What each request for this turn was charged, in words.
    #[serde(skip)]
    pub(crate) charged: Vec<String>,
    /// The requests for this turn, with their charges.
    #[schemars(with = "Vec<Row>")]
    pub(crate) requests: Vec<RequestRecord>,
    /// When the reply had come. It is recorded then, or later where the database was busy or full.
    #[schemars(with = "String")]
    pub(crate) recorded_at: Timestamp,
    /// When the last result had come. The turn is committed then, or later where the database was busy or full.
    #[schemars(with = "Option<String>")]
    pub(crate) committed_at: Option<Timestamp>,
}

/// An error, on standard error.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ErrorShown {
    /// What went wrong.
    pub(crate) error: ErrorBody,
}

/// Something else that is in the way.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OtherError {
    /// What happened.
    pub(crate) message: String,
    /// What to do.
    pub(crate) hint: Option<String>,
}

/// What went wrong.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ErrorBody {
    /// The exit code.
    pub(crate) code: u8,
    /// What happened.
    pub(crate) message: String,
    /// What to do.
    pub(crate) hint: Option<String>,
    /// What else is in the way, each with `message` and `hint`, as far as it was known at the same time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) others: Vec<OtherError>,
    /// More about some failures: `kind`, and what it is about, such as `run_id`.
    #[serde(flatten)]
    pub(crate) detail: Row,
}
