//! What is asked for again and is meant: it runs, and nothing that was never sent or has ended without effect stands in its way.

use std::sync::Arc;

use ua_core::{CallId, CallStatus, CorrectedTo, Env, Outcome, Resolution, SideEffectClass, Trace};
use ua_ledger::{Admission, Facts, Ledger, LedgerConfig, Lineage, Outbox, Recovery};
use ua_store::conformance::samples;
use ua_store::{CallRecord, Choice, LedgerStore as _, MemStore, NewRun, QuestionKind, RunStore as _, Store as _};

use super::member::{ELSEWHERE, FIRST, Fate, Member, in_database, lineage};

/// Plans a call that no policy declares; all are in the same words.
async fn planned_undeclared(member: &Member, class: SideEffectClass) -> CallId {
    let planned = |id: &str, turn| {
        let mut call = samples::planned_call(id, turn, 1);
        call.policy.class = class;
        call
    };
    member.plan_as(planned).await
}

/// Takes a call that no policy declares to its end; it must be let through.
async fn undeclared(member: &Member, class: SideEffectClass, outcome: Outcome) -> CallRecord {
    let id = planned_undeclared(member, class).await;
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

/// Behind a context that its model does not have any more, asking again is no decision to do it twice.
#[tokio::test]
async fn what_a_model_has_forgotten_that_it_did_is_asked_about() {
    for class in SideEffectClass::ALL {
        let (run, _) = lineage().await;
        undeclared(&run, *class, Outcome::Raw(samples::raw())).await;
        undeclared(&run, *class, Outcome::Raw(samples::raw())).await;
        undeclared(&run, *class, Outcome::NotSent { why: "connection refused".to_owned() }).await;
        run.ledger.context_begins(4);
        let id = planned_undeclared(&run, *class).await;
        // Nor is it sent without a look, as what was planned a moment ago is.
        let planned = run.store.call(&id).await.unwrap();
        let at_once = run.ledger.admit_planned(&planned, &Facts::default());
        assert!(at_once.is_none() || !class.has_effect(), "{class}: {at_once:?}");
        let admission = run.ledger.admit(&id, Facts::default()).await.unwrap();
        let reaches_others = matches!(class, SideEffectClass::External | SideEffectClass::Memory);
        if !reaches_others {
            assert!(matches!(admission, Admission::Ready(_)), "{class}: {admission:?}");
            continue;
        }
        let Admission::Held(question) = admission else { panic!("{class}: {admission:?}") };
        assert_eq!(question.kind, QuestionKind::NearDuplicate, "{class}");
        assert_eq!(question.detail["others"][0]["count"], 2, "{class}: {}", question.detail);
        run.answer(&question, Choice::Execute).await;
        let again = run.ledger.admit(&id, Facts::default()).await.unwrap();
        assert!(matches!(again, Admission::Ready(_)), "{class}: {again:?}");
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

/// A person says that a mail that counted as sent did not happen: whoever sent it knows its key and would send nothing, so what is to be done
/// instead has another one. It is one effect again, also when it fails once, for a fork, and when the person says so once more.
#[tokio::test]
async fn what_did_not_happen_after_all_is_made_under_another_key() {
    let (parent, child) = lineage().await;
    let mut keys = Vec::new();
    for round in 0..3 {
        let failed = parent.sent(&FIRST, Fate::NotSent).await;
        let done = parent.run(&failed.call_id, &FIRST, Fate::Done).await;
        assert_eq!((failed.idempotency_key, done.status), (done.idempotency_key.clone(), CallStatus::Succeeded));
        keys.push(done.idempotency_key.clone().unwrap());
        for member in [&parent, &child] {
            let again = member.plan(&FIRST).await;
            let again = member.settled(&again, &FIRST).await;
            assert_eq!(again.deduplicated_from, Some(done.call_id.clone()), "{round}");
        }
        let correction = samples::correct(&done, CorrectedTo::NotHappened, 70 + round);
        parent.store.correct_call(correction).await.unwrap();
    }
    let in_a_fork = child.sent(&FIRST, Fate::Done).await;
    keys.push(in_a_fork.idempotency_key.unwrap());
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 4);
}

/// Where nobody knows whether it happened the key stays: if the person errs it is what keeps it to one.
#[tokio::test]
async fn a_call_in_doubt_that_did_not_happen_keeps_its_key_for_the_next_one() {
    let (run, _) = lineage().await;
    let lost = run.sent(&FIRST, Fate::Lost).await;
    let question = run.in_doubt(&lost, &FIRST).await;
    run.answer(&question, Choice::Execute).await;
    let Admission::Unknown(unknown) = run.admit(&lost.call_id, &FIRST).await else { panic!("not unknown") };
    let Recovery::Decided(decided) = run.ledger.recover(&unknown, &FIRST.facts()).await.unwrap() else {
        panic!("not decided")
    };
    let Admission::Ready(prepared) = *decided else { panic!("not ready: {decided:?}") };
    assert_eq!(run.send(prepared, Fate::Done).await.idempotency_key, lost.idempotency_key);
}

/// Two databases may each have a run of one name, a nightly one for example, and both send to one service.
#[tokio::test]
async fn runs_of_one_name_in_two_databases_have_two_keys() {
    let mut keys = Vec::new();
    for database in ["d", "e"] {
        let store = Arc::new(MemStore::default());
        let mut member = Member::of(&store, samples::new_run("nightly"), true).await;
        let (env, port) = (Env::simulated(3), Arc::new(Outbox::new(store.clone(), member.lease.clone())));
        let (lineage, trace) = (in_database(database, member.lease.run_id.clone()), Trace::new(&env));
        let config = LedgerConfig { no_duplicate_external_actions: true, ..LedgerConfig::default() };
        member.ledger = Ledger::new(port, member.lease.clone(), lineage, config, env, trace);
        let by_content = member.sent(&FIRST, Fate::Done).await;
        let by_position = undeclared(&member, SideEffectClass::External, Outcome::Raw(samples::raw())).await;
        keys.extend([by_content.idempotency_key.unwrap(), by_position.idempotency_key.unwrap()]);
    }
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 4);
}

/// Two copies of one database may each begin a run of one name: its effects are two. What began before the copy was made is one run in both, and
/// what an earlier version began keeps its keys.
#[tokio::test]
async fn runs_of_one_name_in_two_copies_of_a_database_have_two_keys() {
    let keys = async |run: NewRun, mark: fn(Option<String>) -> Option<String>| {
        let store = Arc::new(MemStore::default());
        let mut member = Member::of(&store, run, true).await;
        let run = store.run(&member.lease.run_id).await.unwrap();
        let (env, port) = (Env::simulated(3), Arc::new(Outbox::new(store.clone(), member.lease.clone())));
        let lineage = Lineage { mark: mark(run.lineage_mark), ..in_database("d", run.root_run_id) };
        let config = LedgerConfig { no_duplicate_external_actions: true, ..LedgerConfig::default() };
        let trace = Trace::new(&env);
        member.ledger = Ledger::new(port, member.lease.clone(), lineage, config, env, trace);
        let by_content = member.sent(&FIRST, Fate::Done).await;
        let by_position = undeclared(&member, SideEffectClass::External, Outcome::Raw(samples::raw())).await;
        [by_content.idempotency_key.unwrap(), by_position.idempotency_key.unwrap()]
    };
    let nightly = || samples::new_run("nightly");
    let (as_it_is, unmarked): (fn(_) -> _, fn(_) -> _) = (|mark| mark, |_| None);
    let first = keys(nightly(), as_it_is).await;
    assert_eq!(first, keys(nightly(), as_it_is).await, "the same run");
    let later = NewRun { created_at: samples::at(1), ..nightly() };
    let elsewhere = NewRun { workspace_dir: "/copy/nightly".to_owned(), ..nightly() };
    for other in [keys(later, as_it_is).await, keys(elsewhere, as_it_is).await, keys(nightly(), unmarked).await] {
        assert!(first.iter().all(|key| !other.contains(key)));
    }
    let copied = NewRun { workspace_dir: "/copy/nightly".to_owned(), ..nightly() };
    assert_eq!(keys(copied, unmarked).await, keys(nightly(), unmarked).await);
}
