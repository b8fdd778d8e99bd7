//! What every wire promises, played against every wire: the table [`WIRES`] has one entry for each.
//!
//! The servers are `ua-testkit`'s, which read requests as strictly as the real ones do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::support::{KEY, Watch, prompt, request, rich_script, script, server};
use secrecy::SecretString;
use serde_json::{Value, json};
use ua_core::{Block, Env, FailureClass, Message, ModelTurn, Origin, Role, StopReason, Usage};
use ua_llm::{
    AnthropicConfig, AnthropicProvider, ChatConfig, ChatProvider, LlmError, LlmProvider, OpenAiConfig, OpenAiProvider,
    ScriptedProvider, Silent, Status,
};
use ua_testkit::{Fault, FaultKind, ModelServer};

/// A wire: its name, and how a provider is made that reaches a server at this address and waits so long.
pub(crate) struct Wire {
    pub(crate) name: &'static str,
    pub(crate) connect: fn(&str, Duration) -> Arc<dyn LlmProvider>,
}

/// Every wire there is. One that is added here keeps all of these promises.
pub(crate) const WIRES: &[Wire] = &[
    Wire { name: "anthropic", connect: anthropic },
    Wire { name: "openai-chat", connect: chat },
    Wire { name: "openai", connect: responses },
];

fn key() -> SecretString {
    SecretString::from(KEY.to_owned())
}

fn anthropic(base_url: &str, idle_timeout: Duration) -> Arc<dyn LlmProvider> {
    let config = AnthropicConfig { base_url: base_url.to_owned(), idle_timeout, ..AnthropicConfig::new(key()) };
    Arc::new(AnthropicProvider::new(config, Env::simulated(1)).unwrap())
}

fn chat(base_url: &str, idle_timeout: Duration) -> Arc<dyn LlmProvider> {
    let config = ChatConfig { base_url: base_url.to_owned(), idle_timeout, ..ChatConfig::new(Some(key())) };
    Arc::new(ChatProvider::new(config, Env::simulated(1)).unwrap())
}

fn responses(base_url: &str, idle_timeout: Duration) -> Arc<dyn LlmProvider> {
    let config = OpenAiConfig { base_url: base_url.to_owned(), idle_timeout, ..OpenAiConfig::new(key()) };
    Arc::new(OpenAiProvider::new(config, Env::simulated(1)).unwrap())
}

impl Wire {
    fn at(&self, server: &ModelServer) -> Arc<dyn LlmProvider> {
        (self.connect)(&server.base_url, Duration::from_secs(30))
    }
}

async fn ask(provider: &Arc<dyn LlmProvider>, messages: Vec<Message>) -> Result<ModelTurn, LlmError> {
    provider.complete(&request(messages), &Silent).await
}

async fn fail(wire: &Wire, kind: FaultKind) -> LlmError {
    let server = server(rich_script(), vec![Fault::at(1, kind.clone())]).await;
    match ask(&wire.at(&server), prompt()).await {
        Err(error) => error,
        Ok(turn) => panic!("{}: {kind:?} gave {turn:?}", wire.name),
    }
}

/// The blocks that every wire understands.
fn plain(turn: &ModelTurn) -> Vec<Block> {
    turn.blocks.iter().filter(|block| !matches!(block, Block::Opaque { .. })).cloned().collect()
}

fn results(turn: &ModelTurn, content: &str, is_error: bool) -> Message {
    let result =
        |tool: &ua_core::ToolUse| Block::ToolResult { tool_use_id: tool.id.clone(), content: content.into(), is_error };
    Message { role: Role::User, origin: Origin::Tools, blocks: turn.tool_uses().map(result).collect() }
}

fn after(turn: &ModelTurn, more: impl IntoIterator<Item = Message>) -> Vec<Message> {
    let mut history = prompt();
    history.push(turn.clone().into_message());
    history.extend(more);
    history
}

