//! A process of a tool server is ended for one call only when no other one that has an effect is under way in it.

use std::fs;

use serde_json::json;
use ua_core::CallStatus;
use ua_store::{Choice, QuestionKind};

use crate::world::{GatewayWorld, text, told, until};

/// A read without an answer is made again a few times beside the effect, and told to its client; what has an effect is answered by the process that
/// it was sent to.
#[test]
fn a_read_without_an_answer_ends_no_process_in_which_an_effect_is_under_way() {
    let world = GatewayWorld::new();
    world.behave("hold");
    let mut client = world.client().greet();
    let effect = client.call("append_line", &json!({"text": "a"}));
    world.until_effects(1);
    let read = client.result("peek_page", &json!({}));
    assert_eq!((told(&read), read["isError"].clone()), ("read_lost", json!(true)), "{read}");
    assert!(text(&read).contains("no answer within 0.3 s (it was sent 3 times)"), "{read}");
    world.let_go();
    let answer = client.answer(effect)["result"].clone();
    assert_eq!((text(&answer).as_str(), world.effects().len()), ("done, 1 so far", 1), "{answer}");
    // Each was sent, one after the other, and to one process.
    let sent = || world.said().into_iter().filter(|message| message["params"]["name"] == "peek_page").count();
    until("the reads that it had", || (sent() == 3).then_some(()));
    assert_eq!(world.lines("servers").len(), 1);
    assert_eq!(text(&client.result("peek_page", &json!({}))), "peeked");
    client.done();
    world.check();
}

/// A process that does nothing else is ended, and the read is made by the next one.
#[test]
fn a_read_without_an_answer_is_made_by_another_process_where_nothing_else_is_under_way() {
    let world = GatewayWorld::new();
    let mut client = world.client().greet();
    world.behave("mute");
    let read = client.call("peek_page", &json!({}));
    until("the next process", || (world.lines("servers").len() == 2).then_some(()));
    fs::remove_file(world.path("stub/mute")).unwrap();
    assert_eq!(text(&client.answer(read)["result"]), "peeked");
    client.done();
    world.check();
}

/// An effect whose answer is lost is made again under its key, by a process that is begun when the other effects of the first have their answers.
#[test]
fn a_process_is_ended_for_an_effect_in_doubt_when_the_others_in_it_are_answered() {
    let world = GatewayWorld::new();
    world.behave("mute");
    let mut client = world.session("s1").greet();
    let waits = client.call("append_line", &json!({"text": "a"}));
    world.until_effects(1);
    fs::remove_file(world.path("stub/mute")).unwrap();
    fs::write(world.path("stub/raw"), r#"{"jsonrpc":"2.0","id":ID,"result":7}"#).unwrap();
    client.session = Some("s2".to_owned());
    let doubtful = client.call("charge_card", &json!({"amount": 7}));
    let is_in_doubt = || world.calls("charge_card").first().is_some_and(|call| call.status == CallStatus::Unknown);
    until("the doubt", || is_in_doubt().then_some(()));
    fs::remove_file(world.path("stub/raw")).unwrap();
    // The broker goes on meanwhile; a process that was ended by now would be no more.
    for _ in 0..3 {
        let id = client.request("ping", &json!({}));
        client.answer(id);
    }
    assert_eq!(world.lines("servers").len(), 1);
    fs::write(world.path("stub/speak"), "").unwrap();
    let answer = client.answer(waits)["result"].clone();
    assert_eq!((text(&answer).as_str(), answer["isError"].clone()), ("done, 1 so far", json!(false)), "{answer}");
    assert_eq!(text(&client.answer(doubtful)["result"]), "done, 2 so far");
    assert_eq!((world.effects().len(), world.lines("servers").len()), (2, 2));
    client.done();
    world.check();
}

/// An effect whose policy says how long its answer may take is in doubt when that is over, as in a run, and a person is asked.
#[test]
fn an_effect_whose_time_is_up_is_in_doubt() {
    let world = GatewayWorld::new();
    world.behave("mute");
    let mut client = world.client().greet();
    let doubtful = client.result("press_button", &json!({"text": "a"}));
    assert_eq!((told(&doubtful), world.effects().len()), ("unknown", 1), "{doubtful}");
    assert!(text(&doubtful).contains("no answer within 0.3 s"), "{doubtful}");
    let questions = world.questions();
    assert_eq!((questions.len(), questions[0].kind), (1, QuestionKind::UnknownOutcome));
    fs::remove_file(world.path("stub/mute")).unwrap();
    world.answer(&questions[0], Choice::Happened);
    assert_eq!(client.result("press_button", &json!({"text": "a"}))["isError"], false);
    assert_eq!(world.effects().len(), 1);
    client.done();
    world.check();
}
