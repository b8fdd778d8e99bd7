//! What was sent for a family of runs and is in no row of its database, which went back in time: whoever is about to do the like is asked first.
//!
//! A person accepts that the runs are driven on all the same (`ua db accept`), and not that what was done is done again. So a call that is about to
//! be sent, for the first time or once more, and is like one of which `effects.log` alone knows is in doubt, as if it had been that one: its question
//! is whether that happened. Each call that was lost puts at most one call in the same words in doubt, and one in other words, so no more is asked
//! than was lost.
//! Proved by: the tests of `ua_store::recall_lost`, `identity::lost`, the simulation.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use serde_json::{Value, json};
use ua_core::{CallStatus, CorrectedTo, IdempotencyKey, OnScopeConflict, Timestamp};
use ua_store::{
    AS_TASK, AttemptRecord, BY_A_WORD, CallRecord, LEFT_BY_A_WORD, LedgerStore as _, Lost, MadeBy, RecallCall, Trace,
    recall_lost, rules,
};

use crate::admission::Facts;
use crate::error::LedgerError;
use crate::ledger::{Ledger, Lineage};
use crate::rules::key_of;

impl Ledger {
    /// The same ledger, of a family of which this was sent and is in no row.
    #[must_use]
    pub fn with_lost(self, lost: Vec<Lost>) -> Self {
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = lost;
        self
    }

