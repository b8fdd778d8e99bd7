//! The corpus that a run made of its research, as its checkpoints remember it.
//!
//! Context Storage & Durability Summary §3 (corpus caching): what was refined once is used after a restart instead of the raw
//! sources. The checkpoint holds path, digest and size; whether the file still is that one, whoever looks has to see.

use serde::{Deserialize, Serialize};
use ua_core::Sha256;

use crate::record::{CheckpointRecord, RunRecords};

/// A refined corpus, by what it held when its checkpoint was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorpusRef {
    /// Its path, relative to the workspace.
    pub path: String,
    /// Digest of its contents.
    pub sha256: Sha256,
    /// How many words it has, as its maker says.
    pub words: u64,
}

impl CheckpointRecord {
    /// The corpora that were cached with this checkpoint; none in most.
    pub fn corpora(&self) -> Vec<CorpusRef> {
        self.snapshot
            .get("corpora")
            .and_then(|corpora| serde_json::from_value(corpora.clone()).ok())
            .unwrap_or_default()
    }
}

impl RunRecords {
    /// The corpora of the run as they were cached last, by path.
    pub fn corpora(&self) -> Vec<CorpusRef> {
        let mut newest = std::collections::BTreeMap::new();
        for corpus in self.checkpoints.iter().flat_map(CheckpointRecord::corpora) {
            newest.insert(corpus.path.clone(), corpus);
        }
        newest.into_values().collect()
    }
}
