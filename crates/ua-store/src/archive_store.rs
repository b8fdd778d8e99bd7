//! Looking back: runs and calls as a person finds them, a few turns of a long run, and letting go of a run.
//!
//! What lists and completions read is read without histories, so that a database of many long runs stays quick to look into.

use ua_core::{RunId, RunStatus, RunStop, Timestamp};

use crate::plain_text::plain_text;
use crate::record::RunRecord;

/// Which runs are looked for. Deleted runs are never found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunQuery {
    /// Those whose id begins so.
    pub prefix: String,
    /// Those whose id ends so: ids that are made up begin with the time and end with chance.
    pub ending: String,
    /// Those that stand so; empty for all.
    pub statuses: Vec<RunStatus>,
    /// Those submitted at this instant or later.
    pub since: Option<Timestamp>,
    /// Leave out the runs of sub-agents.
    pub without_tasks: bool,
    /// At most so many, the newest ones.
    pub limit: u32,
}

/// A run as a list shows it: without its contract, its prompt and its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunHead {
    /// Its id.
    pub run_id: RunId,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When its row last changed.
    pub updated_at: Timestamp,
    /// `job`, `harness`, `task` or `library`.
    pub run_mode: String,
    /// Where it stands.
    pub status: RunStatus,
    /// Why it is `stopped`.
    pub stop_reason: Option<RunStop>,
    /// A sentence about the status.
    pub status_detail: Option<String>,
    /// What it is for.
    pub objective: String,
    /// Where the job file was.
    pub job_path: Option<String>,
    /// The name of the intended execution.
    pub job_key: Option<String>,
    /// The run's folder, absolute.
    pub workspace_dir: String,
    /// The run it was forked from or started by.
    pub parent_run_id: Option<RunId>,
    /// Number of committed turns.
    pub turn_index: u32,
    /// Iterations that began; 0 for a job without a harness.
    pub iteration_count: u32,
    /// Iterations that may begin.
    pub max_iterations: Option<u32>,
}

impl From<RunRecord> for RunHead {
    fn from(run: RunRecord) -> Self {
        Self {
            run_id: run.run_id,
            created_at: run.created_at,
            updated_at: run.updated_at,
            run_mode: run.run_mode,
            status: run.status,
            stop_reason: run.stop_reason,
            status_detail: run.status_detail,
            objective: plain_text(&run.spec.objective).into_owned(),
            job_path: run.job_path,
            job_key: run.job_key,
            workspace_dir: run.workspace_dir,
            parent_run_id: run.parent_run_id,
            turn_index: run.turn_index,
            iteration_count: run.iteration_count,
            max_iterations: run.max_iterations,
        }
    }
}

/// Which calls are looked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallQuery {
    /// Those whose id begins so.
    pub prefix: String,
    /// Those whose id ends so: ids that are made up begin with the time and end with chance.
    pub ending: String,
    /// Only those of which nobody knows what came of them, skipped or not.
    pub only_unknown: bool,
    /// At most so many, the newest ones.
    pub limit: u32,
}

/// A wish to let go of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDeletion {
    /// Which run.
    pub run_id: RunId,
    /// Also one that is not finished; it is cancelled by that. The caller holds the run's lock.
    pub force: bool,
    /// Who wishes it, for what is noted outside the database.
    pub by: Option<String>,
    /// When.
    pub at: Timestamp,
}

/// What became of a run that was let go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedRun {
    /// The run's folder, which is the caller's to remove.
    pub workspace_dir: String,
    /// Runs of its lineage that are still there. While there are any, its rows stay: what it did outside must not be done again by
    /// them, and a fork shares its history.
    pub kept_for: Vec<RunId>,
}
