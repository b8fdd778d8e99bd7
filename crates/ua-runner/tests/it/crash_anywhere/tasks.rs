//! Sub-agents: wherever the process dies, each effect of the whole tree happens once, a sub-agent that has ended is not asked
//! again, and one that has not goes on where it stood.
//!
//! Durability Architecture (Task relaunch rules); Durable Jobs v1 spec §11.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]

use ua_core::{CallStatus, RunStatus};
use ua_ledger::NoLateReplies;
use ua_runner::{Workspace, end_as_said};
use ua_store::conformance::samples;
use ua_store::{Choice, LedgerStore as _, QuestionKind, ReplayStatus, RunStore as _};
use ua_testkit::CrashAt;

use super::family::Family;

/// Two sub-agents work side by side; the model at the top then asks for an e-mail that one of them has sent.
const SCRIPT: &str = r#"{
  "turns": [
    {"text": "Handing on.", "tools": [
      {"name": "mcp__ua_agents__task", "input": {"description": "Tell the boss", "prompt": "ALPHA: send the mail."}},
      {"name": "mcp__ua_agents__task", "input": {"description": "Tell the forum", "prompt": "BETA: write and post.",
        "expected_outputs": []}}]},
    {"tools": [{"name": "mcp__ua__send_email", "input": {"to": ["a@example.test"], "subject": "Report", "body": "Done."}}]},
    {"tools": [{"name": "mcp__ua__notify", "input": {"message": "done {{request}}"}}]},
    {"text": "All done."}],
  "conversations": [
    {"when": "ALPHA", "turns": [
      {"tools": [{"name": "mcp__ua__read_local_file", "input": {"path": "a.txt"}}]},
      {"tools": [{"name": "mcp__ua__send_email", "input": {"to": ["a@example.test"], "subject": "Report", "body": "Done."}}]},
      {"text": "The boss knows, says request {{request}}."}]},
    {"when": "BETA", "turns": [
      {"tools": [{"name": "mcp__ua__write_local_file", "input": {"path": "work_products/b.md", "content": "b {{request}}"}}]},
      {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "Done, says request {{request}}"}}]},
      {"text": "The forum knows."}]}]}"#;

const JOB: &str = r#"{"objective": "Tell everybody at a@example.test once.", "subagents": {},
    "stop_conditions": ["email_sent_once", "final_notification_sent"]}"#;

const EFFECTS: [&str; 4] = ["write_local_file", "send_email", "post_comment", "notify"];

async fn crash_points() -> Vec<CrashAt> {
    let family = Family::new(SCRIPT, JOB);
    let (run, points) = family.crash_points().await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.status_detail);
    check_end(&family, "clean").await;
    assert_eq!([family.requests("main"), family.requests("ALPHA"), family.requests("BETA")], [4, 3, 3]);
    assert!(points.len() > 120, "the scenario crosses too few seams to prove anything: {}", points.len());
    points
}

async fn check_end(family: &Family, at: &str) {
    for effect in EFFECTS {
        assert_eq!(family.world.count(effect), 1, "{effect} at {at}");
    }
    let children = family.children().await;
    assert_eq!(children.iter().map(|run| run.status).collect::<Vec<_>>(), [RunStatus::Succeeded; 2], "{at}");
    for (task, said) in family.tasks().await.iter().zip(["The boss knows", "The forum knows"]) {
        assert_eq!((task.status, task.attempt), (CallStatus::Succeeded, 1), "{at}");
        assert!(family.told(task).await.contains(said), "{at}");
        let output = family.workspace().join(format!("subagent_outputs/{}/subagent_output.json", task.call_id));
        let output: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(output).unwrap()).unwrap();
        assert_eq!(output["status"], "succeeded", "{at}");
        assert!(output["final_output"].as_str().unwrap().contains(said), "{at}");
        assert_eq!(output["effects"].as_array().unwrap().len(), 1, "{at}");
    }
    family.check(at).await;
}

/// An owner that slept may wake up and end a sub-agent after its successor looked at it: what it came to counts.
#[tokio::test]
async fn a_sub_agent_that_somebody_else_has_ended_meanwhile_is_no_failure() {
    let family = Family::with_outrun_parent(SCRIPT, JOB);
    let run = family.live(None).await.unwrap();
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.status_detail);
    check_end(&family, "outrun").await;
}

