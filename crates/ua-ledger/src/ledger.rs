//! The ledger of one run: admission, RUNNING, settlement, recovery.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::Span;
use ua_core::{
    CallEvent, CallId, CallStatus, Env, OnUnknown, Outcome, PriceTable, Resolution, RunId, RunStatus, Sha256,
    ShortNames, SideEffectClass, Steps, Time, Timestamp, Trace,
};
use ua_store::{
    AttemptEnd, AttemptRecord, CallCancel, CallRecord, Change, Choice, Durability, LedgerStore, Lost, NewRun,
    QuestionRecord, QuestionStatus, QuestionsOf, ReceiptRecord, ReplayStatus, Retry, RunLease, RunRecord, RunStore,
    SettleAttempt, StartAttempt, Store, StoreError, Taint, rules, whole_reply,
};

use crate::admission::{Admission, Facts, KeyLife, Prepared, UnknownCall};
use crate::effect_limit::EffectLimit;
use crate::elsewhere::is_another_place;
use crate::error::LedgerError;
use crate::events;
use crate::exits::{Addresses, Heard};
use crate::forgotten::Forgotten;
use crate::late::settle_what_ends_by_late_replies;
use crate::outbox::Outbox;
use crate::outside::Outside;
use crate::patience::{NoPatience, Patience, Tries, again_with_an_answer};
use crate::people::{CallsOf, PeopleRules, words_beside};
use crate::permit::Permit;
use crate::question::{Why, question};
use crate::recovery::Recovery;
use crate::unseen::SentWithFiles;
use crate::verdict::{Known, Verdict, verdict};
use crate::view::View;

/// The most changes behind which a read may wait to be written: a database that takes nothing must not fill the memory.
const MOST_WAITING: usize = 3_000;

/// What the run's contract says about its calls.
#[derive(Debug, Clone, Default)]
pub struct LedgerConfig {
    /// Equal declared effects of the lineage are one (`no_duplicate_external_actions`).
    pub no_duplicate_external_actions: bool,
    /// Attempts after the first (`max_retries_per_tool_call`).
    pub max_retries: u32,
    /// The same of a call that only reads and had no answer, where that is fewer: whoever waits for it may ask again.
    pub max_read_retries: Option<u32>,
    /// The most effects of a kind that the lineage may have.
    pub max_effects: BTreeMap<String, u32>,
    /// What of an answer is over so many bytes is kept as a blob; 0 keeps all of it so.
    pub blob_threshold: u64,
}

impl LedgerConfig {
    /// How many attempts a call may have, behind the first, that are made because nobody knows what came of those before.
    pub(crate) fn retries_in_doubt(&self, call: &CallRecord) -> u32 {
        let of_reads = self.max_read_retries.filter(|_| call.policy.is_free_read());
        call.policy.repeats(of_reads.map_or(self.max_retries, |most| most.min(self.max_retries)))
    }
}

/// Whose effects are told apart: those of a first run and of all that began from it. Two databases may have runs of one name, and so may two
/// copies of one, so it is that of a database as well, and has a mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lineage {
    /// What tells the database from others ([`ua_store::Store::database_id`]).
    pub database: String,
    /// The first run.
    pub root: RunId,
    /// What tells it from a lineage of that name in another copy of the database ([`ua_store::RunRecord::lineage_mark`]).
    pub mark: Option<String>,
}

/// Through whom it becomes known before long what came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SoonKnown {
    /// It is being sent, and its tool asks nobody for anything.
    Sent,
    /// It is in doubt, and the process of this ledger has begun to recover it.
    RecoveredHere,
    /// It is in doubt, and whoever takes its run next, or another process, recovers it.
    RecoveredElsewhere,
}

