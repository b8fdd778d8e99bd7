//! The command line: what every command takes, and which commands there are. The arguments of each stand beside it, in `commands`.

mod budgets;
mod launch;
mod quick;
mod values;

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

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
use crate::terminal::Color;

pub(crate) use budgets::BudgetArgs;
pub(crate) use launch::LaunchArgs;
pub(crate) use values::{not_empty, parse_ago, parse_concurrency, parse_person, parse_span};

/// Durable jobs for LLM agents: a job that is killed at any moment resumes where it left off. It never
/// repeats an outside action on its own, and asks you when it cannot know whether one happened.
#[derive(Debug, Parser)]
#[command(name = "ua", bin_name = "ua", version, propagate_version = true, max_term_width = 100, after_help = EXAMPLES)]
pub struct Cli {
    /// What every command takes
    #[command(flatten)]
    pub global: GlobalArgs,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
pub struct GlobalArgs {
    /// Folder of all workspaces and the runtime database [default: AGENT_RUN_WORKSPACES here, above, or beside the job file; of the gateway ~/.local/state/ua/gateway]
    #[arg(long, global = true, value_name = "DIR", value_hint = clap::ValueHint::DirPath, help_heading = GLOBAL)]
    pub root: Option<PathBuf>,
    /// Trust that folder although your own ua did not create it: its runs start the tool servers that its creator named
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub trust_root: bool,
    /// The runtime database on a PostgreSQL server, instead of a file in the root: postgres://USER@HOST/DATABASE
    #[arg(long, global = true, value_name = "URL", value_parser = not_empty(), help_heading = GLOBAL)]
    pub database_url: Option<String>,
    /// Who decides, if several people share a user account: kept with each answer, correction and cancellation [default: whoever called sudo]
    #[arg(long, global = true, value_name = "NAME", value_parser = parse_person, help_heading = GLOBAL)]
    pub by: Option<String>,
    /// Colours: auto is on a terminal, unless NO_COLOR is set [possible values: auto, always, never]
    #[arg(long, global = true, value_name = "WHEN", hide_possible_values = true, help_heading = GLOBAL)]
    pub color: Option<Color>,
    /// Write JSON for machines, errors too; `ua schema COMMAND` describes it
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub json: bool,
    /// How diagnostics on standard error are written: text or json
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text", hide_possible_values = true, help_heading = GLOBAL)]
    pub log_format: LogFormat,
}

/// How diagnostics (`UA_LOG`) are written; lines of progress stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LogFormat {
    /// One line of text each
    #[default]
    Text,
    /// One JSON object per line, with its time and its spans
    Json,
}

/// The heading of what every command takes.
const GLOBAL: &str = "Global options";

