//! `ua __mcp-client`: what the official conformance suite of MCP watches this client do.

use serde_json::{Map, Value};
use ua_core::{RunId, ToolNamespace};
use ua_mcp::{LockDir, McpTransportConfig, Reach, ServerSpec, ShimCommand, exercise};

use crate::error::{CliError, FAILED, OK};
use crate::output::print;

/// Calls what the server at `url` offers; `MCP_CONFORMANCE_CONTEXT` may say which calls are wanted.
pub(crate) async fn run(url: String) -> Result<u8, CliError> {
    let env = ua_core::system::env();
    let folder = tempfile::tempdir().map_err(|e| CliError::storage(format!("cannot make a folder: {e}")))?;
    let locks = LockDir::new(folder.path(), RunId::new(&env), env.clone())
        .map_err(|e| CliError::storage(format!("cannot use the folder of locks: {e}")))?;
    // No server is started here, so nothing runs below a shim.
    let shim = ShimCommand { program: "ua".into(), args: vec!["__shim".into()] };
    let reach = Reach::Http { url, headers: std::collections::BTreeMap::new() };
    let mut config = McpTransportConfig::new(shim, locks, env);
    config.servers = vec![ServerSpec::new("conformance", ToolNamespace::Mcp, reach)];
    for came in exercise(config, wanted()).await.map_err(|why| CliError::new(FAILED, why))? {
        print(&format!("{came}\n"))?;
    }
    Ok(OK)
}

/// The calls that the suite asks for.
fn wanted() -> Option<Vec<(String, Map<String, Value>)>> {
    let context: Value = serde_json::from_str(&crate::env::var("MCP_CONFORMANCE_CONTEXT")?).ok()?;
    let calls = context.get("toolCalls")?.as_array()?.iter();
    let read =
        |call: &Value| Some((call.get("name")?.as_str()?.to_owned(), call.get("arguments")?.as_object()?.clone()));
    Some(calls.filter_map(read).collect())
}
