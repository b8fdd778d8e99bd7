//! What people, files and clients say that a write stores as it is, and the store that refuses it where a secret stands in it.
//!
//! Security model S3. What tools and models answer is kept without secrets by whoever reads it. What a person says (a job and what a fork changes
//! about it, names, reasons, answers, how a run is started) is kept word for word, goes to the model's provider and stands in files for people;
//! so it is refused with a secret in it. Which words of a change those are is said here, of every change: one that is new cannot be
//! written without saying it, and no front door has to think of looking. Proved by: this file's tests, the end-to-end test
//! `no_option_and_no_file_brings_a_secret_into_what_is_stored`.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use ua_core::{BlobRef, CallId, IdempotencyKey, Redactor, RunId, Scope, Timestamp};

use crate::archive_store::{CallQuery, RunHead, RunQuery};
use crate::blob_store::Blob;
use crate::change::{Author, Batch, Change, Committed};
use crate::commit::NewRun;
use crate::error::StoreError;
use crate::fleet::FleetChange;
use crate::forgotten::{Forgotten, Lost};
use crate::gateway::{GatewayOf, GatewayRecords};
use crate::record::{CallRecord, MessageRecord, QuestionRecord, RunRecord, RunRecords};
use crate::relations::Around;
use crate::store::{CallTrail, CallsOf, PastStore, QuestionsOf, RunsOf, Store, TrailOf, Turns};

/// Words that are stored as they were said.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    /// What they are, as it stands behind "the": "reason".
    pub what: &'static str,
    /// The words, or the JSON that has them.
    pub words: Value,
}

impl Said {
    fn new(what: &'static str, words: impl Into<Value>) -> Self {
        Self { what, words: words.into() }
    }

    /// Refuses words that hold a secret, in whatever dress `redactor` knows it: as they are, and, of a text that is JSON, as that.
    ///
    /// # Errors
    /// [`StoreError::HoldsSecret`].
    pub fn without_secrets(&self, redactor: &Redactor) -> Result<(), StoreError> {
        let written = || serde_json::from_str(self.words.as_str()?).ok();
        let found = redactor.found_in_json(&self.words).or_else(|| redactor.found_in_json(&written()?));
        match found {
            None => Ok(()),
            Some(name) => Err(StoreError::HoldsSecret { what: self.what, name }),
        }
    }
}

/// What is said about a new run.
fn of_run(run: &NewRun) -> Vec<Said> {
    vec![
        Said::new("name of the run", run.run_id.as_str()),
        Said::new("job", json!([run.spec, run.opening])),
        Said::new("name of the job file", json!(run.job_path)),
        Said::new("folder of the run", run.workspace_dir.as_str()),
        // Names of providers and models, and paths.
        Said::new("way that the run is started", run.launch.clone()),
    ]
}

impl Change {
    /// The words of people, files and clients that it stores.
    pub fn said(&self) -> Vec<Said> {
        match self {
            Self::Submit(run) | Self::SubmitAgain { run, .. } => of_run(run),
            Self::Fork(fork) => {
                let mut said = of_run(&fork.run);
                said.push(Said::new("note for the fork", json!(fork.note)));
                said
            }
            Self::OpenSession(new) => {
                let mut said = of_run(&new.run);
                said.push(Said::new("session", json!(new.session)));
                said
            }
            Self::Answer(new) => {
                let answer = &new.answer;
                let words =
                    [("answer", answer.text.as_ref()), ("proof", answer.proof.as_ref()), ("name", Some(&new.by))];
                words.into_iter().filter_map(|(what, words)| Some(Said::new(what, words?.as_str()))).collect()
            }
            Self::Override(new) => vec![
                Said::new("change of the run", json!([new.component, new.value])),
                Said::new("name", new.made_by.as_str()),
            ],
            Self::RequestCancel { reason, .. } => vec![Said::new("reason", reason.as_str())],
            Self::Correct(correct) => {
                let said = &correct.correction;
                let words = [("reason", Some(&said.reason)), ("proof", said.proof.as_ref()), ("name", Some(&said.by))];
                words.into_iter().filter_map(|(what, words)| Some(Said::new(what, words?.as_str()))).collect()
            }
            Self::Delete(deletion) => deletion.by.iter().map(|by| Said::new("name", by.as_str())).collect(),
            // What a person said to the first three was refused as an answer. The owner of a run stores what tools and models answered, which it has
            // without secrets; a task of a sub-agent is such words. The rest is the program's own.
            Self::ResolveLate { .. }
            | Self::ResolveUnknown { .. }
            | Self::Recall(_)
            | Self::Acquire { .. }
            | Self::PruneBlobs(_)
            | Self::NoteAlive { .. }
            | Self::EndRun(_)
            | Self::OpenStep(_)
            | Self::EnterStep(_)
            | Self::CloseStep(_)
            | Self::Reserve(_)
            | Self::NoteResponse { .. }
            | Self::NoteUsage { .. }
            | Self::CloseRequest { .. }
            | Self::CloseLostRequests { .. }
            | Self::RecordTurn(_)
            | Self::CommitTurn(_)
            | Self::AppendMessages { .. }
            | Self::SaveCheckpoint(_)
            | Self::RaiseQuestion(_)
            | Self::CloseQuestion { .. }
            | Self::StartAttempt(_)
            | Self::KeepHandle(_)
            | Self::SettleAttempt(_)
            | Self::InterpretReceipt { .. }
            | Self::Deduplicate { .. }
            | Self::CancelCalls { .. }
            | Self::MarkLost { .. }
            | Self::Arrive(_)
            | Self::Deliver { .. }
            | Self::NoteReplay { .. } => Vec::new(),
        }
    }
}

