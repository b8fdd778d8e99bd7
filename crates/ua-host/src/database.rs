//! The runtime database: a file, or one on a server. Here alone it is known which.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ua_core::{BlobRef, CallId, IdempotencyKey, PrintedCommand, RunId, Scope, Sha256, Timestamp};
use ua_resume::Commands;
use ua_store::{
    Around, Author, Batch, Blob, CallQuery, CallRecord, CallTrail, CallsOf, Change, Committed, Durability, FleetChange,
    FleetDone, FleetState, FleetStore, Forgotten, GatewayOf, GatewayRecords, Lost, MessageRecord, PastStore,
    QuestionRecord, QuestionsOf, QueueDepth, QueueEntry, RunHead, RunQuery, RunRecord, RunRecords, RunsOf, Store,
    StoreError, TrailOf, Turns,
};
#[cfg(feature = "postgres")]
use ua_store_postgres::PostgresStore;
use ua_store_sqlite::SqliteStore;

use crate::error::HostError;
use crate::words::KnownSecrets;

/// Where the lineage of a run is driven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whereabouts {
    /// Where this process is.
    Here,
    /// In another folder, or on another machine.
    Elsewhere(OtherPlace),
    /// It was never driven, or a person said that the machine that drove it is gone.
    Nowhere,
}

/// A folder of workspaces that is not this one, on whatever machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherPlace {
    /// Its id, which `ua workers forget` takes.
    pub id: String,
    /// Where it is, for people.
    pub shown: String,
}

impl OtherPlace {
    /// The command that gives it up, in backticks. Whoever writes to the database chose its id, and a person copies the command.
    pub(crate) fn forget(&self) -> String {
        PrintedCommand::of("ua workers forget").word(&self.id).in_code()
    }

    /// A command as it is given there, and what is said behind it where that is another machine than that of `here`: given in this root, one that
    /// takes a run is refused.
    pub fn command(&self, command: &str, here: &str) -> (String, String) {
        let Some((root, host)) = self.shown.rsplit_once(" on ") else { return (command.to_owned(), String::new()) };
        let is_this_machine = here.rsplit_once(" on ").is_some_and(|(_, here)| here == host);
        let command = Commands::naming(Path::new(root)).complete(command).into_owned();
        (command, if is_this_machine { String::new() } else { format!(", on {host}") })
    }
}

/// The runtime database, open. It takes no word of a person, a file or a client with a secret in it ([`ua_store::Said`]).
#[derive(Debug)]
pub struct Database {
    kept: Kept,
    known: KnownSecrets,
    written: Written,
}

/// How many batches were committed here.
#[derive(Debug, Default)]
struct Written {
    all: AtomicU64,
    synced: AtomicU64,
}

/// Where the rows are.
#[derive(Debug)]
enum Kept {
    /// In a file.
    File(SqliteStore),
    /// On a PostgreSQL server.
    #[cfg(feature = "postgres")]
    Server(PostgresStore),
}

/// A right that one process has of all that use the database.
#[derive(Debug)]
pub(crate) enum OnlyOne {
    /// Of a file; locks of the machine say it.
    OfFile,
    /// Of a server.
    #[cfg(feature = "postgres")]
    OfServer(#[expect(dead_code, reason = "it is held, and given back when it is dropped")] ua_store_postgres::OnlyOne),
}

impl Database {
    /// One that is a file.
    pub(crate) fn file(store: SqliteStore, known: &KnownSecrets) -> Self {
        Self { kept: Kept::File(store), known: known.clone(), written: Written::default() }
    }

    /// One on a server.
    #[cfg(feature = "postgres")]
    pub(crate) fn server(store: PostgresStore, known: &KnownSecrets) -> Self {
        Self { kept: Kept::Server(store), known: known.clone(), written: Written::default() }
    }

    /// How many writes were committed since it was opened, and how many of them waited for the disk.
    pub(crate) fn commits(&self) -> (u64, u64) {
        (self.written.all.load(Ordering::Relaxed), self.written.synced.load(Ordering::Relaxed))
    }

    /// How often a server was asked something and waited for since the database was opened; a file is asked without a flight.
    pub(crate) fn flights(&self) -> u64 {
        match &self.kept {
            Kept::File(_) => 0,
            #[cfg(feature = "postgres")]
            Kept::Server(store) => store.flights(),
        }
    }

