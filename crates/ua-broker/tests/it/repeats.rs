//! The same call again: of a client that was killed, timed out or cancelled, of two clients, of another day.

use serde_json::json;
use ua_core::CorrectedTo;
use ua_store::Choice;

use crate::world::{Client, GatewayWorld, kill, mail, notice, text, told, until};

/// G2: the client is killed in a call; whoever asks next has the late receipt.
#[test]
fn a_killed_clients_call_is_answered_to_whoever_asks_for_it_again() {
    for session in [None, Some("s1")] {
        for is_late in [true, false] {
            let world = GatewayWorld::new();
            let start = || session.map_or_else(|| world.client(), |session| world.session(session)).greet();
            world.behave("hold");
            let mut client = start();
            client.call("send_email", &mail());
            world.until_effects(1);
            client.killed();
            let mut next = start();
            let id = if is_late {
                world.let_go();
                next.call("send_email", &mail())
            } else {
                let id = next.call("send_email", &mail());
                world.until_askers(1);
                world.let_go();
                id
            };
            let result = next.answer(id)["result"].clone();
            assert!(text(&result).starts_with("done, 1 so far"), "{result}");
            assert_eq!(world.effects().len(), 1);
            // Once it has been heard of, another session means another one.
            next.done();
            let mut other = world.session("another day").greet();
            assert_eq!(notice(&other.result("send_email", &mail())), "");
            assert_eq!(world.effects().len(), 2);
            other.done();
            world.check();
        }
    }
}

/// The answer was written, and nobody is known to have read it: it is owed, and says so.
#[test]
fn a_result_that_nobody_is_known_to_have_is_owed_once() {
    let world = GatewayWorld::new();
    let mut client = world.client().greet();
    assert_eq!(notice(&client.result("send_email", &mail())), "");
    client.killed();
    let mut next = world.client().greet();
    let result = next.result("send_email", &mail());
    assert_eq!((notice(&result), world.effects().len()), ("late", 1));
    assert!(text(&result).contains("It was not made again"), "{result}");
    next.done();
    let mut another = world.client().greet();
    assert_eq!(notice(&another.result("send_email", &mail())), "");
    assert_eq!(world.effects().len(), 2);
}

/// A client that makes one call, reads its answer and closes its input has it, however soon it does that: the next one wants another effect.
#[test]
fn a_client_that_closes_its_input_behind_the_answer_has_had_it() {
    let world = GatewayWorld::new();
    let mut effects = 0;
    for (tool, arguments) in [("send_email", mail()), ("append_line", json!({"text": "a"}))] {
        for _ in 0..2 {
            // By content in whichever session; else in its own.
            let client = if tool == "send_email" { world.client() } else { world.session("s1") };
            let mut client = client.greet();
            effects += 1;
            assert_eq!((notice(&client.result(tool, &arguments)), world.effects().len()), ("", effects));
            client.closed();
        }
    }
    world.check();
}

/// A client that is killed in the moment in which it has its answer: nobody knows whether it was read, and that is what is said.
#[test]
fn of_a_client_that_was_killed_it_is_not_known_whether_it_read_its_answer() {
    let world = GatewayWorld::new();
    let mut client = Client::start_below(&world).greet();
    assert_eq!(notice(&client.result("send_email", &mail())), "");
    kill(client.pid());
    world.until_connected(0);
    let mut next = world.client().greet();
    let result = next.result("send_email", &mail());
    assert_eq!((notice(&result), world.effects().len()), ("late", 1));
    assert!(text(&result).contains("it is not known whether anybody read it"), "{result}");
    next.closed();
    // The same client that ends in order.
    let mut client = Client::start_below(&world).greet();
    assert_eq!((notice(&client.result("send_email", &mail())), world.effects().len()), ("", 2));
    client.closed();
    world.until_connected(0);
    let mut next = world.client().greet();
    assert_eq!((notice(&next.result("send_email", &mail())), world.effects().len()), ("", 3));
    next.done();
    world.check();
}

/// A client goes on with the next broker: what the one before wrote to it, it has.
#[test]
fn what_a_client_was_told_by_one_broker_it_has_when_it_goes_on_with_the_next() {
    let world = GatewayWorld::new();
    let line = json!({"text": "a"});
    let mut client = world.client().greet();
    assert_eq!((notice(&client.result("append_line", &line)), world.effects().len()), ("", 1));
    world.until_answered(1);
    world.kill_broker();
    assert_eq!((notice(&client.result("append_line", &line)), world.effects().len()), ("", 2));
    client.done();
    world.check();
}

