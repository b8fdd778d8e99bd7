//! The help of every command, as a person reads it.

use clap::error::ErrorKind;
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

/// Flags whose value is their own tool server's to judge, which programs start with variables that may be set and empty.
const STARTED_BY_PROGRAMS: &str = "ua toolserver";

/// Of a script whose variable is not set, no flag takes the empty value for one that was meant.
#[test]
fn no_flag_takes_an_empty_value() {
    let mut taken = Vec::new();
    for (name, command) in all().into_iter().filter(|(name, _)| name != STARTED_BY_PROGRAMS) {
        let flags = command.get_arguments().filter(|argument| argument.get_action().takes_values());
        for flag in flags.filter_map(|argument| argument.get_long()) {
            let words = name.split(' ').map(str::to_owned).chain([format!("--{flag}"), String::new()]);
            // What is left out beside it is another mistake, which is found behind all values.
            let refused = Cli::command().try_get_matches_from(words).err().map(|error| error.kind());
            if !matches!(refused, Some(ErrorKind::InvalidValue | ErrorKind::ValueValidation)) {
                taken.push(format!("{name} --{flag}: {refused:?}"));
            }
        }
    }
    assert!(taken.is_empty(), "{taken:#?}");
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
