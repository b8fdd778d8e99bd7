//! The storage port of the durable job runner: complete business writes, each one transaction.
//!
//! A [`Store`] has no transaction object, no closure and no query builder in it. Every method of the run's owner takes a
//! [`RunLease`], whose epoch fences a process that was believed dead: a stale one changes nothing. Every write is a
//! compare-and-set against what the caller last saw, and is either *synced* (on stable storage before the call returns)
//! or *relaxed* (survives any kill of the process, and becomes durable with the next synced write).
//!
//! ```
//! use ua_store::{MemStore, RunStore};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let store = MemStore::default();
//! assert!(store.runs(10).await.unwrap().is_empty());
//! # });
//! ```

mod apply;
mod archive_store;
mod blob_store;
mod cell;
mod change;
mod commit;
#[cfg(feature = "conformance")]
pub mod conformance;
mod corpus;
mod earlier_loss;
mod error;
pub mod fleet;
mod forgotten;
mod gateway;
pub mod invariants;
mod iteration;
mod kept_back;
mod late;
mod ledger_store;
mod lifted;
mod lineage;
mod made;
mod mem;
mod overrides;
mod plain_text;
mod record;
mod relations;
pub mod rows;
pub mod rules;
mod run_store;
mod said;
mod standing;
mod store;
mod stored_name;
mod taint;
mod traces;
mod walk;

pub use apply::apply;
pub use archive_store::{CallQuery, DeletedRun, RunDeletion, RunHead, RunQuery};
pub use blob_store::{Blob, BlobPrune, BlobPruned, BlobUse};
pub use cell::Cell;
pub use change::{Author, Batch, Change, Committed, Done};
pub use commit::{
    Answer, AttemptEnd, CallCancel, CorrectCall, KeepHandle, MadeBy, NewAnswer, NewCheckpoint, NewFork, NewQuestion,
    NewRun, NewStep, RecallCall, RecalledAttempt, RequestEnd, RequestReservation, RunEnd, SettleAttempt, StartAttempt,
    StepEnd, StepEntry, TurnCommit, TurnDraft, UnknownResolution,
};
pub use corpus::CorpusRef;
pub use earlier_loss::EarlierLoss;
pub use error::{BoxError, Retry, RowRef, StoreError};
pub use fleet::{
    CatchUp, ConcurrencyKey, FleetChange, FleetDone, FleetRows, FleetState, FleetStore, QueueDepth, QueueEntry,
    QueueLine, QueueOptions, QueueState, Release, ScheduleRecord, WorkerRecord, apply_fleet, in_turn,
    is_effect_under_way, keeps_its_seat,
};
pub use forgotten::{
    AS_TASK, BY_A_WORD, DELETED, DELIVERED, FAILED_OVER, Forgotten, KnownBy, LEFT_BY_A_WORD, Lost, TASK_BEGUN,
    UNACCOUNTED, recall_lost, recall_of,
};
pub use gateway::{
    ArrivalRecord, ArrivalsOf, Delivery, GATEWAY_MODE, GatewayOf, GatewayRecords, GatewayStore, NewArrival, NewSession,
    SameCall, SessionRecord, SessionsOf, is_gateway, is_over,
};
pub use iteration::{NewIteration, max_iterations_with};
pub use late::LateReply;
pub use ledger_store::LedgerStore;
pub use lifted::{Lifted, NewBlob, blobs_of, keep_apart, offload_results, put_back, whole_reply, whole_text};
pub use lineage::{ForkPoint, LineageRecords, SharedPart, SubAgentRecord, is_task};
pub use made::{MadeOf, View};
pub use mem::MemStore;
pub use overrides::{NewOverride, OverrideKind, OverrideRecord, budgets_with, change_budget};
pub use plain_text::plain_text;
pub use record::{
    AnswerRecord, AttemptRecord, CallRecord, CheckpointKind, CheckpointRecord, Choice, Correction, EndMark,
    EndedAtOnce, EndedBy, EventRecord, MessageRecord, OwnerStamp, ProcessSpan, QuestionKind, QuestionRecord,
    QuestionStatus, ReceiptRecord, ReplayStatus, RequestId, RequestRecord, RequestStatus, RunLease, RunRecord,
    RunRecords, StepRecord, TurnRecord, answer_finding, answer_link, error_in_words, lost_because, standing_answer,
};
pub use relations::{
    Around, Kin, Related, Relations, Seen, is_declared_otherwise, is_left_open, is_named, is_under_another_server,
    reaches_others,
};
pub use run_store::RunStore;
pub use said::{Guarded, Said};
pub use standing::{
    CallSum, Keep, LeftOut, PLAIN_SCALE, RequestSum, SCALED_BY, TELLING_TOKENS, first_kept, message_bytes,
    scaled_estimator, step_of, still_counts,
};
pub use store::{CallTrail, CallsOf, PastStore, QuestionsOf, RunsOf, Store, TrailOf, Turns};
pub use stored_name::stored_name;
pub use taint::Taint;
pub use traces::Trace;
pub use walk::{Walk, runs_below, runs_shared, shares_with, top_of_tree, works_for};

/// Whether a write waits for stable storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Survives any kill of the process; durable with the next synced write.
    Relaxed,
    /// On stable storage before the call returns.
    Synced,
}
