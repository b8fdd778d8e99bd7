//! The events that `claude --output-format stream-json --include-partial-messages` writes, put together to whole replies.
//!
//! A reply counts when its `message_stop` came; one that another `message_start` overtakes was cut, and is dropped as if it had never
//! been, since the client asks again by itself. Events of sub-agents are not the conversation's.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use ua_core::{Block, StopReason, ToolUse, Usage, count_in};
use ua_llm::{LlmError, Status, heard_so_far};

/// What an event means.
#[derive(Debug)]
pub(crate) enum AgentEvent {
    /// The session's id.
    Session(String),
    /// A tool server that `claude` could not reach, by name.
    NoServer(String),
    /// A request was refused in a way that asking again does not help.
    Refused(LlmError),
    /// A request to the model was sent.
    Asking,
    /// A piece of text.
    Text(String),
    /// A whole reply.
    Reply(Reply),
    /// The prompt is done with: the last words, or why there are none.
    Done(Result<String, LlmError>),
    /// Nothing that matters here.
    Nothing,
}

/// A whole reply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) blocks: Vec<Block>,
    pub(crate) stop_reason: StopReason,
    pub(crate) usage: Usage,
    pub(crate) model: String,
}

impl Reply {
    pub(crate) fn tool_uses(&self) -> impl Iterator<Item = &ToolUse> {
        self.blocks.iter().filter_map(|block| match block {
            Block::ToolUse(tool_use) => Some(tool_use),
            Block::Text { .. } | Block::ToolResult { .. } | Block::Opaque { .. } => None,
        })
    }
}

#[derive(Debug, Default)]
struct Growing {
    model: String,
    usage: Usage,
    stop_reason: Option<StopReason>,
    blocks: BTreeMap<u64, Part>,
}

#[derive(Debug)]
enum Part {
    Text(String),
    Tool { id: String, name: String, json: String },
    Other,
}

/// Puts replies together.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    growing: Option<Growing>,
    /// Qualified names by what `claude` makes of them.
    names: BTreeMap<String, String>,
}

impl Assembler {
    /// For tools with these qualified names. `claude` offers a model only letters, digits, `_` and `-`.
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        Self { growing: None, names: names.map(|name| (as_offered(name), name.to_owned())).collect() }
    }

    /// Reads one event.
    pub(crate) fn hear(&mut self, event: &Value) -> AgentEvent {
        if !event["parent_tool_use_id"].is_null() {
            return AgentEvent::Nothing;
        }
        match (event["type"].as_str().unwrap_or_default(), event["subtype"].as_str().unwrap_or_default()) {
            ("system", "init") => {
                let servers = event["mcp_servers"].as_array().into_iter().flatten();
                let mut failed = servers.filter(|server| server["status"] == "failed");
                match (failed.next(), event["session_id"].as_str()) {
                    (Some(server), _) => AgentEvent::NoServer(text(&server["name"])),
                    (None, Some(session)) => AgentEvent::Session(session.to_owned()),
                    (None, None) => AgentEvent::Nothing,
                }
            }
            // It asks again by itself what may pass. That a key is refused does not pass.
            ("system", "api_retry") => {
                if let Some(status @ (401 | 403)) = event["error_status"].as_u64() {
                    return AgentEvent::Refused(error_of(Some(status), text(&event["error"])));
                }
                tracing::info!(status = %event["error_status"], "claude asks its model again");
                AgentEvent::Asking
            }
            ("system", "status") if event["status"] == "requesting" => AgentEvent::Asking,
            ("stream_event", _) => self.grow(&event["event"]),
            ("result", how) => {
                let said = text(&event["result"]);
                // Some versions say that it failed in one of the two places only.
                if event["is_error"] == true || how.starts_with("error") {
                    let said = if said.is_empty() { errors(event) } else { said };
                    return AgentEvent::Done(Err(error_of(event["api_error_status"].as_u64(), said)));
                }
                AgentEvent::Done(Ok(said))
            }
            _ => AgentEvent::Nothing,
        }
    }

    /// What is known so far of what the reply costs that is coming; `None` between two replies.
    pub(crate) fn heard(&self) -> Option<Usage> {
        let growing = self.growing.as_ref()?;
        let bytes = growing.blocks.values().map(|part| match part {
            Part::Text(written) | Part::Tool { json: written, .. } => written.len(),
            Part::Other => 0,
        });
        heard_so_far(Some(growing.usage), bytes.sum::<usize>() as u64)
    }

    fn grow(&mut self, event: &Value) -> AgentEvent {
        let kind = event["type"].as_str().unwrap_or_default();
        if kind == "message_start" {
            let message = &event["message"];
            let mut growing = Growing { model: text(&message["model"]), ..Growing::default() };
            count(&mut growing.usage, &message["usage"]);
            self.growing = Some(growing);
            return AgentEvent::Asking;
        }
        let Some(growing) = &mut self.growing else { return AgentEvent::Nothing };
        let index = event["index"].as_u64().unwrap_or_default();
        match kind {
            "content_block_start" => {
                let block = &event["content_block"];
                let part = match block["type"].as_str() {
                    Some("text") => Part::Text(text(&block["text"])),
                    Some("tool_use") => {
                        let name = text(&block["name"]);
                        let name = self.names.get(&name).cloned().unwrap_or(name);
                        Part::Tool { id: text(&block["id"]), name, json: String::new() }
                    }
                    Some(_) | None => Part::Other,
                };
                growing.blocks.insert(index, part);
            }
            "content_block_delta" => match (growing.blocks.get_mut(&index), &event["delta"]) {
                (Some(Part::Text(so_far)), delta) if delta["type"] == "text_delta" => {
                    let piece = text(&delta["text"]);
                    so_far.push_str(&piece);
                    return AgentEvent::Text(piece);
                }
                (Some(Part::Tool { json, .. }), delta) if delta["type"] == "input_json_delta" => {
                    json.push_str(delta["partial_json"].as_str().unwrap_or_default());
                }
                _ => {}
            },
            "message_delta" => {
                growing.stop_reason = event["delta"]["stop_reason"].as_str().map(stop_reason);
                count(&mut growing.usage, &event["usage"]);
            }
            "message_stop" => {
                return self.growing.take().map_or(AgentEvent::Nothing, |growing| AgentEvent::Reply(growing.whole()));
            }
            _ => {}
        }
        AgentEvent::Nothing
    }
}

