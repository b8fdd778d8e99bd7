//! What waits to be written is written before anybody looks, behind nothing that was refused, and once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use async_trait::async_trait;
use tokio::sync::{Semaphore, mpsc};
use ua_core::{CallStatus, RawReply, Timestamp};
use ua_ledger::{LateReplies, Outbox, Patience, Tries};
use ua_store::conformance::{Scene, StoreSeam, Undisturbed, Writes, samples};
use ua_store::{
    AttemptEnd, Author, Batch, Change, Committed, LateReply, LedgerStore as _, MemStore, Retry, RunStore as _, Store,
    StoreError,
};

/// Says of so many batches that the database was busy: before they were written, or after.
struct Busy {
    times: AtomicU32,
    writes: bool,
    retry: Retry,
}

#[async_trait]
impl Writes for Busy {
    async fn commit(&self, inner: &dyn Store, by: &Author, batch: Batch) -> Result<Committed, StoreError> {
        let is_next = |left: u32| left.checked_sub(1);
        if self.times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_next).is_err() {
            return inner.commit(by, batch).await;
        }
        if self.writes {
            inner.commit(by, batch).await?;
        }
        Err(StoreError::Unavailable { why: "a test said so".to_owned(), source: None, retry: self.retry })
    }
}

/// Never gives up.
struct Endless;

#[async_trait]
impl Patience for Endless {
    async fn wait(&self, _doing: &str, _why: &str, _tries: &mut Tries) -> bool {
        true
    }

    async fn wait_for_room(&self, _doing: &str, _why: &str, _tries: &mut Tries) -> bool {
        true
    }
}

/// A run in memory whose one call is recorded, and the outbox of its owner, in front of a database that is busy like this.
async fn outbox(store: &Arc<MemStore>, times: u32, writes: bool) -> (Outbox, Scene<'_>) {
    let scene = Scene::begin(store.as_ref(), "run_1").await;
    scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
    let seam = StoreSeam::new(store.clone(), Arc::new(Undisturbed)).with_writes(Arc::new(Busy {
        times: AtomicU32::new(times),
        writes,
        retry: Retry::Later,
    }));
    (Outbox::new(Arc::new(seam), scene.lease.clone()).with_patience(Arc::new(Endless)), scene)
}

fn settle(call: &str) -> Change {
    Change::SettleAttempt(samples::settle(call, 1, CallStatus::Succeeded))
}

async fn status(store: &MemStore, call: &str) -> CallStatus {
    store.call(&samples::call_id(call)).await.map_or(CallStatus::Cancelled, |call| call.status)
}

#[tokio::test]
async fn what_waits_is_written_before_anybody_looks() {
    let store = Arc::new(MemStore::new());
    let (outbox, scene) = outbox(&store, 0, false).await;
    outbox.start_attempt(&scene.lease, samples::start("call_1", 1, "k")).await.unwrap();
    outbox.hold("store an answer", settle("call_1")).await;
    assert_eq!((outbox.holds(), status(&store, "call_1").await), (true, CallStatus::Running));
    let seen = outbox.call(&samples::call_id("call_1")).await.unwrap();
    assert_eq!((seen.status, outbox.holds()), (CallStatus::Succeeded, false));
}

#[tokio::test]
async fn a_write_that_is_refused_costs_nothing_that_waited() {
    let store = Arc::new(MemStore::new());
    let (outbox, scene) = outbox(&store, 0, false).await;
    outbox.start_attempt(&scene.lease, samples::start("call_1", 1, "k")).await.unwrap();
    outbox.hold("store an answer", settle("call_1")).await;
    let taken = outbox.start_attempt(&scene.lease, samples::start("call_2", 1, "k")).await;
    assert!(matches!(taken, Err(StoreError::KeyTaken { .. })), "{taken:?}");
    assert_eq!(status(&store, "call_1").await, CallStatus::Succeeded);
    assert_eq!(status(&store, "call_2").await, CallStatus::Prepared);
}

