//! Every crossing of every seam, before and after: the process dies there, a new one resumes, and every outside effect has
//! happened once.
//!
//! Durable Jobs v1 spec §11, in memory and without waiting. The same scenarios run against the real program in
//! `cargo xtask acceptance`.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test ends with a panic")]

mod approvals;
mod billed;
mod cancelled;
mod composite;
mod cuts;
mod every_seam;
mod family;
mod forks;
mod handles;
mod iterations;
mod loop_contract;
mod moved;
mod near_duplicates;
mod outcomes;
mod own_loop;
mod paid_tools;
mod phases;
mod pinned_setup;
mod process;
mod refusals;
mod same_ids;
mod scenario;
mod server;
mod sessions;
mod siblings;
mod small_context;
mod synced;
mod taint;
mod tasks;
mod turn_guard;
mod unknown;
mod within;
mod words;

use scenario::{Answers, Scenario};
use ua_core::{CallStatus, RunStatus};
use ua_store::QuestionKind;
use ua_testkit::{CrashAt, RunningAfterDispatch};

/// What the scenario's job does, once each.
const EFFECTS: [&str; 5] = ["write_local_file", "upload", "send_email", "post_comment", "notify"];

/// One side of a crossing after the other.
fn side(turn: usize) -> fn(u64) -> CrashAt {
    if turn.is_multiple_of(2) { CrashAt::Before } else { CrashAt::After }
}

async fn crash_points() -> Vec<CrashAt> {
    let scenario = Scenario::new();
    let (crossings, run) = scenario.run_without_crash().await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.status_detail);
    for effect in EFFECTS {
        assert_eq!(scenario.world.count(effect), 1, "{effect}");
    }
    assert!(crossings > 40, "the scenario crosses too few seams to prove anything: {crossings}");
    (0..crossings).flat_map(|n| [CrashAt::Before(n), CrashAt::After(n)]).collect()
}

#[tokio::test]
async fn every_effect_happens_once_wherever_we_die() {
    for at in crash_points().await {
        let scenario = Scenario::new();
        scenario.crash(at).await;
        let run = scenario.resume_to_the_end(Answers::Truth).await;
        assert_eq!(run.status, RunStatus::Succeeded, "{at:?}: {:?}", run.status_detail);
        for effect in EFFECTS {
            assert_eq!(scenario.world.count(effect), 1, "{effect} at {at:?}");
        }
        scenario.check_records(&format!("{at:?}")).await;
    }
}

#[tokio::test]
async fn large_results_survive_wherever_we_die() {
    for at in crash_points().await {
        let scenario = Scenario::with_large_results();
        scenario.crash(at).await;
        let run = scenario.resume_to_the_end(Answers::Truth).await;
        assert_eq!(run.status, RunStatus::Succeeded, "{at:?}: {:?}", run.status_detail);
        for effect in EFFECTS {
            assert_eq!(scenario.world.count(effect), 1, "{effect} at {at:?}");
        }
        scenario.check_records(&format!("{at:?}")).await;
        scenario.check_blobs(&format!("{at:?}")).await;
    }
}

#[tokio::test]
async fn a_second_crash_during_the_recovery_changes_nothing() {
    let points = crash_points().await;
    // Every first crash with a handful of second ones, spread by the first one's number; together they cover both sides of the recovery.
    for (index, first) in points.iter().enumerate() {
        for second in (index % 9..27).step_by(9) {
            let at = side(index / 9 + second / 9)(second as u64);
            let scenario = Scenario::new();
            scenario.crash(*first).await;
            scenario.crash(at).await;
            let run = scenario.resume_to_the_end(Answers::Truth).await;
            assert_eq!(run.status, RunStatus::Succeeded, "{first:?} then {at:?}: {:?}", run.status_detail);
            for effect in EFFECTS {
                assert_eq!(scenario.world.count(effect), 1, "{effect} at {first:?} then {at:?}");
            }
            scenario.check_records(&format!("{first:?} then {at:?}")).await;
        }
    }
}

#[tokio::test]
async fn only_the_opaque_call_is_ever_asked_about_and_only_when_it_was_in_flight() {
    let mut asked = 0;
    for at in crash_points().await {
        let scenario = Scenario::new();
        scenario.crash(at).await;
        let in_flight =
            scenario.calls().await.into_iter().find(|c| c.status == CallStatus::Running).map(|c| c.name.tool);
        scenario.resume_to_the_end(Answers::Truth).await;
        let questions = scenario.questions().await;
        if in_flight.as_deref() == Some("post_comment") {
            asked += 1;
            assert_eq!(questions.len(), 1, "{at:?}");
            assert_eq!(questions[0].kind, QuestionKind::UnknownOutcome);
        } else {
            assert_eq!(questions, [], "{at:?}");
        }
    }
    // Before and after the send, and whatever lies between RUNNING and its receipt.
    assert!(asked >= 3, "{asked}");
}

#[tokio::test]
async fn a_skipped_doubt_is_told_to_the_model_and_never_repeated() {
    let mut skipped = 0;
    for at in crash_points().await {
        let scenario = Scenario::new();
        scenario.crash(at).await;
        if scenario.calls().await.iter().all(|call| call.status != CallStatus::Running) {
            continue; // nobody is asked, as the test before this one shows
        }
        let run = scenario.resume_to_the_end(Answers::Skip).await;
        assert!(scenario.world.count("post_comment") <= 1, "{at:?}");
        if scenario.questions().await.is_empty() {
            continue;
        }
        skipped += 1;
        scenario.check_invariants(&format!("{at:?}")).await;
        let told = scenario.told_the_model("post_comment").await;
        assert!(told.contains("unknown") && told.contains("Do not repeat"), "{told}");
        assert!(run.status.is_terminal() || run.status == RunStatus::WaitingForHuman);
    }
    assert!(skipped >= 3);
}

#[tokio::test]
async fn the_harness_sees_a_store_that_writes_running_after_the_dispatch() {
    let mut duplicates = 0;
    for at in crash_points().await {
        let scenario = Scenario::new();
        scenario.crash_with(at, Some(RunningAfterDispatch::new())).await;
        scenario.resume_to_the_end(Answers::Truth).await;
        duplicates += usize::from(scenario.world.count("post_comment") > 1);
    }
    assert!(duplicates > 0, "the broken order of intent and act went unnoticed");
}
