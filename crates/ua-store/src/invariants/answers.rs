//! What must hold of a person's answers: each had its consequence, or the record says why it has none.
//!
//! Of a run that was cancelled, or failed, the end is the reason. Elsewhere an answer that was acted on shows: the run ended, the
//! call succeeded or was not sent, the remark stands in the history.

use ua_core::{Block, CallStatus, OnUnknown, Resolution, RunStatus};

use super::Violations;
use crate::record::{AnswerRecord, CallRecord, Choice, QuestionKind, QuestionRecord, QuestionStatus, RunRecords};

/// Each answered question is closed with its consequence.
pub(super) fn acted_on(found: &mut Violations, records: &RunRecords) {
    for question in &records.questions {
        let Some(answer) = &question.answer else { continue };
        let call = question.call_id.as_ref().and_then(|call| records.call(call));
        match question.status {
            QuestionStatus::Open => {}
            QuestionStatus::Answered => never_applied(found, records, question, call),
            QuestionStatus::Closed => applied(found, records, question, answer, call),
        }
    }
}

/// Nobody is left who could act on it once its run has succeeded.
fn never_applied(found: &mut Violations, records: &RunRecords, question: &QuestionRecord, call: Option<&CallRecord>) {
    if records.run.status != RunStatus::Succeeded {
        return;
    }
    let is_gone_on_without = call.is_some_and(|call| {
        call.status == CallStatus::Unknown
            && (call.policy.on_unknown == OnUnknown::Continue || call.resolution == Some(Resolution::Skipped))
    });
    let invariant = if is_gone_on_without { "an_answer_beside_a_run_is_applied" } else { "each_answer_is_acted_on" };
    found.add(invariant, &question.question_id, "was answered, and its run has ended without acting on the answer");
}

fn applied(
    found: &mut Violations,
    records: &RunRecords,
    question: &QuestionRecord,
    answer: &AnswerRecord,
    call: Option<&CallRecord>,
) {
    if call.is_some_and(|call| call.correction.is_some()) {
        return; // a later word about the record counts
    }
    let id = &question.question_id;
    let by = &answer.by;
    match (answer.choice, call) {
        (Choice::Abort, _) => {
            if let Some(what) = went_on_after(records, answer) {
                found.add("an_abort_ends_the_run", id, format!("{by} answered `abort`, and the run {what} after that"));
            }
        }
        (Choice::Happened, Some(call)) => {
            // The earlier call that was it may count for nothing any more; then nothing is sent, and the model is told.
            let is_told = question.kind == QuestionKind::NearDuplicate && call.resolution == Some(Resolution::Refused);
            let is_so = call.status == CallStatus::Succeeded || is_told || is_asked_again(records, question, call);
            if records.run.status == RunStatus::Succeeded && !is_so {
                let why = format!("{by} answered that call {} happened, and it is {}", call.call_id, call.status);
                found.add("each_answer_is_acted_on", id, why);
            }
        }
        (Choice::Execute | Choice::Continue, Some(call)) => {
            let is_unsent = call.status == CallStatus::Cancelled && call.attempt == 0;
            let is_thrown_away = call.resolution == Some(Resolution::AfterFailure) && only_skips_before(records, call);
            if is_unsent && is_thrown_away && !is_asked_again(records, question, call) {
                let why = format!(
                    "{by} let `{}` (call {}) run, and it was cancelled since another call of its turn was skipped",
                    call.name.tool, call.call_id
                );
                found.add("an_approval_is_used", id, why);
            }
            // Such a call was let run in its own turn. One whose turn was over is told of otherwise.
            let is_of_its_turn =
                question.kind == QuestionKind::Approval && call.position.turn <= records.run.turn_index;
            if let Some(remark) = remark_of(answer).filter(|_| is_of_its_turn)
                && !is_in_the_history(records, remark)
            {
                let why = format!(
                    "{by} let `{}` (call {}) run with a remark that the model never read",
                    call.name.tool, call.call_id
                );
                found.add("a_remark_is_read", id, why);
            }
        }
        (Choice::Skip, Some(call)) => skipped(found, records, question, answer, call),
        (Choice::Happened | Choice::Execute | Choice::Continue | Choice::Skip, None) => {
            if let Some(remark) = remark_of(answer)
                && answer.applied_at.is_some_and(|at| records.turns.iter().any(|turn| turn.recorded_at > at))
                && !is_in_the_history(records, remark)
            {
                let why = format!("{by} said something to the model, and it was asked again without having read it");
                found.add("a_remark_is_read", id, why);
            }
        }
    }
}

/// The words beside an answer, if they say anything.
fn remark_of(answer: &AnswerRecord) -> Option<&str> {
    answer.text.as_deref().map(str::trim).filter(|remark| !remark.is_empty())
}

/// What a run did after it was to end. One that has ended has done as it was told, whatever a clock that was set back says of the order.
fn went_on_after(records: &RunRecords, answer: &AnswerRecord) -> Option<&'static str> {
    if matches!(records.run.status, RunStatus::Failed | RunStatus::Cancelled) {
        return None;
    }
    let applied_at = answer.applied_at?;
    if records.attempts.iter().any(|attempt| attempt.started_at > applied_at) {
        return Some("sent a call");
    }
    records.turns.iter().any(|turn| turn.recorded_at > applied_at).then_some("asked its model again")
}

