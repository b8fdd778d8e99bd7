//! The loop that carries out what the machine decides.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ua_checkpoint::{ArtifactRef, BudgetsUsed, Checkpoint, Cursor, Snapshot};
use ua_core::{
    Block, CallId, CallStatus, CheckpointId, EffectKind, Env, Message, ModelTurn, Origin, QuestionId, Resolution, Role,
    RunStatus, RunStop, StepId, StepStatus, StopCondition, Timestamp,
};
use ua_gateway::{Dispatched, GatewayError, StopSignal, ToolGateway, answer_for};
use ua_ledger::LedgerError;
use ua_llm::{LlmProvider, ModelRequest, StreamObserver, ToolOffer, check_history};
use ua_resume::{Decision, EvidenceReport, ResumePacket};
use ua_store::{
    CallCancel, CallRecord, CheckpointKind, Choice, NewCheckpoint, NewQuestion, NewStep, QuestionKind, ReplayStatus,
    RequestEnd, RequestId, RequestReservation, RunEnd, RunLease, RunRecord, RunRecords, StepEnd, Store, TurnCommit,
    TurnDraft,
};

use crate::error::RunError;
use crate::files::{write_conclusion, write_packet};
use crate::machine::{Command, Conclusion, Event, Guidance, Limits, OpenCall, RunMachine, ThinkFailure};
use crate::recover::{InFlight, Recovered, recover};
use crate::watch::{Signal, Watcher};
use crate::workspace::Workspace;

/// Everything the loop reaches the world through.
pub struct Ports {
    /// The runtime database.
    pub store: Arc<dyn Store>,
    /// The model.
    pub llm: Arc<dyn LlmProvider>,
    /// The road to the tools.
    pub gateway: ToolGateway,
    /// Proof of ownership.
    pub lease: RunLease,
    /// The run's folder.
    pub workspace: Workspace,
    /// Clock and entropy.
    pub env: Env,
    /// Who watches.
    pub watcher: Watcher,
    /// How to ask the loop to end.
    pub stop: StopSignal,
}

/// How the model is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSettings {
    /// The provider's name of the model.
    pub model: String,
    /// The system prompt.
    pub system: String,
    /// The most output tokens of one reply.
    pub max_output_tokens: u32,
    /// Sampling temperature, in thousandths.
    pub temperature_milli: Option<u32>,
}

impl Limits {
    /// The limits of a run's contract.
    pub fn of(spec: &ua_core::RunSpec) -> Self {
        let budgets = &spec.budgets;
        Self {
            max_tool_calls: Some(budgets.max_tool_calls),
            max_turns: budgets.max_turns,
            max_tokens: budgets.max_tokens,
            max_held_millis: Some(budgets.max_wallclock_minutes.saturating_mul(60_000)),
            max_same_error_repeats: Some(budgets.max_same_error_repeats),
            ask_on_repeated_failures: spec.escalation.ask_human_on_repeated_failures,
        }
    }
}

/// The most effects of each kind that a run's stop conditions allow.
pub fn effect_limits(spec: &ua_core::RunSpec) -> BTreeMap<String, u32> {
    let limits = spec.stop_conditions.iter().map(StopCondition::expanded).filter_map(|condition| match condition {
        StopCondition::Effect { effect, max: Some(max), .. } => {
            EffectKind::parse(&effect).map(|kind| (kind.as_str().to_owned(), max))
        }
        StopCondition::Effect { max: None, .. } | StopCondition::Named(_) | StopCondition::Artifact { .. } => None,
    });
    limits.collect()
}

/// Drives the run that `ports.lease` owns, from wherever it stands to a conclusion of this process. `acquired_at` is when the
/// lease was taken; from then on the time counts as held.
pub async fn drive(
    ports: &Ports,
    settings: &RunSettings,
    acquired_at: Timestamp,
) -> Result<(Conclusion, RunRecord), RunError> {
    let Recovered { records, in_flight, start, waiting_for, aborted } = recover(ports).await?;
    if start.is_resume {
        (ports.watcher)(Signal::Resuming { turn_index: start.committed, in_flight: in_flight.len() });
    }
    let machine = RunMachine::new(Limits::of(&records.run.spec), start);
    let mut driver = Driver::new(ports, settings, records, in_flight, machine, acquired_at).await?;
    let conclusion = match (waiting_for, aborted) {
        (Some(question), _) => Conclusion::Waiting { question: Box::new(question) },
        (None, true) => Conclusion::Failed { why: "a person answered `abort`".to_owned() },
        (None, false) => driver.run().await?,
    };
    let run = driver.conclude(&conclusion).await?;
    Ok((conclusion, run))
}

