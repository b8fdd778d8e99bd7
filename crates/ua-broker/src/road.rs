//! The road from one session to one connection's tool server.

use std::path::Path;
use std::sync::Arc;
use ua_core::chain;

use serde_json::{Map, Value};
use ua_dispatch::{DispatchError, Dispatcher, ToolTransport};
use ua_ledger::{CallsOf, PeopleRules};
use ua_mcp::LockDir;
use ua_runner::{Desk, DeskPorts, NoWaiting, Workspace};

use crate::broker::{Broken, Broker};
use crate::doubts::LeftBehind;
use crate::session::InUse;
use crate::upstream::{AsListed, Upstream};

/// How often a read whose answer is lost is made again: its client waits, hears nothing meanwhile, and can ask again.
const READ_RETRIES: u32 = 2;

/// A dispatcher with the tool server at its end.
pub(crate) struct Road {
    pub(crate) dispatcher: Dispatcher,
    pub(crate) upstream: Arc<Upstream>,
    /// The same as far as it goes: while its tools are those by which calls are planned here.
    pub(crate) listed: Arc<AsListed>,
}

impl Broker {
    /// Opens the road: the tools are listed and classified.
    pub(crate) async fn road(&self, session: &InUse, upstream: &Arc<Upstream>) -> Result<Road, Broken> {
        let listed = Arc::new(AsListed::new(upstream.clone()));
        let dispatcher = self.dispatcher(session, listed.clone()).await?;
        Ok(Road { dispatcher, upstream: upstream.clone(), listed })
    }

    /// The same without a tool server: what can be decided about calls of a session while no client of it is there.
    pub(crate) async fn road_of_nobody(&self, session: &InUse) -> Result<Dispatcher, Broken> {
        let locks = LockDir::new(&self.config.locks, session.run.run_id.clone(), self.env.clone());
        let locks = locks.map_err(|error| Broken::new(error.to_string()))?;
        let (folder, horizon, env) = (self.config.locks.clone(), self.horizon.clone(), self.env.clone());
        self.dispatcher(session, Arc::new(LeftBehind { folder, locks, horizon, env })).await
    }

    async fn dispatcher(&self, session: &InUse, tools: Arc<dyn ToolTransport>) -> Result<Dispatcher, Broken> {
        let folder = Path::new(&session.run.workspace_dir);
        let workspace = Workspace::open(folder).or_else(|_| {
            // The client's folder has gone; files that a call names are not found then, which is the truth.
            Workspace::create(&self.config.logs.join("workspaces").join(session.run.run_id.as_str()))
        });
        let workspace = workspace.map_err(|error| Broken::new(chain(&error)))?;
        let desk = Desk::new(DeskPorts {
            store: self.store.clone(),
            lease: session.lease.clone(),
            run: session.run.clone(),
            past: session.past.clone(),
            workspace,
            tools,
            classifier: self.classifier.clone(),
            env: self.env.clone(),
            trace: session.trace.clone(),
            stop: self.stop.clone(),
        })
        .with_redactor(self.redactor.clone())
        .with_calls_of(CallsOf::Session)
        // Who an e-mail may go to, and what the model has read, is the client's to know.
        .with_people(PeopleRules::default())
        // A client waits for what came back: it is told, and stored behind that.
        .with_patience(Arc::new(NoWaiting::new(self.env.clone())))
        .with_read_retries(READ_RETRIES)
        // A client is told that tools changed, and nobody is asked to accept that for the calls of before.
        .held_to_definitions();
        desk.road(&session.outbox).await.map_err(|error| Broken::new(chain(&error)))
    }
}

/// The dispatcher's errors say what the gateway could not do.
impl From<DispatchError> for Broken {
    fn from(error: DispatchError) -> Self {
        Self::new(chain(&error))
    }
}

/// What a client said about a call, for the tool server: all but the key, which is not the client's to choose.
pub(crate) fn passed_on(meta: &Value) -> Map<String, Value> {
    let mut meta = meta.as_object().cloned().unwrap_or_default();
    meta.retain(|name, _| !name.starts_with("dev.universal-agent/"));
    meta
}
