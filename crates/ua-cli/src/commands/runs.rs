//! `ua runs`: look at runs, ask one to end.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use ua_core::{CallStatus, HarnessSpec, RunId, RunStatus, Timestamp};
use ua_host::home::Home;
use ua_host::standing::{standing, standings};
use ua_host::{Database, Host};
use ua_resume::{Standing, calls_in_words, inherited_turns_in_words, lives_beside};
use ua_runner::{RunLock, StepSummary, UsageSummary};
use ua_store::{
    ArrivalsOf, FleetStore as _, GATEWAY_MODE, GatewayStore as _, RunHead, RunQuery, RunRecords, RunStore, Store,
    StoreError, Walk, is_gateway,
};

use super::delete::DeleteArgs;
use super::export::ExportArgs;
use super::tail::TailArgs;
use super::{cancel, gateway, pins, summary};
use crate::args::{not_empty, parse_ago};
use crate::error::{HostError, OK};
use crate::ids::{ShortIds, short};
use crate::output::{did, field, line, print, print_json, print_table};
use crate::view::{RunCancelled, RunRow, RunShown};
use crate::{complete, find, listings, moment};

/// `ua runs …`.
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// List runs, newest first
    List(ListArgs),
    /// Show one run: its state, what it did, what it waits for
    #[command(after_help = "\
Examples:
  ua runs show last
  ua runs show run_019 --json | jq .usage")]
    Show {
        /// A run id, a unique prefix or suffix of one, or `last`
        #[arg(add = ArgValueCompleter::new(complete::runs))]
        run: String,
        /// Also its traces, and the digests that its steps are pinned to
        #[arg(long, short)]
        verbose: bool,
        /// As JSON, which has everything
        #[arg(long)]
        json: bool,
    },
    /// Watch a run: what happened in its last turns, and what happens next
    Tail(TailArgs),
    /// Compare two runs: their jobs, the turns after those they share, files, usage and cost
    #[command(after_help = "\
Examples:
  ua runs diff last run_019
  ua runs diff monthly-2026-10 monthly-2026-11 --all")]
    Diff {
        /// A run id, a unique prefix or suffix of one, or `last`
        #[arg(add = ArgValueCompleter::new(complete::runs))]
        a: String,
        /// Another one
        #[arg(add = ArgValueCompleter::new(complete::runs))]
        b: String,
        /// Also show what is the same
        #[arg(long)]
        all: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a run's files again from the database, or the run as one HTML page or JSON document
    Export(Box<ExportArgs>),
    /// Cancel a run; one that a process drives ends at its next boundary
    #[command(after_help = "\
Examples:
  ua runs cancel last
  ua runs cancel last --reason 'the customer called it off'

A cancelled run is not resumed again, so on a terminal this asks first; elsewhere it does not. Ctrl-C in the terminal of a run stops it \
so that `ua resume` finishes it.")]
    Cancel {
        /// A run id, a unique prefix or suffix of one, or `last`
        #[arg(add = ArgValueCompleter::new(complete::runs))]
        run: String,
        /// Why; who cancelled it is kept with it
        #[arg(long, value_parser = not_empty(), default_value = "a person asked for it")]
        reason: String,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
    /// Delete runs and their workspaces
    Delete(DeleteArgs),
}

/// So many runs are listed unless more are asked for.
pub(super) const LISTED: u32 = 20;

/// `ua runs list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua runs list
  ua runs list --status waiting --status stopped --status answered
      list what needs you
  ua runs list --status failed
      list what failed, and why
  ua runs list --since 7d --limit 200 --json | jq -r '.[].run_id'

A run is `crashed` if its process died while driving it, and `interrupted` if a second Ctrl-C ended its process at once; it \
is `not begun` if it is stored, and whoever stored it ended before it was begun. `ua resume RUN` resumes or begins each. It is \
`outdated` if the database is an older copy that lacks some of what it did; `ua status` says what comes before a resume.")]
pub struct ListArgs {
    /// Only runs with this status; may be repeated
    #[arg(long, value_name = "STATUS")]
    pub status: Vec<StatusFilter>,
    /// Only runs submitted within this time: a number and d, h, m or s, for example 7d
    #[arg(long, value_name = "TIME", value_parser = parse_ago)]
    pub since: Option<Duration>,
    /// At most so many, the newest
    #[arg(long, value_name = "N", default_value_t = LISTED, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// The runs of sub-agents too, below the runs they work for
    #[arg(long)]
    pub tasks: bool,
}

/// Where a run stands, as a person says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StatusFilter {
    /// Stored, and a worker or a process is about to begin it
    Queued,
    /// Stored, and nobody is about to begin it
    #[value(alias = "not begun", alias = "not queued")]
    NotBegun,
    /// A process drives it
    Running,
    /// Its process died while driving it
    Crashed,
    /// A person ended its process at once
    Interrupted,
    /// Did more than the database, an older copy, knows of
    Outdated,
    /// Waits for a person's answer
    #[value(alias = "waiting_for_human", alias = "waiting for you")]
    Waiting,
    /// Has its answers and waits for a resume
    Answered,
    /// Stopped by a budget, a signal, the provider, a change or a tool server
    Stopped,
    /// Did what it was asked to do
    Succeeded,
    /// Ended without doing it
    Failed,
    /// Ended by a person
    Cancelled,
}

