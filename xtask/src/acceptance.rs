//! The acceptance run (Durable Jobs v1 spec §11): the research job against real processes and real protocols, killed with
//! SIGKILL at every named stage and at seeded random moments, resumed by name, and its effects counted by who took them.
//!
//! A *route* is a set of transports ([`route`]), a *kill point* a place where the program dies ([`kill`]), a *cell* one job
//! on one route with one kill point ([`cell`]). The site, the model and whatever receives an effect are processes of their
//! own ([`crate::serve`]) that outlive the program. The model words its e-mail differently each time it is asked. Where
//! nobody can know what became of a call, the run must wait, and is told the truth as the servers count it.

mod cell;
mod http;
mod kill;
mod lives;
pub(crate) mod report;
mod route;
mod script;
mod server;
mod world;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use ua_testkit::ua_program;

use self::cell::Cell;
use self::kill::Point;
use self::route::Route;
use crate::made::Made;
use crate::random::Random;

/// How to run it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only a few kill points per route
    #[arg(long)]
    quick: bool,
    /// Seed of the random kills
    #[arg(long, default_value_t = 20_261_121)]
    seed: u64,
    /// How many runs of each route are killed at random moments; 6, or 1 with --quick
    #[arg(long)]
    random: Option<u32>,
    /// How many cells run at once; two per core when missing, since they mostly wait for disks and each other
    #[arg(long)]
    jobs: Option<usize>,
    /// Break a rule on purpose and expect duplicates
    #[arg(long, value_name = "RULE")]
    broken_rule: Option<BrokenRule>,
    /// Only kill points whose route and name, as in `mail API: during the e-mail`, contain this
    #[arg(long)]
    only: Option<String>,
    /// Write the tables to this file as well
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// A rule that is broken on purpose, to show that the harness sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum BrokenRule {
    /// RUNNING is stored only when the answer is in
    RunningAfterDispatch,
    /// What tools and models say is kept with the keys in it
    NoRedactor,
    /// The program is told that every webhook honours keys, whether it does or not
    UnhonouredKeys,
}

impl Options {
    /// The kill points of a route that these options ask for.
    fn named(&self, route: Route) -> Vec<(Route, Point)> {
        let is_wanted = |point: &Point| {
            let name = format!("{}: {}", route.name(), point.name);
            (!self.quick || point.is_quick) && self.only.as_ref().is_none_or(|only| name.contains(only))
        };
        kill::points(route).into_iter().filter(is_wanted).map(|point| (route, point)).collect()
    }

    /// Whether there is a kill point that these options ask for.
    #[cfg(test)]
    pub(crate) fn choose_something(&self) -> bool {
        Route::ALL.into_iter().any(|route| !self.named(route).is_empty())
    }
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let made = Made::begin(options.write.as_deref())?;
    let bench = Bench { program: ua_program(), options, started: Instant::now() };
    let random_count = options.random.unwrap_or(if options.quick { 1 } else { 6 });
    // A route without a wanted point is not run at all, unless there are random kills of all of them.
    let routes: Vec<Route> = Route::ALL
        .into_iter()
        .filter(|route| !options.named(*route).is_empty() || (random_count > 0 && options.only.is_none()))
        .collect();
    ensure!(!routes.is_empty(), "no kill point is called like that");

    let undisturbed: Vec<_> = routes.iter().map(|route| (*route, kill::undisturbed())).collect();
    let clean = bench.run(&undisturbed, "the job by itself")?;
    let is_broken_always = options.broken_rule == Some(BrokenRule::NoRedactor);
    if let Some(cell) = clean.iter().find(|cell| !cell.faults.is_empty() && !is_broken_always) {
        anyhow::bail!("the job does not work even without a kill ({}): {}", cell.route.name(), cell.faults.join("; "));
    }
    let mut random = Random(options.seed);
    let mut planned: Vec<(Route, Point)> = Vec::new();
    for cell in &clean {
        planned.extend(options.named(cell.route));
        planned.extend(kill::random(&mut random, random_count, cell.took).into_iter().map(|point| (cell.route, point)));
    }
    let mut cells = clean;
    cells.extend(bench.run(&planned, "killed")?);
    conclude(&cells, options, bench.started.elapsed(), made.as_ref())
}

