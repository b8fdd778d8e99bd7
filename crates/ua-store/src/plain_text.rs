//! Plain text as every store holds it: with U+FFFD in the place of U+0000.
//!
//! A text column of PostgreSQL cannot hold U+0000, and tools, models and people may say it. A store that put something else there by itself would
//! hold another text than it was told: a digest over what was told would not be one over what is stored (the link of an answer, without which the
//! answer counts as nobody's), and what comes again in the same words would be news. So a change is cleaned before anything is made of it, for
//! every store alike. JSON has an escape for U+0000 and is kept as it is, and so is what blobs hold.
//!
//! Proved by: `conformance::plain_text`, `conformance::agree`, which puts U+0000 into what it writes, and `no_text_column_holds_nul` of
//! the SQLite store.

use std::borrow::Cow;

use ua_core::{PlannedCall, Settlement};

use crate::change::{Batch, Change};
use crate::commit::{
    AttemptEnd, CallCancel, CorrectCall, MadeBy, NewAnswer, NewRun, NewStep, RecalledAttempt, RequestReservation,
    RunEnd, SettleAttempt, StartAttempt, StepEnd, StepEntry, TurnDraft, UnknownResolution,
};
use crate::fleet::{FleetChange, QueueOptions, Release, ScheduleRecord, WorkerRecord};
use crate::gateway::{ArrivalRecord, ArrivalsOf, GatewayOf, NewArrival, SessionRecord, SessionsOf};
use crate::overrides::NewOverride;

/// The text as every store holds it.
///
/// ```
/// assert_eq!(ua_store::plain_text("a\0b"), "a\u{fffd}b");
/// ```
pub fn plain_text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// What holds text that becomes the plain text of a row.
trait Clean {
    fn clean(&mut self);
}

impl Clean for String {
    fn clean(&mut self) {
        if let Cow::Owned(cleaned) = plain_text(self) {
            *self = cleaned;
        }
    }
}

impl<T: Clean> Clean for Option<T> {
    fn clean(&mut self) {
        if let Some(some) = self {
            some.clean();
        }
    }
}

impl<T: Clean> Clean for Vec<T> {
    fn clean(&mut self) {
        for each in self {
            each.clean();
        }
    }
}

impl<T: Clean + ?Sized> Clean for Box<T> {
    fn clean(&mut self) {
        (**self).clean();
    }
}

fn clean_all<const N: usize>(texts: [&mut dyn Clean; N]) {
    for text in texts {
        text.clean();
    }
}

impl Batch {
    /// Cleans what becomes the plain text of rows.
    pub(crate) fn clean(&mut self) {
        for change in self.stands.iter_mut().chain(&mut self.provided) {
            change.clean();
        }
    }
}

impl Change {
    fn clean(&mut self) {
        match self {
            Self::Submit(run) | Self::SubmitAgain { run, .. } => run.clean(),
            Self::Fork(fork) => fork.run.clean(),
            Self::Answer(new) => new.clean(),
            Self::Override(new) => new.clean(),
            Self::RequestCancel { reason, .. } => reason.clean(),
            Self::ResolveLate { resolution, .. } | Self::ResolveUnknown { resolution, .. } => resolution.clean(),
            Self::Correct(correct) => correct.clean(),
            Self::Recall(recall) => recall.attempts.clean(),
            Self::OpenSession(new) => {
                new.run.clean();
                new.session.clean();
            }
            Self::EndRun(end) => end.clean(),
            Self::OpenStep(step) => step.clean(),
            Self::EnterStep(entry) => entry.clean(),
            Self::CloseStep(end) => end.clean(),
            Self::Reserve(reservation) => reservation.clean(),
            Self::NoteResponse { response_id, .. } => response_id.clean(),
            Self::RecordTurn(draft) => draft.clean(),
            Self::StartAttempt(start) => start.clean(),
            Self::SettleAttempt(settle) => settle.clean(),
            Self::InterpretReceipt { settlement, .. } => settlement.clean(),
            Self::CancelCalls { cancels, .. } => cancels.clean(),
            Self::MarkLost { why, .. } => why.clean(),
            Self::Arrive(new) => new.clean(),
            Self::Deliver { arrivals, .. } => arrivals.clean(),
            // Names of ours, numbers, and JSON. The words of a question are cleaned where it is raised.
            Self::Acquire { .. }
            | Self::PruneBlobs(_)
            | Self::Delete(_)
            | Self::NoteAlive { .. }
            | Self::NoteUsage { .. }
            | Self::CloseRequest { .. }
            | Self::CloseLostRequests { .. }
            | Self::CommitTurn(_)
            | Self::AppendMessages { .. }
            | Self::SaveCheckpoint(_)
            | Self::RaiseQuestion(_)
            | Self::CloseQuestion { .. }
            | Self::KeepHandle(_)
            | Self::Deduplicate { .. }
            | Self::NoteReplay { .. } => {}
        }
    }
}

