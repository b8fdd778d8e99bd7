//! `ua submit`, `ua worker`, `ua queue`, `ua workers` and `ua schedule`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use ua_core::Timestamp;
use ua_store::ConcurrencyKey;

use super::{LaunchArgs, parse_span};
use crate::complete;

/// `ua submit`.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  ua submit report.json
  ua submit report.json --job-key report-2026-11       once, however often it is submitted
  ua submit report.json --concurrency-key acme:2 --fair-key acme
  ua submit report.json --delay 2h --priority -10
  ua submit --run run_019                              queue a run that is stored already

Exit code 0 means that the run is stored and queued. A worker (`ua worker`) on this or another machine runs it."
)]
pub struct SubmitArgs {
    /// The job file
    #[arg(required_unless_present = "run")]
    pub file: Option<PathBuf>,
    /// Queue this run, which is stored already, in the place of a job
    #[arg(long, value_name = "RUN", conflicts_with_all = ["file", "job_key", "run_id", "again"], add = ArgValueCompleter::new(complete::runs))]
    pub run: Option<String>,
    /// Name of the run [default: a fresh one]
    #[arg(long, value_name = "ID")]
    pub run_id: Option<String>,
    /// The queue that it waits in
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub queue: String,
    /// The smaller, the sooner
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub priority: i32,
    /// Not before this instant, for example 2026-12-01T08:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_instant, conflicts_with = "delay")]
    pub run_after: Option<Timestamp>,
    /// Not before so long from now: a number and d, h, m or s
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    pub delay: Option<Duration>,
    /// At most N runs of this key at once, over all workers
    #[arg(long, value_name = "KEY[:N]", value_parser = parse_concurrency)]
    pub concurrency_key: Option<ConcurrencyKey>,
    /// Runs of different keys take turns, however many of each are waiting
    #[arg(long, value_name = "KEY")]
    pub fair_key: Option<String>,
    /// The name of the intended execution: of one key there is one run, also when it is submitted twice
    #[arg(long, value_name = "KEY")]
    pub job_key: Option<String>,
    /// Run the job once more although the run of its job_key succeeded
    #[arg(long)]
    pub again: bool,
    /// How to start it
    #[command(flatten)]
    pub launch: LaunchArgs,
}

/// `ua worker`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua worker
  ua worker --queue default --queue night --concurrency 8
  ua worker --database-url postgres://ua@db.example/ua --root /var/lib/ua --listen 127.0.0.1:9090
  ua worker --until-empty                              work off what is waiting, then end

SIGTERM and Ctrl-C end it in good order: it takes no more runs, waits up to --drain for calls with an effect, and
returns its runs to the queue. A second signal ends it at once. All workers of a database have the same --root path;
a run stays on the machine that began it.")]
pub struct WorkerArgs {
    /// Take runs from this queue only; may be repeated [default: all queues]
    #[arg(long, value_name = "NAME")]
    pub queue: Vec<String>,
    /// Runs to work on at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub concurrency: u32,
    /// How long calls with an effect are waited for after a signal: a number and d, h, m or s
    #[arg(long, value_name = "TIME", default_value = "25s", value_parser = parse_span)]
    pub drain: Duration,
    /// Answer /healthz, /readyz and /metrics at this address, for example 127.0.0.1:9090
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Name of the worker [default: a fresh one]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// End when nothing is waiting and nothing is being worked on
    #[arg(long)]
    pub until_empty: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
}

