//! The one answer to "does another call stand in the way of this one?": for a first send, a retry, a redo, a word that is asked for ahead.
//!
//! Pure: what is true about other calls was read in one snapshot ([`Relations`]) and is read once more in the write that starts the
//! attempt. Declared creating effects are known by their content in the whole family, so their twin is found by its key; here is what may
//! be the same effect under another key. What runs of another tree did was decided by a model that this one knows nothing of, so the
//! same call is no decision to do it twice. Durable Jobs v1 spec §8.3.
//!
//! Proved by: `tests/it/identity`, `crash_anywhere::forks`, the crash matrix, the simulation.

use std::cmp::Reverse;

use ua_core::{CallStatus, OnScopeConflict, OnUnknown, Timestamp};
use ua_store::{CallRecord, Kin, Related, Relations, is_declared_otherwise, reaches_others, rules};

use crate::admission::Facts;
use crate::behind::Behind;
use crate::ledger::LedgerConfig;

/// A call, its effect, and what may have had it already.
#[derive(Clone, Copy)]
pub(crate) struct RelatedCalls<'a> {
    pub(crate) call: &'a CallRecord,
    pub(crate) facts: &'a Facts,
    pub(crate) relations: &'a Relations,
    /// The same call under another name of its server, as far as it may be that ([`renamed`](crate::renamed)).
    pub(crate) renamed: &'a [Related],
    pub(crate) config: &'a LedgerConfig,
    /// The same call of a context that its model does not have any more, or of a time when its tool was declared as something else.
    pub(crate) forgotten: Option<&'a Related>,
    /// A call that may have had this one's effect, which whoever asked for this one did not know ([`settled`](crate::settled)).
    pub(crate) settled: Option<&'a Related>,
    /// Calls in its words that may have sent the same files, where nobody can tell ([`unseen`](crate::unseen)).
    pub(crate) unseen: &'a [Related],
    /// When it was sent last, by which time everything that stands in the relations from before was known.
    pub(crate) sent: Option<Timestamp>,
    /// What has changed behind that, by the order in which it was stored.
    pub(crate) behind: &'a Behind,
}

/// Another call that bears on a decision, for so many that have the same to do with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Other<'a> {
    pub(crate) call: &'a CallRecord,
    pub(crate) count: u64,
    /// It is under way in its records, and nobody is at it any more: its process is gone. Looked at where a person is asked.
    pub(crate) is_left: bool,
}

impl<'a> From<&'a Related> for Other<'a> {
    fn from(related: &'a Related) -> Self {
        Self { call: &related.newest, count: related.count, is_left: false }
    }
}

