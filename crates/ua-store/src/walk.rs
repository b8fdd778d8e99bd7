//! The way from run to run: up to those that a run has its turns or its task from, down to those that work for it.
//!
//! What leads on is read from rows, and a row that somebody else wrote may lead back to where the walk has been. So whoever goes from one run to the
//! next goes by a [`Walk`], which meets each run once: upwards, where there has to be a first run, a circle is an error and not the end of the way;
//! downwards each run is told once. Deliberately absent: reading rows; transactions, ports and lists in memory each have their own way to.
//!
//! Proved by: the tests here, `conformance::forks`, the end-to-end tests `bad_storage`. That nobody walks without one is seen by
//! `walks` of `ua-testkit`.

use std::collections::BTreeSet;

use ua_core::RunId;

use crate::error::{RowRef, StoreError};
use crate::lineage::is_task;
use crate::record::RunRecord;
use crate::run_store::RunStore as _;
use crate::store::Store;

/// The runs that a walk from run to run has met.
#[derive(Debug, Default)]
pub struct Walk {
    met: BTreeSet<RunId>,
}

impl Walk {
    /// A walk that begins at a run.
    pub fn from(run: &RunId) -> Self {
        Self { met: BTreeSet::from([run.clone()]) }
    }

    /// Whether a run is met for the first time. It is met now.
    pub fn meets(&mut self, run: &RunId) -> bool {
        !self.met.contains(run) && self.met.insert(run.clone())
    }

    /// The run that the row of the last one leads up to; `None` at the top.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] where the walk has met that run: no row was written so.
    pub fn up(&mut self, above: Option<&RunId>) -> Result<Option<RunId>, StoreError> {
        let Some(above) = above else { return Ok(None) };
        if self.meets(above) {
            return Ok(Some(above.clone()));
        }
        let why = "the runs above it lead in a circle".to_owned();
        Err(StoreError::Corrupt { row: RowRef::new("runs", above), why })
    }

    /// Those of the children of a run that work on a task of it, and that the walk has not met.
    pub fn down(&mut self, children: Vec<RunRecord>) -> Vec<RunRecord> {
        children.into_iter().filter(|child| is_task(child) && self.meets(&child.run_id)).collect()
    }
}

/// The run whose task a run works on.
pub fn works_for(run: &RunRecord) -> Option<&RunId> {
    run.parent_run_id.as_ref().filter(|_| is_task(run))
}

/// The run whose turns a run shares.
pub fn shares_with(run: &RunRecord) -> Option<&RunId> {
    run.parent_run_id.as_ref().filter(|_| run.forked_at.is_some())
}

/// The run at the top of a run's tree: the one that works for nobody. Itself, unless it works on a task.
///
/// # Errors
/// Those of the store; [`StoreError::Corrupt`] where the rows lead in a circle.
pub async fn top_of_tree(store: &dyn Store, run: &RunRecord) -> Result<RunRecord, StoreError> {
    let (mut walk, mut top) = (Walk::from(&run.run_id), run.clone());
    while let Some(above) = walk.up(works_for(&top))? {
        top = store.run(&above).await?;
    }
    Ok(top)
}

/// The runs whose turns a fork shares, the nearest first; none of a run that is no fork.
///
/// # Errors
/// Those of the store; [`StoreError::Corrupt`] where the rows lead in a circle.
pub async fn runs_shared(store: &dyn Store, run: &RunRecord) -> Result<Vec<RunRecord>, StoreError> {
    let (mut walk, mut found) = (Walk::from(&run.run_id), Vec::<RunRecord>::new());
    while let Some(above) = walk.up(shares_with(found.last().unwrap_or(run)))? {
        found.push(store.run(&above).await?);
    }
    Ok(found)
}

/// The child runs below a run, parents before their children.
///
/// # Errors
/// Those of the store.
pub async fn runs_below(store: &dyn Store, run: &RunId) -> Result<Vec<RunRecord>, StoreError> {
    let (mut walk, mut found) = (Walk::from(run), Vec::<RunRecord>::new());
    let (mut next, mut parent) = (0, run.clone());
    loop {
        found.extend(walk.down(store.children(&parent).await?));
        let Some(below) = found.get(next) else { return Ok(found) };
        parent = below.run_id.clone();
        next += 1;
    }
}

