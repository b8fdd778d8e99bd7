//! Both eras of the protocol, and what a server says and asks in the middle of a call, over standard input and output.

use std::sync::{Arc, Mutex};

use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use ua_core::{CallId, Outcome, RawReply};
use ua_dispatch::TransportError;

use super::servers::{ServerBed, spec};
use super::wait_for_async;
use crate::exchange::Sending;
use crate::host::{Ask, Listener};
use crate::{Progress, Protocol, ServerSpec};

fn in_revision(protocol: &str, args: &[&str]) -> ServerBed {
    ServerBed::new(ServerSpec { protocol: protocol.parse().unwrap(), ..spec("fake", args) })
}

#[tokio::test]
async fn the_newest_revision_is_asked_for_first_and_a_handshake_follows_where_it_is_unknown() {
    for (protocol, args, expected) in [
        ("auto", &[][..], "2025-11-25"),
        ("auto", &["--stateless"], "2026-07-28"),
        ("2026-07-28", &["--stateless"], "2026-07-28"),
        ("2025-03-26", &[], "2025-03-26"),
        ("handshake", &[], "2025-11-25"),
    ] {
        let world = in_revision(protocol, args);
        world.server.list(&world.shared).await.unwrap();
        assert_eq!(world.server.about().unwrap().revision, expected, "{protocol} {args:?}");
        world.server.shut_down(&world.shared).await;
    }
    for (protocol, args, why) in
        [("2026-07-28", &[][..], "does not speak revision 2026-07-28"), ("handshake", &["--stateless"], "error -32022")]
    {
        let refusal = in_revision(protocol, args).refusal().await;
        assert!(refusal.contains(why), "{refusal}");
    }
}

#[tokio::test]
async fn a_request_of_the_newest_revision_says_who_asks_and_in_which_revision() {
    let world = in_revision("auto", &["--stateless"]);
    let (_, connection) = world.ready().await;
    let outcome = connection.call(Sending::call("echo", Map::new(), Map::new()), &world.shared.env).await;
    let Outcome::Raw(RawReply::ToolResult { result }) = outcome else { panic!("{outcome:?}") };
    let meta = &result["structuredContent"]["meta"];
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "test");
    assert!(meta["io.modelcontextprotocol/clientCapabilities"]["elicitation"].is_object(), "{meta}");
    world.server.shut_down(&world.shared).await;
}

#[tokio::test]
async fn what_a_server_asks_in_a_call_is_answered_on_its_connection() {
    let world = ServerBed::new(spec("fake", &[]));
    let (_, connection) = world.ready().await;
    let (asks, mut asked) = mpsc::unbounded_channel();
    let listener = Some(Listener { call_id: CallId::parse("call_1").unwrap(), asks });
    let sending = Sending { listener, ..Sending::call("ask", Map::new(), Map::new()) };
    let answering = async {
        let Ask { params, reply } = asked.recv().await.unwrap();
        assert_eq!(params["message"], "Which size?");
        reply.send(json!({"action": "accept", "content": {"size": 3}})).unwrap();
    };
    let (outcome, ()) = tokio::join!(connection.call(sending, &world.shared.env), answering);
    let Outcome::Raw(RawReply::ToolResult { result }) = outcome else { panic!("{outcome:?}") };
    assert!(result["content"][0]["text"].as_str().unwrap().contains("\"size\":3"), "{result}");
    // Nobody is behind this one, so it is declined.
    let outcome = connection.call(Sending::call("ask", Map::new(), Map::new()), &world.shared.env).await;
    let Outcome::Raw(RawReply::ToolResult { result }) = outcome else { panic!("{outcome:?}") };
    assert!(result["content"][0]["text"].as_str().unwrap().contains("decline"), "{result}");
    world.server.shut_down(&world.shared).await;
}

