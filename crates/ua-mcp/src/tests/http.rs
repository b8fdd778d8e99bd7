//! Streamable HTTP: against our own tool server, and against one that misbehaves. Each call arrives once, whatever happens.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tempfile::TempDir;
use ua_core::{Outcome, RawReply, ToolNamespace};
use ua_dispatch::{LookAt, ToolTransport, TransportError};
use ua_toolserver::{HttpServer, Settings};

use super::hostile::Hostile;
use super::servers::{ServerBed, command, config};
use super::{Later, example, wait_for_async};
use crate::config::{Reach, ServerSpec};
use crate::connection::Connection;
use crate::exchange::Sending;
use crate::{McpTransport, McpTransportConfig, Protocol, Relay, Relayed};

pub(super) fn http(name: &str, url: &str, headers: &[(&str, &str)]) -> ServerSpec {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let reach = Reach::Http { url: url.to_owned(), headers, client: None };
    ServerSpec { protocol: Protocol::Handshake, ..ServerSpec::new(name, ToolNamespace::Mcp, reach) }
}

/// A misbehaving server and a session with it.
struct Peer {
    hostile: Hostile,
    world: ServerBed,
}

impl Peer {
    async fn new() -> Self {
        let hostile = Hostile::start().await;
        let world = ServerBed::new(http("web", &hostile.url, &[("Authorization", "Bearer hush")]));
        Self { hostile, world }
    }

    async fn call(&self, tool: &str, arguments: Value) -> Outcome {
        let (_, connection) = self.world.ready().await;
        call(&connection, tool, arguments).await
    }

    /// Calls a tool and expects that it arrived once and that its outcome is lost.
    async fn lost(&self, tool: &str) -> String {
        let outcome = self.call(tool, json!({})).await;
        assert_eq!(self.hostile.calls(tool).len(), 1, "{tool}");
        let Outcome::Lost { why } = outcome else { panic!("{tool}: {outcome:?}") };
        why
    }
}

pub(super) fn sending(tool: &str, arguments: Value) -> Sending {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    let meta = Map::from_iter([("dev.universal-agent/attempt".to_owned(), json!(2))]);
    Sending::call(tool, arguments, meta)
}

pub(super) async fn call(connection: &Connection, tool: &str, arguments: Value) -> Outcome {
    connection.call(sending(tool, arguments), &ua_core::system::env()).await
}

pub(super) fn text(outcome: Outcome) -> String {
    let Outcome::Raw(RawReply::ToolResult { result }) = outcome else { panic!("{outcome:?}") };
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
}

#[tokio::test]
async fn a_call_carries_arguments_meta_and_headers_and_its_result_comes_back_as_it_was() {
    let peer = Peer::new().await;
    let arguments = json!({"n": u64::MAX, "s": "ä"});
    let outcome = peer.call("echo", arguments.clone()).await;
    let echoed = json!({"arguments": arguments, "meta": {"dev.universal-agent/attempt": 2}});
    let result = json!({"content": [], "structuredContent": echoed, "unheardOf": 1});
    assert_eq!(outcome, Outcome::Raw(RawReply::ToolResult { result }));
    let seen = &peer.hostile.calls("echo")[0];
    assert_eq!(seen.header("authorization"), Some("Bearer hush"));
    assert_eq!(seen.header("mcp-session-id"), Some("session-1"));
    assert_eq!(seen.header("mcp-protocol-version"), Some("2025-06-18"), "what the server chose");
    assert_eq!(seen.header("accept"), Some("application/json, text/event-stream"));

    peer.world.server.shut_down(&peer.world.shared).await;
    // The stream that the session listens on is opened beside it.
    let seen: Vec<_> = peer.hostile.seen().into_iter().filter(|seen| seen.verb != "GET").collect();
    let order: Vec<(&str, &str)> = seen.iter().map(|seen| (seen.verb.as_str(), seen.method())).collect();
    let expected =
        [("POST", "initialize"), ("POST", "notifications/initialized"), ("POST", "tools/call"), ("DELETE", "")];
    assert_eq!(order, expected);
    assert_eq!(seen[0].body["params"]["protocolVersion"], "2025-11-25");
    assert_eq!(seen[3].header("mcp-session-id"), Some("session-1"));
}

