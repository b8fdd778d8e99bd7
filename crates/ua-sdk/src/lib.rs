//! Durable steps of an LLM agent in a program of yours.
//!
//! A [`Step`] is a model, tools that are closures of the program, and an input. [`Runs`] is the folder
//! where what came of it is kept. A step is run under an id; killed at any instant, the program is started again and resumes it, and no effect
//! happens twice without a person's decision. Everything here is put together out of the crates below; what is safe is the default: each
//! run has its lock and a folder of its own, says that it is alive, and keys that the program gave are taken out of what is kept.
//!
//! ```
//! use ua_sdk::prelude::*;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Invoice { order: String }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let state = folder.path();
//! let model = Model::scripted(r#"{"turns": [
//!     {"tools": [{"name": "mcp__program__send_invoice", "input": {"order": "A-17"}}]},
//!     {"text": "Sent."}
//! ]}"#)?; // or `Anthropic::from_env("claude-sonnet-4-5")?`
//! let step = Step::new("invoices")
//!     .model(model)
//!     .tool(
//!         tool("send_invoice", "Sends the invoice for an order.", async |call: Call, invoice: Invoice| {
//!             // … send it under `call.key()`: a second call under that key is no second invoice …
//!             Ok::<_, Failure>(format!("sent {} under {}", invoice.order, call.key()))
//!         })
//!         .external("invoice.send")
//!         .keyed(),
//!     )
//!     .input("Send the invoice for order A-17.");
//! let outcome = Runs::open(state)?.run(&step, "invoices-2026-11").await?; // run it again to resume it
//! assert!(matches!(outcome, Outcome::Complete { .. }));
//! # Ok(())
//! # }
//! ```
//!
//! # Where to look
//!
//! - [`tool()`] and [`Tool`]: closures with typed arguments, and what the runner may rely on about them.
//! - [`Step`]: a model, tools, an input, limits. [`Model`] and, by feature, `Anthropic` and `OpenAi` are who is asked; `Servers` are tools of
//!   others over MCP, or the built-in ones.
//! - [`Runs`]: start, resume, stream, stop, fork, answer, resolve, cancel, list, wait; calls, receipts, questions, budgets and use of a run. [`Outcome`] is how
//!   a run ended or where it waits.
//! - [`Error`]: why a step could not be driven. How it went is never an error.
//! - [`types`]: names of what is in the fields of these; [`crates`]: what all of it is put together out of.
//!
//! # What it needs
//!
//! Linux; there is code for macOS that nobody has tested, and no other system is supported (WSL 2 is Linux).
//! A Tokio runtime with time enabled, and with IO for a model or server over a network (`#[tokio::main]` enables both); `serde` and `schemars` as
//! dependencies of the program, whose derives name them; and a C compiler for SQLite.
//!
//! # Features
//!
//! | feature | what it brings |
//! |---|---|
//! | `sqlite` (on) | [`Runs::open`] |
//! | `postgres` | `Runs::on_server` |
//! | `anthropic`, `openai` | `Anthropic`, `OpenAi` |
//! | `mcp` | `Servers`, `helper` |
//! | `toolserver` | `Servers::builtin` |
//!
//! # What a program is promised
//!
//! A tool call that changes something outside is never made twice by the library alone. A tool that is [`keyed`](Tool::keyed) is completed
//! exactly once, as long as it honours its key; a call of any other tool that may have happened is asked about
//! ([`Outcome::Waiting`], [`Runs::answer`]). This holds for a kill at any instant, and for power loss on storage that honours fsync.

// Granular Execution PRD §9 and §10. Proved by: this crate's tests, the example `invoices` under kill (end-to-end tests `library`), and `cargo
// xtask outside`, which builds the program of `docs/guide/five-minutes.md` as a crate of its own.

