//! A command line whose first word is a command, read without the tree of all others: making that takes longer than everything that a process
//! does before it is at work, and each tool server is a process.
//!
//! Only what is read without a word counts. A mistake, and whoever asks for help, is answered by the whole tree.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{Args as _, CommandFactory as _, FromArgMatches as _, Subcommand as _};

use super::{Cli, Command, GlobalArgs};
use crate::commands::answer::{AnswerArgs, QuestionsArgs};
use crate::commands::calls::CallsCommand;
use crate::commands::completions::CompletionsArgs;
use crate::commands::config::ConfigCommand;
use crate::commands::db::DbCommand;
use crate::commands::doctor::DoctorArgs;
use crate::commands::fleet::{QueueCommand, SubmitArgs, WorkerArgs, WorkersCommand};
use crate::commands::fork::ForkArgs;
use crate::commands::gateway::GatewayArgs;
use crate::commands::init::InitArgs;
use crate::commands::job::JobArgs;
use crate::commands::login::{LoginArgs, LogoutArgs};
use crate::commands::man::ManArgs;
use crate::commands::models::ModelsCommand;
use crate::commands::resume::ResumeArgs;
use crate::commands::runs::RunsCommand;
use crate::commands::schedule::ScheduleCommand;
use crate::commands::schema::SchemaArgs;
use crate::commands::status::StatusArgs;
use crate::commands::tools::ToolsCommand;
use crate::commands::trust::TrustArgs;
use crate::commands::turns::TurnsCommand;

/// What makes the arguments of a command.
type Arguments = fn(clap::Command) -> clap::Command;

/// Every command that people and programs use, with its arguments.
const COMMANDS: &[(&str, Arguments)] = &[
    ("init", InitArgs::augment_args),
    ("job", JobArgs::augment_args),
    ("resume", ResumeArgs::augment_args),
    ("fork", ForkArgs::augment_args),
    ("status", StatusArgs::augment_args),
    ("submit", SubmitArgs::augment_args),
    ("worker", WorkerArgs::augment_args),
    ("queue", QueueCommand::augment_subcommands),
    ("workers", WorkersCommand::augment_subcommands),
    ("schedule", ScheduleCommand::augment_subcommands),
    ("runs", RunsCommand::augment_subcommands),
    ("calls", CallsCommand::augment_subcommands),
    ("questions", QuestionsArgs::augment_args),
    ("answer", AnswerArgs::augment_args),
    ("turns", TurnsCommand::augment_subcommands),
    ("tools", ToolsCommand::augment_subcommands),
    ("models", ModelsCommand::augment_subcommands),
    ("config", ConfigCommand::augment_subcommands),
    ("trust", TrustArgs::augment_args),
    ("login", LoginArgs::augment_args),
    ("logout", LogoutArgs::augment_args),
    ("doctor", DoctorArgs::augment_args),
    ("completions", CompletionsArgs::augment_args),
    ("man", ManArgs::augment_args),
    ("schema", SchemaArgs::augment_args),
    ("db", DbCommand::augment_subcommands),
    ("gateway", GatewayArgs::augment_args),
    #[cfg(feature = "toolserver")]
    ("toolserver", ua_toolserver::Settings::augment_args),
];

impl Cli {
    /// Reads a command line, the program's own name first.
    pub(crate) fn read(words: &[OsString]) -> Result<Self, clap::Error> {
        of_one_command(words).map_or_else(|| of_the_whole_tree(words), Ok)
    }
}

/// The command line of whatever command it is. A number below zero is a value of its option, and no option of its own, whatever its unit.
fn of_the_whole_tree(words: &[OsString]) -> Result<Cli, clap::Error> {
    let read = |words: &[OsString]| {
        let matches = with_negative_numbers(Cli::command()).try_get_matches_from(words)?;
        Cli::from_arg_matches(&matches)
    };
    let error = match read(words) {
        Err(error) if error.kind() == ErrorKind::UnknownArgument => error,
        other => return other,
    };
    let Some(joined) = with_values_below_zero(words) else { return Err(error) };
    match read(&joined) {
        // An option that takes no value was not given one.
        Err(other) if other.kind() != ErrorKind::ValueValidation => Err(error),
        other => other,
    }
}

