//! A call that this process has under way, and those who wait for it. It belongs to the broker: whoever goes away takes nothing of it along.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::{Notify, oneshot, watch};
use ua_core::{ArgsHash, CallId, CallStatus, Env, QuestionId, RawReply, RunId, Timestamp};
use ua_dispatch::{DispatchError, Dispatched, Handed};
use ua_ledger::{LedgerError, interpret};
use ua_store::{
    AttemptEnd, AttemptRecord, CallRecord, Durability, LedgerStore as _, QuestionRecord, QuestionStatus, RunStore as _,
    SettleAttempt, StoreError,
};

use crate::broker::{Broken, Broker, Kept};
use crate::queue::{Place, Queue};
use crate::road::Road;
use crate::session::InUse;
use crate::texts::Told;
use crate::upstream::lock;

/// How often a question is looked at while somebody waits for its answer.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long it is waited for what a tool asks for in the middle of a call.
const INPUT_PATIENCE: Duration = Duration::from_mins(10);

/// How often a call is looked at again because the tools of its server changed while it was about to be sent.
const MOST_LOOKS: u32 = 3;

/// How often it is tried to store an answer that the database did not take.
const STORE_EVERY: Duration = Duration::from_secs(1);

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
    /// How many were told to come back with the answers, and did not yet.
    expected: AtomicUsize,
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

    /// Whether somebody was told to come back with the answers.
    fn is_expected(&self) -> bool {
        self.expected.load(Ordering::Acquire) > 0
    }

    /// What is answered where nobody can be asked; `None` when a tool cannot go on without.
    pub(crate) fn declined(&self) -> Option<Map<String, Value>> {
        let answer = |(name, request): (&String, &Value)| {
            Some((name.clone(), of_nobody(request["method"].as_str().unwrap_or_default())?))
        };
        self.requests.iter().map(answer).collect()
    }
}

/// What a request of a tool server is answered where nobody can be asked; `None` when there is no such answer.
pub(crate) fn of_nobody(method: &str) -> Option<Value> {
    match method {
        "elicitation/create" => Some(json!({"action": "cancel"})),
        "roots/list" => Some(json!({"roots": []})),
        "ping" => Some(json!({})),
        _ => None,
    }
}

/// That somebody was told to come back with the answers to what a call asks for, until they did or have gone.
pub(crate) struct ComesBack {
    live: Arc<LiveCall>,
    ask: Arc<Ask>,
}

impl std::fmt::Debug for ComesBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ComesBack").field(&self.live.call).field(&self.ask).finish()
    }
}

impl ComesBack {
    pub(crate) fn with(live: &Arc<LiveCall>, ask: &Arc<Ask>) -> Self {
        ask.expected.fetch_add(1, Ordering::AcqRel);
        Self { live: live.clone(), ask: ask.clone() }
    }

    pub(crate) fn call(&self) -> &CallId {
        &self.live.call
    }

    pub(crate) fn ask(&self) -> &Arc<Ask> {
        &self.ask
    }
}

impl Drop for ComesBack {
    fn drop(&mut self) {
        self.ask.expected.fetch_sub(1, Ordering::AcqRel);
        self.live.left.notify_waiters();
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

/// When a call was handed to its tool server, and as which attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) at: Timestamp,
    pub(crate) attempt: u32,
}

/// How far a call is that nobody knows the end of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reached {
    /// It waits for its turn, behind this tool's call; it is not begun before somebody waits for it.
    Queued { behind: Option<String> },
    /// It was begun; whether it has left is not known.
    Begun,
    /// It was handed to its tool server.
    Sent(Sent),
}

/// In which order the calls of a session reach their tool server: that in which they were told apart, which is that in which they were asked
/// for. Each is handed over before the next is; only an effect waits for the answer of the effect before it, and only while somebody waits for
/// that. So a call that is never answered holds up no read, and its cancel frees the effects behind it.
pub(crate) type Turns = Queue<Standing>;

/// A call's turn, until it is dropped.
pub(crate) type Turn = Place<Standing>;

/// A call that waits for its turn, or has it.
#[derive(Debug)]
pub(crate) struct Standing {
    call: CallId,
    tool: String,
    has_effect: bool,
    /// Whether it was handed to its tool server.
    is_sent: bool,
}

