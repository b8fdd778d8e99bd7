//! The very request, posted again: wherever the connection broke, whatever became of the broker meanwhile, in both eras, its effect is had once.
//! And what comes back with what a tool asked for, again and again, from whomever.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use ua_core::CallStatus;

use crate::eras::{signed, signed_by};
use crate::http::{End, HttpClient, at_the_next_broker, hear, read};
use crate::world::{GatewayWorld, mail, notice, text, told, until};

const ERAS: [Era; 2] = [Era::Session, Era::Stateless];

/// How a client over HTTP speaks.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Era {
    /// In a session that began with a handshake.
    Session,
    /// Each request stands for itself.
    Stateless,
}

/// A client of an era.
struct Posting {
    era: Era,
    client: HttpClient,
}

impl Posting {
    fn new(world: &GatewayWorld, era: Era, name: &str) -> Self {
        let client = HttpClient::new(world, name);
        let client = if era == Era::Session { client.greet_with(&forms()) } else { client };
        Self { era, client }
    }

    /// Posts a request; what comes back is read by whoever wants it.
    fn post(&self, id: &Value, method: &str, params: &Value) -> TcpStream {
        let params = if self.era == Era::Stateless { signed(&forms(), params.clone()) } else { params.clone() };
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
        let mut headers = Vec::new();
        if self.era == Era::Stateless {
            headers = vec![("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)];
            headers.extend(params["name"].as_str().map(|name| ("Mcp-Name", name)));
        }
        self.client.write("POST", &headers, &message)
    }

    fn call(&self, id: &Value, tool: &str, arguments: &Value) -> TcpStream {
        self.post(id, "tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    /// It says something else.
    fn goes_on(&self, id: &Value) {
        let said = answer(self.post(id, "tools/list", &json!({})));
        assert!(said["result"]["tools"].is_array(), "{said}");
    }
}

/// The last of what is said to a request.
fn answer(stream: TcpStream) -> Value {
    let said = read(stream);
    said.messages.last().unwrap_or_else(|| panic!("nothing was said: {}", said.status)).clone()
}

fn result_of(stream: TcpStream) -> Value {
    answer(stream)["result"].clone()
}

fn forms() -> Value {
    json!({"elicitation": {}})
}

/// Where the connection on which a call was posted breaks.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Breaks {
    /// Before its effect is had, as far as its client can tell: it waits for an answer no more.
    BeforeItsAnswer,
    /// Its answer was written whole, and nobody read it.
    BehindItsAnswer,
    /// It does not: the same is posted beside it, and both wait.
    Not,
}

/// What happens before the same is posted again.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    Nothing,
    /// The client, or another one with its token, says something else.
    GoesOn,
    TheBrokerEnds(End),
}

/// All places where a connection breaks, and all that may happen then, in both eras: the very request, posted again as often as one likes, is that
/// request. Under another id, or in other words, the next one is another.
#[test]
fn the_very_request_is_one_call_however_often_it_is_posted() {
    let all = [Then::Nothing, Then::GoesOn, Then::TheBrokerEnds(End::Killed), Then::TheBrokerEnds(End::Stopped)];
    for era in ERAS {
        for then in all {
            let world = GatewayWorld::new();
            let mut client = Posting::new(&world, era, "codex");
            let mut effects = 0;
            for (place, breaks) in
                [Breaks::BeforeItsAnswer, Breaks::BehindItsAnswer, Breaks::Not].into_iter().enumerate()
            {
                let declared = json!({"to": format!("{place}@example.com"), "subject": "Report", "body": "Done."});
                for (tool, arguments) in
                    [("append_line", json!({"text": format!("{place}")})), ("send_email", declared)]
                {
                    // An id may be any text.
                    for id in [json!(100 + place), json!(format!("{tool}-{place} ü"))] {
                        let what = format!("{era:?} {then:?} {breaks:?} {tool} {id}");
                        // A declared effect is one whichever id it has.
                        let is_new = tool == "append_line" || id.is_number();
                        effects += usize::from(is_new);
                        let answered = world.answered();
                        if breaks != Breaks::BehindItsAnswer {
                            world.behave("hold");
                        }
                        let first = client.call(&id, tool, &arguments);
                        world.until_effects(effects);
                        let mut beside = Vec::new();
                        match breaks {
                            Breaks::BeforeItsAnswer => {
                                drop(first);
                                world.let_go();
                                world.until_calls(0);
                            }
                            Breaks::BehindItsAnswer => {
                                world.until_answered(answered + 1);
                                // What was counted may be an answer to a request before.
                                world.until_calls(0);
                                drop(first);
                            }
                            Breaks::Not => {
                                beside.push(first);
                                beside.push(client.call(&id, tool, &arguments));
                                world.let_go();
                            }
                        }
                        for stream in beside {
                            let answer = answer(stream);
                            assert_eq!(answer["id"], id, "{what}");
                            assert!(text(&answer["result"]).starts_with("done, "), "{what}: {answer}");
                        }
                        match then {
                            Then::Nothing => {}
                            Then::GoesOn => client.goes_on(&json!(format!("{what}: on"))),
                            Then::TheBrokerEnds(end) => {
                                client.client = at_the_next_broker(&world, client.client, end);
                            }
                        }
                        for _ in 0..2 {
                            let answer = answer(client.call(&id, tool, &arguments));
                            assert_eq!(answer["id"], id, "{what}");
                            assert!(text(&answer["result"]).starts_with("done, "), "{what}: {answer}");
                            assert_eq!(world.effects().len(), effects, "{what}: {answer}");
                        }
                        // Other words under the same id are another request.
                        let mut other = arguments.clone();
                        other["subject"] = json!("other words");
                        other["text"] = json!(format!("{what}, other words"));
                        let params = json!({"name": "append_line", "arguments": {"text": other["text"]}});
                        let said = result_of(client.post(&id, "tools/call", &params));
                        effects += 1;
                        assert_eq!((notice(&said), world.effects().len()), ("", effects), "{what}: {said}");
                    }
                }
            }
            world.check();
        }
    }
}

/// What a client takes of an answer that was written whole, before it closes its connection.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Takes {
    Nothing,
    ItsBeginning,
    All,
    /// All of it, and it says that it had given up.
    AllTooLate,
}

/// A connection that breaks before an answer was read says so, and so does a cancel that crosses it: the same call under another id, which a
/// client of the newer era must post then, is that call once. Behind an answer that was read it is another.
#[test]
fn an_answer_that_its_client_did_not_take_is_owed_to_it() {
    for (era, keeps_open) in ERAS.into_iter().flat_map(|era| [false, true].map(|keeps_open| (era, keeps_open))) {
        for takes in [Takes::Nothing, Takes::ItsBeginning, Takes::All, Takes::AllTooLate] {
            if takes == Takes::AllTooLate && era == Era::Stateless {
                continue; // It cancels by closing its stream.
            }
            let what = format!("{era:?} {keeps_open} {takes:?}");
            let world = GatewayWorld::new();
            let client = Posting::new(&world, era, "codex");
            let line = json!({"text": "a"});
            let leaves = keeps_open && matches!(takes, Takes::Nothing | Takes::ItsBeginning);
            let first = Posting { era, client: HttpClient { keeps_open: leaves, ..client.client.clone() } };
            let mut first = first.call(&json!(1), "append_line", &line);
            world.until_answered(1);
            let mut there = vec![0; 1 << 16];
            until("the answer to lie there", || {
                let length = first.peek(&mut there).unwrap();
                String::from_utf8_lossy(&there[..length]).contains("done, ").then_some(())
            });
            match takes {
                Takes::Nothing => drop(first),
                Takes::ItsBeginning => {
                    first.read_exact(&mut [0; 12]).unwrap();
                    drop(first);
                }
                Takes::All | Takes::AllTooLate => assert!(text(&result_of(first)).starts_with("done, "), "{what}"),
            }
            if takes == Takes::AllTooLate {
                let params = json!({"requestId": 1, "reason": "timed out"});
                let gives_up = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
                assert_eq!(client.client.post(&gives_up).status, 202);
            }
            let again = result_of(client.call(&json!(2), "append_line", &line));
            let wanted = if takes == Takes::All { ("", 2) } else { ("late", 1) };
            assert_eq!((notice(&again), world.effects().len()), wanted, "{what}: {again}");
            // What was cancelled counts as not written.
            world.until_answered(if takes == Takes::AllTooLate { 1 } else { 2 });
            let next = result_of(client.call(&json!(3), "append_line", &line));
            assert_eq!((notice(&next), world.effects().len()), ("", wanted.1 + 1), "{what}: {next}");
            world.check();
        }
    }
}

/// What the client of a connection that broke did not read, the next broker knows of as well, also where its client asks for something else first.
#[test]
fn an_answer_that_its_client_did_not_take_is_owed_to_it_at_the_next_broker() {
    for era in ERAS {
        let world = GatewayWorld::new();
        let mut client = Posting::new(&world, era, "codex");
        let line = json!({"text": "a"});
        // The connection is not closed on this side first.
        let first = Posting { era, client: HttpClient { keeps_open: true, ..client.client.clone() } };
        let first = first.call(&json!(1), "append_line", &line);
        world.until_answered(1);
        let mut there = vec![0; 1 << 16];
        until("the answer to lie there", || {
            let length = first.peek(&mut there).unwrap();
            String::from_utf8_lossy(&there[..length]).contains("done, ").then_some(())
        });
        drop(first);
        client.client = at_the_next_broker(&world, client.client, End::Stopped);
        let read = result_of(client.call(&json!(2), "read_page", &json!({"page": "1"})));
        assert_eq!(read["structuredContent"]["page"], "1", "{era:?}: {read}");
        let again = result_of(client.call(&json!(3), "append_line", &line));
        assert_eq!((notice(&again), world.effects().len()), ("late", 1), "{era:?}: {again}");
        let next = result_of(client.call(&json!(4), "append_line", &line));
        assert_eq!((notice(&next), world.effects().len()), ("", 2), "{era:?}: {next}");
        world.check();
    }
}

/// Not for longer than it would have been owed at the broker that wrote it: there are clients that reset whatever they close, behind what they read
/// as well. Behind that time the same words are another call, whatever else was made since.
#[test]
fn what_was_not_read_is_not_owed_for_longer_at_the_next_broker() {
    for (era, goes_on) in ERAS.into_iter().flat_map(|era| [false, true].map(|goes_on| (era, goes_on))) {
        let what = format!("{era:?} {goes_on}");
        let world = GatewayWorld::new();
        std::fs::write(world.path("again_within"), "3000").unwrap();
        let mut client = Posting::new(&world, era, "codex");
        let line = json!({"text": "a"});
        let first = Posting { era, client: HttpClient { keeps_open: true, ..client.client.clone() } };
        let first = first.call(&json!(1), "append_line", &line);
        world.until_answered(1);
        let written = Instant::now();
        let mut there = vec![0; 1 << 16];
        until("the answer to lie there", || {
            let length = first.peek(&mut there).unwrap();
            String::from_utf8_lossy(&there[..length]).contains("done, ").then_some(())
        });
        drop(first);
        client.client = at_the_next_broker(&world, client.client, End::Stopped);
        std::thread::sleep(Duration::from_millis(3500).saturating_sub(written.elapsed()));
        let mut effects = 1;
        if goes_on {
            let other = result_of(client.call(&json!(2), "append_line", &json!({"text": "b"})));
            effects += 1;
            assert_eq!((notice(&other), world.effects().len()), ("", effects), "{what}: {other}");
        }
        let anew = result_of(client.call(&json!(3), "append_line", &line));
        assert_eq!((notice(&anew), world.effects().len()), ("", effects + 1), "{what}: {anew}");
        world.check();
    }
}

/// But nobody is known to have it by that alone: a client that went away for good leaves a declared effect to whoever asks for it in its place.
#[test]
fn what_a_client_left_unread_for_good_is_owed_to_another_session() {
    let world = GatewayWorld::new();
    std::fs::write(world.path("again_within"), "1000").unwrap();
    let client = Posting::new(&world, Era::Session, "codex");
    let mail = mail();
    let first = Posting { era: Era::Session, client: HttpClient { keeps_open: true, ..client.client.clone() } };
    let first = first.call(&json!(1), "send_email", &mail);
    world.until_answered(1);
    let mut there = vec![0; 1 << 16];
    until("the answer to lie there", || {
        let length = first.peek(&mut there).unwrap();
        String::from_utf8_lossy(&there[..length]).contains("done, ").then_some(())
    });
    drop(first);
    at_the_next_broker(&world, client.client, End::Stopped);
    std::thread::sleep(Duration::from_millis(1500));
    let other = Posting::new(&world, Era::Session, "codex");
    let again = result_of(other.call(&json!(1), "send_email", &mail));
    assert_eq!((notice(&again), world.effects().len()), ("late", 1), "{again}");
    world.check();
}

/// The same behind a bridge.
#[test]
fn an_answer_that_a_cancel_crossed_is_owed() {
    let world = GatewayWorld::new();
    let mut client = world.client().greet();
    let line = json!({"text": "a"});
    let id = client.call("append_line", &line);
    assert!(text(&client.answer(id)["result"]).starts_with("done, "));
    client.cancel(id);
    let again = client.result("append_line", &line);
    assert_eq!((notice(&again), world.effects().len()), ("late", 1), "{again}");
    let next = client.result("append_line", &line);
    assert_eq!((notice(&next), world.effects().len()), ("", 2), "{next}");
    client.done();
    world.check();
}

/// A request that is posted beside itself reads the same stream: also what its tool asks there.
#[test]
fn what_was_said_to_a_request_is_said_again_to_the_one_that_joins_it() {
    let world = GatewayWorld::new();
    let client = Posting::new(&world, Era::Session, "codex");
    let arguments = json!({"to": "ask"});
    let is_question = |message: &Value| message["method"] == "elicitation/create";
    let first = client.call(&json!(5), "tell_secret", &arguments);
    let asked = hear(&first, is_question);
    drop(first);
    let again = client.call(&json!(5), "tell_secret", &arguments);
    assert_eq!(hear(&again, is_question), asked);
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"size": "L"}}});
    assert_eq!(client.client.post(&answer).status, 202);
    let had = hear(&again, |message| message["id"] == 5);
    assert_eq!((text(&had["result"]).as_str(), world.effects().len()), ("L", 1));
    world.check();
}

