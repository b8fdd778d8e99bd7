//! The ledger: keys, attempts, receipts, and the one table of moves.

use ua_core::{
    CallEvent, CallStatus, CorrectedTo, EvidenceLevel, PlannedCall, PossibleEffect, RawReply, Resolution, Scope,
    Settlement, SideEffectClass, ToolName, ToolNamespace,
};

use super::samples::{self, at, call_id, key, question_id, run_id};
use super::{Scene, cancel, refused};
use crate::commit::{AttemptEnd, CallCancel, CorrectCall, SettleAttempt, StartAttempt, UnknownResolution};
use crate::error::StoreError;
use crate::record::{Choice, QuestionStatus, ReplayStatus, RunLease};
use crate::relations::Seen;
use crate::{CallsOf, Durability, LedgerStore, RunStore, Store};

fn happened(evidence: EvidenceLevel) -> UnknownResolution {
    UnknownResolution::Happened {
        raw: RawReply::Statement { by: "ada".to_owned(), proof: Some("msg_1".to_owned()) },
        settlement: samples::settlement(CallStatus::Succeeded),
        evidence,
    }
}

/// RUNNING writes key, scope, digests and the attempt, and makes the call the key's holder.
pub async fn a_start_claims_the_key(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Prepared).await;
    assert_eq!(store.key_holder(scene.run_id(), &key("k")).await.unwrap(), None);
    let start = StartAttempt {
        scope: Some(Scope::new("email.send", "boss@example.com")),
        replay_status: Some(ReplayStatus::Executed),
        ..samples::start("call_1", 1, "k")
    };
    let call = store.start_attempt(&scene.lease, start.clone()).await.unwrap();
    assert_eq!((call.status, call.attempt, call.updated_at), (CallStatus::Running, 1, at(5)));
    assert_eq!((&call.idempotency_key, &call.scope), (&Some(key("k")), &start.scope));
    assert_eq!((&call.file_digests, call.replay_status), (&start.file_digests, start.replay_status));
    assert_eq!(store.call(&call.call_id).await.unwrap(), call);
    assert_eq!(store.key_holder(scene.run_id(), &key("k")).await.unwrap(), Some(call.clone()));
    assert_eq!(store.key_holder(&run_id("run_2"), &key("k")).await.unwrap(), None);

    let [attempt] = &store.attempts(&call.call_id).await.unwrap()[..] else { panic!("one attempt") };
    assert_eq!((attempt.attempt, attempt.epoch, attempt.started_at), (1, 1, at(5)));
    assert_eq!(
        (&attempt.server_generation, &attempt.destination, attempt.ended_at, &attempt.outcome),
        (&start.server_generation, &start.destination, None, &None)
    );
}

/// While a call that runs, is unknown or succeeded holds a key, no other call starts under it; a definite failure frees it.
pub async fn a_held_key_refuses_every_other_call(store: &dyn Store) {
    let first = Scene::begin(store, "run_1").await;
    let child = Scene::begin_with(store, samples::child_run("run_2", "run_1")).await;
    first.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
    child.turn(vec![samples::planned_email("call_3", 1, 1)]).await;
    let taken = |outcome: Result<crate::CallRecord, StoreError>, by: &str, status| match outcome {
        Err(StoreError::KeyTaken { by: holder, status: found, .. }) => {
            assert_eq!((holder, found), (call_id(by), status));
        }
        other => panic!("expected a taken key, got {other:?}"),
    };

    store.start_attempt(&first.lease, samples::start("call_1", 1, "k")).await.unwrap();
    taken(store.start_attempt(&first.lease, samples::start("call_2", 1, "k")).await, "call_1", CallStatus::Running);
    store.settle_attempt(&first.lease, samples::lost("call_1", 1)).await.unwrap();
    taken(store.start_attempt(&child.lease, samples::start("call_3", 1, "k")).await, "call_1", CallStatus::Unknown);
    let nobody_saw_it = StartAttempt { ends_doubt: true, ..samples::start("call_1", 2, "k") };
    store.start_attempt(&first.lease, nobody_saw_it).await.unwrap();
    store.settle_attempt(&first.lease, samples::not_sent("call_1", 2)).await.unwrap();

    assert_eq!(store.key_holder(first.run_id(), &key("k")).await.unwrap(), None);
    store.start_attempt(&child.lease, samples::start("call_3", 1, "k")).await.unwrap();
    taken(store.start_attempt(&first.lease, samples::start("call_1", 3, "k")).await, "call_3", CallStatus::Running);
    store.settle_attempt(&child.lease, samples::settle("call_3", 1, CallStatus::Succeeded)).await.unwrap();
    taken(store.start_attempt(&first.lease, samples::start("call_2", 1, "k")).await, "call_3", CallStatus::Succeeded);
    assert_eq!(store.call(&call_id("call_2")).await.unwrap().status, CallStatus::Prepared);
}

/// Attempts count up by one, what may have happened keeps its key, and only the running attempt is settled.
pub async fn attempts_are_numbered_and_keep_their_key(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Prepared).await;
    let start = |attempt, key| store.start_attempt(&scene.lease, samples::start("call_1", attempt, key));
    refused(start(2, "k").await, "next attempt is 1");
    start(1, "k").await.unwrap();
    refused(store.settle_attempt(&scene.lease, samples::lost("call_1", 2)).await, "attempt 2 is not running");
    let failed = store.settle_attempt(&scene.lease, samples::not_sent("call_1", 1)).await.unwrap();
    assert_eq!((failed.status, failed.error_code.as_deref()), (CallStatus::FailedDefinite, Some("not_sent")));
    assert_eq!(failed.error_detail.as_deref(), Some("connection refused"));
    refused(start(1, "k").await, "next attempt is 2");
    let running = start(2, "k").await.unwrap();
    assert_eq!((running.error_code, running.error_detail), (None, None));
    refused(store.settle_attempt(&scene.lease, samples::lost("call_1", 1)).await, "attempt 1 is not running");
    let unknown = store.settle_attempt(&scene.lease, samples::lost("call_1", 2)).await.unwrap();
    assert_eq!((unknown.status, unknown.error_code.as_deref()), (CallStatus::Unknown, Some("lost")));

    let attempts = store.attempts(&call_id("call_1")).await.unwrap();
    let outcomes: Vec<_> =
        attempts.iter().map(|attempt| (attempt.attempt, attempt.outcome.as_deref(), attempt.ended_at)).collect();
    assert_eq!(outcomes, [(1, Some("not_sent"), Some(at(6))), (2, Some("lost"), Some(at(6)))]);
    assert_eq!(attempts[1].detail.as_deref(), Some("the connection was cut"));
    assert_eq!(store.receipt(&call_id("call_1")).await.unwrap(), None);
    assert_eq!(scene.records().await.attempts, attempts);
}

