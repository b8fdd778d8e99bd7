//! Jobs with phases: the process dies at every crossing, each phase is entered once, and every effect happens once.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]

use std::time::Duration;

use serde_json::json;
use ua_core::{Env, Origin, RunStatus, RunStop, StepStatus};
use ua_store::{CheckpointKind, NewOverride, OverrideKind, RunRecords};
use ua_testkit::{CrashAt, Honours, World, foreign_tool, own_tool};

use super::scenario::{Answers, Scenario};

/// Eight turns: a phase ends with each that asks for nothing.
const SCRIPT: &str = r##"{"turns": [
  {"tools": [{"name": "mcp__ua__read_local_file", "input": {"path": "a.txt"}}], "expect": {"contains": ["# Phase 1 of 3: gather"]}},
  {"tools": [{"name": "mcp__ua__write_local_file", "input": {"path": "report.md", "content": "report {{request}}"}}]},
  {"text": "Gathered."},
  {"tools": [{"name": "mcp__ua__upload", "input": {"path": "report.md", "destination": "file:///store/{{request}}"}}],
   "expect": {"contains": ["# Phase 2 of 3: publish"]}},
  {"text": "Published."},
  {"tools": [{"name": "mcp__ua__send_email", "input": {"to": ["a@example.test"], "subject": "Report", "body": "Version {{request}}"}}],
   "expect": {"contains": ["# Phase 3 of 3: tell"]}},
  {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "Done, says request {{request}}"}},
             {"name": "mcp__ua__notify", "input": {"message": "done {{request}}"}}]},
  {"text": "All done."}
]}"##;

/// The same with two phases: five turns.
const SHORT: &str = r##"{"turns": [
  {"tools": [{"name": "mcp__ua__upload", "input": {"path": "report.md", "destination": "file:///store/{{request}}"}}],
   "expect": {"contains": ["# Phase 1 of 2: publish"]}},
  {"text": "Published."},
  {"tools": [{"name": "mcp__ua__send_email", "input": {"to": ["a@example.test"], "subject": "Report", "body": "Version {{request}}"}}],
   "expect": {"contains": ["# Phase 2 of 2: tell"]}},
  {"tools": [{"name": "mcp__ua__notify", "input": {"message": "done {{request}}"}}]},
  {"text": "All done."}
]}"##;

fn job(names: &[&str], publish_budgets: &serde_json::Value) -> String {
    let phases: Vec<_> = names
        .iter()
        .map(|name| match *name {
            "publish" => json!({"name": name, "instructions": "Publish it.", "stop_conditions": [{"effect": "file.upload", "max": 1}],
                "budgets": publish_budgets}),
            _ => json!({"name": name, "instructions": format!("Do what `{name}` says.")}),
        })
        .collect();
    json!({"objective": "Everything once.", "phases": phases, "stop_conditions": ["email_sent_once", "final_notification_sent"]})
        .to_string()
}

fn scenario_of(script: &str, job: &str) -> Scenario {
    let own = ["write_local_file", "upload", "send_email", "notify"].map(|tool| (own_tool(tool), Honours::Keys));
    let opaque = [(foreign_tool("forum", "post_comment"), Honours::Nothing)];
    let reads = [(own_tool("read_local_file"), Honours::Nothing)];
    let world = World::new(own.into_iter().chain(reads).chain(opaque));
    Scenario::with(world, Env::simulated(42), script, job, None)
}

fn three() -> Scenario {
    scenario_of(SCRIPT, &job(&["gather", "publish", "tell"], &json!({})))
}

fn two() -> Scenario {
    scenario_of(SHORT, &job(&["publish", "tell"], &json!({})))
}

async fn points(scenario: &Scenario) -> Vec<CrashAt> {
    let (crossings, run) = scenario.run_without_crash().await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.status_detail);
    (0..crossings).flat_map(|n| [CrashAt::Before(n), CrashAt::After(n)]).collect()
}

