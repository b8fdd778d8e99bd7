//! The shim's own program: what stands in front of a tool server where it is found beside `ua`. What a shim does is tested in
//! `src/tests/shim.rs`.

use std::io::Write as _;
use std::process::{Command, Stdio};

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ua-shim"))
}

#[test]
fn it_stands_in_front_of_a_program_and_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let lock = folder.path().join("run.cat.1");
    let mut shim = program();
    shim.args(["__shim", "--lock"]).arg(&lock).args(["--", "/bin/sh", "-c", "read -r line; echo \"$line\"; exit 7"]);
    let mut shim = shim.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    shim.stdin.take().unwrap().write_all(b"a line\n").unwrap();
    let ended = shim.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stdout.as_slice()), (Some(7), &b"a line\n"[..]));
    assert!(lock.exists(), "whoever resumes looks for it there");
}

#[test]
fn it_says_of_which_version_it_is_and_does_nothing_else() {
    let said = program().arg("--version").output().unwrap();
    assert_eq!(String::from_utf8(said.stdout).unwrap(), format!("ua-shim {}\n", env!("CARGO_PKG_VERSION")));
    for words in [&["--lock", "/x", "--", "true"][..], &["__shim", "--", "true"], &[]] {
        let ended = program().args(words).output().unwrap();
        assert_eq!((ended.status.code(), ended.stdout.len()), (Some(64), 0), "{words:?}");
    }
}
