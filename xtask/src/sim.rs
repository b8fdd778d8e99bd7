//! The simulation lane: many seeds of `ua_testkit::sim`, or every death and every second death of one job.

mod exhaustive;
mod minimise;
mod seeds;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context as _, bail, ensure};
use ua_testkit::BrokenRule;
use ua_testkit::sim::{Counts, Outcomes, SimOptions, SimStore, Violation, simulate};

/// So many seeds, from the first on, play every outcome of every seam.
const STANDARD_SEEDS: u64 = 600;

use crate::part::Part;

/// How to run it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How many seeds
    #[arg(long, default_value_t = STANDARD_SEEDS, conflicts_with = "exhaustive")]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What the runs are stored in; on both, what happens must be the same
    #[arg(long, value_enum, default_value_t = Stores::Memory)]
    store: Stores,
    /// Break a rule on purpose and fail unless it is seen; the names are in docs/testing.md
    #[arg(long, value_name = "RULE")]
    broken_rule: Option<String>,
    /// Leave out intents and faults, one by one, while what is wrong stays, and print what is left
    #[arg(long, conflicts_with = "exhaustive")]
    minimise: bool,
    /// Faults to leave out, by their place; what the minimiser prints
    #[arg(long, value_name = "PLACES", value_delimiter = ',', conflicts_with = "exhaustive")]
    without: Vec<u64>,
    /// Intents of the job to leave out, by their number; what the minimiser prints
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', conflicts_with = "exhaustive")]
    without_intents: Vec<usize>,
    /// End after so many simulations that went wrong
    #[arg(long, value_name = "N", default_value_t = 5)]
    most_wrong: usize,
    /// Print everything that happened
    #[arg(long)]
    trace: bool,
    /// Instead of seeds: one mixed job that dies at each gate, and again at each gate of its recovery
    #[arg(long)]
    exhaustive: bool,
    /// Only every N-th first death
    #[arg(long, value_name = "N", default_value_t = 1, requires = "exhaustive")]
    stride: usize,
    /// Only this share of the first deaths, such as 2/3
    #[arg(long, value_name = "K/N", requires = "exhaustive")]
    part: Option<Part>,
    /// Where each life dies, as in 12,7; what a failed exhaustive round prints
    #[arg(long, value_name = "GATES", value_delimiter = ',', conflicts_with = "exhaustive")]
    deaths: Option<Vec<u64>>,
    /// Write what came of it to this file as well
    #[arg(long, value_name = "FILE", conflicts_with = "broken_rule")]
    write: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Stores {
    /// The model in memory
    Memory,
    /// The runtime database
    Sqlite,
    /// One after the other, compared
    Both,
}

impl Stores {
    fn kinds(self) -> &'static [SimStore] {
        match self {
            Self::Memory => &[SimStore::Memory],
            Self::Sqlite => &[SimStore::Sqlite],
            Self::Both => &[SimStore::Memory, SimStore::Sqlite],
        }
    }
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if options.exhaustive { exhaustive::run(options) } else { seeds::run(options) }
}

impl Options {
    fn broken(&self) -> anyhow::Result<Option<BrokenRule>> {
        let Some(name) = &self.broken_rule else { return Ok(None) };
        let rule = BrokenRule::parse(name).with_context(|| format!("no rule is called {name:?}"))?;
        ensure!(
            rule != BrokenRule::KeyOfThisProcess,
            "all lives of a simulation are one process, which has one key for each call; the crash matrix sees this rule"
        );
        Ok(Some(rule))
    }
}

/// What is simulated, on each store, and what came of it.
#[derive(Debug)]
struct Played {
    counts: Counts,
    violations: Vec<Violation>,
    /// Which outcomes were played, on one store after the other.
    outcomes: Vec<Outcomes>,
    /// Where the stores differ.
    differs: Option<String>,
    gates: Vec<u64>,
    trace: Vec<String>,
}

impl Played {
    /// What is wrong, in words.
    fn wrong(&self) -> Vec<String> {
        self.violations.iter().map(ToString::to_string).chain(self.differs.clone()).collect()
    }
}

