//! Asking on a terminal: a run that would wait asks there and goes on in the same process, and `ua answer` offers what is open.

#![expect(clippy::expect_used, reason = "helpers of tests fail like tests")]

use std::io::{Read as _, Write};
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, PoisonError};

use portable_pty::{Child, CommandBuilder, PtySize, native_pty_system};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use ua_e2e::{TestEnv, eventually, ua_program, until};

use super::env;

pub(super) const ENTER: &str = "\r";

/// A process of `ua` on a terminal of its own.
pub(super) struct Terminal {
    screen: Arc<Mutex<vt100::Parser>>,
    keyboard: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    reader: std::thread::JoinHandle<()>,
}

impl Terminal {
    pub(super) fn start(env: &TestEnv, args: &[&str]) -> Self {
        Self::start_with(env, CommandBuilder::new(ua_program()), args, 150)
    }

    /// The same on a terminal of so many columns.
    fn start_on(env: &TestEnv, columns: u16, args: &[&str]) -> Self {
        Self::start_with(env, CommandBuilder::new(ua_program()), args, columns)
    }

    /// The same with these variables in its environment, `NAME=VALUE` each.
    pub(super) fn start_in(env: &TestEnv, variables: &[&str], args: &[&str]) -> Self {
        let mut command = CommandBuilder::new("/usr/bin/env");
        command.args(variables);
        command.arg(ua_program());
        Self::start_with(env, command, args, 150)
    }

    /// The same as a shell with jobs starts it behind `&`.
    fn start_in_background(env: &TestEnv, args: &[&str]) -> Self {
        let mut shell = CommandBuilder::new("/bin/bash");
        shell.args(["-c", "set -m; \"$0\" \"$@\" & wait $!"]);
        shell.arg(ua_program());
        Self::start_with(env, shell, args, 150)
    }

    fn start_with(env: &TestEnv, mut command: CommandBuilder, args: &[&str], columns: u16) -> Self {
        let size = PtySize { rows: 60, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pty = native_pty_system().openpty(size).expect("open a terminal");
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
            NonZeroU16::new(columns).expect("not zero"),
            500,
        )));
        let shown = Arc::clone(&screen);
        let reader = std::thread::spawn(move || {
            let _master = pty.master;
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                shown.lock().unwrap_or_else(PoisonError::into_inner).process(&buffer[..count]);
            }
        });
        Self { screen, keyboard, child, reader }
    }

    /// Sends the process a signal.
    pub(super) fn signal(&self, signal: Signal) {
        let id = self.child.process_id().and_then(|id| Pid::from_raw(id.cast_signed())).expect("a process");
        ua_e2e::send(id, signal);
    }

    pub(super) fn text(&self) -> String {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner).screen().contents()
    }

    #[track_caller]
    pub(super) fn shows(&self, text: &str) {
        until(&format!("{text:?} on the terminal"), || self.text().contains(text));
    }

    pub(super) fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("type");
        self.keyboard.flush().expect("type");
    }

    /// Waits for a question that says `text` and for its prompt.
    #[track_caller]
    pub(super) fn asks(&self, text: &str) {
        self.shows(text);
        self.shows("(Enter alone: later):");
    }

    /// Forgets what stands on the screen.
    pub(super) fn clear(&self) {
        let blank =
            vt100::Parser::new(NonZeroU16::new(60).expect("not zero"), NonZeroU16::new(150).expect("not zero"), 500);
        *self.screen.lock().unwrap_or_else(PoisonError::into_inner) = blank;
    }

    fn is_cursor_shown(&self) -> bool {
        !self.screen.lock().unwrap_or_else(PoisonError::into_inner).screen().hide_cursor()
    }

    #[track_caller]
    pub(super) fn code(self, wanted: u32) -> String {
        let (code, text) = self.end();
        assert_eq!(code, wanted, "{text}");
        text
    }

    /// Waits for the end: the exit code, and what stands on the screen.
    #[track_caller]
    pub(super) fn end(mut self) -> (u32, String) {
        let status = eventually("the end of ua", || self.child.try_wait().expect("look at the process"));
        // What it wrote last may still be on its way to the screen.
        let screen = Arc::clone(&self.screen);
        drop(self.keyboard);
        self.reader.join().expect("read the terminal");
        let text = screen.lock().unwrap_or_else(PoisonError::into_inner).screen().contents();
        (status.exit_code(), text)
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
        terminal.asks(text);
        terminal.types(&format!("approve{ENTER}"));
        terminal.shows("Let it run? [y/N]");
        // What was asked stays above, and the next one may be asked as soon as this one is answered.
        terminal.clear();
        terminal.types(&format!("y{ENTER}"));
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
    terminal.shows("Trust these servers");
    terminal.types(ENTER);
    assert!(terminal.code(2).contains("not trusted yet"));
    let mut terminal = Terminal::start(&env, &["job", &job]);
    terminal.shows("Trust these servers");
    terminal.types(&format!("y{ENTER}"));
    terminal.code(0);
    // Known from now on.
    env.run(&["job", &job]).code(0);
}

