//! Pages that name tests as their proof: each test has to exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

/// The pages whose every word in backticks that reads like the name of a test is one.
const PAGES: [&str; 1] = ["docs/faults.md"];

/// Fewer words than this make no sentence.
const MIN_WORDS: usize = 4;

/// The names on a page that read like those of tests: lower-case words, joined by underscores, in backticks.
fn named(page: &str) -> impl Iterator<Item = &str> {
    let is_name = |text: &&str| {
        let plain = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        plain && text.split('_').count() >= MIN_WORDS
    };
    page.split('`').skip(1).step_by(2).filter(is_name)
}

/// Every function below `folder`, tests among them.
fn functions(folder: &Path, found: &mut BTreeSet<String>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            functions(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path)?;
            let after = source.split("fn ").skip(1);
            found.extend(after.filter_map(|rest| rest.split(['(', '<']).next()).map(str::to_owned));
        }
    }
    Ok(())
}

#[test]
fn every_test_that_a_page_names_exists() -> anyhow::Result<()> {
    let root = ua_testkit::workspace_root();
    let mut known = BTreeSet::new();
    for folder in ["crates", "tests", "xtask"] {
        functions(&root.join(folder), &mut known)?;
    }
    for page in PAGES {
        let text = fs::read_to_string(root.join(page)).with_context(|| format!("read {page}"))?;
        let missing: Vec<&str> = named(&text).filter(|name| !known.contains(*name)).collect();
        assert!(missing.is_empty(), "{page} names tests that do not exist: {missing:#?}");
        assert!(named(&text).count() > 30, "{page} is not read right");
    }
    Ok(())
}

#[test]
fn only_sentences_in_backticks_are_names_of_tests() {
    let page = "`a_test_of_four words`, `a_test_of_four` and `job_key`, not a_test_of_five";
    assert_eq!(named(page).collect::<Vec<_>>(), ["a_test_of_four"]);
}