#[tokio::test]
async fn text_reasoning_and_parallel_calls_arrive_as_they_were_said() {
    for wire in WIRES {
        let server = server(rich_script(), vec![]).await;
        let (provider, scripted) = (wire.at(&server), ScriptedProvider::new(rich_script()));
        let watch = Watch::default();
        let first = provider.complete(&request(prompt()), &watch).await.unwrap();
        let said = scripted.complete(&request(prompt()), &Silent).await.unwrap();
        assert_eq!(plain(&first), plain(&said), "{}", wire.name);
        assert_eq!((first.stop_reason, &first.model), (StopReason::ToolUse, &said.model), "{}", wire.name);
        let named = first.response_id.as_ref().map(|id| id.replacen("resp_", "msg_", 1));
        assert_eq!(named, said.response_id, "{}", wire.name);
        assert_eq!((watch.seen().sent, watch.seen().text), (1, first.text()), "{}", wire.name);
        // What it thought is kept as the wire's own.
        let thought = first.blocks.iter().find_map(|block| match block {
            Block::Opaque { provider, value } => Some((provider.clone(), value.to_string())),
            Block::Text { .. } | Block::ToolUse(_) | Block::ToolResult { .. } => None,
        });
        let (owner, thought) = thought.unwrap();
        assert_eq!((owner.as_str(), thought.contains("café")), (wire.name, true));

        // It goes back through the text in which a history is stored, with a note in between, as after a resume.
        let stored: Message =
            serde_json::from_str(&serde_json::to_string(&first.clone().into_message()).unwrap()).unwrap();
        let note = Message::user(Origin::Resume, "You were interrupted; nothing was lost.");
        let mut history = prompt();
        history.extend([stored, note, results(&first, "soup of the day", false)]);
        let second = ask(&provider, history).await.unwrap();
        assert_eq!((second.text().as_str(), second.stop_reason), ("It says soup of the day.", StopReason::EndTurn));
        assert_eq!(provider.name(), wire.name);
    }
}

#[tokio::test]
async fn what_the_provider_counted_is_what_is_told() {
    let usage = Usage { input_tokens: 17, output_tokens: 5, cache_read_tokens: 100, cache_write_tokens: 3 };
    for wire in WIRES {
        let script = script(&json!({"turns": [{"text": "hi", "usage": usage}]}));
        let server = server(script, vec![]).await;
        // The Responses API does not tell what was written to its cache from other input.
        let folded = Usage { input_tokens: 20, cache_write_tokens: 0, ..usage };
        let told = if wire.name == "openai" { folded } else { usage };
        assert_eq!(ask(&wire.at(&server), prompt()).await.unwrap().usage, Some(told), "{}", wire.name);
        assert_eq!(server.bill(), [usage]);
    }
}

/// Whatever breaks a reply off, what it cost until then is told: what the provider counted already, and at least what arrived.
#[tokio::test]
async fn a_reply_that_breaks_off_has_told_what_it_cost_so_far() {
    let usage = Usage { input_tokens: 50_000, output_tokens: 7_000, ..Usage::default() };
    let words = "All work and no play. ".repeat(1300);
    let turn =
        json!({"text": words, "tools": [{"name": "mcp__ua__read_file", "input": {"path": words}}], "usage": usage});
    for wire in WIRES {
        let cut = |events| FaultKind::CutAfter { events };
        for kind in [cut(100), cut(700), FaultKind::EndWithoutStop] {
            let server = server(script(&json!({"turns": [turn]})), vec![Fault::at(1, kind.clone())]).await;
            let watch = Watch::default();
            let error = wire.at(&server).complete(&request(prompt()), &watch).await.unwrap_err();
            let LlmError::Cut { text_bytes, .. } = error else { panic!("{}: {kind:?} gave {error:?}", wire.name) };
            let heard = watch.heard().unwrap_or_default();
            assert!(
                heard.output_tokens >= text_bytes as u64 / 4 && text_bytes > 0,
                "{}: {kind:?} {heard:?}",
                wire.name
            );
            if wire.name == "anthropic" {
                assert_eq!(heard.input_tokens, usage.input_tokens, "{kind:?}: its first event says so");
            }
            if matches!(kind, FaultKind::EndWithoutStop) {
                // All of it arrived: the arguments are output as well.
                assert!(heard.output_tokens >= 2 * words.len() as u64 / 4, "{}: {heard:?}", wire.name);
            }
        }
    }
}

