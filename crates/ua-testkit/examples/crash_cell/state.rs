//! What the harness reads: where a run stands, without ids, times and wording.

use std::path::Path;

use serde_json::{Value, json};
use ua_core::{CallId, CallStatus, Message, RawReply, RunId};
use ua_llm::check_history;
use ua_store::invariants::{self, Violation};
use ua_store::{CallRecord, LedgerStore, QuestionRecord, QuestionStatus, RequestStatus, RunRecords, RunStore, Store};

use crate::options::Outcome;

/// Writes `value` to a file of the cell, in one step.
pub(crate) fn write(folder: &Path, name: &str, value: &Value) -> Outcome<()> {
    let beside = folder.join(format!("{name}.tmp"));
    std::fs::write(&beside, value.to_string())?;
    std::fs::rename(beside, folder.join(name))?;
    Ok(())
}

/// What a new life finds before it touches anything: which writes of its predecessor are there.
pub(crate) fn found(records: &RunRecords, subject: &str) -> Value {
    let status = records.calls.iter().find(|call| call.name.tool == subject).map(|call| call.status);
    json!({
        "store.acquire_run": records.run.lease_epoch > 0,
        "store.reserve_request": !records.requests.is_empty(),
        "store.record_turn": !records.turns.is_empty(),
        "store.start_attempt": status.is_some_and(|status| status != CallStatus::Prepared),
        "store.settle_attempt": status.is_some_and(|s| !matches!(s, CallStatus::Prepared | CallStatus::Running)),
        "store.commit_turn": records.run.turn_index > 0,
        "store.end_run": records.run.status.is_terminal(),
    })
}

/// Where a run and all below it stand at the end of a life, as if they were one: calls, turns, questions and requests of the children
/// follow those of the run.
pub(crate) async fn of_tree(store: &dyn Store, run: &RunId) -> Outcome<Value> {
    let root = store.load(run).await?;
    let mut state = of(&root, &violations(store, &root).await?);
    let mut children = root.lineage.sub_agents.clone();
    children.sort_by_key(|child| root.call(&child.call_id).map(|task| (task.position.turn, task.position.ordinal)));
    let mut heads = Vec::new();
    for child in &children {
        let records = store.load(&child.run_id).await?;
        add(&mut state, &of(&records, &violations(store, &records).await?));
        heads.push(json!({"status": child.status, "turns": child.turns, "effects": child.effects.len()}));
    }
    if root.run.status.is_terminal() && !children.is_empty() {
        let completion = Path::new(&root.run.workspace_dir).join(format!("job_completion_{run}.md"));
        // A life that died just behind the last write left none, and the next one finds nothing to do.
        let completion = std::fs::read_to_string(completion).ok();
        let is_unlisted = |id: &RunId| completion.as_ref().is_some_and(|text| !text.contains(id.as_str()));
        let unlisted = children.iter().filter(|child| is_unlisted(&child.run_id));
        let unlisted = unlisted.map(|child| json!(format!("the completion, which does not list {}", child.run_id)));
        append(&mut state["violations"], unlisted.collect());
        state["sub_agents"] = heads.into();
    }
    let family = family(store, &root).await?;
    let calls: Vec<&CallRecord> = family.iter().flat_map(|records| &records.calls).collect();
    for violation in invariants::check_family(&family) {
        let list = if violation.known().is_some() { "known" } else { "violations" };
        append(&mut state[list], vec![shown(&violation, &calls, &root.questions)]);
    }
    Ok(state)
}

/// The runs of its family.
async fn family(store: &dyn Store, root: &RunRecords) -> Outcome<Vec<RunRecords>> {
    let mut family = Vec::new();
    for run in store.runs(u32::MAX).await? {
        if run.root_run_id == root.run.root_run_id {
            family.push(store.load(&run.run_id).await?);
        }
    }
    Ok(family)
}

