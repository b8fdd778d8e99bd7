//! Arguments that a rule names and that its tool does not have.
//!
//! A key in an argument that no server reads is no key, and a mark in one is never found: both would let a call be sent again that happened.
//! So what is misspelt counts for nothing where it would let a call be repeated ([`believed`]), whoever wrote it; and a person who wrote it is
//! told before a job starts ([`Classifier::misnamed`]).

use std::collections::{BTreeSet, HashSet};

use serde_json::Value;
use ua_core::{
    CallPolicy, FoundBy, KeyChannel, Marker, ProbePolicy, ScopeField, ToolName, ToolNamespace, ToolSpec, template_uses,
};

use super::Classifier;
use crate::rule::{MarkerSetting, Rule};

/// How deep combined schemas are followed; schemas may refer to themselves.
const MAX_DEPTH: u32 = 16;

/// The arguments that a schema declares.
struct Declared<'s> {
    names: BTreeSet<&'s str>,
    /// It says that there may be others, or says nothing about arguments at all.
    is_open: bool,
}

impl<'s> Declared<'s> {
    fn of(schema: &'s Value) -> Self {
        let mut found = Self { names: BTreeSet::new(), is_open: false };
        let (mut seen, mut has_properties) = (HashSet::new(), false);
        found.gather(schema, schema, &mut seen, &mut has_properties, 0);
        found.is_open |= !has_properties;
        found
    }

    fn gather(
        &mut self,
        root: &'s Value,
        schema: &'s Value,
        seen: &mut HashSet<&'s str>,
        has_properties: &mut bool,
        depth: u32,
    ) {
        let Some(fields) = schema.as_object() else { return };
        if depth >= MAX_DEPTH {
            self.is_open = true;
            return;
        }
        if let Some(properties) = fields.get("properties").and_then(Value::as_object) {
            *has_properties = true;
            self.names.extend(properties.keys().map(String::as_str));
        }
        self.is_open |= fields.contains_key("patternProperties") || fields.contains_key("$dynamicRef");
        if let Some(target) = fields.get("$ref").and_then(Value::as_str) {
            match target.strip_prefix('#').and_then(|pointer| root.pointer(pointer)) {
                Some(inner) if seen.insert(target) => self.gather(root, inner, seen, has_properties, depth + 1),
                Some(_) => {}
                None => self.is_open = true,
            }
        }
        for word in ["allOf", "anyOf", "oneOf"] {
            for inner in fields.get(word).and_then(Value::as_array).into_iter().flatten() {
                self.gather(root, inner, seen, has_properties, depth + 1);
            }
        }
        for word in ["if", "then", "else"] {
            if let Some(inner) = fields.get(word) {
                self.gather(root, inner, seen, has_properties, depth + 1);
            }
        }
        for inner in fields.get("dependentSchemas").and_then(Value::as_object).into_iter().flat_map(|all| all.values())
        {
            self.gather(root, inner, seen, has_properties, depth + 1);
        }
    }

    /// Whether an argument of this name may reach the tool, as far as its schema says.
    fn may_have(&self, name: &str) -> bool {
        self.is_open || self.names.contains(name)
    }
}

/// Whether the argument can hold a text, as far as the schema says it in so many words.
fn holds_text(schema: &Value, name: &str) -> bool {
    let declared = schema.get("properties").and_then(|all| all.get(name)).and_then(|argument| argument.get("type"));
    match declared {
        Some(Value::String(only)) => only == "string",
        Some(Value::Array(several)) => several.iter().any(|one| one == "string"),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => true,
    }
}

