//! Long jobs in iterations: forty of them under random kills, what a promise is worth, what is handed on, and the research that is kept.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};
use ua_core::{Entropy as _, SeededEntropy};
use ua_e2e::{Model, TestEnv, until};

use super::env;

fn tool(name: &str, input: &Value) -> Value {
    json!({"tools": [{"name": format!("mcp__ua__{name}"), "input": input}]})
}

fn mail(subject: &str) -> Value {
    tool("send_email", &json!({"to": ["team@example.test"], "subject": subject, "body": "It is done."}))
}

fn note(n: u32) -> Value {
    tool("write_local_file", &json!({"path": format!("work_products/{n}.md"), "content": format!("note {n}")}))
}

fn say(text: &str) -> Value {
    json!({ "text": text })
}

const PROMISE: &str = "<promise>ALL DONE</promise>";

/// A rule of the forum that does not say what a comment is.
const FORUM: &str = "[[rule]]\nid = \"r\"\nserver = \"forum\"\nname = \"post_comment\"\nside_effect_class = \"external\"\n\
                     on_unknown = \"hold\"\n";

/// Forty iterations: one call with an effect in each, of five kinds, and the reply that ends it. The model words notifications and
/// comments differently each time it is asked.
fn forty() -> Value {
    let mut turns = Vec::new();
    for n in 1..=40_u32 {
        turns.push(match n % 5 {
            0 => json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": format!("comment {n}, says request {{{{request}}}}")}}]}),
            1 => mail(&format!("Part {n}")),
            2 => note(n),
            3 => tool("upload", &json!({"path": format!("work_products/{}.md", n - 1)})),
            _ => tool("notify", &json!({"message": format!("part {n} is out, says request {{{{request}}}}")})),
        });
        turns.push(say(&if n < 40 {
            format!("Iteration {n} is done.")
        } else {
            format!("Everything is done. {PROMISE}")
        }));
    }
    json!(turns)
}

/// Answers what is asked about a comment with what the forum has.
fn answer_by_looking(env: &TestEnv) {
    for row in env.rows("SELECT question_id, tool_call_id FROM questions WHERE status = 'open'") {
        let (question, call) = row.split_once(' ').unwrap();
        let asked =
            env.value(&format!("SELECT request_ref ->> '$.text' FROM tool_calls WHERE tool_call_id = '{call}'"));
        let number = asked.split(',').next().unwrap();
        let happened = env.comments().iter().any(|comment| comment.contains(&format!("{number},")));
        env.run(&["answer", question, if happened { "happened" } else { "execute" }]).code(0);
    }
}

/// A seeded number from `low` up to and without `high`.
fn between(random: &SeededEntropy, low: u64, high: u64) -> u64 {
    low + random.next_u64() % (high - low)
}

