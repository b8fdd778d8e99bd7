//! What the page is drawn from: the rows of a run as JSON, bounded in size. Instants are milliseconds since 1970.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};
use ua_core::{CallStatus, EffectKind, IdempotencyKey, Origin, RunStatus, Timestamp, sha256};
use ua_store::rules::{detail_in_words, is_learnt_of_another};
use ua_store::{
    AttemptRecord, CallRecord, EventRecord, QuestionRecord, QuestionStatus, ReceiptRecord, RequestRecord, RunRecords,
    TurnRecord, is_gateway, is_task,
};

use crate::export::{RunExport, lineage_line, rule_in_words};
use crate::sub_agents::SubAgentLine;
use ua_evidence::call_line::{external_id, own_success, reply_text};
use ua_evidence::quote::{clean, stored_name};
use ua_evidence::verdict::Verdict;
use ua_resume::answers::{self, KnownFact, Reach};
use ua_resume::question::QuestionLine;
use ua_resume::usage::UsageSummary;
use ua_resume::{budget, time_at_work};

/// The most calls that the page shows.
const CALLS: usize = 20_000;
/// How many of them are the first ones, when there are more; the others are the newest.
const FIRST_CALLS: usize = 2_000;
/// The most turns that the page shows, chosen in the same way.
const TURNS: usize = 20_000;
/// The most requests of clients that the page shows: the newest.
const ARRIVALS: usize = 500;
/// The most files that the page names.
const FILES: usize = 500;
/// The most characters of one text.
const LONGEST_TEXT: usize = 6_000;
/// The least that is left of a text, however many there are.
const SHORTEST_TEXT: usize = 200;
/// The characters of all texts of calls and turns together.
const ALL_TEXTS: usize = 12_000_000;