/// Each phase is one step, entered once, told once and ended in the write that begins the next.
fn check_steps(records: &RunRecords, phases: &[(&str, u32, u32)], at: &str) {
    let steps: Vec<(&str, u32, u32)> =
        records.steps.iter().map(|s| (s.phase.as_str(), s.first_turn, s.last_turn.unwrap_or_default())).collect();
    assert_eq!(steps, phases, "{at}");
    assert!(records.steps.iter().all(|step| step.status == StepStatus::Succeeded), "{at}");
    assert!(records.steps.iter().all(|step| step.fingerprint.is_some()), "{at}");
    let told: Vec<String> = records
        .messages
        .iter()
        .filter(|message| message.message.origin == Origin::Phase)
        .map(|message| message.message.text().lines().next().unwrap_or_default().to_owned())
        .collect();
    let expected: Vec<String> = phases
        .iter()
        .enumerate()
        .map(|(index, (name, ..))| format!("# Phase {} of {}: {name}", index + 1, phases.len()))
        .collect();
    assert_eq!(told, expected, "{at}");
    for (step, (_, _, last)) in records.steps.iter().zip(phases).rev().skip(1) {
        let kinds: Vec<CheckpointKind> = records
            .checkpoints
            .iter()
            .filter(|marker| marker.step_id == step.step_id && marker.snapshot["turn_index"] == json!(last))
            .map(|marker| marker.kind)
            .filter(|kind| matches!(kind, CheckpointKind::StepBoundary | CheckpointKind::PhaseBoundary))
            .collect();
        // The turn's commit, then the boundary.
        let whole = [CheckpointKind::StepBoundary, CheckpointKind::StepBoundary, CheckpointKind::PhaseBoundary];
        assert_eq!(kinds, whole, "{at}: {}", step.phase);
    }
    for call in &records.calls {
        let step = records.steps.iter().find(|step| step.step_id == call.step_id).unwrap();
        assert!(step.first_turn <= call.position.turn && Some(call.position.turn) <= step.last_turn, "{at}");
    }
}

#[tokio::test]
async fn each_phase_is_entered_once_wherever_we_die() {
    for at in points(&three()).await {
        let scenario = three();
        scenario.crash(at).await;
        let run = scenario.resume_to_the_end(Answers::Truth).await;
        let at = format!("{at:?}");
        assert_eq!(run.status, RunStatus::Succeeded, "{at}: {:?}", run.status_detail);
        assert_eq!(run.final_output.as_deref(), Some("All done."), "{at}");
        for effect in ["write_local_file", "upload", "send_email", "post_comment", "notify"] {
            assert_eq!(scenario.world.count(effect), 1, "{effect} at {at}");
        }
        let records = scenario.records().await;
        check_steps(&records, &[("gather", 1, 3), ("publish", 4, 5), ("tell", 6, 8)], &at);
        scenario.check_bill(&records, &at);
        scenario.check_invariants(&at).await;
    }
}

#[tokio::test]
async fn two_phases_and_two_deaths_end_as_one_life_does() {
    for (index, first) in points(&two()).await.into_iter().enumerate() {
        for second in [index % 33] {
            let scenario = two();
            scenario.crash(first).await;
            scenario.crash(CrashAt::After(second as u64)).await;
            let run = scenario.resume_to_the_end(Answers::Truth).await;
            let at = format!("{first:?} then {second}");
            assert_eq!(run.status, RunStatus::Succeeded, "{at}: {:?}", run.status_detail);
            for effect in ["upload", "send_email", "notify"] {
                assert_eq!(scenario.world.count(effect), 1, "{effect} at {at}");
            }
            check_steps(&scenario.records().await, &[("publish", 1, 2), ("tell", 3, 5)], &at);
        }
    }
}

