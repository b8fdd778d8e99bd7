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

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::Cli;

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
}