#[test]
fn enter_leaves_a_question_open_and_no_input_does_not_ask() {
    let env = env().with_forum();
    let mut terminal = Terminal::start(&env, &["job", &careful_job(&env), "--run-id", "r"]);
    terminal.asks("first");
    terminal.types(ENTER);
    // What was asked here is not asked once more by the progress before it or the summary after it.
    let text = terminal.code(75);
    let count = |words: &str| text.matches(words).count();
    assert_eq!((count("first \\u"), count("is left open; `ua answer")), (1, 1), "{text}");
    let text = Terminal::start(&env, &["resume", "r", "--no-input"]).code(75);
    assert!(!text.contains("(Enter alone: later)"), "{text}");
    assert_eq!((env.run_status().as_str(), env.comments().len()), ("waiting_for_human", 0));
}

#[test]
fn a_run_in_the_background_asks_nobody_and_is_not_stopped() {
    let env = env().with_forum();
    let text = Terminal::start_in_background(&env, &["job", &careful_job(&env), "--run-id", "r"]).code(75);
    assert!(text.contains("waiting for you") && !text.contains("(Enter alone: later)"), "{text}");
    assert_eq!((env.run_status().as_str(), env.comments().len()), ("waiting_for_human", 0));
}

/// One rule for every prompt: Ctrl-D answers nothing, and says what is left.
#[test]
fn ctrl_d_leaves_a_prompt_as_ctrl_c_does() {
    let env = env().with_forum();
    let mut terminal = Terminal::start(&env, &["job", &careful_job(&env), "--run-id", "r"]);
    terminal.asks("first");
    terminal.types("\u{4}");
    assert!(terminal.code(75).contains("is left open"));
    // Which question, what goes with an answer that was chosen, and whether it is meant.
    let steps: [&[&str]; 4] = [&[], &["1"], &["1", "s"], &["1", "a"]];
    let prompts = ["Which one?", "(Enter alone: later):", "What the model should know", "Let it run?"];
    for (steps, prompt) in steps.iter().zip(prompts) {
        let mut terminal = Terminal::start(&env, &["answer"]);
        for (step, before) in steps.iter().zip(prompts) {
            terminal.shows(before);
            terminal.types(&format!("{step}{ENTER}"));
        }
        terminal.shows(prompt);
        terminal.types("\u{4}");
        terminal.shows("nothing was answered");
        terminal.code(75);
    }
    let mut terminal = Terminal::start(&env, &["runs", "cancel", "r"]);
    terminal.shows("[y/N]");
    terminal.types("\u{4}");
    terminal.shows("nothing was cancelled");
    terminal.code(130);
    assert_eq!(env.value("SELECT count(*) FROM answers"), "0");
    assert_eq!(env.value("SELECT status FROM runs"), "waiting_for_human");
    // Enter alone at the list of questions says as much.
    let mut terminal = Terminal::start(&env, &["answer"]);
    terminal.shows("Which one?");
    terminal.types(ENTER);
    terminal.shows("nothing was answered; 2 questions are left open");
    terminal.code(75);
}

