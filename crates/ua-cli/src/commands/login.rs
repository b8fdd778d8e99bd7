//! `ua login` and `ua logout`: a person logs in at a tool server with a browser of theirs.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use ua_host::Host;
use ua_host::login::{self, LoginOptions};
use ua_host::logins::LoginEntry;

use crate::args::not_empty;
use crate::error::{HostError, OK};
use crate::output::{did, plain, print, print_json, print_table, say, tell};
use crate::people::is_attended;
use crate::prompt::{Left, ask_line, call_off};
use crate::view::{LoggedOut, LoginRow};

/// `ua login`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua login linear
      log in to `linear` of .mcp.json with your browser
  ua login linear --no-browser
      print the address only; open it where you like
  ua login crm --scope \"read write\"
      request other scopes than the server suggests
  ua login crm --client-id ua-team
      for servers without dynamic client registration
  ua login crm --url https://crm.example.com/mcp
      by address: a server behind the gateway
  ua login --list
      list where you are logged in, and until when
  ua logout linear
      forget it

The server names its authorization server. ua prints the address of the login page, opens it, and waits for your browser to return to \
127.0.0.1. A browser on another machine cannot return: paste the address it was sent to. The login is kept in the desktop's keyring \
if there is one, otherwise in a file that only you can read (UA_LOGIN_STORE). It is renewed automatically, is sent only to the address it was \
made for, and is never recorded. A run that lacks a login tells you to run `ua login SERVER`. See \
docs/guide/own-tool-servers.md.")]
pub struct LoginArgs {
    /// The server's name in the MCP configuration
    #[arg(value_name = "SERVER", required_unless_present = "list")]
    pub server: Option<String>,
    /// List where you are logged in
    #[arg(long, conflicts_with_all = ["server", "scope", "client_id", "client_metadata", "port"])]
    pub list: bool,
    /// The server's address, if no configuration names it: the one after `--url` in an entry of the gateway
    #[arg(long, value_parser = not_empty(), value_name = "URL", conflicts_with = "mcp_config")]
    pub url: Option<String>,
    /// The configuration that names the server [default: .mcp.json of the current folder]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub mcp_config: Option<PathBuf>,
    /// Scopes to request in addition to those it has; separated by spaces, or the flag repeated
    #[arg(long, value_parser = not_empty(), value_name = "SCOPES")]
    pub scope: Vec<String>,
    /// A client id that the authorization server gave you; its secret, if it has one, in UA_LOGIN_CLIENT_SECRET
    #[arg(long, value_parser = not_empty(), value_name = "ID")]
    pub client_id: Option<String>,
    /// The address of a client metadata document that names this machine's callback, for servers that support it
    #[arg(long, value_parser = not_empty(), value_name = "URL", conflicts_with = "client_id")]
    pub client_metadata: Option<String>,
    /// The port of the callback, if the authorization server knows only one [default: any free one]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub port: u16,
    /// Allow addresses in a private network
    #[arg(long)]
    pub private_network: bool,
    /// Log in although the authorization server does not say that it supports PKCE, if you know that it does
    #[arg(long)]
    pub assume_pkce: bool,
    /// Print the address, and open no browser
    #[arg(long)]
    pub no_browser: bool,
    /// How many seconds to wait for the browser
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub wait: u64,
}

/// `ua logout`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua logout linear           forget the login to the server `linear`

The login is removed from this machine. The server is not told: its grant expires by itself, or you revoke it on the server's own pages.")]
pub struct LogoutArgs {
    /// The server's name, as `ua login --list` shows it
    #[arg(value_name = "SERVER")]
    pub server: String,
}

