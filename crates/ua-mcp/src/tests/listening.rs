//! The stream of a session that belongs to no request: heard before anything is called, taken up again, and given up in the end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::hostile::Hostile;
use super::http::{call, http, text};
use super::servers::ServerBed;
use super::wait_for_async;

/// What a server tells by itself.
const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

/// A server with a session, whose stream of its own is the test's to write.
struct Teller {
    url: String,
    /// A connection per GET, its head sent, with the last event that it names.
    streams: mpsc::UnboundedReceiver<(TcpStream, Option<String>)>,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Teller {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (opened, streams) = mpsc::unbounded_channel();
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let log = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, opened.clone(), Arc::clone(&log)));
            }
        });
        Self { url, streams, seen }
    }

    async fn stream(&mut self) -> (TcpStream, Option<String>) {
        self.streams.recv().await.unwrap()
    }

    fn count(&self, what: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|seen| *seen == what).count()
    }
}

/// Answers the one request of a connection; a stream is handed over.
async fn serve(
    mut stream: TcpStream,
    opened: mpsc::UnboundedSender<(TcpStream, Option<String>)>,
    log: Arc<Mutex<Vec<String>>>,
) {
    let mut read = Vec::new();
    let (verb, headers, body) = loop {
        if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
            return;
        }
        let request = String::from_utf8_lossy(&read).into_owned();
        let Some((head, body)) = request.split_once("\r\n\r\n") else { continue };
        let named = head.lines().filter_map(|line| line.split_once(": "));
        let headers: BTreeMap<String, String> =
            named.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        if body.len() >= length {
            break (head.split(' ').next().unwrap_or_default().to_owned(), headers, body.to_owned());
        }
    };
    let message: Value = serde_json::from_str(&body).unwrap_or_default();
    let method = message["method"].as_str().unwrap_or(&verb).to_owned();
    log.lock().unwrap().push(method.clone());
    let result = |result: Value| {
        let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
        let head = "content-type: application/json\r\nmcp-session-id: session-1\r\nconnection: close";
        format!("HTTP/1.1 200 OK\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    };
    let answer = match method.as_str() {
        "GET" => {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            opened.send((stream, headers.get("last-event-id").cloned())).unwrap_or_default();
            return;
        }
        "initialize" => result(json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {"listChanged": true}},
            "serverInfo": {"name": "teller", "version": "1"},
        })),
        "tools/list" => result(json!({"tools": [{"name": "a", "inputSchema": {"type": "object"}}]})),
        "tools/call" => result(json!({"content": [{"type": "text", "text": "done"}]})),
        _ => "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned(),
    };
    stream.write_all(answer.as_bytes()).await.unwrap_or_default();
}

#[tokio::test]
async fn changed_tools_are_heard_of_before_anything_is_called_and_after_the_stream_broke() {
    let mut teller = Teller::start().await;
    let world = ServerBed::new(http("teller", &teller.url, &[]));
    let (_, connection) = world.ready().await;
    let changed = || connection.host().take_change().then_some(());
    let (mut stream, after) = teller.stream().await;
    assert_eq!(after, None);
    stream.write_all(format!("id: 7\nretry: 1\ndata: {CHANGED}\n\n").as_bytes()).await.unwrap();
    wait_for_async("the first word", changed).await;
    assert_eq!(teller.count("tools/call"), 0);
    drop(stream);
    let (mut stream, after) = teller.stream().await;
    assert_eq!(after.as_deref(), Some("7"), "it goes on where it was");
    assert!(!connection.host().take_change(), "nothing can have been missed");
    stream.write_all(format!("data: {CHANGED}\n\n").as_bytes()).await.unwrap();
    wait_for_async("the second word", changed).await;
    // An event without an id cannot be gone on from: what came while nobody listened is made up for by a look.
    stream.write_all(b"id:\ndata:\n\n").await.unwrap();
    drop(stream);
    assert_eq!(teller.stream().await.1, None);
    wait_for_async("the look", changed).await;
    world.server.shut_down(&world.shared).await;
}

#[tokio::test]
async fn a_stream_that_brings_nothing_is_given_up_and_calls_go_on() {
    let mut teller = Teller::start().await;
    let world = ServerBed::new(http("teller", &teller.url, &[]));
    let (_, connection) = world.ready().await;
    for _ in 0..6 {
        let (mut stream, _) = teller.stream().await;
        stream.write_all(b"retry: 1\ndata:\n\n").await.unwrap();
    }
    for _ in 0..5 {
        assert_eq!(text(call(&connection, "a", json!({})).await), "done");
    }
    assert_eq!((teller.count("GET"), teller.count("tools/call")), (6, 5));
    world.server.shut_down(&world.shared).await;
}

#[tokio::test]
async fn a_server_without_such_a_stream_is_asked_for_it_once() {
    let hostile = Hostile::start().await;
    let world = ServerBed::new(http("web", &hostile.url, &[]));
    let (_, connection) = world.ready().await;
    let asked = || hostile.seen().iter().filter(|seen| seen.verb == "GET").count();
    wait_for_async("the question", || (asked() == 1).then_some(())).await;
    for _ in 0..3 {
        call(&connection, "echo", json!({})).await;
    }
    assert_eq!(asked(), 1);
}
