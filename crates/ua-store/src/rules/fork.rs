//! Forks, and a job that is run once more on purpose.

use ua_core::RunId;

use super::run::run_submitted;
use super::{conflict, may_have_happened};
use crate::commit::NewFork;
use crate::error::StoreError;
use crate::lineage::{ForkPoint, SharedPart};
use crate::record::{CallRecord, MessageRecord, RunRecord};
use crate::taint::Taint;

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
    run.taint = taint;
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

/// The parts of a run's history that it shares with earlier runs of its lineage, oldest first. `find` reads a run. Rows that lead in a circle, which
/// somebody else wrote, end where it closes.
pub fn shared_parts<E>(
    run: &RunRecord,
    mut find: impl FnMut(&RunId) -> Result<RunRecord, E>,
) -> Result<Vec<SharedPart>, E> {
    let mut parts: Vec<SharedPart> = Vec::new();
    let (mut limit, mut parent) = (run.forked_at, run.parent_run_id.clone());
    while let (Some(upto), Some(run_id)) = (limit, parent) {
        if run_id == run.run_id || parts.iter().any(|part| part.run_id == run_id) {
            break;
        }
        let ancestor = find(&run_id)?;
        limit = ancestor.forked_at.map(|own| ForkPoint { turn: own.turn.min(upto.turn), seq: own.seq.min(upto.seq) });
        parent = ancestor.parent_run_id;
        parts.push(SharedPart { run_id, upto });
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

#[cfg(all(test, feature = "conformance"))]
mod tests {
    use std::convert::Infallible;

    use ua_core::TASK_MODE;

    use super::*;
    use crate::conformance::samples;
    use crate::rules::runs_below;

    /// Rows that somebody else wrote may say anything: whoever follows them comes to an end.
    #[test]
    fn runs_that_lead_in_a_circle_end_where_it_closes() {
        let named = |name: &str, parent: &str| {
            let mut run = run_submitted(samples::new_run(name), None).0;
            run.parent_run_id = Some(samples::run_id(parent));
            run.forked_at = Some(ForkPoint { turn: 1, seq: 1 });
            run.task_call_id = Some(samples::call_id("call_1"));
            TASK_MODE.clone_into(&mut run.run_mode);
            run
        };
        for (one, other) in [("run_1", "run_1"), ("run_2", "run_1")] {
            let all = [named("run_1", one), named("run_2", other)];
            let find = |id: &RunId| Ok::<_, Infallible>(all.iter().find(|run| run.run_id == *id).unwrap().clone());
            for run in &all {
                assert!(shared_parts(run, find).unwrap().len() < 2, "{one} {other}");
                let children = |of: &RunId| {
                    let all = all.iter().filter(|run| run.parent_run_id.as_ref() == Some(of));
                    Ok::<_, Infallible>(all.cloned().collect())
                };
                assert!(runs_below(&run.run_id, children).unwrap().len() < 2, "{one} {other}");
            }
        }
    }
}
