//! A tool server that is away in the middle of a run: it is waited for as the model's provider is, and nothing is sent twice.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use ua_core::{Constraints, Destination, Outcome, RunId, RunStop, Timestamp, ToolName, ToolSpec};
use ua_dispatch::{Fence, LookAt, ToolTransport, TransportError};
use ua_ledger::{Enquiry, Permit};
use ua_runner::{GranularStep, RunEvent, StepError, StepHost, StepOutcome};
use ua_store::{Store as _, StoreError};

use super::shop::{POLICY, SCRIPT, Shop, done, run_id};

/// Tools whose server is away for a while, from the first or the second call on.
struct Away {
    tools: Arc<dyn ToolTransport>,
    /// How often it was there before.
    there: AtomicU32,
    /// How often it is not, from then on.
    missing: AtomicU32,
    /// How often its tools cannot be listed.
    unlisted: AtomicU32,
    /// What it says then.
    error: TransportError,
    /// What it says once it is there again, for good, instead of serving.
    then: Option<TransportError>,
}

fn is_left(left: u32) -> Option<u32> {
    left.checked_sub(1)
}

#[async_trait]
impl ToolTransport for Away {
    async fn list(&self) -> Result<Vec<ToolSpec>, TransportError> {
        if self.unlisted.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_left).is_ok() {
            return Err(self.error.clone());
        }
        self.tools.list().await
    }

    fn working_folder(&self, server: &str) -> Option<PathBuf> {
        self.tools.working_folder(server)
    }

    async fn ready(&self, server: &str) -> Result<String, TransportError> {
        let count = |left: &AtomicU32| left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_left).is_ok();
        if !count(&self.there) {
            if count(&self.missing) {
                return Err(self.error.clone());
            }
            if let Some(error) = &self.then {
                return Err(error.clone());
            }
        }
        self.tools.ready(server).await
    }

    fn destination(&self, tool: &ToolName, arguments: &Value) -> Result<Option<Destination>, TransportError> {
        self.tools.destination(tool, arguments)
    }

    async fn invoke(&self, permit: &Permit) -> Outcome {
        self.tools.invoke(permit).await
    }

    async fn ask(&self, enquiry: &Enquiry) -> Outcome {
        self.tools.ask(enquiry).await
    }

    async fn fence(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Fence {
        self.tools.fence(server, generation, lost_at).await
    }
}

/// A shop whose server is away so often, after it was there so often; and how long each wait was that somebody was told.
fn shop(there: u32, away: u32, error: TransportError) -> (Shop, Arc<Mutex<Vec<u64>>>) {
    shop_that_says(there, away, error, None)
}

/// The same, whose server says something else for good once it is there again.
fn shop_that_says(
    there: u32,
    away: u32,
    error: TransportError,
    then: Option<TransportError>,
) -> (Shop, Arc<Mutex<Vec<u64>>>) {
    let mut shop = Shop::new(SCRIPT, POLICY, done);
    let tools = shop.step.agent.tools.clone();
    shop.step.agent.tools =
        Arc::new(Away { tools, there: there.into(), missing: away.into(), unlisted: AtomicU32::new(0), error, then });
    let told = Arc::new(Mutex::new(Vec::new()));
    let kept = told.clone();
    shop.host.watcher = Arc::new(move |event| {
        if let RunEvent::ToolServerAway { wait_millis, .. } = event {
            kept.lock().unwrap().push(wait_millis);
        }
    });
    (shop, told)
}

fn not_started(may_pass: bool) -> TransportError {
    TransportError::NotStarted {
        server: "shop".into(),
        why: "connection refused".into(),
        may_pass,
        look_at: LookAt::Address,
    }
}

fn not_reached() -> TransportError {
    TransportError::NotReached { server: "shop".into(), why: "connection refused".into() }
}

/// Before a read as before an effect, for a moment as for many minutes.
#[tokio::test]
async fn a_tool_server_that_is_away_is_waited_for_and_nothing_is_sent_twice() {
    for there in 0..4 {
        for away in [1, 2, 9, 14] {
            for error in [not_started(true), not_reached()] {
                let (shop, told) = shop(there, away, error);
                let outcome = shop.run().await.unwrap();
                assert!(matches!(outcome, StepOutcome::Complete { turns: 3, .. }), "{there} {away}: {outcome:?}");
                assert_eq!((shop.requests(), shop.orders().len()), (3, 1), "{there} {away}");
                let told = told.lock().unwrap().clone();
                assert_eq!(told.len(), away as usize, "{there} {away}");
            }
        }
    }
}

