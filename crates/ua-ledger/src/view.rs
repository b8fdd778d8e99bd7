//! All that is stored about one call and can matter for what becomes of it.
//!
//! Loaded in one go, so that the [`verdict`](crate::verdict::verdict) about it is a pure function. What the call might repeat is read once
//! more in the write that starts it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use ua_core::{CallId, CallStatus, IdempotencyKey, OnUnknown, RunId, Timestamp};
use ua_store::{
    Around, AttemptRecord, CallRecord, CallsOf, LateReply, LedgerStore, QuestionRecord, QuestionStatus, RecallCall,
    ReceiptRecord, Related, Relations, RunRecord, RunsOf, Store, StoreError, Taint, Walk, is_left_open, is_task,
    rules::used_up_its_key, top_of_tree,
};

use crate::admission::Facts;
use crate::alike::alike;
use crate::behind::Behind;
use crate::effect_limit::EffectLimit;
use crate::elsewhere::is_another_place;
use crate::error::LedgerError;
use crate::exits::Addresses;
use crate::late::unstored;
use crate::ledger::{Ledger, SoonKnown};
use crate::lost::LostKeys;
use crate::outside::{Still, still_of_each};
use crate::people::Named;
use crate::related::RelatedCalls;
use crate::rules::Rules;

/// What the store says about a call.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// The call.
    pub(crate) call: CallRecord,
    /// Its attempts, oldest first.
    pub(crate) attempts: Vec<AttemptRecord>,
    /// The answer to its last attempt, as long as nobody has interpreted it.
    pub(crate) unread: Option<ReceiptRecord>,
    /// The questions about it, oldest first: those that are not closed, and of a call that failed, closed ones too.
    pub(crate) questions: Vec<QuestionRecord>,
    /// Answers to it that the database did not take when they came; of calls in doubt.
    pub(crate) late: Vec<LateReply>,
    /// What it might repeat; of calls that are about to be sent.
    pub(crate) relations: Relations,
    /// What of that has changed since it was sent; of calls that were.
    pub(crate) behind: Behind,
    /// Those of [`Relations::renamed`] that may be the same call: their server may be the call's under an earlier name.
    pub(crate) renamed: Vec<Related>,
    /// The same call, made before by this run, which its model has forgotten or which was declared as something else; of calls that are about to be
    /// sent for the first time.
    pub(crate) forgotten: Option<Related>,
    /// What may have been its effect and has happened, which whoever asked for it did not know; of calls that are about to be sent.
    pub(crate) settled: Option<Related>,
    /// Calls in its words that may have sent the same files, where nobody can tell; of calls that may be sent.
    pub(crate) unseen: Vec<Related>,
    /// When a record of its lineage was corrected last, as far as `settled` goes by it; of calls that are about to be sent for the first time.
    pub(crate) corrected_at: Option<Timestamp>,
    /// What puts it in doubt, because it may have been done by a call that the database does not have; of calls that may be sent.
    pub(crate) lost: Option<RecallCall>,
    /// Keys that are not used once more; of calls that may be sent under a new one.
    pub(crate) lost_keys: Option<LostKeys>,
    /// Another call of the family that holds the key it would be sent under.
    pub(crate) twin: Option<Twin>,
    /// The call with the same effect under whose key it would be sent, had no person put its record right: the other side may know that key.
    pub(crate) in_place_of: Option<CallId>,
    /// What a person wrote or approved in its run; of calls that are about to be sent.
    pub(crate) known: Named,
    /// Whether untrusted content and private data met in the tree of runs that it comes from; of calls that are about to be sent.
    pub(crate) is_tainted: bool,
    /// Addresses that people or earlier results named; of calls of a tainted run that would read others.
    pub(crate) heard: Addresses,
    /// Another call that carries what its probe looks for, so that a find may be of that one.
    pub(crate) alike: Option<CallId>,
    /// How often the run had asked its person by `ask_user` before; of these calls alone.
    pub(crate) asked_before: usize,
    /// How long those of the related calls may still have their effects that are under way or in doubt.
    pub(crate) still: BTreeMap<CallId, Still>,
    /// Answers to those that the database did not take when they came.
    pub(crate) late_of_others: Vec<LateReply>,
    /// What its job allows of its effect, where that is used up; of calls that may be sent, or sent again.
    pub(crate) used_up: Option<EffectLimit>,
}

