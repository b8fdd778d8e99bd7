//! Until when another call may still have its effect, and whether a process is at it: the one answer, for what a question says, for whoever takes an
//! answer to it, and for the call that is started on it.
//!
//! Durable Jobs v1 spec §8.3. Invariant: nothing is let out beside a call that is under way or may still begin; whoever looked before that was over has
//! looked too early, whichever door their word came through.
//! Proved by: the tables of [`still`] and of the verdict, the end-to-end tests `forks`.

use std::collections::BTreeMap;
use std::time::Duration;

use ua_core::{CallId, CallStatus, Time, Timestamp};
use ua_store::{AttemptRecord, CallRecord, LedgerStore as _, RunRecord, Store, StoreError};

use crate::correction::absent_from_since;

/// What the process or the server that an attempt was sent to may still do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MayAct {
    /// Nothing: it is gone, or its time is over.
    No,
    /// It cannot be ended, and may begin it for so long.
    For(Duration),
    /// It is there, or nobody has recorded yet since when it is not waited for.
    Yes,
}

/// What can be seen, beside the database, of the processes that calls are sent from and to.
pub trait Outside: Send + Sync {
    /// What is left of what the last attempt of a call was sent to.
    fn may_act(&self, call: &CallRecord, last: &AttemptRecord) -> MayAct {
        std::hint::black_box((call, last));
        MayAct::No
    }

    /// Whether a process may be at work on a run.
    fn may_be_driven(&self, run: &RunRecord) -> bool;
}

/// Whoever sees the processes that drive runs, and nothing of what they sent calls to.
impl<F: Fn(&RunRecord) -> bool + Send + Sync> Outside for F {
    fn may_be_driven(&self, run: &RunRecord) -> bool {
        self(run)
    }
}

/// How long another call may still have its effect; the later, the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Still {
    /// It will not, if it has not had it.
    Over,
    /// The other side may begin it until then.
    Until(Timestamp),
    /// Somebody is at it, or may be.
    UnderWay,
}

impl Still {
    /// From when on a look counts, where a time says it.
    pub(crate) fn until(self) -> Option<Timestamp> {
        match self {
            Self::Until(until) => Some(until),
            Self::Over | Self::UnderWay => None,
        }
    }
}

/// How long a call may still have its effect. `asked` is since when nobody is known to have followed it, where no end of its last attempt is stored.
pub fn still(
    call: &CallRecord,
    attempts: &[AttemptRecord],
    is_driven: bool,
    may_act: impl Fn(&AttemptRecord) -> MayAct,
    (asked, time): (Timestamp, &Time),
) -> Still {
    let is_running = match call.status {
        CallStatus::Running => true,
        CallStatus::Unknown => false,
        CallStatus::Prepared
        | CallStatus::Succeeded
        | CallStatus::FailedDefinite
        | CallStatus::FailedReported
        | CallStatus::Cancelled => return Still::Over,
    };
    let Some(last) = attempts.last() else { return Still::Over };
    if is_running && let Some(handle) = last.handle.as_ref().filter(|_| last.ended_at.is_none()) {
        // Its tool waits for a word, and does nothing before that is handed over, which is held to what other calls did. One that waits on its connection
        // may do anything once that is gone, which not everybody can see who asks.
        let waits = handle.input.as_ref().is_some_and(|input| !input.is_sent && !input.is_live);
        if waits {
            return Still::Over;
        }
        if handle.outlives_its_process() {
            return Still::UnderWay;
        }
    }
    if is_running && is_driven {
        return Still::UnderWay;
    }
    let by_policy = absent_from_since(call, attempts, asked, time).map_or(Still::Over, Still::Until);
    by_policy.max(match may_act(last) {
        MayAct::No => Still::Over,
        MayAct::For(left) => Still::Until(time.now().plus(left)),
        MayAct::Yes => Still::UnderWay,
    })
}

