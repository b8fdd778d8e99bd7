//! What models thought, sent back to a server that does not take it: kinds of thoughts × wires × the words in which servers refuse. Such a request is
//! asked once more in a form that the server takes, and what is asked after that goes in that form at once; what the model thinks then is sent back
//! again, unless the server knows no thoughts at all.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use ua_core::{Block, Env, Message, Origin, Role, ToolUse};
use ua_llm::{
    ANTHROPIC, AnthropicConfig, AnthropicProvider, ChatConfig, ChatProvider, LlmProvider, ModelExtras, OPENAI,
    OPENAI_CHAT, OpenAiConfig, OpenAiProvider,
};

use super::support::{Watch, answer, body_of, request};

type Asked = Arc<Mutex<Vec<Value>>>;
/// Why a server refuses a request: its status and its body.
type Refusal = (&'static str, String);

/// A server that refuses what a rule says, and answers all else on whichever wire it was asked.
async fn server(rule: impl Fn(&Value) -> Option<Refusal> + Send + 'static) -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Asked::default());
    let kept = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let body = body_of(&mut socket).await;
            let reply = json!({"id": "r", "model": "m", "status": "completed", "stop_reason": "end_turn",
                "content": [{"type": "text", "text": "done"}],
                "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "done"}}],
                "output": [{"type": "message", "content": [{"type": "output_text", "text": "done"}]}]});
            let (status, said) = rule(&body).unwrap_or_else(|| ("200 OK", reply.to_string()));
            kept.lock().unwrap().push(body);
            answer(&mut socket, status, &said).await;
        }
    });
    (format!("http://{address}/v1"), asked)
}

fn error(message: &str) -> Refusal {
    let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
    ("400 Bad Request", error.to_string())
}

fn provider(wire: &str, base_url: &str, extras: ModelExtras) -> Box<dyn LlmProvider> {
    let (env, key) = (Env::simulated(1), SecretString::from("key".to_owned()));
    let base_url = base_url.to_owned();
    match wire {
        ANTHROPIC => {
            let config = AnthropicConfig { base_url, extras, ..AnthropicConfig::new(key) };
            Box::new(AnthropicProvider::new(config, env).unwrap())
        }
        OPENAI => {
            let config = OpenAiConfig { base_url, extras, ..OpenAiConfig::new(key) };
            Box::new(OpenAiProvider::new(config, env).unwrap())
        }
        _ => {
            let config = ChatConfig { base_url, extras, ..ChatConfig::new(Some(key)) };
            Box::new(ChatProvider::new(config, env).unwrap())
        }
    }
}

fn opaque(wire: &str, value: Value) -> Block {
    Block::Opaque { provider: wire.to_owned(), value }
}

/// A reply that thought and called a tool, and the result.
fn turn(id: &str, thoughts: Option<Block>) -> [Message; 2] {
    let call = Block::ToolUse(ToolUse { id: id.to_owned(), name: "t".into(), input: json!({}) });
    let result = Block::ToolResult { tool_use_id: id.to_owned(), content: "ok".into(), is_error: false };
    let blocks: Vec<Block> = thoughts.into_iter().chain([call]).collect();
    [
        Message { role: Role::Assistant, origin: Origin::Model, blocks: blocks.into() },
        Message { role: Role::User, origin: Origin::Tools, blocks: vec![result].into() },
    ]
}

fn history(turns: impl IntoIterator<Item = [Message; 2]>) -> Vec<Message> {
    std::iter::once(Message::user(Origin::Prompt, "go")).chain(turns.into_iter().flatten()).collect()
}

/// Asks once, and says what was sent for it.
async fn ask(provider: &dyn LlmProvider, messages: Vec<Message>, asked: &Asked) -> Vec<Value> {
    asked.lock().unwrap().clear();
    let watch = Watch::default();
    let reply = provider.complete(&request(messages), &watch).await.unwrap();
    assert_eq!(reply.text(), "done");
    let bodies = asked.lock().unwrap().clone();
    assert_eq!(watch.seen().sent as usize, bodies.len());
    bodies
}