/// Busy before or after it is written: it is written once, and so is the start that came with it.
#[tokio::test]
async fn a_batch_whose_answer_was_lost_is_written_once() {
    for (times, writes) in [(3, false), (1, true), (2, true)] {
        let store = Arc::new(MemStore::new());
        let (outbox, scene) = outbox(&store, 0, false).await;
        store.start_attempt(&scene.lease, samples::start("call_1", 1, "k")).await.unwrap();
        drop(outbox);
        let busy = Arc::new(Busy { times: AtomicU32::new(times), writes, retry: Retry::Later });
        let seam = StoreSeam::new(store.clone(), Arc::new(Undisturbed)).with_writes(busy);
        let outbox = Outbox::new(Arc::new(seam), scene.lease.clone()).with_patience(Arc::new(Endless));

        outbox.hold("store an answer", settle("call_1")).await;
        let started = outbox.start_attempt(&scene.lease, samples::start("call_2", 1, "other")).await.unwrap();
        assert_eq!((started.status, started.attempt), (CallStatus::Running, 1), "{times} {writes}");
        outbox.hold("store an answer", settle("call_2")).await;
        outbox.commit_turn(&scene.lease, samples::commit(&scene.step, 1, "ckpt_1")).await.unwrap();
        let records = scene.records().await;
        assert_eq!(records.run.turn_index, 1);
        assert!(records.calls.iter().all(|call| call.status == CallStatus::Succeeded), "{:?}", records.calls);
        assert_eq!(records.receipts.len(), 2, "each answer once");
    }
}

/// A stop is asked for while a write waits, and the next try is made at this time.
#[derive(Default)]
struct Stopped(AtomicBool);

#[async_trait]
impl Patience for Stopped {
    async fn wait(&self, _doing: &str, _why: &str, _tries: &mut Tries) -> bool {
        self.0.store(true, Ordering::SeqCst);
        true
    }

    fn begins_nothing(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Once a stop is asked for, the answer is written without the start that was to go out behind it; one that was written already stands.
#[tokio::test]
async fn a_start_that_waits_behind_an_answer_is_left_out_once_a_stop_is_asked_for() {
    for writes in [false, true] {
        let store = Arc::new(MemStore::new());
        let scene = Scene::begin(store.as_ref(), "run_1").await;
        scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
        store.start_attempt(&scene.lease, samples::start("call_1", 1, "k")).await.unwrap();
        let busy = Arc::new(Busy { times: AtomicU32::new(1), writes, retry: Retry::Later });
        let seam = StoreSeam::new(store.clone(), Arc::new(Undisturbed)).with_writes(busy);
        let outbox = Outbox::new(Arc::new(seam), scene.lease.clone()).with_patience(Arc::new(Stopped::default()));
        outbox.hold("store an answer", settle("call_1")).await;
        let started = outbox.start_attempt(&scene.lease, samples::start("call_2", 1, "other")).await;
        assert_eq!(started.is_ok(), writes, "{started:?}");
        assert_eq!(status(&store, "call_1").await, CallStatus::Succeeded, "{writes}");
        let stands = if writes { CallStatus::Running } else { CallStatus::Prepared };
        assert_eq!((status(&store, "call_2").await, outbox.holds()), (stands, false), "{writes}");
    }
}

/// What waited for a database left with the try that was written.
#[tokio::test]
async fn a_start_has_the_time_of_the_try_that_was_written() {
    struct Late;

    #[async_trait]
    impl Patience for Late {
        async fn wait(&self, _doing: &str, _why: &str, _tries: &mut Tries) -> bool {
            true
        }

        fn begins_at(&self) -> Option<Timestamp> {
            Some(samples::at(90))
        }
    }

    for writes in [false, true] {
        let store = Arc::new(MemStore::new());
        let scene = Scene::begin(store.as_ref(), "run_1").await;
        scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
        store.start_attempt(&scene.lease, samples::start("call_1", 1, "k")).await.unwrap();
        let busy = Arc::new(Busy { times: AtomicU32::new(1), writes, retry: Retry::Later });
        let seam = StoreSeam::new(store.clone(), Arc::new(Undisturbed)).with_writes(busy);
        let outbox = Outbox::new(Arc::new(seam), scene.lease.clone()).with_patience(Arc::new(Late));
        outbox.hold("store an answer", settle("call_1")).await;
        let start = samples::start("call_2", 1, "other");
        let first_tried = start.at;
        let started = outbox.start_attempt(&scene.lease, start).await.unwrap();
        let at = if writes { first_tried } else { samples::at(90) };
        let attempts = store.attempts(&started.call_id).await.unwrap();
        assert_eq!((started.updated_at, attempts[0].started_at), (at, at), "{writes}");
    }
}

/// On a full disk an answer waits for room, with whatever goes out behind it. What asks for something to be begun does not: it ends at once.
#[tokio::test]
async fn an_answer_waits_for_room_and_a_start_does_not() {
    let store = Arc::new(MemStore::new());
    let scene = Scene::begin(store.as_ref(), "run_1").await;
    scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
    let full = Arc::new(Busy { times: AtomicU32::new(0), writes: false, retry: Retry::WithRoom });
    let seam = StoreSeam::new(store.clone(), Arc::new(Undisturbed)).with_writes(full.clone());
    let outbox = Outbox::new(Arc::new(seam), scene.lease.clone()).with_patience(Arc::new(Endless));
    full.times.store(1, Ordering::SeqCst);
    let refused = outbox.start_attempt(&scene.lease, samples::start("call_1", 1, "k")).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { retry: Retry::WithRoom, .. })), "{refused:?}");
    let note = || Change::NoteReplay {
        call: samples::call_id("call_1"),
        status: ua_store::ReplayStatus::Held,
        at: samples::at(50),
    };
    full.times.store(1, Ordering::SeqCst);
    outbox.hold("note something", note()).await;
    assert!(matches!(outbox.flush().await, Err(StoreError::Unavailable { .. })));
    outbox.flush().await.unwrap();

    outbox.start_attempt(&scene.lease, samples::start("call_1", 1, "k")).await.unwrap();
    outbox.hold("store an answer", settle("call_1")).await;
    full.times.store(3, Ordering::SeqCst);
    outbox.start_attempt(&scene.lease, samples::start("call_2", 1, "other")).await.unwrap();
    assert_eq!(status(&store, "call_1").await, CallStatus::Succeeded);
    outbox.hold("store an answer", settle("call_2")).await;
    full.times.store(3, Ordering::SeqCst);
    outbox.flush().await.unwrap();
    assert_eq!(status(&store, "call_2").await, CallStatus::Succeeded);
}