impl Standing {
    fn of(call: &CallRecord) -> Self {
        let (tool, has_effect) = (call.name.tool.clone(), call.policy.class.has_effect());
        Self { call: call.call_id.clone(), tool, has_effect, is_sent: false }
    }
}

impl Place<Standing> {
    /// Waits for its turn. A read waits for reads before it to be handed over, and for the effect whose turn it is: those behind that wait for
    /// an answer, and it goes past them.
    async fn comes(&self, has_effect: bool) {
        self.until(|before| may_go(before, has_effect)).await;
    }
}

fn may_go<'a>(mut before: impl Iterator<Item = &'a Standing>, has_effect: bool) -> bool {
    match before.next() {
        None => true,
        Some(first) => !has_effect && first.has_effect && first.is_sent && before.all(|one| one.has_effect),
    }
}

/// A call under way.
pub(crate) struct LiveCall {
    pub(crate) call: CallId,
    pub(crate) since: Timestamp,
    /// Whose tool server it goes to.
    pub(crate) holder: RunId,
    /// Its tool and tool server, for people.
    pub(crate) tool: String,
    pub(crate) server: String,
    /// What it is, as whoever asks for the same again would have it.
    same: (String, ArgsHash),
    pub(crate) state: watch::Sender<State>,
    /// The transport's own word, so that no error behind it is taken for one before it.
    sent: watch::Sender<Option<Sent>>,
    /// Whether its turn has come.
    has_begun: AtomicBool,
    turns: Arc<Turns>,
    askers: AtomicUsize,
    /// How many are there at all, whether or not there is a line on which to answer them.
    present: AtomicUsize,
    /// The connection of its tool server has gone.
    is_left_alone: AtomicBool,
    left: Notify,
}

impl LiveCall {
    /// It, and its turn behind all that were told apart before. `sent` says when and as what it was handed to its tool server before, by an
    /// earlier process or before a person was asked.
    pub(crate) fn new(
        call: &CallRecord,
        since: Timestamp,
        holder: RunId,
        sent: Option<Sent>,
        turns: &Arc<Turns>,
    ) -> (Arc<Self>, Turn) {
        let (state, _) = watch::channel(State::UnderWay);
        let same = (call.name.raw.clone(), call.args_hash);
        let live = Arc::new(Self {
            call: call.call_id.clone(),
            since,
            holder,
            tool: call.name.tool.clone(),
            server: call.name.server.clone(),
            same,
            state,
            sent: watch::Sender::new(sent),
            has_begun: AtomicBool::new(false),
            turns: turns.clone(),
            askers: AtomicUsize::new(0),
            present: AtomicUsize::new(0),
            is_left_alone: AtomicBool::new(false),
            left: Notify::new(),
        });
        (live, turns.place(Standing::of(call)))
    }

    /// It is handed to its tool server now. What was so before, for [`LiveCall::was_not_sent`].
    pub(crate) fn is_sent(&self, now: Sent) -> Option<Sent> {
        self.sent.send_replace(Some(now))
    }

    /// No byte of that left.
    pub(crate) fn was_not_sent(&self, before: Option<Sent>) {
        self.sent.send_replace(before);
    }

    /// When it was sent, if it was.
    pub(crate) fn sent(&self) -> Option<Sent> {
        *self.sent.borrow()
    }

    /// How far it is. Whoever asks has let go of it before, or it may be begun behind the answer.
    pub(crate) fn reached(&self) -> Reached {
        match self.sent() {
            Some(sent) => Reached::Sent(sent),
            None if self.has_begun.load(Ordering::SeqCst) => Reached::Begun,
            None => {
                let of_another = |first: &Standing| (first.call != self.call).then(|| first.tool.clone());
                Reached::Queued { behind: self.turns.first(of_another).flatten() }
            }
        }
    }

