//! What keeps an agent from going around the gateway by accident: rules of its client about commands and files, and, for Claude Code, the hook by
//! which its session is known.
//!
//! They are written where a person asks for it, beside the entries of tool servers, and taken away again: to the byte where the file is as it was
//! left, and by themselves where somebody changed it since, as a client does with each permission that is given. What a person had written already is
//! theirs and stays. An agent that means to go around them can: they are words about how a command begins, and no boundary.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use ua_core::{ShowPath as _, sha256, shell_word};
use ua_files::Folder;

use super::spans::{broken, elements, has_comment, members, plain};
use super::{Front, MOST, TRIES, has_one_name, kept_at, locked, records_lock, replace, unmarked};
use crate::error::HostError;
use crate::gateway::Client;
use crate::placed::refuse_leading_out;

/// What Claude Code refuses to do for its model (code.claude.com/docs/en/permissions): another entry of a tool server, what only a person may say at
/// the gateway, and a change of the files that say all this.
const RULES: [&str; 9] = [
    "Bash(claude mcp:*)",
    "Bash(ua answer:*)",
    "Bash(ua calls resolve:*)",
    "Bash(ua gateway install:*)",
    "Bash(ua gateway token:*)",
    "Bash(ua gateway uninstall:*)",
    "Bash(ua --root:*)",
    "Edit(~/.claude.json)",
    "Edit(~/.claude/settings.json)",
];
/// Where they stand.
const DENIED: [&str; 2] = ["permissions", "deny"];
/// Where Claude Code has what it starts when a session begins.
const AT_START: [&str; 2] = ["hooks", "SessionStart"];
/// What is started there, behind the program.
const HOOK: &str = "gateway hook";

/// The same for Codex (developers.openai.com/codex/rules), which reads every file in its folder of rules.
const CODEX: &str = r#"# Written by `ua gateway install --client codex --guard`, and removed by `ua gateway uninstall --client codex`.
prefix_rule(
    pattern = ["codex", "mcp", ["add", "remove"]],
    decision = "forbidden",
    justification = "Which tool servers there are, and that calls to them go through the gateway, is for a person to change.",
)
prefix_rule(
    pattern = ["ua", ["answer", "--root"]],
    decision = "forbidden",
    justification = "Questions of the gateway are answered by a person.",
)
prefix_rule(
    pattern = ["ua", "calls", "resolve"],
    decision = "forbidden",
    justification = "What came of a call is said by a person.",
)
prefix_rule(
    pattern = ["ua", "gateway", ["install", "token", "uninstall"]],
    decision = "forbidden",
    justification = "The gateway is set up by a person.",
)
"#;

/// What was put into a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Added {
    /// Into which list.
    list: Vec<String>,
    /// How many of these names, from the last on, were not there before.
    made: usize,
    /// The list's new members.
    values: Vec<Value>,
}

/// What is kept of a file that was changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Guarded {
    path: PathBuf,
    /// Digest of the text that was written.
    written: String,
    /// The text before the first change; `None` where there was no file.
    before: Option<String>,
    added: Vec<Added>,
}

