//! A person puts a record right that says what is not so, before and after the end of a run, and a fork goes by what was said.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::{Value, json};
use ua_e2e::{TestEnv, until};

use super::{env, undeclared};

fn comment() -> Value {
    json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]})
}

fn turns() -> Value {
    json!([comment(), {"tools": [{"name": "mcp__ua__notify", "input": {"title": "Posted", "message": "Out."}}]}, {"text": "Done."}])
}

fn call(env: &TestEnv) -> String {
    env.value("SELECT tool_call_id FROM tool_calls WHERE tool_name = 'post_comment' AND run_id = 'r'")
}

fn question(env: &TestEnv) -> String {
    env.value("SELECT question_id FROM questions WHERE status <> 'closed'")
}

/// A run that was killed at `point` of its comment, and waits for an answer.
fn in_doubt(env: &TestEnv, point: &str) {
    let job = env.job(&json!({}), &turns());
    env.run_killed_at(point, &["job", &job, "--run-id", "r"]);
    env.run(&["resume", "r"]).code(75);
}

fn put_right(env: &TestEnv, call: &str, what: &str) {
    let said = ["calls", "resolve", call, "--as", what, "--reason", "I looked at the forum", "--yes"];
    env.run(&said).code(0).says(&["is recorded as", what]);
    env.run(&["db", "check", "--invariants"]).code(0);
}

fn history(env: &TestEnv) -> String {
    env.rows("SELECT message_json FROM messages WHERE run_id = 'r' ORDER BY seq").join("\n")
}

fn completion(env: &TestEnv) -> String {
    let folder = PathBuf::from(env.value("SELECT workspace_dir FROM runs WHERE run_id = 'r'"));
    std::fs::read_to_string(folder.join("job_completion_r.md")).unwrap_or_default()
}

#[test]
fn what_was_wrongly_said_to_have_happened_is_put_right_after_the_end_and_a_fork_does_it() {
    let env = env().with_forum();
    in_doubt(&env, "before:tool.invoke:post_comment");
    env.run(&["answer", &question(&env), "happened"]).code(0);
    env.run(&["resume", "r"]).code(0);
    assert_eq!((env.run_status().as_str(), env.comments().len()), ("succeeded", 0));
    let id = call(&env);

    put_right(&env, &id, "not_happened");
    let shown = env.run(&["calls", "show", &id]).code(0);
    shown.shows(&[
        "failed, and did not happen",
        "corrected      was succeeded",
        "it did not happen",
        "I looked at the forum",
    ]);
    env.run(&["calls", "list", "--run", "r"]).code(0).shows(&["corrected by", "I looked at the forum"]);
    let json = env.run(&["calls", "show", &id, "--json"]).code(0).json();
    assert_eq!(json["correction"]["outcome"], "not_happened");
    assert_eq!(json["events"].as_array().unwrap().last().unwrap()["correction"]["reason"], "I looked at the forum");
    assert!(completion(&env).contains("I looked at the forum"), "{}", completion(&env));
    assert_eq!(env.run_status(), "succeeded", "how it ended stays");

    env.run(&["fork", "r", "--at-turn", "0", "--run-id", "f"]);
    assert_eq!(env.comments().len(), 1, "what did not happen is done");
    // Said again nothing is changed; what it would change is refused.
    let again = ["calls", "resolve", &id, "--as", "not_happened", "--reason", "again", "--yes"];
    env.run(&again).code(0).says(&["is already recorded as not_happened", "nothing was changed"]);
    let shown = env.run(&["calls", "show", &id, "--json"]).code(0).json();
    assert_eq!(shown["correction"]["reason"], "I looked at the forum");
}

