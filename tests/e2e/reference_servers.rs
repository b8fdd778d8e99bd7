//! The reference servers of MCP and its conformance suite, where they are installed (`cargo xtask third-party`).

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests; only tests read the variable")]

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use ua_e2e::{TestEnv, until};
use ua_testkit::{ThirdParty, not_installed};

use super::env;

fn third_party() -> ThirdParty {
    ThirdParty::at(std::env::var_os("UA_THIRD_PARTY").map(PathBuf::from))
}

/// `PATH` in which the installed programs find what they need.
fn path(installed: &ThirdParty) -> String {
    let inherited = std::env::var_os("PATH").unwrap_or_default();
    let all = installed.path().into_iter().chain(std::env::split_paths(&inherited));
    std::env::join_paths(all).unwrap().into_string().unwrap()
}

/// An installed server as an entry of the MCP configuration.
fn entry(program: &str, args: &[&str], more: &[(&str, &str)]) -> Option<Value> {
    let installed = third_party();
    let command = installed.find_or_say(program, "a reference server of MCP")?;
    let mut variables = json!({"PATH": path(&installed)});
    for (name, value) in more {
        variables[*name] = json!(value);
    }
    Some(json!({"command": command, "args": args, "env": variables}))
}

fn job(env: &TestEnv, tool: &str, input: &Value, last: &Value) -> String {
    let call = json!({"tools": [{"name": tool, "input": input}]});
    env.job(&json!({"tools": {"builtin": false}}), &json!([call, last]))
}

/// What the memory server keeps: how often an entity is in its file.
fn entities(file: &str, name: &str) -> usize {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().filter(|line| line.contains("\"entity\"") && line.contains(name)).count()
}

#[test]
fn the_memory_server_keeps_an_entity_once_although_the_process_dies() {
    for point in ["", "before:tool.invoke:create_entities", "after:tool.invoke:create_entities"] {
        let env = env();
        let file = env.arg("memory.jsonl");
        let Some(server) = entry("mcp-server-memory", &[], &[("MEMORY_FILE_PATH", &file)]) else { return };
        env.mcp_config("work/.mcp.json", &json!({"memory": server}));
        let input = json!({"entities": [{"name": "Ada", "entityType": "person", "observations": ["writes"]}]});
        let job = job(&env, "mcp__memory__create_entities", &input, &json!({"text": "Kept."}));
        if point.is_empty() {
            env.run(&["job", &job, "--run-id", "r"]).code(0);
        } else {
            env.run_killed_at(point, &["job", &job, "--run-id", "r"]);
            let output = env.run(&["resume", "r"]).code(75);
            output.shows(&["Did `create_entities` happen?"]);
            let happened = entities(&file, "Ada") == 1;
            let question = env.value("SELECT question_id FROM questions WHERE status = 'open'");
            env.run(&["answer", &question, if happened { "happened" } else { "execute" }]).code(0);
            env.run(&["resume", "r"]).code(0);
        }
        assert_eq!(entities(&file, "Ada"), 1, "{point}");
    }
}

#[test]
fn the_servers_for_files_time_and_everything_are_listed_and_called() {
    let env = env();
    let folder = env.arg("shared");
    std::fs::create_dir_all(&folder).unwrap();
    let servers = [
        ("files", entry("mcp-server-filesystem", &[&folder], &[])),
        ("time", entry("mcp-server-time", &["--local-timezone", "UTC"], &[])),
        ("everything", entry("mcp-server-everything", &["stdio"], &[])),
        ("fetch", entry("mcp-server-fetch", &[], &[])),
    ];
    if servers.iter().any(|(_, server)| server.is_none()) {
        return;
    }
    let config: serde_json::Map<String, Value> =
        servers.into_iter().filter_map(|(name, server)| Some((name.to_owned(), server?))).collect();
    env.mcp_config("work/.mcp.json", &Value::Object(config));
    let listed = env.run(&["tools", "list"]).code(0);
    listed
        .shows(&[
            "mcp__files__write_file",
            "mcp__time__get_current_time",
            "mcp__everything__get-sum",
            "mcp__everything__read_resource",
            "mcp__fetch__fetch",
        ])
        .says(&["speaks MCP 2025-11-25", "speaks MCP 2026-07-28"]);
    let write = json!({"path": format!("{folder}/a.txt"), "content": "hello"});
    let turns = json!([
        {"tools": [{"name": "mcp__time__get_current_time", "input": {"timezone": "UTC"}},
                   {"name": "mcp__everything__get-sum", "input": {"a": 2, "b": 40}}]},
        {"tools": [{"name": "mcp__everything__get-tiny-image", "input": {}},
                   {"name": "mcp__everything__list_resources", "input": {}}],
         "expect": {"contains": ["42"]}},
        {"tools": [{"name": "mcp__files__write_file", "input": write}]},
        {"text": "Done.", "expect": {"tool_result_ok": true}}
    ]);
    env.run(&["job", &env.job(&json!({"tools": {"builtin": false}}), &turns), "--run-id", "r"]).code(0);
    assert_eq!(std::fs::read_to_string(format!("{folder}/a.txt")).unwrap(), "hello");
}

