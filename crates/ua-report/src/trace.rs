//! The trace of a run as JSON (`trace.json`): what happened when, without arguments or results.
//!
//! Spec: Durable Jobs v1 spec §10: run, step and tool call ids on everything, so that other telemetry can be joined to it.

#![expect(non_camel_case_types, reason = "each type of an object has the name of its field")]

use std::io;

use serde::Serialize;
use serde_json::Value;
use ua_store::{
    AttemptRecord, CallRecord, CheckpointRecord, QuestionRecord, ReceiptRecord, RequestRecord, RunRecord, RunRecords,
    StepRecord, TurnRecord,
};

use crate::by_call::ByCall;

/// The version of the form.
const VERSION: &str = "1";

/// An object that borrows what it says: a run of thousands of turns is written without a copy of it. Fields stand in the order in which a
/// file has them, which is that of their names.
macro_rules! object {
    ($($field:ident: $value:expr,)+) => {{
        #[derive(Serialize)]
        struct Object<$($field),+> {
            $($field: $field,)+
        }
        Object { $($field: $value,)+ }
    }};
}

/// What has fields of its own, by their names.
fn sorted(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// Writes a run's whole trace: run, steps, turns with their calls, attempts and receipts, requests to models, checkpoints
/// and questions. Instants are RFC 3339 text, spans are milliseconds. The form has a `version`, now `1`.
pub fn trace_of(records: &RunRecords) -> impl Serialize {
    object! {
        checkpoints: records.checkpoints.iter().map(checkpoint_of).collect::<Vec<_>>(),
        questions: records.questions.iter().map(question_of).collect::<Vec<_>>(),
        requests: records.requests.iter().map(request_of).collect::<Vec<_>>(),
        run: run_of(&records.run),
        steps: records.steps.iter().map(step_of).collect::<Vec<_>>(),
        turns: turns_of(records).collect::<Vec<_>>(),
        version: VERSION,
    }
}

fn run_of(run: &RunRecord) -> impl Serialize {
    object! {
        created_at: &run.created_at,
        entrypoint: &run.entrypoint,
        held_millis: &run.held_millis,
        lease_epoch: &run.lease_epoch,
        parent_run_id: &run.parent_run_id,
        root_run_id: &run.root_run_id,
        run_id: &run.run_id,
        run_mode: &run.run_mode,
        status: &run.status,
        status_detail: &run.status_detail,
        stop_reason: &run.stop_reason,
        trace_ids: &run.traces,
        turn_index: &run.turn_index,
        updated_at: &run.updated_at,
    }
}

fn step_of(step: &StepRecord) -> impl Serialize {
    object! {
        created_at: &step.created_at,
        error_code: &step.error_code,
        first_turn: &step.first_turn,
        last_turn: &step.last_turn,
        phase: &step.phase,
        status: &step.status,
        step_id: &step.step_id,
        step_index: &step.step_index,
        updated_at: &step.updated_at,
    }
}

fn request_of(request: &RequestRecord) -> impl Serialize {
    object! {
        closed_at: &request.closed_at,
        cost: sorted(&request.cost),
        estimate_error: request.estimate_error(),
        estimated_tokens: &request.estimated_tokens,
        estimator: &request.estimator,
        model: &request.model,
        price: sorted(&request.price),
        provider: &request.provider,
        request_id: &request.request_id,
        request_sha256: &request.request_sha256,
        reserved_at: &request.reserved_at,
        reserved_output_tokens: &request.reserved_output_tokens,
        status: &request.status,
        turn: &request.turn,
        usage: sorted(&request.usage),
    }
}

fn checkpoint_of(checkpoint: &CheckpointRecord) -> impl Serialize {
    object! {
        checkpoint_id: &checkpoint.checkpoint_id,
        created_at: &checkpoint.created_at,
        kind: &checkpoint.kind,
        step_id: &checkpoint.step_id,
    }
}

fn question_of(question: &QuestionRecord) -> impl Serialize {
    object! {
        answered_at: question.answer.as_ref().map(|answer| answer.answered_at),
        applied_at: question.answer.as_ref().and_then(|answer| answer.applied_at),
        call_id: &question.call_id,
        choice: question.answer.as_ref().map(|answer| answer.choice),
        created_at: &question.created_at,
        kind: &question.kind,
        question_id: &question.question_id,
        status: &question.status,
    }
}

fn turns_of(records: &RunRecords) -> impl Iterator<Item = impl Serialize> {
    let rows = ByCall::of(records);
    records.turns.iter().map(move |turn| turn_of(records, &rows, turn))
}

/// A list of a trace that is written piece by piece, as [`trace_of`] would stand in a file: no more of a long run is in memory than one
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
            Self::Checkpoints => write_items(records.checkpoints.iter().map(checkpoint_of), out, is_first),
            Self::Requests => write_items(records.requests.iter().map(request_of), out, is_first),
            Self::Turns => write_items(turns_of(records), out, is_first),
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
    let questions: Vec<_> = records.questions.iter().map(question_of).collect();
    let steps: Vec<_> = records.steps.iter().map(step_of).collect();
    [
        "{\n  \"checkpoints\": [".to_owned(),
        format!(",\n  \"questions\": {},\n  \"requests\": [", indented(&questions)),
        format!(
            ",\n  \"run\": {},\n  \"steps\": {},\n  \"turns\": [",
            indented(&run_of(&records.run)),
            indented(&steps)
        ),
        format!(",\n  \"version\": \"{VERSION}\"\n}}"),
    ]
}

