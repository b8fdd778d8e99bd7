//! The same call under another name of its server: a name that a configuration gives makes no other call of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use ua_core::{CallId, OnUnknown, PlannedCall, SideEffectClass, ToolName, ToolNamespace, sha256};
use ua_ledger::{Admission, Facts, Recovery};
use ua_store::conformance::samples;
use ua_store::{Choice, MemStore, QuestionKind};

use super::member::{Fate, Member};

/// A call of the tool `order` of a server that no rule knows.
fn order(server: &'static str, words: &'static str, class: SideEffectClass) -> impl Fn(&str, u32) -> PlannedCall {
    move |id, turn| {
        let mut call = samples::planned_call(id, turn, 1);
        let namespace = if server == "ua" { ToolNamespace::Local } else { ToolNamespace::Mcp };
        call.name = ToolName::qualified(namespace, server, "order");
        call.arguments = json!({"what": words}).into();
        call.args_hash = sha256(words);
        call.policy.class = class;
        call.policy.on_unknown = OnUnknown::Hold;
        call
    }
}

/// A run and its fork, neither of which did anything yet.
async fn fork() -> (Member, Member) {
    let store = Arc::new(MemStore::default());
    let parent = Member::of(&store, samples::new_run("run_1"), true).await;
    let child = Member::of(&store, samples::child_run("run_2", "run_1"), true).await;
    (parent, child)
}

/// Whether a person is asked about a call because of another one; else it is let through.
async fn is_asked(member: &Member, id: &CallId, facts: Facts, at: &str) -> bool {
    match member.ledger.admit(id, facts).await.unwrap() {
        Admission::Held(question) => {
            assert_eq!(question.kind, QuestionKind::NearDuplicate, "{at}");
            assert!(question.text.contains("`mcp__shop__order`"), "{at}: {}", question.text);
            true
        }
        Admission::Ready(_) => false,
        other @ (Admission::Settled(_)
        | Admission::Continues(_)
        | Admission::Ongoing(_)
        | Admission::WaitFor(_)
        | Admission::Unknown(_)) => panic!("{at}: {other:?}"),
    }
}

/// A person leaves a call without knowing what came of it.
async fn leave(member: &Member, id: &CallId) {
    let Admission::Unknown(unknown) = member.ledger.admit(id, Facts::default()).await.unwrap() else {
        panic!("not in doubt")
    };
    let recovered = member.ledger.recover(&unknown, &Facts::default()).await.unwrap();
    let Recovery::Decided(decided) = recovered else { panic!("not decided") };
    let Admission::Held(question) = *decided else { panic!("not held") };
    member.answer(&question, Choice::Skip).await;
    member.ledger.recover(&unknown, &Facts::default()).await.unwrap();
}

#[tokio::test]
async fn the_same_call_of_a_fork_is_asked_about_whatever_its_server_is_called() {
    use SideEffectClass::{External, Local, Memory, ReadOnly};
    let cases = [
        (Fate::Done, External, true),
        (Fate::Done, Memory, true),
        (Fate::Done, Local, false),
        (Fate::Done, ReadOnly, false),
        (Fate::NotSent, External, false),
        (Fate::FailedMaybe, External, true),
        (Fate::Lost, External, true),
        (Fate::UnderWay, External, true),
    ];
    for (fate, class, wanted) in cases {
        for (words, wanted) in [("a book", wanted), ("a pen", false)] {
            for by_parent in [false, true] {
                let (parent, child) = fork().await;
                let (first, second) = if by_parent { (&child, &parent) } else { (&parent, &child) };
                let id = first.plan_as(order("shop", "a book", class)).await;
                first.take(&id, &Facts::default(), fate).await;
                let id = second.plan_as(order("store", words, class)).await;
                let at = format!("{fate:?} {class}, then {words}, by the parent: {by_parent}");
                assert_eq!(is_asked(second, &id, Facts::default(), &at).await, wanted, "{at}");
            }
        }
    }
}