impl FleetChange {
    /// The words of people and files that it stores.
    pub fn said(&self) -> Vec<Said> {
        match self {
            Self::Register(worker) => {
                vec![
                    Said::new("name of the worker", worker.worker.as_str()),
                    Said::new("name of a queue", json!(worker.queues)),
                ]
            }
            // The name of the schedule is stored already.
            Self::Enqueue { options, .. } | Self::EnqueueDue { options, .. } => {
                let mut said = vec![Said::new("name of the queue", options.queue.as_str())];
                said.extend(options.concurrency.as_ref().map(|seats| Said::new("concurrency key", seats.key.as_str())));
                said.extend(options.fair_key.as_ref().map(|key| Said::new("fair key", key.as_str())));
                said
            }
            Self::Move { queue, .. } => {
                queue.iter().map(|queue| Said::new("name of the queue", queue.as_str())).collect()
            }
            Self::PutSchedule(schedule) => vec![
                Said::new("name of the schedule", schedule.name.as_str()),
                Said::new("schedule", json!([schedule.cron, schedule.time_zone, schedule.job])),
            ],
            // They name what is stored.
            Self::Renew { .. }
            | Self::Drain { .. }
            | Self::Leave { .. }
            | Self::ForgetPlace { .. }
            | Self::Claim { .. }
            | Self::Release { .. }
            | Self::Withdraw { .. }
            | Self::Advance { .. }
            | Self::RemoveSchedule { .. } => Vec::new(),
        }
    }
}

/// A store that takes no word of a person with a secret in it.
#[derive(Clone)]
pub struct Guarded {
    store: Arc<dyn Store>,
    redactor: Redactor,
}

impl Guarded {
    /// `store`, guarded by what `redactor` knows by the time of each write.
    pub fn new(store: Arc<dyn Store>, redactor: Redactor) -> Self {
        Self { store, redactor }
    }
}

#[async_trait]
impl Store for Guarded {
    async fn commit(&self, by: &Author, batch: Batch) -> Result<Committed, StoreError> {
        batch.changes().flat_map(Change::said).try_for_each(|said| said.without_secrets(&self.redactor))?;
        self.store.commit(by, batch).await
    }

    async fn run(&self, run: &RunId) -> Result<RunRecord, StoreError> {
        self.store.run(run).await
    }

    async fn runs_of(&self, of: RunsOf) -> Result<Vec<RunRecord>, StoreError> {
        self.store.runs_of(of).await
    }

    async fn find_runs(&self, query: &RunQuery) -> Result<Vec<RunHead>, StoreError> {
        self.store.find_runs(query).await
    }

    async fn find_calls(&self, query: &CallQuery) -> Result<Vec<CallRecord>, StoreError> {
        self.store.find_calls(query).await
    }

    async fn load_of(&self, run: &RunId, turns: Turns) -> Result<RunRecords, StoreError> {
        self.store.load_of(run, turns).await
    }

    async fn history(&self, run: &RunId) -> Result<Vec<MessageRecord>, StoreError> {
        self.store.history(run).await
    }

    async fn questions_of(&self, of: QuestionsOf) -> Result<Vec<QuestionRecord>, StoreError> {
        self.store.questions_of(of).await
    }

    async fn calls_of(&self, of: CallsOf) -> Result<Vec<CallRecord>, StoreError> {
        self.store.calls_of(of).await
    }

    async fn database_id(&self) -> Result<String, StoreError> {
        self.store.database_id().await
    }

    async fn around(
        &self,
        call: &CallId,
        scope: Option<&Scope>,
        key: Option<&IdempotencyKey>,
        most_effects: u32,
    ) -> Result<Around, StoreError> {
        self.store.around(call, scope, key, most_effects).await
    }

    async fn trail(&self, call: &CallId, of: TrailOf) -> Result<CallTrail, StoreError> {
        self.store.trail(call, of).await
    }

    async fn gateway_of(&self, of: GatewayOf) -> Result<GatewayRecords, StoreError> {
        self.store.gateway_of(of).await
    }

    async fn blob(&self, blob: &BlobRef) -> Result<Blob, StoreError> {
        self.store.blob(blob).await
    }
}

#[async_trait]
impl PastStore for Guarded {
    async fn forgotten(&self, run: &RunId) -> Result<Vec<Forgotten>, StoreError> {
        self.store.forgotten(run).await
    }

    async fn lost(&self, run: &RunId) -> Result<Vec<Lost>, StoreError> {
        self.store.lost(run).await
    }

    async fn accept_forgotten(
        &self,
        run: &RunId,
        forgotten: &[Forgotten],
        by: Option<&str>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.store.accept_forgotten(run, forgotten, by, at).await
    }

    fn unnoted(&self) -> Option<String> {
        self.store.unnoted()
    }
}