/// Ids are used again, by programs that begin to count anew: some time behind its answer the same id with the same words is another request, and
/// within that time it says which answer it has. A read is always made again, and so is what had no effect.
#[test]
fn some_time_behind_its_answer_the_same_words_are_another_request() {
    for era in ERAS {
        let world = GatewayWorld::new();
        let client = Posting::new(&world, era, "codex");
        let line = json!({"text": "a"});
        assert_eq!(notice(&result_of(client.call(&json!(1), "append_line", &line))), "");
        world.until_answered(1);
        let again = result_of(client.call(&json!(1), "append_line", &line));
        assert_eq!((notice(&again), world.effects().len()), ("same_request", 1), "{era:?}: {again}");
        for count in 1..=3 {
            let read = result_of(client.call(&json!(2), "read_page", &json!({"page": "1"})));
            assert_eq!((notice(&read), world.lines("reads").len()), ("", count), "{era:?}: {read}");
        }
        // What says that nothing happened is not handed out for what would happen now.
        let wrong = json!({"text": 7});
        for _ in 0..2 {
            let refused = result_of(client.call(&json!(3), "append_line", &wrong));
            assert_eq!((told(&refused), world.effects().len()), ("not_sent", 1), "{era:?}: {refused}");
        }
        std::fs::write(world.path("again_within"), "0").unwrap();
        let client = Posting { client: at_the_next_broker(&world, client.client, End::Stopped), ..client };
        for count in 2..=5 {
            until("another one", || {
                let next = result_of(client.call(&json!(1), "append_line", &line));
                (world.effects().len() == count).then(|| assert_eq!(notice(&next), "", "{era:?}: {next}"))
            });
        }
        // Of so many of a kind the newest one counts, also at the next broker.
        std::fs::write(world.path("again_within"), "600000").unwrap();
        let client = Posting { client: at_the_next_broker(&world, client.client, End::Killed), ..client };
        until("the answer to be known as written", || {
            let last = result_of(client.call(&json!(1), "append_line", &line));
            assert_eq!((text(&last).split(" so far").next(), world.effects().len()), (Some("done, 5"), 5), "{last}");
            (notice(&last) == "same_request").then_some(())
        });
        world.check();
    }
}

