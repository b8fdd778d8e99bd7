//! The probe and the mark of a rule: TOML to values, so strict that a probe which could not prove anything is refused.
//!
//! Durable Jobs v1 spec §7.4 and §8.3. Invariant: what proves that a call happened is the key, or an argument that the rule
//! vouches for as unique; ordinary fields prove nothing.

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use ua_core::{AbsentRule, FieldIs, FoundRule, Marker, MarkerForm, ProbePolicy, template_uses};

use crate::error::PolicyError;
use crate::parse::Field;
use crate::rule::{MarkerSetting, Settings};

const PROBE_FIELDS: &str = "tool, arguments, found, absent, unique_arguments, settle";
const FOUND_FIELDS: &str = "items, field, equals or contains, id";
const ABSENT_FIELDS: &str = "error, text, items_below, complete";

/// Why a probe could never prove anything, if that is so.
pub(crate) fn unprovable(probe: &ProbePolicy, settings: &Settings) -> Option<String> {
    let (arguments, uses_key) = template_uses(&probe.found.value).ok()?; // checked before
    if uses_key {
        let reaches = settings.key_channel.is_some() || matches!(settings.marker, Some(MarkerSetting::Mark(_)));
        return (!reaches)
            .then(|| "it looks for {key}, which never reaches the tool: add key_channel or marker".to_owned());
    }
    let is_unique = |name: &String| probe.unique_arguments.contains(name);
    (!arguments.iter().any(is_unique)).then(|| {
        "what it looks for has to be unique to one call: use {key}, or {arg.NAME} with NAME in unique_arguments; a match on \
         ordinary fields proves nothing"
            .to_owned()
    })
}

impl Field<'_> {
    pub(crate) fn probe(&self) -> Result<ProbePolicy, PolicyError> {
        let table = self.table("write a table: [rule.probe], or probe = { tool = \"…\", … }")?;
        let (mut tool, mut found, mut absent, mut settle) = (None, None, None, None);
        let mut arguments = Value::Object(serde_json::Map::new());
        let mut unique_arguments = Vec::new();
        for field in self.place.fields(table) {
            match field.name {
                "tool" => tool = Some(field.text()?),
                "arguments" => {
                    field.table("write a table of arguments, as in { owner = \"{arg.owner}\" }")?;
                    arguments = field.template(field.value)?;
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
        let (mut items, mut path, mut value, mut contains, mut id) = (String::new(), String::new(), None, false, None);
        for field in self.place.fields(table) {
            match field.name {
                "items" => items = field.text()?,
                "field" => path = field.text()?,
                "equals" | "contains" if value.is_some() => {
                    return Err(field.error("give equals or contains, not both"));
                }
                "equals" | "contains" => {
                    let text = field.text()?;
                    field.check_template(&text)?;
                    (value, contains) = (Some(text), field.name == "contains");
                }
                "id" => id = Some(field.text()?),
                other => return Err(field.error(&format!("found has no {other:?}; it has {FOUND_FIELDS}"))),
            }
        }
        let value = value.ok_or_else(|| self.error("say what the field has to be: equals or contains"))?;
        Ok(FoundRule { items, field: path, value, contains, id })
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

    /// `"none"`, or an argument with what is put at its end or set as its value.
    pub(crate) fn marker(&self) -> Result<MarkerSetting, PolicyError> {
        let why = "write { argument = \"body\", append = \"\\n\\nref {key}\" }, { argument = \"…\", set = … }, { argument = \"…\", push = … }, { argument = \"…\", put = { … } } or \"none\"";
        if self.value.get_ref().as_str() == Some("none") {
            return Ok(MarkerSetting::Nothing);
        }
        let table = self.table(why)?;
        let (mut argument, mut form) = (None, None);
        for field in self.place.fields(table) {
            match field.name {
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
        Ok(MarkerSetting::Mark(Marker { argument, form }))
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
                return Err(self.error("write texts, whole numbers, true or false, lists and tables"));
            }
        })
    }
}
