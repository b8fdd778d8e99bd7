//! `ua gateway`: between an agent's client and its tool servers.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::builder::PossibleValue;
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use ua_core::{PrintedCommand, ShowPath as _};
use ua_host::gateway::{self, Client, Served, Started, Starter, Waits, What};
use ua_host::{Host, Settings, trust};
use ua_resume::{Commands, Standing};
use ua_store::{ArrivalRecord, ArrivalsOf, GatewayStore as _, RunRecords, Store};

use super::summary;
use crate::args::not_empty;
use crate::error::{self, HostError, OK};
use crate::ids::short;
use crate::moment;
use crate::output::{did, line, plain, print, print_exactly, print_json, print_table, say, wrapped};
use crate::view::{
    GatewayBridge, GatewayBroker, GatewayCall, GatewayChanged, GatewayEntry, GatewayFault, GatewayStarted,
    GatewayStatus, GatewayStopped, GatewayToken, OpenQuestion,
};

/// Words that somebody types who means no client of that name, and what they mean.
const NO_CLIENTS: [(&str, &str); 5] = [
    ("list", "--list"),
    ("ls", "--list"),
    ("remove", "CLIENT --remove"),
    ("revoke", "CLIENT --remove"),
    ("rm", "CLIENT --remove"),
];

/// As much of what a hook is told is read.
const MOST_OF_A_HOOK: u64 = 1 << 20;

/// Which entries of which configuration.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("configuration").required(true).args(["client", "file"])))]
pub struct GatewayEntries {
    /// The tool servers [default: all]
    pub servers: Vec<String>,
    /// The client whose user configuration to change
    #[arg(long, value_enum, value_name = "CLIENT")]
    pub client: Option<GatewayClient>,
    /// The configuration: JSON with `mcpServers` or `servers`, TOML with `mcp_servers`, YAML with `extensions`
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Show what would be done, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// What is put in front of them, and what beside.
#[derive(Debug, Args)]
pub struct GatewayInstall {
    /// Which entries of which configuration
    #[command(flatten)]
    pub entries: GatewayEntries,
    /// Also write rules that keep the agent of Claude Code or Codex from bypassing the gateway, and the hook by which a session of Claude Code is known
    #[arg(long, requires = "client")]
    pub guard: bool,
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
`ua gateway install` sets it up for Claude Code, Codex, Cursor, Visual Studio Code or goose. Without a command, \
`ua gateway` is what their configuration starts: it goes in front of the tool server's own command.

Examples:
  ua gateway install --client claude-code --dry-run
  ua gateway --name mail --env SMTP_PASSWORD -- npx -y @example/mail-server
  ua gateway --name crm --header-from X-Key=KEY --url https://crm.example/mcp
  ua gateway --all
  ua gateway status"
)]
pub struct GatewayArgs {
    /// What is done; without it this is an entry of a client
    #[command(subcommand)]
    pub command: Option<GatewayCommand>,
    /// The tool server's name in the client [default: that of its program]
    #[arg(long, value_parser = not_empty(), value_name = "NAME")]
    pub name: Option<String>,
    /// An environment variable to pass to the tool server; may be repeated
    // Names are a project's to choose, and one that is written as a flag is none.
    #[arg(long, value_parser = not_empty(), value_name = "NAME", allow_hyphen_values = true)]
    pub env: Vec<String>,
    /// The project that the client works in [default: what the client says, else its folder]
    #[arg(long, value_parser = not_empty(), value_name = "DIR")]
    pub project: Option<String>,
    /// How long the client waits for a tool, in seconds [default: as long as its kind does]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "SECONDS")]
    pub patience: Option<u32>,
    /// Where the tool server is, if it is reached over HTTP and not started; needs --name
    #[arg(long, value_parser = not_empty(), value_name = "URL", requires = "name", conflicts_with = "old")]
    pub url: Option<String>,
    /// A header of every request there, as `Name: value`; ${NAME} stands for a variable of --env; may be repeated
    #[arg(long, value_parser = not_empty(), value_name = "HEADER", requires = "url", allow_hyphen_values = true)]
    pub header: Vec<String>,
    /// A header whose value is that of a variable, which no argument shows; may be repeated
    #[arg(long, value_parser = not_empty(), value_name = "HEADER=VARIABLE", requires = "url", allow_hyphen_values = true)]
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
    /// Show who is connected and which calls are in flight
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
  ua gateway install --client claude-code --guard
  ua gateway install --file .mcp.json mail calendar")]
    Install(GatewayInstall),
    /// Remove the gateway from a configuration: restored to the byte, if it was not changed since
    #[command(after_help = "\
Examples:
  ua gateway uninstall --client claude-code")]
    Uninstall(GatewayEntries),
    /// Start the broker, if it is not running; clients start it automatically
    #[command(after_help = "\
Examples:
  ua gateway start")]
    Start {
        /// For a client, whose environment is its own
        #[arg(long, hide = true)]
        for_client: bool,
    },
    /// Stop the broker once the calls in flight are finished; a connected client starts the next one
    #[command(after_help = "\
Examples:
  ua gateway stop")]
    Stop,
    /// Restart the broker: after an upgrade, or when a file that it reads was changed
    #[command(after_help = "\
Clients see a pause. Calls in flight are waited for, up to half a minute.

Examples:
  ua gateway restart")]
    Restart,
    /// Run the broker in the foreground, as a service for clients over HTTP
    #[command(after_help = "\
Clients that start a bridge also start the broker. A client over HTTP cannot: if gateway.toml has `[http]`, run \
this as a user service; it runs until it is stopped.

Examples:
  ua gateway serve
  systemd-run --user ua gateway serve")]
    Serve,
    /// Create a token for a client over HTTP, and print it; an earlier one of that client is revoked
    #[command(after_help = "\
A client sends it as `Authorization: Bearer …` to http://ADDRESS/s/SERVER/mcp. The address is in gateway.toml, \
and the tool servers are in servers.json beside it. The client's name is stored with its calls.

Examples:
  ua gateway token codex
  ua gateway token codex --remove
  ua gateway token --list
  ua gateway token my-phone --approver")]
    Token {
        /// The client's name
        #[arg(required_unless_present = "list", conflicts_with = "list")]
        client: Option<String>,
        /// Revoke its token
        #[arg(long)]
        remove: bool,
        /// List the clients that have a token
        #[arg(long)]
        list: bool,
        /// For a script of yours that answers questions without a terminal, by UA_APPROVER_TOKEN, and not for a client
        #[arg(long)]
        approver: bool,
    },
    /// Record which session a client is in; called by the client's hook, and never fails
    #[command(after_help = "\
In Claude Code's settings, so that a continued session is recognised as the same one:

Examples:
  {\"hooks\": {\"SessionStart\": [{\"hooks\": [
    {\"type\": \"command\", \"command\": \"ua gateway hook\"}]}]}}")]
    Hook,
}

