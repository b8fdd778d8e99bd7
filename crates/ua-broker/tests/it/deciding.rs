//! Questions in the client's own dialogue, and budgets.

use std::fs;

use serde_json::{Value, json};
use ua_core::CallStatus;
use ua_ledger::NotTaken;
use ua_store::{Answer, Choice, QuestionKind, QuestionRecord};

use crate::eras::signed;
use crate::world::{GatewayWorld, mail, notice, text, told, until};

fn wire() -> Value {
    json!({"amount": 9})
}

/// G12: the client's dialogue decides, on its connection.
#[test]
fn a_person_decides_in_the_clients_dialogue() {
    for (decision, effects) in [("approve", 1), ("skip", 0)] {
        let mut world = GatewayWorld::new();
        world.hold_millis = 60_000;
        let mut client = world.client().greet();
        let id = client.call("wire_money", &wire());
        let asked = client.hear("the question", |message| message["method"] == "elicitation/create");
        let choices = asked["params"]["requestedSchema"]["properties"]["decision"]["enum"].as_array().unwrap().clone();
        assert!(choices.contains(&json!(decision)) && !choices.contains(&json!("abort")), "{asked}");
        let content = json!({"decision": decision});
        client.say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": content}}));
        let result = client.answer(id)["result"].clone();
        assert_eq!(world.effects().len(), effects, "{decision}: {result}");
        assert_eq!(result["isError"] == false, effects == 1, "{decision}: {result}");
        client.done();
        world.check();
    }
}

/// What the model reads of who decided is a sentence, whichever way the word came.
#[test]
fn whoever_decides_in_a_dialogue_is_named_in_words() {
    let mut world = GatewayWorld::new();
    world.hold_millis = 60_000;
    world.behave("die");
    let mut client = world.client().greet();
    let id = client.call("append_line", &json!({"text": "a"}));
    let asked = client.hear("the question", |message| message["method"] == "elicitation/create");
    let content = json!({"decision": "happened", "proof": "m-9"});
    client.say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": content}}));
    let result = client.answer(id)["result"].clone();
    assert!(text(&result).contains("This happened: a person in the dialogue of "), "{result}");
    assert!(text(&result).contains(" says so (m-9)."), "{result}");
    client.done();
    world.check();
}

/// A headless client says at once that nobody chose: the question stays open, and the model is told where it is answered.
#[test]
fn a_dialogue_with_nobody_in_front_of_it_decides_nothing() {
    for action in ["decline", "cancel"] {
        let mut world = GatewayWorld::new();
        world.hold_millis = 60_000;
        let mut client = world.client().greet();
        let id = client.call("wire_money", &wire());
        let asked = client.hear("the question", |message| message["method"] == "elicitation/create");
        client.say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": action}}));
        assert_eq!(told(&client.answer(id)["result"]), "held");
        let questions = world.questions();
        assert_eq!((questions.len(), questions[0].kind), (1, QuestionKind::Approval));
        // It is not asked again, and does not wait for anybody.
        let again = client.result("wire_money", &wire());
        assert!(told(&again) == "held" && client.heard.iter().all(|message| message["method"] != "elicitation/create"));
        world.answer(&questions[0], ua_store::Choice::Execute);
        assert_eq!(text(&client.result("wire_money", &wire())), "done, 1 so far");
        client.done();
        world.check();
    }
}

