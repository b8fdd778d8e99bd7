//! Workers, the queue and schedules.

use std::time::Duration;

use serde_json::json;
use ua_core::{CallStatus, RunStatus, Timestamp};

pub use super::queue_turns::{a_line_that_is_left_is_no_advantage, turns_are_taken_by_what_is_ready};
use super::samples::{self, at, question_id, run_id};
use super::{Scene, recalled, refused};
use crate::commit::NewRun;
use crate::error::StoreError;
use crate::fleet::{
    CatchUp, ConcurrencyKey, DRAINED_KEPT, FleetChange, FleetDone, FleetStore, LEASE, MOST_STRIKES, QueueEntry,
    QueueOptions, QueueState, Release, ScheduleRecord, WorkerRecord,
};
use crate::record::Choice;
use crate::{LedgerStore as _, RunStore as _};

fn worker(name: &str, since: i64) -> WorkerRecord {
    WorkerRecord {
        worker: name.to_owned(),
        place: "here".to_owned(),
        place_shown: "/runs on a machine".to_owned(),
        owner: samples::owner(7),
        version: "1.0.0".to_owned(),
        queues: Vec::new(),
        slots: 4,
        started_at: at(since),
        lease_until: at(since).plus(LEASE),
        is_draining: false,
    }
}

async fn register(store: &dyn FleetStore, name: &str, since: i64) {
    store.fleet(FleetChange::Register(worker(name, since))).await.unwrap();
}

async fn enqueue(store: &dyn FleetStore, id: &str, options: QueueOptions) -> Result<QueueEntry, StoreError> {
    let run = run_id(id);
    if matches!(store.run(&run).await, Err(StoreError::NotFound { .. })) {
        let mut new = samples::new_run(id);
        new.spec.job_key = None;
        store.submit_run(new).await.unwrap();
    }
    let done = store.fleet(FleetChange::Enqueue { run, options, at: at(0) }).await?;
    Ok(done.entries.into_iter().next().unwrap())
}

async fn claim_as(store: &dyn FleetStore, name: &str, most: u32, dead: &[&str], now: Timestamp) -> FleetDone {
    let dead = dead.iter().map(|name| (*name).to_owned()).collect();
    let queue = store.fleet_state(1000).await.unwrap().queue;
    let holds =
        queue.into_iter().filter(|entry| entry.worker.as_deref() == Some(name)).map(|entry| entry.run_id).collect();
    store
        .fleet(FleetChange::Claim { worker: name.to_owned(), holds, most, dead, avoids: Vec::new(), at: now })
        .await
        .unwrap()
}

async fn claim(store: &dyn FleetStore, name: &str, most: u32, seconds: i64) -> Vec<String> {
    let done = claim_as(store, name, most, &[], at(seconds)).await;
    done.entries.into_iter().map(|entry| entry.run_id.to_string()).collect()
}

async fn release(store: &dyn FleetStore, name: &str, id: &str, release: Release) {
    let change = FleetChange::Release { worker: name.to_owned(), run: run_id(id), release };
    store.fleet(change).await.unwrap();
}

fn plain() -> QueueOptions {
    QueueOptions::at(at(0))
}

/// A run is queued once, and one worker gets it: by priority, then in the order in which they came, and none before its time.
pub async fn a_run_is_claimed_once_and_in_its_turn(store: &dyn FleetStore) {
    let first = enqueue(store, "run_1", plain()).await.unwrap();
    assert_eq!(enqueue(store, "run_1", QueueOptions { priority: -9, ..plain() }).await.unwrap(), first);
    enqueue(store, "run_2", plain()).await.unwrap();
    enqueue(store, "run_3", QueueOptions { priority: -1, ..plain() }).await.unwrap();
    enqueue(store, "run_4", QueueOptions { run_after: at(60), ..plain() }).await.unwrap();
    enqueue(store, "run_5", QueueOptions { queue: "other".to_owned(), ..plain() }).await.unwrap();
    let mut ada = worker("ada", 0);
    ada.queues = vec!["default".to_owned(), "more".to_owned()];
    store.fleet(FleetChange::Register(ada)).await.unwrap();
    register(store, "bob", 0).await;
    assert_eq!(claim(store, "ada", 2, 1).await, ["run_3", "run_1"]);
    assert_eq!(claim(store, "bob", 9, 1).await, ["run_5", "run_2"], "queues take turns");
    assert!(claim(store, "ada", 9, 1).await.is_empty());
    let depths = store.queue_depths(at(1)).await.unwrap();
    let numbers: Vec<_> = depths.iter().map(|d| (d.queue.as_str(), d.ready, d.later, d.claimed, d.parked)).collect();
    assert_eq!(numbers, [("default", 0, 1, 3, 0), ("other", 0, 0, 1, 0)]);
    for name in ["ada", "bob"] {
        let renewed = FleetChange::Renew { worker: name.to_owned(), lease_until: at(200) };
        store.fleet(renewed).await.unwrap();
    }
    assert_eq!(claim(store, "bob", 9, 60).await, ["run_4"]);
    let held = store.queued(&run_id("run_3")).await.unwrap().unwrap();
    assert_eq!((held.state, held.worker.as_deref()), (QueueState::Claimed, Some("ada")));
    release(store, "bob", "run_3", Release::Done).await;
    assert!(store.queued(&run_id("run_3")).await.unwrap().is_some(), "bob does not have it");
    release(store, "ada", "run_3", Release::Done).await;
    assert_eq!(store.queued(&run_id("run_3")).await.unwrap(), None);
}

