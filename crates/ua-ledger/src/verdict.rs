//! May this call go out? One pure answer for a first send, a retry, a redo, a recovery, a late word and a question asked ahead.
//!
//! Durable Jobs v1 spec §6 and §8.3. What is stored was read before ([`View`]), what is true outside comes with it ([`Facts`], [`Known`]),
//! and whoever asks does what the verdict says. Invariants: nothing that may have happened is sent again but under a key that still counts,
//! after a probe, or on a person's word; who says that it happened, or leaves it, is heard before anything is waited for; a word is good
//! for what was shown.
//!
//! Proved by: the generated table below (`table.rs`), `tests/it/identity`, `crash_anywhere`, the crash matrix, the simulation.

use std::collections::BTreeSet;

use serde_json::Value;
use ua_core::{
    CallStatus, EvidenceLevel, IdempotencyKey, OnScopeConflict, OnUnknown, QuestionId, RawReply, Resolution, Timestamp,
};
use ua_store::{
    AttemptRecord, CallRecord, Choice, QuestionKind, QuestionRecord, QuestionStatus, ReplayStatus, UnknownResolution,
};

use crate::admission::Facts;
use crate::enquiry::{Asked, Finding, given_up_at, horizon};
use crate::interpret::interpret;
use crate::people::{DECIDE_YOURSELF, MAX_ASKED, RecipientRule, allows, declined};
use crate::question::{Reason, Sends, Why, shows};
use crate::related::{Other, RelatedCalls, lets_pass};
use crate::rules::Rules;
use crate::view::View;

