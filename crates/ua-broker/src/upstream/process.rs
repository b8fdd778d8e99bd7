//! One process of a tool server, or one session with an endpoint: requests and their answers, once each.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio_util::sync::CancellationToken;
use ua_core::{Env, ShowPath as _};
use ua_mcp::nameless::{Due, Sent};
use ua_mcp::{
    BrokenFrame, ENDED_FOR_ANOTHER, Effects, Frame, QueueSender, Relay, Relayed, ServerLog, answered_number, as_heard,
};

use super::lock;
use crate::ending::{Line, Lines};
use crate::era::Era;
use crate::incoming::CANCELLED;

/// One process, or one session with an endpoint.
pub(super) struct Process {
    pub(super) generation: String,
    pub(super) next: AtomicU64,
    pub(super) link: Link,
    /// How it is spoken with, once it was greeted.
    pub(super) era: OnceLock<Era>,
    /// Whether its tools were listed since it started.
    is_looked_at: AtomicBool,
    /// The calls with an effect that are under way in it.
    pub(super) effects: Effects,
}

/// How its messages get there.
pub(super) enum Link {
    Pipe(Arc<Pipe>),
    Remote { relay: Relay, under_way: AtomicUsize },
}

/// The pipes of a process.
pub(super) struct Pipe {
    pub(super) stdin: AsyncMutex<Option<ChildStdin>>,
    pub(super) pending: Mutex<Option<HashMap<u64, oneshot::Sender<Answer>>>>,
    pub(super) ended: CancellationToken,
    /// It is ended for the sake of another call.
    pub(super) is_ended_for_another: AtomicBool,
    pub(super) child: AsyncMutex<Child>,
    /// What the server writes to its standard error: most often why it ended.
    pub(super) stderr_log: PathBuf,
    /// That log, for what it writes to its standard output and is no message.
    pub(super) log: Mutex<ServerLog<File>>,
    /// What it was sent and has not answered.
    pub(super) sent: Mutex<Sent>,
    pub(super) env: Env,
}

/// What comes back for a request; the error says why it cannot be read.
pub(super) type Answer = Result<Value, String>;

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// No byte of it left.
    NotSent(String),
    /// It left, or may have.
    Lost(String),
    /// It was answered, with something that cannot be read.
    Unreadable(String),
    /// An HTTP status that is no success.
    Refused {
        status: u16,
        body: String,
        /// It says that the session is over; another one may be let in.
        of_session: bool,
        /// For how many seconds it asks to be left alone.
        retry_after: Option<u64>,
        /// Why it does not show that a call was not begun, although its status is one of those that do.
        doubt: Option<String>,
    },
}

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotSent(why) | Self::Lost(why) | Self::Unreadable(why) => f.write_str(why),
            Self::Refused { status, body, .. } => {
                let body: String = body.chars().map(|c| if c.is_control() { ' ' } else { c }).take(400).collect();
                write!(f, "it answered HTTP status {status}: {}", body.trim())
            }
        }
    }
}

impl Process {
    pub(super) fn new(generation: String, link: Link) -> Self {
        Self {
            generation,
            next: AtomicU64::new(1),
            link,
            era: OnceLock::new(),
            is_looked_at: AtomicBool::new(false),
            effects: Effects::default(),
        }
    }

    pub(super) fn is_looked_at(&self) -> bool {
        self.is_looked_at.load(Ordering::Acquire)
    }

    pub(super) fn was_looked_at(&self) {
        self.is_looked_at.store(true, Ordering::Release);
    }

    pub(super) fn has_ended(&self) -> bool {
        match &self.link {
            Link::Pipe(pipe) => pipe.ended.is_cancelled(),
            Link::Remote { relay, .. } => relay.is_over(),
        }
    }

    /// The identity of the login that its requests go with, or not at all; `None` where they go with none.
    ///
    /// # Errors
    /// There is a login, and no token can be had of it now.
    pub(super) async fn login(&self) -> Result<Option<String>, String> {
        match &self.link {
            Link::Pipe(_) => Ok(None),
            Link::Remote { relay, .. } => relay.login().await,
        }
    }

