//! Killed and resumed: what goes on by itself, what is asked about, and what each answer leads to.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};
use ua_e2e::{Output, TestEnv, until};

use super::env;

/// A comment, and a notification after it.
fn turns() -> Value {
    json!([
        {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]},
        {"tools": [{"name": "mcp__ua__notify", "input": {"title": "Posted", "message": "The comment is out."}}]},
        {"text": "Done."},
    ])
}

/// A run that was killed between the comment and its receipt, resumed once: it waits for an answer.
fn in_doubt(env: &TestEnv) -> Output {
    let job = env.job(&json!({}), &turns());
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    assert_eq!(env.calls(), ["post_comment running"]);
    let output = env.run(&["resume", "r"]).code(75);
    assert_eq!((env.run_status().as_str(), env.comments().len()), ("waiting_for_human", 1));
    output
}

fn call_id(env: &TestEnv) -> String {
    env.value("SELECT tool_call_id FROM tool_calls WHERE tool_name = 'post_comment'")
}

fn question_id(env: &TestEnv) -> String {
    env.value("SELECT question_id FROM questions")
}

/// Where a run stands is said the same wherever a person looks, and no file is named that is not there.
fn says_everywhere_that_it_crashed(env: &TestEnv) {
    let shown = env
        .run(&["runs", "show", "r"])
        .code(0)
        .shows(&["Processes      1; process 1 was killed, last seen at "])
        .stdout;
    assert!(shown.starts_with("crashed: no process drives it · run r"), "{shown}");
    assert!(shown.contains("1 in flight when its process ended") && !shown.contains("running"), "{shown}");
    assert!(!shown.contains("job_completion"), "{shown}");
    let calls = env.run(&["calls", "list", "--run", "r"]).code(0).shows(&["in flight"]).stdout;
    assert!(!calls.contains("running"), "{calls}");
    assert_eq!(env.run(&["runs", "show", "r", "--json"]).code(0).json()["shown_status"], "crashed");
    env.run(&["runs", "tail", "r", "--no-follow"]).code(0).shows(&["crashed: no process drives it; `ua resume r"]);
    let tail = env.run(&["runs", "tail", "r", "--no-follow", "--json"]).code(0).stdout;
    let last: Value = serde_json::from_str(tail.lines().last().unwrap()).unwrap();
    assert_eq!((&last["event"], &last["status"]), (&json!("run"), &json!("crashed")));
    let document = env.run(&["runs", "export", "r", "--json"]).code(0).json();
    assert_eq!((&document["shown_status"], &document["processes"][0]["end"]), (&json!("crashed"), &json!("killed")));
    assert_eq!(last["at"], document["processes"][0]["last_seen_at"]);
    let page = env.run(&["runs", "export", "r", "--html", "-"]).code(0).stdout;
    assert!(page.contains("\"shown\":\"crashed\""), "the page says it");
}

#[test]
fn a_kill_during_a_harmless_command_needs_nobody() {
    let env = env();
    let sleep = |span: &str| json!({"tools": [{"name": "mcp__ua__run_command", "input": {"argv": ["sleep", span]}}]});
    let turns = json!([sleep("600"), {"text": "Slept."}]);
    let job = env.job(&json!({"tools": {"run_command": true}}), &turns);
    let process = env.start(&["job", &job, "--run-id", "r"]);
    until("the command to run", || env.try_rows("SELECT status FROM tool_calls") == ["running"]);
    process.signal(Signal::KILL);
    process.wait().killed();
    env.run(&["runs", "list"]).code(0).shows(&["crashed"]);
    says_everywhere_that_it_crashed(&env);

    // What is stored is replayed, so the second life sleeps as long: it is enough to see it send the call again.
    let mut process = env.start(&["resume", "r"]);
    until("the second attempt", || env.try_rows("SELECT attempt, status FROM tool_calls") == ["2 running"]);
    assert!(!process.has_ended());
    assert_eq!(env.rows("SELECT question_id FROM questions"), [""; 0]);
    assert_eq!(env.value("SELECT replay_status FROM tool_calls"), "redone");
}

