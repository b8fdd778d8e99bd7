//! Planning: what each tool use of a reply is. Pure; its result is stored in the same write as the reply.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::{Display, Write};

use jsonschema::error::ValidationErrorKind;
use serde_json::{Map, Value};
use ua_classify::{Classifier, is_more_careful, names_file_address};
use ua_core::{
    CallId, CallPolicy, CanonicalJson, Env, KeyChannel, ModelTurn, PlannedCall, Position, Refusal, Resolution, Shared,
    StopReason, ToolName, ToolNamespace, ToolSpec, ToolUse, parse_strict, sha256,
};
use ua_ledger::SincePlanned;

use crate::catalog::{Catalog, Entry, made_up_keys};
use crate::enforce::{enforced, no_channel};
use crate::guardrail::Rules;
use crate::names::{malformed, repair, shown};
use crate::texts::read_texts;

/// The largest arguments that are sent. MCP servers read requests line by line and give up on lines of some megabytes.
const MAX_ARGUMENT_BYTES: usize = 4 * 1024 * 1024;

/// The position of a call that has none yet.
pub(crate) const UNPLACED: Position = Position { turn: 0, ordinal: 0 };

/// What planning needs to know.
pub(crate) struct Planner<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) classifier: &'a Classifier,
    pub(crate) rules: &'a Rules,
    pub(crate) env: &'a Env,
}

