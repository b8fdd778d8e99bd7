//! The store: a pool of connections, each taken for one transaction.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use deadpool_postgres::{Hook, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime};
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio_postgres::{Row, SimpleQueryMessage};
use tracing::Instrument as _;
use ua_core::RunId;
use ua_store::{Author, Batch, Change, Committed, Durability, Retry, RunLease, RunRecord, StoreError, apply};

use crate::config::{Place, PostgresConfig, note_position, position_beside, stay_with};
use crate::db::{Db, Flight, Purpose, in_order};
use crate::dialling::Dialler;
use crate::error::{DbError, is_out_of_date, refused, sql_error, unavailable};
use crate::history::{About, Looked, Position};
use crate::kept::{Kept, KeptRuns, OfRun};
use crate::ledger_rows::{ATTEMPT, CALL, CALLS_OF_TURNS, HOLDER};
use crate::locks::{Plan, Shared};
use crate::run_rows::{
    LAST_REQUEST, LAST_SEQ, LEASED, OPEN_TURN, OWN_NUMBER, RUN, RUN_ALONE, STEP, WRITTEN, run_record, written,
};
use crate::value::{Value, params};
use crate::{owners, schema, spans};

/// Bytes of a write that is one text. Longer ones take their values as they are.
const LONGEST: usize = 1 << 20;

/// How often a transaction is begun anew that the server gave up for another one's sake.
const MOST_TRIES: u32 = 20;

/// PostgreSQL behind the storage port. Cloned, it is the same store.
#[derive(Clone)]
pub struct PostgresStore {
    pool: Pool,
    runtime: Handle,
    config: Arc<PostgresConfig>,
    lock_wait: Duration,
    /// Set once the database was found fit.
    is_checked: Arc<OnceCell<()>>,
    /// What is known of the runs whose owners write here.
    kept: Arc<KeptRuns>,
    /// Whether what is kept is read as well, and compared.
    compares: bool,
    /// How far the log of the server was when it was looked at last, until a commit behind that is acknowledged.
    seen: Arc<Mutex<Option<Position>>>,
    /// Flights to the server and back, to be watched.
    flights: Arc<AtomicU64>,
    /// What is known of the history of the server from one look to the next.
    looked: Arc<Looked>,
}

/// What became of a write that was to be computed from what is known.
enum Known {
    /// It is committed.
    Written(Committed),
    /// Nothing of it is there, and it has to be done from what is read; whether nothing was related to the call that was started last.
    Not { was_alone: bool },
}

/// A write that is computed, and not sent yet.
struct Departing {
    text: String,
    committed: Committed,
    rows: OfRun,
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").field("pool", &self.pool.status()).finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Connects, on the runtime of the caller, which must live as long as the store.
    ///
    /// # Errors
    ///
    /// `Unavailable` when the server cannot be reached, or has no schema that this program knows: [`migrate`](crate::migrate) makes it.
    pub async fn open(config: &PostgresConfig) -> Result<Self, StoreError> {
        let store = Self::lazy(config)?;
        store.check().await?;
        Ok(store)
    }

    /// The same without connecting: what is wrong is said by the first read or write.
    ///
    /// # Errors
    ///
    /// `Unavailable` when there are no certificates where the URL says.
    pub fn lazy(config: &PostgresConfig) -> Result<Self, StoreError> {
        let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_connect(config.server.clone(), Dialler::of(config)?, recycling);
        let looked = Arc::new(Looked::default());
        let connected = {
            let looked = looked.clone();
            Hook::sync_fn(move |_, _| {
                looked.connected();
                Ok(())
            })
        };
        let pool = Pool::builder(manager).post_create(connected).max_size(config.connections.max(1));
        let pool = pool.runtime(Runtime::Tokio1).build();
        let pool = pool.map_err(|error| unavailable("the pool of connections cannot be made", error, Retry::Never))?;
        Ok(Self {
            pool,
            runtime: Handle::current(),
            config: Arc::new(config.clone()),
            lock_wait: config.lock_wait,
            is_checked: Arc::default(),
            kept: Arc::default(),
            compares: config.compares,
            seen: Arc::default(),
            flights: Arc::default(),
            looked,
        })
    }

    /// How often something was sent to the server and waited for since the store was opened, connections and what is done apart from the pool left out.
    pub fn flights(&self) -> u64 {
        self.flights.load(Ordering::Relaxed)
    }

    /// One more.
    fn flies(&self) {
        self.flights.fetch_add(1, Ordering::Relaxed);
    }

    /// Where runs are taken.
    pub(crate) fn place(&self) -> Option<&Place> {
        self.config.place.as_ref()
    }

