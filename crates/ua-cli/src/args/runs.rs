//! `ua runs list`, `tail` and `delete`, and `ua turns`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter;

use super::parse_span;
use crate::complete;

/// `ua runs list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua runs list
  ua runs list --status waiting --status stopped --status answered     what needs me?
  ua runs list --since 7d --limit 200 --json | jq -r '.[].run_id'

`crashed` is a run whose process died while it drove it; `ua resume RUN` resumes it.")]
pub struct ListArgs {
    /// Only runs that stand so; may be repeated
    #[arg(long, value_name = "STATUS")]
    pub status: Vec<StatusFilter>,
    /// Only runs submitted within this time: a number and d, h, m or s, for example 7d
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    pub since: Option<Duration>,
    /// How many
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: u32,
    /// The runs of sub-agents too, below the runs they work for
    #[arg(long)]
    pub tasks: bool,
}

/// Where a run stands, as a person says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StatusFilter {
    /// Submitted, not taken yet
    Queued,
    /// A process drives it
    Running,
    /// Its process died while it drove it
    Crashed,
    /// Waits for a person's answer
    Waiting,
    /// Has its answers and waits for a resume
    Answered,
    /// Stopped by a budget, a signal, the provider, a change or a tool server
    Stopped,
    /// Did what it was to do
    Succeeded,
    /// Did not
    Failed,
    /// Ended by a person
    Cancelled,
}

/// `ua runs tail`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua runs tail last                  watch the newest run until its process ends its work
  ua runs tail last --no-follow      what happened in the last turns, then exit
  ua runs tail RUN --turns 0 --json | jq -c 'select(.event == \"call_settled\")'

It reads the database, so it works beside the process that drives the run, on another terminal, and afterwards. With --follow the
exit code says how the run ended, as that of `ua job` does.")]
pub struct TailArgs {
    /// A run id, its beginning or end, or `last`
    #[arg(add = ArgValueCompleter::new(complete::runs))]
    pub run: String,
    /// Wait for more until the run ends, waits or stops (the default)
    #[arg(long, overrides_with = "no_follow")]
    pub follow: bool,
    /// Show what there is and exit
    #[arg(long)]
    pub no_follow: bool,
    /// How many of the past turns to begin with
    #[arg(long, short = 'n', value_name = "N", default_value_t = 5)]
    pub turns: u32,
    /// Leave out what the runs of its sub-agents do
    #[arg(long)]
    pub no_tasks: bool,
}

/// `ua runs delete`.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  ua runs delete run_019…                       one finished run with its workspace
  ua runs delete --older-than 30d --dry-run     which finished runs would go?
  ua runs delete --older-than 30d --yes         without asking, as a timer does
  ua runs delete RUN --force                    one that is not finished, too

A run that a process drives is never deleted. While a fork or sub-agent of its lineage is there, the database keeps what the run
did outside, so that it is not done again; the rest goes with the last of them. A deleted run's name is not used again."
)]
pub struct DeleteArgs {
    /// Run ids, their beginnings or ends, or `last`
    #[arg(required_unless_present = "older_than", add = ArgValueCompleter::new(complete::runs))]
    pub runs: Vec<String>,
    /// Every finished run that did not change for this long: a number and d, h, m or s, for example 30d
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    pub older_than: Option<Duration>,
    /// Also runs that are named and not finished
    #[arg(long)]
    pub force: bool,
    /// Leave the workspaces where they are
    #[arg(long)]
    pub keep_files: bool,
    /// Only say what would go
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub yes: bool,
}

/// `ua turns …`.
#[derive(Debug, Subcommand)]
pub enum TurnsCommand {
    /// Show one turn: the request's digest, the reply, its calls with their results, what it took
    #[command(after_help = "\
Examples:
  ua turns show last           the newest turn of the newest run
  ua turns show RUN 7
  ua turns show RUN 7 --json | jq '.calls[].result'")]
    Show {
        /// A run id, its beginning or end, or `last`
        #[arg(add = ArgValueCompleter::new(complete::runs))]
        run: String,
        /// Which turn [default: the newest]
        #[arg(value_name = "N")]
        turn: Option<u32>,
    },
}
