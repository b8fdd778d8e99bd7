//! Clients over HTTP: who is let in, sessions, streams that break, requests that stand for themselves, and the broker's death.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, geteuid, getrlimit, prlimit};
use serde_json::{Value, json};
use ua_core::CallStatus;
use ua_store::Choice;

use crate::eras::signed;
use crate::world::{GatewayWorld, cell, kill, mail, notice, text, told, until};

/// What came back for one request, a message each.
pub(crate) struct Said {
    pub(crate) status: u16,
    session: Option<String>,
    pub(crate) messages: Vec<Value>,
    /// The name of the last event.
    last: Option<String>,
}

impl Said {
    /// The session that began with it.
    pub(crate) fn session(&self) -> Option<String> {
        self.session.clone()
    }

    pub(crate) fn result(&self) -> &Value {
        &self.messages.last().unwrap_or_else(|| panic!("nothing was said: {}", self.status))["result"]
    }
}

#[derive(Clone)]
pub(crate) struct HttpClient {
    pub(crate) address: String,
    pub(crate) token: String,
    pub(crate) session: Option<String>,
    /// Whether its connections are for more than one request.
    pub(crate) keeps_open: bool,
}

impl HttpClient {
    pub(crate) fn new(world: &GatewayWorld, name: &str) -> Self {
        Self { address: world.over_http(), token: world.token(name), session: None, keeps_open: false }
    }

    /// Writes a request; what comes back is read by whoever wants it.
    pub(crate) fn write(&self, method: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let mut head = format!(
            "{method} /s/stub/mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\nConnection: {}\r\n",
            self.address,
            self.token,
            body.len(),
            if self.keeps_open { "keep-alive" } else { "close" }
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(session) = &self.session {
            head.push_str(&format!("Mcp-Session-Id: {session}\r\n"));
        }
        write!(stream, "{head}\r\n{body}").unwrap();
        stream
    }

    pub(crate) fn send(&self, method: &str, headers: &[(&str, &str)], body: &str) -> Said {
        read(self.write(method, headers, body))
    }

    pub(crate) fn post(&self, message: &Value) -> Said {
        self.send("POST", &[], &message.to_string())
    }

    pub(crate) fn greet(self) -> Self {
        self.greet_with(&json!({}))
    }

    /// Greets as a client with these capabilities.
    pub(crate) fn greet_with(mut self, capabilities: &Value) -> Self {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "codex", "version": "1"}});
        let said = self.post(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}));
        assert_eq!((said.status, said.result()["serverInfo"]["name"].as_str()), (200, Some("stub")));
        self.session = said.session;
        let told = self.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        assert_eq!(told.status, 202);
        self
    }

    fn request(id: u64, tool: &str, arguments: &Value) -> Value {
        let meta = json!({"threadId": "t1", "callId": format!("call-{id}")});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments, "_meta": meta}})
    }

    fn call(&self, id: u64, tool: &str, arguments: &Value) -> Said {
        self.post(&Self::request(id, tool, arguments))
    }

    /// A request that stands for itself.
    pub(crate) fn alone(&self, id: u64, method: &str, name: Option<&str>, params: Value) -> Said {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": signed(&json!({}), params)});
        let mut headers = vec![("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)];
        headers.extend(name.map(|name| ("Mcp-Name", name)));
        self.send("POST", &headers, &message.to_string())
    }
}

/// Reads events of a stream that stays open until one of them `is_it`.
pub(crate) fn hear(stream: &TcpStream, is_it: impl Fn(&Value) -> bool) -> Value {
    let lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
    let mut said = lines.filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok());
    said.find(|message| is_it(message)).unwrap()
}

