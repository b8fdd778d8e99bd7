//! From stored records to what a person or a model reads: resume packet, replay note, evidence, completion summary,
//! transcript, trace, log, timeline.
//!
//! Everything here is a pure function. Nothing reads a clock, a file or a database; what is said about a run is what its
//! rows say, and never what a model said (Durability Architecture, "Evidence Summary"). Text that came from a tool, a model
//! or a file is foreign: it is shown as quoted data, with control characters made visible, and cannot open a heading or
//! close a fence of ours.
//!
//! ```
//! use ua_core::{RunSpec, sha256};
//! use ua_resume::{Artifact, evaluate};
//!
//! let spec = RunSpec::parse(r#"{"objective": "Write the report.", "stop_conditions": ["report_pdf_created"]}"#).unwrap();
//! let report = Artifact { path: "work_products/report.pdf".to_owned(), bytes: 9, sha256: sha256("%PDF-1.7\n") };
//!
//! // The caller looks at the first bytes of a file; here they are those of a PDF.
//! let first_bytes = |_: &str| Some("application/pdf".to_owned());
//! assert!(evaluate(&spec, &[], &[], &[report], &first_bytes).all_met);
//!
//! let nothing = evaluate(&spec, &[], &[], &[], &first_bytes);
//! assert!(!nothing.all_met);
//! assert!(nothing.missing_for_model().contains("work_products/report.pdf"));
//! ```

mod artifact;
mod at_boundary;
mod budget;
mod call_line;
mod changed;
mod chronicle;
mod citations;
mod corpus;
mod evidence;
mod export;
mod fork;
mod handoff;
mod handoff_note;
mod iterations;
mod job_diff;
mod lineage;
mod lives;
mod packet;
mod page;
mod question;
mod quote;
mod render;
mod restart;
mod run_diff;
mod sub_agents;
mod summary;
mod summary_render;
#[cfg(test)]
mod testing;
mod timeline;
mod trace;
mod transcript;
mod usage;
mod verdict;

pub use artifact::{Artifact, ReadFirst};
pub use at_boundary::before_last_iteration;
pub use budget::{BudgetLine, raise_flags};
pub use call_line::CallLine;
pub use changed::ChangedFile;
pub use chronicle::{run_log, trace_lines};
pub use citations::{fetched_sources, judge_citations, report_files};
pub use corpus::{CorpusLine, CorpusState};
pub use evidence::{
    ConditionResult, EvidenceKind, EvidenceRef, EvidenceReport, EvidenceScope, evaluate, evaluate_scope,
};
pub use export::RunExport;
pub use fork::ForkNote;
pub use handoff::{Handoff, HandoffEvidence, HandoffNext, HandoffOpen};
pub use iterations::{IterationLine, iterations};
pub use job_diff::{JobChange, job_changes};
pub use lineage::evaluate_run;
pub use lives::{Life, LifeEnd, lives};
pub use packet::{CheckpointLine, Decision, InFlight, PastEffect, ResumePacket, StepLine};
pub use question::{AnswerLine, QuestionLine};
pub use restart::{RestartPlace, restart_page};
pub use run_diff::{CallSide, FileDiff, RunDiff, RunSide, TurnDiff, TurnSide};
pub use sub_agents::{SubAgentEffect, SubAgentLine, SubAgentOutput};
pub use summary::{CompletionSummary, Replayed, SideEffect, StepSummary};
pub use timeline::timeline_html;
pub use trace::trace_json;
pub use transcript::{session_summary, transcript, transcript_beside_blobs};
pub use usage::{ModelUsage, UsageSummary};
pub use verdict::Verdict;
