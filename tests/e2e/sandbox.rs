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
    let is_offered = finding["level"] == "ok";
    if !is_offered {
        ua_testkit::skipped("this kernel does not offer the walls of programs");
    }
    is_offered
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

/// A process and all below it.
fn with_descendants(pid: i32) -> Vec<i32> {
    let parent_of = |pid: i32| -> Option<i32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let all: Vec<i32> =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok()).collect();
    let mut found = vec![pid];
    loop {
        let below = |pid: &i32| !found.contains(pid) && parent_of(*pid).is_some_and(|parent| found.contains(&parent));
        let more: Vec<i32> = all.iter().copied().filter(below).collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

#[test]
fn a_temporary_folder_whose_owners_were_all_killed_is_cleared_by_the_next_command() {
    let env = env();
    let folder = env.path("tmp");
    fs::create_dir(&folder).unwrap();
    let env = env.with_env("TMPDIR", folder.to_str().unwrap());
    let script = "mkdir $TMPDIR/d; echo x > $TMPDIR/d/x; mv $TMPDIR/d $TMPDIR/ready; exec sleep 1000";
    let run = json!({"tools": [{"name": "mcp__ua__run_command", "input": {"argv": ["bash", "-c", script], "timeout_seconds": 3000}}]});
    let job = env.job(&json!({"tools": {"run_command": true}}), &json!([run, {"text": "Done."}]));
    let folders = || -> Vec<std::path::PathBuf> {
        let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("ua-command-")).collect()
    };
    let live = env.start(&["job", &job, "--run-id", "r"]);
    let ready = || folders().into_iter().find(|path| path.join("tmp/ready/x").exists());
    let used = ua_e2e::eventually("the program's file in its temporary folder", ready);
    // One that is in use is nobody else's to clear.
    env.run(&["runs", "list"]).code(0);
    assert!(used.join("tmp/ready/x").exists());
    // Everybody at once: nobody is left who could clear it.
    let all = with_descendants(i32::try_from(live.id()).unwrap());
    assert!(all.len() > 3, "{all:?}");
    for signal in [rustix::process::Signal::STOP, rustix::process::Signal::KILL] {
        for pid in &all {
            // What is inside ends with the first of them.
            rustix::process::kill_process(rustix::process::Pid::from_raw(*pid).unwrap(), signal).ok();
        }
    }
    live.wait().killed();
    assert!(used.exists(), "somebody cleared it");
    ua_e2e::eventually("the end of all of them", || {
        env.run(&["runs", "list"]).code(0);
        folders().is_empty().then_some(())
    });
}