/// Why a key does not reach the tool this way, if so.
fn no_way(tool: &ToolSpec, channel: &KeyChannel, over_pipes: &HashSet<String>) -> Option<String> {
    match channel {
        KeyChannel::Argument(name) if !Declared::of(&tool.input_schema).may_have(name) => {
            Some(format!("the argument {name:?}, which the tool's schema does not have"))
        }
        KeyChannel::Argument(name) if !holds_text(&tool.input_schema, name) => {
            Some(format!("the argument {name:?}, which by the tool's schema is not text"))
        }
        KeyChannel::Header(name)
            if tool.name.namespace == ToolNamespace::Local || over_pipes.contains(&tool.name.server) =>
        {
            Some(format!("the HTTP header {name:?}, which a server on standard input cannot get"))
        }
        KeyChannel::Argument(_) | KeyChannel::Header(_) | KeyChannel::Meta => None,
    }
}

/// Takes from a policy, and says whether there was any, what would let a call be sent again by a key or a mark that reaches nobody. What carries actions of other tools is never
/// sent as it is.
pub(super) fn believed(tool: &ToolSpec, policy: &mut CallPolicy, over_pipes: &HashSet<String>) -> bool {
    if policy.composite.is_some() {
        return false;
    }
    let mut is_any = false;
    if policy.key_channel.as_ref().is_some_and(|channel| no_way(tool, channel, over_pipes).is_some()) {
        (policy.key_channel, is_any) = (None, true);
    }
    let reaches = |marker: &Marker| Declared::of(&tool.input_schema).may_have(&marker.argument);
    if policy.marker.as_ref().is_some_and(|marker| !reaches(marker)) {
        (policy.marker, is_any) = (None, true);
    }
    if is_any
        && policy.key_channel.is_none()
        && policy.marker.is_none()
        && policy.probe.as_ref().is_some_and(|probe| match &probe.found.by {
            FoundBy::Mark { value, .. } => template_uses(value).is_ok_and(|(_, uses_key)| uses_key),
            FoundBy::Values(_) => false,
        })
    {
        policy.probe = None;
    }
    is_any
}

/// What a rule says of an argument that its tool does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misnamed {
    /// The policy file that holds the rule.
    pub file: String,
    /// The rule's id.
    pub rule_id: String,
    /// The tool, as the model sees its name.
    pub tool: String,
    /// What is wrong, as the rest of a sentence: ``key_channel names the argument "nokey", which …``.
    pub what: String,
    /// The argument of the tool that may be meant.
    pub nearest: Option<String>,
}

impl std::fmt::Display for Misnamed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)?;
        match &self.nearest {
            Some(name) => write!(f, " (did you mean {name:?}?)"),
            None => Ok(()),
        }
    }
}

impl Classifier {
    /// The same with the servers that are spoken to over pipes: no header reaches them.
    #[must_use]
    pub fn with_servers_over_pipes(mut self, servers: impl IntoIterator<Item = String>) -> Self {
        self.over_pipes.extend(servers);
        self
    }

    /// What the rules of files say of arguments that this tool, or the tool of a probe about it, does not have: each protects from nothing, or
    /// less than it says. `tools` are all that are offered. Of a setting that a stronger rule replaces nothing is said, nor of what a rule about
    /// several tools can only mean for some of them.
    pub fn misnamed(&self, tool: &ToolSpec, tools: &[&ToolSpec]) -> Vec<Misnamed> {
        let decision = self.decide(tool);
        let of_files = self.user.iter().filter(|file| !file.is_of_tools).chain(self.job.iter().map(|job| &job.rules));
        let mut found = Vec::new();
        for (file, rule) in of_files.flat_map(|of| of.rules.iter().map(move |rule| (of.file(), rule))) {
            let counts = decision.opinions.iter().zip(&decision.used);
            let used: Vec<&str> = counts
                .filter(|(opinion, _)| opinion.file == Some(file) && opinion.rule_id == rule.id)
                .flat_map(|(_, fields)| fields.iter().copied())
                .collect();
            if used.is_empty() {
                continue;
            }
            found.extend(self.wrong_in(rule, &used, tool, tools).into_iter().map(|(what, nearest)| Misnamed {
                file: file.to_owned(),
                rule_id: rule.id.clone(),
                tool: tool.name.raw.clone(),
                what,
                nearest,
            }));
        }
        found
    }