/// The same of a stored call, with its run's driver.
pub(crate) async fn still_of(
    store: &dyn Store,
    outside: &dyn Outside,
    call: &CallRecord,
    times: (Timestamp, &Time),
) -> Result<Still, StoreError> {
    if !matches!(call.status, CallStatus::Running | CallStatus::Unknown) {
        return Ok(Still::Over);
    }
    let mut attempts = store.attempts(&call.call_id).await?;
    let mut is_driven = false;
    if call.status == CallStatus::Running {
        let run = store.run(&call.run_id).await?;
        is_driven = outside.may_be_driven(&run);
        // Nobody goes on with a run that is over or was deleted: since then nobody waits for its call.
        if run.status.is_terminal()
            && let Some(last) = attempts.last_mut()
        {
            last.ended_at = last.ended_at.or(Some(run.updated_at));
        }
    }
    Ok(still(call, &attempts, is_driven, |last| outside.may_act(call, last), times))
}

/// How long each of these calls may still have its effect; one that is not named will not.
pub(crate) async fn still_of_each(
    store: &dyn Store,
    outside: &dyn Outside,
    calls: impl Iterator<Item = &CallRecord>,
    time: &Time,
) -> Result<BTreeMap<CallId, Still>, StoreError> {
    let mut known = BTreeMap::new();
    for call in calls {
        if matches!(call.status, CallStatus::Running | CallStatus::Unknown) && !known.contains_key(&call.call_id) {
            let still = still_of(store, outside, call, (time.now(), time)).await?;
            known.insert(call.call_id.clone(), still);
        }
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use ua_core::{Handle, Input};
    use ua_store::MemStore;
    use ua_store::conformance::{Scene, samples};

    use super::*;

    /// Over where the other call stands, what its tool waits for, who drives its run and what is left of its server.
    #[tokio::test]
    async fn a_call_is_over_only_when_nobody_can_have_its_effect_any_more() {
        let waits = |is_live, is_sent| Handle {
            input: Some(Input { is_live, is_sent, round: 1, ..Input::default() }),
            ..Handle::default()
        };
        let task = || Handle { task: Some("t".to_owned()), ..Handle::default() };
        let (asked, now) = (samples::at(60), samples::at(70));
        let mut seen = [0; 3];
        for status in CallStatus::ALL {
            let store = MemStore::new();
            let call = Scene::begin(&store, "run_1").await.call_that_is("call_1", *status).await;
            let attempts = store.attempts(&call.call_id).await.unwrap();
            for handle in
                [None, Some(waits(false, false)), Some(waits(true, false)), Some(waits(false, true)), Some(task())]
            {
                for is_driven in [false, true] {
                    for acts in [MayAct::No, MayAct::For(Duration::from_secs(5)), MayAct::Yes] {
                        for horizon in [None, Some(Duration::from_secs(1_000))] {
                            let mut call = call.clone();
                            let mut policy = (*call.policy).clone();
                            (policy.horizon, policy.probe) = (horizon, None);
                            call.policy = policy.into();
                            let mut attempts = attempts.clone();
                            if let Some(last) = attempts.last_mut() {
                                last.handle.clone_from(&handle);
                            }
                            let found = still(&call, &attempts, is_driven, |_| acts, (asked, &Time::plain(now)));
                            let what = format!("{status}, {handle:?}, {is_driven}, {acts:?}, {horizon:?}: {found:?}");
                            let is_running = *status == CallStatus::Running;
                            let input = handle.as_ref().and_then(|handle| handle.input.as_ref());
                            let asks = input.is_some_and(|input| !input.is_sent && !input.is_live);
                            let is_task = handle.as_ref().is_some_and(|handle| handle.task.is_some());
                            let may_be = is_running || *status == CallStatus::Unknown;
                            if !may_be || (is_running && asks) {
                                assert_eq!(found, Still::Over, "{what}");
                            } else if acts == MayAct::Yes || (is_running && (is_driven || is_task)) {
                                assert_eq!(found, Still::UnderWay, "{what}");
                            } else if horizon.is_some() || matches!(acts, MayAct::For(_)) {
                                assert!(matches!(found, Still::Until(until) if until > now), "{what}");
                            } else {
                                assert_eq!(found, Still::Over, "{what}");
                            }
                            seen[match found {
                                Still::Over => 0,
                                Still::Until(_) => 1,
                                Still::UnderWay => 2,
                            }] += 1;
                        }
                    }
                }
            }
        }
        assert!(seen.iter().all(|count| *count > 10), "{seen:?}");
    }
}
