//! What the machine decides about iterations.
//!
//! | after | next |
//! |---|---|
//! | a request that is larger than the context may be, behind at least one turn | the next iteration |
//! | a reply that asks for nothing and has no promise | the next iteration; a few in a row that asked for no tool at all: a person |
//! | a promise, and a condition that does not hold | say what is missing, as often as for any missing condition; then a person |
//! | a promise, and every condition holds | the end of the run |
//! | no iteration is left | stop |

use ua_core::HarnessSpec;

use super::{MAX_NUDGES, RunMachine, State};
use crate::iteration::{IterationEnd, IterationState};

impl RunMachine {
    /// The iteration that is worked on; `None` when the job has no harness.
    pub fn iteration(&self) -> Option<&IterationState> {
        self.iteration.as_ref()
    }

    /// Why the iteration ends instead of sending a request of so many tokens. One that has no turn yet sends it whatever its size, or no
    /// iteration would ever get anywhere.
    pub fn context_full(&self, tokens: u64) -> Option<IterationEnd> {
        let iteration = self.iteration.as_ref()?;
        let has_a_turn = self.committed >= iteration.first_turn;
        (has_a_turn && tokens > iteration.context_budget).then_some(IterationEnd::ContextFull { tokens })
    }

    /// What a promise makes of the evidence at the end of the job. `None` leaves it as it is: no promise is asked for, or it was given and
    /// everything holds.
    pub(super) fn after_promise(&mut self, found: &Result<(), String>) -> Option<State> {
        let promise = self.iteration.as_ref()?.promise.as_ref()?;
        let is_promised = HarnessSpec::is_promised(self.last_word.as_deref().unwrap_or_default(), promise);
        match found {
            Ok(()) if is_promised => None,
            Err(missing) if is_promised => Some(self.tell_missing(format!(
                "You gave the promise, but it counts only with evidence. {missing}"
            ))),
            Ok(()) | Err(_) => Some(self.end_iteration(IterationEnd::PromiseUnkept)),
        }
    }

    /// Ends the iteration: the next one, if the budgets leave one.
    pub(super) fn end_iteration(&mut self, why: IterationEnd) -> State {
        if let Some(state) = self.budget_stop() {
            return state;
        }
        let Some(iteration) = &self.iteration else { return State::Reserving };
        if self.is_idle(&why) && self.nudges >= MAX_NUDGES {
            let text = format!(
                "{} iterations in a row ended without a tool call and without the promise that the job is done.",
                self.nudges + 1
            );
            return self.ask_about_missing(text);
        }
        let ended = format!("iteration {} is over: {}", iteration.number, why.in_words());
        if iteration.number >= iteration.max {
            return Self::over_budget("max_iterations", &iteration.max, ended);
        }
        if let Some(max) = self.limits.max_steps.filter(|max| self.steps >= *max) {
            return Self::over_budget("max_steps", &max, format!("{} steps are used, and {ended}", self.steps));
        }
        State::EnteringIteration { number: iteration.number + 1, why }
    }

    /// The next iteration has begun, because `why`.
    pub(super) fn iteration_entered(&mut self, why: &IterationEnd, entered: IterationState) -> State {
        self.nudges = if self.is_idle(why) { self.nudges + 1 } else { 0 };
        self.iteration = Some(entered);
        self.steps += 1;
        self.last_word = None;
        self.between_turns()
    }

    /// Whether the iteration that ends only talked.
    fn is_idle(&self, why: &IterationEnd) -> bool {
        *why == IterationEnd::PromiseUnkept && self.iteration.as_ref().is_some_and(|iteration| iteration.tool_calls == 0)
    }
}