    /// Whether its session has been silent for so long that [`look`](Self::look) is called for before a call that may not simply be made again.
    pub(super) fn is_silent(&self) -> bool {
        match &self.link {
            Link::Pipe(_) => false,
            Link::Remote { relay, .. } => relay.is_silent(),
        }
    }

    /// Looks whether its session is still known, which has ended where it is not.
    pub(super) async fn look(&self) {
        if let Link::Remote { relay, .. } = &self.link {
            relay.look(self.next.fetch_add(1, Ordering::Relaxed)).await;
        }
    }

    pub(super) fn is_remote(&self) -> bool {
        matches!(self.link, Link::Remote { .. })
    }

    /// It is about to be ended; calls with an effect that are under way in it read why.
    pub(super) fn ends_for_another(&self) {
        if let Link::Pipe(pipe) = &self.link
            && self.effects.are_under_way()
        {
            pipe.is_ended_for_another.store(true, Ordering::Release);
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        match &self.link {
            Link::Pipe(pipe) => lock(&pipe.pending).as_ref().is_none_or(HashMap::is_empty),
            Link::Remote { under_way, .. } => under_way.load(Ordering::Acquire) == 0,
        }
    }

    pub(super) async fn write(&self, message: &Value) -> io::Result<()> {
        match &self.link {
            Link::Pipe(pipe) => pipe.write(message).await,
            Link::Remote { relay, .. } => relay.tell(message).await.map_err(io::Error::other),
        }
    }

    /// Tells the server that nobody waits for the answer to a request any more, as soon as it reads that; over HTTP the stream that is closed says it
    /// where requests stand for themselves.
    pub(super) fn is_not_waited_for(self: &Arc<Self>, number: u64) {
        if self.is_stateless() && self.is_remote() {
            return;
        }
        let process = self.clone();
        tokio::spawn(async move {
            let params = json!({"requestId": number, "reason": "nobody waits for the answer"});
            let _gone = process.write(&json!({"jsonrpc": "2.0", "method": CANCELLED, "params": params})).await;
        });
    }

    /// Whether each request stands for itself there.
    pub(super) fn is_stateless(&self) -> bool {
        self.era.get() == Some(&Era::Stateless)
    }

    pub(super) async fn request(&self, method: &str, params: Value) -> Result<Value, Unanswered> {
        self.request_named(method, params, &[], &|_| ()).await
    }

    /// One request, once. `headers` go with it where there are headers.
    pub(super) async fn request_named(
        &self,
        method: &str,
        params: Value,
        headers: &[(String, String)],
        named: &impl Fn(u64),
    ) -> Result<Value, Unanswered> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut message = json!({"jsonrpc": "2.0", "id": id, "method": method});
        if !params.is_null() {
            message["params"] = params;
        }
        let (relay, under_way) = match &self.link {
            Link::Pipe(pipe) => {
                let answer = pipe.expect(id)?;
                named(id);
                return pipe.request(id, &message, answer).await;
            }
            Link::Remote { relay, under_way } => (relay, under_way),
        };
        named(id);
        let _under_way = UnderWay::one(under_way);
        match relay.request(id, &message, headers).await {
            Relayed::Answer(answer) => Ok(answer),
            Relayed::Status { status, body, of_session, retry_after, doubt } => {
                Err(Unanswered::Refused { status, body, of_session, retry_after, doubt })
            }
            Relayed::NotSent(why) => Err(Unanswered::NotSent(why)),
            Relayed::Lost(why) => Err(Unanswered::Lost(why)),
        }
    }
}

/// A request that is counted until nobody waits for it.
struct UnderWay<'a>(&'a AtomicUsize);

impl<'a> UnderWay<'a> {
    fn one(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A request that nobody waits for any more when this is dropped.
struct Expected<'a> {
    pipe: &'a Pipe,
    id: u64,
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        if let Some(pending) = lock(&self.pipe.pending).as_mut() {
            pending.remove(&self.id);
        }
        lock(&self.pipe.sent).left(self.id);
    }
}

impl Pipe {
    async fn write(&self, message: &Value) -> io::Result<()> {
        let mut stdin = self.stdin.lock().await;
        let stdin = stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let request = message.get("method").and(message["id"].as_u64());
        lock(&self.sent).send(request, self.env.now());
        stdin.write_all(&line).await?;
        stdin.flush().await
    }

