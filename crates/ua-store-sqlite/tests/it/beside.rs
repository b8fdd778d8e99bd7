//! What stands beside a database: the log of a process that was killed is the database's own at any moment, and nobody else's is.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ua_store::RunStore as _;
use ua_store::conformance::samples;
use ua_store_sqlite::{SqliteConfig, SqliteStore, backup, foreign_beside, identity_of, restore};

use crate::skips::skipped;

/// Where the database of a process is that is to be killed, and how many runs it stores before.
const PLACE: &str = "UA_TEST_KILLED_AT";

/// Not a test of its own: the process that is killed.
#[tokio::test]
async fn the_process_that_is_killed() {
    #[expect(clippy::disallowed_methods, reason = "the process that is to be killed is told so by its environment")]
    let Ok(said) = std::env::var(PLACE) else { return };
    let [name, runs, path] = said.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
    let path = PathBuf::from(path);
    let store = SqliteStore::open(SqliteConfig { identity: identity_of(&path), ..SqliteConfig::new(&path) }).unwrap();
    for number in 0..runs.parse().unwrap() {
        store.submit_run(samples::new_run(&format!("run_{name}_{number}"))).await.unwrap();
    }
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
}

/// Begins a process that stores so many runs in the database and is killed.
fn killed(path: &Path, name: &str, runs: usize) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "beside::the_process_that_is_killed"])
        .env(PLACE, format!("{name} {runs} {}", path.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn log_of(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}-wal", path.display()))
}

fn is_marked(path: &Path) -> bool {
    rustix::fs::lgetxattr(path, "user.ua.database", &mut [0; 64][..]).is_ok()
}

/// Whether files have attributes where the tests are, and this kind of file system is one on which databases are marked: asked of the system, not of
/// what marks them.
fn marks_are_kept(folder: &Path) -> bool {
    let scratch = folder.join("scratch");
    fs::write(&scratch, "").unwrap();
    let has_attributes =
        rustix::fs::lsetxattr(&scratch, "user.ua.scratch", b"x", rustix::fs::XattrFlags::empty()).is_ok();
    let known = [0xEF53, 0x5846_5342, 0x9123_683E, 0x794C_7630, 0x0102_1994];
    let kind = rustix::fs::statfs(folder).unwrap().f_type.cast_unsigned() & 0xFFFF_FFFF;
    let are_kept = has_attributes && known.contains(&kind);
    if !are_kept {
        skipped("files here have no attributes that last, so nothing tests the marks of databases");
    }
    are_kept
}

#[test]
fn a_log_of_processes_that_were_killed_is_the_databases_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runtime_state.db");
    let are_kept = marks_are_kept(folder.path());
    let mut stored = 0;
    // One that makes the database, one after another, and two at once; each finds the log of those before.
    let rounds: [&[usize]; 8] = [&[1], &[0], &[3], &[0, 2], &[2, 2], &[0, 0], &[1, 5], &[0]];
    for (round, processes) in rounds.into_iter().enumerate() {
        let begin = |(nth, runs): (usize, &usize)| killed(&path, &format!("{round}_{nth}"), *runs);
        let begun: Vec<_> = processes.iter().enumerate().map(begin).collect();
        for mut process in begun {
            let end = process.wait().unwrap();
            assert_eq!(std::os::unix::process::ExitStatusExt::signal(&end), Some(9), "round {round}");
        }
        stored += processes.iter().sum::<usize>();
        assert!(fs::metadata(log_of(&path)).is_ok(), "round {round}: it was closed in good order");
        assert_eq!((is_marked(&path), is_marked(&log_of(&path))), (are_kept, are_kept), "round {round}");
        assert_eq!(foreign_beside(&path), None, "round {round}");
        if round % 2 == 1 {
            let own = SqliteConfig { identity: identity_of(&path), ..SqliteConfig::new(&path) };
            SqliteStore::open(own).unwrap().close().unwrap();
            assert_eq!(foreign_beside(&path), None, "round {round}");
        }
    }
    let store = SqliteStore::open_read_only(&path).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(runtime.block_on(store.runs(100)).unwrap().len(), stored);
}

