//! Runs, their steps, their checkpoints and their requests to models.

use std::sync::Arc;
use std::time::Duration;

use ua_core::{QuestionId, RunId, RunStatus, StepStatus, TASK_MODE, Timestamp, Usage};

use super::{conflict, not_found};
use crate::commit::{NewCheckpoint, NewRun, NewStep, RequestEnd, RequestReservation, RunEnd, StepEnd};
use crate::error::StoreError;
use crate::plain_text::plain_text;
use crate::record::{
    CheckpointRecord, MessageRecord, OwnerStamp, ProcessSpan, RequestRecord, RequestStatus, RunLease, RunRecord,
    StepRecord,
};
use crate::taint::Taint;

/// How many unclean ends of a run are remembered.
const KEPT_UNCLEAN_ENDS: usize = 32;
/// How many processes of a run are remembered with their times.
const KEPT_PROCESSES: usize = 32;
/// An owner that says every second that it is alive writes nothing so long behind its last sign.
const LONGEST_SILENCE: Duration = Duration::from_mins(1);

/// Refuses a lease that is not the newest, or whose run is not running any more.
pub fn check_lease(run: &RunRecord, lease: &RunLease) -> Result<(), StoreError> {
    check_owner(run, lease)?;
    if run.status == RunStatus::Running {
        Ok(())
    } else {
        Err(conflict("runs", &run.run_id, format!("it is {}; its lease ended with that", run.status)))
    }
}

/// Checks that nobody took the run since.
pub fn check_owner(run: &RunRecord, lease: &RunLease) -> Result<(), StoreError> {
    let is_ours = run.owner.as_ref().is_none_or(|owner| owner.trace == lease.id);
    if run.lease_epoch == lease.epoch && is_ours {
        return Ok(());
    }
    Err(StoreError::Fenced { run: run.run_id.clone(), ours: lease.epoch, theirs: run.lease_epoch })
}

/// A new run and its opening message. `parent` is the run it names as its parent.
pub fn run_submitted(run: NewRun, parent: Option<&RunRecord>) -> (RunRecord, MessageRecord) {
    let lineage_mark = parent.map_or_else(
        || Some(mark_of(&run.run_id, run.created_at, &run.workspace_dir)),
        |parent| parent.lineage_mark.clone(),
    );
    let prompt = plain_text(&run.opening.text()).into_owned();
    let plain = |text: String| plain_text(&text).into_owned();
    let opening = MessageRecord { seq: 1, turn: 0, message: run.opening, created_at: run.created_at };
    // A sub-agent starts a conversation of its own; a fork starts from its parent's.
    let forked_from =
        parent.filter(|_| run.run_mode != TASK_MODE).and_then(|parent| parent.provider_session_id.clone());
    let harness = run.spec.harness.clone();
    let taint = parent.map_or_else(Taint::default, |parent| parent.taint).and(Taint::of_files(&run.spec));
    let record = RunRecord {
        root_run_id: parent.map_or_else(|| run.run_id.clone(), |parent| parent.root_run_id.clone()),
        lineage_mark,
        run_id: run.run_id,
        created_at: run.created_at,
        updated_at: run.created_at,
        status: RunStatus::Queued,
        stop_reason: None,
        status_detail: None,
        entrypoint: run.entrypoint,
        run_mode: run.run_mode,
        job_path: run.job_path,
        job_key: run.spec.job_key.clone().map(plain),
        spec: Arc::new(run.spec),
        last_job_prompt: prompt,
        workspace_dir: run.workspace_dir,
        launch: run.launch,
        parent_run_id: run.parent_run_id,
        task_call_id: None,
        forked_at: None,
        provider_session_id: None,
        provider_session_forked_from: forked_from,
        current_step_id: None,
        last_checkpoint_id: None,
        final_artifact_ref: None,
        final_output: None,
        turn_index: 0,
        lease_epoch: 0,
        owner: None,
        cancel_requested_at: None,
        cancel_reason: None,
        abort_requested_at: None,
        abort_question: None,
        // Its model has read what was recorded before, and is told as that of its parent is.
        corrected_at: parent.and_then(|parent| parent.corrected_at),
        taint,
        iteration_count: 0,
        max_iterations: harness.as_ref().map(|harness| harness.max_iterations),
        completion_promise: harness.and_then(|harness| harness.completion_promise).map(plain),
        held_millis: 0,
        held_from: None,
        seen_at: None,
        unclean_ends: Vec::new(),
        traces: Vec::new(),
        processes: Vec::new(),
    };
    (record, opening)
}

/// Digits of a lineage's mark.
const MARK_DIGITS: usize = 32;

