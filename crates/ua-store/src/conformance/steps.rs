//! Steps that follow each other, and the time a killed owner held the run.

use std::time::Duration;

use ua_core::{Message, Origin, RunStatus, StepStatus};

use super::samples::{self, at, step_id};
use super::{Scene, refused};
use crate::commit::StepEntry;
use crate::error::StoreError;
use crate::record::CheckpointKind;
use crate::{RunStore, Store};

/// The entry of `next` after the end of `before`, with a marker in each and one message.
fn entry(before: Option<&str>, next: &str) -> StepEntry {
    let marker = |name: String, step: &str| {
        let mut marker = samples::checkpoint(&name, step);
        marker.kind = CheckpointKind::PhaseBoundary;
        marker
    };
    let markers = before.map(|before| marker(format!("ckpt_end_of_{before}"), before));
    StepEntry {
        end: before.map(|before| samples::step_end(before, StepStatus::Succeeded)),
        checkpoints: markers.into_iter().chain([marker(format!("ckpt_of_{next}"), next)]).collect(),
        step: crate::NewStep { phase: next.to_owned(), ..samples::new_step(next) },
        messages: vec![Message::user(Origin::Phase, format!("phase {next} begins"))],
        iteration: None,
    }
}

/// One write ends a step and opens the next with its markers and messages; repeated, it changes nothing.
pub async fn a_step_is_entered_whole_and_once(store: &dyn Store) {
    let run = store.submit_run(samples::new_run("run_1")).await.unwrap().run_id;
    let (lease, _) = store.acquire_run(&run, &samples::owner(100), at(1)).await.unwrap();
    let first = store.enter_step(&lease, entry(None, "step_1")).await.unwrap();
    assert_eq!((first.step_index, first.first_turn, first.phase.as_str()), (1, 1, "step_1"));
    let scene = Scene::of(store, lease, "step_1");
    scene.turn(Vec::new()).await;
    scene.commit(1).await;
    let second = store.enter_step(&scene.lease, entry(Some("step_1"), "step_2")).await.unwrap();
    assert_eq!((second.step_index, second.first_turn, second.status), (2, 2, StepStatus::Running));

    let records = scene.records().await;
    assert_eq!(
        records.steps.iter().map(|step| step.status).collect::<Vec<_>>(),
        [StepStatus::Succeeded, StepStatus::Running]
    );
    assert_eq!(records.run.current_step_id, Some(step_id("step_2")));
    let markers: Vec<&str> = records.checkpoints.iter().map(|marker| marker.checkpoint_id.as_str()).collect();
    assert_eq!(markers, ["ckpt_of_step_1", "ckpt_1_of_run_1", "ckpt_end_of_step_1", "ckpt_of_step_2"]);
    assert_eq!(records.run.last_checkpoint_id, Some(samples::checkpoint_id("ckpt_of_step_2")));
    let last = records.messages.last().unwrap();
    assert_eq!(
        (last.turn, last.message.origin, last.message.text().as_str()),
        (1, Origin::Phase, "phase step_2 begins")
    );
    assert_eq!(last.seq, records.messages.len() as u64);

    let again = store.enter_step(&scene.lease, entry(Some("step_1"), "step_2")).await.unwrap();
    assert_eq!(again, second);
    assert_eq!(scene.records().await, records);
}

