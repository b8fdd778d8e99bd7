//! What the machine decides about iterations.
//!
//! | after | next |
//! |---|---|
//! | a request that is larger than the context may be, behind at least one turn | the next iteration |
//! | a reply that asks for nothing and has no promise | the next iteration; a few in a row that asked for no tool at all: a person |
//! | a promise, and a condition that does not hold | say what is missing, as often as for any missing condition; then a person |
//! | a promise, and every condition holds | the end of the run |
//! | no iteration is left | stop |

use ua_core::{BudgetStop, HarnessSpec};

use super::{MAX_NUDGES, Missing, Next, RunMachine, State, over};
use crate::iteration::{IterationEnd, IterationState, context_too_small};
use crate::retry::Tries;

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

    /// Why a job can never be done in iterations of the size that it asks for: what each of them begins with is larger, and has so many tokens.
    /// How the provider counts may be known only behind the first reply, so it is asked at the beginning of each.
    pub fn context_impossible(&self, tokens: u64, asked: u64) -> Option<String> {
        (self.begins_iteration().is_some() && tokens > asked).then(|| context_too_small(asked, tokens))
    }

    /// The number of the iteration that has no turn yet, if one stands so.
    pub fn begins_iteration(&self) -> Option<u32> {
        let begun = self.iteration.as_ref().filter(|iteration| self.committed < iteration.first_turn);
        begun.map(|iteration| iteration.number)
    }

    /// What a promise makes of the evidence at the end of the job. `None` leaves it as it is: no promise is asked for, or it was given and
    /// everything holds.
    pub(super) fn after_promise(&mut self, last_word: &str, found: &Result<(), Missing>) -> Option<State> {
        let promise = self.iteration.as_ref()?.promise.as_ref()?;
        let is_promised = HarnessSpec::is_promised(last_word, promise);
        match found {
            Ok(()) if is_promised => None,
            // As it stands: a person says what is still to be done.
            Err(missing) if is_promised && missing.is_for_a_person => None,
            Err(Missing { text, for_person, .. }) if is_promised => Some(self.tell_missing(Missing {
                text: format!("You gave the promise, but it counts only with evidence. {text}"),
                for_person: for_person.clone(),
                is_for_a_person: false,
            })),
            Ok(()) | Err(_) => Some(self.end_iteration(IterationEnd::PromiseUnkept)),
        }
    }

    /// Ends the iteration: the next one, if the budgets leave one.
    pub(super) fn end_iteration(&mut self, why: IterationEnd) -> State {
        if let Some(state) = self.budget_stop() {
            return state;
        }
        let Some(iteration) = &self.iteration else { return State::Reserving { tries: Tries::default() } };
        if self.is_idle(&why) && self.nudges >= MAX_NUDGES {
            let text = format!(
                "{} iterations in a row ended without a tool call and without the promise that the job is done.",
                self.nudges + 1
            );
            return self.ask_about_missing(text);
        }
        let ended = format!("iteration {} is over: {}", iteration.number, why.in_words());
        if iteration.number >= iteration.max {
            return over(&BudgetStop::iterations(iteration.max, ended));
        }
        if let Some(stop) = self.limits.steps_stop(self.steps, &ended) {
            return over(&stop);
        }
        State::EnteringIteration { number: iteration.number + 1, why }
    }

    /// The next iteration has begun.
    pub(super) fn iteration_entered(&mut self, state: State, entered: IterationState) -> Next {
        let State::EnteringIteration { why, .. } = state else { return Err(state) };
        self.nudges = if self.is_idle(&why) { self.nudges + 1 } else { 0 };
        self.iteration = Some(entered);
        self.talk.begin_anew();
        self.steps += 1;
        Ok(self.between_turns(None))
    }

    /// Whether the iteration that ends only talked.
    fn is_idle(&self, why: &IterationEnd) -> bool {
        *why == IterationEnd::PromiseUnkept
            && self.iteration.as_ref().is_some_and(|iteration| iteration.tool_calls == 0)
    }
}

#[cfg(test)]
mod tests {
    use ua_core::{Block, ModelTurn, RunStop, StopReason};
    use ua_store::QuestionKind;

    use super::*;
    use crate::budget::Estimate;
    use crate::machine::{Command, Conclusion, Event, Guidance, Limits, Start};

    fn iteration(number: u32) -> IterationState {
        let promise = Some("ALL DONE".to_owned());
        IterationState { number, max: 9, first_turn: 1, tool_calls: 0, context_budget: 100, promise }
    }

    fn machine(max_steps: Option<u32>) -> RunMachine {
        let start = Start { committed: 3, iteration: Some(iteration(1)), ..Start::fresh() };
        RunMachine::new(Limits { ask_on_repeated_failures: true, max_steps, ..Limits::default() }, start)
    }

