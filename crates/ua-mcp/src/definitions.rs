//! `mcp.lock`: what the tools of each server were when a person looked at them.
//!
//! Threat S12 of the security notes (a server that changes what its tools are once it is trusted). The file says, for each server of the
//! MCP configuration, how it is reached, what it calls itself, and a digest of each part of each tool's definition. When it is there,
//! it is compared whenever tools are listed: before anything is dispatched, and again when a server says that its tools changed.
//! Invariants: what differs is never called; a tool that the file does not know is not offered. What a server does behind an unchanged
//! definition is beyond what any client can see.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use ua_core::{CanonicalJson, Redactor, ToolName, sha256};

use crate::config::Reach;
use crate::host::printable;

/// The version of the file's form.
const VERSION: u32 = 1;
/// The parts of a definition that are compared, as the protocol calls them.
const PARTS: [&str; 6] = ["title", "description", "inputSchema", "outputSchema", "annotations", "execution"];
/// The most differences that are named.
const MAX_NAMED: usize = 20;

/// The file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DefinitionLock {
    /// The version of the file's form.
    version: u32,
    /// What is known, by server.
    pub servers: BTreeMap<String, LockedServer>,
}

/// What is known about one server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedServer {
    /// Digest of how it is reached: program and arguments, or URL, as the configuration has them.
    pub reach: String,
    /// What it calls itself.
    pub name: String,
    /// Its version, as it says.
    pub version: String,
    /// The digest of each part of each tool's definition.
    pub tools: BTreeMap<String, BTreeMap<String, String>>,
}

/// What one server has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locked {
    /// What the file says; `None` when it does not know the server.
    pub expected: Option<LockedServer>,
    /// Digest of how it is reached now.
    pub reach: String,
    /// The command that writes the file of this server anew, and with `--check` behind it only compares; a lock that is in no file has none.
    pub command: Option<String>,
}

impl Locked {
    /// The same as it would be said now that `redactor` knows what it does.
    pub(crate) fn without_secrets(&self, redactor: &Redactor) -> Self {
        Self { expected: self.expected.as_ref().map(|known| known.without_secrets(redactor)), ..self.clone() }
    }
}

impl Default for DefinitionLock {
    fn default() -> Self {
        Self { version: VERSION, servers: BTreeMap::new() }
    }
}

impl DefinitionLock {
    /// A lock of these servers.
    pub fn of_servers(servers: BTreeMap<String, LockedServer>) -> Self {
        Self { version: VERSION, servers }
    }

    /// Reads the file's text.
    ///
    /// # Errors
    /// A sentence about what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let lock: Self = serde_json::from_str(text).map_err(|error| ua_core::json_fault(text, &error))?;
        if lock.version != VERSION {
            return Err(format!("its version is {}, and this build knows {VERSION}", lock.version));
        }
        Ok(lock)
    }

    /// The text of the file.
    pub fn to_text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// What is other than `known` says, in clauses; everything is new when nothing was known.
    pub fn changes_since(&self, known: Option<&Self>) -> Vec<String> {
        let empty = Self::default();
        let known = known.unwrap_or(&empty);
        let mut changes = Vec::new();
        for (server, now) in &self.servers {
            let Some(before) = known.servers.get(server) else {
                changes.push(format!(
                    "`{server}` is new: {} of `{} {}`",
                    ua_core::counted(now.tools.len(), "tool"),
                    now.name,
                    now.version
                ));
                continue;
            };
            let added = now.tools.keys().filter(|tool| !before.tools.contains_key(*tool));
            let added = added.map(|tool| format!("`{tool}` is new"));
            changes.extend(differences(before, now).into_iter().chain(added).map(|what| format!("`{server}`: {what}")));
        }
        let gone = known.servers.keys().filter(|server| !self.servers.contains_key(*server));
        changes.extend(gone.map(|server| format!("`{server}` is gone")));
        changes
    }

    /// The same without what `redactor` knows: what was locked before a secret was known is compared as it would be said now.
    #[must_use]
    pub fn without_secrets(&self, redactor: &Redactor) -> Self {
        let clean = |(server, locked): (&String, &LockedServer)| (server.clone(), locked.without_secrets(redactor));
        Self { version: self.version, servers: self.servers.iter().map(clean).collect() }
    }

    /// What a server has to be that is reached like this.
    pub fn of(&self, server: &str, reach: &Reach) -> Locked {
        Locked { expected: self.servers.get(server).cloned(), reach: reach_digest(reach), command: None }
    }
}

impl LockedServer {
    /// The same without what `redactor` knows. Digests are of what came: nobody reads a secret out of them, and two people who lock the same
    /// server with secrets of their own have the same ones.
    pub(crate) fn without_secrets(&self, redactor: &Redactor) -> Self {
        let text = |text: &str| redactor.text(text).into_owned();
        let tools = self.tools.iter().map(|(tool, parts)| (text(tool), parts.clone()));
        Self { reach: self.reach.clone(), name: text(&self.name), version: text(&self.version), tools: tools.collect() }
    }
}

