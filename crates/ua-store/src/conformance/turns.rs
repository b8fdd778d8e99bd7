//! Turns, the history, steps, checkpoints and what model requests cost.

use serde_json::json;
use ua_core::{CallStatus, Message, Money, Origin, Refusal, Resolution, Role, RunStatus, StepStatus, Usage};

use super::samples::{self, at, call_id, checkpoint_id, step_id};
use super::{Scene, refused};
use crate::commit::RequestEnd;
use crate::error::StoreError;
use crate::record::{CheckpointKind, RequestStatus};
use crate::{LedgerStore, RunStore, Store};

/// One write stores the reply, its cost and every call it asks for.
pub async fn a_turn_is_recorded_whole(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let planned = vec![samples::planned_call("call_1", 1, 1), samples::planned_email("call_2", 1, 2)];
    scene.turn(planned.clone()).await;

    let records = scene.records().await;
    let reply = samples::reply(1, &planned);
    let [turn] = records.turns.as_slice() else { panic!("{:?}", records.turns) };
    assert_eq!((turn.turn, turn.epoch, turn.committed_at, &turn.step_id), (1, 1, None, &step_id(&scene.step)));
    assert_eq!(turn.request_sha256, samples::request_digest(1));
    assert_eq!(turn.reply, ua_core::ModelTurn { blocks: Vec::new(), ..reply.clone() });
    assert_eq!(records.messages[1].message, reply.into_message());
    assert_eq!((records.messages[1].seq, records.messages[1].turn), (2, 1));
    let [request] = records.requests.as_slice() else { panic!("{:?}", records.requests) };
    assert_eq!(
        (request.status, request.usage, request.closed_at),
        (RequestStatus::Actual, samples::usage(), Some(at(4)))
    );

    assert_eq!(records.calls.len(), 2);
    for (call, planned) in records.calls.iter().zip(&planned) {
        assert_eq!((call.status, call.attempt, &call.idempotency_key), (CallStatus::Prepared, 0, &None));
        assert_eq!((&call.call_id, call.position, &call.name), (&planned.call_id, planned.position, &planned.name));
        assert_eq!(
            (&call.arguments, call.args_hash, &call.policy),
            (&planned.arguments, planned.args_hash, &planned.policy)
        );
        assert_eq!((&call.tool_use_id, call.tool_digest), (&planned.tool_use_id, planned.tool_digest));
        assert_eq!(&store.call(&call.call_id).await.unwrap(), call);
    }
    assert_eq!(store.calls(scene.run_id(), Some(1)).await.unwrap(), records.calls);
    assert_eq!(store.calls(scene.run_id(), Some(2)).await.unwrap(), Vec::new());
}

/// Only the next turn is recorded, only the recorded one is committed, and either once.
pub async fn a_turn_is_recorded_and_committed_once_by_its_number(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let (lease, step) = (&scene.lease, scene.step.as_str());
    refused(store.reserve_request(lease, samples::reservation(2)).await, "next turn is 1");
    let request = store.reserve_request(lease, samples::reservation(1)).await.unwrap();
    refused(store.record_turn(lease, samples::draft(step, 2, request, Vec::new())).await, "next turn is 1");
    refused(store.commit_turn(lease, samples::commit(step, 1, "ckpt_1")).await, "not recorded");
    store.record_turn(lease, samples::draft(step, 1, request, Vec::new())).await.unwrap();

    let recorded = scene.records().await;
    refused(store.record_turn(lease, samples::draft(step, 1, request, Vec::new())).await, "already recorded");
    refused(store.reserve_request(lease, samples::reservation(1)).await, "already recorded");
    refused(store.open_step(lease, samples::new_step("step_2")).await, "turn is open");
    refused(store.commit_turn(lease, samples::commit(step, 2, "ckpt_1")).await, "next turn is 1");
    assert_eq!(scene.records().await, recorded);

    let run = store.commit_turn(lease, samples::commit(step, 1, "ckpt_1")).await.unwrap();
    assert_eq!((run.turn_index, run.last_checkpoint_id.clone()), (1, Some(checkpoint_id("ckpt_1"))));
    assert_eq!(run.provider_session_id.as_deref(), Some("resp_1"));
    let committed = scene.records().await;
    assert_eq!((&committed.run, committed.steps[0].last_turn), (&run, Some(1)));
    assert_eq!((committed.open_turn(), committed.turns[0].committed_at), (None, Some(at(8))));
    refused(store.commit_turn(lease, samples::commit(step, 1, "ckpt_2")).await, "next turn is 2");
    assert_eq!(scene.records().await, committed);
}

