//! What a program finds out about its runs without the crates below: input, budgets, calls, answers, questions, use.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use ua_sdk::prelude::*;
use ua_sdk::types::{CallStatus, RunStore as _};
use ua_sdk::{QuestionKind, RunId};

use crate::{Invoice, invoices, model, sending};

/// A step that stops after its first turn, without an input: what it is asked for is known when it is run.
fn without_input(sent: &Arc<AtomicUsize>) -> Step {
    invoices(&sending(), sent).max_turns(1).input(Value::Null)
}

/// A service has no second chance to make an input that depends on when it is made.
#[tokio::test]
async fn a_run_is_resumed_with_the_input_that_it_was_begun_with() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let step = without_input(&sent);
    let inputs = [
        json!("Orders open today: A-17."),
        json!({"orders": ["A-17"], "day": 3}),
        json!({"input": "A-17"}),
        json!({"input": {"order": "A-17"}}),
        json!(["A-17"]),
        json!(17),
        json!(true),
    ];
    for (number, input) in inputs.into_iter().enumerate() {
        let id = format!("run-{number}");
        let begun = runs.run(&step.clone().input(input.clone()), &id).await.unwrap();
        assert!(matches!(begun, Outcome::Stopped { reason: RunStop::Budget, .. }), "{input}: {begun:?}");
        assert_eq!(runs.input(&id).await.unwrap(), input);
        let tomorrow = step.clone().input("Orders open today: A-18.");
        let refused = runs.run(&tomorrow, &id).await.unwrap_err();
        assert!(refused.to_string().contains("`Runs::resume`"), "{refused}");
        runs.raise_budget(&id, "max_turns", 4).await.unwrap();
        // Whatever the step says, and where it says nothing.
        for step in [&tomorrow, &step] {
            let outcome = runs.resume(step, &id).await.unwrap();
            assert!(matches!(outcome, Outcome::Complete { turns: 2, .. }), "{input}: {outcome:?}");
        }
    }
    assert_eq!(sent.load(Ordering::SeqCst), 7, "each of seven runs sent once");
    // What comes to the same definition in two ways comes back in one of them, and is taken.
    for (input, comes_back) in [(json!({"input": 5}), json!(5)), (json!({}), json!("invoices"))] {
        let id = format!("same-{comes_back}").replace('"', "");
        let _stopped = runs.run(&step.clone().input(input), &id).await.unwrap();
        assert_eq!(runs.input(&id).await.unwrap(), comes_back);
        assert!(matches!(runs.resume(&step, &id).await.unwrap(), Outcome::Stopped { .. }));
    }
    let missing = runs.resume(&step, "never").await.unwrap_err();
    assert!(matches!(missing, Error::NoSuchRun { .. }), "{missing}");
    assert!(runs.get("never").await.is_err(), "a run is resumed, and never begun");
}

#[tokio::test]
async fn the_loop_that_resumes_what_is_unfinished_needs_no_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let step = without_input(&sent);
    for day in 1..=3 {
        let _stopped = runs.run(&step.clone().input(format!("Day {day}.")), &format!("day-{day}")).await.unwrap();
    }
    for run in runs.unfinished().await.unwrap() {
        let id = run.run_id.as_str();
        runs.raise_budget(id, "max_turns", 1).await.unwrap();
        assert!(matches!(runs.resume(&step, id).await.unwrap(), Outcome::Complete { .. }), "{id}");
    }
    assert!(runs.unfinished().await.unwrap().is_empty());
    assert_eq!(sent.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_budget_is_named_by_the_outcome_and_raised_over_what_counts() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let step = invoices(&sending(), &sent).max_turns(1);
    let stopped = runs.run(&step, "november").await.unwrap();
    let reached = stopped.budgets_reached();
    let [reached] = reached.as_slice() else { panic!("{stopped:?}: {reached:?}") };
    assert_eq!((reached.budget.as_str(), reached.limit.as_str(), reached.missing()), ("max_turns", "1", 1));
    assert!(stopped.to_string().contains("`Runs::raise_budget`"), "{stopped}");

    let before = runs.budgets("november").await.unwrap();
    assert_eq!((before.max_turns, before.max_tool_calls, before.max_tokens), (Some(1), 250, None));
    for (budget, more, told) in [
        ("max_turn", json!(1), "there is no budget"),
        ("max_tokens", json!(1), "has no limit"),
        ("max_turns", json!(-1), "as a number"),
        ("max_turns", json!("many"), "as a number"),
        ("max_turns", json!(u64::MAX), "too large"),
        ("max_turns", json!(u32::MAX), "`max_turns` cannot be"),
    ] {
        let refused = runs.raise_budget("november", budget, more.clone()).await.unwrap_err();
        assert!(matches!(&refused, Error::Refused(why) if why.contains(told)), "{budget} {more}: {refused}");
    }
    assert_eq!(runs.budgets("november").await.unwrap(), before, "what is refused changes nothing");
    runs.set_budget("november", "max_turns", 3).await.unwrap();
    let now = runs.raise_budget("november", "max_turns", 4).await.unwrap();
    assert_eq!((now.max_turns, runs.budgets("november").await.unwrap()), (Some(7), now.clone()));
    runs.set_budget("november", "max_tokens", 100_000).await.unwrap();
    assert_eq!(runs.raise_budget("november", "max_tokens", 50).await.unwrap().max_tokens, Some(100_050));

    let outcome = runs.run(&step, "november").await.unwrap();
    assert!(matches!(outcome, Outcome::Complete { .. }) && outcome.budgets_reached().is_empty(), "{outcome:?}");
    let late = runs.raise_budget("november", "max_turns", 1).await.unwrap_err();
    assert!(matches!(late, Error::Refused(_)), "{late}");
}

