//! Placeholders in a script's strings.

use std::collections::BTreeMap;

use serde_json::Value;

/// Characters of a result that `{{result:ID}}` shows.
const SHOWN: usize = 2000;

/// What placeholders can speak of.
pub(super) struct Facts<'a> {
    pub(super) turn: usize,
    pub(super) request: u64,
    pub(super) results: BTreeMap<&'a str, &'a str>,
}

enum Part<'a> {
    Literal(&'a str),
    Turn,
    Request,
    Result(&'a str),
    ResultJson { id: &'a str, pointer: &'a str },
}

/// Checks every placeholder's form; the error is the one that is none.
pub(super) fn check(text: &str) -> Result<(), String> {
    parts(text).map(|_| ())
}

/// The ids of the results that a text shows; none of one that [`check`] refuses.
pub(super) fn results_of(text: &str) -> Vec<&str> {
    let ids = parts(text).unwrap_or_default().into_iter().filter_map(|part| match part {
        Part::Result(id) | Part::ResultJson { id, .. } => Some(id),
        Part::Literal(_) | Part::Turn | Part::Request => None,
    });
    ids.collect()
}

/// The strings inside `value`, at any depth; keys are not filled in.
pub(super) fn strings_of(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(strings_of).collect(),
        Value::Object(fields) => fields.values().flat_map(strings_of).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

fn parts(text: &str) -> Result<Vec<Part<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, opened)) = rest.split_once("{{") {
        let Some((inside, after)) = opened.split_once("}}") else { break };
        parts.push(Part::Literal(before));
        parts.push(placeholder(inside).ok_or_else(|| inside.to_owned())?);
        rest = after;
    }
    parts.push(Part::Literal(rest));
    Ok(parts)
}

fn placeholder(inside: &str) -> Option<Part<'_>> {
    match (inside, inside.split_once(':')) {
        ("turn", _) => Some(Part::Turn),
        ("request", _) => Some(Part::Request),
        (_, Some(("result", id))) if !id.is_empty() => Some(Part::Result(id)),
        (_, Some(("result_json", rest))) => {
            let (id, pointer) = rest.split_once(':')?;
            (pointer.is_empty() || pointer.starts_with('/')).then_some(Part::ResultJson { id, pointer })
        }
        _ => None,
    }
}

impl Facts<'_> {
    /// Fills in a text.
    pub(super) fn fill(&self, text: &str) -> Result<String, String> {
        let mut filled = String::with_capacity(text.len());
        for part in parts(text)? {
            match part {
                Part::Literal(literal) => filled.push_str(literal),
                Part::Turn => filled.push_str(&self.turn.to_string()),
                Part::Request => filled.push_str(&self.request.to_string()),
                Part::Result(id) => filled.extend(self.result(id)?.chars().take(SHOWN)),
                Part::ResultJson { id, pointer } => match self.result_json(id, pointer)? {
                    Value::String(text) => filled.push_str(&text),
                    other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                        filled.push_str(&other.to_string());
                    }
                },
            }
        }
        Ok(filled)
    }

    /// Fills in the strings of a tool's input.
    pub(super) fn fill_value(&self, value: &Value) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) => match parts(text)?.as_slice() {
                [Part::Literal(""), Part::ResultJson { id, pointer }, Part::Literal("")] => {
                    self.result_json(id, pointer)?
                }
                _ => Value::String(self.fill(text)?),
            },
            Value::Array(items) => {
                Value::Array(items.iter().map(|item| self.fill_value(item)).collect::<Result<_, _>>()?)
            }
            Value::Object(fields) => Value::Object(
                fields
                    .iter()
                    .map(|(name, field)| Ok((name.clone(), self.fill_value(field)?)))
                    .collect::<Result<_, String>>()?,
            ),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        })
    }

    fn result(&self, id: &str) -> Result<&str, String> {
        self.results.get(id).copied().ok_or_else(|| format!("the history has no result of {id}"))
    }

    fn result_json(&self, id: &str, pointer: &str) -> Result<Value, String> {
        let text = self.result(id)?;
        // A tool that answers in words and in JSON puts the JSON last, on a line of its own.
        let last_line = text.trim_end().lines().last().unwrap_or_default();
        let value: Value = serde_json::from_str(text)
            .or_else(|_| serde_json::from_str(last_line))
            .map_err(|error| format!("neither the result of {id} nor its last line is JSON: {error}"))?;
        value.pointer(pointer).cloned().ok_or_else(|| format!("the result of {id} has nothing at {pointer}"))
    }
}
