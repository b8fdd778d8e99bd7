//! The completion summary: what a run came to, by its rows.
//!
//! Spec: Durable runner, current state §8, and its known limitation 2: what became of replayed calls is part of it;
//! Durability Architecture, "Evidence Summary"; Context Storage & Durability §6: external ids are shown.
//! Invariant: a side effect is listed with its verdict, and a call that failed, was lost or was never sent cannot read as done.

use std::iter;

use serde::Serialize;
use ua_core::{
    CallId, CallStatus, EvidenceLevel, Position, Resolution, RunId, RunStatus, RunStop, SideEffectClass, StepStatus,
    Timestamp, Trace,
};
use ua_store::rules::times_sent;
use ua_store::{AttemptRecord, CallRecord, QueueState, ReceiptRecord, ReplayStatus, RunRecords};

use crate::changed::{ChangedFile, changed_files};
use crate::sub_agents::SubAgentLine;
use ua_evidence::artifact::Artifact;
use ua_evidence::call_line::{external_id, own_success, shown_error};
use ua_evidence::quote::{clean, cut};
use ua_evidence::verdict::{Stands, Verdict};
use ua_evidence::{ConditionResult, EvidenceReport};
use ua_resume::budget::{self, BudgetLine};
use ua_resume::question::QuestionLine;
use ua_resume::usage::UsageSummary;
use ua_resume::{Commands, Life, drivers, lives};
use ua_resume::{InQueue, NextStep, Standing};

/// The most characters of the final output that the summary shows; the transcript has all of it.
const OUTPUT_LIMIT: usize = 8000;
/// How much of a key is shown: enough to find it in the other side's log.
const KEY_PREFIX: usize = 12;

/// A call that was to change something, and whether it did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SideEffect {
    /// The call.
    pub call_id: CallId,
    /// The tool, as the model named it.
    pub tool: String,
    /// What the effect is, where that is declared.
    pub effect: Option<String>,
    /// What it touches.
    pub class: SideEffectClass,
    /// Where it stands in the run.
    pub position: Position,
    /// Where it stands.
    pub status: CallStatus,
    /// Whether it happened.
    pub verdict: Verdict,
    /// How often it was sent; 0 when it never was.
    pub attempts: u32,
    /// How well its success is vouched for; `None` when it did not succeed by a receipt of its own.
    pub evidence: Option<EvidenceLevel>,
    /// The other side's name for what happened.
    pub external_id: Option<String>,
    /// The first digits of its idempotency key.
    pub key_prefix: Option<String>,
    /// How it was settled, if not by its own receipt.
    pub resolution: Option<Resolution>,
    /// The call whose receipt answered it.
    pub deduplicated_from: Option<CallId>,
    /// Its failure or refusal; foreign text.
    pub error: Option<String>,
    /// What a person put right about its record, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correction: Option<String>,
}

/// A call that a resume found in flight, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// The call.
    pub call_id: CallId,
    /// The tool, as the model named it.
    pub tool: String,
    /// What the resume did.
    pub action: ReplayStatus,
    /// Where the call stands now.
    pub status: CallStatus,
    /// Whether its effect happened.
    pub verdict: Verdict,
    /// In which words it is told what the resume did.
    #[serde(skip)]
    pub stands: Stands,
    /// How often it was sent.
    pub attempts: u32,
}

/// A step and how far it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepSummary {
    /// Its number in the run, from 1.
    pub step_index: u32,
    /// Its phase; `main` when the job has none.
    pub phase: String,
    /// Where it stands; `None` when it was not entered.
    pub status: Option<StepStatus>,
    /// Its first turn.
    pub first_turn: Option<u32>,
    /// Its last committed turn.
    pub last_turn: Option<u32>,
}

impl StepSummary {
    /// Every step of a run, then the phases that were not entered.
    pub fn all(records: &RunRecords) -> Vec<Self> {
        all_steps(records)
    }
}