impl Clean for NewRun {
    /// What of its contract and its prompt is text of its own is cleaned where the run is made of it.
    fn clean(&mut self) {
        clean_all([&mut self.entrypoint, &mut self.run_mode, &mut self.job_path, &mut self.workspace_dir]);
    }
}

impl Clean for NewAnswer {
    fn clean(&mut self) {
        clean_all([&mut self.answer.proof, &mut self.answer.text, &mut self.by]);
    }
}

impl Clean for NewOverride {
    fn clean(&mut self) {
        clean_all([&mut self.component, &mut self.made_by]);
    }
}

impl Clean for UnknownResolution {
    fn clean(&mut self) {
        match self {
            Self::Happened { settlement, .. } | Self::Answered { settlement, .. } => settlement.clean(),
            Self::NotHappened { why } => why.clean(),
            Self::Skipped => {}
        }
    }
}

impl Clean for Settlement {
    fn clean(&mut self) {
        clean_all([&mut self.external_correlation_id, &mut self.error_code, &mut self.error_detail]);
    }
}

impl Clean for CorrectCall {
    fn clean(&mut self) {
        let said = &mut self.correction;
        clean_all([&mut said.reason, &mut said.proof, &mut said.by]);
        if let Some((_, settlement)) = &mut self.receipt {
            settlement.clean();
        }
    }
}

impl Clean for RecalledAttempt {
    fn clean(&mut self) {
        self.said.clean();
        if let Some(MadeBy { call, run, .. }) = &mut self.made_by {
            clean_all([call, run]);
        }
    }
}

impl Clean for RunEnd {
    fn clean(&mut self) {
        clean_all([&mut self.detail, &mut self.final_output, &mut self.final_artifact_ref]);
        clean_all([&mut self.step_end, &mut self.cancels]);
    }
}

impl Clean for CallCancel {
    fn clean(&mut self) {
        clean_all([&mut self.code, &mut self.message]);
    }
}

impl Clean for NewStep {
    fn clean(&mut self) {
        self.phase.clean();
    }
}

impl Clean for StepEntry {
    fn clean(&mut self) {
        clean_all([&mut self.end, &mut self.step]);
    }
}

impl Clean for StepEnd {
    fn clean(&mut self) {
        clean_all([&mut self.error_code, &mut self.error_detail]);
    }
}

impl Clean for RequestReservation {
    fn clean(&mut self) {
        clean_all([&mut self.provider, &mut self.model, &mut self.estimator, &mut self.continued_from]);
    }
}

impl Clean for TurnDraft {
    fn clean(&mut self) {
        clean_all([&mut self.reply.model, &mut self.reply.response_id, &mut self.calls]);
    }
}

