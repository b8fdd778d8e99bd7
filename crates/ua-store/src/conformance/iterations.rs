//! Iterations: counted in the write that begins them, whatever happens to its answer.

use ua_core::{Message, Origin, RunSpec, StepStatus};

use super::samples::{self, at};
use super::{Scene, refused};
use crate::commit::{NewRun, StepEntry};
use crate::iteration::NewIteration;
use crate::{RunRecord, RunStore, Store};

fn harness_run(id: &str) -> NewRun {
    let job = r#"{"objective": "x", "stop_conditions": ["email_sent_once"],
        "harness": {"max_iterations": 3, "completion_promise": "ALL DONE"}}"#;
    NewRun { run_mode: "harness".to_owned(), spec: RunSpec::parse(job).unwrap(), ..samples::new_run(id) }
}

fn entry(before: Option<&str>, next: &str, number: u32, max_iterations: u32) -> StepEntry {
    StepEntry {
        end: before.map(|before| samples::step_end(before, StepStatus::Succeeded)),
        checkpoints: before
            .map(|before| samples::checkpoint(&format!("ckpt_end_{before}"), before))
            .into_iter()
            .collect(),
        step: samples::new_step(next),
        messages: before.map(|_| Message::user(Origin::Iteration, format!("iteration {number}"))).into_iter().collect(),
        iteration: Some(NewIteration { number, max_iterations }),
    }
}

fn counted(run: &RunRecord) -> (u32, Option<u32>, Option<&str>) {
    (run.iteration_count, run.max_iterations, run.completion_promise.as_deref())
}

/// Count, limit and promise are in the run's row, and the count rises by one with the step that begins the iteration, once.
pub async fn an_iteration_is_counted_in_the_write_that_begins_it(store: &dyn Store) {
    let run = store.submit_run(harness_run("run_1")).await.unwrap();
    assert_eq!(counted(&run), (0, Some(3), Some("ALL DONE")));
    assert_eq!(counted(&store.run(&run.run_id).await.unwrap()), counted(&run));
    let (lease, _) = store.acquire_run(&run.run_id, &samples::owner(100), at(1)).await.unwrap();
    store.enter_step(&lease, entry(None, "step_1", 1, 3)).await.unwrap();
    let scene = Scene::of(store, lease, "step_1");
    scene.turn(Vec::new()).await;
    scene.commit(1).await;
    assert_eq!(counted(&scene.records().await.run), (1, Some(3), Some("ALL DONE")));

    // Raised meanwhile.
    let second = store.enter_step(&scene.lease, entry(Some("step_1"), "step_2", 2, 5)).await.unwrap();
    let records = scene.records().await;
    assert_eq!(counted(&records.run), (2, Some(5), Some("ALL DONE")));
    assert_eq!(records.run.provider_session_id, None, "the provider's conversation is not gone on with");
    let again = store.enter_step(&scene.lease, entry(Some("step_1"), "step_2", 2, 5)).await.unwrap();
    assert_eq!((again, scene.records().await), (second, records));
    assert_eq!(counted(&store.runs(1).await.unwrap()[0]), (2, Some(5), Some("ALL DONE")));
}

/// An iteration that is not the next one changes nothing; a job without a harness counts none.
pub async fn an_iteration_is_neither_left_out_nor_counted_twice(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let step = scene.step.clone();
    assert_eq!(counted(&scene.records().await.run), (0, None, None));
    scene.turn(Vec::new()).await;
    scene.commit(1).await;
    let before = scene.records().await;
    for number in [0, 2, 7] {
        let refusal = store.enter_step(&scene.lease, entry(Some(&step), "step_2", number, 3)).await;
        refused(refusal, "its next iteration is 1");
        assert_eq!(scene.records().await, before);
    }
}
