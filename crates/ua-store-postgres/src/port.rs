//! The storage port over one database: a batch is a transaction, a read a snapshot.

use std::borrow::Cow;

use async_trait::async_trait;
use ua_core::{BlobRef, CallId, IdempotencyKey, RunId, Scope, Timestamp};
use ua_store::rows::around;
use ua_store::{
    Around, Author, Batch, Blob, CallQuery, CallRecord, CallTrail, CallsOf, Change, Committed, FleetChange, FleetDone,
    FleetRows as _, FleetState, FleetStore, Forgotten, GatewayOf, GatewayRecords, Lost, MessageRecord, PastStore,
    QuestionRecord, QuestionsOf, QueueDepth, QueueEntry, RowRef, RunHead, RunQuery, RunRecord, RunRecords, RunsOf,
    Store, StoreError, TrailOf, Turns, apply, apply_fleet,
};

use crate::db::Db;
use crate::history::About;
use crate::locks::Shared;
use crate::store::PostgresStore;
use crate::value::params;

impl PostgresStore {
    async fn committed(&self, by: &Author, batch: Batch, about: &About) -> Result<Committed, StoreError> {
        if batch.writes_nothing() {
            if let Some(checked) = self.check_owner(by, &batch).await? {
                return Ok(checked);
            }
            let by = by.clone();
            return self.read(move |db| apply(db, &by, batch)).await;
        }
        let operation = operation(&batch);
        self.write(by, batch, &operation, about).await
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn commit(&self, by: &Author, batch: Batch) -> Result<Committed, StoreError> {
        let about = About::of(by, &batch);
        let committed = self.committed(by, batch, &about).await;
        if let Err(error) = &committed {
            self.look_into(&about, error).await;
        }
        committed
    }

    async fn run(&self, run: &RunId) -> Result<RunRecord, StoreError> {
        let found = self.one_run(run).await?;
        found.ok_or_else(|| StoreError::NotFound { row: RowRef::new("runs", run) })
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
        let run = run.clone();
        self.read(move |db| match turns {
            Turns::All => db.load(&run),
            Turns::Range(first, last) => db.load_turns(&run, first, last),
            Turns::Markers(behind, most) => {
                let checkpoints = db.markers_of(&run, behind, most)?;
                Ok(RunRecords { checkpoints, ..db.load_turns(&run, 1, 0)? })
            }
            Turns::Standing(keep) => db.load(&run).map(|records| records.leave_out(keep)),
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
        self.read(move |db| match &of {
            QuestionsOf::One(question) => Ok(vec![db.question(question)?]),
            QuestionsOf::Open(run) => db.waiting_questions(run.as_ref()),
            QuestionsOf::Run(run) => db.questions_of(run),
        })
        .await
    }

    async fn calls_of(&self, of: CallsOf) -> Result<Vec<CallRecord>, StoreError> {
        match of {
            CallsOf::One(call) => self.read(move |db| Ok(vec![db.call(&call)?])).await,
            CallsOf::Run(run, Some(turn)) => self.read(move |db| db.calls_of(&run, Some(turn))).await,
            CallsOf::Run(run, None) => self.read(move |db| db.calls_of(&run, None)).await,
            CallsOf::Unknown => {
                let all = |db: &Db| db.unknown_calls();
                self.read(all).await
            }
            CallsOf::EffectsSince(since) => self.read(move |db| db.effects_since(since)).await,
            CallsOf::EffectsBehind(root, place) => self.read(move |db| db.effects_behind(&root, place)).await,
            CallsOf::Corrected(root) => self.read(move |db| db.corrected_calls(&root)).await,
            CallsOf::Holder(root, key) => {
                let holder = self.read(move |db| db.key_holder(&key)).await?;
                Ok(holder.filter(|call| call.root_run_id == root).into_iter().collect())
            }
            CallsOf::ScopeBegins(root, beginning) => self.read(move |db| db.scope_begins(&root, &beginning)).await,
        }
    }

    async fn database_id(&self) -> Result<String, StoreError> {
        self.read(Db::database_id).await
    }

    async fn around(
        &self,
        call: &CallId,
        scope: Option<&Scope>,
        key: Option<&IdempotencyKey>,
        most_effects: u32,
    ) -> Result<Around, StoreError> {
        let (call, scope, key) = (call.clone(), scope.cloned(), key.cloned());
        self.read(move |db| around(db, &call, scope.as_ref(), key.as_ref(), most_effects)).await
    }

    async fn trail(&self, call: &CallId, of: TrailOf) -> Result<CallTrail, StoreError> {
        let call = call.clone();
        self.read(move |db| match of {
            TrailOf::Changes => {
                Ok(CallTrail { attempts: db.attempts_of(&call)?, events: db.events_of(&call)?, receipt: None })
            }
            TrailOf::Receipt => Ok(CallTrail { receipt: db.newest_receipt(&call)?, ..CallTrail::default() }),
        })
        .await
    }

    async fn gateway_of(&self, of: GatewayOf) -> Result<GatewayRecords, StoreError> {
        let of = of.in_plain_text();
        self.read(move |db| match &of {
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
impl PastStore for PostgresStore {
    /// Of calls nothing is kept beside a server. The owner of a run is told when writes of it are lost ([`StoreError::WentBack`]); whoever takes one
    /// is told here that the server has another history than before, or less than it had confirmed.
    async fn forgotten(&self, run: &RunId) -> Result<Vec<Forgotten>, StoreError> {
        self.look(run).await?;
        self.held(Some(run)).await
    }

    async fn lost(&self, _run: &RunId) -> Result<Vec<Lost>, StoreError> {
        Ok(Vec::new())
    }

    async fn accept_forgotten(
        &self,
        _run: &RunId,
        forgotten: &[Forgotten],
        by: Option<&str>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.let_go(forgotten, by, at).await
    }

    fn unnoted(&self) -> Option<String> {
        None
    }
}

#[async_trait]
impl FleetStore for PostgresStore {
    async fn fleet_now(&self, _own: Timestamp) -> Result<Timestamp, StoreError> {
        self.read(|db| {
            let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
            let millis = db.row(sql, params![], |row| Ok(row.try_get::<_, i64>(0)?))?;
            Ok(Timestamp::from_millis(millis.unwrap_or(0)))
        })
        .await
    }

    async fn fleet(&self, change: FleetChange) -> Result<FleetDone, StoreError> {
        let is_sign_of_life = matches!(change, FleetChange::Register(_) | FleetChange::Renew { .. });
        // Every few seconds, so that it is noted soon behind the change, and how commits are waited for shortly before it.
        if is_sign_of_life {
            self.note_history().await?;
        }
        let done = self.write_apart(Shared::Fleet, move |db| apply_fleet(db, change.clone())).await?;
        if is_sign_of_life {
            self.look_now_and_then();
        }
        Ok(done)
    }

    async fn fleet_state(&self, most: u32) -> Result<FleetState, StoreError> {
        self.read(move |db| db.fleet_state(most)).await
    }

    async fn queue_depths(&self, now: Timestamp) -> Result<Vec<QueueDepth>, StoreError> {
        self.read(move |db| db.queue_depths(now)).await
    }

    async fn queued(&self, run: &RunId) -> Result<Option<QueueEntry>, StoreError> {
        let run = run.clone();
        self.read(move |db| db.entry(&run)).await
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