#[test]
fn answer_without_arguments_offers_what_is_open() {
    let env = env().with_forum();
    env.run(&["job", &careful_job(&env), "--run-id", "r"]).code(75);
    let mut terminal = Terminal::start(&env, &["answer"]);
    terminal.shows("Which one?");
    terminal.types(&format!("1{ENTER}"));
    terminal.asks("text: \"first \\u{1b}[2J\"");
    terminal.types(&format!("s{ENTER}"));
    terminal.shows("What the model should know");
    terminal.types(&format!("not today{ENTER}"));
    terminal.shows("still open: ");
    // The one that is left is put without being chosen; it is not offered again once it was left open.
    terminal.asks("second");
    terminal.types(&format!("l{ENTER}"));
    terminal.shows("left open");
    terminal.code(75);
    assert_eq!(env.rows("SELECT choice, note FROM answers"), ["skip not today"]);
    // A machine that lets somebody answer here reads what they said, once, as it does where it names the answer itself.
    let mut terminal = Terminal::start(&env, &["answer", "--json"]);
    terminal.asks("second");
    terminal.types(&format!("s{ENTER}"));
    terminal.shows("What the model should know");
    terminal.types(ENTER);
    let text = terminal.code(0);
    assert_eq!(
        (text.matches("\"choice\": \"skip\"").count(), text.matches("\"question_id\": \"q_").count()),
        (1, 1),
        "{text}"
    );
    assert_eq!(env.rows("SELECT choice FROM answers"), ["skip", "skip"]);
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
    terminal.asks("[2]");
    terminal.types(&format!("2{ENTER}"));
    terminal.code(0);
}

#[test]
fn a_letter_that_is_none_and_a_no_ask_again() {
    let env = env().with_forum();
    let mut terminal = Terminal::start(&env, &["job", &careful_job(&env), "--run-id", "r"]);
    terminal.asks("first");
    // `k` and `j` once moved through a list and landed on `abort`.
    terminal.types(&format!("k{ENTER}"));
    terminal.shows("`k` is not one of [a] approve, [s] skip, [ab] abort, [l] later");
    // More of the word than its key.
    terminal.types(&format!("abo{ENTER}"));
    terminal.shows("End the run? [y/N]");
    terminal.types(&format!("n{ENTER}"));
    until("the question again", || terminal.text().matches("(Enter alone: later):").count() == 2);
    terminal.types(&format!("ab{ENTER}"));
    terminal.shows("End the run? [y/N]");
    until("asked once more", || terminal.text().matches("End the run? [y/N]").count() == 2);
    terminal.types(&format!("n{ENTER}"));
    until("the question again", || terminal.text().matches("(Enter alone: later):").count() == 3);
    terminal.types(&format!("l{ENTER}"));
    terminal.code(75);
    assert_eq!((env.run_status().as_str(), env.comments().len()), ("waiting_for_human", 0));
}

/// That something happened cannot be taken back: it is confirmed first, and a yes or a no is never taken for the proof of it.
#[test]
fn what_happened_is_confirmed_before_its_id_is_asked_for() {
    let env = env().with_forum();
    let job =
        env.job(&json!({"tools": {"builtin": false}}), &json!([{"tools": [comment("first")]}, {"text": "Posted."}]));
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    let mut terminal = Terminal::start(&env, &["resume", "r"]);
    terminal.asks("Did `post_comment` happen?");
    // `abort` is the only word here that begins so, and it is not what somebody means who knows the letter from another question.
    terminal.types(&format!("a{ENTER}"));
    terminal.shows("End the run? [y/N]");
    terminal.types(&format!("n{ENTER}"));
    until("the question again", || terminal.text().matches("(Enter alone: later):").count() == 2);
    terminal.types(&format!("h{ENTER}"));
    terminal.shows("Record that it happened, and never send it again? [y/N]");
    terminal.types(&format!("y{ENTER}"));
    terminal.shows("as proof (Enter for none):");
    terminal.types(&format!("y{ENTER}"));
    terminal.shows("`y` is not an id.");
    terminal.types(&format!("comment-7{ENTER}"));
    // Nothing ran.
    let text = terminal.code(0);
    assert!(text.contains("post_comment happened, as a person says; not sent again"), "{text}");
    let call = env.value("SELECT tool_call_id FROM tool_calls");
    env.run(&["calls", "show", &call]).code(0).shows(&["happened, by ", "with comment-7 as proof"]);
    assert_eq!(env.rows("SELECT choice, proof FROM answers"), ["happened comment-7"]);
    assert_eq!((env.calls(), env.comments().len()), (vec!["post_comment succeeded".to_owned()], 1));
}