/// What decides the kills; `UA_SEED` says otherwise.
#[expect(clippy::disallowed_methods, reason = "a test's seed comes from whoever plays it again")]
fn seed() -> u64 {
    std::env::var("UA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7)
}

/// A hand-off that is gone is written again: what the records say of that moment, with today's files.
fn check_export(env: &TestEnv, before: &Value) {
    let file = env.workspace().join("handoff.json");
    fs::remove_file(&file).unwrap();
    env.run(&["runs", "export", "r"]).code(0).shows(&["handoff.json"]);
    let mut after: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let mut before = before.clone();
    for handoff in [&mut after, &mut before] {
        handoff["evidence"]["artifacts"].take();
    }
    assert_eq!(after, before);
}

#[test]
fn forty_iterations_survive_random_kills_with_exact_counts() {
    let seed = seed();
    eprintln!("UA_SEED={seed}");
    let random = SeededEntropy::new(seed);
    let env = env().with_forum();
    let fields = json!({
        "harness": {"max_iterations": 40, "completion_promise": "ALL DONE"},
        "stop_conditions": [{"effect": "email.send", "count": 8, "max": 8}, {"effect": "run.notify", "count": 8},
                            {"effect": "file.upload", "count": 8}],
    });
    let job = env.job(&fields, &forty());
    let start = ["job", &job, "--run-id", "r", "--quiet"];
    let resume = ["resume", "r", "--quiet"];
    let mut kills = 0;
    // Twenty deaths within an hour would be a question of their own.
    for life in 0..16 {
        let is_there = env.database_path().exists() && !env.try_rows("SELECT run_id FROM runs").is_empty();
        let args = if is_there { &resume[..] } else { &start[..] };
        if life % 2 == 0 {
            // It kills itself with SIGKILL at a crossing of a seam.
            let point = format!(
                "{}:*#{}",
                if random.next_u64().is_multiple_of(2) { "before" } else { "after" },
                between(&random, 3, 90)
            );
            let output = env.start_with(("UA_KILL_AT", &point), args).wait();
            kills += u32::from(output.is_killed());
        } else {
            // From outside, as soon as it has come so far.
            let from: u64 = env.try_rows("SELECT turn_index FROM runs").first().map_or(0, |turn| turn.parse().unwrap());
            let target = from + between(&random, 1, 8);
            let mut live = env.start(args);
            until("some turns, or the end", || {
                let turn =
                    env.try_rows("SELECT turn_index FROM runs").first().and_then(|turn| turn.parse::<u64>().ok());
                turn.is_some_and(|turn| turn >= target) || live.has_ended()
            });
            if !live.has_ended() {
                live.signal(Signal::KILL);
                kills += 1;
            }
            drop(live.wait());
        }
        if env.try_rows("SELECT status FROM runs") == ["waiting_for_human"] {
            answer_by_looking(&env);
        }
    }
    for _ in 0..12 {
        if env.run_status() == "succeeded" {
            break;
        }
        drop(env.run(&resume));
        answer_by_looking(&env);
    }
    assert_eq!(env.run_status(), "succeeded", "seed {seed}");
    // On a machine with much else to do a life comes further than it should before it is killed from outside.
    assert!(kills >= 5, "seed {seed}: only {kills} kills");

    assert_eq!(env.effects(), [8, 8, 8, 8], "seed {seed}: mails, objects, notifications, comments");
    let notes = (1..=40).filter(|n| env.workspace().join(format!("work_products/{n}.md")).is_file()).count();
    assert_eq!(notes, 8, "seed {seed}");
    let columns = "SELECT iteration_count, max_iterations, completion_promise, run_mode, turn_index FROM runs";
    assert_eq!(env.value(columns), "40 40 ALL DONE harness 80", "seed {seed}");
    assert_eq!(env.value("SELECT count(*) FROM messages WHERE origin = 'iteration'"), "39", "seed {seed}");
    let steps = env.rows("SELECT step_index, first_turn, last_turn FROM run_steps ORDER BY step_index");
    let expected: Vec<String> = (1..=40).map(|n| format!("{n} {} {}", 2 * n - 1, 2 * n)).collect();
    assert_eq!(steps, expected, "seed {seed}: turns are numbered on, and each iteration is one step");
    env.run(&["db", "check", "--invariants"]).code(0);
    let handoff: Value =
        serde_json::from_str(&fs::read_to_string(env.workspace().join("handoff.json")).unwrap()).unwrap();
    assert_eq!((&handoff["iteration"], &handoff["turn_index"]), (&json!(40), &json!(78)));
    assert_eq!(handoff["done"].as_array().unwrap().len(), 39, "seed {seed}: {handoff}");
    check_export(&env, &handoff);
}

#[test]
fn a_kill_at_the_boundary_neither_loses_an_iteration_nor_counts_it_twice() {
    let turns = json!([note(1), say("Noted."), mail("News"), say(PROMISE)]);
    for point in [
        "before:store.enter_step#1",
        "after:store.enter_step#1",
        "before:store.enter_step#2",
        "after:store.enter_step#2",
    ] {
        let env = env();
        let job = env.job(&json!({"stop_conditions": ["email_sent_once"]}), &turns);
        let start = ["job", &job, "--run-id", "r", "--max-iterations", "3", "--completion-promise", "ALL DONE"];
        env.run_killed_at(point, &start);
        env.run(&["resume", "r"]).code(0);
        assert_eq!(env.effects(), [1, 0, 0, 0], "{point}");
        assert_eq!(env.value("SELECT iteration_count, turn_index FROM runs"), "2 4", "{point}");
        assert_eq!(env.rows("SELECT first_turn, last_turn FROM run_steps"), ["1 2", "3 4"], "{point}");
        env.run(&["db", "check", "--invariants"]).code(0);
    }
}

#[test]
fn iterations_are_started_shown_and_raised_from_the_command_line() {
    let env = env();
    let turns = json!([note(1), say("One note."), note(2), say("Two notes."), mail("News"), say(PROMISE)]);
    let job = env.job(&json!({"stop_conditions": ["email_sent_once"]}), &turns);
    let bare = env.named_job("bare", &json!({}), &turns);
    env.run(&["job", &bare, "--completion-promise", "ALL DONE"])
        .refused(2, &["a promise alone is no evidence", "docs/guide/long-runs.md"]);
    env.run(&["job", &job, "--max-iterations", "0"]).code(2);

    let start = ["job", &job, "--run-id", "r", "--max-iterations", "2", "--completion-promise", "ALL DONE"];
    let output = env.run(&start).code(75);
    output.says(&["iteration 2/2 · the one before: the model stopped without its promise"]).shows(&[
        "the budget max_iterations (2) is reached",
        "ua resume r",
        "--max-iterations +5",
    ]);
    env.run(&["resume", "r"]).code(75).shows(&["the budget max_iterations (2) is reached"]);
    env.run(&["runs", "list"]).code(0).shows(&["4 (iteration 2/2)"]);
    let output = env.run(&["runs", "show", "r"]).code(0);
    output.shows(&["Iterations (2 of 2)", "promise    ALL DONE", "1  turns 1 to 2", "1 call      One note."]);
    let listed = env.run(&["runs", "list", "--json"]).code(0).json();
    assert_eq!((&listed[0]["iteration_count"], &listed[0]["max_iterations"]), (&json!(2), &json!(2)));
    env.run(&["resume", "r", "--max-iterations", "+10"]).code(0).says(&["max_iterations is 12 now", "iteration 3/12"]);
    assert_eq!(env.value("SELECT iteration_count, max_iterations FROM runs WHERE run_id = 'r'"), "3 12");
    env.run(&["runs", "show", "r"]).code(0).shows(&["1 call      promised: "]);
    assert_eq!(env.effects(), [1, 0, 0, 0]);
    let transcript = fs::read_to_string(env.workspace().join("transcript.md")).unwrap();
    assert!(transcript.contains("Runner: an iteration begins"), "{transcript}");

    env.run(&["job", &bare, "--run-id", "one", "--max-turns", "2"]).code(2);
    env.run(&["job", &bare, "--run-id", "one"]).code(0);
    let stopped = env.named_job("stopped", &json!({"budgets": {"max_turns": 1}}), &turns);
    env.run(&["job", &stopped, "--run-id", "two"]).code(75);
    env.run(&["resume", "two", "--max-iterations", "+1"]).refused(2, &["not done in iterations"]);
}

/// The context is full after a few turns; the model, over HTTP, is then sent the job and the hand-off and none of the conversation.
#[test]
fn a_full_context_is_handed_on_and_the_conversation_is_not() {
    let large = |n: u32| {
        tool(
            "write_local_file",
            &json!({"path": format!("{n}.md"), "content": format!("secret-{n} {}", "x".repeat(9_000))}),
        )
    };
    let mut turns: Vec<Value> = (1..=6).map(large).collect();
    turns.push(say("Written."));
    let model = Model::start(&json!(turns), Vec::new());
    let env = env().with_model(&model);
    let job = json!({"harness": {"context_budget_tokens": 14_000}, "model": {"provider": "anthropic", "name": "m"}});
    let output = env.run(&["job", &env.job(&job, &json!([])), "--run-id", "r"]).code(0);
    output.says(&["iteration 2/10 · the one before: its context was full"]);
    let count: u32 = env.value("SELECT iteration_count FROM runs").parse().unwrap();
    assert!((2..=6).contains(&count), "{count}");
    let first: u32 = env.rows("SELECT first_turn FROM run_steps ORDER BY step_index").last().unwrap().parse().unwrap();
    let sent = model.last_request().to_string();
    assert!(sent.contains("Do what the test says.") && sent.contains("begins here, after turn"), "{sent}");
    for n in 1..first {
        // The hand-off tells what the call was, cut short.
        let whole = format!("secret-{n} {}", "x".repeat(1_000));
        assert!(!sent.contains(&whole), "turn {n} is still sent");
        assert!(sent.contains(&format!("`{n}.md`")), "what turn {n} made is not handed on");
    }
    assert_eq!(env.value("SELECT count(*) FROM messages WHERE origin = 'model'"), "7", "the history is kept whole");
}

/// A call that nobody declared, made again: within one context the model means it, and behind an empty one a person is asked.
#[test]
fn what_an_earlier_iteration_did_is_not_done_again_without_a_question() {
    let env = env().with_forum();
    let policy = env.write("work/policy.toml", FORUM);
    let post = || json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "tick"}}]});
    let turns = json!([post(), post(), say("Twice."), post(), mail("News"), say(PROMISE)]);
    let job = env.job(&json!({"stop_conditions": ["email_sent_once"]}), &turns);
    let start = [
        "job",
        &job,
        "--run-id",
        "r",
        "--max-iterations",
        "3",
        "--completion-promise",
        "ALL DONE",
        "--policy",
        &policy,
    ];
    env.run(&start).code(75);
    assert_eq!((env.comments().len(), env.value("SELECT iteration_count FROM runs")), (2, "2".to_owned()));
    let asked = env.value("SELECT question_id || ' ' || kind FROM questions WHERE status = 'open'");
    let (question, kind) = asked.split_once(' ').unwrap();
    assert_eq!(kind, "near_duplicate");
    // A resume knows as well where the context begins.
    env.run(&["resume", "r"]).code(75);
    env.run(&["answer", question, "skip"]).code(0);
    env.run(&["resume", "r"]).code(0);
    assert_eq!((env.comments().len(), env.effects()[0]), (2, 1));
}

