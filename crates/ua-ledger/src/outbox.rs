//! A run's store as its owner sees it: what is written together leaves together, in order.
//!
//! A change may wait for the next write of its owner, so that a reply and the first start that it asks for, or an answer and the start of
//! the next call or the end of the turn, are one transaction. Whatever might look at the rows, or takes time, sends first what waits; so nobody sees rows
//! without it, and nothing waits but while this process computes. What comes next is *provided* behind it: when it is refused, what waited
//! is committed all the same.
//!
//! What waits is in nobody's hands but this process's. So it is sent again while the database is busy, or has no room for an answer, as long as
//! the [`Patience`] and the lease last, under its number: a batch whose answer was lost is known when it is sent again. An answer that is put off or refused is kept beside
//! the database meanwhile ([`LateReplies`]).
//!
//! Every batch of the owner has a number, so that a database which lost some of them is noticed at the next one: a server that crashes loses
//! what was relaxed while the owner lives and knows more than it. One whose answer was lost, and that does not wait here, may still arrive:
//! its number is taken from it before anything else is written.
//! Proved by: this file's tests, `crash_anywhere`, the simulation.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use tokio::sync::{Mutex, MutexGuard};
use ua_core::{BlobRef, CallId, CallStatus, IdempotencyKey, RunId, Scope, Timestamp};
use ua_store::{
    Around, Author, Batch, Blob, CallQuery, CallRecord, CallTrail, CallsOf, Change, Committed, Done, Durability,
    Forgotten, GatewayOf, GatewayRecords, LateReply, LedgerStore as _, Lost, MessageRecord, PastStore, QuestionRecord,
    QuestionsOf, RunHead, RunLease, RunQuery, RunRecord, RunRecords, RunsOf, SettleAttempt, StartAttempt, Store,
    StoreError, TrailOf, Turns,
};

use crate::late::{LateReplies, NoLateReplies, late_reply, size_of_answer, would_be_missed};
use crate::patience::{NoPatience, Patience, Tries, again, again_with_an_answer};

/// The store of the run that a lease is for.
pub struct Outbox {
    store: Arc<dyn Store>,
    by: Author,
    patience: Arc<dyn Patience>,
    late: Arc<dyn LateReplies>,
    /// Whether its owner knows nothing that is not stored.
    reads_anew: bool,
    queue: Mutex<Queue>,
    /// How many changes wait.
    holds: AtomicUsize,
    /// Answers that are kept beside the database.
    kept: std::sync::Mutex<BTreeSet<(CallId, u32)>>,
    /// When the newest attempts with an effect were sent.
    sent_at: std::sync::Mutex<BTreeMap<CallId, (u32, Timestamp)>>,
}

/// Of so many calls it is known when they were sent; more are not under way at once.
const MOST_SENT: usize = 1_000;

/// So many bytes of answers take no longer to write than a small one.
const AT_A_TIME: usize = 512 * 1024;

/// What is done when a change is known to be committed.
pub type Stored = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    /// What is not known to be committed, in order.
    waiting: Vec<Change>,
    /// What is done when each of these is.
    stored: Vec<Option<Stored>>,
    /// What whoever put it there is doing, in words.
    doing: &'static str,
    /// How many of these went out under the number that is next, and may be committed: that batch is repeated as it was.
    tried: usize,
    count: Count,
    /// Whether that batch went out before.
    is_out: bool,
    /// Whether the next number may be that of a batch whose answer was lost, and that does not wait here.
    is_unsure: bool,
}

/// How far what an owner wrote has come.
#[derive(Default, Clone, Copy)]
struct Count {
    /// How many batches of this outbox are committed.
    sent: u64,
    /// The number of the last one of these that is durable.
    synced: u64,
}

impl Count {
    /// One more is committed.
    fn one_more(&mut self, durability: Durability) {
        self.sent += 1;
        if durability == Durability::Synced {
            self.synced = self.sent;
        }
    }
}

impl Queue {
    /// What goes out next under one number stays what it is from now on.
    fn next_is_all(&mut self) {
        if self.tried == 0 {
            self.tried = self.waiting.len();
        }
    }

    /// What goes out next under one number. It stays here until it is known to be committed.
    fn next(&self) -> impl Iterator<Item = &Change> {
        self.waiting.iter().take(self.tried)
    }
}

impl Outbox {
    /// The store of the run of `lease`, which was just taken. One for each time it is.
    pub fn new(store: Arc<dyn Store>, lease: RunLease) -> Self {
        Self {
            store,
            by: Author::Owner(lease),
            patience: Arc::new(NoPatience),
            late: Arc::new(NoLateReplies),
            reads_anew: false,
            kept: std::sync::Mutex::default(),
            sent_at: std::sync::Mutex::default(),
            queue: Mutex::default(),
            holds: AtomicUsize::new(0),
        }
    }