#[tokio::test]
async fn a_budget_of_a_phase_stops_at_the_same_turn_wherever_we_die_and_goes_on_with_more() {
    let limited = || scenario_of(SHORT, &job(&["publish", "tell"], &json!({"max_turns": 1})));
    let scenario = limited();
    let (crossings, run) = scenario.run_without_crash().await;
    assert_eq!((run.status, run.stop_reason), (RunStatus::Stopped, Some(RunStop::Budget)));
    for at in (0..crossings).flat_map(|n| [CrashAt::Before(n), CrashAt::After(n)]) {
        let scenario = limited();
        scenario.crash(at).await;
        let run = scenario.resume().await;
        let detail = run.status_detail.clone().unwrap_or_default();
        assert_eq!((run.status, run.turn_index), (RunStatus::Stopped, 1), "{at:?}: {detail}");
        assert_eq!(detail, "the budget max_turns (1) of phase `publish` is reached: 1 turn used", "{at:?}");
        let change = NewOverride {
            run_id: run.run_id.clone(),
            kind: OverrideKind::Budget,
            component: "publish.max_turns".to_owned(),
            value: json!(2),
            made_by: "a tester".to_owned(),
            at: scenario.env.now(),
        };
        scenario.change(change).await;
        let run = scenario.resume_to_the_end(Answers::Truth).await;
        assert_eq!(run.status, RunStatus::Succeeded, "{at:?}: {:?}", run.status_detail);
        assert_eq!(scenario.world.count("upload"), 1, "{at:?}");
    }
}

#[tokio::test]
async fn steps_are_limited_and_more_of_them_may_be_allowed() {
    let mut limited: serde_json::Value = serde_json::from_str(&job(&["publish", "tell"], &json!({}))).unwrap();
    limited["budgets"] = json!({"max_steps": 1});
    let scenario = scenario_of(SHORT, &limited.to_string());
    for _ in 0..2 {
        let run = scenario.resume().await;
        let detail = "the budget max_steps (1) is reached: 1 step used, and the phase `tell` would be the next";
        assert_eq!((run.stop_reason, run.status_detail.as_deref()), (Some(RunStop::Budget), Some(detail)));
    }
    assert_eq!((scenario.world.count("upload"), scenario.world.count("send_email")), (1, 0));
    let change = NewOverride {
        run_id: scenario.records().await.run.run_id,
        kind: OverrideKind::Budget,
        component: "max_steps".to_owned(),
        value: json!(2),
        made_by: "a tester".to_owned(),
        at: scenario.env.now(),
    };
    scenario.change(change).await;
    assert_eq!(scenario.resume().await.status, RunStatus::Succeeded);
}

#[tokio::test]
async fn what_is_left_to_do_is_in_the_packet_and_in_the_marker() {
    let scenario = three();
    // Dies with the first request of the second phase.
    let mut at = None;
    for n in 0..200 {
        let probe = three();
        probe.crash(CrashAt::Before(n)).await;
        if probe.has_a_step().await && probe.records().await.steps.len() == 2 {
            at = Some(n);
            break;
        }
    }
    scenario.crash(CrashAt::Before(at.unwrap())).await;
    scenario.resume_to_the_end(Answers::Truth).await;
    let packet = std::fs::read_to_string(scenario.workspace().join("resume_packet_run_scenario.md")).unwrap();
    assert!(packet.contains("step 2: phase `publish`") && packet.contains("remaining phases: `tell`"), "{packet}");
    let records = scenario.records().await;
    let marker = records.checkpoints.iter().find(|m| m.kind == CheckpointKind::PhaseBoundary).unwrap();
    assert_eq!(
        (&marker.snapshot["phase"], &marker.snapshot["remaining_phases"]),
        (&json!("gather"), &json!(["publish", "tell"]))
    );
}

/// The time between a kill and its resume is nobody's; all other time counts, whoever held the run and however it ended.
#[tokio::test]
async fn the_time_a_run_was_held_is_known_to_the_second_wherever_we_die() {
    let mut longest = Duration::ZERO;
    for at in points(&three()).await {
        let scenario = three();
        let began = scenario.env.now();
        scenario.crash(at).await;
        let died = scenario.env.now();
        scenario.env.clock.sleep(Duration::from_hours(3)).await;
        let resumed = scenario.env.now();
        let run = scenario.resume_to_the_end(Answers::Truth).await;
        assert_eq!(run.status, RunStatus::Succeeded, "{at:?}: {:?}", run.status_detail);
        let driven = died.since(began) + scenario.env.now().since(resumed);
        let held = Duration::from_millis(run.held_millis);
        longest = longest.max(driven);
        assert!(driven.abs_diff(held) <= Duration::from_secs(1), "{at:?}: held {held:?} of {driven:?}");
    }
    assert!(longest >= Duration::from_secs(20), "the provider made nobody wait, so nothing was counted");
}
