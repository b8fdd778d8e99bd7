//! A person puts the record of a call right, whatever it says, and everything that reads it follows.

use ua_core::{CallStatus, CorrectedTo, EvidenceLevel, RawReply, Resolution, RunStatus};

use super::samples::{self, at, call_id, correct, key, question_id};
use super::{Scene, refused};
use crate::error::StoreError;
use crate::record::{Choice, Correction, QuestionStatus};
use crate::rules::may_have_happened;
use crate::{
    CallsOf, CorrectCall, EventRecord, LedgerStore, RunRecords, RunStore, StartAttempt, Store, UnknownResolution,
};

const ALL: [CorrectedTo; 3] = [CorrectedTo::Happened, CorrectedTo::NotHappened, CorrectedTo::Skipped];

/// Whatever was recorded, and also behind the end of its run: status, key, doubt, question and history say what the person said.
pub async fn a_record_is_put_right_whatever_it_says(store: &dyn Store) {
    for from in [
        CallStatus::Running,
        CallStatus::Succeeded,
        CallStatus::FailedDefinite,
        CallStatus::FailedReported,
        CallStatus::Unknown,
    ] {
        for outcome in ALL.into_iter().filter(|outcome| from.on(outcome.event()).is_ok()) {
            let scene = Scene::begin(store, &format!("run_{from}_{outcome}")).await;
            let id = format!("call_{from}_{outcome}");
            let call = scene.call_that_is(&id, from).await;
            let ends_first = from.is_settled();
            if ends_first {
                scene.commit(1).await;
                store.end_run(&scene.lease, samples::run_end(RunStatus::Succeeded)).await.unwrap();
            }
            let word = CorrectCall { is_idle: !ends_first, ..correct(&call, outcome, 70) };
            let call = store.correct_call(word.clone()).await.unwrap();
            let what = format!("{from} {outcome}");
            assert_eq!(call.status, from.on(outcome.event()).unwrap(), "{what}");
            assert_eq!(call.correction.as_ref(), Some(&word.correction), "{what}");
            assert_eq!(may_have_happened(&call), outcome != CorrectedTo::NotHappened, "{what}");
            assert_eq!(call.doubt.is_some(), outcome == CorrectedTo::Skipped, "{what}");
            let resolution = match outcome {
                CorrectedTo::Happened => Resolution::Happened,
                CorrectedTo::NotHappened => Resolution::NotHappened,
                CorrectedTo::Skipped => Resolution::Skipped,
            };
            assert_eq!(call.resolution, Some(resolution), "{what}");
            let holder = store.key_holder(scene.run_id(), &key(&id)).await.unwrap();
            assert_eq!(holder.is_some(), outcome != CorrectedTo::NotHappened, "{what}");
            let events = store.events(&call.call_id).await.unwrap();
            let last = events.last().unwrap();
            assert_eq!(
                (last.from, last.to, last.correction.as_ref()),
                (Some(from), call.status, call.correction.as_ref())
            );
            assert!(events.iter().rev().skip(1).all(|event| event.correction.is_none()), "{what}");
            let attempts = store.attempts(&call.call_id).await.unwrap();
            assert!(attempts.iter().all(|attempt| attempt.ended_at.is_some()), "{what}");
            let records = scene.records().await;
            assert_eq!(records.call(&call.call_id), Some(&call), "{what}");
            assert_eq!(records.run.corrected_at, Some(at(70)), "{what}");
            let of_lineage = store.calls_of(CallsOf::Corrected(scene.run_id().clone())).await.unwrap();
            let with_effect = Some(call.clone()).filter(|call| call.policy.effect_kind.is_some());
            assert_eq!(of_lineage, Vec::from_iter(with_effect), "{what}");
            if ends_first {
                let fork =
                    store.fork_run(samples::new_fork(&format!("{id}_fork"), scene.run_id().as_str(), 1)).await.unwrap();
                assert_eq!(fork.corrected_at, Some(at(70)), "{what}: its model is told as well");
                assert_eq!(store.run(&fork.run_id).await.unwrap().corrected_at, Some(at(70)), "{what}");
            }
            if outcome == CorrectedTo::Happened {
                let receipt = store.receipt(&call.call_id).await.unwrap().unwrap();
                assert_eq!(receipt.evidence, EvidenceLevel::Reconciled, "{what}");
                assert!(matches!(receipt.raw, RawReply::Statement { .. }), "{what}");
            }
            // An answer that was lost is asked for again.
            assert_eq!(store.correct_call(word).await.unwrap(), call, "{what}");
            assert_eq!(store.events(&call.call_id).await.unwrap(), events, "{what}");
        }
    }
}

