//! What is known of a run stays known where its database goes: to a server, back from a mistaken restore, and among sub-agents of one job that was
//! killed.

use std::fs;

use serde_json::{Value, json};
use ua_e2e::{Model, TestEnv};

use super::env;
use super::server_database::cluster;
use crate::cluster::skipped;

/// A run whose comment a fork made, and that was lost with the copy that was put back; the run has it as planned.
fn lost_by_a_fork() -> TestEnv {
    let env = env().with_forum();
    let turns =
        json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]}, {"text": "Done."}]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    env.run_killed_at("before:store.start_attempt:post_comment", &["job", &job, "--run-id", "r"]);
    env.run(&["db", "backup", &env.arg("copy.db")]).code(0);
    env.run(&["fork", "r", "--at-turn", "0", "--run-id", "f"]).code(0);
    assert_eq!(env.comments().len(), 1);
    env.run(&["db", "restore", &env.arg("copy.db")]).code(0);
    env
}

/// On a server nobody would be asked before the like is done again, so the database does not go there without a word.
#[test]
fn what_was_accepted_as_lost_does_not_stay_behind_unseen() {
    let Some(cluster) = cluster() else { return skipped("PostgreSQL is not installed") };
    for (number, how) in ["left behind", "asked about here", "nothing was lost"].into_iter().enumerate() {
        let env = lost_by_a_fork();
        let name = format!("lost_{number}");
        cluster.create(&name, "");
        let url = cluster.url(&name, 5432);
        env.run(&["db", "migrate", "--database-url", &url]).code(0);
        let copy = ["db", "copy", "--database-url", &url];
        env.run(&copy).refused(2, &["is an older copy", "ua db accept"]);
        env.run(&["db", "accept", "r"]).code(0).says(&["you are asked before the like is done again"]);
        let refused = ["effects.log alone knows 1 call", "--without-lost", "nothing was changed"];
        env.run(&copy).refused(2, &refused);
        match how {
            "left behind" => {
                env.run(&[&copy[..], &["--without-lost"]].concat()).code(0).shows(&["rows are in the"]);
                continue;
            }
            "asked about here" => {
                env.run(&["resume", "r"]).code(75).shows(&["Did `post_comment` happen?"]);
            }
            _ => {
                let call = env.value("SELECT tool_call_id FROM tool_calls WHERE run_id = 'r'");
                env.run(&["calls", "resolve", &call, "--as", "happened", "--reason", "I looked", "--yes"]).code(0);
            }
        }
        env.run(&copy).code(0).shows(&["rows are in the"]);
        let env = env.with_env("UA_DATABASE_URL", &url);
        let resumed = env.run(&["resume", "r"]);
        if how == "asked about here" {
            resumed.code(75).shows(&["Did `post_comment` happen?"]);
        } else {
            resumed.code(0);
        }
        assert_eq!(env.comments().len(), 1, "{how}");
    }
}

/// An older copy put in the place of a database whose process was killed, and the kept file put back: the run is as it was.
#[test]
fn a_mistaken_restore_is_undone_by_another_one() {
    for point in ["before:tool.invoke:post_comment", "after:tool.invoke:post_comment", "before:store.commit_turn"] {
        let env = env().with_forum();
        env.run(&["job", &env.job(&json!({}), &json!([{"text": "Done."}])), "--run-id", "before"]).code(0);
        env.run(&["db", "backup", &env.arg("older.db")]).code(0);
        let turns =
            json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]}, {"text": "Done."}]);
        let job = env.named_job("second", &json!({"tools": {"builtin": false}}), &turns);
        env.run_killed_at(point, &["job", &job, "--run-id", "r"]);
        let calls = env.calls();
        env.run(&["db", "restore", &env.arg("older.db")]).code(0);
        assert_eq!(env.rows("SELECT run_id FROM runs"), ["before"], "{point}");
        let kept = fs::read_dir(env.root()).unwrap().map(|entry| entry.unwrap().path());
        let kept = kept.filter(|path| path.to_string_lossy().contains(".db.before-"));
        let kept = kept.min_by_key(|path| path.as_os_str().len()).unwrap();
        env.run(&["db", "restore", kept.to_str().unwrap()]).code(0);
        assert_eq!(env.calls(), calls, "{point}");
        env.run(&["runs", "list"]).code(0).shows(&["r"]);
        env.run(&["resume", "r"]);
        assert!(env.comments().len() <= 1, "{point}");
        env.run(&["db", "check", "--invariants"]).code(0);
    }
}

/// Sub-agents that all want the very same e-mail, and are killed anywhere while the first sends it: one resume is enough, and nobody is asked.
#[test]
fn sub_agents_that_want_the_same_wait_for_the_one_that_is_about_to_know() {
    const AGENTS: usize = 6;
    let mail = json!({"to": ["a@example.test"], "subject": "Report", "body": "Done."});
    let task = |number: usize| json!({"name": "mcp__ua_agents__task", "input": {"description": format!("Agent {number}"), "prompt": format!("AGENT{number}: tell the boss.")}});
    let tasks: Vec<Value> = (0..AGENTS).map(task).collect();
    let conversation = |number: usize| json!({"when": format!("AGENT{number}"), "turns": [{"tools": [{"name": "mcp__ua__send_email", "input": mail}]}, {"text": "Told."}]});
    let conversations: Vec<Value> = (0..AGENTS).map(conversation).collect();
    let script = json!({"turns": [{"tools": tasks}, {"text": "All done."}], "conversations": conversations});
    for point in
        ["after:store.start_attempt:send_email", "before:tool.invoke:send_email", "after:tool.invoke:send_email"]
    {
        let model = Model::with(&script.to_string(), |_| ());
        let env = env().with_model(&model);
        let job = json!({
            "objective": "Tell a@example.test once.",
            "model": {"provider": "anthropic", "name": "scripted"},
            "subagents": {},
        });
        env.run_killed_at(point, &["job", &env.job(&job, &json!([])), "--run-id", "r"]);
        env.run(&["resume", "r"]).code(0);
        assert_eq!(env.mails().len(), 1, "{point}");
        assert_eq!(env.rows("SELECT kind FROM questions"), [""; 0], "{point}");
        env.run(&["db", "check", "--invariants"]).code(0);
    }
}
