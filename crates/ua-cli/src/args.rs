//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use ua_host::HostError;
use ua_host::budgets::BudgetChange;
use ua_host::launch::LaunchOptions;

use crate::complete;
use crate::terminal::Color;

mod fleet;
mod harness;
mod login;
mod look;
mod models;
mod runs;
mod trust;

pub(crate) use fleet::{CatchUpWord, QueueCommand, ScheduleCommand, SubmitArgs, WorkerArgs, WorkersCommand};
pub(crate) use harness::HarnessArgs;
pub(crate) use login::{LoginArgs, LogoutArgs};
pub(crate) use look::{CompletionsArgs, ConfigCommand, DoctorArgs, InitArgs, ManArgs, SchemaArgs, StatusArgs};
pub(crate) use models::ModelsCommand;
pub(crate) use runs::{DeleteArgs, ListArgs, StatusFilter, TailArgs, TurnsCommand};
pub(crate) use trust::TrustArgs;

mod fork;

pub(crate) use fork::{ForkArgs, ForkChanges};

/// Durable jobs for LLM agents: a job that is killed at any moment resumes where it left off. It never
/// repeats an outside action on its own, and asks you when it cannot know whether one happened.
#[derive(Debug, Parser)]
#[command(name = "ua", bin_name = "ua", version, propagate_version = true, max_term_width = 100, after_help = EXAMPLES)]
pub struct Cli {
    /// Folder of all workspaces and the runtime database [default: AGENT_RUN_WORKSPACES]
    #[arg(long, global = true, value_name = "DIR", value_hint = clap::ValueHint::DirPath, help_heading = GLOBAL)]
    pub root: Option<PathBuf>,
    /// Take that folder for yours, although no ua of yours made it: its runs start their tool servers as its maker said
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub trust_root: bool,
    /// The runtime database on a PostgreSQL server, in the place of a file in the root: postgres://USER@HOST/DATABASE
    #[arg(long, global = true, value_name = "URL", help_heading = GLOBAL)]
    pub database_url: Option<String>,
    /// How diagnostics on standard error are written
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text", hide_possible_values = true)]
    pub log_format: LogFormat,
    /// Colours: auto is on a terminal, unless NO_COLOR is set [possible values: auto, always, never]
    #[arg(long, global = true, value_name = "WHEN", hide_possible_values = true, help_heading = GLOBAL)]
    pub color: Option<Color>,
    /// Write JSON for machines, errors too; docs/guide/json.md describes it
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub json: bool,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
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

const EXAMPLES: &str = "\
Examples:
  ua init                                       make a job that runs offline
  ua job job.json                               run a job
  ua status                                     what runs, and what waits for you?
  ua resume last                                resume after a kill, an answer or a stop
  ua calls list --run last --unknown            which calls may or may not have happened?
  ua calls resolve call_01… --happened          settle one, then `ua resume last`
  ua runs tail last                             watch a run from another terminal
  ua doctor                                     is everything there that a job needs?

Exit codes: 0 succeeded · 1 failed · 2 usage · 69 model provider · 74 storage · 75 waiting or stopped · 130 interrupted
Environment: ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_MODEL, OPENAI_API_KEY, OPENAI_BASE_URL, OPENAI_MODEL,
  UA_MODEL_TIMEOUT, UA_PRICING, UA_MODELS,
  UA_RUNTIME_DB_PATH, UA_DATABASE_URL, UA_LOG, UA_OTEL_CONTENT, UA_OTEL_LEVEL, OTEL_EXPORTER_OTLP_ENDPOINT and its like;
  `ua config show` lists all, with the files that set them";

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a job, a policy and settings that run offline as they are
    Init(InitArgs),
    /// Run a job, or resume the run that `--run-id` names
    Job(JobArgs),
    /// Resume a run that was killed, stopped, or has been answered
    Resume(ResumeArgs),
    /// Branch off from a turn of a run as another run: another try, another prompt, another model
    Fork(Box<ForkArgs>),
    /// Say what runs, what waits for you, and what it costs
    Status(StatusArgs),
    /// Store a job for workers to run, on this or another machine
    Submit(Box<SubmitArgs>),
    /// Take submitted runs from the queue and run them
    Worker(WorkerArgs),
    /// Look at the queue of submitted runs, and change it
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Look at the workers of this database
    #[command(subcommand)]
    Workers(WorkersCommand),
    /// Submit jobs again and again at set times
    #[command(subcommand)]
    Schedule(ScheduleCommand),
    /// Look at runs
    #[command(subcommand)]
    Runs(RunsCommand),
    /// Look at tool calls, and resolve those whose outcome is unknown
    #[command(subcommand)]
    Calls(CallsCommand),
    /// List the questions that wait for a person
    Questions(QuestionsArgs),
    /// Answer a question; then `ua resume`
    Answer(AnswerArgs),
    /// Look at turns
    #[command(subcommand)]
    Turns(TurnsCommand),
    /// Explain tools
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// Look at what is known about models: sizes and prices
    #[command(subcommand)]
    Models(ModelsCommand),
    /// Look at the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Trust the tool servers in a project's .mcp.json, or see which are trusted
    Trust(TrustArgs),
    /// Log in at a remote tool server with your browser, or see where you are logged in
    Login(LoginArgs),
    /// Forget a login at a remote tool server
    Logout(LogoutArgs),
    /// Check keys, tool servers, database, disk and prices, and say how to fix what is wrong
    Doctor(DoctorArgs),
    /// Print a script that completes commands, runs, calls and questions in your shell
    Completions(CompletionsArgs),
    /// Print manual pages, or write them to a folder
    Man(ManArgs),
    /// Print the JSON Schema of what a command writes with --json
    Schema(SchemaArgs),
    /// Look after the runtime database: check it, copy it, put a copy back, delete unused data
    #[command(subcommand)]
    Db(DbCommand),
    /// Stand between an agent's client and its tool servers, so that no effect happens twice
    Gateway(GatewayArgs),
    /// Run the built-in MCP tool server on standard input and output
    #[cfg(feature = "toolserver")]
    Toolserver(Box<ua_toolserver::Settings>),
    /// Stands between the runner and one tool server (internal)
    #[command(name = "__shim", hide = true)]
    Shim(ShimArgs),
    /// Stands between an agent that owns its loop and the runner (internal)
    #[command(name = "__tool-bridge", hide = true)]
    GatewayBridge(ShimArgs),
}

