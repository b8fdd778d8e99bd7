//! Answers of the store come in rounds: what lives ask for is done at once, by whichever threads the store has, and all of them learn it when
//! the stage says that a round is over, in the order in which they asked. So it is never the speed of a thread that decides which of two calls
//! goes first, and both stores play the same.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use ua_core::{BlobRef, CallId, IdempotencyKey, RunId, Scope, Timestamp};
use ua_store::{
    Around, Author, Batch, Blob, CallQuery, CallRecord, CallTrail, CallsOf, Committed, Forgotten, GatewayOf,
    GatewayRecords, Lost, MessageRecord, PastStore, QuestionRecord, QuestionsOf, RunHead, RunQuery, RunRecord,
    RunRecords, RunsOf, Store, StoreError, TrailOf, Turns,
};

use super::locked;
use super::mirror::Mirror;

/// How many rounds are over, and who waits for the next end of one.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    state: Mutex<(u64, Vec<Waker>)>,
}

impl Rounds {
    /// A round is over: everything that was asked for is done.
    pub(super) fn end(&self) {
        let mut state = locked(&self.state);
        state.0 += 1;
        let waiting = std::mem::take(&mut state.1);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    fn answer<'f, T>(self: &Arc<Self>, asked: impl Future<Output = T> + Send + 'f) -> Answer<'f, T> {
        Answer { rounds: Arc::clone(self), asked: Box::pin(asked), asked_in: None, told: None }
    }
}

/// What was asked for in one round and is learnt at its end, or at the end of a later one.
struct Answer<'f, T> {
    rounds: Arc<Rounds>,
    asked: Pin<Box<dyn Future<Output = T> + Send + 'f>>,
    asked_in: Option<u64>,
    told: Option<T>,
}

