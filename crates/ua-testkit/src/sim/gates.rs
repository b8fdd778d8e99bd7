//! Every crossing of a seam is a gate: the process waits in front of it, and again behind it, until the stage lets it go on.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use ua_core::RunId;
use ua_store::conformance::{Crossing, Plan, StoreOutcome};

use super::clock::StageClock;
use super::locked;

/// Which side of a crossing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Before,
    After,
}

/// Where a process stands.
#[derive(Debug, Clone)]
pub(super) struct Gate {
    pub(super) id: u64,
    pub(super) life: usize,
    /// The run that it drives there, one of its tree.
    pub(super) run: RunId,
    /// What that is called in a trace; empty for the run at the top.
    pub(super) label: String,
    pub(super) side: Side,
    /// What is about to happen, or has happened.
    pub(super) crossing: Crossing,
}

impl Gate {
    pub(super) fn words(&self) -> String {
        let side = match self.side {
            Side::Before => "before",
            Side::After => "after",
        };
        let label = if self.label.is_empty() { String::new() } else { format!("[{}] ", self.label) };
        format!("{label}{side} {}", self.crossing.words())
    }

    /// Whether a tool server is about to be asked for something.
    pub(super) fn is_send(&self) -> bool {
        let sends = self.crossing.is("tool.invoke") || self.crossing.is("tool.go_on");
        sends && self.side == Side::Before
    }

    /// Whether a write of the store is about to be made here.
    pub(super) fn is_write(&self) -> bool {
        self.side == Side::Before && self.crossing.names().any(|name| name.starts_with("store."))
    }
}

/// What was decided about whoever stands at a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decided {
    NotYet,
    GoOn(StoreOutcome),
}

#[derive(Debug)]
struct ClosedGate {
    gate: Gate,
    decided: Decided,
    waker: Option<Waker>,
}

/// All gates at which somebody stands.
#[derive(Debug, Default)]
pub(super) struct Gates {
    state: Mutex<(u64, BTreeMap<u64, ClosedGate>)>,
}

impl Gates {
    /// The gates at which somebody stands. Calls of one turn that run together may reach theirs in one order or another, since a store
    /// answers sooner or later; so they are sorted by what they are.
    pub(super) fn closed(&self) -> Vec<Gate> {
        let state = locked(&self.state);
        let closed = state.1.values().filter(|closed| closed.decided == Decided::NotYet);
        let mut gates: Vec<Gate> = closed.map(|closed| closed.gate.clone()).collect();
        gates.sort_by(|one, other| {
            let key = |gate: &Gate| (gate.life, gate.crossing.names().collect::<Vec<_>>(), gate.side == Side::After);
            let what = |gate: &Gate| (gate.label.clone(), gate.crossing.clone());
            key(one).cmp(&key(other)).then_with(|| what(one).cmp(&what(other))).then(one.id.cmp(&other.id))
        });
        gates
    }

    /// Lets whoever stands at `id` go on; if it is about to write, to this.
    pub(super) fn release(&self, id: u64, outcome: StoreOutcome) {
        let mut state = locked(&self.state);
        let waker = state.1.get_mut(&id).and_then(|closed| {
            closed.decided = Decided::GoOn(outcome);
            closed.waker.take()
        });
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn reach(self: &Arc<Self>, of: &LifePlan, side: Side, crossing: &Crossing) -> Passage {
        let mut state = locked(&self.state);
        state.0 += 1;
        let id = state.0;
        let (life, run, label) = (of.life, of.run.clone(), of.label.clone());
        let gate = Gate { id, life, run, label, side, crossing: crossing.clone() };
        state.1.insert(id, ClosedGate { gate, decided: Decided::NotYet, waker: None });
        Passage { id, gates: Arc::clone(self) }
    }
}

/// The wait at a gate.
struct Passage {
    id: u64,
    gates: Arc<Gates>,
}

impl Future for Passage {
    type Output = StoreOutcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = locked(&self.gates.state);
        let Some(closed) = state.1.get_mut(&self.id) else { return Poll::Ready(StoreOutcome::Done) };
        if let Decided::GoOn(outcome) = closed.decided {
            return Poll::Ready(outcome);
        }
        closed.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        locked(&self.gates.state).1.remove(&self.id);
    }
}

/// The gates of one process in one run, as a plan for its seams.
pub(super) struct LifePlan {
    life: usize,
    run: RunId,
    label: String,
    gates: Arc<Gates>,
    clock: Arc<StageClock>,
    /// What comes of the crossing that was just let through.
    outcome: Mutex<StoreOutcome>,
    /// How long the last crossing had to wait.
    held: Mutex<Duration>,
}

impl LifePlan {
    pub(super) fn new(life: usize, run: RunId, label: String, gates: Arc<Gates>, clock: Arc<StageClock>) -> Arc<Self> {
        let (outcome, held) = (Mutex::new(StoreOutcome::Done), Mutex::default());
        Arc::new(Self { life, run, label, gates, clock, outcome, held })
    }

    /// How long the last crossing that was begun had to wait at its gate.
    pub(super) fn held(&self) -> Duration {
        *locked(&self.held)
    }
}

#[async_trait]
impl Plan for LifePlan {
    async fn before(&self, crossing: &Crossing) {
        let arrived = self.clock.passed();
        let outcome = self.gates.reach(self, Side::Before, crossing).await;
        *locked(&self.held) = self.clock.passed().since(arrived);
        *locked(&self.outcome) = outcome;
    }

    async fn after(&self, crossing: &Crossing) {
        self.gates.reach(self, Side::After, crossing).await;
    }

    fn comes_to(&self, _crossing: &Crossing) -> StoreOutcome {
        std::mem::replace(&mut *locked(&self.outcome), StoreOutcome::Done)
    }
}
