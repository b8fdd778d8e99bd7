//! The same job over every wire to a model, recorded, played again, and killed in between.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;

use serde_json::{Value, json};
use ua_e2e::{Model, TestEnv};
use ua_testkit::{Fault, FaultKind, workspace_root};

use super::canary::base64;
use super::env;
use super::same_receipts::without_ids;

/// The wires that a model server speaks.
pub(crate) const WIRES: [&str; 3] = ["anthropic", "openai", "openai-chat"];

/// What the ledger of the only run has, ids aside: a line per call with its key's scope and its receipt.
fn ledger(env: &TestEnv) -> Vec<String> {
    let rows = env.rows(
        "SELECT turn, ordinal, raw_tool_name, coalesce(request_ref, '-'), coalesce(side_effect_scope, '-'), attempt, status, \
         coalesce(evidence, '-'), coalesce(raw_json, '-'), coalesce(settlement_json ->> '$.content', '-') \
         FROM tool_calls LEFT JOIN tool_receipts USING (tool_call_id, attempt) ORDER BY turn, ordinal",
    );
    let here = env.path("").display().to_string();
    rows.iter().map(|row| without_ids(&row.replace(&here, "[here]/"))).collect()
}

fn research() -> (String, String) {
    let jobs = workspace_root().join("fixtures/jobs").canonicalize().unwrap();
    let script = fs::read_to_string(workspace_root().join("fixtures/scripts/research_report.json")).unwrap();
    let script = script.replace("${JOB_DIR}", &jobs.display().to_string());
    (jobs.join("research_report.json").display().to_string(), script)
}

/// A world with a model server for all wires.
pub(crate) fn with_model(model: &Model) -> TestEnv {
    env().with_pdf().with_model(model).with_env("OPENAI_BASE_URL", model.base_url()).with_env("OPENAI_API_KEY", "a-key")
}

#[test]
fn the_research_job_leaves_the_same_receipts_over_every_wire() {
    let (job, script) = research();
    let mut left: Vec<(&str, Vec<String>)> = Vec::new();
    for wire in WIRES {
        let model = Model::with(&script, |_| ());
        let env = with_model(&model);
        env.run(&["job", &job, "--provider", wire, "--model", "a-model", "--run-id", "the-same-run"]).code(0);
        assert_eq!(env.effects(), [1, 1, 1, 0], "{wire}");
        assert!(model.log().iter().all(|request| request.status == 200), "{wire}: {:?}", model.log());
        assert_eq!(env.rows("SELECT DISTINCT provider, status FROM usage"), [format!("{wire} actual")]);
        left.push((wire, ledger(&env)));
    }
    // And without a wire.
    let env = env().with_pdf();
    env.run(&["job", &job, "--provider", "scripted", "--run-id", "the-same-run"]).code(0);
    assert_eq!(env.effects(), [1, 1, 1, 0]);
    left.push(("scripted", ledger(&env)));
    assert!(left[0].1.len() >= 6, "{:#?}", left[0]);
    for (wire, ledger) in &left[1..] {
        assert_eq!(ledger, &left[0].1, "{wire} and {}", left[0].0);
    }
}

#[test]
fn a_recorded_run_is_played_again_in_another_folder_without_a_model() {
    let (job, script) = research();
    for wire in WIRES {
        let model = Model::with(&script, |_| ());
        let first = with_model(&model);
        let tape = first.arg("tape.jsonl");
        let args =
            ["job", &job, "--provider", wire, "--model", "a-model", "--record", &tape, "--run-id", "recorded-run"];
        first.run(&args).code(0);
        let text = fs::read_to_string(&tape).unwrap();
        assert_eq!(text.lines().count(), 7);
        let exchanges: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        // Replies with places that came in pieces are kept whole, all others as their events.
        assert!(exchanges.iter().any(|exchange| exchange["events"].is_array()), "{wire}");
        let digests: Vec<&str> = exchanges.iter().filter_map(|exchange| exchange["request_sha256"].as_str()).collect();
        assert_eq!(digests, first.rows("SELECT request_sha256 FROM usage ORDER BY request_id"), "{wire}");
        assert!(!text.contains(&first.path("").display().to_string()), "{wire}");

        // No key, no server, another folder, another run.
        let second = env().with_pdf();
        second.run(&["job", &job, "--provider", "replay", "--cassette", &tape, "--run-id", "played-again"]).code(0);
        assert_eq!((second.effects(), model.requests()), ([1, 1, 1, 0], 7), "{wire}");
        assert_eq!(ledger(&second), ledger(&first), "{wire}");
    }
}

