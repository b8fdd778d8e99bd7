//! A folder of runs that is copied: what is sent by one of the two the other does not know.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ua_sdk::prelude::*;

use crate::{invoices, sending};

fn copy(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success());
}

/// Over what is copied and what is asked of the copy. The one that was there first is driven as before, and so is one that was moved.
#[tokio::test]
async fn a_run_is_not_driven_from_two_copies_of_its_folder() {
    for is_moved in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        let sent = Arc::new(AtomicUsize::new(0));
        let step = invoices(&sending(), &sent).max_turns(1);
        let runs = Runs::open(&first).unwrap();
        let stopped = runs.run(&step, "november").await.unwrap();
        assert!(matches!(stopped, Outcome::Stopped { .. }), "{stopped}");
        assert_eq!(sent.load(Ordering::SeqCst), 1);
        runs.set_budget("november", "max_turns", 5).await.unwrap();
        let brief = step.clone().system("Be brief.");
        runs.fork(&brief, "brief", "november", None).await.unwrap();
        drop(runs);

        if is_moved {
            std::fs::rename(&first, &second).unwrap();
            let runs = Runs::open(&second).unwrap();
            assert!(matches!(runs.run(&step, "november").await.unwrap(), Outcome::Complete { .. }));
            assert!(matches!(
                runs.run(&brief, "brief").await.unwrap(),
                Outcome::Complete { .. } | Outcome::Stopped { .. }
            ));
            assert_eq!(sent.load(Ordering::SeqCst), 1);
            continue;
        }
        copy(&first, &second);
        let copied = Runs::open(&second).unwrap();
        let refusals = [
            copied.run(&step, "november").await.unwrap_err(),
            copied.run(&brief, "brief").await.unwrap_err(),
            copied.fork(&brief, "another", "november", None).await.unwrap_err(),
        ];
        for refused in refusals.map(|refused| refused.to_string()) {
            for told in [
                "in two copies of one database",
                "first/runtime_state.db",
                "second/runtime_state.db",
                "nothing was sent",
            ] {
                assert!(refused.contains(told), "{told}: {refused}");
            }
        }
        let runs = Runs::open(&first).unwrap();
        assert!(matches!(runs.run(&step, "november").await.unwrap(), Outcome::Complete { .. }));
        assert_eq!(sent.load(Ordering::SeqCst), 1);
        // Its word counts: the first one is out of the way.
        std::fs::rename(&first, folder.path().join("put away")).unwrap();
        assert!(matches!(copied.run(&step, "november").await.unwrap(), Outcome::Complete { .. }));
        assert_eq!(sent.load(Ordering::SeqCst), 1, "it knows what was sent before the copy was made");
    }
}

/// What was never in a file is not missed there: the way to it is named.
#[tokio::test]
async fn a_folder_whose_runs_are_on_a_server_is_not_used_without_it() {
    let folder = tempfile::tempdir().unwrap();
    for made in ["locks", "workspaces"] {
        std::fs::create_dir(folder.path().join(made)).unwrap();
    }
    let missing = Runs::open(folder.path()).map(drop).unwrap_err();
    assert!(matches!(missing, Error::Store { .. }), "{missing}");
    std::fs::write(folder.path().join("locks/root_id"), "a root").unwrap();
    for refused in [Runs::open(folder.path()), Runs::open_read_only(folder.path())] {
        let refused = refused.map(drop).unwrap_err();
        assert!(matches!(refused, Error::Refused(_)), "{refused}");
        for told in ["a database on a server", "`Runs::on_server`", "another folder", "nothing was changed"] {
            assert!(refused.to_string().contains(told), "{told}: {refused}");
        }
    }
    assert!(!folder.path().join("runtime_state.db").exists());
    // A line of what was sent is of a database that was here, and is gone.
    std::fs::write(folder.path().join("effects.log"), "{}\n").unwrap();
    let gone = Runs::open(folder.path()).map(drop).unwrap_err();
    assert!(matches!(gone, Error::Store { .. }), "{gone}");
}

/// A server is not used where the folder's own database has the runs: before anything is asked of it, so none is needed here. A database without
/// runs is no reason.
#[cfg(all(feature = "sqlite", feature = "postgres"))]
#[tokio::test]
async fn a_folder_whose_runs_are_in_a_file_is_not_used_with_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let nobody = "postgres://nobody@127.0.0.1:1/none?sslmode=disable";
    let sent = Arc::new(AtomicUsize::new(0));
    let runs = Runs::open(folder.path()).unwrap();
    let asked = Runs::on_server(nobody, folder.path()).await.map(drop).unwrap_err();
    assert!(matches!(asked, Error::Store { .. }), "the server is asked: {asked}");
    let first = runs.run(&invoices(&sending(), &sent), "november").await.unwrap();
    assert!(matches!(first, Outcome::Complete { .. }), "{first}");
    drop(runs);
    let refused = Runs::on_server(nobody, folder.path()).await.map(drop).unwrap_err();
    assert!(matches!(refused, Error::Refused(_)), "{refused}");
    for told in ["runtime_state.db", "`ua db copy`", "`Runs::open`", "another folder", "nothing was changed"] {
        assert!(refused.to_string().contains(told), "{told}: {refused}");
    }
    // Where they are they can be used.
    let again = Runs::open(folder.path()).unwrap().run(&invoices(&sending(), &sent), "november").await.unwrap();
    assert!(matches!(again, Outcome::Complete { .. }), "{again}");
}
