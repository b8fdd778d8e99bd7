//! What can go wrong in the ledger.

use ua_core::{CallId, FailureClass};
use ua_store::StoreError;

/// Why the ledger did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The store refused or failed.
    #[error("cannot {doing} call {call}")]
    Store {
        /// What was being done, as a verb.
        doing: &'static str,
        /// To which call.
        call: CallId,
        /// The store's error.
        #[source]
        source: StoreError,
    },
    /// A person answered that the run is to end.
    #[error("a person answered `abort`: call {call} is not continued")]
    Aborted {
        /// The call the question was about.
        call: CallId,
    },
}

impl LedgerError {
    pub(crate) fn at(doing: &'static str, call: &CallId) -> impl FnOnce(StoreError) -> Self {
        let call = call.clone();
        move |source| Self::Store { doing, call, source }
    }

    /// What the caller may do next.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Store { source, .. } => source.class(),
            Self::Aborted { .. } => FailureClass::Permanent,
        }
    }
}
