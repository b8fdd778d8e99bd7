//! The newest turn of a history, shortened to what a model takes.
//!
//! A [`View`](crate::View) leaves out whole messages, and never those of the newest turn: its results answer tool uses that stand in it. Where
//! these alone are longer than the model's context, the longest texts in them (results, and the arguments and words of the model itself) are
//! shown by their beginning and end, all of them down to one length, so that the short ones stay whole. The job, notes, words of persons and what
//! only a provider understands are never shortened. A pure function of the messages and the window: a resume, a fork and another process shorten
//! alike, and what is stored stays whole.
//! Proved by: the tests below, the wires' `valid_histories`, the runner's `provider_edge`.

use serde_json::{Map, Value};
use ua_core::{Block, Message, Origin};
use ua_store::message_bytes;

use crate::truncate::Window;

/// More bytes of JSON than the words have that stand for what is left out.
const WORDS: u64 = 256;
/// The same of the words in an argument.
const ARGUMENT_WORDS: u64 = 128;
/// Bytes of JSON that each text keeps at least.
const LEAST: u64 = 96;
/// Bytes that count as a token.
const TOKEN: u64 = 4;

/// Shortens the newest turn in `messages`, a view that does not fit, to the window. Says whether anything was shortened; what is left may be over
/// the window all the same, when nothing long is left in it.
pub fn shorten_newest(messages: &mut [Message], window: Window) -> bool {
    let all: u64 = messages.iter().map(message_bytes).sum();
    // Each message may be rounded up by a token.
    let tokens = window.max_tokens.saturating_sub(window.system_tokens).saturating_sub(messages.len() as u64);
    let most = tokens.saturating_mul(TOKEN);
    if all <= most {
        return false;
    }
    let sizes: Vec<u64> = messages.iter().filter(|m| is_newest(m)).flat_map(|m| m.blocks.iter().map(size)).collect();
    let fixed = all.saturating_sub(sizes.iter().sum());
    let fits = |level: u64| fixed + sizes.iter().map(|size| *size.min(&(level + WORDS))).sum::<u64>() <= most;
    let (mut low, mut high) = (LEAST, sizes.iter().copied().max().unwrap_or_default().max(LEAST));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    let is_long = |block: &Block| size(block) > low + WORDS;
    let mut is_shortened = false;
    for message in messages.iter_mut().filter(|message| is_newest(message)) {
        if message.blocks.iter().any(is_long) {
            is_shortened = true;
            message.blocks =
                message.blocks.iter().map(|b| if is_long(b) { shorter(b, low) } else { b.clone() }).collect();
        }
    }
    is_shortened
}

/// Whether a message of a view that does not fit belongs to the newest turn: what was said between turns stays.
fn is_newest(message: &Message) -> bool {
    matches!(message.origin, Origin::Model | Origin::Tools)
}

/// Bytes of JSON of what may be shortened in a block.
fn size(block: &Block) -> u64 {
    match block {
        Block::Text { text } => escaped(text),
        Block::ToolUse(tool_use) => json_bytes(&tool_use.input),
        Block::ToolResult { content, .. } => escaped(content),
        Block::Opaque { .. } => 0,
    }
}

/// A block of which about `level` bytes of JSON are shown.
fn shorter(block: &Block, level: u64) -> Block {
    match block {
        Block::Text { text } => Block::text(ends_of(text, level, |left_out, all| {
            format!("[… {left_out} of {all} bytes of this text are left out here: it is too long for the context …]")
        })),
        Block::ToolUse(tool_use) => {
            let mut tool_use = tool_use.clone();
            tool_use.input = shorter_input(&tool_use.input, level);
            Block::ToolUse(tool_use)
        }
        Block::ToolResult { tool_use_id, content, is_error } => Block::ToolResult {
            tool_use_id: tool_use_id.clone(),
            content: ends_of(content, level, |left_out, all| {
                format!(
                    "[… {left_out} of {all} bytes of this result are left out here: it is too long for the context. The run keeps all of it. If \
                     you need what is missing, ask for a smaller part …]"
                )
            })
            .into(),
            is_error: *is_error,
        },
        Block::Opaque { .. } => block.clone(),
    }
}

/// Arguments of which about `level` bytes of JSON are shown: their long texts are shortened. Where it is not the length of texts that makes them
/// long, they are one text.
fn shorter_input(input: &Value, level: u64) -> Value {
    let mut each = level;
    while each >= LEAST {
        let shorter = with_short_texts(input, each);
        if json_bytes(&shorter) <= level + WORDS {
            return shorter;
        }
        each /= 2;
    }
    let text = ends_of(&input.to_string(), level, argument_words);
    Value::Object(Map::from_iter([("arguments".to_owned(), Value::String(text))]))
}