/// Between turns only, after the end of the current step only, and all of it or nothing.
pub async fn a_step_that_cannot_be_entered_leaves_everything(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let step = scene.step.clone();
    scene.turn(Vec::new()).await;
    let before = scene.records().await;
    refused(store.enter_step(&scene.lease, entry(Some(&step), "step_2")).await, "turn is open");
    assert_eq!(scene.records().await, before);
    scene.commit(1).await;

    let before = scene.records().await;
    refused(store.enter_step(&scene.lease, entry(None, "step_2")).await, "it is the current step");
    refused(store.enter_step(&scene.lease, entry(Some("step_x"), "step_2")).await, "it is the current step");
    let mut taken = entry(Some(&step), "step_2");
    taken.checkpoints.push(samples::checkpoint("ckpt_1_of_run_1", "step_2"));
    let taken = store.enter_step(&scene.lease, taken).await;
    assert!(matches!(taken, Err(StoreError::Exists { .. })), "{taken:?}");
    let mut foreign = entry(Some(&step), "step_2");
    foreign.checkpoints.push(samples::checkpoint("ckpt_y", "step_y"));
    let foreign = store.enter_step(&scene.lease, foreign).await;
    assert!(matches!(foreign, Err(StoreError::NotFound { .. })), "{foreign:?}");
    let mut open = entry(Some(&step), "step_2");
    open.end = Some(samples::step_end(&step, StepStatus::Running));
    refused(store.enter_step(&scene.lease, open).await, "does not end running");
    assert_eq!(scene.records().await, before);

    let stale = scene.lease.clone();
    store.acquire_run(scene.run_id(), &samples::owner(101), at(50)).await.unwrap();
    let stale = store.enter_step(&stale, entry(Some(&step), "step_2")).await;
    assert!(matches!(stale, Err(StoreError::Fenced { .. })), "{stale:?}");
}

/// An owner that was killed held the run until its last write, or until it last said that it is alive; the time until somebody
/// resumes the run is nobody's.
pub async fn the_time_of_a_killed_owner_counts(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await; // taken at 1
    let held = async |seconds| {
        let (lease, run) = store.acquire_run(scene.run_id(), &samples::owner(100), at(seconds)).await.unwrap();
        assert_eq!(run.held_from, Some(at(seconds)));
        (lease, run.held_millis)
    };
    // The step was opened at 2.
    let (lease, millis) = held(1_000).await;
    assert_eq!(millis, 1_000);
    store.note_alive(&lease, Duration::ZERO, at(1_010)).await.unwrap();
    store.note_alive(&lease, Duration::ZERO, at(1_030)).await.unwrap();
    assert!(matches!(store.note_alive(&scene.lease, Duration::ZERO, at(1_040)).await, Err(StoreError::Fenced { .. })));
    let (lease, millis) = held(2_000).await;
    assert_eq!(millis, 1_000 + 30_000);
    // Its last sign of life was before it took the run: a clock went back.
    store.note_alive(&lease, Duration::ZERO, at(1_500)).await.unwrap();
    let (lease, millis) = held(3_000).await;
    assert_eq!(millis, 31_000);
    // A clean end says itself how long it was.
    store.end_run(&lease, samples::run_end(RunStatus::Stopped)).await.unwrap();
    let (_, millis) = held(4_000).await;
    assert_eq!(millis, 31_700);
    // The machine slept for most of the time, which is told once, by the first sign of life after it.
    let (lease, _) = held(5_000).await;
    store.note_alive(&lease, Duration::ZERO, at(5_001)).await.unwrap();
    store.note_alive(&lease, Duration::from_mins(10), at(5_602)).await.unwrap();
    store.note_alive(&lease, Duration::ZERO, at(5_603)).await.unwrap();
    let (_, millis) = held(6_000).await;
    assert_eq!(millis, 31_700 + 3_000);
    // The clock was ahead, is put right while nobody drives the run, and is ahead again.
    let (lease, before) = held(20_000).await;
    store.note_alive(&lease, Duration::ZERO, at(20_002)).await.unwrap();
    let (lease, millis) = held(8_000).await;
    assert_eq!(millis, before + 2_000);
    store.note_alive(&lease, Duration::ZERO, at(8_003)).await.unwrap();
    let (lease, millis) = held(20_010).await;
    assert_eq!(millis, before + 5_000);
    // It is set back while the owner lives.
    store.note_alive(&lease, Duration::ZERO, at(20_015)).await.unwrap();
    store.note_alive(&lease, Duration::ZERO, at(9_000)).await.unwrap();
    store.note_alive(&lease, Duration::ZERO, at(9_004)).await.unwrap();
    let (_, millis) = held(9_010).await;
    assert_eq!(millis, before + 5_000 + 9_000);
}
