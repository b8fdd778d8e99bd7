//! Workers and the queue: processes that are killed, told to stop, and started side by side, on a file and on a server.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod failover;
mod forgotten;
mod partition;
mod providers;
mod schedules;
mod seams;
mod server;
mod stopped;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use ua_e2e::{Live, TestEnv, eventually, until, until_or_tell};

use super::env;
use super::server_database::{cluster, comment_job, cut_all, on_server};

/// The same test on a file and, where PostgreSQL is installed, on a server of our own through its pooler; with the name of the database there.
fn on_both(name: &str, test: impl Fn(&TestEnv, Option<&str>)) {
    test(&env().with_forum(), None);
    if let Some((env, direct)) = on_server(name, true) {
        env.run(&["db", "migrate", "--database-url", &direct]).code(0);
        test(&env, Some(name));
    }
}

/// Whether the lanes are played whole (`UA_FLEET_WHOLE`, at night) or a part of them.
fn is_whole() -> bool {
    std::env::var_os("UA_FLEET_WHOLE").is_some()
}

/// The runs of which a person was ever asked something.
fn asked_about(env: &TestEnv, database: Option<&str>) -> Vec<String> {
    match database {
        None => env.rows("SELECT DISTINCT run_id FROM questions"),
        Some(name) => cluster().unwrap().sql(name, "SELECT DISTINCT run_id FROM ua.questions").unwrap(),
    }
}

/// Has a worker stand still, where it is in no write to a file: one that stands still in the middle of a write keeps others from writing.
fn stand_still(worker: &Live, env: &TestEnv, database: Option<&str>) {
    loop {
        worker.signal(Signal::STOP);
        if database.is_some() {
            return;
        }
        let file = rusqlite::Connection::open(env.root().join("runtime_state.db")).unwrap();
        file.busy_timeout(Duration::from_secs(1)).unwrap();
        if file.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok() {
            return;
        }
        worker.signal(Signal::CONT);
    }
}

/// The lease of a worker ends: at night by itself, otherwise because its row says so.
fn end_the_lease(env: &TestEnv, database: Option<&str>, worker: &str) {
    if is_whole() {
        let lease = || {
            let listed = rows(env, &["workers", "list"]).into_iter().find(|row| row["worker"] == worker);
            listed.map(|row| row["lease_until"].as_str().unwrap().to_owned())
        };
        until("the end of its lease", || lease().is_none_or(|lease| lease < ua_core::system::env().now().to_string()));
        return;
    }
    // A moment ago, as it would: what was silent for days is forgotten.
    let ended_at = ua_core::system::env().now().minus(Duration::from_secs(1));
    let sql = format!("UPDATE workers SET lease_until = '{ended_at}' WHERE worker = '{worker}'");
    match database {
        None => {
            let database = rusqlite::Connection::open(env.root().join("runtime_state.db")).unwrap();
            database.execute(&sql, []).unwrap();
        }
        Some(name) => drop(cluster().unwrap().sql(name, &sql.replace("workers", "ua.workers")).unwrap()),
    }
}

fn rows(env: &TestEnv, words: &[&str]) -> Vec<Value> {
    env.run(&[words, &["--json"]].concat()).code(0).json().as_array().unwrap().clone()
}

/// Where a run stands in the queue.
fn state(env: &TestEnv, run: &str) -> String {
    let entry = rows(env, &["queue", "list", "--limit", "1000"]).into_iter().find(|row| row["run_id"] == run);
    entry.map_or_else(|| "none".to_owned(), |row| row["state"].as_str().unwrap().to_owned())
}

fn status(env: &TestEnv, run: &str) -> String {
    let found = rows(env, &["runs", "list", "--limit", "1000"]).into_iter().find(|row| row["run_id"] == run);
    found.unwrap()["status"].as_str().unwrap().to_owned()
}

/// A job whose only call does not answer before the gate is open.
fn gated(env: &TestEnv, tool: &str) -> String {
    let input = json!({"text": "hello", "until": env.arg("gate")});
    let turns = json!([{"tools": [{"name": format!("mcp__forum__{tool}"), "input": input}]}, {"text": "Done."}]);
    env.job(&json!({"tools": {"builtin": false}}), &turns)
}

fn open_the_gate(env: &TestEnv) {
    std::fs::write(env.path("gate"), "").unwrap();
}

/// A worker that has sent the comment of the run `r` and waits for the gate.
fn at_the_gate(env: &TestEnv) -> Live {
    at_the_gate_with(env, &[])
}

/// The same with more arguments.
fn at_the_gate_with(env: &TestEnv, arguments: &[&str]) -> Live {
    env.run(&["submit", &gated(env, "post_comment"), "--run-id", "r"]).code(0);
    let worker = env.start(&[&["worker", "--name", "first"], arguments].concat());
    until("the effect", || !env.comments().is_empty());
    worker
}

