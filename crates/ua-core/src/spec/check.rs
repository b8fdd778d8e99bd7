//! Whether a job means something that can be done. Everything that is wrong with it is said at once.

use super::{Budgets, ModelChoice, RunSpec, SpecError, StopCondition};
use crate::mail::MailAddress;
use crate::redact::{composed, decomposed};
use crate::subagents::Subagents;
use crate::unseen::{is_hidden, is_unseen};

/// Whether this can be the key of a job, whoever gives it. Two keys that look alike are one: a job would be done again without a word.
fn check_job_key(key: &str) -> Result<(), SpecError> {
    let seen: String = key.chars().filter(|c| !is_unseen(*c) && !is_hidden(*c) && !c.is_control()).collect();
    let nearest = seen.trim();
    let with = |why: &str| if nearest.is_empty() { why.to_owned() } else { format!("{why}: write {nearest:?}") };
    let why = if key.trim().is_empty() {
        "is empty".to_owned()
    } else if key.contains(char::is_control) {
        with("has a control character, which nobody can type")
    } else if nearest.is_empty() {
        "has nothing that anybody sees".to_owned()
    } else if seen != key {
        with("has an invisible character, so it looks like another key")
    } else if nearest != key {
        with("begins or ends with white space, so it looks like another key")
    } else {
        return Ok(());
    };
    Err(SpecError::Invalid { field: "job_key".to_owned(), why })
}

/// A key as it is stored and compared: letters and their marks as one character (NFC), however the file or the command line has them.
pub(super) fn job_key_of(key: &str) -> String {
    composed(key)
}

/// The other form of a key, in which a run may have it that was stored as it was written: letters and their marks as two characters (NFD).
pub fn job_key_apart(key: &str) -> Option<String> {
    Some(decomposed(key)).filter(|apart| apart != key)
}

/// What is wrong with a job.
#[derive(Default)]
struct Flaws(Vec<SpecError>);

impl Flaws {
    fn add(&mut self, field: impl Into<String>, why: impl Into<String>) {
        self.0.push(SpecError::Invalid { field: field.into(), why: why.into() });
    }

    fn add_if(&mut self, is_wrong: bool, field: &str, why: &str) {
        if is_wrong {
            self.add(field, why);
        }
    }

    fn take(&mut self, checked: Result<(), SpecError>) {
        self.0.extend(checked.err());
    }

    fn all(mut self) -> Result<(), SpecError> {
        match self.0.len() {
            0 => Ok(()),
            1 => Err(self.0.remove(0)),
            _ => Err(SpecError::Several(self.0)),
        }
    }
}

/// Every budget that ends a run where it begins, by name, with why; what a run does about failures may be nothing.
pub fn budget_flaws(budgets: &Budgets) -> Vec<(&'static str, &'static str)> {
    let Budgets {
        max_wallclock_minutes,
        max_steps,
        max_tool_calls,
        max_turns,
        max_tokens,
        max_cost,
        max_retries_per_tool_call: _,
        max_same_error_repeats: _,
        max_provider_wait_minutes: _,
    } = budgets;
    let (nothing, unasked) = ("is 0: the run could do nothing", "is 0: the run could ask nothing");
    let all = [
        (*max_wallclock_minutes == 0, "max_wallclock_minutes", nothing),
        (*max_tool_calls == 0, "max_tool_calls", nothing),
        (*max_steps == 0, "max_steps", nothing),
        (*max_turns == Some(0), "max_turns", unasked),
        (*max_tokens == Some(0), "max_tokens", unasked),
        (max_cost.is_some_and(|money| money.nanos() == 0), "max_cost", unasked),
    ];
    all.into_iter().filter(|(is_wrong, ..)| *is_wrong).map(|(_, name, why)| (name, why)).collect()
}

