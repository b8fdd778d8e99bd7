//! `must_cite_sources`: what the pure rule is given, the report's text and what reading calls brought back.
//!
//! Durable Jobs v1 spec §6. The rule itself is [`ua_evidence::judge_citations`].

use std::collections::BTreeMap;
use std::io::Read as _;

use ua_core::{CallId, CallStatus, RawReply, SideEffectClass};
use ua_evidence::{Artifact, ConditionResult};
use ua_store::{RunRecords, Store, StoreError, whole_reply};

use crate::error::RunError;
use crate::recover::newest_answer;
use crate::workspace::{Workspace, WorkspaceError};

/// As much of a report as is looked through.
const MAX_BYTES: u64 = 8 * 1024 * 1024;

/// The answers of reading calls that are kept in parts, put together; none when the job does not ask for citations. An answer
/// whose parts are gone is left out: then the addresses that its call asked for count.
pub(crate) async fn whole_replies(
    store: &dyn Store,
    records: &RunRecords,
) -> Result<BTreeMap<CallId, RawReply>, RunError> {
    let mut replies = BTreeMap::new();
    if !records.run.spec.constraints.must_cite_sources {
        return Ok(replies);
    }
    let is_read = |call: &&ua_store::CallRecord| {
        call.status == CallStatus::Succeeded && call.policy.class == SideEffectClass::ReadOnly
    };
    for call in records.calls.iter().filter(is_read) {
        let Some(receipt) = records.receipt(&call.call_id).filter(|receipt| !receipt.lifted.is_empty()) else {
            continue;
        };
        match whole_reply(store, receipt).await {
            Ok(raw) => {
                replies.insert(call.call_id.clone(), raw);
            }
            Err(StoreError::Corrupt { .. }) => {}
            Err(error) => return Err(RunError::at("read what was fetched")(error)),
        }
    }
    Ok(replies)
}

/// Judges the citations of a run's report; `None` when the job does not ask for them.
pub(crate) fn judge(
    workspace: &Workspace,
    records: &RunRecords,
    replies: &BTreeMap<CallId, RawReply>,
) -> Result<Option<ConditionResult>, WorkspaceError> {
    if !records.run.spec.constraints.must_cite_sources {
        return Ok(None);
    }
    let artifacts = workspace.artifacts_of(&records.run.spec)?;
    let files = ua_evidence::report_files(&records.run.spec, &artifacts);
    let texts: Vec<(&Artifact, String)> = files.into_iter().map(|file| (file, read(workspace, &file.path))).collect();
    let words = newest_answer(records);
    let sources = ua_evidence::fetched_sources(records, &|call| replies.get(&call.call_id));
    Ok(Some(ua_evidence::judge_citations(&texts, &words, &sources)))
}

/// The text of a file; one that is gone or unreadable cites nothing.
fn read(workspace: &Workspace, path: &str) -> String {
    let mut bytes = Vec::new();
    let opened = workspace.folder().open_file(path);
    if opened.and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes)).is_err() {
        return String::new();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
