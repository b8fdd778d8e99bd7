//! The results of a turn: one for each tool use, a pure function of the ledger.
//!
//! Durable Jobs v1 spec §8.3. A tool use is one call, or several: the actions of a composite tool share its id and stand one after the
//! other. Invariant: each tool use of a turn whose calls are settled has exactly one result.

use ua_core::{Audience, Block, CallStatus, ToolContent};
use ua_dispatch::{answer_for, answer_together};
use ua_ledger::Ledger;
use ua_store::{Blob, CallRecord, LedgerStore as _, RunRecord, Store};

use super::Driver;
use crate::compose::{look_for_results, note_of};
use crate::error::RunError;

impl Driver<'_> {
    /// Looks, before the first call of a turn goes out in this process, whether every large result is there that the run needs to commit the turn
    /// and to ask its model again: a turn that cannot end must not begin to send. What this process recorded a moment ago needs what its
    /// request had; gone may be what finished runs left behind them, of which a fork's call is answered.
    pub(super) async fn look_for_results(&mut self, turn: u32) -> Result<(), RunError> {
        if std::mem::replace(&mut self.looked_for_results_of, turn) == turn {
            return Ok(());
        }
        let was_found = self.found_open == Some(turn);
        let is_of_a_family = self.run.run_id != self.run.root_run_id;
        if !was_found && !is_of_a_family {
            return Ok(());
        }
        let calls = match self.open_calls.clone().filter(|_| self.replay.is_empty()) {
            Some(calls) => calls,
            None => self.turn_calls(turn).await?,
        };
        if was_found {
            let limits = self.fit.limits(self.run.spec.settings.history_max_tokens, self.settings.history_tokens);
            let store = self.ports.store.as_ref();
            look_for_results(&self.history, &self.run, self.settings, limits, &mut self.filled, store).await?;
            for call in calls.iter().filter(|call| call.status.is_settled()) {
                answer_of(self.ports.dispatcher.ledger(), &self.run, call, true).await?;
            }
        }
        let answered = self.ports.dispatcher.answered_before(&calls).await;
        for (call, twin) in answered.map_err(|source| RunError::Dispatch { turn, source })? {
            self.look_for_answer(&as_answered_by(call, &twin)).await?;
        }
        Ok(())
    }

    /// Looks whether the answer of a settled call is there, if it is that of an earlier one.
    pub(super) async fn look_for_answer(&self, call: &CallRecord) -> Result<(), RunError> {
        if call.answered_by().is_some() {
            answer_of(self.ports.dispatcher.ledger(), &self.run, call, true).await?;
        }
        Ok(())
    }
}

/// A call as it will stand when it is answered by an earlier one.
fn as_answered_by(call: &CallRecord, twin: &CallRecord) -> CallRecord {
    let deduplicated_from = Some(twin.call_id.clone());
    CallRecord { status: CallStatus::Succeeded, deduplicated_from, ..call.clone() }
}

/// The results of `calls`, the calls of one turn of `run` in their order. A turn that a process found open may refer to what is gone.
pub(super) async fn results_of(
    ledger: &Ledger,
    run: &RunRecord,
    calls: Vec<CallRecord>,
    was_found: bool,
) -> Result<Vec<Block>, RunError> {
    let store = ledger.store().as_ref();
    let mut blocks = Vec::new();
    let mut actions: Vec<(CallRecord, ToolContent)> = Vec::new();
    for call in calls {
        let goes_on = actions.last().is_some_and(|(last, _)| last.tool_use_id == call.tool_use_id);
        if !goes_on {
            blocks.extend(together(&mut actions));
        }
        let may_be_gone = was_found || call.answered_by().is_some();
        let Some(content) = answer_of(ledger, run, &call, may_be_gone).await? else { continue };
        if call.policy.via.is_some() {
            let (content, _) = put_in_place(store, run, &call, content).await?;
            actions.push((call, content));
        } else {
            blocks.push(result(&call, content));
        }
    }
    blocks.extend(together(&mut actions));
    Ok(blocks)
}

/// The answer of a call, once it is settled. A large one is a reference; where that `may_be_gone` and is, a note stands in its place.
async fn answer_of(
    ledger: &Ledger,
    run: &RunRecord,
    call: &CallRecord,
    may_be_gone: bool,
) -> Result<Option<ToolContent>, RunError> {
    let store = ledger.store().as_ref();
    let source = call.answered_by().unwrap_or(&call.call_id);
    let (receipt, is_new) = match ledger.answer(source) {
        Some(receipt) => (Some(receipt), true),
        None => (store.receipt(source).await.map_err(RunError::at("read a receipt"))?, false),
    };
    let Some(content) = answer_for(call, receipt.as_ref(), Audience::of(&run.entrypoint)) else { return Ok(None) };
    if is_new || !may_be_gone || content.text.blob().is_none() {
        return Ok(Some(content));
    }
    let (in_place, is_here) = put_in_place(store, run, call, content.clone()).await?;
    Ok(Some(if is_here { content } else { in_place }))
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

/// A content with its large text in its place, or with a note there; says whether the text was there.
async fn put_in_place(
    store: &dyn Store,
    run: &RunRecord,
    call: &CallRecord,
    content: ToolContent,
) -> Result<(ToolContent, bool), RunError> {
    let Some(blob) = content.text.blob() else { return Ok((content, true)) };
    let (text, is_here) = match store.blob(blob).await.map_err(RunError::at("read a large result"))? {
        Blob::Here(text) => (content.text.filled(&text).into(), true),
        Blob::Missing { pruned_at } => (note_of(run, Some(call), &content.text, blob, pruned_at)?, false),
        Blob::Corrupt { why } => return Err(RunError::BlobCorrupt { blob: blob.blob_id.clone(), why }),
    };
    Ok((ToolContent { text, ..content }, is_here))
}
