//! No word of a person is stored with a secret in it, whichever change it comes in.

use std::sync::Arc;

use serde_json::json;
use ua_core::Redactor;
use ua_store::conformance::samples;
use ua_store::{
    Author, Batch, Change, Choice, ConcurrencyKey, FleetChange, Guarded, MemStore, NewAnswer, NewRun, OverrideKind,
    QueueOptions, RunStore as _, Said, Store as _, StoreError,
};

const SECRET: &str = "pass-canary-5f1d7e20c4";
/// The same in base64, which nobody reads as a secret.
const DRESSED: &str = "cGFzcy1jYW5hcnktNWYxZDdlMjBjNA==";

fn redactor() -> Redactor {
    Redactor::new([("PASS".to_owned(), SECRET.to_owned())])
}

/// Changes that hold `word` in one place each.
fn changes(word: &str) -> Vec<Change> {
    let run = |change: &dyn Fn(&mut NewRun)| {
        let mut run = samples::new_run("r");
        change(&mut run);
        run
    };
    let named = samples::new_run(&format!("r-{}", word.trim_end_matches('=')));
    let runs = vec![
        named,
        run(&|run| word.clone_into(&mut run.spec.objective)),
        run(&|run| drop(run.spec.inputs.insert("a".to_owned(), json!([word])))),
        run(&|run| run.job_path = Some(format!("{word}.json"))),
        run(&|run| run.workspace_dir = format!("/workspaces/{word}")),
        run(&|run| run.launch = json!({ "model": word })),
    ];
    let again = Change::SubmitAgain { run: runs[1].clone(), seen: samples::run_id("r") };
    let mut fork = samples::new_fork("f", "r", 1);
    word.clone_into(&mut fork.run.spec.objective);
    let answer = |change: &dyn Fn(&mut NewAnswer)| {
        let mut answer = samples::answer("q", Choice::Skip);
        change(&mut answer);
        Change::Answer(answer)
    };
    let mut made_by = samples::new_override("r", OverrideKind::Budget, "max_turns", json!(7));
    word.clone_into(&mut made_by.made_by);
    let mut all: Vec<Change> = runs.into_iter().map(Change::Submit).collect();
    all.extend([
        again,
        Change::Fork(fork),
        answer(&|new| new.answer.text = Some(format!("use {word}"))),
        answer(&|new| new.answer.proof = Some(word.to_owned())),
        answer(&|new| word.clone_into(&mut new.by)),
        Change::Override(made_by),
        Change::RequestCancel { run: samples::run_id("r"), reason: word.to_owned(), at: samples::at(1) },
    ]);
    all
}

#[tokio::test]
async fn no_change_brings_a_secret_of_a_person_into_a_guarded_store() {
    let store = Guarded::new(Arc::new(MemStore::default()), redactor());
    for word in [SECRET, DRESSED] {
        for change in changes(word) {
            let (name, batch) = (change.name(), Batch::of([change]));
            let refused = store.commit(&Author::Command, batch).await;
            assert!(matches!(refused, Err(StoreError::HoldsSecret { .. })), "{name}: {refused:?}");
        }
    }
    // A word that is no secret is stored, and whoever has no such word is not looked at.
    store.submit_run(samples::new_run("r")).await.unwrap();
    assert_eq!(store.runs(10).await.unwrap().len(), 1);
}

#[test]
fn a_text_that_is_json_is_read_as_that_as_well() {
    let said = |words: &str| Said { what: "reason", words: words.into() }.without_secrets(&redactor());
    assert!(said("the other side said so").is_ok());
    let escaped = SECRET.replace('-', "\\u002d");
    let refused = said(&format!("{{\"a\": \"{escaped}\"}}")).unwrap_err();
    assert_eq!(refused.to_string(), "the reason contains the value of [secret PASS]; nothing was stored");
}

#[test]
fn names_of_queues_workers_and_schedules_are_words_of_people() {
    let options = QueueOptions {
        queue: SECRET.to_owned(),
        concurrency: Some(ConcurrencyKey { key: SECRET.to_owned(), limit: 1 }),
        fair_key: Some(SECRET.to_owned()),
        ..QueueOptions::at(samples::at(0))
    };
    let queued = FleetChange::Enqueue { run: samples::run_id("r"), options, at: samples::at(0) };
    let moved = FleetChange::Move { run: samples::run_id("r"), queue: Some(SECRET.to_owned()), priority: None };
    for (change, words) in [(queued, 3), (moved, 1)] {
        let said = change.said();
        assert_eq!(said.len(), words);
        assert!(said.iter().all(|said| said.without_secrets(&redactor()).is_err()), "{said:?}");
    }
}