/// What no other first run of a lineage has, were it of the same name: no two are submitted for one folder at one moment.
fn mark_of(run: &RunId, created_at: Timestamp, workspace_dir: &str) -> String {
    let words = format!("{run} {} {workspace_dir}", created_at.as_millis());
    ua_core::sha256(words).to_hex()[..MARK_DIGITS].to_owned()
}

/// The mark that a lineage has whose first run this is.
pub(crate) fn mark_of_run(run: &RunRecord) -> String {
    mark_of(&run.run_id, run.created_at, &run.workspace_dir)
}

/// The run with a cancel request. The first request is kept; a terminal run refuses.
pub fn run_cancel_requested(mut run: RunRecord, reason: &str, at: Timestamp) -> Result<RunRecord, StoreError> {
    if run.status.is_terminal() {
        return Err(conflict("runs", &run.run_id, format!("its status is already {}", run.status)));
    }
    if run.cancel_requested_at.is_none() {
        run.cancel_requested_at = Some(at);
        run.cancel_reason = Some(reason.to_owned());
        run.updated_at = at;
    }
    Ok(run)
}

/// The run with the mark that a person answered `abort` to `question`. The first mark is kept, and a terminal run stays as it is.
pub fn run_abort_requested(mut run: RunRecord, question: &QuestionId, at: Timestamp) -> RunRecord {
    if !run.status.is_terminal() && run.abort_requested_at.is_none() {
        run.abort_requested_at = Some(at);
        run.abort_question = Some(question.clone());
        run.updated_at = at;
    }
    run
}

/// The run, taken by `owner` under the next epoch. A terminal run refuses. `last_write` is when anything of the run was written
/// last: an owner that was killed held the run at least until then, and until it last said that it is alive.
pub fn run_acquired(
    mut run: RunRecord,
    owner: &OwnerStamp,
    last_write: Option<Timestamp>,
    at: Timestamp,
) -> Result<(RunLease, RunRecord), StoreError> {
    if run.status.is_terminal() {
        return Err(conflict("runs", &run.run_id, format!("it is {}: nothing is left to do", run.status)));
    }
    if run.status == RunStatus::Running {
        // Nobody ended it: its process died, or ended at once.
        let last = run.processes.last().filter(|process| process.left_at.is_none());
        let name = last.and_then(|last| last.process.as_ref());
        let ended = owner.ended_before.iter().rev().find(|ended| Some(&ended.process) == name).map(|ended| ended.by);
        if ended.is_none_or(|by| !by.is_wanted()) {
            // The newest are enough to tell a loop. What a person ends is none.
            run.unclean_ends.push(at);
            let surplus = run.unclean_ends.len().saturating_sub(KEPT_UNCLEAN_ENDS);
            run.unclean_ends.drain(..surplus);
        }
        let alive = last_sign(&run, last_write);
        if let (Some(from), Some(until)) = (run.held_from, alive) {
            let millis = u64::try_from(until.since(from).as_millis()).unwrap_or(u64::MAX);
            run.held_millis = run.held_millis.saturating_add(millis);
        }
        if let Some(dead) = run.processes.last_mut().filter(|process| process.left_at.is_none()) {
            dead.left_at = Some(alive.map_or(dead.taken_at, |alive| alive.max(dead.taken_at)));
            dead.died = true;
            dead.ended_by = ended;
        }
    }
    run.held_from = Some(at);
    run.seen_at = None;
    run.lease_epoch += 1;
    let process = Some(owner.process());
    run.processes.push(ProcessSpan {
        epoch: run.lease_epoch,
        taken_at: at,
        left_at: None,
        died: false,
        ended_by: None,
        process,
    });
    let surplus = run.processes.len().saturating_sub(KEPT_PROCESSES);
    run.processes.drain(..surplus);
    run.status = RunStatus::Running;
    run.stop_reason = None;
    run.status_detail = None;
    run.traces.push(owner.trace.clone());
    run.owner = Some(OwnerStamp { ended_before: Vec::new(), ..owner.clone() });
    run.updated_at = at;
    Ok((RunLease { run_id: run.run_id.clone(), epoch: run.lease_epoch, id: owner.trace.clone() }, run))
}

/// When the owner of a run was last known to be alive, by its own clock. `written` is when rows of the run were written, by
/// whomever: what was written until an earlier owner left is not its own, and whoever says that it is alive says it every
/// second, so that a row of long behind that is of a clock which was ahead.
pub fn last_sign(run: &RunRecord, written: impl IntoIterator<Item = Timestamp>) -> Option<Timestamp> {
    let before = run.processes.iter().rev().skip(1).filter_map(|process| process.left_at).max();
    let is_own = |at: &Timestamp| {
        before.is_none_or(|before| *at > before) && run.seen_at.is_none_or(|seen| *at <= seen.plus(LONGEST_SILENCE))
    };
    written.into_iter().filter(is_own).chain(run.seen_at).max()
}