pub(crate) async fn run(host: &Host, command: RunsCommand) -> Result<u8, HostError> {
    let home = host.home();
    match command {
        RunsCommand::List(args) => list(home, &args).await,
        RunsCommand::Tail(args) => super::tail::run(home, &args).await,
        RunsCommand::Delete(args) => super::delete::run(host, &args).await,
        RunsCommand::Show { run, verbose, json } => show(host, &run, verbose, json).await,
        RunsCommand::Diff { a, b, all, json } => super::diff::run(home, [&a, &b], all, json).await,
        RunsCommand::Export(args) => super::export::run(home, *args).await,
        RunsCommand::Cancel { run, reason, yes } => cancel(host, &run, &reason, yes).await,
    }
}

/// The stored statuses behind a word of `--status`.
fn stored(filter: StatusFilter) -> &'static [RunStatus] {
    match filter {
        StatusFilter::Queued | StatusFilter::NotBegun => &[RunStatus::Queued],
        StatusFilter::Running | StatusFilter::Crashed | StatusFilter::Interrupted => &[RunStatus::Running],
        StatusFilter::Waiting | StatusFilter::Answered => &[RunStatus::WaitingForHuman],
        StatusFilter::Stopped => &[RunStatus::Stopped],
        StatusFilter::Outdated => {
            &[RunStatus::Queued, RunStatus::Running, RunStatus::WaitingForHuman, RunStatus::Stopped]
        }
        StatusFilter::Succeeded => &[RunStatus::Succeeded],
        StatusFilter::Failed => &[RunStatus::Failed],
        StatusFilter::Cancelled => &[RunStatus::Cancelled],
    }
}