/// For every status and every event, a store does what the table says: it moves the call there, or refuses.
pub async fn only_legal_moves_are_made(store: &dyn Store) {
    let twin = Scene::begin(store, "run_twin").await;
    twin.call_that_is("call_twin", CallStatus::Prepared).await;
    store.start_attempt(&twin.lease, samples::start("call_twin", 1, "twin")).await.unwrap();
    store.settle_attempt(&twin.lease, samples::settle("call_twin", 1, CallStatus::Succeeded)).await.unwrap();

    for &from in CallStatus::ALL {
        for &event in CallEvent::ALL {
            let name = format!("{from}_{event:?}").to_lowercase();
            let scene = Scene::begin_with(store, samples::child_run(&format!("run_{name}"), "run_twin")).await;
            let id = format!("call_{name}");
            let call = scene.call_that_is(&id, from).await;
            let before = scene.records().await;
            let (lease, attempt) = (&scene.lease, call.attempt);
            let settle = |status| store.settle_attempt(lease, samples::settle(&id, attempt, status));
            let corrected = async |outcome| {
                let word = CorrectCall { is_idle: true, ..samples::correct(&call, outcome, 9) };
                store.correct_call(word).await.map(drop)
            };
            let outcome = match event {
                CallEvent::Started => store.start_attempt(lease, samples::start(&id, attempt + 1, &id)).await.map(drop),
                CallEvent::Succeeded if from == CallStatus::Unknown => {
                    let resolved =
                        store.resolve_unknown(lease, &call.call_id, happened(EvidenceLevel::Verified), None, at(9));
                    resolved.await.map(drop)
                }
                CallEvent::Succeeded => settle(CallStatus::Succeeded).await.map(drop),
                CallEvent::Deduplicated => {
                    let from = call_id("call_twin");
                    store.deduplicate_call(lease, &call.call_id, &from, &key("twin"), at(9)).await.map(drop)
                }
                // An unknown call fails only after another attempt, so that these two have no write of their own from there.
                CallEvent::FailedDefinitely | CallEvent::FailureReported if from == CallStatus::Unknown => continue,
                CallEvent::FailedDefinitely => settle(CallStatus::FailedDefinite).await.map(drop),
                CallEvent::FailureReported => settle(CallStatus::FailedReported).await.map(drop),
                CallEvent::OutcomeLost => store.settle_attempt(lease, samples::lost(&id, attempt)).await.map(drop),
                CallEvent::Cancelled => store.cancel_calls(lease, vec![cancel(&id)], at(9)).await,
                CallEvent::CorrectedToHappened => corrected(CorrectedTo::Happened).await,
                CallEvent::CorrectedToNotHappened => corrected(CorrectedTo::NotHappened).await,
                CallEvent::CorrectedToSkipped => corrected(CorrectedTo::Skipped).await,
            };
            if let Ok(to) = from.on(event) {
                outcome.unwrap_or_else(|error| panic!("{from} {event:?}: {error}"));
                assert_eq!(store.call(&call.call_id).await.unwrap().status, to, "{from} {event:?}");
            } else {
                assert!(matches!(outcome, Err(StoreError::Conflict { .. })), "{from} {event:?}: {outcome:?}");
                assert_eq!(scene.records().await, before, "{from} {event:?}");
            }
        }
    }
}

/// A raw reply is a receipt at once, and its meaning is filled in once.
pub async fn a_reply_is_stored_before_it_is_understood(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Running).await;
    let id = call_id("call_1");
    let reply = || samples::ended("call_1", 1, AttemptEnd::Replied { raw: samples::raw(), settlement: None });
    let call = store.settle_attempt(&scene.lease, reply()).await.unwrap();
    assert_eq!(call.status, CallStatus::Running);
    let receipt = store.receipt(&id).await.unwrap().unwrap();
    assert_eq!((receipt.attempt, &receipt.raw, &receipt.settlement), (1, &samples::raw(), &None));
    assert_eq!((receipt.evidence, receipt.received_at), (EvidenceLevel::Reported, at(6)));
    refused(store.settle_attempt(&scene.lease, reply()).await, "stored already");
    refused(store.settle_attempt(&scene.lease, samples::lost("call_1", 1)).await, "stored already");

    let interpret =
        |status| store.interpret_receipt(&scene.lease, &id, samples::settlement(status), Durability::Synced, at(9));
    refused(interpret(CallStatus::Running).await, "never means");
    let call = interpret(CallStatus::Succeeded).await.unwrap();
    assert_eq!((call.status, call.external_correlation_id.as_deref()), (CallStatus::Succeeded, Some("msg_1")));
    let understood = store.receipt(&id).await.unwrap().unwrap();
    assert_eq!(
        understood,
        crate::ReceiptRecord { settlement: Some(samples::settlement(CallStatus::Succeeded)), ..receipt }
    );
    refused(interpret(CallStatus::FailedReported).await, "stored already");
    assert_eq!(store.receipt(&id).await.unwrap().unwrap(), understood);
    assert_eq!(scene.records().await.receipts, vec![understood]);
}

/// A reply can mean that nobody knows; a later attempt's reply is a newer receipt.
pub async fn a_reply_may_leave_the_outcome_open(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Running).await;
    let open = Settlement { possible_effect: Some(PossibleEffect::Maybe), ..samples::settlement(CallStatus::Unknown) };
    let end = AttemptEnd::Replied { raw: RawReply::http(502, "bad gateway"), settlement: Some(open) };
    let call = store.settle_attempt(&scene.lease, samples::ended("call_1", 1, end)).await.unwrap();
    assert_eq!((call.status, call.possible_effect), (CallStatus::Unknown, Some(PossibleEffect::Maybe)));
    assert_eq!(store.unknown_calls().await.unwrap(), vec![call]);

    let again = store.start_attempt(&scene.lease, samples::start("call_1", 2, "call_1")).await.unwrap();
    assert_eq!((again.possible_effect, again.error_code), (None, None));
    store.settle_attempt(&scene.lease, samples::settle("call_1", 2, CallStatus::Succeeded)).await.unwrap();
    let newest = store.receipt(&call_id("call_1")).await.unwrap().unwrap();
    assert_eq!((newest.attempt, &newest.raw), (2, &samples::raw()));
    let records = scene.records().await;
    assert_eq!(records.receipts.len(), 2);
    assert_eq!(records.receipt(&call_id("call_1")), Some(&newest));
    assert_eq!(store.unknown_calls().await.unwrap(), Vec::new());
}

