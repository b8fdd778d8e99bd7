//! A database that went back in time, and a call of it of which `effects.log` knows that it was sent: whatever the copy has of the call, and
//! whatever a person does about it, nothing goes out again unasked and nothing is told that is not so.

use serde_json::json;
use ua_e2e::TestEnv;

use super::env;

/// What the copy has of the call that was sent after it was made.
const KNOWN: [&str; 3] = ["a question whether it may be sent", "its plan", "its start"];

/// A run whose comment was posted, and whose database is from before that.
fn went_back(known: &str) -> TestEnv {
    went_back_behind(known, &|_| {})
}

/// The same, of a run of which this was said before.
fn went_back_behind(known: &str, said: &dyn Fn(&TestEnv)) -> TestEnv {
    let env = env().with_forum();
    let turns = json!([
        {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]},
        {"text": "Done."},
    ]);
    let asks = json!({"tools": {"builtin": false}, "escalation": {"ask_human_before": ["post_comment"]}});
    let plain = json!({"tools": {"builtin": false}});
    let copy = env.arg("copy.db");
    if known == KNOWN[0] {
        env.run(&["job", &env.job(&asks, &turns), "--run-id", "r"]).code(75);
        env.run(&["db", "backup", &copy]).code(0);
        env.run(&["answer", &env.value("SELECT question_id FROM questions"), "approve"]).code(0);
        env.run(&["resume", "r"]).code(0);
    } else {
        // The comment was posted by the process that died behind the copy, as its next life found out from a person.
        let point = if known == KNOWN[1] {
            "before:store.start_attempt:post_comment"
        } else {
            "before:tool.invoke:post_comment"
        };
        env.run_killed_at(point, &["job", &env.job(&plain, &turns), "--run-id", "r"]);
        env.run(&["db", "backup", &copy]).code(0);
        let output = env.run(&["resume", "r"]);
        if known == KNOWN[2] {
            let output = output.code(75);
            output.shows(&["post_comment"]);
            env.run(&["answer", &env.value("SELECT question_id FROM questions"), "retry"]).code(0);
            env.run(&["resume", "r"]).code(0);
        } else {
            output.code(0);
        }
    }
    assert_eq!(env.comments().len(), 1, "{known}");
    said(&env);
    env.run(&["db", "restore", &copy]).code(0);
    assert_ne!(status(&env), "succeeded", "{known}: the copy does not know");
    env
}

fn call(env: &TestEnv) -> String {
    env.value("SELECT tool_call_id FROM tool_calls WHERE run_id = 'r'")
}

fn status(env: &TestEnv) -> String {
    env.value("SELECT status FROM tool_calls WHERE run_id = 'r'")
}

fn put_right(env: &TestEnv, what: &str) {
    env.run(&["calls", "resolve", &call(env), "--as", what, "--reason", "I looked at the forum", "--yes"])
        .code(0)
        .says(&["is recorded as", what]);
}

fn is_sound(env: &TestEnv, comments: usize, what: &str) {
    assert_eq!(env.comments().len(), comments, "{what}");
    env.run(&["db", "check", "--invariants"]).code(0);
}

#[test]
fn a_person_says_that_it_happened_before_the_copy_is_accepted_or_after() {
    for known in KNOWN {
        for says_first in [true, false] {
            let env = went_back(known);
            if says_first {
                put_right(&env, "happened");
            }
            env.run(&["db", "accept", "r"]).code(0);
            if !says_first {
                assert_eq!(status(&env), "unknown", "{known}: nobody has what came back");
                put_right(&env, "happened");
            }
            env.run(&["resume", "r"]).code(0).shows(&["succeeded"]);
            is_sound(&env, 1, known);
        }
    }
}

/// A job that is refused because the database went back is stored, and is on the page of what can be resumed.
#[test]
fn a_run_that_is_stored_and_refused_is_on_the_page() {
    let env = env().with_forum();
    let fields = json!({"tools": {"builtin": false}});
    let first = env.named_job("first", &fields, &json!([{"text": "Done."}]));
    let turns =
        json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]}, {"text": "Done."}]);
    let second = env.named_job("second", &fields, &turns);
    env.run(&["job", &first]).code(0);
    let copy = env.arg("copy.db");
    env.run(&["db", "backup", &copy]).code(0);
    env.run(&["job", &second, "--run-id", "r"]).code(0);
    env.run(&["db", "restore", &copy]).code(0);
    env.run(&["job", &second, "--run-id", "r2"]).refused(74, &["r2", "is stored"]);
    let page = env.read("root/RESTART.md");
    assert!(
        page.contains("## Run r2") && page.contains("ua db accept r2") && !page.contains("there was nothing to resume"),
        "{page}"
    );
}

