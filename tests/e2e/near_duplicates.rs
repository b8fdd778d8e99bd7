//! The same effect asked for in other words or by another route: who is asked, what each answer leads to, and what a policy says
//! instead. The table of what counts as a conflict is `crates/ua-ledger/tests/lineage.rs`.

use serde_json::{Value, json};
use ua_e2e::{Output, TestEnv, ua_program};
use ua_testkit::Provider;

use super::env;

fn tool(name: &str, input: &Value) -> Value {
    json!({"tools": [{"name": name, "input": input}]})
}

fn mail(words: &str) -> Value {
    let mail = json!({"to": ["Boss@example.test"], "subject": "Report", "body": words, "attachments": ["report.md"]});
    tool("mcp__ua__send_email", &mail)
}

fn report(words: &str) -> Value {
    tool("mcp__ua__write_local_file", &json!({"path": "report.md", "content": words}))
}

fn comment(input: &Value) -> Value {
    tool("mcp__forum__post_comment", input)
}

/// A policy by which a comment is a declared effect; `more` is what else it says.
fn comments_are_effects(env: &TestEnv, more: &str) {
    let rule = "[[rule]]\nid = \"comment\"\nserver = \"forum\"\nname = \"post_comment\"\nside_effect_class = \"external\"\n\
                effect_kind = \"forum.comment\"\n";
    env.write("work/forum.toml", format!("{rule}{more}"));
}

/// Runs a job as `r`.
fn run(env: &TestEnv, fields: &Value, turns: &Value) -> Output {
    env.run(&["job", &env.job(fields, turns), "--run-id", "r"])
}

/// Answers the only question that is open.
fn answer(env: &TestEnv, choice: &str) {
    let question = env.value("SELECT question_id FROM questions WHERE status = 'open'");
    env.run(&["answer", &question, choice]).code(0);
}

/// A run that sent an e-mail and now wants to send it in other words.
fn waits_with_a_second_mail(env: &TestEnv) {
    let turns = json!([report("tides"), mail("Dear boss"), mail("Hello boss"), {"text": "Sent."}]);
    let output = run(env, &json!({}), &turns).code(75);
    output.shows(&["waiting for you", "May `send_email` run?", "other arguments", "Hello boss", "ua answer"]);
    assert_eq!((env.run_status().as_str(), env.mails().len()), ("waiting_for_human", 1));
    assert_eq!(env.value("SELECT kind FROM questions"), "near_duplicate");
}

#[test]
fn a_mail_in_other_words_waits_for_a_person_and_goes_on_as_told() {
    for (choice, code, mails, calls, status) in [
        ("execute", 0, 2, "send_email succeeded", "succeeded"),
        ("skip", 0, 1, "send_email cancelled", "succeeded"),
        ("abort", 1, 1, "send_email cancelled", "failed"),
    ] {
        let env = env();
        waits_with_a_second_mail(&env);
        env.run(&["questions"]).code(0).shows(&["May `send_email` run?", "approve", "skip", "abort"]);
        // Nobody has answered: the same question, and nothing is sent.
        env.run(&["resume", "r"]).code(75);
        assert_eq!((env.mails().len(), env.value("SELECT count(*) FROM questions").as_str()), (1, "1"));
        answer(&env, choice);
        env.run(&["resume", "r"]).code(code);
        assert_eq!((env.mails().len(), env.run_status().as_str()), (mails, status), "{choice}");
        assert_eq!(env.calls()[2], calls, "{choice}");
        let keys = "SELECT count(DISTINCT idempotency_key) FROM tool_calls WHERE tool_name = 'send_email'";
        assert_eq!(env.value(keys), mails.to_string(), "{choice}");
    }
}

#[test]
fn an_approved_repeat_is_made_once_wherever_it_is_killed() {
    for point in ["before:tool.invoke", "after:tool.invoke", "before:store.settle_attempt"] {
        let env = env();
        waits_with_a_second_mail(&env);
        answer(&env, "execute");
        env.run_killed_at(&format!("{point}:send_email"), &["resume", "r"]);
        env.run(&["resume", "r"]).code(0);
        assert_eq!(env.mails().len(), 2, "{point}");
        assert_eq!(env.value("SELECT count(*) FROM questions"), "1", "{point}");
    }
}