/// Which entries of which configuration.
#[derive(Debug, Args)]
pub struct GatewayEntries {
    /// The tool servers [default: all]
    pub servers: Vec<String>,
    /// The client whose configuration for this user it is
    #[arg(long, value_enum, value_name = "CLIENT", required_unless_present = "file", conflicts_with = "file")]
    pub client: Option<GatewayClient>,
    /// The configuration: JSON with `mcpServers` or `servers`, TOML with `mcp_servers`, YAML with `extensions`
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Say what would be done, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// A client of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GatewayClient {
    /// Claude Code: `~/.claude.json`
    ClaudeCode,
    /// Cursor: `~/.cursor/mcp.json`
    Cursor,
    /// Visual Studio Code: `~/.config/Code/User/mcp.json`
    Vscode,
    /// Codex: `~/.codex/config.toml`
    Codex,
    /// goose: `~/.config/goose/config.yaml`
    Goose,
}

/// `ua gateway`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    arg_required_else_help = true,
    after_help = "\
In a client's configuration it stands in front of the old command of a tool server.

Examples:
  ua gateway --name mail --env SMTP_PASSWORD -- npx -y mail-server
  ua gateway --name crm --header-from X-Key=CRM_KEY --url https://crm.example.com/mcp
  ua gateway --all
  ua gateway status"
)]
pub struct GatewayArgs {
    /// What is done; without it this is an entry of a client
    #[command(subcommand)]
    pub command: Option<GatewayCommand>,
    /// The tool server's name in the client [default: that of its program]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// A variable that the tool server is given; may be repeated
    #[arg(long, value_name = "NAME")]
    pub env: Vec<String>,
    /// The project that the client works in [default: what the client says, else its folder]
    #[arg(long, value_name = "DIR")]
    pub project: Option<String>,
    /// Where the tool server is, if it is reached over HTTP and not started; needs --name
    #[arg(long, value_name = "URL", requires = "name", conflicts_with = "old")]
    pub url: Option<String>,
    /// A header of every request there, as `Name: value`; ${NAME} stands for a variable of --env; may be repeated
    #[arg(long, value_name = "HEADER", requires = "url")]
    pub header: Vec<String>,
    /// A header whose value is that of a variable, which no argument shows; may be repeated
    #[arg(long, value_name = "HEADER=VARIABLE", requires = "url")]
    pub header_from: Vec<String>,
    /// All tool servers of servers.json in the gateway's folder as one, their tools named SERVER__TOOL: for a client with room for few
    #[arg(long, conflicts_with_all = ["url", "old"])]
    pub all: bool,
    /// The tool server's command
    #[arg(last = true, value_name = "COMMAND")]
    pub old: Vec<std::ffi::OsString>,
}

