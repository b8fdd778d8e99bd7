//! Going on with a call that its tool did not finish at once: its task is asked, or what it asked for is handed over.
//!
//! MCP Tasks, as revision 2025-11-25 has them and as the extension `io.modelcontextprotocol/tasks` does, and input-required rounds.
//! A handle's `place` holds what is needed to find the other side again: how often it wants to be asked, the revision, and over HTTP
//! the session in which the task is known. Invariants: asking a task is a question that may be repeated; only the answers of a round
//! that was not handed over yet are sent; a call that waits on its connection is known to this process alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::Instrument as _;
use ua_core::{CallId, Env, Handle, Input, Outcome, RawReply};
use ua_dispatch::{Permit, TransportError};

use crate::connection::Connection;
use crate::dialect::Dialect;
use crate::effects::EffectUnderWay;
use crate::exchange::{Sending, Unanswered, asked_for, is_not_begun};
use crate::host::{Ask, Listener};
use crate::server::Server;
use crate::tasks::{TaskStands, is_unknown_task, of_task, task_error, task_result, task_stands, task_wait};
use crate::transport::McpTransport;

/// The name under which a question is kept that a server asked on the connection.
const LIVE: &str = "live";

/// A call that waits on its connection for an answer of ours.
pub(crate) struct LiveCall {
    /// Ends with the call's outcome.
    ending: Aborting,
    asks: mpsc::UnboundedReceiver<Ask>,
    reply: Option<oneshot::Sender<Value>>,
    round: u32,
}

/// A request under way that is given up, and so cancelled, when nobody holds this any more.
struct Aborting(JoinHandle<Outcome>);

impl Drop for Aborting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The calls that wait, by call.
#[derive(Default)]
pub(crate) struct LiveCalls(Mutex<BTreeMap<CallId, LiveCall>>);

impl LiveCalls {
    fn inner(&self) -> MutexGuard<'_, BTreeMap<CallId, LiveCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveCall {
    /// Sends a request for a call. `effect` is held until it ended or is given up.
    fn begin(
        connection: &Connection,
        mut sending: Sending,
        call_id: &CallId,
        effect: Option<EffectUnderWay>,
        env: &Env,
    ) -> Self {
        let (asks, asked) = mpsc::unbounded_channel();
        sending.listener = Some(Listener { call_id: call_id.clone(), asks });
        let (connection, env) = (connection.clone(), env.clone());
        let request = async move {
            let _effect = effect;
            connection.call(sending, &env).await
        };
        let ending = Aborting(tokio::spawn(request.in_current_span()));
        Self { ending, asks: asked, reply: None, round: 0 }
    }

    /// Waits until it ends or asks.
    async fn next(&mut self) -> Result<Outcome, Value> {
        tokio::select! {
            biased;
            ended = &mut self.ending.0 => {
                Ok(ended.unwrap_or_else(|error| Outcome::Lost { why: format!("the request broke off: {error}") }))
            }
            Some(ask) = self.asks.recv() => {
                self.reply = Some(ask.reply);
                self.round += 1;
                Err(ask.params)
            }
        }
    }
}

/// The answers that a task still asks for, by their names, which are those of one question each. What it got already it asks no more.
fn still_asked(state: &Value, input: &Input) -> BTreeMap<String, Value> {
    let waits = state.get("status").and_then(Value::as_str) == Some("input_required");
    let asked = state.get("inputRequests").and_then(Value::as_object).filter(|_| waits);
    let is_asked = |name: &str| asked.is_some_and(|asked| asked.contains_key(name));
    input
        .answers
        .iter()
        .filter(|(name, _)| is_asked(name))
        .map(|(name, answer)| (name.clone(), answer.clone()))
        .collect()
}

impl McpTransport {
    /// Sends a request of a permitted attempt and waits until it ends, or until it asks for something, which is kept in the handle.
    pub(crate) async fn follow(
        &self,
        connection: &Connection,
        sending: Sending,
        permit: &Permit,
        task: Option<&Handle>,
        effect: Option<EffectUnderWay>,
    ) -> Outcome {
        let call = LiveCall::begin(connection, sending, &permit.call().call_id, effect, self.env());
        self.await_call(call, permit, task).await
    }

