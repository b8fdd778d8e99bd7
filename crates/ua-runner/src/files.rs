//! The files that tell a person how a run stands; all of them can be made again from the records.

use std::collections::BTreeMap;
use ua_core::{CallId, RawReply, RunId};
use ua_resume::{CompletionSummary, EvidenceScope, ResumePacket};
use ua_store::RunRecords;

use crate::workspace::{Workspace, WorkspaceError};

/// Writes the resume packet as Markdown and JSON.
pub(crate) fn write_packet(workspace: &Workspace, run: &RunId, packet: &ResumePacket) -> Result<(), WorkspaceError> {
    let name = Workspace::packet_name(run);
    workspace.replace(&format!("{name}.md"), packet.to_markdown())?;
    workspace.replace(&format!("{name}.json"), pretty(packet))
}

/// Writes completion summary, transcript, session summary and trace. Called at the end of each process's work, and again
/// whenever somebody finds them missing.
pub fn write_conclusion(workspace: &Workspace, records: &RunRecords) -> Result<(), WorkspaceError> {
    write_conclusion_with(workspace, records, &BTreeMap::new())
}

/// The same, with answers of reading calls as they came, where large ones are needed whole.
pub(crate) fn write_conclusion_with(
    workspace: &Workspace,
    records: &RunRecords,
    replies: &BTreeMap<CallId, RawReply>,
) -> Result<(), WorkspaceError> {
    workspace.replace("transcript.md", ua_resume::transcript(records))?;
    workspace.replace("session_summary.txt", ua_resume::session_summary(records))?;
    workspace.replace("trace.json", pretty(&ua_resume::trace_json(records)))?;
    let artifacts = workspace.artifacts()?;
    let media = |path: &str| workspace.media_type(path);
    let mut evidence = ua_resume::evaluate_run(records, EvidenceScope::of(records), &artifacts, &media);
    if let Some(citations) = crate::citations::judge(workspace, records, replies)? {
        evidence = evidence.with(citations);
    }
    let summary = CompletionSummary::new(records, &evidence, &artifacts);
    let name = Workspace::completion_name(&records.run.run_id);
    workspace.replace(&format!("{name}.md"), summary.to_markdown())?;
    workspace.replace(&format!("{name}.json"), pretty(&summary))
}

fn pretty(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
