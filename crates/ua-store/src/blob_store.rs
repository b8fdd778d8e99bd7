//! Where large texts are kept: in the same database, written in the same transactions as what refers to them.
//!
//! Granular Execution PRD §8.1. No method puts a blob by itself: a blob comes with the receipt that holds it, so that no reference
//! is ever stored without what it names. A commit that refers to a blob that is not there is refused.

use ua_core::{BlobRef, Timestamp};

/// What is found under a reference. That the store itself cannot be read is an error and not one of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blob {
    /// The text; size and digest are those of the reference.
    Here(String),
    /// There is no such text.
    Missing {
        /// When it was pruned, if that is why.
        pruned_at: Option<Timestamp>,
    },
    /// There is something else.
    Corrupt {
        /// What is wrong with it.
        why: String,
    },
}

/// Which blobs may go. Those of a lineage with a run that is not terminal never do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobPrune {
    /// Those whose runs were last written to before this instant.
    pub used_before: Option<Timestamp>,
    /// The longest unused ones, until the others hold no more than this many bytes.
    pub max_bytes: Option<u64>,
    /// Only say what would go.
    pub dry_run: bool,
    /// When.
    pub at: Timestamp,
}

/// A blob that has its content, as a prune looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobUse {
    /// Which blob.
    pub blob: BlobRef,
    /// When a run that refers to it was last written to, or, if none does, when it was stored.
    pub used_at: Timestamp,
    /// Whether a run of a lineage that refers to it is not terminal.
    pub is_live: bool,
}

/// What a prune took, or would take.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlobPruned {
    /// The blobs that went, the longest unused first.
    pub freed: Vec<BlobRef>,
    /// How many stay.
    pub kept: u64,
    /// Their bytes.
    pub kept_bytes: u64,
    /// How many of those that stay belong to lineages that are not finished.
    pub live: u64,
    /// Their bytes.
    pub live_bytes: u64,
}

impl BlobPruned {
    /// The bytes of what went.
    pub fn freed_bytes(&self) -> u64 {
        self.freed.iter().map(|blob| blob.size).sum()
    }
}
