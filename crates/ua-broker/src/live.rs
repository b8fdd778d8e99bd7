//! A call that this process has under way, and those who wait for it. It belongs to the broker: whoever goes away takes nothing of it along.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};
use ua_core::{ArgsHash, CallId, Env, QuestionId, RawReply, RunId, Timestamp};
use ua_store::{CallRecord, QuestionRecord};

use crate::input::{Ask, ComesBack};
use crate::texts::Told;
use crate::turns::{Standing, Turn, Turns};

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
    /// Nobody waited for it, and it was not begun: whoever has a line for its answer again takes it up.
    LetGo,
    /// It is over.
    Over(Arc<Ended>),
}

/// How a call ended.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// What is told in the place of a result.
    pub(crate) told: Option<Told>,
    /// The gateway stops before it is over: the next broker takes it up, and has what whoever waits is to be answered with.
    pub(crate) is_left: bool,
    /// Its record, with the tool's own words, where these are what it ended with; else both are read.
    pub(crate) reply: Option<(Box<CallRecord>, RawReply)>,
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
    /// Whether a person was asked about it.
    was_held: AtomicBool,
    turns: Arc<Turns>,
    askers: AtomicUsize,
    /// How many are there at all, whether or not there is a line on which to answer them.
    present: AtomicUsize,
    /// The connection of its tool server has gone.
    is_left_alone: AtomicBool,
    /// Its tool asked for something, and was told that nobody is there.
    was_unanswered: AtomicBool,
    /// Woken when somebody goes, whose answer or whose wait was counted on.
    left: Arc<Notify>,
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
            was_held: AtomicBool::new(false),
            turns: turns.clone(),
            askers: AtomicUsize::new(0),
            present: AtomicUsize::new(0),
            is_left_alone: AtomicBool::new(false),
            was_unanswered: AtomicBool::new(false),
            left: Arc::default(),
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
            None => Reached::Queued { behind: self.turns.first(|first| first.tool_of_another(&self.call)).flatten() },
        }
    }

    /// Whether it waits for another call.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.reached(), Reached::Queued { behind: Some(_) })
    }

    /// Dispatches it in its turn: what comes behind it is let through as soon as order does not need it any more.
    /// Its turn is handed back where it has it still.
    pub(crate) async fn in_turn<T>(
        &self,
        dispatch: impl Future<Output = T>,
        turn: Turn,
        has_effect: bool,
    ) -> (T, Option<Turn>) {
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
                turn.was_sent();
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

    /// A person is asked about it.
    pub(crate) fn holds(&self, question: Box<QuestionRecord>) {
        self.was_held.store(true, Ordering::SeqCst);
        self.state.send_replace(State::Held(question));
    }

    /// Whether a person was asked about it, and may have said something beside the answer.
    pub(crate) fn was_held(&self) -> bool {
        self.was_held.load(Ordering::SeqCst)
    }

    /// What a person is asked about it now.
    pub(crate) fn question(&self) -> Option<QuestionId> {
        match &*self.state.borrow() {
            State::Held(question) => Some(question.question_id.clone()),
            State::UnderWay | State::Asks(_) | State::LetGo | State::Over(_) => None,
        }
    }

    /// Asks those who wait for what its tool asks for. Where nobody answers, people are said to be away.
    pub(crate) async fn ask_for(&self, requests: Map<String, Value>, env: &Env) -> Option<Map<String, Value>> {
        let (ask, answer) = Ask::of(requests);
        self.state.send_replace(State::Asks(ask.clone()));
        let answers = tokio::select! {
            answers = answer => answers.ok().filter(|_| !ask.is_left()),
            () = self.nobody_for(&ask) => None,
            () = env.clock.sleep(INPUT_PATIENCE) => None,
        };
        let answers = answers.unwrap_or_else(|| {
            self.goes_unanswered();
            ask.declined()
        });
        self.state.send_replace(State::UnderWay);
        answers
    }

    /// Its tool is told that nobody is there whom it could ask.
    pub(crate) fn goes_unanswered(&self) {
        self.was_unanswered.store(true, Ordering::SeqCst);
    }

    /// Whether it was told so.
    pub(crate) fn was_unanswered(&self) -> bool {
        self.was_unanswered.load(Ordering::SeqCst)
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

    /// Its turn has come.
    pub(crate) fn begins(&self) {
        self.has_begun.store(true, Ordering::SeqCst);
    }

    /// Waits until somebody goes: one of those who wait, or were told to come back.
    pub(crate) fn somebody_leaves(&self) -> Notified<'_> {
        self.left.notified()
    }

    /// Somebody was told to come back with what its tool asks for.
    pub(crate) fn comes_back(&self, ask: &Arc<Ask>) -> ComesBack {
        ComesBack::with(ask, &self.left)
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

    /// Whether there is a line on which to answer.
    pub(crate) fn listens(&self) -> bool {
        self.listens
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