/// The ledger of one run, holding its lease.
pub struct Ledger {
    pub(crate) store: Arc<Outbox>,
    pub(crate) lease: RunLease,
    pub(crate) lineage: Lineage,
    pub(crate) config: LedgerConfig,
    pub(crate) env: Env,
    pub(crate) people: PeopleRules,
    /// What the tokens cost that tools pay for.
    pub(crate) prices: PriceTable,
    /// What the tools are now, by qualified name; `None` while nobody has looked.
    pub(crate) definitions: Option<BTreeMap<String, Sha256>>,
    pub(crate) is_held_to_definitions: bool,
    pub(crate) calls_of: CallsOf,
    pub(crate) trace: Trace,
    patience: Arc<dyn Patience>,
    /// What was read into the run's history, and whether that is all of it. Only the run's owner adds to it, and nobody takes away from it.
    taint: Mutex<(Taint, bool)>,
    /// Addresses that earlier results named, as far as they were looked at.
    pub(crate) heard: Mutex<Heard>,
    /// What the model asked for in contexts that it does not have any more.
    pub(crate) forgotten: Mutex<Forgotten>,
    /// What its family sent with files, as far as it was looked at.
    pub(crate) sent_with_files: Mutex<SentWithFiles>,
    /// What was sent for its family and is in no row.
    pub(crate) lost: Mutex<Vec<Lost>>,
    /// Answers that this process brought home, until they are in a committed turn.
    answers: Mutex<BTreeMap<CallId, ReceiptRecord>>,
    /// Whether somebody may have been asked about a call of the turn that is open; of the first one nobody knows what a process before saw.
    pub(crate) has_asked: AtomicBool,
    /// When this process opened it: what was planned before, nobody here has decided about yet.
    pub(crate) opened_at: Timestamp,
    /// When a record of the lineage was corrected last, as far as the model knew when it was asked for the turn that is open.
    told_until: Mutex<Option<Timestamp>>,
    /// How the wall clock was set since the run was taken.
    steps: Steps,
    /// What can be seen of what other calls were sent to.
    pub(crate) outside: Arc<dyn Outside>,
}

/// A call that ended with an answer behind which something is written at once.
#[derive(Debug, Clone)]
pub enum WaitingAnswer {
    /// Its answer is stored.
    Stored(CallRecord),
    /// Its answer is stored with the next write, as the call says here.
    Waits(CallRecord),
}

impl Ledger {
    /// Opens the ledger of the run that `lease` owns.
    pub fn new(
        store: Arc<Outbox>,
        lease: RunLease,
        lineage: Lineage,
        config: LedgerConfig,
        env: Env,
        trace: Trace,
    ) -> Self {
        let (people, prices, definitions) = (PeopleRules::default(), PriceTable::default(), None);
        let patience = Arc::new(NoPatience);
        let (taint, heard, answers) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (opened_at, steps) = (env.now(), Steps::new(env.clone()));
        Self {
            store,
            lease,
            lineage,
            config,
            env,
            people,
            prices,
            definitions,
            is_held_to_definitions: false,
            calls_of: CallsOf::default(),
            trace,
            patience,
            taint,
            heard,
            forgotten: Mutex::default(),
            sent_with_files: Mutex::default(),
            lost: Mutex::default(),
            answers,
            has_asked: AtomicBool::new(true),
            opened_at,
            told_until: Mutex::default(),
            steps,
            outside: Arc::new(|_: &RunRecord| false),
        }
    }

    /// The same ledger, whose answers wait while the database is busy.
    #[must_use]
    pub fn with_patience(mut self, patience: Arc<dyn Patience>) -> Self {
        self.patience = patience;
        self
    }

    /// The same ledger, which sees what other calls were sent to.
    #[must_use]
    pub fn with_outside(mut self, outside: Arc<dyn Outside>) -> Self {
        self.outside = outside;
        self
    }

    /// The environment the ledger lives in.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// The time, and how the clock was set since the run was taken.
    pub fn time(&self) -> Time {
        self.steps.time()
    }

    /// The store behind the ledger, for reads.
    pub fn store(&self) -> &Arc<Outbox> {
        &self.store
    }

    /// Says whether a call may run. Changes nothing but what follows from facts already stored: a receipt that was not
    /// interpreted, a twin's receipt, a person's answer, a RUNNING row of a dead process.
    pub async fn admit(&self, id: &CallId, facts: Facts) -> Result<Admission, LedgerError> {
        let admission = match self.decide(id, &facts, Known::Nothing).await? {
            Recovery::Decided(admission) => *admission,
            // What is asked and waited for comes behind the fence.
            Recovery::Ask | Recovery::NotBefore { .. } | Recovery::Unreachable { .. } => {
                let call = self.store.call(id).await.map_err(LedgerError::at("read", id))?;
                Admission::Unknown(UnknownCall { call, generation: None, lost_at: None })
            }
        };
        events::admitted(&admission);
        Ok(admission)
    }