/// Writes the rules of a client into the file at `path`; with `dry_run` only says whether it would. `false`: all of them are there.
///
/// # Errors
/// The client has none, or the file cannot be read, understood or written.
pub fn guard(root: &Path, client: Client, path: &Path, front: &Front, dry_run: bool) -> Result<bool, HostError> {
    let place = record_at(root, path);
    let _records = if dry_run { None } else { locked(&records_lock(root)) };
    for _ in 0..TRIES {
        let now = read(path)?;
        let earlier = kept(&place);
        let Some((text, new)) = guarded(client, path, now.as_deref(), front)? else { return Ok(false) };
        // Whoever only looks is told what would be in the way.
        if now.is_some() {
            refuse_leading_out(path)?;
            has_one_name(path)?;
        }
        if dry_run {
            return Ok(true);
        }
        let is_as_left = |kept: &Guarded| now.as_deref().is_some_and(|now| kept.written == sha256(now).to_hex());
        let (before, mut added) = match earlier {
            Some(kept) if is_as_left(&kept) => (kept.before, kept.added),
            // What somebody made of it is what it was before, but for ours.
            Some(kept) => {
                (now.as_deref().map(|now| without_all(now, &kept.added).unwrap_or_else(|| now.to_owned())), kept.added)
            }
            None => (now.clone(), Vec::new()),
        };
        added.extend(new);
        let record = Guarded { path: path.to_owned(), written: sha256(&text).to_hex(), before, added };
        for folder in [place.parent(), path.parent()].into_iter().flatten().filter(|folder| !folder.is_dir()) {
            Folder::make(folder)
                .map_err(|error| HostError::storage(format!("cannot make {}: {error}", folder.shown())))?;
        }
        let record = serde_json::to_string(&record).map_err(|error| HostError::failed(error.to_string()))?;
        // What the file was is kept before it is another one.
        replace(&place, record.as_bytes())?;
        if read(path)? == now {
            replace(path, text.as_bytes())?;
            return Ok(true);
        }
    }
    Err(written_by_another(path))
}

/// Takes them away again: to the byte, if the file is as it was left. `false`: none of them were written here.
///
/// # Errors
/// The file cannot be read, understood or written.
pub fn unguard(root: &Path, path: &Path, dry_run: bool) -> Result<bool, HostError> {
    let place = record_at(root, path);
    let _records = if dry_run { None } else { locked(&records_lock(root)) };
    for _ in 0..TRIES {
        let Some(record) = kept(&place) else { return Ok(false) };
        let now = read(path)?;
        let becomes = match now.as_deref() {
            None => None,
            Some(text) if record.written == sha256(text).to_hex() => record.before,
            // A file that is all ours, and is not as we wrote it.
            Some(text) if record.added.is_empty() => Some(text.to_owned()),
            Some(text) => {
                let rest = without_all(text, &record.added).ok_or_else(|| {
                    let error = HostError::usage(format!(
                        "cannot change {}: its layout cannot be changed automatically",
                        path.shown()
                    ));
                    error
                        .hint("remove the rules about `ua` from `permissions.deny` and the hook `gateway hook` by hand")
                })?;
                // One that was made for these is gone with them.
                let is_ours = record.before.is_none() && says(&rest).is_some_and(|rest| rest == json!({}));
                (!is_ours).then_some(rest)
            }
        };
        if dry_run {
            return Ok(true);
        }
        if now.is_some() {
            refuse_leading_out(path)?;
            has_one_name(path)?;
        }
        if read(path)? != now {
            continue;
        }
        match (&now, becomes) {
            (Some(_), None) => fs::remove_file(path)
                .map_err(|error| HostError::storage(format!("cannot remove {}: {error}", path.shown())))?,
            (Some(now), Some(text)) if *now != text => replace(path, text.as_bytes())?,
            (None | Some(_), _) => {}
        }
        if let Err(error) = fs::remove_file(&place) {
            tracing::debug!(%error, "the record of the rules could not be removed");
        }
        return Ok(true);
    }
    Err(written_by_another(path))
}

fn written_by_another(path: &Path) -> HostError {
    let message = format!("{} is written by another program all the time; it was not changed", path.shown());
    HostError::failed(message).hint("end the client whose file it is, and try again")
}

fn record_at(root: &Path, path: &Path) -> PathBuf {
    kept_at(root, path).with_extension("guard.json")
}

fn kept(place: &Path) -> Option<Guarded> {
    serde_json::from_str(&ua_files::read_text(place, MOST).ok()?).ok()
}

/// The file's text; `None` where there is none.
fn read(path: &Path) -> Result<Option<String>, HostError> {
    match ua_files::read_text(path, MOST) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(HostError::usage(format!("cannot read {}: {error}", path.shown()))),
    }
}

