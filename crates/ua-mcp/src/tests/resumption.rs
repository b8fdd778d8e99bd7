//! Streamable HTTP whose answers are cut off on the way: the rest is fetched, and no call is sent twice.
//!
//! The server is our own over `rmcp`'s, behind a proxy that cuts the answer to the first call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use ua_core::{Outcome, RawReply};
use ua_toolserver::{HttpServer, Settings};

use super::hostile::Hostile;
use super::http::{call, http, text};
use super::servers::ServerBed;
use super::wait_for_async;

/// Where the answer to the first call is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// After the head of the response.
    BeforeTheFirstEvent,
    /// After the event that only tells an id.
    AfterTheFirstEvent,
    /// In the middle of the answer.
    InTheAnswer,
}

/// What the proxy saw.
#[derive(Debug, Default)]
struct Seen {
    calls: AtomicU32,
    resumptions: AtomicU32,
    is_cut: AtomicBool,
}

/// Our own tool server behind a proxy.
struct Cutting {
    directory: TempDir,
    world: ServerBed,
    seen: Arc<Seen>,
    serving: Vec<JoinHandle<()>>,
}

impl Cutting {
    async fn new(cut: Cut) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = Settings::in_workspace(directory.path().join("w"));
        settings.enable_command = true;
        settings.http_token = Some("sesame".into());
        let address = "127.0.0.1:0".parse().unwrap();
        let server = HttpServer::bind(&settings, address, ua_core::system::env()).await.unwrap();
        let target = server.url().trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let world = ServerBed::new(http("own", &url, &[("authorization", "Bearer sesame")]));
        let seen = Arc::<Seen>::default();
        let shared = Arc::clone(&seen);
        let proxy = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (target, seen) = (target.clone(), Arc::clone(&shared));
                tokio::spawn(async move { carry(client, &target, cut, &seen).await });
            }
        });
        Self { directory, world, seen, serving: vec![proxy, tokio::spawn(server.serve())] }
    }

    async fn call(&self, tool: &str, arguments: Value) -> Outcome {
        let (_, connection) = self.world.ready().await;
        call(&connection, tool, arguments).await
    }

    fn counts(&self) -> (u32, u32) {
        (self.seen.calls.load(Ordering::SeqCst), self.seen.resumptions.load(Ordering::SeqCst))
    }
}

impl Drop for Cutting {
    fn drop(&mut self) {
        self.serving.iter().for_each(JoinHandle::abort);
    }
}

/// Carries one connection, which has one request.
async fn carry(mut client: TcpStream, target: &str, cut: Cut, seen: &Seen) {
    let mut server = TcpStream::connect(target).await.unwrap();
    let request = read_request(&mut client).await;
    let is_call = request.starts_with("POST") && request.contains("\"tools/call\"");
    if is_call {
        seen.calls.fetch_add(1, Ordering::SeqCst);
    } else if request.starts_with("GET") && request.contains("last-event-id: ") {
        seen.resumptions.fetch_add(1, Ordering::SeqCst);
    }
    server.write_all(request.as_bytes()).await.unwrap();
    if !is_call || seen.is_cut.swap(true, Ordering::SeqCst) {
        tokio::io::copy(&mut server, &mut client).await.ok();
        return;
    }
    let mut answer = Vec::new();
    let until = loop {
        let count = server.read_buf(&mut answer).await.unwrap();
        let text = String::from_utf8_lossy(&answer).into_owned();
        let head = text.find("\r\n\r\n").map(|at| at + 4);
        let first = head.and_then(|head| Some(head + text[head..].find("\n\n")? + 2));
        let until = match cut {
            Cut::BeforeTheFirstEvent => head,
            Cut::AfterTheFirstEvent => first,
            Cut::InTheAnswer => first.and_then(|first| Some(first + text[first..].find("\"result\"")? + 4)),
        };
        match until {
            Some(until) => break until,
            None => assert_ne!(count, 0, "the answer has no place to cut: {text}"),
        }
    };
    client.write_all(&answer[..until]).await.unwrap();
}

/// The whole request as text.
async fn read_request(client: &mut TcpStream) -> String {
    let mut request = Vec::new();
    loop {
        client.read_buf(&mut request).await.unwrap();
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            return text;
        }
    }
}

