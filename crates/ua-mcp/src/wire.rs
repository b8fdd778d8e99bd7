//! One tool server's two pipes, as a transport of MCP messages.
//!
//! Two things are settled here that a ledger depends on. *Was it sent?* The first byte of a tool call is written only while
//! the pipe is open, and a pipe that was closed is never written again, so "not begun and closed" proves that the server
//! saw nothing. *What was answered?* The result of a request is handed on as the JSON that came, not as a client library
//! understood it (Context Storage & Durability §4: a receipt is stored raw). A message that breaks the protocol ends the
//! connection, since a reply that cannot be recognised would otherwise be waited for without end, and so does an answer to
//! a call that waits without being a message of the protocol. A call that is answered twice, and otherwise, was not answered: of one with an effect
//! nobody knows what it came to. What is said of nothing that is named, or of what was never asked, ends it
//! once it is known to be said of a request ([`Sent`]); other lines that are no messages (a server that logs to its output) are passed over, told about
//! once, and quoted by a call that is given up.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    ClientRequest, CustomNotification, CustomRequest, CustomResult, ErrorCode, ErrorData, JsonRpcError, JsonRpcMessage,
    JsonRpcNotification, JsonRpcRequest, JsonRpcResponse, JsonRpcVersion2_0, RequestId, ServerNotification,
    ServerRequest, ServerResult,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Notify;
use ua_core::Env;

use crate::amount;
use crate::exchange::{BY_ADDRESS, CALL, NO_METHOD};
use crate::frame::Frame;
use crate::host::method_and_params;
use crate::nameless::{Due, Sent};

/// The longest message that is read into memory. A longer one ends the connection.
pub(crate) const MAX_LINE: usize = 64 * 1024 * 1024;
/// The longest result of a tool call that is kept.
const MAX_RESULT: usize = 8 * 1024 * 1024;

/// How many of a server's own requests may wait for their answers to be written. One that asks and does not read what it is answered would fill the
/// memory.
const MOST_OWED: usize = 10_000;

/// How much is kept of a line that is no message. More than is shown: it is redacted first, and half of a secret is not recognised.
const MAX_STRAY: usize = 4096;
/// The notification as which such a line is handed on.
pub(crate) const STRAY: &str = "dev.universal-agent/stray";

/// The notification as which it is handed on that a call was answered a second time, and otherwise.
pub(crate) const SECOND_ANSWER: &str = "dev.universal-agent/second-answer";
/// Of how many calls it is kept how they were answered, and of how many it is kept that their progress was told.
const MOST_ANSWERED: usize = 64;
/// How long it is waited for a second answer behind one that says that a call was not begun, which would let it be made again.
pub(crate) const SECOND_PATIENCE: Duration = Duration::from_millis(250);

/// What is known about a connection; shared by the transport and by those who wait for answers.
#[derive(Debug, Default)]
pub(crate) struct WireState {
    inner: Mutex<Inner>,
    /// Told when a call is answered a second time, or the connection ends.
    heard: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// Requests that were handed over and not answered.
    awaited: BTreeSet<i64>,
    /// What was written and not answered, and what was said of it without a name.
    sent: Sent,
    /// Requests of which a byte may have been written.
    begun: BTreeSet<i64>,
    /// The highest request id used.
    highest: i64,
    /// Nothing will be written any more.
    writer_closed: bool,
    /// Why nothing will be read any more.
    ended: Option<String>,
    /// Lines that were no message.
    strays: Strays,
    /// Requests of the server whose answers are not written.
    owed: usize,
    /// The requests of `awaited` that are calls.
    calls: BTreeSet<i64>,
    /// The requests that were answered last.
    answered: VecDeque<Answered>,
    /// The tokens of the calls whose progress was told last, as JSON.
    progressed: VecDeque<String>,
}

/// How a request was answered.
#[derive(Debug)]
struct Answered {
    id: i64,
    says: Says,
    /// What a second answer says, if it says the contrary.
    denied_by: Option<Says>,
    /// Whether the one who made the call has not taken the answer yet; whoever has is told of a second one.
    is_open: bool,
}

/// What an answer says of its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Says {
    /// It is done.
    Done,
    /// It failed, whatever it has done.
    Failed,
    /// It was not begun: there is no such tool, it takes no such arguments, or somebody has to be at an address first.
    NotBegun,
}

impl Says {
    fn of(message: &Map<String, Value>) -> Self {
        match message.get("error").filter(|error| !error.is_null()) {
            Some(error) => error.get("code").and_then(whole_number).map_or(Self::Failed, Self::of_error),
            None => message.get("result").map_or(Self::Done, Self::of_result),
        }
    }

    /// What an error with this code says.
    pub(crate) fn of_error(code: i64) -> Self {
        if matches!(code, NO_METHOD | -32602 | BY_ADDRESS) { Self::NotBegun } else { Self::Failed }
    }

    /// What a result says.
    pub(crate) fn of_result(result: &Value) -> Self {
        let is_error = result.get("isError").and_then(Value::as_bool);
        if is_error == Some(true) { Self::Failed } else { Self::Done }
    }

    /// Whether an answer that says this is denied by another one. Who was told that a call was not begun makes it again, so that it failed somewhere
    /// is the contrary, too.
    pub(crate) fn is_denied_by(self, other: Self) -> bool {
        match self {
            Self::Done => other != Self::Done,
            Self::Failed => other == Self::Done,
            Self::NotBegun => other != Self::NotBegun,
        }
    }

    /// Whether it says that its call failed.
    pub(crate) fn is_failure(self) -> bool {
        self != Self::Done
    }

    /// As a clause.
    pub(crate) const fn in_words(self) -> &'static str {
        match self {
            Self::Done => "that it is done",
            Self::Failed => "that it failed",
            Self::NotBegun => "that it was not begun",
        }
    }
}

/// Lines that were no message: how many, and the beginnings of the first and the last of them.
#[derive(Debug, Default)]
struct Strays {
    count: u64,
    first: String,
    last: String,
}

impl WireState {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the connection ended, if it did.
    pub(crate) fn ended(&self) -> Option<String> {
        self.inner().ended.clone()
    }

    /// The beginning of the first line that was no message: what a server prints that takes its standard output for a log.
    pub(crate) fn first_stray(&self) -> Option<String> {
        let inner = self.inner();
        (inner.strays.count > 0).then(|| inner.strays.first.clone())
    }

    /// How many lines were no message so far.
    pub(crate) fn strays(&self) -> u64 {
        self.inner().strays.count
    }

