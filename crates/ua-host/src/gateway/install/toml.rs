//! Configurations in TOML: Codex.

use toml_edit::{Array, DocumentMut, Item, TableLike, Value, value};

use super::entry::{Becomes, Entry, Header, Restored, What};
use super::restored::stretch;
use super::{Change, Edited, missing};
use crate::error::HostError;

/// Where Codex keeps its tool servers.
pub(super) const LIST: &str = "mcp_servers";
/// How long Codex waits for a tool, in seconds; its default of 300 is shorter than a person may take.
const PATIENCE: (&str, i64) = ("tool_timeout_sec", 3600);
/// The fields of an entry that are about its address.
const OF_URL: [&str; 4] = ["url", "http_headers", "env_http_headers", "bearer_token_env_var"];

/// The text with what `change` makes of these tool servers, or of all.
///
/// What is written is one stretch per entry; the rest stays as it is, with its line ends and without one at its end.
pub(super) fn edited(
    text: &str,
    servers: &[String],
    change: impl Fn(Option<&str>, &str, &Entry) -> (What, Option<Becomes>),
) -> Result<Edited, HostError> {
    let mut document = parsed(text)?;
    let known: Vec<String> = list(&mut document)?.iter().map(|(name, _)| name.to_owned()).collect();
    let (mut changes, mut edited) = (Vec::new(), text.to_owned());
    for name in &known {
        if !servers.is_empty() && !servers.contains(name) {
            continue;
        }
        let lines = Lines::of(&edited);
        let mut document = parsed(&lines.plain)?;
        let before = document.to_string();
        let Some(entry) = list(&mut document)?.get_mut(name).and_then(Item::as_table_like_mut) else { continue };
        let read = entry_of(entry);
        let (what, new) = change(None, name, &read);
        let program = read.command;
        let is_lost = new.as_ref().is_some_and(|new| is_lost(entry, new));
        let what = if is_lost { What::NotRestored } else { what };
        changes.push(Change { server: name.clone(), project: None, what, program, patience: read.patience });
        if let Some(new) = new.filter(|_| !is_lost) {
            become_(entry, new, what);
            edited = lines.with(&before, &document.to_string());
        }
    }
    missing(servers, &known)?;
    Ok(Edited { text: edited, changes })
}

fn parsed(text: &str) -> Result<DocumentMut, HostError> {
    text.parse().map_err(|error: toml_edit::TomlError| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let why = ua_core::value_fault(&error.message().trim().replace('\n', ", "));
        let line = before.matches('\n').count() + 1;
        HostError::usage(format!("it is not TOML: line {line}: {why}"))
    })
}

/// All that a configuration says.
pub(super) fn document(text: &str) -> Option<serde_json::Value> {
    serde_json::to_value(::toml::from_str::<::toml::Table>(text).ok()?).ok()
}

fn list(document: &mut DocumentMut) -> Result<&mut dyn TableLike, HostError> {
    let list = document.get_mut(LIST).and_then(Item::as_table_like_mut);
    list.ok_or_else(|| HostError::usage(format!("it names no tool servers (`{LIST}`)")))
}

/// A text with its line ends, of which the one who writes TOML knows one kind, and wants one at the end.
struct Lines<'a> {
    typed: &'a str,
    /// With that kind alone.
    plain: String,
    is_ended: bool,
}

impl<'a> Lines<'a> {
    fn of(typed: &'a str) -> Self {
        let is_ended = typed.ends_with('\n');
        let mut plain = typed.replace("\r\n", "\n");
        if !is_ended {
            plain.push('\n');
        }
        Self { typed, plain, is_ended }
    }

    /// The typed text with what makes `after` of `before`, which is this one as it is written.
    fn with(&self, before: &str, after: &str) -> String {
        if before != self.plain {
            return after.to_owned(); // it cannot be written as it was typed
        }
        let (old, new) = stretch(before, after);
        let crlf = self.typed.contains("\r\n");
        let new = after.get(new).unwrap_or_default();
        let new = if crlf { new.replace('\n', "\r\n") } else { new.to_owned() };
        let (start, end) = (self.typed_at(old.start), self.typed_at(old.end));
        let mut made = format!("{}{new}{}", &self.typed[..start], &self.typed[end..]);
        // The line end that was added for the writer goes, unless it ends what was typed last.
        if !self.is_ended && old.end == before.len() {
            made.truncate(made.trim_end_matches(['\r', '\n']).len());
        }
        made
    }

    /// Where the byte at this place of the plain text is typed.
    fn typed_at(&self, plain: usize) -> usize {
        let mut left = plain;
        let bytes = self.typed.as_bytes();
        let mut at = 0;
        while left > 0 && at < bytes.len() {
            at += if bytes[at..].starts_with(b"\r\n") { 2 } else { 1 };
            left -= 1;
        }
        at
    }
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
    Entry {
        command: word("command"),
        args,
        has_args: entry.get("args").is_some(),
        has_patience: entry.get(PATIENCE.0).is_some(),
        patience: entry.get(PATIENCE.0).and_then(seconds),
        env,
        url: word("url"),
        headers,
        env_file: None,
        is_cut,
        is_shared: false,
    }
}