    fn wrong_in(
        &self,
        rule: &Rule,
        used: &[&str],
        tool: &ToolSpec,
        tools: &[&ToolSpec],
    ) -> Vec<(String, Option<String>)> {
        let declared = Declared::of(&tool.input_schema);
        let near = |name: &str| ua_core::nearest(name, declared.names.iter().copied()).map(str::to_owned);
        let missing = |name: &str| !declared.may_have(name);
        let lacks = |field: &str, name: &str| {
            (format!("{field} names the argument {name:?}, which the tool's schema does not have"), near(name))
        };
        let said = &rule.settings;
        let is_sent_as_it_is = said.composite.is_none();
        let is_about_one = rule.selector.exact_name().is_some();
        let mut found = Vec::new();
        if used.contains(&"key_channel")
            && is_sent_as_it_is
            && let Some(channel) = &said.key_channel
            && let Some(why) = no_way(tool, channel, &self.over_pipes)
        {
            let meant = match channel {
                KeyChannel::Argument(name) => near(name),
                KeyChannel::Header(_) | KeyChannel::Meta => None,
            };
            found.push((format!("key_channel names {why}"), meant));
        }
        if used.contains(&"marker")
            && let Some(MarkerSetting::Mark(marker)) = said.marker.as_ref().filter(|_| is_sent_as_it_is)
            && missing(&marker.argument)
        {
            found.push(lacks("marker", &marker.argument));
        }
        if used.contains(&"probe")
            && let Some(probe) = &said.probe
        {
            found.extend(of_the_call(probe).into_iter().filter(|name| missing(name)).map(|name| lacks("probe", &name)));
            found.extend(of_its_tool(probe, &tool.name, tools));
        }
        if used.contains(&"scope")
            && let Some(scope) = &said.scope
        {
            let names: Vec<&str> = scope.0.iter().map(ScopeField::argument).collect();
            if is_about_one || names.iter().all(|name| missing(name)) {
                found.extend(names.iter().filter(|name| missing(name)).map(|name| lacks("scope", name)));
            }
        }
        let lists = [("volatile_fields", &said.volatile_fields), ("sends_files", &said.sends_files)];
        for (field, names) in lists.into_iter().filter(|(field, _)| is_about_one && used.contains(field)) {
            found.extend(names.iter().flatten().filter(|name| missing(name)).map(|name| lacks(field, name)));
        }
        if used.contains(&"composite")
            && let Some(composite) = &said.composite
        {
            let list = composite.list.split('.').next().unwrap_or_default();
            found.extend(missing(list).then(|| lacks("composite", list)));
        }
        found
    }
}

/// The arguments of the call that a probe goes by.
fn of_the_call(probe: &ProbePolicy) -> BTreeSet<String> {
    let mut texts = Vec::new();
    texts_of(&probe.arguments, &mut texts);
    match &probe.found.by {
        FoundBy::Mark { value, .. } => texts.push(value),
        FoundBy::Values(values) => texts.extend(values.templates()),
    }
    let named = texts.into_iter().filter_map(|text| template_uses(text).ok()).flat_map(|(arguments, _)| arguments);
    named.chain(probe.when.keys().cloned()).chain(probe.unique_arguments.iter().cloned()).collect()
}