/// Nobody is told that an answer is there before it is stored, and nobody at all when it is refused.
#[tokio::test]
async fn what_waits_is_told_when_it_is_written() {
    let store = Arc::new(MemStore::new());
    let (outbox, scene) = outbox(&store, 2, false).await;
    store.start_attempt(&scene.lease, samples::start("call_1", 1, "k")).await.unwrap();
    let told = Arc::new(AtomicU32::new(0));
    let tell = || {
        let told = told.clone();
        Box::new(move || {
            told.fetch_add(1, Ordering::SeqCst);
        })
    };
    outbox.hold_until("store an answer", settle("call_1"), tell()).await;
    assert_eq!(told.load(Ordering::SeqCst), 0);
    outbox.flush().await.unwrap();
    assert_eq!((told.load(Ordering::SeqCst), status(&store, "call_1").await), (1, CallStatus::Succeeded));
    outbox.hold_until("store an answer", settle("call_2"), tell()).await; // it was never started
    assert!(outbox.flush().await.is_err());
    outbox.flush().await.unwrap();
    assert_eq!(told.load(Ordering::SeqCst), 1);
}

/// A write that takes long: whoever sees the process stand still may end it, and the answer is in nobody else's hands.
#[tokio::test]
async fn an_answer_is_kept_beside_the_database_while_its_write_takes_long() {
    struct Slow {
        begun: Semaphore,
        goes_on: Semaphore,
    }

    #[async_trait]
    impl Writes for Slow {
        async fn commit(&self, inner: &dyn Store, by: &Author, batch: Batch) -> Result<Committed, StoreError> {
            self.begun.add_permits(1);
            self.goes_on.acquire().await.unwrap().forget();
            inner.commit(by, batch).await
        }
    }

    /// A write has taken long once it was begun.
    struct Hasty(Arc<Slow>);

    #[async_trait]
    impl Patience for Hasty {
        async fn wait(&self, _doing: &str, _why: &str, _tries: &mut Tries) -> bool {
            false
        }

        async fn too_long(&self) {
            self.0.begun.acquire().await.unwrap().forget();
        }
    }

    #[derive(Debug)]
    struct Kept(mpsc::UnboundedSender<u32>);

    #[async_trait]
    impl LateReplies for Kept {
        async fn keep(&self, late: &LateReply) -> Result<(), String> {
            self.0.send(late.attempt).unwrap();
            Ok(())
        }

        fn all(&self) -> Vec<LateReply> {
            Vec::new()
        }
    }

    let store = Arc::new(MemStore::new());
    let scene = Scene::begin(store.as_ref(), "run_1").await;
    scene.call_that_is("call_1", CallStatus::Running).await;
    let slow = Arc::new(Slow { begun: Semaphore::new(0), goes_on: Semaphore::new(0) });
    let seam = StoreSeam::new(store.clone(), Arc::new(Undisturbed)).with_writes(slow.clone());
    let (keep, mut kept) = mpsc::unbounded_channel();
    let outbox = Outbox::new(Arc::new(seam), scene.lease.clone())
        .with_patience(Arc::new(Hasty(slow.clone())))
        .with_late_replies(Arc::new(Kept(keep)));
    // A large one takes longer, although nothing is in the way.
    let large = "x".repeat(3 << 20);
    let mut settle = samples::settle("call_1", 1, CallStatus::Succeeded);
    if let AttemptEnd::Replied { raw, .. } = &mut settle.end {
        *raw = RawReply::ToolResult { result: serde_json::json!({"content": [{"type": "text", "text": large}]}) };
    }
    outbox.hold("store an answer", Change::SettleAttempt(settle)).await;
    let look = async {
        for _ in 0..6 {
            while slow.begun.available_permits() > 0 {
                tokio::task::yield_now().await;
            }
            tokio::task::yield_now().await;
            assert_eq!(kept.try_recv(), Err(mpsc::error::TryRecvError::Empty), "it is only large");
            slow.begun.add_permits(1);
        }
        assert_eq!(kept.recv().await, Some(1));
        assert_eq!(status(&store, "call_1").await, CallStatus::Running, "it is not written yet");
        slow.goes_on.add_permits(1);
    };
    let (flushed, ()) = tokio::join!(outbox.flush(), look);
    flushed.unwrap();
    assert_eq!(status(&store, "call_1").await, CallStatus::Succeeded);
}

