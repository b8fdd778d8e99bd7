//! What can go wrong on the road.

use ua_core::FailureClass;
use ua_ledger::LedgerError;

use crate::transport::TransportError;

/// Why a sub-agent could not be driven; what drives it knows.
pub type SubAgentError = Box<dyn std::error::Error + Send + Sync>;

/// Why a call could not be taken to its receipt.
#[derive(Debug, thiserror::Error)]
pub enum DispatchError {
    /// The ledger refused or failed.
    #[error("a tool call cannot be completed")]
    Ledger(#[from] LedgerError),
    /// A tool server cannot be used; nothing was sent.
    #[error("cannot reach a tool server")]
    Transport(#[from] TransportError),
    /// An earlier process of the tool server may still act, so nothing can be decided about its calls.
    #[error("an earlier process of the tool server `{server}` has not ended {detail}")]
    OrphanAlive {
        /// The server.
        server: String,
        /// Its generation, and what is known about the process.
        detail: String,
    },
    /// A sub-agent could not be driven; its run stays where it is.
    #[error("the sub-agent of call {call} failed")]
    SubAgent {
        /// Its task.
        call: ua_core::CallId,
        /// Why.
        #[source]
        source: SubAgentError,
    },
    /// A tool or rule is set up in a way that cannot keep its promise.
    #[error("the tool `{tool}` cannot be offered: {why}")]
    Configuration {
        /// The tool's qualified name.
        tool: String,
        /// What is wrong, and how to fix it.
        why: String,
    },
    /// What the job says about tools does not fit those that are there.
    #[error("{why}")]
    Unfit {
        /// What does not fit.
        why: String,
    },
}

impl DispatchError {
    /// The tool whose setup is wrong, by its qualified name.
    pub fn tool(&self) -> Option<&String> {
        if let Self::Configuration { tool, .. } = self { Some(tool) } else { None }
    }

    /// What the caller may do next.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Ledger(source) => source.class(),
            Self::Transport(_) | Self::SubAgent { .. } => FailureClass::Transient,
            Self::OrphanAlive { .. } | Self::Configuration { .. } | Self::Unfit { .. } => FailureClass::Operator,
        }
    }
}
