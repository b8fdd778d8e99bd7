//! `ua fork`: go on from a turn of a run as another run.

use std::path::Path;

use serde_json::{Value, json};
use ua_core::{RunId, RunSpec};
use ua_runner::{FileFate, ForkError, ForkPlace, ForkPlan, sweep_forks};
use ua_store::{RunRecord, Store, StoreError};

use crate::args::{ForkArgs, ForkChanges, LaunchArgs};
use crate::budgets::BudgetChange;
use crate::compose::{self, Launch};
use crate::error::{CliError, OK, chain};
use crate::find;
use crate::home::Home;
use crate::output::{line, plain, print, print_json, tell};

use super::execute::{self, How};

/// A fork, as a person asks for it.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    /// The run to fork.
    pub(crate) run: &'a str,
    /// The fork's name.
    pub(crate) run_id: Option<&'a str>,
    pub(crate) changes: &'a ForkChanges,
    pub(crate) launch: &'a LaunchArgs,
    pub(crate) budgets: Vec<BudgetChange>,
    pub(crate) dry_run: bool,
}

pub(crate) async fn run(home: &Home, args: ForkArgs) -> Result<u8, CliError> {
    let wanted = Wanted {
        run: &args.run,
        run_id: args.run_id.as_deref(),
        changes: &args.changes,
        launch: &args.launch,
        budgets: BudgetChange::of(&args.budgets)?,
        dry_run: args.dry_run,
    };
    fork(home, wanted).await
}

/// Makes the fork and drives it.
pub(crate) async fn fork(home: &Home, wanted: Wanted<'_>) -> Result<u8, CliError> {
    let run_id = wanted.run_id.map(RunId::parse).transpose().map_err(|e| {
        CliError::usage(format!("cannot use --run-id: {e}"))
            .hint("leave --run-id out, and the fork gets a name of its own")
    })?;
    let env = ua_core::system::env();
    let inspector = home.open_read_only()?;
    let parent = find::run(&inspector, wanted.run).await?;
    if parent.entrypoint == "library" {
        return Err(CliError::usage(format!("run {} belongs to a program that uses the library", parent.run_id))
            .hint("only that program has its tools and its model; it forks runs with `ForkPlan`"));
    }
    super::tree::refuse_task(&inspector, &parent, "forked", "ua fork").await?;
    let spec = changed_job(&parent, &wanted)?;
    crate::input_files::refuse_other(&spec)?;
    let launch = Launch::for_fork(&parent, &spec, wanted.launch)?;
    launch.check(&spec)?;
    let mut plan = plan(&inspector, &parent.run_id, wanted.changes.at_turn, spec).await?;
    if wanted.dry_run {
        if crate::terminal::is_json() {
            print_json(&shown(&plan, None))?;
        } else {
            print(&text(&plan, "would be"))?;
        }
        return Ok(OK);
    }
    drop(inspector);

    let store = home.open()?;
    super::db::refuse_forgotten(&store, &parent.run_id).await?;
    sweep_forks(home.root(), &home.locks(), &store, &env).await;
    let run_id = run_id.unwrap_or_else(|| RunId::new(&env));
    let folder = wanted_folder(&parent, &plan.spec);
    let place = ForkPlace {
        workspace_dir: home.workspace_for(&run_id, folder.as_deref(), env.now())?,
        run_id,
        root: home.root(),
        locks: &home.locks(),
        launch: launch.to_stored(),
        entrypoint: "cli".to_owned(),
    };
    let seams = crate::parts::seams();
    let store = std::sync::Arc::new(store);
    let port = seams.store(store.clone());
    let made = plan.carry_out(port.as_ref(), place, &env).await;
    drop(port);
    let fork = made.map_err(|error| refused(&error))?;
    let Some(store) = std::sync::Arc::into_inner(store) else {
        return Err(CliError::storage("the runtime database is still in use"));
    };
    let is_json = crate::terminal::is_json();
    if !is_json && !wanted.launch.quiet {
        tell(text(&plan, "is").trim_end());
    }
    let how = How {
        quiet: wanted.launch.quiet || is_json,
        take_over: false,
        no_input: wanted.launch.no_input || is_json,
        fork: Some(shown(&plan, Some(&fork))),
    };
    Box::pin(execute::execute(home, store, fork, &launch, how)).await
}

async fn plan(store: &dyn Store, parent: &RunId, at_turn: Option<u32>, spec: RunSpec) -> Result<ForkPlan, CliError> {
    ForkPlan::new(store, parent, at_turn, Some(spec)).await.map_err(|error| refused(&error))
}

