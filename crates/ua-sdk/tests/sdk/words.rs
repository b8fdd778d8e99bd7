//! Words of a program that come to nothing are refused before anything is stored, and a tool that began nothing has done nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use ua_sdk::crates::ua_core::{ToolAnnotations, ToolName, ToolNamespace, ToolSpec};
use ua_sdk::crates::ua_dispatch::{LocalTools, ToolTransport};
use ua_sdk::crates::ua_store::RunStore as _;
use ua_sdk::crates::{ua_core, ua_dispatch, ua_runner, ua_store};
use ua_sdk::prelude::*;
use ua_sdk::{Budgets, Constraints, Escalation, Money, PriceTable, RunStatus, StopCondition, Tool};

use crate::{Invoice, invoices, model, sending};

/// An order number: its schema knows texts only, as that of a date, an address or an id does.
#[derive(Deserialize, JsonSchema)]
struct Numbered {
    #[serde(deserialize_with = "numbered")]
    #[schemars(with = "String")]
    order: String,
}

/// One that its tool looks at by itself.
#[derive(Deserialize, JsonSchema)]
struct Order {
    order: String,
}

fn numbered<'de, D: serde::Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    if text.starts_with("A-") { Ok(text) } else { Err(serde::de::Error::custom(format!("{text:?} is no order"))) }
}

/// A tool that sends one invoice; `refuses` says whether it looks at the order by itself or by the type of its arguments.
fn send(sent: &Arc<AtomicUsize>, refuses: bool) -> Tool {
    let sent = sent.clone();
    if !refuses {
        return tool("send_invoice", "Sends.", async move |_: Call, order: Numbered| {
            sent.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Failure>(order.order)
        });
    }
    tool("send_invoice", "Sends.", async move |_: Call, order: Order| {
        if !order.order.starts_with("A-") {
            return Err(Failure::refused("there is no such order, and nothing was sent"));
        }
        sent.fetch_add(1, Ordering::SeqCst);
        Ok(order.order)
    })
}

/// What a program says of a tool.
type Declared = fn(Tool) -> Tool;

/// Over every kind of tool, both ways to refuse and every number of wrong calls: the right call after them is made, once, and nobody is asked.
#[tokio::test]
async fn a_call_that_its_tool_did_not_begin_counts_for_nothing() {
    let kinds: [(&str, Declared); 5] = [
        ("unsaid", |tool| tool),
        ("external", |tool| tool.external("invoice.send")),
        ("keyed", |tool| tool.external("invoice.send").keyed()),
        ("local", Tool::local),
        ("reads", Tool::reads),
    ];
    for (kind, declared) in kinds {
        for refuses in [false, true] {
            for wrong in 1..=2 {
                let what = format!("{kind}, by {}, {wrong} wrong", if refuses { "the tool" } else { "its type" });
                let folder = tempfile::tempdir().unwrap();
                let sent = Arc::new(AtomicUsize::new(0));
                let ask =
                    |order: &str| json!({"tools": [{"name": "mcp__program__send_invoice", "input": {"order": order}}]});
                let mut turns = vec![ask("17"); wrong];
                let mut right = ask("A-17");
                right["expect"] = json!({"tool_result_ok": false});
                turns.extend([right, json!({"text": "Sent."})]);
                let mut step = Step::new("invoices")
                    .model(model(&json!(turns)))
                    .tool(declared(send(&sent, refuses)))
                    .input("Send the invoice.");
                if ["external", "keyed"].contains(&kind) {
                    let once = StopCondition::Effect { effect: "invoice.send".to_owned(), count: 1, max: Some(1) };
                    step = step.stop_when(once);
                }
                let runs = Runs::open(folder.path()).unwrap();
                let outcome = runs.run(&step, "november").await.unwrap();
                assert!(matches!(outcome, Outcome::Complete { .. }), "{what}: {outcome:?}");
                assert_eq!(sent.load(Ordering::SeqCst), 1, "{what}");
            }
        }
    }
}

