//! What a model gets wrong about its tools: nothing wrong is run, and each refusal says what to send instead.

use serde_json::{Value, json};
use ua_e2e::TestEnv;

use super::env;

fn mail() -> Value {
    json!({"to": ["team@example.test"], "subject": "Report", "body": "Hello"})
}

fn call(name: &str, input: &Value) -> Value {
    json!({"tools": [{"name": name, "input": input}]})
}

fn last(expect: &Value) -> Value {
    json!({"text": "Done.", "expect": expect})
}

/// Plays one tool use; the next request must show this, and the mail server so many mails.
fn plays(use_: &Value, contains: &Value, mails: usize) -> TestEnv {
    let env = env();
    let is_right = mails > 0;
    let turns = json!([use_, last(&json!({"contains": contains, "tool_result_ok": is_right}))]);
    env.run(&["job", &env.job(&json!({}), &turns)]).code(0);
    assert_eq!(env.mails().len(), mails, "{use_}");
    env
}

#[test]
fn a_name_that_is_none_is_answered_with_the_call_that_was_meant() {
    let fix = "Call `mcp__ua__send_email` with the arguments";
    for (name, hint) in [
        ("mcp__ua__send_emailto</arg_key><arg_value>[\"team@example.test\"]</arg_value>", fix),
        ("send_email({\"to\": [\"team@example.test\"]})", fix),
        ("mcp__ua__send_email <arg_key>subject</arg_key><arg_value>Report</arg_value>", fix),
        ("MCP__UA__SEND_EMAIL", "Did you mean `mcp__ua__send_email`?"),
        ("mcp__gmail__send-email", "Did you mean `mcp__ua__send_email`?"),
        ("sendEmail", "Did you mean `mcp__ua__send_email`?"),
        ("{\"tool\": 1}", "not the name of a tool"),
    ] {
        let env = plays(&call(name, &mail()), &json!([hint]), 0);
        assert!(env.calls()[0].ends_with("cancelled"), "{name}: {:?}", env.calls());
    }
}

#[test]
fn arguments_that_come_as_json_texts_are_read_and_are_the_same_call() {
    let mut listed = mail();
    listed["to"] = json!("[\"team@example.test\"]");
    let whole = json!(mail().to_string());
    let env = env();
    let turns = json!([
        call("mcp__ua__send_email", &listed),
        call("mcp__ua__send_email", &whole),
        call("mcp__ua__send_email", &mail()),
        last(&json!({"contains": ["[deduplicated]"]})),
    ]);
    env.run(&["job", &env.job(&json!({}), &turns), "--run-id", "r"]).code(0);
    assert_eq!(env.mails().len(), 1, "three spellings of one mail");
    assert_eq!(env.value("SELECT count(DISTINCT normalized_args_hash) FROM tool_calls"), "1");
    assert_eq!(env.value("SELECT count(*) FROM tool_calls WHERE deduplicated_from IS NOT NULL"), "2");
    env.run(&["db", "check", "--invariants"]).code(0);
}

#[test]
fn a_call_that_came_as_texts_is_repeated_as_it_was_read() {
    let mut listed = mail();
    listed["to"] = json!("[\"team@example.test\"]");
    let turns = json!([call("mcp__ua__send_email", &listed), last(&json!({"tool_result_ok": true}))]);
    for point in ["after:store.record_turn", "before:tool.invoke:send_email", "after:tool.invoke:send_email"] {
        let env = env();
        env.run_killed_at(point, &["job", &env.job(&json!({}), &turns), "--run-id", "r"]);
        env.run(&["resume", "r"]).code(0);
        assert_eq!(env.mails().len(), 1, "{point}");
        assert_eq!(env.value("SELECT count(*) FROM tool_calls"), "1", "{point}");
    }
}

#[test]
fn a_text_that_is_not_what_the_tool_wants_is_refused_by_its_schema() {
    for to in [json!("team@example.test"), json!("{\"a\": 1}"), json!("[\"team@example.test\""), json!("[1]")] {
        let mut wrong = mail();
        wrong["to"] = to;
        plays(&call("mcp__ua__send_email", &wrong), &json!(["do not fit the tool's schema"]), 0);
    }
    plays(&call("mcp__ua__send_email", &json!("send it to the team")), &json!(["not a JSON object"]), 0);
    // A text where a text is wanted stays one.
    let mut bracketed = mail();
    bracketed["body"] = json!("[\"not\", \"read\"]");
    let env = plays(&call("mcp__ua__send_email", &bracketed), &json!(["sent"]), 1);
    let letter = std::fs::read_to_string(&env.mails()[0]).unwrap_or_default();
    assert!(letter.contains("[\"not\", \"read\"]"), "{letter}");
}

#[test]
fn empty_writes_are_refused_unless_they_are_meant() {
    for (tool, input, hint) in [
        ("write_local_file", json!({"path": "work_products/a.md", "content": ""}), "set allow_empty to true"),
        ("append_to_file", json!({"path": "work_products/a.md", "content": ""}), "is shorter than 1 character"),
    ] {
        let env = plays(&call(&format!("mcp__ua__{tool}"), &input), &json!([hint]), 0);
        assert!(!env.workspace().join("work_products/a.md").exists(), "{tool}");
    }
    let env = env();
    let meant = json!({"path": "work_products/a.md", "content": "", "allow_empty": true});
    let turns = json!([call("mcp__ua__write_local_file", &meant), last(&json!({"tool_result_ok": true}))]);
    env.run(&["job", &env.job(&json!({}), &turns)]).code(0);
    assert_eq!(std::fs::read(env.workspace().join("work_products/a.md")).ok(), Some(Vec::new()));
}

#[test]
fn remote_workbenches_and_file_editors_are_denied_until_the_job_lifts_it() {
    let env = env();
    let entry = json!({"command": env!("CARGO_BIN_EXE_ua-e2e-provider"), "args": ["composio", env.arg("router.log")]});
    env.mcp_config("work/.mcp.json", &json!({ "tools": entry }));
    let workbench = call("mcp__tools__COMPOSIO_REMOTE_WORKBENCH", &json!({"code_to_execute": "send()"}));
    let denied =
        json!({"contains": ["not available in a durable job", "COMPOSIO_MULTI_EXECUTE_TOOL"], "tool_result_ok": false});
    let job = env.job(&json!({}), &json!([workbench, last(&denied)]));
    env.run(&["job", &job, "--run-id", "denied"]).code(0);
    assert_eq!(env.calls(), ["COMPOSIO_REMOTE_WORKBENCH cancelled"]);
    // Lifted, it is sent: this router has none, and says so itself.
    let lifted = json!({"tools": {"allow_file_edit_tools": true}});
    let reached = json!({"contains": ["there is no tool COMPOSIO_REMOTE_WORKBENCH"]});
    let job = env.named_job("lifted", &lifted, &json!([workbench, last(&reached)]));
    env.run(&["job", &job, "--run-id", "lifted"]).code(0);
    assert_eq!(env.value("SELECT status FROM tool_calls WHERE run_id = 'lifted'"), "failed");
}
