//! What nobody knew when a call was asked for, and is known by now: that another one happened which may have had its effect.
//!
//! While that one is in doubt, it stands in the way ([`RelatedCalls`](crate::related::RelatedCalls)). The end of the doubt is no reason to send what
//! was held, nor what was asked for in it: whoever asked did not know. So what happened stands in the way of every call whose model had not been
//! told of it, whatever ended the doubt: a person's word, a probe, an answer that came late. Durable Jobs v1 spec §8.3.
//!
//! Of calls of its own history a model knows what their results and the notes behind them say, which is looked up there; of those of other runs it
//! knows nothing, and there the order of the records decides. A call that goes out in the write that plans it is not looked at: where a record
//! was corrected since its model was asked, that write refuses it. Proved by: `granular::tools`, `crash_anywhere`, `cargo xtask explore`.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ua_core::{CallId, CallStatus, OnUnknown, Resolution, Timestamp};
use ua_store::{
    CallRecord, CallsOf, LedgerStore as _, MessageRecord, Related, Relations, RunRecord, RunStore as _, Store as _,
    is_named, is_under_another_server, rules,
};

use crate::admission::Facts;
use crate::correction::is_told;
use crate::error::LedgerError;
use crate::ledger::Ledger;
use crate::view::View;

/// By how much a clock may have been set between two records.
const SET_BY: Duration = Duration::from_hours(1);

impl Ledger {
    /// Whether something may have become known since a call was asked for that is about to be sent for the first time: it may have waited, or what
    /// stands in its way is not what it was `before`.
    pub(crate) fn may_have_settled_since(&self, view: &View, run: &RunRecord, before: &Relations) -> bool {
        let may_have_waited = match self.calls_of {
            crate::people::CallsOf::Job | crate::people::CallsOf::Step => self.has_asked.load(Ordering::Relaxed),
            crate::people::CallsOf::Session => view.call.created_at <= self.opened_at,
        };
        may_have_waited
            || !view.questions.is_empty()
            || self.untold(run).is_some()
            || run.corrected_at.is_some_and(|at| at >= view.call.created_at.minus(SET_BY))
            || view.relations != *before
    }

    /// When a record of the lineage was corrected last, if the model may not have known that when it was asked.
    pub(crate) fn untold(&self, run: &RunRecord) -> Option<Timestamp> {
        run.corrected_at.filter(|at| self.known_until() != Some(*at))
    }

    /// What may have been the effect of a call and has happened, which its model did not know when it asked for the call. `untold` is when something was
    /// corrected that it was not told of.
    pub(crate) async fn settled_since(
        &self,
        call: &CallRecord,
        facts: &Facts,
        untold: Option<Timestamp>,
    ) -> Result<Option<Related>, LedgerError> {
        if !call.policy.class.has_effect() || call.policy.on_unknown == OnUnknown::Redo {
            return Ok(None); // it may be repeated whatever became of the last time
        }
        let since = untold.map_or(call.created_at, |at| at.min(call.created_at)).minus(SET_BY);
        let changed = self.store.calls_of(CallsOf::EffectsSince(since)).await;
        let mut changed = changed.map_err(LedgerError::at("look for what was settled since", &call.call_id))?;
        let behind = self.changed_behind_plan(call, &changed).await?;
        changed.extend(behind);
        let mut found = Vec::new();
        let mut history = History::default();
        for other in changed.into_iter().filter(|other| has_happened(other) && would_hold(call, facts, other)) {
            let is_server_of_its_own =
                is_under_another_server(call, &other) && !self.is_of_tool(call, &other, facts).await?;
            if !is_server_of_its_own && self.became_known_behind(call, &other, &mut history).await? {
                found.push(other);
            }
        }
        let count = found.len() as u64;
        let newest = found.into_iter().max_by_key(|other| other.updated_at);
        Ok(newest.map(|newest| Related { newest, count }))
    }

