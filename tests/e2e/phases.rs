//! Jobs in phases, every budget, and what a run counts as evidence.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};
use ua_e2e::until;
use ua_testkit::workspace_root;

use super::env;

fn phased_job() -> String {
    workspace_root().join("fixtures/jobs/phased_report.json").display().to_string()
}

fn tool(name: &str, input: &Value) -> Value {
    json!({"tools": [{"name": format!("mcp__ua__{name}"), "input": input}]})
}

fn note(n: u32) -> Value {
    tool("write_local_file", &json!({"path": format!("work_products/{n}.md"), "content": format!("note {n}")}))
}

fn mail() -> Value {
    json!({"to": ["team@example.test"], "subject": "News", "body": "It is done."})
}

const STEPS: &str = "SELECT step_index, phase, status, first_turn, last_turn FROM run_steps ORDER BY step_index";

const ALL_FOUR: [&str; 4] =
    ["1 read succeeded 1 2", "2 write succeeded 3 5", "3 publish succeeded 6 7", "4 tell succeeded 8 10"];

#[test]
fn a_job_with_phases_goes_through_them_in_order() {
    let env = env().with_pdf();
    let output = env.run(&["job", &phased_job(), "--run-id", "r"]).code(0);
    output.says(&["phase 1/4 · read", "phase 4/4 · tell"]).shows(&["succeeded · run r", "work_products/report.pdf"]);
    assert_eq!(env.effects(), [1, 1, 1, 0]);
    assert_eq!(env.rows(STEPS), ALL_FOUR);
    let markers = "SELECT phase FROM checkpoints JOIN run_steps USING (step_id) WHERE checkpoint_type = 'phase_boundary' ORDER BY seq";
    assert_eq!(env.rows(markers), ["read", "write", "publish", "tell"]);
    env.run(&["runs", "show", "r"]).code(0).shows(&["Phases", "2  write", "turns 3 to 5"]);
    let page = fs::read_to_string(env.workspace().join("job_completion_r.md")).unwrap();
    for words in ["## Phases", "3. `publish` — succeeded, turns 6 to 7", "[x] `email_sent_once`"] {
        assert!(page.contains(words), "{page}");
    }
}

#[test]
fn a_kill_between_two_phases_begins_neither_of_them_again() {
    for point in ["before:store.enter_step#2", "after:store.enter_step#2", "after:store.enter_step#1"] {
        let env = env().with_pdf();
        env.run_killed_at(point, &["job", &phased_job(), "--run-id", "r"]);
        env.run(&["resume", "r"]).code(0);
        assert_eq!(env.effects(), [1, 1, 1, 0], "{point}");
        assert_eq!(env.rows(STEPS), ALL_FOUR, "{point}");
        assert_eq!(env.value("SELECT count(*) FROM messages WHERE origin = 'phase'"), "4", "{point}");
    }
}

#[test]
fn a_budget_of_a_phase_stops_the_run_and_the_flag_to_go_on_is_named() {
    let env = env();
    let phases = json!([
        {"name": "one", "instructions": "Write.", "budgets": {"max_turns": 1}},
        {"name": "two", "instructions": "Send.", "budgets": {"max_tool_calls": 1}},
    ]);
    let turns = json!([note(1), {"text": "Written."}, tool("send_email", &mail()), note(2), {"text": "Done."}]);
    let job = env.job(&json!({"phases": phases, "stop_conditions": ["email_sent_once"]}), &turns);
    let output = env.run(&["job", &job, "--run-id", "r"]).code(75);
    output.shows(&["the budget max_turns (1) of phase `one` is reached", "ua resume r", "--phase one --max-turns +5"]);
    env.run(&["resume", "r", "--phase", "three", "--max-turns", "+1"]).refused(2, &["no phase `three`", "one, two"]);
    env.run(&["resume", "r", "--phase", "one", "--max-steps", "+1"])
        .refused(2, &["--max-steps is a budget of the run"]);
    env.run(&["resume", "r", "--phase", "one"]).refused(2, &["no budget is given"]);
    let output = env.run(&["resume", "r", "--phase", "one", "--max-turns", "+1"]).code(75);
    output.says(&["one.max_turns is 2 now"]).shows(&["the budget max_tool_calls (1) of phase `two` is reached"]);
    assert_eq!(
        (env.effects(), env.calls().last().map(String::as_str)),
        ([1, 0, 0, 0], Some("write_local_file prepared"))
    );
    env.run(&["runs", "show", "r"]).code(0).shows(&["Phases", "one.max_turns is 2 now"]);
    env.run(&["resume", "r", "--phase", "two", "--max-tool-calls", "+1"]).code(0);
    assert_eq!(env.effects(), [1, 0, 0, 0]);
}

