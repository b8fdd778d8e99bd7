//! A call that was not sent yet: may it go out, with all that speaks against it now?

use ua_core::{CallStatus, IdempotencyKey, OnScopeConflict, Resolution};
use ua_store::{CallRecord, QuestionKind, QuestionRecord};

use super::{Case, Decision, Verdict, Word, lets_go, word};
use crate::admission::SincePlanned;
use crate::lost::LostCall;
use crate::outside::Still;
use crate::people::{CallsOf, MAX_ASKED, RecipientRule, decide_yourself, declined};
use crate::question::{Reason, Why, earlier_of, look_after, shows, stands, tells_of, whose};
use crate::related::Other;
use crate::rules::Rules;

impl<'v> Case<'v> {
    pub(super) fn prepared(&self) -> Decision<'v> {
        // Nothing is sent on that word, so it is heard whatever became of the tool.
        if let Word::Happened(asked) = word(self.view.pending())
            && let Some((twin, key)) = self.earlier_by(asked)
        {
            return Verdict::DeduplicateFrom { twin, key }.into();
        }
        if self.rules.is_for_another_tool(self.call) && !matches!(word(self.view.pending()), Word::Abort | Word::No(_))
        {
            return Decision { verdict: self.of_another_tool(), closes: self.view.pending().into_iter().collect() };
        }
        if self.rules.is_gone(self.call) && !matches!(word(self.view.pending()), Word::Abort | Word::No(_)) {
            return Decision { verdict: self.of_no_tool(), closes: self.view.pending().into_iter().collect() };
        }
        if self.facts.since_planned == SincePlanned::Stricter
            && !matches!(word(self.view.pending()), Word::Abort | Word::No(_))
        {
            return Decision {
                verdict: self.under_other_policies(),
                closes: self.view.pending().into_iter().collect(),
            };
        }
        let mut closes = Vec::new();
        let (mut approved_by, mut unanswered, mut before, mut heard) = (None, None, None, None);
        let mut said_done = None;
        match word(self.view.pending()) {
            Word::None => {}
            Word::Abort => return Verdict::Aborted.into(),
            // It would go somewhere else by now than the question says: whoever answers it has not seen where. Where it went at first, an earlier
            // word is about it still, and nobody is asked.
            Word::Open(asked) if self.facts.destination.is_some() && !Rules::showed_place_of(self.facts, asked) => {
                closes.push(asked);
                heard = self.word_about_it();
                before = self.last_word_about_another();
            }
            // Since it was asked an older copy of the database was put back: whoever answers it knows nothing of what the copy lacks.
            Word::Open(asked) if self.asked_next().is_some_and(|lost| !tells_of(asked, &lost, self.call)) => {
                closes.push(asked);
            }
            // What it is about may have been settled meanwhile; then nobody has to answer it any more.
            Word::Open(asked) if asked.kind == QuestionKind::NearDuplicate => unanswered = Some(asked),
            Word::Open(asked) => return Verdict::Hold(asked).into(),
            // Not what was shown any more, so the word is not about it: it is asked again.
            Word::Yes(asked) if !self.is_as_asked(asked) || self.is_news_since(asked) => {
                before = Some(asked);
                closes.push(asked);
            }
            Word::Yes(asked) => approved_by = Some(asked),
            // The call that was named does not stand as it was shown, so it is asked again; the word lets nothing go out.
            Word::Happened(asked) => {
                said_done = Some(asked);
                closes.push(asked);
            }
            Word::No(asked) => {
                let (resolution, message) = (Resolution::Skipped, declined(asked));
                return Verdict::Cancel { resolution, code: "declined", message }.into();
            }
        }
        let is_repeat = approved_by.or(heard).is_some_and(|asked| asked.kind == QuestionKind::NearDuplicate);
        let own = Some(&self.call.call_id);
        let place = if is_repeat { own } else { self.view.in_place_of.as_ref() };
        let mut key = self.rules.key(self.call, self.facts, place);
        if let Some(twin) = self.view.twin.as_ref().filter(|_| !is_repeat) {
            // What nobody declared to be one effect in the same words is not taken for it without a person's word, nor what was done somewhere else.
            let is_its_own = !self.call.policy.kind_is_guessed && !twin.is_elsewhere;
            if twin.call.status == CallStatus::Succeeded && is_its_own {
                closes.extend(unanswered.or(approved_by)); // asked before the twin was sent
                return Decision { verdict: Verdict::DeduplicateFrom { twin: &twin.call, key }, closes };
            }
            if twin.is_under_way_beside {
                closes.extend(unanswered);
                return Decision { verdict: Verdict::WaitFor(&twin.call), closes };
            }
        }
        // What it says of the other calls is not so any more: a person who reads it now is to know how they stand.
        if let Some(stale) = unanswered.take_if(|asked| self.is_news_since(asked)) {
            closes.push(stale);
        }
        let mut reasons = Vec::new();
        let others = self.others();
        if let Some(other) = others.first() {
            match (self.call.policy.on_scope_conflict, unanswered) {
                // In other words it is an effect of its own; in the same words that may mean another one it needs a key of its own.
                (OnScopeConflict::Allow, _) if self.view.twin.is_some() && !self.is_in_the_same_words_as_a_doubt() => {
                    key = self.rules.key(self.call, self.facts, own);
                }
                (OnScopeConflict::Allow, _) if self.view.twin.is_none() && !self.may_be_the_same_unseen(&others) => {}
                (OnScopeConflict::Allow | OnScopeConflict::Ask | OnScopeConflict::Refuse, Some(asked)) => {
                    return Decision { verdict: Verdict::Hold(asked), closes };
                }
                (OnScopeConflict::Refuse, None) if !is_repeat => {
                    closes.extend(approved_by);
                    return Decision { verdict: self.refused_beside(other.call), closes };
                }
                (OnScopeConflict::Allow | OnScopeConflict::Ask | OnScopeConflict::Refuse, None) => {
                    reasons.push(Reason::NearDuplicate(others));
                }
            }
        }
        closes.extend(unanswered);
        if let Some(problem) = self.rules.recipient_problem(self.call, &self.view.known) {
            if !matches!(self.rules.people.recipients, RecipientRule::Ask { .. }) {
                closes.extend(approved_by);
                let (resolution, code) = (Resolution::Refused, "ambiguous_recipient");
                let problem = problem.in_words(self.rules.calls_of);
                let message = format!("Not sent: {problem} Correct the recipient and ask again.");
                return Decision { verdict: Verdict::Cancel { resolution, code, message }, closes };
            }
            reasons.push(Reason::AmbiguousRecipient(problem));
        }
        if self.facts.need_approval(self.call) {
            reasons.push(Reason::Approval);
        }
        reasons.extend(self.tainted());
        reasons.extend(self.made_addresses());
        // Nothing is sent on that word, and what it said is not so any more: whether the call is wanted now is a person's to say again.
        if let Some(earlier) = said_done.and_then(earlier_of)
            && !matches!(reasons.first(), Some(Reason::NearDuplicate(_)))
        {
            reasons.push(Reason::Moved(earlier));
        }
        if let Some(why) = self.not_heard(reasons, approved_by.or(heard), before) {
            closes.extend(approved_by);
            return Decision { verdict: Verdict::Ask(why), closes };
        }
        if let Some(asked) = said_done {
            // Closed in the write that ends the call: closed before it, a process that takes over would know nothing of the word.
            closes.retain(|closed| closed.question_id != asked.question_id);
            return Decision { verdict: not_what_was_shown(), closes };
        }
        let verdict = Verdict::Start {
            key,
            ends_doubt: false,
            approved_by: approved_by.map(|asked| asked.question_id.clone()),
            replay: None,
        };
        Decision { verdict, closes }
    }

    /// The call that a person says was this very effect, with its key, if everything stands as they were shown it.
    pub(super) fn earlier_by(&self, asked: &QuestionRecord) -> Option<(&'v CallRecord, IdempotencyKey)> {
        if !self.is_as_asked(asked) || self.is_news_since(asked) {
            return None;
        }
        let named = earlier_of(asked)?;
        let earlier = self.others().into_iter().map(|other| other.call).find(|call| call.call_id.as_str() == named)?;
        Some((earlier, earlier.idempotency_key.clone().filter(|_| self.may_answer(earlier))?))
    }

    /// Whether another call can have been this one's effect, such that its answer is this one's, too: it succeeded by itself in the same lineage,
    /// and nothing was sent for this one, or what was did nothing. A task is done by its child run, of which another task has nothing.
    fn may_answer(&self, other: &CallRecord) -> bool {
        let did_nothing = match self.call.status {
            CallStatus::Prepared => true,
            // One key stands for one effect, and the other call has it.
            CallStatus::FailedDefinite => other.idempotency_key != self.call.idempotency_key,
            CallStatus::Running
            | CallStatus::Unknown
            | CallStatus::Succeeded
            | CallStatus::FailedReported
            | CallStatus::Cancelled => false,
        };
        did_nothing
            && !self.call.name.is_task()
            && other.status == CallStatus::Succeeded
            && other.deduplicated_from.is_none()
            && other.root_run_id == self.call.root_run_id
            && other.idempotency_key.is_some()
    }

    /// The refusal of a call that was planned for what its tool was before.
    fn of_another_tool(&self) -> Verdict<'v> {
        let message = format!(
            "Not run: the definition of `{}` has changed since this call was planned. Look at the tool as it is now, and make the call \
             again if it is still wanted.",
            self.call.name.tool
        );
        Verdict::Cancel { resolution: Resolution::Refused, code: "tool_changed", message }
    }

    /// The refusal of a call that was planned under laxer policies than those that hold now.
    fn under_other_policies(&self) -> Verdict<'v> {
        let since = match self.rules.calls_of {
            CallsOf::Job | CallsOf::Step => "were accepted for this run since this call",
            CallsOf::Session => "hold since this call",
        };
        let message = format!(
            "Not run: stricter policies {since} of `{}` was planned. Make the call again if it is still wanted; it is then planned under them.",
            self.call.name.tool
        );
        Verdict::Cancel { resolution: Resolution::Refused, code: "policy_changed", message }
    }

    /// The refusal of a call whose tool is not there any more.
    fn of_no_tool(&self) -> Verdict<'v> {
        let message = format!(
            "Not run: `{}` is not offered any more. Use only the tools that are offered now, or continue without it.",
            self.call.name.tool
        );
        Verdict::Cancel { resolution: Resolution::Refused, code: "tool_gone", message }
    }

    /// The refusal of a call because another one may have had its effect.
    fn refused_beside(&self, other: &CallRecord) -> Verdict<'v> {
        let of = whose(self.rules.calls_of, self.call, other);
        let message = match self.rules.calls_of {
            CallsOf::Job | CallsOf::Step => format!(
                "Refused: call {} of this {} ({}) may already have had this effect. Do not repeat it; go on.",
                other.call_id,
                self.rules.calls_of.noun(),
                stands(self.rules.calls_of, other)
            ),
            CallsOf::Session => format!(
                "Refused: call {}{of} ({}) may already have had this effect. Do not repeat it; continue with other work.",
                other.call_id,
                other.status.in_words()
            ),
        };
        Verdict::Cancel { resolution: Resolution::Refused, code: "near_duplicate", message }
    }

    /// Where it sends something that nobody named, of a run that is tainted.
    pub(super) fn tainted(&self) -> Option<Reason<'v>> {
        self.rules.tainted_effect(self.call, self.view.is_tainted, &self.view.known).map(Reason::Tainted)
    }

    /// The addresses that it would read and that nobody but the model has written, where that may carry something away.
    pub(super) fn made_addresses(&self) -> Option<Reason<'v>> {
        // A question about an effect shows where it goes already.
        if !self.view.is_tainted || self.tainted().is_some() {
            return None;
        }
        let made = self.rules.made_addresses(self.call, &self.view.heard);
        (!made.is_empty()).then_some(Reason::MadeAddress(made))
    }

    /// What a person is asked before the call goes out: all that speaks against it now, unless their word was about all of that. `before` is one
    /// that was about the call as it was then.
    pub(super) fn not_heard(
        &self,
        reasons: Vec<Reason<'v>>,
        said: Option<&QuestionRecord>,
        before: Option<&QuestionRecord>,
    ) -> Option<Why<'v>> {
        if reasons.iter().all(|reason| said.is_some_and(|asked| reason.is_shown_by(asked))) {
            return None;
        }
        let mut reasons = reasons.into_iter();
        let mut first = reasons.next()?;
        if let Reason::NearDuplicate(others) = &mut first {
            for other in others.iter_mut() {
                other.is_left = self.is_left(other.call);
            }
        }
        let changed = before.map(|asked| {
            let is_approved = asked.answer.as_ref().is_some_and(|answer| lets_go(answer.choice));
            let shown = if is_approved { "approved" } else { "were shown" };
            self.rules.changed_since(self.call, self.facts, asked, shown)
        });
        let earlier = if let Reason::NearDuplicate(others) = &first {
            // The one that is told of first: the answer is about what its question shows.
            others.first().map(|other| other.call).filter(|other| self.may_answer(other))
        } else {
            None
        };
        let changed = changed.unwrap_or_default();
        let beside = if let Reason::NearDuplicate(others) = &first { self.longest_of(others) } else { None };
        let late = if matches!(first, Reason::NearDuplicate(_)) { &self.view.late_of_others[..] } else { &[] };
        let (facts, more, lost) = (self.facts, reasons.collect(), self.asked_next());
        Some(Why::Send { facts, first, more, changed, earlier, beside, late, lost })
    }

    /// Whether a call is under way in its records, and no process is at it any more.
    fn is_left(&self, call: &CallRecord) -> bool {
        let still = self.view.still.get(&call.call_id);
        call.status == CallStatus::Running && still.is_some_and(|still| *still != Still::UnderWay)
    }

    /// What is asked about as soon as the call may go out: whoever is asked before reads of it.
    pub(super) fn asked_next(&self) -> Option<Box<LostCall>> {
        self.view.lost.as_ref().and_then(LostCall::about_to_be_asked).map(Box::new)
    }

    /// The calls that may have had this one's effect: the one that holds its key, and those that stand in its way.
    pub(super) fn others(&self) -> Vec<Other<'v>> {
        let mut others = self.related().in_the_way();
        if let Some(twin) = &self.view.twin {
            let known = others.iter().position(|other| other.call.call_id == twin.call.call_id);
            let count = known.map_or(1, |known| others.remove(known).count);
            others.insert(0, Other { call: &twin.call, count, is_left: false });
        }
        others
    }

    /// Whether one of `others` is in the same words, and nobody can tell by what is sent, or by what that one sent, whether it is the same effect. What
    /// a policy allows in other words is made once in the same ones.
    fn may_be_the_same_unseen(&self, others: &[Other<'v>]) -> bool {
        let in_the_same_words = |other: &Other<'_>| self.is_in_the_same_words(other.call);
        // Nor does the key tell it where one that was lost had it: the call in that one's place has a key of its own.
        let is_told_by_no_key = self.view.lost_keys.is_some() && !self.call.policy.kind_is_guessed;
        let cannot_tell = !self.facts.files.are_all_known() || is_told_by_no_key;
        let was_unseen =
            |other: &Other<'_>| self.view.unseen.iter().any(|unseen| unseen.newest.call_id == other.call.call_id);
        let may_be_the_same = |other: &Other<'_>| (cannot_tell && in_the_same_words(other)) || was_unseen(other);
        self.call.policy.is_by_content() && others.iter().any(may_be_the_same)
    }

    /// Whether another call is the same, under whichever name of its server.
    pub(super) fn is_in_the_same_words(&self, other: &CallRecord) -> bool {
        let is_renamed = || self.view.renamed.iter().any(|renamed| renamed.newest.call_id == other.call_id);
        other.args_hash == self.call.args_hash && (other.name.raw == self.call.name.raw || is_renamed())
    }

    /// Whether its twin has its words, which say what the effect is, and nobody knows yet what came of that one: what a policy allows is made once in
    /// the same words.
    fn is_in_the_same_words_as_a_doubt(&self) -> bool {
        self.view.twin.as_ref().is_some_and(|twin| {
            let is_open = match twin.call.status {
                CallStatus::Running | CallStatus::Unknown => true,
                CallStatus::Prepared
                | CallStatus::Succeeded
                | CallStatus::FailedDefinite
                | CallStatus::FailedReported
                | CallStatus::Cancelled => false,
            };
            is_open && !self.call.policy.kind_is_guessed && !twin.is_elsewhere
        })
    }

    /// Whether something stands in the way that a person who was asked about other calls was not shown as it is now: what was running may
    /// have succeeded, another call may have come, and what they looked for may have come behind them.
    pub(super) fn is_news_since(&self, asked: &QuestionRecord) -> bool {
        let others = self.others();
        asked.kind == QuestionKind::NearDuplicate
            && (others.iter().any(|other| !shows(asked, other)) || self.was_said_too_early(asked, &others))
    }

    /// The one of these calls that may still have its effect the longest.
    pub(super) fn longest_of(&self, others: &[Other<'v>]) -> Option<(&'v CallRecord, Still)> {
        let still = |other: &Other<'v>| Some((other.call, *self.view.still.get(&other.call.call_id)?));
        others.iter().filter_map(still).filter(|(_, still)| *still > Still::Over).max_by_key(|(_, still)| *still)
    }

    /// Whether whoever let the call go may have looked before one of `others` had its effect. From when on a look counts is what they were shown; a
    /// clock that was set since moves it no more.
    pub(super) fn was_said_too_early(&self, asked: &QuestionRecord, others: &[Other<'v>]) -> bool {
        let Some(answer) = asked.answer.as_ref().filter(|answer| lets_go(answer.choice)) else { return false };
        let is_open = |other: &Other<'_>| self.view.still.contains_key(&other.call.call_id);
        let now = self.longest_of(others).map(|(_, still)| still);
        match (look_after(asked), now) {
            (_, Some(Still::UnderWay)) => true,
            (Some(until), _) => others.iter().any(is_open) && answer.answered_at < until,
            (None, Some(Still::Until(until))) => answer.answered_at < until,
            (None, Some(Still::Over) | None) => false,
        }
    }

    /// `ask_user`: the call waits for a person's words, which then are its answer.
    pub(super) fn ask_user(&self) -> Verdict<'v> {
        match word(self.view.pending()) {
            Word::Abort => Verdict::Aborted,
            Word::Open(asked) => Verdict::Hold(asked),
            Word::Yes(asked) => Verdict::Start {
                key: self.rules.key(self.call, self.facts, None),
                ends_doubt: false,
                approved_by: Some(asked.question_id.clone()),
                replay: None,
            },
            Word::No(_) | Word::Happened(_) => Verdict::Cancel {
                resolution: Resolution::Skipped,
                code: "declined",
                message: decide_yourself(self.rules.calls_of.audience()),
            },
            Word::None if self.view.asked_before >= MAX_ASKED => Verdict::Cancel {
                resolution: Resolution::Refused,
                code: "asked_enough",
                message: format!(
                    "This run has asked {} questions, which is as many as it may. {}",
                    self.view.asked_before,
                    decide_yourself(self.rules.calls_of.audience())
                ),
            },
            Word::None => Verdict::Ask(Why::AskUser),
        }
    }
}

/// The end of a call of which a person said that an earlier one was it, where that one does not stand any more as it was shown.
fn not_what_was_shown<'v>() -> Verdict<'v> {
    let message = "Not sent: a person said that an earlier call had this effect already, and what is recorded about that call has changed \
                   since. Make the call again if it is still wanted.";
    Verdict::Cancel { resolution: Resolution::Refused, code: "near_duplicate", message: message.to_owned() }
}