#[tokio::test]
async fn a_broken_answer_loses_the_call_and_never_sends_it_again() {
    let peer = Peer::new().await;
    for (tool, expected) in [
        ("cut", "the connection to http://127.0.0.1"),
        ("cut_in_head", "the connection to http://127.0.0.1"),
        ("cut_in_body", "the answer broke off"),
        ("accepted", "it answered HTTP status 202 Accepted and nothing else, which is no result"),
        ("empty_json", "it answered HTTP status 200 OK and nothing else, which is no result"),
        ("web_page", "with \"text/html\" content and no result"),
        ("wrong_id", "it broke the protocol: it answered a request that was not made"),
        ("batch", "it broke the protocol: it sent a batch"),
        ("no_answer", "it broke the protocol: an answer has neither a result nor an error"),
        ("broken_json", "it broke the protocol: a message cannot be read"),
        (
            "strays_alone",
            "the stream ended before the answer came; before that it broke the protocol: a message cannot be read",
        ),
        ("cut_in_last_line", "the stream ended before the answer came"),
        ("stream_without_ids", "the stream ended before the answer came"),
        ("stream_stuck", "5 attempts to take it up again brought nothing new"),
        ("stream_forgotten", "it does not let it be taken up again (HTTP status 405 Method Not Allowed)"),
    ] {
        let why = peer.lost(tool).await;
        assert!(why.contains(expected), "{tool}: {why}");
    }
    let initializations = peer.hostile.seen().iter().filter(|seen| seen.method() == "initialize").count();
    assert_eq!(initializations, 1, "a lost call does not end the session");
}

#[tokio::test]
async fn what_else_comes_on_a_stream_before_the_answer_is_passed_over() {
    let peer = Peer::new().await;
    let outcome = peer.call("strays_before", json!({})).await;
    assert_eq!(text(outcome), "done");
    assert_eq!(peer.hostile.calls("strays_before").len(), 1);
}

#[tokio::test]
async fn a_lost_call_is_cancelled_and_one_that_was_answered_is_not() {
    let peer = Peer::new().await;
    peer.call("echo", json!({})).await;
    peer.lost("cut").await;
    let id = peer.hostile.calls("cut")[0].body["id"].clone();
    let cancelled = || {
        let seen = peer.hostile.seen();
        let cancelled: Vec<Value> = seen
            .iter()
            .filter(|seen| seen.method() == "notifications/cancelled")
            .map(|seen| seen.body["params"]["requestId"].clone())
            .collect();
        (!cancelled.is_empty()).then_some(cancelled)
    };
    assert_eq!(wait_for_async("the cancellation", cancelled).await, [id]);
}

#[tokio::test]
async fn a_status_is_an_answer_redirects_are_not_followed_and_bodies_are_cut() {
    let peer = Peer::new().await;
    for (calls, status) in [500_u16, 307, 429, 403].into_iter().enumerate() {
        let outcome = peer.call("status", json!({"status": status})).await;
        let Outcome::Raw(RawReply::HttpStatus { status: got, body, of_session: false, .. }) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!((got, body), (status, "é".repeat(4096)));
        assert_eq!(peer.hostile.calls("status").len(), calls + 1);
    }
}

#[tokio::test]
async fn an_error_of_the_protocol_and_a_huge_result_are_answers() {
    let peer = Peer::new().await;
    let error = RawReply::RpcError { code: -32603, message: "as asked".into() };
    assert_eq!(peer.call("rpc_error", json!({})).await, Outcome::Raw(error));
    let text = text(peer.call("huge", json!({})).await);
    assert!(text.starts_with("[the result of 94") && text.contains("too large"), "{text}");
    assert_eq!(peer.hostile.calls("huge").len(), 1);
}

#[tokio::test]
async fn a_stream_brings_other_messages_first_and_only_the_first_answer_counts() {
    let peer = Peer::new().await;
    assert_eq!(text(peer.call("two_answers", json!({})).await), "done");
    assert_eq!(text(peer.call("slow_stream", json!({})).await), "done");
    assert_eq!(text(peer.call("no_last_line", json!({})).await), "done");
    let answers = || {
        let seen = peer.hostile.seen();
        let answers = seen.into_iter().filter(|seen| seen.body["id"].is_string()).map(|seen| seen.body);
        let answers: BTreeMap<String, Value> =
            answers.map(|body| (body["id"].as_str().unwrap_or_default().to_owned(), body)).collect();
        (answers.len() == 2).then_some(answers)
    };
    let answers = wait_for_async("answers to the server's questions", answers).await;
    assert_eq!(answers["their-1"]["result"], json!({}));
    assert_eq!(answers["their-2"]["error"]["code"], json!(-32601));
    assert_eq!((peer.hostile.calls("two_answers").len(), peer.hostile.calls("slow_stream").len()), (1, 1));
}