#[test]
fn a_task_of_the_everything_server_is_followed_and_its_question_is_declined_when_nobody_is_there() {
    let env = env().with_env("UA_ELICITATION_WAIT", "0");
    let Some(server) = entry("mcp-server-everything", &["stdio"], &[]) else { return };
    env.mcp_config("work/.mcp.json", &json!({"everything": server}));
    let input = json!({"topic": "mugs", "ambiguous": true});
    let last = json!({"text": "Done.", "expect": {"contains": ["Research Report: mugs", "User declined"]}});
    let output =
        env.run(&["job", &job(&env, "mcp__everything__simulate-research-query", &input, &last), "--run-id", "r"]);
    output.code(0).says(&["Requesting clarification"]);
    assert_eq!(env.value("SELECT status || ' ' || attempt FROM tool_calls"), "succeeded 1");
}

/// The everything server over HTTP; it ends with the test.
struct Served {
    child: Child,
    url: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn serve_everything() -> Option<Served> {
    let installed = third_party();
    let program = installed.find_or_say("mcp-server-everything", "a task over HTTP")?;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new(program);
    command.arg("streamableHttp").env("PATH", path(&installed)).env("PORT", port.to_string());
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let served = Served { child, url: format!("http://127.0.0.1:{port}/mcp") };
    until("the everything server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    Some(served)
}

#[test]
fn a_task_over_http_is_found_again_in_its_session_after_a_kill() {
    let Some(served) = serve_everything() else { return };
    let env = env();
    env.mcp_config("work/.mcp.json", &json!({"everything": {"type": "http", "url": served.url}}));
    let last = json!({"text": "Done.", "expect": {"contains": ["Research Report: mugs"]}});
    let job = job(&env, "mcp__everything__simulate-research-query", &json!({"topic": "mugs"}), &last);
    env.run_killed_at("after:tool.go_on:simulate-research-query", &["job", &job, "--run-id", "r"]);
    assert_eq!(env.value("SELECT status FROM tool_calls"), "running");
    env.run(&["resume", "r"]).code(0).says(&["asking for its task"]);
    assert_eq!(env.value("SELECT status || ' ' || attempt FROM tool_calls"), "succeeded 1");
    assert_eq!(env.value("SELECT count(*) FROM questions"), "0");
}

/// Runs one scenario of the conformance suite with this client; its exit code is the verdict.
fn conforms(suite: &str, scenario: &str, more: &[&str]) -> Result<(), String> {
    let installed = third_party();
    let node = installed.find("node").ok_or("node is not installed")?;
    let script = installed.npm().join("node_modules").join(suite).join("dist/index.js");
    let folder = tempfile::tempdir().unwrap();
    let client = env!("CARGO_BIN_EXE_ua-e2e-mcp-client");
    let mut command = Command::new(node);
    command.arg(script).args(["client", "--command", client, "--scenario", scenario, "--timeout", "60000"]).args(more);
    let output = command.current_dir(folder.path()).env("PATH", path(&installed)).output().unwrap();
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{scenario}: {}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
}

fn suite_is_there(suite: &str) -> bool {
    let installed = third_party();
    let is_there = installed.npm().join("node_modules").join(suite).is_dir() && installed.find("node").is_some();
    if !is_there {
        not_installed("a suite of others", suite);
    }
    is_there
}

#[test]
fn this_client_passes_the_conformance_suite_of_the_handshake_era() {
    let suite = "@modelcontextprotocol/conformance";
    if !suite_is_there(suite) {
        return;
    }
    for scenario in ["initialize", "tools_call", "sse-retry", "elicitation-sep1034-client-defaults"] {
        conforms(suite, scenario, &[]).unwrap();
    }
}

#[test]
fn this_client_passes_the_conformance_suite_of_the_stateless_era() {
    let suite = "conformance-2026";
    if !suite_is_there(suite) {
        return;
    }
    for scenario in [
        "tools_call",
        "request-metadata",
        "sep-2322-client-request-state",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
    ] {
        conforms(suite, scenario, &["--spec-version", "2026-07-28"]).unwrap();
    }
}

/// Everything about logins but what this client does not do (assertions that a machine signs, logins for an enterprise, proofs of possession), and
/// `auth/2025-03-26-oauth-metadata-backcompat`, whose metadata name another issuer than the server they are read from: later revisions want
/// that refused, and it is.
const LOGINS: [&str; 18] = [
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
];

#[test]
fn this_client_passes_the_logins_of_the_conformance_suite() {
    let suite = "@modelcontextprotocol/conformance";
    if !suite_is_there(suite) {
        return;
    }
    // In no revision of the protocol: the suite of the next one skips it.
    let all = LOGINS.iter().chain(&["auth/client-credentials-basic", "auth/client-credentials-jwt"]);
    let failed: Vec<String> = all.filter_map(|scenario| conforms(suite, scenario, &[]).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[test]
fn this_client_passes_the_logins_of_the_conformance_suite_of_the_stateless_era() {
    let suite = "conformance-2026";
    if !suite_is_there(suite) {
        return;
    }
    let new = [
        "auth/authorization-server-migration",
        "auth/iss-supported",
        "auth/iss-not-advertised",
        "auth/iss-supported-missing",
        "auth/iss-wrong-issuer",
        "auth/iss-unexpected",
        "auth/iss-normalized",
        "auth/metadata-issuer-mismatch",
    ];
    let all = LOGINS.iter().filter(|scenario| !scenario.contains("2025-03-26")).chain(&new);
    let version = ["--spec-version", "2026-07-28"];
    let failed: Vec<String> = all.filter_map(|scenario| conforms(suite, scenario, &version).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}
