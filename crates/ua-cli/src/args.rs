//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Durable jobs for LLM agents: a job that is killed at any moment goes on where it was, and what it did outside is never
/// done twice.
#[derive(Debug, Parser)]
#[command(name = "ua", version, propagate_version = true, max_term_width = 100, after_help = EXAMPLES)]
pub struct Cli {
    /// Folder of all workspaces and the runtime database [default: AGENT_RUN_WORKSPACES]
    #[arg(long, global = true, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  ua job fixtures/jobs/research_report.json     run a job
  ua resume last                                go on after a kill, an answer or a stop
  ua calls list --run last --unknown            which calls may or may not have happened?
  ua calls resolve call_01… --happened          settle one, then `ua resume last`

Exit codes: 0 succeeded · 1 failed · 2 usage · 69 model provider · 74 storage · 75 waiting or stopped · 130 interrupted
Environment: ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_MODEL, UA_RUNTIME_DB_PATH, UA_LOG";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a job, or resume the run that `--run-id` names
    Job(JobArgs),
    /// Go on with a run that was killed, stopped or is waiting for an answer that is there now
    Resume(ResumeArgs),
    /// Look at runs
    #[command(subcommand)]
    Runs(RunsCommand),
    /// Look at tool calls, and settle those nobody knows the outcome of
    #[command(subcommand)]
    Calls(CallsCommand),
    /// List the questions that wait for a person
    Questions(QuestionsArgs),
    /// Answer a question; `ua resume` then goes on
    Answer(AnswerArgs),
    /// Explain tools
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// Run the built-in MCP tool server on standard input and output
    #[cfg(feature = "toolserver")]
    Toolserver(Box<ua_toolserver::Settings>),
    /// Stands between the runner and one tool server (internal)
    #[command(name = "__shim", hide = true)]
    Shim(ShimArgs),
}

/// `ua job`.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  ua job report.json
  ua job report.json --run-id monthly-2026-11 --provider anthropic --model claude-sonnet-4-5
  ua job report.json --mcp-config servers.json
  ua job --resume --run-id monthly-2026-11

A job file is JSON: at least {\"objective\": \"…\"}; see docs/guide/job-file.md for all fields."
)]
pub struct JobArgs {
    /// The job file
    #[arg(required_unless_present = "resume")]
    pub file: Option<PathBuf>,
    /// Name of the run; one that exists is resumed if it was made of the same job
    #[arg(long, value_name = "ID")]
    pub run_id: Option<String>,
    /// Resume the run that --run-id names
    #[arg(long, requires = "run_id", conflicts_with = "file")]
    pub resume: bool,
    /// How to start it
    #[command(flatten)]
    pub launch: LaunchArgs,
}

/// How a run is started.
#[derive(Debug, Args, Default)]
pub struct LaunchArgs {
    /// Model provider: anthropic or scripted [default: the job's, else anthropic]
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// The provider's name of the model [default: the job's, else ANTHROPIC_MODEL]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// File with an `mcpServers` object [default: .mcp.json if there is one]
    #[arg(long, value_name = "FILE")]
    pub mcp_config: Option<PathBuf>,
    /// Policy file (TOML), laid over all others; may be repeated
    #[arg(long, value_name = "FILE")]
    pub policy: Vec<PathBuf>,
    /// Let crawls reach loopback and private addresses
    #[arg(long)]
    pub allow_private_addresses: bool,
    /// Print nothing but errors and the final summary
    #[arg(long, short)]
    pub quiet: bool,
}

/// `ua resume`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct ResumeArgs {
    /// A run id, the beginning of one, or `last`
    pub run: String,
    /// File with an `mcpServers` object [default: the one the run was started with]
    #[arg(long, value_name = "FILE")]
    pub mcp_config: Option<PathBuf>,
    /// Go on with what changed: policy, tools, pricing, blob-threshold; several with commas
    #[arg(long, value_name = "COMPONENT", value_delimiter = ',')]
    pub accept: Vec<String>,
    /// Print nothing but errors and the final summary
    #[arg(long, short)]
    pub quiet: bool,
}

/// `ua runs …`.
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// List runs, newest first
    List {
        /// How many
        #[arg(long, default_value_t = 20)]
        limit: u32,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one run: where it stands, what it did, what it waits for
    Show {
        /// A run id, the beginning of one, or `last`
        run: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Ask a run to end; it does so at the next boundary, or when it is resumed
    Cancel {
        /// A run id, the beginning of one, or `last`
        run: String,
        /// Why
        #[arg(long, default_value = "a person asked for it")]
        reason: String,
    },
}

/// `ua calls …`.
#[derive(Debug, Subcommand)]
pub enum CallsCommand {
    /// List tool calls
    List {
        /// Only this run: an id, the beginning of one, or `last`
        #[arg(long)]
        run: Option<String>,
        /// Only calls that were sent and whose outcome nobody knows
        #[arg(long)]
        unknown: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one call with its attempts, receipt and history
    Show {
        /// A call id, or the beginning of one
        call: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Settle a call whose outcome nobody knows; `ua resume` then goes on
    Resolve(ResolveArgs),
}

/// `ua calls resolve`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("choice").required(true))]
pub struct ResolveArgs {
    /// A call id, or the beginning of one
    pub call: String,
    /// It happened
    #[arg(long, group = "choice")]
    pub happened: bool,
    /// It did not happen: run it (again)
    #[arg(long, group = "choice")]
    pub execute: bool,
    /// Leave it; the model is told that the outcome is unknown
    #[arg(long, group = "choice")]
    pub skip: bool,
    /// End the run
    #[arg(long, group = "choice")]
    pub abort: bool,
    /// With --happened: the other side's id of what happened
    #[arg(long, value_name = "ID", requires = "happened")]
    pub proof: Option<String>,
}

/// `ua questions`.
#[derive(Debug, Args)]
pub struct QuestionsArgs {
    /// Only this run: an id, the beginning of one, or `last`
    #[arg(long)]
    pub run: Option<String>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `ua answer`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct AnswerArgs {
    /// A question id, or the beginning of one
    pub question: String,
    /// The answer
    pub choice: AnswerChoice,
    /// With `happened`: the other side's id of what happened
    #[arg(long, value_name = "ID")]
    pub proof: Option<String>,
    /// A remark that is kept with the answer
    #[arg(long)]
    pub text: Option<String>,
}

/// What may be answered; a question says which of these it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AnswerChoice {
    /// It happened
    Happened,
    /// Do it (again)
    Execute,
    /// Leave it
    Skip,
    /// End the run
    Abort,
    /// Go on as before
    Continue,
}

/// `ua tools …`.
#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// List the tools that a job would be offered, with their class
    List {
        /// File with an `mcpServers` object [default: .mcp.json if there is one]
        #[arg(long, value_name = "FILE")]
        mcp_config: Option<PathBuf>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Explain how a tool is classified, rule by rule
    Explain {
        /// The tool's name, bare or as the model sees it
        name: String,
        /// File with an `mcpServers` object [default: .mcp.json if there is one]
        #[arg(long, value_name = "FILE")]
        mcp_config: Option<PathBuf>,
        /// Policy file (TOML), laid over all others; may be repeated
        #[arg(long, value_name = "FILE")]
        policy: Vec<PathBuf>,
    },
}

/// `ua __shim`.
#[derive(Debug, Args)]
pub struct ShimArgs {
    /// The shim's own arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<std::ffi::OsString>,
}
