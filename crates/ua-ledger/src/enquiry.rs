//! Asking afterwards: what a declared probe asks about one call, and what its answer proves.
//!
//! Durable Jobs v1 spec §8.3. Pure. An [`Enquiry`] is proof that the tool it names only looks, so asking needs no permit and may be
//! repeated. Invariants: *found* needs a value that only this call can have left behind; *absent* needs a complete answer of the
//! expected shape, and counts only from [`Asked::conclusive_from`]; everything else is unclear.

use std::time::Duration;

use serde_json::{Map, Value};
use ua_core::{
    AbsentRule, CallPolicy, CallStatus, FoundRule, Outcome, ProbePolicy, RawReply, Settlement, SideEffectClass,
    TemplateError, Time, Timestamp, ToolName, ToolSpec, Values,
};
use ua_store::{AttemptRecord, CallRecord};

use crate::interpret::{interpret, result_text};

/// Why nothing can be asked about a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unaskable {
    /// The tool that the probe names is not a read.
    #[error("cannot ask `{tool}`: it is classified as {class}, and only a read_only tool may be asked")]
    NotReadOnly {
        /// The tool.
        tool: String,
        /// Its class.
        class: SideEffectClass,
    },
    /// The call was never sent, so there is nothing to ask about.
    #[error("cannot ask about a call that was never sent")]
    NeverSent,
    /// A template has no value for this call.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// What the probe asks for is not a set of arguments.
    #[error("cannot ask `{tool}`: the probe's arguments are no table")]
    NoArguments {
        /// The tool.
        tool: String,
    },
}

/// A question to a read-only tool about one call.
#[derive(Debug, Clone, PartialEq)]
pub struct Enquiry {
    tool: ToolName,
    arguments: Map<String, Value>,
    expected: String,
    found: FoundRule,
    absent: Option<AbsentRule>,
    given_up: Option<Timestamp>,
    wait: Duration,
}

/// What an enquiry came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Finding {
    /// It happened.
    Found {
        /// The other side's name for it.
        id: Option<String>,
        /// The item that shows it.
        item: Value,
    },
    /// It is not there. Whether that proves anything depends on when it was asked.
    Absent,
    /// The answer proves nothing.
    Unclear {
        /// Why not.
        why: String,
    },
}

/// A finding, by whom and since when *absent* counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// What came of it.
    pub finding: Finding,
    /// The tool that was asked, by its qualified name.
    pub tool: String,
    /// When it was asked.
    pub at: Timestamp,
    /// From when on *absent* proves that the call did not happen; `None` while an attempt is not even known to be lost.
    pub conclusive_from: Option<Timestamp>,
}

impl Asked {
    /// Whether the finding is *absent* and counts.
    pub fn proves_absence(&self) -> bool {
        self.finding == Finding::Absent && self.conclusive_from.is_some_and(|from| self.at >= from)
    }

    /// Nothing could be asked.
    pub fn not_at_all(why: String, at: Timestamp) -> Self {
        Self { finding: Finding::Unclear { why }, tool: String::new(), at, conclusive_from: None }
    }
}

impl Enquiry {
    /// Fills in `probe` for `call`, to be asked of `tool`, about which `its_policy` was decided.
    pub fn about(
        call: &CallRecord,
        attempts: &[AttemptRecord],
        probe: &ProbePolicy,
        tool: &ToolSpec,
        its_policy: &CallPolicy,
    ) -> Result<Self, Unaskable> {
        if its_policy.class.has_effect() {
            return Err(Unaskable::NotReadOnly { tool: tool.name.raw.clone(), class: its_policy.class });
        }
        let sent = || attempts.iter().filter(|attempt| attempt.outcome.as_deref() != Some("not_sent"));
        let first_sent_at = sent().map(|attempt| attempt.started_at).min().ok_or(Unaskable::NeverSent)?;
        let nothing = Map::new();
        let arguments = call.arguments.as_object().unwrap_or(&nothing);
        let values = Values { key: key_that_arrived(call), arguments, first_sent_at: Some(first_sent_at) };
        let Value::Object(filled) = values.value(&probe.arguments)? else {
            return Err(Unaskable::NoArguments { tool: tool.name.raw.clone() });
        };
        let wait = horizon(&call.policy).unwrap_or_default() + probe.settle;
        Ok(Self {
            tool: tool.name.clone(),
            arguments: filled,
            expected: values.text(&probe.found.value)?,
            found: probe.found.clone(),
            absent: probe.absent.clone(),
            given_up: given_up_at(call, attempts),
            wait,
        })
    }

