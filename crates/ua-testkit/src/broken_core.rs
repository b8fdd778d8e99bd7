//! Broken rules of the core: ways in which an effect once happened twice or not at all without a person's word, or a person's word was lost.

use async_trait::async_trait;
use ua_core::{CallId, CallStatus, CorrectedTo, IdempotencyKey, Origin, Scope};
use ua_store::conformance::Writes;
use ua_store::{
    Around, Author, Batch, CallRecord, CallsOf, Change, Choice, Committed, CorrectCall, Correction, Done,
    LedgerStore as _, Related, Relations, RunRecord, RunStore as _, RunsOf, Store, StoreError, is_task, rules,
};

/// Takes the refusal of a later attempt for the word that nothing happened at all: what an earlier one, which was lost, may have done is
/// forgotten.
pub struct RefusalEndsDoubt;

#[async_trait]
impl Writes for RefusalEndsDoubt {
    async fn commit(&self, inner: &dyn Store, by: &Author, batch: Batch) -> Result<Committed, StoreError> {
        let settles = batch.changes().any(|change| matches!(change, Change::SettleAttempt(_)));
        let mut committed = inner.commit(by, batch).await?;
        if settles {
            for done in committed.stands.iter_mut().chain(committed.provided.iter_mut().flatten()) {
                if let Done::Call(call) = done
                    && call.status == CallStatus::Unknown
                    && call.doubt.is_some_and(|doubt| doubt < call.attempt)
                {
                    *call = inner.correct_call(nothing_happened(call)).await?;
                }
            }
        }
        Ok(committed)
    }
}

fn nothing_happened(call: &CallRecord) -> CorrectCall {
    let correction = Correction {
        outcome: CorrectedTo::NotHappened,
        was: call.status,
        reason: "the last attempt was refused".to_owned(),
        proof: None,
        by: "a broken rule".to_owned(),
        at: call.updated_at,
        of: None,
        was_answered: false,
    };
    let seen = (call.status, call.attempt);
    CorrectCall { call_id: call.call_id.clone(), seen, correction, receipt: None, is_idle: true }
}

async fn not_of_sub_agents(inner: &dyn Store, kin: Vec<Related>) -> Result<Vec<Related>, StoreError> {
    let mut seen = Vec::new();
    for related in kin {
        if !is_task(&inner.run(&related.newest.run_id).await?) {
            seen.push(related);
        }
    }
    Ok(seen)
}

/// Decides about a call without seeing all that may be the same beside it, before the write and in it.
pub enum Blind {
    /// To what sub-agents of another tree did; and a sub-agent to other trees at all.
    ToSubAgents,
    /// To everything but key and scope, when a call that was refused is tried again.
    InRetries,
    /// To whatever began since the start was decided on: what was seen then is taken for all there is.
    InTheWrite,
    /// To everything, when what a person answered is handed over to a tool.
    InHandOvers,
}

impl Blind {
    /// What it sees of that.
    async fn sees(&self, inner: &dyn Store, mut around: Around) -> Result<Around, StoreError> {
        let is_kin = |related: &Related| {
            let kin = &around.relations.kin;
            kin.same.iter().chain(&kin.open).any(|known| known.newest.call_id == related.newest.call_id)
        };
        let since: Vec<Related> = around.relations.since.iter().filter(|since| !is_kin(since)).cloned().collect();
        let kin = std::mem::take(&mut around.relations.kin);
        match self {
            Self::ToSubAgents => {
                around.relations.since = since;
                if !is_task(&around.run) {
                    around.relations.kin.same = not_of_sub_agents(inner, kin.same).await?;
                    around.relations.kin.open = not_of_sub_agents(inner, kin.open).await?;
                }
            }
            Self::InRetries if around.call.status == CallStatus::FailedDefinite => {
                around.relations.doubts.clear();
                around.relations.left_open.clear();
                around.relations.since = since;
            }
            Self::InHandOvers if around.call.status == CallStatus::Running => around.relations = Relations::default(),
            Self::InTheWrite | Self::InRetries | Self::InHandOvers => around.relations.kin = kin,
        }
        Ok(around)
    }
}

#[async_trait]
impl Writes for Blind {
    /// The guard of a start is as blind as who decided on it.
    async fn commit(&self, inner: &dyn Store, by: &Author, mut batch: Batch) -> Result<Committed, StoreError> {
        for change in batch.stands.iter_mut().chain(&mut batch.provided) {
            if let (Self::InHandOvers, Change::KeepHandle(keep)) = (self, &mut *change) {
                let around = inner.around(&keep.call_id, None, None, 0).await?;
                let now = inner.relations(&keep.call_id, around.call.scope.as_ref()).await?;
                keep.seen = keep.seen.take().map(|_| now.seen());
            }
            let Change::StartAttempt(start) = change else { continue };
            if matches!(self, Self::InHandOvers) {
                continue;
            }
            // A call that the same batch plans has no row yet; refused, it comes again.
            let Ok(around) = inner.around(&start.call_id, start.scope.as_ref(), None, 0).await else { continue };
            let Some(seen) = &mut start.seen else { continue };
            let all = around.relations.seen();
            if matches!(self, Self::InTheWrite) || self.sees(inner, around).await?.relations.news(seen).is_none() {
                *seen = all;
            }
        }
        inner.commit(by, batch).await
    }

    async fn around(
        &self,
        inner: &dyn Store,
        call: &CallId,
        scope: Option<&Scope>,
        key: Option<&IdempotencyKey>,
        most_effects: u32,
    ) -> Result<Around, StoreError> {
        self.sees(inner, inner.around(call, scope, key, most_effects).await?).await
    }
}