    /// The same, whose waiting changes are sent again while the database is busy.
    #[must_use]
    pub fn with_patience(self, patience: Arc<dyn Patience>) -> Self {
        Self { patience, ..self }
    }

    /// The same, whose answers are kept there while the database does not take them.
    #[must_use]
    pub fn with_late_replies(self, late: Arc<dyn LateReplies>) -> Self {
        Self { late, ..self }
    }

    /// The same, of an owner that reads before each decision: what a server lost that crashed is as if it had never been, and the owner continues
    /// behind it. Any other owner gets [`StoreError::TailLost`], and takes the run again.
    #[must_use]
    pub fn of_one_that_reads_anew(self) -> Self {
        Self { reads_anew: true, ..self }
    }

    /// Where answers are kept that the database did not take.
    pub(crate) fn late(&self) -> &dyn LateReplies {
        self.late.as_ref()
    }

    /// Answers about a call that the database did not take.
    pub(crate) fn late_replies(&self, call: &CallId) -> Vec<LateReply> {
        self.late.about(call)
    }

    /// Keeps an answer beside the database, which put it off or refused it. Once, if that can be done; else it is tried with each write.
    pub async fn keep_beside(&self, settle: &SettleAttempt) {
        let run = match &self.by {
            Author::Owner(lease) => &lease.run_id,
            Author::Command => return,
        };
        let place = (settle.call_id.clone(), settle.attempt);
        let newest = self.sent_at.lock().unwrap_or_else(PoisonError::into_inner).get(&settle.call_id).copied();
        let sent_at = newest.filter(|(attempt, _)| *attempt == settle.attempt).map(|(_, at)| at);
        let Some(late) = late_reply(run, settle, sent_at) else { return };
        if !self.is_kept_beside(&place.0, place.1) && self.late.keep(&late).await.is_ok() {
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).insert(place);
        }
    }

    /// Whether the answer to an attempt is kept beside the database: whoever takes the run next finds it there.
    pub fn is_kept_beside(&self, call: &CallId, attempt: u32) -> bool {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.contains(&(call.clone(), attempt))
    }

    /// Whether an answer that the database does not take is in nobody's hands but this process's.
    pub(crate) fn is_alone(&self, settle: &SettleAttempt) -> bool {
        would_be_missed(settle) && !self.is_kept_beside(&settle.call_id, settle.attempt)
    }

    /// The same for each of several answers.
    async fn keep_all_beside(&self, answers: &[SettleAttempt]) {
        for settle in answers {
            self.keep_beside(settle).await;
        }
    }

    /// Lets a change wait for the next write. `doing` says, in words, what is done with it.
    pub async fn hold(&self, doing: &'static str, change: Change) {
        self.put(doing, change, None).await;
    }

    /// The same; `stored` is called when the change is committed, and never when it is refused.
    pub async fn hold_until(&self, doing: &'static str, change: Change, stored: Stored) {
        self.put(doing, change, Some(stored)).await;
    }

    async fn put(&self, doing: &'static str, change: Change, stored: Option<Stored>) {
        let mut queue = self.queue.lock().await;
        queue.waiting.push(change);
        queue.stored.push(stored);
        queue.doing = doing;
        self.holds.store(queue.waiting.len(), Ordering::Release);
    }

    /// Waits for a write. When that takes so long that this process may be ended meanwhile, the answers among `changes`, which it stores, are
    /// kept beside the database. What is large takes longer although nothing is in the way.
    pub(crate) async fn written<'c, T>(
        &self,
        write: impl Future<Output = T>,
        changes: impl IntoIterator<Item = &'c SettleAttempt>,
    ) -> T {
        let changes: Vec<&SettleAttempt> = changes.into_iter().collect();
        let bytes: usize = changes.iter().map(|settle| size_of_answer(settle)).sum();
        let too_long = async {
            for _ in 0..=bytes / AT_A_TIME {
                self.patience.too_long().await;
            }
        };
        let mut write = pin!(write);
        tokio::select! {
            biased;
            done = &mut write => return done,
            () = too_long => {}
        }
        let kept = async {
            for settle in changes {
                self.keep_beside(settle).await;
            }
        };
        // What is stored meanwhile needs no place beside the database.
        tokio::select! {
            biased;
            done = &mut write => return done,
            () = kept => {}
        }
        write.await
    }

    /// Whether a change waits.
    pub fn holds(&self) -> bool {
        self.waiting() > 0
    }

    /// How many changes wait.
    pub fn waiting(&self) -> usize {
        self.holds.load(Ordering::Acquire)
    }

    /// Sends what waits.
    ///
    /// # Errors
    /// What refused it, or what is wrong with the database.
    pub async fn flush(&self) -> Result<(), StoreError> {
        if !self.holds() {
            return Ok(());
        }
        let mut queue = self.queue.lock().await;
        while !queue.waiting.is_empty() {
            self.send_waiting(&mut queue).await?;
        }
        Ok(())
    }

    /// Sends what waits; of a batch that went out before and may be committed, what it was.
    async fn send_waiting(&self, queue: &mut MutexGuard<'_, Queue>) -> Result<(), StoreError> {
        self.take_number(queue).await?;
        let (doing, mut tries) = (queue.doing, Tries::default());
        queue.next_is_all();
        loop {
            let batch = Batch::of(queue.next().cloned().collect::<Vec<_>>());
            let (was_out, durability) = (std::mem::replace(&mut queue.is_out, true), batch.durability());
            let mut count = queue.count;
            let committed = self.written(self.commit_next(&mut count, batch), answers(queue.next())).await;
            queue.count = count;
            match committed {
                Ok(_) => {
                    self.sent(queue, durability);
                    return Ok(());
                }
                Err(StoreError::Repeated { .. }) if was_out => {
                    self.sent(queue, durability);
                    return Ok(());
                }
                Err(error) => {
                    let unstored: Vec<SettleAttempt> = answers(queue.next()).cloned().collect();
                    self.keep_all_beside(&unstored).await;
                    let has_answer = !unstored.is_empty();
                    tries.is_alone = unstored.iter().any(|settle| self.is_alone(settle));
                    if !self.is_sent_again(has_answer, doing, &error, &mut tries).await {
                        return Err(self.given_up(queue, error));
                    }
                }
            }
        }
    }

    /// Waits until what goes out next is sent again; false when it is given up. An answer waits for room, too; what asks for something to be begun
    /// does not.
    async fn is_sent_again(&self, has_answer: bool, doing: &str, error: &StoreError, tries: &mut Tries) -> bool {
        if has_answer {
            again_with_an_answer(self.patience.as_ref(), doing, error, tries).await
        } else {
            again(self.patience.as_ref(), doing, error, tries).await
        }
    }

    /// Commits what has the next number. What is missing when it does not fit was there when it was confirmed; whether it had to be is known here.
    async fn commit_next(&self, count: &mut Count, batch: Batch) -> Result<Committed, StoreError> {
        self.note_sent(&batch);
        let again = self.reads_anew.then(|| batch.clone());
        let done = self.store.commit(&self.by, batch.numbered(count.sent + 1)).await;
        let (run, written, confirmed) = match done {
            Err(StoreError::WentBack { run, written, confirmed }) if written >= count.synced => {
                (run, written, confirmed)
            }
            done => return done,
        };
        let Some(again) = again else { return Err(StoreError::TailLost { run, written, confirmed }) };
        tracing::warn!(%run, written, confirmed, "the database server crashed and lost the last writes of a run");
        count.sent = written;
        self.store.commit(&self.by, again.numbered(count.sent + 1)).await
    }

    /// Notes when attempts were sent whose answers may have to be kept beside the database: by that they are known there.
    fn note_sent(&self, batch: &Batch) {
        for change in batch.changes() {
            let Change::StartAttempt(start) = change else { continue };
            if start.durability != Durability::Synced {
                continue;
            }
            let mut sent_at = self.sent_at.lock().unwrap_or_else(PoisonError::into_inner);
            // Of each call the newest is enough.
            sent_at.insert(start.call_id.clone(), (start.attempt, start.at));
            if sent_at.len() > MOST_SENT {
                sent_at.pop_first();
            }
        }
    }

    /// Takes the number of a batch whose answer was lost: then it is committed, or never will be.
    async fn take_number(&self, queue: &mut MutexGuard<'_, Queue>) -> Result<(), StoreError> {
        if !queue.is_unsure {
            return Ok(());
        }
        match self.commit_next(&mut queue.count, Batch::default()).await {
            Ok(_) | Err(StoreError::Repeated { .. }) => {
                queue.is_unsure = false;
                queue.count.one_more(Durability::Relaxed);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn sent(&self, queue: &mut MutexGuard<'_, Queue>, durability: Durability) {
        let tried = std::mem::take(&mut queue.tried);
        queue.waiting.drain(..tried);
        for stored in queue.stored.drain(..tried).flatten() {
            stored();
        }
        queue.is_out = false;
        queue.count.one_more(durability);
        self.holds.store(queue.waiting.len(), Ordering::Release);
    }

    /// What the store refused is not sent again; what it may have taken, or may take later, stays.
    fn given_up(&self, queue: &mut MutexGuard<'_, Queue>, error: StoreError) -> StoreError {
        if error.is_refusal() {
            queue.waiting.clear();
            queue.stored.clear();
            queue.tried = 0;
            queue.is_out = false;
            self.holds.store(0, Ordering::Release);
        }
        error
    }

    /// Sends a batch of the owner, with what waits before it.
    async fn send(&self, batch: Batch) -> Result<Committed, StoreError> {
        let mut queue = self.queue.lock().await;
        if queue.tried > 0 {
            self.send_waiting(&mut queue).await?;
        }
        if queue.waiting.is_empty() {
            return self.send_alone(&mut queue, batch).await;
        }
        if !batch.provided.is_empty() {
            while !queue.waiting.is_empty() {
                self.send_waiting(&mut queue).await?;
            }
            return self.send_alone(&mut queue, batch).await;
        }
        self.send_behind(&mut queue, batch.stands).await
    }

    /// Sends a batch; nothing waits.
    async fn send_alone(&self, queue: &mut MutexGuard<'_, Queue>, batch: Batch) -> Result<Committed, StoreError> {
        self.take_number(queue).await?;
        let durability = batch.durability();
        // Also when nobody waits for the answer any more: whoever gives up in the middle does not know either.
        queue.is_unsure = true;
        let committed = self.commit_next(&mut queue.count, batch).await;
        match &committed {
            Ok(_) => {
                queue.count.one_more(durability);
                queue.is_unsure = false;
            }
            Err(error) => queue.is_unsure = !error.is_refusal(),
        }
        committed
    }

    /// The call whose answer waits to be written, if one does.
    pub(crate) async fn waiting_answer(&self) -> Option<CallId> {
        answers(self.queue.lock().await.waiting.iter()).next().map(|settle| settle.call_id.clone())
    }

    /// Whether these changes begin something that is not to be begun any more.
    fn is_not_to_begin(&self, changes: &[Change]) -> bool {
        matches!(changes, [Change::StartAttempt(_)]) && self.patience.begins_nothing()
    }

    /// Sends what waits, and `changes` behind it. A start is left out once a stop is asked for, and otherwise has the time of the try
    /// with which it went out: what waited for a database did not leave before.
    async fn send_behind(
        &self,
        queue: &mut MutexGuard<'_, Queue>,
        mut changes: Vec<Change>,
    ) -> Result<Committed, StoreError> {
        self.take_number(queue).await?;
        let (doing, mut tries) = (queue.doing, Tries::default());
        queue.next_is_all();
        loop {
            let is_left_out = self.is_not_to_begin(&changes);
            let behind = if is_left_out { Vec::new() } else { changes.clone() };
            let batch = Batch::of(queue.next().cloned().collect::<Vec<_>>()).provided(behind);
            let (was_out, durability) = (std::mem::replace(&mut queue.is_out, true), batch.durability());
            let mut count = queue.count;
            let committed = self.written(self.commit_next(&mut count, batch), answers(queue.next())).await;
            queue.count = count;
            match committed {
                Ok(Committed { provided, words, .. }) => {
                    self.sent(queue, durability);
                    if is_left_out {
                        return Err(StoreError::NotBegun);
                    }
                    return Ok(Committed { stands: provided?, provided: Ok(Vec::new()), words });
                }
                Err(StoreError::Repeated { .. }) if was_out => {
                    self.sent(queue, durability);
                    break;
                }
                Err(error) => {
                    let unstored: Vec<SettleAttempt> = answers(queue.next()).cloned().collect();
                    self.keep_all_beside(&unstored).await;
                    let has_answer = !unstored.is_empty();
                    tries.is_alone = unstored.iter().any(|settle| self.is_alone(settle));
                    if !self.is_sent_again(has_answer, doing, &error, &mut tries).await {
                        return Err(self.given_up(queue, error));
                    }
                    if let (Some(now), [Change::StartAttempt(start)]) = (self.patience.begins_at(), &mut changes[..]) {
                        start.at = now;
                    }
                }
            }
        }
        // What was provided with it may have been left out: a start is looked for, and anything else changes nothing the second time.
        if let [Change::StartAttempt(start)] = changes.as_slice()
            && let Some(call) = self.started(start).await?
        {
            return Ok(Committed { stands: vec![Done::Call(call)], provided: Ok(Vec::new()), words: 0 });
        }
        if self.is_not_to_begin(&changes) {
            return Err(StoreError::NotBegun);
        }
        self.send_alone(queue, Batch::of(changes)).await
    }

    /// The call, if the attempt is running. Only its owner starts one.
    async fn started(&self, start: &StartAttempt) -> Result<Option<CallRecord>, StoreError> {
        let call = self.store.call(&start.call_id).await?;
        let started = Some(call).filter(|call| call.status == CallStatus::Running && call.attempt == start.attempt);
        if let Some(call) = &started {
            // By the time of the try that was written it is known there.
            let mut sent_at = self.sent_at.lock().unwrap_or_else(PoisonError::into_inner);
            sent_at.entry(call.call_id.clone()).and_modify(|sent| sent.1 = call.updated_at);
        }
        Ok(started)
    }
}

/// The answers among changes.
fn answers<'c>(changes: impl Iterator<Item = &'c Change>) -> impl Iterator<Item = &'c SettleAttempt> {
    changes.filter_map(|change| {
        let Change::SettleAttempt(settle) = change else { return None };
        Some(settle)
    })
}