#[test]
fn other_words_count_only_with_the_same_recipients_subject_and_attachments() {
    let with = |field: &str, value: Value| {
        let mut turn = mail("Dear all");
        turn["tools"][0]["input"][field] = value;
        turn
    };
    let text = json!({"text": "Sent."});
    for (name, second, is_conflict) in [
        ("letter case and Cc", with("cc", json!(["BOSS@example.test"])), true),
        ("a recipient more", with("cc", json!(["board@example.test"])), false),
        ("another subject", with("subject", json!("Second report")), false),
        ("no attachment", with("attachments", json!([])), false),
    ] {
        let env = env();
        run(&env, &json!({}), &json!([report("tides"), mail("Dear boss"), second, text])).code(if is_conflict {
            75
        } else {
            0
        });
        assert_eq!(env.mails().len(), if is_conflict { 1 } else { 2 }, "{name}");
    }
    // The same path with another content is another attachment; the same content under another path is not.
    let env = env();
    let copy = tool("mcp__ua__write_local_file", &json!({"path": "copy.md", "content": "neap tides"}));
    let turns = json!([
        report("tides"),
        mail("Dear boss"),
        report("neap tides"),
        mail("Dear boss"),
        copy,
        with("attachments", json!(["copy.md"])),
        text,
    ]);
    run(&env, &json!({}), &turns).code(75).shows(&["May `send_email` run?"]);
    assert_eq!(env.mails().len(), 2);
}

#[test]
fn the_same_mail_by_another_tool_is_a_near_duplicate() {
    let env = env();
    let gmail = json!({"command": env!("CARGO_BIN_EXE_ua-e2e-provider"), "args": [Provider::Gmail.name(), env.arg("gmail.log")]});
    env.mcp_config("work/.mcp.json", &json!({"gmail": gmail}));
    let first = json!({"to": ["boss@example.test"], "subject": "Report", "body": "Dear boss"});
    let second = json!({"recipient_email": "boss@example.test", "subject": "Report", "body": "Dear boss"});
    let turns = json!([
        tool("mcp__ua__send_email", &first), tool("mcp__gmail__GMAIL_SEND_EMAIL", &second), {"text": "Sent."},
    ]);
    run(&env, &json!({}), &turns).code(75).shows(&["May `GMAIL_SEND_EMAIL` run?", "mcp__ua__send_email"]);
    assert!(!env.path("gmail.log").exists());
    answer(&env, "skip");
    env.run(&["resume", "r"]).code(0);
    assert_eq!((env.mails().len(), env.path("gmail.log").exists()), (1, false));
}

#[test]
fn the_same_upload_with_the_same_arguments_by_another_server_is_a_near_duplicate() {
    let env = env();
    let workspace = env.path("root/r-files");
    let objects = env.path("root/objects").display().to_string();
    let args =
        ["toolserver", "--workspace", &workspace.display().to_string(), "--objects", &format!("file://{objects}/")];
    std::fs::create_dir_all(&workspace).unwrap();
    env.mcp_config("work/.mcp.json", &json!({"store": {"command": ua_program(), "args": args}}));
    let policy = "[[rule]]\nid = \"store\"\nserver = \"store\"\nname = \"upload\"\nside_effect_class = \"external\"\n\
                  effect_kind = \"file.upload\"\nscope = [{ files = \"path\" }, { value = \"destination\" }]\nsends_files = [\"path\"]\n";
    env.write("work/store.toml", policy);
    let upload = json!({"path": "report.md"});
    let turns = json!([
        report("tides"), tool("mcp__ua__upload", &upload), tool("mcp__store__upload", &upload), {"text": "Stored."},
    ]);
    run(&env, &json!({"policies": ["store.toml"]}), &turns).code(75).shows(&["upload` run?", "the same arguments"]);
    assert_eq!((env.objects().len(), env.calls()[2].as_str()), (1, "upload prepared"));
}