/// Where it becomes known what came of a call that its run had continued without, the lineage is noted as corrected; and a first start that looks at
/// other calls and does not know of that is refused.
pub async fn a_first_start_knows_what_was_corrected(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let lost = scene.call_that_is("call_1", CallStatus::Unknown).await.call_id;
    let lease = &scene.lease;
    store.resolve_unknown(lease, &lost, UnknownResolution::Skipped, None, at(60)).await.unwrap();
    scene.commit(1).await;
    assert_eq!(scene.records().await.run.corrected_at, None, "nobody knows more than its model was told");
    let happened = UnknownResolution::Happened {
        raw: RawReply::Statement { by: "ada".to_owned(), proof: None },
        settlement: samples::settlement(CallStatus::Succeeded),
        evidence: EvidenceLevel::Reconciled,
    };
    store.resolve_unknown(lease, &lost, happened, None, at(70)).await.unwrap();
    assert_eq!(scene.records().await.run.corrected_at, Some(at(70)));
    scene.turn(vec![samples::planned_email("call_2", 2, 1), samples::planned_call("call_3", 2, 2)]).await;
    let start = |id: &str, corrected_at| {
        let seen = (id == "call_2").then(Vec::new);
        store.start_attempt(lease, StartAttempt { seen, corrected_at, ..samples::start(id, 1, id) })
    };
    for corrected_at in [None, Some(at(69))] {
        let refused = start("call_2", corrected_at).await;
        assert!(matches!(refused, Err(StoreError::Corrected { .. })), "{corrected_at:?}: {refused:?}");
    }
    start("call_2", Some(at(70))).await.unwrap();
    start("call_3", None).await.unwrap(); // it repeats nothing
    // What was asked about in its own turn was never told as unknown.
    let other = Scene::begin(store, "run_2").await;
    let lost = other.call_that_is("call_9", CallStatus::Unknown).await.call_id;
    let why = "ada says so".to_owned();
    let absent = UnknownResolution::NotHappened { why };
    store.resolve_unknown(&other.lease, &lost, absent, None, at(80)).await.unwrap();
    assert_eq!(other.records().await.run.corrected_at, None);
}

/// A person who was wrong corrects once more; each word stays in the history.
pub async fn a_correction_can_be_corrected(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let mut call = scene.call_that_is("call_1", CallStatus::Succeeded).await;
    scene.commit(1).await;
    let words = [CorrectedTo::NotHappened, CorrectedTo::Happened, CorrectedTo::Skipped, CorrectedTo::NotHappened];
    for (seconds, outcome) in (70..).zip(words) {
        call = store.correct_call(correct(&call, outcome, seconds)).await.unwrap();
    }
    let events = store.events(&call.call_id).await.unwrap();
    let said: Vec<_> = events.iter().filter_map(|event| event.correction.as_ref()).map(|said| said.outcome).collect();
    assert_eq!(said, words);
    let records = scene.records().await;
    assert_eq!(broken(&records, &events), [""; 0]);
}