    /// The beginning of the last line that was no message, if there are more than `count`.
    pub(crate) fn stray_since(&self, count: u64) -> Option<String> {
        let inner = self.inner();
        (inner.strays.count > count).then(|| inner.strays.last.clone())
    }

    /// Whether it is proved that no byte of this request was written or will be.
    pub(crate) fn was_never_sent(&self, id: &RequestId) -> bool {
        let inner = self.inner();
        number(id).is_some_and(|id| inner.writer_closed && !inner.begun.contains(&id))
    }

    /// What a call that was answered was answered first, and what next, if that is the contrary. What comes from now on is told of. Behind an answer
    /// by which it may be made again the next one is waited for, if `is_waited_for`; of others only what came with them is known.
    pub(crate) async fn second_answer(&self, id: &RequestId, is_waited_for: bool, env: &Env) -> Option<(Says, Says)> {
        let id = number(id)?;
        if is_waited_for && self.is_said_not_begun(id) {
            let mut over = env.clock.sleep(SECOND_PATIENCE);
            loop {
                let heard = self.heard.notified();
                if !self.is_said_not_begun(id) || self.ended().is_some() {
                    break;
                }
                tokio::select! {
                    biased;
                    () = heard => {}
                    () = &mut over => break,
                }
            }
        }
        let mut inner = self.inner();
        let at = inner.answered.iter().position(|answered| answered.id == id)?;
        let answered = &mut inner.answered[at];
        answered.is_open = false;
        let denied = (answered.says, answered.denied_by?);
        inner.answered.remove(at);
        Some(denied)
    }

    /// Whether a call is said not to be begun, and nothing else of it.
    fn is_said_not_begun(&self, id: i64) -> bool {
        let is_one =
            |answered: &Answered| answered.id == id && answered.says == Says::NotBegun && answered.denied_by.is_none();
        self.inner().answered.iter().any(is_one)
    }

    /// Whether the progress of the call with this token was told.
    pub(crate) fn has_progressed(&self, token: &Value) -> bool {
        let token = token.to_string();
        self.inner().progressed.contains(&token)
    }

    /// Nobody waits for this request any more; a late answer is dropped.
    pub(crate) fn forget(&self, id: &RequestId) {
        if let Some(id) = number(id) {
            let mut inner = self.inner();
            inner.awaited.remove(&id);
            inner.calls.remove(&id);
            inner.begun.remove(&id);
            inner.sent.left(id.unsigned_abs());
            if let Some(answered) = inner.answered.iter_mut().find(|answered| answered.id == id) {
                answered.is_open = false;
            }
        }
    }

    /// The connection ends, and this is why.
    pub(crate) fn end(&self, why: &str) {
        self.inner().ended.get_or_insert_with(|| why.to_owned());
        self.heard.notify_waiters();
    }
}

/// An answer to the server, until it is written or given up.
struct Owed(Arc<WireState>);

impl Drop for Owed {
    fn drop(&mut self) {
        let mut inner = self.0.inner();
        inner.owed = inner.owed.saturating_sub(1);
    }
}

/// The number of a request id of ours; servers may send it back as text.
fn number(id: &RequestId) -> Option<i64> {
    match id {
        RequestId::Number(number) => Some(*number),
        RequestId::String(text) => text.parse().ok(),
    }
}

/// The transport.
pub(crate) struct Wire<R, W> {
    reader: BufReader<R>,
    /// The line that is being read. Kept here because a read is dropped whenever something else happens first.
    line: Vec<u8>,
    writer: Arc<tokio::sync::Mutex<Option<W>>>,
    state: Arc<WireState>,
    env: Env,
}

impl<R: AsyncRead + Unpin, W> Wire<R, W> {
    pub(crate) fn new(reader: R, writer: W, env: Env) -> (Self, Arc<WireState>) {
        let state = Arc::new(WireState::default());
        let writer = Arc::new(tokio::sync::Mutex::new(Some(writer)));
        (Self { reader: BufReader::new(reader), line: Vec::new(), writer, state: Arc::clone(&state), env }, state)
    }

    /// Reads up to the next line's end, or to the end of a whole message behind which there is nothing; the error says why there will be none.
    async fn read_line(&mut self) -> Result<Vec<u8>, String> {
        loop {
            let room = MAX_LINE.saturating_sub(self.line.len());
            let mut limited = (&mut self.reader).take(room as u64);
            let length = limited
                .read_until(b'\n', &mut self.line)
                .await
                .map_err(|error| format!("its output cannot be read: {error}"))?;
            if self.line.ends_with(b"\n") {
                return Ok(std::mem::take(&mut self.line));
            }
            if self.line.len() >= MAX_LINE {
                return Err(format!("it sent a message of more than {MAX_LINE} bytes"));
            }
            if length == 0 {
                // A server that ends may leave out the last line's end. What is a whole object is the beginning of no other one.
                if is_whole(&self.line) {
                    return Ok(std::mem::take(&mut self.line));
                }
                let how = if self.line.is_empty() {
                    "it closed its output"
                } else {
                    "it closed its output in the middle of a message"
                };
                return Err(how.to_owned());
            }
        }
    }
}

impl<R, W> Wire<R, W>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    /// What comes next: a line, or the time at which something that was said without a name is taken for the answer of a request.
    async fn read(&mut self) -> Read {
        let now = self.env.now();
        let due = self.state.inner().sent.due(now);
        match due {
            // Which request was refused may be a guess, and what a server does that refuses what it cannot have read is one as well.
            Some(Due::Refused(refused)) => {
                let whys: BTreeSet<String> = refused.into_iter().map(|(_, why)| why).collect();
                return broken(&whys.into_iter().collect::<Vec<_>>().join("; "));
            }
            Some(Due::Ping(number)) => {
                self.ask_whether_it_reads_on(number);
                return Read::Nothing;
            }
            None => {}
        }
        let due_in = self.state.inner().sent.due_in(now);
        let env = self.env.clone();
        let line = tokio::select! {
            biased;
            line = self.read_line() => line,
            () = env.sleep_or_never(due_in) => return Read::Nothing,
        };
        match line {
            Ok(line) => {
                let mut state = self.state.inner();
                let read = read_message(&line, &mut state);
                if is_answer(&read) {
                    look_behind(self.reader.buffer(), &mut state);
                }
                if state.answered.iter().any(|answered| answered.is_open && answered.denied_by.is_some()) {
                    self.state.heard.notify_waiters();
                }
                counted(read, &mut state)
            }
            Err(why) => Read::Broken(why),
        }
    }

    /// Not here: it may read nothing until somebody reads what it says.
    fn ask_whether_it_reads_on(&self, number: u64) {
        let (writer, state, env) = (Arc::clone(&self.writer), Arc::clone(&self.state), self.env.clone());
        tokio::spawn(async move {
            let ping = format!("{}\n", json!({"jsonrpc": "2.0", "id": number, "method": "ping"}));
            let mut writer = writer.lock().await;
            let Some(writer) = writer.as_mut() else { return };
            state.inner().sent.send(Some(number), env.now());
            if let Err(error) = writer.write_all(ping.as_bytes()).await {
                tracing::debug!(%error, "a tool server cannot be asked whether it reads on");
            }
        });
    }
}