    async fn await_call(&self, mut call: LiveCall, permit: &Permit, task: Option<&Handle>) -> Outcome {
        match call.next().await {
            Ok(outcome) => outcome,
            Err(params) => {
                let request = json!({ "method": "elicitation/create", "params": params });
                let input = Input {
                    requests: BTreeMap::from([(LIVE.to_owned(), request)]),
                    round: call.round,
                    is_live: true,
                    ..Input::default()
                };
                let known = task.cloned().unwrap_or_default();
                self.live().inner().insert(permit.call().call_id.clone(), call);
                Outcome::Continues(Box::new(Handle { input: Some(input), ..known }))
            }
        }
    }

    /// Puts into a handle what is needed to find the other side again.
    pub(crate) fn placed(connection: &Connection, outcome: Outcome) -> Outcome {
        let Outcome::Continues(mut handle) = outcome else { return outcome };
        let dialect = connection.dialect();
        if !handle.place.is_object() {
            handle.place = json!({});
        }
        handle.place["revision"] = json!(dialect.version);
        if let (Connection::Http(http), Some(task)) = (connection, &handle.task)
            && let Some(session) = http.session()
        {
            handle.place["session"] = json!(session);
            http.note_task(task, true);
        }
        Outcome::Continues(handle)
    }

    /// One step with a handle.
    pub(crate) async fn step(&self, permit: &Permit, handle: &Handle) -> Result<Outcome, TransportError> {
        let server = self.server(&permit.name().server)?;
        let live = self.live().inner().remove(&permit.call().call_id);
        if let Some(input) = handle.input.as_ref().filter(|input| input.is_live) {
            let Some(mut call) = live else {
                // What asked is gone with its connection; a task that was behind it is still there.
                return match &handle.task {
                    Some(_) => Ok(Outcome::Continues(Box::new(Handle { input: None, ..handle.clone() }))),
                    None => Ok(Outcome::Lost { why: "the connection on which the tool waited is gone".to_owned() }),
                };
            };
            let answer = input.answers.get(LIVE).cloned().unwrap_or_else(|| json!({ "action": "cancel" }));
            if let Some(reply) = call.reply.take() {
                let _gone = reply.send(answer);
            }
            let behind = Handle { input: None, ..handle.clone() };
            let outcome = self.await_call(call, permit, handle.task.is_some().then_some(&behind)).await;
            return Ok(if handle.task.is_some() { outcome } else { self.ended(server, permit, outcome).await });
        }
        if is_not_begun(handle) {
            // A person took their time, and the call is posted as if for the first time.
            server.look_after_silence().await;
        }
        let connection = self.place_of(server, permit, handle).await?;
        if let Err(why) = self.check_login(server, permit.name(), permit.destination(), &connection).await {
            return Err(server.error(|server, why| TransportError::Elsewhere { server, why }, &why));
        }
        let effect = connection.effect().filter(|_| !permit.call().policy.is_free_read());
        match (&handle.task, &handle.input) {
            (Some(task), Some(input)) if !input.answers.is_empty() => {
                // Whether what was handed over arrived is not known where its answer was lost: the task knows.
                match connection.ask("tasks/get", of_task(task, [])).await {
                    Ok(state) => match still_asked(&state, input) {
                        answers if answers.is_empty() => {
                            Ok(Outcome::Continues(Box::new(Handle { input: None, ..handle.clone() })))
                        }
                        answers => self.update(server, &connection, handle, task, &answers).await,
                    },
                    Err(why) => Self::no_state(server, &connection, task, why),
                }
            }
            (Some(task), _) => self.poll(server, permit, &connection, handle, task).await,
            (None, Some(input)) if is_not_begun(handle) => self.begin(server, permit, &connection, input, effect).await,
            (None, Some(input)) => {
                let sending = self.sending(server, permit, &connection);
                let mut sending = sending.map_err(|why| not_reached(server, &why))?;
                if !input.answers.is_empty() {
                    sending.params.insert("inputResponses".to_owned(), json!(input.answers));
                }
                if let Some(state) = &input.state {
                    sending.params.insert("requestState".to_owned(), json!(state));
                }
                let outcome = self.follow(&connection, sending, permit, None, effect).await;
                match Self::placed(&connection, outcome) {
                    Outcome::NotSent { why } => Err(not_reached(server, &why)),
                    // The first round was taken.
                    Outcome::Continues(next) if is_not_begun(&next) => Ok(Outcome::Lost {
                        why: "it wants a person to be at an address, in answer to what it had asked for".to_owned(),
                    }),
                    Outcome::Continues(next) => Ok(Outcome::Continues(in_round_after(input, next))),
                    // The first round was taken, so nothing that is said to the second proves that nothing happened.
                    Outcome::Raw(RawReply::HttpStatus { status, .. }) => Ok(Outcome::Lost {
                        why: format!("it answered HTTP status {status} when it got what it had asked for"),
                    }),
                    Outcome::Raw(RawReply::RpcError { code: -32601, message }) => Ok(Outcome::Lost { why: message }),
                    outcome @ (Outcome::Lost { .. } | Outcome::Raw(_)) => Ok(outcome),
                }
            }
            (None, None) => {
                Ok(Outcome::Lost { why: "the tool server named nothing that could be continued".to_owned() })
            }
        }
    }

