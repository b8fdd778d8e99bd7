//! The model provider over HTTP: what goes through, what is tried again, and what stops the run without losing anything.

use rustix::process::Signal;
use serde_json::{Value, json};
use ua_e2e::{Model, TestEnv, until};
use ua_testkit::{Fault, FaultKind, workspace_root};

use super::env;

fn comment() -> Value {
    json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "request {{request}}"}}]}, {"text": "Posted."}])
}

/// A job for the model of `env`, with the tool server `forum` only.
fn job(env: &TestEnv) -> String {
    env.job(&json!({"tools": {"builtin": false}, "model": {"provider": "anthropic", "name": "scripted"}}), &json!([]))
}

#[test]
fn the_research_job_runs_through_a_real_model_server() {
    let jobs = workspace_root().join("fixtures/jobs").canonicalize().unwrap();
    let script = std::fs::read_to_string(workspace_root().join("fixtures/scripts/research_report.json")).unwrap();
    let model = Model::with(&script.replace("${JOB_DIR}", &jobs.display().to_string()), |_| ());
    let env = env().with_pdf().with_model(&model);
    let job = jobs.join("research_report.json").display().to_string();
    env.run(&["job", &job, "--provider", "anthropic", "--model", "a-model", "--run-id", "r"]).code(0);
    assert_eq!(env.effects(), [1, 1, 1, 0]);
    assert_eq!(model.requests(), 7);
    assert!(model.log().iter().all(|request| request.status == 200 && request.fault.is_none()), "{:?}", model.log());
    let last = model.last_request();
    assert_eq!(last["model"], "a-model");
    assert!(last["messages"][0].to_string().contains("tide mills"));
    assert_eq!(env.value("SELECT count(*) FROM usage WHERE status = 'actual'"), "7");
}

#[test]
fn a_provider_that_cannot_be_reached_stops_the_run_until_it_can() {
    // Bound and let go again: a port on which nobody listens.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let env = env().with_forum().with_env("ANTHROPIC_API_KEY", "a-key");
    let fields = json!({"tools": {"builtin": false}, "model": {"provider": "anthropic", "name": "scripted"},
                        "budgets": {"max_provider_wait_minutes": 0}});
    let job = env.job(&fields, &json!([]));
    let output = env
        .start_with(("ANTHROPIC_BASE_URL", &format!("http://{nobody}")), &["job", &job, "--run-id", "r"])
        .wait()
        .code(69);
    output.shows(&["stopped (provider)", &nobody.to_string(), "ua resume r"]);
    assert_eq!((env.calls(), env.comments()), (Vec::new(), Vec::new()));
    // Nothing left, so nothing is charged.
    assert_eq!(env.rows("SELECT status, network_attempted, input_tokens FROM usage"), ["zero 0 0"]);

    // Where the address is another server's, which it is as well where nobody sets it, nothing of the run goes there.
    let servers = [&format!("http://{nobody}"), "https://api.anthropic.com", "set ANTHROPIC_BASE_URL"];
    env.run(&["resume", "r"]).refused(2, &servers);
    let model = Model::start(&comment(), Vec::new());
    env.start_with(("ANTHROPIC_BASE_URL", model.base_url()), &["resume", "r"]).wait().code(0);
    assert_eq!(env.comments().len(), 1);
}

/// It is said once that nobody answers, with until when it is tried and how to stop; that it is tried again and again is in the log.
#[test]
fn a_provider_that_cannot_be_reached_is_told_of_once() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let env = env().with_forum().with_env("ANTHROPIC_API_KEY", "a-key");
    let env = env.with_env("ANTHROPIC_BASE_URL", &format!("http://{nobody}"));
    let process = env.start(&["job", &job(&env), "--run-id", "r"]);
    until("a line about it", || process.stderr().contains(" failed ("));
    let log = env.workspace().join("run.log");
    until("the third attempt", || std::fs::read_to_string(&log).is_ok_and(|log| log.contains("attempt 3 failed")));
    process.signal(Signal::INT);
    let output = process.wait().code(130);
    let told = &output.stderr;
    assert_eq!(told.matches(&nobody.to_string()).count(), 1, "{told}");
    assert_eq!((told.matches(" failed (").count(), told.matches("· thinking").count()), (1, 1), "{told}");
    assert!(!told.contains("nothing was sent"), "{told}");
    output.says(&["trying again in 1 s", ", until ", "Ctrl-C stops the run, and `ua resume r", "continues it"]);
}

