//! Forks: a history that is shared and never copied, a lineage whose effects everybody sees, a job that runs once more.

use ua_core::{CallStatus, Message, Origin, RunStatus};

use super::lost_answers::lossy;
use super::samples::{self, at, call_id, run_id};
use super::{Scene, refused};
use crate::error::StoreError;
use crate::record::{MessageRecord, RunRecord};
use crate::{LedgerStore, NewRun, RunStore as _, Store};

/// A parent of `turns` committed turns, an e-mail in each.
async fn parent(store: &dyn Store, turns: u32) -> Scene<'_> {
    let scene = Scene::begin(store, "run_1").await;
    for number in 1..=turns {
        emails(&scene, &format!("call_{number}")).await;
    }
    scene
}

/// One committed turn that sends one e-mail.
async fn emails(scene: &Scene<'_>, call: &str) {
    let turn = scene.records().await.run.turn_index + 1;
    scene.turn(vec![samples::planned_email(call, turn, 1)]).await;
    scene.bring(call, CallStatus::Succeeded).await;
    scene.commit(turn).await;
}

/// The fork `id`, taken, with its step open.
async fn taken<'s>(store: &'s dyn Store, id: &str, parent: &str, turn: u32) -> Scene<'s> {
    store.fork_run(samples::new_fork(id, parent, turn)).await.unwrap();
    Scene::take(store, id).await
}

fn shown(messages: &[MessageRecord]) -> Vec<(u64, u32, Origin)> {
    messages.iter().map(|record| (record.seq, record.turn, record.message.origin)).collect()
}

/// A fork has its own prompt, its parent's messages up to the turn, a note, and no turn of its own.
pub async fn a_fork_shares_the_history_up_to_its_turn(store: &dyn Store) {
    let scene = parent(store, 3).await;
    let fork = store.fork_run(samples::new_fork("run_2", "run_1", 2)).await.unwrap();
    assert_eq!((fork.status, fork.turn_index, fork.own_turns()), (RunStatus::Queued, 2, 0));
    assert_eq!((&fork.root_run_id, &fork.parent_run_id), (scene.run_id(), &Some(scene.run_id().clone())));
    assert_eq!(fork.provider_session_forked_from.as_deref(), Some("resp_2"));
    // One lineage, whoever is left of it.
    let mark = store.run(scene.run_id()).await.unwrap().lineage_mark;
    assert!(mark.is_some() && fork.lineage_mark == mark, "{mark:?} {:?}", fork.lineage_mark);

    let theirs = store.history(scene.run_id()).await.unwrap();
    let records = store.load(&fork.run_id).await.unwrap();
    assert_eq!((&records.run, &store.run(&fork.run_id).await.unwrap()), (&fork, &fork));
    let whole = [(1, 0, Origin::Prompt), (2, 1, Origin::Model), (3, 1, Origin::Tools), (4, 2, Origin::Model)];
    let end = [(5, 2, Origin::Tools), (6, 2, Origin::Resume)];
    assert_eq!(shown(&records.messages), [&whole[..], &end[..]].concat());
    assert_eq!(records.messages[1..5], theirs[1..5]);
    assert_eq!(records.messages[0].message, samples::new_fork("run_2", "run_1", 2).run.opening);
    assert_eq!(store.history(&fork.run_id).await.unwrap(), records.messages);

    assert!(records.turns.is_empty() && records.calls.is_empty() && records.requests.is_empty());
    let turns: Vec<u32> = records.lineage.turns.iter().map(|turn| turn.turn).collect();
    let calls: Vec<&str> = records.lineage.calls.iter().map(|call| call.call_id.as_str()).collect();
    let elsewhere: Vec<&str> = records.lineage.elsewhere.iter().map(|call| call.call_id.as_str()).collect();
    assert_eq!((turns, calls, elsewhere), (vec![1, 2], vec!["call_1", "call_2"], vec!["call_3"]));
    assert_eq!(records.lineage.receipts.len(), 3);
    assert_eq!(store.load(scene.run_id()).await.unwrap().lineage, crate::LineageRecords::default());
}