    /// Whether it waits for another call.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.reached(), Reached::Queued { behind: Some(_) })
    }

    /// Dispatches it in its turn: what comes behind it is let through as soon as order does not need it any more.
    /// Its turn is handed back where it has it still.
    async fn in_turn<T>(&self, dispatch: impl Future<Output = T>, turn: Turn, has_effect: bool) -> (T, Option<Turn>) {
        let mut dispatch = std::pin::pin!(dispatch);
        let mut turn = Some(turn);
        let mut sent = self.sent.subscribe();
        loop {
            let left = self.left.notified();
            let is_sent = sent.borrow_and_update().is_some();
            if is_sent && (!has_effect || !self.is_awaited()) {
                turn = None;
            }
            if let Some(turn) = turn.as_ref().filter(|_| is_sent) {
                turn.change(|own| own.is_sent = true);
            }
            tokio::select! {
                biased;
                ended = &mut dispatch => return (ended, turn),
                () = left, if turn.is_some() => {}
                _changed = sent.changed(), if turn.is_some() => {}
            }
        }
    }

    /// Whether it is a call of this tool with these arguments.
    pub(crate) fn is_same(&self, tool: &str, args_hash: &ArgsHash) -> bool {
        self.same.0 == tool && self.same.1 == *args_hash
    }

    pub(crate) fn askers(&self) -> usize {
        self.askers.load(Ordering::SeqCst)
    }

    pub(crate) fn is_awaited(&self) -> bool {
        self.askers() > 0
    }

    pub(crate) fn is_held(&self) -> bool {
        self.question().is_some()
    }

    /// What a person is asked about it now.
    pub(crate) fn question(&self) -> Option<QuestionId> {
        match &*self.state.borrow() {
            State::Held(question) => Some(question.question_id.clone()),
            State::UnderWay | State::Asks(_) | State::Over(_) => None,
        }
    }

    /// Asks those who wait for what its tool asks for. Where nobody answers, people are said to be away.
    pub(crate) async fn ask_for(&self, requests: Map<String, Value>, env: &Env) -> Option<Map<String, Value>> {
        let (reply, answer) = oneshot::channel();
        let (is_taken, expected) = (AtomicBool::new(false), AtomicUsize::new(0));
        let ask = Ask { requests, is_taken, expected, reply: Mutex::new(Some(reply)) };
        let ask = Arc::new(ask);
        self.state.send_replace(State::Asks(ask.clone()));
        let answers = tokio::select! {
            answers = answer => answers.unwrap_or_else(|_| ask.declined()),
            () = self.nobody_for(&ask) => ask.declined(),
            () = env.clock.sleep(INPUT_PATIENCE) => ask.declined(),
        };
        self.state.send_replace(State::UnderWay);
        answers
    }

    /// The client of its tool server has gone: what the tool asks for from now on is nobody's to answer, unless somebody else waits for it.
    pub(crate) fn leave_alone(&self) {
        self.is_left_alone.store(true, Ordering::SeqCst);
        self.left.notify_waiters();
    }

    /// Waits until nobody is there who could answer: its client has gone, nobody waits, and nobody was told to come back.
    async fn nobody_for(&self, ask: &Ask) {
        loop {
            let left = self.left.notified();
            let is_anybody = self.present.load(Ordering::Acquire) > 0 || ask.is_taken() || ask.is_expected();
            if !is_anybody && self.is_left_alone.load(Ordering::SeqCst) {
                return;
            }
            left.await;
        }
    }

    /// Somebody waits for it from now on.
    pub(crate) fn ask(self: &Arc<Self>) -> Waiting {
        self.present.fetch_add(1, Ordering::SeqCst);
        self.askers.fetch_add(1, Ordering::SeqCst);
        Waiting { call: self.clone(), listens: true }
    }

    fn one_less(&self) {
        if self.askers.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.left.notify_waiters();
        }
    }
}

/// Somebody who waits. Gone when dropped, which changes nothing about the call.
pub(crate) struct Waiting {
    call: Arc<LiveCall>,
    listens: bool,
}

impl Waiting {
    /// What is waited for.
    pub(crate) fn call(&self) -> &Arc<LiveCall> {
        &self.call
    }

    /// Counts as somebody who waits as long as there is a line on which to answer.
    pub(crate) fn listen(&mut self, listens: bool) {
        match (std::mem::replace(&mut self.listens, listens), listens) {
            (true, false) => self.call.one_less(),
            (false, true) => {
                self.call.askers.fetch_add(1, Ordering::SeqCst);
            }
            (true, true) | (false, false) => {}
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.listen(false);
        if self.call.present.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.call.left.notify_waiters();
        }
    }
}

