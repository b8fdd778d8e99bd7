//! What surrounds the turns: markers, the resume packet, the evidence, and the end of a process's work.

use std::collections::BTreeMap;

use serde_json::Value;
use ua_checkpoint::{ArtifactRef, BudgetsUsed, Checkpoint, Cursor, Snapshot};
use ua_core::{
    CallId, CheckpointId, Message, Origin, QuestionId, RunStatus, RunStop, StepStatus, StopCondition, chain,
};
use ua_dispatch::OutputSchema;
use ua_evidence::{Artifact, EvidenceReport};
use ua_ledger::{is_left_open, settle_late_answers};
use ua_resume::{Decision, ResumePacket};
use ua_store::{
    CallCancel, Change, CheckpointKind, CorpusRef, LedgerStore, NewCheckpoint, QuestionRecord, RunRecord, RunRecords,
    RunStore, StepEnd, Store, rules,
};

use super::Driver;
use crate::cancel::{apply_words, never_sent};
use crate::error::RunError;
use crate::files::{self, NextFiles, write_conclusion_with, write_packet};
use crate::machine::{Conclusion, Event, Missing, Word};
use crate::ports::run_end;
use crate::recover::InFlight;
use crate::spans;
use crate::standing::load_standing;
use crate::workspace::WorkspaceError;

