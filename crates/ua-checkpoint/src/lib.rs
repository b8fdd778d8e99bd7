//! Checkpoint markers: where a run stood at a boundary, in a form that later builds can still read. And the view of a history that
//! fits into a request ([`MeasuredHistory`]).
//!
//! A checkpoint is not a second truth. Resume derives the run's state from its records; the marker says when a boundary was
//! reached and what could be seen there (Durable Jobs v1 spec §9, Durable runner, current state §4). Both of its parts, the
//! [`Snapshot`] and the [`Cursor`], are stored with a version. A version this build does not know is an error, never a guess;
//! `fixtures/checkpoints/` keeps one stored marker per version, and a test reads them all.
//!
//! ```
//! use ua_checkpoint::{BudgetsUsed, Checkpoint, Cursor, Snapshot};
//! use ua_core::{CheckpointId, Env, RunStatus, StepId};
//! use ua_store::CheckpointKind;
//!
//! let env = Env::simulated(1);
//! let cursor = Cursor { turn_index: 3, open_turn: None, last_tool_call_id: None, last_message_seq: 7 };
//! let snapshot = Snapshot {
//!     status: RunStatus::Running,
//!     phase: "main".to_owned(),
//!     step_index: 1,
//!     turn_index: 3,
//!     tool_calls: Default::default(),
//!     artifacts: Vec::new(),
//!     corpora: Vec::new(),
//!     remaining_phases: Vec::new(),
//!     budgets_used: BudgetsUsed::default(),
//! };
//! let (id, step) = (CheckpointId::new(&env), StepId::new(&env));
//! let marker = Checkpoint::marker(CheckpointKind::StepBoundary, id, step, env.now(), &snapshot, &cursor);
//! assert_eq!(marker.cursor["version"], "1");
//! assert_eq!(marker.cursor["turn_index"], 3);
//! ```

mod checkpoint;
mod cursor;
mod error;
mod shorten;
mod snapshot;
mod stored;
mod truncate;

pub use checkpoint::Checkpoint;
pub use cursor::Cursor;
pub use error::CheckpointError;
pub use shorten::shorten_newest;
pub use snapshot::{ArtifactRef, BudgetsUsed, Snapshot};
pub use truncate::{Estimate, MeasuredHistory, Past, View, Window, estimate_tokens, tokens_of_bytes};
