//! From the stored history to the messages of one request: cut to what fits, blobs put in their places, images behind their results,
//! the files of the job behind the job.
//!
//! Granular Execution PRD §8.1 and §8.2. A pure view: the stored history keeps its references and all of its messages. A blob that
//! is missing or damaged ends the drive before anything is sent; a store that cannot be read is an error like any other of its
//! kind, and the next resume may find it mended.

use ua_checkpoint::{MeasuredHistory, Window};
use ua_core::{BlobRef, Block, Message, OnUnknown, SideEffectClass, Timestamp, ToolText};
use ua_llm::check_history;
use ua_store::{Blob, CallRecord, LedgerStore, RunRecord, RunStore, Store};

use crate::error::RunError;
use crate::fit::Fit;
use crate::images::add_images;
use crate::input_files::{add_input_files, input_tokens};
use crate::ports::RunSettings;

/// Makes the messages of the next request of `run`.
///
/// # Errors
/// `BlobMissing`, unless the run allows degraded replay and the call may be repeated; `BlobCorrupt`; `Store` when the store cannot
/// be read; `History` when the stored history is not one that a provider accepts.
pub(crate) async fn compose(
    history: &MeasuredHistory,
    run: &RunRecord,
    settings: &RunSettings,
    fit: Fit,
    store: &dyn Store,
) -> Result<Composed, RunError> {
    let wanted = run.spec.settings.history_max_tokens;
    let max_tokens = fit.history(settings.history_tokens.map_or(wanted, |most| most.min(wanted)));
    let system_tokens = (settings.system.len() as u64).div_ceil(4) + input_tokens(&run.spec, settings.images);
    let view = history.view(Window { max_tokens, system_tokens });
    let over = (!view.fits).then_some(max_tokens);
    let mut messages: Vec<Message> = view.messages().cloned().collect();
    check_history(&messages).map_err(|why| RunError::History { why })?;
    for block in messages.iter_mut().flat_map(|message| &mut message.blocks) {
        let Block::ToolResult { tool_use_id, content, .. } = block else { continue };
        let Some(blob) = content.blob().cloned() else { continue };
        *content = match store.blob(&blob).await.map_err(RunError::at("read a large result"))? {
            Blob::Here(text) => content.filled(&text).into(),
            Blob::Missing { pruned_at } => stand_in(store, run, tool_use_id, content, &blob, pruned_at).await?,
            Blob::Corrupt { why } => return Err(RunError::BlobCorrupt { blob: blob.blob_id, why }),
        };
    }
    let shown = add_input_files(&mut messages, run, settings.images, store).await?;
    if settings.images {
        add_images(&mut messages, shown, run, store).await?;
    }
    Ok(Composed { messages, over })
}

/// The messages of a request.
pub(crate) struct Composed {
    /// The messages.
    pub messages: Vec<Message>,
    /// The most tokens of history, when the job and the newest messages alone are over it.
    pub over: Option<u64>,
}

/// The calls of a run, with those of the history that a fork took over.
pub(crate) async fn calls_of(store: &dyn Store, run: &RunRecord) -> Result<Vec<CallRecord>, RunError> {
    let mut calls = store.calls(&run.run_id, None).await.map_err(RunError::at("read the run's calls"))?;
    if run.forked_at.is_some() {
        let records = store.load(&run.run_id).await.map_err(RunError::at("load the run"))?;
        calls.extend(records.lineage.calls);
    }
    Ok(calls)
}

/// What the model reads in the place of a result that is gone, if the run may go on without it.
async fn stand_in(
    store: &dyn Store,
    run: &RunRecord,
    tool_use_id: &str,
    content: &ToolText,
    blob: &BlobRef,
    pruned_at: Option<Timestamp>,
) -> Result<ToolText, RunError> {
    // A history uses an id for one tool use only; that was checked before.
    let calls = calls_of(store, run).await?;
    // Of a composite tool use, what holds for its most delicate action.
    let calls: Vec<CallRecord> = calls.into_iter().filter(|call| call.tool_use_id == tool_use_id).collect();
    let call = calls.iter().find(|call| advice(call).is_none()).or(calls.first()).cloned();
    let advice = call.as_ref().filter(|_| run.spec.settings.degraded_replay).and_then(advice);
    if let Some(advice) = advice {
        tracing::warn!(blob = %blob.blob_id, tool_use_id, "a large result is gone; the model is told so (degraded replay)");
        let note = format!("[The result of this call, {} bytes, is not stored any more. {advice}]", blob.size);
        return Ok(content.filled(&note).into());
    }
    Err(RunError::BlobMissing { blob: blob.blob_id.clone(), call: call.map(|call| call.call_id), pruned_at })
}

/// What the model is advised about a call whose result is gone; `None` for a call that must not be repeated, of which the model
/// should not have to guess what it did.
fn advice(call: &CallRecord) -> Option<&'static str> {
    match (call.policy.class, call.policy.on_unknown) {
        (SideEffectClass::ReadOnly, _) => Some("It only reads: call it again if you need the result."),
        (_, OnUnknown::Redo | OnUnknown::RedoKeyed) => {
            Some("What it did stands; do not repeat it only to see the result.")
        }
        (_, OnUnknown::Probe | OnUnknown::Hold | OnUnknown::Continue) => None,
    }
}
