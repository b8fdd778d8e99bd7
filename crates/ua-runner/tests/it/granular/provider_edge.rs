//! A provider that stumbles: requests that are too long, outages, and replies that are no answers.

use std::sync::atomic::Ordering;

use serde_json::json;
use ua_core::RunStop;
use ua_dispatch::LocalCall;
use ua_runner::{RunEvent, StepOutcome};
use ua_store::{Answer, Choice, RequestStatus};

use super::shop::{Overflow, POLICY, SCRIPT, Shop, done, spec};

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
        } else if let RunEvent::HistoryCut { turn, .. } = event {
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

/// A shop whose model reads many pages, of which it takes two at a time, and says so in its way.
fn reads_many_pages(overflow: Overflow) -> Shop {
    let page = json!({"tools": [{"name": "mcp__shop__list_page", "input": {}}]});
    let mut turns = vec![page; 9];
    turns.push(json!({"text": "Read."}));
    let script = json!({ "turns": turns }).to_string();
    let shop = Shop::with_tools(&script, POLICY, done, |tools, _| {
        let page = "stock and more stock. ".repeat(200);
        tools.with(spec("list_page", &json!({})), move |_: LocalCall| {
            let page = page.clone();
            async move { Ok(json!({ "page": page })) }
        })
    });
    shop.model.context.store(4_000, Ordering::SeqCst);
    *shop.model.overflow.lock().unwrap() = overflow;
    shop
}

/// A server that cuts what it is sent to its context, counts what is left, and says nothing of it.
#[tokio::test]
async fn a_server_that_reads_only_the_end_of_a_request_is_seen_and_what_it_reads_is_its_context() {
    let mut shop = reads_many_pages(Overflow::Said);
    shop.model.context.store(0, Ordering::SeqCst);
    shop.model.reads.store(4_096, Ordering::SeqCst);
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = told.clone();
    shop.host.watcher = std::sync::Arc::new(move |event| {
        if let RunEvent::ReadsOnly { tokens, is_cut, .. } = event {
            kept.lock().unwrap().push((tokens, is_cut));
        }
    });
    let outcome = shop.run().await.unwrap();
    let StepOutcome::Complete { turns, .. } = &outcome else { panic!("{outcome:?}") };
    assert_eq!(*turns, 10);
    assert_eq!(*told.lock().unwrap(), [(4_096, true)]);
    assert!(shop.model.last_estimate.load(Ordering::SeqCst) < 4_096, "the rest is left out here, and the job is not");
}

/// Wherever another process takes over, in front of the request that shows it or behind it, it is seen no later than by one process, and nothing is
/// sent once more that is not read.
#[tokio::test]
async fn what_a_server_was_seen_to_read_is_found_again_by_the_next_process() {
    for leaves_after in 5..10 {
        let mut shop = reads_many_pages(Overflow::Said);
        shop.model.context.store(0, Ordering::SeqCst);
        shop.model.reads.store(4_096, Ordering::SeqCst);
        shop.leave_after_turn(leaves_after).await;
        let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let kept = told.clone();
        shop.host.watcher = std::sync::Arc::new(move |event| {
            if let RunEvent::ReadsOnly { tokens, is_cut, .. } = event {
                kept.lock().unwrap().push((tokens, is_cut));
            }
        });
        let outcome = shop.run().await.unwrap();
        assert!(matches!(&outcome, StepOutcome::Complete { .. }), "{leaves_after}: {outcome:?}");
        assert_eq!(*told.lock().unwrap(), [(4_096, true)], "{leaves_after}");
        let records = shop.records().await;
        let answered = records.requests.iter().filter(|request| request.status == RequestStatus::Actual);
        let estimates: Vec<u64> = answered.map(ua_store::RequestRecord::plain_tokens).collect();
        assert!(
            estimates.len() == 10 && estimates[8..].iter().all(|tokens| *tokens < 4_096),
            "{leaves_after}: {estimates:?}"
        );
    }
}

/// In whichever way a provider shows that a request was too long, the history is cut and the run goes on.
#[tokio::test]
async fn a_run_does_not_die_of_its_history_however_its_provider_says_so() {
    for overflow in [
        Overflow::Said,
        Overflow::Unsaid("Bad Request"),
        Overflow::Unsaid("\u{8f93}\u{5165} 4100 > 4000"),
        Overflow::FullContext,
        Overflow::NoRoom,
    ] {
        let shop = reads_many_pages(overflow);
        let outcome = shop.run().await.unwrap();
        assert!(
            matches!(&outcome, StepOutcome::Complete { final_output, .. } if final_output == "Read."),
            "{overflow:?}: {outcome:?}"
        );
        assert!(shop.requests() <= 18, "{overflow:?}: {}", shop.requests());
    }
}

/// A refusal that has nothing to do with the length is guessed about twice, costs nothing, and is told in the provider's words.
#[tokio::test]
async fn another_refusal_of_a_large_request_is_told_after_two_guesses() {
    let shop = reads_many_pages(Overflow::Unsaid("your account may not say `stock`"));
    // From the fourth request on everything is refused, however little of the history there is.
    shop.model.refuses_all_after.store(3, Ordering::SeqCst);
    let outcome = shop.run().await.unwrap();
    let StepOutcome::Stopped { detail, .. } = &outcome else { panic!("{outcome:?}") };
    assert!(detail.contains("your account may not say `stock`"), "{detail}");
    assert!((2..=3).contains(&(shop.requests() - 3)), "{}", shop.requests());
    let charged = shop.records().await.requests.iter().filter(|request| request.usage.total() > 0).count();
    assert_eq!(charged, 3, "what is refused is free");
}

/// Turns that are by themselves longer than what the model takes: in one result, in several, in arguments and in a text of its own.
fn turns_that_are_too_long() -> [serde_json::Value; 4] {
    let read = json!({"name": "mcp__shop__list_page", "input": {}});
    let order = |article: &str| json!({"name": "mcp__shop__place_order", "input": {"article": article}});
    [
        json!({"tools": [read]}),
        json!({"tools": [read, read, read, read]}),
        json!({"tools": [order(&"a long name ".repeat(6_000))]}),
        json!({"text": "many words ".repeat(6_000), "tools": [order("pen")]}),
    ]
}

/// A shop whose first turn is this one; its model takes 4000 tokens.
fn begins_with(turn: &serde_json::Value, overflow: Overflow) -> Shop {
    let script = json!({"turns": [
        {"tools": [{"name": "mcp__shop__list_stock", "input": {}}]},
        turn,
        {"tools": [{"name": "mcp__shop__list_stock", "input": {}}]},
        {"text": "Done."},
    ]});
    let shop = Shop::with_tools(&script.to_string(), POLICY, done, |tools, _| {
        let page = "stock and \"more\" stock.\n".repeat(7_000);
        tools.with(spec("list_page", &json!({})), move |_: LocalCall| {
            let page = page.clone();
            async move { Ok(json!({ "page": page })) }
        })
    });
    shop.model.context.store(4_000, Ordering::SeqCst);
    *shop.model.overflow.lock().unwrap() = overflow;
    shop
}

/// However long the newest turn is, and in whichever way a provider refuses it, the run lives.
#[tokio::test]
async fn a_run_does_not_die_of_its_newest_turn() {
    for overflow in [Overflow::Said, Overflow::Unsaid("Bad Request")] {
        for (number, turn) in turns_that_are_too_long().iter().enumerate() {
            let mut shop = begins_with(turn, overflow);
            let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
            let kept = told.clone();
            shop.host.watcher = std::sync::Arc::new(move |event| {
                if let RunEvent::NewestShortened { turn } = event {
                    kept.lock().unwrap().push(turn);
                }
            });
            let outcome = shop.run().await.unwrap();
            assert!(
                matches!(&outcome, StepOutcome::Complete { final_output, .. } if final_output == "Done."),
                "{overflow:?}, {number}: {outcome:?}"
            );
            assert!(shop.requests() <= 16, "{overflow:?}, {number}: {}", shop.requests());
            let told = told.lock().unwrap().clone();
            assert_eq!(told, [3], "{overflow:?}, {number}: it is told once, of the turn that was too long");
        }
    }
}

/// Where the model's context is known, nothing that is too long is sent, and every process sends the same.
#[tokio::test]
async fn what_a_model_takes_is_known_before_anything_is_sent() {
    for (number, turn) in turns_that_are_too_long().iter().enumerate() {
        let mut digests = Vec::new();
        for leaves in [false, true] {
            let mut shop = begins_with(turn, Overflow::Said);
            shop.step.agent.history_tokens = Some(3_000);
            if leaves {
                shop.leave_after_turn(2).await;
            }
            let outcome = shop.run().await.unwrap();
            assert!(matches!(&outcome, StepOutcome::Complete { .. }), "{number}: {outcome:?}");
            let records = shop.records().await;
            let refused = records.requests.iter().filter(|request| request.status != RequestStatus::Actual).count();
            assert_eq!((refused, shop.requests()), (0, 4), "{number}");
            // What is stored stays whole.
            let stored: u64 = records.messages.iter().map(|record| ua_store::message_bytes(&record.message)).sum();
            assert!(stored > 60_000, "{number}: {stored}");
            digests.push(records.requests.iter().map(|request| request.request_sha256).collect::<Vec<_>>());
        }
        assert_eq!(digests[0][..2], digests[1][..2], "{number}");
    }
}

/// What cannot be cut is not sent again: the job alone is too long.
#[tokio::test]
async fn a_job_that_is_too_long_by_itself_is_refused_once() {
    for overflow in [Overflow::Said, Overflow::Unsaid("too much: 1500 > 10")] {
        let mut shop = reads_many_pages(overflow);
        shop.step.input = "stock and more stock. ".repeat(300).into();
        shop.model.context.store(10, Ordering::SeqCst);
        let outcome = shop.run().await.unwrap();
        assert!(matches!(&outcome, StepOutcome::Stopped { .. }), "{overflow:?}: {outcome:?}");
        assert_eq!(shop.requests(), 1, "{overflow:?}");
    }
}

#[tokio::test]
async fn an_outage_that_closes_connections_is_waited_for() {
    let shop = Shop::new(SCRIPT, POLICY, done);
    shop.model.closed.store(12, Ordering::SeqCst);
    let outcome = shop.run().await.unwrap();
    assert!(matches!(outcome, StepOutcome::Complete { turns: 3, .. }), "{outcome:?}");
    assert_eq!((shop.requests(), shop.orders().len()), (15, 1));
    // Nobody knows whether they were billed: each is charged as estimated, as input.
    let records = shop.records().await;
    let lost = records.requests.iter().filter(|request| request.status == RequestStatus::Baseline);
    assert_eq!(lost.clone().count(), 12);
    assert!(lost.into_iter().all(|request| request.usage.input_tokens == request.estimated_tokens));
}

/// A person's words reach the model, once, over any number of processes.
#[tokio::test]
async fn what_a_person_says_about_a_run_reaches_the_model() {
    let refused = json!({"text": "I cannot.", "stop_reason": "refusal"});
    let told = json!({"text": "Ordered.", "expect": {"contains": ["Use the blue one."]}});
    let script = json!({"turns": [refused, refused, told]}).to_string();
    let shop = Shop::new(&script, POLICY, done);
    let StepOutcome::Waiting { question } = shop.run().await.unwrap() else { panic!("nobody is asked") };
    shop.answer_with(&question, Answer { text: Some("Use the blue one.".into()), ..Answer::new(Choice::Continue) })
        .await;
    let outcome = shop.run().await.unwrap();
    assert!(matches!(&outcome, StepOutcome::Complete { .. }), "{outcome:?}");
    let records = shop.records().await;
    let told = records.messages.iter().filter(|message| message.message.text().contains("Use the blue one.")).count();
    assert_eq!(told, 1);
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

/// An outage that lasts longer than the run's time ends it before that is used up, with what would have it waited for longer.
#[tokio::test]
async fn an_outage_is_not_waited_for_beyond_the_runs_time() {
    let mut shop = Shop::new(SCRIPT, POLICY, done);
    shop.model.outage.store(200, Ordering::SeqCst);
    shop.step.budgets.max_wallclock_minutes = 5;
    let outcome = shop.run().await.unwrap();
    let StepOutcome::Stopped { reason: RunStop::Provider, detail } = &outcome else { panic!("{outcome:?}") };
    let run = shop.records().await.run;
    assert!(run.held_millis > 150_000 && run.held_millis < 300_000, "{} ms", run.held_millis);
    assert!(detail.contains("or have it wait: `Runs::set_budget`, \"max_wallclock_minutes\" "), "{detail}");
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

/// A reply is as long as its model writes, where nobody said how long it may be: the run does not end by a length of ours.
#[tokio::test]
async fn a_reply_is_asked_for_no_longer_than_its_model_writes() {
    for longest in [100, 1_024, 4_096, 8_191] {
        let mut shop = Shop::new(SCRIPT, POLICY, done);
        shop.model.longest_reply.store(longest, Ordering::SeqCst);
        let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let kept = told.clone();
        shop.host.watcher = std::sync::Arc::new(move |event| {
            if let RunEvent::ReplyShortened { turn, tokens, .. } = event {
                kept.lock().unwrap().push((turn, tokens));
            }
        });
        let outcome = shop.run().await.unwrap();
        assert!(matches!(outcome, StepOutcome::Complete { turns: 3, .. }), "{longest}: {outcome:?}");
        assert_eq!((shop.requests(), shop.orders().len()), (4, 1), "what is refused once is asked for once");
        assert_eq!(*told.lock().unwrap(), [(1, longest)]);
        let free = shop.records().await.requests.iter().filter(|request| request.usage.total() == 0).count();
        assert_eq!(free, 1, "what was refused is free");
    }
}
