//! The boundary between two phases: the one ends and the next begins in one write.

use ua_core::{Message, Origin, StepStatus};
use ua_evidence::EvidenceScope;
use ua_store::{CheckpointKind, RunRecords, RunStore, StepEnd, StepEntry};

use super::Driver;
use crate::cas::{MAX_RELOADS, is_worth_a_reload, reload_wait};
use crate::error::RunError;
use crate::machine::Event;
use crate::phase::PhaseState;
use crate::pin::{PinnedStep, mismatch_text};
use crate::watch::RunEvent;

impl Driver<'_> {
    /// Ends the current phase, whose conditions hold, and begins `next`. Under another setup than the pinned one nothing begins: a
    /// new phase must not pin silently what the old one would have stopped at.
    pub(super) async fn enter_phase(&mut self, next: &str) -> Result<Event, RunError> {
        let diff = self.pin_diff();
        if !diff.is_empty() {
            return Ok(Event::SetupChanged { detail: mismatch_text(&diff, &self.run, &self.settings.pins) });
        }
        let doing = "begin the next phase";
        let records = self.ports.store.load(&self.run.run_id).await.map_err(RunError::at("load the run"))?;
        let spec = &self.run.spec;
        let state = PhaseState::fresh(&records, next).unwrap_or_default();
        let number = spec.phase(next).map_or(0, |(number, _)| number);
        let message = Message::user(Origin::Phase, spec.phase_message(number).unwrap_or_default());
        self.ports.workspace.read_ahead(&self.run.spec).await;
        let artifacts = self.artifact_refs()?;
        let committed = self.machine.committed();
        let markers = [CheckpointKind::StepBoundary, CheckpointKind::PhaseBoundary]
            .map(|kind| self.marker(kind, committed, None, artifacts.clone()));
        let step = PinnedStep::new_step(self.ports, self.settings, spec, next);
        let entry = StepEntry {
            end: Some(StepEnd {
                step_id: self.pinned.step_id.clone(),
                status: StepStatus::Succeeded,
                error_code: None,
                error_detail: None,
                at: step.created_at,
            }),
            checkpoints: markers.into(),
            step,
            messages: vec![message.clone()],
            iteration: None,
        };
        let entered = self.enter_once(entry, doing).await?;
        self.pinned = PinnedStep::of(&records_with(records, entered.clone()), &entered)?;
        self.ports.dispatcher.catalog().pin(self.pinned.tool_names());
        self.last_seq += 1;
        self.history.push(message);
        let of = self.run.spec.phases.len();
        (self.ports.watcher)(RunEvent::PhaseEntered { phase: next.to_owned(), number, of });
        Ok(Event::PhaseEntered(Box::new(state)))
    }

    /// Enters the step; when the answer was lost, the same write again finds its work done.
    pub(super) async fn enter_once(
        &self,
        entry: StepEntry,
        doing: &'static str,
    ) -> Result<ua_store::StepRecord, RunError> {
        let mut reloads = 0;
        loop {
            match self.ports.store.enter_step(&self.ports.lease, entry.clone()).await {
                Ok(step) => return Ok(step),
                Err(error) if is_worth_a_reload(&error) && reloads < MAX_RELOADS => {
                    self.ports.store.check_lease(&self.ports.lease).await.map_err(RunError::at(doing))?;
                }
                Err(error) => return Err(RunError::at(doing)(error)),
            }
            reloads += 1;
            self.ports.env.clock.sleep(reload_wait(reloads)).await;
        }
    }

    /// Which conditions have to hold now: those of the phase, and with the last one those of the job.
    pub(super) fn evidence_scope(&self) -> EvidenceScope<'_> {
        EvidenceScope::at_end_of(&self.run.spec, &self.pinned.phase)
    }

    /// What the last message of this phase has to be, if the run ends with it.
    pub(super) fn wanted_output(&self) -> Option<&serde_json::Value> {
        self.run.spec.output_schema.as_ref().filter(|_| self.evidence_scope().is_of_job())
    }
}

/// The records behind the entry of `step`.
pub(super) fn records_with(mut records: RunRecords, step: ua_store::StepRecord) -> RunRecords {
    records.run.current_step_id = Some(step.step_id.clone());
    records.steps.push(step);
    records
}