/// A call under the same key.
#[derive(Debug, Clone)]
pub(crate) struct Twin {
    /// The call.
    pub(crate) call: CallRecord,
    /// It is being sent, or about to be decided about, for a run of the same tree, and nobody is asked for anything: its receipt is worth waiting for.
    pub(crate) is_under_way_beside: bool,
    /// What it did it did in another place, or as another account, than the call would: its receipt says nothing about that one.
    pub(crate) is_elsewhere: bool,
}

impl View {
    /// A call, and nothing about it.
    pub(crate) fn of(call: CallRecord) -> Self {
        Self {
            call,
            attempts: Vec::new(),
            unread: None,
            questions: Vec::new(),
            late: Vec::new(),
            relations: Relations::default(),
            behind: Behind::default(),
            renamed: Vec::new(),
            forgotten: None,
            settled: None,
            unseen: Vec::new(),
            corrected_at: None,
            lost: None,
            lost_keys: None,
            twin: None,
            in_place_of: None,
            known: Named::default(),
            is_tainted: false,
            heard: Addresses::default(),
            alike: None,
            asked_before: 0,
            still: BTreeMap::new(),
            late_of_others: Vec::new(),
            used_up: None,
        }
    }

    /// The question about the call that is not closed; a call has at most one.
    pub(crate) fn pending(&self) -> Option<&QuestionRecord> {
        self.questions.iter().find(|question| question.status != QuestionStatus::Closed)
    }

    /// Its newest attempt.
    pub(crate) fn last_attempt(&self) -> Option<&AttemptRecord> {
        self.attempts.last()
    }
}

