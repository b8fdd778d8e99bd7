//! Workers that stand still for longer than their lease, and machines that are not there any more.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;

use rustix::process::Signal;
use serde_json::json;
use ua_e2e::{TestEnv, until, until_or_tell};

use super::{
    address_of, asked, asked_about, at_the_gate, end_the_lease, gated, needing, on_both, open_the_gate, rows,
    stand_still, state, status,
};
use crate::server_database::{comment_job, on_server};

fn why(env: &TestEnv, run: &str) -> String {
    let entry = rows(env, &["queue", "list"]).into_iter().find(|row| row["run_id"] == run);
    entry.map_or_else(String::new, |row| row["why"].as_str().unwrap_or_default().to_owned())
}

/// Stopped while its tool is at work, past the end of its lease. It has the lock of its run and its process is there, so nobody drives the run
/// beside it; and it goes on where it stood still.
#[test]
fn a_worker_that_stands_still_past_its_lease_keeps_its_run_and_sends_nothing_twice() {
    on_both("fleet_stopped", |env, database| {
        let first = at_the_gate(env);
        stand_still(&first, env, database);
        end_the_lease(env, database, "first");
        let second = env.start(&["worker", "--name", "second"]);
        until_or_tell(
            "the second worker has looked",
            || why(env, "r").contains("already driven"),
            || format!("{:?}\n{}", why(env, "r"), second.stderr()),
        );
        assert!(second.stderr().contains("1 run of dead workers"), "{}", second.stderr());
        assert_eq!((env.comments().len(), status(env, "r")), (1, "running".to_owned()));
        first.signal(Signal::CONT);
        open_the_gate(env);
        until("the run", || status(env, "r") == "succeeded");
        until("the queue", || state(env, "r") == "none");
        assert_eq!((env.comments().len(), asked_about(env, database)), (1, Vec::new()));
        // It was taken for dead, and is there again.
        until("both", || rows(env, &["workers", "list"]).len() == 2);
        for worker in [first, second] {
            worker.signal(Signal::TERM);
            worker.wait().code(0);
        }
    });
}

/// Told to take no more runs while it stands still, past the end of its lease: it finds it so when it is back, although others took it for dead.
#[test]
fn a_worker_that_was_drained_while_it_stood_still_takes_nothing_when_it_is_back() {
    on_both("fleet_drained", |env, database| {
        let first = env.start(&["worker", "--name", "first", "--listen", "127.0.0.1:0"]);
        let address = address_of(&first);
        until("it is ready", || asked(&address, "/readyz").contains("200 OK"));
        stand_still(&first, env, database);
        env.run(&["workers", "drain", "first"]).code(0);
        end_the_lease(env, database, "first");
        // Whoever looks for runs looks after those of dead workers first.
        env.run(&["submit", &comment_job(env), "--run-id", "other"]).code(0);
        env.run(&["worker", "--name", "second", "--until-empty"]).code(0);
        assert_eq!((status(env, "other"), env.comments().len()), ("succeeded".to_owned(), 1));
        env.run(&["submit", &comment_job(env), "--new", "--run-id", "r"]).code(0);
        first.signal(Signal::CONT);
        until("it says so", || asked(&address, "/readyz").contains("draining"));
        let lease = || {
            let listed = rows(env, &["workers", "list"]).into_iter().find(|row| row["worker"] == "first");
            listed.map(|row| row["lease_until"].as_str().unwrap().to_owned())
        };
        let before = lease();
        until("a renewal", || lease() > before);
        assert_eq!((state(env, "r"), env.comments().len()), ("ready".to_owned(), 1));
        first.signal(Signal::TERM);
        first.wait().code(0);
    });
}

/// Stopped in the middle, and killed while it stands still: then its run is anybody's of this machine, and the call that was under way is asked
/// about.
#[test]
fn a_worker_that_dies_while_it_stands_still_is_taken_over() {
    on_both("fleet_frozen", |env, database| {
        let first = at_the_gate(env);
        stand_still(&first, env, database);
        let second = env.start(&["worker", "--name", "second"]);
        until("the second worker", || rows(env, &["workers", "list"]).len() == 2);
        assert_eq!((state(env, "r"), env.comments().len()), ("claimed".to_owned(), 1));
        first.signal(Signal::KILL);
        first.wait().killed();
        until("the question", || state(env, "r") == "parked");
        let question = rows(env, &["questions"])[0]["question_id"].as_str().unwrap().to_owned();
        env.run(&["answer", &question, "happened"]).code(0);
        until("the run", || status(env, "r") == "succeeded");
        assert_eq!(env.comments().len(), 1);
        second.signal(Signal::TERM);
        second.wait().code(0);
    });
}