/// Parks a run whose earlier tool servers are still alive and could not be ended: nothing can be decided about their calls,
/// so a person is asked. Called instead of [`drive`], when [`ToolTransport::fence_earlier`](ua_gateway::ToolTransport::fence_earlier)
/// says so.
pub async fn park_for_orphan(
    store: &dyn Store,
    lease: &RunLease,
    env: &Env,
    detail: &str,
) -> Result<(Conclusion, RunRecord), RunError> {
    let text = format!(
        "A tool server that an earlier process started is still alive and could not be ended: {detail}. End it, then resume the run."
    );
    let question = raise_run_question(store, lease, env, QuestionKind::OrphanAlive, &text).await?;
    let end = run_end(RunStatus::WaitingForHuman, Some(text), 0, env.now());
    let run = store.end_run(lease, end).await.map_err(RunError::at("park the run"))?;
    Ok((Conclusion::Waiting { question: Box::new(question) }, run))
}

/// Parks a run whose tool servers could not be started: nothing was sent, and a resume may find them.
pub async fn park_for_tool_server(
    store: &dyn Store,
    lease: &RunLease,
    env: &Env,
    detail: &str,
) -> Result<(Conclusion, RunRecord), RunError> {
    let end = RunEnd {
        stop_reason: Some(RunStop::ToolServer),
        ..run_end(RunStatus::Stopped, Some(detail.to_owned()), 0, env.now())
    };
    let run = store.end_run(lease, end).await.map_err(RunError::at("park the run"))?;
    Ok((Conclusion::Stopped { reason: RunStop::ToolServer, detail: detail.to_owned() }, run))
}

async fn raise_run_question(
    store: &dyn Store,
    lease: &RunLease,
    env: &Env,
    kind: QuestionKind,
    text: &str,
) -> Result<ua_store::QuestionRecord, RunError> {
    let question = NewQuestion {
        question_id: QuestionId::new(env),
        call_id: None,
        kind,
        text: text.to_owned(),
        detail: serde_json::Value::Null,
        choices: vec![Choice::Continue, Choice::Abort],
        at: env.now(),
    };
    store.raise_question(lease, question).await.map_err(RunError::at("ask a person"))
}

fn held_for(ports: &Ports, since: Timestamp) -> u64 {
    u64::try_from(ports.env.now().since(since).as_millis()).unwrap_or(u64::MAX)
}

fn run_end(status: RunStatus, detail: Option<String>, held_millis: u64, at: Timestamp) -> RunEnd {
    RunEnd {
        status,
        stop_reason: None,
        detail,
        final_output: None,
        final_artifact_ref: None,
        step_end: None,
        held_millis,
        at,
    }
}

/// One process's work on a run.
struct Driver<'a> {
    ports: &'a Ports,
    settings: &'a RunSettings,
    machine: RunMachine,
    run: RunRecord,
    step_id: StepId,
    step_index: u32,
    /// The history as a provider may see it: committed turns only.
    history: Vec<Message>,
    last_seq: u64,
    /// The reply of the open turn.
    open_reply: Option<Message>,
    in_flight: Vec<InFlight>,
    request: Option<(ModelRequest, RequestId)>,
    tokens: u64,
    counted_from: Timestamp,
    marked_effects_of: u32,
    last_call: Option<CallId>,
}

