//! What is not looked at on this machine, said where somebody reads it.
//!
//! A test that lacks something passes, and libtest keeps to itself what a passing test prints. So this is written past it, and into the list with
//! which `.ci/run` and `.ci/nightly` end. A test of this crate refuses other ways to say it.
//!
//! Other crates' tests take this file in as it is, so it needs nothing but the standard library.

#![allow(
    clippy::disallowed_methods,
    reason = "some of the crates that take it in refuse what opens files by their paths"
)]

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;

/// Names the list: a line each, with the reason, a tab, and who said it.
const LIST: &str = "CI_SKIPPED";

/// Says that the test or lane that calls this does not look at something, and why.
pub fn skipped(why: &str) {
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    let who = who();
    tell(&format!("SKIPPED {who}: {why}\n"));
    if let Some(list) = std::env::var_os(LIST) {
        let listed = add(Path::new(&list), &format!("{why}\t{who}\n"));
        // A test that runs as another user may not write there.
        if let Err(error) = listed {
            tell(&format!("and {LIST} cannot be written: {error}\n"));
        }
    }
}

/// One write to standard error itself: `eprintln!` goes where the output of a test goes.
fn tell(line: &str) {
    io::stderr().write_all(line.as_bytes()).unwrap_or_default();
}

/// One write, since many processes do this at once.
fn add(list: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().append(true).open(list)?.write_all(line.as_bytes())
}

/// The test, which is the name of its thread, or the program and its task.
fn who() -> String {
    let thread = std::thread::current();
    if let Some(name) = thread.name().filter(|name| *name != "main") {
        return name.to_owned();
    }
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let program = words.next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    words.next().map_or_else(|| program.to_owned(), |task| format!("{program} {task}"))
}
