//! A copy that is put back where nothing tells what was done since it was made.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;
use ua_core::CallStatus;
use ua_store::conformance::{Scene, samples};
use ua_store::{
    CatchUp, FleetChange, FleetStore as _, PastStore as _, RunStore as _, ScheduleRecord, Store as _, UNACCOUNTED,
};
use ua_store_sqlite::{Restore, Restored, SqliteConfig, SqliteStore, backup};

struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn of(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn open(&self) -> SqliteStore {
        SqliteStore::open(SqliteConfig::new(self.of("runtime_state.db"))).unwrap()
    }

    fn back_up(&self, name: &str) {
        backup(&self.of("runtime_state.db"), &self.of(name)).unwrap();
    }

    /// The machine is gone, and all that lay there but copies.
    fn lose(&self) {
        for entry in fs::read_dir(self.folder.path()).unwrap().flatten() {
            if !entry.file_name().to_string_lossy().starts_with("copy") && entry.path().is_file() {
                fs::remove_file(entry.path()).unwrap();
            }
        }
    }

    fn restore(&self, copy: &str, second: i64) -> Restored {
        let begun = Restore::begin(&self.of(copy), &self.of("runtime_state.db")).unwrap();
        begun.finish(samples::at(second)).unwrap()
    }
}

/// What holds a run, each as the word of it or its status.
async fn held(store: &SqliteStore, run: &str) -> Vec<String> {
    let forgotten = store.forgotten(&samples::run_id(run)).await.unwrap();
    forgotten.into_iter().map(|one| one.word.unwrap_or(one.status)).collect()
}

/// A run with an effect, and one that is queued.
async fn worked(place: &Place) {
    let store = place.open();
    let scene = Scene::begin(&store, "run_a").await;
    scene.call_that_is("call_1", CallStatus::Succeeded).await;
    store.submit_run(samples::new_run("run_b")).await.unwrap();
    store.close().unwrap();
}

#[tokio::test]
async fn runs_of_a_copy_without_its_log_are_held_until_each_is_accepted() {
    let place = Place::new();
    worked(&place).await;
    place.back_up("copy");
    place.lose();
    let restored = place.restore("copy", 900);
    assert!(restored.is_unaccounted && restored.kept.is_none() && restored.knows_until.is_some(), "{restored:?}");

    let store = place.open();
    for run in ["run_a", "run_b"] {
        assert_eq!(held(&store, run).await, [UNACCOUNTED], "{run}");
    }
    let known = store.forgotten(&samples::run_id("run_b")).await.unwrap();
    assert!(known[0].to_string().contains("effects.log of that time is missing"), "{known:?}");
    store.accept_forgotten(&samples::run_id("run_b"), &known, None, samples::at(901)).await.unwrap();
    assert_eq!(held(&store, "run_b").await, [""; 0]);
    assert_eq!(held(&store, "run_a").await, [UNACCOUNTED], "another family");
    // One that came later has nothing to do with it.
    store.submit_run(samples::new_run("run_c")).await.unwrap();
    assert_eq!(held(&store, "run_c").await, [""; 0]);
    // One that is not to send anything more is not held.
    store.request_cancel(&samples::run_id("run_a"), "no longer wanted", samples::at(902)).await.unwrap();
    assert!(store.run(&samples::run_id("run_a")).await.unwrap().end_mark().is_some());
    store.close().unwrap();

    // The same copy once more has forgotten what was accepted of it.
    let again = place.restore("copy", 903);
    assert!(again.is_unaccounted, "{again:?}");
    assert_eq!(held(&place.open(), "run_b").await, [UNACCOUNTED]);
}

/// The log of the copy's own time and what came after it tells everything, and so does the database that is in its place.
#[tokio::test]
async fn a_copy_beside_its_log_holds_nothing_that_was_not_sent() {
    for keeps in ["effects.log", "runtime_state.db"] {
        let place = Place::new();
        worked(&place).await;
        place.back_up("copy");
        fs::rename(place.of(keeps), place.of("copy_of_it")).unwrap();
        place.lose();
        fs::rename(place.of("copy_of_it"), place.of(keeps)).unwrap();
        assert!(!place.restore("copy", 900).is_unaccounted, "{keeps}");
        let store = place.open();
        assert_eq!((held(&store, "run_a").await, held(&store, "run_b").await), (vec![], vec![]), "{keeps}");
    }
}