const EXAMPLES: &str = concat!(
    "\
Examples:
  ua init                               make a job that runs offline
  ua job job.json                       run a job
  ua status                             show what runs and what waits for you
  ua resume last                        resume after a kill, answer or stop
  ua questions                          show what waits for an answer
  ua answer                             answer it, then `ua resume last`
  ua runs tail last                     watch a run from another terminal
  ua doctor                             check that what a job needs is there

Exit codes: 0 succeeded · 1 failed · 2 usage · 69 model provider · 74 storage · 75 waiting or stopped · 130 interrupted

Environment: ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_MODEL, OPENAI_API_KEY, OPENAI_BASE_URL, OPENAI_MODEL, \
UA_MODEL_TIMEOUT, UA_PRICING, UA_MODELS, UA_RUNTIME_DB_PATH, UA_DATABASE_URL, UA_LOG, UA_OTEL_CONTENT, UA_OTEL_LEVEL, \
OTEL_EXPORTER_OTLP_ENDPOINT and the other OTEL_ variables; `ua config show` lists all, with the files that set them

Pages named docs/… in help and hints are at ",
    env!("CARGO_PKG_REPOSITORY"),
    "/tree/main/docs"
);

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a job, a policy and settings that run offline
    Init(InitArgs),
    /// Run a job, or resume the run that `--run-id` names
    Job(JobArgs),
    /// Resume a run that was killed, stopped, or has been answered
    Resume(ResumeArgs),
    /// Start a new run from a turn of another run: another try, another prompt, another model
    Fork(Box<ForkArgs>),
    /// Show what is running, what waits for you, and what it costs
    Status(StatusArgs),
    /// Store a job for workers to run, on this or another machine
    Submit(Box<SubmitArgs>),
    /// Take submitted runs from the queue and run them
    Worker(WorkerArgs),
    /// Show the queue of submitted runs, and change it
    #[command(subcommand)]
    Queue(QueueCommand),
    /// List, drain and forget workers
    #[command(subcommand)]
    Workers(WorkersCommand),
    /// Submit jobs on a schedule
    #[command(subcommand)]
    Schedule(ScheduleCommand),
    /// List, show, compare, export, cancel and delete runs
    #[command(subcommand)]
    Runs(RunsCommand),
    /// Show tool calls, and resolve those whose outcome is unknown
    #[command(subcommand)]
    Calls(CallsCommand),
    /// List the questions that wait for a person
    Questions(QuestionsArgs),
    /// Answer a question; then `ua resume`
    Answer(AnswerArgs),
    /// Show a turn: what the model was asked, what it said, and what its calls brought back
    #[command(subcommand)]
    Turns(TurnsCommand),
    /// List tools, and explain how they are classified
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// Show what is known about models: sizes and prices
    #[command(subcommand)]
    Models(ModelsCommand),
    /// Show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Trust the tool servers in a project's .mcp.json, or see which are trusted
    Trust(TrustArgs),
    /// Log in to a remote tool server with your browser, or list your logins
    Login(LoginArgs),
    /// Forget the login to a remote tool server
    Logout(LogoutArgs),
    /// Check keys, tool servers, database, disk and prices, and say how to fix what is wrong
    Doctor(DoctorArgs),
    /// Print a script that completes commands, runs, calls and questions in your shell
    Completions(CompletionsArgs),
    /// Print manual pages, or write them to a folder
    Man(ManArgs),
    /// Print the JSON Schema of what a command writes with --json
    Schema(SchemaArgs),
    /// Check, back up, restore, migrate and prune the runtime database
    #[command(subcommand)]
    Db(DbCommand),
    /// Run the gateway between an agent's client and its tool servers, so that no effect happens twice
    Gateway(GatewayArgs),
    /// Run the built-in MCP tool server on standard input and output
    #[cfg(feature = "toolserver")]
    Toolserver(Box<ua_toolserver::Settings>),
    /// Stands between the runner and one tool server (internal)
    #[command(name = SHIM, hide = true)]
    Shim(ShimArgs),
    /// Stands between an agent that owns its loop and the runner (internal)
    #[command(name = "__tool-bridge", hide = true)]
    GatewayBridge(ShimArgs),
}

impl Command {
    /// The file of a job that is to be started, and whether nothing is said beside.
    pub(crate) fn job_file(&self) -> Option<(&Path, bool)> {
        let (file, is_quiet) = if let Self::Job(args) = self {
            (&args.file, args.launch.quiet)
        } else if let Self::Submit(args) = self {
            (&args.file, false)
        } else {
            return None;
        };
        file.as_deref().filter(|file| *file != Path::new("-")).map(|file| (file, is_quiet))
    }
}

/// The word that selects the shim.
pub(crate) const SHIM: &str = "__shim";

/// `ua __shim`.
#[derive(Debug, Args)]
pub struct ShimArgs {
    /// The shim's own arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<std::ffi::OsString>,
}
/// What the words of a command line say of colours, where they cannot be read as a whole.
pub(crate) fn color_in(words: &[String]) -> Option<Color> {
    let behind = words.windows(2).find(|pair| pair[0] == "--color").map(|pair| pair[1].as_str());
    let when = words.iter().find_map(|word| word.strip_prefix("--color=")).or(behind)?;
    clap::ValueEnum::from_str(when, true).ok()
}
