//! What a store keeps of the rows of a run: a write of the owner is one flight by it, and whatever anybody else wrote meanwhile makes it worth
//! nothing.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use ua_core::{CallStatus, CorrectedTo, PlannedCall, RunId, Scope, Timestamp, ToolName, ToolNamespace};
use ua_store::conformance::{Scene, samples};
use ua_store::{
    Author, Batch, Change, Committed, LedgerStore as _, RunLease, RunStore as _, StartAttempt, Store as _, StoreError,
};
use ua_store_postgres::{PostgresConfig, PostgresStore};

use crate::cluster::blocking;
use crate::database::Database;

/// The port that stands for the socket of the counter.
const PORT: u16 = 7433;

/// How often an answer followed a question.
#[derive(Debug, Default)]
struct Flights {
    has_asked: AtomicBool,
    count: AtomicU64,
}

impl Flights {
    /// A socket before the server's, in its folder.
    fn before(folder: &Path) -> Arc<Self> {
        let flights = Arc::new(Self::default());
        let (server, shared) = (folder.join(".s.PGSQL.5432"), flights.clone());
        let path = folder.join(format!(".s.PGSQL.{PORT}"));
        std::fs::remove_file(&path).ok();
        let listener = UnixListener::bind(path).unwrap();
        drop(tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, flights) = (UnixStream::connect(&server).await.unwrap(), shared.clone());
                drop(tokio::spawn(async move {
                    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                        (client.into_split(), server.into_split());
                    let asked = async {
                        let mut bytes = vec![0; 65_536];
                        while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
                            flights.has_asked.store(true, Ordering::SeqCst);
                            to_server.write_all(&bytes[..count]).await.unwrap();
                        }
                    };
                    let answered = async {
                        let mut bytes = vec![0; 65_536];
                        while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
                            if flights.has_asked.swap(false, Ordering::SeqCst) {
                                flights.count.fetch_add(1, Ordering::SeqCst);
                            }
                            to_client.write_all(&bytes[..count]).await.unwrap();
                        }
                    };
                    tokio::select! {
                        () = asked => {}
                        () = answered => {}
                    }
                }));
            }
        }));
        flights
    }

    async fn of<T>(&self, work: impl Future<Output = T>) -> (T, u64) {
        let before = self.count.load(Ordering::SeqCst);
        let done = work.await;
        (done, self.count.load(Ordering::SeqCst) - before)
    }
}

/// A run whose owner writes through one store, in batches that have numbers.
struct Driven {
    store: PostgresStore,
    lease: RunLease,
    step: String,
    sent: u64,
}

impl Driven {
    async fn begin(store: &PostgresStore, run: &str) -> Self {
        let scene = Scene::begin(store, run).await;
        Self { store: store.clone(), lease: scene.lease.clone(), step: scene.step.clone(), sent: 0 }
    }

    fn run(&self) -> &RunId {
        &self.lease.run_id
    }

    fn by(&self) -> Author {
        Author::Owner(self.lease.clone())
    }

    async fn send(&mut self, batch: Batch) -> Result<Committed, StoreError> {
        self.sent += 1;
        self.store.commit(&self.by(), batch.numbered(self.sent)).await
    }

    fn reserve(turn: u32) -> Batch {
        Batch::of([Change::Reserve(samples::reservation(turn))])
    }

    fn call(turn: u32) -> String {
        format!("call_{turn}")
    }

    /// The reply of a turn, the marker before its effect, and behind them its start.
    fn record(&self, turn: u32) -> Batch {
        self.record_knowing(turn, None)
    }

    /// The same of whoever knows when a record was corrected last.
    fn record_knowing(&self, turn: u32, corrected_at: Option<Timestamp>) -> Batch {
        let call = Self::call(turn);
        let draft = samples::draft(&self.step, turn, u64::from(turn), vec![samples::planned_email(&call, turn, 1)]);
        let marker = samples::checkpoint(&format!("before_{turn}"), &self.step);
        let start = StartAttempt {
            scope: Some(Scope::new("email.send", &call)),
            seen: Some(Vec::new()),
            corrected_at,
            ..samples::start(&call, 1, &call)
        };
        Batch::of([Change::RecordTurn(draft), Change::SaveCheckpoint(marker)]).provided([Change::StartAttempt(start)])
    }

