//! What goes with a request that the job did not ask for: each part × the wire that has it × the words in which servers refuse a part, over
//! HTTP. The request is made once more without it, the later ones go without it at once, and what the job itself asks for stays and is named.

use std::sync::{Arc, Mutex};

use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use ua_core::{Block, Env, Message, Origin, Role, ToolUse};
use ua_llm::{
    AnthropicConfig, AnthropicProvider, ChatConfig, ChatProvider, LlmError, LlmProvider, ModelRequest, OpenAiConfig,
    OpenAiProvider, ToolOffer,
};

use super::support::{Watch, answer, body_of, request};

type Asked = Arc<Mutex<Vec<Value>>>;
/// What a server says to a request: a status and a body, or a reply.
type Rule = Box<dyn Fn(&Value) -> Option<(&'static str, String)> + Send>;

/// A server that refuses by its rule, and answers all else on whichever wire it was asked, with a whole reply.
async fn server(rule: Rule) -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Asked::default());
    let kept = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let body = body_of(&mut socket).await;
            let refusal = rule(&body);
            kept.lock().unwrap().push(body);
            let reply = json!({"id": "r", "model": "m", "status": "completed", "stop_reason": "end_turn",
                "content": [{"type": "text", "text": "done"}],
                "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "done"}}],
                "output": [{"type": "message", "content": [{"type": "output_text", "text": "done"}]}]});
            let (status, body) = refusal.unwrap_or_else(|| ("200 OK", reply.to_string()));
            answer(&mut socket, status, &body).await;
        }
    });
    (format!("http://{address}/v1"), asked)
}

fn provider(wire: &str, base_url: &str, key: &str) -> Box<dyn LlmProvider> {
    let (env, key, base_url) = (Env::simulated(1), SecretString::from(key.to_owned()), base_url.to_owned());
    match wire {
        "anthropic" => {
            let config = AnthropicConfig { base_url, ..AnthropicConfig::new(key) };
            Box::new(AnthropicProvider::new(config, env).unwrap())
        }
        "openai" => {
            let config = OpenAiConfig { base_url, ..OpenAiConfig::new(key) };
            Box::new(OpenAiProvider::new(config, env).unwrap())
        }
        _ => {
            let config = ChatConfig { base_url, ..ChatConfig::new(Some(key)) };
            Box::new(ChatProvider::new(config, env).unwrap())
        }
    }
}

const WIRES: [&str; 3] = ["anthropic", "openai", "openai-chat"];

/// A request that has every part that any wire sends unasked: a call without words in front of it, whose result is an error.
fn whole(model: &str) -> ModelRequest {
    let call = Block::ToolUse(ToolUse { id: "call_1".into(), name: "t".into(), input: json!({}) });
    let result = Block::ToolResult { tool_use_id: "call_1".into(), content: "no".into(), is_error: true };
    let messages = vec![
        Message::user(Origin::Prompt, "go"),
        Message { role: Role::Assistant, origin: Origin::Model, blocks: vec![call].into() },
        Message { role: Role::User, origin: Origin::Tools, blocks: vec![result].into() },
    ];
    ModelRequest { model: model.to_owned(), ..request(messages) }
}

/// A part, by the name that it is refused by and where it is sent.
struct Part {
    wire: &'static str,
    name: &'static str,
    is_in: fn(&Value) -> bool,
    /// What stands in its place then.
    instead: fn(&Value) -> bool,
}

fn has(body: &Value, words: &str) -> bool {
    body.to_string().contains(words)
}

