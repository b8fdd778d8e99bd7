//! May this call go out? One pure answer for a first send, a retry, a redo, a recovery, a late word and a question asked ahead.
//!
//! Durable Jobs v1 spec §6 and §8.3. What is stored was read before ([`View`]), what is true outside comes with it ([`Facts`], [`Known`]),
//! and whoever asks does what the verdict says. Invariants: nothing that may have happened is sent again but under a key that still counts,
//! after a probe, or on a person's word; who says that it happened, or leaves it, is heard before anything is waited for; a word is good
//! for what was shown.
//!
//! Proved by: the generated table below (`table.rs`), `tests/it/identity`, `crash_anywhere`, the crash matrix, the simulation.

use ua_core::{CallStatus, EvidenceLevel, IdempotencyKey, QuestionId, RawReply, Resolution, Timestamp};
use ua_store::{
    AttemptRecord, CallRecord, Choice, LateReply, QuestionRecord, QuestionStatus, RecallCall, ReplayStatus,
    UnknownResolution,
};

mod against;
mod first_send;
mod in_doubt;
mod retry;
mod under_way;

use crate::admission::Facts;
use crate::effect_limit::EffectLimit;
use crate::enquiry::Asked;
use crate::interpret::interpret;
use crate::question::Why;
use crate::related::RelatedCalls;
use crate::rules::Rules;
use crate::view::View;

/// What is known about the process that a call in doubt was sent to, and from its probe.
#[derive(Clone, Copy)]
pub(crate) enum Known<'a> {
    /// Nothing yet.
    Nothing,
    /// It went to a server that nobody can end, which may begin it until then.
    MayBegin(Timestamp),
    /// That process is provably gone.
    Gone,
    /// It is gone, and this is what the probe said then.
    Probed(&'a Asked),
}