/// The whole seconds of a span of time, which may be written with a fraction.
fn seconds(span: &Item) -> Option<u32> {
    let whole = span.as_integer().or_else(|| {
        let floor = span.as_float()?.floor();
        // As text, so that what no number of seconds is becomes none.
        floor.to_string().parse().ok()
    });
    u32::try_from(whole?).ok().map(|seconds| seconds.max(1))
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

/// What a variable of the entry holds, where the file says it.
fn held(entry: &dyn TableLike, variable: &str) -> Option<String> {
    let is_passed = texts(entry, "env_vars").iter().any(|name| name == variable);
    let held = pairs(entry, "env").into_iter().find(|(name, _)| name == variable);
    held.filter(|_| !is_passed).map(|(_, held)| held)
}

/// Whether a header cannot be written: one that is made of a variable of the client and of something else.
fn is_lost(entry: &dyn TableLike, becomes: &Becomes) -> bool {
    let Becomes::Url { headers, .. } = becomes else { return false };
    headers.iter().any(|header| {
        header.whole().or(header.bearer()).is_none() && header.with(|variable| held(entry, variable)).is_none()
    })
}

fn become_(entry: &mut dyn TableLike, becomes: Becomes, what: What) {
    let mut had_patience = None;
    match becomes {
        Becomes::Program { command } => set(entry, "command", command.into()),
        Becomes::Behind { command, words } => {
            let typed = entry.get("command").and_then(Item::as_value).cloned();
            set(entry, "command", command.into());
            if entry.get("args").is_none() {
                entry.insert("args", value(Array::new()));
            }
            if let Some(args) = entry.get_mut("args").and_then(Item::as_array_mut) {
                let last = words.len().saturating_sub(1);
                for (at, word) in words.into_iter().enumerate() {
                    // The last of them is the program of before, as it is typed. What stands behind them keeps its blanks and comments.
                    let mut word = typed.clone().filter(|_| at == last).unwrap_or_else(|| word.into());
                    word.decor_mut().clear();
                    word.decor_mut().set_prefix("");
                    args.insert_formatted(at, word);
                }
            }
        }
        Becomes::Itself { words, once } => {
            had_patience = once.had_patience;
            let mut program = None;
            let mut is_empty = true;
            if let Some(args) = entry.get_mut("args").and_then(Item::as_array_mut) {
                program = without_first(args, words);
                is_empty = args.is_empty();
            }
            if is_empty && once.had_args != Some(true) {
                entry.remove("args");
            }
            if let Some(program) = program {
                set(entry, "command", program);
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
        Becomes::Url { url, headers, once } => {
            had_patience = once.had_patience;
            entry.remove("command");
            entry.remove("args");
            set(entry, "url", url.into());
            for header in &headers {
                if let Some(text) = header.with(|variable| held(entry, variable)) {
                    put(entry, "http_headers", &header.name, text);
                } else if let Some(variable) = header.bearer() {
                    set(entry, "bearer_token_env_var", variable.into());
                } else if let Some(variable) = header.whole() {
                    put(entry, "env_http_headers", &header.name, variable.to_owned());
                }
            }
            for variable in headers.iter().flat_map(Restored::variables) {
                if let Some(env) = entry.get_mut("env").and_then(Item::as_table_like_mut) {
                    env.remove(variable);
                }
                let passed = texts(entry, "env_vars");
                if passed.iter().any(|name| name == variable) {
                    let others = passed.into_iter().filter(|name| name != variable);
                    set(entry, "env_vars", others.collect::<Array>().into());
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
    } else if what == What::Unwrapped
        && had_patience != Some(true)
        && entry.get(name).and_then(Item::as_integer) == Some(seconds)
    {
        entry.remove(name);
    }
}

/// Takes the first members of a list away; the last of them is what it was a list of arguments of.
fn without_first(args: &mut Array, words: usize) -> Option<Value> {
    let prefix =
        |value: Option<&Value>| value.and_then(|value| value.decor().prefix()?.as_str()).unwrap_or_default().to_owned();
    let (lead, second, next) = (prefix(args.get(0)), prefix(args.get(1)), args.get(words).is_some());
    let mut program = None;
    for _ in 0..words.min(args.len()) {
        program = Some(args.remove(0));
    }
    // Ours stand without blanks, and what is behind them as it was typed; else somebody wrote the list once more.
    let is_tight = lead.is_empty() && second.is_empty();
    if let Some(first) = args.get_mut(0).filter(|_| next && !is_tight) {
        first.decor_mut().set_prefix(lead);
    } else if args.is_empty() && !is_tight {
        args.set_trailing("");
        args.set_trailing_comma(false);
    }
    program
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