/// A request of one session is no request of another one, of whichever client.
#[test]
fn a_request_is_its_own_sessions() {
    let world = GatewayWorld::new();
    let one = Posting::new(&world, Era::Session, "codex");
    let same = Posting { client: HttpClient { session: None, ..one.client.clone() }.greet(), era: Era::Session };
    let token = world.token("claude");
    let other =
        Posting { client: HttpClient { session: None, token, ..one.client.clone() }.greet(), era: Era::Session };
    for (count, client) in [&one, &same, &other].into_iter().enumerate() {
        let said = result_of(client.call(&json!(1), "append_line", &json!({"text": "a"})));
        assert_eq!((notice(&said), world.effects().len()), ("", count + 1), "{said}");
    }
    world.check();
}

/// How a client comes back once more with what its tool asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Repeats {
    /// The very request.
    TheSame,
    /// The same under another id.
    UnderAnotherId,
    /// The request with which the call began.
    TheFirst,
}

/// What a client whose requests stand for themselves brings along is brought once, and however it comes back again, it is that call.
#[test]
fn who_comes_back_again_has_the_same_call() {
    let params = json!({"name": "tell_secret", "arguments": {"to": "ask"}});
    let back = |wanted: &Value, size: &str| {
        let (name, _) = wanted["inputRequests"].as_object().unwrap().iter().next().unwrap();
        let mut back = params.clone();
        back["requestState"] = wanted["requestState"].clone();
        back["inputResponses"] = json!({name: {"action": "accept", "content": {"size": size}}});
        back
    };
    for server in ["older", "newer"] {
        for end in [None, Some(End::Killed), Some(End::Stopped)] {
            for repeats in [Repeats::TheSame, Repeats::UnderAnotherId, Repeats::TheFirst] {
                for is_read in [true, false] {
                    let what = format!("{server} {end:?} {repeats:?} {is_read}");
                    let world = GatewayWorld::new();
                    world.behave(server);
                    let mut client = Posting::new(&world, Era::Stateless, "newer");
                    let wanted = result_of(client.post(&json!(1), "tools/call", &params));
                    assert_eq!(wanted["resultType"], "input_required", "{what}: {wanted}");
                    let stream = client.post(&json!(2), "tools/call", &back(&wanted, "L"));
                    world.until_effects(1);
                    if is_read {
                        assert_eq!(text(&result_of(stream)), "L", "{what}");
                    } else {
                        world.until_calls(0);
                        drop(stream);
                    }
                    if let Some(end) = end {
                        client.client = at_the_next_broker(&world, client.client, end);
                    }
                    for turn in 0..2 {
                        // What it says now is too late.
                        let (id, params) = match repeats {
                            Repeats::TheSame => (json!(2), back(&wanted, "L")),
                            Repeats::UnderAnotherId => (json!(3 + turn), back(&wanted, "S")),
                            Repeats::TheFirst => (json!(1), params.clone()),
                        };
                        let said = result_of(client.post(&id, "tools/call", &params));
                        assert!(text(&said).starts_with('L'), "{what}: {said}");
                        assert_eq!(world.effects().len(), 1, "{what}: {said}");
                    }
                    world.check();
                }
            }
        }
    }
}

