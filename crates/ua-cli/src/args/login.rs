//! `ua login` and `ua logout`.

use std::path::PathBuf;

use clap::Args;

/// `ua login`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua login linear                        log in at the server `linear` of .mcp.json, with your browser
  ua login linear --no-browser           print the address only; open it where you like
  ua login crm --scope \"read write\"      ask for more than the server asks for by itself
  ua login crm --client-id ua-team       for servers where nobody can register: a client that you have from them
  ua login crm --url https://crm.example.com/mcp   the same by its address, for a server behind the gateway
  ua login --list                        where you are logged in, and until when
  ua logout linear                       forget it

The server says itself where its logins are made. ua prints that address, opens it, and waits for your browser to come back to
127.0.0.1. A browser on another machine cannot: paste the address it was sent to. The login is kept in the desktop's keyring where
there is one, else in a file that only you can read (UA_LOGIN_STORE); it is renewed by itself, goes to the address that it was made
for and nowhere else, and never into records. A run that is refused for want of a login says `ua login SERVER`.
docs/guide/own-tool-servers.md tells more.")]
pub struct LoginArgs {
    /// The server's name in the MCP configuration
    #[arg(value_name = "SERVER", required_unless_present = "list")]
    pub server: Option<String>,
    /// List where you are logged in
    #[arg(long, conflicts_with_all = ["server", "scope", "client_id", "client_metadata", "port"])]
    pub list: bool,
    /// The server's address, where no configuration names it: the one that stands behind `--url` of an entry of the gateway
    #[arg(long, value_name = "URL", conflicts_with = "mcp_config")]
    pub url: Option<String>,
    /// The configuration that names the server [default: .mcp.json of the current folder]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub mcp_config: Option<PathBuf>,
    /// What the login is to allow, besides what it allows now; words separated by spaces, or the flag again
    #[arg(long, value_name = "SCOPES")]
    pub scope: Vec<String>,
    /// A client that you have from the authorization server; its secret, if it has one, in UA_LOGIN_CLIENT_SECRET
    #[arg(long, value_name = "ID")]
    pub client_id: Option<String>,
    /// The address of a client metadata document that names this machine's callback, for servers that read such
    #[arg(long, value_name = "URL", conflicts_with = "client_id")]
    pub client_metadata: Option<String>,
    /// The port to come back to, where the authorization server knows only one [default: any free one]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub port: u16,
    /// The servers are in a private network: let addresses there be asked
    #[arg(long)]
    pub private_network: bool,
    /// Print the address, and open no browser
    #[arg(long)]
    pub no_browser: bool,
    /// How many seconds you may take
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub wait: u64,
}

/// `ua logout`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ua logout linear           forget the login at the server `linear`

The login is removed from this machine. The server is not told: what it keeps of it ends by itself, or on its pages.")]
pub struct LogoutArgs {
    /// The server's name, as `ua login --list` shows it
    #[arg(value_name = "SERVER")]
    pub server: String,
}
