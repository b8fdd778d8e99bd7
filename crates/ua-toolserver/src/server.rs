//! The protocol side: what is listed, how a call reaches its tool, and how the server runs.

use std::io::Write;
use std::sync::Arc;

use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, Implementation, ListToolsResult, PaginatedRequestParams,
    RequestMetaObject, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServiceExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tracing::Instrument as _;
use ua_core::Env;

use crate::answer::{Failure, into_response};
use crate::error::ToolServerError;
use crate::http::HttpServer;
use crate::settings::Settings;
use crate::tools::{self, Toolbox};
use crate::trace::{self, AdoptParent};

/// The request `_meta` field in which an idempotency key arrives (Durable Jobs v1 spec §8.2).
pub const IDEMPOTENCY_KEY: &str = "dev.universal-agent/idempotency-key";

/// The request `_meta` field that names the run a call belongs to (Durable Jobs v1 spec §8.2). `crawl_parallel` takes
/// pages that the same run has stored before from their copies.
pub const RUN_ID: &str = "dev.universal-agent/run-id";
/// The request `_meta` field that counts the attempts at one call, from 1. A durable runner holds a call whose transport
/// cannot repeat it safely, so there a later attempt means that a person ordered it.
pub const ATTEMPT: &str = "dev.universal-agent/attempt";

/// The `_meta` field of a tool in `tools/list` that says whether two calls under one idempotency key are one effect.
pub const HONOURS_KEYS: &str = "dev.universal-agent/honours-keys";

/// The `_meta` field of a tool in `tools/list` that says for how many seconds an idempotency key is honoured.
pub const KEY_TTL_SECONDS: &str = "dev.universal-agent/key-ttl-seconds";

const MAX_KEY_BYTES: usize = 1024;

/// The names of all tools this server knows, in the order it lists them; `run_command` only where it is enabled.
pub fn tool_names() -> &'static [&'static str] {
    tools::NAMES
}

/// Serves as the settings say: over HTTP when they name an address, which is written to standard error once it listens;
/// else one client on standard input and output.
pub async fn serve(settings: Settings) -> Result<(), ToolServerError> {
    let Some(address) = settings.http else {
        return serve_stdio(settings).await;
    };
    let server = HttpServer::bind(&settings, address, ua_core::system::env()).await?;
    if let Err(error) = writeln!(std::io::stderr(), "listening on {}", server.url()) {
        tracing::debug!(%error, "nobody reads the address");
    }
    server.serve().await;
    Ok(())
}

/// Serves one client on standard input and output until it closes them.
pub async fn serve_stdio(settings: Settings) -> Result<(), ToolServerError> {
    let server = ToolServer::open(&settings, ua_core::system::env())?;
    server.serve(tokio::io::stdin(), tokio::io::stdout()).await
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
        Ok(ListToolsResult::with_all_items(self.toolbox.list()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.toolbox.list().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let key = idempotency_key(&context.meta)?;
        let attempt = attempt(&context.meta)?;
        let arguments = request.arguments.unwrap_or_default();
        tracing::debug!(keyed = key.is_some(), "call");
        // Without a run id pages are fetched anew, which is always right; so an odd one is as good as none.
        let run = context.meta.get(RUN_ID).and_then(serde_json::Value::as_str).filter(|run| is_key(run));
        let span = trace::of_call(&request.name, &context.meta, &self.adopt_parent);
        let call = Box::pin(self.toolbox.call(&request.name, arguments, key, attempt, run).instrument(span.clone()));
        let answer = if Toolbox::may_drop(&request.name) {
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
        match answer {
            Some(answer) => {
                match &answer {
                    Ok(_) => {}
                    Err(Failure::Refused { .. }) => trace::failed(&span, "tool_error"),
                    Err(Failure::Unclear(_)) => trace::failed(&span, "unclear"),
                }
                into_response(answer)
            }
            None => Err(ErrorData::invalid_params(
                format!("there is no tool {:?}; tools/list names those there are", request.name),
                None,
            )),
        }
    }
}

fn idempotency_key(meta: &RequestMetaObject) -> Result<Option<String>, ErrorData> {
    match meta.get(IDEMPOTENCY_KEY) {
        None => Ok(None),
        Some(serde_json::Value::String(key)) if is_key(key) => Ok(Some(key.clone())),
        // A key that can not be honoured must not be ignored: the caller relies on it.
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
