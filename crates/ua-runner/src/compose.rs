//! From the stored history to the messages of one request: cut to what fits, blobs put in their places, the newest turn shortened where it
//! alone is too long, images behind their results, the files of the job behind the job.
//!
//! Granular Execution PRD §8.1 and §8.2. A pure view: the stored history keeps its references and all of its messages. A blob that
//! is missing or damaged ends the drive before anything is sent; a store that cannot be read is an error like any other of its
//! kind, and the next resume may find it mended.

use std::collections::BTreeSet;

use ua_checkpoint::{MeasuredHistory, Window, shorten_newest};
use ua_core::{BlobRef, Block, Blocks, Message, OnUnknown, SideEffectClass, Timestamp, ToolText};
use ua_llm::check_history;
use ua_store::{Blob, CallRecord, LedgerStore, RunRecord, RunStore, Store};

use crate::error::RunError;
use crate::fit::Limits;
use crate::images::{NEWEST, add_images, places_of_images};
use crate::input_files::{IMAGE_TOKENS, add_input_files, input_tokens};
use crate::ports::RunSettings;

/// What is advised about a call with an effect that is done.
const STANDS: &str = "What it did stands; do not repeat it only to see the result.";

/// Messages of the last request that had large results in them, as they are stored and as they were sent: what a blob holds never changes, so
/// that it is read and compared with its name once.
#[derive(Debug, Default)]
pub(crate) struct Filled(Vec<(Blocks, Blocks)>);

impl Filled {
    /// A message with its large results in their places, if it was in the last request.
    fn of(&self, stored: &Blocks) -> Option<Blocks> {
        self.0.iter().find(|(known, _)| known.is_one_with(stored)).map(|(_, filled)| filled.clone())
    }
}

/// Makes the messages of the next request of `run`, without the images of the tool uses in `refused`.
///
/// # Errors
/// `BlobMissing`, unless the run allows degraded replay and the call may be repeated; `BlobCorrupt`; `Store` when the store cannot
/// be read; `History` when the stored history is not one that a provider accepts.
pub(crate) async fn compose(
    history: &MeasuredHistory,
    run: &RunRecord,
    settings: &RunSettings,
    limits: Limits,
    refused: &BTreeSet<String>,
    filled: &mut Filled,
    store: &dyn Store,
) -> Result<Composed, RunError> {
    let max_tokens = limits.wanted;
    let system_tokens = (settings.system.len() as u64).div_ceil(4) + input_tokens(&run.spec, settings.images);
    let view = history.view(Window { max_tokens, system_tokens });
    let fits = view.fits;
    let mut messages: Vec<Message> = view.messages().cloned().collect();
    check_history(&messages).map_err(|why| RunError::History { why })?;
    put_in_place(&mut messages, run, filled, store).await?;
    let taken = limits.taken.filter(|_| !fits).map(|max_tokens| Window { max_tokens, system_tokens });
    let (shortened, most_images) =
        taken.map_or((false, NEWEST), |taken| shorten(&mut messages, taken, settings.images));
    let shown = add_input_files(&mut messages, run, settings.images, store).await?;
    if settings.images {
        add_images(&mut messages, (most_images, shown), refused, run, store).await?;
    }
    let over = (!fits && !shortened).then_some(max_tokens);
    Ok(Composed { messages, over, shortened })
}

/// Looks whether every large result is there that the next request of `run` needs of `history`.
///
/// # Errors
/// Those of [`compose`] about large results.
pub(crate) async fn look_for_results(
    history: &MeasuredHistory,
    run: &RunRecord,
    settings: &RunSettings,
    limits: Limits,
    filled: &mut Filled,
    store: &dyn Store,
) -> Result<(), RunError> {
    let system_tokens = (settings.system.len() as u64).div_ceil(4) + input_tokens(&run.spec, settings.images);
    let view = history.view(Window { max_tokens: limits.wanted, system_tokens });
    let mut messages: Vec<Message> = view.messages().cloned().collect();
    put_in_place(&mut messages, run, filled, store).await
}