/// A statement that is known to be broken by its name and the tool that it is about, any other one in words.
fn shown(violation: &Violation, calls: &[&CallRecord], questions: &[QuestionRecord]) -> Value {
    let Some(known) = violation.known() else { return json!(violation.to_string()) };
    let asked = questions.iter().find(|question| question.question_id.as_str() == violation.row);
    let about = asked.and_then(|question| question.call_id.as_ref()).map_or(violation.row.as_str(), CallId::as_str);
    let call = calls.iter().find(|call| call.call_id.as_str() == about);
    json!({"statement": known.invariant, "tool": call.map(|call| &call.name.tool)})
}

async fn violations(store: &dyn Store, records: &RunRecords) -> Outcome<Vec<Violation>> {
    let mut events = Vec::new();
    for call in &records.calls {
        events.extend(store.events(&call.call_id).await?);
    }
    Ok(invariants::check(records, &events))
}

fn append(list: &mut Value, more: Vec<Value>) {
    if let Some(list) = list.as_array_mut() {
        list.extend(more);
    }
}

/// Adds what a child's state says to that of the run above it.
fn add(state: &mut Value, child: &Value) {
    for list in ["turns", "calls", "questions", "violations", "known"] {
        append(&mut state[list], child[list].as_array().cloned().unwrap_or_default());
    }
    for count in ["reserved", "actual", "partial", "baseline", "zero"] {
        let sum = [&*state, child].map(|side| side["usage"][count].as_u64().unwrap_or(0)).iter().sum::<u64>();
        state["usage"][count] = sum.into();
    }
    if state["history"].is_null() {
        state["history"] = child["history"].clone();
    }
}

/// Where a run stands at the end of a life.
fn of(records: &RunRecords, violations: &[Violation]) -> Value {
    let calls = records.calls.iter().map(|call| {
        let source = call.answered_by().unwrap_or(&call.call_id);
        let receipt = records.receipt(source);
        let by_person = receipt.is_some_and(|receipt| matches!(receipt.raw, RawReply::Statement { .. }));
        let text = receipt.and_then(|r| r.settlement.as_ref()).and_then(|s| s.content.as_ref()).map(|c| c.text.clone());
        let text = text.filter(|_| !call.name.is_task()); // it names the child run and its folder
        json!({
            "turn": call.position.turn, "ordinal": call.position.ordinal, "tool": call.name.tool, "key": call.idempotency_key,
            "status": call.status, "resolution": call.resolution, "deduplicated": call.deduplicated_from.is_some(),
            "arguments": call.arguments, "by_person": by_person, "receipt": if by_person { None } else { text },
        })
    });
    let questions = records.questions.iter().map(|question| {
        let about = question.call_id.as_ref().and_then(|call| records.call(call));
        json!({
            "kind": question.kind, "is_open": question.status == QuestionStatus::Open,
            "tool": about.map(|call| call.name.tool.clone()), "denies": question.text.contains("Nothing happened"),
        })
    });
    let history: Vec<Message> = records.messages.iter().map(|message| message.message.clone()).collect();
    let own: Vec<&CallRecord> = records.calls.iter().collect();
    let list = |is_known: bool| {
        let listed = violations.iter().filter(|one| one.known().is_some() == is_known);
        listed.map(|one| shown(one, &own, &records.questions)).collect::<Vec<_>>()
    };
    let count = |status: RequestStatus| records.requests.iter().filter(|request| request.status == status).count();
    json!({
        "status": records.run.status,
        "detail": records.run.status_detail,
        "final_output": records.run.final_output.is_some(),
        "committed": records.run.turn_index,
        "turns": records.turns.iter().map(|turn| json!([turn.turn, turn.committed_at.is_some()])).collect::<Vec<_>>(),
        "calls": calls.collect::<Vec<_>>(),
        "questions": questions.collect::<Vec<_>>(),
        "history": check_history(&history).err().map(|why| format!("{why:?}")),
        "usage": {
            "reserved": count(RequestStatus::Reserved), "actual": count(RequestStatus::Actual),
            "partial": count(RequestStatus::Partial), "baseline": count(RequestStatus::Baseline), "zero": count(RequestStatus::Zero),
        },
        "violations": list(false),
        "known": list(true),
    })
}
