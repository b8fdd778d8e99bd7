//! Our side of a connection: what a server may ask of us and tell us, whatever it is reached over.
//!
//! It may ask for a sign of life, and for a word of the person behind the call that is under way; it may log, and say how far a call
//! is. Invariants: a question belongs to exactly one call, or it is declined; nothing that a server says makes a call wait longer that
//! was sent.
//!
//! Where one stream is all there is, nothing says which call asks. A call that asks does not end before it is answered, so when others
//! are under way the question waits until one is left; and a server that asked once gets its calls one after the other from then on.
//! Nothing waits for a call that waits for a person: whoever drives the run may not hear the person before the other calls are done.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};
use tokio::sync::{Notify, mpsc, oneshot};
use ua_core::{CallId, Redactor};

use crate::amount::is_too_long_to_ask;
use crate::shim::SAYS;
use crate::wire::{SECOND_ANSWER, STRAY, WireState};

/// What is said of a server that takes its standard output for a log, in front of the line that it wrote there.
pub const WROTE_NO_MESSAGE: &str = "wrote something to its standard output that is not an MCP message";
/// The longest word about progress that is passed on.
const MAX_WORDS: usize = 200;
/// How often one call's progress is passed on.
const MAX_TOLD: u32 = 500;

/// What a server says about a call that is under way.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// The call.
    pub call_id: CallId,
    /// How far it is; not a number when only words were said.
    pub progress: f64,
    /// How far it goes, if that is known.
    pub total: Option<f64>,
    /// In words.
    pub message: Option<String>,
}

impl Progress {
    /// Words alone, as a task says them.
    pub(crate) fn in_words(call_id: CallId, words: &str) -> Self {
        Self { call_id, progress: f64::NAN, total: None, message: Some(printable(words, MAX_WORDS)) }
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total.map_or_else(String::new, |total| format!(" of {}", Short(total)));
        match (self.progress.is_nan(), &self.message) {
            (false, Some(message)) => write!(f, "{}{total}: {message}", Short(self.progress)),
            (false, None) => write!(f, "{}{total}", Short(self.progress)),
            (true, message) => f.write_str(message.as_deref().unwrap_or_default()),
        }
    }
}

/// A number of a server's choosing in at most sixteen characters: whole where it is, with three decimals, or, very large or small, by a power of
/// ten.
struct Short(f64);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.0.abs();
        if size < 1e15 && self.0.fract() == 0.0 {
            return write!(f, "{:.0}", self.0);
        }
        if size != 0.0 && !(1e-3..1e9).contains(&size) {
            return write!(f, "{:.3e}", self.0);
        }
        let text = format!("{:.3}", self.0);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// Who is told how far calls are.
pub type ProgressWatcher = Arc<dyn Fn(Progress) + Send + Sync>;

/// A question of a server, and where its answer goes.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) params: Value,
    pub(crate) reply: oneshot::Sender<Value>,
}

/// The call that a request is made for.
#[derive(Debug, Clone)]
pub(crate) struct Listener {
    pub(crate) call_id: CallId,
    pub(crate) asks: mpsc::UnboundedSender<Ask>,
}

/// Our side of one connection.
pub(crate) struct Host {
    server: String,
    watcher: Option<ProgressWatcher>,
    /// Stands where a server's words enter, so that no log, file or person behind it sees a secret that they repeat.
    redactor: Redactor,
    calls: Mutex<Calls>,
    /// The pipe that it is reached over, for what is said of a server that does not start.
    pipe: Mutex<Option<Arc<WireState>>>,
    /// Told when a request for a call begins or ends.
    moved: Notify,
    /// Whether the server ever asked something without saying for which call.
    has_asked: AtomicBool,
    /// How many words about progress were passed on, by call.
    told: Mutex<BTreeMap<CallId, u32>>,
    /// Whether it wrote such a line before.
    has_strayed: AtomicBool,
    /// The calls that heard of a line that is no message.
    told_of_stray: Mutex<BTreeSet<CallId>>,
    tools_changed: AtomicBool,
}