impl RunSpec {
    pub(super) fn check(&self) -> Result<(), SpecError> {
        let mut flaws = Flaws::default();
        flaws.add_if(self.objective.trim().is_empty(), "objective", "is empty: say what the run is to reach");
        check_conditions(&self.stop_conditions, "stop_conditions", &mut flaws);
        check_outputs(&self.artifacts.expected_outputs, "artifacts.expected_outputs", &mut flaws);
        flaws.take(self.check_files());
        self.check_phases(&mut flaws);
        flaws.take(self.check_harness());
        self.check_result(&mut flaws);
        check_model(&self.model, &mut flaws);
        if let Some((field, why)) = self.subagents.as_ref().and_then(Subagents::problem) {
            flaws.add(field, why);
        }
        flaws.take(self.job_key.as_deref().map_or(Ok(()), check_job_key));
        for (index, entry) in self.constraints.allowed_domains.iter().enumerate().filter(|(_, entry)| !is_host(entry)) {
            flaws.add(
                format!("constraints.allowed_domains[{index}]"),
                format!("is {entry:?}, and no host: write a host or the end of one, for example example.com"),
            );
        }
        flaws.add_if(
            self.settings.blob_threshold_bytes < 256,
            "settings.blob_threshold_bytes",
            "is below 256: a reference would be as long as the result",
        );
        let allowed = &self.constraints.allowed_recipients;
        flaws.add_if(
            allowed.iter().any(|entry| !is_recipient_entry(entry)),
            "constraints.allowed_recipients",
            "has an entry that is neither an address nor `@domain`, nor a number that begins with `+`, a `#channel` or an `@name`",
        );
        let destinations = &self.constraints.allowed_destinations;
        flaws.add_if(
            destinations.iter().any(|entry| entry.trim().is_empty() || entry == "*"),
            "constraints.allowed_destinations",
            "has an entry that is empty or matches everything",
        );
        flaws.add_if(
            self.settings.history_max_tokens < 1_000,
            "settings.history_max_tokens",
            "is below 1000: the job and one turn would not fit",
        );
        self.check_budgets(&mut flaws);
        flaws.all()
    }

    /// The same job under this key.
    ///
    /// # Errors
    /// [`SpecError::Invalid`] when it is no key. An empty one would be the key of every job that is given it by mistake.
    pub fn under_key(self, key: &str) -> Result<Self, SpecError> {
        check_job_key(key)?;
        Ok(Self { job_key: Some(job_key_of(key)), ..self })
    }

    fn check_budgets(&self, flaws: &mut Flaws) {
        for (name, why) in budget_flaws(&self.budgets) {
            flaws.add(format!("budgets.{name}"), why);
        }
    }

    fn check_result(&self, flaws: &mut Flaws) {
        let Some(schema) = &self.output_schema else { return };
        flaws.add_if(
            !schema.is_object(),
            "output_schema",
            "is not a JSON Schema: write an object, for example {\"type\": \"object\", \"properties\": {…}}",
        );
        flaws.add_if(
            self.harness.as_ref().is_some_and(|harness| harness.completion_promise.is_some()),
            "output_schema",
            "cannot be combined with `harness.completion_promise`: the last message would have to be both",
        );
    }

    fn check_phases(&self, flaws: &mut Flaws) {
        for (index, phase) in self.phases.iter().enumerate() {
            let field = |name: &str| format!("phases[{index}].{name}");
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            if phase.name.is_empty() || phase.name.len() > 64 || !phase.name.chars().all(is_plain) {
                flaws.add(field("name"), "must be 1 to 64 letters, digits, `-` or `_`");
            }
            if self.phases[..index].iter().any(|earlier| earlier.name == phase.name) {
                flaws.add(field("name"), "is the name of an earlier phase");
            }
            if phase.instructions.trim().is_empty() {
                flaws.add(field("instructions"), "is empty: say what the phase is to do");
            }
            check_conditions(&phase.stop_conditions, &field("stop_conditions"), flaws);
            check_outputs(&phase.expected_outputs, &field("expected_outputs"), flaws);
            let budgets = &phase.budgets;
            let zero = [
                ("max_turns", budgets.max_turns == Some(0)),
                ("max_tool_calls", budgets.max_tool_calls == Some(0)),
                ("max_tokens", budgets.max_tokens == Some(0)),
                ("max_cost", budgets.max_cost.is_some_and(|money| money.nanos() == 0)),
            ];
            for (name, _) in zero.into_iter().filter(|(_, is_zero)| *is_zero) {
                flaws.add(field(&format!("budgets.{name}")), "is 0: the phase could do nothing");
            }
        }
    }
}

/// The words for effort that providers have.
const EFFORTS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// The words for how a model thinks.
const THINKING_KINDS: [&str; 2] = ["adaptive", "off"];

/// What no provider takes. A word for effort or thinking that is like none of the known ones may be a new one.
fn check_model(model: &ModelChoice, flaws: &mut Flaws) {
    flaws.add_if(model.max_output_tokens == Some(0), "model.max_output_tokens", "is 0: the model could say nothing");
    flaws.add_if(
        model.temperature_milli.is_some_and(|milli| milli > 2_000),
        "model.temperature_milli",
        "is above 2000: it counts thousandths, and no provider takes a temperature above 2",
    );
    for (field, said, known) in
        [("effort", &model.effort, &EFFORTS[..]), ("thinking", &model.thinking, &THINKING_KINDS[..])]
    {
        let Some(said) = said.as_deref().filter(|said| !known.contains(said)) else { continue };
        let likeness = |known: &&&str| strsim::damerau_levenshtein(said, known);
        let nearest = known.iter().min_by_key(likeness);
        if let Some(meant) = nearest.filter(|known| said.trim().is_empty() || likeness(known) <= 2) {
            flaws.add(format!("model.{field}"), format!("is {said:?}, did you mean {meant:?}?"));
        }
    }
}

