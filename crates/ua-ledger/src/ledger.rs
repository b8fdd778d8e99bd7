//! The ledger of one run: admission, RUNNING, settlement, recovery.

use std::collections::BTreeMap;
use std::sync::Arc;

use ua_core::{
    CallEvent, CallId, CallStatus, Env, IdempotencyKey, KeyBuilder, OnScopeConflict, Outcome, PriceTable, QuestionId,
    Resolution, RunId, Sha256, Trace,
};
use ua_store::{
    AttemptEnd, AttemptRecord, CallCancel, CallRecord, Choice, Durability, NewRun, QuestionKind, QuestionRecord,
    QuestionStatus, ReceiptRecord, Relations, ReplayStatus, RunLease, Seen, SettleAttempt, StartAttempt, Store,
    StoreError, is_task, whole_reply,
};

use crate::admission::{Admission, Facts, Prepared, UnknownCall};
use crate::doubt::is_left_open;
use crate::error::LedgerError;
use crate::events;
use crate::interpret::another_attempt_may_help;
use crate::patience::{NoPatience, Patience, Tries, again};
use crate::people::{PeopleRules, declined};
use crate::permit::Permit;
use crate::question::{Why, question};
use crate::standing::{Standing, lets_pass};
use crate::taint::ReadsSeen;

/// What the run's contract says about its calls.
#[derive(Debug, Clone, Default)]
pub struct LedgerConfig {
    /// Equal declared effects of the lineage are one (`no_duplicate_external_actions`).
    pub no_duplicate_external_actions: bool,
    /// Attempts after the first (`max_retries_per_tool_call`).
    pub max_retries: u32,
    /// The most effects of a kind that the lineage may have.
    pub max_effects: BTreeMap<String, u32>,
}

/// The ledger of one run, holding its lease.
pub struct Ledger {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) lease: RunLease,
    root: RunId,
    pub(crate) config: LedgerConfig,
    pub(crate) env: Env,
    pub(crate) people: PeopleRules,
    /// What the tokens cost that tools pay for.
    pub(crate) prices: PriceTable,
    /// What the tools are now, by qualified name.
    pub(crate) definitions: BTreeMap<String, Sha256>,
    pub(crate) trace: Trace,
    pub(crate) reads: ReadsSeen,
    patience: Arc<dyn Patience>,
}

impl Ledger {
    /// Opens the ledger of the run that `lease` owns; `root` is the first run of its lineage.
    pub fn new(
        store: Arc<dyn Store>,
        lease: RunLease,
        root: RunId,
        config: LedgerConfig,
        env: Env,
        trace: Trace,
    ) -> Self {
        let (people, prices, definitions) = (PeopleRules::default(), PriceTable::default(), BTreeMap::new());
        let patience = Arc::new(NoPatience);
        Self {
            store,
            lease,
            root,
            config,
            env,
            people,
            prices,
            definitions,
            reads: ReadsSeen::default(),
            trace,
            patience,
        }
    }

    /// The same ledger, whose answers wait while the database is busy.
    #[must_use]
    pub fn with_patience(mut self, patience: Arc<dyn Patience>) -> Self {
        self.patience = patience;
        self
    }

    /// The environment the ledger lives in.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// The store behind the ledger, for reads.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Says whether a call may run. Changes nothing but what follows from facts already stored: a receipt that was not
    /// interpreted, a twin's receipt, a person's answer, a RUNNING row of a dead process.
    pub async fn admit(&self, id: &CallId, facts: Facts) -> Result<Admission, LedgerError> {
        let admission = self.decide(id, facts).await?;
        events::admitted(&admission);
        Ok(admission)
    }

    async fn decide(&self, id: &CallId, facts: Facts) -> Result<Admission, LedgerError> {
        let call = self.store.call(id).await.map_err(LedgerError::at("read", id))?;
        match call.status {
            CallStatus::Succeeded | CallStatus::FailedReported | CallStatus::Cancelled => Ok(Admission::Settled(call)),
            CallStatus::FailedDefinite => self.admit_retry(call, facts).await,
            CallStatus::Running => self.admit_running(call).await,
            CallStatus::Unknown => self.admit_unknown(call).await,
            CallStatus::Prepared => self.admit_prepared(call, facts).await,
        }
    }