/// Reads a response to its end, whichever way it is written.
pub(crate) fn read(stream: TcpStream) -> Said {
    let mut lines = BufReader::new(stream);
    let mut first = String::new();
    lines.read_line(&mut first).unwrap();
    let status = first.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let (mut session, mut is_chunked, mut length) = (None, false, None);
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).unwrap() == 0 || line == "\r\n" {
            break;
        }
        let (name, value) = line.split_once(':').unwrap();
        match name.to_ascii_lowercase().as_str() {
            "mcp-session-id" => session = Some(value.trim().to_owned()),
            "transfer-encoding" => is_chunked = true,
            "content-length" => length = value.trim().parse::<usize>().ok(),
            _ => {}
        }
    }
    let mut body = String::new();
    if is_chunked {
        loop {
            let mut size = String::new();
            if lines.read_line(&mut size).unwrap_or(0) == 0 {
                break;
            }
            let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
            let mut chunk = vec![0; size + 2];
            if size == 0 || lines.read_exact(&mut chunk).is_err() {
                break;
            }
            body.push_str(std::str::from_utf8(&chunk[..size]).unwrap());
        }
    } else {
        let mut bytes = vec![0; length.unwrap_or(0)];
        lines.read_exact(&mut bytes).unwrap();
        body = String::from_utf8(bytes).unwrap();
    }
    let data: Vec<Value> =
        body.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
    let last = body.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().map(str::to_owned);
    let messages = if data.is_empty() { serde_json::from_str(&body).ok().into_iter().collect() } else { data };
    Said { status, session, messages, last }
}

#[test]
fn only_who_has_a_token_and_is_no_web_page_is_let_in() {
    let world = GatewayWorld::new();
    let client = HttpClient::new(&world, "codex");
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let nobody = HttpClient { token: "uag_0".to_owned(), ..client.clone() };
    assert_eq!(nobody.send("POST", &[], &ping).status, 401);
    assert_eq!(client.send("POST", &[("Origin", "http://evil.example.com")], &ping).status, 403);
    let elsewhere = client.write("GET", &[], "");
    assert_eq!(read(elsewhere).status, 405, "there is no session yet");
    assert_eq!(client.send("POST", &[], &ping).status, 400, "it does not begin with a handshake");
    let lost = HttpClient { session: Some("s".to_owned()), ..client.clone() };
    assert_eq!(lost.send("POST", &[], &ping).status, 404);
    assert_eq!(client.send("POST", &[], "[]").status, 400);
    assert_eq!(client.send("PUT", &[], "").status, 405);
    let greeted = client.greet();
    assert_eq!(greeted.send("POST", &[("MCP-Protocol-Version", "1999-01-01")], &ping).status, 400);
    assert_eq!(*greeted.send("POST", &[("MCP-Protocol-Version", "2025-11-25")], &ping).result(), json!({}));
    let another = HttpClient { token: world.token("claude"), ..greeted.clone() };
    assert_eq!(another.send("POST", &[], &ping).status, 404, "a session is its client's own");
    assert_eq!(greeted.send("DELETE", &[], "").status, 204);
    assert_eq!(greeted.send("POST", &[], &ping).status, 404);
}

/// G8: the client's transport posts the call once more after a 404, with the same id; and its stream is cut.
#[test]
fn a_call_that_is_posted_again_is_the_same_call() {
    let world = GatewayWorld::new();
    let client = HttpClient::new(&world, "codex").greet();
    world.behave("hold");
    let cut = client.write("POST", &[], &HttpClient::request(1, "append_line", &json!({"text": "a"})).to_string());
    world.until_effects(1);
    drop(cut);
    // The session is gone: begun anew, and the call posted again.
    assert_eq!(client.send("DELETE", &[], "").status, 204);
    let again = HttpClient { session: None, ..client }.greet();
    let waiting = again.write("POST", &[], &HttpClient::request(1, "append_line", &json!({"text": "a"})).to_string());
    world.until_askers(1);
    world.let_go();
    let said = read(waiting);
    assert!(text(said.result()).starts_with("done, 1 so far"), "{}", said.result());
    assert_eq!(world.effects().len(), 1);
    // Another use of the tool is another call.
    again.post(&json!({"jsonrpc": "2.0", "id": 9, "method": "ping"}));
    assert_eq!(notice(again.call(2, "append_line", &json!({"text": "a"})).result()), "");
    assert_eq!(world.effects().len(), 2);
    world.check();
}

