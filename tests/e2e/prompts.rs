//! What becomes of a prompt: answered elsewhere meanwhile, ended by a signal, given words that it does not know.

use rustix::process::Signal;
use serde_json::{Value, json};
use ua_e2e::{Model, TestEnv, until};

use super::attended::{ENTER, Terminal};
use super::env;

fn asking_job(env: &TestEnv, name: &str, objective: &str) -> String {
    let asks =
        json!({"name": "mcp__ua_person__ask_user", "input": {"question": "Which colour?", "options": ["red", "blue"]}});
    let fields = json!({"objective": objective, "tools": {"builtin": false}, "escalation": {"ask_user": true}});
    env.named_job(name, &fields, &json!([{"tools": [asks]}, {"text": "Done."}]))
}

fn approval_job(env: &TestEnv) -> String {
    let post = |text: &str| json!({"name": "mcp__forum__post_comment", "input": {"text": text}});
    let turns: Value = json!([{"tools": [post("first"), post("second")]}, {"text": "Posted."}]);
    env.job(&json!({"tools": {"builtin": false}, "escalation": {"ask_human_before": ["post_comment"]}}), &turns)
}

/// A question that was answered elsewhere is not said to be open, whatever is typed here, and the run goes on with that answer.
#[test]
fn an_answer_from_another_terminal_takes_the_prompt_away() {
    for typed in ["", "l\r", "\r"] {
        let env = env();
        let job = asking_job(&env, "job", "Ask.");
        let mut terminal = Terminal::start(&env, &["job", &job, "--run-id", "r"]);
        terminal.asks("Which colour?");
        let question = env.value("SELECT question_id FROM questions");
        // The process that asks may have taken it before its state is looked at.
        let told = env.run(&["answer", &question, "--text", "green"]).code(0).stderr;
        let ways = ["continues in the process that was asking this as well", "the process that drives run r takes it"];
        assert!(ways.iter().any(|way| told.contains(way)), "{told}");
        terminal.types(typed);
        let text = terminal.code(0);
        assert!(text.contains("was answered elsewhere in the meantime") && text.contains("green"), "{typed:?} {text}");
        assert!(!text.contains("is left open") && text.contains("succeeded"), "{typed:?} {text}");
        assert_eq!(env.rows("SELECT choice, note FROM answers"), ["continue green"]);
        env.run(&["answer", &question, "--text", "blue"]).refused(2, &["has already been answered: \"green\", by "]);
    }
}

/// A terminal hands over 4,095 bytes of a line and drops the rest: what was pasted and cut is no answer. Lines behind the first one are none either,
/// and it is said.
#[test]
fn what_a_terminal_cut_is_no_answer() {
    let env = env();
    let job = asking_job(&env, "job", "Ask.");
    let mut terminal = Terminal::start(&env, &["job", &job, "--run-id", "r"]);
    terminal.asks("Which colour?");
    terminal.types(&format!("w{ENTER}"));
    terminal.shows("Your answer");
    terminal.types(&format!("{}{ENTER}", "x".repeat(5_000)));
    terminal.shows("nothing of it was taken");
    assert_eq!(env.value("SELECT count(*) FROM answers"), "0");
    terminal.types(&format!("green{ENTER}and more{ENTER}"));
    let text = terminal.code(0);
    assert!(text.contains("only the first line was taken"), "{text}");
    assert_eq!(env.rows("SELECT note FROM answers"), ["green"]);
}

/// Ctrl-Z and `fg`: what a shell wrote in between stands below the question.
#[test]
fn a_prompt_is_shown_again_when_its_process_continues() {
    let env = env();
    let job = asking_job(&env, "job", "Ask.");
    let mut terminal = Terminal::start(&env, &["job", &job, "--run-id", "r"]);
    terminal.asks("Which colour?");
    terminal.signal(Signal::STOP);
    terminal.clear();
    terminal.signal(Signal::CONT);
    terminal.asks("Which colour?");
    terminal.types(&format!("1{ENTER}"));
    terminal.code(0);
    assert_eq!(env.rows("SELECT note FROM answers"), ["red"]);
}