    /// Its answer, and behind it its end.
    fn end(&self, turn: u32) -> Batch {
        let settle = samples::settle(&Self::call(turn), 1, CallStatus::Succeeded);
        let commit = samples::commit(&self.step, turn, &format!("behind_{turn}"));
        Batch::of([Change::SettleAttempt(settle)]).provided([Change::CommitTurn(commit)])
    }

    async fn turn(&mut self, turn: u32) {
        self.send(Self::reserve(turn)).await.unwrap();
        let recorded = self.send(self.record(turn)).await.unwrap();
        recorded.provided.unwrap();
        self.send(self.end(turn)).await.unwrap().provided.unwrap();
    }
}

/// Three writes and the two looks between them.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_a_flight_for_each_write_and_each_look() {
    let Some(database) = Database::fresh() else { return };
    let flights = Flights::before(database.folder());
    let mut config = PostgresConfig::from_url(&database.url_at(PORT)).unwrap();
    config.connections = 1;
    let store = blocking(PostgresStore::open(&config)).unwrap();
    let mut driven = Driven::begin(&store, "run_1").await;
    driven.turn(1).await;
    let (mut counted, own) = (Vec::new(), store.flights());
    counted.push(flights.of(store.run(driven.run())).await.1);
    counted.push(flights.of(driven.send(Driven::reserve(2))).await.1);
    counted.push(flights.of(driven.send(driven.record(2))).await.1);
    counted.push(flights.of(store.check_lease(&driven.lease)).await.1);
    counted.push(flights.of(driven.send(driven.end(2))).await.1);
    assert_eq!((counted, store.flights() - own), (vec![1; 5], 5), "as the socket and the store count them");
    let records = store.load(driven.run()).await.unwrap();
    assert_eq!((records.run.turn_index, records.receipts.len(), records.calls.len()), (2, 2, 2));
}

/// A cancel and a sign of life are columns of the row that the owner stores whole: what is kept of it must not put them back.
#[tokio::test]
async fn what_others_wrote_about_a_run_is_not_put_back() {
    let Some(database) = Database::fresh() else { return };
    let (store, other) = (database.store(), database.store());
    let mut driven = Driven::begin(&store, "run_1").await;
    driven.turn(1).await;
    driven.send(Driven::reserve(2)).await.unwrap();
    driven.send(driven.record(2)).await.unwrap().provided.unwrap();
    other.request_cancel(driven.run(), "enough", samples::at(7)).await.unwrap();
    other.note_alive(&driven.lease, Duration::ZERO, samples::at(8)).await.unwrap();
    let ended = driven.send(driven.end(2)).await.unwrap();
    assert_eq!(ended.words, 1, "the owner is told that somebody said something");
    let run = other.run(driven.run()).await.unwrap();
    assert_eq!((run.turn_index, run.cancel_requested_at), (2, Some(samples::at(7))));
    assert_eq!(run.seen_at, Some(samples::at(8)));
}

#[tokio::test]
async fn a_run_that_was_taken_over_is_not_written_by_what_is_kept_of_it() {
    let Some(database) = Database::fresh() else { return };
    let (store, other) = (database.store(), database.store());
    let mut driven = Driven::begin(&store, "run_1").await;
    driven.turn(1).await;
    let (lease, _) = other.acquire_run(driven.run(), &samples::owner(200), samples::at(30)).await.unwrap();
    // As many batches as the first owner's, so that the counts do not tell them apart.
    for number in 1..=driven.sent {
        let alive = Change::NoteAlive { suspended: Duration::ZERO, at: samples::at(31) };
        let batch = Batch::of([alive]).numbered(number);
        other.commit(&Author::Owner(lease.clone()), batch).await.unwrap();
    }
    let refused = driven.send(Driven::reserve(2)).await;
    assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
    assert_eq!(other.load(driven.run()).await.unwrap().requests.len(), 1);
}

