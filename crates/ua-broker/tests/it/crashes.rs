//! Processes that die: the broker, the tool server, the bridge.

use serde_json::json;
use ua_store::{Choice, QuestionKind};

use crate::silent::Stopped;
use crate::world::{Client, GatewayWorld, mail, notice, text, told, until};

/// G5: the broker is killed behind the effect. The client's request is answered all the same: by a question, or under the same key.
#[test]
fn a_request_outlives_its_broker() {
    let world = GatewayWorld::new();
    world.behave("hold");
    let mut client = world.client().greet();
    let id = client.call("send_email", &mail());
    world.until_effects(1);
    let killed = world.broker_pid();
    world.kill_broker();
    let result = client.answer(id)["result"].clone();
    assert_eq!(told(&result), "unknown", "{result}");
    assert!(text(&result).contains("ua answer"), "{result}");
    world.let_go();
    assert_ne!(world.broker_pid(), killed);
    // The same again is the same, and nothing is sent.
    let again = client.result("send_email", &mail());
    assert_eq!((told(&again), world.effects().len()), ("unknown", 1));
    let questions = world.questions();
    assert_eq!((questions.len(), questions[0].kind), (1, QuestionKind::UnknownOutcome));
    world.answer(&questions[0], Choice::Happened);
    let settled = client.result("send_email", &mail());
    assert!(settled["isError"] == false && text(&settled).contains("This happened: ada says so"), "{settled}");
    assert_eq!(world.effects().len(), 1);
    // All else works with the next broker.
    let read = client.result("read_page", &json!({"page": "1"}));
    assert_eq!(read["structuredContent"]["page"], "1");
    client.done();
    world.check();
}

/// A client gives up right before its broker is killed, while there is none, or while it hangs: nothing is sent for it when a person has it made
/// again, and whoever asks for it next has what comes of it.
#[test]
fn a_cancellation_outlives_the_broker_that_did_not_heed_it() {
    for when in ["before", "between", "stopped"] {
        let world = GatewayWorld::new();
        let wanted = json!({"text": "a"});
        world.behave("hold");
        let mut client = world.session("s1").greet();
        let id = client.call("append_line", &wanted);
        world.until_effects(1);
        let stopped = (when == "stopped").then(|| Stopped::the_broker(&world));
        if when != "between" {
            client.cancel(id);
        }
        world.kill_broker();
        drop(stopped);
        if when == "between" {
            client.cancel(id);
        }
        let read = |client: &mut Client| client.result("read_page", &json!({"page": "1"}));
        let question = until("the question", || world.questions().pop());
        // Lines are read in their order, so it has heard the cancellation when it answers this.
        world.let_go();
        read(&mut client);
        world.until_askers(0);
        world.answer(&question, Choice::Execute);
        read(&mut client);
        assert_eq!(world.effects().len(), 1, "{when}: it was sent for nobody");
        let result = client.result("append_line", &wanted);
        assert_eq!((result["isError"].clone(), world.effects().len()), (json!(false), 2), "{when}: {result}");
        assert!(client.heard.iter().all(|said| said["id"] != id), "{when}: {:?}", client.heard);
        client.done();
        world.check();
    }
}

#[test]
fn a_keyed_call_is_made_again_under_its_key_when_the_broker_dies() {
    let world = GatewayWorld::new();
    world.behave("hold");
    let mut client = world.client().greet();
    let id = client.call("charge_card", &json!({"amount": 7}));
    world.until_effects(1);
    world.kill_broker();
    world.let_go();
    let result = client.answer(id)["result"].clone();
    assert_eq!((text(&result).as_str(), world.effects().len()), ("done, 1 so far", 1), "{result}");
    let calls = world.said().into_iter().filter(|message| message["method"] == "tools/call").count();
    assert_eq!(calls, 2, "asked twice under one key");
    client.done();
    world.check();
}

/// A request of an extension that a broker was killed over is not passed on by the next one: nothing is stored of it, and it may do something.
#[test]
fn what_is_not_known_to_ask_only_is_not_sent_again_by_the_next_broker() {
    let world = GatewayWorld::new();
    let mut client = world.client().greet();
    world.behave("hold");
    let id = client.request("example/act", &json!({}));
    world.until_effects(1);
    world.kill_broker();
    let refused = client.answer(id)["error"]["message"].to_string();
    assert!(refused.contains("an earlier broker"), "{refused}");
    world.let_go();
    // What only asks is asked as ever.
    let listed = client.request("resources/list", &json!({}));
    assert_eq!(client.answer(listed)["result"]["resources"][0]["uri"], "stub://a");
    assert_eq!(world.effects().len(), 1);
    client.done();
}

