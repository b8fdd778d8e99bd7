//! Bounded exhaustive search: every path through small scenes of the simulation, with every choice that there was.
//!
//! A path is replayed from its choices. From the plain path on, every step is taken otherwise in every way that it could have been, as
//! long as deviations are left; where no process lives, a state that was there before is not gone on from, because what comes of it was
//! seen. What is checked on each path, to its end, is what the simulation checks: the world's own account against the store, what the
//! model was told and what people said.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use ua_testkit::BrokenRule;
use ua_testkit::sim::{Path, Scene, SimOptions, simulate};

use crate::made::Made;

/// How far to search.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How many steps of a path may go otherwise than when nothing goes wrong and nobody hurries
    #[arg(long, default_value_t = 2)]
    deviations: usize,
    /// Only these scenes
    #[arg(long, value_name = "SCENES", value_delimiter = ',')]
    scene: Vec<String>,
    /// All scenes but these
    #[arg(long, value_name = "SCENES", value_delimiter = ',', conflicts_with = "scene")]
    without: Vec<String>,
    /// Break a rule on purpose and fail unless it is seen; the names are in docs/testing.md
    #[arg(long, value_name = "RULE")]
    broken_rule: Option<String>,
    /// Play one path of one scene again and print what happens on it, as in 0,0,3
    #[arg(long, value_name = "CHOICES", value_delimiter = ',', requires = "scene")]
    path: Option<Vec<usize>>,
    /// End a scene after so many paths that went wrong
    #[arg(long, value_name = "N", default_value_t = 3)]
    most_wrong: usize,
    /// Write what came of it to this file as well; its rows of other scenes, and of other bounds, stay as they are
    #[arg(long, value_name = "FILE", conflicts_with = "broken_rule")]
    write: Option<PathBuf>,
}

/// What a search came to.
#[derive(Debug, Default)]
struct Found {
    paths: u64,
    states: u64,
    steps: u64,
    /// What went wrong, with its path.
    wrong: Vec<(Vec<usize>, String)>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let broken = match &options.broken_rule {
        None => None,
        Some(name) => Some(BrokenRule::parse(name).with_context(|| format!("no rule is called {name:?}"))?),
    };
    let mut scenes = if options.scene.is_empty() { Scene::ALL.to_vec() } else { named(&options.scene)? };
    let left_out = named(&options.without)?;
    scenes.retain(|scene| !left_out.contains(scene));
    if let Some(choices) = &options.path {
        return replay(scenes.first().copied().context("which scene?")?, options.deviations, choices, broken);
    }
    let start = Instant::now();
    let made = Made::begin(options.write.as_deref())?;
    let results = search_all(&scenes, options, broken);
    println!("{HEAD}");
    let (mut rows, mut wrong) = (Vec::new(), Vec::new());
    for (scene, seconds, found) in results {
        let found = found?;
        let row = Row::new(scene, options.deviations, seconds, &found, made.as_ref().map_or("", Made::source));
        println!("{}", row.line());
        rows.push(row);
        wrong.extend(found.wrong.into_iter().map(|(path, words)| (scene, path, words)));
    }
    for (scene, path, words) in &wrong {
        let path: Vec<String> = path.iter().map(usize::to_string).collect();
        let (name, most, path) = (scene.name(), options.deviations, path.join(","));
        println!("wrong: {words}\n       again: cargo xtask explore --scene {name} --deviations {most} --path {path}");
    }
    if let Some(rule) = broken {
        ensure!(!wrong.is_empty(), "the broken rule `{}` went unnoticed", rule.name());
        println!("the broken rule `{}` was seen, as it must be", rule.name());
        return Ok(());
    }
    ensure!(wrong.is_empty(), "{} paths went wrong", wrong.len());
    println!("{}\nin {:.0} s", sums(&rows).join("\n"), start.elapsed().as_secs_f64());
    if let Some(made) = made {
        let rows = merged(read(&made.before()), rows);
        made.write(&page(made.command(), &made.line(), &rows))?;
    }
    Ok(())
}

/// A row of the page: what a search of a scene came to, with so many deviations.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    scene: Scene,
    deviations: usize,
    states: u64,
    paths: u64,
    steps: u64,
    seconds: u64,
    wrong: usize,
    /// Commit and day.
    source: String,
}

const HEAD: &str = "| scene | deviations | states | paths | steps | seconds | wrong | commit, day |\n|---|---|---|---|---|---|---|---|";

impl Row {
    fn new(scene: Scene, deviations: usize, seconds: f64, found: &Found, source: &str) -> Self {
        let Found { states, paths, steps, .. } = *found;
        let seconds = std::time::Duration::from_secs_f64(seconds.round()).as_secs();
        Self { scene, deviations, states, paths, steps, seconds, wrong: found.wrong.len(), source: source.to_owned() }
    }

