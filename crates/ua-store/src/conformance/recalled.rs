//! What is known beside the database of calls that it has: they were sent, and nobody has what came back.

use ua_core::{CallStatus, CorrectedTo, RawReply, Resolution};

use super::Scene;
use super::samples::{self, at, key};
use crate::commit::{CorrectCall, MadeBy, RecallCall, RecalledAttempt, UnknownResolution};
use crate::error::StoreError;
use crate::forgotten::{Forgotten, recall_of};
use crate::record::{AttemptRecord, CallRecord, Choice, QuestionStatus};
use crate::rules::{self, may_have_happened};
use crate::{LedgerStore, RunStore, Store, Trace, invariants};

pub(super) fn line(call: &CallRecord, attempt: u32, did_nothing: bool) -> RecalledAttempt {
    RecalledAttempt {
        attempt,
        key: call.idempotency_key.clone().unwrap_or_else(|| key(call.call_id.as_str())),
        scope: call.scope.clone(),
        sent_at: at(60 + i64::from(attempt)),
        at: at(60 + i64::from(attempt)),
        said: (if did_nothing { CallStatus::FailedDefinite } else { CallStatus::Succeeded }).to_string(),
        was_answered: !did_nothing,
        did_nothing,
        learnt_of: None,
        file_digests: None,
        made_by: None,
    }
}

pub(super) fn recall(call: &CallRecord, attempts: Vec<RecalledAttempt>) -> RecallCall {
    RecallCall { call_id: call.call_id.clone(), attempts }
}

/// A call that the database does not have.
fn lost(in_same_words: bool, found_by: Vec<String>, external_id: Option<String>) -> MadeBy {
    MadeBy { call: "call_lost".to_owned(), run: "run_lost".to_owned(), in_same_words, found_by, external_id }
}

fn is_ended(attempt: &AttemptRecord) -> bool {
    attempt.ended_at.is_some()
}

/// Whatever the database has of a call that may be sent: with one or two attempts more it is in doubt, or failed for sure where all that is known
/// of it is that it did nothing; each attempt has its row and its end, and a second time nothing changes.
pub async fn a_call_that_was_sent_is_in_doubt(store: &dyn Store) {
    for from in [CallStatus::Prepared, CallStatus::Running, CallStatus::Unknown, CallStatus::FailedDefinite] {
        for more in 1..=2 {
            for did_nothing in [false, true] {
                let what = format!("{from}, {more} more, did_nothing: {did_nothing}");
                let scene = Scene::begin(store, &format!("run_{from}_{more}_{did_nothing}")).await;
                let call = scene.call_that_is(&format!("call_{from}_{more}_{did_nothing}"), from).await;
                let last = call.attempt + more;
                // The first of two lines may have been cut: of that attempt no more is known than that there was one.
                let known = recall(&call, vec![line(&call, last, did_nothing)]);
                let recalled = store.recall_call(known.clone()).await.unwrap();
                // That the last one did nothing says nothing about one before it of which nobody knows.
                let was_in_doubt = more == 2 || matches!(from, CallStatus::Running | CallStatus::Unknown);
                let is_refuted = did_nothing && !was_in_doubt;
                let expected = if is_refuted { CallStatus::FailedDefinite } else { CallStatus::Unknown };
                assert_eq!((recalled.status, recalled.attempt), (expected, last), "{what}");
                assert_eq!(may_have_happened(&recalled), !is_refuted, "{what}");
                let attempts = store.attempts(&call.call_id).await.unwrap();
                let is_answered = attempts.last().is_some_and(rules::was_answered_beside);
                assert_eq!(is_answered, !did_nothing, "{what}");
                let numbers: Vec<u32> = attempts.iter().map(|attempt| attempt.attempt).collect();
                assert_eq!(numbers, (1..=last).collect::<Vec<_>>(), "{what}");
                assert!(attempts.iter().all(is_ended), "{what}");
                let holder = store.key_holder(scene.run_id(), &line(&call, last, false).key).await.unwrap();
                assert_eq!(holder.is_some(), recalled.status.claims_key(), "{what}");
                assert_eq!(scene.records().await.call(&call.call_id), Some(&recalled), "{what}");

                let events = store.events(&call.call_id).await.unwrap();
                assert_eq!(store.recall_call(known).await.unwrap(), recalled, "{what}");
                assert_eq!(store.events(&call.call_id).await.unwrap(), events, "{what}");
                // It is a call like any other: a person can put its record right.
                if recalled.status == CallStatus::Unknown {
                    let word = samples::correct(&recalled, CorrectedTo::Happened, 90);
                    let word = CorrectCall { is_idle: true, ..word };
                    assert_eq!(store.correct_call(word).await.unwrap().status, CallStatus::Succeeded, "{what}");
                }
            }
        }
    }
}

