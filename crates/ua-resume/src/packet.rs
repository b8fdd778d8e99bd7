//! The resume packet: what a run that was interrupted has to know about itself to go on.
//!
//! Spec: Durable runner, current state §5 (what it holds) and §7 (the replay note); Durable Jobs v1 spec §9.2 (what is not
//! run again). A pure function of stored records, of what was decided about the calls in flight, and of the files found.

use serde::Serialize;
use ua_core::{
    CallId, CallStatus, CheckpointId, Position, RunId, RunStatus, RunStop, SideEffectClass, StepId, StepStatus,
    Timestamp,
};
use ua_store::{CallRecord, CheckpointKind, QuestionRecord, QuestionStatus, ReplayStatus, RunRecords};

use crate::budget::{self, BudgetLine};
use crate::commands::Commands;
use crate::lives::{LifeEnd, lives};
use crate::question::QuestionLine;
use crate::standing::Standing;
use crate::words::processes_words;
use ua_evidence::artifact::{Artifact, ReadFirst, read_first};
use ua_evidence::call_line::{CallLine, external_id, shown_arguments};
use ua_evidence::corpus::{CorpusLine, corpus_lines};
use ua_evidence::quote::{clean, cut};
use ua_evidence::verdict::{Verdict, is_in_flight};

/// How many of the newest calls are told.
const RECENT_CALLS: usize = 12;

/// What a resume decided about one call that was in flight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// The call.
    pub call_id: CallId,
    /// The tool, as the model named it.
    pub tool: String,
    /// Where the call stood when the resume found it.
    pub was: CallStatus,
    /// What was done.
    pub action: ReplayStatus,
    /// Why, in a sentence.
    pub why: String,
}

/// A call that was in flight, with what was decided about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InFlight {
    /// The decision; `None` while nothing was decided.
    pub decision: Option<Decision>,
    /// The call as it stands now; `None` when the decision names a call the records do not have.
    pub call: Option<CallLine>,
}

/// The step that is being executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepLine {
    /// Its id.
    pub step_id: StepId,
    /// Its number in the run, from 1.
    pub step_index: u32,
    /// Its phase.
    pub phase: String,
    /// Where it stands.
    pub status: StepStatus,
}

/// The newest checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckpointLine {
    /// Its id.
    pub checkpoint_id: CheckpointId,
    /// Why it was made.
    pub kind: CheckpointKind,
    /// When.
    pub created_at: Timestamp,
}

/// An effect that happened or may have happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PastEffect {
    /// The call that had it.
    pub call_id: CallId,
    /// The tool, as the model named it.
    pub tool: String,
    /// Where the call stands in the run.
    pub position: Position,
    /// What it touched.
    pub class: SideEffectClass,
    /// Whether it happened.
    pub verdict: Verdict,
    /// What the effect is, whatever its wording; its arguments where no scope is declared. Foreign text.
    pub subject: String,
    /// When the call was last sent or answered.
    pub at: Timestamp,
    /// The other side's name for what happened.
    pub external_id: Option<String>,
}

/// What a run that was interrupted has to know to go on.
///
/// [`to_markdown`](Self::to_markdown) writes it for people and models, serde writes it for programs; both say the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResumePacket {
    /// The run.
    pub run_id: RunId,
    /// Where it stands.
    pub status: RunStatus,
    /// The same as people are told it, where what is around the run says more than what is stored of it: `answered`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shown_status: Option<String>,
    /// Why it is stopped.
    pub stop_reason: Option<RunStop>,
    /// A sentence about the status.
    pub status_detail: Option<String>,
    /// How many processes drove it, and how many of them were killed, in words.
    pub processes: String,
    /// What is to be reached.
    pub objective: String,
    /// Its folder.
    pub workspace_dir: String,
    /// The step being executed.
    pub step: Option<StepLine>,
    /// Phases that have not started, in order.
    pub remaining_phases: Vec<String>,
    /// The iteration that is worked on, and how many may begin; `None` for a job without a harness.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iteration: Option<(u32, u32)>,
    /// Number of committed turns.
    pub turn_index: u32,
    /// The turn that is recorded and not committed.
    pub open_turn: Option<u32>,
    /// The newest checkpoint.
    pub checkpoint: Option<CheckpointLine>,
    /// What was used of the budgets.
    pub budgets: Vec<BudgetLine>,
    /// Calls that were in flight, or still are.
    pub in_flight: Vec<InFlight>,
    /// Questions that are not closed.
    pub questions: Vec<QuestionLine>,
    /// Effects that happened or may have happened, oldest first.
    pub do_not_repeat: Vec<PastEffect>,
    /// The newest calls, oldest first.
    pub recent_calls: Vec<CallLine>,
    /// Files of the workspace.
    pub artifacts: Vec<Artifact>,
    /// Files to read before going on.
    pub read_first: Vec<ReadFirst>,
    /// Refined corpora that were cached with a checkpoint, and whether they are still there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub corpora: Vec<CorpusLine>,
    /// How the process before this one left the run.
    #[serde(skip)]
    pub left: HowLeft,
}

