//! Tool servers that do not start, or do not live as long as their calls.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use serde_json::{Value, json};
use ua_e2e::{TestEnv, until};

use super::env;

fn says(text: &str) -> Value {
    json!([{"text": text}])
}

/// A run whose server did not start goes on once it does.
fn goes_on_with_a_good_configuration(env: &TestEnv, run: &str) {
    assert_eq!(env.value("SELECT status, stop_reason FROM runs"), "stopped tool_server");
    assert_eq!((env.effects(), env.calls()), ([0, 0, 0, 0], Vec::new()));
    let good = env.mcp_config("work/good.json", &json!({"forum": env.forum_entry(&[])}));
    env.run(&["resume", run, "--mcp-config", &good]).code(0).shows(&["succeeded"]);
    assert_eq!(env.comments(), ["{\"text\":\"first\"}"]);
}

fn comment() -> Value {
    json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "first"}}]}, {"text": "Posted."}])
}

/// A server that takes its standard output for a log may cut an answer in two. Who looks for the cause finds its name and what it wrote, once: among
/// what is told of the run, in its log, in the diagnostics, and where somebody looks at the servers.
#[test]
fn a_server_that_logs_where_messages_belong_is_named_once() {
    let env = super::env().with_env("ANTHROPIC_API_KEY", "k");
    let greeting = format!("\u{1b}[31mListening on port 3000\u{1b}[0m {}", "x".repeat(400));
    env.mcp_config("work/.mcp.json", &json!({"forum": env.forum_entry(&["--greet", &greeting])}));
    let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]});
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([post, {"text": "Done."}]));
    let said = "tool server `forum` wrote something to its standard output that is not an MCP message: ";
    let ran = env.run(&["job", &job, "--run-id", "r"]).code(0);
    let ran = ran.says(&[said, "Listening on port 3000", "a log belongs on standard error"]);
    assert_eq!(ran.stderr.matches("Listening").count(), 1, "once: {}", ran.shown());
    let log = std::fs::read_to_string(env.workspace().join("run.log")).unwrap();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(said)).collect();
    assert_eq!(lines.len(), 1, "{log}");
    let is_cut = lines[0].contains("Listening on port 3000") && lines[0].chars().count() < 400;
    assert!(is_cut && !lines[0].contains('\u{1b}'), "{:?}", lines[0]);
    env.run(&["tools", "list"]).code(0).says(&[said, "a log belongs on standard error"]);
    env.run(&["doctor", "--verbose"]).code(0).shows(&["ok   server forum: started", said]);
    let logged = env.start_with(("UA_LOG", "info"), &["job", &job, "--run-id", "again", "--new"]).wait().code(0);
    logged.says(&["writes to its standard output what is no MCP message"]);
}

#[test]
fn a_server_whose_program_is_not_there_stops_the_run_until_the_configuration_is_corrected() {
    let env = env();
    let config = env.mcp_config("work/mcp.json", &json!({"forum": {"command": "false"}}));
    let job = env.job(&json!({"tools": {"builtin": false}}), &comment());
    let output = env.run(&["job", &job, "--run-id", "r", "--mcp-config", &config]).code(75);
    output.shows(&["stopped (tool server)", "`forum`", "`false` ended with exit code 1", "ua resume r"]);
    goes_on_with_a_good_configuration(&env, "r");
}

#[test]
fn a_server_that_ends_at_once_is_quoted() {
    let env = env();
    let config = env.mcp_config("work/mcp.json", &json!({"forum": env.forum_entry(&["--exit", "no licence found"])}));
    let job = env.job(&json!({"tools": {"builtin": false}}), &comment());
    let output = env.run(&["job", &job, "--run-id", "r", "--mcp-config", &config]).code(75);
    output.shows(&["stopped (tool server)", "`forum`", "exit code 3", "no licence found", "ua resume r"]);
    goes_on_with_a_good_configuration(&env, "r");
}

#[test]
fn a_read_whose_server_dies_is_finished_by_a_new_one() {
    let env = env().with_forum();
    let input = json!({"text": "page", "die_without": env.arg("died")});
    let turns = json!([
        {"tools": [{"name": "mcp__forum__get_page", "input": input}]},
        {"text": "Read.", "expect": {"contains": ["page"], "tool_result_ok": true}},
    ]);
    env.run(&["job", &env.job(&json!({"tools": {"builtin": false}}), &turns)]).code(0);
    assert!(env.path("died").exists());
    assert_eq!(env.calls(), ["get_page succeeded"]);
    let attempts = "SELECT attempt, outcome, server_generation IS NOT NULL FROM tool_attempts ORDER BY attempt";
    assert_eq!(env.rows(attempts), ["1 lost 1", "2 replied 1"]);
    assert_eq!(env.value("SELECT count(DISTINCT server_generation) FROM tool_attempts"), "2");
}

#[test]
fn an_effect_whose_server_dies_is_never_repeated_and_asked_about() {
    let env = env().with_forum();
    let input = json!({"text": "once", "die_without": env.arg("died")});
    let turns = json!([{"tools": [{"name": "mcp__forum__post_comment", "input": input}]}, {"text": "Posted."}]);
    let output = env.run(&["job", &env.job(&json!({"tools": {"builtin": false}}), &turns), "--run-id", "r"]).code(75);
    output.shows(&["waiting for you", "post_comment", "ua answer", "ua resume r"]);
    assert_eq!((env.calls(), env.comments().len()), (vec!["post_comment unknown".to_owned()], 1));
    // Asking again without an answer changes nothing.
    env.run(&["resume", "r"]).code(75).shows(&["waiting for you"]);
    assert_eq!((env.calls(), env.comments().len()), (vec!["post_comment unknown".to_owned()], 1));
    assert_eq!(env.value("SELECT count(*) FROM questions"), "1");
}