/// The very request that comes again while it is under way is no other one, also of a client that names no tool use; and a line that was cut
/// is nobody who waits, so that the same call under another id is not made beside it.
#[test]
fn a_call_is_not_made_beside_itself() {
    let world = GatewayWorld::new();
    let client = HttpClient::new(&world, "codex").greet();
    let request = |id: u64| {
        let params = json!({"name": "append_line", "arguments": {"text": "a"}});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
    };
    world.behave("hold");
    let first = client.write("POST", &[], &request(1));
    world.until_effects(1);
    let beside = client.write("POST", &[], &request(1));
    // It reads the same stream.
    assert_eq!(first_event(&beside), first_event(&first));
    world.until_askers(1);
    drop((first, beside));
    world.until_askers(0);
    let waiting = client.write("POST", &[], &request(2));
    world.until_askers(1);
    world.let_go();
    let said = read(waiting);
    assert!(text(said.result()).starts_with("done, 1 so far"), "{}", said.result());
    assert_eq!(world.effects().len(), 1);
    world.check();
}

/// A stream that breaks is taken up again where it broke.
#[test]
fn a_stream_that_broke_is_taken_up_again() {
    let world = GatewayWorld::new();
    let client = HttpClient::new(&world, "codex").greet();
    let said = client.call(1, "send_email", &mail());
    assert_eq!(text(said.result()), "done, 1 so far");
    let last = said.last.unwrap();
    let number = last.split_once('-').unwrap().0;
    let again = client.send("GET", &[("Last-Event-ID", &format!("{number}-0"))], "");
    assert_eq!(again.messages, said.messages);
    // It is no event, and there is such a session all the same.
    assert_eq!(client.send("GET", &[("Last-Event-ID", "nonsense")], "").status, 400);
}

/// How a client comes for its answer after its stream broke.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ComesBy {
    /// It takes the stream up again.
    Stream,
    /// It posts the very request again.
    SameRequest,
    /// It asks for the same under another id.
    AnotherId,
}

impl ComesBy {
    const ALL: [Self; 3] = [Self::Stream, Self::SameRequest, Self::AnotherId];

    fn comes(self, client: &HttpClient, event: &str, tool: &str, arguments: &Value) -> TcpStream {
        match self {
            Self::Stream => client.write("GET", &[("Last-Event-ID", event)], ""),
            Self::SameRequest => client.write("POST", &[], &silent(&json!("b"), tool, arguments)),
            Self::AnotherId => client.write("POST", &[], &silent(&json!("c"), tool, arguments)),
        }
    }
}

/// G13: a call that waits for a person, and for which nobody waits, is let go of. Whoever comes for its answer then has it taken up, whichever way
/// they come, and a person's word counts for it.
#[test]
fn a_held_call_that_was_let_go_of_is_taken_up_with_its_stream() {
    for by in ComesBy::ALL {
        for is_answered_before in [false, true] {
            let what = format!("{by:?}, answered before: {is_answered_before}");
            let mut world = GatewayWorld::new();
            world.hold_millis = 60_000;
            let client = HttpClient::new(&world, "codex").greet();
            let wire = json!({"amount": 9});
            let cut = client.write("POST", &[], &silent(&json!("b"), "wire_money", &wire));
            let event = first_event(&cut);
            let question = until("a question", || world.questions().pop());
            drop(cut);
            world.until_calls(0);
            assert!(world.effects().is_empty(), "{what}");
            if is_answered_before {
                world.answer(&question, Choice::Execute);
            }
            let waiting = by.comes(&client, &event, "wire_money", &wire);
            if !is_answered_before {
                world.until_askers(1);
                world.answer(&question, Choice::Execute);
            }
            let said = read(waiting);
            assert_eq!((text(said.result()).as_str(), world.effects().len()), ("done, 1 so far", 1), "{what}");
            assert!(world.questions().is_empty(), "{what}");
            world.check();
        }
    }
}

