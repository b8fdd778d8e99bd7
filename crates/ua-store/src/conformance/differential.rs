//! The same random writes for two stores: they answer alike, and their rows are equal.

use ua_core::{
    CallStatus, CorrectedTo, Entropy as _, EvidenceLevel, Message, Origin, QuestionId, QuestionText, RawReply,
    Resolution, RunStatus, SeededEntropy, Settlement, StepStatus, ToolContent, Usage,
};

use super::samples::{self, at, call_id, key, question_id, run_id};
use super::{Scene, cancel, recalled};
use crate::archive_store::RunDeletion;
use crate::blob_store::BlobPrune;
use crate::commit::{
    AttemptEnd, CallCancel, CorrectCall, RequestEnd, SettleAttempt, StartAttempt, StepEnd, UnknownResolution,
};
use crate::error::StoreError;
use crate::overrides::OverrideKind;
use crate::record::{Choice, EventRecord, QuestionStatus, ReplayStatus, RequestStatus, RunLease, RunRecords};
use crate::{Durability, Keep, LedgerStore, RunStore, Store, Turns, invariants};

const RUNS: [&str; 3] = ["run_1", "run_2", "run_3"];

/// Applies `writes` random writes, decided by `seed`, to both stores, and compares every answer and, after each write, the
/// rows of the run that was written to. Rows of `model` steer the choice, so that most writes are plausible. Returns how
/// many writes were accepted.
pub async fn agree(model: &dyn Store, other: &dyn Store, seed: u64, writes: u32) -> u32 {
    write_at_random(model, other, seed, writes, false).await
}

/// The same, and between the other writes a person deletes runs, finished or not, and large results are pruned. A deletion breaks no statement
/// that held before it, and leaves nothing open that nobody comes back to.
pub async fn agree_beside_deletions(model: &dyn Store, other: &dyn Store, seed: u64, writes: u32) -> u32 {
    write_at_random(model, other, seed, writes, true).await
}

async fn write_at_random(model: &dyn Store, other: &dyn Store, seed: u64, writes: u32, with_deletions: bool) -> u32 {
    let dice = Dice(SeededEntropy::new(seed));
    for store in [model, other] {
        Scene::begin(store, "run_1").await;
        Scene::begin_with(store, samples::child_run("run_2", "run_1")).await;
        Scene::begin(store, "run_3").await;
    }
    let mut accepted = 0;
    for number in 0..writes {
        let id = run_id(RUNS[dice.below(3)]);
        let Ok(records) = model.load(&id).await else {
            assert!(with_deletions && other.load(&id).await.is_err(), "seed {seed}, write {number}");
            continue;
        };
        let write = match with_deletions.then(|| dice.below(60)) {
            Some(0 | 1) => Write::Delete { force: !dice.one_in(4) },
            Some(2 | 3) => Write::Prune,
            Some(_) | None => choose(&dice, &records, number),
        };
        let deletes = matches!(write, Write::Delete { .. });
        let broken_before = if deletes { Some(broken(model, &records).await) } else { None };
        // Nothing is drawn for it, so that the story stays the same.
        let words = Words { with_nul: number % 3 == 0 };
        let (ours, theirs) = (apply(model, &records, &write, words).await, apply(other, &records, &write, words).await);
        assert_eq!(ours, theirs, "seed {seed}, write {number}: {write:?}");
        let is_accepted = ours.starts_with("Ok");
        accepted += u32::from(is_accepted);
        let Ok(ours) = model.load(&id).await else {
            assert!(deletes && other.load(&id).await.is_err(), "seed {seed}, write {number}: {write:?}");
            continue;
        };
        if let Some(before) = broken_before.filter(|_| is_accepted) {
            let found = broken(model, &ours).await;
            let news: Vec<_> = found.iter().filter(|found| !before.contains(found)).collect();
            assert_eq!(news, [""; 0], "seed {seed}, write {number}: {write:?}");
            let reserved = ours.requests.iter().filter(|request| request.status == RequestStatus::Reserved).count();
            let waiting = ours.questions.iter().filter(|asked| asked.status != QuestionStatus::Closed).count();
            assert_eq!((reserved, waiting), (0, 0), "seed {seed}, write {number}: {write:?}");
        }
        let theirs = other.load(&id).await.unwrap();
        assert_eq!(ours, theirs, "seed {seed}, write {number}: {write:?}");
        let keep = Keep {
            turns: u32::try_from(dice.below(4)).unwrap(),
            calls: u32::try_from(dice.below(4)).unwrap(),
            bytes: dice.below(1_500) as u64,
        };
        let left = ours.clone().leave_out(keep);
        // What a store keeps of one reading for the next ones says the same to each.
        for reading in 1..=4 {
            let theirs = other.load_standing(&id, keep).await.unwrap();
            is_told_apart_from_nothing(&ours, &theirs);
            assert_eq!(left, theirs, "seed {seed}, write {number}, {keep:?}, reading {reading}: {write:?}");
        }
        let (behind, most) = (u32::try_from(dice.below(5)).unwrap(), u32::try_from(dice.below(5)).unwrap());
        let of = Turns::Markers(behind, most);
        let (ours, theirs) = (model.load_of(&id, of).await.unwrap(), other.load_of(&id, of).await.unwrap());
        assert_eq!(ours, theirs, "seed {seed}, write {number}, {of:?}");
    }
    same_reads(model, other, seed).await;
    let look = BlobPrune { used_before: Some(at(99_999)), max_bytes: Some(1), dry_run: true, at: at(1) };
    let (ours, theirs) = (model.prune_blobs(look.clone()).await, other.prune_blobs(look).await);
    assert_eq!(ours.unwrap(), theirs.unwrap(), "seed {seed}");
    accepted
}