/// How a run was left before it was resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HowLeft {
    /// Its process was killed, or nothing more is known of it.
    Interrupted,
    /// It waited, and was answered since.
    Waiting,
    /// It was stopped.
    Stopped,
}

impl HowLeft {
    fn of(records: &RunRecords) -> Self {
        let mut lives = lives(records);
        // The last one is whoever resumes it.
        lives.pop();
        let Some(before) = lives.pop() else { return Self::Interrupted };
        let was_answered = |question: &QuestionRecord| {
            question.answer.as_ref().is_some_and(|answer| answer.answered_at >= before.last_seen_at)
        };
        match before.end {
            LifeEnd::InOrder if records.questions.iter().any(was_answered) => Self::Waiting,
            LifeEnd::InOrder => Self::Stopped,
            LifeEnd::Killed | LifeEnd::Interrupted | LifeEnd::Dropped | LifeEnd::Open | LifeEnd::NotRemembered => {
                Self::Interrupted
            }
        }
    }

    /// What the model is told happened to its run.
    pub(crate) const fn in_words(self) -> &'static str {
        match self {
            Self::Interrupted => "was interrupted",
            Self::Waiting => "waited for a person, who has answered,",
            Self::Stopped => "was stopped",
        }
    }
}

impl ResumePacket {
    /// Puts the packet together. `decisions` say what this resume did with the calls it found in flight; calls that are
    /// still in flight and have no decision are listed as undecided.
    pub fn new(records: &RunRecords, decisions: &[Decision], artifacts: &[Artifact]) -> Self {
        let run = &records.run;
        let corpora = corpus_lines(records, artifacts);
        Self {
            iteration: records.max_iterations().map(|of| (run.iteration_count, of)),
            read_first: read_first(artifacts, &corpora),
            corpora,
            left: HowLeft::of(records),
            run_id: run.run_id.clone(),
            status: run.status,
            shown_status: None,
            stop_reason: run.stop_reason,
            status_detail: run.status_detail.as_deref().map(clean),
            processes: processes_words(records),
            objective: clean(&run.spec.objective),
            workspace_dir: run.workspace_dir.clone(),
            step: current_step(records),
            remaining_phases: remaining_phases(records),
            turn_index: run.turn_index,
            open_turn: records.open_turn().map(|turn| turn.turn),
            checkpoint: newest_checkpoint(records),
            budgets: budget::lines(records),
            in_flight: in_flight(records, decisions),
            questions: records
                .questions
                .iter()
                .filter(|q| q.status != QuestionStatus::Closed)
                .map(|question| QuestionLine::of_run(question, run))
                .collect(),
            do_not_repeat: past_effects(records),
            recent_calls: recent_calls(records),
            artifacts: artifacts.to_vec(),
        }
    }

    /// The same of a run that stands like this: what is stored of it does not say that its questions are answered.
    #[must_use]
    pub fn standing(mut self, standing: &Standing) -> Self {
        self.shown_status = standing.beside_what_is_stored();
        self.questions = self.questions.into_iter().map(|question| question.standing(standing)).collect();
        self
    }

    /// The same for people who read it as a file: its commands name the folder in which they find the run.
    #[must_use]
    pub fn naming(mut self, commands: &Commands) -> Self {
        self.questions = self.questions.into_iter().map(|question| question.naming(commands)).collect();
        self
    }
}

fn current_step(records: &RunRecords) -> Option<StepLine> {
    records.current_step().map(|step| StepLine {
        step_id: step.step_id.clone(),
        step_index: step.step_index,
        phase: clean(&step.phase),
        status: step.status,
    })
}

