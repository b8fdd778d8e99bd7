//! The simulation lane: many seeds of `ua_testkit::sim`, or every death and every second death of one job.

mod exhaustive;
mod seeds;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context as _, bail, ensure};
use ua_testkit::BrokenRule;
use ua_testkit::sim::{Counts, SimOptions, SimStore, simulate};

use crate::part::Part;

/// How to run it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How many seeds
    #[arg(long, default_value_t = 300, conflicts_with = "exhaustive")]
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
            rule != BrokenRule::ChildrenStartAgain,
            "a simulated job has no sub-agents; the crash matrix sees this rule"
        );
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
    violations: Vec<String>,
    gates: Vec<u64>,
    trace: Vec<String>,
}

/// Plays one simulation on each store; what happens must be the same.
fn play(options: &SimOptions, stores: Stores) -> anyhow::Result<Played> {
    let mut first = None;
    for store in stores.kinds() {
        let report = simulate(&SimOptions { store: *store, ..options.clone() })?;
        let mut played = Played {
            counts: report.counts,
            violations: report.violations.iter().map(|words| format!("{}: {words}", store.name())).collect(),
            gates: report.gates,
            trace: report.trace,
        };
        let Some((before, digest)) = first.take() else {
            first = Some((played, report.digest));
            continue;
        };
        let before: Played = before;
        if report.digest != digest {
            let differs = before.trace.iter().zip(&played.trace).position(|(one, other)| one != other);
            let at = differs.unwrap_or_else(|| before.trace.len().min(played.trace.len()));
            let line = |trace: &[String]| trace.get(at).map_or("nothing more", |line| line.trim()).to_owned();
            let (one, other) = (line(&before.trace), line(&played.trace));
            played.violations.push(format!("the stores differ at line {}: {one} | {other}", at + 1));
        }
        played.violations.splice(0..0, before.violations);
        played.counts.add(&before.counts);
        first = Some((played, digest));
    }
    first.map(|(played, _)| played).context("no store was chosen")
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
    let Counts { lives, deaths, replaced, faults, effects, questions, steps } = counts;
    format!(
        "{lives} lives, {deaths} deaths, {replaced} owners replaced while they lived, {faults} faults, {effects} effects, \
         {questions} questions, {steps} decisions"
    )
}
