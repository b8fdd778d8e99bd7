//! Which session an agent that owns its loop works in: a fork begins one of its own from its run's, an iteration begins an empty one.
//!
//! The stand-in of `claude_code` says of each prompt in which session it came; `real_claude_code` has a fork with the real program.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use ua_e2e::TestEnv;

use super::claude_code::{all_ended, job, mail, page, post, world};

/// A world with this plan, whose `claude` notes each prompt in `starts`.
fn noting(plan: &Value) -> TestEnv {
    let env = world(&json!({}));
    plans(&env, plan);
    env
}

fn plans(env: &TestEnv, plan: &Value) {
    let mut plan = plan.clone();
    plan["starts"] = json!(env.arg("starts"));
    env.write("plan.json", plan.to_string());
}

/// What the prompts said that were given since the first `skip` ones.
fn starts(env: &TestEnv, skip: usize) -> Vec<Value> {
    let text = fs::read_to_string(env.path("starts")).unwrap();
    text.lines().skip(skip).map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn folder(env: &TestEnv, run: &str) -> PathBuf {
    env.root().join("claude-code").join(run)
}

fn session(env: &TestEnv, run: &str) -> String {
    env.value(&format!("SELECT provider_session_id FROM runs WHERE run_id = '{run}'"))
}

/// Every file below a folder, with its content.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            all.extend(files(&entry.path()));
        } else if entry.file_type().unwrap().is_file() {
            all.insert(entry.path(), fs::read(entry.path()).unwrap());
        }
    }
    all
}

/// A run that is done, and a plan that has one thing more to do.
fn done_and_more() -> (TestEnv, BTreeMap<PathBuf, Vec<u8>>) {
    let env = noting(&json!({"steps": [[page("a")], [post("one")]]}));
    env.run(&["job", &job(&env, &json!({})), "--run-id", "r"]).code(0);
    assert_eq!((env.comments().len(), starts(&env, 0).len()), (1, 1));
    plans(&env, &more());
    let before = files(&folder(&env, "r"));
    (env, before)
}

fn more() -> Value {
    json!({"steps": [[page("a")], [post("one")], [post("two")]]})
}

#[test]
fn a_fork_goes_on_from_the_session_of_its_run_in_a_session_of_its_own() {
    let (env, before) = done_and_more();
    let original = session(&env, "r");
    env.run(&["fork", "r", "--run-id", "f"]).code(0).shows(&["All is done."]);
    // It knew what the original had said and heard, so it did only what was new.
    let told = starts(&env, 1);
    let [start] = &told[..] else { panic!("{told:?}") };
    assert_eq!((&start["resumed"], &start["fork"]), (&json!(original), &json!(true)));
    assert!(start["knew"].as_u64().unwrap() >= 6, "{start}");
    assert_eq!(start["session"], json!(session(&env, "f")));
    assert_ne!(session(&env, "f"), original);
    assert_eq!(env.value("SELECT provider_session_forked_from FROM runs WHERE run_id = 'f'"), original);
    assert_eq!(env.comments().len(), 2);
    assert_eq!(env.rows("SELECT tool_name FROM tool_calls WHERE run_id = 'f'"), ["post_comment"]);
    assert_eq!(files(&folder(&env, "r")), before, "the original is only read");
    // A fork of the fork goes on from the fork's.
    plans(&env, &json!({"steps": [[page("a")], [post("one")], [post("two")], [post("three")]]}));
    env.run(&["fork", "f", "--run-id", "g"]).code(0);
    assert_eq!(starts(&env, 2)[0]["resumed"], json!(session(&env, "f")));
    assert_eq!(env.comments().len(), 3);
    all_ended(&env);
}

#[test]
fn a_fork_that_dies_around_its_first_event_forks_again_and_repeats_nothing() {
    // Together: `ua`, and with it the agent.
    for point in [
        "before:model.complete",
        "after:model.complete",
        "before:store.record_turn",
        "after:store.commit_turn",
        "after:model.complete#2",
    ] {
        let (env, before) = done_and_more();
        env.run_killed_at(point, &["fork", "r", "--run-id", "f"]);
        env.run(&["resume", "f"]).code(0);
        check_fork(&env, &before, point);
    }
    // The agent alone.
    for point in ["init", "reply", "asked", "waiting", "answered"] {
        let (env, before) = done_and_more();
        let mut plan = more();
        plan["die"] = json!({"at": point, "mark": env.arg("died")});
        plans(&env, &plan);
        env.run(&["fork", "r", "--run-id", "f"]).code(0);
        assert!(env.path("died").exists(), "{point}");
        check_fork(&env, &before, point);
    }
}

fn check_fork(env: &TestEnv, before: &BTreeMap<PathBuf, Vec<u8>>, at: &str) {
    assert_eq!(env.comments().len(), 2, "{at}: {:?}", env.comments());
    assert_eq!(files(&folder(env, "r")), *before, "{at}: the original is only read");
    let original = session(env, "r");
    let starts = starts(env, 1);
    // Never in the original itself, never without its memory; once the fork has a reply on record, in its own.
    for start in &starts {
        let of_original = start["resumed"] == json!(original);
        assert_eq!(start["fork"], json!(of_original), "{at}: {start}");
        assert!(start["knew"].as_u64().unwrap() >= 6, "{at}: {start}");
        assert_ne!(start["session"], json!(original), "{at}");
    }
    assert_eq!(starts.last().unwrap()["session"], json!(session(env, "f")), "{at}");
    all_ended(env);
}