/// Why a call that was taken up has no end. Whether it was sent is the transport's to say.
enum NotOver {
    /// A person ended its session.
    Ended,
    /// Something could not be done.
    Failed(String),
}

impl Broker {
    /// When a call was handed to its tool server last, as its attempts have it: one that never left does not count. `None` when it never was, or
    /// that cannot be read.
    pub(crate) async fn sent_at(&self, call: &CallId) -> Option<Timestamp> {
        let attempts = self.store.attempts(call).await.ok()?;
        let may_have_left = |attempt: &&AttemptRecord| attempt.outcome.as_deref() != Some("not_sent");
        attempts.iter().filter(may_have_left).map(|attempt| attempt.started_at).max()
    }

    /// When a call in doubt was sent before, as it has to be said of one that is taken up again.
    pub(crate) async fn sent_before(&self, call: &CallRecord) -> Option<Sent> {
        let is_in_doubt = matches!(call.status, CallStatus::Running | CallStatus::Unknown) || call.doubt.is_some();
        if !is_in_doubt {
            return None;
        }
        let at = self.sent_at(&call.call_id).await.unwrap_or(call.created_at);
        Some(Sent { at, attempt: call.attempt })
    }

    /// Takes a call to its receipt. Nobody who waits for it can end this, and nobody has to wait for it.
    pub(crate) async fn take_to_receipt(
        self: Arc<Self>,
        session: InUse,
        road: Arc<Road>,
        call: CallRecord,
        is_new: bool,
        (live, turn): (Arc<LiveCall>, Turn),
    ) {
        let carried = self.carried(&session, road.clone(), &call, is_new, &live, turn).await;
        road.upstream.drop_given(&call.call_id);
        let reply = road.upstream.take_reply(&call.call_id);
        let ended = match carried {
            None => return,
            Some(Ok(record)) => {
                // The tool's own words are what it ended with, if nobody else said what became of it.
                let is_own = record.resolution.is_none() && record.deduplicated_from.is_none();
                Ended { told: None, reply: Some(record).filter(|_| is_own).zip(reply) }
            }
            Some(Err(why)) => self.ended_without(why, &session, &call, &live, reply.as_ref()),
        };
        self.live().remove(&call.call_id);
        live.state.send_replace(State::Over(Arc::new(ended)));
    }

    /// What is told of a call whose end is not stored. An error before it was sent says that it was not; one behind that never does.
    fn ended_without(
        self: &Arc<Self>,
        why: NotOver,
        session: &InUse,
        call: &CallRecord,
        live: &LiveCall,
        reply: Option<&RawReply>,
    ) -> Ended {
        let has_effect = call.policy.class.has_effect();
        if let (Some(sent), Some(reply), NotOver::Failed(why)) = (live.sent(), reply, &why) {
            tracing::warn!(call = %call.call_id, why, "the answer of a call could not be stored");
            let mut reply = reply.clone();
            if let RawReply::ToolResult { result } = &mut reply {
                self.redactor.json(result);
            }
            if !has_effect {
                return Ended { told: None, reply: Some((Box::new(call.clone()), reply)) };
            }
            // Beside the database it is as good as stored: the next broker finds it there.
            let is_kept = session.outbox.is_kept_beside(&call.call_id, sent.attempt);
            let unrecorded = (!is_kept).then(|| why.clone());
            let mut answered = call.clone();
            (answered.attempt, answered.updated_at) = (sent.attempt, self.env.now());
            // Before it is not among those under way any more, so that whoever asks next finds it.
            let kept = Kept {
                call: Box::new(answered.clone()),
                session: session.record.clone(),
                reply: reply.clone(),
                unrecorded: unrecorded.clone(),
            };
            lock(&self.kept).insert(call.call_id.clone(), kept);
            tokio::spawn(self.clone().store_late(session.again(), answered, reply.clone()));
            return match unrecorded {
                None => Ended { told: None, reply: Some((Box::new(call.clone()), reply)) },
                Some(why) => Ended { told: Some(Told::unrecorded(sent.at, why, &reply)), reply: None },
            };
        }
        let told = match (why, live.sent()) {
            (NotOver::Ended, Some(sent)) if has_effect => Told::Unknown {
                since: Some(sent.at),
                why: "a person ended the session and did not say what came of it".to_owned(),
                question: None,
            },
            (NotOver::Ended, _) => Told::NotSent {
                why: "Not sent: a person ended this session. The next call is of another one.".to_owned(),
            },
            (NotOver::Failed(why), Some(sent)) if has_effect => Told::Unstored { since: Some(sent.at), why },
            (NotOver::Failed(why), Some(_)) => Told::ReadLost { why },
            (NotOver::Failed(why), None) => Told::Broken { why },
        };
        Ended { told: Some(told), reply: None }
    }

