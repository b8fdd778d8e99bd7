//! How a command that drives a run tells a machine what came of it: one JSON object on standard output.

use std::path::Path;

use serde_json::{Value, json};
use ua_core::RunId;
use ua_runner::{UsageSummary, Workspace};
use ua_store::{QuestionStatus, RunRecords, RunStore as _};

use crate::error::CliError;
use crate::home::Home;
use crate::output::print_json;

/// Everything about a run, read anew.
pub(crate) async fn read(home: &Home, run: &RunId) -> Result<RunRecords, CliError> {
    home.open_read_only()?.load(run).await.map_err(|e| CliError::store("load the run", &e))
}

/// How a process left a run.
pub(crate) fn of(_home: &Home, records: &RunRecords, code: u8) -> Value {
    let run = &records.run;
    let completion = Path::new(&run.workspace_dir).join(format!("{}.json", Workspace::completion_name(&run.run_id)));
    let open = records.questions.iter().filter(|question| question.status == QuestionStatus::Open);
    json!({
        "run_id": run.run_id,
        "status": run.status,
        "stop_reason": run.stop_reason,
        "status_detail": run.status_detail,
        "exit_code": code,
        "final_output": run.final_output,
        "final_artifact_ref": run.final_artifact_ref,
        "turn_index": run.turn_index,
        "workspace_dir": run.workspace_dir,
        "completion_file": completion,
        "parent_run_id": run.parent_run_id,
        "root_run_id": run.root_run_id,
        "open_questions": open.map(|question| &question.question_id).collect::<Vec<_>>(),
        "usage": UsageSummary::of(records),
    })
}

/// Tells a failure as JSON too, when a machine listens; a person reads it on standard error.
pub(crate) fn told(json: bool, result: Result<u8, CliError>) -> Result<u8, CliError> {
    if let (true, Err(error)) = (json, &result) {
        print_json(&error.to_json())?;
    }
    result
}