async fn list(home: &Home, args: &ListArgs) -> Result<u8, HostError> {
    // How one stands that has not ended is not in the database alone, so the limit is counted after that is known.
    let has = |filter| args.status.contains(&filter);
    let is_split = args.status.iter().flat_map(|filter| stored(*filter)).any(|status| !status.is_terminal());
    let query = RunQuery {
        statuses: args.status.iter().flat_map(|filter| stored(*filter)).copied().collect(),
        since: args.since.map(|span| ua_core::system::env().now().minus(span)),
        // One more than is shown tells whether there are more.
        limit: if is_split { u32::MAX } else { args.limit.saturating_add(1) },
        without_tasks: true,
        ..RunQuery::default()
    };
    let mut found = Vec::new();
    if !home.is_unused() {
        let store = home.open_read_only()?;
        let runs = store.find_runs(&query).await.map_err(|e| HostError::store("list the runs", &e))?;
        let standings = standings(home, &store, &runs).await?;
        found.extend(runs.into_iter().zip(standings));
    }
    let is_wanted = |(run, standing): &(RunHead, Standing)| match (run.status, standing) {
        _ if args.status.is_empty() => true,
        // Whatever is stored of it, it neither runs nor waits.
        (_, Standing::EndedSession) => false,
        (_, Standing::Outdated(_)) => has(StatusFilter::Outdated),
        (RunStatus::Running, Standing::Crashed) => has(StatusFilter::Crashed),
        (RunStatus::Running, Standing::Interrupted(_)) => has(StatusFilter::Interrupted),
        (RunStatus::Running, _) => has(StatusFilter::Running),
        (RunStatus::Queued, Standing::NotBegun) => has(StatusFilter::NotBegun),
        (RunStatus::Queued, _) => has(StatusFilter::Queued),
        (RunStatus::WaitingForHuman, Standing::Answered) => has(StatusFilter::Answered),
        (RunStatus::WaitingForHuman, _) => has(StatusFilter::Waiting),
        (RunStatus::Stopped, _) => has(StatusFilter::Stopped),
        _ => true,
    };
    found.retain(is_wanted);
    let is_cut = found.len() > args.limit as usize;
    found.truncate(args.limit as usize);
    let mut rows = Vec::new();
    let (mut asked_for, mut waits) = (BTreeMap::new(), Vec::new());
    // What a run used is added up for those that are shown, and for no others.
    if !found.is_empty() {
        let store = home.open_read_only()?;
        for (run, standing) in found {
            let usage = super::status::usage(&store, &run).await?;
            // A client's session has no turns, and most of them no calls.
            if run.run_mode == GATEWAY_MODE {
                let arrivals = store.arrivals_of(ArrivalsOf::Session(run.run_id.clone())).await;
                let arrivals = arrivals.map_err(|e| HostError::store("read what clients asked for", &e))?;
                asked_for.insert(run.run_id.clone(), arrivals.len());
            }
            if run.status == RunStatus::Running
                && let Some(wait) = ua_host::waits::of(home, &store, &run.run_id).await
            {
                waits.push((run.run_id.clone(), wait));
            }
            rows.push((0, RunRow::of(run, &standing, usage)));
        }
        if args.tasks {
            rows = with_tasks(home, &store, rows).await?;
        }
        ua_host::home::close(store);
    }
    if crate::terminal::is_json() {
        print_json(&rows.iter().map(|(_, row)| row).collect::<Vec<_>>())?;
        say_cut(is_cut, args.limit);
        return Ok(OK);
    }
    if rows.is_empty() {
        crate::output::tell(if args.status.is_empty() && args.since.is_none() {
            "there are no runs here; `ua job FILE` starts one"
        } else {
            "no such runs"
        });
    }
    // Whoever asks for the failed ones wants to know why they failed, and among all runs what each is for.
    let with_reasons = !args.status.is_empty() && rows.iter().any(|(_, run)| why(run).is_some());
    let (ids, now) = (ShortIds::of(&rows.iter().map(|(_, run)| run.run_id.as_str())), ua_core::system::env().now());
    let cells = rows.iter().map(|(depth, run)| {
        let indent = if *depth == 0 { String::new() } else { format!("{}└ ", "  ".repeat(depth - 1)) };
        let mut cells = vec![
            format!("{indent}{}", ids.get(run.run_id.as_str())),
            run.status_cell.clone(),
            super::status::cost(&run.cost, run.total_tokens, run.unpriced_requests),
            asked_for.get(&run.run_id).map_or_else(|| turns_cell(run), |count| ua_core::counted(*count, "call")),
            moment::ago(run.updated_at, now),
            field(&run.objective, 200),
        ];
        if with_reasons {
            cells.insert(2, line(why(run).unwrap_or_default(), usize::MAX));
        }
        cells
    });
    print_table(if with_reasons { &listings::RUNS_AND_WHY } else { &listings::RUNS }, cells.collect())?;
    for place in rows.iter().filter_map(|(_, run)| run.where_it_is()) {
        print(place)?;
    }
    for (run, wait) in &waits {
        let wait = line(&moment::in_sentence(&wait.in_words(), now), 400);
        print(format!("\nrun {} is {wait}\n", short(run.as_str())))?;
    }
    say_cut(is_cut, args.limit);
    Ok(OK)
}

/// Says, where nobody reads data from it, that there are more.
fn say_cut(is_cut: bool, limit: u32) {
    if is_cut {
        crate::output::tell(format!("older runs are not shown; `--limit {}` shows more", limit.saturating_mul(5)));
    }
}

/// Why a run stands where it does, in words.
fn why(run: &RunRow) -> Option<&str> {
    ua_resume::status_detail(run.status, run.status_detail.as_deref())
}

/// Committed turns, and of a run in iterations which one it is in.
fn turns_cell(run: &RunRow) -> String {
    match run.max_iterations {
        Some(of) => format!("{} (iteration {}/{of})", run.turn_index, run.iteration_count),
        None => run.turn_index.to_string(),
    }
}

