//! What a worker says about itself over HTTP: `/healthz`, `/readyz` and `/metrics`.
//!
//! One request a connection, nothing is read beyond its first line, and nothing can be asked for that changes anything.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use ua_core::{Env, RunId, Timestamp};
use ua_store::{QueueDepth, fleet::LEASE};

use super::since::Since;
use super::spans::Spans;
use crate::error::HostError;

/// A loop that did not turn for so long hangs.
const HANGS_AFTER: Duration = Duration::from_secs(30);

/// A write that the database has not taken for so long is no matter of a moment.
const WAITS_FOR: Duration = Duration::from_secs(5);

/// How a worker is.
#[derive(Debug, Clone)]
pub(super) struct State {
    /// When its loop last turned.
    pub(super) turned: Since,
    /// When the renewal was asked for that it counts as alive by; `None` before the first one.
    pub(super) renewed: Option<Since>,
    /// It ends, and takes nothing more.
    pub(super) is_draining: bool,
    /// Its row says that it takes nothing more (`ua workers drain`), as it was last read.
    pub(super) is_told_to_drain: bool,
    /// Why its last look at the database failed, so it cannot take runs.
    pub(super) cut_off: Option<String>,
    /// Runs whose write waits for the database to take it, since when.
    pub(super) waiting_writes: BTreeMap<RunId, Since>,
    /// The database answers, and refused what its runs wrote: it takes none for a while.
    pub(super) is_refused: bool,
    /// The disk of its root is full: it takes none until there is room.
    pub(super) is_full: bool,
    /// Several runs in a row needed what is not here: it takes one now and then.
    pub(super) is_lacking: bool,
    pub(super) slots: u32,
    pub(super) running: usize,
    pub(super) claimed: u64,
    pub(super) done: u64,
    pub(super) parked: u64,
    pub(super) requeued: u64,
    /// Of these, runs that need something that is not here.
    pub(super) unfit: u64,
    /// Runs of dead workers that it made ready again.
    pub(super) freed: u64,
    /// Of those that it parked, runs with a question to a person.
    pub(super) asked: u64,
    /// Of these, runs with a call of which nobody knows whether it happened.
    pub(super) in_doubt: u64,
    /// How often a run was held because the database lacked writes that it had taken.
    pub(super) went_back: u64,
    /// How often the database answered again.
    pub(super) answered_again: u64,
    /// How many writes were committed.
    pub(super) commits: u64,
    /// Of these, those that waited for the disk.
    pub(super) synced_commits: u64,
    /// How often the database's server was asked something and waited for; 0 with a file.
    pub(super) flights: u64,
    /// How long it took to claim, whether or not there was a run.
    pub(super) claims: Spans,
    /// How long runs had been ready when it took them.
    pub(super) waits: Spans,
    /// Renewals that failed or came late.
    pub(super) late_renewals: u64,
    /// Why it could not submit the job of schedules when it last looked, a sentence each.
    pub(super) failing_schedules: Vec<String>,
    pub(super) depths: Vec<QueueDepth>,
    /// When these were counted, by the clock that all workers share and by its own.
    pub(super) counted: Option<(Timestamp, Since)>,
}

impl State {
    /// About now by the clock that all workers share; `None` before that was asked.
    fn shared_now(&self, env: &Env) -> Option<Timestamp> {
        self.counted.map(|(at, counted)| at.plus(counted.ran(env)))
    }

    fn is_overdue(&self, env: &Env) -> bool {
        self.renewed.is_none_or(|renewed| renewed.passed(env) >= LEASE)
    }
}

/// The state of a worker, and the clock that it is judged by.
#[derive(Clone)]
pub(super) struct Health {
    state: Arc<Mutex<State>>,
    env: Env,
}

impl Health {
    pub(super) fn new(env: &Env, slots: u32) -> Self {
        let state = State {
            turned: Since::now(env),
            renewed: None,
            is_draining: false,
            is_told_to_drain: false,
            cut_off: None,
            waiting_writes: BTreeMap::new(),
            is_refused: false,
            is_full: false,
            is_lacking: false,
            slots,
            running: 0,
            claimed: 0,
            done: 0,
            parked: 0,
            requeued: 0,
            unfit: 0,
            freed: 0,
            asked: 0,
            in_doubt: 0,
            went_back: 0,
            answered_again: 0,
            commits: 0,
            synced_commits: 0,
            flights: 0,
            claims: Spans::of_answers(),
            waits: Spans::of_waits(),
            late_renewals: 0,
            failing_schedules: Vec::new(),
            depths: Vec::new(),
            counted: None,
        };
        Self { state: Arc::new(Mutex::new(state)), env: env.clone() }
    }