/// Looks at the number of an owner's batch, when so many were committed before.
pub fn check_number(run: &RunId, batches: u64, number: u64) -> Result<(), StoreError> {
    if number == batches + 1 {
        return Ok(());
    }
    if number == batches {
        return Err(StoreError::Repeated { run: run.clone(), number });
    }
    Err(StoreError::WentBack { run: run.clone(), written: batches, confirmed: number.saturating_sub(1) })
}

/// The run, whose owner says that it is alive, and that it was suspended for `suspended` since it last said so: the time counts from
/// later on then, as if the run had been taken that much later. A clock that says less than at the last sign was set back, and
/// what was counted until then stays counted, as if the run had been taken by that clock.
pub fn run_seen(run: RunRecord, suspended: Duration, at: Timestamp) -> RunRecord {
    let back = run.seen_at.map_or(Duration::ZERO, |seen| seen.since(at));
    let held_from = run.held_from.map(|from| from.minus(back).plus(suspended).min(at));
    RunRecord { seen_at: Some(at), held_from, ..run }
}

/// The run after its owner's last write. The epoch stays, so that a late write of the same process is told apart.
pub fn run_ended(mut run: RunRecord, end: &RunEnd) -> Result<RunRecord, StoreError> {
    if matches!(end.status, RunStatus::Queued | RunStatus::Running) {
        return Err(conflict("runs", &run.run_id, format!("a run does not end {}", end.status)));
    }
    if (end.status == RunStatus::Stopped) != end.stop_reason.is_some() {
        return Err(conflict("runs", &run.run_id, "a stop reason belongs to a stopped run, and to no other"));
    }
    run.status = end.status;
    run.stop_reason = end.stop_reason;
    run.status_detail.clone_from(&end.detail);
    run.final_output = end.final_output.clone().or(run.final_output);
    run.final_artifact_ref = end.final_artifact_ref.clone().or(run.final_artifact_ref);
    run.held_millis = run.held_millis.saturating_add(end.held_millis);
    (run.held_from, run.seen_at) = (None, None);
    if let Some(process) = run.processes.last_mut() {
        process.left_at = Some(end.at.max(process.taken_at));
    }
    run.updated_at = end.at;
    Ok(run)
}

/// A new step and the run whose current one it is. `last_index` is the number of the run's last step, 0 without one.
pub fn step_opened(
    mut run: RunRecord,
    step: NewStep,
    last_index: u32,
    turn_is_open: bool,
) -> Result<(RunRecord, StepRecord), StoreError> {
    if turn_is_open {
        return Err(conflict("runs", &run.run_id, "a turn is open; commit it before the next step"));
    }
    let record = StepRecord {
        step_id: step.step_id,
        run_id: run.run_id.clone(),
        step_index: last_index + 1,
        created_at: step.created_at,
        updated_at: step.created_at,
        status: StepStatus::Running,
        phase: step.phase,
        error_code: None,
        error_detail: None,
        first_turn: run.turn_index + 1,
        last_turn: None,
        fingerprint: step.fingerprint.map(Arc::new),
    };
    run.current_step_id = Some(record.step_id.clone());
    run.updated_at = step.created_at;
    Ok((run, record))
}

/// The step after its end. A step that ended is not ended again; one that is `blocked` is.
pub fn step_ended(mut step: StepRecord, end: StepEnd) -> Result<StepRecord, StoreError> {
    if matches!(step.status, StepStatus::Succeeded | StepStatus::Failed | StepStatus::Skipped) {
        return Err(conflict("run_steps", &step.step_id, format!("its status is already {}", step.status)));
    }
    if matches!(end.status, StepStatus::Ready | StepStatus::Running) {
        return Err(conflict("run_steps", &step.step_id, format!("a step does not end {}", end.status)));
    }
    step.status = end.status;
    step.error_code = end.error_code;
    step.error_detail = end.error_detail;
    step.updated_at = end.at;
    Ok(step)
}

/// The current step of a run that was taken again, if it was `blocked`: it goes on.
pub fn step_resumed(step: &StepRecord, at: Timestamp) -> Option<StepRecord> {
    (step.status == StepStatus::Blocked).then(|| StepRecord {
        status: StepStatus::Running,
        updated_at: at,
        ..step.clone()
    })
}

