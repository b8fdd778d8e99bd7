//! `get_core_memory_blocks`, `core_memory_append`, `core_memory_replace`: short labelled texts.

use std::sync::Arc;

use rmcp::model::Tool;
use rusqlite::{OptionalExtension, Transaction};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Memory;
use super::database::{Change, Database, could_not};
use crate::answer::{Answer, Failure, success};
use crate::schema::{self, Effect};
use crate::tools::blocking;

pub(in crate::tools) const BLOCKS: &str = "get_core_memory_blocks";
pub(in crate::tools) const APPEND: &str = "core_memory_append";
pub(in crate::tools) const REPLACE: &str = "core_memory_replace";

/// A block is read whole into a model's context, so it stays short.
const MAX_BLOCK_CHARS: usize = 8_000;
const MAX_BLOCKS: i64 = 64;
const MAX_LABEL_CHARS: usize = 64;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct BlocksArguments {
    /// Only these blocks; all of them when left out.
    #[serde(default)]
    labels: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct AppendArguments {
    /// The block, for example `human` or `project`: letters, digits, `_`, `-` and `.`. It is made when missing.
    #[schemars(length(min = 1, max = 64))]
    label: String,
    /// The text to add, as a line of its own.
    #[schemars(length(min = 1))]
    text_to_append: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct ReplaceArguments {
    /// The block, for example `human` or `project`: letters, digits, `_`, `-` and `.`. It is made when missing.
    #[schemars(length(min = 1, max = 64))]
    label: String,
    /// The whole new text. An empty one removes the block.
    new_value: String,
}

/// A block as it is shown.
#[derive(Debug, Serialize)]
struct Block {
    label: String,
    value: String,
    chars: usize,
    updated_at: String,
}

/// A block after a change; what was said then is said again to a repeat of the call.
#[derive(Debug, Serialize, Deserialize)]
struct Changed {
    label: String,
    value: String,
    chars: usize,
}

pub(super) fn describe_blocks() -> Tool {
    schema::tool::<BlocksArguments>(
        BLOCKS,
        "Read core memory",
        "Reads the core memory: short labelled texts that are kept between jobs, such as who the people are and how they want things done.",
        Effect::Reads,
    )
}

pub(super) fn describe_append() -> Tool {
    schema::tool::<AppendArguments>(
        APPEND,
        "Add to core memory",
        "Adds a line to a block of the core memory. With an idempotency key in _meta it is added exactly once.",
        Effect::Adds,
    )
}

pub(super) fn describe_replace() -> Tool {
    schema::tool::<ReplaceArguments>(
        REPLACE,
        "Replace in core memory",
        "Replaces a block of the core memory. With an idempotency key in _meta it is replaced exactly once, so a late repeat undoes nothing.",
        Effect::Replaces,
    )
}

impl Memory {
    pub(in crate::tools) async fn blocks(&self, given: BlocksArguments) -> Answer {
        let database = Arc::clone(&self.database);
        let blocks = blocking(move || list(&database, &given.labels)).await?;
        success(
            format!("{} block(s)", blocks.len()),
            &json!({ "blocks": blocks, "max_chars_per_block": MAX_BLOCK_CHARS }),
        )
    }

    pub(in crate::tools) async fn append(&self, given: AppendArguments, key: Option<&str>) -> Answer {
        if given.text_to_append.is_empty() {
            return Err(Failure::refused("the text is empty", "give the text to add"));
        }
        let arguments = canonical(&given)?;
        let AppendArguments { label, text_to_append } = given;
        self.change(APPEND, key, arguments, label, move |old| match old {
            Some(old) if !old.is_empty() => format!("{old}\n{text_to_append}"),
            Some(_) | None => text_to_append,
        })
        .await
    }

    pub(in crate::tools) async fn replace(&self, given: ReplaceArguments, key: Option<&str>) -> Answer {
        let arguments = canonical(&given)?;
        let ReplaceArguments { label, new_value } = given;
        self.change(REPLACE, key, arguments, label, move |_| new_value).await
    }

    async fn change(
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

fn list(database: &Database, labels: &[String]) -> Result<Vec<Block>, Failure> {
    let mut blocks = database.read(|connection| {
        let mut statement =
            connection.prepare_cached("SELECT label, value, updated_at FROM core_blocks ORDER BY label")?;
        let rows = statement.query_map([], |row| {
            let value: String = row.get(1)?;
            Ok(Block { label: row.get(0)?, chars: value.chars().count(), value, updated_at: row.get(2)? })
        })?;
        rows.collect::<rusqlite::Result<Vec<_>>>()
    })?;
    if !labels.is_empty() {
        blocks.retain(|block| labels.contains(&block.label));
    }
    Ok(blocks)
}

fn check_label(label: &str) -> Result<(), Failure> {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    if (1..=MAX_LABEL_CHARS).contains(&label.chars().count()) && label.chars().all(is_plain) {
        return Ok(());
    }
    Err(Failure::refused(
        format!("{label:?} is no label of a block"),
        format!("use 1 to {MAX_LABEL_CHARS} letters, digits, `_`, `-` and `.`"),
    ))
}

/// The arguments as one text. Fields are in the order of the type, so equal arguments give equal texts.
pub(super) fn canonical(arguments: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(arguments)
        .map_err(|error| Failure::refused(format!("the arguments cannot be written down: {error}"), "use plain text"))
}
