//! Runs that are taken up again after more than a kill: an older database, another folder, a drive that was dropped.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;
use ua_sdk::crates::{ua_core, ua_store_sqlite};
use ua_sdk::prelude::*;
use ua_sdk::{RunStatus, RunStop, Step};

use crate::{Invoice, invoices, model, sending};

fn restore(copy: &Path, folder: &Path) {
    let now = ua_core::system::env().now();
    ua_store_sqlite::restore(copy, &folder.join("runtime_state.db"), now).unwrap();
}

#[tokio::test]
async fn a_restored_database_sends_nothing_again_before_somebody_has_looked() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.db");
    let sent = Arc::new(AtomicUsize::new(0));
    let turns = json!([
        {"text": "Not yet.", "tools": [{"name": "mcp__program__look", "input": {}}]},
        {"tools": [{"name": "mcp__program__send_invoice", "input": {"order": "A-17", "cents": 900}}]},
        {"text": "Sent."},
    ]);
    let look = tool("look", "Looks.", async |_: Call, (): ()| Ok::<_, Failure>("A-17 has no invoice")).reads();
    let step = invoices(&turns, &sent).tool(look).max_turns(1);
    let runs = Runs::open(folder.path()).unwrap();
    let stopped = runs.run(&step, "november").await.unwrap();
    assert!(stopped.to_string().contains("`Runs::set_budget`"), "{stopped}");
    ua_store_sqlite::backup(&folder.path().join("runtime_state.db"), &copy).unwrap();
    runs.set_budget("november", "max_turns", 5).await.unwrap();
    assert!(matches!(runs.run(&step, "november").await.unwrap(), Outcome::Complete { turns: 3, .. }));
    assert_eq!(sent.load(Ordering::SeqCst), 1);
    drop(runs);

    restore(&copy, folder.path());
    let runs = Runs::open(folder.path()).unwrap();
    runs.set_budget("november", "max_turns", 5).await.unwrap();
    let before = runs.get("november").await.unwrap();
    let refused = runs.run(&step, "november").await.unwrap_err().to_string();
    for told in
        ["is an older copy", "send_invoice", "nothing was sent", "`Runs::accept_forgotten`", "`ua db accept november`"]
    {
        assert!(refused.contains(told), "{told}: {refused}");
    }
    let forked = runs.fork(&step.clone().system("Be brief."), "brief", "november", None).await.unwrap_err().to_string();
    assert!(forked.contains("is an older copy"), "{forked}");
    assert_eq!(runs.get("november").await.unwrap(), before, "it was not even taken");
    assert_eq!(sent.load(Ordering::SeqCst), 1, "nothing is sent again");

    // The run may still be ended: it sends nothing more then. Accepted, it asks before it does the like of what the database does not know of.
    assert_eq!(runs.forgotten("november").await.unwrap().len(), 1);
    assert_eq!(runs.accept_forgotten("november").await.unwrap().len(), 1);
    assert!(runs.forgotten("november").await.unwrap().is_empty());
    let outcome = runs.run(&step, "november").await.unwrap();
    let Outcome::Waiting { question } = outcome else { panic!("{outcome:?}") };
    for told in ["effects.log says that it did", "was not sent itself", "The answer is that it happened"] {
        assert!(question.text.contains(told), "{told}: {}", question.text);
    }
    assert_eq!(sent.load(Ordering::SeqCst), 1, "nobody has ordered it");
    runs.answer(&question, Choice::Execute).await.unwrap();
    assert!(matches!(runs.run(&step, "november").await.unwrap(), Outcome::Complete { .. }));
    assert_eq!(sent.load(Ordering::SeqCst), 2, "the harness sees a second send");
}

