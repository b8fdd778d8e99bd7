//! `${secret:NAME}`: the value goes to the tool alone, and only to whom the user said.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;
use ua_e2e::TestEnv;

use super::env;

const VALUE: &str = "pass-canary-5f1d7e20c4";

fn secrets(env: &TestEnv, text: &str) {
    let path = env.write("home/.config/ua/secrets.toml", text);
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn post(text: &str) -> serde_json::Value {
    json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": text}}]})
}

#[test]
fn a_tool_gets_the_value_and_everything_else_the_reference() {
    let env = env().with_forum();
    secrets(
        &env,
        &format!("[secrets.PASS]\nvalue = \"{VALUE}\"\ntools = {{ mcp__forum__post_comment = [\"text\"] }}\n"),
    );
    let turns = json!([post("login ${secret:PASS}"), {"text": "Done."}]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    env.run_killed_at("before:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    env.run(&["resume", "r"]).code(75);
    let call = env.value("SELECT tool_call_id FROM tool_calls");
    env.run(&["calls", "resolve", &call, "--execute"]).code(0);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.comments(), [json!({"text": format!("login {VALUE}")}).to_string()]);
    env.run(&["calls", "show", &call]).code(0).shows(&["${secret:PASS}"]);
    let mut found = Vec::new();
    for name in ["runtime_state.db", "runtime_state.db-wal"] {
        let bytes = fs::read(env.root().join(name)).unwrap_or_default();
        if bytes.windows(VALUE.len()).any(|part| part == VALUE.as_bytes()) {
            found.push(name);
        }
    }
    assert_eq!(found, [""; 0]);
}

#[test]
fn a_model_gets_no_secret_into_a_tool_or_argument_that_the_user_did_not_name() {
    let env = env().with_forum();
    secrets(&env, &format!("[secrets.PASS]\nvalue = \"{VALUE}\"\ntools = {{ mcp__forum__get_page = [\"text\"] }}\n"));
    let turns = json!([
        post("${secret:PASS}"),
        {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "${secret:NOBODY}"}}], "expect": {"contains": ["may not be given"]}},
        {"text": "Done.", "expect": {"contains": ["there is no secret `NOBODY`"]}},
    ]);
    // What a job says about it is no field of a job.
    let wrong = env.named_job("wrong", &json!({"secrets": {"PASS": {}}}), &json!([{"text": "Done."}]));
    env.run(&["job", &wrong]).refused(2, &["secrets"]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    env.run(&["job", &job]).code(0);
    assert_eq!(env.comments(), [""; 0]);
    assert_eq!(env.rows("SELECT error_code FROM tool_calls"), ["secret_not_allowed", "secret_not_allowed"]);
}

#[test]
fn a_server_gets_what_the_user_lets_it_have_and_the_file_is_the_users_alone() {
    let env = env();
    let mut entry = env.forum_entry(&["--leak", "TOKEN"]);
    entry["env"] = json!({"TOKEN": "${secret:PASS}"});
    env.mcp_config("work/.mcp.json", &json!({"forum": entry}));
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    env.run(&["job", &job]).refused(2, &["refers to the secret `PASS`", "secrets.toml"]);
    secrets(&env, "[secrets.PASS]\nservers = [\"other\"]\n");
    env.run(&["job", &job]).refused(2, &["may not have the secret `PASS`", "servers"]);
    secrets(&env, "[secrets.PASS]\nservers = [\"forum\"]\n");
    env.run(&["job", &job]).refused(2, &["UA_SECRET_PASS"]);
    env.start_with(("UA_SECRET_PASS", "short"), &["job", &job]).wait().refused(2, &["fewer than 8 bytes"]);
    env.start_with(("UA_SECRET_PASS", VALUE), &["job", &job]).wait().code(0);
    secrets(&env, &format!("[secrets.PASS]\ncommand = [\"printf\", \"{VALUE}\"]\nservers = [\"forum\"]\n"));
    env.run(&["job", &job]).code(0);
    fs::set_permissions(env.path("home/.config/ua/secrets.toml"), fs::Permissions::from_mode(0o644)).unwrap();
    env.run(&["job", &job]).refused(2, &["others can read", "chmod 600"]);
}

#[test]
fn a_job_that_holds_a_secret_itself_is_refused_before_it_is_stored() {
    let env = env().with_env("ANTHROPIC_API_KEY", VALUE);
    let job = env.job(&json!({"prompt": format!("Log in with {VALUE}.")}), &json!([{"text": "Done."}]));
    env.run(&["job", &job]).refused(2, &["[secret ANTHROPIC_API_KEY]", "${secret:"]);
    assert!(!env.root().exists());
}
