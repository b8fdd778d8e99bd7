//! What the one who watches a run is told while it works.

use std::sync::Arc;

use ua_core::{Component, FingerprintDiff};
use ua_gateway::Notice;

/// Something worth a line of progress.
#[derive(Debug, Clone, PartialEq)]
pub enum Signal {
    /// A resume found this many calls in flight.
    Resuming {
        /// Committed turns.
        turn_index: u32,
        /// Calls in flight.
        in_flight: usize,
    },
    /// A changed component was pinned as it is now.
    Accepted {
        /// The component.
        component: Component,
        /// What differed; empty when only new tools came in.
        changes: FingerprintDiff,
    },
    /// A component that a person accepts has not changed.
    NothingToAccept {
        /// The component.
        component: Component,
    },
    /// A request to the model leaves.
    Thinking {
        /// The turn.
        turn: u32,
    },
    /// A request is tried again.
    Retrying {
        /// Which try failed.
        attempt: u32,
        /// Why.
        why: String,
        /// Milliseconds until the next.
        wait_millis: u64,
    },
    /// A piece of the model's text.
    Text {
        /// The piece.
        delta: String,
    },
    /// A turn is recorded.
    Recorded {
        /// The turn.
        turn: u32,
        /// Calls it asks for.
        calls: usize,
        /// Calls charged so far.
        tool_calls: u32,
        /// The limit.
        max_tool_calls: Option<u32>,
    },
    /// Something happened to a call.
    Call(Notice),
    /// A turn is committed.
    Committed {
        /// The turn.
        turn: u32,
    },
    /// The model is told to go on.
    Guided {
        /// With what.
        text: String,
    },
}

/// Takes signals; must not block.
pub type Watcher = Arc<dyn Fn(Signal) + Send + Sync>;
