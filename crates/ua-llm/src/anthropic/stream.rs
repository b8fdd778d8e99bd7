//! Reads one streamed reply: bytes to events to a whole turn.

use std::io::Cursor;
use std::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use sse_stream::SseStream;
use ua_core::ModelTurn;

use super::assembler::{Assembler, Fault, Progress};
use super::reject;
use crate::error::{BoxError, LlmError};
use crate::provider::StreamObserver;

/// A reply's bytes, in whatever pieces they arrive.
pub(crate) type Bytes = Pin<Box<dyn Stream<Item = Result<Cursor<Vec<u8>>, ReadFault>> + Send>>;

/// Why no more bytes came.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadFault {
    #[error("the provider fell silent")]
    Silent(Duration),
    #[error("the connection broke")]
    Broken(#[source] BoxError),
    #[error("the reply is larger than {0} bytes")]
    TooLarge(usize),
}

/// Lets `limit` bytes through; a reply that goes on beyond them is a fault, not a full memory.
pub(crate) fn limited(bytes: Bytes, limit: usize) -> Bytes {
    Box::pin(bytes.scan(0_usize, move |seen, piece| {
        let piece = piece.and_then(|piece| {
            *seen += piece.get_ref().len();
            if *seen > limit { Err(ReadFault::TooLarge(limit)) } else { Ok(piece) }
        });
        std::future::ready(Some(piece))
    }))
}

/// Reads a reply that is there already, in pieces of `piece` bytes: for the fuzz target.
pub(crate) fn read_in_pieces(bytes: &[u8], piece: usize) -> Result<ModelTurn, LlmError> {
    let pieces: Vec<_> = bytes.chunks(piece.max(1)).map(|piece| Ok(Cursor::new(piece.to_vec()))).collect();
    let pieces: Bytes = Box::pin(futures_util::stream::iter(pieces));
    let read = std::pin::pin!(read_reply(pieces, "model", &crate::provider::Silent));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match read.poll(&mut context) {
        std::task::Poll::Ready(reply) => reply,
        std::task::Poll::Pending => unreachable!("every piece is there"),
    }
}

/// Reads until the message is whole; whatever ends the stream earlier is an error.
pub(crate) async fn read_reply(
    bytes: Bytes,
    model: &str,
    observer: &dyn StreamObserver,
) -> Result<ModelTurn, LlmError> {
    let mut assembler = Assembler::default();
    let mut events = SseStream::from_bytes_stream(bytes);
    while let Some(event) = events.next().await {
        let event = event.map_err(|error| broken(error, assembler.text_bytes()))?;
        let Some(data) = event.data.filter(|data| !data.is_empty()) else { continue };
        match assembler.feed(&data) {
            Ok(Progress::Nothing) => {}
            Ok(Progress::Session(id)) => observer.session(&id),
            Ok(Progress::Text(delta)) => observer.text(&delta),
            Ok(Progress::Whole(turn)) => return Ok(turn),
            Err(Fault::Reported { kind, message }) => return Err(reject::by_type(&kind, message, model)),
            Err(Fault::Nonsense(why)) => return Err(LlmError::Protocol { why }),
        }
    }
    Err(LlmError::Cut { text_bytes: assembler.text_bytes(), source: None })
}

fn broken(error: sse_stream::Error, text_bytes: usize) -> LlmError {
    use sse_stream::Error as E;
    match error {
        E::Body(source) => match source.downcast::<ReadFault>().map(|fault| *fault) {
            Ok(ReadFault::Silent(idle)) => LlmError::Timeout { idle },
            Ok(fault @ ReadFault::TooLarge(_)) => LlmError::Protocol { why: fault.to_string() },
            Ok(ReadFault::Broken(source)) | Err(source) => LlmError::Cut { text_bytes, source: Some(source) },
        },
        error @ (E::InvalidLine
        | E::DuplicatedEventLine
        | E::DuplicatedIdLine
        | E::DuplicatedRetry
        | E::Utf8Parse(_)
        | E::IntParse(_)) => LlmError::Protocol { why: format!("it is not a stream of events: {error}") },
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use proptest::prelude::*;
    use serde_json::json;
    use ua_core::{Block, StopReason, ToolUse, Usage};

    use super::*;
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
        runtime.block_on(read_reply(bytes, "claude-x", &Silent))
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
            usage: Some(Usage {
                input_tokens: 472,
                output_tokens: 89,
                cache_read_tokens: 2_048,
                cache_write_tokens: 12,
            }),
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
        fn a_stream_that_stops_anywhere_is_never_a_reply(at in 0..RECORDED.trim_end().len(), breaks in any::<bool>()) {
            let mut stream = vec![Ok(recorded()[..at].to_vec())];
            if breaks {
                stream.push(Err(ReadFault::Broken("reset by peer".into())));
            }
            let result = read(pieces(stream));
            prop_assert!(matches!(result, Err(LlmError::Cut { .. })), "{result:?}");
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
    fn a_page_instead_of_events_is_a_protocol_error() {
        let stream = pieces(vec![Ok(b"<!doctype html>\n<title>Sign in</title>\n".to_vec())]);
        assert!(matches!(read(stream), Err(LlmError::Protocol { .. })));
    }
}
