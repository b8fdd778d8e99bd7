//! The same as `claude_code` with the real program, against our scripted model server; skipped with a message where it is not installed
//! (`cargo xtask third-party`, then `UA_THIRD_PARTY` where it was put).

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use ua_e2e::{Model, TestEnv, until};
use ua_testkit::{SmtpFault, SmtpSink, SmtpSinkConfig, ThirdParty};

use super::env;

/// The program, if it is there.
#[expect(clippy::disallowed_methods, reason = "where programs of others are is told by the environment of the tests")]
fn claude(check: &str) -> Option<(PathBuf, String)> {
    let installed = ThirdParty::at(std::env::var("UA_THIRD_PARTY").ok().map(PathBuf::from));
    let program = installed.find_or_say("claude", check)?;
    let path = installed.path().iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(":");
    Some((program, format!("{path}:/usr/local/bin:/usr/bin:/bin")))
}

fn world((program, path): &(PathBuf, String), model: &Model) -> TestEnv {
    env()
        .with_forum()
        .with_model(model)
        .with_env("PATH", path)
        .with_env("UA_CLAUDE_CODE", &program.display().to_string())
}

fn job(env: &TestEnv) -> String {
    env.job(&json!({"model": {"provider": "claude-code", "name": "claude-sonnet-4-5"}}), &json!([]))
}

fn mail() -> Value {
    let input = json!({"to": ["ann@example.test"], "subject": "Done", "body": "It is done."});
    json!({"tools": [{"name": "mcp__ua__send_email", "input": input}]})
}

/// What a session that was interrupted in its first reply has before it is told to go on: the reply, and one of the client's own.
fn after_an_interruption(first: &Value) -> Value {
    json!([first, {"text": "never said"}, first, {"text": "All is done."}])
}

/// Kills the process of `claude` that belongs to this world, as `kill -9` does.
#[expect(clippy::unwrap_used, reason = "a test ends with a panic")]
fn kill_claude(env: &TestEnv) {
    let mark = env.root().display().to_string();
    let is_it = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(&mark) && line.contains("--include-partial-messages") && !line.contains("__shim")
    };
    let pids =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    let pids: Vec<i32> = pids.filter(is_it).collect();
    assert_eq!(pids.len(), 1, "{:?}", env.processes());
    kill_process(Pid::from_raw(pids[0]).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn the_real_claude_code_works_through_the_gateway() {
    let Some(claude) = claude("a job through the real Claude Code") else { return };
    let turns = json!([
        {"text": "I look first.", "tools": [
            {"name": "mcp__forum__get_page", "input": {"text": "a page"}},
            {"name": "mcp__forum__get_page", "input": {"text": "another"}}]},
        {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}], "expect": {"contains": ["a page", "another"]}},
        {"text": "All is done.", "expect": {"contains": ["posted"], "tool_result_ok": true}},
    ]);
    let model = Model::start(&turns, Vec::new());
    let env = world(&claude, &model);
    env.run(&["job", &job(&env), "--run-id", "r"]).code(0).shows(&["All is done."]);
    assert!(model.log().iter().all(|request| request.status == 200), "{:?}", model.log());
    assert_eq!(env.calls(), ["get_page succeeded", "get_page succeeded", "post_comment succeeded"]);
    assert_eq!(env.comments().len(), 1);
    // What the model said it cost is what is charged, request by request.
    let billed: u64 = model.bill().iter().map(|usage| usage.input_tokens + usage.output_tokens).sum();
    assert_eq!(
        env.value("SELECT sum(input_tokens + output_tokens) FROM usage WHERE status = 'actual'"),
        billed.to_string()
    );
    assert_eq!(env.value("SELECT provider_session_id FROM runs").len(), 36);
    until("everything has ended", || env.processes().is_empty());
}