/// Puts the large results of messages in their places, and keeps what was read.
async fn put_in_place(
    messages: &mut [Message],
    run: &RunRecord,
    filled: &mut Filled,
    store: &dyn Store,
) -> Result<(), RunError> {
    let before = std::mem::take(filled);
    // The others stay as they are, one with those of the history.
    for message in messages.iter_mut().filter(|message| message.blobs().next().is_some()) {
        let stored = message.blocks.clone();
        let is_whole = match before.of(&stored) {
            Some(known) => {
                message.blocks = known;
                true
            }
            None => fill(&mut message.blocks, run, store).await?,
        };
        if is_whole {
            filled.0.push((stored, message.blocks.clone()));
        }
    }
    Ok(())
}

/// Shortens the newest turn, which alone is over what the model takes. Says whether that was needed, and how many images there is room for: half
/// of what is taken is for them, if there are any.
fn shorten(messages: &mut [Message], taken: Window, reads_images: bool) -> (bool, usize) {
    let room = taken.max_tokens.saturating_sub(taken.system_tokens) / 2 / IMAGE_TOKENS;
    let most = usize::try_from(room).unwrap_or(NEWEST).min(NEWEST);
    let images = if reads_images { places_of_images(messages).min(most) } else { 0 };
    let max_tokens = taken.max_tokens.saturating_sub(images as u64 * IMAGE_TOKENS);
    let shortened = shorten_newest(messages, Window { max_tokens, ..taken });
    (shortened, most)
}

/// Puts large results in their places; says whether all of them are there.
async fn fill(blocks: &mut Blocks, run: &RunRecord, store: &dyn Store) -> Result<bool, RunError> {
    let mut is_whole = true;
    for block in blocks {
        let Block::ToolResult { tool_use_id, content, .. } = block else { continue };
        let Some(blob) = content.blob().cloned() else { continue };
        *content = match store.blob(&blob).await.map_err(RunError::at("read a large result"))? {
            Blob::Here(text) => content.filled(&text).into(),
            Blob::Missing { pruned_at } => {
                is_whole = false;
                stand_in(store, run, tool_use_id, content, &blob, pruned_at).await?
            }
            Blob::Corrupt { why } => return Err(RunError::BlobCorrupt { blob: blob.blob_id, why }),
        };
    }
    Ok(is_whole)
}

/// The messages of a request.
pub(crate) struct Composed {
    /// The messages.
    pub messages: Vec<Message>,
    /// The most tokens of history, when the job and the newest messages alone are over it.
    pub over: Option<u64>,
    /// Whether the newest messages are shown in part, since they alone are over what the model takes.
    pub shortened: bool,
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
    let call = calls.iter().find(|call| advice(call).is_none()).or(calls.first());
    note_of(run, call, content, blob, pruned_at)
}

/// What the model reads in the place of a result of `call` that is gone.
///
/// # Errors
/// `BlobMissing`, unless the run allows degraded replay and it may go on without this one.
pub(crate) fn note_of(
    run: &RunRecord,
    call: Option<&CallRecord>,
    content: &ToolText,
    blob: &BlobRef,
    pruned_at: Option<Timestamp>,
) -> Result<ToolText, RunError> {
    if let Some(advice) = call.filter(|_| run.spec.settings.degraded_replay).and_then(advice) {
        let tool_use_id = call.map(|call| call.tool_use_id.as_str());
        tracing::warn!(blob = %blob.blob_id, tool_use_id, "a large result is gone; the model is told so (degraded replay)");
        let note = format!("[The result of this call, {} bytes, is not stored any more. {advice}]", blob.size);
        return Ok(content.filled(&note).into());
    }
    // Where it was one call's answer and is another's, the first is the one whose result it is.
    let call = call.map(|call| call.answered_by().unwrap_or(&call.call_id).clone());
    Err(RunError::BlobMissing { blob: blob.blob_id.clone(), call, pruned_at })
}

