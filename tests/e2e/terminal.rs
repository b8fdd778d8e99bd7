//! What a person sees on a terminal: live progress, colour, and nothing that foreign text draws.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::sync::{Arc, Mutex};

use portable_pty::{Child, CommandBuilder, PtySize, native_pty_system};
use serde_json::json;
use ua_e2e::{TestEnv, eventually, ua_program, until};

use super::env;

/// `ua` on a terminal, and what it drew.
pub(super) struct Screen {
    child: Box<dyn Child + Send + Sync>,
    raw: Arc<Mutex<Vec<u8>>>,
    reader: Option<std::thread::JoinHandle<()>>,
    // Open as long as the screen is looked at.
    _master: Box<dyn portable_pty::MasterPty + Send>,
}

impl Screen {
    fn start(env: &TestEnv, args: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::start_on(env, 100, args, variables)
    }

    /// The same on a terminal of so many columns.
    pub(super) fn start_on(env: &TestEnv, columns: u16, args: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::start_with(env, CommandBuilder::new(ua_program()), columns, args, variables)
    }

    /// The same as a shell with jobs starts it behind `&`.
    fn start_in_background(env: &TestEnv, args: &[&str]) -> Self {
        let mut shell = CommandBuilder::new("/bin/bash");
        shell.args(["-c", "set -m; \"$0\" \"$@\" & wait $!"]);
        shell.arg(ua_program());
        Self::start_with(env, shell, 100, args, &[])
    }

    fn start_with(
        env: &TestEnv,
        mut command: CommandBuilder,
        columns: u16,
        args: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let size = PtySize { rows: 30, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        command.args(args);
        command.args(["--root", &env.root().display().to_string()]);
        command.cwd(env.path("work"));
        command.env_clear();
        for (name, value) in
            [("PATH", "/usr/bin:/bin"), ("LANG", "C.UTF-8"), ("TERM", "xterm-256color"), ("USER", "tester")]
        {
            command.env(name, value);
        }
        command.env("HOME", env.path("home"));
        command.env("XDG_CONFIG_HOME", env.path("home/.config"));
        for (name, value) in variables {
            command.env(name, value);
        }
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let raw = Arc::new(Mutex::new(Vec::new()));
        let mut output = pair.master.try_clone_reader().unwrap();
        let kept = raw.clone();
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // An error is how a terminal ends whose program is gone.
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                kept.lock().unwrap().write_all(&buffer[..count]).unwrap();
            }
        });
        Self { child, raw, reader: Some(reader), _master: pair.master }
    }

    /// Every byte that was drawn.
    pub(super) fn raw(&self) -> String {
        String::from_utf8_lossy(&self.raw.lock().unwrap()).into_owned()
    }

    /// What stands on the screen.
    fn text(&self) -> String {
        let mut parser = vt100::Parser::new(NonZero::new(30).unwrap(), NonZero::new(100).unwrap(), 0);
        parser.process(&self.raw.lock().unwrap());
        parser.screen().contents()
    }

    /// Waits for the end, and says with which code.
    pub(super) fn end(&mut self) -> u32 {
        let child = &mut self.child;
        let status = eventually("the end of ua on a terminal", || child.try_wait().unwrap());
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        status.exit_code()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.child.kill().ok();
    }
}

/// A job with a call that waits for the file `go`.
fn waiting_job(env: &TestEnv) -> String {
    let input = json!({"text": "\u{1b}[2Jx\u{202e}y", "until": env.arg("go")});
    let turns = json!([{"tools": [{"name": "mcp__forum__post_comment", "input": input}]}, {"text": "Gone \u{1b}]0;owned\u{7}."}]);
    env.job(&json!({"tools": {"builtin": false}, "budgets": {"max_tool_calls": 4}}), &turns)
}

/// A path that is wider than the terminal stands there from the workspace on, whose own path is beside it.
#[test]
fn no_terminal_breaks_the_path_of_a_file_of_a_run() {
    let env = env();
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    let mut screen = Screen::start_on(&env, 50, &["runs", "show", "r"], &[]);
    assert_eq!(screen.end(), 0, "{}", screen.raw());
    assert!(screen.raw().contains("Details        job_completion_r.md"), "{}", screen.raw());
}

