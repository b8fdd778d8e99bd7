//! The help of every command, as a person reads it.

use clap::{Command, CommandFactory as _};

use crate::Cli;

/// Every command below `command` that is shown, with the words that name it.
fn commands(command: &Command, above: &str, found: &mut Vec<(String, Command)>) {
    let name = if above.is_empty() { command.get_name().to_owned() } else { format!("{above} {}", command.get_name()) };
    found.push((name.clone(), command.clone()));
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help") {
        commands(inner, &name, found);
    }
}

fn all() -> Vec<(String, Command)> {
    let mut command = Cli::command();
    command.build();
    let mut found = Vec::new();
    commands(&command, "", &mut found);
    found
}

#[test]
fn the_help_of_every_command() {
    let mut page = String::new();
    for (name, mut command) in all() {
        let help = command.render_long_help().to_string();
        page.push_str(&format!("===== {name} --help\n{}\n\n", help.trim_end()));
    }
    insta::assert_snapshot!("help", page);
}

#[test]
fn every_command_that_does_something_has_an_example() {
    for (name, command) in all() {
        let does_something = command.get_subcommands().next().is_none() && name != "ua toolserver";
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(!does_something || after.contains("Examples:"), "{name} has no example");
    }
}

/// Words of this project's own making, each with the standard term; every string of the sources is compared with the same list.
const PRIVATE_WORDS: &str = include_str!("../../ua-testkit/tests/it/private_words.txt");

#[test]
fn help_has_no_private_words() {
    for (name, mut command) in all() {
        let help = command.render_long_help().to_string().to_lowercase();
        let words: Vec<&str> = help.split_whitespace().collect();
        let text = format!(" {} ", words.join(" "));
        let words = PRIVATE_WORDS.lines().filter(|line| !line.starts_with('#'));
        for private in words.filter_map(|line| line.split_once(" -> ")).map(|(word, _)| word) {
            assert!(!text.contains(&format!(" {private} ")), "`{private}` in the help of {name}");
        }
    }
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

/// A paragraph that is broken by hand is broken again where the terminal ends, and every second line is short.
#[test]
fn a_paragraph_of_help_is_one_line_and_examples_fit_a_terminal() {
    for (name, command) in all() {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines: Vec<&str> = after.lines().collect();
        for pair in lines.windows(2) {
            let [one, next] = pair else { continue };
            let are_prose = !one.is_empty() && !next.is_empty() && !one.starts_with(' ') && !next.starts_with(' ');
            assert!(!are_prose, "{name}: {one}\n{next}");
        }
        for example in lines.iter().filter(|line| line.starts_with("  ")) {
            assert!(example.chars().count() <= 80, "{name}: {example}");
        }
    }
}
