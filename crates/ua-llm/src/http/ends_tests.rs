//! Every word for an end × every place in which servers put it × the three wires × what the reply holds × the ways in which it comes. A reply is
//! whole where everything that speaks of its end says so; otherwise it is cut, withheld, odd or failed, and asks for no tool.

use serde_json::{Map, Value, json};
use ua_core::{ModelTurn, StopReason};

use super::events::{Assemble, read_events, read_whole};
use crate::error::LlmError;
use crate::provider::Silent;
use crate::{anthropic, chat, openai};

/// What a reply is, as far as a runner treats it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It says or asks for all that it wanted to.
    Whole,
    Cut,
    Withheld,
    Odd,
    /// The provider's error.
    Failed,
    /// It is no reply at all.
    None,
}

fn end_of(answer: Option<Result<ModelTurn, LlmError>>) -> End {
    match answer {
        Some(Ok(turn)) => match turn.stop_reason {
            StopReason::EndTurn | StopReason::StopSequence | StopReason::ToolUse => End::Whole,
            StopReason::MaxTokens => End::Cut,
            StopReason::Refusal => End::Withheld,
            StopReason::PauseTurn | StopReason::Other => End::Odd,
        },
        Some(Err(_)) => End::Failed,
        None => End::None,
    }
}

fn read_one(assembler: impl Assemble, reply: &Value) -> Option<Result<ModelTurn, LlmError>> {
    let events = assembler.as_events(reply.as_object()?.clone())?;
    Some(read_whole(&events, "m", assembler, &Silent))
}

/// An object of these fields, without those that are null.
fn object(fields: &[(&str, Value)]) -> Value {
    let said = fields.iter().filter(|(_, value)| !value.is_null());
    Value::Object(said.map(|(name, value)| ((*name).to_owned(), value.clone())).collect::<Map<_, _>>())
}

/// The items of a reply, each with this status.
fn items(status: &Value) -> [Vec<Value>; 3] {
    let message = object(&[
        ("type", json!("message")),
        ("content", json!([{"type": "output_text", "text": "Half of"}])),
        ("status", status.clone()),
    ]);
    let call = object(&[
        ("type", json!("function_call")),
        ("call_id", json!("a")),
        ("name", json!("t")),
        ("arguments", json!("{\"x\":1}")),
        ("status", status.clone()),
    ]);
    [vec![message.clone()], vec![call.clone()], vec![message, call]]
}

#[test]
fn a_response_is_whole_where_its_event_its_status_its_details_and_its_items_say_so() {
    let statuses = ["", "completed", "incomplete", "cancelled", "failed", "in_progress", "queued", "moon"];
    let details = [Value::Null, json!({}), json!({"reason": "max_output_tokens"}), json!({"reason": "content_filter"})];
    let errors =
        [Value::Null, json!({}), json!({"code": 0, "message": ""}), json!({"code": "server_error", "message": "oops"})];
    let mut seen = 0;
    for event in ["completed", "incomplete", "cancelled", "failed", ""] {
        for status in statuses {
            for (details, error) in details.iter().flat_map(|details| errors.iter().map(move |error| (details, error)))
            {
                for of_item in [Value::Null, json!("completed"), json!("incomplete"), json!("in_progress")] {
                    for items in items(&of_item) {
                        let has_failed = [event, status].contains(&"failed") || error["message"] == "oops";
                        let is_said = |word: &str| ["", "completed"].contains(&word);
                        let is_cut = of_item == "incomplete" && is_said(event);
                        let expected = if has_failed {
                            End::Failed
                        } else if details["reason"] == "max_output_tokens" {
                            End::Cut
                        } else if details["reason"] == "content_filter" {
                            End::Withheld
                        } else if event == "completed" && ["in_progress", "queued"].contains(&status) {
                            // It has no end, so it broke off, and is asked for again as what breaks off is.
                            End::Failed
                        } else if is_said(event) && is_said(status) && !is_cut {
                            End::Whole
                        } else {
                            // That it is the length, nobody has said.
                            End::Odd
                        };
                        let head = |output: Vec<Value>| {
                            object(&[
                                ("id", json!("resp_1")),
                                ("output", json!(output)),
                                ("status", if status.is_empty() { Value::Null } else { json!(status) }),
                                ("incomplete_details", details.clone()),
                                ("error", error.clone()),
                            ])
                        };
                        let shown = || format!("{event:?} {}", head(items.clone()));
                        seen += 1;
                        if event.is_empty() {
                            // One object, which no event names: what has no status of an end, or an error beside one, is no reply.
                            let answer = end_of(read_one(openai::Assembler::default(), &head(items.clone())));
                            let is_reply = match status {
                                "failed" => true,
                                "completed" | "incomplete" | "cancelled" => error.is_null(),
                                _ => false,
                            };
                            assert_eq!(answer, if is_reply { expected } else { End::None }, "{}", shown());
                            continue;
                        }
                        let last =
                            |output| json!({"type": format!("response.{event}"), "response": head(output)}).to_string();
                        let created = json!({"type": "response.created", "response": {"id": "resp_1"}}).to_string();
                        let pieces = items.iter().enumerate().map(|(index, item)| {
                            json!({"type": "response.output_item.done", "output_index": index, "item": item})
                                .to_string()
                        });
                        let streamed: Vec<String> =
                            std::iter::once(created).chain(pieces).chain([last(Vec::new())]).collect();
                        for events in [streamed, vec![last(items.clone())]] {
                            let answer = end_of(Some(read_events(openai::Assembler::default(), &events, "m")));
                            assert_eq!(answer, expected, "{}", shown());
                        }
                    }
                }
            }
        }
    }
    assert_eq!(seen, 5 * 8 * 4 * 4 * 4 * 3, "every case was made");
}