/// What was sent lately and may have an effect is found in every run, whatever became of it.
pub async fn effects_are_found_in_every_run(store: &dyn Store) {
    let (one, other) = (Scene::begin(store, "run_1").await, Scene::begin(store, "run_2").await);
    one.turn(vec![
        samples::planned_email("call_1", 1, 1),
        samples::planned_email("call_2", 1, 2),
        samples::planned_call("call_3", 1, 3),
    ])
    .await;
    one.bring("call_1", CallStatus::Succeeded).await;
    one.bring("call_3", CallStatus::Running).await;
    other.call_that_is("call_9", CallStatus::Unknown).await;
    let sent = async |since| {
        let calls = store.calls_of(CallsOf::EffectsSince(since)).await.unwrap();
        calls.iter().map(|call| call.call_id.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(sent(at(0)).await, ["call_1", "call_9"], "neither a read nor what was never sent");
    let (first, second) =
        (store.call(&call_id("call_1")).await.unwrap(), store.call(&call_id("call_9")).await.unwrap());
    let latest = first.updated_at.max(second.updated_at);
    assert_eq!(sent(latest.plus(std::time::Duration::from_millis(1))).await, Vec::<String>::new());
    assert!(!sent(latest).await.is_empty(), "the moment itself counts");
}

/// Of a lineage it is told what changed behind a change, by the order in which that was stored: clocks are set, and those of two machines
/// differ.
pub async fn what_changed_behind_a_change_is_found_however_the_clock_is_set(store: &dyn Store) {
    let (scene, other) = (Scene::begin(store, "run_1").await, Scene::begin(store, "run_2").await);
    scene
        .turn(vec![
            samples::planned_email("call_1", 1, 1),
            samples::planned_email("call_2", 1, 2),
            samples::planned_call("call_3", 1, 3),
        ])
        .await;
    let start = async |id: &str, seconds: i64| {
        let start = StartAttempt { at: at(seconds), ..samples::start(id, 1, id) };
        store.start_attempt(&scene.lease, start).await.unwrap();
        store.events(&call_id(id)).await.unwrap().last().unwrap().seq
    };
    let behind = async |run: &str, place: u64| {
        let calls = store.calls_of(CallsOf::EffectsBehind(run_id(run), place)).await.unwrap();
        calls.iter().map(|call| call.call_id.as_str().to_owned()).collect::<Vec<_>>()
    };
    let sent = start("call_1", 1_000).await;
    assert_eq!(behind("run_1", sent - 1).await, ["call_1"]);
    assert_eq!(behind("run_1", sent).await, [""; 0]);
    // The clock is set back.
    let later = start("call_2", 100).await;
    start("call_3", 101).await;
    assert!(later > sent);
    assert_eq!(behind("run_1", sent).await, ["call_2"], "not what only reads");
    let end = SettleAttempt { at: at(1_001), ..samples::lost("call_1", 1) };
    store.settle_attempt(&scene.lease, end).await.unwrap();
    assert_eq!(behind("run_1", sent).await, ["call_1", "call_2"]);
    assert_eq!(behind("run_1", later).await, ["call_1"]);
    other.call_that_is("call_9", CallStatus::Unknown).await;
    assert_eq!(behind("run_2", later).await, ["call_9"], "each lineage has its own");
    assert_eq!(behind("run_1", later).await, ["call_1"]);
}

/// What was sent in a lineage is found by how its scope begins, whatever follows there.
pub async fn calls_are_found_by_how_their_scopes_begin(store: &dyn Store) {
    let (one, other) = (Scene::begin(store, "run_1").await, Scene::begin(store, "run_2").await);
    let begins = r#"email.send {"files":["#;
    let scopes =
        [r#"{"files":["path:a"]}"#, r#"{"files":["é"]}"#, r#"{"files":[]}"#, r#"{"files":"#, r#"{"filet":["a"]}"#];
    let planned = (1..=6).map(|number| samples::planned_email(&format!("call_{number}"), 1, number));
    one.turn(planned.collect()).await;
    for (number, scope) in (1..).zip(scopes) {
        let id = format!("call_{number}");
        let scope = Some(Scope::new("email.send", scope));
        store.start_attempt(&one.lease, StartAttempt { scope, ..samples::start(&id, 1, &id) }).await.unwrap();
    }
    other.turn(vec![samples::planned_email("call_9", 1, 1)]).await;
    let scope = Some(Scope::new("email.send", scopes[0]));
    store.start_attempt(&other.lease, StartAttempt { scope, ..samples::start("call_9", 1, "call_9") }).await.unwrap();
    for (scene, expected) in [(&one, vec!["call_1", "call_2", "call_3"]), (&other, vec!["call_9"])] {
        let calls = store.calls_of(CallsOf::ScopeBegins(scene.run_id().clone(), begins.to_owned())).await.unwrap();
        let found: Vec<&str> = calls.iter().map(|call| call.call_id.as_str()).collect();
        assert_eq!(found, expected);
    }
}

/// The first act of a recovery makes running calls unknown, but not one whose reply is stored.
pub async fn a_recovery_loses_only_what_was_not_answered(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let other = Scene::begin(store, "run_2").await;
    other.call_that_is("call_9", CallStatus::Running).await;
    scene.turn((1..=4).map(|n| samples::planned_email(&format!("call_{n}"), 1, n)).collect()).await;
    for (id, status) in
        [("call_4", CallStatus::Running), ("call_2", CallStatus::Running), ("call_1", CallStatus::Running)]
    {
        scene.bring(id, status).await;
    }
    let end = AttemptEnd::Replied { raw: samples::raw(), settlement: None };
    store.settle_attempt(&scene.lease, samples::ended("call_2", 1, end)).await.unwrap();
    let (lease, _) = store.acquire_run(scene.run_id(), &samples::owner(101), at(20)).await.unwrap();

    let lost = store.mark_lost(&lease, "the process died", at(21)).await.unwrap();
    let names: Vec<&str> = lost.iter().map(|call| call.call_id.as_str()).collect();
    assert_eq!(names, ["call_1", "call_4"]);
    for call in &lost {
        assert_eq!((call.status, call.error_detail.as_deref()), (CallStatus::Unknown, Some("the process died")));
        assert_eq!(&store.call(&call.call_id).await.unwrap(), call);
        let attempts = store.attempts(&call.call_id).await.unwrap();
        assert_eq!((attempts[0].outcome.as_deref(), attempts[0].ended_at), (Some("lost"), Some(at(21))));
    }
    assert_eq!(store.call(&call_id("call_2")).await.unwrap().status, CallStatus::Running);
    assert_eq!(store.call(&call_id("call_3")).await.unwrap().status, CallStatus::Prepared);
    assert_eq!(store.call(&call_id("call_9")).await.unwrap().status, CallStatus::Running);
    assert_eq!(store.unknown_calls().await.unwrap(), lost);
    assert_eq!(store.mark_lost(&lease, "again", at(22)).await.unwrap(), Vec::new());
}

/// Evidence makes an unknown call succeed, with a receipt of the evidence's level at the attempt that was lost.
pub async fn evidence_settles_an_unknown_call(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Unknown).await;
    let id = call_id("call_1");
    let no = UnknownResolution::Happened {
        raw: samples::raw(),
        settlement: samples::settlement(CallStatus::FailedReported),
        evidence: EvidenceLevel::Reconciled,
    };
    refused(store.resolve_unknown(&scene.lease, &id, no, None, at(30)).await, "no evidence");
    let call =
        store.resolve_unknown(&scene.lease, &id, happened(EvidenceLevel::Reconciled), None, at(31)).await.unwrap();
    assert_eq!((call.status, call.resolution, call.attempt), (CallStatus::Succeeded, Some(Resolution::Happened), 1));
    assert_eq!((call.error_code.as_deref(), call.external_correlation_id.as_deref()), (None, Some("msg_1")));
    let receipt = store.receipt(&id).await.unwrap().unwrap();
    assert_eq!((receipt.attempt, receipt.evidence, receipt.received_at), (1, EvidenceLevel::Reconciled, at(31)));
    let again = store.resolve_unknown(&scene.lease, &id, happened(EvidenceLevel::Verified), None, at(32)).await;
    refused(again, "not unknown");
    assert_eq!(store.receipt(&id).await.unwrap(), Some(receipt));
}

/// When the lost attempt has a reply, evidence is a newer receipt beside it, and the attempts keep their numbers.
pub async fn evidence_is_kept_beside_the_reply(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Running).await;
    store.settle_attempt(&scene.lease, samples::settle("call_1", 1, CallStatus::Unknown)).await.unwrap();
    let id = call_id("call_1");
    store.resolve_unknown(&scene.lease, &id, happened(EvidenceLevel::Reconciled), None, at(30)).await.unwrap();
    let records = scene.records().await;
    let levels: Vec<_> = records.receipts.iter().map(|receipt| (receipt.attempt, receipt.evidence)).collect();
    assert_eq!(levels, [(1, EvidenceLevel::Reported), (1, EvidenceLevel::Reconciled)]);
    assert_eq!(records.receipt(&id), Some(&records.receipts[1]));
    assert_eq!(store.receipt(&id).await.unwrap().as_ref(), records.receipts.last());
    assert_eq!(records.attempts.len(), 1);
}

/// A skipped call stays unknown and holds its key, but is not asked about any more, and its turn goes on.
pub async fn a_skipped_call_stays_unknown_and_lets_its_turn_commit(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Unknown).await;
    let id = call_id("call_1");
    let skip = |seconds| store.resolve_unknown(&scene.lease, &id, UnknownResolution::Skipped, None, at(seconds));
    let call = skip(30).await.unwrap();
    assert_eq!((call.status, call.resolution), (CallStatus::Unknown, Some(Resolution::Skipped)));
    assert_eq!(skip(31).await.unwrap(), call);
    assert_eq!(store.unknown_calls().await.unwrap(), Vec::new());
    assert_eq!(store.key_holder(scene.run_id(), &key("call_1")).await.unwrap(), Some(call));
    scene.commit(1).await;
    let late =
        store.resolve_unknown(&scene.lease, &id, happened(EvidenceLevel::Reconciled), None, at(40)).await.unwrap();
    assert_eq!((late.status, late.resolution), (CallStatus::Succeeded, Some(Resolution::Happened)));
}

