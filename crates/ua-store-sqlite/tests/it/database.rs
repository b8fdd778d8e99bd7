//! The file: how it is made, recognised, refused, and what survives.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use tempfile::TempDir;
use ua_core::CallStatus;
use ua_store::conformance::{Scene, samples};
use ua_store::{Retry, RunQuery, RunStore, Store, StoreError};
use ua_store_sqlite::{SqliteConfig, SqliteStore};

use crate::earlier::take_back_to;

struct Place {
    _folder: TempDir,
    path: PathBuf,
}

fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state/runtime_state.db");
    Place { _folder: folder, path }
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(SqliteConfig::new(path)).unwrap()
}

/// The words of a refusal that only a person can lift.
#[track_caller]
fn refusal(outcome: Result<SqliteStore, StoreError>) -> String {
    match outcome {
        Err(StoreError::Unavailable { why, retry: Retry::Never, .. }) => why,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn everything_survives_a_reopening() {
    let place = place();
    let store = open(&place.path);
    let uuid = store.db_uuid().to_owned();
    let scene = Scene::begin(&store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Unknown).await;
    store.raise_question(&scene.lease, samples::question("q_1", Some("call_1"))).await.unwrap();
    let before = scene.records().await;
    store.close().unwrap();

    let config = SqliteConfig { expected_existing: true, ..SqliteConfig::new(&place.path) };
    let store = SqliteStore::open(config).unwrap();
    assert_eq!(store.db_uuid(), uuid);
    assert_eq!(store.load(&samples::run_id("run_1")).await.unwrap(), before);
    assert_ne!(open(&place.path.with_file_name("another.db")).db_uuid(), uuid);
}

#[tokio::test]
async fn only_its_owner_may_read_it() {
    let place = place();
    let store = open(&place.path);
    Scene::begin(&store, "run_1").await.call_that_is("call_1", CallStatus::Running).await;
    assert_eq!(mode(place.path.parent().unwrap()), 0o700);
    for name in [
        "runtime_state.db",
        "runtime_state.db-wal",
        "runtime_state.db-shm",
        "effects.log",
        "runtime_state.db.migrate.lock",
    ] {
        assert_eq!(mode(&place.path.with_file_name(name)), 0o600, "{name}");
    }
}

#[tokio::test]
async fn links_and_pipes_in_the_place_of_its_files_are_refused_at_once() {
    let place = place();
    let beside = |name: &str| place.path.with_file_name(name);
    let pipe = |name: &str| rustix::fs::mkfifoat(rustix::fs::CWD, beside(name), rustix::fs::Mode::RWXU).unwrap();
    let store = open(&place.path);
    fs::write(beside("victim"), "mine\n").unwrap();
    std::os::unix::fs::symlink("victim", beside("effects.log")).unwrap();
    Scene::begin(&store, "run_1").await.call_that_is("call_1", CallStatus::Running).await;
    assert_eq!(fs::read_to_string(beside("victim")).unwrap(), "mine\n", "no line went through the link");
    let examined = format!("{:?}", store.examine().await.unwrap_err());
    assert!(examined.contains("effects.log is a link"), "{examined}");
    fs::remove_file(beside("effects.log")).unwrap();
    pipe("effects.log");
    let examined = format!("{:?}", store.examine().await.unwrap_err());
    assert!(examined.contains("effects.log is a pipe"), "{examined}");
    drop(store);
    fs::remove_file(beside("runtime_state.db.migrate.lock")).unwrap();
    pipe("runtime_state.db.migrate.lock");
    let error = format!("{:?}", SqliteStore::open(SqliteConfig::new(&place.path)).unwrap_err());
    assert!(error.contains("migrate.lock is a pipe"), "{error}");
}

#[tokio::test]
async fn an_orderly_end_leaves_one_file_without_a_log() {
    let place = place();
    let store = open(&place.path);
    Scene::begin(&store, "run_1").await;
    store.runs(5).await.unwrap();
    assert!(fs::metadata(place.path.with_file_name("runtime_state.db-wal")).unwrap().len() > 0);
    drop(store);
    assert!(!place.path.with_file_name("runtime_state.db-wal").exists());
    assert_eq!(open(&place.path).runs(5).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_database_that_was_not_closed_is_checked_and_used() {
    let place = place();
    let store = open(&place.path);
    let scene = Scene::begin(&store, "run_1").await;
    let before = scene.records().await;
    // What a kill leaves behind is what is on disk at some instant: copy that, log and all.
    let copy = place.path.with_file_name("copy.db");
    fs::copy(&place.path, &copy).unwrap();
    let log = place.path.with_file_name("runtime_state.db-wal");
    fs::copy(&log, copy.with_file_name("copy.db-wal")).unwrap();
    drop(store);
    assert_eq!(open(&copy).load(&samples::run_id("run_1")).await.unwrap(), before);
}

#[tokio::test]
async fn a_damaged_database_is_refused() {
    let place = place();
    let store = open(&place.path);
    for number in 0..40 {
        store.submit_run(samples::new_run(&format!("run_{number}"))).await.unwrap();
    }
    store.close().unwrap();
    let mut bytes = fs::read(&place.path).unwrap();
    let pages = bytes.len() / 4096;
    for page in 1..pages {
        bytes[page * 4096] = 0xFF;
    }
    let beside = |name: &str| place.path.with_file_name(name);
    // A log that is not empty tells of an unclean end; this one holds no valid frame.
    let leave_log = || fs::write(beside("runtime_state.db-wal"), [0_u8; 64]).unwrap();
    let is_refused = || {
        let why = refusal(SqliteStore::open(SqliteConfig::new(&place.path)));
        assert!(why.contains("damaged"), "{why}");
        assert_eq!(fs::read(&place.path).unwrap(), bytes);
    };
    // Other bytes in its place, behind the last write to the log.
    leave_log();
    fs::write(&place.path, &bytes).unwrap();
    is_refused();
    // Another file in its place.
    fs::rename(&place.path, beside("away")).unwrap();
    fs::copy(beside("away"), &place.path).unwrap();
    leave_log();
    is_refused();
    // The machine was started since.
    fs::remove_file(&place.path).unwrap();
    fs::rename(beside("away"), &place.path).unwrap();
    let note = beside("runtime_state.db.migrate.lock");
    let (_, file) =
        fs::read_to_string(&note).unwrap().split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    fs::write(&note, format!("00000000-0000-0000-0000-000000000000 {file}")).unwrap();
    leave_log();
    is_refused();
}

/// What a process that was killed leaves is looked at page by page once since the machine was started, not at each start behind a kill.
#[tokio::test]
async fn a_database_that_was_whole_is_not_checked_behind_each_kill() {
    let place = place();
    let store = open(&place.path);
    for number in 0..40 {
        store.submit_run(samples::new_run(&format!("run_{number}"))).await.unwrap();
    }
    store.close().unwrap();
    let mut bytes = fs::read(&place.path).unwrap();
    // The last page is one of rows, which nothing that opens the database reads.
    let last = bytes.len() - 2048;
    bytes[last] = 0xFF;
    fs::write(&place.path, &bytes).unwrap();
    fs::write(place.path.with_file_name("runtime_state.db-wal"), [0_u8; 64]).unwrap();
    drop(open(&place.path));
}

#[test]
fn a_missing_or_empty_database_is_not_recreated_when_one_is_expected() {
    let place = place();
    let config = || SqliteConfig { expected_existing: true, ..SqliteConfig::new(&place.path) };
    assert!(refusal(SqliteStore::open(config())).contains("there is no database"));
    assert!(!place.path.parent().unwrap().exists());
    fs::create_dir_all(place.path.parent().unwrap()).unwrap();
    fs::write(&place.path, "").unwrap();
    assert!(refusal(SqliteStore::open(config())).contains("is empty"));
    assert_eq!(fs::metadata(&place.path).unwrap().len(), 0);
    // A header without tables is what is left of one whose log was lost.
    let header = "PRAGMA application_id = 0x55414A52; VACUUM";
    Connection::open(&place.path).unwrap().execute_batch(header).unwrap();
    let length = fs::metadata(&place.path).unwrap().len();
    assert!(length > 0 && ua_store_sqlite::holds_nothing(&place.path));
    assert!(refusal(SqliteStore::open(config())).contains("is empty"));
}

/// A new database is synced as a whole: until then a power cut may leave its first page without what was written there.
#[test]
fn a_database_whose_first_page_was_lost_while_it_was_made_is_made_again() {
    let blank = |length: usize| {
        let place = place();
        fs::create_dir_all(place.path.parent().unwrap()).unwrap();
        fs::write(&place.path, vec![0; length]).unwrap();
        place
    };
    for length in [512, 2048] {
        let place = blank(length);
        ua_store_sqlite::refuse_others(&place.path).unwrap();
        let kept = SqliteConfig { expected_existing: true, ..SqliteConfig::new(&place.path) };
        assert!(refusal(SqliteStore::open(kept)).contains("is empty"), "{length}");
        fs::write(&place.path, vec![0; length]).unwrap();
        // What arrived of its log is no whole transaction.
        fs::write(place.path.with_file_name("runtime_state.db-wal"), [7; 700]).unwrap();
        open(&place.path).close().unwrap();
        assert!(fs::metadata(&place.path).unwrap().len() > 100_000, "{length}");
    }
    // A log that has all of it is read.
    let made = place();
    let store = open(&made.path);
    let uuid = store.db_uuid().to_owned();
    let place = blank(2048);
    let writer = Connection::open(&made.path).unwrap();
    writer.execute_batch("VACUUM").unwrap();
    let log = |path: &Path| path.with_file_name("runtime_state.db-wal");
    fs::copy(log(&made.path), log(&place.path)).unwrap();
    assert_eq!(open(&place.path).db_uuid(), uuid);
    drop((store, writer));
    // One page more is none that this program leaves, and neither is a page with something in it.
    let long = blank(2049);
    let mut other = vec![0; 2048];
    other[2000] = 1;
    let written = blank(1);
    fs::write(&written.path, &other).unwrap();
    for place in [long, written] {
        let before = fs::read(&place.path).unwrap();
        assert!(refusal(SqliteStore::open(SqliteConfig::new(&place.path))).contains("not a database"));
        assert_eq!(fs::read(&place.path).unwrap(), before);
    }
}

#[test]
fn a_database_of_another_program_is_left_alone() {
    let place = place();
    fs::create_dir_all(place.path.parent().unwrap()).unwrap();
    Connection::open(&place.path).unwrap().execute_batch("CREATE TABLE photos (id INTEGER)").unwrap();
    let before = fs::read(&place.path).unwrap();
    assert!(refusal(SqliteStore::open(SqliteConfig::new(&place.path))).contains("another program"));
    assert!(refusal(SqliteStore::open_read_only(&place.path)).contains("another program"));
    assert_eq!(fs::read(&place.path).unwrap(), before);

    fs::write(&place.path, "This is a letter to my grandmother, who never had a database. ".repeat(40)).unwrap();
    assert!(refusal(SqliteStore::open(SqliteConfig::new(&place.path))).contains("not a database"));
}

#[tokio::test]
async fn a_database_of_the_schema_before_is_brought_up_to_date() {
    let place = place();
    let store = open(&place.path);
    let scene = Scene::begin(&store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Succeeded).await;
    let before = scene.records().await;
    store.close().unwrap();
    // What later schemas added is taken back.
    let raw = rusqlite::Connection::open(&place.path).unwrap();
    take_back_to(&raw, 3).unwrap();
    drop(raw);
    let why = refusal(SqliteStore::open_read_only(&place.path));
    assert!(why.contains("older than this program's"), "{why}");
    let store = open(&place.path);
    // Earlier schemas do not keep them.
    let mut before = before;
    before.run.processes.clear();
    before.run.lineage_mark = None;
    before.attempts.iter_mut().for_each(|attempt| attempt.destination = None);
    assert_eq!(store.load(&samples::run_id("run_1")).await.unwrap(), before);
    let all = RunQuery { limit: 5, ..RunQuery::default() };
    assert_eq!(store.find_runs(&all).await.unwrap().len(), 1);
}

#[test]
fn a_newer_schema_is_left_alone() {
    let place = place();
    open(&place.path).close().unwrap();
    let raw = Connection::open(&place.path).unwrap();
    raw.execute_batch(
        "INSERT INTO refinery_schema_history (version, name, applied_on, checksum) VALUES (99, 'future', '2030-01-01', '1')",
    )
    .unwrap();
    drop(raw);
    let before = fs::read(&place.path).unwrap();
    for outcome in [SqliteStore::open(SqliteConfig::new(&place.path)), SqliteStore::open_read_only(&place.path)] {
        let why = refusal(outcome);
        assert!(why.contains("schema 99") && why.contains("upgrade ua"), "{why}");
    }
    assert_eq!(fs::read(&place.path).unwrap(), before);
}

#[tokio::test]
async fn an_inspection_creates_nothing_and_writes_nothing() {
    let place = place();
    assert!(refusal(SqliteStore::open_read_only(&place.path)).contains("there is no database"));
    assert!(!place.path.parent().unwrap().exists());

    let store = open(&place.path);
    Scene::begin(&store, "run_1").await;
    let inspector = SqliteStore::open_read_only(&place.path).unwrap();
    assert_eq!(inspector.runs(5).await.unwrap(), store.runs(5).await.unwrap());
    assert_eq!((inspector.batches(), inspector.db_uuid()), (None, store.db_uuid()));
    let outcome = inspector.submit_run(samples::new_run("run_2")).await;
    assert!(matches!(&outcome, Err(StoreError::Unavailable { why, .. }) if why.contains("inspection")), "{outcome:?}");

    // It sees what the writer commits while it is open.
    store.submit_run(samples::new_run("run_3")).await.unwrap();
    assert_eq!(inspector.runs(5).await.unwrap().len(), 2);
    inspector.close().unwrap();
    store.close().unwrap();
    assert_eq!(SqliteStore::open_read_only(&place.path).unwrap().runs(5).await.unwrap().len(), 2);
}

#[test]
fn many_may_open_a_fresh_database_at_once() {
    let place = place();
    let stores: Vec<_> = (0..8)
        .map(|_| {
            std::thread::spawn({
                let path = place.path.clone();
                move || open(&path)
            })
        })
        .collect();
    let uuids: Vec<String> = stores.into_iter().map(|store| store.join().unwrap().db_uuid().to_owned()).collect();
    assert!(uuids.iter().all(|uuid| *uuid == uuids[0]), "{uuids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_wait_are_committed_together() {
    let place = place();
    let store = Arc::new(open(&place.path));
    let writes: Vec<_> = (0..64)
        .map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.submit_run(samples::new_run(&format!("run_{number}"))).await })
        })
        .collect();
    for write in writes {
        write.await.unwrap().unwrap();
    }
    assert_eq!(store.runs(100).await.unwrap().len(), 64);
    let batches = store.batches().unwrap();
    assert_eq!(batches.relaxed, 0);
    assert!((1..=64).contains(&batches.synced), "{batches:?}");
}

#[tokio::test]
async fn only_writes_that_ask_for_it_are_synced() {
    let place = place();
    let store = open(&place.path);
    let scene = Scene::begin(&store, "run_1").await;
    // Submitted and taken: two synced writes. The step is relaxed.
    assert_eq!(store.batches(), Some(ua_store_sqlite::Batches { synced: 2, relaxed: 1 }));
    scene.call_that_is("call_1", CallStatus::Succeeded).await;
    // Reserved and recorded: relaxed. RUNNING and the reply of an effect: synced.
    assert_eq!(store.batches(), Some(ua_store_sqlite::Batches { synced: 4, relaxed: 3 }));
    scene.commit(1).await;
    assert_eq!(store.batches(), Some(ua_store_sqlite::Batches { synced: 4, relaxed: 4 }));
}

#[tokio::test]
async fn external_attempts_are_noted_beside_the_database() {
    let place = place();
    let store = open(&place.path);
    let scene = Scene::begin(&store, "run_1").await;
    scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_call("call_2", 1, 2)]).await;
    scene.bring("call_1", CallStatus::Unknown).await;
    scene.bring("call_2", CallStatus::Succeeded).await;
    // A start that is refused is no attempt.
    assert!(
        ua_store::LedgerStore::start_attempt(&store, &scene.lease, samples::start("call_1", 9, "call_1"))
            .await
            .is_err()
    );
    let uuid = store.db_uuid().to_owned();
    store.close().unwrap();

    let log = fs::read_to_string(place.path.with_file_name("effects.log")).unwrap();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> = lines
        .iter()
        .map(|line| (line["event"].as_str(), line["tool_call_id"].as_str(), line["status"].as_str()))
        .collect();
    assert_eq!(
        told,
        [(Some("start"), Some("call_1"), Some("running")), (Some("settle"), Some("call_1"), Some("unknown"))]
    );
    assert!(lines.iter().all(|line| line["db_uuid"] == uuid && line["attempt"] == 1));
    assert_eq!(lines[0]["idempotency_key"], samples::key("call_1").as_str());

    let silent = SqliteConfig { effects_log: false, ..SqliteConfig::new(place.path.with_file_name("b/other.db")) };
    let store = SqliteStore::open(silent).unwrap();
    Scene::begin(&store, "run_1").await.call_that_is("call_1", CallStatus::Succeeded).await;
    assert!(!place.path.with_file_name("b/effects.log").exists());
}

