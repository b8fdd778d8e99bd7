//! One initialised connection to the process of a tool server, over its two pipes.

use std::sync::Arc;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientRequest, CustomResult, Implementation,
    ListToolsResult, MetaObject, PaginatedRequestParams, RequestId, RequestMetaObject, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RunningService, ServiceError};
use rmcp::{RoleClient, ServiceExt};
use ua_core::{Env, Outcome, RawReply};

use crate::client::Client;
use crate::connection::{Sending, completed, not_in_time, sleep_or_never};
use crate::launch::Pipes;
use crate::wire::{Wire, WireState};

/// The part of a connection that calls share. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct PipeConnection {
    peer: Peer<RoleClient>,
    wire: Arc<WireState>,
}

/// The owning part: the connection ends when this is dropped.
pub(crate) struct Session {
    service: RunningService<RoleClient, Client>,
    connection: PipeConnection,
}

impl Session {
    /// Shakes hands as servers up to revision 2025-11-25 expect it. The error says what came instead.
    pub(crate) async fn open(server: &str, info: Implementation, (output, input): Pipes) -> Result<Self, String> {
        let (wire, state) = Wire::new(output, input);
        let client = Client { server: server.to_owned(), info };
        match client.serve(wire).await {
            Ok(service) => {
                let connection = PipeConnection { peer: service.peer().clone(), wire: state };
                Ok(Self { service, connection })
            }
            Err(error) => Err(state.ended().unwrap_or_else(|| format!("the handshake failed: {error}"))),
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

    /// One page of the list of tools.
    pub(crate) async fn page(&self, cursor: Option<String>) -> Result<ListToolsResult, String> {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        self.peer.list_tools(Some(page)).await.map_err(|error| self.ended().unwrap_or_else(|| error.to_string()))
    }

    /// Sends one `tools/call`, once, and waits for its answer, at most for its time limit.
    pub(crate) async fn call(&self, sending: Sending, env: &Env) -> Outcome {
        let Sending { tool, arguments, meta, key_header, timeout } = sending;
        if let Some((name, _)) = key_header {
            let why = format!(
                "its policy sends the key in the HTTP header `{name}`, which a server on standard input cannot get; set the policy's `key_channel` to the request's _meta or to an argument"
            );
            return Outcome::NotSent { why };
        }
        let params = CallToolRequestParams::new(tool).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let options = PeerRequestOptions::no_options().with_meta(RequestMetaObject(MetaObject(meta)));
        let Ok(handle) = self.peer.send_request_with_option(request, options).await else {
            return Outcome::NotSent { why: "the connection closed before the request was taken".to_owned() };
        };
        let (id, mut answer) = (handle.id, handle.rx);
        let mut waiting = Waiting { connection: self, id, answered: false };
        let answer = tokio::select! {
            biased;
            answer = &mut answer => answer,
            () = sleep_or_never(timeout, env) => return not_in_time(timeout),
        };
        waiting.answered = true;
        match answer {
            Ok(Ok(ServerResult::CustomResult(CustomResult(result)))) => completed(result),
            Ok(Err(ServiceError::McpError(error))) => {
                Outcome::Raw(RawReply::RpcError { code: error.code.0.into(), message: error.message.into_owned() })
            }
            Ok(Ok(other)) => Outcome::Lost { why: format!("the answer is of another kind: {other:?}") },
            Ok(Err(error)) => self.unanswered(&waiting.id, &error.to_string()),
            Err(_) => self.unanswered(&waiting.id, "the connection closed"),
        }
    }

    fn unanswered(&self, id: &RequestId, why: &str) -> Outcome {
        let why = self.ended().unwrap_or_else(|| why.to_owned());
        if self.wire.was_never_sent(id) { Outcome::NotSent { why } } else { Outcome::Lost { why } }
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
