//! Configurations in TOML: Codex.

use toml_edit::{Array, DocumentMut, Item, TableLike, Value, value};

use super::entry::{Becomes, Entry, Header, What};
use super::{Change, Edited, missing};
use crate::error::HostError;

/// Where Codex keeps its tool servers.
const LIST: &str = "mcp_servers";
/// How long Codex waits for a tool, in seconds; its default of 300 is shorter than a person may take.
const PATIENCE: (&str, i64) = ("tool_timeout_sec", 3600);
/// The fields of an entry that are about its address.
const OF_URL: [&str; 4] = ["url", "http_headers", "env_http_headers", "bearer_token_env_var"];

/// The text with what `change` makes of these tool servers, or of all.
pub(super) fn edited(
    text: &str,
    servers: &[String],
    change: impl Fn(&str, &Entry) -> (What, Option<Becomes>),
) -> Result<Edited, HostError> {
    let mut document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let why = ua_core::value_fault(&error.message().trim().replace('\n', ", "));
        let line = before.matches('\n').count() + 1;
        HostError::usage(format!("it is not TOML: line {line}: {why}"))
    })?;
    let list = document.get_mut(LIST).and_then(Item::as_table_like_mut);
    let list = list.ok_or_else(|| HostError::usage(format!("it names no tool servers (`{LIST}`)")))?;
    let known: Vec<String> = list.iter().map(|(name, _)| name.to_owned()).collect();
    let mut changes = Vec::new();
    for (name, entry) in list.iter_mut() {
        if !servers.is_empty() && !servers.iter().any(|server| server == name.get()) {
            continue;
        }
        let Some(entry) = entry.as_table_like_mut() else { continue };
        let (what, new) = change(name.get(), &entry_of(entry));
        changes.push(Change { server: name.get().to_owned(), project: None, what });
        if let Some(new) = new {
            become_(entry, new, what);
        }
    }
    missing(servers, &known)?;
    Ok(Edited { text: document.to_string(), changes })
}

fn entry_of(entry: &dyn TableLike) -> Entry {
    let word = |name: &str| entry.get(name).and_then(Item::as_str).map(str::to_owned);
    let mut env: Vec<String> = pairs(entry, "env").into_iter().map(|(name, _)| name).collect();
    env.extend(texts(entry, "env_vars"));
    let mut headers: Vec<Header> = Vec::new();
    headers.extend(pairs(entry, "http_headers").into_iter().map(|(name, value)| Header::Plain { name, value }));
    headers.extend(
        pairs(entry, "env_http_headers").into_iter().map(|(name, variable)| Header::Variable { name, variable }),
    );
    headers.extend(word("bearer_token_env_var").map(|variable| Header::Bearer { variable }));
    let args = texts(entry, "args");
    // A number is no argument for Codex either; one that is dropped would be another call of the program.
    let is_cut = entry.get("args").is_some_and(|all| all.as_array().is_none_or(|all| all.len() != args.len()));
    Entry { command: word("command"), args, env, url: word("url"), headers, env_file: None, is_cut }
}

fn pairs(entry: &dyn TableLike, name: &str) -> Vec<(String, String)> {
    let table = entry.get(name).and_then(Item::as_table_like);
    let pair = |(name, item): (&str, &Item)| Some((name.to_owned(), item.as_str()?.to_owned()));
    table.map(|table| table.iter().filter_map(pair).collect()).unwrap_or_default()
}

fn texts(entry: &dyn TableLike, name: &str) -> Vec<String> {
    let array = entry.get(name).and_then(Item::as_array);
    array.map(|all| all.iter().filter_map(Value::as_str).map(str::to_owned).collect()).unwrap_or_default()
}

fn become_(entry: &mut dyn TableLike, becomes: Becomes, what: What) {
    match becomes {
        Becomes::Command { command, args } => {
            set(entry, "command", command.into());
            if args.is_empty() {
                entry.remove("args");
            } else {
                set(entry, "args", Array::from_iter(args).into());
            }
        }
        Becomes::InPlaceOfUrl { command, args, env, passed } => {
            for name in OF_URL {
                entry.remove(name);
            }
            set(entry, "command", command.into());
            set(entry, "args", Array::from_iter(args).into());
            for (name, text) in env {
                put(entry, "env", &name, text);
            }
            if !passed.is_empty() {
                let all: Array = texts(entry, "env_vars").into_iter().chain(passed).collect();
                set(entry, "env_vars", all.into());
            }
        }
        Becomes::Url { url, headers } => {
            entry.remove("command");
            entry.remove("args");
            set(entry, "url", url.into());
            for header in headers {
                let passed = texts(entry, "env_vars");
                let (mine, others): (Vec<String>, Vec<String>) =
                    passed.into_iter().partition(|name| *name == header.variable);
                if mine.is_empty() {
                    let env = entry.get_mut("env").and_then(Item::as_table_like_mut);
                    let text = env.and_then(|env| env.remove(&header.variable)?.as_str().map(str::to_owned));
                    put(entry, "http_headers", &header.name, text.unwrap_or_default());
                    continue;
                }
                set(entry, "env_vars", Array::from_iter(others).into());
                if header.is_bearer {
                    set(entry, "bearer_token_env_var", header.variable.into());
                } else {
                    put(entry, "env_http_headers", &header.name, header.variable);
                }
            }
            for name in ["env", "env_vars"] {
                let is_empty = entry.get(name).is_some_and(|item| {
                    item.as_table_like().is_some_and(TableLike::is_empty)
                        || item.as_array().is_some_and(Array::is_empty)
                });
                if is_empty {
                    entry.remove(name);
                }
            }
        }
    }
    let (name, seconds) = PATIENCE;
    if what == What::Wrapped && entry.get(name).is_none() {
        entry.insert(name, value(seconds));
    } else if what == What::Unwrapped && entry.get(name).and_then(Item::as_integer) == Some(seconds) {
        entry.remove(name);
    }
}

/// Another value, with the blanks and the comment behind it as they were.
fn set(entry: &mut dyn TableLike, name: &str, mut new: Value) {
    match entry.get_mut(name).and_then(Item::as_value_mut) {
        Some(old) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        None => {
            entry.insert(name, value(new));
        }
    }
}

/// A member of a table of the entry, which is made where there is none.
fn put(entry: &mut dyn TableLike, table: &str, name: &str, text: String) {
    if let Some(table) = entry.get_mut(table).and_then(Item::as_table_like_mut) {
        table.insert(name, value(text));
        return;
    }
    let mut made = toml_edit::InlineTable::new();
    made.insert(name, text.into());
    entry.insert(table, value(made));
}