/// The same of a call whose turn came when nobody waited: it is not begun, and nobody is told that it is being sent.
#[test]
fn a_call_whose_turn_came_with_nobody_there_is_taken_up_with_its_stream() {
    for by in ComesBy::ALL {
        let world = GatewayWorld::new();
        let client = HttpClient::new(&world, "codex").greet();
        world.behave("hold");
        let line = |text: &str| json!({"text": text});
        let first = client.write("POST", &[], &silent(&json!("a"), "append_line", &line("a")));
        world.until_effects(1);
        let cut = client.write("POST", &[], &silent(&json!("b"), "append_line", &line("b")));
        let event = first_event(&cut);
        world.until_askers(2);
        drop(cut);
        world.until_askers(1);
        world.let_go();
        assert_eq!(text(read(first).result()), "done, 1 so far", "{by:?}");
        world.until_calls(0);
        assert_eq!(world.effects().len(), 1, "{by:?}");
        let said = read(by.comes(&client, &event, "append_line", &line("b")));
        assert_eq!((text(said.result()).as_str(), world.effects().len()), ("done, 2 so far", 2), "{by:?}");
        world.check();
    }
}

/// How a broker ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum End {
    Killed,
    Stopped,
}

/// The same client at the next broker, in the session that it has.
pub(crate) fn at_the_next_broker(world: &GatewayWorld, client: HttpClient, end: End) -> HttpClient {
    match end {
        End::Killed => world.kill_broker(),
        End::Stopped => world.stop_broker(),
    }
    world.until_no_broker();
    HttpClient { address: world.over_http(), ..client }
}

