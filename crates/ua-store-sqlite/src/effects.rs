//! `effects.log`: one line per external attempt and reply, beside the database.
//!
//! Lines are appended after the commit and never synced; a failure to write one is only traced. A line that the database
//! does not know means that the database went back in time.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};
use ua_core::{SideEffectClass, Timestamp};
use ua_store::CallRecord;

/// What is written about `call` when it changed, if it is one that is written about.
pub(crate) fn line(call: &CallRecord, event: &str, epoch: u64, at: Timestamp) -> Option<Value> {
    (call.policy.class == SideEffectClass::External).then(|| {
        json!({
            "at": at,
            "event": event,
            "run_id": call.run_id,
            "tool_call_id": call.call_id,
            "attempt": call.attempt,
            "tool": call.name.raw,
            "idempotency_key": call.idempotency_key,
            "status": call.status,
            "external_correlation_id": call.external_correlation_id,
            "lease_epoch": epoch,
        })
    })
}

/// The file, opened at the first line.
#[derive(Debug)]
pub(crate) struct EffectsLog {
    path: PathBuf,
    db_uuid: String,
    file: Option<File>,
}

impl EffectsLog {
    pub(crate) fn new(path: PathBuf, db_uuid: String) -> Self {
        Self { path, db_uuid, file: None }
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
        }
    }

    fn write(&mut self, text: &str) -> std::io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let file = match self.file.take() {
            Some(file) => file,
            None => OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?,
        };
        // One write for all of it, so that two processes do not mix their lines.
        self.file.insert(file).write_all(text.as_bytes())
    }
}