/// Somebody knows that an unknown call did not happen, also after its turn: it has failed, definitely, and frees its key.
pub async fn what_did_not_happen_frees_its_key(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Unknown).await;
    let id = call_id("call_1");
    store.resolve_unknown(&scene.lease, &id, UnknownResolution::Skipped, None, at(30)).await.unwrap();
    scene.commit(1).await;
    let no = || UnknownResolution::NotHappened { why: "ada looked".to_owned() };
    let call = store.resolve_unknown(&scene.lease, &id, no(), None, at(40)).await.unwrap();
    assert_eq!((call.status, call.resolution), (CallStatus::FailedDefinite, Some(Resolution::NotHappened)));
    assert_eq!(call.error_detail.as_deref(), Some("ada looked"));
    assert_eq!(store.call(&id).await.unwrap(), call);
    assert_eq!(store.key_holder(scene.run_id(), &key("call_1")).await.unwrap(), None);
    refused(store.resolve_unknown(&scene.lease, &id, no(), None, at(41)).await, "not unknown");
}

/// What a probe found is told from what a person said.
pub async fn a_find_is_not_a_persons_word(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Unknown).await;
    let id = call_id("call_1");
    let raw = RawReply::Found {
        tool: "list".to_owned(),
        id: Some("7".to_owned()),
        item: serde_json::json!({"id": 7}),
        by: Some("by its key".to_owned()),
    };
    let found = UnknownResolution::Happened {
        raw: raw.clone(),
        settlement: samples::settlement(CallStatus::Succeeded),
        evidence: EvidenceLevel::Reconciled,
    };
    let call = store.resolve_unknown(&scene.lease, &id, found, None, at(30)).await.unwrap();
    assert_eq!((call.status, call.resolution), (CallStatus::Succeeded, Some(Resolution::Reconciled)));
    assert_eq!(store.receipt(&id).await.unwrap().unwrap().raw, raw);
}

