//! Another transport, whose answers come without secrets.
//!
//! Context Storage & Durability §4: answers are stored raw, before they are interpreted. So secrets are taken out here, at the seam:
//! behind it they would be in the database, in blobs, in files for people, and in the next request to a model. Invariant: nothing that
//! this transport returns contains a value that the redactor knows. Proved by: the test below, and the e2e test `secrets`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use ua_core::{Destination, Handle, Outcome, Redactor, Timestamp, ToolName, ToolSpec};
use ua_ledger::{Enquiry, MayAct, Permit};

use crate::transport::{Fence, ToolTransport, TransportError};

/// A transport behind a redactor.
pub struct Redacting {
    inner: Arc<dyn ToolTransport>,
    redactor: Redactor,
}

impl Redacting {
    /// Takes what `redactor` knows out of everything that `inner` answers.
    pub fn new(inner: Arc<dyn ToolTransport>, redactor: Redactor) -> Self {
        Self { inner, redactor }
    }

    /// A server that does not start quotes what it wrote to its standard error.
    fn error(&self, mut error: TransportError) -> TransportError {
        match &mut error {
            TransportError::NotStarted { why, .. }
            | TransportError::Away { why, .. }
            | TransportError::NotListed { why, .. }
            | TransportError::Changed { why, .. }
            | TransportError::NotIdentified { why, .. }
            | TransportError::NotReached { why, .. }
            | TransportError::Elsewhere { why, .. } => self.redactor.own(why),
            TransportError::UnknownServer { .. } => {}
        }
        error
    }

    /// What came of an attempt, without secrets. What continues under a name that may not be kept is followed by nobody, and its tool is told so.
    async fn clean(&self, permit: &Permit, outcome: Outcome) -> Outcome {
        if let Outcome::Continues(handle) = &outcome
            && self.redactor.in_names_of(handle).is_some()
        {
            self.inner.give_up(permit, handle).await;
        }
        self.redactor.outcome(outcome)
    }
}

#[async_trait]
impl ToolTransport for Redacting {
    async fn list(&self) -> Result<Vec<ToolSpec>, TransportError> {
        // What a server says about itself goes to the model and into the database, too.
        let specs = self.inner.list().await.map_err(|error| self.error(error))?;
        // A name cannot be said otherwise, so a tool that has a secret in its own is not offered.
        let (withheld, specs): (Vec<_>, Vec<_>) =
            specs.into_iter().partition(|spec| self.redactor.found_in(&spec.name.raw).is_some());
        for spec in withheld {
            tracing::warn!(server = %spec.name.server, "a tool whose name holds a secret is left out");
        }
        let clean = specs.into_iter().map(|mut spec| {
            self.redactor.own(&mut spec.description);
            self.redactor.json(&mut spec.input_schema);
            spec
        });
        Ok(clean.collect())
    }

    fn working_folder(&self, server: &str) -> Option<PathBuf> {
        self.inner.working_folder(server)
    }

    async fn ready(&self, server: &str) -> Result<String, TransportError> {
        self.inner.ready(server).await.map_err(|error| self.error(error))
    }

    fn running(&self, server: &str) -> Option<String> {
        self.inner.running(server)
    }

    fn is_silent(&self, server: &str) -> bool {
        self.inner.is_silent(server)
    }

    fn destination(&self, tool: &ToolName, arguments: &Value) -> Result<Option<Destination>, TransportError> {
        self.inner.destination(tool, arguments).map_err(|error| self.error(error))
    }

    async fn invoke(&self, permit: &Permit) -> Outcome {
        let outcome = self.inner.invoke(permit).await;
        self.clean(permit, outcome).await
    }

    async fn go_on(&self, permit: &Permit, handle: &Handle) -> Result<Outcome, TransportError> {
        let outcome = self.inner.go_on(permit, handle).await.map_err(|error| self.error(error))?;
        Ok(self.clean(permit, outcome).await)
    }

    async fn give_up(&self, permit: &Permit, handle: &Handle) {
        self.inner.give_up(permit, handle).await;
    }

    async fn ask(&self, enquiry: &Enquiry) -> Outcome {
        self.redactor.outcome(self.inner.ask(enquiry).await)
    }

    async fn fence_earlier(&self) -> Fence {
        self.inner.fence_earlier().await
    }

    fn horizon(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Duration {
        self.inner.horizon(server, generation, lost_at)
    }

    fn may_act(&self, server: &str, generation: &str, ended_at: Option<Timestamp>) -> MayAct {
        self.inner.may_act(server, generation, ended_at)
    }

    fn generation_unknown(&self, server: &str) -> Option<String> {
        self.inner.generation_unknown(server)
    }

    async fn renew(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Fence {
        self.inner.renew(server, generation, lost_at).await
    }

    async fn fence(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Fence {
        self.inner.fence(server, generation, lost_at).await
    }
}