/// What is queued exists and has not ended.
pub async fn only_a_run_that_can_be_worked_on_is_queued(store: &dyn FleetStore) {
    let nothing = FleetChange::Enqueue { run: run_id("run_9"), options: plain(), at: at(0) };
    assert!(matches!(store.fleet(nothing).await, Err(StoreError::NotFound { .. })));
    let scene = Scene::begin(store, "run_1").await;
    store.end_run(&scene.lease, samples::run_end(RunStatus::Succeeded)).await.unwrap();
    refused(enqueue(store, "run_1", plain()).await, "it is succeeded");
}

/// A schedule that is paused by now has nothing queued for an instant that had come; a person may submit its job all the same.
pub async fn what_a_paused_schedule_has_due_is_not_queued(store: &dyn FleetStore) {
    for id in ["run_1", "run_2"] {
        let mut new = samples::new_run(id);
        new.spec.job_key = None;
        store.submit_run(new).await.unwrap();
    }
    let schedule = |is_paused| ScheduleRecord {
        name: "nightly".to_owned(),
        cron: "0 3 * * *".to_owned(),
        time_zone: "UTC".to_owned(),
        job: json!({"objective": "Report."}),
        catch_up: CatchUp::Last,
        is_paused,
        next_at: at(100),
    };
    let due = |id: &str| FleetChange::EnqueueDue {
        schedule: "nightly".to_owned(),
        run: run_id(id),
        options: plain(),
        at: at(0),
    };
    store.fleet(FleetChange::PutSchedule(schedule(false))).await.unwrap();
    store.fleet(due("run_1")).await.unwrap();
    store.fleet(FleetChange::PutSchedule(schedule(true))).await.unwrap();
    assert!(matches!(store.fleet(due("run_2")).await, Err(StoreError::Conflict { .. })));
    assert_eq!(store.queued(&run_id("run_2")).await.unwrap(), None);
    enqueue(store, "run_2", plain()).await.unwrap();
}

/// So many runs of a key are worked on at once, whoever has them; one that waits for a person has no seat.
pub async fn a_key_has_so_many_seats(store: &dyn FleetStore) {
    let keyed = || QueueOptions { concurrency: Some(ConcurrencyKey { key: "tenant".to_owned(), limit: 2 }), ..plain() };
    for id in ["run_1", "run_2", "run_3", "run_4"] {
        enqueue(store, id, keyed()).await.unwrap();
    }
    enqueue(store, "run_5", plain()).await.unwrap();
    register(store, "ada", 0).await;
    register(store, "bob", 0).await;
    assert_eq!(claim(store, "ada", 1, 1).await, ["run_1"]);
    assert_eq!(claim(store, "bob", 9, 1).await, ["run_2", "run_5"]);
    release(store, "bob", "run_2", Release::Parked { why: None }).await;
    assert_eq!(claim(store, "bob", 9, 1).await, ["run_3"]);
    release(store, "ada", "run_1", Release::Done).await;
    assert_eq!(claim(store, "ada", 9, 1).await, ["run_4"]);
}