    /// The same for a call that was planned a moment ago and about which nobody can have said a word: where that is all that matters, it is
    /// decided as if no other call had anything to do with it, and the write that starts it looks whether that is so. `None` when it has to
    /// be looked at.
    pub fn admit_planned(&self, call: &CallRecord, facts: &Facts) -> Option<Admission> {
        let rules = self.rules();
        let is_simple = call.status == CallStatus::Prepared && !call.name.is_task() && !call.name.is_ask_user();
        let may_repeat =
            self.may_have_forgotten(call) || self.may_repeat_lost(call) || self.may_repeat_unseen(call, facts);
        if !is_simple || rules.looks_at_addresses(call) || may_repeat {
            return None;
        }
        let matters = rules.looks_at_taint(call) || !rules.made_addresses(call, &Addresses::default()).is_empty();
        let is_tainted = if matters { self.known_taint()?.is_both() } else { false };
        let view = View { is_tainted, ..View::of(call.clone()) };
        let Verdict::Start { key, ends_doubt, approved_by, replay } =
            verdict(&view, facts, Known::Nothing, &rules).verdict
        else {
            return None;
        };
        let (call, facts, judged_at) = (call.clone(), facts.clone(), self.env.now());
        let seen = call.policy.class.has_effect().then(Vec::new);
        let prepared = Prepared {
            call,
            key,
            facts,
            seen,
            corrected_at: self.known_until(),
            ends_doubt,
            approved_by,
            replay_status: replay,
            judged_at,
            key_life: None,
        };
        let admission = Admission::Ready(prepared);
        events::admitted(&admission);
        Some(admission)
    }

    /// The model is asked, and knows what was recorded of calls of the lineage until then: the run's [`corrected_at`](RunRecord::corrected_at).
    pub fn told_until(&self, corrected_at: Option<Timestamp>) {
        *self.told_until.lock().unwrap_or_else(PoisonError::into_inner) = corrected_at;
    }

    /// What [`told_until`](Self::told_until) said.
    pub(crate) fn known_until(&self) -> Option<Timestamp> {
        *self.told_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what waits to be written.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn flush(&self, call: &CallId) -> Result<(), LedgerError> {
        self.store.flush().await.map_err(LedgerError::at("write what comes before", call))
    }

    /// Through whom it will be known before long what came of a call; `None` where it is known, a person was asked, somebody went on without it, or
    /// its run has ended.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn soon_known(&self, id: &CallId) -> Result<Option<SoonKnown>, LedgerError> {
        let call = self.store.call(id).await.map_err(LedgerError::at("read", id))?;
        self.soon_known_as(&call).await
    }

