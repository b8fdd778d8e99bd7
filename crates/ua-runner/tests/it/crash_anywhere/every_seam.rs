//! What can come of a crossing of every seam but that of the tools, which `outcomes` has: each outcome of each list is played here at
//! every crossing where it can come about, or stands in its arm with who plays it instead, or why this lane cannot.
//!
//! Whatever came of it: the run is resumed to its end, each effect is there once, and no statement about the records is broken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ua_core::{CallStatus, Clock, ModelTurn, RunStatus, SimClock, Sleep, Timestamp};
use ua_dispatch::StopSignal;
use ua_llm::{LlmError, LlmProvider, ModelRequest, Status, StreamObserver};
use ua_store::{Choice, QuestionKind, QuestionRecord, QuestionStatus};
use ua_testkit::{ClockOutcome, CrashAt, Crossing, ModelOutcome, PersonOutcome, Plan, ProcessOutcome, StoreOutcome};

use super::scenario::{Answers, Scenario};
use super::{EFFECTS, crash_points};

/// Who plays an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// The tests of this file.
    Here,
    /// Another module of this lane.
    In(&'static str),
    /// This lane cannot.
    Not(&'static str),
}

const fn of_store(outcome: StoreOutcome) -> Lane {
    match outcome {
        StoreOutcome::Done => Lane::In("every test of this lane"),
        StoreOutcome::Busy | StoreOutcome::DiskFull | StoreOutcome::AnswerLost => Lane::Here,
        StoreOutcome::BusyForLong => {
            Lane::Not("no time passes here between a write and the next life; the simulation plays it")
        }
        StoreOutcome::Forgotten => Lane::Not(
            "the store here keeps no log that outlives it; the simulation and the crash matrix go back to a copy",
        ),
    }
}

const fn of_model(outcome: ModelOutcome) -> Lane {
    match outcome {
        ModelOutcome::Answered => Lane::In("every test of this lane"),
        ModelOutcome::NeverLeft
        | ModelOutcome::RateLimited
        | ModelOutcome::Overloaded
        | ModelOutcome::ServerError
        | ModelOutcome::Silent
        | ModelOutcome::CutLate
        | ModelOutcome::Refused
        | ModelOutcome::Unauthorized
        | ModelOutcome::TooLong => Lane::Here,
        ModelOutcome::CutShort => Lane::Not(
            "a script goes on behind a reply that does not count, so its part would be missing; the simulation's model asks again",
        ),
    }
}

const fn of_person(outcome: PersonOutcome) -> Lane {
    match outcome {
        PersonOutcome::Looks
        | PersonOutcome::Remarks
        | PersonOutcome::Skips
        | PersonOutcome::Aborts
        | PersonOutcome::Executes
        | PersonOutcome::ClaimsHappened
        | PersonOutcome::Silent => Lane::Here,
        PersonOutcome::Cancels => Lane::In("cancelled"),
        PersonOutcome::Forks => Lane::In("forks"),
        PersonOutcome::WhileItLives => Lane::Not(
            "a life here ends with its question, so nobody drives while it is answered; the simulation plays it",
        ),
        PersonOutcome::Accepts => Lane::Not("nothing is forgotten here: see `StoreOutcome::Forgotten`"),
        PersonOutcome::RaisesBudgets => {
            Lane::Not("the job has no budget that it reaches; the simulation and `ua-e2e` play it")
        }
        PersonOutcome::PutsRight => {
            Lane::Not("the receivers here keep what they got; the simulation plays it, and `ua-e2e` the command")
        }
        PersonOutcome::Deletes => Lane::Not("nothing is left to look at; the simulation plays it"),
    }
}

const fn of_clock(outcome: ClockOutcome) -> Lane {
    match outcome {
        ClockOutcome::Flows => Lane::In("every test of this lane"),
        ClockOutcome::Hour | ClockOutcome::StepsForward | ClockOutcome::StepsBack => Lane::Here,
        ClockOutcome::Suspended => {
            Lane::Not("a wait here is over at once, so none stands while the machine sleeps; the simulation plays it")
        }
    }
}

const fn of_process(outcome: ProcessOutcome) -> Lane {
    match outcome {
        ProcessOutcome::GoesOn | ProcessOutcome::Dies => Lane::In("every test of this lane"),
        ProcessOutcome::Signalled | ProcessOutcome::GivesUpCalls | ProcessOutcome::SignalledTwice => Lane::Here,
        ProcessOutcome::FallsAsleep => Lane::Not(
            "one life follows the other here; the simulation and the crash matrix replace an owner that lives",
        ),
        ProcessOutcome::FindsTheUndead => {
            Lane::Not("the servers of this world end when they are to; the simulation has those that do not")
        }
    }
}

/// Resumes to the end, where everything is there once and the records are sound.
async fn ends_well(scenario: &Scenario, at: &str) {
    // A signal, or a provider that is away or refuses, ends a life and not the run.
    for _ in 0..4 {
        let run = scenario.resume_to_the_end(Answers::Truth).await;
        if run.status == RunStatus::Succeeded {
            break;
        }
        if run.status != RunStatus::WaitingForHuman || !mends_the_key(scenario).await {
            assert_eq!(run.status, RunStatus::Stopped, "{at}: {:?}", run.status_detail);
        }
    }
    assert_eq!(scenario.records().await.run.status, RunStatus::Succeeded, "{at}");
    for effect in EFFECTS {
        assert_eq!(scenario.world.count(effect), 1, "{effect} at {at}");
    }
    scenario.check_invariants(at).await;
}

/// Somebody mends the key that the provider refused, and says so; whether they were asked to.
async fn mends_the_key(scenario: &Scenario) -> bool {
    let asks = |asked: &&QuestionRecord| {
        let is_open = asked.status == QuestionStatus::Open && asked.call_id.is_none();
        is_open && asked.kind == QuestionKind::AuthFailure
    };
    let records = scenario.records().await;
    let Some(question) = records.questions.iter().find(asks) else { return false };
    scenario.choose(question, Choice::Continue).await;
    true
}

/// At the n-th crossing something happens, or comes of it.
struct AtCrossing<F> {
    n: u64,
    seen: AtomicU64,
    store: StoreOutcome,
    happens: F,
}

impl<F: Fn()> AtCrossing<F> {
    fn new(n: u64, store: StoreOutcome, happens: F) -> Arc<Self> {
        Arc::new(Self { n, seen: AtomicU64::new(0), store, happens })
    }
}

#[async_trait]
impl<F: Fn() + Send + Sync> Plan for AtCrossing<F> {
    async fn before(&self, _crossing: &Crossing) {
        if self.seen.fetch_add(1, Ordering::SeqCst) == self.n {
            (self.happens)();
        }
    }

    async fn after(&self, _crossing: &Crossing) {}

    fn comes_to(&self, crossing: &Crossing) -> StoreOutcome {
        let is_here = self.seen.load(Ordering::SeqCst) == self.n + 1;
        // Who submits or takes a run in vain is told so before they have it: nothing was begun that could be resumed.
        let is_begun = !["store.submit_run", "store.acquire_run"].iter().any(|name| crossing.is(name));
        if is_here && is_begun { self.store } else { StoreOutcome::Done }
    }
}

async fn crossings() -> u64 {
    let (crossings, run) = Scenario::new().run_without_crash().await;
    assert_eq!(run.status, RunStatus::Succeeded);
    crossings
}

#[tokio::test]
async fn a_write_that_is_refused_or_never_answered_costs_a_life_at_most() {
    let crossings = crossings().await;
    let mut cost_a_life = 0;
    for outcome in StoreOutcome::ALL.iter().copied().filter(|outcome| of_store(*outcome) == Lane::Here) {
        for n in 0..crossings {
            let scenario = Scenario::new();
            let life = scenario.drive_with(AtCrossing::new(n, outcome, || ()), None).await;
            cost_a_life += usize::from(life.is_err());
            ends_well(&scenario, &format!("{} at {n}", outcome.name())).await;
        }
    }
    assert!(cost_a_life > 20, "the faults hardly met a write: {cost_a_life}");
}

/// A model whose n-th request comes to something.
struct FailsOnce {
    inner: Arc<dyn LlmProvider>,
    n: u64,
    seen: AtomicU64,
    outcome: ModelOutcome,
}

#[async_trait]
impl LlmProvider for FailsOnce {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn complete(&self, request: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        if self.seen.fetch_add(1, Ordering::SeqCst) != self.n {
            return self.inner.complete(request, observer).await;
        }
        let retry_after = Some(Duration::from_secs(7));
        Err(match self.outcome {
            ModelOutcome::NeverLeft => {
                LlmError::Unreachable { host: "nobody".into(), why: "connection refused".into() }
            }
            ModelOutcome::RateLimited => {
                LlmError::RateLimited { retry_after, until_reset: None, message: "slow down".into() }
            }
            ModelOutcome::Overloaded => LlmError::Overloaded { retry_after, message: "too much to do".into() },
            ModelOutcome::ServerError => {
                LlmError::Server { status: Some(Status::Http(500)), retry_after: None, message: "it broke".into() }
            }
            ModelOutcome::Silent => LlmError::Timeout { idle: Duration::from_mins(1) },
            ModelOutcome::CutLate => {
                observer.session("resp-cut");
                observer.text("word word");
                LlmError::Cut { text_bytes: 9, source: None }
            }
            ModelOutcome::Refused => {
                LlmError::InvalidRequest { status: Status::Http(400), message: "bad request".into() }
            }
            ModelOutcome::Unauthorized => {
                LlmError::Unauthorized { status: Status::Http(401), message: "no such key".into() }
            }
            ModelOutcome::TooLong => {
                LlmError::TooLong { status: Status::Http(400), message: "prompt is too long".into() }
            }
            ModelOutcome::Answered | ModelOutcome::CutShort => unreachable!("it is not played here: `of_model`"),
        })
    }
}

/// How the process leaves the run whose n-th request came to this.
fn left_behind(outcome: ModelOutcome, n: u64) -> RunStatus {
    match outcome {
        ModelOutcome::Refused => RunStatus::Stopped,
        ModelOutcome::Unauthorized => RunStatus::WaitingForHuman,
        // The fifth is the first one of the third turn, and is made again at once without the first turn. Those before it have none to leave out.
        ModelOutcome::TooLong if n < 4 => RunStatus::Stopped,
        ModelOutcome::TooLong
        | ModelOutcome::Answered
        | ModelOutcome::NeverLeft
        | ModelOutcome::RateLimited
        | ModelOutcome::Overloaded
        | ModelOutcome::ServerError
        | ModelOutcome::Silent
        | ModelOutcome::CutLate
        | ModelOutcome::CutShort => RunStatus::Succeeded,
    }
}

#[tokio::test]
async fn a_request_to_the_model_that_fails_is_made_again_wherever_we_die() {
    for outcome in ModelOutcome::ALL.iter().copied().filter(|outcome| of_model(*outcome) == Lane::Here) {
        for n in 0..5 {
            let fails = || {
                Scenario::new().with_model(|inner| Arc::new(FailsOnce { inner, n, seen: AtomicU64::new(0), outcome }))
            };
            let (crossings, run) = fails().run_without_crash().await;
            assert_eq!(run.status, left_behind(outcome, n), "{} of request {n}", outcome.name());
            // Every fifth crossing, another one for each request, so that together they meet all.
            for at in (n..crossings).step_by(5).map(CrashAt::After) {
                let scenario = fails();
                scenario.crash(at).await;
                ends_well(&scenario, &format!("{} of request {n}, {at:?}", outcome.name())).await;
            }
        }
    }
}

/// A wall clock that can be set.
#[derive(Debug, Default)]
struct Settable {
    clock: SimClock,
    set_by: AtomicI64,
}

impl Clock for Settable {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.clock.now().as_millis() + self.set_by.load(Ordering::SeqCst))
    }

    fn sleep(&self, span: Duration) -> Sleep {
        self.clock.sleep(span)
    }

    fn sleep_blocking_for_tests(&self, span: Duration) {
        self.clock.sleep_blocking_for_tests(span);
    }
}