impl<T: Unpin> Future for Answer<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        if this.told.is_none() {
            // Nobody is woken in the middle of a round.
            let asked = this.asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            this.told = match asked {
                Poll::Ready(answer) => Some(answer),
                Poll::Pending => None,
            };
        }
        let mut state = locked(&this.rounds.state);
        let asked_in = *this.asked_in.get_or_insert(state.0);
        match this.told.take() {
            Some(answer) if state.0 > asked_in => Poll::Ready(answer),
            early => {
                this.told = early;
                state.1.push(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// A store as a simulation has it, with what lies beside it.
pub(super) struct InRounds {
    pub(super) store: Arc<dyn Store>,
    /// For both stores, and with its broken rules.
    pub(super) beside: Arc<Mirror>,
    /// Lives learn at the end of a round what they asked for; people and the stage, at once.
    pub(super) rounds: Option<Arc<Rounds>>,
}

impl InRounds {
    async fn answer<'f, T: Unpin>(&self, asked: impl Future<Output = T> + Send + 'f) -> T {
        match &self.rounds {
            Some(rounds) => rounds.answer(asked).await,
            None => asked.await,
        }
    }
}

#[async_trait]
impl Store for InRounds {
    async fn commit(&self, by: &Author, batch: Batch) -> Result<Committed, StoreError> {
        self.answer(self.store.commit(by, batch)).await
    }
    async fn run(&self, run: &RunId) -> Result<RunRecord, StoreError> {
        self.answer(self.store.run(run)).await
    }
    async fn runs_of(&self, of: RunsOf) -> Result<Vec<RunRecord>, StoreError> {
        self.answer(self.store.runs_of(of)).await
    }
    async fn find_runs(&self, query: &RunQuery) -> Result<Vec<RunHead>, StoreError> {
        self.answer(self.store.find_runs(query)).await
    }
    async fn find_calls(&self, query: &CallQuery) -> Result<Vec<CallRecord>, StoreError> {
        self.answer(self.store.find_calls(query)).await
    }
    async fn load_of(&self, run: &RunId, turns: Turns) -> Result<RunRecords, StoreError> {
        self.answer(self.store.load_of(run, turns)).await
    }
    async fn history(&self, run: &RunId) -> Result<Vec<MessageRecord>, StoreError> {
        self.answer(self.store.history(run)).await
    }
    async fn questions_of(&self, of: QuestionsOf) -> Result<Vec<QuestionRecord>, StoreError> {
        self.answer(self.store.questions_of(of)).await
    }
    async fn calls_of(&self, of: CallsOf) -> Result<Vec<CallRecord>, StoreError> {
        self.answer(self.store.calls_of(of)).await
    }
    async fn database_id(&self) -> Result<String, StoreError> {
        Ok(super::DATABASE_ID.to_owned())
    }

    async fn around(
        &self,
        call: &CallId,
        scope: Option<&Scope>,
        key: Option<&IdempotencyKey>,
        most_effects: u32,
    ) -> Result<Around, StoreError> {
        self.answer(self.store.around(call, scope, key, most_effects)).await
    }
    async fn trail(&self, call: &CallId, of: TrailOf) -> Result<CallTrail, StoreError> {
        self.answer(self.store.trail(call, of)).await
    }
    async fn gateway_of(&self, of: GatewayOf) -> Result<GatewayRecords, StoreError> {
        self.answer(self.store.gateway_of(of)).await
    }
    async fn blob(&self, blob: &BlobRef) -> Result<Blob, StoreError> {
        self.answer(self.store.blob(blob)).await
    }
}

#[async_trait]
impl PastStore for InRounds {
    async fn forgotten(&self, run: &RunId) -> Result<Vec<Forgotten>, StoreError> {
        // Most databases never went back, and nobody waits to learn that.
        if self.beside.is_empty() {
            return Ok(Vec::new());
        }
        self.answer(self.beside.forgotten(self.store.as_ref(), run)).await
    }

    async fn lost(&self, run: &RunId) -> Result<Vec<Lost>, StoreError> {
        if self.beside.has_lost_nothing() {
            return Ok(Vec::new());
        }
        self.answer(self.beside.lost(self.store.as_ref(), run)).await
    }

    async fn accept_forgotten(
        &self,
        run: &RunId,
        _forgotten: &[Forgotten],
        _by: Option<&str>,
        _at: Timestamp,
    ) -> Result<(), StoreError> {
        self.beside.accept(&self.store.run(run).await?.root_run_id);
        Ok(())
    }

    fn unnoted(&self) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Named(&'static str, Arc<Mutex<Vec<&'static str>>>);

    impl std::task::Wake for Named {
        fn wake(self: Arc<Self>) {
            locked(&self.1).push(self.0);
        }
    }

    #[test]
    fn who_asked_first_learns_first_and_nobody_before_the_round_is_over() {
        let (rounds, woken) = (Arc::new(Rounds::default()), Arc::new(Mutex::new(Vec::new())));
        let waker = |name| Waker::from(Arc::new(Named(name, Arc::clone(&woken))));
        let (slow, quick) = (waker("slow"), waker("quick"));
        // As a thread that answers between two polls.
        let (answers, answered) = std::sync::mpsc::channel();
        let mut first =
            rounds.answer(std::future::poll_fn(move |_| answered.try_recv().map_or(Poll::Pending, Poll::Ready)));
        let mut second = rounds.answer(std::future::ready(2));
        let poll = |one: &mut Answer<'_, i32>, waker: &Waker| Pin::new(one).poll(&mut Context::from_waker(waker));
        assert_eq!(poll(&mut first, &slow), Poll::Pending);
        assert_eq!(poll(&mut second, &quick), Poll::Pending, "it is known, and told at the end of the round");
        answers.send(1).unwrap();
        assert!(locked(&woken).is_empty());
        rounds.end();
        assert_eq!(*locked(&woken), ["slow", "quick"]);
        assert_eq!(poll(&mut first, &slow), Poll::Ready(1));
        assert_eq!(poll(&mut second, &quick), Poll::Ready(2));
    }
}