/// The data of the page.
pub(super) fn data(export: &RunExport<'_>) -> Value {
    let records = export.records;
    let shown = Shown::of(records);
    let texts = 2 * shown.calls.len() + shown.turns.len();
    let limit = (ALL_TEXTS / texts.max(1)).clamp(SHORTEST_TEXT, LONGEST_TEXT);
    let index = Index::of(export);
    let mut page = json!({
        "program": export.program,
        "written_at": export.written_at.as_millis(),
        "run": run(export),
        "arrivals": export.arrivals.iter().rev().take(ARRIVALS).rev().map(|arrival| json!({
            "at": arrival.arrived_at.as_millis(), "call": arrival.call_id, "tool": clean(&arrival.tool),
            "rule": clean(&arrival.rule), "words": rule_in_words(&arrival.rule),
            "answered": arrival.answered_at.map(Timestamp::as_millis),
            "heard": arrival.acknowledged_at.map(Timestamp::as_millis),
            "other": (arrival.run_id != records.run.run_id).then_some(&arrival.run_id),
        })).collect::<Vec<_>>(),
        "usage": usage(records),
        "budgets": budget::lines_after(records, time_at_work(records, &export.standing)).iter().map(|line| json!({
            "name": line.budget, "words": line.in_words(), "is_reached": line.is_reached(),
            "share": line.limit.filter(|limit| *limit > 0).map(|limit| thousandths(line.used, limit)),
        })).collect::<Vec<_>>(),
        "lives": export.lives().iter().map(|life| json!({
            "epoch": life.epoch, "process": life.process, "trace": life.trace, "start": life.started_at.as_millis(),
            "end": life.last_seen_at.as_millis(), "how": life.end, "broken": life.broken_off(),
        })).collect::<Vec<_>>(),
        "steps": records.steps.iter().map(|step| json!({
            "index": step.step_index, "phase": clean(&step.phase), "status": step.status, "first": step.first_turn,
            "last": step.last_turn, "start": step.created_at.as_millis(), "end": step.updated_at.as_millis(),
            "error": step.error_detail.as_deref().map(|text| excerpt(text, 400)),
        })).collect::<Vec<_>>(),
        "turns": if is_gateway(&records.run) {
            shown.calls.iter().map(|call| asked(call)).collect::<Vec<_>>()
        } else {
            shown.turns.iter().map(|turn| index.turn(turn, limit)).collect()
        },
        "open_requests": records.requests.iter()
            .filter(|request| !records.turns.iter().any(|turn| turn.turn == request.turn))
            .map(request).collect::<Vec<_>>(),
        "calls": shown.calls.iter().map(|call| index.call(export, call, limit)).collect::<Vec<_>>(),
        "questions": records.questions.iter().map(|record| {
            let mut question = json!(QuestionLine::of_run(record, &records.run).standing(&export.standing).naming(export.commands));
            if record.status == QuestionStatus::Open {
                question["ways"] = json!(ways(export, record));
                question["known"] = json!(known(export, record));
            }
            question["at"] = json!(record.created_at.as_millis());
            if let Some(answer) = &record.answer {
                question["answer"]["word"] = json!(ua_resume::answers::given_word(record.kind, answer.choice));
            }
            question["answered_at"] = json!(record.answer.as_ref().map(|answer| answer.answered_at.as_millis()));
            question
        }).collect::<Vec<_>>(),
        "overrides": records.overrides.iter().map(|change| json!({
            "at": change.created_at.as_millis(), "kind": stored_name(&change.kind), "component": clean(&change.component),
            "by": clean(&change.made_by),
        })).collect::<Vec<_>>(),
        "notes": records.messages.iter()
            .filter(|told| matches!(told.message.origin, Origin::Guidance | Origin::Resume | Origin::Iteration))
            .map(|told| json!({
                "turn": told.turn, "at": told.created_at.as_millis(), "origin": told.message.origin,
                "text": excerpt(&told.message.text(), limit),
            })).collect::<Vec<_>>(),
        "checkpoints": records.checkpoints.iter()
            .filter(|checkpoint| checkpoint.kind != ua_store::CheckpointKind::StepBoundary)
            .map(|checkpoint| json!({"at": checkpoint.created_at.as_millis(), "kind": stored_name(&checkpoint.kind)}))
            .collect::<Vec<_>>(),
        "conditions": export.evidence.map(|evidence| &evidence.conditions),
        "artifacts": export.artifacts.map(|files| files.iter().take(FILES).map(|file| json!({
            "path": clean(&file.path), "bytes": file.bytes, "sha256": file.sha256,
        })).collect::<Vec<_>>()),
        "lineage": export.lineage.iter().map(|other| lineage_line(&records.run.run_id, other)).collect::<Vec<_>>(),
        "totals": {
            "turns": records.turns.len(), "committed": records.turns.iter().filter(|turn| turn.committed_at.is_some()).count(),
            "calls": records.calls.len(), "attempts": records.attempts.iter().filter(|attempt| !is_learnt_of_another(attempt)).count(),
            "receipts": records.receipts.len(), "questions": records.questions.len(),
            "files": export.artifacts.map(<[_]>::len),
        },
        "left_out": {
            "turns": records.turns.len() - shown.turns.len(), "calls": records.calls.len() - shown.calls.len(),
            "files": export.artifacts.map_or(0, |files| files.len().saturating_sub(FILES)),
            "text_limit": limit,
        },
    });
    if let Some(below) = sub_agents(records) {
        page["sub_agents"] = json!(below);
    }
    page
}

/// What sub-agents did outside, which the run did by them; nothing of a run without any.
fn sub_agents(records: &RunRecords) -> Option<Vec<Value>> {
    let lines = SubAgentLine::all(records);
    let shown = lines.iter().filter(|line| !line.effects.is_empty()).map(|line| {
        let effects = line.effects.iter().map(|effect| {
            let id = effect.external_id.as_deref().map(clean);
            json!({"tool": clean(&effect.tool), "call_id": effect.call_id, "happened": effect.happened(), "external": id})
        });
        json!({"run_id": line.run_id, "about": excerpt(&line.description, 200), "effects": effects.collect::<Vec<_>>()})
    });
    (!lines.is_empty()).then(|| shown.collect())
}

/// The first `limit` characters of a foreign text, with what hides made visible. Only what is shown is looked at.
fn excerpt(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => clean(text),
        Some((end, _)) => format!("{}… [cut: {limit} of {} characters]", clean(&text[..end]), text.chars().count()),
    }
}

fn thousandths(used: u64, limit: u64) -> u64 {
    u64::try_from(u128::from(used) * 1000 / u128::from(limit)).unwrap_or(u64::MAX).min(1000)
}

/// The turns and calls that the page shows: all of them, or the first and the newest.
struct Shown<'a> {
    turns: Vec<&'a TurnRecord>,
    calls: Vec<&'a CallRecord>,
}