/// The history ends with the last committed turn; everything else of the run shows the open one.
pub async fn the_open_turn_is_no_history(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let roles = |messages: Vec<crate::MessageRecord>| {
        messages.into_iter().map(|message| (message.seq, message.turn, message.message.role)).collect::<Vec<_>>()
    };
    scene.turn(Vec::new()).await;
    assert_eq!(roles(store.history(scene.run_id()).await.unwrap()), [(1, 0, Role::User)]);
    scene.commit(1).await;
    let first = [(1, 0, Role::User), (2, 1, Role::Assistant), (3, 1, Role::User)];
    assert_eq!(roles(store.history(scene.run_id()).await.unwrap()), first);
    scene.turn(Vec::new()).await;
    assert_eq!(roles(store.history(scene.run_id()).await.unwrap()), first);
    assert_eq!(scene.records().await.messages.len(), 4);
    assert_eq!(scene.records().await.open_turn().map(|turn| turn.turn), Some(2));
}

/// A turn with a call that is prepared, running or unknown is not committed, and the refusal names that call.
pub async fn a_commit_names_the_call_that_is_not_settled(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
    scene.bring("call_1", CallStatus::FailedReported).await;
    let commit = || samples::commit(&scene.step, 1, "ckpt_1");
    refused(store.commit_turn(&scene.lease, commit()).await, "call_2 of it is prepared");
    store.start_attempt(&scene.lease, samples::start("call_2", 1, "call_2")).await.unwrap();
    refused(store.commit_turn(&scene.lease, commit()).await, "call_2 of it is running");
    store.settle_attempt(&scene.lease, samples::lost("call_2", 1)).await.unwrap();
    let before = scene.records().await;
    refused(store.commit_turn(&scene.lease, commit()).await, "call_2 of it is unknown");
    assert_eq!(scene.records().await, before);
}

/// A call that planning refused is stored `cancelled` with its reason, and starts never.
pub async fn a_refused_call_never_runs(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let mut planned = samples::planned_call("call_1", 1, 1);
    planned.refusal = Some(Refusal {
        resolution: Resolution::Refused,
        code: "unknown_tool".to_owned(),
        message: "there is no such tool; did you mean read_file?".to_owned(),
    });
    scene.turn(vec![planned]).await;
    let call = store.call(&call_id("call_1")).await.unwrap();
    assert_eq!((call.status, call.resolution), (CallStatus::Cancelled, Some(Resolution::Refused)));
    assert_eq!(call.error_code.as_deref(), Some("unknown_tool"));
    assert!(call.error_detail.is_some_and(|detail| detail.contains("did you mean")));
    refused(store.start_attempt(&scene.lease, samples::start("call_1", 1, "k")).await, "cancelled");
    scene.commit(1).await;
}

/// A write whose last row cannot be stored stores none.
pub async fn a_write_that_fails_leaves_nothing(store: &dyn Store) {
    let other = Scene::begin(store, "run_0").await;
    other.turn(vec![samples::planned_call("call_x", 1, 1)]).await;
    let scene = Scene::begin(store, "run_1").await;
    let request = store.reserve_request(&scene.lease, samples::reservation(1)).await.unwrap();
    let before = scene.records().await;

    let taken = vec![samples::planned_call("call_1", 1, 1), samples::planned_call("call_x", 1, 2)];
    let outcome = store.record_turn(&scene.lease, samples::draft(&scene.step, 1, request, taken)).await;
    assert!(matches!(outcome, Err(StoreError::Exists { .. })), "{outcome:?}");
    let twice = vec![samples::planned_call("call_1", 1, 1), samples::planned_call("call_2", 1, 1)];
    refused(store.record_turn(&scene.lease, samples::draft(&scene.step, 1, request, twice)).await, "this position");
    let elsewhere = vec![samples::planned_call("call_1", 2, 1)];
    refused(store.record_turn(&scene.lease, samples::draft(&scene.step, 1, request, elsewhere)).await, "not in turn 1");
    assert_eq!(scene.records().await, before);

    scene.turn(Vec::new()).await;
    store.save_checkpoint(&other.lease, samples::checkpoint("ckpt_x", &other.step)).await.unwrap();
    let before = scene.records().await;
    let outcome = store.commit_turn(&scene.lease, samples::commit(&scene.step, 1, "ckpt_x")).await;
    assert!(matches!(outcome, Err(StoreError::Exists { .. })), "{outcome:?}");
    let foreign_step = store.commit_turn(&scene.lease, samples::commit(&other.step, 1, "ckpt_1")).await;
    assert!(matches!(foreign_step, Err(StoreError::NotFound { .. })), "{foreign_step:?}");
    assert_eq!(scene.records().await, before);
}