#[test]
fn a_repeat_that_was_ordered_before_a_policy_wanted_an_approval_is_asked_about_again() {
    let env = undeclared(env().with_forum());
    in_doubt(&env, "before:tool.invoke:post_comment");
    env.run(&["answer", &question(&env), "retry"]).code(0);
    let rule = "[[rule]]\nid = \"undeclared\"\nname = \"post_comment\"\ncreates = false\napproval = \"ask\"\n";
    env.write("work/undeclared.toml", rule);
    let asked = env.run(&["resume", "r", "--accept", "policy"]).code(75);
    asked.shows(&["a person has to approve such calls now"]);
    assert_eq!(env.comments().len(), 0);
    env.run(&["answer", &question(&env), "retry"]).code(0);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.comments().len(), 1);
}

/// Kills a correction of the run's call between its write and the files that tell of it.
fn killed_before_its_files(env: &TestEnv, said: &[&str], because: &str) {
    let locks = env.database_path().parent().unwrap().join("locks");
    let writes = std::fs::File::create(locks.join("files_due.lock")).unwrap();
    writes.lock().unwrap();
    let process = env.start(said);
    let corrected = format!("SELECT count(*) FROM tool_calls WHERE correction_json LIKE '%{because}%'");
    until("the record to be corrected", || env.try_rows(&corrected) == ["1"]);
    process.signal(Signal::KILL);
    process.wait().killed();
    assert!(!completion(env).contains(because), "it was killed too late");
}

/// Whoever comes next writes the files that a killed correction left out of date.
#[test]
fn a_correction_that_is_killed_before_its_files_are_written_has_them_written_by_the_next_command() {
    let env = env().with_forum();
    in_doubt(&env, "after:tool.invoke:post_comment");
    env.run(&["answer", &question(&env), "happened"]).code(0);
    env.run(&["resume", "r"]).code(0);
    let id = call(&env);
    let commands = [&["runs", "show", "r"][..], &["resume", "r"], &["runs", "export", "r"], &["doctor"], &["calls"]];
    for (number, next) in commands.into_iter().enumerate() {
        let outcome = if number % 2 == 0 { "not_happened" } else { "happened" };
        let because = format!("look {number}");
        let said = ["calls", "resolve", &id, "--as", outcome, "--reason", &because, "--yes"];
        killed_before_its_files(&env, &said, &because);
        if next == ["calls"] {
            env.run(&said).code(0).says(&["is already recorded as", "nothing was changed"]);
        } else {
            env.run(next);
        }
        let told = completion(&env);
        assert!(told.contains(&because), "{next:?}: {told}");
        assert_eq!(told.contains("DID NOT HAPPEN"), outcome == "not_happened", "{next:?}: {told}");
        let marks = env.database_path().parent().unwrap().join("locks").join("files_due");
        assert_eq!(std::fs::read_dir(marks).unwrap().count(), 0, "{next:?}");
    }
    env.run(&["db", "check", "--invariants"]).code(0);
}

#[test]
fn what_happened_is_recorded_before_anybody_answered_and_a_fork_does_not_repeat_it() {
    let env = undeclared(env().with_forum());
    in_doubt(&env, "after:tool.invoke:post_comment");
    let id = call(&env);
    // Nobody is at this terminal.
    let said = ["calls", "resolve", &id, "--as", "happened", "--reason", "It is there"];
    env.run(&said).refused(2, &["not a terminal, so nobody can confirm it", "--yes"]);
    env.run(&["calls", "resolve", &id, "--as", "happened", "--yes"]).code(2);

    put_right(&env, &id, "happened");
    assert_eq!(env.value("SELECT status FROM questions"), "closed");
    assert!(env.value("SELECT closed_because FROM questions").contains("I looked at the forum"));
    env.run(&["resume", "r"]).code(0);
    assert_eq!((env.run_status().as_str(), env.comments().len()), ("succeeded", 1));
    assert_eq!(history(&env).matches("I looked at the forum").count(), 1, "the model read it once: {}", history(&env));

    env.run(&["fork", "r", "--at-turn", "0", "--run-id", "f"]).code(75);
    assert_eq!(env.comments().len(), 1, "a person is asked first");
}

