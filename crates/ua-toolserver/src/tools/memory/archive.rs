//! `archival_memory_insert` and `archival_memory_search`: any number of items, found by their words.

use std::sync::Arc;

use rmcp::model::Tool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Memory;
use super::core::canonical;
use super::database::{Change, Database, could_not};
use crate::answer::{Answer, Failure, success};
use crate::schema::{self, Effect};
use crate::tools::{blocking, effect_id};

pub(in crate::tools) const INSERT: &str = "archival_memory_insert";
pub(in crate::tools) const SEARCH: &str = "archival_memory_search";

const MAX_ITEM_CHARS: usize = 100_000;
const DEFAULT_LIMIT: u32 = 5;
const MAX_LIMIT: u32 = 50;
/// More words than that make a search slow and no better.
const MAX_WORDS: usize = 32;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct InsertArguments {
    /// The text to keep; best one fact or one note, worded so that it can be understood by itself.
    #[schemars(length(min = 1))]
    content: String,
    /// Words to find it by, separated by commas.
    #[serde(default)]
    tags: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct SearchArguments {
    /// Words to look for, in the contents and the tags. An item with more of them comes first.
    #[schemars(length(min = 1))]
    query: String,
    /// The most items; 5 when left out.
    #[schemars(range(min = 1, max = 50))]
    limit: Option<u32>,
}

/// What an insert answered; said again to a repeat of the call.
#[derive(Debug, Serialize, Deserialize)]
struct Inserted {
    item_id: String,
}

#[derive(Debug, Serialize)]
struct Found {
    item_id: String,
    content: String,
    tags: String,
    created_at: String,
}

pub(super) fn describe_insert() -> Tool {
    schema::tool::<InsertArguments>(
        INSERT,
        "Add to archival memory",
        "Keeps a text in the archival memory, which outlives the job. With an idempotency key in _meta it is kept exactly once.",
        Effect::Adds,
    )
}

pub(super) fn describe_search() -> Tool {
    schema::tool::<SearchArguments>(
        SEARCH,
        "Search archival memory",
        "Finds texts that were kept in the archival memory, in this job or an earlier one, by their words; beginnings of words are enough.",
        Effect::Reads,
    )
}

impl Memory {
    pub(in crate::tools) async fn insert(&self, given: InsertArguments, key: Option<&str>) -> Answer {
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
        let (item_id, at) = (format!("mem_{}", effect_id(key, &self.env)), self.env.now());
        let (database, key) = (Arc::clone(&self.database), key.map(str::to_owned));
        let applied = blocking(move || {
            let change = Change { tool: INSERT, key: key.as_deref(), arguments: &arguments, at };
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

    pub(in crate::tools) async fn search(&self, given: SearchArguments) -> Answer {
        let Some(words) = words_of(&given.query) else {
            return Err(Failure::refused("the query has no words", "give words to look for"));
        };
        let limit = given.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
        let database = Arc::clone(&self.database);
        let found = blocking(move || find(&database, &words, limit)).await?;
        success(format!("{} item(s)", found.len()), &json!({ "items": found }))
    }
}

fn find(database: &Database, words: &str, limit: u32) -> Result<Vec<Found>, Failure> {
    database.read(|connection| {
        let mut statement = connection.prepare_cached(
            "SELECT item_id, archival_items.content, archival_items.tags, created_at
             FROM archival_words JOIN archival_items ON item_seq = archival_words.rowid
             WHERE archival_words MATCH ?1 ORDER BY rank, item_seq DESC LIMIT ?2",
        )?;
        let rows = statement.query_map((words, limit), |row| {
            Ok(Found { item_id: row.get(0)?, content: row.get(1)?, tags: row.get(2)?, created_at: row.get(3)? })
        })?;
        rows.collect()
    })
}

/// The query in FTS5's language: any of the words, each quoted so that none is an operator, each the beginning of one.
fn words_of(query: &str) -> Option<String> {
    let words: Vec<String> = query
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .take(MAX_WORDS)
        .map(|word| format!("\"{word}\"*"))
        .collect();
    (!words.is_empty()).then(|| words.join(" OR "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_words_and_nothing_else() {
        assert_eq!(words_of("Q3 report").unwrap(), r#""Q3"* OR "report"*"#);
        assert_eq!(words_of("a\" OR content:(NEAR").unwrap(), r#""a"* OR "OR"* OR "content"* OR "NEAR"*"#);
        assert_eq!(words_of(" -* \"\" "), None);
    }
}
