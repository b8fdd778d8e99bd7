//! A provider that keeps the conversation, through the real program: kills before, during and after a reply, forks, and a provider
//! that has forgotten.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use rustix::process::Signal;
use serde_json::{Value, json};
use ua_e2e::{Live, Model, TestEnv, until};
use ua_testkit::{Fault, FaultKind, workspace_root};

use super::{env, undeclared};

/// A read, an effect, a last word; worded differently whenever it is asked.
fn turns() -> Value {
    json!([
        {"tools": [{"name": "mcp__forum__get_page", "input": {"text": "page {{request}}"}}]},
        {"text": "I comment.", "tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]},
        {"text": "Posted."},
    ])
}

fn job(env: &TestEnv, settings: &Value) -> String {
    let fields =
        json!({"tools": {"builtin": false}, "model": {"provider": "openai", "name": "gpt-5"}, "settings": settings});
    env.job(&fields, &json!([]))
}

fn kept_job(env: &TestEnv) -> String {
    job(env, &json!({"provider_sessions": true}))
}

fn world(model: &Model) -> TestEnv {
    env().with_forum().with_responses(model)
}

/// What each request continued from, in order.
fn continued_from(model: &Model) -> Vec<Option<String>> {
    model.log().into_iter().map(|request| request.continued_from).collect()
}

fn replies_of_turns(env: &TestEnv, run: &str) -> Vec<String> {
    env.rows(&format!("SELECT response_id FROM turns WHERE run_id = '{run}' ORDER BY turn"))
}

fn kill(process: Live) {
    process.signal(Signal::KILL);
    process.wait().killed();
}

/// The run has ended well: one comment, three turns, each request continued from the reply of the turn before, nothing refused.
fn check(env: &TestEnv, model: &Model) {
    assert_eq!((env.comments().len(), env.run_status().as_str()), (1, "succeeded"));
    let replies = replies_of_turns(env, "r");
    assert_eq!(replies.len(), 3);
    for row in env.rows("SELECT turn, coalesce(continued_from, '-') FROM usage") {
        let (turn, from) = row.split_once(' ').unwrap();
        let turn: usize = turn.parse().unwrap();
        let before = if turn == 1 { "-" } else { &replies[turn - 2] };
        assert_eq!(from, before, "turn {turn}");
    }
    assert_eq!(env.value("SELECT provider_session_id FROM runs WHERE run_id = 'r'"), replies[2]);
    assert!(model.log().iter().all(|request| request.status != 400), "{:?}", model.log());
    env.run(&["db", "check", "--invariants"]).code(0);
}

#[test]
fn a_process_that_is_killed_before_the_first_event_goes_on_from_the_last_committed_turn() {
    let model = Model::start(&turns(), vec![Fault::at(2, FaultKind::Hang)]);
    let env = world(&model);
    let process = env.start(&["job", &kept_job(&env), "--run-id", "r"]);
    until("the second request", || model.requests() == 2);
    kill(process);
    assert_eq!(env.rows("SELECT status, coalesce(response_id, '-') FROM usage WHERE turn = 2"), ["reserved -"]);
    env.run(&["resume", "r"]).code(0);
    check(&env, &model);
}

#[test]
fn a_reply_that_began_is_known_by_name_and_never_continued_from() {
    // Right after its first event, and in the middle of it.
    for events in [1, 6] {
        let model = Model::start(&turns(), vec![Fault::at(2, FaultKind::HangAfter { events })]);
        let env = world(&model);
        let process = env.start(&["job", &kept_job(&env), "--run-id", "r"]);
        let named = || env.try_rows("SELECT response_id FROM usage WHERE turn = 2 AND response_id IS NOT NULL");
        until("the name of the reply to be stored", || !named().is_empty());
        let tentative = named().remove(0);
        kill(process);
        env.run(&["resume", "r"]).code(0);
        check(&env, &model);
        assert!(!continued_from(&model).contains(&Some(tentative.clone())), "{tentative}");
        let rows = env.rows("SELECT status, response_id FROM usage WHERE turn = 2");
        assert_eq!(rows.len(), 2);
        // The lost reply may be billed. Its name and that it has begun are two notes, and the kill may come between them.
        let is_of = |status: &str| rows[0] == format!("{status} {tentative}");
        assert!(is_of("baseline") || is_of("partial"), "{events}: {}", rows[0]);
    }
}

#[test]
fn a_reply_counts_once_its_turn_is_committed() {
    for point in [
        // The write that records it starts its first call, and the one that commits it has the answer: who dies between these is asked
        // about the call.
        "before:store.record_turn#2",
        "after:store.commit_turn#2",
        "before:store.note_response#2",
        "after:store.note_response#2",
    ] {
        let model = Model::start(&turns(), Vec::new());
        let env = world(&model);
        env.run_killed_at(point, &["job", &kept_job(&env), "--run-id", "r"]);
        env.run(&["resume", "r"]).code(0);
        check(&env, &model);
    }
}

#[test]
fn only_what_is_new_is_sent_and_all_of_it_is_counted() {
    let model = Model::start(&turns(), Vec::new());
    let env = world(&model);
    env.run(&["job", &kept_job(&env), "--run-id", "r"]).code(0);
    check(&env, &model);
    let last = model.last_request();
    let kinds: Vec<&str> = last["input"].as_array().unwrap().iter().filter_map(|item| item["type"].as_str()).collect();
    assert_eq!((kinds.as_slice(), last["store"].as_bool()), (["function_call_output"].as_slice(), Some(true)));
    assert_eq!(last["previous_response_id"], replies_of_turns(&env, "r")[1]);
    let estimates = env.rows("SELECT estimated_tokens FROM usage ORDER BY request_id");
    let estimates: Vec<u64> = estimates.iter().map(|tokens| tokens.parse().unwrap()).collect();
    assert!(
        estimates.is_sorted() && estimates[0] < estimates[2],
        "a reservation is for the whole context: {estimates:?}"
    );
}

#[test]
fn a_provider_that_has_forgotten_is_sent_the_whole_history_and_it_is_said() {
    let model = Model::start(&turns(), Vec::new());
    let env = world(&model);
    env.run_killed_at("after:store.commit_turn#2", &["job", &kept_job(&env), "--run-id", "r"]);
    model.forget_replies();
    env.start_with(("UA_PROGRESS", "lines"), &["resume", "r"]).wait().code(0).says(&["has forgotten the conversation"]);
    assert_eq!((env.comments().len(), env.run_status().as_str()), (1, "succeeded"));
    let rows = env.rows("SELECT status, input_tokens > 0, continued_from IS NULL FROM usage WHERE turn = 3");
    assert_eq!(rows, ["zero 0 0", "actual 1 1"]);
    assert_eq!(model.log().last().unwrap().messages, 7, "the resume note is a message too");
}

#[test]
fn a_fork_continues_its_parents_conversation_from_the_turn_it_shares() {
    let model = Model::start(&turns(), Vec::new());
    let env = undeclared(world(&model));
    env.run(&["job", &kept_job(&env), "--run-id", "r"]).code(0);
    let parent = replies_of_turns(&env, "r");
    // The comment may be the parent's: a person is asked, and nothing is posted again.
    env.run(&["fork", "r", "--at-turn", "1", "--run-id", "f"]).code(75);
    assert_eq!(continued_from(&model)[3].as_ref(), Some(&parent[0]));
    assert_eq!(env.value("SELECT provider_session_forked_from FROM runs WHERE run_id = 'f'"), parent[0]);
    let question = env.value("SELECT question_id FROM questions WHERE status <> 'closed'");
    env.run(&["answer", &question, "skip"]).code(0);
    env.run(&["resume", "f"]).code(0);
    assert_eq!(continued_from(&model)[4].as_ref(), Some(&replies_of_turns(&env, "f")[0]));
    // The parent's conversation is what it was.
    assert_eq!((replies_of_turns(&env, "r"), env.comments().len()), (parent, 1));
    assert!(model.log().iter().all(|request| request.status == 200));
}

#[test]
fn nothing_is_kept_unless_the_job_or_the_user_says_so() {
    let model = Model::start(&turns(), Vec::new());
    let env = world(&model);
    env.run(&["job", &job(&env, &json!({})), "--run-id", "r"]).code(0);
    assert_eq!((model.kept_replies(), continued_from(&model)), (Vec::new(), vec![None, None, None]));
    assert_eq!(model.last_request()["store"], false);
    assert_eq!(env.value("SELECT count(*) FROM usage WHERE response_id IS NOT NULL"), "0");

    let model = Model::start(&turns(), Vec::new());
    let env = world(&model).with_env("UA_PROVIDER_SESSIONS", "true");
    env.run(&["job", &job(&env, &json!({})), "--run-id", "r"]).code(0);
    check(&env, &model);
    let model = Model::start(&turns(), Vec::new());
    let env = world(&model).with_env("UA_PROVIDER_SESSIONS", "true");
    env.run(&["job", &job(&env, &json!({"provider_sessions": false})), "--run-id", "r"]).code(0);
    assert_eq!(model.kept_replies(), Vec::<String>::new());
}

#[test]
fn the_research_job_runs_through_the_responses_api() {
    let jobs = workspace_root().join("fixtures/jobs").canonicalize().unwrap();
    let script = std::fs::read_to_string(workspace_root().join("fixtures/scripts/research_report.json")).unwrap();
    let model = Model::with(&script.replace("${JOB_DIR}", &jobs.display().to_string()), |_| ());
    let env = env().with_pdf().with_responses(&model).with_env("UA_PROVIDER_SESSIONS", "true");
    let job = jobs.join("research_report.json").display().to_string();
    env.run(&["job", &job, "--provider", "openai", "--model", "a-model", "--run-id", "r"]).code(0);
    assert_eq!(env.effects(), [1, 1, 1, 0]);
    assert_eq!(model.requests(), 7);
    assert!(model.log().iter().all(|request| request.status == 200), "{:?}", model.log());
}

#[test]
fn a_key_is_needed_and_clear_text_leaves_this_machine_for_nobody() {
    let env = env().with_forum();
    let job = job(&env, &json!({}));
    env.run(&["job", &job]).refused(2, &["no API key for the provider `openai`", "OPENAI_API_KEY"]);
    let env = env.with_env("OPENAI_API_KEY", "sk-secret").with_env("OPENAI_BASE_URL", "http://models.example.com/v1");
    let output = env.run(&["job", &job]).refused(2, &["OPENAI_BASE_URL", "https"]);
    assert!(!output.shown().contains("sk-secret"));
}