/// Behind an answer by which a call would be made again, one more is waited for, and what was begun is not believed not to be known.
#[tokio::test]
async fn a_call_of_which_its_server_says_two_things_is_in_doubt() {
    let peer = Peer::new().await;
    let why = peer.lost("refused_then_done").await;
    assert!(why.contains("that it was not begun, and then that it is done"), "{why}");
    for tool in ["refused", "refused_on_and_on"] {
        let outcome = peer.call(tool, json!({})).await;
        assert!(matches!(outcome, Outcome::Raw(RawReply::RpcError { code: -32601, .. })), "{tool}: {outcome:?}");
    }
    let (_, connection) = peer.world.ready().await;
    for first_counts in [false, true] {
        let (asks, _asked) = tokio::sync::mpsc::unbounded_channel();
        let listener = Some(crate::host::Listener { call_id: ua_core::CallId::parse("call_1").unwrap(), asks });
        let may_repeat = true; // a key alone is not enough
        let behind = Sending { listener, may_repeat, first_counts, ..sending("refused_behind_progress", json!({})) };
        let outcome = connection.call(behind, &ua_core::system::env()).await;
        let is_in_doubt = matches!(&outcome, Outcome::Lost { why } if why.contains("told of its progress"));
        assert_eq!(is_in_doubt, !first_counts, "{outcome:?}");
    }
}

#[tokio::test]
async fn a_broken_stream_is_taken_up_with_a_get_and_the_call_is_not_sent_again() {
    let peer = Peer::new().await;
    assert_eq!(text(peer.call("stream_resumed", json!({})).await), "done");
    assert_eq!(peer.hostile.calls("stream_resumed").len(), 1);
    let seen = peer.hostile.resumptions();
    let after: Vec<_> = seen.iter().map(|seen| seen.header("last-event-id")).collect();
    let id = &peer.hostile.calls("stream_resumed")[0].body["id"];
    assert_eq!(after, [Some(format!("first-{id}").as_str()), Some(format!("second-{id}").as_str())]);
}

#[tokio::test]
async fn a_call_with_a_timeout_is_lost_when_it_is_up() {
    let peer = Peer::new().await;
    let (_, connection) = peer.world.ready().await;
    let sending = Sending { timeout: Some(Duration::from_millis(30)), ..sending("never", json!({})) };
    let outcome = connection.call(sending, &peer.world.shared.env).await;
    assert_eq!(outcome, Outcome::Lost { why: "no answer within 0.03 s".into() });
}

#[tokio::test]
async fn a_call_that_is_given_up_is_cancelled() {
    let peer = Peer::new().await;
    let (_, connection) = peer.world.ready().await;
    let arrived = wait_for_async("the call", || peer.hostile.calls("never").pop());
    let arrived = tokio::select! {
        outcome = call(&connection, "never", json!({})) => panic!("{outcome:?}"),
        arrived = arrived => arrived,
    };
    let cancelled = || peer.hostile.seen().into_iter().find(|seen| seen.method() == "notifications/cancelled");
    let cancelled = wait_for_async("the cancellation", cancelled).await;
    assert_eq!(cancelled.body["params"]["requestId"], arrived.body["id"]);
    assert_eq!(peer.hostile.calls("never").len(), 1);
}

#[tokio::test]
async fn a_forgotten_session_refuses_the_call_and_the_next_attempt_has_a_new_one() {
    let peer = Peer::new().await;
    let (first, connection) = peer.world.ready().await;
    peer.hostile.forget_sessions();
    let refused =
        RawReply::HttpStatus { status: 404, body: "no such session".to_owned(), of_session: true, retry_after: None };
    assert_eq!(call(&connection, "echo", json!({})).await, Outcome::Raw(refused));
    assert_eq!(peer.hostile.calls("echo").len(), 1, "it is not posted again by itself");

    let why = peer.world.server.connection(&first).await.unwrap_err();
    assert_eq!(why, "its session is over (HTTP status 404 Not Found)");
    let (second, connection) = peer.world.ready().await;
    assert_ne!(first, second);
    assert!(matches!(call(&connection, "echo", json!({})).await, Outcome::Raw(RawReply::ToolResult { .. })));
    let sessions: Vec<_> =
        peer.hostile.calls("echo").iter().map(|seen| seen.headers["mcp-session-id"].clone()).collect();
    assert_eq!(sessions, ["session-1", "session-2"]);

    peer.hostile.forget_sessions();
    let listed = peer.world.server.list(&peer.world.shared).await.unwrap();
    let names: Vec<&str> = listed.tools.iter().map(|tool| tool.name.raw.as_str()).collect();
    assert_eq!(names, ["mcp__web__a", "mcp__web__b"], "both pages, of a third session");
}

