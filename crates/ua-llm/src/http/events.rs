//! Reads one streamed reply: bytes to events to a whole turn.

use std::io::Cursor;
use std::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use ua_core::{Block, ModelTurn, StopReason, Usage};
use ua_http::sse::Parser;

use crate::error::{BoxError, LlmError};
use crate::http::marks::{self, Halves, MARK};
use crate::http::{reject, waiting};
use crate::provider::{Ending, Silent, StreamObserver};

/// Bytes of one event, as many as of a whole reply: some servers send one in a single event.
const EVENT_LIMIT: usize = 64 << 20;

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

/// The event that `data` is, as an object; the error that it reports, in whatever place servers put one.
pub(crate) fn object_of(data: &str) -> Result<Map<String, Value>, Fault> {
    match serde_json::from_str(data) {
        // Older vLLM and its kin: the event is the error.
        Ok(Value::Object(event)) if event.get("object").is_some_and(|object| object == "error") => {
            let message = event.get("message").filter(|message| !message.is_null());
            let message = message.map_or_else(|| "no explanation was given".to_owned(), in_words);
            Err(Fault::Reported { kind: reject::kind_of(&Value::Object(event)), message })
        }
        Ok(Value::Object(event)) => Ok(event),
        // Gemini's door gives an error as a list with one in it.
        Ok(Value::Array(mut events)) if is_one_error(&events) => match events.remove(0) {
            Value::Object(event) => Ok(event),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                unreachable!("an error is an object")
            }
        },
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            Err(Fault::Nonsense("an event is not an object".to_owned()))
        }
        Err(error) => Err(Fault::Nonsense(format!("an event is not readable: {error}"))),
    }
}

fn is_one_error(events: &[Value]) -> bool {
    events.len() == 1 && events[0].get("error").is_some_and(|error| !error.is_null())
}

/// What a server says, as a text.
pub(crate) fn in_words(said: &Value) -> String {
    said.as_str().map_or_else(|| said.to_string(), str::to_owned)
}

/// Reads an event whose type this build knows.
pub(crate) fn known_event<T: DeserializeOwned>(event: Map<String, Value>) -> Result<T, Fault> {
    serde_json::from_value(Value::Object(event))
        .map_err(|error| Fault::Nonsense(format!("an event is not readable: {error}")))
}

/// Makes a reply of the events of one wire. Pure: it is fed the data of one event after the other.
pub(crate) trait Assemble: Send {
    /// Takes the next event's data.
    fn feed(&mut self, data: &str) -> Result<Progress, Fault>;

    /// The stream ended in good order, and no event made the reply whole: the reply, if this wire calls it whole all the same.
    fn end(&mut self) -> Option<Result<ModelTurn, Fault>> {
        None
    }

    /// The data of the events that a reply would have been which came as one object, from a server that streams none; `None` of what is no
    /// reply.
    fn as_events(&self, reply: Map<String, Value>) -> Option<Vec<String>>;

    /// The same of a refused request whose refusal is of what the model said: the request was right, and the reply is one that is none.
    fn refused_as_events(&self, body: &str) -> Option<Vec<String>> {
        let _ = body;
        None
    }

    /// Whether the reply has begun. Some providers count nothing before its end.
    fn has_begun(&self) -> bool;

    /// What was counted so far of what the reply costs, by the provider and by what has arrived.
    fn counted(&self) -> Option<Usage>;

    /// What is known so far of what the reply costs: of one that has begun at least that.
    fn heard(&self) -> Option<Usage> {
        self.counted().or_else(|| self.has_begun().then(Usage::default))
    }

    /// Bytes of text that have arrived.
    fn text_bytes(&self) -> usize;

    /// How the reply ended, in its provider's words, once it is whole.
    fn ending(&self) -> Ending;

