//! One connection to the process of a tool server, over its two pipes.

use std::sync::{Arc, Mutex, PoisonError};

use rmcp::RoleClient;
use rmcp::model::{
    CancelledNotificationParam, ClientNotification, ClientRequest, CustomRequest, CustomResult, Implementation,
    InitializedNotification, MetaObject, RequestId, RequestMetaObject, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RunningService, ServiceError, serve_directly};
use serde_json::{Map, Value, json};
use ua_core::{Env, Outcome};

use crate::client::Client;
use crate::dialect::{Dialect, Protocol};
use crate::effects::Effects;
use crate::exchange::{
    self, Opening, Sending, Unanswered, after_progress, answered_twice, completed, not_in_time, refused,
};
use crate::host::{Host, UnderWay};
use crate::launch::Pipes;
use crate::trace;
use crate::wire::{Wire, WireState};

/// The part of a connection that calls share. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct PipeConnection {
    peer: Peer<RoleClient>,
    wire: Arc<WireState>,
    host: Arc<Host>,
    dialect: Arc<Mutex<Arc<Dialect>>>,
    effects: Effects,
}

/// The owning part: the connection ends when this is dropped.
pub(crate) struct Session {
    service: RunningService<RoleClient, Client>,
    connection: PipeConnection,
}

impl Session {
    /// Finds out how the server wants to be spoken to. The error says what came instead.
    pub(crate) async fn open(
        host: Arc<Host>,
        info: Implementation,
        protocol: &Protocol,
        (output, input): Pipes,
        env: &Env,
    ) -> Result<Self, String> {
        let (wire, state) = Wire::new(output, input, env.clone());
        host.is_behind(Arc::clone(&state));
        let client = Client { host: Arc::clone(&host), info: info.clone() };
        let service = serve_directly(client, wire, None);
        let connection = PipeConnection {
            peer: service.peer().clone(),
            wire: state,
            host,
            dialect: Arc::default(),
            effects: Effects::default(),
        };
        match exchange::open(&connection, protocol, &info, env).await {
            Ok(()) => Ok(Self { service, connection }),
            Err(why) => Err(connection.wire.ended().unwrap_or(why)),
        }
    }

    pub(crate) fn connection(&self) -> &PipeConnection {
        &self.connection
    }

    /// Closes the server's input, which asks it to end.
    pub(crate) async fn close(mut self) {
        if let Err(error) = self.service.close().await {
            tracing::debug!(%error, "the connection's task ended badly");
        }
    }
}

impl PipeConnection {
    /// Why nothing more will come, if nothing will.
    pub(crate) fn ended(&self) -> Option<String> {
        let closed = || self.peer.is_transport_closed().then(|| "the connection is closed".to_owned());
        self.wire.ended().or_else(closed)
    }

    /// The calls with an effect that are under way over it.
    pub(crate) fn effects(&self) -> &Effects {
        &self.effects
    }

    /// It is about to be ended, and this is why: calls that are under way read this.
    pub(crate) fn ends(&self, why: &str) {
        self.wire.end(why);
    }