/// What the model is advised about a call whose result is gone; `None` for a call that must not be repeated, of which the model
/// should not have to guess what it did. One that was done before and not repeated is told of as just that, whatever its class.
fn advice(call: &CallRecord) -> Option<&'static str> {
    if call.answered_by().is_some() {
        return Some(STANDS);
    }
    match (call.policy.class, call.policy.on_unknown) {
        (SideEffectClass::ReadOnly, _) => Some("It only reads: call it again if you need the result."),
        (_, OnUnknown::Redo | OnUnknown::RedoKeyed) => Some(STANDS),
        (_, OnUnknown::Probe | OnUnknown::Hold | OnUnknown::Continue) => None,
    }
}

#[cfg(test)]
mod tests {
    use ua_checkpoint::estimate_tokens;
    use ua_core::{Env, Origin, PriceTable, Role, RunId, RunSpec, ToolUse};
    use ua_store::{MemStore, NewBlob, NewRun, rules};

    use super::*;
    use crate::pin::PinSettings;
    use crate::retry::RetryPolicy;

    fn run() -> RunRecord {
        let spec = RunSpec::parse(r#"{"objective": "look"}"#).unwrap();
        let run = NewRun {
            run_id: RunId::parse("run_1").unwrap(),
            created_at: Env::simulated(1).now(),
            entrypoint: "library".into(),
            run_mode: "job".into(),
            opening: Message::user(Origin::Prompt, "look"),
            spec,
            files: Vec::new(),
            job_path: None,
            workspace_dir: "/".into(),
            launch: serde_json::Value::Null,
            parent_run_id: None,
        };
        rules::run_submitted(run, None).0
    }

    const LIMITS: Limits = Limits { wanted: 128_000, taken: None };

    fn settings() -> RunSettings {
        RunSettings {
            model: "m".into(),
            system: String::new(),
            max_output_tokens: 10,
            history_tokens: None,
            images: false,
            structured: false,
            temperature_milli: None,
            seed: None,
            prices: PriceTable::default(),
            retry: RetryPolicy::default(),
            pins: PinSettings::default(),
        }
    }

    #[tokio::test]
    async fn a_large_result_that_was_in_the_last_request_is_not_read_again() {
        let asked = Block::ToolUse(ToolUse { id: "a".into(), name: "t".into(), input: serde_json::json!({}) });
        let result = |content: ToolText| -> Blocks {
            vec![Block::ToolResult { tool_use_id: "a".into(), content, is_error: false }].into()
        };
        let stored = result(ToolText::by_reference(NewBlob::new("large".to_owned()).blob));
        let mut history = MeasuredHistory::new(estimate_tokens);
        history.push(Message::user(Origin::Prompt, "look"));
        history.push(Message { role: Role::Assistant, origin: Origin::Model, blocks: vec![asked].into() });
        history.push(Message { role: Role::User, origin: Origin::Tools, blocks: stored.clone() });
        // No store has it: whoever reads it fails.
        let (store, run, settings) = (MemStore::new(), run(), settings());
        let mut nothing = Filled::default();
        let read = compose(&history, &run, &settings, LIMITS, &BTreeSet::new(), &mut nothing, &store).await;
        assert!(matches!(read.err(), Some(RunError::BlobMissing { .. })));
        let whole = result("large".into());
        let mut filled = Filled(vec![(stored.clone(), whole.clone())]);
        for _ in 0..2 {
            let composed =
                compose(&history, &run, &settings, LIMITS, &BTreeSet::new(), &mut filled, &store).await.unwrap();
            assert!(composed.messages[2].blocks.is_one_with(&whole));
            assert!(history.messages()[2].blocks.is_one_with(&stored), "the history keeps its references");
        }
    }
}