/// A call that says nothing of whose it is.
fn silent(id: &Value, tool: &str, arguments: &Value) -> String {
    let params = json!({"name": tool, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

/// The name of the first event of a stream, which is there before the answer.
fn first_event(stream: &TcpStream) -> String {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map(Result::unwrap);
    lines.find_map(|line| line.strip_prefix("id: ").map(str::to_owned)).unwrap()
}

/// A call was done, its answer reached nobody, and the broker ended: the client goes on in its session, and what it asks for once more, under
/// whichever id, is that call. The next one is another.
#[test]
fn a_session_outlives_its_broker_and_so_does_what_it_is_owed() {
    for end in [End::Killed, End::Stopped] {
        for (tool, arguments) in [("append_line", json!({"text": "a"})), ("send_email", mail())] {
            for again in [json!("a"), json!("b")] {
                eprintln!("{end:?} {tool} {again}");
                let world = GatewayWorld::new();
                let client = HttpClient::new(&world, "codex").greet();
                world.behave("hold");
                let cut = client.write("POST", &[], &silent(&json!("a"), tool, &arguments));
                world.until_effects(1);
                drop(cut);
                world.until_askers(0);
                world.let_go();
                world.until_calls(0);
                let client = at_the_next_broker(&world, client, end);
                let said = client.send("POST", &[], &silent(&again, tool, &arguments));
                // The very request has its answer; another one for the same call is told that it is not its own.
                let expected = if again == "a" { "" } else { "late" };
                assert_eq!((said.status, notice(said.result()), world.effects().len()), (200, expected, 1), "{again}");
                let next = client.send("POST", &[], &silent(&json!("c"), "append_line", &json!({"text": "a"})));
                assert_eq!((notice(next.result()), world.effects().len()), ("", 2));
                world.check();
            }
        }
    }
}

/// The same of requests that stand for themselves, whose client has no session to name.
#[test]
fn a_client_without_sessions_is_the_same_one_at_the_next_broker() {
    for end in [End::Killed, End::Stopped] {
        let world = GatewayWorld::new();
        let client = HttpClient::new(&world, "newer");
        let line = json!({"name": "append_line", "arguments": {"text": "b"}});
        world.behave("hold");
        let message =
            json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": signed(&json!({}), line.clone())});
        let headers =
            [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "append_line")];
        let cut = client.write("POST", &headers, &message.to_string());
        world.until_effects(1);
        drop(cut);
        world.until_askers(0);
        world.let_go();
        world.until_calls(0);
        let client = at_the_next_broker(&world, client, end);
        let said = client.alone(6, "tools/call", Some("append_line"), line);
        assert_eq!((notice(said.result()), world.effects().len()), ("late", 1), "{end:?}");
        world.check();
    }
}

/// A stream that broke with its broker is taken up at the next one: with the answer that is stored, with the one that comes, and with what is
/// said of a call in doubt.
#[test]
fn a_stream_is_taken_up_again_at_the_next_broker() {
    for (tool, arguments, is_done) in [
        ("append_line", json!({"text": "a"}), true),
        ("charge_card", json!({"amount": 7}), false),
        ("append_line", json!({"text": "a"}), false),
    ] {
        for id in [json!(7), json!("a-b/ü")] {
            let world = GatewayWorld::new();
            let client = HttpClient::new(&world, "codex").greet();
            world.behave("hold");
            let stream = client.write("POST", &[], &silent(&id, tool, &arguments));
            let event = first_event(&stream);
            world.until_effects(1);
            if is_done {
                drop(stream);
                world.until_askers(0);
                world.let_go();
                world.until_calls(0);
            }
            let client = at_the_next_broker(&world, client, End::Killed);
            if !is_done {
                world.let_go();
            }
            let again = client.send("GET", &[("Last-Event-ID", &event)], "");
            let answer = again.messages.last().unwrap_or_else(|| panic!("{tool}: nothing was said: {}", again.status));
            assert_eq!((again.status, &answer["id"]), (200, &id));
            if tool == "append_line" && !is_done {
                assert_eq!((told(&answer["result"]), world.effects().len()), ("unknown", 1), "{answer}");
                continue;
            }
            assert_eq!((text(&answer["result"]).as_str(), world.effects().len()), ("done, 1 so far", 1), "{answer}");
            // It has it, and means another one.
            let next = client.send("POST", &[], &silent(&json!("c"), "append_line", &json!({"text": "a"})));
            assert_eq!((notice(next.result()), world.effects().len()), ("", 2), "{tool}");
            world.check();
        }
    }
}

/// Of a request that is known nowhere it is said so, on a stream that ends.
#[test]
fn a_stream_of_a_request_that_is_not_known_says_so() {
    let world = GatewayWorld::new();
    let client = HttpClient::new(&world, "codex").greet();
    let said = client.send("GET", &[("Last-Event-ID", "1-0-37-nobody")], "");
    let answer = &said.messages[0];
    assert_eq!((said.status, &answer["id"], &answer["error"]["code"]), (200, &json!(7), &json!(-32603)));
}

/// A broker that is to end answers whoever waits, and lets in nobody more; then it ends.
#[test]
fn who_waits_is_answered_before_the_broker_ends() {
    let world = GatewayWorld::new();
    let client = HttpClient::new(&world, "codex").greet();
    let standing = client.write("GET", &[], "");
    world.behave("hold");
    let waiting = client.write("POST", &[], &silent(&json!(1), "append_line", &json!({"text": "a"})));
    world.until_effects(1);
    world.stop_broker();
    assert_eq!(read(standing).status, 200, "it ends, since nobody waits for an answer there");
    until("nobody to be let in", || TcpStream::connect(&client.address).is_err().then_some(()));
    world.let_go();
    assert_eq!(text(read(waiting).result()), "done, 1 so far");
    world.until_no_broker();
    let client = HttpClient { address: world.over_http(), ..client };
    // It has its answer: it was written to the end, and its client goes on.
    let next = client.send("POST", &[], &silent(&json!(2), "append_line", &json!({"text": "a"})));
    assert_eq!((notice(next.result()), world.effects().len()), ("", 2));
    world.check();
}

/// What a client ended is over for the next broker, too, and a session is its own client's.
#[test]
fn a_session_that_was_ended_is_none_at_the_next_broker() {
    let world = GatewayWorld::new();
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let client = HttpClient::new(&world, "codex");
    let (ended, kept) = (client.clone().greet(), client.greet());
    assert_eq!(ended.send("DELETE", &[], "").status, 204);
    let ended = at_the_next_broker(&world, ended, End::Killed);
    assert_eq!(ended.send("POST", &[], &ping).status, 404);
    let kept = HttpClient { address: ended.address, ..kept };
    let another = HttpClient { token: world.token("claude"), ..kept.clone() };
    assert_eq!(another.send("POST", &[], &ping).status, 404);
    assert_eq!(*kept.send("POST", &[], &ping).result(), json!({}));
    assert_eq!(kept.send("DELETE", &[], "").status, 204);
    assert_eq!(kept.send("POST", &[], &ping).status, 404);
}

#[test]
fn a_request_that_stands_for_itself_is_served_without_a_session() {
    let world = GatewayWorld::new();
    let client = HttpClient::new(&world, "newer");
    let found = client.alone(1, "server/discover", None, json!({}));
    assert_eq!((found.status, &found.result()["supportedVersions"]), (200, &json!(["2026-07-28"])));
    let sent = client.alone(2, "tools/call", Some("send_email"), json!({"name": "send_email", "arguments": mail()}));
    assert_eq!(text(sent.result()), "done, 1 so far");
    let other = client.alone(3, "tools/call", Some("another"), json!({"name": "send_email", "arguments": mail()}));
    assert_eq!((other.status, &other.messages[0]["error"]["code"]), (400, &json!(-32020)));
    let unknown = client.alone(4, "unknown/method", None, json!({}));
    assert_eq!(
        (unknown.status, &unknown.messages[0]["error"]["code"], &unknown.messages[0]["id"]),
        (404, &json!(-32601), &json!(4))
    );
    // What its transport has to post again after a cut has another id, and is the same call all the same.
    world.behave("hold");
    let message = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call",
        "params": signed(&json!({}), json!({"name": "append_line", "arguments": {"text": "b"}}))});
    let headers = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "append_line")];
    let cut = client.write("POST", &headers, &message.to_string());
    world.until_effects(2);
    drop(cut);
    world.until_askers(0);
    let mut again = message;
    again["id"] = json!(6);
    let waiting = client.write("POST", &headers, &again.to_string());
    world.until_askers(1);
    world.let_go();
    assert!(text(read(waiting).result()).starts_with("done, 2 so far"));
    assert_eq!(world.effects().len(), 2);
    world.check();
}

