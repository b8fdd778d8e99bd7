//! Tool servers that a project brings along are not used before a person let them in (threat S9 of docs/security.md).

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use ua_e2e::TestEnv;

use super::env;

/// Writes `.mcp.json` as a checkout would bring it, without anybody's word.
fn project(env: &TestEnv, servers: &Value) -> String {
    env.write("work/.mcp.json", json!({ "mcpServers": servers }).to_string())
}

/// A server that leaves a mark when its program is started.
fn marking(env: &TestEnv) -> Value {
    let script = format!("touch {}; exit 1", env.arg("spawned"));
    json!({"command": "/bin/sh", "args": ["-c", script]})
}

#[test]
fn s9_nothing_of_a_project_is_started_or_reached_before_it_is_let_in() {
    let env = env();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    std::thread::spawn(move || {
        for _connection in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    project(&env, &json!({"evil": marking(&env), "far": {"type": "http", "url": url, "headers": {"X": "${HOME}"}}}));
    let job = env.job(&json!({}), &json!([{"text": "Done."}]));
    env.run(&["job", &job]).refused(2, &["not trusted yet", "evil, far", "ua trust", "--mcp-config"]);
    env.run(&["tools", "list"]).code(0).says(&["`evil`", "not trusted"]);
    env.run(&["doctor", "--job", &job]).code(1).shows(&["not trusted yet"]);
    env.run(&["doctor"]).code(1).shows(&["not trusted yet"]);
    assert!(!env.path("spawned").exists(), "a program was started");
    assert_eq!(connections.load(Ordering::SeqCst), 0, "an address was reached");
    assert!(!env.root().exists(), "a run was stored");
    // A job that wants none of them needs no word.
    let without = env.named_job("without", &json!({"tools": {"servers": []}}), &json!([{"text": "Done."}]));
    env.run(&["job", &without]).code(0);
    // Nobody is here who could say yes; what would be let in is shown all the same.
    let shown =
        env.run_bare(&["trust"]).code(2).says(&["--yes"]).shows(&["/bin/", "sha256", "touch", "X", "${HOME}", &url]);
    assert!(!shown.stdout.contains(&env.arg("home")), "no value is shown: {}", shown.shown());
    env.run_bare(&["trust", "--yes"]).code(0);
    env.run(&["job", &job]);
    assert!(env.path("spawned").exists(), "what was let in is started");
}

#[test]
fn s9_any_change_asks_again_and_a_word_can_be_taken_back() {
    let env = env();
    project(&env, &json!({"forum": env.forum_entry(&[])}));
    env.run_bare(&["trust", "--yes"]).code(0);
    let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "x"}}]});
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([post, {"text": "Done."}]));
    env.run_killed_at("before:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    // What the run is resumed with is not what was let in.
    project(&env, &json!({"forum": env.forum_entry(&["--with", "steal"])}));
    env.run(&["resume", "r"]).refused(2, &["not trusted yet", "forum"]);
    assert_eq!(env.run_bare(&["trust", "--list", "--json"]).code(0).json()[0]["state"], "changed");
    assert_eq!(env.comments(), [""; 0]);
    project(&env, &json!({"forum": env.forum_entry(&[])}));
    env.run(&["resume", "r"]).code(75);
    env.run(&["calls", "resolve", &env.value("SELECT tool_call_id FROM tool_calls"), "--execute"]).code(0);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.comments().len(), 1, "{:?}", env.calls());
    let record = env.path("home/.local/state/ua/trust.json");
    assert_eq!(std::fs::metadata(&record).unwrap().permissions().mode() & 0o777, 0o600);
    env.run_bare(&["trust", "--revoke"]).code(0).shows(&["1 server(s)"]);
    env.run(&["job", &job]).refused(2, &["not trusted yet"]);
}

#[test]
fn a_file_that_a_person_names_needs_no_word() {
    let env = env();
    let file = project(&env, &json!({"forum": env.forum_entry(&[])}));
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    env.run(&["job", &job, "--mcp-config", &file]).code(0);
    env.start_with(("UA_MCP_CONFIG", &file), &["job", &job]).wait().code(0);
    // Nor is one that lies in another folder found.
    env.run(&["job", &job]).refused(2, &["not trusted yet"]);
}

#[test]
fn s9_a_launcher_that_fetches_what_is_there_that_day_needs_a_word_of_its_own() {
    let env = env();
    project(&env, &json!({"loose": {"command": "npx", "args": ["-y", "some-package@latest"]}}));
    env.run_bare(&["trust", "--yes"])
        .code(2)
        .says(&["whatever version", "--allow-unpinned"])
        .shows(&["! it runs whatever"]);
    env.run_bare(&["trust", "--yes", "--allow-unpinned"]).code(0);
    env.run_bare(&["trust"]).code(0).shows(&["nothing new"]);
}
