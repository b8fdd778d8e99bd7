//! A simulation of whole runs: the real machine, dispatcher, ledger and store, on one thread, with the order of everything decided by a
//! seed.
//!
//! Durable Jobs v1 spec §8, §9 and §11. Each crossing of a seam is a gate at which a process waits until it may go on. What happens
//! next is drawn from what can come of a crossing ([`outcomes`](crate::ToolOutcome)): a process goes on, dies, or falls asleep while
//! another one takes the run over and wakes up later; a request is answered, refused, lost, done twice or late; a write of the store is
//! refused, or done and never answered; the database goes back to a copy; the model's provider fails or refuses, and the model words things
//! differently; a person answers by what really happened, or does not care, aborts, cancels, forks; time passes. Every simulation may do only
//! so much harm, so it has to end.
//!
//! What must hold and does not: [`Report::violations`]. The same seed gives the same trace, on either store.
//!
//! ```
//! use ua_testkit::sim::{SimOptions, simulate};
//!
//! let report = simulate(&SimOptions::of_seed(7)).unwrap();
//! assert_eq!(report.violations, []);
//! assert_eq!(report.digest, simulate(&SimOptions::of_seed(7)).unwrap().digest);
//! ```

mod chance;
mod clock;
mod drawing;
mod gates;
mod harm;
mod job;
mod life;
mod limit;
mod mirror;
mod model;
mod path;
mod person;
mod played;
mod refusals;
mod rounds;
mod servers;
mod stage;
mod store;
mod task;
mod verdict;
mod wrong;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ua_core::Sha256;

use crate::broken::BrokenRule;
pub use path::{Path, Scene, Walked};
pub use played::Outcomes;
pub use store::SimStore;
pub use wrong::{Violation, Wrong};

/// What tells the database of a simulation from every other, whichever store it has: the keys of its calls are made with it.
pub const DATABASE_ID: &str = "simulated";

/// What is simulated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimOptions {
    /// Decides everything.
    pub seed: u64,
    /// What the runs are stored in.
    pub store: SimStore,
    /// A rule that is broken in every process.
    pub broken: Option<BrokenRule>,
    /// Instead of what the seed draws: no harm but these deaths, at the n-th gate of the first life, of the second, and so on.
    pub deaths: Option<Vec<u64>>,
    /// Instead of what the seed draws: a path of the exploration.
    pub path: Option<Path>,
    /// Which faults, of those that are drawn, are left out, by their place; counted from 1.
    pub without: Vec<u64>,
    /// Which intents of the job are left out, by their number.
    pub without_intents: Vec<usize>,
    /// Where a copy of the database is put at the end, of a simulation that has one in a file.
    pub keep: Option<PathBuf>,
}

impl SimOptions {
    /// What a seed draws, in memory, with no rule broken.
    pub fn of_seed(seed: u64) -> Self {
        let (without, without_intents) = (Vec::new(), Vec::new());
        let (store, broken, deaths, path, keep) = (SimStore::Memory, None, None, None, None);
        Self { seed, store, broken, deaths, path, without, without_intents, keep }
    }
}

/// What came of a simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What happened, in order.
    pub trace: Vec<String>,
    /// The digest of the trace: equal digests mean that the same happened.
    pub digest: Sha256,
    /// What must hold and does not.
    pub violations: Vec<Violation>,
    /// What happened how often.
    pub counts: Counts,
    /// Which outcomes were played, and how often.
    pub outcomes: Outcomes,
    /// How many gates each life passed.
    pub gates: Vec<u64>,
    /// How many faults were drawn, those that were left out included.
    pub harmful: u64,
    /// The numbers of the job's intents.
    pub intents: Vec<usize>,
    /// What there was to choose from, on a path of the exploration.
    pub walked: Walked,
}

/// What happened how often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Processes that drove the run.
    pub lives: u64,
    /// Processes that died.
    pub deaths: u64,
    /// Owners that were replaced while they lived.
    pub replaced: u64,
    /// Faults of the store, of tools and of their servers.
    pub faults: u64,
    /// Effects outside.
    pub effects: u64,
    /// Questions about calls.
    pub questions: u64,
    /// Those of them that ask whether a call happened.
    pub in_doubt: u64,
    /// Those of them that ask whether a call repeats another one.
    pub beside: u64,
    /// Runs of sub-agents that are stored at the end.
    pub sub_agents: u64,
    /// Requests whose history was longer than what they carried.
    pub cut_requests: u64,
    /// Forks.
    pub forks: u64,
    /// Times that the database went back.
    pub restores: u64,
    /// Calls that were refused since their job did not allow their effect once more.
    pub beyond_limits: u64,
    /// Decisions of the stage.
    pub steps: u64,
}

impl Counts {
    /// Adds what happened in another simulation.
    pub fn add(&mut self, other: &Self) {
        self.lives += other.lives;
        self.deaths += other.deaths;
        self.replaced += other.replaced;
        self.faults += other.faults;
        self.effects += other.effects;
        self.questions += other.questions;
        self.in_doubt += other.in_doubt;
        self.beside += other.beside;
        self.sub_agents += other.sub_agents;
        self.cut_requests += other.cut_requests;
        self.forks += other.forks;
        self.restores += other.restores;
        self.beyond_limits += other.beyond_limits;
        self.steps += other.steps;
    }
}

/// Why a simulation could not be run at all; nothing is known about the code under test then.
#[derive(Debug, thiserror::Error)]
#[error("seed {seed} failed")]
pub struct SimError {
    seed: u64,
    #[source]
    source: life::BoxError,
}

/// Sub-agents of sub-agents are polled within each other here, which takes more of a stack than a thread has where nothing is optimised.
const STACK: usize = 32 * 1024 * 1024;

/// Plays one simulation to its end.
///
/// # Errors
///
/// When a folder or a database cannot be made; what goes wrong inside the simulation is in [`Report::violations`].
pub fn simulate(options: &SimOptions) -> Result<Report, SimError> {
    let failed = |source: life::BoxError| SimError { seed: options.seed, source };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK);
        let stage = thread.spawn_scoped(scope, || stage::Stage::play(options)).map_err(|error| failed(error.into()))?;
        stage.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(failed)
    })
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
