//! `ua runs cancel`, wherever the run stands: it ends without a resume unless a process drives it, and nothing more is sent.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use rustix::process::Signal;
use serde_json::json;
use ua_e2e::{TestEnv, until};

use super::env;

fn job(env: &TestEnv, fields: &serde_json::Value) -> String {
    let comment = json!({"name": "mcp__forum__post_comment", "input": {"text": "hello"}});
    let mut all = json!({"tools": {"builtin": false}});
    for (name, value) in fields.as_object().into_iter().flatten() {
        all[name] = value.clone();
    }
    env.job(&all, &json!([{"tools": [comment]}, {"text": "Posted."}]))
}

/// Cancels the run and checks that it is over.
fn is_over(env: &TestEnv, calls: &[&str]) {
    is_over_with(env, calls, &[]);
}

/// The same, with what the command says besides.
fn is_over_with(env: &TestEnv, calls: &[&str], said: &[&str]) {
    let cancelled = env.run(&["runs", "cancel", "r", "--reason", "not needed any more"]).code(0);
    cancelled.says(&["cancelled run r"]).says(said);
    assert_eq!(env.run_status(), "cancelled");
    assert_eq!(env.calls(), calls);
    assert_eq!(env.value("SELECT count(*) FROM questions WHERE status <> 'closed'"), "0");
    env.run(&["runs", "show", "r"]).code(0).shows(&["cancelled · run r", "not needed any more (tester)"]);
    assert!(env.workspace().join("job_completion_r.md").exists());
    env.run(&["db", "check", "--invariants"]).code(0);
    // The logs end as the run did, once.
    for (log, end) in
        [("run.log", "cancelled: not needed any more"), ("trace.jsonl", "\"status\":\"cancelled\",\"stop_reason\"")]
    {
        let text = std::fs::read_to_string(env.workspace().join(log)).unwrap();
        let last = text.lines().last().unwrap_or_default();
        assert!(last.contains(end) && text.matches(end).count() == 1, "{log}: {text}");
    }
    let comments = env.comments().len();
    env.run(&["resume", "r"]).code(1).says(&["already finished"]);
    assert_eq!(env.comments().len(), comments);
    env.run(&["runs", "cancel", "r"]).code(2).says(&["has already ended (cancelled)"]);
}

#[test]
fn a_run_that_waits_for_a_person_ends_at_once() {
    let env = env().with_forum();
    let asks = json!({"escalation": {"ask_human_before": ["post_comment"]}});
    env.run(&["job", &job(&env, &asks), "--run-id", "r"]).code(75);
    is_over(&env, &["post_comment cancelled"]);
    assert_eq!(env.comments().len(), 0);
}

#[test]
fn a_run_that_was_never_taken_ends_at_once() {
    let env = env().with_forum();
    env.run_killed_at("before:store.acquire_run", &["job", &job(&env, &json!({})), "--run-id", "r"]);
    assert_eq!(env.run_status(), "queued");
    is_over(&env, &[]);
}

#[test]
fn a_run_that_stopped_ends_at_once() {
    let env = env().with_forum();
    let budget = json!({"budgets": {"max_turns": 1}});
    env.run(&["job", &job(&env, &budget), "--run-id", "r"]).code(75);
    assert_eq!(env.run_status(), "stopped");
    is_over(&env, &["post_comment succeeded"]);
}

#[test]
fn a_run_whose_process_died_ends_at_once_and_what_was_under_way_stays_unknown() {
    let env = env().with_forum();
    env.run_killed_at("after:store.start_attempt:post_comment", &["job", &job(&env, &json!({})), "--run-id", "r"]);
    assert_eq!(env.run_status(), "running");
    is_over_with(
        &env,
        &["post_comment unknown"],
        &[
            "1 call may or may not have happened, and the job is not started again without a word from you",
            // The command stands there whole.
            "`ua calls list --run r --unknown --root",
            &format!(
                "`ua calls resolve {} --as not_happened --reason TEXT --root",
                env.value("SELECT tool_call_id FROM tool_calls WHERE tool_name = 'post_comment'")
            ),
        ],
    );
    assert_eq!(env.comments().len(), 0);
}