/// A fork and its parent go on without each other: neither sees the other's later turns or notes.
pub async fn a_fork_and_its_parent_go_on_by_themselves(store: &dyn Store) {
    let scene = parent(store, 2).await;
    let fork = taken(store, "run_2", "run_1", 2).await;
    let before = store.history(fork.run_id()).await.unwrap();
    let note = Message::user(Origin::Guidance, "for the parent alone");
    store.append_messages(&scene.lease, vec![note], at(9)).await.unwrap();
    emails(&scene, "call_3").await;
    assert_eq!(store.history(fork.run_id()).await.unwrap(), before);

    let theirs = store.history(scene.run_id()).await.unwrap();
    emails(&fork, "call_of_the_fork").await;
    let records = fork.records().await;
    assert_eq!(store.history(scene.run_id()).await.unwrap(), theirs);
    assert_eq!((records.run.turn_index, records.run.own_turns(), records.turns[0].turn), (3, 1, 3));
    assert_eq!(shown(&records.messages[6..]), [(7, 3, Origin::Model), (8, 3, Origin::Tools)]);
    assert_eq!(records.steps[0].first_turn, 3);
    // A note behind the shared turns is appended once, like any other.
    let words = vec![Message::user(Origin::Guidance, "go on")];
    for _ in 0..2 {
        store.append_messages(&fork.lease, words.clone(), at(9)).await.unwrap();
    }
    assert_eq!(fork.records().await.messages.len(), 9);
}

/// A fork of a fork shares what both share, whichever side of the first fork it begins on.
pub async fn a_fork_of_a_fork_shares_what_both_share(store: &dyn Store) {
    parent(store, 3).await;
    let child = taken(store, "run_2", "run_1", 2).await;
    emails(&child, "call_of_the_fork").await;
    let own = store.history(child.run_id()).await.unwrap();

    let late = store.fork_run(samples::new_fork("run_3", "run_2", 3)).await.unwrap();
    let messages = store.history(&late.run_id).await.unwrap();
    assert_eq!(messages[1..8], own[1..8]);
    assert_eq!((messages.len(), late.turn_index), (9, 3));
    assert_eq!(late.provider_session_forked_from.as_deref(), Some("resp_3"));

    // From before the first fork, and from its very point: the note of the first fork is not shared.
    for (id, turn) in [("run_4", 1), ("run_5", 2)] {
        let early = store.fork_run(samples::new_fork(id, "run_2", turn)).await.unwrap();
        let direct = store.fork_run(samples::new_fork(&format!("{id}_direct"), "run_1", turn)).await.unwrap();
        let (one, two) = (store.load(&early.run_id).await.unwrap(), store.load(&direct.run_id).await.unwrap());
        let shared = one.messages.len() - 1;
        assert_eq!(one.messages[..shared], two.messages[..shared], "{id}");
        assert_eq!(two.messages.len(), shared + 1, "{id}");
        assert_eq!((one.lineage.turns, one.lineage.calls), (two.lineage.turns, two.lineage.calls), "{id}");
        assert_eq!(early.provider_session_forked_from, direct.provider_session_forked_from, "{id}");
    }
    let roots: Vec<RunRecord> = store.runs(20).await.unwrap();
    assert!(roots.iter().all(|run| run.root_run_id == run_id("run_1")));
}

/// Only committed turns are shared; a fork at turn 0 has a prompt and a note; a name is taken once.
pub async fn a_fork_shares_only_committed_turns(store: &dyn Store) {
    let scene = parent(store, 1).await;
    scene.turn(vec![samples::planned_email("call_2", 2, 1)]).await;
    refused(store.fork_run(samples::new_fork("run_2", "run_1", 2)).await, "1 committed turn");
    assert!(matches!(store.run(&run_id("run_2")).await, Err(StoreError::NotFound { .. })));

    let fresh = store.fork_run(samples::new_fork("run_2", "run_1", 0)).await.unwrap();
    let messages = store.history(&fresh.run_id).await.unwrap();
    assert_eq!(shown(&messages), [(1, 0, Origin::Prompt), (2, 0, Origin::Resume)]);
    assert_eq!(fresh.provider_session_forked_from, None);

    let again = store.fork_run(samples::new_fork("run_2", "run_1", 1)).await;
    assert!(matches!(again, Err(StoreError::Exists { .. })), "{again:?}");
    let orphan = store.fork_run(samples::new_fork("run_3", "run_0", 0)).await;
    assert!(matches!(orphan, Err(StoreError::NotFound { .. })), "{orphan:?}");
    assert_eq!(store.history(&fresh.run_id).await.unwrap(), messages);
}

