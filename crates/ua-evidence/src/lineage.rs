//! What a run may count as evidence although another run of its lineage did it.
//!
//! Durable Jobs v1 spec §6 and §8.2: an effect is one per lineage, so a fork that is not allowed to repeat it cannot be asked to.
//! Invariant: what counts is always a call that succeeded by a settled receipt of its own; it counts once.

use ua_core::{Audience, CallPolicy, EffectKind, RunSpec, StopCondition};
use ua_store::rules::UNDECLARED;
use ua_store::{CallRecord, Choice, QuestionKind, ReceiptRecord, RunRecords};

use crate::artifact::{Artifact, Unread};
use crate::evidence::{EvidenceReport, EvidenceScope, Undeclared, evaluate_scope};

/// Judges the conditions in `scope` of a run over its own receipts and those that count with them: of the turns
/// it shares, of what its sub-agents did, and of effects elsewhere in its lineage that it asked for and was answered with, or that a condition allows no
/// further one of. A call that a person said was the effect counts as it.
pub fn evaluate_run(
    records: &RunRecords,
    scope: EvidenceScope<'_>,
    artifacts: &[Artifact],
    unread: &[Unread],
    media: &dyn Fn(&str) -> Option<String>,
) -> EvidenceReport {
    let (mut calls, receipts) = counting(records);
    let said = said_by_people(records);
    for call in &mut calls {
        let of_call = said.iter().find(|said| said.call_id == call.call_id);
        if let Some(kind) = of_call.and_then(|said| EffectKind::parse(&said.effect)) {
            let mut policy = CallPolicy::clone(&call.policy);
            (policy.effect_kind, policy.kind_is_guessed) = (Some(kind), false);
            call.policy = policy.into();
        }
    }
    let scope = scope.speaking_to(Audience::of(&records.run.entrypoint));
    evaluate_scope(&records.run.spec, scope, &calls, &receipts, artifacts, unread, media)
}

/// What people said calls were that nobody had declared: `happened`, where they were asked about it.
fn said_by_people(records: &RunRecords) -> Vec<Undeclared> {
    let asked = records.questions.iter().filter(|question| question.kind == QuestionKind::MissingEvidence);
    let said = asked.filter(|q| q.answer.as_ref().is_some_and(|answer| answer.choice == Choice::Happened));
    said.filter_map(|q| serde_json::from_value::<Vec<Undeclared>>(q.detail.get(UNDECLARED)?.clone()).ok())
        .flatten()
        .collect()
}

fn counting(records: &RunRecords) -> (Vec<CallRecord>, Vec<ReceiptRecord>) {
    let lineage = &records.lineage;
    let mut calls: Vec<CallRecord> =
        lineage.calls.iter().chain(&lineage.shared_effects).chain(&records.calls).cloned().collect();
    // Sub-agents work for the run: what they did, it did.
    let below: Vec<&CallRecord> = lineage.sub_agents.iter().flat_map(|child| &child.effects).collect();
    let mut answered_by: Vec<_> = calls.iter().filter_map(|call| call.answered_by().cloned()).collect();
    answered_by.extend(below.iter().filter_map(|call| call.answered_by().cloned()));
    let counts = |other: &&CallRecord| answered_by.contains(&other.call_id) || is_limited(&records.run.spec, other);
    calls.extend(lineage.elsewhere.iter().filter(counts).cloned());
    let counted: Vec<_> = calls.iter().map(|call| call.call_id.clone()).collect();
    calls.extend(below.into_iter().filter(|call| !counted.contains(&call.call_id)).cloned());
    let receipts = lineage.receipts.iter().chain(&records.receipts).cloned().collect();
    (calls, receipts)
}