#[tokio::test]
async fn a_run_that_the_database_lacks_may_be_ended() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.db");
    let sent = Arc::new(AtomicUsize::new(0));
    let step = invoices(&sending(), &sent).max_turns(1);
    let runs = Runs::open(folder.path()).unwrap();
    let never = Step::new("never").model(model(&json!([{"text": "No."}]))).input("Nothing.");
    let _complete = runs.run(&never, "never").await.unwrap();
    ua_store_sqlite::backup(&folder.path().join("runtime_state.db"), &copy).unwrap();
    let _stopped = runs.run(&step, "november").await.unwrap();
    drop(runs);
    restore(&copy, folder.path());
    let runs = Runs::open(folder.path()).unwrap();
    let refused = runs.run(&step, "november").await.unwrap_err().to_string();
    assert!(refused.contains("is an older copy"), "{refused}");
    runs.cancel("november", "no more").await.unwrap();
    assert_eq!(runs.run(&step, "november").await.unwrap(), Outcome::Cancelled);
    assert_eq!(sent.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_moved_folder_is_the_same_folder() {
    let root = tempfile::tempdir().unwrap();
    let (first, second) = (root.path().join("state"), root.path().join("state2"));
    let sent = Arc::new(AtomicUsize::new(0));
    let (ended, step) = (invoices(&sending(), &sent), invoices(&sending(), &sent).max_turns(1));
    let runs = Runs::open(&first).unwrap();
    let _complete = runs.run(&ended, "october").await.unwrap();
    let _stopped = runs.run(&step, "november").await.unwrap();
    runs.set_budget("november", "max_turns", 5).await.unwrap();
    let fork = step.clone().system("Be brief.");
    runs.fork(&fork, "brief", "november", None).await.unwrap();
    drop(runs);

    std::fs::rename(&first, &second).unwrap();
    let runs = Runs::open(&second).unwrap();
    assert!(matches!(runs.run(&ended, "october").await.unwrap(), Outcome::Complete { .. }));
    assert!(matches!(runs.run(&step, "november").await.unwrap(), Outcome::Complete { turns: 2, .. }));
    runs.set_budget("brief", "max_turns", 5).await.unwrap();
    assert!(matches!(runs.run(&fork, "brief").await.unwrap(), Outcome::Complete { turns: 2, .. }));
    assert!(second.join("workspaces/november/transcript.md").exists(), "it is worked in where it is now");
    assert!(!first.exists(), "nothing is made where it was");
    let again = runs.fork(&step.clone().system("Be long."), "long", "november", None).await.unwrap();
    assert!(again.workspace_dir.contains("state2"), "{}", again.workspace_dir);
    drop(runs);

    // By a link, too; but a folder of another run is not its own.
    let _stopped = Runs::open(&second).unwrap().run(&step, "december").await.unwrap();
    std::os::unix::fs::symlink(&second, &first).unwrap();
    let runs = Runs::open(&first).unwrap();
    runs.set_budget("december", "max_turns", 5).await.unwrap();
    std::fs::write(second.join("workspaces/december/.run"), "january\n").unwrap();
    assert!(runs.run(&step, "december").await.is_err());
    std::fs::write(second.join("workspaces/december/.run"), "december\n").unwrap();
    assert!(matches!(runs.run(&step, "december").await.unwrap(), Outcome::Complete { .. }));
    assert_eq!(sent.load(Ordering::SeqCst), 3, "once for each of three runs");
}

#[tokio::test]
async fn a_run_whose_drive_was_dropped_is_found_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    // The second turn is not over before the drive is dropped, however fast it is.
    let is_shut = Arc::new(AtomicBool::new(true));
    let shut = is_shut.clone();
    let look = tool("look", "Looks into the mailbox.", async move |_: Call, _: Invoice| {
        if shut.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        Ok::<_, Failure>(json!({"mails": 0}))
    });
    let mut turns = sending();
    let looking = json!({"tools": [{"name": "mcp__program__look", "input": {"order": "A-17", "cents": 900}}]});
    turns.as_array_mut().unwrap().insert(1, looking);
    let step = invoices(&turns, &sent).tool(look.reads());
    let mut run = runs.stream(&step, "november");
    while !matches!(run.next().await, Some(ua_sdk::RunEvent::Committed { turn: 1 }) | None) {}
    assert!(runs.is_driven("november").unwrap());
    assert!(runs.unfinished().await.unwrap().is_empty());
    drop(run);
    is_shut.store(false, Ordering::SeqCst);

    assert_eq!(runs.wait("november").await.unwrap().status, RunStatus::Running);
    let other = step.clone().system("Be brief.");
    runs.fork(&other, "brief", "november", None).await.unwrap();
    assert_eq!(runs.wait("brief").await.unwrap().status, RunStatus::Queued, "nobody has begun it");
    // All that died is resumed.
    let mut found: Vec<_> = runs.unfinished().await.unwrap().into_iter().map(|run| run.run_id.to_string()).collect();
    found.sort();
    assert_eq!(found, ["brief", "november"]);
    for (id, step) in [("brief", &other), ("november", &step)] {
        assert!(matches!(runs.run(step, id).await.unwrap(), Outcome::Complete { .. }));
        assert_eq!(runs.wait(id).await.unwrap().status, RunStatus::Succeeded);
    }
    assert!(runs.unfinished().await.unwrap().is_empty());
    assert_eq!(sent.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_question_about_a_lost_call_ends_with_what_the_tool_said() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let lost = tool("send_invoice", "Sends an invoice.", async |_: Call, _: Invoice| {
        Err::<(), _>(std::io::Error::other("connection reset by the shop"))
    });
    let step = Step::new("invoices").model(model(&sending())).tool(lost).input("Send the invoice.");
    let outcome = runs.run(&step, "november").await.unwrap();
    assert!(outcome.to_string().contains("connection reset by the shop"), "{outcome}");
    let Outcome::Waiting { question } = outcome else { panic!("{outcome:?}") };
    let open = runs.questions("november").await.unwrap();
    assert_eq!(open[0].text, question.text);
    assert_eq!(question.text.matches("connection reset").count(), 1, "{}", question.text);
    let nobody = runs.questions("december").await.unwrap_err().to_string();
    assert!(nobody.contains("december"), "{nobody}");
}

/// Asked to stop while a tool is at work, before and after: the answer is kept, the next process goes on, and there is one effect and no question.
#[tokio::test]
async fn runs_that_are_stopped_lose_no_answer() {
    for stopped_in_the_tool in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let sent = Arc::new(AtomicUsize::new(0));
        let runs = Runs::open(folder.path()).unwrap();
        let (counted, stopping) = (sent.clone(), runs.clone());
        // It makes no promise about keys, so a call of it that was cut would be asked about.
        let send = tool("send_invoice", "Sends.", async move |_: Call, invoice: Invoice| {
            if stopped_in_the_tool {
                stopping.stop();
            }
            tokio::task::yield_now().await;
            counted.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Failure>(invoice.order)
        });
        let step = Step::new("invoices")
            .model(model(&sending()))
            .tool(send.external("invoice.send"))
            .input("Send the invoice.");
        if !stopped_in_the_tool {
            runs.stop();
        }
        // A clone of them, as a stream in a task of its own.
        let mut run = runs.clone().stream(&step, "november");
        let driven = tokio::spawn(async move {
            while run.next().await.is_some() {}
            run.outcome().await
        });
        let outcome = driven.await.unwrap().unwrap();
        let Outcome::Stopped { reason: RunStop::Interrupt, detail } = &outcome else { panic!("{outcome:?}") };
        assert!(detail.contains("`Runs::stop`") && !detail.contains("Ctrl-C"), "{detail}");
        assert_eq!(detail.contains("`Runs::open`"), !stopped_in_the_tool, "{detail}");
        assert_eq!(sent.load(Ordering::SeqCst), usize::from(stopped_in_the_tool));
        let again = Runs::open(folder.path()).unwrap();
        assert!(again.questions("november").await.unwrap().is_empty());
        let outcome = again.run(&step, "november").await.unwrap();
        assert!(matches!(outcome, Outcome::Complete { turns: 2, .. }), "{outcome:?}");
        assert_eq!(sent.load(Ordering::SeqCst), 1);
    }
}