/// Digest of how a server is reached, without what its environment and headers hold.
pub fn reach_digest(reach: &Reach) -> String {
    digest(&match reach {
        Reach::Stdio { command, args, .. } => json!({ "command": command, "args": args }),
        Reach::Http { url, .. } => json!({ "url": url }),
    })
}

fn digest(value: &Value) -> String {
    let text = CanonicalJson::of(value, &[]).map_or_else(|_| value.to_string(), |json| json.as_str().to_owned());
    sha256(text).to_hex()
}

/// The digest of each part of a tool's definition, as it came.
pub(crate) fn tool_digests(tool: &Value) -> BTreeMap<String, String> {
    let part = |part: &&str| Some(((*part).to_owned(), digest(tool.get(*part).filter(|value| !value.is_null())?)));
    PARTS.iter().filter_map(part).collect()
}

/// What a server is now, by what it said, without what `redactor` knows.
pub(crate) fn as_found(
    reach: &str,
    (name, version): &(String, String),
    tools: &[Value],
    redactor: &Redactor,
) -> LockedServer {
    let named = |tool: &Value| Some((redactor.text(tool.get("name")?.as_str()?).into_owned(), tool_digests(tool)));
    // Before anything is cut to size: half of a secret is not recognised any more.
    let short = |text: &str| printable(&redactor.text(text), 200);
    LockedServer {
        reach: reach.to_owned(),
        name: short(name),
        version: short(version),
        tools: tools.iter().filter_map(named).collect(),
    }
}

/// What differs from what was known, in clauses; tools that are new are none of them.
pub(crate) fn differences(known: &LockedServer, now: &LockedServer) -> Vec<String> {
    let mut found = Vec::new();
    if known.reach != now.reach {
        found.push("it is reached in another way (program, arguments or URL)".to_owned());
    }
    if (&known.name, &known.version) != (&now.name, &now.version) {
        found.push(format!("it was `{} {}` and is `{} {}`", known.name, known.version, now.name, now.version));
    }
    for (tool, parts) in &known.tools {
        let Some(now) = now.tools.get(tool) else {
            found.push(format!("`{tool}` is gone"));
            continue;
        };
        let all: std::collections::BTreeSet<&String> = parts.keys().chain(now.keys()).collect();
        let changed: Vec<&str> =
            all.into_iter().filter(|part| parts.get(*part) != now.get(*part)).map(String::as_str).collect();
        if !changed.is_empty() {
            let changed: Vec<String> = changed.into_iter().map(another).collect();
            found.push(format!("`{tool}` has {}", changed.join(", ")));
        }
    }
    found
}

/// That a part of a definition is not what it was.
fn another(part: &str) -> String {
    if part.ends_with('s') { format!("other {part}") } else { format!("another {part}") }
}

/// Why a server is not used, if it is not what it has to be. Else the tools that it did not have.
pub(crate) fn checked(locked: &Locked, now: &LockedServer) -> Result<Vec<String>, String> {
    let command = locked.command.as_deref().unwrap_or("ua tools lock");
    let Some(known) = &locked.expected else {
        return Err(format!(
            "mcp.lock does not know it; look at its tools (`ua tools list`), then run `{command}` to accept them"
        ));
    };
    let mut found = differences(known, now);
    if found.is_empty() {
        return Ok(now.tools.keys().filter(|tool| !known.tools.contains_key(*tool)).cloned().collect());
    }
    if found.len() > MAX_NAMED {
        let more = found.len() - MAX_NAMED;
        found.truncate(MAX_NAMED);
        found.push(format!("and {more} more"));
    }
    Err(format!(
        "it is not what mcp.lock says: {}; look at it (`{command} --check`), then run `{command}` to accept it",
        found.join("; ")
    ))
}

/// What a name looks like at a glance: what can be taken for the same gives the same.
pub(crate) fn skeleton(name: &str) -> String {
    let folded: String = name
        .chars()
        .filter(|c| !matches!(c, '_' | '-' | '.'))
        .map(|c| match c.to_ascii_lowercase() {
            '0' => 'o',
            '1' | 'i' | '|' => 'l',
            '5' => 's',
            c => c,
        })
        .collect();
    folded.replace("rn", "m").replace("vv", "w").replace("cl", "d")
}

/// Whether of two names that look alike one may be there to be taken for the other. That one server writes `search-events` and another
/// `search_events` is a habit of theirs; within one server it is two tools where one is expected.
pub(crate) fn may_be_mistaken(name: &ToolName, other: &ToolName) -> bool {
    let letters = |name: &str| -> String {
        name.chars().filter(|c| !matches!(c, '_' | '-' | '.')).map(|c| c.to_ascii_lowercase()).collect()
    };
    let is_written_otherwise = name.server != other.server && letters(&name.tool) == letters(&other.tool);
    skeleton(&name.tool) == skeleton(&other.tool) && name.tool != other.tool && !is_written_otherwise
}

#[cfg(test)]
mod tests {
    use ua_core::ToolNamespace;

    use super::*;

