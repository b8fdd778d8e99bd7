//! Schedules: how their jobs are started, and what they take from those who work.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use rustix::process::Signal;
use serde_json::json;
use ua_e2e::{TestEnv, until};

use super::{address_of, asked, rows, state_of_all, status};
use crate::env;
use crate::server_database::comment_job;

/// The next instant of all schedules is so long ago.
fn is_overdue_by(env: &TestEnv, span: &str) {
    let database = rusqlite::Connection::open(env.root().join("runtime_state.db")).unwrap();
    let sql = format!("UPDATE schedules SET next_at = strftime('%Y-%m-%dT03:00:00.000Z', 'now', '-{span}')");
    database.execute(&sql, []).unwrap();
}

/// What is named where a schedule is made counts for its runs, whatever the worker would have by itself; and a worker without it leaves the run.
#[test]
fn a_schedule_keeps_how_its_job_is_started() {
    let env = env().with_forum();
    std::fs::rename(env.path("work/.mcp.json"), env.path("servers.json")).unwrap();
    env.write("strict.toml", "[[rule]]\nid = \"ask\"\npatterns = [\"post_*\"]\napproval = \"ask\"\n");
    let (job, servers, policy) = (comment_job(&env), env.arg("servers.json"), env.arg("strict.toml"));
    let add = ["schedule", "add", "often", &job, "--cron", "0 3 * * *", "--mcp-config", &servers, "--policy", &policy];
    env.run(&add).code(0);
    is_overdue_by(&env, "2 days");
    // The worker does not have the servers: nothing is begun without them.
    std::fs::rename(env.path("servers.json"), env.path("away.json")).unwrap();
    env.run(&["worker", "--until-empty"]).code(75).says(&["servers.json", "1 run"]);
    assert_eq!(env.rows("SELECT status FROM runs"), ["queued"]);
    std::fs::rename(env.path("away.json"), env.path("servers.json")).unwrap();
    // Of servers that nobody could look at when the run was stored none is known: a person says that they are meant.
    env.run(&["worker", "--until-empty"]).code(75).says(&["forum (it is new)", "--accept servers"]);
    env.run(&["queue", "move", &env.value("SELECT run_id FROM runs"), "--accept", "servers"]).code(0);
    // With them it asks, as the policy says.
    env.run(&["worker", "--until-empty"]).code(0).says(&["waits for you"]);
    let question = rows(&env, &["questions"])[0]["question_id"].as_str().unwrap().to_owned();
    env.run(&["answer", &question, "approve"]).code(0);
    env.run(&["worker", "--until-empty"]).code(0);
    assert_eq!((env.comments().len(), state_of_all(&env).len()), (1, 0));
    // What changes is told by its name.
    env.run(&add[..6]).code(0).says(&["already existed and is replaced", "mcp_config: ", "policies: "]);
}

/// What could never begin is refused where somebody is, and not by a worker at three in the morning; and a key that would do nothing is told.
#[test]
fn a_schedule_is_refused_as_its_submit_is() {
    // No tool may have the effect here, not even one that nobody declared.
    let env = env();
    let job = env.job(
        &json!({"tools": {"builtin": false}, "job_key": "night", "stop_conditions": ["email_sent_once"]}),
        &json!([{"text": "Done."}]),
    );
    for command in [&["submit", &job][..], &["schedule", "add", "often", &job, "--cron", "@daily"]] {
        env.run(command).refused(2, &["no tool of this job has the effect that a stop condition asks for"]);
    }
    let keyed = env.job(&json!({"tools": {"builtin": false}, "job_key": "night"}), &json!([{"text": "Done."}]));
    env.run(&["schedule", "add", "often", &keyed, "--cron", "@daily"])
        .code(0)
        .says(&["the job key \"night\" of the job file is not used by a schedule", "ua submit"]);
}

/// A deployment stops the workers, adds all schedules again, and starts them: what was due meanwhile is submitted. With other times it is told that
/// it is not.
#[test]
fn a_schedule_that_is_added_again_loses_no_run() {
    let env = env().with_forum();
    let add = ["schedule", "add", "often", &comment_job(&env), "--cron"];
    env.run(&[&add[..], &["0 3 * * *"]].concat()).code(0);
    is_overdue_by(&env, "2 days");
    env.run(&[&add[..], &["0 4 * * *"]].concat()).code(0).says(&[
        "cron: 0 3 * * *",
        "is passed over",
        "ua schedule run",
    ]);
    env.run(&["worker", "--until-empty"]).code(0);
    assert!(env.comments().is_empty());
    is_overdue_by(&env, "2 days");
    env.run(&[&add[..], &["0 4 * * *"]].concat()).code(0).says(&["nothing changed"]);
    env.run(&["worker", "--until-empty"]).code(0);
    assert_eq!(env.comments().len(), 1);
}

