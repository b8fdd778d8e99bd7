//! What each change makes of the rows: find them, apply a rule, store what it returns. One text for every store.

use std::sync::Arc;
use std::time::Duration;

use ua_core::{CallId, CallStatus, IdempotencyKey, Message, QuestionId, Resolution, RunId, StepId, Timestamp};

use crate::archive_store::RunDeletion;
use crate::blob_store::BlobPrune;
use crate::change::{Author, Batch, Change, Committed, Done};
use crate::commit::{
    CallCancel, CorrectCall, KeepHandle, NewAnswer, NewCheckpoint, NewFork, NewQuestion, NewRun, NewStep, RecallCall,
    RequestReservation, RunEnd, SettleAttempt, StartAttempt, StepEnd, StepEntry, TurnCommit, TurnDraft,
    UnknownResolution,
};
use crate::error::StoreError;
use crate::forgotten::TASK_BEGUN;
use crate::gateway::{Delivery, NewArrival, NewSession, is_gateway};
use crate::overrides::NewOverride;
use crate::record::{
    AttemptRecord, CallRecord, Choice, MessageRecord, OwnerStamp, QuestionRecord, ReceiptRecord, RequestId,
    RequestRecord, RunLease, RunRecord, StepRecord,
};
use crate::relations::Relations;
use crate::rows::{Rows, Written};
use crate::rules;
use crate::taint::Taint;

/// Applies a batch inside one transaction; an empty one looks whether the lease still is the newest. After an error the caller rolls all of it back.
///
/// # Errors
///
/// What refused one of the changes that stand, or what is wrong with the database.
pub fn apply<R: Rows>(rows: &R, by: &Author, mut batch: Batch) -> Result<Committed, R::Error> {
    batch.clean();
    let words = match by {
        Author::Owner(lease) => begin(rows, lease, &batch)?,
        Author::Command => 0,
    };
    let all = |changes: Vec<Change>| changes.into_iter().map(|change| apply_one(rows, by, change)).collect();
    let stands = all(batch.stands)?;
    let provided = if batch.provided.is_empty() { Ok(Vec::new()) } else { rows.nested(|| all(batch.provided))? };
    Ok(Committed { stands, provided, words })
}

/// Looks at the lease and the number of an owner's batch; how many words of people there are.
fn begin<R: Rows>(rows: &R, lease: &RunLease, batch: &Batch) -> Result<u64, R::Error> {
    let Written { batches, words } = rows.written(&lease.run_id)?;
    if let Some(number) = batch.number {
        // Before its end is looked at: what ended the run may be this very batch.
        rules::check_owner(rows.run_to_look_at(&lease.run_id)?.as_ref(), lease)?;
        rules::check_number(&lease.run_id, batches, number)?;
        rows.set_batches(&lease.run_id, number)?;
    }
    if batch.number.is_some() || batch.changes().next().is_none() {
        leased_run(rows, lease)?;
    }
    Ok(words)
}

/// The lease that an owner's change is written under.
fn lease(by: &Author) -> Result<&RunLease, StoreError> {
    match by {
        Author::Owner(lease) => Ok(lease),
        Author::Command => {
            Err(rules::conflict("runs", "a change", "only the owner of a run writes it, under its lease"))
        }
    }
}