/// What `ua db check --invariants` says of a run.
async fn broken(store: &dyn Store, records: &RunRecords) -> Vec<String> {
    let mut events = Vec::new();
    for call in &records.calls {
        events.extend(store.events(&call.call_id).await.unwrap());
    }
    invariants::check(records, &events).iter().map(ToString::to_string).collect()
}

/// Whatever was left out of a run is counted: sums over what is there and what is not are those over the whole.
fn is_told_apart_from_nothing(whole: &RunRecords, standing: &RunRecords) {
    let starts = whole.steps.iter().map(|step| step.first_turn).chain([0]);
    for first in starts {
        assert_eq!(standing.calls_from(first), whole.calls_from(first));
        let tokens = |records: &RunRecords| {
            let here = records.requests.iter().filter(|request| request.turn >= first).map(|r| r.usage.total());
            let left_out = records.left_out.requests_from(first).map(|sum| sum.usage.total());
            here.chain(left_out).sum::<u64>()
        };
        assert_eq!(tokens(standing), tokens(whole));
    }
    for status in CallStatus::ALL {
        assert_eq!(standing.calls_in(*status), whole.calls_in(*status));
    }
    let open = |records: &RunRecords| records.calls.iter().filter(|call| !call.status.is_settled()).count();
    assert_eq!((open(standing), &standing.questions), (open(whole), &whole.questions));
}

/// Events with places counted from one: what a store refused may have taken a place, and left it empty.
fn placed(mut events: Vec<EventRecord>) -> Vec<EventRecord> {
    assert!(events.is_sorted_by(|one, next| one.seq < next.seq), "{events:?}");
    (1..).zip(&mut events).for_each(|(place, event)| event.seq = place);
    events
}

