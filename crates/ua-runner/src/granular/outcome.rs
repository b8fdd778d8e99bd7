//! How a step ended for now.

use std::fmt;

use serde::Serialize;
use serde_json::Value;
use ua_core::{BudgetStop, RunStatus, RunStop};
use ua_resume::UsageSummary;
use ua_store::{QuestionRecord, RunRecords, Store, StoreError, TrailOf};

use crate::budget::is_not_enforced;
use crate::machine::Conclusion;

/// How a step ended, or where it waits. All of these are values: none of them is a failure of the call that returned it.
/// As JSON it says under `outcome` which of them it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
#[must_use = "a step that waits, stopped or failed is no error: the outcome says so"]
pub enum StepOutcome {
    /// The model asked for nothing more and the stop conditions hold. Running the step again under the same id returns
    /// this again, without a request or a call.
    Complete {
        /// The result: a value that fits the step's `output_schema`, or the model's last words as a text.
        final_output: Value,
        /// Committed turns.
        turns: u32,
        /// What its requests took, over all processes.
        usage: Box<UsageSummary>,
    },
    /// A person has to answer first: `Runs::answer` of `ua_sdk`, which checks what it is given, or `ua answer`. Then the step is run again.
    Waiting {
        /// The question; about a lost call its text ends with what the call's last attempt said.
        question: Box<QuestionRecord>,
    },
    /// A limit, a signal, the provider or a tool server stopped it between turns; run again, it goes on when the reason is
    /// gone. `max_turns` is reason `budget`.
    Stopped {
        /// The reason.
        reason: RunStop,
        /// In words.
        detail: String,
    },
    /// It ended without reaching its end; for good.
    Failed {
        /// Why.
        why: String,
    },
    /// It was cancelled; for good.
    Cancelled,
}

impl StepOutcome {
    /// The budgets that stopped it, each with the limit that counts and what was used: of [`Stopped`](Self::Stopped) with the reason
    /// `budget`; two where one request fits neither. None of anything else, and none where a higher limit would not help: a `max_cost` without a
    /// price, or a run that waits for another one whose budget it is.
    pub fn budgets_reached(&self) -> Vec<BudgetStop> {
        match self {
            Self::Stopped { reason: RunStop::Budget, detail } => BudgetStop::read_all(detail),
            Self::Complete { .. }
            | Self::Waiting { .. }
            | Self::Stopped { .. }
            | Self::Failed { .. }
            | Self::Cancelled => Vec::new(),
        }
    }

    pub(super) fn of(conclusion: Conclusion, records: &RunRecords) -> Self {
        match conclusion {
            Conclusion::Succeeded { .. } => Self::complete(records),
            Conclusion::Failed { why } => Self::Failed { why },
            Conclusion::Cancelled => Self::Cancelled,
            Conclusion::Waiting { question } => Self::Waiting { question },
            Conclusion::Stopped { reason, detail } => Self::Stopped { reason, detail },
        }
    }

    /// The outcome of a run that has ended for good; `None` for any other.
    pub(super) fn of_ended(records: &RunRecords) -> Option<Self> {
        let run = &records.run;
        match run.status {
            RunStatus::Succeeded => Some(Self::complete(records)),
            RunStatus::Failed => Some(Self::Failed { why: run.status_detail.clone().unwrap_or_default() }),
            RunStatus::Cancelled => Some(Self::Cancelled),
            RunStatus::Queued | RunStatus::Running | RunStatus::WaitingForHuman | RunStatus::Stopped => None,
        }
    }

    fn complete(records: &RunRecords) -> Self {
        let final_output = records.run.final_value().unwrap_or_default();
        let usage = Box::new(UsageSummary::of(records));
        Self::Complete { final_output, turns: records.run.turn_index, usage }
    }
}

/// A question as a program is told it: about a call with what its last attempt said, which somebody who is to know what became of it needs.
/// The text names no answer: what each does is said of [`choices`](QuestionRecord::choices), in the words of whoever shows it.
///
/// # Errors
/// The store cannot be read.
pub async fn question_of_a_program(
    store: &dyn Store,
    mut question: QuestionRecord,
) -> Result<QuestionRecord, StoreError> {
    let Some(call) = &question.call_id else { return Ok(question) };
    let said = store.trail(call, TrailOf::Changes).await?.attempts.pop().and_then(|attempt| attempt.detail);
    if let Some(said) = said.filter(|said| !said.is_empty() && !question.text.contains(said.as_str())) {
        question.text = format!("{}\nIts last attempt said: {said}", question.text.trim_end());
    }
    Ok(question)
}

impl fmt::Display for StepOutcome {
    /// For people: in one line, a question in a few.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete { final_output: Value::String(text), turns, .. } => {
                write!(f, "complete after {}: {text}", ua_core::counted(turns, "turn"))
            }
            Self::Complete { final_output, turns, .. } => {
                write!(f, "complete after {}: {final_output}", ua_core::counted(turns, "turn"))
            }
            Self::Waiting { question } => {
                let choices: Vec<String> =
                    question.choices.iter().map(|choice| format!("`Choice::{choice:?}`")).collect();
                let text = question.text.trim_end();
                write!(f, "answer first: {text}\nAnswer with `Runs::answer`: {}", choices.join(", "))
            }
            Self::Stopped { reason: reason @ RunStop::Budget, detail } if is_not_enforced(detail) => {
                write!(
                    f,
                    "stopped ({reason}): {detail}; say what the model costs with `Step::prices` and run it again with \
                     `Runs::run_accepting` and `Component::Pricing`, or take the limit away with `Runs::set_budget` and `Value::Null`"
                )
            }
            Self::Stopped { reason: reason @ RunStop::Budget, detail } => {
                write!(
                    f,
                    "stopped ({reason}): {detail}; raise it with `Runs::raise_budget` or `Runs::set_budget`, then run it again"
                )
            }
            Self::Stopped { reason: reason @ RunStop::UnknownModel, detail } => {
                write!(f, "stopped ({reason}): {detail} `Runs::fork` takes another model.")
            }
            // What is to be done about it stands in the detail.
            Self::Stopped {
                reason: reason @ (RunStop::Fingerprint | RunStop::Provider | RunStop::ProviderRefused),
                detail,
            } => {
                write!(f, "stopped ({reason}): {detail}")
            }
            Self::Stopped { reason: reason @ (RunStop::Interrupt | RunStop::ToolServer | RunStop::Idle), detail } => {
                write!(f, "stopped ({reason}), run it again: {detail}")
            }
            Self::Failed { why } => write!(f, "failed: {why}"),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}