impl<R, W> Transport<RoleClient> for Wire<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let (request, call) = match &item {
            JsonRpcMessage::Request(request) => {
                let id = number(&request.id);
                let mut inner = self.state.inner();
                inner.highest = inner.highest.max(id.unwrap_or(0));
                let method = if let ClientRequest::CustomRequest(custom) = &request.request {
                    Some(custom.method.as_str())
                } else {
                    None
                };
                if method == Some(CALL) {
                    inner.calls.extend(id);
                }
                (id.map(i64::unsigned_abs), id.filter(|id| method.is_some() && inner.awaited.insert(*id)))
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Notification(_) | JsonRpcMessage::Error(_) => (None, None),
        };
        let line = serde_json::to_vec(&item).map(|mut line| {
            line.push(b'\n');
            line
        });
        let (writer, state, env) = (Arc::clone(&self.writer), Arc::clone(&self.state), self.env.clone());
        let is_answer = matches!(item, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_));
        let owed = is_answer.then(|| Owed(Arc::clone(&state)));
        async move {
            let _owed = owed;
            let line = line?;
            let mut writer = writer.lock().await;
            let Some(writer) = writer.as_mut() else { return Err(io::ErrorKind::NotConnected.into()) };
            {
                let mut inner = state.inner(); // under the writer's lock, as `close` is
                inner.begun.extend(call);
                inner.sent.send(request, env.now());
            }
            writer.write_all(&line).await?;
            writer.flush().await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            match self.read().await {
                Read::Message(message) => return Some(*message),
                Read::Nothing => {}
                Read::Nameless(why) => self.state.inner().sent.nameless(why, self.env.now()),
                Read::Misnamed(why) => self.state.inner().sent.misnamed(why, self.env.now()),
                Read::Broken(why) => {
                    tracing::debug!(why, "the connection to a tool server ends");
                    self.state.end(&why);
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        let mut writer = self.writer.lock().await;
        self.state.inner().writer_closed = true;
        drop(writer.take());
        Ok(())
    }
}

/// What a line turned out to be.
#[derive(Debug)]
enum Read {
    Message(Box<RxJsonRpcMessage<RoleClient>>),
    /// No message, or one that nobody waits for.
    Nothing,
    /// Said of something that it was sent, and not of what.
    Nameless(String),
    /// The answer to what it was never asked, while a call waits.
    Misnamed(String),
    /// The end of the connection.
    Broken(String),
}

/// The same, unless it is one more request than answers may wait.
fn counted(read: Read, state: &mut Inner) -> Read {
    let is_request = matches!(&read, Read::Message(message) if matches!(**message, JsonRpcMessage::Request(_)));
    state.owed += usize::from(is_request);
    if state.owed > MOST_OWED { Read::Broken("it asks and does not read what it is answered".to_owned()) } else { read }
}

fn broken(why: &str) -> Read {
    Read::Broken(format!("it broke the protocol: {why}"))
}

fn read_message(line: &[u8], state: &mut Inner) -> Read {
    let message = match Frame::with_forms(line) {
        Frame::Blank => return Read::Nothing,
        Frame::Message(message) => message,
        Frame::Broken(frame) => return broken(&format!("a message cannot be read: {}", frame.why)),
        Frame::Unmarked(message) if is_meant_for_a_call(&message, state) => {
            return broken("an answer to a call that waits does not say `jsonrpc`");
        }
        Frame::Unmarked(_) | Frame::Log => return stray(line, state),
    };
    if message.contains_key("method") {
        note_progress(&message, state);
        read_request(message)
    } else if answers_nothing(&message, state) {
        stray(line, state)
    } else {
        read_response(message, line.len(), state)
    }
}

/// Whether a message that asks and tells nothing answers nothing either: it names no call that waits, and has neither a result nor an error. Whatever
/// has one of these may be the answer of a call, under whichever name.
fn answers_nothing(message: &Map<String, Value>, state: &Inner) -> bool {
    let has_answer = message.contains_key("result") || message.contains_key("error");
    !has_answer && !answered_id(message).is_some_and(|id| state.awaited.contains(&id))
}

/// A line that is no message is counted, and handed on as what it is: told to a person, and answered by nobody.
fn stray(line: &[u8], state: &mut Inner) -> Read {
    let beginning = line.get(..MAX_STRAY).unwrap_or(line);
    let beginning = String::from_utf8_lossy(beginning).trim().to_owned();
    if state.strays.count == 0 {
        state.strays.first.clone_from(&beginning);
    }
    state.strays.count += 1;
    state.strays.last.clone_from(&beginning);
    told(STRAY, json!({ "line": beginning }))
}

/// Whether what is no message of the protocol names a request that waits, and has what only an answer has: waiting on would be in vain.
fn is_meant_for_a_call(message: &Map<String, Value>, state: &Inner) -> bool {
    let has_answer = message.contains_key("result") || message.contains_key("error");
    has_answer && answered_id(message).is_some_and(|id| state.awaited.contains(&id))
}

/// Whether a line without its end is a whole object all the same.
fn is_whole(line: &[u8]) -> bool {
    let reads = |line: &[u8]| serde_json::from_slice::<Map<String, Value>>(line).is_ok();
    let shallow = amount::shallow(line);
    let line = shallow.as_deref().unwrap_or(line);
    let with_null = amount::without_odd_numbers(line);
    let line = with_null.as_deref().unwrap_or(line);
    reads(line) || amount::whole_characters(line).is_some_and(|line| reads(&line))
}

/// A request or a notification of the server, handed on as it came: what it means is for our side of the connection to say.
fn read_request(mut message: Map<String, Value>) -> Read {
    let id = match message.get("id") {
        // JSON-RPC 1.0 writes a notification so.
        None | Some(Value::Null) => None,
        Some(Value::String(id)) => Some(RequestId::String(id.as_str().into())),
        Some(id) => match whole_number(id) {
            Some(id) => Some(RequestId::Number(id)),
            None => return broken("a request's id is neither a number nor text"),
        },
    };
    let (method, params) = method_and_params(&mut message);
    let (jsonrpc, params) = (JsonRpcVersion2_0, Some(params));
    Read::Message(Box::new(if let Some(id) = id {
        let request = ServerRequest::CustomRequest(CustomRequest::new(method, params));
        JsonRpcMessage::Request(JsonRpcRequest { jsonrpc, id, request })
    } else {
        let notification = ServerNotification::CustomNotification(CustomNotification::new(method, params));
        JsonRpcMessage::Notification(JsonRpcNotification { jsonrpc, notification })
    }))
}

fn read_response(mut message: Map<String, Value>, length: usize, state: &mut Inner) -> Read {
    let id = answered_id(&message);
    let Some(id) = id.filter(|id| (0..=state.highest).contains(id)) else {
        let Some(id) = id else { return nameless(&message) };
        if Sent::is_ping(id.unsigned_abs()) {
            state.sent.answered(id.unsigned_abs());
            return Read::Nothing;
        }
        // An answer to nothing that was asked. It may be meant for a call that waits, and the call's own answer may come behind it.
        if state.awaited.is_empty() {
            tracing::debug!("passing over an answer to no request");
            return Read::Nothing;
        }
        return Read::Misnamed("it answered a request that was not made".to_owned());
    };
    state.sent.answered(id.unsigned_abs());
    if !state.awaited.remove(&id) {
        return answered_again(id, &message, state);
    }
    if state.answered.len() == MOST_ANSWERED {
        state.answered.pop_front();
    }
    let is_open = state.calls.remove(&id);
    state.answered.push_back(Answered { id, says: Says::of(&message), denied_by: None, is_open });
    let id = RequestId::Number(id);
    Read::Message(Box::new(match answer(&mut message) {
        Ok(Answer::Result(result)) => {
            let result = ServerResult::CustomResult(CustomResult(bounded(result, length)));
            JsonRpcMessage::Response(JsonRpcResponse { jsonrpc: JsonRpcVersion2_0, id, result })
        }
        Ok(Answer::Error { code, message, data }) => {
            JsonRpcMessage::Error(JsonRpcError::new(Some(id), ErrorData::new(ErrorCode(code), message, data)))
        }
        Err(why) => return broken(why),
    }))
}

/// An answer that nobody waits for any more. Where the call was answered otherwise before, whoever takes the first answer hears of it; where that
/// one is taken, it is told, once: nobody else would hear that its server said the contrary, too.
fn answered_again(id: i64, message: &Map<String, Value>, state: &mut Inner) -> Read {
    let says = Says::of(message);
    let Some(at) = state.answered.iter().position(|answered| answered.id == id && answered.says.is_denied_by(says))
    else {
        tracing::debug!("passing over an answer that nobody waits for any more");
        return Read::Nothing;
    };
    if state.answered[at].is_open {
        state.answered[at].denied_by.get_or_insert(says);
        return Read::Nothing;
    }
    state.answered.remove(at);
    told(SECOND_ANSWER, json!({ "request": id, "failed": says.is_failure() }))
}

fn is_answer(read: &Read) -> bool {
    matches!(read, Read::Message(message) if matches!(**message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)))
}

