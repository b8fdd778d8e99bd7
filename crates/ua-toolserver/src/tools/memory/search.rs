//! `archival_memory_search`: texts that were kept, found by their words.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Memory;
use super::database::Database;
use crate::answer::{Answer, Failure, success};
use crate::context::{Context, Order, Setup, blocking};
use crate::tool::{Description, Effect, Opened, Tool};

const DEFAULT_LIMIT: u32 = 5;
const MAX_LIMIT: u32 = 50;
/// More words than that make a search slow and no better.
const MAX_WORDS: usize = 32;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct Arguments {
    /// Words to look for, in the contents and the tags. An item with more of them comes first.
    #[schemars(length(min = 1))]
    query: String,
    /// The most items; 5 when left out.
    #[schemars(range(min = 1, max = 50))]
    limit: Option<u32>,
}

#[derive(Debug, Serialize)]
struct Found {
    item_id: String,
    content: String,
    tags: String,
    created_at: String,
}

#[derive(Debug)]
pub(in crate::tools) struct ArchivalMemorySearch(Memory);

impl Tool for ArchivalMemorySearch {
    const NAME: &'static str = "archival_memory_search";
    type Arguments = Arguments;

    fn open(setup: &Setup<'_>) -> Opened<Self> {
        Ok(Some(Self(Memory::of(setup)?)))
    }

    fn describe(&self) -> Description {
        Description::new(
            "Search archival memory",
            "Finds texts that were kept in the archival memory, in this run or an earlier one, by their words; beginnings of words are enough.",
            Effect::Reads,
        )
    }

    async fn call(&self, _: &Context, given: Arguments, _: Order<'_>) -> Answer {
        let Some(words) = words_of(&given.query) else {
            return Err(Failure::refused("the query has no words", "give words to look for"));
        };
        let limit = given.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
        let database = Arc::clone(&self.0.database);
        let found = blocking(move || find(&database, &words, limit)).await?;
        success(ua_core::counted(found.len(), "item"), &json!({ "items": found }))
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
