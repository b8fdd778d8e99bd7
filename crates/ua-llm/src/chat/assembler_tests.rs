//! The shapes in which servers of Chat Completions stream, each as its own documentation or source has it.

#![expect(clippy::wildcard_enum_match_arm, reason = "whatever else it is, the test fails")]

use serde_json::{Value, json};
use ua_core::{Block, Message, ModelTurn, Origin, Role, StopReason, ToolUse, Usage};

use super::OF_CALLS;
use super::assembler::Assembler;
use crate::OPENAI_CHAT;
use crate::http::events::{Assemble as _, Fault, Progress};
use crate::request::{ModelRequest, ToolOffer};

fn request() -> ModelRequest {
    ModelRequest {
        model: "asked".into(),
        system: String::new(),
        messages: vec![Message::user(Origin::Prompt, "go")],
        tools: vec![ToolOffer { name: "t".into(), description: "d".into(), input_schema: json!({"type": "object"}) }]
            .into(),
        max_output_tokens: 10,
        temperature_milli: None,
        seed: None,
        output_schema: None,
        wants_form: false,
    }
}

fn delta(delta: &Value) -> Value {
    json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn finish(reason: &str) -> Value {
    json!({"id": "chatcmpl-1", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn calls(calls: &Value) -> Value {
    delta(&json!({"tool_calls": calls}))
}

/// Feeds chunks, then `[DONE]`.
fn read(chunks: &[Value]) -> Result<ModelTurn, Fault> {
    read_for(&request(), chunks)
}

fn read_for(request: &ModelRequest, chunks: &[Value]) -> Result<ModelTurn, Fault> {
    let mut assembler = Assembler::new(request);
    for chunk in chunks {
        if let Progress::Whole(turn) = assembler.feed(&chunk.to_string())? {
            panic!("a chunk made it whole: {turn:?}");
        }
    }
    match assembler.feed("[DONE]")? {
        Progress::Whole(turn) => Ok(turn),
        other => panic!("no whole reply: {other:?}"),
    }
}

fn asks(turn: &ModelTurn) -> Vec<(&str, &str, &Value)> {
    turn.tool_uses().map(|tool| (tool.id.as_str(), tool.name.as_str(), &tool.input)).collect()
}

#[test]
fn openai_streams_calls_by_index_and_the_usage_behind_the_end() {
    let usage = json!({"id": "chatcmpl-1", "choices": [], "usage": {
        "prompt_tokens": 120, "completion_tokens": 30, "total_tokens": 150,
        "prompt_tokens_details": {"cached_tokens": 100}, "completion_tokens_details": {"reasoning_tokens": 12},
    }});
    let turn = read(&[
        delta(&json!({"role": "assistant", "content": null, "refusal": null})),
        calls(&json!([{"index": 0, "id": "call_a", "type": "function", "function": {"name": "t", "arguments": ""}}])),
        calls(&json!([{"index": 0, "function": {"arguments": "{\"x\":"}}])),
        calls(&json!([{"index": 1, "id": "call_b", "type": "function", "function": {"name": "u", "arguments": ""}}])),
        calls(&json!([{"index": 0, "function": {"arguments": "1}"}}, {"index": 1, "function": {"arguments": "{}"}}])),
        finish("tool_calls"),
        usage,
    ])
    .unwrap();
    assert_eq!(asks(&turn), [("call_a", "t", &json!({"x": 1})), ("call_b", "u", &json!({}))]);
    assert_eq!(turn.stop_reason, StopReason::ToolUse);
    let expected = Usage { input_tokens: 20, output_tokens: 30, cache_read_tokens: 100, cache_write_tokens: 0 };
    assert_eq!(turn.usage, Some(expected));
    assert_eq!((turn.model.as_str(), turn.response_id.as_deref()), ("m", Some("chatcmpl-1")));
}

#[test]
fn ollama_and_llama_cpp_send_a_whole_call_in_one_chunk_and_may_say_stop() {
    let whole = calls(&json!([{"index": 0, "id": "call_9", "function": {"name": "t", "arguments": "{\"x\":1}"}}]));
    let turn = read(&[delta(&json!({"role": "assistant", "content": ""})), whole, finish("stop")]).unwrap();
    assert_eq!(asks(&turn), [("call_9", "t", &json!({"x": 1}))]);
    assert_eq!((turn.stop_reason, turn.usage), (StopReason::ToolUse, None));
    // Arguments as an object, and neither index nor id.
    let bare = calls(
        &json!([{"function": {"name": "t", "arguments": {"x": 1}}}, {"function": {"name": "t", "arguments": {"x": 2}}}]),
    );
    let turn = read(&[bare, finish("tool_calls")]).unwrap();
    let asked = asks(&turn);
    assert_eq!((asked[0].2, asked[1].2), (&json!({"x": 1}), &json!({"x": 2})));
    assert!(asked[0].0.starts_with("call_") && asked[0].0 != asked[1].0);
}

#[test]
fn parallel_calls_that_share_an_index_are_told_apart_by_their_ids() {
    let one = |id: &str| calls(&json!([{"index": 0, "id": id, "function": {"name": "t", "arguments": "{}"}}]));
    let turn = read(&[one("a"), one("b"), finish("tool_calls")]).unwrap();
    assert_eq!(asks(&turn), [("a", "t", &json!({})), ("b", "t", &json!({}))]);
}

/// A name comes once, is repeated with every piece, or comes in pieces in front of the arguments; it is the same call each time.
#[test]
fn a_name_that_is_repeated_or_comes_in_pieces_is_one_name() {
    let named = |names: &[&str], id: &Value| {
        let mut chunks: Vec<Value> = names
            .iter()
            .map(|name| calls(&json!([{"index": 0, "id": id, "function": {"name": name, "arguments": ""}}])))
            .collect();
        chunks
            .push(calls(&json!([{"index": 0, "function": {"name": names[names.len() - 1], "arguments": "{\"x\":"}}])));
        // Behind the beginning of the arguments nothing is added to a name.
        chunks.push(calls(&json!([{"index": 0, "function": {"name": "other", "arguments": "1}"}}])));
        let turn = read(&[chunks, vec![finish("tool_calls")]].concat()).unwrap();
        turn.tool_uses().map(|tool| (tool.name.clone(), tool.input.clone())).collect::<Vec<_>>()
    };
    let weather = "mcp__desk__get_weather";
    for id in [json!("a"), json!(""), Value::Null] {
        for names in [
            &[weather][..],
            &[weather, weather, weather],
            &["mcp__desk__", "get_weather", weather],
            &["mcp__", "desk__", "get_", "weather", weather],
            &["mcp__desk__", weather],
            &[weather, ""],
        ] {
            assert_eq!(named(names, &id), [(weather.to_owned(), json!({"x": 1}))], "{names:?} {id}");
        }
    }
    let pieces = [
        calls(&json!([{"index": 0, "id": "a", "function": {"name": "mcp__desk__", "arguments": ""}}])),
        calls(&json!([{"index": 0, "function": {"name": "get_weather", "arguments": "{}"}}])),
    ];
    let turn = read(&[&pieces[..], &[finish("tool_calls")]].concat()).unwrap();
    assert_eq!(asks(&turn), [("a", weather, &json!({}))]);
}

/// Whole or in pieces, with an index for all and ids for none: what begins a call behind a whole one is the next call, and a repeat is none.
#[test]
fn parallel_calls_that_share_an_index_and_have_no_ids_are_told_apart_by_where_they_begin() {
    let (one, two) = (json!({"x": 1}), json!({"x": 2}));
    let piece = |id: &Value, name: &str, arguments: Value| {
        let function = if name.is_empty() {
            json!({ "arguments": arguments })
        } else {
            json!({"name": name, "arguments": arguments})
        };
        calls(&json!([{"index": 0, "id": id, "type": "function", "function": function}]))
    };
    let asked = |chunks: Vec<Value>| {
        let turn = read(&[chunks, vec![finish("tool_calls")]].concat()).unwrap();
        turn.tool_uses().map(|tool| (tool.name.clone(), tool.input.clone())).collect::<Vec<_>>()
    };
    let named = |name: &str, input: &Value| (name.to_owned(), input.clone());
    for id in [json!(""), Value::Null] {
        for is_text in [true, false] {
            let whole = |name: &str, input: &Value| {
                piece(&id, name, if is_text { json!(input.to_string()) } else { input.clone() })
            };
            for other in ["t", "u"] {
                let both = [named("t", &one), named(other, &two)];
                assert_eq!(asked(vec![whole("t", &one), whole(other, &two)]), both);
            }
            assert_eq!(
                asked(vec![whole("t", &json!({})), whole("u", &two)]),
                [named("t", &json!({})), named("u", &two)]
            );
        }
        let pieces = |name: &str, input: &Value| {
            let text = input.to_string();
            let (first, last) = text.split_at(3);
            vec![piece(&id, name, json!("")), piece(&id, "", json!(first)), piece(&id, "", json!(last))]
        };
        assert_eq!(asked([pieces("t", &one), pieces("u", &two)].concat()), [named("t", &one), named("u", &two)]);
        // The name with every piece, and once more with nothing at the end.
        let (text, end) = (one.to_string(), json!(""));
        let named_often =
            vec![piece(&id, "t", json!(text[..3])), piece(&id, "t", json!(text[3..])), piece(&id, "t", end)];
        assert_eq!(asked(named_often), [named("t", &one)]);
        // An object in whole, twice the same, or the second time with more; as it is, and as text.
        let more = json!({"x": 1, "y": {"z": 2}});
        let forms = [(json!(one), json!(more)), (json!(one.to_string()), json!(more.to_string()))];
        for ((known, wider), (same, _)) in forms.iter().flat_map(|first| forms.iter().map(move |next| (first, next))) {
            assert_eq!(asked(vec![piece(&id, "t", known.clone()), piece(&id, "t", same.clone())]), [named("t", &one)]);
            let grown = vec![piece(&id, "t", same.clone()), piece(&id, "t", wider.clone())];
            assert_eq!(asked(grown), [named("t", &more)]);
            let less = vec![piece(&id, "t", wider.clone()), piece(&id, "t", same.clone())];
            assert_eq!(asked(less), [named("t", &more), named("t", &one)], "what lacks a field is another call");
            let another = vec![piece(&id, "t", known.clone()), piece(&id, "u", same.clone())];
            assert_eq!(asked(another), [named("t", &one), named("u", &one)]);
        }
    }
    // A server that begins with an empty object has asked for nothing yet, and the next one stands in its place.
    let begun = asked(vec![piece(&json!(""), "t", json!("{}")), piece(&json!(""), "t", json!("{\"x\":1}"))]);
    assert_eq!(begun, [named("t", &one)]);
    // What has an id is one call under it, however often it is named.
    let again = asked(vec![piece(&json!("a"), "t", one.clone()), piece(&json!("a"), "t", two.clone())]);
    assert_eq!(again, [named("t", &two)]);
}

#[test]
fn an_id_that_the_history_has_already_is_replaced_and_always_by_the_same_one() {
    let mut asked = request();
    let tool_use = Block::ToolUse(ToolUse { id: "0".into(), name: "t".into(), input: json!({}) });
    let result = Block::ToolResult { tool_use_id: "0".into(), content: "ok".into(), is_error: false };
    asked.messages.push(Message { role: Role::Assistant, origin: Origin::Model, blocks: vec![tool_use].into() });
    asked.messages.push(Message { role: Role::User, origin: Origin::Tools, blocks: vec![result].into() });
    let chunks = [
        calls(&json!([{"index": 0, "id": "0", "function": {"name": "t", "arguments": "{}"}}])),
        calls(&json!([{"index": 1, "id": "", "function": {"name": "t", "arguments": "{}"}}])),
        finish("tool_calls"),
    ];
    let turn = read_for(&asked, &chunks).unwrap();
    let ids: Vec<&str> = turn.tool_uses().map(|tool| tool.id.as_str()).collect();
    assert!(ids.iter().all(|id| id.starts_with("call_") && id.len() == 29) && ids[0] != ids[1], "{ids:?}");
    assert_eq!(turn, read_for(&asked, &chunks).unwrap());
}

#[test]
fn vllm_repeats_the_role_and_counts_in_every_chunk() {
    let mut counted = delta(&json!({"role": "assistant", "content": "Hel"}));
    counted["usage"] = json!({"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6});
    let mut end = finish("stop");
    end["usage"] = json!({"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7});
    let chunks = [counted, delta(&json!({"role": "assistant", "content": "lo", "tool_calls": []})), end];
    let turn = read(&chunks).unwrap();
    assert_eq!((turn.text().as_str(), turn.stop_reason), ("Hello", StopReason::EndTurn));
    assert_eq!(turn.usage, Some(Usage { input_tokens: 5, output_tokens: 2, ..Usage::default() }));
}

/// Moonshot counts in the choice, and Groq in a field of its own, where it also says what broke a reply off.
#[test]
fn the_usage_is_found_where_a_server_puts_it() {
    let usage = json!({"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7});
    let mut of_choice = finish("stop");
    of_choice["choices"][0]["usage"] = usage.clone();
    let mut besides = finish("stop");
    besides["x_groq"] = json!({"id": "req_1", "usage": usage});
    for mut end in [of_choice, besides] {
        let counted = |end: &Value| read(&[delta(&json!({"content": "hi"})), end.clone()]).unwrap().usage;
        assert_eq!(counted(&end), Some(Usage { input_tokens: 5, output_tokens: 2, ..Usage::default() }), "{end}");
        // The place that every server has comes first.
        end["usage"] = json!({"prompt_tokens": 6, "completion_tokens": 3});
        assert_eq!(counted(&end), Some(Usage { input_tokens: 6, output_tokens: 3, ..Usage::default() }), "{end}");
    }
    let broken = json!({"choices": [], "x_groq": {"id": "req_1", "error": "over capacity"}});
    let told = read(&[delta(&json!({"content": "hi"})), broken]).unwrap_err();
    assert_eq!(told, Fault::Reported { kind: "error".into(), message: "over capacity".into() });
}

#[test]
fn tokens_of_reasoning_are_output_where_only_the_total_has_them() {
    let mut end = finish("stop");
    end["usage"] = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 115});
    let turn = read(&[delta(&json!({"content": "hi"})), end]).unwrap();
    assert_eq!(turn.usage, Some(Usage { input_tokens: 10, output_tokens: 105, ..Usage::default() }));
}

#[test]
fn reasoning_is_kept_in_the_field_it_came_in() {
    let kept = |deltas: &[Value]| {
        let mut chunks: Vec<Value> = deltas.iter().map(delta).collect();
        chunks.extend([delta(&json!({"content": "hi"})), finish("stop")]);
        match read(&chunks).unwrap().blocks.into_iter().next() {
            Some(Block::Opaque { provider, value }) if provider == OPENAI_CHAT => value,
            other => panic!("no reasoning: {other:?}"),
        }
    };
    let deepseek = [json!({"content": null, "reasoning_content": "Let me "}), json!({"reasoning_content": "see."})];
    assert_eq!(kept(&deepseek), json!({"reasoning_content": "Let me see."}));
    assert_eq!(kept(&[json!({"content": "", "reasoning": "Hm."})]), json!({"reasoning": "Hm."}));
    let detail = json!({"type": "reasoning.encrypted", "data": "xyz", "index": 0});
    let openrouter = [json!({"reasoning": "Hm.", "reasoning_details": [detail]})];
    assert_eq!(kept(&openrouter), json!({"reasoning_details": [detail]}));
}

#[test]
fn what_a_server_says_of_a_call_besides_is_kept_with_it() {
    let signature = json!({"google": {"thought_signature": "SIG=="}});
    let gemini = calls(&json!([
        {"extra_content": signature, "function": {"name": "t", "arguments": "{}"}, "id": "a", "type": "function"},
        {"index": 1, "function": {"name": "t", "arguments": "{}"}, "id": "b", "type": "function", "x": null},
    ]));
    let turn = read(&[gemini, finish("stop")]).unwrap();
    let kept: Vec<&Block> = turn.blocks.iter().filter(|block| matches!(block, Block::Opaque { .. })).collect();
    let expected = Block::Opaque {
        provider: OPENAI_CHAT.to_owned(),
        value: json!({ OF_CALLS: [{"extra_content": signature}, {}] }),
    };
    assert_eq!(kept, [&expected]);
    // In pieces, and where the function has it.
    let pieces = [
        calls(&json!([{"index": 0, "id": "a", "function": {"name": "t", "arguments": "{"}}])),
        calls(&json!([{"index": 0, "function": {"arguments": "}", "provider_specific_fields": {"s": 1}}, "more": 2}])),
    ];
    let turn = read(&[&pieces[..], &[finish("tool_calls")]].concat()).unwrap();
    let value = json!({ OF_CALLS: [{"more": 2, "function": {"provider_specific_fields": {"s": 1}}}] });
    assert!(turn.blocks.contains(&Block::Opaque { provider: OPENAI_CHAT.to_owned(), value }), "{:?}", turn.blocks);
    // Where nothing is said, nothing is kept.
    let plain =
        calls(&json!([{"index": 0, "id": "a", "type": "function", "function": {"name": "t", "arguments": "{}"}}]));
    assert!(
        read(&[plain, finish("tool_calls")]).unwrap().blocks.iter().all(|block| !matches!(block, Block::Opaque { .. }))
    );
}

#[test]
fn every_finish_reason_has_its_meaning() {
    let text = delta(&json!({"content": "hi"}));
    let call = calls(&json!([{"index": 0, "id": "a", "function": {"name": "t", "arguments": "{\"x"}}]));
    let cases = [
        ("stop", StopReason::EndTurn, StopReason::ToolUse),
        ("tool_calls", StopReason::ToolUse, StopReason::ToolUse),
        ("length", StopReason::MaxTokens, StopReason::MaxTokens),
        ("content_filter", StopReason::Refusal, StopReason::Refusal),
        ("function_call", StopReason::ToolUse, StopReason::ToolUse),
        // The words of what stands behind a proxy.
        ("tool_use", StopReason::ToolUse, StopReason::ToolUse),
        ("stop_sequence", StopReason::StopSequence, StopReason::StopSequence),
        ("guardrail_intervened", StopReason::Refusal, StopReason::Refusal),
        // Gemini's door.
        ("content_filter: RECITATION", StopReason::Refusal, StopReason::Refusal),
        ("function_call_filter: MALFORMED_FUNCTION_CALL", StopReason::Other, StopReason::Other),
        ("bored", StopReason::Other, StopReason::Other),
    ];
    for (reason, with_text, with_call) in cases {
        assert_eq!(read(&[text.clone(), finish(reason)]).unwrap().stop_reason, with_text, "{reason}");
        assert_eq!(read(&[call.clone(), finish(reason)]).unwrap().stop_reason, with_call, "{reason}");
    }
    // What the model itself calls its end is heard where the service says that all is well.
    for (native, expected) in [
        ("STOP", StopReason::EndTurn),
        ("completed", StopReason::EndTurn),
        ("MAX_TOKENS", StopReason::MaxTokens),
        ("max_output_tokens", StopReason::MaxTokens),
        ("SAFETY", StopReason::Refusal),
        ("content_filter", StopReason::Refusal),
        ("MALFORMED_FUNCTION_CALL", StopReason::Other),
    ] {
        let last =
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "native_finish_reason": native}]});
        assert_eq!(read(&[text.clone(), last]).unwrap().stop_reason, expected, "{native}");
    }
    let refused = read(&[delta(&json!({"refusal": "I cannot."})), finish("stop")]).unwrap();
    assert_eq!((refused.text().as_str(), refused.stop_reason), ("I cannot.", StopReason::Refusal));
}

#[test]
fn arguments_that_are_not_json_of_one_meaning_stay_text() {
    for garbled in ["{\"x\": ", "{\"x\":1,\"x\":2}", "not JSON"] {
        let call = calls(&json!([{"index": 0, "id": "a", "function": {"name": "t", "arguments": garbled}}]));
        assert_eq!(asks(&read(&[call, finish("tool_calls")]).unwrap())[0].2, &json!(garbled));
    }
}

/// Whatever of a call was cut off, it is none: not one beginning of its arguments is taken for the whole.
#[test]
fn an_end_without_a_reason_counts_for_whole_calls_alone_and_a_bare_one_is_no_reply() {
    let asking =
        |arguments: &str| calls(&json!([{"index": 0, "id": "a", "function": {"name": "t", "arguments": arguments}}]));
    let call = asking("{}");
    let ended = |chunks: &[Value]| read(chunks).unwrap().stop_reason;
    assert_eq!(ended(std::slice::from_ref(&call)), StopReason::ToolUse);
    let arguments = r#"{"to": {"n": 1}}"#;
    for cut in 0..arguments.len() {
        assert_eq!(ended(&[asking(&arguments[..cut])]), StopReason::Other, "{cut}");
        assert_eq!(
            ended(&[
                call.clone(),
                calls(&json!([{"index": 1, "id": "b", "function": {"name": "t", "arguments": &arguments[..cut]}}]))
            ]),
            StopReason::Other
        );
    }
    assert_eq!(ended(&[asking(arguments)]), StopReason::ToolUse);
    assert_eq!(ended(&[calls(&json!([{"index": 0, "id": "a", "function": {"arguments": "{}"}}]))]), StopReason::Other);
    assert_eq!(ended(&[delta(&json!({"content": "hi"}))]), StopReason::Other);
    assert_eq!(ended(&[call.clone(), delta(&json!({"refusal": "I cannot."}))]), StopReason::Other);
    // Nothing at all, or nothing but what it cost: an empty reply.
    let usage = json!({"id": "c", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 0}});
    for empty in [vec![], vec![usage], vec![delta(&json!({"role": "assistant", "content": ""}))]] {
        let turn = read(&empty).unwrap();
        assert_eq!((turn.stop_reason, turn.text().as_str()), (StopReason::EndTurn, ""), "{empty:?}");
    }
    // Without `[DONE]`, the reason decides.
    let end = |chunks: &[Value]| {
        let mut assembler = Assembler::new(&request());
        for chunk in chunks {
            assembler.feed(&chunk.to_string()).unwrap();
        }
        assembler.end()
    };
    assert_eq!(end(std::slice::from_ref(&call)), None);
    assert!(matches!(end(&[call, finish("tool_calls")]), Some(Ok(turn)) if turn.stop_reason == StopReason::ToolUse));
}

/// A server without a parser hands calls over as words. They are never carried out, and are no last word.
#[test]
fn a_call_that_stands_in_the_text_asks_for_a_tool_and_is_none() {
    for (text, expected) in [
        (r#"<tool_call>{"name": "t", "arguments": {}}</tool_call>"#, StopReason::ToolUse),
        (r#"<tool_call>{"name": "other", "arguments": {}}</tool_call>"#, StopReason::EndTurn),
        ("Done.", StopReason::EndTurn),
    ] {
        let mut assembler = Assembler::new(&request());
        for chunk in [delta(&json!({"content": text})), finish("stop")] {
            assembler.feed(&chunk.to_string()).unwrap();
        }
        let Progress::Whole(turn) = assembler.feed("[DONE]").unwrap() else { panic!("{text}") };
        assert_eq!((turn.stop_reason, turn.text().as_str(), turn.tool_uses().count()), (expected, text, 0));
        assert_eq!(
            assembler.ending().said.contains("written into its text"),
            expected == StopReason::ToolUse,
            "{text}"
        );
    }
    let call = calls(&json!([{"index": 0, "id": "a", "function": {"name": "t", "arguments": "{}"}}]));
    let quoted = delta(&json!({"content": "<tool_call>t</tool_call>"}));
    assert_eq!(asks(&read(&[quoted, call, finish("stop")]).unwrap()).len(), 1, "what was read as a call is one");
}

/// What signs a reply goes back with it, as the blocks that were signed.
#[test]
fn thoughts_that_are_signed_are_kept_whole() {
    let piece = |text: &str, signature: &str| {
        let block = json!({"type": "thinking", "thinking": text, "signature": signature});
        delta(
            &json!({"reasoning_content": text, "thinking_blocks": [block], "provider_specific_fields": {"thinking_blocks": [block]}}),
        )
    };
    let call = calls(&json!([{"index": 0, "id": "a", "function": {"name": "t", "arguments": "{}"}}]));
    let extra = delta(&json!({"extra_content": {"google": {"thought_signature": "SIG"}}}));
    let turn = read(&[piece("Hm. ", ""), piece("Do it.", ""), piece("", "SIG=="), extra, call, finish("tool_calls")]);
    let expected = json!({"reasoning_content": "Hm. Do it.",
        "thinking_blocks": [{"type": "thinking", "thinking": "Hm. Do it.", "signature": "SIG=="}],
        "extra_content": {"google": {"thought_signature": "SIG"}}});
    assert_eq!(turn.unwrap().blocks[0], Block::Opaque { provider: OPENAI_CHAT.to_owned(), value: expected });
}

#[test]
fn the_field_of_before_there_were_several_calls_is_one_call() {
    let legacy = |function: Value| delta(&json!({"content": null, "function_call": function}));
    let pieces = [
        legacy(json!({"name": "t", "arguments": ""})),
        legacy(json!({"arguments": "{\"x\":"})),
        legacy(json!({"arguments": "1}"})),
        finish("function_call"),
    ];
    let turn = read(&pieces).unwrap();
    let asked = asks(&turn);
    assert_eq!((asked.len(), asked[0].1, asked[0].2), (1, "t", &json!({"x": 1})));
    assert!(asked[0].0.starts_with("call_") && turn.stop_reason == StopReason::ToolUse);
    // Who has both says the same in both.
    let both = calls(&json!([{"index": 0, "id": "a", "function": {"name": "t", "arguments": "{\"x\":1}"}}]));
    let turn = read(&[&[both], &pieces[..]].concat()).unwrap();
    assert_eq!(asks(&turn), [("a", "t", &json!({"x": 1}))]);
}

#[test]
fn a_message_in_the_place_of_pieces_is_read_and_one_behind_them_is_not_said_twice() {
    let call = json!({"index": 0, "id": "a", "function": {"name": "t", "arguments": "{}"}});
    let message = json!({"role": "assistant", "content": "hi", "reasoning": "Hm.", "tool_calls": [call]});
    let last =
        json!({"id": "c", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]});
    let alone = read(std::slice::from_ref(&last)).unwrap();
    assert_eq!((alone.text().as_str(), asks(&alone)), ("hi", vec![("a", "t", &json!({}))]));
    let streamed = [delta(&json!({"reasoning": "Hm."})), delta(&json!({"content": "hi"})), calls(&json!([call])), last];
    assert_eq!(read(&streamed).unwrap().blocks, alone.blocks);
}

#[test]
fn an_error_in_the_stream_is_told_with_its_code_or_type() {
    let reported = |chunk: Value| match read(&[delta(&json!({"content": "hi"})), chunk]) {
        Err(Fault::Reported { kind, message }) => (kind, message),
        other => panic!("no error: {other:?}"),
    };
    let told = |kind: &str, message: &str| (kind.to_owned(), message.to_owned());
    let openrouter = json!({"id": "x", "error": {"code": 502, "message": "upstream"}, "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]});
    assert_eq!(reported(openrouter), told("502", "upstream"));
    let openai =
        json!({"error": {"message": "too long", "type": "invalid_request_error", "code": "context_length_exceeded"}});
    assert_eq!(reported(openai), told("context_length_exceeded", "too long"));
    assert_eq!(
        reported(json!({"error": {"message": "m", "type": "server_error", "code": null}})),
        told("server_error", "m")
    );
    assert_eq!(reported(json!({"error": "out of memory"})), told("error", "out of memory"));
    assert_eq!(reported(json!({"object": "error", "message": "m"})), told("", "m"));
    let older = json!({"object": "error", "message": "m", "type": "BadRequestError", "param": null, "code": 400});
    assert_eq!(reported(older), told("400", "m"));
    for outage in ["error", "network_error", "abort", "insufficient_system_resource"] {
        assert_eq!(reported(finish(outage)).0, outage);
    }
    // Beside whatever reason: the reply was broken off.
    for reason in ["stop", "tool_calls", "length"] {
        let choice = json!({"index": 0, "delta": {"content": ""}, "finish_reason": reason, "error": {"code": 502, "message": "gone"}});
        assert_eq!(reported(json!({"choices": [choice]})), told("502", "gone"), "{reason}");
    }
}

#[test]
fn a_name_that_was_shortened_comes_back_as_it_was_offered() {
    let mut asked = request();
    let long = format!("mcp__{}", "x".repeat(80));
    asked.tools[0].name.clone_from(&long);
    let wire = super::names::wire_name(&long, super::names::OPENAI_LONGEST);
    let call = calls(&json!([{"index": 0, "id": "a", "function": {"name": wire, "arguments": "{}"}}]));
    assert_eq!(asks(&read_for(&asked, &[call, finish("tool_calls")]).unwrap())[0].1, long);
}

#[test]
fn content_may_be_a_list_of_parts_and_other_choices_are_not_ours() {
    let parts = delta(&json!({"content": [{"type": "text", "text": "hi"}]}));
    let other = json!({"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": null}]});
    assert_eq!(read(&[parts, other, finish("stop")]).unwrap().text(), "hi");
}

/// A reply may be nothing but calls and pieces of them, each with its name and an index of its own: what would be looked for from one end to the
/// other for each piece would never be found in time.
#[test]
fn s23_a_reply_of_nothing_but_calls_is_read_in_one_pass() {
    const MANY: usize = 50_000;
    // The last one has no id, so that what it says tells whether a piece is of it.
    let piece = |index: usize, arguments: &str| {
        let id = if index == MANY { String::new() } else { format!("c{index}") };
        json!([{"index": index, "id": id, "function": {"name": "t", "arguments": arguments}}])
    };
    let mut chunks: Vec<Value> = (0..MANY).map(|index| calls(&piece(index, "{}"))).collect();
    chunks.push(calls(&piece(MANY, "{\"a\": \"")));
    chunks.extend((0..MANY).map(|_| calls(&piece(MANY, "}"))));
    chunks.extend([calls(&piece(MANY, "\"}")), calls(&piece(0, "")), finish("tool_calls")]);
    let turn = read(&chunks).unwrap();
    let found = asks(&turn);
    assert_eq!((found.len(), found[0].2), (MANY + 1, &json!({})));
    assert_eq!(found[MANY].2["a"].as_str().map(str::len), Some(MANY));
}
