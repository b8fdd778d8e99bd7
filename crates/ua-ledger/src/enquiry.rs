//! Asking afterwards: what a declared probe asks about one call, and what its answer proves.
//!
//! Durable Jobs v1 spec §8.3. Pure. An [`Enquiry`] is proof that the tool it names only looks, so asking needs no permit and may be
//! repeated. Invariants: *found* needs a value that only this call can have left behind, or the one entry that has the call's values and
//! was made when it was sent; *absent* needs a complete answer of the expected shape, without an entry that may be the call's with its mark cut
//! off, and counts only from [`Asked::conclusive_from`];
//! everything else is unclear.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};
use ua_core::{
    AbsentRule, CallId, CallPolicy, CallStatus, Destination, FoundBy, FoundRule, Outcome, ProbePolicy, RawReply, Seen,
    Settlement, SideEffectClass, TemplateError, Time, Timestamp, ToolName, ToolSpec, Values, Wanted, Window,
    is_withheld, items_at, lies_in, plain_text, template_uses, value_at,
};
use ua_store::{AttemptRecord, CallRecord};

use crate::elsewhere::elsewhere;
use crate::interpret::{interpret, result_text};
use crate::unmarked::OwnWords;

/// Why nothing can be asked about a call, as a clause: "…, because …".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unaskable {
    /// The tool that the probe names is not a read.
    #[error("the probe's tool `{tool}` is classified as {class}, and only a read_only one may be asked")]
    NotReadOnly {
        /// The tool.
        tool: String,
        /// Its class.
        class: SideEffectClass,
    },
    /// The call was never sent, so there is nothing to ask about.
    #[error("it was never sent")]
    NeverSent,
    /// The probe is about calls of this tool that do something else.
    #[error("the probe is for calls whose `{argument}` is another")]
    NotAbout {
        /// The argument that differs.
        argument: String,
    },
    /// Whoever would be asked is not who got the call, and does not show what that one did.
    #[error("{why}")]
    Elsewhere {
        /// What is another one now.
        why: String,
    },
    /// An argument of the call is not stored as it was sent.
    #[error("its argument `{argument}` held a secret, which is not stored")]
    Withheld {
        /// The argument.
        argument: String,
    },
    /// A template has no value for this call.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// What the probe asks for is not a set of arguments.
    #[error("the probe's arguments for `{tool}` are not a table")]
    NoArguments {
        /// The tool.
        tool: String,
    },
}

/// A question to a read-only tool about one call, of where the call went.
#[derive(Debug, Clone, PartialEq)]
pub struct Enquiry {
    tool: ToolName,
    arguments: Map<String, Value>,
    /// Where the call went, of a tool of the same server.
    destination: Option<Destination>,
    /// Whether another server is asked: nobody knows where that one looked when the call was sent, so it can show the call and not its absence.
    is_of_another_server: bool,
    looked_for: LookedFor,
    /// What the call said, for entries that lack its mark.
    own: OwnWords,
    found: FoundRule,
    absent: Option<AbsentRule>,
    first_sent: Timestamp,
    given_up: Option<GivenUp>,
    wait: Duration,
}

/// What an item has to be to be the call's.
#[derive(Debug, Clone, PartialEq)]
enum LookedFor {
    /// It has something of the call's own.
    Mark { field: String, value: String, contains: bool, by: String },
    /// It has the call's values, and was made when the call was sent.
    Values { wanted: Wanted, names: String },
}