/// Becomes the bridge, when these are the arguments of an entry (`ua gateway … -- COMMAND`, `… --url URL` or `--all`); `None` when they are not.
pub(crate) fn bridge(args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let args: Vec<OsString> = args.skip(1).collect();
    let (first, rest) = args.split_first()?;
    if first != "gateway" || !ua_bridge::Options::of(rest).name_a_server() {
        return None;
    }
    Some(become_bridge(rest))
}

/// The same for arguments that were read already: what does not come first, as `ua --root DIR gateway -- COMMAND`.
pub(crate) fn entry(args: &GatewayArgs, root: Option<&Path>) -> Option<ExitCode> {
    if args.old.is_empty() && args.url.is_none() && !args.all {
        return None;
    }
    let mut words: Vec<OsString> = Vec::new();
    let mut option = |name: &str, value: &OsStr| words.extend([name.into(), value.to_owned()]);
    if let Some(root) = root {
        option("--root", root.as_os_str());
    }
    args.name.iter().for_each(|name| option("--name", name.as_ref()));
    args.env.iter().for_each(|name| option("--env", name.as_ref()));
    args.project.iter().for_each(|project| option("--project", project.as_ref()));
    if let Some(seconds) = args.patience {
        option("--patience", seconds.to_string().as_ref());
    }
    args.header.iter().for_each(|header| option("--header", header.as_ref()));
    args.header_from.iter().for_each(|header| option("--header-from", header.as_ref()));
    match &args.url {
        Some(url) => option("--url", url.as_ref()),
        None if args.all => words.push("--all".into()),
        None => words.extend(std::iter::once("--".into()).chain(args.old.iter().cloned())),
    }
    Some(become_bridge(&words))
}

fn become_bridge(words: &[OsString]) -> ExitCode {
    let entry = match gateway::entry(&Settings::of_process(), words.iter().cloned()) {
        Ok(entry) => entry,
        Err(error) => {
            error::print_as(&error, false);
            return ExitCode::from(error::code(&error));
        }
    };
    if let Some(program) = &entry.program {
        // It returns only when that program cannot be run; then this one is the bridge.
        let _not_run = Command::new(program).args(&entry.args).exec();
    }
    ua_bridge::run(entry.args)
}

