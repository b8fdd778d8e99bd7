//! Whatever is not looked at says so in one way, which nothing swallows.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ua_testkit::docs::Sources;
use ua_testkit::{skipped, workspace_root};

#[test]
fn what_is_skipped_is_said_past_the_capture_of_tests_and_listed() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list");
    fs::write(&list, "").unwrap();
    let mut tests = Command::new(std::env::current_exe().unwrap());
    tests.args(["--exact", "skips::something_that_is_not_looked_at", "--include-ignored"]);
    let output = tests.env("CI_SKIPPED", &list).env_remove("RUST_TEST_NOCAPTURE").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let line = |text: &str| text.lines().filter(|line| line.contains("there is no moon")).count();
    assert!(said.starts_with("SKIPPED ") && line(&said) == 1, "{said}");
    let listed = fs::read_to_string(&list).unwrap();
    assert!(listed.starts_with("there is no moon\t") && line(&listed) == 1, "{listed}");
    assert!(!said.contains("what a passing test prints"), "this is not what libtest does any more: {said}");
}

#[test]
#[ignore = "another test runs it, in a process of its own"]
fn something_that_is_not_looked_at() {
    eprintln!("what a passing test prints");
    skipped("there is\n  no moon");
}

/// The lines in which something is printed that begins with the word, as a test would once have said it.
fn said_in_another_way(source: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for print in ["print!(", "println!("] {
        for (at, _) in source.match_indices(print) {
            let said = source[at + print.len()..].trim_start();
            let is_it = said.strip_prefix('"').is_some_and(|said| {
                said.get(..4).is_some_and(|word| word.eq_ignore_ascii_case("skip")) || said.starts_with("not run")
            });
            if is_it {
                found.push(1 + source[..at].matches('\n').count());
            }
        }
    }
    found
}

#[test]
fn nothing_says_in_another_way_that_it_is_skipped() {
    let root = workspace_root();
    let mut wrong = Vec::new();
    let sources = Sources::read();
    for file in sources.files() {
        let text = fs::read_to_string(root.join(file)).unwrap();
        wrong.extend(said_in_another_way(&text).into_iter().map(|line| format!("{file}:{line}")));
    }
    assert_eq!(wrong, [""; 0], "call `ua_testkit::skipped`: nobody sees what a passing test prints");
}

#[test]
fn another_way_to_say_it_is_seen() {
    let source = "a();\neprintln!(\"skipped: no moon\");\nprintln!(\n    \"SKIPPED\"\n);\neprintln!(\"it skips\");\n";
    assert_eq!(said_in_another_way(source), [2, 3]);
}

/// What a run left out is read by whoever reads its last lines.
#[test]
fn both_scripts_end_with_what_this_machine_lacks() {
    let script = |name: &str| fs::read_to_string(workspace_root().join(".ci").join(name)).unwrap();
    let prepare = script("prepare");
    assert!(prepare.contains("export CI_SKIPPED\n"), "tests and lanes have no list");
    for name in ["run", "nightly", "prepare"] {
        let text = script(name);
        let lines = text.lines().enumerate().filter(|(_, line)| line.contains("echo ") && !line.contains("echo \"$"));
        let wrong: Vec<_> = lines.filter(|(_, line)| line.to_lowercase().contains("skipped")).collect();
        let known = usize::from(name == "prepare");
        assert_eq!(wrong.len(), known, ".ci/{name}: call `skip`: {wrong:?}");
    }
    let finish = prepare.split("\nfinish() {").nth(1).unwrap().split("\n}\n").next().unwrap();
    assert!(finish.trim_end().ends_with("\"$CI_SKIPPED\"\n    fi"), "the list is not the end of it");
}

/// Runs functions of `.ci/prepare` in a folder with a copy of it, and gives what they printed.
fn prepared(folder: &Path, script: &str) -> String {
    let ci = folder.join(".ci");
    fs::create_dir_all(&ci).unwrap();
    fs::copy(workspace_root().join(".ci/prepare"), ci.join("prepare")).unwrap();
    let run = ci.join("run");
    fs::write(&run, format!("LIMIT=1m\n. \"$(dirname \"$0\")/prepare\"\n{script}\n")).unwrap();
    let mut bash = Command::new("bash");
    bash.arg(&run).env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", folder);
    bash.env("CARGO_HOME", folder.join("cargo")).env("RUSTFLAGS", "-Copt-level=3").env("UA_BUILT", "/elsewhere");
    bash.env("CARGO_BUILD_RUSTC_WRAPPER", "wrapper").env("https_proxy", "http://127.0.0.1:1");
    let output = bash.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_fresh_run_takes_nothing_of_the_shell_but_how_others_are_reached() {
    let folder = tempfile::tempdir().unwrap();
    let cargo = folder.path().join("cargo");
    fs::create_dir(&cargo).unwrap();
    let config = "http.timeout = 9\nbuild.jobs = 1\n[build]\nrustflags = [\"-Cx\"]\n[source.crates-io]\nreplace-with = \"near\"\n\
                  [target.x86_64-unknown-linux-gnu]\nlinker = \"ld\"\n[registries.near]\nindex = \"sparse+https://near/\"\n[env]\nA = \"1\"\n";
    fs::write(cargo.join("config.toml"), config).unwrap();
    let said = prepared(folder.path(), "env | sort; echo config:; cat \"$CARGO_HOME/config.toml\"");
    let (variables, kept) = said.split_once("config:\n").unwrap();
    let of = |name: &str| variables.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    assert_eq!((of("RUSTFLAGS"), of("UA_BUILT"), of("CARGO_BUILD_RUSTC_WRAPPER")), (None, None, None), "{said}");
    assert_eq!(of("https_proxy"), Some("http://127.0.0.1:1"));
    assert_ne!(of("CARGO_HOME").map(PathBuf::from), Some(cargo));
    let wanted = "http.timeout = 9\n[source.crates-io]\nreplace-with = \"near\"\n[registries.near]\nindex = \"sparse+https://near/\"\n";
    assert_eq!(kept, wanted);
}

#[test]
fn the_last_lines_of_a_run_are_what_it_did_not_look_at() {
    let folder = tempfile::tempdir().unwrap();
    let script = "step_one() { step one; skip 'there is no moon'; printf 'no sun\\ta\\nno sun\\tb\\n' >>\"$CI_SKIPPED\"; }\nrun_steps one";
    let said = prepared(folder.path(), script);
    let wanted = "\n== NOT LOOKED AT: what this machine lacks\n- there is no moon (one)\n- no sun (a and 1 more)\n";
    assert!(said.ends_with(wanted), "{said}");
    assert!(said.contains("\n== what else was believed\n- this is no checkout of git"), "{said}");
}