/// A task that a model has forgotten that it gave, and gives again: what its sub-agent did is asked about.
#[test]
fn a_task_given_again_by_a_later_iteration_does_nothing_twice_without_a_question() {
    let env = env().with_forum();
    let post = || json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "tick"}}]});
    let input = json!({"description": "Post", "prompt": "ALPHA: post."});
    let task = || json!({"tools": [{"name": "mcp__ua_agents__task", "input": input.clone()}]});
    let turns = json!([task(), say("Later."), task(), say("Later.")]);
    let script = json!({"turns": turns, "conversations": [{"when": "ALPHA", "turns": [post(), say(PROMISE)]}]});
    env.write("work/tree.json", script.to_string());
    let policy = env.write("work/policy.toml", FORUM);
    let job = json!({
        "model": {"provider": "scripted", "script": "tree.json"},
        "stop_conditions": ["email_sent_once"],
        "subagents": {},
        "harness": {"max_iterations": 3, "completion_promise": "ALL DONE"},
    });
    env.run(&["job", &env.job(&job, &json!([])), "--run-id", "r", "--policy", &policy]).code(75);
    assert_eq!(env.comments().len(), 1);
    assert_eq!(env.value("SELECT kind FROM questions WHERE status = 'open'"), "near_duplicate");
}

