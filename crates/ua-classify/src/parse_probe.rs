//! The probe and the mark of a rule: TOML to values, so strict that a probe which could not prove anything is refused.
//!
//! Durable Jobs v1 spec §7.4 and §8.3. Invariant: what proves that a call happened is the key, an argument that the rule vouches for as
//! unique, or the call's own values together with the time at which an entry was made; ordinary fields alone prove nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use ua_core::{
    AbsentRule, FieldIs, FoundBy, FoundRule, MadeAt, Marker, MarkerForm, ProbePolicy, SameValues, TimeForm,
    template_uses,
};

use crate::error::PolicyError;
use crate::parse::Field;
use crate::rule::{MarkerSetting, Settings};

const PROBE_FIELDS: &str = "tool, arguments, when, found, absent, unique_arguments, settle";
const FOUND_FIELDS: &str = "items, entry, field, equals or contains, same, holds, made, id";

/// How far the clocks of this machine and of the other side may differ where a rule does not say it, with times that are cut to the minute.
const WITHIN: Duration = Duration::from_mins(2);
const ABSENT_FIELDS: &str = "error, text, items_below, complete, newest_first";

/// Why a probe could never prove anything, if that is so.
pub(crate) fn unprovable(probe: &ProbePolicy, settings: &Settings) -> Option<String> {
    let value = match &probe.found.by {
        FoundBy::Mark { value, .. } => value,
        FoundBy::Values(values) => return nothing_of_the_call(values),
    };
    if probe.absent.as_ref().is_some_and(|absent| absent.newest_first) {
        return Some(
            "newest_first goes by the time of each entry, so found has to say it: write same and made".to_owned(),
        );
    }
    let (arguments, uses_key) = template_uses(value).ok()?; // checked before
    if uses_key {
        let reaches = settings.key_channel.is_some() || matches!(settings.marker, Some(MarkerSetting::Mark(_)));
        return (!reaches)
            .then(|| "it looks for {key}, which never reaches the tool: add key_channel or marker".to_owned());
    }
    let is_unique = |name: &String| probe.unique_arguments.contains(name);
    (!arguments.iter().any(is_unique)).then(|| {
        "what it looks for has to be unique to one call: use {key}, or {arg.NAME} with NAME in unique_arguments; a match on \
         ordinary fields proves nothing, unless the entry says when it was made: write same and made"
            .to_owned()
    })
}

/// Why values that an entry shares with the call would not be the call's, if that is so.
fn nothing_of_the_call(values: &SameValues) -> Option<String> {
    let uses: Vec<(Vec<String>, bool)> = values.templates().filter_map(|text| template_uses(text).ok()).collect();
    if uses.iter().any(|(_, uses_key)| *uses_key) {
        return Some("{key} is unique by itself: look for it by field and equals or contains".to_owned());
    }
    uses.iter().all(|(arguments, _)| arguments.is_empty()).then(|| {
        "same and holds name nothing that the call says; compare at least one field with {arg.NAME}".to_owned()
    })
}

