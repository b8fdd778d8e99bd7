//! The ids of tool uses: each is used once in a history.
//!
//! A result names the tool use that it answers, so an id that stands twice makes a history that no provider accepts. Some servers count
//! from nought in every reply, or give no ids at all.

use std::collections::BTreeSet;

use ua_core::{Block, ModelTurn};

/// Renames tool uses of `reply` whose id is empty, used twice in it, or used in the history already. A reply that was changed has no
/// name any more: its provider knows it as it was, so nothing can continue from it there.
pub fn tell_tool_uses_apart(reply: &mut ModelTurn, is_in_history: impl Fn(&str) -> bool) {
    let mut of_reply: BTreeSet<String> = BTreeSet::new();
    let mut is_changed = false;
    for block in &mut reply.blocks {
        let Block::ToolUse(tool_use) = block else { continue };
        let is_used = |id: &str| of_reply.contains(id) || is_in_history(id);
        if tool_use.id.trim().is_empty() || is_used(&tool_use.id) {
            let stem = Some(tool_use.id.trim()).filter(|id| !id.is_empty()).unwrap_or("call").to_owned();
            let free = (2..=u64::MAX).map(|n| format!("{stem}_{n}")).find(|id| !is_used(id));
            tracing::debug!(id = tool_use.id, renamed = free, "a tool use has an id that is used already");
            tool_use.id = free.unwrap_or(stem);
            is_changed = true;
        }
        of_reply.insert(tool_use.id.clone());
    }
    if is_changed {
        reply.response_id = None;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::{StopReason, ToolUse};

    use super::*;

    fn reply(ids: &[&str]) -> ModelTurn {
        let tool_use = |id: &&str| Block::ToolUse(ToolUse { id: (*id).into(), name: "t".into(), input: json!({}) });
        ModelTurn {
            blocks: ids.iter().map(tool_use).collect(),
            stop_reason: StopReason::ToolUse,
            usage: None,
            model: "m".into(),
            response_id: Some("resp_1".into()),
        }
    }

    fn ids(reply: &ModelTurn) -> Vec<&str> {
        reply.tool_uses().map(|tool_use| tool_use.id.as_str()).collect()
    }

    #[test]
    fn ids_that_are_used_already_are_renamed_and_others_stay() {
        let history = |id: &str| ["call_0", "call_0_2"].contains(&id);
        let mut again = reply(&["call_0", "a", "a", "", " "]);
        tell_tool_uses_apart(&mut again, history);
        assert_eq!((ids(&again), &again.response_id), (vec!["call_0_3", "a", "a_2", "call_2", "call_3"], &None));
        let mut fine = reply(&["x", "y"]);
        tell_tool_uses_apart(&mut fine, history);
        assert_eq!(fine, reply(&["x", "y"]));
    }
}
