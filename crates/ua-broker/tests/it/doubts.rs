//! Calls in doubt that nobody asks for again: a person is asked by the next broker itself, and what they say is applied when they say it.

use serde_json::json;
use ua_core::{CallStatus, Resolution};
use ua_store::{Choice, QuestionKind};

use crate::world::{GatewayWorld, mail, told, until};

/// Client, bridge and broker are killed with two calls on their way. The next broker asks about the one that nothing but a person can tell of, before
/// any client is there, and leaves the one with a key to its client; the answer settles the call, and nothing is sent twice.
#[test]
fn what_an_earlier_broker_left_in_doubt_is_asked_and_settled_without_a_client() {
    let charge = json!({"amount": 7});
    for choice in [Choice::Happened, Choice::Skip] {
        let world = GatewayWorld::new();
        world.behave("hold");
        let (mut one, mut two) = (world.session("s1").greet(), world.session("s2").greet());
        one.call("send_email", &mail());
        world.until_effects(1);
        two.call("charge_card", &charge);
        world.until_effects(2);
        one.killed();
        two.killed();
        world.kill_broker();
        world.until_no_broker();
        world.let_go();
        assert_eq!(world.questions(), [], "{choice:?}");
        world.over_http();
        let question = until("a question", || world.questions().pop());
        assert_eq!(question.kind, QuestionKind::UnknownOutcome, "{choice:?}");
        let call = || world.calls("send_email").pop().unwrap();
        assert_eq!(question.call_id, Some(call().call_id), "{choice:?}");
        world.answer(&question, choice);
        let settled = until("the call to be settled", || {
            Some(call()).filter(|call| call.status != CallStatus::Unknown || call.resolution.is_some())
        });
        if choice == Choice::Happened {
            assert_eq!(settled.status, CallStatus::Succeeded);
        } else {
            assert_eq!((settled.status, settled.resolution), (CallStatus::Unknown, Some(Resolution::Skipped)));
        }
        // The key tells what came of the other one, and its client alone has the tool server.
        let keyed = world.calls("charge_card").pop().unwrap();
        assert_eq!((world.questions().len(), keyed.status), (0, CallStatus::Unknown), "{choice:?}");
        // Whoever asks, as somebody else, too.
        let mut next = world.session("s3").greet();
        let again = next.result("send_email", &mail());
        let expected = if choice == Choice::Happened { "happened" } else { "unknown" };
        assert_eq!((told(&again), world.effects().len()), (expected, 2), "{again}");
        next.done();
        world.check();
    }
}

/// What is not known by its content is the same call for everybody as long as it is in doubt: it is settled when somebody asks, so that a client that
/// is somebody else since its kill is told what a person said, and it is not sent again.
#[test]
fn what_is_not_known_by_its_content_is_settled_when_somebody_asks() {
    let line = json!({"text": "a"});
    let world = GatewayWorld::new();
    world.behave("hold");
    let (mut one, mut two) = (world.session("s1").greet(), world.session("s2").greet());
    one.call("append_line", &line);
    world.until_effects(1);
    two.call("send_email", &mail());
    world.until_effects(2);
    one.killed();
    two.killed();
    world.kill_broker();
    world.until_no_broker();
    world.let_go();
    world.over_http();
    until("two questions", || (world.questions().len() == 2).then_some(()));
    let of_line = world.calls("append_line").pop().unwrap().call_id;
    // In this order, so that the second one being settled says that the first one was looked at.
    let mut questions = world.questions();
    questions.sort_by_key(|question| question.call_id.as_ref() != Some(&of_line));
    for question in &questions {
        world.answer(question, Choice::Happened);
    }
    until("the e-mail to be settled", || (world.calls("send_email")[0].status == CallStatus::Succeeded).then_some(()));
    assert_eq!(world.calls("append_line")[0].status, CallStatus::Unknown);
    let mut next = world.session("s3").greet();
    let again = next.result("append_line", &line);
    assert_eq!((told(&again), world.effects().len()), ("happened", 2), "{again}");
    next.done();
    world.check();
}