impl<'a> RelatedCalls<'a> {
    /// The calls that may have had this one's effect, so that it is not sent without a person's word.
    pub(crate) fn in_the_way(&self) -> Vec<Other<'a>> {
        // A read repeats nothing, but what was an effect when it was made.
        let has_effect = self.call.policy.class.has_effect();
        let mut found: Vec<Other<'a>> = Vec::new();
        let beside = self.rivals().chain(self.open_doubts()).chain(self.settled()).filter(|_| has_effect);
        for other in beside.chain(self.kin()).chain(self.renamed()) {
            if !found.iter().any(|known| known.call.call_id == other.newest.call_id) {
                found.push(other.into());
            }
        }
        found
    }

    /// Those of them that came to stand as they do after this one was sent: whoever sent it did not know of them. Another tree's call in the same
    /// words is one of them here also where the effect is known by its content, for it has another key than the one that this call holds.
    pub(crate) fn in_the_way_since(&self) -> Vec<Other<'a>> {
        if !self.call.policy.class.has_effect() {
            return Vec::new();
        }
        let once = self.config.no_duplicate_external_actions && reaches_others(self.call);
        let same = self.relations.kin.same.iter().chain(&self.behind.relations.kin.same);
        let same = same.filter(|_| once).map(Other::from);
        // Whom the relations only count is looked for among what has changed.
        let uncounted = Self { relations: &self.behind.relations, renamed: &self.behind.renamed, ..*self };
        let mut found: Vec<Other<'a>> = Vec::new();
        for other in self.in_the_way().into_iter().chain(uncounted.in_the_way()).chain(same) {
            let is_known = found.iter().any(|known| known.call.call_id == other.call.call_id);
            if !is_known && self.moved_since(other.call) {
                found.push(other);
            }
        }
        found
    }

    /// Calls of the family with the same scope, or with one that would be the same if all files could be looked at. An effect that creates
    /// something is not wanted twice; one that replaces or changes something may be wanted again once it is done, but not while nobody knows
    /// whether the earlier one may still happen.
    fn rivals(&self) -> impl Iterator<Item = &'a Related> {
        let is_by_content = self.call.policy.is_by_content();
        let stands = move |rival: &&Related| {
            is_by_content || rival.newest.status != CallStatus::Succeeded || rival.newest.doubt.is_some()
        };
        let once = self.config.no_duplicate_external_actions;
        self.relations.rivals.iter().chain(self.unseen).filter(move |_| once).filter(stands)
    }

    /// Calls in doubt that this one might repeat: those with its scope that the run went on without, those of the same tool in the same
    /// words, or, where the tool's policy goes on in doubt and no scope says what the effect is, any of the same tool.
    pub(crate) fn open_doubts(&self) -> impl Iterator<Item = &'a Related> {
        let Self { call, facts, relations, config, .. } = *self;
        // A read, and what replaces its own output, may be repeated whatever became of the last time.
        let may_repeat = !call.policy.class.has_effect() || call.policy.on_unknown == OnUnknown::Redo;
        let goes_on = call.policy.on_unknown == OnUnknown::Continue;
        let has_scope = move |other: &&Related| facts.scope.is_some() && other.newest.scope == facts.scope;
        let left_open = relations.left_open.iter().filter(move |other| goes_on || has_scope(other));
        let same_words = relations.doubts.iter().filter(move |_| config.no_duplicate_external_actions);
        left_open.chain(same_words).filter(move |_| !may_repeat)
    }

    /// What was in doubt when the model asked for this call, and is known by now to have happened. Whoever asked for the repeat did not know that,
    /// so the end of the doubt is no reason to send it.
    fn settled(&self) -> impl Iterator<Item = &'a Related> {
        let once = self.config.no_duplicate_external_actions;
        self.settled.into_iter().filter(move |_| once)
    }

    /// Calls of another tree that may have done already what this one is about to do, the newest first: the same call, or one in doubt of
    /// which nothing says that it is another effect. And the same call of this run, where its model has forgotten that it made it. What the tool
    /// was declared as when the same call was made only adds to these: no key tells that the two are one.
    fn kin(self) -> impl Iterator<Item = &'a Related> {
        let call = self.call;
        let once = self.config.no_duplicate_external_actions;
        let is_other_effect = !reaches_others(call) || (self.facts.are_by_content(call) && once);
        let was_another = move |other: &&Related| {
            is_declared_otherwise(call, &other.newest) && (reaches_others(call) || reaches_others(&other.newest))
        };
        let Kin { same, declared_otherwise, open } = &self.relations.kin;
        let same = same.iter().rev().filter(move |_| once);
        let declared_otherwise = declared_otherwise.iter().rev().filter(move |_| once);
        let forgotten = self.forgotten.into_iter().filter(move |_| once);
        let of_its_kind = open.iter().rev().chain(same).filter(move |_| !is_other_effect);
        let earlier = forgotten.filter(move |other| !is_other_effect || was_another(other));
        of_its_kind.chain(earlier).chain(declared_otherwise)
    }

    /// The same call under another name of its server, made by whoever this one's model knows nothing of, or in doubt; the newest first. In words that
    /// are the same a server's name is all that tells two calls apart, and that is given in a configuration.
    fn renamed(self) -> impl Iterator<Item = &'a Related> {
        let once = self.config.no_duplicate_external_actions;
        let may_repeat = self.call.policy.on_unknown == OnUnknown::Redo;
        let stands = move |other: &&Related| once && !(may_repeat && rules::is_doubt(&other.newest));
        self.renamed.iter().rev().filter(stands)
    }

    /// Calls that were decided after this one was, or were sent or ended after it was sent, and may have had its effect: of another tree, or
    /// with its scope. A call in doubt is then not sent again by itself. The newest first.
    ///
    /// When a call was planned says nothing about when it had its effect: one that a person lets go out later overtakes those that were
    /// planned behind it.
    pub(crate) fn overtaken_by(&self) -> Vec<Other<'a>> {
        if !reaches_others(self.call) {
            return Vec::new();
        }
        let among = |relations: &'a Relations, renamed: &'a [Related]| {
            let Relations { rivals, kin, .. } = relations;
            rivals.iter().chain(&kin.same).chain(&kin.declared_otherwise).chain(renamed)
        };
        // Whom the relations only count is looked for among what has changed.
        let uncounted = among(&self.behind.relations, &self.behind.renamed);
        let related = among(self.relations, self.renamed).chain(uncounted).chain(self.unseen);
        let moved = related.filter(|other| self.moved_since(&other.newest));
        let mut found: Vec<&Related> = Vec::new();
        for other in self.relations.since.iter().chain(moved) {
            if !found.iter().any(|known| known.newest.call_id == other.newest.call_id) {
                found.push(other);
            }
        }
        found.sort_by_key(|other| Reverse(other.newest.updated_at));
        found.into_iter().map(Other::from).collect()
    }

    /// Whether another call came to stand as it does after this one was sent last. Clocks are set, so the order of the changes counts; not
    /// every one has a place in it, so the clock adds to that. Of two in one moment, what another run did counts.
    fn moved_since(&self, other: &CallRecord) -> bool {
        let is_elsewhere = other.run_id != self.call.run_id;
        self.behind.calls.contains(&other.call_id)
            || self.sent.is_some_and(|sent| other.updated_at > sent || (is_elsewhere && other.updated_at == sent))
    }
}