#[test]
fn the_model_of_a_run_that_goes_on_is_told_what_was_put_right_about_an_earlier_turn() {
    let env = env().with_forum();
    let job = env.job(&json!({}), &turns());
    env.run_killed_at("after:store.commit_turn#1", &["job", &job, "--run-id", "r"]);
    assert_eq!(env.calls(), ["post_comment succeeded"]);
    put_right(&env, &call(&env), "not_happened");
    env.run(&["resume", "r"]).code(0);
    let history = history(&env);
    assert_eq!(history.matches("I looked at the forum").count(), 1, "{history}");
    assert!(history.contains("It counts as not done"), "{history}");
}

/// Nobody has to resume a run that is driven.
#[test]
fn a_correction_beside_a_living_process_says_that_this_one_tells_its_model() {
    let env = env().with_forum();
    let gate = env.path("gate");
    let second = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "more", "until": gate}}]});
    let job = env.job(&json!({}), &json!([comment(), second, {"text": "Done."}]));
    let process = env.start(&["job", &job, "--run-id", "r"]);
    until("the second comment to be under way", || {
        env.try_rows("SELECT status FROM tool_calls WHERE turn = 2") == ["running"]
    });
    let id = env.value("SELECT tool_call_id FROM tool_calls WHERE turn = 1");
    let said = ["calls", "resolve", &id, "--as", "not_happened", "--reason", "I looked at the forum", "--yes"];
    let told = env.run(&said).code(0).says(&["the process that drives run r tells its model with the next request"]);
    assert!(!told.stderr.contains("once it is resumed"), "{}", told.stderr);
    std::fs::write(&gate, "").unwrap();
    process.wait();
    assert_eq!(history(&env).matches("I looked at the forum").count(), 1, "the model read it once: {}", history(&env));
    // Where nobody drives it, somebody has to.
    let env = self::env().with_forum();
    let job = env.job(&json!({}), &turns());
    env.run_killed_at("after:store.commit_turn#1", &["job", &job, "--run-id", "r"]);
    let said = ["calls", "resolve", &call(&env), "--as", "not_happened", "--reason", "gone", "--yes"];
    env.run(&said).code(0).says(&["once it is resumed, its model is told", "ua resume r"]);
}

/// Also of a fork that is made behind the correction: it begins with the old result in its history.
#[test]
fn the_model_of_a_fork_is_told_what_was_put_right_before_it_was_made() {
    for (was, becomes, told) in [
        ("succeeded", "not_happened", "It counts as not done"),
        ("unknown", "happened", "It counts as done"),
        ("unknown", "not_happened", "It counts as not done"),
    ] {
        let env = env().with_forum();
        if was == "unknown" {
            in_doubt(&env, "after:tool.invoke:post_comment");
            env.run(&["answer", &question(&env), "skip"]).code(0);
            env.run(&["resume", "r"]);
        } else {
            env.run(&["job", &env.job(&json!({}), &turns()), "--run-id", "r"]).code(0);
        }
        assert_eq!(env.value("SELECT status FROM tool_calls WHERE tool_name = 'post_comment'"), was);
        put_right(&env, &call(&env), becomes);
        env.run(&["fork", "r", "--at-turn", "1", "--run-id", "f"]);
        let read = env.rows("SELECT message_json FROM messages WHERE run_id = 'f' ORDER BY seq").join("\n");
        assert!(read.contains("A person corrected") && read.contains(told), "{was} {becomes}: {read}");
        assert_eq!(read.matches("A person corrected").count(), 1, "{was} {becomes}: once");
    }
}

#[test]
fn what_was_never_sent_has_nothing_to_correct() {
    let env = env().with_forum();
    let job = env.job(&json!({}), &turns());
    env.run_killed_at("after:store.record_turn#1", &["job", &job, "--run-id", "r"]);
    let said = ["calls", "resolve", &call(&env), "--as", "happened", "--reason", "no", "--yes"];
    env.run(&said).refused(2, &["was never sent"]);
}

