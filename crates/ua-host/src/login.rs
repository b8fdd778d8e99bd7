//! `ua login` and `ua logout`: how a person logs in at a tool server, and what is left of it.
//!
//! The person goes to an address with a browser of theirs, is let in there, and comes back to this machine, where one request is waited for;
//! or brings the address that they came back to, where the browser is elsewhere. What front doors differ in is how that address is shown, and
//! whether a person can bring one.

use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use ua_core::{Busy, Env};
use ua_mcp::{LoginError, LoginFacts, LoginRequest, Logins, OwnClient, PendingLogin, Reach};

use crate::error::HostError;
use crate::host::Host;
use crate::logins::{LoginEntry, LoginFiles};
use crate::mcp_files::{mcp_config, mcp_config_file, mcp_servers};
use crate::text::plain;

/// The most of a request that is read, and how long it may take.
const MAX_REQUEST: u64 = 16 * 1024;
const REQUEST_PATIENCE: Duration = Duration::from_secs(5);
/// Where a person comes back to.
const BACK: &str = "/callback";

/// What a person says about a login.
#[derive(Debug, Clone, Default)]
pub struct LoginOptions {
    /// The server's name in the configuration.
    pub server: String,
    /// Its address, where no configuration of this program names it: behind the gateway, for instance.
    pub url: Option<String>,
    /// The configuration, if not the usual one.
    pub mcp_config: Option<PathBuf>,
    /// What it is to allow.
    pub scopes: Vec<String>,
    /// A client that the person has from the authorization server; its secret is in `UA_LOGIN_CLIENT_SECRET`.
    pub client_id: Option<String>,
    /// The address of a document about this client.
    pub client_metadata: Option<String>,
    /// The port that the person comes back to; any that is free, without one.
    pub port: u16,
    /// Whether the servers may be in a private network.
    pub private_network: bool,
    /// Whether the person knows that the authorization server supports PKCE where it does not say so itself.
    pub assume_pkce: bool,
    /// How long the person may take.
    pub patience: Duration,
}

/// A login that was made.
#[derive(Debug, Clone)]
pub struct LoggedIn {
    /// The address it is for.
    pub address: String,
    /// What may be shown of it.
    pub facts: LoginFacts,
    /// Whether the tokens are in the keyring; else they are in a file.
    pub in_keyring: bool,
}

/// Logs in. `show` is told where the person has to go; `brought` is an address that the person came back to elsewhere, if they bring one.
///
/// # Errors
/// The server is not configured, not remote or not trusted; nobody can log in there; the person was not let in or did not come back.
pub async fn log_in(
    host: &Host,
    options: &LoginOptions,
    show: &(dyn Fn(&str) + Sync),
    brought: impl Future<Output = Option<String>>,
) -> Result<LoggedIn, HostError> {
    let (address, headers) = remote(host, options)?;
    let name = plain(&options.server);
    if headers.keys().any(|header| header.eq_ignore_ascii_case("authorization")) {
        return Err(HostError::usage(format!("the MCP configuration gives `{name}` a token of its own"))
            .hint("remove `Authorization` from its `headers`, then log in"));
    }
    let listener = TcpListener::bind(("127.0.0.1", options.port)).await.map_err(|error| {
        HostError::failed(format!("cannot listen for the browser on port {}: {error}", options.port))
            .hint("name a free port with --port, or none")
    })?;
    let port = listener.local_addr().map_err(|error| HostError::failed(error.to_string()))?.port();
    let own = options.client_id.clone();
    let secret = host.settings().of_environment("UA_LOGIN_CLIENT_SECRET").filter(|_| own.is_some());
    let request = LoginRequest {
        address: address.clone(),
        headers,
        redirect_uri: format!("http://127.0.0.1:{port}{BACK}"),
        scopes: options.scopes.clone(),
        client: own.map(|id| OwnClient { id, secret }),
        client_metadata: options.client_metadata.clone(),
        private_network: options.private_network,
        assume_pkce: options.assume_pkce,
    };
    let files = || LoginFiles::of_user(host.settings(), host.redactor(), host.env());
    let logins = Logins::new(std::sync::Arc::new(files().for_server(&options.server)), host.env().clone());
    let pending = logins.begin(request).await.map_err(|error| failed(&name, &error))?;
    show(pending.address());
    let busy = Busy::with("waiting for your browser to come back").at_most(options.patience);
    let back = tokio::select! {
        back = come_back(listener, port, &pending, host.env()) => back?,
        Some(back) = brought => back,
        () = host.env().clock.sleep(options.patience) => {
            return Err(HostError::failed(format!("the browser did not return within {} s", options.patience.as_secs()))
                .hint("run the command again; --wait gives more time"));
        }
    };
    drop(busy);
    if !pending.is_answered_by(&back) {
        return Err(HostError::usage("that is not the address that this login returns to")
            .hint("copy the whole address from the browser, with `state=…`, and run the command again"));
    }
    let facts = pending.finish(&back).await.map_err(|error| failed(&name, &error))?;
    let in_keyring = files().entry(&address).map_err(HostError::storage)?.is_some_and(|kept| kept.in_keyring);
    Ok(LoggedIn { address, facts, in_keyring })
}