/// What is done with the gateway.
#[derive(Debug, Subcommand)]
pub enum GatewayCommand {
    /// Say who is connected and which calls are under way
    #[command(after_help = "\
Examples:
  ua gateway status
  ua gateway status --json | jq .broker.calls")]
    Status {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Put the gateway in front of the tool servers of a client's configuration
    #[command(after_help = "\
Examples:
  ua gateway install --client claude-code --dry-run
  ua gateway install --client codex
  ua gateway install --file .mcp.json mail calendar")]
    Install(GatewayEntries),
    /// Take it away again: to the byte, if the configuration was not changed since
    #[command(after_help = "\
Examples:
  ua gateway uninstall --client claude-code")]
    Uninstall(GatewayEntries),
    /// Start the broker, if it does not run; clients do so by themselves
    #[command(after_help = "\
Examples:
  ua gateway start")]
    Start,
    /// End the broker once what is under way is over; a client that is connected starts the next one
    #[command(after_help = "\
Examples:
  ua gateway stop")]
    Stop,
    /// End the broker and start the next one: after an upgrade, and after a change of gateway.toml
    #[command(after_help = "\
Clients see a pause. What is under way is waited for, for half a minute.

Examples:
  ua gateway restart")]
    Restart,
    /// Be the broker, in the foreground, as a service does for clients over HTTP
    #[command(after_help = "\
Clients that start a bridge start the broker by themselves. One over HTTP cannot: where gateway.toml has `[http]`, run
this as a service of the user; it stays until it is stopped.

Examples:
  ua gateway serve
  systemd-run --user ua gateway serve")]
    Serve,
    /// Make a token for a client over HTTP, and print it; an earlier one of that client holds no more
    #[command(after_help = "\
A client sends it as `Authorization: Bearer …` to http://ADDRESS/s/SERVER/mcp; gateway.toml says the address, and
servers.json beside it the tool servers. The name stands in what is stored.

Examples:
  ua gateway token codex
  ua gateway token codex --remove
  ua gateway token --list")]
    Token {
        /// The client's name
        #[arg(required_unless_present = "list", conflicts_with = "list")]
        client: Option<String>,
        /// Take its token away
        #[arg(long)]
        remove: bool,
        /// Name the clients that have one
        #[arg(long)]
        list: bool,
    },
    /// Hear from a client's hook which session it is in; reads what the hook is told, and never fails
    #[command(after_help = "\
In Claude Code's settings, so that a session that is continued is known for the same:
  {\"hooks\": {\"SessionStart\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"ua gateway hook\"}]}]}}")]
    Hook,
}

/// `ua job`.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  ua job report.json
  ua job --check report.json                    would it start, and which tools do its words select?
  jq '.inputs.month = \"11\"' report.json | ua job -
  ua job report.json --run-id monthly-2026-11 --provider anthropic --model claude-sonnet-4-5
  ua job report.json --mcp-config servers.json
  ua job report.json --again                    once more, although the run of its job_key succeeded
  ua job survey.json --max-iterations 40 --completion-promise 'SURVEY DONE'
  ua job --resume --run-id monthly-2026-11
  ua job --fork --run-id monthly-2026-11 --at-turn 4

A job file is JSON: at least {\"objective\": \"…\"}; see docs/guide/job-file.md for all fields."
)]
pub struct JobArgs {
    /// The job file; `-` reads the job from standard input
    #[arg(required_unless_present_any = ["resume", "fork"], value_hint = clap::ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// Only say what can be known before a start: exit code 0 when the job would start, 2 when not
    #[arg(long, conflicts_with_all = ["resume", "fork", "run_id", "again", "new"])]
    pub check: bool,
    /// Name of the run; one that exists is resumed if it was made of the same job
    #[arg(long, value_name = "ID", add = ArgValueCompleter::new(complete::runs))]
    pub run_id: Option<String>,
    /// Resume the run that --run-id names
    #[arg(long, requires = "run_id", conflicts_with = "file")]
    pub resume: bool,
    /// Fork the run that --run-id names, as `ua fork` does
    #[arg(long, requires = "run_id", conflicts_with_all = ["file", "resume"])]
    pub fork: bool,
    /// What is different in the fork
    #[command(flatten)]
    pub fork_changes: ForkChanges,
    /// Run the job once more although the run of its job_key succeeded
    #[arg(long, conflicts_with_all = ["resume", "fork"])]
    pub again: bool,
    /// Start anew although an earlier run of the same job is not finished
    #[arg(long, conflicts_with_all = ["resume", "fork"])]
    pub new: bool,
    /// Run in iterations with fresh contexts
    #[command(flatten)]
    pub harness: HarnessArgs,
    /// How to start it
    #[command(flatten)]
    pub launch: LaunchArgs,
}

