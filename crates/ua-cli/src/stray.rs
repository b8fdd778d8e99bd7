//! Words that people type who know other programs: the command that does it here.

use clap::CommandFactory as _;

/// A word, and what it is called here.
const WORDS: [(&str, &str); 31] = [
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
    ("transcript", "ua runs export RUN --transcript"),
    ("timeline", "ua runs export RUN --html"),
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

/// Whether an option that exists is close enough to what was typed to be meant: a slip, or one is the beginning of the other.
pub(crate) fn is_close(typed: &str, option: &str) -> bool {
    let (typed, option) = (typed.trim_start_matches('-'), option.trim_start_matches('-'));
    slipped(typed, [option].into_iter()).is_some() || typed.starts_with(option) || option.starts_with(typed)
}

/// Options that other programs have, or other commands here: the commands they were typed behind (all, where there is none), and what does it
/// here.
const OPTIONS: [(&[&str], &[&str], &str); 19] = [
    (
        &["-f", "--force", "--overwrite"],
        &["init"],
        "`ua init DIR` writes into another folder; it never overwrites a file",
    ),
    (
        &[
            "--max-turns",
            "--max-cost",
            "--max-tokens",
            "--max-tool-calls",
            "--max-steps",
            "--max-wallclock-minutes",
            "--max-retries-per-tool-call",
            "--max-same-error-repeats",
            "--budget",
        ],
        &["job", "submit"],
        "budgets are set in the job file, for example `\"budgets\": {\"max_turns\": 20}`; `ua resume` and `ua fork` change those of a run",
    ),
    (
        &["--timeout", "--time-limit"],
        &["job", "submit"],
        "`\"budgets\": {\"max_wallclock_minutes\": 30}` in the job file limits its time",
    ),
    (
        &["--once", "--one-shot", "--drain-queue"],
        &["worker"],
        "`--until-empty` ends when nothing is left that can be worked on here",
    ),
    (
        &["-j", "--jobs", "--workers", "--parallel", "--slots"],
        &["worker"],
        "`--concurrency N` says how many runs at once",
    ),
    (
        &["--dry-run", "--validate"],
        &["job", "submit"],
        "`ua job --check FILE` says what a start would do, and starts nothing",
    ),
    (&["-d", "--detach", "--background"], &["job"], "`ua submit FILE` stores the job, and `ua worker` runs it"),
    (&["--text", "-m", "--message"], &["calls resolve"], "`--reason TEXT` says why"),
    (&["--reason", "-m", "--message"], &["answer"], "`--text TEXT` says more to the model, or why"),
    (&["--name", "--id"], &["job", "submit"], "`--run-id ID` names the run"),
    (
        &["--every", "--interval", "--at", "--daily"],
        &["schedule add"],
        "`--cron` says when: `--cron @hourly`, or `--cron '*/15 * * * *'` every quarter of an hour",
    ),
    (
        &["--at", "--schedule", "--cron"],
        &["job", "submit"],
        "`--run-after` and `--delay` of `ua submit` start it later, and `ua schedule add` again and again",
    ),
    (
        &["--format", "--output-format", "-o", "--output"],
        &[],
        "`--json` writes JSON; `ua runs export` writes a run as pages and files",
    ),
    (
        &["-f", "--follow", "--watch"],
        &[],
        "`ua runs tail RUN` follows a run, and `ua questions --watch` shows questions as they are asked",
    ),
    (
        &["-a", "--all", "--history"],
        &["questions"],
        "`ua questions` lists all that wait; `--answered` lists those that were answered",
    ),
    (&["-a", "--all"], &[], "`ua runs list --limit N` shows more runs, and `--tasks` those of sub-agents"),
    (&["-v", "--verbose", "--debug", "--log-level"], &[], "`UA_LOG=debug` in the environment writes diagnostics"),
    (
        &["--config", "-c"],
        &[],
        "`--mcp-config FILE` names tool servers; settings are in files that `ua config show` lists",
    ),
    (&["-y", "--yes", "--force", "--no-confirm"], &[], "`--no-input` never asks, where a command may ask"),
];

/// The command that a line of words names, without `ua`; empty where it names none.
pub(crate) fn command_of(words: &[String]) -> String {
    let mut at = crate::args::Cli::command();
    let mut command: Vec<String> = Vec::new();
    for word in words {
        match at.find_subcommand(word).cloned() {
            Some(below) => {
                command.push(below.get_name().to_owned());
                at = below;
            }
            // The value of an option in front of the command; behind it no other command follows.
            None if command.is_empty() || word.starts_with('-') => {}
            None => break,
        }
    }
    command.join(" ")
}

/// Whether a hint that begins with an option names one that this command has.
fn is_of(command: &str, hint: &str) -> bool {
    let Some(option) = hint.strip_prefix("`--").and_then(|rest| rest.split([' ', '`']).next()) else { return true };
    let mut top = crate::args::Cli::command();
    top.build();
    let at = command.split(' ').try_fold(&top, |at, name| at.find_subcommand(name));
    at.is_some_and(|at| at.get_arguments().any(|argument| argument.get_long() == Some(option)))
}

/// What an option of another program is here: the command that it was typed behind, and what does it.
pub(crate) fn meant_by_option(option: &str, words: &[String]) -> Option<(String, &'static str)> {
    done_by(option, words, |options| options.contains(&option))
}

/// The same of one that was typed with a slip (`--max-tool-call`). A short one may be anything.
pub(crate) fn meant_by_slip(option: &str, words: &[String]) -> Option<(String, &'static str)> {
    let is_long = option.starts_with("--") && option.len() > "--once".len();
    if !is_long {
        return None;
    }
    done_by(option, words, |options| slipped(option, options.iter().copied()).is_some())
}

fn done_by(option: &str, words: &[String], is_meant: impl Fn(&[&str]) -> bool) -> Option<(String, &'static str)> {
    let before: Vec<String> = words.iter().take_while(|word| !word.starts_with(option)).cloned().collect();
    let command = command_of(&before);
    let is_here = |of: &&(&[&str], &[&str], &str)| {
        is_meant(of.0) && (of.1.is_empty() || of.1.contains(&command.as_str())) && is_of(&command, of.2)
    };
    let (.., hint) = OPTIONS.iter().find(is_here)?;
    (!command.is_empty()).then(|| (command.clone(), *hint))
}

/// Words below a command, and what they are called there: the first that the command has.
const BELOW: [(&str, &[&str]); 20] = [
    ("list", &["show"]),
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
    use clap::Parser as _;

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
    fn an_option_of_other_programs_is_none_of_the_command_and_has_its_words() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let top = Cli::command();
        for (options, commands, _) in OPTIONS {
            for command in commands {
                let command = command.split(' ').try_fold(&top, |at, name| at.find_subcommand(name)).unwrap();
                let is_its = |option: &&&str| {
                    command
                        .get_arguments()
                        .any(|arg| arg.get_long().is_some_and(|long| option.strip_prefix("--") == Some(long)))
                };
                assert_eq!(options.iter().find(is_its), None, "`{}` has it", command.get_name());
            }
        }
        // Whatever budget a resume changes is known behind `ua job` as well.
        let [job, resume] = ["job", "resume"].map(|name| top.find_subcommand(name).unwrap());
        let options = |command: &clap::Command| -> Vec<String> {
            command.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect()
        };
        let of_job = options(job);
        for budget in options(resume).iter().filter(|option| option.starts_with("--max-") && !of_job.contains(option)) {
            let hint = meant_by_option(budget, &words("job x.json")).unwrap_or_default().1;
            assert!(hint.contains("\"budgets\""), "{budget}: {hint}");
        }
        let meant = |line: &str, option: &str| {
            meant_by_option(option, &words(line)).map(|(command, hint)| format!("{command}: {hint}"))
        };
        assert!(
            meant("job x.json --max-turns 4", "--max-turns")
                .unwrap()
                .starts_with("job: budgets are set in the job file")
        );
        assert!(meant("worker --once", "--once").unwrap().contains("--until-empty"));
        assert!(meant("questions --all", "--all").unwrap().contains("--answered"));
        assert!(meant("runs list --format json", "--format").unwrap().starts_with("runs list: `--json`"));
        // No hint names an option that the command does not have.
        assert_eq!(meant("schema --force", "--force"), None);
        assert!(meant("job x.json --force", "--force").unwrap().contains("--no-input"));
        assert!(meant("init --force", "--force").unwrap().contains("another folder"));
        assert_eq!(meant("resume last --nothing-like-it", "--nothing-like-it"), None);
        assert_eq!(meant("--format json", "--format"), None, "behind no command");
        // With a slip of the finger it is the same option.
        let slip = |line: &str, option: &str| meant_by_slip(option, &words(line)).map(|(_, hint)| hint);
        for option in ["--max-tool-call", "--max-trun", "--max-turnss", "--max-tokns"] {
            let hint = slip(&format!("job x.json {option} 3"), option);
            let is_told = hint.is_some_and(|hint| hint.starts_with("budgets are set in the job file"));
            assert_eq!(is_told, option != "--max-trun", "{option}: {hint:?}");
        }
        assert_eq!(slip("job x.json --ad", "--ad"), None, "too short to tell");
        assert_eq!(slip("resume last --max-tool-call 3", "--max-tool-call"), None, "it has the option itself");
    }

    #[test]
    fn only_what_is_close_is_meant() {
        for (typed, option) in [("--polciy", "--policy"), ("--mcpconfig", "--mcp-config"), ("--run", "--run-id")] {
            assert!(is_close(typed, option), "{typed}");
        }
        for (typed, option) in
            [("--max-turns", "--max-iterations"), ("--once", "--concurrency"), ("--format", "--fork")]
        {
            assert!(!is_close(typed, option), "{typed}");
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
