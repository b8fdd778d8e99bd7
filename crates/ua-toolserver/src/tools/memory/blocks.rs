//! `get_core_memory_blocks`: the short labelled texts.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Memory;
use super::core::MAX_BLOCK_CHARS;
use super::database::Database;
use crate::answer::{Answer, Failure, success};
use crate::context::{Context, Order, Setup, blocking};
use crate::tool::{Description, Effect, Opened, Tool};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct Arguments {
    /// Only these blocks; all of them when left out.
    #[serde(default)]
    labels: Vec<String>,
}

/// A block as it is shown.
#[derive(Debug, Serialize)]
struct Block {
    label: String,
    value: String,
    chars: usize,
    updated_at: String,
}

#[derive(Debug)]
pub(in crate::tools) struct GetCoreMemoryBlocks(Memory);

impl Tool for GetCoreMemoryBlocks {
    const NAME: &'static str = "get_core_memory_blocks";
    type Arguments = Arguments;

    fn open(setup: &Setup<'_>) -> Opened<Self> {
        Ok(Some(Self(Memory::of(setup)?)))
    }

    fn describe(&self) -> Description {
        Description::new(
            "Read core memory",
            "Reads the core memory: short labelled texts that are kept between runs, such as who the people are and how they want things done.",
            Effect::Reads,
        )
    }

    async fn call(&self, _: &Context, given: Arguments, _: Order<'_>) -> Answer {
        let database = Arc::clone(&self.0.database);
        let blocks = blocking(move || list(&database, &given.labels)).await?;
        success(
            ua_core::counted(blocks.len(), "block"),
            &json!({ "blocks": blocks, "max_chars_per_block": MAX_BLOCK_CHARS }),
        )
    }
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