#[tokio::test]
async fn an_answer_that_was_ready_when_its_stream_was_cut_is_fetched() {
    for cut in [Cut::AfterTheFirstEvent, Cut::InTheAnswer] {
        let cutting = Cutting::new(cut).await;
        let outcome = cutting.call("append_to_file", json!({"path": "log.txt", "content": "once\n"})).await;
        assert!(text(outcome).contains("log.txt"), "{cut:?}");
        assert_eq!(cutting.counts(), (1, 1), "{cut:?}");
        assert_eq!(std::fs::read_to_string(cutting.directory.path().join("w/log.txt")).unwrap(), "once\n", "{cut:?}");
    }
}

#[tokio::test]
async fn an_answer_that_was_not_ready_when_its_stream_was_cut_is_waited_for() {
    let cutting = Cutting::new(Cut::AfterTheFirstEvent).await;
    let script = "until test -e go; do sleep 0.02; done; echo gone >> ran.txt; echo finished";
    let calling = cutting.call("run_command", json!({"argv": ["sh", "-c", script]}));
    let releasing = async {
        wait_for_async("the client to come back", || (cutting.counts().1 > 0).then_some(())).await;
        std::fs::write(cutting.directory.path().join("w/go"), "").unwrap();
    };
    let (outcome, ()) = tokio::join!(calling, releasing);
    let Outcome::Raw(RawReply::ToolResult { result }) = &outcome else { panic!("{outcome:?}") };
    assert!(result.to_string().contains("finished"), "{result}");
    assert_eq!(cutting.counts(), (1, 1));
    assert_eq!(std::fs::read_to_string(cutting.directory.path().join("w/ran.txt")).unwrap(), "gone\n");
}

#[tokio::test]
async fn an_answer_that_was_cut_before_it_had_a_name_is_lost_and_its_call_is_not_sent_again() {
    let cutting = Cutting::new(Cut::BeforeTheFirstEvent).await;
    let outcome = cutting.call("append_to_file", json!({"path": "log.txt", "content": "once\n"})).await;
    assert!(matches!(&outcome, Outcome::Lost { why } if why.contains("stream")), "{outcome:?}");
    assert_eq!(cutting.counts(), (1, 0));
    let log = cutting.directory.path().join("w/log.txt");
    let written = || std::fs::read_to_string(&log).ok().filter(|text| text == "once\n");
    wait_for_async("the call, which goes on at the server", written).await;
    let again = cutting.call("read_local_file", json!({"path": "log.txt"})).await;
    assert!(text(again).contains("5 of 5 bytes"), "the session goes on");
    assert_eq!(cutting.counts(), (2, 0));
}

#[tokio::test]
async fn a_session_that_ends_while_a_call_is_under_way_leaves_it_lost() {
    let hostile = Hostile::start().await;
    let world = ServerBed::new(http("web", &hostile.url, &[("Authorization", "Bearer hush")]));
    let (first, connection) = world.ready().await;
    let outcome = call(&connection, "stream_expired", json!({})).await;
    let expected = "it does not let it be taken up again (HTTP status 404 Not Found)";
    assert!(matches!(&outcome, Outcome::Lost { why } if why.contains(expected)), "{outcome:?}");
    assert_eq!(hostile.calls("stream_expired").len(), 1);
    let resumption = hostile.resumptions().remove(0);
    let sent = ["authorization", "mcp-session-id", "last-event-id"].map(|name| resumption.header(name));
    assert_eq!(sent, [Some("Bearer hush"), Some("session-1"), Some("expired")]);

    let why = world.server.connection(&first).await.unwrap_err();
    assert_eq!(why, "its session is over (HTTP status 404 Not Found)");
    let (second, _) = world.ready().await;
    assert_ne!(first, second, "the next call gets a session of its own");
    assert_eq!(hostile.calls("stream_expired").len(), 1, "and the lost one is not sent in it");
}

#[tokio::test]
async fn a_server_that_only_repeats_itself_brings_nothing_new() {
    let hostile = Hostile::start().await;
    let world = ServerBed::new(http("web", &hostile.url, &[]));
    let (_, connection) = world.ready().await;
    let outcome = call(&connection, "stream_repeats", json!({})).await;
    let expected = "5 attempts to take it up again brought nothing new";
    assert!(matches!(&outcome, Outcome::Lost { why } if why.contains(expected)), "{outcome:?}");
    let resumptions = hostile.resumptions().len();
    assert_eq!((hostile.calls("stream_repeats").len(), resumptions), (1, 5));
}
