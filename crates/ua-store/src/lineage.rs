//! What a run has from others of its lineage: turns that it shares by reference, and effects that were had elsewhere.
//!
//! A fork stores no turn of its parent again. Its row says up to where it shares, and reads follow the parents.
//! Durable runner, current state (fork); Durability Architecture (lineage). Proved by: `conformance::forks`.

use serde::{Deserialize, Serialize};
use ua_core::{CallId, RunId, RunStatus, TASK_MODE, ToolCharge};

use crate::record::{CallRecord, ReceiptRecord, RequestRecord, RunRecord, TurnRecord};

/// Up to where a fork shares the history of its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkPoint {
    /// The last shared turn; 0 when only the place in the lineage is shared. The fork's own turns are numbered from the next one.
    pub turn: u32,
    /// The place of the last shared message; the fork's own messages come behind it.
    pub seq: u64,
}

/// A part of a shared history: what one earlier run of the lineage contributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedPart {
    /// The run.
    pub run_id: RunId,
    /// How much of its own is shared: turns and messages up to here, without its opening prompt.
    pub upto: ForkPoint,
}

/// What a run has from others of its lineage.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LineageRecords {
    /// The turns it shares, oldest first; their messages stand in the run's history.
    pub turns: Vec<TurnRecord>,
    /// The calls of these turns, by position.
    pub calls: Vec<CallRecord>,
    /// What the sub-agents of these turns did, as far as it may have happened: it counts as the run's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_effects: Vec<CallRecord>,
    /// Calls with an effect that other trees of the family sent outside what is shared with them and that may have happened, run by run.
    pub elsewhere: Vec<CallRecord>,
    /// The receipts of both, and of what sub-agents did.
    pub receipts: Vec<ReceiptRecord>,
    /// The child runs that work on the run's tasks, and on theirs; parents stand before their children.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sub_agents: Vec<SubAgentRecord>,
}

/// A child run, as the runs above it see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubAgentRecord {
    /// The child run.
    pub run_id: RunId,
    /// The run whose task it works on.
    pub parent_run_id: RunId,
    /// The task: a call of that run.
    pub call_id: CallId,
    /// What it is about.
    pub description: String,
    /// Where it stands.
    pub status: RunStatus,
    /// A sentence about that.
    pub status_detail: Option<String>,
    /// Number of committed turns.
    pub turns: u32,
    /// How many tool calls it asked for.
    pub tool_calls: u32,
    /// Its calls with an effect that were sent and may have happened, or of which a person said that they did not, by position.
    pub effects: Vec<CallRecord>,
    /// Its requests to models.
    pub requests: Vec<RequestRecord>,
    /// What its tools paid to models.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub charges: Vec<ToolCharge>,
}

/// Whether a run works on a task of another one.
pub fn is_task(run: &RunRecord) -> bool {
    run.run_mode == TASK_MODE
}

impl LineageRecords {
    /// Whether the run has nothing from others.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
            && self.calls.is_empty()
            && self.elsewhere.is_empty()
            && self.shared_effects.is_empty()
            && self.receipts.is_empty()
            && self.sub_agents.is_empty()
    }
}