    pub(crate) fn dialect(&self) -> Arc<Dialect> {
        Arc::clone(&self.dialect.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// Asks something that changes nothing.
    pub(crate) async fn ask(&self, method: &'static str, params: Map<String, Value>) -> Result<Value, Unanswered> {
        self.ask_in(self.dialect(), method, params).await
    }

    /// Hands a request over; `None` when the connection closed before it was taken.
    async fn send(
        &self,
        dialect: &Dialect,
        method: &'static str,
        params: Map<String, Value>,
        mut meta: Map<String, Value>,
    ) -> Option<RequestHandle<RoleClient>> {
        dialect.sign(&mut meta);
        let request = ClientRequest::CustomRequest(CustomRequest::new(method, Some(Value::Object(params))));
        let options = PeerRequestOptions::no_options().with_meta(RequestMetaObject(MetaObject(meta)));
        self.peer.send_request_with_option(request, options).await.ok()
    }

    /// Sends one request of a permitted attempt, once, and waits for its answer, at most for its time limit.
    pub(crate) async fn call(&self, sending: Sending, env: &Env) -> Outcome {
        let Sending { method, params, meta, key_header, timeout, listener, first_counts, .. } = sending;
        if let Some((name, _)) = key_header {
            let why = format!(
                "its policy sends the key in the HTTP header `{name}`, which a server on standard input cannot get; set the policy's `key_channel` to the request's _meta or to an argument"
            );
            return Outcome::NotSent { why };
        }
        let _turn = self.host.turn(listener.as_ref()).await;
        let strays = self.wire.strays();
        let Some(handle) = self.send(&self.dialect(), method, params, meta).await else {
            return Outcome::NotSent { why: "the connection closed before the request was taken".to_owned() };
        };
        let (id, mut answer) = (handle.id, handle.rx);
        let number = if let RequestId::Number(number) = id { number } else { 0 };
        trace::goes_as(number);
        let under_way = self.host.listen(number, json!(handle.progress_token), listener);
        let mut waiting = Waiting { connection: self, id, answered: false };
        let answer = tokio::select! {
            biased;
            answer = &mut answer => answer,
            () = env.sleep_or_never(timeout) => return self.told_of_stray(not_in_time(timeout), strays),
        };
        waiting.answered = true;
        let has_progressed = under_way.as_ref().is_some_and(UnderWay::has_progressed);
        if let (Some(under_way), Ok(Ok(_) | Err(ServiceError::McpError(_)))) = (under_way, &answer) {
            under_way.answered();
        }
        if let Some((first, second)) = self.wire.second_answer(&waiting.id, !first_counts, env).await {
            if !first_counts {
                return Outcome::Lost { why: answered_twice(first, second) };
            }
            self.host.tell_of_second_answer(&json!({ "request": number, "failed": second.is_failure() }));
        }
        match answer {
            Ok(Ok(ServerResult::CustomResult(CustomResult(result)))) => {
                completed(method, self.dialect().is_stateless, result)
            }
            Ok(Err(ServiceError::McpError(error))) => {
                let code = error.code.0.into();
                match after_progress(method, code, &error.message).filter(|_| has_progressed && !first_counts) {
                    Some(lost) => lost,
                    None => refused(method, code, error.message.into_owned(), error.data.as_ref()),
                }
            }
            Ok(Ok(_)) => Outcome::Lost { why: OTHER_KIND.to_owned() },
            Ok(Err(error)) => self.told_of_stray(self.unanswered(&waiting.id, &in_words(&error)), strays),
            Err(_) => self.told_of_stray(self.unanswered(&waiting.id, "the connection closed"), strays),
        }
    }

    fn unanswered(&self, id: &RequestId, why: &str) -> Outcome {
        let why = self.ended().unwrap_or_else(|| why.to_owned());
        if self.wire.was_never_sent(id) { Outcome::NotSent { why } } else { Outcome::Lost { why } }
    }

    /// What the server wrote that is no message while a call waited may have been the answer that is missing: whoever hears of the
    /// loss hears of it.
    fn told_of_stray(&self, outcome: Outcome, strays: u64) -> Outcome {
        match (outcome, self.wire.stray_since(strays)) {
            (Outcome::Lost { why }, Some(stray)) => {
                Outcome::Lost { why: format!("{why}; {}", self.host.in_words(&stray)) }
            }
            (outcome, _) => outcome,
        }
    }
}

impl Opening for PipeConnection {
    async fn ask_in(
        &self,
        dialect: Arc<Dialect>,
        method: &'static str,
        params: Map<String, Value>,
    ) -> Result<Value, Unanswered> {
        let broken = |why: &str| Unanswered::Broken(self.ended().unwrap_or_else(|| why.to_owned()));
        let Some(handle) = self.send(&dialect, method, params, Map::new()).await else {
            return Err(broken("the connection is closed"));
        };
        let waiting = Forget { wire: &self.wire, id: handle.id };
        let answer = handle.rx.await;
        drop(waiting);
        match answer {
            Ok(Ok(ServerResult::CustomResult(CustomResult(result)))) => Ok(result),
            Ok(Err(ServiceError::McpError(error))) => {
                Err(Unanswered::Refused(error.code.0.into(), error.message.into_owned()))
            }
            Ok(Ok(_)) => Err(broken(OTHER_KIND)),
            Ok(Err(error)) => Err(broken(&in_words(&error))),
            Err(_) => Err(broken("the connection closed")),
        }
    }

    fn agree(&self, dialect: Arc<Dialect>) {
        *self.dialect.lock().unwrap_or_else(PoisonError::into_inner) = dialect;
    }

    async fn initialized(&self) -> Result<(), String> {
        let done = ClientNotification::InitializedNotification(InitializedNotification::default());
        let sent = self.peer.send_notification(done).await;
        sent.map_err(|error| self.ended().unwrap_or_else(|| in_words(&error)))
    }

    fn ended(&self) -> Option<String> {
        PipeConnection::ended(self)
    }
}

/// Why an answer is none.
const OTHER_KIND: &str = "the answer is of another kind";

/// Why a request has no answer, in words: the client library's own name the types of this program.
fn in_words(error: &ServiceError) -> String {
    match error {
        ServiceError::McpError(error) => format!("it answered with an error: {}", error.message),
        ServiceError::TransportSend(error) => format!("nothing can be written to its input: {}", error.error),
        ServiceError::TransportClosed => "the connection is closed".to_owned(),
        ServiceError::UnexpectedResponse => OTHER_KIND.to_owned(),
        ServiceError::Cancelled { .. } => "the request was cancelled".to_owned(),
        ServiceError::Timeout { timeout } => format!("no answer came within {} s", timeout.as_secs()),
        // The library may come to know more of them.
        other @ (ServiceError::SubscriptionLagged { .. } | ServiceError::InputRequiredRoundsExceeded { .. } | _) => {
            other.to_string()
        }
    }
}

/// Drops a late answer to a question that nobody asks any more.
struct Forget<'a> {
    wire: &'a WireState,
    id: RequestId,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.wire.forget(&self.id);
    }
}

