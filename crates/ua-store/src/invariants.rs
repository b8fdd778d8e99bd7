//! What must hold of every stored run, whenever anybody looks: the checker behind `ua db check --invariants` and the crash
//! lanes.
//!
//! Pure: it reads records and changes nothing. The rules of `rules` keep these statements true one write at a time; here they
//! are asked of the whole, so that a bug in a rule, a damaged row or a foreign hand shows up. Statements about the outside
//! world (an effect happened once) need an observer and are not among them.
//!
//! [`check`] is about one run, [`check_family`] about what its forks and sub-agents know of each other; [`check_agreement`] compares what two rows
//! say of one thing. Statements that today's core
//! itself breaks have names of their own ([`KNOWN`]); whoever checks expects those, and fails on every other one.
//!
//! Durable Jobs v1 spec §8.3 and §9.2; Granular Execution PRD §5.1. Proved by: this file's tests, which break each statement
//! on purpose, and the crash lanes, which find none broken.

mod agreement;
mod answers;
mod doubt;
mod iterations;
mod kin;
mod known;
mod lineage;
mod sessions;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use ua_core::{
    Block, CallEvent, CallId, CallStatus, EvidenceLevel, OnUnknown, RawReply, Resolution, RunStatus, SideEffectClass,
};

use crate::record::{
    AttemptRecord, CallRecord, Choice, EventRecord, QuestionKind, QuestionStatus, ReceiptRecord, RequestRecord,
    RequestStatus, RunRecords,
};

pub use agreement::{check_agreement, check_agreement_of_family};
pub use kin::check_family;
pub use known::{KNOWN, Known};

/// A statement that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Which statement, by a short name.
    pub invariant: &'static str,
    /// The row it does not hold for.
    pub row: String,
    /// What was found.
    pub why: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.invariant, self.row, self.why)
    }
}

/// Every statement that does not hold for the run; `events` are the status changes of its calls, in any order.
pub fn check(records: &RunRecords, events: &[EventRecord]) -> Vec<Violation> {
    let mut found = Violations::default();
    let mut by_call: BTreeMap<&CallId, Vec<&EventRecord>> = BTreeMap::new();
    for event in events {
        by_call.entry(&event.call_id).or_default().push(event);
    }
    for call in &records.calls {
        let attempts: Vec<&AttemptRecord> = records.attempts.iter().filter(|a| a.call_id == call.call_id).collect();
        let mut events = by_call.remove(&call.call_id).unwrap_or_default();
        events.sort_by_key(|event| event.seq);
        transitions(&mut found, records, call, &events);
        sends(&mut found, records, call, &attempts);
        receipts(&mut found, records, call);
        doubt::kept(&mut found, records, call);
    }
    for call in by_call.keys() {
        found.add("legal_transitions", call, "a status change is recorded for a call that does not exist");
    }
    keys(&mut found, records);
    questions(&mut found, records);
    answers::acted_on(&mut found, records);
    turns(&mut found, records);
    history(&mut found, records);
    lineage::shared(&mut found, records);
    iterations::counted(&mut found, records);
    checkpoints(&mut found, records);
    requests(&mut found, records);
    sessions::continued(&mut found, records);
    end(&mut found, records);
    found.0
}

#[derive(Default)]
struct Violations(Vec<Violation>);

impl Violations {
    fn add(&mut self, invariant: &'static str, row: impl fmt::Display, why: impl Into<String>) {
        self.0.push(Violation { invariant, row: row.to_string(), why: why.into() });
    }
}

