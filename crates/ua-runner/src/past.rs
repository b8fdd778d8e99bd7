//! Whether the database still knows all that a run has sent: asked before anybody works on it.
//!
//! Durable Jobs v1 §5.1 (no double execution). A database that was put back from a copy has lost receipts, and a lost receipt is an effect that
//! would happen again; what lies beside the database (`effects.log`) still knows of it. Invariant: nothing is sent for such a run before
//! a person has looked. Proved by: [`PastKnown`] is part of what every desk is made of, and only the comparison makes one; the tests
//! `restored` of `ua-sdk`, the e2e tests `restore`.

use std::collections::BTreeSet;

use ua_core::{CallId, CallStatus, FailureClass, QuestionId, RunId, Timestamp};
use ua_ledger::{Lineage, key_in_own_place};
use ua_store::{
    CallRecord, DELIVERED, Forgotten, LedgerStore as _, Lost, MadeBy, QuestionKind, RecallCall, RunRecord,
    RunStore as _, Store, StoreError, recall_lost, recall_of, rules,
};

/// Proof that the database was compared with what is known beside it, and lacks nothing about the family of one run but what a person accepted; or
/// that the run is to end, and sends nothing more.
#[derive(Debug, Clone)]
pub struct PastKnown {
    run: RunId,
    lost: Vec<Lost>,
}

impl PastKnown {
    /// Compares; best before the run is taken, so that a refused one stays as it is.
    ///
    /// # Errors
    /// [`PastError::Forgotten`] when more was sent, answered or said than the database knows, by the run, by one that it is joined with by
    /// forks and tasks, or by one of which nobody knows any more whose it is.
    pub async fn of(store: &dyn Store, run: &RunRecord) -> Result<Self, PastError> {
        let mut known = Self { run: run.run_id.clone(), lost: Vec::new() };
        if run.end_mark().is_some() {
            recall(store, &run.run_id, Some(&run.run_id)).await.map_err(PastError::Store)?;
            return Ok(known);
        }
        refuse_forgotten(store, &run.run_id).await?;
        let lost = store.lost(&run.run_id).await.map_err(PastError::Store)?;
        // A copy of before what was accepted was put back: what it has is learnt once more.
        let accepted: Vec<Forgotten> = lost.iter().map(|lost| lost.known.clone()).collect();
        recall_among(store, &accepted, true).await.map_err(PastError::Store)?;
        known.lost = without_call(store, lost).await.map_err(PastError::Store)?;
        Ok(known)
    }

    /// What was sent for its family, and accepted, and is in no row: what the run is about to send may be the same.
    pub(crate) fn lost(&self) -> &[Lost] {
        &self.lost
    }

    /// The run it is about.
    pub(crate) fn run(&self) -> &RunId {
        &self.run
    }
}

/// Has the database learn what lies beside it about calls of the family of `run` that it has, or about those of one run alone: a call of which it is
/// known that it was sent is in doubt, not one that was never sent. What it does not know of is told all the same until a person accepts it. A call
/// of which the database has an end that speaks against nothing, as one that was cancelled, refuses; of one run alone, which is to end, it does not.
pub(crate) async fn recall(store: &dyn Store, run: &RunId, only: Option<&RunId>) -> Result<(), StoreError> {
    let mut forgotten = store.forgotten(run).await?;
    // What was accepted, and the database that was put back once more lacks again.
    forgotten.extend(store.lost(run).await?.into_iter().map(|lost| lost.known));
    forgotten.retain(|known| only.is_none_or(|only| known.run_id == only.as_str()));
    forgotten.extend(delivered(store, &forgotten).await?);
    recall_among(store, &forgotten, only.is_some()).await
}