#[tokio::test]
async fn every_effect_of_the_tree_happens_once_wherever_we_die() {
    let (mut reused, mut resumed) = (0, 0);
    for at in crash_points().await {
        let family = Family::new(SCRIPT, JOB);
        family.live(Some(at)).await;
        let at = format!("{at:?}");
        let ended: Vec<&str> = ["ALPHA", "BETA"]
            .into_iter()
            .zip(family.children().await)
            .filter_map(|(name, run)| run.status.is_terminal().then_some(name))
            .collect();
        let asked: Vec<u32> = ended.iter().map(|name| family.requests(name)).collect();
        let run = family.finish().await;
        assert_eq!(run.status, RunStatus::Succeeded, "{at}: {:?}", run.status_detail);
        check_end(&family, &at).await;
        let asked_again: Vec<u32> = ended.iter().map(|name| family.requests(name)).collect();
        assert_eq!(asked, asked_again, "{ended:?} had ended at {at}");
        for task in family.tasks().await {
            reused += u32::from(task.replay_status == Some(ReplayStatus::Reused));
            resumed += u32::from(task.replay_status == Some(ReplayStatus::Resumed));
        }
    }
    assert!(reused > 0 && resumed > 0, "{reused} outputs were reused, {resumed} sub-agents went on");
}

#[tokio::test]
async fn a_second_death_changes_nothing() {
    // Every third first death with a handful of second ones, spread by the first one's number.
    for (index, first) in crash_points().await.into_iter().enumerate().step_by(3) {
        for second in (index % 31..80).step_by(31) {
            let at = super::side(index + second / 31)(second as u64);
            let family = Family::new(SCRIPT, JOB);
            family.live(Some(first)).await;
            family.live(Some(at)).await;
            let run = family.finish().await;
            let at = format!("{first:?} then {at:?}");
            assert_eq!(run.status, RunStatus::Succeeded, "{at}: {:?}", run.status_detail);
            check_end(&family, &at).await;
        }
    }
}

#[tokio::test]
async fn an_email_that_a_sub_agent_sent_is_not_sent_again_by_its_parent_and_counts_for_it() {
    let family = Family::new(SCRIPT, JOB);
    family.finish().await;
    let records = family.records().await;
    let own = records.calls.iter().find(|call| call.name.tool == "send_email").unwrap();
    let [alpha, beta] = &records.lineage.sub_agents[..] else { panic!("two sub-agents") };
    assert_eq!(own.deduplicated_from.as_ref(), Some(&alpha.effects[0].call_id));
    assert_eq!((alpha.turns, beta.turns, beta.effects.len()), (3, 3, 2));
    let completion = family.workspace().join("job_completion_run_root.md");
    let completion = std::fs::read_to_string(completion).unwrap();
    for words in ["Tell the boss", "Tell the forum", "post_comment", alpha.run_id.as_str()] {
        assert!(completion.contains(words), "{words} is not in\n{completion}");
    }
}

/// One sub-agent asks a person; its sibling works on meanwhile.
const ASKS: &str = r#"{
  "turns": [
    {"tools": [
      {"name": "mcp__ua_agents__task", "input": {"description": "Ask", "prompt": "ALPHA: ask for the colour."}},
      {"name": "mcp__ua_agents__task", "input": {"description": "Write", "prompt": "BETA: write."}}]},
    {"text": "All done."}],
  "conversations": [
    {"when": "ALPHA", "turns": [
      {"tools": [{"name": "mcp__ua_person__ask_user", "input": {"question": "Which colour?"}}]},
      {"text": "It is {{result:toolu_1_1}}."}]},
    {"when": "BETA", "turns": [
      {"tools": [{"name": "mcp__ua__write_local_file", "input": {"path": "b.md", "content": "b"}}]},
      {"text": "Written."}]}]}"#;

const ASKING_JOB: &str = r#"{"objective": "Tell the colour.", "subagents": {}, "escalation": {"ask_user": true}}"#;

