//! What `effects.log` is to a database: a line for each attempt that is not simply done again, for what came of it and for each word of a
//! person, which a restored copy does not take back.
//!
//! The check before a run is driven (`PastKnown` of the runner, over `Store::forgotten`) asks the store, and the simulation's stores
//! (`InRounds`) keep nothing beside themselves. The log is modelled here from its source, in one place, for both stores: a run is refused while the log has something about its family that the database does not have, unless a person said that the run
//! is to end. What is left out: words of people that put a record right, which nobody says in the simulation, lines that a death between commit and append loses, cut lines, and lines of older versions, which do not
//! say whose family they are of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use ua_core::{CallId, CallStatus, QuestionId, RunId};
use ua_store::{CallRecord, LedgerStore, QuestionsOf, RunStore, Store, StoreError};

use super::locked;

/// The log.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    /// The attempts of each run, and the first run of its lineage.
    lines: Mutex<BTreeMap<RunId, Lines>>,
    /// A broken rule: what another run of the family sent counts for nothing.
    looks_at_one_run: bool,
}

#[derive(Debug, Clone, Default)]
struct Lines {
    root: Option<RunId>,
    /// By call and number, whether it had come to an end.
    attempts: BTreeMap<(CallId, u32), bool>,
    /// The questions that were answered.
    answered: BTreeSet<QuestionId>,
    was_cancelled: bool,
}

/// What a store does not know of it.
#[derive(Debug, Default)]
pub(super) struct Forgotten {
    /// Calls, of which it has less than there was.
    pub(super) calls: BTreeSet<CallId>,
    /// Whether words of people are among it.
    words: bool,
}

impl Forgotten {
    /// Whether nothing is.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty() && !self.words
    }
}

fn has_ended(call: &CallRecord) -> bool {
    !matches!(call.status, CallStatus::Running | CallStatus::Unknown)
}

impl Mirror {
    pub(super) fn new(looks_at_one_run: bool) -> Self {
        Self { looks_at_one_run, ..Self::default() }
    }

    /// Has everything that is stored now, as the log has it from the commits.
    pub(super) async fn catch_up(&self, store: &dyn Store) -> Result<(), StoreError> {
        for run in store.runs(u32::MAX).await? {
            let mut attempts = Vec::new();
            for call in store.calls(&run.run_id, None).await? {
                if !call.policy.is_kept_outside() {
                    continue;
                }
                for attempt in store.attempts(&call.call_id).await? {
                    let has_ended = attempt.attempt < call.attempt || has_ended(&call);
                    attempts.push(((call.call_id.clone(), attempt.attempt), has_ended));
                }
            }
            let questions = store.questions_of(QuestionsOf::Run(run.run_id.clone())).await?;
            let answered = questions.into_iter().filter(|question| question.answer.is_some());
            let mut lines = locked(&self.lines);
            let of_run = lines.entry(run.run_id.clone()).or_default();
            of_run.root = Some(run.root_run_id.clone());
            of_run.attempts.extend(attempts);
            of_run.answered.extend(answered.map(|question| question.question_id));
            of_run.was_cancelled |= run.cancel_requested_at.is_some();
        }
        Ok(())
    }

    /// What is known of this run's family that the store does not know.
    pub(super) async fn forgotten(&self, store: &dyn Store, run: &RunId) -> Result<Forgotten, StoreError> {
        let root = store.run(run).await?.root_run_id;
        let is_asked = |of: &RunId, lines: &Lines| {
            if self.looks_at_one_run { of == run } else { lines.root.as_ref() == Some(&root) }
        };
        self.unknown_to(store, is_asked).await
    }

    /// Everything that the store does not know, of whatever run.
    pub(super) async fn all_forgotten(&self, store: &dyn Store) -> Result<Forgotten, StoreError> {
        self.unknown_to(store, |_, _| true).await
    }

    async fn unknown_to(
        &self,
        store: &dyn Store,
        is_asked: impl Fn(&RunId, &Lines) -> bool,
    ) -> Result<Forgotten, StoreError> {
        let of_runs: Vec<(RunId, Lines)> = locked(&self.lines)
            .iter()
            .filter(|(run, lines)| is_asked(run, lines))
            .map(|(run, lines)| (run.clone(), lines.clone()))
            .collect();
        let mut forgotten = Forgotten::default();
        for (run, lines) in of_runs {
            for ((call, number), had_ended) in lines.attempts {
                let newest = store.attempts(&call).await?.into_iter().map(|attempt| attempt.attempt).max();
                let is_known = match newest {
                    Some(newest) if newest == number => !had_ended || has_ended(&store.call(&call).await?),
                    Some(newest) => newest > number,
                    None => false,
                };
                if !is_known {
                    forgotten.calls.insert(call);
                }
            }
            let known = store.questions_of(QuestionsOf::Run(run.clone())).await?;
            let is_answered = |id: &QuestionId| known.iter().any(|one| one.question_id == *id && one.answer.is_some());
            forgotten.words |= !lines.answered.iter().all(is_answered);
            if lines.was_cancelled {
                let knows = store
                    .run(&run)
                    .await
                    .is_ok_and(|run| run.cancel_requested_at.is_some() || run.status.is_terminal());
                forgotten.words |= !knows;
            }
        }
        Ok(forgotten)
    }

    /// A person accepts whatever the log knows until now; returns its runs.
    pub(super) fn accept_all(&self) -> Vec<RunId> {
        std::mem::take(&mut *locked(&self.lines)).into_keys().collect()
    }

    /// A person accepts what the log knows about the family of `root` until now; returns its runs.
    pub(super) fn accept(&self, root: &RunId) -> Vec<RunId> {
        let mut accepted = Vec::new();
        locked(&self.lines).retain(|run, lines| {
            let is_of_family = lines.root.as_ref() == Some(root);
            if is_of_family {
                accepted.push(run.clone());
            }
            !is_of_family
        });
        accepted
    }
}
