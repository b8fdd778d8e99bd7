//! The files that tell a person how a run stands; all of them can be made again from the records.
//!
//! Durable runner, current state §10. None of them decides anything: one that cannot be written is noted in the log, and the run
//! goes on or ends as it would have.

use std::collections::BTreeMap;
use std::time::Duration;

use ua_core::{CallId, CallStatus, RawReply, RunId, Timestamp};
use ua_evidence::{Artifact, EvidenceReport, EvidenceScope};
use ua_report::{CompletionSummary, TraceList, TranscriptPages};
use ua_resume::{Decision, ResumePacket};
use ua_store::{CallRecord, Keep, ReplayStatus, RunRecord, RunRecords, RunStore as _, Store, Turns};

use crate::error::RunError;
use crate::workspace::{Workspace, WorkspaceError};

/// The least number of turns between two writings of the files while a run works.
const LEAST_TURNS: u32 = 5;
/// Of the time of a run at work, at most one part in so many goes into its files.
const SHARE: u32 = 40;

/// When the files of a run at work are due. Writing them costs as much as the history is long, so how often it is done follows from
/// what it takes: a run that waits for a model has them fresh every few turns, one that takes a thousand turns a second is not held up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NextFiles {
    turn: u32,
    at: Timestamp,
}

impl NextFiles {
    /// Of a process that takes the run behind `turn`: what an earlier one wrote is old, but no model has to wait for that.
    pub(crate) const fn of_start(turn: u32, at: Timestamp) -> Self {
        Self { turn: if turn == 0 { LEAST_TURNS } else { turn.saturating_add(1) }, at }
    }

    /// They were written after `turn`. What an instant is too coarse for counts as one more of its steps.
    pub(crate) fn after(turn: u32, began: Timestamp, ended: Timestamp) -> Self {
        let took = ended.since(began) + Duration::from_millis(1);
        Self { turn: turn.saturating_add(LEAST_TURNS), at: ended.plus(took * SHARE) }
    }

    /// Whether they are due after turn `committed`.
    pub(crate) fn are_due(&self, committed: u32, now: Timestamp) -> bool {
        committed >= self.turn && now >= self.at
    }
}

/// Writes the resume packet as Markdown and JSON.
pub(crate) fn write_packet(workspace: &Workspace, run: &RunId, packet: &ResumePacket) -> Result<(), WorkspaceError> {
    let name = Workspace::packet_name(run);
    let packet = packet.clone().naming(workspace.commands());
    workspace.replace(&format!("{name}.md"), packet.to_markdown())?;
    workspace.replace(&format!("{name}.json"), pretty(&packet))
}

/// Writes what tells how far a run has come: transcript, session summary, trace.
pub(crate) fn write_progress(
    workspace: &Workspace,
    records: &RunRecords,
    evidence: Option<&EvidenceReport>,
) -> Result<(), WorkspaceError> {
    write_transcript(workspace, records)?;
    write_session_summary(workspace, records, evidence)?;
    workspace.replace("trace.json", pretty(&ua_report::trace_of(records)))
}

/// Writes the conversation.
pub(crate) fn write_transcript(workspace: &Workspace, records: &RunRecords) -> Result<(), WorkspaceError> {
    let text = ua_report::transcript(records, &workspace.standing_of(&records.run), workspace.commands());
    workspace.replace("transcript.md", text)
}

fn write_session_summary(
    workspace: &Workspace,
    records: &RunRecords,
    evidence: Option<&EvidenceReport>,
) -> Result<(), WorkspaceError> {
    let text = ua_report::session_summary(records, &workspace.standing_of(&records.run), evidence);
    workspace.replace("session_summary.txt", workspace.commands().complete(&text).as_bytes())
}

/// How many turns of a long run are in memory while its files are written, and how many markers.
const PIECE: u32 = 128;

