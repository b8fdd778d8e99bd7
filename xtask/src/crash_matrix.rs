//! The crash matrix: every boundary of a turn × every class of tools × what happens next, with real SIGKILL.
//!
//! Each cell is two to four processes of `ua-testkit`'s example `crash_cell`: lives of a runner, the tool server of each, and an
//! observer outside that does the effects and keeps the only log the verdict believes.

mod boundaries;
mod cell;
mod classes;
mod plays;
pub(crate) mod promise;
pub(crate) mod report;
mod shapes;
mod verdict;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;
use ua_testkit::{BrokenRule, example_program};

use crate::made::Made;
use crate::part::Part;
use crate::random::Random;
use boundaries::{Boundary, Death, boundaries};
use cell::{Cell, Protection, Stage, job_file};
use classes::CLASSES;
use shapes::Shape;
use verdict::Verdict;

/// How to run it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// A part of the cells, spread over all of them
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// More moments inside writes, more second crashes, and every page write
    #[arg(long)]
    full: bool,
    /// Only this share of the cells, such as 2/3
    #[arg(long, value_name = "K/N")]
    part: Option<Part>,
    /// Only cells whose name (class | boundary) contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Write the summary to this file as well
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Break a rule on purpose and fail unless it is seen; the names are in docs/testing.md
    #[arg(long, value_name = "RULE")]
    broken_rule: Option<String>,
    /// Seed of the moments inside writes and of the second crashes
    #[arg(long, default_value_t = 20_261_121)]
    seed: u64,
}

impl Options {
    fn moments(&self) -> u32 {
        match (&self.broken_rule, self.quick, self.full) {
            (Some(_), _, _) => 0,
            (None, true, _) => 1,
            (None, _, true) => 8,
            (None, false, false) => 2,
        }
    }

    /// How many cells crash again after this boundary: where a call is under way always, elsewhere one in two.
    fn second_crashes(&self, is_dispatch: bool, random: &mut Random) -> u64 {
        match (&self.broken_rule, self.full) {
            (Some(_), _) => 0,
            (None, true) => 5,
            (None, false) if is_dispatch => 1,
            (None, false) => random.below(2),
        }
    }
}

#[cfg(test)]
impl Options {
    /// Whether there is a cell that these options ask for.
    pub(crate) fn choose_something(&self) -> bool {
        !cells(self, Vec::new()).is_empty()
    }
}

/// One cell and what became of it.
pub(crate) struct Judged {
    pub(crate) cell: Cell,
    pub(crate) verdict: Verdict,
    pub(crate) kills: u32,
    pub(crate) was_written: Option<bool>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if let Some(rule) = &options.broken_rule {
        let known: Vec<&str> = BrokenRule::ALL.into_iter().map(BrokenRule::name).collect();
        ensure!(BrokenRule::parse(rule).is_some(), "`{rule}` is no rule; expected one of {}", known.join(", "));
    }
    let made = Made::begin(options.write.as_deref())?;
    let program = example_program("crash_cell");
    let folder = scratch()?;
    for (index, class) in CLASSES.iter().enumerate() {
        fs::write(folder.path().join(job_file(index)), class.job().to_string())?;
    }
    let started = Instant::now();
    let (pages, note) =
        if options.broken_rule.is_none() { page_writes(options, &program, folder.path())? } else { Default::default() };
    let cells = cells(options, pages);
    ensure!(!cells.is_empty(), "no cell fits");
    let clean = clean_runs(&cells, &program, folder.path())?;
    let judged = all(&cells, &program, folder.path(), options.broken_rule.as_deref(), &clean)?;
    report::report(&judged, options, &note, started.elapsed(), made.as_ref())
}

/// A folder in memory where there is one: a SIGKILL does not need a disk, and ten thousand databases do not deserve one.
fn scratch() -> anyhow::Result<tempfile::TempDir> {
    let in_memory = Path::new("/dev/shm");
    let mut builder = tempfile::Builder::new();
    builder.prefix("ua-crash-");
    let made = if in_memory.is_dir() { builder.tempdir_in(in_memory) } else { builder.tempdir() };
    made.or_else(|_| builder.tempdir()).context("make a folder")
}

/// How a run of each class that has a cell ends without a crash; and that it ends as promised.
fn clean_runs(cells: &[Cell], program: &Path, root: &Path) -> anyhow::Result<Vec<Value>> {
    let stage = Stage::new(program, root, 99, None)?;
    let mut clean = Vec::new();
    for (index, class) in CLASSES.iter().enumerate() {
        if cells.iter().all(|cell| cell.class != index) {
            clean.push(Value::Null);
            continue;
        }
        let cell = Cell { class: index, boundary: None, protection: Protection::Resume };
        let seen = stage.run(1_000_000 + index, &cell, class)?;
        let verdict = Verdict::of(&cell, class, &seen, &seen.state);
        if !verdict.is_right() {
            bail!("`{}` does not work even without a kill: {}\n{:#}", class.name, verdict.explain(), seen.state);
        }
        clean.push(seen.state);
    }
    Ok(clean)
}