    /// The tool to ask.
    pub fn tool(&self) -> &ToolName {
        &self.tool
    }

    /// What to ask it.
    pub fn arguments(&self) -> &Map<String, Value> {
        &self.arguments
    }

    /// What the tool's answer to a question asked at `time` proves. *Absent* proves something from then on: the latest deadline of an attempt,
    /// or the moment its loss was stored if that is later, plus the horizon and the settle time.
    pub fn judge(&self, outcome: &Outcome, time: &Time) -> Asked {
        let conclusive_from = self.given_up.map(|given_up| time.end_of(given_up, self.wait));
        Asked { finding: self.read(outcome), tool: self.tool.raw.clone(), at: time.now(), conclusive_from }
    }

    /// What the tool's answer proves, whenever it was given.
    pub fn read(&self, outcome: &Outcome) -> Finding {
        let unclear = |why: String| Finding::Unclear { why };
        let raw = match outcome {
            Outcome::NotSent { why } | Outcome::Lost { why } => {
                return unclear(format!("`{}` could not be asked: {why}", self.tool.tool));
            }
            Outcome::Continues(_) => return unclear(format!("`{}` did not answer at once", self.tool.tool)),
            Outcome::Raw(raw) => raw,
        };
        let settlement = interpret(raw, &CallPolicy { class: SideEffectClass::ReadOnly, ..CallPolicy::unclassified() });
        match (raw, settlement.status) {
            (RawReply::ToolResult { result }, CallStatus::Succeeded) => self.read_result(result),
            (RawReply::ToolResult { result }, _) => {
                let text = result_text(result);
                if self.absent.as_ref().and_then(|rule| rule.error.as_ref()).is_some_and(|rule| matches(rule, &text)) {
                    return Finding::Absent;
                }
                unclear(format!("`{}` reported an error: {}", self.tool.tool, shown(&text)))
            }
            (
                RawReply::RpcError { .. }
                | RawReply::HttpStatus { .. }
                | RawReply::Statement { .. }
                | RawReply::Found { .. },
                _,
            ) => {
                let Settlement { error_code, error_detail, .. } = settlement;
                let detail = error_detail.as_deref().map(shown).unwrap_or_default();
                unclear(format!("`{}` failed ({}): {detail}", self.tool.tool, error_code.unwrap_or_default()))
            }
        }
    }

    fn read_result(&self, result: &Value) -> Finding {
        let text = result_text(result);
        let structured = result.get("structuredContent").filter(|value| !value.is_null()).cloned();
        let readings: Vec<Value> = structured.into_iter().chain(serde_json::from_str(&text).ok()).collect();
        let findings: Vec<Finding> = readings.iter().map(|answer| self.read_answer(answer)).collect();
        if let Some(found) = findings.iter().find(|finding| matches!(finding, Finding::Found { .. })) {
            return found.clone();
        }
        if findings.contains(&Finding::Absent) {
            return Finding::Absent;
        }
        if let Some(unclear) = findings.into_iter().next() {
            return unclear;
        }
        if self.absent.as_ref().and_then(|rule| rule.text.as_ref()).is_some_and(|rule| matches(rule, &text)) {
            return Finding::Absent;
        }
        if self.found.items.is_empty() && self.found.field.is_empty() {
            let answer = Value::String(text.clone());
            if self.is_expected(&answer) {
                return Finding::Found { id: None, item: answer };
            }
        }
        Finding::Unclear { why: format!("`{}` answered what the probe cannot read: {}", self.tool.tool, shown(&text)) }
    }