impl Planner<'_> {
    /// Plans every tool use of `reply`, which asks for `turn`.
    pub(crate) fn plan(&self, reply: &ModelTurn, turn: u32) -> Vec<PlannedCall> {
        let cut = why_not_whole(reply.stop_reason);
        let mut calls: Vec<PlannedCall> = Vec::new();
        for tool_use in reply.tool_uses() {
            let read = self.read_texts(tool_use);
            let tool_use = read.as_ref().unwrap_or(tool_use);
            let planned = match self.plan_actions(tool_use).filter(|_| cut.is_none()) {
                Some(actions) => actions,
                None => vec![self.plan_one(tool_use, cut)],
            };
            for mut call in planned {
                let ordinal = u32::try_from(calls.len() + 1).unwrap_or(u32::MAX);
                call.position = Position { turn, ordinal };
                calls.push(call);
            }
        }
        calls
    }

    /// The tool use with the JSON texts in its arguments read, where its tool wants lists and objects and there are such texts.
    fn read_texts(&self, tool_use: &ToolUse) -> Option<ToolUse> {
        let entry = self.catalog.get(&tool_use.name)?;
        let input = read_texts(&entry.offer.input_schema, &tool_use.input)?;
        Some(ToolUse { input, ..tool_use.clone() })
    }

    /// Plans a tool use that is one call.
    fn plan_one(&self, tool_use: &ToolUse, cut: Option<&str>) -> PlannedCall {
        let entry = self.catalog.get(&tool_use.name);
        let unclassified = || CallPolicy::unclassified().into();
        let policy = entry.map_or_else(unclassified, |entry| self.policy_of(entry, &tool_use.input));
        let canonical = CanonicalJson::of(&tool_use.input, &policy.volatile_fields);
        let args_hash = canonical.as_ref().map_or_else(|_| sha256(tool_use.input.to_string()), CanonicalJson::hash);
        let refusal = match cut {
            None => self.refusal(tool_use, entry, &policy),
            Some(why) => Some(refused(Resolution::ReplyCut, "reply_cut", format!("Not run: {why}. Ask again."))),
        };
        PlannedCall {
            call_id: CallId::new(self.env),
            tool_use_id: tool_use.id.clone(),
            position: UNPLACED,
            name: entry.map_or_else(|| unknown_name(&tool_use.name), |entry| entry.spec.name.clone()),
            arguments: tool_use.input.clone().into(),
            args_hash,
            tool_digest: entry.map(|entry| entry.digest),
            policy,
            refusal,
        }
    }

    /// What the classifier says of a call of a tool in the catalog. Of arguments only the name of a program and addresses of files count.
    pub(crate) fn classified<'e>(&self, entry: &'e Entry, arguments: &Value) -> Cow<'e, CallPolicy> {
        let classify = || self.classifier.classify(&entry.spec, Some(arguments));
        if arguments.get("argv").is_some() || names_file_address(arguments) {
            return Cow::Owned(classify());
        }
        Cow::Borrowed(entry.classified.get_or_init(classify))
    }

    /// The policy of a call of a tool in the catalog.
    fn policy_of(&self, entry: &Entry, arguments: &Value) -> Shared<CallPolicy> {
        match self.classified(entry, arguments) {
            Cow::Owned(policy) => self.bent(&entry.spec, policy).into(),
            Cow::Borrowed(policy) => entry.policy.get_or_init(|| self.bent(&entry.spec, policy.clone()).into()).clone(),
        }
    }

    /// What the policies and the tool's definition say now of a call, and whether it has an effect by them; whoever accepts other ones for a run wants
    /// them to hold for what is planned and for what is in doubt, too, as far as they are stricter.
    pub(crate) fn since_planned(
        &self,
        name: &ToolName,
        arguments: &Value,
        planned: &CallPolicy,
    ) -> (SincePlanned, bool) {
        let entry = self.catalog.get(&name.raw);
        let now = match (&planned.via, entry) {
            (Some(_), _) => self.policy_of_action(entry, name, arguments).into(),
            (None, Some(entry)) => self.policy_of(entry, arguments),
            // There is no such tool any more, which says enough.
            (None, None) => return (SincePlanned::Same, planned.class.has_effect()),
        };
        let has_effect = now.class.has_effect();
        if *now == *planned {
            return (SincePlanned::Same, has_effect);
        }
        let denied = entry.is_some_and(|entry| entry.denied.is_some()) || self.rules.denies(name, &now).is_some();
        if denied || is_more_careful(&now, planned) {
            return (SincePlanned::Stricter, has_effect);
        }
        let asks = now.needs_approval && !planned.needs_approval;
        (if asks { SincePlanned::Asks } else { SincePlanned::Same }, has_effect)
    }

    /// The policy of a call, as the job bends it.
    pub(crate) fn policy(&self, spec: &ToolSpec, arguments: &Value) -> CallPolicy {
        self.bent(spec, self.classifier.classify(spec, Some(arguments)))
    }

    /// What the job makes of a policy.
    fn bent(&self, spec: &ToolSpec, policy: CallPolicy) -> CallPolicy {
        let mut policy = enforced(policy, self.rules.enforces_keys());
        if let Some(on_conflict) = self.rules.on_scope_conflict()
            && !self.classifier.says_on_scope_conflict(spec)
        {
            policy.on_scope_conflict = on_conflict;
        }
        self.rules.with_approval(&spec.name, policy)
    }

    fn refusal(&self, tool_use: &ToolUse, entry: Option<&Entry>, policy: &CallPolicy) -> Option<Refusal> {
        let refuse = |code: &str, message: String| Some(refused(Resolution::Refused, code, message));
        let Some(entry) = entry else {
            let name = &tool_use.name;
            return match malformed(name) {
                Some(found) => refuse("malformed_name", repair(name, &found, self.catalog.meant_by(&found.base))),
                None => refuse("unknown_tool", self.unknown_tool(name)),
            };
        };
        if let Some(why) = entry.denied.clone().or_else(|| self.rules.denies(&entry.spec.name, policy)) {
            return refuse("denied", why);
        }
        let arguments = match &tool_use.input {
            Value::Object(map) => map,
            // What cannot be read as what it says it is stays a text.
            Value::String(text) => {
                let message = match parse_strict(text) {
                    Err(why) if text.trim_start().starts_with('{') => format!(
                        "Not run: the arguments are a JSON object that cannot be read: {why}. Send a JSON object, with each name once."
                    ),
                    Ok(_) | Err(_) => {
                        "Not run: the arguments are not a JSON object, but a text that holds none. Send an object."
                            .to_owned()
                    }
                };
                return refuse("invalid_arguments", message);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                return refuse("invalid_arguments", "Not run: the arguments must be a JSON object.".to_owned());
            }
        };
        if let Some(message) = too_large(&tool_use.input) {
            return refuse("invalid_arguments", message);
        }
        if let Some(why) = self.rules.refused_secret(Some(&entry.spec.name), arguments) {
            return refuse("secret_not_allowed", not_given(&why));
        }
        self.refuse_arguments(Some(entry), arguments, policy)
    }

    /// What speaks against these arguments, for a tool or for an action of a composite one. Of an action there may be no entry.
    pub(crate) fn refuse_arguments(
        &self,
        entry: Option<&Entry>,
        arguments: &Map<String, Value>,
        policy: &CallPolicy,
    ) -> Option<Refusal> {
        let refuse = |code: &str, message: String| Some(refused(Resolution::Refused, code, message));
        if policy.requires_idempotency_key && policy.key_channel.is_none() {
            return refuse(
                "no_key_channel",
                format!(
                    "Not run: {}. Continue without it.",
                    no_channel(entry.map(|entry| &entry.spec.name), policy, self.rules.audience())
                ),
            );
        }
        let schema = entry.map(|entry| &entry.spec.input_schema);
        if let Some(message) = spoofed_key(arguments, policy, schema) {
            return refuse("spoofed_key", message);
        }
        if let Some(message) = entry.and_then(|entry| schema_errors(entry, &Value::Object(arguments.clone()))) {
            return refuse("invalid_arguments", message);
        }
        if let Some(url) = self.rules.forbidden_url(entry.map(|entry| &entry.spec.name), arguments) {
            let work = self.rules.audience().work();
            return refuse(
                "domain_not_allowed",
                format!("Not run: this {work} may not reach {url}. Use only the domains it allows."),
            );
        }
        None
    }

    fn unknown_tool(&self, name: &str) -> String {
        let shown = shown(name);
        let similar = self.catalog.similar(name);
        if similar.is_empty() {
            format!("There is no tool `{shown}`. Use only the tools that are offered, by their exact names.")
        } else {
            format!("There is no tool `{shown}`. Did you mean `{}`? Use the exact name.", similar.join("` or `"))
        }
    }
}

