//! Two live siblings that ask for the very same e-mail: one is sent, and whoever comes second waits for its receipt, in the same process or
//! in the next one.
//!
//! A twin that is being sent in the same tree is waited for, also when it is sent again under its key after a death. Only where the second one
//! asks while its twin is in doubt and nobody is settling that does its branch park, with a question that closes itself once the twin has its
//! receipt; nobody has to answer it.

use ua_core::{CallStatus, RunStatus};
use ua_store::{CallRecord, QuestionKind, RunStore as _};
use ua_testkit::CrashAt;

use super::family::Family;

/// Both conversations are word for word the same from the second turn on.
const SCRIPT: &str = r#"{
  "turns": [
    {"tools": [
      {"name": "mcp__ua_agents__task", "input": {"description": "First", "prompt": "ALPHA: tell the boss."}},
      {"name": "mcp__ua_agents__task", "input": {"description": "Second", "prompt": "BETA: tell the boss."}}]},
    {"text": "All done."}],
  "conversations": [
    {"when": "ALPHA", "turns": [
      {"tools": [{"name": "mcp__ua__send_email", "input": {"to": ["a@example.test"], "subject": "Report", "body": "Done."}}]},
      {"text": "The boss knows."}]},
    {"when": "BETA", "turns": [
      {"tools": [{"name": "mcp__ua__send_email", "input": {"to": ["a@example.test"], "subject": "Report", "body": "Done."}}]},
      {"text": "The boss knows."}]}]}"#;

const JOB: &str =
    r#"{"objective": "Tell a@example.test once.", "subagents": {}, "stop_conditions": ["email_sent_once"]}"#;

/// Resumes until the run has ended, and says nothing to anybody.
async fn without_a_word(family: &Family, at: &str) {
    for _ in 0..4 {
        let run = family.live(None).await.unwrap();
        if run.status == RunStatus::Succeeded {
            return;
        }
        assert_eq!(run.status, RunStatus::WaitingForHuman, "{at}: {:?}", run.status_detail);
        let questions = family.questions().await;
        assert!(!questions.is_empty(), "{at}: it waits for nobody");
        for question in questions {
            assert_eq!(question.kind, QuestionKind::NearDuplicate, "{at}: {}", question.text);
        }
    }
    panic!("{at}: the twin's receipt was never taken over");
}

async fn mails(family: &Family) -> Vec<CallRecord> {
    let mut mails = Vec::new();
    for child in family.children().await {
        mails.extend(family.store.load(&child.run_id).await.unwrap().calls);
    }
    mails
}

async fn check_end(family: &Family, at: &str) {
    assert_eq!(family.world.count("send_email"), 1, "{at}");
    let mails = mails(family).await;
    assert_eq!(mails.iter().map(|mail| mail.status).collect::<Vec<_>>(), [CallStatus::Succeeded; 2], "{at}");
    let (twins, senders): (Vec<_>, Vec<_>) = mails.iter().partition(|mail| mail.deduplicated_from.is_some());
    let ([twin], [sender]) = (&twins[..], &senders[..]) else {
        panic!("one sends and one does not at {at}: {mails:?}")
    };
    assert_eq!((twin.deduplicated_from.as_ref(), twin.attempt), (Some(&sender.call_id), 0), "{at}");
    assert!(family.questions().await.is_empty(), "{at}: a question is left behind");
    family.check(at).await;
}

#[tokio::test]
async fn one_of_two_live_siblings_sends_and_the_other_has_its_receipt_wherever_we_die() {
    let points = {
        let family = Family::with_slow_tools(SCRIPT, JOB);
        let (run, points) = family.crash_points().await;
        assert_eq!(run.status, RunStatus::Succeeded, "the second finds the first under way, and waits for its receipt");
        check_end(&family, "no death").await;
        points
    };
    for at in points {
        let family = Family::with_slow_tools(SCRIPT, JOB);
        family.live(Some(at)).await;
        let at = format!("{at:?}");
        without_a_word(&family, &at).await;
        check_end(&family, &at).await;
    }
}

#[tokio::test]
async fn where_the_job_says_so_the_second_sibling_is_refused_in_words() {
    let job = JOB.replace("\"subagents\"", "\"constraints\": {\"on_scope_conflict\": \"refuse\"}, \"subagents\"");
    for at in [None, Some(CrashAt::After(24))] {
        let family = Family::with_slow_tools(SCRIPT, &job);
        family.live(at).await;
        let run = family.finish().await;
        assert_eq!(run.status, RunStatus::Succeeded, "{at:?}: {:?}", run.status_detail);
        assert_eq!(family.world.count("send_email"), 1, "{at:?}");
        let second = mails(&family).await.into_iter().filter(|mail| mail.attempt == 0).collect::<Vec<_>>();
        let [second] = &second[..] else { panic!("one was sent: {second:?}") };
        let was_told = second.deduplicated_from.is_some()
            || second.error_detail.as_ref().is_some_and(|words| words.contains("may already have had this effect"));
        assert!(was_told, "{at:?}: {second:?}");
        family.check("refused").await;
    }
}
