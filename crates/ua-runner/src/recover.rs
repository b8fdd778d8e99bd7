//! Recovery: what a new owner finds, and what it does before the run goes on.
//!
//! Durable Jobs v1 spec §9.2; Durable runner, current state §6. Order: earlier tool servers are gone → lost requests are charged →
//! stored replies are interpreted → what was sent and not answered is unknown → the machine starts where the records say.

use std::time::Duration;

use ua_core::{CallId, CallStatus, CorrectedTo, Origin, Role, StopReason, Timestamp};
use ua_evidence::Verdict;
use ua_store::{
    CallRecord, Choice, Correction, LedgerStore, MessageRecord, QuestionKind, QuestionRecord, QuestionStatus,
    ReplayStatus, RunRecords, RunStore, Store, StoreError, rules,
};

use crate::budget::{Below, Spent};
use crate::drive::is_unread;
use crate::error::RunError;
use crate::iteration::IterationState;
use crate::machine::{OpenCall, OpenTurn, ReplyEnd, Start, Talk, Word, errors_in_a_row};
use crate::phase::PhaseState;
use crate::ports::{Ports, raise_run_question};
use crate::spans;
use crate::standing::load_standing;

/// A call that was in flight when the last owner went away.
#[derive(Debug, Clone)]
pub(crate) struct InFlight {
    pub(crate) call_id: CallId,
    pub(crate) was: CallStatus,
}

/// What recovery found.
pub(crate) struct Recovered {
    pub(crate) records: RunRecords,
    pub(crate) in_flight: Vec<InFlight>,
    pub(crate) start: Start,
    /// A question about the run as a whole that nobody answered.
    pub(crate) waiting_for: Option<QuestionRecord>,
}

/// Puts the records in order and says where the machine starts.
pub(crate) async fn recover(ports: &Ports) -> Result<Recovered, RunError> {
    let now = ports.env.now();
    let charged = ports
        .store
        .close_lost_requests(&ports.lease, now)
        .await
        .map_err(RunError::at("charge the requests that were never answered"))?;
    let before = load_standing(ports).await?;
    if charged > 0 {
        spans::charged_late(before.requests.iter().filter(|request| request.closed_at == Some(now)));
    }
    let open_turn = before.open_turn().map(|turn| turn.turn);
    let in_flight: Vec<InFlight> = before
        .calls
        .iter()
        .filter(|call| Some(call.position.turn) == open_turn && !call.status.is_settled())
        .map(|call| InFlight { call_id: call.call_id.clone(), was: call.status })
        .collect();
    let turn = open_turn.unwrap_or(before.run.turn_index);
    ports
        .dispatcher
        .ledger()
        .recover_in_flight(&before.calls)
        .await
        .map_err(|source| RunError::Dispatch { turn, source: source.into() })?;

    note_tasks(ports, &before, &in_flight).await?;
    // The questions of a run that is to end are closed by its end, never before.
    let mut waiting_for = None;
    if before.run.end_mark().is_none() {
        waiting_for = run_questions(ports, &before).await?;
        if waiting_for.is_none() {
            waiting_for = crash_loop(ports, &before).await?;
        }
    }
    let records = if is_in_order(&before) { before } else { load_standing(ports).await? };
    let start = start_of(&records);
    Ok(Recovered { records, in_flight, start, waiting_for })
}

/// Whether there was nothing to put in order, so that what was read still stands. A long run takes long to read.
fn is_in_order(records: &RunRecords) -> bool {
    records.calls.iter().all(|call| call.status.is_settled())
        && records.questions.iter().all(|question| question.status == QuestionStatus::Closed)
        && records.run.unclean_ends.len() < MAX_CRASHES
}

/// Notes what this resume does with tasks that were under way: the output of a sub-agent that has ended is reused, any other one
/// goes on where it stood.
async fn note_tasks(ports: &Ports, records: &RunRecords, in_flight: &[InFlight]) -> Result<(), RunError> {
    for flight in in_flight.iter().filter(|flight| flight.was == CallStatus::Running) {
        let child = records.lineage.sub_agents.iter().find(|child| child.call_id == flight.call_id);
        let Some(child) = child else { continue };
        let status = if child.status.is_terminal() { ReplayStatus::Reused } else { ReplayStatus::Resumed };
        let noted = ports.store.note_replay(&ports.lease, &flight.call_id, status, ports.env.now()).await;
        noted.map_err(RunError::at("note what the resume does with a task"))?;
    }
    Ok(())
}