/// The same of a client behind a bridge.
#[test]
fn who_comes_back_again_behind_a_bridge_has_the_same_call() {
    for server in ["older", "newer"] {
        for is_killed in [false, true] {
            let world = GatewayWorld::new();
            world.behave(server);
            let mut client = world.client();
            let params = json!({"name": "tell_secret", "arguments": {"to": "ask"}});
            let of = |params: &Value| signed_by(&json!({"name": "claude-code"}), &forms(), params.clone());
            let id = client.request("tools/call", &of(&params));
            let wanted = client.answer(id)["result"].clone();
            let (name, _) = wanted["inputRequests"].as_object().unwrap().iter().next().unwrap();
            let mut back = params;
            back["requestState"] = wanted["requestState"].clone();
            back["inputResponses"] = json!({name: {"action": "accept", "content": {"size": "L"}}});
            for turn in 0..3 {
                let id = client.request("tools/call", &of(&back));
                let said = client.answer(id)["result"].clone();
                assert!(text(&said).starts_with('L') && world.effects().len() == 1, "{server} {turn}: {said}");
                if is_killed && turn == 0 {
                    world.until_calls(0);
                    world.kill_broker();
                }
            }
            client.killed();
            world.check();
        }
    }
}

/// What was given to one client is nothing in the hands of another one: of another token, another project, or behind a bridge. And it is still good
/// for its own.
#[test]
fn what_a_client_was_given_is_its_own() {
    let world = GatewayWorld::new();
    let client = Posting::new(&world, Era::Stateless, "newer");
    let params = json!({"name": "tell_secret", "arguments": {"to": "ask"}});
    let wanted = result_of(client.post(&json!(1), "tools/call", &params));
    let (name, _) = wanted["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let mut back = params;
    back["requestState"] = wanted["requestState"].clone();
    back["inputResponses"] = json!({name: {"action": "accept", "content": {"size": "stolen"}}});
    let other = HttpClient { token: world.token("claude"), ..client.client.clone() };
    let said = other.alone(1, "tools/call", Some("tell_secret"), back.clone());
    assert_eq!(said.messages[0]["error"]["code"], -32602, "{:?}", said.messages);
    let mut behind = world.client();
    let id = behind.request("tools/call", &signed(&forms(), back.clone()));
    assert_eq!(behind.answer(id)["error"]["code"], -32602);
    // Nor is it good for another call of its own.
    let mut another = back.clone();
    another["arguments"] = json!({"to": "ask", "x": 1});
    let said = answer(client.post(&json!(2), "tools/call", &another));
    assert_eq!(said["error"]["code"], -32602, "{said}");
    assert_eq!(world.effects(), [""; 0]);
    let name = name.clone();
    back["inputResponses"] = json!({name: {"action": "accept", "content": {"size": "own"}}});
    assert_eq!(text(&result_of(client.post(&json!(3), "tools/call", &back))), "own");
    assert_eq!(world.effects().len(), 1);
    world.check();
}

/// Whom the broker leaves behind while a tool asks.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Asked {
    /// A client behind a bridge, on its connection.
    Bridge,
    /// One over HTTP, on its stream; it posts its call again.
    Posted,
    /// The same, and it takes its stream up again.
    TakenUp,
    /// In the place of a result, and it comes back with the answer.
    ComesBack,
    /// The same, and it begins once more.
    BeginsAgain,
}

