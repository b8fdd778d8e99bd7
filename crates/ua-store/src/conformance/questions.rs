//! What only a person can decide.

use ua_core::{CallStatus, EvidenceLevel, RawReply};

use super::samples::{self, at, call_id, question_id};
use super::{Scene, refused};
use crate::Store;
use crate::commit::{NewQuestion, UnknownResolution};
use crate::error::StoreError;
use crate::record::{Choice, QuestionStatus};

/// A second question about a call is the first one, until that is closed; the run itself may have several.
pub async fn a_call_has_one_question_at_a_time(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Unknown).await;
    let new = samples::question("q_1", Some("call_1"));
    let first = store.raise_question(&scene.lease, new.clone()).await.unwrap();
    assert_eq!((&first.text, &first.detail, &first.choices), (&new.text, &new.detail, &new.choices));
    assert_eq!((first.status, &first.answer, first.kind), (QuestionStatus::Open, &None, new.kind));
    let second = store.raise_question(&scene.lease, samples::question("q_2", Some("call_1"))).await.unwrap();
    assert_eq!(second, first);
    let answered = store.insert_answer(samples::answer("q_1", Choice::Skip)).await.unwrap();
    let third = store.raise_question(&scene.lease, samples::question("q_3", Some("call_1"))).await.unwrap();
    assert_eq!(third, answered);
    store.close_question(&scene.lease, &question_id("q_1"), at(70)).await.unwrap();
    let fourth = store.raise_question(&scene.lease, samples::question("q_4", Some("call_1"))).await.unwrap();
    assert_eq!(fourth.question_id, question_id("q_4"));

    for id in ["q_5", "q_6"] {
        store.raise_question(&scene.lease, samples::question(id, None)).await.unwrap();
    }
    let taken = store.raise_question(&scene.lease, samples::question("q_5", None)).await;
    assert!(matches!(taken, Err(StoreError::Exists { .. })), "{taken:?}");
    assert_eq!(scene.records().await.questions.len(), 4);
}

/// An answer must be one of the choices, is stored whole, and is not replaced.
pub async fn an_answer_is_one_of_the_choices_and_given_once(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let new = NewQuestion { choices: vec![Choice::Skip, Choice::Abort], ..samples::question("q_1", None) };
    store.raise_question(&scene.lease, new).await.unwrap();
    refused(store.insert_answer(samples::answer("q_1", Choice::Execute)).await, "none of its choices");
    let answered = store.insert_answer(samples::answer("q_1", Choice::Skip)).await.unwrap();
    let given = answered.answer.clone().unwrap();
    assert_eq!((answered.status, given.choice, given.by.as_str()), (QuestionStatus::Answered, Choice::Skip, "ada"));
    assert_eq!((given.proof.as_deref(), given.text.as_deref()), (Some("msg_1"), Some("I looked")));
    assert_eq!((given.answered_at, given.applied_at), (at(60), None));
    refused(store.insert_answer(samples::answer("q_1", Choice::Abort)).await, "answered already");
    assert_eq!(store.question(&question_id("q_1")).await.unwrap(), answered);
}

/// Questions that are not closed are listed oldest first, of one run or of all; closing one twice does no harm.
pub async fn a_closed_question_is_not_asked_any_more(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let other = Scene::begin(store, "run_2").await;
    for (scene, id) in [(&scene, "q_z"), (&other, "q_y"), (&scene, "q_a")] {
        store.raise_question(&scene.lease, samples::question(id, None)).await.unwrap();
    }
    let names = |questions: Vec<crate::QuestionRecord>| {
        questions.into_iter().map(|question| question.question_id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(store.open_questions(None).await.unwrap()), ["q_z", "q_y", "q_a"]);
    assert_eq!(names(store.open_questions(Some(scene.run_id())).await.unwrap()), ["q_z", "q_a"]);
    store.insert_answer(samples::answer("q_z", Choice::Skip)).await.unwrap();
    assert_eq!(names(store.open_questions(Some(scene.run_id())).await.unwrap()), ["q_z", "q_a"]);

    store.close_question(&scene.lease, &question_id("q_z"), at(70)).await.unwrap();
    store.close_question(&scene.lease, &question_id("q_z"), at(71)).await.unwrap();
    let closed = store.question(&question_id("q_z")).await.unwrap();
    assert_eq!((closed.status, closed.answer.unwrap().applied_at), (QuestionStatus::Closed, Some(at(70))));
    store.close_question(&scene.lease, &question_id("q_a"), at(72)).await.unwrap();
    refused(store.insert_answer(samples::answer("q_a", Choice::Skip)).await, "closed");
    let foreign = store.close_question(&scene.lease, &question_id("q_y"), at(73)).await;
    assert!(matches!(foreign, Err(StoreError::NotFound { .. })), "{foreign:?}");
    assert_eq!(names(store.open_questions(None).await.unwrap()), ["q_y"]);
}

/// Settling an unknown call closes the question it answers, in the same write.
pub async fn a_resolution_closes_its_question(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
    scene.bring("call_1", CallStatus::Unknown).await;
    scene.bring("call_2", CallStatus::Unknown).await;
    store.raise_question(&scene.lease, samples::question("q_1", Some("call_1"))).await.unwrap();
    store.raise_question(&scene.lease, samples::question("q_2", Some("call_2"))).await.unwrap();
    store.insert_answer(samples::answer("q_1", Choice::Happened)).await.unwrap();
    let happened = || UnknownResolution::Happened {
        raw: RawReply::Statement { by: "ada".to_owned(), proof: Some("msg_1".to_owned()) },
        settlement: samples::settlement(CallStatus::Succeeded),
        evidence: EvidenceLevel::Reconciled,
    };
    let (one, two) = (call_id("call_1"), call_id("call_2"));
    let (first, second) = (question_id("q_1"), question_id("q_2"));
    refused(
        store.resolve_unknown(&scene.lease, &one, happened(), Some(&second), at(61)).await,
        "not about call call_1",
    );
    store.resolve_unknown(&scene.lease, &one, happened(), Some(&first), at(62)).await.unwrap();
    let question = store.question(&first).await.unwrap();
    assert_eq!((question.status, question.answer.unwrap().applied_at), (QuestionStatus::Closed, Some(at(62))));
    store.resolve_unknown(&scene.lease, &two, UnknownResolution::Skipped, Some(&second), at(63)).await.unwrap();
    let question = store.question(&second).await.unwrap();
    assert_eq!((question.status, question.answer), (QuestionStatus::Closed, None));
}
