//! Long jobs in iterations: how many, when one ends, and what the model has to promise at the end.
//!
//! Context Storage & Durability Summary §2 and §5 (iterations, promise, context resets). An iteration is a step of the run that
//! begins with an empty context: the job, a hand-off made from the records, and nothing else. A promise is only ever the model's word
//! that it is done; whether it is, receipts and files say.

use serde::{Deserialize, Serialize};

use crate::spec::{RunSpec, SpecError};

/// How a job goes on when one context is not enough for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct HarnessSpec {
    /// The most iterations that may begin, the first one included.
    pub max_iterations: u32,
    /// What the model has to say, as `<promise>…</promise>`, when it is done; it counts only when every condition holds too. Without
    /// one the conditions alone decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_promise: Option<String>,
    /// Tokens of a request, as estimated, beyond which the iteration ends and the next one begins; three quarters of
    /// `settings.history_max_tokens` when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_budget_tokens: Option<u64>,
}

impl Default for HarnessSpec {
    fn default() -> Self {
        Self { max_iterations: 10, completion_promise: None, context_budget_tokens: None }
    }
}

/// The longest promise, in characters.
const MAX_PROMISE: usize = 200;

const TAGS: (&str, &str) = ("<promise>", "</promise>");

impl HarnessSpec {
    /// The promise as the model has to write it.
    pub fn promise_in_tags(promise: &str) -> String {
        format!("{}{promise}{}", TAGS.0, TAGS.1)
    }

    /// Whether `text` has the promise between its tags, word for word; white space around it does not count.
    pub fn is_promised(text: &str, promise: &str) -> bool {
        let after_tags = text.split(TAGS.0).skip(1);
        after_tags.filter_map(|rest| rest.split_once(TAGS.1)).any(|(said, _)| said.trim() == promise)
    }

    /// What is wrong with these fields in a job: the field, and why.
    fn flaw(&self, spec: &RunSpec) -> Option<(&'static str, &'static str)> {
        if self.max_iterations == 0 {
            return Some(("max_iterations", "is 0: the run could do nothing"));
        }
        if self.context_budget_tokens.is_some_and(|budget| budget < 1_000) {
            return Some(("context_budget_tokens", "is below 1000: the job and one turn would not fit"));
        }
        if self.context_budget_tokens.is_some_and(|budget| budget > spec.settings.history_max_tokens) {
            return Some((
                "context_budget_tokens",
                "is over settings.history_max_tokens: the middle of the history would be left out before an iteration ends",
            ));
        }
        let promise = self.completion_promise.as_deref()?;
        if promise.trim().is_empty() || promise.trim() != promise || promise.chars().count() > MAX_PROMISE {
            return Some(("completion_promise", "must be 1 to 200 characters, without spaces around them"));
        }
        if promise.contains(['<', '>']) || promise.chars().any(char::is_control) {
            return Some((
                "completion_promise",
                "must be one line without `<` and `>`: the model writes it between tags",
            ));
        }
        let outputs = spec.phases.iter().map(|phase| phase.expected_outputs.len()).sum::<usize>();
        let has_evidence = spec.all_stop_conditions().next().is_some()
            || outputs + spec.artifacts.expected_outputs.len() > 0
            || spec.constraints.must_cite_sources;
        (!has_evidence).then_some((
            "completion_promise",
            "needs a stop condition or an expected output as well: a promise alone is no evidence",
        ))
    }
}

const HEADING: (&str, &str, &str) =
    ("[note of the runner, not of a person] Iteration ", " begins here, after turn ", ", with an empty context.");

/// The first line of what the model is told when iteration `number` of at most `of` begins behind turn `after`.
pub fn iteration_heading(number: u32, of: u32, after: u32) -> String {
    format!("{}{number} of at most {of}{}{after}{}", HEADING.0, HEADING.1, HEADING.2)
}

/// The turn behind which an iteration began, if `text` begins like an [`iteration_heading`].
pub fn iteration_begins_after(text: &str) -> Option<u32> {
    let rest = text.strip_prefix(HEADING.0)?.split_once(HEADING.1)?.1;
    rest.split_once(HEADING.2)?.0.parse().ok()
}

impl RunSpec {
    /// The tokens of a request beyond which an iteration ends; `None` when the job does not go on in iterations.
    pub fn context_budget(&self) -> Option<u64> {
        let harness = self.harness.as_ref()?;
        Some(harness.context_budget_tokens.unwrap_or(self.settings.history_max_tokens / 4 * 3))
    }

    /// The same job in iterations like these.
    ///
    /// # Errors
    /// [`SpecError::Invalid`] when the job cannot be run in such iterations.
    pub fn in_iterations(self, harness: HarnessSpec) -> Result<Self, SpecError> {
        let spec = Self { harness: Some(harness), ..self };
        spec.check_harness()?;
        Ok(spec)
    }

