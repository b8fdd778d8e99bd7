//! How often the job of a simulation lets an effect happen (`max` of a stop condition), and whether that was kept.
//!
//! Durable Jobs v1 spec §6. The receiving end counts, not the store: how often the effect is outside, and since when it is there as often as it may be.
//! Left out are effects of calls of which somebody who had not looked said that they did not happen: no count survives that.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use ua_core::{CallId, CallStatus, Resolution};
use ua_store::{CallRecord, QuestionKind, QuestionRecord};

use super::chance::Chance;
use super::job::{Intents, NAMED, TASK, Tool};
use super::servers::Effect;
use super::verdict::Judge;
use super::wrong::{Violation, Wrong};

/// What may be limited: a tool, and what its policy or its name calls its effect.
const LIMITED: [(&str, &str); 6] = [
    ("send_letter", "letter.send"),
    ("pay", "invoice.pay"),
    ("send_email", "email.send"),
    ("notify", "run.notify"),
    ("upload", "file.upload"),
    ("post_comment", "comment.post"),
];

/// A limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) tool: Tool,
    effect: &'static str,
    max: usize,
}

impl Limit {
    /// The limit of a seed's job, if it draws one, and the job with more of what is limited.
    pub(super) fn drawn(chance: &Chance, intents: Intents, in_iterations: bool) -> (Intents, Option<Self>) {
        if !chance.one_in(4) {
            return (intents, None);
        }
        let may = LIMITED.into_iter().filter(|(name, _)| !in_iterations || NAMED.contains(name));
        let may: Vec<(Tool, &str)> = may.filter_map(|(name, effect)| Some((Tool::named(name)?, effect))).collect();
        let Some((tool, effect)) = chance.pick(&may).copied() else { return (intents, None) };
        let intents = intents.with_more_of(tool, chance);
        let wanted = intents.all().filter(|intent| intent.tool == tool).count();
        if wanted == 0 {
            return (intents, None);
        }
        // Up to as often as it is wanted: then it is what is done again, by a fork for one, that is refused.
        let max = chance.below(wanted + 1);
        (intents, Some(Self { tool, effect, max }))
    }

    /// As the job says it.
    pub(super) fn condition(self) -> Value {
        json!({"effect": self.effect, "count": 0, "max": self.max})
    }

    /// In words, for a trace.
    pub(super) fn in_words(self) -> String {
        format!("the job allows {} {}×", self.effect, self.max)
    }
}

/// The tools of which a hand-off tells that the job allows no more calls, by their effects, and the one that hands on tasks.
pub(super) fn told_of(note: &str) -> impl Iterator<Item = &'static str> {
    let tasks = note.lines().any(|line| line.starts_with("No task is handed on any more")).then_some(TASK.name);
    let told: Vec<&str> = note.lines().filter(|line| line.starts_with("No more of `")).collect();
    let of_effects = LIMITED.into_iter().filter_map(move |(tool, effect)| {
        let effect = format!("`{effect}`");
        told.iter().any(|line| line.contains(&effect)).then_some(tool)
    });
    of_effects.chain(tasks)
}

/// Whether a call was not sent, or not sent again, since its job does not allow its effect once more.
pub(super) fn was_refused(call: &CallRecord) -> bool {
    let is_left_undone = call.status == CallStatus::FailedDefinite
        && call.resolution == Some(Resolution::NotHappened)
        && call.error_detail.as_deref().is_some_and(|told| told.contains("It is not sent again: this"));
    call.error_code.as_deref() == Some("effect_limit") || is_left_undone
}

