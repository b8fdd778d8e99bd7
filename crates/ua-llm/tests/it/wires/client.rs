//! The client against a real HTTP server.

use std::time::Duration;

use super::support::{
    KEY, Seen, Watch, config, failing, prompt, provider, request, rich_script, script, server, statuses,
};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use ua_core::{Block, Env, FailureClass, Message, Origin, Role, StopReason};
use ua_llm::{AnthropicProvider, LlmError, LlmProvider as _, ScriptedProvider, Silent, Status};
use ua_testkit::{Fault, FaultKind};

/// The history after the first turn of the rich script.
fn answered(reply: Message) -> Vec<Message> {
    let result = |id: &str, content: &str| Block::ToolResult {
        tool_use_id: id.into(),
        content: content.into(),
        is_error: false,
    };
    let blocks = vec![result("toolu_1_1", "soup of the day"), result("toolu_1_2", "")];
    let note = Message::user(Origin::Resume, "You were interrupted; nothing was lost.");
    let mut history = prompt();
    history.extend([reply, note, Message { role: Role::User, origin: Origin::Tools, blocks: blocks.into() }]);
    history
}

#[tokio::test]
async fn the_server_and_the_scripted_provider_play_the_same_turns() {
    let server = server(rich_script(), vec![]).await;
    let http = provider(&server.base_url, &Env::simulated(1));
    let scripted = ScriptedProvider::new(rich_script());

    let (by_wire, in_process) = (Watch::default(), Watch::default());
    let first = http.complete(&request(prompt()), &by_wire).await.unwrap();
    assert_eq!(first, scripted.complete(&request(prompt()), &in_process).await.unwrap());
    assert_eq!(by_wire.seen(), in_process.seen());
    let expected = Seen {
        sent: 1,
        sessions: vec!["msg_scripted_1_1".into()],
        text: "I will read the menu and tell everybody about it – in request 1.".into(),
    };
    assert_eq!(by_wire.seen(), expected);

    let history = answered(first.into_message());
    let second = http.complete(&request(history.clone()), &Silent).await.unwrap();
    assert_eq!(second, scripted.complete(&request(history), &Silent).await.unwrap());
    assert_eq!(second.text(), "It says soup of the day.");
    assert_eq!((http.name(), scripted.name()), ("anthropic", "scripted"));
}

#[tokio::test]
async fn thinking_goes_back_as_it_came() {
    let server = server(rich_script(), vec![]).await;
    let http = provider(&server.base_url, &Env::simulated(1));
    let first = http.complete(&request(prompt()), &Silent).await.unwrap();
    let Some(Block::Opaque { value: thinking, .. }) = first.blocks.first().cloned() else {
        panic!("no thinking block")
    };
    assert_eq!(thinking["thinking"], "The café's menu first, then the mail.");

    // Through the text form in which a history is stored.
    let stored = serde_json::to_string(&first.into_message()).unwrap();
    http.complete(&request(answered(serde_json::from_str(&stored).unwrap())), &Silent).await.unwrap();
    assert_eq!(server.last_request().unwrap()["messages"][1]["content"][0], thinking);
}

#[tokio::test]
async fn garbled_arguments_arrive_as_text_and_can_be_answered() {
    let script = script(&json!({"turns": [{"tools": [{"name": "t", "input": "{\"path\": \"a"}]}, {"text": "sorry"}]}));
    let server = server(script.clone(), vec![]).await;
    let http = provider(&server.base_url, &Env::simulated(1));
    let scripted = ScriptedProvider::new(script);
    let first = http.complete(&request(prompt()), &Silent).await.unwrap();
    assert_eq!(first.tool_uses().next().unwrap().input, json!("{\"path\": \"a"));
    assert_eq!(first, scripted.complete(&request(prompt()), &Silent).await.unwrap());

    let refused = Block::ToolResult { tool_use_id: "toolu_1_1".into(), content: "not JSON".into(), is_error: true };
    let mut history = prompt();
    history.extend([
        first.into_message(),
        Message { role: Role::User, origin: Origin::Tools, blocks: vec![refused].into() },
    ]);
    let second = http.complete(&request(history.clone()), &Silent).await.unwrap();
    assert_eq!(second, scripted.complete(&request(history), &Silent).await.unwrap());
    assert_eq!(second.text(), "sorry");
}

