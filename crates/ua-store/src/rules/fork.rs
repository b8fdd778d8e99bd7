//! Forks, and a job that is run once more on purpose.

use ua_core::RunId;

use super::run::run_submitted;
use super::{conflict, may_have_happened};
use crate::commit::NewFork;
use crate::error::StoreError;
use crate::lineage::{ForkPoint, SharedPart};
use crate::record::{CallRecord, MessageRecord, RunRecord};
use crate::taint::Taint;
use crate::walk::{Walk, shares_with};

/// What a store found that bears on a fork.
#[derive(Debug)]
pub struct ForkContext<'a> {
    /// The run that is forked.
    pub parent: &'a RunRecord,
    /// The place of the last message of its history that belongs to a turn up to the fork point; the opening prompt is one.
    pub last_seq: u64,
    /// The provider's conversation id of the last shared turn.
    pub provider_session: Option<String>,
    /// What the shared turns read.
    pub taint: Taint,
}

/// The rows of a fork: the run, its opening prompt and the note behind what it shares.
pub fn run_forked(
    fork: NewFork,
    context: ForkContext<'_>,
) -> Result<(RunRecord, MessageRecord, MessageRecord), StoreError> {
    let ForkContext { parent, last_seq, provider_session, taint } = context;
    let NewFork { run, at_turn, note } = fork;
    if at_turn > parent.turn_index {
        let why = format!(
            "it has {}, so it cannot be forked at turn {at_turn}",
            ua_core::counted(parent.turn_index, "committed turn")
        );
        return Err(conflict("runs", &parent.run_id, why));
    }
    let (mut run, opening) = run_submitted(run, Some(parent));
    run.turn_index = at_turn;
    run.forked_at = Some(ForkPoint { turn: at_turn, seq: last_seq });
    run.provider_session_forked_from = provider_session;
    run.taint = taint.and(Taint::of_files(&run.spec)).and(Taint::of_files(&parent.spec));
    let note = MessageRecord { seq: last_seq + 1, turn: at_turn, message: note, created_at: run.created_at };
    Ok((run, opening, note))
}

/// Whether a run that is submitted under `key` has to be compared with others of that key: a fork keeps its parent's key.
pub fn key_is_inherited(run: &RunRecord, parent: Option<&RunRecord>) -> bool {
    parent.is_some_and(|parent| run.forked_at.is_some() && parent.job_key == run.job_key)
}

/// Refuses to run a job once more unless the run that answers for its key is the one the caller saw, and has succeeded.
pub fn check_again(holder: Option<&RunRecord>, seen: &RunId, key: &str) -> Result<(), StoreError> {
    let row = || format!("job key {key}");
    match holder {
        Some(run) if run.run_id != *seen => {
            Err(conflict("runs", row(), format!("run {} has it now, and is {}", run.run_id, run.status)))
        }
        Some(run) if run.status != ua_core::RunStatus::Succeeded => {
            Err(conflict("runs", row(), format!("run {} is {}", run.run_id, run.status)))
        }
        Some(_) => Ok(()),
        None => Err(conflict("runs", row(), "no run has it")),
    }
}

/// The parts of a run's history that it shares with earlier runs of its lineage, oldest first. `find` reads a run.
///
/// # Errors
/// Those of `find`; [`StoreError::Corrupt`] where the rows lead in a circle: what such a run shares has no beginning.
pub fn shared_parts<E: From<StoreError>>(
    run: &RunRecord,
    mut find: impl FnMut(&RunId) -> Result<RunRecord, E>,
) -> Result<Vec<SharedPart>, E> {
    let mut parts = Vec::new();
    let Some(mut upto) = run.forked_at else { return Ok(parts) };
    let (mut walk, mut above) = (Walk::from(&run.run_id), shares_with(run).cloned());
    while let Some(run_id) = walk.up(above.as_ref())? {
        let ancestor = find(&run_id)?;
        parts.push(SharedPart { run_id, upto });
        if let Some(own) = ancestor.forked_at {
            upto = ForkPoint { turn: own.turn.min(upto.turn), seq: own.seq.min(upto.seq) };
        }
        above = shares_with(&ancestor).cloned();
    }
    parts.reverse();
    Ok(parts)
}

/// Whether a call of a shared turn's sub-agent matters to those who share the turn.
pub fn is_shared_effect(call: &CallRecord) -> bool {
    is_effect_elsewhere(call) && !call.name.is_task()
}

/// Whether a call that another run of the lineage sent matters beside the shared turns.
pub fn is_effect_elsewhere(call: &CallRecord) -> bool {
    call.policy.class.has_effect() && call.attempt > 0 && may_have_happened(call)
}