/// The host of an address, with its port, for a person to look at before a browser goes there.
pub fn host_of(address: &str) -> String {
    ua_mcp::host_of(address).unwrap_or_default()
}

/// Every login that is kept.
///
/// # Errors
/// They cannot be read.
pub fn all(host: &Host) -> Result<Vec<LoginEntry>, HostError> {
    let files = LoginFiles::of_user(host.settings(), host.redactor(), host.env());
    files.all().map_err(|why| HostError::storage(why).hint("correct or remove the file; then log in again"))
}

/// Forgets the logins at a server, by the name it had. Returns their addresses.
///
/// # Errors
/// They cannot be read or removed.
pub fn log_out(host: &Host, server: &str) -> Result<Vec<String>, HostError> {
    let files = LoginFiles::of_user(host.settings(), host.redactor(), host.env());
    let of_server = all(host)?.into_iter().filter(|kept| kept.server == server).map(|kept| kept.address);
    let addresses: Vec<String> = of_server.collect();
    if addresses.is_empty() {
        let known: Vec<String> = all(host)?.into_iter().map(|kept| kept.server).collect();
        let message = format!("you are not logged in to `{}`", plain(server));
        let known = known.iter().map(String::as_str);
        return Err(HostError::not_found(message, server, known, "`ua login --list` lists the logins"));
    }
    for address in &addresses {
        files.remove(address).map_err(HostError::storage)?;
    }
    Ok(addresses)
}

/// The address of a remote server, and the headers that go with every request to it.
fn remote(
    host: &Host,
    options: &LoginOptions,
) -> Result<(String, std::collections::BTreeMap<String, String>), HostError> {
    let name = plain(&options.server);
    if let Some(url) = &options.url {
        return Ok((url.clone(), std::collections::BTreeMap::new()));
    }
    let file = mcp_config_file(host.settings(), options.mcp_config.as_deref());
    if file.is_none() {
        return Err(HostError::usage("there is no MCP configuration here")
            .hint("go to the folder with .mcp.json, or name the file with --mcp-config"));
    }
    let mut config = mcp_config(file.as_ref())?;
    let names: Vec<String> = config.servers.iter().map(|(name, _)| plain(name)).collect();
    config.servers.retain(|(name, _)| *name == options.server);
    if config.servers.is_empty() {
        let hint = format!("the MCP configuration has: {}", names.join(", "));
        let known = names.iter().map(String::as_str);
        return Err(HostError::not_found(format!("no tool server is called `{name}`"), &name, known, &hint));
    }
    let server = mcp_servers(host, file.as_ref(), config)?.into_iter().next();
    match server.map(|server| server.reach) {
        Some(Reach::Http { client: Some(client), .. }) => Err(HostError::usage(format!(
            "`{name}` lets the client `{}` in without a person, so nobody logs in there",
            plain(&client.id)
        ))
        .hint("`ua doctor` tries it; to log in yourself, remove `client_credentials` from the MCP configuration")),
        Some(Reach::Http { url, headers, client: None }) => Ok((url, headers)),
        Some(Reach::Stdio { .. }) | None => {
            Err(HostError::usage(format!("`{name}` is a program, not a remote server"))
                .hint("what it needs goes into its `env`; only servers with a `url` have a login"))
        }
    }
}