impl Settable {
    fn does(&self, outcome: ClockOutcome) {
        const TEN_MINUTES: i64 = 10 * 60_000;
        match outcome {
            ClockOutcome::Hour => self.clock.sleep_blocking_for_tests(Duration::from_hours(1)),
            ClockOutcome::StepsForward => drop(self.set_by.fetch_add(TEN_MINUTES, Ordering::SeqCst)),
            ClockOutcome::StepsBack => drop(self.set_by.fetch_sub(TEN_MINUTES, Ordering::SeqCst)),
            ClockOutcome::Flows | ClockOutcome::Suspended => unreachable!("it is not played here: `of_clock`"),
        }
    }
}

#[tokio::test]
async fn a_clock_that_jumps_while_a_process_lives_or_after_it_died_changes_nothing() {
    let crossings = crossings().await;
    for outcome in ClockOutcome::ALL.iter().copied().filter(|outcome| of_clock(*outcome) == Lane::Here) {
        for n in 0..crossings {
            let clock = Arc::new(Settable::default());
            let mut scenario = Scenario::new();
            scenario.env.clock = clock.clone();
            if n.is_multiple_of(2) {
                let jumps = clock.clone();
                let plan = AtCrossing::new(n, StoreOutcome::Done, move || jumps.does(outcome));
                scenario.drive_with(plan, None).await.unwrap();
            } else {
                scenario.crash(CrashAt::After(n)).await;
                clock.does(outcome);
            }
            ends_well(&scenario, &format!("{} at {n}", outcome.name())).await;
        }
    }
}

