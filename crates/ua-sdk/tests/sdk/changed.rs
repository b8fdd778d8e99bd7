//! A program that changed since its run began: what may be accepted, what is a fork, and what a refusal leaves behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::sync::Notify;
use ua_sdk::crates::ua_store::{LedgerStore as _, OverrideKind, QuestionStatus, RunStore as _};
use ua_sdk::prelude::*;
use ua_sdk::{Component, Error, ModelFacts, PriceTable, RunStop, Step, Tool};

use crate::{Invoice, invoices, model, sending};

/// The components that may be accepted, and the change of each.
const CHANGES: [Component; 4] = [Component::Tools, Component::Policy, Component::Pricing, Component::BlobThreshold];

fn send(description: &str) -> Tool {
    tool("send_invoice", description, async |_: Call, invoice: Invoice| Ok::<_, Failure>(invoice.order))
        .external("invoice.send")
        .keyed()
}

fn step_of(tools: impl IntoIterator<Item = Tool>) -> Step {
    let step = Step::new("invoices").model(model(&sending())).input("Send the invoice.").max_turns(1);
    tools.into_iter().fold(step, Step::tool)
}

fn changed(changes: &[Component]) -> Step {
    let description = if changes.contains(&Component::Tools) { "Sends it by post." } else { "Sends it." };
    let mut step = step_of([send(description)]);
    if changes.contains(&Component::Policy) {
        step = step.policy("[[rule]]\nid = \"later\"\nname = \"other\"\nside_effect_class = \"read_only\"\n");
    }
    if changes.contains(&Component::Pricing) {
        step = step.prices(PriceTable::parse("f", "[providers.p.m]\ninput = 2\noutput = 10\n").unwrap());
    }
    if changes.contains(&Component::BlobThreshold) {
        step = step.blob_threshold_bytes(30_000);
    }
    step
}

fn subsets(of: &[Component]) -> Vec<Vec<Component>> {
    let chosen = |mask: usize| of.iter().enumerate().filter(move |(bit, _)| mask >> bit & 1 == 1).map(|(_, of)| *of);
    (0..1 << of.len()).map(|mask| chosen(mask).collect()).collect()
}

/// Whatever changed, and whichever part of it is accepted.
#[tokio::test]
async fn a_refused_acceptance_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    for (number, changes) in subsets(&CHANGES).into_iter().enumerate().skip(1) {
        let (back, taken) = (format!("back-{number}"), format!("taken-{number}"));
        for id in [&back, &taken] {
            let _stopped = runs.run(&changed(&[]), id).await.unwrap();
            runs.set_budget(id, "max_turns", 5).await.unwrap();
        }
        let before = runs.store().overrides(&runs.get(&back).await.unwrap().run_id).await.unwrap();
        for accepted in subsets(&changes).into_iter().filter(|accepted| *accepted != changes) {
            let refused = runs.run_accepting(&changed(&changes), &back, &accepted).await;
            let is_refused = match &refused {
                Ok(Outcome::Stopped { reason, .. }) => *reason == RunStop::Fingerprint,
                Err(Error::AnotherDefinition { .. }) => true,
                _ => false,
            };
            assert!(is_refused, "{changes:?} with {accepted:?} accepted: {refused:?}");
            let after = runs.store().overrides(&runs.get(&back).await.unwrap().run_id).await.unwrap();
            assert_eq!(after, before, "{changes:?} with {accepted:?} accepted");
        }
        let outcome = runs.run(&changed(&[]), &back).await.unwrap();
        assert!(matches!(outcome, Outcome::Complete { .. }), "put back as it was: {outcome:?}");
        let outcome = runs.run_accepting(&changed(&changes), &taken, &changes).await.unwrap();
        assert!(matches!(outcome, Outcome::Complete { .. }), "{changes:?} all accepted: {outcome:?}");
        let rows = runs.store().overrides(&runs.get(&taken).await.unwrap().run_id).await.unwrap();
        assert_eq!(rows.iter().filter(|row| row.kind == OverrideKind::Pin).count(), changes.len());
    }
}

