//! Tool servers: which ones a configuration and a run have, and the transport that reaches them.

mod builtin;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ua_core::{Redactor, RunId, ToolNamespace};
use ua_dispatch::CallProgress;
use ua_mcp::{
    DefinitionLock, LockDir, Locked, McpConfig, McpTransport, McpTransportConfig, Progress, ProgressWatcher, Reach,
    ServerSpec, ShimCommand, reach_digest,
};
use ua_runner::{RunEvent, Watcher};
use ua_store::RunRecord;

use crate::credentials;
use crate::error::{HostError, chain};
use crate::host::Host;
use crate::launch::Launch;
use crate::paths::read;
use crate::settings::Settings;
use crate::text::plain;
use crate::trust::{self, ConfigFile};

pub use builtin::builtin_server;

/// The file with the tool servers: the one that is named, else the configured one, else `.mcp.json` if it is there.
pub fn mcp_config_file(settings: &Settings, named: Option<&Path>) -> Option<ConfigFile> {
    let named = named.map(Path::to_path_buf).or_else(|| settings.var("UA_MCP_CONFIG").map(PathBuf::from));
    let found = || Some(PathBuf::from(trust::PROJECT_FILE)).filter(|file| file.exists());
    named.map(ConfigFile::named).or_else(|| Some(ConfigFile { path: found()?, is_found: true }))
}

/// An MCP configuration file, as it is written; nothing of it is resolved.
pub fn mcp_config(file: Option<&ConfigFile>) -> Result<McpConfig, HostError> {
    let Some(ConfigFile { path, .. }) = file else { return Ok(McpConfig::default()) };
    let text = read(path, "the MCP configuration")?;
    let hint = "the file is a JSON object `{\"mcpServers\": {\"name\": {\"command\": …, \"args\": […]}}}`";
    McpConfig::parse(&text, &path.display().to_string()).map_err(|e| HostError::usage(chain(&e)).hint(hint))
}

/// How each server of a configuration is reached, as it is written (what its variables stand for is not what a person looked at): a
/// digest by name.
pub fn configured_reaches(config: &McpConfig) -> BTreeMap<String, String> {
    config.servers.iter().map(|(name, reach)| (name.clone(), reach_digest(reach))).collect()
}

/// The servers of a configuration, ready to be started, once a person let them in, and held to the lock of tool definitions beside it.
/// Each gets the harmless part of our environment, and what the file gives it.
pub fn mcp_servers(host: &Host, file: Option<&ConfigFile>, config: McpConfig) -> Result<Vec<ServerSpec>, HostError> {
    let lock = file.map(|file| crate::tool_lock::read(&file.path)).transpose()?.flatten();
    mcp_servers_with(host, file, config, lock.as_ref())
}

/// The same, held to `lock`.
pub fn mcp_servers_with(
    host: &Host,
    file: Option<&ConfigFile>,
    config: McpConfig,
    lock: Option<&DefinitionLock>,
) -> Result<Vec<ServerSpec>, HostError> {
    let Some(file) = file else { return Ok(Vec::new()) };
    trust::check(host.settings(), file, &config.servers)?;
    let reaches = configured_reaches(&config);
    let protocols = config.protocols;
    let mut expanded = Vec::new();
    for (name, reach) in config.servers {
        let one = McpConfig { servers: vec![(name.clone(), reach)], ..McpConfig::default() };
        expanded.extend(expand(host, &name, one)?.servers);
    }
    let inherited = host.settings().for_tool_servers();
    let servers = expanded.into_iter().map(|(name, reach)| {
        let protocol = protocols.get(&name).cloned().unwrap_or_default();
        let lock = lock.map(|lock| Locked {
            expected: lock.servers.get(&name).cloned(),
            reach: reaches.get(&name).cloned().unwrap_or_default(),
        });
        let reach = match reach {
            Reach::Stdio { command, args, env, cwd } => {
                let mut all: BTreeMap<String, String> = inherited.clone();
                all.extend(env);
                Reach::Stdio { command, args, env: all, cwd }
            }
            http @ Reach::Http { .. } => http,
        };
        let namespace = namespace_of(&name, &reach);
        ServerSpec { protocol, lock, ..ServerSpec::new(name, namespace, reach) }
    });
    Ok(servers.collect())
}

/// Refuses servers whose program is not there: a typing error in `command` is found before anything is stored or started.
pub fn check_programs(servers: &[ServerSpec]) -> Result<(), HostError> {
    for server in servers {
        let Reach::Stdio { command, env, cwd, .. } = &server.reach else { continue };
        let is_program = |file: &Path| std::fs::metadata(file).is_ok_and(|found| found.is_file());
        let folder = cwd.as_deref().unwrap_or(Path::new("."));
        let is_there = if command.contains('/') {
            is_program(&folder.join(command))
        } else {
            let path = env.get("PATH").map(String::as_str).unwrap_or_default();
            // Without a PATH the system has one of its own.
            path.is_empty() || std::env::split_paths(path).any(|place| is_program(&folder.join(place).join(command)))
        };
        if !is_there {
            return Err(HostError::usage(format!(
                "the program `{}` of the tool server `{}` is not there",
                plain(command),
                plain(&server.name)
            ))
            .hint("install it, or correct `command` in the MCP configuration; nothing was started"));
        }
    }
    Ok(())
}