/// Whoever leaves with Ctrl-C what was answered in the same moment is not told that it is open.
#[test]
fn a_question_that_was_answered_meanwhile_is_not_left_open_by_ctrl_c() {
    let env = env();
    let job = asking_job(&env, "job", "Ask.");
    let terminal = Terminal::start(&env, &["job", &job, "--run-id", "r"]);
    terminal.asks("Which colour?");
    let question = env.value("SELECT question_id FROM questions");
    // It does not get to look before the signal is there.
    terminal.signal(Signal::STOP);
    env.run(&["answer", &question, "--text", "green"]).code(0);
    terminal.signal(Signal::INT);
    terminal.signal(Signal::CONT);
    let (_, text) = terminal.end();
    assert!(text.contains("was answered elsewhere in the meantime"), "{text}");
    assert!(!text.contains("is left open") && !text.contains("asks it again"), "{text}");
}

/// Of two questions the one that was answered here is not said to be open when the other one is left.
#[test]
fn only_what_is_open_is_said_to_be_left_open() {
    let env = env().with_forum();
    let mut terminal = Terminal::start(&env, &["job", &approval_job(&env), "--run-id", "r"]);
    terminal.asks("first");
    // The older word of the command, too.
    terminal.types(&format!("deny{ENTER}"));
    terminal.shows("What the model should know");
    terminal.types(ENTER);
    terminal.shows("second");
    until("the second prompt", || terminal.text().matches("(Enter alone: later):").count() == 2);
    terminal.types(ENTER);
    let text = terminal.code(75);
    assert_eq!(text.matches("is left open; `ua answer").count(), 1, "{text}");
    assert_eq!(env.rows("SELECT choice FROM answers"), ["skip"]);
}

/// A run that was ended elsewhere asks nothing any more.
#[test]
fn a_run_that_is_ended_elsewhere_ends_at_its_prompt() {
    let env = env().with_forum();
    let terminal = Terminal::start(&env, &["job", &approval_job(&env), "--run-id", "r"]);
    terminal.asks("first");
    env.run(&["runs", "cancel", "r"]).code(0);
    let text = terminal.code(1);
    assert!(text.contains("no longer needs an answer: run r ends"), "{text}");
    assert_eq!((env.run_status().as_str(), env.comments().len()), ("cancelled", 0));
}

#[test]
fn a_signal_at_a_prompt_ends_the_process_and_leaves_the_question_open() {
    for signal in [Signal::TERM, Signal::HUP] {
        let env = env().with_forum();
        let terminal = Terminal::start(&env, &["job", &approval_job(&env), "--run-id", "r"]);
        terminal.asks("first");
        terminal.signal(signal);
        let text = terminal.code(130);
        assert!(text.contains("is left open, and run r waits for it") && text.contains("ua resume r"), "{text}");
        let stands = || (env.run_status(), env.rows("SELECT DISTINCT status FROM questions"));
        assert_eq!(stands(), ("waiting_for_human".to_owned(), vec!["open".to_owned()]));
        // The same of a resume, and of a command that drives nothing.
        let question = env.value("SELECT question_id FROM questions ORDER BY question_id LIMIT 1");
        for command in [["resume", "r"], ["answer", &question]] {
            let terminal = Terminal::start(&env, &command);
            terminal.asks("first");
            terminal.signal(signal);
            assert!(terminal.code(130).contains("is left open"), "{command:?}");
        }
        assert_eq!(stands(), ("waiting_for_human".to_owned(), vec!["open".to_owned()]));
    }
}

#[test]
fn what_is_neither_yes_nor_no_is_asked_about_again() {
    let env = env().with_forum();
    let mut terminal = Terminal::start(&env, &["job", &approval_job(&env), "--run-id", "r"]);
    terminal.asks("first");
    terminal.types(&format!("a{ENTER}"));
    terminal.shows("Let it run? [y/N]");
    terminal.types(&format!("maybe{ENTER}"));
    terminal.shows("`maybe` is neither yes nor no. Let it run? [y/N]");
    terminal.types(&format!("y{ENTER}"));
    terminal.shows("second");
    assert_eq!(env.rows("SELECT choice FROM answers"), ["execute"]);
    terminal.types("\u{3}");
    terminal.code(75);
}