fn apply_one<R: Rows>(rows: &R, by: &Author, change: Change) -> Result<Done, R::Error> {
    match change {
        Change::Submit(run) => submit(rows, run).map(run_done),
        Change::SubmitAgain { run, seen } => submit_again(rows, run, &seen).map(run_done),
        Change::Fork(new) => fork(rows, new).map(run_done),
        Change::Answer(new) => answer(rows, new),
        Change::Override(change) => override_run(rows, by, change),
        Change::RequestCancel { run, reason, at } => request_cancel(rows, &run, &reason, at).map(run_done),
        Change::Acquire { run, owner, at } => acquire(rows, by, &run, &owner, at),
        Change::ResolveLate { call, resolution, question, at } => resolve_late(rows, &call, resolution, &question, at),
        Change::Correct(correct) => correct_call(rows, by, correct),
        Change::Recall(recall) => recall_call(rows, &recall),
        Change::OpenSession(new) => open_session(rows, *new).map(run_done),
        Change::PruneBlobs(prune) => prune_blobs(rows, &prune),
        Change::Delete(deletion) => delete_run(rows, &deletion),
        Change::NoteAlive { suspended, at } => {
            let run = Arc::unwrap_or_clone(leased_run(rows, lease(by)?)?);
            rows.update_seen(&rules::run_seen(run, suspended, at))?;
            Ok(Done::Nothing)
        }
        Change::EndRun(end) => end_run(rows, lease(by)?, end),
        Change::OpenStep(step) => open_step(rows, lease(by)?, step),
        Change::EnterStep(entry) => enter_step(rows, lease(by)?, entry),
        Change::CloseStep(end) => close_step(rows, lease(by)?, end),
        Change::Reserve(reservation) => reserve(rows, lease(by)?, reservation),
        Change::NoteResponse { request, response_id } => {
            let lease = lease(by)?;
            let named = rules::response_named(&lease.run_id, &stored_request(rows, lease, request)?, &response_id)?;
            put_request(rows, lease, named)
        }
        Change::NoteUsage { request, heard } => {
            let lease = lease(by)?;
            let noted = rules::usage_heard(&stored_request(rows, lease, request)?, heard);
            put_request(rows, lease, noted)
        }
        Change::CloseRequest { request, end, at } => {
            let lease = lease(by)?;
            let closed = rules::request_closed(&stored_request(rows, lease, request)?, end, at);
            put_request(rows, lease, closed)
        }
        Change::CloseLostRequests { at } => close_lost_requests(rows, lease(by)?, at),
        Change::RecordTurn(draft) => record_turn(rows, lease(by)?, draft),
        Change::CommitTurn(commit) => commit_turn(rows, lease(by)?, commit),
        Change::AppendMessages { messages, at } => append_messages(rows, lease(by)?, messages, at),
        Change::SaveCheckpoint(checkpoint) => save_checkpoint(rows, lease(by)?, checkpoint),
        Change::RaiseQuestion(question) => raise_question(rows, lease(by)?, question),
        Change::CloseQuestion { question, is_withdrawn, at } => {
            let lease = lease(by)?;
            leased_run(rows, lease)?;
            let question = rows.question(&question)?;
            let closed = if is_withdrawn {
                rules::question_withdrawn(question, &lease.run_id, at)?
            } else {
                rules::question_closed(question, &lease.run_id, at)?
            };
            if let Some(call) = rules::skipped_by(&closed) {
                let call = rules::owned_call(rows.call(call)?, lease)?;
                if let Some(left) = rules::failure_left(call, at) {
                    rows.update_call(&left, lease.epoch)?;
                }
            }
            rows.update_question(&closed)?;
            Ok(Done::Nothing)
        }
        Change::StartAttempt(start) => start_attempt(rows, lease(by)?, start),
        Change::KeepHandle(keep) => keep_handle(rows, lease(by)?, keep),
        Change::SettleAttempt(settle) => settle_attempt(rows, lease(by)?, settle),
        Change::InterpretReceipt { call, settlement, at, .. } => {
            let lease = lease(by)?;
            let run = leased_run(rows, lease)?;
            let threshold = run.spec.settings.blob_threshold_bytes;
            let call = rules::owned_call(rows.call(&call)?, lease)?;
            let newest = rows.newest_receipt(&call.call_id)?;
            let (call, receipt, blob) = rules::receipt_interpreted(call, newest, settlement, threshold, at)?;
            rows.put_blobs(&lease.run_id, blob.as_slice(), at)?;
            rows.update_call(&call, lease.epoch)?;
            rows.fill_newest_receipt(&receipt)?;
            take_taint(rows, run, &call)?;
            Ok(Done::Call(call))
        }
        Change::Deduplicate { call, from, key, at } => {
            let lease = lease(by)?;
            let run = leased_run(rows, lease)?;
            let call = rules::owned_call(rows.call(&call)?, lease)?;
            let answered_by = rows.call(&from)?;
            let call = rules::call_deduplicated(call, &answered_by, &key, at)?;
            rows.update_call(&call, lease.epoch)?;
            // Nobody has to answer any more whether it may run, and whoever said that the other call was it is heard by this.
            if let Some(question) = rows.waiting_question(&call.call_id)? {
                rows.update_question(&rules::question_closed(question, &lease.run_id, at)?)?;
            }
            // What it is told is what the other one read, which may be another tool.
            put_taint(rows, run, Taint::of(&call.policy).and(Taint::of(&answered_by.policy)))?;
            Ok(Done::Call(call))
        }
        Change::CancelCalls { cancels, at } => {
            let lease = lease(by)?;
            leased_run(rows, lease)?;
            cancel_calls(rows, lease, &cancels, at)?;
            Ok(Done::Nothing)
        }
        Change::MarkLost { why, at } => mark_lost(rows, lease(by)?, &why, at),
        Change::Arrive(new) => arrive(rows, lease(by)?, new),
        Change::Deliver { arrivals, delivery, at } => deliver(rows, lease(by)?, &arrivals, delivery, at),
        Change::ResolveUnknown { call, resolution, question, at } => {
            resolve_unknown(rows, lease(by)?, &call, resolution, question.as_ref(), at)
        }
        Change::NoteReplay { call, status, at } => {
            let lease = lease(by)?;
            let call = rules::replay_noted(leased_call(rows, lease, &call)?, status, at);
            rows.update_call(&call, lease.epoch)?;
            Ok(Done::Nothing)
        }
    }
}

fn run_done(run: RunRecord) -> Done {
    Done::Run(Box::new(run))
}

// --- What needs no lease.

fn put_new_run<R: Rows>(
    rows: &R,
    run: &RunRecord,
    files: &[crate::NewBlob],
    messages: &[MessageRecord],
) -> Result<(), R::Error> {
    rows.insert_run(run)?;
    rows.put_blobs(&run.run_id, files, run.created_at)?;
    rows.refer_to_blobs(&run.run_id, run.spec.taken_files().map(|file| &file.blob))?;
    messages.iter().try_for_each(|message| rows.insert_message(&run.run_id, message))
}

fn submit<R: Rows>(rows: &R, mut run: NewRun) -> Result<RunRecord, R::Error> {
    let files = std::mem::take(&mut run.files);
    let parent = run.parent_run_id.as_ref().map(|parent| rows.run(parent)).transpose()?;
    let (run, opening) = rules::run_submitted(run, parent.as_ref());
    put_new_run(rows, &run, &files, &[opening])?;
    rows.check_job_key(&run)?;
    Ok(run)
}

fn submit_again<R: Rows>(rows: &R, mut run: NewRun, seen: &RunId) -> Result<RunRecord, R::Error> {
    let files = std::mem::take(&mut run.files);
    let (run, opening) = rules::run_submitted(run, None);
    let key = run.job_key.clone().unwrap_or_default();
    let holder = rows.run_of_job_key(&key)?;
    put_new_run(rows, &run, &files, &[opening])?;
    rules::check_again(holder.as_ref(), seen, &key)?;
    Ok(run)
}