const PARTS: [Part; 11] = [
    Part {
        wire: "openai-chat",
        name: "stream",
        is_in: |body| body["stream"] == true,
        instead: |body| !has(body, "stream_options"),
    },
    Part { wire: "anthropic", name: "stream", is_in: |body| body["stream"] == true, instead: |_| true },
    Part { wire: "openai", name: "stream", is_in: |body| body["stream"] == true, instead: |_| true },
    Part {
        wire: "openai-chat",
        name: "stream_options",
        is_in: |body| has(body, "stream_options"),
        instead: |body| body["stream"] == true,
    },
    Part {
        wire: "openai-chat",
        name: "max_tokens",
        is_in: |body| has(body, "\"max_tokens\""),
        instead: |body| body["max_completion_tokens"] == 4096,
    },
    Part { wire: "anthropic", name: "cache_control", is_in: |body| has(body, "cache_control"), instead: |_| true },
    Part {
        wire: "anthropic",
        name: "is_error",
        is_in: |body| has(body, "is_error"),
        instead: |body| has(body, "[tool error]\\nno"),
    },
    Part { wire: "openai", name: "include", is_in: |body| has(body, "\"include\""), instead: |_| true },
    Part { wire: "openai", name: "store", is_in: |body| has(body, "\"store\""), instead: |_| true },
    Part {
        wire: "openai",
        name: "strict",
        is_in: |body| has(body, "\"strict\""),
        instead: |body| has(body, "\"parameters\""),
    },
    Part {
        wire: "openai",
        name: "reasoning.encrypted_content",
        is_in: |body| has(body, "\"include\""),
        instead: |_| true,
    },
];

/// The words of servers for a part that they do not take.
fn wordings(name: &str) -> Vec<(&'static str, String)> {
    let error = |message: String| json!({"error": {"message": message, "type": "invalid_request_error"}}).to_string();
    vec![
        (
            "400 Bad Request",
            json!({"error": {"message": format!("Unsupported parameter: '{name}' is not supported with this model."),
                             "type": "invalid_request_error", "param": name, "code": "unsupported_parameter"}})
            .to_string(),
        ),
        ("400 Bad Request", error(format!("Unsupported value: '{name}' does not support this with this model."))),
        ("400 Bad Request", error(format!("Unrecognized request argument supplied: {name}"))),
        ("400 Bad Request", error(format!("{name}: Extra inputs are not permitted"))),
        ("400 Bad Request", error(format!("unknown field `{name}`, expected one of `model`, `seed`, `stream`, `max_tokens`"))),
        ("400 Bad Request", error(format!("Additional properties are not allowed ('{name}' was unexpected)"))),
        ("500 Internal Server Error", error(format!("create() got an unexpected keyword argument '{name}'"))),
        (
            "422 Unprocessable Entity",
            json!({"detail": [{"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs are not permitted"}]})
                .to_string(),
        ),
        (
            "400 Bad Request",
            json!([{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message":
                format!("Invalid JSON payload received. Unknown name \"{name}\": Cannot find field.")}}])
            .to_string(),
        ),
        (
            "400 Bad Request",
            json!({"object": "error", "code": 400, "message":
                format!("[{{'type': 'extra_forbidden', 'loc': ('body', '{name}'), 'msg': 'Extra inputs are not permitted'}}]")})
            .to_string(),
        ),
        ("400 Bad Request", json!({"error": {"message": "This is not supported here.", "param": name}}).to_string()),
        // In the place of a reply.
        (
            "200 OK",
            json!({"error": {"code": 400, "message": format!("litellm.UnsupportedParamsError: unsupported '{name}'")}})
                .to_string(),
        ),
    ]
}

#[tokio::test]
async fn a_part_that_is_refused_by_its_name_is_left_out_from_then_on() {
    for Part { wire, name, is_in, instead } in PARTS {
        for (status, words) in wordings(name) {
            let shown = format!("{wire}: {words}");
            let (url, asked) = server(Box::new(move |body| is_in(body).then(|| (status, words.clone())))).await;
            let provider = provider(wire, &url, "key-of-a-test");
            // Another request, and another model, which may be another one's.
            for (model, requests) in [("o3", 2), ("o3", 1), ("gpt-5", 2)] {
                asked.lock().unwrap().clear();
                let watch = Watch::default();
                let reply = provider.complete(&whole(model), &watch).await.expect(&shown);
                assert_eq!(reply.text(), "done", "{shown}");
                let bodies = asked.lock().unwrap().clone();
                assert_eq!((bodies.len(), watch.seen().sent), (requests, u32::try_from(requests).unwrap()), "{shown}");
                let last = bodies.last().unwrap();
                assert!(!is_in(last) && instead(last), "{shown}: {last}");
                // All else goes as before.
                assert!(has(last, "mcp__ua__read_file") && last["temperature"] == 0.5, "{shown}: {last}");
            }
        }
    }
}

