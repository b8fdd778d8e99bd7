//! Jobs through an agent that owns its loop: every call goes through the ledger, and an interruption repeats none.
//!
//! A stand-in speaks what `claude` speaks, so this runs everywhere; `real_claude_code` has the same with the real program.

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::{Value, json};
use ua_e2e::{TestEnv, until};

use super::env;

/// A world whose `claude` is the stand-in with this plan.
pub(super) fn world(plan: &Value) -> TestEnv {
    let env = env().with_forum();
    let plan = env.write("plan.json", plan.to_string());
    env.with_env("UA_CLAUDE_CODE", env!("CARGO_BIN_EXE_ua-e2e-claude"))
        .with_env("ANTHROPIC_API_KEY", "a-key")
        .with_env("ANTHROPIC_BASE_URL", &format!("http://127.0.0.1{plan}"))
}

pub(super) fn job(env: &TestEnv, fields: &Value) -> String {
    let mut all = json!({"model": {"provider": "claude-code", "name": "a-model"}});
    for (name, value) in fields.as_object().into_iter().flatten() {
        all[name] = value.clone();
    }
    env.job(&all, &json!([]))
}

pub(super) fn post(text: &str) -> Value {
    json!({"tool": "mcp__forum__post_comment", "input": {"text": text}})
}

pub(super) fn page(text: &str) -> Value {
    json!({"tool": "mcp__forum__get_page", "input": {"text": text}})
}

pub(super) fn mail() -> Value {
    let input = json!({"to": ["ann@example.test"], "subject": "Done", "body": "It is done."});
    json!({"tool": "mcp__ua__send_email", "input": input})
}

/// Dies once at this point.
fn dying(env: &TestEnv, steps: &Value, at: &str) -> String {
    env.write("plan.json", json!({"steps": steps, "die": {"at": at, "mark": env.arg("died")}}).to_string())
}

/// How often each tool was really sent.
fn attempts(env: &TestEnv) -> Vec<String> {
    env.rows("SELECT c.tool_name, count(*) FROM tool_attempts a JOIN tool_calls c USING (tool_call_id) GROUP BY 1 ORDER BY 1")
}

/// Nothing of the run is left running.
pub(super) fn all_ended(env: &TestEnv) {
    until("everything that the run started has ended", || env.processes().is_empty());
}

#[test]
fn a_job_runs_through_an_agent_that_owns_its_loop_and_every_call_is_in_the_ledger() {
    let env = world(&json!({"steps": [[page("a"), page("b")], [post("hello"), mail()]]}));
    let output = env.run(&["job", &job(&env, &json!({})), "--run-id", "r"]).code(0);
    output.shows(&["All is done."]);
    assert_eq!((env.comments().len(), env.mails().len()), (1, 1));
    let calls = ["get_page succeeded", "get_page succeeded", "post_comment succeeded", "send_email succeeded"];
    assert_eq!(env.calls(), calls);
    assert_eq!(env.rows("SELECT count(*) FROM turns WHERE committed_at IS NOT NULL"), ["3"]);
    // Every reply is a request that is charged as it was told.
    assert_eq!(
        env.rows("SELECT DISTINCT provider, status, input_tokens, output_tokens FROM usage"),
        ["claude-code actual 10 7"]
    );
    let session = env.value("SELECT provider_session_id FROM runs");
    let kept = env.root().join("claude-code/r/session.json");
    assert!(std::fs::read_to_string(kept).unwrap().contains(&session), "{session}");
    assert!(std::fs::read_to_string(env.workspace().join("transcript.md")).unwrap().contains("All is done."));
    all_ended(&env);
}

#[test]
fn a_kill_of_ua_at_any_boundary_sends_each_mail_once() {
    let points = [
        "before:model.complete",
        "after:model.complete",
        "before:store.record_turn",
        "after:store.record_turn",
        "before:store.start_attempt",
        "after:store.start_attempt",
        "before:tool.invoke:send_email",
        "after:tool.invoke:send_email",
        "before:store.settle_attempt",
        "after:store.settle_attempt",
        "before:store.commit_turn",
        "after:store.commit_turn",
        "before:model.complete#2",
        "after:model.complete#2",
        "after:store.record_turn#2",
        "after:store.commit_turn#2",
    ];
    for point in points {
        let env = world(&json!({"steps": [[mail(), page("a")], [page("b")]]}));
        env.run_killed_at(point, &["job", &job(&env, &json!({})), "--run-id", "r"]);
        env.run(&["resume", "r"]).code(0);
        assert_eq!(env.mails().len(), 1, "{point}");
        let unsettled = "SELECT count(*) FROM tool_calls WHERE status NOT IN ('succeeded', 'cancelled')";
        assert_eq!(env.value(unsettled), "0", "{point}");
        all_ended(&env);
    }
}

