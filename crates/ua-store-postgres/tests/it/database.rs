//! A database of its own for each test.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail like tests")]

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio_postgres::Client;
use ua_store::Store;
use ua_store::conformance::Harness;
use ua_store_postgres::{PostgresConfig, PostgresStore, migrate};

use crate::cluster::{Cluster, blocking, skipped};

/// The cluster of all tests that need none of their own.
pub(crate) fn shared() -> Option<&'static Cluster> {
    static CLUSTER: OnceLock<Option<Cluster>> = OnceLock::new();
    let cluster = CLUSTER.get_or_init(|| {
        let cluster = Cluster::start("-c full_page_writes=off -c deadlock_timeout=50ms")?;
        migrated(&cluster, "schema");
        Some(cluster)
    });
    if cluster.is_none() {
        skipped("PostgreSQL is not installed");
    }
    cluster.as_ref()
}

/// Makes a database with our schema.
fn migrated(cluster: &Cluster, database: &str) {
    cluster.create(database, "");
    blocking(migrate(&PostgresConfig::from_url(&cluster.url(database, 5432)).unwrap())).unwrap();
}

/// Waits until a query has a row.
pub(crate) async fn until(by_hand: &Client, sql: &str) -> i32 {
    let mut pause = tokio::time::interval(Duration::from_millis(10));
    for _ in 0..3_000 {
        pause.tick().await;
        if let Some(row) = by_hand.query_opt(sql, &[]).await.unwrap() {
            return row.get(0);
        }
    }
    panic!("never: {sql}");
}

/// A database of its own, empty or with our schema.
pub(crate) struct Database {
    cluster: &'static Cluster,
    /// Its name.
    pub(crate) name: String,
}

impl Database {
    /// With our schema, in a cluster of a test's own.
    pub(crate) fn in_its_own(cluster: Cluster) -> Self {
        let cluster: &'static Cluster = Box::leak(Box::new(cluster));
        migrated(cluster, "own");
        Self { cluster, name: "own".to_owned() }
    }

    /// With the schema.
    pub(crate) fn fresh() -> Option<Self> {
        Self::made("TEMPLATE schema")
    }

    /// Without.
    pub(crate) fn empty() -> Option<Self> {
        Self::made("TEMPLATE template0 ENCODING 'UTF8'")
    }

    /// As `CREATE DATABASE` says.
    pub(crate) fn made(how: &str) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let cluster = shared()?;
        let name = format!("db_{}", NEXT.fetch_add(1, Ordering::SeqCst));
        cluster.create(&name, how);
        Some(Self { cluster, name })
    }

    /// The server.
    pub(crate) fn cluster(&self) -> &'static Cluster {
        self.cluster
    }

    /// Where the server's sockets are.
    pub(crate) fn folder(&self) -> &Path {
        self.cluster.folder()
    }

    /// How it is named at a port.
    pub(crate) fn url_at(&self, port: u16) -> String {
        self.cluster.url(&self.name, port)
    }

    /// How the server itself is reached.
    pub(crate) fn direct(&self) -> PostgresConfig {
        PostgresConfig::from_url(&self.cluster.url(&self.name, 5432)).unwrap()
    }

    /// How it is reached through the pooler.
    pub(crate) fn pooled(&self) -> Option<PostgresConfig> {
        if !self.cluster.has_pooler() {
            skipped("pgbouncer is not installed");
            return None;
        }
        Some(PostgresConfig::from_url(&self.cluster.url(&self.name, 6432)).unwrap())
    }

    /// A store of it.
    pub(crate) fn store(&self) -> PostgresStore {
        blocking(PostgresStore::open(&self.direct())).unwrap()
    }

    /// A connection for SQL by hand.
    pub(crate) fn by_hand(&self) -> Client {
        blocking(async {
            let client = self.cluster.connect_at(&self.name, 5432).await.unwrap();
            client.batch_execute("SET search_path = ua").await.unwrap();
            client
        })
    }
}

/// A store with a database of its own.
pub(crate) struct Fresh {
    /// The store itself.
    pub(crate) store: PostgresStore,
    database: Database,
}

impl Fresh {
    /// Reached as `config` says.
    pub(crate) fn with(database: Database, config: &PostgresConfig) -> Self {
        Self { store: blocking(PostgresStore::open(config)).unwrap(), database }
    }
}

impl Harness for Fresh {
    fn store(&self) -> &dyn Store {
        &self.store
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        self.store.close();
        let (cluster, name) = (self.database.cluster, self.database.name.clone());
        blocking(async move {
            let client = cluster.connect_at("postgres", 5432).await.expect("the server answers");
            // The pooler may still hold connections to it.
            client.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await.expect("it is dropped");
        });
    }
}
