//! What a call might repeat: the newest of those that stand alike, and how many they are.

use ua_core::{CallStatus, EffectKind, PlannedCall, Scope, SideEffectClass, ToolName, ToolNamespace, sha256};

use super::Scene;
use super::samples::{self, at, call_id};
use crate::commit::{SettleAttempt, StartAttempt};
use crate::error::StoreError;
use crate::relations::Related;
use crate::{LedgerStore, RunStore, Store};

fn scope() -> Scope {
    Scope::new("email.send", "boss@example.com")
}

/// The related calls by their names, with how many each stands for.
fn named(related: &[Related]) -> Vec<(String, u64)> {
    related.iter().map(|related| (related.newest.call_id.to_string(), related.count)).collect()
}

fn expected(named: &[(&str, u64)]) -> Vec<(String, u64)> {
    named.iter().map(|(id, count)| ((*id).to_owned(), *count)).collect()
}

async fn start(scene: &Scene<'_>, store: &dyn Store, id: &str, attempt: u32, seconds: i64) {
    let start = StartAttempt { scope: Some(scope()), at: at(seconds), ..samples::start(id, attempt, id) };
    store.start_attempt(&scene.lease, start).await.unwrap();
}

/// Ten calls of one turn with one scope, the first of which waits: three succeeded, two are in doubt, two reported a failure, two are under
/// way.
async fn ten(store: &dyn Store) -> Scene<'_> {
    let scene = Scene::begin(store, "run_1").await;
    let waiting = PlannedCall { args_hash: sha256("other words"), ..samples::planned_email("call_0", 1, 1) };
    let others = (1..10).map(|number| samples::planned_email(&format!("call_{number}"), 1, number + 1));
    scene.turn(std::iter::once(waiting).chain(others).collect()).await;
    for (number, seconds) in (1..10).zip(11..) {
        let id = format!("call_{number}");
        start(&scene, store, &id, 1, seconds).await;
        let end = match number {
            1..=3 => samples::settle(&id, 1, CallStatus::Succeeded),
            4 | 5 => samples::lost(&id, 1),
            6 | 7 => samples::settle(&id, 1, CallStatus::FailedReported),
            _ => continue,
        };
        store.settle_attempt(&scene.lease, SettleAttempt { at: at(seconds + 20), ..end }).await.unwrap();
    }
    scene
}

/// Of each way to stand one call is named, the one that came to stand so last, and how many stand so.
pub async fn of_those_that_stand_alike_the_newest_is_named_and_the_number(store: &dyn Store) {
    let _scene = ten(store).await;
    let relations = store.relations(&call_id("call_0"), Some(&scope())).await.unwrap();
    let rivals = [("call_9", 2), ("call_3", 3), ("call_5", 2), ("call_7", 2)];
    assert_eq!(named(&relations.rivals), expected(&rivals), "oldest first");
    assert_eq!(named(&relations.doubts), expected(&[]), "other words");
    let in_the_same_words = store.relations(&call_id("call_1"), None).await.unwrap();
    assert_eq!(named(&in_the_same_words.doubts), expected(&[]), "their scope says what they did");
    assert_eq!(named(&in_the_same_words.rivals), expected(&[]));
}

/// Whoever starts has seen the calls that are named, and how many there are: one more is news, and so is one that moved.
pub async fn a_start_is_refused_by_one_more_of_those_it_knows_of(store: &dyn Store) {
    let scene = ten(store).await;
    let waiting =
        |seen| StartAttempt { scope: Some(scope()), seen: Some(seen), ..samples::start("call_0", 1, "call_0") };
    let look = async || store.relations(&call_id("call_0"), Some(&scope())).await.unwrap().seen();
    let touched = async |seen| match store.start_attempt(&scene.lease, waiting(seen)).await {
        Err(StoreError::ScopeTouched { by, .. }) => by.to_string(),
        other => panic!("{other:?}"),
    };
    // It begins at the moment at which another one began that is seen, and stands before it: it is not named, and counted.
    let seen = look().await;
    store.settle_attempt(&scene.lease, samples::not_sent("call_8", 1)).await.unwrap();
    let fewer = look().await;
    start(&scene, store, "call_8", 2, 19).await;
    assert_eq!(touched(fewer).await, "call_9", "one more is under way");
    // What was in doubt is sent again.
    start(&scene, store, "call_4", 2, 70).await;
    assert_eq!(touched(seen).await, "call_4");
    let seen = look().await;
    store.start_attempt(&scene.lease, waiting(seen)).await.unwrap();
}

