//! What must hold of a call of which an attempt was lost: it is in doubt until somebody or something that can know says otherwise.
//!
//! The doubt of one attempt is nothing that a later attempt's refusal could take away. Only calls with an effect count, and not
//! those that may simply be done again (`redo`). The keys of our own memory tools are exact, so a refusal under one does clear it.

use ua_core::{CallStatus, PossibleEffect};

use super::Violations;
use crate::record::{CallRecord, EventRecord, RunRecords};
use crate::rules::{DoubtContext, first_in_doubt, was_in_doubt};

/// A call that says nothing happened has no attempt in doubt.
pub(super) fn kept(found: &mut Violations, records: &RunRecords, call: &CallRecord) {
    let says = match call.status {
        CallStatus::FailedDefinite => "refused",
        CallStatus::FailedReported if call.possible_effect == Some(PossibleEffect::None) => {
            "answered that nothing was done"
        }
        CallStatus::FailedReported
        | CallStatus::Prepared
        | CallStatus::Running
        | CallStatus::Succeeded
        | CallStatus::Unknown
        | CallStatus::Cancelled => return,
    };
    let Some(lost) = first_in_doubt(call, context(records, call)) else { return };
    let last = call.attempt;
    if lost == last {
        let why = format!("attempt {lost} was lost, and the call says that it was {says} without anybody's word");
        found.add("a_lost_attempt_leaves_doubt", &call.call_id, why);
        return;
    }
    let was_refused = call.status == CallStatus::FailedDefinite;
    let why = format!(
        "attempt {lost} of `{}` was sent and never answered, so it may have happened; attempt {last} was {says}, and the call is recorded as not \
         happened",
        call.name.tool
    );
    found.add(if was_refused { "doubt_outlives_a_refusal" } else { "doubt_outlives_a_report" }, &call.call_id, why);
}

/// Whether a change of a call that no rule makes is a migration's: it found that an attempt of a call was in doubt that an earlier program had
/// recorded as one that did nothing, `sent` times sent by then. Every store refuses that change to everybody else. A person's word moves a call so
/// as well, and stands in the event.
pub(super) fn is_found_by_a_migration(records: &RunRecords, call: &CallRecord, event: &EventRecord, sent: u32) -> bool {
    let is_its_move = matches!(
        (event.from, event.to),
        (Some(CallStatus::FailedDefinite | CallStatus::FailedReported), CallStatus::Unknown)
            | (Some(CallStatus::FailedDefinite), CallStatus::FailedReported)
    );
    is_its_move && event.correction.is_none() && was_in_doubt(call, context(records, call), sent, event.at)
}

fn context<'a>(records: &'a RunRecords, call: &CallRecord) -> DoubtContext<'a> {
    let all = records.calls.iter().chain(&records.lineage.calls).chain(&records.lineage.elsewhere);
    let mut holders = all.filter(|other| {
        other.call_id != call.call_id
            && call.idempotency_key.as_ref().is_some_and(|key| crate::rules::holds_key(other, key))
    });
    DoubtContext {
        attempts: &records.attempts,
        receipts: &records.receipts,
        questions: &records.questions,
        holder: holders.next().map(|other| other.status),
    }
}

#[cfg(all(test, feature = "conformance"))]
#[expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
mod tests {
    use ua_core::{
        CallPolicy, CallStatus, KeyChannel, OnUnknown, PossibleEffect, Settlement, SideEffectClass, ToolName,
        ToolNamespace,
    };

    use crate::commit::AttemptEnd;
    use crate::conformance::{Scene, samples};
    use crate::invariants::check;
    use crate::{Choice, EventRecord, LedgerStore as _, MemStore, RunRecords, RunStore as _};