fn failed(server: &str, error: &LoginError) -> HostError {
    let message = format!("cannot log in to `{server}`: {error}");
    match error {
        LoginError::Unreachable(_) => {
            HostError::failed(message).hint("try again; a server in a private network needs --private-network")
        }
        LoginError::Denied(_) => HostError::failed(message).hint(
            "run the command again and allow the access there; if it ends the same way, ask whoever runs the authorization server",
        ),
        LoginError::Ended(_) | LoginError::Refused(_) => HostError::failed(message).hint(
            "docs/guide/own-tool-servers.md says what is needed; a server that takes a token has it in `headers`",
        ),
        LoginError::Vault(_) => HostError::storage(message).hint("make the place writable, or set UA_LOGIN_STORE=file"),
    }
}

/// Waits for the request of a browser that comes back from this login. Whatever else comes is turned away.
async fn come_back(listener: TcpListener, port: u16, pending: &PendingLogin, env: &Env) -> Result<String, HostError> {
    let (asked, mut asks) = mpsc::unbounded_channel::<(String, TcpStream)>();
    let accepting = async {
        loop {
            let (mut stream, _) = listener.accept().await?;
            let (asked, env) = (asked.clone(), env.clone());
            // Browsers open connections ahead and say nothing there, so none of them holds up the others.
            tokio::spawn(async move {
                let target = tokio::select! {
                    target = target(&mut stream) => target,
                    () = env.clock.sleep(REQUEST_PATIENCE) => None,
                };
                if let Some(target) = target {
                    asked.send((target, stream)).ok();
                }
            });
        }
    };
    let answering = async {
        while let Some((target, mut stream)) = asks.recv().await {
            let back = format!("http://127.0.0.1:{port}{target}");
            let is_back = target.starts_with(BACK) && pending.is_answered_by(&back);
            answer(&mut stream, is_back).await;
            if is_back {
                return Some(back);
            }
        }
        None
    };
    let refused: Result<(), std::io::Error> = tokio::select! {
        Some(back) = answering => return Ok(back),
        refused = accepting => refused,
    };
    let why = refused.err().map_or_else(String::new, |error| error.to_string());
    Err(HostError::failed(format!("the browser cannot return to this machine: {why}")))
}

/// What a request asks for, if it is a GET.
async fn target(stream: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    let mut stream = stream.take(MAX_REQUEST);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut piece = [0; 1024];
        let read = stream.read(&mut piece).await.ok().filter(|read| *read > 0)?;
        request.extend_from_slice(&piece[..read]);
    }
    let first = request.split(|byte| *byte == b'\r').next()?;
    let mut words = std::str::from_utf8(first).ok()?.split(' ');
    (words.next()? == "GET").then_some(())?;
    words.next().filter(|target| target.starts_with('/')).map(str::to_owned)
}

async fn answer(stream: &mut TcpStream, is_back: bool) {
    let (status, words) = if is_back {
        ("200 OK", "You can close this page and go back to the terminal.")
    } else {
        ("404 Not Found", "Nothing is here.")
    };
    let body = format!("<!doctype html><meta charset=utf-8><title>ua</title><p>{words}</p>\n");
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n\r\n",
        body.len()
    );
    // Whoever asked may be gone already; the login does not depend on the page.
    let sent = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.shutdown().await
    };
    if let Err(error) = sent.await {
        tracing::debug!(%error, "the page after a login was not received");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a person reads below the reason is something that helps against it.
    #[test]
    fn each_end_of_a_login_has_a_hint_of_its_own() {
        let why = || "why".to_owned();
        for (error, hint) in [
            (LoginError::Unreachable(why()), "try again"),
            (LoginError::Denied(why()), "run the command again and allow the access"),
            (LoginError::Refused(why()), "own-tool-servers.md"),
            (LoginError::Ended(why()), "own-tool-servers.md"),
            (LoginError::Vault(why()), "make the place writable"),
        ] {
            let failed = failed("crm", &error);
            let said = failed.to_string();
            assert!(said.starts_with("cannot log in to `crm`: ") && said.ends_with("why"), "{said}");
            assert!(failed.hint_text().is_some_and(|told| told.contains(hint)), "{error:?}: {:?}", failed.hint_text());
        }
    }
}
