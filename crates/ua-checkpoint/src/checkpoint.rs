//! A marker as a whole: made for a commit, read back from its row.
//!
//! Spec: Durable Jobs v1 spec §9.1 (the boundary) and §9.3 (what to checkpoint).
//! Invariant: what [`Checkpoint::marker`] writes, [`Checkpoint::read`] gives back unchanged.

use ua_core::{CheckpointId, StepId, Timestamp, signed};
use ua_store::{CheckpointKind, CheckpointRecord, NewCheckpoint, stored_name};

use crate::{CheckpointError, Cursor, Snapshot};

/// A checkpoint, read back: what could be seen and where the run stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The summary of the run's state.
    pub snapshot: Snapshot,
    /// Where the run stood.
    pub cursor: Cursor,
}

impl Checkpoint {
    /// Makes the marker row that belongs in the same commit as the boundary it marks.
    pub fn marker(
        kind: CheckpointKind,
        id: CheckpointId,
        step_id: StepId,
        at: Timestamp,
        snapshot: &Snapshot,
        cursor: &Cursor,
    ) -> NewCheckpoint {
        let (checkpoint_id, turn_index) = (id.as_str(), signed(cursor.turn_index));
        tracing::info!(checkpoint_id, kind = %stored_name(&kind), turn_index, open_turn = cursor.open_turn.map(signed), "ua.checkpoint");
        NewCheckpoint {
            checkpoint_id: id,
            step_id,
            kind,
            snapshot: snapshot.to_stored().into(),
            cursor: cursor.to_stored().into(),
            at,
        }
    }

    /// Reads both parts of a stored marker. Fails when a part has a version this build does not know, or not its shape.
    pub fn read(record: &CheckpointRecord) -> Result<Self, CheckpointError> {
        Ok(Self { snapshot: Snapshot::read(record)?, cursor: Cursor::read(record)? })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;
    use ua_core::{CallId, CallStatus, Env, FailureClass, RunId, RunStatus, sha256};
    use ua_store::CorpusRef;

    use super::*;
    use crate::{ArtifactRef, BudgetsUsed};

    const VERSION_1: &str = include_str!("../../../fixtures/checkpoints/version_1.json");

    fn whole() -> Checkpoint {
        Checkpoint {
            snapshot: Snapshot {
                status: RunStatus::WaitingForHuman,
                phase: "send".to_owned(),
                step_index: 4,
                turn_index: 11,
                tool_calls: BTreeMap::from([
                    (CallStatus::Succeeded, 9),
                    (CallStatus::FailedReported, 1),
                    (CallStatus::Unknown, 1),
                ]),
                artifacts: vec![ArtifactRef { path: "work_products/report.pdf".to_owned(), sha256: sha256("pdf") }],
                corpora: Vec::new(),
                remaining_phases: vec!["notify".to_owned()],
                budgets_used: BudgetsUsed { tool_calls: 11, turns: 11, tokens: 48_211, held_millis: 1_830_000 },
            },
            cursor: Cursor {
                turn_index: 11,
                open_turn: Some(12),
                last_tool_call_id: Some(CallId::parse("call_0123456789abcdef").unwrap()),
                last_message_seq: 24,
            },
        }
    }

    fn stored(marker: NewCheckpoint) -> CheckpointRecord {
        CheckpointRecord {
            checkpoint_id: marker.checkpoint_id,
            run_id: RunId::parse("run_1").unwrap(),
            step_id: marker.step_id,
            created_at: marker.at,
            kind: marker.kind,
            snapshot: marker.snapshot,
            cursor: marker.cursor,
        }
    }

    fn record(checkpoint: &Checkpoint) -> CheckpointRecord {
        let env = Env::simulated(1);
        let (id, step) = (CheckpointId::parse("ckpt_1").unwrap(), StepId::parse("step_1").unwrap());
        stored(Checkpoint::marker(
            CheckpointKind::Interrupt,
            id,
            step,
            env.now(),
            &checkpoint.snapshot,
            &checkpoint.cursor,
        ))
    }

    #[test]
    fn a_marker_is_read_back_as_it_was_written() {
        assert_eq!(Checkpoint::read(&record(&whole())), Ok(whole()));
        let bare = Checkpoint {
            snapshot: Snapshot { tool_calls: BTreeMap::new(), artifacts: Vec::new(), ..whole().snapshot },
            cursor: Cursor::default(),
        };
        assert_eq!(Checkpoint::read(&record(&bare)), Ok(bare));
    }

    #[test]
    fn the_corpora_of_a_marker_are_found_by_whoever_reads_the_row() {
        let corpus =
            CorpusRef { path: "tasks/tides/refined_corpus.md".to_owned(), sha256: sha256("corpus"), words: 1_234 };
        let cached = Checkpoint { snapshot: Snapshot { corpora: vec![corpus.clone()], ..whole().snapshot }, ..whole() };
        let row = record(&cached);
        assert_eq!((Checkpoint::read(&row), row.corpora()), (Ok(cached), vec![corpus]));
        assert_eq!(record(&whole()).corpora(), []);
    }

    #[test]
    fn a_marker_of_version_1_is_read_for_ever() {
        let fixture: CheckpointRecord = serde_json::from_str(VERSION_1).unwrap();
        assert_eq!(Checkpoint::read(&fixture), Ok(whole()));
    }

    #[test]
    fn this_build_writes_version_1_exactly_as_the_fixture_has_it() {
        let fixture: serde_json::Value = serde_json::from_str(VERSION_1).unwrap();
        assert_eq!(serde_json::to_value(record(&whole())).unwrap(), fixture);
    }

    #[test]
    fn a_version_nobody_knows_is_an_error_for_the_operator() {
        let mut newer = record(&whole());
        newer.cursor["version"] = json!("2");
        let error = Cursor::read(&newer).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot read the cursor of ckpt_1: it has version \"2\" and this build knows \"1\"; use the build that wrote it, or a newer one"
        );
        assert_eq!(error.class(), FailureClass::Operator);
        assert_eq!(Snapshot::read(&newer), Ok(whole().snapshot), "the other part is judged by itself");

        newer.cursor = json!({"turn_index": 3}).into();
        assert!(
            matches!(Cursor::read(&newer), Err(CheckpointError::UnknownVersion { version, .. }) if version == "null")
        );
    }

    #[test]
    fn a_part_of_another_shape_is_named() {
        let mut broken = record(&whole());
        broken.snapshot["step_index"] = json!("four");
        let error = Checkpoint::read(&broken).unwrap_err();
        assert!(error.to_string().starts_with("cannot read the snapshot of ckpt_1: "), "{error}");
        assert_eq!(error.class(), FailureClass::Permanent);
    }
}
