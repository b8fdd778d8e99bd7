//! Providers that are away, or refuse: what a worker tries again by itself, and what it leaves for somebody to correct.

use serde_json::{Value, json};
use ua_e2e::{Model, TestEnv, until};
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
    for (refusal, reason, way) in [
        (404, "unknown_model", "`ua fork r --model claude-sonnet-4-5`"),
        (400, "provider_refused", "`ua fork r --job-overrides FILE`"),
    ] {
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

/// A run whose sub-agents meet these faults, one after the other; the run at the top has one reply before.
fn failing_sub_agent(faults: &[&FaultKind], budgets: &Value) -> (TestEnv, Model, String) {
    let script = r#"{
      "turns": [
        {"tools": [{"name": "mcp__ua_agents__task", "input": {"description": "Ask", "prompt": "ALPHA"}}]},
        {"text": "All done."}],
      "conversations": [{"when": "ALPHA", "turns": [{"text": "Asked."}]}]}"#;
    let faults = faults.iter().zip(2..).map(|(kind, request)| Fault::at(request, (*kind).clone())).collect();
    let model = Model::with(script, |config| config.faults = faults);
    let env = super::super::env().with_model(&model);
    let fields = json!({
        "tools": {"builtin": false}, "model": {"provider": "anthropic", "name": "scripted"}, "subagents": {}, "budgets": budgets,
    });
    let job = env.job(&fields, &json!([]));
    (env, model, job)
}

/// What the provider of a sub-agent asks for holds for its run as if it had asked there: one request, by whatever worker, and also where the first
/// one was killed before the queue knew.
#[test]
fn a_wait_that_a_sub_agents_provider_asks_for_is_heeded_by_every_worker() {
    let asks = FaultKind::RateLimited { retry_after: Some("7200".to_owned()) };
    for killed in [None, Some("after:store.end_run"), Some("after:store.end_run#2")] {
        let (env, model, job) = failing_sub_agent(&[&asks; 8], &json!({}));
        env.run(&["submit", &job, "--run-id", "r"]).code(0);
        if let Some(point) = killed {
            env.run_killed_at(point, &["worker", "--until-empty"]);
        }
        for _ in 0..2 {
            let left = env.run(&["worker", "--until-empty"]).code(75);
            left.says(&["r: the model provider is not available and asks for a wait: tried again at 20", "sub-agent "]);
        }
        let queue = rows(&env, &["queue", "list"]);
        assert!(queue[0]["why"].as_str().unwrap().contains("asks for a wait: tried again at 20"), "{queue:?}");
        assert_eq!((state(&env, "r"), model.requests()), ("ready".to_owned(), 2), "{killed:?}");
        let flags = "--max-provider-wait-minutes 121 --max-wallclock-minutes +121";
        let (moved, resumed) = (format!("ua queue move r {flags}"), format!("ua resume r {flags}"));
        env.run(&["runs", "show", "r"]).code(0).shows(&["It asks for a wait of 2 h (until 20", &moved]);
        let child = env.value("SELECT run_id FROM runs WHERE run_mode = 'task'");
        env.run(&["runs", "show", &child]).code(0).shows(&[&resumed]);
        // A person may have it tried sooner.
        env.run(&["queue", "move", "r"]).code(0);
        env.run(&["worker", "--until-empty"]).code(75);
        assert_eq!(model.requests(), 3, "{killed:?}");
    }
}

/// How long is waited is a matter of the whole tree: the flags that are printed are those of the run at the top, and its sub-agent waits by them.
#[test]
fn the_flags_that_allow_a_wait_reach_the_sub_agent_that_waits() {
    let asks = FaultKind::RateLimited { retry_after: Some("1".to_owned()) };
    let (env, model, job) = failing_sub_agent(&[&asks; 3], &json!({"max_provider_wait_minutes": 0}));
    let flags = "--max-provider-wait-minutes 2";
    let output = env.run(&["job", &job, "--run-id", "r"]).code(69);
    output.shows(&["sub-agent ", "It asks for a wait of 1 s", &format!("ua resume r {flags}")]);
    assert_eq!(model.requests(), 2);
    let mut raised = vec!["resume", "r"];
    raised.extend(flags.split(' '));
    env.run(&raised).code(0);
    assert_eq!((status(&env, "r"), model.requests()), ("succeeded".to_owned(), 6));
    let waits = "SELECT run_mode || ' ' || value_json FROM overrides JOIN runs USING (run_id) ORDER BY run_mode";
    assert_eq!(env.rows(waits), ["job 2", "task 2"]);
}

