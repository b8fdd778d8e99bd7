//! From the events of a stream to one whole reply. Pure: it is fed the JSON of one event after the other.
//!
//! A reply exists only after `message_stop`, or where the stream ended in good order behind the reason for which the message stopped: it is whole
//! then, and some servers in between leave out the rest. Events and block types that this build does not know are tolerated, since
//! the API adds new ones; an order of events that cannot be read is not.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use ua_core::{Block, ModelTurn, StopReason, ToolUse, Usage, parse_strict};

use crate::ANTHROPIC;
use crate::chat::as_text::{Offered, WRITTEN, is_call_in_text, offered_in};
use crate::chat::names::ANTHROPIC_LONGEST;
use crate::estimate::heard_so_far;
use crate::http::events::{Assemble, Fault, Progress, ended_with, in_words, is_end_mark, known_event, object_of};
use crate::http::lenient::{self, without_nulls};
use crate::http::reject::kind_of as kind_of_error;
use crate::http::stop_words::{CONTEXT_IS_FULL, stop_reason};
use crate::provider::Ending;
use crate::request::ModelRequest;

/// The part of a reply that has arrived.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    started: Option<Started>,
    /// The tools as they are offered on this wire.
    offered: Offered,
    /// Whether it asks for one of them in its text alone.
    is_call_in_text: bool,
    blocks: BTreeMap<u64, Partial>,
    /// The word for why the message ends, and what is said about it.
    stop_reason: Option<String>,
    stop_details: Value,
    /// Whether what ends a message has come.
    has_tail: bool,
    usage: WireUsage,
    text_bytes: usize,
    /// Bytes of thoughts and arguments that have arrived.
    other_bytes: usize,
}

#[derive(Debug)]
struct Started {
    id: Option<String>,
    model: String,
}

#[derive(Debug)]
struct Partial {
    /// The block as it started, with the text that has been appended to it.
    value: Map<String, Value>,
    /// The input's JSON, as far as it has arrived.
    input: String,
    closed: bool,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    MessageStart {
        #[serde(default, deserialize_with = "lenient::maybe")]
        message: Option<MessageHead>,
    },
    ContentBlockStart {
        #[serde(default, deserialize_with = "lenient::count")]
        index: Option<u64>,
        content_block: Map<String, Value>,
    },
    ContentBlockDelta {
        #[serde(default, deserialize_with = "lenient::count")]
        index: Option<u64>,
        delta: Delta,
    },
    ContentBlockStop {
        #[serde(default, deserialize_with = "lenient::count")]
        index: Option<u64>,
    },
    MessageDelta {
        #[serde(default, deserialize_with = "lenient::maybe")]
        delta: Option<MessageTail>,
        #[serde(default, deserialize_with = "lenient::maybe")]
        usage: Option<WireUsage>,
    },
    MessageStop,
    #[serde(other)]
    Unknown,
}

#[derive(Default, Deserialize)]
struct MessageHead {
    #[serde(default, deserialize_with = "lenient::text")]
    id: Option<String>,
    #[serde(default, deserialize_with = "lenient::text")]
    model: Option<String>,
    /// From a server that makes its events of a whole reply.
    #[serde(default, deserialize_with = "lenient::text")]
    stop_reason: Option<String>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    usage: Option<WireUsage>,
}