/// A program that says something else about its tools changed its tools, and no policy.
#[tokio::test]
async fn what_a_program_says_of_its_tools_is_accepted_as_its_tools() {
    let plain = || tool("send_invoice", "Sends it.", async |_: Call, invoice: Invoice| Ok::<_, Failure>(invoice.order));
    let look = || tool("look", "Looks.", async |_: Call, (): ()| Ok::<_, Failure>("nothing")).reads();
    let changes: [(&str, Vec<Tool>, &str); 7] = [
        ("timeout", vec![send("Sends it.").timeout(Duration::from_secs(9)), look()], "timeout not set → timeout 9 s"),
        ("kind", vec![plain().external("invoice.issue").keyed(), look()], "invoice.issue"),
        ("key", vec![plain().external("invoice.send"), look()], "key_channel"),
        ("class", vec![plain().local(), look()], "side_effect_class"),
        ("approval", vec![send("Sends it.").approved_by_a_person(), look()], "approval"),
        ("removed", vec![send("Sends it.")], "look"),
        ("none", vec![], "gone"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    for (id, tools, told) in changes {
        let _stopped = runs.run(&step_of([send("Sends it."), look()]), id).await.unwrap();
        runs.set_budget(id, "max_turns", 5).await.unwrap();
        let changed = step_of(tools);
        let stopped = runs.run(&changed, id).await.unwrap().to_string();
        assert!(stopped.contains(told) && stopped.contains("mcp__program__"), "{id}: {stopped}");
        assert!(stopped.contains("with Component::Tools; ") && !stopped.contains("digest"), "{id}: {stopped}");
        let outcome = runs.run_accepting(&changed, id, &[Component::Tools]).await.unwrap();
        assert!(matches!(outcome, Outcome::Complete { .. }), "{id}: {outcome:?}");
    }
    // One more is no difference, and is offered once it is accepted.
    let _stopped = runs.run(&step_of([send("Sends it.")]), "added").await.unwrap();
    runs.set_budget("added", "max_turns", 5).await.unwrap();
    let more = step_of([send("Sends it."), look()]);
    let outcome = runs.run_accepting(&more, "added", &[Component::Tools]).await.unwrap();
    assert!(matches!(outcome, Outcome::Complete { .. }), "{outcome:?}");
}

/// A tool that hangs in its first call, which is lost there, and counts its calls.
struct Shop {
    tries: Arc<AtomicUsize>,
    reached: Arc<Notify>,
    hangs: Arc<AtomicBool>,
}

impl Shop {
    fn new(hangs: bool) -> Self {
        Self { tries: Arc::default(), reached: Arc::default(), hangs: Arc::new(AtomicBool::new(hangs)) }
    }

    fn tool(&self) -> Tool {
        let (tries, reached, hangs) = (self.tries.clone(), self.reached.clone(), self.hangs.clone());
        tool("send_invoice", "Sends it.", async move |_: Call, invoice: Invoice| {
            tries.fetch_add(1, Ordering::SeqCst);
            if hangs.swap(false, Ordering::SeqCst) {
                reached.notify_one();
                std::future::pending::<()>().await;
            }
            Ok::<_, Failure>(invoice.order)
        })
    }

    fn tries(&self) -> usize {
        self.tries.load(Ordering::SeqCst)
    }
}

fn keyed(send: Tool) -> Tool {
    send.external("invoice.send").keyed()
}

fn unkeyed(send: Tool) -> Tool {
    send.external("invoice.send")
}

fn renamed(send: Tool) -> Tool {
    send.external("bill.send").keyed()
}

fn approved(send: Tool) -> Tool {
    keyed(send).approved_by_a_person()
}

type Declare = fn(Tool) -> Tool;

#[derive(Deserialize, JsonSchema)]
struct Bill {
    number: u32,
}

/// A call is lost in its tool, and the next program reads other arguments: one more attempt says so, and a person is asked.
#[tokio::test]
async fn a_lost_call_that_the_changed_tool_cannot_read_is_tried_once_and_asked_about() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let shop = Shop::new(true);
    let first = step_of([keyed(shop.tool())]).max_turns(5);
    tokio::select! {
        outcome = runs.run(&first, "november") => panic!("{outcome:?}"),
        () = shop.reached.notified() => {}
    }
    let other = tool("send_invoice", "Sends it.", async |_: Call, bill: Bill| Ok::<_, Failure>(bill.number));
    let changed = step_of([keyed(other)]).max_turns(5);
    let outcome = runs.run_accepting(&changed, "november", &[Component::Tools]).await.unwrap();
    assert!(matches!(outcome, Outcome::Waiting { .. }), "{outcome:?}");
    let call = runs.store().calls(&runs.get("november").await.unwrap().run_id, None).await.unwrap().remove(0);
    assert_eq!((call.attempt, shop.tries()), (2, 1));
    let asked = runs.questions("november").await.unwrap().remove(0);
    assert!(asked.text.contains("cannot read these arguments: missing field `number`"), "{}", asked.text);
}

/// A call is lost in its tool, and the next program promises less of it: nobody but a person sends it again.
#[tokio::test]
async fn a_promise_that_was_taken_back_sends_nothing_again() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let (reads, local): (Declare, Declare) = (Tool::reads, Tool::local);
    let changes: [(&str, Declare, Declare, bool); 8] = [
        ("as-it-was", keyed, keyed, false),
        ("read-as-it-was", reads, reads, false),
        ("key", keyed, unkeyed, true),
        ("kind", keyed, renamed, true),
        ("approval", keyed, approved, true),
        ("read", reads, keyed, true),
        ("local", local, keyed, true),
        ("unkeyed", unkeyed, keyed, true),
    ];
    for (id, then, now, is_asked) in changes {
        let shop = Shop::new(true);
        let first = step_of([then(shop.tool())]).max_turns(5);
        tokio::select! {
            outcome = runs.run(&first, id) => panic!("{id}: {outcome:?}"),
            () = shop.reached.notified() => {}
        }
        let changed = step_of([now(shop.tool())]).max_turns(5);
        let outcome = runs.run_accepting(&changed, id, &[Component::Tools]).await.unwrap();
        if !is_asked {
            assert!(matches!(outcome, Outcome::Complete { .. }), "{id}: {outcome:?}");
            assert_eq!(shop.tries(), 2, "{id}: it is sent again by itself");
            continue;
        }
        let Outcome::Waiting { question } = outcome else { panic!("{id}: {outcome:?}") };
        assert_eq!(shop.tries(), 1, "{id}");
        runs.answer(&question, Answer::new(Choice::Happened).proof("invoice 4711")).await.unwrap();
        let outcome = runs.run(&changed, id).await.unwrap();
        assert!(matches!(outcome, Outcome::Complete { .. }), "{id}: {outcome:?}");
        assert_eq!(shop.tries(), 1, "{id}");
    }
}