#[test]
fn a_kill_between_the_repeat_of_an_owed_call_and_its_answer_sends_nothing() {
    // The first kill leaves the results of turn 1 untaken; the second one hits the turn in which they are asked for again.
    for point in [
        "after:store.record_turn",
        "before:store.deduplicate_call",
        "after:store.deduplicate_call",
        "before:store.commit_turn",
    ] {
        let env = world(&json!({"steps": [[post("one"), post("two")]]}));
        env.run_killed_at("after:store.commit_turn", &["job", &job(&env, &json!({})), "--run-id", "r"]);
        assert_eq!(env.comments().len(), 2, "{point}");
        env.run_killed_at(point, &["resume", "r"]);
        env.run(&["resume", "r"]).code(0);
        assert_eq!(env.comments().len(), 2, "{point}");
        assert_eq!(attempts(&env), ["post_comment 2"], "{point}");
    }
}

#[test]
fn a_kill_of_the_agent_at_any_point_repeats_nothing() {
    for point in ["init", "reply", "asked", "waiting", "answered", "end"] {
        let steps = json!([[post("one")], [page("a")], [post("two")]]);
        let env = world(&json!({}));
        dying(&env, &steps, point);
        env.run(&["job", &job(&env, &json!({})), "--run-id", "r"]).code(0);
        assert!(env.path("died").exists(), "{point}");
        assert_eq!(env.comments().len(), 2, "{point}: {:?}", env.comments());
        let texts: BTreeSet<String> = env.comments().into_iter().collect();
        assert_eq!(texts.len(), 2, "{point}");
        all_ended(&env);
    }
}

#[test]
fn a_call_that_the_agent_did_not_live_to_hear_about_is_asked_for_again_and_answered_from_its_receipt() {
    let env = world(&json!({}));
    dying(&env, &json!([[post("one")]]), "waiting");
    env.run(&["job", &job(&env, &json!({})), "--run-id", "r"]).code(0);
    assert_eq!(env.comments().len(), 1);
    let rows = env.rows("SELECT turn, status, attempt, coalesce(replay_status, '-') FROM tool_calls ORDER BY turn");
    assert_eq!(rows, ["1 succeeded 1 -", "2 succeeded 0 reused"]);
    // The agent goes on in the session it had.
    assert_eq!(env.value("SELECT count(DISTINCT response_id) FROM turns"), "1");
    let summary = std::fs::read_to_string(env.workspace().join("job_completion_r.md")).unwrap();
    assert!(summary.contains("was not run: the receipt of an earlier call is its answer"), "{summary}");
}

#[test]
fn when_both_die_the_call_in_doubt_is_a_persons_to_decide_and_the_agent_is_told_the_outcome() {
    let env = world(&json!({"steps": [[post("one")]]}));
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job(&env, &json!({})), "--run-id", "r"]);
    env.run(&["resume", "r"]).code(75);
    assert_eq!(env.comments().len(), 1);
    let question = env.value("SELECT question_id FROM questions");
    env.run(&["answer", &question, "happened"]).code(0);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.comments().len(), 1);
    assert_eq!(attempts(&env), ["post_comment 1"]);
    assert_eq!(env.rows("SELECT status FROM tool_calls ORDER BY turn"), ["succeeded", "succeeded"]);
    all_ended(&env);
}

#[test]
fn until_it_took_what_it_is_owed_the_agent_may_do_nothing_else_that_has_an_effect() {
    let env = world(&json!({}));
    let plan = json!({"steps": [[post("one")]], "reword": true, "die": {"at": "waiting", "mark": env.arg("died")}});
    env.write("plan.json", plan.to_string());
    env.run(&["job", &job(&env, &json!({})), "--run-id", "r"]).code(0);
    assert_eq!(env.comments().len(), 1);
    let rows = env.rows("SELECT turn, status, coalesce(error_code, '-') FROM tool_calls ORDER BY turn");
    assert_eq!(rows, ["1 succeeded -", "2 cancelled replay_first", "3 succeeded -"]);
}

#[test]
fn an_agent_that_does_not_take_what_it_is_owed_waits_for_a_person() {
    let env = world(&json!({}));
    let plan = json!({
        "steps": [[post("one")], [post("two")], [post("three")]], "stubborn": true,
        "die": {"at": "waiting", "mark": env.arg("died")},
    });
    env.write("plan.json", plan.to_string());
    let output = env.run(&["job", &job(&env, &json!({})), "--run-id", "r"]).code(75);
    output.shows(&["waiting for you"]);
    assert_eq!(env.comments().len(), 1);
    assert_eq!(env.rows("SELECT kind, status FROM questions"), ["repeated_failures open"]);
    all_ended(&env);
    // Told to try again, it does what it is told.
    env.write("plan.json", json!({"steps": [[post("one")], [post("two")]]}).to_string());
    let question = env.value("SELECT question_id FROM questions");
    env.run(&["answer", &question, "continue"]).code(0);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.comments().len(), 2);
}

