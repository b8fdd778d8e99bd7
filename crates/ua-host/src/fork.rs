//! Going on from a turn of a run as another run.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use crate::Database;
use serde_json::{Value, json};
use ua_core::{Audience, RunId, RunSpec, ShowPath as _};
use ua_runner::{ForkError, ForkPlace, ForkPlan, JobChange, LockError, Workspace, sweep_forks};
use ua_store::{RunRecord, Store, StoreError};

use crate::budgets::{self, BudgetChange};
use crate::error::{HostError, chain};
use crate::hint::{Word, text};
use crate::host::Host;
use crate::launch::{Begun, Launch, LaunchOptions};
use crate::people::People;
use crate::placed::{FileKind, Place};
use crate::session::{self, Ending, Taking};
use crate::settings::Settings;
use crate::{consent, input_files, paths, servers, tree};

/// What is different in a fork.
#[derive(Debug, Clone, Copy)]
pub struct ForkRequest<'a> {
    /// The run to fork.
    pub parent: &'a RunRecord,
    /// The fork's name; without one it gets one of its own.
    pub run_id: Option<&'a RunId>,
    /// The last turn that is shared; without one the last that is committed.
    pub at_turn: Option<u32>,
    /// A file with the fields of the job that change (RFC 7396).
    pub job_overrides: Option<&'a Path>,
    /// Other budgets.
    pub budgets: &'a [BudgetChange],
    /// How to start it; what is not said is as the parent was started.
    pub launch: &'a LaunchOptions,
}

/// A fork that can be made; nothing is stored yet.
#[derive(Debug)]
pub struct Fork {
    /// What is shared, copied and changed.
    pub plan: ForkPlan,
    run_id: Option<RunId>,
    launch: Launch,
}

impl Fork {
    /// Finds everything that can be known to be wrong, by looking only.
    pub async fn plan(host: &Host, store: &dyn Store, request: ForkRequest<'_>) -> Result<Self, HostError> {
        let parent = request.parent;
        if ua_store::is_gateway(parent) {
            return Err(crate::gateway::refused(parent));
        }
        if parent.entrypoint == Audience::LIBRARY {
            return Err(HostError::usage(format!("run {} belongs to a program that uses the library", parent.run_id))
                .hint("only that program has its tools and its model; it forks runs with `Runs::fork`"));
        }
        tree::refuse_task(store, parent, "forked", "ua fork").await?;
        let spec = changed_job(host.settings(), &request)?;
        input_files::refuse_other(&spec)?;
        let from = files_of(host, parent)?;
        let before = Launch::of_run(host, store, parent).await?;
        let launch = Launch::for_fork(host.settings(), before.clone(), parent, &spec, request.launch)?;
        // Of the servers that the fork has, too: before anything of it is shown.
        host.known_secrets().learn_servers(launch.mcp_file().as_ref());
        if let Some(name) = request.run_id {
            crate::job::refuse_reserved(name)?;
            crate::words::without_secrets(host, "name of the run", name.as_str()).map_err(HostError::not_begun)?;
        }
        crate::job::refuse_secrets(host, &spec)?;
        launch.without_secrets(host)?;
        launch.check(host, &spec)?;
        launch.check_policies(host.settings(), Begun::Fork)?;
        let plan = ForkPlan::with_workspace(store, &parent.run_id, from, request.at_turn, Some(spec)).await;
        let mut plan = plan.map_err(|error| refused(&error))?;
        tell_another_model(&mut plan, &before, &launch);
        Ok(Self { plan, run_id: request.run_id.cloned(), launch })
    }

    /// Makes the fork.
    pub async fn make(&mut self, host: &Host) -> Result<(Database, RunRecord), HostError> {
        let (home, env) = (host.home(), host.env());
        let store = home.open()?;
        home.can_lock(text("nothing was stored"))?;
        sweep_forks(home.root(), &home.locks(), &store, env).await;
        servers::end_abandoned(home).await;
        let run_id = self.run_id.clone().unwrap_or_else(|| RunId::new(env));
        let folder = wanted_folder(&self.plan.parent.run, &self.plan.spec);
        let workspace_dir = home.workspace_for(&run_id, folder.as_deref(), env.now())?;
        if folder.is_some() {
            home.refuse_shared(&store, &run_id, &workspace_dir).await?;
        }
        let place = ForkPlace {
            workspace_dir,
            run_id,
            root: home.root(),
            locks: &home.locks(),
            launch: self.launch.stored_for(host, &self.plan.parent.run.root_run_id),
            entrypoint: host.entrypoint().to_owned(),
        };
        let name = place.run_id.clone();
        let store = Arc::new(store);
        let port = host.seams().store(store.clone());
        let made = self.plan.carry_out(port.as_ref(), place, env).await;
        drop(port);
        let fork = made.map_err(|error| match error {
            ForkError::Store { source: StoreError::Exists { .. }, .. } => refused(&error).of_run(&name, false),
            error @ (ForkError::NotCommitted { .. }
            | ForkError::OfAnotherTurn { .. }
            | ForkError::Locked(_)
            | ForkError::Past(_)
            | ForkError::Workspace(_)
            | ForkError::Store { .. }) => refused(&error),
        })?;
        let Some(store) = Arc::into_inner(store) else {
            return Err(HostError::storage("the runtime database is still in use"));
        };
        Ok((store, fork))
    }