fn remaining_phases(records: &RunRecords) -> Vec<String> {
    let spec = &records.run.spec;
    match records.current_step() {
        Some(step) => spec.phases_after(&step.phase),
        None => spec.phases.iter().map(|phase| phase.name.clone()).collect(),
    }
}

fn newest_checkpoint(records: &RunRecords) -> Option<CheckpointLine> {
    records.checkpoints.last().map(|checkpoint| CheckpointLine {
        checkpoint_id: checkpoint.checkpoint_id.clone(),
        kind: checkpoint.kind,
        created_at: checkpoint.created_at,
    })
}

/// The decided calls in the order of their decisions, then those that are in flight without one.
fn in_flight(records: &RunRecords, decisions: &[Decision]) -> Vec<InFlight> {
    let decided = decisions.iter().map(|decision| InFlight {
        decision: Some(Decision { tool: clean(&decision.tool), why: clean(&decision.why), ..decision.clone() }),
        call: records.call(&decision.call_id).map(|call| CallLine::of(records, call)),
    });
    let undecided = records
        .calls
        .iter()
        .filter(|call| is_in_flight(call) && !decisions.iter().any(|decision| decision.call_id == call.call_id))
        .map(|call| InFlight { decision: None, call: Some(CallLine::of(records, call)) });
    decided.chain(undecided).collect()
}

fn recent_calls(records: &RunRecords) -> Vec<CallLine> {
    let skipped = records.calls.len().saturating_sub(RECENT_CALLS);
    records.calls[skipped..].iter().map(|call| CallLine::of(records, call)).collect()
}

fn past_effects(records: &RunRecords) -> Vec<PastEffect> {
    let may_not_be_repeated = |call: &&CallRecord| call.policy.class.has_effect() && Verdict::of(call).forbids_repeat();
    let below = records.lineage.sub_agents.iter().flat_map(|child| &child.effects);
    let lineage = records.lineage.calls.iter().chain(&records.lineage.shared_effects);
    let lineage = lineage.chain(&records.lineage.elsewhere).chain(below);
    lineage
        .chain(&records.calls)
        .filter(may_not_be_repeated)
        .map(|call| PastEffect {
            call_id: call.call_id.clone(),
            tool: clean(&call.name.raw),
            position: call.position,
            class: call.policy.class,
            verdict: Verdict::of(call),
            subject: subject(call),
            at: call.updated_at,
            external_id: external_id(&records.receipts, call),
        })
        .collect()
}