#[tokio::test]
async fn a_question_over_a_shared_pipe_reaches_its_call_when_the_others_are_done() {
    let world = ServerBed::new(spec("fake", &[]));
    let (_, connection) = world.ready().await;
    let sending = |call: &str, tool: &str, arguments: Value| {
        let (asks, asked) = mpsc::unbounded_channel();
        let listener = Some(Listener { call_id: CallId::parse(call).unwrap(), asks });
        let arguments = arguments.as_object().cloned().unwrap();
        (Sending { listener, ..Sending::call(tool, arguments, Map::new()) }, asked)
    };
    let go = world.path("go");
    let (slow, mut unasked) = sending("call_1", "beside", json!({"until": go}));
    let (asks, mut asked) = sending("call_2", "ask", json!({}));
    let slow = connection.call(slow, &world.shared.env);
    let asking = connection.call(asks, &world.shared.env);
    let answering = async {
        // Nothing says whose question it is while both are under way.
        connection.all("tools/list", "tools").await.unwrap();
        assert!(asked.try_recv().is_err() && unasked.try_recv().is_err());
        std::fs::write(&go, "").unwrap();
        let Ask { params, reply } = asked.recv().await.unwrap();
        assert_eq!(params["message"], "Which size?");
        reply.send(json!({"action": "accept", "content": {"size": 3}})).unwrap();
    };
    let (_, outcome, ()) = tokio::join!(slow, asking, answering);
    let Outcome::Raw(RawReply::ToolResult { result }) = outcome else { panic!("{outcome:?}") };
    assert!(result["content"][0]["text"].as_str().unwrap().contains("\"size\":3"), "{result}");
    assert!(unasked.try_recv().is_err());
    world.server.shut_down(&world.shared).await;
}

#[tokio::test]
async fn progress_is_told_and_changed_tools_are_looked_at_before_the_next_call() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&told);
    let watcher = Arc::new(move |progress: Progress| seen.lock().unwrap().push(progress.to_string()));
    let world = ServerBed::with(ServerSpec { protocol: Protocol::Auto, ..spec("fake", &[]) }, Some(watcher));
    world.server.list(&world.shared).await.unwrap();
    let (_, connection) = world.ready().await;
    let (asks, _asked) = mpsc::unbounded_channel();
    let listener = Some(Listener { call_id: CallId::parse("call_1").unwrap(), asks });
    let sending = Sending { listener, ..Sending::call("tell", Map::new(), Map::new()) };
    let outcome = connection.call(sending, &world.shared.env).await;
    assert!(matches!(outcome, Outcome::Raw(_)), "{outcome:?}");
    wait_for_async("the progress", || (told.lock().unwrap().len() == 2).then_some(())).await;
    assert_eq!(told.lock().unwrap()[0], "1 of 2: on it");
    // It says that its tools changed, and they did not.
    let checked: Result<(), TransportError> = world.server.check_change(&connection, &world.shared).await;
    assert_eq!(checked, Ok(()));
    world.server.shut_down(&world.shared).await;
}

/// Behind an answer by which a call would be made again, one more is waited for, and what was begun is not believed not to be known.
#[tokio::test]
async fn a_call_of_which_its_server_says_two_things_is_in_doubt() {
    let world = ServerBed::new(spec("fake", &[]));
    let (_, connection) = world.ready().await;
    let no_method = json!({"error": {"code": -32601, "message": "no such method"}});
    let done = json!({"result": {"content": []}});
    let failed = json!({"error": {"code": -32603, "message": "who knows"}});
    for (says, progress, first_counts, doubt) in [
        (json!([no_method, done]), false, false, Some("that it was not begun, and then that it is done")),
        (json!([no_method, failed]), false, false, Some("that it was not begun, and then that it failed")),
        (json!([no_method]), true, false, Some("told of its progress, and then that there is no such method")),
        (json!([no_method]), false, false, None),
        (json!([no_method, no_method]), false, false, None),
        // What is simply done again is what its first answer says. A key alone is not enough.
        (json!([no_method, done]), true, true, None),
    ] {
        let (asks, _asked) = mpsc::unbounded_channel();
        let listener = Some(Listener { call_id: CallId::parse("call_1").unwrap(), asks });
        let arguments = json!({"says": says, "progress": progress});
        let arguments = arguments.as_object().cloned().unwrap();
        let call = Sending::call("answer_twice", arguments, Map::new());
        let sending = Sending { listener, may_repeat: true, first_counts, ..call };
        let outcome = connection.call(sending, &world.shared.env).await;
        match (outcome, doubt) {
            (Outcome::Lost { why }, Some(doubt)) => assert!(why.contains(doubt), "{why}"),
            (Outcome::Raw(RawReply::RpcError { code: -32601, .. }), None) => {}
            (outcome, _) => panic!("{says} {progress}: {outcome:?}"),
        }
    }
    world.server.shut_down(&world.shared).await;
}