impl Ledger {
    /// What is stored about a call, whose effect is what `facts` say. What people answered about calls in doubt that stand in its way is
    /// acted on first.
    pub(crate) async fn view(&self, id: &CallId, facts: &Facts) -> Result<View, LedgerError> {
        let call = self.store.call(id).await.map_err(LedgerError::at("read", id))?;
        let mut view = View::of(call);
        let rules = self.rules();
        match view.call.status {
            CallStatus::Running => {
                let receipt = self.store.receipt(id).await.map_err(LedgerError::at("read the receipt of", id))?;
                view.unread = receipt.filter(|r| r.attempt == view.call.attempt && r.settlement.is_none());
                view.attempts = self.attempts(id).await?;
                // What its tool has may be elsewhere now, and then a person is asked.
                if view.last_attempt().is_some_and(|attempt| attempt.live_handle().is_some()) {
                    view.questions = self.pending_question(&view.call).await?.into_iter().collect();
                }
                let destination = facts.destination.as_ref();
                if view.last_attempt().is_some_and(|attempt| is_another_place(&view.call, attempt, destination)) {
                    view.relations = self.relations(&view.call, facts).await?;
                    view.behind = Box::pin(self.behind(&view.call, facts, &view.relations)).await?;
                }
            }
            CallStatus::Unknown => {
                view.questions = self.pending_question(&view.call).await?.into_iter().collect();
                view.attempts = self.attempts(id).await?;
                view.lost = self.lost_like(&view.call, facts);
                view.relations = self.relations(&view.call, facts).await?;
                view.behind = Box::pin(self.behind(&view.call, facts, &view.relations)).await?;
                view.unseen = self.unseen_like(&view.call, facts).await?;
                // It may be sent again only as far as the other calls leave room for it: it counts for them, and not for itself.
                if let Some(limit) = self.effect_limit(&view.call, view.lost.as_ref()) {
                    let around = self.store.around(id, facts.scope.as_ref(), None, limit.max_effects()).await;
                    let around = around.map_err(LedgerError::at("count the effects beside", id))?;
                    view.used_up = Some(limit).filter(|limit| limit.is_used_up(&around));
                }
                let can_ask = view.call.policy.on_unknown == OnUnknown::Probe;
                if let Some(probe) = view.call.policy.probe.as_ref().filter(|_| can_ask) {
                    let alike = Box::pin(alike(&*self.store, &view.call, probe, &view.attempts)).await;
                    view.alike = alike.map_err(LedgerError::at("look for calls that resemble", id))?;
                }
                view.late = unstored(self.store.late_replies(id), &view.attempts);
            }
            // What a person answered is heard also where nothing is sent any more.
            CallStatus::FailedDefinite
                if rules.may_retry(&view.call)
                    || rules.asks_for_credentials(&view.call)
                    || self.pending_question(&view.call).await?.is_some() =>
            {
                view.questions = self.questions_about(&view.call).await?;
                view.lost = self.lost_like(&view.call, facts);
                view.lost_keys = self.lost_keys(&view.call);
                let limit = self.effect_limit(&view.call, view.lost.as_ref());
                let key = |place: Option<&CallId>| rules.key_of_retry(&view.call, facts, place);
                let (around, in_place_of) = self.around(id, facts, key, limit.as_ref()).await?;
                view.in_place_of = in_place_of;
                view.used_up = limit.filter(|limit| limit.is_used_up(&around));
                if let Some(holder) = around.holder {
                    view.twin = self.as_twin(&view.call, holder, facts).await?;
                    if view.twin.is_none() {
                        return Box::pin(self.view(id, facts)).await;
                    }
                }
                view.relations = self.after_late_answers(&view.call, facts, around.relations).await?;
                view.unseen = self.unseen_like(&view.call, facts).await?;
                view.settled = self.settled_since(&view.call, facts, self.untold(&around.run)).await?;
                self.learn_people(&mut view, &around.run).await?;
            }
            CallStatus::FailedDefinite | CallStatus::Succeeded | CallStatus::FailedReported | CallStatus::Cancelled => {
            }
            CallStatus::Prepared => {
                // What is planned of a call never changes, so neither does its key.
                view.lost = self.lost_like(&view.call, facts);
                view.lost_keys = self.lost_keys(&view.call);
                let limit = self.effect_limit(&view.call, view.lost.as_ref());
                let key = |place: Option<&CallId>| rules.key(&view.call, facts, place);
                let (around, in_place_of) = self.around(id, facts, key, limit.as_ref()).await?;
                view.in_place_of = in_place_of;
                view.used_up = limit.filter(|limit| limit.is_used_up(&around));
                if around.call.status != CallStatus::Prepared {
                    return Box::pin(self.view(id, facts)).await; // it has moved on since
                }
                view.call = around.call;
                view.corrected_at = around.run.corrected_at;
                view.questions = around.question.into_iter().collect();
                // It asks about another place than the call would go to now: what was said about that one counts.
                if view.pending().is_some_and(|asked| asked.answer.is_none() && !Rules::showed_place_of(facts, asked)) {
                    view.questions = self.questions_about(&view.call).await?;
                }
                if view.call.name.is_ask_user() {
                    view.asked_before = self.asked_before(&view.call).await?;
                    return Ok(view);
                }
                if let Some(holder) = around.holder {
                    view.twin = self.as_twin(&view.call, holder, facts).await?;
                    if view.twin.is_none() {
                        return Box::pin(self.view(id, facts)).await;
                    }
                }
                view.relations = self.after_late_answers(&view.call, facts, around.relations.clone()).await?;
                view.unseen = self.unseen_like(&view.call, facts).await?;
                view.forgotten = self.forgotten_like(&view.call, facts).await?;
                if self.may_have_settled_since(&view, &around.run, &around.relations) {
                    view.settled = self.settled_since(&view.call, facts, self.untold(&around.run)).await?;
                }
                self.learn_people(&mut view, &around.run).await?;
            }
        }
        if !view.questions.is_empty() {
            self.has_asked.store(true, Ordering::Relaxed);
        }
        self.look_outside(&mut view, facts).await?;
        Ok(view)
    }

    /// Which servers are others, and how long what stands in the way of a call may still have its effect.
    pub(crate) async fn look_outside(&self, view: &mut View, facts: &Facts) -> Result<(), LedgerError> {
        view.renamed = self.renamed(&view.call, &view.relations, facts).await?;
        let related = view.relations.all().into_iter().chain(&view.forgotten).chain(&view.settled).chain(&view.unseen);
        let others = related.map(|related| &related.newest).chain(view.twin.as_ref().map(|twin| &twin.call));
        let still = still_of_each(self.store.as_ref(), self.outside.as_ref(), others, &self.time()).await;
        view.still = still.map_err(LedgerError::at("look how others stand beside", &view.call.call_id))?;
        view.late_of_others = view.still.keys().filter_map(|other| self.store.late_replies(other).pop()).collect();
        Ok(())
    }