    /// This moment, by the clock that it is judged by.
    pub(super) fn now(&self) -> Since {
        Since::now(&self.env)
    }

    /// About now by the clock that all workers share, as it was last read; `None` before that.
    pub(super) fn shared_now(&self) -> Option<Timestamp> {
        self.state().shared_now(&self.env)
    }

    /// Its loop turns.
    pub(super) fn turns(&self) {
        self.state().turned = self.now();
    }

    /// The database took a renewal that was asked for then.
    pub(super) fn renewed(&self, sent: Since) {
        self.state().renewed = Some(sent);
    }

    /// Whether its lease has ended, as far as it can know: others may have taken what it has.
    pub(super) fn is_overdue(&self) -> bool {
        self.state().is_overdue(&self.env)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers at `address` for as long as the worker lives; where that is.
    pub(super) async fn listen(&self, address: SocketAddr) -> Result<SocketAddr, HostError> {
        let failed = |e: std::io::Error| {
            HostError::usage(format!("cannot listen on {address}: {e}")).hint("choose another address with --listen")
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let health = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let health = health.clone();
                tokio::spawn(async move { health.answer(stream).await });
            }
        });
        Ok(bound)
    }

    async fn answer(&self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        let read = (&mut stream).take(1024);
        let asked = async { BufReader::new(read).read_line(&mut line).await };
        tokio::select! {
            read = asked => if read.is_err() { return },
            () = self.env.clock.sleep(Duration::from_secs(5)) => return,
        }
        let path = line.split_ascii_whitespace().nth(1).unwrap_or("");
        let (status, text) = self.page(path);
        let reply = format!(
            "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
            text.len()
        );
        if let Err(error) = stream.get_mut().write_all(reply.as_bytes()).await {
            tracing::debug!(%error, "whoever asked for the worker's health went away");
        }
    }

    fn page(&self, path: &str) -> (&'static str, String) {
        let (env, state) = (&self.env, self.state().clone());
        let judged = |problem: Option<&str>| match problem {
            None => ("200 OK", "ok\n".to_owned()),
            Some(problem) => ("503 Service Unavailable", format!("{problem}\n")),
        };
        match path {
            "/healthz" => judged((state.turned.passed(env) > HANGS_AFTER).then_some("the worker's loop is hung")),
            "/readyz" if state.is_draining || state.is_told_to_drain => judged(Some("draining")),
            "/readyz" if state.cut_off.is_some() => {
                judged(state.cut_off.map(|why| format!("{why}; no run is taken")).as_deref())
            }
            "/readyz" if state.is_refused => judged(Some("the database refuses what runs write; no run is taken")),
            "/readyz" if state.waiting_writes.values().any(|since| since.passed(env) >= WAITS_FOR) => {
                judged(Some("the database does not take what runs write, which is tried again"))
            }
            "/readyz" if state.is_full => judged(Some("the disk of the worker's root is full; no run is taken")),
            "/readyz" if state.is_lacking => {
                judged(Some("several runs in a row needed what is not on this machine; one a second is tried"))
            }
            "/readyz" => judged(state.is_overdue(env).then_some("the database does not accept the worker's renewals")),
            "/metrics" => ("200 OK", metrics(env, &state)),
            _ => ("404 Not Found", "there are /healthz, /readyz and /metrics\n".to_owned()),
        }
    }
}

