//! What must hold of a run in iterations: each boundary in its history is counted, and nothing else is.

use ua_core::Origin;

use super::Violations;
use crate::record::RunRecords;

/// As many iterations are counted as begin in the run's own history, and each is a step of its own.
pub(super) fn counted(found: &mut Violations, records: &RunRecords) {
    let run = &records.run;
    let own_from = run.forked_at.map_or(0, |point| point.seq);
    let is_boundary =
        |message: &&crate::MessageRecord| message.message.origin == Origin::Iteration && message.seq > own_from;
    let boundaries = records.messages.iter().filter(is_boundary).count();
    let steps = records.steps.len();
    // The first iteration begins with the job itself, when the first step opens.
    let begun = if run.spec.harness.is_some() && steps > 0 { boundaries + 1 } else { boundaries };
    if usize::try_from(run.iteration_count).ok() != Some(begun) {
        let why = format!("it counts {}, and {begun} began", ua_core::counted(run.iteration_count, "iteration"));
        found.add("iterations_are_counted_once", &run.run_id, why);
    }
    if boundaries >= steps.max(1) {
        let why = format!(
            "{boundaries} began after the first, in {steps}",
            boundaries = ua_core::counted(boundaries, "iteration"),
            steps = ua_core::counted(steps, "step")
        );
        found.add("iterations_are_counted_once", &run.run_id, why);
    }
}

#[cfg(all(test, feature = "conformance"))]
mod tests {
    use ua_core::{Message, Origin};

    use crate::conformance::Scene;
    use crate::invariants::{Violation, check};
    use crate::{MemStore, MessageRecord};

    #[tokio::test]
    async fn an_iteration_that_is_not_counted_is_seen_and_one_that_never_began_too() {
        let store = MemStore::default();
        let scene = Scene::begin(&store, "run_1").await;
        scene.turn(Vec::new()).await;
        scene.commit(1).await;
        let clean = scene.records().await;
        let names = |found: Vec<Violation>| {
            let all = found.into_iter().map(|violation| violation.invariant);
            all.filter(|name| *name == "iterations_are_counted_once").collect::<Vec<_>>()
        };
        assert_eq!(names(check(&clean, &[])), [""; 0]);
        let mut counted = clean.clone();
        counted.run.iteration_count = 1;
        assert_eq!(names(check(&counted, &[])), ["iterations_are_counted_once"]);
        let mut begun = clean.clone();
        let last = begun.messages.last().unwrap().clone();
        let message = Message::user(Origin::Iteration, "iteration 2");
        begun.messages.push(MessageRecord { seq: last.seq + 1, message, ..last });
        assert_eq!(names(check(&begun, &[])), ["iterations_are_counted_once"; 2]);
    }
}