fn conclude(cells: &[Cell], options: &Options, took: Duration, made: Option<&Made>) -> anyhow::Result<()> {
    println!("{}", report::tables(cells));
    let duplicates = cells.iter().filter(|cell| cell.has_duplicate()).count();
    let wrong: Vec<&Cell> = cells.iter().filter(|cell| !cell.faults.is_empty()).collect();
    println!(
        "{} cells, seed {}, {:.0} s: {duplicates} with a duplicate, {} not as promised",
        cells.len(),
        options.seed,
        took.as_secs_f64(),
        wrong.len()
    );
    if let Some(rule) = options.broken_rule {
        let leaks: usize = cells.iter().map(|cell| cell.leaks).sum();
        let seen = if rule == BrokenRule::NoRedactor { leaks } else { duplicates };
        ensure!(seen > 0, "the broken rule went unnoticed: {rule:?}");
        println!("the broken rule was seen, as it must be: {rule:?}");
        return Ok(());
    }
    for cell in &wrong {
        eprintln!("wrong: {}: {}: {}", cell.route.name(), cell.point.name, cell.faults.join("; "));
    }
    ensure!(wrong.is_empty(), "the promise does not hold");
    if let Some(made) = made {
        made.write(&report::page(cells, made))?;
    }
    Ok(())
}

/// Everything that stays the same between cells.
struct Bench<'a> {
    program: &'a Path,
    options: &'a Options,
    started: Instant,
}

impl Bench<'_> {
    /// Runs cells side by side; the results are in their order.
    fn run(&self, planned: &[(Route, Point)], what: &str) -> anyhow::Result<Vec<Cell>> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = self.options.jobs.unwrap_or(2 * cores).max(1);
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let results: Vec<Mutex<Option<anyhow::Result<Cell>>>> = planned.iter().map(|_| Mutex::default()).collect();
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::SeqCst);
                        let (Some((route, point)), Some(slot)) = (planned.get(index), results.get(index)) else {
                            break;
                        };
                        let cell = Cell::run(self.program, self.options.broken_rule, *route, point);
                        let number = done.fetch_add(1, Ordering::SeqCst) + 1;
                        self.say(&format!("{what} {number}/{}", planned.len()), *route, point, &cell);
                        *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(cell);
                    }
                });
            }
        });
        let cells = results.into_iter().zip(planned).map(|(slot, (route, point))| {
            let cell = slot.into_inner().unwrap_or_else(PoisonError::into_inner);
            let cell = cell.context("a cell was not run")?;
            cell.with_context(|| format!("{}: {}", route.name(), point.name))
        });
        cells.collect()
    }

    /// A line of progress, and everything known about a cell that is not right.
    fn say(&self, number: &str, route: Route, point: &Point, cell: &anyhow::Result<Cell>) {
        let result = match cell {
            Ok(cell) if cell.faults.is_empty() => {
                let asked =
                    if cell.asked.is_empty() { String::new() } else { format!(", asked: {}", cell.questions()) };
                format!("ok in {:.1} s{asked}", cell.took.as_secs_f64())
            }
            Ok(cell) if self.options.broken_rule.is_some() => cell.faults.join("; "),
            Ok(cell) => format!("WRONG: {} ({:?})\n{}", cell.faults.join("; "), point.kill, cell.log),
            Err(error) => format!("BROKEN: {error:#}"),
        };
        let seconds = self.started.elapsed().as_secs();
        eprintln!("[{seconds:3} s] {number} {}: {}: {result}", route.name(), point.name);
    }
}
