//! Iterations of a run whose job has a harness: how many began, and how many may.
//!
//! Context Storage & Durability Summary §2 (`iteration_count`, `max_iterations`, `completion_promise`). An iteration is counted in the
//! write that begins it, so none is counted twice and none is lost.

use ua_core::{RunSpec, Timestamp};

use crate::error::StoreError;
use crate::overrides::{OverrideKind, OverrideRecord};
use crate::record::{RunRecord, RunRecords};
use crate::rules::conflict;

/// The iteration that begins with a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewIteration {
    /// Its number in the run, from 1; must be one more than those that began.
    pub number: u32,
    /// How many may begin, as it counts now.
    pub max_iterations: u32,
}

/// The name of the budget, and of the change that raises it.
const MAX_ITERATIONS: &str = "max_iterations";

/// How many iterations may begin: the contract's number, or the one a person set since; `None` without a harness.
pub fn max_iterations_with(contract: &RunSpec, overrides: &[OverrideRecord]) -> Option<u32> {
    let contract = contract.harness.as_ref()?.max_iterations;
    let is_meant = |change: &&OverrideRecord| change.kind == OverrideKind::Budget && change.component == MAX_ITERATIONS;
    let changed = overrides.iter().rev().filter(is_meant).find_map(|change| change.value.as_u64());
    Some(changed.and_then(|number| u32::try_from(number).ok()).unwrap_or(contract))
}

impl RunRecords {
    /// How many iterations may begin; `None` when the job has no harness.
    pub fn max_iterations(&self) -> Option<u32> {
        max_iterations_with(&self.run.spec, &self.overrides)
    }
}

/// The run, one iteration further.
pub(crate) fn iteration_begun(
    mut run: RunRecord,
    iteration: NewIteration,
    at: Timestamp,
) -> Result<RunRecord, StoreError> {
    let next = run.iteration_count + 1;
    if iteration.number != next {
        return Err(conflict("runs", &run.run_id, format!("its next iteration is {next}, not {}", iteration.number)));
    }
    run.iteration_count = next;
    run.max_iterations = Some(iteration.max_iterations);
    // A provider that went on from its own copy of the conversation would bring back what the empty context is to leave out.
    run.provider_session_id = None;
    run.updated_at = at;
    Ok(run)
}