#[tokio::test]
async fn after_half_an_hour_the_run_stops_and_a_resume_finds_the_server() {
    let (shop, told) = shop(1, 200, not_started(true));
    let outcome = shop.run().await.unwrap();
    let StepOutcome::Stopped { reason: RunStop::ToolServer, detail } = &outcome else { panic!("{outcome:?}") };
    assert!(detail.ends_with("did not start: connection refused; it was waited for, for 30 min, as long as `max_provider_wait_minutes` allows"), "{detail}");
    assert_eq!(Duration::from_millis(told.lock().unwrap().iter().sum()), Duration::from_mins(30));
    assert!(told.lock().unwrap().len() < 40, "{told:?}");
    // It comes back in the middle of the next wait.
    let outcome = shop.run().await.unwrap();
    assert!(matches!(outcome, StepOutcome::Stopped { .. } | StepOutcome::Complete { .. }), "{outcome:?}");
    assert!(shop.orders().len() <= 1);
}

/// What is left of the run's time is a bound as well, and what lifts it is in the command that resumes the run.
#[tokio::test]
async fn a_server_is_not_waited_for_beyond_the_runs_time() {
    let (mut shop, told) = shop(1, 200, not_started(true));
    shop.step.budgets.max_wallclock_minutes = 10;
    let outcome = shop.run().await.unwrap();
    let StepOutcome::Stopped { reason: RunStop::ToolServer, detail } = &outcome else { panic!("{outcome:?}") };
    let waited = Duration::from_millis(told.lock().unwrap().iter().sum());
    assert!(waited > Duration::from_mins(7) && waited < Duration::from_mins(10), "{waited:?}");
    let run = shop.records().await.run;
    assert!(run.held_millis < 600_000, "{} ms", run.held_millis);
    assert!(detail.contains("or have it wait: `Runs::set_budget`, \"max_wallclock_minutes\" "), "{detail}");
}

/// A server that says when a run is taken that it cannot serve yet is waited for; one that cannot be reached then is mostly one whose address is
/// to be corrected.
#[tokio::test]
async fn a_tool_server_that_cannot_serve_yet_is_waited_for_before_the_first_turn() {
    let of = |unlisted: u32, error: TransportError| {
        let (mut shop, told) = shop(0, 0, error.clone());
        let tools = shop.step.agent.tools.clone();
        let (there, missing) = (AtomicU32::new(0), AtomicU32::new(0));
        shop.step.agent.tools = Arc::new(Away { tools, there, missing, unlisted: unlisted.into(), error, then: None });
        (shop, told)
    };
    let away = || TransportError::Away { server: "shop".into(), why: "HTTP status 503".into() };
    for unlisted in [2, 10] {
        let (shop, told) = of(unlisted, away());
        let outcome = shop.run().await.unwrap();
        assert!(matches!(outcome, StepOutcome::Complete { turns: 3, .. }), "{unlisted}: {outcome:?}");
        assert_eq!((shop.requests(), shop.orders().len()), (3, 1), "{unlisted}");
        assert_eq!(told.lock().unwrap().len(), unlisted as usize, "each wait is told");
    }
    let (shop, told) = of(200, away());
    let outcome = shop.run().await.unwrap();
    let StepOutcome::Stopped { reason: RunStop::ToolServer, detail } = &outcome else { panic!("{outcome:?}") };
    assert!(
        detail.contains("HTTP status 503") && detail.contains("it was waited for, for 30 min, as long as"),
        "{detail}"
    );
    assert_eq!(Duration::from_millis(told.lock().unwrap().iter().sum()), Duration::from_mins(30));
    let (shop, told) = of(9, not_started(true));
    let outcome = shop.run().await.unwrap();
    assert!(matches!(&outcome, StepOutcome::Stopped { reason: RunStop::ToolServer, .. }), "{outcome:?}");
    assert!(told.lock().unwrap().is_empty(), "nobody is kept waiting for an address that is wrong");
}

