//! The one road from a model's tool use to its receipt.
//!
//! Durable Jobs v1 spec §3.2 and §8; Durability Architecture, guardrails. Two halves: [`Dispatcher::plan`] is pure and decides, in
//! the same write as the model's reply, what each tool use is (catalog, guardrails, schema, class, policy, canonical
//! arguments); [`Dispatcher::dispatch`] is the only code that holds a [`Permit`], and admission (scope, key, digests,
//! dedupe, conflicts, approval) happens there. One retry layer only: this one.
//!
//! A transport cannot be called without a permit:
//!
//! ```compile_fail
//! async fn cheat(transport: &dyn ua_dispatch::ToolTransport, call: &ua_core::CallId) {
//!     transport.invoke(call).await; // expects `&Permit`, which only the ledger makes
//! }
//! ```
//!
//! The catalog is what a model is offered:
//!
//! ```
//! use ua_classify::Classifier;
//! use ua_core::{ToolAnnotations, ToolName, ToolNamespace, ToolSpec};
//! use ua_dispatch::{Catalog, Rules};
//!
//! let spec = ToolSpec {
//!     name: ToolName::qualified(ToolNamespace::Mcp, "notes", "list_notes"),
//!     description: "Lists notes.".into(),
//!     input_schema: serde_json::json!({"type": "object"}),
//!     annotations: ToolAnnotations::default(),
//! };
//! let catalog = Catalog::new(vec![spec], &Classifier::shipped().unwrap(), &Rules::default()).unwrap();
//! assert_eq!(catalog.offers().next().unwrap().name, "mcp__notes__list_notes");
//! ```

mod approvals;
mod ask_user;
mod beside;
mod catalog;
mod composite;
mod dispatcher;
mod enforce;
mod error;
mod files;
mod guardrail;
mod local;
mod long_running;
mod names;
mod output;
mod person_waits;
mod plan;
mod probe;
mod redacting;
mod schema;
pub mod selectors;
mod settle;
mod spans;
mod stop;
mod task;
mod texts;
mod through;
mod transport;
mod within;

pub use ask_user::WithAskUser;
pub use beside::beside;
pub use catalog::{Catalog, Offer};
pub use dispatcher::{CallProgress, Dispatched, Dispatcher, Handed};
pub use enforce::{Payload, verify_key};
pub use error::{DispatchError, SubAgentError};
pub use files::{FileLookup, MOST_BYTES};
pub use guardrail::Rules;
pub use local::{LocalCall, LocalFailure, LocalTools, PermittedCall};
pub use long_running::Elicitations;
pub use output::{OutputSchema, left_out_of};
pub use person_waits::PersonWaits;
pub use redacting::Redacting;
pub use stop::StopSignal;
pub use task::{Carried, SubAgents, is_task_under_way, task_tool};
pub use through::Through;
pub use transport::{Fence, LookAt, ToolTransport, TransportError};
pub use ua_ledger::{Asked, Enquiry, Finding, MayAct, Outside, Permit, answer_for, answer_together};
pub use within::RunTime;