#[test]
fn a_key_that_is_refused_is_named_as_the_reason() {
    let model = Model::with(&json!({"turns": comment()}).to_string(), |config| {
        config.api_key = Some("the-right-key".to_owned());
    });
    let env = env().with_forum().with_env("ANTHROPIC_BASE_URL", model.base_url());
    let wrong = ("ANTHROPIC_API_KEY", "the-wrong-key");
    let output = env.start_with(wrong, &["job", &job(&env), "--run-id", "r"]).wait().code(75);
    assert!(!output.shown().contains("the-wrong-key"), "{}", output.shown());
    output.shows(&["waiting for you", "refused the credentials", "401", "ANTHROPIC_API_KEY", "ua resume r"]);
    // A refusal is no hiccup: it is not tried again, and not before a person says that it is mended.
    env.start_with(wrong, &["resume", "r"]).wait().code(75);
    assert_eq!((model.requests(), env.comments().len()), (1, 0));
    let question = env.value("SELECT question_id FROM questions WHERE kind = 'auth_failure'");
    env.run(&["answer", &question, "continue"]).code(0);
    env.start_with(("ANTHROPIC_API_KEY", "the-right-key"), &["resume", "r"]).wait().code(0);
    assert_eq!(env.comments().len(), 1);
}

/// A provider that asks for a longer wait than the run may wait: nothing is waited for, and the command that is shown has what allows the wait.
#[test]
fn a_wait_that_is_too_long_stops_the_run_at_once_and_its_command_allows_it() {
    let asks = |seconds: u32| FaultKind::RateLimited { retry_after: Some(seconds.to_string()) };
    let model = Model::start(&comment(), vec![Fault::at(1, asks(7_200)), Fault::at(2, asks(1_200))]);
    let env = env().with_forum().with_model(&model);
    let output = env.run(&["job", &job(&env), "--run-id", "r"]).code(69);
    let flags = "--max-provider-wait-minutes 121 --max-wallclock-minutes +121";
    output.shows(&["stopped (provider)", "It asks for a wait of 2 h", &format!("ua resume r {flags}")]);
    // With less time than the patience, it is the time that is named, and alone.
    let time = ["resume", "r", "--max-wallclock-minutes", "10"];
    env.run(&time).code(69).shows(&["of its time left", "ua resume r --max-wallclock-minutes +21"]);
    assert_eq!(model.requests(), 2);
    let mut with_flags = vec!["resume", "r"];
    with_flags.extend(flags.split(' '));
    env.run(&with_flags).code(0);
    assert_eq!(env.comments().len(), 1);
}

/// The key of an account that cannot pay is right: nobody is sent to look for another.
#[test]
fn an_account_that_cannot_pay_is_asked_about_as_that() {
    let model = Model::start(&comment(), vec![Fault::at(1, FaultKind::Status { status: 402 })]);
    let env = env().with_forum().with_model(&model);
    let output = env.run(&["job", &job(&env), "--run-id", "r"]).code(75);
    assert!(!output.shown().contains("valid key"), "{}", output.shown());
    output.shows(&["waiting for you", "account cannot pay for the request (HTTP 402)", "add credit"]);
    let question = env.value("SELECT question_id FROM questions WHERE kind = 'auth_failure'");
    env.run(&["answer", &question, "retry"]).code(0);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.comments().len(), 1);
}

#[test]
fn a_job_that_asks_nobody_about_credentials_stops_when_its_key_is_refused() {
    let model = Model::with(&json!({"turns": comment()}).to_string(), |config| {
        config.api_key = Some("the-right-key".to_owned());
    });
    let env = env().with_forum().with_env("ANTHROPIC_BASE_URL", model.base_url());
    let fields = json!({"tools": {"builtin": false}, "model": {"provider": "anthropic", "name": "scripted"},
                        "escalation": {"ask_human_on_auth_failure": false}});
    let job = env.job(&fields, &json!([]));
    let output = env.start_with(("ANTHROPIC_API_KEY", "the-wrong-key"), &["job", &job, "--run-id", "r"]).wait();
    output.code(69).shows(&["stopped (provider refused)", "Once corrected", "401", "ANTHROPIC_API_KEY", "ua resume r"]);
    env.start_with(("ANTHROPIC_API_KEY", "the-right-key"), &["resume", "r"]).wait().code(0);
    assert_eq!(env.comments().len(), 1);
}

#[test]
fn an_overloaded_provider_is_asked_again() {
    let model = Model::start(&comment(), vec![Fault::at(1, FaultKind::Overloaded529)]);
    let env = env().with_forum().with_model(&model);
    env.run(&["job", &job(&env)]).code(0).says(&["model · attempt 1 failed", "again in"]);
    assert_eq!(env.comments(), ["{\"text\":\"request 2\"}"]);
}

#[test]
fn no_call_of_a_reply_that_was_cut_is_run() {
    let faults =
        [FaultKind::CutMidStream, FaultKind::EndWithoutStop].into_iter().zip(1..).map(|(kind, n)| Fault::at(n, kind));
    let model = Model::start(&comment(), faults.collect());
    let env = env().with_forum().with_model(&model);
    env.run(&["job", &job(&env)]).code(0);
    // The third answer is the first whole one, and the only one whose call was made.
    assert_eq!(env.comments(), ["{\"text\":\"request 3\"}"]);
    assert_eq!(env.calls(), ["post_comment succeeded"]);
    assert_eq!(model.requests(), 4);
}

