//! Sub-agents through the real program: a tree of runs is killed and resumed, asks, is cancelled, looked at and deleted.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;

use serde_json::{Value, json};
use ua_e2e::{Model, TestEnv, until};

use super::env;

/// Two sub-agents; afterwards the run at the top asks for the e-mail that one of them has sent.
const SCRIPT: &str = r#"{
  "turns": [
    {"text": "Handing on.", "tools": [
      {"name": "mcp__ua_agents__task", "input": {"description": "Tell the boss", "prompt": "ALPHA: send the mail.",
        "expected_outputs": ["work_products/mail.md"]}},
      {"name": "mcp__ua_agents__task", "input": {"description": "Tell the forum", "prompt": "BETA: post."}}]},
    {"tools": [{"name": "mcp__ua__send_email", "input": {"to": ["a@example.test"], "subject": "Report", "body": "Done."}}]},
    {"tools": [{"name": "mcp__ua__notify", "input": {"title": "Done", "message": "done {{request}}"}}]},
    {"text": "All done."}],
  "conversations": [
    {"when": "ALPHA", "turns": [
      {"tools": [{"name": "mcp__ua__write_local_file", "input": {"path": "work_products/mail.md", "content": "mail {{request}}"}}]},
      {"tools": [{"name": "mcp__ua__send_email", "input": {"to": ["a@example.test"], "subject": "Report", "body": "Done."}}]},
      {"text": "The boss knows."}]},
    {"when": "BETA", "turns": [
      {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "request {{request}}"}}]},
      {"text": "The forum knows."}]}]}"#;

fn job(env: &TestEnv, fields: &Value) -> String {
    let mut all = json!({
        "objective": "Tell everybody at a@example.test once.",
        "model": {"provider": "anthropic", "name": "scripted"},
        "subagents": {},
        "stop_conditions": ["email_sent_once", "final_notification_sent"],
    });
    for (name, value) in fields.as_object().into_iter().flatten() {
        all[name] = value.clone();
    }
    env.job(&all, &json!([]))
}

fn asked(model: &Model, conversation: &str) -> usize {
    model.log().iter().filter(|request| request.conversation.as_deref() == Some(conversation)).count()
}

fn child(env: &TestEnv, objective: &str) -> String {
    env.value(&format!("SELECT run_id FROM runs WHERE run_spec_json ->> '$.objective' = '{objective}'"))
}

/// Answers what is asked by looking outside, and resumes the run at the top until it has ended.
fn finish(env: &TestEnv, at: &str) {
    for _ in 0..4 {
        let output = env.run(&["resume", "r"]);
        let open = env.rows("SELECT question_id FROM questions WHERE status = 'open'");
        if open.is_empty() {
            output.code(0);
            return;
        }
        output.code(75).shows(&["Did `post_comment` happen?", "ua resume r"]);
        let happened = if env.comments().is_empty() { "execute" } else { "happened" };
        for question in open {
            env.run(&["answer", &question, happened]).code(0).says(&["ua resume r"]);
        }
    }
    panic!("the run never ends: {at}");
}

fn check_end(env: &TestEnv, at: &str) {
    assert_eq!(env.effects(), [1, 0, 1, 1], "{at}");
    let runs = env.rows("SELECT run_mode, status FROM runs ORDER BY run_mode");
    assert_eq!(runs, ["job succeeded", "task succeeded", "task succeeded"], "{at}");
    let tasks = env.rows("SELECT status, attempt FROM tool_calls WHERE tool_name = 'task'");
    assert_eq!(tasks, ["succeeded 1", "succeeded 1"], "{at}");
    let own = "SELECT count(*) FROM tool_calls WHERE run_id = 'r' AND tool_name = 'send_email' AND deduplicated_from IS NOT NULL";
    assert_eq!(env.value(own), "1", "{at}: the mail at the top is that of the sub-agent");
    env.run(&["db", "check", "--invariants"]).code(0);
}

