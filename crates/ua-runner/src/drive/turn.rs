//! One turn: compose, record, dispatch, commit. What lies between the first two is in `think`.

use ua_checkpoint::estimate_tokens;
use ua_core::{
    Audience, CallId, CallStatus, Message, ModelTurn, Origin, Resolution, Role, RunId, StopReason, ToolCharge, Usage,
};
use ua_dispatch::{CallProgress, DispatchError, Dispatched, Handed, StopSignal, is_task_under_way};
use ua_evidence::words_of_persons;
use ua_ledger::LedgerError;
use ua_llm::{Conversation, Measured, ModelRequest, ToolOffer, estimate_input_tokens};
use ua_store::{
    CallCancel, CallRecord, Change, CheckpointKind, Choice, LedgerStore, QuestionStatus, ReplayStatus, RequestEnd,
    RunStore, Store, StoreError, TurnCommit, TurnDraft, rules,
};

use super::Driver;
use super::results::results_of;
use crate::budget::{Charge, Estimate};
use crate::cancel::ABOVE_ENDED;
use crate::compose::compose;
use crate::error::RunError;
use crate::machine::{Event, Guidance, OpenCall, ReplyEnd};
use crate::recover::start_of;
use crate::spans;
use crate::standing::load_standing;
use crate::waiting::Away;
use crate::watch::RunEvent;

/// How a tool's charge is called where requests to models are `actual`, `baseline` or `refused`.
const TOOL_CHARGE: &str = "by_tool";

/// How many times longer replies may be once thoughts took all of one.
const LONGER: u32 = 4;

/// How often calls of one group are looked at again because a person answered meanwhile.
const MAX_ANSWERED_MEANWHILE: usize = 8;