/// Files that are to be there: each is one that can be.
fn check_outputs(outputs: &[String], field: &str, flaws: &mut Flaws) {
    for (index, output) in outputs.iter().enumerate().filter(|(_, output)| !is_below(output)) {
        flaws.add(format!("{field}[{index}]"), not_below(output));
    }
}

fn check_conditions(conditions: &[StopCondition], field: &str, flaws: &mut Flaws) {
    for (index, condition) in conditions.iter().enumerate() {
        if let Some(why) = flaw_of(condition) {
            flaws.add(format!("{field}[{index}]"), why);
        }
    }
}

fn flaw_of(condition: &StopCondition) -> Option<String> {
    match condition {
        StopCondition::Named(name) if !StopCondition::NAMES.contains(&name.as_str()) => Some(format!(
            "is {name:?}; known names are {}, or write {{\"effect\": …}} or {{\"artifact\": …}}",
            StopCondition::NAMES.join(", ")
        )),
        StopCondition::Effect { effect, .. } if crate::EffectKind::parse(effect).is_none() => {
            Some("needs an effect of the form `<object>.<verb>`, for example `email.send`".to_owned())
        }
        StopCondition::Effect { count, max: Some(max), .. } if max < count => {
            Some("has a `max` below its `count`".to_owned())
        }
        StopCondition::Effect { count: 0, max: None, .. } => {
            Some("has the `count` 0, which always holds; give a `max` as well, or leave it out".to_owned())
        }
        StopCondition::Artifact { artifact, .. } if !is_below(artifact) => Some(not_below(artifact)),
        StopCondition::Named(_) | StopCondition::Effect { .. } | StopCondition::Artifact { .. } => None,
    }
}

fn not_below(path: &str) -> String {
    format!("names the file {path:?}; name one below the workspace, for example work_products/report.md")
}

/// Whether an entry names a host, or the end of the names of some: without a scheme, a port or a path.
fn is_recipient_entry(entry: &str) -> bool {
    let entry = entry.trim();
    let is_number = |rest: &str| {
        rest.chars().all(|c| c.is_ascii_digit() || " ()-./".contains(c)) && rest.chars().any(|c| c.is_ascii_digit())
    };
    MailAddress::parse(entry).is_ok()
        || MailAddress::is_domain_entry(entry)
        || entry.strip_prefix('+').is_some_and(is_number)
        || entry.strip_prefix(['#', '@']).is_some_and(|name| !name.is_empty() && !name.contains(['@', '#', '*']))
}

fn is_host(entry: &str) -> bool {
    let bare = entry.strip_prefix('.').unwrap_or(entry);
    let address = bare.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(bare);
    // Names of machines, other than those of mail, may have an underscore.
    crate::mail::is_domain(&bare.replace('_', "x")) || address.parse::<std::net::IpAddr>().is_ok()
}