impl Driver<'_> {
    pub(super) fn marker(
        &self,
        kind: CheckpointKind,
        turn_index: u32,
        open_turn: Option<u32>,
        artifacts: Vec<ArtifactRef>,
    ) -> NewCheckpoint {
        self.marker_with(kind, turn_index, open_turn, artifacts, Vec::new())
    }

    /// A marker that caches refined corpora too.
    pub(super) fn marker_with(
        &self,
        kind: CheckpointKind,
        turn_index: u32,
        open_turn: Option<u32>,
        artifacts: Vec<ArtifactRef>,
        corpora: Vec<CorpusRef>,
    ) -> NewCheckpoint {
        let snapshot = Snapshot {
            status: RunStatus::Running,
            phase: self.pinned.phase.clone(),
            step_index: self.pinned.step_index,
            turn_index,
            tool_calls: BTreeMap::new(),
            artifacts,
            corpora,
            remaining_phases: self.run.spec.phases_after(&self.pinned.phase),
            budgets_used: BudgetsUsed {
                tool_calls: self.machine.tool_calls(),
                turns: turn_index.saturating_sub(self.run.shared_turns()),
                tokens: self.machine.spent().tokens,
                held_millis: self.run.held_millis + self.held_for(),
            },
        };
        let cursor = Cursor {
            turn_index,
            open_turn,
            last_tool_call_id: self.last_call.clone(),
            last_message_seq: self.last_seq,
        };
        let id = CheckpointId::new(&self.ports.env);
        Checkpoint::marker(kind, id, self.pinned.step_id.clone(), self.ports.env.now(), &snapshot, &cursor)
    }

    pub(super) async fn checkpoint(
        &self,
        kind: CheckpointKind,
        open_turn: Option<u32>,
        artifacts: Vec<ArtifactRef>,
    ) -> Result<(), RunError> {
        let marker = self.marker(kind, self.machine.committed(), open_turn, artifacts);
        self.ports.store.save_checkpoint(&self.ports.lease, marker).await.map_err(RunError::at("write a checkpoint"))
    }

    pub(super) fn artifact_refs(&self) -> Result<Vec<ArtifactRef>, RunError> {
        Ok(self
            .ports
            .workspace
            .artifacts_of(&self.run.spec)?
            .into_iter()
            .map(|a| ArtifactRef { path: a.path, sha256: a.sha256 })
            .collect())
    }

    /// Writes the resume packet, marks the end of the replay, and tells the model what happened in between. The run is read anew for it: people,
    /// forks and the runs beside it do not wait for a resume.
    pub(super) async fn finish_replay(&mut self, note: bool) -> Result<Event, RunError> {
        self.ports.workspace.read_ahead(&self.run.spec).await;
        let artifacts = self.ports.workspace.artifacts_of(&self.run.spec)?;
        let refs = artifacts.iter().map(|a| ArtifactRef { path: a.path.clone(), sha256: a.sha256 }).collect();
        self.checkpoint(CheckpointKind::PostReplay, None, refs).await?;
        let records = load_standing(self.ports).await?;
        let packet = self.write_packet(&records, &artifacts);
        if note {
            let message = Message::user(Origin::Resume, packet.replay_note(self.audience()));
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

    fn write_packet(&self, records: &RunRecords, artifacts: &[Artifact]) -> ResumePacket {
        let decisions: Vec<Decision> = self.in_flight.iter().filter_map(|flight| decision(records, flight)).collect();
        let packet = ResumePacket::new(records, &decisions, artifacts);
        // What the packet says reaches the model by the note; the file only repeats it for people.
        files::note("the resume packet", write_packet(&self.ports.workspace, &self.run.run_id, &packet));
        packet
    }

    /// Checks stop conditions over receipts and files. The transcript is written first: it may be one of them.
    pub(super) async fn check_evidence(&mut self, last_word: &Word) -> Result<Result<(), Missing>, RunError> {
        // Who was to take results first and says that all is done has not taken them; it is told again, and then a person is asked.
        if !self.replay.is_empty() {
            return Ok(Err(self.replay.prompt().into()));
        }
        let records = self.ports.store.load(&self.run.run_id).await.map_err(RunError::at("load the run"))?;
        files::write_transcript(&self.ports.workspace, &records)?;
        let mut report = self.evidence_with_citations(&records).await?;
        self.told_of = report.told_of();
        report.leave_to_their_runs(&self.open_elsewhere(&self.told_of).await?);
        (self.undeclared, self.in_doubt) = (report.undeclared(), report.in_doubt());
        let (mut missing, mut for_person) = (Vec::new(), Vec::new());
        if !report.all_met {
            missing.push(report.missing_for_model());
            for_person.push(report.missing_for_person());
        }
        if let Some(schema) = self.wanted_output()
            && let Err(wrong) = self.read_answer(schema, last_word)
        {
            for_person.push(format!("- a result that fits `output_schema`; the model was told: {wrong}"));
            missing.push(wrong);
        }
        Ok(if missing.is_empty() {
            Ok(())
        } else {
            Err(Missing {
                text: missing.join("\n\n"),
                for_person: for_person.join("\n"),
                is_for_a_person: report.needs_a_person(),
            })
        })
    }

    /// Those of the calls that belong to open turns of other runs: no record of theirs is put right but by whoever has their run.
    async fn open_elsewhere(&self, calls: &[CallId]) -> Result<Vec<CallId>, RunError> {
        let store = self.ports.store.as_ref();
        let mut open = Vec::new();
        for id in calls {
            let call = store.call(id).await.map_err(RunError::at("read a call"))?;
            let run = store.run(&call.run_id).await.map_err(RunError::at("read the run of a call"))?;
            if call.run_id != self.run.run_id && rules::is_of_open_turn(&run, &call) {
                open.push(id.clone());
            }
        }
        Ok(open)
    }

    /// The value that an answer gives. A number that came in several replies is none: a model that began again instead of continuing has
    /// said another one, which nothing of it shows.
    fn read_answer(&self, schema: &Value, answer: &Word) -> Result<Value, String> {
        let value = read_output(schema, answer.text()).map_err(|wrong| {
            let pieces = "Your answer came in several replies, which were joined to one. ";
            if answer.is_joined() { format!("{pieces}{wrong}") } else { wrong }
        })?;
        if answer.is_joined() && value.is_number() {
            return Err("The result is not clear: your last reply was cut, and a number cannot be put together from pieces. Give the whole \
                        result again, in one reply: one JSON value, and nothing beside it."
                .to_owned());
        }
        if let Some(accepts) = &self.ports.accepts {
            accepts(&value).map_err(|why| {
                format!(
                    "The result fits its schema and is refused all the same: {why}. Give the whole result again, corrected: one JSON value, \
                     and nothing beside it."
                )
            })?;
        }
        Ok(value)
    }

    /// What the conditions come to that have to hold now, those about citations included.
    pub(super) async fn evidence_with_citations(&self, records: &RunRecords) -> Result<EvidenceReport, RunError> {
        self.ports.workspace.read_ahead(&records.run.spec).await;
        let mut report = self.evidence(records)?;
        if self.evidence_scope().is_of_job() {
            let replies = crate::citations::whole_replies(self.ports.store.as_ref(), records).await?;
            if let Some(citations) = crate::citations::judge(&self.ports.workspace, records, &replies)? {
                report = report.with(citations);
            }
        }
        Ok(report)
    }

    pub(super) fn evidence(&self, records: &RunRecords) -> Result<EvidenceReport, RunError> {
        let workspace = &self.ports.workspace;
        let artifacts = workspace.artifacts_of(&records.run.spec)?;
        let unread = workspace.unread(&records.run.spec, &artifacts);
        let media = |path: &str| workspace.media_type(path);
        Ok(ua_evidence::evaluate_run(records, self.evidence_scope(), &artifacts, &unread, &media))
    }

    /// Ends this process's work: one write for the run and its step, then the files a person reads.
    pub(super) async fn conclude(&mut self, conclusion: &Conclusion) -> Result<RunRecord, RunError> {
        self.ports.workspace.read_ahead(&self.run.spec).await;
        let now = self.ports.env.now();
        if matches!(conclusion, Conclusion::Stopped { reason: RunStop::Interrupt, .. }) {
            self.checkpoint(CheckpointKind::Interrupt, None, self.artifact_refs()?).await?;
        }
        if matches!(conclusion, Conclusion::Succeeded { .. }) && !self.run.spec.phases.is_empty() {
            self.checkpoint(CheckpointKind::PhaseBoundary, None, self.artifact_refs()?).await?;
        }
        if matches!(conclusion, Conclusion::Cancelled | Conclusion::Failed { .. }) {
            let calls = self.ports.store.calls(&self.run.run_id, None).await;
            let calls = calls.map_err(RunError::at("read the run's calls"))?;
            let turn = self.machine.committed() + 1;
            let abandoned = self.ports.dispatcher.abandon(&calls).await;
            abandoned.map_err(|source| RunError::Dispatch { turn, source })?;
        }
        let mut end = run_end(RunStatus::Failed, None, self.held_for(), now);
        if matches!(conclusion, Conclusion::Cancelled | Conclusion::Failed { .. }) {
            apply_words(self.ports.store.as_ref(), &self.ports.lease, now).await?;
            self.end_tasks().await?;
            // What is left of it ends with it, in one write: whoever dies before that write leaves everything to the next owner.
            (end.cancels, end.closes) = self.leftovers(conclusion).await?;
        }
        let step = |status, detail: Option<String>| StepEnd {
            step_id: self.pinned.step_id.clone(),
            status,
            error_code: None,
            error_detail: detail,
            at: now,
        };
        match conclusion {
            Conclusion::Succeeded { final_output } => {
                end.status = RunStatus::Succeeded;
                end.closes = self.unread.left();
                // Whatever stood around the value in the message, the value is what is kept.
                let value = self.wanted_output().and_then(|schema| read_output(schema, final_output).ok());
                end.final_output = Some(value.map_or_else(|| final_output.clone(), |value| value.to_string()));
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
                end.step_end = Some(step(StepStatus::Blocked, None));
            }
            Conclusion::Stopped { reason, detail } => {
                end.status = RunStatus::Stopped;
                end.stop_reason = Some(*reason);
                end.detail = Some(detail.clone());
                end.step_end = Some(step(StepStatus::Blocked, None));
            }
        }
        let held_millis = end.held_millis;
        // An end whose answer is lost is an end: who does not learn of it leaves files of an earlier process behind.
        let doing = "end the run";
        self.ports.store.hold(doing, Change::EndRun(end)).await;
        self.ports.store.flush().await.map_err(RunError::at(doing))?;
        let run = self.ports.store.run(&self.run.run_id).await.map_err(RunError::at(doing))?;
        spans::ended(&run, held_millis);
        if run.status.is_terminal() {
            // What a person answered until this moment about calls that the run went on without; who answers later does it themselves. The
            // end is stored, so a failure here is left to whoever resumes the run.
            let settled = settle_late_answers(self.ports.store.as_ref(), &self.ports.env, &run.run_id).await;
            if let Err(error) = settled {
                tracing::warn!(error = chain(&error), "answers that came late were not applied");
            }
        }
        let records = self.ports.store.load(&run.run_id).await.map_err(RunError::at("load the run"))?;
        // The end is stored. Files that only repeat it must not turn it into a failure.
        if !run.status.is_terminal() {
            files::note("the resume packet", self.write_last_packet(&records));
        }
        let replies = crate::citations::whole_replies(self.ports.store.as_ref(), &records).await?;
        files::note("the completion file", write_conclusion_with(&self.ports.workspace, &records, &replies));
        Ok(run)
    }

    /// The calls that were not sent, and the questions that nobody needs to answer any more. What a call in doubt did stays unknown; a
    /// failed run's questions about calls that it went on without stay open, since answers to these count after its end.
    async fn leftovers(&self, conclusion: &Conclusion) -> Result<(Vec<CallCancel>, Vec<QuestionId>), RunError> {
        let is_cancelled = matches!(conclusion, Conclusion::Cancelled);
        let calls =
            self.ports.store.calls(&self.run.run_id, None).await.map_err(RunError::at("read the run's calls"))?;
        let why = if is_cancelled { "the run was cancelled" } else { "the run had failed" };
        let outlives = |question: &QuestionRecord| {
            let call = question.call_id.as_ref().and_then(|id| calls.iter().find(|call| call.call_id == *id));
            !is_cancelled && call.is_some_and(is_left_open)
        };
        let open = self.ports.store.open_questions(Some(&self.run.run_id)).await;
        let open = open.map_err(RunError::at("read the questions"))?;
        let closes = open.iter().filter(|question| !outlives(question)).map(|one| one.question_id.clone()).collect();
        Ok((never_sent(&calls, why), closes))
    }

    fn write_last_packet(&self, records: &RunRecords) -> Result<(), WorkspaceError> {
        let decisions: Vec<Decision> = self.in_flight.iter().filter_map(|flight| decision(records, flight)).collect();
        let packet = ResumePacket::new(records, &decisions, &self.ports.workspace.artifacts_of(&records.run.spec)?);
        write_packet(&self.ports.workspace, &records.run.run_id, &packet)
    }

    /// Writes trace, transcript and summary of a run at work, when they are due after `turn`.
    pub(super) async fn write_files_if_due(&mut self, turn: u32) {
        let began = self.ports.env.now();
        if !self.files.are_due(turn, began) {
            return;
        }
        let (workspace, store) = (&self.ports.workspace, self.ports.store.as_ref());
        // A database that cannot be read says so itself where it matters: at the next write.
        if let Err(error) = files::write_progress_in_pieces(workspace, store, &self.run).await {
            tracing::warn!(error = chain(&error), turn, "the transcript and the trace could not be written");
        }
        self.files = NextFiles::after(turn, began, self.ports.env.now());
    }

    /// The artifact a person looks for first, of those that the job expects or makes a condition of: a PDF, else a page, else the first.
    pub(super) fn main_artifact(&self) -> Result<Option<String>, RunError> {
        let spec = &self.run.spec;
        let artifacts = self.ports.workspace.artifacts_of(spec)?;
        let unread = self.ports.workspace.unread(spec, &artifacts);
        let paths = artifacts.into_iter().map(|file| file.path).chain(unread.into_iter().map(|file| file.path));
        let expected =
            || spec.phases.iter().flat_map(|phase| &phase.expected_outputs).chain(&spec.artifacts.expected_outputs);
        let conditions = || spec.phases.iter().flat_map(|phase| &phase.stop_conditions).chain(&spec.stop_conditions);
        let is_condition = |path: &str| {
            let is_it = |condition: &StopCondition| match condition.expanded() {
                StopCondition::Artifact { artifact, .. } => artifact.trim_start_matches("./") == path,
                StopCondition::Effect { .. } | StopCondition::Named(_) => false,
            };
            conditions().any(is_it)
        };
        let is_expected = |path: &str| {
            is_condition(path) || expected().any(|name| path == name || path.ends_with(&format!("/{name}")))
        };
        let rank = |path: &str| match path.rsplit('.').next() {
            Some("pdf") => 0,
            Some("html") => 1,
            Some(_) | None => 2,
        };
        let mut named: Vec<String> = paths.filter(|path| is_expected(path) && path != "transcript.md").collect();
        named.sort_by_key(|path| rank(path));
        Ok(named.into_iter().next())
    }
}

/// The value that a last message gives.
fn read_output(schema: &Value, message: &str) -> Result<Value, String> {
    // It was read before the run was stored; one that this version cannot read is told like a value that does not fit.
    OutputSchema::new(schema).map_err(|why| format!("The `output_schema` {why}."))?.read(message)
}

/// What was decided about a call that was in flight, read from its row.
fn decision(records: &RunRecords, flight: &InFlight) -> Option<Decision> {
    files::decision(records.call(&flight.call_id)?, flight.was)
}
