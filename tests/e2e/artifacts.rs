//! The files of a run, those for people word for word, of those for machines what they say: after it succeeded, was killed, asked, was stopped,
//! and was forked.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use ua_e2e::TestEnv;

use super::env;
use super::looks::assert_looks;

fn mail() -> Value {
    json!({"tools": [{"name": "mcp__ua__send_email", "input": {"to": ["team@example.test"], "subject": "News", "body": "Done."}}]})
}

fn turns() -> Value {
    json!([
        {"text": "First the page.", "tools": [{"name": "mcp__forum__get_page", "input": {"text": "page"}}]},
        {"tools": [{"name": "mcp__ua__write_local_file", "input": {"path": "work_products/a.md", "content": "one"}}]},
        mail(),
        {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]},
        {"text": "The team was told."},
    ])
}

fn job(env: &TestEnv) -> String {
    let conditions = json!(["email_sent_once", {"artifact": "work_products/a.md"}]);
    env.job(&json!({"prompt": "Tell them.", "stop_conditions": conditions}), &turns())
}

/// The files of a run that people read, those that are there, and the page about all runs.
fn pages(env: &TestEnv, run: &str) -> String {
    let workspace = env.value(&format!("SELECT workspace_dir FROM runs WHERE run_id = '{run}'"));
    let of_run = [
        "session_summary.txt".to_owned(),
        format!("job_completion_{run}.md"),
        format!("resume_packet_{run}.md"),
        "transcript.md".to_owned(),
        "run.log".to_owned(),
    ];
    let files = of_run.iter().map(|name| (name.as_str(), Path::new(&workspace).join(name)));
    let files = files.chain([("RESTART.md", env.root().join("RESTART.md"))]);
    let page = |(name, path): (&str, std::path::PathBuf)| match fs::read_to_string(path) {
        Ok(text) => format!("===== {name}\n{}\n", text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")),
        Err(_) => format!("===== {name} is not there\n"),
    };
    let mut text = files.map(page).collect::<Vec<_>>().join("\n");
    text.push_str(&format!("\n===== trace.jsonl\n{}", events(&workspace)));
    text.push_str(&format!("\n===== trace.json\n{}", trace(&workspace)));
    text.push_str(&format!("\n===== timeline\n{}", timeline(env, run)));
    text
}

/// A value without what differs from run to run.
fn told(value: &Value, fields: &[&str]) -> String {
    let fields = fields.iter().filter(|name| !value[**name].is_null()).map(|name| format!("{name}={}", value[*name]));
    fields.collect::<Vec<_>>().join(" ")
}

/// What each line of `trace.jsonl` says; each has its run and its instant.
fn events(workspace: &str) -> String {
    let text = fs::read_to_string(Path::new(workspace).join("trace.jsonl")).unwrap();
    let lines = text.lines().map(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        assert!(event["run_id"].is_string() && event["at"].is_string(), "{line}");
        let shown =
            ["event", "epoch", "turn", "ordinal", "tool", "status", "attempt", "kind", "choice", "by", "stop_reason"];
        told(&event, &shown) + "\n"
    });
    lines.collect()
}

/// What `trace.json` says, a line for each of its entries.
fn trace(workspace: &str) -> String {
    let Ok(text) = fs::read_to_string(Path::new(workspace).join("trace.json")) else {
        return "is not there\n".to_owned();
    };
    let trace: Value = serde_json::from_str(&text).unwrap();
    let mut page = String::new();
    for (part, entries) in trace.as_object().unwrap() {
        for entry in entries.as_array().into_iter().flatten() {
            let shown = ["kind", "phase", "turn", "tool", "status", "attempts", "outcome", "model"];
            page.push_str(&format!("{part}: {}\n", told(entry, &shown)));
        }
    }
    page
}