/// Each line has what `ua answer` takes, and what the run is for.
#[test]
fn the_list_of_open_questions_has_their_ids_and_objectives() {
    let env = env();
    for (name, objective) in [("one", "Paint the mill"), ("two", "Paint the dam")] {
        env.run(&["job", &asking_job(&env, name, objective), "--run-id", name]).code(75);
    }
    let questions = env.rows("SELECT question_id, run_id FROM questions ORDER BY question_id");
    let mut terminal = Terminal::start(&env, &["answer"]);
    terminal.shows("Which one?");
    let text = terminal.text();
    for row in &questions {
        let (id, run) = row.split_once(' ').unwrap_or_default();
        let objective = if run == "one" { "Paint the mill" } else { "Paint the dam" };
        let short = &id[id.len() - 8..];
        let line = text.lines().find(|line| line.contains(short)).unwrap_or_else(|| panic!("{short}: {text}"));
        assert!(line.contains(&format!("run {run}: {objective}")), "{line}");
        // What is shown is taken.
        env.run(&["answer", short, "skip"]).code(0);
    }
    terminal.types(ENTER);
    terminal.code(75);
}

/// What helps against a refused key is said with the variable of that provider, and no model is told anything.
#[test]
fn a_refused_key_is_asked_about_with_what_helps() {
    let model = Model::with(&json!({"turns": [{"text": "Done."}]}).to_string(), |config| {
        config.api_key = Some("the-right-key".to_owned());
    });
    let env = env();
    let fields = json!({"tools": {"builtin": false}, "model": {"provider": "anthropic", "name": "scripted"}});
    let job = env.job(&fields, &json!([]));
    let address = format!("ANTHROPIC_BASE_URL={}", model.base_url());
    let wrong = [address.as_str(), "ANTHROPIC_API_KEY=the-wrong-key"];
    let mut terminal = Terminal::start_in(&env, &wrong, &["job", &job, "--run-id", "r"]);
    terminal.asks("The model provider refused the credentials (HTTP 401)");
    let text = terminal.text();
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("set ANTHROPIC_API_KEY in the shell to a valid key"), "{text}");
    assert!(flat.contains("then `ua resume r") && flat.contains("and answer `retry` there"), "{text}");
    assert!(!text.contains("rejected") && !text.contains("OPENAI_API_KEY"), "{text}");
    terminal.types(&format!("l{ENTER}"));
    terminal.code(75);
    let mut terminal = Terminal::start_in(&env, &[&address, "ANTHROPIC_API_KEY=the-right-key"], &["resume", "r"]);
    terminal.asks("The model provider refused the credentials (HTTP 401)");
    // Nothing else begins so.
    terminal.types(&format!("r{ENTER}"));
    let text = terminal.code(0);
    assert!(!text.contains("What the model should know"), "{text}");
}