#[test]
fn a_policy_refuses_or_allows_near_duplicates() {
    for (word, comments, second) in [("refuse", 1, "cancelled near_duplicate"), ("allow", 2, "succeeded -")] {
        let env = env().with_forum();
        comments_are_effects(&env, &format!("scope = [{{ value = \"until\" }}]\non_scope_conflict = \"{word}\"\n"));
        let posted = env.write("posted", "");
        let post = |text: &str| comment(&json!({"text": text, "until": posted}));
        // What is allowed is still made once in the same words.
        let turns = json!([post("one"), post("two"), post("two"), {"text": "Posted."}]);
        run(&env, &json!({"policies": ["forum.toml"], "tools": {"builtin": false}}), &turns).code(0);
        assert_eq!(env.comments().len(), comments, "{word}");
        assert_eq!(env.rows("SELECT status, error_code FROM tool_calls ORDER BY turn")[1], second);
        assert_eq!(env.rows("SELECT question_id FROM questions"), [""; 0]);
    }
}

#[test]
fn a_job_says_what_happens_to_near_duplicates_where_no_policy_does() {
    let turns = json!([report("tides"), mail("Dear boss"), mail("Hello boss"), {"text": "Sent."}]);
    for (word, policy, code, mails, second) in [
        ("refuse", "", 0, 1, "cancelled near_duplicate"),
        ("allow", "", 0, 2, "succeeded -"),
        ("ask", "", 75, 1, "prepared -"),
        // A rule about the tool is stronger.
        ("allow", "on_scope_conflict = \"ask\"", 75, 1, "prepared -"),
    ] {
        let env = env();
        let rule =
            format!("[[rule]]\nid = \"mail\"\nserver = \"ua\"\nname = \"send_email\"\napproval = \"none\"\n{policy}\n");
        env.write("work/mail.toml", rule);
        let fields = json!({"policies": ["mail.toml"], "constraints": {"on_scope_conflict": word}});
        run(&env, &fields, &turns).code(code);
        assert_eq!(env.mails().len(), mails, "{word} {policy}");
        assert_eq!(env.rows("SELECT status, error_code FROM tool_calls ORDER BY turn")[2], second, "{word} {policy}");
    }
    let env = env();
    run(&env, &json!({"constraints": {"on_scope_conflict": "block"}}), &turns)
        .code(2)
        .says(&["`block`", "ask, refuse, allow"]);
}

#[test]
fn a_call_that_was_given_up_is_not_sent_again_in_the_same_words() {
    let env = env().with_forum();
    let post = |text: &str| comment(&json!({"text": text}));
    let turns = json!([post("one"), post("two"), post("one"), {"text": "Posted."}]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    env.run(&["resume", "r"]).code(75).shows(&["Did `post_comment` happen?"]);
    answer(&env, "skip");
    // Nobody said what the effect of this tool is, so other words are another comment.
    env.run(&["resume", "r"]).code(75).shows(&["May `post_comment` run?", "unknown", "the same arguments"]);
    assert_eq!(env.comments().len(), 2);
    answer(&env, "skip");
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.comments().len(), 2);
}

/// A run that went on without a comment and succeeded, and the question that is left.
fn went_on_without(env: &TestEnv) {
    comments_are_effects(env, "on_unknown = \"continue\"\n");
    let fields = json!({"policies": ["forum.toml"], "tools": {"builtin": false}});
    let job = env.job(&fields, &json!([comment(&json!({"text": "one"})), {"text": "Posted."}]));
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    env.run(&["resume", "r"]).code(0);
    assert_eq!((env.run_status().as_str(), env.calls()), ("succeeded", vec!["post_comment unknown".to_owned()]));
}

#[test]
fn a_doubt_of_a_finished_run_is_settled_by_its_answer() {
    for (choice, status, flag) in
        [("happened", "succeeded", "--happened"), ("execute", "failed", "--execute"), ("skip", "unknown", "--skip")]
    {
        for by_call in [false, true] {
            let env = env().with_forum();
            went_on_without(&env);
            if by_call {
                let call = env.value("SELECT tool_call_id FROM tool_calls");
                env.run(&["calls", "resolve", &call, flag]).code(0).says(&["answered", "now"]);
            } else {
                answer(&env, choice);
            }
            assert_eq!(env.calls(), [format!("post_comment {status}")], "{choice}");
            assert_eq!(env.value("SELECT status FROM questions"), "closed", "{choice}");
            assert_eq!((env.comments().len(), env.run_status().as_str()), (1, "succeeded"), "{choice}");
            env.run(&["db", "check", "--invariants"]).code(0);
        }
    }
}

