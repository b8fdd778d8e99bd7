//! Ctrl-C, typed in a real terminal: it reaches the runner and not its tool servers. Nor does a terminal that goes away, or stands still, keep a run
//! from stopping as it should.

use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, PoisonError};

use portable_pty::{Child, CommandBuilder, PtySize, native_pty_system};
use rustix::process::{Pid, Signal};
use serde_json::json;
use ua_e2e::{TestEnv, eventually, ua_program, until};

use super::env;

/// What Ctrl-C sends.
const CTRL_C: u8 = 3;
/// What Ctrl-S sends: the terminal shows nothing more until Ctrl-Q.
const CTRL_S: u8 = 19;

/// A program in a terminal of its own, and what is on the screen.
struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    /// Taken when something is typed: whoever lets go of it presses Enter and Ctrl-D in this library, in front of a hang-up.
    keyboard: Option<Box<dyn std::io::Write + Send>>,
    screen: Arc<Mutex<vt100::Parser>>,
    /// Kept open: a terminal that goes away hangs up.
    window: Box<dyn portable_pty::MasterPty + Send>,
}

#[expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
impl Terminal {
    fn start(env: &TestEnv, args: &[&str]) -> Self {
        let terminal = Self::start_unread(env, args);
        let mut output = terminal.window.try_clone_reader().unwrap();
        let shown = Arc::clone(&terminal.screen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap_or_else(PoisonError::into_inner).process(&bytes[..read]);
            }
        });
        terminal
    }

    /// The same in a terminal that shows nothing: it takes a few thousand bytes, and then stands still.
    fn start_unread(env: &TestEnv, args: &[&str]) -> Self {
        Self::start_as(CommandBuilder::new(ua_program()), env, args)
    }

    /// The same as somebody starts it who means it to outlive the terminal.
    fn start_under_nohup(env: &TestEnv, args: &[&str]) -> Self {
        let mut command = CommandBuilder::new("/usr/bin/nohup");
        command.arg(ua_program());
        Self::start_as(command, env, args)
    }

    fn start_as(mut command: CommandBuilder, env: &TestEnv, args: &[&str]) -> Self {
        let [rows, columns] = [60, 200].map(|length| NonZeroU16::new(length).unwrap());
        let size = PtySize { rows: rows.get(), cols: columns.get(), pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        command.args(args);
        command.arg("--root");
        command.arg(env.root());
        command.cwd(env.path("work"));
        command.env_clear();
        for (name, value) in env.environment() {
            command.env(name, value);
        }
        command.env("TERM", "xterm-256color");
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 1_000)));
        Self { child, keyboard: None, screen, window: pair.master }
    }

    fn type_ctrl_c(&mut self) {
        self.press(CTRL_C);
    }

    fn press(&mut self, key: u8) {
        let keyboard = self.keyboard.get_or_insert_with(|| self.window.take_writer().unwrap());
        keyboard.write_all(&[key]).unwrap();
        keyboard.flush().unwrap();
    }

    /// Closes the window; what is left is the program in it.
    fn hang_up(self) -> Box<dyn Child + Send + Sync> {
        self.child
    }

    /// What a person sees.
    fn contents(&self) -> String {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner).screen().contents()
    }

    fn sees(&self, words: &str) {
        until(&format!("{words:?} on the screen"), || self.contents().contains(words));
    }

    fn exit_code(&mut self) -> u32 {
        let child = &mut self.child;
        eventually("the end of ua", || child.try_wait().unwrap()).exit_code()
    }
}

#[expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
fn send(child: &dyn Child, signal: Signal) {
    let id = i32::try_from(child.process_id().unwrap()).unwrap();
    rustix::process::kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
}

#[expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
fn end_of(mut child: Box<dyn Child + Send + Sync>) -> u32 {
    eventually("the end of ua", || child.try_wait().unwrap()).exit_code()
}

/// A job whose only call has had its effect and waits for the gate.
fn at_the_gate(env: &TestEnv) -> Terminal {
    at_the_gate_in(env, Terminal::start)
}

