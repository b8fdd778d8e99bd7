//! What the tool of a call asks for before it has a result, and who answers that.
//!
//! Invariant: it is answered once. Whoever took it and goes away has said that nobody is there; so has everybody when nobody can be asked.
//! Proved by: `tests/it/ends.rs`, `tests/it/http.rs`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Map, Value, json};
use tokio::sync::{Notify, oneshot};

use crate::sync::lock;

/// Who waits for the answers to what a tool asks for; none when nobody answers.
type Answers = oneshot::Sender<Option<Map<String, Value>>>;

/// What a tool asks for before it has a result: requests by name. Whoever takes it answers it, once.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) requests: Map<String, Value>,
    is_taken: AtomicBool,
    /// Whoever took it has gone without an answer.
    is_left: AtomicBool,
    /// How many were told to come back with the answers, and did not yet.
    expected: AtomicUsize,
    reply: Mutex<Option<Answers>>,
}

impl Ask {
    /// These requests, and where the answers to them come.
    pub(crate) fn of(requests: Map<String, Value>) -> (Arc<Self>, oneshot::Receiver<Option<Map<String, Value>>>) {
        let (reply, answer) = oneshot::channel();
        let (is_taken, is_left, expected) = (AtomicBool::new(false), AtomicBool::new(false), AtomicUsize::new(0));
        (Arc::new(Self { requests, is_taken, is_left, expected, reply: Mutex::new(Some(reply)) }), answer)
    }

    /// Takes it, if nobody did.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Taken> {
        (!self.is_taken.swap(true, Ordering::AcqRel)).then(|| Taken(self.clone()))
    }

    /// Whether somebody answers it, or did.
    pub(crate) fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Acquire)
    }

    /// Whether whoever took it has gone without an answer.
    pub(crate) fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Acquire)
    }

    /// Whether somebody was told to come back with the answers.
    pub(crate) fn is_expected(&self) -> bool {
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
#[derive(Debug)]
pub(crate) struct ComesBack {
    ask: Arc<Ask>,
    /// Woken when nobody is expected any more.
    left: Arc<Notify>,
}

impl ComesBack {
    /// With the answers to this. `left` is woken when they have gone.
    pub(crate) fn with(ask: &Arc<Ask>, left: &Arc<Notify>) -> Self {
        ask.expected.fetch_add(1, Ordering::AcqRel);
        Self { ask: ask.clone(), left: left.clone() }
    }

    pub(crate) fn ask(&self) -> &Arc<Ask> {
        &self.ask
    }
}

impl Drop for ComesBack {
    fn drop(&mut self) {
        self.ask.expected.fetch_sub(1, Ordering::AcqRel);
        self.left.notify_waiters();
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
        // Noted before it is said: whoever hears it looks.
        let was_left = lock(&self.0.reply).is_some();
        self.0.is_left.fetch_or(was_left, Ordering::AcqRel);
        self.say(self.0.declined());
    }
}