    /// Whoever is answered under this id from now on.
    fn expect(&self, id: u64) -> Result<oneshot::Receiver<Answer>, Unanswered> {
        let (answered, answer) = oneshot::channel();
        match lock(&self.pending).as_mut() {
            Some(pending) => pending.insert(id, answered),
            None => return Err(Unanswered::NotSent("the tool server has ended".to_owned())),
        };
        Ok(answer)
    }

    async fn request(&self, id: u64, message: &Value, answer: oneshot::Receiver<Answer>) -> Result<Value, Unanswered> {
        let _expected = Expected { pipe: self, id };
        if let Err(error) = self.write(message).await {
            // A part of it may be in the pipe.
            return Err(Unanswered::Lost(format!("the tool server ended while it was asked: {error}")));
        }
        if let Ok(answer) = answer.await {
            return answer.map_err(Unanswered::Unreadable);
        }
        if self.is_ended_for_another.load(Ordering::Acquire) {
            return Err(Unanswered::Lost(ENDED_FOR_ANOTHER.to_owned()));
        }
        let log = self.stderr_log.shown();
        tracing::warn!(%log, "a tool server ended before it answered");
        Err(Unanswered::Lost(format!("the tool server ended before it answered; what it wrote is in {log}")))
    }
}

/// Reads what the server says until it says nothing more.
pub(super) async fn read(stdout: ChildStdout, pipe: Arc<Pipe>, to_client: QueueSender<Value>) {
    let mut lines = Lines::of(BufReader::new(stdout));
    loop {
        let due_in = lock(&pipe.sent).due_in(pipe.env.now());
        let line = tokio::select! {
            biased;
            line = lines.next() => line,
            () = pipe.env.sleep_or_never(due_in) => {
                pipe.decide();
                continue;
            }
        };
        match line {
            Ok(Some(Line::Whole(line))) => pipe.hear(&line, &to_client),
            Ok(Some(Line::Torn(begun))) => pipe.hear_the_last(&begun),
            Ok(None) => break,
            Err(error) => {
                tracing::warn!(%error, log = %pipe.stderr_log.shown(), "a tool server is not listened to any more");
                if error.kind() == io::ErrorKind::FileTooLarge {
                    pipe.answer_all(&format!("the tool server's answer cannot be read: it sent {error}"));
                }
                break;
            }
        }
    }
    pipe.ended.cancel();
    // Whoever waits finds that nobody will answer, and nobody waits any more from now on.
    drop(lock(&pipe.pending).take());
}

impl Pipe {
    /// A line of the server. Bytes that are no text do not end a tool server; they are said to be missing.
    fn hear(self: &Arc<Self>, line: &[u8], to_client: &QueueSender<Value>) {
        let text = String::from_utf8_lossy(line);
        match Frame::of(text.as_bytes()) {
            Frame::Blank => {}
            // Its client may know what is meant without `jsonrpc`.
            Frame::Message(message) | Frame::Unmarked(message) if message.contains_key("method") => {
                to_client.put(as_heard(Value::Object(message)));
            }
            Frame::Message(message) | Frame::Unmarked(message) => self.answered(Value::Object(message)),
            Frame::Log => lock(&self.log).line(line),
            Frame::Broken(frame) => {
                lock(&self.log).line(line);
                self.unreadable(&frame);
            }
        }
        self.decide();
    }

    /// Tells whoever waits for what the server refused without naming it, and asks whether it reads on where that has to be known.
    fn decide(self: &Arc<Self>) {
        loop {
            let due = lock(&self.sent).due(self.env.now());
            match due {
                None => return,
                Some(Due::Refused(refused)) => {
                    for (number, why) in refused {
                        self.answer(number, Err(why));
                    }
                }
                Some(Due::Ping(number)) => {
                    let pipe = self.clone();
                    // Not here: it may read nothing until somebody reads what it says.
                    tokio::spawn(async move {
                        let ping = json!({"jsonrpc": "2.0", "id": number, "method": "ping"});
                        let _ended = pipe.write(&ping).await;
                    });
                }
            }
        }
    }