/// How a run is started.
#[derive(Debug, Args, Default)]
pub struct LaunchArgs {
    /// Model provider: anthropic, openai, openai-chat, claude-code, scripted or replay [default: the job's, else anthropic]
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(complete::providers))]
    pub provider: Option<String>,
    /// The provider's name of the model [default: the job's, else ANTHROPIC_MODEL or OPENAI_MODEL]
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(complete::models))]
    pub model: Option<String>,
    /// File with an `mcpServers` object [default: .mcp.json if there is one]
    #[arg(long, value_name = "FILE")]
    pub mcp_config: Option<PathBuf>,
    /// Policy file (TOML), laid over all others; may be repeated
    #[arg(long, value_name = "FILE")]
    pub policy: Vec<PathBuf>,
    /// Price table, TOML or JSON [default: UA_PRICING, else pricing.toml in the user's configuration]
    #[arg(long, value_name = "FILE")]
    pub pricing: Option<PathBuf>,
    /// Cassette that `--provider replay` answers from: a file, or a folder of them [default: UA_CASSETTE]
    #[arg(long, value_name = "PATH")]
    pub cassette: Option<PathBuf>,
    /// Keep every exchange with the model in this cassette; in a folder that exists, in a file of the run's name
    #[arg(long, value_name = "PATH")]
    pub record: Option<PathBuf>,
    /// Let crawls reach loopback and private addresses
    #[arg(long)]
    pub allow_private_addresses: bool,
    /// Print nothing but errors and the final summary
    #[arg(long, short)]
    pub quiet: bool,
    /// Never ask on the terminal; a run that waits for a person ends with exit code 75
    #[arg(long)]
    pub no_input: bool,
}

impl LaunchArgs {
    /// The same without what concerns this terminal.
    pub(crate) fn options(&self) -> LaunchOptions {
        LaunchOptions {
            provider: self.provider.clone(),
            model: self.model.clone(),
            mcp_config: self.mcp_config.clone(),
            policy: self.policy.clone(),
            pricing: self.pricing.clone(),
            cassette: self.cassette.clone(),
            record: self.record.clone(),
            allow_private_addresses: self.allow_private_addresses,
        }
    }
}

/// `ua resume`.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  ua resume last
  ua resume run_019 --max-tool-calls +100       give it more of a budget that it reached
  ua resume last --phase crawl --max-cost +1.50
  ua resume last --accept tools,policy          resume although these changed
  ua resume last --take-over                    end the process that hangs, and take its place

A run that is finished is shown, not run: exit code 0 if it succeeded."
)]
pub struct ResumeArgs {
    /// A run id, its beginning or end, or `last`
    #[arg(add = ArgValueCompleter::new(complete::runs))]
    pub run: String,
    /// File with an `mcpServers` object [default: the one the run was started with]
    #[arg(long, value_name = "FILE")]
    pub mcp_config: Option<PathBuf>,
    /// End the process that drives the run now, if there is one, and take its place
    #[arg(long)]
    pub take_over: bool,
    /// Price table [default: the one the run was started with]
    #[arg(long, value_name = "FILE")]
    pub pricing: Option<PathBuf>,
    /// Resume with what changed: policy, tools, pricing, blob-threshold; several with commas
    #[arg(long, value_name = "COMPONENT", value_delimiter = ',', add = ArgValueCompleter::new(complete::components))]
    pub accept: Vec<String>,
    /// Print nothing but errors and the final summary
    #[arg(long, short)]
    pub quiet: bool,
    /// Never ask on the terminal; a run that waits for a person ends with exit code 75
    #[arg(long)]
    pub no_input: bool,
    /// Another budget
    #[command(flatten)]
    pub budgets: BudgetArgs,
}

