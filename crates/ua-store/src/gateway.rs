//! What the gateway stores beside calls: sessions of clients, and who asked for which call.
//!
//! A session is a run that no model of ours drives, so its calls belong to no turn. Several requests may be one call: the client's transport
//! posted it again, its model asked again after a kill, two clients want the same. Each is an *arrival*, which says by which rule it is that
//! call, whether its answer was written to the client, and whether the client is known to have it. Proved by: `conformance::gateway`.

use serde::{Deserialize, Serialize};
use ua_core::{ArgsHash, CallId, PlannedCall, RunId, StepId, Timestamp};

use crate::commit::NewRun;
use crate::error::StoreError;
use crate::record::RunRecord;
use crate::store::Store;

/// The `run_mode` of a session at the gateway.
pub const GATEWAY_MODE: &str = "gateway";

/// Whether a run is a session at the gateway.
pub fn is_gateway(run: &RunRecord) -> bool {
    run.run_mode == GATEWAY_MODE
}

/// Whether nothing more comes of a run, and nobody acts for it. A session at the gateway that a person ended is over, although no process comes by to
/// say so: its client continues in another one.
pub fn is_over(run: &RunRecord) -> bool {
    run.status.is_terminal() || (is_gateway(run) && run.end_mark().is_some())
}

/// A client's session with one tool server (`gateway_sessions`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Its run.
    pub run_id: RunId,
    /// Where its doubts reach: the folder that the client works in.
    pub project: String,
    /// The name of the tool server in the client's configuration.
    pub server: String,
    /// What tells it from other sessions of the project: the client's own name for it, or the connection's.
    pub session_key: String,
    /// What the client calls itself.
    pub client: String,
    /// How well the session is known: `exact`, `provisional` or `connection`.
    pub identity: String,
    /// Digest of how the tool server is reached: a call of another server of the same name is another call.
    pub reach: String,
    /// When it began.
    pub opened_at: Timestamp,
}

/// A session to be opened, with its run.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSession {
    /// Its run; of mode [`GATEWAY_MODE`].
    pub run: NewRun,
    /// The session.
    pub session: SessionRecord,
}

/// A client's request for a tool, and which call it is (`gateway_arrivals`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrivalRecord {
    /// The bridge's id of the request: the same when the bridge sends it again.
    pub arrival_id: String,
    /// The session of the one who asks; the call may be another session's.
    pub run_id: RunId,
    /// The call that it is.
    pub call_id: CallId,
    /// The client's own name for the tool use, where it gives one.
    pub client_call: Option<String>,
    /// The rule by which it is that call.
    pub rule: String,
    /// The project of the session.
    pub project: String,
    /// The tool, as the call has it.
    pub tool: String,
    /// Digest of the arguments, as the call has it.
    pub args_hash: ArgsHash,
    /// When it came.
    pub arrived_at: Timestamp,
    /// When its answer was written to the client.
    pub answered_at: Option<Timestamp>,
    /// When the client was known to have the answer.
    pub acknowledged_at: Option<Timestamp>,
    /// Until when the client, which is known not to have read the answer, may ask for it again: so long it counts as not written.
    pub unread_until: Option<Timestamp>,
}

/// How far an answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Delivery {
    /// It was written to the client.
    Written,
    /// The client is known to have it.
    Had,
    /// It had been written when the client said that it takes none: it counts as not written.
    NotTaken,
    /// It was written and is known not to have been read: it counts as not written until then.
    Unread {
        /// Until when.
        until: Timestamp,
    },
}

impl ArrivalRecord {
    /// The rule of a request that is a call of its own.
    pub const NEW: &str = "new";

    /// Whether the answer was written, and is known not to have been read by a client that may still ask for it again.
    #[must_use]
    pub fn is_unread(&self, now: Timestamp) -> bool {
        self.unread_until.is_some_and(|until| now <= until)
    }
}

/// A request to be noted, with its call if it is a new one.
#[derive(Debug, Clone, PartialEq)]
pub struct NewArrival {
    /// The request; neither answered nor acknowledged.
    pub arrival: ArrivalRecord,
    /// The call, if it is a new one: it stands in the session's run, in no turn.
    pub call: Option<Box<PlannedCall>>,
    /// The step of the run that it belongs to.
    pub step: StepId,
}

/// Which sessions are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionsOf {
    /// That of a run, if it is one.
    Run(RunId),
    /// The one of a project, a tool server and a key, if there is one.
    Key {
        /// The project.
        project: String,
        /// The tool server's name.
        server: String,
        /// What tells it from others.
        session_key: String,
    },
    /// All, newest first, so many of them.
    Newest(u32),
}

/// What is the same call, under all names that it may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SameCall {
    /// In one of these projects.
    pub projects: Vec<String>,
    /// Of a tool with one of these names.
    pub tools: Vec<String>,
    /// With arguments of one of these digests.
    pub args_hashes: Vec<ArgsHash>,
}

impl SameCall {
    /// Each project with each tool and each digest.
    pub fn each(&self) -> impl Iterator<Item = (&str, &str, &ArgsHash)> {
        let tools = |project| self.tools.iter().map(move |tool| (project, tool.as_str()));
        let hashes = |(project, tool)| self.args_hashes.iter().map(move |args_hash| (project, tool, args_hash));
        self.projects.iter().map(String::as_str).flat_map(tools).flat_map(hashes)
    }
}

/// Which arrivals are read, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArrivalsOf {
    /// This one, if it came.
    One(String),
    /// Those for a call.
    Call(CallId),
    /// Those for the same.
    Same(SameCall),
    /// The newest of a session that was a call of its own with an effect ([`ArrivalRecord::NEW`]), which was sent, and whose answer its client is known to
    /// have; if there is one.
    NewestHeardOf(RunId),
    /// All that a session asked for, and what others asked for that is a call of it.
    Session(RunId),
}

/// What is read of the gateway's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GatewayOf {
    /// Sessions.
    Sessions(SessionsOf),
    /// Arrivals.
    Arrivals(ArrivalsOf),
}

/// What was read of the gateway's rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GatewayRecords {
    /// The sessions, where they were asked for.
    pub sessions: Vec<SessionRecord>,
    /// The arrivals, where they were asked for.
    pub arrivals: Vec<ArrivalRecord>,
}

impl GatewayRecords {
    /// Sessions that were read.
    pub fn of_sessions(sessions: Vec<SessionRecord>) -> Self {
        Self { sessions, ..Self::default() }
    }

    /// Arrivals that were read.
    pub fn of_arrivals(arrivals: Vec<ArrivalRecord>) -> Self {
        Self { arrivals, ..Self::default() }
    }
}

/// What the gateway reads of a [`Store`].
pub trait GatewayStore: Store {
    /// Sessions.
    fn sessions_of(&self, of: SessionsOf) -> impl Future<Output = Result<Vec<SessionRecord>, StoreError>> + Send {
        async move { Ok(self.gateway_of(GatewayOf::Sessions(of)).await?.sessions) }
    }

    /// Who asked for which call, oldest first.
    fn arrivals_of(&self, of: ArrivalsOf) -> impl Future<Output = Result<Vec<ArrivalRecord>, StoreError>> + Send {
        async move { Ok(self.gateway_of(GatewayOf::Arrivals(of)).await?.arrivals) }
    }
}

impl<T: Store + ?Sized> GatewayStore for T {}