/// A job whose earlier run waits for an answer is told where the question is, not to resume what would only ask again.
#[test]
fn the_same_command_while_an_answer_is_missing_names_the_question() {
    let env = env().with_forum();
    let job = careful_job(&env);
    env.run(&["job", &job]).code(75);
    let run = env.value("SELECT run_id FROM runs");
    env.run(&["job", &job])
        .refused(75, &["is waiting for an answer", &format!("`ua questions --run {run}"), "once that is answered"]);
    env.run(&["status"]).code(0).shows(&["` takes approve, skip, abort"]);
    for word in ["waiting", "waiting_for_human"] {
        env.run(&["runs", "list", "--status", word]).code(0).shows(&[&run]);
    }
    let mut terminal = Terminal::start(&env, &["job", &job]);
    terminal.shows("finish that run, which waits for an answer");
    terminal.types(ENTER);
    terminal.code(75);
    let question = env.value("SELECT question_id FROM questions ORDER BY question_id LIMIT 1");
    env.run(&["answer", &question, "abort"]).code(0).says(&[&format!("ended {run}")]);
    assert_eq!(env.run_status(), "failed");
}

#[test]
fn ctrl_c_at_a_prompt_leaves_the_question_open_and_the_terminal_as_it_was() {
    let env = env().with_forum();
    let mut terminal = Terminal::start(&env, &["job", &careful_job(&env), "--run-id", "r"]);
    terminal.asks("first");
    terminal.types("\u{3}");
    until("the end of ua", || terminal.child.try_wait().expect("look at the process").is_some());
    assert!(terminal.is_cursor_shown());
    assert_eq!(env.rows("SELECT DISTINCT status FROM questions"), ["open"]);
    // It says what is left open and how to come back to it, and nothing about calls that a signal would interrupt.
    let text = terminal.code(75);
    let id = env.value("SELECT question_id FROM questions ORDER BY question_id LIMIT 1");
    let id = &id[id.len() - 8..];
    let root = env.arg("root");
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let left = format!("Question {id} is left open; `ua answer {id} --root {root}` asks it again");
    assert_eq!(flat(&text).matches("is left open").count(), 1, "of the one that was asked, once: {text}");
    assert!(flat(&text).contains(&left) && flat(&text).contains(&format!("ua resume r --root {root}")), "{text}");
    assert!(!text.contains("stopping") && !text.contains("error:"), "nobody failed: {text}");
    // `ua answer` alone.
    let mut terminal = Terminal::start(&env, &["answer"]);
    terminal.shows("Which one?");
    terminal.types("\u{3}");
    terminal.shows("nothing was answered; 2 questions are left open");
    assert!(terminal.is_cursor_shown());
    terminal.code(75);
    assert_eq!(env.value("SELECT count(*) FROM answers"), "0");
}

#[test]
fn each_answer_has_its_key_its_word_and_what_it_does_at_any_width() {
    let env = env().with_forum();
    env.run(&["job", &careful_job(&env), "--run-id", "r"]).code(75);
    let id = env.value("SELECT question_id FROM questions ORDER BY question_id LIMIT 1");
    for columns in [40, 60, 80, 120] {
        let mut terminal = Terminal::start_on(&env, columns, &["answer", &id]);
        terminal.shows("later):");
        let text = terminal.text();
        for (key, word, meaning) in [
            ("[a]", "approve", "let it run"),
            ("[s]", "skip", "do not run it; the model is told"),
            ("[ab]", "abort", "end the run"),
            ("[l]", "later", "leave it open"),
        ] {
            let line = text.lines().find(|line| line.trim_start().starts_with(key)).unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(words.get(..2), Some(&[key, word][..]), "{columns}:\n{text}");
            // Behind the word, or below it: in the same column for all of them, and no word of it broken.
            let place = text.find(line).map(|at| &text[at + line.find(word).unwrap_or_default()..]).unwrap_or_default();
            let said: Vec<&str> = place.split_whitespace().skip(1).collect();
            assert!(said.starts_with(&meaning.split(' ').collect::<Vec<_>>()), "{columns} {key}:\n{text}");
        }
        let column = |word: &str| text.lines().find(|line| line.contains(word)).and_then(|line| line.find(word));
        assert_eq!(column("approve"), column("abort  ").or(column("abort")), "{columns}:\n{text}");
        terminal.types(ENTER);
        terminal.code(75);
    }
    assert_eq!(env.value("SELECT count(*) FROM answers"), "0");
}

#[test]
fn what_was_typed_before_a_question_stood_there_is_no_answer_to_it() {
    let env = env().with_forum();
    let turns = json!([
        {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "slow", "until": env.arg("gate")}}]},
        {"tools": [{"name": "mcp__ua_person__ask_user", "input": {"question": "Which colour?"}}]},
        {"text": "Done."}
    ]);
    let job = env.job(&json!({"tools": {"builtin": false}, "escalation": {"ask_user": true}}), &turns);
    let mut terminal = Terminal::start(&env, &["job", &job, "--run-id", "r"]);
    terminal.shows("slow");
    terminal.types(&format!("abort{ENTER}y{ENTER}"));
    env.write("gate", "");
    terminal.asks("Which colour?");
    terminal.types(&format!("words{ENTER}"));
    terminal.shows("Your answer:");
    terminal.types(&format!("green{ENTER}"));
    terminal.code(0);
    assert_eq!(env.rows("SELECT choice, note FROM answers"), ["continue green"]);
}