/// An answer that came and could not be stored then settles the call as if it had been, with its attempt; one of an attempt before the
/// newest does not, and neither does one that leaves the outcome open.
pub async fn an_answer_that_was_not_stored_settles_its_own_attempt(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn((1..=4).map(|n| samples::planned_email(&format!("call_{n}"), 1, n)).collect()).await;
    for call in ["call_1", "call_2", "call_3", "call_4"] {
        scene.bring(call, CallStatus::Unknown).await;
    }
    let raw = RawReply::ToolResult { result: serde_json::json!({"content": [{"type": "text", "text": "sent"}]}) };
    let answered = |status, seconds| UnknownResolution::Answered {
        raw: raw.clone(),
        settlement: samples::settlement(status),
        received_at: at(seconds),
        sent_at: None,
    };
    let resolve = |call: &str, resolution| {
        let (lease, id) = (&scene.lease, call_id(call));
        async move { store.resolve_unknown(lease, &id, resolution, None, at(30)).await }
    };
    refused(resolve("call_1", answered(CallStatus::Succeeded, 0)).await, "not one that this answer may be of");
    // Of one that was sent at another time no clock makes it the answer.
    let sent = |sent_at, seconds| UnknownResolution::Answered {
        raw: raw.clone(),
        settlement: samples::settlement(CallStatus::Succeeded),
        received_at: at(seconds),
        sent_at: Some(sent_at),
    };
    let began = store.attempts(&call_id("call_4")).await.unwrap()[0].started_at;
    refused(resolve("call_4", sent(at(1), 20)).await, "not one that this answer may be of");
    // The clock was set back between.
    let settled = resolve("call_4", sent(began, 0)).await.unwrap();
    assert_eq!(settled.status, CallStatus::Succeeded);
    assert_eq!(store.attempts(&call_id("call_4")).await.unwrap()[0].ended_at, Some(began));
    assert!(resolve("call_1", answered(CallStatus::Unknown, 20)).await.is_err());
    for (call, status) in [
        ("call_1", CallStatus::Succeeded),
        ("call_2", CallStatus::FailedReported),
        ("call_3", CallStatus::FailedDefinite),
    ] {
        let settled = resolve(call, answered(status, 20)).await.unwrap();
        assert_eq!((settled.status, settled.resolution, settled.doubt), (status, None, None), "{call}");
        let attempt = store.attempts(&call_id(call)).await.unwrap().pop().unwrap();
        assert_eq!((attempt.outcome.as_deref(), attempt.ended_at), (Some("replied"), Some(at(20))), "{call}");
        let receipt = store.receipt(&call_id(call)).await.unwrap().unwrap();
        assert_eq!((&receipt.raw, receipt.received_at, receipt.evidence), (&raw, at(20), EvidenceLevel::Reported));
        refused(resolve(call, answered(status, 21)).await, "not unknown");
    }
}

/// A duplicate succeeds without an attempt and names its twin, which keeps the key.
pub async fn a_duplicate_takes_the_receipt_of_its_twin(store: &dyn Store) {
    let first = Scene::begin(store, "run_1").await;
    let child = Scene::begin_with(store, samples::child_run("run_2", "run_1")).await;
    let twin = first.call_that_is("call_1", CallStatus::Succeeded).await;
    child.call_that_is("call_2", CallStatus::Prepared).await;
    let outcome = store.deduplicate_call(&child.lease, &call_id("call_2"), &twin.call_id, &key("call_1"), at(9)).await;
    let call = outcome.unwrap();
    assert_eq!(
        (call.status, call.attempt, call.resolution),
        (CallStatus::Succeeded, 0, Some(Resolution::Deduplicated))
    );
    assert_eq!((&call.deduplicated_from, &call.idempotency_key), (&Some(twin.call_id.clone()), &Some(key("call_1"))));
    assert_eq!(call.external_correlation_id, twin.external_correlation_id);
    assert_eq!(store.call(&call.call_id).await.unwrap(), call);
    assert_eq!(store.key_holder(first.run_id(), &key("call_1")).await.unwrap(), Some(twin));
    assert_eq!(store.attempts(&call.call_id).await.unwrap(), Vec::new());
    child.commit(1).await;
}

/// Only a succeeded holder of the very key, in the same lineage, answers for another call.
pub async fn a_duplicate_needs_a_twin(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let stranger = Scene::begin(store, "run_2").await;
    stranger.call_that_is("call_9", CallStatus::Succeeded).await;
    scene.turn((1..=4).map(|n| samples::planned_email(&format!("call_{n}"), 1, n)).collect()).await;
    scene.bring("call_2", CallStatus::Running).await;
    scene.bring("call_3", CallStatus::Succeeded).await;
    let before = scene.records().await;
    let dedupe = async |from: &str, key_text: &str| {
        store.deduplicate_call(&scene.lease, &call_id("call_1"), &call_id(from), &key(key_text), at(9)).await
    };
    refused(dedupe("call_9", "call_9").await, "call_9 is not");
    refused(dedupe("call_2", "call_2").await, "call_2 is not");
    refused(dedupe("call_3", "another").await, "call_3 is not");
    refused(dedupe("call_1", "call_1").await, "call_1 is not");
    assert_eq!(scene.records().await, before);
    dedupe("call_3", "call_3").await.unwrap();
    let outcome =
        store.deduplicate_call(&scene.lease, &call_id("call_4"), &call_id("call_1"), &key("call_3"), at(9)).await;
    refused(outcome, "call_1 is not");
}

/// Several calls are cancelled in one write; one that was sent refuses for all.
pub async fn calls_are_cancelled_all_or_none(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn((1..=3).map(|n| samples::planned_email(&format!("call_{n}"), 1, n)).collect()).await;
    scene.bring("call_3", CallStatus::Running).await;
    let before = scene.records().await;
    let all = vec![cancel("call_1"), cancel("call_2"), cancel("call_3")];
    refused(store.cancel_calls(&scene.lease, all, at(9)).await, "call_3");
    refused(store.cancel_calls(&scene.lease, vec![cancel("call_1"), cancel("call_1")], at(9)).await, "call_1");
    assert_eq!(scene.records().await, before);
    let question = store.raise_question(&scene.lease, samples::question("q_1", Some("call_2"))).await.unwrap();
    store.insert_answer(samples::answer("q_1", Choice::Skip)).await.unwrap();
    store.cancel_calls(&scene.lease, vec![cancel("call_1"), cancel("call_2")], at(9)).await.unwrap();
    assert_eq!(store.question(&question.question_id).await.unwrap().status, QuestionStatus::Closed);
    for call in &scene.records().await.calls[..2] {
        assert_eq!((call.status, call.resolution), (CallStatus::Cancelled, Some(Resolution::AfterFailure)));
        assert_eq!(call.error_code.as_deref(), Some("after_failure"));
    }
}

