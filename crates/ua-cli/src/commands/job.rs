//! `ua job`: start a run, or resume the one that is named.

use std::fs;
use std::path::Path;

use ua_core::{Message, Origin, RunId, RunSpec, RunStatus, SpecError};
use ua_store::{NewRun, RunRecord, RunStore, StoreError};
use ua_store_sqlite::SqliteStore;

use crate::args::{HarnessArgs, JobArgs, LaunchArgs};
use crate::compose::{Launch, job_dir, json_fragment};
use crate::error::CliError;
use crate::home::Home;
use crate::input_files;
use crate::output::line;

use super::execute::{self, How};
use super::resume::Changes;

pub(crate) async fn run(home: &Home, args: JobArgs) -> Result<u8, CliError> {
    if args.fork {
        let wanted = super::fork::Wanted {
            run: args.run_id.as_deref().unwrap_or("last"),
            run_id: None,
            changes: &args.fork_changes,
            launch: &args.launch,
            budgets: Vec::new(),
            dry_run: false,
        };
        return super::fork::fork(home, wanted).await;
    }
    if args.fork_changes.at_turn.is_some() || args.fork_changes.job_overrides.is_some() {
        return Err(CliError::usage("--at-turn and --job-overrides belong to a fork")
            .hint("use `ua fork RUN`, or add --fork --run-id RUN"));
    }
    let wanted = args.run_id.as_deref().map(RunId::parse).transpose();
    let wanted = wanted.map_err(|e| {
        CliError::usage(format!("cannot use --run-id: {e}"))
            .hint("leave --run-id out, and the run gets a name of its own")
    })?;
    let how = How {
        quiet: args.launch.quiet || crate::terminal::is_json(),
        take_over: false,
        no_input: args.launch.no_input || crate::terminal::is_json(),
        fork: None,
    };
    let Some(file) = &args.file else {
        // `--resume` without a file: clap made sure that a run is named.
        let name = args.run_id.as_deref().unwrap_or("last");
        return super::resume::by_name(home, name, &args.launch, Changes::default(), how).await;
    };
    let mut spec = in_iterations(read_job(file)?, &args.harness)?;
    let env = ua_core::system::env();
    let launch = Launch::new(file, &spec, &args.launch)?;
    super::trust::ask_about(&launch, &spec, !how.no_input && !how.quiet).await?;
    // Everything that can be known to be wrong is found before anything is stored or started.
    launch.check(&spec)?;
    refuse_secrets(&spec)?;
    let files = input_files::take(&mut spec, launch.job_dir())?;
    launch.check_files(&spec)?;

    let store = home.open()?;
    if let Some(id) = &wanted {
        match store.run(id).await {
            Ok(existing) => return resume_existing(home, store, existing, &spec, &args.launch, how).await,
            Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(CliError::store("look for the run", &error)),
        }
    }
    let earlier = holder(&store, spec.job_key.as_deref()).await?;
    if let Some(earlier) = earlier.as_ref().filter(|run| !args.again || run.status != RunStatus::Succeeded) {
        return Err(taken_key(earlier));
    }
    let run_id = wanted.unwrap_or_else(|| RunId::new(&env));
    let workspace = home.workspace_for(&run_id, spec.artifacts.workspace_dir.as_deref(), env.now())?;
    let run = NewRun {
        run_id,
        created_at: env.now(),
        entrypoint: "cli".to_owned(),
        run_mode: if spec.harness.is_some() { "harness" } else { "job" }.to_owned(),
        opening: Message::user(Origin::Prompt, spec.opening_prompt()),
        job_path: Some(file.display().to_string()),
        workspace_dir: workspace.display().to_string(),
        launch: launch.to_stored(),
        parent_run_id: None,
        spec,
        files,
    };
    if !how.quiet {
        launch.tell_unknown_model();
    }
    let name = run.run_id.clone();
    let key = run.spec.job_key.clone();
    let submitted = match &earlier {
        Some(earlier) => store.submit_again(run, &earlier.run_id).await,
        None => store.submit_run(run).await,
    };
    let run = match submitted {
        Ok(run) => run,
        Err(StoreError::Exists { row }) if row.table() == "deleted_runs" => return Err(deleted_name(&name)),
        // Another process was faster.
        Err(error @ (StoreError::Exists { .. } | StoreError::Conflict { .. })) => {
            return Err(match holder(&store, key.as_deref()).await? {
                Some(holder) => taken_key(&holder),
                None => CliError::store("store the run", &error),
            });
        }
        Err(error) => return Err(CliError::store("store the run", &error)),
    };
    Box::pin(execute::execute(home, store, run, &launch, how)).await
}

/// The name of a run is good for one run for ever: keys and locks are made of it.
pub(super) fn deleted_name(run: &RunId) -> CliError {
    CliError::usage(format!("the name `{run}` is taken: a run of that name was deleted"))
        .hint("choose another --run-id, or leave it out")
}