#[test]
fn a_kill_during_a_short_command_ends_well_after_a_resume() {
    let env = env();
    let sleep = json!({"tools": [{"name": "mcp__ua__run_command", "input": {"argv": ["sleep", "0.1"]}}]});
    let job = env.job(&json!({"tools": {"run_command": true}}), &json!([sleep, {"text": "Slept."}]));
    env.run_killed_at("after:store.start_attempt:run_command", &["job", &job, "--run-id", "r"]);
    env.run(&["resume", "last"])
        .code(0)
        .says(&["resuming in turn 1, 1 call in flight"])
        .shows(&["succeeded · run r", "Slept."]);
    assert_eq!(env.rows("SELECT attempt, status, replay_status FROM tool_calls"), ["2 succeeded redone"]);
    assert!(
        env.workspace().join("resume_packet_r.md").exists() && env.workspace().join("resume_packet_r.json").exists()
    );
}

#[test]
fn a_call_in_doubt_is_listed_and_asked_about() {
    let env = env().with_forum();
    let output = in_doubt(&env);
    let call = call_id(&env);
    output.shows(&["waiting for you", "Did `post_comment` happen?", &format!("ua calls show {call}"), "ua resume r"]);

    let listed = env.run(&["calls", "list", "--run", "r", "--unknown", "--json"]).code(0).json();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!(listed[0]["tool_call_id"], call);
    assert_eq!(listed[0]["tool_name"], "post_comment");
    assert_eq!(listed[0]["status"], "unknown");
    assert_eq!(listed[0]["arguments"], json!({"text": "hello"}));
    env.run(&["questions"]).code(0).shows(&["Did `post_comment` happen?", &question_id(&env)]);
    env.run(&["runs", "show", "r"]).code(0).shows(&["waiting for you", "1 unknown", "Did `post_comment` happen?"]);
    assert_eq!((env.comments().len(), env.notifications().len()), (1, 0));
}

#[test]
fn a_call_in_doubt_is_listed_before_anybody_resumed() {
    let env = env().with_forum();
    let job = env.job(&json!({}), &turns());
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    let listed = env.run(&["calls", "list", "--run", "r", "--unknown", "--json"]).code(0).json();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    env.run(&["calls", "resolve", &call_id(&env), "--happened"]).refused(2, &["running", "ua resume r"]);
    assert_eq!(env.calls(), ["post_comment running"]);
}

#[test]
fn it_happened_is_taken_as_the_receipt() {
    for by_answer in [false, true] {
        let env = env().with_forum();
        in_doubt(&env);
        let id = if by_answer { question_id(&env) } else { call_id(&env) };
        let answer: &[&str] = if by_answer {
            &["answer", &id, "happened", "--proof", "comment-77"]
        } else {
            &["calls", "resolve", &id, "--happened", "--proof", "comment-77"]
        };
        env.run(answer).code(0).says(&["ua resume r"]);
        env.run(&["resume", "r"]).code(0).shows(&["succeeded · run r", "comment-77"]);
        assert_eq!(env.effects(), [0, 0, 1, 1]);
        assert_eq!(env.calls(), ["post_comment succeeded", "notify succeeded"]);
        assert_eq!(
            env.value("SELECT external_correlation_id FROM tool_calls WHERE tool_name = 'post_comment'"),
            "comment-77"
        );
        assert_eq!(env.value("SELECT r.evidence FROM tool_receipts r JOIN tool_calls USING (tool_call_id) WHERE tool_name = 'post_comment'"), "reconciled");
    }
}

#[test]
fn execute_runs_it_once_more() {
    for by_answer in [false, true] {
        let env = env().with_forum();
        in_doubt(&env);
        let id = if by_answer { question_id(&env) } else { call_id(&env) };
        let answer: &[&str] =
            if by_answer { &["answer", &id, "execute"] } else { &["calls", "resolve", &id, "--execute"] };
        env.run(answer).code(0);
        env.run(&["resume", "r"]).code(0);
        // It had happened, and the person said to do it again.
        assert_eq!(env.effects(), [0, 0, 1, 2]);
        assert_eq!(env.rows("SELECT attempt, status FROM tool_calls ORDER BY turn"), ["2 succeeded", "1 succeeded"]);
    }
}