#[test]
fn a_job_shows_what_it_does_and_how_much_it_used() {
    let env = env().with_forum();
    let job = waiting_job(&env);
    let mut screen = Screen::start(&env, &["job", &job, "--run-id", "r"], &[]);
    until("the call on the screen", || screen.text().contains("turn 1 · post_comment"));
    let text = screen.text();
    assert!(text.contains("calls [███░░░░░░░] 1/4") || text.contains("calls [██░░░░░░░░] 1/4"), "{text}");
    assert!(text.contains("time [") && text.contains("min"), "{text}");
    // The lines of what happened stand above it, whole.
    assert!(
        text.lines().any(|line| line.starts_with("[00:") && line.contains("turn 1 · call 1 · post_comment")),
        "{text}"
    );
    env.write("go", "");
    assert_eq!(screen.end(), 0, "{}", screen.text());
    let text = screen.text();
    assert!(!text.contains("calls ["), "the display is gone at the end: {text}");
    assert!(text.contains("succeeded · run r"), "{text}");
    assert!(screen.raw().contains("\u{1b}[32msucceeded"), "a terminal has colour: {:?}", screen.raw());
    let raw = screen.raw();
    assert!(!raw.contains("\u{1b}[2Jx") && !raw.contains("\u{1b}]0;") && !raw.contains('\u{202e}'), "{raw:?}");
}

/// What there is no room for is left out whole: a part of a number is another number.
#[test]
fn a_narrow_terminal_shows_whole_parts() {
    let env = env().with_forum();
    let job = waiting_job(&env);
    let mut screen = Screen::start_on(&env, 30, &["job", &job, "--run-id", "r"], &[]);
    until("the call on the screen", || screen.raw().contains(" · turn 1 · post_comment"));
    env.write("go", "");
    assert_eq!(screen.end(), 0, "{}", screen.raw());
    let raw = screen.raw();
    let drawn: Vec<&str> = raw.split(['\r', '\n', '\u{1b}']).filter(|part| part.starts_with("  calls ")).collect();
    assert!(!drawn.is_empty(), "{raw:?}");
    for line in drawn {
        assert!(line.chars().count() <= 30 && (line.ends_with('…') || line.ends_with(" min")), "{line:?}");
    }
}

/// What is typed at the prompt meanwhile, such as `kill -9 %1`, would be drawn over.
#[test]
fn a_job_in_the_background_writes_lines_and_draws_nothing() {
    let env = env().with_forum();
    let job = waiting_job(&env);
    let mut screen = Screen::start_in_background(&env, &["job", &job, "--run-id", "r"]);
    until("the call on the screen", || screen.text().contains("turn 1 · call 1 · post_comment"));
    env.write("go", "");
    assert_eq!(screen.end(), 0, "{}", screen.text());
    let raw = screen.raw();
    assert!(
        raw.contains("succeeded") && !raw.contains("\u{1b}[J") && !raw.contains('█') && !raw.contains('⠋'),
        "{raw:?}"
    );
}

#[test]
fn a_run_is_watched_from_another_terminal() {
    let env = env().with_forum();
    let job = waiting_job(&env);
    let driver = env.start(&["job", &job, "--run-id", "r"]);
    until("the call to run", || env.try_rows("SELECT 1 FROM tool_calls WHERE status = 'running'") == ["1"]);
    let mut screen = Screen::start(&env, &["runs", "tail", "r"], &[]);
    until("the call on the screen", || screen.text().contains("turn 1 · post_comment"));
    until("the budgets on the screen", || screen.text().contains("1/4"));
    env.write("go", "");
    driver.wait().code(0);
    assert_eq!(screen.end(), 0, "{}", screen.text());
    assert!(screen.text().contains("run r succeeded"), "{}", screen.text());
    assert!(!screen.text().contains("1/4"), "{}", screen.text());
}

#[test]
fn colour_is_a_matter_of_the_terminal_and_of_the_person() {
    let env = env().with_forum();
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    let screen = |args: &[&str], variables: &[(&str, &str)]| {
        let mut screen = Screen::start(&env, args, variables);
        assert_eq!(screen.end(), 0);
        screen.raw()
    };
    let list = ["runs", "list"];
    let has_color = |raw: &str| raw.contains("\u{1b}[");
    assert!(has_color(&screen(&list, &[])));
    assert!(!has_color(&screen(&list, &[("NO_COLOR", "1")])));
    assert!(!has_color(&screen(&list, &[("TERM", "dumb")])));
    assert!(!has_color(&screen(&["runs", "list", "--color", "never"], &[])));
    assert!(has_color(&screen(&["runs", "list", "--color", "always"], &[("NO_COLOR", "1")])));
    // No terminal: none, unless it is forced.
    assert!(!has_color(&env.run(&list).code(0).stdout));
    assert!(has_color(&env.run(&["runs", "list", "--color", "always"]).code(0).stdout));
    assert!(has_color(&env.start_with(("CLICOLOR_FORCE", "1"), &list).wait().code(0).stdout));
    // The JSON of a terminal has none either.
    assert!(!has_color(&screen(&["runs", "list", "--json"], &[])));
}

