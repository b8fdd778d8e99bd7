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
    // With them it asks, as the policy says.
    env.run(&["worker", "--until-empty"]).code(0).says(&["waits for you"]);
    let question = rows(&env, &["questions"])[0]["question_id"].as_str().unwrap().to_owned();
    env.run(&["answer", &question, "approve"]).code(0);
    env.run(&["worker", "--until-empty"]).code(0);
    assert_eq!((env.comments().len(), state_of_all(&env).len()), (1, 0));
    // What changes is told by its name.
    env.run(&add[..6]).code(0).says(&["already existed and is replaced", "mcp_config: ", "policies: "]);
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
    env.run(&["status"]).code(0).shows(&["the schedule often is overdue by"]);
    std::fs::rename(env.path("away.json"), &job).unwrap();
    env.run(&["worker", "--until-empty"]).code(0);
    assert_eq!(env.comments().len(), 1);
    let listed = &rows(&env, &["schedule", "list"])[0];
    assert_eq!((&listed["last_run"]["shown_status"], &listed["overdue_since"]), (&json!("succeeded"), &json!(null)));
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
