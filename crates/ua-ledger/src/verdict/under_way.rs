//! A call that its tool has: a task, or one whose tool wants to know something first. It is followed where it is, and nowhere else.
//!
//! Being elsewhere is a question and no loss: the handle stays, and with the old settings back the call is followed as if nothing had been
//! otherwise. Only a person's word, or a policy that goes on in doubt, ends that.

use serde_json::Value;
use ua_core::{OnScopeConflict, OnUnknown};
use ua_store::{AttemptRecord, QuestionKind, QuestionRecord, QuestionStatus};

use super::against::Against;
use super::{Case, Decision, Verdict, Word, word};
use crate::elsewhere::is_followed_elsewhere;
use crate::question::{Reason, Why, shows};
use crate::related::{Other, lets_pass};
use crate::rules::Rules;

/// What becomes of answers that are about to be handed over.
#[derive(Debug)]
pub(crate) enum HandingOver<'v> {
    /// They go out, unless what was looked at is another thing by then.
    Send,
    /// A person was asked and has not answered.
    Hold(&'v QuestionRecord),
    /// A person has to be asked.
    Ask(Why<'v>),
    /// They do not go out: the tool is told no.
    Refuse,
    /// A person ended the run.
    Abort,
}

impl<'v> Case<'v> {
    pub(super) fn under_way(&self, attempt: &'v AttemptRecord) -> Decision<'v> {
        let pending = self.view.pending();
        let elicited = pending.filter(|asked| asked.kind == QuestionKind::Elicitation);
        // What was asked because it was elsewhere.
        let asked = pending.filter(|_| elicited.is_none());
        let elsewhere = is_followed_elsewhere(self.call, attempt, self.facts.destination.as_ref());
        let let_go = |asked: &QuestionRecord, why: String| {
            // It was followed until then and not since, whenever that was said.
            Verdict::LetGo { attempt, why, since: Some(asked.created_at) }.into()
        };
        match (word(asked), elsewhere) {
            (Word::Abort, _) => Verdict::Aborted.into(),
            // Asked before an answer is handed over, and heard there.
            (Word::Happened(asked) | Word::No(asked) | Word::Yes(asked) | Word::Open(asked), None)
                if asked.kind == QuestionKind::NearDuplicate =>
            {
                Verdict::GoOn(attempt).into()
            }
            // Whoever says what came of it is heard wherever it would go now.
            (Word::Happened(asked) | Word::No(asked), _) => {
                let_go(asked, "a person said what came of it while its tool still had it".to_owned())
            }
            // An order to send it was for where it would have gone then.
            (Word::Yes(_) | Word::Open(_) | Word::None, None) => {
                Decision { verdict: Verdict::GoOn(attempt), closes: asked.into_iter().collect() }
            }
            (Word::Yes(asked), Some(why)) if self.is_as_asked(asked) => let_go(asked, why),
            (Word::Open(asked), Some(_)) if Rules::showed_place_of(self.facts, asked) => Verdict::Hold(asked).into(),
            (Word::Yes(asked) | Word::Open(asked), Some(why)) => {
                Decision { verdict: self.hold(None, Against::Elsewhere, &why), closes: vec![asked] }
            }
            (Word::None, Some(why)) => self.moved_away(attempt, elicited, why),
        }
    }

    /// What a tool is told goes out as the call itself does: not where another call may have had the effect since it was sent, unless a person was
    /// asked about that one.
    pub(super) fn handing_over(&self) -> (HandingOver<'v>, Vec<&'v QuestionRecord>) {
        let asked = self.view.pending().filter(|asked| asked.kind == QuestionKind::NearDuplicate);
        let others: Vec<_> = self.related().in_the_way_since();
        let others: Vec<_> = others.into_iter().filter(|other| self.stands_in_the_way(other)).collect();
        let is_news = |asked: &QuestionRecord| others.iter().any(|other| !shows(asked, other));
        match word(asked) {
            Word::Abort => (HandingOver::Abort, Vec::new()),
            Word::No(_) | Word::Happened(_) => (HandingOver::Refuse, Vec::new()),
            Word::Open(asked) if !others.is_empty() && !is_news(asked) => (HandingOver::Hold(asked), Vec::new()),
            Word::Yes(_) | Word::Open(_) | Word::None if others.iter().all(|other| self.was_let_pass(other)) => {
                (HandingOver::Send, asked.into_iter().collect())
            }
            Word::Yes(_) | Word::Open(_) | Word::None => {
                if self.call.policy.on_scope_conflict == OnScopeConflict::Refuse {
                    return (HandingOver::Refuse, Vec::new());
                }
                let beside = self.longest_of(&others);
                let first = Reason::NearDuplicate(others);
                let (facts, more, changed) = (self.facts, Vec::new(), Vec::new());
                let late = &self.view.late_of_others;
                let why = Why::Send { facts, first, more, changed, earlier: None, beside, late, lost: None };
                (HandingOver::Ask(why), asked.into_iter().collect())
            }
        }
    }

    /// What a policy allows in other words is made once in the same ones, where those say what the effect is.
    fn stands_in_the_way(&self, other: &Other<'_>) -> bool {
        let says_what = self.call.policy.is_by_content() && !self.call.policy.kind_is_guessed;
        !lets_pass(self.call) || (says_what && self.is_in_the_same_words(other.call))
    }

    /// Nobody was asked about a call that is followed elsewhere.
    fn moved_away(
        &self,
        attempt: &'v AttemptRecord,
        elicited: Option<&'v QuestionRecord>,
        why: String,
    ) -> Decision<'v> {
        match word(elicited) {
            Word::Abort => return Verdict::Aborted.into(),
            Word::Yes(asked) | Word::Happened(asked) | Word::No(asked) if answers(asked, attempt) => {
                return Verdict::KeepAnswer(asked).into();
            }
            // The tool asks again when it is followed again.
            Word::Yes(_) | Word::Happened(_) | Word::No(_) | Word::Open(_) | Word::None => {}
        }
        if self.call.policy.on_unknown == OnUnknown::Continue {
            return Verdict::LetGo { attempt, why, since: None }.into();
        }
        Decision { verdict: self.hold(None, Against::Elsewhere, &why), closes: elicited.into_iter().collect() }
    }
}

/// Whether a question was answered that the tool still waits for.
fn answers(asked: &QuestionRecord, attempt: &AttemptRecord) -> bool {
    let handle = attempt
        .handle
        .as_ref()
        .filter(|handle| handle.input.as_ref().is_some_and(|input| !input.is_live && !input.is_sent));
    let waits_for = handle.and_then(|handle| handle.open_request());
    let round = handle.and_then(|handle| handle.input.as_ref()).map(|input| u64::from(input.round));
    asked.status == QuestionStatus::Answered
        && waits_for.is_some_and(|(name, _)| asked.detail.get("request").and_then(Value::as_str) == Some(name))
        && asked.detail.get("round").and_then(Value::as_u64) == round
}
