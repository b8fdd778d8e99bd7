//! One initialised connection to one generation of a tool server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientRequest, CustomResult, Implementation,
    MetaObject, PaginatedRequestParams, RequestId, RequestMetaObject, ServerResult, Tool,
};
use rmcp::service::{Peer, PeerRequestOptions, RunningService, ServiceError};
use rmcp::{RoleClient, ServiceExt};
use serde_json::{Map, Value};
use ua_core::{Env, Outcome, RawReply};

use crate::client::Client;
use crate::launch::Pipes;
use crate::wire::{Wire, WireState};

/// The most pages of a tool list that are asked for.
const MAX_PAGES: usize = 200;

/// The part of a connection that calls share. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    peer: Peer<RoleClient>,
    wire: Arc<WireState>,
}

/// The owning part: the connection ends when this is dropped.
pub(crate) struct Session {
    service: RunningService<RoleClient, Client>,
    connection: Connection,
}

impl Session {
    /// Shakes hands as servers up to revision 2025-11-25 expect it. The error says what came instead.
    pub(crate) async fn open(server: &str, info: Implementation, (output, input): Pipes) -> Result<Self, String> {
        let (wire, state) = Wire::new(output, input);
        let client = Client { server: server.to_owned(), info };
        match client.serve(wire).await {
            Ok(service) => {
                let connection = Connection { peer: service.peer().clone(), wire: state };
                Ok(Self { service, connection })
            }
            Err(error) => Err(state.ended().unwrap_or_else(|| format!("the handshake failed: {error}"))),
        }
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Closes the server's input, which asks it to end.
    pub(crate) async fn close(mut self) {
        if let Err(error) = self.service.close().await {
            tracing::debug!(%error, "the connection's task ended badly");
        }
    }
}

impl Connection {
    /// Why nothing more will come, if nothing will.
    pub(crate) fn ended(&self) -> Option<String> {
        let closed = || self.peer.is_transport_closed().then(|| "the connection is closed".to_owned());
        self.wire.ended().or_else(closed)
    }

    /// Lists every tool, page by page. The error says what came instead.
    pub(crate) async fn tools(&self) -> Result<Vec<Tool>, String> {
        let mut tools = Vec::new();
        let mut cursors = BTreeSet::new();
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let page = self
                .peer
                .list_tools(Some(page))
                .await
                .map_err(|error| self.ended().unwrap_or_else(|| error.to_string()))?;
            tools.extend(page.tools);
            match page.next_cursor {
                None => return Ok(tools),
                Some(next) if !cursors.insert(next.clone()) => {
                    return Err("its list of tools has no end: a page came twice".to_owned());
                }
                next @ Some(_) => cursor = next,
            }
        }
        Err(format!("its list of tools has more than {MAX_PAGES} pages"))
    }

    /// Sends one `tools/call`, once, and waits for its answer, at most for `timeout`.
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        meta: Map<String, Value>,
        timeout: Option<Duration>,
        env: &Env,
    ) -> Outcome {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
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
            () = sleep_or_never(timeout, env) => {
                return Outcome::Lost { why: format!("no answer within {} s", timeout.unwrap_or_default().as_secs_f64()) };
            }
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

async fn sleep_or_never(span: Option<Duration>, env: &Env) {
    match span {
        Some(span) => env.clock.sleep(span).await,
        None => std::future::pending().await,
    }
}

/// Reads the kind of a result. A server that wants input first, or that started a task, has not said how the call ends, and
/// what it did so far is not known either: that is a lost outcome, not an error reply.
fn completed(result: Value) -> Outcome {
    match result.get("resultType").and_then(Value::as_str) {
        Some("input_required") => Outcome::Lost {
            why: "the tool asked for input in the middle of the call, which this build cannot give".to_owned(),
        },
        Some("task") => {
            Outcome::Lost { why: "the tool went on in a task of its own, which this build cannot follow".to_owned() }
        }
        Some(_) | None => Outcome::Raw(RawReply::ToolResult { result }),
    }
}

/// Tells the server when nobody waits any more: the caller's future was dropped, or its time was up.
struct Waiting<'a> {
    connection: &'a Connection,
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
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_final_result_is_a_reply() {
        let last = json!({"resultType": "complete", "content": []});
        assert_eq!(completed(last.clone()), Outcome::Raw(RawReply::ToolResult { result: last }));
        for kind in ["input_required", "task"] {
            assert!(matches!(completed(json!({"resultType": kind})), Outcome::Lost { .. }), "{kind}");
        }
    }
}
