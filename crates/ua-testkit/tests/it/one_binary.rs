//! A crate has one binary of integration tests, and every file below its `tests` is part of it.
//!
//! Each `main.rs` of them takes this file in by its path, so that crates that `ua-testkit` depends on need no dependency on it.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]
// Some of the crates that take it in refuse what opens files by their paths, others do not.
#![allow(clippy::disallowed_methods, reason = "it reads the sources of the tests")]

use std::fs;
use std::path::{Path, PathBuf};

/// The files and folders directly in `folder`.
fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Fails unless `parent` declares each file of `folder`, and each of those the files of the folder of its own name.
fn declares(parent: &Path, folder: &Path) {
    let source = fs::read_to_string(parent).unwrap_or_else(|error| panic!("{}: {error}", parent.display()));
    for path in entries(folder) {
        if path.is_dir() {
            declares(&path.with_extension("rs"), &path);
        } else if path != parent && path.extension().is_some_and(|extension| extension == "rs") {
            let declaration = format!("mod {};", path.file_stem().unwrap().to_string_lossy());
            assert!(source.lines().any(|line| line == declaration), "{}: no `{declaration}`", parent.display());
        }
    }
}

/// A file without its `mod` line is a test that never runs; a file beside the folder of the binary is one more program to link.
#[test]
fn every_file_is_a_module_of_the_one_binary() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let binaries = entries(&tests);
    assert_eq!(binaries.len(), 1, "{binaries:?}");
    for binary in binaries {
        declares(&binary.join("main.rs"), &binary);
    }
}