/// The text with the rules, and what of them is new; `None` where nothing is.
fn guarded(
    client: Client,
    path: &Path,
    now: Option<&str>,
    front: &Front,
) -> Result<Option<(String, Vec<Added>)>, HostError> {
    match client {
        Client::ClaudeCode => {
            let text = now.filter(|now| !now.trim().is_empty()).unwrap_or("{}\n");
            let cannot = |why: &str| {
                let error = HostError::usage(format!("cannot change {}: {why}", path.shown()));
                Err(error.hint("nothing was changed in it; correct that file, or write the rules by hand"))
            };
            let (mark, text) = unmarked(text);
            if let Some(why) = broken(text) {
                return cannot(&format!("it is not JSON: {why}"));
            }
            match with_rules(text, front) {
                Some((_, new)) if new.is_empty() => Ok(None),
                Some((text, new)) => Ok(Some((format!("{mark}{text}"), new))),
                None => cannot("it is JSON, but not settings of Claude Code"),
            }
        }
        Client::Codex => match now {
            None => Ok(Some((CODEX.to_owned(), Vec::new()))),
            Some(now) if now == CODEX => Ok(None),
            Some(_) => {
                let error = HostError::usage(format!("{} is not as this version writes it", path.shown()));
                Err(error.hint("nothing was changed in it; remove it, if it is of an earlier version, and try again"))
            }
        },
        Client::Cursor | Client::VsCode | Client::Goose => {
            let error = HostError::usage("this client has no rules that can be written for it");
            Err(error.hint("`--guard` is for claude-code and codex"))
        }
    }
}

/// The text with whatever of the rules and of the hook is not there yet. `None`: something else stands where they would.
fn with_rules(text: &str, front: &Front) -> Option<(String, Vec<Added>)> {
    let was = says(text)?;
    let has = |rule: &str| list(&was, &DENIED).iter().any(|own| own == rule);
    let rules: Vec<Value> = RULES.iter().filter(|rule| !has(rule)).map(|rule| json!(rule)).collect();
    let has_hook = list(&was, &AT_START).iter().any(|own| own.to_string().contains(HOOK));
    let command = {
        let root = front.root.as_ref().map_or_else(String::new, |root| format!(" --root {}", shell_word(root)));
        format!("{}{root} {HOOK}", shell_word(&front.program))
    };
    let hook = json!({"hooks": [{"type": "command", "command": command}]});
    let hooks: Vec<Value> = if has_hook { Vec::new() } else { vec![hook] };
    let (mut made, mut meant, mut added) = (text.to_owned(), was, Vec::new());
    for (at, values) in [(DENIED, rules), (AT_START, hooks)] {
        if values.is_empty() {
            continue;
        }
        let there = (1..=at.len()).take_while(|count| value_at(&meant, &at[..*count]).is_some()).count();
        made = with_values(&made, &at, &values)?;
        extend(&mut meant, &at, &values)?;
        added.push(Added { list: at.map(str::to_owned).to_vec(), made: at.len() - there, values });
    }
    // What was made says what was meant, and all else what it said.
    (says(&made)? == meant).then_some((made, added))
}

/// What a text says, whose comments and last commas say nothing.
fn says(text: &str) -> Option<Value> {
    let (_, text) = unmarked(text);
    serde_json::from_str(&plain(text, &(0..text.len()))?).ok()
}

fn value_at<'v>(value: &'v Value, at: &[&str]) -> Option<&'v Value> {
    at.iter().try_fold(value, |value, name| value.get(name))
}

fn list<'v>(value: &'v Value, at: &[&str]) -> &'v [Value] {
    value_at(value, at).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The value with these at the end of a list, which is made where there is none.
