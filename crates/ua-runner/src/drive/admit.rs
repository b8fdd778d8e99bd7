//! What stands between wanting a turn and running it, and between a commit and knowing that it is one.

use ua_core::{CallStatus, FingerprintDiff, RunStop};
use ua_dispatch::{DispatchError, Dispatched};
use ua_ledger::{LedgerError, Tries, again};
use ua_store::{EndMark, RunRecord, RunStore, Store, StoreError, TurnCommit};

use super::Driver;
use crate::cas::{
    MAX_GAP_RELOADS, MAX_RELOADS, StoredTurns, TurnAdmission, admit_turn, is_worth_a_reload, reload_wait,
};
use crate::error::{ResumeError, RunError};
use crate::machine::{Command, Conclusion, Event};
use crate::pin::mismatch_text;
use crate::recover::start_of;
use crate::standing::load_standing;

/// What is about to start, and of which turn.
#[derive(Debug, Clone, Copy)]
pub(super) enum Start {
    /// A request to the model.
    Request(u32),
    /// Calls that the turn's reply asked for.
    Calls(u32),
}

impl Start {
    /// What a command starts, if anything: the others finish or write down what has begun.
    pub(super) fn of(command: &Command, committed: u32) -> Option<Self> {
        match command {
            Command::Reserve { turn } => Some(Self::Request(*turn)),
            Command::Dispatch { .. } => Some(Self::Calls(committed + 1)),
            Command::Think { .. }
            | Command::Wait { .. }
            | Command::Record { .. }
            | Command::CancelAfterFailure { .. }
            | Command::Commit { .. }
            | Command::FinishReplay { .. }
            | Command::CheckEvidence { .. }
            | Command::EnterPhase { .. }
            | Command::EnterIteration { .. }
            | Command::Guide { .. }
            | Command::Ask { .. }
            | Command::Stop(_) => None,
        }
    }
}