/// In the text format that Prometheus reads.
fn metrics(env: &Env, state: &State) -> String {
    let mut page = String::new();
    let mut one = |name: &str, kind: &str, help: &str, values: &[(String, f64)]| {
        let written = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
        let rest = values.iter().try_for_each(|(labels, value)| writeln!(page, "{name}{labels} {value}"));
        debug_assert!(written.is_ok() && rest.is_ok(), "a string takes everything");
    };
    #[expect(clippy::cast_precision_loss, reason = "counts of a process are far below 2^52")]
    let count = |number: u64| vec![(String::new(), number as f64)];
    one("ua_worker_slots", "gauge", "Runs that it may work on at once", &count(u64::from(state.slots)));
    one("ua_worker_running", "gauge", "Runs that it works on", &count(state.running as u64));
    one("ua_worker_claims_total", "counter", "Runs that it took from the queue", &count(state.claimed));
    one("ua_worker_done_total", "counter", "Runs that ended with it", &count(state.done));
    one("ua_worker_parked_total", "counter", "Runs that it left waiting for a person", &count(state.parked));
    one("ua_worker_requeued_total", "counter", "Runs that it gave back", &count(state.requeued));
    one("ua_worker_unfit_total", "counter", "Runs that need what is not on its machine", &count(state.unfit));
    one("ua_worker_takeovers_total", "counter", "Runs of dead workers that it made ready again", &count(state.freed));
    one("ua_worker_late_renewals_total", "counter", "Renewals of its lease that failed", &count(state.late_renewals));
    one("ua_worker_questions_total", "counter", "Runs that it left with a question to a person", &count(state.asked));
    one(
        "ua_worker_doubts_total",
        "counter",
        "Of these, runs with a call that may have happened",
        &count(state.in_doubt),
    );
    let lost = count(state.went_back);
    one(
        "ua_worker_lost_writes_total",
        "counter",
        "Runs held because the database lacks writes that it had taken",
        &lost,
    );
    let again = count(state.answered_again);
    one("ua_worker_reconnects_total", "counter", "Times that the database answered again after it had not", &again);
    one("ua_worker_commits_total", "counter", "Writes of runs that the database took", &count(state.commits));
    let synced = count(state.synced_commits);
    one("ua_worker_synced_commits_total", "counter", "Of these, writes that waited for the disk", &synced);
    one("ua_worker_flights_total", "counter", "Round trips to the server of the database", &count(state.flights));
    let failing = count(state.failing_schedules.len() as u64);
    one("ua_worker_schedules_failing", "gauge", "Schedules whose job it cannot submit", &failing);
    let of_queues = |value: &dyn Fn(&QueueDepth) -> f64| -> Vec<(String, f64)> {
        state.depths.iter().map(|depth| (format!("{{queue=\"{}\"}}", depth.queue), value(depth))).collect()
    };
    #[expect(clippy::cast_precision_loss, reason = "as above")]
    let as_float = |number: u64| number as f64;
    one("ua_queue_ready", "gauge", "Runs that wait for a worker", &of_queues(&|depth| as_float(depth.ready)));
    one("ua_queue_later", "gauge", "Runs that are not due yet", &of_queues(&|depth| as_float(depth.later)));
    one("ua_queue_claimed", "gauge", "Runs taken by workers", &of_queues(&|depth| as_float(depth.claimed)));
    one("ua_queue_parked", "gauge", "Runs that wait for people", &of_queues(&|depth| as_float(depth.parked)));
    // What was stored by the clock that all workers share is compared with no other.
    let now = state.shared_now(env);
    let oldest = |depth: &QueueDepth| {
        now.zip(depth.oldest_at).map_or(0.0, |(now, oldest_at)| now.since(oldest_at).as_secs_f64())
    };
    one("ua_queue_oldest_seconds", "gauge", "How long the oldest of them has been ready", &of_queues(&oldest));
    state.claims.write(&mut page, "ua_worker_claim_seconds", "How long it took to ask the queue for runs");
    state.waits.write(&mut page, "ua_worker_run_wait_seconds", "How long runs had been ready when it took them");
    page
}

#[cfg(test)]
mod tests {
    use super::super::since::tests::Settable;
    use super::*;

    #[test]
    fn a_worker_is_ready_while_its_lease_lasts_and_it_takes_runs() {
        let env = Env::simulated(1);
        let health = Health::new(&env, 3);
        let status = |path: &str| health.page(path).0.split(' ').next().unwrap_or("").to_owned();
        assert_eq!((status("/healthz"), status("/readyz")), ("200".to_owned(), "503".to_owned()));
        health.renewed(Since::now(&env));
        assert_eq!(status("/readyz"), "200");
        // At once, and not when the lease ends.
        health.state().cut_off = Some("the database has schema 99".to_owned());
        assert_eq!((status("/readyz"), status("/healthz")), ("503".to_owned(), "200".to_owned()));
        assert_eq!(health.page("/readyz").1, "the database has schema 99; no run is taken\n");
        health.state().cut_off = None;
        assert_eq!(status("/readyz"), "200");
        // A write that waits for a moment is nothing.
        let run = RunId::parse("r").unwrap();
        health.state().waiting_writes.insert(run, Since::now(&env));
        env.clock.sleep_blocking_for_tests(Duration::from_secs(4));
        assert_eq!(status("/readyz"), "200");
        env.clock.sleep_blocking_for_tests(Duration::from_secs(1));
        assert_eq!((status("/readyz"), status("/healthz")), ("503".to_owned(), "200".to_owned()));
        health.state().waiting_writes.clear();
        assert_eq!(status("/readyz"), "200");
        health.state().is_refused = true;
        assert_eq!((status("/readyz"), status("/healthz")), ("503".to_owned(), "200".to_owned()));
        health.state().is_refused = false;
        assert_eq!(status("/readyz"), "200");
        health.state().is_full = true;
        assert_eq!((status("/readyz"), status("/healthz")), ("503".to_owned(), "200".to_owned()));
        health.state().is_full = false;
        health.state().is_lacking = true;
        assert_eq!((status("/readyz"), status("/healthz")), ("503".to_owned(), "200".to_owned()));
        health.state().is_lacking = false;
        assert_eq!(status("/readyz"), "200");
        // By its row, which a worker that is taken for dead has anew.
        health.state().is_told_to_drain = true;
        assert_eq!((status("/readyz"), status("/healthz")), ("503".to_owned(), "200".to_owned()));
        health.state().is_told_to_drain = false;
        assert_eq!(status("/readyz"), "200");
        health.state().is_draining = true;
        assert_eq!((status("/readyz"), status("/other")), ("503".to_owned(), "404".to_owned()));
        env.clock.sleep_blocking_for_tests(HANGS_AFTER);
        assert_eq!(status("/healthz"), "503");
    }