/// Stopped while it works on a run of a key with one seat, past the end of its lease: the seat stays its run's, and no other run of the key is at
/// work beside it.
#[test]
fn a_worker_that_stands_still_keeps_the_seat_of_its_run() {
    on_both("fleet_seat", |env, database| {
        env.run(&["submit", &gated(env, "post_comment"), "--run-id", "r", "--concurrency-key", "acme:1"]).code(0);
        let first = env.start(&["worker", "--name", "first"]);
        until("the effect", || !env.comments().is_empty());
        let job = |name: &str| {
            let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": name}}]});
            env.named_job(name, &json!({"tools": {"builtin": false}}), &json!([post, {"text": "Posted."}]))
        };
        env.run(&["submit", &job("seated"), "--run-id", "seated", "--concurrency-key", "acme:1"]).code(0);
        stand_still(&first, env, database);
        end_the_lease(env, database, "first");
        let second = env.start(&["worker", "--name", "second"]);
        until_or_tell(
            "the second worker has looked",
            || why(env, "r").contains("already driven"),
            || format!("{:?}\n{}", why(env, "r"), second.stderr()),
        );
        assert_eq!(why(env, "seated"), "waits for a seat of acme:1, at work: r");
        // It takes what comes later, and not what waits for the seat.
        env.run(&["submit", &job("free"), "--run-id", "free"]).code(0);
        until("the one without a key", || status(env, "free") == "succeeded");
        assert_eq!((state(env, "seated"), env.comments().len()), ("ready".to_owned(), 2));
        first.signal(Signal::CONT);
        until("it has its run again", || {
            let listed = rows(env, &["queue", "list"]).into_iter().find(|row| row["run_id"] == "r").unwrap();
            (&listed["state"], &listed["worker"]) == (&json!("claimed"), &json!("first"))
        });
        assert_eq!(state(env, "seated"), "ready");
        open_the_gate(env);
        until("all", || ["r", "seated"].iter().all(|run| status(env, run) == "succeeded"));
        assert_eq!((env.comments().len(), asked_about(env, database)), (3, Vec::new()));
        for worker in [first, second] {
            worker.signal(Signal::TERM);
            worker.wait().code(0);
        }
    });
}

/// Another machine with the same paths: a root of its own under the name that the first one had.
fn another_machine(env: &TestEnv) {
    fs::rename(env.root(), env.path("root.first")).unwrap();
    fs::create_dir(env.root()).unwrap();
}

