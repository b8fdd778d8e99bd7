//! A database whose process was killed has what was written last in the log beside it: whoever puts it back gets that, too, and whoever takes the
//! file that a restore keeps has all of it.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use ua_store::RunStore as _;
use ua_store::conformance::samples;
use ua_store_sqlite::{SqliteConfig, SqliteStore, backup, restore};

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The file and its log, as a kill leaves them.
fn copy_as_they_are(from: &Path, to: &Path) {
    for suffix in ["", "-wal"] {
        fs::copy(beside(from, suffix), beside(to, suffix)).unwrap();
    }
}

/// A database of so many runs, of which the first stand in the file and the others in its log, and a copy of before all of them.
async fn killed(folder: &Path, in_file: usize, in_log: usize) -> (PathBuf, PathBuf) {
    let (path, older) = (folder.join("live.db"), folder.join("older.db"));
    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    backup(&path, &older).unwrap();
    for number in 0..in_file + in_log {
        store.submit_run(samples::new_run(&format!("run_{number}"))).await.unwrap();
        if number + 1 == in_file {
            let checkpoint = Connection::open(&path).unwrap();
            checkpoint.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
        }
    }
    let killed = folder.join("runtime_state.db");
    copy_as_they_are(&path, &killed);
    store.close().unwrap();
    (killed, older)
}

async fn runs(path: &Path) -> usize {
    let store = SqliteStore::open(SqliteConfig::new(path)).unwrap();
    let count = store.runs(u32::MAX).await.unwrap().len();
    assert_eq!(store.examine().await.unwrap().findings, [""; 0]);
    store.close().unwrap();
    count
}

#[tokio::test]
async fn what_stands_in_the_log_of_a_copy_is_put_back_with_it() {
    for in_file in 0..3 {
        for in_log in 0..3 {
            let folder = tempfile::tempdir().unwrap();
            let (killed, _) = killed(folder.path(), in_file, in_log).await;
            let elsewhere = tempfile::tempdir().unwrap();
            let path = elsewhere.path().join("runtime_state.db");
            restore(&killed, &path, samples::at(99)).unwrap();
            assert_eq!(runs(&path).await, in_file + in_log, "{in_file} in the file and {in_log} in the log");
        }
    }
}

/// Put an older copy in its place by mistake, and back again: nothing is missing, also for whoever takes the kept file without what lies beside it.
#[tokio::test]
async fn what_a_restore_keeps_is_whole() {
    for in_file in 0..3 {
        for in_log in 0..3 {
            for takes_the_file_alone in [false, true] {
                let folder = tempfile::tempdir().unwrap();
                let (path, older) = killed(folder.path(), in_file, in_log).await;
                let kept = restore(&older, &path, samples::at(99)).unwrap().unwrap();
                assert_eq!(runs(&path).await, 0);
                let back = if takes_the_file_alone { folder.path().join("alone.db") } else { kept.clone() };
                if takes_the_file_alone {
                    fs::copy(&kept, &back).unwrap();
                }
                restore(&back, &path, samples::at(100)).unwrap();
                assert_eq!(runs(&path).await, in_file + in_log, "{in_file}, {in_log}, alone: {takes_the_file_alone}");
            }
        }
    }
}

/// A log that cannot be the copy's own is not read with it, whatever stands in it: what a backup wrote never has one.
#[tokio::test]
async fn a_log_that_is_not_of_the_copy_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (killed, older) = killed(folder.path(), 1, 2).await;
    for log in [fs::read(beside(&killed, "-wal")).unwrap(), b"anything".to_vec()] {
        fs::write(beside(&older, "-wal"), log).unwrap();
        let refused = restore(&older, &killed, samples::at(99)).unwrap_err();
        assert!(refused.to_string().contains("does not belong to"), "{refused}");
    }
    assert_eq!(runs(&killed).await, 3, "nothing was changed");
    fs::remove_file(beside(&older, "-wal")).unwrap();
    restore(&older, &killed, samples::at(100)).unwrap();
    assert_eq!(runs(&killed).await, 0);
}
