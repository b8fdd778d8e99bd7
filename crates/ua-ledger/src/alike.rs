//! Calls that a probe cannot tell apart: what one left behind may be taken for what the other did.
//!
//! Durable Jobs v1 spec §8.3. A probe that goes by the key needs none of this, since no two calls have one. Where it goes by arguments that
//! should be unique, another call of the run with the same ones is in the way; where it goes by ordinary values, any call of any run in the
//! same database is that says the same and was sent lately. Proved by: the tests below, `ua-runner`'s `unknown`, `tests/e2e/probe.rs`.

use ua_core::{CallId, CallStatus, FoundBy, OTHERS_AFTER, ProbePolicy, Timestamp, Values, Wanted};
use ua_store::{AttemptRecord, CallRecord, CallsOf, LedgerStore, StoreError};

use crate::enquiry::first_sent;

/// Another call that may have left behind what `probe` looks for about this one, so that a find proves nothing. One that was sent before the
/// probe was asked is seen by whoever looks afterwards, since a call is stored before it is sent.
///
/// # Errors
/// When the store cannot be read.
pub async fn alike(
    store: &(impl LedgerStore + ?Sized),
    call: &CallRecord,
    probe: &ProbePolicy,
    attempts: &[AttemptRecord],
) -> Result<Option<CallId>, StoreError> {
    if let Some((wanted, since)) = values_of(call, probe, attempts) {
        let calls = store.calls_of(CallsOf::EffectsSince(since)).await?;
        return Ok(calls.into_iter().find(|other| may_have_made(&wanted, call, other)).map(|other| other.call_id));
    }
    if probe.unique_arguments.is_empty() {
        return Ok(None);
    }
    let calls = store.calls(&call.run_id, None).await?;
    Ok(calls.into_iter().find(|other| are_rivals(call, other, &probe.unique_arguments)).map(|other| other.call_id))
}

/// What an entry of a call is known by, and from when on others may have made one that could be taken for it; for calls whose probe goes by
/// values.
fn values_of(call: &CallRecord, probe: &ProbePolicy, attempts: &[AttemptRecord]) -> Option<(Wanted, Timestamp)> {
    let FoundBy::Values(rule) = &probe.found.by else { return None };
    let first_sent_at = first_sent(attempts)?;
    let arguments = call.arguments.as_object()?;
    let wanted = rule.of(&Values { key: None, arguments, first_sent_at: Some(first_sent_at) }).ok()?;
    Some((wanted, first_sent_at.minus(OTHERS_AFTER)))
}

/// Whether another call, of any run, may have made an entry that has the values of this one: it says the same, it may have happened, and
/// nothing says that it does something else.
fn may_have_made(wanted: &Wanted, call: &CallRecord, other: &CallRecord) -> bool {
    let did_nothing = other.status == CallStatus::FailedDefinite && other.doubt.is_none();
    let is_declared = |call: &CallRecord| call.policy.effect_kind.is_some() && !call.policy.kind_is_guessed;
    let is_another_effect =
        is_declared(call) && is_declared(other) && call.policy.effect_kind != other.policy.effect_kind;
    call.call_id != other.call_id
        && other.attempt > 0
        && other.policy.class.has_effect()
        && !did_nothing
        && !is_another_effect
        && wanted.may_be_of(&other.arguments)
}

