//! The timeline in a real browser: it draws every row, says nothing on the console, and whatever a tool or a model said stays text.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use ua_core::Timestamp;
use ua_e2e::{Browser, TestEnv};
use ua_report::RunExport;
use ua_store::RunRecords;
use ua_testkit::{skipped, workspace_root};

use super::env;

/// The browser of this machine. Where there is none the test says so and shows nothing.
fn browser(env: &TestEnv) -> Option<Browser> {
    let found = Browser::find(&env.path("home"));
    if found.is_none() {
        skipped("no Chromium on this machine, so no page was looked at (`apt-get install chromium`)");
    }
    found
}

fn timeline(env: &TestEnv, run: &str) -> PathBuf {
    let output = env.run(&["runs", "export", run, "--html"]).code(0);
    let file = PathBuf::from(output.stdout.trim());
    assert_eq!(file, env.workspace().join("timeline.html"));
    file
}

fn number(env: &TestEnv, sql: &str) -> usize {
    env.value(sql).parse().unwrap_or_else(|e| panic!("{sql}: {e}"))
}

#[test]
fn a_killed_and_resumed_research_job_is_drawn_row_by_row() {
    let env = env().with_pdf();
    let job = workspace_root().join("fixtures/jobs/research_report.json").display().to_string();
    env.run_killed_at("after:tool.invoke:upload", &["job", &job, "--run-id", "research"]);
    env.run_killed_at("before:tool.invoke:send_email", &["resume", "research"]);
    env.run(&["resume", "research"]).code(0);
    let file = timeline(&env, "research");
    // Looking at a run changes nothing about it, and a page is no file that a tool made.
    assert_eq!(env.effects(), [1, 1, 1, 0]);
    let Some(browser) = browser(&env) else { return };
    let page = browser.open(&file, "");
    page.is_well();
    assert_eq!(page.count("data-call"), number(&env, "SELECT count(*) FROM tool_calls"));
    assert_eq!(page.count("data-turn"), number(&env, "SELECT count(*) FROM turns"));
    // Three processes, two of them killed: in the table, on the axis, and between the turns.
    assert_eq!(page.count("data-epoch"), number(&env, "SELECT lease_epoch FROM runs"));
    assert_eq!(page.drawn().matches("class=\"kill\"").count(), 2);
    assert_eq!(page.count("data-boundary"), 2);
    // The receipts of a call, when it is opened.
    let call = env.value("SELECT tool_call_id FROM tool_calls WHERE tool_name = 'upload'");
    let opened = browser.open(&file, &call);
    opened.is_well();
    let mine = format!("WHERE tool_call_id = '{call}'");
    assert_eq!(opened.count("data-attempt"), number(&env, &format!("SELECT count(*) FROM tool_attempts {mine}")));
    assert_eq!(opened.count("data-receipt"), number(&env, &format!("SELECT count(*) FROM tool_receipts {mine}")));
    let external = env.value(&format!("SELECT external_correlation_id FROM tool_calls {mine}"));
    assert!(opened.drawn().contains(&external), "{external}");
}

#[test]
fn what_tools_and_models_say_stays_text_in_the_browser() {
    let env = env().with_forum();
    let text = "</script><script>document.documentElement.dataset.owned = 1</script><img src=x onerror=\"document.documentElement.dataset.owned = 2\">\u{2028}\u{1b}[2J\u{202e}<!--";
    let turns = json!([
        {"text": text, "tools": [{"name": "mcp__forum__get_page", "input": {"text": text}}, {"name": format!("tool{text}"), "input": {"text": text}}]},
        {"text": text, "tools": [{"name": "mcp__forum__post_comment", "input": {"text": text}}]},
        {"text": text},
    ]);
    let job = env.job(&json!({"objective": text, "tools": {"builtin": false}}), &turns);
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    env.run(&["resume", "r"]).code(75);
    let file = timeline(&env, "r");
    let html = fs::read_to_string(&file).unwrap();
    assert!(!html.contains("<img") && !html.contains(['\u{1b}', '\u{202e}', '\u{2028}']));
    let Some(browser) = browser(&env) else { return };
    let question = number(&env, "SELECT count(*) FROM questions");
    for call in ["", &env.value("SELECT tool_call_id FROM tool_calls WHERE tool_name = 'get_page'")] {
        let page = browser.open(&file, call);
        page.is_well();
        assert!(!page.dom.contains("data-owned"), "a script of foreign text ran");
        assert!(!page.dom.contains("<img"), "foreign text became an element");
        assert_eq!(page.dom.matches("<script").count(), 2);
        assert!(page.drawn().contains("&lt;img src=x onerror="), "it is shown as what it is");
        assert!(page.drawn().contains("\\u{202e}"), "what hides is made visible");
        assert_eq!(page.count("data-question"), question);
        assert_eq!(page.count("data-call"), number(&env, "SELECT count(*) FROM tool_calls"));
    }
}

/// A job makes one turn; its rows, as exported, are then repeated under other names.
#[test]
fn a_run_of_ten_thousand_calls_opens() {
    let env = env().with_forum();
    let turns = json!([{"text": "I look.", "tools": [{"name": "mcp__forum__get_page", "input": {"text": "a page"}}]}, {"text": "Done."}]);
    env.run(&["job", &env.job(&json!({"tools": {"builtin": false}}), &turns), "--run-id", "r"]).code(0);
    let mut document = env.run(&["runs", "export", "r", "--json"]).code(0).json();
    let rows = |document: &Value, name: &str| document["records"][name].as_array().unwrap().clone();
    for name in ["turns", "calls", "attempts", "receipts"] {
        let first = rows(&document, name)[0].clone();
        let repeated: Vec<Value> = (1..=10_000).map(|n| renumbered(&first, n)).collect();
        document["records"][name] = json!(repeated);
    }
    let records: RunRecords = serde_json::from_value(document["records"].clone()).unwrap();
    let html = ua_report::timeline_html(&RunExport {
        records: &records,
        events: &[],
        lineage: &[],
        artifacts: None,
        evidence: None,
        blobs: &BTreeMap::new(),
        arrivals: &[],
        standing: ua_resume::Standing::Stored(records.run.status, records.run.stop_reason),
        next: ua_resume::NextStep::of(&records.run),
        commands: &ua_resume::Commands::default(),
        written_at: Timestamp::from_millis(1_800_000_000_000),
        program: "ua test",
    });
    assert!(html.len() < 40_000_000, "{} bytes", html.len());
    let file = env.path("many.html");
    fs::write(&file, html).unwrap();
    let Some(browser) = browser(&env) else { return };
    let page = browser.open(&file, "");
    page.is_well();
    assert!(page.drawn().contains("10,000 turns · 10,000 calls"), "it says how many there are");
    let drawn = page.count("data-turn");
    assert!(drawn > 100 && drawn < 1_000, "{drawn} of 10,000 turns are drawn at once");
    // A call far behind is found by its name.
    let call = records.calls[9_000].call_id.to_string();
    let far = browser.open(&file, &call);
    far.is_well();
    assert!(far.drawn().contains(&format!("data-call=\"{call}\"")), "call {call} was not unfolded");
}

/// A row of the first turn as a row of turn `n`.
fn renumbered(row: &Value, n: u32) -> Value {
    let mut row = row.clone();
    if let Some(id) = row["call_id"].as_str() {
        row["call_id"] = json!(format!("{}_{n}", &id[..20]));
    }
    if row["turn"].is_number() {
        row["turn"] = json!(n);
    }
    if row["position"].is_object() {
        row["position"]["turn"] = json!(n);
    }
    row
}