/// A policy of the step that says of the tool that it takes the key.
const TAKES_KEYS: &str =
    "[[rule]]\nid = \"keys\"\nserver = \"program\"\nname = \"send_invoice\"\nkey_channel = \"meta\"\n";

fn by_policy(shop: &Shop) -> Step {
    step_of([unkeyed(shop.tool())]).policy(TAKES_KEYS)
}

/// A step, and what a wrong program makes of it.
struct Mistake {
    id: &'static str,
    right: fn(&Shop) -> Step,
    wrong: fn(&Shop) -> Step,
    changed: Component,
}

/// What lets a lost call be sent again by itself, and programs that would not have let it be.
const WRONG: [Mistake; 7] = [
    Mistake {
        id: "key",
        right: |shop| step_of([keyed(shop.tool())]),
        wrong: |shop| step_of([unkeyed(shop.tool())]),
        changed: Component::Tools,
    },
    Mistake {
        id: "kind",
        right: |shop| step_of([keyed(shop.tool())]),
        wrong: |shop| step_of([renamed(shop.tool())]),
        changed: Component::Tools,
    },
    Mistake {
        id: "approval",
        right: |shop| step_of([keyed(shop.tool())]),
        wrong: |shop| step_of([approved(shop.tool())]),
        changed: Component::Tools,
    },
    Mistake {
        id: "name",
        right: |shop| step_of([keyed(shop.tool())]),
        wrong: |_| {
            let other = tool("send_bill", "Sends it.", async |_: Call, bill: Invoice| Ok::<_, Failure>(bill.order));
            step_of([keyed(other)])
        },
        changed: Component::Tools,
    },
    Mistake {
        id: "read",
        right: |shop| step_of([shop.tool().reads()]),
        wrong: |shop| step_of([keyed(shop.tool())]),
        changed: Component::Tools,
    },
    Mistake {
        id: "local",
        right: |shop| step_of([shop.tool().local()]),
        wrong: |shop| step_of([keyed(shop.tool())]),
        changed: Component::Tools,
    },
    Mistake {
        id: "policy",
        right: by_policy,
        wrong: |shop| step_of([unkeyed(shop.tool())]),
        changed: Component::Policy,
    },
];