fn skipped(
    found: &mut Violations,
    records: &RunRecords,
    question: &QuestionRecord,
    answer: &AnswerRecord,
    call: &CallRecord,
) {
    let id = &question.question_id;
    // Where the call stands says so, too: a wall clock may have been set in between.
    let is_left = call.status == CallStatus::Cancelled || call.resolution == Some(Resolution::Skipped);
    let was_sent = !is_left
        && answer.applied_at.is_some_and(|applied_at| {
            let own = records.attempts.iter().filter(|attempt| attempt.call_id == call.call_id);
            own.into_iter().any(|attempt| attempt.started_at > applied_at)
        });
    if was_sent && question.kind != QuestionKind::AuthFailure && !is_asked_again(records, question, call) {
        let is_withdrawn = question.kind == QuestionKind::NearDuplicate;
        let invariant = if is_withdrawn { "a_skip_is_kept" } else { "each_answer_is_acted_on" };
        let why = format!("{} skipped `{}` (call {}), and it was sent", answer.by, call.name.tool, call.call_id);
        found.add(invariant, id, why);
    }
    let Some(remark) =
        remark_of(answer).filter(|_| call.resolution == Some(Resolution::AfterFailure) && call.attempt == 0)
    else {
        return;
    };
    let turn_is_over = call.position.turn <= records.run.turn_index;
    if turn_is_over && !is_in_the_history(records, remark) {
        let why = format!(
            "{} skipped `{}` (call {}) with a remark, and the model never read it",
            answer.by, call.name.tool, call.call_id
        );
        found.add("a_remark_is_read", id, why);
    }
}

/// Whether a person was asked once more about the call: an answer that no longer fits is not acted on.
fn is_asked_again(records: &RunRecords, question: &QuestionRecord, call: &CallRecord) -> bool {
    let others = records.questions.iter().filter(|other| other.question_id != question.question_id);
    others
        .into_iter()
        .any(|other| other.call_id.as_ref() == Some(&call.call_id) && other.created_at >= question.created_at)
}

/// Whether a call was cancelled for nothing but what a person skipped before it in its turn.
fn only_skips_before(records: &RunRecords, call: &CallRecord) -> bool {
    let before = records
        .calls
        .iter()
        .filter(|other| other.position.turn == call.position.turn && other.position.ordinal < call.position.ordinal);
    let was_skipped = |other: &CallRecord| {
        // What a tool makes of a form that nobody filled in is its own answer: a failure like another.
        let is_about = |question: &&QuestionRecord| {
            question.call_id.as_ref() == Some(&other.call_id) && question.kind != QuestionKind::Elicitation
        };
        let about = records.questions.iter().filter(is_about);
        about.filter_map(|question| question.answer.as_ref()).any(|answer| answer.choice == Choice::Skip)
    };
    let mut unsuccessful = before.filter(|other| other.status != CallStatus::Succeeded).peekable();
    unsuccessful.peek().is_some() && unsuccessful.all(was_skipped)
}

fn is_in_the_history(records: &RunRecords, remark: &str) -> bool {
    records.messages.iter().flat_map(|message| &message.message.blocks).any(|block| match block {
        Block::ToolResult { content, .. } => content.to_string().contains(remark),
        Block::Text { text } => text.contains(remark),
        Block::Opaque { .. } | Block::ToolUse(_) => false,
    })
}

