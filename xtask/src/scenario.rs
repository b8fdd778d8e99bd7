//! Scenarios that play something against a build of the program from outside, and judge it: the part that the findings and the attacks share.
//!
//! A scenario uses what anybody has: the command line, exit codes, `--json`, files, signals, and programs and servers of its own. A verdict rests on
//! effects, exit codes and stored statuses, not on wording.
//!
//! A scenario that is *known* to be red says so in its row. Without `--expect`, a run fails when a row and its verdict differ, either way: what was
//! mended has to lose its mark in the same change, and from then on stays green.

pub(crate) mod server;
pub(crate) mod terminal;
pub(crate) mod world;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

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
    pub(crate) list: bool,
    /// How many run at a time; most of them wait most of the time
    #[arg(long, default_value_t = 8)]
    jobs: usize,
    /// Keep the folder of each scenario, in this folder
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// What every scenario has to be; without it, what its row says
    #[arg(long, value_enum)]
    expect: Option<Expect>,
    /// Of attacks, for root: play them as this user, who has no rights
    #[arg(long, value_name = "NAME")]
    pub(crate) as_user: Option<String>,
}

impl Options {
    /// The program under test.
    ///
    /// # Errors
    /// It is not there.
    pub(crate) fn program(&self) -> anyhow::Result<PathBuf> {
        match &self.ua {
            Some(path) => path.canonicalize().with_context(|| format!("find {}", path.display())),
            None => Ok(ua_testkit::ua_program().clone()),
        }
    }

    /// What another process is given to do the same with its own copy of the program.
    pub(crate) fn once_more(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["--jobs".into(), self.jobs.to_string().into()];
        if let Some(only) = &self.only {
            words.extend(["--only".into(), only.into()]);
        }
        if let Some(expect) = self.expect {
            let word = match expect {
                Expect::Green => "green",
                Expect::Red => "red",
            };
            words.extend(["--expect".into(), word.into()]);
        }
        words
    }
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
pub(crate) enum Mark {
    /// What it plays was never wrong; it shows that its neighbours judge by the right thing.
    Control,
    /// The finding stands: it is red.
    #[cfg_attr(not(test), expect(dead_code, reason = "none stands now; the next one that does is marked so"))]
    Known,
    /// The finding was mended: it is green, and stays so.
    Mended,
}

impl Mark {
    fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Known => "known",
            Self::Mended => "fixed",
        }
    }
}

/// What a scenario saw, in one sentence with counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Green(String),
    Red(String),
    /// Something that it needs is not there, in words.
    Skipped(Lack, String),
}

/// What a scenario needs and did not find. Whoever skips one says so, and says whether that is to be expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lack {
    /// The rights of root.
    Root,
    /// The walls of the kernel: missing where `CI_NO_WALLS=1` says so, and nowhere else.
    Walls,
    /// Something of the machine that others do not have either: its processor, an interface of its kernel, a program that nobody promised.
    Machine,
    /// A part of the program under test that it was built without.
    Build,
    /// What `.ci/run` promises on each machine.
    Promised,
}

/// Where scenarios are played, as far as it excuses one that is not.
#[derive(Debug, Clone, Copy)]
struct Here {
    is_root: bool,
    has_no_walls: bool,
}

impl Here {
    fn look() -> Self {
        Self {
            is_root: rustix::process::geteuid().is_root(),
            has_no_walls: std::env::var_os("CI_NO_WALLS").is_some_and(|said| said == "1"),
        }
    }

    fn excuses(self, lack: Lack) -> bool {
        match lack {
            Lack::Root => !self.is_root,
            Lack::Walls => self.has_no_walls,
            Lack::Machine | Lack::Build => true,
            Lack::Promised => false,
        }
    }
}

impl Verdict {
    /// Green if `holds`.
    pub(crate) fn of(holds: bool, what: impl Into<String>) -> Self {
        if holds { Self::Green(what.into()) } else { Self::Red(what.into()) }
    }
}