#[tokio::test]
async fn a_failure_that_may_pass_is_told_after_one_request() {
    let kinds = [
        (FaultKind::RateLimited { retry_after: None }, 429),
        (FaultKind::Overloaded529, 529),
        (FaultKind::Server500, 500),
        (FaultKind::Status { status: 408 }, 408),
        (FaultKind::Status { status: 409 }, 409),
        (FaultKind::Status { status: 503 }, 503),
        (FaultKind::CutBeforeFirstEvent, 200),
        (FaultKind::CutMidStream, 200),
        (FaultKind::EndWithoutStop, 200),
        (FaultKind::ErrorMidStream { error_type: "overloaded_error".into() }, 200),
        (FaultKind::ErrorMidStream { error_type: "api_error".into() }, 200),
    ];
    for (kind, status) in kinds {
        let server = failing(&kind, 1).await;
        let env = Env::simulated(1);
        let started = env.now();
        let watch = Watch::default();
        let client = provider(&server.base_url, &env);
        let error = client.complete(&request(prompt()), &watch).await.unwrap_err();
        assert!(error.may_retry() && error.left_us(), "{kind:?}: {error:?}");
        assert_eq!((statuses(&server), watch.seen().sent, env.now()), (vec![status], 1, started), "{kind:?}");
        // Asked again, with the same bytes, the model may word things differently.
        let turn = client.complete(&request(prompt()), &watch).await.unwrap();
        assert!(turn.text().ends_with("in request 2."), "{kind:?}");
        assert_eq!(server.log()[0].sha256, server.log()[1].sha256, "{kind:?}");
    }
}

#[tokio::test]
async fn the_text_of_a_cut_reply_is_seen_but_is_no_turn() {
    for kind in [FaultKind::CutMidStream, FaultKind::EndWithoutStop] {
        let server = server(
            script(&json!({"turns": [{"text": "All of this text arrives in vain, since it is cut."}]})),
            vec![Fault::at(1, kind.clone())],
        )
        .await;
        let watch = Watch::default();
        let client = provider(&server.base_url, &Env::simulated(1));
        let error = client.complete(&request(prompt()), &watch).await.unwrap_err();
        let LlmError::Cut { text_bytes, .. } = &error else { panic!("{kind:?} gave {error:?}") };
        assert_eq!(*text_bytes, watch.seen().text.len(), "{kind:?}");
        assert!(*text_bytes > 0, "{kind:?}");
        assert!(error.left_us() && error.class() == FailureClass::Transient, "{kind:?}");
    }
}

#[tokio::test]
async fn what_the_provider_asks_to_wait_is_told_in_both_forms() {
    // The simulated clock starts at 2026-01-02T03:04:05Z.
    for (header, wait, told) in
        [("37", 37, "37 s"), ("3600", 3600, "60 min"), ("Fri, 02 Jan 2026 03:04:50 GMT", 45, "45 s")]
    {
        let server = failing(&FaultKind::RateLimited { retry_after: Some(header.into()) }, 1).await;
        let env = Env::simulated(1);
        let error = provider(&server.base_url, &env).complete(&request(prompt()), &Silent).await.unwrap_err();
        assert_eq!(error.retry_after(), Some(Duration::from_secs(wait)), "{header}");
        assert!(error.to_string().ends_with(&format!("(it asks to wait {told})")), "{error}");
    }
}