    fn read_answer(&self, answer: &Value) -> Finding {
        let Some(place) = at(answer, &self.found.items) else {
            return Finding::Unclear {
                why: format!("the answer of `{}` has no `{}`", self.tool.tool, self.found.items),
            };
        };
        let (items, is_list) = match place {
            Value::Array(items) => (items.as_slice(), true),
            single @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
                (std::slice::from_ref(single), false)
            }
        };
        let found = items.iter().find(|item| at(item, &self.found.field).is_some_and(|field| self.is_expected(field)));
        if let Some(item) = found {
            let id = self.found.id.as_ref().and_then(|path| at(item, path)).map(plain);
            return Finding::Found { id, item: item.clone() };
        }
        let Some(AbsentRule { items_below, complete, .. }) = &self.absent else {
            return self.not_enough("the probe does not say what proves that it is not there");
        };
        if items_below.is_none() && complete.is_none() {
            return self.not_enough("something else is there, and the probe does not say what that proves");
        }
        if !is_list {
            return self.not_enough("it is no list");
        }
        if items_below.is_some_and(|limit| items.len() >= limit) {
            return self.not_enough(&format!("the list has {} items and may have more", items.len()));
        }
        if complete.as_ref().is_some_and(|rule| at(answer, &rule.field) != Some(&rule.equals)) {
            return self.not_enough("it does not say that the list is complete");
        }
        Finding::Absent
    }

    fn not_enough(&self, why: &str) -> Finding {
        Finding::Unclear { why: format!("the call is not in the answer of `{}`, but {why}", self.tool.tool) }
    }

    fn is_expected(&self, field: &Value) -> bool {
        match field {
            Value::String(text) if self.found.contains => text.contains(&self.expected),
            Value::Array(items) if self.found.contains => items.iter().any(|item| match item {
                Value::Array(_) | Value::Object(_) => self.lies_in(item),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => plain(item) == self.expected,
            }),
            Value::Object(_) if self.found.contains => self.lies_in(field),
            Value::String(_) | Value::Number(_) => plain(field) == self.expected,
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
        }
    }

    /// Whether a text somewhere in it has what is looked for: a text that is kept in pieces.
    fn lies_in(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => text.contains(&self.expected),
            Value::Array(items) => items.iter().any(|item| self.lies_in(item)),
            Value::Object(fields) => fields.values().any(|field| self.lies_in(field)),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
}

/// The key, if the call's policy let it reach the other side.
fn key_that_arrived(call: &CallRecord) -> Option<&str> {
    let key = call.idempotency_key.as_ref()?.as_str();
    if call.policy.key_channel.is_some() {
        return Some(key);
    }
    let mut arguments = call.arguments.as_object().cloned().unwrap_or_default();
    let marker = call.policy.marker.as_ref()?;
    marker.apply(&mut arguments, key).then_some(key)
}

/// How long after it was given up a call may still be begun.
pub(crate) fn horizon(policy: &CallPolicy) -> Option<Duration> {
    policy.horizon.or_else(|| policy.probe.is_some().then_some(CallPolicy::DEFAULT_HORIZON))
}

/// When the last of a call's attempts was given up: the later of its deadline and the moment its end was stored. `None` while one
/// is not known to have ended.
pub(crate) fn given_up_at(call: &CallRecord, attempts: &[AttemptRecord]) -> Option<Timestamp> {
    let mut latest = None;
    for attempt in attempts.iter().filter(|attempt| attempt.outcome.as_deref() != Some("not_sent")) {
        let ended = attempt.ended_at?;
        let deadline = call.policy.timeout.map_or(attempt.started_at, |timeout| attempt.started_at.plus(timeout));
        latest = latest.max(Some(ended.max(deadline)));
    }
    latest
}

/// Whether two calls carry the same values in the arguments that are to be unique, so that a find cannot tell them apart.
pub(crate) fn are_rivals(call: &CallRecord, other: &CallRecord, unique: &[String]) -> bool {
    call.call_id != other.call_id
        && call.name == other.name
        && other.attempt > 0
        && !unique.is_empty()
        && unique.iter().all(|name| call.arguments.get(name) == other.arguments.get(name))
}

/// The value at a path of names joined by dots; the empty path is the value itself.
fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').filter(|name| !name.is_empty()).try_fold(value, |value, name| value.get(name))
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn matches(pattern: &str, text: &str) -> bool {
    regex::Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text))
}