#[tokio::test]
async fn a_tool_without_arguments_is_called_with_none() {
    let folder = tempfile::tempdir().unwrap();
    let look = tool("look", "Looks.", async |_: Call, (): ()| Ok::<_, Failure>("seen")).reads();
    let turns = json!([
        {"tools": [{"name": "mcp__program__look", "input": {"order": "A-17"}}]},
        {"tools": [{"name": "mcp__program__look", "input": {}}], "expect": {"tool_result_ok": false}},
        {"text": "Seen.", "expect": {"contains": ["seen"]}},
    ]);
    let step = Step::new("look").model(model(&turns)).tool(look).input("Look.");
    let outcome = Runs::open(folder.path()).unwrap().run(&step, "november").await.unwrap();
    assert!(matches!(outcome, Outcome::Complete { turns: 3, .. }), "{outcome:?}");
}

/// A rule that calls for care and names no tool of the step, or an argument that its tool does not have, protects from nothing.
#[tokio::test]
async fn a_policy_about_nothing_is_refused_before_anything_is_stored() {
    let sent = Arc::new(AtomicUsize::new(0));
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let rule = |words: &str| format!("[[rule]]\nid = \"care\"\n{words}\n");
    for (words, told) in [
        ("name = \"send_invoce\"\napproval = \"ask\"", "send_invoice"),
        ("name = \"send_invoice\"\nserver = \"programm\"\napproval = \"ask\"", "program`?"),
        ("server = \"programm\"\napproval = \"ask\"", "program`?"),
        ("patterns = [\"send_invoce*\"]\non_unknown = \"hold\"", "send_invoice"),
        ("name = \"send_invoice\"\nscope = [{ value = \"ordr\" }]", "order"),
    ] {
        let step = invoices(&sending(), &sent).policy(rule(words));
        let error = runs.run(&step, "november").await.unwrap_err();
        let Error::Step(why) = &error else { panic!("{words}: {error}") };
        assert!(why.contains(told) && why.contains("rule `care` of policy 1 of the step"), "{words}: {why}");
        assert!(runs.list(10).await.unwrap().is_empty(), "{words}");
    }
    assert_eq!(sent.load(Ordering::SeqCst), 0);
    let right = invoices(&sending(), &sent).policy(rule("name = \"send_invoice\"\napproval = \"ask\""));
    assert!(matches!(runs.run(&right, "november").await.unwrap(), Outcome::Waiting { .. }));
}