#[test]
fn a_call_that_a_living_process_is_at_work_on_is_its_owners() {
    let env = env().with_forum();
    let gate = env.path("gate");
    let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello", "until": gate}}]});
    let job = env.job(&json!({}), &json!([post, {"text": "Done."}]));
    let process = env.start(&["job", &job, "--run-id", "r"]);
    until("the comment to be under way", || env.try_rows("SELECT status FROM tool_calls") == ["running"]);
    let id = call(&env);
    let said = ["calls", "resolve", &id, "--as", "not_happened", "--reason", "no", "--yes"];
    env.run(&said).refused(2, &["running", "is working on its turn", "ua runs cancel r"]);
    assert_eq!(env.calls(), ["post_comment running"]);
    process.signal(Signal::KILL);
    process.wait().killed();
    // Its process is gone, and so is what that left behind: now a person may say so.
    put_right(&env, &id, "not_happened");
    assert_eq!(env.calls(), ["post_comment failed"]);
    let before = env.comments();
    env.run(&["resume", "r"]);
    assert_eq!(env.comments(), before, "nothing is sent by a word");
}

#[test]
fn what_the_other_side_may_still_begin_is_not_said_to_have_not_happened() {
    let env = env().with_forum();
    env.write(
        "work/slow.toml",
        "[[rule]]\nid = \"slow\"\nserver = \"forum\"\nname = \"post_comment\"\nhorizon = \"2h\"\n",
    );
    let job = env.job(&json!({"policies": ["slow.toml"]}), &turns());
    env.run_killed_at("before:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    env.run(&["resume", "r"]).code(75);
    let id = call(&env);
    let said = |what| ["calls", "resolve", &id, "--as", what, "--reason", "It is not there", "--yes"];
    env.run(&said("not_happened"))
        .refused(75, &["may still begin at the other side until", "check again after that time"]);
    assert_eq!(env.rows("SELECT status, correction_json IS NULL FROM tool_calls WHERE turn = 1"), ["unknown 1"]);
    assert_eq!(env.value("SELECT status FROM questions"), "open", "nothing was changed");
    // What is there is there, and what is left is left, whatever may still begin.
    env.run(&said("skipped")).code(0);
    env.run(&said("happened")).code(0);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.comments().len(), 0, "nothing is sent by a word");
}

#[test]
fn what_a_person_left_is_still_unknown_and_can_be_put_right() {
    let env = env().with_forum();
    in_doubt(&env, "after:tool.invoke:post_comment");
    env.run(&["answer", &question(&env), "skip"]).code(0);
    env.run(&["resume", "r"]).code(0);
    let id = call(&env);
    let unknown = ["calls", "list", "--unknown"];
    env.run(&unknown).code(0).shows(&[&id, "unknown", "left unresolved", "ua calls resolve"]);
    put_right(&env, &id, "happened");
    let left = env.run(&["calls", "list", "--unknown", "--json"]).code(0).json();
    assert_eq!(left, json!([]), "nothing is in doubt any more");
}

fn mail() -> Value {
    let input = json!({"to": ["ada@example.test"], "subject": "Report", "body": "It is done."});
    json!([{"tools": [{"name": "mcp__ua__send_email", "input": input}]}, {"text": "Done."}])
}

/// A mail that went out and bounced: whoever sends mails knows its key, and the next one is sent all the same, once.
#[test]
fn a_mail_that_did_not_arrive_is_sent_again_under_another_key() {
    let env = env();
    let job = env.job(&json!({"constraints": {"allowed_recipients": ["ada@example.test"]}}), &mail());
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    assert_eq!(env.mails().len(), 1);
    let id = env.value("SELECT tool_call_id FROM tool_calls WHERE run_id = 'r'");
    put_right(&env, &id, "not_happened");
    env.run(&["fork", "r", "--at-turn", "0", "--run-id", "f"]).code(0);
    assert_eq!(env.mails().len(), 2, "the other one did not arrive");
    env.run(&["fork", "r", "--at-turn", "0", "--run-id", "g"]).code(0);
    assert_eq!(env.mails().len(), 2, "this one did");
}