/// Budgets that a resume may change: `+100` adds to what counts now, `400` sets it.
#[derive(Debug, Args, Default)]
#[command(next_help_heading = "Budgets (+N adds to what counts now, N sets it)")]
pub struct BudgetArgs {
    /// Tool calls
    #[arg(long, value_name = "[+]N")]
    pub max_tool_calls: Option<String>,
    /// Turns
    #[arg(long, value_name = "[+]N")]
    pub max_turns: Option<String>,
    /// Tokens of all requests
    #[arg(long, value_name = "[+]N")]
    pub max_tokens: Option<String>,
    /// Money for all requests, for example `+1.50 USD`
    #[arg(long, value_name = "[+]MONEY")]
    pub max_cost: Option<String>,
    /// Wall-clock minutes the run may be active
    #[arg(long, value_name = "[+]N")]
    pub max_wallclock_minutes: Option<String>,
    /// Steps: the phases and iterations that begin
    #[arg(long, value_name = "[+]N")]
    pub max_steps: Option<String>,
    /// Iterations of a job with a harness
    #[arg(long, value_name = "[+]N")]
    pub max_iterations: Option<String>,
    /// Retries per failed tool call
    #[arg(long, value_name = "[+]N")]
    pub max_retries_per_tool_call: Option<String>,
    /// Consecutive identical errors
    #[arg(long, value_name = "[+]N")]
    pub max_same_error_repeats: Option<String>,
    /// Minutes to wait for one reply while the provider cannot answer
    #[arg(long, value_name = "[+]N")]
    pub max_provider_wait_minutes: Option<String>,
    /// Change the budgets of this phase instead of the run's: tool calls, turns, tokens, money
    #[arg(long, value_name = "NAME")]
    pub phase: Option<String>,
}

impl BudgetArgs {
    /// The changes that are asked for.
    pub(crate) fn changes(&self) -> Result<Vec<BudgetChange>, HostError> {
        let named = [
            ("max_tool_calls", &self.max_tool_calls),
            ("max_turns", &self.max_turns),
            ("max_tokens", &self.max_tokens),
            ("max_cost", &self.max_cost),
            ("max_wallclock_minutes", &self.max_wallclock_minutes),
            ("max_steps", &self.max_steps),
            ("max_iterations", &self.max_iterations),
            ("max_retries_per_tool_call", &self.max_retries_per_tool_call),
            ("max_same_error_repeats", &self.max_same_error_repeats),
            ("max_provider_wait_minutes", &self.max_provider_wait_minutes),
        ];
        let given: Vec<_> = named.into_iter().filter_map(|(budget, text)| Some((budget, text.clone()?))).collect();
        BudgetChange::of(&given, self.phase.as_deref())
    }
}

/// `ua runs …`.
#[derive(Debug, Subcommand)]
pub enum RunsCommand {
    /// List runs, newest first
    List(ListArgs),
    /// Watch a run: what happened in its last turns, and what happens next
    Tail(TailArgs),
    /// Delete runs and their workspaces
    Delete(DeleteArgs),
    /// Show one run: where it stands, what it did, what it waits for
    #[command(after_help = "\
Examples:
  ua runs show last
  ua runs show run_019 --json | jq .usage")]
    Show {
        /// A run id, its beginning or end, or `last`
        #[arg(add = ArgValueCompleter::new(complete::runs))]
        run: String,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Compare two runs: their jobs, the turns behind those they share, files, usage and cost
    #[command(after_help = "\
Examples:
  ua runs diff last run_019
  ua runs diff monthly-2026-10 monthly-2026-11 --all")]
    Diff {
        /// A run id, its beginning or end, or `last`
        #[arg(add = ArgValueCompleter::new(complete::runs))]
        a: String,
        /// Another one
        #[arg(add = ArgValueCompleter::new(complete::runs))]
        b: String,
        /// Show also what is alike
        #[arg(long)]
        all: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a run's files anew from the database, or the run as one HTML page or JSON document
    Export(Box<ExportArgs>),
    /// End a run; one that a process drives ends at the next boundary
    #[command(after_help = "\
Examples:
  ua runs cancel last
  ua runs cancel last --reason 'the customer called it off'")]
    Cancel {
        /// A run id, its beginning or end, or `last`
        #[arg(add = ArgValueCompleter::new(complete::runs))]
        run: String,
        /// Why
        #[arg(long, default_value = "a person asked for it")]
        reason: String,
    },
}

/// `ua runs export`.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  ua runs export last                       its files, anew, in its workspace
  ua runs export last --html                the timeline, for a browser
  ua runs export last --html timeline.html
  ua runs export last --json | jq .records.calls
  ua runs export last --out ./copy --all-files --include-blobs
  UA_RUNTIME_DB_PATH=./copied.db ua runs export last --out ./copy     a database of another machine

Everything is made of the database alone, whether the run is at work, finished or of another machine; nothing about the run
changes. See docs/guide/workspace.md."
)]
pub struct ExportArgs {
    /// A run id, its beginning or end, or `last`
    #[arg(add = ArgValueCompleter::new(complete::runs))]
    pub run: String,
    /// Where to write: a folder, or with one of --html, --json, --transcript a file; `-` is standard output [default: the workspace,
    /// and for --json and --transcript standard output]
    #[arg(long, value_name = "DIR|FILE")]
    pub out: Option<PathBuf>,
    /// Only the timeline, as one HTML page that needs nothing else [default file: timeline.html]
    #[arg(long, value_name = "FILE", num_args = 0..=1, group = "what")]
    #[expect(clippy::option_option, reason = "not asked for; asked for; asked for in this file")]
    pub html: Option<Option<PathBuf>>,
    /// Only the rows, as one JSON document
    #[arg(long, group = "what")]
    pub json: bool,
    /// Only the conversation, as Markdown
    #[arg(long, group = "what")]
    pub transcript: bool,
    /// With --out DIR: also a copy of every file that the tools made
    #[arg(long, requires = "out", conflicts_with = "what")]
    pub all_files: bool,
    /// Large results whole: as files beside the transcript, in the JSON document, in the timeline up to its limit
    #[arg(long)]
    pub include_blobs: bool,
}

