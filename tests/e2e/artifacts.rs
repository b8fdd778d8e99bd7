//! The files of a run for people, word for word: after it succeeded, was killed, asked, was stopped, and was forked.

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
    files.map(page).collect::<Vec<_>>().join("\n")
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