/// Plays one simulation on each store; what happens must be the same.
fn play(options: &SimOptions, stores: Stores) -> anyhow::Result<Played> {
    let mut first: Option<Played> = None;
    for store in stores.kinds() {
        let report = simulate(&SimOptions { store: *store, ..options.clone() })?;
        let Some(before) = &mut first else {
            let (counts, violations, outcomes) = (report.counts, report.violations, vec![report.outcomes]);
            let (gates, trace) = (report.gates, report.trace);
            first = Some(Played { counts, violations, outcomes, differs: None, gates, trace });
            continue;
        };
        before.counts.add(&report.counts);
        before.outcomes.push(report.outcomes);
        let words = |list: &[Violation]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        if before.trace != report.trace || words(&before.violations) != words(&report.violations) {
            let differs = before.trace.iter().zip(&report.trace).position(|(one, other)| one != other);
            let at = differs.unwrap_or_else(|| before.trace.len().min(report.trace.len()));
            let line = |trace: &[String]| trace.get(at).map_or("nothing more", |line| line.trim()).to_owned();
            let (one, other) = (line(&before.trace), line(&report.trace));
            before.differs = Some(format!("the stores differ at line {}: {one} | {other}", at + 1));
        }
    }
    first.context("no store was chosen")
}

/// Plays many on all processors and hands each result over in the order of the list; ends early when `judge` says so.
fn play_all(
    list: &[SimOptions],
    stores: Stores,
    mut judge: impl FnMut(&SimOptions, Played) -> bool + Send,
) -> anyhow::Result<()> {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let waiting = Mutex::new((0, std::collections::BTreeMap::new(), &mut judge));
    let work = || -> anyhow::Result<()> {
        while !is_over.load(Ordering::SeqCst) {
            let number = next.fetch_add(1, Ordering::SeqCst);
            let Some(options) = list.get(number) else { return Ok(()) };
            let played = play(options, stores)?;
            let mut waiting = waiting.lock().map_err(|_| anyhow::anyhow!("a thread panicked"))?;
            let (due, done, judge) = &mut *waiting;
            done.insert(number, played);
            while let Some(played) = done.remove(due) {
                if !is_over.load(Ordering::SeqCst) && judge(&list[*due], played) {
                    is_over.store(true, Ordering::SeqCst);
                }
                *due += 1;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for thread in running {
            match thread.join() {
                Ok(done) => done?,
                Err(_) => bail!("a thread panicked"),
            }
        }
        Ok(())
    })
}

/// What happened, in a sentence.
fn in_words(counts: &Counts) -> String {
    let Counts {
        lives,
        deaths,
        replaced,
        faults,
        effects,
        questions,
        in_doubt,
        beside,
        sub_agents,
        cut_requests,
        forks,
        ..
    } = counts;
    let Counts { restores, beyond_limits, steps, .. } = counts;
    format!(
        "{lives} lives, {deaths} deaths, {replaced} owners replaced while they lived, {faults} faults, {effects} effects, \
         {questions} questions ({in_doubt} whether a call happened, {beside} whether it repeats another one), {sub_agents} sub-agents, {cut_requests} requests with a part of their history, {forks} forks, {restores} restored copies, {beyond_limits} calls beyond a limit, {steps} decisions"
    )
}

impl Options {
    /// The command that plays a simulation again.
    fn command(&self, one: &SimOptions) -> String {
        let mut command = format!("cargo xtask sim --seed {} --seeds 1", one.seed);
        let mut add = |flag: &str, numbers: Vec<String>| {
            if !numbers.is_empty() {
                command.push_str(&format!(" --{flag} {}", numbers.join(",")));
            }
        };
        add("deaths", one.deaths.iter().flatten().map(u64::to_string).collect());
        add("without", one.without.iter().map(u64::to_string).collect());
        add("without-intents", one.without_intents.iter().map(usize::to_string).collect());
        match self.store {
            Stores::Memory => {}
            Stores::Sqlite => command.push_str(" --store sqlite"),
            Stores::Both => command.push_str(" --store both"),
        }
        command
    }
}
