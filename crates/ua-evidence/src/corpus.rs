//! Refined corpora: what a checkpoint remembers of them, beside what is there now.
//!
//! Context Storage & Durability Summary §3. A run that was interrupted goes on with the corpus instead of the raw sources, but only when the
//! file is the one that was cached: a copy that is gone or was changed is said to be so, and nothing is claimed about it.

use serde::Serialize;
use ua_core::Sha256;
use ua_store::RunRecords;

use crate::artifact::Artifact;
use crate::quote::code;

/// What became of a corpus that was cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CorpusState {
    /// It is there, byte for byte.
    Kept,
    /// Another file is in its place.
    Changed,
    /// It is not there.
    Gone,
}

/// A corpus that was cached with a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CorpusLine {
    /// Its path, relative to the workspace.
    pub path: String,
    /// How many words it had.
    pub words: u64,
    /// Digest of what it held.
    pub sha256: Sha256,
    /// What became of it.
    pub state: CorpusState,
}

impl CorpusLine {
    /// What a model is told about it.
    pub fn in_words(&self) -> String {
        let path = code(&self.path, 300);
        match self.state {
            CorpusState::Kept => format!(
                "The research is refined in {path} ({} words), unchanged since it was made: use it instead of the raw sources, and do \
                 not search or crawl again for what it holds.",
                self.words
            ),
            CorpusState::Changed => {
                format!(
                    "{path} was a refined corpus and is another file now. Look at it before you rely on it, or make it again."
                )
            }
            CorpusState::Gone => {
                format!("{path} was a refined corpus and is gone. Make it again before you rely on it.")
            }
        }
    }
}

/// The corpora that checkpoints of the run remember, against the files that were found.
pub fn corpus_lines(records: &RunRecords, artifacts: &[Artifact]) -> Vec<CorpusLine> {
    let state = |path: &str, sha256: Sha256| match artifacts.iter().find(|file| file.path == path) {
        Some(file) if file.sha256 == sha256 => CorpusState::Kept,
        Some(_) => CorpusState::Changed,
        None => CorpusState::Gone,
    };
    let lines = records.corpora().into_iter().map(|corpus| CorpusLine {
        state: state(&corpus.path, corpus.sha256),
        path: corpus.path,
        words: corpus.words,
        sha256: corpus.sha256,
    });
    lines.collect()
}