    /// The same of one that stands as it was read: what was read in two moments may have been on its way from one to the other in between.
    pub(crate) async fn soon_known_as(&self, call: &CallRecord) -> Result<Option<SoonKnown>, LedgerError> {
        let is_sent = match call.status {
            CallStatus::Running => true,
            CallStatus::Unknown if call.resolution.is_none() => false,
            CallStatus::Unknown
            | CallStatus::Prepared
            | CallStatus::Succeeded
            | CallStatus::FailedDefinite
            | CallStatus::FailedReported
            | CallStatus::Cancelled => return Ok(None),
        };
        if self.pending_question(call).await?.is_some() {
            return Ok(None);
        }
        if is_sent {
            return Ok(Some(SoonKnown::Sent));
        }
        let id = &call.call_id;
        let read = async |run| self.store.run(run).await.map_err(LedgerError::at("look who works on", id));
        let run = read(&call.run_id).await?;
        if run.status.is_terminal() || run.end_mark().is_some() {
            return Ok(None);
        }
        let ours = read(&self.lease.run_id).await?;
        let is_ours = matches!((&run.owner, &ours.owner), (Some(its), Some(ours)) if its.is_same_process(ours));
        let is_at_work = is_ours && run.status == RunStatus::Running;
        Ok(Some(if is_at_work { SoonKnown::RecoveredHere } else { SoonKnown::RecoveredElsewhere }))
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
        if prepared.key_life.is_some_and(|life| self.is_over(life)) {
            events::not_started(&prepared.call);
            return Ok(None);
        }
        let Prepared { call, key, facts, seen, corrected_at, ends_doubt, approved_by, replay_status, key_life, .. } =
            prepared;
        let id = call.call_id.clone();
        if call.policy.class.has_effect()
            && let Err(why) = self.store.late().make_room().await
        {
            let source = StoreError::Unavailable { why, source: None, retry: Retry::WithRoom };
            return Err(self.refused("start", &id, source).await);
        }
        let destination = facts.destination.filter(|_| call.policy.class.has_effect());
        let limit = self.effect_limit(&call, None);
        let start = StartAttempt {
            call_id: id.clone(),
            attempt: call.attempt + 1,
            key: key.clone(),
            scope: facts.scope,
            seen,
            corrected_at,
            ends_doubt,
            file_digests: facts.files.digests(),
            server_generation: Some(generation.to_owned()),
            destination: destination.clone(),
            max_effects: limit.as_ref().map(EffectLimit::max_effects),
            approved_by,
            replay_status,
            child: child.map(Box::new),
            durability: durability(&call),
            at: self.env.now(),
        };
        match self.store.start_attempt(&self.lease, start).await {
            Ok(running) => {
                self.add_taint(Taint::of(&running.policy));
                events::started(&running);
                if let Some(replay) = replay_status {
                    events::replayed(id.as_str(), replay);
                }
                let traceparent = self.trace.traceparent(&self.env);
                let permit = Permit::new(running, key, self.lease.clone(), generation.to_owned(), traceparent);
                Ok(Some(permit.within(key_life).going_to(destination)))
            }
            Err(StoreError::KeyTaken { .. } | StoreError::ScopeTouched { .. } | StoreError::Corrected { .. }) => {
                events::not_started(&call);
                // What held it may have become known before it is looked at.
                self.has_asked.store(true, Ordering::Relaxed);
                Ok(None)
            }
            Err(StoreError::NotBegun) => {
                events::not_started(&call);
                Ok(None)
            }
            // What could not be written is the answer before it.
            Err(source @ StoreError::Unavailable { .. }) => match self.store.waiting_answer().await {
                Some(answered) => Err(LedgerError::at("store the answer of", &answered)(source)),
                None => Err(self.refused("start", &id, source).await),
            },
            Err(source) => {
                // Used up since it was looked at, if it was.
                let is_used_up = matches!(source, StoreError::EffectLimit { .. });
                let Some(limit) = limit.filter(|_| is_used_up) else {
                    return Err(self.refused("start", &id, source).await);
                };
                self.refuse_beyond(&call, &limit).await?;
                Ok(None)
            }
        }
    }

    /// The same for a call that only reads and may simply be made again: nobody needs to know of it before it is answered, so RUNNING leaves
    /// with the next write, and the permit is had at once. A process that dies before has made a read that stands nowhere; whoever wanted it
    /// asks again. What is no such call is given back, and so is any while too much waits.
    ///
    /// # Errors
    /// The call as it was prepared, to be started with [`Ledger::start`].
    pub async fn start_read(&self, prepared: Prepared, generation: &str) -> Result<Permit, Box<Prepared>> {
        let Prepared { call, seen, ends_doubt, approved_by, replay_status, key_life, .. } = &prepared;
        let may_wait = call.policy.class == SideEffectClass::ReadOnly
            && call.policy.on_unknown == OnUnknown::Redo
            && (call.status, call.attempt) == (CallStatus::Prepared, 0)
            && !call.name.is_task()
            && !ends_doubt
            && seen.is_none()
            && approved_by.is_none()
            && replay_status.is_none()
            && key_life.is_none()
            && self.store.waiting() < MOST_WAITING;
        if !may_wait {
            return Err(Box::new(prepared));
        }
        let start = StartAttempt {
            call_id: call.call_id.clone(),
            attempt: 1,
            key: prepared.key.clone(),
            scope: prepared.facts.scope.clone(),
            seen: None,
            corrected_at: None,
            ends_doubt: false,
            file_digests: prepared.facts.files.digests(),
            server_generation: Some(generation.to_owned()),
            destination: None,
            max_effects: None,
            approved_by: None,
            replay_status: None,
            child: None,
            durability: durability(call),
            at: self.env.now(),
        };
        let Ok(running) = rules::call_begun(call.clone(), start.clone(), self.lease.epoch) else {
            return Err(Box::new(prepared));
        };
        self.store.hold("start a read", Change::StartAttempt(start)).await;
        self.add_taint(Taint::of(&running.policy));
        events::started(&running);
        let traceparent = self.trace.traceparent(&self.env);
        let permit = Permit::new(running, prepared.key, self.lease.clone(), generation.to_owned(), traceparent);
        Ok(permit.waiting())
    }