/// A log that was copied before the database was tells nothing of what came after the database's copy, as one that is missing does.
#[tokio::test]
async fn a_log_from_before_the_copy_tells_nothing() {
    let place = Place::new();
    let store = place.open();
    let scene = Scene::begin(&store, "run_a").await;
    scene.call_that_is("call_1", CallStatus::Succeeded).await;
    fs::copy(place.of("effects.log"), place.of("copy_of_log")).unwrap();
    let other = Scene::begin(&store, "run_b").await;
    other.call_that_is("call_2", CallStatus::Succeeded).await;
    store.close().unwrap();
    place.back_up("copy");
    place.lose();
    fs::rename(place.of("copy_of_log"), place.of("effects.log")).unwrap();
    assert!(place.restore("copy", 900).is_unaccounted);
    let store = place.open();
    for run in ["run_a", "run_b"] {
        assert_eq!(held(&store, run).await, [UNACCOUNTED], "{run}");
    }
}

/// What was begun where a copy had been put back has a log from then on, and nothing of before.
#[tokio::test]
async fn a_newer_copy_from_before_the_machine_was_lost_is_held_as_well() {
    let place = Place::new();
    worked(&place).await;
    place.back_up("copy1");
    let store = place.open();
    store.submit_run(samples::new_run("run_d")).await.unwrap();
    store.close().unwrap();
    place.back_up("copy2");
    place.lose();
    place.restore("copy1", 900);
    assert!(place.restore("copy2", 901).is_unaccounted);
    let store = place.open();
    assert_eq!(held(&store, "run_d").await, [UNACCOUNTED]);
    store.close().unwrap();
}

#[tokio::test]
async fn schedules_that_a_copy_cannot_vouch_for_are_paused() {
    let schedule = |name: &str, cron: &str| ScheduleRecord {
        name: name.to_owned(),
        cron: cron.to_owned(),
        time_zone: "UTC".to_owned(),
        job: serde_json::json!({"file": "/job.json"}),
        catch_up: CatchUp::Last,
        is_paused: false,
        next_at: samples::at(500),
    };
    for is_lost in [false, true] {
        let place = Place::new();
        let store = place.open();
        for name in ["changed", "paused", "removed", "same"] {
            store.fleet(FleetChange::PutSchedule(schedule(name, "0 3 * * *"))).await.unwrap();
        }
        store.close().unwrap();
        place.back_up("copy");
        let store = place.open();
        store.fleet(FleetChange::PutSchedule(schedule("changed", "0 4 * * *"))).await.unwrap();
        let paused = ScheduleRecord { is_paused: true, ..schedule("paused", "0 3 * * *") };
        store.fleet(FleetChange::PutSchedule(paused)).await.unwrap();
        store.fleet(FleetChange::RemoveSchedule { name: "removed".to_owned() }).await.unwrap();
        store.fleet(FleetChange::PutSchedule(schedule("new", "0 3 * * *"))).await.unwrap();
        // When one is due next changes by itself.
        let same = ScheduleRecord { next_at: samples::at(600), ..schedule("same", "0 3 * * *") };
        store.fleet(FleetChange::PutSchedule(same)).await.unwrap();
        store.close().unwrap();
        if is_lost {
            place.lose();
        }
        let restored = place.restore("copy", 900);
        let (expected, lost): (&[&str], &[&str]) = if is_lost {
            (&["changed", "paused", "removed", "same"], &[])
        } else {
            (&["changed", "paused", "removed"], &["new"])
        };
        assert_eq!(restored.paused, expected);
        assert_eq!(restored.lost_schedules, lost);
        let state = place.open().fleet_state(0).await.unwrap();
        let paused: Vec<&str> = state.schedules.iter().filter(|one| one.is_paused).map(|one| &*one.name).collect();
        assert_eq!(paused, expected);
    }
}