/// What an enquiry came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum Finding {
    /// It happened.
    Found {
        /// The other side's name for it.
        id: Option<String>,
        /// The item that shows it.
        item: Value,
        /// By what the item was known, as a clause: `by its key`.
        by: String,
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
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Asked {
    /// What came of it.
    #[serde(flatten)]
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

    /// The same, where a call may have left behind what was found that is not the one that was asked about.
    #[must_use]
    pub fn beside(mut self, other: &CallId) -> Self {
        if matches!(self.finding, Finding::Found { .. }) {
            let why = format!("`{}` shows something, but call {other} may have left it behind", self.tool);
            self.finding = Finding::Unclear { why };
        }
        self
    }

    /// Nothing could be asked.
    pub fn not_at_all(why: String, at: Timestamp) -> Self {
        Self { finding: Finding::Unclear { why }, tool: String::new(), at, conclusive_from: None }
    }
}

impl Enquiry {
    /// Fills in `probe` for `call`, to be asked of `tool`, about which `its_policy` was decided. `goes` is where the call would be sent now.
    pub fn about(
        call: &CallRecord,
        attempts: &[AttemptRecord],
        probe: &ProbePolicy,
        tool: &ToolSpec,
        its_policy: &CallPolicy,
        goes: Option<&Destination>,
    ) -> Result<Self, Unaskable> {
        if its_policy.class.has_effect() {
            return Err(Unaskable::NotReadOnly { tool: tool.name.raw.clone(), class: its_policy.class });
        }
        let first_sent_at = first_sent(attempts).ok_or(Unaskable::NeverSent)?;
        if let Some(why) = elsewhere(call, attempts, goes) {
            return Err(Unaskable::Elsewhere { why });
        }
        let nothing = Map::new();
        let arguments = call.arguments.as_object().unwrap_or(&nothing);
        // Asked for without its secret, the effect would not be found, and that would be taken for a proof.
        let is_without = |(name, value): &(&String, &Value)| is_withheld(&json!([name, value]));
        if let Some((argument, _)) = arguments.iter().find(is_without) {
            return Err(Unaskable::Withheld { argument: argument.clone() });
        }
        let values = Values { key: key_that_arrived(call), arguments, first_sent_at: Some(first_sent_at) };
        if let Some(argument) = values.differs_from(&probe.when) {
            return Err(Unaskable::NotAbout { argument: argument.to_owned() });
        }
        let Value::Object(filled) = values.value(&probe.arguments)? else {
            return Err(Unaskable::NoArguments { tool: tool.name.raw.clone() });
        };
        let wait = horizon(&call.policy).unwrap_or_default() + probe.settle;
        Ok(Self {
            tool: tool.name.clone(),
            arguments: filled,
            is_of_another_server: tool.name.server != call.called_tool().server,
            destination: goes.filter(|_| tool.name.server == call.called_tool().server).cloned(),
            looked_for: LookedFor::by(&probe.found.by, &values)?,
            own: OwnWords::of(arguments, &call.policy, probe),
            found: probe.found.clone(),
            absent: probe.absent.clone(),
            first_sent: first_sent_at,
            given_up: given_up_at(call, attempts),
            wait,
        })
    }

    /// The tool to ask.
    pub fn tool(&self) -> &ToolName {
        &self.tool
    }

    /// Where it was decided to ask and as whom, if its tool is of the server that got the call; nobody else may be asked. `None` where nobody can
    /// say.
    pub fn destination(&self) -> Option<&Destination> {
        self.destination.as_ref()
    }

    /// What to ask it.
    pub fn arguments(&self) -> &Map<String, Value> {
        &self.arguments
    }

    /// What the tool's answer to a question asked at `time` proves. *Absent* proves something from then on: the latest deadline of an attempt,
    /// or the moment its loss was stored if that is later, plus the horizon and the settle time.
    pub fn judge(&self, outcome: &Outcome, time: &Time) -> Asked {
        let conclusive_from =
            self.given_up.as_ref().map(|given_up| given_up.end(self.wait, |from, span| time.end_of(from, span)));
        Asked { finding: self.read(outcome, time.now()), tool: self.tool.raw.clone(), at: time.now(), conclusive_from }
    }

    /// What the tool's answer, given at `now`, proves, if *absent* counts then.
    pub fn read(&self, outcome: &Outcome, now: Timestamp) -> Finding {
        match self.read_reply(outcome, now) {
            Finding::Absent if self.is_of_another_server => self.not_enough(
                "another tool server than the call's was asked, which may look elsewhere than when it was sent",
            ),
            finding @ (Finding::Absent | Finding::Found { .. } | Finding::Unclear { .. }) => finding,
        }
    }

    fn read_reply(&self, outcome: &Outcome, now: Timestamp) -> Finding {
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
            (RawReply::ToolResult { result }, CallStatus::Succeeded) => self.read_result(result, now),
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
                | RawReply::Refused { .. }
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

    fn read_result(&self, result: &Value, now: Timestamp) -> Finding {
        let text = result_text(result);
        let structured = result.get("structuredContent").filter(|value| !value.is_null()).cloned();
        let readings = match &self.found.entry {
            Some(entry) => vec![entries_of(entry, &text)],
            None => structured.into_iter().chain(serde_json::from_str(&text).ok()).collect(),
        };
        // Of the two forms of an answer, what is known by its values has to be in each that has the list.
        let has_list = |answer: &Value| items_at(answer, &self.found.items).is_some_and(|(_, is_list)| is_list);
        let is_by_values = matches!(self.looked_for, LookedFor::Values { .. });
        let readings: Vec<Value> = readings.into_iter().filter(|answer| !is_by_values || has_list(answer)).collect();
        let findings: Vec<Finding> = readings.iter().map(|answer| self.read_answer(answer, now)).collect();
        let is_text_of_absence = || {
            let rule = self.absent.as_ref().and_then(|rule| rule.text.as_ref());
            rule.is_some_and(|rule| matches(rule, &text))
        };
        let is_found = |finding: &Finding| matches!(finding, Finding::Found { .. });
        match findings.iter().find(|finding| is_found(finding)) {
            Some(_) if is_by_values && !findings.iter().all(is_found) => {
                let why = format!("`{}` says different things in the two forms of its answer", self.tool.tool);
                return Finding::Unclear { why };
            }
            Some(found) => return found.clone(),
            None => {}
        }
        let is_absent = |finding: &Finding| *finding == Finding::Absent;
        if findings.iter().any(is_absent) && (!is_by_values || findings.iter().all(is_absent)) {
            return Finding::Absent;
        }
        if self.found.entry.is_some() && readings.iter().all(|items| items.as_array().is_some_and(Vec::is_empty)) {
            if is_text_of_absence() {
                return Finding::Absent;
            }
            if text.trim().is_empty() {
                return self.not_enough("it lists nothing, which the probe takes for no proof");
            }
            return self.unreadable(&text);
        }
        if let Some(unclear) = findings.into_iter().find(|finding| !is_absent(finding)) {
            return unclear;
        }
        if is_text_of_absence() {
            return Finding::Absent;
        }
        if let LookedFor::Mark { field, by, .. } = &self.looked_for
            && self.found.items.is_empty()
            && field.is_empty()
        {
            let answer = Value::String(text.clone());
            if self.looked_for.is_in(&answer) {
                return Finding::Found { id: None, item: answer, by: by.clone() };
            }
        }
        self.unreadable(&text)
    }

    fn unreadable(&self, text: &str) -> Finding {
        Finding::Unclear { why: format!("`{}` answered what the probe cannot read: {}", self.tool.tool, shown(text)) }
    }

    fn read_answer(&self, answer: &Value, now: Timestamp) -> Finding {
        let Some((items, is_list)) = items_at(answer, &self.found.items) else {
            return Finding::Unclear {
                why: format!("the answer of `{}` has no `{}`", self.tool.tool, self.found.items),
            };
        };
        let found = |item: &Value, by: String| {
            let id = self.found.id.as_ref().and_then(|path| value_at(item, path)).map(plain_text);
            Finding::Found { id, item: item.clone(), by }
        };
        match &self.looked_for {
            LookedFor::Mark { field, by, value, .. } => {
                let is_it = |item: &&&Value| value_at(item, field).is_some_and(|field| self.looked_for.is_in(field));
                if let Some(item) = items.iter().find(is_it) {
                    return found(item, by.clone());
                }
                if let Some(why) = items.iter().find_map(|item| self.own.may_be(item, field, value)) {
                    return self.not_enough(why);
                }
            }
            LookedFor::Values { wanted, names } => match wanted.seen_in(&items, self.window(wanted, now)) {
                Seen::One { entry, made_at } => {
                    let by = format!("by its {names} and the time at which it was made ({made_at})");
                    return found(entry, by);
                }
                Seen::Unclear { why } => {
                    return Finding::Unclear { why: format!("`{}` was asked, but {why}", self.tool.tool) };
                }
                Seen::None => {}
            },
        }
        let Some(AbsentRule { items_below, complete, newest_first, .. }) = &self.absent else {
            return self.not_enough("the probe does not say what proves that it is not there");
        };
        if let LookedFor::Values { wanted, .. } = &self.looked_for {
            let window = self.window(wanted, now);
            if !wanted.were_all_before(&items, window) {
                return self.not_enough(
                    "something was made at that time, or in the day before it, that may be this in other words",
                );
            }
            if *newest_first && is_list && wanted.reaches_back(&items, window) {
                return Finding::Absent;
            }
            if *newest_first && items_below.is_none() && complete.is_none() {
                return self.not_enough("the list does not go back to before it was sent");
            }
        }
        if items_below.is_none() && complete.is_none() {
            return self.not_enough("something else is there, and the probe does not say what that proves");
        }
        if !is_list {
            return self.not_enough("it is not a list");
        }
        if items_below.is_some_and(|limit| items.len() >= limit) {
            return self.not_enough(&format!("the list has {} items and may have more", items.len()));
        }
        if complete.as_ref().is_some_and(|rule| value_at(answer, &rule.field) != Some(&rule.equals)) {
            return self.not_enough("it does not say that the list is complete");
        }
        Finding::Absent
    }

    /// When the call can have made its entry: until the other side cannot begin it any more, or now, if nobody knows since when that is so.
    fn window(&self, wanted: &Wanted, now: Timestamp) -> Window {
        let last = self.given_up.as_ref().map_or(now, |given_up| given_up.end(self.wait, Timestamp::plus));
        Window { from: self.first_sent.minus(wanted.within()), until: last.plus(wanted.within()) }
    }

    fn not_enough(&self, why: &str) -> Finding {
        Finding::Unclear { why: format!("the call is not in the answer of `{}`, but {why}", self.tool.tool) }
    }
}

impl LookedFor {
    fn by(rule: &FoundBy, values: &Values<'_>) -> Result<Self, TemplateError> {
        Ok(match rule {
            FoundBy::Mark { field, value, contains } => {
                let (arguments, uses_key) = template_uses(value)?;
                let by = if uses_key { "by its key".to_owned() } else { format!("by its {}", arguments.join(", ")) };
                Self::Mark { field: field.clone(), value: values.text(value)?, contains: *contains, by }
            }
            FoundBy::Values(rule) => Self::Values { wanted: rule.of(values)?, names: rule.names() },
        })
    }

    /// Whether what is the call's own is in a field.
    fn is_in(&self, field: &Value) -> bool {
        let Self::Mark { value, contains, .. } = self else { return false };
        match field {
            Value::String(text) if *contains => text.contains(value),
            Value::Array(items) if *contains => items.iter().any(|item| match item {
                Value::Array(_) | Value::Object(_) => lies_in(item, value),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => plain_text(item) == *value,
            }),
            Value::Object(_) if *contains => lies_in(field, value),
            Value::String(_) | Value::Number(_) => plain_text(field) == *value,
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
        }
    }
}

/// The items of an answer in prose. Some servers put a text into the answer as JSON does, in quotes and on one line.
fn entries_of(entry: &str, text: &str) -> Value {
    let unquoted = serde_json::from_str::<Value>(text).ok().and_then(|value| value.as_str().map(str::to_owned));
    let text = unquoted.as_deref().unwrap_or(text);
    let Ok(entry) = regex::Regex::new(entry) else { return Value::Null };
    let items = entry.captures_iter(text).map(|found| {
        let named = entry.capture_names().flatten();
        let fields = named.filter_map(|name| Some((name.to_owned(), Value::from(found.name(name)?.as_str()))));
        Value::Object(fields.collect())
    });
    Value::Array(items.collect())
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

/// When the attempts of a call were given up: each at the moment its end was stored, and so long after it was started as its deadline says. They are
/// kept as they are stored: the clock may have been set between two of them, and by which one each was told decides when it was.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GivenUp {
    first: (Timestamp, Duration),
    others: Vec<(Timestamp, Duration)>,
}

impl GivenUp {
    /// At this moment.
    pub(crate) fn at(moment: Timestamp) -> Self {
        Self { first: (moment, Duration::ZERO), others: Vec::new() }
    }

    /// When `span` has passed since all of them, as `end` says it of one.
    pub(crate) fn end(&self, span: Duration, end: impl Fn(Timestamp, Duration) -> Timestamp) -> Timestamp {
        let end = |(from, more): (Timestamp, Duration)| end(from, more.saturating_add(span));
        self.others.iter().fold(end(self.first), |latest, other| latest.max(end(*other)))
    }
}

/// When the last of a call's attempts was given up: the later of its deadline and the moment its end was stored. `None` while one
/// is not known to have ended.
pub(crate) fn given_up_at(call: &CallRecord, attempts: &[AttemptRecord]) -> Option<GivenUp> {
    let mut all = Vec::new();
    for attempt in attempts.iter().filter(|attempt| !attempt.never_left()) {
        all.push((attempt.ended_at?, Duration::ZERO));
        all.push((attempt.started_at, call.policy.timeout.unwrap_or_default()));
    }
    let first = all.pop()?;
    Some(GivenUp { first, others: all })
}

/// The first of the attempts of a call that may have reached the other side.
pub(crate) fn first_sent(attempts: &[AttemptRecord]) -> Option<Timestamp> {
    let sent = attempts.iter().filter(|attempt| !attempt.never_left());
    sent.map(|attempt| attempt.started_at).min()
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

    use ua_core::{FieldIs, MadeAt, SameValues, TimeForm};

    use super::*;

    fn sent() -> Timestamp {
        Timestamp::parse("2026-01-02T03:04:05Z").unwrap()
    }

    fn enquiry(found: &FoundRule, absent: Option<AbsentRule>) -> Enquiry {
        let arguments = json!({"title": "Report"});
        let values = Values { key: Some("k1"), arguments: arguments.as_object().unwrap(), first_sent_at: Some(sent()) };
        Enquiry {
            tool: ToolName::qualified(ua_core::ToolNamespace::Mcp, "tracker", "list_tickets"),
            arguments: Map::new(),
            destination: None,
            is_of_another_server: false,
            looked_for: LookedFor::by(&found.by, &values).unwrap(),
            own: OwnWords::of(values.arguments, &CallPolicy::unclassified(), &looking()),
            found: found.clone(),
            absent,
            first_sent: sent(),
            given_up: None,
            wait: Duration::ZERO,
        }
    }

    /// A probe that names no argument of the call.
    fn looking() -> ProbePolicy {
        ProbePolicy {
            tool: "list_tickets".to_owned(),
            arguments: json!({}),
            when: Map::new(),
            found: in_bodies(),
            absent: None,
            unique_arguments: Vec::new(),
            settle: Duration::ZERO,
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
        marked("tickets", "body", true)
    }

    fn marked(items: &str, field: &str, contains: bool) -> FoundRule {
        let by = FoundBy::Mark { field: field.to_owned(), value: "{key}".to_owned(), contains };
        FoundRule { items: items.to_owned(), entry: None, by, id: Some("number".to_owned()) }
    }

    fn by_values(items: &str, entry: Option<&str>, form: TimeForm) -> FoundRule {
        let rule = SameValues {
            same: [("title".to_owned(), json!("{arg.title}"))].into(),
            holds: [].into(),
            made: MadeAt { field: "made".to_owned(), form, within: Duration::from_mins(1) },
        };
        FoundRule {
            items: items.to_owned(),
            entry: entry.map(str::to_owned),
            by: FoundBy::Values(rule),
            id: Some("number".to_owned()),
        }
    }

    /// What an answer says, asked a minute after the call was sent.
    fn read(enquiry: &Enquiry, outcome: &Outcome) -> Finding {
        enquiry.read(outcome, sent().plus(Duration::from_mins(1)))
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
    fn another_server_shows_a_call_and_never_its_absence() {
        let absent = AbsentRule { items_below: Some(9), ..AbsentRule::default() };
        let mut enquiry = enquiry(&in_bodies(), Some(absent));
        let empty = says(&json!({"tickets": []}));
        assert_eq!(name(&read(&enquiry, &empty)), "absent");
        enquiry.is_of_another_server = true;
        assert_eq!(name(&read(&enquiry, &empty)), "unclear");
        assert_eq!(name(&read(&enquiry, &says(&json!({"tickets": [{"body": "k1"}]})))), "found");
    }

    #[test]
    fn a_list_shows_the_call_or_proves_its_absence_or_neither() {
        let absent = AbsentRule {
            items_below: Some(2),
            complete: Some(FieldIs { field: "page.more".to_owned(), equals: json!(false) }),
            error: Some("(?i)no such project".to_owned()),
            ..AbsentRule::default()
        };
        let enquiry = enquiry(&in_bodies(), Some(absent));
        let item = |body: &str| json!({"number": 7, "body": body});
        let page = |tickets: Value, more: bool| says(&json!({"tickets": tickets, "page": {"more": more}}));
        let table = [
            (page(json!([item("a"), item("mark k1")]), true), "found"),
            (page(json!([item("a")]), false), "absent"),
            // What may be the call's, with the mark cut off.
            (page(json!([{"number": 7, "title": "Report"}]), false), "unclear"),
            (page(json!([{"number": 7, "title": "Report", "body": null}]), false), "unclear"),
            (page(json!([{"number": 7, "title": "Other"}]), false), "absent"),
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
            (Outcome::Raw(RawReply::http(404, "No such project")), "unclear"),
            (Outcome::Lost { why: "cut".into() }, "unclear"),
            (Outcome::NotSent { why: "down".into() }, "unclear"),
        ];
        for (outcome, expected) in table {
            assert_eq!(name(&read(&enquiry, &outcome)), expected, "{outcome:?}");
        }
        let found = read(&enquiry, &page(json!([item("k1")]), false));
        let by = "by its key".to_owned();
        assert_eq!(found, Finding::Found { id: Some("7".to_owned()), item: item("k1"), by });
    }

    #[test]
    fn one_thing_is_there_or_an_error_says_that_it_is_not() {
        let found = marked("event", "id", false);
        let absent = AbsentRule { error: Some("not found".into()), ..AbsentRule::default() };
        let enquiry = enquiry(&found, Some(absent));
        assert_eq!(name(&read(&enquiry, &says(&json!({"event": {"id": "k1"}})))), "found");
        assert_eq!(name(&read(&enquiry, &says(&json!({"event": {"id": "k1x"}})))), "unclear");
        assert_eq!(name(&read(&enquiry, &reports("Event not found"))), "absent");
    }

    #[test]
    fn without_a_rule_about_absence_nothing_is_absent() {
        let enquiry = enquiry(&in_bodies(), None);
        assert_eq!(name(&read(&enquiry, &says(&json!({"tickets": []})))), "unclear");
    }

    #[test]
    fn plain_text_is_read_by_the_whole() {
        let found = FoundRule { id: None, ..marked("", "", true) };
        let absent = AbsentRule { text: Some("^nothing".into()), ..AbsentRule::default() };
        let enquiry = enquiry(&found, Some(absent));
        let text = |text: &str| {
            Outcome::Raw(RawReply::ToolResult { result: json!({"content": [{"type": "text", "text": text}]}) })
        };
        assert_eq!(name(&read(&enquiry, &text("sent with mark k1"))), "found");
        assert_eq!(name(&read(&enquiry, &text("nothing here"))), "absent");
        assert_eq!(name(&read(&enquiry, &text("hm"))), "unclear");
    }

    #[test]
    fn ordinary_values_show_the_call_with_the_time_alone_and_as_the_only_ones() {
        let absent = AbsentRule { items_below: Some(4), ..AbsentRule::default() };
        let enquiry = enquiry(&by_values("issues", None, TimeForm::Rfc3339), Some(absent));
        let issue = |title: &str, made: &str| json!({"number": 7, "title": title, "made": format!("2026-01-{made}Z")});
        let ours = || issue("Report", "02T03:04:06");
        let issues = |issues: Value| says(&json!({"issues": issues}));
        let lists = |a: Value, b: Value| {
            let text = json!({"issues": a}).to_string();
            let result = json!({"content": [{"type": "text", "text": text}], "structuredContent": {"issues": b}});
            Outcome::Raw(RawReply::ToolResult { result })
        };
        let table = [
            (issues(json!([ours()])), "found"),
            (issues(json!([issue("Other", "02T03:04:06"), ours()])), "found"),
            (issues(json!([issue("Report", "01T01:04:06"), ours()])), "found"),
            (issues(json!([ours(), ours()])), "unclear"),
            (issues(json!([issue("Report", "02T02:04:06")])), "unclear"),
            (issues(json!([issue("Report", "02T03:09:06")])), "unclear"),
            (issues(json!([issue("Report", "01T01:04:06")])), "absent"),
            (issues(json!([issue("Other", "01T02:54:06")])), "absent"),
            // A clock that is ahead by ten minutes, and the words of another entry.
            (issues(json!([issue("Other", "02T02:54:06")])), "unclear"),
            (issues(json!([issue("Report!", "02T03:04:06")])), "unclear"),
            (issues(json!([issue("Other", "02T03:00:06")])), "unclear"),
            (issues(json!([])), "absent"),
            (issues(json!(["a", "b", "c", "d"].map(|title| issue(title, "01T01:04:06")))), "unclear"),
            (issues(json!({"title": "Report"})), "unclear"),
            (lists(json!([ours()]), json!([ours()])), "found"),
            (lists(json!([ours()]), json!([])), "unclear"),
            (lists(json!([]), json!([ours(), ours()])), "unclear"),
            (reports("no such repository"), "unclear"),
        ];
        for (outcome, expected) in table {
            assert_eq!(name(&read(&enquiry, &outcome)), expected, "{outcome:?}");
        }
        let Finding::Found { id, by, .. } = read(&enquiry, &issues(json!([ours()]))) else { panic!("it is there") };
        assert_eq!(id.as_deref(), Some("7"));
        assert_eq!(by, "by its `title` and the time at which it was made (2026-01-02T03:04:06.000Z)");
    }

    #[test]
    fn a_list_in_order_needs_no_end() {
        let absent = AbsentRule { newest_first: true, ..AbsentRule::default() };
        let enquiry = enquiry(&by_values("", None, TimeForm::Rfc3339), Some(absent));
        let list = |made: &[&str]| {
            let issue = |made: &&str| json!({"title": "Other", "made": format!("2026-01-{made}Z")});
            says(&json!(made.iter().map(issue).collect::<Vec<_>>()))
        };
        let table = [
            (list(&["01T02:50:00", "01T02:40:00"]), "absent"),
            (list(&["01T02:40:00", "01T02:50:00"]), "unclear"),
            (list(&["02T03:04:30", "01T02:40:00"]), "unclear"),
            (list(&["02T02:00:00", "01T02:40:00"]), "unclear"),
            (list(&[]), "unclear"),
        ];
        for (outcome, expected) in table {
            assert_eq!(name(&read(&enquiry, &outcome)), expected, "{outcome:?}");
        }
    }

    #[test]
    fn an_answer_in_prose_is_read_entry_by_entry() {
        let entry = r"(?m)^- (?P<title>.+) \(ID: (?P<number>\d+), (?P<made>\d+)\)$";
        let absent = AbsentRule { text: Some("^No tickets".into()), ..AbsentRule::default() };
        let enquiry = enquiry(&by_values("", Some(entry), TimeForm::Unix), Some(absent));
        let text = |text: &str| {
            Outcome::Raw(RawReply::ToolResult { result: json!({"content": [{"type": "text", "text": text}]}) })
        };
        let ours = "- Other (ID: 1, 1767323046)\n- Report (ID: 2, 1767323046)";
        assert_eq!(name(&read(&enquiry, &text(ours))), "found");
        let Finding::Found { id, .. } = read(&enquiry, &text(&json!(ours).to_string())) else {
            panic!("some servers put a text in quotes")
        };
        assert_eq!(id.as_deref(), Some("2"));
        assert_eq!(
            name(&read(&enquiry, &text("- Report (ID: 1, 1767323046)\n- Report (ID: 2, 1767323047)"))),
            "unclear"
        );
        assert_eq!(name(&read(&enquiry, &text("- Other (ID: 1, 1767323046)"))), "unclear");
        assert_eq!(name(&read(&enquiry, &text("No tickets yet"))), "absent");
        assert_eq!(name(&read(&enquiry, &text("I found Report for you"))), "unclear");
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