/// A job, or a phase of it, may offer nothing any more where its model has called something before.
#[tokio::test]
async fn a_history_with_calls_names_their_tools_where_a_server_wants_some_and_none_is_offered() {
    for (wire, words) in [
        ("anthropic", "Requests which include `tool_use` or `tool_result` blocks must define tools"),
        (
            "openai-chat",
            "litellm.UnsupportedParamsError: Bedrock doesn't support tool calling without `tools=` param specified.",
        ),
        ("openai-chat", "The toolConfig field must be defined when using toolUse and toolResult content blocks."),
    ] {
        let rule = move |body: &Value| {
            let refusal = || ("400 Bad Request", json!({"error": {"message": words}}).to_string());
            body.get("tools").is_none().then(refusal)
        };
        let (url, asked) = server(Box::new(rule)).await;
        let provider = provider(wire, &url, "key-of-a-test");
        let bare = ModelRequest { tools: vec![].into(), ..whole("m") };
        for (sent, requests, name) in [(&bare, 2, "t"), (&bare, 1, "t"), (&whole("m"), 1, "mcp__ua__read_file")] {
            asked.lock().unwrap().clear();
            assert_eq!(provider.complete(sent, &Watch::default()).await.unwrap().text(), "done", "{words}");
            let bodies = asked.lock().unwrap().clone();
            assert_eq!(bodies.len(), requests, "{words}");
            let tools = bodies.last().unwrap()["tools"].as_array().unwrap();
            let names: Vec<&Value> = tools
                .iter()
                .map(|tool| if wire == "anthropic" { &tool["name"] } else { &tool["function"]["name"] })
                .collect();
            assert_eq!(names, [name], "{words}");
        }
    }
}

#[tokio::test]
async fn a_server_that_takes_none_of_them_is_asked_until_none_is_left() {
    for wire in WIRES {
        let rule = move |body: &Value| {
            let part =
                PARTS.into_iter().find(|part| part.wire == wire && part.name != "stream" && (part.is_in)(body))?;
            wordings(part.name).into_iter().next()
        };
        let (url, asked) = server(Box::new(rule)).await;
        let provider = provider(wire, &url, "key-of-a-test");
        let reply = provider.complete(&whole("o3"), &Watch::default()).await.unwrap();
        assert_eq!(reply.text(), "done", "{wire}");
        assert!(asked.lock().unwrap().len() > 2, "{wire}");
        asked.lock().unwrap().clear();
        provider.complete(&whole("o3"), &Watch::default()).await.unwrap();
        assert_eq!(asked.lock().unwrap().len(), 1, "{wire}");
    }
}

