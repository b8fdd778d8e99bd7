//! The boundary between two steps: the one ends and the next begins, or neither.

use ua_core::Timestamp;

use super::run::{checkpoint_saved, step_ended, step_opened};
use super::{conflict, not_found};
use crate::commit::StepEntry;
use crate::error::StoreError;
use crate::iteration::iteration_begun;
use crate::record::{CheckpointRecord, MessageRecord, RunRecord, StepRecord};

/// What a store found that bears on the entry of a step.
#[derive(Debug)]
pub struct EntryContext {
    /// The run's current step.
    pub current: Option<StepRecord>,
    /// The number of the run's last step, 0 without one.
    pub last_index: u32,
    /// Whether a turn is open.
    pub turn_is_open: bool,
    /// The place of the run's last message.
    pub last_seq: u64,
}

/// The rows that the entry of a step leaves behind, in the order in which they refer to each other.
#[derive(Debug)]
pub struct EnteredStep {
    /// The step before, ended.
    pub ended: Option<StepRecord>,
    /// The new step.
    pub step: StepRecord,
    /// The markers of the boundary.
    pub checkpoints: Vec<CheckpointRecord>,
    /// What the model is told, appended to the history.
    pub messages: Vec<MessageRecord>,
    /// The run, whose current step is the new one.
    pub run: RunRecord,
}

/// The rows of a step that is entered. `None` when it is the current step already: a lost answer made the caller repeat itself.
pub fn step_entered(
    run: RunRecord,
    context: EntryContext,
    entry: StepEntry,
) -> Result<Option<EnteredStep>, StoreError> {
    let StepEntry { end, checkpoints, step, messages, iteration } = entry;
    if run.current_step_id.as_ref() == Some(&step.step_id) {
        return Ok(None);
    }
    let ended = match (context.current, end) {
        (None, None) => None,
        (Some(current), Some(end)) if current.step_id == end.step_id => Some(step_ended(current, end)?),
        (Some(current), _) => {
            let why =
                format!("it is the current step; the next one begins with its end, not with that of {}", step.step_id);
            return Err(conflict("run_steps", &current.step_id, why));
        }
        (None, Some(end)) => return Err(not_found("run_steps", &end.step_id)),
    };
    let at: Timestamp = step.created_at;
    let (mut run, step) = step_opened(run, step, context.last_index, context.turn_is_open)?;
    let mut markers = Vec::new();
    for marker in checkpoints {
        let of = [ended.as_ref(), Some(&step)].into_iter().flatten().find(|step| step.step_id == marker.step_id);
        let (marked, checkpoint) = checkpoint_saved(run, of, marker)?;
        run = marked;
        markers.push(checkpoint);
    }
    if let Some(iteration) = iteration {
        run = iteration_begun(run, iteration, at)?;
    }
    run.updated_at = at;
    let messages = (context.last_seq + 1..)
        .zip(messages)
        .map(|(seq, message)| MessageRecord { seq, turn: run.turn_index, message, created_at: at })
        .collect();
    Ok(Some(EnteredStep { ended, step, checkpoints: markers, messages, run }))
}
