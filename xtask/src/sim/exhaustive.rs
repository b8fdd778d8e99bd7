//! Every death and every second death: one mixed job dies at each gate of its first life, and again at each gate of the recovery.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use ua_testkit::sim::SimOptions;

use crate::part::Part;

use super::{Options, in_words, play, play_all};

pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let broken = options.broken()?;
    let dying_at = |deaths: Vec<u64>| SimOptions { broken, deaths: Some(deaths), ..SimOptions::of_seed(options.seed) };
    let start = Instant::now();
    let gates = |played: &super::Played, life: usize| played.gates.get(life).copied().unwrap_or(0);
    let whole = play(&dying_at(Vec::new()), options.store)?;
    ensure!(broken.is_some() || whole.wrong().is_empty(), "without a death: {}", whole.wrong().join("; "));

    let first: Vec<u64> = (0..gates(&whole, 0)).step_by(options.stride.max(1)).collect();
    let part = options.part.unwrap_or(Part::WHOLE);
    let first = first.into_iter().enumerate().filter(|(index, _)| part.holds(*index));
    let first: Vec<SimOptions> = first.map(|(_, at)| dying_at(vec![at])).collect();
    let (mut counts, mut wrong, mut second) = (whole.counts, Vec::new(), Vec::new());
    let mut note = |one: &SimOptions, violations: &[String]| {
        let Some(words) = violations.first() else { return };
        let deaths: Vec<String> = one.deaths.iter().flatten().map(u64::to_string).collect();
        wrong.push(format!("--deaths {}: {words}", deaths.join(",")));
    };
    play_all(&first, options.store, |one, done| {
        counts.add(&done.counts);
        note(one, &done.wrong());
        if options.trace {
            println!("{:?}:\n{}", one.deaths, done.trace.join("\n"));
        }
        let at = one.deaths.iter().flatten().copied().next().unwrap_or(0);
        second.extend((0..gates(&done, 1)).map(|again| dying_at(vec![at, again])));
        false
    })?;
    play_all(&second, options.store, |one, done| {
        counts.add(&done.counts);
        note(one, &done.wrong());
        false
    })?;
    let played = 1 + first.len() + second.len();
    if let Some(rule) = broken {
        let example = wrong.first().with_context(|| format!("the broken rule `{}` went unnoticed", rule.name()))?;
        println!(
            "the broken rule `{}` was seen in {} of {played} simulations, as it must be; for example {example}",
            rule.name(),
            wrong.len()
        );
        return Ok(());
    }
    for words in wrong.iter().take(5) {
        eprintln!("wrong: {words}");
        let deaths = words.split(':').next().unwrap_or_default();
        eprintln!("       again: cargo xtask sim --seed {} --seeds 1 {deaths} --trace", options.seed);
    }
    ensure!(wrong.is_empty(), "{} of {played} simulations went wrong", wrong.len());
    println!(
        "{} first deaths, {} second deaths: 0 duplicates, 0 lost, 0 wrong records\n{}\nin {:.1} s",
        first.len(),
        second.len(),
        in_words(&counts),
        start.elapsed().as_secs_f64()
    );
    Ok(())
}