/// The key of what was done, until a person said that it did not happen, is used up: whoever knows it would not do again under it what is to be
/// done instead. That of a call in doubt stays good. No start goes out under it that did not look, in its own run or in a fork.
pub async fn a_key_that_a_correction_used_up_starts_nothing(store: &dyn Store) {
    for from in [CallStatus::Succeeded, CallStatus::FailedReported, CallStatus::Unknown] {
        for is_forked in [false, true] {
            let what = format!("{from} {is_forked}");
            let (run, fork) = (format!("run_{from}_{is_forked}"), format!("fork_{from}_{is_forked}"));
            let (first, second) = (format!("first_{from}_{is_forked}"), format!("second_{from}_{is_forked}"));
            let scene = Scene::begin(store, &run).await;
            let call = scene.call_that_is(&first, from).await;
            let is_used_up = from != CallStatus::Unknown;
            if is_used_up {
                scene.commit(1).await;
            }
            let word = CorrectCall { is_idle: !is_used_up, ..correct(&call, CorrectedTo::NotHappened, 70) };
            store.correct_call(word).await.unwrap();
            if !is_used_up {
                scene.commit(1).await;
            }
            let scene = if is_forked {
                store.fork_run(samples::new_fork(&fork, &run, 0)).await.unwrap();
                Scene::take(store, &fork).await
            } else {
                scene
            };
            let turn = if is_forked { 1 } else { 2 };
            scene.turn(vec![samples::planned_email(&second, turn, 1)]).await;
            let under_it = store.start_attempt(&scene.lease, samples::start(&second, 1, &first)).await;
            if is_used_up {
                assert!(
                    matches!(&under_it, Err(StoreError::KeyTaken { by, .. }) if *by == call.call_id),
                    "{what}: {under_it:?}"
                );
                let another = store.start_attempt(&scene.lease, samples::start(&second, 1, &second)).await;
                assert!(another.is_ok(), "{what}: {another:?}");
            } else {
                assert!(under_it.is_ok(), "{what}: {under_it:?}");
            }
        }
    }
}

/// Invariants that do not hold. The samples' results and cursors are none of a real run.
fn broken(records: &RunRecords, events: &[EventRecord]) -> Vec<String> {
    let of_samples = ["one_result_per_tool_use", "checkpoints_stand_on_commits"];
    let found = crate::invariants::check(records, events).into_iter();
    found.filter(|one| !of_samples.contains(&one.invariant)).map(|one| format!("{one:?}")).collect()
}

/// What was never sent has nothing to correct, a call of a turn under way is its owner's, and one that moved on is looked at again.
pub async fn a_correction_needs_something_to_correct(store: &dyn Store) {
    for status in [CallStatus::Prepared, CallStatus::Cancelled] {
        let scene = Scene::begin(store, &format!("run_{status}")).await;
        let call = scene.call_that_is(&format!("call_{status}"), status).await;
        for outcome in ALL {
            let word = CorrectCall { is_idle: true, ..correct(&call, outcome, 70) };
            refused(store.correct_call(word).await, "to a call that is");
        }
    }
    let scene = Scene::begin(store, "run_1").await;
    let call = scene.call_that_is("call_1", CallStatus::Succeeded).await;
    let before = scene.records().await;
    refused(store.correct_call(correct(&call, CorrectedTo::NotHappened, 70)).await, "under way");
    scene.commit(1).await;
    refused(store.correct_call(correct(&call, CorrectedTo::Happened, 70)).await, "succeeded");
    let stale = CorrectCall { seen: (CallStatus::Unknown, 1), ..correct(&call, CorrectedTo::NotHappened, 70) };
    refused(store.correct_call(stale).await, "it is succeeded at attempt 1 now");
    let silent =
        CorrectCall { receipt: None, seen: (CallStatus::Succeeded, 1), ..correct(&call, CorrectedTo::Happened, 70) };
    refused(store.correct_call(silent).await, "receipt");
    assert_eq!(scene.records().await.calls, before.calls);
    let unknown = Scene::begin(store, "run_2").await;
    let call = unknown.call_that_is("call_2", CallStatus::Unknown).await;
    let skipped = |seconds| CorrectCall { is_idle: true, ..correct(&call, CorrectedTo::Skipped, seconds) };
    store.correct_call(skipped(70)).await.unwrap();
    refused(store.correct_call(skipped(71)).await, "already recorded as that");
}