fn fork<R: Rows>(rows: &R, mut fork: NewFork) -> Result<RunRecord, R::Error> {
    let files = std::mem::take(&mut fork.run.files);
    let parent = fork.run.parent_run_id.as_ref().map(|parent| rows.run(parent)).transpose()?;
    let parent = parent.ok_or_else(|| rules::not_found("runs", "the parent of the fork"))?;
    let (last_seq, provider_session) = rows.end_of_turn(&parent, fork.at_turn)?;
    let taint = shared_taint(rows, &parent, fork.at_turn)?;
    let context = rules::ForkContext { parent: &parent, last_seq, provider_session, taint };
    let (run, opening, note) = rules::run_forked(fork, context)?;
    put_new_run(rows, &run, &files, &[opening, note])?;
    if !rules::key_is_inherited(&run, Some(&parent)) {
        rows.check_job_key(&run)?;
    }
    Ok(run)
}

fn answer<R: Rows>(rows: &R, answer: NewAnswer) -> Result<Done, R::Error> {
    let (word, at) = (answer.answer.choice.as_str(), answer.at);
    let question = rules::question_answered(rows.question(&answer.question_id)?, answer)?;
    rows.update_question(&question)?;
    rows.note_word(&question.run_id, Some(&question), word, at)?;
    match rules::abort_in(&question) {
        Some(at) => {
            let run = rows.run(&question.run_id)?;
            let below = rows.runs_below(&run.run_id)?;
            for run in std::iter::once(run).chain(below) {
                rows.count_word(&run.run_id)?;
                let run = rules::run_abort_requested(run, &question.question_id, at);
                rows.update_run(&run)?;
                close_with_session(rows, &run, at)?;
            }
        }
        None => rows.count_word(&question.run_id)?,
    }
    Ok(Done::Question(question))
}

/// A session at the gateway that a person ended has no owner who would close what is asked in it: it is closed with the word that ends it, so that
/// nobody is asked what nobody would act on.
fn close_with_session<R: Rows>(rows: &R, run: &RunRecord, at: Timestamp) -> Result<(), R::Error> {
    if !is_gateway(run) {
        return Ok(());
    }
    let closed = rows.waiting_questions_of(&run.run_id)?.into_iter();
    closed.filter_map(|asked| rules::question_ended(asked, at)).try_for_each(|closed| rows.update_question(&closed))
}

fn override_run<R: Rows>(rows: &R, by: &Author, change: NewOverride) -> Result<Done, R::Error> {
    if let Author::Owner(lease) = by {
        leased_run(rows, lease)?;
    }
    let earlier = rows.overrides_of(&change.run_id)?.into_iter().rev();
    let last = { earlier }.find(|row| row.kind == change.kind && row.component == change.component);
    let (row, is_new) = rules::override_made(&rows.run(&change.run_id)?, last, change)?;
    if is_new {
        rows.insert_override(&row)?;
        rows.count_word(&row.run_id)?;
    }
    Ok(Done::Override(row))
}

fn request_cancel<R: Rows>(rows: &R, run: &RunId, reason: &str, at: Timestamp) -> Result<RunRecord, R::Error> {
    let run = rules::run_cancel_requested(rows.run(run)?, reason, at)?;
    rows.update_run(&run)?;
    rows.count_word(&run.run_id)?;
    rows.note_word(&run.run_id, None, "cancel", at)?;
    close_with_session(rows, &run, at)?;
    for child in rows.runs_below(&run.run_id)?.into_iter().filter(|child| !child.status.is_terminal()) {
        rows.count_word(&child.run_id)?;
        rows.update_run(&rules::run_cancel_requested(child, reason, at)?)?;
    }
    Ok(run)
}

fn acquire<R: Rows>(rows: &R, by: &Author, run: &RunId, owner: &OwnerStamp, at: Timestamp) -> Result<Done, R::Error> {
    if let Author::Owner(above) = by {
        leased_run(rows, above)?;
    }
    let (lease, run) = rules::run_acquired(rows.run(run)?, owner, rows.last_write(run)?, at)?;
    let current = run.current_step_id.as_ref().map(|step| rows.step(step)).transpose()?.flatten();
    if let Some(step) = current.and_then(|step| rules::step_resumed(&step, at)) {
        rows.update_step(&step)?;
    }
    rows.update_run(&run)?;
    rows.set_batches(&run.run_id, 0)?;
    Ok(Done::Owned(lease, Box::new(run)))
}

fn resolve_late<R: Rows>(
    rows: &R,
    call: &CallId,
    resolution: UnknownResolution,
    question: &QuestionId,
    at: Timestamp,
) -> Result<Done, R::Error> {
    let call = rows.call(call)?;
    let run = rows.run(&call.run_id)?;
    rules::check_run_ended(&run)?;
    let question = Some(rows.question(question)?);
    let (attempt, threshold) = (rows.current_attempt(&call)?, run.spec.settings.blob_threshold_bytes);
    let was_left = rules::was_left_unknown(&call);
    let resolved = rules::call_resolved(call, attempt, resolution, question, threshold, at)?;
    put_known(rows, was_left, resolved, run.lease_epoch, at).map(Done::Call)
}