#[test]
fn an_email_whose_answer_the_killed_claude_never_heard_is_sent_once() {
    let Some(claude) = claude("kill -9 of the real Claude Code while a mail server holds its answer") else { return };
    let runtime = Runtime::new().unwrap();
    let model = Model::start(&after_an_interruption(&mail()), Vec::new());
    let env = world(&claude, &model);
    let faults = [(1, SmtpFault::Slow(Duration::from_secs(3)))].into();
    let config = SmtpSinkConfig { directory: env.path("sink"), credentials: None, unknown: Vec::new(), faults };
    let sink = runtime.block_on(SmtpSink::start(config)).unwrap();
    let address = format!("smtp://{}?starttls=never", sink.address);
    let env = env.with_env("UA_MAIL", &address).with_env("UA_MAIL_FROM", "ua@example.test");
    let live = env.start(&["job", &job(&env), "--run-id", "r"]);
    until("the mail server has the message", || sink.messages().unwrap().len() == 1);
    kill_claude(&env);
    live.wait().code(0).shows(&["All is done."]);
    assert_eq!(sink.messages().unwrap().len(), 1, "the agent asked for it twice");
    let rows = env.rows("SELECT status, attempt, coalesce(replay_status, '-') FROM tool_calls ORDER BY turn");
    assert_eq!(rows, ["succeeded 1 -", "succeeded 0 reused"]);
    // It was told so in the session that it had.
    assert_eq!(env.value("SELECT count(DISTINCT response_id) FROM turns"), "1");
    assert!(model.last_request().to_string().contains("Tool call interrupted"));
}

#[test]
fn an_email_is_sent_once_when_ua_and_the_real_claude_die_together() {
    let Some(claude) = claude("a kill of ua and the real Claude Code") else { return };
    let model = Model::start(&after_an_interruption(&mail()), Vec::new());
    let env = world(&claude, &model);
    env.run_killed_at("after:tool.invoke:send_email", &["job", &job(&env), "--run-id", "r"]);
    assert_eq!(env.mails().len(), 1);
    env.run(&["resume", "r"]).code(0).shows(&["All is done."]);
    assert_eq!(env.mails().len(), 1);
    until("everything has ended", || env.processes().is_empty());
}

#[test]
fn a_real_claude_whose_ua_is_killed_in_a_tool_call_asks_nothing_that_is_not_charged() {
    let Some(claude) = claude("a kill of ua while the real Claude Code waits for a tool") else { return };
    for at in ["before", "after"] {
        let model = Model::start(&after_an_interruption(&mail()), Vec::new());
        let env = world(&claude, &model);
        env.run_killed_at(&format!("{at}:tool.invoke:send_email"), &["job", &job(&env), "--run-id", "r"]);
        until("everything has ended", || env.processes().is_empty());
        assert_eq!(model.log().len(), 1, "{at}: the orphan asked again: {}", model.last_request());
        env.run(&["resume", "r"]).code(0).shows(&["All is done."]);
        assert_eq!(env.mails().len(), 1, "{at}");
        assert_eq!(env.value("SELECT count(*) FROM usage"), model.log().len().to_string(), "{at}");
    }
}

#[test]
fn a_fork_begins_a_session_of_its_own_from_that_of_the_real_claude() {
    let Some(claude) = claude("a fork of a session of the real Claude Code") else { return };
    let comment = |text: &str| json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": text}}]});
    let done = json!({"text": "All is done.", "expect": {"contains": ["posted"]}});
    let model = Model::start(&json!([comment("one"), done, comment("two"), done]), Vec::new());
    let env = world(&claude, &model);
    env.run(&["job", &job(&env), "--run-id", "r"]).code(0);
    let session = |run: &str| env.value(&format!("SELECT provider_session_id FROM runs WHERE run_id = '{run}'"));
    let folder = |run: &str| env.root().join("claude-code").join(run).join("home/.claude/projects");
    let sessions = |run: &str| {
        let mut all = std::collections::BTreeMap::new();
        for project in std::fs::read_dir(folder(run)).unwrap().flatten() {
            for file in std::fs::read_dir(project.path()).unwrap().flatten().filter(|file| file.path().is_file()) {
                all.insert(file.file_name().to_string_lossy().into_owned(), std::fs::read(file.path()).unwrap());
            }
        }
        all
    };
    let before = sessions("r");
    env.run(&["fork", "r", "--run-id", "f"]).code(0).shows(&["All is done."]);
    // It remembers what it never was told again: the words and the results stand in the request as they were.
    let request = model.log().iter().map(|request| request.status).collect::<Vec<_>>();
    assert!(request.iter().all(|status| *status == 200), "{request:?}");
    let last = model.last_request().to_string();
    assert!(last.contains("This run is a fork") && !last.contains("which you do not remember"), "{last}");
    assert_ne!(session("f"), session("r"));
    assert_eq!(env.comments().len(), 2);
    assert_eq!(sessions("r"), before, "the original is only read");
    let of_fork = sessions("f");
    for id in [session("r"), session("f")] {
        assert!(of_fork.contains_key(&format!("{id}.jsonl")), "{:?}", of_fork.keys());
    }
    until("everything has ended", || env.processes().is_empty());
}
