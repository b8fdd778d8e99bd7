//! Mistakes on the command line: what is said about them beyond what the parser knows.

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use ua_core::PrintedCommand;
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

/// What the parser says, as everything that goes wrong is said: one sentence, and in place of the whole usage the command whose help has it.
/// `words` is the command line, without the program's name.
pub(crate) fn in_short(error: &clap::Error, words: &[String]) -> HostError {
    let command = stray::command_of(words);
    let whole = if command.is_empty() { "ua".to_owned() } else { format!("ua {command}") };
    let typed = text_of(error, ContextKind::InvalidArg).unwrap_or_default();
    let message = if let Some((option, value)) = without_its_value(error) {
        format!("`{whole}` takes a value behind `{option}`: {value}")
    } else if let Some((one, others)) = at_odds(error) {
        format!("`{whole}` takes {one} or {others}, and not both")
    } else if error.kind() == ErrorKind::MissingSubcommand {
        format!("`{whole}` needs a command")
    } else if error.kind() == ErrorKind::MissingRequiredArgument {
        format!("`{whole}` needs {}", needed(&all_of(error, ContextKind::InvalidArg)))
    } else if error.kind() != ErrorKind::UnknownArgument {
        said_by_the_parser(error)
    } else if typed.starts_with('-') {
        format!("`{whole}` has no option `{}`", output::line(&typed, 60))
    } else {
        format!("unexpected argument `{}` of `{whole}`", output::line(&typed, 60))
    };
    let meant = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    let meant = meant.into_iter().find_map(|kind| first_of(error, kind));
    let mut meant = meant.map_or_else(String::new, |meant| format!("did you mean `{}`? ", output::line(&meant, 60)));
    if error.kind() == ErrorKind::MissingRequiredArgument
        && let Some(listed) =
            all_of(error, ContextKind::InvalidArg).iter().rev().find_map(|missing| found_by(&whole, missing))
    {
        meant = listed + "; ";
    }
    if error.kind() == ErrorKind::UnknownArgument && command == "answer" && !typed.starts_with('-') {
        meant.push_str("an answer is one word, and `--text TEXT` says more, in quotes; ");
    }
    HostError::usage(message).hint(format!("{meant}`{whole} --help` says what it takes"))
}

/// What a command lacks, in words: what stands by itself first, as it is written in help, and of several options that one is enough.
fn needed(missing: &[String]) -> String {
    let (options, places): (Vec<&String>, Vec<&String>) = missing.iter().partition(|one| one.contains("--"));
    let bare = |one: &str| one.replace(['<', '>'], "");
    let one_of = |group: &str| {
        let within = group.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')).unwrap_or(group);
        let options: Vec<String> = within.split('|').map(bare).collect();
        match options.split_last() {
            Some((last, others)) if !others.is_empty() => format!("one of {} or {last}", others.join(", ")),
            _ => bare(group),
        }
    };
    let places: Vec<String> = places.into_iter().map(|place| bare(place)).collect();
    let options: Vec<String> = options.into_iter().map(|group| one_of(group)).collect();
    let all: Vec<String> = places.into_iter().chain(options).collect();
    match all.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => all.join(""),
    }
}

/// Where somebody finds what a command lacks, as it is written in help.
fn found_by(command: &str, missing: &str) -> Option<String> {
    let listed = match (command, missing) {
        // A run has a name that nobody has to look up.
        (_, "<RUN>") => {
            return Some(format!("`{command} last` takes the newest run, and `ua runs list` shows them all"));
        }
        (_, "<RUN>..." | "<A>" | "<B>") => "`ua runs list` shows the runs, and `last` is the newest",
        // Which one it is about is the first question, what is said of it the second.
        ("ua calls resolve", "<CALL>") => {
            "`ua calls list --unknown` shows the calls whose outcome is unknown, each with its id, and for example \
             `ua calls resolve CALL --happened` says that one happened"
        }
        ("ua calls resolve", "--reason <TEXT>") => {
            "for example `ua calls resolve CALL --as not_happened --reason TEXT`, where the text says how you know"
        }
        ("ua calls resolve", _) => {
            "for example `ua calls resolve CALL --happened` if it happened, and `ua calls resolve CALL --retry` to send it again"
        }
        (_, "<CALL>") => "`ua calls list --run last` shows the calls of the newest run",
        (_, "<WORKER>" | "<MACHINE>") => "`ua workers list` shows them",
        ("ua schedule pause" | "ua schedule resume" | "ua schedule run" | "ua schedule remove", "<NAME>") => {
            "`ua schedule list` shows them"
        }
        ("ua tools explain", "<NAME>") => "`ua tools list` shows them",
        ("ua models show", "<MODEL>") => "`ua models list` shows those that are known by name",
        ("ua logout", "<SERVER>") => "`ua login --list` shows them",
        ("ua job" | "ua submit", "<FILE>") => "`ua init` creates one that runs offline",
        _ => return None,
    };
    Some(listed.to_owned())
}