/// `ua calls …`.
#[derive(Debug, Subcommand)]
pub enum CallsCommand {
    /// List tool calls, newest runs first
    #[command(after_help = "\
Examples:
  ua calls list --run last
  ua calls list --unknown                    which calls may or may not have happened?
  ua calls list --run last --json | jq -r '.[] | [.tool_name, .status] | @tsv'")]
    List {
        /// Only this run: an id, its beginning or end, or `last`
        #[arg(long, add = ArgValueCompleter::new(complete::runs))]
        run: Option<String>,
        /// Only calls that were sent and whose outcome nobody knows, those that were skipped included
        #[arg(long)]
        unknown: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one call with its attempts, receipt and history
    #[command(after_help = "\
Examples:
  ua calls show call_019
  ua calls show call_019 --full > answer.txt")]
    Show {
        /// A call id, its beginning or its end
        #[arg(add = ArgValueCompleter::new(complete::calls))]
        call: String,
        /// The whole answer and nothing else; with --json, the answer as it came
        #[arg(long)]
        full: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Ask the declared probe now whether a call in doubt happened
    Probe(ProbeArgs),
    /// Resolve a call whose outcome is unknown; then `ua resume`
    Resolve(ResolveArgs),
}

/// `ua calls probe`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua calls probe call_019
  ua calls probe call_019 --apply            and make that the answer
  ua calls probe call_019 --policy probe.toml")]
pub struct ProbeArgs {
    /// A call id, its beginning or its end
    #[arg(add = ArgValueCompleter::new(complete::unknown_calls))]
    pub call: String,
    /// Make what the probe says the answer to the question that waits, if it proves anything
    #[arg(long)]
    pub apply: bool,
    /// Policy file (TOML), laid over those the run was started with; may be repeated
    #[arg(long, value_name = "FILE")]
    pub policy: Vec<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `ua calls resolve`.
#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("choice").required(true),
    after_help = "\
Examples:
  ua calls resolve call_019 --happened --proof msg_123
  ua calls resolve call_019 --retry
  ua resume last                             acts on it
  ua calls resolve call_019 --as not_happened --reason \"no mail in their inbox\"
  ua calls resolve call_019 --as happened --proof msg_123 --reason \"Ada has it\" --yes

The first two answer the question about a call. --as puts its record right, whatever it says, also after the run has ended."
)]
pub struct ResolveArgs {
    /// A call id, its beginning or its end
    #[arg(add = ArgValueCompleter::new(complete::calls))]
    pub call: String,
    /// It happened
    #[arg(long, group = "choice")]
    pub happened: bool,
    /// It did not happen: send it again
    #[arg(long, alias = "execute", group = "choice")]
    pub retry: bool,
    /// Leave it unresolved; the model is told that nobody knows
    #[arg(long, group = "choice")]
    pub skip: bool,
    /// End the run
    #[arg(long, group = "choice")]
    pub abort: bool,
    /// Put the record right: this is what it came to, whatever is recorded
    #[arg(long = "as", group = "choice", value_name = "WHAT", requires = "reason")]
    pub as_it_was: Option<WhatItWas>,
    /// With --as: how you know; it is kept with the call and told to the model
    #[arg(long, value_name = "TEXT", requires = "as_it_was")]
    pub reason: Option<String>,
    /// With --happened and --as happened: the provider's id of what happened
    #[arg(long, value_name = "ID")]
    pub proof: Option<String>,
    /// With --as: do not ask for confirmation
    #[arg(long, requires = "as_it_was")]
    pub yes: bool,
}

/// What a call came to.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum WhatItWas {
    /// It happened
    Happened,
    /// It did not happen; what blocks a repeat is gone
    NotHappened,
    /// Nobody knows; it still blocks what might repeat it
    Skipped,
}