fn with_short_texts(value: &Value, level: u64) -> Value {
    match value {
        Value::String(text) if escaped(text) > level + ARGUMENT_WORDS => ends_of(text, level, argument_words).into(),
        Value::Array(items) => items.iter().map(|item| with_short_texts(item, level)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| (name.clone(), with_short_texts(field, level))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn argument_words(left_out: usize, all: usize) -> String {
    format!("[… {left_out} of {all} bytes are left out here; the call itself has all of them …]")
}

/// The beginning and the end of a text, together `level` bytes of JSON at most, with words between that say how many of how many bytes are left
/// out.
fn ends_of(text: &str, level: u64, words: impl Fn(usize, usize) -> String) -> String {
    let beginning = level / 3 * 2;
    let head = &text[..within(text.chars(), beginning)];
    let tail = &text[text.len() - within(text.chars().rev(), level - beginning)..];
    let words = words(text.len().saturating_sub(head.len() + tail.len()), text.len());
    format!("{head}\n{words}\n{tail}")
}

/// Bytes of the first characters that have at most `most` bytes of JSON.
fn within(chars: impl Iterator<Item = char>, most: u64) -> usize {
    let (mut bytes, mut written) = (0, 0);
    for c in chars {
        written += escaped_char(c);
        if written > most {
            break;
        }
        bytes += c.len_utf8();
    }
    bytes
}

/// Bytes of a text within JSON.
fn escaped(text: &str) -> u64 {
    text.chars().map(escaped_char).sum()
}

fn escaped_char(c: char) -> u64 {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        other => other.len_utf8() as u64,
    }
}

fn json_bytes(value: &Value) -> u64 {
    serde_json::to_string(value).map_or(0, |json| json.len() as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use ua_core::{Role, ToolUse};
    use ua_llm::check_history;

    use super::*;
    use crate::{MeasuredHistory, estimate_tokens};

    const SYSTEM: u64 = 50;

    fn text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            "[a-z ]{1,9}",
            Just("漢字".to_owned()),
            Just("\"\\\n".to_owned()),
            Just("\u{1}\u{1f980}e\u{301}".to_owned())
        ];
        (piece, prop_oneof![0..20_usize, 300..3_000_usize]).prop_map(|(piece, times)| piece.repeat(times))
    }

    fn input() -> impl Strategy<Value = Value> {
        prop_oneof![
            text().prop_map(|text| json!({"title": "x", "body": text})),
            (text(), text()).prop_map(|(a, b)| json!({"items": [{"a": a}, {"b": [b]}], "n": 7})),
            (0..5_000_usize).prop_map(|many| json!({ "numbers": vec![12_345; many] })),
            (0..1_000_usize)
                .prop_map(|many| Value::Object((0..many).map(|n| (format!("key{n}"), json!("v"))).collect())),
            text().prop_map(|text| json!(text)),
            Just(json!({})),
        ]
    }

    /// A run with an earlier turn or without one, and a newest turn of any shape.
    fn histories() -> impl Strategy<Value = Vec<Message>> {
        let calls = prop::collection::vec((input(), text(), any::<bool>()), 0..9);
        (any::<bool>(), text(), calls, prop::option::of("[a-z ]{0,40}")).prop_map(|(has_past, said, calls, note)| {
            let mut messages = vec![Message::user(Origin::Prompt, "the job ".repeat(20))];
            let turn = |number: usize, said: String, calls: Vec<(Value, String, bool)>| {
                let id = |n: usize| format!("toolu_{number}_{n}");
                let asked = calls.iter().enumerate().map(|(n, (input, _, _))| {
                    Block::ToolUse(ToolUse { id: id(n), name: "mcp__t__get_page".into(), input: input.clone() })
                });
                let blocks = std::iter::once(Block::text(said)).chain(asked).collect();
                let results = calls.iter().enumerate().map(|(n, (_, result, is_error))| Block::ToolResult {
                    tool_use_id: id(n),
                    content: result.as_str().into(),
                    is_error: *is_error,
                });
                let results: Vec<Block> = results.collect();
                let answers = (!results.is_empty()).then(|| Message {
                    role: Role::User,
                    origin: Origin::Tools,
                    blocks: results.into(),
                });
                std::iter::once(Message { role: Role::Assistant, origin: Origin::Model, blocks }).chain(answers)
            };
            if has_past {
                messages.extend(turn(1, "before".into(), vec![(json!({}), "y".repeat(3_000), false)]));
            }
            messages.extend(turn(2, said, calls));
            messages.extend(note.map(|note| Message::user(Origin::Resume, note)));
            messages
        })
    }

    fn view(messages: &[Message], max_tokens: u64) -> (Vec<Message>, bool) {
        let mut history = MeasuredHistory::new(estimate_tokens);
        history.extend(messages.iter().cloned());
        let view = history.view(Window { max_tokens, system_tokens: SYSTEM });
        (view.messages().cloned().collect(), view.fits)
    }

    fn tokens(messages: &[Message]) -> u64 {
        SYSTEM + messages.iter().map(estimate_tokens).sum::<u64>()
    }

    proptest! {
        /// Whatever the newest turn is, it fits into any context that has room for the job and a few hundred bytes of each of its parts; it stays a
        /// history that providers take, with the same calls, and another process makes the same of it.
        #[test]
        fn any_newest_turn_fits_into_any_context(messages in histories(), max_tokens in 3_500_u64..30_000) {
            let (mut shown, fits) = view(&messages, max_tokens);
            let before = shown.clone();
            let window = Window { max_tokens, system_tokens: SYSTEM };
            let is_shortened = shorten_newest(&mut shown, window);
            prop_assert!(tokens(&shown) <= max_tokens, "{} of {max_tokens}", tokens(&shown));
            prop_assert!(!(fits && is_shortened) || tokens(&before) + before.len() as u64 > max_tokens);
            prop_assert_eq!(is_shortened, shown != before);
            prop_assert_eq!(check_history(&shown), Ok(()));
            prop_assert_eq!(&shown[0], &before[0]);
            for (short, whole) in shown.iter().zip(&before) {
                prop_assert_eq!((short.role, short.origin, short.blocks.len()), (whole.role, whole.origin, whole.blocks.len()));
                for (short, whole) in short.blocks.iter().zip(&whole.blocks) {
                    prop_assert!(size(short) <= size(whole).max(LEAST + WORDS));
                    match (short, whole) {
                        (Block::ToolUse(short), Block::ToolUse(whole)) => {
                            prop_assert_eq!((&short.id, &short.name), (&whole.id, &whole.name));
                            prop_assert!(short.input.is_object() || short.input.is_string() && whole.input.is_string());
                        }
                        (Block::ToolResult { content: short, is_error: a, .. }, Block::ToolResult { content: whole, is_error: b, .. }) => {
                            prop_assert_eq!(a, b);
                            prop_assert!(short == whole || whole.starts_with(short.split("\n[… ").next().unwrap_or_default()));
                        }
                        (Block::Text { .. }, Block::Text { .. }) => {}
                        other => prop_assert!(false, "another kind of block: {other:?}"),
                    }
                }
            }
            // Another process reads what is stored.
            let stored: Vec<Message> = serde_json::from_str(&serde_json::to_string(&messages).unwrap()).unwrap();
            let (mut again, _) = view(&stored, max_tokens);
            shorten_newest(&mut again, window);
            prop_assert_eq!(&again, &shown);
            // What was shortened is what the next one makes of it, too.
            shorten_newest(&mut again, window);
            prop_assert_eq!(again, shown);
        }

        #[test]
        fn the_ends_of_a_text_are_its_ends(text in text(), level in LEAST..4_000) {
            let short = ends_of(&text, level, |left_out, all| format!("<{left_out}/{all}>"));
            prop_assume!(escaped(&text) > level + WORDS);
            let (head, rest) = short.split_once("\n<").unwrap();
            let (words, tail) = rest.split_once(">\n").unwrap();
            prop_assert!(text.starts_with(head) && text.ends_with(tail));
            prop_assert_eq!(words, format!("{}/{}", text.len() - head.len() - tail.len(), text.len()));
            prop_assert!(escaped(head) + escaped(tail) <= level && escaped(head) + escaped(tail) + 16 > level);
        }
    }

    #[test]
    fn a_size_is_that_of_the_json() {
        let text = "a\"\\\n\r\t\u{8}\u{c}\u{0}\u{1f}\u{7f}é漢\u{1f980}";
        assert_eq!(escaped(text) + 2, json_bytes(&json!(text)));
    }

    #[test]
    fn short_texts_stay_whole_and_long_ones_say_what_is_left_out() {
        let result = |id: &str, content: &str| Block::ToolResult {
            tool_use_id: id.into(),
            content: content.into(),
            is_error: false,
        };
        let asked = |id: &str| Block::ToolUse(ToolUse { id: id.into(), name: "t".into(), input: json!({"page": id}) });
        let long = format!("begins{}ends", "x".repeat(90_000));
        let mut messages = vec![
            Message::user(Origin::Prompt, "look"),
            Message { role: Role::Assistant, origin: Origin::Model, blocks: vec![asked("a"), asked("b")].into() },
            Message {
                role: Role::User,
                origin: Origin::Tools,
                blocks: vec![result("a", "short"), result("b", &long)].into(),
            },
        ];
        let before = messages.clone();
        assert!(shorten_newest(&mut messages, Window { max_tokens: 1_000, system_tokens: 10 }));
        assert_eq!(messages[..2], before[..2]);
        assert_eq!(messages[2].blocks[0], before[2].blocks[0]);
        let Block::ToolResult { content, .. } = &messages[2].blocks[1] else { panic!("no result") };
        assert!(content.starts_with("beginsxxx") && content.ends_with("xxxends") && content.len() > 2_000, "{content}");
        assert!(content.contains(" of 90010 bytes of this result are left out here"), "{content}");
    }
}