/// What another tree did is told the same way.
pub async fn what_other_trees_did_is_as_bounded(store: &dyn Store) {
    let _scene = ten(store).await;
    store.fork_run(samples::new_fork("run_2", "run_1", 0)).await.unwrap();
    let fork = Scene::take(store, "run_2").await;
    let of_class = |id: &str, ordinal, class| {
        let mut declared = samples::planned_email(id, 1, ordinal);
        (declared.policy.class, declared.policy.effect_kind) = (class, None);
        declared
    };
    let mut renamed = samples::planned_email("call_b", 1, 2);
    renamed.policy.effect_kind = EffectKind::parse("letter.post");
    let declared_otherwise = [
        renamed,
        of_class("call_c", 3, SideEffectClass::Local),
        of_class("call_d", 4, SideEffectClass::ReadOnly),
        of_class("call_e", 5, SideEffectClass::Memory),
    ];
    let planned = std::iter::once(samples::planned_email("call_a", 1, 1)).chain(declared_otherwise.clone());
    fork.turn(planned.collect()).await;
    let relations = store.relations(&call_id("call_a"), None).await.unwrap();
    let same = [("call_9", 2), ("call_3", 3), ("call_5", 2), ("call_7", 2)];
    assert_eq!(named(&relations.kin.same), expected(&same));
    assert_eq!(named(&relations.kin.open), expected(&[("call_9", 2), ("call_5", 2)]));
    let of_another = Scope::new("email.send", "someone@example.com");
    let relations = store.relations(&call_id("call_a"), Some(&of_another)).await.unwrap();
    assert_eq!(named(&relations.kin.open), expected(&[]), "both are known to be about different things");
    assert_eq!(named(&relations.kin.same), expected(&same));
    assert_eq!(named(&relations.kin.declared_otherwise), expected(&[]));
    for call in declared_otherwise.map(|planned| planned.call_id) {
        let around = store.around(&call, Some(&of_another), None, 0).await.unwrap();
        let kin = around.relations.kin;
        assert_eq!(named(&kin.declared_otherwise), expected(&same), "{call}: it is the same call of the same tool");
        assert_eq!(named(&kin.same), expected(&[]), "{call}");
    }
}

/// A call of a tool of the same own name under another server's name is told where it has the same words: what another tree did, and what is in
/// doubt in the family.
pub async fn the_same_call_under_another_server_is_told(store: &dyn Store) {
    let order = |id: &str, ordinal: u32, server: &str, words: &str| {
        let mut call = samples::planned_call(id, 1, ordinal);
        let namespace = if server == "ua" { ToolNamespace::Local } else { ToolNamespace::Mcp };
        call.name = ToolName::qualified(namespace, server, "order");
        call.args_hash = sha256(words);
        (call.policy.class, call.policy.effect_kind) = (SideEffectClass::External, None);
        call
    };
    let scene = Scene::begin(store, "run_1").await;
    let mut planned = vec![
        order("call_1", 1, "shop", "a book"),
        order("call_2", 2, "shop", "a book"),
        order("call_3", 3, "shop", "a pen"),
        order("call_4", 4, "market", "a book"),
        order("call_5", 5, "shop", "a book"),
        order("call_6", 6, "store", "a book"),
        order("call_7", 7, "ua", "a book"),
    ];
    let mut other_tool = order("call_8", 8, "shop", "a book");
    other_tool.name = ToolName::qualified(ToolNamespace::Mcp, "shop", "buy");
    planned.push(other_tool);
    scene.turn(planned).await;
    for (number, seconds) in (1..=8).zip(11..) {
        if number == 6 {
            continue;
        }
        let id = format!("call_{number}");
        let start = StartAttempt { at: at(seconds), ..samples::start(&id, 1, &id) };
        store.start_attempt(&scene.lease, start).await.unwrap();
        let end = if number == 5 { samples::lost(&id, 1) } else { samples::settle(&id, 1, CallStatus::Succeeded) };
        store.settle_attempt(&scene.lease, SettleAttempt { at: at(seconds + 20), ..end }).await.unwrap();
    }
    let own = store.relations(&call_id("call_6"), None).await.unwrap();
    assert_eq!(named(&own.renamed), expected(&[("call_5", 1)]), "its model knows what was done");
    assert_eq!(named(&own.doubts), expected(&[]));

    store.fork_run(samples::new_fork("run_2", "run_1", 0)).await.unwrap();
    let fork = Scene::take(store, "run_2").await;
    let read = |id: &str, ordinal, words: &str| {
        let mut call = order(id, ordinal, "store", words);
        call.policy.class = SideEffectClass::ReadOnly;
        call
    };
    let planned = vec![
        order("call_a", 1, "store", "a book"),
        order("call_b", 2, "shop", "a book"),
        read("call_c", 3, "a book"),
        order("call_d", 4, "store", "ink"),
    ];
    fork.turn(planned).await;
    let renamed = async |id: &str| named(&store.around(&call_id(id), None, None, 0).await.unwrap().relations.renamed);
    // An entry for each server and way to stand.
    let all = expected(&[("call_2", 2), ("call_4", 1), ("call_5", 1)]);
    assert_eq!(renamed("call_a").await, all);
    assert_eq!(renamed("call_c").await, all, "a fork may have another opinion of what the tool does");
    assert_eq!(renamed("call_b").await, expected(&[("call_4", 1)]));
    assert_eq!(renamed("call_d").await, expected(&[]));
    // Whoever starts has to know of it.
    let start = StartAttempt { seen: Some(Vec::new()), ..samples::start("call_a", 1, "call_a") };
    let refused = store.start_attempt(&fork.lease, start).await;
    assert!(matches!(refused, Err(StoreError::ScopeTouched { .. })), "{refused:?}");
}

/// A call in doubt is overtaken by what was decided behind it, in its own run or another one, not by what was there before.
pub async fn what_was_decided_later_is_told_apart(store: &dyn Store) {
    let _scene = ten(store).await;
    let since = async |id: &str| named(&store.relations(&call_id(id), Some(&scope())).await.unwrap().since);
    // All of one turn were decided at once: what counts is where they stand in it.
    assert_eq!(since("call_5").await, expected(&[("call_9", 2), ("call_7", 2)]));
    assert_eq!(since("call_2").await, expected(&[("call_9", 2), ("call_3", 1), ("call_5", 2), ("call_7", 2)]));
    assert_eq!(since("call_9").await, expected(&[]));
}