/// A run that was begun and whose worker is taken for dead may still be at work: it keeps its seat until it ends, stops or has another worker. Over
/// all ways to be taken for dead, and for one that was not begun, which has nothing to keep.
pub async fn a_run_that_may_be_at_work_keeps_its_seat(store: &dyn FleetStore) {
    #[derive(Debug, Clone, Copy)]
    enum Taken {
        LeaseEnded,
        Proved,
        OtherOwner,
    }
    let mut now = 0;
    for (number, taken) in [Taken::LeaseEnded, Taken::Proved, Taken::OtherOwner].into_iter().enumerate() {
        for is_begun in [true, false] {
            let of = |what: &str| format!("run_{what}_{number}_{is_begun}");
            let (first, second) = (of("first"), of("second"));
            let seats = ConcurrencyKey { key: format!("tenant_{number}_{is_begun}"), limit: 1 };
            let queue = format!("queue_{number}_{is_begun}");
            let keyed = QueueOptions { concurrency: Some(seats), queue: queue.clone(), ..plain() };
            enqueue(store, &first, keyed.clone()).await.unwrap();
            let (ada, bob) = (of("ada"), of("bob"));
            now += 100;
            let of_queue = |name: &str, since| WorkerRecord { queues: vec![queue.clone()], ..worker(name, since) };
            store.fleet(FleetChange::Register(of_queue(&ada, now))).await.unwrap();
            assert_eq!(claim(store, &ada, 1, now + 1).await, std::slice::from_ref(&first));
            // It comes later, and would be taken first.
            enqueue(store, &second, QueueOptions { priority: -1, ..keyed }).await.unwrap();
            let mut lease = None;
            if is_begun {
                lease = Some(store.acquire_run(&run_id(&first), &samples::owner(100), at(now + 1)).await.unwrap().0);
            }
            let mut dead = Vec::new();
            match taken {
                Taken::LeaseEnded => now += 60,
                Taken::Proved => dead.push(ada.as_str()),
                Taken::OtherOwner => {
                    let other = WorkerRecord { owner: samples::owner(99), ..of_queue(&ada, now + 2) };
                    store.fleet(FleetChange::Register(other)).await.unwrap();
                }
            }
            store.fleet(FleetChange::Register(of_queue(&bob, now + 2))).await.unwrap();
            let done = claim_as(store, &bob, 9, &dead, at(now + 3)).await;
            let got: Vec<&str> = done.entries.iter().map(|entry| entry.run_id.as_str()).collect();
            let Some(lease) = lease else {
                assert_eq!(got, [second.as_str()], "{taken:?}: what was not begun has no seat");
                continue;
            };
            assert_eq!(got, [first.as_str()], "{taken:?}: only the one that has the seat");
            // Bob finds that it is still driven. It may have been looking for more runs meanwhile, and so have taken it back for a moment.
            let driven = || Release::Ready { not_before: at(now + 50), since: None, why: None, is_driven: true };
            release(store, &bob, &first, driven()).await;
            for look in 0..3 {
                let holds = vec![run_id(&first)];
                let back = FleetChange::Claim {
                    worker: bob.clone(),
                    holds,
                    most: 9,
                    dead: Vec::new(),
                    avoids: Vec::new(),
                    at: at(now + 4),
                };
                assert!(store.fleet(back).await.unwrap().entries.is_empty(), "{taken:?}, {look}");
                release(store, &bob, &first, driven()).await;
                assert!(claim(store, &bob, 9, now + 4).await.is_empty(), "{taken:?}, {look}");
            }
            store.end_run(&lease, samples::run_end(RunStatus::Succeeded)).await.unwrap();
            assert_eq!(claim(store, &bob, 9, now + 5).await, [second], "{taken:?}");
        }
    }
}

/// Of a run that a person ended nothing is begun any more, so what was taken for dead has its seat only as long as an effect of it, or of a sub-agent
/// of it, is under way: not for a read, for what was not sent, or for what is in doubt already. Over both words that end a run.
pub async fn a_run_that_is_to_end_keeps_its_seat_for_an_effect_alone(store: &dyn FleetStore) {
    let mut now = 0;
    for (number, is_abort) in [false, true].into_iter().enumerate() {
        for under_way in ["nothing", "effect", "read", "effect of a task"] {
            let of = |what: &str| format!("run_{what}_{number}_{}", under_way.replace(' ', "_"));
            let (first, second, ada, bob) = (of("first"), of("second"), of("ada"), of("bob"));
            let (queue, key) = (of("queue"), of("key"));
            let concurrency = Some(ConcurrencyKey { key, limit: 1 });
            let keyed = QueueOptions { concurrency, queue: queue.clone(), ..plain() };
            enqueue(store, &first, keyed.clone()).await.unwrap();
            now += 100;
            let of_queue = |name: &str, since| WorkerRecord { queues: vec![queue.clone()], ..worker(name, since) };
            store.fleet(FleetChange::Register(of_queue(&ada, now))).await.unwrap();
            assert_eq!(claim(store, &ada, 1, now + 1).await, std::slice::from_ref(&first));
            let scene = Scene::take(store, &first).await;
            let (sent, kept) = (of("sent"), of("kept"));
            let mut task = None;
            match under_way {
                "effect" => {
                    scene.turn(vec![samples::planned_email(&sent, 1, 1), samples::planned_email(&kept, 1, 2)]).await;
                    scene.bring(&sent, CallStatus::Running).await;
                }
                "read" => {
                    let read = samples::planned_call(&sent, 1, 1);
                    assert!(!read.policy.class.has_effect());
                    scene.turn(vec![read, samples::planned_email(&kept, 1, 2)]).await;
                    scene.bring(&sent, CallStatus::Running).await;
                }
                "effect of a task" => {
                    let child = NewRun { run_mode: "task".to_owned(), ..samples::child_run(&of("task"), &first) };
                    let below = Scene::begin_with(store, child).await;
                    below.call_that_is(&sent, CallStatus::Running).await;
                    task = Some(below);
                }
                _ => {
                    scene.turn(vec![samples::planned_email(&kept, 1, 1)]).await;
                }
            }
            enqueue(store, &second, QueueOptions { priority: -1, ..keyed }).await.unwrap();
            store.fleet(FleetChange::Register(of_queue(&bob, now + 2))).await.unwrap();
            let dead = [ada.as_str()];
            let done = claim_as(store, &bob, 1, &dead, at(now + 3)).await;
            assert_eq!(done.entries.iter().map(|entry| entry.run_id.as_str()).collect::<Vec<_>>(), [first.as_str()]);
            let driven = Release::Ready { not_before: at(now + 50), since: None, why: None, is_driven: true };
            release(store, &bob, &first, driven).await;
            assert!(claim(store, &bob, 9, now + 4).await.is_empty(), "{under_way}: it may be at work");
            if is_abort {
                let question = of("q");
                store.raise_question(&scene.lease, samples::question(&question, None)).await.unwrap();
                store.insert_answer(samples::answer(&question, Choice::Abort)).await.unwrap();
            } else {
                store.request_cancel(&run_id(&first), "not wanted", at(now + 5)).await.unwrap();
            }
            let got = claim(store, &bob, 9, now + 6).await;
            if under_way.starts_with("effect") {
                assert!(got.is_empty(), "{under_way}: it may be happening");
                let lease = task.as_ref().map_or(&scene.lease, |below| &below.lease);
                store.settle_attempt(lease, samples::lost(&sent, 1)).await.unwrap();
                assert_eq!(claim(store, &bob, 9, now + 7).await, [second], "{under_way}: it is over, or in doubt");
            } else {
                assert_eq!(got, [second], "{under_way}");
            }
        }
    }
}