/// What is not declared is owed to the session that asked, once.
#[test]
fn an_append_is_owed_to_its_own_session() {
    let world = GatewayWorld::new();
    let line = json!({"text": "a"});
    let mut client = world.session("s1").greet();
    client.result("append_line", &line);
    client.killed();
    let mut next = world.session("s1").greet();
    assert_eq!((notice(&next.result("append_line", &line)), world.effects().len()), ("late", 1));
    // It has it now, and wants another one.
    assert_eq!((notice(&next.result("append_line", &line)), world.effects().len()), ("", 2));
    next.killed();
    let mut other = world.session("s2").greet();
    assert_eq!((notice(&other.result("append_line", &line)), world.effects().len()), ("", 3));
    other.done();
    world.check();
}

/// Who is killed in a call, or behind its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gone {
    Client,
    Bridge,
    BehindTheAnswer,
}

/// A client of that kind that says of itself nothing else.
fn of_kind(world: &GatewayWorld, name: &str) -> Client {
    let mut client = world.client();
    client.info = json!({"name": name, "version": "1"});
    client.greet()
}

/// An effect that nobody declared, of a client that nothing names but its connection: it goes on as another connection, and has what came of the call
/// that it asked for before, once.
#[test]
fn an_effect_of_a_client_that_nothing_names_is_handed_to_the_next_of_its_kind() {
    for gone in [Gone::Client, Gone::Bridge, Gone::BehindTheAnswer] {
        let world = GatewayWorld::new();
        let line = json!({"text": "a"});
        let mut client = of_kind(&world, "agent");
        if gone == Gone::BehindTheAnswer {
            client.result("append_line", &line);
            world.until_answered(1);
        } else {
            world.behave("hold");
            client.call("append_line", &line);
            world.until_effects(1);
        }
        match gone {
            Gone::Client | Gone::BehindTheAnswer => client.killed(),
            Gone::Bridge => client.bridge_killed(),
        }
        world.until_connected(0);
        if gone != Gone::BehindTheAnswer {
            world.let_go();
        }
        world.until_calls(0);
        // A client that says what it is is another one, and so is one that names its session.
        let mut other = of_kind(&world, "another");
        assert_eq!((notice(&other.result("append_line", &line)), world.effects().len()), ("", 2), "{gone:?}");
        other.done();
        let mut named = world.session("s1");
        named.info = json!({"name": "another", "version": "1"});
        let mut named = named.greet();
        assert_eq!((notice(&named.result("append_line", &line)), world.effects().len()), ("", 3), "{gone:?}");
        named.done();
        let mut next = of_kind(&world, "agent");
        let result = next.result("append_line", &line);
        assert_eq!((notice(&result), world.effects().len()), ("late", 3), "{gone:?}: {result}");
        assert!(text(&result).contains("To have it made once more, make the same call again now"), "{result}");
        assert_eq!((notice(&next.result("append_line", &line)), world.effects().len()), ("", 4), "{gone:?}");
        next.done();
        let mut third = of_kind(&world, "agent");
        assert_eq!((notice(&third.result("append_line", &line)), world.effects().len()), ("", 5), "{gone:?}");
        third.done();
        world.check();
    }
}

/// Two agents of one kind side by side: the one that was there already when the other one asked means an effect of its own, and the next one of the
/// other has that one's.
#[test]
fn an_agent_beside_one_that_was_killed_has_its_own_effect() {
    let world = GatewayWorld::new();
    let line = json!({"text": "a"});
    let (mut one, mut two) = (of_kind(&world, "agent"), of_kind(&world, "agent"));
    two.result("read_page", &json!({"page": "1"}));
    world.behave("hold");
    one.call("append_line", &line);
    world.until_effects(1);
    one.killed();
    world.until_connected(1);
    world.let_go();
    world.until_calls(0);
    assert_eq!((notice(&two.result("append_line", &line)), world.effects().len()), ("", 2));
    let mut next = of_kind(&world, "agent");
    assert_eq!((notice(&next.result("append_line", &line)), world.effects().len()), ("late", 2));
    // It has it, so that whoever comes then means another one.
    next.done();
    let mut third = of_kind(&world, "agent");
    assert_eq!((notice(&third.result("append_line", &line)), world.effects().len()), ("", 3));
    two.done();
    third.done();
    world.check();
}