impl Growing {
    fn whole(self) -> Reply {
        let block = |part| match part {
            Part::Text(text) => (!text.trim().is_empty()).then(|| Block::text(text)),
            Part::Tool { id, name, json } => {
                let json = if json.trim().is_empty() { "{}".to_owned() } else { json };
                let input = serde_json::from_str(&json).unwrap_or(Value::String(json));
                Some(Block::ToolUse(ToolUse { id, name, input }))
            }
            Part::Other => None,
        };
        Reply {
            blocks: self.blocks.into_values().filter_map(block).collect(),
            stop_reason: self.stop_reason.unwrap_or(StopReason::Other),
            usage: self.usage,
            model: self.model,
        }
    }
}

/// A qualified name as `claude` offers it to its model.
pub(crate) fn as_offered(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect()
}

fn stop_reason(reason: &str) -> StopReason {
    reason.parse().unwrap_or(StopReason::Other)
}

/// Takes over the counts that are told and that a reply can have; a later event knows better.
fn count(usage: &mut Usage, told: &Value) {
    let take = |field: &str, into: &mut u64| {
        if let Some(tokens) = count_in(&told[field]) {
            *into = tokens;
        }
    };
    take("input_tokens", &mut usage.input_tokens);
    take("output_tokens", &mut usage.output_tokens);
    take("cache_read_input_tokens", &mut usage.cache_read_tokens);
    take("cache_creation_input_tokens", &mut usage.cache_write_tokens);
}

fn errors(event: &Value) -> String {
    let all: Vec<String> = event["errors"].as_array().into_iter().flatten().map(text).collect();
    if all.is_empty() { text(&event["subtype"]) } else { all.join("; ") }
}