/// A client over HTTP that posts this call, is asked what its tool asks, and finds the next broker: with the event up to which it has read, and the
/// question.
fn left_while_asked(world: &GatewayWorld, params: &Value) -> (Posting, String, Value) {
    let client = Posting::new(world, Era::Session, "codex");
    let stream = client.post(&json!(5), "tools/call", params);
    let mut lines = BufReader::new(&stream).lines().map(Result::unwrap);
    let event = lines.find_map(|line| line.strip_prefix("id: ").map(str::to_owned)).unwrap();
    let mut said = lines.filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let first = said.find(|message| message["method"] == "elicitation/create").unwrap();
    let client = Posting { client: at_the_next_broker(world, client.client, End::Killed), ..client };
    (client, event, first)
}

/// The broker is killed while a tool asks: whoever waits is told that nobody knows what came of the call, nothing is sent again, and an answer that
/// comes late is the answer to nothing else.
#[test]
fn a_broker_that_ends_while_a_tool_asks_leaves_nobody_without_an_answer() {
    for asked in [Asked::Bridge, Asked::Posted, Asked::TakenUp, Asked::ComesBack, Asked::BeginsAgain] {
        for tool in ["tell_secret", "ask_size"] {
            let what = format!("{asked:?} {tool}");
            let world = GatewayWorld::new();
            let arguments = if tool == "ask_size" { json!({}) } else { json!({"to": "ask"}) };
            let params = json!({"name": tool, "arguments": arguments});
            let is_question = |message: &Value| message["method"] == "elicitation/create";
            let late = |id: &Value| json!({"jsonrpc": "2.0", "id": id, "result": {"action": "accept", "content": {"size": "late"}}});
            let said = match asked {
                Asked::Bridge => {
                    let mut client = world.client().greet();
                    let id = client.request("tools/call", &params);
                    let first = client.hear("what the tool asks", is_question);
                    world.kill_broker();
                    client.say(&late(&first["id"]));
                    let said = client.answer(id)["result"].clone();
                    client.killed();
                    said
                }
                Asked::Posted | Asked::TakenUp => {
                    let (client, event, first) = left_while_asked(&world, &params);
                    let again = if asked == Asked::Posted {
                        client.post(&json!(5), "tools/call", &params)
                    } else {
                        client.client.write("GET", &[("Last-Event-ID", &event)], "")
                    };
                    assert_eq!(client.client.post(&late(&first["id"])).status, 202);
                    hear(&again, |message| message["id"] == 5)["result"].clone()
                }
                Asked::ComesBack | Asked::BeginsAgain => {
                    let client = Posting::new(&world, Era::Stateless, "newer");
                    let wanted = result_of(client.post(&json!(5), "tools/call", &params));
                    let client = Posting { client: at_the_next_broker(&world, client.client, End::Killed), ..client };
                    let back = |wanted: &Value, size: &str| {
                        let (name, _) = wanted["inputRequests"].as_object().unwrap().iter().next().unwrap();
                        let mut back = params.clone();
                        back["requestState"] = wanted["requestState"].clone();
                        back["inputResponses"] = json!({name: {"action": "accept", "content": {"size": size}}});
                        back
                    };
                    let (id, again) = if asked == Asked::ComesBack {
                        (json!(6), back(&wanted, "late"))
                    } else {
                        (json!(5), params.clone())
                    };
                    let said = result_of(client.post(&id, "tools/call", &again));
                    // A person is asked what came of it, in the client's dialogue.
                    assert!(said["inputRequests"].get("decision").is_some(), "{what}: {said}");
                    result_of(client.post(&json!(7), "tools/call", &back(&said, "M")))
                }
            };
            assert_eq!(told(&said), "unknown", "{what}: {said}");
            let sent = world.said().into_iter().filter(|message| message["method"] == "tools/call").count();
            assert_eq!((sent, world.effects().len()), (1, 0), "{what}");
            let record = world.calls(tool).pop().unwrap();
            assert_eq!(record.status, CallStatus::Unknown, "{what}");
            world.check();
        }
    }
}