impl Judge<'_> {
    /// The limit was kept, nobody was asked about what it refuses whatever they say, and nothing was refused without reason.
    pub(super) fn limited(&self, found: &mut Vec<Violation>) {
        let Some(limit) = self.stage.limit else { return };
        let counts = |effect: &&Effect| effect.tool == limit.tool && !self.was_denied_carelessly(&effect.call);
        let outside: Vec<&Effect> = self.effects.iter().filter(counts).collect();
        if outside.len() > limit.max {
            let words = format!("{}, and it happened {} times", limit.in_words(), outside.len());
            found.push(Violation::new(Wrong::Twice, words));
        }
        // A restored copy may have forgotten what it was told of, whoever does not look says that it happened, and what was undone had been there.
        let is_known = !self.stage.was_restored && !self.stage.harm.is_careless && self.stage.undone.is_empty();
        if is_known && self.stage.model.was_told_of(limit.tool) && outside.len() < limit.max {
            let words = format!("{}, and a hand-off says after {} that it is used up", limit.in_words(), outside.len());
            found.push(Violation::new(Wrong::ToldWrongly, words));
        }
        let calls = self
            .family
            .iter()
            .flat_map(|records| &records.calls)
            .filter(|call| Tool::named(&call.name.tool) == Some(limit.tool));
        for call in calls.clone() {
            let questions = self.family.iter().flat_map(|records| &records.questions);
            let about = questions.filter(|question| question.call_id.as_ref() == Some(&call.call_id));
            for question in about.filter(|question| is_about_a_send(question)) {
                // What a restored copy does not know did not count.
                let began = self.stage.asked.get(&question.question_id).filter(|_| !self.stage.was_restored);
                if began.is_some_and(|began| used_up_at(limit, &outside, call).is_some_and(|at| at < *began)) {
                    let words = format!(
                        "{}, which was used up before, and a person is asked {:?} about call {}",
                        limit.in_words(),
                        question.kind,
                        call.call_id
                    );
                    found.push(Violation::new(Wrong::AskedNeedlessly, words));
                }
            }
        }
        // What was under way counts, and so does whatever was begun and may have been lost.
        let begun = calls.clone().filter(|call| call.attempt > 0).map(|call| &call.call_id);
        let sent = self.sends.iter().filter(|send| send.tool == limit.tool).map(|send| &send.call);
        let begun: BTreeSet<&CallId> = begun.chain(sent).collect();
        for call in calls.filter(|call| was_refused(call)) {
            let others = begun.iter().filter(|other| ***other != call.call_id).count();
            if others < limit.max {
                let words = format!(
                    "{}, and call {} was refused although only {others} others were ever begun",
                    limit.in_words(),
                    call.call_id
                );
                found.push(Violation::new(Wrong::Lost, words));
            }
        }
    }
}

/// Whether a question asks whether a call may be sent that was not sent yet, or may be tried again: not what came of it, nor what its tool asks.
fn is_about_a_send(question: &QuestionRecord) -> bool {
    let was_sent = question.detail.get("attempt").and_then(Value::as_u64) != Some(0);
    match question.kind {
        QuestionKind::Approval | QuestionKind::NearDuplicate | QuestionKind::AmbiguousRecipient => !was_sent,
        QuestionKind::AuthFailure => true,
        QuestionKind::UnknownOutcome
        | QuestionKind::RepeatedFailures
        | QuestionKind::MissingEvidence
        | QuestionKind::OrphanAlive
        | QuestionKind::CrashLoop
        | QuestionKind::AskUser
        | QuestionKind::Elicitation => false,
    }
}

/// The step of the stage at which other calls than this one had the effect as often as they may.
fn used_up_at(limit: Limit, outside: &[&Effect], call: &CallRecord) -> Option<u64> {
    let Some(last) = limit.max.checked_sub(1) else { return Some(0) };
    let mut seen = BTreeSet::new();
    let others = outside.iter().filter(|effect| effect.call != call.call_id && seen.insert(&effect.call));
    others.map(|effect| effect.step).nth(last)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use ua_classify::{Classifier, Lists, PolicyRules};
    use ua_core::{ToolAnnotations, ToolSpec};

    use super::super::job::POLICY;
    use super::*;

    /// A limit of an effect that no tool has limits nothing.
    #[test]
    fn what_is_limited_is_what_the_tools_are_known_to_do() {
        let rules = PolicyRules::parse(POLICY, "sim.toml").unwrap();
        let classifier = Classifier::new(vec![rules], &Lists::default(), HashSet::new()).unwrap();
        for (name, effect) in LIMITED {
            let spec = ToolSpec {
                name: Tool::named(name).unwrap().full_name(),
                description: String::new(),
                input_schema: json!({"type": "object"}),
                annotations: ToolAnnotations::default(),
            };
            let kind = classifier.classify(&spec, None).effect_kind;
            assert_eq!(kind.as_ref().map(ua_core::EffectKind::as_str), Some(effect), "{name}");
        }
    }
}
