//! `ua schedule`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Subcommand, ValueEnum};
use serde_json::Value;
use ua_host::fleet::{self, ScheduledJob};
use ua_host::{Database, Host, People};
use ua_store::{
    CatchUp, ConcurrencyKey, FleetChange, FleetState, FleetStore as _, RunQuery, ScheduleRecord, Store as _,
    StoreError, stored_name,
};

use crate::args::{LaunchArgs, parse_concurrency};
use crate::error::{HostError, OK};
use crate::moment;
use crate::output::{line, print, print_json, print_table, say, tell};
use crate::people::AtTerminal;
use crate::view::{ScheduleRemoved, ScheduleRow, ScheduledRun};

/// What to do about scheduled times that passed while no worker was running.
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
    /// Add a schedule; one of the same name is replaced
    #[command(mut_args = super::fleet::without_no_input, after_help = "\
Examples:
  ua schedule add nightly report.json --cron '0 3 * * *' --time-zone Europe/Berlin
  ua schedule add often check.json --cron '*/15 8-18 * * mon-fri' --catch-up none --queue night
  ua schedule add mails mails.json --cron @daily --mcp-config servers.json --policy strict.toml

Workers submit what is due: there is one run for each scheduled time, with the job key NAME@TIME. The job file is read at that \
time, by the worker that submits it, so it must exist on every machine with a worker. Tool servers, policies, prices, provider and \
model are those of this command, its folder and its user, as for `ua submit`, whichever worker runs it.")]
    Add {
        /// Its name
        name: String,
        /// The job file
        file: PathBuf,
        /// Minute, hour, day of the month, month, day of the week; or @hourly, @daily, @weekly, @monthly
        #[arg(long, value_name = "CRON")]
        cron: String,
        /// The time zone of --cron
        #[arg(long, value_name = "NAME", default_value = "UTC")]
        time_zone: String,
        /// What to do about scheduled times that passed while no worker was running
        #[arg(long, value_enum, value_name = "WHICH", default_value = "last")]
        catch_up: CatchUpWord,
        /// The queue that its runs wait in
        #[arg(long, value_name = "NAME", default_value = "default")]
        queue: String,
        /// Priority; smaller numbers are taken first
        #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
        priority: i32,
        /// At most N runs of this key at once, over all workers
        #[arg(long, value_name = "KEY[:N]", value_parser = parse_concurrency)]
        concurrency_key: Option<ConcurrencyKey>,
        /// Runs of different keys take turns
        #[arg(long, value_name = "KEY")]
        fair_key: Option<String>,
        /// How to start it
        #[command(flatten)]
        launch: Box<LaunchArgs>,
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
    /// Pause a schedule until it is resumed
    #[command(after_help = "\
Examples:
  ua schedule pause nightly")]
    Pause {
        /// Its name
        name: String,
    },
    /// Resume a paused schedule from its next scheduled time
    #[command(after_help = "\
Examples:
  ua schedule resume nightly")]
    Resume {
        /// Its name
        name: String,
    },
    /// Submit the job of a schedule now, in addition to its scheduled times
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

pub(super) async fn run(host: &Host, command: ScheduleCommand) -> Result<u8, HostError> {
    match command {
        ScheduleCommand::List { json } => list(host, json).await?,
        ScheduleCommand::Add {
            name,
            file,
            cron,
            time_zone,
            catch_up,
            queue,
            priority,
            concurrency_key,
            fair_key,
            launch,
        } => {
            fleet::check_name("schedule", &name)?;
            fleet::check_name("queue", &queue)?;
            ua_host::words::without_secrets(host, "name of the schedule", &name)?;
            let due = fleet::cron_of(&cron, &time_zone)?;
            let people = AtTerminal::new(launch.quiet, true);
            let job = ScheduledJob {
                file: host.settings().absolute(&file)?,
                queue: queue.clone(),
                priority,
                concurrency: concurrency_key,
                fair_key,
                configured: None,
            };
            let job = job.configured_here(host, &people, &launch.options()).await?;
            let job =
                serde_json::to_value(&job).map_err(|e| HostError::failed(format!("cannot write the job: {e}")))?;
            let catch_up = match catch_up {
                CatchUpWord::None => CatchUp::None,
                CatchUpWord::Last => CatchUp::Last,
                CatchUpWord::All => CatchUp::All,
            };
            let now = host.env().now();
            let mut schedule = ScheduleRecord { name, cron, time_zone, job, catch_up, is_paused: false, next_at: now };
            // A schedule that is never due is refused before anything is opened.
            fleet::begins(&due, &schedule, None, now)?;
            let store = host.home().open()?;
            let before = schedules(&store).await;
            let warning = fleet::queue_of_schedule(host, &store, &schedule.name, &queue).await;
            ua_host::home::close(store);
            if let Some(warning) = warning?.filter(|_| !launch.quiet) {
                tell(warning);
            }
            let before = before?.into_iter().find(|before| before.name == schedule.name);
            let begins = fleet::begins(&due, &schedule, before.as_ref(), now)?;
            schedule.next_at = begins.next_at;
            tell_replaced(before.as_ref(), &schedule, begins.passed_over);
            changed(host, schedule).await?;
        }
        ScheduleCommand::Pause { name } => {
            let schedule = found(host, &name).await?;
            changed(host, ScheduleRecord { is_paused: true, ..schedule }).await?;
        }
        ScheduleCommand::Resume { name } => {
            let schedule = found(host, &name).await?;
            let next_at = next(host, &fleet::cron_of(&schedule.cron, &schedule.time_zone)?)?;
            changed(host, ScheduleRecord { is_paused: false, next_at, ..schedule }).await?;
        }
        ScheduleCommand::Run { name } => {
            let people: Arc<dyn People> = Arc::new(AtTerminal::new(false, true));
            let schedule = found(host, &name).await?;
            let submitted = fleet::submit_for(host, &people, &schedule, host.env().now()).await?;
            super::fleet::show_submitted(&submitted, false, host.env().now())?;
        }
        ScheduleCommand::Remove { name } => {
            // Looked up without touching anything first, so that a typing error changes nothing.
            found(host, &name).await?;
            let store = host.home().open_from_anywhere()?;
            let removed = store.fleet(FleetChange::RemoveSchedule { name: name.clone() }).await;
            ua_host::home::close(store);
            match removed {
                Ok(_) => {
                    let words = format!("removed {name}; its runs stay\n");
                    say(&ScheduleRemoved { name }, words)?;
                }
                Err(StoreError::NotFound { .. }) => return Err(no_schedule(&name, &[])),
                Err(error) => return Err(HostError::store("remove the schedule", &error)),
            }
        }
    }
    Ok(OK)
}

fn no_schedule(name: &str, all: &[ScheduleRecord]) -> HostError {
    let names = all.iter().map(|schedule| schedule.name.as_str());
    HostError::no_such("schedule", name, names, "`ua schedule list` shows them")
}

fn next(host: &Host, due: &fleet::Cron) -> Result<ua_core::Timestamp, HostError> {
    due.after(host.env().now()).ok_or_else(|| HostError::usage("the schedule is never due again"))
}

async fn schedules(store: &Database) -> Result<Vec<ScheduleRecord>, HostError> {
    Ok(store.fleet_state(0).await.map_err(|e| HostError::store("read the schedules", &e))?.schedules)
}

async fn found(host: &Host, name: &str) -> Result<ScheduleRecord, HostError> {
    let all = schedules(&host.home().open_read_only()?).await?;
    match all.iter().find(|schedule| schedule.name == name) {
        Some(found) => Ok(found.clone()),
        None => Err(no_schedule(name, &all)),
    }
}

/// Says what becomes another one when a schedule takes the place of one of its name.
fn tell_replaced(before: Option<&ScheduleRecord>, schedule: &ScheduleRecord, passed_over: Option<ua_core::Timestamp>) {
    let Some(before) = before else { return };
    let mut differs = Vec::new();
    let mut note = |what: &str, old: &str, new: &str| {
        if old != new {
            differs.push(format!("{what}: {} → {}", line(old, 120), line(new, 120)));
        }
    };
    note("cron", &before.cron, &schedule.cron);
    note("time zone", &before.time_zone, &schedule.time_zone);
    note("missed times", &stored_name(&before.catch_up).to_string(), &stored_name(&schedule.catch_up).to_string());
    for (what, old, new) in changed_fields(&before.job, &schedule.job) {
        note(&what, &old, &new);
    }
    if before.is_paused {
        differs.push("it was paused and is active now".to_owned());
    }
    if let Some(due) = passed_over {
        let name = &schedule.name;
        differs.push(format!(
            "its run for {due} was not submitted yet and is passed over (`ua schedule run {name}` submits one now)"
        ));
    }
    let differs = if differs.is_empty() { "nothing changed".to_owned() } else { differs.join("; ") };
    tell(format!("the schedule {} already existed and is replaced: {differs}", schedule.name));
}

/// The fields of two jobs, each as it was and as it is.
fn changed_fields(before: &Value, after: &Value) -> Vec<(String, String, String)> {
    let (before, after) = (fields(before), fields(after));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let shown =
        |of: &BTreeMap<String, String>, name: &String| of.get(name).cloned().unwrap_or_else(|| "none".to_owned());
    names.into_iter().map(|name| (name.clone(), shown(&before, name), shown(&after, name))).collect()
}

/// What a job says, by name, with what is configured for it; what is nothing is left out.
fn fields(job: &Value) -> BTreeMap<String, String> {
    let Some(object) = job.as_object() else { return BTreeMap::new() };
    let mut found = BTreeMap::new();
    for (name, value) in object {
        match value {
            Value::Object(_) if name == "configured" => found.extend(fields(value)),
            Value::Null => {}
            Value::String(text) => drop(found.insert(name.clone(), text.clone())),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                found.insert(name.clone(), value.to_string());
            }
        }
    }
    found
}

