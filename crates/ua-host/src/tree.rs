//! Runs and their sub-agents, as a person meets them: what is asked below a run, and by which name a run goes on.
//!
//! A tree is driven by whoever drives the run at its top. So a sub-agent's run is looked at like any other, but resumed, forked and
//! deleted with its job.

use std::collections::BTreeSet;

use ua_core::{RunId, RunStatus};
use ua_runner::top_of_tree;
use ua_store::{QuestionRecord, QuestionStatus, RunRecord, RunRecords, RunStore, Store, Walk, is_task, works_for};

use crate::error::HostError;

/// The questions of the runs below a run that wait for an answer.
pub async fn questions_below(store: &dyn Store, records: &RunRecords) -> Result<Vec<QuestionRecord>, HostError> {
    let mut found = Vec::new();
    for child in &records.lineage.sub_agents {
        let open = store.open_questions(Some(&child.run_id)).await;
        found.extend(open.map_err(|e| HostError::store("read the questions of a sub-agent", &e))?);
    }
    found.retain(|question| question.status == QuestionStatus::Open);
    Ok(found)
}

/// The waiting runs whose questions are all answered: they wait for nobody but the process that acts on the answers.
pub async fn answered_runs(store: &dyn Store) -> Result<BTreeSet<RunId>, HostError> {
    let questions = store.open_questions(None).await.map_err(|e| HostError::store("read the questions", &e))?;
    let (mut answered, mut open) = (BTreeSet::new(), BTreeSet::new());
    for question in &questions {
        let top = top(store, &question.run_id).await?;
        if question.status == QuestionStatus::Open {
            open.insert(top)
        } else {
            answered.insert(top)
        };
    }
    let mut waiting = BTreeSet::new();
    for id in answered.difference(&open) {
        // One that was stopped since, because its setup changed for one, is not helped by its answers.
        let run = store.run(id).await.map_err(|e| HostError::store("read the run", &e))?;
        if run.status == RunStatus::WaitingForHuman {
            waiting.insert(id.clone());
        }
    }
    Ok(waiting)
}

/// The runs of which somebody is still to answer a question, of theirs or of a sub-agent below them. A run that waits and is none of these waits
/// for nobody but the process that acts on what was said: on the answers, or on a record that a person corrected.
pub async fn asking_runs(store: &dyn Store) -> Result<BTreeSet<RunId>, HostError> {
    let questions = store.open_questions(None).await.map_err(|e| HostError::store("read the questions", &e))?;
    let failed = |error| HostError::store("read the run", &error);
    let mut asking = BTreeSet::new();
    for question in questions.iter().filter(|question| question.status == QuestionStatus::Open) {
        let (mut walk, mut above) = (Walk::default(), Some(question.run_id.clone()));
        // Above one that is known to be asking, all are.
        while let Some(id) = walk.up(above.as_ref()).map_err(failed)?.filter(|id| asking.insert(id.clone())) {
            above = works_for(&store.run(&id).await.map_err(failed)?).cloned();
        }
    }
    Ok(asking)
}

/// All child runs below a run, parents before their children.
pub async fn runs_below(store: &dyn Store, run: &RunId) -> Result<Vec<RunRecord>, HostError> {
    ua_store::runs_below(store, run).await.map_err(|e| HostError::store("look for sub-agents", &e))
}

/// A run and all child runs below it: whose calls and questions are the run's, to whoever asks about it.
pub async fn with_those_below(store: &dyn Store, run: &RunId) -> Result<Vec<RunId>, HostError> {
    let below = runs_below(store, run).await?.into_iter().map(|run| run.run_id);
    Ok(std::iter::once(run.clone()).chain(below).collect())
}

/// The runs of sub-agents below a run, each behind the one it works for, and how deep it stands.
pub async fn tasks_below(store: &dyn Store, run: &RunId) -> Result<Vec<(usize, RunRecord)>, HostError> {
    let (mut walk, mut found) = (Walk::from(run), Vec::new());
    let mut open = vec![(0, run.clone())];
    while let Some((depth, parent)) = open.pop() {
        let at = found.iter().position(|(_, run): &(usize, RunRecord)| run.run_id == parent).map_or(0, |at| at + 1);
        let children = store.children(&parent).await.map_err(|e| HostError::store("look for sub-agents", &e))?;
        let tasks: Vec<(usize, RunRecord)> = walk.down(children).into_iter().map(|child| (depth + 1, child)).collect();
        open.extend(tasks.iter().map(|(depth, child)| (*depth, child.run_id.clone())));
        found.splice(at..at, tasks);
    }
    Ok(found)
}

/// The run that is resumed when this one is to go on.
pub async fn top(store: &dyn Store, run: &RunId) -> Result<RunId, HostError> {
    let run = store.run(run).await.map_err(|e| HostError::store("read the run", &e))?;
    Ok(top_of_tree(store, &run).await?.run_id)
}

/// Refuses to do to a sub-agent's run what is done to its job: `verb` in words, `command` in the hint.
pub async fn refuse_task(store: &dyn Store, run: &RunRecord, verb: &str, command: &str) -> Result<(), HostError> {
    if !is_task(run) {
        return Ok(());
    }
    let top = top_of_tree(store, run).await?.run_id;
    Err(HostError::usage(format!("run {} is a sub-agent of run {top} and cannot be {verb} by itself", run.run_id))
        .hint(format!("`{command} {top}`: a sub-agent goes with the run that started it")))
}