    pub(crate) fn check_harness(&self) -> Result<(), SpecError> {
        match self.harness.as_ref().and_then(|harness| harness.flaw(self)) {
            None => Ok(()),
            Some((field, why)) => Err(SpecError::Invalid { field: format!("harness.{field}"), why: why.to_owned() }),
        }
    }

    /// What the model is told first about iterations; empty when the job has none.
    pub(crate) fn harness_prompt(&self) -> String {
        let Some(harness) = &self.harness else { return String::new() };
        let mut text = String::from(
            "\n# Iterations\n\nThis job may take more than one context. When the context is full a new iteration begins with an empty \
             one: it sees this job, what the stored records say was done, and the files of the workspace, and nothing else of the \
             conversation. Keep what must not be lost in files of the workspace.\n",
        );
        if let Some(promise) = &harness.completion_promise {
            text.push_str(&format!(
                "\nWhen the whole job is done, and only then, end with `{}` and no tool call. It counts only when everything under \
                 \"Done when\" is there, judged by stored receipts and files. A reply without tool calls and without it ends the \
                 iteration, and the next one goes on.\n",
                HarnessSpec::promise_in_tags(promise)
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(harness: &str) -> Result<RunSpec, SpecError> {
        RunSpec::parse(&format!(
            r#"{{"objective": "x", "stop_conditions": ["email_sent_once"], "settings": {{"history_max_tokens": 8000}}, "harness": {harness}}}"#
        ))
    }

    #[test]
    fn a_job_says_how_it_is_iterated() {
        let spec =
            job(r#"{"max_iterations": 40, "completion_promise": "ALL DONE", "context_budget_tokens": 5000}"#).unwrap();
        assert_eq!(spec.context_budget(), Some(5_000));
        assert!(spec.opening_prompt().contains("end with `<promise>ALL DONE</promise>`"), "{}", spec.opening_prompt());
        let plain = job("{}").unwrap();
        assert_eq!((plain.harness.as_ref().unwrap().max_iterations, plain.context_budget()), (10, Some(6_000)));
        assert!(!plain.opening_prompt().contains("<promise>"));
        let none = RunSpec::parse(r#"{"objective": "x"}"#).unwrap();
        assert_eq!((none.harness.clone(), none.context_budget()), (None, None));
        assert!(!none.opening_prompt().contains("Iterations"));
    }

    #[test]
    fn what_cannot_be_iterated_is_refused_when_the_job_is_read() {
        let cases = [
            (r#"{"max_iterations": 0}"#, "harness.max_iterations"),
            (r#"{"context_budget_tokens": 999}"#, "harness.context_budget_tokens"),
            (r#"{"context_budget_tokens": 8001}"#, "harness.context_budget_tokens"),
            (r#"{"completion_promise": ""}"#, "harness.completion_promise"),
            (r#"{"completion_promise": " done"}"#, "harness.completion_promise"),
            (r#"{"completion_promise": "a</promise>"}"#, "harness.completion_promise"),
            (r#"{"completion_promise": "a\nb"}"#, "harness.completion_promise"),
        ];
        for (harness, wanted) in cases {
            match job(harness) {
                Err(SpecError::Invalid { field, .. }) => assert_eq!(field, wanted, "{harness}"),
                other => panic!("{harness}: {other:?}"),
            }
        }
        assert!(matches!(job(r#"{"iterations": 3}"#), Err(SpecError::UnknownField { .. })));
        let without = RunSpec::parse(r#"{"objective": "x", "harness": {"completion_promise": "DONE"}}"#);
        assert!(without.is_err_and(|error| error.to_string().contains("a promise alone is no evidence")));
    }

    #[test]
    fn a_heading_tells_where_its_iteration_began() {
        let heading = iteration_heading(3, 40, 17);
        assert_eq!(iteration_begins_after(&format!("{heading}\n\nMore.")), Some(17));
        for other in ["", "Iteration 3", &heading[1..], "[note of the runner, not of a person] Iteration 1 of 2"] {
            assert_eq!(iteration_begins_after(other), None, "{other}");
        }
    }

    #[test]
    fn a_promise_is_its_exact_words_between_tags() {
        let cases = [
            ("All is sent.\n<promise>ALL DONE</promise>", true),
            ("<promise>\n  ALL DONE\n</promise> and more", true),
            ("<promise>not this</promise> <promise>ALL DONE</promise>", true),
            ("ALL DONE", false),
            ("<promise>all done</promise>", false),
            ("<promise>ALL DONE", false),
            ("<promise>ALL DONE soon</promise>", false),
            ("", false),
        ];
        for (text, wanted) in cases {
            assert_eq!(HarnessSpec::is_promised(text, "ALL DONE"), wanted, "{text:?}");
        }
    }
}
