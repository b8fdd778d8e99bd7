//! What shows a call of which nothing of its own could be left behind: an entry with the values that the call was sent with, made when it
//! was sent.
//!
//! Pure. Equal values alone prove nothing, since others write the same words; so an entry counts only if it also says when it was made, if
//! that is within the time in which the call can have made it, and if it is the only such entry. Whatever is less is for a person to
//! judge. That it is *absent* is more than that no entry has the values, since other sides cut and clean what they are given: no entry at all may
//! be of that time, and none with the values of that day.
//! Proved by: the property test below; `ua-ledger`'s tests of enquiries.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::env::Timestamp;
use crate::probe::{CLOCK_SLACK, TemplateError, Values, plain_text, value_at};
use crate::status::text_enum;

/// How far an entry's time has to be away from the call's for the entry to be somebody else's beyond doubt.
pub const OTHERS_AFTER: Duration = Duration::from_hours(24);

/// The entry that a call made, by its values and its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SameValues {
    /// Fields of the entry, as paths, and templates of what each has to be. An object has to have what the template has, and may have more.
    pub same: BTreeMap<String, Value>,
    /// Fields of the entry, as paths, and templates of a text that lies in each, for what the other side wraps or puts among others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub holds: BTreeMap<String, String>,
    /// Where the entry says when it was made.
    pub made: MadeAt,
}

/// Where an entry says when it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeAt {
    /// The field, as a path.
    pub field: String,
    /// How it is written there.
    pub form: TimeForm,
    /// How much earlier than the first attempt, and later than the last one can have begun, the entry may say that it was made: for clocks
    /// that disagree, and for times that are cut off.
    pub within: Duration,
}

text_enum! {
    /// How an entry writes when it was made.
    TimeForm {
        /// `2026-11-23T10:00:00Z`, with any offset.
        Rfc3339 = "rfc3339",
        /// `Mon, 23 Nov 2026 10:00:00 +0000`, as mails have it.
        Rfc2822 = "rfc2822",
        /// Seconds since 1970, a number or a text; fractions are allowed.
        Unix = "unix",
        /// Milliseconds since 1970, a number or a text.
        UnixMs = "unix_ms",
        /// An id of Discord, which begins with the milliseconds since 2015.
        Snowflake = "snowflake",
        /// An id of 24 hexadecimal digits that begins with the seconds since 1970.
        ObjectId = "object_id",
    }
}

impl TimeForm {
    /// The time that a value says; `None` where it says none in this form.
    pub fn read(self, value: &Value) -> Option<Timestamp> {
        let text = match value {
            Value::String(text) => text.trim().to_owned(),
            Value::Number(number) => number.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
        };
        let digits = || text.parse::<i64>().ok().filter(|number| *number > 0);
        match self {
            Self::Rfc3339 => Timestamp::parse(&text),
            Self::Rfc2822 => Timestamp::parse_mail_date(&text),
            Self::Unix => {
                let (seconds, fraction) = text.split_once('.').unwrap_or((&text, ""));
                let seconds = seconds.parse::<i64>().ok().filter(|number| *number > 0)?;
                let millis: String = fraction.chars().chain("000".chars()).take(3).collect();
                let millis = millis.bytes().all(|byte| byte.is_ascii_digit()).then_some(millis)?;
                Some(Timestamp::from_millis(seconds.checked_mul(1000)?.checked_add(millis.parse().ok()?)?))
            }
            Self::UnixMs => digits().map(Timestamp::from_millis),
            Self::Snowflake => digits().map(|id| Timestamp::from_millis((id >> 22) + 1_420_070_400_000)),
            Self::ObjectId => {
                let is_id = text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
                let seconds = is_id.then(|| i64::from_str_radix(&text[..8], 16).ok()).flatten()?;
                Some(Timestamp::from_millis(seconds * 1000))
            }
        }
    }
}

/// When a call can have made its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// From then on.
    pub from: Timestamp,
    /// Until then.
    pub until: Timestamp,
}

