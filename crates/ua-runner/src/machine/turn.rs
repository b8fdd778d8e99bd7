//! The events of a turn: recorded, its calls dispatched in block order or cancelled, committed.

use std::collections::VecDeque;

use ua_core::{CallId, RunStop, StopReason, longer_wait};
use ua_dispatch::Dispatched;
use ua_store::{Choice, QuestionKind, QuestionRecord, RequestEnd};

use super::{Conclusion, Guidance, Next, OpenCall, RunMachine, State, over, stopped};
use crate::budget::Use;
use crate::phase::PhaseState;

/// A turn that is recorded and not committed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Turn {
    /// Why its reply ended.
    stop_reason: StopReason,
    /// The reply's text.
    text: String,
    /// Whether it asks for calls.
    asks: bool,
    /// The calls that are still to be dispatched.
    pending: VecDeque<OpenCall>,
    /// A question that the run waits for once the actions beside the held one are settled.
    held: Option<Box<QuestionRecord>>,
}

impl Turn {
    pub(super) fn new(stop_reason: StopReason, text: String, calls: Vec<OpenCall>) -> Self {
        Self { stop_reason, text, asks: !calls.is_empty(), pending: calls.into(), held: None }
    }

    /// Whether what comes behind what is handed out is done at once: nobody is asked first.
    pub(super) fn goes_on(&self) -> bool {
        self.held.is_none()
    }

    /// Drops what is settled, cancels what follows a failure, else dispatches or commits.
    fn go_on(mut self) -> State {
        while let Some(call) = self.pending.front().filter(|call| call.is_settled).cloned() {
            self.pending.pop_front();
            if call.has_effect && call.has_failed {
                let calls = self.cancel_rest(&call);
                if !calls.is_empty() {
                    return State::Cancelling { turn: self, calls, failed: call.call_id };
                }
            }
        }
        if !self.pending.is_empty() {
            let group = self.next_group();
            return State::Dispatching { turn: self, group };
        }
        match self.held.take() {
            Some(question) => State::Ended(Conclusion::Waiting { question }),
            None => State::Committing { turn: self },
        }
    }

    /// The next group: adjacent reads together, adjacent tasks together, any other call with an effect alone.
    fn next_group(&mut self) -> Vec<OpenCall> {
        let mut group: Vec<OpenCall> = Vec::new();
        while let Some(call) = self.pending.front() {
            let joins = group.first().is_none_or(|first| {
                (!call.has_effect && !first.has_effect) || (call.is_task && first.is_task && call.is_beside(first))
            });
            if !joins {
                break;
            }
            group.extend(self.pending.pop_front());
        }
        group
    }

    /// Takes the calls out that are not run because `failed` did not succeed.
    fn cancel_rest(&mut self, failed: &OpenCall) -> Vec<CallId> {
        // Whoever skipped one call and let another one run said both: the second word is not undone by the first. A call that was skipped
        // is not sent in any case, and goes its own way so that the model reads what the person said about it; nor is one that an earlier call was,
        // by whose receipt it counts.
        let has_word = |call: &OpenCall| match call.answered {
            Some(Choice::Execute | Choice::Continue) => failed.is_skipped,
            Some(Choice::Skip | Choice::Happened) => true,
            Some(Choice::Abort) | None => false,
        };
        let is_over = |call: &OpenCall| {
            let may_be_cancelled = call.has_effect && !call.is_settled && !call.was_sent;
            may_be_cancelled && !call.is_beside(failed) && !has_word(call)
        };
        let calls = self.pending.iter().filter(|call| is_over(call)).map(|call| call.call_id.clone()).collect();
        self.pending.retain(|call| !is_over(call));
        for call in &mut self.pending {
            call.has_failed &= !call.has_effect; // one cancellation is enough
        }
        calls
    }

    /// A held call keeps back everything but the actions beside it, which do not depend on it.
    fn hold(&mut self, held: &OpenCall, question: Box<QuestionRecord>) {
        self.pending.retain(|call| call.is_beside(held));
        self.held.get_or_insert(question);
    }
}

/// Why a call cannot go on now: a sub-agent stopped, or the run's time does not allow a wait.
struct Parked {
    reason: RunStop,
    detail: String,
}

impl Parked {
    /// What the run stops for, of two reasons: what somebody has to do something about comes before what passes by itself, since whoever only tries
    /// again meets it again; and a wait is as long as the longest.
    fn or(self, other: Self) -> Self {
        match (self.passes(), other.passes()) {
            (true, true) => Self { detail: longer_wait(self.detail, other.detail), ..self },
            (true, false) => other,
            (false, _) => self,
        }
    }

    /// Whether it passes by itself.
    fn passes(&self) -> bool {
        match self.reason {
            RunStop::Provider => true,
            RunStop::Budget
            | RunStop::Interrupt
            | RunStop::ProviderRefused
            | RunStop::UnknownModel
            | RunStop::Fingerprint
            | RunStop::ToolServer
            | RunStop::Idle => false,
        }
    }
}

