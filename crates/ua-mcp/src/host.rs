//! Our side of a connection: what a server may ask of us and tell us, whatever it is reached over.
//!
//! It may ask for a sign of life, and for a word of the person behind the call that is under way; it may log, and say how far a call
//! is. Invariants: a question belongs to exactly one call, or it is declined; nothing that a server says makes a call wait longer.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use ua_core::CallId;

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
        let total = self.total.map_or_else(String::new, |total| format!(" of {total}"));
        match (self.progress.is_nan(), &self.message) {
            (false, Some(message)) => write!(f, "{}{total}: {message}", self.progress),
            (false, None) => write!(f, "{}{total}", self.progress),
            (true, message) => f.write_str(message.as_deref().unwrap_or_default()),
        }
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
    /// Requests under way that are made for a call: by number, with the token of their progress.
    under_way: Mutex<BTreeMap<i64, (Value, Listener)>>,
    /// How many words about progress were passed on, by call.
    told: Mutex<BTreeMap<CallId, u32>>,
    tools_changed: AtomicBool,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("server", &self.server).finish_non_exhaustive()
    }
}

/// A refusal: code and words.
pub(crate) type Refusal = (i32, &'static str);

impl Host {
    pub(crate) fn new(server: &str, watcher: Option<ProgressWatcher>) -> Arc<Self> {
        let (under_way, told, tools_changed) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        Arc::new(Self { server: server.to_owned(), watcher, under_way, told, tools_changed })
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeMap<i64, (Value, Listener)>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that request `id`, whose progress has `token`, is made for a call, until the guard is dropped.
    pub(crate) fn listen(self: &Arc<Self>, id: i64, token: Value, listener: Option<Listener>) -> Option<UnderWay> {
        self.under_way().insert(id, (token, listener?));
        Some(UnderWay { host: Arc::clone(self), id })
    }

    /// Whether the server said that its tools are other ones now, since this was asked last.
    pub(crate) fn take_change(&self) -> bool {
        self.tools_changed.swap(false, Ordering::Relaxed)
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

    async fn elicit(&self, params: Value, origin: Option<i64>) -> Value {
        let asks = {
            let under_way = self.under_way();
            match origin {
                Some(id) => under_way.get(&id).map(|(_, listener)| listener.asks.clone()),
                // Over one pipe nothing says which call asks. With several under way nobody can tell.
                None if under_way.len() == 1 => under_way.values().next().map(|(_, listener)| listener.asks.clone()),
                None => None,
            }
        };
        let (reply, answer) = oneshot::channel();
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

    /// Takes note of what the server tells.
    pub(crate) fn notified(&self, method: &str, params: &Value) {
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
        let call_id = {
            let under_way = self.under_way();
            under_way.values().find(|(known, _)| known == token).map(|(_, listener)| listener.call_id.clone())
        };
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
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.host.under_way().remove(&self.id);
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
        let host = Host::new("s", None);
        let ask = async |origin| host.request("elicitation/create", json!({"message": "?"}), origin).await.unwrap();
        assert_eq!(ask(None).await, json!({"action": "decline"}), "no call is under way");
        let (first, mut asked) = listener("call_1");
        let one = host.listen(1, json!(1), Some(first));
        let answering = async {
            let Ask { params, reply } = asked.recv().await.unwrap();
            assert_eq!(params["message"], "?");
            reply.send(json!({"action": "accept"})).unwrap();
        };
        assert_eq!(tokio::join!(ask(None), answering).0, json!({"action": "accept"}));
        let (second, mut asked_second) = listener("call_2");
        let two = host.listen(2, json!(2), Some(second));
        assert_eq!(ask(None).await, json!({"action": "decline"}), "it could be either");
        let answering = async { drop(asked_second.recv().await.unwrap().reply) };
        assert_eq!(tokio::join!(ask(Some(2)), answering).0, json!({"action": "cancel"}), "nobody answers any more");
        drop((one, two));
        assert_eq!(ask(Some(2)).await, json!({"action": "decline"}));
        assert_eq!(host.request("sampling/createMessage", json!({}), None).await.unwrap_err().0, -32601);
    }

    #[test]
    fn progress_is_told_for_calls_under_way_only() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&told);
        let host =
            Host::new("s", Some(Arc::new(move |progress: Progress| seen.lock().unwrap().push(progress.to_string()))));
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
