//! `${secret:NAME}`: the value goes to the tool alone, and only to whom the user said.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

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

#[test]
fn no_word_that_is_stored_may_hold_a_secret_by_whatever_door_it_comes() {
    let env = env();
    secrets(&env, &format!("[secrets.PASS]\nvalue = \"{VALUE}\"\n"));
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    let seats = format!("{VALUE}:1");
    let add = ["schedule", "add", "nightly", &job, "--cron", "0 3 * * *"];
    for (command, name) in [
        (vec!["job", &job, "--model", VALUE], "model"),
        (vec!["job", &job, "--run-id", VALUE], "run"),
        (vec!["submit", &job, "--model", VALUE], "model"),
        (vec!["submit", &job, "--queue", VALUE], "queue"),
        (vec!["submit", &job, "--fair-key", VALUE], "fair key"),
        (vec!["submit", &job, "--concurrency-key", &seats], "concurrency key"),
        ([&add[..], &["--model", VALUE]].concat(), "model"),
        ([&add[..], &["--queue", VALUE]].concat(), "queue"),
        ([&add[..], &["--fair-key", VALUE]].concat(), "fair key"),
        ([&add[..], &["--concurrency-key", &seats]].concat(), "concurrency key"),
    ] {
        let what = format!("{name} contains the value of [secret PASS]");
        env.run(&command).refused(2, &[&what, "nothing was stored"]);
    }
    assert!(!env.root().join("runtime_state.db").exists());
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    env.run(&["fork", "r", "--model", VALUE]).refused(2, &["[secret PASS]"]);
}

/// The options of a command that take a value, as its help lists them, without those that every command has.
fn options(env: &TestEnv, command: &[&str]) -> Vec<String> {
    let help = env.run(&[command, &["--help"]].concat()).code(0).shown();
    let own = help.split("Global options:").next().unwrap_or_default().to_owned();
    let named = own.lines().map(str::trim_start).filter(|line| line.starts_with('-')).filter_map(|line| {
        let (name, value) = line[line.find("--")?..].split_once(' ')?;
        value.starts_with('<').then(|| name.to_owned())
    });
    named.collect()
}

/// Every file and folder below `folder` that has the value in it, or in its name.
fn with_the_value(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = if path.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        let is_named = path.file_name().is_some_and(|name| name.to_string_lossy().contains(VALUE));
        if is_named || bytes.windows(VALUE.len()).any(|part| part == VALUE.as_bytes()) {
            found.push(path.display().to_string());
        }
        if path.is_dir() {
            found.extend(with_the_value(&path));
        }
    }
    found
}