#[test]
fn a_tree_that_is_killed_anywhere_has_each_effect_once() {
    for point in [
        "",
        "before:store.start_attempt:task",
        "after:store.start_attempt:task#2",
        "after:store.acquire_run#2",
        "before:store.record_turn#2",
        "after:store.start_attempt:send_email",
        "after:tool.invoke:send_email",
        "after:tool.invoke:post_comment",
        "after:store.commit_turn#2",
        "before:store.end_run",
        "after:store.end_run",
        "after:store.end_run#2",
        "before:store.commit_turn#6",
    ] {
        let model = Model::with(SCRIPT, |_| ());
        let env = env().with_forum().with_model(&model);
        let job = job(&env, &json!({}));
        if point.is_empty() {
            let output = env.run(&["job", &job, "--run-id", "r"]).code(0);
            output.says(&["Tell the boss ▸ turn 1", "Tell the forum ▸ "]).shows(&["succeeded · run r", "post_comment"]);
            check_end(&env, "no kill");
            check_what_people_see(&env);
            continue;
        }
        env.run_killed_at(point, &["job", &job, "--run-id", "r"]);
        let ended: Vec<(&str, usize)> = [("Tell the boss", "ALPHA"), ("Tell the forum", "BETA")]
            .into_iter()
            .filter(|(objective, _)| {
                let status = "SELECT status FROM runs WHERE run_spec_json ->> '$.objective' =";
                env.rows(&format!("{status} '{objective}'")) == ["succeeded"]
            })
            .map(|(_, name)| (name, asked(&model, name)))
            .collect();
        finish(&env, point);
        check_end(&env, point);
        for (name, before) in ended {
            assert_eq!(asked(&model, name), before, "{name} had ended at {point} and was asked again");
        }
    }
}