/// The attempts that wait, by the database, for what a person has said since to a question of their tool. That it was said is in the log, and whoever
/// drove the run next delivered it: the tool may have done then what it asked for, and the log has no line of that before the call's end.
async fn delivered(store: &dyn Store, forgotten: &[Forgotten]) -> Result<Vec<Forgotten>, StoreError> {
    let mut delivered = Vec::new();
    for said in forgotten.iter().filter(|known| known.word.is_some()) {
        let Some(id) = said.question_id.as_deref().and_then(|id| QuestionId::parse(id).ok()) else { continue };
        let question = match store.question(&id).await {
            Ok(question) => question,
            Err(StoreError::NotFound { .. }) => continue,
            Err(error) => return Err(error),
        };
        let Some(call) = question.call_id.filter(|_| question.kind == QuestionKind::Elicitation) else { continue };
        let call = store.call(&call).await?;
        let has_its_end = |known: &Forgotten| {
            known.tool_call_id.as_deref() == Some(call.call_id.as_str())
                && known.attempt == call.attempt
                && known.has_ended()
        };
        if call.status != CallStatus::Running || forgotten.iter().any(has_its_end) {
            continue;
        }
        let started_at = store.attempts(&call.call_id).await?.pop().map(|attempt| attempt.started_at.to_string());
        delivered.push(Forgotten {
            at: said.at.clone(),
            first_at: started_at,
            is_from_its_start: true,
            run_id: call.run_id.to_string(),
            tool_call_id: Some(call.call_id.to_string()),
            attempt: call.attempt,
            tool: call.name.raw.clone(),
            idempotency_key: call.idempotency_key.as_ref().map(ToString::to_string),
            status: DELIVERED.to_owned(),
            ..Forgotten::default()
        });
    }
    Ok(delivered)
}