#[test]
fn skip_leaves_it_and_tells_the_model() {
    for by_answer in [false, true] {
        let env = env().with_forum();
        in_doubt(&env);
        let id = if by_answer { question_id(&env) } else { call_id(&env) };
        let answer: &[&str] = if by_answer { &["answer", &id, "skip"] } else { &["calls", "resolve", &id, "--skip"] };
        env.run(answer).code(0);
        env.run(&["resume", "r"]).code(0);
        assert_eq!(env.effects(), [0, 0, 1, 1]);
        assert_eq!(
            env.rows("SELECT status, resolution FROM tool_calls ORDER BY turn"),
            ["unknown skipped", "succeeded -"]
        );
        let results = env.value("SELECT message_json FROM messages WHERE turn = 1 AND origin = 'tools'");
        assert!(results.contains("Do not repeat it"), "{results}");
    }
}

#[test]
fn abort_ends_the_run() {
    for by_answer in [false, true] {
        let env = env().with_forum();
        in_doubt(&env);
        let id = if by_answer { question_id(&env) } else { call_id(&env) };
        let answer: &[&str] = if by_answer { &["answer", &id, "abort"] } else { &["calls", "resolve", &id, "--abort"] };
        // No process drives it, so none has to be started to end it.
        env.run(answer)
            .code(0)
            .says(&["ended run r; 1 call may or may not have happened", "ua calls list --run r --unknown"]);
        assert_eq!((env.run_status().as_str(), env.effects()), ("failed", [0, 0, 0, 1]));
        env.run(&["db", "check", "--invariants"]).code(0);
        env.run(&["resume", "r"]).code(1).shows(&["failed", "abort"]);
        env.run(&["resume", "r"]).code(1).says(&["already finished"]);
    }
}

#[test]
fn a_question_is_answered_once_and_only_with_what_it_takes() {
    let env = env().with_forum();
    in_doubt(&env);
    let (question, call) = (question_id(&env), call_id(&env));
    env.run(&["answer", &question, "continue"])
        .refused(2, &["does not take `continue`", "happened, retry, skip, abort"]);
    env.run(&["answer", &question, "perhaps"]).code(2).says(&["perhaps", "it takes happened, retry, skip, abort"]);
    env.run(&["calls", "resolve", &call]).code(2).says(&["--happened"]);
    env.run(&["calls", "resolve", &call, "--skip", "--execute"]).code(2).says(&["`--skip`", "and not both"]);
    assert_eq!(env.rows("SELECT * FROM answers"), [""; 0]);
    env.run(&["answer", &question, "skip"]).code(0);
    env.run(&["answer", &question, "execute"]).refused(2, &["already been answered", "ua resume r"]);
    env.run(&["calls", "resolve", &call, "--happened"]).refused(2, &["already been answered"]);
    assert_eq!(env.rows("SELECT choice, applied_at FROM answers"), ["skip -"]);
    env.run(&["resume", "r"]).code(0);
    env.run(&["answer", &question, "execute"]).refused(2, &["already been answered"]);
    assert_eq!(env.comments().len(), 1);
}

#[test]
fn a_kill_before_the_dispatch_needs_nobody() {
    let env = env().with_forum();
    let job = env.job(&json!({}), &turns());
    env.run_killed_at("before:store.start_attempt:post_comment", &["job", &job, "--run-id", "r"]);
    assert_eq!((env.calls(), env.comments().len()), (vec!["post_comment prepared".to_owned()], 0));
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.effects(), [0, 0, 1, 1]);
}

#[test]
fn a_kill_after_the_receipt_repeats_nothing() {
    let env = env().with_forum();
    let job = env.job(&json!({}), &turns());
    env.run_killed_at("after:store.settle_attempt:post_comment", &["job", &job, "--run-id", "r"]);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.effects(), [0, 0, 1, 1]);
    assert_eq!(env.value("SELECT attempt FROM tool_calls WHERE tool_name = 'post_comment'"), "1");
}