/// Statuses follow the table without a gap, and epochs never fall.
fn transitions(found: &mut Violations, records: &RunRecords, call: &CallRecord, events: &[&EventRecord]) {
    let leads = |from: CallStatus, to, by_a_person| {
        let fits = |event: &&CallEvent| event.is_correction() == by_a_person && from.on(**event) == Ok(to);
        CallEvent::ALL.iter().any(|event| fits(&event))
    };
    let (mut status, mut epoch, mut sent) = (None, 0, 0);
    for event in events {
        sent += u32::from(event.to == CallStatus::Running);
        let follows = event.from == status
            && match event.from {
                None => event.to == CallStatus::Prepared || event.to == CallStatus::Cancelled,
                Some(from) => {
                    leads(from, event.to, event.correction.is_some())
                        || doubt::is_found_by_a_migration(records, call, event, sent)
                }
            };
        if !follows {
            let from = event.from.map_or("nothing", CallStatus::as_str);
            found.add("legal_transitions", &call.call_id, format!("went from {from} to {}", event.to));
        }
        if event.epoch < epoch || event.epoch > records.run.lease_epoch {
            let why = format!("a change under epoch {} came after epoch {epoch}", event.epoch);
            found.add("epochs_rise", &call.call_id, why);
        }
        (status, epoch) = (Some(event.to), epoch.max(event.epoch));
    }
    if call.correction.is_some() && !events.iter().any(|event| event.correction == call.correction) {
        found.add("a_correction_is_in_the_history", &call.call_id, "was corrected, and its history does not say so");
    }
    if status != Some(call.status) {
        let last = status.map_or("nothing", CallStatus::as_str);
        found.add("legal_transitions", &call.call_id, format!("is {}, but its last change says {last}", call.status));
    }
}

/// Sent as often as its row says and its policy allows, and only under a key.
fn sends(found: &mut Violations, records: &RunRecords, call: &CallRecord, attempts: &[&AttemptRecord]) {
    let id = &call.call_id;
    let numbers: Vec<u32> = attempts.iter().map(|attempt| attempt.attempt).collect();
    if !(1..=call.attempt).eq(numbers.iter().copied()) {
        let why = format!("its row says {}, stored are {numbers:?}", ua_core::counted(call.attempt, "attempt"));
        found.add("attempts_are_counted", id, why);
    }
    let never_sent =
        matches!(call.status, CallStatus::Prepared | CallStatus::Cancelled) || call.deduplicated_from.is_some();
    if never_sent && !attempts.is_empty() {
        found.add("attempts_are_counted", id, format!("was sent although it is {}", call.status));
    }
    if !attempts.is_empty() && call.idempotency_key.is_none() {
        found.add("intent_before_act", id, "was sent without a key");
    }
    let open = attempts.iter().filter(|attempt| attempt.ended_at.is_none()).count();
    if open > usize::from(call.status == CallStatus::Running) {
        found.add(
            "attempts_are_counted",
            id,
            format!("is {} beside {open} without an end", call.status, open = ua_core::counted(open, "attempt")),
        );
    }
    if call.policy.class == SideEffectClass::External && call.policy.on_unknown == OnUnknown::Hold {
        let allowed = 1 + executes(records, call) + not_done(records, call, attempts);
        if attempts.len() > allowed {
            let why = format!("was sent {} times; its failures and answers allow {allowed}", attempts.len());
            found.add("never_twice", id, why);
        }
    }
}

/// How often a person who was asked what came of an attempt ordered one more. That a call may go out at all is no such word.
fn executes(records: &RunRecords, call: &CallRecord) -> usize {
    let about = records.questions.iter().filter(|question| {
        question.call_id.as_ref() == Some(&call.call_id) && question.kind == QuestionKind::UnknownOutcome
    });
    about.filter_map(|question| question.answer.as_ref()).filter(|answer| answer.choice == Choice::Execute).count()
}

/// Attempts that provably did nothing: never sent, or refused by the other side before it acted.
fn not_done(records: &RunRecords, call: &CallRecord, attempts: &[&AttemptRecord]) -> usize {
    let refused = |attempt: &AttemptRecord| {
        let receipt = records.receipts.iter().find(|r| r.call_id == call.call_id && r.attempt == attempt.attempt);
        let status = receipt.and_then(|receipt| receipt.settlement.as_ref()).map(|settlement| settlement.status);
        status == Some(CallStatus::FailedDefinite)
    };
    let is_nobodys = |attempt: &AttemptRecord| attempt.never_left() || refused(attempt);
    // What went with the rows that say why it was sent.
    attempts.iter().filter(|attempt| is_nobodys(attempt) || crate::rules::is_recalled(attempt)).count()
}

