//! Tools in the same process: what they are handed, and what each of their answers means.

use std::collections::HashSet;

use serde_json::{Value, json};
use ua_core::CallStatus;
use ua_dispatch::{LocalCall, LocalFailure};
use ua_runner::{StepError, StepOutcome};
use ua_store::{CallRecord, Choice};

use super::shop::{Answer, Orders, POLICY, SCRIPT, Shop, done, spec};

const KEYED: &str = r#"
[[rule]]
id = "orders"
server = "shop"
name = "place_order"
side_effect_class = "external"
key_channel = "meta"
"#;

async fn order(shop: &Shop) -> CallRecord {
    shop.records().await.calls.into_iter().find(|call| call.name.tool == "place_order").unwrap()
}

fn keys(calls: &[LocalCall]) -> HashSet<&str> {
    calls.iter().map(LocalCall::key).collect()
}

#[tokio::test]
async fn a_tool_is_handed_its_arguments_its_call_and_its_key() {
    let shop = Shop::new(SCRIPT, POLICY, done);
    let _outcome = shop.run().await.unwrap();
    let (orders, stored) = (shop.orders(), order(&shop).await);
    let [call] = orders.as_slice() else { panic!("{orders:?}") };
    assert_eq!((call.text("article"), call.text("colour")), ("pen", ""));
    let permitted = call.permitted.as_ref().unwrap();
    assert_eq!((&permitted.call_id, permitted.attempt), (&stored.call_id, 1));
    assert_eq!(Some(&permitted.idempotency_key), stored.idempotency_key.as_ref());
    assert_eq!(stored.status, CallStatus::Succeeded);
}

#[tokio::test]
async fn what_was_not_done_is_tried_again_under_the_same_key() {
    let shop = Shop::new(SCRIPT, POLICY, |calls| match calls.len() {
        1 | 2 => Err(LocalFailure::NotDone("the printer is warming up".into())),
        _ => Ok(Value::String("done".into())),
    });
    let outcome = shop.run().await.unwrap();
    assert!(matches!(outcome, StepOutcome::Complete { .. }), "{outcome:?}");
    assert_eq!((shop.orders().len(), keys(&shop.orders()).len()), (3, 1));
    assert_eq!(order(&shop).await.attempt, 3);
}

#[tokio::test]
async fn a_reported_failure_goes_to_the_model_and_nothing_is_repeated() {
    let script = SCRIPT.replace(
        r#"{"text": "Ordered."}"#,
        r#"{"text": "Sold out.", "expect": {"contains": ["no pens left"], "tool_result_ok": false}}"#,
    );
    let shop = Shop::new(&script, POLICY, |_| Err("no pens left".into()));
    let outcome = shop.run().await.unwrap();
    assert!(
        matches!(&outcome, StepOutcome::Complete { final_output, .. } if final_output == "Sold out."),
        "{outcome:?}"
    );
    assert_eq!(shop.orders().len(), 1);
}

#[tokio::test]
async fn a_lost_call_asks_a_person_and_is_made_again_only_when_told_to() {
    let shop = Shop::new(SCRIPT, POLICY, |calls| match calls.len() {
        1 => Err(LocalFailure::Unknown("the line went dead".into())),
        _ => Ok(json!({"order": 2})),
    });
    for _ in 0..2 {
        let outcome = shop.run().await.unwrap();
        assert!(matches!(outcome, StepOutcome::Waiting { .. }), "{outcome:?}");
    }
    assert_eq!(shop.orders().len(), 1, "asking again does not send again");
    let StepOutcome::Waiting { question } = shop.run().await.unwrap() else { panic!("still waiting") };
    shop.answer(&question, Choice::Execute).await;
    let outcome = shop.run().await.unwrap();
    assert!(matches!(outcome, StepOutcome::Complete { .. }), "{outcome:?}");
    assert_eq!((shop.orders().len(), keys(&shop.orders()).len(), shop.requests()), (2, 1, 3));
}

#[tokio::test]
async fn a_lost_call_of_a_tool_that_takes_keys_needs_nobody() {
    let shop = Shop::new(SCRIPT, KEYED, |calls| match calls.len() {
        1 => Err(LocalFailure::Unknown("the line went dead".into())),
        _ => Ok(json!({"order": 2})),
    });
    let outcome = shop.run().await.unwrap();
    assert!(matches!(outcome, StepOutcome::Complete { .. }), "{outcome:?}");
    assert_eq!((shop.orders().len(), keys(&shop.orders()).len()), (2, 1));
}

