//! Policy files: TOML to rules, checked so strictly that a typing error cannot quietly lower a tool's class.
//!
//! Durable Jobs v1 spec §7.4 (overrides by configuration). Invariants: unknown fields, unknown words, globs and regular
//! expressions that do not compile, and rules that contradict themselves are refused with file, line and field.

use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use ua_core::{EffectKind, KeyChannel, OnUnknown, ScopeField, ScopeRule, SideEffectClass};

use crate::error::PolicyError;
use crate::parse_probe::unprovable;
use crate::rule::{Patterns, PolicyRules, Rule, Selector, Settings};

/// Every field of a rule, for the suggestion when one is misspelt.
const FIELDS: [&str; 30] = [
    "id",
    "name",
    "patterns",
    "tool_namespace",
    "server",
    "has_arguments",
    "side_effect_class",
    "on_unknown",
    "key_channel",
    "key_ttl",
    "probe",
    "marker",
    "found_by",
    "horizon",
    "requires_idempotency_key",
    "effect_kind",
    "creates",
    "carries_tools",
    "scope",
    "volatile_fields",
    "sends_files",
    "errors_without_effect",
    "only_is_error",
    "timeout",
    "approval",
    "on_scope_conflict",
    "composite",
    "harmless_programs",
    "reads",
    "source",
];

impl PolicyRules {
    /// Reads a policy file. `file_name` appears in errors and explanations only; nothing is opened here.
    ///
    /// A file is a list of `[[rule]]` tables. `id` is required, and at least one of `name`, `patterns`, `server` and
    /// `tool_namespace`; everything else may be left to a later rule or to the defaults.
    ///
    /// # Errors
    /// [`PolicyError::Syntax`] when the text is not TOML, [`PolicyError::Field`] when a field is unknown, has a value
    /// it cannot have, or contradicts another, and [`PolicyError::DuplicateId`] when two rules share an id.
    pub fn parse(text: &str, file_name: &str) -> Result<Self, PolicyError> {
        Self::read(text, file_name, None, Origin::Anybody)
    }

    /// The rules of a file that is part of this program. It may have one table more, which is read elsewhere.
    pub(crate) fn shipped(text: &str, file_name: &str, table: Option<&str>) -> Result<Self, PolicyError> {
        Self::read(text, file_name, table, Origin::Shipped)
    }

    pub(crate) fn read(text: &str, file_name: &str, table: Option<&str>, origin: Origin) -> Result<Self, PolicyError> {
        let document = parse_toml(text, file_name)?;
        let top = Place::top(file_name, text, origin);
        let mut rules: Vec<Rule> = Vec::new();
        for field in top.fields(document.get_ref()) {
            if table == Some(field.name) {
                continue;
            }
            if field.name != "rule" {
                return Err(field.error("it does not exist; a policy file is a list of [[rule]] tables"));
            }
            let DeValue::Array(tables) = field.value.get_ref() else {
                return Err(field.error("write [[rule]], with two brackets, above each rule"));
            };
            for (index, value) in tables.iter().enumerate() {
                let DeValue::Table(table) = value.get_ref() else {
                    return Err(field.error("write [[rule]], with two brackets, above each rule"));
                };
                let rule = parse_rule(&top, index + 1, table, value.span())?;
                if rules.iter().any(|earlier| earlier.id == rule.id) {
                    let file = file_name.to_owned();
                    return Err(PolicyError::DuplicateId { id: rule.id, first: file.clone(), second: file });
                }
                rules.push(rule);
            }
        }
        Ok(Self { file: file_name.to_owned(), rules, is_of_tools: false })
    }
}

pub(crate) fn parse_toml<'t>(text: &'t str, file_name: &str) -> Result<Spanned<DeTable<'t>>, PolicyError> {
    DeTable::parse(text).map_err(|error| PolicyError::Syntax {
        file: file_name.to_owned(),
        line: line_of(text, error.span().map_or(0, |span| span.start)),
        why: ua_core::value_fault(&error.message().trim().replace('\n', ", ")),
    })
}