/// The option that stands at the end of the line or before the next one, and what has to follow it.
fn without_its_value(error: &clap::Error) -> Option<(String, String)> {
    let is_missing = error.kind() == ErrorKind::InvalidValue
        && text_of(error, ContextKind::InvalidValue).is_some_and(|value| value.is_empty());
    let named = text_of(error, ContextKind::InvalidArg).filter(|named| is_missing && named.starts_with('-'))?;
    let (option, value) = named.split_once([' ', '='])?;
    // The signs of the usage around it; some are a part of its name (`[+]N`).
    let within = |value: &str, open, close| Some(value.strip_prefix(open)?.strip_suffix(close)?.to_owned());
    let value = within(value, "[", "]").unwrap_or_else(|| value.to_owned());
    Some((option.to_owned(), within(&value, "<", ">").unwrap_or(value)))
}

/// An argument, and what it cannot be given together with, each as it is written in help.
fn at_odds(error: &clap::Error) -> Option<(String, String)> {
    if error.kind() != ErrorKind::ArgumentConflict {
        return None;
    }
    let written = |argument: String| {
        let bare = argument.trim_end_matches("...").trim_matches(['<', '>', '[', ']']).to_owned();
        format!("`{}`", if argument.starts_with('-') { argument } else { bare })
    };
    let others: Vec<String> = match error.get(ContextKind::PriorArg) {
        Some(ContextValue::String(other)) => vec![written(other.clone())],
        Some(ContextValue::Strings(others)) => others.iter().cloned().map(written).collect(),
        _ => return None,
    };
    let one = written(text_of(error, ContextKind::InvalidArg)?);
    // Given twice, it is at odds with itself.
    (!others.is_empty() && !others.contains(&one)).then(|| (one, others.join(" or ")))
}