#[test]
fn abort_at_a_prompt_starts_no_tool_server_again() {
    let env = env();
    let forum = env.forum_entry(&[]);
    let mut args = vec![
        json!("-c"),
        json!(format!("echo started >> '{}'; exec \"$0\" \"$@\"", env.arg("starts"))),
        forum["command"].clone(),
    ];
    args.extend(forum["args"].as_array().cloned().unwrap_or_default());
    env.mcp_config("work/.mcp.json", &json!({"forum": {"command": "/bin/sh", "args": args}}));
    let turns = json!([
        {"tools": [{"name": "mcp__ua_person__ask_user", "input": {"question": "Which colour?"}}]},
        {"text": "Done."}
    ]);
    let job = env.job(&json!({"tools": {"builtin": false}, "escalation": {"ask_user": true}}), &turns);
    for (word, code, starts) in [("words", 0, "started\nstarted\n"), ("abort", 1, "started\n")] {
        std::fs::remove_file(env.path("starts")).unwrap_or_default();
        let mut terminal = Terminal::start(&env, &["job", &job, "--run-id", word]);
        terminal.asks("Which colour?");
        if word == "abort" {
            // What became of its servers meanwhile keeps nobody from ending it.
            env.write("work/.mcp.json", json!({"mcpServers": {"forum": {"command": "/bin/false"}}}).to_string());
        }
        terminal.types(&format!("{word}{ENTER}"));
        terminal.shows(if word == "words" { "Your answer:" } else { "[y/N]" });
        terminal.types(&format!("{}{ENTER}", if word == "words" { "green" } else { "y" }));
        terminal.code(code);
        let started = std::fs::read_to_string(env.path("starts")).expect("it was started");
        assert_eq!(started, starts, "{word}");
    }
}

#[test]
fn the_same_command_after_a_stop_asks_whether_to_resume_or_to_start_anew() {
    let env = env().with_forum();
    let turns = json!([{"tools": [comment("one")]}, {"text": "Posted."}]);
    let job = env.job(&json!({"tools": {"builtin": false}, "budgets": {"max_turns": 1}}), &turns);
    env.run(&["job", &job]).code(75);
    let mut terminal = Terminal::start(&env, &["job", &job]);
    // Why, and with what it is resumed: a resume alone would stop at the same again.
    terminal.shows("of this job was stopped after turn 1");
    terminal.shows("the budget max_turns (1) is reached");
    terminal.shows("[r]  resume  finish that run, with --max-turns +5");
    terminal.types(ENTER);
    assert!(terminal.code(75).contains("--new"));
    let mut terminal = Terminal::start(&env, &["job", &job]);
    terminal.shows("[r]  resume  finish that run");
    terminal.types(&format!("n{ENTER}"));
    terminal.code(75);
    assert_eq!((env.value("SELECT count(*) FROM runs").as_str(), env.comments().len()), ("2", 2));
    let mut terminal = Terminal::start(&env, &["job", &job]);
    terminal.shows("[r]  resume  finish that run");
    for (typed, said) in
        [("new --max-turns 1", "nothing may follow `new`"), ("r --max-turns much", "cannot use --max-turns much")]
    {
        terminal.types(&format!("{typed}{ENTER}"));
        terminal.shows(said);
        until("the prompt again", || terminal.text().trim_end().ends_with("Which one?"));
        terminal.clear();
    }
    terminal.types(&format!("r --max-turns +3{ENTER}"));
    assert!(terminal.code(0).contains("max_turns is 4 now"));
    assert_eq!((env.value("SELECT count(*) FROM runs").as_str(), env.comments().len()), ("2", 2));
    // Without a word about it, it is what is offered.
    let mut terminal = Terminal::start(&env, &["job", &job]);
    terminal.shows("[r]  resume  finish that run, with --max-turns +5");
    terminal.types(&format!("resume{ENTER}"));
    assert!(terminal.code(0).contains("max_turns is 6 now"));
    assert_eq!((env.value("SELECT count(*) FROM runs").as_str(), env.comments().len()), ("2", 2));
}

