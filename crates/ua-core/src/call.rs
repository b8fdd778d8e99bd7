//! A tool use after planning: everything that is fixed in the same write as the model's reply.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical::{ArgsHash, Sha256};
use crate::id::CallId;
use crate::policy::CallPolicy;
use crate::shared::Shared;
use crate::status::Resolution;
use crate::tool::ToolName;

/// Where in a run a call stands. Turns and ordinals count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    /// The turn whose reply asked for it.
    pub turn: u32,
    /// Its place among the tool uses of that reply.
    pub ordinal: u32,
}

/// A tool use, resolved, classified and given an id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedCall {
    /// The ledger's id.
    pub call_id: CallId,
    /// The provider's id, which the result must carry back.
    pub tool_use_id: String,
    /// Where it stands.
    pub position: Position,
    /// What is called.
    pub name: ToolName,
    /// The arguments as the model gave them; JSON texts are read where the tool wants lists or objects.
    pub arguments: Shared<Value>,
    /// Digest of the canonical arguments.
    pub args_hash: ArgsHash,
    /// Digest of the tool's definition when it was offered.
    pub tool_digest: Option<Sha256>,
    /// What was decided about it.
    pub policy: Shared<CallPolicy>,
    /// Set when the call is refused at once: why, and what the model is told.
    pub refusal: Option<Refusal>,
}

/// Why a planned call will never be sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What kind of decision this is.
    pub resolution: Resolution,
    /// A short code (`unknown_tool`, `malformed_name`, `invalid_arguments`, `denied`, `reply_cut`).
    pub code: String,
    /// What the model is told, with what to do instead.
    pub message: String,
}
