//! Configuration in layers: which file says what, who wins, and what a project may not say.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};
use ua_e2e::TestEnv;

use super::env;

fn setting(env: &TestEnv, key: &str, args: &[&str]) -> (Value, String) {
    let shown = env.run_bare(&[&["config", "show", "--json"], args].concat()).code(0).json();
    let row = shown["settings"].as_array().unwrap().iter().find(|row| row["key"] == key).unwrap().clone();
    (row["value"].clone(), row["source"].as_str().unwrap().to_owned())
}

#[test]
fn later_layers_win_and_each_value_names_its_source() {
    let env = env();
    let (own, default) = (env.arg("work/AGENT_RUN_WORKSPACES"), || "default".to_owned());
    assert_eq!(setting(&env, "root", &[]), (json!(own), default()));
    assert_eq!(setting(&env, "database", &[]), (json!(format!("{own}/runtime_state.db")), default()));
    let user = env.write("home/.config/ua/config.toml", "root = \"runs\"\n\n[model]\nname = \"users\"\n");
    let (root, source) = setting(&env, "root", &[]);
    assert_eq!((root, source), (json!(env.arg("home/.config/ua/runs")), format!("{user}:1")));
    let project = env.write("work/ua.toml", "root = \"here/AGENT_RUN_WORKSPACES\"\n");
    let (root, source) = setting(&env, "root", &[]);
    assert_eq!((root, source), (json!(env.arg("work/here/AGENT_RUN_WORKSPACES")), format!("{project}:1")));
    assert_eq!(setting(&env, "model.name", &[]), (json!("users"), format!("{user}:4")));
    assert_eq!(setting(&env, "root", &["--root", "flag"]), (json!(env.arg("work/flag")), "flag".to_owned()));
    let env = env.with_env("UA_ROOT", "/by/environment");
    assert_eq!(setting(&env, "root", &[]), (json!("/by/environment"), "environment (UA_ROOT)".to_owned()));
    env.run_bare(&["config", "show"]).code(0).shows(&["SETTING", "model.name", "users", &user, &project]);
}

/// What is shown is what a command that is given there uses, and not what it would be if nothing were there.
#[test]
fn in_a_folder_below_the_runs_are_said_to_be_where_they_are() {
    let env = env();
    let model = json!({"provider": "scripted", "script": "plain.script.json"});
    let job = env.write("work/plain.json", json!({"objective": "x", "model": model}).to_string());
    env.write("work/plain.script.json", json!({"turns": [{"text": "Done."}]}).to_string());
    env.run_bare(&["job", &job, "--run-id", "r"]).code(0);
    std::fs::create_dir_all(env.path("work/deep/er")).unwrap();
    let shown = env.run_by_bash("cd deep/er && \"$1\" config show").code(0);
    let root = env.arg("work/AGENT_RUN_WORKSPACES");
    shown.shows(&[&root, &format!("{root}/runtime_state.db"), &format!("{root}/outbox")]);
}

#[test]
fn a_job_runs_where_the_project_says() {
    let env = env();
    env.write("work/ua.toml", "root = \"kept/AGENT_RUN_WORKSPACES\"\n[model]\nprovider = \"scripted\"\n");
    let job =
        env.write("work/plain.json", json!({"objective": "x", "model": {"script": "plain.script.json"}}).to_string());
    env.write("work/plain.script.json", json!({"turns": [{"text": "Done."}]}).to_string());
    env.run_bare(&["job", &job, "--run-id", "r"]).code(0);
    assert!(env.path("work/kept/AGENT_RUN_WORKSPACES/runtime_state.db").is_file());
    env.run_bare(&["runs", "list"]).code(0).shows(&["r ", "succeeded"]);
    // Also from a folder below.
    std::fs::create_dir_all(env.path("work/deep/er")).unwrap();
    env.run_by_bash("cd deep/er && \"$1\" runs show last").code(0).shows(&["run r"]);
}

#[test]
fn what_is_wrong_in_a_file_is_named_with_its_line() {
    let env = env();
    env.write("work/ua.toml", "[model]\nnmae = \"x\"\n");
    env.run(&["runs", "list"])
        .refused(2, &["ua.toml:2: there is no setting `model.nmae`", "did you mean `model.name`?"]);
    env.write("work/ua.toml", "[output]\ncolor = \"red\"\n");
    env.run(&["runs", "list"]).refused(2, &["ua.toml:2: `output.color` takes one of auto, always, never"]);
    env.write("work/ua.toml", "root = ");
    env.run(&["runs", "list"]).refused(2, &["ua.toml:1:", "TOML"]);
    // Foreign text in a file does not drive the terminal either.
    env.write("work/ua.toml", "\"\\u001b[2Jx\" = 1\n");
    let output = env.run(&["runs", "list"]).code(2);
    assert!(!output.stderr.contains('\u{1b}'), "{}", output.shown());
    // Nobody is kept from looking what is wrong.
    env.run(&["doctor"]).code(1).shows(&["fail configuration"]);
    env.run_bare(&["completions", "bash"]).code(0);
}

