//! Kin: calls of other trees of a family. A *tree* is a run with the sub-agents below it; forks cut trees. A *family* is all runs of one
//! lineage.
//!
//! What a person forks away from was decided by a model that this one knows nothing of, and so was what its sub-agents did. Kin of a tree
//! are the calls of all other trees of its family, but for the history that is shared with them: the turns up to the fork point, and the
//! sub-agents that these turns started. A sub-agent itself is never forked.

use std::collections::HashMap;

use ua_core::{CallId, RunId};

use super::{not_found, shared_parts};
use crate::record::RunRecord;
use crate::walk::{Walk, works_for};

/// A run whose calls are kin, from behind a turn on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KinRun {
    /// The run.
    pub run_id: RunId,
    /// The last turn of it that is shared; its kin stand behind it.
    pub behind: u32,
}

/// Where a run hangs in its tree.
enum Place<'r> {
    /// It is the top.
    Top(&'r RunRecord),
    /// It works below a task of the top run; which one, is not known of every old run.
    Below(&'r RunRecord, Option<CallId>),
}

impl<'r> Place<'r> {
    fn top(&self) -> &'r RunRecord {
        match self {
            Self::Top(top) | Self::Below(top, _) => top,
        }
    }
}

fn place_of<'r>(run: &'r RunRecord, runs: &HashMap<&RunId, &'r RunRecord>) -> Place<'r> {
    let (mut walk, mut place) = (Walk::from(&run.run_id), Place::Top(run));
    // Rows that lead in a circle are no tree: as far as anybody knows it ends where they close.
    while let Ok(Some(above)) = walk.up(works_for(place.top())) {
        let Some(parent) = runs.get(&above) else { break };
        place = Place::Below(parent, place.top().task_call_id.clone());
    }
    place
}

/// The runs of `family`, which are all runs of one lineage, whose calls are kin of `run`'s, in their order. `turn_of` says in which turn a
/// task was asked for.
///
/// # Errors
/// Those of `turn_of`.
pub fn kin_of<E>(
    run: &RunRecord,
    family: &[RunRecord],
    mut turn_of: impl FnMut(&CallId) -> Result<u32, E>,
) -> Result<Vec<KinRun>, E> {
    let runs: HashMap<&RunId, &RunRecord> = family.iter().map(|run| (&run.run_id, run)).collect();
    let own = place_of(run, &runs).top();
    // A run that is not there any more was deleted; what is shared with it is not known, so nothing is.
    let find = |id: &RunId| runs.get(id).map(|run| (*run).clone()).ok_or_else(|| not_found("runs", id));
    let parts = shared_parts(own, find).unwrap_or_default();
    let mut kin = Vec::new();
    for member in family {
        let place = place_of(member, &runs);
        let top = &place.top().run_id;
        if *top == own.run_id {
            continue;
        }
        let shared = parts.iter().find(|part| part.run_id == *top).map_or(0, |part| part.upto.turn);
        let behind = match &place {
            Place::Top(_) => shared,
            Place::Below(_, Some(task)) if turn_of(task)? <= shared => continue,
            Place::Below(..) => 0,
        };
        kin.push(KinRun { run_id: member.run_id.clone(), behind });
    }
    Ok(kin)
}

#[cfg(test)]
#[cfg(feature = "conformance")]
mod tests {
    use std::collections::BTreeSet;

    use ua_core::{Entropy as _, SeededEntropy, TASK_MODE};

    use super::*;
    use crate::conformance::samples;
    use crate::lineage::{ForkPoint, is_task};
    use crate::{MemStore, RunStore as _};

    /// How many turns each run has.
    const TURNS: u32 = 4;

    /// A random family: each run but the first is a fork of another one, or works on a task of it. Sub-agents are not forked.
    struct Family {
        runs: Vec<RunRecord>,
        /// Which run each hangs below, and behind which turn: a fork's shared turns end there, a task was asked for in it.
        above: Vec<Option<(usize, u32)>>,
    }

    impl Family {
        async fn random(seed: u64) -> Self {
            let dice = SeededEntropy::new(seed);
            let below = |limit: usize| usize::try_from(dice.next_u64() % limit as u64).unwrap_or(0);
            let first = MemStore::default().submit_run(samples::new_run("run_0")).await.unwrap();
            let (mut runs, mut above) = (vec![first.clone()], vec![None]);
            for number in 1..2 + below(9) {
                let parent = below(number);
                let turn = u32::try_from(below(TURNS as usize + 1)).unwrap_or(0);
                let mut run = first.clone();
                run.run_id = samples::run_id(&format!("run_{number}"));
                run.parent_run_id = Some(samples::run_id(&format!("run_{parent}")));
                let is_fork = below(2) == 0 && !is_task(&runs[parent]);
                if is_fork {
                    run.forked_at = Some(ForkPoint { turn, seq: u64::from(turn) * 2 + 1 });
                } else {
                    TASK_MODE.clone_into(&mut run.run_mode);
                    run.task_call_id = Some(samples::call_id(&format!("call_{number}_{}", turn.max(1))));
                }
                runs.push(run);
                above.push(Some((parent, if is_fork { turn } else { turn.max(1) })));
            }
            Self { runs, above }
        }

        fn is_task(&self, run: usize) -> bool {
            is_task(&self.runs[run])
        }

        /// Everything that `top` and the sub-agents of its turns up to `last` did, by run and turn.
        fn tree(&self, top: usize, last: u32) -> BTreeSet<(usize, u32)> {
            let mut all: BTreeSet<(usize, u32)> = (1..=last).map(|turn| (top, turn)).collect();
            for child in 0..self.runs.len() {
                if self.is_task(child) && self.above[child].is_some_and(|(parent, turn)| parent == top && turn <= last)
                {
                    all.extend(self.tree(child, TURNS));
                }
            }
            all
        }

        /// What the model of `run` knows of, as the guide words it: its own tree, and the history that tree shares.
        fn known_to(&self, run: usize) -> BTreeSet<(usize, u32)> {
            let mut top = run;
            while let Some((parent, _)) = self.above[top].filter(|_| self.is_task(top)) {
                top = parent;
            }
            let mut known = self.tree(top, TURNS);
            let (mut fork, mut last) = (top, TURNS);
            while let Some((parent, turn)) = self.above[fork] {
                last = last.min(turn);
                known.extend(self.tree(parent, last));
                fork = parent;
            }
            known
        }
    }

    /// Kin are all that runs of the family did and that the run's own tree neither did nor shares.
    #[tokio::test]
    async fn kin_of_random_families_are_what_their_model_knows_nothing_of() {
        for seed in 0..3_000 {
            let family = Family::random(seed).await;
            let all: BTreeSet<(usize, u32)> =
                (0..family.runs.len()).flat_map(|run| (1..=TURNS).map(move |turn| (run, turn))).collect();
            for (number, run) in family.runs.iter().enumerate() {
                let turn_of = |task: &CallId| {
                    let turn = task.as_str().rsplit('_').next().and_then(|turn| turn.parse().ok());
                    turn.ok_or_else(|| task.to_string())
                };
                let found = kin_of(run, &family.runs, turn_of).unwrap();
                let place = |kin: &KinRun| family.runs.iter().position(|run| run.run_id == kin.run_id).unwrap();
                let kin: BTreeSet<(usize, u32)> =
                    found.iter().flat_map(|kin| (kin.behind + 1..=TURNS).map(move |turn| (place(kin), turn))).collect();
                let expected: BTreeSet<_> = all.difference(&family.known_to(number)).copied().collect();
                assert_eq!(kin, expected, "seed {seed}, run {number} of {:?}", family.above);
            }
        }
    }
}
