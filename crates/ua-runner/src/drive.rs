//! The loop that carries out what the machine decides.

mod admit;
mod away;
mod changes;
mod conclude;
mod conversation;
mod corpus;
mod iteration;
mod phase;
mod refused_tools;
mod results;
mod session;
mod think;
mod turn;
mod words;

use std::collections::BTreeSet;
use std::time::Duration;

use tracing::Instrument as _;
use ua_checkpoint::{MeasuredHistory, estimate_tokens};
use ua_core::{Audience, CallId, CallStatus, Message, Role, RunStop, Shared, Timestamp};
use ua_dispatch::RunTime;
use ua_evidence::Undeclared;
use ua_llm::{Conversation, Ending, KnownPrefix, Measured, Measurer, ModelRequest, ToolOffer};
use ua_store::rules::{IN_DOUBT, TOLD_OF, UNDECLARED, UNPAID};
use ua_store::{
    CallRecord, Choice, EndMark, OverrideKind, QuestionKind, RequestId, RunRecord, RunRecords, Store, is_task,
};

use self::admit::Start;
pub use self::iteration::evidence_ledgers;
use self::refused_tools::RefusedTools;
use self::session::Session;
use self::words::UnreadWords;
pub(crate) use self::words::is_unread;
use crate::alive::Passed;
use crate::budget::{Estimate, Limits};
use crate::cas::StoredTurns;
use crate::compose::Filled;
use crate::error::RunError;
use crate::files::{self, NextFiles};
use crate::fit::Fit;
use crate::forced_replay::ForcedReplay;
use crate::iteration::context_begins;
use crate::machine::{Command, Conclusion, Event, RunMachine};
use crate::pin::{PinnedStep, already_complete, open_step};
use crate::ports::{Ports, RunSettings, ask_about_orphan, raise_run_question, raise_run_question_with};
use crate::recover::{InFlight, Recovered, recover, start_of};
use crate::retry::Correction;
use crate::spans::{self, Spans};
use crate::stamps::FileStamps;
use crate::standing::{history_of, load_standing};
use crate::watch::RunEvent;

/// Drives the run that `ports.lease` owns, from wherever it stands to a conclusion of this process. `acquired_at` is when the
/// lease was taken; from then on the time counts as held. Its spans stand below the current one, which is best a
/// [`run_span`](crate::run_span).
pub(crate) async fn drive(
    ports: &Ports,
    settings: &RunSettings,
    acquired_at: Timestamp,
) -> Result<(Conclusion, RunRecord), RunError> {
    spans::taken(ports.lease.epoch);
    let driven = Box::pin(drive_to_conclusion(ports, settings, acquired_at)).await;
    // Whatever broke the work off, what has come back is stored.
    match ports.store.flush().await {
        // What broke the work off is told as its end, and is mostly the same.
        Err(error) if driven.is_err() => tracing::debug!(%error, "what waited to be written was not"),
        Err(error) => tracing::warn!(%error, "what came back last could not be stored"),
        Ok(()) => {}
    }
    driven.inspect_err(spans::broken)
}