impl<'a> Driver<'a> {
    async fn new(
        ports: &'a Ports,
        settings: &'a RunSettings,
        records: RunRecords,
        in_flight: Vec<InFlight>,
        machine: RunMachine,
        acquired_at: Timestamp,
    ) -> Result<Self, RunError> {
        let current = records.steps.iter().find(|step| Some(&step.step_id) == records.run.current_step_id.as_ref());
        let (step_id, step_index) = if let Some(step) = current {
            (step.step_id.clone(), step.step_index)
        } else {
            let step = NewStep {
                step_id: StepId::new(&ports.env),
                phase: "main".to_owned(),
                created_at: ports.env.now(),
                fingerprint: None,
            };
            let opened = ports.store.open_step(&ports.lease, step).await.map_err(RunError::at("open the step"))?;
            (opened.step_id, opened.step_index)
        };
        let committed = records.run.turn_index;
        let last_seq = records.messages.iter().map(|m| m.seq).max().unwrap_or(0);
        let (history, open): (Vec<_>, Vec<_>) = records.messages.into_iter().partition(|m| m.turn <= committed);
        Ok(Self {
            ports,
            settings,
            step_id,
            step_index,
            history: history.into_iter().map(|m| m.message).collect(),
            last_seq,
            open_reply: open.into_iter().map(|m| m.message).find(|m| m.role == Role::Assistant),
            in_flight,
            request: None,
            tokens: records.requests.iter().map(|r| r.usage.total()).sum(),
            counted_from: acquired_at,
            marked_effects_of: 0,
            last_call: records.calls.last().map(|call| call.call_id.clone()),
            run: records.run,
            machine,
        })
    }

    async fn run(&mut self) -> Result<Conclusion, RunError> {
        loop {
            let command = self.machine.command();
            let starts_something =
                matches!(command, Command::Reserve { .. } | Command::Think { .. } | Command::Dispatch { .. });
            if starts_something && self.check_in().await? {
                continue;
            }
            let event = match command {
                Command::Reserve { turn } => self.reserve(turn).await?,
                Command::Think { turn } => self.think(turn).await?,
                Command::Record { turn, reply } => self.record(turn, *reply).await?,
                Command::Dispatch { calls, has_effect } => self.dispatch(&calls, has_effect).await?,
                Command::CancelAfterFailure { calls, failed } => self.cancel_after_failure(&calls, &failed).await?,
                Command::Commit { turn } => self.commit(turn).await?,
                Command::FinishReplay { note } => self.finish_replay(note).await?,
                Command::CheckEvidence => Event::Evidence(self.check_evidence().await?),
                Command::Guide { text } => self.guide(&text).await?,
                Command::Ask { kind, text } => Event::Asked(Box::new(self.ask(kind, &text).await?)),
                Command::Stop(conclusion) => return Ok(conclusion),
            };
            self.machine.apply(event)?;
        }
    }

    async fn ask(&self, kind: QuestionKind, text: &str) -> Result<ua_store::QuestionRecord, RunError> {
        raise_run_question(self.ports.store.as_ref(), &self.ports.lease, &self.ports.env, kind, text).await
    }

    /// Looks whether a signal or a person asked to end before anything new starts. True if one did.
    async fn check_in(&mut self) -> Result<bool, RunError> {
        if self.ports.stop.is_stopping() {
            self.machine.apply(Event::Interrupted)?;
            return Ok(true);
        }
        let run = self.ports.store.run(&self.run.run_id).await.map_err(RunError::at("read the run"))?;
        if run.cancel_requested_at.is_some() {
            self.machine.apply(Event::CancelAsked)?;
            return Ok(true);
        }
        Ok(false)
    }

    async fn reserve(&mut self, turn: u32) -> Result<Event, RunError> {
        check_history(&self.history).map_err(|why| RunError::History { why })?;
        let tools = self.ports.gateway.catalog().offers().map(|offer| ToolOffer {
            name: offer.name.clone(),
            description: offer.description.clone(),
            input_schema: offer.input_schema.clone(),
        });
        let request = ModelRequest {
            model: self.settings.model.clone(),
            system: self.settings.system.clone(),
            messages: self.history.clone(),
            tools: tools.collect(),
            max_output_tokens: self.settings.max_output_tokens,
            temperature_milli: self.settings.temperature_milli,
        };
        let reservation = RequestReservation {
            turn,
            request_sha256: request.sha256(),
            model: request.model.clone(),
            // Four bytes a token: the local estimate that is charged when the provider never says what a request cost.
            estimated_tokens: serde_json::to_string(&request).map_or(0, |text| text.len() as u64 / 4),
            at: self.ports.env.now(),
        };
        let id = self
            .ports
            .store
            .reserve_request(&self.ports.lease, reservation)
            .await
            .map_err(RunError::at("reserve a request to the model"))?;
        self.request = Some((request, id));
        Ok(Event::Reserved)
    }