    /// What a decision about a call goes by, and in the place of which call it is sent, if of one: its `key` is the first that is not used up.
    async fn around(
        &self,
        id: &CallId,
        facts: &Facts,
        key: impl Fn(Option<&CallId>) -> IdempotencyKey,
        limit: Option<&EffectLimit>,
    ) -> Result<(Around, Option<CallId>), LedgerError> {
        let failed = || LedgerError::at("look for what may be the same as", id);
        let most_effects = limit.map_or(0, EffectLimit::max_effects);
        let mut in_place_of = None;
        let mut corrected = None;
        loop {
            let sent_under = key(in_place_of.as_ref());
            let around = self.store.around(id, facts.scope.as_ref(), Some(&sent_under), most_effects).await;
            let around = around.map_err(failed())?;
            if around.holder.is_some() || !facts.are_by_content(&around.call) {
                return Ok((around, in_place_of));
            }
            let corrected = match &corrected {
                Some(known) => known,
                None => corrected.insert(self.corrected(&around).await.map_err(failed())?),
            };
            let has_used_it_up =
                |call: &&CallRecord| used_up_its_key(call) && call.idempotency_key.as_ref() == Some(&sent_under);
            match corrected.iter().find(has_used_it_up) {
                Some(call) if in_place_of.as_ref() != Some(&call.call_id) => in_place_of = Some(call.call_id.clone()),
                Some(_) | None => return Ok((around, in_place_of)),
            }
        }
    }

    /// The calls of the lineage whose records people corrected; what began from the lineage later does not know by itself that there are some.
    async fn corrected(&self, around: &Around) -> Result<Vec<CallRecord>, StoreError> {
        let root = &self.lineage.root;
        let is_root = around.run.run_id == *root;
        let corrected_at = if is_root { around.run.corrected_at } else { self.store.run(root).await?.corrected_at };
        match corrected_at {
            Some(_) => self.store.calls_of(CallsOf::Corrected(root.clone())).await,
            None => Ok(Vec::new()),
        }
    }

    /// Whom people named, and what the run and those that work with it have read.
    async fn learn_people(&self, view: &mut View, run: &RunRecord) -> Result<(), LedgerError> {
        let rules = self.rules();
        if rules.looks_at_addresses(&view.call) {
            view.known = self.addresses_of_people(&view.call).await?;
        }
        let reads_made = !rules.made_addresses(&view.call, &Addresses::default()).is_empty();
        let matters = rules.looks_at_taint(&view.call) || reads_made;
        view.is_tainted = self.taint_of(&view.call, run, matters).await?.is_both();
        if view.is_tainted && reads_made {
            view.heard = self.addresses_heard(&view.call).await?;
        }
        Ok(())
    }

    /// What a run has read; where `matters`, with what every run of its tree has read by now. They share a disk: what one of them fetched or
    /// computed lies in files that a program of another one reads, and no receipt says so ([ADR 41](../../../docs/adr/0041-a-tree-is-tainted-as-one.md)).
    async fn taint_of(&self, call: &CallRecord, run: &RunRecord, matters: bool) -> Result<Taint, LedgerError> {
        if run.taint.is_both() || !may_share_a_tree(run) {
            self.learn_taint(run.taint);
            return Ok(run.taint);
        }
        self.add_taint(run.taint);
        let mut taint = run.taint;
        if !matters {
            return Ok(taint);
        }
        let failed = || LedgerError::at("look what was read beside", &call.call_id);
        let top = self.top_of(call).await?;
        let (mut walk, mut left) = (Walk::from(&top), vec![top]);
        while let Some(above) = left.pop() {
            taint = taint.and(self.store.run(&above).await.map_err(failed())?.taint);
            if taint.is_both() {
                break;
            }
            let below = self.store.runs_of(RunsOf::Children(above)).await.map_err(failed())?;
            left.extend(walk.down(below).into_iter().map(|run| run.run_id));
        }
        Ok(taint)
    }