async fn drive_to_conclusion(
    ports: &Ports,
    settings: &RunSettings,
    acquired_at: Timestamp,
) -> Result<(Conclusion, RunRecord), RunError> {
    let withdrawn = files::withdraw_conclusion(&ports.workspace, &ports.lease.run_id);
    files::note("the completion file of an earlier process", withdrawn);
    if let Some(done) = already_complete(ports, settings).await? {
        return Ok(done);
    }
    let Recovered { mut records, in_flight, mut start, waiting_for } = recover(ports).await?;
    if start.is_resume {
        spans::resuming(start.committed, in_flight.len());
        let unsent = in_flight.iter().filter(|flight| flight.was == CallStatus::Prepared).count();
        let sent = in_flight.len() - unsent;
        (ports.watcher)(RunEvent::Resuming { turn_index: start.committed, in_flight: sent, unsent });
    }
    let pinned = open_step(ports, settings, &records).await?;
    if records.current_step().is_none() && !records.run.spec.phases.is_empty() {
        // The first phase has begun, with a message of its own.
        records = load_standing(ports).await?;
        start = start_of(&records);
    }
    let limits = Limits {
        shared_turns: records.run.shared_turns(),
        audience: Audience::of(&records.run.entrypoint),
        ..Limits::of(&records.run.spec, &records.budgets())
    };
    let patience = Duration::from_mins(records.budgets().max_provider_wait_minutes.into());
    let machine = RunMachine::new(limits, start).with_retry(settings.retry.within(patience));
    let mut driver = Driver::new(ports, settings, records, in_flight, machine, acquired_at, pinned);
    let diff = driver.pin_diff();
    // A person's word that the run is to end comes first, whatever else it waits for.
    let conclusion = match (driver.run.end_mark(), waiting_for) {
        (Some(mark), _) => Conclusion::of_mark(mark),
        (None, Some(question)) => Conclusion::Waiting { question: Box::new(question) },
        (None, None) if !diff.is_empty() => Box::pin(driver.settle_without_sending(&diff)).await?,
        (None, None) => Box::pin(driver.run()).await?,
    };
    // One that was said since the last look need not wait for the next resume: nobody has to answer any more.
    let conclusion = if let Conclusion::Waiting { .. } = conclusion {
        driver.end_mark().await?.map_or(conclusion, Conclusion::of_mark)
    } else {
        conclusion
    };
    // What a sub-agent may use was carved from its parent's budgets: it gets no more, and its parent is told.
    let conclusion = if let Conclusion::Stopped { reason: RunStop::Budget, detail } = &conclusion
        && is_task(&driver.run)
    {
        Conclusion::Failed { why: detail.clone() }
    } else {
        conclusion
    };
    let run = driver.conclude(&conclusion).await?;
    Ok((conclusion, run))
}

/// A request that is reserved and not charged yet.
struct Reserved {
    request: ModelRequest,
    /// Its digest, and its size as its bytes say it: what is reserved may be more.
    measured: Measured,
    /// What of it the provider knows already.
    known: Option<KnownPrefix>,
    id: RequestId,
    estimate: Estimate,
}

/// One process's work on a run.
struct Driver<'a> {
    ports: &'a Ports,
    settings: &'a RunSettings,
    machine: RunMachine,
    run: RunRecord,
    pinned: PinnedStep,
    /// How often the stored state was taken over since a turn last ran.
    reloads: u32,
    /// The history as it is stored: committed turns only, blobs as references; of a job in iterations, what belongs to the current one. A
    /// request carries a view of it.
    history: MeasuredHistory,
    /// What of it was read for the last request.
    filled: Filled,
    measurer: Measurer,
    /// How the history is fitted to what the provider counts.
    fit: Fit,
    /// The tools that the last request offered.
    tools: Shared<Vec<ToolOffer>>,
    /// Tools that the provider does not take. Another process finds out anew, which costs a refused request each.
    left_out: RefusedTools,
    /// Tool uses whose images were in a request that the provider did not take. Another process finds out anew as well.
    refused_images: BTreeSet<String>,
    /// Whether the provider did not take the form of the job's result as a part of the request. What the model writes is held against it all the
    /// same. Another process finds out anew.
    without_form: bool,
    /// Whether it took a request with that form, so that none is refused for it any more.
    form_was_taken: bool,
    last_seq: u64,
    /// The reply of the open turn.
    open_reply: Option<Message>,
    /// The turn that was open when the state was taken over.
    found_open: Option<u32>,
    /// The turn whose large results were looked for.
    looked_for_results_of: u32,
    /// The calls of the open turn, as long as this process knows them without reading: it recorded the turn, and nothing came of them but
    /// what it saw.
    open_calls: Option<Vec<CallRecord>>,
    in_flight: Vec<InFlight>,
    request: Option<Reserved>,
    session: Session,
    counted_from: Timestamp,
    /// What had passed beside the work of the process by then.
    passed_before: Passed,
    marked_effects_of: u32,
    last_call: Option<CallId>,
    /// Files as they were when a marker last named them.
    marked_files: FileStamps,
    /// When the files for people are due.
    files: NextFiles,
    /// What the model is to be told about records that persons corrected, and when the last of those was.
    correction_note: Option<String>,
    /// What they said in answers about the run.
    unread: UnreadWords,
    /// The longest reply that is asked for, since the provider refused a longer one, or thoughts took all of one. Another process finds that out
    /// anew.
    reply_limit: Option<u32>,
    /// What a person has to correct at the provider, by the last request that it refused for it.
    correction: Option<Correction>,
    /// Whether somebody was told that the history does not fit, and whether that was after a refusal.
    told_over_limit: Option<bool>,
    /// The turn whose request was too long for the model, so that its history is cut.
    cut_for: Option<u32>,
    /// Whether the last request has its newest turn in part.
    is_shortened: bool,
    /// The turn of which somebody was told that.
    told_shortened: Option<u32>,
    /// Calls that may have been what the evidence lacked when it was looked at last.
    undeclared: Vec<Undeclared>,
    /// Calls that may have been what is missing, and of which nobody knows whether they happened.
    in_doubt: Vec<CallId>,
    /// The same, and those of which only their own runs can say so.
    told_of: Vec<CallId>,
    /// How the reply ended that is to be recorded.
    ending: Ending,
    corrected_at: Option<Timestamp>,
    /// What an agent that owns its loop is owed.
    replay: ForcedReplay,
    spans: Spans,
}

