//! Large results: stored once, in the write of what refers to them, and kept as long as a run may need them.

use serde_json::json;
use ua_core::{
    BlobRef, Block, CallStatus, EvidenceLevel, InputFile, Message, Origin, RawReply, Role, RunId, RunStatus,
    Settlement, TakenFile, ToolContent, ToolText, sha256,
};

use super::samples::{self, at, call_id};
use super::{Scene, refused};
use crate::blob_store::{Blob, BlobPrune, BlobPruned};
use crate::commit::{AttemptEnd, UnknownResolution};
use crate::error::StoreError;
use crate::lifted::{NewBlob, blobs_of, whole_reply};
use crate::{Durability, LedgerStore, RunStore, Store};

/// A text over the threshold of the samples' contract, different for each `name`.
fn large(name: &str) -> String {
    format!("{name} {}", "ü".repeat(12_000))
}

fn raw(text: &str) -> RawReply {
    RawReply::ToolResult { result: json!({"content": [{"type": "text", "text": text}], "structuredContent": {"n": 1}}) }
}

fn settlement(text: &str) -> Settlement {
    let content = Some(ToolContent { text: text.into(), is_error: false });
    Settlement { content, ..samples::settlement(CallStatus::Succeeded) }
}

/// The end of an attempt that was answered with `text`.
fn answered(text: &str) -> AttemptEnd {
    AttemptEnd::Replied { raw: raw(text), settlement: Some(settlement(text)) }
}

/// A result message with this content.
fn result(content: ToolText) -> Message {
    let block = Block::ToolResult { tool_use_id: "toolu_1".to_owned(), content, is_error: false };
    Message { role: Role::User, origin: Origin::Tools, blocks: vec![block].into() }
}

/// One call, answered with `text`; its turn stays open.
async fn one_answer(scene: &Scene<'_>, store: &dyn Store, id: &str, text: &str) {
    scene.call_that_is(id, CallStatus::Running).await;
    store.settle_attempt(&scene.lease, samples::ended(id, 1, answered(text))).await.unwrap();
}

/// A run of one turn whose result is the blob of `text`, ended as `status`.
async fn run_with(store: &dyn Store, run: crate::NewRun, text: &str, status: RunStatus) -> RunId {
    let scene = Scene::begin_with(store, run).await;
    let id = format!("call_of_{}", scene.run_id());
    one_answer(&scene, store, &id, text).await;
    let mut commit = samples::commit(&scene.step, 1, &format!("ckpt_of_{}", scene.run_id()));
    commit.messages = vec![result(ToolText::by_reference(BlobRef::of(text)))];
    store.commit_turn(&scene.lease, commit).await.unwrap();
    store.end_run(&scene.lease, samples::run_end(status)).await.unwrap();
    scene.run_id().clone()
}

/// What the files of a job hold comes with the run that is made of it, in one write, and stays as long as its lineage lives.
pub async fn the_files_of_a_job_are_stored_with_its_run(store: &dyn Store) {
    let held = NewBlob::new("iVBORw0KGgo=".to_owned());
    let file = TakenFile {
        path: "chart.png".to_owned(),
        media_type: "image/png".to_owned(),
        size: 8,
        sha256: sha256("8 bytes."),
        blob: held.blob.clone(),
        is_hidden: false,
    };
    let mut new = samples::new_run("run_1");
    new.spec.files = vec![InputFile::Taken(file.clone())];
    // Without what it holds there is no run, and nothing of it.
    assert!(matches!(store.submit_run(new.clone()).await, Err(StoreError::NotFound { .. })));
    assert!(matches!(store.run(&new.run_id).await, Err(StoreError::NotFound { .. })));
    new.files = vec![held.clone()];
    let run = store.submit_run(new.clone()).await.unwrap();
    assert_eq!(run.spec.taken_files().collect::<Vec<_>>(), [&file]);
    assert_eq!(store.blob(&held.blob).await.unwrap(), Blob::Here(held.content.clone()));
    // A second run of the same file needs nothing more than to name it.
    let second = crate::NewRun { files: Vec::new(), ..samples::child_run("run_2", "run_1") };
    let second = crate::NewRun { spec: new.spec.clone(), ..second };
    store.submit_run(second).await.unwrap();
    let prune = BlobPrune { used_before: Some(at(99_999)), max_bytes: Some(0), dry_run: false, at: at(1) };
    assert_eq!(store.prune_blobs(prune).await.unwrap().freed, []);
    assert_eq!(store.blob(&held.blob).await.unwrap(), Blob::Here(held.content));
}

