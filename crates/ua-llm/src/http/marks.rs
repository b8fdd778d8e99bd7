//! What is no text in a reply: bytes that are no UTF-8, and halves of characters, as servers send them that cut what they stream between two tokens.
//!
//! A reply that somebody paid for is not lost for it. Halves that came one behind the other become the character that they are. Whatever else is no
//! text is marked while the reply is put together, and in the end it is U+FFFD in what the model said. Arguments that hold one are handed on as
//! what could not be read: with another character in them they would be other arguments.

use serde_json::Value;
use ua_core::{Block, ModelTurn, half_characters};

/// What stands for what is no text until the reply is whole: a character that nobody writes (U+FDD0).
pub(super) const MARK: char = '\u{fdd0}';
/// The same as an escape, as long as that of half a character.
const ESCAPED: &str = "\\ufdd0";
const REPLACEMENT: &str = "\u{fffd}";

/// Joins halves of characters of events that follow each other.
#[derive(Debug, Default)]
pub(super) struct Halves {
    /// An event one of whose texts ends with the first half of a character.
    waiting: Option<String>,
}

impl Halves {
    /// Takes the data of the next event: what can be read now.
    pub(super) fn push(&mut self, mut data: String) -> impl Iterator<Item = String> + use<> {
        let before = self.waiting.take().map(|before| joined(before, &mut data));
        let is_cut = |data: &str| {
            half_characters(data.as_bytes()).iter().any(|half| half.is_first && ends(data, half.range().end))
        };
        let now = if is_cut(&data) {
            self.waiting = Some(data);
            None
        } else {
            Some(marked(data))
        };
        before.into_iter().chain(now)
    }

    /// What is left when nothing follows.
    pub(super) fn end(&mut self) -> Option<String> {
        self.waiting.take().map(marked)
    }
}

/// Whether a text of a JSON ends there.
fn ends(json: &str, at: usize) -> bool {
    json.as_bytes().get(at) == Some(&b'"')
}

/// Whether a text of a JSON begins there.
fn begins(json: &str, at: usize) -> bool {
    json[..at].ends_with('"') && !json[..at].ends_with("\\\"")
}

/// An event as it can be read, the half that its text ends with having been put in front of the other half, if the next event begins with that.
fn joined(mut before: String, data: &mut String) -> String {
    let first = half_characters(before.as_bytes())
        .into_iter()
        .rev()
        .find(|half| half.is_first && ends(&before, half.range().end));
    let second = half_characters(data.as_bytes()).into_iter().find(|half| !half.is_first && begins(data, half.at));
    if let (Some(first), Some(second)) = (first, second) {
        data.insert_str(second.at, &before[first.range()]);
        before.replace_range(first.range(), "");
    }
    marked(before)
}

/// The same with a mark for each half of a character.
pub(super) fn marked(mut json: String) -> String {
    for half in half_characters(json.as_bytes()) {
        json.replace_range(half.range(), ESCAPED);
    }
    json
}

/// The text of a piece of a reply.
pub(super) fn text(text: String) -> String {
    if text.contains(MARK) { text.replace(MARK, REPLACEMENT) } else { text }
}

/// The whole reply without marks.
pub(super) fn settled(mut turn: ModelTurn) -> ModelTurn {
    for block in &mut turn.blocks {
        match block {
            Block::Text { text: said } => *said = text(std::mem::take(said)),
            Block::ToolUse(call) => {
                for name in [&mut call.id, &mut call.name] {
                    *name = text(std::mem::take(name));
                }
                let written = match &call.input {
                    Value::String(unread) => unread.clone(),
                    read @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                        read.to_string()
                    }
                };
                if written.contains(MARK) {
                    call.input = Value::String(text(written));
                }
            }
            Block::Opaque { value, .. } => settle(value),
            Block::ToolResult { .. } => {}
        }
    }
    turn
}

fn settle(value: &mut Value) {
    match value {
        Value::String(said) => *said = text(std::mem::take(said)),
        Value::Array(values) => values.iter_mut().for_each(settle),
        Value::Object(fields) => fields.values_mut().for_each(settle),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(events: &[&str]) -> Vec<String> {
        let mut halves = Halves::default();
        let mut read: Vec<String> = events.iter().flat_map(|event| halves.push((*event).to_owned())).collect();
        read.extend(halves.end());
        read
    }

    #[test]
    fn halves_that_follow_each_other_are_a_character_and_others_are_marked() {
        for (events, wanted) in [
            (vec![r#"{"t":"a \ud83d"}"#, r#"{"t":"\ude00 b"}"#], vec![r#"{"t":"a "}"#, r#"{"t":"\ud83d\ude00 b"}"#]),
            (
                vec![r#"{"t":"\ud83d"}"#, r#"{"t":"\ude00\ud83d"}"#, r#"{"t":"\ude01"}"#],
                vec![r#"{"t":""}"#, r#"{"t":"\ud83d\ude00"}"#, r#"{"t":"\ud83d\ude01"}"#],
            ),
            (vec![r#"{"t":"\ud83d"}"#, r#"{"p":1}"#], vec![r#"{"t":"\ufdd0"}"#, r#"{"p":1}"#]),
            (vec![r#"{"t":"\ud83d"}"#, r#"{"t":"b \ude00"}"#], vec![r#"{"t":"\ufdd0"}"#, r#"{"t":"b \ufdd0"}"#]),
            (vec![r#"{"t":"\ud83d b"}"#], vec![r#"{"t":"\ufdd0 b"}"#]),
            (vec![r#"{"t":"b \ud83d"}"#], vec![r#"{"t":"b \ufdd0"}"#]),
            // The arguments of a call are JSON in a text: an escape of theirs is not one of the event's.
            (vec![r#"{"t":"{\"a\":\"\\ud83d"}"#, "[DONE]"], vec![r#"{"t":"{\"a\":\"\\ud83d"}"#, "[DONE]"]),
        ] {
            assert_eq!(read(&events), wanted);
        }
    }
}