/// Every word by which a step selects tools or effects, with one letter wrong: nothing is stored, nothing is sent, and the right word is named.
#[tokio::test]
async fn a_word_that_is_the_name_of_nothing_is_refused_before_anything_is_stored() {
    let constraints = |word: &str| Constraints { forbidden_actions: vec![word.to_owned()], ..Constraints::default() };
    let escalation = |word: &str| Escalation { ask_human_before: vec![word.to_owned()], ..Escalation::default() };
    let effect = |word: &str| StopCondition::Effect { effect: word.to_owned(), count: 1, max: None };
    let sent = Arc::new(AtomicUsize::new(0));
    let step = || invoices(&sending(), &sent);
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    // A run to fork, which has sent nothing.
    let look = tool("look", "Looks.", async |_: Call, (): ()| Ok::<_, Failure>("seen")).reads();
    let looking = json!([{"tools": [{"name": "mcp__program__look", "input": {}}]}, {"text": "Seen."}]);
    let parent = Step::new("invoices").model(model(&looking)).tool(look).input("Look.").max_turns(1);
    let _stopped = runs.run(&parent, "parent").await.unwrap();
    for right in ["invoice.send", "send_invoice", "mcp__program__send_invoice"] {
        for at in 1..right.len() {
            if right.is_char_boundary(at) && right.as_bytes()[at].is_ascii_lowercase() {
                let word = format!("{}{}", &right[..at], &right[at + 1..]);
                let mut all = vec![step().constraints(constraints(&word)), step().escalation(escalation(&word))];
                if right.contains('.') && word.contains('.') {
                    all.push(step().stop_when(effect(&word)));
                }
                for wrong in all {
                    let run = runs.run(&wrong, "november").await.unwrap_err();
                    let fork = runs.fork(&wrong, "fork", "parent", None).await.unwrap_err();
                    for error in [run, fork] {
                        let Error::Step(why) = &error else { panic!("{word}: {error}") };
                        assert!(why.contains(&word) && why.contains("did you mean"), "{why}");
                    }
                }
            }
        }
    }
    // A short name that stands for an effect which no tool has can never be met either.
    let unmet = step().stop_when(StopCondition::Named("email_sent_once".to_owned()));
    let run = runs.run(&unmet, "november").await.unwrap_err();
    let fork = runs.fork(&unmet, "fork", "parent", None).await.unwrap_err();
    for error in [run, fork] {
        assert!(
            matches!(&error, Error::Step(why) if why.contains("email.send") && why.contains("external(")),
            "{error}"
        );
    }
    assert_eq!((runs.list(5).await.unwrap().len(), sent.load(Ordering::SeqCst)), (1, 0));
    assert!(!runs.workspace("november").unwrap().exists(), "no folder either");
    let fork = runs.fork(&step().constraints(constraints("*.delete*")), "fork", "parent", None).await.unwrap_err();
    assert!(fork.to_string().contains("*.delete*"), "{fork}");
    runs.fork(&step().escalation(escalation("invoice.send")), "fork", "parent", None).await.unwrap();

    // The words as they should be.
    let forbidden = runs.run(&step().constraints(constraints("*.delete*")), "pattern").await.unwrap_err();
    assert!(forbidden.to_string().contains("*.delete*"), "{forbidden}");
    let met = step().stop_when(effect("invoice.send")).escalation(escalation("memory"));
    assert!(matches!(runs.run(&met, "november").await.unwrap(), Outcome::Complete { .. }));
    assert_eq!(sent.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn numbers_and_declarations_that_come_to_nothing_are_refused() {
    let sent = Arc::new(AtomicUsize::new(0));
    let step = || invoices(&sending(), &sent);
    let with = |odd: Tool| step().tool(odd);
    let look = || tool("look", "Looks.", async |_: Call, (): ()| Ok::<_, Failure>(()));
    let text = tool("by_text", "Takes a text.", async |_: Call, _: String| Ok::<_, Failure>(()));
    let list = tool("by_list", "Takes a list.", async |_: Call, _: Vec<u8>| Ok::<_, Failure>(()));
    let money = |max| Budgets { max_cost: Money::parse(max), ..Budgets::default() };
    let in_dollars = PriceTable::parse("f", "[providers.scripted.scripted]\ninput = 2\noutput = 10\n").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    for (wrong, told) in [
        (with(text), "`by_text`"),
        (with(list), "`by_list`"),
        (with(look().external("a.send").reads()), "`external` and `reads`"),
        (with(look().reads().external("a.send")), "`reads` and `external`"),
        (with(look().local().external("a.send")), "`local` and `external`"),
        (with(look().reads().local()), "`reads` and `local`"),
        (step().budgets(money("2 USD")), "`Step::prices`"),
        (step().budgets(money("2 EUR")).prices(in_dollars.clone()), "in one currency"),
        (with(look().timeout(Duration::ZERO)), "1 ms"),
        (with(look().timeout(Duration::MAX)), "365 days"),
        (step().budgets(Budgets { max_turns: Some(1), ..Budgets::default() }), "`Step::max_turns`"),
        (step().max_output_tokens(0), "`max_output_tokens`"),
        (step().temperature_milli(9000), "`temperature_milli`"),
    ] {
        let error = runs.run(&wrong, "november").await.unwrap_err();
        assert!(matches!(&error, Error::Step(why) if why.contains(told)), "{error}");
    }
    assert!(runs.list(5).await.unwrap().is_empty());
    let right = step()
        .tool(look().timeout(Duration::from_millis(1)).reads())
        .budgets(Budgets { max_turns: Some(1), ..Budgets::default() })
        .max_turns(1)
        .temperature_milli(2000);
    let _stopped = runs.run(&right, "november").await.unwrap();
    // It has no price, so nobody could keep it.
    let refused = runs.set_budget("november", "max_cost", "2 USD").await.unwrap_err();
    assert!(matches!(&refused, Error::Refused(why) if why.contains("`Component::Pricing`")), "{refused}");
    runs.set_budget("november", "max_turns", 5).await.unwrap();
    // Of one that has asked for nothing yet that is not known. A higher budget would not help it.
    let fork = right.clone().system("Be brief.").max_turns(5).budgets(Budgets::default());
    runs.fork(&fork, "brief", "november", None).await.unwrap();
    runs.set_budget("brief", "max_cost", "2 USD").await.unwrap();
    let told = runs.run(&fork, "brief").await.unwrap().to_string();
    for helps in ["`Component::Pricing`", "`Value::Null`"] {
        assert!(told.contains(helps) && !told.contains("raise it"), "{told}");
    }
    runs.set_budget("brief", "max_cost", serde_json::Value::Null).await.unwrap();
    assert!(matches!(runs.run(&fork, "brief").await.unwrap(), Outcome::Complete { .. }));
    // Another step under the name of a fork is told where it is forked, and not first where it is run.
    let other = runs.fork(&fork.clone().system("Be briefer."), "brief", "november", None).await.unwrap_err();
    let Error::AnotherDefinition { differs, .. } = &other else { panic!("{other}") };
    assert_eq!(differs.iter().map(|part| part.part.as_str()).collect::<Vec<_>>(), ["system"]);
    runs.fork(&fork, "brief", "november", None).await.unwrap();
}

/// What a step is refused with is refused of a run that exists, too.
#[tokio::test]
async fn a_budget_that_would_end_a_run_where_it_begins_is_not_set() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let in_dollars = PriceTable::parse("f", "[providers.scripted.scripted]\ninput = 2\noutput = 10\n").unwrap();
    let step = invoices(&sending(), &Arc::default()).prices(in_dollars).max_turns(1);
    let _stopped = runs.run(&step, "november").await.unwrap();
    for (budget, value, told) in [
        ("max_turns", json!(0), "could ask nothing"),
        ("max_tokens", json!(0), "could ask nothing"),
        ("max_tool_calls", json!(0), "could do nothing"),
        ("max_steps", json!(0), "could do nothing"),
        ("max_wallclock_minutes", json!(0), "could do nothing"),
        ("max_cost", json!("0 USD"), "could ask nothing"),
        ("max_cost", json!("3 EUR"), "priced in USD"),
    ] {
        let refused = runs.set_budget("november", budget, value).await.unwrap_err();
        assert!(matches!(&refused, Error::Refused(why) if why.contains(told) && why.contains(budget)), "{refused}");
    }
    for (budget, value) in [
        ("max_retries_per_tool_call", json!(0)),
        ("max_same_error_repeats", json!(0)),
        ("max_turns", json!(5)),
        ("max_cost", json!("3 USD")),
    ] {
        runs.set_budget("november", budget, value).await.unwrap();
    }
    assert!(matches!(runs.run(&step, "november").await.unwrap(), Outcome::Complete { .. }));
}

/// Keys that a tool cannot take, and policies about tools that are not there, are known before anything is stored, with whatever brings the tools;
/// the corrected step has the same id.
#[tokio::test]
async fn what_tools_cannot_keep_is_refused_before_anything_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let send = || tool("send_invoice", "Sends.", async |_: Call, invoice: Invoice| Ok::<_, Failure>(invoice.order));
    let step = |send: Tool| {
        Step::new("invoices").model(model(&sending())).tool(send.external("invoice.send")).input("Send the invoice.")
    };
    let refused = runs.run(&step(send()).enforce_idempotency(), "november").await.unwrap_err();
    assert!(matches!(&refused, Error::Tools { why, .. } if why.contains("send_invoice")), "{refused}");
    assert!(runs.list(5).await.unwrap().is_empty() && !runs.workspace("november").unwrap().exists());
    let keyed = step(send().keyed()).enforce_idempotency();
    assert!(matches!(runs.run(&keyed, "november").await.unwrap(), Outcome::Complete { .. }));

    let shop = LocalTools::new(ua_core::system::env()).with(look_of("shop"), async |_| Ok(json!("nothing")));
    let shop: Arc<dyn ToolTransport> = Arc::new(shop);
    let rule = "[[rule]]\nid = \"care\"\nname = \"sell\"\napproval = \"ask\"\n";
    let wrong = step(send()).transport(["shop"], shop.clone()).policy(rule);
    let refused = runs.run(&wrong, "december").await.unwrap_err();
    assert!(matches!(&refused, Error::Step(why) if why.contains("care")), "{refused}");
    assert_eq!(runs.list(5).await.unwrap().len(), 1);
    let stopped = runs.run(&step(send()).transport(["store"], shop.clone()), "december").await.unwrap();
    assert!(matches!(stopped, Outcome::Stopped { reason: RunStop::ToolServer, .. }), "{stopped:?}");
    assert!(stopped.to_string().contains("`Step::transport`"), "{stopped}");
    let right = step(send()).transport(["shop"], shop);
    assert!(matches!(runs.run(&right, "december").await.unwrap(), Outcome::Complete { .. }));
}

