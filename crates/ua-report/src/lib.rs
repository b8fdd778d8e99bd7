//! What people read of a run: completion summary, transcript, trace, log, timeline, comparison, and the page that says how to go on.
//!
//! Everything here is a pure function. Nothing reads a clock, a file or a database. Text that came from a tool, a model or a file is foreign: it
//! is shown as quoted data, with control characters made visible, and cannot open a heading or close a fence of ours.

mod by_call;
mod changed;
mod chronicle;
mod export;
mod restart;
mod run_diff;
mod sub_agents;
mod summary;
mod summary_render;
mod timeline;
mod trace;
mod transcript;

pub use changed::ChangedFile;
pub use chronicle::{
    LogFiles, LogLine, Told, answer_lines, attempted, charged_tokens, completed_logs, end_lines, guided, log_files,
    start_lines, untold_lines,
};
pub use export::{RunExport, rule_in_words};
pub use restart::{RestartPlace, UNFINISHED, restart_page};
pub use run_diff::{CallSide, FileDiff, RunDiff, RunSide, TurnDiff, TurnSide};
pub use sub_agents::{SubAgentEffect, SubAgentLine, SubAgentOutput};
pub use summary::{CompletionSummary, Replayed, SideEffect, StepSummary};
pub use timeline::timeline_html;
pub use trace::{TraceList, trace_frame, trace_of};
pub use transcript::{TranscriptPages, session_summary, transcript, transcript_beside_blobs};
