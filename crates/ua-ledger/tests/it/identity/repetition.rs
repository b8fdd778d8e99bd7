//! What is asked for again and is meant: it runs, and nothing that was never sent or has ended without effect stands in its way.

use ua_core::{CallStatus, Outcome, Resolution, SideEffectClass};
use ua_ledger::{Admission, Facts};
use ua_store::conformance::samples;
use ua_store::{CallRecord, RunStore as _};

use super::member::{ELSEWHERE, FIRST, Fate, Member, lineage};

/// Takes a call that no policy declares to its end; it must be let through.
async fn undeclared(member: &Member, class: SideEffectClass, outcome: Outcome) -> CallRecord {
    let id = member
        .plan_as(|id, turn| {
            let mut call = samples::planned_call(id, turn, 1);
            call.policy.class = class;
            call
        })
        .await;
    let admission = member.ledger.admit(&id, Facts::default()).await.unwrap();
    let Admission::Ready(prepared) = admission else { panic!("not let through: {admission:?}") };
    let permit = member.ledger.start(prepared, "1").await.unwrap().unwrap();
    member.ledger.settle(permit, outcome).await.unwrap()
}

fn refused() -> Outcome {
    let result = serde_json::json!({"content": [{"type": "text", "text": "no"}], "isError": true});
    Outcome::Raw(ua_core::RawReply::ToolResult { result })
}

#[tokio::test]
async fn the_same_search_poll_or_command_really_runs_again() {
    for class in SideEffectClass::ALL {
        let (run, _) = lineage().await;
        let first = undeclared(&run, *class, Outcome::Raw(samples::raw())).await;
        let second = undeclared(&run, *class, Outcome::Raw(samples::raw())).await;
        assert_eq!((first.status, second.status), (CallStatus::Succeeded, CallStatus::Succeeded), "{class}");
        assert_eq!((first.args_hash, second.deduplicated_from), (second.args_hash, None), "{class}");
        assert_ne!(first.idempotency_key, second.idempotency_key, "{class}");
    }
}

#[tokio::test]
async fn a_failed_call_that_is_asked_for_again_runs_again() {
    let not_sent = || Outcome::NotSent { why: "connection refused".to_owned() };
    for first in [refused, not_sent] {
        let (run, _) = lineage().await;
        assert_ne!(undeclared(&run, SideEffectClass::External, first()).await.status, CallStatus::Succeeded);
        let again = undeclared(&run, SideEffectClass::External, Outcome::Raw(samples::raw())).await;
        assert_eq!(again.status, CallStatus::Succeeded);
    }
}

#[tokio::test]
async fn a_reported_failure_is_an_answer_and_is_never_replayed() {
    let (run, _) = lineage().await;
    let failed = undeclared(&run, SideEffectClass::External, refused()).await;
    let admission = run.ledger.admit(&failed.call_id, Facts::default()).await.unwrap();
    assert!(matches!(&admission, Admission::Settled(call) if *call == failed), "{admission:?}");
}

#[tokio::test]
async fn what_was_planned_and_never_sent_blocks_nobody() {
    for is_cancelled in [false, true] {
        let (parent, child) = lineage().await;
        let id = child.plan(&FIRST).await;
        if is_cancelled {
            let call = parent.store.load(&child.lease.run_id).await.unwrap().calls.remove(0);
            child.ledger.cancel(&call, Resolution::AfterFailure, "after_failure", "Not run.").await.unwrap();
        }
        assert_eq!(parent.sent(&FIRST, Fate::Done).await.deduplicated_from, None);
        // And the one that waited is then the twin.
        let late = child.settled(&id, &FIRST).await;
        assert_eq!(late.status, if is_cancelled { CallStatus::Cancelled } else { CallStatus::Succeeded });
        assert_eq!((late.attempt, late.deduplicated_from.is_some()), (0, !is_cancelled));
    }
}

#[tokio::test]
async fn a_call_that_was_cancelled_is_never_sent() {
    let (run, _) = lineage().await;
    let id = run.plan(&FIRST).await;
    let call = run.store.load(&run.lease.run_id).await.unwrap().calls.remove(0);
    run.ledger.cancel(&call, Resolution::Refused, "denied", "Not run.").await.unwrap();
    assert_eq!(run.settled(&id, &FIRST).await.status, CallStatus::Cancelled);
}

#[tokio::test]
async fn a_providers_id_that_comes_again_is_another_call() {
    let (run, _) = lineage().await;
    let same_id = |ask: super::member::Ask| {
        move |id: &str, turn: u32| ua_core::PlannedCall { tool_use_id: "toolu_1".to_owned(), ..ask.planned(id, turn) }
    };
    for ask in [FIRST, ELSEWHERE] {
        let id = run.plan_as(same_id(ask.clone())).await;
        assert_eq!(run.run(&id, &ask, Fate::Done).await.status, CallStatus::Succeeded);
    }
}

#[tokio::test]
async fn the_same_name_on_another_server_is_another_tool() {
    let (run, _) = lineage().await;
    let mut keys = Vec::new();
    for server in ["a", "b"] {
        let ask = super::member::Ask { server, ..FIRST };
        let id = run.plan(&ask).await;
        // Without a scope, nothing but the tool and its arguments says what the effect is.
        let admission = run.ledger.admit(&id, Facts::default()).await.unwrap();
        let Admission::Ready(prepared) = admission else { panic!("not let through: {admission:?}") };
        let permit = run.ledger.start(prepared, "1").await.unwrap().unwrap();
        keys.push(run.ledger.settle(permit, Outcome::Raw(samples::raw())).await.unwrap().idempotency_key);
    }
    assert_ne!(keys[0], keys[1]);
}
