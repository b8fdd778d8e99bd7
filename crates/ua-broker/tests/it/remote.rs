//! A tool server that is reached over Streamable HTTP.

use std::fs;

use serde_json::json;
use ua_store::{Choice, QuestionKind};

use crate::world::{GatewayWorld, mail, text, told, until};

#[test]
fn it_is_spoken_to_as_one_over_pipes_and_its_session_ends_with_the_client() {
    let world = GatewayWorld::remote();
    world.behave("tells");
    let mut client = world.client().greet();
    let by_itself = client.hear("what it tells by itself", |message| message["method"] == "notifications/message");
    assert_eq!(by_itself["params"]["data"], "by itself");
    let id = client.request("tools/list", &json!({}));
    assert_eq!(client.answer(id)["result"]["tools"][0]["x-unknown"], json!([1]));
    let id = client.request("prompts/list", &json!({}));
    assert_eq!(client.answer(id)["error"]["data"], json!({"x": 1}));
    let params = json!({"name": "send_email", "arguments": mail(), "_meta": {"progressToken": "p1"}});
    let id = client.request("tools/call", &params);
    let progress = client.hear("progress", |message| message["method"] == "notifications/progress");
    assert_eq!(progress["params"]["progressToken"], "p1");
    assert_eq!(text(&client.answer(id)["result"]), "done, 1 so far");
    let read = client.result("read_page", &json!({"page": "7"}));
    assert_eq!(read["structuredContent"], json!({"page": "7"}));
    client.done();
    until("the end of the session", || (world.lines("over") == ["s1"]).then_some(()));
    // What the header holds is in nothing that is kept.
    for entry in fs::read_dir(world.folder.path()).unwrap().flatten().filter(|entry| entry.path().is_file()) {
        let bytes = fs::read(entry.path()).unwrap();
        assert!(!bytes.windows(4).any(|bytes| bytes == b"hush"), "{:?}", entry.path());
    }
    world.check();
}

/// G8, upstream: a session that is over refuses a request unread, so it is made in the next one, which begins as the client began the first. Before a
/// call is sent it is found out that it is over, so that nobody is asked about it.
#[test]
fn a_forgotten_session_is_begun_again_and_nothing_is_sent_twice() {
    let world = GatewayWorld::remote();
    let mut client = world.client().greet();
    let count = |method: &str| world.said().iter().filter(|message| message["method"] == method).count();
    // A notification has no answer that could be waited for; one that came later would be what is refused.
    let until_greeted = |times| until("a greeting", || (count("notifications/initialized") == times).then_some(()));
    until_greeted(1);
    world.behave("forget");
    let id = client.request("resources/list", &json!({}));
    assert_eq!(client.answer(id)["result"]["resources"][0]["uri"], "stub://a");
    assert_eq!(text(&client.result("send_email", &mail())), "done, 1 so far");
    until_greeted(2);
    fs::write(world.path("later"), "5").unwrap();
    world.behave("forget");
    assert_eq!(text(&client.result("append_line", &json!({"text": "a"}))), "done, 2 so far");
    until_greeted(3);
    assert_eq!((count("initialize"), count("notifications/initialized"), count("tools/call")), (3, 3, 2));
    assert_eq!(world.questions(), [], "nobody is asked");
    client.done();
    world.check();
}

/// What an extension's request does is not known, so that one is not made again by itself where the session is over.
#[test]
fn only_what_asks_is_asked_again_in_the_next_session() {
    let world = GatewayWorld::remote();
    let mut client = world.client().greet();
    // A notification that came later would be what is refused.
    let is_greeted =
        || world.said().iter().any(|message| message["method"] == "notifications/initialized").then_some(());
    until("a greeting", is_greeted);
    let id = client.request("example/act", &json!({}));
    assert_eq!(client.answer(id)["result"]["acted"], true);
    world.behave("forget");
    let id = client.request("example/act", &json!({}));
    let refused = client.answer(id)["error"]["message"].to_string();
    assert!(refused.contains("404"), "{refused}");
    assert_eq!(world.effects().len(), 1);
    let id = client.request("example/act", &json!({}));
    assert_eq!((client.answer(id)["result"]["acted"].clone(), world.effects().len()), (json!(true), 2));
    client.done();
}