/// The same rows, each with the runs of its sub-agents below it, and how deep each stands.
async fn with_tasks(
    home: &Home,
    store: &Database,
    rows: Vec<(usize, RunRow)>,
) -> Result<Vec<(usize, RunRow)>, HostError> {
    let mut found = Vec::new();
    for (depth, row) in rows {
        let top = row.run_id.clone();
        found.push((depth, row));
        // Depth first: a sub-agent of a sub-agent stands below it.
        let mut walk = Walk::from(&top);
        let mut open: Vec<(usize, RunId)> = vec![(1, top)];
        while let Some((depth, parent)) = open.pop() {
            let children = store.children(&parent).await.map_err(|e| HostError::store("look for sub-agents", &e))?;
            let at = found.iter().position(|(_, row)| row.run_id == parent).map_or(found.len(), |at| at + 1);
            let children: Vec<RunHead> = walk.down(children).into_iter().map(RunHead::from).collect();
            let standings = standings(home, store, &children).await?;
            for (nth, (child, standing)) in children.into_iter().zip(standings).enumerate() {
                open.push((depth + 1, child.run_id.clone()));
                let usage = super::status::usage(store, &child).await?;
                found.insert(at + nth, (depth, RunRow::of(child, &standing, usage)));
            }
        }
    }
    Ok(found)
}

async fn show(host: &Host, name: &str, verbose: bool, json: bool) -> Result<u8, HostError> {
    let home = host.home();
    let store = home.open_read_only()?;
    let run = find::run(&store, name).await?;
    // The files that are named below.
    ua_host::pages::write_due(home, &store).await;
    let records = store.load(&run.run_id).await.map_err(|e| HostError::store("load the run", &e))?;
    let children = store.children(&run.run_id).await.map_err(|e| HostError::store("look for forks", &e))?;
    let standing = standing(home, &store, &records.run).await?;
    let queue = if records.run.status.is_terminal() {
        None
    } else {
        super::fleet::standing_in_queue(host, &store, &records.run.run_id).await?
    };
    if json {
        let ids = children.into_iter().map(|child| child.run_id).collect();
        print_json(&RunShown::of(&records, &standing, ids, queue))?;
        return Ok(OK);
    }
    if is_gateway(&records.run) {
        return gateway::show_session(&store, &records, &standing).await;
    }
    // What its sub-agents ask is asked of whoever looks at the run.
    let mut records = records;
    records.questions.extend(ua_host::tree::questions_below(&store, &records).await?);
    let records = records;
    let (next, next_command) = ua_host::restart::next_command_there(home, &store, &records.run).await?;
    let waits = ua_host::waits::of_run(home, &store, &records.run).await;
    summary::print_text((next.label(), &next_command), &records, &standing)?;
    let workspace = std::path::Path::new(&records.run.workspace_dir);
    if records.run.lease_epoch > 0 && ua_host::paths::is_missing(workspace) {
        crate::output::tell(home.where_workspace_is(&records.run, workspace));
    }
    let word = |status: CallStatus| {
        // Whether it was carried out is what a resume finds out.
        let is_in_flight = status == CallStatus::Running && standing.is_left();
        if is_in_flight { "in flight when its process ended" } else { status.in_words() }
    };
    let usage = UsageSummary::of(&records);
    let now = ua_core::system::env().now();
    print(format!(
        "Status         {}\n{}{}Turns          {}{}\nCalls          {}\nRequests       {}\nTokens         {} ({} in, {} out, {} from cache, {} to cache)\n\
         Cost           {}\n{:<14} {}\n{}{}",
        crate::output::plain(&standing.to_string()),
        waits.as_ref().map_or_else(String::new, |wait| {
            format!("Waits          {}\n", line(&moment::in_sentence(&wait.in_words(), now), 400))
        }),
        queue
            .as_ref()
            .map_or_else(String::new, |queue| format!("Queue          {}\n", super::fleet::standing_in_words(queue))),
        records.run.turn_index,
        inherited_turns_in_words(&records),
        calls_in_words(&records, word),
        usage.requests_in_words(),
        usage.total_tokens,
        usage.tokens.input_tokens,
        usage.tokens.output_tokens,
        usage.tokens.cache_read_tokens,
        usage.tokens.cache_write_tokens,
        cost(&usage),
        if has_begun(&records.run) { "Started" } else { "Stored" },
        moment::local(records.run.created_at, now),
        ended(&records, &standing, now),
        processes(&records, &standing, now),
    ))?;
    print(steps_text(&records))?;
    print(iterations_text(&records))?;
    let tasks = ua_host::tree::tasks_below(&store, &records.run.run_id).await?;
    print(super::lineage::text(&records, &children, &tasks))?;
    print(pins::changes(&records))?;
    if verbose {
        let traces: Vec<&str> = records.run.traces.iter().map(ua_core::Trace::as_str).collect();
        print(format!("\nTraces         {}\n{}", traces.join(", "), pins::text(&records)))?;
    }
    Ok(OK)
}

