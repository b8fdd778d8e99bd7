//! The storage port: one write and the reads.

use async_trait::async_trait;
use ua_core::{BlobRef, CallId, IdempotencyKey, QuestionId, RunId, Scope, Timestamp};

use crate::archive_store::{CallQuery, RunHead, RunQuery};
use crate::blob_store::Blob;
use crate::change::{Author, Batch, Committed};
use crate::error::StoreError;
use crate::forgotten::{Forgotten, Lost};
use crate::gateway::{GatewayOf, GatewayRecords};
use crate::record::{
    AttemptRecord, CallRecord, EventRecord, MessageRecord, QuestionRecord, ReceiptRecord, RunRecord, RunRecords,
};
use crate::relations::Around;
use crate::standing::Keep;

/// Which runs are read whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunsOf {
    /// So many of the newest, newest first.
    Newest(u32),
    /// The one that answers for a job key: the newest that is not finished, else the newest.
    JobKey(String),
    /// The forks and sub-agents of a run, oldest first. What a fork shares is read from its parent's rows, so a run that has forks keeps
    /// its row, its turns up to their fork points and all messages of these.
    Children(RunId),
}

/// Which calls are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallsOf {
    /// This one; `NotFound` when there is none.
    One(CallId),
    /// Those of a run, by position; of one turn if given.
    Run(RunId, Option<u32>),
    /// Those of any run that are `unknown` and not skipped, oldest first.
    Unknown,
    /// Those of any run that were sent, may have an effect, and have changed at or after this moment, oldest first.
    EffectsSince(Timestamp),
    /// Those of a lineage that were sent, may have an effect, and have changed behind this place in the database's history
    /// ([`EventRecord::seq`]), oldest first. Clocks are set, and those of two machines differ: the order of the changes says what came
    /// first.
    EffectsBehind(RunId, u64),
    /// Those of a lineage with an effect kind whose record a person corrected, oldest first.
    Corrected(RunId),
    /// The one of a lineage that holds a key, if any.
    Holder(RunId, IdempotencyKey),
    /// Those of a lineage that were sent and whose scope begins so, oldest first.
    ScopeBegins(RunId, String),
}

/// Which questions are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuestionsOf {
    /// This one; `NotFound` when there is none.
    One(QuestionId),
    /// Those that are not closed, of one run or of all, oldest first.
    Open(Option<RunId>),
    /// All of a run, oldest first.
    Run(RunId),
}

/// Which turns of a run are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turns {
    /// All, with what the run has from its lineage.
    All,
    /// From one to another, and what belongs to them: steps, questions and overrides are there whole, checkpoints and what the run has from
    /// its lineage are left out.
    Range(u32, u32),
    /// All that a run's next owner needs: how the run stands, and of its past what still counts
    /// ([`RunRecords::leave_out`]).
    Standing(Keep),
    /// None, and what is there whole, and of its checkpoints, oldest first, those behind so many, at most so many.
    Markers(u32, u32),
}

impl Turns {
    /// None, and what is there whole.
    pub const NONE: Self = Self::Range(1, 0);
}

/// What of a call's past is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrailOf {
    /// Its attempts and its changes of status.
    Changes,
    /// What came back last.
    Receipt,
}

/// What happened to a call, oldest first: what was asked for of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallTrail {
    /// Its newest receipt.
    pub receipt: Option<ReceiptRecord>,
    /// Its attempts.
    pub attempts: Vec<AttemptRecord>,
    /// Its changes of status.
    pub events: Vec<EventRecord>,
}

/// What lies beside a database, and knows more than one that went back in time.
#[async_trait]
pub trait PastStore: Send + Sync {
    /// What is known beside this database about the family of `run` (the runs that it is joined with by forks and tasks) and not in it: attempts,
    /// what came of them, words of people; and attempts of which nobody knows any more whose they are. While there is any, the database went back
    /// in time, and driving the run could repeat an effect. Of a run that the database does not know itself, its own ones count. A store
    /// that keeps nothing beside itself, or cannot go back, knows of none.
    async fn forgotten(&self, run: &RunId) -> Result<Vec<Forgotten>, StoreError>;