async fn recall_among(store: &dyn Store, forgotten: &[Forgotten], is_to_end: bool) -> Result<(), StoreError> {
    let calls: BTreeSet<&str> = forgotten.iter().filter_map(|known| known.tool_call_id.as_deref()).collect();
    for id in calls.into_iter().filter_map(|id| CallId::parse(id).ok()) {
        let call = match store.call(&id).await {
            Ok(call) => call,
            Err(StoreError::NotFound { .. }) => continue,
            Err(error) => return Err(error),
        };
        let Some(recall) = recall_of(&call, &store.attempts(&id).await?, forgotten) else { continue };
        match store.recall_call(recall).await {
            // The record of the call that has its key speaks against a repeat.
            Ok(_) | Err(StoreError::KeyTaken { .. }) => {}
            Err(error @ StoreError::Conflict { .. }) => {
                let may_be_repeated = !speaks_against_a_repeat(&store.call(&id).await?);
                if may_be_repeated && !is_to_end {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether the record of a call keeps it, and what is the same in its family, from being sent without a question.
fn speaks_against_a_repeat(call: &CallRecord) -> bool {
    rules::may_have_happened(call) || call.deduplicated_from.is_some()
}

/// Those of which the database does not have the call, or has an end of it that speaks against nothing, as one that was cancelled.
async fn without_call(store: &dyn Store, lost: Vec<Lost>) -> Result<Vec<Lost>, StoreError> {
    let mut without = Vec::new();
    for lost in lost {
        let Some(id) = lost.known.tool_call_id.as_deref().and_then(|id| CallId::parse(id).ok()) else { continue };
        match store.call(&id).await {
            Ok(call) if call.status == CallStatus::Prepared || speaks_against_a_repeat(&call) => {}
            Ok(_) | Err(StoreError::NotFound { .. }) => without.push(lost),
            Err(error) => return Err(error),
        }
    }
    Ok(without)
}

/// What is known of `call` beside its database; of one that was never sent also what a call did that the database does not have, which is the like
/// and of its family: a person who speaks of this one may mean that.
async fn recall_for(store: &dyn Store, call: &CallRecord) -> Result<Option<RecallCall>, StoreError> {
    let forgotten = store.forgotten(&call.run_id).await?;
    let mut lost: Vec<Lost> = forgotten.into_iter().map(lost_now).collect();
    lost.extend(store.lost(&call.run_id).await?);
    let known: Vec<Forgotten> = lost.iter().map(|lost| lost.known.clone()).collect();
    let own = recall_of(call, &store.attempts(&call.call_id).await?, &known);
    if own.is_some() || call.status != CallStatus::Prepared {
        return Ok(own);
    }
    let run = store.run(&call.run_id).await?;
    let lineage =
        Lineage { database: store.database_id().await?, root: call.root_run_id.clone(), mark: run.lineage_mark };
    let key = key_in_own_place(&lineage, call);
    Ok(recall_lost(call, call.scope.as_ref(), &without_call(store, lost).await?, key))
}

fn lost_now(known: Forgotten) -> Lost {
    Lost { known, was_suspected: false, was_recalled: false }
}

/// What is known of `call` beside its database as well.
///
/// # Errors
/// Those of the store.
pub async fn recalled(store: &dyn Store, call: CallRecord) -> Result<CallRecord, StoreError> {
    let current = call.attempt.checked_sub(1);
    let Some(recall) = recall_for(store, &call).await? else { return Ok(call) };
    let attempts = if current.is_some() { store.attempts(&call.call_id).await? } else { Vec::new() };
    let epoch = store.run(&call.run_id).await?.lease_epoch;
    match rules::call_recalled(call.clone(), attempts.into_iter().next_back(), &recall, epoch) {
        Ok(mut seen) => Ok(seen.steps.pop().map_or(call, |last| last.call)),
        Err(_) if speaks_against_a_repeat(&call) => Ok(call),
        Err(error) => Err(error),
    }
}

/// The call that the database does not have and in whose place a call that was never sent would stand, if a person spoke of it now.
///
/// # Errors
/// Those of the store.
pub async fn made_by_another(store: &dyn Store, call: &CallId) -> Result<Option<MadeBy>, StoreError> {
    let call = &store.call(call).await?;
    if call.status != CallStatus::Prepared {
        return Ok(None);
    }
    Ok(recall_for(store, call).await?.and_then(|recall| recall.attempts.into_iter().next()?.made_by))
}

/// Stores what is known of a call beside its database; the call as it is then.
///
/// # Errors
/// Those of the store.
pub async fn recall_one(store: &dyn Store, call: &CallId) -> Result<CallRecord, StoreError> {
    let call = store.call(call).await?;
    let Some(recall) = recall_for(store, &call).await? else { return Ok(call) };
    match store.recall_call(recall).await {
        Err(StoreError::KeyTaken { .. }) => Ok(call),
        Err(StoreError::Conflict { .. }) if speaks_against_a_repeat(&call) => Ok(call),
        recalled => recalled,
    }
}

/// Notes that a person looked at what was forgotten of `run` and its family, and accepts it. Of the calls that the database has it learns first that
/// they were sent: they are decided like any that nobody knows the end of. Of what it does not have whoever is about to do the like is asked once.
///
/// # Errors
/// Those of the store.
pub async fn accept(
    store: &dyn Store,
    run: &RunId,
    forgotten: &[Forgotten],
    by: Option<&str>,
    at: Timestamp,
) -> Result<(), StoreError> {
    recall(store, run, None).await?;
    store.accept_forgotten(run, forgotten, by, at).await
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
    #[error("{}", in_words(run, forgotten))]
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

fn in_words(run: &RunId, forgotten: &[Forgotten]) -> String {
    if let [first, ..] = forgotten
        && forgotten.iter().all(Forgotten::is_unaccounted)
    {
        if first.is_failed_over() {
            return format!(
                "another server took over, or a copy was put back, and may know nothing after {}: nobody knows what run {} sent then",
                first.at, first.run_id
            );
        }
        return format!(
            "the database is a copy that knows nothing after {}, and effects.log of the time after that is missing: nobody knows what run {} sent then",
            first.at, first.run_id
        );
    }
    format!(
        "the database is an older copy: effects.log knows {} about {} that it does not{}",
        ua_core::counted(forgotten.len(), "thing"),
        whose(run, forgotten),
        what_then(run, forgotten)
    )
}

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