#[tokio::test]
async fn a_signal_at_any_crossing_ends_the_process_and_not_the_run() {
    let crossings = crossings().await;
    let mut stopped = 0;
    for outcome in ProcessOutcome::ALL.iter().copied().filter(|outcome| of_process(*outcome) == Lane::Here) {
        for n in 0..crossings {
            let mut scenario = Scenario::new();
            let stop = scenario.stop.clone();
            let signals = move || {
                stop.stop_gently();
                if outcome == ProcessOutcome::GivesUpCalls {
                    stop.give_up_calls();
                }
                if outcome == ProcessOutcome::SignalledTwice {
                    stop.stop_at_once();
                }
            };
            let (_, run) = scenario.drive_with(AtCrossing::new(n, StoreOutcome::Done, signals), None).await.unwrap();
            stopped += usize::from(run.status == RunStatus::Stopped);
            scenario.stop = StopSignal::default();
            ends_well(&scenario, &format!("{} at {n}", outcome.name())).await;
        }
    }
    assert!(stopped > 20, "hardly any life was stopped: {stopped}");
}

/// A stop is asked for while the start of a call of this tool is written, which the database puts off once if it is busy.
struct StopsAtStart {
    tool: &'static str,
    is_busy: bool,
    is_over: AtomicBool,
    stop: StopSignal,
}

