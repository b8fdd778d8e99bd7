//! Every fault of a stream that servers and what lies between were seen to make × the three wires × the line endings × the sizes of pieces.
//! A fault that takes nothing away leaves the reply as it is; one that does is a failure that is tried again and charged, and never
//! another reply.

use std::io::Cursor;
use std::sync::Mutex;

use futures_util::stream;
use serde_json::{Value, json};
use ua_core::{Block, Message, ModelTurn, Origin, Usage};

use super::events::{Assemble, Bytes, MOST_CALLS, ReadFault, read_reply, read_whole};
use super::reject;
use crate::error::LlmError;
use crate::provider::{Ending, Silent, StreamObserver};
use crate::request::ModelRequest;
use crate::{anthropic, chat, openai};

const ENDINGS: [&str; 3] = ["\n", "\r\n", "\r"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wire {
    Anthropic,
    Responses,
    Chat,
}

const WIRES: [Wire; 3] = [Wire::Anthropic, Wire::Responses, Wire::Chat];

impl Wire {
    /// A reply with a text and a call.
    fn events(self) -> Vec<Value> {
        match self {
            Self::Anthropic => vec![
                json!({"type": "message_start", "message": {"id": "msg_1", "model": "m", "usage": {"input_tokens": 10, "output_tokens": 1, "cache_read_input_tokens": 4}}}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Grüße"}}),
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "t1", "name": "t", "input": {}}}),
                json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"x\":"}}),
                json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "1}"}}),
                json!({"type": "content_block_stop", "index": 1}),
                json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}),
                json!({"type": "message_stop"}),
            ],
            Self::Responses => {
                let message = json!({"type": "message", "id": "m1", "role": "assistant", "content": [{"type": "output_text", "text": "Grüße"}]});
                let call = |arguments: &str| json!({"type": "function_call", "id": "f1", "call_id": "t1", "name": "t", "arguments": arguments});
                vec![
                    json!({"type": "response.created", "response": {"id": "resp_1", "model": "m"}}),
                    json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "m1", "content": []}}),
                    json!({"type": "response.output_text.delta", "output_index": 0, "item_id": "m1", "delta": "Grüße"}),
                    json!({"type": "response.output_item.done", "output_index": 0, "item": message}),
                    json!({"type": "response.output_item.added", "output_index": 1, "item": call("")}),
                    json!({"type": "response.function_call_arguments.delta", "output_index": 1, "item_id": "f1", "delta": "{\"x\":"}),
                    json!({"type": "response.function_call_arguments.delta", "output_index": 1, "item_id": "f1", "delta": "1}"}),
                    json!({"type": "response.function_call_arguments.done", "output_index": 1, "item_id": "f1", "arguments": "{\"x\":1}"}),
                    json!({"type": "response.output_item.done", "output_index": 1, "item": call("{\"x\":1}")}),
                    json!({"type": "response.completed", "response": {"id": "resp_1", "model": "m", "output": [], "usage": {
                        "input_tokens": 14, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 4}}}}),
                ]
            }
            Self::Chat => {
                let delta = |delta: Value| json!({"id": "c1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
                let call = |call: Value| delta(json!({"tool_calls": [call]}));
                vec![
                    delta(json!({"role": "assistant", "content": "Grüße"})),
                    call(
                        json!({"index": 0, "id": "t1", "type": "function", "function": {"name": "t", "arguments": "{\"x\":"}}),
                    ),
                    call(json!({"index": 0, "function": {"arguments": "1}"}})),
                    json!({"id": "c1", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
                    json!({"id": "c1", "choices": [], "usage": {"prompt_tokens": 14, "completion_tokens": 9, "total_tokens": 23, "prompt_tokens_details": {"cached_tokens": 4}}}),
                ]
            }
        }
    }

    /// The same reply as one object, as the API has it where no stream is asked for.
    fn whole(self) -> Value {
        match self {
            Self::Anthropic => json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
                "content": [{"type": "text", "text": "Grüße"}, {"type": "tool_use", "id": "t1", "name": "t", "input": {"x": 1}}],
                "stop_reason": "tool_use", "stop_sequence": null,
                "usage": {"input_tokens": 10, "output_tokens": 9, "cache_read_input_tokens": 4}}),
            Self::Responses => {
                json!({"id": "resp_1", "object": "response", "status": "completed", "error": null, "model": "m",
                "output": [
                    {"type": "message", "id": "m1", "role": "assistant", "content": [{"type": "output_text", "text": "Grüße"}]},
                    {"type": "function_call", "id": "f1", "call_id": "t1", "name": "t", "arguments": "{\"x\":1}"}],
                "usage": {"input_tokens": 14, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 4}}})
            }
            Self::Chat => json!({"id": "c1", "object": "chat.completion", "model": "m", "choices": [{"index": 0,
                "message": {"role": "assistant", "content": "Grüße", "refusal": null, "tool_calls": [
                    {"id": "t1", "type": "function", "function": {"name": "t", "arguments": "{\"x\":1}"}}]},
                "logprobs": null, "finish_reason": "tool_calls"}],
                "usage": {"prompt_tokens": 14, "completion_tokens": 9, "total_tokens": 23, "prompt_tokens_details": {"cached_tokens": 4}}}),
        }
    }

    /// Reads one object in the place of a stream; `None` of what is no reply.
    fn read_one(self, reply: &Value) -> Option<Result<ModelTurn, LlmError>> {
        fn read(assembler: impl Assemble, reply: &Value) -> Option<Result<ModelTurn, LlmError>> {
            let events = assembler.as_events(reply.as_object()?.clone())?;
            Some(read_whole(&events, "m", assembler, &Silent))
        }
        match self {
            Self::Anthropic => read(anthropic::Assembler::default(), reply),
            Self::Responses => read(openai::Assembler::default(), reply),
            Self::Chat => read(chat::Assembler::new(&request()), reply),
        }
    }

    fn blocks(self, events: &[Value]) -> Vec<String> {
        let named = |event: &Value| match event["type"].as_str() {
            Some(name) => format!("event: {name}\ndata: {event}\n\n"),
            None => format!("data: {event}\n\n"),
        };
        let done = (self == Self::Chat).then(|| "data: [DONE]\n\n".to_owned());
        events.iter().map(named).chain(done).collect()
    }

    fn plain(self) -> Vec<String> {
        self.blocks(&self.events())
    }

    fn read(self, text: &str, ending: &str, piece: usize) -> Result<ModelTurn, LlmError> {
        self.read_bytes(text.replace('\n', ending).as_bytes(), piece)
    }

    fn read_bytes(self, bytes: &[u8], piece: usize) -> Result<ModelTurn, LlmError> {
        self.read_watched(bytes, piece, &Silent)
    }

    fn read_watched(self, bytes: &[u8], piece: usize, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        let pieces: Vec<Result<_, ReadFault>> =
            bytes.chunks(piece).map(|piece| Ok(Cursor::new(piece.to_vec()))).collect();
        let pieces: Bytes = Box::pin(stream::iter(pieces));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        match self {
            Self::Anthropic => runtime.block_on(read_reply(pieces, "m", anthropic::Assembler::default(), observer)),
            Self::Responses => runtime.block_on(read_reply(pieces, "m", openai::Assembler::default(), observer)),
            Self::Chat => runtime.block_on(read_reply(pieces, "m", chat::Assembler::new(&request()), observer)),
        }
    }
}

