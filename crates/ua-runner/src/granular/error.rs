//! What keeps a step from being driven.

use std::path::PathBuf;

use ua_core::{FailureClass, RunId, ShowPath as _, SpecError};
use ua_dispatch::DispatchError;
use ua_store::StoreError;

use super::definition::{Differs, what_helps};
use crate::error::RunError;
use crate::fork::ForkError;
use crate::lock::LockError;
use crate::past::PastError;
use crate::workspace::WorkspaceError;

/// Why a step could not be driven (the PRD's `ResumeError` and `ConfigurationError`). The last committed turn stands, and
/// nothing more was sent.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The definition cannot be worked with; nothing was stored.
    #[error("the step is not well defined: {}", words_of_a_step(.0))]
    Definition(SpecError),
    /// The run of that id was started with another definition, which never changes. A budget is changed beside it, anything else is a fork.
    #[error("run {run} was started with another {}; {}", told(differs), what_helps(differs, *has_ended))]
    AnotherDefinition {
        /// The run.
        run: RunId,
        /// The parts that differ.
        differs: Vec<Differs>,
        /// It has ended, so nothing about it changes any more.
        has_ended: bool,
    },
    /// The run was started by something else, for example by `ua job`.
    #[error(
        "run {run} was started by `{entrypoint}`, not by a program that uses the library: give the step another id; that run is continued with \
         `ua resume {run}`, and forked with `ua fork {run}`"
    )]
    AnotherEntrypoint {
        /// The run.
        run: RunId,
        /// What started it.
        entrypoint: String,
    },
    /// Another process drives the run.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The run's files are gone, which are part of it.
    #[error("cannot find the workspace of run {run}: {}", path.shown())]
    WorkspaceGone {
        /// The run.
        run: RunId,
        /// Where they should be.
        path: PathBuf,
    },
    /// The folder is another run's, whose files would count as this one's.
    #[error("the folder {} is that of run {owner}; give run {run} a folder of its own", path.shown())]
    WorkspaceTaken {
        /// The run.
        run: RunId,
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        owner: String,
    },
    /// The workspace cannot be used.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The tools cannot keep what is asked of them: one needs a key and cannot take it, or two share a name. Nothing was
    /// sent, and the run waits, stopped, to be gone on with.
    #[error("the agent cannot be offered its tools: {0}")]
    Tools(#[source] DispatchError),
    /// The store refused or failed.
    #[error("cannot {doing}")]
    Store {
        /// What was being done, as a verb phrase.
        doing: &'static str,
        /// The store's error.
        #[source]
        source: StoreError,
    },
    /// More was sent for the run than the database knows, which was put back from a copy. Nothing was sent.
    #[error("{}", went_back(source))]
    Past {
        /// What it lacks.
        #[from]
        source: PastError,
    },
    /// The run cannot be forked; nothing was stored.
    #[error(transparent)]
    Fork(#[from] ForkError),
    /// The drive ended without a conclusion.
    #[error(transparent)]
    Run(#[from] RunError),
}

fn told(differs: &[Differs]) -> String {
    differs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl From<SpecError> for StepError {
    fn from(error: SpecError) -> Self {
        Self::Definition(error)
    }
}

/// What is wrong with the contract that a step is stored as, by the names that its fields have in a step.
pub fn words_of_a_step(error: &SpecError) -> String {
    match error {
        SpecError::Invalid { field, why } => {
            let field = match field.as_str() {
                "objective" | "inputs" => "input",
                "budgets.max_turns" => "max_turns",
                other => {
                    let of = ["settings.", "agent.", "model."].iter().find_map(|of| other.strip_prefix(of));
                    of.unwrap_or(other)
                }
            };
            format!("`{field}` {why}")
        }
        SpecError::Syntax(why) => why.clone(),
        SpecError::UnknownField { field, .. } => format!("there is no field `{field}`"),
        SpecError::Several(errors) => errors.iter().map(words_of_a_step).collect::<Vec<_>>().join("; "),
    }
}

/// With what helps: the source alone says what is wrong.
fn went_back(error: &PastError) -> String {
    match error {
        PastError::Forgotten { run, .. } => format!(
            "{error}; nothing was sent: put back a newer copy of the database, or look what became of them, then accept it with \
             `Runs::accept_forgotten` or `ua db accept {run}`"
        ),
        PastError::Store(_) => error.to_string(),
    }
}

impl StepError {
    pub(super) fn store(doing: &'static str) -> impl FnOnce(StoreError) -> Self {
        move |source| Self::Store { doing, source }
    }

    /// What the caller may do next.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Definition(_)
            | Self::AnotherDefinition { .. }
            | Self::AnotherEntrypoint { .. }
            | Self::WorkspaceTaken { .. } => FailureClass::Permanent,
            Self::Lock(LockError::Held { .. }) => FailureClass::Transient,
            Self::Lock(LockError::Io { .. }) | Self::WorkspaceGone { .. } | Self::Workspace(_) => {
                FailureClass::Operator
            }
            Self::Tools(source) => source.class(),
            Self::Fork(source) => match source {
                ForkError::NotCommitted { .. } | ForkError::OfAnotherTurn { .. } => FailureClass::Permanent,
                ForkError::Locked(LockError::Held { .. }) => FailureClass::Transient,
                ForkError::Locked(LockError::Io { .. }) | ForkError::Workspace(_) => FailureClass::Operator,
                ForkError::Past(source) => source.class(),
                ForkError::Store { source, .. } => source.class(),
            },
            Self::Store { source, .. } => source.class(),
            Self::Past { source } => source.class(),
            Self::Run(source) => source.class(),
        }
    }
}
