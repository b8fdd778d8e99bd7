//! A step within a call of another one: what the inner run needs is what the outer one waits for, and nobody is asked about the call.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use serde_json::json;
use ua_sdk::crates::ua_core::CallStatus;
use ua_sdk::crates::ua_store::RunStore as _;
use ua_sdk::prelude::*;
use ua_sdk::{Budgets, CallOutcome, QuestionKind, RunId, RunRecord};

use crate::{Invoice, model};

fn counts() -> (Arc<AtomicUsize>, Arc<AtomicUsize>) {
    (Arc::default(), Arc::default())
}

/// The inner step: one effect, which a person has to approve.
fn inner(sent: &Arc<AtomicUsize>) -> Step {
    let sent = sent.clone();
    let send = tool("send_invoice", "Sends an invoice.", async move |_: Call, invoice: Invoice| {
        sent.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Failure>(invoice.order)
    });
    let turns = json!([
        {"tools": [{"name": "mcp__program__send_invoice", "input": {"order": "A-17", "cents": 900}}]},
        {"text": "Sent it."},
    ]);
    Step::new("inner").model(model(&turns)).tool(send.external("invoice.send").approved_by_a_person()).input("Send it.")
}

/// A tool that has the inner step done.
fn delegate(runs: &Runs, inner: Step, calls: &Arc<AtomicUsize>) -> Tool {
    let (runs, calls) = (runs.clone(), calls.clone());
    tool("delegate", "Has it done.", async move |call: Call, (): ()| {
        calls.fetch_add(1, Ordering::SeqCst);
        assert_eq!(call.attempt(), 1, "it is no other attempt");
        runs.run_within(&call, &inner).await
    })
    .external("task.start")
}

fn outer(delegate: Tool) -> Step {
    let turns = json!([
        {"tools": [{"name": "mcp__program__delegate", "input": {}}]},
        {"text": "It says {{result:toolu_1_1}}"},
    ]);
    // One that is asked about, or tried again, would be seen.
    let budgets = Budgets { max_retries_per_tool_call: 0, ..Budgets::default() };
    Step::new("outer").model(model(&turns)).tool(delegate).budgets(budgets).input("Have it done.")
}

/// The run that is not the outer one.
async fn inner_run(runs: &Runs) -> RunRecord {
    let mut all = runs.list(9).await.unwrap();
    all.retain(|run| run.run_id.as_str() != "outer");
    assert_eq!(all.len(), 1);
    all.remove(0)
}

#[tokio::test]
async fn a_run_whose_tool_waits_for_another_run_waits_with_that_ones_question() {
    let folder = tempfile::tempdir().unwrap();
    let (sent, calls) = counts();
    let runs = Runs::open(folder.path()).unwrap();
    let step = outer(delegate(&runs, inner(&sent), &calls).keyed());
    // However often it is run, it waits for the same, and nothing else is asked.
    for count in 1..=3 {
        let Outcome::Waiting { question } = runs.run(&step, "outer").await.unwrap() else { panic!() };
        assert_eq!((question.kind, &question.run_id), (QuestionKind::Approval, &inner_run(&runs).await.run_id));
        assert_eq!(calls.load(Ordering::SeqCst), count, "it is called once for each time that the step is run");
        assert_eq!(runs.questions("outer").await.unwrap(), [*question]);
    }
    let unfinished = runs.unfinished().await.unwrap();
    assert!(unfinished.iter().all(|run| run.status == RunStatus::WaitingForHuman) && unfinished.len() == 2);
    let asked = runs.questions("outer").await.unwrap().remove(0);
    assert_eq!(sent.load(Ordering::SeqCst), 0);
    runs.answer(&asked, Choice::Execute).await.unwrap();
    assert!(runs.questions("outer").await.unwrap().is_empty());
    for _ in 0..2 {
        let outcome = runs.run(&step, "outer").await.unwrap();
        let Outcome::Complete { final_output, .. } = outcome else { panic!("{outcome:?}") };
        assert!(final_output.as_str().unwrap().contains("Sent it."), "{final_output}");
    }
    assert_eq!((sent.load(Ordering::SeqCst), calls.load(Ordering::SeqCst)), (1, 4));
    let call = runs.store().load(&RunId::parse("outer").unwrap()).await.unwrap().calls.remove(0);
    assert_eq!((call.attempt, call.status, call.doubt), (1, CallStatus::Succeeded, None));
}