#[test]
fn whoever_is_asked_which_run_is_told_of_a_call_in_doubt() {
    let env = env().with_forum();
    let turns = json!([{"tools": [comment("one")]}, {"text": "Posted."}]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job]);
    let mut terminal = Terminal::start(&env, &["job", &job]);
    terminal.shows("of this job was killed in turn 1. Nobody knows what happened to a call that it sent.");
    terminal.shows("and the call in doubt, may be done again");
    terminal.types(ENTER);
    terminal.code(75);
}

#[test]
fn every_printed_answer_is_accepted_as_it_is_printed() {
    let words = [("approve", "succeeded"), ("skip", "cancelled"), ("abort", "cancelled")];
    for (nth, (word, status)) in words.into_iter().enumerate() {
        let env = env().with_forum();
        let turns = json!([{"tools": [comment("first")]}, {"text": "Done."}]);
        let job = env
            .job(&json!({"tools": {"builtin": false}, "escalation": {"ask_human_before": ["post_comment"]}}), &turns);
        let output = env.run(&["job", &job, "--run-id", "r"]).code(75);
        let printed: Vec<Vec<String>> = output
            .stdout
            .lines()
            .filter_map(|line| line.trim().strip_prefix("ua answer "))
            .map(|rest| rest.split_whitespace().take(2).map(str::to_owned).collect())
            .collect();
        assert_eq!(printed.len(), 3, "{}", output.stdout);
        assert_eq!(printed[nth][1], word);
        // A machine reads the same commands.
        let listed: Value = serde_json::from_str(&env.run(&["questions", "--json"]).code(0).stdout).expect("JSON");
        assert_eq!(
            listed[0]["answer_with"][nth],
            json!(format!("ua answer {} {word} --root {}", printed[nth][0], env.arg("root")))
        );
        env.run(&["answer", &printed[nth][0], word]).code(0);
        // Answered: it needs nobody any more, and says so wherever it stands.
        env.run(&["questions"]).code(0).says(&["nothing waits for an answer"]);
        env.run(&["runs", "list", "--status", "waiting"]).code(0).says(&["no such runs"]);
        // Whoever ends the run has it ended; the others have it resumed.
        env.run(&["runs", "list"]).code(0).shows(&[if word == "abort" { "failed" } else { "answered" }]);
        env.run(&["resume", "r"]);
        assert_eq!(env.calls(), [format!("post_comment {status}")], "{word}");
    }
}

#[test]
fn a_record_is_put_right_once_the_person_saw_it_and_enter_means_no() {
    let env = env().with_forum();
    let turns = json!([{"tools": [comment("first")]}, {"text": "Posted."}]);
    let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job, "--run-id", "r"]);
    env.run(&["resume", "r"]).code(75);
    let call = env.value("SELECT tool_call_id FROM tool_calls");
    let end = &call[call.len() - 8..];
    let said = ["calls", "resolve", end, "--as", "happened", "--reason", "I looked at the forum"];
    let ask = "Record it as happened, with the reason \"I looked at the forum\"?";
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
    terminal.types(&format!("y{ENTER}"));
    // Nothing at a terminal has a whole id.
    let text = terminal.code(0);
    assert!(text.contains(&format!("call {end} is recorded as happened now")) && !text.contains(&call), "{text}");
    assert_eq!(env.calls(), ["post_comment succeeded"]);
    env.run(&["resume", "r"]).code(0);
    assert_eq!(env.comments().len(), 1);
}