/// The calls that follow a failed one are cancelled.
pub(super) fn cancelled(state: State) -> Next {
    let State::Cancelling { turn, .. } = state else { return Err(state) };
    Ok(turn.go_on())
}

/// It is decided again with what a person said meanwhile.
pub(super) fn words_came(state: State, calls: Vec<OpenCall>) -> Next {
    let State::Cancelling { turn, .. } = state else { return Err(state) };
    Ok(Turn { pending: calls.into(), ..turn }.go_on())
}

impl RunMachine {
    /// The reply and its calls are stored.
    pub(super) fn recorded(&mut self, state: State, calls: Vec<OpenCall>) -> Next {
        let State::Recording { reserved, reply } = state else { return Err(state) };
        self.charge(reserved, RequestEnd::of_reply(&reply));
        self.add(Use::Calls(u32::try_from(calls.len()).unwrap_or(u32::MAX)));
        Ok(self.after_recording(Turn::new(reply.stop_reason, reply.text(), calls)))
    }

    /// A recorded turn: a reply that exceeds the tool-call budget stops before its first dispatch.
    pub(super) fn after_recording(&self, turn: Turn) -> State {
        let nothing_sent = !turn.pending.is_empty() && turn.pending.iter().all(|call| !call.is_settled);
        let stop = nothing_sent.then(|| {
            let stop = self.limits.calls_stop(&self.used);
            stop.or_else(|| self.phase.as_ref().and_then(PhaseState::calls_stop))
        });
        match stop.flatten() {
            Some(stop) => over(&stop),
            None => turn.go_on(),
        }
    }

    /// The calls that were handed out ended.
    pub(super) fn dispatched(&mut self, state: State, ended: Vec<Dispatched>) -> Next {
        let State::Dispatching { mut turn, group } = state else { return Err(state) };
        let (mut failed, mut parked) = (None, None::<Parked>);
        for (call, ended) in group.iter().zip(ended) {
            match ended {
                Dispatched::Settled(record) => {
                    self.note_error(&record);
                    let settled = OpenCall::of(&record);
                    if call.has_effect && settled.has_failed {
                        // Of several that did not succeed, one that went wrong counts before one that was skipped.
                        let is_skipped =
                            settled.is_skipped && failed.as_ref().is_none_or(|earlier: &OpenCall| earlier.is_skipped);
                        failed = Some(OpenCall { is_skipped, ..call.clone() });
                    }
                }
                Dispatched::Held(question) => turn.hold(call, question),
                Dispatched::Parked { reason, detail } => {
                    let other = Parked { reason, detail };
                    parked = Some(match parked {
                        Some(one) => one.or(other),
                        None => other,
                    });
                }
                Dispatched::Stopped => return Ok(self.interrupted()),
            }
        }
        if let Some(Parked { reason, detail }) = parked {
            return Ok(stopped(reason, &detail));
        }
        if let Some(failed) = failed {
            let calls = turn.cancel_rest(&failed);
            if !calls.is_empty() {
                return Ok(State::Cancelling { turn, calls, failed: failed.call_id });
            }
        }
        Ok(turn.go_on())
    }

    /// The turn is committed.
    pub(super) fn committed_turn(&mut self, state: State, held_millis: u64) -> Next {
        let State::Committing { turn } = state else { return Err(state) };
        self.committed += 1;
        self.held_millis = held_millis;
        self.add(Use::Turn);
        // None of the calls of a reply that was refused is made, whatever it asked for: it is a refusal like one without calls, and the results of those
        // say so to the model.
        if turn.asks && turn.stop_reason == StopReason::Refusal {
            let given_up =
                self.talk.take(turn.stop_reason, &turn.text).err().filter(|end| end.is_given_up(self.talk.vain()));
            return Ok(match given_up {
                Some(end) => {
                    let text = end.question(self.talk.vain(), &turn.text, &self.ended);
                    self.ask_about_failures(QuestionKind::RepeatedFailures, text)
                }
                None => self.between_turns(None),
            });
        }
        if let Some(text) = self.limits.same_error_question(self.same_error.as_ref()) {
            return Ok(self.ask_about_failures(QuestionKind::RepeatedFailures, text));
        }
        if turn.asks {
            self.talk.asked_for_tools();
            return Ok(self.between_turns(None));
        }
        let end = match self.talk.take(turn.stop_reason, &turn.text) {
            Ok(answer) => return Ok(self.between_turns(Some(answer))),
            Err(end) => end,
        };
        if end.is_given_up(self.talk.vain()) {
            let text = end.question(self.talk.vain(), &turn.text, &self.ended);
            return Ok(self.ask_about_failures(QuestionKind::RepeatedFailures, text));
        }
        Ok(self.budget_stop().unwrap_or(State::Guiding(Guidance::Unfinished(end))))
    }
}
