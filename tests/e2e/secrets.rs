//! Secrets that a tool brings along are kept nowhere.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::path::Path;

use serde_json::json;

use super::env;

const CANARY: &str = "sk-canary-5f1d7e20c4";

/// Every file below `folder` that contains the canary.
fn found_below(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found_below(&path, found);
        } else if path.is_file()
            && fs::read(&path).unwrap().windows(CANARY.len()).any(|bytes| bytes == CANARY.as_bytes())
        {
            found.push(path.display().to_string());
        }
    }
}

#[test]
fn what_a_tool_answers_is_kept_without_secrets() {
    let env = env().with_env("ANTHROPIC_API_KEY", CANARY);
    let file = env.write("work/leaked.txt", format!("the key is {CANARY}, so keep it to yourself"));
    let clean = "the key is [secret ANTHROPIC_API_KEY], so keep it to yourself";
    let turns = json!([
        {"tools": [{"name": "mcp__ua__run_command", "input": {"argv": ["cat", file]}}]},
        // What the model is sent is clean, too.
        {"text": "Read.", "expect": {"contains": [clean]}},
    ]);
    let job = env.job(&json!({"tools": {"run_command": true}}), &turns);
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    let out = env.root().join("exported").display().to_string();
    env.run(&["runs", "export", "r", "--out", &out, "--all-files", "--include-blobs"]).code(0);
    assert!(fs::read_to_string(env.workspace().join("transcript.md")).unwrap().contains(clean));
    let mut found = Vec::new();
    found_below(&env.root(), &mut found);
    assert_eq!(found, [""; 0]);
}

#[test]
fn secrets_of_a_tool_servers_configuration_count_by_the_names_of_their_variables_and_by_their_looks() {
    let env = env();
    let looks = "s3cr027valueXyz";
    let file = env.write("work/leaked.txt", format!("token {CANARY} creds {looks} in eu-central-1"));
    let mut entry = env.forum_entry(&[]);
    entry["env"]["FORUM_TOKEN"] = json!(CANARY);
    entry["env"]["CREDS"] = json!(looks);
    entry["env"]["WHERE"] = json!("eu-central-1");
    env.mcp_config("work/.mcp.json", &json!({"forum": entry}));
    let turns = json!([
        {"tools": [{"name": "mcp__ua__run_command", "input": {"argv": ["cat", file]}}]},
        {"text": "Read.", "expect": {"contains": ["token [secret FORUM_TOKEN] creds [secret CREDS] in eu-central-1"]}},
    ]);
    let job = env.job(&json!({"tools": {"run_command": true}}), &turns);
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    let mut found = Vec::new();
    found_below(&env.root(), &mut found);
    assert_eq!(found, [""; 0]);
}

/// A server that says its token wherever it speaks about itself: what lists and locks tools is without it, on screen and in the file.
#[test]
fn no_list_and_no_lock_of_tools_holds_what_a_server_was_given() {
    let env = env();
    let script = r#"
while read -r line; do
    id=${line##*'"id":'}; id=${id%%[!0-9]*}
    case $line in
        *'"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"n-%s","version":"v-%s"}}}\n' "$id" "$OWN_TOKEN" "$OWN_TOKEN" ;;
        *'"tools/list"'*) printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"get-%s","inputSchema":{"type":"object"}},{"name":"get","description":"d %s","inputSchema":{"type":"object"}}]}}\n' "$id" "$OWN_TOKEN" "$OWN_TOKEN" ;;
        *'"id":'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id" ;;
    esac
done"#;
    let server = json!({"command": "/bin/sh", "args": ["-c", script], "env": {"OWN_TOKEN": CANARY}});
    env.mcp_config("work/.mcp.json", &json!({"says": server}));
    for line in [
        &["tools", "list", "--json"][..],
        &["tools", "list"],
        &["tools", "explain", "get"],
        &["tools", "explain", "nothing"],
        &["tools", "lock"],
        &["tools", "lock", "--check"],
        &["doctor"],
    ] {
        let output = env.run(line);
        assert!(!output.stdout.contains(CANARY) && !output.stderr.contains(CANARY), "{line:?}: {output:?}");
    }
    let lock = fs::read_to_string(env.path("work/mcp.lock")).unwrap();
    assert!(!lock.contains(CANARY) && lock.contains("n-[secret OWN_TOKEN]") && lock.contains("\"get\""), "{lock}");
    // And the lock is good for the same server.
    env.run(&["tools", "lock", "--check"]).code(0);
}
