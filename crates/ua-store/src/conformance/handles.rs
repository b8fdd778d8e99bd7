//! What an attempt goes on with when a tool answered before it was done.

use serde_json::json;
use ua_core::{CallStatus, Handle, Input, Scope};

use super::samples::{self, at, call_id};
use super::{Scene, refused};
use crate::commit::{AttemptEnd, KeepHandle, SettleAttempt, StartAttempt};
use crate::{LedgerStore, RunStore as _, Seen, Store, StoreError};

fn task() -> Handle {
    Handle { task: Some("t-1".to_owned()), place: json!({"poll_ms": 5}), ..Handle::default() }
}

fn sent() -> Handle {
    Handle { input: Some(Input { round: 1, is_sent: true, ..Input::default() }), ..Handle::default() }
}

fn keep(call: &str, attempt: u32, handle: Handle) -> KeepHandle {
    KeepHandle { call_id: call_id(call), attempt, handle, seen: None, at: at(6) }
}

/// A handle is stored with the running attempt and replaced by the next one; an attempt that does not run takes none.
pub async fn a_handle_is_kept_while_its_attempt_runs(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Prepared).await;
    refused(store.keep_handle(&scene.lease, keep("call_1", 1, task())).await, "is not running");
    store.start_attempt(&scene.lease, samples::start("call_1", 1, "k")).await.unwrap();
    refused(store.keep_handle(&scene.lease, keep("call_1", 2, task())).await, "is not running");
    store.keep_handle(&scene.lease, keep("call_1", 1, sent())).await.unwrap();
    let kept = store.keep_handle(&scene.lease, keep("call_1", 1, task())).await.unwrap();
    assert_eq!(kept.handle, Some(task()));
    assert_eq!(store.attempts(&call_id("call_1")).await.unwrap(), [kept]);
    let end = AttemptEnd::Lost { why: "w".to_owned() };
    let settle =
        SettleAttempt { call_id: call_id("call_1"), attempt: 1, end, durability: crate::Durability::Synced, at: at(7) };
    store.settle_attempt(&scene.lease, settle).await.unwrap();
    refused(store.keep_handle(&scene.lease, keep("call_1", 1, task())).await, "is not running");
    assert_eq!(store.attempts(&call_id("call_1")).await.unwrap()[0].handle, Some(task()), "what it was stays");
}

/// What leaves with an answer is held to what was seen when that was decided, as a start is: what moved since refuses it, and changes nothing.
pub async fn an_answer_does_not_leave_behind_news(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
    let scope = Scope::new("email.send", "boss");
    let start = |call: &str, key: &str| StartAttempt { scope: Some(scope.clone()), ..samples::start(call, 1, key) };
    store.start_attempt(&scene.lease, start("call_1", "k1")).await.unwrap();
    let seen = async || store.relations(&call_id("call_1"), Some(&scope)).await.unwrap().seen();
    let before = seen().await;
    let leaves = |seen: Vec<Seen>| KeepHandle { seen: Some(seen), ..keep("call_1", 1, sent()) };
    store.start_attempt(&scene.lease, start("call_2", "k2")).await.unwrap();
    let refused = store.keep_handle(&scene.lease, leaves(before)).await;
    assert!(matches!(refused, Err(StoreError::ScopeTouched { .. })), "{refused:?}");
    assert_eq!(store.attempts(&call_id("call_1")).await.unwrap()[0].handle, None);
    let kept = store.keep_handle(&scene.lease, leaves(seen().await)).await.unwrap();
    assert_eq!(kept.handle, Some(sent()));
}

/// What was decided beside a call that waited for an answer is refused once that has been handed over: from then on it is under way, also
/// where the clock was set back in between, or stood still.
pub async fn an_answer_that_leaves_is_news_to_what_was_decided_beside_it(store: &dyn Store) {
    let runs =
        [("run_1", ["call_1", "call_2"], 6), ("run_2", ["call_3", "call_4"], 3), ("run_3", ["call_5", "call_6"], 5)];
    for (run, ids, seconds) in runs {
        let scene = Scene::begin(store, run).await;
        scene.turn(ids.iter().zip(1..).map(|(id, ordinal)| samples::planned_email(id, 1, ordinal)).collect()).await;
        let scope = Scope::new("email.send", "boss");
        let start = |call: &str| StartAttempt { scope: Some(scope.clone()), ..samples::start(call, 1, call) };
        store.start_attempt(&scene.lease, start(ids[0])).await.unwrap();
        let asks = Handle { input: Some(Input { round: 1, ..Input::default() }), ..Handle::default() };
        store.keep_handle(&scene.lease, keep(ids[0], 1, asks)).await.unwrap();
        let seen = async |call: &str| store.relations(&call_id(call), Some(&scope)).await.unwrap().seen();
        let before = seen(ids[1]).await;
        let leaves = KeepHandle { seen: Some(seen(ids[0]).await), at: at(seconds), ..keep(ids[0], 1, sent()) };
        store.keep_handle(&scene.lease, leaves).await.unwrap();
        let second = |seen: Vec<Seen>| StartAttempt { seen: Some(seen), ..start(ids[1]) };
        let refused = store.start_attempt(&scene.lease, second(before)).await;
        assert!(matches!(refused, Err(StoreError::ScopeTouched { .. })), "{run}: {refused:?}");
        store.start_attempt(&scene.lease, second(seen(ids[1]).await)).await.unwrap();
    }
}

/// Nothing leaves with an answer behind the word that its run is to end, as no call is started behind it; a no, which sends nothing on, does.
pub async fn an_answer_does_not_leave_behind_an_end_mark(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Prepared).await;
    store.start_attempt(&scene.lease, samples::start("call_1", 1, "k")).await.unwrap();
    let asks = Handle { input: Some(Input { round: 1, ..Input::default() }), ..Handle::default() };
    store.keep_handle(&scene.lease, keep("call_1", 1, asks.clone())).await.unwrap();
    store.request_cancel(&samples::run_id("run_1"), "enough", at(6)).await.unwrap();
    let leaves = KeepHandle { seen: Some(Vec::new()), ..keep("call_1", 1, sent()) };
    refused(store.keep_handle(&scene.lease, leaves).await, "cancel was requested");
    assert_eq!(store.attempts(&call_id("call_1")).await.unwrap()[0].handle, Some(asks));
    let kept = store.keep_handle(&scene.lease, keep("call_1", 1, sent())).await.unwrap();
    assert_eq!(kept.handle, Some(sent()));
}

/// A call that can be gone on with stays `running`; one whose answers may have left us is lost like any other.
pub async fn a_recovery_leaves_what_can_be_gone_on_with(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
    for (call, key, handle) in [("call_1", "k1", task()), ("call_2", "k2", sent())] {
        store.start_attempt(&scene.lease, samples::start(call, 1, key)).await.unwrap();
        store.keep_handle(&scene.lease, keep(call, 1, handle)).await.unwrap();
    }
    let lost = store.mark_lost(&scene.lease, "gone", at(8)).await.unwrap();
    assert_eq!(lost.iter().map(|call| call.call_id.clone()).collect::<Vec<_>>(), [call_id("call_2")]);
    assert_eq!(store.call(&call_id("call_1")).await.unwrap().status, CallStatus::Running);
}