/// Whether somebody has had the run, or ended it.
fn has_begun(run: &ua_store::RunRecord) -> bool {
    run.lease_epoch > 0 || run.status.is_terminal()
}

/// When a run ended, or was last worked on, and for how long processes were at work on it.
fn ended(records: &RunRecords, standing: &Standing, now: Timestamp) -> String {
    let run = &records.run;
    if standing.is_driven() || !has_begun(run) {
        return String::new();
    }
    let took = u64::try_from(run.updated_at.since(run.created_at).as_millis()).unwrap_or(u64::MAX);
    let word = if run.status.is_terminal() { "Ended" } else { "Last change" };
    let held = ua_resume::time_at_work(records, standing);
    format!("{word:<14} {}{}\n", moment::local(run.updated_at, now), spans(took, held))
}

/// How many milliseconds behind its start a run ended, as the wall clock said, and how many processes were at work on it. They
/// are at work for no longer than the run takes, so that a clock which says so was set back: then nobody knows the other one.
fn spans(took: u64, held: u64) -> String {
    let was_set_back = held > took.saturating_add(1_000);
    let after = if was_set_back { String::new() } else { format!(", {} after it started", moment::took(took)) };
    let held = if held == 0 { String::new() } else { format!(", {} at work", moment::took(held)) };
    after + &held
}

/// How many processes drove the run, and which of them did not leave it in order; nothing of one that was driven by one to its end.
fn processes(records: &RunRecords, standing: &Standing, now: Timestamp) -> String {
    let lives = lives_beside(records, standing);
    let count = lives.last().map_or(0, |last| last.process);
    let broken = lives.iter().filter_map(|life| life.broken_off_after(moment::local(life.last_seen_at, now)));
    let broken: Vec<String> = broken.collect();
    match (count, broken.as_slice()) {
        (0 | 1, []) => String::new(),
        (count, []) => format!("Processes      {count}\n"),
        (count, broken) => format!("Processes      {count}; {}\n", broken.join("; ")),
    }
}

/// What the run cost; where nobody knows, how that is changed.
fn cost(usage: &UsageSummary) -> String {
    let unpriced = usage.models.iter().find(|model| model.unpriced_requests > 0 && !model.is_played());
    let how = unpriced.map_or_else(String::new, |of| {
        format!("; {} says what counts it", ua_host::models::looked_up(&of.provider, &of.model))
    });
    format!("{}{how}", usage.cost_in_words())
}

/// The steps of a job with phases, those to come included; nothing for a job without.
fn steps_text(records: &RunRecords) -> String {
    let steps = StepSummary::all(records);
    if records.run.spec.phases.is_empty() {
        return String::new();
    }
    let mut out = String::from("\nPhases\n");
    for step in steps {
        let status = step.status.map_or_else(|| "not started".to_owned(), |status| status.to_string());
        let turns = match (step.first_turn, step.last_turn) {
            (Some(first), Some(last)) => format!("turns {first} to {last}"),
            (Some(_), None) => "no turn yet".to_owned(),
            (None, _) => String::new(),
        };
        out.push_str(format!("  {:>2}  {:<24} {status:<12}{turns}", step.step_index, line(&step.phase, 24)).trim_end());
        out.push('\n');
    }
    out
}

/// The iterations of a run whose job has a harness; nothing for another.
fn iterations_text(records: &RunRecords) -> String {
    let Some(max) = records.max_iterations() else { return String::new() };
    let mut out = format!("\nIterations ({} of {max})\n", records.run.iteration_count);
    if let Some(promise) = &records.run.completion_promise {
        out.push_str(&format!("  promise    {}\n", field(promise, 100)));
    }
    for iteration in ua_runner::iterations(records) {
        let turns = match iteration.last_turn {
            Some(last) => format!("turns {} to {last}", iteration.first_turn),
            None => "no turn yet".to_owned(),
        };
        let said = iteration.last_words.as_deref().unwrap_or_default();
        // It stands behind everything else, where a long text is cut.
        let is_promised =
            records.run.completion_promise.as_deref().is_some_and(|promise| HarnessSpec::is_promised(said, promise));
        let words = format!("{}{}", if is_promised { "promised: " } else { "" }, field(said, 60));
        let row = format!(
            "  {:>2}  {turns:<18}{:<10}  {words}",
            iteration.number,
            ua_core::counted(iteration.tool_calls, "call")
        );
        out.push_str(row.trim_end());
        out.push('\n');
    }
    out
}

