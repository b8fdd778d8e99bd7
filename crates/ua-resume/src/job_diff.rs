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
        let shown = |value: &Option<Value>| value.as_ref().map_or_else(|| "nothing".to_owned(), Value::to_string);
        let [before, after] = around([&shown(&self.before), &shown(&self.after)]);
        write!(f, "{}: {before} → {after}", line(&self.field, 120))
    }
}

/// How much is shown of a value on each side of the place where it begins to differ.
const BEFORE: usize = 30;
const BEHIND: usize = 60;

/// Two values as far as they differ: both whole where they are short, else an excerpt of each around the first character that differs, so that
/// what is new is seen whatever comes before it.
fn around(values: [&str; 2]) -> [String; 2] {
    let values = values.map(|value| line(value, usize::MAX).chars().collect::<Vec<char>>());
    if values.iter().all(|value| value.len() <= BEFORE + BEHIND) {
        return values.map(|value| value.into_iter().collect());
    }
    let common = values[0].iter().zip(&values[1]).take_while(|(old, new)| old == new).count();
    // A short beginning is shown whole: `…` would stand for less than itself.
    let from = if common <= BEFORE + 1 { 0 } else { common - BEFORE };
    values.map(|value| {
        let until = value.len().min(common + BEHIND);
        let front = if from == 0 { "" } else { "…" };
        let back = if until == value.len() { "" } else { "…" };
        format!("{front}{}{back}", value[from.min(until)..until].iter().collect::<String>())
    })
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
        // What is new is seen, however far behind it stands.
        let page =
            "Read every page of the handbook with care, and then write down in your own words what it says about ";
        let change = |more: &str| Some(Value::String(format!("{page}{more} and send it. {page}")));
        let change = JobChange { field: "prompt".into(), before: change("holidays"), after: change("illness") };
        assert_eq!(
            change.to_string(),
            "prompt: … own words what it says about holidays and send it. Read every page of the handbook with c… → … own words what it \
             says about illness and send it. Read every page of the handbook with ca…"
        );
    }
}
