//! Calls of which the database does not take the end: what is told of them, and how an answer in hand is stored all the same.
//!
//! Invariants: of what was sent nobody is told that it was not; an answer that came is kept, beside the database or in memory, until it is
//! stored or somebody decided about its call.
//! Proved by: `tests/it/late.rs`, `tests/it/telling.rs`.

use std::sync::Arc;
use std::time::Duration;

use ua_core::RawReply;
use ua_ledger::interpret;
use ua_store::{AttemptEnd, CallRecord, Durability, LedgerStore as _, SettleAttempt, StoreError};

use crate::broker::{Broker, Kept};
use crate::live::{Ended, LiveCall};
use crate::session::InUse;
use crate::sync::lock;
use crate::texts::Told;

/// How often it is tried to store an answer that the database did not take.
const STORE_EVERY: Duration = Duration::from_secs(1);

/// Why a call that was taken up has no end. Whether it was sent is the transport's to say.
pub(crate) enum NotOver {
    /// A person ended its session.
    Ended,
    /// The gateway stops, and its tool server is at work on it.
    Followed,
    /// The gateway stops before it was done.
    Stopped,
    /// Something could not be done.
    Failed(String),
}

impl NotOver {
    /// Whether another broker takes it up from here.
    fn is_left(&self) -> bool {
        match self {
            Self::Followed | Self::Stopped => true,
            Self::Ended | Self::Failed(_) => false,
        }
    }

    /// As it is for whoever is told: what stops is what could not be done.
    fn said(self) -> Self {
        match self {
            Self::Stopped => Self::Failed("the gateway is stopping; ask again in a moment".to_owned()),
            Self::Ended | Self::Followed | Self::Failed(_) => self,
        }
    }
}

impl Broker {
    /// What is told of a call whose end is not stored. An error before it was sent says that it was not; one behind that never does.
    pub(crate) fn ended_without(
        self: &Arc<Self>,
        why: NotOver,
        session: &InUse,
        call: &CallRecord,
        live: &LiveCall,
        reply: Option<&RawReply>,
    ) -> Ended {
        let has_effect = call.policy.class.has_effect();
        let is_left = why.is_left();
        let why = why.said();
        if let (Some(sent), Some(reply), NotOver::Failed(why)) = (live.sent(), reply, &why) {
            tracing::warn!(call = %call.call_id, why, "the answer of a call could not be stored");
            let mut reply = reply.clone();
            if let RawReply::ToolResult { result } = &mut reply {
                self.redactor.json(result);
            }
            if !has_effect {
                return Ended { reply: Some((Box::new(call.clone()), reply)), ..Ended::default() };
            }
            // Beside the database it is as good as stored: the next broker finds it there.
            let is_kept = session.outbox.is_kept_beside(&call.call_id, sent.attempt);
            let unrecorded = (!is_kept).then(|| why.clone());
            let mut answered = call.clone();
            (answered.attempt, answered.updated_at) = (sent.attempt, self.env.now());
            // Before it is not among those under way any more, so that whoever asks next finds it.
            let kept = Kept {
                call: Box::new(answered.clone()),
                session: session.record.clone(),
                reply: reply.clone(),
                unrecorded: unrecorded.clone(),
            };
            lock(&self.kept).insert(call.call_id.clone(), kept);
            tokio::spawn(self.clone().store_late(session.again(), answered, reply.clone()));
            return match unrecorded {
                None => Ended { reply: Some((Box::new(call.clone()), reply)), ..Ended::default() },
                Some(why) => Ended { told: Some(Told::unrecorded(sent.at, why, &reply)), ..Ended::default() },
            };
        }
        let told = match (why, live.sent()) {
            (NotOver::Ended, Some(sent)) if has_effect => Told::Unknown {
                since: Some(sent.at),
                why: "a person ended the session and did not say what came of it".to_owned(),
                question: None,
            },
            (NotOver::Followed, _) if !has_effect => Told::ReadLost { why: "the gateway is stopping".to_owned() },
            (NotOver::Followed, sent) => {
                Told::Running { since: sent.map_or(live.since, |sent| sent.at), is_sent: sent.is_some() }
            }
            (NotOver::Ended, _) => Told::NotSent {
                why: "Not sent: a person ended this session. The next call is of another one.".to_owned(),
            },
            (NotOver::Failed(why), Some(sent)) if has_effect => Told::Unstored { since: Some(sent.at), why },
            (NotOver::Failed(why), Some(_)) => Told::ReadLost { why },
            (NotOver::Failed(why), None) => Told::Broken { why },
            (NotOver::Stopped, _) => Told::Broken { why: "the gateway is stopping".to_owned() },
        };
        Ended { told: Some(told), is_left, reply: None }
    }

    /// Stores an answer in hand that the database did not take, as soon as it does. Until then whoever asks for the call has it from memory.
    async fn store_late(self: Arc<Self>, session: InUse, call: CallRecord, raw: RawReply) {
        let settlement = Some(interpret(&raw, &call.policy));
        let settle = SettleAttempt {
            call_id: call.call_id.clone(),
            attempt: call.attempt,
            end: AttemptEnd::Replied { raw, settlement },
            durability: Durability::Synced,
            at: call.updated_at,
        };
        loop {
            tokio::select! {
                () = self.env.clock.sleep(STORE_EVERY) => {}
                () = self.closing.cancelled() => {}
            }
            match session.outbox.settle_attempt(&session.lease, settle.clone()).await {
                // Somebody decided about it meanwhile; that stands.
                Ok(_) | Err(StoreError::Conflict { .. }) => break,
                Err(error) => {
                    session.outbox.keep_beside(&settle).await;
                    let is_kept = session.outbox.is_kept_beside(&call.call_id, call.attempt);
                    if let Some(kept) = lock(&self.kept).get_mut(&call.call_id).filter(|_| is_kept) {
                        kept.unrecorded = None;
                    }
                    if !self.closing.is_cancelled() {
                        continue;
                    }
                    if !is_kept {
                        tracing::warn!(call = %call.call_id, %error, "the answer of a call is lost with the broker; its outcome is unknown");
                    }
                    break;
                }
            }
        }
        lock(&self.kept).remove(&call.call_id);
    }
}
