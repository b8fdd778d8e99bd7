//! Doing what a verdict says: the one place where a decision about a call becomes writes.

use ua_core::{CallId, CallStatus, CorrectedTo, OnUnknown, Outcome, Timestamp};
use ua_store::{CallRecord, Correction, LedgerStore, ReplayStatus, Store as _, StoreError, Taint, UnknownResolution};

use crate::admission::{Admission, Facts, KeyLife, Prepared, UnknownCall};
use crate::correction::correct_call;
use crate::error::LedgerError;
use crate::events;
use crate::late::settle_late;
use crate::ledger::Ledger;
use crate::question::Why;
use crate::recovery::Recovery;
use crate::rules::Rules;
use crate::sends::Sends;
use crate::verdict::{Decision, Known, Verdict, verdict};
use crate::view::View;

impl Ledger {
    /// Decides about a call until nothing is left to do without the world, and does what was decided.
    pub(crate) async fn decide(&self, id: &CallId, facts: &Facts, known: Known<'_>) -> Result<Recovery, LedgerError> {
        loop {
            let judged_at = self.env.now();
            let view = Box::pin(self.view(id, facts)).await?;
            let rules = self.rules_under(facts);
            let Decision { verdict, closes } = verdict(&view, facts, known, &rules);
            if !self.close_all(&view.call, closes).await? {
                continue; // somebody has answered meanwhile
            }
            if let Some(recovery) = Box::pin(self.carry_out(&view, facts, verdict, judged_at)).await? {
                return Ok(recovery);
            }
        }
    }

