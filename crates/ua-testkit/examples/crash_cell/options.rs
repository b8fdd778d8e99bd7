//! `--name value` pairs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use ua_core::{ToolAnnotations, ToolName, ToolNamespace, ToolSpec};

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The command line after the role.
pub(crate) struct Options(BTreeMap<String, String>);

impl Options {
    pub(crate) fn read(mut words: impl Iterator<Item = String>) -> Self {
        let mut pairs = BTreeMap::new();
        while let (Some(name), Some(value)) = (words.next(), words.next()) {
            pairs.insert(name.trim_start_matches("--").to_owned(), value);
        }
        Self(pairs)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(crate) fn need(&self, name: &str) -> Outcome<&str> {
        self.get(name).ok_or_else(|| format!("--{name} is missing").into())
    }

    /// Every pair, to hand on to a child.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The job of the cell.
    pub(crate) fn job(&self) -> Outcome<Job> {
        let path = PathBuf::from(self.need("job")?);
        Ok(serde_json::from_slice(&std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?)?)
    }
}

/// What a cell runs; the harness writes it, one file per class of tools.
#[derive(Debug, Deserialize)]
pub(crate) struct Job {
    /// The tool that the cell is about.
    pub(crate) subject: String,
    /// What is to be done, as a job file says it.
    pub(crate) spec: serde_json::Value,
    pub(crate) tools: Vec<Tool>,
    /// A policy file.
    pub(crate) policy: String,
    /// Whether a person answers what a tool asks for while the process that was told of it lives.
    #[serde(default)]
    pub(crate) is_attended: bool,
    /// The model's script, `{{life}}` where it words things differently in each life.
    pub(crate) script: String,
}

/// A tool of the cell's world.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Tool {
    pub(crate) server: String,
    pub(crate) name: String,
    /// What a call does outside.
    pub(crate) effect: Effect,
    /// Where it finds its key: `meta`, `argument:NAME`, `header:NAME`.
    #[serde(default)]
    pub(crate) key: Option<String>,
}

/// What a call does outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Effect {
    /// Nothing.
    Read,
    /// Nothing; it tells what was done, once that shows.
    Listing,
    /// One thing named by its arguments becomes what they say.
    Replace,
    /// Something, once per key.
    Keyed,
    /// Something, each time.
    Opaque,
    /// What the one action in its `calls` does.
    Batch,
    /// Something, once per key; in a life whose clock is ahead it has forgotten every key.
    Expiring,
    /// Something, each time, when what it asks for first is answered: whoever brings the answer, and whenever (input-required rounds).
    Asks,
    /// The same, and it waits for the answer on its connection (elicitation): its process forgets the call when it ends.
    AsksLive,
    /// Something, each time, in a task that the outside world works on, whoever asks for it.
    Task,
}

impl Tool {
    pub(crate) fn spec(&self) -> ToolSpec {
        let namespace = if self.server == "ua" { ToolNamespace::Local } else { ToolNamespace::Mcp };
        ToolSpec {
            name: ToolName::qualified(namespace, &self.server, &self.name),
            description: format!("The {} of a cell.", self.name),
            input_schema: serde_json::json!({"type": "object"}),
            annotations: ToolAnnotations::default(),
        }
    }
}