    fn port(&self) -> &dyn FleetStore {
        match &self.kept {
            Kept::File(store) => store,
            #[cfg(feature = "postgres")]
            Kept::Server(store) => store,
        }
    }

    /// Folders of workspaces, on which machine, that hold runs which have not ended: id, where it is, and how many. A file has one only, which
    /// is not told.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn places(&self) -> Result<Vec<(String, String, u64)>, StoreError> {
        match &self.kept {
            Kept::File(_) => Ok(Vec::new()),
            #[cfg(feature = "postgres")]
            Kept::Server(store) => {
                let held = store.places().await?.into_iter();
                Ok(held.map(|held| (held.place, held.shown, held.unfinished)).collect())
            }
        }
    }

    /// The runs of a place that a process took and did not leave, alive or not. A file has one place, which is not asked about.
    ///
    /// # Errors
    /// The database cannot be read.
    #[cfg_attr(not(feature = "postgres"), expect(unused_variables, reason = "a file has one place"))]
    pub async fn taken_in(&self, place: &str) -> Result<Vec<RunId>, StoreError> {
        match &self.kept {
            Kept::File(_) => Ok(Vec::new()),
            #[cfg(feature = "postgres")]
            Kept::Server(store) => store.taken_in(place).await,
        }
    }

    /// Whether `effects.log` knows anything that the database does not, of whichever run; of a server, whether runs are held because it has another
    /// history than before.
    ///
    /// # Errors
    /// The database or the log cannot be read.
    pub async fn is_older_copy(&self) -> Result<bool, StoreError> {
        match &self.kept {
            Kept::File(store) => store.is_older_copy().await,
            #[cfg(feature = "postgres")]
            Kept::Server(store) => Ok(!store.held(None).await?.is_empty()),
        }
    }

    /// The other place that has the gateway of this database, if one has. A file is in the folder of its gateway.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn gateway_elsewhere(&self) -> Result<Option<OtherPlace>, StoreError> {
        match &self.kept {
            Kept::File(_) => Ok(None),
            #[cfg(feature = "postgres")]
            Kept::Server(store) => {
                let found = store.gateway_elsewhere().await?;
                Ok(found.map(|place| OtherPlace { id: place.id, shown: place.shown }))
            }
        }
    }

    /// Where the lineages of runs are driven. A file is used from where it lies, so whoever reads it is there, whatever the machine is called now:
    /// the same folder in a new container is the same place.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn whereabouts(&self, runs: &[&RunId]) -> Result<Vec<Whereabouts>, StoreError> {
        match &self.kept {
            Kept::File(_) => Ok(vec![Whereabouts::Here; runs.len()]),
            #[cfg(feature = "postgres")]
            Kept::Server(store) => {
                let mut known = store.whereabouts(runs).await?;
                let found = runs.iter().map(|run| match known.remove(run.as_str()) {
                    Some(None) => Whereabouts::Here,
                    Some(Some(place)) => Whereabouts::Elsewhere(OtherPlace { id: place.id, shown: place.shown }),
                    None => Whereabouts::Nowhere,
                });
                Ok(found.collect())
            }
        }
    }

    /// The place that drives a run, if it is another one: what locks say here says nothing about it.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn elsewhere(&self, run: &RunId) -> Result<Option<OtherPlace>, HostError> {
        match self.whereabouts(&[run]).await.map_err(|e| HostError::store("look where the run is driven", &e))?.pop() {
            Some(Whereabouts::Elsewhere(place)) => Ok(Some(place)),
            Some(Whereabouts::Here | Whereabouts::Nowhere) | None => Ok(None),
        }
    }

    /// Takes the right to do what `what` stands for, beside which nobody does it with this database, behind whoever has it; `None` when that took
    /// longer than `wait`. It is given back when it is dropped or its connection ends. A file is of one machine, whose processes have locks of
    /// their own for it.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub(crate) async fn only_one(&self, what: Sha256, wait: Duration) -> Result<Option<OnlyOne>, StoreError> {
        match &self.kept {
            Kept::File(_) => {
                // Whatever it is, and however long it may take: nobody else has this file.
                std::hint::black_box((what, wait));
                Ok(Some(OnlyOne::OfFile))
            }
            #[cfg(feature = "postgres")]
            Kept::Server(store) => Ok(store.only_one(what, wait).await?.map(OnlyOne::OfServer)),
        }
    }

    /// Closes it in good order.
    ///
    /// # Errors
    /// What could not be ended as it should; whatever was committed stays.
    pub fn close(self) -> Result<(), StoreError> {
        match self.kept {
            Kept::File(store) => store.close(),
            #[cfg(feature = "postgres")]
            Kept::Server(store) => {
                store.close();
                Ok(())
            }
        }
    }
}

