//! The storage port over one database: a batch is a transaction of the writer, a read a snapshot of a reader.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use ua_core::{BlobRef, CallId, IdempotencyKey, RunId, Scope, ShowPath as _, Timestamp};
use ua_store::rows::around;
use ua_store::{
    Around, Author, Batch, Blob, CallQuery, CallRecord, CallTrail, CallsOf, Change, Committed, Durability, FleetChange,
    FleetDone, FleetRows as _, FleetState, FleetStore, Forgotten, GatewayOf, GatewayRecords, Lost, MessageRecord,
    PastStore, QuestionRecord, QuestionsOf, QueueDepth, QueueEntry, RunHead, RunQuery, RunRecord, RunRecords, RunsOf,
    Store, StoreError, TrailOf, Turns, apply, apply_fleet,
};

use crate::db::Db;
use crate::mirror;
use crate::store::SqliteStore;

#[async_trait]
impl Store for SqliteStore {
    async fn commit(&self, by: &Author, batch: Batch) -> Result<Committed, StoreError> {
        if batch.writes_nothing() {
            return if batch.stands.is_empty() {
                self.look(|db| apply(db, by, batch)).await
            } else {
                let by = by.clone();
                self.read(move |db| apply(db, &by, batch)).await
            };
        }
        let author = by.clone();
        // An owner's lease tells it from another database; what has none, or is about to get one, looks which file this is.
        let is_owners =
            matches!(by, Author::Owner(_)) && !batch.changes().any(|change| matches!(change, Change::Acquire { .. }));
        let place = (!is_owners).then(|| self.place());
        self.write(operation(&batch), batch.durability(), by, move |db| {
            place.map_or(Ok(()), |place| place.check())?;
            apply(db, &author, batch)
        })
        .await
    }

    async fn run(&self, run: &RunId) -> Result<RunRecord, StoreError> {
        self.look(|db| db.run(run)).await
    }

    async fn runs_of(&self, of: RunsOf) -> Result<Vec<RunRecord>, StoreError> {
        self.read(move |db| match &of {
            RunsOf::Newest(limit) => db.newest_runs(*limit),
            RunsOf::JobKey(key) => Ok(db.run_of_job_key(key, None)?.into_iter().collect()),
            RunsOf::Children(run) => db.children_of(run),
        })
        .await
    }

    async fn find_runs(&self, query: &RunQuery) -> Result<Vec<RunHead>, StoreError> {
        let query = query.clone();
        self.read(move |db| db.find_runs(&query)).await
    }

    async fn find_calls(&self, query: &CallQuery) -> Result<Vec<CallRecord>, StoreError> {
        let query = query.clone();
        self.read(move |db| db.find_calls(&query)).await
    }

    async fn load_of(&self, run: &RunId, turns: Turns) -> Result<RunRecords, StoreError> {
        let (run, behind, pool) = (run.clone(), Arc::clone(&self.behind), self.pool());
        self.read(move |db| match turns {
            Turns::All => db.load(&run),
            Turns::Range(first, last) => db.load_turns(&run, first, last),
            Turns::Standing(keep) => {
                let slot = || behind.lock().unwrap_or_else(PoisonError::into_inner);
                let mut known = slot().take();
                let records = db.load_standing(&run, keep, &mut known, &pool)?;
                *slot() = known;
                Ok(records)
            }
            Turns::Markers(behind, most) => {
                let checkpoints = db.markers_of(&run, behind, most)?;
                Ok(RunRecords { checkpoints, ..db.load_turns(&run, 1, 0)? })
            }
        })
        .await
    }

    async fn history(&self, run: &RunId) -> Result<Vec<MessageRecord>, StoreError> {
        let run = run.clone();
        self.read(move |db| {
            let run = db.run(&run)?;
            db.whole_history(&run, run.turn_index)
        })
        .await
    }

    async fn questions_of(&self, of: QuestionsOf) -> Result<Vec<QuestionRecord>, StoreError> {
        self.look(|db| match &of {
            QuestionsOf::One(question) => Ok(vec![db.question(question)?]),
            QuestionsOf::Open(run) => db.waiting_questions(run.as_ref()),
            QuestionsOf::Run(run) => db.questions_of(run),
        })
        .await
    }

    async fn calls_of(&self, of: CallsOf) -> Result<Vec<CallRecord>, StoreError> {
        match of {
            CallsOf::One(call) => self.look(|db| Ok(vec![db.call(&call)?])).await,
            CallsOf::Run(run, Some(turn)) => self.look(|db| db.calls_of(&run, Some(turn))).await,
            CallsOf::Run(run, None) => self.read(move |db| db.calls_of(&run, None)).await,
            CallsOf::Unknown => {
                let all = |db: &Db<'_>| db.unknown_calls();
                self.read(all).await
            }
            CallsOf::EffectsSince(since) => self.read(move |db| db.effects_since(since)).await,
            CallsOf::EffectsBehind(root, place) => self.read(move |db| db.effects_behind(&root, place)).await,
            CallsOf::Corrected(root) => self.read(move |db| db.corrected_calls(&root)).await,
            CallsOf::Holder(root, key) => {
                let holder = self.look(|db| db.key_holder(&key)).await?;
                Ok(holder.filter(|call| call.root_run_id == root).into_iter().collect())
            }
            CallsOf::ScopeBegins(root, beginning) => self.read(move |db| db.scope_begins(&root, &beginning)).await,
        }
    }