/// Where neither says what it is nobody knows whether one may be the other: a person is asked, and told of the earlier one.
#[test]
fn clients_that_say_nothing_of_themselves_are_asked_about() {
    let world = GatewayWorld::new();
    let line = json!({"text": "a"});
    let mut client = of_kind(&world, "");
    world.behave("hold");
    client.call("append_line", &line);
    world.until_effects(1);
    client.killed();
    world.until_connected(0);
    world.let_go();
    world.until_calls(0);
    let mut next = of_kind(&world, "");
    let held = next.result("append_line", &line);
    assert_eq!((told(&held), world.effects().len()), ("held", 1), "{held}");
    let asked = world.questions();
    assert!(asked.len() == 1 && asked[0].text.contains("nobody is known to have read its answer"), "{asked:?}");
    world.answer(&asked[0], Choice::Execute);
    assert_eq!((text(&next.result("append_line", &line)).as_str(), world.effects().len()), ("done, 2 so far", 2));
    next.done();
    world.until_connected(0);
    // That one stands in the place of the first.
    let mut third = of_kind(&world, "");
    assert_eq!((notice(&third.result("append_line", &line)), world.effects().len()), ("", 3));
    third.done();
    world.check();
}

/// A doubt reaches the whole project, and so does a word that ends it: whoever asks for the same next is told so, once, also a session that asks for
/// the first time; and the session that asked first is owed it still.
#[test]
fn a_word_that_it_happened_reaches_as_far_as_the_doubt_did() {
    let world = GatewayWorld::new();
    let line = json!({"text": "a"});
    let mut client = world.session("s1").greet();
    world.behave("die");
    assert_eq!(told(&client.result("append_line", &line)), "unknown");
    client.done();
    world.stop_broker();
    world.until_no_broker();
    let call = world.calls("append_line").pop().unwrap();
    world.put_right(&call, CorrectedTo::Happened);
    let mut other = world.session("s2").greet();
    let said = other.result("append_line", &line);
    assert_eq!((told(&said), world.effects().len()), ("happened", 1), "{said}");
    assert!(text(&said).contains("was not made again. To have it made once more, make the same call again"), "{said}");
    // It knows, and means another one.
    assert_eq!((notice(&other.result("append_line", &line)), world.effects().len()), ("", 2));
    other.done();
    let mut third = world.session("s3").greet();
    assert_eq!((notice(&third.result("append_line", &line)), world.effects().len()), ("", 3));
    third.done();
    let mut first = world.session("s1").greet();
    let said = first.result("append_line", &line);
    assert_eq!((told(&said), world.effects().len()), ("happened", 3), "{said}");
    first.done();
    world.check();
}

/// How a client loses the answer to a call that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    Told,
    /// It asks again, and cancels that.
    ToldAndCancelled,
    Cancelled,
    /// It cancels, and says that its time was up.
    TimedOut,
    Killed,
}