/// What the model is told about a reference to a secret that it may not use.
pub(crate) fn not_given(why: &str) -> String {
    format!("Not run: {why}. Leave the reference out, or continue without this call.")
}

pub(crate) fn refused(resolution: Resolution, code: &str, message: String) -> Refusal {
    Refusal { resolution, code: code.to_owned(), message }
}

/// The name of something that is no tool, cut to what can be stored and shown.
fn unknown_name(raw: &str) -> ToolName {
    let raw: String = raw.chars().filter(|c| !c.is_control()).take(200).collect();
    let (server, tool) = raw.strip_prefix("mcp__").and_then(|rest| rest.split_once("__")).unwrap_or(("", &raw));
    ToolName { server: server.to_owned(), tool: tool.to_owned(), namespace: ToolNamespace::Mcp, raw: raw.clone() }
}

/// What is wrong with arguments that no server would read.
pub(crate) fn too_large(arguments: &Value) -> Option<String> {
    let limit = MAX_ARGUMENT_BYTES / 1024 / 1024;
    (arguments.to_string().len() > MAX_ARGUMENT_BYTES)
        .then(|| format!("Not run: the arguments are larger than {limit} MiB. Send less at a time."))
}

/// A key is ours to set: one that the model made up is refused, under whatever name the tool's schema has for a key
/// (Granular Execution PRD §7).
fn spoofed_key(arguments: &Map<String, Value>, policy: &CallPolicy, schema: Option<&Value>) -> Option<String> {
    if let Some(KeyChannel::Argument(name)) = &policy.key_channel
        && arguments.contains_key(name)
    {
        return Some(format!("Not run: leave out `{name}`; it is set for you."));
    }
    let name = made_up_keys(policy, schema?).into_iter().find(|name| arguments.contains_key(name))?;
    let instead = if policy.key_channel.is_some() {
        "the key of this call is set for you"
    } else {
        "this effect is known by what it is, and a key would only hide that it was asked for before"
    };
    Some(format!("Not run: leave out `{name}`; {instead}."))
}

pub(crate) fn schema_errors(entry: &Entry, arguments: &Value) -> Option<String> {
    let wrong = entry.violations(arguments)?;
    Some(format!("Not run: the arguments do not fit the tool's schema. {wrong}. Correct them and ask again."))
}

/// The first few ways in which a value does not fit a schema; `None` when it does.
pub(crate) fn violations(validator: &jsonschema::Validator, value: &Value) -> Option<String> {
    let errors: Vec<String> = validator.iter_errors(value).take(4).map(|error| violation(&error)).collect();
    (!errors.is_empty()).then(|| errors.join("; "))
}

