//! A call that definitely did nothing, tried again: as any other call, it goes out only if nobody had its effect meanwhile.

use serde_json::Value;
use ua_core::OnScopeConflict;
use ua_store::{Choice, QuestionKind, QuestionRecord};

use super::{Case, Decision, Verdict, Word, lets_go, word};
use crate::admission::SincePlanned;
use crate::people::{Named, RecipientRule, allows};
use crate::question::{Reason, Why, earlier_of, shows};
use crate::related::{Other, lets_pass};

impl<'v> Case<'v> {
    pub(super) fn failed(&self) -> Decision<'v> {
        // Nothing is sent on that word, so it is heard whatever became of the tool.
        if let Word::Happened(asked) = word(self.view.pending())
            && let Some((earlier, _)) = self.earlier_by(asked)
        {
            return Verdict::PutRight { asked, earlier }.into();
        }
        let asks_for_credentials = self.rules.asks_for_credentials(self.call);
        if !self.rules.may_retry(self.call) && !asks_for_credentials {
            if matches!(word(self.view.pending()), Word::Abort) {
                return Verdict::Aborted.into();
            }
            return Decision { verdict: Verdict::Settled, closes: self.view.pending().into_iter().collect() };
        }
        let is_another = self.rules.is_for_another_tool(self.call)
            || self.rules.is_gone(self.call)
            || self.facts.since_planned == SincePlanned::Stricter;
        if is_another && !matches!(word(self.view.pending()), Word::Abort) {
            return Decision { verdict: Verdict::Settled, closes: self.view.pending().into_iter().collect() };
        }
        let mut closes = Vec::new();
        let (mut approved_by, mut said_done) = (None, None);
        match word(self.view.pending()) {
            Word::None => said_done = self.last_word_that_another_did_it(),
            Word::Abort => return Verdict::Aborted.into(),
            Word::Open(asked) => return Verdict::Hold(asked).into(),
            // That another call was it is no word to send this one. What was shown is not so any more, so it is asked again.
            Word::Happened(asked) if earlier_of(asked).is_some() => {
                said_done = Some(asked);
                closes.push(asked);
            }
            Word::Happened(asked) | Word::No(asked) => {
                return Decision { verdict: Verdict::Settled, closes: vec![asked] };
            }
            Word::Yes(asked) => {
                // Whoever mends credentials does not look at the call; every other word is about what was shown.
                let is_about_it = asked.kind != QuestionKind::AuthFailure;
                if is_about_it && (!self.is_as_asked(asked) || self.is_news_since(asked)) {
                    closes.push(asked);
                } else {
                    approved_by = Some(asked);
                }
            }
        }
        if approved_by.is_none() && said_done.is_none() && self.was_left_as_it_is() {
            return Decision { verdict: Verdict::Settled, closes };
        }
        if approved_by.is_none() && said_done.is_none() && closes.is_empty() && asks_for_credentials {
            return Verdict::Ask(Why::AuthFailure { facts: self.facts, lost: self.asked_next() }).into();
        }
        // What was done somewhere else is not this effect: a person says whether it is wanted here, under a key of its own.
        let is_elsewhere = self.view.twin.as_ref().is_some_and(|twin| twin.is_elsewhere);
        if self.view.twin.is_some() && !is_elsewhere {
            closes.extend(approved_by);
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
        if let Some(earlier) = said_done.and_then(earlier_of)
            && !matches!(reasons.first(), Some(Reason::NearDuplicate(_)))
        {
            reasons.push(Reason::Moved(earlier));
        }
        let before = closes.first().copied().or(said_done).or_else(|| self.last_word_about_another());
        if let Some(why) = self.not_heard(reasons, approved_by, before) {
            closes.extend(approved_by);
            return Decision { verdict: Verdict::Ask(why), closes };
        }
        let place = if is_elsewhere { Some(&self.call.call_id) } else { self.view.in_place_of.as_ref() };
        let start = Verdict::Start {
            key: self.rules.key_of_retry(self.call, self.facts, place),
            ends_doubt: false,
            approved_by: approved_by.map(|asked| asked.question_id.clone()),
            replay: None,
        };
        Decision { verdict: start, closes }
    }