/// Requests that are made for a call.
#[derive(Default)]
struct Calls {
    /// Those under way: by number, with the token of their progress.
    under_way: BTreeMap<i64, (Value, Listener)>,
    /// Those of them whose progress was told, by number.
    progressed: BTreeSet<i64>,
    /// The calls of those that ended last, by number.
    ended: VecDeque<(i64, CallId)>,
    /// How many ended without an answer: what such a one asked may be asked still.
    abandoned: u64,
    /// Questions that wait until one call is left.
    waiting: usize,
    /// Questions that a person is asked now.
    asked: usize,
    /// Whether one call at a time is sent, and this is its time.
    is_taken: bool,
}

impl Calls {
    /// Who is asked by the only call under way.
    fn only(&self) -> Option<&Listener> {
        self.under_way.values().next().filter(|_| self.under_way.len() == 1).map(|(_, listener)| listener)
    }

    /// The call that a request is made for, or was made for lately.
    fn of_request(&self, id: i64) -> Option<&CallId> {
        let under_way = self.under_way.get(&id).map(|(_, listener)| &listener.call_id);
        under_way.or_else(|| self.ended.iter().find(|(ended, _)| *ended == id).map(|(_, call)| call))
    }

    /// Who is asked by the call whose progress has `token`.
    fn of_token(&self, token: &Value) -> Option<&Listener> {
        self.under_way.values().find(|(known, _)| known == token).map(|(_, listener)| listener)
    }

    /// Keeps that the progress of the request with `token` was told.
    fn note_progress(&mut self, token: &Value) {
        let told_of = self.under_way.iter().find(|(_, (known, _))| known == token).map(|(id, _)| *id);
        self.progressed.extend(told_of);
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("server", &self.server).finish_non_exhaustive()
    }
}