#[test]
fn a_submitted_job_is_run_by_a_worker() {
    on_both("fleet_plain", |env, _| {
        let job = comment_job(env);
        env.run(&["submit", &job, "--run-id", "r", "--job-key", "once"]).code(0).shows(&["r"]);
        assert_eq!((env.comments().len(), state(env, "r")), (0, "ready".to_owned()));
        let again = env.run(&["submit", &job, "--job-key", "once", "--json"]).code(0).json();
        assert_eq!((&again["run_id"], &again["state"]), (&json!("r"), &json!("ready")));
        env.run(&["worker", "--until-empty"]).code(0);
        assert_eq!(
            (env.comments().len(), status(env, "r"), state(env, "r")),
            (1, "succeeded".to_owned(), "none".to_owned())
        );
        let done = env.run(&["submit", &job, "--job-key", "once", "--json"]).code(0).json();
        assert_eq!((&done["status"], &done["queue"]), (&json!("succeeded"), &Value::Null));
        assert_eq!(rows(env, &["workers", "list"]), Vec::<Value>::new());
    });
}

/// A key that another job has, or none by mistake: nothing is queued, and nobody is told that it was.
#[test]
fn a_job_is_not_queued_under_the_key_of_another_one_and_is_told_so() {
    on_both("fleet_keys", |env, _| {
        let job = comment_job(env);
        let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "other"}}]});
        let other = env.named_job("other", &json!({"tools": {"builtin": false}}), &json!([post, {"text": "Posted."}]));
        env.run(&["submit", &job, "--job-key", ""]).code(2).says(&["--job-key"]);
        for key in [" ", "\t"] {
            env.run(&["submit", &job, "--job-key", key]).refused(2, &["--job-key", "`job_key` is empty"]);
        }
        env.run(&["submit", &job, "--database-url", ""]).code(2).says(&["--database-url"]);
        env.run(&["submit", &job, "--job-key", "a\u{7}"]).refused(2, &["control character"]);
        assert_eq!(rows(env, &["queue", "list"]), Vec::<Value>::new());
        env.run(&["submit", &job, "--run-id", "r", "--job-key", "k"]).code(0);
        let refused = ["\"k\"", "run r", "made of another job", "nothing was queued"];
        env.run(&["submit", &other, "--job-key", "k"]).refused(2, &refused);
        env.run(&["worker", "--until-empty"]).code(0);
        env.run(&["submit", &other, "--job-key", "k"]).refused(2, &refused);
        // Its own job is done under it.
        env.run(&["submit", &job, "--job-key", "k"]).code(0);
        assert_eq!(env.comments().len(), 1);
    });
}

/// What ended without success is not done: whoever submits it again learns that nothing is queued by the exit code, however it was named.
#[test]
fn a_run_that_ended_without_success_is_not_said_to_be_queued() {
    on_both("fleet_ended", |env, _| {
        let job = comment_job(env);
        env.run(&["submit", &job, "--run-id", "r", "--job-key", "k"]).code(0);
        env.run(&["runs", "cancel", "r"]).code(0);
        let words = ["run r", "already ended (cancelled)", "nothing was queued", "ua fork r"];
        for again in [
            &["submit", &job, "--job-key", "k"][..],
            &["submit", &job, "--job-key", "k", "--again"],
            &["submit", &job, "--job-key", "k", "--run-id", "r"],
            &["submit", "--run", "r"],
        ] {
            env.run(again).refused(2, &words);
        }
        assert_eq!((state(env, "r"), env.comments().len()), ("none".to_owned(), 0));
    });
}

/// Killed between an effect and its receipt. Another worker has the run within a look, asks, and gives its slot away; the answer brings the run back.
#[test]
fn a_run_for_later_is_shown_and_left_for_later_with_a_word() {
    let env = env().with_forum();
    let job = comment_job(&env);
    env.run(&["submit", &job, "--run-id", "r", "--delay", "2h"]).code(0);
    assert_eq!(state(&env, "r"), "later");
    env.run(&["queue", "list"]).code(0).shows(&["later", "from "]);
    // Nothing is due: there is nothing to wait for.
    env.run(&["worker", "--until-empty"]).code(0).says(&["1 run left in the queue for later; the first is due "]);
    assert_eq!(state(&env, "r"), "later");
    env.run(&["queue", "remove", "r"]).code(0);
    env.run(&["runs", "list"]).code(0).shows(&["not begun"]);
    env.run(&["status"]).code(0).shows(&["not begun", "ua resume r"]);
}