#[tokio::test]
async fn calls_answers_questions_and_use_are_found_wherever_a_run_stands() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    // Large enough to be kept apart.
    let page = "a word of the page ".repeat(5_000);
    let shown = page.clone();
    let look = tool("look", "Looks.", async move |_: Call, (): ()| Ok::<_, Failure>(shown)).reads();
    let lost = tool("send_invoice", "Sends an invoice.", async |_: Call, _: Invoice| {
        Err::<(), _>(Failure::unknown("the line is dead"))
    });
    let turns = json!([
        {"tools": [{"name": "mcp__program__look", "input": {}}]},
        {"tools": [{"name": "mcp__program__send_invoice", "input": {"order": "A-17", "cents": 900}}]},
        {"text": "Sent."},
    ]);
    let step = Step::new("invoices").model(model(&turns)).tool(look).tool(lost).input("Send the invoice.");
    let Outcome::Waiting { question } = runs.run(&step, "november").await.unwrap() else { panic!() };
    let _waiting = runs.run(&step, "december").await.unwrap();

    // From the question to its call and what is known of it.
    let asked = question.call_id.as_ref().unwrap().as_str();
    let call = runs.call(asked).await.unwrap();
    assert_eq!((call.status, call.arguments["order"].as_str()), (CallStatus::Unknown, Some("A-17")));
    let attempts = runs.attempts(asked).await.unwrap();
    assert_eq!(attempts.len(), 1);
    assert!(runs.receipt(asked).await.unwrap().is_none(), "it has no answer");
    let calls = runs.calls("november").await.unwrap();
    let tools: Vec<&str> = calls.iter().map(|call| call.name.tool.as_str()).collect();
    assert_eq!((tools, &calls[1]), (vec!["look", "send_invoice"], &call));
    let receipt = runs.receipt(calls[0].call_id.as_str()).await.unwrap().unwrap();
    let content = receipt.settlement.as_ref().and_then(|settlement| settlement.content.as_ref()).unwrap();
    assert!(content.text.contains(&page), "what its model reads is whole");
    assert!(json!(receipt.raw).to_string().contains(&page), "and so is the reply");
    assert!(receipt.lifted.is_empty());

    // A question by its id, and those of all runs.
    let found = runs.question(question.question_id.as_str()).await.unwrap();
    assert_eq!((found.kind, &found), (QuestionKind::UnknownOutcome, &*question));
    let all = runs.all_questions().await.unwrap();
    let of: Vec<&str> = all.iter().map(|question| question.run_id.as_str()).collect();
    assert_eq!(of, ["november", "december"]);
    assert_eq!(all[0], *question);

    // What it used, before and after its end.
    let used = runs.usage("november").await.unwrap();
    assert_eq!(used.requests.values().sum::<u32>(), 2, "{used:?}");
    let records = runs.records("november").await.unwrap();
    assert_eq!(
        (&records.calls, &records.run),
        (&runs.calls("november").await.unwrap(), &runs.get("november").await.unwrap())
    );
    runs.answer(&found, Choice::Skip).await.unwrap();
    runs.cancel("november", "no more").await.unwrap();
    assert_eq!(runs.usage("november").await.unwrap(), used);
    assert_eq!(runs.all_questions().await.unwrap().len(), 1);
    assert!(runs.question(question.question_id.as_str()).await.unwrap().answer.is_some());

    for refused in [
        runs.call("call_none").await.unwrap_err(),
        runs.call("no id!").await.unwrap_err(),
        runs.receipt("call_none").await.unwrap_err(),
        runs.question("q_none").await.unwrap_err(),
    ] {
        let told = refused.to_string();
        assert!(matches!(refused, Error::Refused(_)) && told.contains("there is no"), "{told}");
    }
    assert!(matches!(runs.calls("never").await.unwrap_err(), Error::NoSuchRun { .. }));
    assert!(matches!(runs.usage("never").await.unwrap_err(), Error::NoSuchRun { .. }));
    // For the rest there is the store, whose words are among `ua_sdk::types`.
    assert!(runs.store().overrides(&RunId::parse("november").unwrap()).await.unwrap().is_empty());
}