fn look_of(server: &str) -> ToolSpec {
    ToolSpec {
        name: ToolName::qualified(ToolNamespace::Mcp, server, "look"),
        description: "Looks.".to_owned(),
        input_schema: json!({"type": "object"}),
        annotations: ToolAnnotations::default(),
    }
}

/// As `ua answer` does; one that somebody drives is ended by whoever does.
#[tokio::test]
async fn an_aborted_run_that_nobody_drives_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let send = tool("send_invoice", "Sends.", async |_: Call, invoice: Invoice| Ok::<_, Failure>(invoice.order));
    let send = send.external("invoice.send").approved_by_a_person();
    let step = Step::new("invoices").model(model(&sending())).tool(send).input("Send the invoice.");
    let Outcome::Waiting { question } = runs.run(&step, "november").await.unwrap() else { panic!() };
    runs.answer(&question, Choice::Abort).await.unwrap();
    assert_eq!(runs.wait("november").await.unwrap().status, RunStatus::Failed);
    assert!(runs.unfinished().await.unwrap().is_empty() && runs.questions("november").await.unwrap().is_empty());
    let outcome = runs.run(&step, "november").await.unwrap();
    assert!(matches!(outcome, Outcome::Failed { .. }), "{outcome:?}");

    let Outcome::Waiting { question } = runs.run(&step, "december").await.unwrap() else { panic!() };
    let run = ua_core::RunId::parse("december").unwrap();
    let owner = ua_runner::owner_stamp(ua_core::Trace::new(&ua_core::system::env()));
    let lock = ua_runner::RunLock::take(&folder.path().join("locks"), &run, &owner).unwrap();
    runs.answer(&question, Choice::Abort).await.unwrap();
    assert_eq!(runs.get("december").await.unwrap().status, RunStatus::WaitingForHuman);
    drop(lock);
    assert!(matches!(runs.run(&step, "december").await.unwrap(), Outcome::Failed { .. }));
}