/// What an answer says about an entry with a call's values.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen<'a> {
    /// One entry with these values was made in that time.
    One {
        /// The entry.
        entry: &'a Value,
        /// When it was made.
        made_at: Timestamp,
    },
    /// No entry has these values, or those that have were made on another day.
    None,
    /// That entries have these values proves neither.
    Unclear {
        /// Why not, as a clause.
        why: String,
    },
}

/// The values of one call that an entry has to have.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    same: Vec<(String, Value)>,
    holds: Vec<(String, String)>,
    made: MadeAt,
    /// What the call itself said of that, in its arguments.
    said: Vec<String>,
}

impl SameValues {
    /// The values of a call.
    ///
    /// # Errors
    /// When the call lacks what a template names, or says nothing in it.
    pub fn of(&self, values: &Values<'_>) -> Result<Wanted, TemplateError> {
        let same = self.same.iter().map(|(path, template)| Ok((path.clone(), values.value(template)?)));
        let holds = self.holds.iter().map(|(path, template)| Ok((path.clone(), values.text(template)?)));
        let mut said = Vec::new();
        for named in self.templates().filter_map(|template| values.named_by(template).ok()).flatten() {
            scalars(named, &mut said);
        }
        said.retain(|text| !text.is_empty());
        if said.is_empty() {
            let template = self.templates().collect::<Vec<_>>().join(", ");
            return Err(TemplateError::Missing { template, what: "values that could be compared".to_owned() });
        }
        Ok(Wanted {
            same: same.collect::<Result<_, TemplateError>>()?,
            holds: holds.collect::<Result<_, TemplateError>>()?,
            made: self.made.clone(),
            said,
        })
    }

    /// The texts that are filled in.
    pub fn templates(&self) -> impl Iterator<Item = &str> {
        let mut texts = Vec::new();
        self.same.values().for_each(|value| texts_of(value, &mut texts));
        texts.into_iter().chain(self.holds.values().map(String::as_str))
    }

    /// The fields that are compared, for people.
    pub fn names(&self) -> String {
        let shown = |name: &String| if name.is_empty() { "contents".to_owned() } else { format!("`{name}`") };
        let names: Vec<String> = self.same.keys().chain(self.holds.keys()).map(shown).collect();
        names.join(", ")
    }
}

impl Wanted {
    /// How far an entry's time may lie outside of the call's.
    pub fn within(&self) -> Duration {
        self.made.within
    }

    /// What `entries`, in any order, say about the call that can have made its entry in `window`.
    pub fn seen_in<'a>(&self, entries: &[&'a Value], window: Window) -> Seen<'a> {
        let mut made_then = Vec::new();
        let (mut without_time, mut other) = (false, None);
        for entry in entries.iter().copied().filter(|entry| self.is_like(entry)) {
            match self.made_at(entry) {
                Some(made_at) if window.from <= made_at && made_at <= window.until => made_then.push((entry, made_at)),
                Some(made_at) => {
                    let is_others =
                        made_at.plus(OTHERS_AFTER) < window.from || window.until.plus(OTHERS_AFTER) < made_at;
                    other = other.or((!is_others).then_some(made_at));
                }
                None => without_time = true,
            }
        }
        let unclear = |why: String| Seen::Unclear { why };
        match made_then.as_slice() {
            _ if without_time => unclear("an entry with the same values does not say when it was made".to_owned()),
            &[(entry, made_at)] => Seen::One { entry, made_at },
            &[] => other.map_or(Seen::None, |made_at| {
                unclear(format!(
                    "an entry with the same values was made at {made_at}, which is not when the call was sent"
                ))
            }),
            several => unclear(format!("{} entries with the same values were made in that time", several.len())),
        }
    }

    /// Whether every entry, whatever its values, was made before the call can have made one, with a day for clocks that disagree. If one
    /// was not, it may be the call's in other words: other sides cut, clean and translate what they are given.
    pub fn were_all_before(&self, entries: &[&Value], window: Window) -> bool {
        let before = window.from.minus(CLOCK_SLACK);
        entries.iter().all(|entry| self.made_at(entry).is_some_and(|made_at| made_at < before))
    }

    /// Whether entries are in the order in which they were made, the newest first, and go back to before the call can have made one: then none of
    /// that time is missing.
    pub fn reaches_back(&self, entries: &[&Value], window: Window) -> bool {
        let times: Option<Vec<Timestamp>> = entries.iter().map(|entry| self.made_at(entry)).collect();
        times.is_some_and(|times| {
            times.is_sorted_by(|later, earlier| later >= earlier)
                && times.last().is_some_and(|last| *last < window.from.minus(CLOCK_SLACK))
        })
    }

    fn made_at(&self, entry: &Value) -> Option<Timestamp> {
        value_at(entry, &self.made.field).and_then(|value| self.made.form.read(value))
    }

    /// Whether an entry has all the values.
    fn is_like(&self, entry: &Value) -> bool {
        self.same.iter().all(|(path, wanted)| value_at(entry, path).is_some_and(|value| covers(value, wanted)))
            && self.holds.iter().all(|(path, wanted)| value_at(entry, path).is_some_and(|value| lies_in(value, wanted)))
    }

    /// Whether `arguments` of another call carry all that this one said, wherever they stand, so that an entry might as well be that call's.
    pub fn may_be_of(&self, arguments: &Value) -> bool {
        let mut carried = Vec::new();
        scalars(arguments, &mut carried);
        self.said.iter().all(|said| carried.iter().any(|other| other.contains(said.as_str())))
    }
}