/// A worker that was taken for dead and is there again keeps what it still drives, unless another one has it by now; it is not offered it.
pub async fn who_is_there_again_keeps_what_it_drives(store: &dyn FleetStore) {
    for id in ["run_1", "run_2"] {
        enqueue(store, id, plain()).await.unwrap();
        store.acquire_run(&run_id(id), &samples::owner(100), at(1)).await.unwrap();
    }
    register(store, "ada", 0).await;
    assert_eq!(claim(store, "ada", 2, 1).await, ["run_1", "run_2"]);
    register(store, "bob", 50).await;
    let done = claim_as(store, "bob", 1, &[], at(51)).await;
    assert_eq!((done.freed, done.entries.len()), (2, 1));
    let renewed = store.fleet(FleetChange::Renew { worker: "ada".to_owned(), lease_until: at(99) }).await;
    assert!(matches!(renewed, Err(StoreError::NotFound { .. })));
    register(store, "ada", 52).await;
    let holds = vec![run_id("run_1"), run_id("run_2")];
    let again = FleetChange::Claim {
        worker: "ada".to_owned(),
        holds,
        most: 9,
        dead: Vec::new(),
        avoids: Vec::new(),
        at: at(53),
    };
    assert_eq!(store.fleet(again).await.unwrap().entries, []);
    let of = async |id: &str| store.queued(&run_id(id)).await.unwrap().unwrap();
    let (first, second) = (of("run_1").await, of("run_2").await);
    assert_eq!((first.worker.as_deref(), second.worker.as_deref()), (Some("bob"), Some("ada")));
    assert_eq!((second.state, second.strikes), (QueueState::Claimed, 0));
    release(store, "ada", "run_2", Release::Done).await;
    assert_eq!(store.queued(&run_id("run_2")).await.unwrap(), None);
}

/// Who queues much waits behind itself, not others behind it.
pub async fn fair_keys_take_turns(store: &dyn FleetStore) {
    let of = |key: &str| QueueOptions { fair_key: Some(key.to_owned()), ..plain() };
    for id in ["run_1", "run_2", "run_3", "run_4"] {
        enqueue(store, id, of("many")).await.unwrap();
    }
    register(store, "ada", 0).await;
    assert_eq!(claim(store, "ada", 1, 1).await, ["run_1"]);
    enqueue(store, "run_5", of("few")).await.unwrap();
    enqueue(store, "run_6", of("few")).await.unwrap();
    assert_eq!(claim(store, "ada", 9, 1).await, ["run_5", "run_2", "run_6", "run_3", "run_4"]);
}

/// What is claimed comes first, and the rest as a worker takes it.
pub async fn the_queue_is_listed_as_it_is_taken(store: &dyn FleetStore) {
    let of = |key: &str, priority| QueueOptions { fair_key: Some(key.to_owned()), priority, ..plain() };
    register(store, "ada", 0).await;
    let keys = [("many", 0), ("many", 0), ("many", 0), ("few", 0), ("few", 0), ("many", -1), ("late", 0), ("few", -1)];
    for (number, (key, priority)) in keys.into_iter().enumerate() {
        enqueue(store, &format!("run_{number}"), of(key, priority)).await.unwrap();
    }
    let mut taken = claim(store, "ada", 2, 1).await;
    let listed: Vec<String> =
        store.fleet_state(9).await.unwrap().queue.into_iter().map(|entry| entry.run_id.to_string()).collect();
    taken.extend(claim(store, "ada", 9, 1).await);
    assert_eq!((listed.len(), listed), (keys.len(), taken));
}