/// Questions about the run as a whole: an open one keeps it waiting, an answered one lets it go on.
async fn run_questions(ports: &Ports, records: &RunRecords) -> Result<Option<QuestionRecord>, RunError> {
    for question in records.questions.iter().filter(|q| q.call_id.is_none() && q.status != QuestionStatus::Closed) {
        let answers_itself = match question.kind {
            // Whether an earlier process is alive is looked at again on each resume; an open question about it is answered by that.
            QuestionKind::OrphanAlive => true,
            // Behind a record that a person put right since, of a call that it tells of, the conditions are judged again; and where it is known by
            // now whether that call happened.
            QuestionKind::MissingEvidence => {
                let may_be = records.run.corrected_at.is_some_and(|at| at >= question.created_at);
                let store = ports.store.as_ref();
                tells_of_a_settled_call(store, question).await?
                    || (may_be && tells_of_a_corrected_call(store, records, question).await?)
            }
            QuestionKind::UnknownOutcome
            | QuestionKind::NearDuplicate
            | QuestionKind::Approval
            | QuestionKind::RepeatedFailures
            | QuestionKind::CrashLoop
            | QuestionKind::AskUser
            | QuestionKind::AuthFailure
            | QuestionKind::AmbiguousRecipient
            | QuestionKind::Elicitation => false,
        };
        // Before the question counts as acted on, so that a process that takes over in between does it.
        put_right(ports.store.as_ref(), question, ports.env.now()).await?;
        match &question.answer {
            None if !answers_itself => return Ok(Some(question.clone())),
            // The run has a mark by now, which is looked at before anything starts; its end closes the question.
            Some(answer) if answer.choice == Choice::Abort => continue,
            // Acted on when the model is told what was said beside it.
            Some(_) if is_unread(question) => continue,
            None | Some(_) => {}
        }
        ports
            .store
            .close_question(&ports.lease, &question.question_id, ports.env.now())
            .await
            .map_err(RunError::at("close a question"))?;
    }
    Ok(None)
}