/// What is over the threshold is one blob, whatever refers to it; what is not stays in its place.
pub async fn a_large_answer_is_stored_once_and_comes_back_whole(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let text = large("page");
    let blob = BlobRef::of(&text);
    one_answer(&scene, store, "call_1", &text).await;
    let receipt = store.receipt(&call_id("call_1")).await.unwrap().unwrap();
    let content = &receipt.settlement.as_ref().unwrap().content.as_ref().unwrap().text;
    assert_eq!((content.blob(), content.as_str()), (Some(&blob), blob.marker().as_str()));
    assert_eq!(blobs_of(&receipt).collect::<Vec<_>>(), [&blob, &blob]);
    let RawReply::ToolResult { result } = &receipt.raw else { panic!("{receipt:?}") };
    assert_eq!(result["content"][0]["text"], json!(blob.marker()));
    assert_eq!(whole_reply(store, &receipt).await.unwrap(), raw(&text));
    assert_eq!(store.blob(&blob).await.unwrap(), Blob::Here(text));
    assert_eq!(scene.records().await.receipts, [receipt]);

    let other = Scene::begin(store, "run_2").await;
    let small = "s".repeat(20_000);
    one_answer(&other, store, "call_2", &small).await;
    let receipt = store.receipt(&call_id("call_2")).await.unwrap().unwrap();
    assert_eq!((receipt.raw.clone(), blobs_of(&receipt).count()), (raw(&small), 0));
    assert_eq!(store.blob(&BlobRef::of(&small)).await.unwrap(), Blob::Missing { pruned_at: None });
}

/// A reply that is stored first and understood later, and evidence that is found later, refer to blobs as any other does.
pub async fn whatever_stores_a_large_answer_refers_to_it(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
    scene.bring("call_1", CallStatus::Running).await;
    let text = large("late");
    let raw_alone = AttemptEnd::Replied { raw: raw(&text), settlement: None };
    store.settle_attempt(&scene.lease, samples::ended("call_1", 1, raw_alone)).await.unwrap();
    let id = call_id("call_1");
    let stored = store.receipt(&id).await.unwrap().unwrap();
    assert_eq!(whole_reply(store, &stored).await.unwrap(), raw(&text));
    store.interpret_receipt(&scene.lease, &id, settlement(&text), Durability::Relaxed, at(7)).await.unwrap();
    let understood = store.receipt(&id).await.unwrap().unwrap();
    assert_eq!((&understood.raw, &understood.lifted), (&stored.raw, &stored.lifted));
    assert_eq!(blobs_of(&understood).collect::<Vec<_>>(), [&BlobRef::of(&text), &BlobRef::of(&text)]);

    scene.bring("call_2", CallStatus::Unknown).await;
    let text = large("evidence");
    let happened = UnknownResolution::Happened {
        raw: raw(&text),
        settlement: settlement(&text),
        evidence: EvidenceLevel::Reconciled,
    };
    store.resolve_unknown(&scene.lease, &call_id("call_2"), happened, None, at(8)).await.unwrap();
    let receipt = store.receipt(&call_id("call_2")).await.unwrap().unwrap();
    assert_eq!(whole_reply(store, &receipt).await.unwrap(), raw(&text));
    assert_eq!(blobs_of(&receipt).count(), 2);
}

/// No reference is stored without what it names, and text that looks like a reference is none.
pub async fn a_message_refers_only_to_what_is_there(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let text = large("page");
    one_answer(&scene, store, "call_1", &text).await;
    let nowhere = BlobRef::of(&large("nowhere"));
    let wrong_size = BlobRef { size: 1, ..BlobRef::of(&text) };
    let before = scene.records().await;
    for blob in [&nowhere, &wrong_size] {
        let mut commit = samples::commit(&scene.step, 1, "ckpt_1");
        commit.messages = vec![result(ToolText::by_reference(blob.clone()))];
        let outcome = store.commit_turn(&scene.lease, commit).await;
        assert!(matches!(outcome, Err(StoreError::NotFound { .. })), "{outcome:?}");
    }
    assert_eq!(scene.records().await, before);

    let real = result(ToolText::by_reference(BlobRef::of(&text)).after("again: "));
    let forged = result(nowhere.marker().into());
    let mut commit = samples::commit(&scene.step, 1, "ckpt_1");
    commit.messages = vec![real.clone(), forged.clone()];
    store.commit_turn(&scene.lease, commit).await.unwrap();
    let note = vec![result(ToolText::by_reference(nowhere.clone()))];
    let outcome = store.append_messages(&scene.lease, note, at(9)).await;
    assert!(matches!(outcome, Err(StoreError::NotFound { .. })), "{outcome:?}");
    let history = store.history(scene.run_id()).await.unwrap();
    let results: Vec<&Message> = history.iter().skip(2).map(|record| &record.message).collect();
    assert_eq!(results, [&real, &forged]);
    assert_eq!((real.blobs().count(), forged.blobs().count()), (1, 0));
}

