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
pub(crate) struct Standing<'a> {
    pub(crate) call: &'a CallRecord,
    pub(crate) facts: &'a Facts,
    pub(crate) relations: &'a Relations,
    pub(crate) config: &'a LedgerConfig,
}

impl<'a> Standing<'a> {
    /// The first call that may have had this one's effect, so that it is not sent without a person's word.
    pub(crate) fn in_the_way(&self) -> Option<&'a CallRecord> {
        if !self.call.policy.class.has_effect() {
            return None;
        }
        self.rival().or_else(|| self.open_doubt()).or_else(|| self.kin())
    }

    /// A call of the family with the same scope. An effect that creates something is not wanted twice; one that replaces or changes
    /// something may be wanted again once it is done, but not while nobody knows whether the earlier one may still happen.
    fn rival(&self) -> Option<&'a CallRecord> {
        let stands = |rival: &&CallRecord| {
            self.call.policy.is_by_content() || rival.status != CallStatus::Succeeded || rival.doubt.is_some()
        };
        self.relations.rivals.iter().filter(|_| self.config.no_duplicate_external_actions).find(stands)
    }

    /// A call in doubt that this one might repeat: one with its scope that the run went on without, one of the same tool in the same
    /// words, or, where the tool's policy goes on in doubt and no scope says what the effect is, any one of the same tool.
    pub(crate) fn open_doubt(&self) -> Option<&'a CallRecord> {
        // A read, and what replaces its own output, may be repeated whatever became of the last time.
        if !self.call.policy.class.has_effect() || self.call.policy.on_unknown == OnUnknown::Redo {
            return None;
        }
        let goes_on = self.call.policy.on_unknown == OnUnknown::Continue;
        let in_the_way = |other: &&CallRecord| {
            let is_same = other.args_hash == self.call.args_hash && self.config.no_duplicate_external_actions;
            !is_named(other) && (is_same || (goes_on && is_left_open(other)))
        };
        let same_scope = self.relations.rivals.iter().find(|rival| is_left_open(rival));
        same_scope.or_else(|| self.relations.doubts.iter().find(in_the_way))
    }

    /// A call of another tree that may have done already what this one is about to do: the same call, or one in doubt of which nothing
    /// says that it is another effect.
    fn kin(&self) -> Option<&'a CallRecord> {
        let once = self.config.no_duplicate_external_actions;
        if !self.reaches_others() || (self.call.policy.is_by_content() && once) {
            return None;
        }
        let repeats =
            |other: &&CallRecord| (is_in_doubt(other) && !self.are_apart(other)) || (self.is_same(other) && once);
        self.relations.kin.iter().rev().find(repeats)
    }

    /// A call of another tree that was decided after this one was, and may have had its effect. A call in doubt is then not sent again by
    /// itself.
    pub(crate) fn overtaken_by(&self) -> Option<&'a CallRecord> {
        if !self.reaches_others() {
            return None;
        }
        let overtakes = |other: &&CallRecord| {
            let is_effect = self.facts.scope.is_some() && other.scope == self.facts.scope;
            other.created_at >= self.call.created_at && (self.is_same(other) || is_effect)
        };
        self.relations.kin.iter().rev().find(overtakes)
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