/// What a run came to.
///
/// [`to_markdown`](Self::to_markdown) writes it for people, serde writes it for programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CompletionSummary {
    /// The run.
    pub run_id: RunId,
    /// The run it was forked from or started by.
    pub parent_run_id: Option<RunId>,
    /// Where it stands.
    pub status: RunStatus,
    /// The same as people are told it, where what is around the run says more than what is stored of it: `answered`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shown_status: Option<String>,
    /// Why it is stopped.
    pub stop_reason: Option<RunStop>,
    /// A sentence about the status.
    pub status_detail: Option<String>,
    /// The processes that drove it, oldest first, each with how it ended.
    pub processes: Vec<Life>,
    /// How many processes that were.
    #[serde(skip)]
    pub drivers: usize,
    /// What was to be reached.
    pub objective: String,
    /// Where the job file was.
    pub job_path: Option<String>,
    /// Its folder.
    pub workspace_dir: String,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When its row last changed.
    pub updated_at: Timestamp,
    /// The model's last words; what they claim is not evidence.
    pub final_output: Option<String>,
    /// The main artifact, relative to the workspace.
    pub main_artifact: Option<String>,
    /// What had to hold and what was found for it.
    pub conditions: Vec<ConditionResult>,
    /// Whether every condition holds.
    pub all_met: bool,
    /// That nothing was checked, where the job says nothing that has to hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unchecked: Option<String>,
    /// Every step, then the phases that were not entered.
    pub steps: Vec<StepSummary>,
    /// Files of the workspace.
    pub artifacts: Vec<Artifact>,
    /// Files that changed after they were sent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed_files: Vec<ChangedFile>,
    /// Every call that was to change something, in the order in which the model asked.
    pub side_effects: Vec<SideEffect>,
    /// Of a fork: the same of the turns that it shares with the run it was forked from, which are not its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inherited_effects: Vec<SideEffect>,
    /// The sub-agents that worked for the run, with what they did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sub_agents: Vec<SubAgentLine>,
    /// Every call that a resume found in flight.
    pub replayed: Vec<Replayed>,
    /// Every question, with its answer or the commands that answer it.
    pub questions: Vec<QuestionLine>,
    /// What the run's requests to models cost.
    pub usage: UsageSummary,
    /// What was used of the budgets; `max_wallclock_minutes` is the time in which a process held the run.
    pub budgets: Vec<BudgetLine>,
    /// The trace of each process that drove the run, oldest first.
    pub traces: Vec<Trace>,
    /// Commands with which to go on or look closer.
    pub next: Vec<String>,
    /// Who goes on with a run of the queue, where nobody has to give a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_to_a_worker: Option<String>,
}

impl CompletionSummary {
    /// Puts the summary together. `evidence` is what [`evaluate`](ua_evidence::evaluate) found over the same records and files.
    pub fn new(records: &RunRecords, evidence: &EvidenceReport, artifacts: &[Artifact]) -> Self {
        let run = &records.run;
        Self {
            run_id: run.run_id.clone(),
            parent_run_id: run.parent_run_id.clone(),
            status: run.status,
            shown_status: None,
            stop_reason: run.stop_reason,
            status_detail: run.status_detail.as_deref().map(clean),
            processes: lives(records),
            drivers: drivers(records),
            objective: clean(&run.spec.objective),
            job_path: run.job_path.clone(),
            workspace_dir: run.workspace_dir.clone(),
            created_at: run.created_at,
            updated_at: run.updated_at,
            final_output: run.final_output.as_deref().map(|output| cut(&clean(output), OUTPUT_LIMIT)),
            main_artifact: run.final_artifact_ref.clone(),
            conditions: evidence.conditions.clone(),
            all_met: evidence.all_met,
            unchecked: ua_evidence::unchecked(records),
            steps: StepSummary::all(records),
            artifacts: artifacts.to_vec(),
            changed_files: changed_files(&records.calls, artifacts),
            side_effects: side_effects(&records.calls, &records.receipts, &records.attempts),
            inherited_effects: side_effects(&records.lineage.calls, &records.lineage.receipts, &[]),
            sub_agents: SubAgentLine::all(records),
            replayed: records.calls.iter().filter_map(|call| replayed(call, records)).collect(),
            questions: records.questions.iter().map(|question| QuestionLine::of_run(question, run)).collect(),
            usage: UsageSummary::of(records),
            budgets: budget::lines(records),
            traces: run.traces.clone(),
            next: next(records, None, false),
            left_to_a_worker: None,
        }
    }

    /// The same of a run that its process has from the queue, if it has.
    #[must_use]
    pub fn in_queue(mut self, records: &RunRecords, state: Option<QueueState>) -> Self {
        let Some(state) = state.filter(|_| !records.run.status.is_terminal()) else { return self };
        let queued = InQueue::behind(&records.run, state);
        self.left_to_a_worker = queued.in_words().map(str::to_owned);
        self.next = next(records, Some(&queued), false);
        self
    }