/// Two servers are two: both are there, and they are different places.
#[tokio::test]
async fn two_servers_that_are_there_and_elsewhere_are_two() {
    let to = |account: &str| Facts { destination: Some(samples::destination(account)), ..Facts::default() };
    for (old_is_there, account, wanted) in
        [(true, "work", true), (true, "home", false), (false, "work", true), (false, "home", true)]
    {
        let (parent, child) = fork().await;
        let id = parent.plan_as(order("shop", "a book", SideEffectClass::External)).await;
        parent.take(&id, &to("work"), Fate::Done).await;
        let names = ["mcp__store__order", "mcp__shop__order"].into_iter().take(if old_is_there { 2 } else { 1 });
        let there: BTreeMap<_, _> = names.map(|name| (name.to_owned(), sha256(name))).collect();
        let child = Member { ledger: child.ledger.with_definitions(there), ..child };
        let id = child.plan_as(order("store", "a book", SideEffectClass::External)).await;
        let at = format!("the old name is there: {old_is_there}, as {account}");
        assert_eq!(is_asked(&child, &id, to(account), &at).await, wanted, "{at}");
    }
}

/// In its own run a model knows what it did; of what is in doubt it knows nothing.
#[tokio::test]
async fn what_is_in_doubt_is_not_sent_again_under_another_name_of_its_server() {
    for (fate, wanted) in [(Fate::Done, false), (Fate::Lost, true)] {
        for server in ["store", "ua"] {
            let (run, _) = fork().await;
            let id = run.plan_as(order("shop", "a book", SideEffectClass::External)).await;
            run.take(&id, &Facts::default(), fate).await;
            if fate == Fate::Lost {
                leave(&run, &id).await;
            }
            let id = run.plan_as(order(server, "a book", SideEffectClass::External)).await;
            let at = format!("{fate:?}, then of {server}");
            // A server that comes with the program has its name from no configuration.
            let wanted = wanted && server != "ua";
            assert_eq!(is_asked(&run, &id, Facts::default(), &at).await, wanted, "{at}");
        }
    }
}

/// Nor is it where the model began with an empty context since.
#[tokio::test]
async fn what_a_model_has_forgotten_is_asked_about_under_another_name_of_its_server() {
    for has_forgotten in [false, true] {
        let (run, _) = fork().await;
        let id = run.plan_as(order("shop", "a book", SideEffectClass::External)).await;
        run.take(&id, &Facts::default(), Fate::Done).await;
        if has_forgotten {
            run.ledger.context_begins(2);
        }
        let id = run.plan_as(order("store", "a book", SideEffectClass::External)).await;
        let at = format!("forgotten: {has_forgotten}");
        assert_eq!(is_asked(&run, &id, Facts::default(), &at).await, has_forgotten, "{at}");
    }
}

/// A call in doubt that a fork made again under another name is not sent once more by itself.
#[tokio::test]
async fn a_call_in_doubt_is_overtaken_under_another_name_of_its_server() {
    for overtaken in [false, true] {
        let (parent, child) = fork().await;
        let keyed = |server| {
            move |id: &str, turn: u32| {
                let mut call = order(server, "a book", SideEffectClass::External)(id, turn);
                call.policy.on_unknown = OnUnknown::RedoKeyed;
                call
            }
        };
        let lost = parent.plan_as(keyed("shop")).await;
        parent.take(&lost, &Facts::default(), Fate::Lost).await;
        if overtaken {
            let id = child.plan_as(keyed("store")).await;
            let Admission::Held(question) = child.ledger.admit(&id, Facts::default()).await.unwrap() else {
                panic!("not held")
            };
            child.answer(&question, Choice::Execute).await;
            child.take(&id, &Facts::default(), Fate::Done).await;
        }
        let Admission::Unknown(unknown) = parent.ledger.admit(&lost, Facts::default()).await.unwrap() else {
            panic!("not in doubt")
        };
        let Recovery::Decided(decided) = parent.ledger.recover(&unknown, &Facts::default()).await.unwrap() else {
            panic!("not decided")
        };
        let is_held = match *decided {
            Admission::Held(question) => {
                assert!(question.text.contains("may have had the effect since"), "{}", question.text);
                true
            }
            Admission::Ready(_) => false,
            other @ (Admission::Settled(_)
            | Admission::Continues(_)
            | Admission::Ongoing(_)
            | Admission::WaitFor(_)
            | Admission::Unknown(_)) => panic!("{other:?}"),
        };
        assert_eq!(is_held, overtaken);
    }
}