#[tokio::test]
async fn a_refusal_is_not_to_be_repeated() {
    let cases = [
        (400, FailureClass::Permanent),
        (401, FailureClass::Operator),
        (402, FailureClass::Operator),
        (403, FailureClass::Operator),
        (404, FailureClass::Operator),
        (413, FailureClass::Permanent),
        (422, FailureClass::Permanent),
    ];
    for (status, class) in cases {
        let server = failing(&FaultKind::Status { status }, 9).await;
        let watch = Watch::default();
        let error =
            provider(&server.base_url, &Env::simulated(1)).complete(&request(prompt()), &watch).await.unwrap_err();
        assert_eq!(error.class(), class, "HTTP {status}: {error}");
        assert!(!error.may_retry(), "HTTP {status}");
        let reason = if status == 404 { "there is no model of this name" } else { "told to say so" };
        assert!(error.to_string().contains(&format!("{reason} (request req_scripted_1)")), "{error}");
        assert_eq!((server.requests(), watch.seen().sent), (1, 1), "HTTP {status}");
    }
}

#[tokio::test]
async fn a_wrong_key_is_refused_with_a_hint_and_without_showing_it() {
    let server = server(rich_script(), vec![]).await;
    let config = ua_llm::AnthropicConfig { api_key: "sk-ant-wrong".to_owned().into(), ..config(&server.base_url) };
    let client = AnthropicProvider::new(config, Env::simulated(1)).unwrap();
    let error = client.complete(&request(prompt()), &Silent).await.unwrap_err();
    assert!(
        matches!(&error, LlmError::Unauthorized { status: Status::Http(401), message } if message.starts_with("invalid x-api-key"))
    );
    assert!(error.hint("anthropic").unwrap().contains("ANTHROPIC_API_KEY"));
    assert!(!format!("{error} {error:?} {client:?}").contains("sk-ant-wrong"));
}

#[tokio::test]
async fn an_invalid_history_is_refused_by_both_providers() {
    let server = server(rich_script(), vec![]).await;
    let http = provider(&server.base_url, &Env::simulated(1));
    let scripted = ScriptedProvider::new(rich_script());
    let first = http.complete(&request(prompt()), &Silent).await.unwrap();
    let mut history = answered(first.into_message());
    history.pop();
    let refused = |error: LlmError| {
        let LlmError::InvalidRequest { status, message } = error else { panic!("{error:?}") };
        assert_eq!(status.number(), 400, "{message}");
        message
    };
    let by_wire = refused(http.complete(&request(history.clone()), &Silent).await.unwrap_err());
    let in_process = refused(scripted.complete(&request(history), &Silent).await.unwrap_err());
    assert_eq!(
        in_process,
        "the history is not what the script expects: the tool use toolu_1_1 has no result in the next user message"
    );
    assert_eq!(by_wire, format!("{in_process} (request req_scripted_2)"));
}

#[tokio::test]
async fn silence_is_a_timeout_and_a_slow_stream_is_not() {
    let idle_timeout = Duration::from_millis(800);
    let faults = vec![Fault::at(1, FaultKind::Hang), Fault::at(2, FaultKind::Slow { delay_ms: 50 })];
    let server = server(rich_script(), faults).await;
    let config = ua_llm::AnthropicConfig { idle_timeout, ..config(&server.base_url) };
    let env = Env::simulated(1);
    let watch = Watch::default();
    // The slow stream takes longer in all than the longest silence, but is never silent for so long.
    let client = AnthropicProvider::new(config, env).unwrap();
    let error = client.complete(&request(prompt()), &watch).await.unwrap_err();
    assert!(matches!(error, LlmError::Timeout { idle } if idle == idle_timeout) && error.left_us());
    let turn = client.complete(&request(prompt()), &watch).await.unwrap();
    assert!(turn.text().ends_with("in request 2."));
    assert_eq!(watch.seen().sent, 2);
    let log = server.log();
    assert_eq!((log[0].status, log[0].fault.clone()), (0, Some(FaultKind::Hang)));
}