/// What a dead worker had is there for others, at once when its death is proved, else when its lease has ended; and not without end.
pub async fn what_dead_workers_had_is_there_for_others(store: &dyn FleetStore) {
    enqueue(store, "run_1", plain()).await.unwrap();
    register(store, "ada", 0).await;
    assert_eq!(claim(store, "ada", 1, 1).await, ["run_1"]);
    register(store, "bob", 10).await;
    assert!(claim(store, "bob", 1, 20).await.is_empty(), "ada is alive");
    let done = claim_as(store, "bob", 1, &["ada"], at(21)).await;
    assert_eq!((done.entries.len(), done.freed, done.entries[0].strikes), (1, 1, 1));
    let gone = store.fleet(FleetChange::Renew { worker: "ada".to_owned(), lease_until: at(99) }).await;
    assert!(matches!(gone, Err(StoreError::NotFound { .. })));
    release(store, "ada", "run_1", Release::Done).await;
    assert!(store.queued(&run_id("run_1")).await.unwrap().is_some(), "it is bob's now");
    // Its lease ends.
    let late = at(10).plus(LEASE);
    register(store, "eve", 40).await;
    let done = claim_as(store, "eve", 1, &[], late.plus(Duration::from_millis(1))).await;
    assert_eq!((done.entries.len(), done.freed), (1, 1));
    register(store, "kim", 41).await;
    let done = claim_as(store, "kim", 1, &["eve"], at(42)).await;
    assert_eq!((done.entries.len(), done.freed), (0, 1));
    let parked = store.queued(&run_id("run_1")).await.unwrap().unwrap();
    assert_eq!((parked.state, parked.strikes), (QueueState::Parked, MOST_STRIKES));
    assert!(parked.why.unwrap().contains("3 workers in a row"));
}

/// What a worker has that leaves in good order is there at once, and is no strike. One that drains takes nothing.
pub async fn a_worker_leaves_in_good_order(store: &dyn FleetStore) {
    enqueue(store, "run_1", plain()).await.unwrap();
    register(store, "ada", 0).await;
    register(store, "bob", 0).await;
    assert_eq!(claim(store, "ada", 1, 1).await, ["run_1"]);
    store.fleet(FleetChange::Drain { worker: "bob".to_owned() }).await.unwrap();
    let done = store.fleet(FleetChange::Leave { worker: "ada".to_owned() }).await.unwrap();
    assert_eq!(done.freed, 1);
    assert!(claim(store, "bob", 1, 2).await.is_empty());
    register(store, "eve", 2).await;
    let done = claim_as(store, "eve", 1, &[], at(3)).await;
    assert_eq!((done.entries.len(), done.entries[0].strikes), (1, 0));
    let gone = store.fleet(FleetChange::Drain { worker: "ada".to_owned() }).await;
    assert!(matches!(gone, Err(StoreError::NotFound { .. })));
}

/// Who was told to take no more runs takes none for as long as its process lives, however long it was silent: whether it heard of it before, was
/// looked after meanwhile, or registers anew. Once it is proved dead, or another process has its name, that is over.
pub async fn a_worker_that_drains_takes_nothing_when_it_is_back(store: &dyn FleetStore) {
    let is_draining = async |name: &str| {
        let workers = store.fleet_state(0).await.unwrap().workers;
        workers.into_iter().find(|worker| worker.worker == name).map(|worker| worker.is_draining)
    };
    enqueue(store, "run_1", plain()).await.unwrap();
    enqueue(store, "run_2", plain()).await.unwrap();
    register(store, "ada", 0).await;
    assert_eq!(claim(store, "ada", 1, 1).await, ["run_1"]);
    store.fleet(FleetChange::Drain { worker: "ada".to_owned() }).await.unwrap();
    // It stands still for longer than its lease, and others look after what it had, more than once.
    register(store, "bob", 38).await;
    let done = claim_as(store, "bob", 1, &[], at(38)).await;
    assert_eq!((done.freed, done.entries[0].run_id.as_str(), done.entries[0].strikes), (1, "run_1", 1));
    assert_eq!(claim_as(store, "bob", 0, &[], at(40)).await.freed, 0, "that is done once");
    assert_eq!(is_draining("ada").await, Some(true));
    // However it says that it is there again.
    let renewed = FleetChange::Renew { worker: "ada".to_owned(), lease_until: at(41).plus(LEASE) };
    store.fleet(renewed).await.unwrap();
    assert!(claim(store, "ada", 9, 42).await.is_empty());
    register(store, "ada", 43).await;
    assert!(claim(store, "ada", 9, 44).await.is_empty());
    assert_eq!(is_draining("ada").await, Some(true));
    // One whose row is gone says so itself.
    store.fleet(FleetChange::Leave { worker: "ada".to_owned() }).await.unwrap();
    store.fleet(FleetChange::Register(WorkerRecord { is_draining: true, ..worker("ada", 45) })).await.unwrap();
    assert!(claim(store, "ada", 9, 46).await.is_empty());
    // Another process of that name was told nothing.
    store.fleet(FleetChange::Register(WorkerRecord { owner: samples::owner(99), ..worker("ada", 47) })).await.unwrap();
    assert_eq!(is_draining("ada").await, Some(false));
    assert_eq!(claim(store, "ada", 9, 48).await, ["run_2"]);
    // Neither proof nor a day of silence leaves it there.
    for (dead, now) in [(&["ada"][..], at(49)), (&[][..], at(50).plus(LEASE).plus(DRAINED_KEPT))] {
        store
            .fleet(FleetChange::Register(WorkerRecord { owner: samples::owner(99), ..worker("ada", 48) }))
            .await
            .unwrap();
        store.fleet(FleetChange::Drain { worker: "ada".to_owned() }).await.unwrap();
        register(store, "bob", 48).await;
        store.fleet(FleetChange::Renew { worker: "bob".to_owned(), lease_until: now.plus(LEASE) }).await.unwrap();
        claim_as(store, "bob", 0, dead, now).await;
        assert_eq!(is_draining("ada").await, None, "{dead:?}");
    }
}