#[test]
fn an_answer_says_what_is_next() {
    let env = env().with_forum();
    let posts = ["one", "two"].map(|text| json!({"name": "mcp__forum__post_comment", "input": {"text": text}}));
    let fields = json!({"tools": {"builtin": false}, "escalation": {"ask_human_before": ["post_comment"]}});
    let job = env.job(&fields, &json!([{"tools": posts}, {"text": "Done."}]));
    env.run(&["submit", &job, "--run-id", "r"]).code(0);
    let told = env.run(&["worker", "--until-empty", "--json"]).code(0);
    let last: Value = serde_json::from_str(told.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["event"], &last["run_id"], &last["status"]),
        (&json!("parked"), &json!("r"), &json!("waiting_for_human"))
    );
    assert_eq!(last["text"], "run r waits for you: `ua questions`");
    let questions = env.rows("SELECT question_id FROM questions ORDER BY question_id");
    assert_eq!(questions.len(), 2);
    let first = env.run(&["answer", &questions[0], "approve"]).code(0);
    first.says(&["1 question is still open: ", &questions[1]]);
    env.run(&["answer", &questions[1], "approve"])
        .code(0)
        .says(&["run r is in the queue, and the next free worker takes it"]);
    // Nor is who answers once more sent to resume it beside the worker.
    let again = env.run(&["answer", &questions[1], "approve"]).code(2);
    let again =
        again.says(&["has already been answered", "run r is in the queue, and a worker has it act on the answer"]);
    assert!(!again.stderr.contains("ua resume"), "{}", again.stderr);
    env.run(&["worker", "--until-empty"]).code(0);
    assert_eq!((status(&env, "r"), env.comments().len()), ("succeeded".to_owned(), 2));
}

#[test]
fn a_killed_workers_run_is_taken_over_and_asks() {
    on_both("fleet_killed", |env, _| {
        env.run(&["submit", &comment_job(env), "--run-id", "r"]).code(0);
        env.run_killed_at("after:tool.invoke:post_comment", &["worker", "--name", "first"]);
        // Its worker has ended, as anybody sees.
        assert_eq!(state(env, "r"), "ready");
        let (job, doubt) = (comment_job(env), "nobody knows what happened to a call that it sent");
        let left = "run r of the same job was left by a process that ended, and is in the queue `default`";
        env.run(&["job", &job]).refused(75, &[left, doubt, "`ua resume r"]);
        env.run(&["submit", &job]).refused(75, &[left, doubt, "the next worker"]);
        env.run(&["queue", "remove", "r"]).refused(2, &["the worker that was running r has ended", "`ua resume r"]);
        env.run(&["worker", "--until-empty"]).code(0);
        assert_eq!((state(env, "r"), status(env, "r")), ("parked".to_owned(), "waiting_for_human".to_owned()));
        let question = rows(env, &["questions"])[0]["question_id"].as_str().unwrap().to_owned();
        env.run(&["answer", &question, "happened"]).code(0);
        env.run(&["worker", "--until-empty"]).code(0);
        assert_eq!(
            (env.comments().len(), status(env, "r"), state(env, "r")),
            (1, "succeeded".to_owned(), "none".to_owned())
        );
    });
}

#[test]
fn a_worker_that_is_told_to_stop_waits_for_its_effect_and_gives_its_run_back() {
    on_both("fleet_term", |env, _| {
        let worker = at_the_gate(env);
        worker.signal(Signal::TERM);
        until("the worker to take notice", || worker.stderr().contains("no more runs are taken"));
        open_the_gate(env);
        let told = worker.wait().code(0);
        assert_eq!(told.stderr.matches("no more runs").count(), 1, "said once: {}", told.stderr);
        assert_eq!((state(env, "r"), status(env, "r")), ("ready".to_owned(), "stopped".to_owned()));
        env.run(&["worker", "--until-empty"]).code(0);
        assert_eq!((env.comments().len(), status(env, "r")), (1, "succeeded".to_owned()));
    });
}

/// What was sent and has not come back when its time to stop is over is in doubt, and is told with its run.
#[test]
fn a_worker_whose_patience_ends_names_the_calls_that_are_in_doubt() {
    let env = env().with_forum();
    let worker = at_the_gate_with(&env, &["--drain", "1s"]);
    worker.signal(Signal::TERM);
    worker.wait().code(0).says(&["run r: stopped, and nobody knows whether mcp__forum__post_comment happened"]);
}

