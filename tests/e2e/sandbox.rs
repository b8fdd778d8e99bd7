//! Programs of a job are confined, and only the user's configuration lets them out (threat S8).

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::net::TcpListener;

use serde_json::{Value, json};

use super::env;

/// Whether the kernel offers all of it, as `ua doctor` says. One that does not is a failure, unless `CI_NO_WALLS=1`.
fn is_offered(env: &ua_e2e::TestEnv) -> bool {
    let output = env.run(&["doctor", "--json"]);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    let finding =
        report["findings"].as_array().unwrap().iter().find(|finding| finding["check"] == "run_command").unwrap();
    let is_expected = std::env::var_os("CI_NO_WALLS").is_some_and(|value| value == "1");
    assert!(finding["level"] == "ok" || is_expected, "CI_NO_WALLS=1 passes over this: {}", finding["detail"]);
    finding["level"] == "ok"
}

#[test]
fn s8_a_job_starts_confined_programs_and_only_the_user_lets_them_out() {
    let env = env();
    if !is_offered(&env) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let knocks = || std::iter::from_fn(|| listener.accept().ok()).count();
    let key = env.write("home/.ssh/id", "canary-77aa");
    let config = env.write("home/.config/ua/config.toml", "[output]\ncolor = \"never\"\n");
    let data = env.write("work/data.csv", "of the job");
    let database = env.root().join("runtime_state.db");
    let script = format!(
        "echo x > /dev/tcp/127.0.0.1/{port} && echo out; cat {key} {config}; cat {data}; head -c 6 {database}; echo y > made.txt; echo y > {data}; ulimit -n; true",
        database = database.display(),
    );
    let run = json!({"tools": [{"name": "mcp__ua__run_command", "input": {"argv": ["bash", "-c", script]}}]});
    let job = env.job(&json!({"tools": {"run_command": true}}), &json!([run, {"text": "Done."}]));
    let said = |run: &str| {
        env.run(&["job", &job, "--run-id", run]).code(0);
        let folder = env.value(&format!("SELECT workspace_dir FROM runs WHERE run_id = '{run}'"));
        assert_eq!(fs::read_to_string(std::path::Path::new(&folder).join("made.txt")).unwrap(), "y\n");
        let stdout = "raw_json ->> '$.result.structuredContent.stdout'";
        let from = format!("FROM tool_receipts JOIN tool_calls USING (tool_call_id) WHERE run_id = '{run}'");
        env.value(&format!("SELECT replace({stdout}, char(10), ';') {from}"))
    };
    assert_eq!((said("a"), knocks()), ("of the job1024;".to_owned(), 0));
    assert_eq!(fs::read_to_string(env.path("work/data.csv")).unwrap(), "of the job");
    // A project has no say in it.
    env.write("work/ua.toml", "[run_command]\nnetwork = true\n");
    env.run(&["job", &job]).refused(2, &["a project may not set `run_command.network`"]);
    fs::remove_file(env.path("work/ua.toml")).unwrap();
    // The user has.
    env.write("home/.config/ua/config.toml", "[run_command]\nnetwork = true\nopen_files = 100\nread = [\"~/.ssh\"]\n");
    assert_eq!((said("b"), knocks()), ("out;canary-77aaof the job100;".to_owned(), 1));
    env.write("home/.config/ua/config.toml", "[run_command]\nsandbox = \"off\"\n");
    assert!(said("c").contains("SQLite"));
    env.run(&["doctor"]).shows(&["programs of a job have your rights"]);
}