/// A write that is refused leaves no blob behind.
pub async fn a_refused_answer_leaves_no_blob(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Running).await;
    let text = large("page");
    refused(
        store.settle_attempt(&scene.lease, samples::ended("call_1", 2, answered(&text))).await,
        "attempt 2 is not running",
    );
    store.acquire_run(scene.run_id(), &samples::owner(101), at(9)).await.unwrap();
    let stale = store.settle_attempt(&scene.lease, samples::ended("call_1", 1, answered(&text))).await;
    assert!(matches!(stale, Err(StoreError::Fenced { .. })), "{stale:?}");
    assert_eq!(store.blob(&BlobRef::of(&text)).await.unwrap(), Blob::Missing { pruned_at: None });
}

/// A prune takes what only finished lineages refer to, whatever its age and the size limit say.
pub async fn a_prune_never_touches_what_an_unfinished_lineage_refers_to(store: &dyn Store) {
    let (shared, parents, own, waiting) = (large("shared"), large("parent's"), large("own"), large("waiting"));
    run_with(store, samples::new_run("run_1"), &parents, RunStatus::Succeeded).await;
    Scene::begin_with(store, samples::child_run("run_2", "run_1")).await;
    run_with(store, samples::new_run("run_3"), &shared, RunStatus::Failed).await;
    run_with(store, samples::new_run("run_4"), &shared, RunStatus::Stopped).await;
    run_with(store, samples::new_run("run_5"), &waiting, RunStatus::WaitingForHuman).await;
    run_with(store, samples::new_run("run_6"), &own, RunStatus::Succeeded).await;

    let prune = BlobPrune { used_before: Some(at(10_000)), max_bytes: Some(0), dry_run: true, at: at(200) };
    let would = store.prune_blobs(prune.clone()).await.unwrap();
    assert_eq!(store.blob(&BlobRef::of(&own)).await.unwrap(), Blob::Here(own.clone()));
    let freed = store.prune_blobs(BlobPrune { dry_run: false, ..prune.clone() }).await.unwrap();
    assert_eq!(would, freed);
    let kept_bytes = [&shared, &parents, &waiting].map(|text| text.len() as u64).iter().sum();
    let expected = BlobPruned { freed: vec![BlobRef::of(&own)], kept: 3, kept_bytes, live: 3, live_bytes: kept_bytes };
    assert_eq!(freed, expected);
    for text in [shared, parents, waiting] {
        assert_eq!(store.blob(&BlobRef::of(&text)).await.unwrap(), Blob::Here(text));
    }
    assert_eq!(store.blob(&BlobRef::of(&own)).await.unwrap(), Blob::Missing { pruned_at: Some(at(200)) });
    let again = store.prune_blobs(BlobPrune { dry_run: false, ..prune }).await.unwrap();
    assert_eq!(again, BlobPruned { freed: Vec::new(), ..freed });
}

/// What is pruned depends on when it was last used; what is stored again is there again.
pub async fn a_pruned_blob_comes_back_with_its_content(store: &dyn Store) {
    let text = large("page");
    let blob = BlobRef::of(&text);
    run_with(store, samples::new_run("run_1"), &text, RunStatus::Succeeded).await;
    let used_at = store.run(&samples::run_id("run_1")).await.unwrap().updated_at;
    let prune =
        |used_before| BlobPrune { used_before: Some(used_before), max_bytes: None, dry_run: false, at: at(300) };
    assert_eq!(store.prune_blobs(prune(used_at)).await.unwrap().freed, []);
    let later = ua_core::Timestamp::from_millis(used_at.as_millis() + 1);
    assert_eq!(store.prune_blobs(prune(later)).await.unwrap().freed, std::slice::from_ref(&blob));
    let receipt = store.receipt(&call_id("call_of_run_1")).await.unwrap().unwrap();
    let gone = whole_reply(store, &receipt).await;
    assert!(matches!(&gone, Err(StoreError::Corrupt { why, .. }) if why.contains("pruned")), "{gone:?}");

    let scene = Scene::begin(store, "run_2").await;
    one_answer(&scene, store, "call_2", &text).await;
    assert_eq!(store.blob(&blob).await.unwrap(), Blob::Here(text));
    assert_eq!(whole_reply(store, &receipt).await.unwrap(), raw(&large("page")));
}