#[test]
fn a_terminal_without_unicode_gets_ascii_and_everything_else_stays_as_it_is() {
    let env = env().with_forum();
    let input = json!({"text": "grüße", "until": env.arg("go")});
    let turns = json!([{"tools": [{"name": "mcp__forum__post_comment", "input": input}]}, {"text": "Done."}]);
    let job = env.job(&json!({"tools": {"builtin": false}, "budgets": {"max_tool_calls": 4}}), &turns);
    let plain = ("NO_COLOR", "1");
    let posix = [("LANG", "C"), ("LC_ALL", "POSIX"), plain];
    let mut screen = Screen::start(&env, &["job", &job, "--run-id", "r"], &posix);
    until("the call on the screen", || screen.raw().contains("turn 1 - post_comment"));
    until("a spinner", || ["| 1s", "/ 1s", "- 1s", "\\ 1s"].iter().any(|frame| screen.raw().contains(frame)));
    env.write("go", "");
    assert_eq!(screen.end(), 0, "{}", screen.raw());
    let raw = screen.raw();
    assert!(raw.contains("calls [###.......] 1/4") || raw.contains("calls [##........] 1/4"), "{raw}");
    assert!(raw.contains("succeeded - run r"), "{raw}");
    let is_ascii = |raw: &str| raw.replace("grüße", "").is_ascii();
    assert!(is_ascii(&raw), "{raw}");
    let call = env.value("SELECT tool_call_id FROM tool_calls");
    let shown =
        [&["runs", "list"][..], &["runs", "show", "r"], &["calls", "show", &call], &["runs", "tail", "r"], &["--help"]];
    let screen_of = |args: &[&str], variables: &[(&str, &str)]| {
        let mut screen = Screen::start(&env, args, variables);
        assert_eq!(screen.end(), 0, "{args:?}");
        screen.raw()
    };
    for args in shown {
        let raw = screen_of(args, &posix);
        assert!(is_ascii(&raw), "{args:?}: {raw}");
    }
    // So do words that come before anything is known but how the command was written.
    let too_long = "x".repeat(300);
    let mut wrong = Screen::start(&env, &["runs", "list", "--limit", &too_long], &posix);
    assert_eq!(wrong.end(), 2);
    assert!(is_ascii(&wrong.raw()) && wrong.raw().contains("invalid value"), "{}", wrong.raw());
    // Machines, pipes and other terminals get what they always get.
    assert!(screen_of(&["calls", "show", &call, "--json"], &posix).contains("grüße"));
    assert!(screen_of(&["runs", "show", "r"], &[plain]).contains("succeeded · run r"));
    assert!(
        env.start_with(("LC_ALL", "C"), &["runs", "show", "r"]).wait().code(0).stdout.contains("succeeded · run r")
    );
}

#[test]
fn a_table_fits_the_terminal_and_its_ids_stay_whole() {
    let env = env().with_forum();
    let id = "a-run-with-a-rather-long-name-that-somebody-chose";
    let objective = "word ".repeat(30);
    let job = env.job(&json!({"tools": {"builtin": false}, "objective": objective}), &json!([{"text": "Done."}]));
    env.run(&["job", &job, "--run-id", id]).code(0);
    let mut screen = Screen::start(&env, &["runs", "list", "--color", "never"], &[]);
    assert_eq!(screen.end(), 0);
    let raw = screen.raw();
    assert!(raw.lines().any(|line| line.trim_start().starts_with(id)), "{raw}");
    assert!(raw.lines().all(|line| line.trim_end().chars().count() <= 100), "{raw}");
}

#[test]
fn lines_can_be_had_on_a_terminal_too() {
    let env = env().with_forum();
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "Done."}]));
    let mut screen = Screen::start(&env, &["job", &job], &[("UA_PROGRESS", "lines"), ("NO_COLOR", "1")]);
    assert_eq!(screen.end(), 0);
    let raw = screen.raw();
    assert!(raw.contains("turn 1 · thinking") && !raw.contains('\u{1b}') && !raw.contains("calls ["), "{raw:?}");
}
