//! `effects.log`: one line per attempt and reply that is not simply done again, and per word of a person, beside the database.
//!
//! Lines are appended after the commit and never synced; a failure to write one is kept for whoever asks, and refuses nothing: what it is
//! about has happened. A line that the database does not know means that the database went back in time.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};
use ua_core::{RunId, Timestamp};
use ua_store::{CallRecord, QuestionRecord};

/// What is written about `call` when it changed; `tree` is the run at the top of its run's tree. Root and tree say whose the line is when
/// the database does not know the run any more.
pub(crate) fn line(call: &CallRecord, tree: &str, event: &str, epoch: u64, at: Timestamp) -> Value {
    let mut line = json!({
        "at": at,
        "event": event,
        "root": call.root_run_id,
        "tree": tree,
        "run_id": call.run_id,
        "tool_call_id": call.call_id,
        "attempt": call.attempt,
        "tool": call.name.raw,
        "idempotency_key": call.idempotency_key,
        "status": call.status,
        "external_correlation_id": call.external_correlation_id,
        "lease_epoch": epoch,
    });
    if let Some(correction) = &call.correction {
        line["correction"] = json!(correction);
    }
    line
}

/// What is written about a person's word: an answer, or that a run is to be cancelled.
pub(crate) fn word(
    run: &RunId,
    root: &RunId,
    tree: &str,
    question: Option<&QuestionRecord>,
    word: &str,
    at: Timestamp,
) -> Value {
    json!({
        "at": at,
        "event": "word",
        "root": root,
        "tree": tree,
        "run_id": run,
        "tool_call_id": question.and_then(|question| question.call_id.as_ref()),
        "question_id": question.map(|question| &question.question_id),
        "word": word,
    })
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
    db_uuid: String,
    file: Option<File>,
    unnoted: Arc<OnceLock<String>>,
}

impl EffectsLog {
    /// `unnoted` hears why a line was not written, the first time.
    pub(crate) fn new(path: PathBuf, db_uuid: String, unnoted: Arc<OnceLock<String>>) -> Self {
        Self { path, db_uuid, file: None, unnoted }
    }

    /// Appends lines of a batch that is committed.
    pub(crate) fn append(&mut self, lines: Vec<Value>) {
        let mut text = String::new();
        for mut line in lines {
            line["db_uuid"] = Value::from(self.db_uuid.as_str());
            text.push_str(&line.to_string());
            text.push('\n');
        }
        if let Err(error) = self.write(&text) {
            self.file = None;
            tracing::warn!(path = %self.path.display(), %error, "a line of effects.log was not written");
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
