//! Taint: what was read into a run's history stands in its row, and reaches those whose history it comes into, and nobody else.

use ua_core::{
    CallPolicy, CallStatus, InputFile, OnUnknown, PlannedCall, Reads, RunId, SideEffectClass, TakenFile, ToolName,
    sha256,
};

use super::Scene;
use super::samples::{self, call_id};
use crate::commit::{NewRun, StartAttempt};
use crate::taint::Taint;
use crate::{LedgerStore, NewBlob, RunStore, Store};

const NOTHING: Taint = Taint { untrusted: false, private: false };
const UNTRUSTED: Taint = Taint { untrusted: true, private: false };
const PRIVATE: Taint = Taint { untrusted: false, private: true };

fn reading(id: &str, turn: u32, ordinal: u32, reads: Reads) -> PlannedCall {
    let call = samples::planned_call(id, turn, ordinal);
    PlannedCall {
        policy: CallPolicy { reads: [reads].into_iter().collect(), ..call.policy.clone().unshared() }.into(),
        ..call
    }
}

async fn taint(store: &dyn Store, run: &RunId) -> Taint {
    store.run(run).await.unwrap().taint
}

/// What a call reads is in the run from the write of RUNNING on, whatever becomes of it; a plan alone brings nothing.
pub async fn a_call_brings_in_what_it_reads_when_it_starts(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn(vec![reading("call_1", 1, 1, Reads::Untrusted), reading("call_2", 1, 2, Reads::Private)]).await;
    assert_eq!(taint(store, scene.run_id()).await, NOTHING);
    scene.bring("call_1", CallStatus::Unknown).await;
    assert_eq!(taint(store, scene.run_id()).await, UNTRUSTED);
    scene.bring("call_2", CallStatus::Succeeded).await;
    assert!(taint(store, scene.run_id()).await.is_both());
    // It stays, also for the next owner.
    store.acquire_run(scene.run_id(), &samples::owner(2), samples::at(50)).await.unwrap();
    assert!(taint(store, scene.run_id()).await.is_both());
}

/// A fork has what the turns it shares brought in. What it reads itself, or its parent later, stays where it was read.
pub async fn a_fork_has_what_its_shared_turns_read(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    for (turn, reads) in [(1, Reads::Untrusted), (2, Reads::Private)] {
        let id = format!("call_{turn}");
        scene.turn(vec![reading(&id, turn, 1, reads)]).await;
        scene.bring(&id, CallStatus::Succeeded).await;
        scene.commit(turn).await;
    }
    store.fork_run(samples::new_fork("run_2", "run_1", 1)).await.unwrap();
    store.fork_run(samples::new_fork("run_3", "run_1", 0)).await.unwrap();
    let [early, first] = ["run_2", "run_3"].map(samples::run_id);
    assert_eq!((taint(store, &early).await, taint(store, &first).await), (UNTRUSTED, NOTHING));

    let fork = Scene::take(store, "run_3").await;
    fork.turn(vec![reading("call_9", 1, 1, Reads::Private)]).await;
    fork.bring("call_9", CallStatus::Succeeded).await;
    assert_eq!((taint(store, &first).await, taint(store, &early).await), (PRIVATE, UNTRUSTED));
    // A fork of a fork has what both shared.
    fork.commit(1).await;
    let again = store.fork_run(samples::new_fork("run_4", "run_3", 1)).await.unwrap();
    assert_eq!(again.taint, PRIVATE);
}

/// What a job shows its model of what somebody hid is in the run from its first write on, and in a fork, whether that is shown it or not.
pub async fn a_hidden_file_of_a_job_is_private_to_its_run_and_to_forks(store: &dyn Store) {
    for (name, is_hidden, taken) in [("run_1", false, NOTHING), ("run_2", true, PRIVATE)] {
        let held = NewBlob::new("words".to_owned());
        let mut new = samples::new_run(name);
        new.spec.files = vec![InputFile::Taken(TakenFile {
            path: "a.md".to_owned(),
            media_type: "text/plain".to_owned(),
            size: 5,
            sha256: sha256("words"),
            blob: held.blob.clone(),
            is_hidden,
        })];
        new.files = vec![held];
        let scene = Scene::begin_with(store, new).await;
        assert_eq!(taint(store, scene.run_id()).await, taken);
        let fork = samples::new_fork(&format!("fork_of_{name}"), name, 0);
        assert_eq!(store.fork_run(fork).await.unwrap().taint, taken);
    }
}

/// Whoever is answered with what another call was told has read what that one read, also where that is another tool.
pub async fn an_answer_of_another_call_brings_in_what_that_one_read(store: &dyn Store) {
    let first = Scene::begin(store, "run_1").await;
    // It is there before the other one reads.
    let child = Scene::begin_with(store, samples::child_run("run_2", "run_1")).await;
    first.turn(vec![reading("call_1", 1, 1, Reads::Untrusted)]).await;
    first.bring("call_1", CallStatus::Succeeded).await;
    let key = store.call(&call_id("call_1")).await.unwrap().idempotency_key.unwrap();
    child.call_that_is("call_2", CallStatus::Prepared).await;
    assert_eq!(taint(store, child.run_id()).await, NOTHING);
    let (one, two) = (call_id("call_1"), call_id("call_2"));
    store.deduplicate_call(&child.lease, &two, &one, &key, samples::at(9)).await.unwrap();
    assert_eq!(taint(store, child.run_id()).await, UNTRUSTED);
    child.commit(1).await;
    let fork = store.fork_run(samples::new_fork("run_3", "run_2", 1)).await.unwrap();
    assert_eq!(fork.taint, UNTRUSTED, "and so has whoever shares that turn");
}

/// A sub-agent begins with what its parent has; its parent has what it read once it has its answer.
pub async fn a_sub_agent_hands_on_what_it_read_with_its_answer(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let policy =
        CallPolicy { class: SideEffectClass::Local, on_unknown: OnUnknown::Redo, ..CallPolicy::unclassified() };
    let task = PlannedCall { name: ToolName::task(), policy: policy.into(), ..samples::planned_call("call_2", 1, 2) };
    scene.turn(vec![reading("call_1", 1, 1, Reads::Untrusted), task]).await;
    scene.bring("call_1", CallStatus::Succeeded).await;
    let child = RunId::of_task(&call_id("call_2"));
    let made = NewRun { run_mode: "task".to_owned(), ..samples::child_run(child.as_str(), "run_1") };
    let start = StartAttempt { child: Some(Box::new(made)), ..samples::start("call_2", 1, "call_2") };
    store.start_attempt(&scene.lease, start).await.unwrap();
    let before = taint(store, scene.run_id()).await;
    assert!(taint(store, &child).await.untrusted);

    let agent = Scene::take(store, child.as_str()).await;
    agent.turn(vec![reading("call_9", 1, 1, Reads::Private)]).await;
    agent.bring("call_9", CallStatus::Succeeded).await;
    assert_eq!(taint(store, scene.run_id()).await, before, "nothing of it has been said yet");
    store.settle_attempt(&scene.lease, samples::settle("call_2", 1, CallStatus::Succeeded)).await.unwrap();
    assert!(taint(store, scene.run_id()).await.is_both());
}
