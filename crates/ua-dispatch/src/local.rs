//! Tools in this process: closures and async functions, for a program that uses the runner as a library.
//!
//! Durable Jobs v1 spec §3.2 (the ledger is in front of every tool); Granular Execution PRD §7 (a tool is handed the idempotency
//! key). A tool in this process takes the same road as any other: it is classified, planned and permitted, and its call is
//! RUNNING on stable storage before the closure is called. Invariants: a closure runs only for a permit, or, for a tool that
//! only reads, for a probe; a closure that panics leaves its call in doubt, it does not end the run; a call that is given up is
//! dropped where it waits. Proved by: `ua-runner`'s tests `granular`.

use std::collections::HashSet;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::pin::Pin;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use serde_json::{Map, Value, json};
use ua_core::{
    AwaitedRun, CallId, Destination, Env, Handle, IdempotencyKey, Outcome, RawReply, RunId, Timestamp, ToolName,
    ToolSpec,
};
use ua_ledger::{Enquiry, Permit};

use crate::enforce::{Payload, verify_key};
use crate::transport::{Fence, ToolTransport, TransportError};

/// What a tool in this process is called with.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalCall {
    /// The tool.
    pub name: ToolName,
    /// The arguments: the model's, plus the key where a policy names an argument for it.
    pub arguments: Map<String, Value>,
    /// Which call of which run this is; `None` when a probe asks about another call.
    pub permitted: Option<PermittedCall>,
}

/// The call that a tool in this process carries out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermittedCall {
    /// The run.
    pub run_id: RunId,
    /// The call.
    pub call_id: CallId,
    /// Which dispatch of it this is, from 1.
    pub attempt: u32,
    /// The key that is the same for every attempt. A tool that does its effect once per key is declared with
    /// `key_channel = "meta"` in a policy, and its lost calls are then sent again instead of asked about.
    pub idempotency_key: IdempotencyKey,
}

impl LocalCall {
    /// The idempotency key as text; empty for a probe, which has no effect to identify.
    pub fn key(&self) -> &str {
        self.permitted.as_ref().map_or("", |call| call.idempotency_key.as_str())
    }

    /// A text argument; empty when it is missing or no text. What a tool requires belongs in its schema, which is checked
    /// before the tool is called.
    pub fn text(&self, argument: &str) -> &str {
        self.arguments.get(argument).and_then(Value::as_str).unwrap_or_default()
    }
}

/// How a tool in this process says that it did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalFailure {
    /// Nothing happened, provably. The call is tried again with backoff, up to `max_retries_per_tool_call`.
    NotDone(String),
    /// Nothing happened, provably, and nothing would: it was refused before it began. The model is told; nothing is repeated, and the call
    /// counts for nothing.
    Refused(String),
    /// It failed, and may have happened in part. The model is told; nothing is repeated.
    Reported(String),
    /// Nobody knows whether it happened. The call is settled by its `on_unknown` policy, which by default asks a person.
    Unknown(String),
    /// Another run does its work, and waits for a person or stopped. The run of the call waits with it, and the tool is called again, under the same
    /// key, when that run is resumed. Only of a tool that may be called again: of any other nobody knows what it did before.
    Waits(Box<AwaitedRun>),
}

impl From<String> for LocalFailure {
    fn from(why: String) -> Self {
        Self::Reported(why)
    }
}

