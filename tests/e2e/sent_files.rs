//! A file that is changed between the moment in which it was looked at and the one in which it is sent.

use serde_json::{Value, json};
use ua_e2e::{Output, TestEnv};

use super::env;

const AGREED: &str = "AGREED-WORDS";
const OTHER: &str = "OTHER-WORDS";

/// The calls that send the file `a.txt`.
fn sending() -> [(&'static str, Value); 3] {
    let mail = json!({"to": ["boss@example.test"], "subject": "s", "body": "b", "attachments": ["a.txt"]});
    [
        ("send_email", mail),
        ("upload", json!({"path": "a.txt"})),
        ("workbench_upload", json!({"local_path": "a.txt", "remote_path": "shared/a.txt"})),
    ]
}

/// A job that writes the file and sends it.
fn job(env: &TestEnv, tool: &str, arguments: &Value, asks: bool) -> String {
    let turns = json!([
        {"tools": [{"name": "mcp__ua__write_local_file", "input": {"path": "a.txt", "content": AGREED}}]},
        {"tools": [{"name": format!("mcp__ua__{tool}"), "input": arguments}]},
        {"text": "Done."},
    ]);
    let before = if asks { json!([tool]) } else { json!([]) };
    let fields = json!({
        "objective": "Send it to boss@example.test.",
        "escalation": {"ask_human_before": before}, "artifacts": {"workspace_dir": "w"},
    });
    env.job(&fields, &turns)
}

/// Runs `args`, and puts the other file in the place of the one that is to be sent when the call is on its way.
fn with_another_file(env: &TestEnv, tool: &str, args: &[&str]) -> Output {
    let from = env.write("other.txt", OTHER);
    let to = env.root().join("w/a.txt").display().to_string();
    env.start_with(("UA_REPLACE_AT", &format!("before:tool.invoke:{tool}|{from}|{to}")), args).wait()
}

/// Everything that left: mails, and objects.
fn left(env: &TestEnv) -> Vec<String> {
    let shared = std::fs::read(env.root().join("objects/workbench/shared/a.txt")).ok();
    let found = env.mails().into_iter().chain(env.objects()).filter_map(|path| std::fs::read(path).ok());
    let mut texts: Vec<String> =
        found.chain(shared).map(|content| String::from_utf8_lossy(&content).into_owned()).collect();
    texts.sort();
    texts.dedup();
    texts
}

fn open_question(env: &TestEnv) -> (String, String) {
    let open = "FROM questions WHERE status = 'open'";
    (env.value(&format!("SELECT question_id {open}")), env.value(&format!("SELECT text {open}")))
}

#[test]
fn s20_another_file_than_the_approved_one_is_not_sent_and_asked_about_anew() {
    for (tool, arguments) in sending() {
        let env = env();
        let job = job(&env, tool, &arguments, true);
        env.run(&["job", &job, "--run-id", "r"]).code(75);
        let (question, _) = open_question(&env);
        env.run(&["answer", &question, "approve"]).code(0);
        with_another_file(&env, tool, &["resume", "r"]).code(75);
        assert_eq!(left(&env), [""; 0], "{tool}");
        // What is asked now is about what the file is now.
        let (again, text) = open_question(&env);
        let other = ua_core::sha256(OTHER).to_hex();
        assert!(again != question && text.contains(&other), "{tool}: {text}");
        env.run(&["answer", &again, "approve"]).code(0);
        env.run(&["resume", "r"]).code(0);
        let left = left(&env);
        assert!(left.len() == 1 && left[0].contains(OTHER), "{tool}: {left:?}");
        env.run(&["db", "check", "--invariants"]).code(0);
    }
}

#[test]
fn what_is_sent_is_what_the_record_says_also_where_nobody_is_asked() {
    for (tool, arguments) in sending() {
        let env = env();
        let job = job(&env, tool, &arguments, false);
        with_another_file(&env, tool, &["job", &job, "--run-id", "r"]).code(0);
        let left = left(&env);
        assert!(left.len() == 1 && left[0].contains(OTHER), "{tool}: {left:?}");
        let digests = env.value(&format!("SELECT file_digests_json FROM tool_calls WHERE tool_name = '{tool}'"));
        assert!(digests.contains(&ua_core::sha256(OTHER).to_hex()), "{tool}: {digests}");
        let attempts = "SELECT count(*) FROM tool_attempts JOIN tool_calls USING (tool_call_id) WHERE tool_name =";
        assert_eq!(env.value(&format!("{attempts} '{tool}'")), "2", "{tool}: the first one did nothing");
    }
}

/// The first attempt was lost, so its effect may be there; what is sent again under its key is the same or nothing.
#[test]
fn a_repeat_under_the_key_sends_no_other_file_and_a_person_is_asked() {
    for (tool, arguments) in sending() {
        let env = env();
        let job = job(&env, tool, &arguments, false);
        env.run_killed_at(&format!("before:tool.invoke:{tool}"), &["job", &job, "--run-id", "r"]);
        with_another_file(&env, tool, &["resume", "r"]).code(75);
        assert_eq!(left(&env), [""; 0], "{tool}");
        let (_, text) = open_question(&env);
        assert!(text.contains(&format!("Did `{tool}` happen?")), "{tool}: {text}");
    }
}