#[derive(Default, Deserialize)]
struct MessageTail {
    #[serde(default, deserialize_with = "lenient::text")]
    stop_reason: Option<String>,
    #[serde(default)]
    stop_details: Value,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Delta {
    #[serde(rename = "text_delta")]
    Text {
        #[serde(default)]
        text: Option<String>,
    },
    #[serde(rename = "input_json_delta")]
    Input {
        #[serde(default)]
        partial_json: Option<String>,
    },
    #[serde(rename = "thinking_delta")]
    Thinking {
        #[serde(default)]
        thinking: Option<String>,
    },
    #[serde(rename = "signature_delta")]
    Signature {
        #[serde(default)]
        signature: Option<String>,
    },
    #[serde(other)]
    Unknown,
}

#[expect(clippy::struct_field_names, reason = "these are the API's names")]
/// Cumulative counts; a later event replaces what it names.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
struct WireUsage {
    #[serde(default, deserialize_with = "lenient::count")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    output_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    cache_read_input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    cache_creation_input_tokens: Option<u64>,
}

impl Assemble for Assembler {
    fn feed(&mut self, data: &str) -> Result<Progress, Fault> {
        if is_end_mark(data) {
            return Ok(Progress::Nothing);
        }
        let event = object_of(data)?;
        match event.get("type").and_then(Value::as_str) {
            Some("error") => return Err(reported(&event)),
            // A proxy's way to say it.
            None if event.get("error").is_some_and(|error| !error.is_null()) => return Err(reported(&event)),
            None => return Ok(Progress::Nothing),
            Some(_) => {}
        }
        match known_event(event)? {
            Event::MessageStart { message } => self.start(message.unwrap_or_default()),
            Event::ContentBlockStart { index, content_block } => {
                let index = index.unwrap_or_else(|| self.blocks.keys().next_back().map_or(0, |last| last + 1));
                self.open(index, content_block)
            }
            Event::ContentBlockDelta { index, delta } => self.extend(self.place(index), delta),
            Event::ContentBlockStop { index } => {
                self.partial(self.place(index))?.closed = true;
                Ok(Progress::Nothing)
            }
            Event::MessageDelta { delta, usage } => {
                self.usage.update(usage);
                if let Some(MessageTail { stop_reason, stop_details }) = delta {
                    self.has_tail = true;
                    self.stop_reason = stop_reason.filter(|reason| !reason.is_empty()).or(self.stop_reason.take());
                    if !stop_details.is_null() {
                        self.stop_details = stop_details;
                    }
                }
                Ok(Progress::Nothing)
            }
            Event::MessageStop => self.finish().map(Progress::Whole),
            Event::Unknown => Ok(Progress::Nothing),
        }
    }

    fn end(&mut self) -> Option<Result<ModelTurn, Fault>> {
        let is_told = self.has_tail && self.stop_reason.is_some() && self.blocks.values().all(|partial| partial.closed);
        (is_told && self.started.is_some()).then(|| self.finish())
    }

    fn as_events(&self, mut reply: Map<String, Value>) -> Option<Vec<String>> {
        let is_error = reply.get("error").is_some_and(|error| !error.is_null());
        let is_message = reply.get("type").is_none_or(|kind| kind == "message");
        let Some(Value::Array(blocks)) = reply.remove("content").filter(|_| is_message && !is_error) else {
            return None;
        };
        let mut taken = |field: &str| reply.remove(field).unwrap_or_default();
        let tail = json!({"stop_reason": taken("stop_reason"), "stop_details": taken("stop_details")});
        let mut events = vec![json!({"type": "message_start", "message": reply})];
        for (index, block) in without_nulls(blocks).into_iter().enumerate() {
            events.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
            events.push(json!({"type": "content_block_stop", "index": index}));
        }
        events.push(json!({"type": "message_delta", "delta": tail}));
        events.push(json!({"type": "message_stop"}));
        Some(events.iter().map(Value::to_string).collect())
    }

    fn has_begun(&self) -> bool {
        self.started.is_some()
    }

    fn counted(&self) -> Option<Usage> {
        heard_so_far(self.usage.total(), (self.text_bytes + self.other_bytes) as u64)
    }

    fn text_bytes(&self) -> usize {
        self.text_bytes
    }

    fn ending(&self) -> Ending {
        let reason = self.stop_reason.as_deref().unwrap_or_default();
        let said = ended_with(reason, &self.stop_details);
        let said = if self.is_call_in_text { format!("{said}; {WRITTEN}") } else { said };
        Ending { said, context_is_full: reason == CONTEXT_IS_FULL }
    }
}

impl Assembler {
    /// Nothing has arrived yet of the reply to `request`.
    pub(crate) fn new(request: &ModelRequest) -> Self {
        Self { offered: offered_in(request, ANTHROPIC_LONGEST), ..Self::default() }
    }

