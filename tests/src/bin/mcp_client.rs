//! What the official conformance suites of MCP watch this client do: it calls everything that the server at an address offers, and logs in
//! where it has to.

#![expect(clippy::print_stdout, reason = "what came of each call is said on standard output")]

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex};

use serde_json::{Map, Value};
use ua_core::{RunId, ToolNamespace};
use ua_mcp::{
    ClientCredentials, ClientKey, ClientSecret, KeySource, LockDir, LoginFacts, LoginRequest, Logins,
    McpTransportConfig, OwnClient, Reach, ServerSpec, ShimCommand, Vault, exercise, log_in,
};

/// How often a person would log in before they give up.
const MOST_LOGINS: usize = 3;
/// The document about itself that the suite has for a client.
const DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("usage: ua-e2e-mcp-client URL")?;
    let env = ua_core::system::env();
    let folder = tempfile::tempdir()?;
    let locks = LockDir::new(folder.path(), RunId::new(&env), env.clone())?;
    // No server is started here, so nothing runs below a shim.
    let shim = ShimCommand { program: "ua".into(), args: vec!["__shim".into()] };
    let reach = Reach::Http { url: url.clone(), headers: BTreeMap::new(), client: client() };
    let logins = Logins::new(Arc::new(Kept::default()), env.clone());
    let mut config = McpTransportConfig::new(shim, locks, env);
    config.servers = vec![ServerSpec::new("conformance", ToolNamespace::Mcp, reach)];
    config.logins = Some(logins.clone());
    for login in 0..=MOST_LOGINS {
        let came = exercise(config.clone(), wanted()).await;
        let said = came.as_ref().map_or_else(ToString::to_string, |came| came.join("\n"));
        println!("{said}");
        let Some(scopes) = wants_login(&said) else {
            came?;
            return Ok(());
        };
        if login == MOST_LOGINS {
            break;
        }
        Box::pin(log_in(&logins, request(&url, scopes))).await?;
    }
    Err("it wants a login again and again".into())
}

/// The scopes to log in for, if what was said names the command that does.
fn wants_login(said: &str) -> Option<Vec<String>> {
    let (_, after) = said.split_once("`ua login conformance")?;
    let scopes =
        after.strip_prefix(" --scope ").and_then(|rest| rest.trim_start_matches(['\\', '"']).split(['"', '\\']).next());
    Some(scopes.unwrap_or_default().split_whitespace().map(str::to_owned).collect())
}

fn request(url: &str, scopes: Vec<String>) -> LoginRequest {
    let context = context();
    let named = |name: &str| Some(context.as_ref()?.get(name)?.as_str()?.to_owned());
    LoginRequest {
        address: url.to_owned(),
        headers: BTreeMap::new(),
        redirect_uri: "http://127.0.0.1:3000/callback".to_owned(),
        scopes,
        client: named("client_id").map(|id| OwnClient { id, secret: named("client_secret") }),
        client_metadata: Some(DOCUMENT.to_owned()),
        private_network: false,
        assume_pkce: false,
    }
}

/// The client of a scenario in which no person logs in.
#[expect(clippy::disallowed_methods, reason = "the suite says it in the environment")]
fn client() -> Option<Box<ClientCredentials>> {
    std::env::var("MCP_CONFORMANCE_SCENARIO").ok().filter(|scenario| scenario.contains("client-credentials"))?;
    let context = context()?;
    let named = |name: &str| Some(context.get(name)?.as_str()?.to_owned());
    let key = |pem| ClientSecret::Key(ClientKey { from: KeySource::Text(pem), id: None, audience: None });
    Some(Box::new(ClientCredentials {
        id: named("client_id")?,
        secret: named("client_secret").map(ClientSecret::Shared).or_else(|| named("private_key_pem").map(key))?,
        token_url: None,
        scopes: Vec::new(),
        resource: None,
        proof: None,
        private_network: false,
    }))
}

/// Logins of this process alone.
#[derive(Debug, Default)]
struct Kept(Mutex<BTreeMap<String, String>>);

impl Vault for Kept {
    fn load(&self, address: &str) -> Result<Option<String>, String> {
        let kept = self.0.lock().map_err(|error| error.to_string())?;
        Ok(kept.get(address).cloned())
    }

    fn save(&self, address: &str, login: &str, _facts: &LoginFacts) -> Result<(), String> {
        self.0.lock().map_err(|error| error.to_string())?.insert(address.to_owned(), login.to_owned());
        Ok(())
    }

    fn lock(&self, _address: &str) -> Result<Box<dyn Send>, String> {
        Ok(Box::new(())) // there is no other process
    }

    fn learn(&self, _secrets: Vec<(String, String)>) {}
}

/// What the suite says to the client of a scenario.
#[expect(clippy::disallowed_methods, reason = "the suite says it in the environment")]
fn context() -> Option<Value> {
    serde_json::from_str(&std::env::var("MCP_CONFORMANCE_CONTEXT").ok()?).ok()
}

/// The calls that the suite asks for; `None`, which is all of them, when it does not say.
fn wanted() -> Option<Vec<(String, Map<String, Value>)>> {
    let context = context()?;
    let calls = context.get("toolCalls")?.as_array()?.iter();
    let read =
        |call: &Value| Some((call.get("name")?.as_str()?.to_owned(), call.get("arguments")?.as_object()?.clone()));
    Some(calls.filter_map(read).collect())
}