    /// The beginning of a line, behind which the server ended. It asks and tells nothing with it. An answer that is whole but for the end of its
    /// line is one: no beginning of a JSON object is an object, so nothing of it is missing, and what came is not lost.
    fn hear_the_last(&self, begun: &[u8]) {
        match Frame::of(begun) {
            Frame::Message(message) | Frame::Unmarked(message) if !message.contains_key("method") => {
                self.answered(Value::Object(message));
            }
            Frame::Log => lock(&self.log).line(begun),
            Frame::Message(_) | Frame::Unmarked(_) | Frame::Broken(_) | Frame::Blank => {
                tracing::warn!(bytes = begun.len(), "a tool server ended in the middle of a line, which was dropped");
            }
        }
    }

    fn answered(&self, message: Value) {
        let id = answered_number(&message["id"]);
        let has = |fields: &[&str]| fields.iter().any(|field| message.get(*field).is_some());
        if let Some(id) = id {
            if !lock(&self.sent).has_asked(id) {
                let why = "the tool server's answer cannot be read: it names a request that was not made";
                return lock(&self.sent).misnamed(why.to_owned(), self.env.now());
            }
            lock(&self.sent).answered(id);
            self.answer(id, Ok(message));
        } else if has(&["result", "error"]) && has(&["jsonrpc", "id"]) {
            let error = message.pointer("/error/message").and_then(Value::as_str);
            let why = match error {
                Some(said) => format!("the tool server said of something that it was sent, and not of what: {said}"),
                None => "the tool server's answer cannot be read: it names no request".to_owned(),
            };
            lock(&self.sent).nameless(why, self.env.now());
        }
    }

    /// A line that was meant as a message is the answer to the requests that it names.
    fn unreadable(&self, frame: &BrokenFrame) {
        tracing::warn!(why = frame.why, log = %self.stderr_log.shown(), "a message of a tool server cannot be read");
        if frame.is_no_answer {
            return;
        }
        let why = format!("the tool server's answer cannot be read: {}", frame.why);
        let numbers: Vec<u64> = frame.ids.iter().filter_map(answered_number).collect();
        for number in &numbers {
            lock(&self.sent).answered(*number);
            self.answer(*number, Err(why.clone()));
        }
        if numbers.is_empty() {
            lock(&self.sent).nameless(why, self.env.now());
        }
    }

    fn answer(&self, number: u64, answer: Answer) {
        let waiting = lock(&self.pending).as_mut().and_then(|pending| pending.remove(&number));
        if let Some(waiting) = waiting {
            let _gone = waiting.send(answer);
        }
    }