    /// Whether a person left this very failure as it is.
    fn was_left_as_it_is(&self) -> bool {
        let was_skipped = self.answered_about_this_failure().any(|(_, choice)| choice == Choice::Skip);
        let last = self.answered_about_this_failure().last();
        was_skipped || last.is_some_and(|(_, choice)| choice == Choice::Happened)
    }

    /// The last word about this very failure, if it is that another call had its effect, which is not so any more, as it was shown: a process may have
    /// ended before it asked again.
    fn last_word_that_another_did_it(&self) -> Option<&'v QuestionRecord> {
        let (asked, choice) = self.answered_about_this_failure().last()?;
        (choice == Choice::Happened && earlier_of(asked).is_some() && self.earlier_by(asked).is_none()).then_some(asked)
    }

    /// What persons answered about this very failure, oldest first.
    fn answered_about_this_failure(&self) -> impl Iterator<Item = (&'v QuestionRecord, Choice)> {
        let attempt = u64::from(self.call.attempt);
        let is_about_it =
            move |asked: &&QuestionRecord| asked.detail.get("attempt").and_then(Value::as_u64) == Some(attempt);
        let answered = |asked: &'v QuestionRecord| Some((asked, asked.answer.as_ref()?.choice));
        self.view.questions.iter().filter(is_about_it).filter_map(answered)
    }

    /// The newest word that let this call go, where that was about what it does not do any more.
    pub(super) fn last_word_about_another(&self) -> Option<&'v QuestionRecord> {
        let newest = self.view.questions.iter().rev().find(|asked| is_about_it(asked))?;
        (!self.is_as_asked(newest)).then_some(newest)
    }

    /// The newest word that let this call go, if it is about what would be sent now.
    pub(super) fn word_about_it(&self) -> Option<&'v QuestionRecord> {
        let mut words = self.view.questions.iter().rev().filter(|asked| is_about_it(asked));
        words.find(|asked| self.is_as_asked(asked) && !self.is_news_since(asked))
    }

    /// What speaks against sending a call again that did nothing: what it needs a word for, and nobody has said one about what would be
    /// sent now. Its arguments are those that went out before; its files and its tool may be others.
    fn anew(&self) -> Vec<Reason<'v>> {
        let allowed = |asked: &&QuestionRecord| is_about_it(asked);
        let was_heard = |reason: &Reason<'_>| {
            let mut words = self.view.questions.iter().rev().filter(allowed);
            words.find(|asked| reason.is_shown_by(asked)).map(|asked| self.is_as_asked(asked))
        };
        let is_as_sent = self.call.scope == self.facts.scope && self.facts.files.are_those_of(self.call);
        let mut reasons = Vec::new();
        if matches!(self.rules.people.recipients, RecipientRule::Ask { .. })
            && let Some(problem) = self.rules.recipient_problem(self.call, &Named::default())
        {
            let reason = Reason::AmbiguousRecipient(problem);
            if was_heard(&reason) == Some(false) {
                reasons.push(reason);
            }
        }
        if self.facts.need_approval(self.call) && was_heard(&Reason::Approval) != Some(true) {
            reasons.push(Reason::Approval);
        }
        match (was_heard(&Reason::Tainted(Vec::new())), self.tainted()) {
            (Some(false), tainted) => reasons.push(tainted.unwrap_or(Reason::Tainted(Vec::new()))),
            (None, tainted) => reasons.extend(tainted.filter(|_| !is_as_sent)),
            (Some(true), _) => {}
        }
        // Its arguments went out before; only a word that was about something else is asked for again.
        reasons.extend(self.made_addresses().filter(|reason| was_heard(reason) == Some(false)));
        reasons
    }

    /// Whether a person let this call go out although they knew of the other one as it is now.
    pub(super) fn was_let_pass(&self, other: &Other<'v>) -> bool {
        self.view.questions.iter().any(|asked| {
            asked.kind == QuestionKind::NearDuplicate
                && shows(asked, other)
                && asked.answer.as_ref().is_some_and(|answer| lets_go(answer.choice))
                && self.is_as_asked(asked)
                && !self.was_said_too_early(asked, std::slice::from_ref(other))
        })
    }
}

/// Whether a person let the call go, having looked at what it does: whoever mends credentials does not.
fn is_about_it(asked: &QuestionRecord) -> bool {
    allows(asked) && asked.kind != QuestionKind::AuthFailure
}