/// The same of a tool that only looks: it is made again, and asks again, also a client that comes back with an answer to what it asked before.
#[test]
fn a_read_that_asked_is_made_again_where_its_broker_ended() {
    for asked in [Asked::Bridge, Asked::Posted, Asked::TakenUp, Asked::ComesBack, Asked::BeginsAgain] {
        let what = format!("{asked:?}");
        let world = GatewayWorld::new();
        let params = json!({"name": "look_up", "arguments": {}});
        let is_question = |message: &Value| message["method"] == "elicitation/create";
        let with = |id: &Value, size: &str| json!({"jsonrpc": "2.0", "id": id, "result": {"action": "accept", "content": {"size": size}}});
        let said = match asked {
            Asked::Bridge => {
                let mut client = world.client().greet();
                let id = client.request("tools/call", &params);
                let first = client.hear("what the tool asks", is_question);
                world.kill_broker();
                client.say(&with(&first["id"], "late"));
                let again = client.hear("what it asks again", |said| is_question(said) && said["id"] != first["id"]);
                client.say(&with(&again["id"], "M"));
                let said = client.answer(id)["result"].clone();
                client.killed();
                said
            }
            Asked::Posted | Asked::TakenUp => {
                let (client, event, first) = left_while_asked(&world, &params);
                if asked == Asked::TakenUp {
                    // Of a read that is under way nothing is stored: its client is told to make it again.
                    let taken_up = client.client.write("GET", &[("Last-Event-ID", &event)], "");
                    let told = hear(&taken_up, |message| message["id"] == 5);
                    assert_eq!(told["error"]["code"], -32603, "{what}: {told}");
                }
                let again = client.post(&json!(5), "tools/call", &params);
                let question = hear(&again, |said| is_question(said) || said["id"] == 5);
                assert!(is_question(&question), "{what}: {question}");
                assert_eq!(client.client.post(&with(&first["id"], "late")).status, 202);
                assert_eq!(client.client.post(&with(&question["id"], "M")).status, 202);
                hear(&again, |message| message["id"] == 5)["result"].clone()
            }
            Asked::ComesBack | Asked::BeginsAgain => {
                let client = Posting::new(&world, Era::Stateless, "newer");
                let wanted = result_of(client.post(&json!(5), "tools/call", &params));
                let client = Posting { client: at_the_next_broker(&world, client.client, End::Killed), ..client };
                let back = |wanted: &Value, size: &str| {
                    let (name, _) = wanted["inputRequests"].as_object().unwrap().iter().next().unwrap();
                    let mut back = params.clone();
                    back["requestState"] = wanted["requestState"].clone();
                    back["inputResponses"] = json!({name: {"action": "accept", "content": {"size": size}}});
                    back
                };
                let again = if asked == Asked::ComesBack { (6, back(&wanted, "late")) } else { (5, params.clone()) };
                let again = result_of(client.post(&json!(again.0), "tools/call", &again.1));
                assert_eq!(again["resultType"], "input_required", "{what}: {again}");
                result_of(client.post(&json!(7), "tools/call", &back(&again, "M")))
            }
        };
        assert_eq!(text(&said), "M", "{what}: {said}");
        assert_eq!((world.effects().len(), world.lines("reads").len(), world.questions().len()), (0, 1, 0), "{what}");
        world.check();
    }
}

