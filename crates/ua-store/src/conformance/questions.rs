//! What only a person can decide.

use ua_core::{CallStatus, EvidenceLevel, RawReply, Resolution, RunStatus};

use super::samples::{self, at, call_id, question_id, run_id};
use super::{Scene, cancel, refused};
use crate::commit::{NewAnswer, NewQuestion, NewRun, RunEnd, UnknownResolution};
use crate::error::StoreError;
use crate::record::{Choice, EndMark, QuestionKind, QuestionStatus};
use crate::{LedgerStore, RunStore, Store};

/// A second question about a call is the first one, until that is closed; the run itself may have several.
pub async fn a_call_has_one_question_at_a_time(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Unknown).await;
    let new = samples::question("q_1", Some("call_1"));
    let first = store.raise_question(&scene.lease, new.clone()).await.unwrap();
    assert_eq!((first.text.as_str(), &first.detail, &first.choices), (new.text.as_str(), &new.detail, &new.choices));
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
    let other_words = NewQuestion { text: ua_core::QuestionText::new("Really?"), ..samples::question("q_5", None) };
    let taken = store.raise_question(&scene.lease, other_words).await;
    assert!(matches!(taken, Err(StoreError::Exists { .. })), "{taken:?}");
    assert_eq!(scene.records().await.questions.len(), 4);
}

/// What is asked about a run already is not asked once more in the same words; once it is answered, it is.
pub async fn a_run_is_asked_about_the_same_once(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let other = Scene::begin(store, "run_2").await;
    let asking =
        |id: &str| NewQuestion { text: ua_core::QuestionText::new("Did it end?"), ..samples::question(id, None) };
    let first = store.raise_question(&scene.lease, asking("q_1")).await.unwrap();
    assert_eq!(store.raise_question(&scene.lease, asking("q_2")).await.unwrap(), first);
    let other_kind = NewQuestion { kind: QuestionKind::CrashLoop, ..asking("q_3") };
    assert_eq!(store.raise_question(&scene.lease, other_kind).await.unwrap().question_id, question_id("q_3"));
    let of_other = store.raise_question(&other.lease, asking("q_4")).await.unwrap();
    assert_eq!(of_other.question_id, question_id("q_4"));

    store.insert_answer(samples::answer("q_1", Choice::Skip)).await.unwrap();
    let again = store.raise_question(&scene.lease, asking("q_5")).await.unwrap();
    assert_eq!((again.question_id, again.status), (question_id("q_5"), QuestionStatus::Open));
}

/// An answer `abort` is a mark on its run and on those below it that have not ended, in the write of the answer: the first one stays,
/// nothing is started from then on, and the mark is there whatever becomes of the question.
pub async fn an_abort_is_a_mark_on_the_run(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
    scene.bring("call_1", CallStatus::Unknown).await;
    let child = NewRun { run_mode: "task".to_owned(), ..samples::child_run("run_task_1", "run_1") };
    store.submit_run(child).await.unwrap();
    let ended = NewRun { run_mode: "task".to_owned(), ..samples::child_run("run_task_2", "run_1") };
    store.submit_run(ended).await.unwrap();
    let (lease, _) = store.acquire_run(&run_id("run_task_2"), &samples::owner(101), at(6)).await.unwrap();
    store.end_run(&lease, samples::run_end(RunStatus::Failed)).await.unwrap();
    store.submit_run(samples::child_run("run_fork", "run_1")).await.unwrap();
    for (id, call) in [("q_0", None), ("q_1", None), ("q_2", Some("call_1"))] {
        store.raise_question(&scene.lease, samples::question(id, call)).await.unwrap();
    }
    let mark = async |id: &str| {
        let run = store.run(&run_id(id)).await.unwrap();
        (run.end_mark(), run.abort_requested_at, run.abort_question)
    };
    store.insert_answer(samples::answer("q_0", Choice::Skip)).await.unwrap();
    assert_eq!(mark("run_1").await, (None, None, None));
    store.insert_answer(samples::answer("q_2", Choice::Abort)).await.unwrap();
    let aborted = (Some(EndMark::Abort), Some(at(60)), Some(question_id("q_2")));
    assert_eq!(mark("run_1").await, aborted);
    assert_eq!(mark("run_task_1").await, aborted);
    assert_eq!(mark("run_task_2").await, (None, None, None), "it has ended");
    assert_eq!(mark("run_fork").await, (None, None, None), "a fork is a run of its own");
    let later = NewAnswer { at: at(61), ..samples::answer("q_1", Choice::Abort) };
    store.insert_answer(later).await.unwrap();
    assert_eq!(mark("run_1").await, aborted);
    refused(store.start_attempt(&scene.lease, samples::start("call_2", 1, "k")).await, "answered `abort`");

    store.close_question(&scene.lease, &question_id("q_1"), at(70)).await.unwrap();
    let (newer, run) = store.acquire_run(scene.run_id(), &samples::owner(102), at(71)).await.unwrap();
    assert_eq!((run.end_mark(), run.abort_question), (Some(EndMark::Abort), Some(question_id("q_2"))));
    let end = RunEnd {
        cancels: vec![cancel("call_2")],
        closes: vec![question_id("q_0"), question_id("q_2")],
        ..samples::run_end(RunStatus::Failed)
    };
    let failed = store.end_run(&newer, end).await.unwrap();
    assert_eq!((failed.status, failed.end_mark()), (RunStatus::Failed, Some(EndMark::Abort)));
    assert_eq!(store.open_questions(Some(scene.run_id())).await.unwrap(), []);
    assert_eq!(store.call(&call_id("call_2")).await.unwrap().status, CallStatus::Cancelled);
}