/// The process lives on and reads it: nobody says that it ended, or was killed.
#[tokio::test]
async fn a_run_that_was_dropped_is_told_as_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let begun = Arc::new(tokio::sync::Notify::new());
    let told = begun.clone();
    let send = tool("send_invoice", "Sends.", async move |_: Call, _: Invoice| {
        told.notify_one();
        std::future::pending::<()>().await;
        Ok::<_, Failure>("sent")
    });
    let send = send.external("invoice.send");
    let step = Step::new("invoices").model(model(&sending())).tool(send).input("Send the invoice.");
    let runs = Runs::open(folder.path()).unwrap();
    tokio::select! {
        outcome = runs.run(&step, "november") => panic!("{outcome:?}"),
        () = begun.notified() => {}
    }
    let outcome = runs.run(&step, "november").await.unwrap();
    let Outcome::Waiting { question } = outcome else { panic!("{outcome:?}") };
    assert!(question.text.contains("its program dropped the run"), "{}", question.text);
    let files = std::fs::read_dir(runs.workspace("november").unwrap()).unwrap();
    let pages: Vec<PathBuf> = files.map(|file| file.unwrap().path()).filter(|file| file.is_file()).collect();
    assert!(pages.len() > 2, "{pages:?}");
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for untrue in ["killed", "the process that sent it ended", "the one before it died"] {
            assert!(!text.contains(untrue), "{}: {untrue}", page.display());
        }
    }
}