/// A run that waits for a person is looked at again when one said something about it, also while it was being let go.
pub async fn a_word_wakes_a_parked_run(store: &dyn FleetStore) {
    let scene = Scene::begin(store, "run_1").await;
    enqueue(store, "run_1", plain()).await.unwrap();
    register(store, "ada", 0).await;
    assert_eq!(claim(store, "ada", 1, 1).await, ["run_1"]);
    store.raise_question(&scene.lease, samples::question("q_1", None)).await.unwrap();
    release(store, "ada", "run_1", Release::Parked { why: Some("it asks".to_owned()) }).await;
    assert!(claim(store, "ada", 1, 2).await.is_empty());
    let mut answer = samples::answer("q_1", Choice::Skip);
    answer.question_id = question_id("q_1");
    store.insert_answer(answer).await.unwrap();
    assert_eq!(claim(store, "ada", 1, 3).await, ["run_1"]);
    release(store, "ada", "run_1", Release::Parked { why: None }).await;
    assert!(claim(store, "ada", 1, 4).await.is_empty(), "nothing was said since");
    store.request_cancel(&run_id("run_1"), "enough", at(5)).await.unwrap();
    assert_eq!(claim(store, "ada", 1, 6).await, ["run_1"]);
    // While it is worked on.
    store.request_cancel(&run_id("run_1"), "enough", at(7)).await.unwrap();
    store
        .insert_override(samples::new_override("run_1", crate::OverrideKind::Budget, "max_turns", json!(9)))
        .await
        .unwrap();
    release(store, "ada", "run_1", Release::Parked { why: None }).await;
    assert_eq!(claim(store, "ada", 1, 8).await, ["run_1"]);
    // Whoever resumed it by hand brought it to its end: a worker finds out, and takes it off the queue.
    release(store, "ada", "run_1", Release::Parked { why: None }).await;
    assert!(claim(store, "ada", 1, 9).await.is_empty());
    store.end_run(&scene.lease, samples::run_end(RunStatus::Cancelled)).await.unwrap();
    assert_eq!(claim(store, "ada", 1, 10).await, ["run_1"]);
    release(store, "ada", "run_1", Release::Done).await;
    assert_eq!(store.queued(&run_id("run_1")).await.unwrap(), None);
}

/// A run that waits for an answer waits no more when its question is closed because its call was sent beside the database.
pub async fn a_recalled_call_wakes_a_parked_run(store: &dyn FleetStore) {
    for answer in [None, Some(Choice::Execute), Some(Choice::Skip)] {
        let name = answer.map_or("none", |choice| choice.as_str());
        let (run, id, asked) = (format!("run_{name}"), format!("call_{name}"), format!("q_{name}"));
        let scene = Scene::begin(store, &run).await;
        let call = scene.call_that_is(&id, CallStatus::Prepared).await;
        store.raise_question(&scene.lease, samples::question(&asked, Some(&id))).await.unwrap();
        if let Some(choice) = answer {
            store.insert_answer(samples::answer(&asked, choice)).await.unwrap();
        }
        enqueue(store, &run, plain()).await.unwrap();
        register(store, name, 0).await;
        assert_eq!(claim(store, name, 1, 1).await, [run.as_str()]);
        release(store, name, &run, Release::Parked { why: Some("it asks".to_owned()) }).await;
        assert!(claim(store, name, 1, 2).await.is_empty());
        store.recall_call(recalled::recall(&call, vec![recalled::line(&call, 1, false)])).await.unwrap();
        let is_closed = answer != Some(Choice::Skip);
        assert_eq!(claim(store, name, 1, 3).await.len(), usize::from(is_closed), "{name}");
    }
}