#[tokio::test]
async fn a_cancelled_run_that_nobody_drives_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let lost =
        tool("send_invoice", "Sends.", async |_: Call, _: crate::Invoice| Err::<(), _>(Failure::unknown("gone")));
    let step = Step::new("invoices").model(model(&sending())).tool(lost).input("Send the invoice.");
    assert!(matches!(runs.run(&step, "november").await.unwrap(), Outcome::Waiting { .. }));
    runs.cancel("november", "no more").await.unwrap();
    assert_eq!(runs.get("november").await.unwrap().status, RunStatus::Cancelled);
    assert!(runs.questions("november").await.unwrap().is_empty());
    assert!(runs.unfinished().await.unwrap().is_empty());
    assert_eq!(runs.run(&step, "november").await.unwrap(), Outcome::Cancelled);
}

#[tokio::test]
async fn a_deleted_run_is_not_done_again_under_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let step = invoices(&sending(), &sent);
    assert!(matches!(runs.run(&step, "november").await.unwrap(), Outcome::Complete { .. }));
    let (run_id, at) = (ua_core::RunId::parse("november").unwrap(), ua_core::system::env().now());
    let _gone = runs.store().delete_run(&ua_store::RunDeletion { run_id, force: false, by: None, at }).await.unwrap();
    let error = runs.run(&step, "november").await.unwrap_err();
    assert!(
        matches!(&error, Error::Refused(why) if why.contains("was deleted") && why.contains("another id")),
        "{error}"
    );
    assert_eq!(sent.load(Ordering::SeqCst), 1);
}