#[tokio::test]
async fn a_reply_ends_for_the_reason_that_was_given() {
    for wire in WIRES {
        for (told, read) in
            [("end_turn", StopReason::EndTurn), ("max_tokens", StopReason::MaxTokens), ("refusal", StopReason::Refusal)]
        {
            let script = script(&json!({"turns": [{"text": "hi", "tools": [{"name": "t"}], "stop_reason": told}]}));
            let server = server(script, vec![]).await;
            let turn = ask(&wire.at(&server), prompt()).await.unwrap();
            // Behind whole calls a plain end is one that wants their answers, on each wire.
            let expected = if told == "end_turn" { StopReason::ToolUse } else { read };
            assert_eq!(turn.stop_reason, expected, "{} {told}", wire.name);
        }
    }
}

#[tokio::test]
async fn garbled_arguments_arrive_as_text_and_can_be_answered() {
    for wire in WIRES {
        let turns = json!({"turns": [{"tools": [{"name": "t", "input": "{\"path\": \"a"}]}, {"text": "sorry", "expect": {"tool_result_ok": false}}]});
        let server = server(script(&turns), vec![]).await;
        let provider = wire.at(&server);
        let first = ask(&provider, prompt()).await.unwrap();
        assert_eq!(first.tool_uses().next().unwrap().input, json!("{\"path\": \"a"), "{}", wire.name);
        let second = ask(&provider, after(&first, [results(&first, "not JSON", true)])).await.unwrap();
        assert_eq!(second.text(), "sorry", "{}", wire.name);
    }
}

#[tokio::test]
async fn a_stream_that_stops_anywhere_is_no_reply_unless_its_end_was_told() {
    const MOST: usize = 60;
    let whole_script = || {
        script(
            &json!({"turns": [{"thinking": "hm", "text": "I look.", "tools": [{"name": "t", "input": {"a": 1}}, {"name": "t"}]}]}),
        )
    };
    for wire in WIRES {
        let provider_of = |server: &ModelServer| wire.at(server);
        let whole = ask(&provider_of(&server(whole_script(), vec![]).await), prompt()).await.unwrap();
        for breaks in [true, false] {
            let fault = |events: usize| {
                let kind = if breaks { FaultKind::CutAfter { events } } else { FaultKind::EndAfter { events } };
                Fault::at(u64::try_from(events).unwrap() + 1, kind)
            };
            let server = server(whole_script(), (0..MOST).map(fault).collect()).await;
            let provider = provider_of(&server);
            let mut cuts = 0;
            for events in 0..MOST {
                match ask(&provider, prompt()).await {
                    Err(error) => {
                        assert_eq!(cuts, events, "{} is cut behind {events}, but not before", wire.name);
                        assert!(matches!(error, LlmError::Cut { .. }), "{} behind {events}: {error:?}", wire.name);
                        assert!(error.left_us() && error.may_retry());
                        cuts += 1;
                    }
                    // The end was told; only the numbers behind it may be missing.
                    Ok(turn) => {
                        assert_eq!(plain(&turn), plain(&whole), "{} behind {events}", wire.name);
                        assert_eq!((turn.stop_reason, &turn.response_id), (whole.stop_reason, &turn.response_id));
                        assert!(turn.usage.is_none() || turn.usage == whole.usage, "{} behind {events}", wire.name);
                    }
                }
            }
            assert!(cuts > 6 && cuts < MOST, "{}: {cuts} cuts", wire.name);
        }
    }
}

