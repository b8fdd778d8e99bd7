//! Runs that share rows with others: forks, lineages, job keys.

use ua_core::{CallId, Origin, RunId, Scope};

use super::model::Model;
use crate::error::{RowRef, StoreError};
use crate::lineage::LineageRecords;
use crate::record::{CallRecord, MessageRecord, ReceiptRecord, RunRecord};
use crate::relations::{Related, Relations};
use crate::rules;

/// Sorts calls of any run by age, and calls of one write by where they stand.
pub(super) fn oldest_first(mut calls: Vec<CallRecord>) -> Vec<CallRecord> {
    calls.sort_by_key(|call| (call.created_at, call.run_id.clone(), call.position));
    calls
}

impl Model {
    pub(super) fn check_new_run(&self, run: &RunRecord) -> Result<(), StoreError> {
        if self.deleted.contains(&run.run_id) {
            return Err(StoreError::Exists { row: RowRef::new("deleted_runs", &run.run_id) });
        }
        if self.runs.iter().any(|other| other.run_id == run.run_id) {
            return Err(StoreError::Exists { row: RowRef::new("runs", &run.run_id) });
        }
        Ok(())
    }

    /// Refuses a job key that a run of another lineage has.
    pub(super) fn check_job_key(&self, run: &RunRecord) -> Result<(), StoreError> {
        let is_twin = |other: &&RunRecord| other.job_key == run.job_key && other.root_run_id != run.root_run_id;
        if let (Some(key), Some(other)) = (&run.job_key, self.runs.iter().find(is_twin)) {
            return Err(StoreError::Exists { row: RowRef::new("runs", format!("{} of job key {key}", other.run_id)) });
        }
        Ok(())
    }

    pub(super) fn run_of_job_key(&self, job_key: &str) -> Option<RunRecord> {
        let mut runs = self.newest_runs();
        runs.retain(|run| run.job_key.as_deref() == Some(job_key));
        runs.sort_by_key(|run| run.status.is_terminal());
        runs.into_iter().next()
    }

    /// All messages of a run in order: its prompt, what it shares, its own.
    pub(super) fn whole_history(&self, run: &RunRecord) -> Result<Vec<MessageRecord>, StoreError> {
        let mut messages: Vec<MessageRecord> = self.messages_of(&run.run_id).cloned().collect();
        for part in rules::shared_parts(run, |id| self.run(id))? {
            let is_shared = |message: &&MessageRecord| (2..=part.upto.seq).contains(&message.seq);
            messages.extend(self.messages_of(&part.run_id).filter(is_shared).cloned());
        }
        messages.sort_by_key(|message| message.seq);
        Ok(messages)
    }

    /// Where turn `turn` of the run's history ends: the place of its last message, and the provider's conversation id of it.
    pub(super) fn end_of_turn(&self, run: &RunRecord, turn: u32) -> Result<(u64, Option<String>), StoreError> {
        let belongs = |message: &&MessageRecord| {
            message.turn <= turn && matches!(message.message.origin, Origin::Prompt | Origin::Model | Origin::Tools)
        };
        let last = self.whole_history(run)?.iter().filter(belongs).map(|message| message.seq).max().unwrap_or(1);
        let lineage = self.lineage_of(run)?;
        let own = self.turns.iter().filter(|own| own.run_id == run.run_id);
        let found = own.chain(&lineage.turns).find(|own| own.turn == turn);
        Ok((last, found.and_then(|turn| turn.reply.response_id.clone())))
    }

    /// What other trees of the family may have done outside the history that the run shares with them.
    pub(super) fn effects_elsewhere(&self, run: &RunRecord) -> Result<Vec<CallRecord>, StoreError> {
        let is_kin = |member: &&RunRecord| member.root_run_id == run.root_run_id;
        let family: Vec<RunRecord> = self.runs.iter().filter(is_kin).cloned().collect();
        let turn_of = |call: &CallId| Ok::<_, StoreError>(self.call(call)?.position.turn);
        let mut found = Vec::new();
        for kin in rules::kin_of(run, &family, turn_of)? {
            let calls = self.calls_of(&kin.run_id, None).into_iter();
            found.extend(calls.filter(|call| call.position.turn > kin.behind && rules::is_effect_elsewhere(call)));
        }
        Ok(found)
    }

    /// What a call might repeat whose effect is `scope`.
    pub(super) fn relations(&self, call: &CallRecord, scope: Option<&Scope>) -> Result<Relations, StoreError> {
        let mut relations = Relations::default();
        for other in self.calls.iter().filter(|other| other.root_run_id == call.root_run_id) {
            relations.add(call, scope, &Related::one(other.clone()));
        }
        for other in self.effects_elsewhere(&self.run(&call.run_id)?)? {
            relations.add_kin(call, scope, &Related::one(other));
        }
        for other in self.open_in_project(call) {
            relations.add_open(call, scope, other);
        }
        Ok(relations)
    }

    /// All child runs below a run, parents before their children.
    pub(super) fn runs_below(&self, run: &RunId) -> Vec<RunRecord> {
        let children = |id: &RunId| {
            let is_child = |other: &&RunRecord| other.parent_run_id.as_ref() == Some(id);
            Ok::<_, std::convert::Infallible>(self.runs.iter().filter(is_child).cloned().collect())
        };
        match rules::runs_below(run, children) {
            Ok(found) => found,
            Err(never) => match never {},
        }
    }

    pub(super) fn lineage_of(&self, run: &RunRecord) -> Result<LineageRecords, StoreError> {
        let mut lineage = LineageRecords::default();
        let parts = rules::shared_parts(run, |id| self.run(id))?;
        for part in &parts {
            let turns = self.turns.iter().filter(|turn| turn.run_id == part.run_id && turn.turn <= part.upto.turn);
            lineage.turns.extend(turns.cloned());
            let calls = self.calls_of(&part.run_id, None).into_iter();
            lineage.calls.extend(calls.filter(|call| call.position.turn <= part.upto.turn));
        }
        for task in lineage.calls.iter().filter(|call| call.name.is_task()) {
            let child = RunId::of_task(&task.call_id);
            for agent in std::iter::once(child.clone()).chain(self.runs_below(&child).into_iter().map(|run| run.run_id))
            {
                let calls = self.calls_of(&agent, None).into_iter();
                lineage.shared_effects.extend(calls.filter(rules::is_shared_effect));
            }
        }
        lineage.elsewhere = self.effects_elsewhere(run)?;
        let calls = lineage.calls.iter().chain(&lineage.shared_effects).chain(&lineage.elsewhere);
        let receipts: Vec<ReceiptRecord> = calls.flat_map(|call| self.receipts_of(&call.call_id)).cloned().collect();
        lineage.receipts = receipts;
        for child in self.runs_below(&run.run_id) {
            let requests = self.requests_of(&child.run_id).cloned().collect();
            let calls = self.calls_of(&child.run_id, None);
            let receipts = calls.iter().flat_map(|call| self.receipts_of(&call.call_id));
            let charges =
                receipts.filter_map(|receipt| receipt.settlement.as_ref()?.charge.as_deref().cloned()).collect();
            lineage.sub_agents.extend(rules::sub_agent(&child, calls, requests, charges));
        }
        let effects = lineage.sub_agents.iter().flat_map(|child| &child.effects);
        lineage.receipts.extend(effects.flat_map(|call| self.receipts_of(&call.call_id)).cloned());
        Ok(lineage)
    }
}
