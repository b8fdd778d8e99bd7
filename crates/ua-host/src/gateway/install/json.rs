//! Configurations in JSON with comments: Claude Code, Cursor, Visual Studio Code, and most others.

use std::ops::Range;

use serde_json::{Map, Value, json};

use super::entry::{Becomes, Entry, Header, What};
use super::ordered::{Style, Told};
use super::patience::Unit;
use super::spans::{Member, broken, elements, has_comment, members, plain};
use super::{Change, Edited, missing, without_first};
use crate::error::HostError;

/// Where clients keep their tool servers.
const LISTS: [&str; 2] = ["mcpServers", "servers"];

/// Where Claude Code keeps those that one project has: its folder, and a list in it.
const PROJECTS: &str = "projects";

/// What is written between a command that had no arguments and those that it gets.
const BEHIND: &str = ", \"args\": ";

struct Edit {
    place: Range<usize>,
    text: String,
}

/// The text with what `change` makes of these tool servers, or of all. `unit`: in which their client says how long it waits.
pub(super) fn edited(
    text: &str,
    unit: Unit,
    servers: &[String],
    change: impl Fn(Option<&str>, &str, &Entry) -> (What, Option<Becomes>),
) -> Result<Edited, HostError> {
    let not_understood =
        || HostError::usage("it is JSON, but not a client's configuration: its tool servers are an object of objects");
    if text.trim().is_empty() {
        return Err(HostError::usage("it is empty"));
    }
    // To its very end: what is broken behind the tool servers is broken for the client too.
    if let Some(why) = broken(text) {
        return Err(HostError::usage(format!("it is not JSON: {why}")));
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
            let change = Change { server: server.name, project, what: What::Twice, program: None, patience: None };
            if !changes.contains(&change) {
                changes.push(change);
            }
            continue;
        }
        let fields = members(text, &server.value).ok_or_else(not_understood)?;
        let entry = read(text, unit, &server.value, &fields);
        let (what, new) = change(project.as_deref(), &server.name, &entry);
        let is_address = matches!(new, Some(Becomes::Url { .. }));
        let new = new.map(|new| edits_of(text, &server.value, &fields, new));
        // What a header holds may stand nowhere in the file, so that only the client's environment has it.
        let is_lost = is_address && matches!(new, Some(None));
        let what = if is_lost { What::NotRestored } else { what };
        let (program, patience) = (entry.command, entry.patience);
        changes.push(Change { server: server.name.clone(), project, what, program, patience });
        if let Some(new) = new.filter(|_| !is_lost) {
            edits.extend(new.ok_or_else(not_understood)?);
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

/// Where the entries of a configuration stand that are alone with their name, with their projects and names.
pub(super) fn places(text: &str) -> Vec<(Option<String>, String, Range<usize>)> {
    let top = members(text, &(0..text.len())).unwrap_or_default();
    let mut found = Vec::new();
    for (project, list) in lists(text, &top) {
        let all = members(text, &list.value).unwrap_or_default();
        let is_alone = |name: &str| all.iter().filter(|other| other.name == name).count() == 1;
        let alone = all.iter().filter(|server| is_alone(&server.name));
        found.extend(alone.map(|server| (project.clone(), server.name.clone(), server.value.clone())));
    }
    found
}

/// What is written, and where, so that an entry becomes another one.
fn edits_of(text: &str, place: &Range<usize>, fields: &[Member], becomes: Becomes) -> Option<Vec<Edit>> {
    let of = |name: &str| fields.iter().find(|field| field.name == name);
    let edit = |place: &Range<usize>, text: String| Edit { place: place.clone(), text };
    let command = || of("command").map(|field| &field.value);
    Some(match becomes {
        Becomes::Program { command: new } => vec![edit(command()?, json!(new).to_string())],
        Becomes::Behind { command: new, words } => {
            let at = command()?;
            // The last of them is the program of before, as it is typed.
            let mut words: Vec<String> = words.iter().map(|word| json!(word).to_string()).collect();
            text.get(at.clone())?.clone_into(words.last_mut()?);
            let words = words.join(",");
            let new = json!(new).to_string();
            match of("args") {
                Some(args) => {
                    let comma = if elements(text, &args.value)?.is_empty() { "" } else { "," };
                    let behind = args.value.start + 1;
                    vec![edit(at, new), edit(&(behind..behind), format!("{words}{comma}"))]
                }
                None => vec![edit(at, format!("{new}{BEHIND}[{words}]"))],
            }
        }
        Becomes::Itself { words, once } => {
            let (at, args) = (command()?, of("args")?);
            let all = elements(text, &args.value)?;
            let program = text.get(all.get(words.checked_sub(1)?)?.clone())?.to_owned();
            let had_args = once.had_args.unwrap_or_else(|| text.get(at.end..args.value.start) != Some(BEHIND));
            let gone = if all.len() > words || had_args {
                let rest = without_first(text, &args.value, &all, words)?;
                edit(&args.value, rest)
            } else {
                match without_member(text, fields, args) {
                    Some(gone) => edit(&gone, String::new()),
                    None => edit(&args.value, "[]".to_owned()),
                }
            };
            vec![edit(at, program), gone]
        }
        // All of the entry is another one then; what is not about the address stays.
        becomes @ (Becomes::InPlaceOfUrl { .. } | Becomes::Url { .. }) => {
            let style = Style::of(text, place).filter(|_| !has_comment(text, place)).unwrap_or_else(Style::compact);
            vec![edit(place, style.write(&other(text, place, becomes)?))]
        }
    })
}

/// The stretch with which a member of an object goes; `None` where a comment would go with it.
fn without_member(text: &str, fields: &[Member], member: &Member) -> Option<Range<usize>> {
    let at = fields.iter().position(|field| field == member)?;
    let gone = match at.checked_sub(1).and_then(|before| fields.get(before)) {
        Some(before) => before.value.end..member.value.end,
        None => member.token.start..fields.get(at + 1)?.token.start,
    };
    (!has_comment(text, &gone)).then_some(gone)
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

/// What an entry says.
fn read(text: &str, unit: Unit, place: &Range<usize>, fields: &[Member]) -> Entry {
    let mut read: Map<String, Value> = Map::new();
    // What has a name twice, somewhere in it, is one thing for us and another for its client.
    let mut is_cut = Told::read(text, place).is_none();
    for field in fields {
        match plain(text, &field.value).and_then(|value| serde_json::from_str(&value).ok()) {
            Some(value) => drop(read.insert(field.name.clone(), value)),
            None => is_cut = true,
        }
    }
    let mut entry = entry_of(&read, unit);
    entry.is_cut |= is_cut;
    let inside = |name: &str| {
        let field = fields.iter().find(|field| field.name == name)?;
        members(text, &field.value)
    };
    entry.env = inside("env").unwrap_or_default().into_iter().map(|variable| variable.name).collect();
    // In the order in which they stand there.
    let order: Vec<String> = inside("headers").unwrap_or_default().into_iter().map(|header| header.name).collect();
    entry.headers.sort_by_key(|header| match header {
        Header::Plain { name, .. } | Header::Variable { name, .. } => order.iter().position(|own| own == name),
        Header::Bearer { .. } => None,
    });
    entry
}

fn entry_of(read: &Map<String, Value>, unit: Unit) -> Entry {
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
        has_args: read.contains_key("args"),
        has_patience: false,
        patience: read.get("timeout").and_then(|said| unit.seconds(said)),
        env: Vec::new(),
        url: word("url").filter(|_| !is_old),
        headers: headers.map(|all| all.iter().filter_map(header).collect()).unwrap_or_default(),
        env_file: word("envFile"),
        is_cut,
        is_shared: false,
    }
}

/// The entry at `place` with a program in the place of its address, or the other way.
fn other(text: &str, place: &Range<usize>, becomes: Becomes) -> Option<Told> {
    let Told::Object(mut rest) = Told::read(text, place)? else { return None };
    let mut take = |name: &str| {
        let at = rest.iter().position(|(own, _)| own == name)?;
        Some(rest.remove(at).1)
    };
    let is_typed = take("type").is_some();
    let env = take("env").and_then(|env| env.members().map(<[_]>::to_vec));
    let mut env = env.unwrap_or_default();
    let mut made: Vec<(String, Told)> = Vec::new();
    let mut put = |name: &str, value: Told| made.push((name.to_owned(), value));
    match becomes {
        Becomes::Program { .. } | Becomes::Behind { .. } | Becomes::Itself { .. } => return None,
        Becomes::InPlaceOfUrl { command, args, env: new, passed: _ } => {
            let _ = (take("url"), take("headers"));
            if is_typed {
                put("type", Told::text("stdio"));
            }
            put("command", Told::text(&command));
            put("args", Told::List(args.iter().map(|arg| Told::text(arg)).collect()));
            for (name, value) in new {
                env.retain(|(own, _)| *own != name);
                env.push((name, Told::text(&value)));
            }
        }
        Becomes::Url { url, headers, once: _ } => {
            let _ = (take("command"), take("args"));
            if is_typed {
                put("type", Told::text("http"));
            }
            put("url", Told::text(&url));
            let held = |variable: &str| env.iter().find(|(own, _)| own == variable).map(|(_, held)| held);
            let mut restored = Vec::new();
            for header in &headers {
                let value = match header.whole() {
                    // As it is typed.
                    Some(variable) => held(variable)?.clone(),
                    None => Told::text(&header.with(|variable| held(variable)?.as_text())?),
                };
                restored.push((header.name.clone(), value));
            }
            env.retain(|(own, _)| !headers.iter().any(|header| header.variables().any(|variable| variable == own)));
            if !restored.is_empty() {
                put("headers", Told::Object(restored));
            }
        }
    }
    if !env.is_empty() {
        put("env", Told::Object(env));
    }
    made.extend(rest);
    Some(Told::Object(made))
}