    /// Makes a call that its server has not begun with, now that a person has been where it wanted them: as if for the first time.
    async fn begin(
        &self,
        server: &Server,
        permit: &Permit,
        connection: &Connection,
        input: &Input,
        effect: Option<EffectUnderWay>,
    ) -> Result<Outcome, TransportError> {
        let accepted = |answer: &Value| answer.get("action").and_then(Value::as_str) == Some("accept");
        if !input.answers.values().all(accepted) {
            let why = "its server wants a person to be at an address first, and nobody was, so it was not called";
            return Ok(Outcome::Raw(RawReply::Refused { why: why.to_owned() }));
        }
        let sending = self.sending(server, permit, connection);
        let sending = sending.map_err(|why| not_reached(server, &why))?;
        let outcome = self.follow(connection, sending, permit, None, effect).await;
        match Self::placed(connection, outcome) {
            Outcome::NotSent { why } => Err(not_reached(server, &why)),
            Outcome::Continues(next) => Ok(Outcome::Continues(in_round_after(input, next))),
            outcome @ (Outcome::Lost { .. } | Outcome::Raw(_)) => Ok(outcome),
        }
    }

    /// The connection on which a handle means something.
    async fn place_of(&self, server: &Server, permit: &Permit, handle: &Handle) -> Result<Connection, TransportError> {
        let (_, connection) = server.ready(self.shared()).await?;
        let session = handle.place.get("session").and_then(Value::as_str);
        let is_ours = match &connection {
            Connection::Http(http) => session.is_none() || http.session().as_deref() == session,
            Connection::Pipe(_) => true,
        };
        let Some(session) = session.filter(|_| !is_ours) else { return Ok(connection) };
        let revision = handle.place.get("revision").and_then(Value::as_str).unwrap_or_default();
        let dialect = Arc::new(Dialect::of_session(revision));
        tracing::debug!(
            server = server.name(),
            tool = permit.name().tool,
            "taking up the session of an earlier process"
        );
        server.adopt(session, dialect, self.shared()).map_err(|why| not_reached(server, &why))
    }

    /// Hands over what a task asked for.
    async fn update(
        &self,
        server: &Server,
        connection: &Connection,
        handle: &Handle,
        task: &str,
        answers: &BTreeMap<String, Value>,
    ) -> Result<Outcome, TransportError> {
        let params = of_task(task, [("inputResponses", json!(answers))]);
        let behind = || Outcome::Continues(Box::new(Handle { input: None, ..handle.clone() }));
        match connection.ask("tasks/update", params).await {
            Ok(_) => Ok(behind()),
            Err(Unanswered::Refused(_, message)) => {
                tracing::info!(server = server.name(), message, "a task did not take what it had asked for");
                Ok(behind()) // it says itself how it stands
            }
            Err(why) => Err(not_reached(server, &why.into_why())),
        }
    }