/// Two roots, on two machines or in two projects, name their runs alike and send by one outbox: each sends its own mail.
#[test]
fn runs_of_one_name_in_two_roots_send_each_their_mail() {
    let first = env();
    let outbox = first.arg("outbox");
    let both = [first, env()].map(|env| env.with_env("UA_OUTBOX", &outbox));
    for env in &both {
        let job = env.job(&json!({"constraints": {"allowed_recipients": ["ada@example.test"]}}), &mail());
        env.run(&["job", &job, "--run-id", "nightly"]).code(0).shows(&["send_email"]);
    }
    let sent = std::fs::read_dir(PathBuf::from(&outbox).join("new")).unwrap().count();
    assert_eq!(sent, 2);
}

/// The turn that calls a tool of one's own, which says that it failed, though it did what it was to do.
fn failing(env: &TestEnv) -> Value {
    env.mcp_config(
        "work/.mcp.json",
        &json!({"forum": env.forum_entry(&["--with", "create_issue", "--claim", "create_issue"])}),
    );
    json!({"tools": [{"name": "mcp__forum__create_issue", "input": {"text": "one", "fail": "mailbox full"}}]})
}

/// A run that waits behind such a call; `then` is what the model does once it is asked again.
fn failed_after_it_did(env: &TestEnv, then: &Value) -> String {
    let failing = failing(env);
    let done = json!({"text": "Done."});
    let mut turns = vec![failing, done.clone(), done.clone(), done.clone(), done.clone()];
    turns.extend(then.as_array().into_iter().flatten().cloned());
    let condition = json!([{"effect": "issue.create", "count": 1, "max": 1}]);
    let job = env.job(&json!({"tools": {"builtin": false}, "stop_conditions": condition}), &Value::Array(turns));
    env.run(&["job", &job, "--run-id", "r"]).code(75);
    let call = env.value("SELECT tool_call_id FROM tool_calls WHERE tool_name = 'create_issue'");
    let command = format!("`ua calls resolve {call} --as happened --reason TEXT`, or `--as not_happened`");
    env.run(&["questions"]).code(0).shows(&[
        "may have happened: 1 further call",
        "mailbox full",
        &command,
        " happened ",
    ]);
    call
}

/// What a stop condition waits for is said by the answer that names it, or of the record: the question is closed, and the run ends by what is so.
#[test]
fn what_may_have_been_missing_is_settled_by_its_answer_or_by_its_record() {
    for how in ["the answer", "an answer with words", "the record"] {
        let env = env();
        let call = failed_after_it_did(&env, &json!([]));
        match how {
            "the answer" => env.run(&["answer", &question(&env), "happened", "--proof", "issue 7"]).code(0),
            "an answer with words" => {
                env.run(&["answer", &question(&env), "happened", "--text", "It is there."]).code(0)
            }
            _ => env.run(&["calls", "resolve", &call, "--as", "happened", "--reason", "I looked", "--yes"]).code(0),
        };
        env.run(&["resume", "r"]).code(0).shows(&["succeeded"]);
        assert_eq!((env.comments().len(), env.run_status().as_str()), (1, "succeeded"), "{how}");
        let shown = env.run(&["calls", "show", &call]).code(0);
        let shown = shown.shows(&["corrected      was failed"]);
        match how {
            "the answer" => shown.shows(&["issue 7"]),
            "an answer with words" => shown.shows(&["It is there."]),
            _ => shown.shows(&["I looked"]),
        };
        assert_eq!(env.value("SELECT count(*) FROM questions WHERE status <> 'closed'"), "0", "{how}");
        env.run(&["db", "check", "--invariants"]).code(0);
    }
}