/// Twice, as by a person at its terminal: it says of which runs it is waited for what, and then which calls are in doubt, as `ua job` does.
#[test]
fn a_worker_that_is_told_to_stop_twice_names_its_runs_and_calls() {
    let env = env().with_forum();
    let worker = at_the_gate(&env);
    worker.signal(Signal::INT);
    let [waits, again] = [
        "Waiting for 1 run to stop:",
        "A second signal (Ctrl-C, SIGTERM) ends this worker at once and leaves unknown what these",
    ];
    until("the worker to say so", || worker.stderr().contains(waits) && worker.stderr().contains(again));
    let said = worker.stderr();
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.iter().any(|line| line.starts_with("  run r: up to 25 s for post_comment (sent ")), "{said}");
    worker.signal(Signal::INT);
    worker.wait().code(130).says(&[
        "ended at once; whether these calls happened is unknown:\n  run r: post_comment (sent ",
        "`ua queue list` shows the runs",
    ]);
    // It is what any other process that a person ended so is.
    env.run(&["runs", "list", "--status", "interrupted"]).code(0).shows(&["r", "interrupted"]);
    env.run(&["worker", "--until-empty"]).code(0);
    env.run(&["runs", "show", "r"]).code(0).shows(&["process 1 was ended by a second Ctrl-C, last seen at "]);
}

/// The run of a living worker is nobody else's, however often others look.
#[test]
fn workers_side_by_side_do_each_run_once() {
    on_both("fleet_many", |env, _| {
        let job = comment_job(env);
        for number in 0..6 {
            env.run(&["submit", &job, "--run-id", &format!("r{number}"), "--concurrency-key", "forum:2"]).code(0);
        }
        let workers =
            ["a", "b"].map(|name| env.start(&["worker", "--until-empty", "--concurrency", "2", "--name", name]));
        for worker in workers {
            worker.wait().code(0);
        }
        assert_eq!(env.comments().len(), 6);
        assert!((0..6).all(|number| status(env, &format!("r{number}")) == "succeeded"));
    });
}

#[test]
fn a_worker_leaves_a_run_alone_that_does_not_fit_and_says_why() {
    on_both("fleet_unfit", |env, _| {
        env.run(&["submit", &comment_job(env), "--run-id", "r"]).code(0);
        std::fs::rename(env.path("work/.mcp.json"), env.path("away.json")).unwrap();
        let worker = env.start(&["worker", "--name", "first"]);
        until("the reason", || rows(env, &["queue", "list", "--limit", "1000"])[0]["why"].is_string());
        assert_eq!((env.comments().len(), status(env, "r")), (0, "queued".to_owned()));
        std::fs::rename(env.path("away.json"), env.path("work/.mcp.json")).unwrap();
        until("the run", || status(env, "r") == "succeeded");
        worker.signal(Signal::TERM);
        worker.wait().code(0);
        assert_eq!(env.comments().len(), 1);
    });
}

/// A tool server that starts where `installed` is there, as the one of a machine that lacks a program does not.
fn needing(env: &TestEnv, installed: &str) -> String {
    let forum = env.forum_entry(&[]);
    let quoted = |word: &Value| format!("'{}'", word.as_str().unwrap());
    let words: Vec<String> = forum["args"].as_array().unwrap().iter().map(quoted).collect();
    // In one word: what stands by itself and is a file is taken for one of the program.
    let program = format!(
        "[ -e '{installed}' ] || {{ echo no licence found >&2; exit 3; }}; exec {} {}",
        quoted(&forum["command"]),
        words.join(" ")
    );
    let mut entry = forum.clone();
    (entry["command"], entry["args"]) = (json!("sh"), json!(["-c", program]));
    env.mcp_config("needing.json", &json!({"forum": entry}))
}

/// What a machine lacks is its own trouble: the run stays in the queue with the reason, and goes on by itself once it is there.
#[test]
fn a_run_whose_tool_server_does_not_start_waits_in_the_queue_until_it_does() {
    on_both("fleet_needing", |env, _| {
        let installed = env.arg("installed");
        env.run(&["submit", &comment_job(env), "--run-id", "r", "--mcp-config", &needing(env, &installed)]).code(0);
        let left = env.run(&["worker", "--until-empty"]).code(75);
        left.says(&["run r cannot begin here: tool server `forum` did not start", "no licence found"]);
        let listed = rows(env, &["queue", "list"]);
        assert!(listed[0]["why"].as_str().unwrap().contains("did not start"), "{listed:?}");
        assert_eq!((state(env, "r"), status(env, "r")), ("ready".to_owned(), "stopped".to_owned()));
        std::fs::write(&installed, "").unwrap();
        env.run(&["worker", "--until-empty"]).code(0);
        assert_eq!((env.comments().len(), status(env, "r")), (1, "succeeded".to_owned()));
    });
}