#[test]
fn a_project_may_not_decide_what_runs_or_where_things_go() {
    let env = env();
    for (line, why) in [
        ("mcp_config = \"servers.json\"", "which programs are run"),
        ("alert.command = \"./evil\"", "which programs are run"),
        ("providers.anthropic.base_url = \"http://127.0.0.1:9\"", "where things are sent"),
        ("providers.anthropic.api_key = \"k\"", "it is a key"),
        ("allow_private_addresses = true", "network of this machine"),
        ("run_command.sandbox = \"off\"", "what programs of a job can reach"),
    ] {
        env.write("work/ua.toml", line);
        env.run(&["runs", "list"]).refused(2, &["a project may not set", why, "config.toml"]);
    }
}

#[test]
fn s10_a_projects_policy_files_are_refused() {
    let env = env().with_forum();
    let lowered = "[[rule]]\nid = \"harmless\"\nname = \"post_comment\"\nside_effect_class = \"read_only\"\non_unknown = \"redo\"\n";
    let file = env.write("work/policy.toml", lowered);
    env.write("work/ua.toml", "policies = [\"policy.toml\"]\n");
    env.run(&["tools", "explain", "mcp__forum__post_comment"]).refused(
        2,
        &["ua.toml:1: a project may not set `policies`", "it can let tools be run again", "config.toml", "UA_POLICY"],
    );
    // The same file by the user's word.
    std::fs::remove_file(env.path("work/ua.toml")).unwrap();
    env.write("home/.config/ua/config.toml", format!("policies = [\"{file}\"]\n"));
    env.run(&["tools", "explain", "mcp__forum__post_comment"]).code(0).shows(&["read_only", "harmless"]);
    // What a project says to raise caution counts.
    env.write("work/ua.toml", "side_effect_denylist = \"get_page\"\n");
    env.run(&["tools", "explain", "mcp__forum__get_page"]).code(0).shows(&["external"]);
    // It is added to what the user says there, and takes nothing of it away.
    env.write("home/.config/ua/config.toml", "side_effect_denylist = \"get_page\"\n");
    env.write("work/ua.toml", "side_effect_denylist = \"post_comment\"\n");
    env.run(&["tools", "explain", "mcp__forum__get_page"]).code(0).shows(&["external", "side_effect_denylist"]);
}

#[test]
fn a_key_in_the_users_file_is_used_and_never_shown() {
    let env = env();
    let file = env.write("home/.config/ua/config.toml", "[providers.anthropic]\napi_key = \"very-secret\"\n");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    env.run(&["runs", "list"]).refused(2, &["holds a key and others can read it", "chmod 600"]);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(setting(&env, "providers.anthropic.api_key", &[]), (json!("set"), format!("{file}:2")));
    let output = env.run(&["doctor", "--verbose"]);
    output.code(0).shows(&["a key for anthropic is set"]);
    for args in [&["doctor"][..], &["doctor", "--json"], &["config", "show"]] {
        let output = env.run(args);
        assert!(!output.shown().contains("very-secret"), "{args:?}");
    }
}

#[test]
fn a_variable_with_a_value_that_its_setting_does_not_take_is_an_error() {
    let env = env();
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    for (variable, takes) in [
        (("UA_PROGRESS", "foo"), "one of auto, lines"),
        (("UA_COLOR", "foo"), "one of auto, always, never"),
        (("UA_ALLOW_PRIVATE_ADDRESSES", "maybe"), "`true` or `false`"),
        (("UA_MODEL_TIMEOUT", "5m"), "whole seconds"),
        (("UA_MODEL_TIMEOUT", "0"), "whole seconds from 1 to 86400"),
        (("UA_MODEL_TIMEOUT", "999999"), "whole seconds from 1 to 86400"),
        (("UA_ALERT_ON", "never"), "`waiting` or `waiting,ended`"),
        (("UA_LOG", "blah"), "off, error, warn"),
        (("UA_PROVIDER", "antropic"), "one of anthropic"),
    ] {
        let refused = env.start_with(variable, &["job", &job]).wait();
        refused.refused(2, &[variable.0, &format!("is `{}`, but must be {takes}", variable.1)]);
        env.start_with(variable, &["doctor"]).wait().code(1).shows(&["fail configuration: ", variable.0]);
    }
    assert!(!env.root().exists());
    env.start_with(("UA_PROGRESS", "lines"), &["job", &job]).wait().code(0);
}
