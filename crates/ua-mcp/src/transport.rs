//! All configured tool servers as one transport.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use rmcp::model::Implementation;
use tracing::Instrument as _;
use ua_core::{CurrentSpan, Env, KeyChannel, Outcome, RawReply, SecretFiller, SideEffectClass, ToolSpec};
use ua_gateway::{Enquiry, Fence, Payload, Permit, ToolTransport, TransportError, verify_key};

use crate::config::ServerSpec;
use crate::connection::Sending;
use crate::http::Horizon;
use crate::launch::ShimCommand;
use crate::locks::LockDir;
use crate::server::{Server, Shared};
use crate::shim::DEFAULT_GRACE;
use crate::trace;

/// What a transport is made from.
#[derive(Debug, Clone)]
pub struct McpTransportConfig {
    /// The servers, in the order in which their tools are listed.
    pub servers: Vec<ServerSpec>,
    /// How to run the shim.
    pub shim: ShimCommand,
    /// Where the run's tool server locks are.
    pub locks: LockDir,
    /// Time and chance. The real ones: processes do not live in simulated time.
    pub env: Env,
    /// How long a server may take to answer the handshake, and then to list its tools.
    pub start_timeout: Duration,
    /// How long a read-only call may take when its policy says nothing; `None` waits as long as it takes, as every call
    /// with an effect does.
    pub call_timeout_for_reads: Option<Duration>,
    /// How long a server may take to end once its input is closed.
    pub grace: Duration,
    /// How long after an attempt on a remote server was given up it is taken to be never begun any more. A remote server
    /// cannot be killed, so this is what a fence waits for instead.
    pub remote_horizon: Duration,
    /// The name under which we introduce ourselves to servers.
    pub client_name: String,
    /// The version that goes with it.
    pub client_version: String,
    /// The folder for `<server>.stderr.log`, to which each server's standard error is appended; `None` keeps only what is
    /// quoted in errors.
    pub stderr_log: Option<PathBuf>,
    /// Which span a request comes from, for the server's own spans. Without one a server is told the process's trace.
    pub current_span: CurrentSpan,
    /// Who puts the values of secrets in the place of references just before a call is sent; without one references go as they are.
    pub secrets: Option<Arc<dyn SecretFiller>>,
}

impl McpTransportConfig {
    /// A configuration without servers: 30 s to start, 120 s for a read, 2 s to end, 30 s of horizon.
    pub fn new(shim: ShimCommand, locks: LockDir, env: Env) -> Self {
        Self {
            servers: Vec::new(),
            shim,
            locks,
            env,
            start_timeout: Duration::from_secs(30),
            call_timeout_for_reads: Some(Duration::from_mins(2)),
            grace: DEFAULT_GRACE,
            remote_horizon: Duration::from_secs(30),
            client_name: "ua".to_owned(),
            client_version: env!("CARGO_PKG_VERSION").to_owned(),
            stderr_log: None,
            current_span: CurrentSpan::default(),
            secrets: None,
        }
    }
}

/// MCP tool servers as a [`ToolTransport`]: each a process below its shim, started when it is first needed, or a session
/// with a remote endpoint.
///
/// Sends every permitted attempt once. Nothing in here, and nothing in the client library below, repeats a request.
pub struct McpTransport {
    servers: Vec<Server>,
    shared: Shared,
    call_timeout_for_reads: Option<Duration>,
    current_span: CurrentSpan,
    secrets: Option<Arc<dyn SecretFiller>>,
    /// What the last listing left out, by server.
    notes: Mutex<BTreeMap<String, Vec<String>>>,
}

impl fmt::Debug for McpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<&str> = self.servers.iter().map(Server::name).collect();
        f.debug_struct("McpTransport").field("servers", &servers).finish_non_exhaustive()
    }
}

impl McpTransport {
    /// Makes the transport. Nothing is started yet.
    pub fn new(config: McpTransportConfig) -> Self {
        let shared = Shared {
            shim: config.shim,
            locks: config.locks,
            horizon: Horizon::new(config.remote_horizon, config.env.clone()),
            env: config.env,
            start_timeout: config.start_timeout,
            grace: config.grace,
            client: Implementation::new(config.client_name, config.client_version),
            stderr_log: config.stderr_log,
        };
        let servers = config.servers.into_iter().map(Server::new).collect();
        let (call_timeout_for_reads, current_span) = (config.call_timeout_for_reads, config.current_span);
        let secrets = config.secrets;
        Self { servers, shared, call_timeout_for_reads, current_span, secrets, notes: Mutex::default() }
    }

    fn server(&self, name: &str) -> Result<&Server, TransportError> {
        let found = self.servers.iter().find(|server| server.name() == name);
        found.ok_or_else(|| TransportError::UnknownServer { server: name.to_owned() })
    }