/// A checkpoint and the run whose newest one it is. The step must be one of the run's.
pub fn checkpoint_saved(
    mut run: RunRecord,
    step: Option<&StepRecord>,
    checkpoint: NewCheckpoint,
) -> Result<(RunRecord, CheckpointRecord), StoreError> {
    if step.is_none_or(|step| step.run_id != run.run_id) {
        return Err(not_found("run_steps", &checkpoint.step_id));
    }
    let record = CheckpointRecord {
        checkpoint_id: checkpoint.checkpoint_id,
        run_id: run.run_id.clone(),
        step_id: checkpoint.step_id,
        created_at: checkpoint.at,
        kind: checkpoint.kind,
        snapshot: checkpoint.snapshot,
        cursor: checkpoint.cursor,
    };
    run.last_checkpoint_id = Some(record.checkpoint_id.clone());
    run.updated_at = checkpoint.at;
    Ok((run, record))
}

/// A reservation for the next turn, as a new request; `last` is the run's last one. When that is this very reservation,
/// still open, a lost answer made the caller repeat itself, and `last` is returned as it is.
pub fn request_reserved(
    run: &RunRecord,
    reservation: RequestReservation,
    last: Option<RequestRecord>,
    turn_is_open: bool,
) -> Result<RequestRecord, StoreError> {
    super::turn::check_next_turn(run, reservation.turn, turn_is_open)?;
    let request = RequestRecord {
        request_id: last.as_ref().map_or(1, |last| last.request_id + 1),
        turn: reservation.turn,
        request_sha256: reservation.request_sha256,
        provider: reservation.provider,
        model: reservation.model,
        price: reservation.price,
        estimator: reservation.estimator,
        estimated_tokens: reservation.estimated_tokens,
        reserved_output_tokens: reservation.reserved_output_tokens,
        network_attempted: true,
        status: RequestStatus::Reserved,
        usage: Usage::default(),
        cost: None,
        heard: None,
        reserved_at: reservation.at,
        closed_at: None,
        response_id: None,
        continued_from: reservation.continued_from,
    };
    let repeated = last.filter(|last| RequestRecord { request_id: last.request_id, ..request.clone() } == *last);
    Ok(repeated.unwrap_or(request))
}

/// The request, whose reply has begun under this name; `None` when that is known already, or the request has ended.
pub fn response_named(
    run: &RunId,
    request: &RequestRecord,
    response_id: &str,
) -> Result<Option<RequestRecord>, StoreError> {
    match &request.response_id {
        _ if request.status != RequestStatus::Reserved => Ok(None),
        Some(known) if known == response_id => Ok(None),
        Some(known) => {
            let row = format!("{run}/{}", request.request_id);
            Err(conflict("usage", row, format!("its reply is {known}, not {response_id}")))
        }
        None => Ok(Some(RequestRecord { response_id: Some(response_id.to_owned()), ..request.clone() })),
    }
}

/// The request, of whose reply so much has been heard. Counts only grow, so that what is noted out of turn takes nothing back; `None`
/// when it is known already, or the request has ended.
pub fn usage_heard(request: &RequestRecord, heard: Usage) -> Option<RequestRecord> {
    let heard = request.heard.map_or(heard, |known| known.most_of(heard));
    let is_new = request.status == RequestStatus::Reserved && request.heard != Some(heard);
    is_new.then(|| RequestRecord { heard: Some(heard), ..request.clone() })
}

/// The request of a process that is gone, charged for what was heard of its reply, or as it was estimated; `None` when it was charged
/// before.
pub fn request_lost(request: &RequestRecord, at: Timestamp) -> Option<RequestRecord> {
    request_closed(request, request.heard.map_or(RequestEnd::Baseline, RequestEnd::Partial), at)
}

/// The request, charged at the price it was reserved with; `None` when it was charged before and therefore stays as it is.
pub fn request_closed(request: &RequestRecord, end: RequestEnd, at: Timestamp) -> Option<RequestRecord> {
    let status = match end {
        RequestEnd::Actual(_) => RequestStatus::Actual,
        RequestEnd::Partial(_) => RequestStatus::Partial,
        RequestEnd::Baseline => RequestStatus::Baseline,
        RequestEnd::Refused | RequestEnd::Zero => RequestStatus::Zero,
    };
    let usage = end.charged(request.estimated_tokens);
    (request.status == RequestStatus::Reserved).then(|| RequestRecord {
        status,
        network_attempted: end != RequestEnd::Zero,
        usage,
        cost: request.price.map(|price| price.cost(usage)),
        closed_at: Some(at),
        ..request.clone()
    })
}