/// `ua questions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua questions
  ua questions --run last --full         with all arguments of the calls that are asked about
  ua questions --watch                   shows each new question as it comes, until Ctrl-C
  ua questions --run last --json | jq -r '.[].question_id'")]
pub struct QuestionsArgs {
    /// Only this run: an id, its beginning or end, or `last`
    #[arg(long, add = ArgValueCompleter::new(complete::runs))]
    pub run: Option<String>,
    /// Show the arguments of each call in full, one field a line
    #[arg(long)]
    pub full: bool,
    /// Keep showing new questions as they come
    #[arg(long)]
    pub watch: bool,
    /// As JSON; with --watch one line a question
    #[arg(long)]
    pub json: bool,
}

/// `ua answer`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua answer                                       choose and answer on the terminal
  ua answer q_01… approve
  ua answer q_01… skip --text \"ask the board first\"
  ua answer q_01… --text \"the blue one\"            what the model asked with ask_user
  ua answer q_01… accept --values '{\"size\": 3}'    what a tool asks for

Then resume: `ua resume RUN`.")]
pub struct AnswerArgs {
    /// A question id, its beginning or its end; without it, one is chosen on the terminal
    #[arg(add = ArgValueCompleter::new(complete::questions))]
    pub question: Option<String>,
    /// The answer; a question says which it takes
    pub choice: Option<AnswerChoice>,
    /// With `happened`: the provider's id of what happened
    #[arg(long, value_name = "ID")]
    pub proof: Option<String>,
    /// What the model is told: the answer to its question, or a remark about a call that is skipped
    #[arg(long)]
    pub text: Option<String>,
    /// With `accept`: the values that a tool asks for, as a JSON object; what is left out takes its default
    #[arg(long, value_name = "OBJECT", conflicts_with = "text")]
    pub values: Option<String>,
}

/// What may be answered; a question says which of these it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AnswerChoice {
    /// It happened
    Happened,
    /// It did not happen, or what was wrong is mended: try again
    Retry,
    /// Let a call run that was not sent yet
    Approve,
    /// Do not run it, or leave it unresolved
    #[value(alias = "deny")]
    Skip,
    /// End the run
    Abort,
    /// To a tool that asks: yes, with --values
    Accept,
    /// To a tool that asks: no
    Decline,
    /// To a tool that asks: neither
    Cancel,
    /// An older word for `retry` and `approve`
    #[value(hide = true)]
    Execute,
    /// An older word for `retry`
    #[value(hide = true)]
    Continue,
}

impl AnswerChoice {
    /// The word, as it is typed.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Happened => "happened",
            Self::Retry => "retry",
            Self::Approve => "approve",
            Self::Skip => "skip",
            Self::Abort => "abort",
            Self::Accept => "accept",
            Self::Decline => "decline",
            Self::Cancel => "cancel",
            Self::Execute => "execute",
            Self::Continue => "continue",
        }
    }
}

/// `ua tools …`.
#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// List the tools that a job would be offered, with their class
    #[command(after_help = "\
Examples:
  ua tools list
  ua tools list --mcp-config servers.json --json | jq -r '.[] | [.name, .policy.class] | @tsv'")]
    List {
        /// File with an `mcpServers` object [default: .mcp.json if there is one]
        #[arg(long, value_name = "FILE")]
        mcp_config: Option<PathBuf>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Explain how a tool is classified, rule by rule
    #[command(after_help = "\
Examples:
  ua tools explain send_email
  ua tools explain mcp__forum__post_comment --policy policy.toml
  ua tools explain send_email --job job.json    with the policies that the job brings along")]
    Explain {
        /// The tool's name, bare or as the model sees it
        #[arg(add = ArgValueCompleter::new(complete::tools))]
        name: String,
        /// File with an `mcpServers` object [default: .mcp.json if there is one]
        #[arg(long, value_name = "FILE")]
        mcp_config: Option<PathBuf>,
        /// Policy file (TOML), laid over all others; may be repeated
        #[arg(long, value_name = "FILE")]
        policy: Vec<PathBuf>,
        /// Job file whose policies have a say, as far as you trusted them
        #[arg(long, value_name = "FILE")]
        job: Option<PathBuf>,
    },
    /// Write down what the tools of the configured servers are, so that a job refuses them when they become something else
    #[command(after_help = "\
Examples:
  ua tools lock                              write mcp.lock beside .mcp.json
  ua tools lock --check                      report differences from mcp.lock; exit code 1 if there are any

While mcp.lock is there, a server whose tools, version or command changed is not used, and a tool that is new is not offered.")]
    Lock {
        /// File with an `mcpServers` object [default: .mcp.json if there is one]
        #[arg(long, value_name = "FILE")]
        mcp_config: Option<PathBuf>,
        /// Only compare
        #[arg(long)]
        check: bool,
    },
    /// List what is known of the tools of servers that many people use, or show it for one
    #[command(after_help = "\
Examples:
  ua tools packs
  ua tools packs github                      every rule, and where it was read

A pack counts for a server whose configuration names its package, program or address, or that `server_packs` names.")]
    Packs {
        /// The pack's name
        #[arg(add = ArgValueCompleter::new(complete::packs))]
        name: Option<String>,
    },
    /// List the tools of past runs that nothing was known about, and how to write a policy for each
    #[command(after_help = "\
Examples:
  ua tools audit
  ua tools audit --policy policy.toml        which of them does this policy know?

Such a tool is treated as an external effect that takes no key: at most once, and a person is asked when its outcome is not known.")]
    Audit {
        /// Policy file (TOML), laid over all others; may be repeated
        #[arg(long, value_name = "FILE")]
        policy: Vec<PathBuf>,
    },
}