/// What becomes of a call.
#[derive(Debug)]
pub(crate) enum Verdict<'v> {
    /// It stays as it is: its own receipt, a refusal, a failure that is not tried again.
    Settled,
    /// Its answer is stored and has to be read.
    Interpret,
    /// The process that sent it is gone, and it left no answer: nobody knows what came of it.
    MarkLost,
    /// A call of which the database has nothing may have done the same since: nobody knows whether that is so.
    Recall(&'v RecallCall),
    /// The tool has it, and its attempt keeps what to go on with.
    GoOn(&'v AttemptRecord),
    /// A person answered what its tool asked, and that goes into its handle before anything else is asked about it.
    KeepAnswer(&'v QuestionRecord),
    /// Nobody follows it any more: a person said so, or its policy goes on without it. Its attempt is lost.
    LetGo {
        /// That attempt.
        attempt: &'v AttemptRecord,
        /// Why it is not followed.
        why: String,
        /// Since when nobody follows it; `None` is now.
        since: Option<Timestamp>,
    },
    /// It is a task whose child run goes on.
    Ongoing,
    /// The process it was sent to has to be gone before anything is decided.
    Fence,
    /// Its probe has to be asked.
    Probe,
    /// Too early.
    NotBefore {
        /// When to look again.
        until: Timestamp,
        /// The question that is there already.
        asked: Option<&'v QuestionRecord>,
    },
    /// Its server cannot be reached; a later resume tries it under its old key.
    Unreachable {
        /// What stood in the way.
        why: String,
    },
    /// Its own answer came, and is beside the database.
    Answered {
        /// The answer.
        late: &'v LateReply,
        /// The question that this answers.
        asked: Option<&'v QuestionRecord>,
    },
    /// A person, or a probe, has said what came of it.
    Resolve {
        /// What.
        resolution: Box<UnknownResolution>,
        /// The question that this answers.
        asked: Option<&'v QuestionRecord>,
        /// What resume did.
        replay: Option<ReplayStatus>,
    },
    /// The run goes on in doubt; `ask` when nobody was asked about it yet.
    GoOnWithout {
        /// Whether the question is still to be raised.
        ask: bool,
    },
    /// A person was asked and has not answered.
    Hold(&'v QuestionRecord),
    /// A person has to be asked.
    Ask(Why<'v>),
    /// Another call of the family had this very effect, by its key or by a person's word.
    DeduplicateFrom {
        /// That call.
        twin: &'v CallRecord,
        /// Their key.
        key: IdempotencyKey,
    },
    /// Another call of the same tree is having it now.
    WaitFor(&'v CallRecord),
    /// It is never sent.
    Cancel {
        /// Why.
        resolution: Resolution,
        /// A short code.
        code: &'static str,
        /// What the model is told.
        message: String,
    },
    /// It is never sent: what its job allows of its effect is used up.
    NotAllowed(&'v EffectLimit),
    /// It did nothing by itself, and a person says that another call had its effect: that is its record.
    PutRight {
        /// The question that they answered.
        asked: &'v QuestionRecord,
        /// That other call.
        earlier: &'v CallRecord,
    },
    /// It goes out.
    Start {
        /// Under this key.
        key: IdempotencyKey,
        /// Somebody says that no earlier attempt had the effect.
        ends_doubt: bool,
        /// The question whose answer lets it.
        approved_by: Option<QuestionId>,
        /// What resume did.
        replay: Option<ReplayStatus>,
    },
    /// A person ended the run.
    Aborted,
}

impl Verdict<'_> {
    /// Whether it rests with a person, or ends, and nothing is sent or looked up: that may come before the process it was sent to is gone, if a
    /// question says until when that may begin it.
    fn sends_nothing(&self) -> bool {
        matches!(self, Self::Hold(_) | Self::Ask(_) | Self::Resolve { .. })
    }

    /// Whether a call goes out that was not sent, or did nothing, or does on a person's word.
    fn is_about_a_send(&self) -> bool {
        matches!(self, Self::Hold(_) | Self::Ask(_) | Self::Start { .. })
    }
}

/// A verdict, and the questions that nobody has to answer any more, closed before it is carried out.
#[derive(Debug)]
pub(crate) struct Decision<'v> {
    pub(crate) verdict: Verdict<'v>,
    pub(crate) closes: Vec<&'v QuestionRecord>,
}

impl<'v> From<Verdict<'v>> for Decision<'v> {
    fn from(verdict: Verdict<'v>) -> Self {
        Self { verdict, closes: Vec::new() }
    }
}

/// What a person said about a call.
enum Word<'v> {
    /// Nobody was asked.
    None,
    /// Nobody has answered.
    Open(&'v QuestionRecord),
    /// Send it.
    Yes(&'v QuestionRecord),
    /// It happened; about a call that was not sent: an earlier one was it.
    Happened(&'v QuestionRecord),
    /// Leave it.
    No(&'v QuestionRecord),
    /// End the run.
    Abort,
}

/// Whether an answer lets a call go.
fn lets_go(choice: Choice) -> bool {
    match choice {
        Choice::Execute | Choice::Continue => true,
        Choice::Happened | Choice::Skip | Choice::Abort => false,
    }
}

fn word(asked: Option<&QuestionRecord>) -> Word<'_> {
    let Some(asked) = asked else { return Word::None };
    match (asked.status, asked.answer.as_ref().map(|answer| answer.choice)) {
        (QuestionStatus::Answered, Some(Choice::Abort)) => Word::Abort,
        (QuestionStatus::Answered, Some(Choice::Execute | Choice::Continue)) => Word::Yes(asked),
        (QuestionStatus::Answered, Some(Choice::Happened)) => Word::Happened(asked),
        (QuestionStatus::Answered, Some(Choice::Skip)) => Word::No(asked),
        (QuestionStatus::Open | QuestionStatus::Answered, None) | (QuestionStatus::Open, Some(_)) => Word::Open(asked),
        (QuestionStatus::Closed, _) => Word::None,
    }
}

/// What becomes of a call.
pub(crate) fn verdict<'v>(view: &'v View, facts: &'v Facts, known: Known<'v>, rules: &'v Rules<'v>) -> Decision<'v> {
    let begins_until = match known {
        Known::MayBegin(until) => Some(until),
        Known::Nothing | Known::Gone | Known::Probed(_) => None,
    };
    let case = Case { call: &view.call, view, facts, rules, begins_until };
    let decision = match view.call.status {
        CallStatus::Succeeded | CallStatus::FailedReported | CallStatus::Cancelled => Verdict::Settled.into(),
        CallStatus::Running => case.running(),
        CallStatus::Unknown => case.unknown(known),
        CallStatus::FailedDefinite => case.allowed(case.failed()),
        CallStatus::Prepared if view.call.name.is_ask_user() => case.ask_user().into(),
        CallStatus::Prepared => case.allowed(case.prepared()),
    };
    // Whatever would have been asked or refused before it goes out, for the first time or once more, has been by now; what is open is whether a call
    // that the database does not have did it since.
    let Decision { verdict: Verdict::Start { key, ends_doubt, approved_by, replay }, closes } = decision else {
        return decision;
    };
    if let Some(recall) = &view.lost {
        return Verdict::Recall(recall).into();
    }
    let key = match &view.lost_keys {
        Some(lost) => lost.instead_of(key),
        None => key,
    };
    Decision { verdict: Verdict::Start { key, ends_doubt, approved_by, replay }, closes }
}

/// A person's word that a call happened, as evidence.
pub(crate) fn happened(call: &CallRecord, asked: &QuestionRecord) -> UnknownResolution {
    let answer = asked.answer.as_ref();
    let (by, proof) = answer.map_or_else(|| ("a person".to_owned(), None), |a| (a.by.clone(), a.proof.clone()));
    let raw = RawReply::Statement { by, proof };
    let settlement = interpret(&raw, &call.policy);
    UnknownResolution::Happened { raw, settlement, evidence: EvidenceLevel::Reconciled }
}

pub(crate) use against::{Against, keep};
pub(crate) use under_way::HandingOver;

/// Whether what people answered to a tool may be handed over, for which `view` has the relations and all the questions of its call; and the
/// questions that are closed before.
pub(crate) fn handing_over<'v>(
    view: &'v View,
    facts: &'v Facts,
    rules: &'v Rules<'v>,
) -> (HandingOver<'v>, Vec<&'v QuestionRecord>) {
    Case { call: &view.call, view, facts, rules, begins_until: None }.handing_over()
}

#[derive(Clone, Copy)]
struct Case<'v> {
    call: &'v CallRecord,
    view: &'v View,
    facts: &'v Facts,
    rules: &'v Rules<'v>,
    /// Until when a server that nobody can end may begin it.
    begins_until: Option<Timestamp>,
}

impl<'v> Case<'v> {
    fn related(&self) -> RelatedCalls<'v> {
        RelatedCalls {
            call: self.call,
            facts: self.facts,
            relations: &self.view.relations,
            renamed: &self.view.renamed,
            config: self.rules.config,
            forgotten: self.view.forgotten.as_ref(),
            settled: self.view.settled.as_ref(),
            unseen: &self.view.unseen,
            sent: self.view.last_attempt().map(|attempt| attempt.started_at),
            behind: &self.view.behind,
        }
    }

    /// The same, but of a call whose effect its job does not allow once more: it does not go out whoever says so, so nobody is asked.
    fn allowed(&self, decision: Decision<'v>) -> Decision<'v> {
        let Some(limit) = self.view.used_up.as_ref().filter(|_| decision.verdict.is_about_a_send()) else {
            return decision;
        };
        let is_sent = self.call.status != CallStatus::Prepared;
        let verdict = if is_sent { Verdict::Settled } else { Verdict::NotAllowed(limit) }; // what failed stays so
        Decision { verdict, closes: self.view.pending().into_iter().collect() }
    }

    fn is_as_asked(&self, asked: &QuestionRecord) -> bool {
        self.rules.is_as_asked(self.call, self.facts, asked)
    }

    /// RUNNING found at admission: its process is gone.
    fn running(&self) -> Decision<'v> {
        if self.view.unread.is_some() {
            return Verdict::Interpret.into();
        }
        match self.view.last_attempt().filter(|attempt| attempt.live_handle().is_some()) {
            Some(attempt) => self.under_way(attempt),
            None if self.call.name.is_task() && self.call.idempotency_key.is_some() => Verdict::Ongoing.into(),
            None => Verdict::MarkLost.into(),
        }
    }
}

/// The question about a call in doubt, whatever its policy says; one that is there already stays.
pub(crate) fn held<'v>(view: &'v View, facts: &'v Facts, rules: &'v Rules<'v>, because: &str) -> Verdict<'v> {
    Case { call: &view.call, view, facts, rules, begins_until: None }.hold(view.pending(), Against::Standing, because)
}

#[cfg(test)]
#[path = "verdict/table.rs"]
mod table;