#[test]
fn a_fork_whose_original_went_on_or_is_gone_is_told_the_history_in_a_fresh_session() {
    let fresh = |env: &TestEnv, args: &[&str]| {
        let before = starts(env, 0).len();
        env.run(args).code(0);
        let start = starts(env, before).remove(0);
        assert_eq!((&start["resumed"], &start["knew"]), (&Value::Null, &json!(0)), "{args:?}");
    };
    let (env, before) = done_and_more();
    plans(&env, &json!({"steps": [[page("b")]]}));
    // An earlier turn; another job; another system prompt, which a session would go on with as it was.
    fresh(&env, &["fork", "r", "--at-turn", "1", "--run-id", "f"]);
    let other = env.write("other.json", json!({"prompt": "Do something else."}).to_string());
    fresh(&env, &["fork", "r", "--job-overrides", &other, "--run-id", "g"]);
    let system = env.write("system.json", json!({"model": {"system_prompt": "Be brief."}}).to_string());
    fresh(&env, &["fork", "r", "--job-overrides", &system, "--run-id", "h"]);
    assert_eq!(files(&folder(&env, "r")), before);
    // The session is gone.
    fs::remove_dir_all(folder(&env, "r")).unwrap();
    fresh(&env, &["fork", "r", "--run-id", "i"]);
    assert_eq!(env.comments().len(), 1);
}

/// Two iterations: a comment in the first, a mail and the promise in the second.
fn two_iterations() -> Value {
    json!({"iterations": [
        {"steps": [[post("one")]], "say": "The first part is done."},
        {"steps": [[mail()]], "say": "<promise>ALL DONE</promise>"},
    ]})
}

fn harness() -> Value {
    json!({"harness": {"max_iterations": 3, "completion_promise": "ALL DONE"}, "stop_conditions": ["email_sent_once"]})
}

#[test]
fn an_iteration_begins_in_an_empty_session() {
    let env = noting(&two_iterations());
    env.run(&["job", &job(&env, &harness()), "--run-id", "r"]).code(0);
    let starts = starts(&env, 0);
    assert_eq!(starts.len(), 2, "{starts:?}");
    for start in &starts {
        assert_eq!((&start["resumed"], &start["knew"]), (&Value::Null, &json!(0)), "{starts:?}");
    }
    assert_ne!(starts[0]["session"], starts[1]["session"]);
    assert_eq!(starts[1]["session"], json!(session(&env, "r")));
    assert_eq!(env.rows("SELECT DISTINCT response_id FROM turns").len(), 2);
    assert_eq!((env.comments().len(), env.mails().len()), (1, 1));
    assert_eq!(env.value("SELECT iteration_count FROM runs"), "2");
    all_ended(&env);
}

#[test]
fn a_kill_between_the_hand_off_and_the_first_event_begins_empty_again() {
    for point in [
        "before:store.enter_step#2",
        "after:store.enter_step#2",
        "before:model.complete#3",
        "after:model.complete#3",
        "after:store.record_turn#3",
        "after:store.commit_turn#3",
    ] {
        let env = noting(&two_iterations());
        env.run_killed_at(point, &["job", &job(&env, &harness()), "--run-id", "r"]);
        let first = starts(&env, 0)[0]["session"].clone();
        let killed = starts(&env, 0).len();
        env.run(&["resume", "r"]).code(0);
        for start in starts(&env, killed) {
            let began_before = env
                .rows("SELECT DISTINCT response_id FROM turns")
                .contains(&start["resumed"].as_str().unwrap_or("-").to_owned());
            assert_ne!(start["resumed"], first, "{point}: an iteration is not gone on with in the session of another");
            assert_eq!(start["resumed"].is_string(), began_before, "{point}: {start}");
        }
        assert_eq!((env.comments().len(), env.mails().len()), (1, 1), "{point}");
        assert_eq!(env.value("SELECT iteration_count FROM runs"), "2", "{point}");
        let owed = "SELECT count(*) FROM messages WHERE message_json LIKE '%make exactly these calls%post_comment%'";
        assert_eq!(env.value(owed), "0", "{point}: what an earlier iteration did is handed on, not owed");
        all_ended(&env);
    }
    // The agent alone, before its first reply in the second iteration.
    let mut plan = two_iterations();
    for at in ["reply", "waiting"] {
        let env = noting(&json!({}));
        plan["iterations"][1]["die"] = json!({"at": at, "mark": env.arg("died")});
        plans(&env, &plan);
        env.run(&["job", &job(&env, &harness()), "--run-id", "r"]).code(0);
        let first = starts(&env, 0)[0]["session"].clone();
        assert!(starts(&env, 1).iter().all(|start| start["resumed"] != first), "{at}");
        assert_eq!((env.comments().len(), env.mails().len()), (1, 1), "{at}");
        all_ended(&env);
    }
}
