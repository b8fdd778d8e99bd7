//! The events of one request to the model: reserved, answered or not, and the wait before the next one.

use ua_core::{Audience, ForkWith, ModelTurn, RunStop};
use ua_store::{QuestionKind, RequestEnd};

use super::{Next, RunMachine, State, stopped};
use crate::budget::{Estimate, Limits, Use};
use crate::iteration::IterationEnd;
use crate::retry::{NextTry, Refusal, ThinkFailure, TooLong, Tries};

/// How often a history is cut harder before the job counts as too long for its model.
const MAX_CUTS: u32 = 12;
/// How often a history is cut on the guess that it was too long.
const MAX_GUESSES: u32 = 2;
/// How many tools are left out for one reply before it is the provider, and not the tools, that something is wrong with.
const MAX_LEFT_OUT: u32 = 32;
/// How often something else than an API of models may answer a run that never had a reply. That is some twenty seconds; a page that is shown while a
/// server is away comes behind replies, or the run is begun again by whoever reads what answered.
const MAX_FOREIGN: u32 = 6;

/// Ends what is said of a run whose provider will refuse the same request again.
fn is_final(audience: Audience) -> &'static str {
    audience.pick("A resume alone brings the same refusal.", "Run again as it is, it is refused again.")
}

/// The request is reserved.
pub(super) fn reserved(state: State, estimate: Estimate) -> Next {
    let State::Reserving { tries } = state else { return Err(state) };
    Ok(State::Thinking { tries, reserved: estimate })
}

/// The request does not fit the budget.
pub(super) fn over_budget(state: State, detail: &str) -> Next {
    let State::Reserving { .. } = state else { return Err(state) };
    Ok(stopped(RunStop::Budget, detail))
}

impl RunMachine {
    /// The request would be larger than the iteration's context.
    pub(super) fn context_is_full(&mut self, state: State, why: IterationEnd) -> Next {
        let State::Reserving { .. } = state else { return Err(state) };
        Ok(self.end_iteration(why))
    }

    /// The model replied, or did not.
    pub(super) fn thought(&mut self, state: State, answer: Result<Box<ModelTurn>, ThinkFailure>) -> Next {
        let State::Thinking { tries, reserved } = state else { return Err(state) };
        Ok(match answer {
            Ok(reply) => State::Recording { reserved, reply },
            Err(failure) => self.after_failure(tries.and(&failure), reserved, failure),
        })
    }

    /// A signal came while the model was asked.
    pub(super) fn thinking_interrupted(&mut self, state: State, end: RequestEnd) -> Next {
        let State::Thinking { reserved, .. } = state else { return Err(state) };
        self.charge(reserved, end);
        Ok(self.interrupted())
    }

    /// The wait is over.
    pub(super) fn waited(&mut self, state: State) -> Next {
        let State::Waiting { tries, wait, .. } = state else { return Err(state) };
        let tries = Tries { waited: tries.waited.saturating_add(wait), ..tries };
        Ok(self.budget_stop().unwrap_or(State::Reserving { tries }))
    }

    /// Charges a request, as the store does in the same moment.
    pub(super) fn charge(&mut self, reserved: Estimate, end: RequestEnd) {
        self.add(Use::Request(reserved.charge(end)));
    }

    /// No reply: another request if that may help, each with a reservation of its own.
    fn after_failure(&mut self, tries: Tries, reserved: Estimate, failure: ThinkFailure) -> State {
        self.charge(reserved, failure.end);
        if failure.asks_for_less && tries.left_out < MAX_LEFT_OUT {
            let tries = Tries { left_out: tries.left_out + 1, ..tries };
            return self.budget_stop().unwrap_or(State::Reserving { tries });
        }
        if failure.is_too_long && tries.cuts < MAX_CUTS {
            let tries = Tries { cuts: tries.cuts + 1, ..tries };
            return self.budget_stop().unwrap_or(State::Reserving { tries });
        }
        if failure.may_be_too_long && tries.guesses < MAX_GUESSES {
            let tries = Tries { guesses: tries.guesses + 1, ..tries };
            return self.budget_stop().unwrap_or(State::Reserving { tries });
        }
        if (failure.without.is_some() || failure.without_images) && tries.left_out < MAX_LEFT_OUT {
            let tries = Tries { left_out: tries.left_out + 1, ..tries };
            return self.budget_stop().unwrap_or(State::Reserving { tries });
        }
        let is_elsewhere = failure.is_foreign && tries.foreign >= MAX_FOREIGN && self.committed() == 0;
        let too_long = match self.retry.after(&tries, &failure) {
            NextTry::After(wait) if !is_elsewhere => {
                // What broke off was paid for: where the same once more is over a budget, nothing is waited for.
                if let Err(detail) = self.admit(&reserved) {
                    return stopped(RunStop::Budget, &detail);
                }
                return self.budget_stop().unwrap_or(State::Waiting { tries, why: failure.why, wait });
            }
            NextTry::TooLong(too_long) if !is_elsewhere => Some(too_long),
            NextTry::After(_) | NextTry::Never | NextTry::TooLong(_) => None,
        };
        if let Some(correction) = failure.correction.filter(|_| self.limits.ask_on_auth_failure) {
            // What was refused, and no hint: whoever shows the question knows whose credentials they are.
            let text = format!("{} {}", capitalized(&sentence(&failure.why)), correction.before_an_answer());
            return State::Asking { kind: QuestionKind::AuthFailure, text };
        }
        let reason = match failure.refused {
            Some(Refusal::UnknownModel) => RunStop::UnknownModel,
            Some(Refusal::Request) => RunStop::ProviderRefused,
            None => RunStop::Provider,
        };
        let detail = match (failure.refused, tries.attempts) {
            // The next process leaves out as many again, so that a resume is worth something.
            (Some(_), _) if failure.without.is_some() => format!(
                "{} That was one tool more than are left out for one reply ({MAX_LEFT_OUT}). {}, or offer fewer servers.",
                sentence(&failure.message),
                self.limits.audience.pick(
                    format!(
                        "Deny those that the provider does not take (`tools.deny`) in a fork of the run ({})",
                        ForkWith::Job
                    ),
                    "Take those out of the step that the provider does not take".to_owned()
                )
            ),
            (Some(_), _) => format!("{} {}", sentence(&failure.message), is_final(self.limits.audience)),
            (None, 1) => failure.message,
            (None, attempts) => {
                format!("{attempts} requests brought no reply; the last one: {}", failure.message)
            }
        };
        match too_long {
            Some(too_long) => stopped(reason, &self.limits.wait_is_too_long(&detail, &too_long)),
            None => stopped(reason, &detail),
        }
    }
}

impl Limits {
    /// Why there is no reply, or no server, and that the next try would come too late for this run, with what to do.
    pub(crate) fn wait_is_too_long(&self, why: &str, too_long: &TooLong) -> String {
        format!("{} {}", sentence(why), too_long.in_words(self.audience))
    }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn sentence(text: &str) -> String {
    let text = text.trim();
    if text.ends_with(['.', '!', '?']) { text.to_owned() } else { format!("{text}.") }
}