/// The same with each word such as `-1d` as the value of the option in front of it; `None` where there is none.
fn with_values_below_zero(words: &[OsString]) -> Option<Vec<OsString>> {
    let is_below_zero = |word: &OsString| {
        word.to_str()
            .and_then(|word| word.strip_prefix('-'))
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let is_open = |word: &OsString| {
        word.to_str().is_some_and(|word| word.starts_with("--") && word.len() > 2 && !word.contains('='))
    };
    let mut joined: Vec<OsString> = Vec::with_capacity(words.len());
    for word in words {
        match joined.last_mut().filter(|before| is_below_zero(word) && is_open(before)) {
            Some(option) => {
                option.push("=");
                option.push(word);
            }
            None => joined.push(word.clone()),
        }
    }
    (joined.len() < words.len()).then_some(joined)
}

fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let takes_one = |argument: clap::Arg| {
        let is_switch = !argument.get_action().takes_values();
        if is_switch { argument } else { argument.allow_negative_numbers(true) }
    };
    command.mut_args(takes_one).mut_subcommands(with_negative_numbers)
}

/// The command line of the command that its first word names, when nothing has to be said about it.
fn of_one_command(words: &[OsString]) -> Option<Cli> {
    let name = words.get(1)?;
    let (name, arguments) = COMMANDS.iter().find(|(command, _)| name == command)?;
    let command = arguments(clap::Command::new(*name));
    let matches = GlobalArgs::augment_args(clap::Command::new("ua")).subcommand(command).try_get_matches_from(words);
    let matches = matches.ok()?;
    let (global, command) = (GlobalArgs::from_arg_matches(&matches), Command::from_arg_matches(&matches));
    Some(Cli { global: global.ok()?, command: command.ok()? })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    /// All that is known of a command and of those below it, but for what stands in its help.
    fn shape(command: &clap::Command, above: &str, lines: &mut Vec<String>) {
        let name = format!("{above} {}", command.get_name());
        for argument in command.get_arguments() {
            lines.push(format!("{name}: {argument:?}"));
        }
        for below in command.get_subcommands() {
            shape(below, &name, lines);
        }
    }

    #[test]
    fn each_command_is_the_one_of_the_whole_tree() {
        let whole = Cli::command();
        let named: Vec<&str> =
            whole.get_subcommands().filter(|one| !one.is_hide_set()).map(clap::Command::get_name).collect();
        let quick: Vec<&str> = COMMANDS.iter().map(|(name, _)| *name).collect();
        assert_eq!(quick, named);
        for (name, arguments) in COMMANDS {
            let (mut one, mut other) = (Vec::new(), Vec::new());
            shape(&arguments(clap::Command::new(*name)), "", &mut one);
            shape(whole.find_subcommand(name).unwrap(), "", &mut other);
            assert_eq!(one, other, "`ua {name}`");
        }
    }

    #[test]
    fn what_is_read_of_one_command_is_what_the_whole_tree_reads() {
        let lines = [
            "ua job job.json --root there --new --json",
            "ua job - --provider anthropic --model one --max-iterations 3",
            "ua resume last --no-input --database-url postgres://a@b/c",
            "ua runs list --json",
            "ua toolserver --workspace w --allow-root a --allow-root b",
            "ua gateway status --json",
            "ua doctor --color never",
        ];
        for line in lines {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let whole = Cli::try_parse_from(&words).unwrap_or_else(|error| panic!("{line}: {error}"));
            let one = of_one_command(&words).unwrap_or_else(|| panic!("{line}: not read by itself"));
            assert_eq!(format!("{one:?}"), format!("{whole:?}"), "{line}");
        }
    }

    #[test]
    fn a_time_below_zero_is_a_value_and_no_option() {
        let read = |line: &str| Cli::read(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        let since = |line: &str| {
            let read = read(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            let Command::Runs(RunsCommand::List(args)) = read.command else { panic!("{line}") };
            args.since
        };
        let week = since("ua runs list --since 7d");
        assert!(week.is_some());
        for line in [
            "ua runs list --since -7d",
            "ua --json runs list --since=-7d --tasks",
            "ua runs list --since -7d --limit 3",
        ] {
            assert_eq!(since(line), week, "{line}");
        }
        for (line, kind) in [
            ("ua runs list --since -7x", ErrorKind::ValueValidation),
            ("ua submit job.json --delay -5m", ErrorKind::ValueValidation),
            ("ua runs list --tasks -7d", ErrorKind::UnknownArgument),
            ("ua runs list -7d", ErrorKind::UnknownArgument),
        ] {
            assert_eq!(read(line).unwrap_err().kind(), kind, "{line}");
        }
    }

    #[test]
    fn whatever_has_to_be_said_is_said_by_the_whole_tree() {
        for line in [
            "ua",
            "ua job",
            "ua job --help",
            "ua runs",
            "ua runs lits",
            "ua job a b c",
            "ua --json runs list",
            "ua jbo",
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert!(of_one_command(&words).is_none(), "{line}");
        }
    }
}
