//! Mistakes on the command line: what is said about them beyond what the parser knows.

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use ua_host::HostError;

use crate::args::Cli;
use crate::{commands, output, refused, stray};

/// The same without advice that does not help: to write a flag that does not exist behind `--` (nothing here takes such a value), and to take
/// an option that has no more than its beginning in common with what was typed.
pub(crate) fn without_bad_advice(mut error: clap::Error) -> clap::Error {
    if error.kind() == ErrorKind::UnknownArgument {
        error.remove(ContextKind::Suggested);
        let typed = text_of(&error, ContextKind::InvalidArg);
        let meant = text_of(&error, ContextKind::SuggestedArg);
        let is_close = |(typed, meant): (String, String)| stray::is_close(&typed, &meant);
        if !typed.zip(meant).is_some_and(is_close) {
            error.remove(ContextKind::SuggestedArg);
        }
    }
    error
}

fn text_of(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    }
}

/// What the parser says, for a machine: one sentence, and in place of the whole usage the command whose help has it.
pub(crate) fn in_short(rendered: &str) -> HostError {
    let text = rendered.trim();
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let (message, rest) = text.split_once("\n\n").unwrap_or((text, ""));
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let tips = rest.lines().filter_map(|line| line.trim().strip_prefix("tip: "));
    let usage = rest.lines().find_map(|line| line.trim().strip_prefix("Usage: ")).unwrap_or("ua");
    let command: Vec<&str> =
        usage.split(' ').take_while(|word| word.starts_with(|c: char| c.is_ascii_lowercase())).collect();
    let help = format!("`{} --help` says what it takes", command.join(" "));
    HostError::usage(message).hint(tips.map(str::to_owned).chain([help]).collect::<Vec<_>>().join("; "))
}

/// A mistake on the command line about which more can be said than the parser knows: a word that other programs have for a command, or a
/// client that the gateway knows no configuration of.
pub(crate) fn told_apart(error: &clap::Error) -> Option<HostError> {
    let text = |kind| text_of(error, kind);
    if let Some(refused) = refused::value(error) {
        return Some(refused);
    }
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    if error.kind() == ErrorKind::InvalidValue && text(ContextKind::InvalidArg)?.starts_with("--client ") {
        let client = text(ContextKind::InvalidValue)?;
        let names = <commands::gateway::GatewayClient as clap::ValueEnum>::value_variants();
        let names: Vec<_> = names.iter().filter_map(clap::ValueEnum::to_possible_value).collect();
        let names: Vec<&str> = names.iter().map(clap::builder::PossibleValue::get_name).collect();
        let hint = format!(
            "known clients are {}; for another client, name the file: `ua gateway install --file FILE` (JSON, TOML or YAML with \
             its tool servers)",
            names.join(", ")
        );
        return Some(HostError::not_found(
            format!("the client `{}` is not known", output::line(&client, 60)),
            &client,
            names,
            &hint,
        ));
    }
    if error.kind() == ErrorKind::UnknownArgument {
        let option = text(ContextKind::InvalidArg)?;
        let (command, hint) = stray::meant_by_option(&option, &words)?;
        return Some(
            HostError::usage(format!("`ua {command}` has no option `{}`", output::line(&option, 60)))
                .hint(format!("{hint}; `ua {command} --help` lists its options")),
        );
    }
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let word = text(ContextKind::InvalidSubcommand)?;
    let failure = |below: &str, meant: &str| {
        let help = if below.is_empty() { "ua --help".to_owned() } else { format!("ua {below}--help") };
        HostError::usage(format!("there is no command `{}`", output::line(&format!("{below}{word}"), 60)))
            .hint(format!("`{meant}` does that; `{help}` lists the commands"))
    };
    // Of `ua` itself, or below a command: there are other words there.
    let mut top = Cli::command();
    top.build();
    let above = words.iter().take_while(|other| **other != word);
    match above.filter(|other| top.find_subcommand(other).is_some()).last() {
        None => {
            let next = words.iter().skip_while(|other| **other != word).nth(1).map(String::as_str);
            // `ua run list`: one of several runs is meant, and not that one be started.
            let plural = top.find_subcommand(format!("{word}s"));
            if let Some(inner) = plural.and_then(|plural| plural.find_subcommand(next?)) {
                return Some(failure("", &format!("ua {word}s {}", inner.get_name())));
            }
            let meant = stray::meant(&word).map(|meant| failure("", meant));
            let is_unlike = error.get(ContextKind::SuggestedSubcommand).is_none();
            meant.or_else(|| {
                let names = top.get_subcommands().filter(|command| !command.is_hide_set()).map(clap::Command::get_name);
                let name = stray::slipped(&word, names).filter(|_| is_unlike)?;
                Some(
                    HostError::usage(format!("there is no command `{}`", output::line(&word, 60)))
                        .hint(format!("did you mean `ua {name}`? `ua --help` lists the commands")),
                )
            })
        }
        Some(group) => {
            let group = top.find_subcommand(group)?;
            let names: Vec<&str> = group.get_subcommands().map(clap::Command::get_name).collect();
            let meant = stray::meant_below(&word, &names)?;
            Some(failure(&format!("{} ", group.get_name()), &format!("ua {} {meant}", group.get_name())))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn said(words: &str) -> clap::Error {
        without_bad_advice(Cli::try_parse_from(words.split(' ')).unwrap_err())
    }

    #[test]
    fn a_machine_is_told_a_mistake_in_a_sentence_and_not_the_whole_usage() {
        for (words, message, hint) in [
            (
                "ua runs show",
                "the following required arguments were not provided: <RUN>",
                "`ua runs show --help` says what it takes",
            ),
            (
                "ua job x --polciy f",
                "unexpected argument '--polciy' found",
                "a similar argument exists: '--policy'; `ua job --help` says what it takes",
            ),
            (
                "ua worker --concurrency x",
                "invalid value 'x' for '--concurrency <N>': invalid digit found in string",
                "`ua --help` says what it takes",
            ),
        ] {
            let failure = in_short(&said(words).render().to_string());
            assert_eq!((failure.message(), failure.hint_text()), (message, Some(hint)), "{words}");
        }
    }

    #[test]
    fn advice_that_leads_elsewhere_is_left_out() {
        for (words, is_kept) in [
            ("ua job x --max-turns 4", false),
            ("ua job x --polciy f", true),
            ("ua job x --mcpconfig f", true),
            ("ua runs list --statuss x", true),
        ] {
            assert_eq!(said(words).render().to_string().contains("tip:"), is_kept, "{words}");
        }
    }
}
