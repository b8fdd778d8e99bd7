//! What the driver of a run writes and reads, a word for each change of the port.

use std::time::Duration;

use ua_core::{Message, QuestionId, RunId, Timestamp, Usage};

use crate::archive_store::{DeletedRun, RunDeletion};
use crate::blob_store::{BlobPrune, BlobPruned};
use crate::change::{Author, Batch, Change, one};
use crate::commit::{
    NewAnswer, NewCheckpoint, NewFork, NewQuestion, NewRun, NewStep, RequestEnd, RequestReservation, RunEnd, StepEnd,
    StepEntry, TurnCommit, TurnDraft,
};
use crate::error::StoreError;
use crate::overrides::{NewOverride, OverrideRecord};
use crate::record::{
    OwnerStamp, QuestionRecord, QuestionStatus, RequestId, RunLease, RunRecord, RunRecords, StepRecord,
};
use crate::standing::Keep;
use crate::store::{QuestionsOf, RunsOf, Store, Turns, only};

/// Runs, steps, turns, questions, blobs: single changes and reads of a [`Store`]. Each write says whether it is synced.
pub trait RunStore: Store {
    /// Stores a new run (synced). Fails with `Exists` when the id, or the job key within another lineage, is taken.
    fn submit_run(&self, run: NewRun) -> impl Future<Output = Result<RunRecord, StoreError>> + Send {
        let (by, batch) = (Author::Command, Batch::of([Change::Submit(run)]));
        async move { Ok(one(self, by, batch).await?.into_run()) }
    }

    /// Stores a new run of a job whose key is taken by `seen`, which succeeded: a new lineage under the same key (synced). Fails
    /// with `Conflict` when another run answers for the key by now, or `seen` has not succeeded; with `Exists` when the id is
    /// taken.
    fn submit_again(&self, run: NewRun, seen: &RunId) -> impl Future<Output = Result<RunRecord, StoreError>> + Send {
        let (by, batch) = (Author::Command, Batch::of([Change::SubmitAgain { run, seen: seen.clone() }]));
        async move { Ok(one(self, by, batch).await?.into_run()) }
    }

    /// Stores a fork: its row, its prompt and the note behind what it shares (synced). What it shares is not copied. Fails with
    /// `Exists` when the id is taken, or a job key that is not the parent's; with `Conflict` when the turn is not committed.
    fn fork_run(&self, fork: NewFork) -> impl Future<Output = Result<RunRecord, StoreError>> + Send {
        let (by, batch) = (Author::Command, Batch::of([Change::Fork(fork)]));
        async move { Ok(one(self, by, batch).await?.into_run()) }
    }

    /// Stores a person's answer to an open question (synced). An `abort` marks the run, and the child runs below it that have not
    /// ended, in the same write; sticky.
    fn insert_answer(&self, answer: NewAnswer) -> impl Future<Output = Result<QuestionRecord, StoreError>> + Send {
        let (by, batch) = (Author::Command, Batch::of([Change::Answer(answer)]));
        async move { Ok(one(self, by, batch).await?.into_question()) }
    }

    /// Asks the owner of a run to cancel it and all child runs below it (synced); sticky. A run that nobody owns is cancelled by its
    /// next resume.
    fn request_cancel(
        &self,
        run: &RunId,
        reason: &str,
        at: Timestamp,
    ) -> impl Future<Output = Result<RunRecord, StoreError>> + Send {
        let (by, batch) =
            (Author::Command, Batch::of([Change::RequestCancel { run: run.clone(), reason: reason.to_owned(), at }]));
        async move { Ok(one(self, by, batch).await?.into_run()) }
    }

    /// Stores what a person changed about a run (synced). The newest change of the component that says the same already is
    /// returned instead. Fails with `Conflict` when the run is terminal.
    fn insert_override(&self, change: NewOverride) -> impl Future<Output = Result<OverrideRecord, StoreError>> + Send {
        let (by, batch) = (Author::Command, Batch::of([Change::Override(change)]));
        async move { Ok(one(self, by, batch).await?.into_override_record()) }
    }

    /// Stores several of these, all or none, under the lease of the run's owner (synced): what a resume accepts is accepted together.
    fn insert_overrides(
        &self,
        lease: &RunLease,
        changes: Vec<NewOverride>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        let by = Author::Owner(lease.clone());
        let batch = Batch::of(changes.into_iter().map(Change::Override));
        async move { one(self, by, batch).await.map(drop) }
    }