fn extend(value: &mut Value, at: &[&str], new: &[Value]) -> Option<()> {
    let (last, above) = at.split_last()?;
    let mut place = value;
    for name in above {
        place = place.as_object_mut()?.entry(*name).or_insert_with(|| json!({}));
    }
    let list = place.as_object_mut()?.entry(*last).or_insert_with(|| json!([]));
    list.as_array_mut()?.extend(new.iter().cloned());
    Some(())
}

/// The same of a text, in which nothing else moves.
fn with_values(text: &str, at: &[&str], new: &[Value]) -> Option<String> {
    let new = new.iter().map(Value::to_string).collect::<Vec<_>>().join(", ");
    let mut place = 0..text.len();
    for (depth, name) in at.iter().enumerate() {
        let all = members(text, &place)?;
        let mut named = all.iter().filter(|member| member.name == *name);
        match (named.next(), named.next()) {
            (Some(member), None) => place = member.value.clone(),
            // Which of the two its client takes, only that knows.
            (_, Some(_)) => return None,
            (None, None) => {
                let below = at.get(depth + 1..)?.iter().rev();
                let value = below.fold(format!("[{new}]"), |value, name| format!("{{{}: {value}}}", json!(name)));
                let last = all.last().map(|member| member.token.start..member.value.end);
                return put(text, &place, '{', last, &format!("{}: {value}", json!(name)));
            }
        }
    }
    let last = elements(text, &place)?.last().cloned();
    put(text, &place, '[', last, &new)
}

/// The text with something new behind the last member of what stands at `place`, and laid out as that; or in it, where it has none.
fn put(text: &str, place: &Range<usize>, opens: char, last: Option<Range<usize>>, new: &str) -> Option<String> {
    let (at, new) = match last {
        Some(last) => {
            let before = text.get(..last.start)?;
            let blank = &before[before.trim_end().len()..];
            let blank = if blank.contains('\n') { blank } else { " " };
            (last.end, format!(",{blank}{new}"))
        }
        None => (place.start + text.get(place.clone())?.find(opens)? + 1, new.to_owned()),
    };
    Some(format!("{}{new}{}", text.get(..at)?, text.get(at..)?))
}

/// The text without all that was put into it. `None`: a comment would go with it.
fn without_all(text: &str, added: &[Added]) -> Option<String> {
    added.iter().rev().try_fold(text.to_owned(), |text, added| without(&text, added))
}

fn without(text: &str, added: &Added) -> Option<String> {
    let at: Vec<&str> = added.list.iter().map(String::as_str).collect();
    let (mark, text) = unmarked(text);
    let mut text = text.to_owned();
    // Whoever took the list away took these as well.
    while let Some(place) = place_of(&text, &at) {
        let Some(all) = elements(&text, &place) else { break };
        let said = |one: &Range<usize>| serde_json::from_str::<Value>(&plain(&text, one)?).ok();
        let Some(found) = all.iter().position(|one| said(one).is_some_and(|one| added.values.contains(&one))) else {
            break;
        };
        text = without_one(&text, &all, found)?;
    }
    // What was made for these goes with them, if nobody put anything else into it.
    for depth in (at.len().saturating_sub(added.made)..at.len()).rev() {
        let own = at.get(..=depth)?;
        let is_empty = |value: &Value| *value == json!([]) || *value == json!({});
        if !says(&text)?.pointer(&format!("/{}", own.join("/"))).is_some_and(is_empty) {
            break;
        }
        let all = members(&text, &place_of(&text, at.get(..depth)?)?)?;
        let found = all.iter().position(|member| member.name == at[depth])?;
        let all: Vec<Range<usize>> = all.iter().map(|member| member.token.start..member.value.end).collect();
        text = without_one(&text, &all, found)?;
    }
    Some(format!("{mark}{text}"))
}

/// Where the value with these names stands.
fn place_of(text: &str, at: &[&str]) -> Option<Range<usize>> {
    at.iter().try_fold(0..text.len(), |place, name| {
        members(text, &place)?.into_iter().find(|member| member.name == *name).map(|member| member.value)
    })
}

