//! What a provider refuses for good, and what may follow: whoever was refused asks for the same no more, less is asked for where less can be, and
//! the run stops or waits as the refusal wants it.
//!
//! What the provider was asked for and what is stored decide; nothing here asks the machine.

use ua_core::{Message, Origin, Role, RunStatus, RunStop};

use super::stage::Stage;
use super::wrong::{Violation, Wrong};
use crate::outcomes::ModelOutcome;

/// What was refused for good, to whoever drives a run.
#[derive(Debug)]
pub(super) enum Refused {
    /// The credentials: only a person can mend them, and a drive ends before that.
    Credentials,
    /// A request with these messages.
    Request(Vec<Message>),
}

impl Refused {
    /// What an outcome refuses of a request; `None` where the same request may be answered.
    pub(super) fn by(outcome: ModelOutcome, messages: &[Message]) -> Option<Self> {
        match outcome {
            ModelOutcome::Unauthorized => Some(Self::Credentials),
            ModelOutcome::Refused | ModelOutcome::TooLong => Some(Self::Request(messages.to_vec())),
            ModelOutcome::Answered
            | ModelOutcome::NeverLeft
            | ModelOutcome::RateLimited
            | ModelOutcome::Overloaded
            | ModelOutcome::ServerError
            | ModelOutcome::Silent
            | ModelOutcome::CutLate
            | ModelOutcome::CutShort => None,
        }
    }

    /// Why the next request of the same drive may not be one with these messages; `None` where it may.
    pub(super) fn forbids(&self, messages: &[Message]) -> Option<&'static str> {
        match self {
            Self::Credentials => Some("its credentials were refused, and it asks again"),
            Self::Request(before) if has_all_of(before, messages) => {
                Some("it asks again with everything that was in the request which was refused")
            }
            Self::Request(_) => None,
        }
    }
}

/// Whether a request has every message of an earlier one, each as often. What stood for messages that were left out is none.
fn has_all_of(before: &[Message], now: &[Message]) -> bool {
    let mut left: Vec<&Message> = now.iter().collect();
    before.iter().filter(|message| message.origin != Origin::Omission).all(|message| {
        let Some(place) = left.iter().position(|other| *other == message) else { return false };
        left.swap_remove(place);
        true
    })
}

/// What came of the newest request of a process for a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Newest {
    outcome: ModelOutcome,
    /// It has a turn before its newest one, which a shorter one leaves out.
    can_be_cut: bool,
}

impl Newest {
    pub(super) fn of(outcome: ModelOutcome, messages: &[Message]) -> Self {
        let replies = messages.iter().filter(|message| message.role == Role::Assistant).count();
        Self { outcome, can_be_cut: replies > 1 }
    }

    /// What is wrong with a run that was left stopped behind it, for this reason. `asks`: its job has a person asked about refused credentials. A run
    /// that stops since one below it did has another newest request: one that was answered.
    fn contradicts(self, reason: RunStop, asks: bool) -> Option<&'static str> {
        let is_refused = reason == RunStop::ProviderRefused;
        let passes = (reason == RunStop::Provider).then_some("it was refused for good, and stopped for what passes");
        match self.outcome {
            ModelOutcome::Refused => passes,
            ModelOutcome::TooLong => {
                let is_uncut = is_refused && self.can_be_cut;
                passes.or(is_uncut.then_some("its request was too long, and it did not ask with less"))
            }
            ModelOutcome::Unauthorized => {
                passes.or((is_refused && asks).then_some("nobody was asked to mend the credentials"))
            }
            ModelOutcome::NeverLeft
            | ModelOutcome::RateLimited
            | ModelOutcome::Overloaded
            | ModelOutcome::ServerError
            | ModelOutcome::Silent
            | ModelOutcome::CutLate => is_refused.then_some("what passes counts as refused for good"),
            ModelOutcome::Answered | ModelOutcome::CutShort => None,
        }
    }
}

impl Stage {
    /// A process left its runs in order: each of them as the answer to its newest request wants it.
    pub(super) fn after_refusals(&mut self, life: usize) {
        for (run, newest) in self.model.newest_of(life) {
            // Whoever was replaced does not say how a run is left.
            if self.actors[life].replaced.contains(&run) {
                continue;
            }
            let Ok(Some(record)) = self.record(&run) else { continue };
            let Some(reason) = record.stop_reason.filter(|_| record.status == RunStatus::Stopped) else { continue };
            if let Some(why) = newest.contradicts(reason, record.spec.escalation.ask_human_on_auth_failure) {
                self.wrong(Violation::new(Wrong::RefusedAgain, format!("life {life} left {run}: {why}")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ua_core::Block;

    use super::*;

    fn said(text: &str) -> Message {
        Message { role: Role::Assistant, origin: Origin::Model, blocks: vec![Block::text(text)].into() }
    }

    fn job() -> Message {
        Message::user(Origin::Prompt, "job")
    }

    #[test]
    fn what_was_refused_is_seen_when_it_comes_again_and_less_of_it_is_not() {
        let left_out = Message::user(Origin::Omission, "1 left out");
        let request = vec![job(), left_out.clone(), said("done"), said("done")];
        let with = |more: Message| request.iter().cloned().chain([more]).collect::<Vec<_>>();
        let shown_in_part = vec![job(), left_out.clone(), said("done"), said("d…")];
        for (now, is_wrong) in [
            (request.clone(), true),
            (with(Message::user(Origin::Guidance, "a note")), true),
            (vec![job(), said("done"), said("done")], true),
            (vec![job(), left_out, said("done")], false),
            (shown_in_part, false),
        ] {
            for outcome in [ModelOutcome::Refused, ModelOutcome::TooLong] {
                let refused = Refused::by(outcome, &request).unwrap();
                assert_eq!(refused.forbids(&now).is_some(), is_wrong, "{outcome:?}: {now:?}");
            }
            assert!(Refused::by(ModelOutcome::Unauthorized, &request).unwrap().forbids(&now).is_some());
        }
        assert!(Refused::by(ModelOutcome::Overloaded, &request).is_none());
    }

    /// Over every outcome, each reason to stop, and whether somebody is asked about credentials.
    #[test]
    fn a_run_that_was_left_otherwise_than_its_refusal_wants_it_is_seen() {
        let (short, long) = (vec![job(), said("a")], vec![job(), said("a"), said("b")]);
        for asks in [true, false] {
            for outcome in ModelOutcome::ALL.iter().copied() {
                let wrong = |messages: &[Message]| {
                    let of = |reason| Newest::of(outcome, messages).contradicts(reason, asks).is_some();
                    (of(RunStop::ProviderRefused), of(RunStop::Provider), of(RunStop::Interrupt))
                };
                // Of a request with one turn, and of one with two.
                let expected = match outcome {
                    ModelOutcome::Refused => [(false, true), (false, true)],
                    ModelOutcome::TooLong => [(false, true), (true, true)],
                    ModelOutcome::Unauthorized => [(asks, true), (asks, true)],
                    ModelOutcome::Answered | ModelOutcome::CutShort => [(false, false), (false, false)],
                    ModelOutcome::NeverLeft
                    | ModelOutcome::RateLimited
                    | ModelOutcome::Overloaded
                    | ModelOutcome::ServerError
                    | ModelOutcome::Silent
                    | ModelOutcome::CutLate => [(true, false), (true, false)],
                };
                let expected = expected.map(|(refused, passes)| (refused, passes, false));
                assert_eq!([wrong(&short), wrong(&long)], expected, "{outcome:?}, asks: {asks}");
            }
        }
    }
}
