//! Every test that docs/security.md names exists, and every threat has one.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use ua_testkit::workspace_root;

/// The names of all functions in Rust files below `folder`.
fn functions(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            functions(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            names.extend(text.split("fn ").skip(1).filter_map(|rest| rest.split('(').next()).map(str::to_owned));
        }
    }
}

#[test]
fn every_test_that_the_security_page_names_exists_and_every_threat_has_one() {
    let root = workspace_root();
    let mut names = BTreeSet::new();
    for folder in ["crates", "tests", "xtask"] {
        functions(&root.join(folder), &mut names);
    }
    let page = fs::read_to_string(root.join("docs/security.md")).unwrap();
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| S"))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    let threats: Vec<String> = rows.iter().map(|row| row[1].to_owned()).collect();
    assert_eq!(threats, (1..=22).map(|number| format!("S{number}")).collect::<Vec<_>>());
    for row in &rows {
        let tests: Vec<&str> = row[4].split('`').skip(1).step_by(2).collect();
        assert!(!tests.is_empty(), "{} has no test", row[1]);
        for test in tests {
            assert!(names.contains(test), "{}: there is no test `{test}`", row[1]);
        }
    }
}