    /// What of that a person [accepted](Self::accept_forgotten) for the family of `run` and the database still lacks, oldest first: attempts of
    /// calls that it does not have, or has as they were before. It stops nobody, and whoever is about to do the like may repeat it.
    async fn lost(&self, run: &RunId) -> Result<Vec<Lost>, StoreError>;

    /// Notes that a person looked at what was [forgotten](Self::forgotten) of `run` and accepts it: it no longer stops the run's family. What the
    /// family itself sent stops nobody any more; what others sent still does for every other run that may do the same again. `by` is who.
    async fn accept_forgotten(
        &self,
        run: &RunId,
        forgotten: &[Forgotten],
        by: Option<&str>,
        at: Timestamp,
    ) -> Result<(), StoreError>;

    /// Why something that belongs beside this database could not be written there since it was opened, in words: should a copy be put back
    /// later, [`forgotten`](Self::forgotten) does not know of it. `None` while all was written.
    fn unnoted(&self) -> Option<String>;
}

/// The whole port. Writes are [changes](crate::Change) in batches, each one transaction; [`RunStore`](crate::RunStore),
/// [`LedgerStore`](crate::LedgerStore) and [`GatewayStore`](crate::GatewayStore) have a word for each.
#[async_trait]
pub trait Store: PastStore {
    /// Commits a batch. A write is on stable storage before this returns when any change of the batch is synced; otherwise it survives any
    /// kill of the process, and becomes durable with the next synced write.
    async fn commit(&self, by: &Author, batch: Batch) -> Result<Committed, StoreError>;

    /// One run.
    async fn run(&self, run: &RunId) -> Result<RunRecord, StoreError>;

    /// Several runs.
    async fn runs_of(&self, of: RunsOf) -> Result<Vec<RunRecord>, StoreError>;

    /// The runs that are looked for, newest first.
    async fn find_runs(&self, query: &RunQuery) -> Result<Vec<RunHead>, StoreError>;

    /// The calls that are looked for, newest first; those of deleted runs are not found.
    async fn find_calls(&self, query: &CallQuery) -> Result<Vec<CallRecord>, StoreError>;

    /// A run and what belongs to it.
    async fn load_of(&self, run: &RunId, turns: Turns) -> Result<RunRecords, StoreError>;

    /// The history: all messages of turns up to the committed one, in order, those it shares with its parents included.
    async fn history(&self, run: &RunId) -> Result<Vec<MessageRecord>, StoreError>;

    /// Questions.
    async fn questions_of(&self, of: QuestionsOf) -> Result<Vec<QuestionRecord>, StoreError>;

    /// Calls.
    async fn calls_of(&self, of: CallsOf) -> Result<Vec<CallRecord>, StoreError>;

    /// What tells this database from every other one: chance, made with it and kept by its copies. Runs of two databases may have one name.
    async fn database_id(&self) -> Result<String, StoreError>;

    /// What a decision about a call goes by whose effect is `scope` and which would be sent under `key`, from one snapshot. Of the effects of
    /// its kind up to `most_effects` are counted, as its start would count them.
    async fn around(
        &self,
        call: &CallId,
        scope: Option<&Scope>,
        key: Option<&IdempotencyKey>,
        most_effects: u32,
    ) -> Result<Around, StoreError>;

    /// What happened to a call, or its newest receipt.
    async fn trail(&self, call: &CallId, of: TrailOf) -> Result<CallTrail, StoreError>;

    /// What the gateway stored.
    async fn gateway_of(&self, of: GatewayOf) -> Result<GatewayRecords, StoreError>;

    /// What a reference to a blob names, checked against its size and digest.
    async fn blob(&self, blob: &BlobRef) -> Result<Blob, StoreError>;
}

/// The one row that was asked for.
pub(crate) fn only<T>(rows: Vec<T>, table: &'static str, id: &impl std::fmt::Display) -> Result<T, StoreError> {
    rows.into_iter().next().ok_or_else(|| crate::rules::not_found(table, id))
}
