//! What was said, for those who ask for it: prompts and replies as events of the target `ua::content`.
//!
//! The shape is that of OpenTelemetry's `gen_ai.input.messages` and `gen_ai.output.messages`. Nothing is put together unless
//! somebody records the target, which no filter does by itself: these events hold whatever people, models and tools said.

use serde_json::{Value, json};
use ua_core::{Block, Message, ModelTurn, Role};
use ua_llm::ModelRequest;

const CONTENT: &str = "ua::content";

/// The request's system prompt and messages.
pub(crate) fn request(request: &ModelRequest) {
    if tracing::enabled!(target: CONTENT, tracing::Level::TRACE) {
        let system = json!([{"type": "text", "content": request.system}]);
        let messages: Vec<Value> = request.messages.iter().map(message).collect();
        let messages = Value::Array(messages);
        tracing::trace!(
            target: CONTENT,
            { gen_ai.system_instructions = %system, gen_ai.input.messages = %messages },
            "gen_ai.input"
        );
    }
}

/// The reply.
pub(crate) fn reply(reply: &ModelTurn) {
    if tracing::enabled!(target: CONTENT, tracing::Level::TRACE) {
        let parts = parts(&reply.blocks);
        let messages = json!([{"role": "assistant", "parts": parts, "finish_reason": reply.stop_reason.as_str()}]);
        tracing::trace!(target: CONTENT, { gen_ai.output.messages = %messages }, "gen_ai.output");
    }
}

fn message(message: &Message) -> Value {
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    json!({"role": role, "parts": parts(&message.blocks)})
}

fn parts(blocks: &[Block]) -> Vec<Value> {
    let part = |block: &Block| match block {
        Block::Text { text } => json!({"type": "text", "content": text}),
        Block::ToolUse(tool) => {
            json!({"type": "tool_call", "id": tool.id, "name": tool.name, "arguments": tool.input})
        }
        Block::ToolResult { tool_use_id, content, .. } => {
            json!({"type": "tool_call_response", "id": tool_use_id, "response": content.as_str()})
        }
        Block::Opaque { .. } => json!({"type": "opaque"}),
    };
    blocks.iter().map(part).collect()
}
