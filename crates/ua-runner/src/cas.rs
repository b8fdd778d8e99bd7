//! Compare-and-set on the turn: what a driver that wants a turn may do, given what is stored.
//!
//! Granular Execution PRD §5.1. Read literally that section skips the healthy state; here the numbers are shifted by one:
//! `wanted` is the number of the turn the driver wants, from 1, `committed` how many turns the store has.
//!
//! | stored | |
//! |---|---|
//! | the run is complete | already complete |
//! | `wanted` − 1 | execute |
//! | `wanted` | skip: it was committed, only the answer was lost |
//! | more | the driver is behind |
//! | less | a gap: nothing is appended over it |
//!
//! Invariants: whatever would go on or report a result also has the pinned fingerprint; a skip costs no request, no call and
//! no usage; every reload is counted, so nothing spins. Proved by: the tests below,
//! `crash_anywhere::loop_contract`, and through the driver `crash_anywhere::turn_guard`.

use std::time::Duration;

use ua_core::FingerprintDiff;
use ua_store::{RunRecord, StoreError};

use crate::error::ResumeError;

/// How often a driver looks at the store again before it gives up.
pub(crate) const MAX_RELOADS: u32 = 3;

/// How often a gap is looked at again: reading twice rules out a read that came too early, no more.
pub(crate) const MAX_GAP_RELOADS: u32 = 1;

/// What the store says about a run, as far as turns are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredTurns {
    /// How many turns are committed.
    pub committed: u32,
    /// Whether the run has ended.
    pub is_complete: bool,
}

impl StoredTurns {
    /// Reads a run's row.
    pub fn of(run: &RunRecord) -> Self {
        Self { committed: run.turn_index, is_complete: run.status.is_terminal() }
    }
}

/// What a driver that wants a turn does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnAdmission {
    /// Runs it.
    Execute,
    /// Takes the stored state over and goes on from there: the turn is committed.
    Skip,
    /// Reports the stored result.
    AlreadyComplete,
}

/// Decides about the turn `wanted`. `diff` is what is not as the step was pinned.
///
/// # Errors
/// [`ResumeError::Behind`] and [`ResumeError::Gap`] when the driver has to reload,
/// [`ResumeError::FingerprintMismatch`] when the turn would run, be skipped or be reported under another setup.
pub fn admit_turn(wanted: u32, stored: StoredTurns, diff: &FingerprintDiff) -> Result<TurnAdmission, ResumeError> {
    let StoredTurns { committed, is_complete } = stored;
    let admission = if is_complete {
        TurnAdmission::AlreadyComplete
    } else if committed > wanted {
        return Err(ResumeError::Behind { wanted, committed });
    } else if committed == wanted {
        TurnAdmission::Skip
    } else if committed + 1 == wanted {
        TurnAdmission::Execute
    } else {
        return Err(ResumeError::Gap { wanted, committed });
    };
    if diff.is_empty() { Ok(admission) } else { Err(ResumeError::FingerprintMismatch { diff: diff.clone() }) }
}

/// Whether what became of a write can be found out by reading.
pub(crate) fn is_worth_a_reload(error: &StoreError) -> bool {
    match error {
        StoreError::Conflict { .. } | StoreError::Unavailable { .. } => true,
        StoreError::Fenced { .. }
        | StoreError::NotFound { .. }
        | StoreError::Exists { .. }
        | StoreError::KeyTaken { .. }
        | StoreError::ScopeTouched { .. }
        | StoreError::Corrected { .. }
        | StoreError::EffectLimit { .. }
        | StoreError::NotBegun
        | StoreError::HoldsSecret { .. }
        | StoreError::Repeated { .. }
        | StoreError::WentBack { .. }
        | StoreError::TailLost { .. }
        | StoreError::Corrupt { .. } => false,
    }
}

/// The wait before the next look: 20 ms doubled each time.
pub(crate) fn reload_wait(reloads: u32) -> Duration {
    Duration::from_millis(20).saturating_mul(2_u32.saturating_pow(reloads.min(8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff_of_a_model() -> FingerprintDiff {
        let difference = serde_json::json!([{"component": "model", "tool": null, "before": "a", "after": "b"}]);
        serde_json::from_value(difference).unwrap()
    }

    fn admit(wanted: u32, committed: u32, is_complete: bool) -> Result<TurnAdmission, ResumeError> {
        admit_turn(wanted, StoredTurns { committed, is_complete }, &FingerprintDiff::default())
    }

    #[test]
    fn granular_cas_guard_skip() {
        assert!(matches!(admit(3, 3, false), Ok(TurnAdmission::Skip)));
    }

    #[test]
    fn granular_cas_gap_failure() {
        let error = admit(3, 1, false).unwrap_err();
        assert!(matches!(error, ResumeError::Gap { wanted: 3, committed: 1 }) && error.is_recoverable(), "{error}");
    }

    #[test]
    fn the_healthy_state_is_executed_not_skipped() {
        for committed in 0..4 {
            assert!(matches!(admit(committed + 1, committed, false), Ok(TurnAdmission::Execute)), "{committed}");
        }
    }

    #[test]
    fn a_driver_that_is_behind_reloads() {
        let error = admit(1, 2, false).unwrap_err();
        assert!(matches!(error, ResumeError::Behind { wanted: 1, committed: 2 }) && error.is_recoverable(), "{error}");
    }

    #[test]
    fn every_pair_has_exactly_one_answer() {
        for wanted in 1_u32..6 {
            for committed in 0_u32..6 {
                assert!(matches!(admit(wanted, committed, true), Ok(TurnAdmission::AlreadyComplete)));
                let answer = admit(wanted, committed, false);
                let fits = match i64::from(committed) - i64::from(wanted) {
                    -1 => matches!(answer, Ok(TurnAdmission::Execute)),
                    0 => matches!(answer, Ok(TurnAdmission::Skip)),
                    1.. => matches!(answer, Err(ResumeError::Behind { .. })),
                    _ => matches!(answer, Err(ResumeError::Gap { .. })),
                };
                assert!(fits, "wanted {wanted}, committed {committed}: {answer:?}");
            }
        }
    }

    #[test]
    fn a_mismatch_stops_the_execution_the_skip_and_the_report() {
        for (wanted, committed, is_complete) in [(3, 2, false), (3, 3, false), (3, 2, true)] {
            let stored = StoredTurns { committed, is_complete };
            let error = admit_turn(wanted, stored, &diff_of_a_model()).unwrap_err();
            assert!(matches!(error, ResumeError::FingerprintMismatch { .. }) && !error.is_recoverable(), "{error}");
            assert!(error.to_string().contains("model: a → b"), "{error}");
        }
    }

    #[test]
    fn a_driver_at_the_wrong_place_reloads_before_it_judges_the_setup() {
        let stored = StoredTurns { committed: 0, is_complete: false };
        assert!(matches!(admit_turn(3, stored, &diff_of_a_model()), Err(ResumeError::Gap { .. })));
    }
}
