//! Runs and who may write to them.

use ua_core::{CallStatus, EvidenceLevel, Message, Origin, RunStatus, StepStatus};

use super::samples::{self, at, call_id, question_id, run_id};
use super::{Scene, cancel, refused};
use crate::commit::{RequestEnd, RunEnd, UnknownResolution};
use crate::error::StoreError;
use crate::record::{Choice, ReplayStatus, RunLease};
use crate::{Durability, LedgerStore, RunStore, Store};

/// A submitted run is `queued`, with its prompt as the only message.
pub async fn a_submitted_run_waits_with_its_prompt(store: &dyn Store) {
    let new = samples::new_run("run_1");
    let run = store.submit_run(new.clone()).await.unwrap();
    assert_eq!((run.status, run.lease_epoch, run.turn_index), (RunStatus::Queued, 0, 0));
    assert_eq!((&run.root_run_id, run.spec.as_ref(), &run.launch), (&run.run_id, &new.spec, &new.launch));
    assert_eq!(run.last_job_prompt, new.opening.text());

    let records = store.load(&run.run_id).await.unwrap();
    assert_eq!(records.run, run);
    assert_eq!(store.run(&run.run_id).await.unwrap(), run);
    let [opening] = records.messages.as_slice() else { panic!("{:?}", records.messages) };
    assert_eq!((opening.seq, opening.turn, &opening.message), (1, 0, &new.opening));
    assert_eq!(store.history(&run.run_id).await.unwrap(), records.messages);
}

/// A second run of the same id is refused and changes nothing.
pub async fn a_run_is_submitted_once(store: &dyn Store) {
    let run = store.submit_run(samples::new_run("run_1")).await.unwrap();
    let mut second = samples::new_run("run_1");
    second.opening = Message::user(Origin::Prompt, "something else");
    assert!(matches!(store.submit_run(second).await, Err(StoreError::Exists { .. })));
    assert_eq!(store.run(&run.run_id).await.unwrap(), run);
    assert_eq!(store.history(&run.run_id).await.unwrap().len(), 1);
}

/// A job key is refused outside the lineage that has it.
pub async fn a_job_key_names_one_lineage(store: &dyn Store) {
    let keyed = |id: &str| {
        let mut run = samples::new_run(id);
        run.spec.job_key = Some("report-2026-01".to_owned());
        run
    };
    store.submit_run(keyed("run_1")).await.unwrap();
    assert!(matches!(store.submit_run(keyed("run_2")).await, Err(StoreError::Exists { .. })));
    assert!(matches!(store.run(&run_id("run_2")).await, Err(StoreError::NotFound { .. })));

    let mut fork = keyed("run_3");
    fork.parent_run_id = Some(run_id("run_1"));
    fork.created_at = at(1);
    store.submit_run(fork).await.unwrap();
    let newest = store.run_by_job_key("report-2026-01").await.unwrap().unwrap();
    assert_eq!(newest.run_id, run_id("run_3"));
    assert_eq!(store.run_by_job_key("another").await.unwrap(), None);
}

/// A child's root is its parent's root, however deep; a parent that is not there is named.
pub async fn a_child_inherits_its_root(store: &dyn Store) {
    store.submit_run(samples::new_run("run_1")).await.unwrap();
    store.submit_run(samples::child_run("run_2", "run_1")).await.unwrap();
    let grandchild = store.submit_run(samples::child_run("run_3", "run_2")).await.unwrap();
    assert_eq!(grandchild.root_run_id, run_id("run_1"));
    assert_eq!(grandchild.parent_run_id, Some(run_id("run_2")));
    let orphan = store.submit_run(samples::child_run("run_4", "run_0")).await;
    assert!(matches!(orphan, Err(StoreError::NotFound { .. })), "{orphan:?}");
}

/// Each taking raises the epoch by one, keeps the trace and makes the run `running`.
pub async fn each_owner_has_the_next_epoch(store: &dyn Store) {
    let id = store.submit_run(samples::new_run("run_1")).await.unwrap().run_id;
    let (first, run) = store.acquire_run(&id, &samples::owner(100), at(1)).await.unwrap();
    assert_eq!((first.epoch, run.status, run.owner.clone()), (1, RunStatus::Running, Some(samples::owner(100))));
    store.end_run(&first, samples::run_end(RunStatus::Stopped)).await.unwrap();

    let (second, run) = store.acquire_run(&id, &samples::owner(101), at(2)).await.unwrap();
    assert_eq!(
        (second.epoch, run.status, run.stop_reason, run.status_detail.clone()),
        (2, RunStatus::Running, None, None)
    );
    assert_eq!(run.traces, vec![samples::owner(100).trace, samples::owner(101).trace]);
    assert_eq!(store.run(&id).await.unwrap(), run);
    store.check_lease(&second).await.unwrap();
    assert!(matches!(store.check_lease(&first).await, Err(StoreError::Fenced { ours: 1, theirs: 2, .. })));
}

