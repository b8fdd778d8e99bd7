//! Images of tool results, and those that a job gives its model: how a request carries them, whatever the wire.
//!
//! A stored history has no images: they lie in the receipts, or in the blobs of the job's files. Whoever composes a request puts those
//! that a model is to see behind what they belong to, as opaque blocks that every wire here understands, and each wire sends them in
//! its own words.

use serde_json::{Value, json};
use ua_core::{Block, Message};

/// The owner of blocks that are images, which every wire understands.
const IMAGE: &str = "image";

/// The kinds of images that models take.
const KINDS: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// The most Base64 of one image: what Anthropic takes, the least of all.
pub const MAX_IMAGE_BYTES: usize = 5_000_000;

/// What an image counts as where tokens are estimated: about what a large one costs.
const IMAGE_TOKENS: u64 = 1_600;

/// An image, as a request carries it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Image<'a> {
    /// The tool use whose result it belongs to; `None` for one that the user shows.
    pub(crate) tool_use_id: Option<&'a str>,
    /// Its kind, `image/png` and the like.
    pub(crate) media_type: &'a str,
    /// Its bytes in Base64.
    pub(crate) data: &'a str,
}

/// Makes the block of an image that belongs to the result of `tool_use_id`; `None` for a kind that models do not take, for too many
/// bytes, and for what is no Base64.
pub fn image_block(tool_use_id: &str, media_type: &str, data: &str) -> Option<Block> {
    fits(media_type, data).then(|| block(json!({"tool_use_id": tool_use_id, "media_type": media_type, "data": data})))
}

/// Makes the block of an image that the user shows; `None` where [`image_block`] is.
pub fn shown_image_block(media_type: &str, data: &str) -> Option<Block> {
    fits(media_type, data).then(|| block(json!({"media_type": media_type, "data": data})))
}

fn fits(media_type: &str, data: &str) -> bool {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let has_size = !data.is_empty() && data.len() <= MAX_IMAGE_BYTES;
    has_size && KINDS.contains(&media_type) && data.bytes().all(is_base64)
}

fn block(value: Value) -> Block {
    Block::Opaque { provider: IMAGE.to_owned(), value }
}

/// The image that a block is.
pub(crate) fn image_of(block: &Block) -> Option<Image<'_>> {
    match block {
        Block::Opaque { provider, value } if provider == IMAGE => {
            let text = |field: &str| value.get(field).and_then(Value::as_str);
            Some(Image { tool_use_id: text("tool_use_id"), media_type: text("media_type")?, data: text("data")? })
        }
        Block::Opaque { .. } | Block::Text { .. } | Block::ToolUse(_) | Block::ToolResult { .. } => None,
    }
}

/// The same image as that of another tool use, which `other` names; `None` of what is no image of a result.
pub(crate) fn of_other_tool_use(image: &Block, other: impl FnOnce(&str) -> String) -> Option<Block> {
    let Image { tool_use_id, media_type, data } = image_of(image)?;
    let tool_use_id = other(tool_use_id?);
    Some(block(json!({"tool_use_id": tool_use_id, "media_type": media_type, "data": data})))
}

/// The images of one result in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultImages {
    /// The tool use that the result is of.
    pub tool_use_id: String,
    /// Bytes of their Base64.
    pub bytes: u64,
    /// What they count as where tokens are estimated.
    pub tokens: u64,
}

/// The results in a request that have images, the oldest first.
pub fn images_of_results(messages: &[Message]) -> Vec<ResultImages> {
    let mut all: Vec<ResultImages> = Vec::new();
    for message in messages {
        let ids = message.blocks.iter().filter_map(|block| match block {
            Block::ToolResult { tool_use_id, .. } => Some(tool_use_id),
            Block::Text { .. } | Block::ToolUse(_) | Block::Opaque { .. } => None,
        });
        for id in ids {
            let sizes = message.blocks.iter().filter_map(image_of).filter(|image| image.tool_use_id == Some(id));
            let sizes: Vec<u64> = sizes.map(|image| image.data.len() as u64).collect();
            if !sizes.is_empty() {
                let (bytes, tokens) = (sizes.iter().sum(), IMAGE_TOKENS * sizes.len() as u64);
                all.push(ResultImages { tool_use_id: id.clone(), bytes, tokens });
            }
        }
    }
    all
}

/// The bytes by which the size of a block says more than its tokens: an image costs by its area, not by its bytes.
pub(crate) fn uncounted_bytes(block: &Block, bytes_per_token: u64) -> u64 {
    image_of(block).map_or(0, |image| (image.data.len() as u64).saturating_sub(IMAGE_TOKENS * bytes_per_token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_models_take_becomes_an_image() {
        let block = image_block("a", "image/png", "iVBORw0KGgo=").unwrap();
        assert_eq!(
            image_of(&block),
            Some(Image { tool_use_id: Some("a"), media_type: "image/png", data: "iVBORw0KGgo=" })
        );
        let shown = shown_image_block("image/png", "iVBORw0KGgo=").unwrap();
        assert_eq!(image_of(&shown), Some(Image { tool_use_id: None, media_type: "image/png", data: "iVBORw0KGgo=" }));
        assert_eq!(shown_image_block("image/bmp", "iVBORw0KGgo="), None);
        assert_eq!(image_block("a", "image/svg+xml", "iVBORw0KGgo="), None);
        assert_eq!(image_block("a", "image/png", ""), None);
        assert_eq!(image_block("a", "image/png", "not base64!"), None);
        assert_eq!(image_block("a", "image/png", &"A".repeat(MAX_IMAGE_BYTES + 1)), None);
    }
}
