//! Which histories a provider accepts.

use std::collections::HashSet;

use ua_core::{Block, Message, Role};

/// Checks that the first message is the user's and that every tool use is answered exactly once, in the very next user
/// message, and that nothing else is answered. Neighbouring messages of one role count as one, as providers read them.
///
/// # Errors
/// Says which tool use is at fault, in words that fit after "the history is invalid: ".
pub fn check_history(messages: &[Message]) -> Result<(), String> {
    match messages.first().map(|message| message.role) {
        None => return Err("it has no messages".to_owned()),
        Some(Role::Assistant) => return Err("the first message is not the user's".to_owned()),
        Some(Role::User) => {}
    }
    let mut seen = HashSet::with_capacity(messages.len());
    // Those of one reply, which are few.
    let mut open: Vec<&str> = Vec::new();
    for speech in messages.chunk_by(|a, b| a.role == b.role) {
        let role = speech[0].role;
        for block in speech.iter().flat_map(|message| &message.blocks) {
            match (role, block) {
                (Role::Assistant, Block::ToolUse(tool_use)) => {
                    if !seen.insert(tool_use.id.as_str()) {
                        return Err(format!("the id {} is used by two tool uses", tool_use.id));
                    }
                    open.push(&tool_use.id);
                }
                (Role::User, Block::ToolResult { tool_use_id, .. }) => {
                    match open.iter().position(|id| id == tool_use_id) {
                        Some(place) => {
                            open.swap_remove(place);
                        }
                        None => return Err(stray_result(tool_use_id, &seen)),
                    }
                }
                (Role::User, Block::ToolUse(tool_use)) => {
                    return Err(format!("the tool use {} is in a user message", tool_use.id));
                }
                (Role::Assistant, Block::ToolResult { tool_use_id, .. }) => {
                    return Err(format!("the result of {tool_use_id} is in an assistant message"));
                }
                (Role::User | Role::Assistant, Block::Text { .. } | Block::Opaque { .. }) => {}
            }
        }
        if let (Role::User, Some(unanswered)) = (role, open.iter().min()) {
            return Err(format!("the tool use {unanswered} has no result in the next user message"));
        }
    }
    match open.iter().min() {
        Some(unanswered) => Err(format!("the tool use {unanswered} has no result")),
        None => Ok(()),
    }
}

fn stray_result(id: &str, seen: &HashSet<&str>) -> String {
    if seen.contains(id) {
        format!("the tool use {id} is answered twice, or not in the next user message")
    } else {
        format!("the result of {id} answers no tool use")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::{Origin, ToolUse};

    use super::*;

    fn uses(ids: &[&str]) -> Message {
        let blocks = ids
            .iter()
            .map(|id| Block::ToolUse(ToolUse { id: (*id).into(), name: "t".into(), input: json!({}) }))
            .collect();
        Message { role: Role::Assistant, origin: Origin::Model, blocks }
    }

    fn results(ids: &[&str]) -> Message {
        let blocks = ids
            .iter()
            .map(|id| Block::ToolResult { tool_use_id: (*id).into(), content: "ok".into(), is_error: false })
            .collect();
        Message { role: Role::User, origin: Origin::Tools, blocks }
    }

    fn prompt() -> Message {
        Message::user(Origin::Prompt, "go")
    }

    #[test]
    fn a_history_whose_every_tool_use_is_answered_once_is_valid() {
        let note = Message::user(Origin::Resume, "you were interrupted");
        let history =
            [prompt(), uses(&["a", "b"]), note, results(&["b"]), results(&["a"]), uses(&["c"]), results(&["c"])];
        assert_eq!(check_history(&history), Ok(()));
    }

    #[test]
    fn every_other_history_is_refused_with_the_id_at_fault() {
        let cases = [
            (vec![], "it has no messages"),
            (vec![uses(&["a"])], "the first message is not the user's"),
            (vec![prompt(), uses(&["a"])], "the tool use a has no result"),
            (vec![prompt(), uses(&["a"]), prompt()], "the tool use a has no result in the next user message"),
            (
                vec![prompt(), uses(&["a", "b"]), results(&["a"])],
                "the tool use b has no result in the next user message",
            ),
            (vec![prompt(), results(&["a"])], "the result of a answers no tool use"),
            (
                vec![prompt(), uses(&["a"]), results(&["a", "a"])],
                "the tool use a is answered twice, or not in the next user message",
            ),
            (vec![prompt(), uses(&["a", "a"]), results(&["a"])], "the id a is used by two tool uses"),
            (
                vec![prompt(), uses(&["a"]), results(&["a"]), uses(&["a"]), results(&["a"])],
                "the id a is used by two tool uses",
            ),
        ];
        for (history, why) in cases {
            assert_eq!(check_history(&history), Err(why.to_owned()));
        }
    }
}