/// G6: the tool server is killed behind the effect: a question, and other words for it are a rival.
#[test]
fn a_tool_server_that_dies_leaves_a_question() {
    let world = GatewayWorld::new();
    let mut client = world.client().greet();
    world.behave("die");
    let result = client.result("send_email", &mail());
    assert_eq!(told(&result), "unknown", "{result}");
    let mut reworded = mail();
    reworded["body"] = json!("It is done.");
    let rival = client.result("send_email", &reworded);
    assert_eq!(told(&rival), "rival", "{rival}");
    // Another session of the project is not let past either.
    let mut other = world.session("s2").greet();
    assert_eq!(told(&other.result("send_email", &reworded)), "rival");
    assert_eq!(told(&other.result("send_email", &mail())), "unknown");
    assert_eq!(world.effects().len(), 1);
    let question =
        world.questions().into_iter().find(|question| question.kind == QuestionKind::UnknownOutcome).unwrap();
    world.answer(&question, Choice::Execute);
    let sent = client.result("send_email", &mail());
    assert_eq!((text(&sent).as_str(), world.effects().len()), ("done, 2 so far", 2), "a person said so: {sent}");
    client.done();
    world.check();
}

/// While it waits for a person, the request itself gets what comes of the answer.
#[test]
fn an_answer_in_time_answers_the_request() {
    let mut world = GatewayWorld::new();
    world.hold_millis = 60_000;
    let mut client = world.client().greet();
    world.behave("die");
    let id = client.call("send_email", &mail());
    let question = until("a question", || world.questions().pop());
    world.answer(&question, Choice::Execute);
    assert_eq!(text(&client.answer(id)["result"]), "done, 2 so far");
    assert_eq!(world.effects().len(), 2);
}

/// A tool server that dies before it did anything, as far as anybody can tell, is the same.
#[test]
fn a_read_is_made_again_when_its_server_died() {
    let world = GatewayWorld::new();
    let mut client = world.client().greet();
    client.result("read_page", &json!({"page": "1"}));
    world.kill_server();
    let read = until("the next server", || {
        let read = client.result("read_page", &json!({"page": "2"}));
        (read["isError"] != true).then_some(read)
    });
    assert_eq!(read["structuredContent"]["page"], "2");
}

/// The bridge is killed: the call goes on, and the next bridge of the client has its answer.
#[test]
fn a_call_outlives_its_bridge() {
    let world = GatewayWorld::new();
    world.behave("hold");
    let mut client = world.session("s1").greet();
    client.call("append_line", &json!({"text": "a"}));
    world.until_effects(1);
    client.bridge_killed();
    let mut next = world.session("s1").greet();
    let id = next.call("append_line", &json!({"text": "a"}));
    world.let_go();
    let result = next.answer(id)["result"].clone();
    assert!(text(&result).starts_with("done, 1 so far"), "{result} {}", notice(&result));
    assert_eq!(world.effects().len(), 1);
    next.done();
    world.check();
}

/// A database that was put back from a copy has forgotten what its session sent: nothing is sent before somebody has looked.
#[test]
fn a_session_whose_sends_are_forgotten_sends_nothing_again() {
    let world = GatewayWorld::new();
    let (database, copy) = (world.path("runtime_state.db"), world.path("copy.db"));
    let mut client = world.session("s1").greet();
    client.result("read_page", &json!({"page": "1"}));
    ua_store_sqlite::backup(&database, &copy).unwrap();
    let sent = client.result("send_email", &mail());
    assert_eq!((sent["isError"].clone(), world.effects().len()), (json!(false), 1), "{sent}");
    client.done();
    world.kill_broker();
    until("the copy in place", || ua_store_sqlite::restore(&copy, &database, ua_core::system::env().now()).ok());
    let mut again = world.session("s1").greet();
    let id = again.call("send_email", &mail());
    let answer = again.answer(id).to_string();
    assert!(answer.contains("is an older copy") && answer.contains("ua db accept"), "{answer}");
    assert_eq!(world.effects().len(), 1);
    again.done();
}

/// And so does every other session of the project, which a doubt about it would reach.
#[test]
fn what_a_session_sent_and_is_forgotten_is_not_sent_again_by_another_one_of_its_project() {
    let world = GatewayWorld::new();
    let (database, copy) = (world.path("runtime_state.db"), world.path("copy.db"));
    let mut client = world.session("s1").greet();
    client.result("read_page", &json!({"page": "1"}));
    ua_store_sqlite::backup(&database, &copy).unwrap();
    let sent = client.result("send_email", &mail());
    assert_eq!((sent["isError"].clone(), world.effects().len()), (json!(false), 1), "{sent}");
    client.done();
    world.kill_broker();
    until("the copy in place", || ua_store_sqlite::restore(&copy, &database, ua_core::system::env().now()).ok());
    let mut other = world.session("s2").greet();
    let id = other.call("send_email", &mail());
    let answer = other.answer(id).to_string();
    assert!(answer.contains("is an older copy") && answer.contains("ua db accept"), "{answer}");
    assert_eq!(world.effects().len(), 1);
    other.done();
}
