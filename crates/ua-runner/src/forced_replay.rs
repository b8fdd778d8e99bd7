//! Forced replay: what a client that owns the loop has to ask for again after its conversation broke.
//!
//! Durable runner, current state §6. A call that was under way when the client or this process died is taken to its receipt by the
//! ledger, like every other call; but its result never reached the conversation, which only knows that the call was interrupted. So its
//! model is told to make exactly that call again, and is given the receipt. Until it has asked for every one of them it may look, and
//! nothing else: another call with an effect, the same thing in other words among them, is refused with what to do first.
//!
//! Everything is read off the records. The conversation broke after a turn when a note of origin `resume` stands behind it; what that
//! turn's calls with an effect did is owed from then on, until an iteration begins with an empty conversation. A call with exactly the tool and the arguments of an owed one *is* that call: it
//! gets its receipt and never runs.
//!
//! Invariants: no owed call runs a second time, whatever is killed; what is owed does not depend on which process asks; nobody is asked
//! in vain for ever (three turns or two refused ones, then a person). Proved by: `crash_anywhere::own_loop`, the
//! end-to-end tests `claude_code`.

use ua_core::{ArgsHash, CallId, CallStatus, Origin, PlannedCall, Refusal, Resolution};
use ua_store::{CallRecord, RunRecords};

/// Turns in which the model may ask for what is owed before a person is asked.
const MAX_TURNS: u32 = 3;
/// Of these, turns in which something else with an effect was refused.
const MAX_ATTEMPTS: u32 = 2;
/// Why a call is refused while others are owed.
pub(crate) const REPLAY_FIRST: &str = "replay_first";
/// Why a call is answered with the failure of the one it repeats.
const REPLAYED: &str = "replayed";

/// A call whose result did not reach the conversation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Owed {
    tool: String,
    args_hash: ArgsHash,
    arguments: serde_json::Value,
    call_id: CallId,
    /// The call whose receipt answers it; `None` when it did not succeed.
    receipt_of: Option<CallId>,
}

impl Owed {
    fn of(call: &CallRecord) -> Self {
        let source = call.answered_by().unwrap_or(&call.call_id).clone();
        Self {
            tool: call.name.raw.clone(),
            args_hash: call.args_hash,
            arguments: call.arguments.clone().unshared(),
            call_id: call.call_id.clone(),
            receipt_of: (call.status == CallStatus::Succeeded).then_some(source),
        }
    }

    fn is(&self, tool: &str, args_hash: &ArgsHash) -> bool {
        self.tool == tool && self.args_hash == *args_hash
    }
}

/// What a conversation is owed, and how it was asked to take it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ForcedReplay {
    owed: Vec<Owed>,
    turns: u32,
    attempts: u32,
}

impl ForcedReplay {
    /// Reads what is owed after the committed turns of `records`.
    pub(crate) fn of(records: &RunRecords) -> Self {
        let own = records.run.shared_turns();
        let mut replay = Self::default();
        for turn in records.turns.iter().filter(|turn| turn.committed_at.is_some() && turn.turn > own) {
            let calls: Vec<&CallRecord> = records.calls.iter().filter(|call| call.position.turn == turn.turn).collect();
            replay.pass(&calls);
            // The next iteration began behind it, with an empty conversation: that is owed nothing, and lacks nothing when it broke.
            if records.messages.iter().any(|m| m.turn == turn.turn && m.message.origin == Origin::Iteration) {
                replay = Self::default();
                continue;
            }
            // A note that is appended between turns belongs to the turn that was committed last.
            if records.messages.iter().any(|m| m.turn == turn.turn && m.message.origin == Origin::Resume) {
                replay.break_after(&calls);
            }
        }
        replay
    }

    /// A turn went by.
    pub(crate) fn pass(&mut self, calls: &[&CallRecord]) {
        if self.owed.is_empty() {
            return;
        }
        self.turns += 1;
        self.attempts += u32::from(calls.iter().any(|call| call.error_code.as_deref() == Some(REPLAY_FIRST)));
        for (_, owed) in self.assign(calls.iter().copied()) {
            self.owed.retain(|other| other.call_id != owed.call_id);
        }
    }

