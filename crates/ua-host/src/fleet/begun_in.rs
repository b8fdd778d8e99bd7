//! What is said of runs that wait and that only workers of one place take, because they were begun there.

use ua_core::{RunId, Timestamp};
use ua_store::{QueueEntry, QueueState, Store as _, StoreError, WorkerRecord};

use crate::Database;
use crate::database::{OtherPlace, Whereabouts};
use crate::text::foreign;

/// Says why each run waits that is due and was begun in another place: its lineage is driven there alone, by a worker that may not be there.
///
/// # Errors
/// The database cannot be read.
pub async fn say_where_begun(
    store: &Database,
    queue: &mut [QueueEntry],
    workers: &[WorkerRecord],
    now: Timestamp,
) -> Result<(), StoreError> {
    let waits = |entry: &&mut QueueEntry| {
        entry.state == QueueState::Ready && entry.why.is_none() && entry.options.run_after <= now
    };
    let mut waiting: Vec<&mut QueueEntry> = queue.iter_mut().filter(waits).collect();
    let runs: Vec<RunId> = waiting.iter().map(|entry| entry.run_id.clone()).collect();
    let places = store.whereabouts(&runs.iter().collect::<Vec<_>>()).await?;
    for (entry, place) in waiting.iter_mut().zip(places) {
        if let Whereabouts::Elsewhere(place) = place {
            let is_to_end = store.run(&entry.run_id).await?.end_mark().is_some();
            let lead = if is_to_end { "to be ended; " } else { "" };
            entry.why = Some(format!("{lead}{}", begun_in(&place, workers, now)));
        }
    }
    Ok(())
}

/// Why a run waits that was begun in a root whose path and host another root has now: no worker that is started there takes it. The command comes
/// before the path, which may be long where a line is cut.
pub(super) fn replaced(place: &OtherPlace) -> String {
    format!(
        "begun in a root that another one replaced under the same name (a lost volume?); if it is gone for good, {} lets others take it ({})",
        place.forget(),
        foreign(&place.shown)
    )
}

/// Why a run waits that was begun in a place. A place is its id: another root may have its path and its host.
fn begun_in(place: &OtherPlace, workers: &[WorkerRecord], now: Timestamp) -> String {
    let alive: Vec<&WorkerRecord> = workers.iter().filter(|worker| worker.lease_until > now).collect();
    let there: Vec<&&WorkerRecord> = alive.iter().filter(|worker| worker.place == place.id).collect();
    if there.is_empty() && alive.iter().any(|worker| worker.place_shown == place.shown) {
        return replaced(place);
    }
    let place = foreign(&place.shown);
    if there.is_empty() {
        format!("begun in {place}, where no worker runs; only one there takes it")
    } else if there.iter().all(|worker| worker.is_draining) {
        format!("begun in {place}, where the worker takes no more runs; only one there takes it")
    } else {
        format!("begun in {place}; only a worker there takes it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_another_place_says_whether_a_worker_is_there() {
        let at = |second: i64| Timestamp::from_millis(second * 1_000);
        let worker = |id: &str, place: &str, lease: i64, is_draining| WorkerRecord {
            worker: "w".to_owned(),
            place: id.to_owned(),
            place_shown: place.to_owned(),
            owner: ua_runner::owner_stamp(ua_core::Trace::new(&ua_core::system::env())),
            version: "1.0.0".to_owned(),
            queues: Vec::new(),
            slots: 1,
            started_at: at(0),
            lease_until: at(lease),
            is_draining,
        };
        let id = "01a221d7-0000-7000-8000-000000000002";
        let two = OtherPlace { id: id.to_owned(), shown: "/runs on two".to_owned() };
        let said = |workers: &[WorkerRecord]| begun_in(&two, workers, at(50));
        let nobody = "begun in /runs on two, where no worker runs; only one there takes it";
        assert_eq!(said(&[]), nobody);
        assert_eq!(said(&[worker("1", "/runs on one", 60, false), worker(id, "/runs on two", 50, false)]), nobody);
        assert!(said(&[worker(id, "/runs on two", 60, true)]).contains("takes no more runs"));
        let drains = worker(id, "/runs on two", 60, true);
        assert_eq!(
            said(&[drains, worker(id, "/runs on two", 60, false)]),
            "begun in /runs on two; only a worker there takes it"
        );
        // Its volume was lost: the worker of that path and host is in another root.
        let lost = said(&[worker("3", "/runs on two", 60, false)]);
        let end = lost.find("` lets others").unwrap();
        assert!(
            lost.contains(&format!("`ua workers forget {id}`")) && end < 200,
            "a list shows 200 characters: {lost}"
        );
        assert!(!lost.contains("only a worker there"), "{lost}");
        // Whoever writes to the database chooses how a place is called.
        let hostile = OtherPlace { id: "x; rm -r ~".to_owned(), shown: "/r`\n`ua answer 1 approve` on x".to_owned() };
        let named = replaced(&hostile);
        assert!(
            named.contains("`ua workers forget 'x; rm -r ~'`") && named.ends_with("(/r' 'ua answer 1 approve' on x)"),
            "{named}"
        );
        // Where both are, the run's own root counts.
        let both = said(&[worker("3", "/runs on two", 60, false), worker(id, "/runs on two", 60, false)]);
        assert_eq!(both, "begun in /runs on two; only a worker there takes it");
    }
}
