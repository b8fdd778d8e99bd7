//! A provider that follows a script in this process: no network, no key, no cost.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use ua_core::{Block, ModelTurn};

use crate::error::{LlmError, Status};
use crate::provider::{LlmProvider, StreamObserver};
use crate::request::ModelRequest;
use crate::script::{Script, ScriptError};

/// A model that is played by a [`Script`].
#[derive(Debug)]
pub struct ScriptedProvider {
    script: Script,
    requests: AtomicU64,
}

impl ScriptedProvider {
    /// Starts to play `script`, with request number 1.
    pub fn new(script: Script) -> Self {
        Self { script, requests: AtomicU64::new(0) }
    }
}

#[async_trait]
impl LlmProvider for ScriptedProvider {
    fn name(&self) -> &'static str {
        "scripted"
    }

    /// What a script says depends on no seed, and a step or a job that says one is tried with a script as it is.
    fn takes_seed(&self) -> bool {
        true
    }

    async fn complete(&self, request: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        let number = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
        observer.sent();
        let turn = self
            .script
            .reply(&request.model, &request.system, &request.messages, number)
            .map_err(|error| refused(&error))?;
        if let Some(id) = &turn.response_id {
            observer.session(id);
        }
        for block in &turn.blocks {
            match block {
                Block::Text { text } => observer.text(text),
                Block::ToolUse(_) | Block::ToolResult { .. } | Block::Opaque { .. } => {}
            }
        }
        Ok(turn)
    }
}

/// What the script does not accept is an invalid request, as it would be at the real provider. Where a turn of it cannot be played, that is none that a
/// shorter request could replace, which would have another turn played.
fn refused(error: &ScriptError) -> LlmError {
    let status = if matches!(error, ScriptError::Expectation { .. }) { 406 } else { 400 };
    LlmError::InvalidRequest { status: Status::Like(status), message: error.to_string() }
}
