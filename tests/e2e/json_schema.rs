//! What commands write for machines is what `ua schema` says, to the last field.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use rustix::process::Signal;
use serde_json::{Value, json};
use ua_e2e::until;

use super::env;

/// A field that is not described may not be there.
fn close(schema: &mut Value) {
    if let Some(object) = schema.as_object_mut() {
        if object.get("properties").is_some_and(|fields| fields.as_object().is_some_and(|fields| !fields.is_empty())) {
            object.entry("additionalProperties").or_insert(Value::Bool(false));
        }
        object.values_mut().for_each(close);
    } else if let Some(items) = schema.as_array_mut() {
        items.iter_mut().for_each(close);
    }
}

#[track_caller]
#[expect(clippy::disallowed_methods, reason = "a schema of ours")]
fn agrees(schema: &Value, found: &Value, what: &str) {
    let mut schema = schema.clone();
    close(&mut schema);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let wrong: Vec<String> =
        validator.iter_errors(found).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(wrong.is_empty(), "{what}: {wrong:#?}\n{found:#}");
}

#[test]
fn every_command_writes_what_its_schema_says() {
    let env = env().with_forum();
    let schema = |command: &str| {
        let mut args = vec!["schema"];
        args.extend(command.split(' '));
        env.run_bare(&args).code(0).json()
    };
    let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "x"}}]});
    let turns =
        json!([{"tools": [{"name": "mcp__forum__get_page", "input": {"text": "page"}}]}, post, {"text": "Done."}]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    agrees(&schema("resume"), &env.run(&["resume", "r", "--json"]).code(75).json(), "resume");
    let call = env.value("SELECT tool_call_id FROM tool_calls WHERE status = 'unknown'");
    let backup = env.arg("copy.db");

    let mut checked = vec!["resume".to_owned(), "error".to_owned()];
    let mut check = |command: &str, args: &[&str], code: i32| {
        let words: Vec<&str> = command.split(' ').collect();
        let output = env.run(&[&words[..], args, &["--json"]].concat()).code(code);
        let found = output.json();
        assert!(!found.is_array() || found != json!([]), "{command} shows nothing to compare");
        agrees(&schema(&command.replace("--", "")), &found, command);
        checked.push(command.to_owned());
    };
    check("status", &[], 0);
    check("runs list", &[], 0);
    check("runs show", &["r"], 0);
    check("calls list", &[], 0);
    check("calls show", &[&call], 0);
    check("questions", &[], 0);
    check("turns show", &["r", "1"], 0);
    check("tools list", &[], 0);
    check("tools explain", &["post_comment"], 0);
    check("tools packs", &["github"], 0);
    check("models list", &[], 0);
    check("models show", &["claude-sonnet-4-5"], 0);
    check("config show", &[], 0);
    check("trust", &["--list"], 0);
    check("doctor", &[], 0);
    check("db check", &["--invariants"], 0);
    check("db migrate", &[], 0);
    check("db backup", &[&backup], 0);
    check("db accept", &["r"], 0);
    check("db prune", &["--dry-run"], 0);
    check("calls resolve", &[&call, "--skip"], 0);
    check("runs cancel", &["r"], 0);
    check("runs delete", &["r", "--dry-run", "--force"], 0);
    check("db restore", &[&backup], 0);
    let question = env.value("SELECT question_id FROM questions");
    check("answer", &[&question, "skip"], 0);
    check("questions --answered", &[], 0);
    let second = env.named_job("second", &json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    check("job", &[&second], 0);
    check("init", &["made"], 0);
    check("fork --dry-run", &["last", "--at-turn", "0"], 0);
    check("fork", &["last", "--at-turn", "0"], 0);
    check("runs diff", &["r", "last"], 0);
    check("runs export", &["last"], 0);
    let client = env.write("work/client.json", json!({"mcpServers": {"mail": {"command": "mail-server"}}}).to_string());
    check("gateway install", &["--file", &client], 0);
    check("gateway status", &[], 0);
    check("gateway uninstall", &["--file", &client], 0);

    let third = env.named_job("third", &json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    check("submit", &[&third], 0);
    check("queue list", &[], 0);
    check("queue depth", &[], 0);
    check("queue move", &["last", "--priority", "5"], 0);
    check("queue remove", &["last"], 0);
    check("schedule add", &["nightly", &third, "--cron", "0 3 * * *"], 0);
    check("schedule list", &[], 0);
    check("schedule pause", &["nightly"], 0);
    check("schedule resume", &["nightly"], 0);
    check("schedule run", &["nightly"], 0);
    let worker = env.start(&["worker"]);
    until("a worker", || env.run(&["workers", "list", "--json"]).code(0).json() != json!([]));
    check("workers list", &[], 0);
    let name = env.run(&["workers", "list", "--json"]).code(0).json()[0]["worker"].as_str().unwrap().to_owned();
    check("workers drain", &[&name], 0);
    worker.signal(Signal::TERM);
    worker.wait().code(0);
    check("schedule remove", &["nightly"], 0);
    check("gateway token", &["codex"], 0);
    check("gateway token --list", &[], 0);
    check("gateway start", &[], 0);
    check("gateway restart", &[], 0);
    check("gateway stop", &[], 0);
    let nothing = env.run(&["answer", "--json"]).code(0).json();
    agrees(&schema("answer"), &nothing, "answer with nothing open");

    let found = env.run(&["job", "--check", &second, "--json"]).code(0).json();
    agrees(&schema("job check"), &found, "job --check");

    let watching = env.start(&["questions", "--watch", "--json"]);
    let asks = env.named_job(
        "asks",
        &json!({"escalation": {"ask_human_before": ["notify"]}}),
        &json!([
            {"tools": [{"name": "mcp__ua__notify", "input": {"title": "x", "message": "x"}}]}, {"text": "Done."},
        ]),
    );
    env.run(&["job", &asks, "--run-id", "asks"]).code(75);
    let question = env.value("SELECT question_id FROM questions WHERE run_id = 'asks'");
    until("a line", || watching.stdout().lines().any(|line| line.contains(&question) && line.ends_with('}')));
    let of_watch = schema("questions watch");
    for line in watching.stdout().lines() {
        agrees(&of_watch, &serde_json::from_str(line).unwrap(), "questions --watch");
    }
    watching.signal(Signal::KILL);
    watching.wait().killed();

    let tail = env.run(&["runs", "tail", "r", "--no-follow", "--json"]).code(0);
    let lines = schema("runs tail");
    assert!(tail.stdout.lines().count() > 3, "{}", tail.shown());
    for line in tail.stdout.lines() {
        agrees(&lines, &serde_json::from_str(line).unwrap(), "runs tail");
    }
    let fourth = env.named_job("fourth", &json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    env.run(&["submit", &fourth, "--run-id", "queued"]).code(0);
    let worker = env.run(&["worker", "--until-empty", "--json"]).code(0);
    let of_worker = schema("worker");
    let told: Vec<Value> = worker.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for event in &told {
        agrees(&of_worker, event, "worker");
    }
    assert_eq!((&told[0]["event"], worker.stderr.as_str()), (&json!("started"), ""), "{}", worker.shown());
    let of_run: Vec<(&str, &str)> = told
        .iter()
        .filter(|event| event["run_id"] == "queued")
        .map(|event| (event["event"].as_str().unwrap(), event["status"].as_str().unwrap()))
        .collect();
    assert_eq!(of_run, [("claimed", "queued"), ("ended", "succeeded")], "{}", worker.shown());
    let error = env.run(&["runs", "show", "nobody", "--json"]).code(2);
    agrees(&schema("error"), &serde_json::from_str(error.stderr.trim()).unwrap(), "error");

    // What a person writes: the job of this test, and one of the examples.
    for file in [&job, &format!("{}/../fixtures/jobs/research_report.json", env!("CARGO_MANIFEST_DIR"))] {
        let written = std::fs::read_to_string(file).unwrap();
        agrees(&schema("job-file"), &serde_json::from_str(&written).unwrap(), file);
    }
    checked.push("job-file".to_owned());
    // Every command that has a schema was compared, but for those that other tests run: they need a probe, an unknown tool, or a server.
    checked.extend(["runs tail", "job --check", "questions --watch", "worker"].map(str::to_owned));
    let named = env.run_bare(&["schema", "--json"]).code(0).json();
    let missing: Vec<&str> = named
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .filter(|name| !checked.iter().any(|done| done == name))
        .collect();
    assert_eq!(
        missing,
        ["workers forget", "calls probe", "tools audit", "tools lock", "login", "logout", "db copy", "db copy --undo"]
    );
    // Each name is taken as it is listed, in one word or in several.
    for name in named.as_array().unwrap().iter().filter_map(Value::as_str) {
        let words: Vec<&str> = std::iter::once("schema").chain(name.split(' ')).collect();
        assert!(env.run_bare(&words).code(0).json().is_object(), "{name}");
        assert!(env.run_bare(&["schema", name]).code(0).json().is_object(), "{name}");
    }
    env.run_bare(&["schema", "nothing"]).refused(2, &["no schema for `nothing`", "ua schema"]);
}

#[test]
fn rows_of_an_audit_are_as_their_schema_says() {
    let env = env();
    env.mcp_config("work/.mcp.json", &json!({"forum": env.forum_entry(&["--with", "frobnicate"])}));
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    env.run(&["job", &job]).code(0);
    let schema = env.run_bare(&["schema", "tools", "audit"]).code(0).json();
    let found = env.run(&["tools", "audit", "--json"]).code(0).json();
    assert_eq!(found.as_array().unwrap().len(), 1);
    agrees(&schema, &found, "tools audit");
}
