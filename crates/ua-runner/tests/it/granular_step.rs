//! The example `granular_step`, killed at each of its moments and started again: what it did is counted in files.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
#![expect(clippy::unwrap_used, reason = "a test ends with a panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use ua_testkit::example_program;

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| example_program("granular_step"))
}

fn run(folder: &Path, arguments: &[&str]) -> (Output, String) {
    let output = Command::new(program()).arg(folder).args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    (output, text)
}

fn lines(folder: &Path, file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Kills the example once for each list of arguments, then lets it finish.
fn killed_at(deaths: &[&[&str]]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    for death in deaths {
        let (output, text) = run(folder.path(), death);
        assert_eq!(output.status.code(), None, "{death:?} ends by a signal: {text}");
        assert!(!text.contains("complete after"), "{death:?}: {text}");
    }
    let (output, text) = run(folder.path(), &[]);
    assert!(output.status.success(), "{deaths:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    (folder, text)
}

#[test]
fn a_step_that_is_killed_anywhere_is_finished_by_running_it_again() {
    let after = |turn| ["--die-after-turn", turn];
    let [first, second, third] = ["1", "2", "3"].map(after);
    let in_tool: &[&str] = &["--die-in-tool"];
    let deaths: [&[&[&str]]; 6] = [&[], &[&first], &[&second], &[&third], &[in_tool], &[in_tool, &second, &third]];
    for deaths in deaths {
        let (folder, text) = killed_at(deaths);
        let invoices = lines(folder.path(), "invoices.txt");
        assert_eq!(invoices.len(), 1, "{deaths:?}: {invoices:?}");
        assert!(invoices[0].ends_with(" order A-17"), "{deaths:?}: {invoices:?}");
        assert_eq!(lines(folder.path(), "reads.txt").len(), 1, "{deaths:?}");
        let end = "complete after 3 turns and 3 requests: \"The invoice for order A-17 is on its way.\"";
        assert!(text.contains(end), "{deaths:?}: {text}");
    }
}

#[test]
fn a_resume_says_what_it_does_not_repeat() {
    let (_folder, text) = killed_at(&[&["--die-after-turn", "2"]]);
    for line in ["not repeated: turn 1", "not repeated: turn 2", "found: send_invoice of turn 2, succeeded, attempt 1"]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("turn 1 is committed") && text.contains("turn 3 is committed"), "{text}");
}

#[test]
fn a_lost_call_is_made_again_under_its_key_and_the_tool_recognises_it() {
    let (folder, text) = killed_at(&[&["--die-in-tool"]]);
    assert!(text.contains("found: send_invoice of turn 2, running, attempt 1"), "{text}");
    let sent = lines(folder.path(), "invoices.txt").remove(0);
    let key = sent.split(' ').next().unwrap();
    assert!(text.contains(&format!("not repeated: the invoice with the key {key}")), "{text}");
}

#[test]
fn a_finished_step_says_its_result_again_and_does_nothing() {
    let (folder, first) = killed_at(&[]);
    let (output, text) = run(folder.path(), &[]);
    assert!(output.status.success());
    assert!(text.contains(first.lines().last().unwrap()), "{text}");
    assert!(!text.contains("is committed"), "{text}");
    assert_eq!((lines(folder.path(), "invoices.txt").len(), lines(folder.path(), "reads.txt").len()), (1, 1));
}