impl Field<'_> {
    pub(crate) fn probe(&self) -> Result<ProbePolicy, PolicyError> {
        let table = self.table("write a table: [rule.probe], or probe = { tool = \"…\", … }")?;
        let (mut tool, mut found, mut absent, mut settle) = (None, None, None, None);
        let mut arguments = Value::Object(serde_json::Map::new());
        let mut unique_arguments = Vec::new();
        let mut when = serde_json::Map::new();
        for field in self.place.fields(table) {
            match field.name {
                "tool" => tool = Some(field.text()?),
                "arguments" => {
                    field.table("write a table of arguments, as in { owner = \"{arg.owner}\" }")?;
                    arguments = field.template(field.value)?;
                }
                "when" => {
                    let table = field.table("write a table of arguments, as in { method = \"create\" }")?;
                    for (name, value) in table {
                        when.insert(name.get_ref().to_string(), field.json(value)?);
                    }
                }
                "found" => found = Some(field.found()?),
                "absent" => absent = Some(field.absent()?),
                "unique_arguments" => unique_arguments = field.texts()?,
                "settle" => settle = Some(field.duration()?),
                other => return Err(field.error(&format!("a probe has no {other:?}; it has {PROBE_FIELDS}"))),
            }
        }
        let needs = |what: &str| self.error(&format!("a probe needs {what}"));
        Ok(ProbePolicy {
            tool: tool.ok_or_else(|| needs("tool, the read-only tool to ask"))?,
            arguments,
            when,
            found: found.ok_or_else(|| needs("found, what proves that the call happened"))?,
            absent,
            unique_arguments,
            settle: settle.ok_or_else(|| {
                needs("settle, how long what happened may stay invisible to the tool, as in settle = \"10s\"")
            })?,
        })
    }

    fn found(&self) -> Result<FoundRule, PolicyError> {
        let table =
            self.table("write a table, as in { items = \"issues\", field = \"body\", contains = \"{key}\" }")?;
        let (mut items, mut path, mut value, mut contains, mut id) = (String::new(), None, None, false, None);
        let (mut entry, mut same, mut holds, mut made) = (None, BTreeMap::new(), BTreeMap::new(), None);
        for field in self.place.fields(table) {
            match field.name {
                "items" => items = field.text()?,
                "entry" => entry = Some(field.entry()?),
                "field" => path = Some(field.text()?),
                "equals" | "contains" if value.is_some() => {
                    return Err(field.error("give equals or contains, not both"));
                }
                "equals" | "contains" => {
                    let text = field.text()?;
                    field.check_template(&text)?;
                    (value, contains) = (Some(text), field.name == "contains");
                }
                "same" => {
                    for (path, value) in field.table("write a table, as in { title = \"{arg.title}\" }")? {
                        same.insert(path.get_ref().to_string(), field.template(value)?);
                    }
                }
                "holds" => {
                    for (path, value) in field.table("write a table, as in { body = \"{arg.body}\" }")? {
                        let Value::String(text) = field.template(value)? else {
                            return Err(field.error("strings are compared, so write strings"));
                        };
                        holds.insert(path.get_ref().to_string(), text);
                    }
                }
                "made" => made = Some(field.made()?),
                "id" => id = Some(field.text()?),
                other => return Err(field.error(&format!("found has no {other:?}; it has {FOUND_FIELDS}"))),
            }
        }
        let has_values = !same.is_empty() || !holds.is_empty();
        let by = match (value, has_values, made) {
            (Some(value), false, None) => FoundBy::Mark { field: path.unwrap_or_default(), value, contains },
            (None, true, Some(made)) if path.is_none() => FoundBy::Values(SameValues { same, holds, made }),
            (None, true, None) => {
                return Err(self.error(
                    "equal fields prove nothing without the time at which the entry was made: add made = { field = \"…\" }",
                ));
            }
            (None, false, Some(_)) => return Err(self.error("say which fields have to be the call's: same or holds")),
            (None, false, None) => return Err(self.error("say what the field has to be: equals or contains")),
            (Some(_) | None, _, _) => {
                return Err(self.error("give field with equals or contains, or same and holds with made, not both"));
            }
        };
        Ok(FoundRule { items, entry, by, id })
    }

    /// A regular expression with names for what an entry has.
    fn entry(&self) -> Result<String, PolicyError> {
        let text = self.text()?;
        self.check_regex(&text)?;
        if text.contains("(?<") || text.contains("(?P<") {
            return Ok(text);
        }
        Err(self.error("name the fields of an entry in it, as in \"- (?<name>.+) \\\\(ID: (?<id>[0-9]+)\\\\)\""))
    }

    fn made(&self) -> Result<MadeAt, PolicyError> {
        let why = "write { field = \"created_at\" }, with form and within where they are not \"rfc3339\" and \"2m\"";
        let table = self.table(why)?;
        let (mut path, mut form, mut within) = (None, TimeForm::Rfc3339, WITHIN);
        for field in self.place.fields(table) {
            match field.name {
                "field" => path = Some(field.text()?),
                "form" => form = field.text()?.parse().map_err(|why: String| field.error(&why))?,
                "within" => within = field.duration()?,
                _ => return Err(field.error(why)),
            }
        }
        let field = path.ok_or_else(|| self.error(why))?;
        Ok(MadeAt { field, form, within })
    }

    fn absent(&self) -> Result<AbsentRule, PolicyError> {
        let table = self.table("write a table, as in { items_below = 30 } or { error = \"not found\" }")?;
        let mut rule = AbsentRule::default();
        for field in self.place.fields(table) {
            match field.name {
                "error" | "text" => {
                    let text = field.text()?;
                    field.check_regex(&text)?;
                    let slot = if field.name == "error" { &mut rule.error } else { &mut rule.text };
                    *slot = Some(text);
                }
                "items_below" => {
                    let number = match field.json(field.value)? {
                        Value::Number(number) => number.as_u64().and_then(|limit| usize::try_from(limit).ok()),
                        Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => None,
                    };
                    let number = number.filter(|limit| *limit > 0);
                    rule.items_below = Some(number.ok_or_else(|| field.error("write a number from 1 on"))?);
                }
                "newest_first" => rule.newest_first = field.flag()?,
                "complete" => rule.complete = Some(field.field_is()?),
                other => return Err(field.error(&format!("absent has no {other:?}; it has {ABSENT_FIELDS}"))),
            }
        }
        if rule == AbsentRule::default() {
            return Err(self.error(&format!("it proves nothing; it takes {ABSENT_FIELDS}")));
        }
        Ok(rule)
    }

    fn field_is(&self) -> Result<FieldIs, PolicyError> {
        let why = "write { field = \"has_more\", equals = false }";
        let table = self.table(why)?;
        let (mut path, mut equals) = (None, None);
        for field in self.place.fields(table) {
            match field.name {
                "field" => path = Some(field.text()?),
                "equals" => equals = Some(field.json(field.value)?),
                _ => return Err(field.error(why)),
            }
        }
        match (path, equals) {
            (Some(field), Some(equals)) => Ok(FieldIs { field, equals }),
            _ => Err(self.error(why)),
        }
    }

    /// Texts by which a call is found on the other side.
    pub(crate) fn found_by(&self) -> Result<Vec<String>, PolicyError> {
        let texts = self.texts()?;
        for text in &texts {
            self.check_template(text)?;
            if !template_uses(text).is_ok_and(|(arguments, has_key)| has_key || !arguments.is_empty()) {
                return Err(self.error("name what is in it of this call alone: {key}, {key_id} or {arg.NAME}"));
            }
        }
        Ok(texts)
    }

    /// `"none"`, or an argument with what is put at its end or set as its value.
    pub(crate) fn marker(&self) -> Result<MarkerSetting, PolicyError> {
        let why = "write { argument = \"body\", append = \"\\n\\nref {key}\" }, { argument = \"…\", set = … }, { argument = \"…\", push = … }, { argument = \"…\", put = { … } } or \"none\"";
        if self.value.get_ref().as_str() == Some("none") {
            return Ok(MarkerSetting::Nothing);
        }
        let table = self.table(why)?;
        let (mut argument, mut form, mut given) = (None, None, false);
        for field in self.place.fields(table) {
            match field.name {
                "given" => given = field.flag()?,
                "argument" => argument = Some(field.text()?),
                "append" | "set" | "push" | "put" if form.is_some() => {
                    return Err(field.error("give one of append, set, push and put"));
                }
                "append" => {
                    let text = field.text()?;
                    field.check_template(&text)?;
                    form = Some(MarkerForm::Append(text));
                }
                "set" => form = Some(MarkerForm::Set(field.template(field.value)?)),
                "push" => form = Some(MarkerForm::Push(field.template(field.value)?)),
                "put" => {
                    field.table("write a table of fields, as in { ua_key = \"{key}\" }")?;
                    form = Some(MarkerForm::Put(field.template(field.value)?));
                }
                _ => return Err(field.error(why)),
            }
        }
        let (Some(argument), Some(form)) = (argument, form) else { return Err(self.error(why)) };
        let text = match &form {
            MarkerForm::Append(text) => text.clone(),
            MarkerForm::Set(value) | MarkerForm::Push(value) | MarkerForm::Put(value) => value.to_string(),
        };
        if !text.contains("{key}") {
            return Err(self.error("a mark has to hold {key}; anything else would not be unique to one call"));
        }
        Ok(MarkerSetting::Mark(Marker { argument, form, given }))
    }

    pub(crate) fn table(&self, why: &str) -> Result<&DeTable<'_>, PolicyError> {
        self.value.get_ref().as_table().ok_or_else(|| self.error(why))
    }

    fn check_template(&self, text: &str) -> Result<(), PolicyError> {
        template_uses(text).map(drop).map_err(|error| self.error(&error.to_string()))
    }

    /// A value whose texts are templates.
    fn template(&self, value: &Spanned<DeValue<'_>>) -> Result<Value, PolicyError> {
        let json = self.json(value)?;
        self.check_templates(&json)?;
        Ok(json)
    }

    fn check_templates(&self, value: &Value) -> Result<(), PolicyError> {
        match value {
            Value::String(text) => self.check_template(text),
            Value::Array(items) => items.iter().try_for_each(|item| self.check_templates(item)),
            Value::Object(fields) => fields.values().try_for_each(|field| self.check_templates(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
        }
    }

    fn json(&self, value: &Spanned<DeValue<'_>>) -> Result<Value, PolicyError> {
        Ok(match value.get_ref() {
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Boolean(flag) => Value::Bool(*flag),
            DeValue::Integer(number) => {
                let number = number.as_str().parse::<i64>().ok();
                Value::from(number.ok_or_else(|| self.error("write numbers in decimal digits"))?)
            }
            DeValue::Array(items) => Value::Array(items.iter().map(|item| self.json(item)).collect::<Result<_, _>>()?),
            DeValue::Table(table) => {
                let fields = table.iter().map(|(name, value)| Ok((name.get_ref().to_string(), self.json(value)?)));
                Value::Object(fields.collect::<Result<_, PolicyError>>()?)
            }
            DeValue::Float(_) | DeValue::Datetime(_) => {
                return Err(self.error("write strings, whole numbers, true or false, lists and tables"));
            }
        })
    }
}