fn recall_call<R: Rows>(rows: &R, recall: &RecallCall) -> Result<Done, R::Error> {
    let call = rows.call(&recall.call_id)?;
    let epoch = rows.run(&call.run_id)?.lease_epoch;
    let recalled = rules::call_recalled(call.clone(), rows.current_attempt(&call)?, recall, epoch)?;
    let Some(last) = recalled.steps.last() else { return Ok(Done::Call(call)) };
    let (call, at) = (last.call.clone(), last.call.updated_at);
    for step in &recalled.steps {
        if let Some(key) = step.call.idempotency_key.as_ref().filter(|_| step.call.status.claims_key())
            && let Some(holder) = rows.key_holder(key)?.filter(|holder| holder.call_id != call.call_id)
        {
            let (by, status) = (holder.call_id, holder.status);
            return Err(StoreError::KeyTaken { call: call.call_id, by, status }.into());
        }
        rows.update_call(&step.call, epoch)?;
        match &step.attempt {
            attempt if step.is_new => rows.insert_attempt(attempt)?,
            attempt => rows.end_attempt(attempt)?,
        }
    }
    // Whatever was asked about it was asked before, and about less; what lets it be sent is no answer to that. That it happened, is left or ends the
    // run stays true.
    let stays = |question: &QuestionRecord| {
        question.answer.as_ref().is_some_and(|answer| match answer.choice {
            Choice::Happened | Choice::Skip | Choice::Abort => true,
            Choice::Execute | Choice::Continue => false,
        })
    };
    if let Some(question) = rows.waiting_question(&call.call_id)?.filter(|question| !stays(question)) {
        // Whoever waits for an answer waits for none: it is asked anew, by whoever takes the run.
        rows.count_word(&call.run_id)?;
        let closed = rules::question_closed(question, &call.run_id, at)?;
        let because = "effects.log knows that its call was sent since".to_owned();
        rows.update_question(&QuestionRecord { closed_because: Some(because), ..closed })?;
    }
    let run = Arc::new(rows.run(&call.run_id)?);
    put_taint(rows, run, Taint::of(&call.policy))?;
    Ok(Done::Call(call))
}

fn correct_call<R: Rows>(rows: &R, by: &Author, correct: CorrectCall) -> Result<Done, R::Error> {
    if let Author::Owner(lease) = by {
        leased_call(rows, lease, &correct.call_id)?;
    }
    let call = rows.call(&correct.call_id)?;
    let run = Arc::new(rows.run(&call.run_id)?);
    let at = correct.correction.at;
    let of = correct.correction.of.as_ref().map(|of| rows.call(of)).transpose()?;
    let read = of.as_ref().map_or_else(Taint::default, |of| Taint::of(&of.policy));
    let holder = call.idempotency_key.as_ref().map(|key| rows.key_holder(key)).transpose()?.flatten();
    let context = rules::CorrectContext {
        run: &run,
        attempt: rows.current_attempt(&call)?,
        holder: holder.filter(|holder| holder.call_id != call.call_id),
        of,
        followers: followers_of(rows, &call)?,
        question: rows.waiting_question(&call.call_id)?,
    };
    let threshold = run.spec.settings.blob_threshold_bytes;
    let Some(corrected) = rules::call_corrected(context, call.clone(), correct, threshold)? else {
        return Ok(Done::Call(call));
    };
    let rules::Corrected { call, attempt, receipt, blobs, followers, question } = corrected;
    let resolved = rules::Resolved { call, receipt, blobs, question, attempt };
    let call = put_resolved(rows, resolved, run.lease_epoch, at)?;
    for follower in followers {
        let epoch = rows.run(&follower.run_id)?.lease_epoch;
        rows.update_call(&follower, epoch)?;
        rows.note_effect(&follower, "resolve", epoch, at)?;
    }
    let root = run.root_run_id.clone();
    // What it is told is what the other one read, which may be another tool.
    put_taint(rows, run, read)?;
    rows.note_corrected(&root, at)?;
    Ok(Done::Call(call))
}

/// The calls whose records follow that of a call, and those that follow theirs.
fn followers_of<R: Rows>(rows: &R, call: &CallRecord) -> Result<Vec<CallRecord>, R::Error> {
    let mut followers: Vec<CallRecord> = Vec::new();
    let mut left = vec![call.call_id.clone()];
    while let Some(of) = left.pop() {
        for follower in rows.answered_by(&call.root_run_id, &of)? {
            let is_known = |known: &CallRecord| known.call_id == follower.call_id;
            if !is_known(call) && !followers.iter().any(is_known) {
                left.push(follower.call_id.clone());
                followers.push(follower);
            }
        }
    }
    Ok(followers)
}

fn prune_blobs<R: Rows>(rows: &R, prune: &BlobPrune) -> Result<Done, R::Error> {
    let pruned = rules::blobs_pruned(rows.blob_uses()?, prune);
    if !prune.dry_run {
        pruned.freed.iter().try_for_each(|blob| rows.prune_blob(blob, prune.at))?;
    }
    Ok(Done::Pruned(pruned))
}

fn delete_run<R: Rows>(rows: &R, deletion: &RunDeletion) -> Result<Done, R::Error> {
    let run = rows.run(&deletion.run_id)?;
    let root = run.root_run_id.clone();
    let (members, deleted) = rows.lineage_members(&root)?;
    let was_over = run.status.is_terminal();
    let (run, outcome) = rules::run_deleted(run, &members, &deleted, deletion)?;
    if !was_over {
        // Nobody comes back to it, as behind any end: what was asked of the model is charged, and no answer would be acted on.
        close_lost(rows, &run.run_id, deletion.at)?;
        for question in rows.waiting_questions_of(&run.run_id)? {
            rows.update_question(&rules::question_closed(question, &run.run_id, deletion.at)?)?;
        }
    }
    rows.note_deleted(deletion, &root)?;
    rows.update_run(&run)?;
    if outcome.kept_for.is_empty() {
        rows.remove_lineage(&root)?;
    }
    Ok(Done::Deleted(outcome))
}

// --- What the owner writes about the run.

/// The run of a lease that still is the newest.
fn leased_run<R: Rows>(rows: &R, lease: &RunLease) -> Result<Arc<RunRecord>, R::Error> {
    let run = rows.run_to_look_at(&lease.run_id)?;
    rules::check_lease(&run, lease)?;
    Ok(run)
}