/// Nobody waits for a database for ever: what waited stays, and goes with the next write.
#[tokio::test]
async fn what_could_not_be_written_stays_until_it_can() {
    let store = Arc::new(MemStore::new());
    let scene = Scene::begin(store.as_ref(), "run_1").await;
    scene.call_that_is("call_1", CallStatus::Running).await;
    let busy = Arc::new(Busy { times: AtomicU32::new(1), writes: false, retry: Retry::Later });
    let seam = StoreSeam::new(store.clone(), Arc::new(Undisturbed)).with_writes(busy);
    let outbox = Outbox::new(Arc::new(seam), scene.lease.clone());
    outbox.hold("store an answer", settle("call_1")).await;
    assert!(outbox.run(scene.run_id()).await.is_err());
    assert!(outbox.holds());
    outbox.flush().await.unwrap();
    assert_eq!(status(&store, "call_1").await, CallStatus::Succeeded);
}

/// A batch whose answer was lost is repeated as it was: what came to wait since goes behind it, and is not lost with it.
#[tokio::test]
async fn what_comes_behind_a_batch_whose_answer_was_lost_is_written_too() {
    for writes in [false, true] {
        let store = Arc::new(MemStore::new());
        let scene = Scene::begin(store.as_ref(), "run_1").await;
        scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
        for call in ["call_1", "call_2"] {
            store.start_attempt(&scene.lease, samples::start(call, 1, call)).await.unwrap();
        }
        let busy = Arc::new(Busy { times: AtomicU32::new(1), writes, retry: Retry::Later });
        let seam = StoreSeam::new(store.clone(), Arc::new(Undisturbed)).with_writes(busy);
        let outbox = Outbox::new(Arc::new(seam), scene.lease.clone());
        outbox.hold("store an answer", settle("call_1")).await;
        assert!(outbox.flush().await.is_err());
        outbox.hold("store an answer", settle("call_2")).await;
        outbox.commit_turn(&scene.lease, samples::commit(&scene.step, 1, "ckpt_1")).await.unwrap();
        let calls = scene.records().await.calls;
        assert!(calls.iter().all(|call| call.status == CallStatus::Succeeded), "{writes}: {calls:?}");
        assert!(!outbox.holds());
    }
}

/// A write whose answer was lost may still arrive. Whatever is written next takes its number from it first, so it is never taken for another.
#[tokio::test]
async fn a_write_that_may_still_arrive_loses_its_number() {
    for writes in [false, true] {
        let store = Arc::new(MemStore::new());
        let scene = Scene::begin(store.as_ref(), "run_1").await;
        scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
        let busy = Arc::new(Busy { times: AtomicU32::new(1), writes, retry: Retry::Later });
        let seam = StoreSeam::new(store.clone(), Arc::new(Undisturbed)).with_writes(busy);
        let outbox = Outbox::new(Arc::new(seam), scene.lease.clone());
        assert!(outbox.start_attempt(&scene.lease, samples::start("call_1", 1, "k")).await.is_err());
        outbox.hold("start a call", Change::StartAttempt(samples::start("call_2", 1, "other"))).await;
        outbox.flush().await.unwrap();
        assert_eq!(status(&store, "call_2").await, CallStatus::Running, "{writes}");
        let late = Batch::of([Change::StartAttempt(samples::start("call_1", 1, "k"))]).numbered(1);
        let late = store.commit(&Author::Owner(scene.lease.clone()), late).await;
        assert!(late.is_err(), "{late:?}");
        let is_running = status(&store, "call_1").await == CallStatus::Running;
        assert_eq!(is_running, writes);
    }
}