#[tokio::test]
async fn statuses_mean_the_same_everywhere() {
    let passing = [408, 409, 429, 500, 502, 503, 504, 529];
    let lasting = [
        (400, FailureClass::Permanent),
        (401, FailureClass::Operator),
        (403, FailureClass::Operator),
        (404, FailureClass::Operator),
        (413, FailureClass::Permanent),
        (422, FailureClass::Permanent),
    ];
    for wire in WIRES {
        for status in passing {
            let error = fail(wire, FaultKind::Status { status }).await;
            assert!(error.may_retry() && error.left_us(), "{} {status}: {error:?}", wire.name);
        }
        for (status, class) in lasting {
            let error = fail(wire, FaultKind::Status { status }).await;
            assert_eq!(error.class(), class, "{} {status}: {error:?}", wire.name);
            let reason = if status == 404 { "there is no model of this name" } else { "told to say so" };
            assert!(error.to_string().contains(reason), "{}: {error}", wire.name);
        }
        for (header, wait) in [("37", 37), ("Fri, 02 Jan 2026 03:04:50 GMT", 45)] {
            let error = fail(wire, FaultKind::RateLimited { retry_after: Some(header.into()) }).await;
            assert_eq!(error.retry_after(), Some(Duration::from_secs(wait)), "{} {header}", wire.name);
        }
    }
}

#[tokio::test]
async fn an_error_in_the_stream_is_an_error_and_may_pass() {
    for wire in WIRES {
        for error_type in ["overloaded_error", "api_error"] {
            let error = fail(wire, FaultKind::ErrorMidStream { error_type: error_type.into() }).await;
            assert!(error.may_retry() && error.left_us(), "{}: {error:?}", wire.name);
            assert!(error.to_string().contains("told to say so"), "{}: {error}", wire.name);
        }
    }
}

