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
    pub(crate) fn in_words(&self) -> String {
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
pub(crate) fn corpus_lines(records: &RunRecords, artifacts: &[Artifact]) -> Vec<CorpusLine> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::sha256;
    use ua_store::CheckpointKind;

    use super::*;
    use crate::testing::{Story, artifact};
    use crate::{ResumePacket, artifact::read_first};

    const PATH: &str = "tasks/t1/refined_corpus.md";

    /// A run with a checkpoint that remembers the corpus as it was.
    fn story() -> Story {
        let mut story = Story::new(r#"{"objective": "Write about tides."}"#);
        story.asks("I am done.", &[]);
        story.commits();
        let marker = story.records.checkpoints.last_mut().unwrap();
        marker.kind = CheckpointKind::CorpusCache;
        marker.snapshot["corpora"] = json!([{"path": PATH, "sha256": artifact(PATH).sha256, "words": 1_234}]);
        story
    }

    #[test]
    fn a_corpus_is_claimed_only_while_it_is_the_one_that_was_cached() {
        let story = story();
        let changed = Artifact { sha256: sha256("something else"), ..artifact(PATH) };
        let cases = [
            (vec![artifact(PATH)], CorpusState::Kept, "use it instead of the raw sources"),
            (vec![changed], CorpusState::Changed, "is another file now"),
            (vec![artifact("a.md")], CorpusState::Gone, "is gone"),
        ];
        for (files, state, words) in cases {
            let packet = ResumePacket::new(&story.records, &[], &files);
            assert_eq!(packet.corpora.iter().map(|corpus| corpus.state).collect::<Vec<_>>(), [state]);
            for text in [packet.to_markdown(), packet.replay_note()] {
                assert!(text.contains(words) && text.contains(PATH), "{text}");
                assert_eq!(text.contains("do not search or crawl again"), state == CorpusState::Kept, "{text}");
            }
            let is_first = read_first(&files, &packet.corpora).iter().any(|file| file.path == PATH);
            assert_eq!(is_first, state == CorpusState::Kept, "{state:?}");
        }
    }
}