fn shown(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use ua_core::FieldIs;

    use super::*;

    fn enquiry(found: &FoundRule, absent: Option<AbsentRule>) -> Enquiry {
        Enquiry {
            tool: ToolName::qualified(ua_core::ToolNamespace::Mcp, "tracker", "list_tickets"),
            arguments: Map::new(),
            expected: "k1".to_owned(),
            found: found.clone(),
            absent,
            given_up: None,
            wait: Duration::ZERO,
        }
    }

    fn says(answer: &Value) -> Outcome {
        let result = json!({"content": [{"type": "text", "text": answer.to_string()}]});
        Outcome::Raw(RawReply::ToolResult { result })
    }

    fn reports(text: &str) -> Outcome {
        let result = json!({"isError": true, "content": [{"type": "text", "text": text}]});
        Outcome::Raw(RawReply::ToolResult { result })
    }

    fn in_bodies() -> FoundRule {
        FoundRule {
            items: "tickets".to_owned(),
            field: "body".to_owned(),
            value: "{key}".to_owned(),
            contains: true,
            id: Some("number".to_owned()),
        }
    }

    /// `found`, `absent` or `unclear`, for tables.
    fn name(finding: &Finding) -> &'static str {
        match finding {
            Finding::Found { .. } => "found",
            Finding::Absent => "absent",
            Finding::Unclear { .. } => "unclear",
        }
    }

    #[test]
    fn a_list_shows_the_call_or_proves_its_absence_or_neither() {
        let absent = AbsentRule {
            items_below: Some(2),
            complete: Some(FieldIs { field: "page.more".to_owned(), equals: json!(false) }),
            error: Some("(?i)no such project".to_owned()),
            text: None,
        };
        let enquiry = enquiry(&in_bodies(), Some(absent));
        let item = |body: &str| json!({"number": 7, "body": body});
        let page = |tickets: Value, more: bool| says(&json!({"tickets": tickets, "page": {"more": more}}));
        let table = [
            (page(json!([item("a"), item("mark k1")]), true), "found"),
            (page(json!([item("a")]), false), "absent"),
            (page(json!([]), false), "absent"),
            (page(json!([]), true), "unclear"),
            (page(json!([item("a"), item("b")]), false), "unclear"),
            (page(json!({"body": "a"}), false), "unclear"),
            (says(&json!({"tickets": []})), "unclear"),
            (says(&json!({"page": {"more": false}})), "unclear"),
            (says(&json!("hello")), "unclear"),
            (reports("No such project"), "absent"),
            (reports("rate limited"), "unclear"),
            (Outcome::Raw(RawReply::RpcError { code: -32601, message: "No such project".into() }), "unclear"),
            (Outcome::Raw(RawReply::HttpStatus { status: 404, body: "No such project".into() }), "unclear"),
            (Outcome::Lost { why: "cut".into() }, "unclear"),
            (Outcome::NotSent { why: "down".into() }, "unclear"),
        ];
        for (outcome, expected) in table {
            assert_eq!(name(&enquiry.read(&outcome)), expected, "{outcome:?}");
        }
        let found = enquiry.read(&page(json!([item("k1")]), false));
        assert_eq!(found, Finding::Found { id: Some("7".to_owned()), item: item("k1") });
    }

    #[test]
    fn one_thing_is_there_or_an_error_says_that_it_is_not() {
        let found = FoundRule { items: "event".into(), field: "id".into(), contains: false, ..in_bodies() };
        let absent = AbsentRule { error: Some("not found".into()), ..AbsentRule::default() };
        let enquiry = enquiry(&found, Some(absent));
        assert_eq!(name(&enquiry.read(&says(&json!({"event": {"id": "k1"}})))), "found");
        assert_eq!(name(&enquiry.read(&says(&json!({"event": {"id": "k1x"}})))), "unclear");
        assert_eq!(name(&enquiry.read(&reports("Event not found"))), "absent");
    }

    #[test]
    fn without_a_rule_about_absence_nothing_is_absent() {
        let enquiry = enquiry(&in_bodies(), None);
        assert_eq!(name(&enquiry.read(&says(&json!({"tickets": []})))), "unclear");
    }

    #[test]
    fn plain_text_is_read_by_the_whole() {
        let found = FoundRule { items: String::new(), field: String::new(), id: None, ..in_bodies() };
        let absent = AbsentRule { text: Some("^nothing".into()), ..AbsentRule::default() };
        let enquiry = enquiry(&found, Some(absent));
        let text = |text: &str| {
            Outcome::Raw(RawReply::ToolResult { result: json!({"content": [{"type": "text", "text": text}]}) })
        };
        assert_eq!(name(&enquiry.read(&text("sent with mark k1"))), "found");
        assert_eq!(name(&enquiry.read(&text("nothing here"))), "absent");
        assert_eq!(name(&enquiry.read(&text("hm"))), "unclear");
    }

    #[test]
    fn absence_counts_only_from_its_moment_on() {
        let at = |seconds: u64| Timestamp::from_millis(0).plus(Duration::from_secs(seconds));
        let asked = |at: Timestamp, conclusive_from| Asked {
            finding: Finding::Absent,
            tool: "t".to_owned(),
            at,
            conclusive_from,
        };
        assert!(asked(at(10), Some(at(10))).proves_absence());
        assert!(!asked(at(9), Some(at(10))).proves_absence());
        assert!(!asked(at(99), None).proves_absence());
    }
}