    /// Whether a call has to be looked at for what was lost.
    pub(crate) fn may_repeat_lost(&self, call: &CallRecord) -> bool {
        call.policy.class.has_effect() && !self.lost.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// What puts a call that may be sent in doubt, where it may be what was lost. What a policy allows in other words is asked about in the same ones
    /// alone, where those say what the effect is; what may be made as often as a model asks for it is not asked about.
    pub(crate) fn lost_like(&self, call: &CallRecord, facts: &Facts) -> Option<RecallCall> {
        let says_what = facts.are_by_content(call) && !call.policy.kind_is_guessed;
        let is_once = |recall: &RecallCall| {
            let is_once_in_any = call.policy.on_scope_conflict != OnScopeConflict::Allow;
            let is_once = |in_same_words| is_once_in_any || (in_same_words && says_what);
            self.config.no_duplicate_external_actions
                && call.policy.class.has_effect()
                && recall.attempts.iter().all(|line| line.made_by.as_ref().is_none_or(|it| is_once(it.in_same_words)))
        };
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key_in_own_place(&self.lineage, call);
        let mut recall = recall_lost(call, facts.scope.as_ref(), &lost, key).filter(is_once)?;
        let now = self.env.now();
        for attempt in recall.attempts.iter_mut().filter(|attempt| attempt.made_by.is_some()) {
            // What it would send is shown to whoever is asked, and is what goes out on their word.
            attempt.file_digests = Some(facts.files.digests());
            // Whoever sent it is gone by now, whatever a clock said then that was set back since: nobody waits until it says so again.
            attempt.sent_at = attempt.sent_at.min(now);
            attempt.at = attempt.at.min(now);
        }
        Some(recall)
    }

    /// How many effects of the kind of `call` were lost: they count towards what a job allows, as what happened or may have happened does. One in whose
    /// place a call stands counts as that call, and so does the one for which `recall` is about to put this one in doubt.
    pub(crate) fn lost_effects(&self, call: &CallRecord, recall: Option<&RecallCall>) -> u32 {
        let Some(kind) = &call.policy.effect_kind else { return 0 };
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let is_one = |lost: &&Lost| {
            let (known, stands) = (&lost.known, lost.was_suspected || lost.was_recalled);
            let is_refuted = known.correction.as_ref().is_some_and(|word| word.outcome == CorrectedTo::NotHappened);
            let is_none = known.did_nothing() || known.status == CallStatus::Cancelled.as_str();
            // A scope begins with the kind; what could not be looked at has none.
            let is_of_kind = match &known.scope {
                Some(scope) => scope.split(' ').next() == Some(kind.as_str()),
                None => known.tool == call.name.raw,
            };
            let root = self.lineage.root.as_str();
            let is_of_family =
                known.run_id == call.run_id.as_str() || known.root.as_deref().is_none_or(|of| of == root);
            let is_another = known.tool_call_id.as_deref() != Some(call.call_id.as_str());
            let is_recalled = recall.is_some_and(|recall| puts_in_doubt(recall, lost));
            let counts = !stands && !is_recalled && !is_refuted && !is_none;
            known.attempt > 0 && is_of_family && is_another && is_of_kind && counts
        };
        let calls: BTreeSet<&str> =
            lost.iter().filter(is_one).filter_map(|it| it.known.tool_call_id.as_deref()).collect();
        u32::try_from(calls.len()).unwrap_or(u32::MAX)
    }

    /// Stores that a call is in doubt for what was lost, which is asked about no more.
    pub(crate) async fn recall(&self, call: &CallRecord, recall: RecallCall) -> Result<(), LedgerError> {
        let made_by = recall.attempts.first().and_then(|attempt| attempt.made_by.as_ref());
        let in_other_words = made_by.is_some_and(|made_by| !made_by.in_same_words);
        let id = &call.call_id;
        self.store.recall_call(recall.clone()).await.map_err(LedgerError::at("compare with effects.log", id))?;
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        for lost in lost.iter_mut().filter(|lost| puts_in_doubt(&recall, lost)) {
            lost.was_suspected |= in_other_words;
            lost.was_recalled |= !in_other_words;
        }
        Ok(())
    }

    /// The keys of what was lost, for a call that may be sent under a new one.
    pub(crate) fn lost_keys(&self, call: &CallRecord) -> Option<LostKeys> {
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let used_up: BTreeSet<String> = lost.iter().filter_map(Lost::used_up).map(str::to_owned).collect();
        (!used_up.is_empty()).then(|| LostKeys { used_up, own: key_in_own_place(&self.lineage, call) })
    }
}

/// Whether it is for this that a call is put in doubt.
fn puts_in_doubt(recall: &RecallCall, lost: &Lost) -> bool {
    let made_by = recall.attempts.first().and_then(|attempt| attempt.made_by.as_ref());
    let of = lost.known.tool_call_id.as_deref();
    of == Some(recall.call_id.as_str()) || made_by.is_some_and(|made_by| of == Some(made_by.call.as_str()))
}

/// The keys under which calls were answered that the database does not have: whoever answered would do nothing under them again, whether or not a
/// person has undone since what was done.
#[derive(Debug, Clone)]
pub(crate) struct LostKeys {
    pub(crate) used_up: BTreeSet<String>,
    /// One that nobody got.
    pub(crate) own: IdempotencyKey,
}

impl LostKeys {
    /// The key for a call that would be sent under `key`.
    pub(crate) fn instead_of(&self, key: IdempotencyKey) -> IdempotencyKey {
        if self.used_up.contains(key.as_str()) { self.own.clone() } else { key }
    }
}

/// A key that no other call has: whoever got what was lost knows nothing of it.
pub fn key_in_own_place(lineage: &Lineage, call: &CallRecord) -> IdempotencyKey {
    let Lineage { database, root, mark } = lineage;
    key_of((database, mark.as_deref()), call, None, (root.as_str(), call.call_id.as_str()))
}

/// What `effects.log` alone knows was sent, and in whose place another call is asked about: whatever a person reads of it (when, with what outcome, under
/// which names) is from its own line, and no value of the call that asks can be said in its place.
#[derive(Debug)]
pub(crate) struct LostCall {
    /// Which one; `None` is the call itself, of an attempt that its database lost.
    of: Option<MadeBy>,
    said: String,
    sent_at: Timestamp,
}

impl LostCall {
    /// The call in whose place the attempt's own call is in doubt.
    pub(crate) fn of(attempt: &AttemptRecord) -> Option<Self> {
        let (of, said) = rules::made_by(attempt)?;
        Some(Self { of: Some(of), said: said.to_owned(), sent_at: attempt.started_at })
    }

