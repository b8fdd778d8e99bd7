//! `ua job`: start a run, or resume the one that is named.

use std::sync::Arc;

use ua_core::RunId;
use ua_host::job::{Iterations, JobRequest};
use ua_host::resume::Changes;
use ua_host::{Host, People, job};

use crate::args::JobArgs;
use crate::error::{HostError, code_of_end};
use crate::people::AtTerminal;

pub(crate) async fn run(host: &Host, args: JobArgs) -> Result<u8, HostError> {
    if args.fork {
        let wanted = super::fork::ForkArguments {
            run: args.run_id.as_deref().unwrap_or("last"),
            run_id: None,
            changes: &args.fork_changes,
            launch: &args.launch,
            budgets: Vec::new(),
            dry_run: false,
        };
        return super::fork::fork(host, wanted).await;
    }
    if args.fork_changes.at_turn.is_some() || args.fork_changes.job_overrides.is_some() {
        return Err(HostError::usage("--at-turn and --job-overrides belong to a fork")
            .hint("use `ua fork RUN`, or add --fork --run-id RUN"));
    }
    let wanted = args.run_id.as_deref().map(RunId::parse).transpose();
    let run_id = wanted.map_err(|e| {
        HostError::usage(format!("cannot use --run-id: {e}"))
            .hint("leave --run-id out, and the run gets a name of its own")
    })?;
    let people = AtTerminal::new(args.launch.quiet, args.launch.no_input);
    let Some(file) = args.file else {
        // `--resume` without a file: clap made sure that a run is named.
        let name = args.run_id.as_deref().unwrap_or("last");
        return super::resume::by_name(host, people, name, &args.launch.options(), Changes::default(), false).await;
    };
    let people: Arc<dyn People> = Arc::new(people);
    let iterations = args.harness.is_given().then(|| Iterations {
        max: args.harness.max_iterations,
        completion_promise: args.harness.completion_promise.clone(),
    });
    let request =
        JobRequest { file, run_id, again: args.again, new: args.new, iterations, launch: args.launch.options() };
    Ok(code_of_end(Box::pin(job::run(host, &people, &request)).await?))
}