pub(crate) async fn run(host: &Host, args: LoginArgs) -> Result<u8, HostError> {
    let Some(server) = args.server.filter(|_| !args.list) else { return list(host) };
    let options = LoginOptions {
        server: server.clone(),
        url: args.url,
        mcp_config: args.mcp_config,
        scopes: args.scope.iter().flat_map(|scopes| scopes.split_whitespace().map(str::to_owned)).collect(),
        client_id: args.client_id,
        client_metadata: args.client_metadata,
        port: args.port,
        private_network: args.private_network,
        assume_pkce: args.assume_pkce,
        patience: Duration::from_secs(args.wait),
    };
    let browses = !args.no_browser && is_attended();
    let show = |address: &str| {
        let host_name = plain(&login::host_of(address));
        tell(format!(
            "Open this page of {host_name} in a browser to log in to `{}`:\n\n  {}\n",
            plain(&server),
            plain(address)
        ));
        if browses && let Err(error) = open(host, address) {
            tracing::debug!(%error, "no browser was opened");
        }
    };
    let (leave, left) = tokio::sync::oneshot::channel();
    let logged_in = tokio::select! {
        logged_in = login::log_in(host, &options, &show, brought(leave)) => logged_in,
        Ok(interrupted) = left => Err(interrupted),
    };
    call_off(); // nobody needs to paste anything any more
    let logged_in = logged_in?;
    did(format!("the login to `{server}` is kept: `ua login --list` shows it"));
    if crate::terminal::is_json() {
        list(host)?;
        return Ok(OK);
    }
    let place = if logged_in.in_keyring { "in the keyring" } else { "in a file that only you can read" };
    let lasts = match (logged_in.facts.renewable, logged_in.facts.until) {
        (true, _) => "renewed automatically".to_owned(),
        (false, Some(until)) => format!("until {until}; it cannot be renewed"),
        (false, None) => "until the server ends it".to_owned(),
    };
    print(format!("logged in to `{}` ({}), kept {place}, {lasts}\n", plain(&server), plain(&logged_in.address)))?;
    Ok(OK)
}

pub(crate) fn end(host: &Host, args: &LogoutArgs) -> Result<u8, HostError> {
    let addresses = login::log_out(host, &args.server)?;
    let words = format!("the login to `{}` is forgotten ({})\n", plain(&args.server), plain(&addresses.join(", ")));
    say(&LoggedOut { server: args.server.clone(), addresses }, words)?;
    Ok(OK)
}

/// The address that a person came back to with a browser elsewhere, if somebody is at this terminal. One who leaves the prompt ends the login.
async fn brought(leave: tokio::sync::oneshot::Sender<HostError>) -> Option<String> {
    if is_attended() {
        let ask = "Waiting for your browser. If it is on another machine, paste the address it ends at: ";
        match ask_line(ask, &Left::undone("the login was not completed")).await {
            Ok(Some(address)) if !address.is_empty() => return Some(address),
            Ok(_) => {}
            // The login may have ended just now, and then nobody waits for this.
            Err(interrupted) => drop(leave.send(interrupted)),
        }
    }
    // Nobody pastes anything here; the browser may still come back.
    std::future::pending().await
}

/// Opens the person's browser. It outlives this command and writes nothing here.
fn open(host: &Host, address: &str) -> std::io::Result<()> {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let has_screen = cfg!(target_os = "macos")
        || ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| host.settings().of_environment(name).is_some());
    if has_screen {
        Command::new(program)
            .arg(address)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(drop)?;
    }
    Ok(())
}

fn list(host: &Host) -> Result<u8, HostError> {
    let rows: Vec<LoginRow> = login::all(host)?.into_iter().map(row).collect();
    if crate::terminal::is_json() {
        print_json(&rows)?;
        return Ok(OK);
    }
    if rows.is_empty() {
        crate::output::tell("no logins yet; `ua login SERVER` makes one");
        return Ok(OK);
    }
    let now = host.env().now();
    let cells = rows.iter().map(|row| {
        let until = row.until.map_or_else(|| "-".to_owned(), |until| crate::moment::due(until, now));
        let until = if row.renewable { "renewed automatically".to_owned() } else { until };
        vec![row.server.clone(), row.address.clone(), row.scopes.join(" "), until, row.kept_in.to_owned()]
    });
    print_table(&crate::listings::LOGINS, cells.collect())?;
    Ok(OK)
}

fn row(kept: LoginEntry) -> LoginRow {
    LoginRow {
        server: kept.server,
        address: kept.address,
        issuer: kept.facts.issuer,
        client_id: kept.facts.client_id,
        scopes: kept.facts.scopes,
        until: kept.facts.until,
        renewable: kept.facts.renewable,
        kept_in: if kept.in_keyring { "keyring" } else { "file" },
        at: kept.at,
    }
}