/// Every cell that is asked for, of all there are and those that die at a page write.
fn cells(options: &Options, pages: Vec<Cell>) -> Vec<Cell> {
    let mut random = Random(options.seed);
    let mut cells = Vec::new();
    for (class, row) in CLASSES.iter().enumerate() {
        for boundary in boundaries(row, options.moments(), &mut random) {
            let is_dispatch = boundary.is_dispatch();
            if options.broken_rule.is_some() && !is_dispatch {
                continue;
            }
            let mut add = |protection| cells.push(Cell { class, boundary: Some(boundary.clone()), protection });
            add(Protection::Resume);
            for _ in 0..options.second_crashes(is_dispatch, &mut random) {
                let side = if random.below(2) == 0 { "before" } else { "after" };
                add(Protection::CrashAgain(format!("{side}:*#{}", 1 + random.below(row.shape.second_crashes()))));
            }
            // Before the first dispatch there is no tool server, and inside a write its death is nothing special.
            let has_server = is_dispatch || boundary.step == "commit" && row.shape == Shape::Turns;
            if has_server && !matches!(boundary.death, Death::Inside { .. }) {
                add(Protection::ServerDies);
            }
            if boundary.may_be_replaced() {
                add(Protection::Replaced);
            }
            let is_forked = options.broken_rule.is_none() && row.shape == Shape::Turns;
            if is_forked && !matches!(boundary.death, Death::Inside { .. }) {
                add(Protection::Fork);
            }
        }
    }
    cells.extend(pages);
    if let Some(only) = &options.only {
        cells.retain(|cell| cell.name(&CLASSES[cell.class]).contains(only.as_str()));
    }
    let mut laid_out = if options.broken_rule.is_none() { plays::cells(options.quick) } else { Vec::new() };
    laid_out.retain(|cell| {
        options.only.as_ref().is_none_or(|only| cell.name(&CLASSES[cell.class]).contains(only.as_str()))
    });
    if options.quick {
        // Every third cell (of jobs that take longer fewer), and all that die while a call is at the tool, of those that are only about how
        // it is sent once.
        let mut n = 0;
        cells.retain(|cell| {
            n += 1;
            n % CLASSES[cell.class].shape.quick_share() == 0
                || cell.boundary.as_ref().is_some_and(|b| matches!(b.death, Death::AtTheTool(_)))
                    && (cell.protection == Protection::Resume || !CLASSES[cell.class].shape.is_part_of_turns())
        });
    }
    cells.extend(laid_out);
    if let Some(part) = options.part {
        let mut index = 0;
        cells.retain(|_| {
            index += 1;
            part.holds(index - 1)
        });
    }
    cells
}

/// Cells that die just before the n-th page of the database is written, where `strace` can stop a process there, and what to say
/// about those that could not be made.
fn page_writes(options: &Options, program: &Path, root: &Path) -> anyhow::Result<(Vec<Cell>, String)> {
    let mut cells = Vec::new();
    let chosen =
        CLASSES.iter().enumerate().filter(|(_, c)| ["external opaque", "external, key in _meta"].contains(&c.name));
    let log = root.join("page-writes");
    let traced =
        Command::new("strace").args(["-f", "-qq", "-e", "trace=pwrite64", "-o"]).arg(&log).arg("true").status();
    if !traced.is_ok_and(|status| status.success()) {
        return Ok((cells, "Page writes are left out: `strace` is missing or may not trace here.".to_owned()));
    }
    let stage = Stage::new(program, root, 98, None)?;
    for (class, row) in chosen {
        let most = stage.count_page_writes(&log, class, row)?;
        let step = if options.full {
            1
        } else if options.quick {
            most / 10
        } else {
            most / 25
        };
        // A run on a busy machine writes a few pages more than others (its signs of life): the last ones need not be there in each.
        let most = most - most / 20;
        for n in (1..=most).step_by(usize::try_from(step.max(1))?) {
            let boundary = Boundary { step: "inside a commit", death: Death::AtPageWrite(n), in_flight: true };
            cells.push(Cell { class, boundary: Some(boundary), protection: Protection::Resume });
        }
    }
    Ok((cells, String::new()))
}

/// Runs the cells on a few threads, each with an outside world of its own.
fn all(
    cells: &[Cell],
    program: &Path,
    root: &Path,
    broken_rule: Option<&str>,
    clean: &[Value],
) -> anyhow::Result<Vec<Judged>> {
    let threads = std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8);
    let (next, judged) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = |thread: usize| -> anyhow::Result<()> {
        let stage = Stage::new(program, root, thread, broken_rule)?;
        loop {
            let number = next.fetch_add(1, Ordering::SeqCst);
            let Some(cell) = cells.get(number) else { return Ok(()) };
            let class = &CLASSES[cell.class];
            if number > 0 && number.is_multiple_of(250) {
                eprintln!("cell {number} of {}: {}", cells.len(), cell.name(class));
            }
            let seen = stage.run(number, cell, class)?;
            let verdict = Verdict::of(cell, class, &seen, &clean[cell.class]);
            if !verdict.is_right() && broken_rule.is_none() {
                eprintln!("wrong: {}: {}", cell.name(class), verdict.explain());
            }
            let one = Judged { cell: cell.clone(), verdict, kills: seen.kills, was_written: seen.was_written };
            judged.lock().map_err(|_| anyhow::anyhow!("a thread panicked"))?.push((number, one));
        }
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn({
                    let work = &work;
                    move || work(thread)
                })
            })
            .collect();
        for thread in running {
            thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        anyhow::Ok(())
    })?;
    let mut judged = judged.into_inner().map_err(|_| anyhow::anyhow!("a thread panicked"))?;
    judged.sort_by_key(|(number, _)| *number);
    Ok(judged.into_iter().map(|(_, one)| one).collect())
}