    /// What puts a call in doubt as soon as it may go out.
    pub(crate) fn about_to_be_asked(recall: &RecallCall) -> Option<Self> {
        let last = recall.attempts.last()?;
        Some(Self { of: last.made_by.clone(), said: last.said.clone(), sent_at: last.sent_at })
    }

    /// Whether the log says that it happened.
    fn says_that_it_happened(&self) -> bool {
        self.said == CallStatus::Succeeded.as_str() || self.said == BY_A_WORD
    }

    fn is_in_same_words(&self) -> bool {
        self.of.as_ref().is_none_or(|of| of.in_same_words)
    }

    /// What came of it, and what the other side calls it.
    fn outcome(&self) -> String {
        let said = match self.said.as_str() {
            AS_TASK => "its tool continued it as a task, which may still be under way",
            BY_A_WORD => "a person said that it happened",
            LEFT_BY_A_WORD => "a person left it without knowing what came of it",
            said => said,
        };
        let id = self.of.as_ref().and_then(|of| of.external_id.as_ref());
        id.map_or_else(|| said.to_owned(), |id| format!("{said}, as {id}"))
    }

    /// What was sent, when, and in which words.
    fn sent(&self) -> String {
        let Self { of, sent_at, .. } = self;
        let Some(of) = of else { return format!("this call was sent at {sent_at} ({})", self.outcome()) };
        let words = if of.in_same_words {
            "with the same arguments"
        } else {
            "with other arguments, or with ones that it does not tell"
        };
        format!("call {} of run {} was sent at {sent_at} {words} ({})", of.call, of.run, self.outcome())
    }

    /// What is said of it among other reasons.
    pub(crate) fn in_words(&self) -> String {
        let sent = self.sent();
        let lacks = if self.of.is_some() { "that call" } else { "what came of it" };
        format!(
            "effects.log knows that {sent}, and this database does not have {lacks}, since an older copy of it was put back"
        )
    }

    /// The question whether it was this: first of all what the log says, if that is an answer.
    pub(crate) fn asked(&self, tool: &str) -> String {
        if self.says_that_it_happened() && self.is_in_same_words() {
            let sent = self.sent();
            return format!(
                "Did `{tool}` happen? effects.log says that it did: {sent}. This call was not sent itself, and this database does not have that one, since \
                 an older copy of it was put back. The answer is that it happened, unless it was undone since."
            );
        }
        let follows = if self.says_that_it_happened() {
            " If that was the effect that this call is to have, the answer is that it happened."
        } else {
            ""
        };
        format!("Did `{tool}` happen? This call was not sent itself: {}.{follows}", self.in_words())
    }

    /// The same as a line of a question that is asked before: whoever lets the call run knows that this is asked next.
    pub(crate) fn asked_next(&self) -> String {
        format!("May have happened already: {}; whether it did is asked before this call is sent", self.in_words())
    }

    /// How a question keeps it.
    pub(crate) fn as_shown(&self, own: &CallRecord) -> Value {
        let call = self.of.as_ref().map_or(own.call_id.as_str(), |of| of.call.as_str());
        let run = self.of.as_ref().map_or(own.run_id.as_str(), |of| of.run.as_str());
        let mut shown = json!({ "call": call, "run": run, "sent_at": self.sent_at, "said": self.said });
        if let Some(of) = &self.of {
            shown["in_same_words"] = json!(of.in_same_words);
            shown["found_by"] = json!(of.found_by);
            shown["external_id"] = json!(of.external_id);
        }
        shown
    }

    /// By what it is found, for a line of a question.
    pub(crate) fn trace(&self) -> Option<Trace> {
        let of = self.of.clone()?;
        (!of.found_by.is_empty()).then(|| Trace { names: of.found_by.clone(), of: Some(of) })
    }
}
