//! A transaction as rows under the port: what `run_rows`, `ledger_rows`, `lineage_rows`, `blob_rows`, `archive_rows` and `override_rows` do.

use ua_core::{BlobRef, CallId, IdempotencyKey, QuestionId, RunId, Scope, StepId, Timestamp};
use ua_store::rows::{BlobRows, GatewayRows, LedgerRows, RunRows, Tables, Written};
use ua_store::{
    ArrivalRecord, AttemptRecord, BlobUse, CallRecord, CheckpointRecord, MessageRecord, NewBlob, OverrideRecord,
    QuestionRecord, ReceiptRecord, Relations, RequestId, RequestRecord, RunDeletion, RunRecord, SessionRecord,
    StepRecord, StoreError, Taint, TurnRecord,
};

use crate::db::Db;
use crate::error::DbError;

type DbResult<T> = Result<T, DbError>;

/// Methods of the port's rows that are methods of the connection, by the same name.
macro_rules! by_the_same_name {
    ($($name:ident($($argument:ident: $type:ty),*) -> $made:ty;)+) => {
        $(fn $name(&self, $($argument: $type),*) -> DbResult<$made> {
            Db::$name(self, $($argument),*)
        })+
    };
}

/// The same of what is only written: it waits for its flight and cannot fail before.
macro_rules! written {
    ($($name:ident($($argument:ident: $type:ty),*);)+) => {
        $(fn $name(&self, $($argument: $type),*) -> DbResult<()> {
            Db::$name(self, $($argument),*);
            Ok(())
        })+
    };
}

impl Tables for Db {
    type Error = DbError;

    fn nested<T>(&self, work: impl FnOnce() -> DbResult<T>) -> DbResult<Result<T, StoreError>> {
        self.savepoint(work)
    }
}

impl RunRows for Db {
    by_the_same_name! {
        written(run: &RunId) -> Written;
        run(id: &RunId) -> RunRecord;
        taint_of(run: &RunId) -> Taint;
        runs_below(run: &RunId) -> Vec<RunRecord>;
        check_job_key(run: &RunRecord) -> ();
        last_write(run: &RunId) -> Option<Timestamp>;
        end_of_turn(run: &RunRecord, turn: u32) -> (u64, Option<String>);
        insert_run(run: &RunRecord) -> ();
        update_run(run: &RunRecord) -> ();
        lineage_members(root: &RunId) -> (Vec<RunId>, Vec<RunId>);
        remove_lineage(root: &RunId) -> ();
        step(id: &StepId) -> Option<StepRecord>;
        last_step_index(run: &RunId) -> u32;
        insert_step(step: &StepRecord) -> ();
        open_turn(run: &RunId) -> Option<TurnRecord>;
        insert_turn(turn: &TurnRecord) -> ();
        last_seq(run: &RunId) -> u64;
        last_messages(run: &RunId, count: usize) -> Vec<MessageRecord>;
        insert_message(run: &RunId, message: &MessageRecord) -> ();
        insert_checkpoint(checkpoint: &CheckpointRecord) -> ();
        request(run: &RunId, id: RequestId) -> Option<RequestRecord>;
        last_request(run: &RunId) -> Option<RequestRecord>;
        reserved_requests(run: &RunId) -> Vec<RequestRecord>;
        insert_request(run: &RunId, request: &RequestRecord) -> ();
        update_request(run: &RunId, request: &RequestRecord) -> ();
        question(id: &QuestionId) -> QuestionRecord;
        waiting_question(call: &CallId) -> Option<QuestionRecord>;
        insert_question(question: &QuestionRecord) -> ();
        update_question(question: &QuestionRecord) -> ();
        overrides_of(run: &RunId) -> Vec<OverrideRecord>;
        insert_override(row: &OverrideRecord) -> ();
    }

    written! {
        set_batches(run: &RunId, batches: u64);
        count_word(run: &RunId);
        update_seen(run: &RunRecord);
        note_corrected(root: &RunId, at: Timestamp);
        note_deleted(deletion: &RunDeletion, root: &RunId);
        update_step(step: &StepRecord);
        update_turn(turn: &TurnRecord);
    }

    fn run_of_job_key(&self, job_key: &str) -> DbResult<Option<RunRecord>> {
        Db::run_of_job_key(self, job_key, None)
    }

    fn waiting_questions_of(&self, run: &RunId) -> DbResult<Vec<QuestionRecord>> {
        self.waiting_questions(Some(run))
    }
}

impl LedgerRows for Db {
    by_the_same_name! {
        call(id: &CallId) -> CallRecord;
        calls_until(run: &RunId, turn: u32) -> Vec<CallRecord>;
        running_calls(run: &RunId) -> Vec<CallRecord>;
        key_holder(key: &IdempotencyKey) -> Option<CallRecord>;
        corrected_calls(root: &RunId) -> Vec<CallRecord>;
        other_effects(call: &CallRecord, most: u32) -> u32;
        answered_by(root: &RunId, call: &CallId) -> Vec<CallRecord>;
        relations(call: &CallRecord, scope: Option<&Scope>) -> Relations;
        insert_call(call: &CallRecord, epoch: u64) -> ();
        update_call(call: &CallRecord, epoch: u64) -> ();
        current_attempt(call: &CallRecord) -> Option<AttemptRecord>;
        insert_attempt(attempt: &AttemptRecord) -> ();
        keep_handle(attempt: &AttemptRecord) -> ();
        newest_receipt(call: &CallId) -> Option<ReceiptRecord>;
        insert_receipt(receipt: &ReceiptRecord) -> ();
        fill_newest_receipt(receipt: &ReceiptRecord) -> ();
    }

    written! {
        end_attempt(attempt: &AttemptRecord);
    }

    // `effects.log` tells that a database file went back in time. A database that several machines share has no file beside it.

    fn note_effect(&self, _call: &CallRecord, _event: &str, _epoch: u64, _at: Timestamp) -> DbResult<()> {
        Ok(())
    }

    fn note_word(&self, _run: &RunId, _question: Option<&QuestionRecord>, _word: &str, _at: Timestamp) -> DbResult<()> {
        Ok(())
    }

    fn calls_of_turn(&self, run: &RunId, turn: u32) -> DbResult<Vec<CallRecord>> {
        self.calls_of(run, Some(turn))
    }
}

impl GatewayRows for Db {
    by_the_same_name! {
        arrival(id: &str) -> Option<ArrivalRecord>;
    }

    written! {
        insert_session(session: &SessionRecord);
        insert_arrival(arrival: &ArrivalRecord);
        update_arrival(arrival: &ArrivalRecord);
    }
}

impl BlobRows for Db {
    by_the_same_name! {
        blob_uses() -> Vec<BlobUse>;
    }

    written! {
        put_blobs(run: &RunId, blobs: &[NewBlob], at: Timestamp);
        prune_blob(blob: &BlobRef, at: Timestamp);
    }

    fn refer_to_blobs<'b>(&self, run: &RunId, blobs: impl Iterator<Item = &'b BlobRef>) -> DbResult<()> {
        Db::refer_to_blobs(self, run, blobs)
    }
}