/// How a client over HTTP goes away while its tool asks it for something.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Leaves {
    /// It ends its session.
    Ends,
    /// Its stream is cut, and it does not come back.
    Vanishes,
    /// The same, before its tool asks.
    VanishesBefore,
}

/// A tool asks, and its client over HTTP goes instead of answering: the tool hears that nobody answers, its call ends, and nobody else waits
/// for it. However many others come meanwhile.
#[test]
fn a_tool_that_asks_a_client_over_http_that_goes_is_told_so() {
    for (leaves, is_newer_server, is_newer_client) in [
        (Leaves::Ends, false, false),
        (Leaves::Ends, true, false),
        (Leaves::Vanishes, false, false),
        (Leaves::Vanishes, true, false),
        (Leaves::VanishesBefore, false, false),
        (Leaves::VanishesBefore, true, false),
        (Leaves::VanishesBefore, false, true),
        (Leaves::VanishesBefore, true, true),
    ] {
        let what = format!("{leaves:?}, server {is_newer_server}, client {is_newer_client}");
        eprintln!("{what}");
        let world = GatewayWorld::new();
        std::fs::write(world.path("away_after"), "200").unwrap();
        if is_newer_server {
            world.behave("newer");
        }
        let forms = json!({"elicitation": {}});
        let is_question = |message: &Value| message["method"] == "elicitation/create";
        let params = json!({"name": "tell_secret", "arguments": {"to": "ask"}});
        let new = HttpClient::new(&world, "codex");
        let other = HttpClient { token: world.token("claude"), ..new.clone() };
        let client = if is_newer_client { new.clone() } else { new.clone().greet_with(&forms) };
        if leaves == Leaves::VanishesBefore {
            world.behave("hold");
        }
        let stream = if is_newer_client {
            let params = signed(&forms, params.clone());
            let message = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params});
            let headers =
                [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "tell_secret")];
            client.write("POST", &headers, &message.to_string())
        } else {
            let message = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params});
            client.write("POST", &[], &message.to_string())
        };
        if leaves == Leaves::VanishesBefore {
            until("the call to be sent", || {
                world.said().iter().any(|said| said["method"] == "tools/call").then_some(())
            });
        } else {
            hear(&stream, is_question);
        }
        drop(stream);
        match leaves {
            Leaves::Ends => assert_eq!(client.send("DELETE", &[], "").status, 204),
            Leaves::Vanishes => {}
            Leaves::VanishesBefore => {
                world.until_askers(0);
                world.let_go();
            }
        }
        until("the call to end", || {
            // Somebody else comes again and again.
            let found = other.alone(1, "server/discover", None, json!({}));
            assert_eq!(found.status, 200);
            world.status()?["calls"].as_array()?.is_empty().then_some(())
        });
        let record = world.calls("tell_secret").pop().unwrap();
        assert_eq!(record.status, CallStatus::Succeeded, "{what}: {record:?}");
        assert!(world.questions().is_empty(), "{what}");
        // Whoever asks for the same is asked, and waits for nobody.
        let next = new.greet_with(&forms);
        let message = json!({"jsonrpc": "2.0", "id": 6, "method": "tools/call", "params": params});
        let waiting = next.write("POST", &[], &message.to_string());
        let asked = hear(&waiting, is_question);
        let answer = json!({"action": "accept", "content": {"size": "L"}});
        assert_eq!(next.post(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": answer})).status, 202);
        let had = hear(&waiting, |message| message["id"] == 6);
        assert_eq!(text(&had["result"]), "L", "{what}");
        world.check();
    }
}

