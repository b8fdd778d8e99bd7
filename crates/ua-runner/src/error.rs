//! What can end a drive without a conclusion.

use ua_core::{Audience, BlobId, CallId, Component, FailureClass, FingerprintDiff, Timestamp};
use ua_dispatch::DispatchError;
use ua_store::{Retry, StoreError};

use crate::machine::UnexpectedEvent;
use crate::workspace::WorkspaceError;

/// Why a run could not be driven on. The run stays where it is; nothing more was sent.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The store refused or failed.
    #[error("cannot {doing}")]
    Store {
        /// What was being done, as a verb phrase.
        doing: &'static str,
        /// The store's error.
        #[source]
        source: StoreError,
    },
    /// A tool call could not be taken to its receipt.
    #[error("cannot run the tool calls of turn {turn}")]
    Dispatch {
        /// The turn.
        turn: u32,
        /// The dispatcher's error.
        #[source]
        source: DispatchError,
    },
    /// A file of the workspace could not be written.
    #[error("cannot write the run's files")]
    Workspace(#[from] WorkspaceError),
    /// The stored history is not one that a provider accepts.
    #[error("cannot send the history: {why}")]
    History {
        /// What is wrong with it.
        why: String,
    },
    /// A result that the history refers to is gone. Irrecoverable for this turn, unless the job allows degraded replay.
    #[error("cannot send the history: the result {blob} is not stored any more{}", pruned_at.map_or(String::new(), |at| format!("; it was pruned at {at}")))]
    BlobMissing {
        /// Which result.
        blob: BlobId,
        /// The call it is the result of.
        call: Option<CallId>,
        /// When it was pruned, if that is why.
        pruned_at: Option<Timestamp>,
    },
    /// A result that the history refers to is not what was stored. Irrecoverable.
    #[error("cannot send the history: the result {blob} is damaged: {why}")]
    BlobCorrupt {
        /// Which result.
        blob: BlobId,
        /// What is wrong with it.
        why: String,
    },
    /// The stored state and this driver do not go together.
    #[error(transparent)]
    Resume(#[from] ResumeError),
    /// A bug in the driver.
    #[error("the run cannot be driven")]
    Machine(#[from] UnexpectedEvent),
}

impl RunError {
    pub(crate) fn at(doing: &'static str) -> impl FnOnce(StoreError) -> Self {
        move |source| match source {
            StoreError::Fenced { .. } => ResumeError::LeaseLost { doing, source }.into(),
            StoreError::Corrupt { .. } => {
                ResumeError::CorruptState { why: doing.to_owned(), source: Some(source) }.into()
            }
            StoreError::Unavailable { retry: Retry::Later, .. } => ResumeError::StoreBusy { doing, source }.into(),
            StoreError::Conflict { .. }
            | StoreError::NotFound { .. }
            | StoreError::Exists { .. }
            | StoreError::KeyTaken { .. }
            | StoreError::ScopeTouched { .. }
            | StoreError::Corrected { .. }
            | StoreError::EffectLimit { .. }
            | StoreError::NotBegun
            | StoreError::HoldsSecret { .. }
            | StoreError::Repeated { .. }
            | StoreError::WentBack { .. }
            | StoreError::TailLost { .. }
            | StoreError::Unavailable { retry: Retry::WithRoom | Retry::Never, .. } => Self::Store { doing, source },
        }
    }

    /// What the caller may do next.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Store { source, .. } => source.class(),
            Self::Dispatch { source, .. } => source.class(),
            Self::Resume(error) => error.class(),
            Self::Workspace(_) | Self::BlobMissing { .. } | Self::BlobCorrupt { .. } => FailureClass::Operator,
            Self::History { .. } | Self::Machine(_) => FailureClass::Permanent,
        }
    }
}

/// What a person who meets a changed prompt, input or model can do.
pub const ANOTHER_RUN_HINT: &str = "a changed job, system prompt or model makes it another run: `ua fork RUN` makes one that continues from a turn of this one; this one resumes only as it was pinned";

/// The same, as it is done there.
pub(crate) fn another_run_hint(audience: Audience) -> &'static str {
    audience.pick(
        ANOTHER_RUN_HINT,
        "a changed input, system prompt or model makes it another run: `Runs::fork` makes one that continues from a turn of this one; this \
         one resumes only as it was pinned",
    )
}

/// Why a run cannot be gone on with from where it stands (Granular Execution PRD §5.1, §5.2). Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// The store is more than a turn ahead of the driver, which has to reload.
    #[error("turn {wanted} is committed already: there are {committed}")]
    Behind {
        /// The turn the driver wanted.
        wanted: u32,
        /// How many turns are committed.
        committed: u32,
    },
    /// Turns between the stored ones and the wanted one are missing; nothing is appended over them.
    #[error("turn {wanted} cannot come next: only {committed} turns are committed")]
    Gap {
        /// The turn the driver wanted.
        wanted: u32,
        /// How many turns are committed.
        committed: u32,
    },
    /// The store kept refusing the commit of a turn that it says is the next one.
    #[error("turn {turn} cannot be committed")]
    CasConflict {
        /// The turn.
        turn: u32,
        /// What the store said last.
        #[source]
        source: StoreError,
    },
    /// Another process took the run; this one does nothing more.
    #[error("cannot {doing}")]
    LeaseLost {
        /// What was being done, as a verb phrase.
        doing: &'static str,
        /// The store's word on it.
        #[source]
        source: StoreError,
    },
    /// The store could not be reached for now.
    #[error("cannot {doing}")]
    StoreBusy {
        /// What was being done, as a verb phrase.
        doing: &'static str,
        /// The store's error.
        #[source]
        source: StoreError,
    },
    /// The setup is not the one that the step was pinned to.
    #[error("the setup changed since the run started:\n{diff}")]
    FingerprintMismatch {
        /// What changed.
        diff: FingerprintDiff,
    },
    /// What is stored contradicts itself.
    #[error("cannot read the run's state: {why}")]
    CorruptState {
        /// What is wrong.
        why: String,
        /// The store's error, if it was the one to notice.
        #[source]
        source: Option<StoreError>,
    },
    /// A newer program wrote it.
    #[error(
        "cannot read the run's state, which a newer version of this program wrote: version {found}, this one knows {known}"
    )]
    SchemaTooNew {
        /// The stored version.
        found: u64,
        /// The newest version this program knows.
        known: u32,
    },
    /// A component that makes it another run cannot be accepted.
    #[error("cannot accept a changed `{component}`: {}", another_run_hint(*audience))]
    NotAcceptable {
        /// The component.
        component: Component,
        /// Who asked for it.
        audience: Audience,
    },
}

impl ResumeError {
    /// Whether reloading, waiting or another process may get further.
    pub fn is_recoverable(&self) -> bool {
        match self {
            Self::Behind { .. }
            | Self::Gap { .. }
            | Self::CasConflict { .. }
            | Self::LeaseLost { .. }
            | Self::StoreBusy { .. } => true,
            Self::FingerprintMismatch { .. }
            | Self::CorruptState { .. }
            | Self::SchemaTooNew { .. }
            | Self::NotAcceptable { .. } => false,
        }
    }

    /// What the caller may do next.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Behind { .. } | Self::Gap { .. } | Self::CasConflict { .. } | Self::StoreBusy { .. } => {
                FailureClass::Transient
            }
            Self::LeaseLost { .. } => FailureClass::Permanent,
            Self::FingerprintMismatch { .. }
            | Self::CorruptState { .. }
            | Self::SchemaTooNew { .. }
            | Self::NotAcceptable { .. } => FailureClass::Operator,
        }
    }
}
