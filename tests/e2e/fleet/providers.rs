//! Providers that are away, or refuse: what a worker tries again by itself, and what it leaves for somebody to correct.

use serde_json::{Value, json};
use ua_e2e::{Model, TestEnv};
use ua_testkit::{Fault, FaultKind};

use super::{rows, state, status};

/// A world whose model fails at every request like this.
fn failing(kind: &FaultKind) -> (TestEnv, Model) {
    let faults = (1..=20).map(|request| Fault::at(request, kind.clone())).collect();
    let model = Model::start(&json!([{"text": "Done."}]), faults);
    let env = super::super::env().with_model(&model);
    let fields = json!({"tools": {"builtin": false}, "model": {"provider": "anthropic", "name": "a-model"}});
    let job = env.job(&fields, &json!([]));
    env.run(&["submit", &job, "--run-id", "r", "--provider", "anthropic", "--model", "a-model"]).code(0);
    (env, model)
}

/// A command that writes each alert into a file of the world.
fn alerted(env: TestEnv) -> TestEnv {
    let command = json!(["/bin/sh", "-c", format!("cat >> {}", env.arg("alerts.jsonl"))]).to_string();
    env.with_env("UA_ALERT_COMMAND", &command).with_env("UA_ALERT_ON", "waiting,ended")
}

fn alerts(env: &TestEnv) -> Vec<Value> {
    let text = std::fs::read_to_string(env.path("alerts.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What a provider refuses it refuses again: one request, the reason, and the command that gets further.
#[test]
fn a_refused_request_is_not_sent_again_by_a_worker() {
    for (refusal, reason, way) in
        [(404, "unknown_model", "`ua fork r --model MODEL`"), (400, "provider_refused", "`ua resume r`")]
    {
        let (env, model) = failing(&FaultKind::Status { status: refusal });
        env.run(&["worker", "--until-empty"]).code(75).says(&["run r is stopped: ", way]);
        let sent = model.requests();
        assert!((1..=3).contains(&sent), "{refusal}: {sent}, a cut history and all");
        env.run(&["worker", "--until-empty"]).code(75).says(&["r: ", way]);
        assert_eq!((state(&env, "r"), model.requests()), ("parked".to_owned(), sent), "{refusal}");
        assert_eq!(env.value("SELECT stop_reason FROM runs"), reason);
        assert_eq!(status(&env, "r"), "stopped");
    }
}

/// A provider that asks for a wait of hours is asked once, by whichever worker; the queue says until when, and a person is told once.
#[test]
fn a_provider_that_asks_for_a_long_wait_gets_it_from_every_worker() {
    let (env, model) = failing(&FaultKind::RateLimited { retry_after: Some("7200".to_owned()) });
    let env = alerted(env);
    let left = env.run(&["worker", "--until-empty"]).code(75);
    left.says(&["run r: the model provider is not available and asks for a wait: tried again at 20"]);
    // A worker that knows nothing of it does not stay for it either.
    env.run(&["worker", "--until-empty"]).code(75).says(&["asks for a wait: tried again at 20"]);
    let queue = rows(&env, &["queue", "list"]);
    assert!(queue[0]["why"].as_str().unwrap().contains("asks for a wait: tried again at 20"), "{queue:?}");
    assert_eq!((state(&env, "r"), model.requests()), ("ready".to_owned(), 1));
    // A person may have it tried sooner, and hears nothing new of it.
    env.run(&["queue", "move", "r"]).code(0);
    env.run(&["worker", "--until-empty"]).code(75);
    assert_eq!(model.requests(), 2);
    let told = alerts(&env);
    assert_eq!(
        (told.len(), &told[0]["is_tried_again"], &told[0]["stop_reason"]),
        (1, &json!(true), &json!("provider"))
    );
}

/// Whoever works until nothing is left has not done so when a run is left whose setup changed; a question is said where it is.
#[test]
fn a_run_whose_tools_changed_is_no_success_of_who_works_until_nothing_is_left() {
    let env = super::super::env().with_forum();
    let post = json!({"name": "mcp__forum__post_comment", "input": {"text": "hello"}});
    let fields = json!({"tools": {"builtin": false}, "escalation": {"ask_human_before": ["post_*"]}});
    let job = env.job(&fields, &json!([{"tools": [post]}, {"text": "Done."}]));
    env.run(&["submit", &job, "--run-id", "r"]).code(0);
    env.run(&["worker", "--until-empty"]).code(0);
    assert_eq!((state(&env, "r"), status(&env, "r")), ("parked".to_owned(), "waiting_for_human".to_owned()));
    let changed = env.forum_entry(&["--describe", "Posts a comment to everybody."]);
    env.mcp_config("work/.mcp.json", &json!({"forum": changed}));
    env.run(&["answer", &env.value("SELECT question_id FROM questions"), "approve"]).code(0);
    env.run(&["queue", "move", "r", "--accept", "servers"]).code(0);
    for _ in 0..2 {
        let left = env.run(&["worker", "--until-empty"]).code(75);
        left.says(&["r: ", "`ua resume r --accept tools` finishes it"]);
    }
    assert_eq!((state(&env, "r"), env.comments().len()), ("parked".to_owned(), 0));
    // What was approved was another definition.
    env.run(&["resume", "r", "--accept", "tools"]).code(75);
    env.run(&["answer", &env.value("SELECT question_id FROM questions WHERE status = 'open'"), "approve"]).code(0);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.comments().len(), 1);
}