/// What a line says of an attempt that the database has stands as a row of its own, and counts as no send; one that the database lost does. Wherever it
/// stands among others.
pub async fn what_is_known_of_an_attempt_is_not_sent(store: &dyn Store) {
    for (number, rows) in [[None, None], [Some(1), None], [None, Some(1)], [Some(1), Some(1)]].into_iter().enumerate() {
        let scene = Scene::begin(store, &format!("run_{number}")).await;
        let call = scene.call_that_is(&format!("call_{number}"), CallStatus::Unknown).await;
        assert_eq!(rules::times_sent(&call, &[]), 1);
        let lines =
            (2..).zip(rows).map(|(attempt, learnt_of)| RecalledAttempt { learnt_of, ..line(&call, attempt, false) });
        let recalled = store.recall_call(recall(&call, lines.collect())).await.unwrap();
        let attempts = store.attempts(&call.call_id).await.unwrap();
        assert_eq!((recalled.attempt, attempts.len()), (3, 3));
        let sent = 1 + rows.into_iter().filter(Option::is_none).count();
        assert_eq!(usize::try_from(rules::times_sent(&recalled, &attempts)).unwrap(), sent, "{rows:?}");
        let learnt: Vec<Option<u32>> = attempts.iter().skip(1).map(rules::learnt_of_another).collect();
        assert_eq!(learnt, rows);
        let other = CallRecord { call_id: samples::call_id("call_other"), ..recalled };
        assert_eq!(rules::times_sent(&other, &attempts), 3, "they are not its own");
    }
}

/// What a person said of a call, as only `effects.log` has it, is told to whoever is asked about the call as what it is: no answer of the other
/// side, and no further send.
pub async fn a_persons_word_is_told_and_is_no_send(store: &dyn Store) {
    use CallStatus::{Prepared, Running, Succeeded, Unknown};
    let happened = (Succeeded, Resolution::Happened, "a person said that it happened");
    let left = (Unknown, Resolution::Skipped, "a person left it without knowing what came of it");
    for (from, (status, word, told)) in
        [(Prepared, happened), (Running, happened), (Unknown, happened), (Prepared, left), (Unknown, left)]
    {
        let what = format!("{from}, {word:?}");
        let scene = Scene::begin(store, &format!("run_{from}_{status}")).await;
        let call = scene.call_that_is(&format!("call_{from}_{status}"), from).await;
        let attempts = store.attempts(&call.call_id).await.unwrap();
        let sent_at = attempts.first().map_or(at(60), |own| own.started_at);
        let line = Forgotten {
            at: at(90).to_string(),
            first_at: Some(sent_at.to_string()),
            is_from_its_start: true,
            run_id: scene.run_id().to_string(),
            tool_call_id: Some(call.call_id.to_string()),
            attempt: 1,
            tool: call.name.raw.clone(),
            idempotency_key: Some(line(&call, 1, false).key.to_string()),
            status: status.to_string(),
            resolution: Some(word.to_string()),
            ..Forgotten::default()
        };
        let known = recall_of(&call, &attempts, std::slice::from_ref(&line)).unwrap_or_else(|| panic!("{what}"));
        let recalled = store.recall_call(known.clone()).await.unwrap();
        assert_eq!(recalled.status, Unknown, "{what}");
        let attempts = store.attempts(&call.call_id).await.unwrap();
        assert_eq!(rules::times_sent(&recalled, &attempts), 1, "{what}: {attempts:?}");
        let last = attempts.last().unwrap();
        assert!(!rules::was_answered_beside(last), "{what}");
        assert_eq!(rules::said_beside(last).as_deref(), Some(told), "{what}");
        assert_eq!(scene.records().await.call(&call.call_id), Some(&recalled), "{what}");
        assert_eq!(store.recall_call(known).await.unwrap(), recalled, "{what}: it is learnt once");
    }
}

