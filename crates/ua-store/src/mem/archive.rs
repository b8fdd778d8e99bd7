//! The model looked back at.

use std::collections::BTreeSet;

use async_trait::async_trait;
use ua_core::{CallId, RunId};

use super::MemStore;
use super::model::Model;
use crate::archive_store::{ArchiveStore, CallQuery, DeletedRun, RunDeletion, RunHead, RunQuery};
use crate::error::StoreError;
use crate::record::{CallRecord, RunRecords};
use crate::rules;

impl Model {
    /// Removes every row of these runs, and the blobs that no other run refers to.
    fn remove(&mut self, runs: &BTreeSet<RunId>) {
        let calls: BTreeSet<CallId> =
            self.calls.iter().filter(|call| runs.contains(&call.run_id)).map(|call| call.call_id.clone()).collect();
        self.attempts.retain(|row| !calls.contains(&row.call_id));
        self.receipts.retain(|row| !calls.contains(&row.call_id));
        self.events.retain(|row| !calls.contains(&row.call_id));
        self.calls.retain(|row| !runs.contains(&row.run_id));
        self.questions.retain(|row| !runs.contains(&row.run_id));
        self.overrides.retain(|row| !runs.contains(&row.run_id));
        self.checkpoints.retain(|row| !runs.contains(&row.run_id));
        self.requests.retain(|(run, _)| !runs.contains(run));
        self.messages.retain(|(run, _)| !runs.contains(run));
        self.turns.retain(|row| !runs.contains(&row.run_id));
        self.steps.retain(|row| !runs.contains(&row.run_id));
        self.runs.retain(|row| !runs.contains(&row.run_id));
        let theirs: BTreeSet<_> =
            self.blob_refs.iter().filter(|(run, _)| runs.contains(run)).map(|(_, blob)| blob.clone()).collect();
        self.blob_refs.retain(|(run, _)| !runs.contains(run));
        let others: BTreeSet<_> = self.blob_refs.iter().map(|(_, blob)| blob.clone()).collect();
        self.remove_blobs(|blob| theirs.contains(blob) && !others.contains(blob));
    }
}

#[async_trait]
impl ArchiveStore for MemStore {
    async fn find_runs(&self, query: &RunQuery) -> Result<Vec<RunHead>, StoreError> {
        let model = self.model();
        let found = model.newest_runs().into_iter().filter(|run| {
            run.run_id.as_str().starts_with(&query.prefix)
                && (query.statuses.is_empty() || query.statuses.contains(&run.status))
                && !(query.without_tasks && crate::is_task(run))
                && query.since.is_none_or(|since| run.created_at >= since)
                && !model.deleted.contains(&run.run_id)
        });
        Ok(found.take(query.limit as usize).map(RunHead::from).collect())
    }

    async fn find_calls(&self, query: &CallQuery) -> Result<Vec<CallRecord>, StoreError> {
        let model = self.model();
        let is_wanted = |call: &&CallRecord| {
            call.call_id.as_str().starts_with(&query.prefix) && !model.deleted.contains(&call.run_id)
        };
        let mut calls: Vec<CallRecord> = model.calls.iter().filter(is_wanted).cloned().collect();
        calls.sort_by_key(|call| std::cmp::Reverse((call.created_at, call.run_id.clone(), call.position)));
        calls.truncate(query.limit as usize);
        Ok(calls)
    }

    async fn load_turns(&self, run: &RunId, first: u32, last: u32) -> Result<RunRecords, StoreError> {
        let mut records = self.model().load(run)?;
        let is_wanted = |turn: u32| (first..=last).contains(&turn);
        records.turns.retain(|turn| is_wanted(turn.turn));
        records.messages.retain(|message| is_wanted(message.turn));
        records.requests.retain(|request| is_wanted(request.turn));
        records.calls.retain(|call| is_wanted(call.position.turn));
        let calls: BTreeSet<&CallId> = records.calls.iter().map(|call| &call.call_id).collect();
        records.attempts.retain(|attempt| calls.contains(&attempt.call_id));
        records.receipts.retain(|receipt| calls.contains(&receipt.call_id));
        records.checkpoints.clear();
        records.lineage = crate::lineage::LineageRecords::default();
        Ok(records)
    }

    async fn delete_run(&self, deletion: &RunDeletion) -> Result<DeletedRun, StoreError> {
        let mut model = self.model();
        let run = model.run(&deletion.run_id)?;
        let root = run.root_run_id.clone();
        let members: Vec<RunId> =
            model.newest_runs().into_iter().filter(|run| run.root_run_id == root).map(|run| run.run_id).collect();
        let deleted: Vec<RunId> = model.deleted.iter().cloned().collect();
        let (run, outcome) = rules::run_deleted(run, &members, &deleted, deletion)?;
        model.deleted.insert(run.run_id.clone());
        model.put_run(run);
        if outcome.kept_for.is_empty() {
            model.remove(&members.into_iter().collect());
        }
        Ok(outcome)
    }
}