/// What is done with the queue.
#[derive(Debug, Subcommand)]
pub enum QueueCommand {
    /// Count what waits in each queue, and how long the oldest has been waiting
    #[command(after_help = "\
Examples:
  ua queue depth
  ua queue depth --json | jq 'map(.ready) | add'")]
    Depth {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// List the runs in the queue in the order in which workers take them
    #[command(after_help = "\
Examples:
  ua queue list
  ua queue list --limit 500 --json | jq -r '.[] | select(.state == \"parked\") | .run_id'")]
    List {
        /// How many
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: u32,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Put a run into another queue, or change its priority; a parked run is taken again
    #[command(after_help = "\
Examples:
  ua queue move run_019 --queue night
  ua queue move run_019 --priority -10
  ua queue move run_019                                try a parked run again")]
    Move {
        /// A run id, the beginning of one, or `last`
        #[arg(add = ArgValueCompleter::new(complete::runs))]
        run: String,
        /// The queue
        #[arg(long, value_name = "NAME")]
        queue: Option<String>,
        /// The smaller, the sooner
        #[arg(long, value_name = "N", allow_negative_numbers = true)]
        priority: Option<i32>,
    },
    /// Take a run out of the queue; the run stays, and `ua resume` runs it here
    #[command(after_help = "\
Examples:
  ua queue remove run_019")]
    Remove {
        /// A run id, the beginning of one, or `last`
        #[arg(add = ArgValueCompleter::new(complete::runs))]
        run: String,
    },
}

/// What is done with workers.
#[derive(Debug, Subcommand)]
pub enum WorkersCommand {
    /// List the workers of this database
    #[command(after_help = "\
Examples:
  ua workers list
  ua workers list --json | jq -r '.[].worker'")]
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Have a worker take no more runs; what it works on is finished
    #[command(after_help = "\
Examples:
  ua workers drain worker_019")]
    Drain {
        /// Its name
        worker: String,
    },
    /// Say that a machine is gone for good, so that its runs can be taken elsewhere
    #[command(after_help = "\
Examples:
  ua workers forget worker_019
  ua workers forget 0197a2c4-…                         a machine by its id, when its workers are not listed any more:
                                                       a name that fits none lists the machines that hold runs

Only say this of a machine that is off: its runs start again with an empty workspace, and nothing proves any more that
a tool it was running has stopped. Refused while one of its workers is alive.")]
    Forget {
        /// A worker of it, or its id
        machine: String,
    },
}

/// What is done about instants that passed while no worker was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CatchUpWord {
    /// Nothing
    None,
    /// Submit the last of them
    Last,
    /// Submit all of them
    All,
}

/// What is done with schedules.
#[derive(Debug, Subcommand)]
pub enum ScheduleCommand {
    /// Submit a job again and again; a schedule of that name is replaced
    #[command(after_help = "\
Examples:
  ua schedule add nightly report.json --cron '0 3 * * *' --time-zone Europe/Berlin
  ua schedule add often check.json --cron '*/15 8-18 * * mon-fri' --catch-up none --queue night

Workers submit what is due: of each instant there is one run, with the job key NAME@INSTANT. The job file is read at that
time, by the worker that is first, so it has to be there on every machine with a worker.")]
    Add {
        /// Its name
        name: String,
        /// The job file
        file: PathBuf,
        /// Minute, hour, day of the month, month, day of the week; or @hourly, @daily, @weekly, @monthly
        #[arg(long, value_name = "CRON")]
        cron: String,
        /// The time zone that --cron is meant in
        #[arg(long, value_name = "NAME", default_value = "UTC")]
        time_zone: String,
        /// What is done about instants that passed while no worker was there
        #[arg(long, value_enum, value_name = "WHICH", default_value = "last")]
        catch_up: CatchUpWord,
        /// The queue that its runs wait in
        #[arg(long, value_name = "NAME", default_value = "default")]
        queue: String,
        /// The smaller, the sooner
        #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
        priority: i32,
        /// At most N runs of this key at once, over all workers
        #[arg(long, value_name = "KEY[:N]", value_parser = parse_concurrency)]
        concurrency_key: Option<ConcurrencyKey>,
        /// Runs of different keys take turns
        #[arg(long, value_name = "KEY")]
        fair_key: Option<String>,
    },
    /// List the schedules
    #[command(after_help = "\
Examples:
  ua schedule list")]
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Submit nothing for a schedule until it is resumed
    #[command(after_help = "\
Examples:
  ua schedule pause nightly")]
    Pause {
        /// Its name
        name: String,
    },
    /// Submit for a paused schedule again, from its next instant
    #[command(after_help = "\
Examples:
  ua schedule resume nightly")]
    Resume {
        /// Its name
        name: String,
    },
    /// Submit the job of a schedule now, besides its instants
    #[command(after_help = "\
Examples:
  ua schedule run nightly")]
    Run {
        /// Its name
        name: String,
    },
    /// Remove a schedule; runs that it submitted stay
    #[command(after_help = "\
Examples:
  ua schedule remove nightly")]
    Remove {
        /// Its name
        name: String,
    },
}

fn parse_instant(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text).ok_or_else(|| format!("`{text}` is no instant; write for example 2026-12-01T08:00:00Z"))
}

fn parse_concurrency(text: &str) -> Result<ConcurrencyKey, String> {
    let (key, limit) = match text.rsplit_once(':') {
        None => (text, Ok(1)),
        Some((key, limit)) => (key, limit.parse::<u32>()),
    };
    match limit {
        Ok(limit) if limit > 0 && !key.is_empty() => Ok(ConcurrencyKey { key: key.to_owned(), limit }),
        _ => Err(format!("`{text}` is no key; write KEY, or KEY:N for N runs at once")),
    }
}
