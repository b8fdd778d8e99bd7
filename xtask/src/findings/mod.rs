//! Findings as black-box scenarios: each plays one way in which a version repeated an effect, lost a person's word, charged wrongly or
//! stopped without need, and says whether the program under test still does.
//!
//! A scenario uses what anybody has: the command line, exit codes, `--json`, files, signals, and tool and model servers of its own, which count effects
//! outside. It knows nothing of kill points or of the database's tables, so it judges any later version, and any earlier one, alike. A verdict
//! rests on effects, exit codes and stored statuses, not on wording.
//!
//! A scenario that is *known* to be red says so in its row. Without `--expect`, a run fails when a row and its verdict differ, either way: a finding
//! that was mended has to lose its mark in the same change, and from then on stays green.

mod cost;
mod doubt;
mod lineage;
mod server;
mod storage;
mod stops;
mod terminal;
mod word;
mod world;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

pub(crate) use self::server::{ServerOptions, serve_stdio};
use self::world::Stage;

/// How to run them.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The program under test; the one of this tree when missing
    #[arg(long, value_name = "PATH")]
    ua: Option<PathBuf>,
    /// Only scenarios whose number is TEXT, or whose name contains it
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// List the scenarios and run none
    #[arg(long)]
    list: bool,
    /// How many run at a time; most of them wait most of the time
    #[arg(long, default_value_t = 6)]
    jobs: usize,
    /// Keep the folder of each scenario, in this folder
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// What every scenario has to be; without it, what its row says
    #[arg(long, value_enum)]
    expect: Option<Expect>,
}

/// What every scenario has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Expect {
    /// Every one is green: nothing that was found is left.
    Green,
    /// Every one but the controls is red: the harness sees what it hunts.
    Red,
}

/// What a scenario is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// What it plays was never wrong; it shows that its neighbours judge by the right thing.
    Control,
    /// The finding stands: it is red.
    Known,
    /// The finding was mended: it is green, and stays so.
    #[allow(dead_code, reason = "no finding is mended yet")]
    Mended,
}

impl Mark {
    fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Known => "known",
            Self::Mended => "mended",
        }
    }
}

/// What a scenario saw, in one sentence with counts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Green(String),
    Red(String),
    /// Something that it needs is not on this machine.
    Skipped(String),
}

impl Verdict {
    /// Green if `holds`.
    fn of(holds: bool, what: impl Into<String>) -> Self {
        if holds { Self::Green(what.into()) } else { Self::Red(what.into()) }
    }
}

/// One scenario.
struct Scenario {
    number: &'static str,
    name: &'static str,
    /// What must hold.
    must: &'static str,
    mark: Mark,
    play: fn(&Stage) -> anyhow::Result<Verdict>,
}

/// Every scenario, by the number of its finding.
fn scenarios() -> Vec<Scenario> {
    [doubt::SCENARIOS, lineage::SCENARIOS, word::SCENARIOS, cost::SCENARIOS, storage::SCENARIOS, stops::SCENARIOS]
        .into_iter()
        .flat_map(|family| family.iter())
        .map(|s| Scenario { number: s.number, name: s.name, must: s.must, mark: s.mark, play: s.play })
        .collect()
}

struct Judged {
    scenario: Scenario,
    /// An error is the harness's: the scenario did not get to what it is about.
    verdict: anyhow::Result<Verdict>,
    took: Duration,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let mut chosen = scenarios();
    if let Some(only) = &options.only {
        chosen.retain(|s| s.number == only || s.name.contains(only.as_str()));
        ensure!(!chosen.is_empty(), "no scenario has the number {only}, or has it in its name");
    }
    if options.list {
        for scenario in &chosen {
            println!("{:<4} {:<8} {}: {}", scenario.number, scenario.mark.name(), scenario.name, scenario.must);
        }
        return Ok(());
    }
    let program = match &options.ua {
        Some(path) => path.canonicalize().with_context(|| format!("find {}", path.display()))?,
        None => ua_testkit::ua_program().clone(),
    };
    let keep = options.keep.as_ref().map(std::path::absolute).transpose()?;
    let started = Instant::now();
    let judged = play_all(chosen, options.jobs.max(1), &program, keep.as_ref());
    report(&judged, options.expect, started.elapsed())
}