/// One word for such a run wherever it stands in a list or alone, whatever the copy has of it; it is asked for by that word.
fn says_outdated(env: &TestEnv, page: &str) {
    for shows in [&["status"][..], &["runs", "list"], &["runs", "show", "r"], &["runs", "tail", "r", "--no-follow"]] {
        let shown = env.run(shows).code(0).shows(&["outdated"]);
        assert!(!["crashed", "killed"].iter().any(|word| shown.stdout.contains(word)), "{shows:?}: {}", shown.shown());
    }
    assert!(page.contains("status: outdated"), "{page}");
    assert_eq!(env.run(&["runs", "list", "--json"]).code(0).json()[0]["shown_status"], "outdated");
    assert_eq!(env.run(&["status", "--json"]).code(0).json()["runs"][0]["shown_status"], "outdated");
    assert_eq!(env.run(&["runs", "show", "r", "--json"]).code(0).json()["shown_status"], "outdated");
    assert_eq!(env.run(&["runs", "list", "--status", "outdated", "--json"]).code(0).json()[0]["run_id"], "r");
    for stored in ["crashed", "waiting", "answered", "stopped"] {
        env.run(&["runs", "list", "--status", stored]).code(0).says(&["no such runs"]);
    }
    let doctor = env.run(&["doctor"]);
    doctor.shows(&["run r is outdated", "ua db accept r"]);
}

/// Wherever such a run is met: nobody is told that it was killed, and nobody is sent to a resume that is refused.
#[test]
fn whoever_names_the_next_step_of_such_a_run_names_the_acceptance() {
    for known in [KNOWN[1], KNOWN[2]] {
        let env = went_back(known);
        let accept = "ua db accept r";
        let job = env.arg("work/job.json");
        let refused = env.run(&["job", &job]).refused(75, &[accept, "an older copy"]);
        assert!(!refused.stderr.contains("ua resume") && !refused.stderr.contains("was killed"), "{}", refused.shown());
        env.run(&["submit", &job]).refused(75, &[accept]);
        env.run(&["job", &job, "--check"]).says(&[accept]);
        env.run(&["resume", "r"]).refused(74, &[accept]);
        for shows in [&["status"][..], &["runs", "show", "r"], &["runs", "tail", "r", "--no-follow"]] {
            let shown = env.run(shows).code(0).shows(&[accept]);
            assert!(!shown.stdout.contains("ua resume"), "{shows:?}: {}", shown.shown());
        }
        let page = env.read("root/RESTART.md");
        assert!(page.contains(accept) && !page.contains("ua resume"), "{page}");
        says_outdated(&env, &page);
        env.run(&["runs", "delete", "r"]).code(2).says(&[accept]);
        env.run(&["db", "accept", "r"]).code(0);
        env.run(&["job", &job]).refused(75, &["ua resume r"]);
    }
}

#[test]
fn what_was_accepted_is_asked_about_and_not_done_again() {
    for known in KNOWN {
        let env = went_back(known);
        env.run(&["resume", "r"]).refused(74, &["is an older copy"]);
        env.run(&["db", "accept", "r"])
            .code(0)
            .says(&["the database does not know what happened to it", "ua calls resolve"]);
        env.run(&["resume", "r"]).code(75).shows(&["Did `post_comment` happen?"]);
        is_sound(&env, 1, known);
        let question = env.value("SELECT question_id FROM questions WHERE status = 'open'");
        env.run(&["answer", &question, "happened"]).code(0);
        env.run(&["resume", "r"]).code(0).shows(&["succeeded"]);
        is_sound(&env, 1, known);
    }
}