#[test]
fn a_budget_ends_the_agent_and_more_of_it_goes_on_in_the_same_session() {
    let env = world(&json!({"steps": [[post("one")], [post("two")]]}));
    let job = job(&env, &json!({"budgets": {"max_tool_calls": 1}}));
    env.run(&["job", &job, "--run-id", "r"]).code(75).shows(&["max_tool_calls"]);
    assert_eq!(env.comments().len(), 1);
    all_ended(&env);
    let session = env.value("SELECT provider_session_id FROM runs");
    env.run(&["resume", "r", "--max-tool-calls", "+5"]).code(0);
    assert_eq!(env.comments().len(), 2);
    assert_eq!(env.value("SELECT provider_session_id FROM runs"), session);
}

#[test]
fn what_is_missing_is_told_to_the_agent_in_its_own_conversation() {
    let env = world(&json!({"steps": [[page("a")]]}));
    let job = job(&env, &json!({"stop_conditions": [{"effect": "email.send", "count": 1}]}));
    // Its plan has no mail: it is told three times, then a person is asked.
    env.run(&["job", &job, "--run-id", "r"]).code(75);
    assert_eq!(env.rows("SELECT kind FROM questions"), ["missing_evidence"]);
    assert_eq!(env.value("SELECT count(*) FROM messages WHERE origin = 'guidance'"), "3");
    assert_eq!(env.value("SELECT count(DISTINCT response_id) FROM turns"), "1");
}

#[test]
fn an_interrupt_ends_the_agent_and_a_resume_goes_on() {
    let env = world(&json!({}));
    let hold = env.arg("go");
    env.write("plan.json", json!({"steps": [[post("one")]], "hold": hold}).to_string());
    let live = env.start(&["job", &job(&env, &json!({})), "--run-id", "r"]);
    let kept = || env.root().join("claude-code/r/session.json").exists();
    until("the agent thinks", kept);
    live.signal(Signal::INT);
    live.wait().code(130);
    all_ended(&env);
    env.write("go", "");
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.comments().len(), 1);
}

#[test]
fn a_session_that_the_agent_has_forgotten_is_told_again_from_the_record() {
    let env = world(&json!({"steps": [[post("one")]]}));
    env.run_killed_at("after:store.commit_turn", &["job", &job(&env, &json!({})), "--run-id", "r"]);
    std::fs::remove_dir_all(env.root().join("claude-code/r/home")).unwrap();
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.comments().len(), 1);
    assert_eq!(env.value("SELECT count(DISTINCT response_id) FROM turns"), "2");
}

#[test]
fn a_claude_that_is_not_there_or_cannot_sign_in_is_refused_before_anything_is_stored() {
    let env = env().with_env("ANTHROPIC_API_KEY", "a-key").with_env("UA_CLAUDE_CODE", "/nowhere/claude");
    env.run(&["job", &job(&env, &json!({}))]).refused(2, &["claude", "npm install", "UA_CLAUDE_CODE"]);
    let env = super::env().with_env("UA_CLAUDE_CODE", env!("CARGO_BIN_EXE_ua-e2e-claude"));
    env.run(&["job", &job(&env, &json!({}))]).refused(2, &["no credentials", "ANTHROPIC_API_KEY"]);
    let output = env.run(&["doctor", "--verbose"]);
    assert!(output.shown().contains("stand-in for Claude Code"), "{}", output.shown());
}

#[test]
fn s5_an_agent_lives_where_no_tool_writes_and_git_knows_of_nothing() {
    let env = env().with_env("ANTHROPIC_API_KEY", "a-key");
    // A program in the place of `claude` that only says where it is, and in what.
    let script = "#!/bin/sh\n{ pwd; ls -A; echo \"$HOME\"; env | grep ^GIT_ | sort; } >> \"$0.said\"\ntouch left_behind\nexit 1\n";
    let program = env.write("claude", script);
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let env = env.with_env("UA_CLAUDE_CODE", &program);
    let live = env.start(&["job", &job(&env, &json!({})), "--run-id", "r"]);
    let said = || std::fs::read_to_string(format!("{program}.said")).unwrap_or_default();
    until("it was started twice", || said().matches("GIT_DIR").count() > 1);
    live.signal(Signal::INT);
    live.wait().code(130);
    let folder = env.root().join("claude-code/r");
    let (work, home) = (folder.join("work").display().to_string(), folder.join("home").display().to_string());
    let ceiling = format!("GIT_CEILING_DIRECTORIES={}", folder.display());
    let once = [
        work.as_str(),
        &home,
        &ceiling,
        "GIT_CONFIG_GLOBAL=/dev/null",
        "GIT_CONFIG_NOSYSTEM=1",
        "GIT_CONFIG_SYSTEM=/dev/null",
        "GIT_DIR=/dev/null",
    ];
    let said = said();
    let said: Vec<&str> = said.lines().take(2 * once.len()).collect();
    assert_eq!(said, once.repeat(2));
    assert!(!env.workspace().join(".claude-code").exists());
    // It is deleted with its run, and no workspace has its name.
    env.run(&["runs", "delete", "r", "--force", "--yes"]).code(0);
    assert!(!folder.exists());
    let named = job(&env, &json!({"artifacts": {"workspace_dir": "claude-code/x"}}));
    env.run(&["job", &named]).refused(2, &["ua keeps `claude-code` in the workspace root for itself"]);
}