/// Over what providers call their errors, by words and by numbers: what came inside a stream came with HTTP 200, and no other status is said to have come.
#[tokio::test]
async fn an_error_in_the_stream_is_said_to_have_no_status() {
    const KINDS: [&str; 16] = [
        "authentication_error",
        "invalid_api_key",
        "permission_error",
        "billing_error",
        "insufficient_quota",
        "not_found_error",
        "model_not_found",
        "invalid_request_error",
        "invalid_image",
        "request_too_large",
        "context_length_exceeded",
        "rate_limit_error",
        "rate_limit_exceeded",
        "overloaded_error",
        "server_error",
        "of some other kind",
    ];
    let numbers = [400, 401, 402, 403, 404, 408, 409, 413, 418, 422, 429, 500, 502, 503, 529];
    let kinds: Vec<String> =
        KINDS.iter().map(ToString::to_string).chain(numbers.map(|number| number.to_string())).collect();
    for wire in WIRES {
        let mut found = BTreeSet::new();
        for error_type in &kinds {
            let error = fail(wire, FaultKind::ErrorMidStream { error_type: error_type.clone() }).await;
            let said = error.to_string();
            assert!(!said.contains("HTTP") && said.contains("told to say so"), "{} {error_type}: {said}", wire.name);
            found.insert(format!("{:?}", std::mem::discriminant(&error)));
        }
        assert!(found.len() > 5, "{}: {found:?}", wire.name);
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_asked_for_again_and_what_never_ends_is_not() {
    for wire in WIRES {
        let error = fail(wire, FaultKind::MalformedEvent).await;
        assert!(matches!(error, LlmError::Garbled { .. }), "{}: {error:?}", wire.name);
        assert!(error.may_retry() && error.left_us() && !error.was_refused(), "it is charged as a cut is");
        let error = fail(wire, FaultKind::Page).await;
        assert!(matches!(error, LlmError::NotAReply { .. }), "{}: {error:?}", wire.name);
        assert!(error.may_retry() && error.left_us() && error.was_refused(), "no model has written it");
        let error = fail(wire, FaultKind::Endless).await;
        assert!(matches!(error, LlmError::Protocol { .. }) && !error.may_retry(), "{}: {error:?}", wire.name);
    }
}

/// A proxy that repeats what it passes on must not make other arguments of a call than the model gave it.
#[tokio::test]
async fn events_that_come_twice_never_make_other_calls() {
    for wire in WIRES {
        let server = server(rich_script(), vec![Fault::at(1, FaultKind::DuplicateEvents)]).await;
        match ask(&wire.at(&server), prompt()).await {
            Err(error) => assert!(matches!(error, LlmError::Garbled { .. }), "{}: {error:?}", wire.name),
            Ok(turn) => {
                let sent = ["{\"path\":\"menü.txt\",\"limit\":9007199254740993}", "{}"];
                for tool in turn.tool_uses() {
                    let same = |text: &&str| serde_json::from_str::<Value>(text).unwrap() == tool.input;
                    assert!(tool.input.is_string() || sent.iter().any(same), "{}: {:?}", wire.name, tool.input);
                }
            }
        }
    }
}

#[tokio::test]
async fn silence_is_a_timeout_and_a_slow_drip_is_not() {
    let idle = Duration::from_millis(800);
    for wire in WIRES {
        let faults = vec![Fault::at(1, FaultKind::Hang), Fault::at(2, FaultKind::Slow { delay_ms: 60 })];
        let server = server(rich_script(), faults).await;
        let provider = (wire.connect)(&server.base_url, idle);
        let error = ask(&provider, prompt()).await.unwrap_err();
        assert!(matches!(error, LlmError::Timeout { idle: told } if told == idle), "{}: {error:?}", wire.name);
        assert!(ask(&provider, prompt()).await.is_ok(), "{}", wire.name);
    }
}

#[tokio::test]
async fn a_large_reply_is_read_whole() {
    let text = "ä large reply. ".repeat(10_000);
    for wire in WIRES {
        let turns = json!({"turns": [{"text": "", "tools": [{"name": "t", "input": {"text": text}}]}]});
        let server = server(script(&turns), vec![]).await;
        let turn = ask(&wire.at(&server), prompt()).await.unwrap();
        assert_eq!(turn.tool_uses().next().unwrap().input["text"], json!(text), "{}", wire.name);
    }
}

#[tokio::test]
async fn a_history_in_which_a_call_has_no_result_or_two_is_refused() {
    for wire in WIRES {
        let server = server(rich_script(), vec![]).await;
        let provider = wire.at(&server);
        let first = ask(&provider, prompt()).await.unwrap();
        let mut one = results(&first, "ok", false);
        one.blocks.pop();
        let mut twice = results(&first, "ok", false);
        let again = twice.blocks[0].clone();
        twice.blocks.push(again);
        let stray = Message {
            role: Role::User,
            origin: Origin::Tools,
            blocks: vec![Block::ToolResult { tool_use_id: "nobody".into(), content: "ok".into(), is_error: false }]
                .into(),
        };
        let note = Message::user(Origin::Guidance, "go on");
        for wrong in [vec![note.clone()], vec![one], vec![twice], vec![results(&first, "ok", false), stray]] {
            let error = ask(&provider, after(&first, wrong)).await.unwrap_err();
            assert!(
                matches!(error, LlmError::InvalidRequest { status: Status::Http(400), .. }),
                "{}: {error:?}",
                wire.name
            );
        }
        assert!(ask(&provider, after(&first, [results(&first, "soup", false), note])).await.is_ok(), "{}", wire.name);
    }
}

#[tokio::test]
async fn a_server_of_ones_own_may_do_without_a_key() {
    let server = ModelServer::start(ua_testkit::ModelServerConfig::new(rich_script())).await.unwrap();
    let config = ChatConfig { base_url: server.base_url.clone(), ..ChatConfig::new(None) };
    let provider: Arc<dyn LlmProvider> = Arc::new(ChatProvider::new(config, Env::simulated(1)).unwrap());
    assert_eq!(ask(&provider, prompt()).await.unwrap().stop_reason, StopReason::ToolUse);
}

#[tokio::test]
async fn a_wrong_key_is_refused_and_shown_nowhere() {
    for wire in WIRES {
        let config = ua_testkit::ModelServerConfig {
            api_key: Some("sk-other".to_owned()),
            ..ua_testkit::ModelServerConfig::new(rich_script())
        };
        let server = ModelServer::start(config).await.unwrap();
        let error = ask(&wire.at(&server), prompt()).await.unwrap_err();
        assert!(matches!(error, LlmError::Unauthorized { status: Status::Http(401), .. }), "{}: {error:?}", wire.name);
        assert!(!format!("{error} {error:?}").contains(KEY));
    }
}