/// A refusal: code and words.
pub(crate) type Refusal = (i32, &'static str);

/// What becomes of a call during which such a line came.
pub(crate) const WAITS_ON: &str =
    "if that line was meant as its answer, no other will come; `timeout` in a policy ends such a wait";

/// What a call is told whose server answered it twice.
const FAILED_AFTER_ALL: &str = "its server then answered a second time, that it failed; the first answer counts";
const DONE_AFTER_ALL: &str =
    "its server then answered a second time, with a result; the first answer, a failure, counts";

/// Of how many requests that ended it is known for which call they were made.
const MOST_ENDED: usize = 64;

impl Host {
    pub(crate) fn new(server: &str, watcher: Option<ProgressWatcher>, redactor: Redactor) -> Arc<Self> {
        Arc::new(Self {
            server: server.to_owned(),
            watcher,
            redactor,
            calls: Mutex::default(),
            pipe: Mutex::default(),
            moved: Notify::new(),
            has_asked: AtomicBool::new(false),
            told: Mutex::default(),
            has_strayed: AtomicBool::new(false),
            told_of_stray: Mutex::default(),
            tools_changed: AtomicBool::new(false),
        })
    }

    /// Notes the pipe that the server is reached over.
    pub(crate) fn is_behind(&self, pipe: Arc<WireState>) {
        *self.pipe.lock().unwrap_or_else(PoisonError::into_inner) = Some(pipe);
    }

    /// What the server wrote first where only messages belong, as the end of a sentence; nothing when it wrote no such thing.
    pub(crate) fn first_stray(&self) -> Option<String> {
        let pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        Some(self.in_words(&pipe.first_stray()?))
    }

    /// The same as a sentence of its own, which names the server.
    pub(crate) fn first_stray_of_server(&self) -> Option<String> {
        let pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        Some(self.written_by(&format!("tool server `{}`", self.server), &pipe.first_stray()?))
    }

    /// What the shim wrote there in the place of its log: why it did not run the server.
    pub(crate) fn said_by_shim(&self) -> Option<String> {
        let pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let line = pipe.first_stray()?;
        Some(self.redactor.text(line.strip_prefix(SAYS)?).into_owned())
    }

    /// A line that is no message, as the end of a sentence.
    pub(crate) fn in_words(&self, stray: &str) -> String {
        self.written_by("it", stray)
    }

    fn written_by(&self, whom: &str, stray: &str) -> String {
        let clean = self.redactor.text(stray);
        format!("{whom} {WROTE_NO_MESSAGE}: {:?}", printable(&clean, MAX_WORDS))
    }

    /// Tells each call under way, once, that the server writes what is no message: it may have been that call's answer.
    fn tell_of_stray(&self, line: &str) {
        self.note_stray(line);
        let Some(watcher) = &self.watcher else { return };
        let calls: Vec<CallId> =
            self.calls().under_way.values().map(|(_, listener)| listener.call_id.clone()).collect();
        for call in calls {
            if self.told_of_stray.lock().unwrap_or_else(PoisonError::into_inner).insert(call.clone()) {
                // Two words: one that quotes a long line is cut where it is shown.
                watcher(Progress::in_words(call.clone(), &self.written_by("its server", line)));
                watcher(Progress::in_words(call, WAITS_ON));
            }
        }
    }

    /// Tells a call that its server answered it once more, and said the contrary: nobody else would hear of it.
    pub(crate) fn tell_of_second_answer(&self, params: &Value) {
        let failed = params["failed"].as_bool() == Some(true);
        tracing::warn!(
            server = self.server,
            request = params["request"].as_i64(),
            failed,
            "the tool server answered a call a second time, and otherwise; its first answer counts"
        );
        let call = params["request"].as_i64().and_then(|id| self.calls().of_request(id).cloned());
        let Some((call, watcher)) = call.zip(self.watcher.as_ref()).filter(|(call, _)| self.may_tell(call)) else {
            return;
        };
        watcher(Progress::in_words(call, if failed { FAILED_AFTER_ALL } else { DONE_AFTER_ALL }));
    }

    /// Notes in the diagnostics what the server wrote so far, as it started, where only messages belong.
    pub(crate) fn note_first_stray(&self) {
        let pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(line) = pipe.and_then(|pipe| pipe.first_stray()) {
            self.note_stray(&self.redactor.text(&line));
        }
    }

    /// Notes such a line: the first one where somebody looks who wants to know what goes on, the others where everything is noted.
    fn note_stray(&self, line: &str) {
        let shown = printable(line, MAX_WORDS);
        if self.has_strayed.swap(true, Ordering::Relaxed) {
            tracing::debug!(server = self.server, line = shown, "a line that is no message");
        } else {
            tracing::info!(
                server = self.server,
                line = shown,
                "the tool server writes to its standard output what is no MCP message; a log belongs on standard error"
            );
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a request for a call may be sent: at once, but to a server that asks without saying for which call, when no other is
    /// under way, or a person is asked for one. Nobody else's is sent while the guard is held.
    pub(crate) async fn turn(&self, listener: Option<&Listener>) -> Option<Turn<'_>> {
        if listener.is_none() || !self.has_asked.load(Ordering::Relaxed) {
            return None;
        }
        loop {
            let mut moved = std::pin::pin!(self.moved.notified());
            moved.as_mut().enable();
            {
                let mut calls = self.calls();
                if calls.asked > 0 {
                    return None;
                }
                if calls.under_way.is_empty() && !calls.is_taken {
                    calls.is_taken = true;
                    return Some(Turn(self));
                }
            }
            moved.await;
        }
    }

    /// Notes that request `id`, whose progress has `token`, is made for a call, until the guard is dropped.
    pub(crate) fn listen(self: &Arc<Self>, id: i64, token: Value, listener: Option<Listener>) -> Option<UnderWay> {
        self.calls().under_way.insert(id, (token, listener?));
        self.moved.notify_waiters();
        Some(UnderWay { host: Arc::clone(self), id, is_answered: false })
    }

    /// Whether the server said that its tools are other ones now, since this was asked last.
    pub(crate) fn take_change(&self) -> bool {
        self.tools_changed.swap(false, Ordering::Relaxed)
    }

    /// Whether the server said so, and nobody has asked yet.
    pub(crate) fn has_changed(&self) -> bool {
        self.tools_changed.load(Ordering::Relaxed)
    }

    /// Notes that the server's tools are other ones than they were.
    pub(crate) fn note_change(&self) {
        self.tools_changed.store(true, Ordering::Relaxed);
    }

    /// Answers a request of the server. `origin` is the request of ours on whose stream it came, where that is known.
    pub(crate) async fn request(&self, method: &str, params: Value, origin: Option<i64>) -> Result<Value, Refusal> {
        match method {
            "ping" => Ok(json!({})),
            "elicitation/create" => Ok(self.elicit(params, origin).await),
            _ => Err((-32601, "this client offers servers elicitation and ping")),
        }
    }

    async fn elicit(&self, mut params: Value, origin: Option<i64>) -> Value {
        if is_too_long_to_ask(&params) {
            tracing::warn!(
                server = self.server,
                "a question of the tool server was declined: it is too long to be read"
            );
            return json!({ "action": "decline" });
        }
        self.redactor.json(&mut params);
        let asks = match origin {
            Some(id) => self.calls().under_way.get(&id).map(|(_, listener)| listener.asks.clone()),
            None => self.asker(&params).await,
        };
        let (reply, answer) = oneshot::channel();
        let _asked = asks.is_some().then(|| Asked::new(self));
        let asked = asks.is_some_and(|asks| asks.send(Ask { params, reply }).is_ok());
        if !asked {
            tracing::info!(
                server = self.server,
                "a question of the tool server was declined: it belongs to no one call"
            );
            return json!({ "action": "decline" });
        }
        answer.await.unwrap_or_else(|_| json!({ "action": "cancel" }))
    }

    /// Whose question it is that came on no call's stream: the one whose progress it names, else the only one under way, for which it
    /// waits. A call that ended without an answer may be the one that asked; then nobody can tell any more.
    async fn asker(&self, params: &Value) -> Option<mpsc::UnboundedSender<Ask>> {
        self.has_asked.store(true, Ordering::Relaxed);
        let mut waiting: Option<(WaitsForOne<'_>, u64)> = None;
        loop {
            let mut moved = std::pin::pin!(self.moved.notified());
            moved.as_mut().enable();
            {
                let mut calls = self.calls();
                let named = params.pointer("/_meta/progressToken").and_then(|token| calls.of_token(token));
                if let Some(listener) = named {
                    return Some(listener.asks.clone());
                }
                if waiting.as_ref().is_some_and(|(_, abandoned)| *abandoned != calls.abandoned) {
                    return None;
                }
                if calls.under_way.len() <= 1 {
                    return calls.only().map(|listener| listener.asks.clone());
                }
                if calls.asked > 0 {
                    return None;
                }
                if waiting.is_none() {
                    // As many questions as calls: each waits for the others, and no one would ever be left.
                    if calls.waiting + 1 >= calls.under_way.len() {
                        return None;
                    }
                    calls.waiting += 1;
                    waiting = Some((WaitsForOne(self), calls.abandoned));
                }
            }
            moved.await;
        }
    }

    /// Takes note of what the server tells.
    pub(crate) fn notified(&self, method: &str, params: &Value) {
        let mut clean = params.clone();
        // Before anything is cut to size: half of a secret is not recognised any more.
        self.redactor.json(&mut clean);
        let params = &clean;
        match method {
            "notifications/message" => {
                let (level, logger) = (params["level"].as_str(), params["logger"].as_str());
                tracing::debug!(server = self.server, level, logger, data = %params["data"], "tool server");
            }
            "notifications/progress" => self.progress(params),
            "notifications/tools/list_changed" => {
                tracing::info!(
                    server = self.server,
                    "the tool server says that its tools changed; this step keeps those it has"
                );
                self.note_change();
            }
            STRAY => self.tell_of_stray(params["line"].as_str().unwrap_or_default()),
            SECOND_ANSWER => self.tell_of_second_answer(params),
            _ => tracing::trace!(server = self.server, method, "a notification nobody needs"),
        }
    }

    /// Whether one more word about a call is passed on: a server that never stops talking fills no log.
    fn may_tell(&self, call: &CallId) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let told = told.entry(call.clone()).or_default();
        *told += 1;
        *told <= MAX_TOLD
    }

    fn progress(&self, params: &Value) {
        let token = &params["progressToken"];
        self.calls().note_progress(token);
        let call_id = self.calls().of_token(token).map(|listener| listener.call_id.clone());
        let (Some(call_id), Some(progress)) = (call_id, params["progress"].as_f64()) else { return };
        let words = params["message"].as_str().map(|words| printable(words, MAX_WORDS));
        let progress = Progress { call_id, progress, total: params["total"].as_f64(), message: words };
        tracing::debug!(server = self.server, tool_call_id = progress.call_id.as_str(), %progress, "progress");
        if let Some(watcher) = self.watcher.as_ref().filter(|_| self.may_tell(&progress.call_id)) {
            watcher(progress);
        }
    }
}

/// Text that came from a server, fit to be shown: short and without control characters.
pub(crate) fn printable(text: &str, limit: usize) -> String {
    text.chars().take(limit).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A request of ours that is made for a call; dropped when nobody waits for its answer any more.
pub(crate) struct UnderWay {
    host: Arc<Host>,
    id: i64,
    is_answered: bool,
}

impl UnderWay {
    /// Whether its server told of its progress: whoever does that has begun with it.
    pub(crate) fn has_progressed(&self) -> bool {
        let calls = self.host.calls();
        let token = calls.under_way.get(&self.id).map(|(token, _)| token.clone());
        let is_noted = calls.progressed.contains(&self.id);
        drop(calls);
        // On a pipe it may be known by the wire alone yet.
        let pipe = self.host.pipe.lock().unwrap_or_else(PoisonError::into_inner).clone();
        is_noted || pipe.zip(token).is_some_and(|(pipe, token)| pipe.has_progressed(&token))
    }

    /// Its answer came: nothing that it asked is open any more.
    pub(crate) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut calls = self.host.calls();
        calls.progressed.remove(&self.id);
        if let Some((_, listener)) = calls.under_way.remove(&self.id) {
            if calls.ended.len() == MOST_ENDED {
                calls.ended.pop_front();
            }
            calls.ended.push_back((self.id, listener.call_id));
        }
        calls.abandoned += u64::from(!self.is_answered);
        drop(calls);
        self.host.moved.notify_waiters();
    }
}

/// The time of one call; over when this is dropped.
pub(crate) struct Turn<'h>(&'h Host);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.calls().is_taken = false;
        self.0.moved.notify_waiters();
    }
}