#[test]
fn a_played_run_that_is_killed_goes_on_with_the_same_recording() {
    let turns = json!([
        {"tools": [{"name": "mcp__ua__write_local_file", "input": {"path": "work_products/a.txt", "content": "a"}}]},
        {"tools": [{"name": "mcp__ua__notify", "input": {"title": "Written", "message": "In a.txt."}}]},
        {"text": "Done."},
    ]);
    let model = Model::start(&turns, Vec::new());
    let first = with_model(&model);
    let tape = first.arg("tapes");
    fs::create_dir(&tape).unwrap();
    let fields = json!({"model": {"provider": "openai-chat", "name": "a-model"}});
    first.run(&["job", &first.job(&fields, &json!([])), "--record", &tape, "--run-id", "recorded"]).code(0);
    assert!(first.path("tapes/recorded.jsonl").exists());

    let second = env().with_pdf();
    let job = second.job(&json!({"model": {"provider": "replay"}}), &json!([]));
    let args = ["job", &job, "--cassette", &tape, "--run-id", "r"];
    second.run_killed_at("after:store.record_turn", &args);
    second.run_killed_at("before:store.commit_turn", &["resume", "r"]);
    second.run(&["resume", "r"]).code(0);
    assert_eq!(second.effects()[2], 1);
    assert_eq!(
        second.rows("SELECT tool_name, status FROM tool_calls"),
        ["write_local_file succeeded", "notify succeeded"]
    );

    // Another job is not what was recorded.
    let other = env().with_pdf();
    let job = other.job(&json!({"objective": "Another one.", "model": {"provider": "replay"}}), &json!([]));
    let output = other.run(&["job", &job, "--cassette", &tape, "--run-id", "r"]).code(69);
    output.shows(&["no recorded request matches", "Another one."]);
}

#[test]
fn bodies_are_kept_in_the_workspace_when_asked_for_and_without_keys() {
    let turns = json!([{"text": "The key is sk-canary-0123456789, I think."}]);
    let model = Model::with(&json!({"turns": turns}).to_string(), |_| ());
    let env = env()
        .with_env("OPENAI_BASE_URL", model.base_url())
        .with_env("OPENAI_API_KEY", "sk-canary-0123456789")
        .with_env("UA_KEEP_BODIES", "1");
    let fields = json!({"model": {"provider": "openai-chat", "name": "a-model"}, "tools": {"builtin": false}});
    env.run(&["job", &env.job(&fields, &json!([])), "--run-id", "r"]).code(0);
    let kept = fs::read_to_string(env.workspace().join("logs/model.jsonl")).unwrap();
    assert!(kept.contains("[secret OPENAI_API_KEY]") && !kept.contains("sk-canary"), "{kept}");
    assert!(!kept.contains("0123456789, I"), "{kept}");
}

#[test]
fn openai_chat_says_what_it_lacks() {
    let env = env();
    let job = env.job(&json!({"model": {"provider": "openai-chat"}}), &json!([]));
    env.run(&["job", &job]).refused(2, &["no model is named", "OPENAI_MODEL"]);
    env.run(&["job", &job, "--model", "m"]).refused(2, &["no API key", "OPENAI_API_KEY"]);
    let far = env.with_env("OPENAI_BASE_URL", "http://models.example.test/v1").with_env("OPENAI_API_KEY", "k");
    far.run(&["job", &job, "--model", "m"]).refused(2, &["unencrypted", "https://"]);
    far.run(&["job", &job, "--provider", "replay"]).refused(2, &["needs a cassette", "--cassette"]);
}

#[test]
fn a_server_on_this_machine_needs_no_key() {
    let model = Model::start(&json!([{"text": "Done."}]), Vec::new());
    let env = env().with_env("OPENAI_BASE_URL", model.base_url()).with_env("OPENAI_MODEL", "qwen");
    let job = env.job(&json!({"model": {"provider": "openai-chat"}, "tools": {"builtin": false}}), &json!([]));
    env.run(&["job", &job]).code(0).says(&["nothing is known about the model qwen"]);
    assert_eq!(model.last_request()["model"], "qwen");
}