/// A receipt belongs to an attempt, once, and so does evidence that was found later; what succeeded has one, or says why not.
fn receipts(found: &mut Violations, records: &RunRecords, call: &CallRecord) {
    let own: Vec<_> = records.receipts.iter().filter(|receipt| receipt.call_id == call.call_id).collect();
    // A person may say so more than once, and something else in between.
    let is_word = |receipt: &&ReceiptRecord| matches!(receipt.raw, RawReply::Statement { .. });
    let words = own.iter().filter(|receipt| is_word(receipt)).count().saturating_sub(1);
    let attempts: BTreeSet<u32> = own.iter().map(|receipt| receipt.attempt).collect();
    let kinds: BTreeSet<(u32, bool)> =
        own.iter().map(|receipt| (receipt.attempt, receipt.evidence == EvidenceLevel::Reported)).collect();
    if kinds.len() < own.len() - words {
        found.add(
            "one_receipt_per_attempt",
            &call.call_id,
            format!("{} receipts for {}", own.len(), ua_core::counted(attempts.len(), "attempt")),
        );
    }
    if attempts.iter().any(|attempt| *attempt == 0 || *attempt > call.attempt) {
        found.add("one_receipt_per_attempt", &call.call_id, "a receipt for an attempt that was never made");
    }
    let settled_otherwise = matches!(call.resolution, Some(Resolution::Happened | Resolution::Deduplicated));
    if call.status == CallStatus::Succeeded && own.is_empty() && !settled_otherwise {
        found.add("success_has_a_receipt", &call.call_id, "succeeded without a receipt or a person's decision");
    }
    if let Some(source) = call.answered_by()
        && call.status == CallStatus::Succeeded
        && records.call(source).is_some_and(|source| source.status != CallStatus::Succeeded)
    {
        found.add("success_has_a_receipt", &call.call_id, format!("answered by {source}, which did not succeed"));
    }
}

/// No two calls of the lineage claim one key.
fn keys(found: &mut Violations, records: &RunRecords) {
    let mut holders = BTreeMap::new();
    let all = records.calls.iter().chain(&records.lineage.calls).chain(&records.lineage.elsewhere);
    for call in all.filter(|call| call.status.claims_key() && call.deduplicated_from.is_none()) {
        let Some(key) = &call.idempotency_key else {
            found.add("intent_before_act", &call.call_id, format!("is {} without a key", call.status));
            continue;
        };
        if let Some(first) = holders.insert(key.as_str().to_owned(), &call.call_id) {
            found.add("one_claim_per_key", &call.call_id, format!("claims the key of {first}"));
        }
    }
}

/// A run waits exactly as long as somebody has something to answer.
fn questions(found: &mut Violations, records: &RunRecords) {
    let waits = records.run.status == RunStatus::WaitingForHuman;
    let pending = records.questions.iter().filter(|question| question.status != QuestionStatus::Closed).count();
    // What a sub-agent asks stands with its own run.
    let has_task_under_way = records.calls.iter().any(|call| call.name.is_task() && call.status == CallStatus::Running);
    // Behind a person's correction the next owner goes on.
    let is_settled = records.questions.iter().any(|question| question.closed_because.is_some());
    if waits && pending == 0 && !has_task_under_way && !is_settled {
        found.add("waiting_has_a_question", &records.run.run_id, "waits for a person, but asks nothing");
    }
    for call in records.calls.iter().filter(|call| call.status == CallStatus::Unknown && call.resolution.is_none()) {
        let asked = records.questions.iter().any(|q| q.call_id.as_ref() == Some(&call.call_id));
        if waits && !asked && call.policy.on_unknown == OnUnknown::Hold && pending == 0 && !is_settled {
            found.add("waiting_has_a_question", &call.call_id, "its outcome is unknown and nobody is asked");
        }
    }
    for question in &records.questions {
        let answered = question.answer.is_some();
        if (question.status == QuestionStatus::Open && answered)
            || (question.status == QuestionStatus::Answered && !answered)
        {
            found.add("answers_are_used_once", &question.question_id, "its status and its answer do not fit together");
        }
    }
}