    /// The same of a run that stands like this, in the queue or not: what is stored of it does not say that its questions are answered.
    #[must_use]
    pub fn standing(mut self, records: &RunRecords, standing: &Standing, state: Option<QueueState>) -> Self {
        self.shown_status = standing.beside_what_is_stored();
        self.questions = self.questions.into_iter().map(|question| question.standing(standing)).collect();
        if *standing != Standing::Answered {
            return self.in_queue(records, state);
        }
        let queued = state.map(|state| InQueue::of(&records.run, state, true));
        self.left_to_a_worker = queued.as_ref().and_then(InQueue::in_words).map(str::to_owned);
        self.next = next(records, queued.as_ref(), true);
        self
    }

    /// The same, in which commands name the folder in which they find the run.
    #[must_use]
    pub fn naming(mut self, commands: &Commands) -> Self {
        self.questions = self.questions.into_iter().map(|question| question.naming(commands)).collect();
        for command in &mut self.next {
            *command = commands.complete(command).into_owned();
        }
        if let Some(words) = &mut self.left_to_a_worker {
            *words = commands.complete(words).into_owned();
        }
        self
    }
}

fn all_steps(records: &RunRecords) -> Vec<StepSummary> {
    let entered = records.steps.iter().map(|step| StepSummary {
        step_index: step.step_index,
        phase: clean(&step.phase),
        status: Some(step.status),
        first_turn: Some(step.first_turn),
        last_turn: step.last_turn,
    });
    let mut steps: Vec<StepSummary> = entered.collect();
    let spec = &records.run.spec;
    let current = records.current_step().map(|step| spec.phases_after(&step.phase));
    for phase in current.unwrap_or_else(|| spec.phases.iter().map(|phase| phase.name.clone()).collect()) {
        let step_index = steps.last().map_or(1, |step| step.step_index + 1);
        steps.push(StepSummary { step_index, phase, status: None, first_turn: None, last_turn: None });
    }
    steps
}

fn side_effects(calls: &[CallRecord], receipts: &[ReceiptRecord], attempts: &[AttemptRecord]) -> Vec<SideEffect> {
    calls
        .iter()
        .filter(|call| call.policy.class.has_effect())
        .map(|call| SideEffect {
            call_id: call.call_id.clone(),
            tool: clean(&call.name.raw),
            effect: call.policy.effect_kind.as_ref().map(|kind| kind.as_str().to_owned()),
            class: call.policy.class,
            position: call.position,
            status: call.status,
            verdict: Verdict::of(call),
            attempts: times_sent(call, attempts),
            evidence: own_success(receipts, call).map(|receipt| receipt.evidence),
            external_id: external_id(receipts, call),
            key_prefix: call.idempotency_key.as_ref().map(|key| key.as_str().chars().take(KEY_PREFIX).collect()),
            resolution: call.resolution,
            deduplicated_from: call.answered_by().cloned(),
            // What was corrected says so itself.
            error: shown_error(call).filter(|_| call.correction.is_none()),
            correction: call
                .correction
                .as_ref()
                .map(|correction| clean(&format!("was {}; {}", correction.was.in_words(), correction.sentence()))),
        })
        .collect()
}

fn replayed(call: &CallRecord, records: &RunRecords) -> Option<Replayed> {
    Some(Replayed {
        call_id: call.call_id.clone(),
        tool: clean(&call.name.raw),
        action: call.replay_status?,
        status: call.status,
        verdict: Verdict::of(call),
        stands: Stands::of(call, records.run.status),
        attempts: times_sent(call, &records.attempts),
    })
}