impl Driver<'_> {
    /// Whether it may start, given the stored turns. When it may not, the driver has taken the stored state over, or stopped.
    pub(super) async fn admit(&mut self, start: Start, stored: StoredTurns) -> Result<bool, RunError> {
        let (turn, diff) = match start {
            Start::Request(turn) => (turn, self.pin_diff()),
            // Under which setup they may be sent was decided before their turn was asked for, or by the resume that found it.
            Start::Calls(turn) => (turn, FingerprintDiff::default()),
        };
        match admit_turn(turn, stored, &diff) {
            Ok(TurnAdmission::Execute) => {
                if let Start::Request(_) = start {
                    self.reloads = 0;
                }
                return Ok(true);
            }
            Ok(TurnAdmission::AlreadyComplete) => return Err(self.lease_lost().await),
            Err(ResumeError::FingerprintMismatch { diff }) => {
                self.machine
                    .apply(Event::SetupChanged { detail: mismatch_text(&diff, &self.run, &self.settings.pins) })?;
                return Ok(false);
            }
            Err(error @ ResumeError::Gap { .. }) if self.reloads >= MAX_GAP_RELOADS => {
                return Err(ResumeError::CorruptState { why: error.to_string(), source: None }.into());
            }
            Ok(TurnAdmission::Skip) | Err(ResumeError::Gap { .. } | ResumeError::Behind { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        if self.reloads >= MAX_RELOADS {
            return Err(ResumeError::Behind { wanted: turn, committed: stored.committed }.into());
        }
        self.reloads += 1;
        self.ports.env.clock.sleep(reload_wait(self.reloads)).await;
        self.reload().await?;
        Ok(false)
    }

    /// Takes over what is stored. Everything this process thought about the turn is dropped; it was never merged.
    async fn reload(&mut self) -> Result<(), RunError> {
        self.ports.store.check_lease(&self.ports.lease).await.map_err(RunError::at("resume the run"))?;
        let records = load_standing(self.ports).await?;
        let mut start = start_of(&records);
        start.is_resume = false; // this process told what there was to tell
        self.machine.restart(start);
        self.take_over(records);
        Ok(())
    }

    /// What is not as the step was pinned, right now.
    pub(super) fn pin_diff(&self) -> FingerprintDiff {
        self.pinned.diff(self.ports, self.settings, &self.run.spec)
    }

    async fn lease_lost(&self) -> RunError {
        let doing = "resume the run";
        match self.ports.store.check_lease(&self.ports.lease).await {
            Err(source) => ResumeError::LeaseLost { doing, source }.into(),
            Ok(()) => {
                ResumeError::CorruptState { why: "the run has ended and is still owned".to_owned(), source: None }
                    .into()
            }
        }
    }

    /// Commits a turn, and finds out what became of a commit whose answer was lost: a stored turn is taken as it is, one
    /// that is not stored is committed again.
    pub(super) async fn commit_once(&self, commit: TurnCommit) -> Result<RunRecord, RunError> {
        let doing = "commit the turn";
        let mut reloads = 0;
        let mut tries = Tries::default();
        loop {
            let error = match self.ports.store.commit_turn(&self.ports.lease, commit.clone()).await {
                Ok(run) => return Ok(run),
                Err(error) if is_worth_a_reload(&error) => error,
                Err(error) => return Err(RunError::at(doing)(error)),
            };
            self.ports.store.check_lease(&self.ports.lease).await.map_err(RunError::at(doing))?;
            let run = self.ports.store.run(&self.run.run_id).await.map_err(RunError::at(doing))?;
            match admit_turn(commit.turn, StoredTurns::of(&run), &self.pin_diff())? {
                TurnAdmission::Skip => return Ok(run),
                TurnAdmission::AlreadyComplete => return Err(self.lease_lost().await),
                TurnAdmission::Execute if again(self.ports.patience.as_ref(), doing, &error, &mut tries).await => {
                    continue;
                }
                TurnAdmission::Execute if reloads < MAX_RELOADS => {}
                TurnAdmission::Execute => {
                    if matches!(error, StoreError::Conflict { .. }) {
                        return Err(ResumeError::CasConflict { turn: commit.turn, source: error }.into());
                    }
                    return Err(RunError::at(doing)(error));
                }
            }
            reloads += 1;
            self.ports.env.clock.sleep(reload_wait(reloads)).await;
        }
    }

    /// Ledger work only: the setup is not the pinned one, so nothing is sent. What an earlier process sent is decided about
    /// as far as that goes without sending it again.
    pub(super) async fn settle_without_sending(&self, diff: &FingerprintDiff) -> Result<Conclusion, RunError> {
        let turn = self.machine.committed() + 1;
        let unknown = self.turn_calls(turn).await?.into_iter().filter(|call| call.status == CallStatus::Unknown);
        let mut questions = 0_u32;
        for call in unknown {
            match self.ports.dispatcher.settle_without_sending(&call.call_id).await {
                Ok(Some(Dispatched::Held(_))) => questions += 1,
                Ok(Some(Dispatched::Settled(_) | Dispatched::Parked { .. } | Dispatched::Stopped) | None) => {}
                Err(DispatchError::Ledger(LedgerError::Aborted { .. })) => {
                    return Ok(Conclusion::of_mark(EndMark::Abort));
                }
                Err(DispatchError::OrphanAlive { server, detail }) => {
                    let question = self.ask_about_orphan(&format!("`{server}` {detail}")).await?;
                    return Ok(Conclusion::Waiting { question: Box::new(question) });
                }
                Err(source) => return Err(RunError::Dispatch { turn, source }),
            }
        }
        let mut detail = mismatch_text(diff, &self.run, &self.settings.pins);
        if questions > 0 {
            detail.push_str("\nCalls whose outcome is unknown can be answered meanwhile.");
        }
        Ok(Conclusion::Stopped { reason: RunStop::Fingerprint, detail })
    }
}