/// Takes the end of a doubt for the end of all that it held: what happened, as is known since, does not stand in the way of what was asked for before
/// that was known.
pub struct EndsOfDoubtUnseen;

#[async_trait]
impl Writes for EndsOfDoubtUnseen {
    async fn calls_of(&self, inner: &dyn Store, of: CallsOf) -> Result<Vec<CallRecord>, StoreError> {
        let is_unseen = matches!(of, CallsOf::EffectsSince(_) | CallsOf::EffectsBehind(..));
        if is_unseen { Ok(Vec::new()) } else { inner.calls_of(of).await }
    }
}

/// Forgets with a context what sub-agents did in it: behind an iteration, the run's own calls of earlier ones are all that is looked at.
pub struct SubAgentsForgotten;

#[async_trait]
impl Writes for SubAgentsForgotten {
    async fn runs_of(&self, inner: &dyn Store, of: RunsOf) -> Result<Vec<RunRecord>, StoreError> {
        let RunsOf::Children(run) = &of else { return inner.runs_of(of).await };
        let history = inner.history(run).await?;
        let begun = history.iter().rev().find(|record| record.message.origin == Origin::Iteration);
        let mut known = Vec::new();
        for child in inner.runs_of(of).await? {
            let asked_in = match &child.task_call_id {
                Some(task) => inner.call(task).await?.position.turn,
                None => u32::MAX,
            };
            if begun.is_none_or(|begun| asked_in > begun.turn) {
                known.push(child);
            }
        }
        Ok(known)
    }
}

/// Stores *abort* as what it once came to when other questions were open: a word about its own call, and the run goes on.
pub struct AbortOfOneCall;

#[async_trait]
impl Writes for AbortOfOneCall {
    async fn commit(&self, inner: &dyn Store, by: &Author, mut batch: Batch) -> Result<Committed, StoreError> {
        for change in batch.stands.iter_mut().chain(&mut batch.provided) {
            let Change::Answer(answer) = change else { continue };
            if answer.answer.choice == Choice::Abort {
                let may_skip = inner.question(&answer.question_id).await?.choices.contains(&Choice::Skip);
                answer.answer.choice = if may_skip { Choice::Skip } else { Choice::Continue };
            }
        }
        inner.commit(by, batch).await
    }
}

/// Stores a person's word that something did not happen as one about a call in doubt, whose key stays good.
pub struct CorrectedKeysStayGood;

#[async_trait]
impl Writes for CorrectedKeysStayGood {
    async fn commit(&self, inner: &dyn Store, by: &Author, mut batch: Batch) -> Result<Committed, StoreError> {
        for change in batch.stands.iter_mut().chain(&mut batch.provided) {
            let Change::Correct(correct) = change else { continue };
            correct.correction.was = CallStatus::Unknown;
        }
        inner.commit(by, batch).await
    }
}

/// Stores nothing of what lies beside a database that was put back.
pub struct AcceptedAsUnsent;

#[async_trait]
impl Writes for AcceptedAsUnsent {
    async fn commit(&self, inner: &dyn Store, by: &Author, batch: Batch) -> Result<Committed, StoreError> {
        if let Some(Change::Recall(recall)) = batch.stands.iter().find(|change| matches!(change, Change::Recall(_))) {
            // As where another call stands for it.
            let (call, by) = (recall.call_id.clone(), recall.call_id.clone());
            return Err(StoreError::KeyTaken { call, by, status: CallStatus::Succeeded });
        }
        inner.commit(by, batch).await
    }
}

/// Counts towards the limit of an effect only what is known to have happened, or is under way: nobody knows that what is in doubt did.
pub struct DoubtsUncounted;

impl DoubtsUncounted {
    /// How many calls that count beside this one are in doubt.
    async fn doubts(inner: &dyn Store, call: &CallRecord) -> Result<u32, StoreError> {
        let mut doubts = 0;
        for run in inner.runs(u32::MAX).await? {
            let calls = inner.calls(&run.run_id, None).await?;
            let is_one = |other: &&CallRecord| rules::is_doubt(other) && rules::counts_as_effect(other, call);
            doubts += u32::try_from(calls.iter().filter(is_one).count()).unwrap_or(u32::MAX);
        }
        Ok(doubts)
    }
}

#[async_trait]
impl Writes for DoubtsUncounted {
    async fn commit(&self, inner: &dyn Store, by: &Author, mut batch: Batch) -> Result<Committed, StoreError> {
        for change in batch.stands.iter_mut().chain(&mut batch.provided) {
            let Change::StartAttempt(start) = change else { continue };
            // A call that the same batch plans has no row yet; refused, it comes again.
            if let Some(max) = start.max_effects.as_mut()
                && let Ok(call) = inner.call(&start.call_id).await
            {
                *max = max.saturating_add(Self::doubts(inner, &call).await?);
            }
        }
        inner.commit(by, batch).await
    }

    async fn around(
        &self,
        inner: &dyn Store,
        call: &CallId,
        scope: Option<&Scope>,
        key: Option<&IdempotencyKey>,
        most_effects: u32,
    ) -> Result<Around, StoreError> {
        let doubts = Self::doubts(inner, &inner.call(call).await?).await?;
        let most = if most_effects == 0 { 0 } else { most_effects.saturating_add(doubts) };
        let mut around = inner.around(call, scope, key, most).await?;
        around.other_effects = around.other_effects.saturating_sub(doubts);
        Ok(around)
    }
}
