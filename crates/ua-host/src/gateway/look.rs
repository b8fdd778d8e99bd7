//! How the gateway stands, for `ua doctor`: its file, its broker, its socket, and the configurations of clients.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::fault::{Fault, last_fault, trouble, unmatched};
use super::{Client, Front, SOCKET, What, asked, configuration, install};
use crate::error::HostError;
use crate::host::Host;

/// What was found.
#[derive(Debug, Default)]
pub struct Looked {
    /// The gateway's folder; `None` when nobody uses a gateway.
    pub root: Option<PathBuf>,
    /// What would keep a broker from starting now: its file, what that refers to, its database, its disk.
    pub trouble: Option<HostError>,
    /// What the last broker said before it ended by an error; nothing while one serves.
    pub last_fault: Option<Fault>,
    /// Names in its file that stand for nobody so far, each in a sentence.
    pub unmatched: Vec<String>,
    /// The version of the broker that runs, if one does and says it.
    pub broker: Option<String>,
    /// Why the broker that holds the lock cannot be asked, if one does and says nothing, or nothing that is understood.
    pub silent: Option<HostError>,
    /// Why clients over HTTP do not reach that, where another program has the address.
    pub http_taken: Option<String>,
    /// Files that others may use, though they are the owner's alone.
    pub open_to_others: Vec<PathBuf>,
    /// Tool servers of clients that go through it, and those that do not, each with the configuration's file.
    pub wrapped: Vec<(PathBuf, String)>,
    /// The same for those that go through the gateway of another folder.
    pub elsewhere: Vec<(PathBuf, String)>,
    /// The same for those that could.
    pub unwrapped: Vec<(PathBuf, String)>,
    /// The same for those that may want their client to log in.
    pub may_log_in: Vec<(PathBuf, String)>,
    /// The same for those of which something cannot be read.
    pub not_read: Vec<(PathBuf, String)>,
}

/// Looks.
///
/// # Errors
/// Nobody says where the user's state is.
pub async fn look(host: &Host, named: Option<&Path>) -> Result<Looked, HostError> {
    let settings = host.settings();
    let root = super::root(settings, named)?;
    let mut looked = Looked::default();
    let shown = |root: PathBuf| root.display().to_string();
    let front = Front {
        program: settings.program()?.display().to_string(),
        root: named.map(|_| shown(root.clone())),
        own_root: super::root(settings, None).ok().map(shown),
    };
    for client in Client::ALL {
        let Ok(file) = configuration(settings, client) else { continue };
        // Without tool servers there is nothing to be said.
        let Ok(edited) = install(&root, &file, &front, &[], true) else { continue };
        for change in edited.changes {
            let of = match change.what {
                What::Already => &mut looked.wrapped,
                What::Elsewhere => &mut looked.elsewhere,
                What::Wrapped => &mut looked.unwrapped,
                What::MayLogIn => &mut looked.may_log_in,
                What::NotRead | What::Shared | What::Twice => &mut looked.not_read,
                What::Unwrapped | What::Unreachable | What::NotWrapped | What::All | What::NotRestored => continue,
            };
            of.push((file.clone(), change.server));
        }
    }
    if !root.exists() && looked.wrapped.is_empty() {
        return Ok(Looked::default());
    }
    looked.trouble = trouble(host, &root).await;
    looked.unmatched = unmatched(host, &root).await.unwrap_or_default();
    let socket = root.join(SOCKET);
    match asked(&socket, false).await {
        Ok(Some(status)) => {
            looked.broker = Some(status["version"].as_str().unwrap_or("an earlier version").to_owned());
            looked.http_taken = status["http_taken"].as_str().map(str::to_owned);
        }
        Ok(None) => {}
        Err(error) => looked.silent = Some(error),
    }
    // One that serves has said all that was wrong before it.
    looked.last_fault = last_fault(&root).filter(|_| looked.broker.is_none());
    let others = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0);
    looked.open_to_others = [socket, root.join(super::config::TOKENS)].into_iter().filter(others).collect();
    looked.root = Some(root);
    Ok(looked)
}