#[async_trait]
impl Store for Outbox {
    async fn commit(&self, by: &Author, batch: Batch) -> Result<Committed, StoreError> {
        if *by == self.by && batch.number.is_none() && batch.changes().next().is_some() {
            return self.send(batch).await;
        }
        self.flush().await?;
        self.store.commit(by, batch).await
    }

    async fn run(&self, run: &RunId) -> Result<RunRecord, StoreError> {
        self.flush().await?;
        self.store.run(run).await
    }

    async fn runs_of(&self, of: RunsOf) -> Result<Vec<RunRecord>, StoreError> {
        self.flush().await?;
        self.store.runs_of(of).await
    }

    async fn find_runs(&self, query: &RunQuery) -> Result<Vec<RunHead>, StoreError> {
        self.flush().await?;
        self.store.find_runs(query).await
    }

    async fn find_calls(&self, query: &CallQuery) -> Result<Vec<CallRecord>, StoreError> {
        self.flush().await?;
        self.store.find_calls(query).await
    }

    async fn load_of(&self, run: &RunId, turns: Turns) -> Result<RunRecords, StoreError> {
        self.flush().await?;
        self.store.load_of(run, turns).await
    }

    async fn history(&self, run: &RunId) -> Result<Vec<MessageRecord>, StoreError> {
        self.flush().await?;
        self.store.history(run).await
    }

