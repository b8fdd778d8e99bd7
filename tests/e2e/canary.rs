//! Canaries: secrets that tools and models bring along in every dress are found nowhere that this program writes or sends
//! (threat S3 of docs/security.md).

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::path::Path;

use serde_json::json;
use ua_e2e::{Collector, Model, TestEnv};
use ua_testkit::CollectorMood;

use super::env;

/// The key of the model provider.
const OURS: &str = "sk-ant-canary-7b1f93ce20";
/// What a tool server is given by reference; with characters that every encoding changes.
const THEIRS: &str = "tok\"can/ary+5f1d7e20c4&x";

/// What of the canaries may stand in bytes: themselves, encoded, and the inner part of their base64.
fn needles() -> Vec<Vec<u8>> {
    let percent = "tok%22can%2Fary%2B5f1d7e20c4%26x";
    let in_json = "tok\\\"can/ary+5f1d7e20c4&x";
    let mut all: Vec<Vec<u8>> = [OURS, THEIRS, percent, in_json].iter().map(|text| text.as_bytes().to_vec()).collect();
    for start in 0..3 {
        // Whole groups of three bytes, from each place that a group can start.
        let groups = &THEIRS.as_bytes()[start..];
        all.push(base64(&groups[..groups.len() / 3 * 3]).into_bytes());
    }
    all
}

pub(super) fn base64(bytes: &[u8]) -> String {
    let alphabet: Vec<char> = ('A'..='Z').chain('a'..='z').chain('0'..='9').chain(['+', '/']).collect();
    let digits = |group: &[u8]| group.iter().fold(0_usize, |n, byte| n << 8 | usize::from(*byte));
    bytes.chunks(3).flat_map(|group| [18, 12, 6, 0].map(|shift| alphabet[digits(group) >> shift & 63])).collect()
}

/// Every file below `folder` that contains a canary: database, log and freed pages, workspace, exports, state.
fn found_below(folder: &Path, needles: &[Vec<u8>], found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            found_below(&path, needles, found);
        } else if path.is_file() {
            let bytes = fs::read(&path).unwrap();
            let has = |needle: &Vec<u8>| bytes.windows(needle.len()).any(|part| part == needle.as_slice());
            found.extend(
                needles
                    .iter()
                    .filter(|needle| has(needle))
                    .map(|needle| format!("{} in {}", String::from_utf8_lossy(needle), path.display())),
            );
        }
    }
}

/// The whole story: leaking tools, a model that repeats what it saw, a failure, a question, a kill, a resume, an export; diagnostics
/// at their loudest and telemetry with content. Returns where canaries were found.
fn story(broken: bool) -> Vec<String> {
    let collector = Collector::start(CollectorMood::Takes);
    let turns = json!([
        {"tools": [{"name": "mcp__forum__get_page", "input": {"text": "news"}}]},
        {"text": format!("I was shown {OURS} and {THEIRS}."),
         "tools": [{"name": "mcp__forum__post_comment", "input": {"text": format!("{OURS} {THEIRS}"), "fail": "no luck"}}]},
        {"tools": [{"name": "mcp__ua_person__ask_user", "input": {"question": format!("Is it {THEIRS}?")}}]},
        {"tools": [{"name": "mcp__ua__write_local_file", "input": {"path": "work_products/note.md", "content": format!("Keys: {OURS}")}}]},
        {"text": format!("Done with {THEIRS}.")},
    ]);
    let model = Model::start(&turns, Vec::new());
    let mut env: TestEnv = env()
        .with_env("ANTHROPIC_BASE_URL", model.base_url())
        .with_env("ANTHROPIC_API_KEY", OURS)
        .with_env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.base_url())
        .with_env("UA_OTEL_CONTENT", "1")
        .with_env("UA_LOG", "trace");
    if broken {
        env = env.with_env("UA_BROKEN_RULE", "no-redactor");
    }
    let secrets = env
        .write("home/.config/ua/secrets.toml", format!("[secrets.FORUM]\nvalue = {THEIRS:?}\nservers = [\"forum\"]\n"));
    fs::set_permissions(secrets, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let mut entry = env.forum_entry(&["--leak", "FORUM_KEY"]);
    entry["env"] = json!({"FORUM_KEY": "${secret:FORUM}"});
    env.mcp_config("work/.mcp.json", &json!({"forum": entry}));
    let job = json!({"model": {"provider": "anthropic", "name": "scripted", "max_output_tokens": 300}, "escalation": {"ask_user": true}});
    let job = env.job(&job, &json!([]));
    env.run_killed_at("after:tool.invoke:get_page", &["job", &job, "--run-id", "r"]);
    env.run(&["resume", "r"]).code(75);
    env.run(&["questions", "--full"]).code(0);
    let question = env.value("SELECT question_id FROM questions WHERE status = 'open'");
    if !broken {
        // What persons say is stored as it is, and goes to the model.
        let said = format!("It is {THEIRS}.");
        let held = "contains the value of [secret FORUM]";
        env.run(&["answer", &question, "--text", &said]).refused(2, &["the answer", held]);
        env.run(&["answer", &question, "skip", "--text", OURS]).refused(2, &["the answer contains the value of"]);
        env.run(&["runs", "cancel", "r", "--yes", "--reason", &said]).refused(2, &["the reason", held]);
        let call = env.value("SELECT tool_call_id FROM tool_calls WHERE tool_name LIKE '%post_comment'");
        let resolve = ["calls", "resolve", &call, "--as", "happened", "--yes", "--reason", &said];
        env.run(&resolve).refused(2, &["the reason", held]);
        env.run(&["submit", &job, "--queue", OURS]).refused(2, &["name of the queue contains the value of"]);
        env.run(&["job", &job, "--run-id", OURS]).refused(2, &["name of the run contains the value of"]);
    }
    env.run(&["answer", &question, "--text", "yes"]).code(0);
    env.run(&["resume", "r"]).code(0);
    let out = env.root().join("exported").display().to_string();
    env.run(&["runs", "export", "r", "--out", &out, "--all-files", "--include-blobs"]).code(0);
    env.run(&["runs", "show", "r", "--json"]).code(0);
    let copy = env.root().join("copy.db").display().to_string();
    env.run(&["db", "backup", &copy]).code(0);

    assert!(
        env.root().join("runtime_state.db").exists() && fs::read_dir(env.workspace().join("logs")).unwrap().count() > 0
    );
    let mut found = Vec::new();
    let needles = needles();
    found_below(&env.root(), &needles, &mut found);
    found_below(&env.path("out"), &needles, &mut found);
    found_below(&env.path("home/.local"), &needles, &mut found);
    let needles: Vec<String> = needles.iter().map(|needle| String::from_utf8_lossy(needle).into_owned()).collect();
    found.extend(
        needles.iter().filter(|needle| collector.has_seen(needle)).map(|needle| format!("{needle} sent as telemetry")),
    );
    // What the next request tells the model is kept as little.
    let told = model.last_request().to_string();
    assert!(broken || told.contains("[secret FORUM]") && told.contains("[secret ANTHROPIC_API_KEY]"), "{told}");
    found
}

#[test]
fn s3_no_canary_is_found_in_anything_that_is_written_or_sent() {
    assert_eq!(story(false), [""; 0]);
}

#[test]
fn s3_a_redactor_that_knows_nothing_is_seen() {
    let found = story(true);
    // What tool servers say goes through another redactor, that of the shim.
    for place in ["runtime_state.db", "transcript.md", "sent as telemetry"] {
        assert!(found.iter().any(|line| line.contains(place)), "{place}: {found:#?}");
    }
}