    /// Nothing more is read.
    fn answer_all(&self, why: &str) {
        for (_, waiting) in lock(&self.pending).as_mut().into_iter().flat_map(HashMap::drain) {
            let _gone = waiting.send(Err(why.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _};
    use std::process::Stdio;

    use super::*;

    /// What comes of so many requests to a server that is told something before them or not, and writes this once it has read all of them. It answers
    /// whether it reads on.
    async fn heard(is_told: bool, asked: u64, written: &str) -> Vec<Answer> {
        heard_and_logged(is_told, asked, written).await.0
    }

    /// The same, with what is in its log then.
    async fn heard_and_logged(is_told: bool, asked: u64, written: &str) -> (Vec<Answer>, String) {
        let mut log = tempfile::tempfile().unwrap();
        let read = asked + u64::from(is_told);
        let script = format!(
            "for i in $(seq {read}); do read line; done; printf '%s\\n' {written}
            while read line; do echo \"$line\" | sed 's/\"method\":\"ping\"/\"result\":{{}}/'; done"
        );
        let mut child = tokio::process::Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let pipe = Arc::new(Pipe {
            stdin: AsyncMutex::new(stdin),
            pending: Mutex::new(Some(HashMap::new())),
            is_ended_for_another: AtomicBool::new(false),
            ended: CancellationToken::new(),
            child: AsyncMutex::new(child),
            stderr_log: PathBuf::new(),
            log: Mutex::new(ServerLog::to(
                log.try_clone().unwrap(),
                [("TOKEN".to_owned(), "hunter2-hunter2".to_owned())],
            )),
            sent: Mutex::default(),
            env: Env::simulated(1),
        });
        let answers: Vec<_> = (1..=asked).map(|id| pipe.expect(id).unwrap()).collect();
        if is_told {
            pipe.write(&json!({"method": "notifications/cancelled"})).await.unwrap();
        }
        for id in 1..=asked {
            pipe.write(&json!({"id": id, "method": "tools/call"})).await.unwrap();
        }
        let (to_client, _heard) = ua_mcp::queue();
        let reading = tokio::spawn(super::read(stdout, pipe.clone(), to_client));
        let mut heard = Vec::new();
        for answer in answers {
            heard.push(answer.await.unwrap());
        }
        reading.abort();
        log.rewind().unwrap();
        let mut logged = String::new();
        log.read_to_string(&mut logged).unwrap();
        (heard, logged)
    }

    const GRUMBLES: &str = r#"'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}'"#;
    const LOGS: &str = r#"'{"level":"error","error":"disk","msg":"full"}'"#;

    /// A server that says that it could not read something: answers that follow are answers, and nobody waits for ever for one that does not.
    #[tokio::test]
    async fn an_error_that_names_no_request_takes_no_answer_away() {
        for is_told in [true, false] {
            let written = format!(r#"{GRUMBLES} '{{"id":2,"result":{{}}}}'"#);
            let heard = heard(is_told, 2, &written).await;
            assert!(heard[1].is_ok() && heard[0].as_ref().is_err_and(|why| why.contains("what?")), "{heard:?}");
        }
        let written = format!(r#"{GRUMBLES} '{{"id":1,"result":{{}}}}'"#);
        assert!(heard(true, 1, &written).await[0].is_ok(), "it was told something before");
        assert!(heard(false, 1, &written).await[0].is_err(), "it was asked this alone");
        let strange = r#"'{"jsonrpc":"2.0","id":99,"result":{}}' '{"id":1,"result":{}}'"#;
        assert!(heard(false, 1, strange).await[0].is_ok(), "it was asked nothing by that number");
        let written = format!(r#"{LOGS} '{{"id":1,"result":{{}}}}'"#);
        assert!(heard(false, 1, &written).await[0].is_ok(), "it was no answer");
    }

    /// Whatever was meant as the answer of a call ends its waiting, however it is written; and it is in the log, to be looked at.
    #[tokio::test]
    async fn a_broken_frame_is_the_answer_of_the_call_that_waits() {
        for line in [
            r#"{"jsonrpc": "2.0", "id": 1, "result": {"content": ["#,
            r#"{"jsonrpc": "2.0", "id": 1, "result": {}, "result": {}}"#,
            r#"[{"jsonrpc": "2.0", "id": 1, "result": {}}]"#,
            r#"{"jsonrpc": "2.0", "id": 99, "result": {}}"#,
            r#"{ jsonrpc: "2.0", id: 1, result: { content: [] } }"#,
            r#"DEBUG sending {"jsonrpc": "2.0", "id": 1, "result": {}}"#,
            "{\"jsonrpc\": \"2.0\", \"id\": 1, \"result\": {}",
        ] {
            let heard = heard(false, 1, &format!("'{line}'")).await;
            assert!(heard[0].as_ref().is_err_and(|why| why.contains("cannot be read")), "{line}: {heard:?}");
        }
        let python = r#""{'jsonrpc': '2.0', 'id': 1, 'result': {'content': []}}""#;
        let (heard, logged) = heard_and_logged(false, 1, python).await;
        assert!(heard[0].is_err() && logged.contains("'jsonrpc': '2.0'"), "{heard:?} {logged}");
    }

    /// A server that takes its output for a log is read there, without what is secret, and its calls are answered.
    #[tokio::test]
    async fn a_log_on_the_output_is_in_the_log_of_the_server() {
        let written =
            r#"'[info] up with hunter2-hunter2' '{"level":"info","id":1}' '{"jsonrpc":"2.0","id":1.0,"result":{}}'"#;
        let (heard, logged) = heard_and_logged(false, 1, written).await;
        assert!(heard[0].is_ok(), "{heard:?}");
        assert_eq!(logged, "[info] up with [secret TOKEN]\n{\"level\":\"info\",\"id\":1}\n");
    }
}
