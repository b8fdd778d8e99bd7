//! `ua job`: start a run, or resume the one that is named.

use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use ua_core::RunId;
use ua_host::job::{Iterations, JobRequest};
use ua_host::resume::Changes;
use ua_host::{Host, People, job, job_file, paths};

use super::fork::ForkChanges;
use crate::args::{LaunchArgs, not_empty};
use crate::complete;
use crate::error::{HostError, code_of_end};
use crate::people::AtTerminal;

/// `ua job`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua job report.json
  ua job --check report.json
      check whether it would start, and with which tools
  jq '.inputs.month = \"11\"' report.json | ua job -
  ua job report.json --provider anthropic --model claude-sonnet-4-5
  ua job report.json --mcp-config servers.json
      with the tool servers of this file
  ua job report.json --run-id monthly-2026-11
      give the run a name
  ua job report.json --again
      once more, although the run of its job_key succeeded
  ua job survey.json --max-iterations 40 --completion-promise 'SURVEY DONE'
      in several contexts, until the model says that it is done
  ua job --resume --run-id monthly-2026-11
  ua job --fork --run-id monthly-2026-11 --at-turn 4

A job file is JSON: at least {\"objective\": \"…\"}; `ua schema job-file` has all fields.")]
pub struct JobArgs {
    /// The job file; `-` reads the job from standard input
    #[arg(required_unless_present_any = ["resume", "fork"], value_hint = clap::ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// Only check what can be known before a start: the exit code is 0 if the job would start, else that of the error
    #[arg(long, conflicts_with_all = ["resume", "fork", "run_id"])]
    pub check: bool,
    /// Name of the run; one that exists is resumed if it was made of the same job
    #[arg(long, value_parser = not_empty(), value_name = "ID", add = ArgValueCompleter::new(complete::runs))]
    pub run_id: Option<String>,
    /// Resume the run that --run-id names
    #[arg(long, requires = "run_id", conflicts_with = "file")]
    pub resume: bool,
    /// Fork the run that --run-id names, as `ua fork` does
    #[arg(long, requires = "run_id", conflicts_with_all = ["file", "resume"])]
    pub fork: bool,
    /// What is different in the fork
    #[command(flatten)]
    pub fork_changes: ForkChanges,
    /// Run the job once more although the run of its job_key succeeded
    #[arg(long, conflicts_with_all = ["resume", "fork"])]
    pub again: bool,
    /// Start a new run although an earlier run of the same job is not finished
    #[arg(long, conflicts_with_all = ["resume", "fork"])]
    pub new: bool,
    /// Minutes to wait for a reply while its provider is away [default: the job's, else 30]
    #[arg(long, value_name = "N", conflicts_with_all = ["resume", "fork"])]
    pub max_provider_wait_minutes: Option<u32>,
    /// Run in iterations with fresh contexts
    #[command(flatten)]
    pub harness: HarnessArgs,
    /// How to start it
    #[command(flatten)]
    pub launch: LaunchArgs,
}

const HEADING: &str = "Iterations (a long job in several contexts)";

/// Iterations. Any of these turns them on; what is not given is as the job file says.
#[derive(Debug, Args, Default)]
pub struct HarnessArgs {
    /// Continue with an empty context and a hand-off when one context is full
    #[arg(long, help_heading = HEADING, conflicts_with_all = ["resume", "fork"])]
    pub harness: bool,
    /// The most iterations that may begin [default: the job's, else 10]; turns --harness on
    #[arg(long, help_heading = HEADING, value_name = "N", conflicts_with_all = ["resume", "fork"], value_parser = clap::value_parser!(u32).range(1..))]
    pub max_iterations: Option<u32>,
    /// What the model has to say between `<promise>` tags when the job is done; counts only with evidence. Turns --harness on
    #[arg(long, value_parser = not_empty(), help_heading = HEADING, value_name = "TEXT", conflicts_with_all = ["resume", "fork"])]
    pub completion_promise: Option<String>,
}

impl HarnessArgs {
    /// Whether iterations are asked for on the command line.
    pub fn is_given(&self) -> bool {
        self.harness || self.max_iterations.is_some() || self.completion_promise.is_some()
    }
}

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
        return Err(HostError::usage("--at-turn and --job-overrides are for forks")
            .hint("use `ua fork RUN`, or add --fork --run-id RUN"));
    }
    let wanted = args.run_id.as_deref().map(RunId::parse).transpose();
    let run_id = wanted.map_err(|e| {
        HostError::usage(format!("cannot use --run-id: {e}")).hint("leave --run-id out to have an id generated")
    })?;
    let people = AtTerminal::new(args.launch.quiet, args.launch.no_input);
    let presence = people.presence();
    let Some(file) = args.file else {
        // `--resume` without a file: clap made sure that a run is named.
        let name = args.run_id.as_deref().unwrap_or("last");
        return super::resume::by_name(host, people, name, &args.launch.options(), Changes::default(), false).await;
    };
    if !args.check {
        people.preparing(host.env(), "preparing the job");
    }
    let people: Arc<dyn People> = Arc::new(people);
    let iterations = args.harness.is_given().then(|| Iterations {
        max: args.harness.max_iterations,
        completion_promise: args.harness.completion_promise.clone(),
    });
    let text = text_of(&file)?;
    let request = JobRequest {
        file,
        text,
        run_id,
        job_key: None,
        is_instant: false,
        again: args.again,
        new: args.new,
        for_queue: false,
        iterations,
        max_provider_wait_minutes: args.max_provider_wait_minutes,
        launch: args.launch.options(),
        configured: None,
    };
    if args.check {
        return super::check::run(host, presence, &request).await;
    }
    Ok(code_of_end(Box::pin(job::run(host, &people, &request)).await?))
}

/// The text of a job that is in no file: `-` stands for standard input.
pub(super) fn text_of(file: &Path) -> Result<Option<String>, HostError> {
    if file.as_os_str() == paths::NO_FILE { read_stdin().map(Some) } else { Ok(None) }
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
            .hint("`-` expects the job as a JSON object in UTF-8 on standard input; nothing was started")
    })
}