    fn line(&self) -> String {
        let Self { scene, deviations, states, paths, steps, seconds, wrong, source } = self;
        let name = scene.name();
        format!("| {name} | {deviations} | {states} | {paths} | {steps} | {seconds} | {wrong} | {source} |")
    }

    fn parse(line: &str) -> Option<Self> {
        let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
        let scene = Scene::parse(cells.next()?)?;
        Some(Self {
            scene,
            deviations: cells.next()?.parse().ok()?,
            states: cells.next()?.parse().ok()?,
            paths: cells.next()?.parse().ok()?,
            steps: cells.next()?.parse().ok()?,
            seconds: cells.next()?.parse().ok()?,
            wrong: cells.next()?.parse().ok()?,
            source: cells.next()?.to_owned(),
        })
    }
}

/// The rows of a page. Of a scene that there is no more nothing is told.
fn read(page: &str) -> Vec<Row> {
    page.lines().filter_map(Row::parse).collect()
}

/// What a page had, with what was searched now in its place; with few deviations first, and then in the order of the scenes.
fn merged(before: Vec<Row>, now: Vec<Row>) -> Vec<Row> {
    let is_new = |row: &Row| now.iter().all(|new| (new.scene, new.deviations) != (row.scene, row.deviations));
    let mut rows: Vec<Row> = before.into_iter().filter(is_new).collect();
    rows.extend(now);
    rows.sort_by_key(|row| (row.deviations, Scene::ALL.iter().position(|scene| *scene == row.scene)));
    rows
}

/// What the rows come to, a sentence for each bound.
fn sums(rows: &[Row]) -> Vec<String> {
    let bounds: BTreeSet<usize> = rows.iter().map(|row| row.deviations).collect();
    let sum_of = |most: usize| {
        let own: Vec<&Row> = rows.iter().filter(|row| row.deviations == most).collect();
        let sum = |of: fn(&Row) -> u64| own.iter().map(|row| of(row)).sum::<u64>();
        let (states, paths, seconds) = (sum(|row| row.states), sum(|row| row.paths), sum(|row| row.seconds));
        let scenes = if own.len() == 1 { "1 scene" } else { &format!("{} scenes", own.len()) };
        let steps = if most == 1 { "one deviation" } else { &format!("{most} deviations") };
        format!(
            "{scenes} with at most {steps}: {states} states, {paths} paths, {seconds} s of one processor: nothing wrong"
        )
    };
    bounds.into_iter().map(sum_of).collect()
}

fn page(command: &str, line: &str, rows: &[Row]) -> String {
    let lines: Vec<String> = rows.iter().map(Row::line).collect();
    format!(
        "# Every path\n\nWritten by `{command}`; what a path and a deviation are is in\n[testing.md](testing.md#lanes). A search of some \
         scenes alone writes their rows and leaves the others.\nSeconds are those of one processor, on which a scene was searched while \
         others were on the others.\n\n{line}\n\n{}.\n\n{HEAD}\n{}\n",
        sums(rows).join(".\n\n"),
        lines.join("\n")
    )
}

/// What the page says, for a sentence; and at which commits its rows were made.
pub(crate) fn told(page: &str) -> (String, String) {
    let rows = read(page);
    let mut sources: Vec<&str> = rows.iter().map(|row| row.source.as_str()).collect();
    sources.sort_by_key(|source| (source.split_once(", ").map(|(_, day)| day), *source));
    sources.dedup();
    (sums(&rows).join("; "), sources.join("; "))
}

/// Fails when a scene was never walked with a deviation.
pub(crate) fn check(page: &str) -> anyhow::Result<()> {
    let rows = read(page);
    let is_walked = |scene: &&Scene| rows.iter().any(|row| row.scene == **scene && row.deviations > 0);
    let missing: Vec<&str> = Scene::ALL.iter().filter(|scene| !is_walked(scene)).map(|scene| scene.name()).collect();
    ensure!(
        missing.is_empty(),
        "docs/explore.md has not walked {}; run `cargo xtask explore --deviations 1 --scene {} --write docs/explore.md`",
        missing.join(", "),
        missing.join(",")
    );
    Ok(())
}