    /// What it was opened with.
    pub(crate) fn config(&self) -> &PostgresConfig {
        &self.config
    }

    /// Where what its callers do not wait for is done.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// What is known of its history.
    pub(crate) fn looked(&self) -> &Looked {
        &self.looked
    }

    /// How far the log was, as far as that was noted with the locks here.
    pub(crate) fn passed_beside(&self) -> Option<Position> {
        position_beside(self.config.alone_beside.as_deref()?)
    }

    /// How far the log is was looked at.
    pub(crate) fn has_seen(&self, here: Option<Position>) {
        if self.config.alone_beside.is_some() {
            *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = here;
        }
    }

    /// How far the log was when somebody looked, for one write that is synced.
    fn take_seen(&self) -> Option<Position> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// A commit behind this place was acknowledged.
    fn note_passed(&self, passed: Option<Position>) {
        let Some((locks, passed)) = self.config.alone_beside.as_deref().zip(passed) else { return };
        if let Err(error) = note_position(locks, &passed) {
            tracing::debug!(%error, "how far the log of the server is was not noted");
        }
    }

    /// Ends all connections that nobody uses, and lets nobody take one any more.
    pub fn close(&self) {
        self.pool.close();
    }

    /// Refuses a database that this program does not know how to write, or that is somebody else's.
    async fn check(&self) -> Result<(), StoreError> {
        self.is_checked.get_or_try_init(|| self.check_schema()).await.copied()
    }

    async fn check_schema(&self) -> Result<(), StoreError> {
        let by = self.config.migrated_by;
        let beside = self.config.alone_beside.clone().map(|locks| (locks, self.config.shown()));
        let check = move |db: &Db| {
            schema::check(db, by)?;
            let Some((locks, shown)) = beside else { return Ok(()) };
            Ok(stay_with(&locks, &db.database_id()?, &shown)?)
        };
        self.begun(Purpose::Read, check).await?.map_err(DbError::into_store)
    }