/// The machine of a worker is off. What it had only claimed goes to another machine when its lease ends; what it had begun waits for a person's
/// word that the machine is gone, and is in doubt then.
#[test]
fn another_machine_takes_what_was_not_begun_and_the_rest_by_a_persons_word() {
    let Some((env, direct)) = on_server("fleet_machines", true) else { return };
    env.run(&["db", "migrate", "--database-url", &direct]).code(0);
    let database = Some("fleet_machines");
    for (run, point) in [("begun", "after:tool.invoke:post_comment"), ("claimed", "before:store.acquire_run")] {
        env.run(&["submit", &comment_job(&env), "--run-id", run, "--concurrency-key", &format!("acme_{run}:1")])
            .code(0);
        env.run_killed_at(point, &["worker", "--name", &format!("of_{run}")]);
    }
    another_machine(&env);
    // A name is its worker's until the lease ends: to try again later is right.
    env.run(&["worker", "--name", "of_claimed"]).refused(75, &["of_claimed", "another --name", "30 s"]);
    let second = env.start(&["worker", "--name", "second"]);
    until("the second worker", || rows(&env, &["workers", "list"]).iter().any(|row| row["worker"] == "second"));
    assert_eq!((status(&env, "begun"), status(&env, "claimed")), ("running".to_owned(), "queued".to_owned()));
    for worker in ["of_begun", "of_claimed"] {
        end_the_lease(&env, database, worker);
    }
    until("what was not begun", || status(&env, "claimed") == "succeeded");
    // A run that came later is done, and the one of the first machine is left alone.
    let input = json!({"text": "later"});
    let turns = json!([{"tools": [{"name": "mcp__forum__post_comment", "input": input}]}, {"text": "Posted."}]);
    let later = env.named_job("later", &json!({"tools": {"builtin": false}}), &turns);
    env.run(&["submit", &later, "--run-id", "later"]).code(0);
    until("the one that came later", || status(&env, "later") == "succeeded");
    assert_eq!((state(&env, "begun"), env.comments().len()), ("ready".to_owned(), 3));
    // What waits for a seat that a run of the first machine has is told so, and is not waited for either.
    env.run(&["submit", &later, "--new", "--run-id", "seated", "--concurrency-key", "acme_begun:1"]).code(0);
    until("it is known who has the seat", || {
        why(&env, "seated").contains("waits for a seat of acme_begun:1; begun keeps one")
    });
    // It has no workers left, and is named by what holds runs.
    let first = fs::read_to_string(env.path("root.first/locks/root_id")).unwrap();
    env.run(&["workers", "forget", "of_begun"]).refused(2, &["of_begun", &first, "1 run"]);
    env.run(&["resume", "begun"]).refused(2, &["is driven in", &format!("`ua workers forget {first}`")]);
    // Who works until nothing is left does not wait for another machine's.
    let left = env.run(&["worker", "--name", "third", "--until-empty"]).code(75);
    // Path and host are those of the first root, and yet no worker that is started here takes the run.
    let forget = format!("`ua workers forget {first}`");
    let left = left.says(&["begun", "another one replaced under the same name", &forget]);
    assert!(!left.stderr.contains("only a worker there"), "{}", left.stderr);
    left.says(&["2 runs left in the queue", "seated: waits for a seat of acme_begun:1; begun keeps one"]);
    let listed = rows(&env, &["queue", "list"]).into_iter().find(|row| row["run_id"] == "begun").unwrap();
    assert!(listed["why"].as_str().unwrap().contains(&forget), "{listed}");
    env.run(&["workers", "forget", &first]).code(0);
    until("the question", || state(&env, "begun") == "parked");
    let question = rows(&env, &["questions"])[0]["question_id"].as_str().unwrap().to_owned();
    env.run(&["answer", &question, "happened"]).code(0);
    until("the run", || status(&env, "begun") == "succeeded");
    until("what waited for its seat", || status(&env, "seated") == "succeeded");
    assert_eq!(env.comments().len(), 4);
    second.signal(Signal::TERM);
    second.wait().code(0);
}

/// A machine that lacks a program takes runs and can begin none of them. It has none for good, is not ready, and another one does them.
#[test]
fn what_a_machine_could_not_begin_another_one_does() {
    let Some((env, direct)) = on_server("fleet_lacking", true) else { return };
    env.run(&["db", "migrate", "--database-url", &direct]).code(0);
    let (installed, runs) = (env.arg("installed"), ["a", "b", "c", "d"]);
    let servers = needing(&env, &installed);
    for run in runs {
        env.run(&["submit", &comment_job(&env), "--new", "--run-id", run, "--mcp-config", &servers]).code(0);
    }
    let first = env.start(&["worker", "--name", "first", "--listen", "127.0.0.1:0"]);
    let address = address_of(&first);
    until("it has tried all", || runs.iter().all(|run| why(&env, run).contains("did not start")));
    until("it is not ready", || asked(&address, "/readyz").contains("not on this machine"));
    assert!(asked(&address, "/healthz").contains("200 OK"));
    assert!(asked(&address, "/metrics").contains("\nua_worker_unfit_total "));
    assert!(runs.iter().all(|run| state(&env, run) == "ready"));
    first.signal(Signal::TERM);
    first.wait().code(0);
    another_machine(&env);
    fs::write(&installed, "").unwrap();
    env.run(&["worker", "--name", "second", "--until-empty"]).code(0);
    assert!(runs.iter().all(|run| status(&env, run) == "succeeded"));
    assert_eq!(env.comments().len(), 4);
}

/// What is printed in one root about a run of another one works as it is printed.
#[test]
fn a_run_of_another_root_is_continued_with_the_command_of_that_root() {
    let Some((env, direct)) = on_server("fleet_roots", true) else { return };
    env.run(&["db", "migrate", "--database-url", &direct]).code(0);
    let installed = env.arg("installed");
    env.run(&["job", &comment_job(&env), "--run-id", "r", "--mcp-config", &needing(&env, &installed)]).code(75);
    let (other, command) = (env.arg("other"), format!("ua resume r --root {}", env.arg("root")));
    env.run(&["runs", "show", "r", "--root", &other]).code(0).shows(&[&command]);
    env.run(&["status", "--root", &other]).code(0).shows(&[&command]);
    env.run(&["runs", "delete", "r", "--yes", "--root", &other]).refused(2, &[&command]);
    env.run(&["resume", "r", "--root", &other]).refused(2, &["is driven in"]);
    fs::write(&installed, "").unwrap();
    let cancelled = env.run(&["runs", "cancel", "r", "--yes", "--root", &other]).code(0);
    let cancelled = cancelled.says(&["run r will end; it is stopped in ", &env.arg("root")]);
    assert!(!cancelled.stderr.contains("current call"), "{}", cancelled.stderr);
    let cancelled = env.run(&["runs", "cancel", "r", "--yes", "--json", "--root", &other]).code(0).json();
    assert_eq!(cancelled, json!({"run_id": "r", "is_driven": false, "status": "stopped"}));
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    env.run(&words).code(1).shows(&["cancelled"]);
}