/// Searches the scenes, as many at once as there are processors; in their order, with the seconds that each took.
fn search_all(
    scenes: &[Scene],
    options: &Options,
    broken: Option<BrokenRule>,
) -> Vec<(Scene, f64, anyhow::Result<Found>)> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let work = || {
        while let Some((place, scene)) = {
            let place = next.fetch_add(1, Ordering::Relaxed);
            scenes.get(place).map(|scene| (place, *scene))
        } {
            let begun = Instant::now();
            let found = search(scene, options, broken);
            let seconds = begun.elapsed().as_secs_f64();
            eprintln!("{}: {seconds:.0} s", scene.name());
            done.lock().unwrap_or_else(PoisonError::into_inner).push((place, (scene, seconds, found)));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from).min(scenes.len()) {
            scope.spawn(work);
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

fn named(names: &[String]) -> anyhow::Result<Vec<Scene>> {
    let known = || Scene::ALL.map(Scene::name).join(", ");
    let parse = |name: &String| {
        Scene::parse(name).with_context(|| format!("no scene is called {name:?}; there are: {}", known()))
    };
    names.iter().map(parse).collect()
}

/// The simulation of one path.
fn of_path(scene: Scene, deviations: usize, choices: &[usize], broken: Option<BrokenRule>) -> SimOptions {
    let path = Path { scene, deviations, choices: choices.to_vec() };
    SimOptions { path: Some(path), broken, ..SimOptions::of_seed(1) }
}

fn replay(scene: Scene, deviations: usize, choices: &[usize], broken: Option<BrokenRule>) -> anyhow::Result<()> {
    let report = simulate(&of_path(scene, deviations, choices, broken))?;
    println!("{}", report.trace.join("\n"));
    // A path that does not end has thousands of steps at which nothing was left to choose.
    let choices = &report.walked.choices;
    let till = choices.iter().rposition(|many| *many != 1).map_or(0, |last| last + 1);
    println!("choices there were: {:?}, then one at a time for {} steps", &choices[..till], choices.len() - till);
    for violation in &report.violations {
        println!("wrong: {violation}");
    }
    Ok(())
}

/// Walks every path of a scene.
fn search(scene: Scene, options: &Options, broken: Option<BrokenRule>) -> anyhow::Result<Found> {
    let mut found = Found::default();
    let mut seen = HashSet::new();
    let mut ahead: Vec<Vec<usize>> = vec![Vec::new()];
    while let Some(prefix) = ahead.pop() {
        let report = simulate(&of_path(scene, options.deviations, &prefix, broken))?;
        found.paths += 1;
        found.steps += report.counts.steps;
        found.wrong.extend(report.violations.iter().map(|violation| (prefix.clone(), violation.to_string())));
        if found.wrong.len() >= options.most_wrong {
            break;
        }
        for (step, &choices) in report.walked.choices.iter().enumerate().skip(prefix.len()) {
            if report.walked.states.get(&step).is_some_and(|state| !seen.insert(*state)) {
                break; // what comes of it was seen
            }
            for choice in 1..choices {
                let mut path = prefix.clone();
                path.resize(step, 0);
                path.push(choice);
                ahead.push(path);
            }
        }
    }
    found.states = seen.len() as u64;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(scene: Scene, deviations: usize, seconds: u64, source: &str) -> Row {
        Row { scene, deviations, states: 10, paths: 20, steps: 300, seconds, wrong: 0, source: source.to_owned() }
    }

    #[test]
    fn a_search_of_some_scenes_leaves_the_rows_of_the_others() {
        let before = vec![row(Scene::Plain, 1, 7, "aaaa, 2026-11-29"), row(Scene::Fork, 1, 8, "aaaa, 2026-11-29")];
        let page = page("cargo xtask explore", "Made at commit aaaa.", &before);
        assert_eq!(read(&page), before);
        // A scene that is gone, and a table of before.
        let gone = "| of-old | 1 | 10 | 20 | 300 | 7 | 0 | aaaa, 2026-11-29 |\n| plain | 143 | 193 | 11182 | 8 | 0 |\n";
        assert_eq!(read(&format!("{page}{gone}")), before);
        let (again, new) =
            (row(Scene::Plain, 1, 9, "bbbb+, 2026-11-30"), row(Scene::Plain, 2, 90, "bbbb+, 2026-11-30"));
        let rows = merged(read(&page), vec![new.clone(), again.clone()]);
        assert_eq!(rows, [again, before[1].clone(), new]);
        let (words, sources) = told(&super::page("cargo xtask explore", "Made at commit bbbb+.", &rows));
        assert_eq!(
            words,
            "2 scenes with at most one deviation: 20 states, 40 paths, 17 s of one processor: nothing wrong; \
             1 scene with at most 2 deviations: 10 states, 20 paths, 90 s of one processor: nothing wrong"
        );
        assert_eq!(sources, "aaaa, 2026-11-29; bbbb+, 2026-11-30");
    }

    #[test]
    fn a_scene_that_was_never_walked_is_seen() {
        let all: Vec<Row> = Scene::ALL.iter().map(|scene| row(*scene, 1, 7, "aaaa, 2026-11-29")).collect();
        check(&page("cargo xtask explore", "Made at commit aaaa.", &all)).unwrap();
        let mut some = all[1..].to_vec();
        some.push(row(Scene::ALL[0], 0, 1, "aaaa, 2026-11-29"));
        let said = check(&page("cargo xtask explore", "Made at commit aaaa.", &some)).unwrap_err().to_string();
        assert!(said.contains("has not walked plain; run"), "{said}");
    }
}
