//! Runs and large results that a program lets go of: what may have happened is never among it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use ua_sdk::prelude::*;

use crate::{Invoice, invoices, model, sending};

#[tokio::test]
async fn a_run_that_has_ended_is_deleted_with_its_folder_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let step = invoices(&sending(), &sent);
    for id in ["october", "november"] {
        assert!(matches!(runs.run(&step, id).await.unwrap(), Outcome::Complete { .. }));
    }
    let _stopped = runs.run(&step.clone().max_turns(1), "december").await.unwrap();
    let refused = runs.delete("december").await.unwrap_err();
    assert!(matches!(&refused, Error::Refused(why) if why.contains("`Runs::cancel`")), "{refused}");
    assert!(runs.workspace("december").unwrap().is_dir() && runs.get("december").await.is_ok());

    // A link out of the folder is removed, and not what it leads to.
    let outside = folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("file"), "x").unwrap();
    std::os::unix::fs::symlink(&outside, runs.workspace("november").unwrap().join("link")).unwrap();
    runs.delete("november").await.unwrap();
    assert!(!runs.workspace("november").unwrap().exists() && outside.join("file").exists());
    assert!(matches!(runs.get("november").await.unwrap_err(), Error::NoSuchRun { .. }));
    assert!(matches!(runs.delete("november").await.unwrap_err(), Error::NoSuchRun { .. }));
    let again = runs.run(&step, "november").await.unwrap_err();
    assert!(matches!(&again, Error::Refused(why) if why.contains("was deleted")), "{again}");

    assert!(runs.workspace("october").unwrap().is_dir());
    assert!(matches!(runs.run(&step, "october").await.unwrap(), Outcome::Complete { .. }));
    // What lies in the place of a run's folder and is another's is left.
    std::fs::write(runs.workspace("october").unwrap().join(".run"), "september\n").unwrap();
    let left = runs.delete("october").await.unwrap_err();
    assert!(matches!(&left, Error::Files { why } if why.contains("is deleted") && why.contains("september")), "{left}");
    assert!(runs.workspace("october").unwrap().is_dir() && runs.get("october").await.is_err());
    assert_eq!(sent.load(Ordering::SeqCst), 3);
}

/// What it did outside stays known to those that share it.
#[tokio::test]
async fn a_fork_of_a_deleted_run_sends_nothing_again() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let step = invoices(&sending(), &sent);
    let _stopped = runs.run(&step.clone().max_turns(1), "november").await.unwrap();
    let brief = step.system("Be brief.");
    runs.fork(&brief, "brief", "november", None).await.unwrap();
    runs.cancel("november", "the fork does it").await.unwrap();
    runs.delete("november").await.unwrap();
    let outcome = runs.run(&brief, "brief").await.unwrap();
    assert!(matches!(outcome, Outcome::Complete { .. }), "{outcome:?}");
    assert_eq!(sent.load(Ordering::SeqCst), 1, "the parent did it");
}

#[tokio::test]
async fn a_run_with_a_call_that_may_have_happened_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    for (id, failure) in [("lost", false), ("reported", true)] {
        let send = tool("send_invoice", "Sends an invoice.", async move |_: Call, _: Invoice| {
            let why = "the line is dead";
            Err::<(), _>(if failure { Failure::reported(why) } else { Failure::unknown(why) })
        });
        let step = Step::new("invoices").model(model(&sending())).tool(send).input("Send the invoice.");
        let _outcome = runs.run(&step, id).await.unwrap();
        if !runs.get(id).await.unwrap().status.is_terminal() {
            runs.cancel(id, "no more").await.unwrap();
        }
        let refused = runs.delete(id).await.unwrap_err();
        let told = refused.to_string();
        assert!(matches!(refused, Error::Refused(_)) && told.contains("`send_invoice`"), "{id}: {told}");
        assert!(runs.workspace(id).unwrap().is_dir() && !runs.calls(id).await.unwrap().is_empty(), "{id}");
    }
}

#[tokio::test]
async fn large_results_go_once_their_runs_have_ended_and_results_of_runs_stay() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let page = "a word of the page ".repeat(5_000);
    let look = tool("look", "Looks.", async move |_: Call, (): ()| Ok::<_, Failure>(page)).reads();
    let turns = json!([{"tools": [{"name": "mcp__program__look", "input": {}}]}, {"text": "Read."}]);
    let step = Step::new("look").model(model(&turns)).tool(look).input("Look.").max_turns(1);
    let _stopped = runs.run(&step, "look").await.unwrap();
    assert_eq!(runs.prune(Duration::ZERO).await.unwrap(), 0, "it is not over");
    runs.raise_budget("look", "max_turns", 1).await.unwrap();
    assert!(matches!(runs.run(&step, "look").await.unwrap(), Outcome::Complete { .. }));
    let call = runs.calls("look").await.unwrap().remove(0).call_id;
    assert!(runs.receipt(call.as_str()).await.unwrap().is_some());
    assert_eq!(runs.prune(Duration::from_hours(1)).await.unwrap(), 0, "it was used a moment ago");
    // What was used within this very millisecond stays.
    let mut freed = 0;
    for _ in 0..20 {
        freed += runs.prune(Duration::ZERO).await.unwrap();
    }
    assert!(freed > 20_000, "{freed}");
    let gone = runs.receipt(call.as_str()).await.unwrap_err();
    assert!(matches!(gone, Error::Store { .. }) && gone.to_string().contains("pruned"), "{gone}");
    assert!(matches!(runs.run(&step, "look").await.unwrap(), Outcome::Complete { turns: 2, .. }));
}
