//! What must hold between the runs of a family, which are joined by forks and tasks: what one of them did, another one does again
//! only by a person's word.
//!
//! A *tree* is a run with the sub-agents below it; forks cut trees. Two calls are kin when they ask the same tool for the same with
//! an effect that reaches beyond the workspace, in two trees, and neither belongs to the history that the other one's tree shares:
//! the turns up to its fork point, and the sub-agents that those turns started. Declared effects are known by their content, and no
//! two calls hold their key (`one_claim_per_key`), so they are no business of this statement.

use std::collections::BTreeMap;

use serde_json::Value;
use ua_core::{CallStatus, OnUnknown, RunId, SideEffectClass, Timestamp};

use super::{Violation, Violations};
use crate::lineage::is_task;
use crate::record::{AttemptRecord, CallRecord, QuestionKind, QuestionRecord, RunRecords};

/// Every statement that does not hold between the runs of one family: all runs of one root, and their sub-agents.
pub fn check_family(family: &[RunRecords]) -> Vec<Violation> {
    let mut found = Violations::default();
    let kin = Family::of(family);
    let mut calls: Vec<Candidate<'_>> = family.iter().flat_map(|records| kin.candidates(records)).collect();
    calls.sort_by(|one, other| one.began_at.cmp(&other.began_at).then(one.call.call_id.cmp(&other.call.call_id)));
    for (index, later) in calls.iter().enumerate() {
        let is_unheard = |earlier: &&Candidate<'_>| {
            // Which of them is the earlier one, a clock says that people set.
            let was_heard = later.was_let_go_beside(earlier.call) || earlier.was_let_go_beside(later.call);
            kin.are_kin(earlier, later) && !earlier.is_spoken_of() && !was_heard
        };
        let Some(earlier) = calls[..index].iter().rev().find(is_unheard) else { continue };
        let is_of_a_sub_agent = earlier.is_in_sub_agent || later.is_in_sub_agent;
        let invariant = if is_of_a_sub_agent {
            "kin_of_sub_agents_are_asked_about"
        } else if earlier.was_denied || later.was_denied {
            "kin_of_denied_doubts_are_asked_about"
        } else if later.failed_before {
            "kin_behind_a_failure_are_asked_about"
        } else if earlier.ended_at.is_none_or(|ended| ended > later.began_at) {
            "kin_that_start_at_once_are_asked_about"
        } else {
            "kin_are_asked_about"
        };
        let (before, run) = (&earlier.call.call_id, &earlier.call.run_id);
        let why = format!(
            "`{}` was sent although call {before} of run {run} asks for the same and may have happened; nobody was asked whether it is wanted twice",
            later.call.name.tool
        );
        found.add(invariant, &later.call.call_id, why);
    }
    found.0
}

/// A call that may have had its effect.
struct Candidate<'a> {
    call: &'a CallRecord,
    /// When the attempt began that may have had it: the first that was not turned away.
    began_at: Timestamp,
    /// When that attempt ended, if it did.
    ended_at: Option<Timestamp>,
    /// Earlier ones were turned away, or never left.
    failed_before: bool,
    /// An attempt was lost, and a later one turned away, which took the call for one that had not happened.
    was_denied: bool,
    /// What persons answered about it.
    answered: Vec<&'a QuestionRecord>,
    is_in_sub_agent: bool,
    /// The run at the top of its tree, and the turn of that run that it belongs to.
    top: &'a RunId,
    turn: u32,
}

impl Candidate<'_> {
    /// Whether a person said what came of it, or put its record right: what was sent in between went by what was known before.
    fn is_spoken_of(&self) -> bool {
        self.call.correction.is_some() || self.answered.iter().any(|asked| asked.kind == QuestionKind::UnknownOutcome)
    }

    /// Whether a person let it go out, or put its record right, who was shown the other call.
    fn was_let_go_beside(&self, other: &CallRecord) -> bool {
        let shows = |asked: &&QuestionRecord| match asked.detail.get("others").and_then(Value::as_array) {
            Some(others) => {
                // Of those that stand alike it names the newest, and says how many they are.
                let stands_for_more = |one: &Value| one.get("count").and_then(Value::as_u64).unwrap_or(1) > 1;
                let is_it = |one: &Value| one.get("call").and_then(Value::as_str) == Some(other.call_id.as_str());
                others.iter().any(|one| is_it(one) || stands_for_more(one))
            }
            // A question of an earlier version names it in words only.
            None => true,
        };
        let is_about_others =
            |asked: &&QuestionRecord| matches!(asked.kind, QuestionKind::NearDuplicate | QuestionKind::UnknownOutcome);
        self.call.correction.is_some()
            || self.answered.iter().copied().filter(|asked| is_about_others(asked)).any(|asked| shows(&asked))
    }
}