    /// RUNNING found at admission: its process is gone. With a receipt it is interpreted, with a handle it is gone on with, without
    /// either it is unknown.
    async fn admit_running(&self, call: CallRecord) -> Result<Admission, LedgerError> {
        let id = call.call_id.clone();
        let receipt = self.store.receipt(&id).await.map_err(LedgerError::at("read the receipt of", &id))?;
        if let Some(receipt) = receipt.filter(|r| r.attempt == call.attempt && r.settlement.is_none()) {
            let settled = self.interpret_stored(&call, &receipt).await?;
            return if settled.status == CallStatus::Unknown {
                self.admit_unknown(settled).await
            } else {
                Ok(Admission::Settled(settled))
            };
        }
        let attempt = self.last_attempt(&call).await?;
        if let Some(attempt) = attempt.filter(|attempt| attempt.live_handle().is_some()) {
            return self.admit_handle(call, attempt).await;
        }
        if let Some(permit) = self.ongoing_task(&call) {
            return Ok(Admission::Ongoing(Box::new(permit)));
        }
        let why = "the process that sent it ended before an answer was stored";
        let lost = self
            .store
            .mark_lost(&self.lease, why, self.env.now())
            .await
            .map_err(LedgerError::at("mark as lost", &id))?;
        match lost.into_iter().find(|lost| lost.call_id == id) {
            Some(call) => self.admit_unknown(call).await,
            None => Ok(Admission::Settled(self.store.call(&id).await.map_err(LedgerError::at("read", &id))?)),
        }
    }

    async fn admit_unknown(&self, call: CallRecord) -> Result<Admission, LedgerError> {
        if call.resolution == Some(Resolution::Skipped) {
            return Ok(Admission::Settled(call));
        }
        self.close_elicitation(&call).await?;
        let attempt = self.last_attempt(&call).await?;
        let generation = attempt.and_then(|a| a.handle.and_then(|handle| handle.generation).or(a.server_generation));
        Ok(Admission::Unknown(UnknownCall { call, generation }))
    }

    async fn admit_prepared(&self, call: CallRecord, facts: Facts) -> Result<Admission, LedgerError> {
        if call.name.is_ask_user() {
            return self.admit_ask_user(call, facts).await;
        }
        let id = call.call_id.clone();
        let mut approved_by = None;
        let mut repeat_on_purpose = false;
        let mut unanswered = None;
        if let Some(asked) = self.pending_question(&call).await? {
            match Self::decision(&call, &asked)? {
                // What it is about may have been settled meanwhile; then nobody has to answer it any more.
                None if asked.kind == QuestionKind::NearDuplicate => unanswered = Some(asked),
                None => return Ok(Admission::Held(asked)),
                // Not what was shown any more, so the word is not about it: it is asked again.
                Some(Choice::Execute | Choice::Continue | Choice::Happened)
                    if !self.is_as_asked(&call, &facts, &asked) =>
                {
                    self.close(&call, &asked).await?;
                }
                Some(Choice::Execute | Choice::Continue | Choice::Happened) => {
                    repeat_on_purpose = asked.kind == QuestionKind::NearDuplicate;
                    approved_by = Some(asked.question_id);
                }
                Some(Choice::Skip | Choice::Abort) => {
                    let message = declined(&asked);
                    let cancelled = self.cancel(&call, Resolution::Skipped, "declined", &message).await?;
                    return Ok(Admission::Settled(cancelled));
                }
            }
        }
        let mut key = self.key(&call, &facts, repeat_on_purpose.then_some(&id));
        let relations = self.relations(&call, &facts).await?;
        if !repeat_on_purpose {
            let holder = self.holder(&call, &key).await?;
            if let Some(twin) = holder.as_ref().filter(|holder| holder.status == CallStatus::Succeeded) {
                self.withdraw(&call, unanswered).await?;
                if let Some(asked) = self.pending_question(&call).await? {
                    self.close(&call, &asked).await?; // asked ahead, before the twin was sent
                }
                let deduplicated =
                    self.store.deduplicate_call(&self.lease, &id, &twin.call_id, &key, self.env.now()).await;
                return Ok(Admission::Settled(deduplicated.map_err(LedgerError::at("deduplicate", &id))?));
            }
            if let Some(twin) = &holder
                && self.is_under_way_beside(&call, twin).await?
            {
                self.withdraw(&call, unanswered).await?;
                return Ok(Admission::WaitFor(twin.call_id.clone()));
            }
            let standing = Standing { call: &call, facts: &facts, relations: &relations, config: &self.config };
            let other = holder.as_ref().or_else(|| standing.in_the_way()).cloned();
            match (other, call.policy.on_scope_conflict) {
                (Some(other), OnScopeConflict::Ask | OnScopeConflict::Refuse) => {
                    return match unanswered {
                        Some(asked) => Ok(Admission::Held(asked)),
                        None => self.conflict(call, &facts, &other, approved_by).await,
                    };
                }
                // In other words it is an effect of its own; in the same words it needs a key of its own.
                (Some(_), OnScopeConflict::Allow) if holder.is_some() => key = self.key(&call, &facts, Some(&id)),
                (Some(_), OnScopeConflict::Allow) | (None, _) => {}
            }
            self.withdraw(&call, unanswered).await?;
        }
        if approved_by.is_none()
            && let Some(admission) = self.word_before_start(&call, &facts).await?
        {
            return Ok(admission);
        }
        Ok(Admission::Ready(Prepared {
            key,
            facts,
            seen: seen(&call, &relations),
            ends_doubt: false,
            approved_by,
            replay_status: None,
            call,
        }))
    }