impl<'a> Shown<'a> {
    fn of(records: &'a RunRecords) -> Self {
        if records.calls.len() <= CALLS && records.turns.len() <= TURNS {
            return Self { turns: records.turns.iter().collect(), calls: records.calls.iter().collect() };
        }
        if records.turns.is_empty() {
            let calls = &records.calls[records.calls.len().saturating_sub(CALLS)..];
            return Self { turns: Vec::new(), calls: calls.iter().collect() };
        }
        let mut calls_of: HashMap<u32, usize> = HashMap::new();
        for call in &records.calls {
            *calls_of.entry(call.position.turn).or_default() += 1;
        }
        // What a turn takes of the room: its row, and a row for each of its calls.
        let size = |turn: &TurnRecord| 1 + calls_of.get(&turn.turn).copied().unwrap_or_default();
        let room = CALLS + TURNS;
        let mut taken = 0;
        let mut first = 0;
        while let Some(turn) = records.turns.get(first)
            && taken + size(turn) <= 2 * FIRST_CALLS
        {
            taken += size(turn);
            first += 1;
        }
        let mut last = records.turns.len();
        while last > first && taken + size(&records.turns[last - 1]) <= room {
            last -= 1;
            taken += size(&records.turns[last]);
        }
        let turns: Vec<&TurnRecord> = records.turns[..first].iter().chain(&records.turns[last..]).collect();
        let is_shown: std::collections::HashSet<u32> = turns.iter().map(|turn| turn.turn).collect();
        let calls = records.calls.iter().filter(|call| is_shown.contains(&call.position.turn)).collect();
        Self { turns, calls }
    }
}

/// The rows of a run by what they belong to, so that drawing a long run takes one look at each.
struct Index<'a> {
    attempts: HashMap<&'a str, Vec<&'a AttemptRecord>>,
    receipts: HashMap<&'a str, Vec<&'a ReceiptRecord>>,
    events: HashMap<&'a str, Vec<&'a EventRecord>>,
    requests: HashMap<u32, Vec<&'a RequestRecord>>,
    words: HashMap<u32, String>,
    approvals: BTreeMap<&'a str, &'a str>,
}

impl<'a> Index<'a> {
    fn of(export: &'a RunExport<'a>) -> Self {
        let records = export.records;
        let mut index = Self {
            attempts: HashMap::new(),
            receipts: HashMap::new(),
            events: HashMap::new(),
            requests: HashMap::new(),
            words: HashMap::new(),
            approvals: BTreeMap::new(),
        };
        for attempt in &records.attempts {
            // What came of one, as effects.log knows it, was not sent, and is told with the question about it.
            if !is_learnt_of_another(attempt) {
                index.attempts.entry(attempt.call_id.as_str()).or_default().push(attempt);
            }
        }
        for receipt in &records.receipts {
            index.receipts.entry(receipt.call_id.as_str()).or_default().push(receipt);
        }
        for event in export.events {
            index.events.entry(event.call_id.as_str()).or_default().push(event);
        }
        for request in &records.requests {
            index.requests.entry(request.turn).or_default().push(request);
        }
        for said in records.messages.iter().filter(|said| said.message.origin == Origin::Model) {
            index.words.insert(said.turn, said.message.text());
        }
        for question in &records.questions {
            if let Some(call) = &question.call_id {
                index.approvals.insert(call.as_str(), question.question_id.as_str());
            }
        }
        index
    }

    fn turn(&self, turn: &TurnRecord, limit: usize) -> Value {
        let requests = self.requests.get(&turn.turn).map_or(&[][..], Vec::as_slice);
        let said = self.words.get(&turn.turn).map_or("", String::as_str);
        json!({
            "n": turn.turn, "epoch": turn.epoch, "recorded": turn.recorded_at.as_millis(),
            "committed": turn.committed_at.map(Timestamp::as_millis), "model": clean(&turn.reply.model),
            "stop": stored_name(&turn.reply.stop_reason), "text": excerpt(said.trim(), limit),
            "requests": requests.iter().map(|row| request(row)).collect::<Vec<_>>(),
        })
    }