impl<'a> Driver<'a> {
    /// Whom what is said about the run speaks to.
    fn audience(&self) -> Audience {
        Audience::of(&self.run.entrypoint)
    }

    fn new(
        ports: &'a Ports,
        settings: &'a RunSettings,
        records: RunRecords,
        in_flight: Vec<InFlight>,
        machine: RunMachine,
        acquired_at: Timestamp,
        pinned: PinnedStep,
    ) -> Self {
        let mut driver = Self {
            ports,
            settings,
            pinned,
            reloads: 0,
            history: MeasuredHistory::new(estimate_tokens),
            filled: Filled::default(),
            measurer: Measurer::default(),
            fit: Fit::default(),
            tools: Shared::default(),
            left_out: RefusedTools::default(),
            refused_images: BTreeSet::new(),
            without_form: false,
            form_was_taken: false,
            last_seq: 0,
            open_reply: None,
            found_open: None,
            looked_for_results_of: 0,
            open_calls: None,
            in_flight,
            request: None,
            session: Session::default(),
            counted_from: acquired_at,
            passed_before: Passed::default(),
            marked_effects_of: 0,
            last_call: None,
            marked_files: FileStamps::default(),
            files: NextFiles::of_start(records.run.turn_index, acquired_at),
            correction_note: None,
            unread: UnreadWords::default(),
            reply_limit: None,
            correction: None,
            told_over_limit: None,
            cut_for: None,
            is_shortened: false,
            told_shortened: None,
            undeclared: Vec::new(),
            in_doubt: Vec::new(),
            told_of: Vec::new(),
            ending: Ending::default(),
            corrected_at: None,
            replay: ForcedReplay::default(),
            spans: Spans::default(),
            run: records.run.clone(),
            machine,
        };
        driver.take_over(records);
        driver
    }

