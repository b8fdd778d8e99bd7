//! Tasks: a child run is made with RUNNING of its task, nothing about it is ever lost, and what is done to a run reaches its tree.

use ua_core::{CallPolicy, CallStatus, OnUnknown, PlannedCall, RunId, SideEffectClass, ToolName};

use super::samples::{self, at, call_id, run_id};
use super::{Scene, refused};
use crate::commit::{NewRun, StartAttempt};
use crate::error::StoreError;
use crate::{LedgerStore, RunStore, Store};

pub(super) fn task(id: &str, turn: u32, ordinal: u32) -> PlannedCall {
    let policy =
        CallPolicy { class: SideEffectClass::Local, on_unknown: OnUnknown::Redo, ..CallPolicy::unclassified() };
    PlannedCall { name: ToolName::task(), policy: policy.into(), ..samples::planned_call(id, turn, ordinal) }
}

fn child(call: &str, parent: &RunId) -> NewRun {
    let id = RunId::of_task(&call_id(call));
    NewRun { run_mode: "task".to_owned(), ..samples::child_run(id.as_str(), parent.as_str()) }
}

pub(super) fn start(call: &str, parent: &RunId) -> StartAttempt {
    StartAttempt { child: Some(Box::new(child(call, parent))), ..samples::start(call, 1, call) }
}

/// The child run is there exactly when its task is running; it waits, in its parent's lineage, with its prompt.
pub async fn a_task_and_its_child_run_are_one_write(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn(vec![task("call_1", 1, 1), samples::planned_call("call_2", 1, 2), task("call_3", 1, 3)]).await;
    let id = RunId::of_task(&call_id("call_1"));

    let read = StartAttempt { call_id: call_id("call_2"), ..start("call_2", scene.run_id()) };
    refused(store.start_attempt(&scene.lease, read).await, "not a task");
    let of_another = StartAttempt { child: start("call_3", scene.run_id()).child, ..start("call_1", scene.run_id()) };
    refused(store.start_attempt(&scene.lease, of_another).await, "not its child");
    assert_eq!(store.call(&call_id("call_1")).await.unwrap().status, CallStatus::Prepared);
    assert!(matches!(store.run(&id).await, Err(StoreError::NotFound { .. })));

    store.start_attempt(&scene.lease, start("call_1", scene.run_id())).await.unwrap();
    let made = store.run(&id).await.unwrap();
    assert_eq!((made.status, &made.root_run_id), (ua_core::RunStatus::Queued, scene.run_id()));
    assert_eq!(made.parent_run_id.as_ref(), Some(scene.run_id()));
    assert_eq!(store.history(&id).await.unwrap().len(), 1);

    // A run that has the name already: nothing is started.
    store.submit_run(NewRun { parent_run_id: None, ..child("call_3", scene.run_id()) }).await.unwrap();
    let taken = store.start_attempt(&scene.lease, start("call_3", scene.run_id())).await;
    assert!(matches!(taken, Err(StoreError::Exists { .. })), "{taken:?}");
    assert_eq!(store.call(&call_id("call_3")).await.unwrap().status, CallStatus::Prepared);
}

/// A recovery leaves a task under way as it is: its child run says where it stands.
pub async fn a_task_under_way_is_never_lost(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn(vec![task("call_1", 1, 1), samples::planned_call("call_2", 1, 2)]).await;
    store.start_attempt(&scene.lease, start("call_1", scene.run_id())).await.unwrap();
    store.start_attempt(&scene.lease, samples::start("call_2", 1, "call_2")).await.unwrap();
    let lost = store.mark_lost(&scene.lease, "it died", at(20)).await.unwrap();
    assert_eq!(lost.into_iter().map(|call| call.call_id).collect::<Vec<_>>(), [call_id("call_2")]);
    assert_eq!(store.call(&call_id("call_1")).await.unwrap().status, CallStatus::Running);
}