/// Two effects that are asked for together, or one behind the other, and whose client loses the answer to the first, or to both: in whichever order
/// its session asks for them again, each is made once, and so is another one that it asks for before. But a command that its client gave up is
/// made anew behind that one: what it answered then is not what it would answer now.
fn neither_takes_the_others_receipt_away(tool: &str) {
    let (a, b, c) = (json!({"text": "a"}), json!({"text": "b"}), json!({"text": "c"}));
    for lost in [Lost::Told, Lost::ToldAndCancelled, Lost::Cancelled, Lost::TimedOut, Lost::Killed] {
        for is_beside in [true, false] {
            // Of what is asked for behind it, and of what its client has the answer to, there is nothing to ask again.
            let is_cancelled = matches!(lost, Lost::Cancelled | Lost::TimedOut);
            let is_b_lost = is_beside && !is_cancelled;
            let orders: &[&[&str]] = if is_b_lost { &[&["a", "b"], &["b", "a"]] } else { &[&["a"]] };
            for order in orders {
                let case = format!("{tool} {lost:?} {is_beside} {order:?}");
                let is_given_up = tool == "run_command" && lost == Lost::Cancelled;
                let world = GatewayWorld::new();
                world.behave("hold");
                let mut client = world.session("s1");
                if matches!(lost, Lost::Told | Lost::ToldAndCancelled) {
                    client.info = json!({"name": "mcp", "version": "0.1.0"});
                }
                let mut client = client.greet();
                let first = client.call(tool, &a);
                world.until_effects(1);
                if is_beside {
                    client.call(tool, &b);
                    world.until_askers(2);
                }
                let mut client = match lost {
                    Lost::Told | Lost::ToldAndCancelled => {
                        assert_eq!(told(&client.answer(first)["result"]), "running", "{case}");
                        if lost == Lost::ToldAndCancelled {
                            world.until_askers(0);
                            let again = client.call(tool, &a);
                            world.until_askers(1);
                            client.cancel(again);
                        }
                        client
                    }
                    Lost::Cancelled => {
                        client.cancel(first);
                        client
                    }
                    Lost::TimedOut => {
                        client.cancel_since(first, "McpError: MCP error -32001: Request timed out");
                        client
                    }
                    Lost::Killed => {
                        client.killed();
                        world.session("s1").greet()
                    }
                };
                world.until_askers(u64::from(is_beside && is_cancelled));
                world.let_go();
                world.until_calls(0);
                // An effect of which the session hears in between.
                assert_eq!(notice(&client.result(tool, &c)), "", "{case}");
                if !is_beside {
                    client.result(tool, &b);
                }
                for text in *order {
                    let answer = client.result(tool, &json!({ "text": text }));
                    assert_eq!(answer["isError"], false, "{case}: {answer}");
                    if *text == "a" {
                        assert_eq!(notice(&answer), if is_given_up { "" } else { "late" }, "{case}");
                    }
                }
                let made = 3 + usize::from(is_given_up);
                assert_eq!(world.effects().len(), made, "{case}: {:?}", world.effects());
                // It has it now, and wants another one.
                assert_eq!((notice(&client.result(tool, &a)), world.effects().len()), ("", made + 1), "{case}");
                client.done();
                world.check();
            }
        }
    }
}

#[test]
fn of_two_effects_neither_takes_the_others_receipt_away() {
    neither_takes_the_others_receipt_away("append_line");
}

/// Also where they are on this machine alone.
#[test]
fn of_two_commands_neither_takes_the_others_receipt_away() {
    neither_takes_the_others_receipt_away("run_command");
}

/// A client is killed behind both answers, of which nobody knows whether it read them: both are owed, in whichever order.
#[test]
fn two_answers_that_were_written_at_a_cut_are_both_owed() {
    for order in [["a", "b"], ["b", "a"]] {
        let world = GatewayWorld::new();
        let mut client = Client::start_below(&world);
        client.session = Some("s1".to_owned());
        let mut client = client.greet();
        let calls = ["a", "b"].map(|text| client.call("append_line", &json!({ "text": text })));
        for id in calls {
            client.answer(id);
        }
        world.until_answered(2);
        kill(client.pid());
        world.until_connected(0);
        let mut next = world.session("s1").greet();
        for text in order {
            let answer = next.result("append_line", &json!({ "text": text }));
            assert_eq!((notice(&answer), world.effects().len()), ("late", 2), "{order:?} {text}");
        }
        next.done();
        world.check();
    }
}

/// What was cancelled when its answer had been written is owed, whatever its client goes on with.
#[test]
fn an_answer_that_a_cancel_crossed_is_owed_behind_another_effect() {
    let world = GatewayWorld::new();
    let (a, b) = (json!({"text": "a"}), json!({"text": "b"}));
    let mut client = world.session("s1").greet();
    let first = client.call("append_line", &a);
    client.answer(first);
    world.until_answered(1);
    client.cancel(first);
    assert_eq!(notice(&client.result("append_line", &b)), "");
    assert_eq!((notice(&client.result("append_line", &a)), world.effects().len()), ("late", 2));
    assert_eq!((notice(&client.result("append_line", &a)), world.effects().len()), ("", 3));
    client.done();
    world.check();
}