    fn call(&self, export: &RunExport<'_>, call: &CallRecord, limit: usize) -> Value {
        let id = call.call_id.as_str();
        let attempts = self.attempts.get(id).map_or(&[][..], Vec::as_slice);
        let receipts = self.receipts.get(id).map_or(&[][..], Vec::as_slice);
        let events = self.events.get(id).map_or(&[][..], Vec::as_slice);
        let answered_by = call.answered_by().map_or(id, |from| from.as_str());
        let last = self.receipts.get(answered_by).and_then(|found| found.iter().max_by_key(|receipt| receipt.attempt));
        // The answer of an earlier attempt says nothing about where the call stands now.
        let last = last.filter(|receipt| call.answered_by().is_some() || receipt.attempt >= call.attempt);
        let arguments = serde_json::to_string_pretty(&call.arguments).unwrap_or_default();
        let own: Vec<ReceiptRecord> = receipts.iter().map(|receipt| (*receipt).clone()).collect();
        json!({
            "id": id, "turn": call.position.turn, "ordinal": call.position.ordinal, "tool": clean(&call.name.tool),
            "place": ua_resume::place_in_words(&export.records.run, call),
            "raw": clean(&call.name.raw), "class": call.policy.class.to_string(), "status": call.status,
            "word": ua_evidence::call_in_words(call), "verdict": Verdict::of(call).in_words(), "effect": call.policy.effect_kind.as_ref().map(EffectKind::as_str),
            "rule": clean(&call.policy.rule_id), "on_unknown": call.policy.on_unknown.to_string(),
            "approval": call.policy.needs_approval, "planned": call.created_at.as_millis(),
            "updated": call.updated_at.as_millis(), "key": call.idempotency_key.as_ref().map(IdempotencyKey::as_str),
            "scope": call.scope.as_ref().map(|scope| excerpt(&scope.in_words(), 400)),
            "resolution": call.resolution, "replay": call.replay_status, "twin": call.answered_by(),
            "external": external_id(&own, call), "evidence": own_success(&own, call).map(|receipt| receipt.evidence),
            "error_code": call.error_code.as_deref().map(clean),
            "error": call.error_detail.as_deref().map(|text| excerpt(text, 800)),
            "question": self.approvals.get(id), "args_hash": call.args_hash,
            "attempts": attempts.iter().map(|attempt| json!({
                "n": attempt.attempt, "epoch": attempt.epoch, "start": attempt.started_at.as_millis(),
                "end": attempt.ended_at.map(Timestamp::as_millis), "outcome": attempt.outcome,
                "detail": detail_in_words(attempt).map(|text| excerpt(text, 400)), "server": attempt.server_generation,
            })).collect::<Vec<_>>(),
            "receipts": receipts.iter().map(|receipt| json!({
                "attempt": receipt.attempt, "at": receipt.received_at.as_millis(), "evidence": receipt.evidence,
                "status": receipt.settlement.as_ref().map(|settlement| settlement.status),
                "external": receipt.settlement.as_ref().and_then(|settlement| settlement.external_correlation_id.as_deref()).map(clean),
                "sha256": sha256(json!(receipt.raw).to_string()),
            })).collect::<Vec<_>>(),
            "events": events.iter().map(|event| json!([
                event.at.as_millis(), event.from.map(CallStatus::as_str), event.to.as_str(), event.epoch,
            ])).collect::<Vec<_>>(),
            "args": excerpt(&arguments, limit),
            "result": last.map(|receipt| result(export, receipt, limit)),
        })
    }
}

/// A call of a session of the gateway in the place of a turn: there it stands alone.
fn asked(call: &CallRecord) -> Value {
    json!({
        "n": call.position.turn, "epoch": 0, "recorded": call.created_at.as_millis(),
        "committed": call.updated_at.as_millis(), "model": "", "stop": "", "text": "", "requests": [],
    })
}

/// What a receipt says, with the text of its blob in the marker's place when it is at hand.
fn result(export: &RunExport<'_>, receipt: &ReceiptRecord, limit: usize) -> Value {
    let content = receipt.settlement.as_ref().and_then(|settlement| settlement.content.as_ref());
    let blob = content.and_then(|content| content.text.blob());
    let whole = blob.and_then(|blob| export.blobs.get(&blob.blob_id));
    let text = match (content, whole) {
        (Some(content), Some(whole)) => content.text.filled(whole),
        (Some(_) | None, None) | (None, Some(_)) => reply_text(receipt),
    };
    json!({
        "text": excerpt(&text, limit),
        "is_error": receipt.settlement.as_ref().is_some_and(|settlement| settlement.status != CallStatus::Succeeded),
        "blob_bytes": blob.map(|blob| blob.size),
    })
}