fn write_items(
    items: impl Iterator<Item = impl Serialize>,
    out: &mut impl io::Write,
    is_first: &mut bool,
) -> io::Result<()> {
    for item in items {
        let comma = if std::mem::take(is_first) { "" } else { "," };
        let text = serde_json::to_string_pretty(&item)?;
        write!(out, "{comma}\n    {}", text.replace('\n', "\n    "))?;
    }
    Ok(())
}

/// A value as it stands one level down.
fn indented(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default().replace('\n', "\n  ")
}

fn turn_of<'r>(records: &'r RunRecords, rows: &ByCall<'r>, turn: &'r TurnRecord) -> impl Serialize + use<'r> {
    let calls = records.calls_of_turn(turn.turn).iter();
    object! {
        calls: calls.map(|call| call_of(rows, call)).collect::<Vec<_>>(),
        committed_at: &turn.committed_at,
        epoch: &turn.epoch,
        model: &turn.reply.model,
        recorded_at: &turn.recorded_at,
        request_sha256: &turn.request_sha256,
        response_id: &turn.reply.response_id,
        step_id: &turn.step_id,
        stop_reason: &turn.reply.stop_reason,
        turn: &turn.turn,
        usage: sorted(&turn.reply.usage),
    }
}

fn call_of<'r>(rows: &ByCall<'r>, call: &'r CallRecord) -> impl Serialize + use<'r> {
    let (attempts, receipts) = (rows.attempts(call), rows.receipts(call));
    object! {
        args_hash: &call.args_hash,
        attempts: attempts.map(attempt_of).collect::<Vec<_>>(),
        call_id: &call.call_id,
        created_at: &call.created_at,
        deduplicated_from: &call.deduplicated_from,
        effect_kind: &call.policy.effect_kind,
        error_code: &call.error_code,
        external_correlation_id: &call.external_correlation_id,
        idempotency_key: &call.idempotency_key,
        ordinal: &call.position.ordinal,
        policy_rule_id: &call.policy.rule_id,
        receipts: receipts.map(receipt_of).collect::<Vec<_>>(),
        replay_status: &call.replay_status,
        resolution: &call.resolution,
        side_effect_class: &call.policy.class,
        status: &call.status,
        tool: &call.name.raw,
        updated_at: &call.updated_at,
    }
}

fn receipt_of(receipt: &ReceiptRecord) -> impl Serialize {
    object! {
        attempt: receipt.attempt,
        evidence: &receipt.evidence,
        received_at: receipt.received_at,
        status: receipt.settlement.as_ref().map(|settlement| settlement.status),
    }
}

fn attempt_of(attempt: &AttemptRecord) -> impl Serialize {
    let took = attempt.ended_at.map(|ended_at| ended_at.since(attempt.started_at).as_millis());
    object! {
        attempt: &attempt.attempt,
        detail: &attempt.detail,
        ended_at: &attempt.ended_at,
        epoch: &attempt.epoch,
        outcome: &attempt.outcome,
        server_generation: &attempt.server_generation,
        started_at: &attempt.started_at,
        took_millis: took.and_then(|millis| u64::try_from(millis).ok()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        let trace = sorted(&trace_of(&story.records));
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
        // By way of a value, whose fields stand in the order of their names.
        let whole = |records: &RunRecords| {
            let whole = serde_json::to_string_pretty(&trace_of(records)).unwrap();
            assert_eq!(whole, serde_json::to_string_pretty(&sorted(&trace_of(records))).unwrap());
            whole
        };
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
