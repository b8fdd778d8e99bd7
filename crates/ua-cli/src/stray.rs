//! Words that people type who know other programs: the command that does it here.

/// A word, and what it is called here.
const WORDS: [(&str, &str); 29] = [
    ("run", "ua job FILE"),
    ("start", "ua job FILE"),
    ("exec", "ua job FILE"),
    ("new", "ua init"),
    ("create", "ua init"),
    ("check", "ua job --check FILE"),
    ("validate", "ua job --check FILE"),
    ("plan", "ua job --check FILE"),
    ("ls", "ua runs list"),
    ("list", "ua runs list"),
    ("jobs", "ua runs list"),
    ("ps", "ua status"),
    ("show", "ua runs show RUN"),
    ("describe", "ua runs show RUN"),
    ("logs", "ua runs tail RUN"),
    ("log", "ua runs tail RUN"),
    ("tail", "ua runs tail RUN"),
    ("watch", "ua runs tail RUN"),
    ("export", "ua runs export RUN"),
    ("continue", "ua resume RUN"),
    ("restart", "ua resume RUN"),
    ("retry", "ua resume RUN"),
    ("approve", "ua answer QUESTION approve"),
    ("kill", "ua runs cancel RUN"),
    ("stop", "ua runs cancel RUN"),
    ("cancel", "ua runs cancel RUN"),
    ("rm", "ua runs delete RUN"),
    ("delete", "ua runs delete RUN"),
    ("version", "ua --version"),
];

/// What a word is called here, where it stands in the place of a command.
pub(crate) fn meant(word: &str) -> Option<&'static str> {
    WORDS.iter().find(|(other, _)| *other == word).map(|(_, command)| *command)
}

/// The command that was typed with one letter too few, too many, another one, or two of them the wrong way round.
pub(crate) fn slipped<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut names = names;
    names.find(|name| typed.len() > 1 && is_slip(&typed.chars().collect::<Vec<_>>(), &name.chars().collect::<Vec<_>>()))
}

fn is_slip(typed: &[char], name: &[char]) -> bool {
    let front = typed.iter().zip(name).take_while(|(a, b)| a == b).count();
    let (typed, name) = (&typed[front..], &name[front..]);
    let back = typed.iter().rev().zip(name.iter().rev()).take_while(|(a, b)| a == b).count();
    match (&typed[..typed.len() - back], &name[..name.len() - back]) {
        ([a, b], [c, d]) => (a, b) == (d, c),
        (typed, name) => typed.len() <= 1 && name.len() <= 1,
    }
}

/// Words below a command, and what they are called there: the first that the command has.
const BELOW: [(&str, &[&str]); 19] = [
    ("ls", &["list"]),
    ("all", &["list"]),
    ("get", &["show", "list"]),
    ("view", &["show", "list"]),
    ("describe", &["show", "explain"]),
    ("info", &["show", "status"]),
    ("status", &["show", "list"]),
    ("why", &["explain"]),
    ("rm", &["delete", "remove"]),
    ("remove", &["delete"]),
    ("delete", &["remove"]),
    ("kill", &["cancel"]),
    ("stop", &["cancel", "pause", "drain"]),
    ("logs", &["tail"]),
    ("log", &["tail"]),
    ("watch", &["tail"]),
    ("create", &["add"]),
    ("new", &["add"]),
    ("settle", &["resolve"]),
];

/// What a word is called below a command that has these subcommands.
pub(crate) fn meant_below<'a>(word: &str, subcommands: &[&'a str]) -> Option<&'a str> {
    let (_, meant) = BELOW.iter().find(|(other, _)| *other == word)?;
    meant.iter().find_map(|meant| subcommands.iter().find(|name| *name == meant).copied())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::Cli;

    #[test]
    fn one_slip_of_a_finger_is_forgiven() {
        let names = || ["job", "runs", "resume", "status"].into_iter();
        for (typed, meant) in [
            ("jb", "job"),
            ("jobb", "job"),
            ("jab", "job"),
            ("rnus", "runs"),
            ("reusme", "resume"),
            ("statu", "status"),
        ] {
            assert_eq!(slipped(typed, names()), Some(meant), "{typed}");
        }
        for typed in ["j", "jbo2", "rsmue", "xyz", ""] {
            assert_eq!(slipped(typed, names()), None, "{typed}");
        }
    }

    #[test]
    fn every_word_is_none_of_ours_and_leads_to_a_command() {
        let ours: Vec<String> = Cli::command().get_subcommands().map(|command| command.get_name().to_owned()).collect();
        for (word, command) in WORDS {
            assert!(!ours.iter().any(|own| own == word), "`ua {word}` is a command");
            let parsed = Cli::try_parse_from(command.split(' '));
            let is_version = |error: &clap::Error| error.kind() == clap::error::ErrorKind::DisplayVersion;
            assert!(parsed.as_ref().map_or_else(is_version, |_| true), "{command}");
        }
    }

    #[test]
    fn every_word_below_a_command_leads_somewhere() {
        let top = Cli::command();
        let groups: Vec<Vec<&str>> =
            top.get_subcommands().map(|group| group.get_subcommands().map(clap::Command::get_name).collect()).collect();
        for (word, meant) in BELOW {
            assert!(groups.iter().any(|group| meant_below(word, group).is_some()), "`{word}` leads nowhere");
            for meant in meant {
                assert!(groups.iter().any(|group| group.contains(meant)), "there is no `{meant}`");
            }
        }
        assert_eq!(meant_below("ls", &["list", "show"]), Some("list"));
        assert_eq!(meant_below("rm", &["list", "remove"]), Some("remove"));
        assert_eq!(meant_below("rm", &["list", "show"]), None);
    }
}