/// Tells the server when nobody waits any more: the caller's future was dropped, or its time was up.
struct Waiting<'a> {
    connection: &'a PipeConnection,
    id: RequestId,
    answered: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.connection.wire.forget(&self.id);
        if self.answered {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (peer, id) = (self.connection.peer.clone(), self.id.clone());
        runtime.spawn(async move {
            let cancelled = CancelledNotificationParam::new(Some(id), Some("nobody waits for the answer".to_owned()));
            if let Err(error) = peer.notify_cancelled(cancelled).await {
                tracing::debug!(%error, "the server could not be told");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use rmcp::transport::DynamicTransportError;

    use super::*;
    use crate::wire::Wire;

    #[test]
    fn why_a_request_has_no_answer_is_told_without_the_types_of_this_program() {
        type OfPipes = Wire<tokio::io::Empty, tokio::io::Sink>;
        let error = io::Error::from(io::ErrorKind::BrokenPipe);
        let sending = ServiceError::TransportSend(DynamicTransportError::new::<OfPipes, RoleClient>(error));
        assert!(sending.to_string().contains("::"), "the library names them: {sending}");
        assert_eq!(in_words(&sending), "nothing can be written to its input: broken pipe");
        for other in [ServiceError::TransportClosed, ServiceError::UnexpectedResponse] {
            let words = in_words(&other);
            assert!(!words.contains("::") && words.starts_with("the "), "{words}");
        }
    }
}