/// What did not happen is for the model to do.
#[test]
fn what_was_missing_and_did_not_happen_is_done() {
    let env = env();
    let again = json!({"tools": [{"name": "mcp__forum__create_issue", "input": {"text": "one"}}]});
    let call = failed_after_it_did(&env, &json!([again, {"text": "Done."}]));
    put_right(&env, &call, "not_happened");
    env.run(&["resume", "r"]).code(0).shows(&["succeeded"]);
    assert_eq!((env.comments().len(), env.run_status().as_str()), (2, "succeeded"));
    assert!(history(&env).contains("It counts as not done"), "{}", history(&env));
    env.run(&["db", "check", "--invariants"]).code(0);
}

/// A record that says nothing of what is missing leaves it to be asked, as it is now.
#[test]
fn what_is_still_missing_behind_a_correction_is_asked_anew() {
    let env = env();
    let call = failed_after_it_did(&env, &json!([]));
    let first = question(&env);
    put_right(&env, &call, "skipped");
    env.run(&["resume", "r"]).code(75);
    let second = question(&env);
    assert_ne!(first, second);
    env.run(&["resume", "r"]).code(75);
    assert_eq!(question(&env), second, "one question, as long as nothing changes");
}

/// The correction of a call that the question does not tell of says nothing about what is missing: the person who is asked is waited for, and the
/// model is not asked instead.
#[test]
fn the_correction_of_another_call_ends_no_question() {
    let env = env();
    let failing = failing(&env);
    let mut turns = vec![comment(), failing];
    turns.extend(std::iter::repeat_n(json!({"text": "Done."}), 8));
    let condition = json!([{"effect": "issue.create", "count": 1, "max": 1}]);
    let job = env.job(&json!({"tools": {"builtin": false}, "stop_conditions": condition}), &Value::Array(turns));
    env.run(&["job", &job, "--run-id", "r"]).code(75);
    let (asked, requests) = (question(&env), env.value("SELECT count(*) FROM usage"));
    put_right(&env, &env.value("SELECT tool_call_id FROM tool_calls WHERE tool_name = 'post_comment'"), "not_happened");
    env.run(&["resume", "r"]).code(75);
    assert_eq!((question(&env), env.value("SELECT count(*) FROM usage")), (asked, requests));
}

/// A person who says that it happened, and then ends the run, has said so.
#[test]
fn what_was_said_to_have_happened_counts_where_the_run_is_ended() {
    let env = env();
    let call = failed_after_it_did(&env, &json!([]));
    env.run(&["answer", &question(&env), "happened", "--proof", "issue 7"]).code(0);
    env.run(&["runs", "cancel", "r", "--yes"]).code(0);
    assert_eq!(env.run_status(), "cancelled");
    env.run(&["calls", "show", &call]).code(0).shows(&["corrected      was failed", "issue 7"]);
    env.run(&["db", "check", "--invariants"]).code(0);
}

/// A word counts for what its question shows: one that tells of no call is not answered by *it happened*, whatever may have happened before.
#[test]
fn a_question_that_tells_of_no_call_takes_no_word_that_one_happened() {
    let env = env();
    let failing = failing(&env);
    let mut turns = vec![failing, json!({"text": "<promise>ALL DONE</promise>"})];
    turns.extend(std::iter::repeat_n(json!({"text": "Nothing to do."}), 12));
    let condition = json!([{"effect": "issue.create", "count": 1, "max": 1}]);
    let harness = json!({"max_iterations": 20, "completion_promise": "ALL DONE"});
    let job = json!({"tools": {"builtin": false}, "stop_conditions": condition, "harness": harness});
    env.run(&["job", &env.job(&job, &Value::Array(turns)), "--run-id", "r"]).code(75);
    let asked = question(&env);
    let text = env.value("SELECT text FROM questions WHERE status <> 'closed'");
    assert!(text.contains("iterations in a row"), "{text}");
    env.run(&["answer", &asked, "happened"]).refused(2, &["happened"]);
    assert_eq!(env.value("SELECT status FROM tool_calls WHERE tool_name = 'create_issue'"), "failed");
}