/// The words of an end on the other two wires, and what they mean there: a server in between hands on those of the wire behind it.
const WORDS: [(&str, End, End); 16] = [
    // The word, to the Messages API, to Chat Completions.
    ("end_turn", End::Whole, End::Whole),
    ("stop_sequence", End::Whole, End::Whole),
    ("tool_use", End::Whole, End::Whole),
    ("stop", End::Whole, End::Whole),
    ("tool_calls", End::Whole, End::Whole),
    ("max_tokens", End::Cut, End::Cut),
    ("model_context_window_exceeded", End::Cut, End::Cut),
    ("length", End::Cut, End::Cut),
    ("refusal", End::Withheld, End::Withheld),
    ("content_filter", End::Withheld, End::Withheld),
    ("pause_turn", End::Odd, End::Odd),
    ("error", End::Odd, End::Failed),
    ("incomplete", End::Odd, End::Odd),
    ("guardrail_intervened", End::Withheld, End::Withheld),
    ("content_filter: RECITATION", End::Withheld, End::Withheld),
    ("moon", End::Odd, End::Odd),
];

#[test]
fn a_message_is_what_its_stop_reason_says_wherever_it_stands() {
    let text = json!({"type": "text", "text": "Half of"});
    let call = json!({"type": "tool_use", "id": "a", "name": "t", "input": {"x": 1}});
    for (word, expected, _) in WORDS {
        for blocks in [vec![text.clone()], vec![call.clone()], vec![text.clone(), call.clone()]] {
            // In the tail, as the API has it; in the head of a server that makes its events of a whole reply; with a tail that says nothing.
            for (head, tail) in [
                (Value::Null, Some(json!(word))),
                (json!(word), Some(Value::Null)),
                (json!(word), Some(json!(""))),
                (json!(word), None),
                (json!("end_turn"), Some(json!(word))),
            ] {
                let mut events = vec![json!({"type": "message_start", "message": {"id": "m", "stop_reason": head}})];
                for (index, block) in blocks.iter().enumerate() {
                    events.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
                    events.push(json!({"type": "content_block_stop", "index": index}));
                }
                events.extend(tail.iter().map(|tail| json!({"type": "message_delta", "delta": {"stop_reason": tail}})));
                events.push(json!({"type": "message_stop"}));
                let events: Vec<String> = events.iter().map(Value::to_string).collect();
                let answer = end_of(Some(read_events(anthropic::Assembler::default(), &events, "m")));
                assert_eq!(answer, expected, "{events:?}");
            }
            let whole = json!({"type": "message", "id": "m", "content": blocks, "stop_reason": word});
            assert_eq!(end_of(read_one(anthropic::Assembler::default(), &whole)), expected, "{whole}");
        }
    }
}

#[test]
fn a_completion_is_what_its_finish_reason_says_wherever_it_stands() {
    let assembler = || chat::Assembler::new(&super::fault_tests::request());
    let text = json!({"content": "Half of"});
    let call = json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "t", "arguments": "{\"x\":1}"}}]});
    for (word, _, expected) in WORDS {
        for said in [&text, &call] {
            let chunk = |delta: &Value, reason: Value| {
                json!({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}).to_string()
            };
            for mut events in [
                // With what it says, behind it, and with one more chunk that says nothing.
                vec![chunk(said, json!(word))],
                vec![chunk(said, Value::Null), chunk(&json!({}), json!(word))],
                vec![chunk(said, Value::Null), chunk(&json!({}), json!(word)), chunk(&json!({}), Value::Null)],
                vec![chunk(said, Value::Null), chunk(&json!({}), json!(word)), chunk(&json!({}), json!(""))],
            ] {
                for _ in 0..2 {
                    let answer = end_of(Some(read_events(assembler(), &events, "m")));
                    assert_eq!(answer, expected, "{events:?}");
                    events.push("[DONE]".to_owned());
                }
            }
            let whole = json!({"choices": [{"index": 0, "message": said, "finish_reason": word}]});
            assert_eq!(end_of(read_one(assembler(), &whole)), expected, "{whole}");
        }
    }
}