/// Looks into what came with the newest answer to a call, so that whoever takes that answer knows of another one.
fn look_behind(behind: &[u8], state: &mut Inner) {
    let Some(newest) = state.answered.back_mut().filter(|newest| newest.is_open) else { return };
    for line in behind.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
        let Frame::Message(message) = Frame::with_forms(line) else { continue };
        let is_answer = message.contains_key("result") || message.contains_key("error");
        if is_answer && !message.contains_key("method") && answered_id(&message) == Some(newest.id) {
            let says = Says::of(&message);
            newest.denied_by = newest.denied_by.or(Some(says).filter(|says| newest.says.is_denied_by(*says)));
        }
    }
}

/// Keeps that the progress of a call was told: such a call was begun, whatever is said of it later.
fn note_progress(message: &Map<String, Value>, state: &mut Inner) {
    let is_progress = message.get("method").is_some_and(|method| method == "notifications/progress");
    let token = message.get("params").and_then(|params| params.get("progressToken"));
    let Some(token) = token.filter(|_| is_progress).map(Value::to_string) else { return };
    if token.len() > MAX_STRAY || state.progressed.contains(&token) {
        return;
    }
    if state.progressed.len() == MOST_ANSWERED {
        state.progressed.pop_front();
    }
    state.progressed.push_back(token);
}

/// A notification of our own, to our side of the connection.
fn told(method: &'static str, params: Value) -> Read {
    let notification = ServerNotification::CustomNotification(CustomNotification::new(method, Some(params)));
    let told = JsonRpcNotification { jsonrpc: JsonRpcVersion2_0, notification };
    Read::Message(Box::new(JsonRpcMessage::Notification(told)))
}

fn nameless(message: &Map<String, Value>) -> Read {
    let said = message.get("error").and_then(|error| error.get("message")).and_then(Value::as_str);
    Read::Nameless(match said {
        Some(said) => format!("it said of something that it was sent, and not of what: {said}"),
        None => "it answered a request and did not name it".to_owned(),
    })
}

/// What a response says.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Its result, as it came.
    Result(Value),
    /// Its error.
    Error {
        /// The code.
        code: i32,
        /// The message; empty when it had none.
        message: String,
        /// What it says besides, of an error that is no failure ([`BY_ADDRESS`]).
        data: Option<Value>,
    },
}

/// Takes the answer out of a response; the error says how the response breaks the protocol.
pub(crate) fn answer(message: &mut Map<String, Value>) -> Result<Answer, &'static str> {
    // JSON-RPC 1.0 has both fields always, and one of them is null.
    match (message.remove("result"), message.remove("error").filter(|error| !error.is_null())) {
        (Some(result), None) => Ok(Answer::Result(result)),
        (None | Some(Value::Null), Some(error)) => {
            let code = error.get("code").and_then(whole_number).and_then(|code| i32::try_from(code).ok());
            let code = code.ok_or("an error has no code")?;
            let message = error.get("message").and_then(Value::as_str).unwrap_or_default().to_owned();
            let data = error.get("data").filter(|_| i64::from(code) == BY_ADDRESS).cloned();
            Ok(Answer::Error { code, message, data })
        }
        (Some(_), Some(_)) | (None, None) => Err("an answer has neither a result nor an error, or both"),
    }
}