/// Whoever asks for the same while nobody waits for it has its answer; the session that asked first is owed it all the same.
#[test]
fn an_answer_that_another_session_heard_is_still_owed_to_its_own() {
    let world = GatewayWorld::new();
    let (a, b) = (json!({"text": "a"}), json!({"text": "b"}));
    world.behave("hold");
    let (mut one, mut two) = (world.session("s1").greet(), world.session("s2").greet());
    let first = one.call("append_line", &a);
    world.until_effects(1);
    one.cancel(first);
    world.until_askers(0);
    let second = two.call("append_line", &a);
    world.until_askers(1);
    world.let_go();
    assert_eq!(two.answer(second)["result"]["isError"], false);
    two.result("append_line", &b);
    assert_eq!((notice(&one.result("append_line", &a)), world.effects().len()), ("late", 2));
    one.done();
    two.done();
    world.check();
}

/// G7: the client's time is up; the model asks again, waits for the same call and gets the result.
#[test]
fn a_call_that_timed_out_is_waited_for_when_it_is_asked_for_again() {
    let world = GatewayWorld::new();
    world.behave("hold");
    let mut client = world.client().greet();
    let first = client.call("send_email", &mail());
    world.until_effects(1);
    client.cancel(first);
    world.until_askers(0);
    let second = client.call("send_email", &mail());
    world.until_askers(1);
    world.let_go();
    assert_eq!(text(&client.answer(second)["result"]), "done, 1 so far");
    assert_eq!(world.effects().len(), 1);
    assert!(!client.heard.iter().any(|message| message["id"] == first), "nothing is said to what was cancelled");
    client.done();
    world.check();
}

/// A client with little patience is told in time that its call is under way.
#[test]
fn a_client_that_waits_five_seconds_is_told_before() {
    let world = GatewayWorld::new();
    world.behave("hold");
    let mut client = world.client();
    client.info = json!({"name": "mcp", "version": "0.1.0"});
    let mut client = client.greet();
    let told = client.result("send_email", &mail());
    assert!(text(&told).starts_with("Still running since") && told["isError"] == true, "{told}");
    let again = client.call("send_email", &mail());
    world.let_go();
    assert!(text(&client.answer(again)["result"]).starts_with("done, 1 so far"));
    assert_eq!(world.effects().len(), 1);
}

/// G9: Ctrl-C in the call, and the next session repeats it.
#[test]
fn a_cancelled_call_is_the_next_sessions() {
    let world = GatewayWorld::new();
    world.behave("hold");
    let mut client = world.session("s1").greet();
    let id = client.call("send_email", &mail());
    world.until_effects(1);
    client.cancel(id);
    client.killed();
    world.let_go();
    let mut next = world.session("s2").greet();
    assert!(text(&next.result("send_email", &mail())).starts_with("done, 1 so far"));
    assert_eq!(world.effects().len(), 1);
    next.done();
    world.check();
}

/// G10: two clients of one project at once.
#[test]
fn two_clients_send_one_mail_and_append_two_lines() {
    let world = GatewayWorld::new();
    world.behave("hold");
    let (mut one, mut two) = (world.client().greet(), world.client().greet());
    let first = one.call("send_email", &mail());
    world.until_effects(1);
    let second = two.call("send_email", &mail());
    world.until_askers(2);
    world.let_go();
    let (first, second) = (one.answer(first)["result"].clone(), two.answer(second)["result"].clone());
    assert_eq!((&*text(&first), notice(&first)), ("done, 1 so far", ""), "{first}");
    assert!(text(&second).starts_with("done, 1 so far"), "{second}");
    assert_eq!(notice(&second), "twin", "both waited, and one was sent: {second}");
    assert_eq!(world.effects().len(), 1);

    let line = json!({"text": "a"});
    world.behave("hold");
    let first = one.call("append_line", &line);
    world.until_effects(2);
    let second = two.call("append_line", &line);
    world.until_effects(3);
    world.let_go();
    assert!(one.answer(first)["result"]["isError"] == false && two.answer(second)["result"]["isError"] == false);
    assert_eq!(world.effects().len(), 3);
    one.done();
    two.done();
    world.check();
}

/// G11: what is done each day is done each day; a session that asks twice for a declared effect has the first one's receipt.
#[test]
fn each_days_session_sends_its_own() {
    let world = GatewayWorld::new();
    for day in 1..=3 {
        let mut client = world.session(&format!("day {day}")).greet();
        let result = client.result("send_email", &mail());
        assert_eq!((notice(&result), world.effects().len()), ("", day));
        let again = client.result("send_email", &mail());
        assert_eq!((notice(&again), world.effects().len()), ("duplicate", day));
        client.done();
        until("the session to be parked", || world.questions().is_empty().then_some(()));
    }
    world.check();
}