/// A call of a run whose lease still is the newest.
fn leased_call<R: Rows>(rows: &R, lease: &RunLease, call: &CallId) -> Result<CallRecord, R::Error> {
    leased_run(rows, lease)?;
    Ok(rules::owned_call(rows.call(call)?, lease)?)
}

fn step_of<R: Rows>(rows: &R, run: &RunId, id: &StepId) -> Result<StepRecord, R::Error> {
    let step = rows.step(id)?.filter(|step| step.run_id == *run);
    Ok(step.ok_or_else(|| rules::not_found("run_steps", id))?)
}

fn end_run<R: Rows>(rows: &R, lease: &RunLease, end: RunEnd) -> Result<Done, R::Error> {
    let run = rules::run_ended(Arc::unwrap_or_clone(leased_run(rows, lease)?), &end)?;
    if let Some(end) = end.step_end {
        rows.update_step(&rules::step_ended(step_of(rows, &run.run_id, &end.step_id)?, end)?)?;
    }
    cancel_calls(rows, lease, &end.cancels, end.at)?;
    for question in &end.closes {
        rows.update_question(&rules::question_closed(rows.question(question)?, &lease.run_id, end.at)?)?;
    }
    rows.update_run(&run)?;
    Ok(run_done(run))
}

fn open_step<R: Rows>(rows: &R, lease: &RunLease, step: NewStep) -> Result<Done, R::Error> {
    let run = leased_run(rows, lease)?;
    let is_open = rows.open_turn(&run.run_id)?.is_some();
    let last = rows.last_step_index(&lease.run_id)?;
    let (run, step) = rules::step_opened(Arc::unwrap_or_clone(run), step, last, is_open)?;
    rows.insert_step(&step)?;
    rows.update_run(&run)?;
    Ok(Done::Step(step))
}

fn enter_step<R: Rows>(rows: &R, lease: &RunLease, entry: StepEntry) -> Result<Done, R::Error> {
    let run = leased_run(rows, lease)?;
    let current = run.current_step_id.as_ref().map(|step| step_of(rows, &run.run_id, step)).transpose()?;
    let context = rules::EntryContext {
        current,
        last_index: rows.last_step_index(&run.run_id)?,
        turn_is_open: rows.open_turn(&run.run_id)?.is_some(),
        last_seq: rows.last_seq(&run.run_id)?,
    };
    let wanted = entry.step.step_id.clone();
    let Some(entered) = rules::step_entered(Arc::unwrap_or_clone(run), context, entry)? else {
        return step_of(rows, &lease.run_id, &wanted).map(Done::Step);
    };
    if let Some(ended) = &entered.ended {
        rows.update_step(ended)?;
    }
    rows.insert_step(&entered.step)?;
    entered.checkpoints.iter().try_for_each(|checkpoint| rows.insert_checkpoint(checkpoint))?;
    put_messages(rows, lease, &entered.messages)?;
    rows.update_run(&entered.run)?;
    Ok(Done::Step(entered.step))
}

fn put_messages<R: Rows>(rows: &R, lease: &RunLease, messages: &[MessageRecord]) -> Result<(), R::Error> {
    messages.iter().try_for_each(|message| {
        rows.refer_to_blobs(&lease.run_id, message.message.blobs())?;
        rows.insert_message(&lease.run_id, message)
    })
}

fn close_step<R: Rows>(rows: &R, lease: &RunLease, end: StepEnd) -> Result<Done, R::Error> {
    leased_run(rows, lease)?;
    let step = rules::step_ended(step_of(rows, &lease.run_id, &end.step_id)?, end)?;
    rows.update_step(&step)?;
    Ok(Done::Step(step))
}

fn reserve<R: Rows>(rows: &R, lease: &RunLease, reservation: RequestReservation) -> Result<Done, R::Error> {
    let run = leased_run(rows, lease)?;
    let (last, is_open) = (rows.last_request(&run.run_id)?, rows.open_turn(&run.run_id)?.is_some());
    let last_id = last.as_ref().map(|last| last.request_id);
    let request = rules::request_reserved(&run, reservation, last, is_open)?;
    if last_id != Some(request.request_id) {
        rows.insert_request(&run.run_id, &request)?;
    }
    Ok(Done::Request(request.request_id))
}

fn stored_request<R: Rows>(rows: &R, lease: &RunLease, request: RequestId) -> Result<RequestRecord, R::Error> {
    leased_run(rows, lease)?;
    let stored = rows.request(&lease.run_id, request)?;
    Ok(stored.ok_or_else(|| rules::not_found("usage", format!("{}/{request}", lease.run_id)))?)
}

fn put_request<R: Rows>(rows: &R, lease: &RunLease, request: Option<RequestRecord>) -> Result<Done, R::Error> {
    request.map_or(Ok(()), |request| rows.update_request(&lease.run_id, &request))?;
    Ok(Done::Nothing)
}

fn close_lost_requests<R: Rows>(rows: &R, lease: &RunLease, at: Timestamp) -> Result<Done, R::Error> {
    leased_run(rows, lease)?;
    close_lost(rows, &lease.run_id, at).map(Done::Count)
}

/// Charges what a run has asked its model for and got no end of; how many requests that were.
fn close_lost<R: Rows>(rows: &R, run: &RunId, at: Timestamp) -> Result<u32, R::Error> {
    let mut count = 0;
    for request in rows.reserved_requests(run)? {
        if let Some(closed) = rules::request_lost(&request, at) {
            rows.update_request(run, &closed)?;
            count += 1;
        }
    }
    Ok(count)
}

