//! One model call: the provider port, a client of the Anthropic Messages API, and a provider that follows a script.
//!
//! A [`LlmProvider`] turns a [`ModelRequest`] into one whole [`ModelTurn`](ua_core::ModelTurn) or an [`LlmError`].
//! A reply that was cut is never a turn: tool uses count only when the provider said that the message ended.
//! One call of [`complete`](LlmProvider::complete) is one request: whoever calls it reserves, charges and repeats.
//! Only this crate knows a provider's wire format, and it reads no environment variables itself (the HTTP client
//! honours the system's proxy settings).
//!
//! Granular Execution PRD §5 (crash semantics of model calls), Durable Jobs v1 spec §9.
//!
//! ```
//! use ua_core::{Message, Origin, StopReason};
//! use ua_llm::{LlmProvider, ModelRequest, Script, ScriptedProvider, Silent};
//!
//! # async fn ask() -> Result<(), Box<dyn std::error::Error>> {
//! let script = Script::parse(r#"{"turns": [{"text": "Hello from turn {{turn}}."}]}"#)?;
//! let provider = ScriptedProvider::new(script);
//! let request = ModelRequest {
//!     model: "demo".into(),
//!     system: String::new(),
//!     messages: vec![Message::user(Origin::Prompt, "Say hello.")],
//!     tools: vec![],
//!     max_output_tokens: 1024,
//!     temperature_milli: None,
//! };
//! let turn = provider.complete(&request, &Silent).await?;
//! assert_eq!(turn.text(), "Hello from turn 1.");
//! assert_eq!(turn.stop_reason, StopReason::EndTurn);
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(ask()).unwrap();
//! ```

mod anthropic;
mod error;
mod estimate;
mod history;
mod provider;
mod request;
mod script;
mod scripted;

pub use anthropic::{AnthropicConfig, AnthropicProvider};
pub use error::LlmError;
pub use estimate::{ESTIMATOR, estimate_input_tokens};
pub use history::check_history;
pub use provider::{Conversation, LlmProvider, Silent, StreamObserver};
pub use request::{ModelRequest, ToolOffer};
pub use script::{Expectation, Script, ScriptError, ScriptTool, ScriptTurn};
pub use scripted::ScriptedProvider;

/// The name of the Anthropic provider, which also marks the opaque blocks that only it understands.
pub const ANTHROPIC: &str = "anthropic";
