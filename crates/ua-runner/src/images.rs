//! Images of tool results, taken from the receipts into a request: the history has their places only.
//!
//! Context Storage & Durability §4: what a tool answered is kept raw, so nothing is stored twice for a model to see it. A pure view
//! like the rest of the composing: the newest images that fit, behind the results they belong to.

use std::collections::BTreeSet;

use serde_json::Value;
use ua_core::{Block, Message, RawReply};
use ua_llm::image_block;
use ua_store::{CallRecord, LedgerStore as _, RunRecord, Store, whole_reply};

use crate::compose::calls_of;
use crate::error::RunError;
use crate::picture::Picture;

/// The most images of a request.
pub(crate) const NEWEST: usize = 8;

/// The most Base64 of all of them: providers refuse requests of some ten megabytes more.
pub(crate) const MAX_BYTES: usize = 16_000_000;

/// How the place of an image begins in the text of a result: one of its own, or one that is a resource within it.
const PLACES: [&str; 2] = ["[image", "[resource"];

/// Puts the newest images of the results in `messages` behind them. One that cannot be read, or that no model takes, stays a place in
/// the text; so do those of results that are errors, in which providers take texts alone, and those of the tool uses in `refused`. At most `most`
/// are; `taken` bytes of Base64 are in the request already.
///
/// # Errors
/// `Store` when the store cannot be read.
pub(crate) async fn add_images(
    messages: &mut [Message],
    (most, taken): (usize, usize),
    refused: &BTreeSet<String>,
    run: &RunRecord,
    store: &dyn Store,
) -> Result<(), RunError> {
    if !messages.iter().any(|message| message.blocks.iter().any(|block| place_in(block).is_some())) {
        return Ok(());
    }
    let calls = calls_of(store, run).await?;
    let (mut left, mut bytes) = (most, MAX_BYTES.saturating_sub(taken));
    for message in messages.iter_mut().rev() {
        let places: Vec<String> = message.blocks.iter().filter_map(place_in).map(str::to_owned).collect();
        for tool_use_id in places.iter().rev().filter(|id| !refused.contains(*id)) {
            for (block, size) in images_of(&calls, tool_use_id, store).await? {
                if left == 0 || size > bytes {
                    return Ok(());
                }
                (left, bytes) = (left - 1, bytes - size);
                message.blocks.push(block);
            }
        }
    }
    Ok(())
}

/// How many places of images the results in `messages` have.
pub(crate) fn places_of_images(messages: &[Message]) -> usize {
    let places = |block: &Block| match block {
        Block::ToolResult { content, is_error: false, .. } => {
            PLACES.iter().map(|place| content.matches(place).count()).sum()
        }
        Block::ToolResult { .. } | Block::Text { .. } | Block::ToolUse(_) | Block::Opaque { .. } => 0,
    };
    messages.iter().flat_map(|message| message.blocks.iter()).map(places).sum()
}

/// The tool use of a result that has the place of an image in it.
fn place_in(block: &Block) -> Option<&str> {
    match block {
        Block::ToolResult { tool_use_id, content, is_error: false }
            if PLACES.iter().any(|place| content.contains(place)) =>
        {
            Some(tool_use_id)
        }
        Block::ToolResult { .. } | Block::Text { .. } | Block::ToolUse(_) | Block::Opaque { .. } => None,
    }
}

/// The images of a result, as its receipt has them, with their sizes.
async fn images_of(
    calls: &[CallRecord],
    tool_use_id: &str,
    store: &dyn Store,
) -> Result<Vec<(Block, usize)>, RunError> {
    let mut images = Vec::new();
    for call in calls.iter().filter(|call| call.tool_use_id == tool_use_id) {
        let source = call.answered_by().unwrap_or(&call.call_id);
        let receipt = store.receipt(source).await.map_err(RunError::at("read a receipt"))?;
        let Some(receipt) = receipt else { continue };
        let reply = match whole_reply(store, &receipt).await {
            Ok(reply) => reply,
            Err(error) => {
                tracing::warn!(%error, tool_use_id, "an image of a result cannot be read; the model is not shown it");
                continue;
            }
        };
        let RawReply::ToolResult { result } = reply else { continue };
        for item in result.get("content").and_then(Value::as_array).into_iter().flatten() {
            let data = match item["type"].as_str() {
                Some("image") => &item["data"],
                Some("resource") => &item["resource"]["blob"],
                Some(_) | None => continue,
            };
            let Some(Picture { media_type, data }) = data.as_str().and_then(Picture::read) else { continue };
            let size = data.len();
            images.extend(image_block(tool_use_id, media_type, &data).map(|block| (block, size)));
        }
    }
    Ok(images)
}
