//! A person's word over a record, from the program: before and after the end of a run, once, with its reason.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use ua_sdk::prelude::*;
use ua_sdk::types::{CallStatus, RunStore as _};
use ua_sdk::{CallOutcome, FailureClass, RunId};

use crate::{Invoice, invoices, model, sending};

const REASON: &str = "There is no such mail in their inbox";

/// What the model of a run was told, as often as it stands there.
async fn told(runs: &Runs, run: &str, words: &str) -> usize {
    let records = runs.store().load(&RunId::parse(run).unwrap()).await.unwrap();
    records.messages.iter().map(|record| json!(record.message).to_string().matches(words).count()).sum()
}

/// A step whose one call is lost.
fn losing(tries: &Arc<AtomicUsize>) -> Step {
    let tries = tries.clone();
    let send = tool("send_invoice", "Sends an invoice.", async move |_: Call, _: Invoice| {
        tries.fetch_add(1, Ordering::SeqCst);
        Err::<(), _>(Failure::unknown("the line is dead"))
    });
    Step::new("invoices").model(model(&sending())).tool(send).input("Send the invoice.")
}

#[tokio::test]
async fn what_is_in_doubt_is_recorded_before_anybody_answered_and_the_run_continues() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let tries = Arc::new(AtomicUsize::new(0));
    let step = losing(&tries);
    assert!(matches!(runs.run(&step, "november").await.unwrap(), Outcome::Waiting { .. }));
    let call = runs.calls("november").await.unwrap().remove(0).call_id;
    let said = CallOutcome::happened(REASON).proof("invoice 4711");
    let now = runs.resolve(call.as_str(), said).await.unwrap();
    assert_eq!((now.status, now.external_correlation_id.as_deref()), (CallStatus::Succeeded, Some("invoice 4711")));
    assert_eq!(now.correction.unwrap().reason, REASON);
    assert!(runs.questions("november").await.unwrap().is_empty(), "nobody has to answer any more");
    assert!(matches!(runs.run(&step, "november").await.unwrap(), Outcome::Complete { .. }));
    assert_eq!((tries.load(Ordering::SeqCst), told(&runs, "november", REASON).await), (1, 1));
}

#[tokio::test]
async fn a_record_is_put_right_after_the_end_of_its_run_and_a_fork_goes_by_it() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let step = invoices(&sending(), &sent);
    assert!(matches!(runs.run(&step, "november").await.unwrap(), Outcome::Complete { .. }));
    let call = runs.calls("november").await.unwrap().remove(0).call_id;
    // Said twice it is recorded once, and the first reason counts.
    for reason in [REASON, "again"] {
        let now = runs.resolve(call.as_str(), CallOutcome::not_happened(reason)).await.unwrap();
        assert_eq!((now.status, now.correction.unwrap().reason.as_str()), (CallStatus::FailedDefinite, REASON));
    }
    assert_eq!(runs.get("november").await.unwrap().status, RunStatus::Succeeded, "how it ended stays");
    let page = runs.workspace("november").unwrap().join("job_completion_november.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(REASON), "{page}");
    let brief = step.system("Be brief.");
    runs.fork(&brief, "brief", "november", Some(0)).await.unwrap();
    assert!(matches!(runs.run(&brief, "brief").await.unwrap(), Outcome::Complete { .. }));
    assert_eq!(sent.load(Ordering::SeqCst), 2, "what did not happen is done");
}

/// A run with a call in doubt is not deleted; once a person said what became of it, it is.
#[tokio::test]
async fn a_run_is_deleted_once_it_is_said_what_became_of_its_call() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let _waiting = runs.run(&losing(&Arc::default()), "november").await.unwrap();
    runs.cancel("november", "no more").await.unwrap();
    let refused = runs.delete("november").await.unwrap_err();
    assert!(matches!(&refused, Error::Refused(why) if why.contains("`Runs::resolve`")), "{refused}");
    for call in runs.calls("november").await.unwrap() {
        runs.resolve(call.call_id.as_str(), CallOutcome::not_happened(REASON)).await.unwrap();
    }
    runs.delete("november").await.unwrap();
}

#[tokio::test]
async fn a_word_that_is_no_record_is_refused_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap().secret("PIN", "4711-0815-4711");
    let sent = Arc::new(AtomicUsize::new(0));
    assert!(matches!(runs.run(&invoices(&sending(), &sent), "november").await.unwrap(), Outcome::Complete { .. }));
    let before = runs.calls("november").await.unwrap();
    let call = before[0].call_id.as_str();
    let looked_at = Runs::open_read_only(folder.path()).unwrap();
    for (at, call, said, told) in [
        (&runs, call, CallOutcome::happened(" \n"), "how you know"),
        (&runs, call, CallOutcome::not_happened("x".repeat(20_000)), "longer than"),
        (&runs, call, CallOutcome::not_happened(REASON).proof("msg_1"), "`CallOutcome::happened`"),
        (&runs, call, CallOutcome::happened(REASON).proof("msg_1"), "already recorded"),
        (&runs, call, CallOutcome::unknown("it has 4711-0815-4711 in it"), "PIN"),
        (&runs, "call_none", CallOutcome::happened(REASON), "`Runs::calls`"),
        (&looked_at, call, CallOutcome::not_happened(REASON), "`Runs::open`"),
    ] {
        let refused = at.resolve(call, said).await.unwrap_err();
        assert!(matches!(&refused, Error::Refused(why) if why.contains(told)), "{told}: {refused}");
    }
    assert_eq!(runs.calls("november").await.unwrap(), before);
}

/// A call of the turn that is under way is its driver's.
#[tokio::test]
async fn a_call_that_is_at_work_is_its_drivers() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let (inner, refused) = (runs.clone(), Arc::new(Mutex::new(None)));
    let keep = refused.clone();
    let send = tool("send_invoice", "Sends an invoice.", async move |call: Call, _: Invoice| {
        let id = inner.calls(call.run()).await.map_err(|e| Failure::unknown(e.to_string()))?.remove(0).call_id;
        let early = inner.resolve(id.as_str(), CallOutcome::not_happened(REASON)).await.err();
        *keep.lock().unwrap() = early;
        Ok::<_, Failure>("sent")
    });
    let step = Step::new("invoices").model(model(&sending())).tool(send).input("Send the invoice.");
    assert!(matches!(runs.run(&step, "november").await.unwrap(), Outcome::Complete { .. }));
    let refused = refused.lock().unwrap().take().unwrap();
    assert!(matches!(refused, Error::DrivenElsewhere { .. }), "{refused}");
    assert_eq!(refused.class(), FailureClass::Transient);
}