/// Turns are numbered 1, 2, 3 …, shared ones first; only the last may be open; a call belongs to a recorded turn.
fn turns(found: &mut Violations, records: &RunRecords) {
    let run = &records.run;
    let shared = run.shared_turns();
    let numbers: Vec<u32> = records.turns.iter().map(|turn| turn.turn).collect();
    let last = shared.saturating_add(u32::try_from(numbers.len()).unwrap_or(u32::MAX));
    if !(shared + 1..=last).eq(numbers.iter().copied()) {
        found.add("turns_are_counted", &run.run_id, format!("its turns are numbered {numbers:?}"));
    }
    let committed = records.turns.iter().filter(|turn| turn.committed_at.is_some()).count();
    if u32::try_from(committed) != Ok(run.own_turns()) || last > run.turn_index.saturating_add(1) {
        let why =
            format!("its row says {}, {committed} of {last} are committed", ua_core::counted(run.turn_index, "turn"));
        found.add("turns_are_counted", &run.run_id, why);
    }
    if crate::gateway::is_gateway(run) {
        return; // no model asked for its calls, so they are in no turn
    }
    for call in &records.calls {
        let turn = call.position.turn;
        if turn <= shared || turn > last {
            found.add(
                "decided_before_sent",
                &call.call_id,
                format!("belongs to turn {turn}, whose reply was never recorded"),
            );
        }
        let in_doubt = call.status == CallStatus::Unknown
            && call.resolution.is_none()
            && call.policy.on_unknown != OnUnknown::Continue;
        let unfinished = matches!(call.status, CallStatus::Prepared | CallStatus::Running) || in_doubt;
        if turn <= run.turn_index && unfinished {
            found.add(
                "a_committed_turn_is_finished",
                &call.call_id,
                format!("is {} in turn {turn}, which is committed", call.status),
            );
        }
    }
}

/// Each tool use of a committed turn has exactly one result, and each result its tool use.
fn history(found: &mut Violations, records: &RunRecords) {
    let committed = records.messages.iter().filter(|message| message.turn <= records.run.turn_index);
    let (mut uses, mut results) = (BTreeMap::new(), BTreeMap::new());
    for message in committed {
        for block in &message.message.blocks {
            match block {
                Block::ToolUse(tool_use) => *uses.entry((message.turn, tool_use.id.clone())).or_insert(0_u32) += 1,
                Block::ToolResult { tool_use_id, .. } => {
                    *results.entry((message.turn, tool_use_id.clone())).or_insert(0_u32) += 1;
                }
                Block::Text { .. } | Block::Opaque { .. } => {}
            }
        }
    }
    for ((turn, id), count) in &uses {
        let answers = results.get(&(*turn, id.clone())).copied().unwrap_or(0);
        if *count != 1 || answers != 1 {
            found.add(
                "one_result_per_tool_use",
                format!("turn {turn}, tool use {id}"),
                format!("has {answers}", answers = ua_core::counted(answers, "result")),
            );
        }
    }
    for (turn, id) in results.keys().filter(|key| !uses.contains_key(*key)) {
        found.add("one_result_per_tool_use", format!("turn {turn}, tool use {id}"), "a result without its tool use");
    }
}

/// A checkpoint stands at a turn that was committed.
fn checkpoints(found: &mut Violations, records: &RunRecords) {
    for checkpoint in &records.checkpoints {
        let turn = checkpoint.cursor.get("turn_index").and_then(serde_json::Value::as_u64);
        if turn.is_none_or(|turn| turn > u64::from(records.run.turn_index)) {
            let why = format!("stands at turn {turn:?} of {}", records.run.turn_index);
            found.add("checkpoints_stand_on_commits", &checkpoint.checkpoint_id, why);
        }
    }
}

