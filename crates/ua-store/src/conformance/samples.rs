//! Records for tests, of this suite and of other crates: complete, plausible, and easy to recognise in a failure.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde_json::json;
use ua_core::{
    Block, CallId, CallPolicy, CallStatus, CheckpointId, CorrectedTo, Currency, Destination, DestinationKey,
    EffectKind, IdempotencyKey, Message, ModelTurn, OnUnknown, Origin, PlannedCall, Position, QuestionId, QuestionText,
    RawReply, RunId, RunSpec, RunStatus, RunStop, Settlement, Sha256, SideEffectClass, StepId, StepStatus, StopReason,
    Timestamp, TokenPrice, ToolContent, ToolName, ToolNamespace, ToolUse, Trace, Usage, sha256,
};

use crate::Durability;
use crate::commit::{
    Answer, AttemptEnd, CorrectCall, NewAnswer, NewCheckpoint, NewFork, NewQuestion, NewRun, NewStep,
    RequestReservation, RunEnd, SettleAttempt, StartAttempt, StepEnd, TurnCommit, TurnDraft,
};
use crate::overrides::{NewOverride, OverrideKind};
use crate::record::{CallRecord, CheckpointKind, Choice, Correction, OwnerStamp, QuestionKind, RequestId};

/// An instant, `seconds` after a fixed one.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_767_323_045_000 + seconds * 1_000)
}

/// A run's id.
pub fn run_id(text: &str) -> RunId {
    RunId::parse(text).unwrap()
}

/// A step's id.
pub fn step_id(text: &str) -> StepId {
    StepId::parse(text).unwrap()
}

/// A call's id.
pub fn call_id(text: &str) -> CallId {
    CallId::parse(text).unwrap()
}

/// A question's id.
pub fn question_id(text: &str) -> QuestionId {
    QuestionId::parse(text).unwrap()
}

/// A checkpoint's id.
pub fn checkpoint_id(text: &str) -> CheckpointId {
    CheckpointId::parse(text).unwrap()
}

/// A key, made of any text.
pub fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::from_stored(sha256(text).to_hex())
}

/// A small contract.
pub fn spec() -> RunSpec {
    RunSpec::parse(
        r#"{"objective": "write the report and send it once", "inputs": {"to": "boss@example.com", "ratio": 0.1}}"#,
    )
    .unwrap()
}

/// A run to be submitted.
pub fn new_run(id: &str) -> NewRun {
    NewRun {
        run_id: run_id(id),
        created_at: at(0),
        entrypoint: "cli".to_owned(),
        run_mode: "job".to_owned(),
        spec: spec(),
        files: Vec::new(),
        job_path: Some("jobs/report.json".to_owned()),
        opening: Message::user(Origin::Prompt, "Write the report and send it once."),
        workspace_dir: format!("/workspaces/{id}"),
        launch: json!({"provider": "scripted"}),
        parent_run_id: None,
    }
}

/// A fork or a sub-agent of `parent`.
pub fn child_run(id: &str, parent: &str) -> NewRun {
    NewRun { parent_run_id: Some(run_id(parent)), ..new_run(id) }
}

/// A fork of `parent` behind its turn `at_turn`.
pub fn new_fork(id: &str, parent: &str, at_turn: u32) -> NewFork {
    let note = Message::user(Origin::Resume, format!("A fork of {parent}, behind turn {at_turn}."));
    NewFork { run: child_run(id, parent), at_turn, note }
}

/// A change to the run `run`.
pub fn new_override(run: &str, kind: OverrideKind, component: &str, value: serde_json::Value) -> NewOverride {
    NewOverride {
        run_id: run_id(run),
        kind,
        component: component.to_owned(),
        value,
        made_by: "a person".to_owned(),
        at: at(80),
    }
}

/// A process that takes a run.
pub fn owner(pid: u32) -> OwnerStamp {
    OwnerStamp {
        pid,
        start_ticks: 4_711,
        boot_id: "0a1b2c3d".to_owned(),
        host: "workstation".to_owned(),
        trace: Trace::from_stored(format!("{pid:032x}")),
        ended_before: Vec::new(),
    }
}

/// A step to be opened.
pub fn new_step(id: &str) -> NewStep {
    NewStep {
        step_id: step_id(id),
        phase: "main".to_owned(),
        created_at: at(2),
        fingerprint: Some(json!({"model": sha256("model").to_hex()})),
    }
}

/// The end of a step.
pub fn step_end(id: &str, status: StepStatus) -> StepEnd {
    StepEnd { step_id: step_id(id), status, error_code: None, error_detail: None, at: at(90) }
}

/// The digest of the request for a turn.
pub fn request_digest(turn: u32) -> Sha256 {
    sha256(format!("request {turn}"))
}

