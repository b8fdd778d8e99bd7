//! The trace of a run as JSON (`trace.json`): what happened when, without arguments or results.
//!
//! Spec: Durable Jobs v1 spec §10: run, step and tool call ids on everything, so that other telemetry can be joined to it.

use std::collections::HashMap;
use std::io;

use serde_json::{Value, json};
use ua_core::CallId;
use ua_store::{
    AttemptRecord, CallRecord, CheckpointRecord, QuestionRecord, ReceiptRecord, RequestRecord, RunRecord, RunRecords,
    StepRecord, TurnRecord,
};

/// The version of the form.
const VERSION: &str = "1";

/// Writes a run's whole trace: run, steps, turns with their calls, attempts and receipts, requests to models, checkpoints
/// and questions. Instants are RFC 3339 text, spans are milliseconds. The form has a `version`, now `1`.
pub fn trace_json(records: &RunRecords) -> Value {
    json!({
        "version": VERSION,
        "run": run_json(&records.run),
        "steps": records.steps.iter().map(step_json).collect::<Vec<_>>(),
        "turns": turns_json(records).collect::<Vec<_>>(),
        "requests": records.requests.iter().map(request_json).collect::<Vec<_>>(),
        "checkpoints": records.checkpoints.iter().map(checkpoint_json).collect::<Vec<_>>(),
        "questions": records.questions.iter().map(question_json).collect::<Vec<_>>(),
    })
}

fn run_json(run: &RunRecord) -> Value {
    json!({
        "run_id": run.run_id,
        "root_run_id": run.root_run_id,
        "parent_run_id": run.parent_run_id,
        "entrypoint": run.entrypoint,
        "run_mode": run.run_mode,
        "status": run.status,
        "stop_reason": run.stop_reason,
        "status_detail": run.status_detail,
        "created_at": run.created_at,
        "updated_at": run.updated_at,
        "turn_index": run.turn_index,
        "lease_epoch": run.lease_epoch,
        "held_millis": run.held_millis,
        "trace_ids": run.traces,
    })
}

fn step_json(step: &StepRecord) -> Value {
    json!({
        "step_id": step.step_id,
        "step_index": step.step_index,
        "phase": step.phase,
        "status": step.status,
        "created_at": step.created_at,
        "updated_at": step.updated_at,
        "first_turn": step.first_turn,
        "last_turn": step.last_turn,
        "error_code": step.error_code,
    })
}

fn request_json(request: &RequestRecord) -> Value {
    json!({
        "request_id": request.request_id,
        "turn": request.turn,
        "model": request.model,
        "request_sha256": request.request_sha256,
        "provider": request.provider,
        "status": request.status,
        "estimator": request.estimator,
        "estimated_tokens": request.estimated_tokens,
        "estimate_error": request.estimate_error(),
        "reserved_output_tokens": request.reserved_output_tokens,
        "usage": request.usage,
        "price": request.price,
        "cost": request.cost,
        "reserved_at": request.reserved_at,
        "closed_at": request.closed_at,
    })
}

fn checkpoint_json(checkpoint: &CheckpointRecord) -> Value {
    json!({
        "checkpoint_id": checkpoint.checkpoint_id,
        "step_id": checkpoint.step_id,
        "kind": checkpoint.kind,
        "created_at": checkpoint.created_at,
    })
}

fn question_json(question: &QuestionRecord) -> Value {
    json!({
        "question_id": question.question_id,
        "call_id": question.call_id,
        "kind": question.kind,
        "status": question.status,
        "created_at": question.created_at,
        "choice": question.answer.as_ref().map(|answer| answer.choice),
        "answered_at": question.answer.as_ref().map(|answer| answer.answered_at),
        "applied_at": question.answer.as_ref().and_then(|answer| answer.applied_at),
    })
}

fn turns_json(records: &RunRecords) -> impl Iterator<Item = Value> {
    let rows = ByCall::of(records);
    records.turns.iter().map(move |turn| turn_json(records, &rows, turn))
}

