//! Admission: what the ledger says about a call that wants to run.
//!
//! Durable Jobs v1 spec §8.3. A call found settled is answered from its receipt; one whose effect another call already had is
//! deduplicated; one that may repeat an effect in other words is held; one found RUNNING is unknown.

use std::time::Duration;

use ua_core::{CallId, Destination, IdempotencyKey, QuestionId, Scope, Timestamp};
use ua_store::{AttemptRecord, CallRecord, QuestionRecord, ReplayStatus, Seen};

use crate::handle::Continued;
use crate::permit::Permit;
use crate::sent_files::SentFiles;

/// What the dispatcher found out about a call just before admission.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// What its effect is, whatever the wording.
    pub scope: Option<Scope>,
    /// The files it sends.
    pub files: SentFiles,
    /// What the policies say of it now.
    pub since_planned: SincePlanned,
    /// Whether it has an effect by what they say now; what its plan says counts as well.
    pub has_effect_now: bool,
    /// Where it would go now and as whom; `None` where nobody can say.
    pub destination: Option<Destination>,
    /// Whether these are not the facts of now but those that it was sent under: this process has another setup than its run, whose tools, policies
    /// and servers say nothing about it. Nothing is sent by them.
    pub is_as_sent: bool,
    /// Whether it was waited for a twin of which nobody knows what came as long as is worth it.
    pub has_waited: bool,
}

/// How the policies that hold now stand to those that a call was planned under. They differ only after a person accepted other ones, or another
/// program. What was planned follows those that are stricter, never those that are laxer: what is not sent is asked about or planned anew, and
/// what is in doubt is not sent again by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SincePlanned {
    /// They ask for nothing more.
    #[default]
    Same,
    /// A person has to approve the call now.
    Asks,
    /// They forbid it, or would have something else recorded of it or done when it is lost: it has to be planned anew.
    Stricter,
}

impl Facts {
    /// Those that a call was sent under, for a process that has another setup than its run.
    pub fn as_sent(call: &CallRecord, attempts: &[AttemptRecord]) -> Self {
        let sent = attempts.iter().rev().find(|attempt| !attempt.never_left());
        Self {
            scope: call.scope.clone(),
            files: SentFiles::of_digests(call.file_digests.clone()),
            since_planned: SincePlanned::Same,
            has_effect_now: call.policy.class.has_effect(),
            destination: sent.and_then(|attempt| attempt.destination.clone()),
            is_as_sent: true,
            has_waited: false,
        }
    }

    /// Whether a person has to approve the call.
    pub(crate) fn need_approval(&self, call: &CallRecord) -> bool {
        call.policy.needs_approval || self.since_planned == SincePlanned::Asks
    }

    /// Whether the effect of the call is known by its content: the policy says so, and all that it sends could be looked at. Two calls in the same
    /// words that send what nobody could look at may be two effects.
    pub(crate) fn are_by_content(&self, call: &CallRecord) -> bool {
        call.policy.is_by_content() && self.files.are_all_known()
    }
}

/// What the ledger says.
#[derive(Debug)]
pub enum Admission {
    /// Nothing is to be done: its own receipt, an earlier twin's, or a refusal.
    Settled(CallRecord),
    /// A person has to decide first.
    Held(QuestionRecord),
    /// It may be started.
    Ready(Prepared),
    /// It was sent, the tool has it, and its attempt keeps what to go on with.
    Continues(Box<Continued>),
    /// It is a task under way: its child run goes on, whoever drove it before. No new attempt.
    Ongoing(Box<Permit>),
    /// Another call of the same tree is having the very effect now; its receipt will answer this one.
    WaitFor(CallId),
    /// It was sent and nobody knows what came of it: fence its server, then ask [`Ledger::recover`](crate::Ledger::recover).
    Unknown(UnknownCall),
}

/// A call that may be started: everything RUNNING will commit.
#[derive(Debug)]
pub struct Prepared {
    pub(crate) call: CallRecord,
    pub(crate) key: IdempotencyKey,
    pub(crate) facts: Facts,
    /// What it might repeat, as it was when this was decided; `None` for what repeats nothing.
    pub(crate) seen: Option<Vec<Seen>>,
    /// When a record of its lineage was corrected last, as far as whoever decided knew.
    pub(crate) corrected_at: Option<Timestamp>,
    /// Somebody says that no attempt had the effect.
    pub(crate) ends_doubt: bool,
    pub(crate) approved_by: Option<QuestionId>,
    pub(crate) replay_status: Option<ReplayStatus>,
    /// When the looking began that this came of.
    pub(crate) judged_at: Timestamp,
    /// Where a repeat rests on a key alone: until when the other side is sure to know it.
    pub(crate) key_life: Option<KeyLife>,
}

/// How long a key is good that was sent before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyLife {
    /// When it was sent for the first time.
    pub(crate) since: Timestamp,
    /// For how long the other side says that it knows a key.
    pub(crate) ttl: Duration,
}

impl Prepared {
    /// The call.
    pub fn call(&self) -> &CallRecord {
        &self.call
    }
}

/// A call whose outcome is not known.
#[derive(Debug)]
pub struct UnknownCall {
    pub(crate) call: CallRecord,
    pub(crate) generation: Option<String>,
    pub(crate) lost_at: Option<Timestamp>,
}

impl UnknownCall {
    /// The call.
    pub fn call(&self) -> &CallRecord {
        &self.call
    }

    /// The process of the tool server that its last attempt was sent to; it must be gone before anything is decided.
    pub fn generation(&self) -> Option<&str> {
        self.generation.as_deref()
    }

    /// From when on nobody waited for that attempt any more, as it is recorded.
    pub fn lost_at(&self) -> Option<Timestamp> {
        self.lost_at
    }
}