#[test]
fn steps_that_are_used_up_stop_the_run_before_the_next_phase() {
    let env = env();
    let phases = json!([{"name": "one", "instructions": "Write."}, {"name": "two", "instructions": "Send."}]);
    let turns = json!([note(1), {"text": "Written."}, tool("send_email", &mail()), {"text": "Done."}]);
    let job = env.job(&json!({"phases": phases, "budgets": {"max_steps": 1}}), &turns);
    let output = env.run(&["job", &job, "--run-id", "r"]).code(75);
    output.shows(&["the budget max_steps (1) is reached", "`two` would be the next", "ua resume r", "--max-steps +5"]);
    assert_eq!(env.effects(), [0, 0, 0, 0]);
    env.run(&["resume", "r", "--max-steps", "+1"]).code(0);
    assert_eq!(env.effects(), [1, 0, 0, 0]);
    assert_eq!(env.rows(STEPS), ["1 one succeeded 1 2", "2 two succeeded 3 4"]);
}

#[test]
fn a_fork_goes_on_in_the_phase_that_its_history_ends_in() {
    let env = env();
    let phases = json!([
        {"name": "one", "instructions": "Write."},
        {"name": "two", "instructions": "Send.", "budgets": {"max_tool_calls": 1}},
    ]);
    let turns = json!([note(1), {"text": "Written."}, tool("send_email", &mail()), note(2), {"text": "Done."}]);
    let job = env.job(&json!({"phases": phases, "stop_conditions": ["email_sent_once"]}), &turns);
    env.run(&["job", &job, "--run-id", "r"]).code(75);
    let steps = |run: &str| {
        env.rows(&format!(
            "SELECT step_index, phase, status, first_turn, last_turn FROM run_steps WHERE run_id = '{run}'"
        ))
    };
    let told =
        |run: &str| env.value(&format!("SELECT count(*) FROM messages WHERE origin = 'phase' AND run_id = '{run}'"));
    assert_eq!((steps("r").len(), told("r").as_str()), (2, "2"));

    // In the second phase, with its budget from zero; what the first one was told is shared.
    env.run(&["fork", "r", "--run-id", "late"]).code(0);
    assert_eq!((steps("late"), told("late").as_str()), (vec!["1 two succeeded 4 5".to_owned()], "0"));
    // In the first phase; the second is entered anew, and the mail of the parent is its mail.
    env.run(&["fork", "r", "--at-turn", "1", "--run-id", "early", "--phase", "two", "--max-tool-calls", "+1"]).code(0);
    let both = ["1 one succeeded 2 2".to_owned(), "2 two succeeded 3 5".to_owned()];
    assert_eq!((steps("early"), told("early").as_str()), (both.to_vec(), "1"));
    assert_eq!(env.effects(), [1, 0, 0, 0]);
}

#[test]
fn unknown_fields_of_a_phase_are_refused_with_the_nearest_name() {
    let env = env();
    let phases = json!([{"name": "one", "instruction": "Write."}]);
    let job = env.job(&json!({"phases": phases}), &json!([]));
    env.run(&["job", &job]).refused(2, &["phases[0].instruction", "phases[0].instructions"]);
}

#[test]
fn every_budget_that_stops_a_run_says_how_to_go_on() {
    // Budget, fields of the job, what is said, the flag, and whether the flag is enough.
    let cases = [
        (json!({"max_turns": 1}), "the budget max_turns (1) is reached: 1 turn used", "--max-turns +5"),
        (json!({"max_tool_calls": 1}), "the budget max_tool_calls (1) is reached", "--max-tool-calls +5"),
        (json!({"max_tokens": 5}), "the budget max_tokens (5) is reached: 0 tokens are used", "--max-tokens +50000"),
    ];
    for (budgets, says, flag) in cases {
        let env = env();
        let job = env.job(&json!({"budgets": budgets}), &json!([note(1), note(2), {"text": "Done."}]));
        let output = env.run(&["job", &job, "--run-id", "r"]).code(75);
        output.shows(&["stopped (budget)", says, &format!("{flag}\n")]);
        let completion: Value =
            serde_json::from_slice(&fs::read(env.workspace().join("job_completion_r.json")).unwrap()).unwrap();
        assert_eq!(completion["next"][0], json!(format!("ua resume r {flag} --root {}", env.arg("root"))), "{says}");
        let (name, more) = flag.split_once(' ').unwrap();
        env.run(&["resume", "r", name, more]).code(0);
        assert_eq!(env.calls(), ["write_local_file succeeded", "write_local_file succeeded"], "{says}");
    }
}