    fn start(&mut self, message: MessageHead) -> Result<Progress, Fault> {
        if self.started.is_some() {
            return Err(Fault::Nonsense("a second message starts inside the first".to_owned()));
        }
        self.usage.update(message.usage);
        self.stop_reason = message.stop_reason.filter(|reason| !reason.is_empty());
        let progress = message.id.clone().map_or(Progress::Nothing, Progress::Session);
        self.started = Some(Started { id: message.id, model: message.model.unwrap_or_default() });
        Ok(progress)
    }

    fn open(&mut self, index: u64, value: Map<String, Value>) -> Result<Progress, Fault> {
        if self.started.is_none() {
            return Err(Fault::Nonsense("a block starts before the message does".to_owned()));
        }
        let text = if kind_of(&value) == "text" { text_of(&value, "text") } else { String::new() };
        if self.blocks.insert(index, Partial { value, input: String::new(), closed: false }).is_some() {
            return Err(Fault::Nonsense(format!("block {index} starts twice")));
        }
        self.text_bytes += text.len();
        Ok(if text.is_empty() { Progress::Nothing } else { Progress::Text(text) })
    }

    fn extend(&mut self, index: u64, delta: Delta) -> Result<Progress, Fault> {
        let partial = self.partial(index)?;
        if partial.closed {
            return Err(Fault::Nonsense(format!("block {index} continues after its end")));
        }
        match delta {
            Delta::Text { text } => {
                let text = text.unwrap_or_default();
                append(&mut partial.value, "text", &text);
                self.text_bytes += text.len();
                return Ok(Progress::Text(text));
            }
            Delta::Input { partial_json } => {
                let partial_json = partial_json.unwrap_or_default();
                partial.input.push_str(&partial_json);
                self.other_bytes += partial_json.len();
            }
            Delta::Thinking { thinking } => {
                let thinking = thinking.unwrap_or_default();
                append(&mut partial.value, "thinking", &thinking);
                self.other_bytes += thinking.len();
            }
            Delta::Signature { signature } => append(&mut partial.value, "signature", &signature.unwrap_or_default()),
            Delta::Unknown => {}
        }
        Ok(Progress::Nothing)
    }

    /// The block that an event belongs to: one that does not say goes on with the newest.
    fn place(&self, index: Option<u64>) -> u64 {
        index.or_else(|| self.blocks.keys().next_back().copied()).unwrap_or(0)
    }

    fn partial(&mut self, index: u64) -> Result<&mut Partial, Fault> {
        self.blocks.get_mut(&index).ok_or_else(|| Fault::Nonsense(format!("block {index} never started")))
    }

    fn finish(&mut self) -> Result<ModelTurn, Fault> {
        let nonsense = |why: &str| Fault::Nonsense(format!("the message ends {why}"));
        let started = self.started.take().ok_or_else(|| nonsense("before it started"))?;
        if self.stop_reason.is_none() && !self.has_tail {
            return Err(nonsense("without a stop reason"));
        }
        if self.blocks.values().any(|partial| !partial.closed) {
            return Err(nonsense("inside a block"));
        }
        let blocks: Vec<Block> = std::mem::take(&mut self.blocks).into_values().filter_map(block).collect();
        let asks = blocks.iter().any(|block| matches!(block, Block::ToolUse(_)));
        let stop_reason = match self.stop_reason.as_deref().map(stop_reason) {
            // A server in between that knows no better says `end_turn` behind whole calls, or nothing: what was asked for in whole was asked for.
            Some(StopReason::EndTurn) | None if asks => StopReason::ToolUse,
            Some(reason) => reason,
            // It ended, and nobody knows how: a text may have been cut.
            None if blocks.is_empty() => StopReason::EndTurn,
            None => StopReason::Other,
        };
        self.is_call_in_text = is_call_in_text(stop_reason, &blocks, &self.offered);
        let stop_reason = if self.is_call_in_text { StopReason::ToolUse } else { stop_reason };
        Ok(ModelTurn { blocks, stop_reason, usage: self.usage.total(), model: started.model, response_id: started.id })
    }
}

impl WireUsage {
    fn update(&mut self, later: Option<Self>) {
        let Some(later) = later else { return };
        // A count of nothing takes back none: servers that count only at the start write it at the end.
        let counted = later.input_tokens.filter(|count| *count > 0);
        self.input_tokens = counted.or(self.input_tokens).or(later.input_tokens);
        // At the start it is a placeholder.
        self.output_tokens = later.output_tokens.or(self.output_tokens);
        self.cache_read_input_tokens = later.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.cache_creation_input_tokens = later.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
    }