/// The run that answers for a job key.
async fn holder(store: &SqliteStore, key: Option<&str>) -> Result<Option<RunRecord>, CliError> {
    let Some(key) = key else { return Ok(None) };
    store.run_by_job_key(key).await.map_err(|e| CliError::store("look for the job key", &e))
}

async fn resume_existing(
    home: &Home,
    store: ua_store_sqlite::SqliteStore,
    existing: RunRecord,
    spec: &RunSpec,
    args: &LaunchArgs,
    how: How,
) -> Result<u8, CliError> {
    if let Some(files) = input_files::differing(&existing.spec, spec).filter(|files| !files.is_empty()) {
        return Err(CliError::usage(format!(
            "run {} exists and was started with other files: {}",
            existing.run_id,
            line(&files.join(", "), 400)
        ))
        .hint(
            "`ua resume` goes on with what it was started with; choose another --run-id for the files as they are now",
        ));
    }
    if existing.spec != *spec {
        return Err(CliError::usage(format!("run {} exists and was made of another job", existing.run_id))
            .hint("a run's job never changes: choose another --run-id, or resume it with `ua resume`"));
    }
    super::resume::resume(home, store, existing, args, Changes::default(), how).await
}

fn taken_key(earlier: &RunRecord) -> CliError {
    let (id, key) = (&earlier.run_id, earlier.job_key.as_deref().unwrap_or_default());
    let hint = match earlier.status {
        RunStatus::Succeeded => {
            format!("it succeeded; see `ua runs show {id}`. To run the job once more, add `--again`")
        }
        RunStatus::Failed | RunStatus::Cancelled => {
            format!("it is {}; `ua fork {id}` goes on from its last turn, `ua runs show {id}` shows it", earlier.status)
        }
        RunStatus::Queued | RunStatus::Running | RunStatus::WaitingForHuman | RunStatus::Stopped => {
            format!("it is not finished: `ua resume {id}`")
        }
    };
    CliError::usage(format!("the job key {key:?} was used by run {id} already"))
        .hint(hint)
        .field("kind", "job_key_taken")
        .field("job_key", key)
        .field("run_id", id)
        .field("status", earlier.status)
}

/// Refuses a job that holds a secret itself: it would be stored, and sent to the model.
fn refuse_secrets(spec: &RunSpec) -> Result<(), CliError> {
    crate::secrets::get()?;
    let text = serde_json::to_string(spec).unwrap_or_default();
    match crate::clean::redactor().found_in(&text) {
        None => Ok(()),
        Some(name) => Err(CliError::usage(format!("the job holds the value of {name} itself")).hint(
            "take it out: a model writes `${secret:NAME}` where a tool needs it, docs/guide/secrets.md says how; nothing was started",
        )),
    }
}

/// The largest job file.
const MAX_JOB_BYTES: u64 = 256 * 1024;

/// The job with what the command line says about iterations.
fn in_iterations(spec: RunSpec, args: &HarnessArgs) -> Result<RunSpec, CliError> {
    if !args.is_given() {
        return Ok(spec);
    }
    let mut harness = spec.harness.clone().unwrap_or_default();
    harness.max_iterations = args.max_iterations.unwrap_or(harness.max_iterations);
    harness.completion_promise = args.completion_promise.clone().or(harness.completion_promise);
    spec.in_iterations(harness).map_err(|error| {
        CliError::usage(error.to_string())
            .hint("docs/guide/long-runs.md says how a job is done in iterations; nothing was started")
    })
}

/// Reads a job file.
pub(super) fn read_job(file: &Path) -> Result<RunSpec, CliError> {
    if let Some(size) = fs::metadata(file).ok().map(|meta| meta.len()).filter(|size| *size > MAX_JOB_BYTES) {
        return Err(CliError::usage(format!(
            "{} has {size} bytes; a job file has at most {MAX_JOB_BYTES}",
            file.display()
        ))
        .hint("put material into files beside the job, and let it name them"));
    }
    let text = fs::read_to_string(file).map_err(|e| {
        CliError::usage(format!("cannot read the job file {}: {e}", file.display()))
            .hint("`ua job FILE` wants a JSON file; `ua job --help` shows one")
    })?;
    // Inside a job file `${JOB_DIR}` is its folder, so that a job can name files beside it wherever it lies.
    let text = text.replace("${JOB_DIR}", &json_fragment(&job_dir(file)?));
    RunSpec::parse(&text).map_err(|error| {
        let failure = CliError::usage(format!("{}: {error}", file.display()));
        match error {
            SpecError::Syntax(_) => failure.hint("a job file is a JSON object with at least an `objective`"),
            SpecError::UnknownField { .. } => {
                failure.hint("docs/guide/job-file.md lists every field; nothing was started")
            }
            SpecError::Invalid { .. } => {
                failure.hint("docs/guide/job-file.md says what the field takes; nothing was started")
            }
        }
    })
}