#[tokio::test]
async fn a_log_that_somebody_put_there_is_refused_unless_no_identity_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runtime_state.db");
    SqliteStore::open(SqliteConfig::new(&path)).unwrap().close().unwrap();
    if !marks_are_kept(folder.path()) {
        return;
    }
    assert!(is_marked(&path));
    let own = || SqliteConfig { identity: identity_of(&path), ..SqliteConfig::new(&path) };
    fs::write(log_of(&path), "pages").unwrap();
    let refused = SqliteStore::open(own()).unwrap_err().to_string();
    assert!(refused.contains("somebody put it beside the database"), "{refused}");
    assert_eq!(fs::read(log_of(&path)).unwrap(), b"pages", "nothing was read or written");
    SqliteStore::open(SqliteConfig::new(&path)).unwrap().close().unwrap();
    // While a process has the database open, its next reader finds another log in the place of its own.
    let store = SqliteStore::open(own()).unwrap();
    store.submit_run(samples::new_run("run_one")).await.unwrap();
    let saved = fs::read(log_of(&path)).unwrap();
    fs::remove_file(log_of(&path)).unwrap();
    fs::write(log_of(&path), saved).unwrap();
    let refused = store.runs(10).await.unwrap_err().to_string();
    assert!(refused.contains("somebody put it beside the database"), "{refused}");
}

/// What unpacks an archive in place writes into the file that is there, with all its attributes: another database's log, at any length.
#[test]
fn another_log_written_into_the_file_of_the_own_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("runtime_state.db"), folder.path().join("other/runtime_state.db"));
    if !marks_are_kept(folder.path()) {
        return;
    }
    for (path, name) in [(&path, "own"), (&other, "other")] {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        SqliteStore::open(SqliteConfig::new(path)).unwrap().close().unwrap();
        killed(path, name, 2).wait().unwrap();
    }
    let own = || SqliteConfig { identity: identity_of(&path), ..SqliteConfig::new(&path) };
    let (saved, foreign) = (fs::read(log_of(&path)).unwrap(), fs::read(log_of(&other)).unwrap());
    let mut forged = vec![foreign.clone(), foreign[..foreign.len() / 2].to_vec()];
    // Pages behind a header that says nothing are none to SQLite.
    forged.push([&foreign[..16], &saved[16..24], &foreign[24..]].concat());
    for (nth, forged) in forged.into_iter().enumerate() {
        fs::write(log_of(&path), forged).unwrap();
        let is_read = nth < 2;
        assert_eq!(foreign_beside(&path).is_some(), is_read, "{nth}");
        if is_read {
            let refused = SqliteStore::open(own()).unwrap_err().to_string();
            assert!(refused.contains("somebody put it beside the database"), "{refused}");
        }
    }
    fs::write(log_of(&path), saved).unwrap();
    let store = SqliteStore::open(own()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    assert_eq!(runtime.block_on(store.runs(100)).unwrap().len(), 2);
}

#[test]
fn what_stands_beside_a_database_goes_with_it_when_a_copy_is_put_back() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("runtime_state.db"), folder.path().join("copy.db"));
    SqliteStore::open(SqliteConfig::new(&path)).unwrap().close().unwrap();
    backup(&path, &copy).unwrap();
    let was_marked = marks_are_kept(folder.path());
    assert_eq!(is_marked(&path), was_marked);
    let journal = PathBuf::from(format!("{}-journal", path.display()));
    fs::write(&journal, [0; 512]).unwrap();
    let kept = restore(&copy, &path, ua_core::Timestamp::from_millis(0)).unwrap().unwrap();
    assert!(!journal.exists() && PathBuf::from(format!("{}-journal", kept.display())).exists());
    // And the copy says from the beginning that its log is marked.
    assert_eq!(is_marked(&path), was_marked);
    fs::write(log_of(&path), "pages").unwrap();
    assert_eq!(foreign_beside(&path).is_some(), was_marked);
}
