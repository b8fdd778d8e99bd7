//! Simulations that seeds draw.

use std::fs;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use ua_testkit::sim::{Counts, SimOptions};

use super::{Options, Stores, in_words, play_all};

pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let broken = options.broken()?;
    let of_seed = |seed| SimOptions { broken, deaths: options.deaths.clone(), ..SimOptions::of_seed(seed) };
    let list: Vec<SimOptions> = (options.seed..options.seed.saturating_add(options.seeds)).map(of_seed).collect();
    let start = Instant::now();
    let (mut counts, mut wrong, mut played, mut seen) = (Counts::default(), Vec::new(), 0_u64, None);
    play_all(&list, options.store, |one, done| {
        played += 1;
        counts.add(&done.counts);
        if options.trace {
            println!("seed {}:\n{}", one.seed, done.trace.join("\n"));
            done.violations.iter().for_each(|words| println!("wrong: {words}"));
        }
        let Some(first) = done.violations.first() else { return false };
        if broken.is_some() {
            seen = Some((one.seed, first.clone()));
            return true;
        }
        eprintln!("wrong: seed {}: {}", one.seed, done.violations.join("; "));
        eprintln!("       again: cargo xtask sim --seed {} --seeds 1 {} --trace", one.seed, options.flags());
        wrong.push(one.seed);
        wrong.len() >= 5
    })?;
    if let Some(rule) = broken {
        let (seed, words) =
            seen.with_context(|| format!("the broken rule `{}` went unnoticed in {played} simulations", rule.name()))?;
        println!(
            "the broken rule `{}` was seen within {played} simulations, as it must be; for example seed {seed}: {words}",
            rule.name()
        );
        return Ok(());
    }
    ensure!(wrong.is_empty(), "{} of {played} simulations went wrong", wrong.len());
    let each = if options.store == Stores::Both { ", each on both stores with the same trace" } else { "" };
    let sum = format!("{played} simulations{each}: 0 duplicates, 0 lost, 0 wrong records, all ended");
    println!("{sum}\n{}\nin {:.1} s, seeds from {}", in_words(&counts), start.elapsed().as_secs_f64(), options.seed);
    if let Some(path) = &options.write {
        let page = format!("{PAGE}\n{sum}.\n\nOn the way: {}.\n", in_words(&counts));
        fs::write(path, page).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

const PAGE: &str = "# Simulation\n\nWritten by `cargo xtask sim --seeds N --store both --write docs/simulation.md`; what is simulated \
                    and what must hold is in\n[testing.md](testing.md).\n";

impl Options {
    /// The flags that shape a simulation, as they were given.
    fn flags(&self) -> String {
        let mut flags = String::from(match self.store {
            Stores::Memory => "--store memory",
            Stores::Sqlite => "--store sqlite",
            Stores::Both => "--store both",
        });
        if let Some(deaths) = &self.deaths {
            let deaths: Vec<String> = deaths.iter().map(u64::to_string).collect();
            flags.push_str(&format!(" --deaths {}", deaths.join(",")));
        }
        flags
    }
}
