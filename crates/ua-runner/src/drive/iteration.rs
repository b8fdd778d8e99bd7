//! The boundary between two iterations: the one ends and the next begins, with an empty context and a hand-off, in one write.
//!
//! Context Storage & Durability Summary §5. The files are written first and repeat what the write stores: a process that dies between the two
//! makes them again. Proved by: `crash_anywhere::iterations`, the e2e tests `harness`.

use serde_json::Value;
use ua_core::{Message, Origin, StepStatus};
use ua_resume::{Handoff, ResumePacket};
use ua_store::{CheckpointKind, NewIteration, RunStore, StepEnd, StepEntry};

use super::Driver;
use super::phase::records_with;
use crate::error::RunError;
use crate::files::{self, pretty, write_packet};
use crate::forced_replay::ForcedReplay;
use crate::iteration::{IterationEnd, IterationState, context};
use crate::machine::Event;
use crate::pin::{PinnedStep, mismatch_text};
use crate::watch::RunEvent;
use crate::workspace::Workspace;

/// The file that hands an iteration's context on.
const HANDOFF: &str = "handoff.json";
/// As much of an earlier hand-off as is looked through.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

impl Driver<'_> {
    /// Begins iteration `number`. Under another setup than the pinned one nothing begins: its step must not pin silently what the one
    /// before would have stopped at.
    pub(super) async fn enter_iteration(&mut self, number: u32, why: &IterationEnd) -> Result<Event, RunError> {
        let diff = self.pin_diff();
        if !diff.is_empty() {
            return Ok(Event::SetupChanged { detail: mismatch_text(&diff, &self.run, &self.settings.pins) });
        }
        let records = self.ports.store.load(&self.run.run_id).await.map_err(RunError::at("load the run"))?;
        let report = self.evidence_with_citations(&records).await?;
        let workspace = &self.ports.workspace;
        let packet = ResumePacket::new(&records, &[], &workspace.artifacts_of(&records.run.spec)?);
        let handoff = Handoff::new(&records, number, &packet, &report, evidence_ledgers(workspace));
        workspace.replace(HANDOFF, pretty(&handoff))?;
        files::note("the resume packet", write_packet(workspace, &self.run.run_id, &packet));

        let spec = &self.run.spec;
        let phase = spec.phase(&self.pinned.phase).and_then(|(number, _)| spec.phase_message(number));
        let message = Message::user(Origin::Iteration, handoff.note(&packet, phase.as_deref()));
        let step = PinnedStep::new_step(self.ports, self.settings, spec, &self.pinned.phase);
        let committed = self.machine.committed();
        let entry = StepEntry {
            end: Some(StepEnd {
                step_id: self.pinned.step_id.clone(),
                status: StepStatus::Succeeded,
                error_code: None,
                error_detail: None,
                at: step.created_at,
            }),
            checkpoints: vec![self.marker(CheckpointKind::StepBoundary, committed, None, self.artifact_refs()?)],
            step,
            messages: vec![message.clone()],
            iteration: Some(NewIteration { number, max_iterations: handoff.max_iterations }),
        };
        let entered = self.enter_once(entry, "begin the next iteration").await?;
        let mut state = IterationState::of(&records).unwrap_or_default();
        (state.number, state.first_turn, state.tool_calls) = (number, committed + 1, 0);
        (self.run.iteration_count, self.run.max_iterations) = (number, Some(handoff.max_iterations));
        self.run.provider_session_id = None;
        // An agent that owns its loop begins with an empty conversation, too: it is told by the hand-off what it would have been owed.
        self.replay = ForcedReplay::default();
        self.pinned = PinnedStep::of(&records_with(records, entered.clone()), &entered)?;
        self.ports.dispatcher.catalog().pin(self.pinned.tool_names());
        self.ports.dispatcher.ledger().context_begins(committed + 1);
        self.last_seq += 1;
        let mut history = self.history.messages().to_vec();
        history.push(message);
        self.remember(context(history));
        (self.ports.watcher)(RunEvent::IterationBegun { number, of: handoff.max_iterations, why: why.in_words() });
        Ok(Event::IterationEntered(Box::new(state)))
    }
}

/// What the agent's evidence ledgers left in the hand-off that is there. Nothing is decided by it, so a file that cannot be read has none; nor
/// has a link, a pipe or one that is too large, which a program of the job could have put there.
pub fn evidence_ledgers(workspace: &Workspace) -> Vec<Value> {
    let read = workspace.folder().read(HANDOFF, MAX_BYTES).ok();
    read.and_then(|bytes| String::from_utf8(bytes).ok()).map(|text| Handoff::ledgers_in(&text)).unwrap_or_default()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;

    #[test]
    fn a_hand_off_that_is_a_link_or_a_pipe_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::create(&folder.path().join("w")).unwrap();
        let content = r#"{"evidence_ledgers": [{"ledger": {}}]}"#;
        workspace.replace(HANDOFF, content).unwrap();
        assert_eq!(evidence_ledgers(&workspace).len(), 1);

        let elsewhere = folder.path().join("elsewhere.json");
        std::fs::write(&elsewhere, content).unwrap();
        let path = workspace.path(HANDOFF);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert_eq!(evidence_ledgers(&workspace), Vec::<Value>::new());

        std::fs::remove_file(&path).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        assert_eq!(evidence_ledgers(&workspace), Vec::<Value>::new());
    }
}