    /// Asks a task how it stands.
    async fn poll(
        &self,
        server: &Server,
        permit: &Permit,
        connection: &Connection,
        handle: &Handle,
        task: &str,
    ) -> Result<Outcome, TransportError> {
        self.env().clock.sleep(task_wait(&handle.place)).await;
        let state = match connection.ask("tasks/get", of_task(task, [])).await {
            Ok(state) => state,
            Err(why) => return Self::no_state(server, connection, task, why),
        };
        let status = state.get("status").and_then(Value::as_str).unwrap_or_default();
        tracing::debug!(server = server.name(), task, status, "task");
        if let Some(words) = state.get("statusMessage").and_then(Value::as_str) {
            self.tell_progress(permit, words);
        }
        let done = |outcome: Outcome| {
            if let Connection::Http(http) = connection {
                http.note_task(task, false);
            }
            Ok(outcome)
        };
        let is_new = connection.dialect().is_stateless || state.get("resultType").is_some();
        match task_stands(task, &state, &handle.place, is_new) {
            TaskStands::Ended(outcome) => done(outcome),
            TaskStands::HasResult => match self.result(connection, permit, handle, task).await {
                Outcome::NotSent { why } | Outcome::Lost { why } => Err(not_reached(server, &why)),
                outcome @ Outcome::Continues(_) => Ok(outcome),
                Outcome::Raw(RawReply::ToolResult { result }) => done(task_result(result)),
                // A status is said of this request, and not of the call: that one was taken, and its task says that it has ended.
                Outcome::Raw(RawReply::HttpStatus { status, body, .. }) => Self::no_state(
                    server,
                    connection,
                    task,
                    Unanswered::Status(status, format!("HTTP status {status}: {body}")),
                ),
                outcome @ Outcome::Raw(_) => done(outcome),
            },
            TaskStands::Asks => {
                let round = handle.input.as_ref().map_or(1, |input| input.round + 1);
                let asked = asked_for(&state, Some(task.to_owned()), round);
                let Outcome::Continues(asked) = asked else { return done(asked) };
                Ok(Outcome::Continues(Box::new(Handle { input: asked.input, ..handle.clone() })))
            }
            TaskStands::Works(place) => {
                Ok(Outcome::Continues(Box::new(Handle { place, input: None, ..handle.clone() })))
            }
        }
    }

    /// What it means that a task does not say how it stands.
    fn no_state(
        server: &Server,
        connection: &Connection,
        task: &str,
        why: Unanswered,
    ) -> Result<Outcome, TransportError> {
        let is_unknown = match &why {
            Unanswered::Refused(code, _) => is_unknown_task(*code),
            Unanswered::Status(status, _) => matches!(status, 400 | 404 | 405 | 410),
            Unanswered::NotLetIn(..) | Unanswered::Broken(_) => false,
        };
        let why = why.into_why();
        if !is_unknown {
            return Err(not_reached(server, &why));
        }
        if let Connection::Http(http) = connection {
            http.note_task(task, false);
        }
        Ok(Outcome::Lost { why: format!("the other side no longer knows the task ({why})") })
    }

    /// Fetches the result of a task of revision 2025-11-25, which may ask for something first.
    async fn result(&self, connection: &Connection, permit: &Permit, handle: &Handle, task: &str) -> Outcome {
        let sending = Sending::request("tasks/result", of_task(task, []), Map::new());
        let behind = Handle { input: None, ..handle.clone() };
        match self.follow(connection, sending, permit, Some(&behind), None).await {
            Outcome::Raw(RawReply::RpcError { code, message }) => task_error(code, message),
            outcome @ (Outcome::NotSent { .. } | Outcome::Lost { .. } | Outcome::Raw(_) | Outcome::Continues(_)) => {
                outcome
            }
        }
    }

    /// Tells the other side that nobody wants a result any more.
    pub(crate) async fn abandon(&self, permit: &Permit, handle: &Handle) {
        drop(self.live().inner().remove(&permit.call().call_id)); // cancels its request
        let (Some(task), Ok(server)) = (&handle.task, self.server(&permit.name().server)) else { return };
        let Ok(connection) = self.place_of(server, permit, handle).await else { return };
        if self.check_login(server, permit.name(), permit.destination(), &connection).await.is_err() {
            return; // somebody else's task may have that name
        }
        if let Err(why) = connection.ask("tasks/cancel", of_task(task, [])).await {
            tracing::info!(server = server.name(), task, why = why.into_why(), "a task could not be cancelled");
        }
        if let Connection::Http(http) = &connection {
            http.note_task(task, false);
        }
    }
}

/// What a call goes on with that went on with `input` before.
fn in_round_after(input: &Input, mut next: Box<Handle>) -> Box<Handle> {
    if let Some(next) = &mut next.input {
        next.round = next.round.max(1) + input.round;
    }
    next
}

fn not_reached(server: &Server, why: &str) -> TransportError {
    server.error(|server, why| TransportError::NotReached { server, why }, why)
}