/// What finds no session any more may not be what got the call: a person says what came of it, and nothing is sent before.
#[test]
fn a_call_that_is_said_to_be_rejected_unread_is_in_doubt() {
    let world = GatewayWorld::remote();
    let mut client = world.client().greet();
    world.behave("denied");
    for _ in 0..2 {
        let unknown = client.result("append_line", &json!({"text": "a"}));
        assert!(told(&unknown) == "unknown" && text(&unknown).contains("rejected it unread"), "{unknown}");
    }
    let questions = world.questions();
    assert_eq!((questions.len(), questions[0].kind), (1, QuestionKind::UnknownOutcome));
    world.answer(&questions[0], Choice::Happened);
    let happened = client.result("append_line", &json!({"text": "a"}));
    assert!(told(&happened) == "happened" && !text(&happened).contains("Do not send it again"), "{happened}");
    assert_eq!(world.effects().len(), 1);
    client.done();
    world.check();
}

#[test]
fn a_stream_that_breaks_behind_the_effect_is_taken_up_again_and_no_call_is_posted_for_it() {
    let world = GatewayWorld::remote();
    let mut client = world.client().greet();
    world.behave("cut");
    assert_eq!(text(&client.result("send_email", &mail())), "done, 1 so far");
    assert_eq!(world.said().iter().filter(|message| message["method"] == "tools/call").count(), 1);
    client.done();
    world.check();
}

#[test]
fn an_answer_that_is_lost_leaves_a_question_or_is_had_under_its_key() {
    let world = GatewayWorld::remote();
    let mut client = world.client().greet();
    world.behave("die");
    let lost = client.result("send_email", &mail());
    assert_eq!((told(&lost), world.effects().len()), ("unknown", 1), "{lost}");
    let questions = world.questions();
    assert_eq!((questions.len(), questions[0].kind), (1, QuestionKind::UnknownOutcome));
    assert_eq!(told(&client.result("send_email", &mail())), "unknown");
    world.answer(&questions[0], Choice::Happened);
    assert_eq!(client.result("send_email", &mail())["isError"], false);
    world.behave("die");
    let charged = client.result("charge_card", &json!({"amount": 7}));
    assert_eq!(text(&charged), "done, 2 so far", "{charged}");
    let charges = world.said().into_iter().filter(|message| message["params"]["name"] == "charge_card");
    assert_eq!((charges.count(), world.effects().len()), (2, 2));
    client.done();
    world.check();
}

/// What comes with a status may be next to nothing, so the status is said.
#[test]
fn an_unknown_outcome_names_the_status_that_was_its_answer() {
    for (behaves, words) in [
        ("fails", "its outcome is unknown: its tool server answered HTTP status 500: {}."),
        ("moved", "answered HTTP status 307: the tool server redirects elsewhere"),
        (
            "denied",
            "rejected it unread, which does not prove that it has no effect (its session is over (HTTP status 404))",
        ),
        (
            "turned_away",
            "rejected it unread, which does not prove that it has no effect (HTTP status 429: its server said",
        ),
    ] {
        let world = GatewayWorld::remote();
        let mut client = world.client().greet();
        world.behave(behaves);
        for _ in 0..2 {
            let lost = client.result("send_email", &mail());
            assert_eq!((told(&lost), world.effects().len()), ("unknown", 1), "{lost}");
            assert!(text(&lost).contains(words), "{lost}");
        }
        client.done();
        world.check();
    }
}

/// G5 over HTTP: nobody can be killed there, so the broker's end leaves the call in doubt, and the request is answered all the same.
#[test]
fn a_request_outlives_its_broker() {
    let world = GatewayWorld::remote();
    world.behave("hold");
    let mut client = world.client().greet();
    let id = client.call("send_email", &mail());
    world.until_effects(1);
    world.kill_broker();
    let result = client.answer(id)["result"].clone();
    assert_eq!((told(&result), world.effects().len()), ("unknown", 1), "{result}");
    world.let_go();
    let read = client.result("read_page", &json!({"page": "1"}));
    assert_eq!(read["structuredContent"]["page"], "1");
    client.done();
    world.check();
}

/// G7: whoever waited goes away; the answer is there for the next who asks.
#[test]
fn a_late_answer_is_handed_to_the_next_who_asks() {
    let world = GatewayWorld::remote();
    world.behave("hold");
    let mut client = world.client().greet();
    client.call("send_email", &mail());
    world.until_effects(1);
    client.killed();
    world.until_askers(0);
    let mut next = world.client().greet();
    let id = next.call("send_email", &mail());
    world.until_askers(1);
    world.let_go();
    assert_eq!((text(&next.answer(id)["result"]).lines().next(), world.effects().len()), (Some("done, 1 so far"), 1));
    next.done();
    world.check();
}
