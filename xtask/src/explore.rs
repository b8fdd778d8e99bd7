//! Bounded exhaustive search: every path through small scenes of the simulation, with every choice that there was.
//!
//! A path is replayed from its choices. From the plain path on, every step is taken otherwise in every way that it could have been, as
//! long as deviations are left; where no process lives, a state that was there before is not gone on from, because what comes of it was
//! seen. What is checked on each path, to its end, is what the simulation checks: the world's own account against the store, what the
//! model was told and what people said.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use ua_testkit::BrokenRule;
use ua_testkit::sim::{Path, Scene, SimOptions, simulate};

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
    /// Write what came of it to this file as well
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
    let mut lines =
        vec!["| scene | states | paths | steps | seconds | wrong |".to_owned(), "|---|---|---|---|---|---|".to_owned()];
    let results = search_all(&scenes, options, broken);
    println!("{}", lines.join("\n"));
    let mut wrong = Vec::new();
    let (mut states, mut paths) = (0, 0);
    for (scene, seconds, found) in results {
        let found = found?;
        states += found.states;
        paths += found.paths;
        let (name, Found { states, paths, steps, .. }) = (scene.name(), &found);
        let line = format!("| {name} | {states} | {paths} | {steps} | {seconds:.0} | {} |", found.wrong.len());
        println!("{line}");
        lines.push(line);
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
    let (count, most) = (scenes.len(), options.deviations);
    let steps = if most == 1 { "one deviation" } else { &format!("{most} deviations") };
    let sum = format!("{count} scenes, {states} states, {paths} paths, every one with at most {steps}: nothing wrong.");
    println!("{sum}\nin {:.0} s", start.elapsed().as_secs_f64());
    if let Some(file) = &options.write {
        let page = format!(
            "# Every path\n\nWritten by `cargo xtask explore --deviations {most} --write docs/explore.md`; what a path and a deviation are is in\n\
             [testing.md](testing.md#lanes).\n\n{sum}\n\n{}\n",
            lines.join("\n")
        );
        std::fs::write(file, page).with_context(|| format!("write {}", file.display()))?;
    }
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