/// Whatever a run of the lineage may have done elsewhere is seen from every other one, as long as it may have happened.
pub async fn the_lineage_sees_every_effect(store: &dyn Store) {
    let scene = parent(store, 1).await;
    let fork = taken(store, "run_2", "run_1", 1).await;
    let planned = [("call_done", CallStatus::Succeeded), ("call_lost", CallStatus::Unknown)];
    let never = [("call_unsent", CallStatus::FailedDefinite), ("call_waits", CallStatus::Prepared)];
    let all: Vec<_> = planned.iter().chain(&never).copied().collect();
    let calls = all.iter().zip(1..).map(|((id, _), ordinal)| samples::planned_email(id, 2, ordinal));
    scene.turn(calls.collect()).await;
    for (id, status) in &all {
        scene.bring(id, *status).await;
    }
    emails(&fork, "call_of_the_fork").await;
    let seen = async |id: &str| {
        let lineage = store.load(&run_id(id)).await.unwrap().lineage;
        lineage.elsewhere.into_iter().map(|call| call.call_id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(seen("run_2").await, ["call_done", "call_lost"]);
    assert_eq!(seen("run_1").await, ["call_of_the_fork"]);
    store.fork_run(samples::new_fork("run_3", "run_2", 2)).await.unwrap();
    assert_eq!(seen("run_3").await, ["call_done", "call_lost"], "what it shares stands in its history");
    let agent = NewRun { run_mode: "task".to_owned(), ..samples::child_run("run_4", "run_1") };
    store.submit_run(agent).await.unwrap();
    assert_eq!(seen("run_4").await, ["call_of_the_fork"], "a sub-agent sees what other trees did");
    let found = store.key_holder(&run_id("run_1"), &samples::key("call_lost")).await.unwrap();
    assert_eq!(found.map(|call| call.call_id), Some(call_id("call_lost")));
}

/// A run's forks and sub-agents are found, oldest first; a grandchild is not its child.
pub async fn the_children_of_a_run_are_found(store: &dyn Store) {
    parent(store, 1).await;
    store.fork_run(samples::new_fork("run_b", "run_1", 1)).await.unwrap();
    store.submit_run(samples::child_run("run_a", "run_1")).await.unwrap();
    store.fork_run(samples::new_fork("run_c", "run_b", 0)).await.unwrap();
    let children = async |id: &str| {
        let runs = store.children(&run_id(id)).await.unwrap();
        runs.into_iter().map(|run| run.run_id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(children("run_1").await, ["run_b", "run_a"]);
    assert_eq!(children("run_b").await, ["run_c"]);
    assert!(children("run_c").await.is_empty());
}

fn keyed(id: &str, seconds: i64) -> NewRun {
    let mut run = NewRun { created_at: at(seconds), ..samples::new_run(id) };
    run.spec.job_key = Some("report-2026-01".to_owned());
    run
}

async fn end(store: &dyn Store, id: &str, status: RunStatus) {
    let (lease, _) = store.acquire_run(&run_id(id), &samples::owner(100), at(1)).await.unwrap();
    store.end_run(&lease, samples::run_end(status)).await.unwrap();
}

/// A key that is taken by a run that succeeded is used again by whoever saw that run, once; no other end frees it.
pub async fn a_job_runs_again_only_after_it_succeeded(store: &dyn Store) {
    store.submit_run(keyed("run_1", 0)).await.unwrap();
    refused(store.submit_again(keyed("run_2", 1), &run_id("run_1")).await, "run_1 is queued");
    end(store, "run_1", RunStatus::Succeeded).await;
    assert!(matches!(store.submit_run(keyed("run_2", 1)).await, Err(StoreError::Exists { .. })));
    refused(store.submit_again(keyed("run_2", 1), &run_id("run_0")).await, "run_1 has it now");

    let second = store.submit_again(keyed("run_2", 1), &run_id("run_1")).await.unwrap();
    assert_eq!((&second.root_run_id, &second.parent_run_id), (&second.run_id, &None));
    // Two who saw the same run: one of them comes too late.
    refused(store.submit_again(keyed("run_3", 2), &run_id("run_1")).await, "run_2 has it now");
    assert!(matches!(store.run(&run_id("run_3")).await, Err(StoreError::NotFound { .. })));
    let taken = store.submit_again(keyed("run_1", 3), &run_id("run_2")).await;
    assert!(matches!(taken, Err(StoreError::Exists { .. })), "{taken:?}");
    end(store, "run_2", RunStatus::Failed).await;
    refused(store.submit_again(keyed("run_3", 2), &run_id("run_2")).await, "run_2 is failed");
}

/// A fork keeps its parent's key, and takes no other; of the runs of a key an unfinished one answers for it.
pub async fn a_fork_keeps_its_parents_job_key(store: &dyn Store) {
    store.submit_run(keyed("run_1", 0)).await.unwrap();
    let fork = |id: &str, seconds| {
        let mut fork = samples::new_fork(id, "run_1", 0);
        fork.run = NewRun { parent_run_id: Some(run_id("run_1")), ..keyed(id, seconds) };
        fork
    };
    store.fork_run(fork("run_2", 5)).await.unwrap();
    let answers = async || store.run_by_job_key("report-2026-01").await.unwrap().unwrap().run_id.to_string();
    assert_eq!(answers().await, "run_2");
    end(store, "run_2", RunStatus::Succeeded).await;
    assert_eq!(answers().await, "run_1", "it is not finished");
    refused(store.submit_again(keyed("run_3", 6), &run_id("run_2")).await, "run_1 has it now");
    end(store, "run_1", RunStatus::Failed).await;
    assert_eq!(answers().await, "run_2");
    store.submit_again(keyed("run_3", 6), &run_id("run_2")).await.unwrap();
    // The old lineage goes on under the key it has; a run without it may not take it.
    store.fork_run(fork("run_4", 7)).await.unwrap();
    let mut thief = samples::new_fork("run_6", "run_5", 0);
    thief.run.spec.job_key = Some("report-2026-01".to_owned());
    store.submit_run(samples::new_run("run_5")).await.unwrap();
    assert!(matches!(store.fork_run(thief).await, Err(StoreError::Exists { .. })));
}

/// A fork, or a job that is run again, whose answer was lost is refused the second time and is there once.
pub async fn a_repeated_fork_changes_nothing(store: &dyn Store) {
    parent(store, 2).await;
    let (lossy, answers) = lossy(store);
    answers.lose_next();
    let lost = lossy.fork_run(samples::new_fork("run_2", "run_1", 1)).await;
    assert!(matches!(lost, Err(StoreError::Unavailable { .. })), "{lost:?}");
    let committed = store.load(&run_id("run_2")).await.unwrap();
    let repeated = lossy.fork_run(samples::new_fork("run_2", "run_1", 1)).await;
    assert!(matches!(repeated, Err(StoreError::Exists { .. })), "{repeated:?}");
    assert_eq!(store.load(&run_id("run_2")).await.unwrap(), committed);

    store.submit_run(keyed("run_k", 0)).await.unwrap();
    end(store, "run_k", RunStatus::Succeeded).await;
    answers.lose_next();
    assert!(lossy.submit_again(keyed("run_l", 1), &run_id("run_k")).await.is_err());
    let repeated = lossy.submit_again(keyed("run_l", 1), &run_id("run_k")).await;
    assert!(matches!(repeated, Err(StoreError::Exists { .. })), "{repeated:?}");
    assert_eq!(store.history(&run_id("run_l")).await.unwrap().len(), 1);
}
