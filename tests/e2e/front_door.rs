//! A second front door beside `ua` (`src/bin/front_door.rs`) over the same host: what it starts, kills and answers is what `ua` would have.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use ua_e2e::{Output, TestEnv, ua_program};

const FRONT_DOOR: &str = env!("CARGO_BIN_EXE_ua-e2e-front-door");

/// A world whose workspace root stands in the environment: the front door has no flags.
fn env() -> TestEnv {
    let env = super::env();
    let root = env.arg("root");
    env.with_env("UA_ROOT", &root)
}

/// A report, and one mail about it.
fn job(env: &TestEnv, fields: &Value) -> String {
    let report = json!({"path": "work_products/report.md", "content": "# Tide mills\n"});
    let mail = json!({"to": ["team@example.test"], "subject": "Report", "body": "It is done."});
    let turns = json!([
        {"tools": [{"name": "mcp__ua__write_local_file", "input": report}]},
        {"tools": [{"name": "mcp__ua__send_email", "input": mail}]},
        {"text": "Sent."},
    ]);
    env.job(fields, &turns)
}

fn front_door(env: &TestEnv, variables: &[(&str, &str)], job: &str, more: &[&str]) -> Output {
    let ua = ua_program().to_str().unwrap();
    env.run_program(Path::new(FRONT_DOOR), variables, &[&[ua, job, "r"], more].concat())
}

fn check(env: &TestEnv) {
    let workspace = env.workspace();
    assert_eq!(fs::read_to_string(workspace.join("work_products/report.md")).unwrap(), "# Tide mills\n");
    assert_eq!((env.mails().len(), env.run_status().as_str()), (1, "succeeded"));
    let completion = fs::read_to_string(workspace.join("job_completion_r.json")).unwrap();
    let completion: Value = serde_json::from_str(&completion).unwrap();
    assert_eq!((&completion["run_id"], &completion["status"]), (&json!("r"), &json!("succeeded")));
    env.run(&["db", "check", "--invariants"]).code(0);
}

#[test]
fn a_second_front_door_runs_a_job_and_says_so_in_one_line() {
    let env = env();
    let job = job(&env, &json!({"stop_conditions": ["email_sent_once"]}));
    let output = front_door(&env, &[], &job, &[]).code(0);
    assert_eq!(output.stdout, "r succeeded after 2 call(s)\n");
    assert!(output.stderr.contains("turn 1 · thinking"), "{}", output.shown());
    check(&env);
    assert_eq!(env.value("SELECT entrypoint FROM runs"), "front-door");
    env.run(&["runs", "show", "r"]).code(0).shows(&["succeeded", "send_email"]);
}

#[test]
fn what_one_front_door_was_killed_in_either_one_resumes() {
    for resumes_elsewhere in [false, true] {
        let env = env();
        let job = job(&env, &json!({"stop_conditions": ["email_sent_once"]}));
        front_door(&env, &[("UA_KILL_AT", "after:tool.invoke:send_email")], &job, &[]).killed();
        assert_eq!(env.calls(), ["write_local_file succeeded", "send_email running"]);
        if resumes_elsewhere {
            env.run(&["resume", "r"]).code(0);
        } else {
            front_door(&env, &[], &job, &[]).code(0);
        }
        check(&env);
    }
}

#[test]
fn a_question_is_answered_through_the_port_and_without_anybody_it_waits() {
    let env = env();
    let job = job(&env, &json!({"escalation": {"ask_human_before": ["send_email"]}}));
    let output = front_door(&env, &[], &job, &[]).code(1);
    assert_eq!(output.stdout, "r waiting_for_human after 2 call(s)\n");
    assert_eq!(env.mails().len(), 0);
    let output = front_door(&env, &[], &job, &["execute"]).code(0);
    assert_eq!(output.stdout, "r succeeded after 2 call(s)\n");
    check(&env);
}
