//! What a tool answers: a result, a refusal, or the admission that nobody can tell.
//!
//! A durable runner decides from this whether a call may be repeated, so the border matters: a [`Failure::Refused`] is
//! sent as `isError: true` and promises that the effect did not happen; a [`Failure::Unclear`] is sent as a JSON-RPC
//! error −32603, and the runner asks (Durable Jobs v1 spec §8.3).

use std::fmt;
use std::io;

use rmcp::ErrorData;
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock};
use serde::Serialize;
use serde_json::json;

/// Why a tool has no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing was changed.
    Refused {
        /// What was wrong.
        problem: String,
        /// What to do about it.
        hint: String,
    },
    /// Something may have been changed.
    Unclear(String),
}

/// A tool's answer before it becomes a protocol message.
pub(crate) type Answer = Result<CallToolResult, Failure>;

impl Failure {
    pub(crate) fn refused(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Refused { problem: problem.into(), hint: hint.into() }
    }

    /// Nothing was changed, because the operating system refused what `action` names.
    pub(crate) fn io(action: impl fmt::Display, error: &io::Error) -> Self {
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
            Self::Refused { problem, hint } => format!("{problem}; {hint}"),
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
        Err(Failure::Refused { problem, hint }) => {
            let mut result = CallToolResult::structured_error(json!({ "error": problem, "hint": hint }));
            result.content = vec![ContentBlock::text(format!("{problem}\nhint: {hint}"))];
            Ok(result.into())
        }
        Err(Failure::Unclear(problem)) => {
            Err(ErrorData::internal_error(format!("the outcome is not known: {problem}"), None))
        }
    }
}
