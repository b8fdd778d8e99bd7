//! The tool servers of a run, and the transport that reaches them.

mod builtin;
mod listed;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ua_core::{Redactor, RunId, ToolSpec};
use ua_dispatch::{CallProgress, LookAt, MayAct, Outside, Through, ToolTransport, TransportError};
use ua_mcp::{
    Foreteller, LockDir, McpTransport, McpTransportConfig, Progress, ProgressWatcher, Reach, ServerSpec, ShimCommand,
};
use ua_runner::{RunEvent, RunLock, Watcher};
use ua_store::{AttemptRecord, CallRecord, RunRecord};

use crate::credentials;
use crate::error::HostError;
use crate::home::Home;
use crate::host::Host;
use crate::launch::Launch;
use crate::settings::Settings;
use crate::text::line;

pub use builtin::{BUILTIN, MailFolder, builtin_server, check_builtin, made_of, mail_in_a_folder};
pub(crate) use listed::{Handover, Listed};

/// The transport to the servers of a run ([`servers_of`]), which works in `workspace`; nothing is started yet. Of one that is taken again each server is
/// asked for its tools before anything else: what stopped it may be that a server is another than this program takes it for. The redactor knows what
/// they are given.
pub(crate) fn tool_servers(
    host: &Host,
    run: &RunRecord,
    workspace: &Path,
    servers: Vec<ServerSpec>,
    watcher: Watcher,
    is_taken_again: bool,
) -> Result<Arc<McpTransport>, HostError> {
    let logs = workspace.join("logs");
    let progress = told_to(watcher);
    let (id, locks) = (run.run_id.clone(), host.home().locks());
    let foreteller = host.foreteller().filter(|_| !is_taken_again).cloned();
    let around = Around { stderr_log: Some(logs), progress: Some(progress), foreteller };
    transport_with(host, servers, &locks, id, around)
}

/// Who is told how far calls are, by whoever follows the run.
fn told_to(watcher: Watcher) -> ProgressWatcher {
    Arc::new(move |progress: Progress| {
        let text = progress.to_string();
        watcher(RunEvent::Call(CallProgress::Progress { call_id: progress.call_id, text }));
    })
}

/// What tool servers a run has that works in `workspace`, the folder that was opened for it: what its row says of that is no word of anybody's. Each
/// server is looked through for this, which may be many files: whoever needs them twice keeps them.
pub fn servers_of(
    host: &Host,
    run: &RunRecord,
    workspace: &Path,
    launch: &Launch,
) -> Result<Vec<ServerSpec>, HostError> {
    let mut servers = Vec::new();
    if run.spec.tools.builtin {
        let mut builtin = builtin_server(host, host.home().root(), workspace, launch, run.spec.tools.run_command)?;
        if let Reach::Stdio { args, .. } = &mut builtin.reach {
            // The dispatcher refuses addresses that a model asks for; only the crawler sees where a page redirects to.
            for domain in &run.spec.constraints.allowed_domains {
                args.push(format!("--allow-domain={domain}"));
            }
            // A sub-agent may read what lies in the folder of the run it works for.
            if let Some(parents) = host.home().workspace_above(workspace).filter(|_| ua_store::is_task(run)) {
                args.extend(["--allow-root".to_owned(), parents.to_string_lossy().into_owned()]);
            }
        }
        if let Reach::Stdio { env, .. } = &mut builtin.reach {
            env.extend(copy_key(host));
        }
        servers.push(builtin);
    }
    servers.extend(launch.configured_servers(host, &run.spec)?);
    Ok(servers)
}

/// What our tool server seals its copies of pages with: kept where no tool of a run writes, so that a later process knows them again.
#[cfg(feature = "toolserver")]
fn copy_key(host: &Host) -> Option<(String, String)> {
    ua_toolserver::copy_key(&host.home().locks()).map(|key| (ua_toolserver::COPY_KEY.to_owned(), key))
}

#[cfg(not(feature = "toolserver"))]
fn copy_key(_: &Host) -> Option<(String, String)> {
    None
}

/// Ends what tool servers left in a root whose process and shim were killed, of every run that nobody drives. For each command that changes a
/// run: a resume of that very run may never come.
pub async fn end_abandoned(home: &Home) {
    // What is another user's, that one ends.
    if home.is_somebody_elses() {
        return;
    }
    let locks = home.locks();
    LockDir::end_abandoned(&locks, &ua_core::system::env(), |run| RunLock::is_held(&locks, run)).await;
}