fn request(request: &RequestRecord) -> Value {
    json!({
        "id": request.request_id, "turn": request.turn, "start": request.reserved_at.as_millis(),
        "end": request.closed_at.map(Timestamp::as_millis), "status": request.status,
        "in": request.usage.total() - request.usage.output_tokens, "out": request.usage.output_tokens,
        "cost": request.cost.map(|cost| cost.to_string()), "model": clean(&request.model),
    })
}

/// The ways to answer a question, each with what it does.
fn ways(export: &RunExport<'_>, question: &QuestionRecord) -> Vec<Value> {
    let of =
        |way: answers::WayToAnswer| json!({"command": export.commands.complete(&way.command), "does": way.meaning});
    answers::ways(question, reach(export, question)).into_iter().map(of).collect()
}

/// Whom an answer reaches.
fn reach(export: &RunExport<'_>, question: &QuestionRecord) -> Reach {
    Reach::of(question, answers::Whose::of(&export.records.run), export.standing.is_driven())
}

/// What is known about what is asked, beside the words of the question.
fn known(export: &RunExport<'_>, question: &QuestionRecord) -> Vec<KnownFact> {
    let records = export.records;
    let call = question.call_id.as_ref().and_then(|id| records.calls.iter().find(|call| call.call_id == *id));
    answers::known(question, call, &records.attempts, &records.messages, &[], reach(export, question))
}

/// The command that gets a run further, where one does: an answer alone does not resume it.
fn next(export: &RunExport<'_>) -> Option<String> {
    let run = &export.records.run;
    let is_asked = run.status == RunStatus::WaitingForHuman && !is_gateway(run) && !is_task(run);
    let has_one = export.standing.waits_for_a_resume() || is_asked;
    let next = has_one.then_some(&export.next)?;
    Some(export.commands.complete(next.command()?).into_owned())
}

fn run(export: &RunExport<'_>) -> Value {
    let run = &export.records.run;
    let text = |text: &Option<String>, limit: usize| text.as_deref().map(|text| excerpt(text, limit));
    json!({
        "id": run.run_id, "status": run.status, "reason": run.stop_reason,
        // What a run waits for stands among its questions.
        "detail": ua_resume::status_detail(run.status, run.status_detail.as_deref()).map(|detail| excerpt(detail, 2_000)),
        "is_driven": export.standing.is_driven(), "shown": clean(&export.standing.to_string()),
        "next": next(export),
        "is_left": export.standing.is_left(), "objective": excerpt(&run.spec.objective, 2_000),
        "job_path": run.job_path.as_deref().map(clean), "job_key": run.job_key.as_deref().map(clean),
        "prompt": excerpt(&run.last_job_prompt, 20_000), "workspace": clean(&run.workspace_dir),
        "created": run.created_at.as_millis(), "updated": run.updated_at.as_millis(), "held": time_at_work(export.records, &export.standing),
        "turn_index": run.turn_index, "forked_at": run.forked_at.map(|point| point.turn), "epoch": run.lease_epoch, "entrypoint": clean(&run.entrypoint),
        "mode": clean(&run.run_mode), "root": run.root_run_id, "parent": run.parent_run_id,
        "output": text(&run.final_output, 20_000), "main_artifact": text(&run.final_artifact_ref, 500),
        "cancel_requested": run.cancel_requested_at.map(Timestamp::as_millis), "cancel_reason": text(&run.cancel_reason, 500),
        "host": run.owner.as_ref().map(|owner| clean(&owner.host)),
    })
}

fn usage(records: &RunRecords) -> Value {
    let usage = UsageSummary::of(records);
    json!({
        "tokens": usage.total_tokens, "in": usage.total_tokens - usage.tokens.output_tokens,
        "out": usage.tokens.output_tokens, "cached": usage.tokens.cache_read_tokens, "cost": usage.cost_in_words(),
        "requests": usage.requests_in_words(),
        "models": usage.models.iter().map(|model| json!({
            "provider": model.provider, "model": model.model, "words": model.in_words(),
        })).collect::<Vec<_>>(),
    })
}
