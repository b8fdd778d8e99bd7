//! Simulations that seeds draw.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use ua_testkit::sim::{Counts, Outcomes, SimOptions};

use crate::made::Made;

use super::{Options, STANDARD_SEEDS, Stores, in_words, minimise, play_all};

pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let broken = options.broken()?;
    let of_seed = |seed| SimOptions {
        broken,
        deaths: options.deaths.clone(),
        without: options.without.clone(),
        without_intents: options.without_intents.clone(),
        ..SimOptions::of_seed(seed)
    };
    let end = options.seed.saturating_add(options.seeds);
    let is_standard = options.seed == 1 && options.seeds >= STANDARD_SEEDS && options.deaths.is_none();
    let list: Vec<SimOptions> = (options.seed..end).map(of_seed).collect();
    let start = Instant::now();
    let made = Made::begin(options.write.as_deref())?;
    let mut first_seeds = FirstSeeds::default();
    let (mut counts, mut wrong, mut played, mut caught) = (Counts::default(), Vec::new(), 0_u64, None);
    let mut outcomes: Vec<Outcomes> = vec![Outcomes::default(); options.store.kinds().len()];
    let mut firsts: Vec<SimOptions> = Vec::new();
    play_all(&list, options.store, |one, done| {
        played += 1;
        counts.add(&done.counts);
        first_seeds.add(one.seed, &done.counts);
        let before = outcomes[0].missing().len();
        outcomes.iter_mut().zip(&done.outcomes).for_each(|(sum, one)| sum.add(one));
        if outcomes[0].missing().len() < before {
            firsts.push(one.clone());
        }
        if options.trace {
            println!("seed {}:\n{}", one.seed, done.trace.join("\n"));
        }
        let new = done.wrong();
        if options.trace {
            for words in &new {
                println!("wrong: {words}");
            }
        }
        let Some(first) = new.first() else { return false };
        if broken.is_some() {
            caught = Some((one.seed, first.clone()));
            return true;
        }
        eprintln!("wrong: seed {}: {}", one.seed, new.join("; "));
        eprintln!("       again: {} --trace", options.command(one));
        wrong.push(one.clone());
        wrong.len() >= options.most_wrong
    })?;
    if let Some(rule) = broken {
        let (seed, words) = caught
            .with_context(|| format!("the broken rule `{}` went unnoticed in {played} simulations", rule.name()))?;
        println!(
            "the broken rule `{}` was seen within {played} simulations, as it must be; for example seed {seed}: {words}",
            rule.name()
        );
        return Ok(());
    }
    if options.minimise {
        for one in &wrong {
            let smaller = minimise::smaller(one, options.store)?;
            println!("smaller: {}", options.command(&smaller.options));
            println!("{}\n{}", smaller.trace.join("\n"), smaller.words.join("\n"));
        }
    }
    ensure!(wrong.is_empty(), "{} of {played} simulations went wrong", wrong.len());
    let each = if options.store == Stores::Both { ", each on both stores with the same trace" } else { "" };
    let sum = format!("{played} simulations{each}: all ended, nothing wrong");
    println!("{sum}\n{}\nin {:.1} s, seeds from {}", in_words(&counts), start.elapsed().as_secs_f64(), options.seed);
    told_outcomes(options, options.store, &outcomes, is_standard)?;
    if is_standard && options.store == Stores::Memory {
        on_both(options, &firsts)?;
    }
    if let Some(made) = made {
        made.write(&page(options, &made, &sum, &counts, &first_seeds))?;
    }
    Ok(())
}

/// Says how often each outcome was played on each store; a whole round may leave none out.
fn told_outcomes(options: &Options, stores: Stores, outcomes: &[Outcomes], is_whole: bool) -> anyhow::Result<()> {
    for (store, outcomes) in stores.kinds().iter().zip(outcomes) {
        println!("outcomes in {}:\n  {}", store.name(), outcomes.lines().join("\n  "));
        let missing = outcomes.missing();
        let is_free = options.without.is_empty() && options.without_intents.is_empty();
        ensure!(
            missing.is_empty() || !(is_whole && is_free),
            "never played in {}: {}; draw it more often where it can be",
            store.name(),
            missing.join(", ")
        );
    }
    Ok(())
}

/// Plays the first seed of each outcome on both stores: none of them is seen in memory alone.
fn on_both(options: &Options, firsts: &[SimOptions]) -> anyhow::Result<()> {
    let stores = Stores::Both;
    let mut outcomes = vec![Outcomes::default(); stores.kinds().len()];
    let mut wrong = Vec::new();
    play_all(firsts, stores, |one, done| {
        outcomes.iter_mut().zip(&done.outcomes).for_each(|(sum, one)| sum.add(one));
        wrong.extend(done.wrong().into_iter().map(|words| format!("seed {}: {words}", one.seed)));
        false
    })?;
    ensure!(wrong.is_empty(), "on both stores: {}", wrong.join("; "));
    println!("{} of these seeds, which have every outcome, on both stores with the same trace:", firsts.len());
    told_outcomes(options, stores, &outcomes, true)
}

/// What came of it, for the documentation.
fn page(options: &Options, made: &Made, sum: &str, counts: &Counts, first_seeds: &FirstSeeds) -> String {
    let stores = options.store.kinds().len() as u64;
    format!(
        "# Simulation\n\nWritten by `{}`; what is simulated and what must hold is in\n[testing.md](testing.md).\n\n{}\n\n{sum}.\n\nOn the way: \
         {}.\n{}{}",
        made.command(),
        made.line(),
        in_words(counts),
        asked_before(counts, options.seeds * stores, first_seeds, stores),
        read_before()
    )
}

