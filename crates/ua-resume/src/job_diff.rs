//! What is not the same in two jobs, field by field.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};
use ua_core::RunSpec;

use ua_evidence::quote::line;

/// A field that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobChange {
    /// The field, with dots: `budgets.max_turns`.
    pub field: String,
    /// What it was; `None` when it was not there.
    pub before: Option<Value>,
    /// What it is; `None` when it is not there.
    pub after: Option<Value>,
}

impl fmt::Display for JobChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown =
            |value: &Option<Value>| value.as_ref().map_or_else(|| "nothing".to_owned(), |v| line(&v.to_string(), 200));
        write!(f, "{}: {} → {}", line(&self.field, 120), shown(&self.before), shown(&self.after))
    }
}

/// Every field of two jobs that differs, in the order of their names. Objects are compared field by field, lists as a whole.
pub fn job_changes(before: &RunSpec, after: &RunSpec) -> Vec<JobChange> {
    let fields = |spec: &RunSpec| serde_json::to_value(spec).unwrap_or_default();
    let mut found = Vec::new();
    compare("", Some(&fields(before)), Some(&fields(after)), &mut found);
    found.sort_by(|a, b| a.field.cmp(&b.field));
    found
}

fn compare(field: &str, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<JobChange>) {
    if before == after {
        return;
    }
    let empty = Map::new();
    let (old, new) = (before.map_or(Some(&empty), Value::as_object), after.map_or(Some(&empty), Value::as_object));
    let is_tree = before.is_some_and(Value::is_object) || after.is_some_and(Value::is_object);
    let (Some(old), Some(new), true) = (old, new, is_tree) else {
        found.push(JobChange { field: field.to_owned(), before: before.cloned(), after: after.cloned() });
        return;
    };
    let fields: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    for name in fields {
        let path = if field.is_empty() { name.clone() } else { format!("{field}.{name}") };
        compare(&path, old.get(name), new.get(name), found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_differ_are_named_with_both_values() {
        let parse = |text: &str| RunSpec::parse(text).unwrap();
        let before =
            parse(r#"{"objective": "a", "inputs": {"to": "x", "n": 1}, "stop_conditions": ["email_sent_once"]}"#);
        let after = parse(r#"{"objective": "b", "inputs": {"to": "x", "m": 2}, "budgets": {"max_tool_calls": 3}}"#);
        let shown: Vec<String> = job_changes(&before, &after).iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "budgets.max_tool_calls: 250 → 3",
                "inputs.m: nothing → 2",
                "inputs.n: 1 → nothing",
                "objective: \"a\" → \"b\"",
                "stop_conditions: [\"email_sent_once\"] → []",
            ]
        );
        assert_eq!(job_changes(&before, &before), []);
    }
}