#[test]
fn an_answer_whose_command_died_is_applied_by_the_next_resume() {
    let env = env().with_forum();
    went_on_without(&env);
    let question = env.value("SELECT question_id FROM questions");
    // What it leaves behind when it dies after its first write.
    let database = rusqlite::Connection::open(env.database_path()).unwrap();
    let answered = "INSERT INTO answers (question_id, choice, answered_by, answered_at, link) \
                    VALUES (?1, 'happened', 'ada', '2026-01-01T00:00:00.000Z', '')";
    database.execute(answered, [&question]).unwrap();
    database.execute("UPDATE questions SET status = 'answered' WHERE question_id = ?1", [&question]).unwrap();
    drop(database);
    assert_eq!(env.calls(), ["post_comment unknown"]);
    env.run(&["resume", "r"]).code(0).says(&["already finished"]);
    assert_eq!(env.calls(), ["post_comment succeeded"]);
}

#[test]
fn a_failure_that_may_have_happened_is_not_repeated_and_one_that_did_not_is() {
    for (error, code, comments) in [("the dispatcher timed out", 75, 1), ("rejected: nothing was posted", 0, 2)] {
        for scope in ["", "scope = [{ value = \"text\" }]\n"] {
            let env = env().with_forum();
            comments_are_effects(&env, &format!("{scope}errors_without_effect = [\"^rejected\"]\n"));
            let post = comment(&json!({"text": "one", "fail": error}));
            let turns = json!([post, post, {"text": "Posted."}]);
            run(&env, &json!({"policies": ["forum.toml"], "tools": {"builtin": false}}), &turns).code(code);
            assert_eq!(env.comments().len(), comments, "{error:?}, {scope:?}");
        }
    }
}

#[test]
fn a_skipped_doubt_goes_on_blocking_its_scope() {
    let env = env().with_forum();
    comments_are_effects(&env, "scope = [{ value = \"until\" }]\n");
    let posted = env.write("posted", "");
    let post = |text: &str| comment(&json!({"text": text, "until": posted}));
    let job = env.job(
        &json!({"policies": ["forum.toml"], "tools": {"builtin": false}}),
        &json!([post("one"), post("two"), post("one"), {"text": "Posted."}]),
    );
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    env.run(&["resume", "r"]).code(75).shows(&["Did `post_comment` happen?"]);
    answer(&env, "skip");
    // In other words, and then in the same.
    env.run(&["resume", "r"]).code(75).shows(&["May `post_comment` run?", "unknown", "other arguments"]);
    answer(&env, "skip");
    env.run(&["resume", "r"]).code(75).shows(&["May `post_comment` run?", "unknown", "the same arguments"]);
    assert_eq!(env.comments().len(), 1);
    answer(&env, "execute");
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.comments().len(), 2);
    assert_eq!(env.calls(), ["post_comment unknown", "post_comment cancelled", "post_comment succeeded"]);
}

#[test]
fn in_another_batch_or_order_it_is_the_same_mail() {
    let env = env();
    let (mail, read) = (mail("Dear boss"), tool("mcp__ua__list_directory", &json!({"path": "."})));
    let batch =
        |turns: &[&Value]| json!({"tools": turns.iter().map(|turn| turn["tools"][0].clone()).collect::<Vec<_>>()});
    let turns = json!([
        report("tides"), batch(&[&mail, &read]), batch(&[&mail]), batch(&[&read, &mail, &mail]), {"text": "Sent."},
    ]);
    run(&env, &json!({}), &turns).code(0);
    assert_eq!(env.mails().len(), 1);
    assert_eq!(env.value("SELECT count(*) FROM tool_calls WHERE deduplicated_from IS NOT NULL"), "3");
}

#[test]
fn two_runs_of_one_job_are_no_kin() {
    let env = env();
    let job = env.job(&json!({}), &json!([report("tides"), mail("Dear boss"), {"text": "Sent."}]));
    for id in ["r", "s"] {
        env.run(&["job", &job, "--run-id", id]).code(0);
    }
    assert_eq!(env.mails().len(), 2);
    assert_eq!(env.value("SELECT count(*) FROM tool_calls WHERE deduplicated_from IS NOT NULL"), "0");
}
