//! A provider that stumbles: requests that are too long, outages, and replies that are no answers.

use std::sync::atomic::Ordering;

use serde_json::json;
use ua_dispatch::LocalCall;
use ua_runner::{RunEvent, StepOutcome};
use ua_store::Choice;

use super::shop::{POLICY, SCRIPT, Shop, done, spec};

#[tokio::test]
async fn a_history_that_is_too_long_for_the_model_is_cut_until_it_fits_and_that_is_told_once() {
    let page = json!({"tools": [{"name": "mcp__shop__list_page", "input": {}}]});
    let mut turns = vec![page; 9];
    turns.push(json!({"text": "Read."}));
    let script = json!({ "turns": turns }).to_string();
    let mut shop = Shop::with_tools(&script, POLICY, done, |tools, _| {
        let page = "stock and more stock. ".repeat(200);
        tools.with(spec("list_page", &json!({})), move |_: LocalCall| {
            let page = page.clone();
            async move { Ok(json!({ "page": page })) }
        })
    });
    // Two pages fit; the estimate says that all of them do.
    shop.model.context.store(4_000, Ordering::SeqCst);
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = told.clone();
    shop.host.watcher = std::sync::Arc::new(move |event| {
        if let RunEvent::Thinking { turn } = event {
            kept.lock().unwrap().push((turn, "thinking"));
        } else if let RunEvent::HistoryCut { turn } = event {
            kept.lock().unwrap().push((turn, "cut"));
        } else if let RunEvent::Charged { turn, .. } = event {
            kept.lock().unwrap().push((turn, "charged"));
        }
    });
    let outcome = shop.run().await.unwrap();
    let StepOutcome::Complete { turns, usage, .. } = &outcome else { panic!("{outcome:?}") };
    assert_eq!((*turns, usage.requests["actual"]), (10, 10));
    assert!(usage.requests["refused"] >= 1, "what is too long is refused and free: {usage:?}");
    let told = told.lock().unwrap().clone();
    assert!(told.iter().any(|(_, what)| *what == "cut"), "{told:?}");
    let each_once: std::collections::BTreeSet<_> = told.iter().collect();
    assert_eq!(each_once.len(), told.len(), "{told:?}");
}

#[tokio::test]
async fn a_request_of_which_nothing_can_be_left_out_is_made_once() {
    let shop = Shop::new(SCRIPT, POLICY, done);
    shop.model.context.store(1, Ordering::SeqCst);
    let outcome = shop.run().await.unwrap();
    assert!(!matches!(outcome, StepOutcome::Complete { .. }), "{outcome:?}");
    assert_eq!(shop.requests(), 1, "{outcome:?}");
}

#[tokio::test]
async fn an_outage_of_many_minutes_is_waited_for() {
    let mut shop = Shop::new(SCRIPT, POLICY, done);
    shop.model.outage.store(12, Ordering::SeqCst);
    let waited = std::sync::Arc::new(std::sync::Mutex::new(0));
    let sum = waited.clone();
    shop.host.watcher = std::sync::Arc::new(move |signal| {
        if let RunEvent::Retrying { wait_millis, .. } = signal {
            *sum.lock().unwrap() += wait_millis;
        }
    });
    let outcome = shop.run().await.unwrap();
    assert!(matches!(outcome, StepOutcome::Complete { turns: 3, .. }), "{outcome:?}");
    assert!(*waited.lock().unwrap() > 5 * 60_000, "{waited:?} ms");
    assert_eq!((shop.requests(), shop.orders().len()), (15, 1));
}

#[tokio::test]
async fn a_refusal_is_no_success_and_a_person_may_let_the_model_try_again() {
    let refused = json!({"text": "I cannot.", "stop_reason": "refusal"});
    let script = json!({"turns": [refused, refused, {"text": "Ordered."}]}).to_string();
    let shop = Shop::new(&script, POLICY, done);
    let outcome = shop.run().await.unwrap();
    let StepOutcome::Waiting { question } = &outcome else { panic!("{outcome:?}") };
    assert!(question.text.contains("I cannot."), "{}", question.text);
    shop.answer(question, Choice::Continue).await;
    let outcome = shop.run().await.unwrap();
    assert!(
        matches!(&outcome, StepOutcome::Complete { final_output, .. } if final_output == "Ordered."),
        "{outcome:?}"
    );
    assert_eq!(shop.requests(), 3);
}