    /// Drives the fork that was made.
    pub async fn drive(
        &self,
        host: &Host,
        people: &Arc<dyn People>,
        store: Database,
        fork: RunRecord,
    ) -> Result<Ending, HostError> {
        consent::tell_unsaid(people.as_ref(), &self.launch);
        consent::tell_lifted_questions(people.as_ref(), &fork.spec);
        Box::pin(session::run(host, people, store, fork, &self.launch, Taking::Forked)).await
    }
}

/// The workspace of the run that is forked, whose files are looked at, and taken along; `None` where it is gone. Programs of other runs, and a
/// checkout, may have made a part of the way there a link to somewhere else, and what lies there is not the run's.
fn files_of(host: &Host, parent: &RunRecord) -> Result<Option<Workspace>, HostError> {
    host.home().place_of_run(parent)?;
    match host.home().open_workspace(parent) {
        Ok(workspace) => Ok(Some(workspace)),
        Err(error) if error.io().kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Adds to what is different in a fork the provider and the model that the command line names: they stand in no job.
fn tell_another_model(plan: &mut ForkPlan, before: &Launch, after: &Launch) {
    let (before, after) = (before.model(), after.model());
    for (field, before, after) in [("model.provider", before.0, after.0), ("model.name", before.1, after.1)] {
        if before != after && !plan.changes.iter().any(|change| change.field == field) {
            let (before, after) = (Some(json!(before)), Some(json!(after)));
            plan.changes.push(JobChange { field: field.to_owned(), before, after });
        }
    }
    plan.changes.sort_by(|a, b| a.field.cmp(&b.field));
}

/// The parent's job with what the person changes about it.
fn changed_job(settings: &Settings, request: &ForkRequest<'_>) -> Result<RunSpec, HostError> {
    let parent = request.parent;
    let mut spec = RunSpec::clone(&parent.spec);
    if let Some(file) = request.job_overrides {
        let whole = settings.absolute(file)?;
        let folder = Launch::from_stored(&parent.launch)?.job_dir_text();
        let usage = |why: String| HostError::usage(format!("{}: {why}", file.shown()));
        spec = Place::named(FileKind::JobOverrides, file).at(&whole).read()?.parse(|text| {
            let written = text.replace("${JOB_DIR}", &folder);
            let overrides: Value =
                serde_json::from_str(&written).map_err(|e| usage(ua_core::json_fault(&written, &e)))?;
            // As of a job: of two values under one key, nobody knows which one is meant.
            ua_core::parse_strict(&written).map_err(|e| usage(e.to_string()))?;
            if !overrides.is_object() {
                return Err(usage("it is not a JSON object".to_owned())
                    .hint("write the fields of the job that change, for example {\"prompt\": \"…\"}"));
            }
            let mut job = serde_json::to_value(&spec).map_err(|e| usage(e.to_string()))?;
            merge(&mut job, overrides);
            RunSpec::parse(&job.to_string())
                .map_err(|e| usage(e.to_string()).hint("`ua schema job-file` lists every field").not_begun())
        })?;
    }
    budgets::put_into(request.budgets, &mut spec)?;
    consent::keep_questions(settings, &mut spec);
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

fn refused(error: &ForkError) -> HostError {
    let message = chain(error);
    match error {
        ForkError::NotCommitted { committed: 0, .. } => HostError::usage(message)
            .hint("the run has no finished turn yet: leave --at-turn out to fork it from its beginning"),
        ForkError::NotCommitted { committed, .. } => HostError::usage(message)
            .hint(format!("choose a turn from 0 to {committed}, or leave --at-turn out for the last one")),
        ForkError::OfAnotherTurn { .. } | ForkError::Locked(LockError::Held { .. }) => {
            HostError::usage(message).hint("choose another --run-id")
        }
        ForkError::Locked(LockError::Io { source, .. }) => HostError::storage(message).hint([
            text(format!("{}, then ", paths::mend_folder(source))),
            Word::Again,
            text("; nothing was stored"),
        ]),
        ForkError::Workspace(_) => {
            HostError::storage(message).hint("check that the disk is writable and not full; nothing was stored")
        }
        ForkError::Store { source: StoreError::Exists { .. }, .. } => {
            HostError::usage(message).hint([text("choose another --run-id, or resume that run: "), Word::Resume("")])
        }
        ForkError::Past(error) => error.into(),
        ForkError::Store { doing, source } => HostError::store(doing, source),
    }
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