#[tokio::test]
async fn a_tool_that_panics_leaves_its_call_in_doubt_and_the_run_alive() {
    let shop = Shop::new(SCRIPT, POLICY, |calls| panic!("out of paper after {}", calls.len()));
    let StepOutcome::Waiting { question } = shop.run().await.unwrap() else { panic!("a panic is a doubt") };
    assert_eq!(question.call_id, Some(order(&shop).await.call_id));
    let attempts = format!("{:?}", shop.records().await.attempts);
    assert!(attempts.contains("the tool panicked: out of paper after 1"), "{attempts}");
    assert_eq!(shop.orders().len(), 1);
}

#[tokio::test]
async fn a_timeout_of_a_policy_leaves_the_call_in_doubt() {
    let script = SCRIPT.replace("place_order", "wait_for_ever");
    let policy = KEYED.replace("place_order", "wait_for_ever").replace("key_channel = \"meta\"", "timeout = \"3s\"");
    let shop = Shop::with_tools(&script, &policy, done, |tools, _| {
        tools.with(spec("wait_for_ever", &json!({})), |_: LocalCall| std::future::pending())
    });
    let StepOutcome::Waiting { .. } = shop.run().await.unwrap() else { panic!("nobody knows whether it happened") };
    let attempts = format!("{:?}", shop.records().await.attempts);
    assert!(attempts.contains("it did not answer within 3s"), "{attempts}");
}

/// `place_order` leaves its mark, and `list_orders`, a tool in the same process, is asked whether it is there.
#[tokio::test]
async fn a_probe_asks_a_tool_in_the_same_process() {
    let policy = r#"
[[rule]]
id = "orders"
server = "shop"
name = "place_order"
side_effect_class = "external"
on_unknown = "probe"
horizon = "1s"
marker = { argument = "article", append = " ref {key}" }
[rule.probe]
tool = "list_orders"
found = { items = "orders", contains = "{key}" }
absent = { complete = { field = "more", equals = false } }
settle = "1s"
"#;
    for (happened, sent) in [(true, 1), (false, 2)] {
        let lost: Answer = |calls| match calls.len() {
            1 => Err(LocalFailure::Unknown("the line went dead".into())),
            _ => Ok(json!({"order": 2})),
        };
        let asked = Orders::default();
        let log = asked.clone();
        let shop = Shop::with_tools(SCRIPT, policy, lost, move |tools, orders| {
            tools.with(spec("list_orders", &json!({})), move |call: LocalCall| {
                log.lock().unwrap().push(call);
                let orders = orders.lock().unwrap();
                let kept = orders.iter().filter(|_| happened).map(|order| order.text("article"));
                std::future::ready(Ok(json!({"orders": kept.collect::<Vec<_>>(), "more": false})))
            })
        });
        let outcome = shop.run().await.unwrap();
        assert!(matches!(outcome, StepOutcome::Complete { .. }), "{happened}: {outcome:?}");
        assert_eq!((shop.orders().len(), keys(&shop.orders()).len()), (sent, 1), "{happened}");
        let asked = asked.lock().unwrap();
        assert!(!asked.is_empty() && asked.iter().all(|call| call.permitted.is_none()), "{happened}: {asked:?}");
    }
}

#[tokio::test]
async fn a_tool_that_cannot_take_a_key_does_not_start_when_keys_are_enforced() {
    let mut shop = Shop::new(SCRIPT, POLICY, done);
    shop.step.enforce_idempotency = true;
    for _ in 0..2 {
        let error = shop.run().await.unwrap_err();
        let StepError::Tools(source) = &error else { panic!("{error}") };
        assert!(source.to_string().contains("mcp__shop__place_order"), "{source}");
    }
    assert_eq!((shop.requests(), shop.orders().len()), (0, 0));
    // The run is stopped, not lost: with a policy that names the channel it goes on.
    let mended = Shop::new(SCRIPT, KEYED, done);
    shop.step.agent.classifier = mended.step.agent.classifier.clone();
    let outcome = shop.run().await.unwrap();
    assert!(matches!(outcome, StepOutcome::Complete { .. }), "{outcome:?}");
    assert_eq!(shop.orders().len(), 1);
}

#[tokio::test]
async fn a_key_that_would_have_to_travel_in_a_header_keeps_the_call_from_being_made() {
    let header = KEYED.replace("\"meta\"", "{ header = \"Idempotency-Key\" }");
    let script = SCRIPT.replace("Ordered.", "Not ordered.");
    let shop = Shop::new(&script, &header, done);
    let outcome = shop.run().await.unwrap();
    assert_eq!(shop.orders(), [], "{outcome:?}");
    let order = order(&shop).await;
    assert!(order.error_detail.is_some_and(|detail| detail.contains("Idempotency-Key")));
}
