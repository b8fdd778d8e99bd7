//! Reasoning as routers stream it: in fragments that have to go back as the blocks that they are of.
//!
//! OpenRouter gives a block of reasoning in several pieces with one index, and its signature in the last of them. A provider that signed the block
//! refuses it in pieces. So pieces are put together before they are kept, and once more before they are sent, since earlier versions kept
//! pieces. `LiteLLM` gives the blocks of Claude's thoughts (`thinking_blocks`) in pieces without an index; the signature is the end of each.

use serde_json::{Map, Value};

/// What is said piece by piece.
const TEXTS: [&str; 3] = ["text", "summary", "thinking"];
/// How many blocks back the one of a piece is looked for: a model thinks in a few at once, and pieces may be as many as fit into a reply.
const BACK: usize = 64;
/// What the last piece says that has it.
const SIGNATURE: &str = "signature";

/// The blocks that these pieces make, in the order in which they began. A piece without an index continues the block before it.
pub(super) fn whole(details: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    for piece in details {
        let last = blocks.len().saturating_sub(1);
        let place = (0..blocks.len()).rev().take(BACK).find(|place| is_of(&blocks[*place], &piece, *place == last));
        match (place.and_then(|place| blocks[place].as_object_mut()), piece) {
            (Some(block), Value::Object(piece)) => add(block, piece),
            (_, piece) => blocks.push(piece),
        }
    }
    blocks
}

/// Whether a piece is one of a block: of its index, or of the newest where there is none; of no other type or name, and of none that has ended.
fn is_of(block: &Value, piece: &Value, is_newest: bool) -> bool {
    let agrees = |field: &str| block[field].is_null() || piece[field].is_null() || block[field] == piece[field];
    let has = |value: &Value, field: &str| value[field].as_str().is_some_and(|text| !text.is_empty());
    let is_next = if piece["index"].is_number() {
        block["index"] == piece["index"]
    } else {
        is_newest && block["index"].is_null()
    };
    // Behind its signature nothing more of a block is said, and what is encrypted is whole.
    let has_ended = has(block, SIGNATURE) && TEXTS.iter().any(|text| has(piece, text));
    let is_whole = piece["index"].is_null() && has(piece, "data");
    is_next && agrees("type") && agrees("id") && !has_ended && !is_whole
}

fn add(block: &mut Map<String, Value>, piece: Map<String, Value>) {
    for (field, value) in piece {
        if value.is_null() || value == "" {
            block.entry(field).or_insert(value);
            continue;
        }
        match (block.get_mut(&field), &value) {
            (Some(Value::String(text)), Value::String(more)) if TEXTS.contains(&field.as_str()) => text.push_str(more),
            (Some(known), _) if known.is_null() || known == "" || field == SIGNATURE => *known = value,
            (Some(_), _) => {}
            (None, _) => drop(block.insert(field, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pieces_of_one_index_are_one_block_and_whole_blocks_stay() {
        let pieces = [
            json!({"type": "reasoning.text", "text": "a", "index": 0, "format": "anthropic"}),
            json!({"type": "reasoning.text", "text": "b", "signature": null, "index": 0}),
            json!({"type": "reasoning.encrypted", "data": "ENC", "index": 1}),
            json!({"signature": "SIG", "index": 0}),
            json!({"type": "reasoning.summary", "summary": "x", "index": 0}),
            json!({"type": "reasoning.text", "text": "alone"}),
            json!({"type": "reasoning.text", "text": "alone"}),
            json!({"type": "reasoning.encrypted", "data": "ENC", "index": 1, "id": "r2"}),
        ];
        let blocks = whole(pieces);
        assert_eq!(
            blocks,
            [
                json!({"type": "reasoning.text", "text": "ab", "signature": "SIG", "index": 0, "format": "anthropic"}),
                json!({"type": "reasoning.encrypted", "data": "ENC", "index": 1, "id": "r2"}),
                json!({"type": "reasoning.summary", "summary": "x", "index": 0}),
                json!({"type": "reasoning.text", "text": "alonealone"}),
            ]
        );
        assert_eq!(whole(blocks.clone()), blocks, "what is whole stays as it is");
    }

    /// Thoughts of every length, cut anywhere, with an index, one index for all, or none: they are the blocks that they were.
    #[test]
    fn blocks_that_are_cut_anywhere_are_whole_again() {
        let thought =
            |text: &str, signature: &str| json!({"type": "thinking", "thinking": text, "signature": signature});
        let hidden = json!({"type": "redacted_thinking", "data": "ENC"});
        let blocks = [thought("abc", "S1"), thought("de", "S2"), hidden.clone(), hidden, thought("f", "S3")];
        for cut in 1..=3 {
            for index in [None, Some(0)] {
                let mut pieces = Vec::new();
                for block in &blocks {
                    let text = block["thinking"].as_str().unwrap_or_default();
                    let parts: Vec<String> =
                        text.chars().collect::<Vec<_>>().chunks(cut).map(|part| part.iter().collect()).collect();
                    for part in parts {
                        pieces.push(json!({"type": "thinking", "thinking": part, "signature": ""}));
                    }
                    let end =
                        if text.is_empty() { block.clone() } else { thought("", block["signature"].as_str().unwrap()) };
                    pieces.push(end);
                }
                // Only what has no index of its own may have one for all: what is encrypted comes whole.
                let marked = pieces.iter().cloned().map(|mut piece| {
                    if let (Some(index), true) = (index, piece["data"].is_null()) {
                        piece["index"] = json!(index);
                    }
                    piece
                });
                let mut read = whole(marked);
                for block in read.iter_mut().filter_map(Value::as_object_mut) {
                    block.remove("index");
                }
                assert_eq!(read, blocks, "{cut} {index:?}");
                assert_eq!(whole(read.clone()), read);
            }
        }
    }
}
