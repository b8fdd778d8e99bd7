//! Refined corpora that a turn made: cached with the checkpoint of the turn's commit.
//!
//! Context Storage & Durability Summary §3. No tool is known by name: any call that works in the workspace and answers with `corpus`, a path, and
//! `corpus_sha256` in its structured content has made one. It is cached only if the file is that very one; what a tool says about a
//! file that is not there is no fact.

use serde_json::Value;
use ua_core::{CallStatus, RawReply, Sha256, SideEffectClass};
use ua_store::{CallRecord, CorpusRef, LedgerStore as _, whole_reply};

use super::Driver;
use crate::error::RunError;
use crate::workspace::digest_file;

impl Driver<'_> {
    /// The corpora that these calls of a turn made.
    pub(super) async fn corpora_of(&self, calls: &[CallRecord]) -> Result<Vec<CorpusRef>, RunError> {
        let mut corpora = Vec::new();
        let is_maker = |call: &&CallRecord| {
            call.status == CallStatus::Succeeded && call.policy.class == SideEffectClass::Local && call.attempt > 0
        };
        for call in calls.iter().filter(is_maker) {
            let store = self.ports.store.as_ref();
            let receipt = store.receipt(&call.call_id).await.map_err(RunError::at("read a receipt"))?;
            let Some(receipt) = receipt.filter(|receipt| is_structured(&receipt.raw)) else { continue };
            let raw = whole_reply(store, &receipt).await.map_err(RunError::at("read a large result"))?;
            let Some(claimed) = claimed(&raw) else { continue };
            let found = || digest_file(&self.ports.workspace.path(&claimed.path));
            if is_inside(&claimed.path) && found().is_ok_and(|(_, sha256)| sha256 == claimed.sha256) {
                corpora.push(claimed);
            } else {
                tracing::warn!(
                    path = claimed.path,
                    tool = call.name.tool,
                    "a corpus is not the file that its maker told of"
                );
            }
        }
        Ok(corpora)
    }
}

fn is_structured(raw: &RawReply) -> bool {
    matches!(raw, RawReply::ToolResult { result } if result.get("structuredContent").is_some())
}

/// The corpus that an answer tells of.
fn claimed(raw: &RawReply) -> Option<CorpusRef> {
    let RawReply::ToolResult { result } = raw else { return None };
    let answer = result.get("structuredContent")?;
    Some(CorpusRef {
        path: answer.get("corpus")?.as_str()?.to_owned(),
        sha256: Sha256::from_hex(answer.get("corpus_sha256")?.as_str()?)?,
        words: answer.get("words").and_then(Value::as_u64).unwrap_or(0),
    })
}

/// Whether a path is a plain one below the workspace.
fn is_inside(path: &str) -> bool {
    use std::path::{Component, Path};
    Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}