    /// Sorts an error that the provider reported inside the stream.
    fn reported(&self, kind: &str, message: String, model: &str) -> LlmError {
        reject::reported(kind, message, model)
    }

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
    mut bytes: Bytes,
    model: &str,
    mut assembler: impl Assemble,
    observer: &dyn StreamObserver,
) -> Result<ModelTurn, LlmError> {
    let (mut parser, mut halves) = (Parser::marking(EVENT_LIMIT, MARK), Halves::default());
    let mut told_of = None;
    while let Some(piece) = bytes.next().await {
        let piece = piece.map_err(|fault| broken(fault, assembler.text_bytes()))?;
        let pushed = parser.push(piece.get_ref());
        while let Some(event) = parser.next_event() {
            let Some(data) = event.data.filter(|data| !data.is_empty()) else { continue };
            for data in halves.push(data) {
                if let Some(turn) = take(&data, model, &mut assembler, observer, &mut told_of)? {
                    return Ok(turn);
                }
            }
        }
        pushed.map_err(|why| LlmError::Garbled { why })?;
    }
    // Some servers leave out the line that ends the last event. One that was cut instead is no JSON.
    let last = parser.last_event().and_then(|event| event.data).filter(|data| !data.is_empty());
    let mut left: Vec<String> = last.into_iter().flat_map(|data| halves.push(data)).collect();
    left.extend(halves.end());
    for data in left.iter().filter(|data| is_whole(data)) {
        if let Some(turn) = take(data, model, &mut assembler, observer, &mut told_of)? {
            return Ok(turn);
        }
    }
    at_end(&mut assembler, model, observer)
}

/// Reads a reply that came in one piece, from the data of the events that it would have been.
pub(crate) fn read_whole(
    events: &[String],
    model: &str,
    mut assembler: impl Assemble,
    observer: &dyn StreamObserver,
) -> Result<ModelTurn, LlmError> {
    let mut told_of = None;
    for data in events {
        if let Some(turn) = take(data, model, &mut assembler, observer, &mut told_of)? {
            return Ok(turn);
        }
    }
    at_end(&mut assembler, model, observer)
}

/// The reply, if this wire calls it whole though no event did.
fn at_end(assembler: &mut impl Assemble, model: &str, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
    match assembler.end() {
        Some(end) => {
            let turn = end.map_err(|fault| told(fault, assembler, model))?;
            observer.ended(&assembler.ending());
            Ok(within_bounds(marks::settled(turn)))
        }
        None => Err(LlmError::Cut { text_bytes: assembler.text_bytes(), source: None }),
    }
}

/// Takes one event in; the reply, if that made it whole.
fn take(
    data: &str,
    model: &str,
    assembler: &mut impl Assemble,
    observer: &dyn StreamObserver,
    told_of: &mut Option<Usage>,
) -> Result<Option<ModelTurn>, LlmError> {
    observer.event(data);
    let progress = assembler.feed(data);
    // A whole reply says itself what it cost. An event that ends the reply otherwise may still have told.
    if let (Some(heard), false) = (assembler.heard(), matches!(progress, Ok(Progress::Whole(_))))
        && told_of.replace(heard) != Some(heard)
    {
        observer.heard(heard);
    }
    match progress {
        Ok(Progress::Nothing) => {}
        Ok(Progress::Session(id)) => observer.session(&id),
        Ok(Progress::Text(delta)) => observer.text(&marks::text(delta)),
        Ok(Progress::Whole(turn)) => {
            observer.ended(&assembler.ending());
            return Ok(Some(within_bounds(marks::settled(turn))));
        }
        Err(fault) => {
            let Some((turn, ending)) = withheld(&fault, assembler, model) else {
                return Err(told(fault, assembler, model));
            };
            observer.ended(&ending);
            return Ok(Some(turn));
        }
    }
    Ok(None)
}

/// The most tool calls that one reply may ask for. Replies of real work ask for a few dozen; one of thousands is a model that repeats itself, and
/// each call would be a row, looked at beside all others.
pub(super) const MOST_CALLS: usize = 1_000;