/// What is answered elsewhere is not asked in the client's dialogue any longer: whatever is typed there would be lost.
#[test]
fn a_dialogue_is_taken_back_when_its_question_is_answered_elsewhere() {
    let mut world = GatewayWorld::new();
    world.hold_millis = 60_000;
    let mut client = world.client().greet();
    let id = client.call("wire_money", &wire());
    let asked = client.hear("the question", |message| message["method"] == "elicitation/create");
    world.answer(&world.questions()[0], Choice::Execute);
    let taken_back = client.hear("its end", |message| message["method"] == "notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], asked["id"], "{taken_back}");
    assert_eq!(text(&client.answer(id)["result"]), "done, 1 so far");
    client.done();
    world.check();
}

/// The same for a client of the newer era, which is asked in the place of a result and comes back.
#[test]
fn a_person_decides_in_the_dialogue_of_a_client_of_the_newer_era() {
    let mut world = GatewayWorld::new();
    world.hold_millis = 60_000;
    let mut client = world.client();
    let forms = json!({"elicitation": {"form": {}}});
    let call = json!({"name": "wire_money", "arguments": wire()});
    let id = client.request("tools/call", &signed(&forms, call.clone()));
    let wanted = client.answer(id)["result"].clone();
    assert_eq!(wanted["inputRequests"]["decision"]["method"], "elicitation/create", "{wanted}");
    let mut back = call;
    back["requestState"] = wanted["requestState"].clone();
    back["inputResponses"] = json!({"decision": {"action": "accept", "content": {"decision": "execute"}}});
    let id = client.request("tools/call", &signed(&forms, back));
    let answer = client.answer(id);
    assert_eq!((text(&answer["result"]).as_str(), world.effects().len()), ("done, 1 so far", 1), "{answer}");
    client.killed();
    world.check();
}

/// What a day has is had: another call is refused before anything is sent, by the next broker too.
#[test]
fn a_budget_is_kept_over_sessions_and_brokers() {
    let world = GatewayWorld::new();
    fs::write(world.path("budget"), "2").unwrap();
    let mail_to = |to: &str| {
        let mut mail = mail();
        mail["to"] = json!(to);
        mail
    };
    let mut client = world.session("s1").greet();
    client.result("send_email", &mail_to("a@example.com"));
    // The same again is none of its own.
    client.result("send_email", &mail_to("a@example.com"));
    let mut other = world.session("s2").greet();
    other.result("send_email", &mail_to("b@example.com"));
    let refused = other.result("send_email", &mail_to("c@example.com"));
    assert_eq!(told(&refused), "budget", "{refused}");
    assert!(text(&refused).contains("2 `email.send` of `stub` per day"), "{refused}");
    world.kill_broker();
    let refused = until("the next broker", || {
        let refused = other.result("send_email", &mail_to("c@example.com"));
        (told(&refused) == "budget").then_some(refused)
    });
    assert_eq!((world.effects().len(), refused["isError"] == true), (2, true));
    // Everything else goes on.
    assert_eq!(other.result("append_line", &json!({"text": "a"}))["isError"], false);
    client.done();
    other.done();
    world.check();
}

/// What a person says beside the answer is read with what came of the call: whoever waits reads it, and whoever asks later.
#[test]
fn what_a_person_says_beside_an_answer_reaches_the_model() {
    let line = json!({"text": "a"});
    for (choice, waits) in [
        (Choice::Happened, false),
        (Choice::Happened, true),
        (Choice::Execute, false),
        (Choice::Execute, true),
        (Choice::Skip, false),
        (Choice::Skip, true),
    ] {
        for tool in ["append_line", "wire_money"] {
            let is_doubt = tool == "append_line";
            if !is_doubt && choice == Choice::Happened {
                continue;
            }
            let case = format!("{choice:?} {waits} {tool}");
            let mut world = GatewayWorld::new();
            world.hold_millis = if waits { 60_000 } else { 0 };
            let mut client = world.session("s1").greet();
            if is_doubt {
                world.behave("die");
            }
            let arguments = if is_doubt { line.clone() } else { wire() };
            let id = client.call(tool, &arguments);
            let question = until("a question", || world.questions().pop());
            if !waits {
                client.answer(id);
            }
            world.answer_in_words(&question, Answer::new(choice).text("ask Bob first"));
            let answer = if waits { client.answer(id)["result"].clone() } else { client.result(tool, &arguments) };
            assert!(text(&answer).contains("says: ask Bob first"), "{case}: {answer}");
            client.done();
            world.check();
        }
    }
}

/// What a person says of a call in doubt is a fact, in whichever order it is said and its session is ended: by an `abort` of another question of it, or
/// by a cancel.
#[test]
fn what_happened_counts_whenever_the_session_is_ended() {
    let mail_about = |subject: &str| json!({"to": "bob@example.com", "subject": subject, "body": "Done."});
    for (is_abort, said_first) in [(true, true), (true, false), (false, true), (false, false)] {
        let case = format!("abort {is_abort}, said first {said_first}");
        let world = GatewayWorld::new();
        let mut client = world.session("s1").greet();
        for subject in ["first", "second"] {
            world.behave("die");
            let doubtful = client.result("send_email", &mail_about(subject));
            assert_eq!(told(&doubtful), "unknown", "{case}: {doubtful}");
        }
        let questions = world.questions();
        let about = |subject: &str| {
            let is_it = |question: &&QuestionRecord| question.detail["arguments"]["subject"] == subject;
            questions.iter().find(is_it).unwrap_or_else(|| panic!("{case}: {questions:?}"))
        };
        if said_first {
            world.answer(about("second"), Choice::Happened);
        }
        if is_abort {
            world.answer(about("first"), Choice::Abort);
        } else {
            world.end(&about("first").run_id);
        }
        if !said_first {
            world.answer(about("second"), Choice::Happened);
        }
        let again = client.result("send_email", &mail_about("second"));
        assert_eq!((told(&again), again["isError"].clone()), ("happened", json!(false)), "{case}: {again}");
        // Of the other one nobody has said it.
        let again = client.result("send_email", &mail_about("first"));
        assert_eq!(told(&again), "unknown", "{case}: {again}");
        assert!(text(&again).contains("did not say what came of it"), "{case}: {again}");
        assert_eq!(text(&again).contains("A person decides"), !is_abort, "{case}: {again}");
        assert_eq!(world.effects().len(), 2, "{case}");
        client.done();
        world.check();
    }
}

/// Behind the end of a session nothing is sent, so whatever would have something sent is refused when it is given; what happened is not.
#[test]
fn what_would_be_sent_is_refused_once_the_session_is_ended() {
    let world = GatewayWorld::new();
    let mut client = world.session("s1").greet();
    world.behave("die");
    assert_eq!(told(&client.result("append_line", &json!({"text": "a"}))), "unknown");
    let question = world.questions().pop().unwrap();
    world.end(&question.run_id);
    let refused = world.gives(&question, Choice::Execute).unwrap_err();
    assert!(matches!(&refused, NotTaken::SessionEnded { in_doubt: Some(_), .. }), "{refused:?}");
    assert_eq!(world.questions().len(), 1, "it waits for another answer");
    let settled = world.gives(&question, Choice::Happened).unwrap();
    assert_eq!((settled.len(), settled[0].status), (1, CallStatus::Succeeded));
    assert_eq!((world.questions().len(), world.effects().len()), (0, 1));
    client.done();
    world.check();
}

/// Whichever way a person ends a session, all that is held or queued in it ends at once: each asker is told so, and no question is left of it but the one
/// about what may have happened, which takes each answer that is offered.
#[test]
fn a_session_that_is_ended_ends_all_that_is_held_or_queued_in_it() {
    for ends_by in [Some(Choice::Abort), None] {
        let mut world = GatewayWorld::new();
        world.hold_millis = 60_000;
        let mut client = world.session("s1").greet();
        world.behave("die");
        let doubtful = client.call("send_email", &mail());
        let doubt = until("the doubt", || world.questions().pop());
        let mut ended: Vec<u64> = (1..=3).map(|amount| client.call("wire_money", &json!({"amount": amount}))).collect();
        until("a question of each", || (world.questions().len() == 4).then_some(()));
        // Of those behind the one that its tool server works on, one would be asked about and one would be sent.
        world.behave("hold");
        let sent = client.call("append_line", &json!({"text": "front"}));
        until("it to be sent", || (world.said().iter().any(|said| said.to_string().contains("front"))).then_some(()));
        ended.push(client.call("wire_money", &json!({"amount": 4})));
        ended.push(client.call("append_line", &json!({"text": "behind"})));
        world.until_askers(7);

        match ends_by {
            Some(choice) => {
                let is_held = |asked: &QuestionRecord| asked.kind == QuestionKind::Approval;
                world.answer(&world.questions().into_iter().find(is_held).unwrap(), choice);
            }
            None => world.end(&doubt.run_id),
        }
        for id in ended {
            let answer = client.answer(id)["result"].clone();
            assert_eq!(told(&answer), "not_sent", "{ends_by:?}: {answer}");
            assert!(text(&answer).contains("a person ended this session"), "{ends_by:?}: {answer}");
        }
        let answer = client.answer(doubtful)["result"].clone();
        assert_eq!(told(&answer), "unknown", "{ends_by:?}: {answer}");
        // What its tool server has is answered.
        world.let_go();
        assert!(text(&client.answer(sent)["result"]).starts_with("done"), "{ends_by:?}");

        let left = world.questions();
        assert_eq!(
            left.iter().map(|asked| &asked.question_id).collect::<Vec<_>>(),
            [&doubt.question_id],
            "{ends_by:?}"
        );
        let ways = ua_store::rules::applies_behind_the_end;
        for choice in left[0].choices.iter().filter(|choice| !ways(left[0].kind, **choice) && **choice != Choice::Abort)
        {
            world.gives(&left[0], *choice).unwrap_err();
        }
        world.gives(&left[0], Choice::Happened).unwrap();
        // Who asks again is in another session, where a person is asked what they did not say.
        let again = client.call("wire_money", &json!({"amount": 2}));
        let asked = until("another question", || world.questions().pop());
        assert_ne!(asked.run_id, doubt.run_id, "{ends_by:?}");
        world.answer(&asked, Choice::Skip);
        client.answer(again);
        assert_eq!(world.effects().len(), 2, "{ends_by:?}: {:?}", world.effects());
        client.done();
        world.check();
    }
}

/// While a call waits for an approval, no equal one is lost in it without a word: another client's is a call of its own with a question of its own, and
/// the same client's second one has the answer with the mark that says so.
#[test]
fn equal_calls_that_wait_for_an_approval_are_told_apart() {
    let mut world = GatewayWorld::new();
    world.hold_millis = 60_000;
    let (mut one, mut two) = (world.session("s1").greet(), world.session("s2").greet());
    let first = one.call("press_bell", &json!({"text": "a"}));
    until("a question", || (world.questions().len() == 1).then_some(()));
    let again = one.call("press_bell", &json!({"text": "a"}));
    let other = two.call("press_bell", &json!({"text": "a"}));
    until("a question for each client", || (world.questions().len() == 2).then_some(()));
    world.until_askers(3);
    // The later one names the other, so that nobody takes it for the same question shown twice.
    let asked = world.questions();
    let names =
        |one: &QuestionRecord, other: &QuestionRecord| one.text.contains(other.call_id.as_ref().unwrap().as_str());
    let (earlier, later) = if names(&asked[0], &asked[1]) { (&asked[1], &asked[0]) } else { (&asked[0], &asked[1]) };
    assert!(names(later, earlier) && !names(earlier, later), "{asked:?}");
    assert!(later.text.contains("of another session says the same and"), "{}", later.text);
    for question in asked {
        world.answer(&question, Choice::Execute);
    }
    let first = one.answer(first)["result"].clone();
    let again = one.answer(again)["result"].clone();
    let other = two.answer(other)["result"].clone();
    for result in [&first, &again, &other] {
        assert!(text(result).starts_with("done"), "{result}");
    }
    assert_eq!((notice(&first), notice(&again), notice(&other)), ("", "once", ""), "{first} {again} {other}");
    assert_eq!((world.effects().len(), world.calls("press_bell").len()), (2, 2));
    one.done();
    two.done();
    world.check();
}
