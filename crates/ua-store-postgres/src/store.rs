//! The store: a pool of connections, each taken for one transaction.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime};
use tokio::runtime::Handle;
use tokio::sync::OnceCell;
use tokio_postgres::NoTls;
use tokio_postgres::config::SslMode;
use tracing::Instrument as _;
use ua_store::{Author, Batch, Change, Committed, Durability, Retry, StoreError, apply};

use crate::config::{Place, PostgresConfig};
use crate::db::{Db, Purpose};
use crate::error::{DbError, refused, sql_error, unavailable};
use crate::ledger_rows::{ATTEMPT, CALL, HOLDER};
use crate::locks::{Plan, Shared};
use crate::run_rows::{RUN, WRITTEN};
use crate::value::{Value, params};
use crate::{schema, spans, tls};

/// How often a transaction is begun anew that the server gave up for another one's sake.
const MOST_TRIES: u32 = 20;

/// PostgreSQL behind the storage port. Cloned, it is the same store.
#[derive(Clone)]
pub struct PostgresStore {
    pool: Pool,
    runtime: Handle,
    place: Option<Place>,
    lock_wait: Duration,
    /// Set once the database was found fit.
    is_checked: Arc<OnceCell<()>>,
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
        let manager = if config.server.get_ssl_mode() == SslMode::Disable {
            Manager::from_config(config.server.clone(), NoTls, recycling)
        } else {
            let tls = tls::connector(config.root_certificates.as_deref())?;
            Manager::from_config(config.server.clone(), tls, recycling)
        };
        let pool = Pool::builder(manager).max_size(config.connections.max(1)).runtime(Runtime::Tokio1).build();
        let pool = pool.map_err(|error| unavailable("the pool of connections cannot be made", error, Retry::Never))?;
        Ok(Self {
            pool,
            runtime: Handle::current(),
            place: config.place.clone(),
            lock_wait: config.lock_wait,
            is_checked: Arc::default(),
        })
    }

    /// Where runs are taken.
    pub(crate) fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// Ends all connections that nobody uses, and lets nobody take one any more.
    pub fn close(&self) {
        self.pool.close();
    }

    /// Refuses a database that this program does not know how to write, or that is somebody else's.
    async fn check(&self) -> Result<(), StoreError> {
        let checked = self
            .is_checked
            .get_or_try_init(|| async { self.begun(Purpose::Read, schema::check).await?.map_err(DbError::into_store) });
        checked.await.copied()
    }

    /// Reads from one snapshot.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Db) -> Result<T, DbError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.transaction(Purpose::Read, work).await?.map_err(DbError::into_store)
    }

    /// Writes a batch.
    pub(crate) async fn write(&self, by: &Author, batch: Batch, operation: &str) -> Result<Committed, StoreError> {
        let durability = batch.durability();
        self.write_it(by, batch, durability).instrument(spans::of_write(operation, durability)).await
    }

    async fn write_it(&self, by: &Author, batch: Batch, durability: Durability) -> Result<Committed, StoreError> {
        let plan = Plan::of(by, &batch);
        for _ in 1..MOST_TRIES {
            match self.write_once(by, &batch, &plan, durability).await? {
                Err(error) if error.gave_way() => tracing::debug!(%error, "a transaction gave way and begins again"),
                Err(error) if error.is_refusal() && durability == Durability::Synced => {
                    self.wait_for_what_was_seen(plan).await?;
                    return Err(error.into_store());
                }
                done => return done.map_err(DbError::into_store),
            }
        }
        self.write_once(by, &batch, &plan, durability).await?.map_err(DbError::into_store)
    }

    /// Writes rows that belong to no lineage; writers of the same kind follow each other.
    pub(crate) async fn write_apart<T: Send + 'static>(
        &self,
        what: Shared,
        work: impl Fn(&Db) -> Result<T, DbError> + Clone + Send + 'static,
    ) -> Result<T, StoreError> {
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
                done => return done.map_err(DbError::into_store),
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
    ) -> Result<Result<Committed, DbError>, StoreError> {
        let (by, batch, plan, place) = (by.clone(), batch.clone(), plan.clone(), self.place.clone());
        let work = move |db: &Db| {
            db.lock(&plan);
            if let Some(place) = &place {
                db.keep_to(place, &batch)?;
            }
            db.look_ahead(asked_by(&by, &batch))?;
            apply(db, &by, batch)
        };
        self.transaction(Purpose::Write(durability), work).await
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
        self.begun(purpose, work).await
    }

    /// Runs a transaction on a thread that may block. It goes on to its end when the caller no longer waits for it.
    async fn begun<T: Send + 'static>(
        &self,
        purpose: Purpose,
        work: impl FnOnce(&Db) -> Result<T, DbError> + Send + 'static,
    ) -> Result<Result<T, DbError>, StoreError> {
        let (client, runtime, lock_wait) = (self.client().await?, self.runtime.clone(), self.lock_wait);
        let done = self.runtime.spawn_blocking(move || Db::begin(client, runtime, purpose, lock_wait).finish(work));
        done.await.map_err(|error| unavailable("the write broke off", error, Retry::Never))
    }

    /// A connection lives on the runtime of the store, whoever asks for it first.
    async fn client(&self) -> Result<Object, StoreError> {
        let pool = self.pool.clone();
        let client = self.runtime.spawn(async move { pool.get().await }).await;
        let client = client.map_err(|error| unavailable("the runtime of the store has ended", error, Retry::Never))?;
        client.map_err(|error| match error {
            PoolError::Backend(error) => sql_error(error),
            PoolError::Closed => refused("the store is closed"),
            other @ (PoolError::Timeout(_) | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_)) => {
                unavailable("no connection to PostgreSQL is free", other, Retry::Later)
            }
        })
    }
}

/// What the rules ask first about the changes of a run's owner: its run, and the calls that are sent or have come back.
fn asked_by(by: &Author, batch: &Batch) -> Vec<(&'static str, &'static str, Vec<Value>)> {
    let Author::Owner(lease) = by else { return Vec::new() };
    let of_run = || params![lease.run_id.as_str()].to_vec();
    let mut asked = vec![("run_writes", WRITTEN, of_run()), ("runs", RUN, of_run())];
    for change in batch.changes() {
        asked.extend(change.call().map(|call| ("tool_calls", CALL, params![call.as_str()].to_vec())));
        if let Change::StartAttempt(start) = change {
            asked.push(("tool_calls", HOLDER, params![start.key.as_str()].to_vec()));
        }
        if let Change::SettleAttempt(settle) = change {
            asked.push(("tool_attempts", ATTEMPT, params![settle.call_id.as_str(), settle.attempt].to_vec()));
        }
    }
    asked
}
