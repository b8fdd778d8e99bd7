//! The results of a turn: one for each tool use, a pure function of the ledger.
//!
//! Durable Jobs v1 spec §8.3. A tool use is one call, or several: the actions of a composite tool share its id and stand one after the
//! other. Invariant: each tool use of a turn whose calls are settled has exactly one result.

use ua_core::{Block, ToolContent};
use ua_dispatch::{answer_for, answer_together};
use ua_ledger::Ledger;
use ua_store::{CallRecord, LedgerStore as _, Store, whole_text};

use crate::error::RunError;

/// The results of `calls`, the calls of one turn in their order.
pub(super) async fn results_of(ledger: &Ledger, calls: Vec<CallRecord>) -> Result<Vec<Block>, RunError> {
    let store = ledger.store().as_ref();
    let mut blocks = Vec::new();
    let mut actions: Vec<(CallRecord, ToolContent)> = Vec::new();
    for call in calls {
        let goes_on = actions.last().is_some_and(|(last, _)| last.tool_use_id == call.tool_use_id);
        if !goes_on {
            blocks.extend(together(&mut actions));
        }
        let source = call.deduplicated_from.as_ref().unwrap_or(&call.call_id);
        let receipt = match ledger.answer(source) {
            Some(receipt) => Some(receipt),
            None => store.receipt(source).await.map_err(RunError::at("read a receipt"))?,
        };
        let Some(content) = answer_for(&call, receipt.as_ref()) else { continue };
        if call.policy.via.is_some() {
            let content = ToolContent { text: whole(store, &content).await?.into(), ..content };
            actions.push((call, content));
        } else {
            blocks.push(result(&call, content));
        }
    }
    blocks.extend(together(&mut actions));
    Ok(blocks)
}

/// The result of the composite tool use whose actions were gathered, if there are any.
fn together(actions: &mut Vec<(CallRecord, ToolContent)>) -> Option<Block> {
    let actions = std::mem::take(actions);
    let (first, _) = actions.first()?;
    Some(result(first, answer_together(&actions)))
}

fn result(call: &CallRecord, content: ToolContent) -> Block {
    Block::ToolResult { tool_use_id: call.tool_use_id.clone(), content: content.text, is_error: content.is_error }
}

async fn whole(store: &dyn Store, content: &ToolContent) -> Result<String, RunError> {
    let Some(blob) = content.text.blob() else { return Ok(content.text.to_string()) };
    let text = whole_text(store, blob).await.map_err(RunError::at("read a large result"))?;
    Ok(content.text.filled(&text))
}