/// A reply that nobody counted is charged what was estimated of its input, and what was written of it.
pub async fn a_reply_without_usage_is_charged_as_estimated(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let request = store.reserve_request(&scene.lease, samples::reservation(1)).await.unwrap();
    let mut draft = samples::draft(&scene.step, 1, request, Vec::new());
    draft.reply.usage = None;
    let written = draft.reply.blocks.iter().map(ua_core::Block::written_bytes).sum::<usize>() as u64;
    assert!(written > 0);
    store.record_turn(&scene.lease, draft).await.unwrap();
    let records = scene.records().await;
    let usage = records.requests[0].usage;
    assert_eq!((records.requests[0].status, usage.input_tokens), (RequestStatus::Partial, 1_200));
    assert_eq!(usage.output_tokens, written.div_ceil(4));
    assert_eq!(records.turns[0].reply.usage, None);
    for (number, (told, charged)) in (2..).zip([
        (
            Usage { output_tokens: 80, ..Usage::default() },
            Usage { input_tokens: 1_200, output_tokens: 80, ..Usage::default() },
        ),
        (
            Usage { input_tokens: 70, ..Usage::default() },
            Usage { input_tokens: 1_200, output_tokens: written.div_ceil(4), ..Usage::default() },
        ),
    ]) {
        let scene = Scene::begin(store, &format!("run_{number}")).await;
        let request = store.reserve_request(&scene.lease, samples::reservation(1)).await.unwrap();
        let mut draft = samples::draft(&scene.step, 1, request, Vec::new());
        draft.reply.usage = Some(told);
        store.record_turn(&scene.lease, draft).await.unwrap();
        let records = scene.records().await;
        assert_eq!((records.requests[0].status, records.requests[0].usage), (RequestStatus::Partial, charged));
        assert_eq!(records.turns[0].reply.usage, Some(told));
    }
}

/// A request is charged by whoever comes first: its reply, or the end that was given to it.
pub async fn a_request_is_charged_once(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let (lease, step) = (&scene.lease, scene.step.as_str());
    let ends = [
        (RequestEnd::Zero, RequestStatus::Zero, Usage::default()),
        (RequestEnd::Refused, RequestStatus::Zero, Usage::default()),
        (RequestEnd::Baseline, RequestStatus::Baseline, Usage { input_tokens: 1_200, ..Usage::default() }),
        (RequestEnd::Actual(samples::usage()), RequestStatus::Actual, samples::usage()),
        (RequestEnd::Partial(samples::usage()), RequestStatus::Partial, at_least_estimated(samples::usage())),
    ];
    for (number, (end, status, charged)) in (1_u64..).zip(ends) {
        let request = store.reserve_request(lease, samples::reservation(1)).await.unwrap();
        assert_eq!(request, number);
        assert_eq!(
            store.reserve_request(lease, samples::reservation(1)).await.unwrap(),
            number,
            "a repeated reservation"
        );
        store.close_request(lease, request, end, at(4)).await.unwrap();
        store.close_request(lease, request, RequestEnd::Actual(Usage::default()), at(5)).await.unwrap();
        let stored = scene.records().await.requests.pop().unwrap();
        assert_eq!(
            (stored.request_id, stored.status, stored.usage, stored.closed_at),
            (number, status, charged, Some(at(4)))
        );
        assert_eq!(stored.network_attempted, end != RequestEnd::Zero, "{end:?}");
        refused(store.record_turn(lease, samples::draft(step, 1, request, Vec::new())).await, "charged before");
    }
    let request = store.reserve_request(lease, samples::reservation(1)).await.unwrap();
    let mut stranger = samples::draft(step, 1, request, Vec::new());
    stranger.request_sha256 = samples::request_digest(9);
    refused(store.record_turn(lease, stranger).await, "not the request");
    assert_eq!(scene.records().await.turns, Vec::new());
}

