//! What each command that looks at something prints, word for word.

use serde_json::json;
use ua_e2e::TestEnv;

use super::env;

/// What a command prints, with everything that differs from run to run replaced.
fn printed(env: &TestEnv, args: &[&str], code: i32) -> String {
    let output = env.run(args).code(code);
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    format!("$ ua {}\n{}\n", args.join(" "), lines.join("\n"))
}

fn check(env: &TestEnv, name: &str, commands: &[(&[&str], i32)]) {
    let text: Vec<String> = commands.iter().map(|(args, code)| printed(env, args, *code)).collect();
    assert_looks(env, name, &text.join("\n"));
}

/// Compares a text with its snapshot, without what differs from run to run.
pub(crate) fn assert_looks(env: &TestEnv, name: &str, text: &str) {
    let folder = env.path("").display().to_string();
    let folder = folder.trim_end_matches('/');
    insta::with_settings!({filters => vec![
        (folder, "[folder]"),
        (r"session_\d{8}_\d{6}_", "session_[time]_"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", "[instant]"),
        (r"(call|q|step|ckpt|run)_[0-9a-f]{32}", "${1}_[id]"),
        (r"[0-9a-f]{64}", "[sha256]"),
        (r"[0-9a-f]{32}", "[id]"),
        (r"[0-9a-f]{12,16}|\b[0-9a-f]{10}\b", "[digest]"),
        (r"\d+(\.\d+)? (ms|s)\b", "[span]"),
        (r"\d+ in, \d+ out", "[n] in, [n] out"),
        (r"\d+ tokens in, \d+ out", "[n] tokens in, [n] out"),
        (r"used so far: \d+", "used so far: [n]"),
        (r"\d+ of \d+ tokens", "[n] of [n] tokens"),
        (r"\b\d+ tokens", "[n] tokens"),
        (r"process \d+ on \S+", "process [pid] on [host]"),
        (r"\[n\] tokens {2,}", "[n used]  "),
        (r"own tokens +\d+ +\d+", "own tokens [n] [n]"),
        (r"([Tt]okens:?) +\d+", "${1} [n]"),
        (r"\d+ input, \d+ output", "[n] input, [n] output"),
        (r"sha256 [0-9a-f]{8}\b", "sha256 [digest]"),
        (r"\d+ bytes", "[n] bytes"),
        (r"SQLite +[\d.]+", "SQLite [version]"),
        (r"([Ss]chema) +\d+", "${1} [number]"),
        (r"\d+ others", "[n] others"),
        (r"\d+ of ua", "[n] of ua"),
        (r" {3,}", "   "),
    ]}, {
        insta::assert_snapshot!(name, text);
    });
}

/// A run that mailed something and waits for an answer about a comment, and a fork of it.
fn two_runs() -> TestEnv {
    let env = env().with_forum();
    let turns = json!([
        {"tools": [{"name": "mcp__ua__write_local_file", "input": {"path": "work_products/a.md", "content": "one"}}]},
        {"tools": [{"name": "mcp__ua__send_email", "input": {"to": ["team@example.test"], "subject": "News", "body": "Done."}}]},
        {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]},
        {"text": "Done."},
    ]);
    let job = env.job(&json!({"prompt": "Tell them.", "stop_conditions": ["email_sent_once"]}), &turns);
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "first"]);
    env.run(&["resume", "first"]).code(75);
    env.run(&["fork", "first", "--at-turn", "1", "--run-id", "second", "--max-turns", "1"]).code(75);
    env
}

#[test]
fn runs_and_turns_look_like_this() {
    let env = two_runs();
    check(
        &env,
        "runs",
        &[
            (&["runs", "list"], 0),
            (&["runs", "list", "--status", "stopped"], 0),
            (&["runs", "show", "first"], 0),
            (&["runs", "show", "second"], 0),
            (&["runs", "diff", "first", "second"], 0),
            (&["runs", "delete", "second", "--force", "--dry-run"], 0),
            (&["turns", "show", "first"], 0),
            (&["turns", "show", "first", "2"], 0),
        ],
    );
}

#[test]
fn calls_and_questions_look_like_this() {
    let env = two_runs();
    let call = env.value("SELECT tool_call_id FROM tool_calls WHERE tool_name = 'post_comment' AND run_id = 'first'");
    let question = env.value("SELECT question_id FROM questions WHERE run_id = 'first'");
    check(
        &env,
        "calls",
        &[
            (&["calls", "list", "--run", "first"], 0),
            (&["calls", "list", "--unknown"], 0),
            (&["calls", "show", &call], 0),
            (&["calls", "probe", &call], 2),
            (&["questions", "--run", "first"], 0),
            (&["answer", &question, "continue"], 2),
            (&["answer", &question, "happened", "--proof", "c-1"], 0),
            (&["runs", "cancel", "second"], 0),
        ],
    );
}

#[test]
fn tools_configuration_and_database_look_like_this() {
    let env = two_runs();
    let backup = env.arg("out/copy.db");
    check(
        &env,
        "tools_and_database",
        &[
            (&["tools", "explain", "mcp__forum__post_comment"], 0),
            (&["tools", "audit"], 0),
            (&["config", "show"], 0),
            (&["db", "check", "--invariants"], 0),
            (&["db", "migrate"], 0),
            (&["db", "backup", &backup], 0),
            (&["db", "prune", "--dry-run"], 0),
        ],
    );
}