impl Clean for PlannedCall {
    fn clean(&mut self) {
        let name = &mut self.name;
        clean_all([&mut self.tool_use_id, &mut name.raw, &mut name.server, &mut name.tool]);
        if let Some(refusal) = &mut self.refusal {
            clean_all([&mut refusal.code, &mut refusal.message]);
        }
        // Whoever changes what is shared copies it first.
        if self.policy.rule_id.contains('\0') {
            self.policy.rule_id.clean();
        }
    }
}

impl Clean for StartAttempt {
    fn clean(&mut self) {
        self.server_generation.clean();
        self.child.clean();
    }
}

impl Clean for SettleAttempt {
    fn clean(&mut self) {
        match &mut self.end {
            AttemptEnd::NotSent { why } | AttemptEnd::Lost { why } => why.clean(),
            AttemptEnd::Replied { settlement, .. } => settlement.clean(),
        }
    }
}

impl Clean for SessionRecord {
    fn clean(&mut self) {
        clean_all([&mut self.project, &mut self.server, &mut self.session_key]);
        clean_all([&mut self.client, &mut self.identity, &mut self.reach]);
    }
}

impl Clean for ArrivalRecord {
    fn clean(&mut self) {
        clean_all([&mut self.arrival_id, &mut self.client_call, &mut self.rule, &mut self.project, &mut self.tool]);
    }
}

impl Clean for NewArrival {
    fn clean(&mut self) {
        clean_all([&mut self.arrival, &mut self.call]);
    }
}

impl GatewayOf {
    /// The same in the words in which it is stored.
    #[must_use]
    pub fn in_plain_text(mut self) -> Self {
        match &mut self {
            Self::Sessions(SessionsOf::Key { project, server, session_key }) => {
                clean_all([project, server, session_key]);
            }
            Self::Arrivals(ArrivalsOf::One(id)) => id.clean(),
            Self::Arrivals(ArrivalsOf::Same(same)) => clean_all([&mut same.projects, &mut same.tools]),
            Self::Sessions(SessionsOf::Run(_) | SessionsOf::Newest(_))
            | Self::Arrivals(ArrivalsOf::Call(_) | ArrivalsOf::NewestHeardOf(_) | ArrivalsOf::Session(_)) => {}
        }
        self
    }
}

impl FleetChange {
    /// Cleans what becomes the plain text of rows.
    pub(crate) fn clean(&mut self) {
        match self {
            Self::Register(worker) => worker.clean(),
            Self::Renew { worker, .. } | Self::Drain { worker } | Self::Leave { worker } => worker.clean(),
            Self::ForgetPlace { place, .. } => place.clean(),
            Self::Enqueue { options, .. } => options.clean(),
            Self::EnqueueDue { schedule, options, .. } => {
                schedule.clean();
                options.clean();
            }
            Self::Claim { worker, dead, .. } => clean_all([worker, dead]),
            Self::Release { worker, release, .. } => clean_all([worker, release]),
            Self::Move { queue, .. } => queue.clean(),
            Self::PutSchedule(schedule) => schedule.clean(),
            Self::Advance { name, .. } | Self::RemoveSchedule { name } => name.clean(),
            Self::Withdraw { .. } => {}
        }
    }
}

impl Clean for WorkerRecord {
    fn clean(&mut self) {
        clean_all([&mut self.worker, &mut self.place, &mut self.place_shown, &mut self.version, &mut self.queues]);
    }
}

impl Clean for QueueOptions {
    fn clean(&mut self) {
        clean_all([&mut self.queue, &mut self.fair_key]);
        if let Some(seats) = &mut self.concurrency {
            seats.key.clean();
        }
    }
}

impl Clean for Release {
    fn clean(&mut self) {
        match self {
            Self::Ready { why, .. } | Self::Parked { why } => why.clean(),
            Self::Unfit { why, .. } => why.clean(),
            Self::Done => {}
        }
    }
}

impl Clean for ScheduleRecord {
    fn clean(&mut self) {
        clean_all([&mut self.name, &mut self.cron, &mut self.time_zone]);
    }
}
