//! An HTTP tool server written by hand, which does what the name of the called tool says and writes down every request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// One request as it came.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) verb: String,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Value,
}

impl Seen {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    pub(super) fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }
}

/// The server; it ends with the test's runtime.
pub(super) struct Hostile {
    pub(super) url: String,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    seen: Mutex<Vec<Seen>>,
    /// How many sessions were made, and how many of them are forgotten.
    sessions: Mutex<(u32, u32)>,
    /// The method that is turned away, and the status that it is answered with.
    turned_away: Mutex<Option<(String, u16)>>,
}

impl Hostile {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let state = Arc::new(State::default());
        let serving = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&serving);
                tokio::spawn(async move { state.serve(stream).await });
            }
        });
        Self { url, state }
    }

    /// One that answers a method with a status.
    pub(super) async fn turning_away(method: &str, status: u16) -> Self {
        let this = Self::start().await;
        this.turn_away(method, status);
        this
    }

    /// From now on it answers a method with a status.
    pub(super) fn turn_away(&self, method: &str, status: u16) {
        *self.state.turned_away.lock().unwrap() = Some((method.to_owned(), status));
    }

    pub(super) fn serves_again(&self) {
        *self.state.turned_away.lock().unwrap() = None;
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().unwrap().clone()
    }

    /// The calls of a tool that arrived.
    pub(super) fn calls(&self, tool: &str) -> Vec<Seen> {
        let is_call = |seen: &Seen| seen.method() == "tools/call" && seen.body["params"]["name"] == tool;
        self.seen().into_iter().filter(is_call).collect()
    }

    /// The GETs that take a stream up again.
    pub(super) fn resumptions(&self) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.header("last-event-id").is_some()).collect()
    }

    /// Forgets every session, as a restarted server does.
    pub(super) fn forget_sessions(&self) {
        let mut sessions = self.state.sessions.lock().unwrap();
        sessions.1 = sessions.0;
    }
}

/// A response with a body, as text.
fn response(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

fn json_response(message: &Value) -> String {
    response("200 OK", "content-type: application/json; charset=utf-8\r\n", &message.to_string())
}

/// The beginning of a stream that ends when the connection does.
fn stream(events: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{events}")
}

impl State {
    async fn serve(&self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        while let Some(seen) = read(&mut stream).await {
            self.seen.lock().unwrap().push(seen.clone());
            let answer = self.answer(&seen);
            let (answer, goes_on) = match answer {
                Answer::Whole(answer) => (answer, true),
                Answer::Cut(answer) => (answer, false),
                Answer::Never => return std::future::pending().await,
                Answer::Drip { head, piece } => return drip(stream.get_mut(), &head, piece).await,
            };
            stream.get_mut().write_all(answer.as_bytes()).await.unwrap_or_default();
            if !goes_on {
                return;
            }
        }
    }

    fn answer(&self, seen: &Seen) -> Answer {
        if let Some(session) = seen.header("mcp-session-id") {
            let number: u32 = session.trim_start_matches("session-").parse().unwrap();
            if number <= self.sessions.lock().unwrap().1 {
                return Answer::Whole(response("404 Not Found", "", "no such session"));
            }
        }
        let turned_away = self.turned_away.lock().unwrap().clone();
        if let Some((_, status)) = turned_away.filter(|(method, _)| method == seen.method()) {
            return Answer::Whole(response(&format!("{status} As Asked"), "", "not now"));
        }
        let id = &seen.body["id"];
        let result = |result: Value| json!({"jsonrpc": "2.0", "id": id, "result": result});
        match (seen.verb.as_str(), seen.method()) {
            ("GET", _) => match seen.header("last-event-id") {
                Some(after) => resumed(after),
                None => Answer::Whole(response("405 Method Not Allowed", "", "")),
            },
            ("DELETE", _) => Answer::Whole(response("204 No Content", "", "")),
            (_, "initialize") => {
                let mut sessions = self.sessions.lock().unwrap();
                sessions.0 += 1;
                let hello = result(json!({
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "hostile", "version": "1"},
                }));
                let session = format!("content-type: application/json\r\nmcp-session-id: session-{}\r\n", sessions.0);
                Answer::Whole(response("200 OK", &session, &hello.to_string()))
            }
            (_, "tools/list") => {
                let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
                let page = match seen.body["params"]["cursor"].as_str() {
                    None => json!({"tools": [tool("a")], "nextCursor": "second"}),
                    Some(_) => json!({"tools": [tool("b")]}),
                };
                Answer::Whole(json_response(&result(page)))
            }
            (_, "tools/call") => call(seen),
            (_, "tasks/get") => {
                let task = &seen.body["params"]["taskId"];
                Answer::Whole(json_response(&result(json!({"taskId": task, "status": "completed"}))))
            }
            (_, "tasks/result") => {
                let task = seen.body["params"]["taskId"].as_str().unwrap_or_default();
                let status = task.trim_start_matches("task-");
                Answer::Whole(response(&format!("{status} As Asked"), "", "as asked"))
            }
            _ => Answer::Whole(response("202 Accepted", "", "")),
        }
    }
}