/// Who reads one of the two pages that warn of it knows every verb after which the same call is not made again.
#[test]
fn every_creating_verb_is_said_where_an_effect_is_declared() {
    let pages = [
        ("`Tool::external`", include_str!("../../src/tool.rs")),
        ("library.md", include_str!("../../../../docs/guide/library.md")),
    ];
    for (page, text) in pages {
        let text: String = text.split_whitespace().filter(|word| *word != "///").collect::<Vec<_>>().join(" ");
        let (_, list) = text.split_once("fter a creating verb (").unwrap();
        let (list, _) = list.split_once(')').unwrap();
        let said: Vec<&str> = list.split(", ").collect();
        assert_eq!(said, ua_core::EffectKind::CREATING, "{page}");
    }
}

/// Of two servers of one name one would be listed, and the other called.
#[tokio::test]
async fn two_servers_of_one_name_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let others = || Arc::new(ua_dispatch::LocalTools::new(ua_core::system::env()));
    let step = invoices(&sending(), &sent).transport(["shop"], others()).transport(["post", "shop"], others());
    let error = Runs::open(folder.path()).unwrap().run(&step, "november").await.unwrap_err();
    assert!(matches!(&error, Error::Servers(why) if why.contains("`shop`")), "{error}");
    assert_eq!(sent.load(Ordering::SeqCst), 0);
}

/// What a program writes for a budget of money is what is stored of it.
#[test]
fn money_of_a_budget_is_read_from_a_text() {
    let Some(two) = Money::parse("2 USD") else { panic!("an amount and a currency") };
    assert_eq!(serde_json::to_value(two).unwrap(), Value::from("2.00 USD"));
}

#[derive(Deserialize, JsonSchema)]
struct Parcel {
    order: String,
    note: Option<String>,
}

fn send_parcel(sent: &Arc<AtomicUsize>) -> Tool {
    let sent = sent.clone();
    tool("send_parcel", "Sends a parcel.", async move |_: Call, parcel: Parcel| {
        sent.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Failure>(json!({"sent": parcel.order, "note": parcel.note}))
    })
    .external("parcel.send")
    .keyed()
}

/// A field that is left out and one that is `null` are two calls of one effect, and other arguments are where the program says what names it.
#[tokio::test]
async fn what_names_an_effect_is_said_of_the_tool() {
    let ask = |input: Value| json!({"tools": [{"name": "mcp__program__send_parcel", "input": input}]});
    for (named, note, times) in
        [(false, json!(null), 1), (false, json!("b"), 2), (true, json!(null), 1), (true, json!("b"), 1)]
    {
        let turns = json!([ask(json!({"order": "a"})), ask(json!({"order": "a", "note": note})), {"text": "Sent."}]);
        let folder = tempfile::tempdir().unwrap();
        let sent = Arc::new(AtomicUsize::new(0));
        let send = send_parcel(&sent);
        let send = if named { send.named_by(["order"]) } else { send };
        let step = Step::new("parcels").model(model(&turns)).tool(send).input("Send the parcel.");
        let outcome = Runs::open(folder.path()).unwrap().run(&step, "november").await.unwrap();
        assert_eq!(matches!(outcome, Outcome::Waiting { .. }), times == 1, "{outcome:?}");
        assert_eq!(sent.load(Ordering::SeqCst), times, "named: {named}, {note}");
    }
}

