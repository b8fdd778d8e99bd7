//! `ua job`: start a run, or resume the one that is named.

use std::io::{IsTerminal as _, Read as _};
use std::sync::Arc;

use ua_core::RunId;
use ua_host::job::{Iterations, JobRequest};
use ua_host::resume::Changes;
use ua_host::{Host, People, job, job_file, paths};

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
    let text = if file.as_os_str() == paths::NO_FILE { Some(read_stdin()?) } else { None };
    let request = JobRequest {
        file,
        text,
        run_id,
        job_key: None,
        again: args.again,
        new: args.new,
        iterations,
        launch: args.launch.options(),
    };
    if args.check {
        return super::check::run(host, &request).await;
    }
    Ok(code_of_end(Box::pin(job::run(host, &people, &request)).await?))
}

/// The job that somebody writes to standard input.
fn read_stdin() -> Result<String, HostError> {
    if std::io::stdin().is_terminal() {
        crate::output::tell("reading the job from standard input; end it with Ctrl-D");
    }
    let mut bytes = Vec::new();
    // One more than there may be: whoever reads the job says that it is too large.
    let read = std::io::stdin().lock().take(job_file::MAX_JOB_BYTES + 1).read_to_end(&mut bytes);
    let text = read.and_then(|_| {
        String::from_utf8(bytes)
            .map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error.utf8_error()))
    });
    text.map_err(|error| {
        HostError::usage(format!("cannot read the job on standard input: {error}"))
            .hint("`ua job -` wants a JSON object in UTF-8 on its standard input; nothing was started")
    })
}