/// Whoever ended a run has not said what came of its call: the same command does not send that again before they do.
#[test]
fn a_job_whose_run_ended_in_doubt_is_not_started_again_without_a_word() {
    let env = env().with_forum();
    let file = job(&env, &json!({}));
    env.run_killed_at("after:store.start_attempt:post_comment", &["job", &file, "--run-id", "r"]);
    is_over_with(&env, &["post_comment unknown"], &["without a word from you"]);
    let said = [
        "run r of the same job was cancelled, and nobody knows what happened to a call that it sent",
        "ua calls list --run r --unknown",
        "--new` starts another run, which may do again what that run did outside; nothing was started",
    ];
    // A look says what the start says.
    env.run(&["job", "--check", &file]).code(75).says(&said);
    let refused = env.run(&["job", &file]).code(75).says(&said);
    assert_eq!(env.comments().len(), 0);
    // Whichever word somebody knows from the question, the command that is printed for it is taken as it is printed.
    let call = env.value("SELECT tool_call_id FROM tool_calls WHERE tool_name = 'post_comment'");
    let take_printed = |text: &str| {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let command = text.split('`').find_map(|part| part.strip_prefix("ua calls resolve ")).unwrap_or_default();
        let words = ["calls", "resolve"].into_iter().chain(command.split(' ')).chain(["--yes"]);
        env.run_bare(&words.collect::<Vec<_>>()).code(0).says(&["is recorded as"]);
    };
    for word in ["--happened", "--retry", "--skip"] {
        let refused = env.run(&["calls", "resolve", &call, word]).code(2);
        let refused = refused.says(&["has no open question, and its run is cancelled"]);
        take_printed(&refused.stderr);
    }
    take_printed(&refused.stderr);
    env.run(&["job", &file]).code(0);
    assert_eq!(env.comments().len(), 1);
}

/// Its call is under way, its process died behind the word, or it is over with what it did: the same command knows of each.
#[test]
fn a_cancel_does_not_make_the_same_command_start_beside_what_it_ended() {
    let env = env().with_forum();
    let post = json!({"name": "mcp__forum__post_comment", "input": {"text": "first", "until": env.arg("go")}});
    let file = env.job(&json!({"tools": {"builtin": false}}), &json!([{"tools": [post]}, {"text": "Posted."}]));
    let first = env.start(&["job", &file, "--run-id", "first"]);
    until("its comment", || env.comments().len() == 1);
    env.run(&["runs", "cancel", "first"]).code(0).says(&["its process stops after the current call"]);
    // At work, still.
    let said = [
        "run first of the same job was cancelled, and its process still works on the current call",
        "when it has ended, the same command starts the job again",
        "--new",
    ];
    env.run(&["job", &file]).refused(75, &said);
    env.run(&["submit", &file]).refused(75, &said);
    env.run(&["job", "--check", &file]).code(75).says(&said).shows(&["Running        run first"]);
    // Dead, with the call in doubt.
    first.signal(Signal::KILL);
    first.wait().killed();
    let said = [
        "run first of the same job was killed",
        "and was cancelled",
        "nobody knows what happened to a call that it sent",
        "ua resume first` ends it",
    ];
    env.run(&["job", &file]).refused(75, &said);
    env.run(&["submit", &file]).refused(75, &said);
    env.run(&["job", "--check", &file]).code(75).says(&said);
    // Ended, with the call in doubt.
    env.run(&["resume", "first"]).code(1);
    let said = ["run first of the same job was cancelled, and nobody knows what happened to a call that it sent"];
    env.run(&["job", &file]).refused(75, &said);
    env.run(&["submit", &file]).refused(75, &said);
    assert_eq!((env.comments().len(), env.rows("SELECT run_id FROM runs").len()), (1, 1));
}

/// Who cancelled a run wants to start the job again, and is told what that does once more.
#[test]
fn a_job_that_was_cancelled_cleanly_starts_again_and_says_what_was_done() {
    let env = env().with_forum();
    let file = job(&env, &json!({"budgets": {"max_turns": 1}}));
    env.run(&["job", &file, "--run-id", "r"]).code(75);
    is_over(&env, &["post_comment succeeded"]);
    let said =
        ["an earlier run of this job was cancelled", "(r) and had done this outside: post_comment;", "ua fork r"];
    env.run(&["job", "--check", &file]).code(0).says(&said).says(&["this job would start"]);
    env.run(&["job", &file]).code(75).says(&said);
    assert_eq!(env.comments().len(), 2);
}