/// A call that a person has let run is not cancelled by whoever does not know that, and by anybody else it is.
pub async fn a_call_that_was_let_run_is_cancelled_knowingly(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn((1..=2).map(|n| samples::planned_email(&format!("call_{n}"), 1, n)).collect()).await;
    let unknowing = |id: &str| CallCancel { unless_allowed: true, ..cancel(id) };
    for (id, choice) in [("call_1", Choice::Skip), ("call_2", Choice::Execute)] {
        let question = format!("q_{id}");
        store.raise_question(&scene.lease, samples::question(&question, Some(id))).await.unwrap();
        store.insert_answer(samples::answer(&question, choice)).await.unwrap();
    }
    let all = vec![unknowing("call_1"), unknowing("call_2")];
    refused(store.cancel_calls(&scene.lease, all, at(9)).await, "a person has let it run");
    assert_eq!(store.call(&call_id("call_1")).await.unwrap().status, CallStatus::Prepared);
    store.cancel_calls(&scene.lease, vec![unknowing("call_1"), cancel("call_2")], at(9)).await.unwrap();
    // Its record says that their word was in vain, and the other's says nothing of the kind.
    for (id, was_approved) in [("call_1", false), ("call_2", true)] {
        let call = store.call(&call_id(id)).await.unwrap();
        let told = call.error_detail.unwrap();
        assert!(told.starts_with(&cancel(id).message), "{told}");
        assert_eq!(told.contains("A person had approved it"), was_approved, "{told}");
    }
}

/// The limit of an effect counts every call of the lineage that had it or may have had it, and the same is read of a call ([`Store::around`]).
pub async fn an_effect_limit_counts_the_lineage(store: &dyn Store) {
    let first = Scene::begin(store, "run_1").await;
    let child = Scene::begin_with(store, samples::child_run("run_2", "run_1")).await;
    let stranger = Scene::begin(store, "run_3").await;
    first.turn((1..=4).map(|n| samples::planned_email(&format!("call_{n}"), 1, n)).collect()).await;
    child.turn(vec![samples::planned_email("call_5", 1, 1), samples::planned_call("call_6", 1, 2)]).await;
    stranger.call_that_is("call_7", CallStatus::Succeeded).await;
    // What is read before a start is what the start goes by.
    let start = async |lease: &RunLease, id: &str, attempt, max| {
        let counted = store.around(&call_id(id), None, None, max).await.unwrap().other_effects;
        let limited = StartAttempt { max_effects: Some(max), ..samples::start(id, attempt, id) };
        let started = store.start_attempt(lease, limited).await;
        let is_over = matches!(started, Err(StoreError::EffectLimit { .. }));
        assert_eq!(counted >= max, is_over, "{id}: {counted} of {max}, {started:?}");
        started
    };

    start(&first.lease, "call_1", 1, 1).await.unwrap();
    store.settle_attempt(&first.lease, samples::not_sent("call_1", 1)).await.unwrap();
    start(&first.lease, "call_2", 1, 1).await.unwrap();
    store.settle_attempt(&first.lease, samples::lost("call_2", 1)).await.unwrap();
    start(&first.lease, "call_2", 2, 1).await.unwrap();
    let over = start(&child.lease, "call_5", 1, 1).await;
    assert!(matches!(&over, Err(StoreError::EffectLimit { effect, max: 1, .. }) if effect == "email.send"), "{over:?}");
    let over = start(&first.lease, "call_1", 2, 1).await;
    assert!(matches!(over, Err(StoreError::EffectLimit { .. })), "{over:?}");
    start(&child.lease, "call_6", 1, 1).await.unwrap();
    start(&child.lease, "call_5", 1, 2).await.unwrap();
    assert_eq!(store.call(&call_id("call_1")).await.unwrap().status, CallStatus::FailedDefinite);

    // A failure that leaves open whether it happened counts; one that nothing came of does not.
    for (effect, is_counted) in [(Some(PossibleEffect::Maybe), true), (None, true), (Some(PossibleEffect::None), false)]
    {
        let name = format!("{effect:?}").to_lowercase().replace(['(', ')'], "_");
        let alone = Scene::begin(store, &format!("run_of_{name}")).await;
        let [failed, next] = ["failed", "next"].map(|which| format!("{which}_{name}"));
        alone.turn(vec![samples::planned_email(&failed, 1, 1), samples::planned_email(&next, 1, 2)]).await;
        start(&alone.lease, &failed, 1, 1).await.unwrap();
        let mut settle = samples::settle(&failed, 1, CallStatus::FailedReported);
        if let AttemptEnd::Replied { settlement: Some(settlement), .. } = &mut settle.end {
            settlement.possible_effect = effect;
        }
        store.settle_attempt(&alone.lease, settle).await.unwrap();
        let started = start(&alone.lease, &next, 1, 1).await;
        assert_eq!(started.is_err(), is_counted, "{effect:?}: {started:?}");
    }
}

/// An answer that lets a call run does so once, for that call only.
pub async fn an_approval_lets_one_attempt_run(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
    scene.bring("call_1", CallStatus::Unknown).await;
    store.raise_question(&scene.lease, samples::question("q_1", Some("call_1"))).await.unwrap();
    store.raise_question(&scene.lease, samples::question("q_2", Some("call_2"))).await.unwrap();
    let approved = |call: &str, attempt, question: &str| StartAttempt {
        approved_by: Some(question_id(question)),
        ..samples::start(call, attempt, call)
    };
    refused(store.start_attempt(&scene.lease, approved("call_1", 2, "q_1")).await, "no unused answer");
    store.insert_answer(samples::answer("q_1", Choice::Execute)).await.unwrap();
    store.insert_answer(samples::answer("q_2", Choice::Skip)).await.unwrap();
    refused(store.start_attempt(&scene.lease, approved("call_2", 1, "q_1")).await, "not about call call_2");
    refused(store.start_attempt(&scene.lease, approved("call_2", 1, "q_2")).await, "no unused answer");
    let nobody = store.start_attempt(&scene.lease, approved("call_2", 1, "q_0")).await;
    assert!(matches!(nobody, Err(StoreError::NotFound { .. })), "{nobody:?}");

    let call = store.start_attempt(&scene.lease, approved("call_1", 2, "q_1")).await.unwrap();
    assert_eq!((call.status, call.resolution), (CallStatus::Running, Some(Resolution::Executed)));
    let question = store.question(&question_id("q_1")).await.unwrap();
    assert_eq!((question.status, question.answer.unwrap().applied_at), (QuestionStatus::Closed, Some(at(5))));
    store.settle_attempt(&scene.lease, samples::not_sent("call_1", 2)).await.unwrap();
    refused(store.start_attempt(&scene.lease, approved("call_1", 3, "q_1")).await, "no unused answer");
}