/// What a person said of the one send that there was is no second one, and whoever is asked reads it: what was answered without that is asked again.
#[test]
fn a_word_that_the_copy_lacks_is_in_the_question_and_not_told_as_a_send() {
    let turns = json!([
        {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]},
        {"text": "Done."},
    ]);
    let (said, asked_with) = ("a person said that it happened", "happened, as a person said");
    for answered in ["nothing", "retry", "behind it"] {
        let env = env().with_forum();
        let copy = env.arg("copy.db");
        let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
        env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
        env.run(&["resume", "r"]).code(75);
        let question = env.value("SELECT question_id FROM questions");
        env.run(&["db", "backup", &copy]).code(0);
        env.run(&["answer", &question, "happened"]).code(0);
        env.run(&["resume", "r"]).code(0);
        env.run(&["db", "restore", &copy]).code(0);
        // What the copy asks is not all that is known, and the copy is to be accepted first.
        let not_yet = ["older copy", "is not accepted yet", "ua db accept r"];
        env.run(&["questions"]).code(0).shows(&not_yet).shows(&["Did `post_comment` happen?", said]);
        if answered == "retry" {
            env.run(&["answer", &question, "retry"]).code(0).says(&not_yet);
        }
        let accepted = env.run(&["db", "accept", "r"]).code(0).says(&[said]);
        assert!(!accepted.stderr.contains("was sent"), "{}", accepted.shown());
        let asked = env.run(&["resume", "r"]).code(75).shows(&["Did `post_comment` happen?", asked_with]);
        assert!(!asked.stdout.contains("2 times"), "{}", asked.shown());
        is_sound(&env, 1, answered);
        let asked = env.run(&["questions"]).code(0).shows(&[asked_with]);
        assert!(!asked.stdout.contains("is not accepted yet"), "{}", asked.shown());
        let log = std::fs::read_to_string(env.root().join("effects.log")).unwrap();
        assert!(!log.contains("\"attempt\":2"), "{log}");
        let question = env.value("SELECT question_id FROM questions WHERE status = 'open'");
        // Whoever knows it may still have it sent.
        let (word, comments) = if answered == "behind it" { ("retry", 2) } else { ("happened", 1) };
        env.run(&["answer", &question, word]).code(0);
        env.run(&["resume", "r"]).code(0).shows(&["succeeded"]);
        is_sound(&env, comments, answered);
    }
}

#[test]
fn a_fork_behind_the_acceptance_asks_before_it_does_it_as_well() {
    for known in KNOWN {
        let env = went_back(known);
        env.run(&["fork", "r", "--at-turn", "0", "--run-id", "f"]).refused(74, &["is an older copy"]);
        env.run(&["db", "accept", "r"]).code(0);
        env.run(&["fork", "r", "--at-turn", "0", "--run-id", "f"]).code(75).shows(&["post_comment"]);
        is_sound(&env, 1, known);
    }
}

/// The other side knows the key of what it answered, also where the copy does not: what is to be done in its place has another one.
#[test]
fn what_a_person_undid_is_made_anew_under_another_key() {
    let undone = |env: &TestEnv| put_right(env, "not_happened");
    for known in &KNOWN[1..] {
        for when in ["before the copy", "before it is accepted", "behind that", "behind two copies"] {
            let env = if when == "before the copy" { went_back_behind(known, &undone) } else { went_back(known) };
            let sent = sent_under(&env);
            assert_ne!(sent, "", "{known}: the log has the key of what was answered");
            if when != "behind that" {
                undone(&env);
            }
            env.run(&["db", "accept", "r"]).code(0);
            if when == "behind two copies" {
                env.run(&["db", "restore", &env.arg("copy.db")]).code(0);
                env.run(&["db", "accept", "r"]).code(0);
            }
            if when.starts_with("behind") {
                env.run(&["resume", "r"]).code(75);
                undone(&env);
            }
            env.run(&["resume", "r"]).code(0);
            env.run(&["fork", "r", "--at-turn", "0", "--run-id", "f"]).code(0);
            let key = env.value("SELECT idempotency_key FROM tool_calls WHERE run_id = 'f'");
            assert_ne!(key, sent, "{known}, {when}");
            is_sound(&env, 2, known);
        }
    }
}

/// Whoever is asked is told what the log says.
#[test]
fn what_the_log_says_is_in_the_question() {
    for known in &KNOWN[1..] {
        let env = went_back(known);
        env.run(&["db", "accept", "r"]).code(0);
        env.run(&["resume", "r"]).code(75).shows(&["effects.log knows of it, and the database did not: succeeded"]);
        is_sound(&env, 1, known);
    }
}

/// The key under which the call of `r` was answered, as the log has it.
fn sent_under(env: &TestEnv) -> String {
    let log = std::fs::read_to_string(env.root().join("effects.log")).unwrap_or_default();
    let mut lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let last = lines.rfind(|line| line["status"] == "succeeded").unwrap_or_default();
    last["idempotency_key"].as_str().unwrap_or_default().to_owned()
}