/// Who was replaced at the run above takes no child run any more: not even its epoch is touched.
pub async fn a_child_run_is_taken_by_the_newest_owner_of_its_parent(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn(vec![task("call_1", 1, 1)]).await;
    store.start_attempt(&scene.lease, start("call_1", scene.run_id())).await.unwrap();
    let child = RunId::of_task(&call_id("call_1"));
    let (lease, taken) = store.acquire_task_run(&scene.lease, &child, &samples::owner(101), at(20)).await.unwrap();
    assert_eq!((lease.epoch, taken.status), (1, ua_core::RunStatus::Running));

    let (newer, _) = store.acquire_run(scene.run_id(), &samples::owner(102), at(21)).await.unwrap();
    let late = store.acquire_task_run(&scene.lease, &child, &samples::owner(101), at(22)).await;
    assert!(matches!(late, Err(StoreError::Fenced { .. })), "{late:?}");
    assert_eq!(store.run(&child).await.unwrap(), taken);
    let (lease, _) = store.acquire_task_run(&newer, &child, &samples::owner(102), at(23)).await.unwrap();
    assert_eq!(lease.epoch, 2);
}

/// A cancel request reaches every child run that has not ended, in one write, and no fork.
pub async fn a_cancel_reaches_the_whole_tree(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn(vec![task("call_1", 1, 1), task("call_2", 1, 2)]).await;
    for call in ["call_1", "call_2"] {
        store.start_attempt(&scene.lease, start(call, scene.run_id())).await.unwrap();
    }
    let [first, second] = ["call_1", "call_2"].map(|call| RunId::of_task(&call_id(call)));
    let grandchild = NewRun { run_mode: "task".to_owned(), ..samples::child_run("run_task_deep", first.as_str()) };
    store.submit_run(grandchild).await.unwrap();
    store.submit_run(samples::child_run("run_fork", "run_1")).await.unwrap();
    let (lease, _) = store.acquire_run(&second, &samples::owner(101), at(6)).await.unwrap();
    store.end_run(&lease, samples::run_end(ua_core::RunStatus::Failed)).await.unwrap();

    store.request_cancel(scene.run_id(), "enough", at(40)).await.unwrap();
    let asked = async |id: &RunId| store.run(id).await.unwrap().cancel_requested_at;
    for id in [scene.run_id(), &first, &run_id("run_task_deep")] {
        assert_eq!(asked(id).await, Some(at(40)), "{id}");
    }
    for id in [&second, &run_id("run_fork")] {
        assert_eq!(asked(id).await, None, "{id}");
    }
}

/// A run is loaded with what the child runs below it did and used; they see nothing of it in theirs.
pub async fn a_run_knows_what_its_sub_agents_did(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn(vec![task("call_1", 1, 1)]).await;
    store.start_attempt(&scene.lease, start("call_1", scene.run_id())).await.unwrap();
    let id = RunId::of_task(&call_id("call_1"));
    let child = Scene::take(store, id.as_str()).await;
    child.turn(vec![samples::planned_call("call_r", 1, 1), samples::planned_email("call_e", 1, 2)]).await;
    child.bring("call_r", CallStatus::Succeeded).await;
    child.bring("call_e", CallStatus::Succeeded).await;

    let lineage = store.load(scene.run_id()).await.unwrap().lineage;
    let [seen] = &lineage.sub_agents[..] else { panic!("one sub-agent") };
    assert_eq!((&seen.run_id, &seen.parent_run_id, &seen.call_id), (&id, scene.run_id(), &call_id("call_1")));
    assert_eq!((seen.status, seen.tool_calls, seen.requests.len()), (ua_core::RunStatus::Running, 2, 1));
    assert_eq!(seen.effects.iter().map(|call| call.call_id.clone()).collect::<Vec<_>>(), [call_id("call_e")]);
    assert_eq!(lineage.receipts.len(), 1, "its receipt is there");
    assert!(lineage.elsewhere.is_empty(), "it works for the run, not beside it");
    assert!(store.load(&id).await.unwrap().lineage.is_empty());
}
