//! What every store promises, as functions that any store can be put through.
//!
//! A store's own tests name their harness once, and each promise becomes a test of that name:
//!
//! ```text
//! ua_store::conformance_tests!(fresh_harness);
//! ```
//!
//! where `fresh_harness()` returns a value that is a [`Harness`]: a fresh, empty store and whatever keeps it alive.

#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a broken promise is a panic, as in any test")]

pub mod archive;
pub mod batches;
pub mod before_doubts;
pub mod blobs;
pub mod calls;
pub mod corrections;
mod differential;
pub mod doubts;
pub mod fleet;
pub mod forks;
pub mod gateway;
pub mod handles;
pub mod iterations;
pub mod lost_answers;
pub mod overrides;
pub mod ownership;
pub mod plain_text;
pub mod questions;
mod queue_turns;
pub mod recalled;
pub mod related;
pub mod samples;
mod scene;
mod seam;
pub mod steps;
pub mod taints;
pub mod tasks;
pub mod turns;

use std::fmt::Debug;

use crate::Store;
use crate::error::StoreError;

pub use differential::{agree, agree_beside_deletions};
pub use queue_turns::Turns;
pub use scene::{Scene, cancel};
pub use seam::{Crossing, Plan, StoreOutcome, StoreSeam, Undisturbed, Writes};

/// A fresh store and whatever keeps it alive.
pub trait Harness {
    /// The store.
    fn store(&self) -> &dyn Store;
}

impl<S: Store> Harness for S {
    fn store(&self) -> &dyn Store {
        self
    }
}

/// Fails unless `outcome` is a conflict whose words contain `words`.
#[track_caller]
pub(crate) fn refused<T: Debug>(outcome: Result<T, StoreError>, words: &str) {
    match outcome {
        Err(StoreError::Conflict { row, why }) => {
            let text = format!("{row}: {why}");
            assert!(text.contains(words), "{text:?} does not speak of {words:?}");
        }
        other => panic!("expected a conflict about {words:?}, got {other:?}"),
    }
}