#[cfg(all(test, feature = "conformance"))]
#[expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
mod tests {
    use ua_core::TASK_MODE;

    use super::*;
    use crate::lineage::ForkPoint;
    use crate::rules::{self, run_submitted};
    use crate::{MemStore, conformance::samples};

    /// Runs of which each is a fork of the next one, or works for it; the last one leads back to `back`, if to any.
    fn chain(is_task: bool, many: usize, back: Option<usize>) -> Vec<RunRecord> {
        let id = |at: usize| samples::run_id(&format!("run_{at}"));
        let named = |at: usize| {
            let mut run = run_submitted(samples::new_run(id(at).as_str()), None).0;
            run.parent_run_id = if at + 1 < many { Some(id(at + 1)) } else { back.map(id) };
            if is_task {
                TASK_MODE.clone_into(&mut run.run_mode);
            } else {
                run.forked_at = Some(ForkPoint { turn: 1, seq: 1 });
            }
            run
        };
        (0..many).map(named).collect()
    }

    fn find(all: &[RunRecord], id: &RunId) -> Result<RunRecord, StoreError> {
        all.iter()
            .find(|run| run.run_id == *id)
            .cloned()
            .ok_or_else(|| StoreError::NotFound { row: RowRef::new("runs", id) })
    }

    type Above = fn(&RunRecord) -> Option<&RunId>;

    /// The runs that a walk meets on its way up, and how it ends.
    fn way_up(all: &[RunRecord], of: Above) -> (usize, Result<(), StoreError>) {
        let (mut walk, mut run) = (Walk::from(&all[0].run_id), all[0].clone());
        for met in 1.. {
            match walk.up(of(&run)) {
                Ok(Some(above)) => run = find(all, &above).unwrap(),
                Ok(None) => return (met, Ok(())),
                Err(error) => return (met, Err(error)),
            }
        }
        unreachable!("it has an end")
    }

    #[test]
    fn the_way_up_ends_at_the_top_and_a_circle_is_an_error() {
        for many in 1..5 {
            for (is_task, of) in [(true, works_for as Above), (false, shares_with)] {
                let (met, end) = way_up(&chain(is_task, many, None), of);
                assert!(end.is_ok() && met == many, "{is_task} {many}: {met} {end:?}");
                for back in 0..many {
                    let all = chain(is_task, many, Some(back));
                    let (met, end) = way_up(&all, of);
                    let Err(StoreError::Corrupt { row, why }) = end else { panic!("{is_task} {many} {back}: {end:?}") };
                    assert_eq!(met, many, "{is_task} {back}");
                    assert_eq!(row.to_string(), RowRef::new("runs", &all[back].run_id).to_string());
                    assert_eq!(why, "the runs above it lead in a circle");
                }
            }
        }
    }

    /// What is shared, and what works for a run, is each told once.
    #[test]
    fn rows_that_lead_in_a_circle_end_where_it_closes() {
        for many in 1..5 {
            for back in 0..many {
                let forks = chain(false, many, Some(back));
                let shared = rules::shared_parts(&forks[0], |id| find(&forks, id));
                assert!(matches!(shared, Err(StoreError::Corrupt { .. })), "{many} {back}: {shared:?}");
                let tasks = chain(true, many, Some(back));
                let children = |of: &RunId| {
                    let all = tasks.iter().filter(|run| run.parent_run_id.as_ref() == Some(of));
                    Ok::<_, StoreError>(all.cloned().collect())
                };
                let below = rules::runs_below(&tasks[many - 1].run_id, children).unwrap();
                assert_eq!(below.len(), many - 1, "{many} {back}");
            }
        }
    }

    /// A store is walked as rows in memory are.
    #[tokio::test]
    async fn a_tree_is_read_down_and_up() {
        let store = MemStore::default();
        store.submit_run(samples::new_run("run_1")).await.unwrap();
        let top = store.run(&samples::run_id("run_1")).await.unwrap();
        assert_eq!(runs_below(&store, &top.run_id).await.unwrap(), []);
        assert_eq!(runs_shared(&store, &top).await.unwrap(), []);
        assert_eq!(top_of_tree(&store, &top).await.unwrap(), top);
    }
}
