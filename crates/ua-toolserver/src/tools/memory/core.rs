//! What the tools of the core memory share: how a short labelled text is changed, and its limits.

use std::sync::Arc;

use rusqlite::{OptionalExtension, Transaction};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Memory;
use super::database::{Change, could_not};
use crate::answer::{Answer, Failure, success};
use crate::context::blocking;

/// A block is read whole into a model's context, so it stays short.
pub(super) const MAX_BLOCK_CHARS: usize = 8_000;
const MAX_BLOCKS: i64 = 64;
const MAX_LABEL_CHARS: usize = 64;

/// A block after a change; what was said then is said again to a repeat of the call.
#[derive(Debug, Serialize, Deserialize)]
struct Changed {
    label: String,
    value: String,
    chars: usize,
}

impl Memory {
    /// Puts what `edit` makes of a block in its place, once per key.
    pub(super) async fn change(
        &self,
        tool: &'static str,
        key: Option<&str>,
        arguments: String,
        label: String,
        edit: impl FnOnce(Option<String>) -> String + Send + 'static,
    ) -> Answer {
        check_label(&label)?;
        let (database, key, at) = (Arc::clone(&self.database), key.map(str::to_owned), self.env.now());
        let applied = blocking(move || {
            let change = Change { tool, key: key.as_deref(), arguments: &arguments, at };
            database.apply(&change, |transaction| put(transaction, label, edit, &at.to_string()))
        })
        .await?;
        let Changed { label, value, chars } = applied.value;
        let what = if applied.before { "had already changed" } else { "changed" };
        success(
            format!("{what} the block {label}: {chars} characters"),
            &json!({ "label": label, "value": value, "chars": chars, "already_applied": applied.before }),
        )
    }
}

fn put(
    transaction: &Transaction<'_>,
    label: String,
    edit: impl FnOnce(Option<String>) -> String,
    at: &str,
) -> Result<Changed, Failure> {
    let failed = |error: rusqlite::Error| could_not("change the core memory", &error);
    let old: Option<String> = transaction
        .prepare_cached("SELECT value FROM core_blocks WHERE label = ?1")
        .and_then(|mut statement| statement.query_row([&label], |row| row.get(0)).optional())
        .map_err(failed)?;
    if old.is_none() {
        let blocks: i64 =
            transaction.query_row("SELECT count(*) FROM core_blocks", [], |row| row.get(0)).map_err(failed)?;
        if blocks >= MAX_BLOCKS {
            return Err(Failure::refused(
                format!("there are {blocks} blocks already"),
                "add to one of them, or keep the text with archival_memory_insert",
            ));
        }
    }
    let value = edit(old);
    let chars = value.chars().count();
    if chars > MAX_BLOCK_CHARS {
        return Err(Failure::refused(
            format!("the block {label:?} would have {chars} characters; {MAX_BLOCK_CHARS} are allowed"),
            "shorten it with core_memory_replace, or keep the text with archival_memory_insert",
        ));
    }
    if value.is_empty() {
        transaction.execute("DELETE FROM core_blocks WHERE label = ?1", [&label]).map_err(failed)?;
    } else {
        transaction
            .prepare_cached(
                "INSERT INTO core_blocks VALUES (?1, ?2, ?3)
                 ON CONFLICT (label) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at",
            )
            .and_then(|mut statement| statement.execute((&label, &value, at)))
            .map_err(failed)?;
    }
    Ok(Changed { label, value, chars })
}

fn check_label(label: &str) -> Result<(), Failure> {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    if (1..=MAX_LABEL_CHARS).contains(&label.chars().count()) && label.chars().all(is_plain) {
        return Ok(());
    }
    Err(Failure::refused(
        format!("{label:?} is not the label of a block"),
        format!("use 1 to {MAX_LABEL_CHARS} letters, digits, `_`, `-` and `.`"),
    ))
}

/// The arguments as one text. Fields are in the order of the type, so equal arguments give equal texts.
pub(super) fn canonical(arguments: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(arguments)
        .map_err(|error| Failure::refused(format!("the arguments cannot be written down: {error}"), "use plain text"))
}
