//! Configurations in JSON with comments: Claude Code, Cursor, Visual Studio Code, and most others.

use serde_json::{Map, Value, json};

use super::entry::{Becomes, Entry, Header, What};
use super::spans::{Member, broken, members, plain};
use super::{Change, Edited, missing};
use crate::error::HostError;

/// Where clients keep their tool servers.
const LISTS: [&str; 2] = ["mcpServers", "servers"];

/// Where Claude Code keeps those that one project has: its folder, and a list in it.
const PROJECTS: &str = "projects";

/// What is written between a command that had no arguments and those that it gets.
const BEHIND: &str = ", \"args\": ";

struct Edit {
    place: std::ops::Range<usize>,
    text: String,
}

/// The text with what `change` makes of these tool servers, or of all.
pub(super) fn edited(
    text: &str,
    servers: &[String],
    change: impl Fn(&str, &Entry) -> (What, Option<Becomes>),
) -> Result<Edited, HostError> {
    let not_understood = || match broken(text) {
        Some(why) => HostError::usage(format!("it is not JSON: {why}")),
        None => {
            HostError::usage("it is JSON, but not a client's configuration: its tool servers are an object of objects")
        }
    };
    if text.trim().is_empty() {
        return Err(HostError::usage("it is empty"));
    }
    let top = members(text, &(0..text.len())).ok_or_else(not_understood)?;
    let mut named = Vec::new();
    for (project, list) in lists(text, &top) {
        for server in members(text, &list.value).ok_or_else(not_understood)? {
            named.push((project.clone(), server));
        }
    }
    if named.is_empty() && lists(text, &top).is_empty() {
        return Err(HostError::usage("it names no tool servers (`mcpServers`, `servers`)"));
    }
    let known: Vec<String> = named.iter().map(|(_, server)| server.name.clone()).collect();
    let (mut edits, mut changes) = (Vec::new(), Vec::new());
    let of: Vec<(Option<String>, String)> =
        named.iter().map(|(project, server)| (project.clone(), server.name.clone())).collect();
    for (project, server) in named {
        if !servers.is_empty() && !servers.contains(&server.name) {
            continue;
        }
        if of.iter().filter(|(other, name)| *other == project && *name == server.name).count() > 1 {
            let change = Change { server: server.name, project, what: What::Twice };
            if !changes.contains(&change) {
                changes.push(change);
            }
            continue;
        }
        let fields = members(text, &server.value).ok_or_else(not_understood)?;
        let mut read: Map<String, Value> = Map::new();
        let mut is_cut = false;
        for field in &fields {
            match plain(text, &field.value).and_then(|value| serde_json::from_str(&value).ok()) {
                Some(value) => drop(read.insert(field.name.clone(), value)),
                None => is_cut = true,
            }
        }
        let mut entry = entry_of(&read);
        entry.is_cut |= is_cut;
        if let Some(env) = fields.iter().find(|field| field.name == "env") {
            let names = members(text, &env.value).unwrap_or_default();
            entry.env = names.into_iter().map(|variable| variable.name).collect();
        }
        let (what, new) = change(&server.name, &entry);
        changes.push(Change { server: server.name.clone(), project, what });
        let place = |name: &str| fields.iter().find(|field| field.name == name).map(|field| field.value.clone());
        match new {
            None => {}
            Some(Becomes::Command { command, args }) => {
                let is_empty = args.is_empty();
                let (command, args) = (json!(command).to_string(), json!(args).to_string());
                let Some(at) = place("command") else { return Err(not_understood()) };
                match place("args") {
                    // Our own words, and nothing was behind the command before.
                    Some(old) if is_empty && text.get(at.end..old.start) == Some(BEHIND) => {
                        edits.push(Edit { place: at.start..old.end, text: command });
                    }
                    Some(old) => {
                        edits.push(Edit { place: at, text: command });
                        edits.push(Edit { place: old, text: args });
                    }
                    None => edits.push(Edit { place: at, text: format!("{command}{BEHIND}{args}") }),
                }
            }
            // All of the entry is another one then; what is not about the address stays.
            Some(becomes) => edits.push(Edit { place: server.value.clone(), text: other(read, becomes).to_string() }),
        }
    }
    missing(servers, &known)?;
    edits.sort_by_key(|edit| std::cmp::Reverse(edit.place.start));
    let mut edited = text.to_owned();
    for edit in edits {
        edited.replace_range(edit.place, &edit.text);
    }
    Ok(Edited { text: edited, changes })
}