/// Who belongs to whom.
struct Family<'a> {
    runs: BTreeMap<&'a RunId, &'a RunRecords>,
    /// The task that a run works on: whose it is, and in which turn.
    tasks: BTreeMap<RunId, (&'a RunId, u32)>,
}

impl<'a> Family<'a> {
    fn of(family: &'a [RunRecords]) -> Self {
        let runs = family.iter().map(|records| (&records.run.run_id, records)).collect();
        let calls = family.iter().flat_map(|records| &records.calls).filter(|call| call.name.is_task());
        let tasks = calls.map(|call| (RunId::of_task(&call.call_id), (&call.run_id, call.position.turn))).collect();
        Self { runs, tasks }
    }

    /// The run at the top of a tree, and the turn of it that leads to `turn` of `run`.
    fn top(&self, run: &'a RunId, turn: u32) -> (&'a RunId, u32) {
        let (mut run, mut turn) = (run, turn);
        // Each step goes one level up; a database in which they form a ring is damaged, and other statements say so.
        for _ in 0..self.runs.len() {
            let Some((above, at)) = self.tasks.get(run).copied() else { break };
            (run, turn) = (above, at);
        }
        (run, turn)
    }

    fn candidates(&self, records: &'a RunRecords) -> Vec<Candidate<'a>> {
        if !records.run.spec.constraints.no_duplicate_external_actions {
            return Vec::new();
        }
        records.calls.iter().filter_map(|call| self.candidate(records, call)).collect()
    }

    fn candidate(&self, records: &'a RunRecords, call: &'a CallRecord) -> Option<Candidate<'a>> {
        let reaches_others = matches!(call.policy.class, SideEffectClass::External | SideEffectClass::Memory);
        // A failure that was reported is the model's to know, and it may try again.
        let may_have_happened =
            matches!(call.status, CallStatus::Running | CallStatus::Unknown | CallStatus::Succeeded)
                && call.deduplicated_from.is_none();
        // What may simply be done again (`redo`) does no harm twice.
        let is_harmless = call.policy.on_unknown == OnUnknown::Redo || call.name.is_task();
        if !reaches_others || !may_have_happened || call.policy.is_by_content() || is_harmless {
            return None;
        }
        let mut attempts: Vec<&AttemptRecord> =
            records.attempts.iter().filter(|attempt| attempt.call_id == call.call_id).collect();
        attempts.sort_by_key(|attempt| attempt.attempt);
        let first = attempts.iter().position(|attempt| !was_turned_away(records, attempt))?;
        let is_about_it =
            |question: &&QuestionRecord| question.call_id.as_ref() == Some(&call.call_id) && question.answer.is_some();
        let answered = records.questions.iter().filter(is_about_it).collect();
        let (top, turn) = self.top(&records.run.run_id, call.position.turn);
        Some(Candidate {
            call,
            began_at: attempts[first].started_at,
            ended_at: attempts[first].ended_at,
            failed_before: first > 0,
            was_denied: attempts[first].was_lost()
                && attempts[first..].iter().any(|attempt| was_turned_away(records, attempt)),
            answered,
            is_in_sub_agent: is_task(&records.run),
            top,
            turn,
        })
    }

    fn are_kin(&self, one: &Candidate<'_>, other: &Candidate<'_>) -> bool {
        let is_same = one.call.name == other.call.name && one.call.args_hash == other.call.args_hash;
        is_same && one.top != other.top && !self.is_shared(one, other.top) && !self.is_shared(other, one.top)
    }