    /// Stores an answer in hand that the database did not take, as soon as it does. Until then whoever asks for the call has it from memory.
    async fn store_late(self: Arc<Self>, session: InUse, call: CallRecord, raw: RawReply) {
        let settlement = Some(interpret(&raw, &call.policy));
        let settle = SettleAttempt {
            call_id: call.call_id.clone(),
            attempt: call.attempt,
            end: AttemptEnd::Replied { raw, settlement },
            durability: Durability::Synced,
            at: call.updated_at,
        };
        loop {
            tokio::select! {
                () = self.env.clock.sleep(STORE_EVERY) => {}
                () = self.closing.cancelled() => {}
            }
            match session.outbox.settle_attempt(&session.lease, settle.clone()).await {
                // Somebody decided about it meanwhile; that stands.
                Ok(_) | Err(StoreError::Conflict { .. }) => break,
                Err(error) => {
                    session.outbox.keep_beside(&settle);
                    let is_kept = session.outbox.is_kept_beside(&call.call_id, call.attempt);
                    if let Some(kept) = lock(&self.kept).get_mut(&call.call_id).filter(|_| is_kept) {
                        kept.unrecorded = None;
                    }
                    if !self.closing.is_cancelled() {
                        continue;
                    }
                    if !is_kept {
                        tracing::warn!(call = %call.call_id, %error, "the answer of a call is lost with the broker; its outcome is unknown");
                    }
                    break;
                }
            }
        }
        lock(&self.kept).remove(&call.call_id);
    }

    /// How it ended. `None` when it waits, for a person or its turn, and nobody waits for it.
    async fn carried(
        &self,
        session: &InUse,
        mut road: Arc<Road>,
        call: &CallRecord,
        is_new: bool,
        live: &LiveCall,
        turn: Turn,
    ) -> Option<Result<Box<CallRecord>, NotOver>> {
        let mut turn = Some(turn);
        let mut planned = if is_new { std::slice::from_ref(call) } else { &[] };
        let mut looks = 0;
        let mut is_first = true;
        let has_effect = call.policy.class.has_effect();
        loop {
            // One that a person decided about comes behind those that were asked for meanwhile.
            let own = turn.take().unwrap_or_else(|| session.turns.place(Standing::of(call)));
            own.comes(has_effect).await;
            // Said before it is looked whether anybody waits: who lets go of it and then finds it not begun, knows that it will not be.
            live.has_begun.store(true, Ordering::SeqCst);
            // Whoever asked may have gone while it waited for its turn: then it is not begun, and is there for whoever asks for it again.
            if std::mem::take(&mut is_first) && self.is_let_go(session, call, live).await {
                return None;
            }
            // What a read brought is written with what comes next: it is made again for whoever asks again.
            let is_last = !has_effect;
            let handed = Handed { planned: std::mem::take(&mut planned), is_last, reads_wait: is_last };
            let ids = std::slice::from_ref(&call.call_id);
            let dispatch = Box::pin(road.dispatcher.dispatch_group(ids, handed, &self.stop));
            let (dispatched, own) = live.in_turn(dispatch, own, has_effect).await;
            if is_last {
                session.soon();
            }
            let why = match dispatched.map(|mut all| all.pop()) {
                Ok(Some(Dispatched::Settled(record))) => return Some(Ok(record)),
                Ok(Some(Dispatched::Held(question))) => {
                    // Others go on while a person decides.
                    drop(own);
                    drop(road.upstream.take_reply(&call.call_id));
                    live.state.send_replace(State::Held(question.clone()));
                    if !self.answered(session, call, &question, live).await {
                        return None;
                    }
                    live.state.send_replace(State::UnderWay);
                    // Its tool server may have other tools by now.
                    match self.newest_road(session, &road).await {
                        Ok(newest) => road = newest,
                        Err(error) => return Some(Err(NotOver::Failed(error.to_string()))),
                    }
                    continue;
                }
                Ok(Some(Dispatched::Parked { detail, .. })) => NotOver::Failed(detail),
                Ok(Some(Dispatched::Stopped) | None) => {
                    NotOver::Failed("the gateway is stopping; ask again in a moment".to_owned())
                }
                Err(DispatchError::Ledger(LedgerError::Aborted { .. })) => NotOver::Ended,
                // Nothing goes by a list of tools that is not the newest one. By that one it is looked at again what this call is: whether its own
                // tool is another one now, or only others are.
                Err(error) if looks < MOST_LOOKS && !road.listed.may_be_planned_by() => {
                    looks += 1;
                    // Nothing that was asked for behind it goes first.
                    turn = own;
                    session.flush().await;
                    match self.newest_road(session, &road).await {
                        Ok(newest) => road = newest,
                        Err(_) => return Some(Err(NotOver::Failed(chain(&error)))),
                    }
                    continue;
                }
                Err(error) => NotOver::Failed(chain(&error)),
            };
            return Some(Err(why));
        }
    }

