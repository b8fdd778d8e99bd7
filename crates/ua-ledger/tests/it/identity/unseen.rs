//! The same call, where nobody could look at a file that it sends one of two times.

use ua_core::{CallId, CallStatus, OnScopeConflict, Resolution};
use ua_ledger::{Admission, Facts};
use ua_store::{CallRecord, Choice, LedgerStore as _, QuestionKind, QuestionRecord};

use super::member::{Ask, FIRST, Fate, KnownBy, Member, lineage};

const REPORT: Option<&str> = Some("report");
const CANNOT_BE_LOOKED_AT: Option<&str> = None;
/// What the attachment of two calls was.
const ONCE: [(Option<&str>, Option<&str>); 2] = [(REPORT, CANNOT_BE_LOOKED_AT), (CANNOT_BE_LOOKED_AT, REPORT)];

async fn sent(member: &Member, ask: &Ask, facts: &Facts, fate: Fate) -> CallRecord {
    let id = member.plan(ask).await;
    member.take(&id, facts, fate).await
}

/// What becomes of another call.
async fn then(member: &Member, ask: &Ask, facts: &Facts) -> (CallId, Admission) {
    let id = member.plan(ask).await;
    let planned = member.store.call(&id).await.unwrap();
    assert!(member.ledger.admit_planned(&planned, facts).is_none(), "it is sent without a look");
    let admission = member.ledger.admit(&id, facts.clone()).await.unwrap();
    (id, admission)
}

fn near_duplicate(admission: Admission, at: &str) -> QuestionRecord {
    let Admission::Held(question) = admission else { panic!("{at}: {admission:?}") };
    assert_eq!(question.kind, QuestionKind::NearDuplicate, "{at}: {}", question.text);
    question
}

#[tokio::test]
async fn a_run_that_asks_for_it_twice_is_asked_and_has_what_it_is_told() {
    for (by, (first, second)) in KnownBy::ALL.into_iter().flat_map(|by| ONCE.map(|contents| (by, contents))) {
        for on_conflict in [OnScopeConflict::Ask, OnScopeConflict::Allow] {
            let at = format!("{by:?}: {first:?}, then {second:?}; {on_conflict}");
            let (run, _fork) = lineage().await;
            let ask = Ask { on_conflict, ..FIRST };
            let earlier = sent(&run, &ask, &ask.sends(by, first), Fate::Done).await;
            assert_eq!(earlier.status, CallStatus::Succeeded, "{at}");
            let facts = ask.sends(by, second);
            let (id, admission) = then(&run, &ask, &facts).await;
            let question = near_duplicate(admission, &at);
            assert!(question.text.contains(earlier.call_id.as_str()), "{at}: {}", question.text);
            run.answer(&question, Choice::Execute).await;
            let later = run.take(&id, &facts, Fate::Done).await;
            assert_ne!(later.idempotency_key, earlier.idempotency_key, "{at}");
        }
    }
}

#[tokio::test]
async fn where_a_policy_refuses_repeats_it_is_refused() {
    for (by, (first, second)) in KnownBy::ALL.into_iter().flat_map(|by| ONCE.map(|contents| (by, contents))) {
        let (run, _fork) = lineage().await;
        let ask = Ask { on_conflict: OnScopeConflict::Refuse, ..FIRST };
        sent(&run, &ask, &ask.sends(by, first), Fate::Done).await;
        let (_, admission) = then(&run, &ask, &ask.sends(by, second)).await;
        let Admission::Settled(call) = admission else { panic!("{by:?} {first:?}: {admission:?}") };
        assert_eq!((call.status, call.resolution), (CallStatus::Cancelled, Some(Resolution::Refused)));
    }
}

/// Whatever came of the first one: one in doubt stands in the way also where a person gave it up, and one that did nothing does not.
#[tokio::test]
async fn what_may_have_happened_is_asked_about_and_what_did_not_is_not() {
    for (by, (first, second)) in KnownBy::ALL.into_iter().flat_map(|by| ONCE.map(|contents| (by, contents))) {
        for fate in [Fate::Done, Fate::FailedMaybe, Fate::FailedNone, Fate::NotSent, Fate::Lost] {
            let at = format!("{by:?}: {first:?} {fate:?}, then {second:?}");
            let (run, _fork) = lineage().await;
            let facts = FIRST.sends(by, first);
            let earlier = sent(&run, &FIRST, &facts, fate).await;
            if fate == Fate::Lost {
                run.skip_as(&earlier, &facts).await;
            }
            let (_, admission) = then(&run, &FIRST, &FIRST.sends(by, second)).await;
            if matches!(fate, Fate::FailedNone | Fate::NotSent) {
                assert!(matches!(admission, Admission::Ready(_)), "{at}: {admission:?}");
            } else {
                near_duplicate(admission, &at);
            }
        }
    }
}

/// A run and its fork, in both directions.
#[tokio::test]
async fn a_fork_and_its_parent_ask_about_what_the_other_one_did() {
    for (by, (first, second)) in KnownBy::ALL.into_iter().flat_map(|by| ONCE.map(|contents| (by, contents))) {
        for fate in [Fate::Done, Fate::Lost, Fate::UnderWay] {
            for by_fork in [false, true] {
                let at = format!("{by:?}: {first:?} {fate:?}, then {second:?}; first by the fork: {by_fork}");
                let (parent, fork) = lineage().await;
                let (one, other) = if by_fork { (&fork, &parent) } else { (&parent, &fork) };
                sent(one, &FIRST, &FIRST.sends(by, first), fate).await;
                let (_, admission) = then(other, &FIRST, &FIRST.sends(by, second)).await;
                near_duplicate(admission, &at);
            }
        }
    }
}

/// Where both contents are known they say what the two are: another one is another effect, and nobody is asked.
#[tokio::test]
async fn two_known_contents_are_told_apart_and_the_same_one_is_done_once() {
    for by in KnownBy::ALL {
        let (run, fork) = lineage().await;
        sent(&run, &FIRST, &FIRST.sends(by, REPORT), Fate::Done).await;
        for member in [&run, &fork] {
            let id = member.plan(&FIRST).await;
            let admission = member.ledger.admit(&id, FIRST.sends(by, REPORT)).await.unwrap();
            let Admission::Settled(call) = admission else { panic!("{by:?}: {admission:?}") };
            assert!(call.deduplicated_from.is_some(), "{by:?}");
        }
        sent(&run, &FIRST, &FIRST.sends(by, Some("another report")), Fate::Done).await;
    }
}