/// What a provider refuses a sub-agent it refuses again: the run is left for somebody to correct.
#[test]
fn a_refused_request_of_a_sub_agent_is_not_sent_again_by_a_worker() {
    let refused = FaultKind::Status { status: 404 };
    let (env, model, job) = failing_sub_agent(&[&refused; 8], &json!({}));
    env.run(&["submit", &job, "--run-id", "r"]).code(0);
    env.run(&["worker", "--until-empty"])
        .code(75)
        .says(&["run r is stopped: sub-agent ", "`ua fork r --model claude-sonnet-4-5`"]);
    env.run(&["worker", "--until-empty"]).code(75);
    assert_eq!((state(&env, "r"), model.requests()), ("parked".to_owned(), 2));
    assert_eq!(env.value("SELECT stop_reason FROM runs WHERE run_id = 'r'"), "unknown_model");
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

/// While a worker waits for a provider, its run is stored as running: wherever somebody looks it is said that it waits, since when, why and until
/// when, and nobody is told to resume it.
#[test]
fn a_run_that_waits_for_its_provider_says_so_wherever_somebody_looks() {
    let (env, _model) = failing(&FaultKind::Overloaded529);
    let worker = env.start(&["worker", "--name", "w"]);
    let waiting = "waiting for its provider since 20";
    until("the worker says so", || worker.stderr().contains(&format!("run r: {waiting}")));
    let said = |text: &str| {
        assert!(text.contains(waiting) && text.contains("overloaded") && text.contains(", until 20"), "{text}");
        assert!(!text.contains("resume"), "{text}");
    };
    said(&worker.stderr());
    for command in [&["status"][..], &["runs", "list"], &["queue", "list"]] {
        said(&env.run(command).code(0).stdout);
    }
    env.run(&["runs", "show", "r"]).code(0).shows(&["Status         running", &format!("Waits          {waiting}")]);
    said(rows(&env, &["queue", "list"])[0]["why"].as_str().unwrap());
    let status = env.run(&["status", "--json"]).code(0).json();
    said(status["runs"][0]["waits"].as_str().unwrap());
    // Nobody drives it any more: what its log ends with is over.
    worker.signal(rustix::process::Signal::KILL);
    worker.wait().killed();
    let status = env.run(&["status", "--json"]).code(0).json();
    assert_eq!(status["runs"][0]["waits"], json!(null));
}

/// A run whose patience is over stays in the queue: a worker tries it again by itself, and says so where a person would be told to resume it.
#[test]
fn a_run_that_is_tried_again_by_itself_is_not_to_be_resumed() {
    let faults = (1..=20).map(|request| Fault::at(request, FaultKind::Overloaded529)).collect();
    let model = Model::start(&json!([{"text": "Done."}]), faults);
    let env = super::super::env().with_model(&model);
    let fields = json!({
        "tools": {"builtin": false}, "model": {"provider": "anthropic", "name": "a-model"}, "budgets": {"max_provider_wait_minutes": 0},
    });
    let job = env.job(&fields, &json!([]));
    env.run(&["submit", &job, "--run-id", "r", "--provider", "anthropic", "--model", "a-model"]).code(0);
    let worker = env.start(&["worker"]);
    until("it is given back", || status(&env, "r") == "stopped" && state(&env, "r") == "ready");
    let shown =
        env.run(&["status"]).code(0).shows(&["stopped (provider), and a worker tries it again by itself: run r"]);
    assert!(!shown.stdout.contains("resume"), "{}", shown.shown());
    let why = rows(&env, &["queue", "list"])[0]["why"].as_str().unwrap().to_owned();
    assert!(why.contains("is asked again every 30 s: ") && !why.contains("resume"), "{why}");
    assert!(worker.stderr().contains("it is tried again every 30 s"), "{}", worker.stderr());
    worker.signal(rustix::process::Signal::TERM);
    worker.wait().code(0);
}