    /// Reads from one snapshot.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Db) -> Result<T, DbError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.transaction(Purpose::Read, work).await?.map_err(DbError::into_store)
    }

    /// Writes a batch.
    pub(crate) async fn write(
        &self,
        by: &Author,
        batch: Batch,
        operation: &str,
        about: &About,
    ) -> Result<Committed, StoreError> {
        self.look_before(about).await?;
        let durability = batch.durability();
        let passed = if durability == Durability::Synced { self.take_seen() } else { None };
        let written = self.write_it(by, batch, durability).instrument(spans::of_write(operation, durability)).await;
        // What was written before counts for written: something may be sent for it.
        if matches!(written, Ok(_) | Err(StoreError::Repeated { .. })) {
            self.look_behind(about).await?;
        }
        let committed = written?;
        self.note_passed(passed);
        Ok(committed)
    }

    async fn write_it(&self, by: &Author, batch: Batch, durability: Durability) -> Result<Committed, StoreError> {
        let was_alone = match self.write_known(by, &batch, durability).await? {
            Known::Written(committed) => return Ok(committed),
            Known::Not { was_alone } => was_alone,
        };
        let plan = Plan::of(by, &batch);
        for _ in 1..MOST_TRIES {
            match self.write_once(by, &batch, &plan, durability, was_alone).await? {
                Err(error) if error.gave_way() => tracing::debug!(%error, "a transaction gave way and begins again"),
                Err(error) if error.is_refusal() && durability == Durability::Synced => {
                    self.wait_for_what_was_seen(plan).await?;
                    return Err(error.into_store());
                }
                done => return done.map_err(DbError::into_store),
            }
        }
        self.write_once(by, &batch, &plan, durability, was_alone).await?.map_err(DbError::into_store)
    }

    /// Writes rows that belong to no lineage; writers of the same kind follow each other.
    pub(crate) async fn write_apart<T: Send + 'static>(
        &self,
        what: Shared,
        work: impl Fn(&Db) -> Result<T, DbError> + Clone + Send + 'static,
    ) -> Result<T, StoreError> {
        let passed = self.take_seen();
        for tries in 1.. {
            let work = work.clone();
            let work = move |db: &Db| {
                db.serialise(what, "");
                work(db)
            };
            match self.transaction(Purpose::Write(Durability::Synced), work).await? {
                Err(error) if error.gave_way() && tries < MOST_TRIES => {
                    tracing::debug!(%error, "a transaction gave way and begins again");
                }
                done => {
                    let done = done.map_err(DbError::into_store)?;
                    self.note_passed(passed);
                    return Ok(done);
                }
            }
        }
        unreachable!("the last try returns")
    }

    async fn write_once(
        &self,
        by: &Author,
        batch: &Batch,
        plan: &Plan,
        durability: Durability,
        was_alone: bool,
    ) -> Result<Result<Committed, DbError>, StoreError> {
        let (by, plan, place, taking) = (by.clone(), plan.clone(), self.place().cloned(), self.taking(batch));
        let batch = batch.clone();
        let work = move |db: &Db| {
            db.lock(&plan);
            if let Some(place) = &place {
                db.keep_to(place, &batch)?;
            }
            if let Some(taking) = &taking {
                db.refuse_in_another_history(taking)?;
            }
            let Author::Owner(lease) = &by else { return Ok((apply(db, &by, batch)?, None)) };
            db.keep_rows_of(&lease.run_id, was_alone);
            db.look_ahead(asked_by(lease, &batch))?;
            if takes_turns(&batch) {
                db.learn(&lease.run_id)?;
            }
            let is_numbered = batch.number.is_some();
            let committed = apply(db, &by, batch)?;
            if !is_numbered {
                db.touch(&lease.run_id);
            }
            let written_by = db.own_number()?;
            Ok((committed, Some(Kept { lease: lease.clone(), written_by, rows: db.take_rows() })))
        };
        let done = self.transaction(Purpose::Write(durability), work).await?;
        Ok(done.map(|(committed, kept)| {
            if let Some(kept) = kept {
                self.kept.put(kept);
            }
            committed
        }))
    }

    /// Writes a batch of a run's owner in one flight, computed from what is known of the run, if that is enough and still so.
    async fn write_known(&self, by: &Author, batch: &Batch, durability: Durability) -> Result<Known, StoreError> {
        let Author::Owner(lease) = by else { return Ok(Known::Not { was_alone: false }) };
        let Some(kept) = self.kept.take(lease) else { return Ok(Known::Not { was_alone: false }) };
        let not = Known::Not { was_alone: kept.rows.was_alone };
        let Some(Departing { text, committed, rows }) = self.computed(by, batch, kept, durability) else {
            return Ok(not);
        };
        self.check().await?;
        self.flies();
        let pool = self.pool.clone();
        let sent = self.runtime.spawn(async move {
            let client = taken(&pool).await?;
            let said = client.simple_query(&text).await;
            // Where it stopped, the transaction is still open.
            if said.is_err() && client.batch_execute("ROLLBACK").await.is_err() {
                drop(Object::take(client));
            }
            Ok::<_, StoreError>(said)
        });
        let sent = sent.await.map_err(|error| unavailable("the write broke off", error, Retry::Never))?;
        let written_by = match sent? {
            Ok(said) => number_in(&said),
            Err(error) if is_out_of_date(&error) => {
                tracing::debug!(%error, "somebody else has written, so all of it is read");
                None
            }
            Err(error) => return Err(sql_error(error)),
        };
        // Without a number there was no such run.
        let Some(written_by) = written_by else { return Ok(not) };
        self.kept.put(Kept { lease: lease.clone(), written_by, rows });
        if self.compares {
            self.compare(lease).await?;
        }
        Ok(Known::Written(committed))
    }

    /// What a batch comes to, by what is known of its run; `None` when something has to be read, or a rule refuses it.
    fn computed(&self, by: &Author, batch: &Batch, kept: Kept, durability: Durability) -> Option<Departing> {
        let plan = Plan::of(by, batch);
        let (run, counts) = (kept.rows.run.clone()?, kept.rows.written?);
        if plan.one_run() != Some(run.run_id.as_str()) || !plan.job_keys().is_empty() {
            return None;
        }
        let db = Db::knowing(Purpose::Write(durability), self.lock_wait, &run.run_id, kept.rows);
        let computed =
            db.guard(&run, counts, &kept.written_by, batch.number.unwrap_or(counts.batches)).and_then(|()| {
                if let Some(place) = self.place() {
                    db.keep_to(place, batch)?;
                }
                apply(&db, by, batch.clone())
            });
        let committed = match computed {
            Ok(committed) => committed,
            Err(error) => {
                tracing::trace!(%error, "a write is done from what is read");
                return None;
            }
        };
        let (text, rows) = db.into_text();
        (text.len() <= LONGEST).then_some(Departing { text, committed, rows })
    }

    /// Asserts that what is kept of a run is what is stored, unless somebody else has written since.
    async fn compare(&self, lease: &RunLease) -> Result<(), StoreError> {
        let Some(kept) = self.kept.take(lease) else { return Ok(()) };
        let kept = self.read(move |db| kept.assert_stored(db).map(|()| kept)).await?;
        self.kept.put(kept);
        Ok(())
    }

    /// Looks whether a lease is the newest, in one flight. `None` when that needs more.
    pub(crate) async fn check_owner(&self, by: &Author, batch: &Batch) -> Result<Option<Committed>, StoreError> {
        let Author::Owner(lease) = by else { return Ok(None) };
        if batch.changes().next().is_some() {
            return Ok(None);
        }
        let rows = self.ask(LEASED, params![lease.run_id.as_str()].to_vec()).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let read = || Ok(OfRun { run: Some(run_record(row)?), written: Some(written(row)?), ..OfRun::default() });
        let read = read().map_err(DbError::into_store)?;
        let db = Db::knowing(Purpose::Read, self.lock_wait, &lease.run_id, read);
        apply(&db, by, batch.clone()).map(Some).map_err(DbError::into_store)
    }

    /// One run.
    pub(crate) async fn one_run(&self, run: &RunId) -> Result<Option<RunRecord>, StoreError> {
        let rows = self.ask(RUN_ALONE, params![run.as_str()].to_vec()).await?;
        rows.first().map(run_record).transpose().map_err(DbError::into_store)
    }

    /// The rows of one query whose tables have their schema with them, in one flight. It has a transaction of its own, without which a function or an
    /// operator of the query could be one that another role put where this one's path leads.
    pub(crate) async fn ask(&self, sql: &'static str, values: Vec<Value>) -> Result<Vec<Row>, StoreError> {
        self.check().await?;
        self.flies();
        let pool = self.pool.clone();
        let asked = self.runtime.spawn(async move {
            let client = taken(&pool).await?;
            let (client, values) = (&client, &values);
            let mut flights: Vec<Flight<'_>> = Vec::with_capacity(3);
            flights.push(Box::pin(async move { Ok(client.batch_execute(owners::APART).await.map(|()| Vec::new())?) }));
            flights.push(Box::pin(async move {
                let typed: Vec<_> = values.iter().map(Value::typed).collect();
                Ok(client.query_typed(sql, &typed).await?)
            }));
            // Behind an error it ends the transaction all the same.
            flights.push(Box::pin(async move { Ok(client.batch_execute("COMMIT").await.map(|()| Vec::new())?) }));
            let answers = in_order(flights).await.map_err(DbError::into_store)?;
            Ok::<_, StoreError>(answers.into_iter().nth(1).unwrap_or_default())
        });
        asked.await.map_err(|error| unavailable("the read broke off", error, Retry::Never))?
    }

    /// A refusal is believed: "it was written before" lets its owner go on. What it was read from may be visible and not durable, when the
    /// one who wrote it was cut off while the server waited for its standbys. A commit that locked the same rows is behind it in the log,
    /// and waits as long.
    async fn wait_for_what_was_seen(&self, plan: Plan) -> Result<(), StoreError> {
        let work = move |db: &Db| {
            db.lock(&plan);
            Ok(())
        };
        self.transaction(Purpose::Write(Durability::Synced), work).await?.map_err(DbError::into_store)
    }

    /// A transaction of a database that is fit.
    async fn transaction<T: Send + 'static>(
        &self,
        purpose: Purpose,
        work: impl FnOnce(&Db) -> Result<T, DbError> + Send + 'static,
    ) -> Result<Result<T, DbError>, StoreError> {
        self.check().await?;
        let done = self.begun(purpose, work).await?;
        if done.as_ref().is_err_and(DbError::may_be_of_the_schema) {
            // It says what the matter is, if it is that.
            self.check_schema().await?;
        }
        Ok(done)
    }

    /// Runs a transaction on a thread that may block. It goes on to its end when the caller no longer waits for it.
    async fn begun<T: Send + 'static>(
        &self,
        purpose: Purpose,
        work: impl FnOnce(&Db) -> Result<T, DbError> + Send + 'static,
    ) -> Result<Result<T, DbError>, StoreError> {
        let (client, runtime, lock_wait) = (self.client().await?, self.runtime.clone(), self.lock_wait);
        let flights = self.flights.clone();
        let begun = move || Db::begin(client, runtime, purpose, lock_wait, flights).finish(work);
        let done = self.runtime.spawn_blocking(begun);
        done.await.map_err(|error| unavailable("the write broke off", error, Retry::Never))
    }

    /// A connection lives on the runtime of the store, whoever asks for it first.
    async fn client(&self) -> Result<Object, StoreError> {
        let pool = self.pool.clone();
        let client = self.runtime.spawn(async move { taken(&pool).await }).await;
        client.map_err(|error| unavailable("the runtime of the store has ended", error, Retry::Never))?
    }
}