#[tokio::test]
async fn a_row_that_cannot_be_ours_is_called_corrupt() {
    let place = place();
    let store = open(&place.path);
    Scene::begin(&store, "run_1").await.call_that_is("call_1", CallStatus::Running).await;
    let raw = Connection::open(&place.path).unwrap();
    raw.execute_batch("UPDATE tool_calls SET file_digests_json = 'nonsense'").unwrap();
    let outcome = store.load(&samples::run_id("run_1")).await;
    let Err(StoreError::Corrupt { row, why }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(row.to_string(), "call call_1");
    assert!(why.starts_with("column file_digests_json"), "{why}");
}

#[test]
fn s4_a_database_that_is_a_link_or_that_others_may_change_is_refused() {
    let place = place();
    open(&place.path).close().unwrap();
    let link = place.path.with_file_name("link.db");
    std::os::unix::fs::symlink(&place.path, &link).unwrap();
    assert!(refusal(SqliteStore::open(SqliteConfig::new(&link))).contains("is a link"));
    assert!(refusal(SqliteStore::open_read_only(&link)).contains("is a link"));
    fs::set_permissions(&place.path, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(refusal(SqliteStore::open(SqliteConfig::new(&place.path))).contains("other users may change"));
    assert!(refusal(SqliteStore::open_read_only(&place.path)).contains("chmod 600"));
    fs::set_permissions(&place.path, fs::Permissions::from_mode(0o600)).unwrap();
    let folder = place.path.parent().unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    let everybody = "everybody may make files in";
    assert!(refusal(SqliteStore::open(SqliteConfig::new(&place.path))).contains(everybody));
    // Nobody can take it away there, and everybody can put a log or a lock beside it, also before it is made.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o1777)).unwrap();
    for name in [place.path.clone(), folder.join("new.db")] {
        assert!(refusal(SqliteStore::open(SqliteConfig::new(&name))).contains(everybody));
    }
    assert!(refusal(SqliteStore::open_read_only(&place.path)).contains(everybody));
    assert!(!folder.join("new.db").exists() && !folder.join("new.db.migrate.lock").exists());
    // A group of others; only root can give a folder to one, and to another user.
    let us = rustix::process::geteuid().as_raw();
    if us == 0 {
        std::os::unix::fs::chown(folder, Some(us), Some(23456)).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(refusal(SqliteStore::open(SqliteConfig::new(&place.path))).contains("chmod g-w"));
        std::os::unix::fs::chown(folder, Some(23456), Some(us)).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(refusal(SqliteStore::open_read_only(&place.path)).contains("another user (uid 23456) may make files"));
        // A user with a name is called by it.
        std::os::unix::fs::chown(folder, Some(1), Some(us)).unwrap();
        let named = format!("another user ({}) may make files", ua_files::user_in_words(1));
        assert!(refusal(SqliteStore::open_read_only(&place.path)).contains(&named));
    }
}

/// SQLite opens them whatever they are, and waits for whoever is at the other end of a pipe.
#[test]
fn s4_a_pipe_or_a_link_where_sqlite_keeps_a_file_is_refused_and_not_waited_for() {
    let place = place();
    open(&place.path).close().unwrap();
    for suffix in ["-wal", "-shm", "-journal"] {
        let mut beside = place.path.clone().into_os_string();
        beside.push(suffix);
        for is_pipe in [true, false] {
            fs::remove_file(&beside).ok();
            if is_pipe {
                rustix::fs::mkfifoat(rustix::fs::CWD, &beside, rustix::fs::Mode::RWXU).unwrap();
            } else {
                std::os::unix::fs::symlink("elsewhere", &beside).unwrap();
            }
            let refused = [SqliteStore::open(SqliteConfig::new(&place.path)), SqliteStore::open_read_only(&place.path)];
            for refused in refused {
                assert!(refusal(refused).contains("not a file"), "{suffix} {is_pipe}");
            }
        }
        fs::remove_file(&beside).unwrap();
    }
    open(&place.path).close().unwrap();
}

#[tokio::test]
async fn s19_what_the_schema_lacks_or_has_besides_is_named() {
    let place = place();
    open(&place.path).close().unwrap();
    let findings = async || SqliteStore::open_read_only(&place.path).unwrap().examine().await.unwrap().findings;
    assert_eq!(findings().await, [""; 0]);
    let raw = Connection::open(&place.path).unwrap();
    raw.execute_batch("DROP TRIGGER tool_call_events_are_immutable").unwrap();
    assert_eq!(findings().await, ["the trigger tool_call_events_are_immutable is missing"]);
    raw.execute_batch(
        "CREATE TRIGGER tool_call_events_are_immutable BEFORE UPDATE ON tool_call_events BEGIN SELECT 1; END",
    )
    .unwrap();
    assert_eq!(findings().await, ["the trigger tool_call_events_are_immutable is not as this program made it"]);
    raw.execute_batch("CREATE TRIGGER another BEFORE UPDATE ON runs BEGIN SELECT RAISE(IGNORE); END").unwrap();
    assert_eq!(findings().await[1..], ["the trigger another is not this program's"]);
    // An index that lets only one row be changes what can be stored, a view passes for a table.
    raw.execute_batch(
        "CREATE UNIQUE INDEX only_one ON tool_calls(tool_name); CREATE VIEW looks AS SELECT 1; CREATE TABLE more(a);",
    )
    .unwrap();
    let foreign = ["index only_one", "table more", "trigger another", "view looks"];
    assert_eq!(findings().await[1..], foreign.map(|name| format!("the {name} is not this program's")));
}
