//! What a person sees when something goes wrong: one paragraph, a hint, an exit code.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | succeeded |
//! | 1 | failed, or cancelled |
//! | 2 | usage: arguments, job file, configuration |
//! | 69 | the model provider is not available |
//! | 74 | storage |
//! | 75 | waiting for a person, or stopped; resume later |
//! | 130 | interrupted |

use clap::builder::styling::AnsiColor;
use ua_gateway::GatewayError;
use ua_runner::{LockError, ResumeError, RunError};
use ua_store::StoreError;

use crate::output::plain;
use crate::view::{ErrorBody, ErrorShown};

/// A failure of the command, ready to be shown.
#[derive(Debug, Clone)]
pub(crate) struct CliError {
    code: u8,
    message: String,
    hint: Option<String>,
    /// What only a machine is told.
    detail: Option<serde_json::Map<String, serde_json::Value>>,
}

/// Succeeded.
pub(crate) const OK: u8 = 0;
/// Failed.
pub(crate) const FAILED: u8 = 1;
/// Arguments, job file, configuration.
pub(crate) const USAGE: u8 = 2;
/// The model provider is not available.
pub(crate) const PROVIDER: u8 = 69;
/// Storage.
pub(crate) const STORAGE: u8 = 74;
/// Waiting for a person, or stopped.
pub(crate) const WAITING: u8 = 75;
/// Interrupted by a signal.
pub(crate) const INTERRUPTED: u8 = 130;

impl std::fmt::Display for CliError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl CliError {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, detail: None }
    }

    /// Adds a field that only a machine is told.
    pub(crate) fn field(mut self, name: &str, value: impl serde::Serialize) -> Self {
        let value = serde_json::to_value(value).unwrap_or_default();
        self.detail.get_or_insert_default().insert(name.to_owned(), value);
        self
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(USAGE, message)
    }

    pub(crate) fn storage(message: impl Into<String>) -> Self {
        Self::new(STORAGE, message)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    pub(crate) fn print(&self) {
        self.print_as(crate::terminal::is_json());
    }

    /// Prints it for a machine, or for a person.
    pub(crate) fn print_as(&self, json: bool) {
        if json {
            let body = ErrorBody {
                code: self.code,
                message: self.message.clone(),
                hint: self.hint.clone(),
                detail: self.detail.clone().unwrap_or_default(),
            };
            if let Ok(text) = crate::output::json_line(&ErrorShown { error: body }) {
                crate::output::tell(&text);
                return;
            }
        }
        let has_color = crate::terminal::err_has_color();
        let error = crate::terminal::paint("error:", AnsiColor::Red, has_color);
        crate::output::tell(&format!("{error} {}", plain(&self.message)));
        if let Some(hint) = &self.hint {
            let word = crate::terminal::paint("hint:", AnsiColor::Cyan, has_color);
            crate::output::tell(&format!("{word} {}", plain(hint)));
        }
    }

    /// A large result that the run needs and that is gone or damaged.
    fn lost_result(error: &RunError) -> Self {
        let failure = Self::storage(format!("the run stopped: {}", chain(error)));
        let call = if let RunError::BlobMissing { call: Some(call), .. } = error {
            format!("it is the result of call {call}; ")
        } else {
            String::new()
        };
        failure.hint(format!(
            "{call}nothing was sent; put back a copy of the database that has it and resume, or start the job anew (with \
             `settings.degraded_replay` a run goes on without the results of reads)"
        ))
    }

    /// An error of the store, with its exit code and what to do.
    pub(crate) fn store(doing: &str, error: &StoreError) -> Self {
        let message = format!("cannot {doing}: {}", chain(error));
        match error {
            StoreError::NotFound { .. } => Self::usage(message).hint("`ua runs list` shows what there is"),
            StoreError::Conflict { .. } | StoreError::Exists { .. } => Self::usage(message),
            StoreError::Fenced { .. } => Self::new(WAITING, message)
                .hint("another process took this run over and goes on with it; this one changed nothing more"),
            StoreError::KeyTaken { .. } | StoreError::ScopeTouched { .. } | StoreError::EffectLimit { .. } => {
                Self::new(FAILED, message)
            }
            StoreError::Corrupt { .. } => Self::storage(message)
                .hint("nothing was changed; keep a copy of the database file before anything else"),
            StoreError::Unavailable { .. } => Self::storage(message)
                .hint("nothing was sent after this point; make the database usable and run `ua resume last`"),
        }
    }
}

