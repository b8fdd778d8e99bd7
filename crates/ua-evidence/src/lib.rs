//! What decides whether a run reached its goal: receipts and files, held against the stop conditions of its job.
//!
//! Everything here is a pure function of stored records. What is said about a run is what its rows say, and never what a model said
//! (Durability Architecture, "Evidence Summary"). Beside the verdicts are the words that every page about a run needs: [`call_line`], one call
//! as a line, [`quote`], which shows foreign text as data, and [`os_words`], what the operating system says, in plain words.
//!
//! ```
//! use ua_core::{RunSpec, sha256};
//! use ua_evidence::{Artifact, evaluate};
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

pub mod artifact;
mod call_in_short;
pub mod call_line;
mod citations;
pub mod corpus;
mod evidence;
mod lineage;
pub mod os_words;
pub mod quote;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod unchecked;
pub mod verdict;

pub use artifact::{Artifact, ReadFirst, Unread};
pub use call_in_short::call_in_short;
pub use call_line::CallLine;
pub use citations::{fetched_sources, judge_citations, report_files};
pub use corpus::{CorpusLine, CorpusState};
pub use evidence::{
    ConditionResult, EvidenceKind, EvidenceRef, EvidenceReport, EvidenceScope, InDoubt, Undeclared, evaluate,
    evaluate_scope, missing_in_short, named_files, nearness, said_by_persons, words_of_persons,
};
pub use lineage::evaluate_run;
pub use unchecked::unchecked;
pub use verdict::{FAILED_PERHAPS, Stands, UNANSWERED, Verdict, call_in_words, failed_perhaps, is_unanswered_read};