/// A tool server is deployed anew while runs wait for a worker: each says so, with the command that lets it go on, which a person gives once
/// they looked.
#[test]
fn a_run_that_waits_goes_on_with_a_server_that_was_deployed_meanwhile_by_a_persons_word() {
    on_both("fleet_deployed", |env, _| {
        let deploy = |version: &str| {
            let mut entry = env.forum_entry(&[]);
            entry["env"] = json!({"VERSION": version});
            env.mcp_config("servers.json", &json!({"forum": entry}))
        };
        let servers = deploy("1");
        env.run(&["submit", &comment_job(env), "--run-id", "r", "--mcp-config", &servers]).code(0);
        deploy("2");
        let command = "`ua queue move r --accept servers`";
        env.run(&["worker", "--until-empty"]).code(75).says(&["changed since the run was stored", command]);
        let listed = rows(env, &["queue", "list"]);
        assert!(listed[0]["why"].as_str().unwrap().starts_with(command) && listed[0]["state"] == "ready", "{listed:?}");
        env.run(&["queue", "move", "r", "--accept", "tools"]).refused(2, &["`ua resume r --accept tools`"]);
        env.run(&["queue", "move", "r", "--accept", "server"]).refused(2, &["did you mean `servers`?"]);
        env.run(&["worker", "--until-empty"]).code(75);
        env.run(&["queue", "move", "r", "--accept", "servers"]).code(0).says(&["accepted for r: forum ("]);
        env.run(&["queue", "move", "r", "--accept", "servers"]).code(0).says(&["there is nothing to accept"]);
        env.run(&["worker", "--until-empty"]).code(0);
        assert_eq!((env.comments().len(), status(env, "r")), (1, "succeeded".to_owned()));
        env.run(&["queue", "move", "r", "--accept", "servers"]).refused(2, &["is not in the queue"]);
        // It was accepted as it was then.
        env.run(&["submit", &comment_job(env), "--run-id", "s", "--new", "--mcp-config", &servers]).code(0);
        for version in ["3", "4"] {
            deploy(version);
            env.run(&["worker", "--until-empty"]).code(75).says(&["`ua queue move s --accept servers`"]);
            env.run(&["queue", "move", "s", "--accept", "servers"]).code(0);
        }
        env.run(&["worker", "--until-empty"]).code(0);
        assert_eq!(env.comments().len(), 2);
    });
}

/// Who only submits has no key of a model; the worker does, and is the one that looks for it.
#[test]
fn a_job_is_submitted_and_scheduled_without_the_key_that_its_worker_needs() {
    let env = env();
    for provider in ["anthropic", "openai"] {
        let fields = json!({"model": {"provider": provider, "name": "m"}, "tools": {"builtin": false}});
        let job = env.named_job(provider, &fields, &json!([]));
        let submitted = env.run(&["submit", &job, "--run-id", provider]).code(0);
        submitted.says(&["the worker that takes the run needs what is not here", provider, "queued in default"]);
        env.run(&["schedule", "add", "daily", &job, "--cron", "@daily"]).code(0).says(&["needs what is not here"]);
        env.run(&["worker", "--until-empty"]).code(75).says(&["no API key", provider]);
    }
    // What is the job's own fault is found before it is queued.
    let seeded = json!({"model": {"provider": "anthropic", "name": "m", "seed": 7}, "tools": {"builtin": false}});
    let job = env.named_job("seeded", &seeded, &json!([]));
    env.run(&["submit", &job]).refused(2, &["takes no seed"]);
}

/// A queue is made by naming it, so a misspelt one is told by the one whose name is near, also where a schedule names it.
#[test]
fn a_schedule_with_a_misspelt_queue_is_told_the_name_that_was_meant() {
    let env = env().with_forum();
    let job = comment_job(&env);
    let add = ["schedule", "add", "daily", &job, "--cron", "@daily"];
    let meant = ["the queue `defualt`", "did you mean `default`?"];
    env.run(&[&add[..], &["--queue", "defualt"]].concat()).code(0).says(&meant);
    env.run(&["schedule", "run", "daily"]).code(0).says(&meant);
    let fine = env.run(&[&add[..], &["--queue", "night"]].concat()).code(0);
    assert!(!fine.stderr.contains("did you mean"), "{}", fine.stderr);
}

/// A run that is in the queue stays as it is, and whoever asks for something else is told the way to it; so is who moves it to a misspelt queue.
#[test]
fn what_is_asked_of_a_queued_run_and_not_done_is_told() {
    let env = env().with_forum();
    let again = ["submit", "--run", "r"];
    env.run(&["submit", &comment_job(&env), "--run-id", "r", "--priority", "2"]).code(0);
    let same = env.run(&again).code(0).says(&["already in the queue default"]);
    assert!(!same.stderr.contains("warning"), "{}", same.stderr);
    let move_it = "`ua queue move r --queue night --priority 3` does";
    env.run(&[&again[..], &["--queue", "night", "--priority", "3"]].concat())
        .code(0)
        .says(&["--queue, --priority", move_it]);
    env.run(&[&again[..], &["--delay", "1h"]].concat()).code(0).says(&["--delay", "`ua queue remove r`"]);
    env.run(&["queue", "move", "r", "--queue", "defualt"]).code(0).says(&["did you mean `default`?"]);
    env.run(&["queue", "move", "r", "--queue", "default"]).code(0);
    let listed = rows(&env, &["queue", "list"]);
    assert_eq!((&listed[0]["queue"], &listed[0]["priority"]), (&json!("default"), &json!(2)));
    let worker = env.run(&["worker", "--until-empty"]).code(0);
    assert!(
        worker.stderr.contains("takes runs from the database ") && worker.stderr.contains("runtime_state.db"),
        "{}",
        worker.stderr
    );
}