/// Restored forth and back: the copy has a call as cancelled that was sent beside it. Nobody makes it again, and nothing says that it was not sent.
#[test]
fn a_copy_that_has_another_end_of_a_call_is_not_accepted() {
    let env = env().with_forum();
    let turns = json!([
        {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]},
        {"text": "Done."},
    ]);
    let asks = json!({"tools": {"builtin": false}, "escalation": {"ask_human_before": ["post_comment"]}});
    env.run(&["job", &env.job(&asks, &turns), "--run-id", "r"]).code(75);
    env.run(&["db", "backup", &env.arg("copy.db")]).code(0);
    env.run(&["runs", "cancel", "r"]).code(0);
    env.run(&["db", "backup", &env.arg("cancelled.db")]).code(0);
    env.run(&["db", "restore", &env.arg("copy.db")]).code(0);
    env.run(&["db", "accept", "r"]).code(0);
    env.run(&["answer", &env.value("SELECT question_id FROM questions"), "approve"]).code(0);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.comments().len(), 1);

    env.run(&["db", "restore", &env.arg("cancelled.db")]).code(0);
    assert_eq!(status(&env), "cancelled");
    let said = ["calls", "resolve", &call(&env), "--as", "happened", "--reason", "I looked", "--yes"];
    env.run(&said).refused(2, &["effects.log knows", "was sent", "another end of it"]);
    env.run(&["db", "accept", "r"]).refused(2, &["another end of it", "put back a newer copy"]);
    env.run(&["fork", "r", "--at-turn", "0", "--run-id", "f"]).refused(74, &["is an older copy"]);
    assert_eq!(env.comments().len(), 1);
}

#[test]
fn a_run_that_is_ended_tells_that_it_may_have_happened() {
    for known in KNOWN {
        for end in ["cancel", "abort"] {
            let env = went_back(known);
            if end == "cancel" {
                env.run(&["runs", "cancel", "r"]).code(0);
            } else {
                env.run(&["db", "accept", "r"]).code(0);
                env.run(&["resume", "r"]).code(75);
                let question = env.value("SELECT question_id FROM questions WHERE status = 'open'");
                env.run(&["answer", &question, "abort"]).code(0);
                env.run(&["resume", "r"]).code(1);
            }
            let what = format!("{known}, {end}");
            assert_eq!(status(&env), "unknown", "{what}");
            let folder = std::path::PathBuf::from(env.value("SELECT workspace_dir FROM runs WHERE run_id = 'r'"));
            let completion = std::fs::read_to_string(folder.join("job_completion_r.md")).unwrap_or_default();
            assert!(!completion.to_lowercase().contains("not sent"), "{what}: {completion}");
            assert!(
                completion.contains("post_comment") && completion.to_lowercase().contains("unknown"),
                "{what}: {completion}"
            );
            // And its record can still be put right.
            put_right(&env, "happened");
            env.run(&["db", "accept", "r"]).code(0);
            is_sound(&env, 1, &what);
        }
    }
}

/// A run whose copy has a comment as planned, or not at all, and which another call posted that the copy does not have.
fn posted_by_another(copy_has_it: bool) -> TestEnv {
    let env = env().with_forum();
    let turns = json!([
        {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]},
        {"text": "Done."},
    ]);
    let plain = json!({"tools": {"builtin": false}});
    let point = if copy_has_it { "before:store.start_attempt:post_comment" } else { "before:store.record_turn" };
    env.run_killed_at(point, &["job", &env.job(&plain, &turns), "--run-id", "r"]);
    let copy = env.arg("copy.db");
    env.run(&["db", "backup", &copy]).code(0);
    if copy_has_it {
        env.run(&["fork", "r", "--at-turn", "0", "--run-id", "f"]).code(0);
    } else {
        env.run(&["resume", "r"]).code(0);
    }
    assert_eq!(env.comments().len(), 1);
    env.run(&["db", "restore", &copy]).code(0);
    env
}

/// It was never sent itself, and what it is to do is done: a person can say so, before the copy is accepted and after.
#[test]
fn a_person_says_of_a_planned_call_that_another_one_did_it() {
    for what in ["happened", "skipped"] {
        for says_first in [true, false] {
            let env = posted_by_another(true);
            if says_first {
                put_right(&env, what);
            }
            env.run(&["db", "accept", "r"]).code(0);
            if !says_first {
                put_right(&env, what);
            }
            env.run(&["resume", "r"]).code(0);
            is_sound(&env, 1, what);
            let expected = if what == "happened" { "succeeded" } else { "unknown" };
            assert_eq!(status(&env), expected);
        }
    }
}