    async fn think(&mut self, turn: u32) -> Result<Event, RunError> {
        let Some((request, id)) = &self.request else {
            return Ok(Event::Thought(Err(ThinkFailure { message: "no request was reserved".to_owned() })));
        };
        (self.ports.watcher)(Signal::Thinking { turn });
        let observer = Observer { watcher: self.ports.watcher.clone() };
        let answer = tokio::select! {
            biased;
            answer = self.ports.llm.complete(request, &observer) => answer,
            () = self.ports.stop.stopping() => {
                self.close_request(*id, RequestEnd::Baseline).await?;
                return Ok(Event::Interrupted);
            }
        };
        match answer {
            Ok(reply) => Ok(Event::Thought(Ok(Box::new(reply)))),
            Err(error) => {
                let end = if error.left_us() { RequestEnd::Baseline } else { RequestEnd::Zero };
                self.close_request(*id, end).await?;
                let hint = error.hint().map_or_else(String::new, |hint| format!(" ({hint})"));
                Ok(Event::Thought(Err(ThinkFailure { message: format!("{}{hint}", with_causes(&error)) })))
            }
        }
    }

    async fn close_request(&self, id: RequestId, end: RequestEnd) -> Result<(), RunError> {
        self.ports
            .store
            .close_request(&self.ports.lease, id, end, self.ports.env.now())
            .await
            .map_err(RunError::at("charge a request to the model"))
    }

    async fn record(&mut self, turn: u32, reply: ModelTurn) -> Result<Event, RunError> {
        let Some((request, request_id)) = self.request.take() else {
            return Ok(Event::Recorded(Vec::new()));
        };
        let calls = self.ports.gateway.plan(&reply, turn);
        let message = reply.clone().into_message();
        self.tokens += reply.usage.unwrap_or_default().total();
        let draft = TurnDraft {
            turn,
            step_id: self.step_id.clone(),
            request_id,
            request_sha256: request.sha256(),
            reply,
            calls,
            at: self.ports.env.now(),
        };
        self.ports
            .store
            .record_turn(&self.ports.lease, draft)
            .await
            .map_err(RunError::at("record the model's reply"))?;
        self.open_reply = Some(message);
        self.last_seq += 1;
        let calls = self.turn_calls(turn).await?;
        self.last_call = calls.last().map(|call| call.call_id.clone()).or(self.last_call.take());
        (self.ports.watcher)(Signal::Recorded {
            turn,
            calls: calls.len(),
            tool_calls: self.machine.tool_calls() + u32::try_from(calls.len()).unwrap_or(u32::MAX),
            max_tool_calls: Some(self.run.spec.budgets.max_tool_calls),
        });
        Ok(Event::Recorded(calls.iter().map(OpenCall::of).collect()))
    }

    async fn turn_calls(&self, turn: u32) -> Result<Vec<CallRecord>, RunError> {
        self.ports.store.calls(&self.run.run_id, Some(turn)).await.map_err(RunError::at("read the turn's calls"))
    }

    async fn dispatch(&mut self, calls: &[CallId], has_effect: bool) -> Result<Event, RunError> {
        let turn = self.machine.committed() + 1;
        if has_effect && self.marked_effects_of != turn {
            self.marked_effects_of = turn;
            self.checkpoint(CheckpointKind::PreSideEffect, Some(turn), Vec::new()).await?;
        }
        let ended = match self.ports.gateway.dispatch_group(calls, &self.ports.stop).await {
            Ok(ended) => ended,
            Err(GatewayError::Ledger(LedgerError::Aborted { .. })) => return Ok(Event::Aborted),
            Err(GatewayError::Transport(source)) => return Ok(Event::ToolServerDown { detail: with_causes(&source) }),
            Err(GatewayError::OrphanAlive { server, detail }) => {
                let text = format!(
                    "An earlier process of the tool server `{server}` is still alive and could not be ended: {detail}. End it, then resume."
                );
                let question = self.ask(QuestionKind::OrphanAlive, &text).await?;
                return Ok(Event::Dispatched(vec![Dispatched::Held(Box::new(question)); calls.len()]));
            }
            Err(source) => return Err(RunError::Gateway { turn, source }),
        };
        self.note_first_runs(&ended).await?;
        Ok(Event::Dispatched(ended))
    }

