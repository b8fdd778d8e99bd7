//! What a resume says of a corpus that was kept.

use serde_json::json;
use ua_core::sha256;
use ua_store::CheckpointKind;

use ua_evidence::artifact::read_first;
use ua_evidence::testing::{Story, artifact};
use ua_evidence::{Artifact, CorpusState};

use crate::ResumePacket;

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
        for text in [packet.to_markdown(), packet.replay_note(ua_core::Audience::Terminal)] {
            assert!(text.contains(words) && text.contains(PATH), "{text}");
            assert_eq!(text.contains("do not search or crawl again"), state == CorpusState::Kept, "{text}");
        }
        let is_first = read_first(&files, &packet.corpora).iter().any(|file| file.path == PATH);
        assert_eq!(is_first, state == CorpusState::Kept, "{state:?}");
    }
}