    /// The conversation broke after a turn with these calls.
    pub(crate) fn break_after(&mut self, calls: &[&CallRecord]) {
        (self.turns, self.attempts) = (0, 0);
        for call in calls.iter().filter(|call| is_owed(call)) {
            let owed = Owed::of(call);
            // The turn may have asked for it as owed already.
            self.owed.retain(|other| !other.is(&owed.tool, &owed.args_hash) || other.receipt_of != owed.receipt_of);
            self.owed.push(owed);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.owed.is_empty()
    }

    /// Which calls of a turn are owed ones: each owed call is taken once, by the first that is it.
    pub(crate) fn assign<'c>(&self, calls: impl Iterator<Item = &'c CallRecord>) -> Vec<(&'c CallRecord, Owed)> {
        let mut left = self.owed.clone();
        let mut assigned = Vec::new();
        for call in calls {
            let was_refused = call.status == CallStatus::Cancelled && call.error_code.as_deref() != Some(REPLAYED);
            if call.policy.via.is_none()
                && !was_refused
                && let Some(at) = left.iter().position(|owed| owed.is(&call.name.raw, &call.args_hash))
            {
                assigned.push((call, left.remove(at)));
            }
        }
        assigned
    }

    /// What answers `call`, a call of the open turn with `calls`, if it is an owed one that succeeded.
    pub(crate) fn receipt_for(&self, call: &CallRecord, calls: &[CallRecord]) -> Option<CallId> {
        let assigned = self.assign(calls.iter());
        assigned.into_iter().find(|(one, _)| one.call_id == call.call_id).and_then(|(_, owed)| owed.receipt_of)
    }

    /// Refuses what may not be done yet in a reply's plan. An owed call that did not succeed is answered with what came of it, which
    /// `outcome` says.
    pub(crate) fn enforce(&self, calls: &mut [PlannedCall], outcome: impl Fn(&CallId) -> String) {
        let mut left = self.owed.clone();
        for call in calls.iter_mut().filter(|call| call.refusal.is_none()) {
            let at = left.iter().position(|owed| call.policy.via.is_none() && owed.is(&call.name.raw, &call.args_hash));
            if let Some(at) = at {
                let owed = left.remove(at);
                if owed.receipt_of.is_none() {
                    call.refusal = Some(refusal(REPLAYED, outcome(&owed.call_id)));
                }
            } else if call.policy.class.has_effect() && !left.is_empty() {
                let message = format!(
                    "Not run: calls of yours were interrupted, and you have not taken their results yet. First make exactly these calls, \
                     with exactly these arguments:\n{}",
                    list(&left)
                );
                call.refusal = Some(refusal(REPLAY_FIRST, message));
            }
        }
    }

    /// The owed calls that did not succeed; what came of them is told in words.
    pub(crate) fn failed(&self) -> impl Iterator<Item = &CallId> {
        self.owed.iter().filter(|owed| owed.receipt_of.is_none()).map(|owed| &owed.call_id)
    }

    /// Why a person has to be asked, if it was tried often enough.
    pub(crate) fn gives_up(&self) -> Option<String> {
        if self.owed.is_empty() || (self.turns < MAX_TURNS && self.attempts < MAX_ATTEMPTS) {
            return None;
        }
        Some(format!(
            "The agent was told to take the results of interrupted calls by making them again, and did not within {}, in {} of \
             which it asked for something else with an effect, which was refused. None of the calls will run again. Still to be taken:\n{}\
             \nAnswer `retry` to let it try again, or `abort`.",
            ua_core::counted(self.turns, "turn"),
            self.attempts,
            list(&self.owed)
        ))
    }

    /// What the model is told to do first.
    pub(crate) fn prompt(&self) -> String {
        format!(
            "Calls of yours were under way when you were interrupted. They were taken care of; only their results did not reach you. Before \
             anything else, make exactly these calls, with exactly these arguments, one after the other. None of them is carried out \
             again: you are given what came of it. Until then nothing else that has an effect is run.\n{}",
            list(&self.owed)
        )
    }
}

/// Whether the result of `call` is owed once the conversation broke: it may have had an effect. The inner actions of a composite call
/// have no name of their own in the conversation.
fn is_owed(call: &CallRecord) -> bool {
    call.policy.class.has_effect()
        && call.policy.via.is_none()
        && match call.status {
            CallStatus::Succeeded | CallStatus::FailedReported => true,
            CallStatus::Unknown => call.resolution == Some(Resolution::Skipped),
            // Answered in the place of an owed one that had failed: that answer did not arrive either.
            CallStatus::Cancelled => call.error_code.as_deref() == Some(REPLAYED),
            CallStatus::Prepared | CallStatus::Running | CallStatus::FailedDefinite => false,
        }
}

fn refusal(code: &str, message: String) -> Refusal {
    Refusal { resolution: Resolution::Refused, code: code.to_owned(), message }
}

fn list(owed: &[Owed]) -> String {
    let line = |owed: &Owed| serde_json::json!({"tool": owed.tool, "arguments": owed.arguments}).to_string();
    owed.iter().map(line).collect::<Vec<_>>().join("\n")
}
