//! `ua config`, `ua doctor`, `ua completions`, `ua schema`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::Shell;

/// `ua config …`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show every setting with its value and where it comes from
    #[command(after_help = "\
Examples:
  ua config show
  ua config show --json | jq '.settings[] | select(.source != \"default\")'

Later wins: built-in defaults, the user's config.toml, the project's ua.toml, the environment, flags. Keys are never printed.
docs/guide/cli.md lists every key.")]
    Show,
}

/// `ua init`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua init                    in the current folder
  ua init tide-mills && cd tide-mills && ua job job.json

It writes job.json, job.script.json (which plays the model), policy.toml and ua.toml, and nothing when one of them is there.")]
pub struct InitArgs {
    /// The folder; it is made if it is not there
    #[arg(default_value = ".", value_hint = clap::ValueHint::DirPath)]
    pub dir: PathBuf,
}

/// `ua status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua status
  ua status --json | jq -r '.questions[].answer_with[0]'

Runs that ended more than a day ago are in `ua runs list`.")]
pub struct StatusArgs {}

/// `ua man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua man | man -l -
  ua man runs list | man -l -
  ua man --out ~/.local/share/man/man1     then `man ua-runs-list`")]
pub struct ManArgs {
    /// A command, without `ua`
    #[arg(conflicts_with = "out")]
    pub command: Vec<String>,
    /// Write a page for every command to this folder
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub out: Option<PathBuf>,
}

/// `ua doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua doctor
  ua doctor --verbose                     also what is well, every setting and every tool
  ua doctor --mcp-config servers.json     start these tool servers, list their tools, stop them
  ua doctor --job report.json             is everything there that this job needs?
  ua doctor --json | jq '.findings[] | select(.level != \"ok\")'

Exit code 0 when nothing fails, 1 otherwise; warnings do not count. Nothing is sent to the model provider.")]
pub struct DoctorArgs {
    /// File with an `mcpServers` object [default: .mcp.json if there is one]
    #[arg(long, value_name = "FILE")]
    pub mcp_config: Option<PathBuf>,
    /// A job file: its model, prices, policies and tool servers are looked at as well
    #[arg(long, value_name = "FILE")]
    pub job: Option<PathBuf>,
    /// Also show what is well, every setting and every tool
    #[arg(long, short)]
    pub verbose: bool,
}

/// `ua completions`.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  bash    echo 'source <(ua completions bash)' >> ~/.bashrc
  zsh     echo 'source <(ua completions zsh)' >> ~/.zshrc
  fish    ua completions fish > ~/.config/fish/completions/ua.fish

The script asks `ua` itself while you type, and so knows the runs, calls and questions of the database. --static makes one that
knows commands and flags only and never starts `ua`."
)]
pub struct CompletionsArgs {
    /// bash, zsh, fish, elvish or powershell
    pub shell: Shell,
    /// Only commands and flags
    #[arg(long = "static")]
    pub is_static: bool,
}

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
