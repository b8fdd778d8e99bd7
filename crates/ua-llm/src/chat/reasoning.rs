//! Reasoning as routers stream it: in fragments that have to go back as the blocks that they are of.
//!
//! OpenRouter gives a block of reasoning in several pieces with one index, and its signature in the last of them. A provider that signed the block
//! refuses it in pieces. So pieces are put together before they are kept, and once more before they are sent, since earlier versions kept
//! pieces.

use serde_json::{Map, Value};

/// What is said piece by piece.
const TEXTS: [&str; 2] = ["text", "summary"];
/// What the last piece says that has it.
const SIGNATURE: &str = "signature";

/// The blocks that these pieces make, in the order in which they began. Pieces without an index are blocks of their own.
pub(super) fn whole(details: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    for piece in details {
        let place = blocks.iter().position(|block| is_of(block, &piece));
        match (place.and_then(|place| blocks[place].as_object_mut()), piece) {
            (Some(block), Value::Object(piece)) => add(block, piece),
            (_, piece) => blocks.push(piece),
        }
    }
    blocks
}

/// Whether a piece is one of a block: of its index, and of no other type or name.
fn is_of(block: &Value, piece: &Value) -> bool {
    let agrees = |field: &str| block[field].is_null() || piece[field].is_null() || block[field] == piece[field];
    piece["index"].is_number() && block["index"] == piece["index"] && agrees("type") && agrees("id")
}

fn add(block: &mut Map<String, Value>, piece: Map<String, Value>) {
    for (field, value) in piece {
        if value.is_null() {
            block.entry(field).or_insert(value);
            continue;
        }
        match (block.get_mut(&field), &value) {
            (Some(Value::String(text)), Value::String(more)) if TEXTS.contains(&field.as_str()) => text.push_str(more),
            (Some(known), _) if known.is_null() || field == SIGNATURE => *known = value,
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
                json!({"type": "reasoning.text", "text": "alone"}),
                json!({"type": "reasoning.text", "text": "alone"}),
            ]
        );
        assert_eq!(whole(blocks.clone()), blocks, "what is whole stays as it is");
    }
}