pub(super) fn request() -> ModelRequest {
    ModelRequest {
        model: "m".into(),
        system: String::new(),
        messages: vec![Message::user(Origin::Prompt, "go")],
        tools: vec![].into(),
        max_output_tokens: 10,
        temperature_milli: None,
        seed: None,
        output_schema: None,
        wants_form: false,
    }
}

/// The blocks of a stream with `more` in front of the one at `at`.
fn with(mut blocks: Vec<String>, at: usize, more: &str) -> String {
    blocks.insert(at, more.to_owned());
    blocks.concat()
}

/// Changes every object of the events in which `field` stands, however deep.
fn change(events: &mut [Value], field: &str, to: &dyn Fn(&mut serde_json::Map<String, Value>)) {
    fn go(value: &mut Value, field: &str, to: &dyn Fn(&mut serde_json::Map<String, Value>)) {
        match value {
            Value::Object(object) => {
                if object.contains_key(field) {
                    to(object);
                }
                object.values_mut().for_each(|value| go(value, field, to));
            }
            Value::Array(values) => values.iter_mut().for_each(|value| go(value, field, to)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    for event in events {
        go(event, field, to);
    }
}

fn same(wire: Wire, text: &str, what: &str) -> ModelTurn {
    let whole = wire.read(&wire.plain().concat(), "\n", usize::MAX).unwrap();
    let mut last = None;
    for ending in ENDINGS {
        for piece in [1, 7, usize::MAX] {
            let turn =
                wire.read(text, ending, piece).unwrap_or_else(|error| panic!("{wire:?} {what} {ending:?}: {error}"));
            // What is said of a call besides is kept for its server, and nothing here reads it.
            let is_kept =
                |block: &&Block| matches!(block, Block::Opaque { value, .. } if value.get("of_calls").is_some());
            let blocks: Vec<&Block> = turn.blocks.iter().filter(|block| !is_kept(block)).collect();
            let wanted: Vec<&Block> = whole.blocks.iter().collect();
            assert_eq!((blocks, turn.stop_reason), (wanted, whole.stop_reason), "{wire:?} {what} {ending:?}");
            last = Some(turn);
        }
    }
    last.unwrap()
}

fn fails(wire: Wire, text: &str, what: &str) -> LlmError {
    let mut last = None;
    for ending in ENDINGS {
        for piece in [1, 7, usize::MAX] {
            let error =
                wire.read(text, ending, piece).err().unwrap_or_else(|| panic!("{wire:?} {what} {ending:?} was read"));
            assert!(
                error.may_retry() && error.left_us() && !error.was_refused(),
                "{wire:?} {what} {ending:?}: {error:?}"
            );
            last = Some(error);
        }
    }
    last.unwrap()
}

#[test]
fn lines_that_mean_nothing_lose_nothing() {
    for wire in WIRES {
        for line in [
            ": comment\n\n",
            "dat\n\n",
            "unknown: field\n\n",
            "retry: soon\n\n",
            "retry: 10\nretry: 20\n\n",
            "id: 1\nid: 2\n\n",
            "event: a\nevent: b\n\n",
            "event: ping\ndata\n\n",
            "\n\n\n",
            "data: {\"type\": \"ping\"}\n\n",
            "data: {\"type\": \"from_the_future\", \"index\": {}}\n\n",
            "data: {}\n\n",
        ] {
            for at in 0..wire.plain().len() {
                same(wire, &with(wire.plain(), at, line), line);
            }
        }
        same(wire, &format!("\u{feff}{}", wire.plain().concat()), "a byte order mark");
        same(wire, wire.plain().concat().trim_end(), "a last event without an empty line");
        same(wire, &wire.plain().concat().replace("data: ", "data:"), "no blank behind the colon");
        same(wire, &wire.plain().concat().replace("event: ", "event: x\nevent: "), "two names of an event");
    }
}

/// Shows what was streamed as text.
#[derive(Default)]
struct Streamed(Mutex<String>);

impl StreamObserver for Streamed {
    fn text(&self, delta: &str) {
        self.0.lock().unwrap().push_str(delta);
    }
}

/// A reply in which something is no text is there all the same: halves that come one behind the other are the character, whatever else is no text is
/// U+FFFD in what the model said, and arguments in which such a thing stands were not read.
#[test]
fn what_is_no_text_loses_no_reply() {
    let lone = "Gr\\ud83d\u{20}e";
    for wire in WIRES {
        let plain = wire.plain();
        let cut_at = plain.iter().position(|block| block.contains("Grüße")).unwrap();
        let mut cut = plain.clone();
        cut[cut_at] = plain[cut_at].replace("Grüße", "Gr\\ud83d");
        cut.insert(cut_at + 1, plain[cut_at].replace("Grüße", "\\ude00e"));
        let cut = cut.concat().replace("Grüße", "Gr\\ud83d\\ude00e").into_bytes();
        let bad = |with: &[u8]| {
            let plain = plain.concat();
            let parts: Vec<&[u8]> = plain.split("Grüße").map(str::as_bytes).collect();
            parts.join(with)
        };
        for (bytes, wanted) in [
            (cut, "Gr😀e"),
            (bad(lone.as_bytes()), "Gr\u{fffd} e"),
            (bad(b"Gr\xff\xc3e"), "Gr\u{fffd}\u{fffd}e"),
            (bad("Gr😀e".as_bytes()), "Gr😀e"),
        ] {
            for piece in [1, 7, usize::MAX] {
                let streamed = Streamed::default();
                let turn = wire.read_watched(&bytes, piece, &streamed).unwrap();
                assert_eq!(turn.text(), wanted, "{wire:?}");
                assert_eq!(streamed.0.into_inner().unwrap(), wanted, "{wire:?}");
                assert_eq!(turn.tool_uses().next().unwrap().input, json!({"x": 1}), "{wire:?}");
            }
        }
        for half in ["\\ud83d", "\u{fdd0}"] {
            let arguments = plain.concat().replace("1}\"", &format!("\\\"a{half}\\\"}}\""));
            let turn = wire.read(&arguments, "\n", 7).unwrap();
            assert_eq!(turn.tool_uses().next().unwrap().input, json!("{\"x\":\"a\u{fffd}\"}"), "{wire:?}");
        }
    }
}

#[test]
fn fields_that_nobody_needs_may_be_anything() {
    for wire in WIRES {
        let changed = |field: &str, to: Value| {
            let mut events = wire.events();
            change(&mut events, field, &|object| {
                object.insert(field.to_owned(), to.clone());
            });
            wire.blocks(&events).concat()
        };
        for to in [json!(null), json!(7.0), json!({"a": 1})] {
            for field in [
                "model",
                "usage",
                "cached_tokens",
                "cache_read_input_tokens",
                "input_tokens_details",
                "prompt_tokens_details",
                "output",
            ] {
                same(wire, &changed(field, to.clone()), &format!("{field}: {to}"));
            }
        }
        let mut events = wire.events();
        change(&mut events, "index", &|object| drop(object.remove("index")));
        change(&mut events, "output_index", &|object| drop(object.remove("output_index")));
        change(&mut events, "item_id", &|object| drop(object.remove("item_id")));
        same(wire, &wire.blocks(&events).concat(), "no indices");
        let mut events = wire.events();
        for field in ["input_tokens", "output_tokens", "prompt_tokens", "completion_tokens", "cached_tokens"] {
            change(&mut events, field, &|object| {
                let count = object[field].as_f64().unwrap_or_default();
                object.insert(field.to_owned(), json!(count));
            });
        }
        let usage = same(wire, &wire.blocks(&events).concat(), "floats").usage.unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens, usage.cache_read_tokens), (10, 9, 4), "{wire:?}");
        let mut events = wire.events();
        for field in ["id", "type", "index"] {
            change(&mut events, field, &|object| {
                object.insert("unknown".to_owned(), json!([{"a": null}]));
            });
        }
        same(wire, &wire.blocks(&events).concat(), "unknown fields");
    }
}

/// Half a count is no count of the other half: whoever charges the request sees that the input was not counted, and what was.
#[test]
fn an_input_that_nobody_counted_is_none_on_every_wire() {
    let untold = [None, Some(json!(null)), Some(json!(-7)), Some(json!(1e30)), Some(json!("many")), Some(json!(0))];
    for wire in WIRES {
        for to in &untold {
            let mut events = wire.events();
            for field in ["input_tokens", "prompt_tokens", "total_tokens"] {
                change(&mut events, field, &|object| {
                    object.remove(field);
                    object.remove("cache_read_input_tokens");
                    if let Some(to) = to {
                        object.insert(field.to_owned(), to.clone());
                    }
                });
            }
            let reply = wire.read(&wire.blocks(&events).concat(), "\n", 64).unwrap();
            let usage = reply.usage.unwrap();
            assert_eq!((usage.input_total(), usage.output_tokens), (0, 9), "{wire:?} {to:?}");
        }
    }
    // What the total says of the prompt is believed.
    let mut events = Wire::Chat.events();
    change(&mut events, "prompt_tokens", &|object| drop(object.remove("prompt_tokens")));
    let reply = Wire::Chat.read(&Wire::Chat.blocks(&events).concat(), "\n", 64).unwrap();
    assert_eq!(reply.usage.map(|usage| (usage.input_total(), usage.output_tokens)), Some((14, 9)));
    // Servers that count only when they begin write 0 at the end.
    let mut events = Wire::Anthropic.events();
    for event in &mut events {
        if event["type"] == "message_delta" {
            event["usage"]["input_tokens"] = json!(0);
        }
    }
    let reply = Wire::Anthropic.read(&Wire::Anthropic.blocks(&events).concat(), "\n", 64).unwrap();
    assert_eq!(reply.usage.map(|usage| usage.input_total()), Some(14));
}

#[test]
fn what_cannot_be_read_is_a_cut_wherever_it_stands() {
    for wire in WIRES {
        for at in 0..wire.plain().len() {
            for garbage in [
                "data: {\"type\":\n\n",
                "data: <html>\n\n",
                "data: []\n\n",
                "event: error\ndata: Internal Server Error\n\n",
            ] {
                fails(wire, &with(wire.plain(), at, garbage), garbage);
            }
            if at > 0 {
                let begun = wire.plain()[..at].concat();
                // A stream without its end mark that said why it ended is whole on these wires.
                let is_told = match wire {
                    Wire::Anthropic => at >= 9,
                    Wire::Responses => false,
                    Wire::Chat => at >= 4,
                };
                if !is_told {
                    fails(wire, &begun, "a cut between events");
                }
                fails(
                    wire,
                    &format!("{}data: {{\"type\": \"mess", wire.plain()[..at.min(3)].concat()),
                    "a cut within an event",
                );
            }
        }
    }
}

#[test]
fn an_error_in_the_stream_is_one_in_whatever_shape_it_comes() {
    for wire in WIRES {
        for error in [
            json!({"error": {"message": "upstream", "type": "api_error"}}),
            json!({"error": {"message": "upstream", "type": null, "code": 502}}),
            json!({"error": "upstream"}),
            json!({"type": "error", "error": {"type": null, "message": "upstream"}}),
            json!({"type": "error", "error": {"type": "api_error", "code": 500, "message": "upstream"}}),
            json!([{"error": {"code": 500, "message": "upstream", "status": "INTERNAL"}}]),
        ] {
            let text = format!("dat\nevent: ping\nevent: error\ndata: {error}\n\n");
            for at in 1..wire.plain().len() {
                let told = fails(wire, &with(wire.plain(), at, &text), &error.to_string());
                assert!(told.to_string().contains("upstream"), "{wire:?} {error}: {told}");
            }
        }
    }
}

/// Nothing said and nothing asked for is one empty reply on every wire, streamed or not; what has no place for it is no reply.
#[test]
fn an_empty_reply_is_the_same_on_every_wire() {
    for wire in WIRES {
        let events = wire.events();
        // The beginning, and the end with the words for one that ended by itself.
        let mut bare: Vec<Value> = match wire {
            Wire::Anthropic => vec![events[0].clone(), events[8].clone(), events[9].clone()],
            Wire::Responses => vec![events[0].clone(), events[9].clone()],
            Wire::Chat => vec![events[3].clone(), events[4].clone()],
        };
        for (field, word) in [("stop_reason", "end_turn"), ("finish_reason", "stop")] {
            change(&mut bare, field, &|object| drop(object.insert(field.to_owned(), json!(word))));
        }
        let (mut whole, place, said) = match wire {
            Wire::Anthropic => (wire.whole(), "/content", vec![json!([]), json!([{"type": "text", "text": ""}])]),
            Wire::Responses => {
                let message = |content: Value| json!([{"type": "message", "id": "m1", "content": content}]);
                let blank = json!([{"type": "output_text", "text": ""}]);
                (wire.whole(), "/output", vec![json!([]), message(json!([])), message(Value::Null), message(blank)])
            }
            Wire::Chat => {
                let message = |content: Value| json!({"role": "assistant", "content": content, "tool_calls": null});
                (wire.whole(), "/choices/0/message", vec![message(Value::Null), message(json!("")), message(json!([]))])
            }
        };
        if let Some(reason) = whole.get_mut("stop_reason") {
            *reason = json!("end_turn");
        }
        if let Some(reason) = whole.pointer_mut("/choices/0/finish_reason") {
            *reason = json!("stop");
        }
        let mut replies = vec![wire.read(&wire.blocks(&bare).concat(), "\n", usize::MAX).unwrap()];
        for said in said {
            *whole.pointer_mut(place).unwrap() = said;
            replies.push(wire.read_one(&whole).unwrap().unwrap());
        }
        for reply in replies {
            assert_eq!((reply.blocks, reply.stop_reason), (vec![], ua_core::StopReason::EndTurn), "{wire:?}");
        }
        for nothing in [Value::Null, json!("")] {
            *whole.pointer_mut(place).unwrap() = nothing;
            assert!(wire.read_one(&whole).is_none(), "{wire:?}");
        }
    }
}

/// Calls without an id, a name or arguments are calls, and on every wire the same: with ids of their own, and without arguments.
#[test]
fn a_call_that_lacks_something_is_the_same_on_every_wire() {
    for (arguments, expected) in [
        (Value::Null, json!({})),
        (json!(""), json!({})),
        (json!(" "), json!({})),
        (json!({}), json!({})),
        (json!({"x": 1}), json!({"x": 1})),
        (json!("{\"x\":1}"), json!({"x": 1})),
        (json!("{\"x\":"), json!("{\"x\":")),
    ] {
        for (wire, name, count) in WIRES.into_iter().flat_map(|wire| [(wire, "t", 2), (wire, "", 1)]) {
            let reply = match wire {
                Wire::Anthropic => {
                    let call = json!({"type": "tool_use", "id": "", "name": name, "input": arguments});
                    let calls = vec![call; count];
                    json!({"type": "message", "id": "m", "content": calls, "stop_reason": "tool_use"})
                }
                Wire::Responses => {
                    let call = json!({"type": "function_call", "call_id": "", "name": name, "arguments": arguments});
                    let calls = vec![call; count];
                    json!({"id": "r", "status": "completed", "output": calls})
                }
                Wire::Chat => {
                    let call =
                        json!({"id": "", "type": "function", "function": {"name": name, "arguments": arguments}});
                    let calls = vec![call; count];
                    let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
                    json!({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
                }
            };
            let mut turn = wire.read_one(&reply).unwrap().unwrap();
            assert_eq!(turn.stop_reason, ua_core::StopReason::ToolUse);
            crate::tell_tool_uses_apart(&mut turn, |_| false);
            let asked: Vec<_> = turn.tool_uses().map(|call| (call.name.as_str(), &call.input)).collect();
            assert_eq!(asked, vec![(name, &expected); count], "{wire:?} {arguments}");
            let ids: std::collections::BTreeSet<&str> = turn.tool_uses().map(|call| call.id.as_str()).collect();
            assert!(ids.len() == count && !ids.contains(""), "{wire:?} {ids:?}");
        }
    }
}

/// Of a server, or something in front of one, that streams nothing.
#[test]
fn a_reply_in_one_piece_is_the_one_that_a_stream_would_have_been() {
    for wire in WIRES {
        let streamed = wire.read(&wire.plain().concat(), "\n", usize::MAX).unwrap();
        assert_eq!(wire.read_one(&wire.whole()).unwrap().unwrap(), streamed, "{wire:?}");
        // What is an error, or another wire's, or begun only, is no reply.
        for (field, value) in
            [("error", json!({"message": "no"})), ("status", json!("in_progress")), ("content", json!(1))]
        {
            let mut other = wire.whole();
            let is_read = field == "status" && wire != Wire::Responses || field == "content" && wire != Wire::Anthropic;
            other[field] = value;
            assert_eq!(wire.read_one(&other).is_some(), is_read, "{wire:?} {field}");
        }
        for other in WIRES.into_iter().filter(|other| *other != wire) {
            assert!(wire.read_one(&other.whole()).is_none(), "{wire:?} {other:?}");
        }
    }
    // An end that is none is told as in a stream.
    for (wire, place, value) in [
        (Wire::Anthropic, "/stop_reason", json!("refusal")),
        (Wire::Chat, "/choices/0/finish_reason", json!("content_filter")),
    ] {
        let mut refused = wire.whole();
        *refused.pointer_mut(place).unwrap() = value;
        assert_eq!(wire.read_one(&refused).unwrap().unwrap().stop_reason, ua_core::StopReason::Refusal);
    }
    let mut cut = Wire::Responses.whole();
    cut["status"] = json!("incomplete");
    cut["incomplete_details"] = json!({"reason": "max_output_tokens"});
    assert_eq!(Wire::Responses.read_one(&cut).unwrap().unwrap().stop_reason, ua_core::StopReason::MaxTokens);
}

/// How a reply ended, in its provider's words.
#[derive(Default)]
struct Endings(std::sync::Mutex<Vec<Ending>>);

impl StreamObserver for Endings {
    fn ended(&self, ending: &Ending) {
        self.0.lock().unwrap().push(ending.clone());
    }
}

/// Each way to end × its wire: what it is to this program, and what is told of it. None that asks for nothing and did not end by itself is an
/// answer.
#[test]
fn how_a_reply_ended_is_told_in_its_providers_words() {
    use ua_core::StopReason as S;
    let anthropic = |delta: Value| {
        vec![
            json!({"type": "message_start", "message": {"id": "m", "model": "m"}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "So"}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": delta}),
            json!({"type": "message_stop"}),
        ]
    };
    let responses = |status: &str, details: Value| {
        let item = json!({"type": "message", "content": [{"type": "output_text", "text": "So"}]});
        vec![
            json!({"type": "response.created", "response": {"id": "r", "model": "m"}}),
            json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
            json!({"type": format!("response.{status}"), "response": {"id": "r", "model": "m", "incomplete_details": details}}),
        ]
    };
    let chat = |choice: Value| {
        vec![
            json!({"id": "c", "choices": [{"index": 0, "delta": {"content": "So"}}]}),
            json!({"id": "c", "choices": [choice]}),
        ]
    };
    let explained = json!({"stop_reason": "refusal", "stop_details": {"type": "refusal", "category": "cyber", "explanation": "It may harm."}});
    let filtered = json!({"index": 0, "finish_reason": "content_filter",
        "content_filter_results": {"hate": {"filtered": false}, "violence": {"filtered": true, "severity": "high"}}});
    for (wire, events, is, said, context_is_full) in [
        (Wire::Anthropic, anthropic(json!({"stop_reason": "end_turn"})), S::EndTurn, "end_turn", false),
        (
            Wire::Anthropic,
            anthropic(explained),
            S::Refusal,
            "refusal (category: cyber, explanation: It may harm.)",
            false,
        ),
        (Wire::Anthropic, anthropic(json!({"stop_reason": "moon_phase"})), S::Other, "moon_phase", false),
        (Wire::Anthropic, anthropic(json!({"stop_reason": "tool_use"})), S::ToolUse, "tool_use", false),
        (
            Wire::Anthropic,
            anthropic(json!({"stop_reason": "model_context_window_exceeded"})),
            S::MaxTokens,
            "model_context_window_exceeded",
            true,
        ),
        (Wire::Responses, responses("completed", json!(null)), S::EndTurn, "completed", false),
        (
            Wire::Responses,
            responses("incomplete", json!({"reason": "max_output_tokens"})),
            S::MaxTokens,
            "incomplete (max_output_tokens)",
            false,
        ),
        (
            Wire::Responses,
            responses("incomplete", json!({"reason": "content_filter"})),
            S::Refusal,
            "incomplete (content_filter)",
            false,
        ),
        (Wire::Responses, responses("incomplete", json!({"reason": "moon"})), S::Other, "incomplete (moon)", false),
        (Wire::Responses, responses("incomplete", json!(null)), S::Other, "incomplete", false),
        (Wire::Chat, chat(json!({"index": 0, "finish_reason": "stop"})), S::EndTurn, "stop", false),
        (Wire::Chat, chat(json!({"index": 0, "finish_reason": "tool_calls"})), S::ToolUse, "tool_calls", false),
        (
            Wire::Chat,
            chat(json!({"index": 0, "finish_reason": "length", "native_finish_reason": "MAX_TOKENS"})),
            S::MaxTokens,
            "length (MAX_TOKENS)",
            false,
        ),
        (Wire::Chat, chat(json!({"index": 0, "finish_reason": "moon_phase"})), S::Other, "moon_phase", false),
        (Wire::Chat, chat(filtered), S::Refusal, "content_filter (filtered: violence)", false),
    ] {
        let endings = Endings::default();
        let turn = wire.read_watched(wire.blocks(&events).concat().as_bytes(), usize::MAX, &endings).unwrap();
        let expected = Ending { said: said.to_owned(), context_is_full };
        assert_eq!((turn.stop_reason, endings.0.into_inner().unwrap()), (is, vec![expected]), "{wire:?}");
    }
}

/// A refusal may be any JSON, or none: `"Bad Request"` of a framework, a list of a gateway, a number. Whatever it is, it is an error that somebody reads.
#[test]
fn a_refusal_of_any_shape_is_an_error_and_no_end_of_the_process() {
    let errors =
        [json!(null), json!("x"), json!(7), json!([]), json!({}), json!({"message": "no", "code": "tool_use_failed"})];
    let mut bodies: Vec<Value> = vec![json!("Bad Request"), json!(true), json!(1.5), json!(null), json!([]), json!({})];
    bodies.extend(errors.iter().map(|error| json!({ "error": error })));
    bodies.extend(bodies.clone().into_iter().map(|body| json!([body])));
    bodies.push(json!([{"error": {"message": "a"}}, {"error": {"message": "b"}}]));
    let texts = bodies.iter().map(Value::to_string).chain(["", " ", "<html>", "{", "\u{feff}[]"].map(str::to_owned));
    for body in texts {
        for status in [400, 401, 403, 404, 413, 422, 429, 500, 503] {
            let _error = reject::by_status(status, None, &body, "m");
            let is_withheld = reject::withheld(status, &body).is_some();
            assert!(!is_withheld, "{status} {body}");
        }
        let asked = request();
        let of_chat = chat::Assembler::new(&asked).refused_as_events(&body).is_some();
        assert_eq!(of_chat, body.contains("tool_use_failed"), "{body}");
        assert!(anthropic::Assembler::default().refused_as_events(&body).is_none(), "{body}");
        assert!(openai::Assembler::default().refused_as_events(&body).is_none(), "{body}");
    }
}

/// What is no element says nothing, wherever it stands.
#[test]
fn nulls_in_the_lists_of_a_reply_are_left_out() {
    fn with_nulls(value: &mut Value) {
        match value {
            Value::Array(values) => {
                values.iter_mut().for_each(with_nulls);
                values.insert(0, Value::Null);
                values.push(Value::Null);
            }
            Value::Object(object) => object.values_mut().for_each(with_nulls),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    for wire in [Wire::Anthropic, Wire::Responses, Wire::Chat] {
        let mut reply = wire.whole();
        let plain = wire.read_one(&reply).unwrap().unwrap();
        with_nulls(&mut reply);
        let turn = wire.read_one(&reply).unwrap().unwrap_or_else(|error| panic!("{wire:?}: {error}"));
        assert_eq!(
            (turn.text(), turn.stop_reason, turn.usage),
            (plain.text(), plain.stop_reason, plain.usage),
            "{wire:?}"
        );
        assert_eq!(turn.tool_uses().collect::<Vec<_>>(), plain.tool_uses().collect::<Vec<_>>(), "{wire:?}");
    }
    let mut events = Wire::Chat.events();
    events.iter_mut().for_each(with_nulls);
    same(Wire::Chat, &Wire::Chat.blocks(&events).concat(), "nulls in lists");
    let none = json!({"choices": [{"index": 0, "delta": {"content": "Grüße", "tool_calls": [null]}}]});
    let mut events = Wire::Chat.events();
    events[0] = none;
    same(Wire::Chat, &Wire::Chat.blocks(&events).concat(), "no call");
}

#[test]
fn a_reply_that_asks_for_calls_without_end_is_one_that_asks_for_none() {
    for wire in [Wire::Anthropic, Wire::Responses, Wire::Chat] {
        for (calls, is_taken) in [(MOST_CALLS, true), (MOST_CALLS + 1, false)] {
            let mut reply = wire.whole();
            let list = match wire {
                Wire::Anthropic => &mut reply["content"],
                Wire::Responses => &mut reply["output"],
                Wire::Chat => &mut reply["choices"][0]["message"]["tool_calls"],
            };
            let mut call = list.as_array_mut().unwrap().pop().unwrap();
            for number in 0..calls {
                for name in ["id", "call_id"] {
                    if call.get(name).is_some() {
                        call[name] = json!(format!("{name}{number}"));
                    }
                }
                list.as_array_mut().unwrap().push(call.clone());
            }
            let turn = wire.read_one(&reply).unwrap().unwrap();
            assert_eq!(turn.tool_uses().count(), if is_taken { calls } else { 0 });
            assert!(turn.text().starts_with("Grüße"), "what it says stays: {}", turn.text());
            assert_eq!(turn.text().contains("At most 1000 are taken from one reply"), !is_taken);
            assert_eq!(turn.stop_reason == ua_core::StopReason::Other, !is_taken);
            assert!(is_taken || turn.response_id.is_none(), "what the provider keeps has the calls");
        }
    }
}

/// What a reply cost that has begun is told from its first event on, also by a provider that counts nothing before the end: it may be billed.
#[test]
fn a_reply_that_breaks_off_after_its_first_event_has_begun() {
    #[derive(Default)]
    struct Watch(Mutex<Option<Usage>>);
    impl StreamObserver for Watch {
        fn heard(&self, so_far: Usage) {
            *self.0.lock().unwrap() = Some(so_far);
        }
    }
    let heard = |wire: Wire, events: &[Value]| {
        let watch = Watch::default();
        let text = events.iter().fold(String::new(), |text, event| text + &format!("data: {event}\n\n"));
        let read = wire.read_watched(text.as_bytes(), usize::MAX, &watch);
        let heard = *watch.0.lock().unwrap();
        (read.unwrap_err(), heard)
    };
    for (wire, first) in [
        (Wire::Anthropic, json!({"type": "message_start", "message": {"id": "msg_1", "model": "m"}})),
        (Wire::Responses, json!({"type": "response.created", "response": {"id": "resp_1", "model": "m"}})),
        (Wire::Chat, json!({"id": "c1", "choices": [{"index": 0, "delta": {"role": "assistant"}}]})),
    ] {
        let (error, cut) = heard(wire, std::slice::from_ref(&first));
        assert!(matches!(error, LlmError::Cut { .. }) && cut == Some(Usage::default()), "{wire:?} {error:?} {cut:?}");
        // The chunks of a chat may say the same again, the events of the others may not.
        if wire != Wire::Chat {
            let (error, twice) = heard(wire, &[first.clone(), first]);
            assert!(matches!(error, LlmError::Garbled { .. }), "{wire:?} {error:?}");
            assert_eq!(twice, Some(Usage::default()), "{wire:?}");
        }
        let refused = json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}});
        assert_eq!(heard(wire, &[refused]).1, None, "{wire:?}: nothing began");
    }
}
