//! A tool server whose tools are others than they were when they were listed.

use serde_json::{Value, json};
use ua_core::{CallStatus, SideEffectClass};
use ua_store::{Choice, QuestionKind};

use crate::world::{Client, GatewayWorld, text, told, until};

const CHANGED: &str = "notifications/tools/list_changed";

/// Lets the tool server end behind its answer, and waits until another process of it has begun.
fn start_again(world: &GatewayWorld, client: &mut Client, line: &str) {
    let before = world.lines("servers").len();
    world.behave("end");
    client.result("append_line", &json!({ "text": line }));
    until("another process of the tool server", || {
        let id = client.request("resources/list", &json!({}));
        client.answer(id);
        (world.lines("servers").len() > before).then_some(())
    });
}

fn description(client: &mut Client, tool: &str) -> Value {
    let id = client.request("tools/list", &json!({}));
    let listed = client.answer(id);
    let tools = listed["result"]["tools"].as_array().unwrap();
    tools.iter().find(|listed| listed["name"] == tool).unwrap()["description"].clone()
}

/// A read that became an effect behind a restart is judged as one, and the client hears that its list is out of date.
#[test]
fn a_tool_that_is_another_one_behind_a_restart_is_judged_anew() {
    let world = GatewayWorld::new();
    let mut client = world.client().greet();
    let page = json!({"page": "7"});
    assert_eq!(client.result("read_page", &page)["structuredContent"], page);
    assert_eq!(description(&mut client, "read_page"), "A tool.");
    start_again(&world, &mut client, "a");
    // It is another process with the same tools, so nobody is told anything.
    client.result("read_page", &page);
    assert!(client.heard.iter().all(|message| message["method"] != CHANGED));

    world.behave("changed");
    start_again(&world, &mut client, "b");
    client.result("read_page", &page);
    client.hear("that the tools changed", |message| message["method"] == CHANGED);
    assert_eq!(description(&mut client, "read_page"), "Publishes a page.");
    let classes: Vec<SideEffectClass> = world.calls("read_page").iter().map(|call| call.policy.class).collect();
    assert_eq!(classes, [SideEffectClass::ReadOnly, SideEffectClass::ReadOnly, SideEffectClass::External]);
    client.done();
    world.check();
}

/// What was sent under its key is not sent under it again once the tool that knew the key is another one: a person is asked.
#[test]
fn a_call_in_doubt_is_not_repeated_to_another_tool() {
    let world = GatewayWorld::new();
    let mut client = world.client().greet();
    let amount = json!({"amount": 7});
    // The tools are known, and change while the call is with the server.
    client.result("read_page", &json!({"page": "7"}));
    world.behave("changed");
    world.behave("die");
    client.result("charge_card", &amount);
    let asked = client.result("charge_card", &amount);
    assert_eq!((told(&asked), world.effects().len()), ("unknown", 1), "{asked}");
    let questions = world.questions();
    assert_eq!((questions.len(), questions[0].kind), (1, QuestionKind::UnknownOutcome));
    assert!(questions[0].text.contains("the definition of its tool has changed"), "{}", questions[0].text);
    world.answer(&questions[0], Choice::Happened);
    client.result("charge_card", &amount);
    assert_eq!(world.effects().len(), 1);
    client.done();
    world.check();
}

/// A word about a call is no word about what its tool became meanwhile: the call ends, and the next one is planned by the tool as it is.
#[test]
fn an_approved_call_does_not_go_out_to_another_tool() {
    let world = GatewayWorld::new();
    let mut client = world.client().greet();
    let amount = json!({"amount": 9});
    assert_eq!(told(&client.result("wire_money", &amount)), "held");
    let first = world.questions().pop().unwrap();
    world.behave("changed");
    client.result("append_line", &json!({"text": "tell of changes"}));
    client.hear("that the tools changed", |message| message["method"] == CHANGED);
    world.answer(&first, Choice::Execute);
    let refused = client.result("wire_money", &amount);
    assert_eq!((told(&refused), world.effects().len()), ("not_sent", 1), "{refused}");
    assert!(refused.to_string().contains("has changed since this call was planned"), "{refused}");
    assert_eq!(told(&client.result("wire_money", &amount)), "held");
    let second = world.questions();
    assert!(second.len() == 1 && second[0].question_id != first.question_id, "{second:?}");
    let stands: Vec<CallStatus> = world.calls("wire_money").iter().map(|call| call.status).collect();
    assert_eq!(stands, [CallStatus::Cancelled, CallStatus::Prepared]);
    client.done();
    world.check();
}

/// A call goes out although another tool of its server changed while a person decided: behind a restart of the server as well.
#[test]
fn an_approved_call_goes_out_when_another_tool_changed() {
    for is_started_again in [false, true] {
        let mut world = GatewayWorld::new();
        world.hold_millis = 60_000;
        let mut client = world.client().greet();
        let amount = json!({"amount": 9});
        let asked = client.call("wire_money", &amount);
        let question = until("a question", || world.questions().pop());
        world.behave("read_changed");
        if is_started_again {
            world.kill_server();
        } else {
            client.result("append_line", &json!({"text": "tell of changes"}));
        }
        world.answer(&question, Choice::Execute);
        let answer = client.answer(asked)["result"].clone();
        let count = if is_started_again { 1 } else { 2 };
        assert_eq!(text(&answer), format!("done, {count} so far"), "{is_started_again}");
        client.hear("that the tools changed", |message| message["method"] == CHANGED);
        assert_eq!(description(&mut client, "read_page"), "Publishes a page.");
        client.done();
        world.check();
    }
}

/// The same of a tool that its server does not offer any more.
#[test]
fn an_approved_call_does_not_go_out_to_a_tool_that_is_gone() {
    let world = GatewayWorld::new();
    let mut client = world.client().greet();
    let amount = json!({"amount": 9});
    assert_eq!(told(&client.result("wire_money", &amount)), "held");
    let asked = world.questions().pop().unwrap();
    world.behave("gone");
    client.result("append_line", &json!({"text": "tell of changes"}));
    client.hear("that the tools changed", |message| message["method"] == CHANGED);
    world.answer(&asked, Choice::Execute);
    for _ in 0..2 {
        let refused = client.result("wire_money", &amount);
        assert_eq!((told(&refused), world.effects().len()), ("not_sent", 1), "{refused}");
    }
    let stands: Vec<CallStatus> = world.calls("wire_money").iter().map(|call| call.status).collect();
    assert!(stands.iter().all(|status| *status == CallStatus::Cancelled), "{stands:?}");
    client.done();
    world.check();
}
