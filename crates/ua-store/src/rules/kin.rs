//! Kin: calls of other trees of a family. A *tree* is a run with the sub-agents below it; forks cut trees. A *family* is all runs of one
//! lineage.
//!
//! What a person forks away from was decided by a model that this one knows nothing of, and so was what its sub-agents did. Kin of a tree
//! are the calls of all other trees of its family, but for the history that is shared with them: the turns up to the fork point, and the
//! sub-agents that these turns started. A sub-agent itself is never forked.

use std::collections::HashMap;

use ua_core::{CallId, RunId, Scope};

use super::shared_parts;
use crate::lineage::is_task;
use crate::record::{CallRecord, RunRecord};

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
    let mut place = Place::Top(run);
    // No more steps than there are runs: rows that lead in a circle are no tree.
    for _ in 0..runs.len() {
        let top = place.top();
        let parent = top.parent_run_id.as_ref().filter(|_| is_task(top)).and_then(|id| runs.get(id));
        let Some(parent) = parent else { break };
        place = Place::Below(parent, top.task_call_id.clone());
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
    let parts = shared_parts(own, |id| runs.get(id).map(|run| (*run).clone()).ok_or(())).unwrap_or_default();
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

/// Whether `call`, whose effect is `scope`, could repeat what `kin` did: the same tool, or the same effect by another one.
pub fn could_repeat(call: &CallRecord, scope: Option<&Scope>, kin: &CallRecord) -> bool {
    let is_same_effect = scope.is_some() && kin.scope.as_ref() == scope;
    kin.call_id != call.call_id && (kin.name == call.name || is_same_effect)
}