    /// A call that definitely did nothing and may be tried again: as any other call, it goes out only if nobody had its effect meanwhile.
    async fn admit_retry(&self, call: CallRecord, facts: Facts) -> Result<Admission, LedgerError> {
        if !self.may_retry(&call) && !self.asks_for_credentials(&call) {
            return Ok(Admission::Settled(call));
        }
        let id = call.call_id.clone();
        let pending = self.pending_question(&call).await?;
        let mut approved_by = None;
        match pending.filter(|asked| asked.kind == QuestionKind::NearDuplicate) {
            Some(asked) => match Self::decision(&call, &asked)? {
                None => return Ok(Admission::Held(asked)),
                Some(Choice::Skip | Choice::Abort) => {
                    self.close(&call, &asked).await?;
                    return Ok(Admission::Settled(call));
                }
                Some(_) if !self.is_as_asked(&call, &facts, &asked) => self.close(&call, &asked).await?,
                Some(Choice::Execute | Choice::Continue | Choice::Happened) => approved_by = Some(asked.question_id),
            },
            None => match self.approval_before_retry(&call, &facts).await? {
                Ok(word) => approved_by = word.map(|question| question.question_id),
                Err(admission) => return Ok(admission),
            },
        }
        // Nothing of it is outside, so it is the request that its files make it now; a repeat that a person ordered stays one.
        let first = Facts { scope: call.scope.clone(), file_digests: call.file_digests.clone() };
        let is_repeat = call.idempotency_key == Some(self.identity(&call, &first, Some(&id)));
        let key = self.identity(&call, &facts, is_repeat.then_some(&id));
        if self.holder(&call, &key).await?.is_some() {
            return Ok(Admission::Settled(call)); // a twin took the effect over; this one stays failed
        }
        let relations = self.relations(&call, &facts).await?;
        let standing = Standing { call: &call, facts: &facts, relations: &relations, config: &self.config };
        if let Some(other) = standing.in_the_way().filter(|_| approved_by.is_none() && !lets_pass(&call)).cloned()
            && !self.was_let_pass(&call, &facts, &other).await?
        {
            if call.policy.on_scope_conflict == OnScopeConflict::Refuse {
                return Ok(Admission::Settled(call));
            }
            return Ok(Admission::Held(self.ask(&call, &Why::NearDuplicate { facts: &facts, other: &other }).await?));
        }
        let seen = seen(&call, &relations);
        Ok(Admission::Ready(Prepared { key, facts, seen, ends_doubt: false, approved_by, replay_status: None, call }))
    }