async fn same_reads(model: &dyn Store, other: &dyn Store, seed: u64) {
    assert_eq!(model.runs(9).await.unwrap(), other.runs(9).await.unwrap(), "seed {seed}");
    assert_eq!(model.unknown_calls().await.unwrap(), other.unknown_calls().await.unwrap(), "seed {seed}");
    assert_eq!(model.open_questions(None).await.unwrap(), other.open_questions(None).await.unwrap(), "seed {seed}");
    for name in RUNS {
        let id = run_id(name);
        if model.load(&id).await.is_err() {
            assert!(other.load(&id).await.is_err(), "seed {seed}");
            continue; // it was deleted with all of its lineage
        }
        assert_eq!(model.history(&id).await.unwrap(), other.history(&id).await.unwrap(), "seed {seed}");
        for call in model.calls(&id, None).await.unwrap() {
            let events = (model.events(&call.call_id).await.unwrap(), other.events(&call.call_id).await.unwrap());
            assert_eq!(placed(events.0), placed(events.1), "seed {seed}");
            assert_eq!(
                model.receipt(&call.call_id).await.unwrap(),
                other.receipt(&call.call_id).await.unwrap(),
                "seed {seed}"
            );
            let of_another = Some(ua_core::Scope::new("email.send", "boss@example.com"));
            for scope in [None, call.scope.clone(), of_another] {
                let related = (
                    model.relations(&call.call_id, scope.as_ref()).await,
                    other.relations(&call.call_id, scope.as_ref()).await,
                );
                assert_eq!(related.0.unwrap(), related.1.unwrap(), "seed {seed}, {} with {scope:?}", call.call_id);
            }
            if let Some(key) = &call.idempotency_key {
                let holders =
                    (model.key_holder(&call.root_run_id, key).await, other.key_holder(&call.root_run_id, key).await);
                assert_eq!(holders.0.unwrap(), holders.1.unwrap(), "seed {seed}");
            }
        }
    }
}

struct Dice(SeededEntropy);

impl Dice {
    fn below(&self, limit: usize) -> usize {
        usize::try_from(self.0.next_u64() % limit as u64).unwrap()
    }

    fn one_in(&self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    fn pick<'t, T>(&self, things: &'t [T]) -> Option<&'t T> {
        (!things.is_empty()).then(|| &things[self.below(things.len())])
    }
}

/// A write with everything that is random about it decided.
#[derive(Debug)]
enum Write {
    Acquire,
    Park { status: RunStatus, stale: bool },
    Step { name: String, close: Option<StepStatus> },
    Request { turn: u32, close: Option<RequestEnd> },
    LostRequests,
    Heard { request: u64, output: u64 },
    Name { request: u64, response: String, stale: bool },
    Turn { turn: u32, request: u64, calls: u32, with_usage: bool },
    Commit { turn: u32, name: String },
    Note { origin: Origin, text: String, stale: bool },
    Checkpoint { name: String },
    Start { call: String, attempt: u32, key: String, max: Option<u32>, approval: Option<QuestionId>, stale: bool },
    Settle { call: String, attempt: u32, end: Box<AttemptEnd> },
    Interpret { call: String, status: CallStatus },
    Deduplicate { call: String, from: String, key: String },
    Cancel { calls: Vec<String> },
    MarkLost,
    Happened { call: String, question: Option<QuestionId> },
    Skip { call: String, question: Option<QuestionId> },
    Correct { call: String, outcome: CorrectedTo, is_idle: bool },
    Recall { call: String, attempts: u32, did_nothing: bool },
    Replay { call: String },
    Ask { name: String, call: Option<String> },
    Answer { question: String, choice: Choice },
    Close { question: String, is_withdrawn: bool },
    Override { component: String, value: u32 },
    RequestCancel,
    Delete { force: bool },
    Prune,
}

/// Half of the writes go on with the run as its driver would; the others are anything.
fn choose(dice: &Dice, records: &RunRecords, number: u32) -> Write {
    if dice.one_in(2) { go_on(dice, records, number) } else { anything(dice, records, number) }
}

