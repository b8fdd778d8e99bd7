//! How a write of the store fails: refused before it did anything, or done and never answered.

use ua_core::{ModelTurn, Outcome};
use ua_gateway::TransportError;
use ua_llm::LlmError;
use ua_store::{Retry, StoreError};

/// A fault of one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreFault {
    /// Another process holds the database; nothing was written.
    Busy,
    /// The disk is full; nothing was written.
    DiskFull,
    /// It was committed, and the caller never learns it.
    AnswerLost,
}

impl StoreFault {
    /// What the caller is told.
    pub fn error(self) -> StoreError {
        let (why, retry) = match self {
            Self::Busy => ("it is locked by another process", Retry::Later),
            Self::DiskFull => ("the disk is full", Retry::Never),
            Self::AnswerLost => ("the answer was lost", Retry::Later),
        };
        StoreError::Unavailable { why: why.to_owned(), source: None, retry }
    }
}

/// What comes back over a seam, as far as faults of the store are concerned. Models and tools have faults of their own.
pub(crate) trait Crossed: Sized {
    /// The answer in place of an effect that the store refuses.
    fn refused(_fault: StoreFault) -> Option<Self> {
        None
    }
    /// The answer in place of one that was lost.
    fn lost(self) -> Self {
        self
    }
}

impl Crossed for Outcome {}

impl Crossed for Result<Outcome, TransportError> {}

impl Crossed for Result<ModelTurn, LlmError> {}

impl<T> Crossed for Result<T, StoreError> {
    fn refused(fault: StoreFault) -> Option<Self> {
        (fault != StoreFault::AnswerLost).then(|| Err(fault.error()))
    }

    fn lost(self) -> Self {
        self.and_then(|_| Err(StoreFault::AnswerLost.error()))
    }
}