    async fn questions_of(&self, of: QuestionsOf) -> Result<Vec<QuestionRecord>, StoreError> {
        self.flush().await?;
        self.store.questions_of(of).await
    }

    async fn calls_of(&self, of: CallsOf) -> Result<Vec<CallRecord>, StoreError> {
        self.flush().await?;
        self.store.calls_of(of).await
    }

    async fn database_id(&self) -> Result<String, StoreError> {
        self.store.database_id().await
    }

    async fn around(
        &self,
        call: &CallId,
        scope: Option<&Scope>,
        key: Option<&IdempotencyKey>,
        most_effects: u32,
    ) -> Result<Around, StoreError> {
        self.flush().await?;
        self.store.around(call, scope, key, most_effects).await
    }

    async fn trail(&self, call: &CallId, of: TrailOf) -> Result<CallTrail, StoreError> {
        self.flush().await?;
        self.store.trail(call, of).await
    }

    async fn gateway_of(&self, of: GatewayOf) -> Result<GatewayRecords, StoreError> {
        self.flush().await?;
        self.store.gateway_of(of).await
    }

    async fn blob(&self, blob: &BlobRef) -> Result<Blob, StoreError> {
        self.flush().await?;
        self.store.blob(blob).await
    }
}

#[async_trait]
impl PastStore for Outbox {
    async fn forgotten(&self, run: &RunId) -> Result<Vec<Forgotten>, StoreError> {
        self.flush().await?;
        self.store.forgotten(run).await
    }

    async fn lost(&self, run: &RunId) -> Result<Vec<Lost>, StoreError> {
        self.flush().await?;
        self.store.lost(run).await
    }

    async fn accept_forgotten(
        &self,
        run: &RunId,
        forgotten: &[Forgotten],
        by: Option<&str>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.flush().await?;
        self.store.accept_forgotten(run, forgotten, by, at).await
    }

    fn unnoted(&self) -> Option<String> {
        self.store.unnoted()
    }
}