    /// A call whose first attempt was lost, and whose second came to `end`, as rows of a program that forgot the doubt have it.
    async fn lost_then(end: AttemptEnd) -> (RunRecords, Vec<EventRecord>) {
        let said = match &end {
            AttemptEnd::NotSent { .. } => (CallStatus::FailedDefinite, None),
            AttemptEnd::Lost { .. } => (CallStatus::Unknown, None),
            AttemptEnd::Replied { settlement, .. } => {
                let settlement = settlement.as_ref().unwrap();
                (settlement.status, settlement.possible_effect)
            }
        };
        let store = MemStore::default();
        let scene = Scene::begin(&store, "run_1").await;
        scene.call_that_is("call_1", CallStatus::Unknown).await;
        store.start_attempt(&scene.lease, samples::start("call_1", 2, "call_1")).await.unwrap();
        store.settle_attempt(&scene.lease, samples::ended("call_1", 2, end)).await.unwrap();
        let mut records = scene.records().await;
        let mut events = store.events(&samples::call_id("call_1")).await.unwrap();
        forget_doubt(&mut records, &mut events, said);
        (records, events)
    }

    fn forget_doubt(
        records: &mut RunRecords,
        events: &mut [EventRecord],
        (status, effect): (CallStatus, Option<PossibleEffect>),
    ) {
        let call = &mut records.calls[0];
        call.policy.on_unknown = OnUnknown::RedoKeyed;
        (call.status, call.possible_effect, call.doubt) = (status, effect, None);
        events.last_mut().unwrap().to = status;
    }

    fn refused() -> AttemptEnd {
        AttemptEnd::Replied { raw: samples::raw(), settlement: Some(samples::settlement(CallStatus::FailedDefinite)) }
    }

    fn broken((records, events): &(RunRecords, Vec<EventRecord>)) -> Vec<(&'static str, Option<&'static str>)> {
        let all = check(records, events);
        all.iter().map(|one| (one.invariant, one.known().map(|known| known.finding))).collect()
    }

    #[tokio::test]
    async fn what_a_later_attempt_says_does_not_take_the_doubt_of_an_earlier_one() {
        let not_sent = AttemptEnd::NotSent { why: "connection refused".to_owned() };
        for end in [refused(), not_sent] {
            assert_eq!(broken(&lost_then(end).await), [("doubt_outlives_a_refusal", Some("1"))]);
        }
        let nothing = Settlement {
            possible_effect: Some(PossibleEffect::None),
            ..samples::settlement(CallStatus::FailedReported)
        };
        let reported = AttemptEnd::Replied { raw: samples::raw(), settlement: Some(nothing) };
        assert_eq!(broken(&lost_then(reported).await), [("doubt_outlives_a_report", Some("new (beside 1)"))]);
        let succeeded = samples::settlement(CallStatus::Succeeded);
        let succeeded = AttemptEnd::Replied { raw: samples::raw(), settlement: Some(succeeded) };
        assert_eq!(broken(&lost_then(succeeded).await), []);
    }

    #[tokio::test]
    async fn what_may_be_done_again_and_what_a_person_or_a_probe_knows_is_in_no_doubt() {
        type Change = fn(&mut RunRecords);
        let clears: [Change; 3] = [
            |r| r.calls[0].policy.on_unknown = OnUnknown::Redo,
            |r| r.calls[0].policy.on_unknown = OnUnknown::Probe,
            |r| {
                r.calls[0].policy.class = SideEffectClass::Memory;
                r.calls[0].name = ToolName::qualified(ToolNamespace::Local, "ua", "core_memory_append");
            },
        ];
        for change in clears {
            let mut scene = lost_then(refused()).await;
            change(&mut scene.0);
            assert_eq!(broken(&scene), []);
        }
        // What a rule calls memory at a server of somebody else's does not have to look at keys first.
        let mut scene = lost_then(refused()).await;
        scene.0.calls[0].policy.class = SideEffectClass::Memory;
        assert_eq!(broken(&scene), [("doubt_outlives_a_refusal", Some("1"))]);
    }