/// An effect that waits for its turn behind another one is not begun for a client that has gone; the next who asks for it has it sent.
#[test]
fn what_waits_for_its_turn_is_not_sent_for_a_client_that_has_gone() {
    let world = GatewayWorld::new();
    world.behave("hold");
    let mut client = world.session("s1").greet();
    let first = client.call("append_line", &json!({"text": "a"}));
    world.until_effects(1);
    let second = client.call("append_line", &json!({"text": "b"}));
    world.until_askers(2);
    client.cancel(second);
    world.until_askers(1);
    world.let_go();
    assert_eq!(text(&client.answer(first)["result"]), "done, 1 so far");
    world.until_calls(0);
    assert_eq!(world.effects().len(), 1);
    assert_eq!(text(&client.result("append_line", &json!({"text": "b"}))), "done, 2 so far");
    assert_eq!(world.effects().len(), 2);
    client.done();
    world.check();
}

/// What its tool says failed may have had its effect: asked for again, a person decides, and is told whether it is the very same call.
#[test]
fn what_failed_is_not_repeated_and_it_is_said_which_call_it_may_repeat() {
    for is_reworded in [false, true] {
        let world = GatewayWorld::new();
        let failed = r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"no"}],"isError":true}}"#;
        std::fs::write(world.path("stub/raw"), failed).unwrap();
        let mut client = world.session("s1").greet();
        assert_eq!(text(&client.result("send_email", &mail())), "no");
        let mut again = mail();
        if is_reworded {
            again["body"] = json!("It is done.");
        }
        let held = client.result("send_email", &again);
        let words = if is_reworded { "in other words" } else { "This very call was made before in this session" };
        assert!(told(&held) == "rival" && text(&held).contains(words), "{held}");
        assert_eq!((world.effects().len(), world.questions().len()), (1, 1));
        world.check();
    }
}

/// Its tool says of `send_email` that it failed.
fn fails(world: &GatewayWorld) {
    let failed = r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"no"}],"isError":true}}"#;
    std::fs::write(world.path("stub/raw"), failed).unwrap();
}

/// A person who is asked about a repeat and ends the session did not let it go out: the client's next session is asked again.
#[test]
fn a_repeat_whose_session_a_person_ended_is_not_sent_by_the_next_one() {
    let world = GatewayWorld::new();
    fails(&world);
    let mut client = world.client().greet();
    assert_eq!(text(&client.result("send_email", &mail())), "no");
    assert_eq!(told(&client.result("send_email", &mail())), "rival");
    let question = world.questions().pop().unwrap();
    world.answer(&question, Choice::Abort);
    // It may hear of its session's end first.
    let held = until("a question of the next session", || {
        let said = client.result("send_email", &mail());
        (told(&said) == "held").then_some(said)
    });
    assert_eq!((told(&held), world.effects().len()), ("held", 1), "{held}");
    let asked = world.questions();
    assert!(asked.len() == 1 && asked[0].text.contains("ended its session instead"), "{asked:?}");
    world.answer(&asked[0], Choice::Execute);
    assert_eq!((text(&client.result("send_email", &mail())).as_str(), world.effects().len()), ("no", 2));
    client.done();
    world.check();
}

/// A repeat that was approved for one session and made for another one failed for that one too: it asks a person before it is made again.
#[test]
fn a_failure_that_another_session_was_answered_with_is_its_own() {
    let world = GatewayWorld::new();
    fails(&world);
    let mut first = world.session("s1").greet();
    assert_eq!(text(&first.result("send_email", &mail())), "no");
    assert_eq!(told(&first.result("send_email", &mail())), "rival");
    first.done();
    world.answer(&world.questions().pop().unwrap(), Choice::Execute);
    let mut second = world.session("s2").greet();
    assert_eq!((text(&second.result("send_email", &mail())).as_str(), world.effects().len()), ("no", 2));
    for _ in 0..2 {
        let held = second.result("send_email", &mail());
        assert_eq!((told(&held), world.effects().len()), ("held", 2), "{held}");
    }
    let asked = world.questions();
    assert!(asked.len() == 1 && asked[0].text.contains("answered that it failed"), "{asked:?}");
    second.done();
    world.check();
}