/// A fork whose history ends in a later iteration has forgotten what it shares of an earlier one.
#[test]
fn what_a_fork_shares_of_an_earlier_iteration_is_asked_about() {
    let env = env().with_forum();
    let policy = env.write("work/policy.toml", FORUM);
    let env = env.with_env("UA_POLICY", &policy);
    let post = |text: &str| json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": text}}]});
    let turns = json!([post("a"), say("Later."), post("b"), post("a"), mail("News"), say(PROMISE)]);
    let job = env
        .job(&json!({"stop_conditions": ["email_sent_once"], "harness": {"completion_promise": "ALL DONE"}}), &turns);
    env.run(&["job", &job, "--run-id", "r"]).code(75);
    env.run(&["fork", "r", "--at-turn", "3", "--run-id", "f"]).code(75);
    let asked = env.rows("SELECT run_id || ' ' || kind FROM questions WHERE status = 'open' ORDER BY run_id");
    assert_eq!(asked, ["f near_duplicate", "r near_duplicate"]);
    assert_eq!(env.comments().len(), 2);
}

/// A fork of a later iteration goes on in its context, with iterations of its own.
#[test]
fn a_fork_goes_on_in_the_iteration_that_its_history_ends_in() {
    let env = env();
    let turns = json!([note(1), say("One."), mail("News"), say("Mailed."), note(3), say(PROMISE)]);
    let job = env
        .job(&json!({"stop_conditions": ["email_sent_once"], "harness": {"completion_promise": "ALL DONE"}}), &turns);
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    env.run(&["fork", "r", "--at-turn", "3", "--run-id", "f"]).code(0);
    assert_eq!(env.effects(), [1, 0, 0, 0]);
    assert_eq!(env.rows("SELECT iteration_count, turn_index FROM runs ORDER BY created_at"), ["3 6", "2 6"]);
    env.run(&["db", "check", "--invariants"]).code(0);
}