    /// Makes what is stored this process's own state.
    fn take_over(&mut self, records: RunRecords) {
        self.replay = self.owed_by(&records);
        // What of it the model is to be told is looked at before it is asked.
        (self.correction_note, self.corrected_at) = (None, None);
        self.unread = UnreadWords::of(&records);
        self.ports.dispatcher.ledger().context_begins(context_begins(&records));
        let committed = records.run.turn_index;
        // Other tools and policies are accepted for a run or come with a fork; what was planned before, the open turn with it, is not known by them.
        let accepted =
            !self.settings.pins.accept.is_empty() || records.overrides.iter().any(|row| row.kind == OverrideKind::Pin);
        let declared_from = if accepted { committed + 2 } else { u32::from(records.run.forked_at.is_some()) };
        self.ports.dispatcher.ledger().declared_from(declared_from);
        self.session = Session::of(&records);
        if self.ports.llm.conversation() == Conversation::InTheRequest {
            self.fit.learn_from(&records);
            self.renew_tools();
            if let Some(seen) = self.fit.look_back(&records, &self.tools) {
                (self.ports.watcher)(RunEvent::ReadsOnly { turn: seen.turn, tokens: seen.tokens, is_cut: true });
            }
        }
        self.last_seq = records.messages.iter().map(|m| m.seq).max().unwrap_or(0);
        let most = self.run.spec.settings.history_max_tokens;
        let (history, open) = history_of(records.messages, records.left_out, committed, most);
        self.history = history;
        self.open_reply = open.into_iter().find(|message| message.role == Role::Assistant);
        self.found_open = self.open_reply.is_some().then_some(committed + 1);
        self.looked_for_results_of = 0;
        self.request = None;
        self.open_calls = None;
        self.last_call = records.calls.last().map(|call| call.call_id.clone());
        self.run = records.run;
    }

    /// Takes these messages for the history that requests are composed of.
    fn remember(&mut self, messages: Vec<Message>) {
        self.history = MeasuredHistory::new(estimate_tokens);
        self.history.extend(messages);
    }

    /// Lets go of what no request can carry any more.
    fn forget_messages(&mut self) {
        self.history.let_go(self.run.spec.settings.history_max_tokens);
    }

    async fn run(&mut self) -> Result<Conclusion, RunError> {
        loop {
            let command = self.machine.command();
            if let Some(start) = Start::of(&command, self.machine.committed())
                && !self.check_in(start).await?
            {
                continue;
            }
            let span = self.spans.of(&command, self.machine.committed(), &self.pinned, &self.run.run_id);
            let event = match command {
                Command::Reserve { turn } => self.reserve(turn).instrument(span).await?,
                Command::Think { turn } => self.think(turn).instrument(span).await?,
                Command::Wait { attempt, why, wait, left, may_be_billed } => {
                    self.wait(attempt, why, wait, (left, may_be_billed)).instrument(span).await?
                }
                Command::Record { turn, reply } => self.record(turn, *reply).instrument(span).await?,
                Command::Dispatch { calls, has_effect } => {
                    Box::pin(self.dispatch(&calls, has_effect)).instrument(span).await?
                }
                Command::CancelAfterFailure { calls, failed } => {
                    self.cancel_after_failure(&calls, &failed).instrument(span).await?
                }
                Command::Commit { turn } => self.commit(turn).instrument(span).await?,
                Command::FinishReplay { note } => self.finish_replay(note).instrument(span).await?,
                Command::CheckEvidence { last_word } => {
                    Event::Evidence(self.check_evidence(&last_word).instrument(span).await?)
                }
                Command::EnterPhase { next } => self.enter_phase(&next).instrument(span).await?,
                Command::EnterIteration { number, why } => self.enter_iteration(number, &why).instrument(span).await?,
                Command::Guide { text } => self.guide(&text).instrument(span).await?,
                Command::Ask { kind, text } => Event::Asked(Box::new(self.ask(kind, &text).instrument(span).await?)),
                Command::Stop(conclusion) => return Ok(conclusion),
            };
            self.machine.apply(event)?;
        }
    }

