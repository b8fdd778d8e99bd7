//! Letting go of a lineage.

use std::collections::BTreeSet;

use ua_core::{CallId, RunId};

use super::model::Model;

impl Model {
    /// Removes every row of these runs, and the blobs that no other run refers to.
    pub(super) fn remove(&mut self, runs: &BTreeSet<RunId>) {
        let calls: BTreeSet<CallId> =
            self.calls.iter().filter(|call| runs.contains(&call.run_id)).map(|call| call.call_id.clone()).collect();
        self.attempts.retain(|row| !calls.contains(&row.call_id));
        self.receipts.retain(|row| !calls.contains(&row.call_id));
        self.events.retain(|row| !calls.contains(&row.call_id));
        self.arrivals.retain(|row| !runs.contains(&row.run_id) && !calls.contains(&row.call_id));
        self.sessions.retain(|row| !runs.contains(&row.run_id));
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