/// Writes the same from the store, a piece after the other: what it takes in memory does not grow with the number of turns.
pub(crate) async fn write_progress_in_pieces(
    workspace: &Workspace,
    store: &dyn Store,
    run: &RunRecord,
) -> Result<(), RunError> {
    let fail = || RunError::at("read the run for its files");
    let id = &run.run_id;
    // What a fork shares lies with others.
    if run.forked_at.is_some() || run.turn_index < PIECE {
        let records = store.load(id).await.map_err(fail())?;
        return Ok(write_progress(workspace, &records, None)?);
    }
    let standing = store.load_standing(id, Keep { turns: 1, calls: 1, bytes: 0 }).await.map_err(fail())?;
    write_session_summary(workspace, &standing, None)?;
    let [to_markers, to_requests, to_turns, end] = ua_report::trace_frame(&standing);
    let mut transcript = workspace.writing("transcript.md")?;
    let (mut trace, mut turns) = (workspace.writing("trace.json")?, workspace.writing("trace.json")?);

    trace.text(&to_markers)?;
    let (mut is_first, mut written) = (true, 0);
    loop {
        let part = store.load_of(id, Turns::Markers(written, PIECE)).await.map_err(fail())?;
        let here = u32::try_from(part.checkpoints.len()).unwrap_or(u32::MAX);
        trace.with(|out| TraceList::Checkpoints.write(&part, out, &mut is_first))?;
        written += here;
        if here < PIECE {
            break;
        }
    }
    trace.with(|out| TraceList::Checkpoints.end(out, is_first))?;

    trace.text(&to_requests)?;
    let (mut pages, mut no_request, mut no_turn, mut first) = (TranscriptPages::default(), true, true, 0);
    while first <= run.turn_index.saturating_add(1) {
        let part = store.load_turns(id, first, first + (PIECE - 1)).await.map_err(fail())?;
        let head = (first == 0).then(|| workspace.standing_of(run));
        transcript.text(&pages.next(&part, head.as_ref(), workspace.commands()))?;
        trace.with(|out| TraceList::Requests.write(&part, out, &mut no_request))?;
        turns.with(|out| TraceList::Turns.write(&part, out, &mut no_turn))?;
        first += PIECE;
    }
    trace.with(|out| TraceList::Requests.end(out, no_request))?;
    trace.text(&to_turns)?;
    trace.with(|out| turns.append_to(out))?;
    trace.with(|out| TraceList::Turns.end(out, no_turn))?;
    trace.text(&end)?;
    transcript.text(&pages.rest(&standing, workspace.commands()))?;
    transcript.place()?;
    Ok(trace.place()?)
}

/// Writes `trace.jsonl` and `run.log` anew. While a run is driven its process appends to them; a kill may leave lines out.
pub fn write_logs(workspace: &Workspace, records: &RunRecords) -> Result<(), WorkspaceError> {
    let files = ua_report::log_files(records);
    workspace.replace("trace.jsonl", files.trace_lines)?;
    workspace.replace("run.log", files.run_log)
}

/// Writes completion summary, transcript, session summary and trace, and the logs when nobody kept any. Called at the end of
/// each process's work, and again whenever somebody finds them missing.
pub fn write_conclusion(workspace: &Workspace, records: &RunRecords) -> Result<(), WorkspaceError> {
    write_conclusion_with(workspace, records, &BTreeMap::new())
}

/// The same, with answers of reading calls as they came, where large ones are needed whole.
pub(crate) fn write_conclusion_with(
    workspace: &Workspace,
    records: &RunRecords,
    replies: &BTreeMap<CallId, RawReply>,
) -> Result<(), WorkspaceError> {
    // The conditions may be about the transcript.
    write_progress(workspace, records, None)?;
    if !workspace.path("trace.jsonl").exists() && !workspace.path("run.log").exists() {
        write_logs(workspace, records)?;
    }
    let artifacts = workspace.artifacts_of(&records.run.spec)?;
    let evidence = judge(workspace, records, &artifacts, replies)?;
    write_session_summary(workspace, records, Some(&evidence))?;
    let summary = CompletionSummary::new(records, &evidence, &artifacts)
        .standing(records, &workspace.standing_of(&records.run), workspace.queue())
        .naming(workspace.commands());
    let name = Workspace::completion_name(&records.run.run_id);
    workspace.replace(&format!("{name}.md"), summary.to_markdown())?;
    workspace.replace(&format!("{name}.json"), pretty(&summary))
}

/// Takes away what an earlier process wrote when it was done with this run. From here on it may no longer be true, and whoever dies behind the
/// run's end leaves no page that says otherwise: one that is missing is written again by whoever looks for it.
///
/// # Errors
/// When one of them cannot be removed.
pub fn withdraw_conclusion(workspace: &Workspace, run: &RunId) -> Result<(), WorkspaceError> {
    let name = Workspace::completion_name(run);
    workspace.remove(&format!("{name}.md"))?;
    workspace.remove(&format!("{name}.json"))
}

/// Writes the files anew that tell how a run stands which nobody drives, after a person corrected a record or answered: the completion summary and what
/// goes with it, and the resume packet while the run has not ended.
///
/// # Errors
/// When a file cannot be written.
pub fn write_corrected(workspace: &Workspace, records: &RunRecords) -> Result<(), WorkspaceError> {
    write_conclusion(workspace, records)?;
    if records.run.status.is_terminal() {
        return Ok(());
    }
    let packet = packet_as_it_stands(workspace, records, &workspace.artifacts_of(&records.run.spec)?);
    write_packet(workspace, &records.run.run_id, &packet)
}

/// The resume packet of a run that nobody drives, as it stands now: with what a person corrected, and with what the last resume decided about each call
/// that it found in flight.
pub fn packet_as_it_stands(workspace: &Workspace, records: &RunRecords, artifacts: &[Artifact]) -> ResumePacket {
    let found = found_in_flight(workspace, &records.run.run_id);
    let of_open_turn = records.calls.iter().filter(|call| call.position.turn > records.run.turn_index);
    let decisions: Vec<Decision> = of_open_turn
        .filter_map(|call| match &call.correction {
            Some(correction) => Some(Decision {
                call_id: call.call_id.clone(),
                tool: call.name.raw.clone(),
                was: correction.was,
                action: ReplayStatus::Reconciled,
                why: correction.sentence(),
            }),
            None => decision(call, *found.get(call.call_id.as_str())?),
        })
        .collect();
    ResumePacket::new(records, &decisions, artifacts).standing(&workspace.standing_of(&records.run))
}

