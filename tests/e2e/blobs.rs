//! Large results and long histories: what the model sees, what the database keeps, and what happens when a part of it is gone.

use std::fs;

use rusqlite::Connection;
use serde_json::{Value, json};
use ua_e2e::{Model, TestEnv};
use ua_testkit::{Fault, FaultKind};

use super::env;

/// A line of which large pages are made.
const LINE: &str = "The tide mill turns twice a day. ";
/// How often a large page repeats it.
const TIMES: usize = 1_000;

fn page(text: &str, repeat: usize) -> Value {
    json!({"tools": [{"name": "mcp__forum__get_page", "input": {"text": text, "repeat": repeat}}]})
}

fn comment() -> Value {
    json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "read"}}]})
}

/// A job for the model of `env`, with the tool server `forum` only.
fn job(env: &TestEnv, settings: &Value) -> String {
    let fields = json!({
        "tools": {"builtin": false}, "model": {"provider": "anthropic", "name": "scripted"}, "settings": settings,
    });
    env.job(&fields, &json!([]))
}

/// How often `needle` occurs in the strings of a value.
fn times_in(haystack: &Value, needle: &str) -> usize {
    match haystack {
        Value::String(text) => text.matches(needle).count(),
        Value::Array(items) => items.iter().map(|item| times_in(item, needle)).sum(),
        Value::Object(map) => map.values().map(|item| times_in(item, needle)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// A writable connection from outside, while no `ua` runs.
fn tamper(env: &TestEnv, sql: &str) {
    let changed = Connection::open(env.database_path())
        .and_then(|database| database.execute_batch(&format!("PRAGMA foreign_keys = OFF; {sql}")));
    changed.unwrap_or_else(|e| panic!("tamper with the database: {e}"));
}

fn large_call(env: &TestEnv) -> String {
    env.value("SELECT tool_call_id FROM tool_calls WHERE tool_name = 'get_page' AND turn = 1")
}

/// A run that was killed after its first turn, whose result is large.
fn killed_run(env: &TestEnv, settings: &Value) {
    env.run_killed_at("after:store.commit_turn", &["job", &job(env, settings), "--run-id", "r"]);
    assert_eq!(env.value("SELECT count(*), sum(size_bytes) FROM blobs"), format!("1 {}", LINE.len() * TIMES));
}

fn model() -> Model {
    Model::start(&json!([page(LINE, TIMES), page("short", 1), comment(), {"text": "Done."}]), Vec::new())
}

/// `test_blob_offload_and_rehydrate` (Granular Execution PRD §11): over three turns and two resumes.
#[test]
fn blob_offload_and_rehydrate() {
    let model = model();
    let env = env().with_forum().with_model(&model);
    let whole = LINE.repeat(TIMES);
    killed_run(&env, &json!({}));
    env.run_killed_at("after:store.commit_turn", &["resume", "r"]);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.value("SELECT turn_index FROM runs"), "4");
    // The model reads the text in every request, and no marker.
    let last = model.last_request();
    assert_eq!((times_in(&last["messages"], &whole), times_in(&last, "UA_BLOB_REF")), (1, 0));
    // The database has it once, and everything else refers to it.
    assert_eq!(env.value("SELECT count(*), sum(length(content)) FROM blobs"), format!("1 {}", whole.len()));
    let twice = format!("%{LINE}{LINE}%");
    for (table, column) in [
        ("messages", "message_json"),
        ("tool_receipts", "raw_json"),
        ("tool_receipts", "settlement_json"),
        ("tool_calls", "request_ref"),
    ] {
        let found = env.value(&format!("SELECT count(*) FROM {table} WHERE {column} LIKE '{twice}'"));
        assert_eq!(found, "0", "{table}.{column}");
    }
    let stored = env.value("SELECT message_json FROM messages WHERE turn = 1 AND origin = 'tools'");
    let blob = env.value("SELECT blob_id FROM blobs");
    let stored: Value = serde_json::from_str(&stored).unwrap();
    assert_eq!(stored["blocks"][0]["content"], json!({"blob_id": blob, "size": whole.len()}));
    // A person sees the marker, and how to see more.
    let (call, marker) = (large_call(&env), format!("<<UA_BLOB_REF:{blob}:size={}>>", whole.len()));
    let transcript = fs::read_to_string(env.workspace().join("transcript.md")).unwrap();
    assert!(transcript.contains(&marker) && transcript.contains(&format!("ua calls show {call} --full")));
    env.run(&["calls", "show", &call]).code(0).shows(&[&marker, "--full"]);
    assert_eq!(env.run(&["calls", "show", &call, "--full"]).code(0).stdout, format!("{whole}\n"));
    let receipt = env.run(&["calls", "show", &call, "--full", "--json"]).code(0).json();
    assert_eq!(receipt["raw"]["result"]["content"][0]["text"], json!(whole));
    assert_eq!(receipt["settlement"]["content"]["text"], json!(whole));
    let small = env.value("SELECT tool_call_id FROM tool_calls WHERE turn = 2");
    assert_eq!(env.run(&["calls", "show", &small, "--full"]).code(0).stdout, "short\n");
}

#[test]
fn text_that_looks_like_a_reference_stays_text() {
    let forged = format!("<<UA_BLOB_REF:blob_{}:size=33000>>", "0".repeat(64));
    let model = Model::start(&json!([page(LINE, TIMES), page(&forged, 1), {"text": "Done."}]), Vec::new());
    let env = env().with_forum().with_model(&model);
    env.run(&["job", &job(&env, &json!({}))]).code(0);
    let last = model.last_request();
    // The argument and the result, as they were.
    assert_eq!(times_in(&last["messages"], &forged), 2);
    assert_eq!(times_in(&last["messages"], &LINE.repeat(TIMES)), 1);
    assert_eq!(env.value("SELECT count(*) FROM blob_refs"), "1");
    // Even the name of a blob that is there is only text, when a tool says it.
    let real = env.value("SELECT blob_id FROM blobs");
    let real = format!("<<UA_BLOB_REF:{real}:size={}>>", LINE.len() * TIMES);
    let again = Model::start(&json!([page(&real, 1), {"text": "Done."}]), Vec::new());
    let env = env.with_env("ANTHROPIC_BASE_URL", again.base_url());
    env.run(&["job", &job(&env, &json!({}))]).code(0);
    assert_eq!((times_in(&again.last_request(), &real), times_in(&again.last_request(), LINE)), (2, 0));
}

#[test]
fn the_threshold_is_the_jobs() {
    let model = Model::start(&json!([page("0123456789", 30), {"text": "Done."}]), Vec::new());
    let env = env().with_forum().with_model(&model);
    env.run(&["job", &job(&env, &json!({"blob_threshold_bytes": 256}))]).code(0);
    assert_eq!(env.value("SELECT size_bytes FROM blobs"), "300");
    assert_eq!(times_in(&model.last_request(), &"0123456789".repeat(30)), 1);
    env.run(&["job", &job(&env, &json!({"blob_threshold_bytes": 10}))])
        .code(2)
        .says(&["settings.blob_threshold_bytes", "256"]);
    env.run(&["job", &job(&env, &json!({"blob_treshold_bytes": 300}))]).code(2).says(&["blob_threshold_bytes"]);
}

/// `test_blob_ref_missing_fails_fast` (Granular Execution PRD §11).
#[test]
fn blob_ref_missing_fails_fast() {
    let model = model();
    let env = env().with_forum().with_model(&model);
    killed_run(&env, &json!({}));
    tamper(&env, "DELETE FROM blobs");
    let asked = model.requests();
    let call = large_call(&env);
    for _ in 0..2 {
        env.run(&["resume", "r"]).refused(74, &["not stored any more", &call, "degraded_replay"]);
    }
    env.run(&["calls", "show", &call, "--full"]).refused(74, &["its content is not there"]);
    assert_eq!((model.requests(), env.comments().len()), (asked, 0));
}

#[test]
fn a_job_may_go_on_without_the_results_of_reads() {
    let model = model();
    let env = env().with_forum().with_model(&model);
    killed_run(&env, &json!({"degraded_replay": true}));
    tamper(&env, "DELETE FROM blobs");
    env.run(&["resume", "r"]).code(0).says(&["a large result is gone"]);
    let told = format!("[The result of this call, {} bytes, is not stored any more. It only reads", LINE.len() * TIMES);
    assert_eq!(times_in(&model.last_request(), &told), 1);
    assert_eq!(env.comments().len(), 1);
}

#[test]
fn a_result_of_a_call_that_must_not_be_repeated_is_never_replaced() {
    // `post_comment` answers with its text when that is to be repeated.
    let turns = json!([
        {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": LINE, "repeat": TIMES}}]},
        {"text": "Done."},
    ]);
    let model = Model::start(&turns, Vec::new());
    let env = env().with_forum().with_model(&model);
    let job = job(&env, &json!({"degraded_replay": true}));
    env.run_killed_at("after:store.commit_turn", &["job", &job, "--run-id", "r"]);
    tamper(&env, "DELETE FROM blobs");
    env.run(&["resume", "r"]).refused(74, &["not stored any more"]);
    assert_eq!((model.requests(), env.comments().len()), (1, 1));
}

#[test]
fn a_result_that_was_changed_is_never_sent() {
    let model = model();
    let env = env().with_forum().with_model(&model);
    killed_run(&env, &json!({"degraded_replay": true}));
    tamper(
        &env,
        "DROP TRIGGER blobs_are_immutable; \
         UPDATE blobs SET content = CAST(replace(CAST(content AS TEXT), 'twice', 'never') AS BLOB)",
    );
    let asked = model.requests();
    env.run(&["resume", "r"]).refused(74, &["is damaged", "not the 33000 bytes that were stored"]);
    assert_eq!((model.requests(), env.comments().len()), (asked, 0));
}

#[test]
fn a_result_that_cannot_be_read_now_is_read_later() {
    let turns = json!([page(LINE, TIMES), page("short", 1), comment(), {"text": "Done."}]);
    let model = Model::start(&turns, vec![Fault::at(2, FaultKind::Status { status: 401 })]);
    let env = env().with_forum().with_model(&model);
    env.run(&["job", &job(&env, &json!({})), "--run-id", "r"]).code(75);
    env.run(&["answer", &env.value("SELECT question_id FROM questions"), "retry"]).code(0);
    // The chain of pages that holds the result leads nowhere: the disk reads, and the database cannot.
    let sound = fs::read(env.database_path()).unwrap();
    let inside = LINE.repeat(20);
    let at = sound.windows(inside.len()).rposition(|bytes| bytes == inside.as_bytes()).unwrap();
    let mut damaged = sound.clone();
    let chained = (0..sound.len() / 4096).filter(|number| {
        let page = &sound[number * 4096..(number + 1) * 4096];
        page.windows(LINE.len()).filter(|bytes| *bytes == LINE.as_bytes()).count() > 100 && page[..4] != [0; 4]
    });
    let first = chained.min().unwrap();
    assert!(at > first * 4096);
    damaged[first * 4096..first * 4096 + 4].copy_from_slice(&[0x7F, 0xFF, 0xFF, 0xFF]);
    fs::write(env.database_path(), &damaged).unwrap();
    let asked = model.requests();
    env.run(&["resume", "r"]).refused(74, &["runtime database", "ua resume"]);
    assert_eq!((model.requests(), env.comments().len()), (asked, 0));
    // What the refused resume wrote lies elsewhere in the file; only the broken link is mended.
    let mut mended = fs::read(env.database_path()).unwrap();
    mended[first * 4096..first * 4096 + 4].copy_from_slice(&sound[first * 4096..first * 4096 + 4]);
    fs::write(env.database_path(), &mended).unwrap();
    env.run(&["resume", "r"]).code(0);
    assert_eq!(times_in(&model.last_request(), &LINE.repeat(TIMES)), 1);
    assert_eq!(env.comments().len(), 1);
}

#[test]
fn a_long_history_is_cut_in_the_middle_and_kept_whole() {
    let mut turns: Vec<Value> = (0..7).map(|n| page(&format!("page {n} "), 600)).collect();
    turns.extend([comment(), json!({"text": "Done."})]);
    let model = Model::start(&json!(turns), Vec::new());
    let env = env().with_forum().with_model(&model);
    let job = job(&env, &json!({"history_max_tokens": 5_000}));
    env.run_killed_at("after:store.commit_turn#5", &["job", &job, "--run-id", "r"]);
    env.run(&["resume", "r"]).code(0);
    assert_eq!((env.comments().len(), env.value("SELECT turn_index FROM runs")), (1, "9".to_owned()));
    let last = model.last_request();
    let messages = last["messages"].as_array().unwrap();
    assert!(messages[0].to_string().contains("Do what the test says."), "{}", messages[0]);
    let notice = messages[0]["content"].as_array().unwrap().last().unwrap()["text"].as_str().unwrap();
    let omitted: usize = notice
        .strip_prefix("... [Context Truncated: ")
        .and_then(|rest| rest.strip_suffix(" messages omitted] ..."))
        .and_then(|count| count.parse().ok())
        .unwrap_or_else(|| panic!("{notice}"));
    // Stored: the prompt, two messages for each of eight turns, the note of the resume, and the last reply.
    assert_eq!(env.value("SELECT count(*) FROM messages"), "19");
    assert_eq!(env.value("SELECT count(*) FROM messages WHERE origin = 'omission'"), "0");
    // Sent: the prompt, the newest of the 18 there were, and what stands for the others.
    let shown = (0..7).filter(|n| times_in(&last, &format!("page {n} page {n}")) > 0).count();
    assert!((1..7).contains(&shown), "{shown} pages");
    assert!(times_in(&last, "page 6 page 6") > 0 && times_in(&last, "page 0 page 0") == 0);
    let note = usize::from(times_in(&last, "esume") > 0);
    assert_eq!(1 + omitted + 2 * (shown + 1) + note, 18, "{notice}");
    assert!(last["messages"].to_string().len() / 4 < 5_500);
}

#[test]
fn a_prune_frees_what_only_finished_runs_refer_to() {
    let ended = model();
    let env = env().with_forum().with_model(&ended);
    env.run(&["db", "prune"]).refused(2, &["no runtime database"]);
    env.run(&["job", &job(&env, &json!({})), "--run-id", "ended"]).code(0);
    let nothing = env.run(&["db", "prune", "--json"]).code(0).json();
    assert_eq!((&nothing["freed"], &nothing["kept"], &nothing["live"]), (&json!([]), &json!(1), &json!(0)));

    // Another run that refers to the same bytes and to others, and is not finished.
    let other = "Another page. ";
    let turns = json!([page(LINE, TIMES), page(other, 2_000), {"text": "Done."}]);
    let unfinished = Model::start(&turns, Vec::new());
    let env = env.with_env("ANTHROPIC_BASE_URL", unfinished.base_url());
    env.run_killed_at("after:store.commit_turn#2", &["job", &job(&env, &json!({})), "--run-id", "live"]);
    let all = ["db", "prune", "--older-than", "0s", "--max-bytes", "0"];
    env.run(&all).code(0).shows(&["freed 0", "kept 2", "more than 0 bytes"]);
    env.run(&["resume", "live"]).code(0);
    assert_eq!(times_in(&unfinished.last_request(), &LINE.repeat(TIMES)), 1);

    // A third run has its own; the two that are finished lose theirs.
    let third = "A third page. ";
    let waiting = Model::start(&json!([page(third, 2_000), {"text": "Done."}]), Vec::new());
    let env = env.with_env("ANTHROPIC_BASE_URL", waiting.base_url());
    env.run_killed_at("after:store.commit_turn", &["job", &job(&env, &json!({})), "--run-id", "waiting"]);
    let dry = env.run(&["db", "prune", "--older-than", "0s", "--dry-run", "--json"]).code(0).json();
    let freed_bytes = LINE.len() * TIMES + other.len() * 2_000;
    assert_eq!((dry["freed"].as_array().unwrap().len(), &dry["freed_bytes"]), (2, &json!(freed_bytes)));
    assert_eq!((&dry["live"], &dry["live_bytes"]), (&json!(1), &json!(third.len() * 2_000)));
    assert_eq!(env.value("SELECT count(*) FROM blobs WHERE content IS NULL"), "0");
    env.run(&["db", "prune", "--older-than", "0s"]).code(0).shows(&["freed 2", &freed_bytes.to_string(), "kept 1"]);
    assert_eq!(env.value("SELECT count(*) FROM blobs WHERE content IS NULL AND pruned_at IS NOT NULL"), "2");

    let gone = env.value("SELECT tool_call_id FROM tool_calls WHERE run_id = 'ended' AND turn = 1");
    env.run(&["calls", "show", &gone, "--full"]).refused(74, &["was pruned at"]);
    env.run(&["calls", "show", &gone]).code(0).shows(&["UA_BLOB_REF"]);
    env.run(&["resume", "waiting"]).code(0);
    assert_eq!(times_in(&waiting.last_request(), &third.repeat(2_000)), 1);
    env.run(&["db", "prune", "--older-than", "soon"]).code(2).says(&["30d"]);
}

/// A run `r` that posted `LINE` as a declared effect, whose large answer was pruned after it, and the model of its forks, which asks for the same
/// once more, beside another comment.
fn answered_by_what_was_pruned(order: [&str; 2]) -> (TestEnv, Model, String) {
    let rule = "[[rule]]\nid = \"comment\"\nname = \"post_comment\"\nserver = \"forum\"\nside_effect_class = \"external\"\n\
                effect_kind = \"thread.comment\"\nscope = [{ value = \"text\" }]\n";
    let input = |text: &str| json!({"name": "mcp__forum__post_comment", "input": {"text": text, "repeat": TIMES}});
    let first = Model::start(&json!([{"tools": [input(LINE)]}, {"text": "Done."}]), Vec::new());
    let env = env().with_forum().with_model(&first);
    let policy = env.write("work/comment.toml", rule);
    let env = env.with_env("UA_POLICY", &policy);
    env.run(&["job", &job(&env, &json!({})), "--run-id", "r"]).code(0);
    let whole = env.value("SELECT hex(content) FROM blobs");
    env.run(&["db", "prune", "--older-than", "0s"]).code(0).shows(&["freed 1"]);
    let again = Model::start(&json!([{"tools": order.map(input)}, {"text": "Done."}]), Vec::new());
    let env = env.with_env("ANTHROPIC_BASE_URL", again.base_url());
    (env, again, whole)
}

/// Puts the text of the only large result back, as a copy of the database has it.
fn put_back(env: &TestEnv, whole: &str) {
    tamper(env, &format!("UPDATE blobs SET content = x'{whole}', pruned_at = NULL"));
}

/// Whichever of the two comes first: what the turn cannot end with is seen before its other call is sent.
#[test]
fn a_fork_that_is_answered_with_a_pruned_result_stops_before_anything_is_sent() {
    for order in [[LINE, "Another one."], ["Another one.", LINE]] {
        let (env, model, whole) = answered_by_what_was_pruned(order);
        let call = env.value("SELECT tool_call_id FROM tool_calls WHERE run_id = 'r'");
        let words = ["not stored any more; it was pruned at", &call, "degraded_replay"];
        env.run(&["fork", "r", "--at-turn", "0", "--run-id", "f"]).refused(74, &words);
        for _ in 0..2 {
            env.run(&["resume", "f"]).refused(74, &words);
        }
        assert_eq!((model.requests(), env.comments().len()), (1, 1), "{order:?}");
        env.run(&["db", "check", "--invariants"]).code(0);
        // Whatever has the text again finishes the run.
        put_back(&env, &whole);
        env.run(&["resume", "f"]).code(0);
        assert_eq!((times_in(&model.last_request(), &LINE.repeat(TIMES)), env.comments().len()), (1, 2), "{order:?}");
    }
}

/// Killed wherever, the fork ends as it does without a kill.
#[test]
fn a_fork_may_go_on_without_the_result_of_what_was_done_before() {
    let points = [
        "before:store.record_turn",
        "after:store.deduplicate_call",
        "before:store.commit_turn",
        "after:store.commit_turn",
    ];
    for order in [[LINE, "Another one."], ["Another one.", LINE]] {
        for killed_at in [None].into_iter().chain(points.map(Some)) {
            let at = format!("{order:?} {killed_at:?}");
            let (env, model, _) = answered_by_what_was_pruned(order);
            let changes = env.write("work/changes.json", r#"{"settings": {"degraded_replay": true}}"#);
            let fork = ["fork", "r", "--at-turn", "0", "--run-id", "f", "--job-overrides", &changes];
            match killed_at {
                Some(point) => {
                    env.run_killed_at(point, &fork);
                    env.run(&["resume", "f"]).code(0);
                }
                None => drop(env.run(&fork).code(0)),
            }
            let told = "is not stored any more. What it did stands";
            assert_eq!((times_in(&model.last_request(), told), env.comments().len()), (1, 2), "{at}");
            let answers = "SELECT count(*) FROM tool_calls WHERE run_id = 'f' AND deduplicated_from IS NOT NULL";
            let status = env.value("SELECT status FROM runs WHERE run_id = 'f'");
            assert_eq!((env.value(answers).as_str(), status.as_str()), ("1", "succeeded"), "{at}");
        }
    }
}

/// A turn that was open when its process died is not carried out before it is known that the model can be asked again behind it.
#[test]
fn what_an_open_turn_would_send_waits_for_a_result_that_is_gone() {
    for degraded in [false, true] {
        let model = model();
        let env = env().with_forum().with_model(&model);
        let job = job(&env, &json!({"degraded_replay": degraded}));
        env.run_killed_at("before:tool.invoke:get_page#2", &["job", &job, "--run-id", "r"]);
        assert_eq!(env.value("SELECT count(*) FROM turns WHERE committed_at IS NULL"), "1");
        let whole = env.value("SELECT hex(content) FROM blobs");
        tamper(&env, "UPDATE blobs SET content = NULL, pruned_at = created_at");
        if degraded {
            env.run(&["resume", "r"]).code(0).says(&["a large result is gone"]);
            assert_eq!(env.comments().len(), 1);
            continue;
        }
        let asked = model.requests();
        env.run(&["resume", "r"]).refused(74, &["not stored any more", &large_call(&env)]);
        assert_eq!((model.requests(), env.comments().len()), (asked, 0));
        let attempts = "SELECT count(*) FROM tool_attempts a JOIN tool_calls c USING (tool_call_id) WHERE c.turn = 2";
        assert_eq!(env.value(attempts), "1", "what the killed process sent, and nothing more");
        put_back(&env, &whole);
        env.run(&["resume", "r"]).code(0);
        assert_eq!(env.comments().len(), 1);
    }
}