    /// Takes a run that is not terminal: epoch + 1, status `running`, the owner's trace appended (synced). The caller
    /// holds the run's lock.
    fn acquire_run(
        &self,
        run: &RunId,
        owner: &OwnerStamp,
        at: Timestamp,
    ) -> impl Future<Output = Result<(RunLease, RunRecord), StoreError>> + Send {
        let (by, batch) =
            (Author::Command, Batch::of([Change::Acquire { run: run.clone(), owner: owner.clone(), at }]));
        async move { Ok(one(self, by, batch).await?.into_owned()) }
    }

    /// As [`acquire_run`](Self::acquire_run), for the run of a sub-agent: the lease of the run above it is checked in the same write, so
    /// that an owner who was replaced there takes no run of the tree any more.
    fn acquire_task_run(
        &self,
        above: &RunLease,
        run: &RunId,
        owner: &OwnerStamp,
        at: Timestamp,
    ) -> impl Future<Output = Result<(RunLease, RunRecord), StoreError>> + Send {
        let (by, batch) =
            (Author::Owner(above.clone()), Batch::of([Change::Acquire { run: run.clone(), owner: owner.clone(), at }]));
        async move { Ok(one(self, by, batch).await?.into_owned()) }
    }

    /// Says that the owner is alive (relaxed). When it is killed, its time counts as held until then, but for `suspended`: how long since
    /// it last said so its process stood still.
    fn note_alive(
        &self,
        lease: &RunLease,
        suspended: Duration,
        at: Timestamp,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        let (by, batch) = (Author::Owner(lease.clone()), Batch::of([Change::NoteAlive { suspended, at }]));
        async move { one(self, by, batch).await.map(drop) }
    }

    /// Checks that the lease still is the newest; called just before each dispatch.
    fn check_lease(&self, lease: &RunLease) -> impl Future<Output = Result<(), StoreError>> + Send {
        let by = Author::Owner(lease.clone());
        async move { one(self, by, Batch::default()).await.map(drop) }
    }

    /// Ends this process's work on the run, with the calls and questions that end with it, in one write (synced). The lease is of no
    /// use afterwards.
    fn end_run(&self, lease: &RunLease, end: RunEnd) -> impl Future<Output = Result<RunRecord, StoreError>> + Send {
        let (by, batch) = (Author::Owner(lease.clone()), Batch::of([Change::EndRun(end)]));
        async move { Ok(one(self, by, batch).await?.into_run()) }
    }

    /// Opens a step and makes it the current one.
    fn open_step(
        &self,
        lease: &RunLease,
        step: NewStep,
    ) -> impl Future<Output = Result<StepRecord, StoreError>> + Send {
        let (by, batch) = (Author::Owner(lease.clone()), Batch::of([Change::OpenStep(step)]));
        async move { Ok(one(self, by, batch).await?.into_step()) }
    }

    /// Ends the current step and opens the next one with its markers and what the model is told, or opens the first one, in one
    /// write; the new step is the current one. A step that is the current one already is returned as it is.
    fn enter_step(
        &self,
        lease: &RunLease,
        entry: StepEntry,
    ) -> impl Future<Output = Result<StepRecord, StoreError>> + Send {
        let (by, batch) = (Author::Owner(lease.clone()), Batch::of([Change::EnterStep(entry)]));
        async move { Ok(one(self, by, batch).await?.into_step()) }
    }

    /// Ends a step.
    fn close_step(
        &self,
        lease: &RunLease,
        end: StepEnd,
    ) -> impl Future<Output = Result<StepRecord, StoreError>> + Send {
        let (by, batch) = (Author::Owner(lease.clone()), Batch::of([Change::CloseStep(end)]));
        async move { Ok(one(self, by, batch).await?.into_step()) }
    }

    /// Reserves one request to a model, just before it leaves. A reservation that is repeated word for word while it is
    /// open is the same one.
    fn reserve_request(
        &self,
        lease: &RunLease,
        reservation: RequestReservation,
    ) -> impl Future<Output = Result<RequestId, StoreError>> + Send {
        let (by, batch) = (Author::Owner(lease.clone()), Batch::of([Change::Reserve(reservation)]));
        async move { Ok(one(self, by, batch).await?.into_request()) }
    }

    /// Notes the provider's name of a reply that has begun: tentative, until a turn is recorded with it. A request that is not
    /// `reserved` is left as it is; a second name is a `Conflict`.
    fn note_response(
        &self,
        lease: &RunLease,
        request: RequestId,
        response_id: &str,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        let (by, batch) = (
            Author::Owner(lease.clone()),
            Batch::of([Change::NoteResponse { request, response_id: response_id.to_owned() }]),
        );
        async move { one(self, by, batch).await.map(drop) }
    }