/// Whether a value of an entry is what was wanted; an object may have more.
fn covers(value: &Value, wanted: &Value) -> bool {
    match (value, wanted) {
        (Value::Object(fields), Value::Object(wanted)) => {
            wanted.iter().all(|(name, wanted)| fields.get(name).is_some_and(|value| covers(value, wanted)))
        }
        (Value::Array(items), Value::Array(wanted)) => {
            items.len() == wanted.len() && items.iter().zip(wanted).all(|(value, wanted)| covers(value, wanted))
        }
        (Value::String(_) | Value::Number(_), Value::String(_) | Value::Number(_)) => {
            smooth(&plain_text(value)) == smooth(&plain_text(wanted))
        }
        (Value::Bool(value), Value::Bool(wanted)) => value == wanted,
        (Value::Null, Value::Null) => true,
        _ => false,
    }
}

/// Whether a text somewhere in a value has what is looked for: a text that is kept in pieces, or one of a list.
pub fn lies_in(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => smooth(text).contains(&smooth(wanted)),
        Value::Array(items) => items.iter().any(|item| lies_in(item, wanted)),
        Value::Object(fields) => fields.values().any(|field| lies_in(field, wanted)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Every text in a value of a rule.
fn texts_of<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Array(items) => items.iter().for_each(|item| texts_of(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| texts_of(field, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Every text and number in a value, without what providers change about the space around a text.
fn scalars(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(_) | Value::Number(_) => found.push(smooth(&plain_text(value))),
        Value::Array(items) => items.iter().for_each(|item| scalars(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| scalars(field, found)),
        Value::Null | Value::Bool(_) => {}
    }
}

/// A text with the line ends of this machine and no space around it: providers keep neither.
fn smooth(text: &str) -> String {
    text.replace("\r\n", "\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const SENT: i64 = 1_767_323_045_000;

    fn wanted() -> Wanted {
        let rule = SameValues {
            same: BTreeMap::from([("title".to_owned(), json!("{arg.title}"))]),
            holds: BTreeMap::from([("body".to_owned(), "{arg.body}".to_owned())]),
            made: MadeAt { field: "created".to_owned(), form: TimeForm::Unix, within: Duration::from_mins(1) },
        };
        let Value::Object(arguments) = json!({"title": "Report", "body": "All is well."}) else {
            unreachable!("it is an object")
        };
        rule.of(&Values { key: None, arguments: &arguments, first_sent_at: None }).unwrap()
    }

    fn window() -> Window {
        let sent = Timestamp::from_millis(SENT);
        Window { from: sent.minus(Duration::from_mins(1)), until: sent.plus(Duration::from_mins(2)) }
    }

    fn entry(title: &str, body: &str, seconds_after: i64) -> Value {
        json!({"title": title, "body": body, "created": SENT / 1000 + seconds_after})
    }

    fn refs(entries: &[Value]) -> Vec<&Value> {
        entries.iter().collect()
    }

    /// `one`, `none` or `unclear`, for tables.
    fn name(seen: &Seen<'_>) -> &'static str {
        match seen {
            Seen::One { .. } => "one",
            Seen::None => "none",
            Seen::Unclear { .. } => "unclear",
        }
    }

    #[test]
    fn one_entry_with_the_values_and_the_time_is_the_calls_and_nothing_less_is() {
        let ours = || entry("Report", "<p>All is well.</p>", 1);
        let untimed = json!({"title": "Report", "body": "All is well."});
        let day = 24 * 3600;
        let table = [
            (vec![ours()], "one"),
            (vec![entry("Report", "All is well.", -59)], "one"),
            (vec![ours(), entry("Report", "All is well.", -8 * day), entry("Other", "All is well.", 1)], "one"),
            (vec![ours(), entry("Report", "All is well.", -600)], "one"),
            (vec![], "none"),
            (vec![entry("Other", "All is well.", 1)], "none"),
            (vec![entry("Report", "Something else", 1)], "none"),
            (vec![entry("Report", "All is well.", -8 * day)], "none"),
            (vec![ours(), ours()], "unclear"),
            (vec![ours(), entry("Report", "All is well.", 90)], "unclear"),
            (vec![entry("Report", "All is well.", -600)], "unclear"),
            (vec![entry("Report", "All is well.", 600)], "unclear"),
            (vec![untimed.clone()], "unclear"),
            (vec![ours(), untimed], "unclear"),
            (vec![json!({"title": "Report", "body": "All is well.", "created": "yesterday"})], "unclear"),
        ];
        for (entries, expected) in table {
            assert_eq!(name(&wanted().seen_in(&refs(&entries), window())), expected, "{entries:?}");
        }
    }

    #[test]
    fn a_list_reaches_back_when_it_is_in_order_and_ends_before_the_call() {
        let at = |seconds: i64| entry("Other", "", seconds);
        let untimed = || json!({"title": "Other"});
        // The call may have made it from a minute before it was sent on, and a day more is for clocks.
        let old = |more: i64| at(-24 * 3600 - more);
        let table = [
            (vec![at(10), at(0), old(100)], true, false),
            (vec![old(100), old(200)], true, true),
            (vec![at(-400), old(100)], true, false),
            (vec![old(40), old(100)], true, false),
            (vec![at(10), old(50)], false, false),
            (vec![old(200), old(100)], false, true),
            (vec![at(0), at(10), old(100)], false, false),
            (vec![old(100), untimed(), old(200)], false, false),
            (vec![], false, true),
        ];
        for (entries, reaches_back, all_before) in table {
            let (of, wanted) = (refs(&entries), wanted());
            assert_eq!(wanted.reaches_back(&of, window()), reaches_back, "{entries:?}");
            assert_eq!(wanted.were_all_before(&of, window()), all_before, "{entries:?}");
        }
    }

    #[test]
    fn an_object_may_have_more_than_was_sent_and_a_text_other_space_around_it() {
        let sent = json!({"title": [{"text": {"content": "Plan"}}], "done": false, "count": 3});
        let kept = json!({"title": [{"text": {"content": " Plan\r\n", "link": null}, "plain_text": "Plan"}], "done": false, "count": "3"});
        assert!(covers(&kept, &sent));
        for (other, why) in [
            (json!({"title": [], "done": false, "count": 3}), "a list is whole"),
            (json!({"title": [{"text": {"content": "Plan"}}], "count": 3}), "a field is missing"),
            (json!({"title": [{"text": {"content": "Plans"}}], "done": false, "count": 3}), "other words"),
            (json!("Plan"), "another shape"),
        ] {
            assert!(!covers(&other, &sent), "{why}");
        }
    }

    #[test]
    fn times_are_read_in_each_form_and_nothing_else_is_a_time() {
        use TimeForm as F;
        let at = |text: &str| Timestamp::parse(text).unwrap();
        let table = [
            (F::Rfc3339, json!("2026-01-02T03:04:05Z"), Some("2026-01-02T03:04:05Z")),
            (F::Rfc3339, json!("2026-01-02T04:04:05.5+01:00"), Some("2026-01-02T03:04:05.5Z")),
            (F::Rfc3339, json!("2026-01-02"), None),
            (F::Rfc3339, json!(1_767_323_045), None),
            (F::Rfc2822, json!("Fri, 02 Jan 2026 03:04:05 +0000"), Some("2026-01-02T03:04:05Z")),
            (F::Rfc2822, json!("2 hours ago"), None),
            (F::Unix, json!(1_767_323_045), Some("2026-01-02T03:04:05Z")),
            (F::Unix, json!("1767323045.5"), Some("2026-01-02T03:04:05.5Z")),
            (F::Unix, json!("1767323045.x"), None),
            (F::Unix, json!(null), None),
            (F::UnixMs, json!("1767323045000"), Some("2026-01-02T03:04:05Z")),
            (F::Snowflake, json!("175928847299117063"), Some("2016-04-30T11:18:25.796Z")),
            (F::Snowflake, json!("general"), None),
            (F::ObjectId, json!("4d5ea62fd76aa1136000000c"), Some("2011-02-18T17:02:39Z")),
            (F::ObjectId, json!("4d5ea62f"), None),
            (F::ObjectId, json!({}), None),
        ];
        for (form, value, expected) in table {
            assert_eq!(form.read(&value), expected.map(at), "{form} {value}");
        }
    }

    #[test]
    fn a_call_that_carries_the_values_may_have_made_the_entry() {
        assert!(wanted().may_be_of(&json!({"issue": {"name": "Report"}, "text": "Hi.\nAll is well."})));
        assert!(!wanted().may_be_of(&json!({"title": "Report", "body": "All was well."})));
        assert!(!wanted().may_be_of(&json!({})));
    }

    #[test]
    fn a_template_that_the_call_does_not_fill_is_no_value() {
        let rule = SameValues {
            same: BTreeMap::from([("title".to_owned(), json!("{arg.title}"))]),
            holds: BTreeMap::new(),
            made: MadeAt { field: "created".to_owned(), form: TimeForm::Unix, within: Duration::from_mins(1) },
        };
        for said in [json!({}), json!({"title": ""}), json!({"title": {}}), json!({"title": [" "]})] {
            let arguments = said.as_object().unwrap();
            assert!(rule.of(&Values { key: None, arguments, first_sent_at: None }).is_err(), "{said}");
        }
    }

    fn some_entry() -> impl Strategy<Value = Value> {
        let title = prop_oneof![Just("Report"), Just("Other"), Just("report")];
        let body = prop_oneof![Just("All is well."), Just("<p>All is well.</p>"), Just("Nothing is.")];
        let seconds = prop_oneof![-100_000_i64..100_000, -70_i64..130];
        let time = prop_oneof![4 => seconds.prop_map(|after| json!(SENT / 1000 + after)), 1 => Just(json!(null))];
        (title, body, time).prop_map(|(title, body, time)| json!({"title": title, "body": body, "created": time}))
    }

    proptest! {
        /// Foreign entries, however many and in whatever order, never make a find: what is found has the values and the time, and
        /// is the only one that has.
        #[test]
        fn nothing_is_found_without_the_values_and_the_time(
            entries in prop::collection::vec(some_entry(), 0..12),
            turn in any::<usize>(),
        ) {
            let is_like = |entry: &&Value| {
                entry["title"] == "Report" && entry["body"].as_str().is_some_and(|body| body.contains("All is well."))
            };
            let timely = |entry: &&Value| {
                let after = entry["created"].as_i64().map(|at| at - SENT / 1000);
                after.is_some_and(|after| (-60..=120).contains(&after))
            };
            let seen = wanted().seen_in(&refs(&entries), window());
            let timely_ones = entries.iter().filter(is_like).filter(timely).count();
            if let Seen::One { entry, .. } = &seen {
                prop_assert!(is_like(entry) && timely(entry));
                prop_assert_eq!(timely_ones, 1);
            }
            if seen == Seen::None {
                prop_assert_eq!(timely_ones, 0);
            }
            let mut turned = entries.clone();
            let by = turn % turned.len().max(1);
            turned.rotate_left(by);
            prop_assert_eq!(name(&wanted().seen_in(&refs(&turned), window())), name(&seen));
        }
    }
}