fn parse_rule(top: &Place<'_>, number: usize, table: &DeTable<'_>, span: Range<usize>) -> Result<Rule, PolicyError> {
    let named = table.get("id").and_then(|id| id.get_ref().as_str()).map(|id| format!("rule {id:?}"));
    let rule = named.unwrap_or_else(|| format!("rule number {number}"));
    let place = Place { file: top.file, text: top.text, origin: top.origin, rule };
    let (mut id, mut source) = (None, None);
    let mut selector = Selector::default();
    let mut settings = Settings::default();
    let fields = place.fields(table);
    for field in &fields {
        match field.name {
            "id" => id = Some(field.id()?),
            "name" => selector.name = Some(field.text()?),
            "patterns" => selector.patterns = Some(field.patterns()?),
            "tool_namespace" => selector.tool_namespace = Some(field.word()?),
            "server" => selector.server = Some(field.text()?),
            "has_arguments" => selector.has_arguments = field.texts()?,
            "side_effect_class" => settings.side_effect_class = Some(field.word()?),
            "on_unknown" => settings.on_unknown = Some(field.word()?),
            "key_channel" => settings.key_channel = Some(field.key_channel()?),
            "key_ttl" => settings.key_ttl = Some(field.duration()?),
            "requires_idempotency_key" => settings.requires_idempotency_key = Some(field.flag()?),
            "effect_kind" => settings.effect_kind = Some(field.effect_kind()?),
            "creates" => settings.creates = Some(field.flag()?),
            "carries_tools" => settings.carries_tools = Some(field.flag()?),
            "scope" => settings.scope = Some(field.scope()?),
            "volatile_fields" => settings.volatile_fields = Some(field.texts()?),
            "sends_files" => settings.sends_files = Some(field.texts()?),
            "errors_without_effect" => settings.errors_without_effect = Some(field.regexes()?),
            "only_is_error" => settings.only_is_error = Some(field.flag()?),
            "timeout" => settings.timeout = Some(field.duration()?),
            "approval" => settings.approval = Some(field.approval()?),
            "on_scope_conflict" => settings.on_scope_conflict = Some(field.word()?),
            "composite" => settings.composite = Some(field.composite()?),
            "harmless_programs" => settings.harmless_programs = Some(field.programs()?),
            "reads" => settings.reads = Some(field.words()?),
            "probe" => settings.probe = Some(field.probe()?),
            "marker" => settings.marker = Some(field.marker()?),
            "found_by" => settings.found_by = Some(field.found_by()?),
            "horizon" => settings.horizon = Some(field.duration()?),
            "source" => source = Some(field.text()?),
            unknown => return Err(field.error(&unknown_field(unknown))),
        }
    }
    let at = |field: &str, why: &str| match fields.iter().find(|candidate| candidate.name == field) {
        Some(found) => found.error(why),
        None => place.error(field, span.start, why),
    };
    let Some(id) = id else {
        return Err(at("id", "give each rule an id; the ledger records it as what decided"));
    };
    if selector.is_empty() {
        return Err(at("name", "say which tools the rule matches: name, patterns, server or tool_namespace"));
    }
    if selector.name.is_some() && selector.patterns.is_some() {
        return Err(at("patterns", "give name or patterns, not both; a pattern without wildcards is an exact name"));
    }
    if settings == Settings::default() {
        return Err(at("side_effect_class", "the rule sets nothing; give it at least one setting"));
    }
    if let Some((field, why)) = contradiction(&settings) {
        return Err(at(field, &why));
    }
    Ok(Rule { id, selector, settings, source })
}