/// The same of a client's session, whose messages pass as they came.
#[tokio::test]
async fn a_relay_finds_out_whether_its_session_is_known() {
    let hostile = Hostile::start().await;
    let (mut env, (heard, _hears)) = (ua_core::system::env(), crate::queue());
    let later = Later::within(&mut env);
    let relay = Relay::new("web", &hostile.url, &BTreeMap::new(), env, heard, None).unwrap();
    assert!(!relay.is_silent(), "it has no session yet");
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}});
    assert!(matches!(relay.request(1, &hello, &[]).await, Relayed::Answer(_)));
    assert!(!relay.is_silent());
    later.fetch_add(5, Ordering::SeqCst);
    assert!(relay.is_silent());
    relay.look(2).await;
    assert_eq!((relay.is_silent(), relay.is_over()), (false, false));
    hostile.forget_sessions();
    relay.look(3).await;
    assert!(relay.is_over());
    let pings: Vec<Value> =
        hostile.seen().into_iter().filter(|seen| seen.method() == "ping").map(|seen| seen.body["id"].clone()).collect();
    assert_eq!(pings, [json!(2), json!(3)]);
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_saw_nothing() {
    let peer = Peer::new().await;
    let (_, connection) = peer.world.ready().await;
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap(); // dropped at once, so nobody listens
    let plain = &peer.hostile.url; // does not speak TLS
    for url in [format!("http://{free}/mcp"), plain.replace("http:", "https:")] {
        let why = ServerBed::new(http("web", &url, &[])).refusal().await;
        assert!(why.starts_with("tool server `web` did not start: http") && why.contains("cannot be reached"), "{why}");
    }
    let posts = peer.hostile.seen().into_iter().filter(|seen| seen.verb == "POST").count();
    assert_eq!(posts, 2, "the handshake of the one session");
    let bad_key = Sending { key_header: Some(("Host".into(), "k".into())), ..sending("echo", json!({})) };
    let outcome = connection.call(bad_key, &peer.world.shared.env).await;
    assert!(matches!(&outcome, Outcome::NotSent { why } if why.contains("`Host` cannot be sent")), "{outcome:?}");
    assert_eq!(peer.hostile.calls("echo").len(), 0);
}

#[tokio::test]
async fn a_connection_refused_in_the_middle_of_a_session_is_not_sent() {
    let dir = tempfile::tempdir().unwrap();
    let (url, serving) = toolserver(&dir, "sesame").await;
    let world = ServerBed::new(http("own", &url, &[("authorization", "Bearer sesame")]));
    let (_, connection) = world.ready().await;
    serving.abort();
    assert!(serving.await.unwrap_err().is_cancelled());
    let outcome = call(&connection, "list_directory", json!({"path": "."})).await;
    assert!(matches!(&outcome, Outcome::NotSent { why } if why.contains("cannot be reached")), "{outcome:?}");
    // The next attempt begins with a handshake, which says so before a call is started.
    let refusal = world.refusal().await;
    assert!(refusal.contains("cannot be reached"), "{refusal}");
}

/// What is away comes back by itself; a login that is refused, or a folder that is gone, is somebody's to correct.
#[tokio::test]
async fn what_may_pass_by_itself_is_told_from_what_somebody_has_to_correct() {
    let dir = tempfile::tempdir().unwrap();
    let (url, serving) = toolserver(&dir, "sesame").await;
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let elsewhere = url.replace("/mcp", "/nothing");
    let mut gone = command("own", example("toolserver").to_str().unwrap(), &[]);
    let Reach::Stdio { cwd, .. } = &mut gone.reach else { panic!("stdio") };
    *cwd = Some("/no/such/folder".into());
    let with_token = |url: &str, token: &str| http("own", url, &[("authorization", token)]);
    for (spec, may_pass, look_at) in [
        (with_token(&format!("http://{free}/mcp"), "Bearer sesame"), true, LookAt::Address),
        (with_token(&elsewhere, "Bearer sesame"), true, LookAt::Address),
        (command("own", "false", &[]), true, LookAt::Command),
        (with_token(&url, "Bearer another"), false, LookAt::Login),
        (http("own", &url, &[]), false, LookAt::Login),
        (http("own", "http://192.0.2.1/mcp", &[("authorization", "Bearer x")]), false, LookAt::Address),
        (gone, false, LookAt::Command),
    ] {
        let world = ServerBed::new(spec);
        let Err(error) = world.server.ready(&world.shared).await else { panic!("it started") };
        assert_eq!(error.may_pass(), may_pass, "{error}");
        let TransportError::NotStarted { look_at: found, .. } = &error else { panic!("{error}") };
        assert_eq!(*found, look_at, "{error}");
    }
    serving.abort();
}