/// One scenario.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) number: &'static str,
    pub(crate) name: &'static str,
    /// What must hold.
    pub(crate) must: &'static str,
    /// Whether it waits for half a minute or more: such ones begin first, or the last of them would be waited for alone.
    pub(crate) waits: bool,
    pub(crate) mark: Mark,
    pub(crate) play: fn(&Stage) -> anyhow::Result<Verdict>,
}

struct Judged {
    scenario: Scenario,
    /// An error is the harness's: the scenario did not get to what it is about.
    verdict: anyhow::Result<Verdict>,
    took: Duration,
}

/// Plays those of `scenarios` that are chosen, and judges them. Those that need the kernel's walls, by their number, are not played where there are
/// none.
///
/// # Errors
/// When a verdict is not the expected one, or something was not played that could have been.
pub(crate) fn run(options: &Options, scenarios: Vec<Scenario>, needs_walls: fn(&str) -> bool) -> anyhow::Result<()> {
    let mut chosen = scenarios;
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
    let here = Here::look();
    if here.has_no_walls {
        for scenario in chosen.iter_mut().filter(|scenario| needs_walls(scenario.number)) {
            scenario.play = |_: &Stage| {
                Ok(Verdict::Skipped(Lack::Walls, "the kernel has no walls here (CI_NO_WALLS=1)".to_owned()))
            };
        }
    }
    let program = options.program()?;
    let keep = options.keep.as_ref().map(std::path::absolute).transpose()?;
    let started = Instant::now();
    let judged = play_all(chosen, options.jobs.max(1), &program, keep.as_ref());
    report(&judged, options.expect, here, started.elapsed())
}

/// Plays the scenarios, several at a time, and returns them in the order of their numbers.
fn play_all(mut chosen: Vec<Scenario>, jobs: usize, program: &Path, keep: Option<&PathBuf>) -> Vec<Judged> {
    let total = chosen.len();
    chosen.sort_by_key(|scenario| !scenario.waits);
    let queue: Mutex<VecDeque<Scenario>> = Mutex::new(chosen.into());
    let done: Mutex<Vec<Judged>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some(scenario) = next else { break };
                    let stage =
                        Stage { program: program.to_path_buf(), keep: keep.cloned(), name: scenario.number.to_owned() };
                    let started = Instant::now();
                    let verdict = (scenario.play)(&stage);
                    let judged = Judged { scenario, verdict, took: started.elapsed() };
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    eprintln!("{}/{total} {}", done.len() + 1, line(&judged));
                    done.push(judged);
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|judged| judged.scenario.number);
    done
}

fn line(judged: &Judged) -> String {
    let Judged { scenario, took, .. } = judged;
    format!("{:<4} {} ({:.0} s): {}", scenario.number, scenario.name, took.as_secs_f64(), told(judged))
}

fn told(judged: &Judged) -> String {
    match &judged.verdict {
        Ok(Verdict::Green(what)) => format!("green: {what}"),
        Ok(Verdict::Red(what)) => format!("RED: {what}"),
        Ok(Verdict::Skipped(_, why)) => format!("SKIPPED: {why}"),
        Err(error) => format!("WRONG: {error:#}"),
    }
}

/// Prints the table, and fails unless every verdict is the expected one.
fn report(judged: &[Judged], expect: Option<Expect>, here: Here, took: Duration) -> anyhow::Result<()> {
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
        count(|one| matches!(one.verdict, Ok(Verdict::Skipped(..)))),
        count(|one| one.verdict.is_err()),
    );
    for one in judged {
        if let Ok(Verdict::Skipped(_, why)) = &one.verdict {
            ua_testkit::skipped(&format!("{} {}: {why}", one.scenario.number, one.scenario.name));
        }
    }
    let unexpected: Vec<String> = judged.iter().filter_map(|one| complaint(one, expect, here)).collect();
    ensure!(unexpected.is_empty(), "not as expected:\n  {}", unexpected.join("\n  "));
    Ok(())
}