/// Somebody drives a run there by hand, so no worker says that the machine is alive. What may be sending is not declared gone.
#[test]
fn a_machine_whose_process_drives_a_run_is_not_forgotten() {
    let Some((env, direct)) = on_server("fleet_driven", true) else { return };
    env.run(&["db", "migrate", "--database-url", &direct]).code(0);
    let driving = env.start(&["job", &gated(&env, "post_comment"), "--run-id", "r"]);
    until("the effect", || !env.comments().is_empty());
    let first = fs::read_to_string(env.root().join("locks/root_id")).unwrap();
    another_machine(&env);
    env.run(&["workers", "forget", &first]).refused(75, &["is driving run r", "nothing was changed"]);
    driving.signal(Signal::KILL);
    driving.wait().killed();
    env.run(&["workers", "forget", &first]).code(0).shows(&["1 lineage"]);
    assert_eq!(env.comments().len(), 1);
}

/// A worker is stopped in the middle of a run: nobody works on it until there is a worker again, and whoever looks is told that.
#[test]
fn a_run_that_a_stopped_worker_gave_back_waits_in_the_queue() {
    let env = crate::env().with_forum();
    let first = at_the_gate(&env);
    first.signal(Signal::TERM);
    until("it stops", || first.stderr().contains("no more runs are taken"));
    open_the_gate(&env);
    first.wait().code(0).says(&["another worker may take it"]);
    assert_eq!((status(&env, "r"), state(&env, "r")), ("stopped".to_owned(), "ready".to_owned()));
    let alone = "1 run waits in the queue: no worker is running; `ua worker` starts one";
    env.run(&["status"]).code(0).shows(&[alone]);
    let page = env.read("root/RESTART.md");
    assert!(page.contains("It is in the queue: a worker resumes it by itself"), "{page}");
    let own = completion(&env);
    assert!(own.contains("It is in the queue: a worker resumes it by itself") && !own.contains("ua resume"), "{own}");
}

/// The lease of a worker that was killed runs on for a while: nobody works all the same.
#[test]
fn a_run_whose_worker_was_killed_waits_in_the_queue() {
    let env = crate::env().with_forum();
    let first = at_the_gate(&env);
    first.signal(Signal::KILL);
    first.wait().killed();
    let alone = "1 run waits in the queue: no worker is running; `ua worker` starts one";
    env.run(&["status"]).code(0).shows(&[alone]);
}

/// What the page of the run in its folder says.
fn completion(env: &TestEnv) -> String {
    fs::read_to_string(env.workspace().join("job_completion_r.md")).unwrap()
}

/// A worker has what a run needs (keys, a mail server), and a shell may not: more of a budget is given without driving the run there.
#[test]
fn a_budget_is_raised_for_the_worker_that_takes_the_run() {
    let env = crate::env().with_forum();
    let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]});
    let job = env.job(&json!({"budgets": {"max_turns": 1}}), &json!([post, {"text": "Done."}]));
    env.run(&["submit", &job, "--run-id", "r"]).code(0);
    env.run(&["worker", "--until-empty"]).says(&["`ua queue move r --max-turns +", "has a worker continue it"]);
    env.run(&["status"]).code(0).shows(&["stopped (budget): ua queue move r --max-turns +"]);
    let page = env.read("root/RESTART.md");
    assert!(
        page.contains("Have a worker continue it with:") && page.contains("ua queue move r --max-turns +"),
        "{page}"
    );
    let own = completion(&env);
    assert!(own.contains("ua queue move r --max-turns +") && !own.contains("ua resume"), "{own}");
    env.run(&["queue", "move", "r", "--max-turns", "nine"]).code(2);
    env.run(&["queue", "move", "r", "--max-turns", "+1", "--by", "Ada"]).code(0).says(&["max_turns is 2 now"]);
    assert_eq!(env.value("SELECT made_by FROM overrides WHERE run_id = 'r'"), "Ada as tester");
    env.run(&["worker", "--until-empty"]).code(0);
    assert_eq!(
        (env.value("SELECT status FROM runs WHERE run_id = 'r'").as_str(), env.comments().len()),
        ("succeeded", 1)
    );
}