/// Lists of which nothing is said, and words that a server does not know, are no reason to go without a tool.
#[tokio::test]
async fn words_of_schemas_that_a_server_does_not_know_are_taken_out_and_every_tool_stays() {
    let schema = json!({"type": "object", "$schema": "http://json-schema.org/draft-07/schema#", "additionalProperties": false,
        "properties": {
            "additionalProperties": {"type": "string", "format": "uri"},
            "n": {"type": "integer", "exclusiveMinimum": 0},
            "l": {"type": "array"},
            "e": {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "array", "items": {"$ref": "#/$defs/d"}}]},
        },
        "$defs": {"d": {"type": "object", "additionalProperties": false, "properties": {"x": {"type": ["array", "null"]}}}}});
    let words: [fn(&str) -> String; 5] = [
        |word| {
            format!(
                "Invalid JSON payload received. Unknown name \"{word}\" at 'tools[0].function_declarations[0].parameters': Cannot find field."
            )
        },
        |word| format!("Invalid schema for function 'mcp__a__one': schema contains unsupported keyword '{word}'"),
        |word| format!("tools.0.custom.input_schema.{word}: Extra inputs are not permitted"),
        |word| format!("tools[1].function.parameters.{word} is not supported"),
        |word| format!("The JSON schema of a tool has `{word}`, which is not allowed"),
    ];
    for (wire, say) in WIRES.into_iter().flat_map(|wire| words.map(|say| (wire, say))) {
        let rule = move |body: &Value| {
            let tools = body["tools"].to_string();
            let is_key = |word: &&str| match *word {
                // A property is named so.
                "additionalProperties" => tools.contains("\"additionalProperties\":false"),
                word => tools.contains(&format!("\"{word}\":")),
            };
            let unknown = ["additionalProperties", "$schema", "exclusiveMinimum", "format", "$defs"];
            let word = unknown.into_iter().find(|word| is_key(word))?;
            Some(("400 Bad Request", json!({"error": {"message": say(word)}}).to_string()))
        };
        let (url, asked) = server(Box::new(rule)).await;
        let provider = provider(wire, &url, "key-of-a-test");
        let tool = |name: &str| ToolOffer { name: name.into(), description: "d".into(), input_schema: schema.clone() };
        let request = ModelRequest { tools: vec![tool("mcp__a__one"), tool("mcp__ua__two")].into(), ..whole("m") };
        let shown = format!("{wire}: {}", say("x"));
        let reply = provider.complete(&request, &Watch::default()).await.expect(&shown);
        assert_eq!(reply.text(), "done", "{shown}");
        let last = asked.lock().unwrap().last().unwrap().clone();
        let tools = last["tools"].as_array().unwrap().clone();
        assert_eq!(tools.len(), 2, "{shown}");
        for tool in tools {
            let places = ["/function/parameters", "/parameters", "/input_schema"];
            let sent = places.into_iter().find_map(|place| tool.pointer(place)).unwrap().clone();
            let expected = json!({"type": "object", "properties": {
                "additionalProperties": {"type": "string"}, "n": {"type": "integer"}, "l": {"type": "array", "items": {}},
                "e": {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "array", "items": {}}]}}});
            assert_eq!(sent, expected, "{shown}");
        }
        asked.lock().unwrap().clear();
        provider.complete(&request, &Watch::default()).await.unwrap();
        assert_eq!(asked.lock().unwrap().len(), 1, "{shown}");
    }
}

#[tokio::test]
async fn a_word_that_no_tool_has_leaves_the_tool_to_whoever_offers_it() {
    let words =
        "Invalid schema for function 'mcp__ua__read_file': schema contains unsupported keyword 'patternProperties'";
    for wire in WIRES {
        let refuse = move |_: &Value| Some(("400 Bad Request", json!({"error": {"message": words}}).to_string()));
        let (url, asked) = server(Box::new(refuse)).await;
        let error = provider(wire, &url, "key-of-a-test").complete(&whole("m"), &Watch::default()).await.unwrap_err();
        assert!(matches!(&error, LlmError::BadTool { tool, .. } if tool == "mcp__ua__read_file"), "{error:?}");
        assert_eq!(asked.lock().unwrap().len(), 1, "{wire}");
    }
}

#[tokio::test]
async fn a_server_that_wants_a_text_beside_calls_gets_an_empty_one() {
    for words in [
        json!({"error": {"message": "Invalid value for 'content': expected a string, got null.", "param": "messages.[2].content"}}),
        json!({"detail": [{"type": "string_type", "loc": ["body", "messages", 2, "content"], "msg": "Input should be a valid string"}]}),
        json!({"error": {"message": "messages.2.content: none is not an allowed value"}}),
        json!({"error": {"message": "invalid message content type: <nil>"}}),
        json!({"error": {"message": "can only concatenate str (not \"NoneType\") to str"}}),
    ] {
        let shown = words.to_string();
        let rule = move |body: &Value| {
            let is_null = body["messages"].as_array().unwrap().iter().any(|message| message["content"].is_null());
            is_null.then(|| ("400 Bad Request", words.to_string()))
        };
        let (url, asked) = server(Box::new(rule)).await;
        let provider = provider("openai-chat", &url, "key-of-a-test");
        for requests in [2, 1] {
            asked.lock().unwrap().clear();
            provider.complete(&whole("m"), &Watch::default()).await.expect(&shown);
            let bodies = asked.lock().unwrap().clone();
            assert_eq!(bodies.len(), requests, "{shown}");
            let call = &bodies.last().unwrap()["messages"][2];
            assert!(call["content"] == "" && call["tool_calls"].is_array(), "{shown}: {call}");
        }
    }
}