/// The lists of tool servers: that of everywhere, and those of projects with their folders.
fn lists(text: &str, top: &[Member]) -> Vec<(Option<String>, Member)> {
    let mut lists: Vec<(Option<String>, Member)> = Vec::new();
    lists.extend(top.iter().find(|member| LISTS.contains(&member.name.as_str())).map(|list| (None, list.clone())));
    let projects = top.iter().find(|member| member.name == PROJECTS);
    for project in projects.and_then(|projects| members(text, &projects.value)).unwrap_or_default() {
        let fields = members(text, &project.value).unwrap_or_default();
        let own = fields.into_iter().find(|member| member.name == LISTS[0]);
        // One without any is what most projects have.
        let own = own.filter(|own| members(text, &own.value).is_some_and(|servers| !servers.is_empty()));
        lists.extend(own.map(|list| (Some(project.name), list)));
    }
    lists
}

fn entry_of(read: &Map<String, Value>) -> Entry {
    let word = |name: &str| read.get(name).and_then(Value::as_str).map(str::to_owned);
    let texts =
        |value: &Value| value.as_array().map(|all| all.iter().filter_map(Value::as_str).map(str::to_owned).collect());
    let args: Vec<String> = read.get("args").and_then(texts).unwrap_or_default();
    // An argument that is no text would be lost.
    let is_cut = read.get("args").is_some_and(|all| all.as_array().is_none_or(|all| all.len() != args.len()));
    let headers = read.get("headers").and_then(Value::as_object);
    let header = |(name, value): (&String, &Value)| {
        Some(Header::Plain { name: name.clone(), value: value.as_str()?.to_owned() })
    };
    // The transport before the present one: a stream of its own, and requests beside it.
    let is_old = read.get("type").is_some_and(|kind| kind == "sse");
    Entry {
        command: word("command"),
        args,
        env: Vec::new(),
        url: word("url").filter(|_| !is_old),
        headers: headers.map(|all| all.iter().filter_map(header).collect()).unwrap_or_default(),
        env_file: word("envFile"),
        is_cut,
    }
}

/// The entry with a program in the place of its address, or the other way.
fn other(mut read: Map<String, Value>, becomes: Becomes) -> Value {
    let is_typed = read.remove("type").is_some();
    let mut made = Map::new();
    let env = read.remove("env");
    let mut env = env.and_then(|env| env.as_object().cloned()).unwrap_or_default();
    match becomes {
        Becomes::Command { .. } => {}
        Becomes::InPlaceOfUrl { command, args, env: new, passed: _ } => {
            read.remove("url");
            read.remove("headers");
            if is_typed {
                made.insert("type".to_owned(), json!("stdio"));
            }
            made.insert("command".to_owned(), json!(command));
            made.insert("args".to_owned(), json!(args));
            env.extend(new.into_iter().map(|(name, value)| (name, json!(value))));
        }
        Becomes::Url { url, headers } => {
            read.remove("command");
            read.remove("args");
            if is_typed {
                made.insert("type".to_owned(), json!("http"));
            }
            made.insert("url".to_owned(), json!(url));
            let restored: Map<String, Value> =
                headers.into_iter().filter_map(|header| Some((header.name, env.remove(&header.variable)?))).collect();
            if !restored.is_empty() {
                made.insert("headers".to_owned(), Value::Object(restored));
            }
        }
    }
    if !env.is_empty() {
        made.insert("env".to_owned(), Value::Object(env));
    }
    made.extend(read);
    Value::Object(made)
}
