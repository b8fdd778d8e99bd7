//! MCP tool servers as a transport of permitted calls.
//!
//! Durable Jobs v1 spec §3 and §8; Durable runner, current state §6. The only crate that knows the client side of MCP.
//! Each server is a process of its own below a *shim*, which keeps a terminal's signals away from it, holds a lock for as
//! long as anything of it lives, and ends it when the runner is gone. A started process is a *generation*: its name is
//! recorded with RUNNING, a call is sent to that generation or not at all, and *fencing* a generation proves that whatever
//! it has not done, it will never do. A server reached over Streamable HTTP is not ours to end: its generation is one
//! session of this process with it, and fencing it is waiting until a horizon has passed.
//!
//! Deliberately absent: any retry of a call, any reading of the environment (but the HTTP client looks for the system's
//! proxies), any decision about what a reply means.
//!
//! ```
//! use ua_core::{Env, RunId, ToolNamespace};
//! use ua_mcp::{LockDir, McpConfig, McpTransport, McpTransportConfig, ServerSpec, ShimCommand};
//!
//! let config = McpConfig::parse(r#"{"mcpServers": {"notes": {"command": "notes-server"}}}"#, ".mcp.json").unwrap();
//! let env = Env::simulated(1);
//! let locks = LockDir::new("locks".as_ref(), RunId::parse("nightly").unwrap(), env.clone()).unwrap();
//! let shim = ShimCommand { program: "/usr/bin/ua".into(), args: vec!["__shim".into()] };
//! let mut transport = McpTransportConfig::new(shim, locks, env);
//! for (name, reach) in config.servers {
//!     transport.servers.push(ServerSpec::new(name, ToolNamespace::Mcp, reach));
//! }
//! let transport = McpTransport::new(transport); // starts nothing yet
//! assert!(transport.notes().is_empty());
//! ```

mod amount;
mod below;
mod client;
mod config;
mod connection;
mod definitions;
mod destination;
mod dialect;
mod effects;
mod error;
mod exchange;
#[cfg(feature = "conformance")]
mod exercise;
mod foretold;
mod form_order;
mod frame;
mod hidden;
mod host;
mod http;
mod judged;
mod launch;
mod life;
mod locks;
mod logins;
mod long_running;
mod mark;
pub mod nameless;
mod offered;
mod pages;
mod pipe;
mod process;
mod queue;
mod resources;
mod server;
mod shim;
mod signals;
mod taken_schema;
mod tasks;
mod trace;
mod transport;
mod wire;

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests;

pub use amount::{is_too_much, read_message};
pub use below::{Namespaces, Process, is_below_a_shim, namespaces};
pub use config::{McpConfig, Reach, ServerSpec, references};
pub use definitions::{DefinitionLock, Locked, LockedServer, reach_digest};
pub use destination::{Decides, destination_of_login, goes_with_login, own_secret};
pub use dialect::Protocol;
pub use effects::{ENDED_FOR_ANOTHER, EffectUnderWay, Effects, LONGEST_FOR_OTHERS};
pub use error::McpError;
pub use exchange::{PATIENCE_FOR_READS, out_of_time, time_of};
#[doc(hidden)]
#[cfg(feature = "conformance")]
pub use exercise::{exercise, log_in};
pub use foretold::{Foreteller, Foretold};
pub use frame::{BrokenFrame, Frame, answered_number, envelope};
pub use hidden::hide_from_others;
pub use host::{Progress, ProgressWatcher, WROTE_NO_MESSAGE};
pub use http::{Horizon, Relay, Relayed, UNKNOWN, argument_headers, as_heard, header_text, only_asks};
pub use launch::ShimCommand;
pub use locks::{LockDir, LockRecord};
pub use logins::{
    ClientCredentials, ClientKey, ClientProof, ClientSecret, KeySource, LoginError, LoginFacts, LoginRequest, Logins,
    OwnClient, PendingLogin, Vault, check_address, host_of,
};
pub use pages::Pages;
pub use queue::{MOST_WAITING, QueueReceiver, QueueSender, Queued, queue, size_of};
pub use server::ServerAbout;
pub use shim::{DEFAULT_GRACE, ServerLog, ShimArgs, run_shim};
pub use signals::{is_ignored, outlive_requests_to_end, unblock_signals};
pub use tasks::{
    TASKS, TaskStands, is_unknown_task, of_task, task_begun, task_error, task_result, task_stands, task_wait,
};
pub use transport::{McpTransport, McpTransportConfig};