impl StopsAtStart {
    fn is_met(&self, crossing: &Crossing) -> bool {
        crossing.is_of("store.start_attempt", self.tool) && !self.is_over.swap(true, Ordering::SeqCst)
    }
}

#[async_trait]
impl Plan for StopsAtStart {
    async fn before(&self, _crossing: &Crossing) {}

    async fn after(&self, crossing: &Crossing) {
        if !self.is_busy && self.is_met(crossing) {
            self.stop.stop_gently();
        }
    }

    fn comes_to(&self, crossing: &Crossing) -> StoreOutcome {
        if !self.is_busy || !self.is_met(crossing) {
            return StoreOutcome::Done;
        }
        self.stop.stop_gently();
        StoreOutcome::Busy
    }
}

/// Nothing is sent once a stop is asked for, also where its start was written, or waited behind an answer; the next process sends it,
/// whatever retries the job allows.
#[tokio::test]
async fn what_a_stop_finds_between_its_start_and_the_send_is_sent_by_the_next_process() {
    let at_once = ["notify", "upload", "send_email", "post_comment"].map(|tool| (tool, false));
    for (tool, is_busy) in at_once.into_iter().chain([("notify", true)]) {
        let mut scenario = Scenario::new();
        scenario.set_job(serde_json::json!({
            "objective": "Do everything once.", "stop_conditions": ["email_sent_once", "final_notification_sent"],
            "budgets": {"max_retries_per_tool_call": 0},
        }));
        let plan = StopsAtStart { tool, is_busy, is_over: AtomicBool::new(false), stop: scenario.stop.clone() };
        let (_, run) = scenario.drive_with(Arc::new(plan), None).await.unwrap();
        assert_eq!(run.status, RunStatus::Stopped, "{tool}: {:?}", run.status_detail);
        assert_eq!(scenario.world.count(tool), 0, "{tool}");
        let calls = scenario.calls().await;
        let call = calls.iter().find(|call| call.name.tool == tool).unwrap();
        let not_sent = (CallStatus::FailedDefinite, Some("not_sent"));
        let (status, code) = if is_busy { (CallStatus::Prepared, None) } else { not_sent };
        assert_eq!((call.status, call.error_code.as_deref()), (status, code), "{tool}");
        let mut others = calls.iter().filter(|other| other.position < call.position);
        assert!(others.all(|other| other.status == CallStatus::Succeeded), "what came before is stored");
        scenario.stop = StopSignal::default();
        ends_well(&scenario, &format!("{tool}, {is_busy}")).await;
    }
}

