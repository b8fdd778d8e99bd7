//! The one answer to "does another call stand in the way of this one?": for a first send, a retry, a redo, a word that is asked for ahead.
//!
//! Pure: what is true about other calls was read in one snapshot ([`Relations`]) and is read once more in the write that starts the
//! attempt. Declared creating effects are known by their content in the whole family, so their twin is found by its key; here is what may
//! be the same effect under another key. What runs of another tree did was decided by a model that this one knows nothing of, so the
//! same call is no decision to do it twice. Durable Jobs v1 spec §8.3.
//!
//! Proved by: `tests/it/identity`, `crash_anywhere::forks`, the crash matrix, the simulation.

use ua_core::{CallStatus, OnScopeConflict, OnUnknown, SideEffectClass};
use ua_store::{CallRecord, Relations};

use crate::admission::Facts;
use crate::doubt::{is_left_open, is_named};
use crate::ledger::LedgerConfig;

/// A call, its effect, and what may have had it already.
#[derive(Clone, Copy)]
pub(crate) struct RelatedCalls<'a> {
    pub(crate) call: &'a CallRecord,
    pub(crate) facts: &'a Facts,
    pub(crate) relations: &'a Relations,
    pub(crate) config: &'a LedgerConfig,
}

impl<'a> RelatedCalls<'a> {
    /// The calls that may have had this one's effect, so that it is not sent without a person's word.
    pub(crate) fn in_the_way(&self) -> Vec<&'a CallRecord> {
        if !self.call.policy.class.has_effect() {
            return Vec::new();
        }
        let mut found: Vec<&CallRecord> = Vec::new();
        for other in self.rivals().chain(self.open_doubts()).chain(self.kin()) {
            if !found.iter().any(|known| known.call_id == other.call_id) {
                found.push(other);
            }
        }
        found
    }

    /// Calls of the family with the same scope. An effect that creates something is not wanted twice; one that replaces or changes
    /// something may be wanted again once it is done, but not while nobody knows whether the earlier one may still happen.
    fn rivals(&self) -> impl Iterator<Item = &'a CallRecord> {
        let is_by_content = self.call.policy.is_by_content();
        let stands =
            move |rival: &&CallRecord| is_by_content || rival.status != CallStatus::Succeeded || rival.doubt.is_some();
        let once = self.config.no_duplicate_external_actions;
        self.relations.rivals.iter().filter(move |_| once).filter(stands)
    }

    /// Calls in doubt that this one might repeat: those with its scope that the run went on without, those of the same tool in the same
    /// words, or, where the tool's policy goes on in doubt and no scope says what the effect is, any of the same tool.
    pub(crate) fn open_doubts(&self) -> impl Iterator<Item = &'a CallRecord> {
        let Self { call, relations, config, .. } = *self;
        // A read, and what replaces its own output, may be repeated whatever became of the last time.
        let may_repeat = !call.policy.class.has_effect() || call.policy.on_unknown == OnUnknown::Redo;
        let goes_on = call.policy.on_unknown == OnUnknown::Continue;
        let in_the_way = move |other: &&CallRecord| {
            let is_same = other.args_hash == call.args_hash && config.no_duplicate_external_actions;
            !is_named(other) && (is_same || (goes_on && is_left_open(other)))
        };
        let same_scope = relations.rivals.iter().filter(|rival| is_left_open(rival));
        same_scope.chain(relations.doubts.iter().filter(in_the_way)).filter(move |_| !may_repeat)
    }

    /// Calls of another tree that may have done already what this one is about to do, the newest first: the same call, or one in doubt of
    /// which nothing says that it is another effect.
    fn kin(self) -> impl Iterator<Item = &'a CallRecord> {
        let once = self.config.no_duplicate_external_actions;
        let is_other_effect = !self.reaches_others() || (self.call.policy.is_by_content() && once);
        let repeats =
            move |other: &&CallRecord| (is_in_doubt(other) && !self.are_apart(other)) || (self.is_same(other) && once);
        self.relations.kin.iter().rev().filter(move |_| !is_other_effect).filter(repeats)
    }

    /// Calls that were decided after this one was, and may have had its effect: of another tree, or with its scope. A call in doubt is then
    /// not sent again by itself.
    pub(crate) fn overtaken_by(&self) -> Vec<&'a CallRecord> {
        if !self.reaches_others() {
            return Vec::new();
        }
        let overtakes = |other: &&CallRecord| {
            let is_effect = self.facts.scope.is_some() && other.scope == self.facts.scope;
            other.created_at >= self.call.created_at && (self.is_same(other) || is_effect)
        };
        let is_behind = |rival: &&CallRecord| {
            let is_later_here = rival.run_id == self.call.run_id && rival.position > self.call.position;
            is_later_here || rival.created_at > self.call.created_at
        };
        let rivals = self.relations.rivals.iter().rev().filter(is_behind);
        self.relations.kin.iter().rev().chain(rivals).filter(overtakes).collect()
    }

    fn is_same(&self, other: &CallRecord) -> bool {
        other.name == self.call.name && other.args_hash == self.call.args_hash
    }

    /// Whether another tree could have had the effect at all: files of the workspace are each run's own.
    fn reaches_others(&self) -> bool {
        matches!(self.call.policy.class, SideEffectClass::External | SideEffectClass::Memory)
    }

    /// Whether both are known to be about different things.
    fn are_apart(&self, other: &CallRecord) -> bool {
        let named = |scope: &ua_core::Scope| !scope.is_of_whole_call();
        let (ours, theirs) = (self.facts.scope.as_ref(), other.scope.as_ref());
        match (ours.filter(|scope| named(scope)), theirs.filter(|scope| named(scope))) {
            (Some(ours), Some(theirs)) => ours != theirs,
            (Some(_) | None, Some(_) | None) => self.call.name != other.name,
        }
    }
}

/// Whether nobody knows yet, or ever will, whether a call happened.
fn is_in_doubt(call: &CallRecord) -> bool {
    call.doubt.is_some() || matches!(call.status, CallStatus::Running | CallStatus::Unknown)
}

/// Whether the policy lets a call go out although another one may have had its effect.
pub(crate) fn lets_pass(call: &CallRecord) -> bool {
    call.policy.on_scope_conflict == OnScopeConflict::Allow
}