impl From<&str> for LocalFailure {
    fn from(why: &str) -> Self {
        Self::Reported(why.to_owned())
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<Value, LocalFailure>> + Send>>;

struct LocalTool {
    spec: ToolSpec,
    run: Box<dyn Fn(LocalCall) -> Answer + Send + Sync>,
}

/// Tools in this process, as a transport.
///
/// ```
/// use serde_json::json;
/// use ua_core::{Env, ToolAnnotations, ToolName, ToolNamespace, ToolSpec};
/// use ua_dispatch::{LocalCall, LocalFailure, LocalTools};
///
/// let price = ToolSpec {
///     name: ToolName::qualified(ToolNamespace::Local, "shop", "get_price"),
///     description: "The price of an article, in cents.".into(),
///     input_schema: json!({"type": "object", "properties": {"article": {"type": "string"}}, "required": ["article"]}),
///     annotations: ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() },
/// };
/// let tools = LocalTools::new(Env::simulated(1)).with(price, async |call: LocalCall| match call.text("article") {
///     "pen" => Ok(json!({"cents": 120})),
///     other => Err(LocalFailure::Reported(format!("there is no article {other:?}"))),
/// });
/// assert!(tools.servers().contains("shop"));
/// ```
pub struct LocalTools {
    tools: Vec<LocalTool>,
    env: Env,
}

/// All tools here live in one process, which is as old as its calls.
const GENERATION: &str = "in-process";

impl LocalTools {
    /// No tools yet. `env` is asked for the time when a policy gives a tool a timeout.
    pub fn new(env: Env) -> Self {
        Self { tools: Vec::new(), env }
    }

    /// Adds a tool. Its answer is a text, or any other JSON value; an object with `"successful": false` counts as a failure
    /// that was reported. The future is polled in place, so it must not block, and what it leaves running elsewhere is not
    /// waited for.
    #[must_use]
    pub fn with<F, R>(mut self, spec: ToolSpec, run: F) -> Self
    where
        F: Fn(LocalCall) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Value, LocalFailure>> + Send + 'static,
    {
        self.tools.push(LocalTool { spec, run: Box::new(move |call| Box::pin(run(call))) });
        self
    }

    /// The server names of the tools. They are the program's own code, so a classifier may be told to trust what these say
    /// about themselves.
    pub fn servers(&self) -> HashSet<String> {
        self.tools.iter().map(|tool| tool.spec.name.server.clone()).collect()
    }

    fn find(&self, name: &ToolName) -> Option<&LocalTool> {
        self.tools.iter().find(|tool| tool.spec.name == *name)
    }

    async fn call(tool: &LocalTool, call: LocalCall) -> Outcome {
        // The closure itself may panic, not only its future.
        let answer = AssertUnwindSafe(async { (tool.run)(call).await }).catch_unwind().await;
        match answer {
            Ok(Ok(value)) => Outcome::Raw(RawReply::ToolResult { result: result_of(value) }),
            Ok(Err(LocalFailure::NotDone(why))) => Outcome::NotSent { why },
            Ok(Err(LocalFailure::Refused(why))) => Outcome::Raw(RawReply::Refused { why }),
            Ok(Err(LocalFailure::Reported(why))) => Outcome::Raw(RawReply::ToolResult { result: reported(&why) }),
            Ok(Err(LocalFailure::Unknown(why))) => Outcome::Lost { why },
            Ok(Err(LocalFailure::Waits(run))) => Outcome::Continues(Box::new(run.into_handle())),
            Err(panic) => {
                let said = panic.downcast_ref::<String>().map(String::as_str);
                let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it does not say why");
                Outcome::Lost { why: format!("the tool panicked: {said}") }
            }
        }
    }
}

/// What a call in doubt says whose tool waits for a run, and is not to be called again.
fn not_again(handle: &Handle) -> String {
    let run = handle.awaits.as_ref();
    let detail = run.map_or_else(String::new, |run| format!(": {}", run.detail));
    format!(
        "{}{detail}; a tool that does its work in another run is called again then, so it has to take a key",
        of_its_run(handle)
    )
}

/// That a run did the work of a call, which may have come far, as a clause.
fn of_its_run(handle: &Handle) -> String {
    match &handle.awaits {
        Some(awaited) => format!("run {} does its work, and waits or stopped", awaited.run_id),
        None => "it was under way".to_owned(),
    }
}

/// An error as a tool says it.
fn reported(why: &str) -> Value {
    json!({"content": [{"type": "text", "text": why}], "isError": true})
}

/// A value in the form of an MCP tool result, which the ledger knows to read.
fn result_of(value: Value) -> Value {
    match value {
        Value::String(text) => json!({"content": [{"type": "text", "text": text}]}),
        object @ Value::Object(_) => {
            json!({"content": [{"type": "text", "text": object.to_string()}], "structuredContent": object})
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_)) => {
            json!({"content": [{"type": "text", "text": other.to_string()}]})
        }
    }
}

impl fmt::Debug for LocalTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.tools.iter().map(|tool| &tool.spec.name.raw)).finish()
    }
}