/// A list of a trace that is written piece by piece, as [`trace_json`] would stand in a file: no more of a long run is in memory than one
/// piece. What a piece has is taken out of records that may have a part of the run only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceList {
    /// Its markers.
    Checkpoints,
    /// Its requests to models.
    Requests,
    /// Its turns.
    Turns,
}

impl TraceList {
    /// The next piece of the list.
    pub fn write(self, records: &RunRecords, out: &mut impl io::Write, is_first: &mut bool) -> io::Result<()> {
        match self {
            Self::Checkpoints => write_items(records.checkpoints.iter().map(checkpoint_json), out, is_first),
            Self::Requests => write_items(records.requests.iter().map(request_json), out, is_first),
            Self::Turns => write_items(turns_json(records), out, is_first),
        }
    }

    /// The end of the list.
    pub fn end(self, out: &mut impl io::Write, is_empty: bool) -> io::Result<()> {
        out.write_all(if is_empty { b"]" } else { b"\n  ]" })
    }
}

/// What stands in front of the lists and between them, in the order in which a file has them: up to the checkpoints, from there to the
/// requests, from there to the turns, and the end. Of the records nothing but run, steps and questions is looked at.
pub fn trace_frame(records: &RunRecords) -> [String; 4] {
    let list = |name: &str, items: Vec<Value>| format!("\"{name}\": {}", indented(&Value::Array(items)));
    [
        "{\n  \"checkpoints\": [".to_owned(),
        format!(
            ",\n  {},\n  \"requests\": [",
            list("questions", records.questions.iter().map(question_json).collect())
        ),
        format!(
            ",\n  \"run\": {},\n  {},\n  \"turns\": [",
            indented(&run_json(&records.run)),
            list("steps", records.steps.iter().map(step_json).collect())
        ),
        format!(",\n  \"version\": \"{VERSION}\"\n}}"),
    ]
}

fn write_items(items: impl Iterator<Item = Value>, out: &mut impl io::Write, is_first: &mut bool) -> io::Result<()> {
    for item in items {
        let comma = if std::mem::take(is_first) { "" } else { "," };
        let text = serde_json::to_string_pretty(&item)?;
        write!(out, "{comma}\n    {}", text.replace('\n', "\n    "))?;
    }
    Ok(())
}

/// A value as it stands one level down.
fn indented(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default().replace('\n', "\n  ")
}

/// The rows of each call, so that a long run is not looked through for each.
#[derive(Default)]
struct ByCall<'r> {
    attempts: HashMap<&'r CallId, Vec<&'r AttemptRecord>>,
    receipts: HashMap<&'r CallId, Vec<&'r ReceiptRecord>>,
}

impl<'r> ByCall<'r> {
    fn of(records: &'r RunRecords) -> Self {
        let mut rows = Self::default();
        for attempt in &records.attempts {
            rows.attempts.entry(&attempt.call_id).or_default().push(attempt);
        }
        for receipt in &records.receipts {
            rows.receipts.entry(&receipt.call_id).or_default().push(receipt);
        }
        rows
    }
}

fn turn_json(records: &RunRecords, rows: &ByCall<'_>, turn: &TurnRecord) -> Value {
    let calls = records.calls_of_turn(turn.turn).iter();
    json!({
        "turn": turn.turn,
        "step_id": turn.step_id,
        "epoch": turn.epoch,
        "model": turn.reply.model,
        "response_id": turn.reply.response_id,
        "stop_reason": turn.reply.stop_reason,
        "request_sha256": turn.request_sha256,
        "usage": turn.reply.usage,
        "recorded_at": turn.recorded_at,
        "committed_at": turn.committed_at,
        "calls": calls.map(|call| call_json(rows, call)).collect::<Vec<_>>(),
    })
}