/// What a worker gives back waits on: it is left alone for a moment, and is neither for later nor younger for that, unless it got further.
pub async fn what_is_given_back_has_waited_all_the_time(store: &dyn FleetStore) {
    enqueue(store, "run_1", QueueOptions { run_after: at(10), ..plain() }).await.unwrap();
    register(store, "ada", 0).await;
    assert_eq!(waiting(store, 9).await, (0, 1, None));
    for (now, since, oldest) in [(10, None, 10), (14, None, 10), (18, Some(at(18)), 18), (22, None, 18)] {
        assert_eq!(claim(store, "ada", 1, now).await, ["run_1"], "{now}");
        let why = Some("the disk is full".to_owned());
        release(store, "ada", "run_1", Release::Ready { not_before: at(now + 3), since, why, is_driven: false }).await;
        for later in [now, now + 2] {
            assert!(claim(store, "ada", 1, later).await.is_empty(), "{later}");
            assert_eq!(waiting(store, later).await, (1, 0, Some(at(oldest))), "{later}");
        }
    }
    // Whoever moves it wants it tried now.
    store.fleet(FleetChange::Move { run: run_id("run_1"), queue: None, priority: None }).await.unwrap();
    assert_eq!(claim(store, "ada", 1, 23).await, ["run_1"]);
    // While it waits for a person it does not wait for a worker.
    release(store, "ada", "run_1", Release::Parked { why: None }).await;
    store.request_cancel(&run_id("run_1"), "enough", at(24)).await.unwrap();
    assert!(claim(store, "ada", 0, 25).await.is_empty());
    assert_eq!(waiting(store, 26).await, (1, 0, Some(at(25))));
}

/// How many are ready and for later, and since when the oldest waits.
async fn waiting(store: &dyn FleetStore, seconds: i64) -> (u64, u64, Option<Timestamp>) {
    let depths = store.queue_depths(at(seconds)).await.unwrap();
    (depths[0].ready, depths[0].later, depths[0].oldest_at)
}

/// A run that nobody has is moved or withdrawn; one that a worker has is not.
pub async fn a_queued_run_is_moved_and_withdrawn(store: &dyn FleetStore) {
    enqueue(store, "run_1", plain()).await.unwrap();
    register(store, "ada", 0).await;
    let moved = |queue: Option<&str>, priority| FleetChange::Move {
        run: run_id("run_1"),
        queue: queue.map(str::to_owned),
        priority,
    };
    let done = store.fleet(moved(Some("night"), Some(7))).await.unwrap();
    assert_eq!((done.entries[0].options.queue.as_str(), done.entries[0].options.priority), ("night", 7));
    assert_eq!(claim(store, "ada", 1, 1).await, ["run_1"]);
    refused(store.fleet(moved(None, Some(1))).await, "a worker is running it");
    refused(store.fleet(FleetChange::Withdraw { run: run_id("run_1") }).await, "a worker is running it");
    release(
        store,
        "ada",
        "run_1",
        Release::Ready { not_before: at(50), since: None, why: Some("later".to_owned()), is_driven: false },
    )
    .await;
    assert!(claim(store, "ada", 1, 2).await.is_empty());
    store.fleet(FleetChange::Withdraw { run: run_id("run_1") }).await.unwrap();
    assert_eq!(store.queued(&run_id("run_1")).await.unwrap(), None);
    assert_eq!(store.run(&run_id("run_1")).await.unwrap().status, RunStatus::Queued);
}

/// A place is forgotten by a person's word, and not while a worker of it counts as alive.
pub async fn a_place_is_forgotten_when_its_workers_are_gone(store: &dyn FleetStore) {
    enqueue(store, "run_1", plain()).await.unwrap();
    register(store, "ada", 0).await;
    assert_eq!(claim(store, "ada", 1, 1).await, ["run_1"]);
    let forget = |seconds| FleetChange::ForgetPlace { place: "here".to_owned(), at: at(seconds) };
    refused(store.fleet(forget(2)).await, "it counts as alive");
    store.fleet(forget(31)).await.unwrap();
    assert!(store.fleet_state(9).await.unwrap().workers.is_empty());
    assert_eq!(store.queued(&run_id("run_1")).await.unwrap().unwrap().state, QueueState::Ready);
}

/// The answer to a claim may be lost on the way: whoever got runs and has not heard so gets them again, before any other.
pub async fn what_a_worker_has_not_heard_of_it_gets_again(store: &dyn FleetStore) {
    for id in ["run_1", "run_2", "run_3"] {
        enqueue(store, id, plain()).await.unwrap();
    }
    register(store, "ada", 0).await;
    register(store, "bob", 0).await;
    assert_eq!(claim(store, "ada", 2, 1).await, ["run_1", "run_2"]);
    let again = |holds: &[&str], most| FleetChange::Claim {
        worker: "ada".to_owned(),
        holds: holds.iter().map(|id| run_id(id)).collect(),
        most,
        dead: Vec::new(),
        avoids: Vec::new(),
        at: at(2),
    };
    let ids = |done: FleetDone| done.entries.into_iter().map(|entry| entry.run_id.to_string()).collect::<Vec<_>>();
    assert_eq!(ids(store.fleet(again(&["run_1"], 1)).await.unwrap()), ["run_2"]);
    assert_eq!(ids(store.fleet(again(&["run_1"], 2)).await.unwrap()), ["run_2", "run_3"]);
    assert_eq!(claim(store, "bob", 9, 3).await, [""; 0]);
    let queued = store.queued(&run_id("run_2")).await.unwrap().unwrap();
    assert_eq!((queued.state, queued.strikes), (QueueState::Claimed, 0));
}