/// The open question about the opaque call, if its process died while the call was in flight.
async fn asked(at: CrashAt) -> Option<(Scenario, QuestionRecord)> {
    let scenario = Scenario::new();
    scenario.crash(at).await;
    if scenario.calls().await.iter().all(|call| call.status != CallStatus::Running) {
        return None; // nobody is asked, as the lane's first tests show
    }
    scenario.resume().await;
    let question = scenario.questions().await.into_iter().find(|question| question.status == QuestionStatus::Open)?;
    Some((scenario, question))
}

#[tokio::test]
async fn whatever_a_person_says_has_its_consequence_wherever_we_died() {
    let mut points = Vec::new();
    for point in crash_points().await {
        points.extend(asked(point).await.map(|_| point));
    }
    assert!(points.len() >= 3, "hardly anybody was asked: {points:?}");
    for mind in PersonOutcome::ALL.iter().copied().filter(|mind| of_person(*mind) == Lane::Here) {
        for point in points.iter().copied() {
            let Some((scenario, question)) = asked(point).await else { panic!("{point:?}: nobody is asked any more") };
            let at = format!("{} {point:?}", mind.name());
            let before = scenario.world.count("post_comment");
            let truth = if before > 0 { Choice::Happened } else { Choice::Execute };
            let (choice, words) = match mind {
                PersonOutcome::Looks => (Some(truth), ""),
                PersonOutcome::Remarks => (Some(truth), "I looked at the forum."),
                PersonOutcome::Skips => (Some(Choice::Skip), ""),
                PersonOutcome::Aborts => (Some(Choice::Abort), ""),
                PersonOutcome::Executes => (Some(Choice::Execute), ""),
                PersonOutcome::ClaimsHappened => (Some(Choice::Happened), ""),
                PersonOutcome::Silent => (None, ""),
                PersonOutcome::WhileItLives
                | PersonOutcome::Cancels
                | PersonOutcome::Forks
                | PersonOutcome::Accepts
                | PersonOutcome::RaisesBudgets
                | PersonOutcome::PutsRight
                | PersonOutcome::Deletes => unreachable!("it is not played here: `of_person`"),
            };
            if let Some(choice) = choice {
                scenario.say(&question, choice, words).await;
            }
            let run = scenario.resume().await;
            let call = scenario.calls().await.into_iter().find(|call| Some(&call.call_id) == question.call_id.as_ref());
            let call = call.unwrap_or_else(|| panic!("{at}: the call is gone"));
            let happened = scenario.world.count("post_comment");
            match choice {
                Some(Choice::Happened) => {
                    assert_eq!((call.status, happened), (CallStatus::Succeeded, before), "{at}");
                }
                Some(Choice::Execute) => {
                    assert_eq!((call.status, happened), (CallStatus::Succeeded, before + 1), "{at}");
                }
                Some(Choice::Skip) => assert_eq!((call.status, happened), (CallStatus::Unknown, before), "{at}"),
                Some(Choice::Abort) => {
                    assert_eq!((run.status, happened), (RunStatus::Failed, before), "{at}: {:?}", run.status_detail);
                }
                Some(Choice::Continue) => unreachable!("nobody chooses it here"),
                None => {
                    assert_eq!((run.status, happened), (RunStatus::WaitingForHuman, before), "{at}");
                    assert_eq!(scenario.questions().await, [question], "{at}: it is asked about once");
                }
            }
            scenario.check_invariants(&at).await;
        }
    }
}

#[test]
fn what_is_not_played_here_says_who_does_or_why_not() {
    let mut lanes: Vec<(&str, Lane)> = StoreOutcome::ALL.iter().map(|one| (one.name(), of_store(*one))).collect();
    lanes.extend(ModelOutcome::ALL.iter().map(|one| (one.name(), of_model(*one))));
    lanes.extend(PersonOutcome::ALL.iter().map(|one| (one.name(), of_person(*one))));
    lanes.extend(ClockOutcome::ALL.iter().map(|one| (one.name(), of_clock(*one))));
    lanes.extend(ProcessOutcome::ALL.iter().map(|one| (one.name(), of_process(*one))));
    let main = include_str!("../crash_anywhere.rs");
    for (name, lane) in lanes {
        match lane {
            Lane::Here | Lane::In("every test of this lane") => {}
            Lane::In(module) => {
                assert!(main.contains(&format!("mod {module};")), "{name}: no module is called {module}");
            }
            Lane::Not(why) => assert!(why.len() > 20, "{name}: {why:?} is no reason"),
        }
    }
}