/// `ua db …`.
#[derive(Debug, Subcommand)]
pub enum DbCommand {
    /// Examine the database, page by page; exit code 74 when something is wrong
    #[command(after_help = "\
Examples:
  ua db check
  ua db check --invariants      also check every run against the invariants
  ua db check --json | jq .forgotten")]
    Check {
        /// Also check what must hold of every stored run: transitions, attempts, receipts, keys, turns, history, charges
        #[arg(long)]
        invariants: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Bring the database up to this program's schema
    #[command(after_help = "\
Examples:
  ua db backup before.db && ua db migrate")]
    Migrate,
    /// Move the database from the file in the root to the server that --database-url names
    #[command(after_help = "\
Examples:
  ua db migrate --database-url postgres://ua@db.example/ua      make the schema there
  ua db copy --database-url postgres://ua@db.example/ua

No run may be at work. The database on the server must be empty; events keep their chain. The file is kept under another
name, so that no run is driven from both.")]
    Copy,
    /// Copy the database to a new file, as of one moment; runs may continue meanwhile
    #[command(after_help = "\
Examples:
  ua db backup \"ua-$(date +%F).db\"")]
    Backup {
        /// The file to make
        file: PathBuf,
    },
    /// Put a copy made by `ua db backup` in the place of the database; what was there is kept beside it
    #[command(after_help = "\
Examples:
  ua db restore ua-2026-11-20.db

A copy does not know what was sent after it was made. effects.log beside the database does: a run of which it knows more
than the copy does not resume, so that nothing is sent twice, until `ua db accept RUN` says that you looked.")]
    Restore {
        /// The copy
        file: PathBuf,
    },
    /// Allow a run to resume although effects.log knows attempts of it that the database does not
    #[command(after_help = "\
Examples:
  ua db check                                what was sent that the database does not know?
  ua db accept run_019 && ua resume run_019")]
    Accept {
        /// A run id, its beginning or end, or `last`
        #[arg(add = ArgValueCompleter::new(complete::runs))]
        run: String,
    },
    /// Delete large results that only finished runs refer to
    Prune(PruneArgs),
}

/// `ua db prune`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua db prune --dry-run                         what would go?
  ua db prune --older-than 7d --max-bytes 1000000000

Nothing goes that a run refers to which is not finished, or a run of its lineage. Without --older-than and --max-bytes, what
finished runs have not used for 30 days goes. The receipts stay; only the text of large results is deleted, and its place in the
database is used again.")]
pub struct PruneArgs {
    /// What finished runs have not used for this long: a number and d, h, m or s, for example 30d
    #[arg(long, value_name = "TIME", value_parser = parse_span)]
    pub older_than: Option<std::time::Duration>,
    /// The longest unused, until the rest has no more than this many bytes
    #[arg(long, value_name = "N")]
    pub max_bytes: Option<u64>,
    /// Only say what would go
    #[arg(long)]
    pub dry_run: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Reads `30d`, `12h`, `90m` or `10s`.
fn parse_span(text: &str) -> Result<std::time::Duration, String> {
    let wrong = || format!("`{text}` is no time; write a number and d, h, m or s, for example 30d");
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let seconds: u64 = match unit {
        'd' => 86_400,
        'h' => 3_600,
        'm' => 60,
        's' => 1,
        _ => return Err(wrong()),
    };
    let number: u32 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    Ok(std::time::Duration::from_secs(seconds * u64::from(number)))
}

/// `ua __shim`.
#[derive(Debug, Args)]
pub struct ShimArgs {
    /// The shim's own arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub args: Vec<std::ffi::OsString>,
}
