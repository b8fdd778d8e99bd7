//! What was made of a client's configuration, held against what was meant, before anything is written.
//!
//! Where a value stands is found out in three formats and in every layout that people and programs write. Whatever is wrong with that, nobody's file
//! may pay for it: the new text is read again by the same reader, and is taken only if each entry that was to change says what it was meant to, and
//! everything else is what it was.
//! Proved by: this file's tests, and `tests_typed`.

use std::path::Path;

use serde_json::{Map, Value};

use super::entry::{Becomes, Entry};
use super::restored::{Named, entries};
use super::spans::plain;
use super::{Format, json, toml, yaml};

/// An entry that was looked at, and what it is to be.
#[derive(Debug)]
pub(super) struct Meant {
    /// Whose it is: its project, if it is one project's, and its name.
    pub(super) of: (Option<String>, String),
    /// What it said.
    pub(super) was: Entry,
    /// What it becomes; `None` where it stays.
    pub(super) becomes: Option<Becomes>,
}

/// What of an entry may be another thing when its program is.
const OF_PROGRAM: [&str; 4] = ["command", "cmd", "args", "tool_timeout_sec"];
/// What else may be when it was an address, or becomes one.
const OF_ADDRESS: [&str; 8] =
    ["type", "url", "headers", "env", "env_vars", "http_headers", "env_http_headers", "bearer_token_env_var"];

impl Meant {
    /// Whether the entry says now what it is to say.
    fn is(&self, now: &Entry) -> bool {
        let was = &self.was;
        let has = |name: &String| now.env.contains(name);
        match &self.becomes {
            None => now == was,
            Some(Becomes::Program { command }) => *now == Entry { command: Some(command.clone()), ..was.clone() },
            Some(Becomes::Behind { command, words }) => {
                let args = words.iter().chain(&was.args).cloned().collect();
                let command = Some(command.clone());
                let (has_patience, patience) = (now.has_patience, now.patience);
                *now == Entry { command, args, has_args: true, has_patience, patience, ..was.clone() }
            }
            Some(Becomes::Itself { words, once: _ }) => {
                let mut args = was.args.clone();
                let rest = args.split_off((*words).min(args.len()));
                let (has_args, has_patience, patience) = (now.has_args, now.has_patience, now.patience);
                *now == Entry { command: args.pop(), args: rest, has_args, has_patience, patience, ..was.clone() }
            }
            Some(Becomes::InPlaceOfUrl { command, args, env, passed }) => {
                let is_program = now.command.as_ref() == Some(command) && now.args == *args && now.url.is_none();
                let has_all = was.env.iter().chain(passed).all(has) && env.iter().all(|(name, _)| has(name));
                is_program && has_all && now.headers.is_empty() && !now.is_cut
            }
            Some(Becomes::Url { url, headers, once: _ }) => {
                let is_address = now.url.as_ref() == Some(url) && now.command.is_none() && now.args.is_empty();
                is_address && now.headers.len() == headers.len() && !now.is_cut
            }
        }
    }

    /// Whether the fields of the entry are those that it had, but for what is meant to be another thing.
    fn is_rest_kept(&self, before: &Map<String, Value>, after: &Map<String, Value>) -> bool {
        let Some(becomes) = &self.becomes else { return before == after };
        let (is_address, env) = match becomes {
            Becomes::Program { .. } | Becomes::Behind { .. } | Becomes::Itself { .. } => (false, &[][..]),
            Becomes::InPlaceOfUrl { env, .. } => (true, env.as_slice()),
            Becomes::Url { .. } => (true, &[][..]),
        };
        let may_change = |name: &String| {
            let is_it = |own: &&str| *own == name;
            OF_PROGRAM.iter().any(is_it) || is_address && OF_ADDRESS.iter().any(is_it)
        };
        let rest = |fields: &Map<String, Value>| -> Map<String, Value> {
            fields
                .iter()
                .filter(|(name, _)| !may_change(name))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect()
        };
        let holds = |(name, held): &(String, String)| after.get("env").is_some_and(|env| env[name] == *held);
        rest(before) == rest(after) && env.iter().all(holds)
    }
}

/// Whether `after` is `before` with each of these entries as it is meant to be, and nothing else.
pub(super) fn is_as_meant(format: Format, path: &Path, before: &str, after: &str, meant: &[Meant]) -> bool {
    let Some(now) = entries(format, path, after) else { return false };
    let Some(was) = entries(format, path, before) else { return false };
    let of = |project: Option<&str>, name: &str| {
        meant.iter().find(|meant| (meant.of.0.as_deref(), meant.of.1.as_str()) == (project, name))
    };
    let is_it = |((project, name, was), (of_now, name_now, now)): (&Named, &Named)| {
        (project, name) == (of_now, name_now) && of(project.as_deref(), name).map_or(was == now, |meant| meant.is(now))
    };
    if was.len() != now.len() || !was.iter().zip(&now).all(is_it) {
        return false;
    }
    let changed: Vec<&Meant> = meant.iter().filter(|meant| meant.becomes.is_some()).collect();
    let (Some(before), Some(after)) = (apart(format, before, &changed), apart(format, after, &changed)) else {
        return false;
    };
    let mut fields = changed.into_iter().zip(&before.1).zip(&after.1);
    before.0 == after.0 && fields.all(|((meant, before), after)| meant.is_rest_kept(before, after))
}

