//! The in-memory model keeps every promise, and the suite can see a store that does not.

use std::collections::BTreeSet;

use ua_core::CallStatus;
use ua_store::conformance::{Scene, agree, agree_beside_deletions, samples};
use ua_store::{MemStore, RunStore};

ua_store::conformance_tests!(MemStore::new);

struct Fleet {
    store: MemStore,
}

fn fleet() -> Fleet {
    Fleet { store: MemStore::new() }
}

ua_store::fleet_conformance_tests!(fleet);

#[tokio::test]
async fn random_writes_are_mostly_accepted_and_reach_every_status() {
    let mut reached = BTreeSet::new();
    for seed in 1..=5 {
        let model = MemStore::new();
        let accepted = agree(&model, &MemStore::new(), seed, 400).await;
        assert!(accepted > 150, "seed {seed}: only {accepted} writes of 400 were accepted");
        for name in ["run_1", "run_2", "run_3"] {
            reached.extend(model.load(&samples::run_id(name)).await.unwrap().calls.into_iter().map(|call| call.status));
        }
    }
    assert_eq!(reached, CallStatus::ALL.iter().copied().collect());
}

/// Whatever stands when a run is deleted, finished or not: no statement that held is broken by it, and nothing stays open.
#[tokio::test]
async fn a_deletion_between_other_writes_breaks_no_statement() {
    let mut deleted = 0;
    for seed in 1..=80 {
        let model = MemStore::new();
        agree_beside_deletions(&model, &MemStore::new(), seed, 120).await;
        deleted += 3 - model.runs(9).await.unwrap().len();
    }
    assert!(deleted > 80, "only {deleted} runs were deleted");
}

#[tokio::test]
#[should_panic(expected = "seed 1, write")]
async fn a_store_that_answers_otherwise_is_seen() {
    let (model, other) = (MemStore::new(), MemStore::new());
    // Here the id of the first call that the random writes will plan is taken.
    Scene::begin(&other, "run_0").await.turn(vec![samples::planned_call("call_run_1_1_1", 1, 1)]).await;
    agree(&model, &other, 1, 200).await;
}

#[test]
fn every_promise_is_listed() {
    let list = include_str!("../../src/conformance.rs");
    let parts = [
        ("ownership", include_str!("../../src/conformance/ownership.rs")),
        ("turns", include_str!("../../src/conformance/turns.rs")),
        ("calls", include_str!("../../src/conformance/calls.rs")),
        ("questions", include_str!("../../src/conformance/questions.rs")),
        ("blobs", include_str!("../../src/conformance/blobs.rs")),
        ("forks", include_str!("../../src/conformance/forks.rs")),
        ("lost_answers", include_str!("../../src/conformance/lost_answers.rs")),
    ];
    for (part, source) in parts {
        for promise in source.split("pub async fn ").skip(1).filter_map(|rest| rest.split('(').next()) {
            assert!(list.contains(&format!("{part}::{promise},")), "{part}::{promise} is not in the list");
        }
    }
}