/// An error and its causes, in one sentence.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

/// The store's error somewhere among the causes.
fn store_cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a StoreError> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(store) = error.downcast_ref::<StoreError>() {
            return Some(store);
        }
        next = error.source();
    }
    None
}

/// The error that ended the drive of a sub-agent's run, on its way through the road of its task.
#[derive(Debug)]
pub(crate) struct ChildFailed(pub(crate) CliError);

impl std::fmt::Display for ChildFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ChildFailed {}

impl From<RunError> for CliError {
    fn from(error: RunError) -> Self {
        let error = if let RunError::Gateway { turn, source: GatewayError::SubAgent { call, source } } = error {
            match source.downcast::<ChildFailed>() {
                Ok(child) => return child.0,
                Err(source) => RunError::Gateway { turn, source: GatewayError::SubAgent { call, source } },
            }
        } else {
            error
        };
        if let RunError::BlobMissing { .. } | RunError::BlobCorrupt { .. } = &error {
            return Self::lost_result(&error);
        }
        if let Some(store) = store_cause(&error) {
            return Self {
                message: format!("the run stopped: {}", chain(&error)),
                ..Self::store("drive the run", store)
            };
        }
        let message = format!("the run stopped: {}", chain(&error));
        match &error {
            RunError::Resume(error) => match error {
                ResumeError::FingerprintMismatch { .. } => {
                    Self::new(WAITING, message).hint("put the setup back as it was, then `ua resume`")
                }
                ResumeError::NotAcceptable { .. } => Self::usage(message),
                ResumeError::Behind { .. }
                | ResumeError::Gap { .. }
                | ResumeError::CasConflict { .. }
                | ResumeError::LeaseLost { .. }
                | ResumeError::StoreBusy { .. } => {
                    Self::new(WAITING, message).hint("nothing was sent after this point; `ua resume` looks again")
                }
                ResumeError::CorruptState { .. } => Self::storage(message)
                    .hint("nothing was changed; keep a copy of the database file before anything else"),
                ResumeError::SchemaTooNew { .. } => Self::storage(message).hint("use the version of ua that wrote it"),
            },
            RunError::Workspace(_) => Self::storage(message).hint("make the workspace writable, then `ua resume last`"),
            RunError::Gateway { .. } => Self::usage(message),
            RunError::BlobMissing { .. } | RunError::BlobCorrupt { .. } => Self::lost_result(&error),
            RunError::Store { .. } | RunError::History { .. } | RunError::Machine(_) => Self::new(FAILED, message)
                .hint("this looks like a bug in ua; the run is unharmed and can be looked at with `ua runs show`"),
        }
    }
}

impl From<LockError> for CliError {
    fn from(error: LockError) -> Self {
        let message = chain(&error);
        match error {
            LockError::Held { .. } => Self::new(WAITING, message)
                .hint("wait for it, or let `ua resume --take-over` end that process and go on in its place; nothing was changed"),
            LockError::Io { .. } => {
                Self::storage(message).hint("make that folder writable, then `ua resume last`; nothing was sent")
            }
        }
    }
}

impl From<ua_runner::WorkspaceError> for CliError {
    fn from(error: ua_runner::WorkspaceError) -> Self {
        Self::storage(chain(&error)).hint("check that the folder exists, is writable and the disk is not full")
    }
}