/// What the timeline draws.
fn timeline(env: &TestEnv, run: &str) -> String {
    let file = env.path("timeline.html").display().to_string();
    env.run(&["runs", "export", run, "--html", &file]).code(0);
    let html = fs::read_to_string(file).unwrap();
    let data = html.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).unwrap();
    let data: Value = serde_json::from_str(data).unwrap();
    let mut page = format!("run: {}\n", told(&data["run"], &["status", "reason", "detail"]));
    let parts: [(&str, &[&str]); 5] = [
        ("lives", &["epoch", "how"]),
        ("turns", &["n", "text", "stop"]),
        ("calls", &["turn", "ordinal", "tool", "class", "status", "verdict", "evidence"]),
        ("questions", &["kind", "status"]),
        ("conditions", &["condition", "met", "missing"]),
    ];
    for (part, fields) in parts {
        for entry in data[part].as_array().into_iter().flatten() {
            page.push_str(&format!("{part}: {}\n", told(entry, fields)));
        }
    }
    page
}

#[test]
fn the_files_of_a_run_that_succeeded() {
    let env = env().with_forum();
    env.run(&["job", &job(&env), "--run-id", "r"]).code(0);
    assert_looks(&env, "after_success", &pages(&env, "r"));
}

#[test]
fn the_files_of_a_run_that_was_killed_and_of_its_question() {
    let env = env().with_forum();
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job(&env), "--run-id", "r"]);
    assert_looks(&env, "after_a_kill", &pages(&env, "r"));
    env.run(&["resume", "r"]).code(75);
    assert_looks(&env, "at_a_question", &pages(&env, "r"));
}

#[test]
fn the_files_of_a_run_that_was_stopped_and_of_its_fork() {
    let env = env().with_forum();
    let fields = json!({"prompt": "Tell them.", "budgets": {"max_turns": 3}, "stop_conditions": ["email_sent_once"]});
    env.run(&["job", &env.job(&fields, &turns()), "--run-id", "r"]).code(75);
    assert_looks(&env, "after_a_stop", &pages(&env, "r"));
    env.run(&["fork", "r", "--at-turn", "2", "--run-id", "f", "--max-turns", "+5"]).code(0);
    assert_looks(&env, "of_a_fork", &pages(&env, "f"));
}

/// What happened to a run is told alike by its export, its log and the pages, and each process has its own times.
#[test]
fn each_process_has_its_own_times_and_the_log_has_who_answered() {
    let env = env().with_forum();
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job(&env), "--run-id", "r"]);
    for _ in 0..3 {
        env.run(&["resume", "r"]).code(75);
        assert_eq!(env.rows("SELECT DISTINCT status FROM run_steps"), ["blocked"]);
    }
    let question = env.value("SELECT question_id FROM questions");
    env.run(&["answer", &question, "happened"]).code(0);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.rows("SELECT DISTINCT status FROM run_steps"), ["succeeded"]);

    let processes = env.run(&["runs", "export", "r", "--json"]).code(0).json()["processes"].clone();
    let processes = processes.as_array().unwrap();
    let ends: Vec<&str> = processes.iter().map(|process| process["end"].as_str().unwrap()).collect();
    assert_eq!(ends, ["killed", "in_order", "in_order", "in_order", "in_order"]);
    let at = |n: usize, field: &str| processes[n][field].as_str().unwrap().to_owned();
    for n in 0..processes.len() {
        assert!(at(n, "started_at") < at(n, "last_seen_at"), "process {n} lasted: {processes:?}");
        assert!(n == 0 || at(n - 1, "last_seen_at") <= at(n, "started_at"), "{processes:?}");
    }
    let log = fs::read_to_string(env.workspace().join("run.log")).unwrap();
    for line in
        ["process 1 starts work on the run", "process 2 takes over: the one before it died", "answered", "succeeded"]
    {
        assert!(log.contains(line), "{line}: {log}");
    }
    assert_eq!(log.matches("waiting for you").count(), 3, "{log}");
    let page = fs::read_to_string(env.workspace().join("job_completion_r.md")).unwrap();
    assert!(page.contains("driven by: 5 processes; process 1 was killed, last seen at "), "{page}");
}
