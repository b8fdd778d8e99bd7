//! `ua schedule`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Subcommand, ValueEnum};
use serde_json::Value;
use ua_core::{PrintedCommand, RunStatus, Timestamp};
use ua_host::fleet::{self, ScheduledJob};
use ua_host::standing::standings;
use ua_host::{Database, Host, People};
use ua_resume::Standing;
use ua_store::{
    CatchUp, ConcurrencyKey, FleetChange, FleetState, FleetStore as _, RunHead, RunQuery, ScheduleRecord, Store as _,
    StoreError, WorkerRecord, fleet::LEASE, stored_name,
};

use crate::args::{LaunchArgs, not_empty, parse_concurrency};
use crate::error::{HostError, OK};
use crate::ids::short;
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
  ua schedule add nightly report.json --cron '0 3 * * *' --time-zone Europe/Rome
  ua schedule add often check.json --cron '*/15 8-18 * * mon-fri' --queue day
  ua schedule add hourly check.json --cron @hourly --catch-up none
  ua schedule add mails mails.json --cron @daily --policy strict.toml

Workers submit what is due: there is one run for each scheduled time, with the job key NAME@TIME. The job file is read at that \
time, by the worker that submits it, so it must exist on every machine with a worker. Tool servers, policies, prices, provider and \
model are those of this command, its folder and its user, as for `ua submit`, whichever worker runs it.")]
    Add {
        /// Name of the schedule
        name: String,
        /// The job file
        file: PathBuf,
        /// Minute, hour, day of the month, month, day of the week; or @hourly, @daily, @weekly, @monthly
        #[arg(long, value_parser = not_empty(), value_name = "CRON")]
        cron: String,
        /// The time zone of --cron
        #[arg(long, value_parser = not_empty(), value_name = "NAME", default_value = "UTC")]
        time_zone: String,
        /// What to do about scheduled times that passed while no worker was running
        #[arg(long, value_enum, value_name = "WHICH", default_value = "last")]
        catch_up: CatchUpWord,
        /// The queue that its runs wait in
        #[arg(long, value_parser = not_empty(), value_name = "NAME", default_value = "default")]
        queue: String,
        /// Priority; smaller numbers are taken first
        #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
        priority: i32,
        /// At most N runs of this key at once, over all workers; a KEY alone is one
        #[arg(long, value_name = "KEY[:N]", value_parser = parse_concurrency)]
        concurrency_key: Option<ConcurrencyKey>,
        /// Runs of different keys take turns, however many of each are waiting
        #[arg(long, value_parser = not_empty(), value_name = "KEY")]
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
        /// The schedule's name
        name: String,
    },
    /// Resume a paused schedule from its next scheduled time
    #[command(after_help = "\
Examples:
  ua schedule resume nightly")]
    Resume {
        /// The schedule's name
        name: String,
    },
    /// Submit the job of a schedule now, in addition to its scheduled times
    #[command(after_help = "\
Examples:
  ua schedule run nightly")]
    Run {
        /// The schedule's name
        name: String,
    },
    /// Remove a schedule; runs that it submitted stay
    #[command(after_help = "\