/// What reading had found, with the first seed that shows it in the core of [`BEFORE`]: finding, name, seed.
const READ: [(&str, &str, u64); 10] = [
    ("1a", "refused-after-loss-in-scope", 12),
    ("1b", "refused-after-loss-asked-again", 79),
    ("1c", "refused-after-loss-expired-key", 1156),
    ("1d", "refused-after-loss-told-a-person", 224),
    ("2", "sub-agents-are-not-seen-beside", 6),
    ("3", "restore-forgets-the-family", 73),
    ("4a, 4b", "abort-beside-another-question", 62),
    ("4c", "abort-of-the-run-closed-first", 58),
    ("4d", "approval-thrown-away", 81),
    ("5", "failed-first-then-done-beside", 1915),
];

/// The last commit before any of it was mended.
const BEFORE: &str = "b4201c4";

/// The simulations that the page of [`BEFORE`] is about, their questions about calls, and their effects. All on one store; its first seeds
/// are 1 to [`STANDARD_SEEDS`].
const ASKED_BEFORE: (u64, u64, u64) = (603, 2_103, 4_279);

/// The simulations of a round that have the seeds which the page of [`BEFORE`] had.
#[derive(Debug, Default)]
struct FirstSeeds {
    simulations: u64,
    counts: Counts,
}

impl FirstSeeds {
    /// Counts a simulation, if it is one of them.
    fn add(&mut self, seed: u64, counts: &Counts) {
        if (1..=STANDARD_SEEDS).contains(&seed) {
            self.simulations += 1;
            self.counts.add(counts);
        }
    }
}

/// A number with two places behind the point.
fn ratio(part: u64, whole: u64) -> String {
    let hundredths = part.saturating_mul(100) / whole.max(1);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// How often a person was asked in so many simulations.
fn asked(counts: &Counts, simulations: u64) -> String {
    let Counts { questions, effects, in_doubt, beside, .. } = counts;
    format!(
        "{} a simulation and {} an effect, {} and {} of them whether a call happened, {} and {} whether it repeats another one",
        ratio(*questions, simulations),
        ratio(*questions, *effects),
        ratio(*in_doubt, simulations),
        ratio(*in_doubt, *effects),
        ratio(*beside, simulations),
        ratio(*beside, *effects)
    )
}

/// The part of the page about how often a person was asked before, and is now.
fn asked_before(counts: &Counts, simulations: u64, first_seeds: &FirstSeeds, stores: u64) -> String {
    let (times, questions, effects) = ASKED_BEFORE;
    let of_first = if first_seeds.simulations == STANDARD_SEEDS {
        let asked = asked(&first_seeds.counts, STANDARD_SEEDS * stores);
        format!("In seeds 1 to {STANDARD_SEEDS} alone, which were the first there, too, it is\n{asked}.\n")
    } else {
        String::new()
    };
    format!(
        "\n## Questions before and after\n\nThe page of commit {BEFORE} has {questions} questions about calls and {effects} effects in {times} \
         simulations of one store: {} questions\na simulation, {} an effect. Here it is\n{}.\n{of_first}\n{COMPARED}\n\nMore is asked: whether a call \
         happened of which a later attempt was refused (it was called failed); whether a call repeats what a\nsub-agent, a fork or a parent did (nobody \
         looked); before a call that was refused is tried again, if another one may have done it\nmeanwhile; and once more when something else would be \
         sent than was shown, or *it did not happen* was said before it could be\nknown. Less is asked: about a twin that is under way in the same tree \
         (it is waited for), and about an earlier tool server that\nis still alive (once).\n",
        ratio(questions, times),
        ratio(questions, effects),
        asked(counts, simulations),
    )
}

/// What the numbers of then and of now can be compared in.
const COMPARED: &str = "\
    What can be compared is how many questions an effect costs. The same seed is not the same story: what happens next is drawn from lists that have\n\
    grown since, and jobs, people and faults are drawn that there were not, so neither the effects nor the questions of a seed are those of then. That\n\
    this part or that is asked more often is no measure of the core alone either: what it is asked about is drawn more often or less.";

/// The part of the page about what reading had found. All of it is mended, so that only a program of that commit shows it.
fn read_before() -> String {
    let mut text = format!(
        "\n## What reading had found\n\nFindings 1 to 5 were found by reading, and are mended. The simulation of commit {BEFORE}, the last one before \
         that, finds each without a scripted case. Seeds\nare counted from 1, so the number of the seed is how many it took; what else it found is \
         in [found-by-search.md](found-by-search.md).\n\n| finding | name | seeds until it was seen | command in `git worktree add \
         /tmp/before {BEFORE}` |\n|---|---|---|---|\n"
    );
    for (finding, name, seed) in READ {
        text.push_str(&format!(
            "| {finding} | `{name}` | {seed} | `cargo xtask sim --seed {seed} --seeds 1 --trace` |\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_seeds_are_compared_and_only_when_all_were_played() {
        let one = Counts { questions: 3, effects: 6, in_doubt: 1, beside: 2, ..Counts::default() };
        let (mut first_seeds, mut all) = (FirstSeeds::default(), Counts::default());
        for seed in 1..=STANDARD_SEEDS + 10 {
            first_seeds.add(seed, &one);
            all.add(&one);
        }
        assert_eq!(first_seeds.simulations, STANDARD_SEEDS);
        let told = asked_before(&all, STANDARD_SEEDS + 10, &first_seeds, 1);
        let each = "3.00 a simulation and 0.50 an effect, 1.00 and 0.16 of them whether a call happened, 2.00 and 0.33 whether";
        assert_eq!(told.matches(each).count(), 2, "{told}");
        let told = asked_before(&all, STANDARD_SEEDS + 10, &FirstSeeds::default(), 1);
        assert_eq!(told.matches(each).count(), 1, "{told}");
    }
}