/// Runs the step until its call is lost in its tool.
async fn lost_in_its_tool(runs: &Runs, step: &Step, shop: &Shop, id: &str) {
    tokio::select! {
        outcome = runs.run(step, id) => panic!("{id}: {outcome:?}"),
        () = shop.reached.notified() => {}
    }
}

/// A call is lost in its tool, a wrong program is started once, which is refused, and the right one again: nothing was decided by the wrong one.
#[tokio::test]
async fn a_wrong_program_that_is_refused_decides_nothing_about_a_lost_call() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    for Mistake { id, right, wrong, .. } in WRONG {
        let shop = Shop::new(true);
        let step = right(&shop).max_turns(5);
        lost_in_its_tool(&runs, &step, &shop, id).await;
        let outcome = runs.run(&wrong(&shop).max_turns(5), id).await.unwrap();
        assert!(matches!(outcome, Outcome::Stopped { reason: RunStop::Fingerprint, .. }), "{id}: {outcome:?}");
        assert!(runs.questions(id).await.unwrap().is_empty(), "{id}");
        let outcome = runs.run(&step, id).await.unwrap();
        assert!(matches!(outcome, Outcome::Complete { .. }), "{id}: {outcome:?}");
        assert_eq!(shop.tries(), 2, "{id}: it is sent again by itself");
    }
    // What is a question whatever the setup is asked meanwhile, and stays as it was asked.
    let shop = Shop::new(true);
    let step = step_of([unkeyed(shop.tool())]).max_turns(5);
    lost_in_its_tool(&runs, &step, &shop, "unkeyed").await;
    let outcome = runs.run(&step_of([send("Sends it.")]).max_turns(5), "unkeyed").await.unwrap();
    assert!(outcome.to_string().contains("can be answered meanwhile"), "{outcome}");
    let asked = runs.questions("unkeyed").await.unwrap().remove(0);
    let Outcome::Waiting { question } = runs.run(&step, "unkeyed").await.unwrap() else { panic!("{asked:?}") };
    assert_eq!(question.question_id, asked.question_id);
    // An order that it be sent waits for the right program.
    runs.answer(&asked, Choice::Execute).await.unwrap();
    let _stopped = runs.run(&step_of([send("Sends it.")]).max_turns(5), "unkeyed").await.unwrap();
    assert_eq!((shop.tries(), runs.questions("unkeyed").await.unwrap().len()), (1, 0));
    let outcome = runs.run(&step, "unkeyed").await.unwrap();
    assert!(matches!(outcome, Outcome::Complete { .. }), "{outcome:?}");
    assert_eq!(shop.tries(), 2);
}

/// The wrong program was accepted, so it counts, and a person is asked; with the right one back and accepted that question is about nothing. Unless
/// they have answered: what they said counts.
#[tokio::test]
async fn a_question_is_taken_back_with_the_program_that_was_the_reason_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    for Mistake { id, right, wrong, changed } in WRONG {
        for answer in [None, Some(Choice::Happened), Some(Choice::Skip)] {
            let id = format!("{id}-{}", answer.map_or("open", Choice::as_str));
            let shop = Shop::new(true);
            let step = right(&shop).max_turns(5);
            lost_in_its_tool(&runs, &step, &shop, &id).await;
            let outcome = runs.run_accepting(&wrong(&shop).max_turns(5), &id, &[changed]).await.unwrap();
            let Outcome::Waiting { question } = outcome else { panic!("{id}: {outcome:?}") };
            if let Some(answer) = answer {
                runs.answer(&question, answer).await.unwrap();
            }
            let outcome = runs.run_accepting(&step, &id, &[changed]).await.unwrap();
            assert!(matches!(outcome, Outcome::Complete { .. }), "{id}: {outcome:?}");
            assert_eq!(shop.tries(), if answer.is_some() { 1 } else { 2 }, "{id}");
            let asked = runs.store().question(&question.question_id).await.unwrap();
            assert_eq!((asked.status, asked.answer.is_some()), (QuestionStatus::Closed, answer.is_some()), "{id}");
        }
    }
}