#[tokio::test]
async fn a_run_whose_tool_waits_for_a_run_that_stopped_stops_for_the_same_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (sent, calls) = counts();
    let runs = Runs::open(folder.path()).unwrap();
    let step = outer(delegate(&runs, inner(&sent).max_turns(1), &calls).keyed());
    let Outcome::Waiting { question } = runs.run(&step, "outer").await.unwrap() else { panic!() };
    runs.answer(&question, Choice::Execute).await.unwrap();
    let stopped = runs.run(&step, "outer").await.unwrap();
    let id = inner_run(&runs).await.run_id.to_string();
    let Outcome::Stopped { reason: RunStop::Budget, detail } = &stopped else { panic!("{stopped:?}") };
    assert!(detail.starts_with(&format!("run {id}: ")) && detail.contains("max_turns"), "{detail}");
    runs.set_budget(&id, "max_turns", 5).await.unwrap();
    assert!(matches!(runs.run(&step, "outer").await.unwrap(), Outcome::Complete { .. }));
    assert_eq!(sent.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_ended_within_a_call_is_told_to_the_model_and_what_cannot_be_driven_stops_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let (sent, calls) = counts();
    let runs = Runs::open(folder.path()).unwrap();
    let step = outer(delegate(&runs, inner(&sent), &calls).keyed());
    let Outcome::Waiting { .. } = runs.run(&step, "outer").await.unwrap() else { panic!() };
    // Another inner step than the one that was begun: the program is put right, and nobody is asked whether the call happened.
    let other = outer(delegate(&runs, inner(&sent).system("Be brief."), &calls).keyed());
    let stopped = runs.run(&other, "outer").await.unwrap();
    assert!(
        matches!(&stopped, Outcome::Stopped { reason: RunStop::Fingerprint, detail } if detail.contains("system")),
        "{stopped:?}"
    );
    assert!(runs.questions("outer").await.unwrap().iter().all(|asked| asked.kind == QuestionKind::Approval));
    let id = inner_run(&runs).await.run_id.to_string();
    runs.cancel(&id, "no more").await.unwrap();
    let outcome = runs.run(&step, "outer").await.unwrap();
    let Outcome::Complete { final_output, .. } = outcome else { panic!("{outcome:?}") };
    assert!(final_output.as_str().unwrap().contains("was cancelled"), "{final_output}");
    assert_eq!(sent.load(Ordering::SeqCst), 0);
}

/// What the inner step is asked comes from the model, or from what it read: it is told, and another run is not stopped by it for good.
#[tokio::test]
async fn an_input_that_no_run_can_have_is_told_to_the_model() {
    #[derive(Deserialize, JsonSchema)]
    struct Topic {
        topic: String,
    }
    for (topic, told) in [("", "is empty"), ("page", "16777216"), ("key", "SHOP_KEY")] {
        let folder = tempfile::tempdir().unwrap();
        let runs = Runs::open(folder.path()).unwrap().secret("SHOP_KEY", "shop-0123456789");
        let inner = runs.clone();
        let research = tool("research", "Researches a topic.", async move |call: Call, about: Topic| {
            let input = match about.topic.as_str() {
                "page" => "x".repeat(17 * 1024 * 1024),
                "key" => "It says shop-0123456789 there.".to_owned(),
                _ => about.topic,
            };
            let researcher = Step::new("researcher").model(model(&json!([{"text": "Known."}])));
            inner.run_within(&call, &researcher.input(input)).await
        });
        let turns = json!([
            {"tools": [{"name": "mcp__program__research", "input": {"topic": topic}}]},
            {"text": "It says {{result:toolu_1_1}}"},
        ]);
        let research = research.external("research.run").keyed();
        let step = Step::new("outer").model(model(&turns)).tool(research).input("Look it up.");
        let outcome = runs.run(&step, "outer").await.unwrap();
        let Outcome::Complete { final_output, .. } = &outcome else { panic!("{topic}: {outcome:?}") };
        let said = final_output.as_str().unwrap();
        assert!(said.contains("nothing was begun") && said.contains(told), "{topic}: {said}");
        assert_eq!(runs.list(9).await.unwrap().len(), 1, "{topic}");
    }
}