async fn changed(host: &Host, schedule: ScheduleRecord) -> Result<(), HostError> {
    let store = host.home().open_from_anywhere()?;
    let stored = store.fleet(FleetChange::PutSchedule(schedule.clone())).await;
    let is_worked = match &stored {
        Ok(_) => Fleet::of(host, &store).await.map(|fleet| fleet.is_worked()),
        Err(_) => Ok(true),
    };
    ua_host::home::close(store);
    stored.map_err(|e| HostError::store("store the schedule", &e))?;
    if !is_worked? && !schedule.is_paused {
        tell("no worker is running: `ua worker` starts one, which submits and runs what is due");
    }
    let name = &schedule.name;
    let words = if schedule.is_paused {
        format!("{name} is paused\n")
    } else {
        format!("{name} is due next: {}\n", moment::due(schedule.next_at, host.env().now()))
    };
    say(&row(schedule), words)
}

/// A schedule, for a list and for a machine.
fn row(schedule: ScheduleRecord) -> ScheduleRow {
    let job: Option<ScheduledJob> = serde_json::from_value(schedule.job).ok();
    let (file, queue) = job.map_or_else(Default::default, |job| (job.file.display().to_string(), job.queue));
    ScheduleRow {
        name: schedule.name,
        cron: schedule.cron,
        time_zone: schedule.time_zone,
        file,
        queue,
        catch_up: stored_name(&schedule.catch_up).to_string(),
        is_paused: schedule.is_paused,
        next_at: schedule.next_at.to_string(),
        overdue_since: None,
        last_run: None,
    }
}