/// A process that was stopped is there, and does nothing: it is called that, with what lets it continue, and nobody is told to start a worker.
#[test]
fn a_worker_that_was_paused_is_said_to_be_with_what_lets_it_continue() {
    let env = super::super::env().with_forum();
    env.run(&["submit", &gated(&env, "post_comment"), "--run-id", "r"]).code(0);
    let worker = env.start(&["worker", "--name", "w", "--concurrency", "1"]);
    until("the effect", || !env.comments().is_empty());
    env.run(&["submit", &comment_job(&env), "--run-id", "s"]).code(0);
    stand_still(&worker, &env, None);
    let cure = format!("`kill -CONT {}` lets it continue", worker.id());
    let paused = || rows(&env, &["workers", "list"])[0]["status"] == json!("paused");
    until("it is seen", paused);
    env.run(&["workers", "list"]).code(0).shows(&["paused", "worker w is paused: process ", &cure]);
    env.run(&["status"]).code(0).shows(&["worker w is paused: process ", &cure]);
    end_the_lease(&env, None, "w");
    assert!(paused());
    let status = env.run(&["status"]).code(0).shows(&["1 run waits in the queue: worker w is paused", &cure]);
    assert!(!status.stdout.contains("no worker is running"), "{}", status.shown());
    env.run(&["runs", "show", "s"]).code(0).shows(&["waits for a worker: worker w is paused"]);
    worker.signal(Signal::CONT);
    open_the_gate(&env);
    until("both runs", || super::status(&env, "r") == "succeeded" && super::status(&env, "s") == "succeeded");
    let status = env.run(&["status"]).code(0);
    assert!(!status.stdout.contains("paused"), "{}", status.shown());
    worker.signal(Signal::TERM);
    worker.wait().code(0);
}

/// The command of an alert for a budget that is used up works in a shell that has nothing of the worker's environment, and leaves the run to the
/// worker.
#[test]
fn a_budget_is_raised_for_a_run_that_a_worker_continues() {
    let alerted = |env: TestEnv| {
        let command = json!(["/bin/sh", "-c", format!("cat >> {}", env.arg("alerts.jsonl"))]).to_string();
        env.with_env("UA_ALERT_COMMAND", &command)
    };
    let env = alerted(super::super::env().with_forum());
    let post = |text: &str| json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": text}}]});
    let posted = |text: &str| json!({"text": text}).to_string();
    let fields = json!({"tools": {"builtin": false}, "budgets": {"max_tool_calls": 1}});
    let job = env.job(&fields, &json!([post("x"), post("y"), {"text": "Done."}]));
    env.run(&["submit", &job, "--run-id", "r"]).code(0);
    let move_it = "ua queue move r --max-tool-calls +5";
    env.run(&["worker", "--until-empty"]).code(0).says(&["run r is stopped: ", move_it]);
    assert_eq!((state(&env, "r"), env.comments()), ("parked".to_owned(), vec![posted("x")]));
    let alert: serde_json::Value = serde_json::from_str(env.read("alerts.jsonl").trim()).unwrap();
    let command = alert["commands"][0].as_str().unwrap();
    assert!(command.starts_with(move_it) && command.contains("--root "), "{alert}");
    env.run(&["status"]).code(0).shows(&[&format!("stopped (budget): {move_it}")]);
    env.run(&["runs", "show", "r"]).code(0).shows(&[move_it]);
    // What cannot be is refused, and nothing is stored.
    env.run(&["queue", "move", "r", "--max-tool-calls", "many"]).refused(2, &["--max-tool-calls many"]);
    env.run(&["queue", "move", "r", "--phase", "none", "--max-turns", "+1"]).refused(2, &["no phase `none`"]);
    assert_eq!(env.value("SELECT count(*) FROM overrides"), "0");
    env.run(&["queue", "move", "r", "--max-tool-calls", "+5"]).code(0).says(&["max_tool_calls is 6 now"]);
    assert_eq!(env.rows("SELECT component FROM overrides WHERE made_by <> ''"), ["max_tool_calls"]);
    assert_eq!(env.comments().len(), 1, "nobody drove it here");
    env.run(&["worker", "--until-empty"]).code(0);
    assert_eq!((status(&env, "r"), env.comments()), ("succeeded".to_owned(), vec![posted("x"), posted("y")]));
    env.run(&["queue", "move", "r", "--max-tool-calls", "+5"]).refused(2, &["run r is not in the queue"]);
}