/// Who works until nothing is left, as a command of cron, does not call it done when a job that is due could not be submitted.
#[test]
fn a_schedule_that_fails_is_no_success_of_who_works_until_nothing_is_left() {
    let env = env().with_forum();
    let job = comment_job(&env);
    env.run(&["schedule", "add", "often", &job, "--cron", "0 3 * * *"]).code(0);
    is_overdue_by(&env, "2 days");
    std::fs::rename(&job, env.path("away.json")).unwrap();
    let left = env.run(&["worker", "--until-empty"]).code(75);
    left.says(&["what is due could not be submitted: schedule often could not submit its job", "ua schedule list"]);
    let listed = &rows(&env, &["schedule", "list"])[0];
    assert!(listed["overdue_since"] == listed["next_at"] && listed["last_run"].is_null(), "{listed}");
    let why = listed["error_here"].as_str().unwrap();
    assert!(why.contains("cannot read the job file"), "{listed}");
    env.run(&["schedule", "list"])
        .code(0)
        .shows(&["A submit from here fails now:", "  often: cannot read the job file"]);
    let why = "the job of often cannot be submitted from here: cannot read the job file";
    env.run(&["status"]).code(0).shows(&["the schedule often is overdue by", why]);
    // At once, and not only when a worker would have been late.
    let database = rusqlite::Connection::open(env.root().join("runtime_state.db")).unwrap();
    let now = "UPDATE schedules SET next_at = strftime('%Y-%m-%dT%H:%M:%S.000Z', 'now', '-1 second')";
    database.execute(now, []).unwrap();
    drop(database);
    env.run(&["status"]).code(0).shows(&[why]);
    env.run(&["schedule", "list"]).code(0).shows(&["overdue by", "  often: cannot read the job file", "(no such file"]);
    is_overdue_by(&env, "2 days");
    std::fs::rename(env.path("away.json"), &job).unwrap();
    env.run(&["worker", "--until-empty"]).code(0);
    assert_eq!(env.comments().len(), 1);
    let listed = &rows(&env, &["schedule", "list"])[0];
    assert_eq!((&listed["last_run"]["shown_status"], &listed["overdue_since"]), (&json!("succeeded"), &json!(null)));
    assert_eq!((&listed["error_here"], &listed["last_run"]["result"]), (&json!(null), &json!(null)));
}

/// Nobody was there when it ran: why its last run did not do what it is for is told where schedules are looked at, whole.
#[test]
fn why_the_last_run_of_a_schedule_ended_is_told_with_the_schedule() {
    let env = env().with_forum();
    let post = |text: &str| json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": text}}]});
    let fields = json!({"tools": {"builtin": false}, "budgets": {"max_tool_calls": 1}});
    let job = env.job(&fields, &json!([post("x"), post("y"), {"text": "Done."}]));
    env.run(&["schedule", "add", "often", &job, "--cron", "0 3 * * *"]).code(0);
    env.run(&["schedule", "list"]).code(0).shows(&["none"]);
    is_overdue_by(&env, "2 days");
    env.run(&["worker", "--until-empty"]);
    let last = rows(&env, &["schedule", "list"])[0]["last_run"].clone();
    let text = |field: &str| last[field].as_str().unwrap().to_owned();
    let why = text("result");
    assert!(text("shown_status").starts_with("stopped (") && why.contains("max_tool_calls"), "{last}");
    let told = format!("The last run of often, for {}: {}: {why}", text("scheduled_at"), text("shown_status"));
    let listed = env.run(&["schedule", "list"]).code(0).shows(&[&told, "ua runs show "]);
    assert!(!listed.stdout.contains('…'), "{}", listed.shown());
    // Once it has done it, nothing is said.
    env.run(&["resume", "last", "--max-tool-calls", "+1"]).code(0);
    let listed = env.run(&["schedule", "list"]).code(0).shows(&["succeeded"]);
    assert!(!listed.stdout.contains("The last run of"), "{}", listed.shown());
}

/// Nobody reads the log of a service: whoever wants alerts hears of it, once for each time that is due, whichever worker tries it how often.
#[test]
fn a_schedule_that_fails_is_an_alert() {
    let env = env().with_forum();
    let append = json!(["/bin/sh", "-c", format!("cat >> '{}'", env.arg("told"))]).to_string();
    let env = env.with_env("UA_ALERT_COMMAND", &append);
    let job = comment_job(&env);
    env.run(&["schedule", "add", "often", &job, "--cron", "0 3 * * *"]).code(0);
    is_overdue_by(&env, "2 days");
    std::fs::rename(&job, env.path("away.json")).unwrap();
    env.run(&["worker", "--until-empty"]).code(75);
    env.run(&["worker", "--until-empty"]).code(75);
    let told = std::fs::read_to_string(env.path("told")).unwrap();
    let alerts: Vec<serde_json::Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(alerts.len(), 1, "{told}");
    assert_eq!((&alerts[0]["event"], &alerts[0]["schedule"]), (&json!("schedule_failed"), &json!("often")));
    assert!(alerts[0]["text"].as_str().unwrap().contains("could not submit its job"), "{told}");
    assert!(alerts[0]["commands"][0].as_str().unwrap().starts_with("ua schedule run often --root "), "{told}");
}

