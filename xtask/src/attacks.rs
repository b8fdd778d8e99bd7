//! Attacks as black-box scenarios: each plays one way in which a model's program, a tool server, a checkout, a job file or a page got further than
//! it may, and says which wall held or which one fell.
//!
//! An attack uses what an attacker has: programs that `run_command` starts, tool servers of their own, files of a checkout or a job, names. It runs
//! in a throwaway home, with attackers in `sh` and Python. What it judges by is outside: a file of the user, a process of the user, an effect, an
//! exit code, bytes on the screen.
//!
//! The numbers are those of the audit of 56b80e7, against whose build every one of them is red (`--ua PATH --expect red`); a letter behind the number
//! is another door of the same class, `x` one that was not in the audit. One that stands is marked as known, by name.

mod adopted;
mod as_user;
mod dialogue;
mod files;
mod inherit;
mod later;
mod limits;
mod placed;
mod pulls;
mod python;
mod readers;
mod sandbox;
mod trust;
mod words;

use crate::scenario::{Options, Scenario};

/// Every attack, by classes.
fn attacks() -> Vec<Scenario> {
    [
        files::ATTACKS,
        dialogue::ATTACKS,
        inherit::ATTACKS,
        sandbox::ATTACKS,
        trust::ATTACKS,
        words::ATTACKS,
        readers::ATTACKS,
        placed::ATTACKS,
        limits::ATTACKS,
        later::ATTACKS,
        pulls::ATTACKS,
        adopted::ATTACKS,
    ]
    .into_iter()
    .flat_map(|class| class.iter().copied())
    .collect()
}

/// The numbers of what nothing but the kernel's walls keeps in, with whatever letter is behind them.
const BEHIND_WALLS: [&str; 5] = ["2b", "10", "16", "17", "18"];

/// Whether an attack is kept in by the kernel's walls alone.
fn needs_walls(number: &str) -> bool {
    BEHIND_WALLS.contains(&number) || BEHIND_WALLS.contains(&number.trim_end_matches(|c: char| c.is_ascii_lowercase()))
}

/// Plays them.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    match &options.as_user {
        Some(user) if !options.list => as_user::play(user, options),
        Some(_) | None => crate::scenario::run(options, attacks(), needs_walls),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_number_names_one_attack_and_no_finding_is_left_out() {
        let all = attacks();
        let numbers: BTreeSet<&str> = all.iter().map(|attack| attack.number).collect();
        assert_eq!(numbers.len(), all.len());
        let findings: BTreeSet<u32> = numbers
            .iter()
            .filter_map(|number| number.trim_end_matches(|c: char| c.is_ascii_lowercase()).parse().ok())
            .collect();
        assert_eq!(findings, (1..=23).collect());
        for number in BEHIND_WALLS {
            assert!(numbers.contains(number), "{number}");
        }
        for (number, needs) in [("2b", true), ("2", false), ("10x", true), ("1", false), ("1w", false), ("18x", true)] {
            assert_eq!(needs_walls(number), needs, "{number}");
        }
    }
}
