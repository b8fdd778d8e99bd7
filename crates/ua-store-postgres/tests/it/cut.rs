//! The connection is cut behind each byte, of what is asked and of what is answered: whatever was committed is found when it is sent again, and
//! whatever was not is written then.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use ua_core::CallStatus;
use ua_store::conformance::{Scene, samples};
use ua_store::{Author, Batch, Change, Retry, RunStore as _, Store as _, StoreError};
use ua_store_postgres::{PostgresConfig, PostgresStore};

use crate::cluster::blocking;
use crate::database::Database;

/// The port that stands for the socket of the cut.
const PORT: u16 = 7432;

/// How many bytes still pass, each way.
#[derive(Debug)]
struct Cut {
    asked: AtomicUsize,
    answered: AtomicUsize,
}

impl Cut {
    fn nowhere(&self) {
        self.asked.store(usize::MAX, Ordering::SeqCst);
        self.answered.store(usize::MAX, Ordering::SeqCst);
    }
}

/// Passes on what may pass, and ends when no more may.
async fn pump(
    mut from: impl tokio::io::AsyncRead + Unpin,
    mut to: impl tokio::io::AsyncWrite + Unpin,
    left: &AtomicUsize,
) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let before = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| Some(left.saturating_sub(count)));
        let passes = before.unwrap().min(count);
        if to.write_all(&bytes[..passes]).await.is_err() || passes < count {
            return;
        }
    }
}

/// A socket before the server's, in its folder.
fn cut_before(folder: &Path) -> Arc<Cut> {
    let cut = Arc::new(Cut { asked: AtomicUsize::new(usize::MAX), answered: AtomicUsize::new(usize::MAX) });
    let (server, shared) = (folder.join(".s.PGSQL.5432"), cut.clone());
    let listener = UnixListener::bind(folder.join(format!(".s.PGSQL.{PORT}"))).unwrap();
    drop(tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (server, cut) = (UnixStream::connect(&server).await.unwrap(), shared.clone());
            drop(tokio::spawn(async move {
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                // Whichever side ends first, both are closed.
                tokio::select! {
                    () = pump(from_client, to_server, &cut.asked) => {}
                    () = pump(from_server, to_client, &cut.answered) => {}
                }
            }));
        }
    }));
    cut
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_there_once_wherever_the_connection_is_cut() {
    let Some(database) = Database::fresh() else { return };
    let cut = cut_before(database.folder());
    let mut config = PostgresConfig::from_url(&database.url_at(PORT)).unwrap();
    config.connections = 1;
    let (direct, store) = (database.store(), blocking(PostgresStore::open(&config)).unwrap());
    let mut cuts = (0, 0);
    for is_answer in [false, true] {
        for bytes in (0..).step_by(61) {
            let id = format!("{}_{bytes}", if is_answer { "answer" } else { "question" });
            let scene = Scene::begin(&direct, &format!("run_{id}")).await;
            scene.call_that_is(&format!("call_{id}"), CallStatus::Running).await;
            let by = Author::Owner(scene.lease.clone());
            let settle = || {
                let settle = samples::settle(&format!("call_{id}"), 1, CallStatus::Succeeded);
                Batch::of([Change::SettleAttempt(settle)]).numbered(1)
            };
            // The connection is there before it is cut.
            cut.nowhere();
            store.run(scene.run_id()).await.unwrap();
            let left = if is_answer { &cut.answered } else { &cut.asked };
            left.store(bytes, Ordering::SeqCst);
            let first = store.commit(&by, settle()).await;
            cut.nowhere();
            let is_whole = match &first {
                Ok(_) => true,
                Err(StoreError::Unavailable { retry: Retry::Later, .. }) => false,
                Err(other) => panic!("{id}: {other:?}"),
            };
            match store.commit(&by, settle()).await {
                Ok(_) if !is_whole => cuts.0 += 1,
                Err(StoreError::Repeated { number: 1, .. }) => cuts.1 += 1,
                other => panic!("{id}: {first:?}, then {other:?}"),
            }
            let records = direct.load(scene.run_id()).await.unwrap();
            assert_eq!((records.calls[0].status, records.receipts.len()), (CallStatus::Succeeded, 1), "{id}");
            if is_whole {
                break;
            }
        }
    }
    // Both happened: cut before it was committed, and behind.
    assert!(cuts.0 > 10 && cuts.1 > 2, "{cuts:?}");
}