/// The broker is killed in a call: the client is cut off, begins anew with the next broker, and is told what is known.
#[test]
fn a_client_over_http_finds_its_call_with_the_next_broker() {
    let world = GatewayWorld::new();
    let client = HttpClient::new(&world, "codex").greet();
    world.behave("hold");
    let cut = client.write("POST", &[], &HttpClient::request(1, "charge_card", &json!({"amount": 7})).to_string());
    world.until_effects(1);
    kill(world.broker_pid());
    drop(cut);
    world.let_go();
    let address = world.over_http();
    let again = HttpClient { address, session: None, ..client }.greet();
    let said = again.call(1, "charge_card", &json!({"amount": 7}));
    assert_eq!((text(said.result()).as_str(), world.effects().len()), ("done, 1 so far", 1), "one key, one effect");
    world.check();
}

/// Another program, whoever's, has the address before the broker: clients that come through bridges do not care, all are told, and clients over
/// HTTP are served as soon as it is free.
#[test]
fn an_address_that_another_program_has_stops_no_client_of_a_bridge_and_is_said_plainly() {
    let world = GatewayWorld::new();
    let squatter = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = squatter.local_addr().unwrap().to_string();
    std::fs::write(world.path("over_http"), &address).unwrap();
    let mut client = world.client().greet();
    let answer = client.result("append_line", &json!({"text": "a"}));
    assert_eq!((text(&answer).as_str(), world.effects().len()), ("done, 1 so far", 1));
    let status = world.status().unwrap();
    let why = status["http_taken"].as_str().unwrap();
    assert!(why.contains(&format!("{address} belongs to another program of yours")), "{why}");
    assert_eq!(status["http"], Value::Null);
    until("a word to the person", || {
        std::fs::read_to_string(world.path("bridge.log")).ok()?.contains(why).then_some(())
    });
    drop(squatter);
    let served = until("an address that is free", || Some(world.status()?["http"].as_str()?.to_owned()));
    assert_eq!((served, world.status().unwrap()["http_taken"].clone()), (format!("http://{address}"), Value::Null));
    let client = HttpClient { address, token: world.token("codex"), session: None, keeps_open: false }.greet();
    assert_eq!(client.call(1, "append_line", &json!({"text": "b"})).status, 200);
}