/// What a worker cannot do others have at once. It leaves it alone by itself, as long as nobody moves it.
pub async fn what_one_worker_cannot_do_others_have_at_once(store: &dyn FleetStore) {
    enqueue(store, "run_1", plain()).await.unwrap();
    enqueue(store, "run_2", plain()).await.unwrap();
    register(store, "ada", 0).await;
    register(store, "bob", 0).await;
    let avoiding = async |seconds: i64| {
        let claim = FleetChange::Claim {
            worker: "ada".to_owned(),
            holds: Vec::new(),
            most: 1,
            dead: Vec::new(),
            avoids: vec![run_id("run_1")],
            at: at(seconds),
        };
        store.fleet(claim).await.unwrap().entries.into_iter().map(|entry| entry.run_id.to_string()).collect::<Vec<_>>()
    };
    let unfit = |seconds| Release::Unfit { at: at(seconds), why: "no program".to_owned() };
    // What nobody gave back is offered, whatever is avoided.
    assert_eq!(avoiding(1).await, ["run_1"]);
    release(store, "ada", "run_1", unfit(1)).await;
    assert_eq!(waiting(store, 1).await, (2, 0, Some(at(0))), "it waits, and is no younger");
    assert_eq!(store.queued(&run_id("run_1")).await.unwrap().unwrap().why.as_deref(), Some("no program"));
    assert_eq!(avoiding(1).await, ["run_2"]);
    release(store, "ada", "run_2", Release::Done).await;
    assert_eq!(claim(store, "bob", 1, 1).await, ["run_1"]);
    release(store, "bob", "run_1", unfit(2)).await;
    assert!(avoiding(9).await.is_empty());
    // Whoever moves it wants it tried now.
    store.fleet(FleetChange::Move { run: run_id("run_1"), queue: None, priority: None }).await.unwrap();
    assert_eq!(avoiding(9).await, ["run_1"]);
}

/// A process that takes over the name of another one shows that it is dead: what that had is there for all, and it counts.
pub async fn a_name_is_taken_over_from_a_dead_process(store: &dyn FleetStore) {
    enqueue(store, "run_1", plain()).await.unwrap();
    register(store, "ada", 0).await;
    assert_eq!(claim(store, "ada", 1, 1).await, ["run_1"]);
    // The same process again, which was taken for dead for a moment.
    register(store, "ada", 2).await;
    assert_eq!(store.queued(&run_id("run_1")).await.unwrap().unwrap().state, QueueState::Claimed);
    let other = WorkerRecord { owner: samples::owner(99), ..worker("ada", 3) };
    let elsewhere = WorkerRecord { place: "elsewhere".to_owned(), ..other.clone() };
    refused(store.fleet(FleetChange::Register(elsewhere)).await, "a worker of this name is alive");
    let done = store.fleet(FleetChange::Register(other)).await.unwrap();
    let queued = store.queued(&run_id("run_1")).await.unwrap().unwrap();
    assert_eq!((done.freed, queued.state, queued.strikes), (1, QueueState::Ready, 1));
    assert_eq!(claim(store, "ada", 1, 4).await, ["run_1"]);
}

/// An instant of a schedule is passed by one process.
pub async fn a_schedule_advances_once_an_instant(store: &dyn FleetStore) {
    let schedule = ScheduleRecord {
        name: "nightly".to_owned(),
        cron: "0 3 * * *".to_owned(),
        time_zone: "Europe/Berlin".to_owned(),
        job: json!({"objective": "Report."}),
        catch_up: CatchUp::Last,
        is_paused: false,
        next_at: at(100),
    };
    store.fleet(FleetChange::PutSchedule(schedule.clone())).await.unwrap();
    let advance = || FleetChange::Advance { name: "nightly".to_owned(), from: at(100), to: at(200) };
    store.fleet(advance()).await.unwrap();
    refused(store.fleet(advance()).await, "another process was faster");
    let stored = store.fleet_state(0).await.unwrap().schedules;
    assert_eq!(stored, [ScheduleRecord { next_at: at(200), ..schedule }]);
    store.fleet(FleetChange::RemoveSchedule { name: "nightly".to_owned() }).await.unwrap();
    let gone = store.fleet(FleetChange::RemoveSchedule { name: "nightly".to_owned() }).await;
    assert!(matches!(gone, Err(StoreError::NotFound { .. })));
}