/// Makes a `#[tokio::test]` of every promise, each with a fresh harness. Where `fresh` may find nothing to run on it returns an `Option`, and
/// the test says so: `conformance_tests!(fresh, or skip)`.
#[macro_export]
macro_rules! conformance_tests {
    ($fresh:path) => {
        $crate::conformance_tests!(@all { $fresh() });
    };
    ($fresh:path, or skip) => {
        $crate::conformance_tests!(@all { let Some(harness) = $fresh() else { return }; harness });
    };
    (@all $fresh:tt) => {
        $crate::conformance_tests!(@promises $fresh;
            ownership::a_submitted_run_waits_with_its_prompt,
            ownership::a_run_is_submitted_once,
            ownership::a_job_key_names_one_lineage,
            ownership::a_child_inherits_its_root,
            ownership::each_owner_has_the_next_epoch,
            ownership::a_stale_epoch_changes_nothing,
            ownership::a_lease_ends_with_the_work,
            ownership::a_terminal_run_is_left_alone,
            ownership::an_end_is_a_status_that_ends,
            ownership::a_cancel_request_is_sticky,
            ownership::rows_that_are_not_there_are_named,
            ownership::runs_are_listed_newest_first,
            overrides::overrides_are_kept_in_order_beside_the_contract,
            overrides::an_override_needs_no_lease_and_no_second_row,
            overrides::what_is_accepted_together_is_stored_together,
            turns::a_turn_is_recorded_whole,
            turns::a_turn_is_recorded_and_committed_once_by_its_number,
            turns::the_open_turn_is_no_history,
            turns::a_commit_names_the_call_that_is_not_settled,
            turns::a_refused_call_never_runs,
            turns::a_write_that_fails_leaves_nothing,
            turns::a_reply_without_usage_is_charged_as_estimated,
            turns::a_request_is_charged_once,
            turns::a_request_costs_what_its_price_said,
            turns::what_the_provider_says_is_charged_whatever_was_estimated,
            turns::a_reply_has_one_name_from_its_first_event_on,
            turns::requests_of_a_dead_process_are_charged_as_estimated,
            turns::a_reply_that_broke_off_is_charged_for_what_was_heard,
            turns::notes_wait_for_the_open_turn,
            turns::steps_are_numbered_and_end_once,
            turns::a_blocked_step_goes_on_when_the_run_is_taken,
            turns::checkpoints_are_kept_in_order,
            turns::held_time_adds_up,
            steps::a_step_is_entered_whole_and_once,
            steps::a_step_that_cannot_be_entered_leaves_everything,
            steps::the_time_of_a_killed_owner_counts,
            iterations::an_iteration_is_counted_in_the_write_that_begins_it,
            iterations::an_iteration_is_neither_left_out_nor_counted_twice,
            calls::a_start_claims_the_key,
            calls::a_held_key_refuses_every_other_call,
            calls::attempts_are_numbered_and_keep_their_key,
            calls::a_later_attempt_that_did_nothing_leaves_the_doubt,
            calls::only_what_did_nothing_may_get_another_key,
            calls::only_legal_moves_are_made,
            calls::a_reply_is_stored_before_it_is_understood,
            calls::a_reply_may_leave_the_outcome_open,
            calls::effects_are_found_in_every_run,
            calls::what_changed_behind_a_change_is_found_however_the_clock_is_set,
            calls::calls_are_found_by_how_their_scopes_begin,
            calls::a_recovery_loses_only_what_was_not_answered,
            handles::a_handle_is_kept_while_its_attempt_runs,
            handles::an_answer_does_not_leave_behind_news,
            handles::an_answer_does_not_leave_behind_an_end_mark,
            handles::an_answer_that_leaves_is_news_to_what_was_decided_beside_it,
            handles::a_recovery_leaves_what_can_be_gone_on_with,
            calls::evidence_settles_an_unknown_call,
            calls::evidence_is_kept_beside_the_reply,
            calls::a_skipped_call_stays_unknown_and_lets_its_turn_commit,
            calls::what_did_not_happen_frees_its_key,
            calls::a_find_is_not_a_persons_word,
            calls::an_answer_that_was_not_stored_settles_its_own_attempt,
            calls::a_duplicate_takes_the_receipt_of_its_twin,
            calls::a_duplicate_needs_a_twin,
            calls::calls_are_cancelled_all_or_none,
            calls::a_call_that_was_let_run_is_cancelled_knowingly,
            calls::an_effect_limit_counts_the_lineage,
            calls::an_approval_lets_one_attempt_run,
            calls::nothing_starts_after_a_cancel_request,
            calls::every_change_is_an_event,
            calls::a_scope_is_found_in_the_whole_lineage,
            calls::a_start_sees_what_touched_its_scope_meanwhile,
            calls::a_call_of_another_run_is_out_of_reach,
            calls::a_note_about_a_replay_is_kept,
            doubts::doubts_about_a_tool_are_found_in_the_whole_lineage,
            doubts::a_lost_attempt_stays_a_doubt_whatever_a_later_one_comes_to,
            doubts::a_doubt_outlives_its_run_until_it_is_answered,
            related::of_those_that_stand_alike_the_newest_is_named_and_the_number,
            related::a_start_is_refused_by_one_more_of_those_it_knows_of,
            related::what_other_trees_did_is_as_bounded,
            related::the_same_call_under_another_server_is_told,
            related::what_was_decided_later_is_told_apart,
            corrections::a_record_is_put_right_whatever_it_says,
            corrections::a_correction_can_be_corrected,
            corrections::a_first_start_knows_what_was_corrected,
            corrections::a_key_that_a_correction_used_up_starts_nothing,
            corrections::a_correction_needs_something_to_correct,
            corrections::a_duplicate_is_corrected_with_its_twin,
            corrections::a_call_follows_the_one_that_had_its_effect,
            corrections::a_correction_does_not_take_a_key_that_another_call_holds,
            corrections::a_correction_closes_the_question,
            recalled::a_call_that_was_sent_is_in_doubt,
            recalled::a_recalled_attempt_that_is_answered_stays_recalled,
            recalled::an_answered_attempt_stays_answered,
            recalled::an_attempt_that_has_begun_is_not_ended_for_another_call,
            recalled::a_persons_word_is_told_and_is_no_send,
            recalled::a_settled_call_is_not_recalled,
            recalled::what_is_known_of_an_attempt_is_not_sent,
            recalled::a_recalled_call_is_asked_about_anew,
            recalled::a_recalled_call_takes_no_key_that_another_holds,
            recalled::a_call_in_the_place_of_another_says_so,
            questions::a_call_has_one_question_at_a_time,
            questions::an_answer_is_one_of_the_choices_and_given_once,
            questions::a_closed_question_is_not_asked_any_more,
            questions::a_failure_that_is_skipped_is_left,
            questions::a_question_that_was_answered_is_not_taken_back,
            questions::a_resolution_closes_its_question,
            questions::a_run_is_asked_about_the_same_once,
            questions::an_abort_is_a_mark_on_the_run,
            questions::an_end_takes_its_calls_and_questions_along,
            batches::a_batch_is_applied_in_order,
            batches::what_is_provided_is_left_out_alone,
            batches::what_stands_is_committed_whole_or_not_at_all,
            batches::a_batch_is_its_owners,
            batches::a_numbered_batch_is_written_once,
            batches::words_of_people_are_counted,
            batches::an_epoch_that_is_given_twice_has_one_owner,
            blobs::the_files_of_a_job_are_stored_with_its_run,
            blobs::a_large_answer_is_stored_once_and_comes_back_whole,
            blobs::whatever_stores_a_large_answer_refers_to_it,
            blobs::a_message_refers_only_to_what_is_there,
            blobs::a_refused_answer_leaves_no_blob,
            blobs::a_prune_never_touches_what_an_unfinished_lineage_refers_to,
            blobs::a_pruned_blob_comes_back_with_its_content,
    archive::a_deleted_run_is_remembered_by_its_lineage, archive::a_deleted_run_leaves_its_name, archive::an_unfinished_run_is_deleted_only_by_force, archive::calls_are_found_by_the_beginning_of_their_id, archive::runs_are_found_by_what_is_known_of_them, archive::turns_are_loaded_without_the_others, archive::what_was_open_of_a_deleted_run_is_closed, forks::a_fork_and_its_parent_go_on_by_themselves, forks::a_fork_keeps_its_parents_job_key, forks::a_fork_of_a_fork_shares_what_both_share, forks::a_fork_shares_only_committed_turns, forks::a_fork_shares_the_history_up_to_its_turn, forks::a_job_runs_again_only_after_it_succeeded, forks::a_repeated_fork_changes_nothing, forks::the_children_of_a_run_are_found, forks::the_lineage_sees_every_effect,
            taints::a_call_brings_in_what_it_reads_when_it_starts,
            taints::a_fork_has_what_its_shared_turns_read,
            taints::a_hidden_file_of_a_job_is_private_to_its_run_and_to_forks,
            taints::a_sub_agent_hands_on_what_it_read_with_its_answer,
            taints::an_answer_of_another_call_brings_in_what_that_one_read,
            gateway::a_session_is_one_of_its_project,
            gateway::a_request_and_its_call_are_one_write,
            gateway::an_answer_is_noted_by_the_session_that_asked,
            gateway::an_answer_that_was_not_read_is_noted_with_its_time,
            gateway::a_session_has_heard_of_what_was_sent_and_answered,
            gateway::only_doubt_reaches_beyond_the_family,
            gateway::what_is_asked_in_a_session_ends_with_it,
            gateway::what_a_person_left_in_a_session_is_put_right_beside_its_owner,
            gateway::what_is_said_of_a_call_counts_when_its_session_was_ended,
            tasks::a_task_and_its_child_run_are_one_write,
            tasks::a_task_under_way_is_never_lost,
            tasks::a_child_run_is_taken_by_the_newest_owner_of_its_parent,
            tasks::a_cancel_reaches_the_whole_tree,
            tasks::a_run_knows_what_its_sub_agents_did,
            lost_answers::a_repeated_write_changes_nothing,
            plain_text::an_answer_with_nul_in_it_counts,
            plain_text::what_comes_again_with_nul_in_it_is_no_news,
            plain_text::what_a_tool_says_is_told_as_it_is_stored,
            plain_text::the_same_request_is_found_in_its_own_words,
            plain_text::what_has_nul_in_its_json_is_read,
        );
    };
    (@promises $fresh:tt; $($part:ident :: $promise:ident),+ $(,)?) => {
        $(
            #[tokio::test]
            async fn $promise() {
                let harness = $fresh;
                $crate::conformance::$part::$promise($crate::conformance::Harness::store(&harness)).await;
            }
        )+
    };
}

