//! Where a run stands: the position from which it goes on.
//!
//! Spec: Durable Jobs v1 spec §5 (`cursor_json`) and §9.1.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use ua_core::CallId;
use ua_store::CheckpointRecord;

use crate::CheckpointError;
use crate::stored;

/// A position in a run: which turns are done, which one is open, and the last rows that were seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Number of committed turns.
    pub turn_index: u32,
    /// The turn that is recorded and not committed, if there is one.
    pub open_turn: Option<u32>,
    /// The tool call that was planned last; `None` before the first.
    pub last_tool_call_id: Option<CallId>,
    /// The place of the newest message in the history.
    pub last_message_seq: u64,
}

/// The stored forms, one per version. A live field may change; a stored one never does.
#[derive(Serialize, Deserialize)]
#[serde(tag = "version")]
enum Stored {
    #[serde(rename = "1")]
    V1(V1),
}

#[derive(Serialize, Deserialize)]
struct V1 {
    turn_index: u32,
    open_turn: Option<u32>,
    last_tool_call_id: Option<CallId>,
    last_message_seq: u64,
}

impl Cursor {
    /// Reads the cursor of a stored marker. Fails when it has a version this build does not know, or not its shape.
    pub fn read(record: &CheckpointRecord) -> Result<Self, CheckpointError> {
        let Stored::V1(v1) = stored::read(&record.checkpoint_id, "cursor", &record.cursor)?;
        Ok(Self {
            turn_index: v1.turn_index,
            open_turn: v1.open_turn,
            last_tool_call_id: v1.last_tool_call_id,
            last_message_seq: v1.last_message_seq,
        })
    }

    /// The form that is stored (`cursor_json`), with its version.
    pub(crate) fn to_stored(&self) -> Value {
        json!(Stored::V1(V1 {
            turn_index: self.turn_index,
            open_turn: self.open_turn,
            last_tool_call_id: self.last_tool_call_id.clone(),
            last_message_seq: self.last_message_seq,
        }))
    }
}
