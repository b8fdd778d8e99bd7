//! What must hold of a provider's conversation: it goes on from replies of committed turns, and from the newest one.

use super::Violations;
use crate::record::RunRecords;

/// A request that continues from a reply continues from that of the turn before the one it asks for, own or shared; a reply that no
/// turn has is never continued from.
pub(super) fn continued(found: &mut Violations, records: &RunRecords) {
    for request in &records.requests {
        let Some(from) = &request.continued_from else { continue };
        let mut turns = records.lineage.turns.iter().chain(&records.turns);
        let is_before = turns.any(|turn| {
            turn.turn + 1 == request.turn
                && turn.committed_at.is_some()
                && turn.reply.response_id.as_deref() == Some(from.as_str())
        });
        if !is_before {
            let row = format!("request {}", request.request_id);
            let why =
                format!("continued from {from}, which is not the reply of turn {}", request.turn.saturating_sub(1));
            found.add("only_committed_replies_are_continued_from", row, why);
        }
    }
}

#[cfg(all(test, feature = "conformance"))]
mod tests {
    use crate::conformance::{Scene, samples};
    use crate::invariants::check;
    use crate::{MemStore, RequestReservation, RunStore as _};

    #[tokio::test]
    async fn a_request_that_continues_from_anything_but_the_last_committed_reply_is_seen() {
        let store = MemStore::default();
        let scene = Scene::begin(&store, "run_1").await;
        for turn in [1, 2] {
            scene.turn(Vec::new()).await;
            scene.commit(turn).await;
        }
        let reservation =
            |from: &str| RequestReservation { continued_from: Some(from.to_owned()), ..samples::reservation(3) };
        store.reserve_request(&scene.lease, reservation("resp_2")).await.unwrap();
        let whole = scene.records().await;
        let is_seen = |records: &crate::RunRecords| {
            let found = check(records, &[]);
            found.iter().any(|violation| violation.invariant == "only_committed_replies_are_continued_from")
        };
        assert!(!is_seen(&whole), "{:?}", check(&whole, &[]));
        for other in ["resp_1", "resp_3"] {
            let mut records = whole.clone();
            records.requests.last_mut().unwrap().continued_from = Some(other.to_owned());
            assert!(is_seen(&records), "{other}");
        }
        let mut records = whole;
        records.turns[1].committed_at = None;
        assert!(is_seen(&records), "a turn that is not committed");
    }
}
