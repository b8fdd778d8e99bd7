//! Clients over HTTP: who is let in, sessions, streams that break, requests that stand for themselves, and the broker's death.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::eras::signed;
use crate::world::{GatewayWorld, kill, mail, notice, text};

/// What came back for one request, a message each.
struct Said {
    status: u16,
    session: Option<String>,
    messages: Vec<Value>,
    /// The name of the last event.
    last: Option<String>,
}

impl Said {
    fn result(&self) -> &Value {
        &self.messages.last().unwrap_or_else(|| panic!("nothing was said: {}", self.status))["result"]
    }
}

#[derive(Clone)]
struct HttpClient {
    address: String,
    token: String,
    session: Option<String>,
}

impl HttpClient {
    fn new(world: &GatewayWorld, name: &str) -> Self {
        Self { address: world.over_http(), token: world.token(name), session: None }
    }

    /// Writes a request; what comes back is read by whoever wants it.
    fn write(&self, method: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let mut head = format!(
            "{method} /s/stub/mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\nConnection: close\r\n",
            self.address,
            self.token,
            body.len()
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

    fn send(&self, method: &str, headers: &[(&str, &str)], body: &str) -> Said {
        read(self.write(method, headers, body))
    }

    fn post(&self, message: &Value) -> Said {
        self.send("POST", &[], &message.to_string())
    }

    fn greet(mut self) -> Self {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "codex", "version": "1"}});
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
    fn alone(&self, id: u64, method: &str, name: Option<&str>, params: Value) -> Said {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": signed(&json!({}), params)});
        let mut headers = vec![("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)];
        headers.extend(name.map(|name| ("Mcp-Name", name)));
        self.send("POST", &headers, &message.to_string())
    }
}

/// Reads a response to its end, whichever way it is written.
fn read(stream: TcpStream) -> Said {
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
    world.until_askers(2);
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
    assert_eq!(client.send("GET", &[("Last-Event-ID", "999-0")], "").status, 404);
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
