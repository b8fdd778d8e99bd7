//! What stands before the context of the model that decides about a call, whoever did it: it counts as beside a fork.

use std::sync::Arc;

use ua_core::{
    CallId, CallPolicy, CallStatus, Message, OnUnknown, Origin, PlannedCall, RunId, RunSpec, SideEffectClass,
    StepStatus, TASK_MODE, ToolName,
};
use ua_ledger::{Admission, Facts, Ledger, LedgerError};
use ua_store::conformance::{StoreSeam, Undisturbed, Writes, samples};
use ua_store::{
    ForkPoint, LedgerStore as _, MemStore, NewFork, NewIteration, NewRun, QuestionKind, RunLease, RunRecord,
    RunStore as _, StartAttempt, StepEntry, Store as _,
};

use super::member::{FIRST, KnownBy, ledger_of};

/// Who makes a call.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Maker {
    /// The run.
    Own,
    /// A sub-agent of it.
    SubAgent,
    /// A sub-agent of a sub-agent.
    Below,
}

/// What is known of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Known {
    /// Nothing.
    Undeclared,
    /// The other side knows it by a key, which is that of its place.
    Keyed,
    /// Its kind, so that it is known by its content.
    Kind,
    /// The same, with the file that it sends in its scope.
    Seen,
    /// The same, and nobody can look at the file.
    Unseen,
}

impl Known {
    fn planned(self, id: &str, turn: u32) -> PlannedCall {
        let mut call = FIRST.planned(id, turn);
        if matches!(self, Self::Undeclared | Self::Keyed) {
            call.policy.effect_kind = None;
            call.policy.class = SideEffectClass::External;
            call.policy.on_unknown = if self == Self::Keyed { OnUnknown::RedoKeyed } else { OnUnknown::Hold };
        }
        call
    }

    fn facts(self) -> Facts {
        match self {
            Self::Undeclared | Self::Keyed => Facts::default(),
            Self::Kind => FIRST.facts(),
            Self::Seen => FIRST.sends(KnownBy::Scope, Some("report")),
            Self::Unseen => FIRST.sends(KnownBy::Scope, None),
        }
    }
}

/// A run in iterations.
struct Run {
    store: Arc<MemStore>,
    lease: RunLease,
    ledger: Ledger,
    turn: u32,
    iteration: u32,
}

fn in_iterations(run: NewRun) -> NewRun {
    let job = r#"{"objective": "x", "stop_conditions": ["email_sent_once"],
        "harness": {"max_iterations": 9, "completion_promise": "ALL DONE"}}"#;
    NewRun { spec: RunSpec::parse(job).unwrap(), ..run }
}

impl Run {
    async fn begin() -> Self {
        let store = Arc::new(MemStore::default());
        let run = store.submit_run(in_iterations(samples::new_run("run_1"))).await.unwrap();
        let (lease, run) = store.acquire_run(&run.run_id, &samples::owner(100), samples::at(1)).await.unwrap();
        Self::of(store, lease, run).await
    }

    async fn of(store: Arc<MemStore>, lease: RunLease, run: RunRecord) -> Self {
        let turn = run.turn_index;
        let task = run.task_call_id.clone();
        let ledger = ledger_of(store.clone(), &lease, run, true, 3).with_task(task);
        let run = Self { store, lease, ledger, turn, iteration: 0 };
        run.store.enter_step(&run.lease, run.entry(None)).await.unwrap();
        Self { iteration: 1, ..run }
    }

    fn step(&self, iteration: u32) -> String {
        format!("step_{}_{iteration}", self.lease.run_id)
    }

    fn entry(&self, before: Option<&str>) -> StepEntry {
        let next = self.iteration + 1;
        let note = || Message::user(Origin::Iteration, format!("iteration {next}"));
        StepEntry {
            end: before.map(|before| samples::step_end(before, StepStatus::Succeeded)),
            checkpoints: before.iter().map(|step| samples::checkpoint(&format!("ckpt_end_{step}"), step)).collect(),
            step: samples::new_step(&self.step(next)),
            messages: before.iter().map(|_| note()).collect(),
            iteration: Some(NewIteration { number: next, max_iterations: 9 }),
        }
    }

    /// The next iteration begins, with an empty context.
    async fn forget(&mut self) {
        self.store.enter_step(&self.lease, self.entry(Some(&self.step(self.iteration)))).await.unwrap();
        self.iteration += 1;
        self.ledger.context_begins(self.turn + 1);
    }