/// A server that is being started, or a proxy with nobody behind it, is not one whose address is wrong, whichever question it turns away.
#[tokio::test]
async fn a_server_that_cannot_serve_now_is_told_from_one_that_does_not_start() {
    for (status, is_away) in [
        (500, true),
        (502, true),
        (503, true),
        (504, true),
        (429, true),
        (408, true),
        (501, false),
        (404, false),
        (400, false),
    ] {
        for method in ["initialize", "tools/list"] {
            let hostile = Hostile::turning_away(method, status).await;
            let world = ServerBed::new(http("own", &hostile.url, &[]));
            let Err(error) = world.server.list(&world.shared).await else { panic!("{method} {status}") };
            assert_eq!(matches!(error, TransportError::Away { .. }), is_away, "{method}: {error}");
            assert!(error.to_string().contains(&format!("HTTP status {status}")), "{error}");
            hostile.serves_again();
            assert!(world.server.list(&world.shared).await.is_ok(), "{method} {status}");
        }
    }
}

/// Our own tool server over HTTP, in the folder `w`.
pub(super) async fn toolserver(dir: &TempDir, token: &str) -> (String, tokio::task::JoinHandle<()>) {
    let mut settings = Settings::in_workspace(dir.path().join("w"));
    settings.http_token = Some(token.into());
    let address = "127.0.0.1:0".parse().unwrap();
    let server = HttpServer::bind(&settings, address, ua_core::system::env()).await.unwrap();
    (server.url(), tokio::spawn(server.serve()))
}

#[tokio::test]
async fn the_same_tool_answers_the_same_over_pipes_and_over_http() {
    let dir = tempfile::tempdir().unwrap();
    let (url, serving) = toolserver(&dir, "sesame").await;
    let workspace = dir.path().join("w").display().to_string();
    let servers = [
        command("own", example("toolserver").to_str().unwrap(), &[&workspace]),
        http("own", &url, &[("authorization", "Bearer sesame")]),
    ];
    let calls = [
        ("write_local_file", json!({"path": "a.txt", "content": "Grüße"})),
        ("read_local_file", json!({"path": "a.txt"})),
        ("list_directory", json!({"path": "."})),
        ("read_local_file", json!({"path": "../outside"})),
        ("read_local_file", json!({})),
        ("no_such_tool", json!({})),
    ];
    let mut came = Vec::new();
    for spec in servers {
        let world = ServerBed::new(spec);
        let listed = world.server.list(&world.shared).await.unwrap();
        let (_, connection) = world.ready().await;
        let mut outcomes = Vec::new();
        for (tool, arguments) in &calls {
            outcomes.push(call(&connection, tool, arguments.clone()).await);
        }
        came.push((listed.tools, outcomes));
        world.server.shut_down(&world.shared).await;
    }
    let (over_http, over_pipes) = (came.pop().unwrap(), came.pop().unwrap());
    assert_eq!(over_pipes, over_http);
    let Outcome::Raw(RawReply::ToolResult { result }) = &over_http.1[1] else { panic!("{:?}", over_http.1) };
    assert!(result.to_string().contains("Grüße"), "{result}");
    assert!(matches!(over_http.1[5], Outcome::Raw(RawReply::RpcError { code: -32602, .. })), "{:?}", over_http.1[5]);
    serving.abort();
}

#[tokio::test]
async fn a_wrong_token_is_named_and_its_value_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let (url, serving) = toolserver(&dir, "sesame").await;
    let why = ServerBed::new(http("own", &url, &[("Authorization", "Bearer hush")])).refusal().await;
    let hint = "HTTP status 401 Unauthorized; its token in `headers` of the MCP configuration is not accepted";
    assert!(why.contains(hint) && !why.contains("hush"), "{why}");
    serving.abort();
}

#[tokio::test]
async fn pipes_and_http_make_one_transport() {
    let (dir, hostile) = (tempfile::tempdir().unwrap(), Hostile::start().await);
    let servers = vec![super::servers::spec("pipe", &["--tools", "x"]), http("web", &hostile.url, &[])];
    let transport = McpTransport::new(McpTransportConfig { ..config(dir.path(), servers) });
    let tools = transport.list().await.unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.raw.as_str()).collect();
    assert_eq!(names, ["mcp__pipe__x", "mcp__web__a", "mcp__web__b"]);
    transport.shutdown().await;
    assert_eq!(hostile.seen().last().unwrap().verb, "DELETE");
}