/// The model could do nothing about it, and the same again would bring the same.
#[tokio::test]
async fn a_fault_of_the_program_within_a_call_stops_the_run_until_it_is_corrected() {
    let folder = tempfile::tempdir().unwrap();
    let (sent, calls) = counts();
    let runs = Runs::open(folder.path()).unwrap();
    let wrong = outer(delegate(&runs, inner(&sent).temperature(9.0), &calls).keyed());
    let stopped = runs.run(&wrong, "outer").await.unwrap();
    let Outcome::Stopped { reason: RunStop::Fingerprint, detail } = &stopped else { panic!("{stopped:?}") };
    assert!(detail.contains("temperature") && detail.contains("corrected"), "{detail}");
    let right = outer(delegate(&runs, inner(&sent), &calls).keyed());
    let outcome = runs.run(&right, "outer").await.unwrap();
    assert!(
        matches!(&outcome, Outcome::Waiting { question } if question.kind == QuestionKind::Approval),
        "{outcome:?}"
    );
    assert_eq!(sent.load(Ordering::SeqCst), 0);
}

/// It may still happen, and whoever says that it did not says it too early.
#[tokio::test]
async fn nobody_says_of_a_call_that_it_did_not_happen_while_the_run_within_it_has_not_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (sent, calls) = counts();
    let runs = Runs::open(folder.path()).unwrap();
    let step = outer(delegate(&runs, inner(&sent), &calls).keyed());
    let Outcome::Waiting { .. } = runs.run(&step, "outer").await.unwrap() else { panic!() };
    let call = runs.calls("outer").await.unwrap().remove(0).call_id;
    let said = CallOutcome::not_happened("Nobody saw it");
    let id = inner_run(&runs).await.run_id.to_string();
    for ended in [None, Some("outer")] {
        if let Some(ended) = ended {
            runs.cancel(ended, "no more").await.unwrap();
        }
        let early = runs.resolve(call.as_str(), said.clone()).await.unwrap_err();
        assert!(matches!(&early, Error::TooEarly { until: None, why, .. } if why.contains(&id)), "{ended:?}: {early}");
    }
    runs.cancel(&id, "no more").await.unwrap();
    assert_eq!(runs.resolve(call.as_str(), said).await.unwrap().status, CallStatus::FailedDefinite);
    assert_eq!(sent.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_cancelled_run_leaves_the_run_within_its_call_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (sent, calls) = counts();
    let runs = Runs::open(folder.path()).unwrap();
    let step = outer(delegate(&runs, inner(&sent), &calls).keyed());
    let Outcome::Waiting { .. } = runs.run(&step, "outer").await.unwrap() else { panic!() };
    runs.cancel("outer", "no more").await.unwrap();
    assert_eq!(runs.run(&step, "outer").await.unwrap(), Outcome::Cancelled);
    let within = inner_run(&runs).await;
    assert_eq!((within.status, calls.load(Ordering::SeqCst)), (RunStatus::WaitingForHuman, 1));
    let call = runs.store().load(&RunId::parse("outer").unwrap()).await.unwrap().calls.remove(0);
    assert_eq!(call.status, CallStatus::Unknown);
}

/// What takes no key is not called twice, and what came to take none since is asked about.
#[tokio::test]
async fn only_what_may_be_called_again_waits_for_a_run() {
    let (sent, calls) = counts();
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let step = outer(delegate(&runs, inner(&sent), &calls));
    for _ in 0..2 {
        let Outcome::Waiting { question } = runs.run(&step, "outer").await.unwrap() else { panic!() };
        assert_eq!((question.kind, question.run_id.as_str()), (QuestionKind::UnknownOutcome, "outer"));
        assert!(question.text.contains("has to take a key"), "{}", question.text);
    }
    assert_eq!(calls.load(Ordering::SeqCst), 1);

    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let keyed = outer(delegate(&runs, inner(&sent), &calls).keyed());
    let Outcome::Waiting { question } = runs.run(&keyed, "outer").await.unwrap() else { panic!() };
    assert_eq!(question.kind, QuestionKind::Approval);
    let plain = outer(delegate(&runs, inner(&sent), &calls));
    let outcome = runs.run_accepting(&plain, "outer", &[Component::Tools]).await.unwrap();
    let Outcome::Waiting { question } = outcome else { panic!("{outcome:?}") };
    assert_eq!((question.kind, question.run_id.as_str()), (QuestionKind::UnknownOutcome, "outer"));
    assert_eq!((sent.load(Ordering::SeqCst), calls.load(Ordering::SeqCst)), (0, 2));
}