fn record_turn<R: Rows>(rows: &R, lease: &RunLease, draft: TurnDraft) -> Result<Done, R::Error> {
    let run = leased_run(rows, lease)?;
    let step = rows.step(&draft.step_id)?;
    let request = rows.request(&run.run_id, draft.request_id)?;
    let (is_open, last_seq) = (rows.open_turn(&run.run_id)?.is_some(), rows.last_seq(&run.run_id)?);
    let recorded = rules::turn_recorded(&run, step.as_ref(), request.as_ref(), is_open, last_seq, draft)?;
    rows.insert_turn(&recorded.turn)?;
    rows.insert_message(&run.run_id, &recorded.message)?;
    rows.update_request(&run.run_id, &recorded.request)?;
    recorded.calls.iter().try_for_each(|call| rows.insert_call(call, lease.epoch))?;
    Ok(Done::Nothing)
}

fn commit_turn<R: Rows>(rows: &R, lease: &RunLease, commit: TurnCommit) -> Result<Done, R::Error> {
    let run = leased_run(rows, lease)?;
    let open = rows.open_turn(&run.run_id)?;
    let open = open.map(|turn| step_of(rows, &run.run_id, &turn.step_id).map(|step| (turn, step))).transpose()?;
    let checkpoint_step = rows.step(&commit.checkpoint.step_id)?;
    let context = rules::CommitContext {
        open,
        calls: &rows.calls_of_turn(&run.run_id, commit.turn)?,
        checkpoint_step: checkpoint_step.as_ref(),
        last_seq: rows.last_seq(&run.run_id)?,
    };
    let committed = rules::turn_committed(Arc::unwrap_or_clone(run), context, commit)?;
    rows.insert_checkpoint(&committed.checkpoint)?;
    rows.update_turn(&committed.turn)?;
    rows.update_step(&committed.step)?;
    rows.put_blobs(&lease.run_id, &committed.blobs, committed.run.updated_at)?;
    put_messages(rows, lease, &committed.messages)?;
    rows.update_run(&committed.run)?;
    Ok(run_done(committed.run))
}

fn append_messages<R: Rows>(
    rows: &R,
    lease: &RunLease,
    messages: Vec<Message>,
    at: Timestamp,
) -> Result<Done, R::Error> {
    let run = leased_run(rows, lease)?;
    let is_open = rows.open_turn(&run.run_id)?.is_some();
    let tail = rows.last_messages(&run.run_id, messages.len().max(1))?;
    let notes = rules::notes_appended(&run, is_open, &tail, messages, at)?;
    put_messages(rows, lease, &notes)?;
    Ok(Done::Nothing)
}

fn save_checkpoint<R: Rows>(rows: &R, lease: &RunLease, checkpoint: NewCheckpoint) -> Result<Done, R::Error> {
    let run = leased_run(rows, lease)?;
    let step = rows.step(&checkpoint.step_id)?;
    let (run, checkpoint) = rules::checkpoint_saved(Arc::unwrap_or_clone(run), step.as_ref(), checkpoint)?;
    rows.insert_checkpoint(&checkpoint)?;
    rows.update_run(&run)?;
    Ok(Done::Nothing)
}

fn raise_question<R: Rows>(rows: &R, lease: &RunLease, question: NewQuestion) -> Result<Done, R::Error> {
    rules::may_ask(leased_run(rows, lease)?.as_ref(), &question)?;
    if let Some(call) = &question.call_id {
        rules::owned_call(rows.call(call)?, lease)?;
        if let Some(earlier) = rows.waiting_question(call)? {
            return Ok(Done::Question(earlier));
        }
    }
    let waiting = rows.waiting_questions_of(&lease.run_id)?;
    if let Some(earlier) = waiting.into_iter().find(|asked| rules::is_same_question(asked, &question)) {
        return Ok(Done::Question(earlier));
    }
    let question = rules::question_raised(&lease.run_id, question);
    rows.insert_question(&question)?;
    Ok(Done::Question(question))
}

// --- Sessions at the gateway.

fn open_session<R: Rows>(rows: &R, new: NewSession) -> Result<RunRecord, R::Error> {
    let NewSession { run, session } = new;
    let files = run.files.clone();
    let (run, opening) = rules::run_submitted(run, None);
    rules::check_session(&session, &run)?;
    put_new_run(rows, &run, &files, &[opening])?;
    rows.insert_session(&session)?;
    Ok(run)
}

fn arrive<R: Rows>(rows: &R, lease: &RunLease, new: NewArrival) -> Result<Done, R::Error> {
    let run = leased_run(rows, lease)?;
    let (step, stored) = (rows.step(&new.step)?, rows.arrival(&new.arrival.arrival_id)?);
    let named = if new.call.is_none() { Some(rows.call(&new.arrival.call_id)?) } else { None };
    let rules::Arrived { arrival, call } = rules::arrived(&run, step.as_ref(), stored, named, new)?;
    if let Some(call) = call {
        rows.insert_call(&call, lease.epoch)?;
    }
    arrival.map_or(Ok(()), |arrival| rows.insert_arrival(&arrival))?;
    Ok(Done::Nothing)
}

fn deliver<R: Rows>(
    rows: &R,
    lease: &RunLease,
    arrivals: &[String],
    delivery: Delivery,
    at: Timestamp,
) -> Result<Done, R::Error> {
    leased_run(rows, lease)?;
    for id in arrivals {
        let stored = rows.arrival(id)?.ok_or_else(|| rules::not_found("gateway_arrivals", id))?;
        rows.update_arrival(&rules::delivered(stored, lease, delivery, at)?)?;
    }
    Ok(Done::Nothing)
}

// --- What the owner writes about calls.