async fn cancel(host: &Host, name: &str, reason: &str, yes: bool) -> Result<u8, HostError> {
    let (home, env) = (host.home(), host.env());
    let looked = home.open_read_only()?;
    let found = find::run(&looked, name).await?;
    if found.status.is_terminal() {
        return Err(HostError::usage(format!("run {} has already ended ({})", found.run_id, found.status)));
    }
    ua_host::gateway::only_people(host, &found, &format!("session {} must be ended", found.run_id)).await?;
    ua_host::words::about_run(host, &looked, &found, "reason", reason).await?;
    // What cannot be ended is not said to be.
    if !ua_store::is_gateway(&found) && looked.elsewhere(&found.run_id).await?.is_none() {
        home.place_of_run(&found)?;
    }
    drop(looked);
    if !yes && crate::people::is_attended() && !crate::terminal::is_json() {
        let run = short(found.run_id.as_str());
        let ask = format!("Cancel run {run} ({})? It cannot be resumed afterwards.", line(&found.spec.objective, 60));
        if !crate::prompt::confirm(&ask, &crate::prompt::Left::undone("nothing was cancelled")).await? {
            crate::output::tell("nothing was cancelled");
            return Ok(crate::error::FAILED);
        }
    }
    let store = home.open_from_anywhere()?;
    // Who it was is asked later, as of an answer.
    let reason = format!("{reason} ({})", host.settings().user());
    store
        .request_cancel(&found.run_id, &reason, env.now())
        .await
        .map_err(|e| HostError::store("ask the run to end", &e))?;
    let has_ended = cancel::end_now(host, &store, &found).await?;
    // Nothing is done in the root of another user, whether or not a process drives the run there.
    let is_held = RunLock::is_held(&home.locks(), &found.run_id);
    let left_to = home.as_its_user().filter(|_| !has_ended && !is_held);
    if !has_ended && ua_store::is_gateway(&found) {
        // What was said of a call before is a fact, and nobody acts for its session from here on.
        let settled = ua_ledger::settle_late_answers(&store, env, &found.run_id).await;
        settled.map_err(|e| HostError::store("apply what was answered before", &e))?;
    }
    let failed = |e: StoreError| HostError::store("read the run", &e);
    let now = store.run(&found.run_id).await.map_err(failed)?;
    // What the locks here say is about runs of this place alone: of another machine's there are signs of life.
    let elsewhere = store.elsewhere(&found.run_id).await?.filter(|_| !has_ended);
    let at = store.fleet_now(env.now()).await.map_err(failed)?;
    let is_driven = !has_ended && (elsewhere.is_none() && left_to.is_none() || ua_host::standing::shows_life(&now, at));
    let left = if has_ended { cancel::left_unknown(&store, &found).await? } else { String::new() };
    ua_host::home::close(store);
    if crate::terminal::is_json() {
        did(if has_ended {
            format!("run {} is cancelled", found.run_id)
        } else {
            format!("run {} will end", found.run_id)
        });
        print_json(&RunCancelled { run_id: found.run_id.clone(), is_driven, status: now.status.to_string() })?;
    }
    let run = short(found.run_id.as_str());
    if let Some(ua) = left_to.filter(|_| elsewhere.is_none()) {
        let root = ua_core::shell_word(home.root());
        crate::output::tell(format!(
            "run {run} will end; no process drives it, and its root is another user's, whose next worker ends it, or \
             `{ua} --root {root} runs cancel {}`",
            found.run_id
        ));
        return Ok(OK);
    }
    crate::output::tell(match elsewhere.filter(|_| !is_driven) {
        None if has_ended => format!("cancelled run {run}{left}"),
        None => {
            format!("cancelling run {run}; its process stops after the current call, unless the run is done with it")
        }
        Some(place) if now.status == RunStatus::Running => format!(
            "run {run} will end; its process in {} shows no sign of life, so it ends once a worker takes it there or it is resumed there",
            place.shown
        ),
        Some(place) => format!(
            "run {run} will end; it is {} in {}, and ends once a worker takes it there or it is resumed there",
            now.status, place.shown
        ),
    });
    Ok(OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_took_less_than_its_work_does_not_say_how_long() {
        assert_eq!(spans(14_900, 14_100), ", 14 s after it started, 14 s at work");
        assert_eq!(spans(14_000, 14_050), ", 14 s after it started, 14 s at work", "both are measured at their time");
        assert_eq!(spans(0, 14_100), ", 14 s at work", "the clock was set back");
        assert_eq!(spans(300, 0), ", 300 ms after it started");
    }
}
