//! Which policy pack a tool server is judged by, and whose annotations are believed: the word of whoever configures it.

use serde_json::{Value, json};
use ua_e2e::TestEnv;
use ua_testkit::Provider;

use super::env;

/// What is decided about a tool; nothing if it is not offered.
fn policy(env: &TestEnv, tool: &str) -> Value {
    let tools = env.run(&["tools", "list", "--json"]).code(0).json();
    let all = tools.as_array().cloned().unwrap_or_default();
    all.into_iter().find(|row| row["name"] == tool).map_or(Value::Null, |row| row["policy"].clone())
}

#[test]
fn s13_a_pack_counts_where_the_configuration_names_the_program_and_not_where_a_server_is_called_so() {
    let args = |env: &TestEnv| json!([Provider::GitHub.name(), env.arg("service.log")]);
    let called_so = env();
    let entry = json!({"command": env!("CARGO_BIN_EXE_ua-e2e-provider"), "args": args(&called_so)});
    called_so.mcp_config("work/.mcp.json", &json!({ "github": entry }));
    let of = policy(&called_so, "mcp__github__create_issue");
    assert_eq!([&of["on_unknown"], &of["class"], &of["effect_kind"]], ["hold", "external", "issue.create"]);
    assert_eq!(of["marker"], Value::Null, "nothing is written into its arguments");

    let named = env();
    let program = named.path("github-mcp-server");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ua-e2e-provider"), &program).unwrap();
    let entry = json!({"command": program, "args": args(&named)});
    named.mcp_config("work/.mcp.json", &json!({ "tickets": entry }));
    let of = policy(&named, "mcp__tickets__create_issue");
    assert_eq!([&of["on_unknown"], &of["rule_id"]], ["probe", "pack:github:issue"]);
    let without = named.with_env("UA_SERVER_PACKS", "tickets=none");
    assert_eq!(policy(&without, "mcp__tickets__create_issue")["on_unknown"], "hold");
    let wrong = without.with_env("UA_SERVER_PACKS", "tickets=gihub");
    wrong.run(&["tools", "list"]).refused(2, &["gihub", "ua tools packs"]);
}

#[test]
fn what_a_server_says_of_its_tools_confirms_a_name_once_a_person_trusts_it_that_far() {
    let env = env();
    let servers = |claimed: &str| {
        let forum = env.forum_entry(&["--with", "check_quota", "--with", "start_recording", "--claim", claimed]);
        env.write("work/.mcp.json", json!({"mcpServers": { "forum": forum }}).to_string());
    };
    let class = |tool: &str| policy(&env, &format!("mcp__forum__{tool}"))["class"].clone();
    servers("check_quota");
    env.run_bare(&["trust", "--yes"]).code(0);
    assert_eq!(class("check_quota"), "external", "it was let in, and no more");
    env.run_bare(&["trust", "--trust-annotations"]).code(0).shows(&["1 server"]);
    assert_eq!([class("check_quota"), class("start_recording")], ["read_only", "external"]);
    let listed = env.run(&["trust", "--list", "--json"]).code(0).json();
    assert_eq!(listed[0]["annotations"], true);
    // Another command line is another server.
    servers("start_recording");
    env.run_bare(&["trust", "--yes"]).code(0);
    assert_eq!(class("check_quota"), "external");
    env.run_bare(&["trust", "--trust-annotations"]).code(0);
    assert_eq!(class("start_recording"), "external", "no annotation is believed alone");
}

#[test]
fn the_packs_are_listed_and_each_says_where_it_was_read() {
    let env = env();
    env.run(&["tools", "packs"]).code(0).shows(&["PACK", "github", "oci:ghcr.io/github/github-mcp-server", "slack"]);
    env.run(&["tools", "packs", "slack"]).code(0).shows(&["[pack]", "slack_post_message", "source = \"https://"]);
    env.run(&["tools", "packs", "no-such"]).refused(2, &["no policy pack `no-such`", "ua tools packs"]);
    let all = env.run(&["tools", "packs", "--json"]).code(0).json();
    assert!(all.as_array().is_some_and(|all| all.len() >= 40 && all.iter().all(|pack| pack["text"].is_null())));
    assert!(env.run(&["tools", "packs", "git", "--json"]).json()[0]["text"].as_str().unwrap().contains("[[rule]]"));
}