fn go_on(dice: &Dice, records: &RunRecords, number: u32) -> Write {
    if records.run.status != RunStatus::Running {
        return Write::Acquire;
    }
    let Some(open) = records.open_turn() else {
        let turn = records.run.turn_index + 1;
        let current = records.steps.last().filter(|step| step.status == StepStatus::Running);
        let reserved = records.requests.last().filter(|request| request.status == RequestStatus::Reserved);
        return match (current, reserved) {
            (None, _) => Write::Step { name: format!("step_{number}"), close: None },
            (Some(_), None) => Write::Request { turn, close: None },
            (Some(_), Some(request)) => {
                let calls = u32::try_from(dice.below(4)).unwrap();
                Write::Turn { turn, request: request.request_id, calls, with_usage: true }
            }
        };
    };
    let is_open = |call: &&crate::CallRecord| !call.status.is_settled() && call.resolution != Some(Resolution::Skipped);
    let unsettled: Vec<_> = records.calls.iter().filter(is_open).collect();
    let Some(call) = dice.pick(&unsettled) else {
        return Write::Commit { turn: open.turn, name: format!("ckpt_{number}") };
    };
    let (id, attempt) = (call.call_id.to_string(), call.attempt);
    let is_answered =
        |a: &crate::AttemptRecord| a.call_id == call.call_id && a.attempt == attempt && a.ended_at.is_some();
    if call.status == CallStatus::Running && records.attempts.iter().any(is_answered) {
        Write::Interpret { call: id, status: *dice.pick(&OUTCOMES).unwrap() }
    } else if call.status == CallStatus::Running {
        Write::Settle { call: id, attempt, end: Box::new(end(dice)) }
    } else if call.status == CallStatus::Unknown && dice.one_in(2) {
        Write::Skip { call: id, question: None }
    } else {
        let key = if call.idempotency_key.is_some() { "stored".to_owned() } else { format!("k{number}") };
        Write::Start { call: id, attempt: attempt + 1, key, max: None, approval: None, stale: false }
    }
}

const OUTCOMES: [CallStatus; 4] =
    [CallStatus::Succeeded, CallStatus::FailedDefinite, CallStatus::FailedReported, CallStatus::Unknown];

fn end(dice: &Dice) -> AttemptEnd {
    let settlement = Some(samples::settlement(*dice.pick(&OUTCOMES).unwrap()));
    match dice.below(5) {
        0 => AttemptEnd::NotSent { why: "refused".to_owned() },
        1 => AttemptEnd::Lost { why: "cut".to_owned() },
        2 => AttemptEnd::Replied { raw: samples::raw(), settlement: None },
        3 => AttemptEnd::Replied { raw: samples::raw(), settlement },
        _ => large_reply(settlement),
    }
}

/// A reply that is kept as a blob, one of a few.
fn large_reply(mut settlement: Option<Settlement>) -> AttemptEnd {
    let text = format!("{settlement:?} {}", "x".repeat(20_000));
    let raw = RawReply::ToolResult { result: serde_json::json!({"content": [{"type": "text", "text": text}]}) };
    if let Some(settlement) = &mut settlement {
        settlement.content = Some(ToolContent { text: text.into(), is_error: false });
    }
    AttemptEnd::Replied { raw, settlement }
}