/// A call that took another one's answer says what that one says, and is not corrected by itself.
pub async fn a_duplicate_is_corrected_with_its_twin(store: &dyn Store) {
    let first = Scene::begin(store, "run_1").await;
    let child = Scene::begin_with(store, samples::child_run("run_2", "run_1")).await;
    let twin = first.call_that_is("call_1", CallStatus::Succeeded).await;
    first.commit(1).await;
    child.call_that_is("call_2", CallStatus::Prepared).await;
    let two = call_id("call_2");
    let duplicate = store.deduplicate_call(&child.lease, &two, &twin.call_id, &key("call_1"), at(9)).await.unwrap();
    child.commit(1).await;
    refused(store.correct_call(correct(&duplicate, CorrectedTo::NotHappened, 70)).await, "never sent");
    let twin = store.correct_call(correct(&twin, CorrectedTo::NotHappened, 70)).await.unwrap();
    let duplicate = store.call(&two).await.unwrap();
    assert_eq!((duplicate.status, duplicate.resolution), (CallStatus::FailedDefinite, Some(Resolution::NotHappened)));
    assert_eq!(duplicate.correction.unwrap().of, Some(twin.call_id.clone()));
    assert_eq!(child.records().await.run.corrected_at, Some(at(70)), "its model is told as well");
    assert_eq!(store.key_holder(first.run_id(), &key("call_1")).await.unwrap(), None);
    store.correct_call(correct(&twin, CorrectedTo::Happened, 71)).await.unwrap();
    assert_eq!(store.call(&two).await.unwrap().status, CallStatus::Succeeded);
}

/// A call that did nothing, and whose effect another one had by a person's word, says what that one says, through any chain of answers, until a person
/// speaks of it itself; what was done once counts once.
pub async fn a_call_follows_the_one_that_had_its_effect(store: &dyn Store) {
    let (one, two, three, four) = (call_id("call_1"), call_id("call_2"), call_id("call_3"), call_id("call_4"));
    let first = Scene::begin(store, "run_1").await;
    let child = Scene::begin_with(store, samples::child_run("run_2", "run_1")).await;
    let stranger = Scene::begin(store, "run_9").await;
    stranger.call_that_is("call_9", CallStatus::Succeeded).await;
    child.turn((2..=4).map(|n| samples::planned_email(&format!("call_{n}"), 1, n)).collect()).await;
    let failed = child.bring("call_2", CallStatus::FailedDefinite).await;
    let word = |of: &str| {
        let word = correct(&failed, CorrectedTo::Happened, 60);
        CorrectCall {
            is_idle: true,
            correction: Correction { of: Some(call_id(of)), ..word.correction.clone() },
            ..word
        }
    };
    first.turn(vec![samples::planned_email("call_1", 1, 1)]).await;
    for of in ["call_1", "call_2", "call_3", "call_9"] {
        refused(store.put_right(&child.lease, word(of)).await, "has not succeeded by itself");
    }
    first.bring("call_1", CallStatus::Running).await;
    refused(store.put_right(&child.lease, word("call_1")).await, "has not succeeded by itself");
    let by_another_owner = store.put_right(&first.lease, word("call_1")).await;
    assert!(matches!(by_another_owner, Err(StoreError::NotFound { .. })), "{by_another_owner:?}");
    let answer = samples::settle("call_1", 1, CallStatus::Succeeded);
    let other = store.settle_attempt(&first.lease, answer).await.unwrap();
    let right = store.put_right(&child.lease, word("call_1")).await.unwrap();
    assert_eq!((right.status, right.answered_by()), (CallStatus::Succeeded, Some(&one)));
    assert_eq!(right.external_correlation_id, other.external_correlation_id);
    store.deduplicate_call(&child.lease, &three, &two, &key("call_2"), at(61)).await.unwrap();
    let limited = StartAttempt { max_effects: Some(1), ..samples::start("call_4", 1, "call_4") };
    let refused_at_one = store.start_attempt(&child.lease, limited.clone()).await;
    assert!(matches!(&refused_at_one, Err(StoreError::EffectLimit { .. })), "{refused_at_one:?}");
    store.start_attempt(&child.lease, StartAttempt { max_effects: Some(2), ..limited }).await.unwrap();
    store.settle_attempt(&child.lease, samples::not_sent(four.as_str(), 1)).await.unwrap();
    first.commit(1).await;
    child.commit(1).await;

    let mut other = other;
    for (seconds, outcome) in (70..).zip([CorrectedTo::NotHappened, CorrectedTo::Happened, CorrectedTo::Skipped]) {
        other = store.correct_call(correct(&other, outcome, seconds)).await.unwrap();
        for (id, source) in [(&two, &one), (&three, &two)] {
            let call = store.call(id).await.unwrap();
            let stands = (call.status, call.resolution, call.doubt, call.answered_by());
            assert_eq!(stands, (other.status, other.resolution, None, Some(source)), "{outcome} {id}");
            assert_eq!(call.external_correlation_id, other.external_correlation_id, "{outcome} {id}");
            let correction = call.correction.clone().unwrap();
            assert_eq!((correction.outcome, correction.at), (outcome, at(seconds)), "{outcome} {id}");
        }
        let mut events = Vec::new();
        for id in [&two, &three, &four] {
            events.extend(store.events(id).await.unwrap());
        }
        assert_eq!(broken(&child.records().await, &events), [""; 0], "{outcome}");
    }
    // A person speaks of it itself: it follows nobody any more, and what follows it follows that.
    let right = store.call(&two).await.unwrap();
    store.correct_call(correct(&right, CorrectedTo::NotHappened, 80)).await.unwrap();
    store.correct_call(correct(&other, CorrectedTo::Happened, 81)).await.unwrap();
    for id in [&two, &three] {
        assert_eq!(store.call(id).await.unwrap().status, CallStatus::FailedDefinite, "{id}");
    }
}

