//! The simulation: it is decided by its seed alone, it finds nothing, and it sees each broken rule.

use ua_testkit::BrokenRule;
use ua_testkit::sim::{SimOptions, SimStore, simulate};

/// Where the seeds begin; `UA_SEED` says otherwise.
fn first_seed() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "a test takes its seed from the environment")]
    std::env::var("UA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

#[test]
fn nothing_is_done_twice_or_lost_whatever_a_seed_draws() {
    for seed in first_seed()..first_seed() + 40 {
        let report = simulate(&SimOptions::of_seed(seed)).unwrap();
        assert_eq!(report.violations, Vec::<String>::new(), "seed {seed}:\n{}", report.trace.join("\n"));
    }
}

#[test]
fn a_seed_gives_the_same_trace_each_time_and_on_either_store() {
    for seed in first_seed()..first_seed() + 8 {
        let first = simulate(&SimOptions::of_seed(seed)).unwrap();
        assert_eq!(simulate(&SimOptions::of_seed(seed)).unwrap(), first, "seed {seed}");
        let sqlite = simulate(&SimOptions { store: SimStore::Sqlite, ..SimOptions::of_seed(seed) }).unwrap();
        assert_eq!(sqlite, first, "seed {seed} on SQLite");
    }
}

#[test]
fn seeds_differ() {
    let digest = |seed| simulate(&SimOptions::of_seed(seed)).unwrap().digest;
    assert_ne!(digest(1), digest(2));
}

#[test]
fn a_store_that_writes_running_after_the_dispatch_is_seen() {
    let broken = Some(BrokenRule::RunningAfterDispatch);
    let seen = |seed| !simulate(&SimOptions { broken, ..SimOptions::of_seed(seed) }).unwrap().violations.is_empty();
    assert!((1..60).any(seen), "the broken order of intent and act went unnoticed");
}