/// The same for what a store promises about workers and the queue; `fresh` gives a value with the store in its field `store`.
#[macro_export]
macro_rules! fleet_conformance_tests {
    ($fresh:path) => {
        $crate::fleet_conformance_tests!(@all { $fresh() });
    };
    ($fresh:path, or skip) => {
        $crate::fleet_conformance_tests!(@all { let Some(harness) = $fresh() else { return }; harness });
    };
    (@all $fresh:tt) => {
        $crate::fleet_conformance_tests!(@promises $fresh;
            a_run_is_claimed_once_and_in_its_turn,
            only_a_run_that_can_be_worked_on_is_queued,
            what_a_paused_schedule_has_due_is_not_queued,
            a_key_has_so_many_seats,
            a_run_that_may_be_at_work_keeps_its_seat,
            a_run_that_is_to_end_keeps_its_seat_for_an_effect_alone,
            who_is_there_again_keeps_what_it_drives,
            fair_keys_take_turns,
            turns_are_taken_by_what_is_ready,
            a_line_that_is_left_is_no_advantage,
            the_queue_is_listed_as_it_is_taken,
            what_dead_workers_had_is_there_for_others,
            a_worker_leaves_in_good_order,
            a_worker_that_drains_takes_nothing_when_it_is_back,
            a_word_wakes_a_parked_run,
            a_recalled_call_wakes_a_parked_run,
            a_queued_run_is_moved_and_withdrawn,
            what_is_given_back_has_waited_all_the_time,
            a_place_is_forgotten_when_its_workers_are_gone,
            what_a_worker_has_not_heard_of_it_gets_again,
            what_one_worker_cannot_do_others_have_at_once,
            a_name_is_taken_over_from_a_dead_process,
            a_schedule_advances_once_an_instant,
        );
    };
    (@promises $fresh:tt; $($name:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $name() {
                let harness = $fresh;
                $crate::conformance::fleet::$name(&harness.store).await;
            }
        )*
    };
}
