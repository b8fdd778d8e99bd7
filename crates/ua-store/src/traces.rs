//! By what a person finds on the other side what was sent for a call, and whose names these are.
//!
//! Durable Jobs v1 spec §8.3. A name is made of a key, and a call that stands in the place of one that the database does not have got a key that nobody
//! was given: what went out went out under that other one's. Invariant: no name is shown that nobody was given.
//! Proved by: the test below, `conformance::recalled`, `identity::lost`, the simulation.

use crate::commit::MadeBy;
use crate::record::{AttemptRecord, CallRecord};
use crate::rules::{is_learnt_of_another, made_by};

/// The names of what was sent for a call, each in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The call that they are of, where that is another one, which the database does not have.
    pub of: Option<MadeBy>,
    /// At least one.
    pub names: Vec<String>,
}

impl Trace {
    /// By what is found what was sent for `call` since nobody knows its outcome, its own first; `attempts` may have those of others among them.
    pub fn of(call: &CallRecord, attempts: &[AttemptRecord]) -> Vec<Self> {
        let attempts = || attempts.iter().filter(|attempt| attempt.call_id == call.call_id);
        let is_own_send = |attempt: &&AttemptRecord| {
            !attempt.never_left() && made_by(attempt).is_none() && !is_learnt_of_another(attempt)
        };
        let stands_in =
            || attempts().filter_map(|attempt| made_by(attempt).map(|(made_by, _)| (attempt.attempt, made_by)));
        // Of a call in doubt the key stays; what did nothing before got another one in the place of what was lost.
        let own = attempts().filter(is_own_send).map(|attempt| attempt.attempt).max().filter(|own| {
            let is_in_doubt_since = call.doubt.is_some_and(|doubt| doubt <= *own);
            is_in_doubt_since || stands_in().all(|(attempt, _)| attempt < *own)
        });
        let own = own.map(|_| Self { of: None, names: call.names_if_sent() });
        let others = stands_in().filter(|(attempt, _)| call.doubt.is_none_or(|doubt| *attempt >= doubt));
        let others = others.map(|(_, of)| Self { names: of.found_by.clone(), of: Some(of) });
        own.into_iter().chain(others).filter(|trace| !trace.names.is_empty()).collect()
    }
}

#[cfg(test)]
#[cfg(feature = "conformance")]
mod tests {
    use ua_core::{CallStatus, KeyChannel, SideEffectClass};

    use super::*;
    use crate::LedgerStore as _;
    use crate::MemStore;
    use crate::conformance::Scene;
    use crate::rules::RECALLED;

    /// Over what the attempts of a call may be, in any order of three, and since when it is in doubt: its own names are shown where one of them went out
    /// under the key that it has, and those of a lost call where that may be what happened.
    #[tokio::test]
    async fn no_name_is_shown_that_nobody_was_given() {
        let store = MemStore::new();
        let scene = Scene::begin(&store, "run_1").await;
        let mut call = scene.call_that_is("call_1", CallStatus::Unknown).await;
        call.policy.class = SideEffectClass::External;
        call.policy.key_channel = Some(KeyChannel::Header("X-Key".to_owned()));
        let first = store.attempts(&call.call_id).await.unwrap().remove(0);
        let kinds = ["none", "own", "not sent", "lost call", "learnt"];
        for place in 0..kinds.len().pow(3) {
            let kinds: Vec<&str> = (0..3)
                .map(|n| kinds[place / kinds.len().pow(n) % kinds.len()])
                .filter(|kind| *kind != "none")
                .collect();
            let attempt = |(number, kind): (u32, &&str)| {
                let (outcome, detail) = match *kind {
                    "own" => ("lost", None),
                    "not sent" => ("not_sent", None),
                    "lost call" => {
                        let detail = format!(
                            "{RECALLED}: succeeded, as call call_{number}0 of run run_2, found by [\"m-{number}\"]"
                        );
                        ("lost", Some(detail))
                    }
                    _ => ("lost", Some(format!("{RECALLED}: succeeded, of attempt 1"))),
                };
                let outcome = Some(outcome.to_owned());
                AttemptRecord { attempt: number, outcome, detail, ..first.clone() }
            };
            let attempts: Vec<AttemptRecord> = (1..).zip(&kinds).map(attempt).collect();
            let since = attempts.iter().filter(|attempt| attempt.was_lost()).map(|attempt| attempt.attempt);
            for doubt in since.map(Some).chain([None]) {
                let call = CallRecord { doubt, ..call.clone() };
                let traces = Trace::of(&call, &attempts);
                let what = format!("{kinds:?}, in doubt since {doubt:?}: {traces:?}");
                let own = traces.iter().filter(|trace| trace.of.is_none()).count();
                let is_own = |kind: &str| kind == "own";
                let last_own = kinds.iter().rposition(|kind| is_own(kind));
                let is_behind = kinds.iter().rposition(|kind| *kind == "lost call") < last_own;
                let keeps_its_key = last_own.is_some_and(|own| doubt.is_some_and(|doubt| doubt as usize <= own + 1));
                assert_eq!(own == 1, last_own.is_some() && (is_behind || keeps_its_key), "{what}");
                let names: Vec<&String> =
                    traces.iter().filter(|trace| trace.of.is_some()).flat_map(|trace| &trace.names).collect();
                let expected: Vec<String> = (1..)
                    .zip(&kinds)
                    .filter(|(number, kind)| **kind == "lost call" && doubt.is_none_or(|doubt| *number >= doubt))
                    .map(|(number, _): (u32, _)| format!("m-{number}"))
                    .collect();
                assert_eq!(names, expected.iter().collect::<Vec<_>>(), "{what}");
            }
        }
    }
}
