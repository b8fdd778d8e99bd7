//! What each write makes of the rows it touches, as pure functions over records.
//!
//! Every store finds rows, applies these rules inside one transaction and stores what they return, so that all stores
//! refuse alike. A rule takes what the store found and returns the rows as they will be; it never reads anything itself.
//!
//! Durable Jobs v1 spec §5 and §8.3 (lifecycles); Granular Execution PRD §5.1 (compare-and-set of turns).
//! Invariants: a stale epoch changes nothing; a call moves only along [`CallStatus::on`](ua_core::CallStatus::on); a turn
//! is committed once, by number. Proved by: `conformance`.

mod blob;
mod call;
mod deletion;
mod doubt;
mod fork;
mod gateway;
mod kin;
mod overrides;
mod question;
mod recall;
mod run;
mod step;
mod task;
mod turn;

use std::fmt;

use crate::error::{RowRef, StoreError};

pub use blob::{blob_read, blobs_pruned};
pub(crate) use call::holds_key;
pub use call::{
    CorrectContext, Corrected, Resolved, Settled, StartContext, Started, call_begun, call_cancelled, call_corrected,
    call_deduplicated, call_lost, call_not_happened, call_resolved, call_settled, call_skipped, call_started,
    call_vouched_for, check_run_ended, counts_as_effect, failure_left, handle_kept, is_doubt, is_of_open_turn,
    let_go_in_vain, may_have_happened, may_send, owned_call, receipt_interpreted, replay_noted, used_up_its_key,
    was_left_unknown,
};
pub use deletion::run_deleted;
pub use doubt::{DoubtContext, FOUND_IN_DOUBT, first_in_doubt, found_in_doubt, was_in_doubt};
pub use fork::{
    ForkContext, check_again, is_effect_elsewhere, is_shared_effect, key_is_inherited, run_forked, shared_parts,
};
pub use gateway::{Arrived, arrived, check_session, delivered, reaches_project};
pub use kin::{KinRun, kin_of};
pub use overrides::override_made;
pub use question::{
    IN_DOUBT, TOLD_OF, UNDECLARED, UNPAID, abort_in, applies_behind_the_end, is_allowed, is_done_by_another,
    is_same_question, may_ask, question_answered, question_closed, question_ended, question_for_call, question_raised,
    question_withdrawn, said_by_happened, said_to_have_happened, skipped_by, told_of,
};
pub use recall::{
    RECALLED, Recalled, call_recalled, detail_in_words, is_learnt_of_another, is_recalled, is_word_of_another,
    learnt_of_another, made_by, said_beside, times_sent, was_answered_beside,
};
pub(crate) use run::mark_of_run;
pub use run::{
    check_lease, check_number, check_owner, checkpoint_saved, last_sign, request_closed, request_lost,
    request_reserved, response_named, run_abort_requested, run_acquired, run_cancel_requested, run_ended, run_seen,
    run_submitted, step_ended, step_opened, step_resumed, usage_heard,
};
pub use step::{EnteredStep, EntryContext, step_entered};
pub use task::{child_made, runs_below, sub_agent};
pub use turn::{
    CommitContext, CommittedTurn, RecordedTurn, calls_planned, notes_appended, turn_committed, turn_recorded,
};

pub(crate) fn conflict(table: &'static str, key: impl fmt::Display, why: impl Into<String>) -> StoreError {
    StoreError::Conflict { row: RowRef::new(table, key), why: why.into() }
}

pub(crate) fn not_found(table: &'static str, key: impl fmt::Display) -> StoreError {
    StoreError::NotFound { row: RowRef::new(table, key) }
}
