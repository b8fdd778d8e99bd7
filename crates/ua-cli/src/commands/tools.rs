//! `ua tools`: what a job would be offered, and why each tool has its class.

use serde_json::json;
use ua_core::{RunId, ToolSpec};
use ua_gateway::ToolTransport as _;

use crate::args::ToolsCommand;
use crate::compose::{self, Launch};
use crate::error::{CliError, OK, WAITING, chain};
use crate::home::Home;
use crate::output::{line, print, print_json, print_table};
use crate::view::ToolRow;

pub(crate) async fn run(home: &Home, command: ToolsCommand) -> Result<u8, CliError> {
    match command {
        ToolsCommand::List { mcp_config, json } => {
            let specs = offered(mcp_config.as_deref()).await?;
            let classifier = compose::classifier_of_user(&[])?;
            let policies: Vec<_> = specs.iter().map(|spec| (spec, classifier.classify(spec, None))).collect();
            if json {
                print_json(&policies.iter().map(|(spec, policy)| row(spec, policy)).collect::<Vec<_>>())?;
            } else {
                let rows = policies.iter().map(|(spec, policy)| {
                    vec![
                        spec.name.raw.clone(),
                        policy.class.to_string(),
                        policy.on_unknown.to_string(),
                        line(&policy.reason, 80),
                    ]
                });
                print_table(&["TOOL", "CLASS", "WHEN IN DOUBT", "WHY"], rows.collect())?;
            }
        }
        ToolsCommand::Explain { name, mcp_config, policy } => {
            let specs = offered(mcp_config.as_deref()).await?;
            let classifier = compose::classifier_of_user(&policy)?;
            let found: Vec<&ToolSpec> =
                specs.iter().filter(|spec| spec.name.raw == name || spec.name.tool == name).collect();
            if found.is_empty() {
                return Err(CliError::usage(format!("no server offers a tool `{name}`"))
                    .hint("`ua tools list` shows what is offered"));
            }
            if crate::terminal::is_json() {
                print_json(&found.into_iter().map(|spec| classifier.explain(spec)).collect::<Vec<_>>())?;
                return Ok(OK);
            }
            for spec in found {
                print(&format!("{}\n", classifier.explain(spec)))?;
            }
        }
        ToolsCommand::Audit { policy } => return super::audit::run(home, &policy),
    }
    Ok(OK)
}

/// A tool as `--json` shows it.
pub(super) fn row(spec: &ToolSpec, policy: &ua_core::CallPolicy) -> ToolRow {
    ToolRow {
        name: spec.name.raw.clone(),
        server: spec.name.server.clone(),
        description: spec.description.clone(),
        digest: json!(spec.digest()),
        policy: json!(policy),
    }
}

/// Every tool of our own server and of the configured ones. Servers are started in a folder that is thrown away.
async fn offered(mcp_config: Option<&std::path::Path>) -> Result<Vec<ToolSpec>, CliError> {
    let env = ua_core::system::env();
    let folder =
        tempfile::tempdir().map_err(|e| CliError::storage(format!("cannot make a folder to look from: {e}")))?;
    let file = compose::mcp_config_file(mcp_config);
    let mut servers = Vec::new();
    if cfg!(feature = "toolserver") {
        let launch = Launch::for_inspection(folder.path().to_path_buf());
        servers.push(compose::builtin_server(folder.path(), &folder.path().join("workspace"), &launch, true)?);
        std::fs::create_dir(folder.path().join("workspace"))
            .map_err(|e| CliError::storage(format!("cannot make a folder to look from: {e}")))?;
    }
    let mut config = compose::mcp_config(file.as_ref())?;
    if let Some(file) = &file {
        // Looking is no reason to start what nobody let in.
        for sight in crate::trust::untrusted(file, &config.servers)? {
            config.servers.retain(|(name, _)| *name != sight.server);
            crate::output::tell(&format!(
                "left out: `{}` of {} is not let in; `ua trust` shows it",
                sight.server,
                file.path.display()
            ));
        }
    }
    servers.extend(compose::mcp_servers(file.as_ref(), config)?);
    let transport = compose::transport(servers, &folder.path().join("locks"), RunId::new(&env), None, &env)?;
    let listed = transport.list().await;
    transport.shutdown().await;
    listed.map_err(|e| {
        CliError::new(WAITING, chain(&e))
            .hint("correct the server's command, arguments or environment in the MCP configuration")
    })
}