    /// What the last listing left out and why, in sentences.
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).values().flatten().cloned().collect()
    }

    /// Ends every server of this process in an orderly way and removes their lock files. A server that does not end is
    /// killed.
    pub async fn shutdown(&self) {
        join_all(self.servers.iter().map(|server| server.shut_down(&self.shared))).await;
    }

    /// One permitted attempt.
    async fn send(&self, permit: &Permit) -> Outcome {
        let call = permit.call();
        let server = match self.server(&permit.name().server) {
            Ok(server) => server,
            Err(error) => return Outcome::NotSent { why: error.to_string() },
        };
        let connection = match server.connection(permit.generation()).await {
            Ok(connection) => connection,
            Err(why) => return Outcome::NotSent { why },
        };
        let for_class = if call.policy.class == SideEffectClass::ReadOnly { self.call_timeout_for_reads } else { None };
        let timeout = call.policy.timeout.or(for_class);
        let key_header = match &call.policy.key_channel {
            Some(KeyChannel::Header(name)) => Some((name.clone(), permit.key().as_str().to_owned())),
            Some(KeyChannel::Argument(_) | KeyChannel::Meta) | None => None,
        };
        let (mut arguments, mut meta) = (permit.arguments(), permit.meta());
        if let Some(secrets) = &self.secrets
            && let Err(why) = secrets.fill(permit.name(), &mut arguments)
        {
            return Outcome::NotSent { why };
        }
        let header = key_header.as_ref().map(|(name, value)| (name.as_str(), value.as_str()));
        if let Err(why) = verify_key(permit, Payload { arguments: &arguments, meta: &meta, header }) {
            return Outcome::NotSent { why };
        }
        trace::put(&self.current_span, &mut meta);
        let sending = Sending { tool: permit.name().tool.clone(), arguments, meta, key_header, timeout };
        let watch = self.shared.horizon.watch(permit.generation());
        let outcome = connection.call(sending, &self.shared.env).await;
        match &outcome {
            Outcome::Raw(RawReply::ToolResult { .. }) | Outcome::NotSent { .. } => watch.answered(),
            // A status or an error of the protocol may still be read as an unknown outcome.
            Outcome::Lost { .. } | Outcome::Raw(_) => drop(watch),
        }
        match outcome {
            Outcome::Lost { why } => match server.obituary(permit.generation(), &self.shared).await {
                Some(end) => Outcome::Lost { why: format!("{why}; {end}") },
                None => Outcome::Lost { why },
            },
            Outcome::NotSent { .. } | Outcome::Raw(_) => outcome,
        }
    }

    /// One request of a probe.
    async fn enquire(&self, enquiry: &Enquiry) -> Outcome {
        let server = match self.server(&enquiry.tool().server) {
            Ok(server) => server,
            Err(error) => return Outcome::NotSent { why: error.to_string() },
        };
        let connection = match server.ready(&self.shared).await {
            Ok((_generation, connection)) => connection,
            Err(error) => return Outcome::NotSent { why: error.to_string() },
        };
        let mut meta = serde_json::Map::new();
        trace::put(&self.current_span, &mut meta);
        let sending = Sending {
            tool: enquiry.tool().tool.clone(),
            arguments: enquiry.arguments().clone(),
            meta,
            key_header: None,
            timeout: self.call_timeout_for_reads,
        };
        connection.call(sending, &self.shared.env).await
    }
}

#[async_trait]
impl ToolTransport for McpTransport {
    async fn list(&self) -> Result<Vec<ToolSpec>, TransportError> {
        let listed = join_all(self.servers.iter().map(|server| server.list(&self.shared))).await;
        let mut tools: Vec<ToolSpec> = Vec::new();
        for (server, listed) in self.servers.iter().zip(listed) {
            let listed = listed?;
            // `a_` with `x` and `a` with `_x` make one name; so do two servers of one name.
            if let Some(tool) =
                listed.tools.iter().find(|tool| tools.iter().any(|other| other.name.raw == tool.name.raw))
            {
                let why = format!("another server offers `{}` too; rename one of the servers", tool.name);
                return Err(TransportError::NotListed { server: server.name().to_owned(), why });
            }
            tools.extend(listed.tools);
            self.notes.lock().unwrap_or_else(PoisonError::into_inner).insert(server.name().to_owned(), listed.notes);
        }
        Ok(tools)
    }

    async fn ready(&self, server: &str) -> Result<String, TransportError> {
        let (generation, _connection) = self.server(server)?.ready(&self.shared).await?;
        Ok(generation)
    }

    async fn invoke(&self, permit: &Permit) -> Outcome {
        let span = trace::of_attempt(permit);
        let outcome = self.send(permit).instrument(span.clone()).await;
        trace::ended(&span, &outcome);
        outcome
    }

    async fn ask(&self, enquiry: &Enquiry) -> Outcome {
        let span = trace::of_request(enquiry.tool());
        let outcome = self.enquire(enquiry).instrument(span.clone()).await;
        trace::ended(&span, &outcome);
        outcome
    }

    async fn fence_earlier(&self) -> Fence {
        let fences = self.shared.locks.retire_all_orphans().await;
        let alive: Vec<String> = fences
            .into_iter()
            .filter_map(|(server, generation, fence)| match fence {
                Fence::Gone => None,
                Fence::Alive { detail } => Some(format!("`{server}` ({generation}): {detail}")),
            })
            .collect();
        if alive.is_empty() { Fence::Gone } else { Fence::Alive { detail: alive.join("; ") } }
    }

    async fn fence(&self, server: &str, generation: &str) -> Fence {
        match self.server(server) {
            Ok(server) => server.fence(generation, &self.shared).await,
            // Not configured any more, but it may still live.
            Err(_) => self.shared.fence_without_server(server, generation).await,
        }
    }
}