/// A request to the model is charged once; nothing stays reserved once the run ended. What brought a reply is charged as its provider counted, or,
/// where that counted nothing or not all of it, as estimated.
fn requests(found: &mut Violations, records: &RunRecords) {
    let is_for_a_reply =
        |request: &&RequestRecord| matches!(request.status, RequestStatus::Actual | RequestStatus::Partial);
    let charged: BTreeSet<u32> = records.requests.iter().filter(is_for_a_reply).map(|request| request.turn).collect();
    let uncharged: Vec<u32> =
        records.turns.iter().map(|turn| turn.turn).filter(|turn| !charged.contains(turn)).collect();
    if !uncharged.is_empty() {
        let why = format!(
            "{}, and for the replies of {uncharged:?} nothing is charged",
            ua_core::counted(records.turns.len(), "turn")
        );
        found.add("each_request_is_charged_once", &records.run.run_id, why);
    }
    for request in &records.requests {
        let is_open = request.status == RequestStatus::Reserved;
        if is_open != request.closed_at.is_none() || (is_open && records.run.status.is_terminal()) {
            let row = format!("request {}", request.request_id);
            found.add("each_request_is_charged_once", row, "is neither charged nor under way");
        }
    }
}

/// A run that ended has nothing under way. A doubt that it went on without is no part of it any more: its question stays open
/// for whoever looks later.
fn end(found: &mut Violations, records: &RunRecords) {
    if records.run.status != RunStatus::Succeeded {
        return;
    }
    for call in &records.calls {
        if matches!(call.status, CallStatus::Prepared | CallStatus::Running) {
            found.add(
                "a_finished_run_is_finished",
                &call.call_id,
                format!("is {} in a run that succeeded", call.status),
            );
        }
    }
    let is_gone_on_without = |call: &CallId| {
        let call = records.call(call);
        call.is_some_and(|c| c.status == CallStatus::Unknown && c.resolution == Some(Resolution::Skipped))
    };
    for question in records.questions.iter().filter(|question| question.status == QuestionStatus::Open) {
        if question.call_id.as_ref().is_some_and(is_gone_on_without) {
            continue;
        }
        found.add("a_finished_run_is_finished", &question.question_id, "is open in a run that succeeded");
    }
}

#[cfg(all(test, feature = "conformance"))]
#[expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
mod tests {
    use ua_core::{CallStatus, Usage};

    use super::*;
    use crate::commit::RequestEnd;
    use crate::conformance::{Scene, samples};
    use crate::{LedgerStore as _, MemStore, RunStore as _, UnknownResolution};

    async fn run_with(calls: &[(&str, CallStatus)]) -> (RunRecords, Vec<EventRecord>) {
        let store = MemStore::default();
        let scene = Scene::begin(&store, "run_1").await;
        for (id, status) in calls {
            scene.call_that_is(id, *status).await;
        }
        let records = store.load(scene.run_id()).await.unwrap();
        let mut events = Vec::new();
        for call in &records.calls {
            events.extend(store.events(&call.call_id).await.unwrap());
        }
        (records, events)
    }