    fn reach(arg: &str) -> Reach {
        Reach::Stdio { command: "s".into(), args: vec![arg.to_owned()], env: BTreeMap::new(), cwd: None }
    }

    fn tools() -> Vec<Value> {
        vec![
            json!({"name": "send", "description": "Sends.", "inputSchema": {"type": "object"}}),
            json!({"name": "read", "annotations": {"readOnlyHint": true}, "inputSchema": {"type": "object"}}),
        ]
    }

    fn found(tools: &[Value], version: &str) -> LockedServer {
        as_found(&reach_digest(&reach("a")), &("s".to_owned(), version.to_owned()), tools, &Redactor::default())
    }

    #[test]
    fn every_part_of_a_definition_is_compared_and_named() {
        let mut lock = DefinitionLock::default();
        lock.servers.insert("s".to_owned(), found(&tools(), "1"));
        let lock = DefinitionLock::parse(&lock.to_text()).unwrap();
        let locked = lock.of("s", &reach("a"));
        assert_eq!(checked(&locked, &found(&tools(), "1")), Ok(Vec::new()));
        for (pointer, part) in [
            ("/0/description", "another description"),
            ("/1/annotations/readOnlyHint", "other annotations"),
            ("/0/inputSchema/type", "another inputSchema"),
        ] {
            let mut changed = json!(tools());
            *changed.pointer_mut(pointer).unwrap() = json!("other");
            let why = checked(&locked, &found(changed.as_array().unwrap(), "1")).unwrap_err();
            assert!(why.contains(&format!("` has {part}")) && why.contains("ua tools lock"), "{why}");
        }
        assert!(checked(&locked, &found(&tools()[..1], "1")).unwrap_err().contains("`read` is gone"));
        assert!(checked(&locked, &found(&tools(), "2")).unwrap_err().contains("was `s 1` and is `s 2`"));
        let mut elsewhere = found(&tools(), "1");
        elsewhere.reach = reach_digest(&reach("b"));
        assert!(checked(&locked, &elsewhere).unwrap_err().contains("another way"));
        let mut more = tools();
        more.push(json!({"name": "new", "inputSchema": {}}));
        assert_eq!(checked(&locked, &found(&more, "1")), Ok(vec!["new".to_owned()]), "left out, not refused");
        assert!(checked(&lock.of("other", &reach("a")), &found(&tools(), "1")).is_err());
    }

    #[test]
    fn what_is_locked_holds_no_secret_and_still_fits_when_one_becomes_known() {
        let secret = "nzQ7-kk31-secret-canary";
        let redactor = Redactor::new([("TOK".to_owned(), secret.to_owned())]);
        let tool = json!({"name": format!("x-{secret}"), "description": secret, "inputSchema": {"type": "object"}});
        let said = (format!("{}{secret}", "n".repeat(190)), secret.to_owned());
        let found = |redactor: &Redactor| {
            let found = as_found(&reach_digest(&reach("a")), &said, std::slice::from_ref(&tool), redactor);
            DefinitionLock::of_servers([("s".to_owned(), found)].into())
        };
        let (clean, raw) = (found(&redactor), found(&Redactor::default()));
        assert!(!clean.to_text().contains(&secret[..9]) && raw.to_text().contains(&secret[..9]), "{}", clean.to_text());
        assert!(!clean.changes_since(None).concat().contains(secret));
        // A lock that was written before the secret was known is the same one.
        let known = DefinitionLock::parse(&raw.to_text()).unwrap();
        let locked = known.of("s", &reach("a")).without_secrets(&redactor);
        let now = &clean.servers["s"];
        assert_eq!(now.tools, locked.expected.as_ref().unwrap().tools);
        assert_eq!(clean.without_secrets(&redactor), clean);
    }

    #[test]
    fn a_file_of_another_form_is_refused() {
        assert!(DefinitionLock::parse(r#"{"version": 2, "servers": {}}"#).is_err());
        assert!(DefinitionLock::parse(r#"{"version": 1, "servers": {}, "x": 1}"#).is_err());
    }

    #[test]
    fn names_that_look_alike_have_one_skeleton() {
        for (a, b) in
            [("send_email", "send-emai1"), ("modern", "rnodem"), ("Close", "c1ose"), ("list_l0gs", "list_logs")]
        {
            assert_eq!(skeleton(a), skeleton(b), "{a} {b}");
        }
        assert_ne!(skeleton("send_email"), skeleton("read_email"));
        let of = |server: &str, tool: &str| ToolName::qualified(ToolNamespace::Mcp, server, tool);
        for (name, other, may_be) in [
            (of("calendar", "search-events"), of("sentry", "search_events"), false),
            (of("calendar", "searchEvents"), of("sentry", "search_events"), false),
            (of("sentry", "search-events"), of("sentry", "search_events"), true),
            (of("calendar", "search-event5"), of("sentry", "search_events"), true),
            (of("a", "search_events"), of("b", "search_events"), false),
            (of("a", "send_email"), of("b", "read_email"), false),
        ] {
            assert_eq!(may_be_mistaken(&name, &other), may_be, "{name} {other}");
        }
    }
}