#[test]
fn a_deletion_is_confirmed_on_a_terminal() {
    let env = env().with_forum();
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"text": "hi"}]));
    env.run(&["job", &job, "--run-id", "r"]).code(0);
    let mut terminal = Terminal::start(&env, &["runs", "delete", "r"]);
    terminal.shows("Delete this run and everything in its workspace? It cannot be undone. [y/N]");
    terminal.types(&format!("no{ENTER}"));
    assert!(terminal.code(1).contains("nothing was deleted"));
    let mut terminal = Terminal::start(&env, &["runs", "delete", "r"]);
    terminal.shows("[y/N]");
    // Nothing waits for an answer then.
    terminal.types("\u{3}");
    assert!(terminal.code(130).contains("nothing was deleted"));
    assert_eq!(env.rows("SELECT run_id FROM runs"), ["r"]);
    let mut terminal = Terminal::start(&env, &["runs", "delete", "r"]);
    terminal.shows("[y/N]");
    terminal.types(&format!("y{ENTER}"));
    assert!(terminal.code(0).contains("deleted 1 run"));
    // What only its tool says failed is read before it is said yes to, which is enough.
    let post = json!({"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "x", "fail": "no"}}]});
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([post, {"text": "Done."}]));
    env.run(&["job", &job, "--run-id", "s"]).code(0);
    let mut terminal = Terminal::start(&env, &["runs", "delete", "s"]);
    terminal.shows("may have happened: `post_comment`");
    terminal.shows("[y/N]");
    // When it was sent is told by the clock on the wall, as everywhere on a terminal.
    let text = terminal.text();
    assert!(text.contains(", sent ") && !text.contains("Z)"), "{text}");
    terminal.types(&format!("y{ENTER}"));
    assert!(terminal.code(0).contains("deleted 1 run"));
}

/// A tool that asks on its connection has its form filled in on the terminal: nothing draws over it, what does not fit is asked for again, and
/// nothing is sent before somebody said yes to all of it.
#[test]
fn a_form_of_a_tool_is_filled_in_on_the_terminal() {
    let form = r#"{"type": "object", "required": ["size"], "properties": {
        "size": {"type": "string", "enum": ["small", "large"]},
        "note": {"type": "string"},
        "count": {"type": "integer", "maximum": 9, "default": 1}
    }}"#;
    let form = form.replace('\n', " ");
    for decline in [false, true] {
        let env = env();
        let asks = env.forum_entry(&["--ask", "Which size?", "--form", &form]);
        env.mcp_config("work/.mcp.json", &json!({"forum": asks}));
        let turns = json!([{"tools": [comment("one")]}, {"text": "Done."}]);
        let job = env.job(&json!({"tools": {"builtin": false}}), &turns);
        // Whoever wants no progress is asked all the same.
        let quiet: &[&str] = if decline { &["--quiet"] } else { &[] };
        let mut terminal = Terminal::start(&env, &[&["job", &job, "--run-id", "r"], quiet].concat());
        terminal.asks("Which size?");
        for word in ["accept", "decline", "cancel", "abort", "later"] {
            assert!(terminal.text().contains(word), "{word}: {}", terminal.text());
        }
        if decline {
            terminal.types(&format!("decline{ENTER}"));
            terminal.code(0);
            assert_eq!(env.rows("SELECT choice FROM answers"), ["skip"]);
            continue;
        }
        terminal.types(&format!("accept{ENTER}"));
        // In the order in which the tool names them.
        terminal.shows("one of small, large:");
        terminal.types(&format!("huge{ENTER}"));
        until("the field again", || terminal.text().matches("one of small, large:").count() == 2);
        terminal.types(&format!("large{ENTER}"));
        terminal.shows("(Enter to leave it out):");
        terminal.types(ENTER);
        terminal.shows("a whole number, at most 9 (Enter for 1):");
        terminal.types(&format!("12{ENTER}"));
        terminal.shows("`12` does not fit: it must be at most 9");
        terminal.types(&format!("3{ENTER}"));
        terminal.shows("Send these values? [y/N]");
        let shown = terminal.text();
        assert!(shown.contains("  size: large") && shown.contains("  count: 3"), "{shown}");
        assert_eq!(env.rows("SELECT choice FROM answers"), [""; 0], "sent before anybody said yes");
        terminal.types(&format!("n{ENTER}"));
        until("the question again", || terminal.text().matches("(Enter alone: later):").count() == 2);
        terminal.types(&format!("accept{ENTER}"));
        // What was typed is kept.
        terminal.shows("one of small, large (Enter for large):");
        terminal.types(ENTER);
        until("the note again", || terminal.text().matches("(Enter to leave it out):").count() == 2);
        terminal.types(ENTER);
        terminal.shows("a whole number, at most 9 (Enter for 3):");
        terminal.types(ENTER);
        until("asked once more", || terminal.text().matches("Send these values? [y/N]").count() == 2);
        terminal.types(&format!("y{ENTER}"));
        terminal.code(0);
        let sent: Value = serde_json::from_str(&env.value("SELECT note FROM answers")).expect("JSON");
        assert_eq!(sent, json!({"size": "large", "count": 3}));
        assert_eq!(env.comments().len(), 1);
    }
}