/// A record that says what came of a call, or that no person lets it be sent, is not overwritten by a line beside it.
pub async fn a_settled_call_is_not_recalled(store: &dyn Store) {
    for from in [CallStatus::Succeeded, CallStatus::FailedReported, CallStatus::Cancelled] {
        let scene = Scene::begin(store, &format!("run_{from}")).await;
        let call = scene.call_that_is(&format!("call_{from}"), from).await;
        let known = recall(&call, vec![line(&call, call.attempt + 1, false)]);
        let refused = store.recall_call(known).await.unwrap_err();
        assert!(matches!(refused, StoreError::Conflict { .. }), "{from}: {refused}");
        assert_eq!(store.call(&call.call_id).await.unwrap(), call, "{from}");
    }
}

/// What was asked about a call before it was sent is no question any more, also when the answer let it be sent. Other answers stay true.
pub async fn a_recalled_call_is_asked_about_anew(store: &dyn Store) {
    for answer in [None, Some(Choice::Execute), Some(Choice::Happened), Some(Choice::Skip)] {
        let name = answer.map_or("none".to_owned(), |choice| format!("{choice:?}").to_lowercase());
        let (run, id, asked) = (format!("run_{name}"), format!("call_{name}"), format!("q_{name}"));
        let scene = Scene::begin(store, &run).await;
        let call = scene.call_that_is(&id, CallStatus::Prepared).await;
        store.raise_question(&scene.lease, samples::question(&asked, Some(&id))).await.unwrap();
        if let Some(choice) = answer {
            store.insert_answer(samples::answer(&asked, choice)).await.unwrap();
        }
        store.recall_call(recall(&call, vec![line(&call, 1, false)])).await.unwrap();
        let question = store.question(&samples::question_id(&asked)).await.unwrap();
        let stays = matches!(answer, Some(Choice::Happened | Choice::Skip));
        assert_eq!(question.status == QuestionStatus::Closed, !stays, "{name}");
        assert_eq!(question.closed_because.is_some_and(|why| why.contains("was sent since")), !stays, "{name}");
        assert_eq!(store.call(&call.call_id).await.unwrap().status, CallStatus::Unknown, "{name}");
    }
}

/// A key that another call took since stays with it.
pub async fn a_recalled_call_takes_no_key_that_another_holds(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
    let call = scene.bring("call_1", CallStatus::Prepared).await;
    let other = scene.bring("call_2", CallStatus::Succeeded).await;
    let mut known = line(&call, 1, false);
    known.key = other.idempotency_key.clone().unwrap();
    let refused = store.recall_call(recall(&call, vec![known])).await.unwrap_err();
    assert!(matches!(refused, StoreError::KeyTaken { .. }), "{refused}");
    assert_eq!(store.call(&call.call_id).await.unwrap(), call);
}

/// What another call made says nothing of an attempt that has begun since somebody looked: that goes on, and takes its answer.
pub async fn an_attempt_that_has_begun_is_not_ended_for_another_call(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let call = scene.call_that_is("call_1", CallStatus::Running).await;
    let made_by = lost(true, Vec::new(), None);
    let known = RecalledAttempt { made_by: Some(made_by), ..line(&call, call.attempt, false) };
    assert_eq!(store.recall_call(recall(&call, vec![known])).await.unwrap(), call);
    store.settle_attempt(&scene.lease, samples::settle("call_1", call.attempt, CallStatus::Succeeded)).await.unwrap();
}

/// A late answer settles a recalled attempt as any other, and of that stays known that the rows which say why it was sent are gone.
pub async fn a_recalled_attempt_that_is_answered_stays_recalled(store: &dyn Store) {
    for learnt_of in [None, Some(1)] {
        let number = learnt_of.unwrap_or(0);
        let scene = Scene::begin(store, &format!("run_{number}")).await;
        let call = scene.call_that_is(&format!("call_{number}"), CallStatus::Unknown).await;
        let known = RecalledAttempt { learnt_of, ..line(&call, 2, false) };
        store.recall_call(recall(&call, vec![known.clone()])).await.unwrap();
        let told = store.attempts(&call.call_id).await.unwrap();
        let answered = UnknownResolution::Answered {
            raw: RawReply::Refused { why: "no such address".to_owned() },
            settlement: samples::settlement(CallStatus::Succeeded),
            received_at: at(90),
            sent_at: Some(known.sent_at),
        };
        store.resolve_unknown(&scene.lease, &call.call_id, answered, None, at(95)).await.unwrap();
        let attempts = store.attempts(&call.call_id).await.unwrap();
        let last = attempts.last().unwrap();
        assert_eq!((last.outcome.as_deref(), last.ended_at), (Some("replied"), Some(at(90))));
        assert!(rules::is_recalled(last));
        assert_eq!(rules::times_sent(&call, &attempts), rules::times_sent(&call, &told));
        let events = store.events(&call.call_id).await.unwrap();
        let violations = invariants::check_agreement(&scene.records().await, &events);
        let about_attempts = violations.iter().filter(|found| found.invariant.contains("attempts"));
        assert_eq!(about_attempts.count(), 0, "learnt of {learnt_of:?}: {violations:?}");
    }
}