/// The database lost what it had confirmed: the end of it, as a server does that crashes, or what had to be durable.
#[tokio::test]
async fn a_database_that_forgot_is_noticed_at_the_next_write() {
    for had_to_be_durable in [false, true] {
        let store = Arc::new(MemStore::new());
        let (outbox, scene) = outbox(&store, 0, false).await;
        let before = store.copied();
        outbox.start_attempt(&scene.lease, samples::start("call_1", 1, "k")).await.unwrap();
        let synced = store.copied();
        outbox.note_alive(&scene.lease, std::time::Duration::ZERO, samples::at(5)).await.unwrap();
        store.put_back(if had_to_be_durable { &before } else { &synced });
        let next = outbox.start_attempt(&scene.lease, samples::start("call_2", 1, "other")).await;
        match next {
            Err(StoreError::TailLost { written: 1, confirmed: 2, .. }) => assert!(!had_to_be_durable),
            Err(StoreError::WentBack { written: 0, confirmed: 2, .. }) => assert!(had_to_be_durable),
            other => panic!("{other:?}"),
        }
        assert_eq!(status(&store, "call_2").await, CallStatus::Prepared);
    }
}

/// Who reads before each decision continues behind what a crashed server lost; not behind what had to be durable.
#[tokio::test]
async fn who_reads_anew_continues_behind_a_lost_tail() {
    let store = Arc::new(MemStore::new());
    let (outbox, scene) = outbox(&store, 0, false).await;
    let outbox = outbox.of_one_that_reads_anew();
    let before = store.copied();
    outbox.start_attempt(&scene.lease, samples::start("call_1", 1, "k")).await.unwrap();
    let synced = store.copied();
    let alive =
        async |outbox: &Outbox| outbox.note_alive(&scene.lease, std::time::Duration::ZERO, samples::at(5)).await;
    alive(&outbox).await.unwrap();
    store.put_back(&synced);
    outbox.hold("store an answer", settle("call_1")).await;
    outbox.start_attempt(&scene.lease, samples::start("call_2", 1, "other")).await.unwrap();
    assert_eq!(status(&store, "call_1").await, CallStatus::Succeeded);
    store.put_back(&before);
    assert!(matches!(alive(&outbox).await, Err(StoreError::WentBack { .. })));
}

/// Writes the first batch, and never says so.
struct Silent(AtomicU32);

#[async_trait]
impl Writes for Silent {
    async fn commit(&self, inner: &dyn Store, by: &Author, batch: Batch) -> Result<Committed, StoreError> {
        let committed = inner.commit(by, batch).await?;
        if self.0.fetch_add(1, Ordering::SeqCst) == 0 {
            std::future::pending::<()>().await;
        }
        Ok(committed)
    }
}

/// A write whose answer nobody waits for any more was written or not: either way the next one is another.
#[tokio::test]
async fn a_write_that_was_dropped_in_the_middle_is_taken_for_no_other() {
    for is_held in [false, true] {
        let store = Arc::new(MemStore::new());
        let scene = Scene::begin(store.as_ref(), "run_1").await;
        scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
        let seam =
            StoreSeam::new(store.clone(), Arc::new(Undisturbed)).with_writes(Arc::new(Silent(AtomicU32::new(0))));
        let outbox = Outbox::new(Arc::new(seam), scene.lease.clone());
        tokio::select! {
            biased;
            started = outbox.start_attempt(&scene.lease, samples::start("call_2", 1, "other")) => panic!("{started:?}"),
            () = std::future::ready(()) => {}
        }
        if is_held {
            outbox.hold("start a call", Change::StartAttempt(samples::start("call_1", 1, "k"))).await;
            outbox.flush().await.unwrap();
        } else {
            outbox.start_attempt(&scene.lease, samples::start("call_1", 1, "k")).await.unwrap();
        }
        assert_eq!(status(&store, "call_1").await, CallStatus::Running, "held: {is_held}");
    }
}