impl Driver<'_> {
    pub(super) async fn reserve(&mut self, turn: u32) -> Result<Event, RunError> {
        if let Some(event) = self.tend_conversation().await? {
            return Ok(event);
        }
        let (mut request, mut measured) = self.composed().await?;
        // What is to be told is counted before it is told: it must not go with a context that ends here.
        let unsaid: u64 = self.untold().map(|message| estimate_tokens(&message)).sum();
        let tokens = self.fit.counted(measured.input_tokens.saturating_add(unsaid));
        let asked = self.run.spec.harness.as_ref().and_then(|harness| harness.context_budget_tokens);
        if let Some((number, asked)) = self.machine.begins_iteration().zip(asked) {
            let least = self.fit.counted(least_of(&request, measured, number));
            if let Some(why) = self.machine.context_impossible(least, asked) {
                return Ok(Event::Impossible { why });
            }
        }
        if let Some(why) = self.machine.context_full(tokens) {
            return Ok(Event::ContextFull(why));
        }
        if self.tell_what_persons_said().await? {
            (request, measured) = self.composed().await?;
        }
        self.ports.dispatcher.ledger().told_until(self.corrected_at);
        self.reserve_composed(turn, request, measured).await
    }

    /// The request that the history, the tools and the settings make now, with its size.
    pub(super) async fn composed(&mut self) -> Result<(ModelRequest, Measured), RunError> {
        let store = self.ports.store.as_ref();
        let (wanted, known) = (self.run.spec.settings.history_max_tokens, self.settings.history_tokens);
        let mut limits = self.fit.limits(wanted, known);
        // Who keeps the conversation itself has all of it already.
        limits.taken = limits.taken.filter(|_| self.ports.llm.conversation() == Conversation::InTheRequest);
        let composed =
            compose(&self.history, &self.run, self.settings, limits, &self.refused_images, &mut self.filled, store)
                .await?;
        self.is_shortened = composed.shortened;
        let turn = self.machine.committed() + 1;
        if composed.shortened && self.told_shortened.replace(turn) != Some(turn) {
            (self.ports.watcher)(RunEvent::NewestShortened { turn });
        }
        if let Some(max_tokens) = composed.over {
            let after_refusal = self.fit.is_cut(wanted, known);
            if self.told_over_limit.is_none_or(|told| after_refusal && !told) {
                self.told_over_limit = Some(after_refusal);
                (self.ports.watcher)(RunEvent::HistoryOverLimit { max_tokens, after_refusal });
            }
        }
        let messages = composed.messages;
        self.renew_tools();
        let request = ModelRequest {
            model: self.settings.model.clone(),
            system: self.settings.system.clone(),
            messages,
            tools: self.tools.clone(),
            max_output_tokens: self.reply_limit.unwrap_or(self.settings.max_output_tokens),
            temperature_milli: self.settings.temperature_milli,
            seed: self.settings.seed,
            output_schema: self.wanted_output().filter(|_| self.settings.structured && !self.without_form).cloned(),
            wants_form: self.wanted_output().is_some(),
        };
        let measured = self.measurer.measure(&request);
        Ok((request, measured))
    }

    /// Takes the tools that the next request offers, unless they are those of the last one. What a name stands for stays as it is for the
    /// process's whole work on the run.
    pub(super) fn renew_tools(&mut self) {
        let catalog = self.ports.dispatcher.catalog();
        let offers = || catalog.offers().filter(|offer| !self.left_out.has(&offer.name));
        let is_as_before = offers().map(|offer| &offer.name).eq(self.tools.iter().map(|tool| &tool.name));
        if is_as_before {
            return;
        }
        let tools = offers().map(|offer| ToolOffer {
            name: offer.name.clone(),
            description: offer.description.clone(),
            input_schema: offer.input_schema.clone(),
        });
        self.tools = tools.collect();
    }

    pub(super) async fn record(&mut self, turn: u32, reply: ModelTurn) -> Result<Event, RunError> {
        let Some(reserved) = self.request.take() else {
            return Ok(Event::Recorded(Vec::new()));
        };
        let mut calls = self.ports.dispatcher.plan(&reply, turn);
        self.enforce_replay(&mut calls).await?;
        let (message, stop_reason) = (reply.clone().into_message(), reply.stop_reason);
        let request_sha256 = reserved.measured.sha256;
        self.session.recorded(&reply, request_sha256);
        let end = RequestEnd::of_reply(&reply);
        let counted = reply.usage.filter(|usage| usage.total() > 0);
        let draft = TurnDraft {
            turn,
            step_id: self.pinned.step_id.clone(),
            request_id: reserved.id,
            request_sha256,
            reply,
            calls,
            at: self.ports.env.now(),
        };
        let calls = rules::calls_planned(&self.run, &draft.step_id, draft.calls.clone(), draft.at);
        self.ports.store.hold("record the model's reply", Change::RecordTurn(draft)).await;
        self.tell_charge(turn, &reserved.estimate, end, true);
        let ending = std::mem::take(&mut self.ending);
        let has_room = !ending.context_is_full && !has_no_room(&message, stop_reason, counted, &reserved.estimate);
        if has_room {
            self.allow_longer_replies(&message, stop_reason);
        }
        if self.ports.llm.conversation() == Conversation::InTheRequest {
            self.fit.learn(reserved.measured.input_tokens, end);
            if let Some(only) = self.fit.look_at(&reserved.request, reserved.measured.input_tokens, end) {
                (self.ports.watcher)(RunEvent::ReadsOnly { turn, tokens: only.tokens, is_cut: only.is_sure });
            }
            if !has_room {
                // What follows would end like this one: there was no room for more.
                self.fit.cut_below(&reserved.request, reserved.measured.input_tokens);
                (self.ports.watcher)(RunEvent::HistoryCut { turn: turn + 1, perhaps: false });
            }
        }
        self.machine.note_ended(ending.said);
        self.open_reply = Some(message);
        self.last_seq += 1;
        self.open_calls = Some(calls.clone());
        // None of the calls of a refused reply is made: that is one refusal, and no failure of its tools.
        if stop_reason != StopReason::Refusal {
            self.machine.note_refused(&calls);
        }
        self.last_call = calls.last().map(|call| call.call_id.clone()).or(self.last_call.take());
        spans::recorded(turn, calls.len());
        (self.ports.watcher)(RunEvent::Recorded {
            turn,
            calls: calls.len(),
            tool_calls: self.machine.tool_calls() + u32::try_from(calls.len()).unwrap_or(u32::MAX),
            max_tool_calls: self.machine.limits().max_tool_calls,
        });
        // They are never dispatched, so nobody else would say what became of them.
        for call in calls.iter().filter(|call| call.status == CallStatus::Cancelled) {
            (self.ports.watcher)(RunEvent::Call(CallProgress::Settled { call: Box::new(call.clone()) }));
        }
        Ok(Event::Recorded(OpenCall::of_turn(&calls, &[])))
    }

    pub(super) async fn turn_calls(&self, turn: u32) -> Result<Vec<CallRecord>, RunError> {
        self.ports.store.calls(&self.run.run_id, Some(turn)).await.map_err(RunError::at("read the turn's calls"))
    }

    pub(super) async fn dispatch(&mut self, calls: &[CallId], has_effect: bool) -> Result<Event, RunError> {
        let turn = self.machine.committed() + 1;
        self.look_for_results(turn).await?;
        if has_effect && self.marked_effects_of != turn {
            self.marked_effects_of = turn;
            let marker = self.marker(CheckpointKind::PreSideEffect, turn - 1, Some(turn), Vec::new());
            self.ports.store.hold("write a checkpoint", Change::SaveCheckpoint(marker)).await;
        }
        self.answer_owed(turn, calls).await?;
        let mut away = Away::default();
        let ended = loop {
            let began = self.ports.env.now();
            match self.dispatch_until_asked(calls).await {
                Ok(ended) => break ended,
                Err(DispatchError::Ledger(LedgerError::Aborted { .. })) => return Ok(Event::Aborted),
                Err(DispatchError::Transport(error)) => {
                    self.open_calls = None; // others of the group may have ended
                    let took = self.ports.env.now().since(began);
                    if let Some(event) = self.wait_for_server(&error, took, &mut away).await? {
                        return Ok(event);
                    }
                }
                Err(DispatchError::OrphanAlive { server, detail }) => {
                    let question = self.ask_about_orphan(&format!("`{server}` {detail}")).await?;
                    return Ok(Event::Dispatched(vec![Dispatched::Held(Box::new(question)); calls.len()]));
                }
                // What drives a sub-agent says it as it would of any run.
                Err(DispatchError::SubAgent { call, source }) => {
                    return Err(match source.downcast::<RunError>() {
                        Ok(error) => *error,
                        Err(source) => RunError::Dispatch { turn, source: DispatchError::SubAgent { call, source } },
                    });
                }
                // A cancel or an abort that came after the last look: the store starts nothing any more.
                Err(source) => {
                    if was_refused(&source)
                        && let Some(mark) = self.end_mark().await?
                    {
                        return Ok(Event::of_mark(mark));
                    }
                    return Err(RunError::Dispatch { turn, source });
                }
            }
        };
        for dispatched in &ended {
            if let Dispatched::Settled(call) = dispatched {
                self.look_for_answer(call).await?;
            }
        }
        if ended.iter().any(|dispatched| matches!(dispatched, Dispatched::Held(_))) {
            let calls = self.turn_calls(turn).await?;
            let asked = Box::pin(self.ports.dispatcher.ask_ahead(&calls)).await;
            asked.map_err(|source| RunError::Dispatch { turn, source })?;
        }
        self.note_ended(&ended);
        self.note_first_runs(&ended).await?;
        self.count_sub_agents(turn, &ended).await?;
        self.count_tool_charges(turn, &ended).await?;
        let was_stopped = ended.iter().any(|dispatched| matches!(dispatched, Dispatched::Stopped));
        if was_stopped
            && !self.ports.stop.is_stopping()
            && let Some(mark) = self.end_mark().await?
        {
            return Ok(Event::of_mark(mark)); // while a tool was at work that is not waited for
        }
        Ok(Event::Dispatched(ended))
    }

    /// What came of calls that this process knows without reading.
    fn note_ended(&mut self, ended: &[Dispatched]) {
        for dispatched in ended {
            let known = self.open_calls.as_mut();
            match dispatched {
                Dispatched::Settled(call) => {
                    let known = known.and_then(|calls| calls.iter_mut().find(|known| known.call_id == call.call_id));
                    if let Some(known) = known {
                        known.clone_from(call);
                    }
                }
                Dispatched::Held(_) | Dispatched::Parked { .. } | Dispatched::Stopped => self.open_calls = None,
            }
        }
    }

    /// Dispatches a group. What a person answered while others of it were at work is acted on at once, as if it had been there before.
    async fn dispatch_until_asked(&self, calls: &[CallId]) -> Result<Vec<Dispatched>, DispatchError> {
        let handed = Handed {
            planned: self.open_calls.as_deref().filter(|_| self.replay.is_empty()).unwrap_or_default(),
            answer_waits: self.machine.hands_out_one(),
            reads_wait: false,
            time: self.run_time(),
        };
        let mut ended = self.ports.dispatcher.dispatch_group(calls, handed, &self.ports.stop).await?;
        for _ in 0..MAX_ANSWERED_MEANWHILE {
            let mut again = Vec::new();
            for (index, dispatched) in ended.iter().enumerate() {
                if let Dispatched::Held(question) = dispatched {
                    let stored = self.ports.store.question(&question.question_id).await;
                    // Where it cannot be read the run parks, and the next resume looks again.
                    if stored.is_ok_and(|stored| stored.status != QuestionStatus::Open) {
                        again.push(index);
                    }
                }
            }
            if again.is_empty() {
                break;
            }
            let group: Vec<CallId> = again.iter().filter_map(|index| calls.get(*index)).cloned().collect();
            let results = self
                .ports
                .dispatcher
                .dispatch_group(&group, Handed { time: self.run_time(), ..Handed::default() }, &self.ports.stop)
                .await?;
            for (index, result) in again.into_iter().zip(results) {
                ended[index] = result;
            }
        }
        Ok(ended)
    }

    /// What the sub-agents of the turn used counts for the run.
    async fn count_sub_agents(&mut self, turn: u32, ended: &[Dispatched]) -> Result<(), RunError> {
        let is_no_task = |dispatched: &Dispatched| match dispatched {
            Dispatched::Settled(call) => !call.name.is_task(),
            Dispatched::Held(_) | Dispatched::Parked { .. } | Dispatched::Stopped => false,
        };
        if self.run.spec.subagents.is_none()
            || ended.iter().all(is_no_task)
            || !self.turn_calls(turn).await?.iter().any(|call| call.name.is_task())
        {
            return Ok(());
        }
        let records = load_standing(self.ports).await?;
        self.machine.recount(start_of(&records));
        Ok(())
    }

    /// What tools paid counts for the run.
    async fn count_tool_charges(&mut self, turn: u32, ended: &[Dispatched]) -> Result<(), RunError> {
        let mut is_new = false;
        for dispatched in ended {
            let Dispatched::Settled(call) = dispatched else { continue };
            if !ToolCharge::may_come_from(&call.name) {
                continue;
            }
            let receipt = match self.ports.dispatcher.ledger().answer(&call.call_id) {
                Some(receipt) => Some(receipt),
                None => self.ports.store.receipt(&call.call_id).await.map_err(RunError::at("read a receipt"))?,
            };
            let Some(receipt) = receipt else { continue };
            let Some(paid) = receipt.settlement.and_then(|settlement| settlement.charge) else { continue };
            is_new = true;
            // What an earlier process was told of is not told again.
            if receipt.received_at >= self.counted_from {
                let charge = Charge { usage: paid.usage, cost: paid.cost };
                spans::charged(turn, &paid.provider, &paid.model, TOOL_CHARGE, charge);
            }
        }
        if is_new {
            let records = load_standing(self.ports).await?;
            self.machine.recount(start_of(&records));
        }
        Ok(())
    }

    /// Has every task under way brought to its end: the run ends before them, and so do its sub-agents, each by its own driver. One that
    /// nobody told to end yet is cancelled, so that it is not driven on.
    pub(super) async fn end_tasks(&self) -> Result<(), RunError> {
        let turn = self.machine.committed() + 1;
        let calls = self.turn_calls(turn).await?;
        let under_way: Vec<CallId> =
            calls.iter().filter(|call| is_task_under_way(call)).map(|call| call.call_id.clone()).collect();
        if under_way.is_empty() {
            return Ok(());
        }
        for call in &under_way {
            let child = RunId::of_task(call);
            let run = self.ports.store.run(&child).await.map_err(RunError::at("read a sub-agent's run"))?;
            if !run.status.is_terminal() && run.end_mark().is_none() {
                let asked = self.ports.store.request_cancel(&child, ABOVE_ENDED, self.ports.env.now()).await;
                asked.map_err(RunError::at("cancel a sub-agent"))?;
            }
        }
        let ended = self.ports.dispatcher.dispatch_group(&under_way, Handed::default(), &StopSignal::default()).await;
        ended.map(drop).map_err(|source| RunError::Dispatch { turn, source })
    }

    /// Notes calls that a crash had left unsent and that this resume ran for the first time.
    pub(super) async fn note_first_runs(&self, ended: &[Dispatched]) -> Result<(), RunError> {
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

    pub(super) async fn cancel_after_failure(&mut self, calls: &[CallId], failed: &CallId) -> Result<Event, RunError> {
        self.open_calls = None;
        let failed = self.ports.store.call(failed).await.map_err(RunError::at("read a call"))?;
        // Who skipped one call and let another one run said both. The second word may have come since the turn was read.
        let unless_allowed = OpenCall::of(&failed).is_skipped;
        let message = format!(
            "Not run: the earlier call `{}` of this turn did not succeed. Decide again with its result in view.",
            failed.name.tool
        );
        let cancels = calls.iter().map(|call| CallCancel {
            call_id: call.clone(),
            resolution: Resolution::AfterFailure,
            code: "after_failure".to_owned(),
            message: message.clone(),
            unless_allowed,
        });
        match self.ports.store.cancel_calls(&self.ports.lease, cancels.collect(), self.ports.env.now()).await {
            Err(StoreError::Conflict { .. }) if unless_allowed => return self.read_words().await.map(Event::WordsCame),
            Err(refused @ StoreError::Conflict { .. }) => {
                let words = self.read_words().await?;
                // That an earlier call was it stands behind a failure, too.
                let was_said =
                    |read: &OpenCall| calls.contains(&read.call_id) && read.answered == Some(Choice::Happened);
                if words.iter().any(was_said) {
                    return Ok(Event::WordsCame(words));
                }
                return Err(RunError::at("cancel calls after a failure")(refused));
            }
            cancelled => cancelled.map_err(RunError::at("cancel calls after a failure"))?,
        }
        spans::cancelled(calls.len());
        // Whoever let one of them go learns that it was not sent.
        for id in calls {
            let call = self.ports.store.call(id).await.map_err(RunError::at("read a call"))?;
            (self.ports.watcher)(RunEvent::Call(CallProgress::Settled { call: Box::new(call) }));
        }
        Ok(Event::Cancelled)
    }

    /// Reads the calls of the open turn again, with what people have answered meanwhile.
    async fn read_words(&self) -> Result<Vec<OpenCall>, RunError> {
        let calls = self.turn_calls(self.machine.committed() + 1).await?;
        let run = &self.run.run_id;
        let questions = self.ports.store.open_questions(Some(run)).await.map_err(RunError::at("read the questions"))?;
        Ok(OpenCall::of_turn(&calls, &questions))
    }

    /// Appends the results and commits the turn. The results are a pure function of the ledger, so a turn that is finished
    /// after a crash reads as it would have without one.
    pub(super) async fn commit(&mut self, turn: u32) -> Result<Event, RunError> {
        let calls = match self.open_calls.take().filter(|_| self.replay.is_empty()) {
            Some(calls) => calls,
            None => self.turn_calls(turn).await?,
        };
        self.replay.pass(&calls.iter().collect::<Vec<_>>());
        // Tools that only read outside may write what they read into the workspace.
        let were_made = calls.iter().any(|call| call.attempt > 0);
        let corpora = self.corpora_of(&calls).await?;
        let ledger = self.ports.dispatcher.ledger();
        let words =
            ledger.words_about(&calls).await.map_err(|source| RunError::Dispatch { turn, source: source.into() })?;
        let done =
            ledger.done_by_others(&calls).await.map_err(|source| RunError::Dispatch { turn, source: source.into() })?;
        let blocks = results_of(ledger, &self.run, calls, self.found_open == Some(turn)).await?;
        let results = Message { role: Role::User, origin: Origin::Tools, blocks: blocks.into() };
        let mut messages: Vec<Message> = if results.blocks.is_empty() { Vec::new() } else { vec![results] };
        if !words.is_empty() {
            messages.push(Message::user(Origin::Guidance, words_of_persons(&words, self.audience())));
        }
        if !done.is_empty() {
            messages.push(Message::user(Origin::Guidance, done.join("\n\n")));
        }
        let files = if were_made { self.changed_files().await? } else { Vec::new() };
        // It is the boundary of the step all the same; the word says what is special about it.
        let kind = if corpora.is_empty() { CheckpointKind::StepBoundary } else { CheckpointKind::CorpusCache };
        let now = self.ports.env.now();
        let commit = TurnCommit {
            turn,
            checkpoint: self.marker_with(kind, turn, None, files, corpora),
            messages: messages.clone(),
            held_millis: self.held_for(),
            at: now,
        };
        let held_millis = commit.held_millis;
        self.run = self.commit_once(commit).await?;
        self.ports.dispatcher.ledger().forget_answers();
        spans::committed(turn, held_millis);
        self.counted_from = now;
        self.passed_before = self.ports.still.so_far();
        self.session.committed();
        self.history.extend(self.open_reply.take());
        self.last_seq += messages.len() as u64;
        // As the store keeps them, so that a request reads the same in a later process.
        ua_store::offload_results(&mut messages, self.run.spec.settings.blob_threshold_bytes);
        self.history.extend(messages);
        self.forget_messages();
        (self.ports.watcher)(RunEvent::Committed { turn });
        self.write_files_if_due(turn).await;
        Ok(Event::Committed { held_millis: self.run.held_millis })
    }

    /// Asks for longer replies from now on, once, if thoughts took all of this one and the job says nothing of their length. What a program's step
    /// says of it is always said.
    fn allow_longer_replies(&mut self, message: &Message, stop_reason: StopReason) {
        let is_unsaid = ReplyEnd::of(stop_reason, &message.text()) == ReplyEnd::Unsaid;
        let is_open = self.run.spec.model.max_output_tokens.is_none() && self.audience() == Audience::Terminal;
        if is_unsaid && message.tool_uses().next().is_none() && is_open && self.reply_limit.is_none() {
            let tokens = self.settings.max_output_tokens.saturating_mul(LONGER);
            tracing::info!(tokens, "thoughts took all of a reply, asking for longer ones");
            self.reply_limit = Some(tokens);
        }
    }

    pub(super) async fn guide(&mut self, text: &Guidance) -> Result<Event, RunError> {
        let text = match text {
            Guidance::Unfinished(end) => end.guidance(self.audience()),
            Guidance::Missing(missing) => missing.clone(),
        };
        (self.ports.watcher)(RunEvent::Guided { text: text.clone() });
        self.say(Message::user(Origin::Guidance, text), "append guidance").await?;
        Ok(Event::Guided)
    }

    /// Appends a message to the history, between turns.
    async fn say(&mut self, message: Message, doing: &'static str) -> Result<(), RunError> {
        let appended =
            self.ports.store.append_messages(&self.ports.lease, vec![message.clone()], self.ports.env.now()).await;
        appended.map_err(RunError::at(doing))?;
        self.last_seq += 1;
        self.history.push(message);
        Ok(())
    }
}

/// Whether a reply was cut at a limit before it could say anything, though it might have been much longer: the context was full before it.
fn has_no_room(message: &Message, stop_reason: StopReason, counted: Option<Usage>, estimate: &Estimate) -> bool {
    let Some(usage) = counted else { return false };
    stop_reason == StopReason::MaxTokens
        && message.text().trim().is_empty()
        && message.tool_uses().next().is_none()
        && usage.output_tokens.saturating_mul(8) <= estimate.output_tokens
}

/// Tokens, as estimated, of what no iteration can begin without, in the first request of iteration `number`. What was handed on grows, and is said in
/// one turn at least.
fn least_of(request: &ModelRequest, measured: Measured, number: u32) -> u64 {
    if number <= 1 {
        return measured.input_tokens;
    }
    let job = request.messages.iter().take(1).cloned().collect();
    estimate_input_tokens(&ModelRequest { messages: job, ..request.clone() })
}

/// Whether the store refused a write because of how things stand.
fn was_refused(error: &DispatchError) -> bool {
    matches!(error, DispatchError::Ledger(LedgerError::Store { source: StoreError::Conflict { .. }, .. }))
}