    async fn database_id(&self) -> Result<String, StoreError> {
        Ok(self.db_uuid().to_owned())
    }

    async fn around(
        &self,
        call: &CallId,
        scope: Option<&Scope>,
        key: Option<&IdempotencyKey>,
        most_effects: u32,
    ) -> Result<Around, StoreError> {
        self.look(|db| around(db, call, scope, key, most_effects)).await
    }

    async fn trail(&self, call: &CallId, of: TrailOf) -> Result<CallTrail, StoreError> {
        self.look(|db| match of {
            TrailOf::Changes => {
                Ok(CallTrail { attempts: db.attempts_of(call)?, events: db.events_of(call)?, receipt: None })
            }
            TrailOf::Receipt => Ok(CallTrail { receipt: db.newest_receipt(call)?, ..CallTrail::default() }),
        })
        .await
    }

    async fn gateway_of(&self, of: GatewayOf) -> Result<GatewayRecords, StoreError> {
        let of = of.in_plain_text();
        self.look(|db| match &of {
            GatewayOf::Sessions(of) => Ok(GatewayRecords::of_sessions(db.sessions_of(of)?)),
            GatewayOf::Arrivals(of) => Ok(GatewayRecords::of_arrivals(db.arrivals_of(of)?)),
        })
        .await
    }

    async fn blob(&self, blob: &BlobRef) -> Result<Blob, StoreError> {
        let blob = blob.clone();
        self.read(move |db| db.blob(&blob)).await
    }
}

#[async_trait]
impl PastStore for SqliteStore {
    async fn forgotten(&self, run: &RunId) -> Result<Vec<Forgotten>, StoreError> {
        let log = self.mirror().await?;
        // Where nothing was sent, as in a new folder, there is nothing to compare.
        if log.knows_nothing() {
            return Ok(Vec::new());
        }
        let (run, now) = (run.clone(), ua_core::system::env().now());
        self.read(move |db| log.unknown_to_family(db, &run, now)).await
    }

    async fn lost(&self, run: &RunId) -> Result<Vec<Lost>, StoreError> {
        let log = self.mirror().await?;
        if log.has_lost_nothing() {
            return Ok(Vec::new());
        }
        let (run, now) = (run.clone(), ua_core::system::env().now());
        self.read(move |db| log.lost(db)?.to(db, &run, now)).await
    }

    async fn accept_forgotten(
        &self,
        run: &RunId,
        forgotten: &[Forgotten],
        by: Option<&str>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let (of, known) = (run.clone(), forgotten.to_vec());
        let accepted = self.read(move |db| mirror::accepted_for(db, &of, known)).await?;
        mirror::accept(&self.effects_log(), &self.own, &accepted, by, at)?;
        // What the database learned of it meanwhile counts again for one that is put back later.
        let (log, id) = (self.effects_log(), self.own.clone());
        self.read(move |db| mirror::catch_up(&log, &id, db)).await
    }

    fn unnoted(&self) -> Option<String> {
        self.unnoted.get().map(|why| format!("{}: {why}", self.effects_log().shown()))
    }
}

#[async_trait]
impl FleetStore for SqliteStore {
    async fn fleet_now(&self, own: Timestamp) -> Result<Timestamp, StoreError> {
        Ok(own)
    }

    async fn fleet(&self, change: FleetChange) -> Result<FleetDone, StoreError> {
        let place = self.place();
        self.write(Cow::Borrowed("fleet"), Durability::Synced, &Author::Command, move |db| {
            place.check()?;
            apply_fleet(db, change)
        })
        .await
    }

    async fn fleet_state(&self, most: u32) -> Result<FleetState, StoreError> {
        self.read(move |db| db.fleet_state(most)).await
    }

    async fn queue_depths(&self, now: Timestamp) -> Result<Vec<QueueDepth>, StoreError> {
        self.read(move |db| db.queue_depths(now)).await
    }

    async fn queued(&self, run: &RunId) -> Result<Option<QueueEntry>, StoreError> {
        self.look(|db| db.entry(run)).await
    }
}

/// What a batch is called in spans and metrics: its changes, of which there are few combinations.
fn operation(batch: &Batch) -> Cow<'static, str> {
    let plain = |change: &Change| change.name().trim_start_matches("store.");
    match batch.stands.as_slice() {
        [one] if batch.provided.is_empty() => Cow::Borrowed(plain(one)),
        _ => Cow::Owned(batch.changes().map(plain).collect::<Vec<_>>().join("+")),
    }
}