/// Whether a path stays in the folder that it is relative to.
fn is_below(path: &str) -> bool {
    use std::path::{Component, Path};
    let is_inner = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    !path.trim().is_empty() && Path::new(path).components().all(is_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(job: &str) -> String {
        let mut value: serde_json::Value = serde_json::from_str(job).unwrap();
        if value.get("objective").is_none() {
            value["objective"] = "x".into();
        }
        RunSpec::parse(&value.to_string()).map_or_else(|error| error.to_string(), |_| "none".to_owned())
    }

    #[test]
    fn what_can_never_be_done_is_no_job() {
        for (job, wanted) in [
            (
                r#"{"artifacts": {"expected_outputs": ["a.md", "/x"]}}"#,
                "`artifacts.expected_outputs[1]` names the file \"/x\"; name one below the workspace, for example work_products/report.md",
            ),
            (
                r#"{"phases": [{"name": "a", "instructions": "b", "expected_outputs": ["../x"]}]}"#,
                "`phases[0].expected_outputs[0]` names the file \"../x\"; name one below the workspace, for example work_products/report.md",
            ),
            (
                r#"{"stop_conditions": [{"effect": "email.send", "count": 0}]}"#,
                "`stop_conditions[0]` has the `count` 0, which always holds; give a `max` as well, or leave it out",
            ),
            (r#"{"model": {"max_output_tokens": 0}}"#, "`model.max_output_tokens` is 0: the model could say nothing"),
            (
                r#"{"model": {"temperature_milli": 99999}}"#,
                "`model.temperature_milli` is above 2000: it counts thousandths, and no provider takes a temperature above 2",
            ),
            (r#"{"model": {"effort": "hihg"}}"#, "`model.effort` is \"hihg\", did you mean \"high\"?"),
            (r#"{"model": {"effort": ""}}"#, "`model.effort` is \"\", did you mean \"low\"?"),
            (r#"{"model": {"thinking": "adaptve"}}"#, "`model.thinking` is \"adaptve\", did you mean \"adaptive\"?"),
            (r#"{"budgets": {"max_turns": 0}}"#, "`budgets.max_turns` is 0: the run could ask nothing"),
            (
                r#"{"budgets": {"max_wallclock_minutes": 0}}"#,
                "`budgets.max_wallclock_minutes` is 0: the run could do nothing",
            ),
            (r#"{"job_key": "a\u0000"}"#, "`job_key` has a control character, which nobody can type: write \"a\""),
            (r#"{"job_key": "\u0000"}"#, "`job_key` has a control character, which nobody can type"),
            (r#"{"job_key": "a\n"}"#, "`job_key` has a control character, which nobody can type: write \"a\""),
            (
                r#"{"job_key": "a b "}"#,
                "`job_key` begins or ends with white space, so it looks like another key: write \"a b\"",
            ),
            (
                r#"{"job_key": "\u00a0a"}"#,
                "`job_key` begins or ends with white space, so it looks like another key: write \"a\"",
            ),
            (
                r#"{"job_key": "a\u200b"}"#,
                "`job_key` has an invisible character, so it looks like another key: write \"a\"",
            ),
            (
                r#"{"job_key": " a\u00adb\u200b "}"#,
                "`job_key` has an invisible character, so it looks like another key: write \"ab\"",
            ),
            (r#"{"job_key": "\u200b"}"#, "`job_key` has nothing that anybody sees"),
            (r#"{"job_key": " "}"#, "`job_key` is empty"),
            (
                r#"{"constraints": {"allowed_domains": ["example.com", "http://x y"]}}"#,
                "`constraints.allowed_domains[1]` is \"http://x y\", and no host: write a host or the end of one, for example example.com",
            ),
        ] {
            assert_eq!(error_of(job), format!("invalid job: {wanted}"), "{job}");
        }
        for job in [
            r#"{"stop_conditions": [{"effect": "email.send", "count": 0, "max": 0}]}"#,
            r#"{"model": {"effort": "xhigh", "temperature_milli": 2000}}"#,
            r#"{"model": {"effort": "thorough"}}"#,
            r#"{"model": {"thinking": "off"}}"#,
            r#"{"model": {"thinking": "between_tools"}}"#,
            r#"{"budgets": {"max_retries_per_tool_call": 0, "max_same_error_repeats": 0, "max_provider_wait_minutes": 0}}"#,
            r#"{"constraints": {"allowed_domains": ["a.b", ".a.b", "localhost", "127.0.0.1", "::1", "[::1]", "münchen.de", "a_b.c"]}}"#,
        ] {
            assert_eq!(error_of(job), "none", "{job}");
        }
    }

    #[test]
    fn a_key_is_one_however_its_letters_are_put_together() {
        let key = |key: &str| {
            let text = serde_json::json!({"objective": "o", "job_key": key}).to_string();
            RunSpec::parse(&text).unwrap().job_key.unwrap()
        };
        assert_eq!(key("rechnung-e\u{301}"), "rechnung-\u{e9}");
        assert_eq!(key("rechnung-\u{e9}"), "rechnung-\u{e9}");
        let spec = RunSpec::parse(r#"{"objective": "o"}"#).unwrap();
        assert_eq!(spec.under_key("e\u{301}").unwrap().job_key.as_deref(), Some("\u{e9}"));
        assert_eq!(job_key_apart("rechnung-\u{e9}").as_deref(), Some("rechnung-e\u{301}"));
        assert_eq!(job_key_apart("report-2026-11"), None);
    }

    #[test]
    fn what_is_no_host_is_none() {
        for entry in [
            "", " ", ".", "*", "*.a.b", "exa mple", "http://x", "x/y", "x:80", "a..b", "-a.b", "a,b", "x\u{0}",
            "user@x",
        ] {
            assert!(!is_host(entry), "{entry:?}");
        }
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        let job = r#"{"objective": " ", "budgets": {"max_steps": 0}, "phases": [{"name": "a b", "instructions": ""}]}"#;
        assert_eq!(
            error_of(job),
            "invalid job: `objective` is empty: say what the run is to reach; `phases[0].name` must be 1 to 64 letters, digits, `-` or \
             `_`; `phases[0].instructions` is empty: say what the phase is to do; `budgets.max_steps` is 0: the run could do nothing"
        );
    }
}