/// Thoughts of each kind with these words, by the wire they go over.
fn thoughts(wire: &str, words: &str) -> Vec<Block> {
    let kinds = match wire {
        ANTHROPIC => vec![
            json!({"type": "thinking", "thinking": words, "signature": words}),
            json!({"type": "redacted_thinking", "data": words}),
        ],
        OPENAI => {
            vec![json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": words})]
        }
        _ => vec![
            json!({"reasoning": words}),
            json!({"reasoning_content": words}),
            json!({"reasoning_details": [{"type": "reasoning.text", "text": words, "signature": words}]}),
            json!({"thinking_blocks": [{"type": "thinking", "thinking": words, "signature": words}]}),
        ],
    };
    kinds.into_iter().map(|value| opaque(wire, value)).collect()
}

/// The words in which servers refuse thoughts that are not theirs.
const NOT_THEIRS: [(&str, &str); 8] = [
    (ANTHROPIC, "messages.1.content.0: Invalid `signature` in `thinking` block"),
    (
        ANTHROPIC,
        "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\".",
    ),
    (
        ANTHROPIC,
        "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response.",
    ),
    (
        ANTHROPIC,
        "messages.1.content.0: When thinking is disabled, an `assistant` message in the final position cannot contain `thinking`. To use thinking blocks, enable `thinking` in your request.",
    ),
    (
        OPENAI,
        "The encrypted content gAAA could not be verified. Reason: Encrypted content could not be decrypted or parsed.",
    ),
    (OPENAI, "Item 'rs_1' of type 'reasoning' was provided without its required following item."),
    (OPENAI_CHAT, "litellm.BadRequestError: messages.1.content.0: Invalid `signature` in `thinking` block"),
    (OPENAI_CHAT, "The reasoning of message 1 was not made by this model."),
];

#[tokio::test]
async fn thoughts_that_a_server_does_not_take_are_left_out_and_newer_ones_are_sent() {
    for (wire, words) in NOT_THEIRS {
        for (old, new) in thoughts(wire, "OLD").into_iter().zip(thoughts(wire, "NEW")) {
            let (url, asked) = server(move |body| body.to_string().contains("OLD").then(|| error(words))).await;
            let provider = provider(wire, &url, ModelExtras::default());
            let shown = format!("{wire} {old:?} {words}");
            let mut turns = vec![turn("a", Some(old))];
            let bodies = ask(provider.as_ref(), history(turns.clone()), &asked).await;
            assert_eq!(bodies.len(), 2, "{shown}");
            assert!(bodies[0].to_string().contains("OLD") && bodies[1].to_string().contains("ok"), "{shown}");
            turns.push(turn("b", Some(new)));
            let bodies = ask(provider.as_ref(), history(turns), &asked).await;
            assert_eq!((bodies.len(), bodies[0].to_string().contains("NEW")), (1, true), "{shown}");
        }
    }
}

/// The words of servers that know no such field. A status and a form of their own.
fn unknown(words: usize) -> Refusal {
    match words {
        0 => error(
            "'messages.2' : for 'role:assistant' the following must be satisfied[('messages.2' : property 'reasoning' is unsupported)]",
        ),
        1 => {
            let detail = json!({"detail": [{"type": "extra_forbidden", "loc": ["body", "messages", 2, "assistant", "reasoning_content"],
                "msg": "Extra inputs are not permitted", "input": "OLD"}]});
            ("422 Unprocessable Entity", json!({"object": "error", "message": detail}).to_string())
        }
        2 => error("messages.1.content.0.thinking: Extra inputs are not permitted"),
        3 => error("Unknown parameter: 'input[1].encrypted_content'."),
        _ => ("500 Internal Server Error", error("thinking_blocks: unexpected keyword argument").1),
    }
}

#[tokio::test]
async fn a_server_that_knows_no_thoughts_is_sent_none_any_more() {
    for (wire, words) in [(OPENAI_CHAT, 0), (OPENAI_CHAT, 1), (OPENAI_CHAT, 4), (ANTHROPIC, 2), (OPENAI, 3)] {
        for (old, new) in thoughts(wire, "OLD").into_iter().zip(thoughts(wire, "NEW")) {
            let has_thoughts = |body: &Value| ["OLD", "NEW"].iter().any(|words| body.to_string().contains(words));
            let (url, asked) = server(move |body| has_thoughts(body).then(|| unknown(words))).await;
            let provider = provider(wire, &url, ModelExtras::default());
            let mut turns = vec![turn("a", Some(old))];
            assert_eq!(ask(provider.as_ref(), history(turns.clone()), &asked).await.len(), 2, "{wire} {words}");
            turns.push(turn("b", Some(new)));
            let bodies = ask(provider.as_ref(), history(turns), &asked).await;
            assert!(bodies.len() == 1 && !has_thoughts(&bodies[0]), "{wire} {words}");
        }
    }
}

fn budget() -> ModelExtras {
    ModelExtras { thinking_tokens: Some(2_000), ..ModelExtras::default() }
}

/// With a budget of thoughts, a turn with calls has to begin with some: a model whose thoughts are left out is not asked to think until the user
/// speaks again.
#[tokio::test]
async fn a_turn_without_its_thoughts_goes_on_without_thinking() {
    let missing = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`. When `thinking` is enabled, a \
                   final `assistant` message must start with a thinking block.";
    let rule = move |body: &Value| {
        let messages = body["messages"].as_array().unwrap();
        let is_result = |message: &Value| message["content"][0]["type"] == "tool_result";
        let is_missing = messages.last().is_some_and(is_result) && messages[1]["content"][0]["type"] == "tool_use";
        let invalid = "messages.1.content.0: Invalid `signature` in `thinking` block";
        let is_asked = body["thinking"]["type"] == "enabled";
        if body.to_string().contains("OLD") {
            Some(error(invalid))
        } else {
            (is_asked && is_missing).then(|| error(missing))
        }
    };
    let old = thoughts(ANTHROPIC, "OLD").remove(0);
    for thoughts in [Some(old), None] {
        let (url, asked) = server(rule).await;
        let provider = provider(ANTHROPIC, &url, budget());
        let mut messages = history([turn("a", thoughts)]);
        let bodies = ask(provider.as_ref(), messages.clone(), &asked).await;
        assert_eq!((bodies.len(), bodies[0]["thinking"]["budget_tokens"].as_u64()), (2, Some(2_000)));
        assert_eq!(bodies[1]["thinking"], Value::Null);
        messages.push(Message {
            role: Role::Assistant,
            origin: Origin::Model,
            blocks: vec![Block::text("yes")].into(),
        });
        messages.push(Message::user(Origin::Guidance, "go on"));
        let bodies = ask(provider.as_ref(), messages, &asked).await;
        assert_eq!((bodies.len(), &bodies[0]["thinking"]["type"]), (1, &json!("enabled")));
    }
}

/// Gemini wants each step's first call signed; Google documents what stands in for what another model did not sign.
#[tokio::test]
async fn a_call_without_its_signature_gets_the_documented_placeholder() {
    let signature = |body: &Value, place: usize| {
        let call = &body["messages"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|message| message["tool_calls"].is_array())
            .nth(place)
            .unwrap()["tool_calls"][0];
        call["extra_content"]["google"]["thought_signature"].as_str().unwrap_or_default().to_owned()
    };
    let signed = |with: &str| {
        opaque(OPENAI_CHAT, json!({"of_calls": [{"extra_content": {"google": {"thought_signature": with}}}]}))
    };
    let missing = "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly.";
    for (first, words) in [(None, missing), (Some("BAD"), "Corrupted thought signature.")] {
        let rule = move |body: &Value| {
            (0..2).any(|place| ["", "BAD"].contains(&signature(body, place).as_str())).then(|| error(words))
        };
        let (url, asked) = server(rule).await;
        let provider = provider(OPENAI_CHAT, &url, ModelExtras::default());
        let turns = [turn("a", first.map(signed)), turn("b", (words == missing).then(|| signed("GOOD")))];
        let bodies = ask(provider.as_ref(), history(turns.clone()), &asked).await;
        let placeholder = "skip_thought_signature_validator";
        let second = if words == missing { "GOOD" } else { placeholder };
        assert_eq!((bodies.len(), signature(&bodies[1], 0).as_str()), (2, placeholder), "{words}");
        assert_eq!(signature(&bodies[1], 1), second, "{words}");
        assert_eq!(ask(provider.as_ref(), history(turns), &asked).await.len(), 1, "{words}");
    }
}

#[tokio::test]
async fn a_server_that_wants_thoughts_beside_calls_gets_a_blank() {
    for words in [
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "Missing `reasoning_content` field in the assistant message at message index 2.",
    ] {
        let rule = move |body: &Value| {
            let calls = body["messages"].as_array().unwrap().iter().filter(|message| message["tool_calls"].is_array());
            let is_missing = calls.map(|message| &message["reasoning_content"]).any(|thoughts| !thoughts.is_string());
            is_missing.then(|| error(words))
        };
        let (url, asked) = server(rule).await;
        let provider = provider(OPENAI_CHAT, &url, ModelExtras::default());
        let turns = [turn("a", None), turn("b", Some(opaque(OPENAI_CHAT, json!({"reasoning_content": "hm"}))))];
        let bodies = ask(provider.as_ref(), history(turns), &asked).await;
        let said: Vec<_> = bodies[1]["messages"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|message| message["reasoning_content"].as_str())
            .collect();
        assert_eq!((bodies.len(), said), (2, vec![" ", "hm"]), "{words}");
    }
}

#[tokio::test]
async fn a_model_is_asked_to_think_in_the_kind_that_it_takes() {
    let refusal = |kind: &str| {
        match kind {
        "adaptive" => {
            "thinking: Input tag 'adaptive' found using 'type' does not match any of the expected tags: 'disabled', 'enabled'"
                .to_owned()
        }
        kind => format!(
            "\"thinking.type.{kind}\" is not supported for this model. Use \"thinking.type.adaptive\" and \"output_config.effort\" to control \
             thinking behavior."
        ),
    }
    };
    let said = |thinking: Option<&str>, thinking_tokens| ModelExtras {
        thinking: thinking.map(str::to_owned),
        thinking_tokens,
        ..ModelExtras::default()
    };
    for (extras, refused, taken) in [
        (said(None, Some(2_000)), "enabled", json!({"type": "adaptive"})),
        (said(Some("adaptive"), Some(2_000)), "adaptive", json!({"type": "enabled", "budget_tokens": 2_000})),
        (said(Some("adaptive"), None), "adaptive", Value::Null),
        (said(Some("off"), None), "disabled", Value::Null),
    ] {
        let rule = move |body: &Value| (body["thinking"]["type"] == refused).then(|| error(&refusal(refused)));
        let (url, asked) = server(rule).await;
        let provider = provider(ANTHROPIC, &url, extras);
        let bodies = ask(provider.as_ref(), history([]), &asked).await;
        assert_eq!((bodies.len(), &bodies[1]["thinking"]), (2, &taken), "{refused}");
        let bodies = ask(provider.as_ref(), history([]), &asked).await;
        assert_eq!((bodies.len(), &bodies[0]["thinking"]), (1, &taken), "{refused}");
    }
}

/// A server that takes no kind of thinking says so of each in the same words, and so of what was thought before. It is asked without any.
#[tokio::test]
async fn a_model_that_takes_no_kind_of_thinking_is_asked_without_whatever_the_words() {
    let said = |thinking: Option<&str>| ModelExtras {
        thinking: thinking.map(str::to_owned),
        thinking_tokens: Some(2_000),
        ..ModelExtras::default()
    };
    for words in [
        "thinking is not supported by this model",
        "thinking: Extra inputs are not permitted",
        "This model does not support extended thinking",
    ] {
        for (extras, with_thoughts) in
            [(said(None), false), (said(Some("adaptive")), false), (said(None), true), (said(Some("adaptive")), true)]
        {
            let shown = format!("{words} {extras:?} {with_thoughts}");
            let rule = move |body: &Value| {
                (!body["thinking"].is_null() || body["messages"].to_string().contains("OLD")).then(|| error(words))
            };
            let (url, asked) = server(rule).await;
            let provider = provider(ANTHROPIC, &url, extras);
            let old = with_thoughts.then(|| thoughts(ANTHROPIC, "OLD").remove(0));
            let messages = history([turn("a", old)]);
            let bodies = ask(provider.as_ref(), messages.clone(), &asked).await;
            let kinds: Vec<Option<&str>> = bodies.iter().map(|body| body["thinking"]["type"].as_str()).collect();
            assert_eq!((kinds.len(), kinds[2]), (3 + usize::from(with_thoughts), None), "{shown}: {kinds:?}");
            assert!(kinds[0].is_some() && kinds[1].is_some() && kinds[0] != kinds[1], "{shown}: {kinds:?}");
            // What was learnt stays.
            let bodies = ask(provider.as_ref(), messages, &asked).await;
            assert_eq!((bodies.len(), &bodies[0]["thinking"]), (1, &Value::Null), "{shown}");
        }
    }
}

/// What is refused for something else, or in the same words without thoughts, is the provider's last word, and thoughts are sent as before.
#[tokio::test]
async fn what_is_refused_for_another_reason_keeps_its_thoughts() {
    for (words, times) in [
        ("temperature: may only be set to 1 when thinking is enabled or in adaptive mode.", 1),
        ("`max_tokens` must be greater than `thinking.budget_tokens`.", 1),
        ("Unsupported value: 'reasoning_effort' does not support 'none' with this model.", 1),
        ("Thinking may not be enabled when tool_choice forces tool use.", 1),
        ("tools.0.input_schema: no", 1),
        ("Something is wrong with the reasoning.", 2),
    ] {
        for wire in [ANTHROPIC, OPENAI, OPENAI_CHAT] {
            let (url, asked) = server(move |_| Some(error(words))).await;
            let provider = provider(wire, &url, ModelExtras::default());
            for _ in 0..2 {
                asked.lock().unwrap().clear();
                let messages = history([turn("a", Some(thoughts(wire, "OLD").remove(0)))]);
                let refused = provider.complete(&request(messages), &Watch::default()).await.unwrap_err();
                assert!(refused.to_string().contains(words), "{refused}");
                let bodies = asked.lock().unwrap().clone();
                assert_eq!((bodies.len(), bodies[0].to_string().contains("OLD")), (times, true), "{wire} {words}");
            }
        }
    }
}

/// The beginning of a reply in each wire's stream: what was counted, or a part of its text.
fn begun(wire: &str, is_counted: bool) -> Vec<Value> {
    match (wire, is_counted) {
        (ANTHROPIC, counted) => {
            let tokens = if counted { 50_000 } else { 1 };
            let usage = json!({"input_tokens": tokens, "output_tokens": 1});
            vec![
                json!({"type": "message_start", "message": {"id": "m", "model": "m", "role": "assistant", "content": [], "usage": usage}}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "so"}}),
            ]
        }
        (OPENAI, _) => vec![
            json!({"type": "response.created", "response": {"id": "r", "model": "m", "status": "in_progress"}}),
            json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "i", "content": []}}),
            json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "so"}),
        ],
        (_, true) => vec![
            json!({"id": "c", "model": "m", "choices": [], "usage": {"prompt_tokens": 40_000, "completion_tokens": 1}}),
        ],
        (_, false) => {
            vec![
                json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "so"}}]}),
            ]
        }
    }
}

/// Kinds of refusals × wires × what had come: a request whose reply had begun may be billed, so it is told and not made again unseen.
#[tokio::test]
async fn what_had_begun_to_be_answered_is_not_asked_again_unseen() {
    for wire in [ANTHROPIC, OPENAI, OPENAI_CHAT] {
        for said in [
            "messages.1.content.0: Invalid `signature` in `thinking` block",
            "The encrypted content for item rs_1 could not be verified",
            "property 'reasoning' is unsupported",
            "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]{9}$'",
            "stream_options: Extra inputs are not permitted",
            "Unexpected role 'user' after role 'tool'",
        ] {
            for is_counted in [true, false] {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let (address, asked) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(0)));
                let kept = Arc::clone(&asked);
                tokio::spawn(async move {
                    while let Ok((mut socket, _)) = listener.accept().await {
                        body_of(&mut socket).await;
                        *kept.lock().unwrap() += 1;
                        let error = json!({"type": "error", "error": {"type": "invalid_request_error", "code": "invalid_request_error", "message": said}});
                        let events = begun(wire, is_counted).into_iter().chain([error]);
                        let mut text = String::new();
                        for event in events {
                            let name = event["type"].as_str().unwrap_or("message");
                            write!(text, "event: {name}\ndata: {event}\n\n").unwrap();
                        }
                        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
                        socket.write_all(format!("{head}{text}").as_bytes()).await.unwrap();
                    }
                });
                let provider = provider(wire, &format!("http://{address}/v1"), ModelExtras::default());
                let with_thoughts = thoughts(wire, said).into_iter().next();
                let watch = Watch::default();
                let messages = history([turn("functions.t:0", with_thoughts)]);
                let answer = provider.complete(&request(messages), &watch).await;
                let shown = format!("{wire} {said} {is_counted}");
                assert!(answer.is_err(), "{shown}");
                assert_eq!((*asked.lock().unwrap(), watch.seen().sent), (1, 1), "{shown}");
            }
        }
    }
}
