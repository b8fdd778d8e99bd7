//! Letting go of a run.

use ua_core::{RunId, RunStatus};

use super::{conflict, not_found};
use crate::archive_store::{DeletedRun, RunDeletion};
use crate::error::StoreError;
use crate::record::RunRecord;

/// The run as it stands after its deletion, and what is kept for whom. `deleted` are the runs of its lineage that are deleted already,
/// `members` all of them. A run that is not finished is cancelled, so that nobody drives what is left of it.
pub fn run_deleted(
    mut run: RunRecord,
    members: &[RunId],
    deleted: &[RunId],
    deletion: &RunDeletion,
) -> Result<(RunRecord, DeletedRun), StoreError> {
    if deleted.contains(&run.run_id) {
        return Err(not_found("runs", &run.run_id));
    }
    if !run.status.is_terminal() {
        if !deletion.force {
            return Err(conflict("runs", &run.run_id, format!("it is {}, not finished", run.status)));
        }
        run.status = RunStatus::Cancelled;
        run.stop_reason = None;
        run.status_detail = Some("it was deleted".to_owned());
        run.updated_at = deletion.at;
    }
    let is_left = |member: &&RunId| **member != run.run_id && !deleted.contains(member);
    let kept_for = members.iter().filter(is_left).cloned().collect();
    let outcome = DeletedRun { workspace_dir: run.workspace_dir.clone(), kept_for };
    Ok((run, outcome))
}
