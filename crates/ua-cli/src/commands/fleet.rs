//! `ua submit`, `ua worker`, `ua queue` and `ua workers`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::{Arg, Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use ua_core::{Component, Env, PrintedCommand, RunId, Timestamp};
use ua_dispatch::StopSignal;
use ua_host::budgets::BudgetChange;
use ua_host::fleet::{self, Did, Submission, WorkerEvent, WorkerOptions};
use ua_host::job::JobRequest;
use ua_host::launch::Launch;
use ua_host::standing::{SILENT_FOR, shows_life};
use ua_host::text::foreign;
use ua_host::{Database, Host, People};
use ua_resume::status_words;
use ua_runner::{DrainTimes, Interrupts, RunLock};
use ua_store::{
    ConcurrencyKey, EndedBy, FleetChange, FleetState, FleetStore as _, QueueDepth, QueueEntry, QueueOptions,
    QueueState, Store as _, StoreError, WorkerRecord, in_turn, stored_name,
};

use super::accept;
use crate::args::{BudgetArgs, LaunchArgs, not_empty, parse_concurrency, parse_span};
use crate::error::{HostError, INTERRUPTED, OK};
use crate::ids::{ShortIds, short};
use crate::output::{did, field, json_line, line, place, print, print_json, print_on, print_table, say, tell};
use crate::people::AtTerminal;
use crate::shown::Shown;
use crate::under_way::Driven;
use crate::view::{
    MachineForgotten, QueueDepthRow, QueueRow, QueueStanding, RunSubmitted, WorkerDid, WorkerDrained, WorkerRow,
};
use crate::{complete, find, moment};

/// `ua submit`.
#[derive(Debug, Args)]
#[command(
    mut_args = without_no_input,
    after_help = "\
Examples:
  ua submit report.json
  ua submit report.json --job-key report-2026-11
      once, however often it is submitted
  ua submit report.json --concurrency-key acme:2 --fair-key acme
  ua submit report.json --delay 2h --priority -10
  jq '.inputs.month = \"11\"' report.json | ua submit -
  ua submit --run run_019
      queue a run that is already stored