/// What in a rule cannot be true at the same time: the field to change, and why.
fn contradiction(settings: &Settings) -> Option<(&'static str, String)> {
    if settings.on_unknown == Some(OnUnknown::RedoKeyed) && settings.key_channel.is_none() {
        let why =
            "redo_keyed repeats a call under its key, so the rule has to say how the tool receives it: add key_channel";
        return Some(("on_unknown", why.to_owned()));
    }
    if settings.on_unknown == Some(OnUnknown::Probe) && settings.probe.is_none() {
        let why = "probe asks another tool whether the call happened, so the rule has to say which and how: add probe";
        return Some(("on_unknown", why.to_owned()));
    }
    if let Some(why) = settings.probe.as_ref().and_then(|probe| unprovable(probe, settings)) {
        return Some(("probe", why));
    }
    if let (Some(kind), Some(false)) = (&settings.effect_kind, settings.creates)
        && kind.is_creating()
    {
        return Some((
            "creates",
            format!("the verb of {:?} says that something is made; change one of them", kind.as_str()),
        ));
    }
    if settings.side_effect_class == Some(SideEffectClass::ReadOnly) {
        let effect = [
            ("probe", settings.probe.is_some()),
            ("marker", settings.marker.is_some()),
            ("found_by", settings.found_by.is_some()),
            ("horizon", settings.horizon.is_some()),
            ("effect_kind", settings.effect_kind.is_some()),
            ("creates", settings.creates == Some(true)),
            ("carries_tools", settings.carries_tools == Some(true)),
            ("scope", settings.scope.is_some()),
            ("sends_files", settings.sends_files.is_some()),
            ("only_is_error", settings.only_is_error == Some(true)),
            ("requires_idempotency_key", settings.requires_idempotency_key == Some(true)),
            ("harmless_programs", settings.harmless_programs.is_some()),
        ];
        if let Some((field, _)) = effect.into_iter().find(|(_, is_set)| *is_set) {
            return Some((
                field,
                "a read_only tool has no effect; drop this field or change side_effect_class".to_owned(),
            ));
        }
    }
    if settings.composite.is_some() {
        let of_actions = [
            ("key_channel", settings.key_channel.is_some()),
            ("requires_idempotency_key", settings.requires_idempotency_key == Some(true)),
            ("probe", settings.probe.is_some()),
            ("effect_kind", settings.effect_kind.is_some()),
            ("creates", settings.creates == Some(true)),
            ("scope", settings.scope.is_some()),
        ];
        if let Some((field, _)) = of_actions.into_iter().find(|(_, is_set)| *is_set) {
            return Some((field, "a composite tool has no effect of its own; set this for its actions".to_owned()));
        }
    }
    let key_argument = match &settings.key_channel {
        Some(KeyChannel::Argument(name)) => Some(name),
        Some(KeyChannel::Header(_) | KeyChannel::Meta) | None => None,
    };
    let scope = settings.scope.iter().flat_map(|scope| &scope.0).map(ScopeField::argument);
    for argument in scope.chain(settings.sends_files.iter().flatten().map(String::as_str)) {
        if settings.volatile_fields.iter().flatten().any(|volatile| volatile == argument) {
            return Some(("volatile_fields", format!("{argument:?} cannot both identify the effect and be volatile")));
        }
        if key_argument.is_some_and(|key| key == argument) {
            return Some(("key_channel", format!("{argument:?} carries the key, so it cannot identify the effect")));
        }
    }
    None
}

/// Words that say in another way what a field of a rule says. Each is more like the name of a field that says something else.
const OTHER_WORDS: [(&str, &str); 6] = [
    ("tool", "name"),
    ("tool_name", "name"),
    ("tools", "patterns"),
    ("tool_names", "patterns"),
    ("namespace", "tool_namespace"),
    ("class", "side_effect_class"),
];

fn unknown_field(name: &str) -> String {
    let same = OTHER_WORDS.iter().find(|(word, _)| *word == name).map(|(_, field)| *field);
    match same.or_else(|| ua_core::nearest(name, FIELDS)) {
        Some(known) => format!("it does not exist; did you mean `{known}`?"),
        None => format!("it does not exist; a rule has {}", FIELDS.join(", ")),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

/// Who wrote a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It is part of this program. Tests compile its regular expressions; a start would spend a sixth of its time on that.
    Shipped,
    Anybody,
}

/// Where in a file we are.
pub(crate) struct Place<'a> {
    file: &'a str,
    text: &'a str,
    origin: Origin,
    rule: String,
}