#[tokio::test]
async fn s15_a_reply_that_drips_is_ended_by_a_deadline_that_no_byte_moves() {
    let (idle_timeout, reply_timeout) = (Duration::from_secs(30), Duration::from_millis(300));
    let dripping = async || server(rich_script(), vec![Fault::at(1, FaultKind::Slow { delay_ms: 60 })]).await;
    let servers = [dripping().await, dripping().await, dripping().await];
    let env = || Env::simulated(1);
    let base_url = |at: usize| servers[at].base_url.clone();
    let anthropic = ua_llm::AnthropicConfig { idle_timeout, reply_timeout, ..config(&base_url(0)) };
    let chat = ua_llm::ChatConfig::new(Some(KEY.into()));
    let chat = ua_llm::ChatConfig { base_url: base_url(1), idle_timeout, reply_timeout, ..chat };
    let openai = ua_llm::OpenAiConfig::new(KEY.into());
    let openai = ua_llm::OpenAiConfig { base_url: base_url(2), idle_timeout, reply_timeout, ..openai };
    let wires: [Box<dyn ua_llm::LlmProvider>; 3] = [
        Box::new(AnthropicProvider::new(anthropic, env()).unwrap()),
        Box::new(ua_llm::ChatProvider::new(chat, env()).unwrap()),
        Box::new(ua_llm::OpenAiProvider::new(openai, env()).unwrap()),
    ];
    for wire in wires {
        let error = wire.complete(&request(prompt()), &Silent).await.unwrap_err();
        assert!(matches!(error, LlmError::Endless { after } if after == reply_timeout), "{error:?}");
        // It was billed, as far as anybody knows, and may be asked again.
        assert!(error.left_us() && error.may_retry() && !error.was_refused());
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unreachable_and_was_sent_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let watch = Watch::default();
    let client = provider(&format!("http://{address}"), &Env::simulated(1));
    let error = client.complete(&request(prompt()), &watch).await.unwrap_err();
    let LlmError::Unreachable { host, why } = &error else { panic!("{error:?}") };
    // Whoever reads it can tell a port that nobody listens on from a name that nobody knows.
    assert!(*host == address.to_string() && why.contains("refused"), "{error}");
    assert!(!error.left_us() && error.class() == FailureClass::Transient);
    assert_eq!(watch.seen().sent, 1);
}

/// Answers every connection with `response` and closes it.
async fn canned(response: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = Vec::new();
            let mut piece = [0_u8; 4096];
            // The body is JSON on one line, so that its end is the end of the request.
            while !request.ends_with(b"}") {
                let read = socket.read(&mut piece).await.unwrap();
                request.extend_from_slice(&piece[..read]);
            }
            socket.write_all(response.as_bytes()).await.unwrap();
        }
    });
    format!("http://{address}")
}

async fn canned_error(response: String) -> LlmError {
    let url = canned(response).await;
    let client = provider(&url, &Env::simulated(1));
    client.complete(&request(prompt()), &Silent).await.unwrap_err()
}

#[tokio::test]
async fn a_connection_that_closes_without_an_answer_may_have_been_billed() {
    for response in ["", "HTTP/1.1 20"] {
        let error = canned_error(response.to_owned()).await;
        assert!(matches!(error, LlmError::Unanswered { .. }), "{response:?}: {error:?}");
        assert!(error.left_us() && error.may_retry() && !error.was_refused(), "{response:?}: {error:?}");
    }
}