/// The most that is read of a packet.
const MAX_PACKET_BYTES: u64 = 64 * 1024 * 1024;

/// As what the last resume found each call that was in flight, which no row has. The packet has it, and nothing else is taken from there: tools may
/// write to it.
fn found_in_flight(workspace: &Workspace, run: &RunId) -> BTreeMap<String, CallStatus> {
    let name = format!("{}.json", Workspace::packet_name(run));
    let packet = workspace.folder().read(&name, MAX_PACKET_BYTES).ok();
    let packet = packet.and_then(|text| serde_json::from_slice::<serde_json::Value>(&text).ok()).unwrap_or_default();
    let calls = packet["in_flight"].as_array().into_iter().flatten().map(|call| &call["decision"]);
    calls
        .filter_map(|decision| {
            let was = serde_json::from_value(decision["was"].clone()).ok()?;
            Some((decision["call_id"].as_str()?.to_owned(), was))
        })
        .collect()
}

/// What was decided about a call that a resume found in flight, and found like this, read from its row.
pub(crate) fn decision(call: &CallRecord, was: CallStatus) -> Option<Decision> {
    let fallback = match (was, call.status) {
        _ if call.attempt == 0 && call.is_answered_by_twin() => ReplayStatus::Reused,
        (_, CallStatus::Cancelled) => ReplayStatus::Cancelled,
        (CallStatus::Prepared, _) => ReplayStatus::Executed,
        (_, CallStatus::Unknown | CallStatus::Running) => ReplayStatus::Held,
        (_, CallStatus::Prepared | CallStatus::Succeeded | CallStatus::FailedDefinite | CallStatus::FailedReported) => {
            ReplayStatus::Reconciled
        }
    };
    let still_prepared = call.status == CallStatus::Prepared;
    (!still_prepared).then(|| Decision {
        call_id: call.call_id.clone(),
        tool: call.name.raw.clone(),
        was,
        action: call.replay_status.unwrap_or(fallback),
        why: format!("policy `{}`: {}, on unknown {}", call.policy.rule_id, call.policy.class, call.policy.on_unknown),
    })
}

/// What the stop conditions of a run come to over its records and `artifacts`, the files of its workspace.
///
/// # Errors
/// When a file of the workspace cannot be read.
pub fn evidence_of(
    workspace: &Workspace,
    records: &RunRecords,
    artifacts: &[Artifact],
) -> Result<EvidenceReport, WorkspaceError> {
    judge(workspace, records, artifacts, &BTreeMap::new())
}

fn judge(
    workspace: &Workspace,
    records: &RunRecords,
    artifacts: &[Artifact],
    replies: &BTreeMap<CallId, RawReply>,
) -> Result<EvidenceReport, WorkspaceError> {
    let media = |path: &str| workspace.media_type(path);
    let unread = workspace.unread(&records.run.spec, artifacts);
    let evidence = ua_evidence::evaluate_run(records, EvidenceScope::of(records), artifacts, &unread, &media);
    Ok(match crate::citations::judge(workspace, records, replies)? {
        Some(citations) => evidence.with(citations),
        None => evidence,
    })
}

/// Notes that a file could not be written, and nothing else.
pub(crate) fn note(what: &'static str, written: Result<(), WorkspaceError>) {
    if let Err(error) = written {
        let error = ua_core::chain(&error);
        tracing::warn!(error, "{what} could not be written; `ua runs export` makes it again");
    }
}

pub(crate) fn pretty(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each writing takes as long as there are turns.
    #[test]
    fn the_files_of_a_run_take_a_small_part_of_its_time_and_are_fresh_where_turns_are_long() {
        for (turn_millis, writing_micros) in [(3_000, 500), (2, 20)] {
            for turns in [1_u32, 10, 100, 1_000, 10_000] {
                let mut now = Timestamp::from_millis(0);
                let mut next = NextFiles::of_start(0, now);
                let mut written = 0;
                let (mut took, mut stalest) = (Duration::ZERO, 0);
                for committed in 1..=turns {
                    now = now.plus(Duration::from_millis(turn_millis));
                    if next.are_due(committed, now) {
                        let writing = Duration::from_micros(writing_micros * u64::from(committed));
                        let began = now;
                        now = now.plus(writing);
                        next = NextFiles::after(committed, began, now);
                        written = committed;
                        took += writing;
                    }
                    stalest = stalest.max(committed - written);
                }
                let all = now.since(Timestamp::from_millis(0));
                let last = Duration::from_micros(writing_micros * u64::from(turns));
                assert!(took <= all / SHARE + last, "{turns} turns of {turn_millis} ms: {took:?} of {all:?}");
                if turn_millis > 1_000 {
                    let most = LEAST_TURNS.max(turns / 100);
                    assert!(stalest <= most, "{turns} turns: {stalest} behind");
                }
            }
        }
    }
}