    async fn fork(&self) -> Self {
        let NewFork { run, at_turn, note } = samples::new_fork("run_2", "run_1", self.turn);
        let fork = self.store.fork_run(NewFork { run: in_iterations(run), at_turn, note }).await.unwrap();
        let owner = samples::owner(101);
        let (lease, run) = self.store.acquire_run(&fork.run_id, &owner, samples::at(2)).await.unwrap();
        Self::of(self.store.clone(), lease, run).await
    }

    async fn plan(&mut self, planned: impl FnOnce(&str, u32) -> PlannedCall) -> CallId {
        self.turn += 1;
        let id = format!("call_{}_{}", self.lease.run_id, self.turn);
        let request = self.store.reserve_request(&self.lease, samples::reservation(self.turn)).await.unwrap();
        let draft = samples::draft(&self.step(self.iteration), self.turn, request, vec![planned(&id, self.turn)]);
        self.store.record_turn(&self.lease, draft).await.unwrap();
        samples::call_id(&id)
    }

    async fn commit(&self) {
        let checkpoint = format!("ckpt_{}_{}", self.lease.run_id, self.turn);
        let commit = samples::commit(&self.step(self.iteration), self.turn, &checkpoint);
        self.store.commit_turn(&self.lease, commit).await.unwrap();
    }

    /// Hands a task on.
    async fn hand_on(&mut self) -> (CallId, Self) {
        let policy =
            CallPolicy { class: SideEffectClass::Local, on_unknown: OnUnknown::Redo, ..CallPolicy::unclassified() };
        let task = |id: &str, turn| PlannedCall {
            name: ToolName::task(),
            policy: policy.into(),
            ..samples::planned_call(id, turn, 1)
        };
        let call = self.plan(task).await;
        let id = RunId::of_task(&call);
        let child = samples::child_run(id.as_str(), self.lease.run_id.as_str());
        let child = NewRun { run_mode: "task".to_owned(), ..in_iterations(child) };
        let start = StartAttempt { child: Some(Box::new(child)), ..samples::start(call.as_str(), 1, call.as_str()) };
        self.store.start_attempt(&self.lease, start).await.unwrap();
        let owner = samples::owner(100);
        let (lease, run) = self.store.acquire_task_run(&self.lease, &id, &owner, samples::at(20)).await.unwrap();
        (call, Self::of(self.store.clone(), lease, run).await)
    }

    async fn handed_back(&self, task: &CallId) {
        let settle = samples::settle(task.as_str(), 1, CallStatus::Succeeded);
        self.store.settle_attempt(&self.lease, settle).await.unwrap();
        self.commit().await;
    }

    /// Whoever `maker` is makes the call, and it must be let through.
    async fn does(&mut self, maker: Maker, known: Known) {
        if let Some(below) = maker.below() {
            let (task, mut child) = self.hand_on().await;
            Box::pin(child.does(below, known)).await;
            self.handed_back(&task).await;
            return;
        }
        let id = self.plan(|id, turn| known.planned(id, turn)).await;
        let admission = self.ledger.admit(&id, known.facts()).await.unwrap();
        let Admission::Ready(prepared) = admission else { panic!("not let through: {admission:?}") };
        let permit = self.ledger.start(prepared, "1").await.unwrap().unwrap();
        self.ledger.settle(permit, ua_core::Outcome::Raw(samples::raw())).await.unwrap();
        self.commit().await;
    }

    /// What becomes of the call if `maker` asks for it: also of one that was planned a moment ago.
    async fn asks(&mut self, maker: Maker, known: Known) -> Admission {
        if let Some(below) = maker.below() {
            let (_, mut child) = self.hand_on().await;
            return Box::pin(child.asks(below, known)).await;
        }
        let id = self.plan(|id, turn| known.planned(id, turn)).await;
        let admission = self.ledger.admit(&id, known.facts()).await.unwrap();
        if matches!(admission, Admission::Held(_)) {
            let planned = self.store.call(&id).await.unwrap();
            assert!(self.ledger.admit_planned(&planned, &known.facts()).is_none(), "it is sent without a look");
        }
        admission
    }
}

impl Maker {
    const ALL: [Self; 3] = [Self::Own, Self::SubAgent, Self::Below];

    fn below(self) -> Option<Self> {
        match self {
            Self::Own => None,
            Self::SubAgent => Some(Self::Own),
            Self::Below => Some(Self::SubAgent),
        }
    }
}