/// The same lease in two stores, as a process has it that opened the database twice.
#[tokio::test]
async fn what_the_owner_wrote_elsewhere_is_seen() {
    let Some(database) = Database::fresh() else { return };
    let (store, other) = (database.store(), database.store());
    let mut driven = Driven::begin(&store, "run_1").await;
    driven.turn(1).await;
    let reserved = other.reserve_request(&driven.lease, samples::reservation(2)).await.unwrap();
    let again = driven.send(Driven::reserve(2)).await.unwrap();
    assert_eq!(again.stands, [ua_store::Done::Request(reserved)]);
    assert_eq!(other.load(driven.run()).await.unwrap().requests.len(), 2);
    // A number that is not the next, and one that was.
    let (batch, by) = (driven.record(2), driven.by());
    let early = store.commit(&by, batch.clone().numbered(driven.sent + 2)).await;
    assert!(matches!(early, Err(StoreError::WentBack { .. })), "{early:?}");
    driven.send(batch.clone()).await.unwrap().provided.unwrap();
    let late = store.commit(&by, batch.numbered(driven.sent)).await;
    assert!(matches!(late, Err(StoreError::Repeated { .. })), "{late:?}");
    driven.send(driven.end(2)).await.unwrap().provided.unwrap();
}

/// A fork sends to the same address while the run thinks: its next start is refused, and its reply is stored all the same.
#[tokio::test]
async fn a_start_that_assumes_nothing_beside_it_is_refused_when_there_is_something() {
    let Some(database) = Database::fresh() else { return };
    let (store, other) = (database.store(), database.store());
    let mut driven = Driven::begin(&store, "run_1").await;
    driven.turn(1).await;
    driven.send(Driven::reserve(2)).await.unwrap();
    let beside = Scene::begin_with(&other, samples::child_run("run_2", "run_1")).await;
    // Another tool: what they have in common is the address.
    let name = ToolName::qualified(ToolNamespace::Composio, "composio", "OUTLOOK_SEND_EMAIL");
    beside.turn(vec![PlannedCall { name, ..samples::planned_email("beside", 1, 1) }]).await;
    let scope = Some(Scope::new("email.send", &Driven::call(2)));
    let start = StartAttempt { scope, seen: Some(Vec::new()), ..samples::start("beside", 1, "beside") };
    other.start_attempt(&beside.lease, start).await.unwrap();
    let recorded = driven.send(driven.record(2)).await.unwrap();
    assert!(matches!(recorded.provided, Err(StoreError::ScopeTouched { .. })), "{:?}", recorded.provided);
    let call = other.call(&samples::call_id(&Driven::call(2))).await.unwrap();
    assert_eq!(call.status, CallStatus::Prepared);
}

/// A person corrects a call of the turn that is open in what is kept.
#[tokio::test]
async fn a_corrected_call_is_not_put_back() {
    let Some(database) = Database::fresh() else { return };
    let (store, other) = (database.store(), database.store());
    let mut driven = Driven::begin(&store, "run_1").await;
    driven.turn(1).await;
    let call = other.call(&samples::call_id(&Driven::call(1))).await.unwrap();
    other.correct_call(samples::correct(&call, CorrectedTo::NotHappened, 70)).await.unwrap();
    let reserved = driven.send(Driven::reserve(2)).await.unwrap();
    assert_eq!(reserved.words, 1);
    driven.send(driven.record_knowing(2, Some(samples::at(70)))).await.unwrap().provided.unwrap();
    driven.send(driven.end(2)).await.unwrap().provided.unwrap();
    let records = other.load(driven.run()).await.unwrap();
    assert!(records.run.corrected_at.is_some(), "{:?}", records.run);
    assert_eq!(records.calls[0].status, CallStatus::FailedDefinite);
}
