//! What a tool answers: a result, a refusal, or the admission that nobody can tell.
//!
//! A durable runner decides from this whether a call may be repeated, so the border matters: a [`Failure::Refused`] is
//! sent as `isError: true` and promises that the effect did not happen; a [`Failure::Unclear`] is sent as a JSON-RPC
//! error −32603, and the runner asks (Durable Jobs v1 spec §8.3).

use std::fmt;
use std::io;

use rmcp::ErrorData;
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, MetaObject};
use serde::Serialize;
use serde_json::{Value, json};

use crate::meta::CHANGED_FILES;

/// Why a tool has no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing was changed.
    Refused {
        /// What was wrong.
        problem: String,
        /// What to do about it.
        hint: String,
        /// The file, as the caller calls it, that is not what the call was decided about; whoever decided does so anew then.
        changed: Option<String>,
        /// What somebody was paid all the same, in the fields that say so of a result.
        paid: Option<Box<Value>>,
    },
    /// Something may have been changed.
    Unclear(String),
}

/// A file that was to leave is not the one that the call was decided about.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the file {given:?} has changed since this call was decided, so nothing was sent: {why}")]
pub(crate) struct ChangedFile {
    /// What the caller calls it.
    pub(crate) given: String,
    /// How that is known, as a sentence.
    pub(crate) why: String,
}

impl ChangedFile {
    pub(crate) fn into_failure(self) -> Failure {
        let hint = "look at the file as it is now, and make the call again if it is still to be sent".to_owned();
        Failure::Refused { problem: self.to_string(), hint, changed: Some(self.given), paid: None }
    }
}

/// A tool's answer before it becomes a protocol message.
pub(crate) type Answer = Result<CallToolResult, Failure>;

impl Failure {
    pub(crate) fn refused(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Refused { problem: problem.into(), hint: hint.into(), changed: None, paid: None }
    }

    /// Nothing was changed, because the operating system refused what `action` names.
    pub(crate) fn io(action: impl fmt::Display, error: &io::Error) -> Self {
        if let Some(changed) = error.get_ref().and_then(|cause| cause.downcast_ref::<ChangedFile>()) {
            return changed.clone().into_failure();
        }
        let hints = [
            (io::ErrorKind::NotFound, "check the path; list_directory shows what is there"),
            (io::ErrorKind::PermissionDenied, "the path leads out of the workspace or is protected; use another one"),
            (io::ErrorKind::StorageFull, "the disk is full; a person has to make room"),
            (io::ErrorKind::QuotaExceeded, "the disk quota is used up; a person has to make room"),
            (io::ErrorKind::IsADirectory, "name a file, not a directory"),
            (io::ErrorKind::NotADirectory, "a part of the path is a file; use another path"),
        ];
        let known = hints.iter().find(|(kind, _)| *kind == error.kind()).map(|(_, hint)| *hint);
        let hint = known.unwrap_or("try another path, or ask a person to look at the server's disk");
        Self::refused(format!("could not {action}: {error}"), hint)
    }

    /// The same failure, told about one item of several.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Refused { problem, hint, changed: _, paid: _ } => format!("{problem}; {hint}"),
            Self::Unclear(problem) => problem.clone(),
        }
    }
}

/// A success: the value as structured content, `summary` and the value as text.
pub(crate) fn success(summary: impl Into<String>, value: &impl Serialize) -> Answer {
    let value = serde_json::to_value(value)
        .map_err(|error| Failure::Unclear(format!("could not write down the result: {error}")))?;
    let mut result = CallToolResult::structured(value);
    result.content.insert(0, ContentBlock::text(summary.into()));
    Ok(result)
}

/// The protocol message for an answer.
pub(crate) fn into_response(answer: Answer) -> Result<CallToolResponse, ErrorData> {
    match answer {
        Ok(result) => Ok(result.into()),
        Err(Failure::Refused { problem, hint, changed, paid }) => {
            let mut told = json!({ "error": problem, "hint": hint });
            if let (Some(told), Some(Value::Object(paid))) = (told.as_object_mut(), paid.map(|paid| *paid)) {
                told.extend(paid);
            }
            let mut result = CallToolResult::structured_error(told);
            result.content = vec![ContentBlock::text(format!("{problem}\nhint: {hint}"))];
            result.meta = changed.map(|file| {
                let mut meta = MetaObject::new();
                meta.insert(CHANGED_FILES.to_owned(), json!([file]));
                meta
            });
            Ok(result.into())
        }
        Err(Failure::Unclear(problem)) => {
            Err(ErrorData::internal_error(format!("the outcome is not known: {problem}"), None))
        }
    }
}
