//! What two rows say of one thing: one write left both, so they agree.
//!
//! A value that is possible in its column, and that another row contradicts, was put there by nobody of this program. It is told apart from what
//! must hold of a run ([`check`](super::check)), so that whoever makes up records for one statement does not have to make up all of them.
//!
//! Proved by: this file's tests, and the simulation and the crash lanes, which find none broken; which columns of the database nothing can vouch for
//! is searched for by `ua-testkit`'s test `forged`, which compares them with `docs/security.md`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use ua_core::{CallStatus, EvidenceLevel, RunStatus, StepStatus, StopReason, Usage};

use super::Violation;
use super::Violations;
use crate::commit::RequestEnd;
use crate::gateway::is_gateway;
use crate::record::{CallRecord, EventRecord, RequestRecord, RequestStatus, RunRecords, TurnRecord};
use crate::rules;

/// Everything in which two rows of the run, or a row and an event of its calls, say of one thing what does not agree.
pub fn check_agreement(records: &RunRecords, events: &[EventRecord]) -> Vec<Violation> {
    let mut found = Violations::default();
    let mut by_call: BTreeMap<&str, Vec<&EventRecord>> = BTreeMap::new();
    for event in events {
        by_call.entry(event.call_id.as_str()).or_default().push(event);
    }
    for events in by_call.values_mut() {
        events.sort_by_key(|event| event.seq);
    }
    let events_of = |call: &CallRecord| by_call.get(call.call_id.as_str()).map(Vec::as_slice).unwrap_or_default();
    contract(&mut found, records);
    for call in &records.calls {
        attempts(&mut found, records, call, events_of(call));
    }
    questions(&mut found, records);
    // No model asks for the calls of a client, so they are in no turn, and its session ends without its step.
    if !is_gateway(&records.run) {
        steps(&mut found, records);
        super::written::accounted_for(&mut found, records);
        for turn in &records.turns {
            let calls = records.calls_of_turn(turn.turn).iter().map(|call| (call, events_of(call)));
            self::calls(&mut found, turn, calls);
        }
        requests(&mut found, records);
    }
    found.0
}

/// Everything in which the runs of one family say of one thing what does not agree.
pub fn check_agreement_of_family(family: &[RunRecords]) -> Vec<Violation> {
    let mut found = Violations::default();
    let roots: BTreeMap<&str, &RunRecords> =
        family.iter().map(|records| (records.run.run_id.as_str(), records)).collect();
    for records in family {
        let run = &records.run;
        let mut above = Some(records);
        for _ in 0..family.len() {
            above = above.and_then(|of| of.run.parent_run_id.as_ref()).and_then(|id| roots.get(id.as_str()).copied());
        }
        if above.is_some() {
            found.add("a_lineage_leads_to_its_first_run", &run.run_id, "its parents lead in a circle");
        }
        let Some(root) = roots.get(run.root_run_id.as_str()) else { continue };
        let of_root = root.run.lineage_mark.as_ref();
        // A lineage of an earlier version has none.
        let is_its_own = run.run_id != run.root_run_id || of_root.is_none_or(|mark| *mark == rules::mark_of_run(run));
        if run.lineage_mark.as_ref() != of_root || !is_its_own {
            let why = "the mark of its lineage is not that of its first run, of when and where that began";
            found.add("a_lineage_has_the_mark_of_its_first_run", &run.run_id, why);
        }
    }
    found.0
}

/// What is repeated of the job, for whoever looks for it.
fn contract(found: &mut Violations, records: &RunRecords) {
    let run = &records.run;
    if run.job_key != run.spec.job_key {
        found.add("a_run_repeats_its_job", &run.run_id, "its job key is not that of its job");
    }
    let opening = records.messages.first().filter(|opening| opening.turn == 0 && run.forked_at.is_none());
    if opening.is_some_and(|opening| opening.message.text() != run.last_job_prompt) {
        found.add("a_run_repeats_its_job", &run.run_id, "its prompt is not the message that it began with");
    }
}