#[async_trait]
impl ToolTransport for LocalTools {
    async fn list(&self) -> Result<Vec<ToolSpec>, TransportError> {
        Ok(self.tools.iter().map(|tool| tool.spec.clone()).collect())
    }

    fn working_folder(&self, _server: &str) -> Option<PathBuf> {
        std::env::current_dir().ok() // they are functions of this process
    }

    async fn ready(&self, server: &str) -> Result<String, TransportError> {
        if self.tools.iter().any(|tool| tool.spec.name.server == server) {
            Ok(GENERATION.to_owned())
        } else {
            Err(TransportError::UnknownServer { server: server.to_owned() })
        }
    }

    fn running(&self, server: &str) -> Option<String> {
        self.tools.iter().any(|tool| tool.spec.name.server == server).then(|| GENERATION.to_owned())
    }

    /// What is a part of the program goes where the program is: a tool server under the same name is another side.
    fn destination(&self, _tool: &ToolName, _arguments: &Value) -> Result<Option<Destination>, TransportError> {
        Ok(Some(Destination::of_the_program()))
    }

    async fn invoke(&self, permit: &Permit) -> Outcome {
        let Some(tool) = self.find(permit.name()) else {
            return Outcome::Raw(RawReply::RpcError { code: -32601, message: "there is no such tool".to_owned() });
        };
        let (arguments, meta) = (permit.arguments(), permit.meta());
        let payload = Payload { arguments: &arguments, meta: &meta, header: None };
        if let Err(why) = verify_key(permit, payload) {
            return Outcome::NotSent { why };
        }
        let permitted = PermittedCall {
            run_id: permit.call().run_id.clone(),
            call_id: permit.call().call_id.clone(),
            attempt: permit.call().attempt,
            idempotency_key: permit.key().clone(),
        };
        let call = LocalCall { name: permit.name().clone(), arguments, permitted: Some(permitted) };
        let policy = &permit.call().policy;
        let outcome = match policy.timeout {
            None => Self::call(tool, call).await,
            Some(timeout) => tokio::select! {
                biased;
                outcome = Self::call(tool, call) => outcome,
                () = self.env.clock.sleep(timeout) => {
                    Outcome::Lost { why: format!("it did not answer within {timeout:?}") }
                }
            },
        };
        match outcome {
            Outcome::Continues(handle) if !policy.may_simply_be_repeated() => Outcome::Lost { why: not_again(&handle) },
            outcome @ (Outcome::NotSent { .. } | Outcome::Lost { .. } | Outcome::Raw(_) | Outcome::Continues(_)) => {
                outcome
            }
        }
    }

    /// Calls the tool again, whose work another run does: under the same key it is the same work, which that run takes up where it stands.
    async fn go_on(&self, permit: &Permit, handle: &Handle) -> Result<Outcome, TransportError> {
        if self.find(permit.name()).is_none() {
            let why = format!("there is no tool `{}` any more, {}", permit.name().tool, of_its_run(handle));
            return Ok(Outcome::Lost { why });
        }
        Ok(match self.invoke(permit).await {
            // What that run did before is not undone by a tool that does nothing now.
            Outcome::NotSent { why } => Outcome::Lost { why: format!("{why}; {}", of_its_run(handle)) },
            Outcome::Raw(RawReply::Refused { why }) => {
                Outcome::Raw(RawReply::ToolResult { result: reported(&format!("{why} ({})", of_its_run(handle))) })
            }
            outcome @ (Outcome::Lost { .. } | Outcome::Raw(_) | Outcome::Continues(_)) => outcome,
        })
    }

    async fn ask(&self, enquiry: &Enquiry) -> Outcome {
        let Some(tool) = self.find(enquiry.tool()) else {
            return Outcome::NotSent { why: format!("there is no tool `{}`", enquiry.tool()) };
        };
        let call = LocalCall { name: enquiry.tool().clone(), arguments: enquiry.arguments().clone(), permitted: None };
        Self::call(tool, call).await
    }

    /// A call that was given up was dropped, and one of an earlier process ended with it: the lock of the run says that it did.
    async fn fence(&self, _server: &str, _generation: &str, _lost_at: Option<Timestamp>) -> Fence {
        Fence::Gone
    }
}
