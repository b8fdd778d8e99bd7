//! A stored checkpoint is read, or it is an error that says which part is wrong.

use serde_json::Value;
use ua_checkpoint::Checkpoint;
use ua_store::CheckpointRecord;

pub(crate) fn check(data: &[u8]) {
    let Ok(parts) = serde_json::from_slice::<Value>(data) else { return };
    let record = serde_json::json!({
        "checkpoint_id": "ckpt_0123456789abcdef", "run_id": "run_1", "step_id": "step_0123456789abcdef", "created_at": "2026-11-21T00:00:00Z",
        "kind": "step_boundary", "snapshot": parts.get("snapshot").unwrap_or(&parts), "cursor": parts.get("cursor").unwrap_or(&parts),
    });
    let record = serde_json::from_value::<CheckpointRecord>(record).unwrap_or_else(|e| panic!("a record: {e}"));
    if let Err(error) = Checkpoint::read(&record) {
        assert!(!error.to_string().is_empty());
    }
}