/// What is known about the process that a call in doubt was sent to, and from its probe.
#[derive(Clone, Copy)]
pub(crate) enum Known<'a> {
    /// Nothing yet.
    Nothing,
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
    /// The tool has it, and its attempt keeps what to go on with.
    GoOn(&'v AttemptRecord),
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
    /// Another call of the family had this very effect.
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
    /// It happened.
    Happened(&'v QuestionRecord),
    /// Leave it.
    No(&'v QuestionRecord),
    /// End the run.
    Abort,
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
    let case = Case { call: &view.call, view, facts, rules };
    match view.call.status {
        CallStatus::Succeeded | CallStatus::FailedReported | CallStatus::Cancelled => Verdict::Settled.into(),
        CallStatus::Running => case.running().into(),
        CallStatus::Unknown => case.unknown(known),
        CallStatus::FailedDefinite => case.failed(),
        CallStatus::Prepared if view.call.name.is_ask_user() => case.ask_user().into(),
        CallStatus::Prepared => case.prepared(),
    }
}

/// A person's word that a call happened, as evidence.
pub(crate) fn happened(call: &CallRecord, asked: &QuestionRecord) -> UnknownResolution {
    let answer = asked.answer.as_ref();
    let (by, proof) = answer.map_or_else(|| ("a person".to_owned(), None), |a| (a.by.clone(), a.proof.clone()));
    let raw = RawReply::Statement { by, proof };
    let settlement = interpret(&raw, &call.policy);
    UnknownResolution::Happened { raw, settlement, evidence: EvidenceLevel::Reconciled }
}

#[derive(Clone, Copy)]
struct Case<'v> {
    call: &'v CallRecord,
    view: &'v View,
    facts: &'v Facts,
    rules: &'v Rules<'v>,
}

impl<'v> Case<'v> {
    fn related(&self) -> RelatedCalls<'v> {
        RelatedCalls { call: self.call, facts: self.facts, relations: &self.view.relations, config: self.rules.config }
    }

    fn is_as_asked(&self, asked: &QuestionRecord) -> bool {
        self.rules.is_as_asked(self.call, self.facts, asked)
    }

    /// RUNNING found at admission: its process is gone.
    fn running(&self) -> Verdict<'v> {
        if self.view.unread.is_some() {
            return Verdict::Interpret;
        }
        match self.view.last_attempt().filter(|attempt| attempt.live_handle().is_some()) {
            Some(attempt) => Verdict::GoOn(attempt),
            None if self.call.name.is_task() && self.call.idempotency_key.is_some() => Verdict::Ongoing,
            None => Verdict::MarkLost,
        }
    }

    // --- Sent for the first time.

    fn prepared(&self) -> Decision<'v> {
        let mut closes = Vec::new();
        let (mut approved_by, mut unanswered) = (None, None);
        match word(self.view.pending()) {
            Word::None => {}
            Word::Abort => return Verdict::Aborted.into(),
            // What it is about may have been settled meanwhile; then nobody has to answer it any more.
            Word::Open(asked) if asked.kind == QuestionKind::NearDuplicate => unanswered = Some(asked),
            Word::Open(asked) => return Verdict::Hold(asked).into(),
            // Not what was shown any more, so the word is not about it: it is asked again.
            Word::Yes(asked) | Word::Happened(asked) if !self.is_as_asked(asked) || self.is_news_since(asked) => {
                closes.push(asked);
            }
            Word::Yes(asked) | Word::Happened(asked) => approved_by = Some(asked),
            Word::No(asked) => {
                let (resolution, message) = (Resolution::Skipped, declined(asked));
                return Verdict::Cancel { resolution, code: "declined", message }.into();
            }
        }
        let is_repeat = approved_by.is_some_and(|asked| asked.kind == QuestionKind::NearDuplicate);
        let own = Some(&self.call.call_id);
        let mut key = self.rules.key(self.call, self.facts, own.filter(|_| is_repeat));
        if let Some(twin) = self.view.twin.as_ref().filter(|_| !is_repeat) {
            // What nobody declared to be one effect in the same words is not taken for it without a person's word.
            if twin.call.status == CallStatus::Succeeded && !self.call.policy.kind_is_guessed {
                closes.extend(unanswered.or(approved_by)); // asked before the twin was sent
                return Decision { verdict: Verdict::DeduplicateFrom { twin: &twin.call, key }, closes };
            }
            if twin.is_under_way_beside {
                closes.extend(unanswered);
                return Decision { verdict: Verdict::WaitFor(&twin.call), closes };
            }
        }
        let mut reasons = Vec::new();
        let others = self.others();
        if let Some(other) = others.first() {
            match (self.call.policy.on_scope_conflict, unanswered) {
                // In other words it is an effect of its own; in the same words it needs a key of its own.
                (OnScopeConflict::Allow, _) if self.view.twin.is_some() => {
                    key = self.rules.key(self.call, self.facts, own);
                }
                (OnScopeConflict::Allow, _) => {}
                (OnScopeConflict::Ask | OnScopeConflict::Refuse, Some(asked)) => {
                    return Decision { verdict: Verdict::Hold(asked), closes };
                }
                (OnScopeConflict::Refuse, None) if !is_repeat => {
                    closes.extend(approved_by);
                    return Decision { verdict: refused_beside(other.call), closes };
                }
                (OnScopeConflict::Ask | OnScopeConflict::Refuse, None) => reasons.push(Reason::NearDuplicate(others)),
            }
        }
        closes.extend(unanswered);
        if let Some(problem) = self.rules.recipient_problem(self.call, &self.view.known) {
            if !matches!(self.rules.people.recipients, RecipientRule::Ask { .. }) {
                closes.extend(approved_by);
                let (resolution, code) = (Resolution::Refused, "ambiguous_recipient");
                let message = format!("Not sent: {problem} Correct the recipient and ask again.");
                return Decision { verdict: Verdict::Cancel { resolution, code, message }, closes };
            }
            reasons.push(Reason::AmbiguousRecipient(problem));
        }
        if self.call.policy.needs_approval {
            reasons.push(Reason::Approval);
        }
        if self.rules.is_tainted_effect(self.call, self.view.is_tainted, &self.view.known) {
            reasons.push(Reason::Tainted);
        }
        reasons.extend(self.made_addresses());
        if let Some(why) = self.not_heard(reasons, approved_by) {
            closes.extend(approved_by);
            return Decision { verdict: Verdict::Ask(why), closes };
        }
        let verdict = Verdict::Start {
            key,
            ends_doubt: false,
            approved_by: approved_by.map(|asked| asked.question_id.clone()),
            replay: None,
        };
        Decision { verdict, closes }
    }

    /// The addresses that it would read and that nobody but the model has written, where that may carry something away.
    fn made_addresses(&self) -> Option<Reason<'v>> {
        let made = || self.rules.made_addresses(self.call, &self.view.heard);
        let made = if self.view.is_tainted { made() } else { Vec::new() };
        (!made.is_empty()).then_some(Reason::MadeAddress(made))
    }

    /// What a person is asked before the call goes out: all that speaks against it now, unless their word was about all of that.
    fn not_heard(&self, reasons: Vec<Reason<'v>>, said: Option<&QuestionRecord>) -> Option<Why<'v>> {
        if reasons.iter().all(|reason| said.is_some_and(|asked| reason.is_shown_by(asked))) {
            return None;
        }
        let mut reasons = reasons.into_iter();
        let first = reasons.next()?;
        Some(Why::Send { facts: self.facts, first, more: reasons.collect() })
    }

    /// The calls that may have had this one's effect: the one that holds its key, and those that stand in its way.
    fn others(&self) -> Vec<Other<'v>> {
        let mut others = self.related().in_the_way();
        if let Some(twin) = &self.view.twin {
            let known = others.iter().position(|other| other.call.call_id == twin.call.call_id);
            let count = known.map_or(1, |known| others.remove(known).count);
            others.insert(0, Other { call: &twin.call, count });
        }
        others
    }

    /// Whether something stands in the way that a person who was asked about other calls was not shown as it is now: what was running may
    /// have succeeded, and another call may have come.
    fn is_news_since(&self, asked: &QuestionRecord) -> bool {
        asked.kind == QuestionKind::NearDuplicate && self.others().iter().any(|other| !shows(asked, other))
    }

    /// `ask_user`: the call waits for a person's words, which then are its answer.
    fn ask_user(&self) -> Verdict<'v> {
        match word(self.view.pending()) {
            Word::Abort => Verdict::Aborted,
            Word::Open(asked) => Verdict::Hold(asked),
            Word::Yes(asked) | Word::Happened(asked) => Verdict::Start {
                key: self.rules.key(self.call, self.facts, None),
                ends_doubt: false,
                approved_by: Some(asked.question_id.clone()),
                replay: None,
            },
            Word::No(_) => Verdict::Cancel {
                resolution: Resolution::Skipped,
                code: "declined",
                message: DECIDE_YOURSELF.to_owned(),
            },
            Word::None if self.view.asked_before >= MAX_ASKED => Verdict::Cancel {
                resolution: Resolution::Refused,
                code: "asked_enough",
                message: format!(
                    "This run has asked {} questions, which is as many as it may. {DECIDE_YOURSELF}",
                    self.view.asked_before
                ),
            },
            Word::None => Verdict::Ask(Why::AskUser),
        }
    }

    // --- Tried again after it definitely did nothing: as any other call, it goes out only if nobody had its effect meanwhile.

    fn failed(&self) -> Decision<'v> {
        let asks_for_credentials = self.rules.asks_for_credentials(self.call);
        if !self.rules.may_retry(self.call) && !asks_for_credentials {
            return Verdict::Settled.into();
        }
        let mut closes = Vec::new();
        let mut approved_by = None;
        match word(self.view.pending()) {
            Word::None => {}
            Word::Abort => return Verdict::Aborted.into(),
            Word::Open(asked) => return Verdict::Hold(asked).into(),
            Word::No(asked) => return Decision { verdict: Verdict::Settled, closes: vec![asked] },
            Word::Yes(asked) | Word::Happened(asked) => {
                // Whoever mends credentials does not look at the call; every other word is about what was shown.
                let is_about_it = asked.kind != QuestionKind::AuthFailure;
                if is_about_it && (!self.is_as_asked(asked) || self.is_news_since(asked)) {
                    closes.push(asked);
                } else {
                    approved_by = Some(asked);
                }
            }
        }
        if approved_by.is_none() && self.was_left_as_it_is() {
            return Decision { verdict: Verdict::Settled, closes };
        }
        if approved_by.is_none() && closes.is_empty() && asks_for_credentials {
            return Verdict::Ask(Why::AuthFailure { facts: self.facts }).into();
        }
        if self.view.twin.is_some() {
            return Decision { verdict: Verdict::Settled, closes }; // a twin took the effect over; this one stays failed
        }
        let mut reasons = Vec::new();
        let others = self.others();
        if !lets_pass(self.call) && others.iter().any(|other| !self.was_let_pass(other)) {
            let is_repeat = approved_by.is_some_and(|asked| asked.kind == QuestionKind::NearDuplicate);
            if self.call.policy.on_scope_conflict == OnScopeConflict::Refuse && !is_repeat {
                closes.extend(approved_by);
                return Decision { verdict: Verdict::Settled, closes };
            }
            reasons.push(Reason::NearDuplicate(others));
        }
        reasons.extend(self.anew());
        if let Some(why) = self.not_heard(reasons, approved_by) {
            closes.extend(approved_by);
            return Decision { verdict: Verdict::Ask(why), closes };
        }
        let start = Verdict::Start {
            key: self.rules.key_of_retry(self.call, self.facts),
            ends_doubt: false,
            approved_by: approved_by.map(|asked| asked.question_id.clone()),
            replay: None,
        };
        Decision { verdict: start, closes }
    }

    /// Whether a person left this very failure as it is.
    fn was_left_as_it_is(&self) -> bool {
        self.view.questions.iter().any(|asked| {
            asked.answer.as_ref().is_some_and(|answer| answer.choice == Choice::Skip)
                && asked.detail.get("attempt").and_then(Value::as_u64) == Some(self.call.attempt.into())
        })
    }

    /// What speaks against sending a call again that did nothing: what it needs a word for, and nobody has said one about what would be
    /// sent now. Its arguments are those that went out before; its files and its tool may be others.
    fn anew(&self) -> Vec<Reason<'v>> {
        let allowed = |asked: &&QuestionRecord| allows(asked) && asked.kind != QuestionKind::AuthFailure;
        let was_heard = |reason: &Reason<'_>| {
            let mut words = self.view.questions.iter().rev().filter(allowed);
            words.find(|asked| reason.is_shown_by(asked)).map(|asked| self.is_as_asked(asked))
        };
        let is_as_sent = self.call.scope == self.facts.scope && self.call.file_digests == self.facts.file_digests;
        let mut reasons = Vec::new();
        if matches!(self.rules.people.recipients, RecipientRule::Ask { .. })
            && let Some(problem) = self.rules.recipient_problem(self.call, &BTreeSet::new())
        {
            let reason = Reason::AmbiguousRecipient(problem);
            if was_heard(&reason) == Some(false) {
                reasons.push(reason);
            }
        }
        if self.call.policy.needs_approval && was_heard(&Reason::Approval) != Some(true) {
            reasons.push(Reason::Approval);
        }
        let is_tainted = self.rules.is_tainted_effect(self.call, self.view.is_tainted, &self.view.known);
        match was_heard(&Reason::Tainted) {
            Some(false) => reasons.push(Reason::Tainted),
            None if is_tainted && !is_as_sent => reasons.push(Reason::Tainted),
            Some(true) | None => {}
        }
        // Its arguments went out before; only a word that was about something else is asked for again.
        reasons.extend(self.made_addresses().filter(|reason| was_heard(reason) == Some(false)));
        reasons
    }

    /// Whether a person let this call go out although they knew of the other one as it is now.
    fn was_let_pass(&self, other: &Other<'_>) -> bool {
        self.view.questions.iter().any(|asked| {
            let said_yes = |choice| matches!(choice, Choice::Execute | Choice::Continue);
            asked.kind == QuestionKind::NearDuplicate
                && shows(asked, other)
                && asked.answer.as_ref().is_some_and(|answer| said_yes(answer.choice))
                && self.is_as_asked(asked)
        })
    }

    // --- Sent, and nobody knows what came of it.

    fn unknown(&self, known: Known<'v>) -> Decision<'v> {
        if self.call.resolution == Some(Resolution::Skipped) {
            return Verdict::Settled.into();
        }
        // What a tool asked for is of no use any more once nobody knows whether the call it asked in happened.
        let (asked, closes) = match self.view.pending() {
            Some(asked) if asked.kind == QuestionKind::Elicitation => (None, vec![asked]),
            asked => (asked, Vec::new()),
        };
        let resolve =
            |asked, resolution| Verdict::Resolve { resolution: Box::new(resolution), asked: Some(asked), replay: None };
        let verdict = match (word(asked), known) {
            (Word::Abort, _) => Verdict::Aborted,
            // Nothing is sent, so nobody waits for the process it was sent to.
            (Word::Happened(asked), _) => resolve(asked, happened(self.call, asked)),
            (Word::No(asked), _) => resolve(asked, UnknownResolution::Skipped),
            // A question waits as well: whoever looks before that process is gone may look too early.
            (Word::Yes(_) | Word::Open(_) | Word::None, Known::Nothing) => Verdict::Fence,
            // Whoever orders it may not have looked where the policy can.
            (Word::Yes(_), Known::Gone) if self.can_be_looked_up() => Verdict::Probe,
            (Word::Yes(asked), Known::Probed(Asked { finding: Finding::Found { id, item }, tool, .. })) => {
                self.found(tool, id.clone(), item.clone(), Some(asked))
            }
            (Word::Yes(asked), Known::Gone) => return self.ordered(asked, None, closes),
            (Word::Yes(asked), Known::Probed(said)) => return self.ordered(asked, Some(said), closes),
            (Word::Open(_) | Word::None, Known::Gone) => self.by_policy(asked),
            (Word::Open(_) | Word::None, Known::Probed(said)) => return self.by_probe(said, asked, closes),
        };
        Decision { verdict, closes }
    }

    fn can_be_looked_up(&self) -> bool {
        self.call.policy.on_unknown == OnUnknown::Probe && self.view.alike.is_none()
    }

    /// A probe has seen it.
    fn found(&self, tool: &str, id: Option<String>, item: Value, asked: Option<&'v QuestionRecord>) -> Verdict<'v> {
        let raw = RawReply::Found { tool: tool.to_owned(), id, item };
        let settlement = interpret(&raw, &self.call.policy);
        let resolution = UnknownResolution::Happened { raw, settlement, evidence: EvidenceLevel::Reconciled };
        Verdict::Resolve { resolution: Box::new(resolution), asked, replay: Some(ReplayStatus::Reconciled) }
    }

    /// *It did not happen* is acted on only when the other side cannot begin it any more, and as long as no run beside this one may have had
    /// the effect since it was said. Whoever said so while it could still begin may have looked too early: unless a probe proves it now, they
    /// are asked again.
    fn ordered(
        &self,
        asked: &'v QuestionRecord,
        probed: Option<&Asked>,
        mut closes: Vec<&'v QuestionRecord>,
    ) -> Decision<'v> {
        if let Some(other) = self.related().overtaken_by().into_iter().find(|other| !shows(asked, other)) {
            closes.push(asked);
            let because = overtaken_by(other.call);
            return Decision { verdict: self.hold(None, &because), closes };
        }
        if !self.is_as_asked(asked) {
            closes.push(asked);
            return Decision { verdict: self.hold(None, "what it would send now is not what was asked about"), closes };
        }
        if let Some(until) = self.may_begin_until() {
            let not_before = |until| Verdict::NotBefore { until, asked: Some(asked) };
            if self.rules.time.now() < until {
                return Decision { verdict: not_before(until), closes };
            }
            let was_early = asked.answer.as_ref().is_some_and(|answer| answer.answered_at < until);
            if was_early && !probed.is_some_and(Asked::proves_absence) {
                let absent = probed.filter(|said| said.finding == Finding::Absent);
                if let Some(later) =
                    absent.and_then(|said| said.conclusive_from).filter(|at| self.rules.time.now() < *at)
                {
                    return Decision { verdict: not_before(later), closes };
                }
                closes.push(asked);
                let because =
                    format!("it was said not to have happened before {until}, until when it could still begin");
                return Decision { verdict: self.hold(None, &because), closes };
            }
        }
        Decision { verdict: self.again(true, Some(asked)), closes }
    }

    /// Until when the other side may still begin it, as its policy says.
    fn may_begin_until(&self) -> Option<Timestamp> {
        let given_up = given_up_at(self.call, &self.view.attempts)?;
        horizon(&self.call.policy).map(|horizon| self.rules.time.end_of(given_up, horizon))
    }

    fn by_policy(&self, asked: Option<&'v QuestionRecord>) -> Verdict<'v> {
        let exhausted = self.rules.is_exhausted(&self.view.attempts);
        let obstacle = match (self.call.policy.on_unknown, asked) {
            (OnUnknown::Probe, _) => match &self.view.alike {
                None => return Verdict::Probe,
                Some(other) => {
                    let unique = self.call.policy.probe.as_ref().map(|probe| probe.unique_arguments.join(", "));
                    let unique = unique.unwrap_or_default();
                    Some(format!("call {other} has the same {unique}, so a find proves nothing"))
                }
            },
            (OnUnknown::Continue, None) if self.is_mere_read() => Some("its policy does without an answer".to_owned()),
            (OnUnknown::Continue, asked) => return Verdict::GoOnWithout { ask: asked.is_none() },
            (OnUnknown::Redo | OnUnknown::RedoKeyed | OnUnknown::Hold, Some(asked)) => return Verdict::Hold(asked),
            (OnUnknown::Redo | OnUnknown::RedoKeyed, None) if exhausted => {
                Some("it was tried as often as the job allows".to_owned())
            }
            (OnUnknown::Redo, None) => self.overtaken(),
            (OnUnknown::RedoKeyed, None) => self.keyed_redo_obstacle(),
            (OnUnknown::Hold, None) => {
                Some("the tool can neither take an idempotency key nor be asked afterwards".to_owned())
            }
        };
        match obstacle {
            Some(because) => self.hold(asked, &because),
            None if self.rules.is_unreachable(&self.view.attempts) => {
                let why = self.view.last_attempt().and_then(|attempt| attempt.detail.clone());
                Verdict::Unreachable { why: why.unwrap_or_default() }
            }
            None => self.again(false, None),
        }
    }

    /// The conclusion from what a probe said: found settles the call, absent lets it run again if it was asked late enough, and anything
    /// else is a question for a person. The next resume asks the probe again.
    fn by_probe(
        &self,
        said: &Asked,
        asked: Option<&'v QuestionRecord>,
        mut closes: Vec<&'v QuestionRecord>,
    ) -> Decision<'v> {
        let shows_nothing = |why: &str| format!("`{}` does not show it, but {why}", said.tool);
        let because = match &said.finding {
            Finding::Found { id, item } => {
                return Decision { verdict: self.found(&said.tool, id.clone(), item.clone(), asked), closes };
            }
            Finding::Absent if !said.proves_absence() => match said.conclusive_from {
                Some(until) => return Decision { verdict: Verdict::NotBefore { until, asked }, closes },
                None => "the attempt is not known to have ended".to_owned(),
            },
            Finding::Absent if self.rules.is_exhausted(&self.view.attempts) => {
                shows_nothing("it was tried as often as the job allows")
            }
            Finding::Absent if self.call.file_digests != self.facts.file_digests => {
                shows_nothing("a file it sends has changed since")
            }
            Finding::Absent => {
                let Some(why) = self.overtaken() else {
                    closes.extend(asked);
                    return Decision { verdict: self.again(true, None), closes };
                };
                why
            }
            Finding::Unclear { why } => why.clone(),
        };
        Decision { verdict: self.hold(asked, &because), closes }
    }

    /// Whether nothing is lost but an answer: the call only reads, and nobody wants to be asked about it all the same.
    fn is_mere_read(&self) -> bool {
        !self.call.policy.class.has_effect() && self.call.policy.on_unknown != OnUnknown::Hold
    }

    /// Asks a person what came of the call; a question that is there already stays. Whether a read happened is nobody's question: the model
    /// is told that it brought no answer, and asks again if it needs one.
    pub(crate) fn hold(&self, asked: Option<&'v QuestionRecord>, because: &str) -> Verdict<'v> {
        if let Some(asked) = asked {
            return Verdict::Hold(asked);
        }
        if self.is_mere_read() {
            let why = self.call.error_detail.clone().filter(|why| !why.trim().is_empty());
            let resolution = UnknownResolution::NotHappened { why: why.unwrap_or_else(|| because.to_owned()) };
            return Verdict::Resolve { resolution: Box::new(resolution), asked: None, replay: None };
        }
        let (call, attempts) = (self.call, &self.view.attempts);
        let doubtful = call.doubt.and_then(|doubt| attempts.iter().find(|attempt| attempt.attempt == doubt));
        // What a later attempt came to is part of what is known.
        let refused = call.error_detail.as_deref().filter(|_| call.doubt.is_some_and(|doubt| doubt < call.attempt));
        let mut because = refused.unwrap_or(because).to_owned();
        if self.has_answer_in_vain() {
            because.push_str("; what a person answered to its question was not handed over any more");
        }
        let others = self.related().overtaken_by();
        let look_after = self.may_begin_until().filter(|until| self.rules.time.now() < *until);
        let attempt = doubtful.or(attempts.last());
        let (sends, late) = (Sends::of(attempts), &self.view.late);
        Verdict::Ask(Why::Unknown { attempt, sends, because, facts: self.facts, others, look_after, late })
    }

    /// Whether a person answered what the tool asked on its connection, and the answer never left.
    fn has_answer_in_vain(&self) -> bool {
        let Some(attempt) = self.view.last_attempt() else { return false };
        let input = attempt.handle.as_ref().and_then(|handle| handle.input.as_ref());
        input.is_some_and(|input| input.is_live && !input.is_sent)
            && self.view.questions.iter().any(|asked| {
                asked.kind == QuestionKind::Elicitation
                    && asked.answer.is_some()
                    && asked.created_at >= attempt.started_at
            })
    }

    /// Another attempt, under the old key.
    fn again(&self, ends_doubt: bool, word: Option<&QuestionRecord>) -> Verdict<'v> {
        Verdict::Start {
            key: self.rules.key(self.call, self.facts, None),
            ends_doubt,
            approved_by: word.map(|asked| asked.question_id.clone()),
            replay: Some(ReplayStatus::Redone),
        }
    }

    /// Why the call is not sent again by itself, if a run beside this one may have had its effect meanwhile.
    fn overtaken(&self) -> Option<String> {
        self.related().overtaken_by().first().map(|other| overtaken_by(other.call))
    }

    /// Why a redo under the same key would not be the same request any more, if it would not.
    fn keyed_redo_obstacle(&self) -> Option<String> {
        if self.call.file_digests != self.facts.file_digests {
            return Some("a file it sends has changed since".to_owned());
        }
        if let Some(why) = self.overtaken() {
            return Some(why);
        }
        let ttl = self.call.policy.key_ttl?;
        let first = self.view.attempts.first()?.started_at;
        self.rules.time.may_be_over(first, ttl).then(|| "the other side may have forgotten its key".to_owned())
    }
}

/// The refusal of a call because another one may have had its effect.
fn refused_beside<'v>(other: &CallRecord) -> Verdict<'v> {
    let message = format!(
        "Refused: call {} of this job, which is {}, may already have had this effect. Do not repeat it; go on.",
        other.call_id, other.status
    );
    Verdict::Cancel { resolution: Resolution::Refused, code: "near_duplicate", message }
}

fn overtaken_by(other: &CallRecord) -> String {
    format!("call {} of run {} may have had the effect since", other.call_id, other.run_id)
}

/// The question about a call in doubt, whatever its policy says; one that is there already stays.
pub(crate) fn held<'v>(view: &'v View, facts: &'v Facts, rules: &'v Rules<'v>, because: &str) -> Verdict<'v> {
    Case { call: &view.call, view, facts, rules }.hold(view.pending(), because)
}

#[cfg(test)]
#[path = "verdict/table.rs"]
mod table;