/// Whatever stands in for a provider that is away, it is asked again; what no model has written is free.
#[tokio::test]
async fn an_outage_is_one_whatever_it_looks_like() {
    let stream = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
    for (response, is_free) in [
        (String::new(), false),
        ("HTTP/1.1 200 OK\r\ncontent-ty".to_owned(), false),
        (format!("{stream}\r\n"), false),
        (format!("{stream}content-length: 0\r\n\r\n"), false),
        (format!("{stream}transfer-encoding: chunked\r\n\r\n"), false),
        (format!("{stream}\r\ndata: {{\"type\": \"mess"), false),
        ("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 7\r\n\r\n<html/>".to_owned(), true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(), true),
        ("HTTP/1.1 302 Found\r\nlocation: /login\r\ncontent-length: 0\r\n\r\n".to_owned(), true),
        ("HTTP/1.1 500 x\r\ncontent-length: 0\r\n\r\n".to_owned(), true),
        ("HTTP/1.1 502 x\r\ncontent-type: text/html\r\ncontent-length: 7\r\n\r\n<html/>".to_owned(), false),
        ("HTTP/1.1 503 x\r\ncontent-length: 0\r\n\r\n".to_owned(), true),
        ("HTTP/1.1 504 x\r\ncontent-length: 0\r\n\r\n".to_owned(), false),
    ] {
        let error = canned_error(response.clone()).await;
        assert!(error.may_retry() && !error.is_final(), "{response:?}: {error:?}");
        assert_eq!(error.was_refused(), is_free, "{response:?}: {error:?}");
    }
}

/// What is a stream is read as one, whatever it is labelled as.
#[tokio::test]
async fn a_stream_that_is_labelled_as_something_else_is_read() {
    let events = [
        r#"{"type":"message_start","message":{"id":"m","model":"m","usage":{"input_tokens":5}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"hi"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
        r#"{"type":"message_stop"}"#,
    ];
    let stream = events.map(|event| format!("data: {event}\n\n")).concat();
    for label in ["content-type: text/plain\r\n", "content-type: application/json\r\n", ""] {
        for begin in ["", "\n", ": comment\n\n", "\u{feff}", "event: message_start\n"] {
            let url = canned(format!("HTTP/1.1 200 OK\r\n{label}connection: close\r\n\r\n{begin}{stream}")).await;
            let turn = provider(&url, &Env::simulated(1)).complete(&request(prompt()), &Silent).await.unwrap();
            assert_eq!((turn.text().as_str(), turn.stop_reason), ("hi", StopReason::EndTurn), "{label:?} {begin:?}");
        }
        let cut = canned_error(format!("HTTP/1.1 200 OK\r\n{label}connection: close\r\n\r\n{}", &stream[..99])).await;
        assert!(matches!(cut, LlmError::Cut { .. }) && cut.may_retry() && !cut.was_refused(), "{label:?}: {cut:?}");
    }
}

/// A wait that an error inside a stream asks for is one.
#[tokio::test]
async fn a_wait_that_is_asked_for_inside_a_stream_is_heard() {
    let error = r#"{"type":"error","error":{"type":"rate_limit_error","message":"Please try again in 8s."}}"#;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let error = canned_error(format!("{head}event: error\ndata: {error}\n\n")).await;
    assert_eq!(error.retry_after(), Some(Duration::from_secs(8)), "{error:?}");
}

/// Something in front of a provider may stream nothing. What it brought is paid for, and one that was cut may be.
#[tokio::test]
async fn a_reply_that_is_not_streamed_is_read_and_a_cut_one_is_a_cut() {
    let body =
        r#"{"type":"message","id":"m","model":"m","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn"}"#;
    let head =
        |length| format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
    let url = canned(format!("{}{body}", head(body.len()))).await;
    let turn = provider(&url, &Env::simulated(1)).complete(&request(prompt()), &Silent).await.unwrap();
    assert_eq!((turn.text().as_str(), turn.stop_reason), ("hi", StopReason::EndTurn));
    let error = canned_error(format!("{}{}", head(body.len()), &body[..40])).await;
    assert!(error.may_retry() && error.left_us() && !error.was_refused(), "{error:?}");
    // Whatever it is labelled as.
    let labelled = format!("{}{body}", head(body.len()).replace("application/json", "text/event-stream"));
    let url = canned(labelled).await;
    let turn = provider(&url, &Env::simulated(1)).complete(&request(prompt()), &Silent).await.unwrap();
    assert_eq!((turn.text().as_str(), turn.stop_reason), ("hi", StopReason::EndTurn));
}

