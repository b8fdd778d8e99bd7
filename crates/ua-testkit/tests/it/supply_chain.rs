//! What dependencies may be is said in `deny.toml` and checked by cargo-deny; here, that it is asked (threat S21).

use std::fs;

use ua_testkit::workspace_root;

/// Commands of Cargo that choose versions where the lock file is not binding.
const CHOOSING: [&str; 10] =
    ["build", "check", "clippy", "deny", "doc", "install", "metadata", "package", "run", "test"];

/// The checks of cargo-deny.
const CHECKS: [&str; 4] = ["advisories", "bans", "licenses", "sources"];

#[test]
fn s21_ci_asks_cargo_deny_for_every_check_and_each_of_its_steps_is_locked() {
    let script = |name: &str| fs::read_to_string(workspace_root().join(".ci").join(name)).unwrap();
    let ci = ["run", "nightly", "prepare"].map(script).concat();
    let chooses = |line: &&str| CHOOSING.iter().any(|command| line.contains(&format!("cargo {command} ")));
    let calls: Vec<&str> = ci.lines().filter(chooses).filter(|line| !line.trim_start().starts_with('#')).collect();
    let asks = |check: &str| {
        let is_check = |line: &&str| line.contains("cargo deny ") && line.split_whitespace().any(|word| word == check);
        calls.iter().any(is_check)
    };
    for check in CHECKS {
        assert!(asks(check), "`cargo deny` is not asked for {check}");
    }
    for line in &calls {
        assert!(line.contains("--locked"), "{line}");
    }
    assert!(calls.len() > 20, "only {} commands were found: the scripts are not read right", calls.len());
}

#[test]
fn s21_no_ban_is_written_in_the_form_that_never_applies() {
    let rules = fs::read_to_string(workspace_root().join("deny.toml")).unwrap();
    // Behind an `@`, cargo-deny takes the number for an exact version, whatever sign stands before it.
    let is_vain = |line: &&str| {
        line.trim_start().starts_with('{') && ["@<", "@>", "@^", "@~"].iter().any(|sign| line.contains(sign))
    };
    assert_eq!(rules.lines().filter(is_vain).collect::<Vec<_>>(), [""; 0]);
}
