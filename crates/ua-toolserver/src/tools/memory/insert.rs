//! `archival_memory_insert`: a text of any kind, kept to be found by its words.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Memory;
use super::core::canonical;
use super::database::{Change, could_not};
use crate::answer::{Answer, Failure, success};
use crate::context::{Context, Order, Setup, blocking, effect_id};
use crate::tool::{Description, Effect, Opened, Tool};

const MAX_ITEM_CHARS: usize = 100_000;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct Arguments {
    /// The text to keep; best one fact or one note, worded so that it can be understood by itself.
    #[schemars(length(min = 1))]
    content: String,
    /// Words to find it by, separated by commas.
    #[serde(default)]
    tags: String,
}

/// What an insert answered; said again to a repeat of the call.
#[derive(Debug, Serialize, Deserialize)]
struct Inserted {
    item_id: String,
}

#[derive(Debug)]
pub(in crate::tools) struct ArchivalMemoryInsert(Memory);

impl Tool for ArchivalMemoryInsert {
    const NAME: &'static str = "archival_memory_insert";
    type Arguments = Arguments;

    fn receivers(_variables: &BTreeMap<String, String>) -> &'static [&'static str] {
        &["UA_MEMORY"]
    }

    fn open(setup: &Setup<'_>) -> Opened<Self> {
        Ok(Some(Self(Memory::of(setup)?)))
    }

    fn describe(&self) -> Description {
        Description::new(
            "Add to archival memory",
            "Keeps a text in the archival memory, which outlives the run. With an idempotency key in _meta it is kept exactly once.",
            Effect::Adds,
        )
    }

    async fn call(&self, context: &Context, given: Arguments, order: Order<'_>) -> Answer {
        let chars = given.content.chars().count();
        if given.content.trim().is_empty() {
            return Err(Failure::refused("the content is empty", "give the text to keep"));
        }
        if chars > MAX_ITEM_CHARS {
            return Err(Failure::refused(
                format!("the content has {chars} characters; {MAX_ITEM_CHARS} are allowed"),
                "keep it in several items, or write it to a file with write_local_file",
            ));
        }
        let arguments = canonical(&given)?;
        let (item_id, at) = (format!("mem_{}", effect_id(order.key, &context.env)), context.env.now());
        let (database, key) = (Arc::clone(&self.0.database), order.key.map(str::to_owned));
        let applied = blocking(move || {
            let change = Change { tool: Self::NAME, key: key.as_deref(), arguments: &arguments, at };
            database.apply(&change, |transaction| {
                transaction
                    .prepare_cached(
                        "INSERT INTO archival_items (item_id, content, tags, created_at) VALUES (?1, ?2, ?3, ?4)",
                    )
                    .and_then(|mut statement| {
                        statement.execute((&item_id, &given.content, given.tags.trim(), at.to_string()))
                    })
                    .map_err(|error| could_not("add to the archival memory", &error))?;
                Ok(Inserted { item_id })
            })
        })
        .await?;
        let what = if applied.before { "had already kept" } else { "kept" };
        let item_id = applied.value.item_id;
        success(format!("{what} {item_id}"), &json!({ "item_id": item_id, "already_applied": applied.before }))
    }
}
