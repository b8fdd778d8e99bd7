//! Recovery: what a new owner finds, and what it does before the run goes on.
//!
//! Durable Jobs v1 spec §9.2; Durable runner, current state §6. Order: earlier tool servers are gone → lost requests are charged →
//! stored replies are interpreted → what was sent and not answered is unknown → the machine starts where the records say.

use ua_core::{CallId, CallStatus, Role, StopReason};
use ua_store::{Choice, QuestionKind, QuestionRecord, QuestionStatus, RequestStatus, RunRecords};

use crate::drive::Ports;
use crate::error::RunError;
use crate::machine::{OpenCall, OpenTurn, Start};

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
    /// A person answered `abort` to such a question.
    pub(crate) aborted: bool,
}

/// Puts the records in order and says where the machine starts.
pub(crate) async fn recover(ports: &Ports) -> Result<Recovered, RunError> {
    let now = ports.env.now();
    ports
        .store
        .close_lost_requests(&ports.lease, now)
        .await
        .map_err(RunError::at("charge the requests that were never answered"))?;
    let before = ports.store.load(&ports.lease.run_id).await.map_err(RunError::at("load the run"))?;
    let open_turn = before.open_turn().map(|turn| turn.turn);
    let in_flight: Vec<InFlight> = before
        .calls
        .iter()
        .filter(|call| Some(call.position.turn) == open_turn && !call.status.is_settled())
        .map(|call| InFlight { call_id: call.call_id.clone(), was: call.status })
        .collect();
    let turn = open_turn.unwrap_or(before.run.turn_index);
    ports
        .gateway
        .ledger()
        .recover_in_flight(&before.calls)
        .await
        .map_err(|source| RunError::Gateway { turn, source: source.into() })?;

    let (waiting_for, aborted) = run_questions(ports, &before).await?;
    let records = ports.store.load(&ports.lease.run_id).await.map_err(RunError::at("load the run"))?;
    let start = start_of(&records);
    Ok(Recovered { records, in_flight, start, waiting_for, aborted })
}

/// Questions about the run as a whole: an open one keeps it waiting, an answered one is acted on.
async fn run_questions(ports: &Ports, records: &RunRecords) -> Result<(Option<QuestionRecord>, bool), RunError> {
    let mut aborted = false;
    for question in records.questions.iter().filter(|q| q.call_id.is_none() && q.status != QuestionStatus::Closed) {
        // Whether an earlier process is alive is looked at again on each resume; an open question about it is answered by that.
        let answers_itself = question.kind == QuestionKind::OrphanAlive;
        match &question.answer {
            None if !answers_itself => return Ok((Some(question.clone()), false)),
            None => {}
            Some(answer) => aborted |= answer.choice == Choice::Abort,
        }
        ports
            .store
            .close_question(&ports.lease, &question.question_id, ports.env.now())
            .await
            .map_err(RunError::at("close a question"))?;
    }
    Ok((None, aborted))
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
            calls: records.calls.iter().filter(|call| call.position.turn == turn.turn).map(OpenCall::of).collect(),
        }
    });
    let last = records.messages.last().filter(|_| open.is_none()).map(|m| &m.message);
    // A reply that was cut is no last word: the model is asked to go on.
    let was_cut = records
        .turns
        .last()
        .is_some_and(|t| matches!(t.reply.stop_reason, StopReason::MaxTokens | StopReason::PauseTurn));
    let last_word = last
        .filter(|_| !was_cut)
        .filter(|m| m.role == Role::Assistant && m.tool_uses().next().is_none())
        .map(ua_core::Message::text);
    let charged = records.requests.iter().filter(|request| request.status != RequestStatus::Reserved);
    Start {
        committed: run.turn_index,
        open,
        last_word,
        is_resume: run.lease_epoch > 1,
        tool_calls: u32::try_from(records.calls.len()).unwrap_or(u32::MAX),
        tokens: charged.map(|request| request.usage.total()).sum(),
        held_millis: run.held_millis,
    }
}