#[test]
fn a_tail_follows_sub_agents_that_start_later() {
    let env = env().with_forum();
    let waiting = format!(r#"{{"text": "request {{{{request}}}}", "until": "{}"}}"#, env.arg("go"));
    let script = SCRIPT.replace(r#"{"text": "request {{request}}"}"#, &waiting);
    assert_ne!(script, SCRIPT);
    let model = Model::with(&script, |_| ());
    let env = env.with_model(&model);
    let driver = env.start(&["job", &job(&env, &json!({})), "--run-id", "r"]);
    until("the run is there", || env.try_rows("SELECT run_id FROM runs") == ["r"]);
    let tail = env.start(&["runs", "tail", "r"]);
    until("the tail shows the sub-agent's call", || {
        tail.stdout().contains("Tell the forum ▸ ") && tail.stdout().contains("post_comment")
    });
    assert!(!tail.stdout().contains("post_comment ok"), "{}", tail.stdout());
    env.write("go", "");
    driver.wait().code(0);
    tail.wait().code(0).shows(&["post_comment ok", "Tell the forum ▸ sub-agent", "run r succeeded"]);
}

/// What sub-agents did stands among what their run did, where it happened.
fn check_tail(env: &TestEnv, boss: &str) {
    let all = env.run(&["runs", "tail", "--no-follow", "--turns", "9", "r"]).code(0);
    all.shows(&[
        "Tell the boss ▸ sub-agent",
        "Tell the boss ▸ turn 1 · thinking",
        "Tell the forum ▸ ",
        "post_comment ok",
    ]);
    let events = |args: &[&str]| -> Vec<Value> {
        let output = env.run(&[&["runs", "tail", "--no-follow", "--json", "r"][..], args].concat()).code(0);
        output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let of = |events: &[Value], run: &str| events.iter().filter(|event| event["run_id"] == run).count();
    let told = events(&["--turns", "9"]);
    assert!(of(&told, boss) > 6 && of(&told, "r") > 6, "{told:?}");
    assert!(told.windows(2).all(|pair| pair[0]["at"].as_str() <= pair[1]["at"].as_str()), "{told:?}");
    let passages = told.iter().filter(|event| event["event"] == "sub_agent" && event["run_id"] == boss);
    assert_eq!(passages.map(|event| event["status"].as_str().unwrap()).collect::<Vec<_>>(), ["queued", "succeeded"]);
    // The sub-agents worked in the first turn.
    assert_eq!(of(&events(&["--turns", "1"]), boss), 0);
    assert_eq!(of(&events(&["--turns", "9", "--no-tasks"]), boss), 0);
}

fn check_what_people_see(env: &TestEnv) {
    let boss = child(env, "Tell the boss");
    let listed = env.run(&["runs", "list"]).code(0);
    assert!(!listed.shown().contains("run_task_"), "{}", listed.shown());
    env.run(&["runs", "list", "--tasks"]).code(0).shows(&[&format!("└ {boss}"), "Tell the forum"]);
    env.run(&["runs", "show", "r"]).code(0).shows(&["Sub-agent", &boss, "Tell the boss"]);
    env.run(&["runs", "show", &boss]).code(0).shows(&["Sub-agent of   r"]);
    env.run(&["runs", "tail", "--no-follow", &boss]).code(0);
    check_tail(env, &boss);
    let workspace = env.value("SELECT workspace_dir FROM runs WHERE run_id = 'r'");
    let page = fs::read_to_string(format!("{workspace}/job_completion_r.md")).unwrap();
    for words in ["## Sub-agents", &boss, "`send_email`", "`post_comment`"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let call = boss.replace("run_task_", "call_");
    let output = fs::read_to_string(format!("{workspace}/subagent_outputs/{call}/subagent_output.json")).unwrap();
    let output: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(output["final_output"], "The boss knows.");
    let file = format!("{workspace}/subagent_outputs/{call}/subagent_output.json");
    fs::remove_file(&file).unwrap();
    env.run(&["runs", "export", "r"]).code(0).shows(&["subagent_output.json"]);
    // What it did by its sub-agents stands on its page and in its summary.
    for name in ["timeline.html", "session_summary.txt"] {
        let text = fs::read_to_string(format!("{workspace}/{name}")).unwrap();
        for words in ["send_email", "post_comment"] {
            assert!(text.contains(words), "{name}: {words}");
        }
    }
    assert_eq!(serde_json::from_str::<Value>(&fs::read_to_string(&file).unwrap()).unwrap(), output);
    let path = format!("subagent_outputs/{call}/work_products/mail.md");
    assert!(output["artifacts"].to_string().contains(&path), "{output}");
    assert!(fs::exists(format!("{workspace}/{path}")).unwrap());

    for command in [&["fork", &boss][..], &["runs", "delete", &boss]] {
        env.run(command).refused(2, &["sub-agent of run r"]);
    }
    env.run(&["runs", "delete", "r", "--yes"]).code(0);
    assert_eq!(env.rows("SELECT run_id FROM runs"), [""; 0]);
    assert!(!fs::exists(workspace).unwrap());
}

/// What a task came to, by the file that says so to the run whose task it was.
fn output(env: &TestEnv, child: &str) -> Value {
    let workspace = env.value("SELECT workspace_dir FROM runs WHERE run_id = 'r'");
    let call = child.replace("run_task_", "call_");
    let file = format!("{workspace}/subagent_outputs/{call}/subagent_output.json");
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

/// Corrects the record of the only call of `tool` that was sent.
fn put_right(env: &TestEnv, tool: &str, what: &str) {
    let sent = "SELECT tool_call_id FROM tool_calls WHERE deduplicated_from IS NULL AND tool_name =";
    let call = env.value(&format!("{sent} '{tool}'"));
    let said = ["calls", "resolve", &call, "--as", what, "--reason", "I looked there", "--yes"];
    env.run(&said).code(0).says(&["is recorded as", what]);
}

/// The file that a task's result names, and what is told about the run above, say what a person put right.
#[test]
fn what_a_sub_agent_did_is_told_as_it_was_put_right() {
    let model = Model::with(SCRIPT, |_| ());
    let env = env().with_forum().with_model(&model);
    env.run(&["job", &job(&env, &json!({})), "--run-id", "r"]).code(0);
    let forum = child(&env, "Tell the forum");
    let status = || output(&env, &forum)["effects"][0]["status"].clone();
    let page = || {
        let workspace = env.value("SELECT workspace_dir FROM runs WHERE run_id = 'r'");
        fs::read_to_string(format!("{workspace}/job_completion_r.md")).unwrap()
    };
    assert_eq!(status(), "succeeded");
    put_right(&env, "post_comment", "not_happened");
    assert_eq!(status(), "failed_definite");
    let effect = &output(&env, &forum)["effects"][0];
    assert!(effect["correction"].to_string().contains("it did not happen. Reason: I looked there"), "{effect}");
    for words in ["did not happen", "I looked there"] {
        assert!(page().contains(words), "{words}: {}", page());
    }
    let shown = env.run(&["runs", "show", "r"]).code(0);
    assert!(shown.stdout.contains("post_comment"), "it is no effect that never was: {}", shown.stdout);
    put_right(&env, "post_comment", "happened");
    assert_eq!(status(), "succeeded");
    env.run(&["db", "check", "--invariants"]).code(0);
}

/// Also while the run above is open: a sub-agent that has ended is written about by nobody else.
#[test]
fn what_a_sub_agent_of_an_open_run_did_is_put_right_in_its_file() {
    let model = Model::with(SCRIPT, |_| ());
    let env = env().with_forum().with_model(&model);
    waits(&env);
    let boss = child(&env, "Tell the boss");
    put_right(&env, "send_email", "not_happened");
    assert_eq!(output(&env, &boss)["effects"][0]["status"], "failed_definite");
}

/// One sub-agent asks a person, the other one has sent its mail meanwhile.
fn waits(env: &TestEnv) {
    let output =
        env.run(&["job", &job(env, &json!({"escalation": {"ask_human_before": ["post_*"]}})), "--run-id", "r"]);
    output.code(75).shows(&["waiting for you", "May `post_comment` run?"]);
    assert_eq!(env.effects(), [1, 0, 0, 0]);
    let statuses = env.rows("SELECT run_mode, status FROM runs ORDER BY run_mode, status");
    assert_eq!(statuses, ["job waiting_for_human", "task succeeded", "task waiting_for_human"]);
}

#[test]
fn a_question_of_a_sub_agent_is_answered_and_its_job_goes_on() {
    let model = Model::with(SCRIPT, |_| ());
    let env = env().with_forum().with_model(&model);
    waits(&env);
    let forum = child(&env, "Tell the forum");
    env.run(&["questions"]).code(0).shows(&[&format!("{forum}, a sub-agent of r")]);
    // Whoever asks about the run is told what its sub-agents ask, and of no doubt: nothing was sent.
    env.run(&["questions", "--run", "r"]).code(0).shows(&["May `post_comment` run?"]);
    env.run(&["runs", "show", "r"]).code(0).shows(&["May `post_comment` run?", "ua answer"]);
    let again = env.run(&["job", &job(&env, &json!({"escalation": {"ask_human_before": ["post_*"]}}))]).code(75);
    assert!(
        again.stderr.contains("ua questions --run r") && !again.stderr.contains("nobody knows"),
        "{}",
        again.stderr
    );
    env.run(&["resume", &forum]).refused(2, &["sub-agent of run r", "ua resume r"]);
    let question = env.value("SELECT question_id FROM questions WHERE status = 'open'");
    env.run(&["answer", &question, "execute"]).code(0).says(&["ua resume r"]);
    let before = asked(&model, "ALPHA");
    env.run(&["resume", "r"]).code(0);
    assert_eq!(asked(&model, "ALPHA"), before);
    check_end(&env, "answered");
}

/// Whoever ends a sub-agent reads before and afterwards that the run above it continues, and what ends everything.
#[test]
fn an_abort_of_a_sub_agent_says_that_its_run_continues() {
    let model = Model::with(SCRIPT, |_| ());
    let env = env().with_forum().with_model(&model);
    waits(&env);
    let ends = "end this sub-agent only; the run above it continues";
    let named = ["\"Tell the forum\" of run r", "`ua runs cancel r`", ends];
    env.run(&["questions"]).code(0).shows(&named);
    env.run(&["runs", "show", "r"]).code(0).shows(&named);
    env.run(&["status"]).code(0).shows(&["of run r, asked by its sub-agent"]);
    let asked = env.run(&["questions", "--json"]).code(0).json();
    assert_eq!(asked[0]["sub_agent_of"], "r", "{asked}");
    assert!(asked[0]["remark"].to_string().contains("`ua runs cancel`"), "{asked}");
    let question = env.value("SELECT question_id FROM questions WHERE status = 'open'");
    let then = ["starts no more calls and ends; run r continues without it", "ua resume r", "`ua runs cancel r`"];
    env.run(&["answer", &question, "abort"]).code(0).says(&then);
    assert_eq!(env.value("SELECT status FROM runs WHERE run_id = 'r'"), "waiting_for_human");
}

/// A call of a sub-agent that was in flight when its process ended is a doubt of the run above it, wherever that is asked about.
#[test]
fn a_call_of_a_sub_agent_in_doubt_is_told_of_the_run_at_the_top() {
    let model = Model::with(SCRIPT, |_| ());
    let env = env().with_forum().with_model(&model);
    let job = job(&env, &json!({}));
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    env.run(&["job", &job])
        .refused(75, &["run r of the same job", "nobody knows what happened to a call that it sent"]);
    env.run(&["runs", "cancel", "r"]).code(0).says(&["cancelled run r; ", "may or may not have happened"]);
    env.run(&["calls", "list", "--run", "r", "--unknown"]).code(0).shows(&["post_comment"]);
    env.run(&["job", &job]).refused(75, &["was cancelled, and nobody knows", "`ua calls list --run r --unknown"]);
}

#[test]
fn a_cancel_ends_the_whole_tree() {
    let model = Model::with(SCRIPT, |_| ());
    let env = env().with_forum().with_model(&model);
    waits(&env);
    env.run(&["runs", "cancel", "r", "--reason", "enough"]).code(0).says(&["cancelled run r"]);
    let statuses = env.rows("SELECT run_mode, status FROM runs ORDER BY run_mode, status");
    assert_eq!(statuses, ["job cancelled", "task cancelled", "task succeeded"]);
    assert_eq!(env.value("SELECT count(*) FROM questions WHERE status <> 'closed'"), "0");
    assert_eq!(env.value("SELECT count(*) FROM tool_calls WHERE status IN ('running', 'prepared')"), "0");
    assert_eq!(env.effects(), [1, 0, 0, 0]);
    env.run(&["db", "check", "--invariants"]).code(0);
}