pub(crate) async fn run(host: &Host, root: Option<&Path>, args: GatewayArgs) -> Result<u8, HostError> {
    let Some(command) = args.command else {
        return Err(HostError::usage("the tool server's command is missing")
            .hint("put it after `--`: ua gateway --name mail -- npx -y @example/mail-server"));
    };
    match command {
        GatewayCommand::Install(install) => change(host, root, &install.entries, Some(install.guard))?,
        GatewayCommand::Uninstall(entries) => change(host, root, &entries, None)?,
        GatewayCommand::Start { for_client: true } => start(host, root, Starter::Client).await?,
        GatewayCommand::Start { for_client: false } => {
            tell_withheld(host, root);
            start(host, root, Starter::Person).await?;
        }
        GatewayCommand::Serve => {
            // The client's signals, and its terminal's, are none of the broker's.
            if let Err(error) = rustix::process::setsid() {
                tracing::debug!(%error, "the broker stays in the session it was started in");
            }
            tell_unmatched(host, root).await?;
            if gateway::serve(host, root, Waits::default()).await? == Served::Another {
                let there =
                    broker(host, root).await?.map_or_else(String::new, |broker| format!(": process {}", broker.pid));
                crate::output::tell(format!("a broker of this gateway is already running{there}; this one ended"));
            }
        }
        GatewayCommand::Stop => {
            let broker = read(gateway::ask(host, root, true).await?)?;
            let words = match &broker {
                Some(broker) if broker.calls.is_empty() => "the gateway's broker is ending\n".to_owned(),
                Some(broker) => format!(
                    "the gateway's broker ends once {} finished, within half a minute; a call without an answer by then is in doubt\n",
                    under_way(broker)
                ),
                None => "no broker is running\n".to_owned(),
            };
            let pid = broker.as_ref().map(|broker| broker.pid);
            let calls = broker.map(|broker| broker.calls).unwrap_or_default();
            let words = words + &named(&calls);
            say(&GatewayStopped { pid, calls }, words)?;
        }
        GatewayCommand::Restart => {
            tell_withheld(host, root);
            // One of another version ends as well, and is not asked what it does.
            let broker = read(gateway::ask(host, root, false).await?).unwrap_or_default();
            if let Some(broker) = broker.as_ref().filter(|broker| !broker.calls.is_empty()) {
                crate::output::tell(format!(
                    "the broker ends once {} finished, within half a minute\n{}",
                    under_way(broker),
                    named(&broker.calls).trim_end()
                ));
            }
            let was_running = gateway::restart(host, root).await?;
            tell_unmatched(host, root).await?;
            let words = if was_running { "a new broker is running\n" } else { "no broker was running; one is now\n" };
            let calls = broker.map(|broker| broker.calls).unwrap_or_default();
            // What had no answer by then is in doubt, and the next broker asks about it when somebody wants it again.
            let left = if calls.is_empty() { None } else { gateway::left(host, root).await.ok() };
            let left = left.and_then(|(commands, left)| left.in_words(&commands));
            let left = left.map_or_else(String::new, |left| format!("\n{}\n", plain(&left)));
            say(&GatewayStarted { was_running, is_new: true, calls }, format!("{words}{left}"))?;
        }
        GatewayCommand::Token { client, remove, list: _, approver } => {
            token(host, root, client.as_deref(), remove, approver).await?;
        }
        GatewayCommand::Hook => {
            let mut said = String::new();
            if let Err(error) = std::io::stdin().take(MOST_OF_A_HOOK).read_to_string(&mut said) {
                tracing::debug!(%error, "a hook's input cannot be read");
            }
            // A hook must not stop its client.
            if let Err(error) = gateway::hook(host, root, &said).await {
                tracing::debug!(%error, "a hook's input was not passed on");
            }
        }
        GatewayCommand::Status { json } => status(host, root, json).await?,
    }
    Ok(OK)
}