    fn names(violations: &[Violation]) -> Vec<&'static str> {
        violations.iter().map(|violation| violation.invariant).collect()
    }

    #[tokio::test]
    async fn what_the_store_wrote_violates_nothing() {
        for status in CallStatus::ALL {
            let (records, events) = run_with(&[("call_1", *status)]).await;
            assert_eq!(check(&records, &events), [], "{status}");
        }
    }

    /// Of a reply its provider counts all, one half, nothing, or, what is the same, no tokens at all: each is charged, and nothing is wrong with that.
    #[tokio::test]
    async fn a_reply_that_nobody_counted_violates_nothing() {
        let of_input = Usage { input_tokens: 70, ..Usage::default() };
        let of_output = Usage { output_tokens: 80, ..Usage::default() };
        for told in [None, Some(Usage::default()), Some(of_input), Some(of_output), Some(samples::usage())] {
            let store = MemStore::default();
            let scene = Scene::begin(&store, "run_1").await;
            // A request that was lost before it is charged as well, and is none of the reply's.
            let lost = store.reserve_request(&scene.lease, samples::reservation(1)).await.unwrap();
            store.close_request(&scene.lease, lost, RequestEnd::Baseline, samples::at(3)).await.unwrap();
            let request = store.reserve_request(&scene.lease, samples::reservation(1)).await.unwrap();
            let mut draft = samples::draft(&scene.step, 1, request, Vec::new());
            draft.reply.usage = told;
            store.record_turn(&scene.lease, draft).await.unwrap();
            let records = scene.records().await;
            let mut broken = check(&records, &[]);
            broken.extend(check_agreement(&records, &[]));
            broken.extend(check_family(std::slice::from_ref(&records)));
            broken.extend(check_agreement_of_family(std::slice::from_ref(&records)));
            assert_eq!(broken, [], "{told:?}");
        }
    }

    #[tokio::test]
    async fn a_gap_between_two_statuses_is_seen() {
        let (records, mut events) = run_with(&[("call_1", CallStatus::Succeeded)]).await;
        events.retain(|event| event.to != CallStatus::Running);
        assert_eq!(names(&check(&records, &events)), ["legal_transitions"]);
    }

    #[tokio::test]
    async fn a_second_send_that_nothing_allows_is_seen() {
        let (mut records, events) = run_with(&[("call_1", CallStatus::Succeeded)]).await;
        let mut again = records.attempts[0].clone();
        again.attempt = 2;
        records.attempts.push(again);
        records.calls[0].attempt = 2;
        records.calls[0].policy.on_unknown = OnUnknown::Hold;
        assert_eq!(names(&check(&records, &events)), ["never_twice"]);
        records.attempts[0].outcome = Some("not_sent".to_owned());
        assert_eq!(check(&records, &events), []);
    }

    #[tokio::test]
    async fn a_finished_run_may_leave_a_question_about_what_it_went_on_without() {
        let store = MemStore::default();
        let scene = Scene::begin(&store, "run_1").await;
        scene.call_that_is("call_1", CallStatus::Unknown).await;
        store.raise_question(&scene.lease, samples::question("q_1", Some("call_1"))).await.unwrap();
        let call = samples::call_id("call_1");
        let read = async |status| {
            let mut records = store.load(scene.run_id()).await.unwrap();
            records.run.status = status;
            check(&records, &store.events(&call).await.unwrap())
        };
        assert!(names(&read(RunStatus::Succeeded).await).contains(&"a_finished_run_is_finished"));
        let skipped = UnknownResolution::Skipped;
        store.resolve_unknown(&scene.lease, &call, skipped, None, samples::at(30)).await.unwrap();
        assert!(!names(&read(RunStatus::Succeeded).await).contains(&"a_finished_run_is_finished"));
    }

    #[tokio::test]
    async fn each_statement_is_seen_when_it_is_broken() {
        type Break = fn(&mut RunRecords);
        let (whole, events) = run_with(&[("call_1", CallStatus::Succeeded)]).await;
        let breaks: [(&str, Break); 10] = [
            ("attempts_are_counted", |r| r.attempts.clear()),
            ("intent_before_act", |r| r.calls[0].idempotency_key = None),
            ("success_has_a_receipt", |r| r.receipts.clear()),
            ("one_receipt_per_attempt", |r| r.receipts.push(r.receipts[0].clone())),
            ("epochs_rise", |r| r.run.lease_epoch = 0),
            ("waiting_has_a_question", |r| r.run.status = RunStatus::WaitingForHuman),
            ("turns_are_counted", |r| r.run.turn_index = 7),
            ("decided_before_sent", |r| r.turns.clear()),
            ("each_request_is_charged_once", |r| r.requests.clear()),
            ("each_request_is_charged_once", |r| r.requests[0].status = RequestStatus::Baseline),
        ];
        for (invariant, break_it) in breaks {
            let mut records = whole.clone();
            break_it(&mut records);
            assert!(names(&check(&records, &events)).contains(&invariant), "{invariant}");
        }
    }

    #[tokio::test]
    async fn a_result_without_its_tool_use_is_seen() {
        let (mut records, events) = run_with(&[]).await;
        records.messages[0].message.blocks.push(Block::ToolResult {
            tool_use_id: "toolu_9".to_owned(),
            content: "done".into(),
            is_error: false,
        });
        assert_eq!(names(&check(&records, &events)), ["one_result_per_tool_use"]);
    }
}