    /// `None` when the provider counted nothing. What came from a cache says nothing of the input where the rest was not counted.
    fn total(self) -> Option<Usage> {
        let output_tokens = self.output_tokens.unwrap_or(0);
        let Some(input_tokens) = self.input_tokens else {
            return self.output_tokens.map(|_| Usage { output_tokens, ..Usage::default() });
        };
        Some(Usage {
            input_tokens,
            output_tokens,
            cache_read_tokens: self.cache_read_input_tokens.unwrap_or(0),
            cache_write_tokens: self.cache_creation_input_tokens.unwrap_or(0),
        })
    }
}

/// What an event reports: an object with a type and a message, or just words.
fn reported(event: &Map<String, Value>) -> Fault {
    let error = event.get("error").unwrap_or(&Value::Null);
    let kind = kind_of_error(error);
    let message = [&error["message"], error, event.get("message").unwrap_or(&Value::Null)];
    let message = message.into_iter().find(|place| !place.is_null()).map(in_words);
    Fault::Reported { kind, message: message.unwrap_or_else(|| "no explanation was given".to_owned()) }
}

fn block(partial: Partial) -> Option<Block> {
    let Partial { mut value, input, .. } = partial;
    match kind_of(&value) {
        "text" => Some(Block::Text { text: text_of(&value, "text") }).filter(|b| *b != Block::text("")),
        "tool_use" => Some(Block::ToolUse(ToolUse {
            id: text_of(&value, "id"),
            name: text_of(&value, "name"),
            input: read_input(value.remove("input"), input),
        })),
        _ => {
            if !input.is_empty() {
                value.insert("input".to_owned(), read_input(None, input));
            }
            Some(Block::Opaque { provider: ANTHROPIC.to_owned(), value: Value::Object(value) })
        }
    }
}

/// The streamed input, parsed; its text when it is not JSON of one meaning, so that the dispatcher can refuse it. Where none was streamed, it is what
/// the block began with: an object, or from servers that speak other wires as well its text, or nothing.
fn read_input(at_start: Option<Value>, streamed: String) -> Value {
    let text = if streamed.trim().is_empty() {
        match at_start {
            Some(Value::String(text)) => text,
            None | Some(Value::Null) => String::new(),
            Some(whole @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_))) => return whole,
        }
    } else {
        streamed
    };
    if text.trim().is_empty() {
        return Value::Object(Map::new());
    }
    parse_strict(&text).unwrap_or(Value::String(text))
}

fn kind_of(value: &Map<String, Value>) -> &str {
    value.get("type").and_then(Value::as_str).unwrap_or_default()
}