/// The other call of the lineage for which a key stands: the one that holds it, or one that used it up. Whoever decided on a start may not have
/// looked, or a person may have spoken meanwhile.
fn stands_for<R: Rows>(
    rows: &R,
    run: &RunRecord,
    call: &CallRecord,
    key: &IdempotencyKey,
) -> Result<Option<CallRecord>, R::Error> {
    if let Some(holder) = rows.key_holder(key)?.filter(|holder| holder.call_id != call.call_id) {
        return Ok(Some(holder));
    }
    let root = &run.root_run_id;
    let corrected_at = if run.run_id == *root { run.corrected_at } else { rows.run(root)?.corrected_at };
    // Nearly no run has any.
    if corrected_at.is_none() || call.policy.effect_kind.is_none() {
        return Ok(None);
    }
    let used_it_up = |other: &CallRecord| {
        other.call_id != call.call_id && rules::used_up_its_key(other) && other.idempotency_key.as_ref() == Some(key)
    };
    Ok(rows.corrected_calls(root)?.into_iter().find(used_it_up))
}

fn start_attempt<R: Rows>(rows: &R, lease: &RunLease, start: StartAttempt) -> Result<Done, R::Error> {
    let run = leased_run(rows, lease)?;
    let call = rules::owned_call(rows.call(&start.call_id)?, lease)?;
    let context = rules::StartContext {
        run: &run,
        holder: stands_for(rows, &run, &call, &start.key)?,
        relations: match &start.seen {
            Some(_) => rows.relations(&call, start.scope.as_ref())?,
            None => Relations::default(),
        },
        other_effects: match start.max_effects {
            Some(max) => rows.other_effects(&call, max)?,
            None => 0,
        },
        approval: start.approved_by.as_ref().map(|question| rows.question(question)).transpose()?,
    };
    let at = start.at;
    let started = rules::call_started(context, call, start)?;
    rows.update_call(&started.call, lease.epoch)?;
    rows.insert_attempt(&started.attempt)?;
    put_taint(rows, run, Taint::of(&started.call.policy))?;
    if let Some(question) = started.approval {
        rows.update_question(&question)?;
    }
    if let Some((child, opening)) = started.child {
        rows.insert_run(&child)?;
        rows.insert_message(&child.run_id, &opening)?;
    }
    rows.note_effect(&started.call, "start", lease.epoch, at)?;
    Ok(Done::Call(started.call))
}

fn keep_handle<R: Rows>(rows: &R, lease: &RunLease, keep: KeepHandle) -> Result<Done, R::Error> {
    let run = leased_run(rows, lease)?;
    let mut call = rules::owned_call(rows.call(&keep.call_id)?, lease)?;
    if let Some(seen) = &keep.seen {
        rules::may_send(&run)?;
        if let Some(other) = rows.relations(&call, call.scope.as_ref())?.news(seen) {
            let (by, status) = (other.call_id.clone(), other.status);
            return Err(StoreError::ScopeTouched { call: call.call_id, by, status }.into());
        }
    }
    let (at, before) = (keep.at, rows.current_attempt(&call)?);
    let task_of = |attempt: &AttemptRecord| attempt.handle.as_ref().and_then(|handle| handle.task.clone());
    let task_before = before.as_ref().and_then(task_of);
    let leaves = keep.seen.is_some();
    let attempt = rules::handle_kept(&call, before, keep)?;
    rows.keep_handle(&attempt)?;
    if leaves {
        // Whoever decided beside it saw a call that waited, and has to see that it does no more, also where the clock was set back, or
        // stood still.
        call.updated_at = at.max(call.updated_at.plus(Duration::from_millis(1)));
        rows.update_call(&call, lease.epoch)?;
    }
    // A copy of before that does not know that it goes on elsewhere.
    if task_of(&attempt).is_some_and(|task| Some(&task) != task_before.as_ref()) {
        rows.note_effect(&call, TASK_BEGUN, lease.epoch, at)?;
    }
    Ok(Done::Attempt(attempt))
}

fn settle_attempt<R: Rows>(rows: &R, lease: &RunLease, settle: SettleAttempt) -> Result<Done, R::Error> {
    let run = leased_run(rows, lease)?;
    let threshold = run.spec.settings.blob_threshold_bytes;
    let call = rules::owned_call(rows.call(&settle.call_id)?, lease)?;
    let attempt = rows.current_attempt(&call)?;
    let settled = rules::call_settled(call, attempt, settle.attempt, settle.end, threshold, settle.at)?;
    rows.put_blobs(&lease.run_id, &settled.blobs, settle.at)?;
    put_call(rows, &settled.call, lease.epoch, settled.receipt.as_ref())?;
    rows.end_attempt(&settled.attempt)?;
    rows.note_effect(&settled.call, "settle", lease.epoch, settle.at)?;
    take_taint(rows, run, &settled.call)?;
    Ok(Done::Call(settled.call))
}

/// Stores a call, and the answer that made it what it is.
fn put_call<R: Rows>(rows: &R, call: &CallRecord, epoch: u64, receipt: Option<&ReceiptRecord>) -> Result<(), R::Error> {
    receipt.map_or_else(|| rows.update_call(call, epoch), |receipt| rows.answer_call(call, epoch, receipt))
}

/// Adds to what is known to be in a run's history.
fn put_taint<R: Rows>(rows: &R, run: Arc<RunRecord>, more: Taint) -> Result<(), R::Error> {
    let taint = run.taint.and(more);
    if taint == run.taint {
        return Ok(());
    }
    rows.update_run(&RunRecord { taint, ..Arc::unwrap_or_clone(run) })
}