/// So many runs are looked through for the last one of each schedule.
const LOOKED_AT: u32 = 1_000;

/// The newest run of each schedule, by its name: its job key is that name and an instant.
async fn last_runs(store: &Database) -> Result<BTreeMap<String, ScheduledRun>, HostError> {
    let query = RunQuery { limit: LOOKED_AT, without_tasks: true, ..RunQuery::default() };
    let mut runs = store.find_runs(&query).await.map_err(|e| HostError::store("look for runs", &e))?;
    runs.sort_by_key(|run| run.created_at);
    let of_schedule = |run: ua_store::RunHead| {
        let (name, instant) = run.job_key.as_deref()?.rsplit_once('@')?;
        let scheduled_at = ua_core::Timestamp::parse(instant)?.to_string();
        let name = name.to_owned();
        let shown_status = run.status.to_string();
        Some((name, ScheduledRun { run_id: run.run_id.to_string(), scheduled_at, shown_status }))
    };
    // The newest of a name comes last, and stays.
    Ok(runs.into_iter().filter_map(of_schedule).collect())
}

/// What is due for longer than this is late: workers look every few seconds.
const ON_TIME: std::time::Duration = std::time::Duration::from_mins(2);

/// The schedules, and whether anybody submits what is due.
pub(super) struct Fleet {
    state: FleetState,
    /// By the clock that leases are counted by.
    at: ua_core::Timestamp,
}