#[tokio::test]
async fn what_cannot_name_an_effect_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let unsaid = tool("look", "Looks.", async |_: Call, (): ()| Ok::<_, Failure>("seen")).named_by(["order"]);
    for (tool, why) in [
        (unsaid, "`Tool::external`"),
        (send_parcel(&sent).named_by(Vec::<String>::new()), "no argument names its effect"),
        (send_parcel(&sent).named_by(["ordre"]), "ordre"),
    ] {
        let step = Step::new("parcels").model(model(&json!([{"text": "Sent."}]))).tool(tool).input("Send the parcel.");
        let refused = runs.run(&step, "november").await.unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
    }
    assert!(runs.list(5).await.unwrap().is_empty(), "refused before anything is stored");
}

#[tokio::test]
async fn a_choice_of_a_tool_that_no_request_offers_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    for choice in ["send_parcel", "mcp__program__send_parcle"] {
        let step = Step::new("parcels").model(model(&json!([{"text": "Sent."}]))).tool(send_parcel(&sent));
        let refused = runs.run(&step.tool_choice(choice).input("Send."), "november").await.unwrap_err();
        let says = matches!(&refused, Error::Step(why) if why.contains("`mcp__program__send_parcel`") || why.ends_with("mcp__program__send_parcel"));
        assert!(says, "{refused}");
    }
}

/// More than a job file may have, and no more than any model reads.
#[tokio::test]
async fn an_input_is_as_long_as_what_a_model_reads() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let step = || Step::new("read").model(model(&json!([{"text": "Read."}]))).history_max_tokens(1_000_000);
    let long = "a page of words. ".repeat(30_000);
    let outcome = runs.run(&step().input(long.clone()), "long").await.unwrap();
    assert!(matches!(outcome, Outcome::Complete { .. }), "{outcome:?}");
    assert_eq!(runs.input("long").await.unwrap(), long);

    let deep = (0..200).fold(json!("deep"), |inner, _| json!([inner]));
    let endless = || "x".repeat(16 * 1024 * 1024);
    for (input, told) in [
        (json!(endless()), "16777216"),
        (json!({"page": endless()}), "a tool of the step"),
        (json!("  "), "is empty"),
        (deep, "cannot be kept"),
    ] {
        let refused = runs.run(&step().input(input), "refused").await.unwrap_err();
        let is_told = matches!(&refused, Error::Input(why) if why.starts_with("`input` ") && why.contains(told));
        assert!(is_told, "{told}: {refused}");
    }
    // Whatever it is that is too long is named.
    let schema = json!({"type": "object", "description": endless()});
    let refused = runs.run(&step().input("Read.").output_schema(schema), "refused").await.unwrap_err();
    assert!(matches!(&refused, Error::Step(why) if why.starts_with("`output_schema` has 167")), "{refused}");
    assert_eq!(runs.list(5).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_step_of_which_every_reply_calls_a_tool_says_why_it_stops() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let look = tool("any", "Looks.", async |_: Call, (): ()| Ok::<_, Failure>("seen")).reads();
    let call = json!({"tools": [{"name": "mcp__program__any", "input": {}}]});
    let step = Step::new("look").model(model(&json!([call.clone(), call]))).tool(look).max_turns(1).input("Look.");
    let plain = runs.run(&step, "plain").await.unwrap();
    let forced = runs.run(&step.tool_choice(ua_sdk::ToolChoice::Any), "forced").await.unwrap();
    let [plain_stop, forced_stop] = [&plain, &forced].map(Outcome::budgets_reached);
    assert!(!plain.to_string().contains("tool_choice") && forced.to_string().contains("`tool_choice`"), "{forced}");
    assert_eq!(forced_stop.len(), 1, "{forced}");
    assert_eq!(plain_stop[0].missing(), forced_stop[0].missing());
}

#[tokio::test]
async fn a_result_may_be_any_value() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::open(folder.path()).unwrap();
    let turns = json!([{"text": "Nothing is known."}, {"text": "{\"known\": [1.5, null]}"}]);
    let step = Step::new("any").model(model(&turns)).input("What is known?");
    let any: Value = runs.run_for(&step, "any").await.unwrap();
    assert_eq!(any, json!({"known": [1.5, null]}));
}
