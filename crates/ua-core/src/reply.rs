//! What an attempt brought back, before and after it is understood.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::blob::ToolText;
use crate::charge::ToolCharge;
use crate::handle::Handle;
use crate::status::CallStatus;

/// How one dispatch ended, as the transport saw it. The ledger alone decides what that means.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The request never left us: nothing can have happened.
    NotSent {
        /// Why.
        why: String,
    },
    /// It left, or may have left, and no answer came: it may have happened.
    Lost {
        /// Why.
        why: String,
    },
    /// It was answered.
    Raw(RawReply),
    /// The tool has it and is not done: it goes on with this, which is stored before anything else happens.
    Continues(Box<Handle>),
}

/// A reply as it came over the wire; stored before it is interpreted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RawReply {
    /// The `result` of an MCP `tools/call`.
    ToolResult {
        /// The result object.
        result: Value,
    },
    /// A JSON-RPC error.
    RpcError {
        /// The code.
        code: i64,
        /// The message.
        message: String,
    },
    /// An HTTP status from the endpoint itself, outside any protocol of ours.
    HttpStatus {
        /// The status code.
        status: u16,
        /// The body, as far as it was read.
        body: String,
    },
    /// Not a reply at all: a person vouches that it happened.
    Statement {
        /// Who says so.
        by: String,
        /// The other side's name for what happened, when the person gave one.
        proof: Option<String>,
    },
    /// Not the call's own reply either: a read-only tool was asked afterwards and found what the call did.
    Found {
        /// The tool that was asked, by its qualified name.
        tool: String,
        /// The other side's name for what was found.
        id: Option<String>,
        /// What was found, as the tool answered it.
        item: Value,
        /// By what it was known, as a clause: `by its key`; `None` in receipts of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
}

/// How well a receipt is vouched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceLevel {
    /// The tool said so.
    Reported,
    /// A probe or a person found it afterwards.
    Reconciled,
    /// An independent check saw it.
    Verified,
}

/// Whether a reported failure may have had its effect all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PossibleEffect {
    /// A policy says that this error means nothing happened.
    None,
    /// It may have happened: SDKs turn time-outs after sending into reported errors.
    Maybe,
}

/// What the model is given for a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolContent {
    /// The text; a large one is a reference.
    pub text: ToolText,
    /// Whether the tool called it an error.
    pub is_error: bool,
}

/// A raw reply, understood.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settlement {
    /// `succeeded`, `failed_definite`, `failed_reported` or `unknown`.
    pub status: CallStatus,
    /// What the model is given, when the tool answered.
    pub content: Option<ToolContent>,
    /// The other side's name for what happened: a message id, an object's URL.
    pub external_correlation_id: Option<String>,
    /// For a reported failure, whether it may have happened.
    pub possible_effect: Option<PossibleEffect>,
    /// A short code for the failure.
    pub error_code: Option<String>,
    /// The failure in words.
    pub error_detail: Option<String>,
    /// What the tool paid for it, when it is one that pays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charge: Option<Box<ToolCharge>>,
}