/// One answer after the other, each on a connection of its own.
async fn one_by_one(responses: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for response in responses {
            let (mut socket, _) = listener.accept().await.unwrap();
            let (mut request, mut piece) = (Vec::new(), [0_u8; 4096]);
            while !request.ends_with(b"}") {
                let read = socket.read(&mut piece).await.unwrap();
                request.extend_from_slice(&piece[..read]);
            }
            socket.write_all(response.as_bytes()).await.unwrap();
        }
    });
    format!("http://{address}")
}

fn with_body(status: &str, body: &str) -> String {
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n");
    format!("{head}content-length: {}\r\n\r\n{body}", body.len())
}

/// What stands in the place of a server that is being started or put in another's place is an outage where it has answered before, whatever
/// status it has; where it never did, it is a wrong address, or a refusal.
#[tokio::test]
async fn a_page_that_knows_nothing_is_an_outage_once_there_was_a_reply() {
    const PAGE: &str = "<html>\r\n<head><title>One moment</title></head>\r\n</html>";
    const OWN: &str = r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-x"}}"#;
    let reply = r#"{"type":"message","model":"m","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn"}"#;
    let behind_a_reply = async |status: &str, body: &str| {
        let url = one_by_one(vec![with_body("200 OK", reply), with_body(status, body)]).await;
        let client = provider(&url, &Env::simulated(1));
        client.complete(&request(prompt()), &Silent).await.unwrap();
        client.complete(&request(prompt()), &Silent).await.unwrap_err()
    };
    let mut outages = Vec::new();
    for status in ["403 No", "404 Not", "405 Not", "410 Gone", "418 Tea", "421 Not", "451 No"] {
        outages.push((status, PAGE));
    }
    let unknown = [
        "404 page not found",
        "default backend - 404",
        "",
        r#"{"message":"no Route matched with those values"}"#,
        r#"{"timestamp":"2026","status":404,"error":"Not Found","path":"/v1/messages"}"#,
        r#"{"detail":"Not Found"}"#,
    ];
    outages.extend(unknown.map(|body| ("404 Not Found", body)));
    outages.extend(["", "not now"].map(|body| ("405 Not Allowed", body)));
    for (status, body) in outages {
        if status.starts_with("404") {
            let before = canned_error(with_body(status, body)).await;
            assert!(matches!(before, LlmError::NoEndpoint { .. }), "{body}: {before:?}");
        }
        let error = behind_a_reply(status, body).await;
        assert!(error.may_retry() && error.was_refused(), "{status}, {body}: {error:?}");
    }
    let too_long = r#"{"error":{"message":"maximum context length is 4096 tokens","code":"context_length_exceeded"}}"#;
    let refusals = [
        ("404 Not Found", OWN),
        ("413 Too Large", PAGE),
        ("400 Bad", PAGE),
        ("400 Bad", too_long),
        ("400 Bad", ""),
        ("400 Bad", OWN),
        ("401 No", ""),
    ];
    for (status, body) in refusals {
        let error = behind_a_reply(status, body).await;
        assert!(!matches!(error, LlmError::NotAReply { .. }), "{status}, {body}: {error:?}");
    }
}