#[test]
fn the_time_of_a_killed_process_counts_to_the_second() {
    let env = env();
    let wait = tool("run_command", &json!({"argv": ["sleep", "4"]}));
    let turns = json!([wait, {"text": "Done."}]);
    let job = env.job(&json!({"tools": {"run_command": true}}), &turns);
    let process = env.start(&["job", &job, "--run-id", "r"]);
    let seen = "SELECT count(*) FROM runs WHERE (julianday(seen_at) - julianday(held_from)) * 86400 >= 2.5";
    until("the run is held for a while", || env.try_rows(seen) == ["1"]);
    process.signal(Signal::KILL);
    process.wait().killed();
    assert_eq!(env.value("SELECT held_millis FROM runs"), "0", "nothing was committed yet");
    until("some time passes", || {
        env.try_rows("SELECT 1 FROM runs WHERE (julianday('now') - julianday(seen_at)) * 86400 > 3") == ["1"]
    });
    env.run(&["resume", "r"]).code(0);
    // At least what the first process said, and the sleep of the second; not the time in between.
    let all =
        env.value("SELECT (julianday(updated_at) - julianday(created_at)) * 86400 FROM runs").parse::<f64>().unwrap();
    let held = env.value("SELECT held_millis FROM runs").parse::<f64>().unwrap() / 1000.0;
    assert!((6.4..=all - 1.0).contains(&held), "{held} of {all}");
}

/// The lie, the failure and the doubt: none of them is a sent e-mail, and the completion file says so.
#[test]
fn a_model_that_lies_does_not_finish_and_the_completion_file_says_what_is_missing() {
    let env = env();
    let bad =
        json!({"to": ["team@example.test"], "subject": "News", "body": "x", "attachments": ["work_products/gone.pdf"]});
    let turns = json!([
        tool("send_email", &bad),
        {"text": "Done, the e-mail is sent."},
        {"text": "It really is sent.", "expect": {"contains": ["not finished", "email.send exactly 1×", "not counted, because it failed"]}},
        {"text": "Sent."},
        {"text": "Sent!"},
    ]);
    let fields =
        json!({"stop_conditions": ["email_sent_once"], "escalation": {"ask_human_on_repeated_failures": false}});
    env.run(&["job", &env.job(&fields, &turns), "--run-id", "r"]).code(1).shows(&["failed", "email.send exactly 1×"]);
    assert_eq!((env.effects(), env.run_status().as_str()), ([0, 0, 0, 0], "failed"));
    let page = fs::read_to_string(env.workspace().join("job_completion_r.md")).unwrap();
    let root = env.root().display().to_string();
    insta::with_settings!({filters => vec![
        (root.as_str(), "[root]"),
        (r"/\S*ua-e2e-\w+", "[env]"),
        (r"session_\d{8}_\d{6}_", "session_[time]_"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "[at]"),
        (r"call_[0-9a-f]{32}", "[call]"),
        (r"[0-9a-f]{64}", "[sha256]"),
        (r"idempotency key: [0-9a-f]{12}", "idempotency key: [key]"),
        (r"[0-9a-f]{32}", "[trace]"),
        (r"max_wallclock_minutes: .*", "max_wallclock_minutes: [span]"),
        (r"\d+ bytes", "[n] bytes"),
        (r"tokens: .*", "tokens: [n]"),
        (r"\d+ tokens", "[n] tokens"),
    ]}, {
        insta::assert_snapshot!("a_lie", page);
    });
}

#[test]
fn a_file_that_changed_after_it_was_sent_is_named() {
    let env = env();
    let write = |text: &str| tool("write_local_file", &json!({"path": "work_products/note.md", "content": text}));
    let mut send = mail();
    send["attachments"] = json!(["work_products/note.md"]);
    let turns = json!([write("first"), tool("send_email", &send), write("second"), {"text": "Done."}]);
    env.run(&["job", &env.job(&json!({"stop_conditions": ["email_sent_once"]}), &turns), "--run-id", "r"]).code(0);
    let page = fs::read_to_string(env.workspace().join("job_completion_r.md")).unwrap();
    assert!(page.contains("**changed after it was sent**: `work_products/note.md`"), "{page}");
    let sent = ua_core::sha256("first").to_string();
    assert!(page.contains(&format!("sent sha256 {sent}")), "{page}");
}