/// After a cancel request nothing is started, while what runs is settled.
pub async fn nothing_starts_after_a_cancel_request(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
    scene.bring("call_1", CallStatus::Running).await;
    store.request_cancel(scene.run_id(), "wrong job", at(6)).await.unwrap();
    refused(store.start_attempt(&scene.lease, samples::start("call_2", 1, "call_2")).await, "cancel was requested");
    store.settle_attempt(&scene.lease, samples::settle("call_1", 1, CallStatus::Succeeded)).await.unwrap();
    store.cancel_calls(&scene.lease, vec![cancel("call_2")], at(7)).await.unwrap();
    scene.commit(1).await;
}

/// Each change of a status, the first included, is kept with epoch and instant, in order.
pub async fn every_change_is_an_event(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Running).await;
    let id = call_id("call_1");
    let (lease, _) = store.acquire_run(scene.run_id(), &samples::owner(101), at(20)).await.unwrap();
    store.mark_lost(&lease, "the process died", at(21)).await.unwrap();
    store.note_replay(&lease, &id, ReplayStatus::Redone, at(22)).await.unwrap();
    store.start_attempt(&lease, samples::start("call_1", 2, "call_1")).await.unwrap();
    store.settle_attempt(&lease, samples::not_sent("call_1", 2)).await.unwrap();

    let events = store.events(&id).await.unwrap();
    let told: Vec<_> = events.iter().map(|event| (event.from, event.to, event.epoch, event.at)).collect();
    let expected = [
        (None, CallStatus::Prepared, 1, at(4)),
        (Some(CallStatus::Prepared), CallStatus::Running, 1, at(5)),
        (Some(CallStatus::Running), CallStatus::Unknown, 2, at(21)),
        (Some(CallStatus::Unknown), CallStatus::Running, 2, at(5)),
        (Some(CallStatus::Running), CallStatus::Unknown, 2, at(6)),
    ];
    assert_eq!(told, expected);
    assert!(events.is_sorted_by_key(|event| event.seq));
}

