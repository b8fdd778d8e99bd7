//! What the official conformance suites of MCP watch this client do: it calls everything that the server at an address offers.

#![expect(clippy::print_stdout, reason = "what came of each call is said on standard output")]

use std::error::Error;

use serde_json::{Map, Value};
use ua_core::{RunId, ToolNamespace};
use ua_mcp::{LockDir, McpTransportConfig, Reach, ServerSpec, ShimCommand, exercise};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("usage: ua-e2e-mcp-client URL")?;
    let env = ua_core::system::env();
    let folder = tempfile::tempdir()?;
    let locks = LockDir::new(folder.path(), RunId::new(&env), env.clone())?;
    // No server is started here, so nothing runs below a shim.
    let shim = ShimCommand { program: "ua".into(), args: vec!["__shim".into()] };
    let reach = Reach::Http { url, headers: std::collections::BTreeMap::new() };
    let mut config = McpTransportConfig::new(shim, locks, env);
    config.servers = vec![ServerSpec::new("conformance", ToolNamespace::Mcp, reach)];
    for came in exercise(config, wanted()).await? {
        println!("{came}");
    }
    Ok(())
}

/// The calls that the suite asks for; `None`, which is all of them, when it does not say.
#[expect(clippy::disallowed_methods, reason = "the suite says it in the environment")]
fn wanted() -> Option<Vec<(String, Map<String, Value>)>> {
    let context: Value = serde_json::from_str(&std::env::var("MCP_CONFORMANCE_CONTEXT").ok()?).ok()?;
    let calls = context.get("toolCalls")?.as_array()?.iter();
    let read =
        |call: &Value| Some((call.get("name")?.as_str()?.to_owned(), call.get("arguments")?.as_object()?.clone()));
    Some(calls.filter_map(read).collect())
}