#[test]
fn an_effect_that_takes_a_key_needs_nobody() {
    let env = env().with_forum();
    let job = env.job(&json!({}), &turns());
    env.run_killed_at("after:tool.invoke:notify", &["job", &job, "--run-id", "r"]);
    assert_eq!(env.notifications().len(), 1);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.effects(), [0, 0, 1, 1]);
}

#[test]
fn files_that_were_removed_from_a_finished_run_are_written_again() {
    let env = env().with_forum();
    env.run(&["job", &env.job(&json!({}), &turns()), "--run-id", "r"]).code(0);
    let completion = env.workspace().join("job_completion_r.md");
    let before = fs::read_to_string(&completion).unwrap();
    for name in ["job_completion_r.md", "job_completion_r.json", "session_summary.txt", "transcript.md"] {
        fs::remove_file(env.workspace().join(name)).unwrap();
    }
    env.run(&["resume", "r"]).code(0).says(&["already finished"]);
    assert_eq!(fs::read_to_string(&completion).unwrap(), before);
    for name in ["job_completion_r.json", "session_summary.txt", "transcript.md"] {
        assert!(env.workspace().join(name).exists(), "{name}");
    }
    assert_eq!(env.effects(), [0, 0, 1, 1]);
}

#[test]
fn a_cancelled_run_ends_when_it_is_resumed() {
    let env = env().with_forum();
    in_doubt(&env);
    env.run(&["runs", "cancel", "r", "--reason", "not needed any more"]).code(0).says(&["cancelled run r"]);
    env.run(&["resume", "r"]).code(1).shows(&["cancelled", "not needed any more"]);
    assert_eq!(env.effects(), [0, 0, 0, 1]);
    env.run(&["runs", "cancel", "r"]).code(2).says(&["has already ended (cancelled)"]);
}

#[test]
fn a_kill_after_the_last_write_loses_no_file() {
    let env = env().with_forum();
    let job = env.job(&json!({}), &turns());
    env.run_killed_at("after:store.end_run", &["job", &job, "--run-id", "r"]);
    assert_eq!(env.run_status(), "succeeded");
    env.run(&["resume", "r"]).code(0).says(&["already finished"]);
    for name in ["job_completion_r.md", "job_completion_r.json", "session_summary.txt", "transcript.md", "trace.json"] {
        assert!(env.workspace().join(name).exists(), "{name}");
    }
    assert!(env.read("root/RESTART.md").contains("nothing to resume"));
    assert_eq!(env.effects(), [0, 0, 1, 1]);
}

/// Whatever kills the process again and again is not fed for ever: after twenty deaths within an hour a person is asked.
#[test]
fn a_run_that_kills_its_process_again_and_again_asks_a_person() {
    let env = env().with_forum();
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "Nothing to do."}]));
    env.run_killed_at("before:model.complete", &["job", &job, "--run-id", "r"]);
    for _ in 0..19 {
        env.run_killed_at("before:model.complete", &["resume", "r"]);
    }
    env.run(&["resume", "r"]).code(75).shows(&["ended 20 times within an hour"]);
    env.run(&["resume", "r"]).code(75);
    let question = env.value("SELECT question_id FROM questions");
    env.run(&["answer", &question, "continue"]).code(0);
    env.run(&["resume", "r"]).code(0);
}

/// Whoever resumes the newest run and finds it finished is told which runs are not, and how each is resumed.
#[test]
fn a_resume_of_the_last_run_names_those_that_are_not_finished() {
    let env = env().with_forum();
    in_doubt(&env);
    let job = env.named_job("done", &json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    env.run(&["job", &job, "--run-id", "done"]).code(0);
    let again = env.run(&["resume", "last"]).code(0);
    again.says(&["run done is already finished", "not finished: run r (", "waiting for you): `ua resume r"]);
    // Not where the run was named, nor when there is none.
    let named = env.run(&["resume", "done"]).code(0);
    assert!(!named.stderr.contains("not finished"), "{}", named.stderr);
    env.run(&["runs", "cancel", "r"]).code(0);
    let alone = env.run(&["resume", "last"]);
    assert!(!alone.stderr.contains("not finished"), "{}", alone.stderr);
}