    /// Notes what has been heard of the reply to a request that is under way: what its provider counted, and what has arrived. Counts only
    /// grow. It is what the request is charged if nobody lives to say how it ended.
    fn note_usage(
        &self,
        lease: &RunLease,
        request: RequestId,
        heard: Usage,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        let (by, batch) = (Author::Owner(lease.clone()), Batch::of([Change::NoteUsage { request, heard }]));
        async move { one(self, by, batch).await.map(drop) }
    }

    /// Charges a request that brought no turn. A request that is not `reserved` is left as it is.
    fn close_request(
        &self,
        lease: &RunLease,
        request: RequestId,
        end: RequestEnd,
        at: Timestamp,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        let (by, batch) = (Author::Owner(lease.clone()), Batch::of([Change::CloseRequest { request, end, at }]));
        async move { one(self, by, batch).await.map(drop) }
    }

    /// Charges every request that is still `reserved`, because its process died before it was answered: as `partial` for what was noted of
    /// its reply, and as `baseline` when nothing was.
    fn close_lost_requests(
        &self,
        lease: &RunLease,
        at: Timestamp,
    ) -> impl Future<Output = Result<u32, StoreError>> + Send {
        let (by, batch) = (Author::Owner(lease.clone()), Batch::of([Change::CloseLostRequests { at }]));
        async move { Ok(one(self, by, batch).await?.into_count()) }
    }

    /// Records a turn: reply, cost and planned calls in one write, guarded by turn number and epoch.
    fn record_turn(&self, lease: &RunLease, draft: TurnDraft) -> impl Future<Output = Result<(), StoreError>> + Send {
        let (by, batch) = (Author::Owner(lease.clone()), Batch::of([Change::RecordTurn(draft)]));
        async move { one(self, by, batch).await.map(drop) }
    }

    /// Commits a turn: messages appended, `turn_index` raised, checkpoint written. Fails with `Conflict` when the turn
    /// is not the open one, or a call of it is neither settled nor skipped.
    fn commit_turn(
        &self,
        lease: &RunLease,
        commit: TurnCommit,
    ) -> impl Future<Output = Result<RunRecord, StoreError>> + Send {
        let (by, batch) = (Author::Owner(lease.clone()), Batch::of([Change::CommitTurn(commit)]));
        async move { Ok(one(self, by, batch).await?.into_run()) }
    }

    /// Appends messages between turns (resume notes, guidance), at the current `turn_index`; refused while a turn is open.
    /// Messages that are the end of the history already are not appended again.
    fn append_messages(
        &self,
        lease: &RunLease,
        messages: Vec<Message>,
        at: Timestamp,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        let (by, batch) = (Author::Owner(lease.clone()), Batch::of([Change::AppendMessages { messages, at }]));
        async move { one(self, by, batch).await.map(drop) }
    }

    /// Writes a checkpoint marker.
    fn save_checkpoint(
        &self,
        lease: &RunLease,
        checkpoint: NewCheckpoint,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        let (by, batch) = (Author::Owner(lease.clone()), Batch::of([Change::SaveCheckpoint(checkpoint)]));
        async move { one(self, by, batch).await.map(drop) }
    }

    /// Raises a question. When its call has one that is not closed, or the run one that is open and asks the same, that one is returned
    /// and nothing is written.
    fn raise_question(
        &self,
        lease: &RunLease,
        question: NewQuestion,
    ) -> impl Future<Output = Result<QuestionRecord, StoreError>> + Send {
        let (by, batch) = (Author::Owner(lease.clone()), Batch::of([Change::RaiseQuestion(question)]));
        async move { Ok(one(self, by, batch).await?.into_question()) }
    }

    /// Marks a question as acted on.
    fn close_question(
        &self,
        lease: &RunLease,
        question: &QuestionId,
        at: Timestamp,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        let close = Change::CloseQuestion { question: question.clone(), is_withdrawn: false, at };
        let (by, batch) = (Author::Owner(lease.clone()), Batch::of([close]));
        async move { one(self, by, batch).await.map(drop) }
    }

