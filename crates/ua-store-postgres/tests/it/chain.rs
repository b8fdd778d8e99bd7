//! The chain over the events of a run is the one that every store makes: a database can be moved, and edits are found.

use ua_core::{CallStatus, sha256};
use ua_store::LedgerStore as _;
use ua_store::conformance::{Scene, samples};

use crate::cluster::blocking;
use crate::database::Database;

/// What `ua-store-sqlite` digests for one event (`event_chain.rs`), in words of its own.
fn link(pieces: &[&str]) -> String {
    let bytes = pieces
        .iter()
        .flat_map(|piece| (piece.len() as u64).to_be_bytes().into_iter().chain(piece.bytes()).collect::<Vec<_>>());
    sha256(bytes.collect::<Vec<_>>()).to_string()
}

#[tokio::test]
async fn each_event_is_linked_to_the_one_before_it_in_its_run() {
    let Some(database) = Database::fresh() else { return };
    let store = database.store();
    let (one, other) = (Scene::begin(&store, "run_1").await, Scene::begin(&store, "run_2").await);
    one.turn(vec![samples::planned_email("call_1", 1, 1)]).await;
    other.turn(vec![samples::planned_email("call_2", 1, 1)]).await;
    one.bring("call_1", CallStatus::Succeeded).await;
    other.bring("call_2", CallStatus::Unknown).await;
    let call = store.call(&samples::call_id("call_1")).await.unwrap();
    one.commit(1).await;
    store.correct_call(samples::correct(&call, ua_core::CorrectedTo::NotHappened, 70)).await.unwrap();

    let by_hand = database.by_hand();
    let sql = "SELECT run_id, event_seq::text, tool_call_id, coalesce(from_status, ''), to_status, lease_epoch::text, at, correction_json, chain \
               FROM tool_call_events ORDER BY run_id, event_seq";
    let rows = blocking(by_hand.query(sql, &[])).unwrap();
    assert_eq!(rows.len(), 7);
    let (mut run, mut before) = (String::new(), String::new());
    for row in &rows {
        let texts: Vec<String> = (0..7).map(|column| row.get(column)).collect();
        let (correction, chain): (Option<String>, String) = (row.get(7), row.get(8));
        if run != texts[0] {
            (run, before) = (texts[0].clone(), String::new());
        }
        let mut pieces = vec![before.as_str()];
        pieces.extend(texts.iter().map(String::as_str));
        pieces.extend(correction.as_deref());
        assert_eq!(chain, link(&pieces), "{texts:?}");
        before = chain;
    }
}
