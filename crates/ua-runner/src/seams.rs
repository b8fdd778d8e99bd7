//! What stands around the ports of a run: nothing, or a harness that dies at a crossing or breaks a rule on purpose.

use std::sync::Arc;

use ua_core::Redactor;
use ua_dispatch::{SubAgents, ToolTransport};
use ua_llm::LlmProvider;
use ua_store::{RunLease, Store};

use crate::tasks::ChildDriver;

/// Wraps the ports of a run. What is not overridden is passed through.
///
/// A [`Worker`](crate::Worker) wraps the transport and the model as the last thing before they are used, outside of redaction, so that a
/// crossing is what the run itself crosses.
pub trait Seams: Send + Sync {
    /// The storage of runs. Whoever takes a run wraps it, before it is taken.
    fn store(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        store
    }
    /// The way to the tool servers.
    fn transport(&self, transport: Arc<dyn ToolTransport>) -> Arc<dyn ToolTransport> {
        transport
    }
    /// What takes secrets out of everything that is stored or sent. Whoever makes it wraps it.
    fn redactor(&self, redactor: Redactor) -> Redactor {
        redactor
    }
    /// The way to the model.
    fn llm(&self, llm: Arc<dyn LlmProvider>) -> Arc<dyn LlmProvider> {
        llm
    }
    /// Who carries out `task` calls of the run that `lease` is of, by having `driver` drive child runs.
    fn sub_agents(
        &self,
        agents: Arc<dyn SubAgents>,
        _store: &Arc<dyn Store>,
        _lease: &RunLease,
        _driver: &Arc<dyn ChildDriver>,
    ) -> Arc<dyn SubAgents> {
        agents
    }
}

/// The ports as they are.
#[derive(Debug, Clone, Copy, Default)]
pub struct Open;

impl Seams for Open {}