/// Makes a client's token, takes it away, or names those who have one; with `approver` that of whoever answers without a terminal.
async fn token(
    host: &Host,
    named: Option<&Path>,
    client: Option<&str>,
    remove: bool,
    approver: bool,
) -> Result<(), HostError> {
    let root = gateway::root(host.settings(), named)?;
    let tokens = if approver { gateway::approvers(&root) } else { gateway::tokens(&root) };
    let failed = |error: std::io::Error| HostError::storage(format!("cannot keep the gateway's tokens: {error}"));
    let Some(client) = client else {
        let clients = tokens.clients().map_err(failed)?;
        if crate::terminal::is_json() {
            let row = |client: &String| GatewayToken { client: client.clone(), token: None, is_valid: true };
            return print_json(&clients.iter().map(row).collect::<Vec<_>>());
        }
        return print_exactly(clients.iter().fold(String::new(), |all, client| all + client + "\n"));
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    // Whoever types one of these does not name a client.
    if let Some((_, meant)) = NO_CLIENTS.iter().find(|(word, _)| *word == client) {
        let refused = HostError::usage(format!("`{client}` is not a valid client name"));
        return Err(refused.hint(format!("`ua gateway token {meant}` does that")));
    }
    if client.is_empty() || client.len() > 64 || !client.chars().all(is_plain) {
        let refused = HostError::usage(format!("`{client}` is not a valid client name"));
        return Err(refused.hint("a name has letters, digits, `-`, `_` and `.`: ua gateway token codex"));
    }
    if remove {
        if tokens.remove(client).map_err(failed)? {
            let revoked = GatewayToken { client: client.to_owned(), token: None, is_valid: false };
            return say(&revoked, format!("the token of {client} is revoked\n"));
        }
        let none = HostError::usage(format!("{client} has no token"));
        return Err(none.hint(if approver {
            "`ua gateway token --list --approver` shows the names that have one"
        } else {
            "`ua gateway token --list` shows the clients that have one"
        }));
    }
    ua_host::words::without_secrets(host, "client's name", client)?;
    if approver {
        gateway::only_people_may(host, "the token of an approver must be made").await?;
    }
    let token = tokens.make(client, host.env()).map_err(failed)?;
    // What is wrong with the settings is told by whoever starts a broker.
    if !approver && matches!(gateway::listens_over_http(host, named), Ok(false)) {
        crate::output::tell(
            "no client can use a token yet: `listen` in gateway.toml is the address for clients over HTTP, and it is not set",
        );
    }
    let take_back = if approver { "ua gateway token --approver --remove" } else { "ua gateway token --remove" };
    let take_back = PrintedCommand::of(take_back).word(client).in_code();
    did(format!("a token of {client} was made, which nobody has read: {take_back} takes it back"));
    if crate::terminal::is_json() {
        return print_json(&GatewayToken { client: client.to_owned(), token: Some(token), is_valid: true });
    }
    // The token alone, so that it can be piped to where it is kept.
    print_exactly(format!("{token}\n"))
}

impl GatewayClient {
    const fn of_host(self) -> Client {
        match self {
            Self::ClaudeCode => Client::ClaudeCode,
            Self::Cursor => Client::Cursor,
            Self::Vscode => Client::VsCode,
            Self::Codex => Client::Codex,
            Self::Goose => Client::Goose,
        }
    }
}

/// Where the client has its rules, if it has any that can be written.
fn rules_file(
    settings: &Settings,
    entries: &GatewayEntries,
    installs: Option<bool>,
) -> Result<Option<PathBuf>, HostError> {
    let Some(client) = entries.client else { return Ok(None) };
    let file = gateway::rules_of(settings, client.of_host())?;
    if installs == Some(true) && file.is_none() {
        let refused = HostError::usage("this client has no rules that could be written for it");
        return Err(refused.hint("`--guard` is for claude-code and codex; leave it out for others"));
    }
    Ok(file)
}

/// Writes the rules of a client into that file, or takes them away. The file, if it was changed; with `dry_run`, if it would be.
fn rules(
    file: Option<PathBuf>,
    (root, front): (&Path, &gateway::Front),
    entries: &GatewayEntries,
    installs: Option<bool>,
) -> Result<Option<PathBuf>, HostError> {
    let (Some(client), Some(file)) = (entries.client.map(GatewayClient::of_host), file) else { return Ok(None) };
    let is_changed = match installs {
        Some(true) => gateway::guard(root, client, &file, front, entries.dry_run)?,
        // Whoever names a tool server takes the gateway away from that one alone.
        None if entries.servers.is_empty() => gateway::unguard(root, &file, entries.dry_run)?,
        Some(false) | None => false,
    };
    Ok(is_changed.then_some(file))
}

/// Says what became of the rules.
fn print_rules(file: Option<&Path>, installs: Option<bool>, dry_run: bool) -> Result<(), HostError> {
    let Some(file) = file else {
        return if installs == Some(true) { print("Its rules are written already.\n") } else { Ok(()) };
    };
    let what = match (installs.is_some(), dry_run) {
        (true, true) => "rules that keep its agent from bypassing the gateway would be written",
        (true, false) => "rules that keep its agent from bypassing the gateway are written now",
        (false, true) => "would be restored, without the rules of `--guard`",
        (false, false) if !file.exists() => "is removed, since there was nothing in it but the rules of `--guard`",
        (false, false) => "is restored, without the rules of `--guard`",
    };
    print(format!("{}\n  {what}\n", file.shown()))
}

/// Puts the gateway in front of entries of a configuration, or takes it away (`None`); `Some(true)` writes a client's rules as well.
fn change(
    host: &Host,
    named: Option<&Path>,
    entries: &GatewayEntries,
    installs: Option<bool>,
) -> Result<(), HostError> {
    let settings = host.settings();
    let install = installs.is_some();
    let rules_file = rules_file(settings, entries, installs)?;
    let file = match (&entries.file, entries.client) {
        (Some(file), _) => settings.absolute(file)?,
        (None, Some(client)) => gateway::configuration(settings, client.of_host())?,
        (None, None) => return Err(HostError::usage("name a configuration with --client or --file")),
    };
    let front = gateway::Front {
        program: gateway::stable_program(settings)?.to_string_lossy().into_owned(),
        root: named.map(|root| settings.absolute(root)).transpose()?.map(|root| root.to_string_lossy().into_owned()),
        own_root: gateway::root(settings, None).ok().map(|root| root.to_string_lossy().into_owned()),
    };
    let root = gateway::root(settings, named)?;
    let (servers, dry_run) = (entries.servers.as_slice(), entries.dry_run);
    // What is wrong with the second file is said before the first one is changed.
    if let (Some(true), Some(client), Some(file)) = (installs, entries.client, &rules_file) {
        gateway::guard(&root, client.of_host(), file, &front, true)?;
    }
    let edited = if install {
        let edited = gateway::install(&root, &file, &front, servers, dry_run)?;
        if !dry_run {
            gateway::note_places(host, named)?;
            tell_withheld(host, named);
        }
        edited
    } else {
        gateway::uninstall(&root, &file, servers, dry_run)?
    };
    let ruled = rules(rules_file, (root.as_path(), &front), entries, installs);
    let untrusted = trust_ended(settings, &file, &edited.changes, dry_run);
    let is_written =
        edited.changes.iter().any(|change| matches!(change.what, What::Wrapped | What::Moved | What::Unwrapped));
    if is_written && !dry_run {
        did(format!("{} is changed", file.shown()));
        if ruled.is_err() {
            crate::output::tell(format!("{} is changed already, and stays so", file.shown()));
        }
    }
    let ruled = ruled?;
    if entries.json {
        let entry = |change: &gateway::Change| GatewayEntry {
            server: change.server.clone(),
            what: change.what.as_str().to_owned(),
        };
        let servers = edited.changes.iter().map(entry).collect();
        return print_json(&GatewayChanged { file, dry_run, servers, untrusted, rules: ruled });
    }
    let rows = edited.changes.iter().map(|change| {
        let what = match change.what {
            What::Wrapped if dry_run => "would go through the gateway",
            What::Wrapped => "goes through the gateway now",
            What::Already => "goes through the gateway already",
            What::Moved if dry_run => "would go through the gateway by this program, and not by the one that it names",
            What::Moved => "goes through the gateway by this program now, and not by the one that it named",
            What::Unwrapped if dry_run => "would be restored",
            What::Unwrapped => "is restored",
            What::MayLogIn => "skipped: it may require a login by its client; name it if it does not",
            What::Unreachable => "skipped: it is neither a program nor an address that the gateway can reach",
            What::Elsewhere => {
                "skipped: it goes through the gateway of another folder; take that away first (`ua gateway uninstall`)"
            }
            What::NotRead => {
                "skipped: it cannot be read in full: `args` that are no list of strings, a name that it has twice, a variable whose name no variable can \
                 have, or a file of variables (`envFile`) that is not found"
            }
            What::Shared => {
                "skipped: it shares a value with other parts of the file (`&`, `*` or `<<`), which would be changed as well; write it out"
            }
            What::Twice => {
                "skipped: its name is given twice, and only the client knows which entry it takes; remove one of them"
            }
            What::NotWrapped => "skipped: it does not go through the gateway",
            What::All => {
                "skipped: it is the gateway itself (`--all`), and there is no other entry to restore; remove it in the client's configuration"
            }
            What::NotRestored => {
                "skipped: it goes through the gateway, and its URL or a header of it cannot be written here without it; change it by hand"
            }
        };
        let server = match &change.project {
            Some(project) => format!("{} (in {project})", change.server),
            None => change.server.clone(),
        };
        // Names are a project's to choose.
        let server = line(&server.replace('\n', "\\n").replace('\t', "\\t"), usize::MAX);
        (server, what)
    });
    print(format!("{}\n", file.shown()))?;
    if edited.changes.is_empty() {
        let none = "It names no tool servers yet, so nothing was changed. Give the client its first one, then this command again.";
        print(format!("{}\n", wrapped(none, 0)))?;
        return print_rules(ruled.as_deref(), installs, dry_run);
    }
    let rows: Vec<(String, &str)> = rows.collect();
    let width = rows.iter().map(|(server, _)| server.chars().count()).max().unwrap_or_default();
    let lines = rows.iter().map(|(server, what)| format!("  {server:<width$}  {}\n", wrapped(what, width + 4)));
    print(lines.collect::<String>())?;
    print_rules(ruled.as_deref(), installs, dry_run)?;
    if is_written && !untrusted.is_empty() {
        let names: Vec<String> = untrusted.iter().map(|server| format!("`{}`", line(server, 60))).collect();
        let (these, trust) = (names.join(", "), PrintedCommand::of("ua trust").word(&file).in_code());
        let uses = if dry_run { "would not use" } else { "does not use" };
        let note = format!("`ua` itself {uses} {these} before you trust the changed entry: {trust}.");
        print(format!("{}\n", wrapped(&note, 0)))?;
    }
    if !is_written || dry_run {
        return Ok(());
    }
    let names_database = install && settings.of_environment("UA_DATABASE_URL").is_some();
    if names_database {
        let note = "The entries name no database: the gateway that clients start takes it from `database_url` in your config.toml, or from the \
                    client's own environment (`UA_DATABASE_URL`).";
        print(format!("{}\n", wrapped(note, 0)))?;
    }
    let undo = if install { format!(" {} undoes it.", undo(entries)) } else { String::new() };
    let restart = format!("Restart the client if it runs: it reads this file when it starts.{undo}");
    print(format!("{}\n", wrapped(&restart, 0)))
}

/// The servers that `ua` itself was allowed to start as they were and not as they are, or would be. A trust is in one form of an entry, and the
/// gateway in front of it is another.
fn trust_ended(settings: &Settings, file: &Path, changes: &[gateway::Change], dry_run: bool) -> Vec<String> {
    let of = |change: &&gateway::Change| {
        // Whether what would be restored is trusted is known once it is there.
        let is_another = match change.what {
            What::Wrapped | What::Moved => true,
            What::Unwrapped => !dry_run,
            What::Already
            | What::MayLogIn
            | What::Unreachable
            | What::Elsewhere
            | What::NotRead
            | What::Shared
            | What::Twice
            | What::NotWrapped
            | What::All
            | What::NotRestored => false,
        };
        is_another && change.project.is_none()
    };
    let servers: Vec<String> = changes.iter().filter(of).map(|change| change.server.clone()).collect();
    let ended = if dry_run {
        trust::ever_trusted(settings, file, &servers)
    } else {
        trust::no_longer_trusted(settings, file, &servers)
    };
    // Whoever starts one of them is told what is wrong with the record or the file.
    ended.unwrap_or_default()
}

/// The command that takes the gateway away again.
fn undo(entries: &GatewayEntries) -> String {
    match (&entries.file, entries.client.and_then(|client| client.to_possible_value())) {
        (Some(file), _) => PrintedCommand::of("ua gateway uninstall").option("--file", file),
        (None, client) => {
            let client = client.as_ref().map_or("CLIENT", PossibleValue::get_name);
            PrintedCommand::of("ua gateway uninstall").option("--client", client)
        }
    }
    .in_code()
}

/// A session of a client, for a person: who asked for what, what it was, and whether the answer arrived.
pub(super) async fn show_session(
    store: &dyn Store,
    records: &RunRecords,
    standing: &Standing,
) -> Result<u8, HostError> {
    let run = &records.run;
    let of = ArrivalsOf::Session(run.run_id.clone());
    let arrivals = store.arrivals_of(of).await.map_err(|e| HostError::store("read what clients asked for", &e))?;
    print(format!(
        "{} · session {}\n{}\n",
        summary::headline(run, standing),
        short(run.run_id.as_str()),
        plain(&run.spec.objective)
    ))?;
    if arrivals.is_empty() {
        print("\nNo calls yet.\n")?;
    } else {
        print("\n")?;
    }
    let now = ua_core::system::env().now();
    let row = |arrival: &ArrivalRecord| {
        let mut what = ua_report::rule_in_words(&arrival.rule).to_owned();
        if arrival.run_id != run.run_id {
            what.push_str(&format!(" (by session {})", short(arrival.run_id.as_str())));
        }
        let found = records.calls.iter().find(|call| call.call_id == arrival.call_id);
        let answer = match (arrival.answered_at, arrival.acknowledged_at) {
            (_, Some(_)) => "reached the client",
            (Some(_), None) => "written to the client",
            // It is made again for whoever asks again, so nobody notes who had it.
            (None, None) if found.is_some_and(|call| !call.policy.class.has_effect()) => "",
            // It is noted behind the answer, and a broker that was killed in between has noted nothing.
            (None, None) => "no delivery noted",
        };
        let status =
            found.map_or_else(|| "another session's".to_owned(), |call| ua_evidence::call_in_words(call).to_owned());
        let call = short(arrival.call_id.as_str()).to_owned();
        vec![call, moment::ago(arrival.arrived_at, now), arrival.tool.clone(), status, answer.to_owned(), what]
    };
    if !arrivals.is_empty() {
        print_table(&crate::listings::ASKED, arrivals.iter().map(row).collect())?;
    }
    print(summary::open_questions(records))?;
    Ok(OK)
}

/// Starts a broker. What is wrong with the file that one would read is said even where one runs: that one keeps what it read.
async fn start(host: &Host, root: Option<&Path>, by: Starter) -> Result<(), HostError> {
    let started = gateway::start(host, root, by).await?;
    let said = gateway::ask(host, root, false).await?;
    let unread = not_in_effect(said.as_ref());
    if let Some(why) = read(said)?.and_then(|broker| broker.http_taken) {
        crate::output::tell(why);
    }
    for warning in unread {
        crate::output::tell(format!("warning: {warning}"));
    }
    tell_unmatched(host, root).await?;
    if started == Started::Now {
        let words = "the broker is started; `ua gateway status` shows it, `ua gateway stop` ends it\n";
        return say(&GatewayStarted { was_running: false, is_new: true, calls: Vec::new() }, words);
    }
    if let Err(wrong) = gateway::check(host, root) {
        return Err(HostError::failed(format!("a broker is running, but the next one would not start: {wrong}")).hint(
            "correct the file, then `ua gateway restart`; until then the broker keeps the settings that it started with",
        ));
    }
    let words = "a broker is already running; `ua gateway restart` replaces it\n";
    say(&GatewayStarted { was_running: true, is_new: false, calls: Vec::new() }, words)
}

/// Says what of this environment a broker is not given. What is wrong with the file is told by whoever starts a broker.
fn tell_withheld(host: &Host, root: Option<&Path>) {
    let Ok((names, file)) = gateway::withheld(host, root) else { return };
    if !names.is_empty() {
        crate::output::tell(format!(
            "note: the broker does not get {} from this environment, because it serves every client; set under [env] in {} what it should have",
            names.join(", "),
            file.shown()
        ));
    }
}

/// Says which names of the file stand for nobody so far, and what is wrong with alerts. What is wrong with the file is told by whoever starts a
/// broker.
async fn tell_unmatched(host: &Host, root: Option<&Path>) -> Result<(), HostError> {
    let folder = gateway::root(host.settings(), root)?;
    let unmatched = gateway::unmatched(host, &folder).await.unwrap_or_default();
    for warning in unmatched.into_iter().chain(untold(host, &folder)) {
        crate::output::tell(format!("warning: {warning}"));
    }
    Ok(())
}

/// What keeps a person from being told elsewhere that a question waits.
fn untold(host: &Host, folder: &Path) -> Option<String> {
    gateway::alerts_fault(host, folder).err().map(|error| format!("no alert can be sent: {error}"))
}

async fn broker(host: &Host, root: Option<&Path>) -> Result<Option<GatewayBroker>, HostError> {
    read(gateway::ask(host, root, false).await?)
}

/// What a broker says of itself.
fn read(said: Option<serde_json::Value>) -> Result<Option<GatewayBroker>, HostError> {
    let broker = said.map(serde_json::from_value).transpose();
    broker.map_err(|error| HostError::failed(format!("the gateway's broker has another version: {error}")))
}

/// What was changed since a broker that says this of itself has read it.
fn not_in_effect(said: Option<&serde_json::Value>) -> Vec<String> {
    let changed = said.map(gateway::changed_since).unwrap_or_default();
    changed.into_iter().map(|changed| format!("{changed}: {}", gateway::READ_AGAIN)).collect()
}

/// How many calls are under way, as the beginning of a clause.
fn under_way(broker: &GatewayBroker) -> String {
    let calls = broker.calls.len();
    format!("{} under way {}", ua_core::counted(calls, "call"), if calls == 1 { "is" } else { "are" })
}

/// These calls, a line each.
fn named(calls: &[GatewayCall]) -> String {
    let now = ua_core::system::env().now();
    calls.iter().fold(String::new(), |lines, call| {
        let asked = if call.is_held { ", waits for your answer" } else { "" };
        let (tool, server, since) = (plain(&call.tool), plain(&call.server), moment::ago(call.since, now));
        lines + &format!("  {} {tool} of {server}, since {since}{asked}\n", short(&call.call))
    })
}

async fn status(host: &Host, root: Option<&Path>, json: bool) -> Result<(), HostError> {
    let said = gateway::ask(host, root, false).await?;
    let unread = not_in_effect(said.as_ref());
    let broker = read(said)?;
    let folder = gateway::root(host.settings(), root)?;
    // How the broker stands is said whatever becomes of the rest: it may be making its database just now.
    let trouble = gateway::trouble(host, &folder).await;
    let found = gateway::open_questions(host, root).await;
    let (commands, questions) = found.unwrap_or_else(|error| {
        // Most often that is what keeps a broker from starting, and is said below.
        if trouble.as_ref().is_none_or(|trouble| trouble.to_string() != error.to_string()) {
            crate::output::tell(format!("its questions cannot be read now: {error}"));
        }
        (Commands::default(), Vec::new())
    });
    // One that serves has said all that was wrong before it.
    let fault = if broker.is_none() { gateway::last_fault(&folder) } else { None };
    let mut warnings = gateway::unmatched(host, &folder).await.unwrap_or_default();
    warnings.extend(untold(host, &folder));
    warnings.extend(unread);
    for moved in gateway::moved(host, root).await.unwrap_or_default() {
        let mends = crate::output::command(moved.mended_by());
        warnings.push(format!("{} ({mends} corrects that)", moved.in_words()));
    }
    warnings.extend(gateway::impatient(host, root).unwrap_or_default());
    let left = gateway::left(host, root).await.ok().and_then(|(commands, left)| left.in_words(&commands));
    if json {
        warnings.extend(left.map(|left| left.replace('\n', ". ")));
        let questions = questions.iter().map(|asked| OpenQuestion::of_gateway(asked, &commands)).collect();
        let trouble = trouble.map(|trouble| trouble.to_string());
        let fault = fault.map(|gateway::Fault { at, message, hint, .. }| GatewayFault { at, message, hint });
        return print_json(&GatewayStatus { root: folder, broker, questions, trouble, last_error: fault, warnings });
    }
    let is_running = broker.is_some();
    match (broker, &trouble) {
        (None, None) => {
            print(format!(
                "no broker is running; it starts with the first client. Its folder is {}\n",
                folder.shown()
            ))?;
        }
        (None, Some(_)) => print(format!("no broker is running, and none can start in {}\n", folder.shown()))?,
        (Some(broker), _) => show_broker(broker, &folder)?,
    }
    if let Some(trouble) = &trouble {
        let lead = if is_running { "the next broker would not start: " } else { "" };
        print(format!("{}\n", wrapped(&plain(&format!("{lead}{trouble}")), 0)))?;
        if let Some(hint) = trouble.hint_text() {
            print(format!("{}\n", wrapped(&plain(&format!("hint: {hint}")), 0)))?;
        }
    } else if let Some(fault) = &fault {
        let said = fault.in_words(&moment::ago(fault.at, ua_core::system::env().now()));
        print(format!("{}\n", wrapped(&plain(&said), 0)))?;
    }
    for warning in &warnings {
        print(format!("{}\n", wrapped(&plain(&format!("warning: {warning}")), 0)))?;
    }
    if let Some(left) = left {
        print(format!("\n{}\n", plain(&left)))?;
    }
    match super::status::at_the_gateway(&commands, &questions) {
        Some(waits) => print(format!("\n{waits}\n")),
        None => Ok(()),
    }
}

fn show_broker(broker: GatewayBroker, folder: &Path) -> Result<(), HostError> {
    let version = broker.version.as_deref().unwrap_or("of an earlier version");
    let ends = match (broker.is_ending, broker.calls.is_empty()) {
        (false, _) => String::new(),
        (true, true) => "; it is ending".to_owned(),
        (true, false) => format!("; it ends once {} finished, within half a minute", under_way(&broker)),
    };
    print(format!("broker {} ({version}) in {}{ends}\n", broker.pid, folder.shown()))?;
    if let Some(address) = &broker.http {
        print(format!("clients over HTTP: {address}/s/SERVER/mcp\n"))?;
    }
    if let Some(why) = &broker.http_taken {
        print(format!("{}\n", plain(why)))?;
    }
    if broker.bridges.is_empty() {
        print("no client is connected\n")?;
    } else {
        let row =
            |bridge: GatewayBridge| vec![bridge.server, bridge.client, bridge.way, bridge.identity, bridge.project];
        print_table(&crate::listings::BRIDGES, broker.bridges.into_iter().map(row).collect())?;
    }
    if !broker.calls.is_empty() {
        let now = ua_core::system::env().now();
        let row = |call: GatewayCall| {
            let held = if call.is_held { "waits for you" } else { "" };
            let (call_id, askers) = (short(&call.call).to_owned(), call.askers.to_string());
            vec![call_id, call.tool, call.server, moment::ago(call.since, now), held.to_owned(), askers]
        };
        print_table(&crate::listings::UNDER_WAY, broker.calls.into_iter().map(row).collect())?;
    }
    Ok(())
}