enum Answer {
    /// Sent; the connection stays.
    Whole(String),
    /// Sent, and then the connection is closed.
    Cut(String),
    /// Nothing, for ever.
    Never,
    /// A beginning, and then a piece without meaning, a byte at a time, for as long as somebody listens.
    Drip {
        /// The beginning.
        head: String,
        /// The piece.
        piece: &'static str,
    },
}

async fn drip(stream: &mut TcpStream, head: &str, piece: &str) {
    let env = ua_core::system::env();
    let mut sent = stream.write_all(head.as_bytes()).await;
    for byte in piece.as_bytes().iter().cycle() {
        if sent.is_err() {
            return;
        }
        env.clock.sleep(std::time::Duration::from_millis(5)).await;
        sent = stream.write_all(&[*byte]).await;
    }
}

fn done(id: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "done"}], "unheardOf": 1}})
}

fn call(seen: &Seen) -> Answer {
    let id = &seen.body["id"];
    let params = &seen.body["params"];
    let answer = done(id).to_string();
    match params["name"].as_str().unwrap_or_default() {
        "echo" => Answer::Whole(json_response(&json!({"jsonrpc": "2.0", "id": id, "result": {
            "content": [], "structuredContent": {"arguments": params["arguments"], "meta": params["_meta"]}, "unheardOf": 1}}))),
        "rpc_error" => {
            let error = json!({"code": -32603, "message": "as asked", "data": {}});
            Answer::Whole(json_response(&json!({"jsonrpc": "2.0", "id": id, "error": error})))
        }
        "status" => {
            let status = params["arguments"]["status"].as_u64().unwrap_or_default();
            let body = "é".repeat(20_000);
            Answer::Whole(response(&format!("{status} As Asked"), "location: /elsewhere\r\n", &body))
        }
        "cut" => Answer::Cut(String::new()),
        "cut_in_head" => Answer::Cut("HTTP/1.1 200 O".to_owned()),
        "cut_in_body" => {
            let whole = json_response(&done(id));
            Answer::Cut(whole[..whole.len() - 5].to_owned())
        }
        "accepted" => Answer::Whole(response("202 Accepted", "", "")),
        "empty_json" => Answer::Whole(response("200 OK", "content-type: application/json\r\n", "")),
        "web_page" => Answer::Whole(response("200 OK", "content-type: text/html\r\n", "<p>Please log in</p>")),
        "wrong_id" => Answer::Whole(json_response(&done(&json!(4711)))),
        "batch" => Answer::Whole(json_response(&json!([done(id)]))),
        "strays_before" => {
            let (other, asked) = (done(&json!(4711)), "\"jsonrpc\"");
            let strays = ["Starting up ...", "{\"jsonrpc\": ", "7", "[]", &other.to_string(), asked]
                .map(|stray| format!("data: {stray}\n\n"));
            Answer::Cut(stream(&format!("{}data: {answer}\n\n", strays.concat())))
        }
        "strays_alone" => Answer::Cut(stream("data: Starting up ...\n\ndata: 7\n\n")),
        "no_answer" => Answer::Whole(json_response(&json!({"jsonrpc": "2.0", "id": id}))),
        "broken_json" => Answer::Cut(stream(&format!("data: {}\n\n", &answer[..answer.len() - 2]))),
        "no_last_line" => Answer::Cut(stream(&format!("event: message\ndata: {answer}"))),
        "cut_in_last_line" => Answer::Cut(stream(&format!("data: {}", &answer[..answer.len() - 1]))),
        "huge" => {
            let text = "x".repeat(9 * 1024 * 1024);
            Answer::Whole(json_response(
                &json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}}),
            ))
        }
        "never" => Answer::Never,
        "drip_events" => Answer::Drip { head: stream(""), piece: ": \n\n" },
        "drip_body" => {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n{";
            Answer::Drip { head: head.to_owned(), piece: " " }
        }
        "two_answers" => {
            let other = answer.replace("done", "other");
            Answer::Cut(stream(&format!("data: {answer}\n\ndata: {other}\n\n")))
        }
        refused if refused.starts_with("refused") => {
            let error = json!({"code": -32601, "message": "no such method"});
            let error = format!("data: {}\n\n", json!({"jsonrpc": "2.0", "id": id, "error": error}));
            let progress = json!({"progressToken": params["_meta"]["progressToken"], "progress": 1});
            let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress});
            match refused {
                "refused_then_done" => Answer::Cut(stream(&format!("{error}data: {answer}\n\n"))),
                "refused_on_and_on" => Answer::Drip { head: stream(&error), piece: ": \n\n" },
                "refused_behind_progress" => Answer::Cut(stream(&format!("data: {progress}\n\n{error}"))),
                _ => Answer::Cut(stream(&error)),
            }
        }
        "slow_stream" => {
            let note =
                json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}});
            let ping = json!({"jsonrpc": "2.0", "id": "their-1", "method": "ping"});
            let ask = json!({"jsonrpc": "2.0", "id": "their-2", "method": "sampling/createMessage", "params": {}});
            Answer::Cut(stream(&format!(
                ": hello\n\nid: 1\nevent: message\ndata: {note}\n\ndata: {ping}\n\ndata: {ask}\n\ndata: {answer}\n\n"
            )))
        }
        "stream_without_ids" => Answer::Cut(stream("data:\n\n")),
        // The ids say what the GET that takes the stream up again gets.
        "stream_resumed" => Answer::Cut(stream(&format!("id: first-{id}\nretry: 1\ndata:\n\n"))),
        "stream_stuck" => Answer::Cut(stream("id: stuck\nretry: 1\ndata:\n\n")),
        "stream_repeats" => Answer::Cut(stream("id: repeats\nretry: 1\ndata:\n\n")),
        "stream_expired" => Answer::Cut(stream("id: expired\nretry: 1\ndata:\n\n")),
        "stream_forgotten" => Answer::Cut(stream("id: forgotten\nretry: 1\ndata:\n\n")),
        // Done at once, and its result is answered with the status that its name has.
        task if task.starts_with("task-") => {
            let begun = json!({"task": {"taskId": task, "status": "working", "pollInterval": 100}});
            Answer::Whole(json_response(&json!({"jsonrpc": "2.0", "id": id, "result": begun})))
        }
        other => panic!("no behaviour is called {other}"),
    }
}

/// What a GET gets, by the id of the last event.
fn resumed(after: &str) -> Answer {
    let id = || json!(after.rsplit('-').next().unwrap_or_default().parse::<i64>().unwrap());
    match after {
        "stuck" => Answer::Cut(stream(": nothing new\n\n")),
        "repeats" => Answer::Cut(stream("id: repeats\ndata:\n\n")),
        "expired" => Answer::Whole(response("404 Not Found", "", "no such session")),
        "forgotten" => Answer::Whole(response("405 Method Not Allowed", "", "")),
        first if first.starts_with("first-") => Answer::Cut(stream(&format!("id: second-{}\ndata:\n\n", id()))),
        second if second.starts_with("second-") => Answer::Cut(stream(&format!("data: {}\n\n", done(&id())))),
        other => panic!("no stream had the event {other:?}"),
    }
}

/// Reads one request; `None` at the connection's end.
async fn read(stream: &mut BufReader<TcpStream>) -> Option<Seen> {
    if stream.fill_buf().await.ok()?.first() == Some(&0x16) {
        return None; // the first byte of a TLS handshake
    }
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let verb = line.split_once(' ')?.0.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    Some(Seen { verb, headers, body })
}