fn anything(dice: &Dice, records: &RunRecords, number: u32) -> Write {
    let next = records.run.turn_index + 1;
    let turn = if dice.one_in(12) { next + 1 } else { next };
    let name = |kind: &str| format!("{kind}_{number}");
    let call = |wanted: &[CallStatus]| {
        let plausible: Vec<_> =
            records.calls.iter().filter(|call| wanted.contains(&call.status) || dice.one_in(8)).collect();
        dice.pick(&plausible).copied()
    };
    let call_name =
        |wanted: &[CallStatus]| call(wanted).map_or_else(|| "call_0".to_owned(), |call| call.call_id.to_string());
    let question = |status: QuestionStatus| {
        let waiting: Vec<_> = records.questions.iter().filter(|question| question.status == status).collect();
        dice.pick(&waiting).map(|question| question.question_id.clone())
    };
    let stale = dice.one_in(10);
    match dice.below(32) {
        0 if dice.one_in(4) => Write::Recall {
            call: call_name(&[CallStatus::Prepared, CallStatus::Running, CallStatus::Unknown]),
            attempts: u32::try_from(1 + dice.below(3)).unwrap(),
            did_nothing: dice.one_in(4),
        },
        0 => Write::Acquire,
        1 if dice.one_in(3) => Write::Park {
            status: *dice.pick(&[RunStatus::Stopped, RunStatus::WaitingForHuman, RunStatus::Running]).unwrap(),
            stale,
        },
        1 | 2 => Write::Step { name: name("step"), close: None },
        3 => Write::Step {
            name: dice.pick(&records.steps).map_or_else(|| name("step"), |step| step.step_id.to_string()),
            close: dice.pick(&[StepStatus::Succeeded, StepStatus::Blocked, StepStatus::Ready]).copied(),
        },
        4 | 5 => Write::Request { turn, close: None },
        6 => Write::Request {
            turn: u32::try_from(dice.below(records.requests.len() + 2)).unwrap(),
            close: dice
                .pick(&[
                    RequestEnd::Zero,
                    RequestEnd::Baseline,
                    RequestEnd::Actual(samples::usage()),
                    RequestEnd::Partial(samples::usage()),
                ])
                .copied(),
        },
        7 => Write::LostRequests,
        8..=10 => Write::Turn {
            turn,
            request: records.requests.last().map_or(1, |request| request.request_id),
            calls: u32::try_from(dice.below(4)).unwrap(),
            with_usage: !dice.one_in(4),
        },
        11 | 12 => Write::Commit { turn, name: if dice.one_in(9) { "ckpt_x".to_owned() } else { name("ckpt") } },
        13 => {
            let origins = [Origin::Guidance, Origin::Guidance, Origin::Resume, Origin::Phase, Origin::Iteration];
            Write::Note { origin: origins[dice.below(origins.len())], text: format!("note {}", dice.below(2)), stale }
        }
        14 => Write::Checkpoint { name: if dice.one_in(3) { "ckpt_x".to_owned() } else { name("ckpt") } },
        15..=18 => {
            let call = call(&[CallStatus::Prepared, CallStatus::FailedDefinite, CallStatus::Unknown]);
            let stored = call.and_then(|call| call.idempotency_key.clone());
            let key =
                if stored.is_some() && !dice.one_in(9) { "stored".to_owned() } else { format!("k{}", dice.below(6)) };
            Write::Start {
                call: call.map_or_else(|| "call_0".to_owned(), |call| call.call_id.to_string()),
                attempt: call.map_or(1, |call| call.attempt + 1) + u32::from(dice.one_in(12)),
                key,
                max: dice.one_in(3).then(|| u32::try_from(dice.below(4)).unwrap()),
                approval: if dice.one_in(3) { question(QuestionStatus::Answered) } else { None },
                stale,
            }
        }
        19..=21 => {
            let call = call(&[CallStatus::Running]);
            Write::Settle {
                call: call.map_or_else(|| "call_0".to_owned(), |call| call.call_id.to_string()),
                attempt: call.map_or(1, |call| call.attempt),
                end: Box::new(end(dice)),
            }
        }
        22 => Write::Interpret { call: call_name(&[CallStatus::Running]), status: *dice.pick(&OUTCOMES).unwrap() },
        23 => Write::Deduplicate {
            call: call_name(&[CallStatus::Prepared]),
            from: call_name(&[CallStatus::Succeeded]),
            key: "stored".to_owned(),
        },
        24 => Write::Cancel { calls: (0..=dice.below(2)).map(|_| call_name(&[CallStatus::Prepared])).collect() },
        25 => Write::MarkLost,
        26 => {
            let (call, question) = (call_name(&[CallStatus::Unknown]), question(QuestionStatus::Answered));
            if dice.one_in(2) { Write::Happened { call, question } } else { Write::Skip { call, question } }
        }
        29 => Write::Override {
            component: ["max_turns", "max_tokens"][dice.below(2)].to_owned(),
            value: u32::try_from(dice.below(3)).unwrap(),
        },
        27 if dice.one_in(25) => Write::RequestCancel,
        27 if dice.one_in(2) => Write::Correct {
            call: call_name(&OUTCOMES),
            outcome: *dice.pick(&[CorrectedTo::Happened, CorrectedTo::NotHappened, CorrectedTo::Skipped]).unwrap(),
            is_idle: dice.one_in(2),
        },
        27 => Write::Replay { call: call_name(CallStatus::ALL) },
        28 => Write::Ask {
            name: name("q"),
            call: (!dice.one_in(4)).then(|| call_name(&[CallStatus::Unknown, CallStatus::Prepared])),
        },
        31 if dice.one_in(2) => Write::Heard {
            request: u64::try_from(dice.below(records.requests.len() + 2)).unwrap(),
            output: u64::try_from(dice.below(500)).unwrap(),
        },
        31 => Write::Name {
            request: u64::try_from(dice.below(records.requests.len() + 2)).unwrap(),
            response: format!("resp_{}", dice.below(3)),
            stale,
        },
        _ => {
            let open = question(QuestionStatus::Open).map_or_else(|| "q_0".to_owned(), |id| id.to_string());
            if dice.one_in(4) {
                let answered = question(QuestionStatus::Answered).map(|id| id.to_string()).filter(|_| dice.one_in(2));
                Write::Close { question: answered.unwrap_or(open), is_withdrawn: dice.one_in(2) }
            } else {
                Write::Answer {
                    question: open,
                    choice: *dice.pick(&[Choice::Execute, Choice::Skip, Choice::Continue]).unwrap(),
                }
            }
        }
    }
}

