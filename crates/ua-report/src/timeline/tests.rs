//! What the page holds. That it draws itself without an error is shown in a real browser by the end-to-end tests.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use ua_core::{BlobId, PossibleEffect, RunStatus, Timestamp};

use super::data::data;
use super::page::timeline_html;
use crate::export::RunExport;
use ua_evidence::evaluate;
use ua_evidence::testing::{Story, artifact, hostile_story, mail_policy, read_policy};
use ua_resume::{AroundRun, Commands, NextStep, ResumePacket, Standing};

fn with_export<T>(story: &Story, blobs: &BTreeMap<BlobId, String>, look: impl FnOnce(&RunExport<'_>) -> T) -> T {
    let records = &story.records;
    let artifacts = [artifact("work_products/report.pdf")];
    let evidence = evaluate(&records.run.spec, &records.calls, &records.receipts, &artifacts, &|_| None);
    look(&RunExport {
        records,
        events: &[],
        lineage: &[],
        artifacts: Some(&artifacts),
        evidence: Some(&evidence),
        blobs,
        arrivals: &[],
        standing: Standing::of(records.run.status, records.run.stop_reason, AroundRun::default()),
        next: NextStep::of(&records.run),
        commands: &Commands::default(),
        written_at: Timestamp::from_millis(1_767_323_046_000),
        program: "ua test",
    })
}

fn drawn(story: &Story) -> Value {
    with_export(story, &BTreeMap::new(), data)
}

fn page(story: &Story) -> String {
    with_export(story, &BTreeMap::new(), timeline_html)
}

fn killed_and_resumed() -> Story {
    let mut story = Story::new(r#"{"objective": "Mail Ana.", "stop_conditions": ["email_sent_once"]}"#);
    let ids = story.asks(
        "I read, then I send.",
        &[
            ("crawl", json!({"url": "http://127.0.0.1/"}), read_policy()),
            ("send_email", json!({"to": "ana"}), mail_policy()),
        ],
    );
    story.starts(&ids[0]);
    story.succeeds(&ids[0], "the page", None);
    story.starts(&ids[1]);
    story.is_killed();
    story.loses(&ids[1]);
    let question = story.questions(&ids[1]);
    story.answered_happened(&question, &ids[1], "<m-1@example.test>");
    story.commits();
    story.asks("Done.", &[]);
    story.commits();
    story.ends(RunStatus::Succeeded, None, "every stop condition holds");
    story
}

#[test]
fn the_data_of_a_killed_and_resumed_run_is_this() {
    insta::assert_json_snapshot!("timeline_data", drawn(&killed_and_resumed()));
}

/// What a person reads of a failure has the words of the terminal; what programs read has what the system said. What was sent, and what
/// came back, stands on each page as it was.
#[test]
fn pages_tell_a_systems_error_in_plain_words_and_reword_nothing_else() {
    let said = "could not attach a.pdf: No such file or directory (os error 2)";
    let sent = "x: Permission denied (os error 2)";
    let mut story = Story::new(r#"{"objective": "Mail Ana."}"#);
    let id = story.asks("", &[("send_email", json!({"to": "ana", "body": sent}), mail_policy())])[0].clone();
    story.starts(&id);
    story.reports_failure(&id, said, PossibleEffect::None);
    story.ends(RunStatus::Failed, None, "the workspace cannot be written: Permission denied (os error 13)");
    let records = &story.records;
    let standing = Standing::of(records.run.status, records.run.stop_reason, AroundRun::default());
    let evidence = evaluate(&records.run.spec, &records.calls, &records.receipts, &[], &|_| None);
    let summary = crate::CompletionSummary::new(records, &evidence, &[]);
    let logs = crate::log_files(records);
    let packet = ResumePacket::new(records, &[], &[]);
    let pages = [
        ("timeline", page(&story)),
        ("completion", summary.to_markdown()),
        ("summary", crate::session_summary(records, &standing, None)),
        ("run.log", logs.run_log),
        ("packet", packet.to_markdown()),
    ];
    for (name, text) in &pages {
        assert!(!text.contains("denied (os error 13)"), "{name}: {text}");
        let words = ["there is no such file or folder", "cannot be written: permission denied"];
        assert!(words.iter().any(|plain| text.contains(plain)), "{name}: {text}");
    }
    let [(_, timeline), .., (_, packet)] = &pages;
    for text in [timeline, packet] {
        assert!(text.contains("could not attach a.pdf: there is no such file or folder"), "{text}");
        assert!(text.contains(sent) && text.contains(said), "{text}");
    }
    let completion = json!(summary).to_string();
    assert!(completion.contains("(os error 2)"), "{completion}");
}

/// A client's session has no turns.
#[test]
fn a_call_of_a_session_has_its_number_for_its_place() {
    let mut story = killed_and_resumed();
    let places = |story: &Story| {
        let calls = drawn(story)["calls"].as_array().unwrap().clone();
        calls.iter().map(|call| call["place"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(places(&story).iter().all(|place| place.starts_with("turn ")), "{:?}", places(&story));
    ua_store::GATEWAY_MODE.clone_into(&mut story.records.run.run_mode);
    assert!(places(&story).iter().all(|place| place.starts_with("call ")), "{:?}", places(&story));
    let log = crate::log_files(&story.records).run_log;
    assert!(log.contains(" call 1 · ") && !log.contains("turn 1 · call 1"), "{log}");
}

#[test]
fn every_row_is_drawn() {
    let story = killed_and_resumed();
    let drawn = drawn(&story);
    let count = |name: &str| drawn[name].as_array().unwrap().len();
    assert_eq!(count("turns"), story.records.turns.len());
    assert_eq!(count("calls"), story.records.calls.len());
    assert_eq!(count("questions"), 1);
    assert_eq!(count("lives"), 3);
    let attempts: usize =
        drawn["calls"].as_array().unwrap().iter().map(|c| c["attempts"].as_array().unwrap().len()).sum();
    assert_eq!(attempts, story.records.attempts.len());
}

#[test]
fn a_call_that_may_have_happened_is_not_drawn_as_done() {
    let mut story = Story::new(r#"{"objective": "x"}"#);
    let id = story.asks("", &[("send_email", json!({}), mail_policy())])[0].clone();
    story.starts(&id);
    story.loses(&id);
    let call = drawn(&story)["calls"][0].clone();
    assert_eq!((&call["evidence"], &call["external"]), (&Value::Null, &Value::Null));
    assert!(call["verdict"].as_str().unwrap().starts_with("NOT CONFIRMED"), "{call}");
}

#[test]
fn the_page_refers_to_nothing_outside_itself() {
    let page = page(&killed_and_resumed());
    for reference in ["src=", "@import", "url(", "<link", "fetch(", "XMLHttpRequest", "import(", "innerHTML", "eval("] {
        assert!(!page.contains(reference), "{reference}");
    }
    assert!(page.contains("default-src 'none'; script-src 'sha256-"));
    assert!(!page.contains("unsafe-inline") && !page.contains("{{"));
}

#[test]
fn what_tools_and_models_say_cannot_leave_the_data() {
    let (mut story, ids) = hostile_story();
    let attack = "</script><img src=x onerror=alert(1)>\u{2028}\u{1b}[2J\u{202e}{{script}}";
    story.call(&ids[0]).arguments = json!({"path": attack}).into();
    std::sync::Arc::make_mut(&mut story.records.run.spec).objective = attack.to_owned();
    // Whatever the database has, a column that nobody thought of too.
    let run = &mut story.records.run;
    (run.status_detail, run.final_output, run.job_key) =
        (Some(attack.to_owned()), Some(attack.to_owned()), Some(attack.to_owned()));
    run.provider_session_id = Some(attack.to_owned());
    story.call(&ids[0]).external_correlation_id = Some(attack.to_owned());
    let page = page(&story);
    let hidden = page
        .chars()
        .find(|c| ua_core::is_hidden(*c) && !matches!(c, '\u{200c}'..='\u{200d}' | '\u{fe0e}'..='\u{fe0f}'));
    assert_eq!(hidden, None, "nothing that hides or turns text");
    assert_eq!(page.matches("</script>").count(), 2, "the data's end and the script's");
    assert_eq!(page.matches("<script").count(), 2);
    assert!(!page.contains("<img") && !page.contains(['\u{1b}', '\u{202e}', '\u{2028}']));
    // Made visible, it is all there.
    assert!(page.contains("\\u003c/script\\u003e\\u003cimg src=x onerror=alert(1)\\u003e"), "as data");
}

#[test]
fn a_long_run_makes_a_bounded_page_that_says_what_it_leaves_out() {
    let mut story = Story::new(r#"{"objective": "x"}"#);
    let text = "a long text ".repeat(60);
    for _ in 0..3 {
        let id = story.asks(&text, &[("crawl", json!({"text": text}), read_policy())])[0].clone();
        story.starts(&id);
        story.succeeds(&id, &text, None);
        story.commits();
    }
    let (turns, calls) = (story.records.turns.clone(), story.records.calls.clone());
    for n in 4..=30_000_u32 {
        let mut turn = turns[1].clone();
        turn.turn = n;
        story.records.turns.push(turn);
        let mut call = calls[1].clone();
        call.position.turn = n;
        story.records.calls.push(call);
    }
    let drawn = drawn(&story);
    let shown = drawn["calls"].as_array().unwrap();
    assert_eq!(drawn["totals"]["calls"], 30_000);
    assert_eq!(drawn["left_out"]["calls"].as_u64().unwrap() + shown.len() as u64, 30_000);
    assert!(shown.len() <= 20_000 && shown.len() > 15_000, "{}", shown.len());
    assert_eq!((&shown[0]["turn"], &shown[shown.len() - 1]["turn"]), (&json!(1), &json!(30_000)));
    let size = drawn.to_string().len();
    assert!(size < 48_000_000, "{size} bytes");
}

#[test]
fn a_large_result_is_shown_when_its_text_is_at_hand() {
    let mut story = Story::new(r#"{"objective": "x"}"#);
    let id = story.asks("", &[("crawl", json!({}), read_policy())])[0].clone();
    story.starts(&id);
    let blob = ua_core::BlobRef::of("the whole text");
    story.succeeds(&id, "", None);
    let settlement = story.records.receipts[0].settlement.as_mut().unwrap();
    settlement.content.as_mut().unwrap().text = ua_core::ToolText::by_reference(blob.clone());
    let without = drawn(&story)["calls"][0]["result"].clone();
    assert!(without["text"].as_str().unwrap().contains("UA_BLOB_REF"), "{without}");
    let blobs = BTreeMap::from([(blob.blob_id, "the whole text".to_owned())]);
    let with = with_export(&story, &blobs, data)["calls"][0]["result"].clone();
    assert_eq!((&with["text"], &with["blob_bytes"]), (&json!("the whole text"), &json!(14)));
}