/// Puts values in the place of references in the configuration of one server.
fn expand(host: &Host, server: &str, config: McpConfig) -> Result<McpConfig, HostError> {
    let refused = RefCell::new(None);
    let expanded = config.expand(|name| match name.strip_prefix("secret:") {
        None => host.settings().var(name),
        Some(secret) => match host.secrets().and_then(|secrets| secrets.for_server(server, secret)) {
            Ok(value) => Some(value),
            Err(error) => {
                refused.replace(Some(error));
                None
            }
        },
    });
    match (expanded, refused.into_inner()) {
        (Ok(expanded), _) => Ok(expanded),
        (Err(_), Some(refused)) => Err(refused),
        (Err(e), None) => {
            Err(HostError::usage(chain(&e))
                .hint("the file may name variables of this program's environment as `${NAME}`"))
        }
    }
}

/// A Composio tool router, by the name it was given or by where it is; any other server is plain MCP.
fn namespace_of(name: &str, reach: &Reach) -> ToolNamespace {
    let is_named = name.to_lowercase().split(|c: char| !c.is_alphanumeric()).any(|word| word == "composio");
    let is_theirs = match reach {
        Reach::Http { url, .. } => {
            let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            let host = authority.rsplit('@').next().and_then(|host| host.split(':').next()).unwrap_or_default();
            host == "composio.dev" || host.ends_with(".composio.dev")
        }
        Reach::Stdio { .. } => false,
    };
    if is_named || is_theirs { ToolNamespace::Composio } else { ToolNamespace::Mcp }
}

/// The tool servers of a run; nothing is started yet.
pub(crate) fn tool_servers(
    host: &Host,
    run: &RunRecord,
    launch: &Launch,
    watcher: Watcher,
) -> Result<Arc<McpTransport>, HostError> {
    let logs = Path::new(&run.workspace_dir).join("logs");
    let progress: ProgressWatcher = Arc::new(move |progress: Progress| {
        let text = progress.to_string();
        watcher(RunEvent::Call(CallProgress::Progress { call_id: progress.call_id, text }));
    });
    let servers = servers_of(host, run, launch)?;
    transport_with(host, servers, &host.home().locks(), run.run_id.clone(), Some(logs), Some(progress))
}

/// What tool servers a run has.
pub fn servers_of(host: &Host, run: &RunRecord, launch: &Launch) -> Result<Vec<ServerSpec>, HostError> {
    let workspace = Path::new(&run.workspace_dir);
    let mut servers = Vec::new();
    if run.spec.tools.builtin {
        let mut builtin = builtin_server(host, host.home().root(), workspace, launch, run.spec.tools.run_command)?;
        if let Reach::Stdio { args, .. } = &mut builtin.reach {
            // The dispatcher refuses addresses that a model asks for; only the crawler sees where a page redirects to.
            for domain in &run.spec.constraints.allowed_domains {
                args.push(format!("--allow-domain={domain}"));
            }
            // A sub-agent may read what lies in the folder of the run it works for.
            let parents = workspace.parent().and_then(Path::parent).filter(|_| ua_store::is_task(run));
            args.extend(
                parents.into_iter().flat_map(|folder| ["--allow-root".to_owned(), folder.display().to_string()]),
            );
        }
        servers.push(builtin);
    }
    servers.extend(launch.configured_servers(host, &run.spec)?);
    Ok(servers)
}

/// What tools may not bring into what is stored: keys that this process was given, and those that its tool servers are.
pub fn redactor(host: &Host, run: &RunRecord, launch: &Launch) -> Result<Redactor, HostError> {
    credentials::learn_own(host.settings(), host.redactor());
    host.secrets()?;
    let mut secrets: Vec<(String, String)> = Vec::new();
    for server in servers_of(host, run, launch)? {
        match server.reach {
            Reach::Stdio { env, .. } => {
                secrets.extend(env.into_iter().filter(|(name, value)| credentials::is_secret(name, value)));
            }
            Reach::Http { headers, .. } => {
                let secret = headers.into_iter().filter(|(name, value)| credentials::is_secret(name, value));
                // `Bearer …` and its like: the word that counts is the last one.
                secrets.extend(secret.filter_map(|(name, value)| {
                    let last = value.split_whitespace().next_back()?.to_owned();
                    Some((format!("{} of {}", name, server.name), last))
                }));
            }
        }
    }
    host.redactor().learn(secrets);
    Ok(host.redactor().clone())
}

/// A transport for `servers`, whose locks lie in `locks`.
pub fn transport(
    host: &Host,
    servers: Vec<ServerSpec>,
    locks: &Path,
    run: RunId,
) -> Result<Arc<McpTransport>, HostError> {
    transport_with(host, servers, locks, run, None, None)
}

fn transport_with(
    host: &Host,
    servers: Vec<ServerSpec>,
    locks: &Path,
    run: RunId,
    stderr_log: Option<PathBuf>,
    progress: Option<ProgressWatcher>,
) -> Result<Arc<McpTransport>, HostError> {
    let env = host.env();
    let shim = ShimCommand { program: host.settings().program()?, args: vec!["__shim".into()] };
    let locks = LockDir::new(locks, run, env.clone())
        .map_err(|e| HostError::storage(format!("cannot use the folder of locks: {e}")))?;
    let mut config = McpTransportConfig::new(shim, locks, env.clone());
    config.current_span = host.spans().current();
    config.servers = servers;
    config.stderr_log = stderr_log;
    config.progress = progress;
    config.secrets = Some(host.secrets()?);
    Ok(Arc::new(McpTransport::new(config)))
}