#[cfg(all(test, feature = "conformance"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

    use ua_core::{CallStatus, OnUnknown, Resolution, RunStatus};

    use crate::conformance::{Scene, samples};
    use crate::invariants::check;
    use crate::{
        Choice, EventRecord, LedgerStore as _, MemStore, QuestionKind, QuestionStatus, RunRecords, RunStore as _,
    };

    /// A turn of two calls, the second of which was asked about and answered; then the question was closed.
    async fn answered(choice: Choice, second: CallStatus) -> (RunRecords, Vec<EventRecord>) {
        let store = MemStore::default();
        let scene = Scene::begin(&store, "run_1").await;
        scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
        scene.bring("call_1", CallStatus::Cancelled).await;
        store.raise_question(&scene.lease, samples::question("q_2", Some("call_2"))).await.unwrap();
        store.insert_answer(samples::answer("q_2", choice)).await.unwrap();
        store.close_question(&scene.lease, &samples::question_id("q_2"), samples::at(61)).await.unwrap();
        scene.bring("call_2", second).await;
        let mut events = Vec::new();
        for call in ["call_1", "call_2"] {
            events.extend(store.events(&samples::call_id(call)).await.unwrap());
        }
        (scene.records().await, events)
    }

    fn broken((records, events): &(RunRecords, Vec<EventRecord>)) -> Vec<&'static str> {
        check(records, events).into_iter().map(|one| one.invariant).collect()
    }

    /// The first call of the turn was skipped by a person too, and the second cancelled with it.
    fn beside_a_skip(records: &mut RunRecords) {
        let mut first = records.questions[0].clone();
        first.question_id = samples::question_id("q_1");
        first.call_id = Some(samples::call_id("call_1"));
        if let Some(answer) = &mut first.answer {
            answer.choice = Choice::Skip;
            answer.text = None;
        }
        records.questions.push(first);
        records.calls[1].resolution = Some(Resolution::AfterFailure);
    }

    #[tokio::test]
    async fn an_answer_with_its_consequence_breaks_nothing() {
        for (choice, status) in [
            (Choice::Execute, CallStatus::Succeeded),
            (Choice::Happened, CallStatus::Succeeded),
            (Choice::Skip, CallStatus::Cancelled),
            (Choice::Abort, CallStatus::Cancelled),
        ] {
            assert_eq!(broken(&answered(choice, status).await), [""; 0], "{choice:?}");
        }
    }

    #[tokio::test]
    async fn what_an_abort_did_not_end_is_seen() {
        let mut scene = answered(Choice::Skip, CallStatus::Succeeded).await;
        // No store starts anything behind an abort, so the word is put in its place afterwards.
        scene.0.questions[0].answer.as_mut().unwrap().choice = Choice::Abort;
        assert_eq!(broken(&scene), [""; 0], "what was sent before it counts for nothing");
        scene.0.attempts[0].started_at = samples::at(62);
        assert_eq!(broken(&scene), ["an_abort_ends_the_run"]);
        scene.0.attempts[0].started_at = samples::at(5);
        scene.0.turns[0].recorded_at = samples::at(62);
        assert_eq!(broken(&scene), ["an_abort_ends_the_run"]);
    }

    #[tokio::test]
    async fn an_approval_beside_a_skip_is_seen() {
        let mut scene = answered(Choice::Execute, CallStatus::Cancelled).await;
        assert_eq!(broken(&scene), [""; 0], "it may be cancelled for a reason of its own");
        scene.0.calls[1].resolution = Some(Resolution::AfterFailure);
        assert_eq!(broken(&scene), [""; 0], "a failure of the first call is a reason");
        beside_a_skip(&mut scene.0);
        assert_eq!(broken(&scene), ["an_approval_is_used"]);
    }

    #[tokio::test]
    async fn a_remark_that_nobody_read_is_seen() {
        let mut scene = answered(Choice::Skip, CallStatus::Cancelled).await;
        beside_a_skip(&mut scene.0);
        assert_eq!(broken(&scene), [""; 0], "the turn is open, so it may still be told");
        scene.0.run.turn_index = 1;
        assert!(broken(&scene).contains(&"a_remark_is_read"));
        scene.0.messages[0].message.blocks.push(ua_core::Block::text("Ada says: I looked."));
        assert!(!broken(&scene).contains(&"a_remark_is_read"));
    }

    #[tokio::test]
    async fn words_about_the_run_that_its_model_never_read_are_seen() {
        let mut scene = answered(Choice::Happened, CallStatus::Succeeded).await;
        let question = &mut scene.0.questions[0];
        question.answer.as_mut().unwrap().choice = Choice::Continue;
        (question.call_id, question.kind) = (None, QuestionKind::MissingEvidence);
        question.answer.as_mut().unwrap().text = Some("It is on my desk.".to_owned());
        assert_eq!(broken(&scene), [""; 0], "the model was not asked again");
        scene.0.turns[0].recorded_at = samples::at(62);
        assert_eq!(broken(&scene), ["a_remark_is_read"]);
        scene.0.messages[0].message.blocks.push(ua_core::Block::text("Ada says: It is on my desk."));
        assert_eq!(broken(&scene), [""; 0]);
    }

    #[tokio::test]
    async fn what_was_sent_although_it_was_skipped_is_seen() {
        let mut scene = answered(Choice::Skip, CallStatus::Succeeded).await;
        scene.0.attempts[0].started_at = samples::at(62);
        assert_eq!(broken(&scene), ["each_answer_is_acted_on"]);
        scene.0.questions[0].kind = QuestionKind::NearDuplicate;
        assert_eq!(broken(&scene), ["a_skip_is_kept"]);
        scene.0.questions[0].kind = QuestionKind::AuthFailure;
        assert_eq!(broken(&scene), [""; 0], "it fails with what the server said");
    }

    #[tokio::test]
    async fn an_answer_that_nobody_applies_any_more_is_seen() {
        let mut scene = answered(Choice::Happened, CallStatus::Unknown).await;
        assert_eq!(broken(&scene), [""; 0]);
        scene.0.run.status = RunStatus::Succeeded;
        assert_eq!(broken(&scene), ["each_answer_is_acted_on"]);
        scene.0.questions[0].status = QuestionStatus::Answered;
        assert_eq!(broken(&scene), ["each_answer_is_acted_on"]);
        scene.0.calls[1].policy.on_unknown = OnUnknown::Continue;
        assert_eq!(broken(&scene), ["an_answer_beside_a_run_is_applied"]);
        scene.0.run.status = RunStatus::Cancelled;
        assert_eq!(broken(&scene), [""; 0], "the end of the run is the reason");
    }
}