/// Characters that one of them may take.
const MOST_SAID: usize = 300;
/// Forms of which it is looked for what speaks against them.
const MOST_FORMS: usize = 16;

/// The beginning of how something is shown. What comes after is not made: a value of megabytes may stand in it.
fn beginning(shown: &impl Display, most: usize) -> String {
    struct Cut(String, usize);
    impl Write for Cut {
        fn write_str(&mut self, more: &str) -> std::fmt::Result {
            for c in more.chars() {
                self.1 = self.1.checked_sub(1).ok_or(std::fmt::Error)?;
                self.0.push(c);
            }
            Ok(())
        }
    }
    let mut cut = Cut(String::new(), most);
    // An error is how it says that it has enough.
    let _enough = write!(cut, "{shown}");
    cut.0
}

/// One way in which a value does not fit a schema: where, and what is wrong there. A library of schemas speaks of keywords; whoever has to
/// correct the value is told what can stand in its place.
pub(crate) fn violation(error: &jsonschema::ValidationError<'_>) -> String {
    let path = error.instance_path().to_string();
    let text =
        if let ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } = error.kind() {
            // What tells the forms apart within the value: one that names another form is not what was meant.
            let is_tag = |inner: &&jsonschema::ValidationError<'_>| {
                matches!(inner.kind(), ValidationErrorKind::Constant { .. })
                    && inner.instance_path() != error.instance_path()
            };
            let of_form = context.iter().take(MOST_FORMS);
            let forms: Vec<_> =
                of_form.filter_map(|errors| errors.iter().find(is_tag).or_else(|| errors.first())).collect();
            let is_meant = forms.iter().any(|inner| !is_tag(inner));
            let (tags, meant): (Vec<_>, Vec<_>) = forms.into_iter().partition(is_tag);
            // Where no form is meant, all names that are allowed are told.
            let (told, most) = if is_meant { (meant, 3) } else { (tags, MOST_FORMS) };
            let each: BTreeSet<String> = told.into_iter().map(violation).collect();
            let forms: Vec<String> = each.into_iter().take(most).collect();
            let why = if forms.is_empty() { String::new() } else { format!(": {}", forms.join(", or ")) };
            format!("it has none of the forms that are allowed here{why}")
        } else {
            beginning(error, MOST_SAID)
        };
    let text: String = text.chars().take(MOST_SAID).collect();
    // An error within a form names its place by itself.
    if path.is_empty() { text } else { format!("{path}: {text}") }
}