/// What is not as expected about a verdict.
fn complaint(judged: &Judged, expect: Option<Expect>, here: Here) -> Option<String> {
    let Scenario { number, mark, .. } = &judged.scenario;
    let should_be_red = match (expect, mark) {
        (Some(Expect::Green), _) | (_, Mark::Control) | (None, Mark::Mended) => false,
        (Some(Expect::Red), _) | (None, Mark::Known) => true,
    };
    match (&judged.verdict, should_be_red) {
        (Err(error), _) => Some(format!("{number} did not get to what it is about: {error:#}")),
        (Ok(Verdict::Green(_)), true) if expect.is_none() => {
            Some(format!("{number} is green: finding {number} is fixed, so take the mark `Known` from its row"))
        }
        (Ok(Verdict::Green(_)), true) => Some(format!("{number} is green")),
        (Ok(Verdict::Red(what)), false) => Some(format!("{number} is red: {what}")),
        (Ok(Verdict::Skipped(lack, why)), _) if !here.excuses(*lack) => Some(format!("{number} was not played: {why}")),
        (Ok(Verdict::Skipped(..) | Verdict::Green(_) | Verdict::Red(_)), _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(mark: Mark, verdict: anyhow::Result<Verdict>) -> Judged {
        let play = |_: &Stage| Ok(Verdict::Green(String::new()));
        let scenario = Scenario { number: "0", name: "a scenario", must: "it holds", waits: false, mark, play };
        Judged { scenario, verdict, took: Duration::ZERO }
    }

    #[test]
    fn what_is_not_as_expected_is_complained_about() {
        let green = || Ok(Verdict::Green(String::new()));
        let red = || Ok(Verdict::Red(String::new()));
        let (marks, green_too, red_too) = (None, Some(Expect::Green), Some(Expect::Red));
        // The mark, what is expected, and whether green and red are complained about.
        for (mark, expect, of_green, of_red) in [
            (Mark::Control, marks, false, true),
            (Mark::Control, green_too, false, true),
            (Mark::Control, red_too, false, true),
            (Mark::Known, marks, true, false),
            (Mark::Known, green_too, false, true),
            (Mark::Known, red_too, true, false),
            (Mark::Mended, marks, false, true),
            (Mark::Mended, green_too, false, true),
            (Mark::Mended, red_too, true, false),
        ] {
            let here = Here { is_root: false, has_no_walls: false };
            assert_eq!(
                complaint(&judged(mark, green()), expect, here).is_some(),
                of_green,
                "{mark:?} {expect:?} green"
            );
            assert_eq!(complaint(&judged(mark, red()), expect, here).is_some(), of_red, "{mark:?} {expect:?} red");
            let wrong = Err(anyhow::anyhow!("no way"));
            assert!(complaint(&judged(mark, wrong), expect, here).is_some());
        }
    }

    /// A lane that plays less than it can is as red as one that fails.
    #[test]
    fn what_was_not_played_is_complained_about_unless_it_could_not_be() {
        for (is_root, has_no_walls) in [(false, false), (true, false), (false, true), (true, true)] {
            let here = Here { is_root, has_no_walls };
            for (lack, is_fine) in [
                (Lack::Root, !is_root),
                (Lack::Walls, has_no_walls),
                (Lack::Machine, true),
                (Lack::Build, true),
                (Lack::Promised, false),
            ] {
                for expect in [None, Some(Expect::Green), Some(Expect::Red)] {
                    let skipped = Ok(Verdict::Skipped(lack, "why".to_owned()));
                    let said = complaint(&judged(Mark::Mended, skipped), expect, here);
                    assert_eq!(said.is_none(), is_fine, "{lack:?} {here:?}");
                }
            }
        }
    }
}