/// The number that a response gives as its id.
pub(crate) fn answered_id(message: &Map<String, Value>) -> Option<i64> {
    message.get("id").and_then(whole_number)
}

/// A whole number, which some servers send as text, and some with a point and nothing behind it.
pub(crate) fn whole_number(value: &Value) -> Option<i64> {
    let exact = |number: f64| {
        /// Up to here each whole number is one of its own.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        let is_whole = number.fract() == 0.0 && (-EXACT..EXACT).contains(&number);
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and exact")]
        is_whole.then_some(number as i64)
    };
    match value {
        Value::Number(number) => number.as_i64().or_else(|| number.as_f64().and_then(exact)),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// What is said in the place of a result that was too big.
pub(crate) const DROPPED: &str = "was too large and was dropped";

/// Replaces a result that is too big to keep. It stays a success or a failure, as the server said.
pub(crate) fn bounded(result: Value, length: usize) -> Value {
    if length <= MAX_RESULT {
        return result;
    }
    let bytes = result.to_string().len();
    if bytes <= MAX_RESULT {
        return result;
    }
    let text = format!("[the result of {bytes} bytes {DROPPED}; the call itself ended]");
    let mut short = json!({ "content": [{ "type": "text", "text": text }] });
    if let Some(is_error) = result.get("isError") {
        short["isError"] = is_error.clone();
    }
    short
}

#[cfg(test)]
mod tests {
    use rmcp::model::{ClientNotification, RootsListChangedNotification};

    use super::*;

    fn waiting_for(ids: &[i64]) -> Inner {
        Inner { awaited: ids.iter().copied().collect(), highest: 5, ..Inner::default() }
    }

    fn raw(read: Read) -> Value {
        let Read::Message(message) = read else { panic!("{read:?}") };
        match *message {
            JsonRpcMessage::Response(JsonRpcResponse {
                result: ServerResult::CustomResult(CustomResult(value)),
                ..
            }) => value,
            JsonRpcMessage::Error(error) => json!({"code": error.error.code.0, "message": error.error.message}),
            JsonRpcMessage::Response(_) | JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => {
                panic!("{message:?}")
            }
        }
    }

    #[test]
    fn the_result_of_a_call_is_handed_on_as_it_came() {
        let mut state = waiting_for(&[3]);
        let line =
            br#"{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"new","x":18446744073709551615}],"own":null}}"#;
        let expected = json!({"content": [{"type": "new", "x": u64::MAX}], "own": null});
        assert_eq!(raw(read_message(line, &mut state)), expected);
        assert!(state.awaited.is_empty());
    }

    #[test]
    fn an_answer_may_give_the_id_back_as_text() {
        assert_eq!(raw(read_message(br#"{"jsonrpc":"2.0","id":"3","result":{}}"#, &mut waiting_for(&[3]))), json!({}));
    }

    #[test]
    fn a_number_that_is_a_text_or_has_a_point_is_that_number() {
        let read = |line: &str| read_message(line.as_bytes(), &mut waiting_for(&[3]));
        for id in ["3", "3.0", "\"3\"", "3e0"] {
            for code in ["-32601", "-32601.0", "\"-32601\""] {
                let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"no"}}}}"#);
                assert_eq!(raw(read(&line)), json!({"code": -32601, "message": "no"}), "{line}");
            }
            let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#);
            assert_eq!(raw(read(&line)), json!({"content": []}), "{line}");
        }
        for id in ["3.5", "1e300", "true", "\"three\"", "{}"] {
            let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
            assert!(matches!(read(&line), Read::Nameless(_)), "{line}");
        }
        for code in ["0.5", "1e300", "\"ENOENT\"", "null"] {
            let line = format!(r#"{{"jsonrpc":"2.0","id":3,"error":{{"code":{code},"message":"no"}}}}"#);
            assert!(matches!(read(&line), Read::Broken(_)), "{line}");
        }
    }

    /// Python's `json.dumps` writes what is no JSON for what is no number.
    #[test]
    fn what_is_no_number_costs_no_answer_and_is_said() {
        let line = br#"{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"NaN -Infinity"}],"structuredContent":{"a":NaN,"b":[-Infinity, Infinity,1]}}}"#;
        let result = raw(read_message(line, &mut waiting_for(&[3])));
        assert_eq!(result["structuredContent"], json!({"a": null, "b": [null, null, 1]}));
        assert_eq!(result["content"][0]["text"], json!("NaN -Infinity"), "a text is a text");
        assert!(result["content"].to_string().contains("as null"), "{result}");
        let asked = br#"{"jsonrpc":"2.0","id":9,"method":"roots/list","params":{"a":NaN}}"#;
        assert!(
            matches!(read_message(asked, &mut waiting_for(&[3])), Read::Broken(_)),
            "what is asked for is done as it was"
        );
        let half = br#"{"jsonrpc":"2.0","id":3,"result":{"a":Na"#;
        assert!(matches!(read_message(half, &mut waiting_for(&[3])), Read::Broken(_)));
    }

    #[test]
    fn a_field_that_is_null_beside_the_other_one_is_none() {
        let read = |line: &str| raw(read_message(line.as_bytes(), &mut waiting_for(&[3])));
        assert_eq!(read(r#"{"jsonrpc":"2.0","id":3,"result":{"a":1},"error":null}"#), json!({"a": 1}));
        let error = r#"{"jsonrpc":"2.0","id":3,"result":null,"error":{"code":-32602,"message":"no"}}"#;
        assert_eq!(read(error), json!({"code": -32602, "message": "no"}));
        assert_eq!(read("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}"), json!({}), "a byte order mark");
    }

    #[test]
    fn an_error_keeps_its_code() {
        let line = br#"{"jsonrpc":"2.0","id":3,"error":{"code":-32602,"message":"no","data":{"a":1}}}"#;
        assert_eq!(raw(read_message(line, &mut waiting_for(&[3]))), json!({"code": -32602, "message": "no"}));
    }

    #[test]
    fn what_may_have_been_an_answer_ends_the_connection() {
        let lines: [&[u8]; 10] = [
            br#"{"jsonrpc":"2.0","id":3,"result":{"content":["#,
            br#"{"jsonrpc":"2.0","id":3}"#,
            br#"{"jsonrpc":"2.0","id":3,"error":{"message":"no code"}}"#,
            br#"[{"jsonrpc":"2.0","id":3,"result":{}}]"#,
            br#"{"id":3,"result":{}}"#,
            br#"{"id":"3","error":{"code":1,"message":"m"}}"#,
            b"{'jsonrpc': '2.0', 'id': 3, 'result': {'content': []}}",
            b"{ jsonrpc: '2.0', id: 3, result: { content: [] } }",
            b"  jsonrpc: '2.0',",
            br#"DEBUG sending {"jsonrpc": "2.0", "id": 3, "result": {}}"#,
        ];
        for line in lines {
            let read = read_message(line, &mut waiting_for(&[3]));
            assert!(matches!(read, Read::Broken(_)), "{}: {read:?}", String::from_utf8_lossy(line));
        }
    }

    /// A line of the protocol that says nothing costs no call its answer, no more than one that is none of the protocol.
    #[test]
    fn a_message_that_says_nothing_is_passed_over() {
        for line in [
            r#"{"jsonrpc":"2.0"}"#,
            r#"{"jsonrpc":"2.0","id":null}"#,
            r#"{"jsonrpc":"2.0","id":99}"#,
            r#"{"jsonrpc":"2.0","id":4,"params":{}}"#,
            r#"{"jsonrpc":"1.0","level":"info"}"#,
        ] {
            let mut state = waiting_for(&[3]);
            let Read::Message(told) = read_message(line.as_bytes(), &mut state) else { panic!("{line}") };
            assert!(matches!(*told, JsonRpcMessage::Notification(_)), "{line}: {told:?}");
            assert_eq!((state.strays.count, state.strays.last.as_str(), state.awaited.len()), (1, line, 1));
            // The answer that comes behind it is one.
            let answer = br#"{"jsonrpc":"2.0","id":3,"result":{"a":1}}"#;
            assert_eq!(raw(read_message(answer, &mut state)), json!({"a": 1}), "{line}");
        }
        // A notification as JSON-RPC 1.0 has it.
        let line = br#"{"jsonrpc":"2.0","id":null,"method":"notifications/message","params":{"data":"x"}}"#;
        let Read::Message(told) = read_message(line, &mut waiting_for(&[3])) else { panic!("it ends the connection") };
        let JsonRpcMessage::Notification(JsonRpcNotification { notification, .. }) = *told else { panic!("{told:?}") };
        let ServerNotification::CustomNotification(notification) = notification else { panic!("{notification:?}") };
        assert_eq!(notification.method, "notifications/message");
        // What may be the answer of the call that waits still is taken for it.
        let line = r#"{"jsonrpc":"2.0","id":3}"#;
        let read = read_message(line.as_bytes(), &mut waiting_for(&[3]));
        assert!(matches!(read, Read::Broken(_)), "{line}: {read:?}");
    }

    /// What is said of a notification costs no call its answer; what can be said of nothing but the call that waits is its answer, at once.
    #[tokio::test]
    async fn what_is_said_without_a_name_is_no_answer_of_a_call_while_it_may_be_said_of_a_notification() {
        const NAMELESS: [&str; 4] = [
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"what?"}}"#,
            r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"what?"}}"#,
            r#"{"jsonrpc":"2.0","id":null,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":"none","result":null}"#,
        ];
        let request = |id| {
            let request = CustomRequest::new("tools/call", Some(json!({"name": "t"})));
            JsonRpcMessage::request(ClientRequest::CustomRequest(request), RequestId::Number(id))
        };
        let told = || {
            JsonRpcMessage::notification(ClientNotification::RootsListChangedNotification(
                RootsListChangedNotification::default(),
            ))
        };
        for (line, is_told) in NAMELESS.into_iter().flat_map(|line| [(line, true), (line, false)]) {
            let (ours, theirs) = tokio::io::duplex(4096);
            let (mut wire, state) = Wire::new(theirs, tokio::io::sink(), Env::simulated(1));
            let (_, mut says) = tokio::io::split(ours);
            if is_told {
                wire.send(told()).await.unwrap();
            }
            wire.send(request(1)).await.unwrap();
            let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"a":1}}"#;
            says.write_all(format!("{line}\n{answer}\n").as_bytes()).await.unwrap();
            let heard = wire.receive().await;
            assert_eq!((heard.is_some(), state.ended().is_none()), (is_told, is_told), "{line}: {heard:?}");
            if let Some(why) = state.ended() {
                assert!(why.contains("what?") || why.contains("did not name it"), "{why}");
                continue;
            }
            // The notification was complained of. The next word is of the call.
            wire.send(request(2)).await.unwrap();
            says.write_all(format!("{line}\n").as_bytes()).await.unwrap();
            assert!(wire.receive().await.is_none(), "{line}");
            assert!(state.ended().is_some());
        }
    }

    /// What may be said of a notification or of the call costs the call nothing for a while. Then the server is asked whether it reads on, under a
    /// number that no request has and whose answer is nobody's.
    #[tokio::test]
    async fn what_may_be_either_waits_and_the_server_is_asked_whether_it_reads_on() {
        let request = |id| {
            let request = CustomRequest::new("tools/call", Some(json!({"name": "t"})));
            JsonRpcMessage::request(ClientRequest::CustomRequest(request), RequestId::Number(id))
        };
        let told = || {
            let told = RootsListChangedNotification::default();
            JsonRpcMessage::notification(ClientNotification::RootsListChangedNotification(told))
        };
        let nameless = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"what?"}}"#;
        for is_answered in [true, false] {
            let (ours, theirs) = tokio::io::duplex(4096);
            let (read, write) = tokio::io::split(theirs);
            let (mut wire, state) = Wire::new(read, write, Env::simulated(1));
            let (hears, mut says) = tokio::io::split(ours);
            // Behind the greeting, so that a complaint of the notification may still be on its way behind an answer.
            for message in [told(), told(), told(), request(1)] {
                wire.send(message).await.unwrap();
            }
            says.write_all(format!("{}\n", answered(1)).as_bytes()).await.unwrap();
            assert!(matches!(wire.receive().await, Some(JsonRpcMessage::Response(_))));
            wire.send(request(2)).await.unwrap();
            let second = if is_answered { answered(2) } else { String::new() };
            says.write_all(format!("{nameless}\n{second}\n").as_bytes()).await.unwrap();
            let heard = wire.receive().await;
            assert_eq!((heard.is_some(), state.ended().is_none()), (is_answered, is_answered), "{heard:?}");
            if is_answered {
                continue;
            }
            assert!(state.ended().unwrap().contains("what?"));
            let mut lines = BufReader::new(hears).lines();
            let ping: Value = loop {
                let line: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
                if line["method"] == "ping" {
                    break line;
                }
            };
            let mut state = waiting_for(&[3]);
            let pong = answered(ping["id"].as_i64().unwrap());
            assert!(matches!(read_message(pong.as_bytes(), &mut state), Read::Nothing), "{pong}");
            assert_eq!(state.awaited.len(), 1);
        }
    }

    /// An answer under a number that nobody gave costs the call that waits nothing while its own may come behind it; and without one the call is not
    /// waited for without end.
    #[tokio::test]
    async fn an_answer_to_what_was_never_asked_takes_no_call_its_own() {
        let read = read_message(answered(99).as_bytes(), &mut waiting_for(&[3]));
        assert!(matches!(read, Read::Misnamed(_)), "{read:?}");
        for is_answered in [true, false] {
            let (ours, theirs) = tokio::io::duplex(4096);
            let (read, write) = tokio::io::split(theirs);
            let (mut wire, state) = Wire::new(read, write, Env::simulated(1));
            let (_hears, mut says) = tokio::io::split(ours);
            let request = CustomRequest::new("tools/call", Some(json!({"name": "t"})));
            let request = JsonRpcMessage::request(ClientRequest::CustomRequest(request), RequestId::Number(1));
            wire.send(request).await.unwrap();
            let own = if is_answered { answered(1) } else { String::new() };
            says.write_all(format!("{}\n{own}\n", answered(4711)).as_bytes()).await.unwrap();
            let heard = wire.receive().await;
            assert_eq!((heard.is_some(), state.ended().is_none()), (is_answered, is_answered), "{heard:?}");
            let why = state.ended().unwrap_or_default();
            assert_eq!(why.contains("it answered a request that was not made"), !is_answered, "{why}");
        }
    }

    /// The first answer counts; one behind it that says the contrary is told of, once.
    #[test]
    fn a_second_answer_that_says_the_contrary_is_told_of() {
        let (done, failed) = (r#""result":{"content":[]}"#, r#""result":{"content":[],"isError":true}"#);
        let refused = r#""error":{"code":-32601,"message":"no"}"#;
        let says = |state: &mut Inner, answer: &str| {
            read_message(format!(r#"{{"jsonrpc":"2.0","id":3,{answer}}}"#).as_bytes(), state)
        };
        for (first, second, is_told) in [
            (done, failed, true),
            (failed, done, true),
            (refused, done, true),
            (done, refused, true),
            (done, done, false),
            (failed, refused, false),
        ] {
            let mut state = waiting_for(&[3]);
            let Read::Message(message) = says(&mut state, first) else { panic!("{first}") };
            assert!(matches!(*message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)), "{first}: {message:?}");
            match says(&mut state, second) {
                Read::Message(message) => {
                    let JsonRpcMessage::Notification(JsonRpcNotification { notification, .. }) = *message else {
                        panic!("{second}: {message:?}")
                    };
                    let ServerNotification::CustomNotification(told) = notification else { panic!("{notification:?}") };
                    assert!(is_told, "{first}, {second}");
                    assert_eq!(told.method, SECOND_ANSWER, "{first}, {second}");
                    let is_failure = second != done;
                    assert_eq!(told.params, Some(json!({"request": 3, "failed": is_failure})), "{first}, {second}");
                }
                other @ (Read::Nothing | Read::Nameless(_) | Read::Misnamed(_) | Read::Broken(_)) => {
                    assert!(matches!(other, Read::Nothing) && !is_told, "{first}, {second}: {other:?}");
                }
            }
            assert!(matches!(says(&mut state, second), Read::Nothing), "once");
        }
        // What was given up before it was answered has no first answer.
        let mut state = waiting_for(&[]);
        assert!(matches!(says(&mut state, done), Read::Nothing));
    }

    /// Until somebody takes the first answer to a call, a second one is for whoever does, and is told of to nobody else.
    #[tokio::test]
    async fn a_call_that_is_answered_twice_and_otherwise_is_known_by_who_takes_the_answer() {
        let (done, failed) = (r#""result":{"content":[]}"#, r#""result":{"content":[],"isError":true}"#);
        let (refused, lost) =
            (r#""error":{"code":-32601,"message":"no"}"#, r#""error":{"code":-32603,"message":"who knows"}"#);
        let line = |answer: &str| format!("{{\"jsonrpc\":\"2.0\",\"id\":3,{answer}}}\n");
        for (first, second, expected) in [
            (refused, done, Some((Says::NotBegun, Says::Done))),
            (refused, failed, Some((Says::NotBegun, Says::Failed))),
            (refused, lost, Some((Says::NotBegun, Says::Failed))),
            (done, refused, Some((Says::Done, Says::NotBegun))),
            (done, failed, Some((Says::Done, Says::Failed))),
            (failed, done, Some((Says::Failed, Says::Done))),
            (refused, refused, None),
            (done, done, None),
            (failed, refused, None),
        ] {
            // In one write, and in two: by then the first one is read.
            for is_at_once in [true, false] {
                let (mut theirs, ours) = tokio::io::duplex(1024);
                let (mut wire, state) = Wire::new(ours, tokio::io::sink(), ua_core::system::env());
                *state.inner() = Inner { calls: BTreeSet::from([3]), ..waiting_for(&[3]) };
                let all = line(first) + &line(second);
                let (now, later) = all.split_at(if is_at_once { all.len() } else { line(first).len() });
                theirs.write_all(now.as_bytes()).await.unwrap();
                let answer = wire.receive().await.unwrap();
                assert!(matches!(answer, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)), "{answer:?}");
                theirs.write_all(later.as_bytes()).await.unwrap();
                drop(theirs);
                let (id, env) = (RequestId::Number(3), ua_core::system::env());
                let (taken, told) = tokio::join!(state.second_answer(&id, true, &env), async {
                    let mut told = 0;
                    while let Some(message) = wire.receive().await {
                        told += u32::from(matches!(message, JsonRpcMessage::Notification(_)));
                    }
                    told
                });
                // What is only seen once its first answer is taken is told of.
                let is_known = is_at_once || first == refused;
                assert_eq!(taken, expected.filter(|_| is_known), "{first}, {second}, {is_at_once}");
                assert_eq!(told, u32::from(expected.is_some() && !is_known), "{first}, {second}, {is_at_once}");
            }
        }
    }

    /// Who told of a call's progress has begun it.
    #[test]
    fn the_progress_of_a_call_is_kept() {
        let (mut state, wire) = (waiting_for(&[3]), WireState::default());
        let line = br#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#;
        for _ in 0..2 {
            assert!(matches!(read_message(line, &mut state), Read::Message(_)));
        }
        assert_eq!(state.progressed, ["7"]);
        *wire.inner() = state;
        assert!(wire.has_progressed(&json!(7)) && !wire.has_progressed(&json!(8)));
    }

    fn answered(id: i64) -> String {
        json!({"jsonrpc": "2.0", "id": id, "result": {}}).to_string()
    }

    #[test]
    fn half_a_character_costs_no_answer() {
        let told = |text: &str| {
            let line = format!(r#"{{"jsonrpc":"2.0","id":3,"result":{{"text":"{text}"}}}}"#);
            raw(read_message(line.as_bytes(), &mut waiting_for(&[3])))["text"].clone()
        };
        assert_eq!(told(r"cut \ud83d"), json!("cut \u{fffd}"));
        assert_eq!(told(r"\ude00 \ud83d\ude00 \uD83D\ud83d\ude00"), json!("\u{fffd} \u{1f600} \u{fffd}\u{1f600}"));
        assert_eq!(told(r"\\ud83d \u0041 \ud83d"), json!("\\ud83d A \u{fffd}"), "a backslash that is one");
    }

    #[test]
    fn what_is_no_message_is_told_and_passed_over() {
        assert!(matches!(read_message(b"\n", &mut waiting_for(&[3])), Read::Nothing));
        for line in [
            &b"Server listening on stdio\n"[..],
            b"[info] {up}\n",
            b"[jsonrpc] handler: up\n",
            b"{'level': 'info'}\n",
            b"{not json\n",
            b"{\"level\":\"info\"}\n",
            b"{\"id\":3,\"level\":\"info\"}\n",
            b"{\"id\":4,\"result\":1}\n",
            b"\xff\xfe\n",
            b"42\n",
        ] {
            let mut state = waiting_for(&[3]);
            let Read::Message(told) = read_message(line, &mut state) else { panic!("{line:?}") };
            assert!(matches!(*told, JsonRpcMessage::Notification(_)), "{line:?}: {told:?}");
            assert_eq!((state.strays.count, state.awaited.len()), (1, 1), "{line:?}");
        }
        let foreign = br#"{"jsonrpc":"2.0","id":99,"result":{}}"#;
        assert!(matches!(read_message(foreign, &mut waiting_for(&[])), Read::Nothing));
    }

    #[test]
    fn a_result_that_is_too_big_is_replaced_and_stays_what_it_was() {
        let text = "x".repeat(MAX_RESULT);
        let result = json!({"content": [{"type": "text", "text": text}], "isError": true});
        let line = json!({"jsonrpc": "2.0", "id": 3, "result": result}).to_string();
        let short = raw(read_message(line.as_bytes(), &mut waiting_for(&[3])));
        assert_eq!(short["isError"], json!(true));
        assert!(short["content"][0]["text"].as_str().unwrap().starts_with("[the result of 8388"), "{short}");
    }

    #[tokio::test]
    async fn the_last_answer_counts_without_its_lines_end_and_half_of_one_does_not() {
        let whole = r#"{"jsonrpc":"2.0","id":1,"result":{"sent":"7"}}"#;
        let before = format!("[info] up\n{whole}");
        let halved = r#"{"jsonrpc":"2.0","id":1,"result":{"sent":"\ud83d"}}"#;
        for (output, is_answered) in
            [(whole, true), (&before, true), (halved, true), (&whole[..whole.len() - 1], false)]
        {
            let (mut wire, state) = Wire::new(output.as_bytes(), tokio::io::sink(), Env::simulated(1));
            *state.inner() = waiting_for(&[1]);
            let mut answers = 0;
            while let Some(message) = wire.receive().await {
                answers += u32::from(matches!(message, JsonRpcMessage::Response(_)));
            }
            assert_eq!((answers == 1, state.inner().awaited.is_empty()), (is_answered, is_answered), "{output}");
            let how =
                if is_answered { "it closed its output" } else { "it closed its output in the middle of a message" };
            assert_eq!(state.ended().as_deref(), Some(how), "{output}");
        }
    }

    #[tokio::test]
    async fn a_server_that_asks_and_does_not_read_is_left() {
        let asks = |id: usize| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n");
        let output: String = (0..2 * MOST_OWED).map(asks).collect();
        let answer = |id| {
            let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "no", None);
            JsonRpcMessage::Error(JsonRpcError::new(Some(RequestId::Number(id)), error))
        };
        for is_read in [true, false] {
            // What nobody reads is not written: the other end of a pipe that is full.
            let (ours, _theirs) = tokio::io::duplex(1);
            let writer: Box<dyn AsyncWrite + Send + Unpin> =
                if is_read { Box::new(tokio::io::sink()) } else { Box::new(ours) };
            let (mut wire, state) = Wire::new(output.as_bytes(), writer, Env::simulated(1));
            let (mut heard, mut waiting) = (0_i64, Vec::new());
            while wire.receive().await.is_some() {
                let sent = Box::pin(wire.send(answer(heard)));
                heard += 1;
                if is_read {
                    sent.await.unwrap();
                } else {
                    waiting.push(sent);
                }
            }
            let (count, how) = if is_read {
                (2 * MOST_OWED, "it closed its output")
            } else {
                (MOST_OWED, "it asks and does not read what it is answered")
            };
            assert_eq!((usize::try_from(heard).unwrap(), state.ended().as_deref()), (count, Some(how)));
            drop(waiting);
            assert_eq!(state.inner().owed, usize::from(!is_read));
        }
    }

    #[tokio::test]
    async fn a_call_that_meets_a_closed_pipe_was_never_sent() {
        let (mut wire, state) = Wire::new(tokio::io::empty(), tokio::io::sink(), Env::simulated(1));
        let call = |id| {
            let request = CustomRequest::new("tools/call", Some(json!({"name": "t"})));
            JsonRpcMessage::request(ClientRequest::CustomRequest(request), RequestId::Number(id))
        };
        wire.send(call(1)).await.unwrap();
        assert!(!state.was_never_sent(&RequestId::Number(1)));
        let late = wire.send(call(2));
        assert!(!state.was_never_sent(&RequestId::Number(2)), "the pipe is open, so it may still be written");
        wire.close().await.unwrap();
        assert_eq!(late.await.unwrap_err().kind(), io::ErrorKind::NotConnected);
        assert!(state.was_never_sent(&RequestId::Number(2)));
        assert!(!state.was_never_sent(&RequestId::Number(1)));
    }
}