/// A result without a text, and calls without one.
fn without_texts() -> ModelRequest {
    let mut request = whole("m");
    let empty = Block::ToolResult { tool_use_id: "call_1".into(), content: "".into(), is_error: false };
    request.messages[2].blocks = vec![empty].into();
    request
}

#[tokio::test]
async fn a_server_that_takes_no_empty_text_is_told_in_words_that_there_is_none() {
    let blank = |text: &Value| text.as_str().is_some_and(|text| text.trim().is_empty());
    for words in [
        "messages: text content blocks must be non-empty",
        "The text field in the ContentBlock object at messages.3.content.0 is blank. Add text to the text field, and try again.",
        "'messages' array must only contain objects with a 'content' field that is not empty",
        "messages.2.content: String should have at least 1 character",
        "text content blocks must contain non-whitespace text",
        "message content cannot be empty",
    ] {
        for wire in ["openai-chat", "anthropic"] {
            let rule = move |body: &Value| {
                let is_empty = body["messages"].as_array().unwrap().iter().any(|message| {
                    let parts = message["content"].as_array().into_iter().flatten();
                    let mut results = parts.filter(|part| part["type"] == "tool_result");
                    blank(&message["content"]) || results.any(|result| blank(&result["content"]))
                });
                is_empty.then(|| ("400 Bad Request", json!({"error": {"message": words}}).to_string()))
            };
            let (url, asked) = server(Box::new(rule)).await;
            let provider = provider(wire, &url, "key-of-a-test");
            for requests in [2, 1] {
                asked.lock().unwrap().clear();
                provider.complete(&without_texts(), &Watch::default()).await.expect(words);
                let bodies = asked.lock().unwrap().clone();
                assert_eq!(bodies.len(), requests, "{wire}: {words}");
                assert!(has(bodies.last().unwrap(), "(empty)"), "{wire}: {words}");
            }
        }
    }
}

/// OpenRouter finds nobody who knows the marks, and says so with 404.
#[tokio::test]
async fn marks_of_what_may_be_cached_that_no_provider_behind_a_router_takes_are_left_out() {
    let words = "No endpoints found that support cache control";
    let rule = move |body: &Value| {
        has(body, "cache_control")
            .then(|| ("404 Not Found", json!({"error": {"message": words, "code": 404}}).to_string()))
    };
    let (url, asked) = server(Box::new(rule)).await;
    provider("anthropic", &url, "key-of-a-test").complete(&whole("m"), &Watch::default()).await.unwrap();
    assert_eq!(asked.lock().unwrap().len(), 2);
}

/// What a template does not take, and cannot be said otherwise, is told at once; servers say it as a failure of their own.
#[tokio::test]
async fn roles_that_a_template_does_not_know_end_the_run_with_what_helps() {
    for (status, words) in [
        ("500 Internal Server Error", "Unsupported role: tool"),
        (
            "500 Internal Server Error",
            "Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/...",
        ),
        ("424 Failed Dependency", "Server error: Conversation roles must alternate user/assistant/user/assistant/..."),
        ("400 Bad Request", "Only user and assistant roles are supported!"),
    ] {
        let refuse = move |body: &Value| {
            has(body, "\"tool\"").then(|| (status, json!({"error": {"message": words}}).to_string()))
        };
        let (url, asked) = server(Box::new(refuse)).await;
        let error =
            provider("openai-chat", &url, "key-of-a-test").complete(&whole("m"), &Watch::default()).await.unwrap_err();
        assert!(error.is_final() && !error.may_retry(), "{words}: {error:?}");
        assert!(error.hint("openai-chat").unwrap().contains("`--chat-template`"), "{words}");
        assert!(asked.lock().unwrap().len() <= 2, "{words}");
    }
}

