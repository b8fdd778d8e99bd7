//! What can go wrong between a caller and its rows.

use std::fmt;

use ua_core::{CallId, CallStatus, FailureClass, RunId};

/// An error of the layer below.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Names a row in an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowRef {
    table: &'static str,
    key: String,
}

impl RowRef {
    /// Names the row `key` of `table`.
    pub fn new(table: &'static str, key: impl fmt::Display) -> Self {
        Self { table, key: key.to_string() }
    }

    /// Its table.
    pub fn table(&self) -> &'static str {
        self.table
    }

    /// Its key in that table.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What a row of its table is, for people.
    fn kind(&self) -> &'static str {
        match self.table {
            "runs" => "run",
            "deleted_runs" => "deleted run",
            "run_steps" => "step",
            "turns" => "turn",
            "usage" => "request",
            "tool_calls" => "call",
            "tool_receipts" => "receipt",
            "questions" => "question",
            "checkpoints" => "checkpoint",
            "blobs" => "blob",
            "run_queue" => "queued run",
            "workers" => "worker",
            "schedules" => "schedule",
            "gateway_sessions" => "session",
            "gateway_arrivals" => "request of a client",
            other => other,
        }
    }
}

impl fmt::Display for RowRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.key)
    }
}

/// Whether an unavailable store is worth another try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Locked or busy.
    Later,
    /// No room is left: a person has to make some. Whoever holds what nobody else has waits for that, and nobody else.
    WithRoom,
    /// Read-only, damaged: a person has to act.
    Never,
}

/// Why a store did not do what it was asked. Nothing was changed, except where a variant says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The row is not what the caller last saw.
    #[error("{row} cannot be changed: {why}")]
    Conflict {
        /// Which row.
        row: RowRef,
        /// What differs.
        why: String,
    },
    /// Another process took the run; this one must stop.
    #[error("run {run} was taken over: epoch {ours} was fenced by {theirs}")]
    Fenced {
        /// Which run.
        run: RunId,
        /// The caller's epoch.
        ours: u64,
        /// The stored one.
        theirs: u64,
    },
    /// The batch of this number was committed before; this one changed nothing.
    #[error("batch {number} of run {run} was written before")]
    Repeated {
        /// Which run.
        run: RunId,
        /// Which batch.
        number: u64,
    },
    /// Batches of the owner are gone that the database had confirmed, durable ones among them: it was put back from a copy, or a standby took
    /// over that did not have them.
    #[error("the database has only {written} of {confirmed} writes of run {run} that it had confirmed")]
    WentBack {
        /// Which run.
        run: RunId,
        /// How many batches are there.
        written: u64,
        /// How many were confirmed.
        confirmed: u64,
    },
    /// The same, and none of them had to be durable: the server crashed. What is there is whole, and the run continues from it.
    #[error(
        "the database server lost the last writes of run {run} when it crashed: {written} of {confirmed} are there, which is all that had to be durable"
    )]
    TailLost {
        /// Which run.
        run: RunId,
        /// How many batches are there.
        written: u64,
        /// How many were confirmed.
        confirmed: u64,
    },
    /// No such row.
    #[error("cannot find {row}")]
    NotFound {
        /// Which row.
        row: RowRef,
    },
    /// A row of that id is there already.
    #[error("{row} exists already")]
    Exists {
        /// Which row.
        row: RowRef,
    },
    /// An earlier call holds the key.
    #[error("the key of call {call} is held by call {by}, which is {status}")]
    KeyTaken {
        /// The caller's call.
        call: CallId,
        /// The call that holds the key.
        by: CallId,
        /// Where that one stands.
        status: CallStatus,
    },
    /// Another call may have had the effect since the caller looked.
    #[error("cannot start call {call}: call {by}, which is {status}, may have had the same effect meanwhile")]
    ScopeTouched {
        /// The caller's call.
        call: CallId,
        /// The call with the same scope.
        by: CallId,
        /// Where that one stands.
        status: CallStatus,
    },
    /// What is recorded of a call of the lineage was corrected, or became known, since the caller looked.
    #[error("cannot start call {call}: what is recorded of an earlier call was corrected meanwhile")]
    Corrected {
        /// The caller's call.
        call: CallId,
    },
    /// The run has had as many effects of this kind as its contract allows.
    #[error("cannot start call {call}: the run allows {max} × {effect}")]
    EffectLimit {
        /// The caller's call.
        call: CallId,
        /// The effect kind.
        effect: String,
        /// The limit.
        max: u32,
    },
    /// A stop was asked for while what is written before it waited, so that it was not written: it is not committed, and was not tried.
    #[error("the call was not started: a stop was asked for before it could be")]
    NotBegun,
    /// What a person said, or a file, has the value of a secret in it and would be stored as it is.
    #[error("the {what} contains the value of {name}; nothing was stored")]
    HoldsSecret {
        /// What was said.
        what: &'static str,
        /// The secret, as `[secret NAME]`.
        name: String,
    },
    /// The row on disk is not one this program could have written.
    #[error("cannot read {row}: {why}")]
    Corrupt {
        /// Which row.
        row: RowRef,
        /// What is wrong with it.
        why: String,
    },
    /// The database itself is the problem. After a failed write nobody knows whether it was committed.
    #[error("the runtime database is not available: {why}")]
    Unavailable {
        /// What the layer below says, in a person's words.
        why: String,
        /// The layer below.
        #[source]
        source: Option<BoxError>,
        /// Whether another try may help.
        retry: Retry,
    },
}

impl StoreError {
    /// Whether the store looked at the write and refused it; otherwise the database itself is the problem.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Conflict { .. }
            | Self::Fenced { .. }
            | Self::Repeated { .. }
            | Self::WentBack { .. }
            | Self::TailLost { .. }
            | Self::NotFound { .. }
            | Self::Exists { .. }
            | Self::KeyTaken { .. }
            | Self::ScopeTouched { .. }
            | Self::Corrected { .. }
            | Self::EffectLimit { .. }
            | Self::NotBegun
            | Self::HoldsSecret { .. } => true,
            Self::Corrupt { .. } | Self::Unavailable { .. } => false,
        }
    }

    /// What the caller may do next.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Conflict { .. } | Self::NotBegun | Self::Unavailable { retry: Retry::Later, .. } => {
                FailureClass::Transient
            }
            Self::Fenced { .. }
            | Self::Repeated { .. }
            | Self::WentBack { .. }
            | Self::TailLost { .. }
            | Self::NotFound { .. }
            | Self::Exists { .. }
            | Self::KeyTaken { .. }
            | Self::ScopeTouched { .. }
            | Self::Corrected { .. }
            | Self::EffectLimit { .. }
            | Self::HoldsSecret { .. } => FailureClass::Permanent,
            Self::Corrupt { .. } | Self::Unavailable { retry: Retry::WithRoom | Retry::Never, .. } => {
                FailureClass::Operator
            }
        }
    }
}