/// Every write of a process whose run was taken by another is refused, and nothing of it is stored.
pub async fn a_stale_epoch_changes_nothing(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn((1..=3).map(|n| samples::planned_email(&format!("call_{n}"), 1, n)).collect()).await;
    scene.bring("call_1", CallStatus::Running).await;
    scene.bring("call_2", CallStatus::Unknown).await;
    store.raise_question(&scene.lease, samples::question("q_1", Some("call_2"))).await.unwrap();
    store.acquire_run(scene.run_id(), &samples::owner(101), at(9)).await.unwrap();
    let before = scene.records().await;

    let (old, step) = (&scene.lease, scene.step.as_str());
    let (one, two, three) = (call_id("call_1"), call_id("call_2"), call_id("call_3"));
    let happened = UnknownResolution::Happened {
        raw: samples::raw(),
        settlement: samples::settlement(CallStatus::Succeeded),
        evidence: EvidenceLevel::Reconciled,
    };
    let settlement = samples::settlement(CallStatus::Succeeded);
    let note = Message::user(Origin::Resume, "note");
    let outcomes = [
        store.check_lease(old).await,
        store.end_run(old, samples::run_end(RunStatus::Succeeded)).await.map(drop),
        store.open_step(old, samples::new_step("step_2")).await.map(drop),
        store.close_step(old, samples::step_end(step, StepStatus::Succeeded)).await.map(drop),
        store.reserve_request(old, samples::reservation(2)).await.map(drop),
        store.close_request(old, 1, RequestEnd::Zero, at(10)).await,
        store.close_lost_requests(old, at(10)).await.map(drop),
        store.note_response(old, 1, "resp_1").await,
        store.note_usage(old, 1, samples::usage()).await,
        store.record_turn(old, samples::draft(step, 2, 1, Vec::new())).await,
        store.commit_turn(old, samples::commit(step, 1, "ckpt_1")).await.map(drop),
        store.append_messages(old, vec![note], at(10)).await,
        store.save_checkpoint(old, samples::checkpoint("ckpt_2", step)).await,
        store.raise_question(old, samples::question("q_2", None)).await.map(drop),
        store.close_question(old, &question_id("q_1"), at(10)).await,
        store.start_attempt(old, samples::start("call_3", 1, "call_3")).await.map(drop),
        store.settle_attempt(old, samples::settle("call_1", 1, CallStatus::Succeeded)).await.map(drop),
        store.interpret_receipt(old, &one, settlement, Durability::Synced, at(10)).await.map(drop),
        store.deduplicate_call(old, &three, &one, &samples::key("call_1"), at(10)).await.map(drop),
        store.cancel_calls(old, vec![cancel("call_3")], at(10)).await,
        store.mark_lost(old, "late", at(10)).await.map(drop),
        store.resolve_unknown(old, &two, happened, None, at(10)).await.map(drop),
        store.note_replay(old, &two, ReplayStatus::Held, at(10)).await,
    ];
    for (index, outcome) in outcomes.into_iter().enumerate() {
        assert!(matches!(outcome, Err(StoreError::Fenced { ours: 1, theirs: 2, .. })), "write {index}: {outcome:?}");
    }
    assert_eq!(scene.records().await, before);
}

/// When a process ended its work, its lease is of no use, although the epoch still is the newest.
pub async fn a_lease_ends_with_the_work(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let mut end = samples::run_end(RunStatus::Succeeded);
    end.step_end = Some(samples::step_end(&scene.step, StepStatus::Succeeded));
    let run = store.end_run(&scene.lease, end).await.unwrap();
    assert_eq!((run.status, run.final_output.as_deref(), run.lease_epoch), (RunStatus::Succeeded, Some("Done."), 1));
    let before = scene.records().await;
    assert_eq!(before.steps[0].status, StepStatus::Succeeded);

    refused(store.check_lease(&scene.lease).await, "succeeded");
    refused(store.reserve_request(&scene.lease, samples::reservation(1)).await, "succeeded");
    refused(store.end_run(&scene.lease, samples::run_end(RunStatus::Failed)).await, "succeeded");
    assert_eq!(scene.records().await, before);
}

/// A terminal run is neither taken nor cancelled.
pub async fn a_terminal_run_is_left_alone(store: &dyn Store) {
    for status in [RunStatus::Succeeded, RunStatus::Failed, RunStatus::Cancelled] {
        let scene = Scene::begin(store, &format!("run_{status}")).await;
        let run = store.end_run(&scene.lease, samples::run_end(status)).await.unwrap();
        refused(store.acquire_run(scene.run_id(), &samples::owner(101), at(99)).await, status.as_str());
        refused(store.request_cancel(scene.run_id(), "late", at(99)).await, status.as_str());
        assert_eq!(store.run(scene.run_id()).await.unwrap(), run);
    }
}