/// A stop reaches the run within the call, which leaves between its own calls.
#[tokio::test]
async fn a_stop_is_as_gentle_within_a_call() {
    let folder = tempfile::tempdir().unwrap();
    let (sent, calls) = counts();
    let runs = Runs::open(folder.path()).unwrap();
    let (begun, go_on) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let (told, waits, count) = (begun.clone(), go_on.clone(), sent.clone());
    let slow = tool("send_slowly", "Sends.", async move |_: Call, (): ()| {
        told.notify_one();
        waits.notified().await;
        count.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Failure>("sent")
    });
    let turns = json!([{"tools": [{"name": "mcp__program__send_slowly", "input": {}}]}, {"text": "Sent it."}]);
    let slow = Step::new("slow")
        .model(model(&turns))
        .tool(slow.external("invoice.send").approved_by_a_person())
        .input("Send.");
    let step = outer(delegate(&runs, slow, &calls).keyed());
    let Outcome::Waiting { question } = runs.run(&step, "outer").await.unwrap() else { panic!() };
    runs.answer(&question, Choice::Execute).await.unwrap();
    let (stopped, ()) = tokio::join!(runs.run(&step, "outer"), async {
        begun.notified().await;
        runs.stop();
        tokio::task::yield_now().await;
        go_on.notify_one();
    });
    assert!(matches!(stopped.unwrap(), Outcome::Stopped { reason: RunStop::Interrupt, .. }));
    assert_eq!(sent.load(Ordering::SeqCst), 1);
    let runs = Runs::open(folder.path()).unwrap();
    assert!(runs.questions("outer").await.unwrap().is_empty(), "nothing is in doubt");
}

/// Polls a future so many times, and drops it then: a kill wherever it stands.
async fn killed<T>(going: impl Future<Output = T>, mut polls: usize) -> Option<T> {
    let mut going = pin!(going);
    std::future::poll_fn(|context| {
        if polls == 0 {
            return Poll::Ready(None);
        }
        polls -= 1;
        going.as_mut().poll(context).map(Some)
    })
    .await
}

/// Killed wherever it stands, before and after the person's answer, it comes to one effect, and the person is asked for the approval alone.
#[tokio::test]
async fn a_kill_within_a_call_costs_neither_an_effect_nor_a_question() {
    for polls in (0..72).step_by(3) {
        let folder = tempfile::tempdir().unwrap();
        let runs = Runs::open(folder.path()).unwrap();
        let keys = Arc::new(Mutex::new(BTreeSet::new()));
        let noted = keys.clone();
        let send = tool("send_invoice", "Sends an invoice.", async move |call: Call, invoice: Invoice| {
            noted.lock().unwrap().insert(call.key().to_owned());
            Ok::<_, Failure>(invoice.order)
        });
        let turns = json!([
            {"tools": [{"name": "mcp__program__send_invoice", "input": {"order": "A-17", "cents": 900}}]},
            {"text": "Sent it."},
        ]);
        let send = send.external("invoice.send").keyed().approved_by_a_person();
        let inner = Step::new("inner").model(model(&turns)).tool(send).input("Send it.");
        let again = runs.clone();
        let delegate =
            tool("delegate", "Has it done.", async move |call: Call, (): ()| again.run_within(&call, &inner).await);
        let step = outer(delegate.external("task.start").keyed()).budgets(Budgets::default());
        let _killed = killed(runs.run(&step, "outer"), polls).await;
        let Outcome::Waiting { question } = runs.run(&step, "outer").await.unwrap() else { panic!("{polls}") };
        assert_eq!(question.kind, QuestionKind::Approval, "{polls}: {}", question.text);
        runs.answer(&question, Choice::Execute).await.unwrap();
        let _killed = killed(runs.run(&step, "outer"), polls).await;
        let outcome = runs.run(&step, "outer").await.unwrap();
        assert!(matches!(outcome, Outcome::Complete { .. }), "{polls}: {outcome:?}");
        let listed = runs.list(9).await.unwrap().len();
        assert_eq!((keys.lock().unwrap().len(), listed), (1, 2), "{polls}");
    }
}