    /// The model says `text` and asks for nothing; then the evidence is `found`.
    fn says(machine: &mut RunMachine, text: &str, found: Result<(), Missing>) -> Command {
        let blocks = vec![Block::text(text)];
        let reply =
            ModelTurn { blocks, stop_reason: StopReason::EndTurn, usage: None, model: "m".into(), response_id: None };
        let events = [
            Event::Reserved(Estimate::default()),
            Event::Thought(Ok(Box::new(reply))),
            Event::Recorded(Vec::new()),
            Event::Committed { held_millis: 0 },
        ];
        for event in events {
            machine.apply(event).unwrap();
        }
        assert!(matches!(machine.command(), Command::CheckEvidence { .. }));
        machine.apply(Event::Evidence(found)).unwrap();
        machine.command()
    }

    fn missing() -> Result<(), Missing> {
        Err("the e-mail".into())
    }

    /// A ratio that the provider's first count tells is known at the next beginning, not within an iteration.
    #[test]
    fn a_context_that_what_each_iteration_begins_with_exceeds_is_told_at_every_beginning() {
        for (number, committed) in [(1, 0), (1, 1), (4, 0), (4, 1)] {
            let start = Start { committed, iteration: Some(iteration(number)), ..Start::fresh() };
            let machine = RunMachine::new(Limits::default(), start);
            let begins = committed == 0;
            assert_eq!(machine.begins_iteration(), begins.then_some(number));
            for (tokens, asked, expected) in [(101, 100, begins), (100, 100, false), (99, 100, false)] {
                let why = machine.context_impossible(tokens, asked);
                assert_eq!(why.is_some(), expected, "{number} {committed} {tokens} {asked}: {why:?}");
                assert!(why.is_none_or(|why| why.starts_with("harness.context_budget_tokens is 100")));
            }
        }
    }

    #[test]
    fn a_promise_ends_the_run_only_with_evidence_and_evidence_only_with_a_promise() {
        let promise = "<promise>ALL DONE</promise>";
        let next = Command::EnterIteration { number: 2, why: IterationEnd::PromiseUnkept };
        for found in [Ok(()), missing()] {
            assert_eq!(says(&mut machine(None), "I am done.", found), next);
        }
        let done = says(&mut machine(None), promise, Ok(()));
        assert_eq!(done, Command::Stop(Conclusion::Succeeded { final_output: promise.to_owned() }));
        let mut early = machine(None);
        for _ in 0..MAX_NUDGES {
            let told = says(&mut early, promise, missing());
            assert!(matches!(told, Command::Guide { text: Guidance::Missing(text) } if text.contains("the e-mail")));
            early.apply(Event::Guided).unwrap();
        }
        let asked = says(&mut early, promise, missing());
        assert!(matches!(asked, Command::Ask { kind: QuestionKind::MissingEvidence, .. }), "{asked:?}");
    }

    #[test]
    fn a_full_context_ends_an_iteration_that_has_a_turn() {
        let mut full = machine(None);
        assert_eq!(full.context_full(100), None);
        let why = full.context_full(101).unwrap();
        full.apply(Event::ContextFull(why.clone())).unwrap();
        assert_eq!(full.command(), Command::EnterIteration { number: 2, why });
        let entered = IterationState { first_turn: 4, ..iteration(2) };
        full.apply(Event::IterationEntered(Box::new(entered))).unwrap();
        assert_eq!((full.command(), full.context_full(1_000)), (Command::Reserve { turn: 4 }, None));
    }

    #[test]
    fn iterations_stop_at_their_own_number_and_at_that_of_steps() {
        let budget = |command: Command| {
            let Command::Stop(Conclusion::Stopped { reason: RunStop::Budget, detail }) = command else {
                panic!("{command:?}")
            };
            detail
        };
        let mut last = machine(None);
        last.iteration.as_mut().unwrap().number = 9;
        let detail = budget(says(&mut last, "Later.", missing()));
        assert!(detail.starts_with("the budget max_iterations (9) is reached: iteration 9 is over"), "{detail}");
        let detail = budget(says(&mut machine(Some(0)), "Later.", missing()));
        assert!(detail.starts_with("the budget max_steps (0) is reached"), "{detail}");
    }

    #[test]
    fn iterations_that_only_talk_are_counted_and_one_that_works_begins_anew() {
        let mut talks = machine(None);
        for number in 2..=1 + MAX_NUDGES {
            let entered = says(&mut talks, "Soon.", missing());
            assert_eq!(entered, Command::EnterIteration { number, why: IterationEnd::PromiseUnkept });
            talks.apply(Event::IterationEntered(Box::new(iteration(number)))).unwrap();
        }
        let mut works = machine(None);
        works.nudges = MAX_NUDGES;
        works.iteration.as_mut().unwrap().tool_calls = 1;
        assert!(matches!(says(&mut works, "Soon.", missing()), Command::EnterIteration { number: 2, .. }));
        works.apply(Event::IterationEntered(Box::new(iteration(2)))).unwrap();
        assert_eq!(works.nudges, 0);
        let asked = says(&mut talks, "Soon.", missing());
        assert!(matches!(asked, Command::Ask { kind: QuestionKind::MissingEvidence, .. }), "{asked:?}");
    }
}