fn at_the_gate_in(env: &TestEnv, start: fn(&TestEnv, &[&str]) -> Terminal) -> Terminal {
    let turns = json!([
        {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello", "until": env.arg("gate")}}]},
        {"text": "Done."},
    ]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    let terminal = start(env, &["job", &job, "--run-id", "r"]);
    until("the effect", || !env.comments().is_empty() && env.try_rows("SELECT status FROM tool_calls") == ["running"]);
    terminal
}

/// The tool server itself, without the shim above it.
fn tool_servers(env: &TestEnv) -> usize {
    env.processes().iter().filter(|line| line.contains("--log") && !line.contains("--lock")).count()
}

#[test]
fn ctrl_c_in_a_terminal_leaves_the_tool_server_alone_until_its_answer_is_stored() {
    let env = env().with_forum();
    let mut terminal = at_the_gate(&env);
    terminal.type_ctrl_c();
    terminal.sees("nothing new is started");
    terminal.sees("Waiting up to 30 s for post_comment");
    terminal.sees("Press Ctrl-C again to exit at once and leave its outcome unknown");
    assert_eq!((env.calls(), tool_servers(&env)), (vec!["post_comment running".to_owned()], 1));
    env.write("gate", "");
    assert_eq!(terminal.exit_code(), 130, "{}", terminal.contents());
    terminal.sees("stopped (interrupted)");
    assert_eq!(env.calls(), ["post_comment succeeded"]);
    until("the tool server to end", || env.processes().is_empty());
    env.run(&["resume", "r"]).code(0);
    assert_eq!((env.comments().len(), env.value("SELECT attempt FROM tool_calls")), (1, "1".to_owned()));
}

#[test]
fn a_second_ctrl_c_ends_the_process_at_once() {
    let env = env().with_forum();
    let mut terminal = at_the_gate(&env);
    terminal.type_ctrl_c();
    terminal.sees("nothing new is started");
    terminal.type_ctrl_c();
    assert_eq!(terminal.exit_code(), 130, "{}", terminal.contents());
    terminal.sees("whether post_comment");
    terminal.sees("resume with: ua resume r");
    // Nothing of the live display is left, not even where the key would have been echoed into it.
    let left = ["calls [", "s · turn 1 · post_comment", "^C"];
    until("a clean screen", || left.iter().all(|part| !terminal.contents().contains(part)));
    // The gate is shut to the end: nobody waited for the answer, and nobody guesses it.
    assert!(!env.path("gate").exists());
    // Nobody takes it for crashed, and it is found by that word.
    env.run(&["runs", "list", "--status", "interrupted"]).code(0).shows(&["r", "interrupted"]);
    env.run(&["runs", "list", "--status", "crashed"]).code(0).says(&["no such runs"]);
    let ended = "process 1 was ended by a second Ctrl-C";
    env.run(&["runs", "show", "r"]).code(0).shows(&["interrupted: its process was ended by a second Ctrl-C", ended]);
    // A resume that is refused before it takes the run leaves what is known.
    let (workspace, aside) = (env.workspace(), env.path("aside"));
    std::fs::rename(&workspace, &aside).unwrap();
    env.run(&["resume", "r"]).code(74);
    std::fs::rename(&aside, &workspace).unwrap();
    env.run(&["runs", "list", "--status", "interrupted"]).code(0).shows(&["r", "interrupted"]);
    env.run(&["resume", "r"]).code(75).shows(&["Did `post_comment` happen?"]);
    assert_eq!((env.calls(), env.comments().len()), (vec!["post_comment unknown".to_owned()], 1));
    // Nor is it a kill in anything that is kept of it.
    env.run(&["runs", "show", "r"]).code(0).shows(&[ended]);
    env.run(&["runs", "tail", "r", "--no-follow"]).code(0).shows(&[
        "ended by a second Ctrl-C: the last sign of life of the process that drove the run",
        "resumed after a second Ctrl-C: ",
    ]);
    env.run(&["runs", "export", "r", "--html", &env.arg("run.html")]).code(0);
    assert!(env.read("run.html").contains(r#""broken":"was ended by a second Ctrl-C""#));
    let kept = |name: &str| std::fs::read_to_string(workspace.join(name)).unwrap();
    let files = [
        ("run.log", "process 2 takes over: the one before it was ended by a second Ctrl-C"),
        ("job_completion_r.md", "2 processes; process 1 was ended by a second Ctrl-C, last seen at "),
        ("session_summary.txt", "2 processes, 1 of them ended by a second Ctrl-C"),
    ];
    for (name, words) in files {
        assert!(kept(name).contains(words), "{name}: {}", kept(name));
        assert!(!kept(name).contains("killed"), "{name}: {}", kept(name));
    }
}

/// What the database says of the run.
fn stands(env: &TestEnv) -> Vec<String> {
    env.try_rows("SELECT status, stop_reason FROM runs")
}

#[test]
fn a_terminal_that_goes_away_stops_the_run_as_a_signal_does() {
    let env = env().with_forum();
    let terminal = at_the_gate_in(&env, Terminal::start_unread);
    let child = terminal.hang_up();
    env.write("gate", "");
    assert_eq!(end_of(child), 130);
    assert_eq!(
        (env.calls(), stands(&env)),
        (vec!["post_comment succeeded".to_owned()], vec!["stopped interrupt".to_owned()])
    );
    env.run(&["resume", "r"]).code(0);
    assert_eq!((env.comments().len(), env.value("SELECT attempt FROM tool_calls")), (1, "1".to_owned()));
}

#[test]
fn a_second_signal_ends_a_process_whose_terminal_went_away() {
    for signal in [Signal::INT, Signal::TERM] {
        let env = env().with_forum();
        let child = at_the_gate_in(&env, Terminal::start_unread).hang_up();
        send(child.as_ref(), signal);
        assert_eq!(end_of(child), 130, "{signal:?}");
        // The gate is shut to the end.
        assert!(!env.path("gate").exists());
        env.run(&["resume", "r"]).code(75).shows(&["Did `post_comment` happen?"]);
        // It is said which signal it was; of two that arrive at once either may be the second.
        let by = if signal == Signal::INT { "a second Ctrl-C" } else { "a second signal (SIGTERM)" };
        let shown = env.run(&["runs", "show", "r"]).code(0).stdout;
        let either = [by, "a second signal (SIGHUP)"].map(|by| format!("process 1 was ended by {by}, last seen at "));
        assert!(either.iter().any(|said| shown.contains(said)), "{shown}");
    }
}

#[test]
fn a_terminal_that_stands_still_keeps_neither_the_run_nor_a_signal() {
    let env = env().with_forum();
    let mut terminal = at_the_gate_in(&env, Terminal::start_unread);
    terminal.press(CTRL_S);
    send(terminal.child.as_ref(), Signal::TERM);
    env.write("gate", "");
    // The answer is stored and the run stopped while nothing can be shown.
    until("the run to stop", || stands(&env) == ["stopped interrupt"]);
    assert_eq!(env.calls(), ["post_comment succeeded"]);
    send(terminal.child.as_ref(), Signal::TERM);
    assert_eq!(terminal.exit_code(), 130);
}

#[test]
fn a_terminal_that_goes_away_at_a_prompt_ends_the_process_as_a_signal_does() {
    let env = env().with_forum();
    let turns =
        json!([{"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "hello"}}]}, {"text": "Done."}]);
    let asking = json!({"tools": {"builtin": false}, "escalation": {"ask_human_before": ["post_comment"]}});
    let job = env.job(&asking, &turns);
    // What hears of it first, the prompt or the signal, is a matter of chance.
    for command in [&["job", &job, "--run-id", "r"][..], &["resume", "r"], &["answer"]].into_iter().cycle().take(9) {
        if command[0] == "job" && env.database_path().exists() {
            continue;
        }
        let terminal = Terminal::start_unread(&env, command);
        let mut output = terminal.window.try_clone_reader().unwrap();
        let (mut shown, mut bytes) = (String::new(), [0; 4096]);
        while !shown.contains("Enter alone: later") {
            let count = output.read(&mut bytes).unwrap();
            shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        drop(output);
        assert_eq!(end_of(terminal.hang_up()), 130, "{command:?}");
        assert_eq!(env.rows("SELECT DISTINCT status FROM questions"), ["open"], "{command:?}");
        assert_eq!(env.run_status(), "waiting_for_human", "{command:?}");
    }
    assert_eq!(env.comments(), [""; 0]);
}

#[test]
fn a_run_that_was_started_to_outlive_its_terminal_does() {
    let env = env().with_forum();
    let terminal = at_the_gate_in(&env, Terminal::start_under_nohup);
    let child = terminal.hang_up();
    send(child.as_ref(), Signal::HUP);
    env.write("gate", "");
    assert_eq!(end_of(child), 0);
    assert_eq!((env.run_status().as_str(), env.comments().len()), ("succeeded", 1));
}