    /// Notes calls that a crash had left unsent and that this resume ran for the first time.
    async fn note_first_runs(&self, ended: &[Dispatched]) -> Result<(), RunError> {
        for dispatched in ended {
            let Dispatched::Settled(call) = dispatched else { continue };
            let was_prepared = self
                .in_flight
                .iter()
                .any(|flight| flight.call_id == call.call_id && flight.was == CallStatus::Prepared);
            if was_prepared && call.attempt > 0 && call.replay_status.is_none() {
                self.ports
                    .store
                    .note_replay(&self.ports.lease, &call.call_id, ReplayStatus::Executed, self.ports.env.now())
                    .await
                    .map_err(RunError::at("note what the resume did"))?;
            }
        }
        Ok(())
    }

    async fn cancel_after_failure(&self, calls: &[CallId], failed: &CallId) -> Result<Event, RunError> {
        let failed = self.ports.store.call(failed).await.map_err(RunError::at("read a call"))?;
        let message = format!(
            "Not run: the earlier call `{}` of this turn did not succeed. Decide again with its result in view.",
            failed.name.tool
        );
        let cancels = calls.iter().map(|call| CallCancel {
            call_id: call.clone(),
            resolution: Resolution::AfterFailure,
            code: "after_failure".to_owned(),
            message: message.clone(),
        });
        self.ports
            .store
            .cancel_calls(&self.ports.lease, cancels.collect(), self.ports.env.now())
            .await
            .map_err(RunError::at("cancel calls after a failure"))?;
        Ok(Event::Cancelled)
    }

    /// Appends the results and commits the turn. The results are a pure function of the ledger, so a turn that is finished
    /// after a crash reads as it would have without one.
    async fn commit(&mut self, turn: u32) -> Result<Event, RunError> {
        let mut blocks = Vec::new();
        for call in self.turn_calls(turn).await? {
            let source = call.deduplicated_from.as_ref().unwrap_or(&call.call_id);
            let receipt = self.ports.store.receipt(source).await.map_err(RunError::at("read a receipt"))?;
            if let Some(content) = answer_for(&call, receipt.as_ref()) {
                blocks.push(Block::ToolResult {
                    tool_use_id: call.tool_use_id,
                    content: content.text,
                    is_error: content.is_error,
                });
            }
        }
        let results = Message { role: Role::User, origin: Origin::Tools, blocks };
        let messages: Vec<Message> = if results.blocks.is_empty() { Vec::new() } else { vec![results] };
        let now = self.ports.env.now();
        let commit = TurnCommit {
            turn,
            checkpoint: self.marker(CheckpointKind::StepBoundary, turn, None, Vec::new()),
            messages: messages.clone(),
            held_millis: held_for(self.ports, self.counted_from),
            at: now,
        };
        self.run =
            self.ports.store.commit_turn(&self.ports.lease, commit).await.map_err(RunError::at("commit the turn"))?;
        self.counted_from = now;
        self.history.extend(self.open_reply.take());
        self.last_seq += messages.len() as u64;
        self.history.extend(messages);
        (self.ports.watcher)(Signal::Committed { turn });
        Ok(Event::Committed { held_millis: self.run.held_millis })
    }

    fn marker(
        &self,
        kind: CheckpointKind,
        turn_index: u32,
        open_turn: Option<u32>,
        artifacts: Vec<ArtifactRef>,
    ) -> NewCheckpoint {
        let snapshot = Snapshot {
            status: RunStatus::Running,
            phase: "main".to_owned(),
            step_index: self.step_index,
            turn_index,
            tool_calls: BTreeMap::new(),
            artifacts,
            remaining_phases: Vec::new(),
            budgets_used: BudgetsUsed {
                tool_calls: self.machine.tool_calls(),
                turns: turn_index,
                tokens: self.tokens,
                held_millis: self.run.held_millis + held_for(self.ports, self.counted_from),
            },
        };
        let cursor = Cursor {
            turn_index,
            open_turn,
            last_tool_call_id: self.last_call.clone(),
            last_message_seq: self.last_seq,
        };
        let id = CheckpointId::new(&self.ports.env);
        Checkpoint::marker(kind, id, self.step_id.clone(), self.ports.env.now(), &snapshot, &cursor)
    }

    async fn checkpoint(
        &self,
        kind: CheckpointKind,
        open_turn: Option<u32>,
        artifacts: Vec<ArtifactRef>,
    ) -> Result<(), RunError> {
        let marker = self.marker(kind, self.machine.committed(), open_turn, artifacts);
        self.ports.store.save_checkpoint(&self.ports.lease, marker).await.map_err(RunError::at("write a checkpoint"))
    }

