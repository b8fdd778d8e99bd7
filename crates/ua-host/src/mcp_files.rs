//! Tool servers as configuration files name them: which file counts, what it says, and what is made of it once a person let it in.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::json;
use ua_core::{PrintedCommand, ShowPath as _};
use ua_mcp::{DefinitionLock, Locked, McpConfig, Reach, ServerSpec, reach_digest};

use crate::error::{HostError, chain};
use crate::host::Host;
use crate::obstacles::Obstacles;
use crate::paths::is_program;
use crate::placed::{FileKind, Place};
use crate::settings::Settings;
use crate::text::plain;
use crate::trust::{self, ConfigFile};

/// The file with the tool servers: the one that is named, else the configured one, else `.mcp.json` if it is there.
pub fn mcp_config_file(settings: &Settings, named: Option<&Path>) -> Option<ConfigFile> {
    let standing = || settings.var("UA_MCP_CONFIG").map(ConfigFile::standing);
    let found = || Some(PathBuf::from(trust::PROJECT_FILE)).filter(|file| file.exists()).map(ConfigFile::found);
    named.map(ConfigFile::named).or_else(standing).or_else(found)
}

/// An MCP configuration file, as it is written; nothing of it is resolved.
pub fn mcp_config(file: Option<&ConfigFile>) -> Result<McpConfig, HostError> {
    let Some(ConfigFile { path, .. }) = file else { return Ok(McpConfig::default()) };
    let placed = Place::named(FileKind::Servers, path).read()?;
    let hint = "the file is a JSON object `{\"mcpServers\": {\"name\": {\"command\": …, \"args\": […]}}}`";
    placed.parse(|text| {
        McpConfig::parse(text, &path.shown().to_string()).map_err(|e| HostError::usage(chain(&e)).hint(hint))
    })
}

/// The variables and secrets that an MCP configuration file refers to; none of one that cannot be read.
pub fn referred_to(file: Option<&ConfigFile>) -> Vec<String> {
    let placed = file.and_then(|file| Place::named(FileKind::Servers, &file.path).read().ok());
    placed.map(|placed| ua_mcp::references(&placed.into_text())).unwrap_or_default()
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
    let looked_at = folder_behind_link(file);
    let servers = expanded.into_iter().map(|(name, reach)| {
        let protocol = protocols.get(&name).cloned().unwrap_or_default();
        let lock = lock.map(|lock| Locked {
            expected: lock.servers.get(&name).cloned(),
            reach: reaches.get(&name).cloned().unwrap_or_default(),
            command: Some(crate::tool_lock::command(file)),
        });
        let login = || PrintedCommand::of("ua login").word(&name).option("--mcp-config", &file.path).to_string();
        let login = (!file.is_found).then(login);
        let mut server = ServerSpec::configured(name, reach).with_inherited(&inherited);
        if let Some(folder) = &looked_at {
            server.reach.start_in(folder);
        }
        ServerSpec { protocol, lock, login, ..server }
    });
    Ok(servers.collect())
}

/// The folder of a found file that is somewhere else than where it was found. What its words name there is what a person looked at, so its servers
/// are started there: a checkout has a link to a file that is trusted, and other programs under the names in it.
fn folder_behind_link(file: &ConfigFile) -> Option<PathBuf> {
    let here = std::path::absolute(&file.path).ok().filter(|_| file.is_found)?;
    let (real, here) = (trust::canonical(&here), trust::canonical(here.parent()?));
    real.parent().filter(|real| *real != here).map(Path::to_path_buf)
}

/// Refuses servers whose program is not there: a typing error in `command` is found before anything is stored or started.
///
/// # Errors
/// All of them, as one.
pub fn check_programs(servers: &[ServerSpec]) -> Result<(), HostError> {
    let mut obstacles = Obstacles::default();
    obstacles.meet(servers.iter().filter_map(without_program));
    obstacles.end()
}

/// What is wrong with a server whose program is not there.
fn without_program(server: &ServerSpec) -> Option<HostError> {
    let Reach::Stdio { command, env, cwd, .. } = &server.reach else { return None };
    let folder = cwd.as_deref().unwrap_or(Path::new("."));
    let path = env.get("PATH").map(String::as_str).unwrap_or_default();
    if is_program(Path::new(command), folder, path) {
        return None;
    }
    let refused = HostError::usage(format!(
        "the program `{}` of the tool server `{}` was not found",
        plain(command),
        plain(&server.name)
    ));
    let hint = match command.split_once(char::is_whitespace) {
        // A whole command line where the format has a program and its arguments apart.
        Some((program, arguments)) => format!(
            "`command` is a program alone: write `\"command\": {}` and put arguments into `args`: {}",
            json!(program),
            json!(arguments.split_whitespace().collect::<Vec<_>>())
        ),
        None => "install it, or correct `command` in the MCP configuration".to_owned(),
    };
    Some(refused.hint(hint).not_begun())
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