/// What was answered stays answered, whatever was noted of it since, and what was not does not become so.
pub async fn an_answered_attempt_stays_answered(store: &dyn Store) {
    for said in CallStatus::ALL {
        for was_answered in [false, true] {
            let what = format!("{said}, was_answered: {was_answered}");
            let scene = Scene::begin(store, &format!("run_{said}_{was_answered}")).await;
            let call = scene.call_that_is(&format!("call_{said}_{was_answered}"), CallStatus::Prepared).await;
            let known = RecalledAttempt { said: said.to_string(), was_answered, ..line(&call, 1, false) };
            store.recall_call(recall(&call, vec![known])).await.unwrap();
            let attempt = store.attempts(&call.call_id).await.unwrap().pop().unwrap();
            let says = matches!(said, CallStatus::Succeeded | CallStatus::FailedReported);
            assert_eq!(rules::was_answered_beside(&attempt), says || was_answered, "{what}");
            assert!(rules::said_beside(&attempt).unwrap().contains(said.as_str()), "{what}");
            // A person who has it sent once more has it sent under another key; by itself it keeps its own.
            let call = store.call(&call.call_id).await.unwrap();
            assert_eq!(call.status, CallStatus::Unknown, "{what}");
        }
    }
}

/// A call that was never sent and stands in the place of one that the database does not have says so; it was sent when that was, also before it
/// was planned itself.
pub async fn a_call_in_the_place_of_another_says_so(store: &dyn Store) {
    let names =
        || vec!["Message-ID <a, under the id \"x\", of attempt 1>".to_owned(), "`b`: , in other words".to_owned()];
    for (said, of_other, sent) in [
        (CallStatus::Succeeded, lost(true, names(), Some("a \"b\", found by [\"c\"]".to_owned())), 1),
        (CallStatus::Unknown, lost(false, names(), None), 60),
        (CallStatus::FailedReported, lost(false, Vec::new(), Some(", of attempt 2".to_owned())), 60),
        (CallStatus::Running, lost(true, Vec::new(), None), 60),
    ] {
        let scene = Scene::begin(store, &format!("run_{said}")).await;
        let call = scene.call_that_is(&format!("call_{said}"), CallStatus::Prepared).await;
        let known = RecalledAttempt {
            sent_at: at(sent),
            at: at(sent + 1),
            said: said.to_string(),
            made_by: Some(of_other.clone()),
            ..line(&call, 1, false)
        };
        let recalled = store.recall_call(recall(&call, vec![known])).await.unwrap();
        assert_eq!((recalled.status, recalled.attempt), (CallStatus::Unknown, 1), "{said}");
        assert!(recalled.updated_at >= call.updated_at, "{said}");
        let attempt = store.attempts(&call.call_id).await.unwrap().pop().unwrap();
        assert_eq!(rules::made_by(&attempt), Some((of_other.clone(), said.as_str())), "{said}");
        assert_eq!(rules::learnt_of_another(&attempt), None, "{said}");
        let shown = rules::detail_in_words(&attempt).unwrap();
        assert!(shown.contains("call_lost") && !shown.contains("found by") && !shown.contains("the id"), "{shown}");
        // Nobody got a name that could be made of its own key.
        let traces = Trace::of(&recalled, std::slice::from_ref(&attempt));
        let expected =
            (!of_other.found_by.is_empty()).then(|| Trace { names: of_other.found_by.clone(), of: Some(of_other) });
        assert_eq!(traces, Vec::from_iter(expected), "{said}");
        assert_eq!(attempt.started_at, at(sent), "{said}");
        // Nothing is known of its own key.
        assert!(rules::is_recalled(&attempt) && !rules::was_answered_beside(&attempt), "{said}");
    }
}
