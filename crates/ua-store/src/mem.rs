//! The in-memory model of a store: rows behind one lock.
//!
//! It is the reference that the conformance suite compares other stores with, and what tests of other crates run on. A batch that is refused
//! leaves the rows as they were.

mod archive;
mod blobs;
mod fleet;
mod gateway;
mod lineage;
mod model;
mod rows;
mod table;

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ua_core::{BlobRef, CallId, CallStatus, IdempotencyKey, Resolution, RunId, Scope, Timestamp};

use self::rows::Transaction;
use crate::apply::apply;
use crate::archive_store::{CallQuery, RunHead, RunQuery};
use crate::blob_store::Blob;
use crate::change::{Author, Batch, Committed};
use crate::error::StoreError;
use crate::forgotten::{Forgotten, Lost};
use crate::gateway::{GatewayOf, GatewayRecords};
use crate::lineage::LineageRecords;
use crate::record::{CallRecord, MessageRecord, QuestionRecord, RunRecord, RunRecords};
use crate::relations::Around;
use crate::rows::around;
use crate::rules;
use crate::store::{CallTrail, CallsOf, PastStore, QuestionsOf, RunsOf, Store, TrailOf, Turns};
use lineage::oldest_first;
use model::Model;

/// The in-memory model of a store. Nothing in it outlives the value.
#[derive(Debug, Default)]
pub struct MemStore {
    model: Mutex<Model>,
}

impl MemStore {
    /// Makes an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// A copy of everything that is stored now, which goes its own way from here: what a backup is to a database.
    #[must_use]
    pub fn copied(&self) -> Self {
        Self { model: Mutex::new(self.model().clone()) }
    }