    /// Whether a person let this call go out although they knew of the other one as it is now.
    async fn was_let_pass(&self, call: &CallRecord, facts: &Facts, other: &CallRecord) -> Result<bool, LedgerError> {
        let knew = |asked: &&QuestionRecord| {
            asked.kind == QuestionKind::NearDuplicate
                && asked.created_at >= other.updated_at
                && asked
                    .answer
                    .as_ref()
                    .is_some_and(|answer| matches!(answer.choice, Choice::Execute | Choice::Continue))
                && self.is_as_asked(call, facts, asked)
        };
        Ok(self.questions_about(call).await?.iter().any(|asked| knew(&asked)))
    }

    /// Whether a call is being sent, and its tool asks nobody for anything.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn is_under_way(&self, id: &CallId) -> Result<bool, LedgerError> {
        let call = self.store.call(id).await.map_err(LedgerError::at("read", id))?;
        Ok(call.status == CallStatus::Running && self.pending_question(&call).await?.is_none())
    }

    /// Another call that holds the key this one would be sent under.
    pub(crate) async fn holder(
        &self,
        call: &CallRecord,
        key: &IdempotencyKey,
    ) -> Result<Option<CallRecord>, LedgerError> {
        let holder = self.store.key_holder(&self.root, key).await;
        let holder = holder.map_err(LedgerError::at("look for a twin of", &call.call_id))?;
        Ok(holder.filter(|holder| holder.call_id != call.call_id))
    }

    /// Whether a twin is being sent for a run of the same tree, so that its receipt is worth waiting for. One whose tool asks a person
    /// something is not waited for.
    async fn is_under_way_beside(&self, call: &CallRecord, twin: &CallRecord) -> Result<bool, LedgerError> {
        if twin.doubt.is_some() || !self.is_under_way(&twin.call_id).await? {
            return Ok(false);
        }
        Ok(self.top_of(call).await? == self.top_of(twin).await?)
    }

    /// The run that is no sub-agent's, at the top of the tree of a call.
    async fn top_of(&self, call: &CallRecord) -> Result<RunId, LedgerError> {
        let mut run = call.run_id.clone();
        loop {
            let record = self.store.run(&run).await.map_err(LedgerError::at("look who works on", &call.call_id))?;
            match record.parent_run_id.clone().filter(|_| is_task(&record)) {
                Some(parent) => run = parent,
                None => return Ok(run),
            }
        }
    }

    /// What the call might repeat. What people answered about calls in doubt that stand in its way is acted on first.
    pub(crate) async fn relations(&self, call: &CallRecord, facts: &Facts) -> Result<Relations, LedgerError> {
        if !call.policy.class.has_effect() {
            return Ok(Relations::default());
        }
        let read = || async {
            let relations = self.store.relations(&call.call_id, facts.scope.as_ref()).await;
            relations.map_err(LedgerError::at("look for what may be the same as", &call.call_id))
        };
        let relations = read().await?;
        let standing = Standing { call, facts, relations: &relations, config: &self.config };
        let Some(doubt) = standing.open_doubt().filter(|doubt| is_left_open(doubt)).cloned() else {
            return Ok(relations);
        };
        self.act_on_late_answers(&doubt).await?;
        read().await
    }

    /// Closes a question that nobody has to answer any more.
    async fn withdraw(&self, call: &CallRecord, asked: Option<QuestionRecord>) -> Result<(), LedgerError> {
        let Some(asked) = asked else { return Ok(()) };
        let closed = self.store.close_question(&self.lease, &asked.question_id, self.env.now()).await;
        closed.map(drop).map_err(LedgerError::at("close the question about", &call.call_id))
    }

    /// Asks a person, or refuses. An approval that was given before anybody knew of the other call is not used.
    async fn conflict(
        &self,
        call: CallRecord,
        facts: &Facts,
        other: &CallRecord,
        approved_by: Option<QuestionId>,
    ) -> Result<Admission, LedgerError> {
        if let Some(approval) = approved_by {
            self.store
                .close_question(&self.lease, &approval, self.env.now())
                .await
                .map_err(LedgerError::at("close the question about", &call.call_id))?;
        }
        if call.policy.on_scope_conflict == OnScopeConflict::Refuse {
            let message = format!(
                "Refused: call {} of this job, which is {}, may already have had this effect. Do not repeat it; go on.",
                other.call_id, other.status
            );
            return Ok(Admission::Settled(self.cancel(&call, Resolution::Refused, "near_duplicate", &message).await?));
        }
        Ok(Admission::Held(self.ask(&call, &Why::NearDuplicate { facts, other }).await?))
    }

    /// Commits RUNNING and hands out the permit. `None` when the store found, in the same transaction, that the call must
    /// not start after all: it is then settled, or has to be admitted again.
    pub async fn start(&self, prepared: Prepared, generation: &str) -> Result<Option<Permit>, LedgerError> {
        self.start_with(prepared, generation, None).await
    }

    /// The same for a task, whose child run is made in the same write.
    pub(crate) async fn start_with(
        &self,
        prepared: Prepared,
        generation: &str,
        child: Option<NewRun>,
    ) -> Result<Option<Permit>, LedgerError> {
        let Prepared { call, key, facts, seen, ends_doubt, approved_by, replay_status } = prepared;
        let id = call.call_id.clone();
        let effect = call.policy.effect_kind.as_ref().map(|kind| kind.as_str().to_owned());
        let start = StartAttempt {
            call_id: id.clone(),
            attempt: call.attempt + 1,
            key: key.clone(),
            scope: facts.scope,
            seen,
            ends_doubt,
            file_digests: facts.file_digests,
            server_generation: Some(generation.to_owned()),
            max_effects: effect.as_ref().and_then(|kind| self.config.max_effects.get(kind).copied()),
            approved_by,
            replay_status,
            child: child.map(Box::new),
            durability: durability(&call),
            at: self.env.now(),
        };
        match self.store.start_attempt(&self.lease, start).await {
            Ok(running) => {
                events::started(&running);
                if let Some(replay) = replay_status {
                    events::replayed(id.as_str(), replay);
                }
                let traceparent = self.trace.traceparent(&self.env);
                Ok(Some(Permit::new(running, key, self.lease.clone(), generation.to_owned(), traceparent)))
            }
            Err(StoreError::KeyTaken { .. } | StoreError::ScopeTouched { .. }) => {
                events::not_started(&call);
                Ok(None)
            }
            Err(StoreError::EffectLimit { effect, max, .. }) => {
                let message = format!(
                    "Refused: this job allows {effect} {max}× and that has been reached. Do not ask for it again."
                );
                self.cancel(&call, Resolution::Refused, "effect_limit", &message).await?;
                Ok(None)
            }
            Err(source) => Err(LedgerError::Store { doing: "start", call: id, source }),
        }
    }

    /// Checks once more, just before the send, that no other process took the run.
    pub async fn confirm(&self, permit: &Permit) -> Result<(), LedgerError> {
        self.store.check_lease(&self.lease).await.map_err(LedgerError::at("send", &permit.call().call_id))
    }

    /// Commits what the attempt brought back: the raw reply and, in the same write, what it means. While the database is busy it is tried
    /// again, as long as the ledger's [`Patience`] and the lease last.
    pub async fn settle(&self, permit: Permit, outcome: Outcome) -> Result<CallRecord, LedgerError> {
        let call = permit.call();
        let end = match outcome {
            Outcome::NotSent { why } => AttemptEnd::NotSent { why },
            Outcome::Lost { why } => AttemptEnd::Lost { why },
            // Whoever goes on with handles does so before; nobody is left to.
            Outcome::Continues(_) => {
                AttemptEnd::Lost { why: "the tool did not finish, and nobody went on with it".to_owned() }
            }
            Outcome::Raw(raw) => {
                let settlement = self.read(&raw, call);
                AttemptEnd::Replied { raw, settlement: Some(settlement) }
            }
        };
        let settle = SettleAttempt {
            call_id: call.call_id.clone(),
            attempt: call.attempt,
            end,
            durability: durability(call),
            at: self.env.now(),
        };
        let doing = "store the answer of";
        let mut tries = Tries::default();
        let settled = loop {
            match self.store.settle_attempt(&self.lease, settle.clone()).await {
                Ok(settled) => break settled,
                Err(error) if again(self.patience.as_ref(), doing, &error, &mut tries).await => {}
                Err(error) => {
                    // A write that was put off may have been made all the same.
                    let is_refused = matches!(error, StoreError::Conflict { .. });
                    let made = if tries.count > 0 && is_refused { self.made_before(&settle).await? } else { None };
                    break made.ok_or(error).map_err(LedgerError::at(doing, &call.call_id))?;
                }
            }
        };
        events::settled(&settled);
        Ok(settled)
    }

    /// The call, when the attempt that `settle` is about has ended as it says. No other process ends an attempt of this lease.
    async fn made_before(&self, settle: &SettleAttempt) -> Result<Option<CallRecord>, LedgerError> {
        let at = || LedgerError::at("read", &settle.call_id);
        let call = self.store.call(&settle.call_id).await.map_err(at())?;
        let attempt = self.last_attempt(&call).await?;
        let receipt = self.store.receipt(&settle.call_id).await.map_err(at())?;
        let has_ended = attempt.is_some_and(|last| last.attempt == settle.attempt && last.ended_at.is_some());
        let is_answered = receipt.is_some_and(|receipt| receipt.attempt == settle.attempt);
        let was_answered = matches!(settle.end, AttemptEnd::Replied { .. });
        Ok((has_ended && is_answered == was_answered).then_some(call))
    }

    /// Whether a call that definitely failed has attempts left, and another one may end otherwise.
    pub fn may_retry(&self, call: &CallRecord) -> bool {
        call.status == CallStatus::FailedDefinite
            && call.attempt <= self.config.max_retries
            && another_attempt_may_help(call.error_code.as_deref())
    }

    /// The first acts of a recovery: stored replies are interpreted, then every RUNNING row without one becomes unknown.
    /// Returns the calls that were in flight.
    pub async fn recover_in_flight(&self, calls: &[CallRecord]) -> Result<Vec<CallId>, LedgerError> {
        let mut in_flight = Vec::new();
        for call in calls.iter().filter(|call| call.status == CallStatus::Running) {
            in_flight.push(call.call_id.clone());
            let receipt = self
                .store
                .receipt(&call.call_id)
                .await
                .map_err(LedgerError::at("read the receipt of", &call.call_id))?;
            if let Some(receipt) = receipt.filter(|r| r.attempt == call.attempt && r.settlement.is_none()) {
                self.interpret_stored(call, &receipt).await?;
            }
        }
        if let Some(first) = in_flight.first() {
            let why = "the process that sent it ended before an answer was stored";
            self.store
                .mark_lost(&self.lease, why, self.env.now())
                .await
                .map_err(LedgerError::at("mark as lost", first))?;
        }
        self.apply_late_answers(calls).await?;
        Ok(in_flight)
    }

    async fn interpret_stored(&self, call: &CallRecord, receipt: &ReceiptRecord) -> Result<CallRecord, LedgerError> {
        let raw = whole_reply(self.store.as_ref(), receipt)
            .await
            .map_err(LedgerError::at("read the answer of", &call.call_id))?;
        let settlement = self.read(&raw, call);
        let settled = self
            .store
            .interpret_receipt(&self.lease, &call.call_id, settlement, durability(call), self.env.now())
            .await;
        let settled = settled.map_err(LedgerError::at("interpret the answer of", &call.call_id))?;
        self.store
            .note_replay(&self.lease, &call.call_id, ReplayStatus::Interpreted, self.env.now())
            .await
            .map_err(LedgerError::at("note the replay of", &call.call_id))?;
        events::replayed(call.call_id.as_str(), ReplayStatus::Interpreted);
        Ok(settled)
    }

    /// Cancels a call that was never sent.
    pub async fn cancel(
        &self,
        call: &CallRecord,
        resolution: Resolution,
        code: &str,
        message: &str,
    ) -> Result<CallRecord, LedgerError> {
        let id = &call.call_id;
        if call.status.on(CallEvent::Cancelled).is_ok() {
            let cancel =
                CallCancel { call_id: id.clone(), resolution, code: code.to_owned(), message: message.to_owned() };
            self.store
                .cancel_calls(&self.lease, vec![cancel], self.env.now())
                .await
                .map_err(LedgerError::at("cancel", id))?;
            events::cancelled(call, code);
        }
        self.store.call(id).await.map_err(LedgerError::at("read", id))
    }

    pub(crate) async fn ask(&self, call: &CallRecord, why: &Why<'_>) -> Result<QuestionRecord, LedgerError> {
        let asked = self
            .store
            .raise_question(&self.lease, question(&self.env, call, why, |facts| self.binding(call, facts)))
            .await;
        let asked = asked.map_err(LedgerError::at("ask about", &call.call_id))?;
        events::asked(&asked);
        Ok(asked)
    }

    /// The question about this call that is not closed, if there is one.
    pub(crate) async fn pending_question(&self, call: &CallRecord) -> Result<Option<QuestionRecord>, LedgerError> {
        let open = self
            .store
            .open_questions(Some(&call.run_id))
            .await
            .map_err(LedgerError::at("read the questions about", &call.call_id))?;
        Ok(open.into_iter().find(|q| q.call_id.as_ref() == Some(&call.call_id)))
    }

    /// What a person decided; `None` while nobody did. `abort` ends the run, so it is an error to whoever goes on.
    pub(crate) fn decision(call: &CallRecord, asked: &QuestionRecord) -> Result<Option<Choice>, LedgerError> {
        match (&asked.answer, asked.status) {
            (Some(answer), QuestionStatus::Answered) if answer.choice == Choice::Abort => {
                Err(LedgerError::Aborted { call: call.call_id.clone() })
            }
            (Some(answer), QuestionStatus::Answered) => Ok(Some(answer.choice)),
            (_, QuestionStatus::Open | QuestionStatus::Answered | QuestionStatus::Closed) => Ok(None),
        }
    }

    /// The attempts of a call, oldest first.
    pub async fn attempts(&self, id: &CallId) -> Result<Vec<AttemptRecord>, LedgerError> {
        self.store.attempts(id).await.map_err(LedgerError::at("read the attempts of", id))
    }

    pub(crate) async fn last_attempt(&self, call: &CallRecord) -> Result<Option<AttemptRecord>, LedgerError> {
        let attempts =
            self.store.attempts(&call.call_id).await.map_err(LedgerError::at("read the attempts of", &call.call_id))?;
        Ok(attempts.into_iter().last())
    }

    /// The call's identity: by content for declared creating effects, by position for everything else. A repeat that a
    /// person ordered carries its own id, and so is another effect.
    pub(crate) fn key(&self, call: &CallRecord, facts: &Facts, repeat: Option<&CallId>) -> IdempotencyKey {
        if let Some(key) = &call.idempotency_key {
            return key.clone();
        }
        self.identity(call, facts, repeat)
    }

    /// The key that a call gets which has none.
    fn identity(&self, call: &CallRecord, facts: &Facts, repeat: Option<&CallId>) -> IdempotencyKey {
        let by_content = call.policy.is_by_content() && self.config.no_duplicate_external_actions;
        let (root, position) = match (by_content, repeat) {
            (true, None) => (self.root.as_str(), String::new()),
            (true, Some(id)) => (self.root.as_str(), id.to_string()),
            (false, _) => {
                let position = call.position;
                (call.run_id.as_str(), format!("{}/{}/{}", call.step_id, position.turn, position.ordinal))
            }
        };
        KeyBuilder::new("ua.idempotency.v1")
            .field("root", root)
            .field("namespace", call.name.namespace.as_str())
            .field("server", &call.name.server)
            .field("tool", &call.name.tool)
            .field("args", &call.args_hash.to_hex())
            .field("scope", facts.scope.as_ref().map_or("", |scope| scope.as_str()))
            .field("position", &position)
            .finish()
    }
}

/// What was looked at, for the start to compare; a read repeats nothing.
pub(crate) fn seen(call: &CallRecord, relations: &Relations) -> Option<Vec<Seen>> {
    call.policy.class.has_effect().then(|| relations.seen())
}

/// A call with an effect waits for stable storage; a read does not.
fn durability(call: &CallRecord) -> Durability {
    if call.policy.class.has_effect() { Durability::Synced } else { Durability::Relaxed }
}