/// A run does not end `running`, and a stop says why.
pub async fn an_end_is_a_status_that_ends(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let before = scene.records().await;
    refused(store.end_run(&scene.lease, samples::run_end(RunStatus::Running)).await, "running");
    refused(store.end_run(&scene.lease, samples::run_end(RunStatus::Queued)).await, "queued");
    let silent = RunEnd { stop_reason: None, ..samples::run_end(RunStatus::Stopped) };
    refused(store.end_run(&scene.lease, silent).await, "stop reason");
    let talkative = RunEnd { status: RunStatus::Failed, ..samples::run_end(RunStatus::Stopped) };
    refused(store.end_run(&scene.lease, talkative).await, "stop reason");
    assert_eq!(scene.records().await, before);
    let parked = store.end_run(&scene.lease, samples::run_end(RunStatus::WaitingForHuman)).await.unwrap();
    assert_eq!(parked.status, RunStatus::WaitingForHuman);
}

/// The first cancel request stays, also when the run is taken again.
pub async fn a_cancel_request_is_sticky(store: &dyn Store) {
    let id = store.submit_run(samples::new_run("run_1")).await.unwrap().run_id;
    store.request_cancel(&id, "wrong job", at(1)).await.unwrap();
    let run = store.request_cancel(&id, "again", at(2)).await.unwrap();
    assert_eq!((run.cancel_requested_at, run.cancel_reason.as_deref()), (Some(at(1)), Some("wrong job")));
    let (_, run) = store.acquire_run(&id, &samples::owner(100), at(3)).await.unwrap();
    assert_eq!((run.cancel_requested_at, run.status), (Some(at(1)), RunStatus::Running));
}

/// Reads and writes of rows that do not exist say so.
pub async fn rows_that_are_not_there_are_named(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let (nobody, lease, step) = (run_id("run_0"), &scene.lease, scene.step.as_str());
    let ghost = RunLease { run_id: nobody.clone(), ..scene.lease.clone() };
    let missing = [
        store.run(&nobody).await.map(drop),
        store.load(&nobody).await.map(drop),
        store.history(&nobody).await.map(drop),
        store.check_lease(&ghost).await,
        store.request_cancel(&nobody, "why", at(1)).await.map(drop),
        store.acquire_run(&nobody, &samples::owner(1), at(1)).await.map(drop),
        store.question(&question_id("q_0")).await.map(drop),
        store.insert_answer(samples::answer("q_0", Choice::Skip)).await.map(drop),
        store.close_question(lease, &question_id("q_0"), at(1)).await,
        store.call(&call_id("call_0")).await.map(drop),
        store.start_attempt(lease, samples::start("call_0", 1, "k")).await.map(drop),
        store.cancel_calls(lease, vec![cancel("call_0")], at(1)).await,
        store.close_request(lease, 7, RequestEnd::Zero, at(1)).await,
        store.record_turn(lease, samples::draft(step, 1, 7, Vec::new())).await,
        store.close_step(lease, samples::step_end("step_0", StepStatus::Failed)).await.map(drop),
        store.save_checkpoint(lease, samples::checkpoint("ckpt_1", "step_0")).await,
        store.raise_question(lease, samples::question("q_1", Some("call_0"))).await.map(drop),
    ];
    for (index, outcome) in missing.into_iter().enumerate() {
        assert!(matches!(outcome, Err(StoreError::NotFound { .. })), "access {index}: {outcome:?}");
    }
    assert_eq!(store.calls(&nobody, None).await.unwrap(), Vec::new());
    assert_eq!(store.receipt(&call_id("call_0")).await.unwrap(), None);
    let resolution = store.resolve_unknown(lease, &call_id("call_0"), UnknownResolution::Skipped, None, at(1)).await;
    assert!(matches!(resolution, Err(StoreError::NotFound { .. })));
}

/// Runs come newest first, and of one instant the later one first.
pub async fn runs_are_listed_newest_first(store: &dyn Store) {
    for (id, seconds) in [("run_b", 5), ("run_a", 1), ("run_d", 5), ("run_c", 9)] {
        let run = crate::NewRun { created_at: at(seconds), ..samples::new_run(id) };
        store.submit_run(run).await.unwrap();
    }
    let names = |runs: Vec<crate::RunRecord>| runs.into_iter().map(|run| run.run_id.to_string()).collect::<Vec<_>>();
    assert_eq!(names(store.runs(10).await.unwrap()), ["run_c", "run_d", "run_b", "run_a"]);
    assert_eq!(names(store.runs(2).await.unwrap()), ["run_c", "run_d"]);
}