/// The soft limit of open files that a process has.
fn open_files(pid: u32) -> u64 {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    line.split_whitespace().nth(3).unwrap().parse().unwrap()
}

/// As many connections as one client opens, and says nothing on: a client of a bridge has its tool server all the same.
#[test]
fn connections_that_stay_open_leave_room_for_clients_of_bridges() {
    let world = GatewayWorld::new();
    let address = world.over_http();
    let broker = Pid::from_raw(i32::try_from(world.broker_pid()).unwrap());
    let most = getrlimit(Resource::Nofile).maximum;
    prlimit(broker, Resource::Nofile, Rlimit { current: Some(256), maximum: most }).unwrap();
    let open: Vec<TcpStream> = (0..150).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let said = read(open.last().unwrap().try_clone().unwrap());
    assert_eq!(said.status, 503, "the last one is closed");
    let mut client = world.client().greet();
    let answer = client.result("append_line", &json!({"text": "a"}));
    assert_eq!((text(&answer).as_str(), world.effects().len()), ("done, 1 so far", 1));
    drop(open);
    until("room over HTTP", || {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        // One that is closed is told why before.
        stream.read(&mut [0]).is_err().then_some(())
    });
    let client = HttpClient::new(&world, "codex").greet();
    assert_eq!(client.call(1, "append_line", &json!({"text": "b"})).status, 200);
}

/// The usual limit of open files is raised at the start, as far as the user may.
#[test]
fn a_broker_may_have_more_files_open_than_a_shell_lets_it() {
    let world = GatewayWorld::new();
    std::fs::write(world.path("over_http"), "").unwrap();
    let start = format!("ulimit -S -n 256 && exec '{}' start '{}' 0", cell().display(), world.folder.path().display());
    assert!(Command::new("sh").args(["-c", &start]).status().unwrap().success());
    let wanted = getrlimit(Resource::Nofile).maximum.map_or(8_192, |most| most.min(8_192));
    assert_eq!(open_files(world.broker_pid()), wanted);
}

/// Another user of this machine connects and says nothing: it is told why and closed at once, and not after the time that a request may take.
/// Only root can be somebody else, so for others this is the kernel's table in `peers`.
#[test]
fn a_connection_of_another_user_is_closed_at_once() {
    if !geteuid().is_root() {
        return crate::skips::skipped("only root can be another user who connects");
    }
    let world = GatewayWorld::new();
    let address = world.over_http();
    let (_, port) = address.rsplit_once(':').unwrap();
    let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; cat <&3");
    let nobody =
        Command::new("timeout").args(["10", "bash", "-c", &connect]).current_dir("/").uid(65_534).output().unwrap();
    let told = String::from_utf8_lossy(&nobody.stdout).into_owned();
    assert!(told.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{told} {}", String::from_utf8_lossy(&nobody.stderr));
    assert!(nobody.status.success(), "it was closed before its time was over");
}
