//! What tests of whole runs need: a scripted model server, crash plans, wrapped seams, and a world that
//! counts effects.
//!
//! ```
//! use ua_llm::Script;
//! use ua_testkit::{Fault, FaultKind, ModelServer, ModelServerConfig};
//!
//! # async fn start() -> Result<(), Box<dyn std::error::Error>> {
//! let script = Script::parse(r#"{"turns": [{"text": "Hello."}]}"#)?;
//! let faults = vec![Fault::at(1, FaultKind::CutMidStream)];
//! let server = ModelServer::start(ModelServerConfig { faults, ..ModelServerConfig::new(script) }).await?;
//! assert!(server.base_url.starts_with("http://127.0.0.1:"));
//! assert_eq!(server.requests(), 0);
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(start()).unwrap();
//! ```

mod broken;
mod broken_core;
mod broken_model;
mod broken_trees;
mod composio_server;
mod crash;
pub mod docs;
mod mcp_lines;
mod model_server;
mod opaque_server;
mod otlp_receiver;
mod outcomes;
pub mod postgres;
mod program;
mod provider_server;
mod proxy;
mod seams;
mod servers;
pub mod sim;
pub mod skips;
mod stored;
mod third_party;
mod unfinished;
mod world;

pub use broken::{
    BrokenRule, ForcedReplay, KeyOfThisProcess, KeyWithoutPosition, LostIsFailed, NoFence, RunningAfterDispatch,
};
pub use broken_core::{
    AbortOfOneCall, AcceptedAsUnsent, Blind, CorrectedKeysStayGood, DoubtsUncounted, EndsOfDoubtUnseen,
    RefusalEndsDoubt, SubAgentsForgotten,
};
pub use broken_trees::{ChildrenStartAgain, HandoffForgotten};
pub use composio_server::{BATCH_LIMIT, serve_composio};
pub use crash::{CrashAt, CrashPlan, KillPoint};
pub use model_server::{Fault, FaultKind, ModelServer, ModelServerConfig, RequestRecord, serve_forever};
pub use opaque_server::{OPAQUE_TOOL, serve_opaque, serve_opaque_slowly};
pub use otlp_receiver::{Attributes, CollectorMood, OtlpReceiver, ReceivedPoint, ReceivedSpan};
pub use outcomes::{ClockOutcome, ModelOutcome, PersonOutcome, ProcessOutcome, Refusal, StoreOutcome, ToolOutcome};
pub use postgres::PostgresServer;
pub use program::{example_program, ua_program, workspace_root};
pub use provider_server::{Provider, ProviderFault, serve_provider};
pub use proxy::{Proxy, Way};
pub use seams::Seam;
pub use servers::{
    ComposioFiles, ComposioFilesConfig, DRAWN_PNG_BASE64, Encryption, HttpFault, ImageModelApi, ImageModelApiConfig,
    MailApi, MailApiConfig, ObjectSink, ObjectSinkConfig, SiteConfig, SmtpFault, SmtpSink, SmtpSinkConfig, TlsIdentity,
    Webhook, WebhookConfig, serve_site,
};
pub use skips::skipped;
pub use stored::stored_bytes;
pub use third_party::{PYTHONS, ThirdParty, not_installed};
pub use ua_store::conformance::{Crossing, Plan, StoreSeam, Writes};
pub use unfinished::Unfinished;
pub use world::{Delivery, Honours, World, foreign_tool, own_tool};
