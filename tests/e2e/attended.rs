//! Asking on a terminal: a run that would wait asks there and goes on in the same process, and `ua answer` offers what is open.

#![expect(clippy::expect_used, reason = "helpers of tests fail like tests")]

use std::io::{Read as _, Write};
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, PoisonError};

use portable_pty::{Child, CommandBuilder, PtySize, native_pty_system};
use serde_json::{Value, json};
use ua_e2e::{TestEnv, eventually, ua_program, until};

use super::env;

const UP: &str = "\u{1b}[A";
const ENTER: &str = "\r";

/// A process of `ua` on a terminal of its own.
struct Terminal {
    screen: Arc<Mutex<vt100::Parser>>,
    keyboard: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
}

impl Terminal {
    fn start(env: &TestEnv, args: &[&str]) -> Self {
        let size = PtySize { rows: 60, cols: 150, pixel_width: 0, pixel_height: 0 };
        let pty = native_pty_system().openpty(size).expect("open a terminal");
        let mut command = CommandBuilder::new(ua_program());
        command.args(args);
        command.args(["--root", &env.root().display().to_string()]);
        command.cwd(env.path("work"));
        command.env_clear();
        for (name, value) in
            [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("LANG", "C.UTF-8"), ("USER", "tester"), ("TERM", "xterm")]
        {
            command.env(name, value);
        }
        command.env("HOME", env.path("home"));
        command.env("XDG_CONFIG_HOME", env.path("home/.config"));
        let child = pty.slave.spawn_command(command).expect("start ua");
        drop(pty.slave);
        let mut reader = pty.master.try_clone_reader().expect("read the terminal");
        let keyboard = pty.master.take_writer().expect("write to the terminal");
        let screen = Arc::new(Mutex::new(vt100::Parser::new(
            NonZeroU16::new(60).expect("not zero"),
            NonZeroU16::new(150).expect("not zero"),
            500,
        )));
        let shown = Arc::clone(&screen);
        std::thread::spawn(move || {
            let _master = pty.master;
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                shown.lock().unwrap_or_else(PoisonError::into_inner).process(&buffer[..count]);
            }
        });
        Self { screen, keyboard, child }
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner).screen().contents()
    }

    #[track_caller]
    fn shows(&self, text: &str) {
        until(&format!("{text:?} on the terminal"), || self.text().contains(text));
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("type");
        self.keyboard.flush().expect("type");
    }

    #[track_caller]
    fn code(mut self, wanted: u32) -> String {
        let status = eventually("the end of ua", || self.child.try_wait().expect("look at the process"));
        let text = self.text();
        assert_eq!(status.exit_code(), wanted, "{text}");
        text
    }
}

fn comment(text: &str) -> Value {
    json!({"name": "mcp__forum__post_comment", "input": {"text": text}})
}

fn careful_job(env: &TestEnv) -> String {
    let turns = json!([{"tools": [comment("first \u{1b}[2J"), comment("second")]}, {"text": "Posted."}]);
    env.job(&json!({"tools": {"builtin": false}, "escalation": {"ask_human_before": ["post_comment"]}}), &turns)
}

#[test]
fn a_run_that_would_wait_asks_and_goes_on_in_the_same_process() {
    let env = env().with_forum();
    let mut terminal = Terminal::start(&env, &["job", &careful_job(&env), "--run-id", "r"]);
    for text in ["first", "second"] {
        // Enter alone would leave it open, so the way is up: abort, skip, execute.
        terminal.shows("later    leave it open");
        terminal.shows(text);
        terminal.types(&format!("{UP}{UP}{UP}{ENTER}"));
        terminal.shows("Let it run?");
        terminal.types("y");
    }
    let text = terminal.code(0);
    assert!(text.contains("succeeded"), "{text}");
    assert_eq!(env.comments().len(), 2);
    assert_eq!(env.value("SELECT count(*) FROM questions WHERE status <> 'closed'"), "0");
    // One process, two lives.
    assert_eq!(env.value("SELECT lease_epoch FROM runs"), "2");
}

