//! Tool servers that are started to see what a job would be offered, and the run that takes them over.
//!
//! A job whose words about tools name none is refused before anything is stored, which takes a list of tools, and that takes servers that run. They
//! are started in the name of the run that is to be stored, with their locks where its own are: whoever finds them later, whatever became of this
//! process, knows whose they are and ends them as any that the run left behind. Nothing is called before the run has taken them over. What it does
//! not take over is ended by whoever lists.
//!
//! Proved by: `ua_mcp::tests::servers` (what is taken over), the end-to-end tests `tool_server` (each is started once).

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ua_core::{RunId, RunSpec, ShowPath as _, Timestamp, ToolSpec};
use ua_dispatch::TransportError;
use ua_files::{Folder, OwnedFolder};
use ua_mcp::{LockDir, McpTransport, ServerSpec};
use ua_runner::Watcher;

use super::{Around, builtin_server, list, names, told_to, transport_with};
use crate::error::HostError;
use crate::host::Host;
use crate::launch::Launch;
use crate::people::People;

/// How the folder is called in which servers log until their run has one.
const LOGS: &str = "listed-";
/// So many steps are made to remove such folders of processes that are gone.
const STEPS: usize = 200;

/// Servers that run because their tools were listed.
pub(crate) struct Listed {
    transport: Arc<McpTransport>,
    /// Who follows the run, once there is one.
    watcher: Arc<OnceLock<Watcher>>,
    /// Where our own server would work, and where locks are that are in the name of no run.
    _folder: tempfile::TempDir,
    /// Where the others log.
    _logs: Option<OwnedFolder>,
}

impl fmt::Debug for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listed").field("transport", &self.transport).finish_non_exhaustive()
    }
}

impl Listed {
    /// Starts what a job needs and lists its tools, or says why they cannot be listed now. `run` is the name of the run that is to take over what was
    /// started, if one is.
    ///
    /// # Errors
    /// A folder cannot be made, or the settings of a server cannot be used.
    pub(crate) async fn of(
        host: &Host,
        people: &dyn People,
        launch: &Launch,
        spec: &RunSpec,
        run: Option<&RunId>,
    ) -> Result<(Self, Result<Vec<ToolSpec>, TransportError>), HostError> {
        let folder = crate::paths::temporary_folder()?;
        let mut specs: Vec<ServerSpec> = Vec::new();
        if spec.tools.builtin {
            let workspace = folder.path().join("workspace");
            std::fs::create_dir(&workspace)
                .map_err(|e| HostError::storage(format!("cannot create {}: {e}", workspace.shown())))?;
            specs.push(builtin_server(host, folder.path(), &workspace, launch, spec.tools.run_command)?);
        }
        specs.extend(launch.configured_servers(host, spec)?);
        let names = names(&specs);
        let place = host.home().locks();
        // Without a place for logs nothing can be taken over, and the run starts its servers itself.
        let taken_over = run.and_then(|run| Some((run.clone(), logs_in(&place, host.env().now())?)));
        let watcher: Arc<OnceLock<Watcher>> = Arc::default();
        let follower = watcher.clone();
        let progress = told_to(Arc::new(move |event| {
            if let Some(watcher) = follower.get() {
                watcher(event);
            }
        }));
        let (locks, id, logs) = match taken_over {
            Some((run, logs)) => (place, run, Some(logs)),
            None => (folder.path().join("locks"), RunId::new(host.env()), None),
        };
        // What a server is foretold to say needs no start of it.
        let around = Around {
            stderr_log: logs.as_ref().map(|logs| logs.path().join("logs")),
            progress: Some(progress),
            foreteller: host.foreteller().cloned(),
        };
        let transport = transport_with(host, specs, &locks, id, around)?;
        let tools = list(host, &transport, &names, |sentence| people.remark(sentence)).await;
        Ok((Self { transport, watcher, _folder: folder, _logs: logs }, tools))
    }

    /// Has the run take over what it needs of it, and ends the rest.
    async fn hand_over(self, to: &McpTransport, watcher: Watcher) {
        let _is_first = self.watcher.set(watcher).is_ok();
        to.take_over(&self.transport).await;
        self.end().await;
    }

    /// What else could not be listed, beside what the error says.
    pub(crate) fn also_failed(&self) -> Vec<TransportError> {
        self.transport.also_failed()
    }

    /// Ends what runs.
    pub(crate) async fn end(self) {
        self.transport.shutdown().await;
    }
}

/// A folder for logs beside the locks, which is on the disk of the workspaces as a rule; `None` where none can be made.
fn logs_in(place: &Path, now: Timestamp) -> Option<OwnedFolder> {
    Folder::make_itself(place).ok()?;
    LockDir::clear_never_driven(place, now);
    if let Err(error) = ua_files::clear_abandoned(place, LOGS, STEPS) {
        tracing::debug!(%error, "what a process left behind that listed tools is still there");
    }
    OwnedFolder::make(place, LOGS).ok()
}

/// What waits to be taken over by the run at the top of a tree, once. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Handover(Arc<Mutex<Option<Listed>>>);

impl Handover {
    /// Something that a run may take over.
    pub(crate) fn of(listed: Option<Listed>) -> Self {
        Self(Arc::new(Mutex::new(listed)))
    }

    fn take(&self) -> Option<Listed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Has the run take it over, if nobody has yet.
    pub(crate) async fn to(&self, transport: &McpTransport, watcher: &Watcher) {
        if let Some(listed) = self.take() {
            listed.hand_over(transport, watcher.clone()).await;
        }
    }

    /// Ends what nobody took over.
    pub(crate) async fn end(&self) {
        if let Some(listed) = self.take() {
            listed.end().await;
        }
    }
}
