//! A server of our own for as long as the tests run, and connections to it for SQL by hand.
//!
//! Where PostgreSQL is not installed each test says so and passes; with `UA_NEED_POSTGRES` set, as in `.ci/run`, it fails.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::future::Future;
use std::ops::Deref;
use std::sync::OnceLock;

use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

use crate::postgres::PostgresServer;

/// The runtime of all stores of this program: a test's own ends with the test.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap())
}

/// Runs `work` to its end from wherever this is called.
pub(crate) fn blocking<T: Send>(work: impl Future<Output = T> + Send) -> T {
    std::thread::scope(|scope| scope.spawn(|| runtime().block_on(work)).join().unwrap())
}

/// Says why a test did not run, or fails where it has to.
pub(crate) fn skipped(why: &str) {
    assert!(std::env::var_os("UA_NEED_POSTGRES").is_none(), "{why}");
    crate::skips::skipped(why);
}

/// A server, with a pooler in front of it.
pub(crate) struct Cluster {
    server: PostgresServer,
}

impl Deref for Cluster {
    type Target = PostgresServer;

    fn deref(&self) -> &PostgresServer {
        &self.server
    }
}

impl Cluster {
    /// A server with these settings besides.
    pub(crate) fn start(settings: &str) -> Option<Self> {
        match PostgresServer::start(settings) {
            Ok(server) => Some(Self { server }),
            Err(why) => {
                skipped(&why);
                None
            }
        }
    }

    #[allow(dead_code, reason = "tests of other crates take this file in, too")]
    pub(crate) async fn connect_at(&self, database: &str, port: u16) -> Result<Client, tokio_postgres::Error> {
        let mut config = tokio_postgres::Config::new();
        config.host_path(self.folder()).user("ua").dbname(database).port(port);
        let (client, connection) = config.connect(NoTls).await?;
        drop(runtime().spawn(connection));
        Ok(client)
    }
}