/// What is seen from here, by whoever answers a question of a run, of processes that drive runs and of what calls were sent to; nothing is started
/// or ended.
///
/// # Errors
/// The folder of locks cannot be told.
pub fn outside(host: &Host, run: &RunId) -> Result<impl Outside + use<>, HostError> {
    let locks = host.home().locks();
    let servers = Through::new(transport(host, Vec::new(), &locks, run.clone())?, ua_runner::may_be_driven);
    Ok(Seen { servers, locks, run: run.clone() })
}

struct Seen {
    servers: Through,
    locks: PathBuf,
    /// The run of the question.
    run: RunId,
}

impl Outside for Seen {
    fn may_act(&self, call: &CallRecord, last: &AttemptRecord) -> MayAct {
        self.servers.may_act(call, last)
    }

    fn may_be_driven(&self, run: &RunRecord) -> bool {
        if ua_store::is_gateway(run) {
            // A gateway answers its client's calls by itself, and its sessions have no process that drives them.
            return run.run_id == self.run || RunLock::is_held(&self.locks, &run.run_id);
        }
        self.servers.may_be_driven(run)
    }
}

/// What tools may not bring into what is stored: keys that this process was given, and those that these tool servers of its are.
pub fn redactor(host: &Host, servers: &[ServerSpec]) -> Result<Redactor, HostError> {
    learn_of(host, servers)?;
    Ok(host.redactor().clone())
}

/// Has the redactor learn what these servers are given, before any of them is.
fn learn_of(host: &Host, servers: &[ServerSpec]) -> Result<(), HostError> {
    credentials::learn_own(host.settings(), host.redactor());
    host.secrets()?;
    host.redactor().learn(servers.iter().flat_map(ServerSpec::secrets));
    Ok(())
}

/// How long tools are listed before somebody is told what is waited for.
pub(crate) const SLOW_START: Duration = Duration::from_secs(2);

/// How long a tool server may take to start where nobody says, as in [`McpConfig`](ua_mcp::McpConfig).
const USUAL_START: Duration = Duration::from_secs(30);

/// The names of servers, as people are shown them.
pub fn names(servers: &[ServerSpec]) -> Vec<String> {
    servers.iter().map(|server| format!("`{}`", line(&server.name, 40))).collect()
}

/// What is waited for when tool servers take long to start, and for how long.
pub(crate) fn still_starting(settings: &Settings, names: &[String]) -> String {
    // One that cannot be used is refused where the servers are started.
    let limit = start_timeout(settings).ok().flatten().unwrap_or(USUAL_START);
    // Those that a person chose are named: the own one is there in each run.
    let names: Vec<&str> = names.iter().map(String::as_str).filter(|name| *name != "`ua`").collect();
    let of = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    format!("still starting: each of the tool servers has {} to answer{of}", ua_core::span_in_words(limit))
}

/// What helps against a tool server that cannot be used, as a hint.
pub fn what_helps(error: &TransportError) -> &'static str {
    match error {
        TransportError::Changed { .. } => "look at what changed before you accept it; nothing was called",
        TransportError::NotStarted { look_at: LookAt::Address, .. } => {
            "check that the server is running, and correct its address in the MCP configuration"
        }
        TransportError::NotStarted { look_at: LookAt::Start, .. } => {
            "if it needs longer to start, as one that is fetched first does, set UA_SERVER_START_TIMEOUT to more seconds"
        }
        TransportError::NotStarted { look_at: LookAt::Login, .. } => {
            "nothing was called; log in to the server, or correct its `headers` or `client_credentials` in the MCP configuration, and try again"
        }
        TransportError::Away { .. } => "the address is right, and nothing was called; try again in a while",
        TransportError::UnknownServer { .. }
        | TransportError::NotStarted { look_at: LookAt::Command, .. }
        | TransportError::NotReached { .. }
        | TransportError::Elsewhere { .. }
        | TransportError::NotIdentified { .. }
        | TransportError::NotListed { .. } => {
            "correct the server's command, arguments or environment in the MCP configuration"
        }
    }
}