/// Whether a call of which a question says that it may have happened is known by now to have happened or not: another run decided about it.
async fn tells_of_a_settled_call(store: &dyn Store, question: &QuestionRecord) -> Result<bool, RunError> {
    for id in rules::told_of(question) {
        if Verdict::of(&store.call(&id).await.map_err(RunError::at("read a call"))?) != Verdict::MayHaveHappened {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the record of a call that a question tells of was put right since it was asked.
async fn tells_of_a_corrected_call(
    store: &dyn Store,
    records: &RunRecords,
    question: &QuestionRecord,
) -> Result<bool, RunError> {
    let is_corrected = |call: &CallRecord| call.correction.as_ref().is_some_and(|word| word.at >= question.created_at);
    let known = records.calls.iter().chain(&records.lineage.calls).chain(&records.lineage.elsewhere);
    let mut told = known.filter(|call| question.text.contains(call.call_id.as_str()));
    if told.any(is_corrected) {
        return Ok(true);
    }
    for id in rules::told_of(question) {
        if is_corrected(&store.call(&id).await.map_err(RunError::at("read a call"))?) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Puts the records of the calls right of which a person said, asked about what is missing, that they happened. One that has moved on since, or
/// cannot be that, is left as it is: the conditions are judged again in any case.
pub(crate) async fn put_right(store: &dyn Store, question: &QuestionRecord, now: Timestamp) -> Result<(), RunError> {
    let Some(answer) = &question.answer else { return Ok(()) };
    let said = rules::said_to_have_happened(question);
    // What proves one of several proves nothing of the others, and which one it is nobody said.
    let proof = answer.proof.as_ref().filter(|_| rules::said_by_happened(question).len() == 1);
    for id in said {
        let call = store.call(&id).await.map_err(RunError::at("read a call"))?;
        if Verdict::of(&call) != Verdict::MayHaveHappened {
            continue;
        }
        let attempts = store.attempts(&id).await.map_err(RunError::at("read the attempts of a call"))?;
        let said = answer.text.as_deref().map(str::trim).filter(|text| !text.is_empty());
        let correction = Correction {
            outcome: CorrectedTo::Happened,
            was: call.status,
            reason: said.map_or_else(|| format!("the answer to question {}", question.question_id), str::to_owned),
            proof: proof.cloned(),
            by: answer.by.clone(),
            at: now,
            of: None,
            was_answered: call.status == CallStatus::Unknown && attempts.last().is_some_and(rules::was_answered_beside),
        };
        match store.correct_call(ua_ledger::correct_call(&call, correction, false)).await {
            Ok(_) => {}
            Err(why @ (StoreError::Conflict { .. } | StoreError::KeyTaken { .. })) => {
                tracing::warn!(tool_call_id = %id, %why, "a person said that a call happened, and its record cannot say so");
            }
            Err(error) => return Err(RunError::at("put the record of a call right")(error)),
        }
    }
    Ok(())
}

/// How often the process that drives a run may die within [`CRASH_WINDOW`] before a person is asked.
const MAX_CRASHES: usize = 20;
/// The span in which deaths are counted.
const CRASH_WINDOW: Duration = Duration::from_hours(1);

/// Asks a person whether to go on when the run's process died again and again: what kills it may be the run itself, and each
/// resume pays for a request to the model. Deaths before the last such question do not count again.
async fn crash_loop(ports: &Ports, records: &RunRecords) -> Result<Option<QuestionRecord>, RunError> {
    let now = ports.env.now();
    let asked = records.questions.iter().filter(|q| q.kind == QuestionKind::CrashLoop).map(|q| q.created_at).max();
    let counts = |end: &&Timestamp| now.since(**end) <= CRASH_WINDOW && asked.is_none_or(|asked| **end > asked);
    let deaths = records.run.unclean_ends.iter().filter(counts).count();
    if deaths < MAX_CRASHES {
        return Ok(None);
    }
    let text = format!(
        "The process that drives this run ended {deaths} times within an hour and did not leave it in order: it was killed, or it could \
         not go on, for example because the disk was full. Look for the cause before you answer: in what it said last, in run.log and \
         in the logs of the tool servers."
    );
    let port = ports.store.as_ref();
    raise_run_question(port, &ports.lease, &ports.env, QuestionKind::CrashLoop, &text).await.map(Some)
}

/// Where the records say the run stands.
pub(crate) fn start_of(records: &RunRecords) -> Start {
    let run = &records.run;
    let open = records.open_turn().map(|turn| {
        let message = records.messages.iter().rev().find(|m| m.turn == turn.turn && m.message.role == Role::Assistant);
        OpenTurn {
            turn: turn.turn,
            stop_reason: turn.reply.stop_reason,
            text: message.map(|m| m.message.text()).unwrap_or_default(),
            calls: OpenCall::of_turn(
                records.calls.iter().filter(|call| call.position.turn == turn.turn),
                &records.questions,
            ),
        }
    });
    let last = records.messages.last().filter(|_| open.is_none()).map(|m| &m.message);
    let last = last.filter(|m| m.role == Role::Assistant && m.tool_uses().next().is_none());
    let (talk, newest) = talk_of(records);
    let no_answer = match &newest {
        Some(Err(end)) => newest_replies(records).pop().map(|reply| (reply, *end)),
        Some(Ok(_)) | None => None,
    };
    // Whoever forks a run has it tried once more.
    let no_answer = no_answer.filter(|(reply, _)| open.is_none() && reply.record.turn > run.shared_turns());
    let (last_word, untold) = match (last, newest) {
        (None, _) => (None, None),
        (Some(_), Some(Ok(answer))) => (Some(answer), None),
        // A reply that was cut, refused or empty is no last word: the model is asked to go on.
        (Some(_), Some(Err(end))) => (None, Some(end)),
        (Some(message), None) => (records.turns.is_empty().then(|| Word::of(message.text())), None),
    };
    let below = Below::of(records, 0);
    Start {
        committed: run.turn_index,
        open,
        may_try_again: last_word.is_some() && may_try_again(records),
        last_word,
        untold,
        no_answer: no_answer.map(|(reply, end)| (end, reply.text)),
        was_left: run.processes.iter().rev().nth(1).is_some_and(|before| before.died),
        talk,
        is_resume: run.lease_epoch > 1,
        tool_calls: records.calls_from(0).saturating_add(below.tool_calls),
        spent: Spent::of_run(records, 0, &below),
        turns_below: below.turns,
        held_millis: run.held_millis,
        steps: u32::try_from(records.steps.len()).unwrap_or(u32::MAX),
        phase: PhaseState::of(records),
        iteration: IterationState::of(records),
        same_error: same_error(records),
    }
}

/// Whether a person answered the newest question about what is missing such that the model is to try again, and nothing was committed since.
fn may_try_again(records: &RunRecords) -> bool {
    let asked = records.questions.iter().filter(|question| question.kind == QuestionKind::MissingEvidence);
    let newest = records.turns.iter().filter_map(|turn| turn.committed_at).max();
    asked.max_by_key(|question| question.created_at).is_some_and(|question| {
        let is_new = newest.is_none_or(|committed| committed <= question.created_at);
        let lets = |choice| matches!(choice, Choice::Continue | Choice::Execute);
        is_new && question.answer.as_ref().is_some_and(|answer| lets(answer.choice))
    })
}

/// A committed reply that asked for nothing.
pub(crate) struct Reply<'r> {
    record: &'r MessageRecord,
    stop_reason: StopReason,
    text: String,
    committed_at: Timestamp,
}

/// The newest committed replies that asked for nothing, oldest first, back to where nothing before can belong to them: to a reply that asked
/// for tools, or that is an answer by itself. They are all that a [`Talk`] depends on.
pub(crate) fn newest_replies(records: &RunRecords) -> Vec<Reply<'_>> {
    let mut replies = Vec::new();
    for turn in records.turns.iter().rev().filter(|turn| turn.turn <= records.run.turn_index) {
        let record = records.messages.iter().find(|m| m.turn == turn.turn && m.message.role == Role::Assistant);
        let (Some(record), Some(committed_at)) = (record, turn.committed_at) else { break };
        let (stop_reason, text) = (turn.reply.stop_reason, record.message.text());
        let is_answer = ReplyEnd::of(stop_reason, &text) == ReplyEnd::Whole;
        // Calls that a refused reply asked for were not made.
        let asks = record.message.tool_uses().next().is_some() && stop_reason != StopReason::Refusal;
        if asks || (is_answer && !replies.is_empty()) {
            break;
        }
        replies.push(Reply { record, stop_reason, text, committed_at });
    }
    replies.reverse();
    replies
}

/// What the model says instead of asking for a tool, as the machine has it after the committed turns, and what came of the newest reply.
fn talk_of(records: &RunRecords) -> (Talk, Option<Result<Word, ReplyEnd>>) {
    let asked =
        records.questions.iter().filter(|q| q.kind == QuestionKind::RepeatedFailures).map(|q| q.created_at).max();
    let begins = |m: &&MessageRecord| matches!(m.message.origin, Origin::Phase | Origin::Iteration);
    let began = records.messages.iter().filter(begins).map(|m| m.seq).max().unwrap_or(0);
    let (mut talk, mut newest, mut before) = (Talk::default(), None, 0);
    for reply in newest_replies(records) {
        if (before..reply.record.seq).contains(&began) {
            talk.begin_anew();
        }
        before = reply.record.seq;
        newest = Some(talk.take(reply.stop_reason, &reply.text));
        if asked.is_some_and(|asked| reply.committed_at <= asked) {
            talk.forgive();
        }
    }
    if began > before {
        talk.begin_anew();
    }
    (talk, newest)
}

/// The model's newest answer, in all its pieces; what it said last, where that is none.
pub(crate) fn newest_answer(records: &RunRecords) -> String {
    let said = records.messages.iter().rev().find(|record| record.message.role == Role::Assistant);
    match talk_of(records) {
        (_, Some(Ok(answer))) => answer.text().to_owned(),
        (_, Some(Err(_)) | None) => said.map(|record| record.message.text()).unwrap_or_default(),
    }
}

/// The error that the newest settled calls ended with, and how often in a row: it counts on over kills and resumes, until a person
/// was asked about it.
pub(crate) fn same_error(records: &RunRecords) -> Option<(String, u32)> {
    same_error_from(records, None)
}

/// The same, when it was so before the turns that are there whole.
pub(crate) fn same_error_from(records: &RunRecords, so_far: Option<(String, u32)>) -> Option<(String, u32)> {
    let asked =
        records.questions.iter().filter(|q| q.kind == QuestionKind::RepeatedFailures).map(|q| q.created_at).max();
    let counts = |call: &&CallRecord| {
        // The others were never sent; a call that failed definitely in the open turn is tried again, and counted then.
        let is_over = records.open_turn().is_none_or(|open| open.turn != call.position.turn);
        call.attempt > 0
            && call.position.turn >= records.left_out.before
            && asked.is_none_or(|asked| call.updated_at > asked)
            && (is_over || call.status != CallStatus::FailedDefinite)
    };
    records.calls.iter().filter(counts).fold(so_far, errors_in_a_row)
}