/// How what is said in a write is said: as it is, or with U+0000 in it, as tools, models and people may.
#[derive(Debug, Clone, Copy)]
struct Words {
    with_nul: bool,
}

impl Words {
    fn of(self, text: &str) -> String {
        if self.with_nul { format!("{text}\0\0!") } else { text.to_owned() }
    }

    fn spoil<const N: usize>(self, texts: [&mut Option<String>; N]) {
        for text in texts.into_iter().flatten() {
            *text = self.of(text);
        }
    }

    fn of_settlement(self, mut settlement: Settlement) -> Settlement {
        let Settlement { external_correlation_id, error_code, error_detail, .. } = &mut settlement;
        self.spoil([external_correlation_id, error_code, error_detail]);
        settlement
    }

    fn of_end(self, end: AttemptEnd) -> AttemptEnd {
        match end {
            AttemptEnd::NotSent { why } => AttemptEnd::NotSent { why: self.of(&why) },
            AttemptEnd::Lost { why } => AttemptEnd::Lost { why: self.of(&why) },
            AttemptEnd::Replied { raw, settlement } => {
                AttemptEnd::Replied { raw, settlement: settlement.map(|settlement| self.of_settlement(settlement)) }
            }
        }
    }
}

/// Applies `write` and tells its outcome, refusals included.
async fn apply(store: &dyn Store, records: &RunRecords, write: &Write, words: Words) -> String {
    let run = &records.run;
    let id = run.owner.as_ref().map_or_else(|| samples::owner(0).trace, |owner| owner.trace.clone());
    let newest = RunLease { run_id: run.run_id.clone(), epoch: run.lease_epoch, id };
    let older = RunLease { epoch: run.lease_epoch.saturating_sub(1), ..newest.clone() };
    let lease = |stale: bool| if stale { &older } else { &newest };
    let step = run.current_step_id.as_ref().map_or("step_0", |step| step.as_str());
    let stored_key =
        |call: &str, text: &str| match records.call(&call_id(call)).and_then(|call| call.idempotency_key.clone()) {
            Some(stored) if text == "stored" => stored,
            _ => key(text),
        };
    let now = at(100);
    match write {
        Write::Acquire => told(store.acquire_run(&run.run_id, &samples::owner(200), now).await),
        Write::Park { status, stale } => {
            let mut end = samples::run_end(*status);
            words.spoil([&mut end.detail, &mut end.final_output, &mut end.final_artifact_ref]);
            told(store.end_run(lease(*stale), end).await)
        }
        Write::Step { name, close: None } => told(store.open_step(&newest, samples::new_step(name)).await),
        Write::Step { name, close: Some(status) } => {
            let error_detail = Some(words.of("it broke"));
            told(store.close_step(&newest, StepEnd { error_detail, ..samples::step_end(name, *status) }).await)
        }
        Write::Request { turn, close: None } => {
            let mut reservation = samples::reservation(*turn);
            reservation.model = words.of(&reservation.model);
            told(store.reserve_request(&newest, reservation).await)
        }
        Write::Request { turn, close: Some(end) } => {
            told(store.close_request(&newest, u64::from(*turn), *end, now).await)
        }
        Write::LostRequests => told(store.close_lost_requests(&newest, now).await),
        Write::Heard { request, output } => {
            let heard = Usage { output_tokens: *output, ..samples::usage() };
            told(store.note_usage(&newest, *request, heard).await)
        }
        Write::Name { request, response, stale } => {
            told(store.note_response(lease(*stale), *request, &words.of(response)).await)
        }
        Write::Turn { turn, request, calls, with_usage } => {
            let calls = (1..=*calls).map(|n| {
                let id = format!("call_{}_{turn}_{n}", run.run_id);
                let mut call = if n % 2 == 0 {
                    samples::planned_call(&id, *turn, n)
                } else {
                    samples::planned_email(&id, *turn, n)
                };
                (call.name.raw, call.name.tool) = (words.of(&call.name.raw), words.of(&call.name.tool));
                call
            });
            let mut draft = samples::draft(step, *turn, *request, calls.collect());
            draft.reply.usage = with_usage.then(samples::usage);
            draft.reply.model = words.of(&draft.reply.model);
            words.spoil([&mut draft.reply.response_id]);
            told(store.record_turn(&newest, draft).await)
        }
        Write::Commit { turn, name } => told(store.commit_turn(&newest, samples::commit(step, *turn, name)).await),
        Write::Note { origin, text, stale } => {
            let notes = vec![Message::user(*origin, text.as_str())];
            told(store.append_messages(lease(*stale), notes, now).await)
        }
        Write::Checkpoint { name } => told(store.save_checkpoint(&newest, samples::checkpoint(name, step)).await),
        Write::Start { call, attempt, key, max, approval, stale } => {
            let start = StartAttempt {
                key: stored_key(call, key),
                max_effects: *max,
                approved_by: approval.clone(),
                ..samples::start(call, *attempt, "k")
            };
            let counted = match (max, store.around(&start.call_id, None, None, max.unwrap_or_default()).await) {
                (Some(max), Ok(around)) if around.call.policy.effect_kind.is_some() => {
                    Some(around.other_effects >= *max)
                }
                (_, _) => None,
            };
            let started = store.start_attempt(lease(*stale), start).await;
            if let (Some(is_over), Ok(_) | Err(StoreError::EffectLimit { .. })) = (counted, &started) {
                assert_eq!(is_over, started.is_err(), "what is read of a call is what its start goes by: {started:?}");
            }
            told(started)
        }
        Write::Settle { call, attempt, end } => {
            let settle: SettleAttempt = samples::ended(call, *attempt, words.of_end(AttemptEnd::clone(end)));
            told(store.settle_attempt(&newest, settle).await)
        }
        Write::Interpret { call, status } => {
            let settlement = words.of_settlement(samples::settlement(*status));
            told(store.interpret_receipt(&newest, &call_id(call), settlement, Durability::Relaxed, now).await)
        }
        Write::Deduplicate { call, from, key } => {
            let key = stored_key(from, key);
            told(store.deduplicate_call(&newest, &call_id(call), &call_id(from), &key, now).await)
        }
        Write::Cancel { calls } => {
            let cancels = calls.iter().map(|call| cancel(call));
            let cancels = cancels.map(|cancel| CallCancel { message: words.of(&cancel.message), ..cancel });
            told(store.cancel_calls(&newest, cancels.collect(), now).await)
        }
        Write::MarkLost => told(store.mark_lost(&newest, &words.of("died"), now).await),
        Write::Happened { call, question } => {
            let resolution = UnknownResolution::Happened {
                raw: samples::raw(),
                settlement: words.of_settlement(samples::settlement(CallStatus::Succeeded)),
                evidence: EvidenceLevel::Reconciled,
            };
            told(store.resolve_unknown(&newest, &call_id(call), resolution, question.as_ref(), now).await)
        }
        Write::Skip { call, question } => told(
            store.resolve_unknown(&newest, &call_id(call), UnknownResolution::Skipped, question.as_ref(), now).await,
        ),
        Write::Correct { call, outcome, is_idle } => {
            let Some(call) = records.call(&call_id(call)) else { return String::new() };
            let mut correct = CorrectCall { is_idle: *is_idle, ..samples::correct(call, *outcome, 100) };
            correct.correction.reason = words.of(&correct.correction.reason);
            words.spoil([&mut correct.correction.proof]);
            told(store.correct_call(correct).await)
        }
        Write::Recall { call, attempts, did_nothing } => {
            let Some(call) = records.call(&call_id(call)) else { return String::new() };
            let line = recalled::line(call, *attempts, *did_nothing);
            told(store.recall_call(recalled::recall(call, vec![line])).await)
        }
        Write::Replay { call } => told(store.note_replay(&newest, &call_id(call), ReplayStatus::Held, now).await),
        Write::Ask { name, call } => {
            let mut question = samples::question(name, call.as_deref());
            question.choices.push(Choice::Continue);
            question.text = QuestionText::new(&words.of(question.text.as_str()));
            told(store.raise_question(&newest, question).await)
        }
        Write::Answer { question, choice } => {
            let mut answer = samples::answer(question, *choice);
            answer.by = words.of(&answer.by);
            words.spoil([&mut answer.answer.proof, &mut answer.answer.text]);
            told(store.insert_answer(answer).await)
        }
        Write::Close { question, is_withdrawn: true } => {
            told(store.withdraw_question(&newest, &question_id(question), now).await)
        }
        Write::Close { question, is_withdrawn: false } => {
            told(store.close_question(&newest, &question_id(question), now).await)
        }
        Write::Override { component, value } => {
            let value = serde_json::json!(value);
            let mut new = samples::new_override(run.run_id.as_str(), OverrideKind::Budget, component, value);
            new.made_by = words.of(&new.made_by);
            told(store.insert_override(new).await)
        }
        Write::RequestCancel => told(store.request_cancel(&run.run_id, &words.of("enough"), now).await),
        Write::Delete { force } => {
            told(store.delete_run(&RunDeletion { run_id: run.run_id.clone(), force: *force, by: None, at: now }).await)
        }
        Write::Prune => {
            let prune = BlobPrune { used_before: Some(at(99_999)), max_bytes: None, dry_run: false, at: now };
            told(store.prune_blobs(prune).await)
        }
    }
}

fn told(outcome: impl std::fmt::Debug) -> String {
    format!("{outcome:?}")
}