/// The parent's job with what the person changes about it.
fn changed_job(parent: &RunRecord, wanted: &Wanted<'_>) -> Result<RunSpec, CliError> {
    let mut spec = parent.spec.clone();
    if let Some(file) = &wanted.changes.job_overrides {
        let overrides = compose::read(file, "the job overrides")?;
        let folder = Launch::from_stored(&parent.launch)?.job_dir_text();
        let overrides = overrides.replace("${JOB_DIR}", &folder);
        let usage = |why: String| CliError::usage(format!("{}: {why}", file.display()));
        let overrides: Value = serde_json::from_str(&overrides).map_err(|e| usage(e.to_string()))?;
        if !overrides.is_object() {
            return Err(usage("it is no JSON object".to_owned())
                .hint("write the fields of the job that change, for example {\"prompt\": \"…\"}"));
        }
        let mut job = serde_json::to_value(&spec).map_err(|e| usage(e.to_string()))?;
        merge(&mut job, overrides);
        spec = RunSpec::parse(&job.to_string())
            .map_err(|e| usage(e.to_string()).hint("docs/guide/job-file.md lists every field; nothing was started"))?;
    }
    crate::budgets::put_into(&wanted.budgets, &mut spec)?;
    Ok(spec)
}

/// Merges a change into a JSON value (RFC 7396): objects field by field, null removes, everything else replaces.
fn merge(target: &mut Value, change: Value) {
    let Value::Object(change) = change else {
        *target = change;
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in change {
        if value.is_null() {
            if let Some(fields) = target.as_object_mut() {
                fields.remove(&name);
            }
        } else {
            merge(&mut target[name], value);
        }
    }
}

/// The folder that the job asks for, unless it is the very one that the parent has.
fn wanted_folder(parent: &RunRecord, spec: &RunSpec) -> Option<String> {
    let wanted = spec.artifacts.workspace_dir.clone()?;
    let is_the_parents = parent.spec.artifacts.workspace_dir.as_ref() == Some(&wanted);
    (!is_the_parents || wanted.contains("<id>")).then_some(wanted)
}

fn refused(error: &ForkError) -> CliError {
    let message = chain(error);
    match error {
        ForkError::NotCommitted { committed, .. } => CliError::usage(message)
            .hint(format!("choose a turn from 0 to {committed}, or leave --at-turn out for the last one")),
        ForkError::Locked(_) => CliError::usage(message).hint("choose another --run-id"),
        ForkError::Workspace(_) => {
            CliError::storage(message).hint("check that the disk is writable and not full; nothing was stored")
        }
        ForkError::Store { source: StoreError::Exists { .. }, .. } => {
            CliError::usage(message).hint("choose another --run-id, or resume that run with `ua resume`")
        }
        ForkError::Store { doing, source } => CliError::store(doing, source),
    }
}

/// The fork in words.
fn text(plan: &ForkPlan, verb: &str) -> String {
    let parent = &plan.parent.run;
    let mut out =
        format!("a fork of run {} {verb} made behind turn {} of {}\n", parent.run_id, plan.at_turn, parent.turn_index);
    if !plan.changes.is_empty() {
        out.push_str("changed in the job\n");
    }
    for change in &plan.changes {
        out.push_str(&format!("  {}\n", line(&change.to_string(), 160)));
    }
    let copied = plan.files.iter().filter(|file| file.fate == FileFate::Copied).count();
    out.push_str(&format!("files copied from its workspace: {copied}\n"));
    for (file, why) in plan.files.iter().filter_map(|file| Some((file, file.fate.why_not()?))) {
        out.push_str(&format!("  not copied: {} ({why})\n", plain(&file.path)));
    }
    out
}

/// The fork for a machine.
fn shown(plan: &ForkPlan, fork: Option<&RunRecord>) -> Value {
    json!({
        "run_id": fork.map(|fork| &fork.run_id),
        "parent_run_id": plan.parent.run.run_id,
        "root_run_id": plan.parent.run.root_run_id,
        "forked_at_turn": plan.at_turn,
        "workspace_dir": fork.map(|fork| Path::new(&fork.workspace_dir)),
        "job_changes": plan.changes,
        "files": plan.files,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_merged_field_by_field() {
        let mut job = json!({"objective": "a", "inputs": {"x": 1, "y": [1, 2]}, "job_key": "k"});
        merge(&mut job, json!({"inputs": {"y": [3], "z": {"w": null, "v": 1}}, "job_key": null, "prompt": "p"}));
        assert_eq!(job, json!({"objective": "a", "inputs": {"x": 1, "y": [3], "z": {"v": 1}}, "prompt": "p"}));
    }
}