/// What `claude` reports about a request that failed for good, in the words of every other provider.
fn error_of(status: Option<u64>, message: String) -> LlmError {
    let retry_after: Option<Duration> = None;
    match status.and_then(|status| u16::try_from(status).ok()) {
        Some(status @ 402) => LlmError::Unpaid { status: Status::Http(status), message },
        Some(status @ (401 | 403)) => LlmError::Unauthorized { status: Status::Http(status), message },
        Some(404) => LlmError::NotFound { model: String::new(), message },
        Some(429) => LlmError::RateLimited { retry_after, until_reset: None, message },
        Some(503 | 529) => LlmError::Overloaded { retry_after, message },
        Some(status @ (408 | 409 | 500..)) => {
            LlmError::Server { status: Some(Status::Http(status)), retry_after, message }
        }
        Some(status) => LlmError::InvalidRequest { status: Status::Http(status), message },
        None => LlmError::Server { status: None, retry_after, message },
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::MOST_COUNTED;

    use super::*;

    fn stream(event: &Value) -> Value {
        json!({"type": "stream_event", "event": event, "session_id": "s", "parent_tool_use_id": null})
    }

    fn start() -> Value {
        let usage = json!({"input_tokens": 10, "output_tokens": 1, "cache_read_input_tokens": 3});
        stream(&json!({"type": "message_start", "message": {"model": "m", "usage": usage}}))
    }

    fn block(index: u64, start: &Value, deltas: &[Value]) -> Vec<Value> {
        let mut all = vec![stream(&json!({"type": "content_block_start", "index": index, "content_block": start}))];
        all.extend(deltas.iter().map(|d| stream(&json!({"type": "content_block_delta", "index": index, "delta": d}))));
        all.push(stream(&json!({"type": "content_block_stop", "index": index})));
        all
    }

    fn end(reason: &str) -> Vec<Value> {
        let delta = json!({"stop_reason": reason});
        vec![
            stream(&json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 17}})),
            stream(&json!({"type": "message_stop"})),
        ]
    }

    fn replies(events: impl IntoIterator<Item = Value>) -> Vec<Reply> {
        let mut assembler = Assembler::new(["mcp__mail__send.now"].into_iter());
        let heard = events.into_iter().map(|event| assembler.hear(&event));
        heard.filter_map(|heard| if let AgentEvent::Reply(reply) = heard { Some(reply) } else { None }).collect()
    }

    #[test]
    fn a_reply_is_put_together_and_a_tool_has_its_own_name_again() {
        let tool = json!({"type": "tool_use", "id": "t1", "name": "mcp__mail__send_now", "input": {}});
        let pieces = [
            json!({"type": "input_json_delta", "partial_json": "{\"to\":"}),
            json!({"type": "input_json_delta", "partial_json": " \"a\"}"}),
        ];
        let mut events = vec![start()];
        events.extend(block(0, &json!({"type": "thinking", "thinking": ""}), &[json!({"type": "thinking_delta"})]));
        events.extend(block(1, &json!({"type": "text", "text": ""}), &[json!({"type": "text_delta", "text": "Now."})]));
        events.extend(block(2, &tool, &pieces));
        events.extend(end("tool_use"));
        let usage = Usage { input_tokens: 10, output_tokens: 17, cache_read_tokens: 3, cache_write_tokens: 0 };
        let input = json!({"to": "a"});
        let tool_use = ToolUse { id: "t1".into(), name: "mcp__mail__send.now".into(), input };
        let blocks = vec![Block::text("Now."), Block::ToolUse(tool_use)];
        assert_eq!(replies(events), [Reply { blocks, stop_reason: StopReason::ToolUse, usage, model: "m".into() }]);
    }

    #[test]
    fn a_count_that_no_reply_can_have_is_not_told() {
        let mut usage = Usage::default();
        count(&mut usage, &json!({"input_tokens": 10, "output_tokens": MOST_COUNTED}));
        let told = usage;
        count(
            &mut usage,
            &json!({"input_tokens": u64::MAX, "output_tokens": MOST_COUNTED + 1, "cache_read_input_tokens": -1}),
        );
        assert_eq!((usage, told.input_tokens, told.output_tokens), (told, 10, MOST_COUNTED));
    }

    #[test]
    fn a_reply_that_was_cut_and_begun_anew_is_one_reply() {
        let say =
            |text: &str| block(0, &json!({"type": "text", "text": ""}), &[json!({"type": "text_delta", "text": text})]);
        let events = [vec![start()], say("cut"), vec![start()], say("whole"), end("end_turn")].concat();
        let replies = replies(events);
        assert_eq!(replies.len(), 1);
        assert_eq!(replies[0].blocks, [Block::text("whole")]);
    }

    #[test]
    fn what_a_sub_agent_says_is_not_the_conversation() {
        let mut event = start();
        event["parent_tool_use_id"] = json!("t9");
        let events = [vec![event], end("end_turn")].concat();
        assert_eq!(replies(events), []);
    }

    #[test]
    fn a_failed_request_reads_as_with_any_provider() {
        let mut assembler = Assembler::default();
        let mut hear = |status: Value| {
            let event = json!({"type": "result", "subtype": "success", "is_error": true, "api_error_status": status, "result": "no"});
            let AgentEvent::Done(Err(error)) = assembler.hear(&event) else { panic!("no error") };
            (error.may_retry(), error.left_us(), error.was_refused())
        };
        assert_eq!(hear(json!(401)), (false, true, true));
        assert_eq!(hear(json!(429)), (true, true, true));
        assert_eq!(hear(json!(529)), (true, true, true));
        assert_eq!(hear(json!(400)), (false, true, true));
        assert_eq!(hear(json!(500)), (true, true, true));
        assert_eq!(hear(json!(null)), (true, true, false));
        let retry =
            json!({"type": "system", "subtype": "api_retry", "error_status": 401, "error": "authentication_failed"});
        assert!(matches!(
            Assembler::default().hear(&retry),
            AgentEvent::Refused(LlmError::Unauthorized { status: Status::Http(401), .. })
        ));
    }
}
