//! A machine that is lost, and a copy of its database that is put back on a new one, where nothing tells what was sent since the copy was made.

use std::fs;

use serde_json::{Value, json};

use crate::env;
use crate::server_database::comment_job;

#[test]
fn what_was_done_after_the_last_copy_is_not_done_again_on_a_new_machine_unasked() {
    let env = env().with_forum();
    let told = env.arg("alerts.jsonl");
    let env = env.with_env("UA_ALERT_COMMAND", &json!(["/bin/sh", "-c", format!("cat >> {told}")]).to_string());
    let job = comment_job(&env);
    env.run(&["submit", &job, "--run-id", "r", "--job-key", "nov-30"]).code(0);
    env.run(&["schedule", "add", "nightly", &job, "--cron", "0 3 1 1 *"]).code(0);
    let copy = env.arg("copy.db");
    env.run(&["db", "backup", &copy]).code(0);
    env.run(&["worker", "--until-empty"]).code(0);
    assert_eq!(env.comments().len(), 1);
    fs::remove_dir_all(env.root()).unwrap();
    fs::create_dir(env.root()).unwrap();

    env.run(&["db", "restore", &copy]).code(0).says(&[
        "effects.log of the time after the copy is not here: the copy knows what happened until 20",
        "held, since they may have sent something after the copy was made: r;",
        "`ua db accept r`",
        "paused, since the copy does not know",
        "the schedule nightly;",
        "`ua schedule resume nightly`",
    ]);
    env.run(&["db", "check"]).code(74).shows(&["effects.log of that time is missing"]);
    env.run(&["schedule", "list"]).code(0).shows(&["paused"]);
    env.run(&["worker", "--until-empty"]).code(75).says(&["nobody knows what run r sent then", "ua db accept r"]);
    assert_eq!(env.comments().len(), 1, "nobody looked yet");
    // Whoever is elsewhere is told, and whoever looks reads what helps.
    let alerts: Vec<Value> = env.read("alerts.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [alert] = &alerts[..] else { panic!("one thing is told once: {alerts:?}") };
    assert_eq!((&alert["event"], &alert["run_id"]), (&json!("blocked"), &json!("r")), "{alert}");
    let commands = alert["commands"].to_string();
    assert!(commands.contains("ua db accept r") && commands.contains("ua queue move r"), "{alert}");
    env.run(&["status"]).code(0).shows(&["no worker continues it now: run r", "`ua db accept r`"]);
    let status = env.run(&["status", "--json"]).code(0).json();
    assert!(status["runs"][0]["blocked"].as_str().unwrap().contains("ua db accept r"), "{status}");

    env.run(&["db", "accept", "r"]).code(0).says(&["`ua queue move r` lets a worker take it"]);
    env.run(&["queue", "move", "r"]).code(0);
    env.run(&["worker", "--until-empty"]).code(0);
    assert_eq!(env.value("SELECT status FROM runs WHERE run_id = 'r'"), "succeeded");
    env.run(&["schedule", "resume", "nightly"]).code(0);
    env.run(&["db", "check"]).code(0);
}

/// A schedule that is paused, changed or removed after the copy was made does not start again by itself when the copy is put back.
#[test]
fn a_schedule_that_was_removed_after_the_copy_stays_still() {
    let env = env().with_forum();
    let job = comment_job(&env);
    for name in ["removed", "kept"] {
        env.run(&["schedule", "add", name, &job, "--cron", "0 3 1 1 *"]).code(0);
    }
    let copy = env.arg("copy.db");
    env.run(&["db", "backup", &copy]).code(0);
    env.run(&["schedule", "remove", "removed"]).code(0);
    env.run(&["schedule", "add", "later", &job, "--cron", "0 3 1 1 *"]).code(0);
    env.run(&["submit", &job, "--run-id", "waits", "--delay", "2h", "--new"]).code(0);
    let restored = env.run(&["db", "restore", &copy, "--json"]).code(0);
    let restored = restored.says(&["not in the copy, although unfinished, and only in ", "the run waits"]).json();
    assert_eq!(restored["lost_runs"], json!(["waits"]));
    assert_eq!(restored["paused_schedules"], json!(["removed"]));
    assert_eq!(restored["lost_schedules"], json!(["later"]));
    assert_eq!(restored["lacks_effects_log"], false);
    let paused = "SELECT group_concat(name) FROM schedules WHERE is_paused";
    assert_eq!(env.value(paused), "removed");
}