    async fn ask(&self, kind: QuestionKind, text: &str) -> Result<ua_store::QuestionRecord, RunError> {
        let (store, lease, env) = (self.ports.store.as_ref(), &self.ports.lease, &self.ports.env);
        // A word is about what was shown with it. Not each question about what is missing tells of the calls behind that.
        let is_named = |call: &CallId| text.contains(call.as_str());
        let undeclared: Vec<_> = self.undeclared.iter().filter(|call| is_named(&call.call_id)).collect();
        let in_doubt: Vec<_> = self.in_doubt.iter().filter(|call| is_named(call)).collect();
        let told_of: Vec<_> = self.told_of.iter().filter(|call| is_named(call)).collect();
        if kind == QuestionKind::MissingEvidence && !(undeclared.is_empty() && told_of.is_empty()) {
            // Who knows that a call was what is missing has to be able to say so: the model would make it again.
            let happened = (!(undeclared.is_empty() && in_doubt.is_empty())).then_some(Choice::Happened);
            let choices = happened.into_iter().chain([Choice::Continue, Choice::Abort]).collect();
            let detail = serde_json::json!({ UNDECLARED: undeclared, IN_DOUBT: in_doubt, TOLD_OF: told_of });
            return raise_run_question_with(store, lease, env, (kind, detail, choices), text).await;
        }
        if kind == QuestionKind::AuthFailure && self.correction == Some(Correction::Account) {
            let (detail, choices) = (serde_json::json!({ UNPAID: true }), vec![Choice::Continue, Choice::Abort]);
            return raise_run_question_with(store, lease, env, (kind, detail, choices), text).await;
        }
        raise_run_question(store, lease, env, kind, text).await
    }

    /// What is left of the run's time, this process's included; `None` where that has no limit.
    fn time_left(&self) -> Option<Duration> {
        let most = self.machine.limits().max_held_millis?;
        Some(Duration::from_millis(most.saturating_sub(self.run.held_millis + self.held_for())))
    }

    /// The same for whoever waits on behalf of the run.
    fn run_time(&self) -> Option<RunTime> {
        let max_minutes = self.machine.limits().max_held_millis? / 60_000;
        Some(RunTime { ends_at: self.ports.env.now().plus(self.time_left()?), max_minutes })
    }

    async fn ask_about_orphan(&self, detail: &str) -> Result<ua_store::QuestionRecord, RunError> {
        ask_about_orphan(self.ports.store.as_ref(), &self.ports.lease, &self.ports.env, detail).await
    }

    /// Milliseconds since time was last counted in which this process ran.
    fn held_for(&self) -> u64 {
        let passed = self.ports.still.so_far();
        let held = passed.at_work(self.counted_from, self.passed_before, self.ports.env.now());
        u64::try_from(held.as_millis()).unwrap_or(u64::MAX)
    }

    /// Looks, before anything new starts, whether a signal or a person asked to end, the time is up, or the stored turns are not those
    /// that it goes on from. False if so. What is in flight is never cut for it.
    async fn check_in(&mut self, start: Start) -> Result<bool, RunError> {
        if self.ports.stop.is_stopping() {
            self.machine.apply(Event::Interrupted)?;
            return Ok(false);
        }
        // The turn is not written yet: whether its calls may start, the write looks that records it.
        let is_recording = matches!(start, Start::Calls(_)) && self.ports.store.holds();
        let run = if is_recording {
            None
        } else {
            Some(self.ports.store.run(&self.run.run_id).await.map_err(RunError::at("read the run"))?)
        };
        if let Some(mark) = run.as_ref().and_then(RunRecord::end_mark) {
            self.machine.apply(Event::of_mark(mark))?;
            return Ok(false);
        }
        let held_millis = self.run.held_millis + self.held_for();
        if self.machine.limits().max_held_millis.is_some_and(|max| held_millis >= max) {
            self.machine.apply(Event::OutOfTime { held_millis })?;
            return Ok(false);
        }
        let Some(run) = run else { return Ok(true) };
        if let Start::Request(_) = start
            && run.corrected_at != self.corrected_at
        {
            self.correction_note = self.note_of_corrections().await?;
            self.corrected_at = run.corrected_at;
        }
        self.admit(start, StoredTurns::of(&run)).await
    }

    /// Whether a person said that the run is to end.
    async fn end_mark(&self) -> Result<Option<EndMark>, RunError> {
        let run = self.ports.store.run(&self.run.run_id).await.map_err(RunError::at("read the run"))?;
        Ok(run.end_mark())
    }
}