#[tokio::test]
async fn whoever_did_it_before_the_context_began_it_is_asked_about() {
    for known in [Known::Undeclared, Known::Keyed, Known::Kind] {
        for (first, second) in Maker::ALL.into_iter().flat_map(|first| Maker::ALL.map(|second| (first, second))) {
            for (is_shared, has_forgotten) in [(false, false), (false, true), (true, false), (true, true)] {
                let at =
                    format!("{known:?}: {first:?}, then {second:?}; shared {is_shared}, forgotten {has_forgotten}");
                let mut run = Run::begin().await;
                run.does(first, known).await;
                if is_shared {
                    run = run.fork().await;
                }
                if has_forgotten {
                    run.forget().await;
                }
                match run.asks(second, known).await {
                    Admission::Settled(twin) if known == Known::Kind => {
                        assert!(twin.deduplicated_from.is_some(), "{at}");
                    }
                    Admission::Held(question) if known != Known::Kind && has_forgotten => {
                        assert_eq!(question.kind, QuestionKind::NearDuplicate, "{at}");
                        assert_eq!(question.detail["others"][0]["count"], 1, "{at}: {}", question.detail);
                    }
                    Admission::Ready(_) if known != Known::Kind && !has_forgotten => {}
                    other @ (Admission::Settled(_)
                    | Admission::Held(_)
                    | Admission::Ready(_)
                    | Admission::Continues(_)
                    | Admission::Ongoing(_)
                    | Admission::WaitFor(_)
                    | Admission::Unknown(_)) => panic!("{at}: {other:?}"),
                }
            }
        }
    }
}

/// Whoever did it, and whatever a model remembers: where a file could be looked at one of two times and not the other, the two may be one.
#[tokio::test]
async fn what_could_be_looked_at_once_is_asked_about_whoever_did_it() {
    for (known, then) in [(Known::Seen, Known::Unseen), (Known::Unseen, Known::Seen)] {
        for (first, second) in Maker::ALL.into_iter().flat_map(|first| Maker::ALL.map(|second| (first, second))) {
            for (is_shared, has_forgotten) in [(false, false), (false, true), (true, false), (true, true)] {
                let at =
                    format!("{known:?}: {first:?}, then {second:?}; shared {is_shared}, forgotten {has_forgotten}");
                let mut run = Run::begin().await;
                run.does(first, known).await;
                if is_shared {
                    run = run.fork().await;
                }
                if has_forgotten {
                    run.forget().await;
                }
                let admission = run.asks(second, then).await;
                let Admission::Held(question) = admission else { panic!("{at}: {admission:?}") };
                assert_eq!(question.kind, QuestionKind::NearDuplicate, "{at}");
                assert_eq!(question.detail["others"][0]["count"], 1, "{at}: {}", question.detail);
            }
        }
    }
}

/// What was done in the iteration in which a task was given is in the context that its sub-agent works for, however many were before.
#[tokio::test]
async fn what_the_context_holds_that_gave_the_task_is_not_asked_about() {
    let mut run = Run::begin().await;
    run.forget().await;
    run.does(Maker::SubAgent, Known::Undeclared).await;
    let admission = run.asks(Maker::SubAgent, Known::Undeclared).await;
    assert!(matches!(admission, Admission::Ready(_)), "{admission:?}");
}

/// Rows as somebody else wrote them: the run is a fork of itself, or works on this task of its own.
struct Circle {
    task: Option<CallId>,
}

impl Writes for Circle {
    fn seen(&self, mut run: RunRecord) -> RunRecord {
        run.parent_run_id = Some(run.run_id.clone());
        match &self.task {
            Some(task) => {
                TASK_MODE.clone_into(&mut run.run_mode);
                run.task_call_id = Some(task.clone());
            }
            None => run.forked_at = Some(ForkPoint { turn: run.turn_index, seq: u64::MAX }),
        }
        run
    }
}

/// Of rows that lead in a circle nobody can say what stands before a context: the look ends, and nothing is let through.
#[tokio::test]
async fn of_rows_that_lead_in_a_circle_nothing_is_decided() {
    for is_task in [false, true] {
        let mut run = Run::begin().await;
        run.does(Maker::Own, Known::Undeclared).await;
        run.forget().await;
        let task = is_task.then(|| samples::call_id("call_run_1_1"));
        let writes = Arc::new(Circle { task: task.clone() });
        let seam = StoreSeam::new(run.store.clone(), Arc::new(Undisturbed)).with_writes(writes);
        let record = run.store.run(&run.lease.run_id).await.unwrap();
        let ledger = ledger_of(Arc::new(seam), &run.lease, record, true, 7).with_task(task);
        if !is_task {
            ledger.context_begins(run.turn + 1);
        }
        let id = run.plan(|id, turn| Known::Undeclared.planned(id, turn)).await;
        let Err(LedgerError::Store { doing, source, .. }) = ledger.admit(&id, Facts::default()).await else {
            panic!("it was decided about; a task: {is_task}");
        };
        assert_eq!(doing, "look for what was asked for before");
        assert_eq!(source.to_string(), "cannot read run run_1: the runs above it lead in a circle");
    }
}
