//! What can end a drive without a conclusion.

use ua_core::{BlobId, CallId, FailureClass, Timestamp};
use ua_gateway::GatewayError;
use ua_store::StoreError;

use crate::machine::UnexpectedEvent;
use crate::workspace::WorkspaceError;

/// Why a run could not be driven on. The run stays where it is; nothing more was sent.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The store refused or failed.
    #[error("{doing}")]
    Store {
        /// What was being done, as a verb phrase.
        doing: &'static str,
        /// The store's error.
        #[source]
        source: StoreError,
    },
    /// A tool call could not be taken to its receipt.
    #[error("run the tool calls of turn {turn}")]
    Gateway {
        /// The turn.
        turn: u32,
        /// The gateway's error.
        #[source]
        source: GatewayError,
    },
    /// A file of the workspace could not be written.
    #[error("write the run's files")]
    Workspace(#[from] WorkspaceError),
    /// The stored history is not one that a provider accepts.
    #[error("send the history: {why}")]
    History {
        /// What is wrong with it.
        why: String,
    },
    /// A result that the history refers to is gone. Irrecoverable for this turn, unless the job allows degraded replay.
    #[error("send the history: the result {blob} is not stored any more{}", pruned_at.map_or(String::new(), |at| format!("; it was pruned at {at}")))]
    BlobMissing {
        /// Which result.
        blob: BlobId,
        /// The call it is the result of.
        call: Option<CallId>,
        /// When it was pruned, if that is why.
        pruned_at: Option<Timestamp>,
    },
    /// A result that the history refers to is not what was stored. Irrecoverable.
    #[error("send the history: the result {blob} is damaged: {why}")]
    BlobCorrupt {
        /// Which result.
        blob: BlobId,
        /// What is wrong with it.
        why: String,
    },
    /// A bug in the driver.
    #[error("drive the run")]
    Machine(#[from] UnexpectedEvent),
}

impl RunError {
    pub(crate) fn at(doing: &'static str) -> impl FnOnce(StoreError) -> Self {
        move |source| Self::Store { doing, source }
    }

    /// What the caller may do next.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Store { source, .. } => source.class(),
            Self::Gateway { source, .. } => source.class(),
            Self::Workspace(_) | Self::BlobMissing { .. } | Self::BlobCorrupt { .. } => FailureClass::Operator,
            Self::History { .. } | Self::Machine(_) => FailureClass::Permanent,
        }
    }
}
