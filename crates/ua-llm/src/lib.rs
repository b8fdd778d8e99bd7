//! One model call: the provider port, clients of the Anthropic Messages API, of the OpenAI Responses API and of Chat Completions, a
//! provider that follows a script, and one that answers from recorded exchanges. What is known about models by name is here too.
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
//!     tools: vec![].into(),
//!     max_output_tokens: 1024,
//!     temperature_milli: None,
//!     seed: None,
//!     output_schema: None,
//!     wants_form: false,
//! };
//! let turn = provider.complete(&request, &Silent).await?;
//! assert_eq!(turn.text(), "Hello from turn 1.");
//! assert_eq!(turn.stop_reason, StopReason::EndTurn);
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(ask()).unwrap();
//! ```

mod anthropic;
mod cassette;
mod chat;
mod error;
mod estimate;
mod extras;
#[doc(hidden)]
pub mod fuzzing;
mod history;
mod http;
mod image;
mod models;
mod openai;
mod output;
mod parts;
mod plain_http;
mod provider;
mod redacting;
mod refusal;
mod request;
mod schema;
mod script;
mod scripted;
mod session;
mod thoughts;
mod tool_ids;
mod unasked;
mod written;

pub use anthropic::{AnthropicConfig, AnthropicProvider};
pub use cassette::{CassetteError, Places, RecordingProvider, ReplayProvider};
pub use chat::as_text::WRITTEN as CALL_IN_TEXT;
pub use chat::{ChatConfig, ChatProvider};
pub use error::{LlmError, Status, without_resume};
pub use estimate::{ESTIMATOR, estimate_input_tokens, heard_so_far};
pub use extras::ModelExtras;
pub use history::check_history;
pub use image::{MAX_IMAGE_BYTES, ResultImages, image_block, images_of_results, shown_image_block};
pub use models::{DEFAULT_MODEL, ModelFacts, ModelPrice, ModelTable, ModelsError};
pub use openai::{OpenAiConfig, OpenAiProvider};
pub use plain_http::PlainHttpHosts;
pub use provider::{Conversation, Ending, LlmProvider, Silent, StreamObserver};
pub use redacting::RedactingProvider;
pub use request::{Measured, Measurer, ModelRequest, ToolOffer};
pub use script::{Expectation, Script, ScriptConversation, ScriptError, ScriptTool, ScriptTurn};
pub use scripted::ScriptedProvider;
pub use session::{KeptReply, KnownPrefix};
pub use tool_ids::tell_tool_uses_apart;

/// The name of the Anthropic provider, which also marks the opaque blocks that only it understands.
pub const ANTHROPIC: &str = "anthropic";

/// The name of the OpenAI provider (Responses API), which also marks the opaque blocks that only it understands.
pub const OPENAI: &str = "openai";

/// The name of the provider that speaks Chat Completions, which also marks the opaque blocks that only it understands.
pub const OPENAI_CHAT: &str = "openai-chat";