#[async_trait]
impl Store for Database {
    async fn commit(&self, by: &Author, batch: Batch) -> Result<Committed, StoreError> {
        self.known.refuse_in(batch.changes().flat_map(Change::said))?;
        let (writes, is_synced) = (batch.changes().next().is_some(), batch.durability() == Durability::Synced);
        let committed = self.port().commit(by, batch).await?;
        self.written.all.fetch_add(u64::from(writes), Ordering::Relaxed);
        self.written.synced.fetch_add(u64::from(writes && is_synced), Ordering::Relaxed);
        Ok(committed)
    }

    async fn run(&self, run: &RunId) -> Result<RunRecord, StoreError> {
        self.port().run(run).await
    }

    async fn runs_of(&self, of: RunsOf) -> Result<Vec<RunRecord>, StoreError> {
        self.port().runs_of(of).await
    }

    async fn find_runs(&self, query: &RunQuery) -> Result<Vec<RunHead>, StoreError> {
        self.port().find_runs(query).await
    }

    async fn find_calls(&self, query: &CallQuery) -> Result<Vec<CallRecord>, StoreError> {
        self.port().find_calls(query).await
    }

    async fn load_of(&self, run: &RunId, turns: Turns) -> Result<RunRecords, StoreError> {
        self.port().load_of(run, turns).await
    }

    async fn history(&self, run: &RunId) -> Result<Vec<MessageRecord>, StoreError> {
        self.port().history(run).await
    }

    async fn questions_of(&self, of: QuestionsOf) -> Result<Vec<QuestionRecord>, StoreError> {
        self.port().questions_of(of).await
    }

    async fn calls_of(&self, of: CallsOf) -> Result<Vec<CallRecord>, StoreError> {
        self.port().calls_of(of).await
    }

    async fn database_id(&self) -> Result<String, StoreError> {
        self.port().database_id().await
    }

    async fn around(
        &self,
        call: &CallId,
        scope: Option<&Scope>,
        key: Option<&IdempotencyKey>,
        most_effects: u32,
    ) -> Result<Around, StoreError> {
        self.port().around(call, scope, key, most_effects).await
    }

    async fn trail(&self, call: &CallId, of: TrailOf) -> Result<CallTrail, StoreError> {
        self.port().trail(call, of).await
    }

    async fn gateway_of(&self, of: GatewayOf) -> Result<GatewayRecords, StoreError> {
        self.port().gateway_of(of).await
    }

    async fn blob(&self, blob: &BlobRef) -> Result<Blob, StoreError> {
        self.port().blob(blob).await
    }
}

#[async_trait]
impl PastStore for Database {
    async fn forgotten(&self, run: &RunId) -> Result<Vec<Forgotten>, StoreError> {
        self.port().forgotten(run).await
    }

    async fn lost(&self, run: &RunId) -> Result<Vec<Lost>, StoreError> {
        self.port().lost(run).await
    }

    async fn accept_forgotten(
        &self,
        run: &RunId,
        forgotten: &[Forgotten],
        by: Option<&str>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.port().accept_forgotten(run, forgotten, by, at).await
    }

    fn unnoted(&self) -> Option<String> {
        self.port().unnoted()
    }
}

#[async_trait]
impl FleetStore for Database {
    async fn fleet_now(&self, own: Timestamp) -> Result<Timestamp, StoreError> {
        self.port().fleet_now(own).await
    }

    async fn fleet(&self, change: FleetChange) -> Result<FleetDone, StoreError> {
        self.known.refuse_in(change.said())?;
        self.port().fleet(change).await
    }

    async fn fleet_state(&self, most: u32) -> Result<FleetState, StoreError> {
        self.port().fleet_state(most).await
    }

    async fn queue_depths(&self, now: Timestamp) -> Result<Vec<QueueDepth>, StoreError> {
        self.port().queue_depths(now).await
    }

    async fn queued(&self, run: &RunId) -> Result<Option<QueueEntry>, StoreError> {
        self.port().queued(run).await
    }
}