impl Fleet {
    pub(super) async fn of(host: &Host, store: &Database) -> Result<Self, HostError> {
        let failed = |e: StoreError| HostError::store("read the schedules", &e);
        let state = store.fleet_state(0).await.map_err(failed)?;
        let at = store.fleet_now(host.env().now()).await.map_err(failed)?;
        Ok(Self { state, at })
    }

    /// Whether a worker is alive that takes something.
    fn is_worked(&self) -> bool {
        self.state.workers.iter().any(|worker| worker.lease_until > self.at && !worker.is_draining)
    }

    /// That so many runs of the queue wait for a worker, where there is none.
    pub(super) fn left_queued(&self, queued: usize) -> Option<String> {
        let waits = if queued == 1 { "waits" } else { "wait" };
        (queued > 0 && !self.is_worked()).then(|| {
            format!(
                "{} {waits} in the queue: no worker is running; `ua worker` starts one",
                ua_core::counted(queued, "run")
            )
        })
    }

    /// What is said of schedules that are overdue; `None` where nothing is late. Why a worker could not submit one, its log says, and an alert.
    pub(super) fn left_alone(&self, now: ua_core::Timestamp) -> Option<String> {
        let is_late = |one: &&ScheduleRecord| !one.is_paused && now.since(one.next_at) > ON_TIME;
        let late: Vec<&ScheduleRecord> = self.state.schedules.iter().filter(is_late).collect();
        let since = late.iter().map(|one| one.next_at).min()?;
        let which = match late.as_slice() {
            [one] => format!("the schedule {} is overdue", line(&one.name, 60)),
            several => format!("{} are overdue", ua_core::counted(several.len(), "schedule")),
        };
        let by = moment::since(since, now);
        if !self.is_worked() {
            return Some(format!("{which} by {by}: no worker is running; `ua worker` starts one"));
        }
        // Each was due for longer than a worker takes to look, unless all that was missed is being submitted.
        let first = late.iter().min_by_key(|one| one.next_at)?;
        let name = line(&first.name, 60);
        Some(format!(
            "{which} by {by}, and workers are running: they are still submitting what was missed, or they cannot submit the job of {name}; \
             `ua schedule run {name}` submits it now or says why it cannot be"
        ))
    }
}

async fn list(host: &Host, json: bool) -> Result<(), HostError> {
    let now = host.env().now();
    let (stored, alone, mut last) = if host.home().is_unused() {
        (Vec::new(), None, BTreeMap::new())
    } else {
        let store = host.home().open_read_only()?;
        let fleet = Fleet::of(host, &store).await?;
        let alone = fleet.left_alone(now);
        (fleet.state.schedules, alone, last_runs(&store).await?)
    };
    let next: Vec<ua_core::Timestamp> = stored.iter().map(|schedule| schedule.next_at).collect();
    let listed = |schedule: ScheduleRecord| {
        let is_overdue = !schedule.is_paused && now.since(schedule.next_at) > ON_TIME;
        let overdue_since = is_overdue.then(|| schedule.next_at.to_string());
        let last_run = last.remove(&schedule.name);
        ScheduleRow { overdue_since, last_run, ..row(schedule) }
    };
    let rows: Vec<ScheduleRow> = stored.into_iter().map(listed).collect();
    if json || crate::terminal::is_json() {
        return print_json(&rows);
    }
    if rows.is_empty() {
        return print("there are no schedules\n");
    }
    let cells = rows.into_iter().zip(next).map(|(row, next_at)| {
        let next = match now.since(next_at) {
            _ if row.is_paused => "paused".to_owned(),
            // No worker was there, or none could submit it, which each of them says.
            late if late > ON_TIME => format!("overdue by {}", moment::since(next_at, now)),
            _ => moment::due_beside(&row.time_zone, next_at, now),
        };
        let is_there = std::path::Path::new(&row.file).exists();
        let file = if is_there { row.file } else { format!("{} (not on this machine)", row.file) };
        let last = row.last_run.map_or_else(|| "none".to_owned(), |last| last.shown_status);
        vec![row.name, row.cron, row.time_zone, next, last, file]
    });
    print_table(&crate::listings::SCHEDULES, cells.collect())?;
    if let Some(alone) = alone {
        print(format!("\n{alone}\n"))?;
    }
    Ok(())
}