    /// For how long ago a call was judged that is about to be started. What was true then, its files, its key, a person's word, may be
    /// otherwise: a machine sleeps, and whatever was waited for took its time.
    pub fn age(&self, prepared: &Prepared) -> Duration {
        let now = self.env.now();
        // A clock that was set back says nothing about how long it was.
        if now < prepared.judged_at { Duration::MAX } else { now.since(prepared.judged_at) }
    }

    /// Checks once more, just before the send, that no other process took the run, and that the key it rests on is still good: `false`
    /// when that time is over, so that it must not be sent.
    ///
    /// # Errors
    /// Those of the store, a lost lease among them.
    pub async fn confirm(&self, permit: &Permit) -> Result<bool, LedgerError> {
        // A read harms nobody who has the run now, and its rows are refused then.
        if permit.waits() {
            return Ok(true);
        }
        self.store.check_lease(&self.lease).await.map_err(LedgerError::at("send", &permit.call().call_id))?;
        Ok(!permit.key_life().is_some_and(|life| self.is_over(life)))
    }

    fn is_over(&self, life: KeyLife) -> bool {
        self.time().may_be_over(life.since, life.ttl)
    }

    /// Commits what the attempt brought back: the raw reply and, in the same write, what it means. While the database is busy it is tried
    /// again, as long as the ledger's [`Patience`] and the lease last.
    pub async fn settle(&self, permit: Permit, outcome: Outcome) -> Result<CallRecord, LedgerError> {
        self.settle_since(permit, outcome, None).await
    }

    /// The same of an attempt that ended a while ago; `None` is now.
    pub(crate) async fn settle_since(
        &self,
        permit: Permit,
        outcome: Outcome,
        since: Option<Timestamp>,
    ) -> Result<CallRecord, LedgerError> {
        let settle = self.end_of(&permit, outcome).await;
        let settle = SettleAttempt { at: since.unwrap_or(settle.at), ..settle };
        let settled = self.write_end(&permit, settle).await?;
        if settled.name.is_task() {
            self.forget_taint(); // what the sub-agent had read came with its answer
        }
        Ok(settled)
    }

    /// The same for an answer behind which the start of the next call or the end of the turn is written at once: one that ends the call, and is
    /// small, waits for that write, and `stored` is called when it is made.
    pub async fn settle_with_next(
        &self,
        permit: Permit,
        outcome: Outcome,
        stored: impl FnOnce(CallRecord) + Send + 'static,
    ) -> Result<WaitingAnswer, LedgerError> {
        let settle = self.end_of(&permit, outcome).await;
        let Some((call, receipt)) = self.foreseen(&permit, &settle) else {
            return Ok(WaitingAnswer::Stored(self.write_end(&permit, settle).await?));
        };
        self.answers().insert(call.call_id.clone(), receipt);
        let (span, settled) = (Span::current(), call.clone());
        let stored = move || {
            span.in_scope(|| {
                events::settled(&settled);
                stored(settled);
            });
        };
        self.store.hold_until("store an answer", Change::SettleAttempt(settle), Box::new(stored)).await;
        Ok(WaitingAnswer::Waits(call))
    }

