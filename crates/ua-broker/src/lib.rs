//! The gateway's broker: tool calls of clients that have never heard of us, through the ledger of jobs.
//!
//! A client starts a bridge (`ua_bridge`) where its configuration had a tool server. The broker, one per state folder, has the tool servers, the
//! ledger and the questions, and outlives clients: what it sent it waits for, and the receipt is there for whoever asks for the same call next.
//!
//! - **Which call is it?** [`rules`] says so, purely, before the ledger's verdict: the very request again, one that nobody knows the end of, one
//!   whose result reached nobody, one that was had before, one that is being had.
//! - **May it go out?** The same desk, dispatcher, ledger and verdict as for jobs answer that; nothing is decided twice.
//! - **Who has its answer?** An answer is *delivered* when the bridge wrote it to the client, and *acknowledged* when the client went on.
//!
//! A session is a run without turns. Its own successes are its family's; what is in doubt reaches the project.
//! Everything but tool calls passes as it came.
//!
//! Deliberately absent: a model, a drive, the environment, the command line.

mod accepting;
mod again;
mod aggregate;
mod ask;
mod batches;
mod bridge;
mod broker;
mod budget;
mod came_back;
mod carrier;
mod client;
mod connection;
mod deliveries;
mod dispatch;
mod doubts;
mod dropped;
mod ending;
mod era;
mod given;
mod http;
mod incoming;
mod input;
mod late;
mod live;
mod open_requests;
mod outgoing;
mod owned;
mod passing;
mod peers;
mod posted;
mod presence;
mod promises;
mod queue;
mod road;
pub mod rules;
mod said;
mod serve;
mod server_id;
mod session;
mod settings;
mod subscriptions;
mod sync;
mod texts;
mod turns;
mod unanswered;
mod upstream;
mod wire;

pub use broker::{Broken, Broker, BrokerConfig};
pub use connection::KNOWN_CLIENTS;
pub use http::{HttpSettings, KeptSessions, Tokens};
pub use serve::{BrokerLock, Served, ask_broker, hook_broker, serve};
pub use settings::{Budget, BudgetSpan, ClientRules, Entries, EntrySpec, GatewayRules, Patience};
pub use wire::WIRE;
