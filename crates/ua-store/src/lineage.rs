//! What a run has from others of its lineage: turns that it shares by reference, and effects that were had elsewhere.
//!
//! A fork stores no turn of its parent again. Its row says up to where it shares, and reads follow the parents.
//! Durable runner, current state (fork); Durability Architecture (lineage). Proved by: `conformance::forks`.

use serde::{Deserialize, Serialize};
use ua_core::RunId;

use crate::record::{CallRecord, ReceiptRecord, TurnRecord};

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
    /// Calls with an effect that other runs of the lineage sent outside these turns and that may have happened, run by run.
    pub elsewhere: Vec<CallRecord>,
    /// The receipts of both.
    pub receipts: Vec<ReceiptRecord>,
}

impl LineageRecords {
    /// Whether the run has nothing from others.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty() && self.calls.is_empty() && self.elsewhere.is_empty() && self.receipts.is_empty()
    }
}
