//! Jobs in iterations: the process dies at every crossing, no iteration is lost or counted twice, and every effect happens once.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]

use serde_json::{Value, json};
use ua_core::{Env, Origin, RunStatus, RunStop, StepStatus};
use ua_store::{NewOverride, OverrideKind, QuestionKind, RunRecords};
use ua_testkit::{CrashAt, Honours, World, foreign_tool, own_tool};

use super::scenario::{Answers, Scenario};

/// Nine turns in three iterations: the first two end without a promise, the third with one that comes too early, and then with one that
/// holds. The mail is asked for again by a model that has forgotten it.
const SCRIPT: &str = r#"{"turns": [
  {"tools": [{"name": "mcp__ua__write_local_file", "input": {"path": "report.md", "content": "report {{request}}"}}]},
  {"text": "The report is written."},
  {"tools": [{"name": "mcp__ua__send_email", "input": {"to": ["a@example.test"], "subject": "Report", "body": "It is done."}}],
   "expect": {"contains": ["Everything once.", "Iteration 2 of at most 4 begins here, after turn 2", "email.send", "The report is written."]}},
  {"tools": [{"name": "mcp__ua__upload", "input": {"path": "report.md", "destination": "file:///store/{{request}}"}},
             {"name": "mcp__forum__post_comment", "input": {"text": "Done, says request {{request}}"}}]},
  {"text": "Sent."},
  {"tools": [{"name": "mcp__ua__send_email", "input": {"to": ["a@example.test"], "subject": "Report", "body": "It is done."}}],
   "expect": {"contains": ["Iteration 3 of at most 4 begins here, after turn 5", "not to be repeated", "mcp__ua__send_email"]}},
  {"text": "<promise>ALL DONE</promise>"},
  {"tools": [{"name": "mcp__ua__notify", "input": {"message": "done {{request}}"}}],
   "expect": {"contains": ["counts only with evidence", "run.notify"]}},
  {"text": "Now it is true. <promise>ALL DONE</promise>"}
]}"#;

const EFFECTS: [&str; 5] = ["write_local_file", "upload", "send_email", "post_comment", "notify"];

/// The turns at which the iterations of [`SCRIPT`] end.
const ENDS: [(u32, u32); 3] = [(1, 2), (3, 5), (6, 9)];

fn job(harness: &Value) -> Value {
    json!({"objective": "Everything once.", "harness": harness, "stop_conditions": ["email_sent_once", "final_notification_sent"]})
}

fn scenario_of(script: &str, job: &Value) -> Scenario {
    let own = EFFECTS.iter().filter(|tool| **tool != "post_comment").map(|tool| (own_tool(tool), Honours::Keys));
    let opaque = [(foreign_tool("forum", "post_comment"), Honours::Nothing)];
    let world = World::new(own.chain(opaque));
    Scenario::with(world, Env::simulated(42), script, &job.to_string(), None)
}

fn three() -> Scenario {
    scenario_of(SCRIPT, &job(&json!({"max_iterations": 4, "completion_promise": "ALL DONE"})))
}

async fn points(scenario: &Scenario) -> Vec<CrashAt> {
    let (crossings, run) = scenario.run_without_crash().await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.status_detail);
    (0..crossings).flat_map(|n| [CrashAt::Before(n), CrashAt::After(n)]).collect()
}

/// Each iteration is one step, counted once, told once and ended in the write that begins the next.
fn check_iterations(records: &RunRecords, ends: &[(u32, u32)], at: &str) {
    assert_eq!(records.run.iteration_count as usize, ends.len(), "{at}");
    let steps: Vec<(u32, u32)> =
        records.steps.iter().map(|step| (step.first_turn, step.last_turn.unwrap_or_default())).collect();
    assert_eq!(steps, ends, "{at}");
    assert!(records.steps.iter().all(|step| step.status == StepStatus::Succeeded), "{at}");
    let told: Vec<u32> =
        records.messages.iter().filter(|m| m.message.origin == Origin::Iteration).map(|m| m.turn).collect();
    assert_eq!(told, ends[..ends.len() - 1].iter().map(|(_, last)| *last).collect::<Vec<_>>(), "{at}");
    let turns: Vec<u32> = records.turns.iter().map(|turn| turn.turn).collect();
    assert_eq!(turns, (1..=records.run.turn_index).collect::<Vec<_>>(), "{at}: turns are numbered on");
    let columns = (records.run.max_iterations, records.run.completion_promise.as_deref());
    assert_eq!(columns, (Some(4), Some("ALL DONE")), "{at}");
}