/// What is charged for a reply of which so much was heard: [`samples::reservation`] estimates 1200 tokens of input.
fn at_least_estimated(heard: Usage) -> Usage {
    let from_cache = heard.cache_read_tokens + heard.cache_write_tokens;
    Usage { input_tokens: heard.input_tokens.max(1_200 - from_cache), ..heard }
}

/// A reply that broke off is charged for what was heard of it, and the estimate of the input is the least. So is the request of a process
/// that was killed, as far as it was noted; counts only grow.
pub async fn a_reply_that_broke_off_is_charged_for_what_was_heard(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let some = Usage { input_tokens: 9_000, output_tokens: 10, cache_read_tokens: 100, cache_write_tokens: 0 };
    let more = Usage { output_tokens: 700, ..some };
    let little = Usage { output_tokens: 40, ..Usage::default() };
    for (heard, charged) in [(more, more), (little, Usage { input_tokens: 1_200, ..little })] {
        let request = store.reserve_request(&scene.lease, samples::reservation(1)).await.unwrap();
        store.close_request(&scene.lease, request, RequestEnd::Partial(heard), at(4)).await.unwrap();
        let closed = scene.records().await.requests.pop().unwrap();
        assert_eq!((closed.status, closed.usage), (RequestStatus::Partial, charged));
        assert_eq!(closed.cost, closed.price.map(|price| price.cost(charged)));
        // Nobody counted it to its end.
        assert_eq!(closed.estimate_error(), None);
    }
    let request = store.reserve_request(&scene.lease, samples::reservation(1)).await.unwrap();
    for heard in [some, more, some] {
        store.note_usage(&scene.lease, request, heard).await.unwrap();
    }
    let noted = scene.records().await.requests.pop().unwrap();
    assert_eq!((noted.status, noted.usage, noted.heard), (RequestStatus::Reserved, Usage::default(), Some(more)));
    assert!(matches!(store.note_usage(&scene.lease, 99, some).await, Err(crate::StoreError::NotFound { .. })));
    let (lease, _) = store.acquire_run(scene.run_id(), &samples::owner(101), at(9)).await.unwrap();
    assert_eq!(store.close_lost_requests(&lease, at(10)).await.unwrap(), 1);
    let lost = scene.records().await.requests.pop().unwrap();
    assert_eq!((lost.status, lost.usage, lost.closed_at), (RequestStatus::Partial, more, Some(at(10))));
    // A request that has ended is left as it is.
    let later = Usage { output_tokens: 9_999, ..more };
    store.note_usage(&lease, request, later).await.unwrap();
    assert_eq!(scene.records().await.requests.pop().unwrap(), lost);
}

/// The price goes with the reservation, and what is charged is charged at that price. Without one the cost stays unknown.
pub async fn a_request_costs_what_its_price_said(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let lease = &scene.lease;
    // 1000 × 2 + 80 × 10 + 150 × 0.20, and 1200 × 2 dollars per million tokens.
    let ends = [
        (RequestEnd::Actual(samples::usage()), "0.00283 USD"),
        (RequestEnd::Baseline, "0.0024 USD"),
        (RequestEnd::Zero, "0.00 USD"),
    ];
    for (end, cost) in ends {
        let request = store.reserve_request(lease, samples::reservation(1)).await.unwrap();
        let reserved = scene.records().await.requests.pop().unwrap();
        assert_eq!((reserved.price, reserved.cost), (Some(samples::price()), None));
        assert_eq!((reserved.provider.as_str(), reserved.estimator.as_str()), ("provider-x", "four-bytes"));
        assert_eq!((reserved.estimated_tokens, reserved.reserved_output_tokens), (1_200, 500));
        store.close_request(lease, request, end, at(4)).await.unwrap();
        let closed = scene.records().await.requests.pop().unwrap();
        assert_eq!((closed.price, closed.cost), (Some(samples::price()), Money::parse(cost)), "{end:?}");
    }
    let unpriced = crate::RequestReservation { price: None, ..samples::reservation(1) };
    let request = store.reserve_request(lease, unpriced).await.unwrap();
    store.record_turn(lease, samples::draft(&scene.step, 1, request, Vec::new())).await.unwrap();
    let closed = scene.records().await.requests.pop().unwrap();
    assert_eq!((closed.status, closed.usage, closed.cost), (RequestStatus::Actual, samples::usage(), None));
    // The provider counted 1150 input tokens.
    assert_eq!((closed.estimate_error(), closed.is_overrun()), (Some(-50), false));
}