    /// Makes it what the copy is: what putting a backup back is to a database, or a crash to a server.
    pub fn put_back(&self, copy: &Self) {
        let copy = copy.model().clone();
        *self.model() = copy;
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        // A panicking test thread leaves the rows as its last complete write left them.
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for MemStore {
    async fn commit(&self, by: &Author, batch: Batch) -> Result<Committed, StoreError> {
        let mut model = self.model();
        // Applied to a copy, which shares its rows with the model, and takes its place when all of it fits.
        let mut next = model.clone();
        let committed = apply(&Transaction::of(&mut next), by, batch)?;
        *model = next;
        Ok(committed)
    }

    async fn run(&self, run: &RunId) -> Result<RunRecord, StoreError> {
        self.model().run(run)
    }

    async fn runs_of(&self, of: RunsOf) -> Result<Vec<RunRecord>, StoreError> {
        let model = self.model();
        Ok(match of {
            RunsOf::Newest(limit) => model.newest_runs().into_iter().take(limit as usize).collect(),
            RunsOf::JobKey(key) => model.run_of_job_key(&key).into_iter().collect(),
            RunsOf::Children(run) => {
                let is_child = |other: &&RunRecord| other.parent_run_id.as_ref() == Some(&run);
                model.runs.iter().filter(is_child).cloned().collect()
            }
        })
    }

    async fn find_runs(&self, query: &RunQuery) -> Result<Vec<RunHead>, StoreError> {
        let model = self.model();
        let found = model.newest_runs().into_iter().filter(|run| {
            run.run_id.as_str().starts_with(&query.prefix)
                && run.run_id.as_str().ends_with(&query.ending)
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
            let id = call.call_id.as_str();
            id.starts_with(&query.prefix)
                && id.ends_with(&query.ending)
                && (!query.only_unknown || call.status == CallStatus::Unknown)
                && !model.deleted.contains(&call.run_id)
        };
        let mut calls: Vec<CallRecord> = model.calls.iter().filter(is_wanted).cloned().collect();
        calls.sort_by_key(|call| std::cmp::Reverse((call.created_at, call.run_id.clone(), call.position)));
        calls.truncate(query.limit as usize);
        Ok(calls)
    }

    async fn load_of(&self, run: &RunId, turns: Turns) -> Result<RunRecords, StoreError> {
        let mut records = self.model().load(run)?;
        let (first, last) = match turns {
            Turns::All => return Ok(records),
            Turns::Standing(keep) => return Ok(records.leave_out(keep)),
            Turns::Range(first, last) => (first, last),
            Turns::Markers(..) => (1, 0),
        };
        let markers = std::mem::take(&mut records.checkpoints);
        if let Turns::Markers(behind, most) = turns {
            records.checkpoints = markers.into_iter().skip(behind as usize).take(most as usize).collect();
        }
        let is_wanted = |turn: u32| (first..=last).contains(&turn);
        records.turns.retain(|turn| is_wanted(turn.turn));
        records.messages.retain(|message| is_wanted(message.turn));
        records.requests.retain(|request| is_wanted(request.turn));
        records.calls.retain(|call| is_wanted(call.position.turn));
        let calls: BTreeSet<&CallId> = records.calls.iter().map(|call| &call.call_id).collect();
        records.attempts.retain(|attempt| calls.contains(&attempt.call_id));
        records.receipts.retain(|receipt| calls.contains(&receipt.call_id));
        records.lineage = LineageRecords::default();
        Ok(records)
    }

    async fn history(&self, run: &RunId) -> Result<Vec<MessageRecord>, StoreError> {
        let model = self.model();
        let run = model.run(run)?;
        Ok(model.whole_history(&run)?.into_iter().filter(|message| message.turn <= run.turn_index).collect())
    }

    async fn questions_of(&self, of: QuestionsOf) -> Result<Vec<QuestionRecord>, StoreError> {
        match of {
            QuestionsOf::One(question) => Ok(vec![self.model().question(&question)?]),
            QuestionsOf::Open(run) => Ok(self.model().waiting_questions(run.as_ref())),
            QuestionsOf::Run(run) => Ok(self.model().questions_of(&run)),
        }
    }

    async fn calls_of(&self, of: CallsOf) -> Result<Vec<CallRecord>, StoreError> {
        let model = self.model();
        Ok(match of {
            CallsOf::One(call) => vec![model.call(&call)?],
            CallsOf::Run(run, turn) => model.calls_of(&run, turn),
            CallsOf::Unknown => {
                let is_open = |call: &&CallRecord| {
                    call.status == CallStatus::Unknown && call.resolution != Some(Resolution::Skipped)
                };
                oldest_first(model.calls.iter().filter(is_open).cloned().collect())
            }
            CallsOf::EffectsSince(since) => {
                let was_sent =
                    |call: &&CallRecord| call.attempt > 0 && call.policy.class.has_effect() && call.updated_at >= since;
                oldest_first(model.calls.iter().filter(was_sent).cloned().collect())
            }
            CallsOf::EffectsBehind(root, place) => {
                let changed: BTreeSet<&CallId> =
                    model.events.iter().filter(|event| event.seq > place).map(|event| &event.call_id).collect();
                let was_sent = |call: &&CallRecord| {
                    call.root_run_id == root
                        && call.attempt > 0
                        && call.policy.class.has_effect()
                        && changed.contains(&call.call_id)
                };
                oldest_first(model.calls.iter().filter(was_sent).cloned().collect())
            }
            CallsOf::Corrected(root) => {
                let was_corrected = |call: &&CallRecord| {
                    call.root_run_id == root && call.policy.effect_kind.is_some() && call.correction.is_some()
                };
                oldest_first(model.calls.iter().filter(was_corrected).cloned().collect())
            }
            CallsOf::Holder(root, key) => {
                let is_holder = |call: &&CallRecord| call.root_run_id == root && rules::holds_key(call, &key);
                model.calls.iter().find(is_holder).cloned().into_iter().collect()
            }
            CallsOf::ScopeBegins(root, beginning) => {
                let begins_so = |call: &&CallRecord| {
                    let scope = call.scope.as_ref().filter(|_| call.root_run_id == root && call.attempt > 0);
                    scope.is_some_and(|scope| scope.as_str().starts_with(&beginning))
                };
                oldest_first(model.calls.iter().filter(begins_so).cloned().collect())
            }
        })
    }

    async fn database_id(&self) -> Result<String, StoreError> {
        Ok("memory".to_owned())
    }

    async fn around(
        &self,
        call: &CallId,
        scope: Option<&Scope>,
        key: Option<&IdempotencyKey>,
        most_effects: u32,
    ) -> Result<Around, StoreError> {
        around(&Transaction::of(&mut self.model()), call, scope, key, most_effects)
    }

    async fn trail(&self, call: &CallId, of: TrailOf) -> Result<CallTrail, StoreError> {
        let model = self.model();
        Ok(match of {
            TrailOf::Changes => CallTrail {
                attempts: model.attempts_of(call).cloned().collect(),
                events: model.events.iter().filter(|event| event.call_id == *call).cloned().collect(),
                receipt: None,
            },
            TrailOf::Receipt => CallTrail { receipt: model.receipts_of(call).last().cloned(), ..CallTrail::default() },
        })
    }

    async fn gateway_of(&self, of: GatewayOf) -> Result<GatewayRecords, StoreError> {
        Ok(match of.in_plain_text() {
            GatewayOf::Sessions(of) => GatewayRecords::of_sessions(self.model().sessions_of(&of)),
            GatewayOf::Arrivals(of) => GatewayRecords::of_arrivals(self.model().arrivals_of(&of)),
        })
    }

    async fn blob(&self, blob: &BlobRef) -> Result<Blob, StoreError> {
        let model = self.model();
        let stored = model.blobs.iter().find(|stored| stored.blob.blob_id == blob.blob_id);
        let pruned_at = stored.and_then(|stored| stored.pruned_at);
        Ok(rules::blob_read(blob, stored.and_then(|stored| stored.content.clone()), pruned_at))
    }
}

#[async_trait]
impl PastStore for MemStore {
    /// Nothing is kept beside it.
    async fn forgotten(&self, _run: &RunId) -> Result<Vec<Forgotten>, StoreError> {
        Ok(Vec::new())
    }

    async fn lost(&self, _run: &RunId) -> Result<Vec<Lost>, StoreError> {
        Ok(Vec::new())
    }

    async fn accept_forgotten(
        &self,
        _run: &RunId,
        _forgotten: &[Forgotten],
        _by: Option<&str>,
        _at: Timestamp,
    ) -> Result<(), StoreError> {
        Ok(())
    }

    fn unnoted(&self) -> Option<String> {
        None
    }
}