async fn check(scenario: &Scenario, at: &str) {
    for effect in EFFECTS {
        assert_eq!(scenario.world.count(effect), 1, "{effect} at {at}");
    }
    let records = scenario.records().await;
    check_iterations(&records, &ENDS, at);
    scenario.check_bill(&records, at);
    scenario.check_invariants(at).await;
}

#[tokio::test]
async fn each_iteration_is_counted_once_wherever_we_die() {
    for at in points(&three()).await {
        let scenario = three();
        scenario.crash(at).await;
        let run = scenario.resume_to_the_end(Answers::Truth).await;
        let at = format!("{at:?}");
        assert_eq!(run.status, RunStatus::Succeeded, "{at}: {:?}", run.status_detail);
        assert_eq!(run.final_output.as_deref(), Some("Now it is true. <promise>ALL DONE</promise>"), "{at}");
        check(&scenario, &at).await;
    }
}

#[tokio::test]
async fn two_deaths_end_as_one_life_does() {
    for (index, first) in points(&three()).await.into_iter().enumerate().step_by(4) {
        let second = CrashAt::After((index % 37) as u64);
        let scenario = three();
        scenario.crash(first).await;
        scenario.crash(second).await;
        let run = scenario.resume_to_the_end(Answers::Truth).await;
        let at = format!("{first:?} then {second:?}");
        assert_eq!(run.status, RunStatus::Succeeded, "{at}: {:?}", run.status_detail);
        check(&scenario, &at).await;
    }
}

/// What the model is sent in a later iteration: the job, the hand-off, and nothing of the conversation before.
#[tokio::test]
async fn a_new_context_has_the_job_and_the_hand_off_and_nothing_else() {
    let scenario = three();
    scenario.run_without_crash().await;
    let records = scenario.records().await;
    assert_eq!(records.messages.len(), 1 + 9 + 5 + 2 + 1, "the history is kept whole");
    let note = records.messages.iter().rfind(|m| m.message.origin == Origin::Iteration).unwrap().message.text();
    for words in [
        "run.notify at least 1×",
        "These hold: `email.send exactly 1×`",
        "Iteration 1, turns 1 to 2:",
        "| Sent.",
        "max_iterations: 2 of 4 iterations",
        "end with `<promise>ALL DONE</promise>`",
    ] {
        assert!(note.contains(words), "{words}: {note}");
    }
    let handoff: Value =
        serde_json::from_str(&std::fs::read_to_string(scenario.workspace().join("handoff.json")).unwrap()).unwrap();
    assert_eq!((&handoff["iteration"], &handoff["turn_index"]), (&json!(3), &json!(5)));
    let done: Vec<&str> = handoff["done"].as_array().unwrap().iter().filter_map(|d| d["tool"].as_str()).collect();
    assert_eq!(done.len(), 4, "{done:?}");
    // The model forgot the mail and asked for it again: the ledger had not.
    let again = records.calls.iter().rfind(|call| call.name.tool == "send_email").unwrap();
    assert!(again.deduplicated_from.is_some() && again.attempt == 0, "{again:?}");
}

/// A doubt that a person left open is handed on, and nothing is forgotten about it.
#[tokio::test]
async fn a_doubt_of_an_earlier_iteration_is_handed_on() {
    let mut seen = 0;
    for at in points(&three()).await {
        let scenario = three();
        scenario.crash(at).await;
        if scenario.turn_index().await != 3 {
            continue; // the comment is posted in turn 4
        }
        let run = scenario.resume_to_the_end(Answers::Skip).await;
        assert_eq!(run.status, RunStatus::Succeeded, "{at:?}: {:?}", run.status_detail);
        assert!(scenario.world.count("post_comment") <= 1, "{at:?}");
        let records = scenario.records().await;
        check_iterations(&records, &ENDS, &format!("{at:?}"));
        let note = records.messages.iter().rfind(|m| m.message.origin == Origin::Iteration).unwrap().message.text();
        let in_doubt = records.calls.iter().any(|call| call.status == ua_core::CallStatus::Unknown);
        assert_eq!(note.contains("## In doubt"), in_doubt, "{at:?}: {note}");
        seen += usize::from(in_doubt);
    }
    assert!(seen > 0, "no death left a doubt");
}