/// Whatever the next program says that the tool does: the same call of it is no other one, in the run and in its forks.
#[tokio::test]
async fn an_effect_under_another_name_is_asked_about() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let mut turns = sending();
    let again = turns[0].clone();
    turns.as_array_mut().unwrap().insert(1, again);
    let (reads, local): (Declare, Declare) = (Tool::reads, Tool::local);
    let changes: [(&str, Declare, bool); 6] = [
        ("as-it-was", keyed, false),
        ("unkeyed", unkeyed, false),
        ("kind", renamed, true),
        ("undeclared", std::convert::identity, true),
        ("local", local, true),
        ("read", reads, true),
    ];
    for (id, now, is_asked) in changes {
        let shop = Shop::new(false);
        let (run, fork) = (format!("run-{id}"), format!("fork-{id}"));
        let step = |tool: Tool| Step::new("invoices").model(model(&turns)).tool(tool).input("Send.").max_turns(1);
        let _stopped = runs.run(&step(keyed(shop.tool())), &run).await.unwrap();
        assert_eq!(shop.tries(), 1, "{id}");
        let changed = step(now(shop.tool()));
        runs.fork(&changed, &fork, &run, Some(0)).await.unwrap();
        for id in [&run, &fork] {
            runs.set_budget(id, "max_turns", 5).await.unwrap();
        }
        for (id, accepted) in [(&run, &[Component::Tools][..]), (&fork, &[][..])] {
            for _ in 0..2 {
                let outcome = runs.run_accepting(&changed, id, accepted).await.unwrap();
                let Outcome::Waiting { question } = outcome else {
                    assert!(matches!(outcome, Outcome::Complete { .. }), "{id}: {outcome:?}");
                    break;
                };
                assert!(is_asked && question.text.contains("send_invoice"), "{id}: {}", question.text);
                assert_eq!(shop.tries(), 1, "{id}");
                runs.answer(&question, Choice::Skip).await.unwrap();
            }
            assert_eq!(shop.tries(), 1, "{id}");
            let asked = runs.questions(id).await.unwrap();
            assert!(asked.is_empty() || is_asked, "{id}");
        }
    }
}

mod before {
    use super::*;

    /// The price of an order.
    #[derive(Deserialize, JsonSchema, Debug, PartialEq)]
    pub(super) struct Price {
        /// In cents.
        pub(super) cents: u32,
    }
}

mod after {
    use super::*;

    /// What an order costs, with other words about it.
    #[derive(Deserialize, JsonSchema, Debug, PartialEq)]
    #[schemars(title = "Another name")]
    pub(super) struct Price {
        /// As a whole number.
        pub(super) cents: u32,
    }
}

