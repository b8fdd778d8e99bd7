//! A copy that is put back: what `effects.log` knows and the copy does not, and processes that still have the old file.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use ua_core::{CallStatus, CorrectedTo, Handle, OnUnknown, SideEffectClass};
use ua_store::conformance::{Scene, samples};
use ua_store::{
    AttemptEnd, Choice, Durability, Forgotten, KeepHandle, LedgerStore as _, NewRun, PastStore as _, RunDeletion,
    RunStore as _, SettleAttempt, Store, StoreError,
};
use ua_store_sqlite::{Restore, SqliteConfig, SqliteStore, backup, cut_off_restore, restore};

struct Place {
    _folder: TempDir,
    path: PathBuf,
    copy: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (path, copy) = (folder.path().join("runtime_state.db"), folder.path().join("copy.db"));
        Self { _folder: folder, path, copy }
    }

    fn open(&self) -> SqliteStore {
        SqliteStore::open(SqliteConfig::new(&self.path)).unwrap()
    }

    fn log(&self) -> PathBuf {
        self.path.with_file_name("effects.log")
    }
}

/// The runs of what speaks against driving `run` on.
async fn forgotten(store: &SqliteStore, run: &str) -> Vec<String> {
    let forgotten = store.forgotten(&samples::run_id(run)).await.unwrap();
    let runs: BTreeSet<String> = forgotten.into_iter().map(|attempt| attempt.run_id).collect();
    runs.into_iter().collect()
}

/// Two families, and a copy of the database: of the first one the copy knows `run_a` alone.
async fn copied(place: &Place) -> SqliteStore {
    let store = place.open();
    for id in ["run_a", "run_b"] {
        store.submit_run(samples::new_run(id)).await.unwrap();
    }
    store.close().unwrap();
    backup(&place.path, &place.copy).unwrap();
    place.open()
}

/// A sub-agent of `run_a`, below a fork of it, sends an e-mail.
async fn send_below_a_fork(store: &SqliteStore) {
    store.submit_run(samples::child_run("run_fork", "run_a")).await.unwrap();
    let task = NewRun { run_mode: "task".to_owned(), ..samples::child_run("run_task_1", "run_fork") };
    Scene::begin_with(store, task).await.call_that_is("call_1", CallStatus::Succeeded).await;
}

fn put_back(place: &Place, store: SqliteStore) -> SqliteStore {
    store.close().unwrap();
    restore(&place.copy, &place.path, samples::at(99)).unwrap();
    place.open()
}

#[tokio::test]
async fn what_a_run_sent_that_the_copy_does_not_know_is_forgotten_for_its_whole_family() {
    let place = Place::new();
    let store = copied(&place).await;
    send_below_a_fork(&store).await;
    assert_eq!(forgotten(&store, "run_a").await, [""; 0]);

    let store = put_back(&place, store);
    let of_family = store.forgotten(&samples::run_id("run_a")).await.unwrap();
    let [Forgotten { run_id, root, tree, .. }] = &of_family[..] else { panic!("{of_family:?}") };
    assert_eq!((run_id.as_str(), root.as_deref(), tree.as_deref()), ("run_task_1", Some("run_a"), Some("run_fork")));
    assert_eq!(forgotten(&store, "run_b").await, [""; 0], "another family");

    store.accept_forgotten(&samples::run_id("run_a"), &of_family, None, samples::at(100)).await.unwrap();
    assert_eq!(forgotten(&store, "run_a").await, [""; 0]);
}