/// Plays the scenarios, several at a time, and returns them in their order.
fn play_all(chosen: Vec<Scenario>, jobs: usize, program: &PathBuf, keep: Option<&PathBuf>) -> Vec<Judged> {
    let total = chosen.len();
    let queue: Mutex<VecDeque<(usize, Scenario)>> = Mutex::new(chosen.into_iter().enumerate().collect());
    let done: Mutex<Vec<(usize, Judged)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some((index, scenario)) = next else { break };
                    let stage =
                        Stage { program: program.clone(), keep: keep.cloned(), name: scenario.number.to_owned() };
                    let started = Instant::now();
                    let verdict = (scenario.play)(&stage);
                    let judged = Judged { scenario, verdict, took: started.elapsed() };
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    eprintln!("{}/{total} {}", done.len() + 1, line(&judged));
                    done.push((index, judged));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, judged)| judged).collect()
}

fn line(judged: &Judged) -> String {
    let Judged { scenario, took, .. } = judged;
    format!("{:<4} {} ({:.0} s): {}", scenario.number, scenario.name, took.as_secs_f64(), told(judged))
}

fn told(judged: &Judged) -> String {
    match &judged.verdict {
        Ok(Verdict::Green(what)) => format!("green: {what}"),
        Ok(Verdict::Red(what)) => format!("RED: {what}"),
        Ok(Verdict::Skipped(why)) => format!("skipped: {why}"),
        Err(error) => format!("WRONG: {error:#}"),
    }
}

/// Prints the table, and fails unless every verdict is the expected one.
fn report(judged: &[Judged], expect: Option<Expect>, took: Duration) -> anyhow::Result<()> {
    println!("\n| | scenario | what must hold | mark | verdict |\n|---|---|---|---|---|");
    for one in judged {
        let Scenario { number, name, must, mark, .. } = &one.scenario;
        // A cell is one line, and what a program said may hold anything.
        let told = told(one).replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" ");
        println!("| {number} | {name} | {must} | {} | {told} |", mark.name());
    }
    let count = |wanted: fn(&Judged) -> bool| judged.iter().filter(|one| wanted(one)).count();
    println!(
        "\n{} scenarios, {:.0} s: {} green, {} red, {} skipped, {} wrong",
        judged.len(),
        took.as_secs_f64(),
        count(|one| matches!(one.verdict, Ok(Verdict::Green(_)))),
        count(|one| matches!(one.verdict, Ok(Verdict::Red(_)))),
        count(|one| matches!(one.verdict, Ok(Verdict::Skipped(_)))),
        count(|one| one.verdict.is_err()),
    );
    let unexpected: Vec<String> = judged.iter().filter_map(|one| complaint(one, expect)).collect();
    ensure!(unexpected.is_empty(), "not as expected:\n  {}", unexpected.join("\n  "));
    Ok(())
}

/// What is not as expected about a verdict.
fn complaint(judged: &Judged, expect: Option<Expect>) -> Option<String> {
    let Scenario { number, mark, .. } = &judged.scenario;
    let should_be_red = match (expect, mark) {
        (Some(Expect::Green), _) | (_, Mark::Control) | (None, Mark::Mended) => false,
        (Some(Expect::Red), _) | (None, Mark::Known) => true,
    };
    match (&judged.verdict, should_be_red) {
        (Err(error), _) => Some(format!("{number} did not get to what it is about: {error:#}")),
        (Ok(Verdict::Green(_)), true) if expect.is_none() => {
            Some(format!("{number} is green: finding {number} is mended, so take the mark `Known` from its row"))
        }
        (Ok(Verdict::Green(_)), true) => Some(format!("{number} is green")),
        (Ok(Verdict::Red(what)), false) => Some(format!("{number} is red: {what}")),
        (Ok(Verdict::Skipped(_) | Verdict::Green(_) | Verdict::Red(_)), _) => None,
    }
}