/// An attempt began and ended with a change of its call, and what came back has its time.
fn attempts(found: &mut Violations, records: &RunRecords, call: &CallRecord, events: &[&EventRecord]) {
    let attempts: Vec<_> = records.attempts.iter().filter(|attempt| attempt.call_id == call.call_id).collect();
    let starts: Vec<usize> = (0..events.len()).filter(|at| events[*at].to == CallStatus::Running).collect();
    if attempts.len() != starts.len() {
        return; // said by `attempts_are_counted`, or something was written between the reads
    }
    let mut add = |attempt: u32, why: &str| {
        found.add("attempts_are_as_the_history_says", &call.call_id, format!("attempt {attempt} {why}"));
    };
    for (attempt, start) in attempts.iter().zip(starts) {
        let number = attempt.attempt;
        // Of one that effects.log alone knew of it is written when it was noted.
        let is_recalled = rules::is_recalled(attempt);
        if attempt.epoch != events[start].epoch {
            add(number, "has another epoch than the change that started it");
        }
        if attempt.started_at != events[start].at && !is_recalled {
            let (started, changed) = (attempt.started_at, events[start].at);
            add(number, &format!("was started at {started}, and the change that started it was made at {changed}"));
        }
        let reported = records.receipts.iter().find(|receipt| {
            let is_its_own = receipt.call_id == call.call_id && receipt.attempt == number;
            is_its_own && receipt.evidence == EvidenceLevel::Reported
        });
        let is_replied = attempt.was_answered();
        if is_replied != reported.is_some() {
            add(number, "was answered, and there is no answer, or there is one, and it was not answered");
        }
        if let Some(received) = reported.map(|receipt| receipt.received_at)
            && attempt.ended_at.is_some_and(|ended| ended != received && ended != received.max(attempt.started_at))
        {
            add(number, "ended at another time than its answer came");
        }
        // A person's word may have ended it.
        let Some(end) = events.get(start + 1).filter(|end| end.correction.is_none() && !is_replied) else { continue };
        if attempt.ended_at.is_some_and(|ended| ended != end.at) {
            add(number, "ended at another time than the change that ended it");
        }
        // What was not sent leaves the doubt of an earlier attempt.
        let fits = match attempt.outcome.as_deref() {
            Some("lost") => end.to == CallStatus::Unknown,
            Some("not_sent") => end.to == CallStatus::FailedDefinite || (end.to == CallStatus::Unknown && number > 1),
            Some(_) | None => true,
        };
        if !fits {
            add(number, "came to something else than the change that ended it says");
        }
    }
}

/// A question about a call has in its details which one: the call that it names is that one.
fn questions(found: &mut Violations, records: &RunRecords) {
    for question in &records.questions {
        let hash = question.detail.get("args_hash").filter(|hash| hash.is_string());
        let mut add = |why: &str| found.add("a_question_names_its_call", &question.question_id, why);
        let (call, hash) = match (&question.call_id, hash) {
            (Some(call), Some(hash)) => (call, hash),
            (None, None) => continue,
            (None, Some(_)) => {
                add("it is about a call, as its details say, and names none");
                continue;
            }
            (Some(_), None) => {
                add("it names a call, and its details are about none");
                continue;
            }
        };
        // Of a run above or below there are no rows here.
        let Some(call) = records.call(call) else { continue };
        let is_it = |name: &str, is: Value| question.detail.get(name).is_none_or(|said| *said == is);
        let is_that_call = *hash == json!(call.args_hash)
            && is_it("tool", json!(call.name.raw))
            && is_it("tool_digest", json!(call.tool_digest));
        if !is_that_call {
            add("the call that it names is not the one that its details are about");
        }
    }
}

/// Steps are counted, each begins where the turns of those before it end, and stands where its run does.
fn steps(found: &mut Violations, records: &RunRecords) {
    use StepStatus as S;
    let mut before = records.run.shared_turns();
    for (number, step) in (1_u32..).zip(&records.steps) {
        let own: Vec<&TurnRecord> = records.turns.iter().filter(|turn| turn.step_id == step.step_id).collect();
        let committed = own.iter().filter(|turn| turn.committed_at.is_some()).map(|turn| turn.turn).max();
        let mut add = |why: &str| found.add("steps_are_as_their_run_and_turns", &step.step_id, why);
        if step.step_index != number {
            add("its number is not its place among the steps of its run");
        }
        let is_earlier = own.iter().any(|turn| turn.turn < step.first_turn);
        if step.first_turn != before + 1 || step.last_turn != committed || is_earlier {
            add("its first or last turn is none that its turns say");
        }
        before = own.iter().map(|turn| turn.turn).max().unwrap_or(before).max(before);
        // One that was parked before it had its tools, or was deleted, keeps its step as it was.
        let fits: &[S] = if records.steps.len() > usize::try_from(number).unwrap_or(usize::MAX) {
            &[S::Succeeded]
        } else {
            match records.run.status {
                RunStatus::Running => &[S::Running],
                RunStatus::Queued | RunStatus::WaitingForHuman | RunStatus::Stopped => &[S::Running, S::Blocked],
                RunStatus::Succeeded => &[S::Succeeded],
                RunStatus::Failed => &[S::Failed, S::Running, S::Blocked],
                RunStatus::Cancelled => &[S::Skipped, S::Running, S::Blocked],
            }
        };
        if !fits.contains(&step.status) {
            add("its status is none in which a step of its place is, where its run stands");
        }
    }
}