/// What a sub-agent had read comes into the run with its answer.
fn take_taint<R: Rows>(rows: &R, run: Arc<RunRecord>, call: &CallRecord) -> Result<(), R::Error> {
    if !call.name.is_task() {
        return Ok(());
    }
    let brought = rows.taint_of(&RunId::of_task(&call.call_id))?;
    put_taint(rows, run, brought)
}

/// What the turns of a run up to one brought into its history, those that it shares with its own parents included.
fn shared_taint<R: Rows>(rows: &R, run: &RunRecord, turn: u32) -> Result<Taint, R::Error> {
    let mut parts = vec![(run.run_id.clone(), turn)];
    let shared = rules::shared_parts(run, |id| rows.run(id))?;
    parts.extend(shared.into_iter().map(|part| (part.run_id, part.upto.turn.min(turn))));
    let mut taint = Taint::default();
    for (run, turn) in parts {
        for call in rows.calls_until(&run, turn)? {
            if !matches!(call.status, CallStatus::Prepared | CallStatus::Cancelled) {
                taint = taint.and(Taint::of(&call.policy));
                if let Some(answered_by) = call.answered_by() {
                    taint = taint.and(Taint::of(&rows.call(answered_by)?.policy));
                }
                if call.name.is_task() {
                    taint = taint.and(rows.taint_of(&RunId::of_task(&call.call_id))?);
                }
            }
        }
    }
    Ok(taint)
}

/// Cancels calls of the lease's run that were never sent, and closes what was asked about them.
fn cancel_calls<R: Rows>(rows: &R, lease: &RunLease, cancels: &[CallCancel], at: Timestamp) -> Result<(), R::Error> {
    for cancel in cancels {
        let call = rules::owned_call(rows.call(&cancel.call_id)?, lease)?;
        let question = rows.waiting_question(&call.call_id)?;
        if cancel.unless_allowed && question.as_ref().is_some_and(rules::is_allowed) {
            return Err(rules::conflict("tool_calls", call.call_id.as_str(), "a person has let it run").into());
        }
        // Nothing is sent for it, whatever became of the calls before it.
        if cancel.resolution == Resolution::AfterFailure && question.as_ref().is_some_and(rules::is_done_by_another) {
            let why = "a person has said that an earlier call was it";
            return Err(rules::conflict("tool_calls", call.call_id.as_str(), why).into());
        }
        let is_in_vain =
            cancel.resolution == Resolution::AfterFailure && question.as_ref().is_some_and(rules::is_allowed);
        let cancelled = rules::call_cancelled(call, cancel, at)?;
        rows.update_call(&if is_in_vain { rules::let_go_in_vain(cancelled) } else { cancelled }, lease.epoch)?;
        if let Some(question) = question {
            let closed = rules::question_closed(question, &lease.run_id, at)?;
            let unused = (cancel.resolution == Resolution::AfterFailure)
                .then(|| "its call was not sent, because an earlier call of its turn did not succeed".to_owned());
            rows.update_question(&QuestionRecord { closed_because: unused, ..closed })?;
        }
    }
    Ok(())
}

fn mark_lost<R: Rows>(rows: &R, lease: &RunLease, why: &str, at: Timestamp) -> Result<Done, R::Error> {
    leased_run(rows, lease)?;
    let mut lost = Vec::new();
    for call in rows.running_calls(&lease.run_id)? {
        let attempt = rows.current_attempt(&call)?;
        if let Some((call, attempt)) = attempt.and_then(|attempt| rules::call_lost(&call, &attempt, why, at)) {
            rows.update_call(&call, lease.epoch)?;
            rows.end_attempt(&attempt)?;
            lost.push(call);
        }
    }
    Ok(Done::Calls(lost))
}

fn resolve_unknown<R: Rows>(
    rows: &R,
    lease: &RunLease,
    call: &CallId,
    resolution: UnknownResolution,
    question: Option<&QuestionId>,
    at: Timestamp,
) -> Result<Done, R::Error> {
    let threshold = leased_run(rows, lease)?.spec.settings.blob_threshold_bytes;
    let call = rules::owned_call(rows.call(call)?, lease)?;
    let question = question.map(|question| rows.question(question)).transpose()?;
    let attempt = rows.current_attempt(&call)?;
    let was_left = rules::was_left_unknown(&call);
    let resolved = rules::call_resolved(call, attempt, resolution, question, threshold, at)?;
    put_known(rows, was_left, resolved, lease.epoch, at).map(Done::Call)
}

/// Stores what became known of a call. Where its run had continued without it, models were told that nobody knows.
fn put_known<R: Rows>(
    rows: &R,
    was_left: bool,
    resolved: rules::Resolved,
    epoch: u64,
    at: Timestamp,
) -> Result<CallRecord, R::Error> {
    let root = Some(resolved.call.root_run_id.clone()).filter(|_| was_left && !rules::was_left_unknown(&resolved.call));
    let call = put_resolved(rows, resolved, epoch, at)?;
    if let Some(root) = root {
        rows.note_corrected(&root, at)?;
    }
    Ok(call)
}

fn put_resolved<R: Rows>(
    rows: &R,
    resolved: rules::Resolved,
    epoch: u64,
    at: Timestamp,
) -> Result<CallRecord, R::Error> {
    let rules::Resolved { call, receipt, blobs, question, attempt } = resolved;
    rows.put_blobs(&call.run_id, &blobs, at)?;
    if let Some(attempt) = attempt {
        rows.end_attempt(&attempt)?;
    }
    put_call(rows, &call, epoch, receipt.as_ref())?;
    if let Some(question) = question {
        rows.update_question(&question)?;
    }
    rows.note_effect(&call, "resolve", epoch, at)?;
    Ok(call)
}