/// A filter that says so by an error withheld a reply, as one that says so by how the reply ends.
#[tokio::test]
async fn a_filter_is_a_refusal_by_whatever_it_says_so() {
    let errors = [
        (
            "400 Bad Request",
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"Output blocked by content filtering policy"}}"#,
        ),
        (
            "400 Bad Request",
            r#"{"error":{"code":"data_inspection_failed","message":"Output data may contain inappropriate content."}}"#,
        ),
        ("400 Bad Request", r#"{"error":{"message":"Content Exists Risk","type":"invalid_request_error"}}"#),
        (
            "403 Forbidden",
            r#"{"error":{"code":403,"message":"Input was flagged","metadata":{"reasons":["violence"]}}}"#,
        ),
    ];
    for (status, body) in errors {
        let url = canned(with_body(status, body)).await;
        let turn = provider(&url, &Env::simulated(1)).complete(&request(prompt()), &Silent).await.unwrap();
        assert_eq!((turn.stop_reason, turn.text().as_str()), (StopReason::Refusal, ""), "{body}");
    }
    let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"m\",\"usage\":{\"input_tokens\":5}}}\n\n";
    let stream = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{start}event: error\ndata: {}\n\n",
        errors[0].1
    );
    let url = canned(stream).await;
    let turn = provider(&url, &Env::simulated(1)).complete(&request(prompt()), &Silent).await.unwrap();
    assert_eq!((turn.stop_reason, turn.usage.map(|usage| usage.input_tokens)), (StopReason::Refusal, Some(5)));
    // What is wrong with the request stays wrong.
    let wrong = r#"{"type":"error","error":{"type":"invalid_request_error","message":"temperature is too high"}}"#;
    assert!(canned_error(with_body("400 Bad Request", wrong)).await.is_final());
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_a_page_is_no_reply() {
    let redirected =
        |status: &str| format!("HTTP/1.1 {status}\r\nlocation: http://127.0.0.1:9/steal\r\ncontent-length: 0\r\n\r\n");
    // One that is for good means that the address is wrong.
    let error = canned_error(redirected("308 Permanent Redirect")).await;
    assert!(matches!(&error, LlmError::NoEndpoint { status: Status::Http(308), .. }), "{error:?}");
    for status in
        ["300 Multiple", "301 Moved Permanently", "304 Same", "308 Permanent Redirect", "601 What", "999 Denied"]
    {
        let error = canned_error(redirected(status)).await;
        assert!(
            error.was_refused() && error.left_us() && error.is_final() && !error.may_retry(),
            "{status}: {error:?}"
        );
        assert!(error.hint("openai").unwrap().contains("OPENAI_BASE_URL"), "{status}: {error}");
    }
    let error = canned_error(redirected("307 Temporary Redirect")).await;
    assert!(matches!(&error, LlmError::NotAReply { what, .. } if what.contains("307")), "{error:?}");
    let page = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 7\r\n\r\n<html/>";
    let error = canned_error(page.to_owned()).await;
    assert!(matches!(&error, LlmError::NotAReply { what, .. } if what == "an HTML page: <html/>"), "{error:?}");
}

#[tokio::test]
async fn a_key_that_a_server_echoes_is_taken_out() {
    let body = format!(r#"{{"type":"error","error":{{"type":"x","message":"who is {KEY}?"}}}}"#);
    let head = format!("HTTP/1.1 401 Unauthorized\r\ncontent-length: {}\r\n\r\n", body.len());
    let error = canned_error(format!("{head}{body}")).await;
    assert_eq!(error.to_string(), "the model provider refused the credentials (HTTP 401): who is [key]?");
    let event = format!("data: {{\"type\":\"error\",\"error\":{{\"type\":\"api_error\",\"message\":\"{KEY}\"}}}}\n\n");
    let error = canned_error(format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{event}")).await;
    assert_eq!(error.to_string(), "cannot get a reply from the provider: api_error: [key]");
}

/// `https://` in front of the address of a plain port is the one mistake that TLS itself can tell; its library calls it a corrupt message.
#[tokio::test]
async fn a_plain_port_behind_https_is_told_as_that() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http = provider(&format!("https://{}", listener.local_addr().unwrap()), &Env::simulated(1));
    let serve = async {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.read_exact(&mut [0_u8; 5]).await.unwrap();
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        // What is left unread would have the answer thrown away.
        socket.read_to_end(&mut Vec::new()).await.unwrap_or_default();
    };
    let asked = request(prompt());
    let (answer, ()) = tokio::join!(http.complete(&asked, &Silent), serve);
    let error = answer.unwrap_err();
    assert!(matches!(error, LlmError::Unreachable { .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.contains("does not speak TLS") && said.contains("http://"), "{said}");
}