/// The calls of a turn were planned with its reply, by the process that recorded it, and run only if the reply ended by asking for them.
fn calls<'a>(
    found: &mut Violations,
    turn: &TurnRecord,
    calls: impl Iterator<Item = (&'a CallRecord, &'a [&'a EventRecord])>,
) {
    for (number, (call, events)) in (1_u32..).zip(calls) {
        let mut add = |why: &str| found.add("calls_are_as_their_turn", &call.call_id, why);
        if call.position.ordinal != number {
            add("its place is not the next one in its turn");
        }
        let Some(plan) = events.first().filter(|first| first.from.is_none()) else { continue };
        if call.step_id != turn.step_id {
            add("it is of another step than its turn");
        }
        if plan.epoch != turn.epoch {
            add("it was planned under another epoch than its turn was recorded");
        }
        if plan.at != turn.recorded_at || call.created_at != turn.recorded_at {
            add("it was planned at another time than its turn was recorded");
        }
        if plan.to == CallStatus::Prepared && turn.reply.stop_reason != StopReason::ToolUse {
            add("it was to run, and the reply of its turn did not end by asking for it");
        }
    }
}

/// Requests ask for one turn after the other; the last one for a turn is the one that the turn answers; what is charged is what was counted.
fn requests(found: &mut Violations, records: &RunRecords) {
    let shared = records.run.shared_turns();
    let mut answering: BTreeMap<u32, &RequestRecord> = BTreeMap::new();
    let (mut before, mut epoch) = (shared, 0);
    for request in &records.requests {
        let row = || format!("request {}", request.request_id);
        let is_next = request.turn == before || request.turn == before + 1;
        if !is_next || request.turn <= shared || request.turn > records.run.turn_index.saturating_add(1) {
            let why = format!("it asks for turn {}, behind one for turn {before}", request.turn);
            found.add("requests_are_as_their_turns", row(), why);
        }
        before = request.turn;
        answering.insert(request.turn, request);
        if !is_charged_as_counted(request) {
            let why = "what it is charged is not what its end and its price come to";
            found.add("requests_are_as_their_turns", row(), why);
        }
    }
    for turn in &records.turns {
        let row = || format!("turn {}", turn.turn);
        if turn.epoch < epoch || turn.epoch > records.run.lease_epoch {
            let why = format!("it was recorded under epoch {}, behind epoch {epoch}", turn.epoch);
            found.add("epochs_rise", row(), why);
        }
        epoch = epoch.max(turn.epoch);
        let answers = answering.get(&turn.turn).is_some_and(|request| {
            let is_as_counted =
                request.status != RequestStatus::Actual || request.usage == turn.reply.usage.unwrap_or_default();
            let is_answered = matches!(request.status, RequestStatus::Actual | RequestStatus::Partial);
            is_answered && is_as_counted && request.request_sha256 == turn.request_sha256
        });
        if !answers {
            let why = "the last request for it has another digest or usage, or was not answered";
            found.add("requests_are_as_their_turns", row(), why);
        }
    }
}

fn is_charged_as_counted(request: &RequestRecord) -> bool {
    let counted = match request.status {
        RequestStatus::Reserved | RequestStatus::Zero => Some(Usage::default()),
        RequestStatus::Baseline => Some(RequestEnd::Baseline.charged(request.estimated_tokens)),
        RequestStatus::Actual | RequestStatus::Partial => None,
    };
    let price = request.price.filter(|_| request.closed_at.is_some());
    counted.is_none_or(|counted| request.usage == counted)
        && request.cost == price.map(|price| price.cost(request.usage))
}

#[cfg(all(test, feature = "conformance"))]
#[expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
mod tests {
    use ua_core::{Message, Origin, Role, SideEffectClass};

    use super::*;
    use crate::conformance::{Scene, samples};
    use crate::{LedgerStore as _, MemStore, RunStore as _};

    /// A turn with a lost call and one that was answered, and one that was refused at once; a second turn that asks for nothing.
    async fn two_turns() -> (RunRecords, Vec<EventRecord>) {
        let store = MemStore::default();
        let scene = Scene::begin(&store, "run_1").await;
        scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_call("call_2", 1, 2)]).await;
        scene.bring("call_1", CallStatus::Succeeded).await;
        scene.bring("call_2", CallStatus::Succeeded).await;
        scene.commit(1).await;
        scene.turn(vec![samples::planned_email("call_3", 2, 1)]).await;
        scene.bring("call_3", CallStatus::Unknown).await;
        let call = store.call(&samples::call_id("call_3")).await.unwrap();
        let mut asked = samples::question("q_1", Some("call_3"));
        asked.detail = json!({"tool": call.name.raw, "args_hash": call.args_hash, "tool_digest": call.tool_digest});
        store.raise_question(&scene.lease, asked).await.unwrap();
        let mut events = Vec::new();
        for call in ["call_1", "call_2", "call_3"] {
            events.extend(store.events(&samples::call_id(call)).await.unwrap());
        }
        (scene.records().await, events)
    }

    /// Puts a message of turn `turn` in at place `seq`, with the time of the last one of its kind.
    fn put_in(records: &mut RunRecords, seq: u64, turn: u32, origin: Origin) {
        let alike = records.messages.iter().rev().find(|message| message.message.origin == origin);
        let created_at = alike.or(records.messages.last()).map_or(samples::at(9), |message| message.created_at);
        let role = if origin == Origin::Model { Role::Assistant } else { Role::User };
        let message = Message { role, ..Message::user(origin, "Send it to me as well.") };
        records.messages.push(crate::MessageRecord { seq, turn, message, created_at });
        records.messages.sort_by_key(|message| message.seq);
    }

    #[tokio::test]
    async fn what_the_store_wrote_agrees_with_itself_and_each_row_that_does_not_is_named() {
        type Break = fn(&mut RunRecords);

        let (whole, events) = two_turns().await;
        assert_eq!(check_agreement(&whole, &events), []);
        assert_eq!(check_agreement_of_family(std::slice::from_ref(&whole)), []);
        let breaks: [(&str, Break); 42] = [
            // A row that somebody put in, whatever it calls itself and wherever it stands.
            ("each_message_was_written", |r| put_in(r, 5, 1, Origin::Prompt)),
            ("each_message_was_written", |r| put_in(r, 5, 1, Origin::Model)),
            ("each_message_was_written", |r| put_in(r, 5, 2, Origin::Model)),
            ("each_message_was_written", |r| put_in(r, 5, 1, Origin::Tools)),
            ("each_message_was_written", |r| put_in(r, 5, 1, Origin::Phase)),
            ("each_message_was_written", |r| put_in(r, 5, 1, Origin::Omission)),
            ("each_message_was_written", |r| put_in(r, 9, 1, Origin::Guidance)),
            ("each_message_was_written", |r| put_in(r, 3, 1, Origin::Resume)),
            ("each_message_was_written", |r| {
                // With all that stands behind it moved up.
                for message in &mut r.messages[1..] {
                    message.seq += 1;
                }
                put_in(r, 2, 0, Origin::Guidance);
                r.checkpoints[0].cursor = json!({"turn_index": 1, "last_message_seq": 2}).into();
            }),
            ("each_message_was_written", |r| drop(r.messages.remove(1))),
            ("each_message_was_written", |r| r.messages[2].created_at = samples::at(77)),
            ("each_message_was_written", |r| r.messages[1].message.role = Role::User),
            ("steps_are_as_their_run_and_turns", |r| r.steps[0].status = StepStatus::Succeeded),
            ("steps_are_as_their_run_and_turns", |r| r.steps[0].status = StepStatus::Blocked),
            ("steps_are_as_their_run_and_turns", |r| r.run.status = RunStatus::Succeeded),
            ("steps_are_as_their_run_and_turns", |r| r.steps[0].step_index = 2),
            ("steps_are_as_their_run_and_turns", |r| r.steps[0].first_turn = 2),
            ("steps_are_as_their_run_and_turns", |r| r.steps[0].last_turn = None),
            ("a_question_names_its_call", |r| r.questions[0].call_id = None),
            ("a_question_names_its_call", |r| r.questions[0].detail = Value::Null),
            ("a_question_names_its_call", |r| r.questions[0].call_id = Some(samples::call_id("call_2"))),
            ("a_question_names_its_call", |r| r.calls[2].tool_digest = None),
            ("calls_are_as_their_turn", |r| r.turns[1].reply.stop_reason = StopReason::EndTurn),
            ("calls_are_as_their_turn", |r| r.turns[0].epoch = 0),
            ("calls_are_as_their_turn", |r| r.calls[1].position.ordinal = 3),
            ("calls_are_as_their_turn", |r| r.calls[0].created_at = samples::at(77)),
            ("calls_are_as_their_turn", |r| r.turns[0].recorded_at = samples::at(77)),
            ("calls_are_as_their_turn", |r| r.calls[0].step_id = samples::step_id("step_9")),
            ("calls_are_as_their_turn", |r| r.turns[0].step_id = samples::step_id("step_9")),
            ("epochs_rise", |r| r.turns[0].epoch = 9),
            ("requests_are_as_their_turns", |r| r.requests[0].turn = 2),
            ("requests_are_as_their_turns", |r| r.requests[1].turn = 1),
            ("requests_are_as_their_turns", |r| r.requests[0].request_sha256 = samples::request_digest(9)),
            ("requests_are_as_their_turns", |r| r.requests[0].usage.input_tokens += 1),
            ("requests_are_as_their_turns", |r| r.requests[0].cost = None),
            ("requests_are_as_their_turns", |r| r.turns[0].reply.usage = None),
            ("attempts_are_as_the_history_says", |r| r.attempts[0].epoch = 9),
            ("attempts_are_as_the_history_says", |r| r.attempts[0].started_at = samples::at(77)),
            ("attempts_are_as_the_history_says", |r| r.attempts[2].outcome = Some("not_sent".to_owned())),
            ("attempts_are_as_the_history_says", |r| r.attempts[2].ended_at = Some(samples::at(77))),
            ("attempts_are_as_the_history_says", |r| r.attempts[0].outcome = Some("lost".to_owned())),
            ("a_run_repeats_its_job", |r| r.run.last_job_prompt.push('x')),
        ];
        for (number, (invariant, break_it)) in breaks.into_iter().enumerate() {
            let mut records = whole.clone();
            break_it(&mut records);
            let found = check_agreement(&records, &events);
            assert!(found.iter().any(|one| one.invariant == invariant), "{number}: {invariant}: {found:?}");
        }
        // What is no matter of two rows is believed.
        let mut records = whole;
        records.calls[1].policy =
            ua_core::CallPolicy { class: SideEffectClass::ReadOnly, ..ua_core::CallPolicy::unclassified() }.into();
        assert_eq!(check_agreement(&records, &events), []);
    }

    #[tokio::test]
    async fn a_lineage_has_the_mark_of_where_and_when_it_began() {
        type Break = fn(&mut [RunRecords; 2]);

        let store = MemStore::default();
        let scene = Scene::begin(&store, "run_1").await;
        Scene::begin_with(&store, samples::child_run("run_2", "run_1")).await;
        let family = [scene.records().await, store.load(&samples::run_id("run_2")).await.unwrap()];
        assert_eq!(check_agreement_of_family(&family), []);
        let breaks: [Break; 5] = [
            |family| family[1].run.parent_run_id = Some(family[1].run.run_id.clone()),
            |family| family[0].run.lineage_mark = None,
            |family| family[1].run.lineage_mark = Some("0".repeat(32)),
            |family| family[0].run.workspace_dir.push('x'),
            |family| family[0].run.created_at = samples::at(77),
        ];
        for (number, break_it) in breaks.into_iter().enumerate() {
            let mut broken = family.clone();
            break_it(&mut broken);
            assert_eq!(check_agreement_of_family(&broken).len(), 1, "{number}");
        }
    }
}
