//! How a model server fails.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Refusal;

/// A failure at one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The request that fails, counted from 1.
    pub at_request: u64,
    /// How it fails.
    #[serde(flatten)]
    pub kind: FaultKind,
}

impl Fault {
    /// The failure of request `at_request`.
    pub fn at(at_request: u64, kind: FaultKind) -> Self {
        Self { at_request, kind }
    }
}

/// A way to fail. The request is checked first: a faulty one is refused for what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FaultKind {
    /// HTTP 429.
    RateLimited {
        /// The `Retry-After` header: seconds or an HTTP date.
        #[serde(default)]
        retry_after: Option<String>,
    },
    /// HTTP 529.
    Overloaded529,
    /// HTTP 500.
    Server500,
    /// Any other HTTP status; 404 is about the model.
    Status {
        /// The status.
        status: u16,
    },
    /// The connection breaks after the headers.
    CutBeforeFirstEvent,
    /// The connection breaks in the middle of the reply, behind its first piece of text or input.
    CutMidStream,
    /// The stream ends in good order, but what says that the reply ended is missing.
    EndWithoutStop,
    /// The connection breaks behind so many events.
    CutAfter {
        /// How many arrive.
        events: usize,
    },
    /// The stream ends in good order behind so many events.
    EndAfter {
        /// How many arrive.
        events: usize,
    },
    /// An event in the middle of the reply is no JSON.
    MalformedEvent,
    /// Every event comes twice.
    DuplicateEvents,
    /// The reply goes on and on, with nothing in it.
    Endless,
    /// A page with status 200 comes instead of events.
    Page,
    /// The stream reports an error in the middle of the reply.
    ErrorMidStream {
        /// The error's type: `overloaded_error`, `api_error`, …
        error_type: String,
    },
    /// Every event is late.
    Slow {
        /// Milliseconds before each event.
        delay_ms: u64,
    },
    /// There is never an answer.
    Hang,
    /// The reply begins with so many events, and then nothing more ever comes.
    HangAfter {
        /// How many.
        events: usize,
    },
}

/// What is done instead of answering well.
pub(super) enum Plan {
    Refuse(Refusal),
    Stream(Pace),
    Page,
    Endless,
}

/// How a reply is streamed.
#[derive(Debug, Default)]
pub(super) struct Pace {
    pub(super) delay: Duration,
    damage: Damage,
}

#[derive(Debug, Default)]
enum Damage {
    #[default]
    None,
    NoEvents,
    Half,
    NoStop,
    Error(String),
    Hang(usize),
    CutAfter(usize),
    EndAfter(usize),
    Malformed,
    Twice,
}

/// How the body of a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Clean,
    Abort,
    Never,
}

impl FaultKind {
    /// Whether the reply arrives as it is, only late.
    pub(super) const fn leaves_the_reply_whole(&self) -> bool {
        matches!(self, Self::Slow { .. })
    }

    pub(super) fn plan(self) -> Plan {
        let damaged = |damage| Plan::Stream(Pace { delay: Duration::ZERO, damage });
        match self {
            Self::RateLimited { retry_after } => Plan::Refuse(Refusal {
                retry_after,
                ..Refusal::new(429, "Number of requests has exceeded your rate limit")
            }),
            Self::Overloaded529 => Plan::Refuse(Refusal::new(529, "Overloaded")),
            Self::Server500 => Plan::Refuse(Refusal::new(500, "Internal server error")),
            // A provider that knows no such path says nothing about a model.
            Self::Status { status: 404 } => Plan::Refuse(Refusal::new(404, "there is no model of this name")),
            Self::Status { status } => Plan::Refuse(Refusal::new(status, "the server was told to say so")),
            Self::CutBeforeFirstEvent => damaged(Damage::NoEvents),
            Self::CutMidStream => damaged(Damage::Half),
            Self::EndWithoutStop => damaged(Damage::NoStop),
            Self::ErrorMidStream { error_type } => damaged(Damage::Error(error_type)),
            Self::HangAfter { events } => damaged(Damage::Hang(events)),
            Self::CutAfter { events } => damaged(Damage::CutAfter(events)),
            Self::EndAfter { events } => damaged(Damage::EndAfter(events)),
            Self::MalformedEvent => damaged(Damage::Malformed),
            Self::DuplicateEvents => damaged(Damage::Twice),
            Self::Endless => Plan::Endless,
            Self::Page => Plan::Page,
            Self::Slow { delay_ms } => {
                Plan::Stream(Pace { delay: Duration::from_millis(delay_ms), damage: Damage::None })
            }
            Self::Hang => unreachable!("a request that hangs is never answered"),
        }
    }
}

/// The events of a reply, each in the form of Server-Sent Events.
#[derive(Debug)]
pub(super) struct Frames {
    pub(super) events: Vec<String>,
    /// The first that brings text or input.
    pub(super) first_piece: usize,
    /// The first without which the reply is not whole.
    pub(super) end: usize,
}

impl Pace {
    /// Takes away what the damage takes away. `error_frame` is how the wire reports an error of a type.
    pub(super) fn cut(&self, error_frame: impl Fn(&str) -> String, whole: Frames) -> (Vec<String>, Ending) {
        let Frames { events: mut frames, first_piece, end } = whole;
        let behind_first_piece = (first_piece + 1).min(frames.len());
        let ending = match &self.damage {
            Damage::None => Ending::Clean,
            Damage::NoEvents => {
                frames.clear();
                Ending::Abort
            }
            Damage::Half => {
                frames.truncate(behind_first_piece);
                Ending::Abort
            }
            Damage::NoStop => {
                frames.truncate(end);
                Ending::Clean
            }
            Damage::Error(error_type) => {
                frames.truncate(behind_first_piece);
                frames.push(error_frame(error_type));
                Ending::Clean
            }
            Damage::CutAfter(events) => {
                frames.truncate(*events);
                Ending::Abort
            }
            Damage::EndAfter(events) => {
                frames.truncate(*events);
                Ending::Clean
            }
            Damage::Malformed => {
                frames.insert(behind_first_piece, "data: {\"torn\": \n\n".to_owned());
                Ending::Clean
            }
            Damage::Hang(events) => {
                frames.truncate(*events);
                Ending::Never
            }
            Damage::Twice => {
                frames = frames.into_iter().flat_map(|frame| [frame.clone(), frame]).collect();
                Ending::Clean
            }
        };
        (frames, ending)
    }
}