/// Writes of 3000 characters each, so that a context is full after a few turns.
fn long() -> Scenario {
    let write = |n: usize| {
        let content = format!("{n} {}", "x".repeat(3_000));
        json!({"tools": [{"name": "mcp__ua__write_local_file", "input": {"path": format!("{n}.md"), "content": content}}]})
    };
    let mut turns: Vec<Value> = (1..=10).map(write).collect();
    turns.push(json!({"tools": [
        {"name": "mcp__ua__send_email", "input": {"to": ["a@example.test"], "subject": "Report", "body": "It is done."}},
        {"name": "mcp__ua__notify", "input": {"message": "done"}}]}));
    turns.push(json!({"text": "Done."}));
    let harness = json!({"max_iterations": 9, "context_budget_tokens": 5000});
    scenario_of(&json!({"turns": turns}).to_string(), &job(&harness))
}

#[tokio::test]
async fn a_full_context_ends_an_iteration_wherever_we_die() {
    for at in points(&long()).await.into_iter().step_by(5) {
        let scenario = long();
        scenario.crash(at).await;
        let run = scenario.resume_to_the_end(Answers::Truth).await;
        let at = format!("{at:?}");
        assert_eq!(run.status, RunStatus::Succeeded, "{at}: {:?}", run.status_detail);
        for (effect, count) in [("write_local_file", 10), ("send_email", 1), ("notify", 1)] {
            assert_eq!(scenario.world.count(effect), count, "{effect} at {at}");
        }
        scenario.check_invariants(&at).await;
        let records = scenario.records().await;
        assert!((3..=9).contains(&records.run.iteration_count), "{at}: {}", records.run.iteration_count);
        let firsts: Vec<u32> = records.steps.iter().map(|step| step.first_turn).collect();
        for request in &records.requests {
            let is_first = firsts.contains(&request.turn);
            assert!(
                request.estimated_tokens <= 5_000 || is_first,
                "{at}: turn {}: {}",
                request.turn,
                request.estimated_tokens
            );
        }
    }
}

#[tokio::test]
async fn iterations_are_limited_and_more_of_them_may_be_allowed() {
    let script = SCRIPT.replace("of at most 4 begins here, after turn 2", "of at most 2 begins here, after turn 2");
    let limited = scenario_of(&script, &job(&json!({"max_iterations": 2, "completion_promise": "ALL DONE"})));
    for _ in 0..2 {
        let run = limited.resume().await;
        let detail = run.status_detail.clone().unwrap_or_default();
        assert_eq!(
            (run.status, run.stop_reason, run.iteration_count),
            (RunStatus::Stopped, Some(RunStop::Budget), 2),
            "{detail}"
        );
        assert_eq!(
            detail,
            "the budget max_iterations (2) is reached: iteration 2 is over: the model stopped without its promise"
        );
    }
    let change = NewOverride {
        run_id: limited.records().await.run.run_id,
        kind: OverrideKind::Budget,
        component: "max_iterations".to_owned(),
        value: json!(4),
        made_by: "a tester".to_owned(),
        at: limited.env.now(),
    };
    limited.change(change).await;
    let run = limited.resume_to_the_end(Answers::Truth).await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.status_detail);
    check(&limited, "raised").await;
}

#[tokio::test]
async fn promises_without_evidence_go_to_a_person_in_the_end() {
    let promise = json!({"text": "<promise>ALL DONE</promise>"});
    let script = json!({"turns": [promise, promise, promise, promise, promise]}).to_string();
    let scenario = scenario_of(&script, &job(&json!({"max_iterations": 4, "completion_promise": "ALL DONE"})));
    let run = scenario.resume().await;
    assert_eq!((run.status, run.turn_index, run.iteration_count), (RunStatus::WaitingForHuman, 4, 1));
    let records = scenario.records().await;
    assert_eq!(records.questions.iter().map(|q| q.kind).collect::<Vec<_>>(), [QuestionKind::MissingEvidence]);
    assert!(records.questions[0].text.contains("but this is missing"), "{}", records.questions[0].text);
}

#[tokio::test]
async fn iterations_that_only_talk_go_to_a_person_before_all_are_used() {
    let script = json!({"turns": [], "after_end": {"text": "I shall begin soon."}}).to_string();
    let scenario = scenario_of(&script, &job(&json!({"max_iterations": 40, "completion_promise": "ALL DONE"})));
    let run = scenario.resume().await;
    assert_eq!((run.status, run.iteration_count), (RunStatus::WaitingForHuman, 4), "{:?}", run.status_detail);
    let records = scenario.records().await;
    assert!(records.questions[0].text.contains("4 iterations in a row"), "{}", records.questions[0].text);
}