/// Calls of a scope are found across the lineage once they were sent and may have had the effect.
pub async fn a_scope_is_found_in_the_whole_lineage(store: &dyn Store) {
    let scope = Scope::new("email.send", "boss@example.com");
    let first = Scene::begin(store, "run_1").await;
    let child = Scene::begin_with(store, samples::child_run("run_2", "run_1")).await;
    let stranger = Scene::begin(store, "run_3").await;
    for (scene, id) in [(&first, "call_1"), (&child, "call_2"), (&stranger, "call_3")] {
        let waiting = format!("{id}_waiting");
        scene.turn(vec![samples::planned_email(id, 1, 1), samples::planned_email(&waiting, 1, 2)]).await;
        let start = StartAttempt { scope: Some(scope.clone()), ..samples::start(id, 1, id) };
        store.start_attempt(&scene.lease, start).await.unwrap();
    }
    store.settle_attempt(&first.lease, samples::not_sent("call_1", 1)).await.unwrap();
    let seen = async |call: &str, scope: &Scope| {
        let relations = store.relations(&call_id(call), Some(scope)).await.unwrap();
        relations.rivals.into_iter().map(|rival| rival.newest.call_id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(seen("call_1_waiting", &scope).await, ["call_2"], "what definitely did nothing is no rival");
    assert_eq!(seen("call_1", &scope).await, ["call_2"]);
    assert_eq!(seen("call_2", &scope).await, [""; 0], "nobody rivals itself");
    assert_eq!(seen("call_1_waiting", &Scope::new("email.send", "someone@example.com")).await, [""; 0]);
}

/// A start that looks after its scope is refused by a call of the lineage that its caller did not know of and that may have
/// had the effect.
pub async fn a_start_sees_what_touched_its_scope_meanwhile(store: &dyn Store) {
    let scope = Scope::new("email.send", "boss@example.com");
    let first = Scene::begin(store, "run_1").await;
    let child = Scene::begin_with(store, samples::child_run("run_2", "run_1")).await;
    let stranger = Scene::begin(store, "run_3").await;
    for (scene, id) in [(&first, "call_1"), (&child, "call_2"), (&stranger, "call_3")] {
        scene.turn(vec![samples::planned_email(id, 1, 1)]).await;
    }
    let start = |id: &str, attempt: u32, seen: Option<Vec<Seen>>| StartAttempt {
        scope: Some(scope.clone()),
        seen,
        ..samples::start(id, attempt, id)
    };
    store.start_attempt(&first.lease, start("call_1", 1, Some(Vec::new()))).await.unwrap();
    let refused = store.start_attempt(&child.lease, start("call_2", 1, Some(Vec::new()))).await;
    match refused {
        Err(StoreError::ScopeTouched { call, by, status }) => {
            assert_eq!((call, by, status), (call_id("call_2"), call_id("call_1"), CallStatus::Running));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(store.call(&call_id("call_2")).await.unwrap().status, CallStatus::Prepared);
    store.start_attempt(&stranger.lease, start("call_3", 1, Some(Vec::new()))).await.unwrap();

    // What definitely did not happen bars nothing; what the caller has seen neither, nor does it where nobody looks.
    store.settle_attempt(&first.lease, samples::not_sent("call_1", 1)).await.unwrap();
    store.start_attempt(&child.lease, start("call_2", 1, Some(Vec::new()))).await.unwrap();
    let again = store.start_attempt(&first.lease, start("call_1", 2, Some(Vec::new()))).await;
    assert!(matches!(again, Err(StoreError::ScopeTouched { .. })), "{again:?}");
    let seen = store.relations(&call_id("call_1"), Some(&scope)).await.unwrap().seen();
    store.start_attempt(&first.lease, start("call_1", 2, Some(seen))).await.unwrap();
    store.settle_attempt(&child.lease, samples::not_sent("call_2", 1)).await.unwrap();
    store.start_attempt(&child.lease, start("call_2", 2, None)).await.unwrap();
}

/// A call that changes a memory.
fn remembers(id: &str, ordinal: u32, name: ToolName) -> PlannedCall {
    let mut call = PlannedCall { name, ..samples::planned_email(id, 1, ordinal) };
    (call.policy.class, call.policy.effect_kind) = (SideEffectClass::Memory, None);
    call
}

/// Doubt belongs to the call: that a later attempt did nothing does not say what came of an earlier one. A person, a probe or a success
/// ends it; and a refusal by our own memory tools, which look at the key before anything else. A server of somebody else's does not have
/// to, whatever class its tools were given.
pub async fn a_later_attempt_that_did_nothing_leaves_the_doubt(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let emails = ["call_1", "call_2", "call_3", "call_4"];
    let mut planned: Vec<PlannedCall> =
        emails.iter().zip(1..).map(|(id, ordinal)| samples::planned_email(id, 1, ordinal)).collect();
    planned.push(remembers("call_5", 5, ToolName::qualified(ToolNamespace::Mcp, "notes", "add_note")));
    planned.push(remembers("call_6", 6, ToolName::qualified(ToolNamespace::Local, "ua", "archival_memory_insert")));
    planned.push(remembers("call_7", 7, ToolName::qualified(ToolNamespace::Local, "ua", "core_memory_append")));
    scene.turn(planned).await;
    let ids = emails.into_iter().chain(["call_5", "call_6", "call_7"]);
    for id in ids {
        store.start_attempt(&scene.lease, samples::start(id, 1, id)).await.unwrap();
        let lost = store.settle_attempt(&scene.lease, samples::lost(id, 1)).await.unwrap();
        assert_eq!((lost.status, lost.doubt), (CallStatus::Unknown, Some(1)));
        let ends_doubt = id == "call_4";
        let start = StartAttempt { ends_doubt, ..samples::start(id, 2, id) };
        let again = store.start_attempt(&scene.lease, start).await.unwrap();
        assert_eq!(again.doubt, (!ends_doubt).then_some(1));
    }
    let ends = [
        (samples::not_sent("call_1", 2), CallStatus::Unknown, Some(1)),
        (samples::settle("call_2", 2, CallStatus::FailedDefinite), CallStatus::Unknown, Some(1)),
        (samples::settle("call_3", 2, CallStatus::Succeeded), CallStatus::Succeeded, None),
        (samples::not_sent("call_4", 2), CallStatus::FailedDefinite, None),
        (samples::settle("call_5", 2, CallStatus::FailedDefinite), CallStatus::Unknown, Some(1)),
        (samples::settle("call_6", 2, CallStatus::FailedDefinite), CallStatus::FailedDefinite, None),
        (samples::not_sent("call_7", 2), CallStatus::Unknown, Some(1)),
    ];
    for (end, status, doubt) in ends {
        let id = end.call_id.clone();
        let settled = store.settle_attempt(&scene.lease, end).await.unwrap();
        assert_eq!((settled.status, settled.doubt), (status, doubt), "{id}");
        assert_eq!(store.call(&id).await.unwrap(), settled);
    }
    let told = store.call(&call_id("call_1")).await.unwrap().error_detail.unwrap_or_default();
    assert!(told.contains("attempt 1") && told.contains("attempt 2 did nothing"), "{told}");
    let no = UnknownResolution::NotHappened { why: "nobody saw it".to_owned() };
    let resolved = store.resolve_unknown(&scene.lease, &call_id("call_1"), no, None, at(30)).await.unwrap();
    assert_eq!((resolved.status, resolved.doubt), (CallStatus::FailedDefinite, None));
}

/// What definitely did nothing may go out as another request; what may have happened keeps its key.
pub async fn only_what_did_nothing_may_get_another_key(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
    for (id, end) in [("call_1", samples::not_sent("call_1", 1)), ("call_2", samples::lost("call_2", 1))] {
        store.start_attempt(&scene.lease, samples::start(id, 1, id)).await.unwrap();
        store.settle_attempt(&scene.lease, end).await.unwrap();
    }
    let again = store.start_attempt(&scene.lease, samples::start("call_1", 2, "other")).await.unwrap();
    assert_eq!(again.idempotency_key, Some(samples::key("other")));
    refused(store.start_attempt(&scene.lease, samples::start("call_2", 2, "another")).await, "under another key");
}

/// A lease reaches the calls of its own run only.
pub async fn a_call_of_another_run_is_out_of_reach(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let other = Scene::begin(store, "run_2").await;
    other.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
    other.bring("call_2", CallStatus::Running).await;
    let before = other.records().await;
    let (lease, two) = (&scene.lease, call_id("call_2"));
    let outcomes = [
        store.start_attempt(lease, samples::start("call_1", 1, "k")).await.map(drop),
        store.settle_attempt(lease, samples::lost("call_2", 1)).await.map(drop),
        store.cancel_calls(lease, vec![cancel("call_1")], at(9)).await,
        store.resolve_unknown(lease, &two, UnknownResolution::Skipped, None, at(9)).await.map(drop),
        store.note_replay(lease, &two, ReplayStatus::Held, at(9)).await,
        store.raise_question(lease, samples::question("q_1", Some("call_2"))).await.map(drop),
    ];
    for (index, outcome) in outcomes.into_iter().enumerate() {
        assert!(matches!(outcome, Err(StoreError::NotFound { .. })), "write {index}: {outcome:?}");
    }
    assert_eq!(other.records().await, before);
}

/// What a resume did with a call is kept, and a later start does not forget it.
pub async fn a_note_about_a_replay_is_kept(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Unknown).await;
    store.note_replay(&scene.lease, &call_id("call_1"), ReplayStatus::Held, at(9)).await.unwrap();
    let call = store.start_attempt(&scene.lease, samples::start("call_1", 2, "call_1")).await.unwrap();
    assert_eq!(call.replay_status, Some(ReplayStatus::Held));
    let redone = StartAttempt { replay_status: Some(ReplayStatus::Redone), ..samples::start("call_1", 3, "call_1") };
    store.settle_attempt(&scene.lease, samples::lost("call_1", 2)).await.unwrap();
    let call = store.start_attempt(&scene.lease, redone).await.unwrap();
    assert_eq!(call.replay_status, Some(ReplayStatus::Redone));
}