/// Under one key one effect is recorded: what another call did since is not taken from it.
pub async fn a_correction_does_not_take_a_key_that_another_call_holds(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
    store.start_attempt(&scene.lease, samples::start("call_1", 1, "k")).await.unwrap();
    store.settle_attempt(&scene.lease, samples::not_sent("call_1", 1)).await.unwrap();
    store.start_attempt(&scene.lease, samples::start("call_2", 1, "k")).await.unwrap();
    store.settle_attempt(&scene.lease, samples::settle("call_2", 1, CallStatus::Succeeded)).await.unwrap();
    scene.commit(1).await;
    let one = store.call(&call_id("call_1")).await.unwrap();
    let taken = store.correct_call(correct(&one, CorrectedTo::Happened, 70)).await;
    assert!(matches!(&taken, Err(StoreError::KeyTaken { by, .. }) if *by == call_id("call_2")), "{taken:?}");
    let two = store.call(&call_id("call_2")).await.unwrap();
    store.correct_call(correct(&two, CorrectedTo::NotHappened, 71)).await.unwrap();
    let one = store.correct_call(correct(&one, CorrectedTo::Happened, 72)).await.unwrap();
    assert_eq!(store.key_holder(scene.run_id(), &key("k")).await.unwrap(), Some(one));
}

/// The question about the call needs no answer any more, and says why; the run is no longer kept waiting by it.
pub async fn a_correction_closes_the_question(store: &dyn Store) {
    for answered in [false, true] {
        let run = format!("run_{answered}");
        let scene = Scene::begin(store, &run).await;
        let (id, question) = (format!("call_{answered}"), format!("q_{answered}"));
        let call = scene.call_that_is(&id, CallStatus::Unknown).await;
        store.raise_question(&scene.lease, samples::question(&question, Some(&id))).await.unwrap();
        if answered {
            store.insert_answer(samples::answer(&question, Choice::Execute)).await.unwrap();
        }
        store.end_run(&scene.lease, samples::run_end(RunStatus::WaitingForHuman)).await.unwrap();
        let word = CorrectCall { is_idle: true, ..correct(&call, CorrectedTo::Happened, 70) };
        let sentence = word.correction.sentence();
        store.correct_call(word).await.unwrap();
        let asked = store.question(&question_id(&question)).await.unwrap();
        assert_eq!((asked.status, asked.closed_because), (QuestionStatus::Closed, Some(sentence)));
        let events = store.events(&call.call_id).await.unwrap();
        assert_eq!(broken(&scene.records().await, &events), [""; 0]);
    }
}
