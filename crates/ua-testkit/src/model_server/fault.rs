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
    /// Any other HTTP status.
    Status {
        /// The status.
        status: u16,
    },
    /// The connection breaks after the headers.
    CutBeforeFirstEvent,
    /// The connection breaks in the middle of the reply, behind its first piece of text or input.
    CutMidStream,
    /// The stream ends in good order, but `message_stop` is missing.
    EndWithoutStop,
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
            Self::Status { status } => Plan::Refuse(Refusal::new(status, "the server was told to say so")),
            Self::CutBeforeFirstEvent => damaged(Damage::NoEvents),
            Self::CutMidStream => damaged(Damage::Half),
            Self::EndWithoutStop => damaged(Damage::NoStop),
            Self::ErrorMidStream { error_type } => damaged(Damage::Error(error_type)),
            Self::HangAfter { events } => damaged(Damage::Hang(events)),
            Self::Slow { delay_ms } => {
                Plan::Stream(Pace { delay: Duration::from_millis(delay_ms), damage: Damage::None })
            }
            Self::Hang => unreachable!("a request that hangs is never answered"),
        }
    }
}

impl Pace {
    /// Takes away what the damage takes away. `error_frame` is how this API reports an error of a type.
    pub(super) fn cut(&self, frames: &mut Vec<String>, error_frame: impl Fn(&str) -> String) -> Ending {
        match &self.damage {
            Damage::None => return Ending::Clean,
            Damage::NoEvents => frames.clear(),
            Damage::Half => frames.truncate(behind_first_delta(frames)),
            Damage::NoStop => {
                frames.pop();
                return Ending::Clean;
            }
            Damage::Error(error_type) => {
                frames.truncate(behind_first_delta(frames));
                frames.push(error_frame(error_type));
                return Ending::Clean;
            }
            Damage::Hang(events) => {
                frames.truncate(*events);
                return Ending::Never;
            }
        }
        Ending::Abort
    }
}

/// Events that bring a piece of text or input.
const DELTAS: [&str; 3] = ["content_block_delta", "output_text.delta", "arguments.delta"];

fn behind_first_delta(frames: &[String]) -> usize {
    frames.iter().position(|frame| DELTAS.iter().any(|delta| frame.contains(delta))).map_or(frames.len() / 2, |first| first + 1)
}
