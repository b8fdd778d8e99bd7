//! `ua runs`: look at runs, ask one to end.

use serde::Serialize;
use serde_json::json;
use ua_core::{CallStatus, RunId, RunStatus};
use ua_runner::{RunLock, StepSummary, UsageSummary};
use ua_store::{RunRecord, RunRecords, RunStore};

use crate::args::RunsCommand;
use crate::error::{CliError, OK};
use crate::find;
use crate::home::Home;
use crate::output::{line, print_json, print_table};

use super::{cancel, pins, summary};

pub(crate) async fn run(home: &Home, command: RunsCommand) -> Result<u8, CliError> {
    match command {
        RunsCommand::List { limit, json } => list(home, limit, json).await,
        RunsCommand::Show { run, json } => show(home, &run, json).await,
        RunsCommand::Diff { a, b, all, json } => super::diff::run(home, [&a, &b], all, json).await,
        RunsCommand::Export(args) => super::export::run(home, *args).await,
        RunsCommand::Cancel { run, reason } => cancel(home, &run, &reason).await,
    }
}

/// What a person is told about a run's status: a `running` run whose lock is free has crashed.
fn shown_status(home: &Home, run: &RunRecord) -> String {
    match run.status {
        RunStatus::Running if !RunLock::is_held(&home.locks(), &run.run_id) => "crashed".to_owned(),
        RunStatus::Stopped => format!("stopped ({})", run.stop_reason.map_or("?", ua_core::RunStop::as_str)),
        RunStatus::Queued
        | RunStatus::Running
        | RunStatus::WaitingForHuman
        | RunStatus::Succeeded
        | RunStatus::Failed
        | RunStatus::Cancelled => run.status.to_string(),
    }
}

async fn list(home: &Home, limit: u32, json: bool) -> Result<u8, CliError> {
    let runs = home.open_read_only()?.runs(limit).await.map_err(|e| CliError::store("list the runs", &e))?;
    if json {
        let rows: Vec<_> = runs
            .iter()
            .map(|run| {
                json!({
                    "run_id": run.run_id, "status": run.status, "shown_status": shown_status(home, run), "stop_reason": run.stop_reason,
                    "status_detail": run.status_detail, "created_at": run.created_at, "updated_at": run.updated_at,
                    "turn_index": run.turn_index, "objective": run.spec.objective, "workspace_dir": run.workspace_dir,
                    "job_path": run.job_path, "job_key": run.job_key, "parent_run_id": run.parent_run_id,
                })
            })
            .collect();
        print_json(&rows)?;
    } else {
        let rows = runs.iter().map(|run| {
            vec![
                run.run_id.to_string(),
                shown_status(home, run),
                run.turn_index.to_string(),
                run.updated_at.to_string(),
                line(&run.spec.objective, 60),
            ]
        });
        print_table(&["RUN", "STATUS", "TURNS", "UPDATED", "OBJECTIVE"], rows.collect())?;
    }
    Ok(OK)
}

/// A run as `--json` shows it: its rows, and what its requests took.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    records: &'a RunRecords,
    usage: UsageSummary,
    children: Vec<RunId>,
}

async fn show(home: &Home, name: &str, json: bool) -> Result<u8, CliError> {
    let store = home.open_read_only()?;
    let run = find::run(&store, name).await?;
    let records = store.load(&run.run_id).await.map_err(|e| CliError::store("load the run", &e))?;
    let children = store.children(&run.run_id).await.map_err(|e| CliError::store("look for forks", &e))?;
    if json {
        let ids = children.into_iter().map(|child| child.run_id).collect();
        print_json(&Shown { records: &records, usage: UsageSummary::of(&records), children: ids })?;
        return Ok(OK);
    }
    summary::print(home, &records)?;
    let count = |status: CallStatus| records.calls.iter().filter(|call| call.status == status).count();
    let counts: Vec<String> = CallStatus::ALL
        .iter()
        .filter(|status| count(**status) > 0)
        .map(|status| format!("{} {status}", count(*status)))
        .collect();
    let usage = UsageSummary::of(&records);
    crate::output::print(&format!(
        "Status         {}\nTurns          {}\nCalls          {}\nRequests       {}\nTokens         {} ({} in, {} out, {} from cache, {} to cache)\n\
         Cost           {}\nStarted        {}\nTraces         {}\n",
        shown_status(home, &records.run),
        records.run.turn_index,
        if counts.is_empty() { "none".to_owned() } else { counts.join(", ") },
        usage.requests_in_words(),
        usage.total_tokens,
        usage.tokens.input_tokens,
        usage.tokens.output_tokens,
        usage.tokens.cache_read_tokens,
        usage.tokens.cache_write_tokens,
        usage.cost_in_words(),
        records.run.created_at,
        records.run.traces.iter().map(ua_core::Trace::as_str).collect::<Vec<_>>().join(", "),
    ))?;
    crate::output::print(&steps_text(&records))?;
    crate::output::print(&super::lineage::text(&records, &children))?;
    crate::output::print(&pins::text(&records))?;
    Ok(OK)
}

/// The steps of a job with phases, those to come included; nothing for a job without.
fn steps_text(records: &RunRecords) -> String {
    let steps = StepSummary::all(records);
    if records.run.spec.phases.is_empty() {
        return String::new();
    }
    let mut out = String::from("\nPhases\n");
    for step in steps {
        let status = step.status.map_or_else(|| "to come".to_owned(), |status| status.to_string());
        let turns = match (step.first_turn, step.last_turn) {
            (Some(first), Some(last)) => format!("turns {first} to {last}"),
            (Some(_), None) => "no turn yet".to_owned(),
            (None, _) => String::new(),
        };
        out.push_str(format!("  {:>2}  {:<24} {status:<12}{turns}", step.step_index, line(&step.phase, 24)).trim_end());
        out.push('\n');
    }
    out
}

async fn cancel(home: &Home, name: &str, reason: &str) -> Result<u8, CliError> {
    let found = find::run(&home.open_read_only()?, name).await?;
    if found.status.is_terminal() {
        return Err(CliError::usage(format!("run {} is {} already", found.run_id, found.status)));
    }
    let env = ua_core::system::env();
    let store = home.open()?;
    store
        .request_cancel(&found.run_id, reason, env.now())
        .await
        .map_err(|e| CliError::store("ask the run to end", &e))?;
    if cancel::end_now(home, &store, &found, &env).await? {
        crate::home::close(store);
        crate::output::tell(&format!("cancelled run {}", found.run_id));
        return Ok(OK);
    }
    crate::home::close(store);
    let when = "its process ends it at the next boundary";
    crate::output::tell(&format!("asked run {} to end: {when}", found.run_id));
    Ok(OK)
}