fn asked(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Where a worker says how it is.
fn address_of(worker: &Live) -> String {
    eventually("its address", || {
        let text = worker.stderr();
        let line = text.lines().find_map(|line| line.split("http://").nth(1))?;
        Some(line.trim().to_owned())
    })
}

#[test]
fn a_worker_says_how_it_is() {
    let env = env().with_forum();
    env.run(&["submit", &gated(&env, "post_comment"), "--run-id", "r"]).code(0);
    let worker = env.start(&["worker", "--listen", "127.0.0.1:0", "--name", "first"]);
    let address = address_of(&worker);
    until("the effect", || !env.comments().is_empty());
    assert!(asked(&address, "/healthz").contains("200 OK"));
    assert!(asked(&address, "/readyz").contains("200 OK"));
    assert!(asked(&address, "/metrics").contains("ua_worker_claims_total 1"));
    let listed = rows(&env, &["workers", "list"]);
    assert_eq!(
        (&listed[0]["worker"], &listed[0]["claimed"], &listed[0]["status"]),
        (&json!("first"), &json!(1), &json!("alive"))
    );
    env.run(&["worker", "--name", "first"]).refused(2, &["a worker named first"]);
    env.run(&["queue", "remove", "r"]).refused(2, &["a worker is running r", "ua runs cancel r"]);
    open_the_gate(&env);
    until("the run", || status(&env, "r") == "succeeded");
    worker.signal(Signal::TERM);
    worker.wait().code(0);
}

/// Whatever asks whether it is ready sees that it takes nothing more, also while its only slot is taken.
#[test]
fn a_worker_that_is_drained_by_a_command_is_not_ready() {
    let env = env().with_forum();
    env.run(&["submit", &gated(&env, "post_comment"), "--run-id", "r"]).code(0);
    let worker = env.start(&["worker", "--listen", "127.0.0.1:0", "--name", "first", "--concurrency", "1"]);
    let address = address_of(&worker);
    until("the effect", || !env.comments().is_empty());
    assert!(asked(&address, "/readyz").contains("200 OK"));
    env.run(&["workers", "drain", "first"]).code(0);
    until("it is not ready", || asked(&address, "/readyz").contains("draining"));
    assert!(asked(&address, "/readyz").contains("503") && asked(&address, "/healthz").contains("200 OK"));
    open_the_gate(&env);
    until("the run", || status(&env, "r") == "succeeded");
    assert!(asked(&address, "/readyz").contains("503"), "it takes nothing more once its slot is free, too");
    worker.signal(Signal::TERM);
    worker.wait().code(0);
}

/// Two workers see that a schedule is due; its instant has one run.
#[test]
fn an_instant_of_a_schedule_has_one_run() {
    let env = env().with_forum();
    env.run(&["schedule", "add", "often", &comment_job(&env), "--cron", "61 * * * *"]).refused(2, &["use 0 to 59"]);
    env.run(&["schedule", "add", "often", &comment_job(&env), "--cron", "0 3 * * *"])
        .code(0)
        .shows(&["due next: "])
        .says(&["no worker is running: `ua worker"]);
    // Nobody waits for three in the morning: one instant has passed.
    let database = rusqlite::Connection::open(env.root().join("runtime_state.db")).unwrap();
    database.execute("UPDATE schedules SET next_at = '2026-11-20T03:00:00.000Z'", []).unwrap();
    for command in [&["schedule", "list"][..], &["status"]] {
        env.run(command).code(0).shows(&["the schedule often is overdue by", "no worker is running; `ua worker"]);
    }
    drop(database);
    let workers = ["a", "b"].map(|name| env.start(&["worker", "--name", name]));
    until("the instant", || env.comments().len() == 1 && state_of_all(&env).is_empty());
    until("both", || rows(&env, &["workers", "list"]).len() == 2);
    let again = env.run(&["schedule", "run", "often"]).code(0).shown();
    until("the run that was asked for", || env.comments().len() == 2 && state_of_all(&env).is_empty());
    env.run(&["schedule", "pause", "often", "--by", "Ada"]).code(0).shows(&["is paused"]);
    env.run(&["schedule", "list"]).code(0).shows(&["often was paused by Ada"]);
    for worker in workers {
        worker.signal(Signal::TERM);
        worker.wait().code(0);
    }
    assert_eq!(rows(&env, &["runs", "list"]).len(), 2, "{again}");
    env.run(&["schedule", "remove", "often"]).code(0);
    assert!(rows(&env, &["schedule", "list"]).is_empty());
}

/// What passed while no worker was there is submitted by one that only stays until its queue is empty, all of it.
#[test]
fn a_worker_that_leaves_an_empty_queue_has_caught_up_first() {
    let env = env().with_forum();
    let job = comment_job(&env);
    env.run(&["schedule", "add", "often", &job, "--cron", "0 3 * * *", "--catch-up", "all"]).code(0);
    let database = rusqlite::Connection::open(env.root().join("runtime_state.db")).unwrap();
    let missed = "strftime('%Y-%m-%dT03:00:00.000Z', 'now', '-25 days')";
    database.execute(&format!("UPDATE schedules SET next_at = {missed}"), []).unwrap();
    drop(database);
    env.run(&["worker", "--until-empty"]).code(0);
    // 25 or 26, as it is before or after three o'clock: more than are submitted at one look.
    let all = env.comments().len();
    assert!((25..=26).contains(&all), "{all}");
    let keys: std::collections::BTreeSet<String> = env.rows("SELECT job_key FROM runs").into_iter().collect();
    assert_eq!((keys.len(), state_of_all(&env).len()), (all, 0));
}

fn state_of_all(env: &TestEnv) -> Vec<Value> {
    rows(env, &["queue", "list", "--limit", "1000"])
}

/// The server ends every connection, again and again. A run whose write was not answered stops, sends nothing more, and is tried again.
#[test]
fn a_server_that_goes_away_again_and_again_costs_time_and_no_effect() {
    let Some((env, direct)) = on_server("fleet_cuts", false) else { return };
    env.run(&["db", "migrate", "--database-url", &direct]).code(0);
    let jobs = 8;
    for number in 0..jobs {
        let input = json!({"text": format!("of {number}.")});
        let turns = json!([{"tools": [{"name": "mcp__forum__post_comment", "input": input}]}, {"text": "Posted."}]);
        let job = env.named_job(&format!("job{number}"), &json!({"tools": {"builtin": false}}), &turns);
        env.run(&["submit", &job, "--run-id", &format!("r{number}")]).code(0);
    }
    let workers = ["a", "b"].map(|name| env.start(&["worker", "--concurrency", "2", "--name", name]));
    let words = |text: &str| env.comments().iter().filter(|line| line.contains(text)).count();
    for _ in 0..jobs / 2 {
        let so_far = env.comments().len();
        // A cut between what was written before a send and the send leaves a question, and nothing else may be left that makes progress.
        let has_moved = || env.comments().len() > so_far || answer_all(&env, &words) || is_all_done(&env);
        until_or_tell("progress", has_moved, || how_it_stands(&env, &workers));
        cut_all("fleet_cuts");
    }
    until_all_is_done(&env, &workers, &words);
    for worker in workers {
        worker.signal(Signal::TERM);
        worker.wait().code(0);
    }
    for number in 0..jobs {
        assert_eq!((words(&format!("of {number}.")), status(&env, &format!("r{number}"))), (1, "succeeded".to_owned()));
    }
}

/// Three workers, one of which is killed again and again: the receiving end counts each effect once. What a kill left in doubt is asked about,
/// and answered with what the receiving end saw.
///
/// `UA_FLEET_KILLS` says how often (`.ci/nightly`: more).
#[test]
fn workers_that_are_killed_again_and_again_have_each_effect_once() {
    #[expect(clippy::disallowed_methods, reason = "a test has no settings")]
    let kills: usize = std::env::var("UA_FLEET_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let jobs = kills * 3;
    on_both("fleet_kills", |env, _| {
        for number in 0..jobs {
            let tool = |name: &str, text: String| json!({"tools": [{"name": format!("mcp__forum__{name}"), "input": {"text": text}}]});
            let first = tool("post_comment", format!("first of {number}."));
            let turns = json!([first, tool("post_comment", format!("second of {number}.")), {"text": "Posted."}]);
            let job = env.named_job(&format!("job{number}"), &json!({"tools": {"builtin": false}}), &turns);
            env.run(&["submit", &job, "--run-id", &format!("r{number}")]).code(0);
        }
        let start = |name: usize| env.start(&["worker", "--concurrency", "2", "--name", &format!("w{name}")]);
        let mut workers: Vec<Live> = (0..3).map(start).collect();
        let words = |text: &str| env.comments().iter().filter(|line| line.contains(text)).count();
        for kill in 0..kills {
            let so_far = env.comments().len();
            until("progress", || env.comments().len() > so_far || answer_all(env, &words) || is_all_done(env));
            let worker = workers.remove(0);
            worker.signal(Signal::KILL);
            worker.wait().killed();
            let killed = format!("w{kill}");
            let listed = rows(env, &["workers", "list"]);
            let its = listed.iter().find(|row| row["worker"] == killed.as_str());
            // Another one may have looked after its runs already.
            assert!(its.is_none_or(|row| row["status"] == "ended"), "{listed:?}");
            // A server may carry out what it had sent before it was killed.
            until("what it had is free", || {
                let queue = rows(env, &["queue", "list", "--limit", "1000"]);
                queue.iter().all(|entry| entry["worker"] != killed.as_str())
            });
            workers.push(start(3 + kill));
        }
        until_all_is_done(env, &workers, &words);
        for worker in workers {
            worker.signal(Signal::TERM);
            worker.wait().code(0);
        }
        for number in 0..jobs {
            let counted = (words(&format!("first of {number}.")), words(&format!("second of {number}.")));
            assert_eq!((counted, status(env, &format!("r{number}")).as_str()), ((1, 1), "succeeded"), "run r{number}");
        }
    });
}

/// Waits until every run is done; whatever is asked meanwhile is answered.
fn until_all_is_done(env: &TestEnv, workers: &[Live], counted: &dyn Fn(&str) -> usize) {
    let is_done = || {
        answer_all(env, counted);
        is_all_done(env)
    };
    until_or_tell("the end", is_done, || how_it_stands(env, workers));
}

fn how_it_stands(env: &TestEnv, workers: &[Live]) -> String {
    let queue = rows(env, &["queue", "list", "--limit", "1000"]);
    let said: Vec<String> = workers.iter().map(Live::stderr).collect();
    format!("queue: {queue:#?}\nworkers: {:#?}\n{}", rows(env, &["workers", "list"]), said.join("\n---\n"))
}

fn is_all_done(env: &TestEnv) -> bool {
    rows(env, &["queue", "list", "--limit", "1000"]).is_empty()
}

/// Does what a person does: answers what is asked with what the receiving end counted, and has parked runs tried again; whether anything was asked.
fn answer_all(env: &TestEnv, counted: &dyn Fn(&str) -> usize) -> bool {
    // What three dead workers in a row had is not tried again before a person says so.
    for entry in rows(env, &["queue", "list", "--limit", "1000"]).iter().filter(|entry| entry["state"] == "parked") {
        if entry["why"].as_str().is_some_and(|why| why.contains("workers in a row")) {
            env.run(&["queue", "move", entry["run_id"].as_str().unwrap()]).code(0);
        }
    }
    let questions = rows(env, &["questions"]);
    let open = questions.iter().filter(|question| question["status"] == "open");
    let mut has_answered = false;
    for question in open {
        let call = rows_of_call(env, question["call_id"].as_str().unwrap());
        let happened = counted(call["arguments"]["text"].as_str().unwrap_or_else(|| panic!("{call}"))) > 0;
        let word = if happened { "happened" } else { "execute" };
        // Another question of the run may have been closed meanwhile.
        env.run(&["answer", question["question_id"].as_str().unwrap(), word]).code(0);
        has_answered = true;
    }
    has_answered
}

fn rows_of_call(env: &TestEnv, call: &str) -> Value {
    env.run(&["calls", "show", call, "--json"]).code(0).json()
}

/// Whoever looks at a run that was submitted sees that it waits, in which queue and at which place, and for what; also when nothing will take it.
#[test]
fn a_run_in_the_queue_is_shown_with_what_it_waits_for() {
    let env = env();
    let job = |name: &str| env.named_job(name, &json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    for name in ["a", "b"] {
        env.run(&["submit", &job(name), "--run-id", name]).code(0);
    }
    env.run(&["submit", &job("c"), "--run-id", "c", "--run-after", "2999-01-01T00:00:00Z"]).code(0);
    let shown = |run: &str| env.run(&["runs", "show", run]).code(0);
    shown("b")
        .shows(&["Queue          default (ready), place 2 of 2; waits for a worker, and none is running: `ua worker`"]);
    shown("c").shows(&["Queue          default (later); waits for its time, "]);
    let queue = env.run(&["runs", "show", "a", "--json"]).code(0).json()["queue"].clone();
    assert_eq!((&queue["queue"], &queue["place"], &queue["of"]), (&json!("default"), &json!(1), &json!(2)), "{queue}");
    env.run(&["worker", "--until-empty"]).code(0);
    assert!(!shown("a").stdout.contains("\nQueue "), "it is in none any more");
    assert!(env.run(&["runs", "show", "a", "--json"]).code(0).json()["queue"].is_null());
}
