//! A call that this process has under way, and those who wait for it. It belongs to the broker: whoever goes away takes nothing of it along.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::{Notify, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, oneshot, watch};
use ua_core::{ArgsHash, CallId, Env, RawReply, RunId, Timestamp};
use ua_dispatch::{Dispatched, Handed};
use ua_store::{CallRecord, QuestionRecord, QuestionStatus, RunStore as _};

use crate::broker::Broker;
use crate::road::Road;
use crate::session::InUse;
use crate::texts::Told;
use crate::upstream::lock;

/// How often a question is looked at while somebody waits for its answer.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long it is waited for what a tool asks for in the middle of a call.
const INPUT_PATIENCE: Duration = Duration::from_mins(10);

/// The calls under way, of all connections.
pub(crate) type LiveCalls = Arc<Mutex<HashMap<CallId, Arc<LiveCall>>>>;

/// Where it stands.
#[derive(Debug, Clone)]
pub(crate) enum State {
    /// It is on its way.
    UnderWay,
    /// A person is asked.
    Held(Box<QuestionRecord>),
    /// Its tool asks for something.
    Asks(Arc<Ask>),
    /// It is over.
    Over(Arc<Ended>),
}

/// How a call ended.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// What is told in the place of a result.
    pub(crate) told: Option<Told>,
    /// Its record, with the tool's own words, where these are what it ended with; else both are read.
    pub(crate) reply: Option<(Box<CallRecord>, RawReply)>,
}

/// Who waits for the answers to what a tool asks for; none when nobody answers.
type Answers = oneshot::Sender<Option<Map<String, Value>>>;

/// What a tool asks for before it has a result: requests by name. Whoever takes it answers it, once.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) requests: Map<String, Value>,
    is_taken: AtomicBool,
    reply: Mutex<Option<Answers>>,
}

impl Ask {
    /// Takes it, if nobody did.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Taken> {
        (!self.is_taken.swap(true, Ordering::AcqRel)).then(|| Taken(self.clone()))
    }

    /// Whether somebody answers it, or did.
    pub(crate) fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Acquire)
    }

    /// What is answered where nobody can be asked; `None` when a tool cannot go on without.
    pub(crate) fn declined(&self) -> Option<Map<String, Value>> {
        let answer = |(name, request): (&String, &Value)| {
            let answer = match request["method"].as_str().unwrap_or_default() {
                "elicitation/create" => json!({"action": "cancel"}),
                "roots/list" => json!({"roots": []}),
                _ => return None,
            };
            Some((name.clone(), answer))
        };
        self.requests.iter().map(answer).collect()
    }
}

/// Somebody answers it. Who goes away before says that nobody is there.
pub(crate) struct Taken(Arc<Ask>);

impl Taken {
    pub(crate) fn ask(&self) -> &Ask {
        &self.0
    }

    /// Answers it; `None` says that nobody can.
    pub(crate) fn answer(self, answers: Option<Map<String, Value>>) {
        self.say(answers);
    }

    fn say(&self, answers: Option<Map<String, Value>>) {
        let reply = lock(&self.0.reply).take();
        if let Some(reply) = reply {
            let _over = reply.send(answers);
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.say(self.0.declined());
    }
}

/// A call under way.
pub(crate) struct LiveCall {
    pub(crate) call: CallId,
    pub(crate) since: Timestamp,
    /// Whose tool server it goes to.
    pub(crate) holder: RunId,
    /// What it is, as whoever asks for the same again would have it.
    same: (String, ArgsHash),
    pub(crate) state: watch::Sender<State>,
    askers: AtomicUsize,
    left: Notify,
}

impl LiveCall {
    pub(crate) fn new(call: &CallRecord, since: Timestamp, holder: RunId) -> Arc<Self> {
        let (state, _) = watch::channel(State::UnderWay);
        let same = (call.name.raw.clone(), call.args_hash);
        let (call, askers, left) = (call.call_id.clone(), AtomicUsize::new(0), Notify::new());
        Arc::new(Self { call, since, holder, same, state, askers, left })
    }

    /// Whether it is a call of this tool with these arguments.
    pub(crate) fn is_same(&self, tool: &str, args_hash: &ArgsHash) -> bool {
        self.same.0 == tool && self.same.1 == *args_hash
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

    /// Asks those who wait for what its tool asks for. Where nobody answers, people are said to be away.
    pub(crate) async fn ask_for(&self, requests: Map<String, Value>, env: &Env) -> Option<Map<String, Value>> {
        let (reply, answer) = oneshot::channel();
        let ask = Ask { requests, is_taken: AtomicBool::new(false), reply: Mutex::new(Some(reply)) };
        let ask = Arc::new(ask);
        self.state.send_replace(State::Asks(ask.clone()));
        let answers = tokio::select! {
            answers = answer => answers.unwrap_or_else(|_| ask.declined()),
            () = env.clock.sleep(INPUT_PATIENCE) => ask.declined(),
        };
        self.state.send_replace(State::UnderWay);
        answers
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
        let ended = self.carried(&session, &road, &call, is_new, &live).await;
        road.upstream.drop_meta(&call.call_id);
        let reply = road.upstream.take_reply(&call.call_id);
        if let Some((told, record)) = ended {
            // The tool's own words are what it ended with, if nobody else said what became of it.
            let is_own = |record: &CallRecord| record.resolution.is_none() && record.deduplicated_from.is_none();
            let reply = record.filter(|record| is_own(record)).zip(reply);
            self.live().remove(&call.call_id);
            live.state.send_replace(State::Over(Arc::new(Ended { told, reply })));
        }
    }

    /// How it ended: what is told if its record does not say it, and the record. `None` when it waits for a person and nobody waits for it.
    async fn carried(
        &self,
        session: &InUse,
        road: &Road,
        call: &CallRecord,
        is_new: bool,
        live: &LiveCall,
    ) -> Option<(Option<Told>, Option<Box<CallRecord>>)> {
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
                return None;
            }
            // What a read brought is written with what comes next: it is made again for whoever asks again.
            let is_last = !call.policy.class.has_effect();
            let handed = Handed { planned: std::mem::take(&mut planned), is_last };
            let ids = std::slice::from_ref(&call.call_id);
            let dispatched = Box::pin(road.dispatcher.dispatch_group(ids, handed, &self.stop)).await;
            drop(passes);
            if is_last && session.outbox.holds() {
                session.soon();
            }
            let why = match dispatched.map(|mut all| all.pop()) {
                Ok(Some(Dispatched::Settled(record))) => return Some((None, Some(record))),
                Ok(Some(Dispatched::Held(question))) => {
                    drop(road.upstream.take_reply(&call.call_id));
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
            return Some((Some(Told::Broken { why }), None));
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
            // Whoever asks for it next finds it among those under way, or written.
            session.flush().await;
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