fn subject(call: &CallRecord) -> String {
    let limit = 240;
    // The scope of a whole call is a digest, which tells nobody what was done.
    let named = call.scope.as_ref().filter(|scope| !scope.is_of_whole_call());
    named.map_or_else(|| shown_arguments(call, limit), |scope| cut(&clean(scope.as_str()), limit))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use ua_core::{Audience, PossibleEffect, Resolution};

    use super::*;
    use ua_evidence::testing::{Story, artifact, assert_inert, hostile_story, mail_policy, read_policy, write_policy};

    const JOB: &str = r#"{
        "objective": "Write the report and mail it to ana@example.test.",
        "stop_conditions": ["email_sent_once"],
        "budgets": {"max_tool_calls": 20, "max_turns": 30}
    }"#;

    /// One turn that read a page and wrote the report, then a turn that asked for the e-mail.
    fn before_the_mail() -> (Story, CallId) {
        let mut story = Story::new(JOB);
        let ids = story.asks(
            "I read the source and write the report.",
            &[
                ("crawl", json!({"urls": ["http://127.0.0.1/a"]}), read_policy()),
                (
                    "write_local_file",
                    json!({"path": "work_products/report.html", "content": "<h1>Report</h1>"}),
                    write_policy(),
                ),
            ],
        );
        story.starts(&ids[0]);
        story.succeeds(&ids[0], "# A page\n\nSome text.", None);
        story.starts(&ids[1]);
        story.succeeds(&ids[1], "wrote 15 bytes", None);
        story.commits();
        let mail =
            json!({"to": ["ana@example.test"], "subject": "Report", "attachments": ["work_products/report.html"]});
        let send = story.asks("Now I send it.", &[("send_email", mail, mail_policy())])[0].clone();
        (story, send)
    }

    fn decision(story: &Story, id: &CallId, was: CallStatus, action: ReplayStatus, why: &str) -> Decision {
        let tool = story.records.call(id).unwrap().name.raw.clone();
        Decision { call_id: id.clone(), tool, was, action, why: why.to_owned() }
    }

    fn files() -> Vec<Artifact> {
        vec![artifact("tasks/t1/refined_corpus.md"), artifact("work_products/report.html")]
    }

    /// The packet and the note, as they are written.
    fn shown(packet: &ResumePacket) -> String {
        format!("{}\n=== note ===\n{}", packet.to_markdown(), packet.replay_note(Audience::Terminal))
    }

    #[test]
    fn after_a_crash_before_the_send_the_call_is_run_for_the_first_time() {
        let (mut story, send) = before_the_mail();
        story.resumes();
        let why = "it was planned and never sent";
        let decided = decision(&story, &send, CallStatus::Prepared, ReplayStatus::Executed, why);
        let undecided = ResumePacket::new(&story.records, &[], &files());
        assert_eq!(undecided.in_flight.len(), 1);
        assert_eq!(undecided.in_flight[0].decision, None);
        insta::assert_snapshot!("fresh_crash", shown(&ResumePacket::new(&story.records, &[decided], &files())));
    }

    #[test]
    fn an_uninterpreted_receipt_is_read_and_the_call_is_not_run_again() {
        let (mut story, send) = before_the_mail();
        story.starts(&send);
        story.replies(&send, "{\"message_id\": \"<m-1@example.test>\"}");
        let found = ResumePacket::new(&story.records, &[], &files());
        assert!(found.recent_calls[2].is_uninterpreted);
        assert_eq!(found.recent_calls[2].evidence, None, "a reply nobody read vouches for nothing");

        story.resumes();
        story.succeeds(&send, "{\"message_id\": \"<m-1@example.test>\"}", Some("<m-1@example.test>"));
        story.replayed(&send, ReplayStatus::Interpreted);
        let decided = decision(
            &story,
            &send,
            CallStatus::Running,
            ReplayStatus::Interpreted,
            "its reply was stored before the crash",
        );
        insta::assert_snapshot!(
            "uninterpreted_receipt",
            shown(&ResumePacket::new(&story.records, &[decided], &files()))
        );
    }

    #[test]
    fn an_unknown_call_is_held_and_the_commands_that_answer_are_named() {
        let (mut story, send) = before_the_mail();
        story.starts(&send);
        story.loses(&send);
        story.replayed(&send, ReplayStatus::Held);
        story.questions(&send);
        let why = "the tool can neither take an idempotency key nor be asked afterwards";
        let decided = decision(&story, &send, CallStatus::Running, ReplayStatus::Held, why);
        let packet = ResumePacket::new(&story.records, &[decided], &files());
        assert_eq!(packet.do_not_repeat.last().map(|effect| effect.verdict), Some(Verdict::MayHaveHappened));
        insta::assert_snapshot!("unknown_call_held", shown(&packet));
    }

    #[test]
    fn after_an_answer_the_call_is_settled_by_a_persons_word() {
        let (mut story, send) = before_the_mail();
        story.starts(&send);
        story.loses(&send);
        let question = story.questions(&send);
        story.answered_happened(&question, &send, "<m-1@example.test>");
        let decided =
            decision(&story, &send, CallStatus::Unknown, ReplayStatus::Reconciled, "cli:ana says that it happened");
        let packet = ResumePacket::new(&story.records, &[decided], &files());
        assert!(packet.questions.is_empty());
        insta::assert_snapshot!("after_an_answer", shown(&packet));
    }

    #[test]
    fn the_model_is_told_how_its_run_was_left() {
        let told = |story: &Story| {
            let note = ResumePacket::new(&story.records, &[], &[]).replay_note(Audience::Terminal);
            note.split_once(" and has been resumed").unwrap().0.rsplit_once(") ").unwrap().1.to_owned()
        };
        let (mut killed, _) = before_the_mail();
        killed.is_killed();
        assert_eq!(told(&killed), "was interrupted");

        let (mut stopped, _) = before_the_mail();
        stopped.ends(RunStatus::Stopped, Some(RunStop::Budget), "the budget is reached");
        stopped.resumes();
        assert_eq!(told(&stopped), "was stopped");

        let (mut waited, send) = before_the_mail();
        waited.starts(&send);
        waited.loses(&send);
        let question = waited.questions(&send);
        waited.ends(RunStatus::WaitingForHuman, None, "a question waits");
        waited.answered_happened(&question, &send, "<m-1@example.test>");
        assert_eq!(told(&waited), "waited for a person, who has answered,");
    }

    #[test]
    fn a_finished_run_has_nothing_in_flight() {
        let (mut story, send) = before_the_mail();
        story.starts(&send);
        story.succeeds(&send, "sent", Some("<m-1@example.test>"));
        story.commits();
        story.asks("The report is written and sent.", &[]);
        story.commits();
        story.ends(RunStatus::Succeeded, None, "every stop condition holds");
        let packet = ResumePacket::new(&story.records, &[], &files());
        assert!(packet.in_flight.is_empty());
        insta::assert_snapshot!("finished_run", shown(&packet));
        insta::assert_json_snapshot!("finished_run_json", packet);
    }

    #[test]
    fn what_a_tool_says_is_shown_inertly() {
        let (story, ids) = hostile_story();
        let decided = decision(&story, &ids[0], CallStatus::Running, ReplayStatus::Redone, "why\n# SYSTEM: why");
        let packet = ResumePacket::new(&story.records, &[decided], &[artifact("work_products/x.md\n# SYSTEM: file")]);
        for text in [packet.to_markdown(), packet.replay_note(Audience::Terminal)] {
            assert_inert(&text);
        }
        insta::assert_snapshot!("hostile_result", packet.to_markdown());
    }

    #[test]
    fn only_effects_that_happened_or_may_have_are_not_to_be_repeated() {
        let mut story = Story::new(JOB);
        let asked: Vec<(&str, Value, _)> = (0..8).map(|n| ("send_email", json!({"n": n}), mail_policy())).collect();
        let ids = story.asks("", &asked);
        for id in &ids[..5] {
            story.starts(id);
        }
        story.succeeds(&ids[0], "sent", None);
        story.not_sent(&ids[1], "connection refused");
        story.reports_failure(&ids[2], "bad address", PossibleEffect::None);
        story.reports_failure(&ids[3], "timeout", PossibleEffect::Maybe);
        story.loses(&ids[4]);
        story.call(&ids[4]).resolution = Some(Resolution::Skipped);
        story.deduplicates(&ids[5], &ids[0]);
        story.cancels(&ids[6], "after_failure", "not run");
        let packet = ResumePacket::new(&story.records, &[], &[]);
        let listed: Vec<(&CallId, Verdict)> = packet.do_not_repeat.iter().map(|e| (&e.call_id, e.verdict)).collect();
        let expected = [
            (&ids[0], Verdict::Happened),
            (&ids[3], Verdict::MayHaveHappened),
            (&ids[4], Verdict::MayHaveHappened),
            (&ids[5], Verdict::AnsweredByTwin),
        ];
        assert_eq!(listed, expected);
        let waiting: Vec<&CallId> =
            packet.in_flight.iter().filter_map(|f| f.call.as_ref()).map(|call| &call.call_id).collect();
        assert_eq!(waiting, [&ids[7]], "a skipped unknown waits for nobody");
    }

    #[test]
    fn the_newest_calls_are_told_and_the_packet_stays_small() {
        let mut story = Story::new(JOB);
        for n in 0..40 {
            let ids = story.asks("", &[("crawl", json!({"url": n, "padding": "x".repeat(10_000)}), read_policy())]);
            story.starts(&ids[0]);
            story.succeeds(&ids[0], &"long text ".repeat(5_000), None);
            story.commits();
        }
        let packet = ResumePacket::new(&story.records, &[], &[]);
        assert_eq!(packet.recent_calls.len(), RECENT_CALLS);
        assert_eq!(packet.recent_calls.last().map(|call| call.position.turn), Some(40));
        assert!(packet.to_markdown().len() < 20_000, "{}", packet.to_markdown().len());
        assert!(packet.replay_note(Audience::Terminal).len() < 2_000);
    }

    #[test]
    fn the_same_records_give_the_same_packet() {
        let (one, _) = before_the_mail();
        let (two, _) = before_the_mail();
        assert_eq!(ResumePacket::new(&one.records, &[], &files()), ResumePacket::new(&two.records, &[], &files()));
    }
}