    fn artifact_refs(&self) -> Result<Vec<ArtifactRef>, RunError> {
        Ok(self
            .ports
            .workspace
            .artifacts()?
            .into_iter()
            .map(|a| ArtifactRef { path: a.path, sha256: a.sha256 })
            .collect())
    }

    /// Writes the resume packet, marks the end of the replay, and tells the model what happened in between.
    async fn finish_replay(&mut self, note: bool) -> Result<Event, RunError> {
        self.checkpoint(CheckpointKind::PostReplay, None, self.artifact_refs()?).await?;
        let packet = self.write_packet().await?;
        if note {
            let message = Message::user(Origin::Resume, packet.replay_note());
            self.ports
                .store
                .append_messages(&self.ports.lease, vec![message.clone()], self.ports.env.now())
                .await
                .map_err(RunError::at("append the resume note"))?;
            self.last_seq += 1;
            self.history.push(message);
        }
        Ok(Event::ReplayFinished)
    }

    async fn write_packet(&self) -> Result<ResumePacket, RunError> {
        let records = self.ports.store.load(&self.run.run_id).await.map_err(RunError::at("load the run"))?;
        let decisions: Vec<Decision> = self.in_flight.iter().filter_map(|flight| decision(&records, flight)).collect();
        let packet = ResumePacket::new(&records, &decisions, &self.ports.workspace.artifacts()?);
        write_packet(&self.ports.workspace, &self.run.run_id, &packet)?;
        Ok(packet)
    }

    /// Checks stop conditions over receipts and files. The transcript is written first: it may be one of them.
    async fn check_evidence(&self) -> Result<Result<(), String>, RunError> {
        let records = self.ports.store.load(&self.run.run_id).await.map_err(RunError::at("load the run"))?;
        self.ports.workspace.replace("transcript.md", ua_resume::transcript(&records))?;
        let report = self.evidence(&records)?;
        Ok(if report.all_met { Ok(()) } else { Err(report.missing_for_model()) })
    }

    fn evidence(&self, records: &RunRecords) -> Result<EvidenceReport, RunError> {
        let artifacts = self.ports.workspace.artifacts()?;
        let media = |path: &str| self.ports.workspace.media_type(path);
        Ok(ua_resume::evaluate(&records.run.spec, &records.calls, &records.receipts, &artifacts, &media))
    }

    async fn guide(&mut self, text: &Guidance) -> Result<Event, RunError> {
        let text = match text {
            Guidance::Continue => "Your reply was cut at its length limit. Continue, in smaller pieces.".to_owned(),
            Guidance::Missing(missing) => missing.clone(),
        };
        (self.ports.watcher)(Signal::Guided { text: text.clone() });
        let message = Message::user(Origin::Guidance, text);
        self.ports
            .store
            .append_messages(&self.ports.lease, vec![message.clone()], self.ports.env.now())
            .await
            .map_err(RunError::at("append guidance"))?;
        self.last_seq += 1;
        self.history.push(message);
        Ok(Event::Guided)
    }

    /// Ends this process's work: one write for the run and its step, then the files a person reads.
    async fn conclude(&mut self, conclusion: &Conclusion) -> Result<RunRecord, RunError> {
        let now = self.ports.env.now();
        if matches!(conclusion, Conclusion::Stopped { reason: RunStop::Interrupt, .. }) {
            self.checkpoint(CheckpointKind::Interrupt, None, self.artifact_refs()?).await?;
        }
        if matches!(conclusion, Conclusion::Cancelled) {
            self.cancel_prepared().await?;
        }
        let mut end = run_end(RunStatus::Failed, None, held_for(self.ports, self.counted_from), now);
        let step = |status, detail: Option<String>| StepEnd {
            step_id: self.step_id.clone(),
            status,
            error_code: None,
            error_detail: detail,
            at: now,
        };
        match conclusion {
            Conclusion::Succeeded { final_output } => {
                end.status = RunStatus::Succeeded;
                end.final_output = Some(final_output.clone());
                end.final_artifact_ref = self.main_artifact()?;
                end.step_end = Some(step(StepStatus::Succeeded, None));
            }
            Conclusion::Failed { why } => {
                end.detail = Some(why.clone());
                end.step_end = Some(step(StepStatus::Failed, Some(why.clone())));
            }
            Conclusion::Cancelled => {
                end.status = RunStatus::Cancelled;
                end.detail.clone_from(&self.run.cancel_reason);
                end.step_end = Some(step(StepStatus::Skipped, Some("the run was cancelled".to_owned())));
            }
            Conclusion::Waiting { question } => {
                end.status = RunStatus::WaitingForHuman;
                end.detail = Some(question.text.clone());
            }
            Conclusion::Stopped { reason, detail } => {
                end.status = RunStatus::Stopped;
                end.stop_reason = Some(*reason);
                end.detail = Some(detail.clone());
            }
        }
        let run = self.ports.store.end_run(&self.ports.lease, end).await.map_err(RunError::at("end the run"))?;
        let records = self.ports.store.load(&run.run_id).await.map_err(RunError::at("load the run"))?;
        if !run.status.is_terminal() {
            let decisions: Vec<Decision> =
                self.in_flight.iter().filter_map(|flight| decision(&records, flight)).collect();
            write_packet(
                &self.ports.workspace,
                &run.run_id,
                &ResumePacket::new(&records, &decisions, &self.ports.workspace.artifacts()?),
            )?;
        }
        write_conclusion(&self.ports.workspace, &records)?;
        Ok(run)
    }

