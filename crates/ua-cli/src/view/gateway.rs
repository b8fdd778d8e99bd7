//! What `ua gateway` writes.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ua_core::Timestamp;

use super::OpenQuestion;

/// The state of the gateway (`ua gateway status`).
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct GatewayStatus {
    /// Its folder.
    pub(crate) root: PathBuf,
    /// The broker; none when none runs.
    pub(crate) broker: Option<GatewayBroker>,
    /// Questions about calls that wait for an answer, whether a broker runs or not.
    pub(crate) questions: Vec<OpenQuestion>,
    /// What would keep a broker from starting now: its settings, its database or its disk; none when nothing is known.
    pub(crate) trouble: Option<String>,
    /// Why there is no broker: what the last one said before it ended by an error, or how it ended that was started last; none once one serves.
    pub(crate) last_error: Option<GatewayFault>,
    /// What to look at: names in `gateway.toml` that stand for no client, tool server or effect so far, files that were changed since the broker
    /// read them, and entries of clients that start a program which does not exist or has another version.
    pub(crate) warnings: Vec<String>,
}

/// Why there is no broker.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct GatewayFault {
    /// When.
    #[schemars(with = "String")]
    pub(crate) at: Timestamp,
    /// What was wrong.
    pub(crate) message: String,
    /// What helps, where that is known.
    pub(crate) hint: Option<String>,
}

/// The gateway's broker.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct GatewayBroker {
    /// Its process.
    pub(crate) pid: u32,
    /// Its version.
    #[serde(default)]
    pub(crate) version: Option<String>,
    /// Where clients over HTTP reach it, if they may.
    #[serde(default)]
    pub(crate) http: Option<String>,
    /// Why they do not, while another program has that address.
    #[serde(default)]
    pub(crate) http_taken: Option<String>,
    /// The clients that are connected, one for each tool server.
    pub(crate) bridges: Vec<GatewayBridge>,
    /// The calls that are in flight.
    pub(crate) calls: Vec<GatewayCall>,
    /// Whether it ends once these are finished, and accepts no more clients.
    #[serde(default)]
    pub(crate) is_ending: bool,
}

/// A client that is connected.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct GatewayBridge {
    /// Its bridge's name.
    pub(crate) bridge: String,
    /// The tool server.
    pub(crate) server: String,
    /// What the client calls itself.
    pub(crate) client: String,
    /// Its project.
    pub(crate) project: String,
    /// How well its session is known: `exact`, `provisional` or `connection`.
    pub(crate) identity: String,
    /// The process that started the bridge.
    pub(crate) parent: u32,
    /// How it is connected: `bridge` or `http`.
    #[serde(default)]
    pub(crate) way: String,
}

/// A call that is under way.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct GatewayCall {
    /// The call.
    pub(crate) call: String,
    /// Its tool server.
    #[serde(default)]
    pub(crate) server: String,
    /// Its tool.
    #[serde(default)]
    pub(crate) tool: String,
    /// Since when.
    #[schemars(with = "String")]
    pub(crate) since: Timestamp,
    /// What a person is asked about it.
    #[serde(default)]
    pub(crate) question: Option<String>,
    /// Whether a person is asked about it.
    pub(crate) is_held: bool,
    /// How many wait for it.
    pub(crate) askers: u64,
}

/// What was changed about a client's configuration (`ua gateway install`, `uninstall`).
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct GatewayChanged {
    /// The configuration.
    pub(crate) file: PathBuf,
    /// Whether it was only looked at.
    pub(crate) dry_run: bool,
    /// Its tool servers.
    pub(crate) servers: Vec<GatewayEntry>,
    /// Those that `ua` itself was allowed to start as they were, and does not start as they are: `ua trust FILE` shows them and asks.
    pub(crate) untrusted: Vec<String>,
    /// The client's file with the rules of `--guard`, if that was changed, or would be.
    pub(crate) rules: Option<PathBuf>,
}

/// A tool server of a client's configuration.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct GatewayEntry {
    /// Its name.
    pub(crate) server: String,
    /// What was done about it: `wrapped`, `already`, `moved`, `elsewhere`, `unwrapped`, `may_log_in`, `unreachable`, `not_read`, `shared`,
    /// `twice`, `not_wrapped`, `all` or `not_restored`.
    pub(crate) what: String,
}

/// What becomes of the broker (`ua gateway start`, `restart`).
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct GatewayStarted {
    /// Whether one was running before.
    pub(crate) was_running: bool,
    /// Whether a new one runs now.
    pub(crate) is_new: bool,
    /// The calls that the earlier one was to finish first; what had no answer within half a minute is in doubt.
    pub(crate) calls: Vec<GatewayCall>,
}

/// A broker that was asked to end (`ua gateway stop`).
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct GatewayStopped {
    /// Its process; none where no broker was running.
    pub(crate) pid: Option<u32>,
    /// The calls that it finishes first.
    pub(crate) calls: Vec<GatewayCall>,
}

/// A client over HTTP, and its token (`ua gateway token`).
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct GatewayToken {
    /// The client's name.
    pub(crate) client: String,
    /// The token, where it was made just now: it is kept nowhere in plain text.
    pub(crate) token: Option<String>,
    /// Whether the client has one.
    pub(crate) is_valid: bool,
}