    /// Whatever the clock of the machine is set to: what hangs is seen, what is not renewed is seen, and what goes on is left alone.
    #[test]
    fn a_clock_that_is_set_back_hides_nothing() {
        for by in [-86_400_000, -3_600_000, -31_000, 0] {
            let (clock, env) = Settable::with_env();
            let health = Health::new(&env, 3);
            let status = |path: &str| health.page(path).0.split(' ').next().unwrap_or("").to_owned();
            let run = RunId::parse("r").unwrap();
            health.renewed(health.now());
            clock.set(by);
            for _ in 0..12 {
                clock.pass(Duration::from_secs(5));
                health.turns();
                health.renewed(health.now());
                assert_eq!((status("/readyz"), status("/healthz")), ("200".to_owned(), "200".to_owned()), "{by}");
            }
            health.state().waiting_writes.insert(run, health.now());
            clock.set(by);
            clock.pass(WAITS_FOR);
            assert!(health.page("/readyz").1.contains("does not take what runs write"), "{by}");
            health.state().waiting_writes.clear();
            assert_eq!((status("/readyz"), health.is_overdue()), ("200".to_owned(), false), "{by}");
            clock.pass(HANGS_AFTER);
            assert_eq!((status("/readyz"), status("/healthz")), ("503".to_owned(), "503".to_owned()), "{by}");
            assert!(health.is_overdue(), "{by}");
        }
    }

    #[test]
    fn metrics_say_how_long_the_oldest_waits() {
        let env = Env::simulated(1);
        let health = Health::new(&env, 3);
        health.state().depths = vec![QueueDepth {
            queue: "default".to_owned(),
            ready: 2,
            later: 0,
            claimed: 1,
            parked: 0,
            oldest_at: Some(env.now().minus(Duration::from_secs(9))),
        }];
        health.state().counted = Some((env.now(), Since::now(&env)));
        let page = health.page("/metrics").1;
        for line in
            ["ua_worker_slots 3", "ua_queue_ready{queue=\"default\"} 2", "ua_queue_oldest_seconds{queue=\"default\"} 9"]
        {
            assert!(page.lines().any(|one| one == line), "{line}\n{page}");
        }
        // The server's clock is another one than that of this machine: what it stored is as old as it says, and grows older.
        let theirs = env.now().plus(Duration::from_hours(1));
        health.state().depths[0].oldest_at = Some(theirs.minus(Duration::from_secs(2)));
        health.state().counted = Some((theirs, Since::now(&env)));
        env.clock.sleep_blocking_for_tests(Duration::from_secs(4));
        let page = health.page("/metrics").1;
        assert!(page.lines().any(|one| one == "ua_queue_oldest_seconds{queue=\"default\"} 6"), "{page}");
    }

    #[test]
    fn every_metric_stands_on_the_page_about_workers_and_no_other() {
        let text = include_str!("../../../../docs/guide/workers.md");
        let is_name = |word: &&str| word.starts_with("ua_worker_") || word.starts_with("ua_queue_");
        let on_page: std::collections::BTreeSet<&str> = text.split('`').filter(is_name).collect();
        let env = Env::simulated(1);
        let state = Health::new(&env, 1).state().clone();
        let page = metrics(&env, &state);
        let there: std::collections::BTreeSet<&str> =
            page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        assert_eq!(on_page, there);
    }
}
