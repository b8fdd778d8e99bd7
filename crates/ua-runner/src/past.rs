//! Whether the database still knows all that a run has sent: asked before anybody works on it.
//!
//! Durable Jobs v1 §5.1 (no double execution). A database that was put back from a copy has lost receipts, and a lost receipt is an effect that
//! would happen again; what lies beside the database (`effects.log`) still knows of it. Invariant: nothing is sent for such a run before
//! a person has looked. Proved by: [`PastKnown`] is part of what every desk is made of, and only the comparison makes one; the tests
//! `restored` of `ua-sdk`, the e2e tests `restore`.

use std::collections::BTreeSet;

use ua_core::{FailureClass, RunId};
use ua_store::{Forgotten, RunRecord, Store, StoreError};

/// Proof that the database was compared with what is known beside it, and lacks nothing about the family of one run; or that the run is to
/// end, and sends nothing more.
#[derive(Debug, Clone)]
pub struct PastKnown {
    run: RunId,
}

impl PastKnown {
    /// Compares; best before the run is taken, so that a refused one stays as it is.
    ///
    /// # Errors
    /// [`PastError::Forgotten`] when more was sent, answered or said than the database knows, by the run, by one that it is joined with by
    /// forks and tasks, or by one of which nobody knows any more whose it is.
    pub async fn of(store: &dyn Store, run: &RunRecord) -> Result<Self, PastError> {
        let known = Self { run: run.run_id.clone() };
        if run.end_mark().is_some() {
            return Ok(known);
        }
        refuse_forgotten(store, &run.run_id).await?;
        Ok(known)
    }

    /// The run it is about.
    pub(crate) fn run(&self) -> &RunId {
        &self.run
    }
}

/// Refuses a run about whose family more is known than the database has.
pub(crate) async fn refuse_forgotten(store: &dyn Store, run: &RunId) -> Result<(), PastError> {
    let forgotten = store.forgotten(run).await.map_err(PastError::Store)?;
    if forgotten.is_empty() { Ok(()) } else { Err(PastError::Forgotten { run: run.clone(), forgotten }) }
}

/// Why nobody may work on a run. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum PastError {
    /// The database went back in time.
    #[error("the database is an older copy: effects.log knows {} about {} that it does not{}", ua_core::counted(forgotten.len(), "thing"), whose(run, forgotten), what_then(run, forgotten))]
    Forgotten {
        /// The run.
        run: RunId,
        /// What it does not know, oldest first.
        forgotten: Vec<Forgotten>,
    },
    /// The log or the database cannot be read.
    #[error("the database could not be compared with effects.log")]
    Store(#[source] StoreError),
}

impl PastError {
    /// What the caller may do next.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Forgotten { .. } => FailureClass::Operator,
            Self::Store(source) => source.class(),
        }
    }
}

/// How many runs are named at most.
const MOST_NAMED: usize = 3;

fn whose(run: &RunId, forgotten: &[Forgotten]) -> String {
    let senders: BTreeSet<&str> = forgotten.iter().map(|known| known.run_id.as_str()).collect();
    if senders.iter().all(|sender| *sender == run.as_str()) {
        return format!("run {run}");
    }
    let is_of_family = |known: &Forgotten| known.root.as_deref().is_some_and(|root| root == run.as_str());
    if forgotten.iter().all(|known| known.run_id == run.as_str() || is_of_family(known)) {
        return format!("the family of run {run}");
    }
    let named: Vec<&str> = senders.into_iter().take(MOST_NAMED).collect();
    format!("{} {}", if named.len() == 1 { "run" } else { "runs" }, named.join(", "))
}

/// What may come of it where it is about other runs, and the first thing.
fn what_then(run: &RunId, forgotten: &[Forgotten]) -> String {
    let is_own = |known: &Forgotten| {
        known.run_id == run.as_str() || known.root.as_deref().is_some_and(|root| root == run.as_str())
    };
    let again = if forgotten.iter().all(is_own) { String::new() } else { format!(", and run {run} may do them again") };
    // In a list the time stands in a column of its own.
    let first =
        forgotten.first().map(|first| format!("; the first of them: {}", first.to_string().replacen("  ", ", ", 1)));
    again + &first.unwrap_or_default()
}