fn call_json(rows: &ByCall<'_>, call: &CallRecord) -> Value {
    let attempts = rows.attempts.get(&call.call_id).into_iter().flatten().copied();
    let receipts = rows.receipts.get(&call.call_id).into_iter().flatten();
    json!({
        "call_id": call.call_id,
        "ordinal": call.position.ordinal,
        "tool": call.name.raw,
        "side_effect_class": call.policy.class,
        "effect_kind": call.policy.effect_kind,
        "policy_rule_id": call.policy.rule_id,
        "args_hash": call.args_hash,
        "idempotency_key": call.idempotency_key,
        "status": call.status,
        "resolution": call.resolution,
        "replay_status": call.replay_status,
        "deduplicated_from": call.deduplicated_from,
        "external_correlation_id": call.external_correlation_id,
        "error_code": call.error_code,
        "created_at": call.created_at,
        "updated_at": call.updated_at,
        "attempts": attempts.map(attempt_json).collect::<Vec<_>>(),
        "receipts": receipts.map(|receipt| json!({
            "attempt": receipt.attempt,
            "received_at": receipt.received_at,
            "status": receipt.settlement.as_ref().map(|settlement| settlement.status),
            "evidence": receipt.evidence,
        })).collect::<Vec<_>>(),
    })
}

fn attempt_json(attempt: &AttemptRecord) -> Value {
    let took = attempt.ended_at.map(|ended_at| ended_at.since(attempt.started_at).as_millis());
    json!({
        "attempt": attempt.attempt,
        "epoch": attempt.epoch,
        "server_generation": attempt.server_generation,
        "started_at": attempt.started_at,
        "ended_at": attempt.ended_at,
        "took_millis": took.and_then(|millis| u64::try_from(millis).ok()),
        "outcome": attempt.outcome,
        "detail": attempt.detail,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ua_evidence::testing::{Story, mail_policy};

    #[test]
    fn a_trace_says_what_happened_when_and_not_what_was_said() {
        let mut story = Story::new(r#"{"objective": "Mail Ana."}"#);
        let mail = json!({"to": "ana@example.test", "body": "SECRET BODY"});
        let id = story.asks("", &[("send_email", mail, mail_policy())])[0].clone();
        story.starts(&id);
        story.not_sent(&id, "connection refused");
        story.starts(&id);
        story.succeeds(&id, "SECRET ANSWER", Some("m-1"));
        story.commits();
        let trace = trace_json(&story.records);
        let call = &trace["turns"][0]["calls"][0];
        assert_eq!(call["attempts"].as_array().map(Vec::len), Some(2));
        assert_eq!(call["attempts"][0]["outcome"], "not_sent");
        assert_eq!(call["receipts"][0]["status"], "succeeded");
        assert_eq!(call["receipts"][0]["attempt"], 2);
        assert!(!trace.to_string().contains("SECRET"), "{trace}");
        insta::assert_json_snapshot!("trace", trace);
    }

    /// The file of `records`, of which each list is written in pieces of so many.
    fn in_pieces(records: &RunRecords, size: usize) -> String {
        fn piece<T: Clone>(rows: &[T], number: usize, size: usize) -> Vec<T> {
            rows.iter().skip(number * size).take(size).cloned().collect()
        }
        let mut out = Vec::new();
        let frame = trace_frame(records);
        for (list, before) in [TraceList::Checkpoints, TraceList::Requests, TraceList::Turns].into_iter().zip(&frame) {
            out.extend(before.bytes());
            let mut is_first = true;
            for number in 0..10 {
                let mut part = records.clone();
                part.checkpoints = piece(&records.checkpoints, number, size);
                part.requests = piece(&records.requests, number, size);
                part.turns = piece(&records.turns, number, size);
                list.write(&part, &mut out, &mut is_first).unwrap();
            }
            list.end(&mut out, is_first).unwrap();
        }
        out.extend(frame[3].bytes());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_trace_in_pieces_is_the_trace() {
        let mut story = Story::new(r#"{"objective": "Mail\nAna."}"#);
        let whole = |records: &RunRecords| serde_json::to_string_pretty(&trace_json(records)).unwrap();
        assert_eq!(in_pieces(&story.records, 3), whole(&story.records));
        for turn in 0..7 {
            let id =
                story.asks("a\nb", &[("send_email", json!({"turn": turn, "body": "x\ny"}), mail_policy())])[0].clone();
            story.starts(&id);
            story.succeeds(&id, "sent", Some("m"));
            story.questions(&id);
            story.commits();
        }
        for size in [1, 3, 7, 10] {
            assert_eq!(in_pieces(&story.records, size), whole(&story.records));
        }
    }
}
