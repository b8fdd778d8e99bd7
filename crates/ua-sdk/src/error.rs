//! What keeps a program's step from being run.

use std::path::PathBuf;

use serde_json::Value;
use ua_classify::PolicyError;
use ua_core::InvalidId;
use ua_llm::LlmError;
use ua_runner::{StepError, StepOutcome};
use ua_store::StoreError;

/// Why a step could not be run. How the step itself went is an [`Outcome`](crate::Outcome), never an error. The text has the whole chain of
/// causes.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The step lacks something, or contradicts itself.
    #[error("the step is not well defined: {0}")]
    Step(String),
    /// No run can have this id.
    #[error("invalid run id {id:?}: {}", chain(source))]
    Id {
        /// The id.
        id: String,
        /// Why.
        source: InvalidId,
    },
    /// The folder cannot be used.
    #[error("cannot use the folder {}: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The step's policies cannot be read.
    #[error("cannot read the step's policies: {}", chain(.0))]
    Policy(#[from] PolicyError),
    /// The model cannot be asked as it is set up.
    #[error("cannot set up the model: {0}")]
    Model(String),
    /// The tool servers cannot be used as they are configured.
    #[error("cannot set up the tool servers: {0}")]
    Servers(String),
    /// The step could not be driven; what is stored is as it was.
    #[error("{}", chain(.0))]
    Run(#[from] StepError),
    /// The store refused or failed.
    #[error("{doing}: {}", chain(source))]
    Store {
        /// What was being done, as a verb phrase.
        doing: &'static str,
        /// The store's error.
        source: StoreError,
    },
    /// The step is not complete, and a value was asked for. What to do is as for the outcome of [`Runs::run`](crate::Runs::run).
    #[error("the step has no result: {0}")]
    NotComplete(Box<StepOutcome>),
    /// The step is complete, and the result that is stored is no value of the type that the program asks for now.
    #[error(
        "the run is complete, and its stored result is not what this program asks for now: {why}. `Runs::fork` makes a run that asks the model again"
    )]
    Result {
        /// The result, as it is stored.
        result: Value,
        /// Why it cannot be read.
        why: String,
    },
    /// What was asked of a run cannot be done with it.
    #[error("{0}")]
    Refused(String),
}

impl std::fmt::Debug for Error {
    /// In words: it is what a `main` that ends with an error prints.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

impl From<LlmError> for Error {
    fn from(error: LlmError) -> Self {
        Self::Model(chain(&error))
    }
}

impl Error {
    pub(crate) fn store(doing: &'static str) -> impl FnOnce(StoreError) -> Self {
        move |source| Self::Store { doing, source }
    }
}

/// An error and its causes, in one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
