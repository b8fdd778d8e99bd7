//! `effects.log`: one line per attempt and reply that is not simply done again, and per word of a person, beside the database.
//!
//! Lines are appended after the commit and never synced; a failure to write one is kept for whoever asks, and refuses nothing: what it is
//! about has happened. A line that the database does not know means that the database went back in time.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use ua_core::{
    CallId, CallStatus, IdempotencyKey, QuestionId, Resolution, RunId, Scope, Sha256, ShowPath as _, Timestamp,
};
use ua_store::{CallRecord, Correction, QuestionRecord};

use crate::column::json;
use crate::error::DbError;

/// The event of an attempt that begins.
pub(crate) const START: &str = "start";

/// A line without the name of its database, which stands between its halves: fields stand in the order of their names.
#[derive(Debug)]
pub(crate) struct Line {
    head: String,
    tail: String,
}

#[derive(Serialize)]
struct Head<'l> {
    #[serde(skip_serializing_if = "Option::is_none")]
    args_hash: Option<Sha256>,
    at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'l str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correction: Option<&'l Correction>,
}

#[derive(Serialize)]
struct CallTail<'l> {
    event: &'l str,
    external_correlation_id: Option<&'l str>,
    /// By what a person finds on the other side what began.
    #[serde(skip_serializing_if = "Option::is_none")]
    found_by: Option<Vec<String>>,
    idempotency_key: Option<&'l IdempotencyKey>,
    lease_epoch: u64,
    /// Whose word it was that settled it, if not its tool's.
    #[serde(skip_serializing_if = "Option::is_none")]
    resolution: Option<Resolution>,
    root: &'l RunId,
    run_id: &'l RunId,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'l Scope>,
    status: CallStatus,
    tool: &'l str,
    tool_call_id: &'l CallId,
    tree: &'l str,
}

#[derive(Serialize)]
struct WordTail<'l> {
    event: &'static str,
    question_id: Option<&'l QuestionId>,
    root: &'l RunId,
    run_id: &'l RunId,
    tool_call_id: Option<&'l CallId>,
    tree: &'l str,
    word: &'l str,
}

/// Which database writes a line: its identity, and what its file is called in the folder of the log. Another file of the same identity, as a backup
/// that lies there is, wrote nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Writes {
    pub(crate) uuid: String,
    pub(crate) file: String,
}

impl Writes {
    pub(crate) fn of(uuid: String, database: &Path) -> Self {
        let file = database.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Self { uuid, file }
    }
}

impl Line {
    fn of(head: &Head<'_>, tail: &impl Serialize) -> Result<Self, DbError> {
        Ok(Self { head: json(head)?, tail: json(tail)? })
    }

    /// The line of a database, with its end.
    pub(crate) fn text(&self, by: &Writes) -> String {
        let head = self.head.strip_suffix('}').unwrap_or_default();
        let tail = self.tail.strip_prefix('{').unwrap_or_default();
        let (file, uuid) = (serde_json::Value::from(by.file.as_str()), &by.uuid);
        format!("{head},\"db_file\":{file},\"db_uuid\":\"{uuid}\",{tail}\n")
    }
}

/// What is written about `call` when it changed; `tree` is the run at the top of its run's tree. Root and tree say whose the line is when
/// the database does not know the run any more. `found_by` is what it carries that is its own, where that is not in an earlier line: a person who is
/// asked about it when its row is lost has nothing else to look for.
pub(crate) fn line(
    call: &CallRecord,
    tree: &str,
    event: &str,
    found_by: Option<Vec<String>>,
    epoch: u64,
    at: Timestamp,
) -> Result<Line, DbError> {
    let tail = CallTail {
        event,
        external_correlation_id: call.external_correlation_id.as_deref(),
        found_by,
        idempotency_key: call.idempotency_key.as_ref(),
        lease_epoch: epoch,
        resolution: call.resolution,
        root: &call.root_run_id,
        run_id: &call.run_id,
        scope: call.scope.as_ref(),
        status: call.status,
        tool: &call.name.raw,
        tool_call_id: &call.call_id,
        tree,
    };
    let args_hash = Some(call.args_hash);
    let head = Head { args_hash, at, attempt: Some(call.attempt), by: None, correction: call.correction.as_ref() };
    Line::of(&head, &tail)
}