/// A connection of the pool, on the runtime that it lives on.
async fn taken(pool: &Pool) -> Result<Object, StoreError> {
    pool.get().await.map_err(|error| match error {
        PoolError::Backend(error) => sql_error(error),
        PoolError::Closed => refused("the store is closed"),
        other @ (PoolError::Timeout(_) | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_)) => {
            unavailable("no connection to PostgreSQL is free", other, Retry::Later)
        }
    })
}

/// The number of the transaction that the guard says.
fn number_in(said: &[SimpleQueryMessage]) -> Option<String> {
    said.iter().find_map(|message| {
        let SimpleQueryMessage::Row(row) = message else { return None };
        row.try_get("written_by").ok().flatten().map(str::to_owned)
    })
}

/// Whether it is of a run that takes turns, and not of a session or of an end.
fn takes_turns(batch: &Batch) -> bool {
    batch.changes().any(|change| matches!(change, Change::Reserve(_) | Change::RecordTurn(_) | Change::CommitTurn(_)))
}

/// What the rules ask about the changes of a run's owner, as far as it is told by the changes.
fn asked_by(lease: &RunLease, batch: &Batch) -> Vec<(&'static str, &'static str, Vec<Value>)> {
    let of_run = || params![lease.run_id.as_str()].to_vec();
    let mut asked = vec![("", OWN_NUMBER, Vec::new()), ("run_writes", WRITTEN, of_run()), ("runs", RUN, of_run())];
    if takes_turns(batch) {
        asked.extend([("usage", LAST_REQUEST, of_run()), ("turns", OPEN_TURN, of_run())]);
        asked.push(("messages", LAST_SEQ, of_run()));
    }
    let mut ask = |table: &'static str, sql: &'static str, values: Vec<Value>| {
        if !asked.iter().any(|(_, known, of)| *known == sql && *of == values) {
            asked.push((table, sql, values));
        }
    };
    let plans = batch.changes().any(|change| matches!(change, Change::RecordTurn(_)));
    for change in batch.changes() {
        if let Some(call) = change.call()
            && !plans
        {
            ask("tool_calls", CALL, params![call.as_str()].to_vec());
        }
        match change {
            Change::StartAttempt(start) => ask("tool_calls", HOLDER, params![start.key.as_str()].to_vec()),
            Change::SettleAttempt(settle) => {
                ask("tool_attempts", ATTEMPT, params![settle.call_id.as_str(), settle.attempt].to_vec());
            }
            Change::RecordTurn(draft) => ask("run_steps", STEP, params![draft.step_id.as_str()].to_vec()),
            Change::CommitTurn(commit) => {
                ask("run_steps", STEP, params![commit.checkpoint.step_id.as_str()].to_vec());
                let calls = params![lease.run_id.as_str(), commit.turn, commit.turn].to_vec();
                ask("tool_calls", CALLS_OF_TURNS, calls);
            }
            Change::SaveCheckpoint(checkpoint) => {
                ask("run_steps", STEP, params![checkpoint.step_id.as_str()].to_vec());
            }
            // Rare, or in need of nothing more.
            Change::Reserve(_)
            | Change::Submit(_)
            | Change::SubmitAgain { .. }
            | Change::Fork(_)
            | Change::OpenSession(_)
            | Change::Answer(_)
            | Change::Override(_)
            | Change::RequestCancel { .. }
            | Change::Acquire { .. }
            | Change::ResolveLate { .. }
            | Change::Correct(_)
            | Change::Recall(_)
            | Change::Delete(_)
            | Change::PruneBlobs(_)
            | Change::NoteAlive { .. }
            | Change::EndRun(_)
            | Change::OpenStep(_)
            | Change::EnterStep(_)
            | Change::CloseStep(_)
            | Change::NoteResponse { .. }
            | Change::NoteUsage { .. }
            | Change::CloseRequest { .. }
            | Change::CloseLostRequests { .. }
            | Change::AppendMessages { .. }
            | Change::RaiseQuestion(_)
            | Change::CloseQuestion { .. }
            | Change::KeepHandle(_)
            | Change::InterpretReceipt { .. }
            | Change::Deduplicate { .. }
            | Change::CancelCalls { .. }
            | Change::MarkLost { .. }
            | Change::Arrive(_)
            | Change::Deliver { .. }
            | Change::ResolveUnknown { .. }
            | Change::NoteReplay { .. } => {}
        }
    }
    asked
}
