//! Signals, and a second process: nothing is sent twice and nothing that was sent is forgotten.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::{Value, json};
use ua_e2e::{Live, TestEnv, until};
use ua_testkit::skipped;

use super::env;

/// The file without which the server does not answer.
fn gate(env: &TestEnv) -> PathBuf {
    env.path("gate")
}

fn turns(env: &TestEnv, tool: &str) -> Value {
    json!([
        {"tools": [{"name": format!("mcp__forum__{tool}"), "input": {"text": "hello", "until": env.arg("gate")}}]},
        {"text": "Done."},
    ])
}

/// A process whose only call waits for the gate.
fn at_the_gate(env: &TestEnv, tool: &str) -> Live {
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns(env, tool));
    let process = env.start_with(("UA_LOG", "info"), &["job", &job, "--run-id", "r"]);
    until("the call to run", || env.try_rows("SELECT status FROM tool_calls") == ["running"]);
    if tool == "post_comment" {
        until("the effect", || !env.comments().is_empty());
    }
    process
}

/// Waits until the process has taken notice of a signal.
fn is_stopping(process: &Live) {
    until("the process to take notice", || process.stderr().contains("nothing new is started"));
}

#[test]
fn a_signal_during_a_read_drops_it_and_a_resume_reads_again() {
    for signal in [Signal::INT, Signal::TERM] {
        let env = env().with_forum();
        let process = at_the_gate(&env, "get_page");
        process.signal_group(signal);
        process.wait().code(130).shows(&["stopped (interrupted)", "ua resume r"]);
        assert_eq!(env.value("SELECT status, stop_reason FROM runs"), "stopped interrupt");
        assert_eq!(env.value("SELECT count(*) FROM checkpoints WHERE checkpoint_type = 'interrupt'"), "1");
        std::fs::write(gate(&env), "").unwrap();
        env.run(&["resume", "r"]).code(0);
        assert_eq!(env.rows("SELECT attempt, status FROM tool_calls"), ["2 succeeded"]);
    }
}

/// Whether these tests were started with `nohup`: what they start keeps to that.
fn hang_ups_are_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    let are_ignored = u64::from_str_radix(ignored, 16).unwrap() & 1 == 1;
    if are_ignored {
        skipped("these tests were started with `nohup`, so nothing tests SIGHUP");
    }
    are_ignored
}

#[test]
fn a_signal_during_an_effect_waits_for_its_receipt() {
    let signals = [Signal::INT, Signal::TERM, Signal::HUP];
    for signal in signals.into_iter().filter(|signal| *signal != Signal::HUP || !hang_ups_are_ignored()) {
        let env = env().with_forum();
        // The whole group gets it, as from a terminal: the tool server must not.
        let process = at_the_gate(&env, "post_comment");
        process.signal_group(signal);
        is_stopping(&process);
        assert_eq!(env.calls(), ["post_comment running"]);
        std::fs::write(gate(&env), "").unwrap();
        process.wait().code(130).shows(&["stopped (interrupted)"]);
        assert_eq!(env.calls(), ["post_comment succeeded"]);
        assert_eq!(env.value("SELECT count(*) FROM tool_receipts"), "1");
        env.run(&["resume", "r"]).code(0);
        assert_eq!((env.comments().len(), env.value("SELECT attempt FROM tool_calls")), (1, "1".to_owned()));
    }
}

#[test]
fn a_second_signal_ends_the_process_at_once_and_leaves_a_question() {
    let env = env().with_forum();
    let process = at_the_gate(&env, "post_comment");
    process.signal_group(Signal::INT);
    is_stopping(&process);
    process.signal_group(Signal::INT);
    process.wait().code(130);
    // The gate stays shut: what the server did is done, and nobody knows.
    env.run(&["resume", "r"]).code(75).shows(&["Did `post_comment` happen?"]);
    assert_eq!((env.calls(), env.comments().len()), (vec!["post_comment unknown".to_owned()], 1));
}

#[test]
fn a_second_process_is_refused_and_told_who_drives_the_run() {
    let env = env().with_forum();
    let process = at_the_gate(&env, "post_comment");
    let owner = format!("process {}", process.id());
    env.run(&["resume", "r"]).refused(75, &["run r", &owner, "nothing was changed"]);
    let job = env.arg("work/job.json");
    env.run(&["job", &job, "--run-id", "r"]).refused(75, &["run r", &owner]);
    // Looking is allowed.
    env.run(&["runs", "show", "r"]).code(0).shows(&["running"]);
    let unknown = env.run(&["calls", "list", "--run", "r", "--unknown", "--json"]).code(0).json();
    assert_eq!(unknown, json!([]), "a call of a live process is in no doubt");
    std::fs::write(gate(&env), "").unwrap();
    process.wait().code(0);
    assert_eq!((env.comments().len(), env.value("SELECT attempt FROM tool_calls")), (1, "1".to_owned()));
}

#[test]
fn a_cancel_reaches_a_process_at_work() {
    let env = env().with_forum();
    let process = at_the_gate(&env, "post_comment");
    env.run(&["runs", "cancel", "r"]).code(0).says(&["its process stops after the current call"]);
    // Whoever looks at it reads so, and so does whoever sits before it.
    env.run(&["runs", "list"]).code(0).shows(&["running, to be ended"]);
    env.run(&["runs", "show", "r"]).code(0).shows(&["its process stops after the current call"]);
    until("the process to say so", || process.stderr().contains("somebody cancelled the run: it ends after"));
    std::fs::write(gate(&env), "").unwrap();
    process.wait().code(1).shows(&["cancelled"]);
    assert_eq!((env.run_status().as_str(), env.calls()), ("cancelled", vec!["post_comment succeeded".to_owned()]));
}

#[test]
fn a_signal_while_a_tool_server_starts_ends_at_once() {
    let env = env();
    let silent = json!({"command": "sh", "args": ["-c", "sleep 600; true", env.arg("silent")]});
    let config = env.mcp_config("work/mcp.json", &json!({"forum": silent}));
    let turns =
        json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]}, {"text": "Done."}]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    let process = env.start(&["job", &job, "--run-id", "r", "--mcp-config", &config]);
    until("the server to start", || env.processes().iter().any(|line| line.starts_with("sh -c sleep")));
    process.signal_group(Signal::INT);
    process.wait().code(130).shows(&["stopped (interrupted)", "ua resume r"]);
    until("the server to end", || env.processes().is_empty());
    assert!(env.workspace().join("job_completion_r.md").exists());
    let good = env.mcp_config("work/good.json", &json!({"forum": env.forum_entry(&[])}));
    env.run(&["resume", "r", "--mcp-config", &good]).code(0);
    assert_eq!(env.comments().len(), 1);
}

/// The process hangs in a call with an effect: it is asked to end, waits for the call, and is killed; the call is in doubt.
#[test]
fn a_process_that_hangs_is_taken_over() {
    let env = env().with_forum();
    let mut process = at_the_gate(&env, "post_comment");
    let pid = process.id();
    process.signal(rustix::process::Signal::STOP);
    env.run(&["resume", "r"]).refused(75, &["--take-over"]);
    let taken = env.run(&["resume", "r", "--take-over"]);
    assert!(process.has_ended());
    let (asked, killed) =
        (format!("process {pid} drives the run and was asked to end"), format!("process {pid} did not end"));
    let taken = taken.says(&[&asked, &killed]);
    taken.code(75).shows(&["waiting for you", "post_comment"]);
    assert_eq!(env.calls(), ["post_comment unknown"]);
    env.run(&["resume", "r", "--take-over"]).code(75);
}