/// A reservation for a turn's request.
pub fn reservation(turn: u32) -> RequestReservation {
    RequestReservation {
        turn,
        request_sha256: request_digest(turn),
        provider: "provider-x".to_owned(),
        model: "model-x".to_owned(),
        price: Some(price()),
        estimator: "four-bytes".to_owned(),
        estimated_tokens: 1_200,
        reserved_output_tokens: 500,
        continued_from: None,
        at: at(3),
    }
}

/// A price: 2, 10, 0.20 and 2.50 dollars per million tokens.
pub fn price() -> TokenPrice {
    TokenPrice {
        currency: Currency::USD,
        input_nanos_per_million: 2_000_000_000,
        output_nanos_per_million: 10_000_000_000,
        cache_read_nanos_per_million: 200_000_000,
        cache_write_nanos_per_million: 2_500_000_000,
    }
}

/// What a request cost.
pub fn usage() -> Usage {
    Usage { input_tokens: 1_000, output_tokens: 80, cache_read_tokens: 150, cache_write_tokens: 0 }
}

/// A planned read.
pub fn planned_call(id: &str, turn: u32, ordinal: u32) -> PlannedCall {
    let arguments = json!({"path": "notes.md", "limit": 20, "ratio": 0.1});
    PlannedCall {
        call_id: call_id(id),
        tool_use_id: format!("toolu_{id}"),
        position: Position { turn, ordinal },
        name: ToolName::qualified(ToolNamespace::Local, "ua", "read_file"),
        args_hash: sha256(arguments.to_string()),
        arguments: arguments.into(),
        tool_digest: Some(sha256("read_file")),
        policy: CallPolicy {
            class: SideEffectClass::ReadOnly,
            on_unknown: OnUnknown::Redo,
            ..CallPolicy::unclassified()
        }
        .into(),
        refusal: None,
    }
}

/// A planned e-mail.
pub fn planned_email(id: &str, turn: u32, ordinal: u32) -> PlannedCall {
    PlannedCall {
        name: ToolName::qualified(ToolNamespace::Composio, "composio", "GMAIL_SEND_EMAIL"),
        policy: CallPolicy { effect_kind: EffectKind::parse("email.send"), ..CallPolicy::unclassified() }.into(),
        ..planned_call(id, turn, ordinal)
    }
}

/// A reply that asks for `calls`.
pub fn reply(turn: u32, calls: &[PlannedCall]) -> ModelTurn {
    let mut blocks = vec![Block::text(format!("Turn {turn}."))];
    blocks.extend(calls.iter().map(|call| {
        Block::ToolUse(ToolUse {
            id: call.tool_use_id.clone(),
            name: call.name.raw.clone(),
            input: call.arguments.clone().unshared(),
        })
    }));
    ModelTurn {
        blocks,
        stop_reason: if calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse },
        usage: Some(usage()),
        model: "model-x-2026".to_owned(),
        response_id: Some(format!("resp_{turn}")),
    }
}

/// A turn to be recorded.
pub fn draft(step: &str, turn: u32, request_id: RequestId, calls: Vec<PlannedCall>) -> TurnDraft {
    TurnDraft {
        turn,
        step_id: step_id(step),
        request_id,
        request_sha256: request_digest(turn),
        reply: reply(turn, &calls),
        calls,
        at: at(4),
    }
}

/// A checkpoint marker.
pub fn checkpoint(id: &str, step: &str) -> NewCheckpoint {
    NewCheckpoint {
        checkpoint_id: checkpoint_id(id),
        step_id: step_id(step),
        kind: CheckpointKind::StepBoundary,
        snapshot: json!({"turns": 1}).into(),
        cursor: json!({"turn": 1}).into(),
        at: at(8),
    }
}

/// A turn's commit, with one result message.
pub fn commit(step: &str, turn: u32, checkpoint_name: &str) -> TurnCommit {
    let result = Block::ToolResult { tool_use_id: format!("toolu_{turn}"), content: "ok".into(), is_error: false };
    TurnCommit {
        turn,
        messages: vec![Message { role: ua_core::Role::User, origin: Origin::Tools, blocks: vec![result].into() }],
        checkpoint: checkpoint(checkpoint_name, step),
        held_millis: 1_500,
        at: at(8),
    }
}

/// The end of a process's work; a stop is an interrupt.
pub fn run_end(status: RunStatus) -> RunEnd {
    RunEnd {
        status,
        stop_reason: (status == RunStatus::Stopped).then_some(RunStop::Interrupt),
        detail: Some("the test is over".to_owned()),
        final_output: (status == RunStatus::Succeeded).then(|| "Done.".to_owned()),
        final_artifact_ref: None,
        step_end: None,
        cancels: Vec::new(),
        closes: Vec::new(),
        held_millis: 700,
        at: at(95),
    }
}