Exit code 0 means that the run is stored and queued, or that the run of its job_key has succeeded. A worker (`ua worker`) on \
this or another machine runs it. While a run of the same job is queued or not finished, nothing is queued (exit code 75) unless \
--new or --run-id says so. A key or a name of a run of another job, or of a run that ended without success, is refused (2)."
)]
pub struct SubmitArgs {
    /// The job file; `-` reads the job from standard input
    #[arg(required_unless_present = "run", value_hint = clap::ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// Queue this stored run instead of a job
    #[arg(long, value_parser = not_empty(), value_name = "RUN", conflicts_with_all = ["file", "job_key", "run_id", "again", "new"], add = ArgValueCompleter::new(complete::runs))]
    pub run: Option<String>,
    /// Name of the run [default: generated]
    #[arg(long, value_parser = not_empty(), value_name = "ID")]
    pub run_id: Option<String>,
    /// The queue that it waits in
    #[arg(long, value_parser = not_empty(), value_name = "NAME", default_value = "default")]
    pub queue: String,
    /// Priority; smaller numbers are taken first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub priority: i32,
    /// Not before this instant, for example 2026-12-01T08:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_instant, conflicts_with = "delay")]
    pub run_after: Option<Timestamp>,
    /// Not before this much time has passed: a number and d, h, m or s
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    pub delay: Option<Duration>,
    /// At most N runs of this key at once, over all workers; a KEY alone is one
    #[arg(long, value_name = "KEY[:N]", value_parser = parse_concurrency)]
    pub concurrency_key: Option<ConcurrencyKey>,
    /// Runs of different keys take turns, however many of each are waiting
    #[arg(long, value_parser = not_empty(), value_name = "KEY")]
    pub fair_key: Option<String>,
    /// A name for this execution, not empty: there is one run for a key, even if it is submitted twice
    #[arg(long, value_parser = not_empty(), value_name = "KEY")]
    pub job_key: Option<String>,
    /// Run the job once more although the run of its job_key succeeded
    #[arg(long)]
    pub again: bool,
    /// Queue another run although a run of the same job is queued or not finished
    #[arg(long, conflicts_with = "job_key")]
    pub new: bool,
    /// Minutes to wait for a reply while its provider is away [default: the job's, else 30]
    #[arg(long, value_name = "N", conflicts_with = "run")]
    pub max_provider_wait_minutes: Option<u32>,
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
  ua worker --root /var/lib/ua --listen 127.0.0.1:9090
  ua worker --database-url postgres://ua@db.example/ua
  ua worker --until-empty  process what is waiting, then exit
  ua worker --json | jq -r 'select(.event == \"ended\") | .run_id + \" \" + .status'

SIGTERM and Ctrl-C end it cleanly: it takes no more runs, waits up to --drain for calls with an effect, and \
returns its runs to the queue. A second one ends it at once; it says which calls are in doubt then. All workers of a database have the same --root path; \
a run stays on the machine that began it.")]
pub struct WorkerArgs {
    /// Take runs from this queue only; may be repeated [default: all queues]
    #[arg(long, value_parser = not_empty(), value_name = "NAME")]
    pub queue: Vec<String>,
    /// Runs to work on at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub concurrency: u32,
    /// How long calls with an effect are waited for after a signal: a number and d, h, m or s
    #[arg(long, value_name = "TIME", default_value = "25s", value_parser = parse_span)]
    pub drain: Duration,
    /// Serve /healthz, /readyz and /metrics at this address, for example 127.0.0.1:9090
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Name of the worker [default: generated]
    #[arg(long, value_parser = not_empty(), value_name = "NAME")]
    pub name: Option<String>,
    /// Exit when no run is waiting that is due and can be driven here; with code 75 if a run is left that cannot
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
  ua queue list --json | jq -r '.[] | select(.state == \"parked\") | .run_id'")]
    List {
        /// How many
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Put runs into another queue, or change their priority; parked runs are taken again
    #[command(after_help = "\
Examples:
  ua queue move run_019 --queue night
  ua queue move run_019 --priority -10
  ua queue move run_019
      try a parked run again
  ua queue move run_019 run_020 --accept servers
      the program of a tool server was replaced
  ua queue move run_019 --accept policy
      the policy changed; a worker goes by it as it is here now
  ua queue move run_019 --max-tool-calls +20
      a worker continues a run whose budget is used up")]
    Move {
        /// Run ids, unique prefixes or suffixes of some, or `last`
        #[arg(required = true, value_name = "RUN", add = ArgValueCompleter::new(complete::runs))]
        runs: Vec<String>,
        /// The queue to put them in
        #[arg(long, value_parser = not_empty(), value_name = "NAME")]
        queue: Option<String>,
        /// Priority; smaller numbers are taken first
        #[arg(long, value_name = "N", allow_negative_numbers = true)]
        priority: Option<i32>,
        /// Accept what changed since the runs were stored or started: servers, policy; both with a comma
        #[arg(long, value_parser = not_empty(), value_name = "COMPONENT", value_delimiter = ',')]
        accept: Vec<String>,
        /// What the runs may use from now on
        #[command(flatten)]
        budgets: Box<BudgetArgs>,
    },
    /// Take a run out of the queue; the run stays, and `ua resume` runs it here
    #[command(after_help = "\
Examples:
  ua queue remove run_019")]
    Remove {
        /// A run id, a unique prefix or suffix of one, or `last`
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
    /// Make a worker take no more runs; it finishes those that it is driving
    #[command(after_help = "\
Examples:
  ua workers drain worker_019")]
    Drain {
        /// The worker's name, or a unique prefix or suffix of it
        worker: String,
    },
    /// Declare that a machine is gone, so that its runs can be taken elsewhere
    #[command(after_help = "\
Examples:
  ua workers forget worker_019
  ua workers forget db-worker-3
      by the name of its host, where no worker of it is listed
  ua workers forget 0197a2c4-…
      by its id, where two have the same host

A name that matches none lists the machines that hold runs, and one that names several is refused.

Use this only for a machine that is off: its runs start again with an empty workspace, and nothing proves any longer that \
a tool it was running has stopped. Refused while one of its workers is alive.")]
    Forget {
        /// The machine: its id, the name of its host, or one of its workers, named as for `drain`
        machine: String,
    },
}

/// A job that is submitted is not run here, so there is nothing to ask: `--no-input` is taken, and not offered.
pub(super) fn without_no_input(argument: Arg) -> Arg {
    if argument.get_id() == "no_input" { argument.hide(true) } else { argument }
}

fn parse_instant(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text)
        .ok_or_else(|| format!("`{text}` is not a valid instant; write for example 2026-12-01T08:00:00Z"))
}

/// How many entries are looked at to count what a worker has.
const LOOKED_AT: u32 = 10_000;

pub(super) async fn submit(host: &Host, args: SubmitArgs) -> Result<u8, HostError> {
    let people: Arc<dyn People> = Arc::new(AtTerminal::new(args.launch.quiet, true));
    let run_id = args.run_id.as_deref().map(RunId::parse).transpose().map_err(|e| {
        HostError::usage(format!("cannot use --run-id: {e}")).hint("leave --run-id out to have an id generated")
    })?;
    let submission = Submission {
        queue: Some(args.queue),
        priority: args.priority,
        run_after: args.run_after,
        delay: args.delay,
        concurrency: args.concurrency_key,
        fair_key: args.fair_key,
        schedule: None,
        is_due: false,
        job: JobRequest {
            text: args.file.as_deref().map(super::job::text_of).transpose()?.flatten(),
            file: args.file.clone().unwrap_or_default(),
            run_id,
            job_key: args.job_key,
            again: args.again,
            new: args.new,
            for_queue: true,
            is_instant: false,
            iterations: None,
            max_provider_wait_minutes: args.max_provider_wait_minutes,
            launch: args.launch.options(),
            configured: None,
        },
    };
    let has_time = args.run_after.is_some() || args.delay.is_some();
    submission.check_names()?;
    let submitted = match &args.run {
        None => fleet::submit(host, &people, &submission).await?,
        Some(name) => {
            let store = host.home().open_from_anywhere()?;
            let run = find::run(&store, name).await?;
            let submitted = fleet::enqueue(host, &store, run, &submission).await;
            ua_host::home::close(store);
            submitted?
        }
    };
    show_submitted(&submitted, args.launch.quiet)?;
    let asked = submission.options(submitted.at);
    let was_there = submitted.entry.as_ref().filter(|_| submitted.was_queued && !crate::terminal::is_json());
    if let Some(said) = was_there.and_then(|entry| not_taken(&asked, has_time, entry)) {
        tell(said);
    }
    Ok(OK)
}

/// What was asked for of a run that is in the queue already and stays as it is, with the way to it.
fn not_taken(asked: &QueueOptions, has_time: bool, entry: &QueueEntry) -> Option<String> {
    let (there, run) = (&entry.options, &entry.run_id);
    let mut options = Vec::new();
    let mut way = PrintedCommand::of("ua queue move").word(run.as_str());
    if asked.queue != there.queue && asked.queue != QueueOptions::DEFAULT_QUEUE {
        options.push("--queue");
        way = way.option("--queue", &asked.queue);
    }
    if asked.priority != there.priority && asked.priority != 0 {
        options.push("--priority");
        way = way.option("--priority", asked.priority.to_string());
    }
    let is_movable = !options.is_empty();
    let others = [
        ("--concurrency-key", asked.concurrency.is_some() && asked.concurrency != there.concurrency),
        ("--fair-key", asked.fair_key.is_some() && asked.fair_key != there.fair_key),
        ("--run-after, --delay", has_time && asked.run_after != there.run_after),
    ];
    let others: Vec<&str> = others.into_iter().filter(|(_, differs)| *differs).map(|(option, _)| option).collect();
    let again = format!("`ua queue remove {run}` and `ua submit --run {run}` with them queue it so");
    let how = match (is_movable, others.is_empty()) {
        (false, true) => return None,
        (true, true) => format!("{} does", way.in_code()),
        (true | false, false) => again,
    };
    options.extend(others);
    Some(format!("warning: it stays as it was queued, whatever {} say: {how}", options.join(", ")))
}

/// Shows a run that was stored, or the one that was there.
pub(super) fn show_submitted(submitted: &fleet::Submitted, is_quiet: bool) -> Result<(), HostError> {
    let (entry, now) = (submitted.entry.as_ref(), submitted.at);
    let run = crate::ids::short(submitted.run.run_id.as_str());
    did(match entry {
        Some(entry) => format!("run {run} is queued in {}: `ua queue list` shows it", entry.options.queue),
        None => format!("run {run} of this job had already ended: `ua runs show {run}` shows it"),
    });
    if crate::terminal::is_json() {
        return print_json(&RunSubmitted {
            run_id: submitted.run.run_id.to_string(),
            status: submitted.run.status.to_string(),
            queue: entry.map(|entry| entry.options.queue.clone()),
            state: entry.map(|entry| stored_name(&entry.state).to_string()),
            job_key: submitted.run.job_key.clone(),
            warning: submitted.warning.clone(),
        });
    }
    if let Some(warning) = submitted.warning.as_deref().filter(|_| !is_quiet) {
        tell(crate::ids::in_sentence(warning).as_ref());
    }
    print(format!("{}\n", submitted.run.run_id))?;
    match entry {
        Some(entry) if !is_quiet && submitted.was_queued => {
            tell(format!("this run is already in the queue {}; nothing was added", entry.options.queue));
        }
        Some(entry) if !is_quiet && entry.options.run_after > now => tell(format!(
            "queued in {}; a worker (`ua worker`) takes it at {}",
            entry.options.queue,
            moment::due(entry.options.run_after, now)
        )),
        Some(entry) if !is_quiet => tell(format!("queued in {}; a worker (`ua worker`) takes it", entry.options.queue)),
        Some(_) => {}
        None => tell(format!(
            "the run of this job has already ended ({}); nothing was queued",
            status_words(submitted.run.status, submitted.run.stop_reason)
        )),
    }
    Ok(())
}

pub(super) async fn worker(host: &Host, args: WorkerArgs) -> Result<u8, HostError> {
    let stop = StopSignal::default();
    let drain = DrainTimes { interrupt: args.drain, terminate: args.drain };
    let driven = Arc::new(Driven::new(host.env().clone()));
    let is_quiet = args.quiet || crate::terminal::is_json();
    let [at_first, at_last] = [driven.clone(), driven.clone()];
    let first = move |drain| {
        if !is_quiet {
            let words = at_first.stopping(drain);
            crate::terminal::leave_the_echo();
            tell(words);
        }
    };
    let again = move |by| end_at_once(at_last, by);
    Interrupts::watch(stop.clone(), drain, host.env().clone(), crate::terminal::hang_up(), first, again)
        .map_err(|e| HostError::failed(format!("cannot listen for signals: {e}")))?;
    if !args.quiet {
        for warning in fleet::queues_of_worker(host, &args.queue).await? {
            tell(warning);
        }
    }
    let options = WorkerOptions {
        name: args.name,
        queues: args.queue,
        slots: args.concurrency,
        listen: args.listen,
        until_empty: args.until_empty,
        onlooker: Some(driven),
    };
    let teller = Arc::new(Teller {
        is_quiet: args.quiet,
        env: host.env().clone(),
        stop: stop.clone(),
        failed: Mutex::default(),
    });
    let at_work = teller.clone();
    let told: fleet::Told = Arc::new(move |event: &WorkerEvent| at_work.tell(event));
    let left = Box::pin(fleet::work(host, &options, stop, told)).await?;
    if let Some(later) = left.later {
        let due = moment::due(later.first_at, later.looked_at);
        let count = ua_core::counted(later.count, "run");
        let sentence = format!("{count} left in the queue for later; the first is due {due}");
        teller.tell(&WorkerEvent::of_worker(Did::Noted, &sentence));
    }
    // Whoever wanted to read what it did has not got all of it.
    if let Some(error) = teller.failed() {
        return Err(error);
    }
    if left.misfits.is_empty() {
        return failed_schedules(&left.schedules).map_or(Ok(OK), Err);
    }
    let named: Vec<String> = left.misfits.iter().take(NAMED).map(|(run, why)| format!("{run}: {why}")).collect();
    let more = left.misfits.len() - named.len();
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    let count = ua_core::counted(left.misfits.len(), "run");
    Err(HostError::waiting(format!("{count} left in the queue that cannot be driven here: {}{more}", named.join("; ")))
        .hint("fix what each reason names, then start the worker again, or start one where the reason does not apply; `ua queue list` shows them")
        .field("runs", left.misfits.keys().collect::<Vec<_>>()))
}

/// Says what a worker does: a sentence on standard error, or with `--json` a line on standard output.
struct Teller {
    is_quiet: bool,
    env: Env,
    stop: StopSignal,
    /// Why the first line was not written that was not.
    failed: Mutex<Option<HostError>>,
}

impl Teller {
    fn tell(&self, event: &WorkerEvent) {
        if self.is_quiet {
            return;
        }
        if !crate::terminal::is_json() {
            // Whoever sent a signal is answered at once, and reads there what is waited for.
            if event.did == Did::Stopping && self.stop.is_stopping() {
                return;
            }
            tell(crate::ids::in_sentence(&event.text).as_ref());
            return;
        }
        let line = WorkerDid {
            at: self.env.now(),
            event: event.did.as_str(),
            run_id: event.run.clone(),
            status: event.status.map(|status| status.to_string()),
            text: event.text.clone(),
        };
        match json_line(&line).and_then(|line| print_on(Shown::exact(&format!("{line}\n")))) {
            Ok(true) => {}
            // As with any command in a pipe whose reader went away; what was sent is waited for.
            Ok(false) => self.stop.stop_gently(),
            // A disk that is full is no reason to leave runs undone.
            Err(error) => {
                self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        }
    }

    fn failed(&self) -> Option<HostError> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The refusal to call it done when a schedule is due whose job could not be submitted.
fn failed_schedules(said: &[String]) -> Option<HostError> {
    let first = said.first()?;
    let more = if said.len() > 1 { format!("; and {} more", said.len() - 1) } else { String::new() };
    Some(
        HostError::waiting(format!("what is due could not be submitted: {first}{more}"))
            .hint("fix what it names, then start the worker again; `ua schedule list` shows what is overdue"),
    )
}

/// A message names so many runs, and counts the rest.
const NAMED: usize = 5;

/// A second signal: whatever was sent stays sent, which the next worker knows how to read.
#[expect(clippy::disallowed_methods, reason = "a second signal asks to end without cleaning up")]
fn end_at_once(driven: Arc<Driven>, by: EndedBy) {
    RunLock::mark_ended_at_once(by);
    crate::terminal::last_words_at_a_signal(move || {
        if !crate::terminal::is_json() {
            tell(driven.left());
        }
    });
    std::process::exit(i32::from(INTERRUPTED));
}

pub(super) async fn queue(host: &Host, command: QueueCommand) -> Result<u8, HostError> {
    match command {
        QueueCommand::Depth { json } => depth(host, json).await?,
        QueueCommand::List { limit, json } => list(host, limit, json).await?,
        QueueCommand::Move { runs, queue, priority, accept, budgets } => {
            if let Some(queue) = &queue {
                fleet::check_name("queue", queue)?;
            }
            let (accept, budgets) = (accept::components(&accept)?, budgets.changes()?);
            // A name that is none, or of a run that is not queued, is found before anything is changed.
            let mut ids = Vec::new();
            let store = host.home().open_from_anywhere()?;
            for run in &runs {
                let run = find::run(&store, run).await?.run_id;
                if store.queued(&run).await.map_err(|e| HostError::store("read the queue", &e))?.is_none() {
                    return Err(not_queued(&run));
                }
                if !ids.contains(&run) {
                    ids.push(run);
                }
            }
            ua_host::home::close(store);
            move_all(host, &ids, &To { queue, priority, accept, budgets }).await?;
        }
        QueueCommand::Remove { run } => {
            let (gone, at) = change(host, &run, |run| FleetChange::Withdraw { run }).await?;
            say(&queue_row(&gone, at), format!("removed {} from the queue\n", gone.run_id))?;
        }
    }
    Ok(OK)
}

/// What becomes of runs that are moved.
struct To {
    queue: Option<String>,
    priority: Option<i32>,
    accept: Vec<Component>,
    budgets: Vec<BudgetChange>,
}

/// Moves runs, one after the other. Where one of them cannot be moved, what was done before it is shown all the same.
async fn move_all(host: &Host, runs: &[RunId], to: &To) -> Result<(), HostError> {
    let (mut rows, mut failed) = (Vec::new(), None);
    for run in runs {
        match moved(host, run, to, runs).await {
            Ok(row) => rows.push(row),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    if crate::terminal::is_json() && (failed.is_none() || !rows.is_empty()) {
        did(format!("{} moved: `ua queue list` shows where they are", ua_core::counted(rows.len(), "run")));
        print_json(&rows)?;
    }
    failed.map_or(Ok(()), Err)
}

/// Moves one of them, and tells a person where it is now.
async fn moved(host: &Host, run: &RunId, to: &To, all: &[RunId]) -> Result<QueueRow, HostError> {
    accept_for_a_worker(host, run, &to.accept, all).await?;
    let is_raised = raise_for_a_worker(host, run, &to.budgets).await?;
    let change_to = |run| FleetChange::Move { run, queue: to.queue.clone(), priority: to.priority };
    let (moved, at) = match change(host, run.as_str(), change_to).await {
        // A raised budget is enough: a worker was there at once.
        Err(error) if is_raised && to.queue.is_none() && to.priority.is_none() => {
            claimed(host, run).await?.ok_or(error)?
        }
        moved => moved?,
    };
    let queue = &moved.options.queue;
    if !crate::terminal::is_json() {
        let words = if moved.state == QueueState::Claimed {
            format!("{} was taken by a worker", moved.run_id)
        } else {
            format!("{} waits in {queue} with priority {}", moved.run_id, moved.options.priority)
        };
        did(&words);
        print(format!("{words}\n"))?;
    }
    if let Some(warning) = fleet::queue_of_move(host, queue, &moved.run_id).await? {
        tell(crate::ids::in_sentence(&warning).as_ref());
    }
    Ok(queue_row(&moved, at))
}

/// Accepts what changed about a run that waits in the queue, for the worker that takes it. What else may be accepted is compared with what a
/// run began with, by whoever drives it.
async fn accept_for_a_worker(host: &Host, run: &RunId, accept: &[Component], all: &[RunId]) -> Result<(), HostError> {
    if accept.is_empty() {
        return Ok(());
    }
    if let Some(other) = accept.iter().find(|component| !matches!(component, Component::Servers | Component::Policy)) {
        let several = if all.len() == 1 { "" } else { ", each of them" };
        return Err(HostError::usage(format!("`{other}` is not accepted for a worker"))
            .hint(format!("`ua resume {run} --accept {other}` runs it here{several}; nothing was changed")));
    }
    let store = host.home().open_from_anywhere()?;
    let run = find::run(&store, run.as_str()).await?;
    // Of one that is not queued, or that a worker has, nothing is stored: that is said by the change itself.
    let queued = store.queued(&run.run_id).await.map_err(|e| HostError::store("read the queue", &e))?;
    if queued.is_some_and(|entry| entry.state != QueueState::Claimed) {
        if accept.contains(&Component::Servers) {
            match Launch::accept_servers_of(host, &store, &run).await?.as_slice() {
                [] => tell(format!("the tool servers of {} are as they were; there is nothing to accept", run.run_id)),
                changed => tell(format!("accepted for {}: {}", run.run_id, place(&changed.join(", ")))),
            }
        }
        if accept.contains(&Component::Policy) {
            Launch::accept_policy_of(host, &store, &run).await?;
            tell(format!("accepted for {}: the policy as it is here now", run.run_id));
        }
    }
    ua_host::home::close(store);
    Ok(())
}

/// Stores other budgets of a run that waits in the queue, for the worker that takes it; whether any were. One that a worker has goes by those that it
/// was taken with, which the change of the queue refuses.
async fn raise_for_a_worker(host: &Host, run: &RunId, budgets: &[BudgetChange]) -> Result<bool, HostError> {
    if budgets.is_empty() || claimed(host, run).await?.is_some() {
        return Ok(false);
    }
    let store = host.home().open_from_anywhere()?;
    let raised = async {
        let run = find::run(&store, run.as_str()).await?;
        ua_host::budgets::store_for_another(host, &AtTerminal::new(false, true), &store, &run, budgets).await
    };
    let raised = raised.await;
    ua_host::home::close(store);
    raised.map(|()| true)
}

/// The entry of a run that a worker has, and the time that counts for all workers; `None` of another.
async fn claimed(host: &Host, run: &RunId) -> Result<Option<(QueueEntry, Timestamp)>, HostError> {
    let store = host.home().open_read_only()?;
    let read = async { Ok((store.queued(run).await?, store.fleet_now(host.env().now()).await?)) };
    let read: Result<_, StoreError> = read.await;
    let read = read.map_err(|e| HostError::store("read the queue", &e));
    ua_host::home::close(store);
    let (entry, at) = read?;
    Ok(entry.filter(|entry| entry.state == QueueState::Claimed).map(|entry| (entry, at)))
}

fn not_queued(run: &RunId) -> HostError {
    HostError::usage(format!("run {run} is not in the queue"))
        .hint("`ua queue list` shows what is; nothing was changed")
}

/// Changes the entry of a run; with the time that counts for all workers.
async fn change(
    host: &Host,
    name: &str,
    change: impl FnOnce(RunId) -> FleetChange,
) -> Result<(QueueEntry, Timestamp), HostError> {
    let store = host.home().open_from_anywhere()?;
    let run = find::run(&store, name).await?.run_id;
    // Asked for first: what is changed is not reported as failed because a read behind it did.
    let changed = async {
        let at = store.fleet_now(host.env().now()).await?;
        Ok::<_, StoreError>((store.fleet(change(run.clone())).await?, at))
    };
    let changed = changed.await;
    ua_host::home::close(store);
    match changed {
        Ok((done, at)) => {
            let entry = done.entries.into_iter().next().map(|entry| (entry, at));
            entry.ok_or_else(|| HostError::failed(format!("run {run} is not in the queue")))
        }
        Err(StoreError::NotFound { .. }) => Err(not_queued(&run)),
        Err(StoreError::Conflict { .. }) if is_without_worker(host, &run).await => {
            Err(HostError::usage(format!("cannot change the queue: the worker that was running {run} has ended")).hint(
                format!(
                    "another worker takes the run, or `ua resume {run}` finishes it here; `ua runs cancel {run}` ends it; nothing was changed"
                ),
            ))
        }
        Err(StoreError::Conflict { .. }) => {
            Err(HostError::usage(format!("cannot change the queue: a worker is running {run}"))
                .hint(format!("`ua runs cancel {run}` ends the run; `ua workers drain` makes its worker take no more")))
        }
        Err(error) => Err(HostError::store("change the queue", &error)),
    }
}

/// Whether the worker that holds a run has ended, as far as can be seen.
async fn is_without_worker(host: &Host, run: &RunId) -> bool {
    let found = entries(host, MOST_LOOKED_AT).await;
    found.is_ok_and(|(queue, _)| queue.iter().any(|entry| entry.run_id == *run && entry.state == QueueState::Ready))
}

/// In so many entries of the queue one is looked for.
const MOST_LOOKED_AT: u32 = 10_000;

/// The queue as the next worker finds it, and the time that counts for all workers. Whatever shows the queue is made of this: what people
/// and processes that are no workers did to runs since a worker looked last is no line of the table of the queue.
async fn entries(host: &Host, most: u32) -> Result<(Vec<QueueEntry>, Timestamp), HostError> {
    if host.home().is_unused() {
        return Ok((Vec::new(), host.env().now()));
    }
    let failed = |e: StoreError| HostError::store("read the queue", &e);
    let store = host.home().open_read_only()?;
    let now = store.fleet_now(host.env().now()).await.map_err(failed)?;
    let state = store.fleet_state(most.max(MOST_LOOKED_AT)).await.map_err(failed)?;
    let FleetState { mut queue, workers, lines, .. } = state;
    // Who has a seat may stand behind what is shown.
    let seats = fleet::Seats::of(&store, &queue).await.map_err(failed)?;
    let (answered, locks) = (ua_host::tree::answered_runs(&store).await?, host.home().locks());
    // The next worker that looks makes them ready before it takes any.
    for entry in queue.iter_mut().filter(|entry| entry.state == QueueState::Parked) {
        if answered.contains(&entry.run_id) {
            entry.state = QueueState::Ready;
            entry.why = Some("answered; a worker continues it".to_owned());
        } else if entry.why.as_deref().is_some_and(|why| why.contains("`ua db accept "))
            && ua_host::why_held(&store, &entry.run_id).await?.is_none()
        {
            entry.why = Some(format!("accepted; `ua queue move {}` lets a worker take it", entry.run_id));
        }
    }
    let is_later = |entry: &QueueEntry| entry.options.run_after > now;
    in_turn(&mut queue, &lines, is_later);
    queue.truncate(most as usize);
    for entry in &mut queue {
        let is_held = RunLock::is_held(&locks, &entry.run_id);
        if entry.state == QueueState::Claimed {
            // The next worker that looks finds it so, too.
            if fleet::has_lost_its_worker(entry, &workers) && !is_held {
                (entry.state, entry.worker) = (QueueState::Ready, None);
                entry.why = Some("its worker ended; another one takes it".to_owned());
            }
        } else if is_held {
            // What a worker found when it looked says more; why a run was parked is no longer so.
            let is_found = entry.state == QueueState::Ready && !answered.contains(&entry.run_id);
            let found = entry.why.take().filter(|_| is_found);
            entry.state = QueueState::Claimed;
            entry.why = found.or_else(|| Some("driven by a process that is no registered worker".to_owned()));
        }
    }
    for entry in queue.iter_mut().filter(|entry| entry.state == QueueState::Claimed && entry.why.is_none()) {
        entry.why = ua_host::waits::of(host.home(), &store, &entry.run_id).await.map(|wait| wait.in_words());
    }
    in_turn(&mut queue, &lines, is_later);
    fleet::say_where_begun(&store, &mut queue, &workers, now).await.map_err(failed)?;
    seats.say_who_waits(&mut queue, &workers, now);
    Ok((queue, now))
}

/// Where a run stands in the queue, as the next worker finds it; `None` of one that is in none.
pub(super) async fn standing_in_queue(
    host: &Host,
    store: &ua_host::Database,
    run: &RunId,
) -> Result<Option<QueueStanding>, HostError> {
    let queued = store.queued(run).await.map_err(|e: StoreError| HostError::store("read the queue", &e))?;
    if queued.is_none() {
        return Ok(None);
    }
    let (entries, now) = entries(host, MOST_LOOKED_AT).await?;
    let Some(at) = entries.iter().position(|entry| entry.run_id == *run) else { return Ok(None) };
    let row = queue_row(&entries[at], now);
    let waits = |entry: &&QueueEntry| entry.options.queue == row.queue && queue_row(entry, now).state == stored_ready();
    let is_ready = row.state == stored_ready();
    let place = is_ready.then(|| entries[..=at].iter().filter(waits).count() as u64);
    let of = entries.iter().filter(waits).count() as u64;
    let fleet = super::schedule::Fleet::of(host, store).await?;
    let waits_for = match row.state.as_str() {
        LATER => Some(format!("its time, {}", moment::due(entries[at].options.run_after, now))),
        _ if is_ready && !fleet.is_worked() => Some(match fleet.why_nobody_works() {
            Some(why) => format!("a worker: {why}"),
            None => "a worker, and none is running: `ua worker` starts one".to_owned(),
        }),
        _ if is_ready => Some("a worker".to_owned()),
        _ if row.worker.is_none() && row.why.is_none() => Some("a person".to_owned()),
        _ => None,
    };
    Ok(Some(QueueStanding { place, of, waits_for, entry: row }))
}

/// Why each run of the queue is not driven that a worker parked or gave back, and whether it is parked.
pub(super) async fn blocked(host: &Host) -> Result<BTreeMap<RunId, (bool, String)>, HostError> {
    let (entries, _) = entries(host, MOST_LOOKED_AT).await?;
    let reason = |entry: QueueEntry| {
        let is_parked = entry.state == QueueState::Parked;
        let was_given_back = entry.state == QueueState::Ready && entry.not_before.is_some();
        let why = entry.why.filter(|_| is_parked || was_given_back)?;
        Some((entry.run_id, (is_parked, why)))
    };
    Ok(entries.into_iter().filter_map(reason).collect())
}

/// How a run is called that the next free worker takes.
fn stored_ready() -> String {
    stored_name(&QueueState::Ready).to_string()
}

/// The same in words.
pub(super) fn standing_in_words(standing: &QueueStanding) -> String {
    let QueueStanding { place, of, waits_for, entry } = standing;
    let place = place.map_or_else(String::new, |place| format!(", place {place} of {of}"));
    let worker = entry.worker.as_deref().map(|worker| format!("worker {}", short(worker)));
    let waits = waits_for.as_deref().map(|what| format!("waits for {what}"));
    let now = ua_core::system::env().now();
    let why = entry.why.as_deref().map(|why| line(&moment::in_sentence(why, now), 400));
    let rest: Vec<String> = [waits, worker, why].into_iter().flatten().collect();
    let rest = if rest.is_empty() { String::new() } else { format!("; {}", rest.join("; ")) };
    format!("{} ({}){place}{rest}", line(&entry.queue, 60), entry.state)
}

async fn depth(host: &Host, json: bool) -> Result<(), HostError> {
    let (entries, now) = entries(host, LOOKED_AT).await?;
    let depths = if entries.len() < LOOKED_AT as usize {
        depths_of(&entries, now)
    } else {
        let store = host.home().open_read_only()?;
        store.queue_depths(now).await.map_err(|e| HostError::store("read the queue", &e))?
    };
    if json || crate::terminal::is_json() {
        let row = |depth: &QueueDepth| QueueDepthRow {
            queue: depth.queue.clone(),
            ready: depth.ready,
            later: depth.later,
            claimed: depth.claimed,
            parked: depth.parked,
            oldest_at: depth.oldest_at.map(|at| at.to_string()),
        };
        return print_json(&depths.iter().map(row).collect::<Vec<_>>());
    }
    if depths.is_empty() {
        return print("nothing is queued\n");
    }
    let row = |depth: &QueueDepth| {
        let oldest = depth.oldest_at.map_or_else(String::new, |at| moment::since(at, now));
        let numbers = [depth.ready, depth.later, depth.claimed, depth.parked].map(|number| number.to_string());
        [vec![depth.queue.clone()], numbers.to_vec(), vec![oldest]].concat()
    };
    print_table(&crate::listings::QUEUE_DEPTH, depths.iter().map(row).collect())
}

/// How much of these waits in each queue.
fn depths_of(entries: &[QueueEntry], now: Timestamp) -> Vec<QueueDepth> {
    let mut depths: BTreeMap<&str, QueueDepth> = BTreeMap::new();
    for entry in entries {
        let queue = entry.options.queue.as_str();
        let depth = depths.entry(queue).or_insert_with(|| QueueDepth {
            queue: queue.to_owned(),
            ready: 0,
            later: 0,
            claimed: 0,
            parked: 0,
            oldest_at: None,
        });
        match entry.state {
            QueueState::Claimed => depth.claimed += 1,
            QueueState::Parked => depth.parked += 1,
            QueueState::Ready if entry.options.run_after > now => depth.later += 1,
            QueueState::Ready => {
                depth.ready += 1;
                let since = entry.options.run_after;
                depth.oldest_at = Some(depth.oldest_at.map_or(since, |oldest| oldest.min(since)));
            }
        }
    }
    depths.into_values().collect()
}

async fn list(host: &Host, limit: u32, json: bool) -> Result<(), HostError> {
    let (entries, now) = entries(host, limit).await?;
    if json || crate::terminal::is_json() {
        return print_json(&entries.iter().map(|entry| queue_row(entry, now)).collect::<Vec<_>>());
    }
    if entries.is_empty() {
        return print("nothing is queued\n");
    }
    let ids = ShortIds::of(&entries.iter().map(|entry| entry.run_id.as_str()));
    let row = |entry: &QueueEntry| {
        let row = queue_row(entry, now);
        let until = (row.state == LATER).then(|| format!("from {}", moment::due(entry.options.run_after, now)));
        let key =
            row.concurrency_key.zip(row.concurrency_limit).map_or_else(String::new, |(key, n)| format!("{key}:{n}"));
        let worker = row.worker.map(|worker| short(&worker).to_owned());
        let why = row.why.map(|why| field(&moment::in_sentence(&why, now), 200));
        let note = [until, worker, why].into_iter().flatten().collect::<Vec<_>>().join(", ");
        vec![ids.get(&row.run_id).to_owned(), row.queue, row.state, row.priority.to_string(), key, note]
    };
    print_table(&crate::listings::QUEUE, entries.iter().map(row).collect())
}

/// The state of a run that was submitted for a time that has not come. One that a worker leaves alone for a moment is ready.
const LATER: &str = "later";

fn queue_row(entry: &QueueEntry, now: Timestamp) -> QueueRow {
    let options = &entry.options;
    QueueRow {
        run_id: entry.run_id.to_string(),
        queue: options.queue.clone(),
        state: if entry.state == QueueState::Ready && options.run_after > now {
            LATER.to_owned()
        } else {
            stored_name(&entry.state).to_string()
        },
        priority: options.priority,
        run_after: options.run_after.to_string(),
        queued_at: entry.queued_at.to_string(),
        concurrency_key: options.concurrency.as_ref().map(|seats| seats.key.clone()),
        concurrency_limit: options.concurrency.as_ref().map(|seats| seats.limit),
        fair_key: options.fair_key.clone(),
        worker: entry.worker.clone(),
        strikes: entry.strikes,
        why: entry.why.clone(),
    }
}

pub(super) async fn workers(host: &Host, command: WorkersCommand) -> Result<u8, HostError> {
    match command {
        WorkersCommand::List { json } => workers_list(host, json).await?,
        WorkersCommand::Drain { worker } => {
            let store = host.home().open_from_anywhere()?;
            let named = named_worker(&store, &worker).await;
            let drained = match &named {
                Ok(worker) => {
                    let drained = store.fleet(FleetChange::Drain { worker: worker.clone() }).await;
                    drained.map(drop).map_err(|error| HostError::store("change the worker", &error))
                }
                Err(_) => Ok(()),
            };
            ua_host::home::close(store);
            let worker = named?;
            drained?;
            let words = format!("{} takes no more runs; it finishes those that it is driving\n", foreign(&worker));
            say(&WorkerDrained { worker }, words)?;
        }
        WorkersCommand::Forget { machine } => {
            let store = host.home().open_from_anywhere()?;
            let forgotten = forget(host, &store, &machine).await;
            ua_host::home::close(store);
            let lineages = forgotten?;
            let words =
                format!("forgotten; {} of runs can be taken elsewhere\n", ua_core::counted(lineages, "lineage"));
            say(&MachineForgotten { lineages }, words)?;
        }
    }
    Ok(OK)
}

/// The worker that `typed` names: its name, or the beginning or the end of it that only one has.
async fn named_worker(store: &Database, typed: &str) -> Result<String, HostError> {
    let state = store.fleet_state(0).await.map_err(|e| HostError::store("read the workers", &e))?;
    let names: Vec<&str> = state.workers.iter().map(|worker| worker.worker.as_str()).collect();
    find::name("worker", typed, &names, "`ua workers list` shows the workers").map(str::to_owned)
}

async fn forget(host: &Host, store: &Database, machine: &str) -> Result<u64, HostError> {
    let failed = |e: StoreError| HostError::store("forget the machine", &e);
    let workers = store.fleet_state(0).await.map_err(failed)?.workers;
    let holders = store.places().await.map_err(failed)?;
    let place = machine_meant(machine, &workers, &holders)?;
    let (here, _) = fleet::place_of(host.home())?;
    if place == here || place.is_empty() {
        return Err(HostError::usage("a worker of this machine and this root cannot be forgotten")
            .hint("workers that died here are noticed without this command; `ua workers list` shows the others"));
    }
    let at = store.fleet_now(host.env().now()).await.map_err(failed)?;
    for id in store.taken_in(&place).await.map_err(failed)? {
        let run = store.run(&id).await.map_err(failed)?;
        if shows_life(&run, at) {
            return Err(HostError::waiting(format!("a process of that machine is driving run {id}")).hint(format!(
                "interrupt it there, then repeat the command; a process that is gone counts as one {} s after its last sign of life; \
                 nothing was changed",
                SILENT_FOR.as_secs()
            )));
        }
    }
    let done = store.fleet(FleetChange::ForgetPlace { place, at }).await.map_err(|error| {
        failed(error).hint("a machine is forgotten when no worker of it is alive; `ua workers list` shows them")
    })?;
    Ok(done.freed)
}

/// A place that holds runs: its id, where it is, and how many of its runs have not ended.
type Holder = (String, String, u64);

/// The id of the machine that `typed` names: by its id, by the name of its host, by where it is (`ROOT on HOST`), or by one of its workers. What is
/// typed whole comes before a part of an id or of a worker's name, and what names two machines names none: the runs of the wrong one would begin
/// again while they are driven there. A worker that died is not listed any more once another one has looked after its runs.
fn machine_meant(typed: &str, workers: &[WorkerRecord], holders: &[Holder]) -> Result<String, HostError> {
    let of_workers = workers.iter().map(|worker| (worker.place.as_str(), worker.place_shown.as_str()));
    let of_holders = holders.iter().map(|(id, shown, _)| (id.as_str(), shown.as_str()));
    let places: BTreeMap<&str, &str> = of_workers.chain(of_holders).collect();
    let is_whole = |id: &str, shown: &str| {
        typed == id || typed == shown || shown.rsplit_once(" on ").is_some_and(|(_, host)| typed == host)
    };
    let by_place = places.iter().filter(|(id, shown)| is_whole(id, shown)).map(|(id, _)| *id);
    let by_worker = workers.iter().filter(|worker| worker.worker == typed).map(|worker| worker.place.as_str());
    let whole: BTreeSet<&str> = by_place.chain(by_worker).collect();
    match whole.into_iter().collect::<Vec<_>>().as_slice() {
        [only] => return Ok((*only).to_owned()),
        [] => {}
        several => {
            let named = several
                .iter()
                .map(|id| format!("{} ({})", foreign(id), foreign(places.get(id).copied().unwrap_or_default())));
            return Err(HostError::usage(format!("`{}` names several machines", line(&foreign(typed), 60)))
                .hint(format!("name one by its id: {}; nothing was changed", named.collect::<Vec<_>>().join("; "))));
        }
    }
    let names: Vec<&str> = workers.iter().map(|worker| worker.worker.as_str()).collect();
    if let Ok(name) = find::name("worker", typed, &names, "")
        && let Some(worker) = workers.iter().find(|worker| worker.worker == name)
    {
        return Ok(worker.place.clone());
    }
    let ids: Vec<&str> = places.keys().copied().collect();
    find::name("machine", typed, &ids, "").map(str::to_owned).map_err(|_| no_machine(typed, holders))
}

fn no_machine(machine: &str, places: &[Holder]) -> HostError {
    let error = HostError::usage(format!(
        "there is no worker {}, and no machine of that name or id holds a run",
        line(machine, 100)
    ));
    if places.is_empty() {
        return error.hint("`ua workers list` shows the workers; no machine holds a run that has not ended");
    }
    let holders = places.iter().map(|(id, shown, unfinished)| {
        format!("{} ({}, {})", foreign(id), foreign(shown), ua_core::counted(*unfinished, "run"))
    });
    error.hint(format!("these hold runs that have not ended: {}", holders.collect::<Vec<_>>().join("; ")))
}

async fn workers_list(host: &Host, json: bool) -> Result<(), HostError> {
    let failed = |e: StoreError| HostError::store("read the workers", &e);
    let (mut now, mut state) = (host.env().now(), FleetState::default());
    if !host.home().is_unused() {
        let store = host.home().open_read_only()?;
        now = store.fleet_now(now).await.map_err(failed)?;
        state = store.fleet_state(LOOKED_AT).await.map_err(failed)?;
    }
    let FleetState { workers, queue, .. } = state;
    let rows: Vec<WorkerRow> = workers
        .into_iter()
        .map(|worker| {
            let has = |entry: &&QueueEntry| {
                entry.state == QueueState::Claimed && entry.worker.as_deref() == Some(&worker.worker)
            };
            let status = if ua_runner::has_ended_here(&worker.owner) {
                "ended"
            } else if ua_runner::process_is_paused(&worker.owner) {
                "paused"
            } else if worker.lease_until <= now {
                "silent"
            } else if worker.is_draining {
                "draining"
            } else {
                "alive"
            };
            WorkerRow {
                claimed: queue.iter().filter(has).count() as u64,
                status: status.to_owned(),
                host: worker.owner.host,
                pid: worker.owner.pid,
                worker: worker.worker,
                place: worker.place,
                place_shown: worker.place_shown,
                version: worker.version,
                queues: worker.queues,
                slots: worker.slots,
                started_at: worker.started_at.to_string(),
                lease_until: worker.lease_until.to_string(),
            }
        })
        .collect();
    if json || crate::terminal::is_json() {
        return print_json(&rows);
    }
    if rows.is_empty() {
        return print("no worker is registered; `ua worker` starts one\n");
    }
    let ids: Vec<String> = rows.iter().map(|row| row.worker.clone()).collect();
    let ids = ShortIds::of(&ids.iter().map(String::as_str));
    let row = |row: WorkerRow| {
        let queues = if row.queues.is_empty() { "all".to_owned() } else { row.queues.join(", ") };
        vec![
            ids.get(&row.worker).to_owned(),
            row.status,
            format!("{}/{}", row.claimed, row.slots),
            queues,
            format!("{} on {}", row.pid, row.host),
        ]
    };
    let notes: Vec<String> = rows.iter().filter_map(|row| standing_still(row, ids.get(&row.worker), now)).collect();
    print_table(&crate::listings::WORKERS, rows.into_iter().map(row).collect())?;
    if notes.is_empty() { Ok(()) } else { print(format!("\n{}\n", notes.join("\n"))) }
}

/// What is to be known of a worker that does nothing, in a line.
fn standing_still(worker: &WorkerRow, name: &str, now: Timestamp) -> Option<String> {
    let pid = worker.pid;
    match worker.status.as_str() {
        "paused" => Some(format!(
            "worker {name} is paused: process {pid} was stopped (Ctrl-Z, SIGSTOP), and `kill -CONT {pid}` lets it continue; its runs wait for it"
        )),
        "silent" => {
            let since = Timestamp::parse(&worker.lease_until).map(|until| until.minus(ua_store::fleet::LEASE))?;
            let (since, host) = (moment::local(since, now), line(&worker.host, 80));
            Some(format!("worker {name} is silent: process {pid} on {host} last said that it is alive at {since}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use ua_core::Trace;

    use super::*;

    fn worker(name: &str, place: &str, shown: &str) -> WorkerRecord {
        let at = Timestamp::from_millis(0);
        WorkerRecord {
            worker: name.to_owned(),
            place: place.to_owned(),
            place_shown: shown.to_owned(),
            owner: ua_runner::owner_stamp(Trace::new(&ua_core::Env::simulated(1))),
            version: "1".to_owned(),
            queues: Vec::new(),
            slots: 1,
            started_at: at,
            lease_until: at,
            is_draining: false,
        }
    }

    #[test]
    fn a_machine_is_named_by_its_id_its_host_or_its_worker_and_never_two_at_once() {
        let workers = [worker("one-a", "id-2", "/runs on two"), worker("night", "id-1", "/runs on one")];
        let holder = |id: &str, shown: &str| (id.to_owned(), shown.to_owned(), 1);
        let holders = [
            holder("id-1", "/runs on one"),
            holder("id-3", "/runs on three"),
            holder("id-4", "/runs on four"),
            holder("id-5", "/other on four"),
        ];
        let meant = |typed: &str| machine_meant(typed, &workers, &holders).map_err(|e| e.to_string());
        for (typed, place) in [
            ("id-3", "id-3"),
            ("three", "id-3"),
            ("/runs on three", "id-3"),
            // A host by its whole name, although a worker of another machine has a name that begins so.
            ("one", "id-1"),
            ("one-a", "id-2"),
            ("nig", "id-1"),
            ("/other on four", "id-5"),
            ("id-4", "id-4"),
        ] {
            assert_eq!(meant(typed).as_deref(), Ok(place), "{typed}");
        }
        // What is a part of several, or of none, names none; nor does a host with two roots.
        for typed in ["id", "thre", "five", ""] {
            assert!(meant(typed).unwrap_err().contains("no machine of that name"), "{typed}");
        }
        assert_eq!(meant("four").unwrap_err(), "`four` names several machines");
        let clash = [worker("one", "id-2", "/runs on two")];
        assert!(machine_meant("one", &clash, &holders).unwrap_err().to_string().contains("several machines"));
    }
}