#[test]
fn a_server_that_is_not_needed_is_not_started() {
    let env = env();
    let servers = json!({"forum": env.forum_entry(&[]), "broken": {"command": "false"}});
    let config = env.mcp_config("work/mcp.json", &servers);
    let job = env.job(&json!({"tools": {"builtin": false, "servers": ["forum"]}}), &says("Nothing to do."));
    env.run(&["job", &job, "--mcp-config", &config]).code(0);
}

#[test]
fn addresses_with_a_token_are_not_among_the_arguments_of_the_built_in_server_and_reach_it() {
    let hook = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/hush-hush", hook.local_addr().unwrap());
    let receiving = std::thread::spawn(move || {
        let (mut stream, _) = hook.accept().unwrap();
        let mut beginning = [0; 16];
        std::io::Read::read_exact(&mut stream, &mut beginning).unwrap();
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        std::io::Write::write_all(&mut stream, answer).unwrap();
        // Until the caller leaves: closing with unread text would reset the connection.
        std::io::Read::read_to_end(&mut stream, &mut Vec::new()).ok();
        String::from_utf8_lossy(&beginning).into_owned()
    });
    let env = env().with_forum().with_env("UA_NOTIFY_WEBHOOK", &address);
    let turns = json!([
        {"tools": [{"name": "mcp__ua__notify", "input": {"message": "Half done."}}]},
        {"tools": [{"name": "mcp__forum__get_page", "input": {"text": "page", "until": env.arg("gate")}}]},
        {"text": "Done."},
    ]);
    let running = env.start(&["job", &env.job(&json!({}), &turns)]);
    let calls = "SELECT status FROM tool_calls";
    until("the second call", || env.try_rows(calls).len() == 2);
    let processes = env.processes();
    assert!(processes.iter().any(|line| line.contains(" toolserver ")), "{processes:?}");
    assert!(!processes.iter().any(|line| line.contains("hush-hush")), "{processes:?}");
    env.write("gate", "");
    running.wait().code(0);
    assert_eq!(receiving.join().unwrap(), "POST /hush-hush ");
}

/// A job that says something about tools, with our own server and one that says on its standard error that it begins.
fn saying_something(word: &str) -> (TestEnv, String) {
    let env = env();
    let forum = env.forum_entry(&[]);
    let words = [&forum["command"], &forum["args"][0], &forum["args"][1]].map(|word| word.as_str().unwrap().to_owned());
    let script = format!("echo begins >&2; exec '{}'", words.join("' '"));
    env.mcp_config("work/.mcp.json", &json!({"forum": {"command": "/bin/sh", "args": ["-c", script]}}));
    let write = json!({"tools": [{"name": "mcp__ua__write_local_file", "input": {"path": "a.md", "content": "x"}}]});
    let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "first"}}]});
    let turns = json!([write, post, {"text": "Done."}]);
    let job = env.job(&json!({"escalation": {"ask_human_before": [word]}}), &turns);
    (env, job)
}

/// What there is among the locks with one of these words in its name.
fn left_in_locks(env: &TestEnv, words: &[&str]) -> Vec<String> {
    let names = std::fs::read_dir(env.root().join("locks")).into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| words.iter().any(|word| name.contains(word))).collect()
}

/// What a job says about tools is judged with servers that its run then has: each is started once, and what it logs is in one place.
#[test]
fn a_server_that_was_started_for_the_check_of_a_job_is_its_runs() {
    for (word, code, starts) in [("email.*", 0, [1, 1]), ("emial.*", 2, [0, 1])] {
        let (env, job) = saying_something(word);
        let output = env.start_with(("UA_LOG", "info"), &["job", &job, "--run-id", "r"]).wait().code(code);
        let started = |server: &str| {
            let is_it = |line: &&str| line.contains("tool server started") && line.contains(server);
            output.stderr.lines().filter(is_it).count()
        };
        assert_eq!([started("server=\"ua\""), started("server=\"forum\"")], starts, "{}", output.shown());
        assert_eq!(left_in_locks(&env, &[".forum.", ".ua.", "listed-"]), Vec::<String>::new());
        if code == 0 {
            assert_eq!(env.comments(), ["{\"text\":\"first\"}"]);
            let workspace = env.value("SELECT workspace_dir FROM runs");
            let log = std::fs::read_to_string(format!("{workspace}/logs/forum.stderr.log")).unwrap();
            assert_eq!(log.matches("begins").count(), 1, "{log}");
        }
    }
}

/// Killed while the servers run that its run was to take over: the next process ends them as any that the run left behind, and nothing is sent twice.
#[test]
fn servers_that_ran_before_their_run_was_taken_are_ended_by_the_next_process() {
    for point in ["before:store.acquire_run", "after:store.acquire_run", "before:tool.invoke:post_comment"] {
        let (env, job) = saying_something("email.*");
        env.run_killed_at(point, &["job", &job, "--run-id", "r"]);
        let resumed = env.run(&["resume", "r"]);
        if point.starts_with("before:tool") {
            resumed.code(75).shows(&["Did `post_comment` happen?"]);
            env.run(&["answer", &env.value("SELECT question_id FROM questions"), "retry"]).code(0);
            env.run(&["resume", "r"]).code(0);
        } else {
            resumed.code(0);
        }
        assert_eq!(env.comments(), ["{\"text\":\"first\"}"], "{point}");
        assert_eq!(left_in_locks(&env, &[".forum.", ".ua."]), Vec::<String>::new(), "{point}");
        env.run(&["db", "check", "--invariants"]).code(0);
    }
}