    async fn cancel_prepared(&self) -> Result<(), RunError> {
        let calls =
            self.ports.store.calls(&self.run.run_id, None).await.map_err(RunError::at("read the run's calls"))?;
        let cancels: Vec<CallCancel> = calls
            .into_iter()
            .filter(|call| call.status == CallStatus::Prepared)
            .map(|call| CallCancel {
                call_id: call.call_id,
                resolution: Resolution::RunCancelled,
                code: "run_cancelled".to_owned(),
                message: "Not run: the run was cancelled.".to_owned(),
            })
            .collect();
        if cancels.is_empty() {
            return Ok(());
        }
        self.ports
            .store
            .cancel_calls(&self.ports.lease, cancels, self.ports.env.now())
            .await
            .map_err(RunError::at("cancel what was not sent"))
    }

    /// The artifact a person looks for first: an expected PDF, else an expected page, else the first expected output.
    fn main_artifact(&self) -> Result<Option<String>, RunError> {
        let artifacts = self.ports.workspace.artifacts()?;
        let expected = &self.run.spec.artifacts.expected_outputs;
        let is_expected = |path: &str| expected.iter().any(|name| path == name || path.ends_with(&format!("/{name}")));
        let rank = |path: &str| match path.rsplit('.').next() {
            Some("pdf") => 0,
            Some("html") => 1,
            Some(_) | None => 2,
        };
        let mut named: Vec<String> =
            artifacts.into_iter().map(|a| a.path).filter(|path| is_expected(path) && path != "transcript.md").collect();
        named.sort_by_key(|path| rank(path));
        Ok(named.into_iter().next())
    }
}

/// What was decided about a call that was in flight, read from its row.
fn decision(records: &RunRecords, flight: &InFlight) -> Option<Decision> {
    let call = records.call(&flight.call_id)?;
    let fallback = match (flight.was, call.status) {
        (_, CallStatus::Cancelled) => ReplayStatus::Cancelled,
        (CallStatus::Prepared, _) => ReplayStatus::Executed,
        (_, CallStatus::Unknown) => ReplayStatus::Held,
        (
            _,
            CallStatus::Prepared
            | CallStatus::Running
            | CallStatus::Succeeded
            | CallStatus::FailedDefinite
            | CallStatus::FailedReported,
        ) => ReplayStatus::Reconciled,
    };
    let still_prepared = call.status == CallStatus::Prepared;
    (!still_prepared).then(|| Decision {
        call_id: call.call_id.clone(),
        tool: call.name.raw.clone(),
        was: flight.was,
        action: call.replay_status.unwrap_or(fallback),
        why: format!(
            "policy `{}`: {}, when in doubt {}",
            call.policy.rule_id, call.policy.class, call.policy.on_unknown
        ),
    })
}

struct Observer {
    watcher: Watcher,
}

impl StreamObserver for Observer {
    fn text(&self, delta: &str) {
        (self.watcher)(Signal::Text { delta: delta.to_owned() });
    }

    fn retrying(&self, attempt: u32, why: &str, wait: Duration) {
        let wait_millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        (self.watcher)(Signal::Retrying { attempt, why: why.to_owned(), wait_millis });
    }
}

/// An error and its causes on one line.
pub(crate) fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