/// Why the tool uses of a reply do not count; `None` for one that ended by asking for them.
const fn why_not_whole(stop_reason: StopReason) -> Option<&'static str> {
    match stop_reason {
        StopReason::ToolUse => None,
        StopReason::MaxTokens | StopReason::PauseTurn => Some("the reply was cut before it ended by asking for tools"),
        StopReason::Refusal => Some("the reply was refused or withheld before it ended by asking for tools"),
        StopReason::EndTurn | StopReason::StopSequence | StopReason::Other => {
            Some("the reply did not end by asking for tools")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::{Block, ToolAnnotations};

    use super::*;
    use crate::schema::Checker;

    #[test]
    fn a_value_that_fits_no_form_is_told_what_each_form_wants_and_where() {
        let schema = json!({"type": "object", "properties": {"to": {"anyOf": [{"type": "string"}, {"type": "null"}]}}});
        let told = Checker::new(&schema).unwrap().violations(&json!({"to": 7})).unwrap().unwrap();
        assert!(told.starts_with("/to: it has none of the forms that are allowed here: "), "{told}");
        assert!(told.contains("string") && told.contains("null") && !told.contains("keyword"), "{told}");
    }

    /// Forms that are told apart by a field of theirs: as an enum of a program is, that has fields.
    #[test]
    fn a_value_of_no_form_is_told_the_names_of_the_forms_and_one_of_a_form_what_that_lacks() {
        let form = |kind: &str, field: &str| json!({"type": "object", "properties": {"kind": {"const": kind}, field: {"type": "number"}}, "required": ["kind", field]});
        let forms = [
            form("circle", "r"),
            form("square", "a"),
            json!({"properties": {"kind": {"const": "empty"}}, "required": ["kind"]}),
        ];
        for word in ["oneOf", "anyOf"] {
            let checker = Checker::new(&json!({ word: forms })).unwrap();
            let told = |value: Value| checker.violations(&value).unwrap().unwrap();
            let none = told(json!({"kind": "hex"}));
            assert!(["\"circle\"", "\"square\"", "\"empty\""].iter().all(|kind| none.contains(kind)), "{none}");
            let lacks = told(json!({"kind": "square"}));
            assert!(lacks.contains("\"a\" is a required property") && !lacks.contains("circle"), "{lacks}");
        }
        // One that is told from the others by its type is not hidden behind a name, nor the name behind it.
        let checker = Checker::new(&json!({"anyOf": [{"const": "auto"}, {"type": "integer"}]})).unwrap();
        let told = checker.violations(&json!("x")).unwrap().unwrap();
        assert!(told.contains("auto") && told.contains("integer"), "{told}");
    }

    fn reply(stop_reason: StopReason, uses: &[(&str, Value)]) -> ModelTurn {
        let blocks = uses
            .iter()
            .enumerate()
            .map(|(n, (name, input))| {
                Block::ToolUse(ToolUse { id: format!("t{n}"), name: (*name).to_owned(), input: input.clone() })
            })
            .collect();
        ModelTurn { blocks, stop_reason, usage: None, model: "m".into(), response_id: None }
    }

    fn plan(stop_reason: StopReason, uses: &[(&str, Value)]) -> Vec<PlannedCall> {
        let spec = |server: &str, tool: &str| ToolSpec {
            name: ToolName::qualified(ToolNamespace::Mcp, server, tool),
            description: String::new(),
            input_schema: json!({"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"], "additionalProperties": false}),
            annotations: ToolAnnotations::default(),
        };
        let rules = Rules::default();
        let classifier = Classifier::shipped().unwrap();
        let catalog = Catalog::new(vec![spec("mail", "send_mail"), spec("fs", "Write")], &classifier, &rules).unwrap();
        let env = Env::simulated(1);
        Planner { catalog: &catalog, classifier: &classifier, rules: &rules, env: &env }
            .plan(&reply(stop_reason, uses), 3)
    }

    fn codes(calls: &[PlannedCall]) -> Vec<Option<&str>> {
        calls.iter().map(|call| call.refusal.as_ref().map(|refusal| refusal.code.as_str())).collect()
    }

    #[test]
    fn every_tool_use_is_planned_and_bad_ones_are_refused_with_a_hint() {
        let calls = plan(
            StopReason::ToolUse,
            &[
                ("mcp__mail__send_mail", json!({"to": "a"})),
                ("send_mail", json!({"to": "a"})),
                ("mcp__fs__Write", json!({"to": "a"})),
                ("mcp__mail__send_mail", json!({"to": 1})),
                ("mcp__mail__send_mail", json!("{\"to\": \"a\"}")),
                ("mcp__mail__send_mail", json!("to a")),
                ("<tool>\u{1b}[2J", json!({})),
            ],
        );
        assert_eq!(
            codes(&calls),
            [
                None,
                Some("unknown_tool"),
                Some("denied"),
                Some("invalid_arguments"),
                None,
                Some("invalid_arguments"),
                Some("malformed_name")
            ]
        );
        assert_eq!(calls.iter().map(|c| c.position.ordinal).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
        let (object, text) = (&calls[0], &calls[4]);
        assert_eq!(
            (&object.arguments, object.args_hash),
            (&text.arguments, text.args_hash),
            "either spelling is one call"
        );
        let hint = &calls[1].refusal.as_ref().unwrap().message;
        assert!(hint.contains("mcp__mail__send_mail"), "{hint}");
        let message = |text: &str| {
            let refused = plan(StopReason::ToolUse, &[("mcp__mail__send_mail", json!(text))]).remove(0).refusal;
            refused.unwrap().message
        };
        // Which of the two was meant nobody can know, so it is said what is wrong.
        let twice = message("{\"to\": \"a\", \"to\": \"b\"}");
        assert!(twice.contains("\"to\" appears twice") && !twice.contains("holds none"), "{twice}");
        assert!(message("to a").contains("a text that holds none"));
        assert!(!calls[6].name.raw.contains('\u{1b}'));
    }

    /// Calls that were planned under one policy file, as another one stands to them: of a tool of its own, and of an action of a composite one.
    #[test]
    fn what_is_planned_is_held_to_policies_that_became_stricter() {
        const MULTI: &str = "COMPOSIO_MULTI_EXECUTE_TOOL";
        let spec = |tool: &str, properties: Value| ToolSpec {
            name: ToolName::qualified(ToolNamespace::Composio, "composio", tool),
            description: String::new(),
            input_schema: json!({"type": "object", "properties": properties}),
            annotations: ToolAnnotations::default(),
        };
        let list = json!({"tools": {"type": "array"}, "session_id": {"type": "string"}});
        let rules = Rules::default();
        let env = Env::simulated(1);
        let under = |said: &str| {
            let text =
                format!("[[rule]]\nid = \"a\"\npatterns = [\"SLACK_POST\"]\nside_effect_class = \"memory\"\n{said}");
            let policies = vec![ua_classify::PolicyRules::parse(&text, "policy.toml").unwrap()];
            Classifier::new(policies, &ua_classify::Lists::default(), std::collections::HashSet::new()).unwrap()
        };
        let tools = || vec![spec("SLACK_POST", json!({"to": {"type": "string"}})), spec(MULTI, list.clone())];
        let with = |said: &str, look: &dyn Fn(&Planner<'_>) -> Vec<SincePlanned>| {
            let classifier = under(said);
            let catalog = Catalog::new(tools(), &classifier, &rules).unwrap();
            look(&Planner { catalog: &catalog, classifier: &classifier, rules: &rules, env: &env })
        };
        let actions = json!({"tools": [{"tool_slug": "SLACK_POST", "arguments": {"to": "a"}}], "session_id": "s"});
        let uses = [
            ("mcp__composio__SLACK_POST".to_owned(), json!({"to": "a"})),
            (format!("mcp__composio__{MULTI}"), actions),
        ];
        let uses: Vec<(&str, Value)> = uses.iter().map(|(name, input)| (name.as_str(), input.clone())).collect();
        let reply = reply(StopReason::ToolUse, &uses);
        let first = under("");
        let catalog = Catalog::new(tools(), &first, &rules).unwrap();
        let planned = Planner { catalog: &catalog, classifier: &first, rules: &rules, env: &env }.plan(&reply, 1);
        assert_eq!(codes(&planned), [None, None]);
        for (said, since) in [
            ("", SincePlanned::Same),
            ("approval = \"ask\"", SincePlanned::Asks),
            ("effect_kind = \"message.post\"", SincePlanned::Stricter),
            ("on_scope_conflict = \"refuse\"", SincePlanned::Stricter),
            ("on_scope_conflict = \"allow\"", SincePlanned::Same),
        ] {
            let found = with(said, &|planner| {
                let since = |call: &PlannedCall| planner.since_planned(&call.name, &call.arguments, &call.policy).0;
                planned.iter().map(since).collect()
            });
            assert_eq!(found, [since, since], "{said}");
        }
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_right_one() {
        for (written, code, said) in [
            ("MCP__Mail__Send_Mail", "unknown_tool", "Did you mean `mcp__mail__send_mail`?"),
            ("mcp__post__send-mail", "unknown_tool", "Did you mean `mcp__mail__send_mail`?"),
            ("sendMail", "unknown_tool", "Did you mean `mcp__mail__send_mail`?"),
            ("mcp__mail__send_mal", "unknown_tool", "Did you mean `mcp__mail__send_mail`?"),
            ("fly_to_the_moon", "unknown_tool", "Use only the tools that are offered"),
            (
                "mcp__mail__send_mailto</arg_key><arg_value>a</arg_value>",
                "malformed_name",
                "Call `mcp__mail__send_mail` with the arguments {\"to\":\"a\"}.",
            ),
            (
                "send_mail({\"to\": \"a\"})",
                "malformed_name",
                "Call `mcp__mail__send_mail` with the arguments {\"to\":\"a\"}.",
            ),
            ("<invoke name=\"send_mail\">", "malformed_name", "Use only the tools that are offered"),
        ] {
            let calls = plan(StopReason::ToolUse, &[(written, json!({}))]);
            let refusal = calls[0].refusal.as_ref().unwrap();
            assert_eq!(refusal.code, code, "{written}");
            assert!(refusal.message.contains(said), "{written}: {}", refusal.message);
        }
    }

    #[test]
    fn arguments_that_no_server_would_read_are_refused() {
        let huge = json!({"to": "a".repeat(MAX_ARGUMENT_BYTES)});
        assert_eq!(codes(&plan(StopReason::ToolUse, &[("mcp__mail__send_mail", huge)])), [Some("invalid_arguments")]);
    }

    #[test]
    fn tool_uses_of_a_cut_reply_do_not_count() {
        for (stop_reason, why) in [
            (StopReason::MaxTokens, "was cut"),
            (StopReason::PauseTurn, "was cut"),
            (StopReason::Refusal, "was refused or withheld"),
            (StopReason::EndTurn, "did not end by asking for tools"),
            (StopReason::Other, "did not end by asking for tools"),
        ] {
            let planned = plan(stop_reason, &[("mcp__mail__send_mail", json!({"to": "a"}))]);
            assert_eq!(codes(&planned), [Some("reply_cut")]);
            assert!(planned[0].refusal.as_ref().unwrap().message.contains(why), "{stop_reason:?}");
        }
    }

    /// Plans one tool use of a tool with this schema, under this rule; also what the model is shown of its arguments.
    fn plan_with(rule: &str, schema: &Value, input: Value) -> (PlannedCall, Value) {
        let rule = format!("[[rule]]\nid = \"r\"\nname = \"order\"\nside_effect_class = \"external\"\n{rule}\n");
        let rules = vec![ua_classify::PolicyRules::parse(&rule, "policy.toml").unwrap()];
        let classifier =
            Classifier::new(rules, &ua_classify::Lists::default(), std::collections::HashSet::new()).unwrap();
        let rules = Rules::default();
        let spec = ToolSpec {
            name: ToolName::qualified(ToolNamespace::Mcp, "shop", "order"),
            description: String::new(),
            input_schema: schema.clone(),
            annotations: ToolAnnotations::default(),
        };
        let catalog = Catalog::new(vec![spec], &classifier, &rules).unwrap();
        let env = Env::simulated(1);
        let reply = reply(StopReason::ToolUse, &[("mcp__shop__order", input)]);
        let planner = Planner { catalog: &catalog, classifier: &classifier, rules: &rules, env: &env };
        let call = planner.plan(&reply, 1).remove(0);
        (call, catalog.offers().next().unwrap().input_schema.clone())
    }

    #[test]
    fn a_key_that_the_model_makes_up_is_refused_under_any_name_that_the_schema_declares() {
        let schema = json!({"type": "object", "properties": {"item": {}, "client_token": {}, "idempotency_key": {}, "request_id": {}}});
        let required = json!({"type": "object", "properties": schema["properties"], "required": ["idempotency_key"]});
        let keyed = "key_channel = { argument = \"client_token\" }";
        let by_content = "effect_kind = \"order.create\"";
        let cases = [
            (keyed, &schema, "client_token", true),
            (keyed, &schema, "idempotency_key", true),
            // It may be the number of anything.
            (keyed, &schema, "request_id", false),
            ("key_channel = \"meta\"", &schema, "idempotency_key", true),
            (by_content, &schema, "idempotency_key", true),
            // The tool insists on it and nothing of ours takes its place.
            (by_content, &required, "idempotency_key", false),
            // Nobody says that calls of this tool have a key.
            ("timeout = \"1m\"", &schema, "idempotency_key", false),
        ];
        for (rule, schema, argument, is_refused) in cases {
            let (call, shown) = plan_with(rule, schema, json!({"item": "a", argument: "mine"}));
            let code = call.refusal.as_ref().map(|refusal| refusal.code.as_str());
            assert_eq!(code, is_refused.then_some("spoofed_key"), "{rule} {argument}");
            assert_eq!(shown["properties"].get(argument).is_none(), is_refused, "{rule} {argument}");
        }
        let undeclared = json!({"type": "object", "properties": {"item": {}}});
        let (call, _) = plan_with(by_content, &undeclared, json!({"item": "a", "idempotency_key": "mine"}));
        assert_eq!(call.refusal, None);
    }
}