/// The text without one of the members that stand at these places, and without its comma.
fn without_one(text: &str, all: &[Range<usize>], found: usize) -> Option<String> {
    let own = all.get(found)?.clone();
    let gone = match (found.checked_sub(1).and_then(|before| all.get(before)), all.get(found + 1)) {
        (Some(before), _) => before.end..own.end,
        (None, Some(next)) => own.start..next.start,
        (None, None) => own,
    };
    let mut text = text.to_owned();
    if has_comment(&text, &gone) {
        return None;
    }
    text.replace_range(gone, "");
    Some(text)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;

    /// Settings as people and Claude Code write them.
    const SETTINGS: [&str; 9] = [
        "{}",
        "{}\n",
        "{\n}\n",
        "{\n  \"theme\": \"dark\"\n}\n",
        "{\n  \"permissions\": {\n    \"allow\": [\n      \"Bash(ls:*)\"\n    ],\n    \"deny\": []\n  },\n  \"model\": \"opus\"\n}\n",
        "{\r\n\t\"permissions\": {\"deny\": [\"Bash(rm:*)\", \"Bash(ua answer:*)\"]},\r\n\t\"hooks\": {}\r\n}",
        "// mine\n{\"hooks\": {\"SessionStart\": [ {\"hooks\": [{\"type\": \"command\", \"command\": \"date\"}]}, ], /* c */ \"Stop\": []},}\n",
        "\u{feff}{\"a\": 1, \"permissions\": { }}",
        "{\"hooks\": {\"SessionStart\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"ua gateway hook\"}]}]}, \"permissions\": {\"deny\": [\"Edit(~/.claude.json)\"]}}",
    ];

    fn front() -> Front {
        Front { program: "/opt/my ua/ua".to_owned(), root: None, own_root: None }
    }

    fn there(text: &str) -> (tempfile::TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let (root, path) = (folder.path().join("gateway"), folder.path().join("settings.json"));
        fs::create_dir(&root).unwrap();
        fs::write(&path, text).unwrap();
        (folder, root, path)
    }

    #[test]
    fn rules_and_the_hook_come_once_and_go_to_the_byte() {
        for text in SETTINGS {
            let (_folder, root, path) = there(text);
            assert!(guard(&root, Client::ClaudeCode, &path, &front(), true).unwrap(), "{text}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text, "it was only looked");
            assert!(guard(&root, Client::ClaudeCode, &path, &front(), false).unwrap());
            let made = fs::read_to_string(&path).unwrap();
            let said = says(&made).unwrap();
            for rule in RULES {
                assert_eq!(list(&said, &DENIED).iter().filter(|own| **own == rule).count(), 1, "{rule}: {made}");
            }
            let hooks: Vec<&Value> =
                list(&said, &AT_START).iter().filter(|own| own.to_string().contains(HOOK)).collect();
            assert_eq!(hooks.len(), 1, "{made}");
            let is_own = text.contains(HOOK);
            assert!(is_own || hooks[0]["hooks"][0]["command"] == "'/opt/my ua/ua' gateway hook", "{made}");
            assert!(!guard(&root, Client::ClaudeCode, &path, &front(), false).unwrap(), "all of it is there");
            assert_eq!(fs::read_to_string(&path).unwrap(), made);
            assert!(unguard(&root, &path, true).unwrap() && unguard(&root, &path, false).unwrap());
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert!(!unguard(&root, &path, false).unwrap(), "nothing of ours is there");
            assert_eq!(fs::read_dir(root.join(super::super::RECORDS)).unwrap().count(), 0);
        }
    }

    /// A client writes its settings anew with each permission that is given: that stays, and ours goes.
    #[test]
    fn what_somebody_wrote_since_stays_and_ours_goes() {
        for text in SETTINGS {
            for is_pretty in [false, true] {
                let (_folder, root, path) = there(text);
                guard(&root, Client::ClaudeCode, &path, &front(), false).unwrap();
                let mut said = says(&fs::read_to_string(&path).unwrap()).unwrap();
                extend(&mut said, &["permissions", "allow"], &[json!("Bash(make:*)")]).unwrap();
                extend(&mut said, &DENIED, &[json!("Bash(sudo:*)")]).unwrap();
                let theirs = if is_pretty { serde_json::to_string_pretty(&said).unwrap() } else { said.to_string() };
                fs::write(&path, theirs).unwrap();
                // Once more, as after an upgrade, it changes nothing.
                assert!(!guard(&root, Client::ClaudeCode, &path, &front(), false).unwrap());
                assert!(unguard(&root, &path, false).unwrap());
                let mut meant = says(text).unwrap();
                extend(&mut meant, &["permissions", "allow"], &[json!("Bash(make:*)")]).unwrap();
                extend(&mut meant, &DENIED, &[json!("Bash(sudo:*)")]).unwrap();
                assert_eq!(says(&fs::read_to_string(&path).unwrap()).unwrap(), meant, "{text}");
            }
        }
    }

    /// Rules that a person removed come back, and what is taken away in the end is what was there without any.
    #[test]
    fn what_was_partly_removed_and_came_back_goes_again() {
        let (_folder, root, path) = there(SETTINGS[4]);
        guard(&root, Client::ClaudeCode, &path, &front(), false).unwrap();
        let less = fs::read_to_string(&path).unwrap().replace("\"Bash(claude mcp:*)\", ", "");
        fs::write(&path, &less).unwrap();
        assert!(guard(&root, Client::ClaudeCode, &path, &front(), false).unwrap());
        assert!(fs::read_to_string(&path).unwrap().contains("claude mcp"));
        unguard(&root, &path, false).unwrap();
        assert_eq!(says(&fs::read_to_string(&path).unwrap()), says(SETTINGS[4]));
    }

    #[test]
    fn a_file_that_was_made_for_them_is_gone_with_them() {
        for (client, name) in [(Client::ClaudeCode, "a/settings.json"), (Client::Codex, "rules/ua-gateway.rules")] {
            let folder = tempfile::tempdir().unwrap();
            let (root, path) = (folder.path().join("gateway"), folder.path().join(name));
            assert!(guard(&root, client, &path, &front(), false).unwrap());
            assert!(!guard(&root, client, &path, &front(), false).unwrap());
            assert!(path.exists() && unguard(&root, &path, false).unwrap() && !path.exists());
            // One that somebody changed is theirs by now.
            guard(&root, client, &path, &front(), false).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            let theirs =
                if client == Client::Codex { format!("{text}# mine\n") } else { text.replacen('{', "{\"a\": 1,", 1) };
            fs::write(&path, theirs).unwrap();
            unguard(&root, &path, false).unwrap();
            assert!(path.exists(), "{name}");
        }
    }

    #[test]
    fn what_is_no_file_of_settings_is_left_as_it_is() {
        for text in [
            "[]",
            "{\"permissions\": []}",
            "{\"permissions\": {\"deny\": {}}}",
            "{\"a\" 1}",
            "{\"hooks\": 5}",
            "{\"permissions\": {}, \"permissions\": {}}",
        ] {
            let (_folder, root, path) = there(text);
            let refused = guard(&root, Client::ClaudeCode, &path, &front(), false).unwrap_err();
            assert!(refused.message().starts_with("cannot change "), "{text}: {refused}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        let (_folder, root, path) = there("# mine\n");
        assert!(
            guard(&root, Client::Codex, &path, &front(), false).unwrap_err().hint_text().unwrap().contains("remove it")
        );
        for client in [Client::Cursor, Client::VsCode, Client::Goose] {
            let refused = guard(&root, client, &path, &front(), false).unwrap_err();
            assert!(refused.hint_text().unwrap().contains("claude-code and codex"));
        }
    }
}