// What the guide says of the documentation of this crate (`docs/guide/library.md`, the Rust API guidelines).
#![warn(missing_docs, clippy::missing_errors_doc)]
// docs.rs says of each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(unix))]
compile_error!("`ua-sdk` needs a Unix system: it is developed and tested on Linux; on Windows, WSL 2 is one");

#[cfg(feature = "toolserver")]
mod builtin;
mod choice;
mod deep;
mod env;
mod error;
mod joined;
mod model;
mod runs;
#[cfg(feature = "mcp")]
mod servers;
mod step;
mod stream;
mod tool;

pub use choice::{Effort, ToolChoice};
pub use error::Error;
#[cfg(feature = "anthropic")]
pub use model::Anthropic;
pub use model::Model;
#[cfg(feature = "openai")]
pub use model::OpenAi;
pub use runs::{CallOutcome, Runs};
#[cfg(feature = "mcp")]
pub use servers::{Servers, helper};
pub use step::Step;
pub use stream::RunStream;
pub use tool::{Call, Failure, FailureKind, Tool, tool};
pub use ua_core::{
    Budgets, Component, Constraints, Currency, Escalation, FailureClass, InvalidId, Money, PriceTable, RunId,
    RunStatus, RunStop, StopCondition,
};
pub use ua_dispatch::CallProgress;
pub use ua_llm::ModelFacts;
pub use ua_runner::{Differs, RunEvent, StepOutcome as Outcome, UsageSummary};
pub use ua_store::{Answer, Choice, Forgotten, QuestionKind, QuestionRecord, RunRecord};

/// The crates below, for what this one has no word for.
pub mod crates {
    #[cfg(feature = "mcp")]
    pub use ua_mcp;
    #[cfg(feature = "postgres")]
    pub use ua_store_postgres;
    #[cfg(feature = "sqlite")]
    pub use ua_store_sqlite;
    pub use {ua_classify, ua_core, ua_dispatch, ua_llm, ua_runner, ua_store};
}

/// Names of what is in the fields and functions of the names above: what [`Error`], [`RunRecord`], [`QuestionRecord`], [`RunEvent`] and the like
/// have in them, and the traits behind [`Model::of`], [`Step::transport`] and [`Runs::over`]. What is in these types is as it is stored and done, and
/// may change with any version, like the [`crates`] that define them.
pub mod types {
    pub use ua_classify::PolicyError;
    pub use ua_core::{
        BudgetStop, CallId, CallStatus, CheckpointId, Costs, Env, FingerprintDiff, OnScopeConflict, PriceError,
        QuestionId, RawReply, Resolution, RunSpec, Settlement, Sha256, ShortNames, StepId, Timestamp, TokenPrice,
        ToolSpec, Trace, Usage,
    };
    pub use ua_dispatch::{Asked, Finding, ToolTransport};
    pub use ua_llm::{LlmError, LlmProvider, ModelPrice};
    pub use ua_runner::{Charge, ModelUsage, Spent, StepError};
    pub use ua_store::{
        AnswerRecord, AttemptRecord, CallRecord, Correction, EndMark, ForkPoint, KnownBy, LedgerStore, OwnerStamp,
        ProcessSpan, QuestionStatus, ReceiptRecord, RequestStatus, RunRecords, RunStore, Store, StoreError, Taint,
    };
}

/// What a program with a step needs, in one line.
pub mod prelude {
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};

    #[cfg(feature = "anthropic")]
    pub use crate::Anthropic;
    #[cfg(feature = "openai")]
    pub use crate::OpenAi;
    #[cfg(feature = "mcp")]
    pub use crate::Servers;
    pub use crate::{
        Answer, Call, Choice, Component, Error, Failure, Model, Outcome, RunEvent, RunStatus, RunStop, Runs, Step,
        Tool, tool,
    };
}

/// Programs use these with the derives of the prelude.
pub use {schemars, serde, serde_json};

/// The guide's code runs as a test of this crate.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/five-minutes.md")]
struct FiveMinutes;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/library.md")]
struct LibraryGuide;