fn researched(env: &TestEnv, rest: &[Value]) -> Value {
    let words = "The tide turns the wheel of the mill twice a day, and in 1845 there were 76 of them on this coast. "
        .repeat(20);
    env.write(
        "work/mill.html",
        format!("<html><head><title>Tide mills</title></head><body><article><p>{words}</p></article></body></html>"),
    );
    let page = format!("file://{}", env.arg("work/mill.html"));
    let mut turns = vec![
        tool("crawl_parallel", &json!({"urls": [page]})),
        tool("finalize_research", &json!({"task_name": "tides", "topic": "Tide mills"})),
    ];
    turns.extend_from_slice(rest);
    json!(turns)
}

const CORPUS: &str = "tasks/tides/refined_corpus.md";

#[test]
fn refined_research_is_cached_with_its_checkpoint_and_handed_on() {
    let env = env();
    let report = tool("write_local_file", &json!({"path": "work_products/report.md", "content": "# Tide mills"}));
    let expecting = |mut turn: Value, words: &[&str]| {
        turn["expect"] = json!({ "contains": words });
        turn
    };
    let turns = researched(
        &env,
        &[
            say("The research is done."),
            expecting(
                tool("build_evidence_ledger", &json!({"task_name": "tides"})),
                &[CORPUS, "use it instead of the raw sources"],
            ),
            say("The ledger is built."),
            expecting(
                report,
                &[
                    "What can be cited about `Tide mills`",
                    "tasks/tides/evidence_ledger.md",
                    "use it instead of the raw sources",
                ],
            ),
            say(PROMISE),
        ],
    );
    let fields =
        json!({"harness": {"completion_promise": "ALL DONE"}, "artifacts": {"expected_outputs": ["report.md"]}});
    env.run(&["job", &env.job(&fields, &turns), "--run-id", "r"]).code(0);
    let cached = env.value(
        "SELECT json_extract(state_snapshot_json, '$.corpora') FROM checkpoints WHERE checkpoint_type = 'corpus_cache'",
    );
    let cached: Value = serde_json::from_str(&cached).unwrap();
    let text = fs::read(env.workspace().join(CORPUS)).unwrap();
    assert_eq!((&cached[0]["path"], &cached[0]["sha256"]), (&json!(CORPUS), &json!(ua_core::sha256(&text).to_hex())));
    assert!(cached[0]["words"].as_u64().unwrap() > 200, "{cached}");
    let handoff: Value =
        serde_json::from_str(&fs::read_to_string(env.workspace().join("handoff.json")).unwrap()).unwrap();
    assert_eq!((&handoff["iteration"], &handoff["evidence"]["corpora"][0]["state"]), (&json!(3), &json!("kept")));
    assert_eq!(handoff["evidence_ledgers"][0]["task_name"], json!("tides"), "{handoff}");
}

/// Killed in the write of the checkpoint and around it, the corpus is cached with the turn that made it; nothing is claimed about a copy
/// that is gone or was changed.
#[test]
fn a_resume_uses_the_corpus_only_while_it_is_the_one_that_was_cached() {
    let cases =
        [("kept", "use it instead of the raw sources"), ("changed", "is another file now"), ("gone", "is gone")];
    for (number, (state, words)) in cases.into_iter().enumerate() {
        let env = env();
        let wanted = json!({"text": "Done.", "expect": {"contains": [words]}});
        let turns = researched(&env, &[wanted]);
        let point = ["before:store.commit_turn#2", "after:store.commit_turn#2", "after:store.commit_turn#2"][number];
        env.run_killed_at(point, &["job", &env.job(&json!({}), &turns), "--run-id", "r"]);
        let corpus = env.workspace().join(CORPUS);
        match state {
            "changed" => fs::write(&corpus, "Mills grind coffee.").unwrap(),
            "gone" => fs::remove_file(&corpus).unwrap(),
            _ => {}
        }
        env.run(&["resume", "r"]).code(0);
        assert_eq!(
            env.value("SELECT count(*) FROM checkpoints WHERE checkpoint_type = 'corpus_cache'"),
            "1",
            "{state}"
        );
        let packet: Value =
            serde_json::from_str(&fs::read_to_string(env.workspace().join("resume_packet_r.json")).unwrap()).unwrap();
        assert_eq!(packet["corpora"][0]["state"], json!(state));
        let is_first = packet["read_first"].to_string().contains(CORPUS);
        assert_eq!(is_first, state == "kept", "{packet}");
    }
}