#[tokio::test]
async fn a_typed_run_goes_on_over_changed_tools_and_comments_and_is_forked() {
    let turns = json!([
        {"tools": [{"name": "mcp__program__send_invoice", "input": {"order": "A-17", "cents": 900}}]},
        {"text": "{\"cents\": 900}"},
    ]);
    let step = |description| {
        Step::new("price").model(model(&turns)).tool(send(description)).input("What is the price?").max_turns(1)
    };
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let stopped = runs.run_for::<before::Price>(&step("Sends it."), "price").await.unwrap_err();
    let Error::NotComplete(outcome) = &stopped else { panic!("{stopped}") };
    assert!(matches!(**outcome, Outcome::Stopped { reason: RunStop::Budget, .. }), "{outcome:?}");
    runs.set_budget("price", "max_turns", 5).await.unwrap();

    let changed = step("Sends it by post.");
    let told = runs.run_for::<after::Price>(&changed, "price").await.unwrap_err().to_string();
    assert!(told.contains("Component::Tools") && told.contains("run_for_accepting"), "{told}");
    let fork = changed.clone().system("Be brief.").output::<after::Price>();
    runs.fork(&fork, "fork", "price", None).await.unwrap();
    let accepted: after::Price = runs.run_for_accepting(&changed, "price", &[Component::Tools]).await.unwrap();
    assert_eq!(accepted, after::Price { cents: 900 });
    runs.set_budget("fork", "max_turns", 5).await.unwrap();
    let forked: before::Price = runs.run_for(&changed.clone().system("Be brief."), "fork").await.unwrap();
    assert_eq!(forked, before::Price { cents: 900 });

    // The same schema said by hand is the same definition.
    let schema = schemars::schema_for!(before::Price);
    let _stopped = runs.run_for::<before::Price>(&step("Sends it."), "by-hand").await;
    runs.set_budget("by-hand", "max_turns", 5).await.unwrap();
    let outcome = runs.run(&step("Sends it.").output_schema(schema.to_value()), "by-hand").await.unwrap();
    assert!(matches!(outcome, Outcome::Complete { .. }), "{outcome:?}");
}

/// What is known of a model is a matter of the version, and a step that says nothing of it is the same step.
#[tokio::test]
async fn a_step_that_says_no_reply_limit_keeps_that_of_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let writes = |tokens| {
        let facts = ModelFacts { max_output: Some(tokens), ..ModelFacts::default() };
        step_of([send("Sends it.")]).model(model(&sending()).with_facts(facts))
    };
    let limit = async |id: &str| runs.get(id).await.unwrap().launch["max_output_tokens"].clone();
    assert!(matches!(runs.run(&writes(4_096), "november").await.unwrap(), Outcome::Stopped { .. }));
    runs.set_budget("november", "max_turns", 5).await.unwrap();
    let said = runs.run(&writes(4_096).max_output_tokens(2_048), "november").await.unwrap_err();
    let Error::AnotherDefinition { differs, .. } = &said else { panic!("{said}") };
    assert_eq!(differs.iter().map(|part| part.part.as_str()).collect::<Vec<_>>(), ["max_output_tokens"]);
    // A fork is a new run, and is found again.
    for tokens in [2_048, 4_096] {
        let _fork = runs.fork(&writes(tokens), "fork", "november", None).await.unwrap();
    }
    let outcome = runs.run(&writes(16_384), "november").await.unwrap();
    assert!(matches!(outcome, Outcome::Complete { .. }), "{outcome:?}");
    assert_eq!((limit("november").await, limit("fork").await), (json!(4_096), json!(2_048)));
}

#[tokio::test]
async fn another_definition_is_refused_with_what_helps() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let step = invoices(&sending(), &sent).max_turns(1);
    let _stopped = runs.run(&step, "november").await.unwrap();
    let asking = ua_sdk::Escalation { ask_user: true, ..Default::default() };
    let told = runs.run(&step.clone().escalation(asking), "november").await.unwrap_err().to_string();
    assert!(
        told.contains("escalation.ask_user (stored: not set, now: true)") && told.contains("`Runs::fork`"),
        "{told}"
    );
    let told = runs.run(&step.clone().max_turns(9), "november").await.unwrap_err().to_string();
    assert!(told.contains("`Runs::set_budget`") && !told.contains("`Runs::fork`"), "{told}");

    runs.set_budget("november", "max_tokens", 100_000).await.unwrap();
    let refused = runs.set_budget("november", "max_turn", 5).await.unwrap_err().to_string();
    assert_eq!(refused.matches("max_turns").count(), 1, "{refused}");
    let refused = runs.set_budget("november", "max_turns", "many").await.unwrap_err().to_string();
    assert!(refused.contains("`max_turns` cannot be \"many\"") && !refused.contains("null"), "{refused}");
    assert_eq!(sent.load(Ordering::SeqCst), 1);
}
