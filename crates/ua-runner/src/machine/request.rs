//! The events of one request to the model: reserved, answered or not, and the wait before the next one.

use ua_core::{ModelTurn, RunStop};
use ua_store::{QuestionKind, RequestEnd};

use super::{Next, RunMachine, State, interrupted, stopped};
use crate::budget::{Estimate, Use};
use crate::iteration::IterationEnd;
use crate::retry::ThinkFailure;

/// The request is reserved.
pub(super) fn reserved(state: State, estimate: Estimate) -> Next {
    let State::Reserving { attempts } = state else { return Err(state) };
    Ok(State::Thinking { attempts, reserved: estimate })
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
        let State::Thinking { attempts, reserved } = state else { return Err(state) };
        Ok(match answer {
            Ok(reply) => State::Recording { reserved, reply },
            Err(failure) => self.after_failure(attempts + 1, reserved, failure),
        })
    }

    /// A signal came while the model was asked.
    pub(super) fn thinking_interrupted(&mut self, state: State, end: RequestEnd) -> Next {
        let State::Thinking { reserved, .. } = state else { return Err(state) };
        self.charge(reserved, end);
        Ok(interrupted())
    }

    /// The wait is over.
    pub(super) fn waited(&mut self, state: State) -> Next {
        let State::Waiting { attempts, .. } = state else { return Err(state) };
        Ok(self.budget_stop().unwrap_or(State::Reserving { attempts }))
    }

    /// Charges a request, as the store does in the same moment.
    pub(super) fn charge(&mut self, reserved: Estimate, end: RequestEnd) {
        self.add(Use::Request(reserved.charge(end)));
    }

    /// No reply: another request if that may help, each with a reservation of its own.
    fn after_failure(&mut self, attempts: u32, reserved: Estimate, failure: ThinkFailure) -> State {
        self.charge(reserved, failure.end);
        if let Some(wait) = self.retry.wait_after(attempts, &failure) {
            // What broke off was paid for: a budget that it used up is not waited for.
            return self.budget_stop().unwrap_or(State::Waiting { attempts, why: failure.why, wait });
        }
        if failure.credentials_refused && self.limits.ask_on_auth_failure {
            let text = format!(
                "The model provider refused the credentials: {} Correct them, then answer `continue`.",
                sentence(&failure.message)
            );
            return State::Asking { kind: QuestionKind::AuthFailure, text };
        }
        match attempts {
            1 => stopped(RunStop::Provider, &failure.message),
            attempts => stopped(
                RunStop::Provider,
                &format!("{attempts} requests brought no reply; the last one: {}", failure.message),
            ),
        }
    }
}

fn sentence(text: &str) -> String {
    let text = text.trim();
    if text.ends_with(['.', '!', '?']) { text.to_owned() } else { format!("{text}.") }
}