    /// Whether a call belongs to the history that the run `by` shares with others.
    fn is_shared(&self, call: &Candidate<'_>, by: &RunId) -> bool {
        let mut upto = u32::MAX;
        let mut run = self.runs.get(by);
        for _ in 0..self.runs.len() {
            let Some(records) = run else { return false };
            let (Some(point), Some(parent)) = (records.run.forked_at, &records.run.parent_run_id) else { return false };
            upto = upto.min(point.turn);
            if parent == call.top {
                return call.turn <= upto;
            }
            run = self.runs.get(parent);
        }
        false
    }
}

/// An attempt that provably did nothing.
fn was_turned_away(records: &RunRecords, attempt: &AttemptRecord) -> bool {
    let receipt = records.receipts.iter().find(|receipt| {
        receipt.call_id == attempt.call_id && receipt.attempt == attempt.attempt && receipt.settlement.is_some()
    });
    let status = receipt.and_then(|receipt| receipt.settlement.as_ref()).map(|settlement| settlement.status);
    attempt.never_left() || status == Some(CallStatus::FailedDefinite)
}

#[cfg(all(test, feature = "conformance"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

    use ua_core::{CallPolicy, CallStatus, CorrectedTo, EffectKind, PlannedCall, TASK_MODE};

    use super::*;

    use crate::conformance::{Scene, samples};
    use crate::{Choice, LedgerStore as _, MemStore, RunStore as _};

    fn deploy(id: &str, turn: u32, ordinal: u32) -> PlannedCall {
        PlannedCall { policy: CallPolicy::unclassified().into(), ..samples::planned_call(id, turn, ordinal) }
    }

    /// A run and a fork of its beginning that made the same call, each itself.
    async fn two() -> Vec<RunRecords> {
        let store = MemStore::default();
        let run = Scene::begin(&store, "run_1").await;
        run.turn(vec![deploy("call_1", 1, 1)]).await;
        run.bring("call_1", CallStatus::Succeeded).await;
        store.fork_run(samples::new_fork("run_2", "run_1", 0)).await.unwrap();
        let fork = Scene::take(&store, "run_2").await;
        fork.turn(vec![deploy("call_2", 1, 1)]).await;
        fork.bring("call_2", CallStatus::Succeeded).await;
        let mut family = vec![run.records().await, fork.records().await];
        family[1].attempts[0].started_at = samples::at(30);
        family
    }

    /// The second one's call is that of a sub-agent of it.
    fn delegated(family: &mut Vec<RunRecords>) {
        let mut child = family[1].clone();
        let mut task = child.calls[0].clone();
        task.call_id = samples::call_id("call_task");
        task.name = ua_core::ToolName::task();
        let id = RunId::of_task(&task.call_id);
        family[1].calls = vec![task];
        family[1].attempts.clear();
        child.run.run_id = id.clone();
        TASK_MODE.clone_into(&mut child.run.run_mode);
        child.run.parent_run_id = Some(family[1].run.run_id.clone());
        child.run.forked_at = None;
        child.calls[0].run_id = id;
        family.push(child);
    }

    fn broken(family: &[RunRecords]) -> Vec<&'static str> {
        check_family(family).into_iter().map(|one| one.invariant).collect()
    }

    #[tokio::test]
    async fn the_same_call_of_two_trees_is_seen_and_told_by_what_led_to_it() {
        let family = two().await;
        assert_eq!(broken(&family), ["kin_are_asked_about"]);
        assert_eq!(check_family(&family)[0].known(), None);

        let mut at_once = family.clone();
        at_once[0].attempts[0].ended_at = Some(samples::at(70));
        assert_eq!(broken(&at_once), ["kin_that_start_at_once_are_asked_about"]);

        let mut by_a_sub_agent = family.clone();
        delegated(&mut by_a_sub_agent);
        assert_eq!(broken(&by_a_sub_agent), ["kin_of_sub_agents_are_asked_about"]);
        assert!(check_family(&by_a_sub_agent)[0].known().is_some());

        let mut behind_a_denial = family.clone();
        let records = &mut behind_a_denial[0];
        for (attempt, outcome) in [(2, "not_sent"), (3, "replied")] {
            let mut again = records.attempts[0].clone();
            (again.attempt, again.outcome) = (attempt, Some(outcome.to_owned()));
            records.attempts.push(again);
        }
        records.attempts[0].outcome = Some("lost".to_owned());
        assert_eq!(broken(&behind_a_denial), ["kin_of_denied_doubts_are_asked_about"]);

        let mut behind_a_failure = family;
        let records = &mut behind_a_failure[1];
        let mut again = records.attempts[0].clone();
        again.attempt = 2;
        records.attempts[0].outcome = Some("not_sent".to_owned());
        records.attempts.push(again);
        records.receipts[0].attempt = 2;
        assert_eq!(broken(&behind_a_failure), ["kin_behind_a_failure_are_asked_about"]);
    }

    #[tokio::test]
    async fn what_is_no_repetition_is_not_told() {
        type Change = fn(&mut Vec<RunRecords>);
        let changes: [(&str, Change); 9] = [
            ("it may be done again", |f| f[1].calls[0].policy.on_unknown = OnUnknown::Redo),
            ("other arguments", |f| f[1].calls[0].args_hash = ua_core::sha256("other")),
            ("it only looks", |f| f[1].calls[0].policy.class = SideEffectClass::ReadOnly),
            ("a workspace of its own", |f| f[1].calls[0].policy.class = SideEffectClass::Local),
            ("it is declared", |f| f[1].calls[0].policy.effect_kind = EffectKind::parse("email.send")),
            ("it failed", |f| f[1].calls[0].status = CallStatus::FailedReported),
            ("the receipt of the first answers it", |f| {
                f[1].calls[0].deduplicated_from = Some(f[0].calls[0].call_id.clone());
            }),
            ("the first is part of the fork's history", |f| {
                if let Some(point) = &mut f[1].run.forked_at {
                    point.turn = 1;
                }
            }),
            ("the job wants it so", |f| {
                std::sync::Arc::make_mut(&mut f[1].run.spec).constraints.no_duplicate_external_actions = false;
            }),
        ];
        for (why, change) in changes {
            let mut family = two().await;
            change(&mut family);
            assert_eq!(broken(&family), [""; 0], "{why}");
        }
    }

    #[tokio::test]
    async fn a_person_may_say_first_that_it_did_not_happen_and_then_that_it_did() {
        let store = MemStore::default();
        let run = Scene::begin(&store, "run_1").await;
        run.turn(vec![deploy("call_1", 1, 1)]).await;
        let call = run.bring("call_1", CallStatus::Succeeded).await;
        run.commit(1).await;
        let call = store.correct_call(samples::correct(&call, CorrectedTo::NotHappened, 70)).await.unwrap();
        store.fork_run(samples::new_fork("run_2", "run_1", 0)).await.unwrap();
        let fork = Scene::take(&store, "run_2").await;
        fork.turn(vec![deploy("call_2", 1, 1)]).await;
        fork.bring("call_2", CallStatus::Succeeded).await;
        store.correct_call(samples::correct(&call, CorrectedTo::Happened, 80)).await.unwrap();
        assert_eq!(broken(&[run.records().await, fork.records().await]), [""; 0]);
    }

    #[tokio::test]
    async fn a_person_may_want_it_twice() {
        let store = MemStore::default();
        let run = Scene::begin(&store, "run_1").await;
        run.turn(vec![deploy("call_1", 1, 1)]).await;
        run.bring("call_1", CallStatus::Succeeded).await;
        store.fork_run(samples::new_fork("run_2", "run_1", 0)).await.unwrap();
        let fork = Scene::take(&store, "run_2").await;
        fork.turn(vec![deploy("call_2", 1, 1)]).await;
        store.raise_question(&fork.lease, samples::question("q_1", Some("call_2"))).await.unwrap();
        store.insert_answer(samples::answer("q_1", Choice::Execute)).await.unwrap();
        fork.bring("call_2", CallStatus::Succeeded).await;
        assert_eq!(broken(&[run.records().await, fork.records().await]), [""; 0]);
    }
}