    /// What of the lineage has changed since a call was planned and is not among `known`: however far the clock was set back since.
    async fn changed_behind_plan(
        &self,
        call: &CallRecord,
        known: &[CallRecord],
    ) -> Result<Vec<CallRecord>, LedgerError> {
        let failed = || LedgerError::at("look for what was settled since", &call.call_id);
        let changes = self.store.events(&call.call_id).await.map_err(failed())?;
        let Some(planned) = changes.first() else { return Ok(Vec::new()) };
        let behind = CallsOf::EffectsBehind(call.root_run_id.clone(), planned.seq);
        let mut changed = self.store.calls_of(behind).await.map_err(failed())?;
        changed.retain(|other| !known.iter().any(|known| known.call_id == other.call_id));
        Ok(changed)
    }

    /// Whether whoever asked for `call` did not know yet that `other` happened.
    async fn became_known_behind(
        &self,
        call: &CallRecord,
        other: &CallRecord,
        history: &mut History,
    ) -> Result<bool, LedgerError> {
        let is_own = other.run_id == call.run_id;
        // What is asked for in one reply is wanted as often as it is asked for.
        if is_own && other.position.turn >= call.position.turn {
            return Ok(false);
        }
        if self.calls_of != crate::people::CallsOf::Session {
            let failed = || LedgerError::at("read what was told before", &call.call_id);
            if !is_own && history.shared.is_none() {
                let records = self.store.load(&call.run_id).await.map_err(failed())?;
                history.shared = Some(records.lineage.calls.into_iter().map(|shared| shared.call_id).collect());
            }
            if is_own || history.shared.as_ref().is_some_and(|shared| shared.contains(&other.call_id)) {
                let messages = match &mut history.messages {
                    Some(messages) => messages,
                    none => none.insert(self.store.history(&call.run_id).await.map_err(failed())?),
                };
                return Ok(!is_told(other, messages.iter().filter(|message| message.turn < call.position.turn)));
            }
        }
        self.was_settled_behind(call, other).await
    }

    /// Whether a doubt about `other`, or a wrong record, was ended after `call` was planned. Clocks are set, so the order of the changes counts.
    async fn was_settled_behind(&self, call: &CallRecord, other: &CallRecord) -> Result<bool, LedgerError> {
        let read = async |of: &CallRecord| {
            let events = self.store.events(&of.call_id).await;
            events.map_err(LedgerError::at("read the changes of", &of.call_id))
        };
        let (planned, changes) = (read(call).await?, read(other).await?);
        let (Some(planned), Some(settled)) = (planned.first(), changes.last()) else { return Ok(false) };
        let ended_a_doubt = settled.from == Some(CallStatus::Unknown)
            || other.correction.is_some()
            || matches!(other.resolution, Some(Resolution::Happened | Resolution::Reconciled));
        Ok(ended_a_doubt && settled.seq > planned.seq)
    }
}

/// What is read of a run's history, once something in it matters.
#[derive(Default)]
struct History {
    messages: Option<Vec<MessageRecord>>,
    /// The calls of others in it.
    shared: Option<BTreeSet<CallId>>,
}

/// Whether a call is known to have happened, or is being sent again.
fn has_happened(other: &CallRecord) -> bool {
    other.attempt > 0 && !rules::is_doubt(other) && rules::may_have_happened(other)
}

/// Whether another call holds `call` while nobody knows what came of it: with its scope, in its words, or one without which its run continued, where no
/// scope says what the effect of that one was.
fn would_hold(call: &CallRecord, facts: &Facts, other: &CallRecord) -> bool {
    let is_of_tool = other.name.raw == call.name.raw;
    let is_in_its_words = (is_of_tool && other.args_hash == call.args_hash) || is_under_another_server(call, other);
    let goes_on = |call: &CallRecord| call.policy.on_unknown == OnUnknown::Continue;
    let shares_scope = facts.scope.is_some() && other.scope == facts.scope;
    let is_left_open = goes_on(call) && goes_on(other) && !is_named(other);
    other.root_run_id == call.root_run_id
        && other.call_id != call.call_id
        && (shares_scope || is_in_its_words || (is_of_tool && is_left_open))
}