/// What an end cancels and closes is one write with it: refused as a whole, or done as a whole.
pub async fn an_end_takes_its_calls_and_questions_along(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let other = Scene::begin(store, "run_2").await;
    scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
    scene.bring("call_1", CallStatus::Unknown).await;
    for (scene, id, call) in [(&scene, "q_1", Some("call_2")), (&scene, "q_2", None), (&other, "q_3", None)] {
        store.raise_question(&scene.lease, samples::question(id, call)).await.unwrap();
    }
    let before = scene.records().await;
    let end = |call: &str, closed: &str| RunEnd {
        cancels: vec![cancel(call)],
        closes: vec![question_id("q_2"), question_id(closed)],
        ..samples::run_end(RunStatus::Failed)
    };
    refused(store.end_run(&scene.lease, end("call_1", "q_2")).await, "unknown");
    let foreign = store.end_run(&scene.lease, end("call_2", "q_3")).await;
    assert!(matches!(foreign, Err(StoreError::NotFound { .. })), "{foreign:?}");
    assert_eq!(scene.records().await, before);
    // The question about the call is closed with it, also without being named.
    store.end_run(&scene.lease, end("call_2", "q_2")).await.unwrap();
    let records = scene.records().await;
    assert_eq!(records.run.status, RunStatus::Failed);
    assert!(records.questions.iter().all(|question| question.status == QuestionStatus::Closed));
    assert_eq!(records.call(&call_id("call_2")).unwrap().status, CallStatus::Cancelled);
}

/// An answer must be one of the choices, is stored whole, and is not replaced.
pub async fn an_answer_is_one_of_the_choices_and_given_once(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let new = NewQuestion { choices: vec![Choice::Skip, Choice::Abort], ..samples::question("q_1", None) };
    store.raise_question(&scene.lease, new).await.unwrap();
    refused(store.insert_answer(samples::answer("q_1", Choice::Execute)).await, "not one of its choices");
    let answered = store.insert_answer(samples::answer("q_1", Choice::Skip)).await.unwrap();
    let given = answered.answer.clone().unwrap();
    assert_eq!((answered.status, given.choice, given.by.as_str()), (QuestionStatus::Answered, Choice::Skip, "ada"));
    assert_eq!((given.proof.as_deref(), given.text.as_deref()), (Some("msg_1"), Some("I looked")));
    assert_eq!((given.answered_at, given.applied_at), (at(60), None));
    refused(store.insert_answer(samples::answer("q_1", Choice::Abort)).await, "already been answered");
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

/// A question is taken back only while nobody has answered it: a word that came in between is never closed unheard.
pub async fn a_question_that_was_answered_is_not_taken_back(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let other = Scene::begin(store, "run_2").await;
    for (scene, id) in [(&scene, "q_1"), (&scene, "q_2"), (&other, "q_3")] {
        store.raise_question(&scene.lease, samples::question(id, None)).await.unwrap();
    }
    let answered = store.insert_answer(samples::answer("q_1", Choice::Skip)).await.unwrap();
    assert!(!store.withdraw_question(&scene.lease, &question_id("q_1"), at(70)).await.unwrap());
    assert_eq!(store.question(&question_id("q_1")).await.unwrap(), answered);
    for later in [70, 71] {
        assert!(store.withdraw_question(&scene.lease, &question_id("q_2"), at(later)).await.unwrap());
    }
    let withdrawn = store.question(&question_id("q_2")).await.unwrap();
    assert_eq!((withdrawn.status, withdrawn.answer), (QuestionStatus::Closed, None));
    refused(store.insert_answer(samples::answer("q_2", Choice::Skip)).await, "closed");
    let foreign = store.withdraw_question(&scene.lease, &question_id("q_3"), at(72)).await;
    assert!(matches!(foreign, Err(StoreError::NotFound { .. })), "{foreign:?}");
}

/// Whoever skips a call that failed says that it is not to be made: the call says so from then on, and calls that the same person let run
/// are not cancelled for it. Any other word leaves it as it is.
pub async fn a_failure_that_is_skipped_is_left(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let planned = ["call_1", "call_2", "call_3"].into_iter().zip(1..);
    scene.turn(planned.map(|(id, ordinal)| samples::planned_email(id, 1, ordinal)).collect()).await;
    let words = [("call_1", Choice::Skip), ("call_2", Choice::Execute)];
    for (id, choice) in words {
        scene.bring(id, CallStatus::FailedDefinite).await;
        let question = format!("q_of_{id}");
        store.raise_question(&scene.lease, samples::question(&question, Some(id))).await.unwrap();
        store.insert_answer(samples::answer(&question, choice)).await.unwrap();
        store.close_question(&scene.lease, &question_id(&question), at(70)).await.unwrap();
    }
    let resolution = async |id| store.call(&call_id(id)).await.unwrap().resolution;
    assert_eq!(resolution("call_1").await, Some(Resolution::Skipped));
    assert_eq!(resolution("call_2").await, None);

    store.raise_question(&scene.lease, samples::question("q_3", Some("call_3"))).await.unwrap();
    store.insert_answer(samples::answer("q_3", Choice::Skip)).await.unwrap();
    store.close_question(&scene.lease, &question_id("q_3"), at(71)).await.unwrap();
    assert_eq!(resolution("call_3").await, None, "what was never sent is cancelled");
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
