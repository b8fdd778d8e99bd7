//! The process dies anywhere, its run is forked, both are driven to their ends: every effect has happened once.

use ua_core::{Env, RunStatus};
use ua_testkit::{CrashAt, Honours, World, foreign_tool, own_tool};

use super::scenario::Scenario;

/// One call in a turn, so that a call which is not repeated takes no other one with it.
const SCRIPT: &str = r#"{"turns": [
  {"tools": [{"name": "mcp__ua__read_local_file", "input": {"path": "a.txt"}}]},
  {"tools": [{"name": "mcp__ua__upload", "input": {"path": "report.md", "destination": "file:///store/report.md"}}]},
  {"tools": [{"name": "mcp__ua__send_email", "input": {"to": ["a@example.test"], "subject": "Report", "body": "Words of request {{request}}"}}]},
  {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "Done."}}]},
  {"tools": [{"name": "mcp__ua__notify", "input": {"message": "done"}}]},
  {"text": "All done."}
]}"#;

const JOB: &str = r#"{"objective": "Do everything once."}"#;

/// What the job does outside, once each: by key, by content in other words, by nothing at all.
const EFFECTS: [&str; 4] = ["upload", "send_email", "post_comment", "notify"];

fn scenario() -> Scenario {
    let own = ["upload", "send_email", "notify"].map(|tool| (own_tool(tool), Honours::Keys));
    let read = [(own_tool("read_local_file"), Honours::Nothing)];
    let opaque = [(foreign_tool("forum", "post_comment"), Honours::Nothing)];
    let world = World::new(own.into_iter().chain(read).chain(opaque));
    Scenario::with(world, Env::simulated(42), SCRIPT, JOB, None)
}

async fn crash_points() -> Vec<CrashAt> {
    let scenario = scenario();
    let (crossings, run) = scenario.run_without_crash().await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.status_detail);
    (0..crossings).flat_map(|n| [CrashAt::Before(n), CrashAt::After(n)]).collect()
}

/// Both ended well, and the world has one of each effect.
async fn check(parent: &Scenario, fork: &Scenario, at: &str) {
    for run in [fork, parent] {
        let ended = run.finish_by_looking().await;
        assert_eq!(ended.status, RunStatus::Succeeded, "{at}: {} {:?}", ended.run_id, ended.status_detail);
    }
    for effect in EFFECTS {
        assert_eq!(parent.world.count(effect), 1, "{effect} at {at}");
    }
    for run in [fork, parent] {
        run.check_invariants(at).await;
        let history: Vec<_> = run.records().await.messages.into_iter().map(|record| record.message).collect();
        assert_eq!(ua_llm::check_history(&history), Ok(()), "{at}");
    }
}

#[tokio::test]
async fn a_dead_run_is_forked_and_no_effect_happens_twice_or_never() {
    let (mut forked, mut asked) = (0, 0);
    for at in crash_points().await {
        let parent = scenario();
        parent.crash(at).await;
        let Some(fork) = parent.forked("run_fork").await else { continue };
        forked += 1;
        check(&parent, &fork, &format!("{at:?}")).await;
        asked += usize::from(!fork.questions().await.is_empty());
        let records = fork.records().await;
        // A fork of a run that had said its last word says one of its own.
        let turns = if records.run.shared_turns() == 6 { 7 } else { 6 };
        assert_eq!(records.run.turn_index, turns, "{at:?}");
        assert!(records.turns.iter().all(|turn| turn.turn > records.run.shared_turns()), "{at:?}");
    }
    assert!(forked > 60 && asked > 5 && asked < forked, "{asked} of {forked}");
}

#[tokio::test]
async fn a_fork_that_dies_too_changes_nothing() {
    for (index, first) in crash_points().await.into_iter().enumerate() {
        let second = (index * 5 % 23) as u64;
        let parent = scenario();
        parent.crash(first).await;
        let Some(fork) = parent.forked("run_fork").await else { continue };
        fork.crash(CrashAt::After(second)).await;
        check(&parent, &fork, &format!("{first:?}, the fork after {second}")).await;
    }
}

#[tokio::test]
async fn a_finished_run_is_forked_again_and_again_and_nothing_happens_again() {
    let parent = scenario();
    parent.run_without_crash().await;
    let fork = parent.forked("run_fork").await.unwrap();
    let grandchild = fork.forked("run_fork_of_fork").await.unwrap();
    check(&parent, &grandchild, "a fork of a fork").await;
    check(&parent, &fork, "a fork").await;
    assert_eq!(grandchild.records().await.run.shared_turns(), 6);
}

#[tokio::test]
async fn a_budget_of_turns_counts_those_of_the_fork_alone() {
    let mut parent = scenario();
    parent.set_job(serde_json::json!({"objective": "Do everything once.", "budgets": {"max_turns": 3}}));
    let (_, run) = parent.run_without_crash().await;
    assert_eq!((run.status, run.turn_index), (RunStatus::Stopped, 3));
    let fork = parent.forked("run_fork").await.unwrap();
    let run = fork.finish_by_looking().await;
    assert_eq!((run.status, run.turn_index, run.own_turns()), (RunStatus::Succeeded, 6, 3), "{:?}", run.status_detail);
}