/// Each of a batch is known by itself.
#[test]
fn a_batch_that_is_posted_again_is_the_same_calls() {
    let world = GatewayWorld::new();
    let mut client = HttpClient::new(&world, "codex");
    let params =
        json!({"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}});
    let greeted = client.post(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}));
    client.session = greeted.session();
    let call = |id: u64, tool: &str, arguments: Value| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}});
    let batch = json!([
        call(1, "append_line", json!({"text": "a"})),
        call(2, "send_email", mail()),
        call(3, "append_line", json!({"text": "b"}))
    ]);
    for turn in 0..3 {
        let said = client.post(&batch);
        let answers = said.messages[0].as_array().unwrap();
        assert_eq!((answers.len(), world.effects().len()), (3, 3), "{turn}: {answers:?}");
        assert!(answers.iter().all(|answer| text(&answer["result"]).starts_with("done, ")), "{answers:?}");
    }
    // One of them alone is that one.
    let alone = client.post(&batch[0]);
    assert!(text(alone.result()).starts_with("done, ") && world.effects().len() == 3, "{}", alone.result());
    world.check();
}

/// Where there are no batches it is said so, and not that the revision is none.
#[test]
fn a_batch_is_refused_as_one_in_every_other_revision() {
    let world = GatewayWorld::new();
    let mut client = HttpClient::new(&world, "codex");
    let batch = json!([{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "send_email", "arguments": mail()}}]);
    for version in ["2026-07-28", "2025-06-18", "2025-11-25"] {
        if version != "2026-07-28" {
            client = client.greet();
        }
        let said = client.send("POST", &[("MCP-Protocol-Version", version)], &batch.to_string());
        let error = &said.messages[0]["error"];
        assert_eq!((said.status, &error["code"]), (400, &json!(-32600)), "{version}: {error}");
        assert!(error["message"].as_str().unwrap().contains("a batch is part of revision 2025-03-26"), "{error}");
    }
    assert!(world.effects().is_empty());
}