/// A destination of which one part holds `account`.
pub fn destination(account: &str) -> Destination {
    // Tables of thousands of cases ask for the same few, and their digests took longer than what the cases test.
    static MADE: Mutex<BTreeMap<String, Destination>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let make = || {
        let parts = [("program".to_owned(), json!(["mail"])), ("variable ACCOUNT".to_owned(), json!(account))];
        DestinationKey::new("a secret").destination(&BTreeMap::from(parts))
    };
    made.entry(account.to_owned()).or_insert_with(make).clone()
}

/// RUNNING for an attempt, under the key that `key_text` makes.
pub fn start(call: &str, attempt: u32, key_text: &str) -> StartAttempt {
    StartAttempt {
        call_id: call_id(call),
        attempt,
        key: key(key_text),
        scope: None,
        seen: None,
        corrected_at: None,
        ends_doubt: false,
        file_digests: BTreeMap::from([("attachment".to_owned(), sha256("report"))]),
        server_generation: Some("composio-1".to_owned()),
        destination: Some(destination("its account")),
        max_effects: None,
        approved_by: None,
        replay_status: None,
        child: None,
        durability: Durability::Synced,
        at: at(5),
    }
}

/// What a tool answered.
pub fn raw() -> RawReply {
    RawReply::ToolResult { result: json!({"content": [{"type": "text", "text": "sent"}], "ratio": 0.1}) }
}

/// What a reply means.
pub fn settlement(status: CallStatus) -> Settlement {
    let failed = status != CallStatus::Succeeded;
    Settlement {
        status,
        content: Some(ToolContent { text: "sent".into(), is_error: failed }),
        external_correlation_id: (!failed).then(|| "msg_1".to_owned()),
        possible_effect: None,
        error_code: failed.then(|| "tool_error".to_owned()),
        error_detail: failed.then(|| "it said no".to_owned()),
        charge: None,
    }
}

/// The end of an attempt that was answered and understood.
pub fn settle(call: &str, attempt: u32, status: CallStatus) -> SettleAttempt {
    ended(call, attempt, AttemptEnd::Replied { raw: raw(), settlement: Some(settlement(status)) })
}

/// Any end of an attempt.
pub fn ended(call: &str, attempt: u32, end: AttemptEnd) -> SettleAttempt {
    SettleAttempt { call_id: call_id(call), attempt, end, durability: Durability::Synced, at: at(6) }
}

/// The end of an attempt that was never answered.
pub fn lost(call: &str, attempt: u32) -> SettleAttempt {
    ended(call, attempt, AttemptEnd::Lost { why: "the connection was cut".to_owned() })
}

/// The end of an attempt that never left.
pub fn not_sent(call: &str, attempt: u32) -> SettleAttempt {
    ended(call, attempt, AttemptEnd::NotSent { why: "connection refused".to_owned() })
}

/// A person's word about a call as it is, once its turn is over.
pub fn correct(call: &CallRecord, outcome: CorrectedTo, seconds: i64) -> CorrectCall {
    let proof = (outcome == CorrectedTo::Happened).then(|| "msg_7".to_owned());
    let raw = RawReply::Statement { by: "ada".to_owned(), proof: proof.clone() };
    CorrectCall {
        call_id: call.call_id.clone(),
        seen: (call.status, call.attempt),
        receipt: (outcome == CorrectedTo::Happened).then(|| (raw, settlement(CallStatus::Succeeded))),
        correction: Correction {
            outcome,
            was: call.status,
            reason: "I asked them".to_owned(),
            proof,
            by: "ada".to_owned(),
            at: at(seconds),
            of: None,
            was_answered: false,
        },
        is_idle: false,
    }
}

/// A question about a call, or about the run.
pub fn question(id: &str, call: Option<&str>) -> NewQuestion {
    NewQuestion {
        question_id: question_id(id),
        call_id: call.map(call_id),
        kind: if call.is_some() { QuestionKind::UnknownOutcome } else { QuestionKind::AskUser },
        // Of a run, one that asks the same is the same question.
        text: QuestionText::new(&if call.is_some() {
            "Did the e-mail arrive?".to_owned()
        } else {
            format!("Did the e-mail of {id} arrive?")
        }),
        detail: json!({"to": "boss@example.com"}),
        choices: vec![Choice::Happened, Choice::Execute, Choice::Skip, Choice::Abort],
        at: at(7),
    }
}

/// A person's answer.
pub fn answer(id: &str, choice: Choice) -> NewAnswer {
    NewAnswer {
        question_id: question_id(id),
        answer: Answer::new(choice).proof("msg_1").text("I looked"),
        by: "ada".to_owned(),
        at: at(60),
    }
}