    /// What holds for calls that are judged by these facts.
    fn rules_under(&self, facts: &Facts) -> Rules<'_> {
        let rules = self.rules();
        Rules { definitions: rules.definitions.filter(|_| !facts.is_as_sent), ..rules }
    }

    /// Does what a verdict says; `None` when the call is another one now and has to be looked at again.
    pub(crate) async fn carry_out(
        &self,
        view: &View,
        facts: &Facts,
        verdict: Verdict<'_>,
        judged_at: Timestamp,
    ) -> Result<Option<Recovery>, LedgerError> {
        let call = &view.call;
        let id = &call.call_id;
        let admission = match verdict {
            Verdict::Settled => Admission::Settled(call.clone()),
            Verdict::Interpret => {
                if let Some(receipt) = &view.unread {
                    self.interpret_stored(call, receipt).await?;
                }
                return Ok(None);
            }
            Verdict::MarkLost => {
                let run = self.store.run(&self.lease.run_id).await.map_err(LedgerError::at("read the run of", id))?;
                let why = ua_store::lost_because(&run);
                let lost = self.store.mark_lost(&self.lease, why, self.env.now()).await;
                let lost = lost.map_err(LedgerError::at("mark as lost", id))?;
                if lost.iter().any(|lost| lost.call_id == *id) {
                    return Ok(None);
                }
                // Whoever keeps the rows has something of it to go on with: looking again would come to the same.
                Admission::Settled(self.store.call(id).await.map_err(LedgerError::at("read", id))?)
            }
            Verdict::Recall(recall) => {
                self.recall(call, recall.clone()).await?;
                return Ok(None);
            }
            Verdict::GoOn(attempt) => self.admit_handle(call.clone(), attempt.clone()).await?,
            Verdict::KeepAnswer(asked) => {
                self.keep_answer(call, view.last_attempt(), asked).await?;
                return Ok(None);
            }
            Verdict::LetGo { attempt, why, since } => {
                self.settle_since(self.permit_to_abandon(call, attempt), Outcome::Lost { why }, since).await?;
                return Ok(None);
            }
            Verdict::Ongoing => match self.ongoing_task(call) {
                Some(permit) => Admission::Ongoing(Box::new(permit)),
                None => Admission::Settled(call.clone()),
            },
            Verdict::Fence => {
                let generation = view.last_attempt().and_then(|attempt| {
                    let of_handle = attempt.handle.as_ref().and_then(|handle| handle.generation.clone());
                    of_handle.or_else(|| attempt.server_generation.clone())
                });
                let lost_at = view.last_attempt().and_then(|attempt| attempt.ended_at);
                Admission::Unknown(UnknownCall { call: call.clone(), generation, lost_at })
            }
            Verdict::Probe => return Ok(Some(Recovery::Ask)),
            Verdict::NotBefore { until, asked } => {
                return Ok(Some(Recovery::NotBefore { until, question: asked.cloned().map(Box::new) }));
            }
            Verdict::Unreachable { why } => return Ok(Some(Recovery::Unreachable { why })),
            Verdict::Answered { late, asked } => {
                self.note(id, ReplayStatus::Interpreted).await?;
                let (means, asked) = (self.read(&late.reply, call).await, asked.map(|asked| &asked.question_id));
                let store = self.store.as_ref();
                let settled = settle_late(store, &self.lease, late, means, asked, self.env.now()).await;
                let settled = settled.map_err(LedgerError::at("store the answer of", id))?;
                self.add_taint(Taint::of(&settled.policy));
                // What definitely did nothing may be tried again, as if it had been answered in time.
                if settled.status == CallStatus::FailedDefinite {
                    return Ok(None);
                }
                Admission::Settled(settled)
            }
            Verdict::Resolve { resolution, asked, replay } => {
                if let Some(status) = replay {
                    self.note(id, status).await?;
                }
                let question = asked.map(|asked| &asked.question_id);
                let settled = self.store.resolve_unknown(&self.lease, id, *resolution, question, self.env.now()).await;
                Admission::Settled(settled.map_err(LedgerError::at("resolve", id))?)
            }
            Verdict::GoOnWithout { ask } => {
                if ask {
                    self.ask(call, &Why::WentOn { sends: Sends::of(&view.attempts) }).await?;
                }
                let (skipped, at) = (UnknownResolution::Skipped, self.env.now());
                let skipped = self.store.resolve_unknown(&self.lease, id, skipped, None, at).await;
                Admission::Settled(skipped.map_err(LedgerError::at("go on without", id))?)
            }
            Verdict::Hold(asked) => {
                self.note_held(call).await?;
                Admission::Held(asked.clone())
            }
            Verdict::Ask(why) => {
                let asked = self.ask(call, &why).await?;
                self.note_held(call).await?;
                Admission::Held(asked)
            }
            Verdict::DeduplicateFrom { twin, key } => {
                let receipt = self.store.deduplicate_call(&self.lease, id, &twin.call_id, &key, self.env.now()).await;
                if self.has_moved(&receipt, view, facts, twin).await? {
                    return Ok(None);
                }
                let deduplicated = receipt.map_err(LedgerError::at("deduplicate", id))?;
                self.add_taint(Taint::of(&deduplicated.policy).and(Taint::of(&twin.policy)));
                Admission::Settled(deduplicated)
            }
            Verdict::PutRight { asked, earlier } => {
                let (by, remark) = asked.answer.as_ref().map_or_else(
                    || ("a person".to_owned(), None),
                    |answer| (answer.by.clone(), answer.text.clone().filter(|text| !text.trim().is_empty())),
                );
                let had = format!("call {} of run {} had its effect", earlier.call_id, earlier.run_id);
                let correction = Correction {
                    outcome: CorrectedTo::Happened,
                    was: call.status,
                    reason: remark.map_or_else(|| had.clone(), |remark| format!("{had}: {}", remark.trim())),
                    proof: None,
                    by,
                    at: self.env.now(),
                    // Its answer is that one's, and what becomes of that one's record becomes of this one's.
                    of: Some(earlier.call_id.clone()),
                    was_answered: false,
                };
                // Nothing of it is under way: it failed, and this is its owner. The question is closed in the same write.
                let right = self.store.put_right(&self.lease, correct_call(call, correction, true)).await;
                if self.has_moved(&right, view, facts, earlier).await? {
                    return Ok(None);
                }
                let right = right.map_err(LedgerError::at("record what a person said of", id))?;
                self.add_taint(Taint::of(&earlier.policy));
                Admission::Settled(right)
            }
            Verdict::WaitFor(twin) => Admission::WaitFor(twin.call_id.clone()),
            Verdict::Cancel { resolution, code, message } => {
                Admission::Settled(self.cancel(call, resolution, code, &message).await?)
            }
            Verdict::NotAllowed(limit) => Admission::Settled(self.refuse_beyond(call, limit).await?),
            Verdict::Start { key, ends_doubt, approved_by, replay } => Admission::Ready(Prepared {
                key,
                facts: facts.clone(),
                seen: call.policy.class.has_effect().then(|| view.relations.seen()),
                corrected_at: view.corrected_at,
                key_life: key_life(view).filter(|_| replay.is_some() && !ends_doubt && approved_by.is_none()),
                ends_doubt,
                approved_by,
                replay_status: replay,
                call: call.clone(),
                judged_at,
            }),
            Verdict::Aborted => return Err(LedgerError::Aborted { call: id.clone() }),
        };
        Ok(Some(Recovery::Decided(Box::new(admission))))
    }

    /// Whether a write was refused because what it goes by is otherwise since that was looked at: a person put the record of one of the two calls
    /// right, or another call took the key.
    async fn has_moved(
        &self,
        written: &Result<CallRecord, StoreError>,
        view: &View,
        facts: &Facts,
        other: &CallRecord,
    ) -> Result<bool, LedgerError> {
        if !matches!(written, Err(StoreError::Conflict { .. } | StoreError::KeyTaken { .. })) {
            return Ok(false);
        }
        let other_now = self.store.call(&other.call_id).await.map_err(LedgerError::at("read", &other.call_id))?;
        let now = Box::pin(self.view(&view.call.call_id, facts)).await?;
        let twin = |view: &View| view.twin.as_ref().map(|twin| twin.call.call_id.clone());
        Ok(other_now.status != other.status || now.call != view.call || twin(&now) != twin(view))
    }

    /// Notes of a call in doubt that a person was asked about it.
    async fn note_held(&self, call: &CallRecord) -> Result<(), LedgerError> {
        if call.status == CallStatus::Unknown && call.replay_status != Some(ReplayStatus::Held) {
            self.note(&call.call_id, ReplayStatus::Held).await?;
        }
        Ok(())
    }

    /// Notes what a resume did about a call.
    pub(crate) async fn note(&self, id: &CallId, status: ReplayStatus) -> Result<(), LedgerError> {
        let noted = self.store.note_replay(&self.lease, id, status, self.env.now()).await;
        noted.map_err(LedgerError::at("note the replay of", id))?;
        events::replayed(id.as_str(), status);
        Ok(())
    }
}

/// How long the key is good under which a call was sent before, where its policy repeats it for the key alone.
fn key_life(view: &View) -> Option<KeyLife> {
    let policy = &view.call.policy;
    let ttl = policy.key_ttl.filter(|_| policy.on_unknown == OnUnknown::RedoKeyed)?;
    Some(KeyLife { since: view.attempts.first()?.started_at, ttl })
}
