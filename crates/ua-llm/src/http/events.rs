//! Reads one streamed reply: bytes to events to a whole turn.

use std::io::Cursor;
use std::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use sse_stream::SseStream;
use ua_core::{ModelTurn, Usage};

use crate::error::{BoxError, LlmError};
use crate::provider::{Silent, StreamObserver};

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

/// What one event brought.
#[derive(Debug, PartialEq)]
pub(crate) enum Progress {
    /// Nothing to show.
    Nothing,
    /// The response's id.
    Session(String),
    /// A piece of text.
    Text(String),
    /// The message is whole.
    Whole(ModelTurn),
}

/// Why a stream cannot be read on.
#[derive(Debug, PartialEq)]
pub(crate) enum Fault {
    /// The provider reported an error inside the stream.
    Reported { kind: String, message: String },
    /// The events make no sense.
    Nonsense(String),
}

/// Makes a reply of the events of one wire. Pure: it is fed the data of one event after the other.
pub(crate) trait Assemble: Send {
    /// Takes the next event's data.
    fn feed(&mut self, data: &str) -> Result<Progress, Fault>;

    /// The stream ended in good order, and no event made the reply whole: the reply, if this wire calls it whole all the same.
    fn end(&mut self) -> Option<Result<ModelTurn, Fault>> {
        None
    }

    /// What is known so far of what the reply costs.
    fn heard(&self) -> Option<Usage>;

    /// Bytes of text that have arrived.
    fn text_bytes(&self) -> usize;

    /// Sorts an error that the provider reported inside the stream.
    fn reported(&self, kind: &str, message: String, model: &str) -> LlmError;

    /// Looks into the answer to a refused request for what its status alone, of which `error` was made, does not say.
    fn refused(&self, status: u16, body: &str, error: LlmError) -> LlmError {
        let _ = (status, body);
        error
    }
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

/// Reads until the message is whole; whatever ends the stream earlier is an error.
pub(crate) async fn read_reply(
    bytes: Bytes,
    model: &str,
    mut assembler: impl Assemble,
    observer: &dyn StreamObserver,
) -> Result<ModelTurn, LlmError> {
    let mut events = SseStream::from_bytes_stream(bytes);
    let mut told_of = None;
    while let Some(event) = events.next().await {
        let event = event.map_err(|error| broken(error, assembler.text_bytes()))?;
        let Some(data) = event.data.filter(|data| !data.is_empty()) else { continue };
        observer.event(&data);
        let progress = assembler.feed(&data);
        // A whole reply says itself what it cost. An event that ends the reply otherwise may still have told.
        if let (Some(heard), false) = (assembler.heard(), matches!(progress, Ok(Progress::Whole(_))))
            && told_of.replace(heard) != Some(heard)
        {
            observer.heard(heard);
        }
        match progress {
            Ok(Progress::Nothing) => {}
            Ok(Progress::Session(id)) => observer.session(&id),
            Ok(Progress::Text(delta)) => observer.text(&delta),
            Ok(Progress::Whole(turn)) => return Ok(turn),
            Err(fault) => return Err(told(fault, &assembler, model)),
        }
    }
    match assembler.end() {
        Some(end) => end.map_err(|fault| told(fault, &assembler, model)),
        None => Err(LlmError::Cut { text_bytes: assembler.text_bytes(), source: None }),
    }
}

/// Reads a reply that is there already, in pieces of `piece` bytes: for the fuzz target.
pub(crate) fn read_in_pieces(bytes: &[u8], piece: usize, assembler: impl Assemble) -> Result<ModelTurn, LlmError> {
    let pieces: Vec<_> = bytes.chunks(piece.max(1)).map(|piece| Ok(Cursor::new(piece.to_vec()))).collect();
    let pieces: Bytes = Box::pin(futures_util::stream::iter(pieces));
    let read = std::pin::pin!(read_reply(pieces, "model", assembler, &Silent));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match read.poll(&mut context) {
        std::task::Poll::Ready(reply) => reply,
        std::task::Poll::Pending => unreachable!("every piece is there"),
    }
}

/// Reads a reply from the data of its events, as they were recorded.
pub(crate) fn read_events(mut assembler: impl Assemble, events: &[String], model: &str) -> Result<ModelTurn, LlmError> {
    for event in events {
        match assembler.feed(event) {
            Ok(Progress::Whole(turn)) => return Ok(turn),
            Ok(Progress::Nothing | Progress::Session(_) | Progress::Text(_)) => {}
            Err(fault) => return Err(told(fault, &assembler, model)),
        }
    }
    match assembler.end() {
        Some(end) => end.map_err(|fault| told(fault, &assembler, model)),
        None => Err(LlmError::Cut { text_bytes: assembler.text_bytes(), source: None }),
    }
}

fn told(fault: Fault, assembler: &impl Assemble, model: &str) -> LlmError {
    match fault {
        Fault::Reported { kind, message } => assembler.reported(&kind, message, model),
        Fault::Nonsense(why) => LlmError::Protocol { why },
    }
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