impl<'a> Place<'a> {
    pub(crate) fn top(file: &'a str, text: &'a str, origin: Origin) -> Self {
        Self { file, text, origin, rule: "top level".to_owned() }
    }

    /// The fields of a table in the order of the file, so that the first mistake is the one reported.
    pub(crate) fn fields<'t>(&'t self, table: &'t DeTable<'_>) -> Vec<Field<'t>> {
        let mut fields: Vec<_> = table
            .iter()
            .map(|(key, value)| Field { place: self, name: key.get_ref(), start: key.span().start, value })
            .collect();
        fields.sort_by_key(|field| field.start);
        fields
    }

    pub(crate) fn error(&self, field: &str, start: usize, why: &str) -> PolicyError {
        PolicyError::Field {
            file: self.file.to_owned(),
            line: line_of(self.text, start),
            rule: self.rule.clone(),
            field: ua_core::in_a_sentence(field),
            why: why.to_owned(),
        }
    }
}

/// One `name = value` and how to read it.
pub(crate) struct Field<'a> {
    pub(crate) place: &'a Place<'a>,
    pub(crate) name: &'a str,
    start: usize,
    pub(crate) value: &'a Spanned<DeValue<'a>>,
}

impl Field<'_> {
    pub(crate) fn error(&self, why: &str) -> PolicyError {
        self.place.error(self.name, self.start, why)
    }

    pub(crate) fn text(&self) -> Result<String, PolicyError> {
        self.text_of(self.value)
    }

    fn text_of(&self, value: &Spanned<DeValue<'_>>) -> Result<String, PolicyError> {
        let why = match value.get_ref().as_str() {
            Some(text) if !text.trim().is_empty() => return Ok(text.to_owned()),
            Some(_) => "it is empty",
            None => "write a string in quotes",
        };
        Err(self.place.error(self.name, value.span().start, why))
    }

    pub(crate) fn texts(&self) -> Result<Vec<String>, PolicyError> {
        let DeValue::Array(items) = self.value.get_ref() else {
            return Err(self.error("write a list of strings, as in [\"one\", \"two\"]"));
        };
        items.iter().map(|item| self.text_of(item)).collect()
    }

    /// Ids are stored with every call, shown in terminals and put into SQL by people, so they are plain.
    fn id(&self) -> Result<String, PolicyError> {
        let id = self.text()?;
        if id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')) {
            Ok(id)
        } else {
            Err(self.error("use letters, digits, `-`, `_` and `.` only"))
        }
    }

    pub(crate) fn flag(&self) -> Result<bool, PolicyError> {
        self.value.get_ref().as_bool().ok_or_else(|| self.error("write true or false"))
    }

    fn word<T: FromStr<Err = String>>(&self) -> Result<T, PolicyError> {
        self.text()?.parse().map_err(|why: String| self.error(&why))
    }

    /// A list of known words; an empty one says that none of them holds.
    fn words<T: FromStr<Err = String>>(&self) -> Result<Vec<T>, PolicyError> {
        self.texts()?.iter().map(|text| text.parse().map_err(|why: String| self.error(&why))).collect()
    }

    fn approval(&self) -> Result<bool, PolicyError> {
        match self.text()?.as_str() {
            "ask" => Ok(true),
            "none" => Ok(false),
            other => Err(self.error(&ua_core::not_one_of(other, &["ask", "none"]))),
        }
    }

    fn effect_kind(&self) -> Result<EffectKind, PolicyError> {
        EffectKind::parse(&self.text()?)
            .ok_or_else(|| self.error("write <object>.<verb> in lower-case letters, as in email.send"))
    }

    fn patterns(&self) -> Result<Patterns, PolicyError> {
        let texts = self.texts()?;
        if texts.is_empty() {
            return Err(self.error("the list is empty, so the rule matches no tool"));
        }
        Patterns::compile(texts).map_err(|(glob, why)| self.error(&format!("{glob:?} is not a glob: {why}")))
    }

    fn regexes(&self) -> Result<Vec<String>, PolicyError> {
        let texts = self.texts()?;
        texts.iter().try_for_each(|text| self.check_regex(text))?;
        Ok(texts)
    }

    pub(crate) fn check_regex(&self, text: &str) -> Result<(), PolicyError> {
        if self.place.origin == Origin::Shipped {
            return Ok(());
        }
        match regex::Regex::new(text) {
            Ok(_) => Ok(()),
            Err(error) => {
                // The parser points at the place over several lines; its last line says what is wrong.
                let told = error.to_string();
                let why = told.lines().last().unwrap_or_default().trim_start_matches("error: ");
                Err(self.error(&format!("{text:?} is not a regular expression: {why}")))
            }
        }
    }

    fn programs(&self) -> Result<Vec<String>, PolicyError> {
        let programs = self.texts()?;
        match programs.iter().find(|program| program.contains('/')) {
            Some(path) => Err(self.error(&format!("{path:?} is a path; only bare program names can be harmless"))),
            None => Ok(programs),
        }
    }

    /// One number and one unit: `500ms`, `60s`, `15m`, `24h`, `7d`.
    pub(crate) fn duration(&self) -> Result<Duration, PolicyError> {
        let text = self.text()?;
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let milliseconds: Option<u64> = match unit {
            "ms" => Some(1),
            "s" => Some(1_000),
            "m" => Some(60_000),
            "h" => Some(3_600_000),
            "d" => Some(86_400_000),
            _ => None,
        };
        milliseconds
            .and_then(|unit| number.parse::<u64>().ok()?.checked_mul(unit))
            .filter(|total| *total > 0)
            .map(Duration::from_millis)
            .ok_or_else(|| {
                self.error(&format!(
                    "{text:?} is not a valid time span; write it like \"500ms\", \"60s\", \"15m\", \"24h\" or \"7d\""
                ))
            })
    }

    fn key_channel(&self) -> Result<KeyChannel, PolicyError> {
        let why = "write \"meta\", { argument = \"NAME\" } or { header = \"NAME\" }";
        if self.value.get_ref().as_str() == Some("meta") {
            return Ok(KeyChannel::Meta);
        }
        let table = self.value.get_ref().as_table().ok_or_else(|| self.error(why))?;
        match self.single(table, why)? {
            ("argument", name) => Ok(KeyChannel::Argument(name)),
            ("header", name) if is_header_name(&name) => Ok(KeyChannel::Header(name)),
            ("header", name) => Err(self.error(&format!("{name:?} is not the name of an HTTP header"))),
            _ => Err(self.error(why)),
        }
    }

    fn scope(&self) -> Result<ScopeRule, PolicyError> {
        let why = "write a list like [{ addresses = \"to\" }, { value = \"subject\" }, { files = \"attachments\" }]";
        let DeValue::Array(items) = self.value.get_ref() else {
            return Err(self.error(why));
        };
        let mut fields = Vec::with_capacity(items.len());
        for item in items {
            let DeValue::Table(table) = item.get_ref() else {
                return Err(self.place.error(self.name, item.span().start, why));
            };
            fields.push(match self.single(table, why)? {
                ("value", name) => ScopeField::Value(name),
                ("addresses", name) => ScopeField::Addresses(name),
                ("files", name) => ScopeField::Files(name),
                _ => return Err(self.place.error(self.name, item.span().start, why)),
            });
        }
        if fields.is_empty() {
            return Err(self.error(why));
        }
        Ok(ScopeRule(fields))
    }

    /// The only entry of an inline table.
    fn single<'t>(&self, table: &'t DeTable<'_>, why: &str) -> Result<(&'t str, String), PolicyError> {
        let mut entries = table.iter();
        match (entries.next(), entries.next()) {
            (Some((key, value)), None) => Ok((key.get_ref(), self.text_of(value)?)),
            _ => Err(self.error(why)),
        }
    }
}

/// The `token` of RFC 9110 §5.6.2.
fn is_header_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}