/// What a person said.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Word<'l> {
    pub(crate) said: &'l str,
    /// Who, where no row of the database keeps it.
    pub(crate) by: Option<&'l str>,
    pub(crate) at: Timestamp,
}

/// What is written about a person's word: an answer, or that a run is to be cancelled.
pub(crate) fn word(
    run: &RunId,
    root: &RunId,
    tree: &str,
    question: Option<&QuestionRecord>,
    word: Word<'_>,
) -> Result<Line, DbError> {
    let Word { said, by, at } = word;
    let tail = WordTail {
        event: "word",
        question_id: question.map(|question| &question.question_id),
        root,
        run_id: run,
        tool_call_id: question.and_then(|question| question.call_id.as_ref()),
        tree,
        word: said,
    };
    Line::of(&Head { args_hash: None, at, attempt: None, by, correction: None }, &tail)
}

/// Opens the log for more lines.
pub(crate) fn open(path: &Path) -> std::io::Result<File> {
    crate::open::regular(OpenOptions::new().read(true).append(true).create(true), path)
}

/// Appends `text`, which is whole lines. A line that a full disk or a kill cut in half is ended first, so that it takes no other along.
pub(crate) fn append(file: &mut File, text: &str) -> std::io::Result<()> {
    let mut last = [b'\n'];
    if let Some(before) = file.metadata()?.len().checked_sub(1) {
        file.read_exact_at(&mut last, before)?;
    }
    let cut = if last == [b'\n'] { "" } else { "\n" };
    // One write for all of it, so that two processes do not mix their lines.
    file.write_all(format!("{cut}{text}").as_bytes())
}

/// The file, opened at the first line.
#[derive(Debug)]
pub(crate) struct EffectsLog {
    path: PathBuf,
    by: Writes,
    file: Option<File>,
    unnoted: Arc<OnceLock<String>>,
}

impl EffectsLog {
    /// `unnoted` hears why a line was not written, the first time.
    pub(crate) fn new(path: PathBuf, by: Writes, unnoted: Arc<OnceLock<String>>) -> Self {
        Self { path, by, file: None, unnoted }
    }

    /// Appends lines of a batch that is committed.
    pub(crate) fn append(&mut self, lines: &[Line]) {
        let text: String = lines.iter().map(|line| line.text(&self.by)).collect();
        if let Err(error) = self.write(&text) {
            self.file = None;
            tracing::warn!(path = %self.path.shown(), %error, "a line of effects.log was not written");
            self.unnoted.get_or_init(|| error.to_string());
        }
    }

    fn write(&mut self, text: &str) -> std::io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => open(&self.path)?,
        };
        append(self.file.insert(file), text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_line_stand_in_the_order_of_their_names() {
        let run = RunId::parse("run_1").unwrap();
        let at = Timestamp::parse("2026-01-02T03:04:05.000Z").unwrap();
        let text = word(&run, &run, "run_1", None, Word { said: "delete", by: Some("ada"), at })
            .unwrap()
            .text(&Writes::of("abc".to_owned(), Path::new("/srv/x.db")));
        assert_eq!(
            text,
            "{\"at\":\"2026-01-02T03:04:05.000Z\",\"by\":\"ada\",\"db_file\":\"x.db\",\"db_uuid\":\"abc\",\"event\":\"word\",\"question_id\":null,\"root\":\"run_1\",\
             \"run_id\":\"run_1\",\"tool_call_id\":null,\"tree\":\"run_1\",\"word\":\"delete\"}\n"
        );
        // As an object of JSON has them.
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(format!("{read}\n"), text);
    }
}