fn text_of(value: &Map<String, Value>, field: &str) -> String {
    value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn append(value: &mut Map<String, Value>, field: &str, more: &str) {
    match value.get_mut(field) {
        Some(Value::String(text)) => text.push_str(more),
        Some(_) | None => {
            value.insert(field.to_owned(), Value::String(more.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const START: &str = r#"{"type":"message_start","message":{"id":"msg_1","model":"claude-x","usage":{"input_tokens":7,"output_tokens":1}}}"#;
    const STOP: &str = r#"{"type":"message_stop"}"#;

    fn feed_all(events: &[&str]) -> Result<Progress, Fault> {
        let mut assembler = Assembler::default();
        let mut last = Progress::Nothing;
        for event in events {
            last = assembler.feed(event)?;
        }
        Ok(last)
    }

    fn end(reason: &str) -> String {
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}}).to_string()
    }

    fn whole(events: &[&str], reason: &str) -> ModelTurn {
        let end = end(reason);
        let all: Vec<&str> = [START].into_iter().chain(events.iter().copied()).chain([end.as_str(), STOP]).collect();
        match feed_all(&all) {
            Ok(Progress::Whole(turn)) => turn,
            other => panic!("no whole reply: {other:?}"),
        }
    }

    #[test]
    fn an_input_streamed_in_pieces_is_parsed_as_one() {
        let turn = whole(
            &[
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"t","input":{}}}"#,
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}"#,
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":" [1]}"}}"#,
                r#"{"type":"content_block_stop","index":0}"#,
            ],
            "tool_use",
        );
        let expected = ModelTurn {
            blocks: vec![Block::ToolUse(ToolUse { id: "toolu_1".into(), name: "t".into(), input: json!({"a": [1]}) })],
            stop_reason: StopReason::ToolUse,
            usage: Some(Usage { input_tokens: 7, output_tokens: 9, ..Usage::default() }),
            model: "claude-x".into(),
            response_id: Some("msg_1".into()),
        };
        assert_eq!(turn, expected);
    }

    #[test]
    fn an_input_of_no_pieces_is_an_empty_object_and_a_broken_one_stays_text() {
        for (piece, expected) in
            [("", json!({})), (r#"{"a": 1"#, json!(r#"{"a": 1"#)), (r#"{"a":1,"a":2}"#, json!(r#"{"a":1,"a":2}"#))]
        {
            let delta = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": piece}});
            let turn = whole(
                &[
                    r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"t","input":{}}}"#,
                    &delta.to_string(),
                    r#"{"type":"content_block_stop","index":0}"#,
                ],
                "tool_use",
            );
            assert_eq!(turn.tool_uses().next().unwrap().input, expected);
        }
    }

    /// A proxy writes the input as another wire has it: as a text, or as nothing where there are no arguments.
    #[test]
    fn an_input_that_a_block_begins_with_is_read_as_on_the_other_wires() {
        for (input, expected) in [
            (json!({"a": 1}), json!({"a": 1})),
            (json!("{\"a\": 1}"), json!({"a": 1})),
            (json!("{\"a\": "), json!("{\"a\": ")),
            (json!(""), json!({})),
            (json!(" "), json!({})),
            (Value::Null, json!({})),
            (json!([1]), json!([1])),
        ] {
            let block = json!({"type": "tool_use", "id": "toolu_1", "name": "t", "input": input});
            let start = json!({"type": "content_block_start", "index": 0, "content_block": block}).to_string();
            let turn = whole(&[&start, r#"{"type":"content_block_stop","index":0}"#], "tool_use");
            assert_eq!(turn.tool_uses().next().unwrap().input, expected, "{start}");
        }
    }

    /// Some servers in between end every stream as another wire does, and leave out this one's own end.
    #[test]
    fn the_end_of_another_wire_is_no_event() {
        let (mut assembler, tail) = (Assembler::default(), end("end_turn"));
        for event in [START, tail.as_str(), "[DONE]"] {
            assert!(!matches!(assembler.feed(event), Ok(Progress::Whole(_)) | Err(_)), "{event}");
        }
        assert!(matches!(assembler.end(), Some(Ok(turn)) if turn.stop_reason == StopReason::EndTurn));
    }

    #[test]
    fn blocks_that_only_the_provider_understands_are_carried_whole() {
        let turn = whole(
            &[
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Let me "}}"#,
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"see."}}"#,
                r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQB=="}}"#,
                r#"{"type":"content_block_stop","index":0}"#,
                r#"{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"xyz"}}"#,
                r#"{"type":"content_block_stop","index":1}"#,
                r#"{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}"#,
                r#"{"type":"content_block_stop","index":2}"#,
            ],
            "end_turn",
        );
        let opaque = |value| Block::Opaque { provider: "anthropic".into(), value };
        assert_eq!(
            turn.blocks,
            [
                opaque(json!({"type": "thinking", "thinking": "Let me see.", "signature": "EqQB=="})),
                opaque(json!({"type": "redacted_thinking", "data": "xyz"})),
            ]
        );
    }

    /// A call that is whole is one, whether its reply says that it ends to be answered or not; one behind another end is not made.
    #[test]
    fn a_whole_call_behind_a_plain_end_is_a_call() {
        let call = [
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"t","input":{"a":1}}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
        ];
        for reason in StopReason::ALL {
            let expected = if *reason == StopReason::EndTurn { StopReason::ToolUse } else { *reason };
            assert_eq!(whole(&call, reason.as_str()).stop_reason, expected);
            assert_eq!(whole(&[], reason.as_str()).stop_reason, *reason);
        }
    }

    #[test]
    fn pings_and_unknown_events_change_nothing() {
        let ping = r#"{"type":"ping"}"#;
        let end = end("end_turn");
        let events = [
            ping,
            START,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"from_the_future","index":{"any":"thing"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{}}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            ping,
            &end,
            STOP,
        ];
        assert!(matches!(feed_all(&events), Ok(Progress::Whole(turn)) if turn.blocks == [Block::text("hi")]));
    }

    #[test]
    fn usage_that_was_never_given_is_none_and_a_zero_is_a_zero() {
        let head = r#"{"type":"message_start","message":{"id":"msg_1","model":"m"}}"#;
        let tail = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
        assert!(matches!(feed_all(&[head, tail, STOP]), Ok(Progress::Whole(turn)) if turn.usage.is_none()));
        let zero = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":0,"input_tokens":null,"cache_read_input_tokens":5}}"#;
        assert!(
            matches!(feed_all(&[head, zero, STOP]), Ok(Progress::Whole(turn)) if turn.usage == Some(Usage::default()))
        );
    }

    #[test]
    fn a_message_that_ends_for_no_stated_reason_is_whole() {
        let tail = r#"{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":3}}"#;
        let open = |block: &str| format!(r#"{{"type":"content_block_start","index":0,"content_block":{block}}}"#);
        let close = r#"{"type":"content_block_stop","index":0}"#;
        let (text, call) =
            (open(r#"{"type":"text","text":"So"}"#), open(r#"{"type":"tool_use","id":"a","name":"t","input":{}}"#));
        for (events, expected) in [
            (vec![START, tail, STOP], StopReason::EndTurn),
            (vec![START, &text, close, tail, STOP], StopReason::Other),
            (vec![START, &call, close, tail, STOP], StopReason::ToolUse),
        ] {
            let ended = feed_all(&events).unwrap();
            assert!(matches!(&ended, Progress::Whole(turn) if turn.stop_reason == expected), "{ended:?}");
        }
        assert!(feed_all(&[START, &text, tail, STOP]).is_err(), "inside a block");
    }

    #[test]
    fn an_order_of_events_that_makes_no_sense_is_a_fault() {
        let open = r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
        let more = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}"#;
        let close = r#"{"type":"content_block_stop","index":0}"#;
        let end = end("end_turn");
        let cases: [&[&str]; 8] = [
            &["{not json"],
            &[STOP],
            &[open],
            &[START, START],
            &[START, more],
            &[START, open, close, more],
            &[START, STOP],
            &[START, open, &end, STOP],
        ];
        for events in cases {
            assert!(matches!(feed_all(events), Err(Fault::Nonsense(_))), "{events:?}");
        }
    }

    #[test]
    fn an_error_inside_the_stream_is_told_with_its_type() {
        let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        let expected = Fault::Reported { kind: "overloaded_error".into(), message: "Overloaded".into() };
        assert_eq!(feed_all(&[START, error]), Err(expected));
    }
}