/// What the provider says is charged, a zero too, and more than was reserved as well.
pub async fn what_the_provider_says_is_charged_whatever_was_estimated(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let much = Usage { input_tokens: 9_000, output_tokens: 700, cache_read_tokens: 10, cache_write_tokens: 20 };
    for usage in [Usage::default(), much] {
        let request = store.reserve_request(&scene.lease, samples::reservation(1)).await.unwrap();
        store.close_request(&scene.lease, request, RequestEnd::Actual(usage), at(4)).await.unwrap();
        let closed = scene.records().await.requests.pop().unwrap();
        assert_eq!((closed.status, closed.usage), (RequestStatus::Actual, usage));
        assert_eq!(closed.is_overrun(), usage == much);
    }
}

/// The name that a reply's first event tells is kept with its request, whatever becomes of the reply; the run has it only once a
/// turn with it is committed.
pub async fn a_reply_has_one_name_from_its_first_event_on(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let lost = crate::RequestReservation { continued_from: Some("resp_0".to_owned()), ..samples::reservation(1) };
    let request = store.reserve_request(&scene.lease, lost).await.unwrap();
    store.note_response(&scene.lease, request, "resp_1").await.unwrap();
    store.note_response(&scene.lease, request, "resp_1").await.unwrap();
    refused(store.note_response(&scene.lease, request, "resp_2").await, "its reply is resp_1");
    let named = scene.records().await.requests.pop().unwrap();
    assert_eq!((named.response_id.as_deref(), named.continued_from.as_deref()), (Some("resp_1"), Some("resp_0")));
    assert_eq!((named.status, scene.records().await.run.provider_session_id), (RequestStatus::Reserved, None));
    store.close_request(&scene.lease, request, RequestEnd::Baseline, at(4)).await.unwrap();
    let closed = scene.records().await.requests.pop().unwrap();
    assert_eq!((closed.status, closed.response_id.as_deref()), (RequestStatus::Baseline, Some("resp_1")));
    // A request that has ended is left as it is.
    store.note_response(&scene.lease, request, "resp_2").await.unwrap();
    assert_eq!(scene.records().await.requests.pop().unwrap(), closed);
    assert!(matches!(store.note_response(&scene.lease, 9, "resp_2").await, Err(crate::StoreError::NotFound { .. })));
}

/// What was reserved and never answered is charged as estimated, once.
pub async fn requests_of_a_dead_process_are_charged_as_estimated(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    for seconds in [3, 4] {
        let reservation = crate::RequestReservation { at: at(seconds), ..samples::reservation(1) };
        store.reserve_request(&scene.lease, reservation).await.unwrap();
    }
    let (lease, _) = store.acquire_run(scene.run_id(), &samples::owner(101), at(9)).await.unwrap();
    assert_eq!(store.close_lost_requests(&lease, at(10)).await.unwrap(), 2);
    assert_eq!(store.close_lost_requests(&lease, at(11)).await.unwrap(), 0);
    for request in scene.records().await.requests {
        assert_eq!(
            (request.status, request.usage.input_tokens, request.closed_at),
            (RequestStatus::Baseline, 1_200, Some(at(10)))
        );
    }
}

/// Notes are appended between turns only, at the committed turn, and once.
pub async fn notes_wait_for_the_open_turn(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let note = Message::user(Origin::Resume, "you were interrupted");
    scene.turn(Vec::new()).await;
    refused(store.append_messages(&scene.lease, vec![note.clone()], at(9)).await, "turn is open");
    scene.commit(1).await;
    store.append_messages(&scene.lease, vec![note.clone()], at(9)).await.unwrap();
    store.append_messages(&scene.lease, vec![note.clone()], at(10)).await.unwrap();
    store.append_messages(&scene.lease, Vec::new(), at(10)).await.unwrap();
    let history = store.history(scene.run_id()).await.unwrap();
    assert_eq!(history.len(), 4);
    assert_eq!((history[3].seq, history[3].turn, &history[3].message, history[3].created_at), (4, 1, &note, at(9)));
    scene.turn(Vec::new()).await;
    scene.commit(2).await;
    store.append_messages(&scene.lease, vec![note], at(11)).await.unwrap();
    assert_eq!(store.history(scene.run_id()).await.unwrap().len(), 7);
}

