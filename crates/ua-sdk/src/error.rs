//! What keeps a program's step from being run.

use std::path::PathBuf;

use serde_json::Value;
use ua_classify::PolicyError;
use ua_core::{
    CallId, FailureClass, InvalidId, PriceError, RunId, RunStop, ShowPath as _, SpecError, Timestamp, Trace, chain,
};
use ua_dispatch::DispatchError;
use ua_ledger::LedgerError;
use ua_llm::LlmError;
use ua_runner::{Differs, ForkError, LockError, PastError, ResumeError, RunError, StepError, StepOutcome as Outcome};
use ua_store::{Forgotten, OwnerStamp, StoreError};

/// Why a step could not be run, by what a program does about it. How the step itself went is an [`Outcome`], never an error.
/// Whatever the error, the last committed turn stands, and nothing more was sent. The text has the whole chain of causes, so
/// [`source`](std::error::Error::source) has none: what prints a chain, as anyhow does, would say each of them twice.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The step lacks something, contradicts itself, or says something of tools that are not there.
    #[error("the step is not well defined: {0}")]
    Step(String),
    /// The step cannot be run with this input, and nothing else is wrong with it: the input is empty, longer than any model reads, too
    /// deep, or has a secret in it. Whoever gave it is told, and may give another one.
    #[error("the step cannot be run with this input: {0}")]
    Input(String),
    /// No run can have this id.
    #[error("no run can be called so: {}", chain(cause))]
    Id {
        /// The id.
        id: String,
        /// Why.
        cause: InvalidId,
    },
    /// The folder cannot be used.
    #[error("cannot use the folder {}: {cause}", path.shown())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// The step's policies cannot be read.
    #[error("cannot read the step's policies: {}", chain(.0))]
    Policy(PolicyError),
    /// A table of prices cannot be read.
    #[error("cannot read the prices: {}", chain(.0))]
    Prices(PriceError),
    /// The model cannot be asked as it is set up.
    #[error("cannot set up the model: {0}")]
    Model(String),
    /// The tool servers cannot be used as they are configured.
    #[error("cannot set up the tool servers: {0}")]
    Servers(String),
    /// There is no run of this id.
    #[error("there is no run `{id}`; `Runs::list` has those that there are")]
    NoSuchRun {
        /// The id.
        id: String,
    },
    /// The run was started with another definition, which never changes: a budget is set beside it ([`Runs::set_budget`](crate::Runs::set_budget)),
    /// anything else is a [fork](crate::Runs::fork).
    #[error("{why}")]
    AnotherDefinition {
        /// The run.
        run: RunId,
        /// The parts that differ.
        differs: Vec<Differs>,
        /// In words, with what helps.
        why: String,
    },
    /// Another process, or another task of this one, drives the run. It is left to that one, or tried again later ([`Runs::wait`](crate::Runs::wait)).
    #[error("{why}")]
    DrivenElsewhere {
        /// The run.
        run: RunId,
        /// In words, with the process.
        why: String,
    },
    /// More was sent for the run than the database knows, which was put back from a copy: [`Runs::accept_forgotten`](crate::Runs::accept_forgotten).
    #[error("{why}")]
    Forgotten {
        /// The run.
        run: RunId,
        /// What the database lacks, oldest first.
        forgotten: Vec<Forgotten>,
        /// In words, with what helps.
        why: String,
    },
    /// The tools cannot be used: a server is lost while the run is under way ([`FailureClass::Transient`]), or a tool cannot keep what the step asks
    /// of it. A server that cannot be reached when the run begins stops it instead ([`RunStop::ToolServer`]).
    #[error("{why}")]
    Tools {
        /// What helps.
        class: FailureClass,
        /// In words.
        why: String,
    },
    /// The run's folder, or its lock, cannot be used: it is gone, it is another run's, or the disk refuses it.
    #[error("{why}")]
    Files {
        /// In words, with the path.
        why: String,
    },
    /// The run cannot be resumed for another reason: its history cannot be sent, a result of it is gone, its records are damaged or of a newer
    /// version.
    #[error("{}", chain(.0))]
    Run(StepError),
    /// The store refused or failed, whatever was being done. [`Error::class`] says whether the same may succeed later.
    #[error("cannot {doing}: {}", chain(cause))]
    Store {
        /// What was being done, as a verb phrase.
        doing: String,
        /// The store's error.
        cause: StoreError,
    },
    /// The step is not complete, and a value was asked for. What to do is as for the outcome of [`Runs::run`](crate::Runs::run).
    #[error("the step has no result: {0}")]
    NotComplete(Box<Outcome>),
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
    /// What became of a call cannot be said yet ([`Runs::resolve`](crate::Runs::resolve)): it may still happen.
    #[error("{why}")]
    TooEarly {
        /// The call.
        call: CallId,
        /// From when on it can be said, where a time says it.
        until: Option<Timestamp>,
        /// In words, with what helps.
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

impl From<PolicyError> for Error {
    fn from(error: PolicyError) -> Self {
        Self::Policy(error)
    }
}

impl From<PriceError> for Error {
    fn from(error: PriceError) -> Self {
        Self::Prices(error)
    }
}

impl From<LlmError> for Error {
    fn from(error: LlmError) -> Self {
        let why = chain(&error);
        // Its own words begin as ours do.
        Self::Model(why.strip_prefix("cannot set up the model provider: ").unwrap_or(&why).to_owned())
    }
}

impl From<StepError> for Error {
    fn from(error: StepError) -> Self {
        let why = chain(&error);
        match error {
            StepError::Definition(spec) => {
                let why = ua_runner::words_of_a_step(&spec);
                let is_input = matches!(&spec, SpecError::Invalid { field, .. } if INPUT.contains(&field.as_str()));
                if is_input { Self::Input(why) } else { Self::Step(why) }
            }
            StepError::AnotherDefinition { run, differs, .. } => Self::AnotherDefinition { run, differs, why },
            StepError::AnotherEntrypoint { .. }
            | StepError::Fork(ForkError::NotCommitted { .. } | ForkError::OfAnotherTurn { .. }) => Self::Refused(why),
            StepError::Lock(LockError::Held { run, owner })
            | StepError::Fork(ForkError::Locked(LockError::Held { run, owner })) => {
                Self::driven(run, &why, owner.as_deref())
            }
            StepError::Past { source: PastError::Forgotten { run, forgotten } }
            | StepError::Fork(ForkError::Past(PastError::Forgotten { run, forgotten })) => {
                Self::Forgotten { run, forgotten, why }
            }
            StepError::Tools(source) | StepError::Run(RunError::Dispatch { source, .. }) => Self::road(source, why),
            StepError::WorkspaceGone { .. }
            | StepError::WorkspaceTaken { .. }
            | StepError::Workspace(_)
            | StepError::Lock(LockError::Io { .. })
            | StepError::Fork(ForkError::Locked(LockError::Io { .. }) | ForkError::Workspace(_))
            | StepError::Run(RunError::Workspace(_)) => Self::Files { why },
            StepError::Past { source: PastError::Store(source) }
            | StepError::Fork(ForkError::Past(PastError::Store(source))) => {
                Self::store("compare the database with effects.log")(source)
            }
            StepError::Store { source: StoreError::Exists { row }, .. }
            | StepError::Fork(ForkError::Store { source: StoreError::Exists { row }, .. })
                if row.table() == DELETED_RUNS =>
            {
                Self::Refused(format!(
                    "run `{}` was deleted, and what it did is not known any more; take another id for a run that does it again",
                    row.key()
                ))
            }
            // A fork of that run would have been found.
            StepError::Fork(ForkError::Store { source: StoreError::Exists { row }, .. }) if row.table() == RUNS => {
                Self::Refused(format!(
                    "there is a run `{}` already, which is no fork of that run; take another id for the fork",
                    row.key()
                ))
            }
            StepError::Store { doing, source }
            | StepError::Fork(ForkError::Store { doing, source })
            | StepError::Run(
                RunError::Store { doing, source }
                | RunError::Resume(ResumeError::LeaseLost { doing, source } | ResumeError::StoreBusy { doing, source }),
            ) => Self::store(doing)(source),
            // Each by its name: what comes from the store is told as that, whichever layer met it.
            other @ StepError::Run(
                RunError::History { .. }
                | RunError::BlobMissing { .. }
                | RunError::BlobCorrupt { .. }
                | RunError::Machine(_)
                | RunError::Resume(
                    ResumeError::Behind { .. }
                    | ResumeError::Gap { .. }
                    | ResumeError::CasConflict { .. }
                    | ResumeError::FingerprintMismatch { .. }
                    | ResumeError::CorruptState { .. }
                    | ResumeError::SchemaTooNew { .. }
                    | ResumeError::NotAcceptable { .. },
                ),
            ) => Self::Run(other),
        }
    }
}

impl Error {
    /// What the caller may do next: the same again later ([`FailureClass::Transient`]), something else, or nothing before a person has fixed
    /// what the text names.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Step(_)
            | Self::Input(_)
            | Self::Id { .. }
            | Self::Policy(_)
            | Self::Prices(_)
            | Self::NoSuchRun { .. }
            | Self::AnotherDefinition { .. }
            | Self::Result { .. }
            | Self::Refused(_) => FailureClass::Permanent,
            Self::DrivenElsewhere { .. } | Self::TooEarly { .. } => FailureClass::Transient,
            Self::Folder { .. }
            | Self::Model(_)
            | Self::Servers(_)
            | Self::Forgotten { .. }
            | Self::Files { .. }
            | Self::NotComplete(_) => FailureClass::Operator,
            Self::Tools { class, .. } => *class,
            Self::Run(source) => source.class(),
            Self::Store { cause, .. } => cause.class(),
        }
    }

    /// A run whose lock is held, with what helps: by whom may be this process.
    fn driven(run: RunId, why: &str, owner: Option<&OwnerStamp>) -> Self {
        let this = ua_runner::owner_stamp(Trace::new(&ua_core::system::env()));
        let helps = "`Runs::wait` waits until nobody works on it";
        let why = if owner.is_some_and(|owner| owner.is_same_process(&this)) {
            format!("run {run} is already driven by another task of this process; {helps}")
        } else {
            format!("{why}; {helps}")
        };
        Self::DrivenElsewhere { run, why }
    }

    /// What a run stops for that waits for another one which could not be driven, and in words.
    pub(crate) fn as_stop(&self) -> (RunStop, String) {
        match self {
            // What helps stands in them.
            Self::AnotherDefinition { .. } | Self::Refused(_) => (RunStop::Fingerprint, self.to_string()),
            // The same again would bring the same.
            Self::Step(_)
            | Self::Input(_)
            | Self::Id { .. }
            | Self::Policy(_)
            | Self::Prices(_)
            | Self::Model(_)
            | Self::Servers(_)
            | Self::Result { .. } => {
                (RunStop::Fingerprint, format!("{self}; the program has to be corrected, then run it again"))
            }
            Self::Folder { .. }
            | Self::NoSuchRun { .. }
            | Self::DrivenElsewhere { .. }
            | Self::Forgotten { .. }
            | Self::Tools { .. }
            | Self::Files { .. }
            | Self::Run(_)
            | Self::Store { .. }
            | Self::NotComplete(_)
            | Self::TooEarly { .. } => (RunStop::ToolServer, self.to_string()),
        }
    }

    pub(crate) fn store(doing: impl Into<String>) -> impl FnOnce(StoreError) -> Self {
        move |cause| {
            let doing = doing.into();
            if let StoreError::NotFound { row } = &cause
                && row.table() == RUNS
            {
                return Self::NoSuchRun { id: row.key().to_owned() };
            }
            if let StoreError::Fenced { run, .. } = &cause {
                return Self::DrivenElsewhere { run: run.clone(), why: format!("cannot {doing}: {}", chain(&cause)) };
            }
            Self::Store { doing, cause }
        }
    }

    /// An error of the road to the tools, on which the ledger works with the store as well.
    fn road(source: DispatchError, why: String) -> Self {
        match source {
            DispatchError::Ledger(LedgerError::Store { doing, call, source }) => {
                Self::store(format!("{doing} call {call}"))(source)
            }
            DispatchError::Ledger(LedgerError::Aborted { .. })
            | DispatchError::Transport(_)
            | DispatchError::OrphanAlive { .. }
            | DispatchError::SubAgent { .. }
            | DispatchError::Configuration { .. }
            | DispatchError::Unfit { .. } => Self::Tools { class: source.class(), why },
        }
    }
}

