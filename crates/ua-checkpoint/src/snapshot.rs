//! What could be seen at a boundary: a summary for people and for the resume packet, small on purpose.
//!
//! Spec: Durable Jobs v1 spec §9.3: phase and step index, remaining phases, artifacts that already exist.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use ua_core::{CallStatus, RunStatus, Sha256};
use ua_store::{CheckpointRecord, CorpusRef};

use crate::CheckpointError;
use crate::stored;

/// A summary of a run's state at one boundary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Where the run stood.
    pub status: RunStatus,
    /// The phase of the current step.
    pub phase: String,
    /// The number of the current step, from 1.
    pub step_index: u32,
    /// Number of committed turns.
    pub turn_index: u32,
    /// How many tool calls were in each status; a status without calls is left out. A runner leaves it empty: the calls have rows of their own.
    pub tool_calls: BTreeMap<CallStatus, u32>,
    /// Files with their digests: of a turn's marker those that changed since the marker before, of any other all that there were.
    pub artifacts: Vec<ArtifactRef>,
    /// Refined corpora that are cached with this marker.
    pub corpora: Vec<CorpusRef>,
    /// Phases that had not started, in order.
    pub remaining_phases: Vec<String>,
    /// What had been used of the budgets.
    pub budgets_used: BudgetsUsed,
}

/// A file of the workspace, by what it held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactRef {
    /// Its path, relative to the workspace.
    pub path: String,
    /// Digest of its contents.
    pub sha256: Sha256,
}

/// What a run had used of its budgets (Durable Jobs v1 spec §6), over all of its processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BudgetsUsed {
    /// Tool calls the model asked for.
    pub tool_calls: u32,
    /// Committed turns.
    pub turns: u32,
    /// Tokens of all requests to models.
    pub tokens: u64,
    /// Milliseconds in which a process held the run.
    pub held_millis: u64,
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
    status: RunStatus,
    phase: String,
    step_index: u32,
    turn_index: u32,
    tool_calls: BTreeMap<CallStatus, u32>,
    artifacts: Vec<ArtifactV1>,
    /// Came later than the others; markers without it have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    corpora: Vec<CorpusV1>,
    remaining_phases: Vec<String>,
    budgets_used: BudgetsUsedV1,
}

#[derive(Serialize, Deserialize)]
struct ArtifactV1 {
    path: String,
    sha256: Sha256,
}

/// Read by [`CheckpointRecord::corpora`] as well.
#[derive(Serialize, Deserialize)]
struct CorpusV1 {
    path: String,
    sha256: Sha256,
    words: u64,
}

#[derive(Serialize, Deserialize)]
struct BudgetsUsedV1 {
    tool_calls: u32,
    turns: u32,
    tokens: u64,
    held_millis: u64,
}

impl Snapshot {
    /// Reads the snapshot of a stored marker. Fails when it has a version this build does not know, or not its shape.
    pub fn read(record: &CheckpointRecord) -> Result<Self, CheckpointError> {
        let Stored::V1(v1) = stored::read(&record.checkpoint_id, "snapshot", &record.snapshot)?;
        let BudgetsUsedV1 { tool_calls, turns, tokens, held_millis } = v1.budgets_used;
        Ok(Self {
            status: v1.status,
            phase: v1.phase,
            step_index: v1.step_index,
            turn_index: v1.turn_index,
            tool_calls: v1.tool_calls,
            artifacts: v1.artifacts.into_iter().map(|a| ArtifactRef { path: a.path, sha256: a.sha256 }).collect(),
            corpora: v1
                .corpora
                .into_iter()
                .map(|c| CorpusRef { path: c.path, sha256: c.sha256, words: c.words })
                .collect(),
            remaining_phases: v1.remaining_phases,
            budgets_used: BudgetsUsed { tool_calls, turns, tokens, held_millis },
        })
    }

    /// The form that is stored (`state_snapshot_json`), with its version.
    pub(crate) fn to_stored(&self) -> Value {
        let BudgetsUsed { tool_calls, turns, tokens, held_millis } = self.budgets_used;
        json!(Stored::V1(V1 {
            status: self.status,
            phase: self.phase.clone(),
            step_index: self.step_index,
            turn_index: self.turn_index,
            tool_calls: self.tool_calls.clone(),
            artifacts: self.artifacts.iter().map(|a| ArtifactV1 { path: a.path.clone(), sha256: a.sha256 }).collect(),
            corpora: self
                .corpora
                .iter()
                .map(|c| CorpusV1 { path: c.path.clone(), sha256: c.sha256, words: c.words })
                .collect(),
            remaining_phases: self.remaining_phases.clone(),
            budgets_used: BudgetsUsedV1 { tool_calls, turns, tokens, held_millis },
        }))
    }
}