Examples:
  ua schedule remove nightly")]
    Remove {
        /// The schedule's name
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
            ua_host::words::learn_named(host, launch.options().mcp_config.as_deref());
            ua_host::words::without_secrets(host, "name of the schedule", &name)?;
            fleet::names_without_secrets(host, &queue, concurrency_key.as_ref(), fair_key.as_deref())?;
            let due = fleet::cron_of(&cron, &time_zone)?;
            let people = AtTerminal::new(launch.quiet, true);
            let job = ScheduledJob {
                file: host.settings().absolute(&file)?,
                queue: queue.clone(),
                priority,
                concurrency: concurrency_key,
                fair_key,
                configured: None,
                seal: None,
                changed: None,
            };
            let job = job.configured_here(host, &people, &launch.options()).await?;
            let job =
                serde_json::to_value(&job).map_err(|e| HostError::failed(format!("cannot write the job: {e}")))?;
            let catch_up = match catch_up {
                CatchUpWord::None => CatchUp::None,
                CatchUpWord::Last => CatchUp::Last,
                CatchUpWord::All => CatchUp::All,
            };
            let own = host.env().now();
            let schedule = ScheduleRecord { name, cron, time_zone, job, catch_up, is_paused: false, next_at: own };
            let mut schedule = fleet::said_by_user(host, schedule);
            // A schedule that is never due is refused before anything is opened, whatever time it is.
            fleet::begins(&due, &schedule, None, own)?;
            let store = host.home().open()?;
            let before = with_time(host, &store).await;
            let warning = fleet::queue_of_schedule(host, &store, &schedule.name, &queue).await;
            ua_host::home::close(store);
            if let Some(warning) = warning?.filter(|_| !launch.quiet) {
                tell(warning);
            }
            let (before, now) = before?;
            let before = before.into_iter().find(|before| before.name == schedule.name);
            let begins = fleet::begins(&due, &schedule, before.as_ref(), now)?;
            schedule.next_at = begins.next_at;
            tell_replaced(before.as_ref(), &schedule, begins.passed_over);
            changed(host, schedule).await?;
        }
        ScheduleCommand::Pause { name } => {
            let (schedule, _) = found(host, &name).await?;
            changed(host, ScheduleRecord { is_paused: true, ..schedule }).await?;
        }
        ScheduleCommand::Resume { name } => {
            let (schedule, now) = found(host, &name).await?;
            let next_at = next(&fleet::cron_of(&schedule.cron, &schedule.time_zone)?, now)?;
            changed(host, ScheduleRecord { is_paused: false, next_at, ..schedule }).await?;
        }
        ScheduleCommand::Run { name } => {
            let people: Arc<dyn People> = Arc::new(AtTerminal::new(false, true));
            let (schedule, now) = found(host, &name).await?;
            let submitted = fleet::submit_for(host, &people, &schedule, now).await?;
            super::fleet::show_submitted(&submitted, false)?;
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

fn next(due: &fleet::Cron, now: Timestamp) -> Result<Timestamp, HostError> {
    due.after(now).ok_or_else(|| HostError::usage("the schedule is never due again"))
}

/// All schedules, and the time that counts for all workers: by another one, an instant is passed over that no worker has seen yet.
async fn with_time(host: &Host, store: &Database) -> Result<(Vec<ScheduleRecord>, Timestamp), HostError> {
    let fleet = Fleet::of(host, store).await?;
    Ok((fleet.state.schedules, fleet.at))
}

async fn found(host: &Host, name: &str) -> Result<(ScheduleRecord, Timestamp), HostError> {
    let (all, now) = with_time(host, &host.home().open_read_only()?).await?;
    match all.iter().find(|schedule| schedule.name == name) {
        Some(found) => Ok((found.clone(), now)),
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
        let again = PrintedCommand::of("ua schedule run").word(&schedule.name).in_code();
        differs.push(format!("its run for {due} was not submitted yet and is passed over ({again} submits one now)"));
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
            // Who changed it is no part of what it does, nor is the seal of that.
            Value::Object(_) if name == fleet::CHANGED => {}
            Value::String(_) if name == fleet::SEAL => {}
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
    let stored = async {
        let at = store.fleet_now(host.env().now()).await?;
        let schedule = fleet::changed_by_user(host, schedule, at);
        store.fleet(FleetChange::PutSchedule(schedule.clone())).await?;
        Ok((schedule, at))
    };
    let stored: Result<_, StoreError> = stored.await;
    let fleet = if stored.is_ok() { Some(Fleet::of(host, &store).await) } else { None };
    ua_host::home::close(store);
    let (schedule, at) = stored.map_err(|e| HostError::store("store the schedule", &e))?;
    if let Some(fleet) = fleet.transpose()?.filter(|fleet| !fleet.is_worked() && !schedule.is_paused) {
        tell(fleet.why_nobody_works().unwrap_or_else(|| {
            "no worker is running: `ua worker` starts one, which submits and runs what is due".to_owned()
        }));
    }
    let name = &schedule.name;
    let words = if schedule.is_paused {
        format!("{name} is paused\n")
    } else {
        format!("{name} is due next: {}\n", moment::due(schedule.next_at, at))
    };
    say(&row(schedule), words)
}

/// A schedule, for a list and for a machine.
fn row(schedule: ScheduleRecord) -> ScheduleRow {
    let job: Option<ScheduledJob> = serde_json::from_value(schedule.job).ok();
    let (file, queue, changed) =
        job.map_or_else(Default::default, |job| (job.file.to_string_lossy().into_owned(), job.queue, job.changed));
    let (changed_by, changed_at) = changed.map(|changed| (changed.by, changed.at.to_string())).unzip();
    ScheduleRow {
        name: schedule.name,
        cron: schedule.cron,
        time_zone: schedule.time_zone,
        file,
        queue,
        catch_up: stored_name(&schedule.catch_up).to_string(),
        is_paused: schedule.is_paused,
        changed_by,
        changed_at,
        next_at: schedule.next_at.to_string(),
        overdue_since: None,
        last_run: None,
        error_here: None,
    }
}

/// So many runs are looked through for the last one of each schedule.
const LOOKED_AT: u32 = 1_000;

/// The newest run of each schedule, by its name: its job key is that name and an instant. With them, whether older runs were not looked at.
async fn last_runs(host: &Host, store: &Database) -> Result<(BTreeMap<String, ScheduledRun>, bool), HostError> {
    let query = RunQuery { limit: LOOKED_AT, without_tasks: true, ..RunQuery::default() };
    let mut runs = store.find_runs(&query).await.map_err(|e| HostError::store("look for runs", &e))?;
    let are_all = runs.len() < LOOKED_AT as usize;
    runs.sort_by_key(|run| run.created_at);
    let of_schedule = |run: RunHead| {
        let (name, instant) = run.job_key.as_deref()?.rsplit_once('@')?;
        let (name, instant) = (name.to_owned(), ua_core::Timestamp::parse(instant)?);
        Some((name, (instant, run)))
    };
    // The newest of a name comes last, and stays.
    let newest: BTreeMap<String, (ua_core::Timestamp, RunHead)> = runs.into_iter().filter_map(of_schedule).collect();
    let heads: Vec<RunHead> = newest.values().map(|(_, run)| run.clone()).collect();
    let standings = standings(host.home(), store, &heads).await?;
    let shown = |((name, (instant, run)), standing): ((String, (ua_core::Timestamp, RunHead)), Standing)| {
        // Of one that succeeded it says nothing that the status does not.
        let result = run.status_detail.filter(|_| run.status != RunStatus::Succeeded);
        let (run_id, scheduled_at) = (run.run_id.to_string(), instant.to_string());
        (name, ScheduledRun { run_id, scheduled_at, shown_status: standing.to_string(), result })
    };
    Ok((newest.into_iter().zip(standings).map(shown).collect(), are_all))
}

/// How the last run of a schedule ended, where it did not do what it is for: whole, and with the command that shows the rest.
fn last_in_words(schedule: &ScheduleRow) -> Option<String> {
    let last = schedule.last_run.as_ref()?;
    let why = line(last.result.as_deref()?, usize::MAX);
    let (name, run) = (line(&schedule.name, 60), short(&last.run_id));
    Some(format!(
        "The last run of {name}, for {}: {}: {why}\n  ua runs show {run}\n",
        last.scheduled_at, last.shown_status
    ))
}

/// Who paused a schedule, if it is paused and that is known.
fn paused_in_words(schedule: &ScheduleRow, now: ua_core::Timestamp) -> Option<String> {
    let at = ua_core::Timestamp::parse(schedule.changed_at.as_deref()?)?;
    let by = schedule.changed_by.as_deref().filter(|_| schedule.is_paused)?;
    Some(format!("{} was paused by {}, {}\n", line(&schedule.name, 60), line(by, 60), moment::ago(at, now)))
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
    pub(super) fn is_worked(&self) -> bool {
        // Of one that was killed the lease runs on.
        let is_alive =
            |worker: &WorkerRecord| worker.lease_until > self.at && !ua_runner::has_ended_here(&worker.owner);
        self.state.workers.iter().any(|worker| is_alive(worker) && !worker.is_draining)
    }

    /// Why nobody takes runs although workers are there, with what gets them further; `None` where there is none.
    pub(super) fn why_nobody_works(&self) -> Option<String> {
        let mut there = self.state.workers.iter().filter(|worker| !ua_runner::has_ended_here(&worker.owner));
        if let Some(paused) = there.clone().find(|worker| ua_runner::process_is_paused(&worker.owner)) {
            return Some(paused_worker(paused));
        }
        if there.clone().any(|worker| worker.lease_until > self.at) {
            return Some(
                "the workers that run take no more runs (`ua workers drain`); `ua worker` starts another one"
                    .to_owned(),
            );
        }
        let silent = there.next()?;
        let (since, pid) = (moment::since(silent.lease_until.minus(LEASE), self.at), silent.owner.pid);
        let (worker, host) = (short(&silent.worker), line(&silent.owner.host, 80));
        Some(format!(
            "worker {worker} (process {pid} on {host}) has shown no sign of life for {since}; `ua worker` starts another one"
        ))
    }

    /// That nobody takes runs, and why.
    fn nobody_works(&self) -> String {
        let none = || "no worker is running; `ua worker` starts one".to_owned();
        self.why_nobody_works().unwrap_or_else(none)
    }

    /// A sentence about each worker of this machine that was paused: its runs look as if they were at work.
    pub(super) fn paused(&self) -> Vec<String> {
        // What nobody else does is said where the work waits.
        let paused = self.state.workers.iter().filter(|worker| ua_runner::process_is_paused(&worker.owner));
        paused.map(paused_worker).collect()
    }

    /// That so many runs of the queue wait for a worker, where there is none.
    pub(super) fn left_queued(&self, queued: usize) -> Option<String> {
        let waits = if queued == 1 { "waits" } else { "wait" };
        (queued > 0 && !self.is_worked())
            .then(|| format!("{} {waits} in the queue: {}", ua_core::counted(queued, "run"), self.nobody_works()))
    }

    /// That schedules are stored for later than the clock says, if there are such.
    pub(super) fn ahead(&self) -> Option<String> {
        fleet::ahead_in_words(&self.state.schedules, self.at)
    }

    /// The schedules that are late: those that a worker would have submitted by now, and those that are due and could not be submitted from here,
    /// each with the reason. What the workers ran into is known to them alone; what can be known of it here is said.
    pub(super) async fn late(&self, host: &Host) -> Vec<Late> {
        let now = self.at;
        let people = AtTerminal::new(true, true);
        let mut late = Vec::new();
        for schedule in self.state.schedules.iter().filter(|one| !one.is_paused && one.next_at <= now) {
            let why = fleet::why_not(host, &people, schedule).await.map(|error| error.message().to_owned());
            if why.is_some() || now.since(schedule.next_at) > ON_TIME {
                late.push(Late { name: schedule.name.clone(), due_at: schedule.next_at, why });
            }
        }
        late
    }

    /// What is said of schedules that are late; `None` where none is. Where the reasons are listed by themselves, they are not said.
    pub(super) fn left_alone(&self, late: &[Late], reasons_are_listed: bool) -> Option<String> {
        let since = late.iter().map(|one| one.due_at).min()?;
        let which = match late {
            [one] => format!("the schedule {} is overdue", line(&one.name, 60)),
            several => format!("{} are overdue", ua_core::counted(several.len(), "schedule")),
        };
        let by = moment::since(since, self.at);
        let failing: Vec<&Late> = late.iter().filter(|one| one.why.is_some()).collect();
        let is_worked = self.is_worked();
        let mut said = format!("{which} by {by}");
        if !is_worked {
            said.push_str(&format!(": {}", self.nobody_works()));
        }
        if reasons_are_listed && !failing.is_empty() {
            return Some(said);
        }
        if let Some((first, why)) = failing.first().and_then(|first| Some((first, first.why.as_deref()?))) {
            let (name, why) = (line(&first.name, 60), line(why, 400));
            let more = match failing.len() {
                1 => String::new(),
                all => format!("; the same of {} more: `ua schedule list`", all - 1),
            };
            let again = PrintedCommand::of("ua schedule run").word(&first.name).in_code();
            said.push_str(&format!(
                "; the job of {name} cannot be submitted from here: {why}{more}; {again} submits it once that is corrected"
            ));
        } else if is_worked {
            // Each was due for longer than a worker takes to look, unless all that was missed is being submitted.
            let first = late.iter().min_by_key(|one| one.due_at)?;
            let name = line(&first.name, 60);
            let again = PrintedCommand::of("ua schedule run").word(&first.name).in_code();
            said.push_str(&format!(
                ", and workers are running: they are still submitting what was missed, or they cannot submit the job of {name}; \
                 {again} submits it now or says why it cannot be"
            ));
        }
        Some(said)
    }
}

/// A schedule that is late.
pub(super) struct Late {
    name: String,
    due_at: Timestamp,
    /// Why its job could not be submitted from here now.
    why: Option<String>,
}

/// A worker whose process was stopped, and how it continues.
fn paused_worker(worker: &WorkerRecord) -> String {
    let (name, pid) = (short(&worker.worker), worker.owner.pid);
    format!(
        "worker {name} is paused: process {pid} was stopped (Ctrl-Z, SIGSTOP), and `kill -CONT {pid}` lets it continue"
    )
}

async fn list(host: &Host, json: bool) -> Result<(), HostError> {
    let (stored, late, alone, ahead, now, (mut last, are_all)) = if host.home().is_unused() {
        (Vec::new(), Vec::new(), None, None, host.env().now(), (BTreeMap::new(), true))
    } else {
        let store = host.home().open_read_only()?;
        let fleet = Fleet::of(host, &store).await?;
        let late = fleet.late(host).await;
        let (alone, ahead) = (fleet.left_alone(&late, true), fleet.ahead());
        (fleet.state.schedules, late, alone, ahead, fleet.at, last_runs(host, &store).await?)
    };
    let mut late: BTreeMap<String, Late> = late.into_iter().map(|late| (late.name.clone(), late)).collect();
    let next: Vec<ua_core::Timestamp> = stored.iter().map(|schedule| schedule.next_at).collect();
    let mut rows = Vec::with_capacity(stored.len());
    for schedule in stored {
        let late = late.remove(&schedule.name);
        let overdue_since = late.as_ref().map(|late| late.due_at.to_string());
        let error_here = late.and_then(|late| late.why);
        let last_run = last.remove(&schedule.name);
        rows.push(ScheduleRow { overdue_since, last_run, error_here, ..row(schedule) });
    }
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|row| Some(format!("{}: {}", line(&row.name, 60), line(row.error_here.as_deref()?, 400))))
        .collect();
    if json || crate::terminal::is_json() {
        return print_json(&rows);
    }
    if rows.is_empty() {
        return print("there are no schedules\n");
    }
    let ends: Vec<String> = rows.iter().filter_map(last_in_words).collect();
    let paused: Vec<String> = rows.iter().filter_map(|row| paused_in_words(row, now)).collect();
    let none = if are_all { "none".to_owned() } else { format!("not among the newest {LOOKED_AT} runs") };
    let cells = rows.into_iter().zip(next).map(|(row, next_at)| {
        let next = match &row.overdue_since {
            _ if row.is_paused => "paused".to_owned(),
            // No worker was there, or none could submit it, which each of them says.
            Some(_) => format!("overdue by {}", moment::since(next_at, now)),
            None => moment::due_beside(&row.time_zone, next_at, now),
        };
        let is_there = std::path::Path::new(&row.file).exists();
        let file = if is_there { row.file } else { format!("{} (no such file on this machine)", row.file) };
        // Why it ended so stands below the table, where there is room for it.
        let last = row.last_run.map_or_else(|| none.clone(), |last| last.shown_status);
        vec![row.name, row.cron, row.time_zone, next, last, file]
    });
    print_table(&crate::listings::SCHEDULES, cells.collect())?;
    if !paused.is_empty() {
        print(format!("\n{}", paused.join("")))?;
    }
    for said in alone.into_iter().chain(ahead) {
        print(format!("\n{said}\n"))?;
    }
    if !ends.is_empty() {
        print(format!("\n{}", ends.join("")))?;
    }
    if !wrong.is_empty() {
        print(format!("\nA submit from here fails now:\n  {}\n", wrong.join("\n  ")))?;
    }
    Ok(())
}