/// The parser's own sentence, on one line.
pub(crate) fn said_by_the_parser(error: &clap::Error) -> String {
    let rendered = error.render().to_string();
    let text = rendered.trim();
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let message = text.split_once("\n\n").map_or(text, |(message, _)| message);
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The one text of this kind, or the first of several.
fn first_of(error: &clap::Error, kind: ContextKind) -> Option<String> {
    all_of(error, kind).into_iter().next()
}

fn all_of(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

/// A mistake on the command line about which more can be said than the parser knows: a word that other programs have for a command, or a
/// client that the gateway knows no configuration of.
pub(crate) fn told_apart(error: &clap::Error, words: &[String]) -> Option<HostError> {
    let text = |kind| text_of(error, kind);
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
    if let Some(refused) = refused::value(error) {
        return Some(refused);
    }
    if error.kind() == ErrorKind::UnknownArgument {
        let option = text(ContextKind::InvalidArg)?;
        if !option.starts_with('-') {
            return misspelt_below(&option, words);
        }
        // What was typed with a slip is first of all an option of the command itself.
        let own = text(ContextKind::SuggestedArg).filter(|own| stray::is_close(&option, own));
        let by_slip = || own.is_none().then(|| stray::meant_by_slip(&option, words)).flatten();
        let (command, hint) = stray::meant_by_option(&option, words).or_else(by_slip)?;
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
            .hint(format!("did you mean `{meant}`? `{help}` lists the commands"))
    };
    // Of `ua` itself, or below a command: there are other words there. `ua help` takes the same words as `ua`.
    let mut top = Cli::command();
    top.build();
    let above = words.iter().filter(|other| *other != "help").take_while(|other| **other != word);
    match above.filter(|other| top.find_subcommand(other).is_some()).last() {
        None => {
            let next = words.iter().skip_while(|other| **other != word).nth(1).map(String::as_str);
            // `ua run list`: one of several runs is meant, and not that one be started.
            let plural = top.find_subcommand(format!("{word}s"));
            if let Some(inner) = plural.and_then(|plural| plural.find_subcommand(next?)) {
                return Some(failure("", &format!("ua {word}s {}", inner.get_name())));
            }
            // `ua job.json`: what to do with it was left out.
            let ending = std::path::Path::new(&word).extension().and_then(std::ffi::OsStr::to_str);
            if matches!(ending, Some("json" | "yaml" | "yml")) {
                return Some(failure("", &PrintedCommand::of("ua job").word(&word).to_string()));
            }
            let meant = stray::meant(&word).map(|meant| failure("", meant));
            meant.or_else(|| {
                let names = top.get_subcommands().filter(|command| !command.is_hide_set()).map(clap::Command::get_name);
                let near = ua_core::nearest(&word, names).map(|name| format!("did you mean `ua {name}`? "));
                Some(
                    HostError::usage(format!("there is no command `{}`", output::line(&word, 60)))
                        .hint(format!("{}`ua --help` lists the commands", near.unwrap_or_default())),
                )
            })
        }
        Some(group) => {
            let group = top.find_subcommand(group)?;
            let names: Vec<&str> = group.get_subcommands().map(clap::Command::get_name).collect();
            let Some(meant) = stray::meant_below(&word, &names) else { return misspelt_below(&word, words) };
            Some(failure(&format!("{} ", group.get_name()), &format!("ua {} {meant}", group.get_name())))
        }
    }
}

/// A word in the place of a command below another one, which has some; the one that is near is named.
fn misspelt_below(word: &str, words: &[String]) -> Option<HostError> {
    let command = stray::command_of(words);
    let mut top = Cli::command();
    top.build();
    let group = command.split(' ').try_fold(&top, |at, name| at.find_subcommand(name))?;
    let names = group.get_subcommands().filter(|below| !below.is_hide_set()).map(clap::Command::get_name);
    let names: Vec<&str> = names.filter(|name| *name != "help").collect();
    if names.is_empty() {
        return None;
    }
    // An option between the two is taken for one of the first alone.
    if names.contains(&word) {
        return Some(
            HostError::usage(format!("`{word}` has to follow `ua {command}` directly"))
                .hint(format!("put the option between them behind `{word}`, or `--root DIR` in front of `{command}`")),
        );
    }
    let meant = ua_core::nearest(word, names).map(|meant| format!("did you mean `ua {command} {meant}`? "));
    Some(
        HostError::usage(format!("there is no command `{}`", output::line(&format!("{command} {word}"), 60)))
            .hint(format!("{}`ua {command} --help` lists the commands", meant.unwrap_or_default())),
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn said(words: &str) -> clap::Error {
        without_bad_advice(Cli::try_parse_from(words.split(' ')).unwrap_err())
    }

    fn words(line: &str) -> Vec<String> {
        line.split(' ').skip(1).map(str::to_owned).collect()
    }

    #[test]
    fn a_mistake_is_told_in_a_sentence_and_a_hint_and_not_with_the_whole_usage() {
        for (line, message, hint) in [
            (
                "ua runs show",
                "`ua runs show` needs RUN",
                "`ua runs show last` takes the newest run, and `ua runs list` shows them all; `ua runs show --help` says what it takes",
            ),
            (
                "ua resume",
                "`ua resume` needs RUN",
                "`ua resume last` takes the newest run, and `ua runs list` shows them all; `ua resume --help` says what it takes",
            ),
            (
                "ua job",
                "`ua job` needs FILE",
                "`ua init` creates one that runs offline; `ua job --help` says what it takes",
            ),
            (
                "ua calls resolve --happened",
                "`ua calls resolve` needs CALL",
                "`ua calls list --unknown` shows the calls whose outcome is unknown, each with its id, and for example \
                 `ua calls resolve CALL --happened` says that one happened; `ua calls resolve --help` says what it takes",
            ),
            (
                "ua calls resolve",
                "`ua calls resolve` needs CALL and one of --happened, --retry, --skip, --abort or --as WHAT",
                "`ua calls list --unknown` shows the calls whose outcome is unknown, each with its id, and for example \
                 `ua calls resolve CALL --happened` says that one happened; `ua calls resolve --help` says what it takes",
            ),
            (
                "ua calls resolve call_1",
                "`ua calls resolve` needs one of --happened, --retry, --skip, --abort or --as WHAT",
                "for example `ua calls resolve CALL --happened` if it happened, and `ua calls resolve CALL --retry` to send it again; \
                 `ua calls resolve --help` says what it takes",
            ),
            (
                "ua calls resolve call_1 --as happened",
                "`ua calls resolve` needs --reason TEXT",
                "for example `ua calls resolve CALL --as not_happened --reason TEXT`, where the text says how you know; \
                 `ua calls resolve --help` says what it takes",
            ),
            (
                "ua calls show",
                "`ua calls show` needs CALL",
                "`ua calls list --run last` shows the calls of the newest run; `ua calls show --help` says what it takes",
            ),
            (
                "ua runs diff",
                "`ua runs diff` needs A and B",
                "`ua runs list` shows the runs, and `last` is the newest; `ua runs diff --help` says what it takes",
            ),
            (
                "ua schedule pause",
                "`ua schedule pause` needs NAME",
                "`ua schedule list` shows them; `ua schedule pause --help` says what it takes",
            ),
            (
                "ua schedule add",
                "`ua schedule add` needs NAME, FILE and --cron CRON",
                "`ua schedule add --help` says what it takes",
            ),
            (
                "ua runs diff last",
                "`ua runs diff` needs B",
                "`ua runs list` shows the runs, and `last` is the newest; `ua runs diff --help` says what it takes",
            ),
            (
                "ua answer q_1 skip it is too late",
                "unexpected argument `it` of `ua answer`",
                "an answer is one word, and `--text TEXT` says more, in quotes; `ua answer --help` says what it takes",
            ),
            (
                "ua job x --polciy f",
                "`ua job` has no option `--polciy`",
                "did you mean `--policy`? `ua job --help` says what it takes",
            ),
            ("ua --json", "`ua` needs a command", "`ua --help` says what it takes"),
            ("ua --root", "`ua` takes a value behind `--root`: DIR", "`ua --help` says what it takes"),
            (
                "ua resume last --max-turns",
                "`ua resume` takes a value behind `--max-turns`: [+]N",
                "`ua resume --help` says what it takes",
            ),
            ("ua job --policy", "`ua job` takes a value behind `--policy`: FILE", "`ua job --help` says what it takes"),
            (
                "ua runs delete last --older-than 1d",
                "`ua runs delete` takes `RUNS` or `--older-than <TIME>`, and not both",
                "`ua runs delete --help` says what it takes",
            ),
            (
                "ua job --resume --fork --run-id r",
                "`ua job` takes `--resume` or `--fork`, and not both",
                "`ua job --help` says what it takes",
            ),
            ("ua job x y", "unexpected argument `y` of `ua job`", "`ua job --help` says what it takes"),
            (
                "ua worker --concurrency x",
                "invalid value 'x' for '--concurrency <N>': invalid digit found in string",
                "`ua worker --help` says what it takes",
            ),
        ] {
            let failure = in_short(&said(line), &words(line));
            assert_eq!((failure.message(), failure.hint_text()), (message, Some(hint)), "{line}");
        }
    }

    #[test]
    fn a_command_without_what_it_needs_says_what_that_is_and_not_its_whole_help() {
        fn leaves(command: &clap::Command, path: &str) {
            for below in command.get_subcommands() {
                let path = format!("{path} {}", below.get_name());
                if below.has_subcommands() {
                    leaves(below, &path);
                } else {
                    assert!(!below.is_arg_required_else_help_set(), "{path}");
                }
            }
        }
        leaves(&Cli::command(), "ua");
    }

    #[test]
    fn a_misspelt_command_has_its_suggestion_wherever_it_stands() {
        for (line, message, meant) in [
            ("ua jbo", "there is no command `jbo`", "`ua job`"),
            ("ua job.json", "there is no command `job.json`", "`ua job job.json`"),
            ("ua help jbo", "there is no command `jbo`", "`ua job`"),
            ("ua gateway instal", "there is no command `gateway instal`", "`ua gateway install`"),
            ("ua gateway statu", "there is no command `gateway statu`", "`ua gateway status`"),
            ("ua config list", "there is no command `config list`", "`ua config show`"),
            ("ua runs lst", "there is no command `runs lst`", "`ua runs list`"),
            ("ua transcript", "there is no command `transcript`", "`ua runs export RUN --transcript`"),
        ] {
            let error = said(line);
            let failure = told_apart(&error, &words(line)).unwrap_or_else(|| in_short(&error, &words(line)));
            assert_eq!(failure.message(), message, "{line}");
            let hint = failure.hint_text().unwrap_or_default();
            assert!(hint.starts_with(&format!("did you mean {meant}?")), "{line}: {hint}");
        }
    }

    /// A command is not said to be missing whose name is right.
    #[test]
    fn a_command_behind_an_option_of_the_one_above_it_is_not_called_missing() {
        for line in ["ua gateway --root d install --file f", "ua gateway --name n status"] {
            let failure = told_apart(&said(line), &words(line)).unwrap_or_else(|| in_short(&said(line), &words(line)));
            assert!(
                failure.message().ends_with("has to follow `ua gateway` directly"),
                "{line}: {}",
                failure.message()
            );
            let hint = failure.hint_text().unwrap_or_default();
            assert!(hint.contains("`--root DIR` in front of `gateway`"), "{line}: {hint}");
        }
    }

    #[test]
    fn a_word_that_is_near_no_command_is_told_as_one_that_is() {
        for group in ["db", "runs", "config", "gateway"] {
            let line = format!("ua {group} qqqqqq");
            let failure = told_apart(&said(&line), &words(&line)).unwrap();
            assert_eq!(failure.message(), format!("there is no command `{group} qqqqqq`"));
            assert_eq!(failure.hint_text(), Some(format!("`ua {group} --help` lists the commands").as_str()));
        }
        let failure = told_apart(&said("ua qqqqqq"), &words("ua qqqqqq")).unwrap();
        assert_eq!(failure.message(), "there is no command `qqqqqq`");
        assert_eq!(failure.hint_text(), Some("`ua --help` lists the commands"));
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