/// That a call did not happen which was never sent says nothing of the one that did the same: whoever says so is told of that one.
#[test]
fn that_a_planned_call_did_not_happen_is_no_word_about_another_one() {
    let env = posted_by_another(true);
    env.run(&["db", "accept", "r"]).code(0);
    let call = env.value("SELECT tool_call_id FROM tool_calls WHERE run_id = 'r'");
    let words = ["calls", "resolve", &call, "--as", "not_happened", "--reason", "undone", "--yes"];
    env.run(&words).refused(2, &["was never sent itself", "of run f", "ua resume r"]);
    env.run(&["resume", "r"]).code(75).shows(&["was not sent itself", "of run f"]);
    is_sound(&env, 1, "not_happened");
}

/// What the copy does not have is asked about before the like is done, once.
#[test]
fn what_another_call_did_is_asked_about_before_it_is_done_again() {
    for copy_has_it in [true, false] {
        for word in ["happened", "retry"] {
            let env = posted_by_another(copy_has_it);
            env.run(&["db", "accept", "r"]).code(0);
            let other = if copy_has_it { "of run f" } else { "of run r" };
            env.run(&["resume", "r"]).code(75).shows(&["was not sent itself", other]);
            is_sound(&env, 1, word);
            let question = env.value("SELECT question_id FROM questions WHERE status = 'open'");
            env.run(&["answer", &question, word]).code(0);
            env.run(&["resume", "r"]).code(0).shows(&["succeeded"]);
            is_sound(&env, if word == "happened" { 1 } else { 2 }, word);
        }
    }
}

/// A copy that is put back behind the acceptance knows nothing of what was asked, and is asked again.
#[test]
fn a_copy_that_is_put_back_once_more_does_nothing_again_either() {
    for copy_has_it in [true, false] {
        let env = posted_by_another(copy_has_it);
        env.run(&["db", "accept", "r"]).code(0);
        env.run(&["db", "restore", &env.arg("copy.db")]).code(0);
        env.run(&["resume", "r"]).code(75).shows(&["was not sent itself"]);
        is_sound(&env, 1, "put back once more");
    }
}

/// Whoever looks for a message that the copy does not have has the name that it carries, in each question about it, and reads that the log has it as
/// sent. A name that nobody was given is in none of them.
#[test]
fn a_question_about_a_lost_message_names_the_one_that_was_sent() {
    let env = env();
    let hold = env.write("hold.toml", "[[rule]]\nid = \"held\"\nname = \"send_email\"\non_unknown = \"hold\"\n");
    let mail = json!({"to": ["team@example.test"], "subject": "News", "body": "It is done."});
    let turns = json!([{"tools": [{"name": "mcp__ua__send_email", "input": mail}]}, {"text": "Done."}]);
    let job = env.job(&json!({"escalation": {"ask_human_before": ["send_email"]}}), &turns);
    env.run(&["job", &job, "--run-id", "r", "--policy", &hold]).code(75);
    env.run(&["db", "backup", &env.arg("copy.db")]).code(0);
    env.run(&["fork", "r", "--at-turn", "0", "--run-id", "f"]).code(75);
    let open =
        |run: &str| env.value(&format!("SELECT question_id FROM questions WHERE status = 'open' AND run_id = '{run}'"));
    env.run(&["answer", &open("f"), "approve"]).code(0);
    env.run(&["resume", "f"]).code(0);
    let sent: Vec<String> = std::fs::read_dir(env.root().join("outbox/new"))
        .unwrap()
        .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    let [sent] = &sent[..] else { panic!("{} messages", sent.len()) };
    let id = sent.lines().find_map(|line| line.strip_prefix("Message-ID: ")).unwrap();
    env.run(&["db", "restore", &env.arg("copy.db")]).code(0);
    env.run(&["db", "accept", "r"]).code(0);
    let look_for = format!("Look for it by: Message-ID {id}");
    let asked = env.run(&["resume", "r"]).code(75);
    asked.shows(&["May `send_email` run?", "May have happened already: effects.log knows", "of run f", &look_for]);
    env.run(&["answer", &open("r"), "approve"]).code(0);
    let asked = env.run(&["resume", "r"]).code(75);
    asked.shows(&["Did `send_email` happen? effects.log says that it did", "of run f", &look_for]);
    let call = call(&env);
    env.run(&["calls", "show", &call]).code(0).shows(&[&format!("found by       Message-ID {id} (call")]);
    let shown = env.run(&["calls", "show", &call, "--json"]).code(0).json();
    assert_eq!(shown["found_by"], json!([format!("Message-ID {id}")]));
    env.run(&["answer", &open("r"), "happened"]).code(0);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(std::fs::read_dir(env.root().join("outbox/new")).unwrap().count(), 1);
    env.run(&["db", "check", "--invariants"]).code(0);
}