/// Of a call that its tool went on with as a task a copy of before can follow nothing, and whoever is asked about it has to know that.
#[tokio::test]
async fn a_task_that_the_copy_does_not_know_is_known_from_the_log() {
    for ends in [false, true] {
        let place = Place::new();
        let store = copied(&place).await;
        let scene = Scene::take(&store, "run_a").await;
        scene.call_that_is("call_1", CallStatus::Running).await;
        let handle = Handle { task: Some("t-1".to_owned()), ..Handle::default() };
        let keep =
            KeepHandle { call_id: samples::call_id("call_1"), attempt: 1, handle, seen: None, at: samples::at(70) };
        // Asked again and again it is one task.
        for place in [1, 2] {
            let handle = Handle { place: serde_json::json!(place), ..keep.handle.clone() };
            store.keep_handle(&scene.lease, KeepHandle { handle, ..keep.clone() }).await.unwrap();
        }
        if ends {
            let end = AttemptEnd::Lost { why: "it timed out".to_owned() };
            let durability = Durability::Synced;
            let at = samples::at(71);
            let settle = SettleAttempt { call_id: samples::call_id("call_1"), attempt: 1, end, durability, at };
            store.settle_attempt(&scene.lease, settle).await.unwrap();
        }
        assert_eq!(fs::read_to_string(place.log()).unwrap().matches(r#""event":"task""#).count(), 1);
        let store = put_back(&place, store);
        let known = store.forgotten(&samples::run_id("run_a")).await.unwrap();
        let of_call: Vec<_> = known.iter().filter(|known| known.attempt == 1).map(|known| known.is_task).collect();
        assert_eq!(of_call, [true], "{known:?}");
    }
}

/// A line as versions before this one wrote it.
fn without_family(line: &str) -> String {
    let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
    let fields = line.as_object_mut().unwrap();
    assert!(fields.remove("root").is_some() && fields.remove("tree").is_some());
    format!("{line}\n")
}

#[tokio::test]
async fn a_line_of_which_nobody_knows_the_family_counts_for_every_run_until_it_is_accepted() {
    let place = Place::new();
    let store = copied(&place).await;
    send_below_a_fork(&store).await;
    let known = Scene::take(&store, "run_b").await;
    known.call_that_is("call_2", CallStatus::Succeeded).await;
    let old: String = fs::read_to_string(place.log()).unwrap().lines().map(without_family).collect();
    fs::write(place.log(), old).unwrap();

    let store = put_back(&place, store);
    assert_eq!(forgotten(&store, "run_a").await, ["run_task_1"]);
    // Of this one the copy knows the run, and so the family.
    assert_eq!(forgotten(&store, "run_b").await, ["run_b", "run_task_1"]);
    // Also by the name of the run that nobody knows any more.
    let unknown = store.forgotten(&samples::run_id("run_task_1")).await.unwrap();
    store.accept_forgotten(&samples::run_id("run_task_1"), &unknown, None, samples::at(100)).await.unwrap();
    assert_eq!(forgotten(&store, "run_a").await, [""; 0]);
    assert_eq!(forgotten(&store, "run_b").await, ["run_b"]);
}

#[tokio::test]
async fn what_was_deleted_is_known_when_a_copy_that_has_it_is_put_back() {
    let place = Place::new();
    let store = copied(&place).await;
    store.submit_run(samples::new_run("run_c")).await.unwrap();
    for run in ["run_a", "run_c"] {
        let deletion = RunDeletion { run_id: samples::run_id(run), force: true, by: None, at: samples::at(50) };
        let _gone = store.delete_run(&deletion).await.unwrap();
    }
    assert_eq!(store.examine().await.unwrap().forgotten, []);
    // One whose line was lost is known all the same.
    fs::remove_file(place.log()).unwrap();

    let store = put_back(&place, store);
    let known: Vec<String> = store.examine().await.unwrap().forgotten.iter().map(ToString::to_string).collect();
    assert_eq!(known, [format!("{}  run run_a: a person deleted it", samples::at(50))], "the copy has no `run_c`");
    assert_eq!(
        (forgotten(&store, "run_a").await, forgotten(&store, "run_b").await),
        (vec!["run_a".to_owned()], vec![])
    );
    // A run of its name that begins later is another one.
    store.submit_run(NewRun { created_at: samples::at(60), ..samples::new_run("run_c") }).await.unwrap();
    assert_eq!(forgotten(&store, "run_c").await, [""; 0]);

    let of_family = store.forgotten(&samples::run_id("run_a")).await.unwrap();
    store.accept_forgotten(&samples::run_id("run_a"), &of_family, Some("Ada as ua"), samples::at(100)).await.unwrap();
    assert_eq!(forgotten(&store, "run_a").await, [""; 0]);
    let by = Some("Bob as ua".to_owned());
    let deletion = RunDeletion { run_id: samples::run_id("run_a"), force: true, by, at: samples::at(101) };
    let _gone = store.delete_run(&deletion).await.unwrap();
    assert_eq!(store.examine().await.unwrap().forgotten, []);
    // Who it was is asked later, and no row has it.
    let lines = fs::read_to_string(place.log()).unwrap();
    let by_whom = |event: &str| {
        let mut lines = lines.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        lines.rfind(|line| line["event"] == event).map(|line| line["by"].clone())
    };
    assert_eq!(by_whom("accepted"), Some("Ada as ua".into()));
    assert_eq!(by_whom("word"), Some("Bob as ua".into()));
}

#[tokio::test]
async fn a_line_that_was_cut_takes_no_other_one_along() {
    let place = Place::new();
    let store = copied(&place).await;
    let half = "{\"at\":\"2026-";
    fs::write(place.log(), half).unwrap();
    send_below_a_fork(&store).await;
    let lines = fs::read_to_string(place.log()).unwrap();
    assert_eq!(lines.lines().next(), Some(half));
    assert!(lines.lines().skip(1).all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{lines}");

    let store = put_back(&place, store);
    let of_family = store.forgotten(&samples::run_id("run_a")).await.unwrap();
    assert_eq!(of_family.len(), 1);
    // A person's word behind half a line counts as well.
    fs::write(place.log(), format!("{lines}{half}")).unwrap();
    store.accept_forgotten(&samples::run_id("run_a"), &of_family, None, samples::at(100)).await.unwrap();
    assert_eq!(forgotten(&store, "run_a").await, [""; 0]);
    assert!(fs::read_to_string(place.log()).unwrap().ends_with('\n'));
}

fn was_replaced<T: std::fmt::Debug>(outcome: Result<T, StoreError>) {
    match outcome {
        Err(StoreError::Unavailable { why, .. }) => assert!(why.contains("the database was replaced"), "{why}"),
        other => panic!("the old file was written to: {other:?}"),
    }
}

#[tokio::test]
async fn a_process_with_the_old_file_takes_no_run_and_loses_no_word() {
    let place = Place::new();
    let store = copied(&place).await;
    let scene = Scene::take(&store, "run_a").await;
    store.raise_question(&scene.lease, samples::question("q_1", None)).await.unwrap();
    store.end_run(&scene.lease, samples::run_end(ua_core::RunStatus::WaitingForHuman)).await.unwrap();
    restore(&place.copy, &place.path, samples::at(99)).unwrap();

    was_replaced(store.acquire_run(&samples::run_id("run_a"), &samples::owner(1), samples::at(100)).await);
    was_replaced(store.insert_answer(samples::answer("q_1", Choice::Skip)).await);
    was_replaced(store.request_cancel(&samples::run_id("run_b"), "enough", samples::at(100)).await);
    was_replaced(store.submit_run(samples::new_run("run_c")).await);
    // What closes the old file leaves the new one alone.
    store.close().unwrap();
    let store = place.open();
    let run = store.run(&samples::run_id("run_a")).await.unwrap();
    assert_eq!((run.status, run.lease_epoch), (ua_core::RunStatus::Queued, 0));
    store.acquire_run(&samples::run_id("run_a"), &samples::owner(1), samples::at(100)).await.unwrap();
}

#[tokio::test]
async fn nobody_takes_a_run_while_a_copy_is_about_to_take_the_place() {
    let place = Place::new();
    let store = copied(&place).await;
    let about_to = Restore::begin(&place.copy, &place.path).unwrap();
    let taking = async { store.acquire_run(&samples::run_id("run_a"), &samples::owner(1), samples::at(100)).await };
    let restoring = async {
        // The write waits for the lock by now, or comes later: either way it finds another file.
        tokio::task::yield_now().await;
        tokio::task::spawn_blocking(move || about_to.finish(samples::at(99))).await.unwrap().unwrap()
    };
    let (taken, restored) = tokio::join!(taking, restoring);
    was_replaced(taken);
    assert!(restored.kept.as_deref().is_some_and(Path::exists));

    // One that is given up leaves everything as it was.
    let store = place.open();
    drop(Restore::begin(&place.copy, &place.path).unwrap());
    store.acquire_run(&samples::run_id("run_a"), &samples::owner(1), samples::at(100)).await.unwrap();
}

#[test]
fn a_copy_is_put_in_the_place_of_what_cannot_be_read() {
    let place = Place::new();
    drop(place.open());
    backup(&place.path, &place.copy).unwrap();
    fs::write(&place.path, "no database at all").unwrap();
    restore(&place.copy, &place.path, samples::at(99)).unwrap();
    drop(place.open());
    fs::remove_file(&place.path).unwrap();
    assert_eq!(restore(&place.copy, &place.path, samples::at(99)).unwrap(), None);
    drop(place.open());
}

/// What a restore leaves that is killed after so many of its renames, beside what an earlier one kept: a database with a log that has `run_c`.
async fn cut_off_after(renames: usize) -> (Place, PathBuf) {
    let place = Place::new();
    let store = copied(&place).await;
    // As a killed process leaves them: the log is not folded into the file.
    store.submit_run(samples::new_run("run_c")).await.unwrap();
    let left = Place::new();
    for suffix in ["", "-wal", "-shm"] {
        let beside = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
        fs::copy(beside(&place.path), beside(&left.path)).unwrap();
    }
    store.close().unwrap();
    fs::copy(&place.copy, &left.copy).unwrap();
    let named = |suffix: &str| PathBuf::from(format!("{}{suffix}", left.path.display()));
    fs::copy(&place.copy, named(".before-20250101_000000-2")).unwrap();
    fs::copy(&place.copy, named(".restoring")).unwrap();
    let kept = named(".before-20260101_000000");
    for suffix in ["", "-wal", "-shm"].iter().take(renames) {
        fs::rename(named(suffix), named(&format!(".before-20260101_000000{suffix}"))).unwrap();
    }
    (left, kept)
}

async fn runs_of(store: &SqliteStore) -> Vec<String> {
    let mut runs = Vec::new();
    for id in ["run_a", "run_b", "run_c"] {
        runs.extend(store.run(&samples::run_id(id)).await.ok().map(|run| run.run_id.to_string()));
    }
    runs
}

#[tokio::test]
async fn a_restore_that_was_killed_between_its_renames_is_known_and_given_again_or_taken_back() {
    let (untouched, _) = cut_off_after(0).await;
    assert_eq!(cut_off_restore(&untouched.path), None, "the database is in its place");
    for renames in 1..=3 {
        let (place, kept) = cut_off_after(renames).await;
        let left = cut_off_restore(&place.path).unwrap();
        assert_eq!((&left.kept, left.copy.exists()), (&kept, true));
        let refused = restore(&left.copy, &place.path, samples::at(99)).unwrap_err().to_string();
        assert!(left.copy.exists(), "{refused}");
        // Given again: what was there is kept as the first one kept it, with all of its log.
        assert_eq!(restore(&place.copy, &place.path, samples::at(99)).unwrap(), Some(kept.clone()), "{renames}");
        assert_eq!(cut_off_restore(&place.path), None);
        let store = place.open();
        assert_eq!(runs_of(&store).await, ["run_a", "run_b"]);
        store.close().unwrap();
        restore(&kept, &place.path, samples::at(100)).unwrap();
        assert_eq!(runs_of(&place.open()).await, ["run_a", "run_b", "run_c"], "{renames}");

        // Taken back at once.
        let (place, kept) = cut_off_after(renames).await;
        restore(&kept, &place.path, samples::at(99)).unwrap();
        assert_eq!(runs_of(&place.open()).await, ["run_a", "run_b", "run_c"], "{renames}");
    }
}

/// A restore that follows one that was killed may be killed as well: at every moment it is known where the newest database is.
#[tokio::test]
async fn a_restore_that_ends_early_forgets_nothing_of_the_one_that_was_killed_before() {
    for renames in 1..=3 {
        let (place, kept) = cut_off_after(renames).await;
        let named = |suffix: &str| PathBuf::from(format!("{}{suffix}", place.path.display()));
        let knows = |moment: &str| {
            let left = cut_off_restore(&place.path);
            assert_eq!(left.as_ref().map(|left| &left.kept), Some(&kept), "{moment}");
            assert!(left.is_some_and(|left| left.copy.is_file()) && !named(".restoring-next").exists(), "{moment}");
        };
        // While the copy is made, also over what one left that was killed meanwhile.
        fs::write(named(".restoring-next"), "the beginning of a copy").unwrap();
        fs::write(named(".restoring-next-journal"), "").unwrap();
        let begun = Restore::begin(&place.copy, &place.path).unwrap();
        let away = place.copy.with_file_name("away.db");
        fs::rename(&place.copy, &away).unwrap();
        begun.finish(samples::at(99)).unwrap_err();
        knows("while the copy was made");
        fs::rename(&away, &place.copy).unwrap();
        // With the copy complete, before it is in place: the name that a log is to have is taken.
        let begun = Restore::begin(&place.copy, &place.path).unwrap();
        let taken = named(&format!(".before-{}-wal", samples::at(99).compact()));
        fs::create_dir(&taken).unwrap();
        fs::write(named("-wal"), "").unwrap();
        begun.finish(samples::at(99)).unwrap_err();
        knows("before the copy was in place");
        fs::remove_dir(&taken).unwrap();
        fs::remove_file(named("-wal")).unwrap();

        assert_eq!(restore(&place.copy, &place.path, samples::at(99)).unwrap(), Some(kept.clone()));
        assert_eq!(runs_of(&place.open()).await, ["run_a", "run_b"]);
        assert!(!named(".restoring").exists());
    }
}

#[tokio::test]
async fn two_restores_of_one_second_keep_both_databases() {
    let place = Place::new();
    let store = copied(&place).await;
    store.close().unwrap();
    let first = restore(&place.copy, &place.path, samples::at(99)).unwrap().unwrap();
    let second = restore(&place.copy, &place.path, samples::at(99)).unwrap().unwrap();
    assert_ne!(first, second);
    assert!(first.is_file() && second.is_file());
}

#[tokio::test]
async fn a_copy_of_another_database_is_refused_while_this_one_is_there() {
    let (place, other) = (Place::new(), Place::new());
    copied(&place).await.close().unwrap();
    copied(&other).await.close().unwrap();
    let refused = restore(&other.copy, &place.path, samples::at(99)).unwrap_err();
    assert!(matches!(&refused, StoreError::Unavailable { why, .. } if why.contains("another database")), "{refused:?}");
    fs::remove_file(&place.path).unwrap();
    restore(&other.copy, &place.path, samples::at(99)).unwrap();
}

#[tokio::test]
async fn a_database_that_was_put_back_is_as_its_users_expect_it() {
    let place = Place::new();
    copied(&place).await.close().unwrap();
    restore(&place.copy, &place.path, samples::at(99)).unwrap();
    let report = SqliteStore::open_read_only(&place.path).unwrap().examine().await.unwrap();
    assert_eq!(report.findings, [""; 0]);
}

#[tokio::test]
async fn the_log_knows_of_every_call_that_is_not_simply_done_again() {
    let place = Place::new();
    let store = place.open();
    let scene = Scene::begin(&store, "run_1").await;
    let of = |id: &str, ordinal, class, on_unknown| {
        let mut call = samples::planned_email(id, 1, ordinal);
        (call.policy.class, call.policy.on_unknown) = (class, on_unknown);
        call
    };
    let calls = vec![
        of("call_1", 1, SideEffectClass::Memory, OnUnknown::Hold),
        of("call_2", 2, SideEffectClass::Local, OnUnknown::RedoKeyed),
        of("call_3", 3, SideEffectClass::Local, OnUnknown::Redo),
    ];
    scene.turn(calls).await;
    for id in ["call_1", "call_2", "call_3"] {
        scene.bring(id, CallStatus::Succeeded).await;
    }
    store.close().unwrap();
    let log = fs::read_to_string(place.log()).unwrap();
    let knows = ["call_1", "call_2", "call_3"].map(|id| log.contains(&format!("\"{id}\"")));
    assert_eq!(knows, [true, true, false], "{log}");
}

#[tokio::test]
async fn a_log_that_was_deleted_or_cut_is_made_whole_before_its_database_goes() {
    for damage in [|log: &Path| fs::remove_file(log).unwrap(), |log: &Path| fs::write(log, "{\"at\":\"20").unwrap()] {
        let place = Place::new();
        let store = copied(&place).await;
        send_below_a_fork(&store).await;
        damage(&place.log());
        let store = put_back(&place, store);
        assert_eq!(forgotten(&store, "run_a").await, ["run_task_1"]);
        assert_eq!(forgotten(&store, "run_b").await, [""; 0], "another family");
    }
}

/// A line that is missing of an attempt that has another one: the log says that the call was sent, and the database knows that it was answered.
#[tokio::test]
async fn an_answer_whose_line_was_cut_is_noted_before_its_database_goes() {
    for (end, noted) in [(CallStatus::Succeeded, "succeeded"), (CallStatus::FailedDefinite, "failed_definite")] {
        for is_another in [false, true] {
            let place = Place::new();
            let store = copied(&place).await;
            let scene = Scene::begin_with(&store, samples::child_run("run_fork", "run_a")).await;
            let call = scene.call_that_is("call_1", end).await;
            let log = fs::read_to_string(place.log()).unwrap();
            let mut kept: String = log.split_inclusive('\n').filter(|line| !line.contains(noted)).collect();
            assert!(kept.contains("\"running\"") && kept != log, "{log}");
            if is_another {
                // Another copy of the database began one of that number, at another time: how this one ended says nothing of it.
                let sent_at = store.attempts(&call.call_id).await.unwrap()[0].started_at.to_string();
                kept = kept.replace(&sent_at, &samples::at(97).to_string());
            }
            fs::write(place.log(), &kept).unwrap();
            let store = put_back(&place, store);
            assert_eq!(news(&store, "run_a").await, [if is_another { "running" } else { noted }], "{is_another}");
            // What is there is not noted once more.
            let lines = || fs::read_to_string(place.log()).unwrap().lines().count();
            let before = lines();
            store.close().unwrap();
            restore(&place.copy, &place.path, samples::at(120)).unwrap();
            assert_eq!(lines(), before);
        }
    }
}

#[tokio::test]
async fn what_a_person_said_about_a_call_since_the_copy_was_made_is_not_lost_without_a_word() {
    let place = Place::new();
    let store = place.open();
    let scene = Scene::begin(&store, "run_a").await;
    let call = scene.call_that_is("call_1", CallStatus::Succeeded).await;
    scene.commit(1).await;
    let call = store.correct_call(samples::correct(&call, CorrectedTo::NotHappened, 70)).await.unwrap();
    store.submit_run(samples::child_run("run_fork", "run_a")).await.unwrap();
    store.close().unwrap();
    backup(&place.path, &place.copy).unwrap();

    let store = place.open();
    assert_eq!(forgotten(&store, "run_a").await, [""; 0], "the copy knows the first word");
    store.correct_call(samples::correct(&call, CorrectedTo::Happened, 80)).await.unwrap();
    assert_eq!(forgotten(&store, "run_a").await, [""; 0]);

    let store = put_back(&place, store);
    let of_family = store.forgotten(&samples::run_id("run_fork")).await.unwrap();
    let [Forgotten { tool_call_id: Some(call_id), correction: Some(word), .. }] = &of_family[..] else {
        panic!("{of_family:?}")
    };
    assert_eq!((call_id.as_str(), word.outcome), ("call_1", CorrectedTo::Happened));

    // Whoever says it again needs not accept anything.
    let call = store.call(&samples::call_id("call_1")).await.unwrap();
    store.correct_call(samples::correct(&call, CorrectedTo::Happened, 90)).await.unwrap();
    assert_eq!(forgotten(&store, "run_fork").await, [""; 0]);
}

/// What of a run the copy does not know, in words: a status, or what a person said.
async fn news(store: &SqliteStore, run: &str) -> Vec<String> {
    let forgotten = store.forgotten(&samples::run_id(run)).await.unwrap();
    forgotten.into_iter().map(|one| one.word.unwrap_or(one.status)).collect()
}

#[tokio::test]
async fn an_answer_and_a_word_that_came_after_the_copy_are_forgotten_until_they_are_accepted() {
    let place = Place::new();
    let store = place.open();
    let scene = Scene::begin(&store, "run_a").await;
    scene.call_that_is("call_1", CallStatus::Running).await;
    store.close().unwrap();
    backup(&place.path, &place.copy).unwrap();

    let store = place.open();
    let scene = Scene::of(&store, scene_lease(&store).await, "step_of_run_a");
    store.settle_attempt(&scene.lease, samples::lost("call_1", 1)).await.unwrap();
    store.raise_question(&scene.lease, samples::question("q_1", Some("call_1"))).await.unwrap();
    store.insert_answer(samples::answer("q_1", Choice::Skip)).await.unwrap();
    store.request_cancel(&samples::run_id("run_a"), "no longer wanted", samples::at(90)).await.unwrap();
    assert_eq!(news(&store, "run_a").await, [""; 0]);

    let store = put_back(&place, store);
    // The copy has the attempt, and neither what came of it nor what was said.
    assert_eq!(news(&store, "run_a").await, ["skip", "cancel"]);
    let forgotten = store.forgotten(&samples::run_id("run_a")).await.unwrap();
    store.accept_forgotten(&samples::run_id("run_a"), &forgotten, None, samples::at(100)).await.unwrap();
    assert_eq!(news(&store, "run_a").await, [""; 0]);
}

#[tokio::test]
async fn an_attempt_whose_answer_the_copy_lacks_is_forgotten() {
    let place = Place::new();
    let store = place.open();
    let scene = Scene::begin(&store, "run_a").await;
    scene.call_that_is("call_1", CallStatus::Running).await;
    store.close().unwrap();
    backup(&place.path, &place.copy).unwrap();
    let store = place.open();
    let lease = scene_lease(&store).await;
    store.settle_attempt(&lease, samples::settle("call_1", 1, CallStatus::Succeeded)).await.unwrap();
    let store = put_back(&place, store);
    assert_eq!(news(&store, "run_a").await, ["succeeded"]);
}

/// What was accepted is that, and not what happens to the same run later.
#[tokio::test]
async fn what_is_accepted_is_what_was_known_then() {
    let place = Place::new();
    let store = copied(&place).await;
    Scene::take(&store, "run_a").await.call_that_is("call_1", CallStatus::Succeeded).await;
    let store = put_back(&place, store);
    let first = store.forgotten(&samples::run_id("run_a")).await.unwrap();
    store.accept_forgotten(&samples::run_id("run_a"), &first, None, samples::at(100)).await.unwrap();
    Scene::take(&store, "run_a").await.call_that_is("call_2", CallStatus::Succeeded).await;
    let store = put_back(&place, store);
    assert_eq!(news(&store, "run_a").await, ["succeeded"]);
}

/// What is lost to a run, by its call, and when it was sent.
async fn lost(store: &SqliteStore, run: &str) -> Vec<(String, String, bool)> {
    let lost = store.lost(&samples::run_id(run)).await.unwrap();
    let told = |lost: ua_store::Lost| {
        let ua_store::Lost { known, was_suspected, .. } = lost;
        (known.tool_call_id.unwrap(), known.first_at.unwrap(), was_suspected)
    };
    lost.into_iter().filter(|lost| !lost.was_recalled).map(told).collect()
}

async fn accept(store: &SqliteStore, run: &str, seconds: i64) {
    let known = store.forgotten(&samples::run_id(run)).await.unwrap();
    store.accept_forgotten(&samples::run_id(run), &known, None, samples::at(seconds)).await.unwrap();
}

/// What a person accepts stops nobody and stays known, also to a copy that is put back behind that, until a call stands in its place.
#[tokio::test]
async fn what_was_accepted_is_lost_until_a_call_stands_in_its_place() {
    for in_same_words in [true, false] {
        let place = Place::new();
        let store = copied(&place).await;
        let fork = NewRun { created_at: samples::at(40), ..samples::child_run("run_fork", "run_a") };
        let scene = Scene::begin_with(&store, fork).await;
        let call = scene.call_that_is("call_1", CallStatus::Succeeded).await;
        let sent_at = store.attempts(&call.call_id).await.unwrap()[0].started_at;
        assert_eq!(lost(&store, "run_a").await, []);
        let store = put_back(&place, store);
        assert_eq!(lost(&store, "run_a").await, [], "nobody accepted it");
        accept(&store, "run_a", 100).await;
        let is_lost = |was_suspected| vec![("call_1".to_owned(), sent_at.to_string(), was_suspected)];
        assert_eq!(lost(&store, "run_a").await, is_lost(false), "of its first line");
        assert_eq!(lost(&store, "run_b").await, [], "another family");
        let store = put_back(&place, store);
        assert_eq!(lost(&store, "run_a").await, is_lost(false), "put back once more");

        // What it was like is planned again.
        let scene = Scene::take(&store, "run_a").await;
        let again = scene.call_that_is("call_2", CallStatus::Prepared).await;
        let of_lost = store.lost(&samples::run_id("run_a")).await.unwrap();
        let mut recall = ua_store::recall_lost(&again, None, &of_lost, samples::key("own")).unwrap();
        recall.attempts[0].made_by.as_mut().unwrap().in_same_words = in_same_words;
        store.recall_call(recall).await.unwrap();
        let left = if in_same_words { Vec::new() } else { is_lost(true) };
        assert_eq!(lost(&store, "run_a").await, left);
    }
}

/// What was accepted for one family alone is lost to that one.
#[tokio::test]
async fn what_another_family_sent_is_lost_to_the_one_that_it_was_accepted_for() {
    let place = Place::new();
    let store = copied(&place).await;
    Scene::begin_with(&store, samples::new_run("run_lost")).await.call_that_is("call_1", CallStatus::Succeeded).await;
    let store = put_back(&place, store);
    for (run, seconds) in [("run_again", 1_000), ("run_third", 1_001)] {
        store.submit_run(NewRun { created_at: samples::at(seconds), ..samples::new_run(run) }).await.unwrap();
    }
    accept(&store, "run_again", 1_002).await;
    assert_eq!(lost(&store, "run_again").await.len(), 1);
    assert_eq!(lost(&store, "run_third").await.len(), 0, "it is still refused");
    assert_eq!(forgotten(&store, "run_third").await, ["run_lost"]);
}

/// What was accepted by the name of the run that sent it, which is not there any more, is lost to each family that begins later, until a call of one
/// stands in its place; and to none that was there before.
#[tokio::test]
async fn what_a_run_sent_that_is_gone_is_lost_to_whoever_begins_later() {
    let place = Place::new();
    let store = copied(&place).await;
    Scene::begin_with(&store, samples::new_run("run_lost")).await.call_that_is("call_1", CallStatus::Succeeded).await;
    let store = put_back(&place, store);
    // Nobody knows the run, so it is accepted by its name before any other begins.
    accept(&store, "run_lost", 1_000).await;
    assert_eq!(
        store.lost_to_families(samples::at(2_000)).await.unwrap().len(),
        1,
        "whoever begins on a server would not be asked"
    );
    for (run, seconds) in [("run_again", 1_001), ("run_third", 1_002)] {
        store.submit_run(NewRun { created_at: samples::at(seconds), ..samples::new_run(run) }).await.unwrap();
        assert_eq!((forgotten(&store, run).await, lost(&store, run).await.len()), (Vec::new(), 1), "{run}");
    }
    assert_eq!(lost(&store, "run_a").await, [], "it was there before");
    let again = Scene::take(&store, "run_again").await.call_that_is("call_2", CallStatus::Prepared).await;
    let of_lost = store.lost(&samples::run_id("run_again")).await.unwrap();
    store.recall_call(ua_store::recall_lost(&again, None, &of_lost, samples::key("own")).unwrap()).await.unwrap();
    for run in ["run_again", "run_third"] {
        assert_eq!(lost(&store, run).await, [], "{run}: it is asked about once");
    }
    assert_eq!(store.lost_to_families(samples::at(2_000)).await.unwrap(), []);
}

/// Two copies, one put back by mistake: in the older one the call went out as an attempt of the same number as the one that the newer copy has as
/// refused. The newer one knows nothing of that.
#[tokio::test]
async fn an_attempt_of_the_same_number_that_another_copy_began_is_forgotten() {
    for end in [CallStatus::Succeeded, CallStatus::FailedDefinite] {
        let place = Place::new();
        let store = place.open();
        Scene::begin(&store, "run_a").await.call_that_is("call_1", CallStatus::Prepared).await;
        store.close().unwrap();
        backup(&place.path, &place.copy).unwrap();
        let newer = place.copy.with_extension("newer");
        let store = place.open();
        let lease = scene_lease(&store).await;
        store.start_attempt(&lease, samples::start("call_1", 1, "key_1")).await.unwrap();
        store.settle_attempt(&lease, samples::settle("call_1", 1, CallStatus::FailedDefinite)).await.unwrap();
        store.close().unwrap();
        backup(&place.path, &newer).unwrap();

        restore(&place.copy, &place.path, samples::at(98)).unwrap();
        let store = place.open();
        accept(&store, "run_a", 100).await;
        let (lease, _) =
            store.acquire_run(&samples::run_id("run_a"), &samples::owner(102), samples::at(101)).await.unwrap();
        let mut start = samples::start("call_1", 1, "key_1");
        start.at = samples::at(102);
        store.start_attempt(&lease, start).await.unwrap();
        store.settle_attempt(&lease, samples::settle("call_1", 1, end)).await.unwrap();
        store.close().unwrap();

        restore(&newer, &place.path, samples::at(110)).unwrap();
        let store = place.open();
        let expected: &[&str] = if end == CallStatus::Succeeded { &["succeeded"] } else { &[] };
        assert_eq!(news(&store, "run_a").await, expected, "{end}");
        // What is accepted is learnt, once, as a further attempt.
        let known = store.forgotten(&samples::run_id("run_a")).await.unwrap();
        let call = store.call(&samples::call_id("call_1")).await.unwrap();
        let attempts = store.attempts(&call.call_id).await.unwrap();
        let recall = ua_store::recall_of(&call, &attempts, &known);
        assert_eq!(recall.is_some(), end == CallStatus::Succeeded, "{end}");
        if let Some(recall) = recall {
            let recalled = store.recall_call(recall).await.unwrap();
            assert_eq!((recalled.status, recalled.attempt), (CallStatus::Unknown, 2));
            let attempts = store.attempts(&call.call_id).await.unwrap();
            assert_eq!(ua_store::recall_of(&recalled, &attempts, &known), None, "a second time");
        }
    }
}

async fn scene_lease(store: &SqliteStore) -> ua_store::RunLease {
    store.acquire_run(&samples::run_id("run_a"), &samples::owner(101), samples::at(20)).await.unwrap().0
}

#[tokio::test]
async fn what_a_lost_run_sent_speaks_against_every_run_that_begins_later() {
    let place = Place::new();
    let store = copied(&place).await;
    let lost = Scene::begin_with(&store, samples::new_run("run_lost")).await;
    lost.call_that_is("call_1", CallStatus::Succeeded).await;

    let store = put_back(&place, store);
    assert_eq!(forgotten(&store, "run_a").await, [""; 0], "it began before");
    let later = NewRun { created_at: samples::at(1_000), ..samples::new_run("run_again") };
    store.submit_run(later).await.unwrap();
    assert_eq!(forgotten(&store, "run_again").await, ["run_lost"]);
    let known = store.forgotten(&samples::run_id("run_again")).await.unwrap();
    store.accept_forgotten(&samples::run_id("run_again"), &known, None, samples::at(1_001)).await.unwrap();
    assert_eq!(forgotten(&store, "run_again").await, [""; 0]);
    // What one run may do says nothing about another: that one may be the same job.
    let third = NewRun { created_at: samples::at(1_002), ..samples::new_run("run_third") };
    store.submit_run(third).await.unwrap();
    assert_eq!(forgotten(&store, "run_third").await, ["run_lost"]);
    // Whoever looked at the lost run itself has looked for all.
    let lost = samples::run_id("run_lost");
    let known = store.forgotten(&lost).await.unwrap();
    store.accept_forgotten(&lost, &known, None, samples::at(1_003)).await.unwrap();
    assert_eq!(forgotten(&store, "run_third").await, [""; 0]);
}

/// The file and the log of effects as they are, without what SQLite keeps beside the file: what a copy by hand takes, or what is left when somebody
/// removes the log.
fn without_its_log(place: &Path, to: &Path) {
    for name in ["runtime_state.db", "effects.log"] {
        fs::copy(place.with_file_name(name), to.join(name)).unwrap();
    }
}

#[tokio::test]
async fn a_new_database_that_loses_its_log_is_an_older_one_and_not_a_new_one() {
    let place = Place::new();
    let store = place.open();
    Scene::begin(&store, "run_1").await.call_that_is("call_1", CallStatus::Succeeded).await;
    let folder = tempfile::tempdir().unwrap();
    without_its_log(&place.path, folder.path());
    let left = SqliteStore::open(SqliteConfig::new(folder.path().join("runtime_state.db"))).unwrap();
    assert_eq!(left.db_uuid(), store.db_uuid());
    let unknown = left.examine().await.unwrap().forgotten;
    assert!(unknown.iter().any(|known| known.run_id == "run_1"), "{unknown:?}");
    // Whoever begins the same anew, under another name, hears of it; also when a run has the name of the one that sent by now.
    for (seconds, id) in [(200, "run_2"), (300, "run_1"), (400, "run_3")] {
        left.submit_run(NewRun { created_at: samples::at(seconds), ..samples::new_run(id) }).await.unwrap();
        assert_eq!(forgotten(&left, id).await, ["run_1"], "{id}");
    }
}

#[tokio::test]
async fn what_another_database_sent_counts_unless_it_lies_where_it_sent_it() {
    let place = Place::new();
    let store = place.open();
    Scene::begin(&store, "run_1").await.call_that_is("call_1", CallStatus::Succeeded).await;
    store.close().unwrap();
    // Another database shares the folder and its log.
    let another = place.path.with_file_name("another.db");
    let store = SqliteStore::open(SqliteConfig::new(another.clone())).unwrap();
    let health = store.examine().await.unwrap();
    assert_eq!((health.forgotten.len(), health.mirror_foreign_lines), (0, health.mirror_lines));
    store.close().unwrap();
    // It is lost, and a new one begun in its place: whatever lies beside by any name, as a backup does, answers for nothing.
    let names = ["kept", "runtime_state.backup.db", "another.db", "runtime_state.db.bak"];
    fs::remove_file(&another).unwrap();
    for name in names {
        fs::copy(&place.path, place.path.with_file_name(name)).unwrap();
    }
    fs::remove_file(&place.path).unwrap();
    let store = place.open();
    let health = store.examine().await.unwrap();
    assert!(health.forgotten.iter().any(|known| known.run_id == "run_1"), "{health:?}");
    assert_eq!(health.mirror_foreign_lines, 0);
}