/// Whether the policy lets a call go out although another one may have had its effect.
pub(crate) fn lets_pass(call: &CallRecord) -> bool {
    call.policy.on_scope_conflict == OnScopeConflict::Allow
}

#[cfg(test)]
mod tests {
    use ua_core::{RunId, Scope, SideEffectClass};
    use ua_store::LedgerStore as _;
    use ua_store::conformance::samples;

    use super::*;

    /// Whatever was planned first: what may have had a call's effect and moved after that was sent has overtaken it, and nothing else has.
    #[tokio::test]
    async fn an_order_of_events_decides_and_none_of_births() {
        let store = ua_store::MemStore::new();
        let scene = ua_store::conformance::Scene::begin(&store, "run_1").await;
        scene.turn(vec![samples::planned_email("call_1", 1, 1)]).await;
        let mut call = store.call(&samples::call_id("call_1")).await.unwrap();
        (call.created_at, call.updated_at, call.attempt) = (samples::at(50), samples::at(60), 1);
        call.policy.class = SideEffectClass::External;
        let sent = samples::at(60);
        let (facts, config, nothing) = (Facts::default(), LedgerConfig::default(), Behind::default());
        let changed = Behind { calls: [samples::call_id("call_2")].into(), ..Behind::default() };
        for born in [10, 50, 55, 70] {
            for moved in [10, 50, 59, 60, 61, 90].into_iter().filter(|moved| *moved >= born) {
                for is_elsewhere in [false, true] {
                    for is_rival in [false, true] {
                        let mut other = call.clone();
                        other.call_id = samples::call_id("call_2");
                        if is_elsewhere {
                            other.run_id = RunId::parse("run_2").unwrap();
                        }
                        other.scope = is_rival.then(|| Scope::new("email.send", "ada"));
                        other.status = CallStatus::Succeeded;
                        (other.created_at, other.updated_at) = (samples::at(born), samples::at(moved));
                        let found = vec![Related::one(other)];
                        let relations = if is_rival {
                            Relations { rivals: found, ..Relations::default() }
                        } else {
                            Relations { kin: Kin { same: found, ..Kin::default() }, ..Relations::default() }
                        };
                        let related = |sent, behind| RelatedCalls {
                            call: &call,
                            facts: &facts,
                            relations: &relations,
                            renamed: &[],
                            config: &config,
                            forgotten: None,
                            settled: None,
                            unseen: &[],
                            sent,
                            behind,
                        };
                        let wanted = moved > 60 || (moved == 60 && is_elsewhere);
                        let what = format!("{born} {moved} {is_elsewhere} {is_rival}");
                        assert_eq!(!related(Some(sent), &nothing).overtaken_by().is_empty(), wanted, "{what}");
                        assert!(!related(Some(sent), &changed).overtaken_by().is_empty(), "{what}: it changed since");
                        assert!(related(None, &nothing).overtaken_by().is_empty(), "{what}: it was not sent");
                    }
                }
            }
        }
    }
}
