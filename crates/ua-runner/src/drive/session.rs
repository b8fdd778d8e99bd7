//! The provider's conversation: what it knows already, what its replies are called, what to do when it has forgotten.
//!
//! Durable runner, current state §9 and its known limitation 1. A reply's name is stored when its stream begins, as *tentative*;
//! recording the reply makes it the turn's; committing the turn makes it one to continue from. So a kill before, during or after
//! the first event leaves the conversation at the last committed turn, and what the lost request began there is a branch that
//! nobody follows. A fork continues from the reply of its last shared turn, which never changes.
//! Invariants: only a committed turn's reply is continued from; only if its request was the beginning of this one
//! ([`KeptReply::known_of`]); a reply that is forgotten costs one refused request, and then the whole history is sent.
//! Proved by: `crash_anywhere::sessions`, the e2e tests `sessions`.

use std::pin::pin;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tracing::Instrument as _;
use ua_core::{ModelTurn, Sha256};
use ua_llm::{KeptReply, KnownPrefix, LlmError, ModelRequest, StreamObserver};
use ua_store::{RunRecords, TurnRecord};

use super::{Driver, Reserved};
use crate::error::RunError;
use crate::spans;
use crate::watch::{RunEvent, Watcher};

/// Where the provider's conversation stands.
#[derive(Debug, Clone, Default)]
pub(super) struct Session {
    /// The reply of the last committed turn.
    committed: Option<KeptReply>,
    /// The reply of the open turn, to be continued from once it is committed.
    open: Option<KeptReply>,
}

impl Session {
    /// The session of a run as it is stored.
    pub(super) fn of(records: &RunRecords) -> Self {
        let kept = |turn: &TurnRecord| {
            KeptReply::of(turn.reply.response_id.as_deref(), turn.reply.stop_reason, turn.request_sha256)
        };
        let turns = || records.lineage.turns.iter().chain(&records.turns);
        let last = turns().find(|turn| turn.committed_at.is_some() && turn.turn == records.run.turn_index);
        Self { committed: last.and_then(kept), open: records.open_turn().and_then(kept) }
    }

    /// A reply was recorded.
    pub(super) fn recorded(&mut self, reply: &ModelTurn, request_sha256: Sha256) {
        self.open = KeptReply::of(reply.response_id.as_deref(), reply.stop_reason, request_sha256);
    }

    /// Its turn was committed.
    pub(super) fn committed(&mut self) {
        self.committed = self.open.take();
    }
}

impl Driver<'_> {
    /// What the provider knows of `request`, as far as it keeps anything.
    pub(super) fn known_of(&self, request: &ModelRequest) -> Option<KnownPrefix> {
        let kept = self.session.committed.as_ref().filter(|_| self.ports.llm.keeps_replies())?;
        kept.known_of(request)
    }

    /// Makes one request for a reply; what the reply is called is stored as soon as it begins. `None` when a signal asked to stop.
    pub(super) async fn complete(
        &self,
        reserved: &Reserved,
        span: tracing::Span,
    ) -> Result<Option<Result<ModelTurn, LlmError>>, RunError> {
        let Reserved { request, id, known, .. } = reserved;
        let llm = &self.ports.llm;
        let (named, mut names) = unbounded_channel();
        let observer = Observer { watcher: self.ports.watcher.clone(), named: llm.keeps_replies().then_some(named) };
        let answer = async {
            match known {
                Some(known) => llm.complete_from(known, request, &observer).await,
                None => llm.complete(request, &observer).await,
            }
        };
        let mut answer = pin!(answer.instrument(span));
        let ended = loop {
            tokio::select! {
                biased;
                Some(response) = names.recv() => self.note_response(*id, &response).await?,
                answer = &mut answer => break Some(answer),
                () = self.ports.stop.stopping() => break None,
            }
        };
        // A reply that came all at once: its name is stored before the reply is.
        self.note_responses(*id, &mut names).await?;
        Ok(ended)
    }

    async fn note_responses(&self, id: u64, names: &mut UnboundedReceiver<String>) -> Result<(), RunError> {
        while let Ok(response) = names.try_recv() {
            self.note_response(id, &response).await?;
        }
        Ok(())
    }

    async fn note_response(&self, id: u64, response: &str) -> Result<(), RunError> {
        let noted = self.ports.store.note_response(&self.ports.lease, id, response).await;
        noted.map_err(RunError::at("note what the model's reply is called"))
    }

    /// The provider has forgotten the conversation: from now on it is told everything.
    pub(super) fn forget_session(&mut self, turn: u32, response_id: &str, why: &str) {
        tracing::warn!(
            turn,
            response_id,
            why,
            "the provider has forgotten the conversation; the whole history is sent"
        );
        spans::session_forgotten(turn, response_id);
        (self.ports.watcher)(RunEvent::SessionForgotten { turn, response_id: response_id.to_owned() });
        self.session = Session::default();
    }
}

/// Passes on what arrives of a reply.
struct Observer {
    watcher: Watcher,
    /// Takes the reply's name; `None` when nobody will ever ask for it.
    named: Option<UnboundedSender<String>>,
}

impl StreamObserver for Observer {
    fn session(&self, response_id: &str) {
        if let Some(named) = &self.named
            && named.send(response_id.to_owned()).is_err()
        {
            tracing::debug!("a reply was named after nobody waited for it any more");
        }
    }

    fn text(&self, delta: &str) {
        (self.watcher)(RunEvent::Text { delta: delta.to_owned() });
    }
}
