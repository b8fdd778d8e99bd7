//! The simulation: it is decided by its seed alone, it finds nothing wrong, and it sees broken rules.

use ua_testkit::BrokenRule;
use ua_testkit::sim::{Report, SimOptions, SimStore, simulate};

/// Where the seeds begin; `UA_SEED` says otherwise.
fn first_seed() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "a test takes its seed from the environment")]
    std::env::var("UA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

/// What is wrong, in words.
fn wrong(report: &Report) -> Vec<String> {
    report.violations.iter().map(ToString::to_string).collect()
}

#[test]
fn nothing_is_wrong_whatever_a_seed_draws() {
    for seed in first_seed()..first_seed() + 40 {
        let report = simulate(&SimOptions::of_seed(seed)).unwrap();
        assert_eq!(wrong(&report), Vec::<String>::new(), "seed {seed}:\n{}", report.trace.join("\n"));
    }
}

#[test]
fn a_seed_gives_the_same_trace_each_time_and_on_either_store() {
    for seed in first_seed()..first_seed() + 12 {
        let first = simulate(&SimOptions::of_seed(seed)).unwrap();
        assert_eq!(simulate(&SimOptions::of_seed(seed)).unwrap(), first, "seed {seed}");
        let sqlite = simulate(&SimOptions { store: SimStore::Sqlite, ..SimOptions::of_seed(seed) }).unwrap();
        assert_eq!(sqlite, first, "seed {seed} on SQLite");
    }
}

/// Runs are deleted at any moment, with force and without, and their forks and what is left of the family hold to the same on both stores.
#[test]
fn runs_are_deleted_and_nothing_is_wrong() {
    let (mut words, mut played, mut seed) = (std::collections::BTreeSet::new(), 0, first_seed());
    while played < 12 {
        let first = simulate(&SimOptions::of_seed(seed)).unwrap();
        let deletions: Vec<&str> =
            first.trace.iter().filter_map(|line| Some(line.split_once("a person deletes ")?.1)).collect();
        if !deletions.is_empty() {
            assert_eq!(wrong(&first), Vec::<String>::new(), "seed {seed}:\n{}", first.trace.join("\n"));
            let sqlite = simulate(&SimOptions { store: SimStore::Sqlite, ..SimOptions::of_seed(seed) }).unwrap();
            assert_eq!(sqlite, first, "seed {seed} on SQLite");
            words.extend(
                deletions
                    .iter()
                    .filter_map(|line| Some(line.split_once(", ")?.1.trim_start_matches("which is ").to_owned())),
            );
            played += 1;
        }
        seed += 1;
        assert!(seed < first_seed() + 400, "deletions are rare: {played}");
    }
    assert!(
        words.iter().any(|how| how.ends_with("with force")) && words.iter().any(|how| how.ends_with("without force")),
        "{words:?}"
    );
}

#[test]
fn seeds_differ() {
    let digest = |seed| simulate(&SimOptions::of_seed(seed)).unwrap().digest;
    assert_ne!(digest(1), digest(2));
}

#[test]
fn what_is_left_out_does_not_happen() {
    let whole = simulate(&SimOptions::of_seed(3)).unwrap();
    assert!(whole.harmful > 0 && whole.intents.len() > 1, "{whole:?}");
    let without = (1..=whole.harmful * 4).collect();
    let without_intents = whole.intents[1..].to_vec();
    let smaller = simulate(&SimOptions { without, without_intents, ..SimOptions::of_seed(3) }).unwrap();
    assert_eq!((smaller.intents.len(), smaller.counts.deaths), (1, 0));
    assert!(smaller.trace.len() < whole.trace.len());
}

fn is_seen(rule: BrokenRule, seeds: std::ops::Range<u64>) -> bool {
    let broken = Some(rule);
    seeds.into_iter().any(|seed| {
        !wrong(&simulate(&SimOptions { broken, ..SimOptions::of_seed(seed) }).unwrap_or_else(|e| panic!("{e}")))
            .is_empty()
    })
}

#[test]
fn a_store_that_writes_running_after_the_dispatch_is_seen() {
    assert!(is_seen(BrokenRule::RunningAfterDispatch, 1..60), "the broken order of intent and act went unnoticed");
}

#[test]
fn sub_agents_that_start_again_are_seen() {
    assert!(is_seen(BrokenRule::ChildrenStartAgain, 1..120), "sub-agents that are started anew went unnoticed");
}

#[test]
fn a_run_that_asks_again_for_what_was_refused_for_good_is_seen() {
    assert!(is_seen(BrokenRule::RefusalsPass, 1..120), "refusals that count as what passes went unnoticed");
}