/// What the text says beside these entries, and the fields of each of them; `None` where one of them is not there.
fn apart(format: Format, text: &str, of: &[&Meant]) -> Option<(String, Vec<Map<String, Value>>)> {
    let mut fields = Vec::new();
    let mut document = match format {
        // Beside them it is to the byte what it was, with its comments.
        Format::Json => {
            let all = json::places(text);
            let mut rest = text.to_owned();
            let mut places = Vec::new();
            for meant in of {
                let (.., place) =
                    all.iter().find(|(project, name, _)| (project, name) == (&meant.of.0, &meant.of.1))?;
                fields.push(serde_json::from_str(&plain(text, place)?).ok()?);
                places.push(place.clone());
            }
            places.sort_by_key(|place| std::cmp::Reverse(place.start));
            for place in places {
                rest.replace_range(place, "");
            }
            return Some((rest, fields));
        }
        Format::Toml => toml::document(text)?,
        Format::Yaml => yaml::document(text)?,
    };
    let list = if format == Format::Toml { toml::LIST } else { yaml::LIST };
    for meant in of {
        let entry = document.get_mut(list)?.as_object_mut()?.remove(&meant.of.1)?;
        fields.push(entry.as_object()?.clone());
    }
    Some((document.to_string(), fields))
}

#[cfg(test)]
mod tests {
    use super::super::entry::Once;
    use super::*;

    /// Whatever is broken on the way, it is not taken for what was meant.
    #[test]
    fn what_is_not_as_it_was_meant_is_told_from_what_is() {
        let was = Entry {
            command: Some("x".to_owned()),
            args: vec!["a".to_owned()],
            has_args: true,
            env: vec!["K".to_owned()],
            ..Entry::default()
        };
        let words = vec!["gateway".to_owned(), "--".to_owned(), "x".to_owned()];
        let behind = Becomes::Behind { command: "ua".to_owned(), words };
        let files = [
            (
                Format::Json,
                "{\"n\": 1, \"mcpServers\": {\"a\": {\"command\": \"x\", \"args\": [\"a\"], \"env\": {\"K\": \"1\"}}, \"b\": {\"command\": \"y\"}}} // c\n",
                "{\"n\": 1, \"mcpServers\": {\"a\": {\"command\": \"ua\", \"args\": [\"gateway\",\"--\",\"x\",\"a\"], \"env\": {\"K\": \"1\"}}, \"b\": {\"command\": \"y\"}}} // c\n",
            ),
            (
                Format::Toml,
                "n = 1\n[mcp_servers.a]\ncommand = \"x\"\nargs = [\"a\"]\nenv = { K = \"1\" }\n[mcp_servers.b]\ncommand = \"y\"\n",
                "n = 1\n[mcp_servers.a]\ncommand = \"ua\"\nargs = [\"gateway\",\"--\",\"x\",\"a\"]\nenv = { K = \"1\" }\ntool_timeout_sec = 3600\n[mcp_servers.b]\ncommand = \"y\"\n",
            ),
            (
                Format::Yaml,
                "n: 1\nextensions:\n  a: {cmd: x, args: [a], envs: {K: \"1\"}}\n  b: {cmd: y}\n",
                "n: 1\nextensions:\n  a: {cmd: ua, args: [gateway,--,x,a], envs: {K: \"1\"}}\n  b: {cmd: y}\n",
            ),
        ];
        for (format, before, after) in files {
            let path = Path::new("/nowhere/x");
            let meant = |becomes: Option<Becomes>| [Meant { of: (None, "a".to_owned()), was: was.clone(), becomes }];
            let is = |after: &str, becomes: Option<Becomes>| is_as_meant(format, path, before, after, &meant(becomes));
            assert!(is(after, Some(behind.clone())), "{after}");
            assert!(is(before, None) && !is(after, None), "{after}");
            assert!(!is(before, Some(behind.clone())), "{before}");
            for (old, new) in [
                ("\"1\"", "\"2\""), // a variable
                ("y", "z"),         // another entry
                ("n", "m"),         // beside them
                ("ua", "ub"),       // its program
                ("gateway,", ","),  // a word, or a broken list
                ("\"gateway\",", ""),
                ("[", ""),
            ] {
                let other = after.replacen(old, new, 1);
                assert!(other == after || !is(&other, Some(behind.clone())), "{old} {new}: {other}");
            }
            let back = Meant {
                of: (None, "a".to_owned()),
                was: Entry {
                    command: Some("ua".to_owned()),
                    args: ["gateway", "--", "x", "a"].map(str::to_owned).to_vec(),
                    has_patience: format == Format::Toml,
                    ..was.clone()
                },
                becomes: Some(Becomes::Itself { words: 3, once: Once::default() }),
            };
            assert!(is_as_meant(format, path, after, before, std::slice::from_ref(&back)), "{after}");
            assert!(!is_as_meant(format, path, after, after, &[back]), "{after}");
        }
    }
}