/// The images of a request, whatever the wire: the Base64 of each.
pub(crate) fn images(request: &Value, found: &mut Vec<String>) {
    match request {
        Value::Object(fields) => {
            let anthropic = (fields.get("type") == Some(&json!("image"))).then(|| request["source"]["data"].as_str());
            let chat = request["image_url"]["url"]
                .as_str()
                .or(request["image_url"].as_str())
                .and_then(|url| url.split_once(";base64,"));
            found.extend(anthropic.flatten().or(chat.map(|(_, data)| data)).map(str::to_owned));
            fields.values().for_each(|field| images(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| images(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A whole picture in Base64, of so many bytes that nobody looks at.
fn picture(bytes: usize) -> String {
    let chunk = |name: &[u8; 4], data: &[u8]| {
        let length = u32::try_from(data.len()).unwrap().to_be_bytes();
        [&length[..], name, data, &[0; 4]].concat()
    };
    let header = [0, 0, 0, 1, 0, 0, 0, 1, 8, 6, 0, 0, 0];
    let chunks = [chunk(b"IHDR", &header), chunk(b"IDAT", &vec![7; bytes]), chunk(b"IEND", b"")].concat();
    base64(&[&b"\x89PNG\r\n\x1a\n"[..], &chunks].concat())
}

#[test]
fn a_model_that_reads_images_sees_those_of_its_tools_also_after_a_kill() {
    // One that stays in the receipt, and one that is large enough to be stored apart.
    let pictures = [picture(3), picture(30_000)];
    let look = |picture: &str| json!({"tools": [{"name": "mcp__forum__get_page", "input": {"text": "seen", "picture": picture}}]});
    let turns = json!([look(&pictures[0]), look(&pictures[1]), {"text": "Done."}]);
    for wire in WIRES {
        for reads in [true, false] {
            let model = Model::start(&turns, Vec::new());
            let env = with_model(&model).with_forum();
            let mine = env.write("models.toml", format!("[{wire}.\"m\"]\ncontext = 100_000\nimages = {reads}\n"));
            let env = env.with_env("UA_MODELS", &mine);
            let fields = json!({"model": {"provider": wire, "name": "m"}, "tools": {"builtin": false}});
            let job = env.job(&fields, &json!([]));
            env.run_killed_at("before:model.complete#3", &["job", &job, "--run-id", "r"]);
            env.run(&["resume", "r"]).code(0);
            let (mut seen, last) = (Vec::new(), model.last_request());
            images(&last, &mut seen);
            let expected: &[String] = if reads { &pictures } else { &[] };
            let same = seen.len() == expected.len() && expected.iter().all(|picture| seen.contains(picture));
            assert!(same, "{wire} {reads}: {} images", seen.len());
            assert!(last.to_string().contains("[image"), "{wire}");
        }
    }
}

#[test]
fn a_picture_that_no_provider_takes_is_not_sent_and_one_that_is_refused_is_left_out() {
    let look = |picture: &str| json!({"tools": [{"name": "mcp__forum__get_page", "input": {"text": "seen", "picture": picture}}]});
    for wire in WIRES {
        for (shown, faults, requests) in [
            ("AAAA".to_owned(), Vec::new(), 2),
            (picture(3)[..40].to_owned(), Vec::new(), 2),
            (picture(3), vec![Fault::at(2, FaultKind::Status { status: 400 })], 3),
        ] {
            let model = Model::start(&json!([look(&shown), {"text": "Done."}]), faults);
            let env = with_model(&model).with_forum();
            let mine = env.write("models.toml", format!("[{wire}.\"m\"]\ncontext = 100_000\nimages = true\n"));
            let env = env.with_env("UA_MODELS", &mine);
            let fields = json!({"model": {"provider": wire, "name": "m"}, "tools": {"builtin": false}});
            env.run(&["job", &env.job(&fields, &json!([])), "--run-id", "r"]).code(0);
            let (mut seen, last) = (Vec::new(), model.last_request());
            images(&last, &mut seen);
            assert_eq!((seen.len(), model.requests()), (0, requests), "{wire} {shown}");
            assert!(last.to_string().contains("[image"), "{wire}: its place is there");
        }
    }
}

#[test]
fn a_small_model_gets_a_small_history_and_the_run_keeps_what_was_known() {
    let big = "The tide comes and goes. ".repeat(300);
    let mut turns: Vec<Value> =
        (0..6).map(|_| json!({"tools": [{"name": "mcp__forum__get_page", "input": {"text": big}}]})).collect();
    turns.push(json!({"text": "Done."}));
    let model = Model::start(&json!(turns), Vec::new());
    let env = with_model(&model).with_forum();
    let mine = env.write("models.toml", "[openai.\"small-*\"]\ncontext = 8_000\nmax_output = 1_000\n");
    let env = env.with_env("UA_MODELS", &mine);
    env.run(&["models", "show", "small-1", "--provider", "openai-chat"]).code(0).shows(&[
        "8000",
        "1000 tokens",
        "6000",
    ]);
    let fields = json!({"model": {"provider": "openai-chat", "name": "small-1"}, "tools": {"builtin": false}});
    let job = env.job(&fields, &json!([]));
    env.run_killed_at("after:store.commit_turn", &["job", &job, "--run-id", "r"]);
    // What is known now changes nothing about a run that was started.
    env.write("models.toml", "[openai.\"small-*\"]\ncontext = 900_000\n");
    env.run(&["resume", "r"]).code(0);
    let last = model.last_request();
    assert_eq!(last["max_tokens"], 1_000);
    assert!(last.to_string().contains("Context Truncated"), "{last}");
    assert!(last.to_string().len() < 40_000, "{}", last.to_string().len());
}
