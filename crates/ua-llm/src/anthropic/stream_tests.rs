//! A recorded stream of the API, read in every way in which it may arrive.

use std::io::Cursor;
use std::time::Duration;

use futures_util::stream;
use proptest::prelude::*;
use serde_json::json;
use ua_core::{Block, ModelTurn, StopReason, ToolUse, Usage};

use super::assembler::Assembler;
use crate::error::LlmError;
use crate::http::events::{Bytes, ReadFault, limited, read_reply};
use crate::provider::Silent;

/// A reply in the form of the API's documentation, with a comment, CRLF in places, pings and a letter of two bytes.
const RECORDED: &str = include_str!("fixtures/thinking_text_tool.sse");

fn pieces(pieces: Vec<Result<Vec<u8>, ReadFault>>) -> Bytes {
    Box::pin(stream::iter(pieces.into_iter().map(|piece| piece.map(Cursor::new))))
}

fn recorded() -> Vec<u8> {
    RECORDED.as_bytes().to_vec()
}

fn read(bytes: Bytes) -> Result<ModelTurn, LlmError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(read_reply(bytes, "claude-x", Assembler::default(), &Silent))
}

fn expected() -> ModelTurn {
    ModelTurn {
        blocks: vec![
            Block::Opaque {
                provider: "anthropic".into(),
                value: json!({"type": "thinking", "thinking": "Which file? The café one.", "signature": "EqQBCgIYAhIM1gbc=="}),
            },
            Block::text("Reading the café's menu."),
            Block::ToolUse(ToolUse {
                id: "toolu_01T1x1fJ34qAmk2tNTrN7Up6".into(),
                name: "mcp__ua__read_file".into(),
                input: json!({"path": "menu – café.txt", "limit": 9_007_199_254_740_993_u64}),
            }),
        ],
        stop_reason: StopReason::ToolUse,
        usage: Some(Usage { input_tokens: 472, output_tokens: 89, cache_read_tokens: 2_048, cache_write_tokens: 12 }),
        model: "claude-x-20260101".into(),
        response_id: Some("msg_014p7gG3wDgGV9EUtLvnow3U".into()),
    }
}

#[test]
fn a_recorded_stream_is_read_whole() {
    assert_eq!(read(pieces(vec![Ok(recorded())])).unwrap(), expected());
    assert_eq!(read(pieces(recorded().into_iter().map(|byte| Ok(vec![byte])).collect())).unwrap(), expected());
}

#[test]
fn line_ends_do_not_matter() {
    let unix = RECORDED.replace("\r\n", "\n");
    for text in [unix.clone(), unix.replace('\n', "\r\n"), unix.replace('\n', "\r")] {
        assert_eq!(read(pieces(vec![Ok(text.into_bytes())])).unwrap(), expected());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_split_into_pieces_changes_the_reply(cuts in prop::collection::vec(0..RECORDED.len(), 0..24)) {
        let mut cuts = cuts;
        cuts.extend([0, RECORDED.len()]);
        cuts.sort_unstable();
        let bytes = recorded();
        let split = cuts.windows(2).map(|ends| Ok(bytes[ends[0]..ends[1]].to_vec())).collect();
        prop_assert_eq!(read(pieces(split)).unwrap(), expected());
    }

    #[test]
    fn a_stream_that_stops_anywhere_is_no_reply_unless_its_reason_was_told(
        at in 0..RECORDED.trim_end().len(),
        breaks in any::<bool>(),
    ) {
        let told = RECORDED.find("\"stop_reason\": \"tool_use\"").unwrap();
        let told = told + RECORDED[told..].find('\n').unwrap();
        let mut stream = vec![Ok(recorded()[..at].to_vec())];
        if breaks {
            stream.push(Err(ReadFault::Broken("reset by peer".into())));
        }
        let result = read(pieces(stream));
        if at >= told && !breaks {
            prop_assert_eq!(result.unwrap(), expected());
        } else {
            prop_assert!(matches!(result, Err(LlmError::Cut { .. })), "{result:?}");
        }
    }
}

#[test]
fn silence_after_some_text_is_a_timeout() {
    let idle = Duration::from_secs(3);
    let stream = pieces(vec![Ok(recorded()[..900].to_vec()), Err(ReadFault::Silent(idle))]);
    assert!(matches!(read(stream), Err(LlmError::Timeout { idle: told }) if told == idle));
}

#[test]
fn a_reply_without_end_does_not_fill_the_memory() {
    let endless = Box::pin(stream::repeat_with(|| Ok(Cursor::new(b": padding\n".to_vec()))));
    assert!(matches!(read(limited(endless, 1 << 16)), Err(LlmError::Protocol { why }) if why.contains("65536")));
}

#[test]
fn a_page_instead_of_events_is_no_reply() {
    let stream = pieces(vec![Ok(b"<!doctype html>\n<title>Sign in</title>\n".to_vec())]);
    assert!(matches!(read(stream), Err(LlmError::Cut { text_bytes: 0, .. })));
}