    pub(crate) fn rules(&self) -> Rules<'_> {
        Rules {
            config: &self.config,
            people: &self.people,
            definitions: self.definitions.as_ref(),
            is_held_to_definitions: self.is_held_to_definitions,
            calls_of: self.calls_of,
            lineage: &self.lineage,
            epoch: self.lease.epoch,
            time: self.time(),
        }
    }

    /// A call under the same key, which stood so when it was looked what the call might repeat; `None` where it is open, nobody is about to learn what
    /// came of it, and it does not stand so any more. Whoever was to learn it has, then.
    async fn as_twin(&self, call: &CallRecord, twin: CallRecord, facts: &Facts) -> Result<Option<Twin>, LedgerError> {
        // One that is sent again under its key has its answer soon, and so does one that its own run is about to decide about.
        let is_under_way = match self.soon_known_as(&twin).await? {
            Some(SoonKnown::Sent) => true,
            Some(SoonKnown::RecoveredHere | SoonKnown::RecoveredElsewhere) => {
                twin.run_id != call.run_id && !facts.has_waited
            }
            None => {
                let is_open = matches!(twin.status, CallStatus::Running | CallStatus::Unknown);
                if is_open && self.has_moved_on(&twin).await? {
                    return Ok(None);
                }
                false
            }
        };
        let is_under_way_beside = is_under_way && self.top_of(call).await? == self.top_of(&twin).await?;
        let attempts = self.attempts(&twin.call_id).await?;
        let newest = attempts.iter().rev().find(|attempt| !attempt.never_left());
        let is_elsewhere = newest.is_some_and(|sent| is_another_place(&twin, sent, facts.destination.as_ref()));
        Ok(Some(Twin { call: twin, is_under_way_beside, is_elsewhere }))
    }

    async fn has_moved_on(&self, read: &CallRecord) -> Result<bool, LedgerError> {
        let id = &read.call_id;
        let now = self.store.call(id).await.map_err(LedgerError::at("read", id))?;
        Ok((now.status, now.attempt, now.resolution) != (read.status, read.attempt, read.resolution))
    }

    /// The run that is no sub-agent's, at the top of the tree of a call.
    async fn top_of(&self, call: &CallRecord) -> Result<RunId, LedgerError> {
        let top = async { top_of_tree(&*self.store, &self.store.run(&call.run_id).await?).await };
        Ok(top.await.map_err(LedgerError::at("look who works on", &call.call_id))?.run_id)
    }

    /// What the call might repeat.
    pub(crate) async fn relations(&self, call: &CallRecord, facts: &Facts) -> Result<Relations, LedgerError> {
        let relations = self.store.relations(&call.call_id, facts.scope.as_ref()).await;
        let relations = relations.map_err(LedgerError::at("look for what may be the same as", &call.call_id))?;
        self.after_late_answers(call, facts, relations).await
    }

    /// The same, after what people answered about a call in doubt among them was acted on.
    async fn after_late_answers(
        &self,
        call: &CallRecord,
        facts: &Facts,
        relations: Relations,
    ) -> Result<Relations, LedgerError> {
        let mut relations = relations;
        loop {
            let related = RelatedCalls {
                call,
                facts,
                relations: &relations,
                renamed: &[],
                config: &self.config,
                forgotten: None,
                settled: None,
                unseen: &[],
                sent: None,
                behind: &Behind::default(),
            };
            let left_open = related.open_doubts().map(|doubt| &doubt.newest).find(|doubt| is_left_open(doubt));
            let Some(doubt) = left_open.cloned() else { return Ok(relations) };
            self.act_on_late_answers(&doubt).await?;
            let again = self.store.relations(&call.call_id, facts.scope.as_ref()).await;
            let again = again.map_err(LedgerError::at("look for what may be the same as", &call.call_id))?;
            // Behind one that was answered an older one may stand that was answered too.
            if again == relations {
                return Ok(relations);
            }
            relations = again;
        }
    }

    /// How many calls of the run before this one asked the person something.
    async fn asked_before(&self, call: &CallRecord) -> Result<usize, LedgerError> {
        let calls = self.store.calls(&call.run_id, None).await;
        let calls = calls.map_err(LedgerError::at("count what was asked before", &call.call_id))?;
        Ok(calls.iter().filter(|other| other.name.is_ask_user() && other.position < call.position).count())
    }
}

/// Whether a run can have others beside or below it that share its disk: it is a sub-agent, or its job lets it have some.
fn may_share_a_tree(run: &RunRecord) -> bool {
    is_task(run) || run.spec.subagents.is_some()
}
