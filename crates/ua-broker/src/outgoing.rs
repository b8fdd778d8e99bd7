//! What goes to a client, and how much of it is carried.

use std::time::Duration;

use serde_json::{Value, json};
use ua_mcp::{Queued, size_of};

/// The longest answer that is handed to a bridge, which carries lines of 64 MiB with its own words in front of them.
pub(crate) const MOST_CARRIED: usize = 64 * 1024 * 1024 - 64 * 1024;

/// What goes to the client.
#[derive(Debug)]
pub(crate) enum ToClient {
    /// The answer to the request of this name; `None` when the client wants none any more.
    Answer { name: String, answer: Option<Value> },
    /// For a bridge alone: the broker is there. `within`: how long the client waits for the answer to a call.
    Here { within: Option<Duration> },
    /// Anything else, with the request that it is about, where there is one.
    Tell { message: Value, about: Option<String> },
}

impl Queued for ToClient {
    fn size(&self) -> usize {
        match self {
            Self::Answer { answer, .. } => answer.as_ref().map_or(0, size_of),
            Self::Tell { message, .. } => size_of(message),
            Self::Here { .. } => 0,
        }
    }

    /// Somebody waits for all but what is only told. A tool server's request is not made where there is no room.
    fn must_be_taken(&self) -> bool {
        match self {
            Self::Answer { .. } | Self::Here { .. } => true,
            Self::Tell { message, .. } => message.get("id").is_some(),
        }
    }
}

/// What a request is answered with that has no result.
pub(crate) fn error(code: i64, message: &str, data: Value) -> Value {
    let mut error = json!({"error": {"code": code, "message": message}});
    if !data.is_null() {
        error["error"]["data"] = data;
    }
    error
}