#[tokio::test]
async fn a_question_parks_its_branch_and_siblings_go_on() {
    let points = {
        let family = Family::new(ASKS, ASKING_JOB);
        let (run, points) = family.crash_points().await;
        assert_eq!(run.status, RunStatus::WaitingForHuman);
        assert!(run.status_detail.unwrap().contains("Which colour?"));
        points
    };
    for at in points.into_iter().map(Some).chain([None]) {
        let family = Family::new(ASKS, ASKING_JOB);
        family.live(at).await;
        let run = family.live(None).await.unwrap();
        let at = format!("{at:?}");
        assert_eq!(run.status, RunStatus::WaitingForHuman, "{at}");
        let children = family.children().await;
        assert_eq!(
            children.iter().map(|run| run.status).collect::<Vec<_>>(),
            [RunStatus::WaitingForHuman, RunStatus::Succeeded],
            "{at}"
        );
        let statuses: Vec<CallStatus> = family.tasks().await.into_iter().map(|task| task.status).collect();
        assert_eq!(statuses, [CallStatus::Running, CallStatus::Succeeded], "{at}");
        family.check(&at).await;
        let [question] = &family.questions().await[..] else { panic!("one question at {at}") };
        assert_eq!((question.kind, &question.run_id), (QuestionKind::AskUser, &children[0].run_id), "{at}");
        let written = family.requests("BETA");
        family.choose(question, Choice::Continue, "a deep blue").await;
        let run = family.live(None).await.unwrap();
        assert_eq!(run.status, RunStatus::Succeeded, "{at}");
        let told = family.told(&family.tasks().await[0]).await;
        assert!(told.contains("It is a deep blue."), "{at}: {told}");
        assert_eq!((family.requests("BETA"), family.world.count("write_local_file")), (written, 1), "{at}");
        family.check(&at).await;
    }
}

#[tokio::test]
async fn a_cancel_reaches_every_run_of_the_tree() {
    let family = Family::new(ASKS, ASKING_JOB);
    family.live(None).await;
    family.store.request_cancel(&family.root, "enough", family.env.now()).await.unwrap();
    let asked = [family.requests("ALPHA"), family.requests("main")];
    let run = family.live(None).await.unwrap();
    assert_eq!(run.status, RunStatus::Cancelled);
    let statuses: Vec<RunStatus> = family.children().await.into_iter().map(|run| run.status).collect();
    assert_eq!(statuses, [RunStatus::Cancelled, RunStatus::Succeeded]);
    let told: Vec<CallStatus> = family.tasks().await.into_iter().map(|task| task.status).collect();
    assert_eq!(told, [CallStatus::FailedReported, CallStatus::Succeeded]);
    assert_eq!([family.requests("ALPHA"), family.requests("main")], asked, "nobody is asked any more");
    assert!(family.questions().await.is_empty());
    family.check("cancelled").await;
}

/// A sub-agent had ended, and its process died before the run above it had the answer: whoever ends that run without a process of its own
/// gives it, also where the file that says so cannot be written.
#[tokio::test]
async fn a_cancel_keeps_what_a_sub_agent_had_come_to() {
    let mut kept = 0;
    for at in crash_points().await {
        let family = Family::new(SCRIPT, JOB);
        family.live(Some(at)).await;
        let (tasks, children) = (family.tasks().await, family.children().await);
        let open: Vec<_> = tasks.into_iter().filter(|task| task.status == CallStatus::Running).collect();
        if open.is_empty() || !children.iter().all(|child| child.status.is_terminal()) {
            continue;
        }
        let (store, now) = (&*family.store, family.env.now());
        store.request_cancel(&family.root, "enough", now).await.unwrap();
        let (lease, _) = store.acquire_run(&family.root, &samples::owner(100), now).await.unwrap();
        if kept % 2 == 1 {
            for task in &open {
                let file = family.workspace().join(format!("subagent_outputs/{}/subagent_output.json", task.call_id));
                if file.exists() {
                    std::fs::remove_file(&file).unwrap();
                }
                std::fs::create_dir_all(file.join("in the way")).unwrap();
            }
        }
        let workspace = Workspace::open(&family.workspace()).unwrap();
        let ended = end_as_said(store, &NoLateReplies, &lease, &workspace, &family.env).await.unwrap();
        assert_eq!(ended.status, RunStatus::Cancelled, "{at:?}");
        for task in open {
            let task = store.call(&task.call_id).await.unwrap();
            let told = family.told(&task).await;
            assert_eq!(task.status, CallStatus::Succeeded, "{at:?}: {told}");
            assert!(told.contains(" knows"), "{at:?}: {told}");
            kept += 1;
        }
        family.check(&format!("{at:?}")).await;
    }
    assert!(kept > 1, "{kept} sub-agents had ended before their tasks");
}

