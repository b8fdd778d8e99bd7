//! Input that cannot be used: exit 2, one error that says what, one hint that says what to do, and nothing stored or sent.

use serde_json::json;
use ua_e2e::TestEnv;

use super::env;

/// Checks that nothing was started: no database, no workspace, no effect.
#[track_caller]
fn is_untouched(env: &TestEnv) {
    assert!(
        !env.root().exists(),
        "{:?}",
        std::fs::read_dir(env.root()).map(|entries| entries.flatten().map(|e| e.path()).collect::<Vec<_>>())
    );
    assert_eq!(env.effects(), [0, 0, 0, 0]);
}

#[test]
fn a_missing_job_file_is_named() {
    let env = env();
    env.run(&["job", "nowhere.json"]).refused(2, &["nowhere.json", "no such file", "ua job --help"]);
    is_untouched(&env);
}

#[test]
fn malformed_json_is_named_with_its_place() {
    let env = env();
    let job = env.write("work/job.json", "{\"objective\": \"x\",\n  \"inputs\": }");
    env.run(&["job", &job]).refused(2, &["job.json", "line 2", "JSON object"]);
    is_untouched(&env);
}

#[test]
fn a_field_that_is_given_twice_is_refused() {
    let env = env();
    let job = env.write("work/job.json", r#"{"objective": "x", "objective": "y"}"#);
    env.run(&["job", &job]).refused(2, &["job.json", "objective"]);
    is_untouched(&env);
}

#[test]
fn an_unknown_field_is_named_with_the_nearest_known_one() {
    let env = env();
    let job = env.job(&json!({"budgets": {"max_toolcalls": 3}}), &json!([]));
    env.run(&["job", &job]).refused(2, &["`budgets.max_toolcalls`", "did you mean `budgets.max_tool_calls`?"]);
    is_untouched(&env);
}

#[test]
fn a_stop_condition_that_does_not_exist_is_refused_with_those_that_do() {
    let env = env();
    let job = env.job(&json!({"stop_conditions": ["email_sent_once", "mail_sent"]}), &json!([]));
    env.run(&["job", &job]).refused(2, &["stop_conditions[1]", "\"mail_sent\"", "final_notification_sent"]);
    is_untouched(&env);
}

#[test]
fn an_unknown_provider_is_refused_with_those_that_exist() {
    let env = env();
    let job = env.job(&json!({"model": {"provider": "antropic"}}), &json!([]));
    env.run(&["job", &job])
        .refused(2, &["`antropic`", "`openai`, `openai-chat`, `claude-code`, `scripted` or `replay`"]);
    is_untouched(&env);
}

#[test]
fn a_provider_without_its_key_says_which_variable_to_set() {
    let env = env();
    let job = env.job(&json!({"model": {"provider": "anthropic"}}), &json!([]));
    env.run(&["job", &job]).refused(2, &["no API key", "ANTHROPIC_API_KEY"]);
    is_untouched(&env);
}

#[test]
fn the_scripted_provider_needs_a_script_that_can_be_read() {
    let env = env();
    let job = env.job(&json!({"model": {"provider": "scripted"}}), &json!([]));
    env.run(&["job", &job]).refused(2, &["needs a script", "model.script"]);
    let job = env.job(&json!({"model": {"provider": "scripted", "script": "gone.json"}}), &json!([]));
    env.run(&["job", &job]).refused(2, &["gone.json", "no such file"]);
    is_untouched(&env);
}

#[test]
fn a_malformed_script_is_named_with_what_is_wrong() {
    let env = env();
    let job = env.job(&json!({}), &json!([{"text": "hello {{now}}"}]));
    env.run(&["job", &job]).refused(2, &["job.script.json", "turn 1", "{{now}}"]);
    let job = env.job(&json!({}), &json!([{"txt": "hello"}]));
    env.run(&["job", &job]).refused(2, &["job.script.json", "txt"]);
    is_untouched(&env);
}

#[test]
fn a_tool_server_that_is_not_configured_is_named_with_the_nearest_one() {
    let env = env().with_forum();
    let job = env.job(&json!({"tools": {"servers": ["forun"]}}), &json!([{"text": "hi"}]));
    env.run(&["job", &job]).refused(2, &["`forun`", "did you mean `forum`?"]);
    is_untouched(&env);
}

#[test]
fn an_mcp_configuration_that_cannot_be_used_is_named_with_its_field() {
    let env = env();
    let job = env.job(&json!({}), &json!([{"text": "hi"}]));
    env.run(&["job", &job, "--mcp-config", "gone.json"]).refused(2, &["gone.json", "no such file"]);
    let malformed = env.write("work/mcp.json", "{\"mcpServers\": [");
    env.run(&["job", &job, "--mcp-config", &malformed]).refused(2, &["mcp.json", "it is a list", "mcpServers"]);
    let unknown = env.mcp_config("work/mcp.json", &json!({"forum": {"command": "x", "arguments": []}}));
    env.run(&["job", &job, "--mcp-config", &unknown]).refused(2, &["`arguments`", "`forum`", "mcp.json"]);
    let unset = env.mcp_config("work/mcp.json", &json!({"forum": {"command": "x", "args": ["${NO_SUCH_THING}"]}}));
    env.run(&["job", &job, "--mcp-config", &unset]).refused(2, &["NO_SUCH_THING", "`forum`"]);
    is_untouched(&env);
}

#[test]
fn a_policy_file_that_cannot_be_used_is_named_with_line_and_field() {
    let env = env();
    let job = env.job(&json!({"policies": ["policy.toml"]}), &json!([{"text": "hi"}]));
    env.run(&["job", &job]).refused(2, &["policy.toml", "no such file"]);
    env.write("work/policy.toml", "[[rule]]\nid = \"a\"\nname = \"b\"\non_unknown = \"maybe\"\n");
    env.run(&["job", &job]).refused(2, &["policy.toml", "line 4", "`on_unknown`", "maybe"]);
    env.write("work/policy.toml", "[[rule]]\nid = \"a\"\nname = \"b\"\nside_efect_class = \"external\"\n");
    env.run(&["job", &job]).refused(2, &["policy.toml", "line 4", "`side_efect_class`"]);
    is_untouched(&env);
}

#[test]
fn a_bad_glob_in_a_job_is_named_with_its_field() {
    let env = env();
    let job = env.job(&json!({"constraints": {"forbidden_actions": ["a[b"]}}), &json!([{"text": "hi"}]));
    env.run(&["job", &job]).refused(2, &["constraints.forbidden_actions", "a[b"]);
    is_untouched(&env);
}

#[test]
fn a_run_id_that_no_file_could_be_named_after_is_refused() {
    let env = env();
    let job = env.job(&json!({}), &json!([{"text": "hi"}]));
    for bad in ["../escape", "a b", ""] {
        env.run(&["job", &job, "--run-id", bad]).refused(2, &["--run-id"]);
    }
    is_untouched(&env);
}

#[test]
fn a_workspace_that_leads_out_of_the_root_is_refused() {
    let env = env();
    for bad in ["../outside", "/tmp/outside", "a/../../b"] {
        let job = env.job(&json!({"artifacts": {"workspace_dir": bad}}), &json!([{"text": "hi"}]));
        env.run(&["job", &job]).refused(2, &["artifacts.workspace_dir", bad, "below"]);
    }
    assert!(!env.path("outside").exists());
    // Nor is a root made, which later commands would take for the one of the runs.
    is_untouched(&env);
}

#[test]
fn names_that_fit_no_run_or_several_change_nothing() {
    let env = env();
    env.run(&["resume", "last"]).refused(2, &["no runtime database", "ua job FILE"]);
    is_untouched(&env);

    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "hi"}]));
    for id in ["monday-1", "monday-2"] {
        env.run(&["job", &job, "--run-id", id]).code(0);
    }
    let before = env.rows("SELECT * FROM runs");
    env.run(&["resume", "tuesday"]).refused(2, &["`tuesday`", "ua runs list"]);
    env.run(&["resume", "monday"]).refused(2, &["monday-1", "monday-2", "ua runs list"]);
    env.run(&["runs", "show", "tuesday"]).refused(2, &["`tuesday`"]);
    env.run(&["calls", "show", "call_nothing"]).refused(2, &["call_nothing", "ua calls list"]);
    env.run(&["calls", "resolve", "call_nothing", "--skip"]).refused(2, &["call_nothing"]);
    env.run(&["answer", "question_nothing", "skip"]).refused(2, &["question_nothing", "ua questions"]);
    assert_eq!(env.rows("SELECT * FROM runs"), before);
}

#[test]
fn last_means_nothing_before_the_first_run() {
    let env = env();
    let job = env.job(&json!({"artifacts": {"workspace_dir": ".."}}), &json!([{"text": "hi"}]));
    // Refused before anything is made.
    env.run(&["job", &job]).code(2);
    env.run(&["resume", "last"]).refused(2, &["no job was run here yet", "ua job FILE"]);
    // A database whose only run was deleted.
    env.run(&["job", &env.job(&json!({}), &json!([{"text": "hi"}])), "--run-id", "r"]).code(0);
    env.run(&["runs", "delete", "r", "--yes"]).code(0);
    env.run(&["resume", "last"]).refused(2, &["no run yet", "ua job FILE"]);
}

#[test]
fn a_root_whose_name_is_no_text_is_refused() {
    use std::os::unix::ffi::OsStringExt as _;
    let env = env();
    let job = env.job(&json!({}), &json!([{"text": "hi"}]));
    let root = std::ffi::OsString::from_vec(b"r\xff".to_vec());
    env.run_in(&root, &["job", &job]).refused(2, &["not UTF-8 text", "--root"]);
    assert!(!env.path("work").join(&root).exists());
}
