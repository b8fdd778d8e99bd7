//! How a write of the store fails: refused before it did anything, or done and never answered.

use ua_core::{ModelTurn, Outcome};
use ua_gateway::TransportError;
use ua_llm::LlmError;
use ua_store::{Retry, StoreError};

use crate::outcomes::StoreOutcome;

/// Whether a write that comes to this is made.
enum Made {
    Yes,
    /// And the writer is told that it was not.
    AndLost(StoreError),
    No(StoreError),
}

fn unavailable(why: &str, retry: Retry) -> StoreError {
    StoreError::Unavailable { why: why.to_owned(), source: None, retry }
}

impl StoreOutcome {
    fn made(self) -> Made {
        match self {
            // What a restored backup forgets was committed, and its writer knew: the seam has nothing to do.
            Self::Done | Self::Forgotten => Made::Yes,
            Self::Busy | Self::BusyForLong => Made::No(unavailable("it is locked by another process", Retry::Later)),
            Self::DiskFull => Made::No(unavailable("the disk is full", Retry::Never)),
            Self::AnswerLost => Made::AndLost(unavailable("the answer was lost", Retry::Later)),
        }
    }
}

/// What comes back over a seam, as far as the store is concerned. Models and tools have outcomes of their own.
pub(crate) trait Crossed: Sized {
    /// The answer in place of an effect that the store refuses.
    fn refused(_outcome: StoreOutcome) -> Option<Self> {
        None
    }
    /// The answer of an effect that was made.
    fn made(self, _outcome: StoreOutcome) -> Self {
        self
    }
}

impl Crossed for Outcome {}

impl Crossed for Result<Outcome, TransportError> {}

impl Crossed for Result<ModelTurn, LlmError> {}

impl<T> Crossed for Result<T, StoreError> {
    fn refused(outcome: StoreOutcome) -> Option<Self> {
        match outcome.made() {
            Made::No(error) => Some(Err(error)),
            Made::Yes | Made::AndLost(_) => None,
        }
    }

    fn made(self, outcome: StoreOutcome) -> Self {
        match outcome.made() {
            Made::AndLost(error) => self.and(Err(error)),
            Made::Yes | Made::No(_) => self,
        }
    }
}