#[test]
fn a_reply_that_hit_its_length_limit_runs_nothing_and_is_asked_for_again() {
    let turns = json!([
        {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "cut"}}], "stop_reason": "max_tokens"},
        {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "whole"}}],
         "expect": {"contains": ["Not run: the reply was cut"], "tool_result_ok": false}},
        {"text": "Posted."},
    ]);
    let model = Model::start(&turns, Vec::new());
    let env = env().with_forum().with_model(&model);
    env.run(&["job", &job(&env)]).code(0);
    assert_eq!(env.comments(), ["{\"text\":\"whole\"}"]);
}

/// Thoughts count as part of a reply: what they used up is no piece of an answer. Where the job says nothing of how long a reply may be, the next ones
/// may be longer; else a person is asked, about the field that says it.
#[test]
fn a_reply_that_thoughts_used_up_is_followed_by_longer_ones_or_a_question() {
    let thinks = |tokens: u32| {
        let usage = json!({"input_tokens": 500, "output_tokens": tokens});
        json!({"thinking": "Let me see.", "stop_reason": "max_tokens", "usage": usage})
    };
    let model = Model::start(&json!([thinks(8_192), {"text": "Done."}]), Vec::new());
    let env = env().with_forum().with_model(&model);
    env.run(&["job", &job(&env)]).code(0);
    assert_eq!((model.requests(), &model.last_request()["max_tokens"]), (2, &json!(32_768)));
    assert!(model.last_request().to_string().contains("Think less"));

    let model = Model::start(&json!(vec![thinks(300); 4]), Vec::new());
    let env = self::env().with_forum().with_model(&model);
    let says = json!({"provider": "anthropic", "name": "scripted", "max_output_tokens": 300});
    let job = env.job(&json!({"tools": {"builtin": false}, "model": says}), &json!([]));
    env.run(&["job", &job]).code(75).shows(&["waiting for you", "`max_output_tokens`"]);
    assert_eq!((model.requests(), &model.last_request()["max_tokens"]), (4, &json!(300)));
}

#[test]
fn a_signal_while_the_model_thinks_ends_at_once_and_the_model_is_asked_again() {
    let model = Model::start(&comment(), vec![Fault::at(1, FaultKind::Hang)]);
    let env = env().with_forum().with_model(&model);
    let process = env.start(&["job", &job(&env), "--run-id", "r"]);
    until("the request", || model.requests() == 1);
    process.signal(Signal::INT);
    process.wait().code(130).shows(&["stopped (interrupted)", "ua resume r"]);
    // The request left and was not answered: it is charged by its estimate.
    assert_eq!(env.rows("SELECT status FROM usage"), ["baseline"]);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.comments(), ["{\"text\":\"request 2\"}"]);
}

#[test]
fn an_outage_is_waited_for_and_a_signal_ends_the_wait() {
    let faults = (1..=6).map(|n| Fault::at(n, FaultKind::Overloaded529)).collect();
    let model = Model::start(&comment(), faults);
    let env = env().with_forum().with_model(&model);
    let process = env.start(&["job", &job(&env), "--run-id", "r"]);
    until("the third attempt", || model.requests() == 3);
    process.signal(Signal::INT);
    process.wait().code(130);
    assert_eq!(env.comments().len(), 0);
    assert!(env.rows("SELECT status FROM usage").iter().all(|status| status == "zero"));
}

#[test]
fn a_refusal_is_told_once_and_is_no_success() {
    let refused = json!({"text": "I cannot help with that.", "stop_reason": "refusal"});
    let model = Model::start(&json!([refused, refused]), Vec::new());
    let env = env().with_forum().with_model(&model);
    let output = env.run(&["job", &job(&env), "--run-id", "r"]).code(75);
    output.shows(&["waiting for you", "refused", "I cannot help with that."]);
    assert_eq!((model.requests(), env.value("SELECT status FROM runs")), (2, "waiting_for_human".to_owned()));
}

/// What a refused reply asks for is not sent, in no life of the run, and progress says so of each call; the second refusal is one, wherever the
/// process died between them.
#[test]
fn the_calls_of_a_refused_reply_are_told_as_not_run_and_never_sent() {
    let comments = [comment()[0]["tools"][0].clone(), comment()[0]["tools"][0].clone()];
    let refused = json!({"text": "I cannot help with that.", "stop_reason": "refusal", "tools": comments});
    for is_killed in [false, true] {
        let model = Model::start(&json!([refused, refused]), Vec::new());
        let env = env().with_forum().with_model(&model);
        let file = job(&env);
        let args = ["job", file.as_str(), "--run-id", "r"];
        let output = if is_killed {
            env.run_killed_at("before:model.complete#2", &args);
            env.run(&["resume", "r"]).code(75)
        } else {
            env.run(&args).code(75)
        };
        let output =
            output.shows(&["waiting for you", "The model refused", "twice in a row", "I cannot help with that."]);
        assert_eq!((model.requests(), env.comments().len()), (2, 0), "{}", output.shown());
        let folder = env.workspace();
        let log = std::fs::read_to_string(folder.join("run.log")).unwrap();
        for (turn, call) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
            let told = format!("turn {turn} · call {call} · post_comment not run: the reply was refused or withheld");
            assert_eq!(log.matches(&told).count(), 1, "{told}: {log}");
        }
    }
}