/// What a server that was away says when it is back may be what no wait changes: the run stops with that, says for how long it had been away, and
/// does not say that a patience was used up of which most is left.
#[tokio::test]
async fn what_ends_a_wait_is_said_to_end_it_whatever_it_is() {
    let (server, why) = (|| "shop".to_owned(), || "the reason".to_owned());
    let look_at = [LookAt::Command, LookAt::Start, LookAt::Address, LookAt::Login];
    let not_started =
        look_at.map(|look_at| TransportError::NotStarted { server: server(), why: why(), may_pass: false, look_at });
    let others = [
        TransportError::UnknownServer { server: server() },
        TransportError::Changed { server: server(), why: why() },
        TransportError::Elsewhere { server: server(), why: why() },
        TransportError::NotIdentified { server: server(), why: why() },
    ];
    for then in not_started.into_iter().chain(others) {
        assert!(!then.may_pass(), "{then}");
        for there in [0, 1] {
            let (shop, told) = shop_that_says(there, 2, not_reached(), Some(then.clone()));
            let outcome = shop.run().await.unwrap();
            let StepOutcome::Stopped { reason: RunStop::ToolServer, detail } = &outcome else { panic!("{outcome:?}") };
            assert_eq!(told.lock().unwrap().len(), 2, "{detail}");
            assert!(detail.starts_with(&then.to_string()), "{detail}");
            assert!(detail.contains("; it had been away for ") && detail.ends_with("no wait changes it"), "{detail}");
            assert!(!detail.contains("max_provider_wait_minutes"), "{detail}");
        }
    }
}

/// What only a person changes is said at once.
#[tokio::test]
async fn what_does_not_pass_by_itself_is_not_waited_for() {
    for error in [
        not_started(false),
        TransportError::Changed { server: "shop".into(), why: "other tools".into() },
        TransportError::UnknownServer { server: "shop".into() },
    ] {
        let (shop, told) = shop(1, 1, error);
        let outcome = shop.run().await.unwrap();
        let StepOutcome::Stopped { reason: RunStop::ToolServer, detail } = &outcome else { panic!("{outcome:?}") };
        assert!(!detail.contains("waited"), "{detail}");
        assert!(told.lock().unwrap().is_empty());
        let outcome = shop.run().await.unwrap();
        assert!(matches!(outcome, StepOutcome::Complete { .. }), "{outcome:?}");
        assert_eq!(shop.orders().len(), 1);
    }
}

/// Every run that begins with words which somebody wrote, a new one or a fork: they are judged before it is stored where its tools can be
/// listed, and else by the drive that begins with them.
#[tokio::test]
async fn words_are_judged_wherever_a_run_begins_and_whenever_its_tools_are_there() {
    let wrong = Constraints { forbidden_actions: vec!["place_oder".into()], ..Constraints::default() };
    for is_fork in [false, true] {
        for unlisted in [0, 1] {
            let what = format!("fork {is_fork}, unlisted {unlisted}");
            let (mut shop, _) = shop(0, 0, not_reached());
            if is_fork {
                shop.leave_after_turn(1).await;
            }
            let tools = shop.step.agent.tools.clone();
            let away = Away {
                tools,
                there: AtomicU32::new(0),
                missing: AtomicU32::new(0),
                unlisted: unlisted.into(),
                error: not_reached(),
                then: None,
            };
            shop.step.agent.tools = Arc::new(away);
            let step = GranularStep { constraints: wrong.clone(), ..shop.step.clone() };
            let id = RunId::parse("run_again").unwrap();
            let folder = shop.locks().with_file_name("again");
            let host = StepHost::new(shop.store.clone(), folder, shop.host.env.clone()).with_locks(shop.locks());
            let made = if is_fork { step.fork(&host, &id, &run_id(), None).await.map(drop) } else { Ok(()) };
            let requests = shop.requests();
            let error = match made {
                Ok(()) => step.run(&host, &id).await.unwrap_err(),
                Err(error) => error,
            };
            assert_eq!(matches!(error, StepError::Definition(_)), unlisted == 0, "{what}: {error:?}");
            assert!(error.to_string().contains("did you mean"), "{what}: {error}");
            let is_stored = !matches!(shop.store.run(&id).await, Err(StoreError::NotFound { .. }));
            assert_eq!((is_stored, shop.requests(), shop.orders().len()), (unlisted == 1, requests, 0), "{what}");
        }
    }
}