/// Whether a condition says how often at most the lineage may have the effect of `call`.
fn is_limited(spec: &RunSpec, call: &CallRecord) -> bool {
    let Some(kind) = &call.policy.effect_kind else { return false };
    let all = spec.stop_conditions.iter().chain(spec.phases.iter().flat_map(|phase| &phase.stop_conditions));
    all.map(StopCondition::expanded).any(|condition| match condition {
        StopCondition::Effect { effect, max: Some(_), .. } => effect == kind.as_str(),
        StopCondition::Effect { max: None, .. } | StopCondition::Named(_) | StopCondition::Artifact { .. } => false,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::{CallStatus, CorrectedTo};
    use ua_store::Correction;

    use super::*;
    use crate::testing::{Story, mail_policy};

    /// A call that nobody declared counts as what a person said it was, and for nothing else.
    #[test]
    fn what_a_person_said_a_call_was_counts() {
        let job = r#"{"objective": "Mail it", "stop_conditions": [{"effect": "email.send"}]}"#;
        let policy =
            CallPolicy { class_source: ua_core::ClassSource::Name, may_make: true, ..CallPolicy::unclassified() };
        let mut story = Story::new(job);
        let call = story.asks("", &[("mcp__post__deliver", json!({"to": "a"}), policy)])[0].clone();
        story.starts(&call);
        story.succeeds(&call, "delivered", None);
        let judge = |records: &RunRecords| evaluate_run(records, EvidenceScope::of(records), &[], &[], &|_| None);
        let report = judge(&story.records);
        assert!(report.needs_a_person() && !report.all_met);
        let asked = report.undeclared();
        let question = story.questions(&call);
        let mut records = story.records.clone();
        let record = records.questions.iter_mut().find(|record| record.question_id == question).unwrap();
        (record.call_id, record.kind) = (None, QuestionKind::MissingEvidence);
        record.detail = json!({ UNDECLARED: asked });
        let answered = |choice, detail: Option<serde_json::Value>| {
            let mut records = records.clone();
            let record = records.questions.iter_mut().find(|record| record.question_id == question).unwrap();
            record.answer = Some(ua_store::AnswerRecord {
                choice,
                proof: None,
                text: None,
                by: "cli:ana".to_owned(),
                answered_at: record.created_at,
                applied_at: None,
            });
            record.detail = detail.unwrap_or(record.detail.take());
            judge(&records).all_met
        };
        assert!(answered(Choice::Happened, None));
        assert!(!answered(Choice::Continue, None) && !answered(Choice::Abort, None));
        let other = json!({ UNDECLARED: [{"call_id": call, "effect": "message.post"}] });
        assert!(!answered(Choice::Happened, Some(other)), "it was something else");
    }

    /// A run that asked for nothing, with an e-mail that another run of its lineage sent.
    fn with_mail_elsewhere(job: &str) -> RunRecords {
        let mut story = Story::new(job);
        let id = story.asks("", &[("send_email", json!({"to": "ana@example.test"}), mail_policy())])[0].clone();
        story.starts(&id);
        story.succeeds(&id, "sent", Some("m-1"));
        let mut records = story.records;
        records.lineage.elsewhere = std::mem::take(&mut records.calls);
        records.lineage.receipts = std::mem::take(&mut records.receipts);
        records
    }

    fn met(records: &RunRecords) -> bool {
        evaluate_run(records, EvidenceScope::of(records), &[], &[], &|_| None).all_met
    }

    const ONCE: &str = r#"{"objective": "x", "stop_conditions": ["email_sent_once"]}"#;
    const AT_LEAST: &str = r#"{"objective": "x", "stop_conditions": [{"effect": "email.send", "count": 1}]}"#;

    #[test]
    fn an_effect_elsewhere_counts_where_no_further_one_is_allowed() {
        assert!(met(&with_mail_elsewhere(ONCE)));
        assert!(!met(&with_mail_elsewhere(AT_LEAST)));
        let mut lost = with_mail_elsewhere(ONCE);
        lost.lineage.elsewhere[0].status = CallStatus::Unknown;
        assert!(!met(&lost));
        let mut unread = with_mail_elsewhere(ONCE);
        unread.lineage.receipts.clear();
        assert!(!met(&unread));
    }

    #[test]
    fn an_effect_elsewhere_counts_once_it_answered_a_call_of_the_run() {
        for is_by_key in [true, false] {
            let mut records = with_mail_elsewhere(AT_LEAST);
            let mut twin = records.lineage.elsewhere[0].clone();
            let of = Some(twin.call_id.clone());
            twin.call_id = ua_core::CallId::parse("call_twin").unwrap();
            if is_by_key {
                twin.deduplicated_from = of;
            } else {
                twin.correction = Some(Correction {
                    outcome: CorrectedTo::Happened,
                    was: CallStatus::FailedDefinite,
                    reason: "the other one had its effect".to_owned(),
                    proof: None,
                    by: "ana".to_owned(),
                    at: twin.updated_at,
                    of,
                    was_answered: false,
                });
            }
            records.calls.push(twin);
            let found = |records: &RunRecords| {
                let report = evaluate_run(records, EvidenceScope::of(records), &[], &[], &|_| None);
                (report.all_met, report.conditions[0].found)
            };
            assert_eq!(found(&records), (true, 1), "{is_by_key}");
            // Nor does it count twice where the other one is the run's own.
            records.calls.extend(std::mem::take(&mut records.lineage.elsewhere));
            assert_eq!(found(&records), (true, 1), "{is_by_key}");
        }
    }

    #[test]
    fn what_was_done_in_shared_turns_counts_like_its_own() {
        let mut records = with_mail_elsewhere(AT_LEAST);
        records.lineage.calls = std::mem::take(&mut records.lineage.elsewhere);
        assert!(met(&records));
    }
}