#[tokio::test]
async fn a_stop_leaves_tasks_as_they_are_and_the_next_life_goes_on() {
    let family = Family::new(ASKS, ASKING_JOB);
    family.live(None).await;
    let run = family.interrupted().await;
    assert_eq!(run.status, RunStatus::Stopped);
    assert_eq!(family.tasks().await[0].status, CallStatus::Running);
    family.check("stopped").await;
    let [question] = &family.questions().await[..] else { panic!("one question") };
    family.choose(question, Choice::Continue, "green").await;
    assert_eq!(family.live(None).await.unwrap().status, RunStatus::Succeeded);
}

/// A sub-agent that never ends, one that wants sub-agents, and more of them than the job allows.
const LIMITS: &str = r#"{
  "turns": [
    {"tools": [
      {"name": "mcp__ua_agents__task", "input": {"description": "Endless", "prompt": "ALPHA: go on for ever."}},
      {"name": "mcp__ua_agents__task", "input": {"description": "Deep", "prompt": "BETA: hand on."}},
      {"name": "mcp__ua_agents__task", "input": {"description": "Third", "prompt": "GAMMA"}}]},
    {"tools": [
      {"name": "mcp__ua_agents__task", "input": {"description": "Outside", "prompt": "x", "expected_outputs": ["../a"]}},
      {"name": "mcp__ua_agents__task", "input": {"description": "No tools", "prompt": "x", "tools": ["nothing*"]}}]},
    {"text": "All done."}],
  "conversations": [
    {"when": "ALPHA", "turns": [], "after_end":
      {"tools": [{"name": "mcp__ua__read_local_file", "input": {"path": "{{request}}.txt"}}]}},
    {"when": "BETA", "turns": [
      {"tools": [{"name": "mcp__ua_agents__task", "input": {"description": "Deeper", "prompt": "DELTA"}}]},
      {"text": "It could not be handed on."}]}]}"#;

#[tokio::test]
async fn limits_are_told_to_the_model_and_its_job_goes_on() {
    let job = r#"{"objective": "Hand on.", "subagents": {"max_tasks": 2, "max_turns": 3}}"#;
    let family = Family::new(LIMITS, job);
    let run = family.finish().await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.status_detail);
    let tasks = family.tasks().await;
    let statuses: Vec<CallStatus> = tasks.iter().map(|task| task.status).collect();
    let (failed, succeeded, refused) = (CallStatus::FailedReported, CallStatus::Succeeded, CallStatus::Cancelled);
    assert_eq!(statuses, [failed, succeeded, refused, refused, refused]);
    for (task, words) in
        tasks.iter().zip(["max_turns (3) is reached", "could not be handed on", "used up", "not a path", "may use"])
    {
        let told = family.told(task).await;
        assert!(told.contains(words), "{words:?} is not in {told:?}");
    }
    assert_eq!([family.requests("ALPHA"), family.requests("GAMMA"), family.requests("DELTA")], [3, 0, 0]);
    let children = family.children().await;
    assert_eq!(children.iter().map(|run| run.status).collect::<Vec<_>>(), [RunStatus::Failed, RunStatus::Succeeded]);
    let deeper = family.store.load(&children[1].run_id).await.unwrap().calls.remove(0);
    assert!(deeper.error_detail.unwrap().contains("max_depth"), "the refusal names the limit");
    family.check("limits").await;
}

/// Two tasks that use more than their shares, in a job that has six turns.
#[tokio::test]
async fn what_sub_agents_use_counts_for_the_run_above_them() {
    let script = LIMITS.replace("BETA: hand on", "ALPHA: too");
    let job = r#"{"objective": "Hand on.", "subagents": {"max_tasks": 2}, "budgets": {"max_turns": 8}}"#;
    let family = Family::new(&script, job);
    let run = family.finish().await;
    // One turn at the top leaves seven for two sub-agents: three each, and the one that is left is the top's second.
    assert_eq!(family.requests("ALPHA"), 6);
    assert_eq!((run.status, run.turn_index), (RunStatus::Stopped, 2), "{:?}", run.status_detail);
    assert!(run.status_detail.unwrap().contains("max_turns (8)"));
    family.check("shares").await;
}