fn texts_of<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Array(items) => items.iter().for_each(|item| texts_of(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| texts_of(field, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The arguments that a probe gives its own tool and that this does not have: a filter or a limit that nobody reads makes another list of the
/// answer, and what is not in that proves nothing.
fn of_its_tool(probe: &ProbePolicy, about: &ToolName, tools: &[&ToolSpec]) -> Vec<(String, Option<String>)> {
    let sibling = ToolName::qualified(about.namespace, &about.server, &probe.tool);
    let find = |raw: &str| tools.iter().find(|tool| tool.name.raw == raw);
    let Some(asked) = find(&sibling.raw).or_else(|| find(&probe.tool)) else { return Vec::new() };
    let declared = Declared::of(&asked.input_schema);
    let given = probe.arguments.as_object().into_iter().flat_map(|given| given.keys());
    let unknown = given.filter(|name| !declared.may_have(name));
    unknown
        .map(|name| {
            let what = format!("probe gives `{}` the argument {name:?}, which its schema does not have", probe.tool);
            (what, ua_core::nearest(name, declared.names.iter().copied()).map(str::to_owned))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::{OnUnknown, ToolAnnotations};

    use super::*;
    use crate::{Lists, PolicyRules};

    fn tool(name: &str, schema: Value) -> ToolSpec {
        ToolSpec {
            name: ToolName::qualified(ToolNamespace::Mcp, "letters", name),
            description: String::new(),
            input_schema: schema,
            annotations: ToolAnnotations::default(),
        }
    }

    fn send() -> ToolSpec {
        let properties = json!({"to": {"type": "string"}, "text": {"type": "string"}, "count": {"type": "integer"},
            "token": {"type": ["string", "null"]}, "files": {}});
        tool("send_letter", json!({"type": "object", "properties": properties}))
    }

    fn classifier(rule: &str) -> Classifier {
        let text = format!("[[rule]]\nid = \"r\"\nside_effect_class = \"external\"\n{rule}");
        let rules = PolicyRules::parse(&text, "p.toml").unwrap_or_else(|e| panic!("{rule}: {e}"));
        let made = Classifier::new(vec![rules], &Lists::default(), HashSet::new()).unwrap();
        made.with_servers_over_pipes(["letters".to_owned()])
    }

    const PROBE: &str = r#"probe = { tool = "list_letters", settle = "1s", arguments = { box = "a" },
        found = { field = "id", equals = "{key}" } }"#;

    /// Every field of a rule that names an argument, right and wrong.
    #[test]
    fn what_names_an_argument_that_is_not_there_is_found_in_every_field() {
        let list = tool("list_letters", json!({"type": "object", "properties": {"box": {}, "limit": {}}}));
        let probe = |from: &str, to: &str| {
            assert!(PROBE.contains(from));
            format!("key_channel = {{ argument = \"token\" }}\n{}", PROBE.replace(from, to).replace('\n', " "))
        };
        let by_values = |made: &str| {
            probe(
                r#"found = { field = "id", equals = "{key}" }"#,
                &format!("found = {{ {made}, made = {{ field = \"at\", form = \"rfc3339\" }} }}"),
            )
        };
        let cases: Vec<(String, &[&str])> = vec![
            (r#"key_channel = { argument = "token" }"#.to_owned(), &[]),
            (
                r#"key_channel = { argument = "tokn" }"#.to_owned(),
                &["key_channel", "\"tokn\"", "did you mean \"token\""],
            ),
            (r#"key_channel = { argument = "count" }"#.to_owned(), &["key_channel", "not text"]),
            (r#"key_channel = { header = "x-key" }"#.to_owned(), &["key_channel", "standard input"]),
            (r#"key_channel = "meta""#.to_owned(), &[]),
            (r#"marker = { argument = "text", append = " {key}" }"#.to_owned(), &[]),
            (r#"marker = { argument = "txt", append = " {key}" }"#.to_owned(), &["marker", "\"txt\"", "\"text\""]),
            (r#"scope = [{ value = "to" }, { value = "text" }]"#.to_owned(), &[]),
            (r#"scope = [{ addresses = "to" }, { value = "txet" }]"#.to_owned(), &["scope", "\"txet\""]),
            (r#"volatile_fields = ["text"]"#.to_owned(), &[]),
            (r#"volatile_fields = ["texts"]"#.to_owned(), &["volatile_fields", "\"texts\""]),
            (r#"sends_files = ["file"]"#.to_owned(), &["sends_files", "\"files\""]),
            (probe("box", "box"), &[]),
            (probe("box = \"a\"", "bocks = \"a\""), &["probe gives `list_letters`", "\"bocks\""]),
            (probe("\"a\"", "\"{arg.form}\""), &["probe names", "\"form\""]),
            (probe("tool =", "when = { txt = \"\" }, tool ="), &["probe names", "\"txt\""]),
            (probe("tool =", "unique_arguments = [\"id\"], tool ="), &["probe names", "\"id\""]),
            (by_values(r#"same = { text = "{arg.text}" }"#), &[]),
            (by_values(r#"same = { text = "{arg.txt}" }"#), &["probe names", "\"txt\""]),
        ];
        for (rule, words) in cases {
            let made = classifier(&format!("name = \"send_letter\"\n{rule}"));
            let found: Vec<String> =
                made.misnamed(&send(), &[&send(), &list]).iter().map(ToString::to_string).collect();
            assert_eq!(found.len(), usize::from(!words.is_empty()), "{rule}: {found:?}");
            for word in words {
                assert!(found[0].contains(word), "{rule}: {word}: {found:?}");
            }
            // Nothing that is wrong lets a call be sent again.
            let policy = made.classify(&send(), None);
            let is_reach = rule.starts_with("key_channel = { argument = \"token\"") || rule.contains("meta");
            if !is_reach {
                assert!(policy.key_channel.is_none() && policy.on_unknown == OnUnknown::Hold, "{rule}: {policy:?}");
            }
        }
    }

    #[test]
    fn a_key_that_reaches_nobody_is_none_whatever_else_is_said() {
        for said in ["", "on_unknown = \"redo_keyed\"\n", "requires_idempotency_key = true\n"] {
            let made = classifier(&format!("name = \"send_letter\"\n{said}key_channel = {{ argument = \"nokey\" }}"));
            let policy = made.classify(&send(), None);
            assert_eq!((policy.key_channel, policy.on_unknown), (None, OnUnknown::Hold), "{said}");
        }
    }

    #[test]
    fn a_rule_about_several_tools_may_mean_some_of_them() {
        let made = classifier(
            "patterns = [\"send_*\"]\nscope = [{ value = \"to\" }, { value = \"cc\" }]\nvolatile_fields = [\"nonce\"]",
        );
        assert_eq!(made.misnamed(&send(), &[]), []);
        // A key is promised for each.
        let made = classifier("patterns = [\"send_*\"]\nkey_channel = { argument = \"nokey\" }");
        assert_eq!(made.misnamed(&send(), &[]).len(), 1);
    }

    #[test]
    fn an_argument_is_declared_wherever_a_schema_can_say_it() {
        let properties = json!({"properties": {"key": {}}});
        let cases = [
            (json!({"type": "object", "properties": {"key": {}}}), true),
            (json!({"properties": {"other": {}}}), false),
            (json!({"properties": {"other": {}}, "additionalProperties": true}), false),
            (json!({"type": "object", "properties": {}}), false),
            // Nothing is said of arguments.
            (json!({"type": "object"}), true),
            (json!(true), true),
            (json!({"properties": {}, "patternProperties": {"^k": {}}}), true),
            (json!({"properties": {"a": {}}, "allOf": [properties]}), true),
            (json!({"properties": {"a": {}}, "oneOf": [{"properties": {"b": {}}}]}), false),
            (json!({"properties": {"a": {}}, "if": {}, "then": properties}), true),
            (json!({"properties": {"a": {}}, "dependentSchemas": {"a": properties}}), true),
            (json!({"$ref": "#/$defs/it", "$defs": {"it": properties}}), true),
            (json!({"$ref": "#/$defs/it", "$defs": {"it": {"$ref": "#/$defs/it", "properties": {"a": {}}}}}), false),
            // What is elsewhere is not known.
            (json!({"properties": {"a": {}}, "$ref": "https://example.test/schema"}), true),
            // An argument of an argument is another thing.
            (json!({"properties": {"a": properties}}), false),
        ];
        for (schema, may) in cases {
            assert_eq!(Declared::of(&schema).may_have("key"), may, "{schema}");
        }
    }
}
