//! `ua schema`: the JSON Schema of what a command writes with `--json`.

use clap::Args;

use crate::error::{HostError, OK};
use crate::output::{print_exactly, print_json};
use crate::schema::{ENTRIES, find};

/// `ua schema`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua schema                  the commands that have one
  ua schema runs list        the JSON Schema of what `ua runs list --json` prints
  ua schema error            that of an error under --json

docs/guide/json.md shows the same as tables.")]
pub struct SchemaArgs {
    /// A command, without `ua`
    pub command: Vec<String>,
}

pub(crate) fn run(args: &SchemaArgs) -> Result<u8, HostError> {
    if args.command.is_empty() {
        let names: Vec<&str> = ENTRIES.iter().map(|entry| entry.command).collect();
        if crate::terminal::is_json() {
            print_json(&names)?;
        } else {
            print_exactly(format!("{}\n", names.join("\n")))?;
        }
        return Ok(OK);
    }
    let name = args.command.join(" ");
    let entry = find(&name).ok_or_else(|| {
        let names = ENTRIES.iter().map(|entry| entry.command);
        HostError::not_found(
            format!("there is no schema for `{name}`"),
            &name,
            names,
            "`ua schema` lists the commands that have one",
        )
    })?;
    print_json(&entry.schema())?;
    Ok(OK)
}