/// Steps are numbered from 1, the newest is the current one, and each ends once.
pub async fn steps_are_numbered_and_end_once(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn(Vec::new()).await;
    scene.commit(1).await;
    let mut end = samples::step_end(&scene.step, StepStatus::Failed);
    end.error_code = Some("budget".to_owned());
    let closed = store.close_step(&scene.lease, end.clone()).await.unwrap();
    assert_eq!(
        (closed.status, closed.error_code.as_deref(), closed.last_turn),
        (StepStatus::Failed, Some("budget"), Some(1))
    );
    refused(store.close_step(&scene.lease, end).await, "already failed");

    let second = store.open_step(&scene.lease, samples::new_step("step_2")).await.unwrap();
    assert_eq!((second.step_index, second.first_turn, second.status), (2, 2, StepStatus::Running));
    let again = store.open_step(&scene.lease, samples::new_step("step_2")).await;
    assert!(matches!(again, Err(StoreError::Exists { .. })), "{again:?}");
    refused(
        store.close_step(&scene.lease, samples::step_end("step_2", StepStatus::Running)).await,
        "does not end running",
    );
    let records = scene.records().await;
    assert_eq!(records.steps, vec![closed, second]);
    assert_eq!(records.run.current_step_id, Some(step_id("step_2")));

    let request = store.reserve_request(&scene.lease, samples::reservation(2)).await.unwrap();
    let stale = samples::draft(&scene.step, 2, request, Vec::new());
    refused(store.record_turn(&scene.lease, stale).await, "it is failed");
}

/// A step that waits for a person goes on when the run is taken again.
pub async fn a_blocked_step_goes_on_when_the_run_is_taken(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let mut end = samples::run_end(RunStatus::WaitingForHuman);
    end.step_end = Some(samples::step_end(&scene.step, StepStatus::Blocked));
    store.end_run(&scene.lease, end).await.unwrap();
    assert_eq!(scene.records().await.steps[0].status, StepStatus::Blocked);
    store.acquire_run(scene.run_id(), &samples::owner(101), at(99)).await.unwrap();
    let step = scene.records().await.steps.remove(0);
    assert_eq!((step.status, step.updated_at), (StepStatus::Running, at(99)));
}

/// Checkpoints stay in the order in which they were made, also within one instant.
pub async fn checkpoints_are_kept_in_order(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    for name in ["ckpt_z", "ckpt_a", "ckpt_m"] {
        let mut checkpoint = samples::checkpoint(name, &scene.step);
        checkpoint.kind = CheckpointKind::PreSideEffect;
        checkpoint.cursor = json!({"name": name}).into();
        store.save_checkpoint(&scene.lease, checkpoint).await.unwrap();
    }
    let repeated = store.save_checkpoint(&scene.lease, samples::checkpoint("ckpt_a", &scene.step)).await;
    assert!(matches!(repeated, Err(StoreError::Exists { .. })), "{repeated:?}");
    let records = scene.records().await;
    let names: Vec<&str> = records.checkpoints.iter().map(|checkpoint| checkpoint.checkpoint_id.as_str()).collect();
    assert_eq!(names, ["ckpt_z", "ckpt_a", "ckpt_m"]);
    assert_eq!(records.checkpoints[0].kind, CheckpointKind::PreSideEffect);
    assert_eq!(records.checkpoints[0].cursor, json!({"name": "ckpt_z"}));
    assert_eq!(records.run.last_checkpoint_id, Some(checkpoint_id("ckpt_m")));
}

/// The time in which processes held the run is a sum over turns and processes.
pub async fn held_time_adds_up(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    for turn in 1..=2 {
        scene.turn(Vec::new()).await;
        scene.commit(turn).await;
    }
    let run = store.end_run(&scene.lease, samples::run_end(RunStatus::Stopped)).await.unwrap();
    assert_eq!(run.held_millis, 1_500 + 1_500 + 700);
}