    #[tokio::test]
    async fn a_person_who_looked_ends_the_doubt() {
        let store = MemStore::default();
        let scene = Scene::begin(&store, "run_1").await;
        scene.call_that_is("call_1", CallStatus::Unknown).await;
        store.raise_question(&scene.lease, samples::question("q_1", Some("call_1"))).await.unwrap();
        store.insert_answer(samples::answer("q_1", Choice::Execute)).await.unwrap();
        store.close_question(&scene.lease, &samples::question_id("q_1"), samples::at(61)).await.unwrap();
        store.start_attempt(&scene.lease, samples::start("call_1", 2, "call_1")).await.unwrap();
        store.settle_attempt(&scene.lease, samples::ended("call_1", 2, refused())).await.unwrap();
        let mut records = scene.records().await;
        let mut events = store.events(&samples::call_id("call_1")).await.unwrap();
        forget_doubt(&mut records, &mut events, (CallStatus::FailedDefinite, None));
        records.calls[0].policy.on_unknown = OnUnknown::Hold;
        assert_eq!(broken(&(records.clone(), events.clone())), []);
        // Whoever skips does not say what happened.
        records.questions[0].answer.as_mut().unwrap().choice = Choice::Skip;
        records.calls[0].policy.on_unknown = OnUnknown::RedoKeyed;
        assert!(broken(&(records, events)).contains(&("doubt_outlives_a_refusal", Some("1"))));
    }

    #[tokio::test]
    async fn a_lost_attempt_that_is_called_failed_by_nobody_is_no_known_way() {
        let store = MemStore::default();
        let scene = Scene::begin(&store, "run_1").await;
        scene.call_that_is("call_1", CallStatus::Unknown).await;
        let mut records = scene.records().await;
        records.calls[0].status = CallStatus::FailedDefinite;
        let events = store.events(&samples::call_id("call_1")).await.unwrap();
        assert!(broken(&(records, events)).contains(&("a_lost_attempt_leaves_doubt", None)));
    }

    /// A change that nobody else may make: what was recorded as one that did nothing may have happened, as a migration found.
    #[tokio::test]
    async fn only_a_call_that_was_in_doubt_is_moved_without_a_rule() {
        for (to, effect) in [(CallStatus::Unknown, None), (CallStatus::FailedReported, Some(PossibleEffect::Maybe))] {
            let (mut records, mut events) = lost_then(refused()).await;
            let last = events.last().unwrap().clone();
            events.push(EventRecord { seq: last.seq + 1, from: Some(CallStatus::FailedDefinite), to, ..last });
            let call = &mut records.calls[0];
            (call.status, call.doubt, call.possible_effect) = (to, Some(1), effect);
            assert_eq!(broken(&(records.clone(), events.clone())), [], "{to}");
            // What a person said since does not make it one that never was in doubt.
            records.calls[0].resolution = Some(ua_core::Resolution::NotHappened);
            assert_eq!(broken(&(records.clone(), events.clone())), [], "{to}");
            records.attempts[0].outcome = Some("not_sent".to_owned());
            assert_eq!(broken(&(records, events)), [("legal_transitions", None)], "{to}");
        }
    }

    /// What came back and left it open is no less in doubt than what never came back.
    #[tokio::test]
    async fn an_answer_that_left_it_open_leaves_doubt() {
        let (mut records, events) = lost_then(refused()).await;
        records.attempts[0].outcome = Some("replied".to_owned());
        assert_eq!(broken(&(records.clone(), events.clone())), []);
        let mut receipt = records.receipts[0].clone();
        receipt.attempt = 1;
        receipt.settlement = Some(samples::settlement(CallStatus::Unknown));
        records.receipts.push(receipt);
        assert_eq!(broken(&(records, events)), [("doubt_outlives_a_refusal", Some("1"))]);
    }

    /// What was sent under the same key later was answered for both, where whoever answered knows keys.
    #[tokio::test]
    async fn a_success_under_its_key_ends_the_doubt() {
        let (mut records, events) = lost_then(refused()).await;
        let twin = crate::CallRecord {
            call_id: samples::call_id("call_2"),
            status: CallStatus::Succeeded,
            ..records.calls[0].clone()
        };
        records.lineage.elsewhere.push(twin);
        assert_eq!(broken(&(records.clone(), events.clone())), [("doubt_outlives_a_refusal", Some("1"))]);
        let knows_keys =
            CallPolicy { key_channel: Some(KeyChannel::Meta), ..records.calls[0].policy.clone().unshared() };
        records.calls[0].policy = knows_keys.into();
        assert_eq!(broken(&(records, events)), []);
    }
}