/// A cancelled run is not resumed again. Without a terminal, and with `--yes`, nobody is asked.
#[test]
fn a_cancel_is_confirmed_on_a_terminal() {
    let env = env().with_forum();
    env.run(&["job", &careful_job(&env), "--run-id", "r"]).code(75);
    let ask = "It cannot be resumed afterwards. [y/N]";
    for (keys, code) in [(ENTER.to_owned(), 1), (format!("n{ENTER}"), 1), ("\u{3}".to_owned(), 130)] {
        let mut terminal = Terminal::start(&env, &["runs", "cancel", "r"]);
        terminal.shows(ask);
        terminal.types(&keys);
        assert!(terminal.code(code).contains("nothing was cancelled"), "{keys:?}");
        assert_eq!(env.run_status(), "waiting_for_human");
    }
    let mut terminal = Terminal::start(&env, &["runs", "cancel", "r"]);
    terminal.shows(ask);
    terminal.types(&format!("y{ENTER}"));
    assert!(terminal.code(0).contains("cancelled run r"));
    env.run(&["job", &careful_job(&env), "--run-id", "s", "--new"]).code(75);
    let said = Terminal::start(&env, &["runs", "cancel", "s", "--yes"]).code(0);
    assert!(said.contains("cancelled run s") && !said.contains("[y/N]"), "{said}");
    assert_eq!(env.rows("SELECT DISTINCT status FROM runs"), ["cancelled"]);
}

/// What is asked within minutes begins alike. The beginning of one that was answered, in whichever run, is not another one that still waits.
#[test]
fn the_beginning_of_an_answered_question_names_no_other_one() {
    let env = env().with_forum();
    let fields = json!({"tools": {"builtin": false}, "escalation": {"ask_human_before": ["post_comment"]}});
    let job = env.job(&fields, &json!([{"tools": [comment("first")]}, {"text": "Done."}]));
    env.run(&["job", &job, "--run-id", "r"]).code(75);
    let first = env.value("SELECT question_id FROM questions");
    env.run(&["answer", &first, "skip"]).code(0);
    env.run(&["job", &job, "--run-id", "s", "--new"]).code(75);
    let second = env.value("SELECT question_id FROM questions WHERE status = 'open'");
    let alike = first.chars().zip(second.chars()).take_while(|(a, b)| a == b).count();
    assert!(alike >= 6, "{first} {second}");
    env.run(&["answer", &first[..alike], "approve"]).refused(2, &[&format!("{first} (answered)"), &second]);
    assert_eq!(env.value("SELECT status FROM questions ORDER BY created_at DESC LIMIT 1"), "open");
    env.run(&["answer", &second[..=alike], "skip"]).code(0);
}

#[test]
fn a_person_is_shown_short_ids_and_how_long_ago_and_may_type_them() {
    let env = env().with_forum();
    let turns = json!([{"tools": [comment("x")]}, {"text": "Posted."}]);
    let long = "Write down what was agreed in the long meeting about the mill, the dam and the wheel, with every name, and post it as one comment.";
    let job = env.job(&json!({"objective": long, "tools": {"builtin": false}}), &turns);
    env.run_killed_at("after:tool.invoke:post_comment", &["job", &job]);
    env.run(&["resume", "last"]).code(75);
    let [run, question] = ["SELECT run_id FROM runs", "SELECT question_id FROM questions"].map(|sql| env.value(sql));
    let short = |id: &str| id[id.len() - 8..].to_owned();
    let listed = Terminal::start(&env, &["runs", "list"]).code(0);
    let row = listed.lines().find(|line| line.starts_with(&short(&run))).unwrap_or_else(|| panic!("{listed}"));
    assert!(row.contains("waiting for you") && row.contains(" ago") && row.ends_with('…'), "{row}");
    assert!(!listed.contains(&run), "{listed}");
    let asked = Terminal::start(&env, &["questions"]).code(0);
    let command = format!("ua answer {} happened", short(&question));
    assert!(asked.contains(&command) && !asked.contains(&question), "{asked}");
    // What is printed is accepted as it is printed.
    env.run(&["answer", &short(&question), "happened"]).code(0);
    let shown = Terminal::start(&env, &["runs", "show", "last"]).code(0);
    assert!(shown.contains(&format!("ua resume {}", short(&run))), "{shown}");
    env.run(&["resume", &short(&run)]).code(0);
    // Machines and pipes get whole ids and exact instants.
    env.run(&["runs", "list"]).code(0).shows(&[&run, "Z  "]);
}