/// A question that a person is asked.
struct Asked<'h>(&'h Host);

impl<'h> Asked<'h> {
    fn new(host: &'h Host) -> Self {
        host.calls().asked += 1;
        host.moved.notify_waiters();
        Self(host)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.0.calls().asked -= 1;
        self.0.moved.notify_waiters();
    }
}

/// A question that waits until one call is left.
struct WaitsForOne<'h>(&'h Host);

impl Drop for WaitsForOne<'_> {
    fn drop(&mut self) {
        self.0.calls().waiting -= 1;
    }
}

/// What stands in a message of a server's.
pub(crate) fn method_and_params(message: &mut Map<String, Value>) -> (String, Value) {
    let method = message.get("method").and_then(Value::as_str).unwrap_or_default().to_owned();
    (method, message.remove("params").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener(call: &str) -> (Listener, mpsc::UnboundedReceiver<Ask>) {
        let (asks, asked) = mpsc::unbounded_channel();
        (Listener { call_id: CallId::parse(call).unwrap(), asks }, asked)
    }

    #[tokio::test]
    async fn a_question_reaches_the_call_it_belongs_to_and_no_other() {
        let host = Host::new("s", None, Redactor::default());
        let ask = async |origin| host.request("elicitation/create", json!({"message": "?"}), origin).await.unwrap();
        assert_eq!(ask(None).await, json!({"action": "decline"}), "no call is under way");
        let (first, mut asked) = listener("call_1");
        let one = host.listen(1, json!(1), Some(first));
        let long = json!({"message": "?".repeat(300_000)});
        let long = host.request("elicitation/create", long, None).await.unwrap();
        assert_eq!(long, json!({"action": "decline"}), "nobody reads that");
        let answering = async {
            let Ask { params, reply } = asked.recv().await.unwrap();
            assert_eq!(params["message"], "?");
            reply.send(json!({"action": "accept"})).unwrap();
        };
        assert_eq!(tokio::join!(ask(None), answering).0, json!({"action": "accept"}));
        let (second, mut asked_second) = listener("call_2");
        let two = host.listen(2, json!(2), Some(second));
        let answering = async { drop(asked_second.recv().await.unwrap().reply) };
        assert_eq!(tokio::join!(ask(Some(2)), answering).0, json!({"action": "cancel"}), "nobody answers any more");
        drop((one, two));
        assert_eq!(ask(Some(2)).await, json!({"action": "decline"}));
        assert_eq!(host.request("sampling/createMessage", json!({}), None).await.unwrap_err().0, -32601);
    }

    #[tokio::test]
    async fn a_question_that_could_be_eithers_waits_until_one_call_is_left() {
        let host = Host::new("s", None, Redactor::default());
        let ask = |host: &Arc<Host>, params: Value| {
            let host = Arc::clone(host);
            tokio::spawn(async move { host.request("elicitation/create", params, None).await.unwrap() })
        };
        let under_way = |number: i64| {
            let (listener, asked) = listener(&format!("call_{number}"));
            (host.listen(number, json!(number), Some(listener)).unwrap(), asked)
        };
        let declined = json!({"action": "decline"});
        let accept = |ask: Ask| ask.reply.send(json!({"action": "accept"})).unwrap();
        let ((one, _asked_one), (two, mut asked_two)) = (under_way(1), under_way(2));
        let question = ask(&host, json!({"message": "?"}));
        tokio::task::yield_now().await;
        assert!(asked_two.try_recv().is_err() && !question.is_finished());
        // The other one asks, too: neither would ever be the last.
        assert_eq!(ask(&host, json!({"message": "??"})).await.unwrap(), declined);
        one.answered();
        accept(asked_two.recv().await.unwrap());
        assert_eq!(question.await.unwrap()["action"], "accept");
        // It names the progress of its call.
        let (three, mut asked_three) = under_way(3);
        let named = ask(&host, json!({"message": "?", "_meta": {"progressToken": 3}}));
        accept(asked_three.recv().await.unwrap());
        assert_eq!(named.await.unwrap()["action"], "accept");
        // A call that nobody waits for any more may be the one that asked.
        let question = ask(&host, json!({"message": "?"}));
        tokio::task::yield_now().await;
        drop(two);
        assert_eq!(question.await.unwrap(), declined);
        three.answered();
    }

    #[tokio::test]
    async fn a_server_that_asked_gets_one_call_after_the_other() {
        let host = Host::new("s", None, Redactor::default());
        let (quiet, _unasked) = listener("call_0");
        let _two_at_once = (host.turn(Some(&quiet)).await, host.turn(Some(&quiet)).await);
        host.request("elicitation/create", json!({"message": "?"}), None).await.unwrap();
        let (first, _asked) = listener("call_1");
        let turn = host.turn(Some(&first)).await;
        let under_way = host.listen(1, json!(1), Some(first)).unwrap();
        assert!(turn.is_some() && host.turn(None).await.is_none(), "what asks nobody waits for nobody");
        let next = |call: &str| {
            let (host, (listener, _)) = (Arc::clone(&host), listener(call));
            tokio::spawn(async move { host.turn(Some(&listener)).await.is_some() })
        };
        let second = next("call_2");
        tokio::task::yield_now().await;
        drop(turn);
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        under_way.answered();
        assert!(second.await.unwrap());
        // While a person is asked for one call, the others go on: the person may be heard only when they are done.
        let (third, mut asked) = listener("call_3");
        let under_way = host.listen(3, json!(3), Some(third)).unwrap();
        let fourth = next("call_4");
        let asking = Arc::clone(&host);
        let question =
            tokio::spawn(async move { asking.request("elicitation/create", json!({"message": "?"}), None).await });
        let ask = asked.recv().await.unwrap();
        assert!(!fourth.await.unwrap(), "sent beside the call that asks");
        let (fifth, _unasked) = listener("call_5");
        let other = host.listen(5, json!(5), Some(fifth)).unwrap();
        let declined = host.request("elicitation/create", json!({"message": "??"}), None).await.unwrap();
        assert_eq!(declined, json!({"action": "decline"}), "it waits for no person");
        ask.reply.send(json!({"action": "accept"})).unwrap();
        assert_eq!(question.await.unwrap().unwrap()["action"], "accept");
        under_way.answered();
        other.answered();
    }

    #[tokio::test]
    async fn no_word_of_a_server_passes_with_a_secret_in_it() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&told);
        let watcher = Arc::new(move |progress: Progress| seen.lock().unwrap().push(progress.to_string()));
        let redactor = Redactor::new([("TOKEN".to_owned(), "hunter2hunter2xyz".to_owned())]);
        let host = Host::new("s", Some(watcher), redactor);
        let (one, mut asked) = listener("call_1");
        let _under_way = host.listen(1, json!("t"), Some(one));
        // The third one is cut where the secret stands.
        for words in [
            "in with hunter2hunter2xyz",
            "68756e7465723268756e746572327879 7a",
            &format!("{}hunter2hunter2xyz", "x".repeat(190)),
        ] {
            host.notified("notifications/progress", &json!({"progressToken": "t", "progress": 1, "message": words}));
        }
        let told = told.lock().unwrap().clone();
        assert_eq!((told.len(), told[0].as_str()), (3, "1: in with [secret TOKEN]"));
        assert!(told.iter().all(|words| !words.contains("hunter2") && !words.contains("6875")), "{told:?}");
        let question =
            json!({"message": "is it hunter2hunter2xyz?", "requestedSchema": {"title": "hunter2hunter2xyz"}});
        let answering = async {
            let Ask { params, reply } = asked.recv().await.unwrap();
            assert_eq!(params["message"], "is it [secret TOKEN]?");
            assert!(!params.to_string().contains("hunter2"), "{params}");
            reply.send(json!({"action": "decline"})).unwrap();
        };
        tokio::join!(host.request("elicitation/create", question, Some(1)), answering).0.unwrap();
    }

    #[test]
    fn numbers_of_progress_are_short_whatever_a_server_sends() {
        let shown = |number: f64| Short(number).to_string();
        let cases = [
            (0.0, "0"),
            (2.0, "2"),
            (-3.5, "-3.5"),
            (0.1 + 0.2, "0.3"),
            (100.0 / 3.0, "33.333"),
            (1_073_741_824.0, "1073741824"),
            (1e308, "1.000e308"),
            (-1e308, "-1.000e308"),
            (1.234_567e-9, "1.235e-9"),
            (123_456_789_012.5, "1.235e11"),
        ];
        for (number, wanted) in cases {
            assert_eq!(shown(number), wanted);
        }
        for number in
            [f64::MAX, f64::MIN, f64::MIN_POSITIVE, 999_999_999_999_999.0, 999_999_999.999_9, -0.001, f64::INFINITY]
        {
            assert!(shown(number).len() <= 16, "{number:e}: {}", shown(number));
        }
        let progress = Progress {
            call_id: CallId::parse("call_1").unwrap(),
            progress: 1.0,
            total: Some(1e308),
            message: Some("x".into()),
        };
        assert_eq!(progress.to_string(), "1 of 1.000e308: x");
    }

    #[test]
    fn progress_is_told_for_calls_under_way_only() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&told);
        let watcher = Arc::new(move |progress: Progress| seen.lock().unwrap().push(progress.to_string()));
        let host = Host::new("s", Some(watcher), Redactor::default());
        let (one, _asked) = listener("call_1");
        let _under_way = host.listen(1, json!("t"), Some(one));
        host.notified(
            "notifications/progress",
            &json!({"progressToken": "t", "progress": 2, "total": 5, "message": "x\u{1b}y"}),
        );
        host.notified("notifications/progress", &json!({"progressToken": "other", "progress": 2}));
        assert_eq!(*told.lock().unwrap(), ["2 of 5: x\u{fffd}y"]);
        host.notified("notifications/tools/list_changed", &Value::Null);
        assert!(host.take_change() && !host.take_change());
    }
}
