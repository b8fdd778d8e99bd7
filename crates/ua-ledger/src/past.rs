//! What was done before the context began in which a call is decided about: the part of a tree of runs that a model cannot know.
//!
//! A context is a run's from the turn in which an iteration began. Before it stand the run's own turns and, in a fork, those that it shares, each
//! with what its sub-agents did. What a sub-agent's model knows at most is what the context held in which its task was given, and so on up to the
//! run that is nobody's sub-agent. All of it is read from rows, so that whoever takes a run next, sub-agent or not, finds the same. Of rows that
//! lead in a circle nothing is decided.
//!
//! Proved by: `identity::forgotten`, the end-to-end tests `harness`.

use ua_core::{CallId, Origin, RunId};
use ua_store::{CallRecord, LedgerStore as _, RunRecord, RunsOf, Store as _, StoreError, Walk, is_task, shares_with};

use crate::ledger::Ledger;

/// What a run and its sub-agents did up to a turn of it, that one included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Past {
    run_id: RunId,
    upto: u32,
}

impl Ledger {
    /// What stands before the contexts in which a task was given, and in which each task above it was.
    pub(crate) async fn past_above(&self, task: CallId) -> Result<Vec<Past>, StoreError> {
        let (mut past, mut walk, mut next) = (Vec::new(), Walk::default(), Some(task));
        while let Some(task) = next {
            let given = self.store.call(&task).await?;
            let Some(above) = walk.up(Some(&given.run_id))? else { break };
            let above = self.store.run(&above).await?;
            let begins = self.context_around(&above, given.position.turn).await?;
            next = above.task_call_id.clone().filter(|_| is_task(&above));
            past.extend(self.past_behind(above, begins).await?);
        }
        Ok(past)
    }

    /// What stands before the context of a run that begins with a turn.
    pub(crate) async fn past_of(&self, run: &RunId, first_turn: u32) -> Result<Vec<Past>, StoreError> {
        if first_turn <= 1 {
            return Ok(Vec::new());
        }
        self.past_behind(self.store.run(run).await?, first_turn).await
    }

    /// The same; turns keep their numbers in a fork.
    async fn past_behind(&self, run: RunRecord, first_turn: u32) -> Result<Vec<Past>, StoreError> {
        let upto = first_turn.saturating_sub(1);
        if upto == 0 {
            return Ok(Vec::new());
        }
        let mut past = vec![Past { run_id: run.run_id.clone(), upto }];
        let (mut walk, mut run, mut upto) = (Walk::from(&run.run_id), run, upto);
        while let Some(parent) = walk.up(shares_with(&run))? {
            upto = upto.min(run.shared_turns());
            if upto == 0 {
                break;
            }
            run = self.store.run(&parent).await?;
            past.push(Past { run_id: parent, upto });
        }
        Ok(past)
    }

    /// The first turn of the context that holds a turn of a run. Only a job in iterations has more than one, and a fork shares those of its parent.
    async fn context_around(&self, run: &RunRecord, turn: u32) -> Result<u32, StoreError> {
        if run.spec.harness.is_none() && run.forked_at.is_none() {
            return Ok(1);
        }
        let history = self.store.history(&run.run_id).await?;
        let begun = history.iter().filter(|record| record.message.origin == Origin::Iteration && record.turn < turn);
        Ok(begun.map(|record| record.turn).max().unwrap_or(0) + 1)
    }

    /// The calls of all that, those of the sub-agents included.
    pub(crate) async fn calls_of_past(&self, past: Vec<Past>) -> Result<Vec<CallRecord>, StoreError> {
        let (mut found, mut left, mut walk) = (Vec::new(), past, Walk::default());
        while let Some(Past { run_id, upto }) = left.pop() {
            let mut calls = self.store.calls(&run_id, None).await?;
            calls.retain(|call| call.position.turn <= upto);
            let mut children = self.store.runs_of(RunsOf::Children(run_id)).await?;
            // Of an old one nobody knows when it was asked for.
            let is_of_it = |task: &CallId| calls.iter().any(|call| call.call_id == *task);
            children.retain(|child| child.task_call_id.as_ref().is_none_or(is_of_it));
            left.extend(walk.down(children).into_iter().map(|child| Past { run_id: child.run_id, upto: u32::MAX }));
            found.append(&mut calls);
        }
        Ok(found)
    }
}