/// Options are found in the help of each command that stores something, so that a new one is looked at as well.
#[test]
fn no_option_and_no_file_brings_a_secret_into_what_is_stored() {
    let env = env();
    secrets(&env, &format!("[secrets.PASS]\nvalue = \"{VALUE}\"\n"));
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    env.run(&["submit", &job, "--run-id", "q", "--new"]).code(0);
    let commands: [(&[&str], &[&str]); 8] = [
        (&["job"], &[&job]),
        (&["submit"], &[&job]),
        (&["fork"], &["r"]),
        (&["resume"], &["r"]),
        (&["schedule", "add"], &["nightly", &job, "--cron", "0 3 * * *"]),
        (&["queue", "move"], &["q"]),
        (&["runs", "cancel"], &["q", "--yes"]),
        (&["worker"], &["--until-empty"]),
    ];
    let mut seen = 0;
    for (command, usual) in commands {
        for option in options(&env, command) {
            env.run(&[command, usual, &[option.as_str(), VALUE]].concat());
            assert_eq!(with_the_value(&env.root()), [""; 0], "{command:?} {option}");
            seen += 1;
        }
        env.run(&[command, usual, &["--by", VALUE]].concat()).refused(2, &["[secret PASS]"]);
    }
    assert!(seen > 60, "{seen}: the options were not found in the help");
    // What a file changes about a job is a job.
    for (name, change) in [
        ("prompt", json!({ "prompt": format!("use {VALUE}") })),
        ("inputs", json!({"inputs": {"a": [VALUE]}})),
        ("headers", json!({"model": {"headers": {"x-a": VALUE}}})),
    ] {
        let file = env.write(&format!("work/{name}.json"), change.to_string());
        for more in [&["--dry-run"][..], &[]] {
            let fork = env.run(&[&["fork", "r", "--job-overrides", &file], more].concat());
            let fork = fork.refused(2, &["the job contains the value of [secret PASS]"]);
            assert!(!fork.shown().contains(VALUE), "{name}");
        }
    }
    // What a policy and a configuration call things is stored with each call, and what is mistyped is shown.
    let policy = env.write(
        "work/policy.toml",
        format!("[[rule]]\nid = \"{VALUE}\"\nname = \"x\"\nside_effect_class = \"read_only\"\n"),
    );
    env.run(&["job", &job, "--policy", &policy]).refused(2, &["the policy contains the value of [secret PASS]"]);
    let config = env.mcp_config("work/mcp.json", &json!({VALUE: env.forum_entry(&[])}));
    env.run(&["job", &job, "--mcp-config", &config]).refused(2, &["the name of a tool server contains the value of"]);
    for mistyped in [&["runs", "show", VALUE][..], &[VALUE], &["job", &job, "--no-such-option", VALUE]] {
        let said = env.run(mistyped).shown();
        assert!(!said.contains(VALUE), "{said}");
    }
    let twice = env.write("work/twice.json", r#"{"prompt": "a", "prompt": "b"}"#);
    env.run(&["fork", "r", "--job-overrides", &twice]).code(2).says(&["twice"]);
    assert_eq!(with_the_value(&env.root()), [""; 0]);
}

/// What the configuration of tool servers gives them is a secret before one of them is started.
#[test]
fn what_a_tool_server_is_given_is_refused_in_a_job_and_in_every_name() {
    let env = env();
    let mut entry = env.forum_entry(&[]);
    entry["env"] = json!({"API_TOKEN": VALUE});
    let config = env.mcp_config("work/mcp.json", &json!({"forum": entry}));
    let turns = json!([{"text": "Done."}]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    let says_it =
        env.named_job("says", &json!({"prompt": format!("use {VALUE}"), "tools": {"builtin": false}}), &turns);
    for command in [
        vec!["job", &says_it],
        vec!["submit", &says_it],
        vec!["job", &job, "--run-id", VALUE],
        vec!["submit", &job, "--queue", VALUE],
        vec!["schedule", "add", VALUE, &job, "--cron", "0 3 * * *"],
    ] {
        let command = [&command[..], &["--mcp-config", &config]].concat();
        env.run(&command).refused(2, &["contains the value of [secret API_TOKEN]"]);
    }
    env.run(&["submit", &job, "--run-id", "q", "--mcp-config", &config]).code(0);
    let reason = ["runs", "cancel", "q", "--yes", "--reason", VALUE];
    env.run(&reason).refused(2, &["the reason contains the value of [secret API_TOKEN]"]);
    assert_eq!(with_the_value(&env.root()), [""; 0]);
}

#[test]
fn what_is_wrong_with_the_file_is_said_without_what_stands_in_it() {
    let env = env();
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    for text in [
        "[secrets]\nPASS = \"V\"",
        "[secrets.\"V\"]\n",
        "secrets = \"V\"",
        "[secrets.PASS]\ncommand = \"printf V\"",
        "V = 1",
        "V",
    ] {
        secrets(&env, &text.replace('V', VALUE));
        for command in [vec!["job", &job, "--check"], vec!["submit", &job], vec!["doctor"], vec!["tools", "list"]] {
            let said = env.run(&command).shown();
            assert!(!said.contains(VALUE), "{text} {command:?}: {said}");
        }
        env.run(&["job", &job]).refused(2, &["secrets.toml: "]);
    }
    fs::remove_file(env.path("home/.config/ua/secrets.toml")).unwrap();
    // So is what is wrong with the environment of a tool server.
    for entry in [
        format!("{{\"env\": {VALUE}}}"),
        format!("{{\"env\": \"{VALUE}\"}}"),
        format!("\"{VALUE}\""),
        format!("{{\"env\": [\"{VALUE}\"]}}"),
    ] {
        env.write("work/.mcp.json", format!("{{\"mcpServers\": {{\"crm\": {entry}}}}}"));
        let said = env.run(&["job", &job, "--check"]).code(2).shown();
        assert!(!said.contains(VALUE) && said.contains("mcp.json"), "{entry}: {said}");
    }
}