    /// Takes a question back that nobody has answered. False when somebody has by now: their word has to be heard.
    fn withdraw_question(
        &self,
        lease: &RunLease,
        question: &QuestionId,
        at: Timestamp,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send {
        let question = question.clone();
        let close = Change::CloseQuestion { question: question.clone(), is_withdrawn: true, at };
        let (by, batch) = (Author::Owner(lease.clone()), Batch::of([close]));
        async move {
            match one(self, by, batch).await {
                Ok(_) => Ok(true),
                Err(error @ StoreError::Conflict { .. }) => {
                    let is_answered = self.question(&question).await?.status == QuestionStatus::Answered;
                    if is_answered { Ok(false) } else { Err(error) }
                }
                Err(error) => Err(error),
            }
        }
    }

    /// The newest `limit` runs, newest first.
    fn runs(&self, limit: u32) -> impl Future<Output = Result<Vec<RunRecord>, StoreError>> + Send {
        async move { self.runs_of(RunsOf::Newest(limit)).await }
    }

    /// The run that answers for a job key, if any: the newest that is not finished, else the newest.
    fn run_by_job_key(&self, job_key: &str) -> impl Future<Output = Result<Option<RunRecord>, StoreError>> + Send {
        async move { Ok(self.runs_of(RunsOf::JobKey(job_key.to_owned())).await?.pop()) }
    }

    /// The forks and sub-agents of a run, oldest first. What a fork shares is read from its parent's rows, so a run that has
    /// forks keeps its row, its turns up to their fork points and all messages of these.
    fn children(&self, run: &RunId) -> impl Future<Output = Result<Vec<RunRecord>, StoreError>> + Send {
        async move { self.runs_of(RunsOf::Children(run.clone())).await }
    }

    /// Everything about one run, and what it has from its lineage.
    fn load(&self, run: &RunId) -> impl Future<Output = Result<RunRecords, StoreError>> + Send {
        async move { self.load_of(run, Turns::All).await }
    }

    /// What a person changed about a run, oldest first.
    fn overrides(&self, run: &RunId) -> impl Future<Output = Result<Vec<OverrideRecord>, StoreError>> + Send {
        async move { Ok(self.load_of(run, Turns::NONE).await?.overrides) }
    }

    /// One question.
    fn question(&self, question: &QuestionId) -> impl Future<Output = Result<QuestionRecord, StoreError>> + Send {
        async move { only(self.questions_of(QuestionsOf::One(question.clone())).await?, "questions", question) }
    }

    /// Questions that are not closed, of one run or of all, oldest first.
    fn open_questions(
        &self,
        run: Option<&RunId>,
    ) -> impl Future<Output = Result<Vec<QuestionRecord>, StoreError>> + Send {
        async move { self.questions_of(QuestionsOf::Open(run.cloned())).await }
    }

    /// A run with its turns `first` to `last` and what belongs to them. Steps, questions and overrides are there whole, checkpoints
    /// and what it has from its lineage are left out.
    fn load_turns(
        &self,
        run: &RunId,
        first: u32,
        last: u32,
    ) -> impl Future<Output = Result<RunRecords, StoreError>> + Send {
        async move { self.load_of(run, Turns::Range(first, last)).await }
    }

    /// A run as its next owner needs it: what only counts is left out, and counted. A fork is there whole.
    fn load_standing(&self, run: &RunId, keep: Keep) -> impl Future<Output = Result<RunRecords, StoreError>> + Send {
        async move { self.load_of(run, Turns::Standing(keep)).await }
    }

    /// Lets go of a run (synced): it is not found any more, and its name stays taken. Its rows go with the last run of its lineage,
    /// and so do large texts that no other run refers to. A run that is not terminal is refused with `Conflict` unless forced. A run
    /// that was deleted is `NotFound`.
    fn delete_run(&self, deletion: &RunDeletion) -> impl Future<Output = Result<DeletedRun, StoreError>> + Send {
        let (by, batch) = (Author::Command, Batch::of([Change::Delete(deletion.clone())]));
        async move { Ok(one(self, by, batch).await?.into_deleted()) }
    }

    /// Lets the content of blobs go (synced), in one transaction with the look at who refers to them. Their names stay, with the
    /// time; what refers to them still says what was there. A dry run writes nothing.
    fn prune_blobs(&self, prune: BlobPrune) -> impl Future<Output = Result<BlobPruned, StoreError>> + Send {
        let (by, batch) = (Author::Command, Batch::of([Change::PruneBlobs(prune)]));
        async move { Ok(one(self, by, batch).await?.into_pruned()) }
    }
}

impl<T: Store + ?Sized> RunStore for T {}