/// The commands that fit where the run stands.
fn next(records: &RunRecords, queued: Option<&InQueue>, is_answered: bool) -> Vec<String> {
    let run = &records.run.run_id;
    // Only the program that started it has the model and the tools of a library's run.
    let resume = match queued {
        Some(queued) => queued.command().map(str::to_owned),
        None => NextStep::of(&records.run).command().map(str::to_owned),
    };
    let mut commands = match records.run.status {
        RunStatus::Queued | RunStatus::Running | RunStatus::Stopped => resume.into_iter().collect(),
        RunStatus::WaitingForHuman if is_answered => resume.into_iter().collect::<Vec<_>>(),
        // The answers stand with their questions; here they would be a list in which each line contradicts the next.
        RunStatus::WaitingForHuman => {
            let resume = resume.filter(|_| queued.is_none());
            iter::once("ua questions".to_owned()).chain(resume).collect()
        }
        RunStatus::Succeeded | RunStatus::Failed | RunStatus::Cancelled => Vec::new(),
    };
    commands.push(format!("ua runs show {run}"));
    commands.push(format!("ua calls list --run {run}"));
    commands
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::PossibleEffect;

    use super::*;
    use ua_evidence::evaluate;
    use ua_evidence::testing::{Story, artifact, assert_inert, hostile_story, mail_policy, read_policy, write_policy};

    const JOB: &str = r#"{
        "objective": "Write the report and mail it to ana@example.test.",
        "stop_conditions": ["report_pdf_created", "email_sent_once"],
        "artifacts": {"expected_outputs": ["report.html", "transcript.md"]}
    }"#;

    fn files() -> Vec<Artifact> {
        ["transcript.md", "work_products/report.html", "work_products/report.pdf"].map(artifact).to_vec()
    }

    fn summary(story: &Story, artifacts: &[Artifact]) -> CompletionSummary {
        let records = &story.records;
        let pdf = |path: &str| path.ends_with("pdf").then(|| "application/pdf".to_owned());
        let evidence = evaluate(&records.run.spec, &records.calls, &records.receipts, artifacts, &pdf);
        CompletionSummary::new(records, &evidence, artifacts)
    }

    /// A turn that wrote both reports, then a turn that asked for the e-mail.
    fn before_the_mail() -> (Story, CallId) {
        let mut story = Story::new(JOB);
        let ids = story.asks(
            "",
            &[
                ("crawl", json!({"urls": ["http://127.0.0.1/a"]}), read_policy()),
                ("write_local_file", json!({"path": "work_products/report.html"}), write_policy()),
                ("html_to_pdf", json!({"path": "work_products/report.pdf"}), write_policy()),
            ],
        );
        for id in &ids {
            story.starts(id);
            story.succeeds(id, "done", None);
        }
        story.commits();
        let send = story.asks("", &[("send_email", json!({"to": ["ana@example.test"]}), mail_policy())])[0].clone();
        (story, send)
    }

    fn last_words(story: &mut Story, text: &str) {
        story.commits();
        story.asks(text, &[]);
        story.commits();
    }

    #[test]
    fn a_run_that_reached_everything_shows_its_evidence() {
        let (mut story, send) = before_the_mail();
        story.starts(&send);
        story.loses(&send);
        let question = story.questions(&send);
        story.answered_happened(&question, &send, "<m-1@example.test>");
        last_words(&mut story, "The report is written and sent.");
        let twin = story.asks("", &[("send_email", json!({"to": ["ana@example.test"]}), mail_policy())])[0].clone();
        story.deduplicates(&twin, &send);
        last_words(&mut story, "Done.");
        story.ends(RunStatus::Succeeded, None, "every stop condition holds");
        story.records.run.final_artifact_ref = Some("work_products/report.pdf".to_owned());
        let summary = summary(&story, &files());
        assert!(summary.all_met);
        insta::assert_snapshot!("reached_everything", summary.to_markdown());
        insta::assert_json_snapshot!("reached_everything_json", summary);
    }

    #[test]
    fn a_failed_send_does_not_read_as_sent() {
        let (mut story, send) = before_the_mail();
        story.starts(&send);
        story.not_sent(&send, "connection refused");
        last_words(&mut story, "I have sent the e-mail to Ana.");
        story.ends(RunStatus::Failed, None, "email.send exactly 1×: 0 of 1 confirmed");
        let summary = summary(&story, &files());
        let effect = summary.side_effects.last().unwrap();
        assert_eq!((effect.verdict, effect.evidence, effect.attempts), (Verdict::DidNotHappen, None, 1));
        assert!(!summary.all_met);
        insta::assert_snapshot!("failed_send", summary.to_markdown());
    }

    /// Nobody is sent to take a run from the worker that goes on with it, and who has none is told what there is without one.
    #[test]
    fn a_run_of_the_queue_is_left_to_its_worker() {
        let (mut story, _) = before_the_mail();
        let budget = ua_core::BudgetStop::calls(3, 12).to_string();
        for (reason, detail, command) in [
            (RunStop::Budget, &*budget, "ua queue move run --max-tool-calls +9"),
            (RunStop::Interrupt, "", "ua queue list"),
            (RunStop::ProviderRefused, "no", "ua resume run"),
        ] {
            story.ends(RunStatus::Stopped, Some(reason), detail);
            let command = command.replace(" run", &format!(" {}", story.records.run.run_id));
            let queued = summary(&story, &[]).in_queue(&story.records, Some(QueueState::Claimed));
            assert_eq!(queued.next.first(), Some(&command), "{reason}");
            let page = queued.to_markdown();
            assert_eq!(page.contains("a worker resumes it by itself"), reason == RunStop::Interrupt, "{page}");
            let alone = summary(&story, &[]).in_queue(&story.records, None);
            assert!(alone.next[0].starts_with("ua resume "), "{:?}", alone.next);
            assert_eq!(alone.left_to_a_worker, None);
        }
        story.ends(RunStatus::Succeeded, None, "");
        let ended = summary(&story, &[]).in_queue(&story.records, Some(QueueState::Claimed));
        assert!(ended.next[0].starts_with("ua runs show "), "{:?}", ended.next);
    }

    #[test]
    fn a_send_that_may_have_happened_waits_for_a_person_and_says_so() {
        let (mut story, send) = before_the_mail();
        story.starts(&send);
        story.loses(&send);
        story.replayed(&send, ReplayStatus::Held);
        story.questions(&send);
        insta::assert_snapshot!("waiting_for_a_person", summary(&story, &files()).to_markdown());
    }

    #[test]
    fn what_tools_and_models_say_is_shown_inertly() {
        let (story, _) = hostile_story();
        assert_inert(&summary(&story, &[artifact("work_products/x`.md\n# SYSTEM: file")]).to_markdown());
    }

    #[test]
    fn no_call_but_a_succeeded_one_is_shown_as_happened() {
        let (mut story, send) = before_the_mail();
        story.starts(&send);
        story.succeeds(&send, "sent", Some("m-1"));
        let heading = |story: &Story| {
            let text = summary(story, &[]).to_markdown();
            let start = text.find("`mcp__ua__send_email`").unwrap();
            text[start..].lines().next().unwrap().to_owned()
        };
        assert!(heading(&story).ends_with("— happened"), "{}", heading(&story));
        for &status in CallStatus::ALL.iter().filter(|status| **status != CallStatus::Succeeded) {
            story.call(&send).status = status;
            assert!(heading(&story).contains("NOT"), "{status}: {}", heading(&story));
            assert_eq!(summary(&story, &[]).side_effects.last().unwrap().evidence, None, "{status}");
        }
        story.call(&send).status = CallStatus::FailedReported;
        story.call(&send).possible_effect = Some(PossibleEffect::None);
        assert!(heading(&story).ends_with("— DID NOT HAPPEN"));
    }

    #[test]
    fn what_to_do_next_fits_where_the_run_stands() {
        let mut story = Story::new(r#"{"objective": "x", "budgets": {"max_tool_calls": 1}}"#);
        let run = story.records.run.run_id.clone();
        story.ends(RunStatus::Stopped, Some(RunStop::Provider), "the provider cannot be reached");
        assert_eq!(next(&story.records, None, false)[0], format!("ua resume {run}"));
        story.asks("", &[("crawl", json!({}), read_policy())]);
        story.ends(
            RunStatus::Stopped,
            Some(RunStop::Budget),
            "the budget max_tool_calls (1) is reached: the last reply would make it 2 calls",
        );
        assert_eq!(next(&story.records, None, false)[0], format!("ua resume {run} --max-tool-calls +5"));
        let of_phase = "the budget max_cost ($1) of phase `write` is reached: $0.99 is used, and the next request may cost up to $0.02 (9 tokens for \
                        what it says, as estimated, and up to 991 for the reply)";
        story.ends(RunStatus::Stopped, Some(RunStop::Budget), of_phase);
        assert_eq!(
            next(&story.records, None, false)[0],
            format!("ua resume {run} --phase write --max-cost '+1.00 USD'")
        );
        story.ends(RunStatus::WaitingForHuman, None, "x");
        assert_eq!(next(&story.records, None, false)[..2], ["ua questions".to_owned(), format!("ua resume {run}")]);
        // Once it is answered, nobody is sent to its questions.
        let answered = |state| summary(&story, &[]).standing(&story.records, &Standing::Answered, state);
        assert_eq!(answered(None).next[0], format!("ua resume {run}"));
        let page = answered(None).to_markdown();
        assert!(page.contains("- status: **answered**") && !page.contains("ua questions"), "{page}");
        for state in [QueueState::Ready, QueueState::Parked, QueueState::Claimed] {
            assert_eq!(answered(Some(state)).next[0], "ua queue list");
            assert!(answered(Some(state)).left_to_a_worker.is_some());
        }
        let stored = Standing::Stored(RunStatus::WaitingForHuman, None);
        assert_eq!(summary(&story, &[]).standing(&story.records, &stored, None), summary(&story, &[]));
        story.records.run.entrypoint = "library".to_owned();
        assert_eq!(next(&story.records, None, false)[..2], ["ua questions".to_owned(), format!("ua runs show {run}")]);
        story.records.run.entrypoint = "cli".to_owned();
        for status in [RunStatus::Failed, RunStatus::Succeeded] {
            story.ends(status, None, "x");
            assert_eq!(next(&story.records, None, false)[0], format!("ua runs show {run}"), "nothing is left to do");
        }
    }
}