    /// Keeps back a call that was started and has not left, since a stop was asked for meanwhile: its attempt ends as one that never left,
    /// and whoever resumes the run sends the call, whatever retries the job allows.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn keep_back(&self, permit: Permit) -> Result<CallRecord, LedgerError> {
        let call = permit.call();
        let end = AttemptEnd::kept_back(self.left_open_by(call).await);
        let settle = self.ends_with(call, end);
        self.write_end(&permit, settle).await
    }

    /// What becomes of a call in the end of its attempt, if that is the end of the call and of its answer nothing is kept as a blob.
    fn foreseen(&self, permit: &Permit, settle: &SettleAttempt) -> Option<(CallRecord, ReceiptRecord)> {
        let call = permit.call();
        if call.name.is_task() {
            return None;
        }
        let attempt = AttemptRecord {
            call_id: call.call_id.clone(),
            attempt: call.attempt,
            epoch: self.lease.epoch,
            server_generation: Some(permit.generation().to_owned()),
            destination: None, // what is stored of it is not touched
            started_at: call.updated_at,
            ended_at: None,
            outcome: None,
            detail: None,
            handle: None,
        };
        let (end, threshold) = (settle.end.clone(), self.config.blob_threshold);
        let settled =
            rules::call_settled(call.clone(), Some(attempt), settle.attempt, end, threshold, settle.at).ok()?;
        let is_final = matches!(settled.call.status, CallStatus::Succeeded | CallStatus::FailedReported);
        Some((settled.call, settled.receipt?)).filter(|_| is_final && settled.blobs.is_empty())
    }

    async fn end_of(&self, permit: &Permit, outcome: Outcome) -> SettleAttempt {
        let call = permit.call();
        let end = match outcome {
            Outcome::NotSent { why } => {
                let open = self.left_open_by(call).await;
                AttemptEnd::NotSent { why: open.map_or(why.clone(), |open| open.behind(&why)) }
            }
            Outcome::Lost { why } => AttemptEnd::Lost { why },
            // Whoever goes on with handles does so before; nobody is left to.
            Outcome::Continues(_) => {
                AttemptEnd::Lost { why: "the tool did not finish, and nobody continued the call".to_owned() }
            }
            Outcome::Raw(raw) => {
                let settlement = self.read(&raw, call).await;
                AttemptEnd::Replied { raw, settlement: Some(settlement) }
            }
        };
        self.ends_with(call, end)
    }

    /// The end of the attempt of a call that is under way, now.
    fn ends_with(&self, call: &CallRecord, end: AttemptEnd) -> SettleAttempt {
        SettleAttempt {
            call_id: call.call_id.clone(),
            attempt: call.attempt,
            end,
            durability: durability(call),
            at: self.env.now(),
        }
    }

    async fn write_end(&self, permit: &Permit, settle: SettleAttempt) -> Result<CallRecord, LedgerError> {
        let call = permit.call();
        let doing = "store the answer of";
        let mut tries = Tries::default();
        let settled = loop {
            match self.store.written(self.store.settle_attempt(&self.lease, settle.clone()), [&settle]).await {
                Ok(settled) => break settled,
                Err(error) => {
                    self.store.keep_beside(&settle).await;
                    tries.is_alone = self.store.is_alone(&settle);
                    if again_with_an_answer(self.patience.as_ref(), doing, &error, &mut tries).await {
                        continue;
                    }
                    // A write whose answer was lost, here or in the outbox, may have been made all the same.
                    let is_refused = matches!(error, StoreError::Conflict { .. });
                    let made = if is_refused { self.made_before(&settle).await? } else { None };
                    break made.ok_or(error).map_err(LedgerError::at(doing, &call.call_id))?;
                }
            }
        };
        events::settled(&settled);
        Ok(settled)
    }

    /// The answer to a call, if this process brought it home in the turn that is open.
    pub fn answer(&self, call: &CallId) -> Option<ReceiptRecord> {
        self.answers().get(call).cloned()
    }

    /// The turn is committed, with the answers in it and what persons said beside theirs.
    pub fn forget_answers(&self) {
        self.answers().clear();
        self.has_asked.store(false, Ordering::Relaxed);
    }

    /// What persons said beside their answers to questions about these calls, oldest first, and which the results of the calls do not say.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn words_about(&self, calls: &[CallRecord]) -> Result<Vec<String>, LedgerError> {
        let Some(first) = calls.first().filter(|_| self.has_asked.load(Ordering::Relaxed)) else {
            return Ok(Vec::new());
        };
        let questions = self.store.questions_of(QuestionsOf::Run(first.run_id.clone())).await;
        let questions = questions.map_err(LedgerError::at("read what was said about", &first.call_id))?;
        let about = |question: &QuestionRecord| {
            let call = calls.iter().find(|call| question.call_id.as_ref() == Some(&call.call_id))?;
            Some(format!("About `{}`: {}", call.name.tool, words_beside(call, question)?))
        };
        Ok(questions.iter().filter_map(about).collect())
    }

    /// What other calls have done since of those of these calls that definitely failed, each in a sentence. Under their keys: made again they are
    /// answered with those receipts, and whoever reads that they failed has to know it.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn done_by_others(&self, calls: &[CallRecord]) -> Result<Vec<String>, LedgerError> {
        let mut done = Vec::new();
        let may_be = |call: &&CallRecord| {
            call.status == CallStatus::FailedDefinite && call.policy.is_by_content() && !call.policy.kind_is_guessed
        };
        for call in calls.iter().filter(may_be) {
            let Some(key) = &call.idempotency_key else { continue };
            let around = self.store.around(&call.call_id, call.scope.as_ref(), Some(key), 0).await;
            let holder = around.map_err(LedgerError::at("look for what may be the same as", &call.call_id))?.holder;
            if let Some(other) = holder.filter(|other| other.status == CallStatus::Succeeded)
                && self.is_in_its_place(call, &other).await?
            {
                done.push(format!(
                    "What `{}` was to do is done: call {} of run {} did it. Make the same call again if its answer is needed: it is answered with \
                     that receipt, and nothing is sent.",
                    call.name.tool, other.call_id, other.run_id
                ));
            }
        }
        Ok(done)
    }

    /// Whether another call was sent to where this one was: what was done somewhere else is not what this one was to do.
    async fn is_in_its_place(&self, call: &CallRecord, other: &CallRecord) -> Result<bool, LedgerError> {
        let own = self.attempts(&call.call_id).await?;
        let to = own.iter().rev().find_map(|attempt| attempt.destination.as_ref());
        let theirs = self.attempts(&other.call_id).await?;
        let newest = theirs.iter().rev().find(|attempt| !attempt.never_left());
        Ok(newest.is_none_or(|sent| !is_another_place(other, sent, to)))
    }

    fn answers(&self) -> MutexGuard<'_, BTreeMap<CallId, ReceiptRecord>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn taint(&self) -> MutexGuard<'_, (Taint, bool)> {
        self.taint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was read into the run's history, if this process knows all of it.
    fn known_taint(&self) -> Option<Taint> {
        let (taint, is_all) = *self.taint();
        is_all.then_some(taint)
    }

    /// What the run's row says.
    pub(crate) fn learn_taint(&self, stored: Taint) {
        let mut taint = self.taint();
        *taint = (taint.0.and(stored), true);
    }

    /// What a call brings into the run.
    pub(crate) fn add_taint(&self, more: Taint) {
        let mut taint = self.taint();
        taint.0 = taint.0.and(more);
    }

    /// A sub-agent's answer brought what it had read; the run's row says what.
    fn forget_taint(&self) {
        self.taint().1 = false;
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
        self.rules().may_retry(call)
    }

    /// How many attempts a call that failed may have after its first.
    pub fn max_retries(&self) -> u32 {
        self.config.max_retries
    }

    /// Whether the tool of a call is another one now than the one that it was planned for, or is gone.
    pub fn is_for_another_tool(&self, call: &CallRecord) -> bool {
        let rules = self.rules();
        rules.is_for_another_tool(call) || rules.is_gone(call)
    }

    /// Whether a call was tried less often than the job and its policy allow, whatever came of it.
    pub fn has_attempts_left(&self, call: &CallRecord) -> bool {
        call.attempt <= self.config.retries_in_doubt(call)
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
            let run = self.store.run(&self.lease.run_id).await.map_err(LedgerError::at("read the run of", first))?;
            let why = ua_store::lost_because(&run);
            self.store
                .mark_lost(&self.lease, why, self.env.now())
                .await
                .map_err(LedgerError::at("mark as lost", first))?;
        }
        self.apply_late_answers(calls).await?;
        Ok(in_flight)
    }

    /// Settles those of these calls that are in doubt and have their answer beside the database, of a run that ends: nobody decides about them
    /// behind that.
    pub async fn settle_by_late_replies(&self, calls: &[CallRecord]) -> Result<(), LedgerError> {
        let mut open = Vec::new();
        for call in calls.iter().filter(|call| matches!(call.status, CallStatus::Running | CallStatus::Unknown)) {
            open.push(self.store.call(&call.call_id).await.map_err(LedgerError::at("read", &call.call_id))?);
        }
        let Some(first) = open.first() else { return Ok(()) };
        let (store, now) = (self.store.as_ref(), self.env.now());
        let settled = settle_what_ends_by_late_replies(store, store.late(), &self.lease, &open, now).await;
        for settled in settled.map_err(LedgerError::at("store the answer of", &first.call_id))? {
            self.add_taint(Taint::of(&settled.policy));
        }
        Ok(())
    }

    pub(crate) async fn interpret_stored(
        &self,
        call: &CallRecord,
        receipt: &ReceiptRecord,
    ) -> Result<CallRecord, LedgerError> {
        let raw = whole_reply(self.store.as_ref(), receipt)
            .await
            .map_err(LedgerError::at("read the answer of", &call.call_id))?;
        let settlement = self.read(&raw, call).await;
        let settled = self
            .store
            .interpret_receipt(&self.lease, &call.call_id, settlement, durability(call), self.env.now())
            .await;
        let settled = settled.map_err(LedgerError::at("interpret the answer of", &call.call_id))?;
        self.forget_taint();
        self.note(&call.call_id, ReplayStatus::Interpreted).await?;
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
            let cancel = CallCancel {
                call_id: id.clone(),
                resolution,
                code: code.to_owned(),
                message: message.to_owned(),
                unless_allowed: false,
            };
            self.store
                .cancel_calls(&self.lease, vec![cancel], self.env.now())
                .await
                .map_err(LedgerError::at("cancel", id))?;
            events::cancelled(call, code);
        }
        self.store.call(id).await.map_err(LedgerError::at("read", id))
    }

    pub(crate) async fn ask(&self, call: &CallRecord, why: &Why<'_>) -> Result<QuestionRecord, LedgerError> {
        // Which of two servers has it is what a person has to see, where both offer a tool of that name.
        let there = self.rules().definitions.into_iter().flatten().map(|(raw, _)| raw.as_str());
        let names = ShortNames::among(there.chain([call.name.raw.as_str()]));
        let mut new =
            question(&self.env, &names, (call, self.calls_of), why, |facts| self.rules().binding(call, facts));
        if matches!(why, Why::Send { .. })
            && let Some(before) = self.let_go_in_vain(call).await?
        {
            new.text = new.text.line(before);
        }
        let asked = self.store.raise_question(&self.lease, new).await;
        let asked = match asked {
            Ok(asked) => asked,
            Err(source) => return Err(self.refused("ask about", &call.call_id, source).await),
        };
        events::asked(&asked);
        Ok(asked)
    }

    /// What a write that was refused comes to: a person may have ended the session just now, for which nothing is sent and nobody is asked any more.
    async fn refused(&self, doing: &'static str, call: &CallId, source: StoreError) -> LedgerError {
        let is_conflict = matches!(source, StoreError::Conflict { .. });
        let run = if is_conflict { self.store.run(&self.lease.run_id).await.ok() } else { None };
        match run.filter(ua_store::is_over) {
            Some(_) => LedgerError::Aborted { call: call.clone() },
            None => LedgerError::Store { doing, call: call.clone(), source },
        }
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
}

/// A call with an effect waits for stable storage; a read does not.
fn durability(call: &CallRecord) -> Durability {
    if call.policy.class.has_effect() { Durability::Synced } else { Durability::Relaxed }
}
