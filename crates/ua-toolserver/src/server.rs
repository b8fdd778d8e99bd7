//! The protocol side: what is listed, and how a call reaches its tool.

use std::sync::Arc;
use std::time::Duration;

use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Implementation, ListToolsResult, PaginatedRequestParams,
    RequestMetaObject, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServiceExt};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::Instrument as _;
use ua_core::Env;

use crate::answer::{Answer, Failure, into_response};
use crate::context::Order;
use crate::error::ToolServerError;
use crate::meta::{ATTEMPT, FILES, IDEMPOTENCY_KEY, RUN_ID};
use crate::sent::Said;
use crate::settings::Settings;
use crate::tool::AnyTool;
use crate::tools::{self, Toolbox};
use crate::trace::{self, AdoptParent};

const MAX_KEY_BYTES: usize = 1024;

/// The names of all tools this server knows, in the order it lists them; `run_command` only where it is enabled.
pub fn tool_names() -> &'static [&'static str] {
    tools::NAMES
}

/// What a server says of itself, as the protocol has it: for whoever knows it without asking.
#[derive(Debug, Clone, PartialEq)]
pub struct Introduction {
    /// `serverInfo` of the handshake.
    pub server_info: Value,
    /// `capabilities` of the handshake.
    pub capabilities: Value,
    /// `tools` of the list of tools, in its order.
    pub tools: Vec<Value>,
}

/// The MCP server; clones share everything.
#[derive(Debug, Clone)]
pub struct ToolServer {
    toolbox: Arc<Toolbox>,
    adopt_parent: AdoptParent,
}

impl ToolServer {
    /// Opens the workspace and reads the settings; creates the workspace when it is missing. `env` dates messages and
    /// names effects that have no key.
    pub fn open(settings: &Settings, env: Env) -> Result<Self, ToolServerError> {
        let adopt_parent = settings.adopt_parent.clone();
        Ok(Self { toolbox: Arc::new(Toolbox::open(settings, env)?), adopt_parent })
    }

    /// Refuses a folder or file of the settings that no call could use. A server serves all the same: each tool needs only its own.
    ///
    /// # Errors
    /// The first that cannot be used, and why.
    pub fn look_at_places(&self) -> Result<(), ToolServerError> {
        self.toolbox.look_at_places()
    }

    /// What this server answers a client that shakes hands and asks for its tools. `None` when that is no JSON.
    pub fn introduction(&self) -> Option<Introduction> {
        let info = self.get_info();
        let tools = self.toolbox.tools().map(|tool| serde_json::to_value(tool.listed()).ok());
        Some(Introduction {
            server_info: serde_json::to_value(info.server_info).ok()?,
            capabilities: serde_json::to_value(info.capabilities).ok()?,
            tools: tools.collect::<Option<_>>()?,
        })
    }

    /// Serves one client, line by line, until `reader` ends.
    pub async fn serve<R, W>(self, reader: R, writer: W) -> Result<(), ToolServerError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let running = ServiceExt::serve(self, (reader, writer))
            .await
            .map_err(|source| ToolServerError::Handshake { source: Box::new(source) })?;
        let reason = running.waiting().await.map_err(|source| ToolServerError::Serving { source })?;
        tracing::debug!(?reason, "the client has left");
        Ok(())
    }
}

impl ServerHandler for ToolServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("ua-toolserver", env!("CARGO_PKG_VERSION")))
            .with_instructions(
                "Tools for one workspace directory. Paths are relative to it. An answer with isError means that \
                 nothing was changed.",
            )
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.toolbox.tools().map(AnyTool::listed).collect()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.toolbox.find(name).map(AnyTool::listed)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let key = idempotency_key(&context.meta)?;
        let attempt = attempt(&context.meta)?;
        let files = Said::read(context.meta.get(FILES))
            .map_err(|why| ErrorData::invalid_params(format!("_meta[{FILES:?}] {why}"), None))?;
        let arguments = request.arguments.unwrap_or_default();
        tracing::debug!(keyed = key.is_some(), "call");
        // Without a run id pages are fetched anew, which is always right; so an odd one is as good as none.
        let run = context.meta.get(RUN_ID).and_then(serde_json::Value::as_str).filter(|run| is_key(run));
        let known = tools::NAMES.iter().find(|name| **name == request.name).copied();
        let span = trace::of_call(known, &context.meta, &self.adopt_parent);
        let Some(tool) = self.toolbox.find(&request.name) else {
            return Err(ErrorData::invalid_params(
                format!("there is no tool {:?}; tools/list names those there are", request.name),
                None,
            ));
        };
        let order = Order { key: key.as_deref(), attempt, run, files: &files };
        let call = within(tool.deadline(), tool.may_drop(), tool.answer(self.toolbox.context(), arguments, order));
        let call = call.instrument(span.clone());
        let answer = if tool.may_drop() {
            tokio::select! {
                answer = call => answer,
                () = context.ct.cancelled() => {
                    trace::failed(&span, "cancelled");
                    return Err(ErrorData::internal_error("the call was cancelled before it was finished", None));
                }
            }
        } else {
            call.await
        };
        match &answer {
            Ok(_) => {}
            Err(Failure::Refused { .. }) => trace::failed(&span, "tool_error"),
            Err(Failure::Unclear(_)) => trace::failed(&span, "unclear"),
        }
        into_response(answer)
    }
}

/// The answer of a call, or that its tool's deadline is over. Of a tool that changes things nobody can tell then what it has changed.
async fn within(limit: Duration, may_drop: bool, call: impl Future<Output = Answer>) -> Answer {
    tokio::time::timeout(limit, call).await.unwrap_or_else(|_| {
        let problem = format!("the tool took longer than {}", ua_core::span_in_words(limit));
        Err(if may_drop { Failure::refused(problem, "ask for less in one call") } else { Failure::Unclear(problem) })
    })
}

fn idempotency_key(meta: &RequestMetaObject) -> Result<Option<String>, ErrorData> {
    match meta.get(IDEMPOTENCY_KEY) {
        None => Ok(None),
        Some(serde_json::Value::String(key)) if is_key(key) => Ok(Some(key.clone())),
        // A key that cannot be honoured must not be ignored: the caller relies on it.
        Some(_) => Err(ErrorData::invalid_params(
            format!("_meta[{IDEMPOTENCY_KEY:?}] must be 1 to {MAX_KEY_BYTES} printable ASCII characters"),
            None,
        )),
    }
}

fn attempt(meta: &RequestMetaObject) -> Result<u64, ErrorData> {
    let number = meta.get(ATTEMPT).map_or(Some(1), serde_json::Value::as_u64);
    number
        .filter(|number| *number > 0)
        .ok_or_else(|| ErrorData::invalid_params(format!("_meta[{ATTEMPT:?}] must be a whole number, 1 or more"), None))
}

fn is_key(key: &str) -> bool {
    !key.is_empty() && key.len() <= MAX_KEY_BYTES && key.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_that_does_not_end_is_answered_and_what_changes_things_is_not_called_harmless() {
        let endless = || std::future::pending::<Answer>();
        let limit = Duration::from_millis(10);
        let refused = within(limit, true, endless()).await.unwrap_err();
        assert!(
            matches!(&refused, Failure::Refused { problem, .. } if problem.contains("took longer than")),
            "{refused:?}"
        );
        assert!(matches!(within(limit, false, endless()).await.unwrap_err(), Failure::Unclear(_)));
    }
}
