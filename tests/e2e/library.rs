//! A run of a program that uses the library, looked at and answered from the command line.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::json;
use ua_e2e::TestEnv;

use super::env;

fn program(env: &TestEnv, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ua-e2e-library")).arg(env.root()).args(arguments).output().unwrap()
}

#[test]
fn a_question_of_a_library_run_is_answered_by_ua_and_the_run_is_resumed_by_its_program() {
    let env = env();
    let killed = program(&env, &["--no-keys", "--die-in-tool"]);
    assert_eq!(killed.status.code(), None, "{killed:?}");
    let held = program(&env, &["--no-keys"]);
    assert_eq!(held.status.code(), Some(1), "{held:?}");
    env.run(&["runs", "show", "run_invoices"]).code(0).shows(&[
        "run_invoices",
        "waiting for you",
        "the program that started it",
    ]);
    env.run(&["resume", "last"]).refused(2, &["run_invoices", "library", "run that program again"]);
    env.run(&["resume", "last", "--accept", "tools"]).refused(2, &["run_invoices", "run_accepting"]);
    assert_eq!(env.value("SELECT status FROM runs"), "waiting_for_human", "the refusal changed nothing");
    let question = env.value("SELECT question_id FROM questions");
    env.run(&["resume", "last", "--max-turns", "+5"]).code(75).says(&["max_turns is 25 now", "run the program"]);
    let answered = env.run(&["answer", &question, "happened"]).code(0);
    // Nobody but its program can resume it.
    assert!(answered.stderr.contains("answered; then start the program again that started it"), "{}", answered.stderr);
    assert!(!answered.stderr.contains("ua resume"), "{}", answered.stderr);
    env.run(&["status"]).code(0).shows(&["answered; the program that started it finishes it"]);
    let ended = program(&env, &["--no-keys"]);
    assert!(ended.status.success(), "{ended:?}");
    let invoices = std::fs::read_to_string(env.root().join("invoices.txt")).unwrap();
    assert_eq!(invoices.lines().count(), 1, "{invoices}");
    assert_eq!(env.value("SELECT entrypoint, run_mode, status FROM runs"), "library library succeeded");
    env.run(&["resume", "last"]).code(0);
}

/// Its step is no job, and is begun again under whatever id its program takes.
#[test]
fn a_library_run_that_is_cancelled_with_a_call_in_doubt_says_what_holds_of_a_step() {
    let env = env();
    program(&env, &["--no-keys", "--die-in-tool"]);
    let held = program(&env, &["--no-keys"]);
    assert_eq!(held.status.code(), Some(1), "{held:?}");
    let ended = env.run(&["runs", "cancel", "run_invoices"]).code(0);
    let told = format!("{}{}", ended.stdout, ended.stderr);
    let flat = told.split_whitespace().collect::<Vec<_>>().join(" ");
    let holds = "1 call may or may not have happened, and a fork of the run asks before it repeats it, while under another id the step does it again";
    assert!(flat.contains(holds) && !flat.contains("the job"), "{told}");
    assert_eq!(env.value("SELECT status FROM runs"), "cancelled");
}

#[test]
fn the_five_minute_program_is_killed_in_its_tool_and_sends_one_invoice() {
    let env = env();
    let command = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ua-e2e-sdk"));
        command.current_dir(env.root());
        command
    };
    let (slow, invoices) = (env.root().join("slow"), env.root().join("invoices.txt"));
    fs::create_dir_all(env.root()).unwrap();
    fs::write(&slow, "").unwrap();
    let mut first = command().stdout(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(first.stdout.take().unwrap()).lines();
    let is_sent = said.map(Result::unwrap).any(|line| line.starts_with("sent the invoice"));
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(is_sent && invoices.exists());
    fs::remove_file(&slow).unwrap();
    let state = env.root().join("state");
    let state = state.to_str().unwrap();
    env.run(&["runs", "show", "invoices-2026-11", "--root", state]).code(0).shows(&["invoices-2026-11"]);
    // Whatever looks at it says who resumes it, and names no command that would be refused.
    let call = env.run(&["calls", "list", "--json", "--root", state]).code(0).json()[0]["tool_call_id"].clone();
    let call = call.as_str().unwrap();
    for words in [
        &["runs", "show", "invoices-2026-11"][..],
        &["runs", "tail", "invoices-2026-11"],
        &["status"],
        &["doctor"],
        &["calls", "resolve", call, "--happened"],
        &["runs", "delete", "invoices-2026-11", "--yes"],
    ] {
        let told = env.run(&[words, &["--root", state]].concat());
        let told = format!("{}{}", told.stdout, told.stderr);
        let flat = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains("the program that started it") && !flat.contains("ua resume"), "{words:?}: {told}");
    }
    for _ in 0..2 {
        let again = command().output().unwrap();
        let said = String::from_utf8_lossy(&again.stdout).into_owned();
        assert!(again.status.success() && said.contains("complete after 2 turns"), "{again:?}");
    }
    assert_eq!(fs::read_to_string(&invoices).unwrap().lines().count(), 1);
}

/// In the second round as `nohup`, or a shell in the background, starts it: the helper of its servers is the program itself, and began by
/// dropping a runtime within that of `main` where some signal was ignored.
#[test]
fn a_program_has_tools_of_its_own_and_of_a_server_that_dies_in_an_effect() {
    for ignored in ["", "trap '' HUP INT QUIT; "] {
        of_its_own_and_of_a_server(ignored);
    }
}

fn of_its_own_and_of_a_server(ignored: &str) {
    let env = env();
    fs::create_dir_all(env.root()).unwrap();
    let file = env.root().join("servers.json");
    fs::write(&file, json!({"mcpServers": {"forum": env.forum_entry(&[])}}).to_string()).unwrap();
    let run = |words: &[&str]| {
        let program = Command::new("sh")
            .args(["-c", &format!("{ignored}exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_ua-e2e-sdk-servers")])
            .current_dir(env.root())
            .arg(&file)
            .args(words)
            .output()
            .unwrap();
        (String::from_utf8_lossy(&program.stdout).into_owned(), program)
    };
    let (said, program) = run(&[]);
    assert!(said.starts_with("answer first: "), "{program:?}");
    let (said, program) = run(&[]);
    assert!(said.starts_with("answer first: "), "nobody answered: {program:?}");
    let (said, program) = run(&["happened"]);
    assert_eq!(said.trim(), "complete: \"Posted.\"", "{program:?}");
    let comments = env.comments();
    assert!(comments.len() == 1 && comments[0].contains("It rains."), "{comments:?}");
    // What the program was as the helper of that server ended there, and was no second copy of it in the run's folder.
    assert!(!env.root().join("state/workspaces/weather/state").exists());
    let folder = tempfile::tempdir().unwrap();
    for word in ["__shim", "__toolserver"] {
        let mut helper = Command::new(env!("CARGO_BIN_EXE_ua-e2e-sdk-servers"));
        let helper = helper.current_dir(&folder).args([word, "--nonsense"]).output().unwrap();
        assert!(!helper.status.success() && helper.stdout.is_empty(), "{word}: {helper:?}");
        assert!(fs::read_dir(&folder).unwrap().next().is_none(), "{word}: the program ran behind it");
    }
}
