//! `ua schema`: the JSON Schema of what a command writes with `--json`, and of a job file.

use clap::Args;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use ua_core::RunSpec;

use crate::error::{HostError, OK};
use crate::output::{print_exactly, print_json};
use crate::schema::{ENTRIES, find};

/// `ua schema`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua schema            the commands that have one
  ua schema runs list  the JSON Schema of what `ua runs list --json` prints
  ua schema error      that of an error under --json
  ua schema job-file   every field of a job file, and what it means

docs/guide/json.md shows the same as tables.")]
pub struct SchemaArgs {
    /// A command, without `ua`, or `job-file`
    #[arg(add = ArgValueCompleter::new(names))]
    pub command: Vec<String>,
    /// `job --check`
    #[arg(long, hide = true)]
    pub check: bool,
    /// `fork --dry-run`
    #[arg(long, hide = true)]
    pub dry_run: bool,
    /// `db copy --undo`
    #[arg(long, hide = true)]
    pub undo: bool,
    /// `gateway token --list`
    #[arg(long, hide = true)]
    pub list: bool,
    /// `questions --watch`
    #[arg(long, hide = true)]
    pub watch: bool,
    /// `questions --answered`
    #[arg(long, hide = true)]
    pub answered: bool,
}

fn names(current: &std::ffi::OsStr) -> Vec<CompletionCandidate> {
    let names = ENTRIES.iter().map(|entry| entry.command).chain([JOB_FILE]).map(str::to_owned).collect();
    crate::complete::next_word(current, "schema", &names)
}

/// What a person writes, among what commands write.
const JOB_FILE: &str = "job-file";

pub(crate) fn run(args: &SchemaArgs) -> Result<u8, HostError> {
    if args.command.is_empty() {
        let names: Vec<&str> = ENTRIES.iter().map(|entry| entry.command).chain([JOB_FILE]).collect();
        if crate::terminal::is_json() {
            print_json(&names)?;
        } else {
            print_exactly(format!("{}\n", names.join("\n")))?;
        }
        return Ok(OK);
    }
    // A flag that makes another command of one belongs to its name.
    let flags = [
        ("--check", args.check),
        ("--dry-run", args.dry_run),
        ("--undo", args.undo),
        ("--list", args.list),
        ("--watch", args.watch),
        ("--answered", args.answered),
    ];
    let flags = flags.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag);
    let name = args.command.iter().map(String::as_str).chain(flags).collect::<Vec<_>>().join(" ");
    if name == JOB_FILE {
        print_json(&RunSpec::json_schema())?;
        return Ok(OK);
    }
    let entry = find(&name).ok_or_else(|| {
        let names = ENTRIES.iter().map(|entry| entry.command).chain([JOB_FILE]);
        HostError::not_found(format!("there is no schema for `{name}`"), &name, names, "`ua schema` lists what has one")
    })?;
    print_json(&entry.schema())?;
    Ok(OK)
}