#[tokio::test]
async fn where_no_system_speaks_the_user_says_what_it_would() {
    for words in [
        "messages.0.role: Input should be 'user' or 'assistant'",
        "messages: Unexpected role \"system\". Allowed roles are \"user\" or \"assistant\".",
        "Invalid role: `system` is not supported",
        "System role not supported",
        "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
        "Developer instruction is not enabled for models/gemma-3-27b-it",
        "Only user and assistant roles are supported!",
    ] {
        let rule = move |body: &Value| {
            let leads = body["messages"][0]["role"] == "system";
            leads.then(|| ("400 Bad Request", json!({"error": {"message": words}}).to_string()))
        };
        let (url, asked) = server(Box::new(rule)).await;
        provider("openai-chat", &url, "key-of-a-test").complete(&whole("m"), &Watch::default()).await.expect(words);
        let bodies = asked.lock().unwrap().clone();
        assert_eq!(bodies.len(), 2, "{words}");
        assert_eq!(bodies[1]["messages"][0], json!({"role": "user", "content": "You are careful.\n\ngo"}), "{words}");
    }
}

/// What the job asks for is not left out without a word, and a reply that had begun is not asked for again.
#[tokio::test]
async fn what_the_job_asks_for_stays_and_what_had_begun_is_not_repeated() {
    for (status, words) in wordings("temperature") {
        for wire in WIRES {
            let answered = words.clone();
            let (url, asked) = server(Box::new(move |_| Some((status, answered.clone())))).await;
            let error =
                provider(wire, &url, "key-of-a-test").complete(&whole("m"), &Watch::default()).await.unwrap_err();
            assert_eq!(asked.lock().unwrap().len(), 1, "{wire}: {words}");
            assert!(asked.lock().unwrap()[0]["temperature"] == 0.5, "{wire}: {words}");
            if status.starts_with('4') {
                let hint = error.hint(wire).unwrap();
                assert!(
                    hint.starts_with("this model does not take `model.temperature_milli`:"),
                    "{wire}: {words}: {hint}"
                );
            }
        }
    }
    // Under neither name.
    let rule = |body: &Value| {
        let name = ["max_tokens", "max_completion_tokens"].into_iter().find(|name| body.get(*name).is_some())?;
        wordings(name).into_iter().next()
    };
    let (url, asked) = server(Box::new(rule)).await;
    let error =
        provider("openai-chat", &url, "key-of-a-test").complete(&whole("m"), &Watch::default()).await.unwrap_err();
    assert_eq!(asked.lock().unwrap().len(), 2);
    let hint = error.hint("openai-chat").unwrap();
    assert!(hint.starts_with("`max_completion_tokens` says how long a reply may be"), "{hint}");
    // A limit is a number, and a shorter reply is another matter.
    let words =
        "max_tokens is too large: 4096. This model supports at most 1024 completion tokens, which is not supported.";
    let refuse = move |_: &Value| Some(("400 Bad Request", json!({"error": {"message": words}}).to_string()));
    let (url, asked) = server(Box::new(refuse)).await;
    provider("openai-chat", &url, "key-of-a-test").complete(&whole("m"), &Watch::default()).await.unwrap_err();
    assert_eq!(asked.lock().unwrap().len(), 1);

    let begun = json!({"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "I am"}}]});
    let error = json!({"error": {"code": 400, "message": "Unsupported parameter: 'stream_options'"}});
    let stream = format!("data: {begun}\n\ndata: {error}\n\n");
    let (url, asked) = server(Box::new(move |_| Some(("200 OK", stream.clone())))).await;
    provider("openai-chat", &url, "key-of-a-test").complete(&whole("m"), &Watch::default()).await.unwrap_err();
    assert_eq!(asked.lock().unwrap().len(), 1);
}

/// The key of a server on this machine may be a word, and a letter of every refusal.
#[tokio::test]
async fn a_key_that_is_a_word_hides_no_refusal() {
    for key in ["k", "max_tok", "token", "ollama"] {
        let rule = |body: &Value| body.get("max_tokens").and_then(|_| wordings("max_tokens").into_iter().next());
        let (url, asked) = server(Box::new(rule)).await;
        provider("openai-chat", &url, key).complete(&whole("m"), &Watch::default()).await.expect(key);
        assert_eq!(asked.lock().unwrap().len(), 2, "{key}");
    }
}