/// Whether two calls carry the same values in the arguments that are to be unique, so that a find cannot tell them apart.
fn are_rivals(call: &CallRecord, other: &CallRecord, unique: &[String]) -> bool {
    call.call_id != other.call_id
        && call.name == other.name
        && other.attempt > 0
        && !unique.is_empty()
        && unique.iter().all(|name| call.arguments.get(name) == other.arguments.get(name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use serde_json::{Value, json};
    use ua_core::{CallPolicy, EffectKind, FoundRule, MadeAt, OnUnknown, SameValues, SideEffectClass, TimeForm};
    use ua_store::conformance::samples;

    use super::*;

    fn call(id: &str, arguments: Value, kind: &str) -> CallRecord {
        let planned = samples::planned_email(id, 1, 1);
        let found = FoundRule {
            items: String::new(),
            entry: None,
            by: FoundBy::Values(SameValues {
                same: [("title".to_owned(), json!("{arg.title}")), ("state".to_owned(), json!("open"))].into(),
                holds: BTreeMap::new(),
                made: MadeAt { field: "created".into(), form: TimeForm::Unix, within: Duration::from_mins(1) },
            }),
            id: None,
        };
        let probe = ProbePolicy {
            tool: "list".to_owned(),
            arguments: json!({}),
            when: serde_json::Map::new(),
            found,
            absent: None,
            unique_arguments: Vec::new(),
            settle: Duration::from_secs(1),
        };
        CallRecord {
            call_id: planned.call_id,
            run_id: samples::run_id("run_1"),
            root_run_id: samples::run_id("run_1"),
            step_id: samples::step_id("step_1"),
            position: planned.position,
            created_at: samples::at(1),
            updated_at: samples::at(1),
            tool_use_id: planned.tool_use_id,
            name: planned.name,
            arguments: arguments.into(),
            args_hash: planned.args_hash,
            tool_digest: planned.tool_digest,
            policy: CallPolicy {
                on_unknown: OnUnknown::Probe,
                effect_kind: EffectKind::parse(kind),
                probe: Some(probe),
                ..CallPolicy::unclassified()
            }
            .into(),
            status: CallStatus::Unknown,
            attempt: 1,
            doubt: Some(1),
            idempotency_key: Some(samples::key(id)),
            scope: None,
            file_digests: BTreeMap::new(),
            possible_effect: None,
            resolution: None,
            deduplicated_from: None,
            replay_status: None,
            external_correlation_id: None,
            error_code: None,
            error_detail: None,
            correction: None,
        }
    }

    #[test]
    fn a_call_that_says_the_same_and_may_have_happened_is_in_the_way() {
        let asked = call("call_1", json!({"title": "Report"}), "issue.create");
        let attempt = AttemptRecord {
            call_id: asked.call_id.clone(),
            attempt: 1,
            epoch: 1,
            server_generation: None,
            destination: None,
            started_at: samples::at(100_000),
            ended_at: None,
            outcome: None,
            detail: None,
            handle: None,
        };
        let (wanted, since) = values_of(&asked, asked.policy.probe.as_ref().unwrap(), &[attempt]).unwrap();
        assert_eq!(since, samples::at(100_000).minus(OTHERS_AFTER));
        let other = |arguments: Value, kind: &str| call("call_2", arguments, kind);
        let same = || other(json!({"title": "Report", "labels": ["x"]}), "issue.create");
        let nested = other(json!({"issue": {"name": "Report"}}), "issue.create");
        let failed = CallRecord { status: CallStatus::FailedDefinite, doubt: None, ..same() };
        let read = CallPolicy { class: SideEffectClass::ReadOnly, ..same().policy.unshared() }.into();
        let guessed = CallPolicy { kind_is_guessed: true, ..other(json!({}), "email.send").policy.unshared() }.into();
        let table = [
            (same(), true, "it says the same"),
            (nested, true, "by another tool"),
            (CallRecord { status: CallStatus::Succeeded, doubt: None, ..same() }, true, "it has happened"),
            (CallRecord { doubt: Some(1), ..failed.clone() }, true, "an earlier attempt may have happened"),
            (CallRecord { policy: guessed, ..same() }, true, "nobody said what it does"),
            (failed, false, "it did nothing"),
            (CallRecord { attempt: 0, ..same() }, false, "it was never sent"),
            (CallRecord { policy: read, ..same() }, false, "it only looks"),
            (other(json!({"title": "Report"}), "email.send"), false, "it makes something else"),
            (other(json!({"title": "Other"}), "issue.create"), false, "it says something else"),
            (asked.clone(), false, "it is the same call"),
        ];
        for (other, expected, why) in table {
            assert_eq!(may_have_made(&wanted, &asked, &other), expected, "{why}");
        }
    }
}
