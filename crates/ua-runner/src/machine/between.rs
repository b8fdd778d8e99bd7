//! The events between turns: what a resume owes, the evidence, phases, guidance and questions.

use ua_store::{QuestionKind, QuestionRecord};

use super::{Conclusion, Guidance, MAX_NUDGES, Missing, Next, RunMachine, State, Word, over};
use crate::phase::PhaseState;
use crate::retry::Tries;

/// The question is raised.
pub(super) fn asked(state: State, question: Box<QuestionRecord>) -> Next {
    let State::Asking { .. } = state else { return Err(state) };
    Ok(State::Ended(Conclusion::Waiting { question }))
}

impl RunMachine {
    /// Between two turns: what a resume owes the model and a person, then the evidence for a last word, else budgets, what the model has to be told,
    /// and the next request.
    pub(super) fn between_turns(&mut self, last_word: Option<Word>) -> State {
        if self.replaying {
            return State::FinishingReplay { last_word };
        }
        if let Some(text) = self.unasked.take() {
            return self.ask_about_failures(QuestionKind::RepeatedFailures, text);
        }
        match last_word {
            Some(last_word) => State::Checking { last_word },
            None => self.budget_stop().unwrap_or_else(|| match self.untold.take() {
                Some(end) => State::Guiding(Guidance::Unfinished(end)),
                None => State::Reserving { tries: Tries::default() },
            }),
        }
    }

    /// Packet and note are written.
    pub(super) fn replay_finished(&mut self, state: State) -> Next {
        let State::FinishingReplay { last_word } = state else { return Err(state) };
        self.replaying = false;
        Ok(self.between_turns(last_word))
    }

    /// All conditions hold, or something is missing.
    pub(super) fn evidence(&mut self, state: State, found: Result<(), Missing>) -> Next {
        let State::Checking { last_word } = state else { return Err(state) };
        let next = self.phase.as_ref().and_then(|phase| phase.next.clone());
        if next.is_none()
            && let Some(state) = self.after_promise(last_word.text(), &found)
        {
            return Ok(state);
        }
        // A person was asked about what is missing, and lets the model try again: it is told, whoever may have to say more about it later.
        if std::mem::take(&mut self.may_try_again)
            && let Err(missing) = &found
        {
            return Ok(self.tell_missing(Missing { is_for_a_person: false, ..missing.clone() }));
        }
        Ok(match (found, next) {
            (Ok(()), Some(next)) => self.after_phase(next),
            (Ok(()), None) => State::Ended(Conclusion::Succeeded { final_output: last_word.text().to_owned() }),
            (Err(missing), _) if missing.is_for_a_person => self.ask_about_missing(of_person(&missing)),
            (Err(missing), _) => self.tell_missing(missing),
        })
    }

    /// The next phase has begun.
    pub(super) fn phase_entered(&mut self, state: State, phase: PhaseState) -> Next {
        let State::EnteringPhase { .. } = state else { return Err(state) };
        self.phase = Some(phase);
        self.talk.begin_anew();
        self.steps += 1;
        self.nudges = 0;
        Ok(self.between_turns(None))
    }

    /// The guidance is in the history.
    pub(super) fn guided(&mut self, state: State) -> Next {
        let State::Guiding(_) = state else { return Err(state) };
        Ok(self.between_turns(None))
    }

    /// A phase whose conditions hold: the next one, if a step is left for it.
    fn after_phase(&self, next: String) -> State {
        match self.limits.steps_stop(self.steps, &format!("the phase `{next}` would be the next")) {
            Some(stop) => over(&stop),
            None => State::EnteringPhase { next },
        }
    }

    /// Conditions that do not hold although the model is done: it is told so a few times, then a person is asked.
    pub(super) fn tell_missing(&mut self, missing: Missing) -> State {
        if self.nudges >= MAX_NUDGES {
            return self.ask_about_missing(of_person(&missing));
        }
        if let Some(state) = self.budget_stop() {
            return state;
        }
        self.nudges += 1;
        State::Guiding(Guidance::Missing(missing.text))
    }

    pub(super) fn ask_about_missing(&self, text: String) -> State {
        self.ask_about_failures(QuestionKind::MissingEvidence, text)
    }
}

/// What is missing, as a person is asked about it.
fn of_person(missing: &Missing) -> String {
    format!("The model says it is done, but this is missing:\n{}", missing.for_person)
}