/// The fields of a contract that the input becomes.
const INPUT: [&str; 2] = ["objective", "inputs"];

/// The store's name for runs.
const RUNS: &str = "runs";

/// The store's name for runs that were deleted.
const DELETED_RUNS: &str = "deleted_runs";

#[cfg(test)]
mod tests {
    use ua_store::Retry;

    use super::*;

    /// Another input helps only where nothing else is wrong.
    #[test]
    fn what_is_wrong_with_the_input_alone_is_told_from_the_rest() {
        let of = |field: &str| SpecError::Invalid { field: field.to_owned(), why: "is wrong".to_owned() };
        for field in INPUT {
            let error = Error::from(StepError::Definition(of(field)));
            assert!(matches!(&error, Error::Input(why) if why == "`input` is wrong"), "{error}");
        }
        for spec in [of("budgets.max_turns"), SpecError::Several(vec![of("inputs"), of("name")])] {
            let error = Error::from(StepError::Definition(spec));
            assert!(matches!(error, Error::Step(_)), "{error}");
            assert_eq!(error.as_stop().0, RunStop::Fingerprint);
        }
    }

    /// The same trouble of the database, as each layer says it.
    #[test]
    fn a_database_that_is_away_is_the_same_error_whichever_layer_met_it() {
        let call = CallId::parse("call_1").unwrap();
        let layers: [fn(StoreError, CallId) -> StepError; 7] = [
            |source, _| StepError::Store { doing: "load the run", source },
            |source, _| RunError::Store { doing: "commit the turn", source }.into(),
            |source, _| RunError::Resume(ResumeError::StoreBusy { doing: "commit the turn", source }).into(),
            |source, _| StepError::Fork(ForkError::Store { doing: "fork the run", source }),
            |source, _| PastError::Store(source).into(),
            |source, call| StepError::Tools(LedgerError::Store { doing: "read", call, source }.into()),
            |source, call| {
                let source = LedgerError::Store { doing: "read", call, source }.into();
                RunError::Dispatch { turn: 1, source }.into()
            },
        ];
        for retry in [Retry::Later, Retry::WithRoom, Retry::Never] {
            for layer in layers {
                let away = StoreError::Unavailable { why: "the disk is full".to_owned(), source: None, retry };
                let class = away.class();
                let error = Error::from(layer(away, call.clone()));
                assert!(matches!(&error, Error::Store { .. }) && error.class() == class, "{error}");
                assert!(error.to_string().ends_with("the disk is full"), "{error}");
            }
        }
        let full = StoreError::Unavailable { why: "the disk is full".to_owned(), source: None, retry: Retry::WithRoom };
        assert!(Error::from(layers[6](full, call.clone())).to_string().starts_with("cannot read call call_1: "));
        // A run that somebody else took is that, wherever it was noticed.
        let run = RunId::parse("november").unwrap();
        for layer in layers {
            let fenced = StoreError::Fenced { run: run.clone(), ours: 1, theirs: 2 };
            let error = Error::from(layer(fenced, call.clone()));
            assert!(matches!(&error, Error::DrivenElsewhere { run: taken, .. } if *taken == run), "{error}");
            assert!(error.to_string().contains("was taken over"), "{error}");
        }
        // A tool that cannot be used is told from both.
        let tool = DispatchError::Configuration { tool: "send".to_owned(), why: "it takes no key".to_owned() };
        assert!(matches!(Error::from(StepError::Tools(tool)), Error::Tools { class: FailureClass::Operator, .. }));
    }
}