/// Lists the tools of servers, and says what is waited for when that takes long.
///
/// # Errors
/// A server that cannot be reached, as [`ToolTransport::list`] says it.
pub async fn list(
    host: &Host,
    transport: &McpTransport,
    names: &[String],
    tell: impl Fn(&str),
) -> Result<Vec<ToolSpec>, TransportError> {
    let mut listing = transport.list();
    tokio::select! {
        found = &mut listing => return found,
        () = host.env().clock.sleep(SLOW_START) => tell(&still_starting(host.settings(), names)),
    }
    listing.await
}

/// A transport for `servers`, whose locks lie in `locks`. Where calls go it tells as every run of this root does.
pub fn transport(
    host: &Host,
    servers: Vec<ServerSpec>,
    locks: &Path,
    run: RunId,
) -> Result<Arc<McpTransport>, HostError> {
    transport_with(host, servers, locks, run, Around::default())
}

/// What a transport has around it while a run is driven.
#[derive(Default)]
struct Around {
    /// The folder of the servers' logs.
    stderr_log: Option<PathBuf>,
    /// Who is told how far calls are.
    progress: Option<ProgressWatcher>,
    /// Who knows what servers will say before they are started.
    foreteller: Option<Foreteller>,
}

fn transport_with(
    host: &Host,
    servers: Vec<ServerSpec>,
    locks: &Path,
    run: RunId,
    around: Around,
) -> Result<Arc<McpTransport>, HostError> {
    // Whoever starts servers has them behind the redactor, whatever they are started for.
    learn_of(host, &servers)?;
    let env = host.env();
    let shim = ShimCommand { program: host.settings().program()?, args: vec!["__shim".into()] };
    let locks = LockDir::new(locks, run, env.clone())
        .and_then(|locks| locks.with_destinations_of(&host.home().locks()))
        .map_err(|e| HostError::storage(format!("cannot use the folder of locks: {e}")))?;
    let mut config = McpTransportConfig::new(shim, locks, env.clone());
    config.current_span = host.spans().current();
    config.servers = servers;
    config.stderr_log = around.stderr_log;
    config.progress = around.progress;
    config.foreteller = around.foreteller;
    config.redactor = host.redactor().clone();
    config.secrets = Some(host.secrets()?);
    config.logins = Some(host.logins());
    if let Some(limit) = start_timeout(host.settings())? {
        config.start_timeout = limit;
    }
    Ok(Arc::new(McpTransport::new(config)))
}

/// How long a tool server may take to answer its first request, as it is configured.
fn start_timeout(settings: &Settings) -> Result<Option<Duration>, HostError> {
    let Some(text) = settings.var("UA_SERVER_START_TIMEOUT") else { return Ok(None) };
    let read = text.trim().parse().ok().filter(|seconds| (1..=86_400_u64).contains(seconds));
    let seconds = read.ok_or_else(|| {
        HostError::usage(format!("cannot use {}={text}", settings.said_as("UA_SERVER_START_TIMEOUT")))
            .hint("write whole seconds, from 1 to 86400; without it a tool server may take 30")
    })?;
    Ok(Some(Duration::from_secs(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Process;

    #[test]
    fn how_long_a_server_may_take_to_start_is_a_setting() {
        let settings = |value: Option<&str>| {
            let variables = value.map(|value| ("UA_SERVER_START_TIMEOUT".to_owned(), value.to_owned()));
            Settings::read(Process { variables: variables.into_iter().collect(), folder: None, program: None })
        };
        let limit = |value: Option<&str>| start_timeout(&settings(value));
        // Whoever waits is told the time that counts.
        for (value, told) in
            [(None, "has 30 s"), (Some("4"), "has 4 s"), (Some("600"), "has 10 min"), (Some("0"), "has 30 s")]
        {
            let said = still_starting(&settings(value), &["`ua`".to_owned(), "`shop`".to_owned()]);
            assert!(said.contains(told) && said.ends_with("to answer (`shop`)"), "{value:?}: {said}");
        }
        assert_eq!(limit(None).unwrap(), None);
        assert_eq!(limit(Some("120")).unwrap(), Some(Duration::from_mins(2)));
        let why = limit(Some("0")).unwrap_err();
        assert_eq!(why.message(), "cannot use UA_SERVER_START_TIMEOUT=0");
    }
}
