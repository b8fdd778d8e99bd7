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
use std::sync::{Mutex, PoisonError};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tracing::Instrument as _;
use ua_core::{ModelTurn, Sha256, Usage};
use ua_llm::{Ending, KeptReply, KnownPrefix, LlmError, ModelRequest, StreamObserver};
use ua_store::{RequestId, RunRecords, RunStore, StoreError, TurnRecord};

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
    /// What the provider knows of `request`, which was measured last, as far as it keeps anything. It has whole what is shown in part.
    pub(super) fn known_of(&self, request: &ModelRequest) -> Option<KnownPrefix> {
        let kept = self.session.committed.as_ref().filter(|_| self.ports.llm.keeps_replies() && !self.is_shortened)?;
        kept.known_of(request, &self.measurer)
    }

    /// Makes one request for a reply; what the reply is called, and what it cost so far, is stored as soon as it begins. No answer when a
    /// signal asked to stop.
    pub(super) async fn complete(&self, reserved: &Reserved, span: tracing::Span) -> Result<Asked, RunError> {
        let Reserved { request, id, known, .. } = reserved;
        let llm = &self.ports.llm;
        let (news, mut told) = unbounded_channel();
        let observer = Observer {
            watcher: self.ports.watcher.clone(),
            keeps_names: llm.keeps_replies(),
            news,
            heard: Mutex::default(),
            ending: Mutex::default(),
        };
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
                Some(news) = told.recv() => self.note(*id, &news).await,
                answer = &mut answer => break Some(answer),
                () = self.ports.stop.stopping() => break None,
            }?;
        };
        // A reply that came all at once: its name is stored before the reply is. What it cost so far is stored with its end.
        while let Ok(news) = told.try_recv() {
            if let News::Named(_) = news {
                self.note(*id, &news).await?;
            }
        }
        let heard = observer.heard.lock().unwrap_or_else(PoisonError::into_inner).so_far;
        let ending = std::mem::take(&mut *observer.ending.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Asked { answer: ended, heard, ending })
    }

    async fn note(&self, id: RequestId, news: &News) -> Result<(), RunError> {
        let (store, lease) = (&self.ports.store, &self.ports.lease);
        let noted = match news {
            News::Named(response) => store.note_response(lease, id, response).await,
            News::Heard(usage) => match store.note_usage(lease, id, *usage).await {
                // It is for whoever comes after a kill. The reply is worth more than that.
                Err(StoreError::Unavailable { why, .. }) => {
                    tracing::warn!(why, "what a reply cost so far could not be noted");
                    Ok(())
                }
                noted => noted,
            },
        };
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

/// What came of one request.
pub(super) struct Asked {
    /// The reply, or why there is none; `None` when a signal asked to stop.
    pub(super) answer: Option<Result<ModelTurn, LlmError>>,
    /// What had been heard of the reply's cost by then.
    pub(super) heard: Option<Usage>,
    /// How the reply ended, if it is whole.
    pub(super) ending: Ending,
}

/// What is noted of a reply while it comes.
enum News {
    /// Its name.
    Named(String),
    /// What it cost so far.
    Heard(Usage),
}

/// How many tokens more a reply may have cost than is noted: what a kill hides of it.
const NOTED_EVERY: u64 = 2_000;

/// Passes on what arrives of a reply.
struct Observer {
    watcher: Watcher,
    /// Whether anybody will ever ask for the reply's name.
    keeps_names: bool,
    /// Takes what is to be noted.
    news: UnboundedSender<News>,
    heard: Mutex<Heard>,
    ending: Mutex<Ending>,
}

/// What has been heard of a reply's cost.
#[derive(Default)]
struct Heard {
    so_far: Option<Usage>,
    /// How many tokens of it were passed on to be noted.
    noted: u64,
}

impl Observer {
    fn tell(&self, news: News) {
        if self.news.send(news).is_err() {
            tracing::debug!("a reply continued after nobody waited for it any more");
        }
    }
}

impl StreamObserver for Observer {
    fn session(&self, response_id: &str) {
        if self.keeps_names {
            self.tell(News::Named(response_id.to_owned()));
        }
    }

    fn heard(&self, so_far: Usage) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = heard.so_far.is_none();
        let so_far = heard.so_far.map_or(so_far, |before| before.most_of(so_far));
        heard.so_far = Some(so_far);
        if is_first || so_far.total() >= heard.noted.saturating_add(NOTED_EVERY) {
            heard.noted = so_far.total();
            self.tell(News::Heard(so_far));
        }
    }

    fn ended(&self, ending: &Ending) {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner).clone_from(ending);
    }

    fn text(&self, delta: &str) {
        (self.watcher)(RunEvent::Text { delta: delta.to_owned() });
    }
}