#[test]
fn s9_servers_of_a_project_are_asked_about_on_the_terminal_and_enter_means_no() {
    let env = env();
    env.write("work/.mcp.json", json!({"mcpServers": {"forum": env.forum_entry(&[])}}).to_string());
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    let mut terminal = Terminal::start(&env, &["job", &job]);
    terminal.shows("Let them in");
    terminal.types(ENTER);
    assert!(terminal.code(2).contains("nobody let in"));
    let mut terminal = Terminal::start(&env, &["job", &job]);
    terminal.shows("Let them in");
    terminal.types("y");
    terminal.code(0);
    // Known from now on.
    env.run(&["job", &job]).code(0);
}

#[test]
fn enter_leaves_a_question_open_and_no_input_does_not_ask() {
    let env = env().with_forum();
    let mut terminal = Terminal::start(&env, &["job", &careful_job(&env), "--run-id", "r"]);
    terminal.shows("later    leave it open");
    terminal.types(ENTER);
    terminal.code(75);
    let text = Terminal::start(&env, &["resume", "r", "--no-input"]).code(75);
    assert!(!text.contains("later    leave it open"), "{text}");
    assert_eq!((env.run_status().as_str(), env.comments().len()), ("waiting_for_human", 0));
}

#[test]
fn answer_without_arguments_offers_what_is_open() {
    let env = env().with_forum();
    env.run(&["job", &careful_job(&env), "--run-id", "r"]).code(75);
    let mut terminal = Terminal::start(&env, &["answer"]);
    terminal.shows("Which question?");
    terminal.types(ENTER);
    terminal.shows("later    leave it open");
    terminal.shows("text: \"first \\u{1b}[2J\"");
    terminal.types(&format!("{UP}{UP}{ENTER}"));
    terminal.shows("What the model should know");
    terminal.types(&format!("not today{ENTER}"));
    terminal.shows("answered; go on with `ua resume r`");
    terminal.code(0);
    assert_eq!(env.rows("SELECT choice, note FROM answers"), ["skip not today"]);
}

#[test]
fn a_model_that_asks_gets_one_of_its_options_from_the_terminal() {
    let env = env();
    let asks =
        json!({"name": "mcp__ua_person__ask_user", "input": {"question": "Which colour?", "options": ["red", "blue"]}});
    let turns = json!([{"tools": [asks]}, {"text": "Done.", "expect": {"contains": ["blue"], "tool_result_ok": true}}]);
    let job = env.job(&json!({"tools": {"builtin": false}, "escalation": {"ask_user": true}}), &turns);
    let mut terminal = Terminal::start(&env, &["job", &job, "--run-id", "r"]);
    terminal.shows("Which colour?");
    terminal.shows("later    leave it open");
    // later, abort, skip, continue, blue.
    terminal.types(&format!("{UP}{UP}{UP}{UP}{ENTER}"));
    terminal.code(0);
}

#[test]
fn a_record_is_put_right_once_the_person_saw_it_and_enter_means_no() {
    let env = env().with_forum();
    let turns = json!([{"tools": [comment("first")]}, {"text": "Posted."}]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    env.run(&["resume", "r"]).code(75);
    let call = env.value("SELECT tool_call_id FROM tool_calls");
    let said = ["calls", "resolve", &call, "--as", "happened", "--reason", "I looked at the forum"];
    let ask = "Record it as happened, since \"I looked at the forum\"?";
    let mut terminal = Terminal::start(&env, &said);
    // What is recorded is shown before it is asked about.
    terminal.shows("attempt 1");
    terminal.shows(ask);
    terminal.types(ENTER);
    assert!(terminal.code(1).contains("nothing was changed"));
    assert_eq!(env.calls(), ["post_comment unknown"]);
    assert_eq!(env.value("SELECT status FROM questions"), "open");

    let mut terminal = Terminal::start(&env, &said);
    terminal.shows(ask);
    terminal.types("y");
    assert!(terminal.code(0).contains("is recorded as happened now"));
    assert_eq!(env.calls(), ["post_comment succeeded"]);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.comments().len(), 1);
}