/// A tool's form on the terminal: each field with its limits, a value outside them asked for again, and nothing sent before somebody agreed to
/// all values together; whoever did not finds what was typed.
#[test]
fn a_form_of_a_tool_is_filled_in_field_by_field_and_sent_once_it_was_seen() {
    let env = env();
    let form = json!({"type": "object", "required": ["email", "people"], "properties": {
        "email": {"type": "string", "format": "email", "title": "Your mail address"},
        "people": {"type": "integer", "minimum": 1, "maximum": 9},
        "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]},
    }});
    let entry = env.forum_entry(&["--ask", "For whom?", "--form", &form.to_string()]);
    env.mcp_config("work/.mcp.json", &json!({"forum": entry}));
    let post = json!({"name": "mcp__forum__post_comment", "input": {"text": "one"}});
    let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"tools": [post]}, {"text": "Done."}]));
    let mut terminal = Terminal::start(&env, &["job", &job, "--run-id", "r"]);
    terminal.asks("For whom?");
    let mut says = |typed: &str, shown: &str| {
        terminal.types(&format!("{typed}{ENTER}"));
        terminal.shows(shown);
    };
    says("accept", "email: Your mail address");
    says("nomail", "`nomail` does not fit: it must be a mail address");
    says("eda@example.org", "a whole number, at least 1, at most 9:");
    says("12", "`12` does not fit: it must be at most 9");
    says("4", "one of s (Small), l (Large) (Enter to leave it out):");
    says("large", "email: eda@example.org");
    says("n", "For whom?");
    until("the question again", || terminal.text().matches("(Enter alone: later):").count() == 2);
    terminal.clear();
    let mut says = |typed: &str, shown: &str| {
        terminal.types(&format!("{typed}{ENTER}"));
        terminal.shows(shown);
    };
    says("accept", "a mail address (Enter for eda@example.org):");
    says("ada@example.org", "at most 9 (Enter for 4):");
    says("", "l (Large) (Enter for l):");
    says("", "Send these values? [y/N]");
    assert_eq!(env.rows("SELECT choice FROM answers"), Vec::<String>::new(), "nothing is sent yet");
    terminal.types(&format!("y{ENTER}"));
    terminal.code(0);
    let sent: Value = serde_json::from_str(&env.value("SELECT note FROM answers")).unwrap();
    assert_eq!(sent, json!({"email": "ada@example.org", "people": 4, "size": "l"}));
    assert_eq!(env.comments().len(), 1);
}

/// A tool that waits on the connection of the process that asks cannot be kept waiting by it: whoever leaves its question, at its menu or in its form,
/// by key or by signal, reads what the tool is told, what is waited for, and how to continue; nothing is said to be open that is not. From another
/// terminal the question is left open, and can be answered still.
#[test]
fn who_leaves_the_question_of_a_tool_that_waits_is_told_what_becomes_of_it() {
    let post = json!({"name": "mcp__forum__post_comment", "input": {"text": "one"}});
    for (in_form, signal) in [(false, None), (true, None), (false, Some(Signal::TERM)), (true, Some(Signal::INT))] {
        let env = env();
        env.mcp_config("work/.mcp.json", &json!({"forum": env.forum_entry(&["--ask", "Which size?"])}));
        let job = env.job(&json!({"tools": {"builtin": false}}), &json!([{"tools": [post]}, {"text": "Done."}]));
        let mut terminal = Terminal::start(&env, &["job", &job, "--run-id", "r"]);
        terminal.asks("Which size?");
        let question = env.value("SELECT question_id FROM questions");
        let mut beside = Terminal::start(&env, &["answer", &question]);
        beside.asks("Which size?");
        beside.types("\u{3}");
        let text = beside.code(75);
        assert!(text.contains("is left open, and a tool waits for it") && !text.contains("ua resume"), "{text}");
        if in_form {
            terminal.types(&format!("accept{ENTER}"));
            until("the form", || terminal.text().matches("text: ").count() > 1);
        }
        match signal {
            Some(signal) => terminal.signal(signal),
            None => terminal.types("\u{3}"),
        }
        let text = terminal.code(130);
        assert!(text.contains("the tool is told that no decision was made, and the run stops"), "{text}");
        assert!(text.contains("stopping; nothing new is started") && text.contains("ua resume r"), "{text}");
        assert!(!text.contains("left open") && !text.contains("ua answer"), "{text}");
        assert!(!text.contains("no longer needs an answer") && !text.contains("error:"), "{text}");
        assert_eq!(env.rows("SELECT status FROM questions"), ["closed"]);
        assert_eq!(env.value("SELECT count(*) FROM answers"), "0");
        let short = &question[question.len() - 8..];
        env.run(&["answer", short, "cancel"]).refused(2, &[&question, "no longer needs an answer"]);
        env.run(&["resume", "r"]).code(0);
        assert_eq!((env.comments().len(), env.calls()), (1, vec!["post_comment succeeded".to_owned()]));
    }
}