/// A job that could not be submitted from here is refused when its schedule is made.
#[test]
fn a_schedule_of_a_job_that_cannot_be_started_is_refused() {
    let env = env().with_forum();
    let job = comment_job(&env);
    let add = ["schedule", "add", "often", &job, "--cron", "@daily"];
    env.run(&[&add[..], &["--mcp-config", &env.arg("nothing.json")]].concat()).refused(2, &["nothing.json"]);
    env.run(&[&add[..], &["--provider", "nobody"]].concat()).refused(2, &["nobody"]);
    assert!(rows(&env, &["schedule", "list"]).is_empty());
}

/// Two days of minutes were missed. What waits is taken at once, the worker says that it is well, and its lease is renewed.
#[test]
fn what_is_caught_up_keeps_nobody_waiting() {
    let env = env().with_forum();
    let add = ["schedule", "add", "often", &comment_job(&env), "--cron", "* * * * *", "--catch-up", "all"];
    env.run(&[&add[..], &["--queue", "night"]].concat()).code(0);
    is_overdue_by(&env, "2 days");
    let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "at once"}}]});
    let job = env.named_job("now", &json!({"tools": {"builtin": false}}), &json!([post, {"text": "Posted."}]));
    env.run(&["submit", &job, "--run-id", "r"]).code(0);
    let worker = env.start(&["worker", "--name", "first", "--queue", "default", "--listen", "127.0.0.1:0"]);
    let address = address_of(&worker);
    until("the run that waits", || status(&env, "r") == "succeeded");
    let said = worker.stderr();
    let before = said.split("run r: taken").next().unwrap().matches("schedule often: run").count();
    assert!(before < 10, "{before} instants came first: {said}");
    let renewed = || rows(&env, &["workers", "list"])[0]["lease_until"].as_str().unwrap().to_owned();
    let lease = renewed();
    until("a renewal", || renewed() > lease);
    until("instants", || state_of_all(&env).len() > 20);
    assert!(asked(&address, "/healthz").contains("200 OK") && asked(&address, "/readyz").contains("200 OK"));
    let next = rows(&env, &["schedule", "list"])[0]["next_at"].as_str().unwrap().to_owned();
    assert!(env.rows("SELECT strftime('%Y-%m-%dT%H:%M:%S.000Z', 'now', '-1 hours')")[0] > next, "it is still at it");
    worker.signal(Signal::TERM);
    worker.wait().code(0);
}

/// A clock that was days ahead led to an instant that is far away, and is right again. Until a worker runs, that is said; a worker goes back to the
/// next time by the clock once that has lasted, and begins nothing for it.
#[test]
fn a_worker_takes_a_schedule_back_to_the_time_that_is_next() {
    let env = env().with_forum();
    env.run(&["schedule", "add", "often", &comment_job(&env), "--cron", "0 3 * * *"]).code(0);
    let next = || rows(&env, &["schedule", "list"])[0]["next_at"].as_str().unwrap().to_owned();
    let right = next();
    let database = rusqlite::Connection::open(env.database_path()).unwrap();
    let sql = "UPDATE schedules SET next_at = strftime('%Y-%m-%dT03:00:00.000Z', 'now', '+3 days')";
    assert_eq!(database.execute(sql, []).unwrap(), 1);
    drop(database);
    let ahead = next();
    for command in [&["schedule", "list"][..], &["status"]] {
        let told = env.run(command);
        let said = [&told.stdout, &told.stderr].iter().any(|said| said.contains("the clock was set back"));
        assert!(said, "{}", told.shown());
    }
    let worker = env.start(&["worker", "--name", "first"]);
    until("the way back", || worker.stderr().contains("schedule often: the clock was set back"));
    let said = worker.stderr();
    assert!(said.contains(&format!("its next run was stored for {ahead}")), "{said}");
    // In the minutes around three it is another day by now.
    assert!(next() < ahead && next() >= right, "{} {ahead} {right}", next());
    worker.signal(Signal::TERM);
    worker.wait().code(0);
    assert_eq!(env.rows("SELECT count(*) FROM runs"), ["0"]);
    let told = env.run(&["schedule", "list"]).code(0);
    assert!(
        ![&told.stdout, &told.stderr].iter().any(|said| said.contains("the clock was set back")),
        "{}",
        told.shown()
    );
}
