//! A batch of a composite tool: wherever the process dies, also between two actions, each action is done once, and in another batch or
//! by its own tool it is not done again.

use ua_core::{CallStatus, Env, RunStatus, ToolName, ToolNamespace};
use ua_store::{Choice, QuestionKind, QuestionStatus};
use ua_testkit::{CrashAt, Honours, World, own_tool};

use super::scenario::Scenario;

/// The second batch has the mail of the first one once more, in another order; the third time it comes by its own tool.
const SCRIPT: &str = r#"{"turns": [
  {"tools": [{"name": "mcp__composio__COMPOSIO_MULTI_EXECUTE_TOOL", "input": {"session_id": "s", "tools": [
     {"tool_slug": "GMAIL_FETCH_EMAILS", "arguments": {"max": 1}},
     {"tool_slug": "GMAIL_SEND_EMAIL", "arguments": {"recipient_email": "a@example.test", "subject": "Report"}},
     {"tool_slug": "SLACK_SEND_MESSAGE", "arguments": {"text": "sent, says request {{request}}"}}]}},
   {"name": "mcp__ua__notify", "input": {"message": "first {{request}}"}}]},
  {"tools": [{"name": "mcp__composio__COMPOSIO_MULTI_EXECUTE_TOOL", "input": {"thought": "request {{request}}", "tools": [
     {"tool_slug": "GMAIL_SEND_EMAIL", "arguments": {"recipient_email": "a@example.test", "subject": "Report"}},
     {"tool_slug": "GMAIL_FETCH_EMAILS", "arguments": {"max": 2}}]}}]},
  {"tools": [{"name": "mcp__composio__GMAIL_SEND_EMAIL", "input": {"recipient_email": "a@example.test", "subject": "Report"}}]},
  {"text": "All done."}
]}"#;

/// Reading a mailbox taints the run, so the job names where things go.
const JOB: &str = r#"{"objective": "Send the report.", "stop_conditions": ["email_sent_once", "final_notification_sent"],
  "constraints": {"allowed_recipients": ["a@example.test"], "allowed_destinations": ["SLACK_SEND_MESSAGE"]}}"#;

fn composio(tool: &str) -> ToolName {
    ToolName::qualified(ToolNamespace::Composio, "composio", tool)
}

fn scenario() -> Scenario {
    let tools = [(own_tool("notify"), Honours::Keys), (composio("GMAIL_SEND_EMAIL"), Honours::Nothing)];
    let world = World::new(tools).composite(composio("COMPOSIO_MULTI_EXECUTE_TOOL"));
    Scenario::with(world, Env::simulated(5), SCRIPT, JOB, None)
}

async fn crash_points() -> Vec<CrashAt> {
    let scenario = scenario();
    let (crossings, run) = scenario.run_without_crash().await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.status_detail);
    check(&scenario, "without a crash").await;
    (0..crossings).flat_map(|n| [CrashAt::Before(n), CrashAt::After(n)]).collect()
}

/// Resumes to the end and answers what is asked with what the world saw. Returns the tools that were asked about.
async fn to_the_end(scenario: &Scenario, at: &str) -> Vec<String> {
    let mut asked = Vec::new();
    for _ in 0..4 {
        let run = scenario.resume().await;
        if run.status != RunStatus::WaitingForHuman {
            assert_eq!(run.status, RunStatus::Succeeded, "{at}: {:?}", run.status_detail);
            return asked;
        }
        let calls = scenario.calls().await;
        for question in scenario.questions().await {
            if question.status != QuestionStatus::Open {
                continue;
            }
            assert_eq!(question.kind, QuestionKind::UnknownOutcome, "{at}: {}", question.text);
            let call = calls.iter().find(|call| Some(&call.call_id) == question.call_id.as_ref()).unwrap();
            let is_it = |d: &ua_testkit::Delivery| d.tool == call.name.tool && call.arguments == d.arguments;
            let happened = scenario.world.deliveries().iter().any(is_it);
            scenario.choose(&question, if happened { Choice::Happened } else { Choice::Execute }).await;
            asked.push(call.name.tool.clone());
        }
    }
    panic!("{at}: the run never ends");
}

async fn check(scenario: &Scenario, at: &str) {
    for effect in ["GMAIL_SEND_EMAIL", "SLACK_SEND_MESSAGE", "notify"] {
        assert_eq!(scenario.world.count(effect), 1, "{effect} at {at}");
    }
    let calls = scenario.calls().await;
    let mails: Vec<_> = calls.iter().filter(|call| call.name.tool == "GMAIL_SEND_EMAIL").collect();
    assert_eq!(mails.iter().filter(|call| call.deduplicated_from.is_some()).count(), 2, "{at}");
    assert!(mails.iter().all(|call| call.status == CallStatus::Succeeded), "{at}");
    assert_eq!(calls.len(), 7, "{at}");
    scenario.check_invariants(at).await;
}

#[tokio::test]
async fn each_action_of_a_batch_happens_once_wherever_we_die() {
    let mut asked = 0;
    for at in crash_points().await {
        let scenario = scenario();
        scenario.crash(at).await;
        let in_flight: Vec<String> = scenario
            .calls()
            .await
            .into_iter()
            .filter(|call| {
                call.status == CallStatus::Running && call.policy.via.is_some() && call.policy.class.has_effect()
            })
            .map(|call| call.name.tool)
            .collect();
        let at = format!("{at:?}");
        // Asked about is the action in flight and no other one of its batch.
        assert_eq!(to_the_end(&scenario, &at).await, in_flight, "{at}");
        asked += in_flight.len();
        check(&scenario, &at).await;
    }
    assert!(asked >= 6, "{asked}");
}

#[tokio::test]
async fn a_second_crash_while_a_batch_is_finished_changes_nothing() {
    // Every third first crash with a few second ones, spread by the first one's number.
    for (index, first) in crash_points().await.iter().enumerate().step_by(3) {
        for second in (index % 14..28).step_by(14) {
            for at in [CrashAt::Before(second as u64), CrashAt::After(second as u64)] {
                let scenario = scenario();
                scenario.crash(*first).await;
                scenario.crash(at).await;
                let at = format!("{first:?} then {at:?}");
                to_the_end(&scenario, &at).await;
                check(&scenario, &at).await;
            }
        }
    }
}