/// A fork waits behind a call that its parent made in a turn that is open there, and of which nobody knows whether it happened.
fn behind_an_open_turn(env: &TestEnv) -> String {
    env.mcp_config(
        "work/.mcp.json",
        &json!({"forum": env.forum_entry(&["--with", "create_issue", "--claim", "create_issue"])}),
    );
    let note = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]});
    let create = json!({"tools": [{"name": "mcp__forum__create_issue", "input": {"text": "one"}}]});
    let condition = json!([{"effect": "issue.create", "count": 1, "max": 1}]);
    let fields = json!({"tools": {"builtin": false}, "stop_conditions": condition});
    let job = env.job(&fields, &json!([note.clone(), create, {"text": "Done."}]));
    env.run_killed_at("after:tool.invoke:create_issue", &["job", &job, "--run-id", "r"]);
    env.run(&["resume", "r"]).code(75);
    let done = json!({"text": "Done."});
    env.write("work/idle.script.json", json!({"turns": [note, done, done, done, done, done, done]}).to_string());
    let overrides = env.write("work/idle.json", r#"{"model": {"provider": "scripted", "script": "idle.script.json"}}"#);
    env.run(&["fork", "r", "--at-turn", "1", "--run-id", "f", "--job-overrides", &overrides]).code(75);
    env.value("SELECT tool_call_id FROM tool_calls WHERE tool_name = 'create_issue'")
}

fn question_of(env: &TestEnv, run: &str) -> String {
    env.value(&format!("SELECT question_id FROM questions WHERE status <> 'closed' AND run_id = '{run}'"))
}

/// What is offered is taken: whether a call happened that another run has open is said there, and both ways to say it end the question of this one.
#[test]
fn what_another_run_has_open_is_said_there_and_counts_here() {
    for how in ["its question", "its record"] {
        let env = env();
        let call = behind_an_open_turn(&env);
        let asked = question_of(&env, "f");
        env.run(&["questions", "--run", "f"]).code(0).shows(&[
            &call,
            "of run r",
            "answer that run's question about it",
        ]);
        env.run(&["answer", &asked, "happened"]).refused(2, &["does not take `happened`"]);
        if how == "its question" {
            env.run(&["answer", &question_of(&env, "r"), "happened"]).code(0);
            env.run(&["resume", "r"]).code(0).shows(&["succeeded"]);
        } else {
            env.run(&["calls", "resolve", &call, "--as", "happened", "--reason", "I looked", "--yes"]).code(0);
        }
        env.run(&["resume", "f"]).code(0).shows(&["succeeded"]);
        assert_eq!(env.value("SELECT count(*) FROM questions WHERE status <> 'closed' AND run_id = 'f'"), "0", "{how}");
        env.run(&["db", "check", "--invariants"]).code(0);
    }
}

/// Once the other run has ended, nobody decides there any more, and the word is taken here.
#[test]
fn what_another_run_left_open_is_said_here_once_that_has_ended() {
    let env = env();
    let call = behind_an_open_turn(&env);
    env.run(&["runs", "cancel", "r", "--yes"]).code(0);
    env.run(&["answer", &question_of(&env, "f"), "retry"]).code(0);
    env.run(&["resume", "f"]).code(75);
    env.run(&["answer", &question_of(&env, "f"), "happened", "--proof", "issue 7"]).code(0);
    env.run(&["resume", "f"]).code(0).shows(&["succeeded"]);
    env.run(&["calls", "show", &call]).code(0).shows(&["issue 7"]);
    env.run(&["db", "check", "--invariants"]).code(0);
}
