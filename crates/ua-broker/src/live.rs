//! A call that this process has under way, and those who wait for it. It belongs to the broker: whoever goes away takes nothing of it along.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, watch};
use ua_core::{CallId, Timestamp};
use ua_dispatch::{Dispatched, Handed};
use ua_store::{CallRecord, QuestionRecord, QuestionStatus, RunStore as _};

use crate::broker::Broker;
use crate::road::Road;
use crate::session::InUse;
use crate::texts::Told;

/// How often a question is looked at while somebody waits for its answer.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Where it stands.
#[derive(Debug, Clone)]
pub(crate) enum State {
    /// It is on its way.
    UnderWay,
    /// A person is asked.
    Held(Box<QuestionRecord>),
    /// It is over: its record says how, or this does.
    Over(Option<Told>),
}

/// A call under way.
pub(crate) struct LiveCall {
    pub(crate) call: CallId,
    pub(crate) since: Timestamp,
    pub(crate) state: watch::Sender<State>,
    askers: AtomicUsize,
    left: Notify,
}

impl LiveCall {
    pub(crate) fn new(call: CallId, since: Timestamp) -> Arc<Self> {
        let (state, _) = watch::channel(State::UnderWay);
        Arc::new(Self { call, since, state, askers: AtomicUsize::new(0), left: Notify::new() })
    }

    pub(crate) fn askers(&self) -> usize {
        self.askers.load(Ordering::Acquire)
    }

    pub(crate) fn is_awaited(&self) -> bool {
        self.askers() > 0
    }

    pub(crate) fn is_held(&self) -> bool {
        matches!(*self.state.borrow(), State::Held(_))
    }

    /// Somebody waits for it from now on.
    pub(crate) fn ask(self: &Arc<Self>) -> Waiting {
        self.askers.fetch_add(1, Ordering::AcqRel);
        Waiting(self.clone())
    }
}

/// Somebody who waits. Gone when dropped, which changes nothing about the call.
pub(crate) struct Waiting(pub(crate) Arc<LiveCall>);

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.0.askers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.left.notify_waiters();
        }
    }
}

impl Broker {
    /// Takes a call to its receipt. Nobody who waits for it can end this, and nobody has to wait for it.
    pub(crate) async fn take_to_receipt(
        self: Arc<Self>,
        session: InUse,
        road: Arc<Road>,
        call: CallRecord,
        is_new: bool,
        live: Arc<LiveCall>,
    ) {
        let told = self.carried(&session, &road, &call, is_new, &live).await;
        road.upstream.drop_meta(&call.call_id);
        if let Some(told) = told {
            self.live().remove(&call.call_id);
            live.state.send_replace(State::Over(told));
        }
    }

    /// What is told if its record does not say it; `None` when it waits for a person and nobody waits for it.
    async fn carried(
        &self,
        session: &InUse,
        road: &Road,
        call: &CallRecord,
        is_new: bool,
        live: &LiveCall,
    ) -> Option<Option<Told>> {
        let mut planned = if is_new { std::slice::from_ref(call) } else { &[] };
        let mut is_first = true;
        loop {
            let barrier = session.barrier.clone();
            let passes = if call.policy.class.has_effect() {
                Passes::Alone(barrier.write_owned().await)
            } else {
                Passes::Beside(barrier.read_owned().await)
            };
            // Whoever asked may have gone while it waited for its turn: then it is not begun, and is there for whoever asks for it again.
            if std::mem::take(&mut is_first) && self.is_let_go(session, call, live).await {
                session.flush().await;
                return None;
            }
            let handed = Handed { planned: std::mem::take(&mut planned), is_last: false };
            let ids = std::slice::from_ref(&call.call_id);
            let dispatched = Box::pin(road.dispatcher.dispatch_group(ids, handed, &self.stop)).await;
            drop(passes);
            let why = match dispatched.map(|mut all| all.pop()) {
                Ok(Some(Dispatched::Settled(_))) => return Some(None),
                Ok(Some(Dispatched::Held(question))) => {
                    live.state.send_replace(State::Held(question.clone()));
                    if !self.answered(session, call, &question, live).await {
                        return None;
                    }
                    live.state.send_replace(State::UnderWay);
                    continue;
                }
                Ok(Some(Dispatched::Parked { detail, .. })) => detail,
                Ok(Some(Dispatched::Stopped) | None) => "the gateway is stopping; ask again in a moment".to_owned(),
                Err(error) => chain(&error),
            };
            return Some(Some(Told::Broken { why }));
        }
    }

    /// Lets a call go for which nobody waits. Nobody joins between this look and its end.
    async fn is_let_go(&self, session: &InUse, call: &CallRecord, live: &LiveCall) -> bool {
        if live.is_awaited() {
            return false;
        }
        let project = self.project(&session.record.project);
        let _quiet = project.lock().await;
        let is_left = !live.is_awaited();
        if is_left {
            self.live().remove(&call.call_id);
        }
        is_left
    }

    /// Waits until a question is answered. `false` when nobody waits for it any more: then the call is let go, and whoever asks next takes it up.
    async fn answered(&self, session: &InUse, call: &CallRecord, question: &QuestionRecord, live: &LiveCall) -> bool {
        loop {
            let left = live.left.notified();
            let stored = session.outbox.question(&question.question_id).await;
            if stored.is_ok_and(|stored| stored.status != QuestionStatus::Open) {
                return true;
            }
            if self.is_let_go(session, call, live).await {
                return false;
            }
            tokio::select! {
                () = self.env.clock.sleep(LOOK_EVERY) => {}
                () = left => {}
            }
        }
    }
}

/// A call's turn at its tool server, until it is dropped.
enum Passes {
    Alone(#[expect(dead_code, reason = "held, not read")] OwnedRwLockWriteGuard<()>),
    Beside(#[expect(dead_code, reason = "held, not read")] OwnedRwLockReadGuard<()>),
}

/// An error and its causes on one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let words = inner.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = inner.source();
    }
    text
}
