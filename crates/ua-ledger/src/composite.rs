//! The one answer to a composite tool use, put together from those of its actions.
//!
//! Durable Jobs v1 spec §7.4. A pure function of stored rows, as each action's own answer is. Invariant: every action has its place, in the
//! order in which it was asked for, whatever became of the others.

use serde_json::{Value, json};
use ua_core::ToolContent;
use ua_store::CallRecord;

/// Puts the answers of a tool use's actions together: `{"results": [{"tool", "ok", "answer"}, …]}`. Large answers have to be whole.
/// It counts as an error when no action succeeded.
pub fn answer_together(actions: &[(CallRecord, ToolContent)]) -> ToolContent {
    let results: Vec<Value> = actions.iter().map(|(call, content)| result_of(call, content)).collect();
    let is_error = actions.iter().all(|(_, content)| content.is_error);
    ToolContent { text: json!({ "results": results }).to_string().into(), is_error }
}

fn result_of(call: &CallRecord, content: &ToolContent) -> Value {
    // What is JSON stays JSON; a number or a word alone is rather meant as text.
    let answer =
        serde_json::from_str(&content.text).ok().filter(|answer: &Value| answer.is_object() || answer.is_array());
    let answer = answer.unwrap_or_else(|| Value::String(content.text.to_string()));
    json!({"tool": call.name.tool, "ok": !content.is_error, "answer": answer})
}