/// A reply with more calls than are taken from one: its text alone, with a word about them, which ended as no reply does, so that the model is
/// told to say it again. It is not continued from where its provider keeps it, since there the calls are in it.
fn within_bounds(turn: ModelTurn) -> ModelTurn {
    let calls = turn.tool_uses().count();
    if calls <= MOST_CALLS {
        return turn;
    }
    let mut blocks: Vec<Block> = turn.blocks.into_iter().filter(|block| matches!(block, Block::Text { .. })).collect();
    let text = format!(
        "(This reply asked for {calls} tool calls. At most {MOST_CALLS} are taken from one reply, so none of them was made.)"
    );
    blocks.push(Block::Text { text });
    ModelTurn { blocks, stop_reason: StopReason::Other, response_id: None, ..turn }
}

/// The reply that a filter kept back, where a server says so by an error: it is refused, as it is where the end of a reply says so.
fn withheld(fault: &Fault, assembler: &impl Assemble, model: &str) -> Option<(ModelTurn, Ending)> {
    let Fault::Reported { kind, message } = fault else { return None };
    reject::is_withheld(kind, message).then(|| {
        let turn = ModelTurn {
            blocks: Vec::new(),
            stop_reason: StopReason::Refusal,
            usage: assembler.counted(),
            model: model.to_owned(),
            response_id: None,
        };
        (turn, Ending { said: ended_with("filtered", &message.as_str().into()), context_is_full: false })
    })
}

/// Whether `data` is the mark by which Chat Completions end a stream. Servers in between put it behind the streams of other wires
/// too, where it is no event.
pub(crate) fn is_end_mark(data: &str) -> bool {
    data.trim() == "[DONE]"
}

fn is_whole(data: &str) -> bool {
    is_end_mark(data) || serde_json::from_str::<serde::de::IgnoredAny>(data).is_ok()
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
            Ok(Progress::Whole(turn)) => return Ok(within_bounds(marks::settled(turn))),
            Ok(Progress::Nothing | Progress::Session(_) | Progress::Text(_)) => {}
            Err(fault) => {
                let kept_back = withheld(&fault, &assembler, model).map(|(turn, _)| turn);
                return kept_back.ok_or_else(|| told(fault, &assembler, model));
            }
        }
    }
    match assembler.end() {
        Some(end) => end.map(marks::settled).map(within_bounds).map_err(|fault| told(fault, &assembler, model)),
        None => Err(LlmError::Cut { text_bytes: assembler.text_bytes(), source: None }),
    }
}

/// A provider's word for how a reply ended, with what it says about it, in one line.
pub(crate) fn ended_with(word: &str, details: &Value) -> String {
    const SHOWN: usize = 400;
    let facts: Vec<String> = match details {
        Value::Null => Vec::new(),
        Value::Object(fields) => {
            let said = fields.iter().filter(|(name, value)| *name != "type" && !value.is_null() && **value != "");
            said.map(|(name, value)| {
                format!("{name}: {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            })
            .collect()
        }
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()).into_iter().collect(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => vec![details.to_string()],
    };
    let facts = if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) };
    let line = format!("{word}{facts}").split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(SHOWN).collect()
}

fn told(fault: Fault, assembler: &impl Assemble, model: &str) -> LlmError {
    match fault {
        Fault::Reported { kind, message } => {
            let wait = waiting::asked_in_words(&message);
            assembler.reported(&kind, marks::text(message), model).after(wait)
        }
        Fault::Nonsense(why) => LlmError::Garbled { why },
    }
}

/// The error of a reply of which no more bytes came.
pub(crate) fn broken(fault: ReadFault, text_bytes: usize) -> LlmError {
    match fault {
        ReadFault::Silent(idle) => LlmError::Timeout { idle },
        ReadFault::TooLarge(_) => LlmError::Protocol { why: fault.to_string() },
        ReadFault::Broken(source) => LlmError::Cut { text_bytes, source: Some(source) },
    }
}
