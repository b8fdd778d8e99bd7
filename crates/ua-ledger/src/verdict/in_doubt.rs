//! A call that was sent, and nobody knows what came of it.

use std::time::Duration;

use serde_json::Value;
use ua_core::{CallStatus, EvidenceLevel, OnUnknown, RawReply, Resolution, Time, Timestamp};
use ua_store::rules::{made_by, said_beside, was_answered_beside};
use ua_store::{CallRecord, LateReply, QuestionKind, QuestionRecord, QuestionStatus, ReplayStatus, UnknownResolution};

use super::against::{Against, was_told};
use super::{Case, Decision, Known, Verdict, Word, happened, lets_go, word};
use crate::effect_limit::EffectLimit;
use crate::elsewhere::elsewhere;
use crate::enquiry::{Asked, Finding, GivenUp, given_up_at, horizon};
use crate::interpret::{interpret, was_turned_away};
use crate::late::answer_beside;
use crate::lost::LostCall;
use crate::outside::Still;
use crate::people::CallsOf;
use crate::question::{Why, look_after, shows, whose};
use crate::rules::Rules;
use crate::sends::Sends;

impl<'v> Case<'v> {
    pub(super) fn unknown(&self, known: Known<'v>) -> Decision<'v> {
        if self.call.resolution == Some(Resolution::Skipped) {
            return Verdict::Settled.into();
        }
        let pending = self.view.questions.iter().filter(|question| question.status != QuestionStatus::Closed);
        let (mut closes, rest): (Vec<_>, Vec<_>) = pending.partition(|question| self.is_of_what_was_sent(question));
        let asked = rest.into_iter().next();
        // Under another setup than its own nothing is sent and nothing is known of what it was asked about: only who says what came of it is heard.
        if self.facts.is_as_sent
            && let Word::Open(asked) | Word::Yes(asked) = word(asked)
        {
            return Decision { verdict: Verdict::Hold(asked), closes };
        }
        // It tells of another place than the call would go to now, or of a reason that does not hold any more: perhaps nobody has to answer.
        let is_of_before = |asked: &QuestionRecord| {
            asked.answer.is_none() && !(Rules::showed_place_of(self.facts, asked) && self.is_still_so(asked))
        };
        let asked = match asked {
            Some(asked) if is_of_before(asked) => {
                closes.push(asked);
                None
            }
            asked => asked,
        };
        let resolve =
            |asked, resolution| Verdict::Resolve { resolution: Box::new(resolution), asked: Some(asked), replay: None };
        let late = answer_beside(self.call, &self.view.attempts, &self.view.late);
        let says_done = |late: &LateReply| interpret(&late.reply, &self.call.policy).status == CallStatus::Succeeded;
        let verdict = match (word(asked), known, late) {
            (Word::Abort, _, _) => Verdict::Aborted,
            // Its own answer says more than a person's word that it happened.
            (Word::Happened(_), _, Some(late)) if says_done(late) => Verdict::Answered { late, asked },
            // Nothing is sent, so nobody waits for the process it was sent to.
            (Word::Happened(asked), _, _) => resolve(asked, happened(self.call, asked)),
            (Word::No(asked), _, _) => resolve(asked, UnknownResolution::Skipped),
            // It was answered, so nothing is sent whatever was ordered.
            (Word::Yes(_) | Word::Open(_) | Word::None, _, Some(late)) => Verdict::Answered { late, asked },
            // A question waits as well for what can be ended: whoever looks before that process is gone may look too early.
            (Word::Yes(_) | Word::Open(_) | Word::None, Known::Nothing, None)
            | (Word::Yes(_), Known::MayBegin(_), None) => Verdict::Fence,
            // What cannot be ended is only waited for, and a question says until when a look is too early.
            (Word::Open(_) | Word::None, Known::MayBegin(_), None) => {
                Some(self.by_policy(asked)).filter(Verdict::sends_nothing).unwrap_or(Verdict::Fence)
            }
            // Whoever orders it may not have looked where the policy can.
            (Word::Yes(_), Known::Gone, None) if self.can_be_looked_up() => Verdict::Probe,
            (Word::Yes(asked), Known::Probed(said), None) => match self.found(said, Some(asked)) {
                Some(verdict) => verdict,
                None => return self.ordered(asked, Some(said), closes),
            },
            (Word::Yes(asked), Known::Gone, None) => return self.ordered(asked, None, closes),
            (Word::Open(_) | Word::None, Known::Gone, None) => self.by_policy(asked),
            (Word::Open(_) | Word::None, Known::Probed(said), None) => return self.by_probe(said, asked, closes),
        };
        Decision { verdict, closes }
    }

    /// Whether a question is of no use any more once nobody knows whether the call happened: what its tool asked for; and whether what was answered to
    /// that may be delivered, which was asked while the call was under way. Who lets it be delivered says nothing of what became of the call since.
    fn is_of_what_was_sent(&self, question: &QuestionRecord) -> bool {
        // A question names the attempt that it was asked in; by the clock it may be older than that, which may have been set back.
        let was_asked_in_it =
            question.detail.get("attempt").and_then(Value::as_u64) == Some(u64::from(self.call.attempt));
        let since = self.view.last_attempt().map(|attempt| attempt.started_at);
        let is_about_it = question.kind == QuestionKind::NearDuplicate
            && since.is_some_and(|since| was_asked_in_it || question.created_at >= since)
            && question.answer.as_ref().is_none_or(|answer| lets_go(answer.choice));
        is_about_it || question.kind == QuestionKind::Elicitation
    }

    fn can_be_looked_up(&self) -> bool {
        self.call.policy.on_unknown == OnUnknown::Probe && self.view.alike.is_none() && self.elsewhere().is_none()
    }

    /// Why neither the call's key nor a look says anything about it.
    pub(super) fn elsewhere(&self) -> Option<String> {
        elsewhere(self.call, &self.view.attempts, self.facts.destination.as_ref())
    }

    /// A probe has seen it, and no other call can have left behind what it saw.
    fn found(&self, said: &Asked, asked: Option<&'v QuestionRecord>) -> Option<Verdict<'v>> {
        let Finding::Found { id, item, by } = &said.finding else { return None };
        if self.view.alike.is_some() || self.elsewhere().is_some() {
            return None;
        }
        let raw = RawReply::Found {
            tool: said.tool.clone(),
            id: id.clone(),
            item: item.clone(),
            by: Some(by.clone()).filter(|by| !by.is_empty()),
        };
        let settlement = interpret(&raw, &self.call.policy);
        let resolution = UnknownResolution::Happened { raw, settlement, evidence: EvidenceLevel::Reconciled };
        Some(Verdict::Resolve { resolution: Box::new(resolution), asked, replay: Some(ReplayStatus::Reconciled) })
    }

    /// Why a find would prove nothing about this call, if another one may have left behind the same.
    pub(super) fn not_told_apart(&self) -> Option<String> {
        let other = self.view.alike.as_ref()?;
        let unique = self.call.policy.probe.as_ref().map(|probe| probe.unique_arguments.join(", "));
        let what = unique.filter(|unique| !unique.is_empty()).unwrap_or_else(|| "values".to_owned());
        Some(format!("call {other} has the same {what}, so a find proves nothing"))
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
        let probed = probed.filter(|_| self.elsewhere().is_none());
        if let Some(other) = self.related().overtaken_by().into_iter().find(|other| !shows(asked, other)) {
            closes.push(asked);
            let because = self.because_of(other.call);
            return Decision { verdict: self.hold(None, Against::Overtaken, &because), closes };
        }
        if let Some((other, Still::UnderWay)) = self.longest_of(&self.related().overtaken_by()) {
            closes.push(asked);
            let because = self.because_of(other);
            return Decision { verdict: self.hold(None, Against::Overtaken, &because), closes };
        }
        if let Some(because) = self.says(Against::ToolGone) {
            closes.push(asked);
            return Decision { verdict: self.hold(None, Against::ToolGone, &because), closes };
        }
        if !self.is_as_asked(asked) {
            closes.push(asked);
            let changes = self.rules.changed_since(self.call, self.facts, asked, "were asked about");
            let because = ["what it would send now is not what was asked about".to_owned()].into_iter().chain(changes);
            let because = because.collect::<Vec<_>>().join("; ");
            return Decision { verdict: self.hold(None, Against::Standing, &because), closes };
        }
        // Whoever ordered a repeat approved it, if that is what they were told it takes.
        if let Some(because) = self.says(Against::NeedsApproval)
            && !was_told(asked, Against::NeedsApproval)
        {
            closes.push(asked);
            return Decision { verdict: self.hold(None, Against::NeedsApproval, &because), closes };
        }
        let not_before = |until| Verdict::NotBefore { until, asked: Some(asked) };
        if let Some(until) = self.may_begin_until().filter(|until| self.rules.time.now() < *until) {
            return Decision { verdict: not_before(until), closes };
        }
        let answered_at = asked.answer.as_ref().map(|answer| answer.answered_at);
        // Whoever took the answer has held it to what was known of the clock then.
        let begun_until = self.by_its_policy(Time::end_beside).max(self.begins_until);
        let too_early = begun_until.max(look_after(asked)).filter(|until| answered_at < Some(*until));
        if let Some(until) = too_early.filter(|_| !probed.is_some_and(Asked::proves_absence)) {
            let absent = probed.filter(|said| said.finding == Finding::Absent);
            if let Some(later) = absent.and_then(|said| said.conclusive_from).filter(|at| self.rules.time.now() < *at) {
                return Decision { verdict: not_before(later), closes };
            }
            closes.push(asked);
            let because =
                format!("it was reported as not happened before {until}, and until then it could still begin");
            return Decision { verdict: self.hold(None, Against::Standing, &because), closes };
        }
        // Contents that changed are another effect, with a key of its own. What was in doubt ends, and the model makes the other call if it wants
        // that.
        if !self.facts.files.are_those_of(self.call) {
            let by = asked.answer.as_ref().map_or("a person", |answer| answer.by.as_str());
            let why = format!(
                "{by} says that it did not happen. What it sends has changed since it was sent, so it is another call by now: make it again if \
                 it is still wanted"
            );
            let resolution = Box::new(UnknownResolution::NotHappened { why });
            return Decision { verdict: Verdict::Resolve { resolution, asked: Some(asked), replay: None }, closes };
        }
        if let Some(limit) = &self.view.used_up {
            let by = asked.answer.as_ref().map_or("a person", |answer| answer.by.as_str());
            return Decision { verdict: self.undone(limit, &format!("{by} says"), Some(asked)), closes };
        }
        Decision { verdict: self.again(true, Some(asked)), closes }
    }

    /// Until when the other side may still begin it, as its policy says or the server that it was sent to.
    fn may_begin_until(&self) -> Option<Timestamp> {
        self.by_its_policy(Time::end_of).max(self.begins_until)
    }

    fn by_its_policy(&self, end: fn(&Time, Timestamp, Duration) -> Timestamp) -> Option<Timestamp> {
        // One that its tool still has is given up when a person is asked about it, that is now.
        let is_under_way = self.call.status == CallStatus::Running;
        let now = || is_under_way.then(|| GivenUp::at(self.rules.time.now()));
        let given_up = given_up_at(self.call, &self.view.attempts).or_else(now)?;
        horizon(&self.call.policy).map(|horizon| given_up.end(horizon, |from, span| end(&self.rules.time, from, span)))
    }

    fn by_policy(&self, asked: Option<&'v QuestionRecord>) -> Verdict<'v> {
        let policy = self.call.policy.on_unknown;
        let against = match (policy, asked) {
            (OnUnknown::Redo | OnUnknown::RedoKeyed | OnUnknown::Hold, Some(asked)) => return Verdict::Hold(asked),
            (OnUnknown::Continue, None) if self.is_mere_read() => {
                Some((Against::Standing, "its policy continues without an answer".to_owned()))
            }
            (OnUnknown::Continue, asked) => return Verdict::GoOnWithout { ask: asked.is_none() },
            (OnUnknown::Redo | OnUnknown::RedoKeyed | OnUnknown::Hold, None) | (OnUnknown::Probe, _) => {
                self.first_of(Against::redo(policy))
            }
        };
        match against {
            Some((against, because)) => self.hold(asked, against, &because),
            None if policy == OnUnknown::Probe => Verdict::Probe,
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
        if let Some(because) = self.elsewhere() {
            return Decision { verdict: self.hold(asked, Against::Elsewhere, &because), closes };
        }
        let shows_nothing = |why: &str| format!("`{}` does not show it, but {why}", said.tool);
        let (against, because) = match &said.finding {
            Finding::Found { .. } => {
                if let Some(verdict) = self.found(said, asked) {
                    return Decision { verdict, closes };
                }
                let alike = self.not_told_apart();
                (Against::Alike, alike.unwrap_or_else(|| shows_nothing("what it shows may be another's")))
            }
            Finding::Absent if !said.proves_absence() => match said.conclusive_from {
                Some(until) => return Decision { verdict: Verdict::NotBefore { until, asked }, closes },
                None => (Against::Standing, "the attempt is not known to have ended".to_owned()),
            },
            Finding::Absent => match self.first_of(&Against::ABSENT) {
                None => {
                    closes.extend(asked);
                    let verdict = match &self.view.used_up {
                        Some(limit) => self.undone(limit, &format!("`{}` shows", said.tool), None),
                        None => self.again(true, None),
                    };
                    return Decision { verdict, closes };
                }
                Some((Against::Overtaken, why)) => (Against::Overtaken, why),
                Some((against, why)) => (against, shows_nothing(&why)),
            },
            Finding::Unclear { why } => (Against::Standing, why.clone()),
        };
        Decision { verdict: self.hold(asked, against, &because), closes }
    }

    /// Whether nothing is lost but an answer: the call only reads, as far as anybody knew or knows, and nobody wants to be asked about it all the
    /// same.
    fn is_mere_read(&self) -> bool {
        let has_effect = self.call.policy.class.has_effect() || self.facts.has_effect_now;
        !has_effect && self.call.policy.on_unknown != OnUnknown::Hold
    }

    /// Asks a person what came of the call; a question that is there already stays. Whether a read happened is nobody's question: the model
    /// is told that it brought no answer, and asks again if it needs one.
    pub(super) fn hold(&self, asked: Option<&'v QuestionRecord>, against: Against, because: &str) -> Verdict<'v> {
        if let Some(asked) = asked {
            return Verdict::Hold(asked);
        }
        if self.is_mere_read() {
            let why = self.call.error_in_words().filter(|why| !why.trim().is_empty());
            let resolution = UnknownResolution::NotHappened { why: why.unwrap_or_else(|| because.to_owned()) };
            return Verdict::Resolve { resolution: Box::new(resolution), asked: None, replay: None };
        }
        let (call, attempts) = (self.call, &self.view.attempts);
        let doubtful = call.doubt.and_then(|doubt| attempts.iter().find(|attempt| attempt.attempt == doubt));
        // What a later attempt came to is part of what is known.
        let words = call.error_in_words().filter(|_| attempts.last().is_none_or(|last| made_by(last).is_none()));
        let refused = words.as_deref().filter(|_| call.doubt.is_some_and(|doubt| doubt < call.attempt));
        // It takes the place of no reason: whoever answers has to know why this is asked now.
        let said = refused.or_else(|| words.as_deref().filter(|_| was_turned_away(call)));
        let attempt = doubtful.or(attempts.last());
        // What the question begins with is said once.
        let is_told = |said: &str| attempt.and_then(LostCall::of).is_some_and(|lost| lost.in_words() == said);
        let reasons = said.filter(|said| *said != because).into_iter().chain(Some(because));
        let mut reasons: Vec<String> = reasons.filter(|reason| !is_told(reason)).map(str::to_owned).collect();
        if self.has_answer_in_vain() {
            reasons.push("what a person answered to its question was not handed over any more".to_owned());
        }
        let others = self.related().overtaken_by();
        let look_after = self.may_begin_until().filter(|until| self.rules.time.now() < *until);
        // Whoever decides knows what is known beside the database, of the attempt in doubt or of what came of it.
        let said = || attempt.and_then(said_beside).or_else(|| attempts.iter().rev().find_map(said_beside));
        let lost = attempts.iter().rev().find_map(LostCall::of).map(|lost| lost.in_words());
        let beside = lost.or_else(|| Some(format!("effects.log says that {}", said()?)));
        let is_said = |reasons: &[String]| reasons.iter().any(|reason| reason.contains("effects.log"));
        reasons.extend(beside.filter(|beside| !is_told(beside) && !is_said(&reasons)));
        if call.policy.key_channel.is_some() && attempt.is_some_and(was_answered_beside) {
            let is_used_up = "whoever answered it knows its key and does nothing under it again: if it was undone since, correct its record to \
                              `not_happened` instead of answering `retry`, and the model's next call for it is sent under another key";
            reasons.push(is_used_up.to_owned());
        }
        let (sends, late) = (Sends::of(attempts), &self.view.late);
        let beside = self.longest_of(&others);
        // What keeps it from being sent, or takes a word of its own, is told whatever it is asked for.
        let mut against = vec![against];
        for besides in [Against::ToolGone, Against::NeedsApproval, Against::LimitUsedUp] {
            if let Some(words) = self.says(besides).filter(|_| !against.contains(&besides)) {
                against.push(besides);
                reasons.push(words);
            }
        }
        let because = reasons.join("; ");
        let facts = self.facts;
        Verdict::Ask(Why::Unknown { attempt, sends, against, because, facts, others, look_after, beside, late })
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

    /// That another call may have had the effect of this one.
    fn because_of(&self, other: &CallRecord) -> String {
        let whose = match self.rules.calls_of {
            CallsOf::Job | CallsOf::Step => format!(" of run {}", other.run_id),
            CallsOf::Session => whose(CallsOf::Session, self.call, other),
        };
        format!("call {}{whose} may have had the effect since", other.call_id)
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

    /// The call did not happen, and is not to: what its job allows of its effect is used up by others.
    fn undone(&self, limit: &EffectLimit, by: &str, word: Option<&'v QuestionRecord>) -> Verdict<'v> {
        let resolution = Box::new(UnknownResolution::NotHappened { why: limit.leaves_undone(self.rules.calls_of, by) });
        Verdict::Resolve { resolution, asked: word, replay: word.is_none().then_some(ReplayStatus::Reconciled) }
    }

    /// Why the call is not sent again by itself, if a run beside this one may have had its effect meanwhile.
    pub(super) fn overtaken(&self) -> Option<String> {
        self.related().overtaken_by().first().map(|other| self.because_of(other.call))
    }
}