    /// The road to the same tool server by the tools that it offers now. A server that cannot be looked at is not in the way of what needs none.
    async fn newest_road(&self, session: &InUse, road: &Arc<Road>) -> Result<Arc<Road>, Broken> {
        if let Err(why) = road.upstream.edition().await {
            tracing::debug!(why, "the tools of a server could not be looked at");
        }
        if road.listed.may_be_planned_by() {
            return Ok(road.clone());
        }
        self.road(session, &road.upstream).await.map(Arc::new)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What stands in a queue, and in which order what stood there was sent.
    type Case = (Vec<(usize, Standing)>, Vec<usize>);

    fn standing(place: usize, has_effect: bool) -> (usize, Standing) {
        let call = CallId::parse(&format!("call_{place}")).unwrap();
        (place, Standing { call, tool: String::new(), has_effect, is_sent: false })
    }

    fn again((all, sent): &Case) -> Case {
        let all = all
            .iter()
            .map(|(place, one)| (*place, Standing { is_sent: one.is_sent, ..standing(*place, one.has_effect).1 }));
        (all.collect(), sent.clone())
    }

    /// All sequences of five calls, and all orders in which they may be sent and answered: an effect is sent behind all that came before it, a
    /// read behind all but those effects that wait for an answer, and something can always go on.
    #[test]
    fn in_whichever_order_calls_are_answered_they_are_sent_in_their_order() {
        const COUNT: usize = 5;
        let mut ends = 0;
        for kinds in 0..1_u32 << COUNT {
            let has_effect = |place: usize| kinds & (1 << place) != 0;
            let mut open: Vec<Case> =
                vec![((0..COUNT).map(|place| standing(place, has_effect(place))).collect(), vec![])];
            while let Some(case) = open.pop() {
                let mut next = Vec::new();
                for at in 0..case.0.len() {
                    let (place, one) = &case.0[at];
                    let mut then = again(&case);
                    if one.is_sent {
                        // It is answered.
                        then.0.remove(at);
                    } else if may_go(case.0[..at].iter().map(|(_, before)| before), one.has_effect) {
                        let unanswered = case.0.iter().any(|(_, one)| one.is_sent);
                        let passed = case.0[..at].iter().filter(|(_, before)| !before.is_sent);
                        assert!(
                            passed.clone().all(|(_, before)| before.has_effect && !one.has_effect),
                            "{kinds:b} {case:?}"
                        );
                        assert!(passed.count() == 0 || unanswered, "{kinds:b} {case:?}");
                        assert!(!one.has_effect || !unanswered, "{kinds:b} {case:?}");
                        then.1.push(*place);
                        if one.has_effect {
                            then.0[at].1.is_sent = true;
                        } else {
                            then.0.remove(at);
                        }
                    } else {
                        continue;
                    }
                    next.push(then);
                }
                assert!(!next.is_empty() || case.1.len() == COUNT, "{kinds:b} {case:?}");
                ends += usize::from(case.0.is_empty());
                open.append(&mut next);
            }
        }
        assert!(ends > 1 << COUNT);
    }
}
