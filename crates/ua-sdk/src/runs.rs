//! The folder of runs: where what came of steps is kept, and what can be done with it.
//!
//! One database, one folder of locks, and a folder for each run: one run's files are never another's.

mod budgets;
mod let_go;
mod look;
mod resolve;

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ua_core::{Audience, BudgetStop, Component, Env, Redactor, RunId, RunStatus, RunStop, ShowPath as _};
use ua_dispatch::{StopSignal, Through, ToolTransport};
use ua_ledger::NotTaken;
use ua_runner::{RunEvent, RunLock, StepHost, StepOutcome as Outcome};
use ua_store::{
    Answer, Choice, Forgotten, Guarded, QuestionRecord, QuestionStatus, RunQuery, RunRecord, RunStore as _, Store,
    StoreError, Turns, Walk,
};

pub use resolve::CallOutcome;

use crate::deep::Deep;
use crate::error::Error;
use crate::step::Step;
use crate::stream::{Events, RunStream};
use crate::tool::{Call, Failure};

/// Who answers and changes, in the records.
const BY: &str = "the program";

/// How often [`Runs::wait`] looks.
const LOOK: Duration = Duration::from_millis(200);

/// A folder of runs. Clones are the same folder.
#[derive(Clone)]
#[must_use = "runs are driven and looked at by what is called on them"]
pub struct Runs {
    folder: PathBuf,
    store: Arc<dyn Store>,
    env: Env,
    redactor: Redactor,
    watcher: ua_runner::Watcher,
    /// One for all clones.
    stop: StopSignal,
    /// They were opened to be looked at.
    is_read_only: bool,
    kept: Kept,
}

/// Where the records of runs are, as far as a copy of them can be told from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// In the folder's own database.
    #[cfg(feature = "sqlite")]
    Here,
    /// On a server, which knows the folder by its name.
    #[cfg(feature = "postgres")]
    OnServer,
    /// In a store of the program's.
    Elsewhere,
}

/// The folder's own database.
#[cfg(feature = "sqlite")]
const DATABASE: &str = "runtime_state.db";

/// Refuses a folder that has no database of its own because its runs are in one on a server. The name that it has there is kept beside the locks.
#[cfg(feature = "sqlite")]
fn refuse_what_is_on_a_server(folder: &Path) -> Result<(), Error> {
    let has_effects = folder.join("effects.log").metadata().is_ok_and(|log| log.len() > 0);
    let was_served = folder.join("locks").join("root_id").is_file() && folder.join("workspaces").is_dir();
    if !was_served || has_effects || !ua_store_sqlite::holds_nothing(&folder.join(DATABASE)) {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "the runs of {} are in a database on a server: `Runs::on_server` (with the feature `postgres`) uses them, and another folder has other \
         runs; nothing was changed",
        folder.shown()
    )))
}

impl Runs {
    /// The runs in `folder`, which is made when it is not there. Several processes may have it open; one at a time drives a run.
    /// `ua --root FOLDER` shows the same runs. It is opened by the process that uses it: a child of `fork(2)`, as a daemon is one, has none
    /// of the thread that writes, so a program that goes into the background opens it there.
    ///
    /// # Errors
    /// [`Error::Folder`] and [`Error::Store`] when the folder or its database cannot be used; also when there are workspaces and their
    /// database is gone: it is what keeps effects from happening twice, so no new one is made. [`Error::Refused`] when the folder's runs are in a
    /// database on a server (`Runs::on_server`).
    #[cfg(feature = "sqlite")]
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, Error> {
        let folder = made(folder.as_ref())?;
        refuse_what_is_on_a_server(&folder)?;
        let path = folder.join(DATABASE);
        let expected_existing = folder.join("workspaces").is_dir();
        let config = ua_store_sqlite::SqliteConfig { expected_existing, ..ua_store_sqlite::SqliteConfig::new(path) };
        let store = ua_store_sqlite::SqliteStore::open(config).map_err(Error::store("open the runs"))?;
        Ok(Self { kept: Kept::Here, ..Self::with(folder, Arc::new(store)) })
    }

    /// The runs in `folder`, to be looked at: nothing is made or changed there, so a folder that cannot be written will do. What would write is
    /// refused.
    ///
    /// # Errors
    /// [`Error::Store`] when there is no database, or it cannot be read: one of an older version has to be [opened](Runs::open) first.
    /// [`Error::Refused`] as by [`Runs::open`].
    #[cfg(feature = "sqlite")]
    pub fn open_read_only(folder: impl AsRef<Path>) -> Result<Self, Error> {
        let folder = absolute(folder.as_ref())?;
        refuse_what_is_on_a_server(&folder)?;
        let store = ua_store_sqlite::SqliteStore::open_read_only(folder.join(DATABASE));
        let runs = Self::with(folder, Arc::new(store.map_err(Error::store("open the runs"))?));
        Ok(Self { is_read_only: true, ..runs })
    }

    /// Refuses to drive what was opened to be looked at, before a lock or a folder is made for it.
    fn may_be_driven(&self) -> Result<(), Error> {
        if self.is_read_only {
            return Err(Error::Refused(
                "these runs were opened to be looked at (`Runs::open_read_only`); `Runs::open` runs steps".to_owned(),
            ));
        }
        Ok(())
    }

    /// Refuses to change what was opened to be looked at, before anything is read for it.
    fn may_be_changed(&self) -> Result<(), Error> {
        if self.is_read_only {
            return Err(Error::Refused(
                "these runs were opened to be looked at (`Runs::open_read_only`); with `Runs::open` they can be changed"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Learns the keys that a step is given, and refuses one that says any of them itself: it would be stored, and sent to the model.
    fn refuse_secrets(&self, step: &Step, id: &str) -> Result<(), Error> {
        if let Some(model) = &step.model {
            self.redactor.learn(model.secrets.clone());
        }
        #[cfg(feature = "mcp")]
        if let Some(servers) = &step.servers {
            self.redactor.learn(crate::servers::secrets(&servers.specs));
        }
        step.refuse_secrets(&self.redactor, id)
    }

    /// Refuses to drive a run of which there is another copy that is used, or that has its turns from one.
    async fn refuse_copies(&self, run: &RunId) -> Result<(), Error> {
        let looking = "look for another copy of the run";
        let (mut walk, mut next) = (Walk::default(), Some(run.clone()));
        while let Some(run) = walk.up(next.as_ref()).map_err(Error::store(looking))? {
            let record = match self.store.run(&run).await {
                Ok(record) => record,
                // It does not exist yet, or was deleted.
                Err(StoreError::NotFound { .. }) => break,
                Err(source) => return Err(Error::store(looking)(source)),
            };
            if let Some((ours, theirs)) = self.other_copy(&record) {
                return Err(Error::Refused(format!(
                    "run {run} is in two copies of one database, and what is sent by one of them the other does not know: {} is open, and {} \
                     lies where the run was begun; nothing was sent; open that one, or move it away if this one is newer",
                    ours.shown(),
                    theirs.shown()
                )));
            }
            next = record.parent_run_id;
        }
        Ok(())
    }

    /// What is used here, and what is a copy of it where the run was begun.
    fn other_copy(&self, run: &RunRecord) -> Option<(PathBuf, PathBuf)> {
        let folder = Path::new(&run.workspace_dir).parent()?.parent()?;
        match self.kept {
            #[cfg(feature = "sqlite")]
            Kept::Here => {
                use ua_store_sqlite::{AnotherCopy, another_copy};
                let ours = self.folder.join(DATABASE);
                let (AnotherCopy::Here(theirs) | AnotherCopy::Moved(theirs)) =
                    another_copy(&ours, &folder.join(DATABASE))?;
                Some((ours, theirs))
            }
            #[cfg(feature = "postgres")]
            Kept::OnServer => {
                #[cfg(feature = "sqlite")]
                if ua_store_sqlite::holds_run(&folder.join(DATABASE), &run.run_id, run.created_at) {
                    return Some((self.folder.clone(), folder.join(DATABASE)));
                }
                let is_one = std::fs::canonicalize(folder).ok()? == std::fs::canonicalize(&self.folder).ok()?;
                let of = |folder: &Path| ua_store_postgres::Place::known(folder, &folder.join("locks"));
                let is_copy = of(folder)?.id == of(&self.folder)?.id;
                (is_copy && !is_one).then(|| (self.folder.clone(), folder.to_path_buf()))
            }
            Kept::Elsewhere => None,
        }
    }

    /// Makes the schema of this version in a database on a PostgreSQL server, or brings an older one up to date; an existing one of this version stays as it is.
    /// Once for a database, as a role that may make schemas; who only runs steps needs less: [`Runs::on_server`]. The program `ua` has it as
    /// `ua db migrate`.
    ///
    /// # Errors
    /// [`Error::Store`] when the server cannot be reached or does not let this role; when its schema is of a newer version; when workers of an older
    /// one still work there.
    #[cfg(feature = "postgres")]
    pub async fn migrate_server(url: &str) -> Result<(), Error> {
        let config = ua_store_postgres::PostgresConfig::from_url(url);
        let config = config.map_err(Error::store("make the schema"))?;
        ua_store_postgres::migrate(&config).await.map(drop).map_err(Error::store("make the schema"))
    }

    /// Runs in a database on a PostgreSQL server, as `postgres://USER@HOST/DATABASE`, with workspaces and locks in `folder`. It has a schema of this
    /// version already ([`Runs::migrate_server`]), and a run stays with the folder that took it first, a folder with the database that it was used
    /// with first. On the runtime of the caller.
    ///
    /// # Errors
    /// [`Error::Folder`] when the folder cannot be used; [`Error::Store`] when the database cannot; [`Error::Refused`] when the folder's own database
    /// ([`Runs::open`]) has runs that were not moved to a server: what they did would be done again there.
    #[cfg(feature = "postgres")]
    pub async fn on_server(url: &str, folder: impl AsRef<Path>) -> Result<Self, Error> {
        use ua_store_postgres::{Place, PostgresConfig, PostgresStore};
        let folder = made(folder.as_ref())?;
        #[cfg(feature = "sqlite")]
        if ua_store_sqlite::keeps_runs(&folder.join(DATABASE)) {
            return Err(Error::Refused(format!(
                "the runs of {} are in its own database, {DATABASE}, of which the server knows nothing: what they did would be done again there; \
                 `ua db copy` moves them to an empty database on a server, `Runs::open` uses them where they are, and another folder has other \
                 runs; nothing was changed",
                folder.shown()
            )));
        }
        let mut config = PostgresConfig::from_url(url).map_err(Error::store("open the runs"))?;
        config.migrated_by = "`Runs::migrate_server`";
        let place = Place::of(&folder, &folder.join("locks"), &ua_core::system::env().uuid_v7());
        config.place = Some(place.map_err(|cause| Error::Folder { path: folder.clone(), cause })?);
        config.alone_beside = Some(folder.join("locks"));
        let store = PostgresStore::open(&config).await.map_err(Error::store("open the runs"))?;
        Ok(Self { kept: Kept::OnServer, ..Self::with(folder, Arc::new(store)) })
    }

    /// Runs in any store, with workspaces and locks in `folder`.
    ///
    /// # Errors
    /// [`Error::Folder`] when the folder cannot be made.
    pub fn over(store: Arc<dyn Store>, folder: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(Self::with(made(folder.as_ref())?, store))
    }

    fn with(folder: PathBuf, store: Arc<dyn Store>) -> Self {
        let env = ua_runner::with_kept_clock(ua_core::system::env(), folder.join("locks"));
        let redactor = Redactor::default();
        let (watcher, stop) = (Arc::new(|_: RunEvent| {}), StopSignal::default());
        // Whatever is called here: no name, reason, answer or step with a secret in it is stored.
        let store = Arc::new(Guarded::new(store, redactor.clone()));
        Self { folder, store, env, redactor, watcher, stop, is_read_only: false, kept: Kept::Elsewhere }
    }

    /// The same, telling `watcher` what happens instead of a watcher that was named before.
    pub fn watched(mut self, watcher: impl Fn(RunEvent) + Send + Sync + 'static) -> Self {
        self.watcher = Arc::new(watcher);
        self
    }

    /// A value that must not be kept of what tools and the model answer. Keys of models and servers are known already. One of fewer than 8 bytes
    /// cannot be told from ordinary words and is kept as it comes.
    pub fn secret(self, name: &str, value: &str) -> Self {
        self.redactor.learn([(name.to_owned(), value.to_owned())]);
        self
    }

    /// The store, for what there is no word for here; its words are the functions of [`RunStore`](crate::types::RunStore) and
    /// [`LedgerStore`](crate::types::LedgerStore).
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The folder of a run: its files, and nobody else's.
    ///
    /// # Errors
    /// [`Error::Id`].
    pub fn workspace(&self, id: &str) -> Result<PathBuf, Error> {
        Ok(self.folder.join("workspaces").join(run_id(id)?.as_str()))
    }

    /// Runs the step under `id`, or resumes that run from wherever it stands, until it ends or has to wait. Calling this again,
    /// in this process or another, is how a step is resumed.
    ///
    /// Dropping the future (`select!`, a timeout around it) is a kill, as good as `kill -9`: nothing is lost, and a call that was at work and has no
    /// key is asked about. [`Runs::stop`] stops it between calls.
    ///
    /// # Errors
    /// [`Error::Step`] and its like, and [`Error::Input`], with nothing stored; [`Error::AnotherDefinition`], [`Error::DrivenElsewhere`],
    /// [`Error::Tools`], [`Error::Files`], [`Error::Store`]; [`Error::Forgotten`] after the database was put back from an older copy. Never
    /// how the step itself went: that is the outcome.
    ///
    /// # Panics
    /// Without a Tokio runtime whose time is enabled (`enable_time`), and whose IO is (`enable_io`) where a model or a server is reached over a
    /// network; `#[tokio::main]` enables both.
    pub async fn run(&self, step: &Step, id: &str) -> Result<Outcome, Error> {
        Box::pin(self.drive(step, id, &[])).await
    }

    /// Resumes a run with the input that it was begun with, whatever input the step has: a program need not make the same input again, as one that
    /// depends on when it is made, and need not keep it. For the other ways of running a step give it [`Runs::input`].
    ///
    /// # Errors
    /// As [`Runs::run`]; [`Error::NoSuchRun`] for a run that was never begun, and [`Error::Refused`] for one that no program began.
    pub async fn resume(&self, step: &Step, id: &str) -> Result<Outcome, Error> {
        let step = step.clone().input(self.input(id).await?);
        self.run(&step, id).await
    }

    /// The same as [`Runs::run`], accepting that these changed since the run began: tools ([`Component::Tools`]), policies, prices. All that changed is accepted at
    /// once or nothing is. Another model, prompt or input is another definition: a [fork](Runs::fork).
    ///
    /// # Errors
    /// As [`Runs::run`]; [`Error::Refused`] for a component that cannot be accepted.
    pub async fn run_accepting(&self, step: &Step, id: &str, changed: &[Component]) -> Result<Outcome, Error> {
        if let Some(part) = changed.iter().find(|part| !part.may_be_accepted()) {
            let part = part.as_str();
            return Err(Error::Refused(format!(
                "a change of `{part}` cannot be accepted: it makes another run; `Runs::fork` makes one that continues from this one's turns and \
                 repeats no effect"
            )));
        }
        Box::pin(self.drive(step, id, changed)).await
    }

    /// Runs the step for a typed result: the model's last message has to be a `T`, by its JSON Schema. Models that write by a schema are given
    /// it with each request; whatever a model is, what does not fit, or fits and cannot be read as a `T`, is told to it and asked for again, and
    /// the step is not complete before it can. Run again, a complete step returns the same result without a request. A plain text is
    /// not JSON, and so not a `T`, not even a `String`: [`Runs::run`] has it as `final_output`.
    ///
    /// # Errors
    /// As [`Runs::run`]; [`Error::Step`] for a step whose [`Step::output_schema`] is another one; [`Error::NotComplete`] with the outcome when the step waits, stopped, failed or was cancelled; [`Error::Result`] when the
    /// result that an earlier version of the program took cannot be read as today's `T`.
    ///
    /// ```
    /// # use ua_sdk::prelude::*;
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Sum { cents: u64 }
    ///
    /// # async fn sum(runs: &Runs, step: &Step) -> Result<u64, Error> {
    /// let sum: Sum = runs.run_for(step, "november").await?;
    /// # Ok(sum.cents)
    /// # }
    /// ```
    pub async fn run_for<T>(&self, step: &Step, id: &str) -> Result<T, Error>
    where
        T: DeserializeOwned + JsonSchema,
    {
        self.run_for_accepting(step, id, &[]).await
    }

    /// The same, accepting changes as [`Runs::run_accepting`] does.
    ///
    /// # Errors
    /// Those of both.
    pub async fn run_for_accepting<T>(&self, step: &Step, id: &str, changed: &[Component]) -> Result<T, Error>
    where
        T: DeserializeOwned + JsonSchema,
    {
        step.check_result_is(&crate::tool::result_schema_of::<T>())?;
        match self.run_accepting(&step.clone().output::<T>(), id, changed).await? {
            Outcome::Complete { final_output: result, .. } => {
                serde_json::from_value(result.clone()).map_err(|why| Error::Result { result, why: why.to_string() })
            }
            other @ (Outcome::Waiting { .. }
            | Outcome::Stopped { .. }
            | Outcome::Failed { .. }
            | Outcome::Cancelled) => Err(Error::NotComplete(Box::new(other))),
        }
    }

    /// Runs a step within a call of another one: an agent as a tool. Its run has the id [`Call::key`], so that every attempt of the call takes up the
    /// same run, and no effect of it happens twice. The tool is [`keyed`](crate::Tool::keyed), and answers with the result.
    ///
    /// What keeps the inner run from being complete is told as [`Failure::of_run`] says: while it waits for a person, the outer run is
    /// [`Outcome::Waiting`] with that very question ([`Runs::questions`] of the outer run has it, too). Answer it, and run the outer step again. An inner
    /// run that stopped, or that cannot be driven, stops the outer one for the same reason. Nobody is asked about the call, and the model is told when
    /// the inner run has ended, well or not; also when none was begun because of its input alone ([`Error::Input`]), which is mostly the
    /// model's.
    ///
    /// The inner run is one of its own: it has the budgets of its step, and what it costs does not count for the outer one. Cancelling the outer run
    /// leaves it as it is; [`Runs::cancel`] with its id ends it.
    ///
    /// # Errors
    /// The [`Failure`] that the tool answers with.
    ///
    /// ```
    /// # use ua_sdk::prelude::*;
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Topic { topic: String }
    ///
    /// # fn research(runs: &Runs, researcher: Step) -> Tool {
    /// let runs = runs.clone(); // `researcher` is a step without an input
    /// tool("research", "Researches a topic and answers with what is known of it.", async move |call: Call, about: Topic| {
    ///     runs.run_within(&call, &researcher.input(about.topic)).await
    /// })
    /// .external("research.run")
    /// .keyed()
    /// # }
    /// ```
    pub async fn run_within(&self, call: &Call, step: &Step) -> Result<Value, Failure> {
        let id = call.key();
        match Deep::new(self.run(step, id)).await {
            Ok(Outcome::Complete { final_output, .. }) => Ok(final_output),
            Ok(
                other @ (Outcome::Waiting { .. }
                | Outcome::Stopped { .. }
                | Outcome::Failed { .. }
                | Outcome::Cancelled),
            ) => Err(Failure::of_run(id, other)),
            Err(error) => Err(self.not_driven(id, &error).await),
        }
    }

    /// What a tool says whose run could not be driven. The input is mostly the model's: of a run that it alone kept from being begun, the
    /// model is told why. What is wrong with anything else is nothing that the model could do about.
    async fn not_driven(&self, id: &str, error: &Error) -> Failure {
        if let Error::Input(why) = error
            && let Ok(run) = run_id(id)
            && matches!(self.store.run(&run).await, Err(StoreError::NotFound { .. }))
        {
            return Failure::refused(format!("nothing was begun: {why}"));
        }
        Failure::of_run_not_driven(id, error)
    }

    /// The same as [`Runs::run`], as a stream of what happens; whoever reads it drives the run.
    ///
    /// ```
    /// # use ua_sdk::prelude::*;
    /// # async fn watch(runs: &Runs, step: &Step) -> Result<(), Error> {
    /// let (mut run, mut reply) = (runs.stream(step, "invoices-2026-11"), String::new());
    /// while let Some(event) = run.next().await {
    ///     match event {
    ///         RunEvent::Thinking { .. } => reply.clear(), // also where a reply broke off and is asked for again
    ///         RunEvent::Text { delta } => reply.push_str(&delta),
    ///         _ => {}
    ///     }
    ///     println!("{reply}"); // as far as it came
    /// }
    /// println!("{}", run.outcome().await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn stream(&self, step: &Step, id: &str) -> RunStream {
        self.stream_accepting(step, id, &[])
    }

    /// The same, accepting changes as [`Runs::run_accepting`] does; what it refuses is the stream's outcome.
    pub fn stream_accepting(&self, step: &Step, id: &str, changed: &[Component]) -> RunStream {
        let (events, watcher) = (Events::default(), self.watcher.clone());
        let told = events.clone();
        let watched = self.clone().watched(move |event| {
            watcher(event.clone());
            told.push(event);
        });
        let (step, id, changed) = (step.clone(), id.to_owned(), changed.to_owned());
        RunStream::new(events, Box::pin(async move { watched.run_accepting(&step, &id, &changed).await }))
    }

    /// Stops whatever these runs and their clones drive, gently, for a process that is to end: the call that is at work is waited for and its
    /// answer kept, nothing more is begun, and each run is [`Outcome::Stopped`] with the reason
    /// [`RunStop::Interrupt`]. What is run through these `Runs` afterwards stops before it begins; [`Runs::open`] the folder
    /// again, in this process or the next, to resume.
    ///
    /// ```
    /// # use ua_sdk::prelude::*;
    /// # async fn serve(runs: &Runs, step: &Step, told_to_end: impl Future<Output = ()>) -> Result<(), Error> {
    /// let mut running = std::pin::pin!(runs.run(step, "invoices-2026-11"));
    /// let outcome = tokio::select! {
    ///     outcome = &mut running => outcome?,
    ///     () = told_to_end => {
    ///         runs.stop();
    ///         running.await?
    ///     }
    /// };
    /// println!("{outcome}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn stop(&self) {
        self.stop.stop_gently();
    }

    async fn drive(&self, step: &Step, id: &str, accepted: &[Component]) -> Result<Outcome, Error> {
        self.may_be_driven()?;
        let run = run_id(id)?;
        self.refuse_copies(&run).await?;
        self.refuse_secrets(step, id)?;
        let workspace = self.workspace(id)?;
        #[cfg(feature = "mcp")]
        let servers = crate::servers::transport(step, &self.folder, &workspace, &run, &self.env, &self.redactor)?;
        #[cfg(feature = "mcp")]
        let transport = Some(servers.clone() as Arc<dyn ToolTransport>);
        #[cfg(not(feature = "mcp"))]
        let transport: Option<Arc<dyn ToolTransport>> = None;
        let granular = step.granular(&self.env, transport)?;
        let was_stopped = self.stop.is_stopping();
        let mut host = self.host(workspace).with_redactor(self.redactor.clone()).accepting(accepted.iter().copied());
        host.watcher = self.watcher.clone();
        host.stop = self.stop.clone();
        let outcome = granular.run(&host, &run).await;
        #[cfg(feature = "mcp")]
        servers.shutdown().await;
        match outcome? {
            Outcome::Stopped { reason: reason @ RunStop::Interrupt, .. } if was_stopped => {
                let detail = "these `Runs` were stopped before (`Runs::stop`) and drive nothing any more; `Runs::open` \
                              the folder again, and run it there";
                Ok(Outcome::Stopped { reason, detail: detail.to_owned() })
            }
            Outcome::Stopped { reason: reason @ RunStop::Budget, detail }
                if step.forces_calls() && !BudgetStop::read_all(&detail).is_empty() =>
            {
                // Raising the limit alone would help nobody.
                let why = "no reply ends the step, since by its `tool_choice` each of them has to call a tool";
                Ok(Outcome::Stopped { reason, detail: format!("{detail}; {why}") })
            }
            outcome @ (Outcome::Complete { .. }
            | Outcome::Waiting { .. }
            | Outcome::Stopped { .. }
            | Outcome::Failed { .. }
            | Outcome::Cancelled) => Ok(outcome),
        }
    }

    /// Where a run is driven that has its files in `workspace`.
    fn host(&self, workspace: impl Into<PathBuf>) -> StepHost {
        StepHost::new(self.store.clone(), workspace, self.env.clone()).with_locks(self.locks()).with_root(&self.folder)
    }

    fn locks(&self) -> PathBuf {
        self.folder.join("locks")
    }

    /// Makes `id` a fork of the run `parent` with another model, prompt, input or other tools: `step`. It shares the parent's turns up to
    /// `at_turn`, or all that are committed, and its receipts: what the parent did is not done again. Run it under `id` then. A fork that
    /// was made before is found again. For a typed result fork [`Step::output`].
    ///
    /// Dropping the future leaves either no fork or a whole one, which the same call finds again.
    ///
    /// # Errors
    /// [`Error::Id`]; [`Error::Step`] as for a new run, with nothing stored; [`Error::NoSuchRun`] without the parent; [`Error::Refused`] when there is
    /// no such turn, or the fork is there and shares other turns; [`Error::AnotherDefinition`] when it is there as another step.
    /// [`Error::Refused`] as well when `id` is another run.
    ///
    /// ```
    /// # use ua_sdk::prelude::*;
    /// # async fn fork(runs: &Runs, step: &Step) -> Result<(), Error> {
    /// let brief = step.clone().system("Be brief.");
    /// runs.fork(&brief, "november-brief", "november", None).await?;
    /// println!("{}", runs.run(&brief, "november-brief").await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn fork(&self, step: &Step, id: &str, parent: &str, at_turn: Option<u32>) -> Result<RunRecord, Error> {
        self.may_be_driven()?;
        let (fork, parent) = (run_id(id)?, run_id(parent)?);
        self.refuse_copies(&parent).await?;
        self.refuse_secrets(step, id)?;
        let host = self.host(self.workspace(id)?);
        // The fork's folder is made out of its parent's, so servers that are asked for their tools are started in another one.
        #[cfg(feature = "mcp")]
        let (servers, asked) = {
            let fail = |cause| Error::Folder { path: self.folder.clone(), cause };
            let asked = step.servers.as_ref().map(|_| asked_in(&self.folder)).transpose().map_err(fail)?;
            let place = asked.as_ref().map_or(self.folder.as_path(), ua_files::OwnedFolder::path);
            (crate::servers::transport(step, &self.folder, place, &fork, &self.env, &self.redactor)?, asked)
        };
        #[cfg(feature = "mcp")]
        let transport = Some(servers.clone() as Arc<dyn ToolTransport>);
        #[cfg(not(feature = "mcp"))]
        let transport: Option<Arc<dyn ToolTransport>> = None;
        let granular = step.granular(&self.env, transport)?;
        let forked = Box::pin(granular.fork(&host, &fork, &parent, at_turn)).await;
        #[cfg(feature = "mcp")]
        {
            servers.shutdown().await;
            // It holds what they logged, if anything.
            drop(asked);
        }
        Ok(forked?)
    }

    /// The newest runs, newest first.
    ///
    /// # Errors
    /// [`Error::Store`].
    pub async fn list(&self, limit: u32) -> Result<Vec<RunRecord>, Error> {
        self.store.runs(limit).await.map_err(Error::store("list the runs"))
    }

    /// A run as it stands.
    ///
    /// # Errors
    /// [`Error::Id`], [`Error::NoSuchRun`], [`Error::Store`].
    pub async fn get(&self, id: &str) -> Result<RunRecord, Error> {
        self.store.run(&run_id(id)?).await.map_err(Error::store("read the run"))
    }

    /// The runs that have not ended and that nobody drives, newest first: run their steps again to resume them. One whose status is `Running` was
    /// killed; `Queued` was not begun yet, as a fork; `Stopped` and `WaitingForHuman` are as their [`Outcome`] said. One that waited
    /// and was answered is `WaitingForHuman` until it is run, and has no [questions](Runs::questions) any more. On a server database
    /// it has those, too, that stay with another folder, whose drivers are not seen from here. A step drives only the runs that were begun with it, so
    /// keep what tells them apart in their ids. A run that was refused keeps none of the others from being run.
    ///
    /// # Errors
    /// [`Error::Store`].
    ///
    /// ```
    /// # use ua_sdk::{RunStatus, prelude::*};
    /// # async fn resume(runs: &Runs, step: &Step) -> Result<(), Error> { // `step` needs no input
    /// for run in runs.unfinished().await? {
    ///     let id = run.run_id.as_str();
    ///     let is_answered = run.status == RunStatus::WaitingForHuman && runs.questions(id).await?.is_empty();
    ///     if !(run.status == RunStatus::Running || is_answered) || !id.starts_with("invoices-") {
    ///         continue; // stopped on purpose, waits for a person, or is of another step
    ///     }
    ///     match runs.resume(step, id).await { // with the input that it was begun with
    ///         Ok(outcome) => println!("{id}: {outcome}"),
    ///         // Of this run alone: begun with another definition, or driven by another process meanwhile. With `?` those after it would be left.
    ///         Err(error) => eprintln!("{id}: {error}"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn unfinished(&self) -> Result<Vec<RunRecord>, Error> {
        use RunStatus::{Queued, Running, Stopped, WaitingForHuman};
        let statuses = vec![Queued, Running, WaitingForHuman, Stopped];
        let query = RunQuery { statuses, limit: u32::MAX, ..RunQuery::default() };
        let heads = self.store.find_runs(&query).await.map_err(Error::store("look for the runs"))?;
        let mut runs = Vec::new();
        for head in heads.into_iter().filter(|head| head.run_mode == Audience::LIBRARY) {
            let run = self.store.run(&head.run_id).await.map_err(Error::store("read the run"))?;
            if !run.status.is_terminal() && !self.is_driven(run.run_id.as_str())? {
                runs.push(run);
            }
        }
        Ok(runs)
    }

    /// Whether a living process drives the run, this one included. A run whose status is `Running` and that nobody drives was killed.
    /// A process in another container is not seen; running the step is refused then, because its lock is held.
    ///
    /// # Errors
    /// [`Error::Id`].
    pub fn is_driven(&self, id: &str) -> Result<bool, Error> {
        Ok(RunLock::is_held(&self.locks(), &run_id(id)?))
    }

    /// What was sent and said about a run and those it is joined with, and that the database does not know: it was put back from an older copy.
    /// While there is any the run is not driven, because effects could happen again.
    ///
    /// # Errors
    /// [`Error::Id`], [`Error::Store`].
    pub async fn forgotten(&self, id: &str) -> Result<Vec<Forgotten>, Error> {
        self.store.forgotten(&run_id(id)?).await.map_err(Error::store("compare the database with effects.log"))
    }

    /// Why something that was sent could not be noted in `effects.log` since these runs were opened; `None` while all was. What was sent is in the
    /// database all the same; but should an older copy of it be put back, [`Runs::forgotten`] would not know.
    /// [`RunEvent::NotNoted`] tells it at the end of each drive.
    pub fn unnoted(&self) -> Option<String> {
        self.store.unnoted()
    }

    /// Notes that a person looked what became of all that, and lets the run be driven. A call that the database has is in doubt then, and is decided
    /// as after a crash; of what it does not have a person is asked before the like is done again. The same as `ua db accept`.
    ///
    /// # Errors
    /// [`Error::Id`], [`Error::Store`].
    pub async fn accept_forgotten(&self, id: &str) -> Result<Vec<Forgotten>, Error> {
        self.may_be_changed()?;
        let forgotten = self.forgotten(id).await?;
        let noted = ua_runner::accept_forgotten(&*self.store, &run_id(id)?, &forgotten, None, self.env.now()).await;
        noted.map(|()| forgotten).map_err(Error::store("write effects.log"))
    }

    /// The questions of a run that wait for an answer, oldest first, and then those of the runs that do the work of its calls
    /// ([`Runs::run_within`]), whose [`run_id`](QuestionRecord::run_id) is theirs.
    ///
    /// # Errors
    /// [`Error::Id`], [`Error::NoSuchRun`], [`Error::Store`].
    pub async fn questions(&self, id: &str) -> Result<Vec<QuestionRecord>, Error> {
        let mut next = VecDeque::from([self.get(id).await?]);
        let (mut seen, mut questions) = (BTreeSet::new(), Vec::new());
        while let Some(run) = next.pop_front() {
            if !seen.insert(run.run_id.clone()) {
                continue;
            }
            let open =
                self.store.open_questions(Some(&run.run_id)).await.map_err(Error::store("read the questions"))?;
            for question in open.into_iter().filter(|question| question.status == QuestionStatus::Open) {
                questions.push(self.told(question).await?);
            }
            next.extend(self.awaited_by(&run).await?);
        }
        Ok(questions)
    }

    /// The runs that do the work of calls of a run, as far as they are kept here.
    async fn awaited_by(&self, run: &RunRecord) -> Result<Vec<RunRecord>, Error> {
        if run.status.is_terminal() {
            return Ok(Vec::new());
        }
        let turn = run.turn_index + 1;
        let open = self.store.load_of(&run.run_id, Turns::Range(turn, turn)).await;
        let open = open.map_err(Error::store("look which runs it waits for"))?;
        let handles = open.attempts.iter().filter_map(|attempt| attempt.live_handle());
        let mut runs = Vec::new();
        for awaited in handles.filter_map(|handle| handle.awaits.as_ref()) {
            match self.store.run(&awaited.run_id).await {
                Ok(run) => runs.push(run),
                Err(StoreError::NotFound { .. }) => {}
                Err(source) => return Err(Error::store("look which runs it waits for")(source)),
            }
        }
        Ok(runs)
    }

    /// Stores a person's answer: a [`Choice`], or an [`Answer`] with words or a proof. It counts when the step is run again;
    /// about a call that an ended run continued without, at once.
    ///
    /// A question takes the choices of [`QuestionRecord::choices`], and one of `Continue` and `Execute` lets what it is about go on. Of a call in
    /// doubt ([`UnknownOutcome`](crate::QuestionKind::UnknownOutcome)) that means that it did not happen, and it is sent again; of an approval it means
    /// yes. `Happened` says that the effect is there, `Skip` leaves the call as it is and tells the model, and `Abort` ends the run as failed: at
    /// once, as [`Runs::cancel`] does, unless somebody drives it, who ends it between calls. What the
    /// model asks ([`AskUser`](crate::QuestionKind::AskUser)) is answered by `Answer::new(Choice::Continue).text(…)`.
    ///
    /// Dropping the future leaves the answer stored or not ([`Runs::question`] says which); the same answer again is refused where it was.
    /// An `Abort` that is stored ends the run when its step is run at the latest.
    ///
    /// # Errors
    /// [`Error::Refused`] for an answer that the question does not take, and for one that was answered before; [`Error::Store`]. Of an `Abort`
    /// [`Error::Files`] as well: it is stored then, and the run ends when its step is run again.
    ///
    /// ```
    /// # use ua_sdk::prelude::*;
    /// # async fn answer(runs: &Runs, step: &Step) -> Result<(), Error> {
    /// for question in runs.questions("november").await? {
    ///     println!("{}", question.text);
    ///     runs.answer(&question, Choice::Skip).await?;
    /// }
    /// println!("{}", runs.run(step, "november").await?);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn answer(&self, question: &QuestionRecord, answer: impl Into<Answer>) -> Result<(), Error> {
        self.may_be_changed()?;
        let outside = self.outside(&question.run_id)?;
        let answer = answer.into();
        let is_abort = answer.choice == Choice::Abort;
        // It would be stored, and sent to the model.
        let secret = |words: &String| self.redactor.found_in(words);
        if let Some(name) = answer.text.as_ref().and_then(secret).or_else(|| answer.proof.as_ref().and_then(secret)) {
            return Err(Error::Refused(format!("the answer contains the value of {name}; nothing was stored")));
        }
        let given = ua_ledger::give_answer(&*self.store, &self.env, question, answer, BY, &outside).await;
        given.map(drop).map_err(|why| match why.into_store_failure() {
            Ok((doing, source)) => Error::store(doing)(source),
            Err(why @ NotTaken::NotOffered { .. }) => {
                let words: Vec<&str> = question.choices.iter().map(|choice| choice.as_str()).collect();
                Error::Refused(format!("{why}; it takes {}", words.join(", ")))
            }
            Err(why @ NotTaken::NoWords { .. }) => Error::Refused(format!("{why}: `Answer::new(…).text(…)`")),
            Err(why @ NotTaken::MayStillBegin { .. }) => {
                Error::Refused(format!("{why}: look again after that time, and answer then"))
            }
            Err(why @ NotTaken::UnderWay { .. }) => {
                let then = "wait until it is over, or run it again or cancel it where nobody does; look again, and answer then";
                Error::Refused(format!("{why}: {then}"))
            }
            Err(why) => Error::Refused(why.to_string()),
        })?;
        if is_abort { self.end_if_asked(&question.run_id).await } else { Ok(()) }
    }

    /// What can be seen from here of the processes that drive a run and of the servers that its calls went to.
    #[cfg_attr(
        not(feature = "mcp"),
        expect(clippy::unnecessary_wraps, reason = "the folder of locks may not be usable")
    )]
    fn outside(&self, run: &RunId) -> Result<Through, Error> {
        #[cfg(feature = "mcp")]
        let servers: Arc<dyn ToolTransport> =
            Arc::new(crate::servers::left_behind(&self.folder, run, &self.env, &self.redactor)?);
        #[cfg(not(feature = "mcp"))]
        let servers: Arc<dyn ToolTransport> = {
            let _needs_none = run;
            Arc::new(ua_dispatch::LocalTools::new(self.env.clone()))
        };
        Ok(Through::new(servers, ua_runner::may_be_driven))
    }

    /// Ends a run here of which it is stored that it is to end, unless somebody drives it.
    async fn end_if_asked(&self, run: &RunId) -> Result<(), Error> {
        #[cfg(feature = "mcp")]
        let left = crate::servers::left_behind(&self.folder, run, &self.env, &self.redactor)?;
        #[cfg(not(feature = "mcp"))]
        let left = ua_dispatch::LocalTools::new(self.env.clone());
        Ok(self.host(self.workspace(run.as_str())?).end_if_asked(run, &left).await?)
    }

    /// Ends a run. Whoever drives it ends it between calls, unless the request that is at work completes it; one that nobody drives is ended here, as
    /// `ua runs cancel` does, with nothing sent and its questions withdrawn. A call that is in doubt stays so. Where something of an earlier process is still alive, the run ends when its step is
    /// run again. So it does where the future is dropped once the cancel is stored; asked again, it is ended here.
    ///
    /// # Errors
    /// [`Error::Id`], [`Error::NoSuchRun`], [`Error::Store`], [`Error::Files`]; [`Error::Refused`] for a run that has ended. Once it is asked for, the run ends when its step is run again at the latest.
    pub async fn cancel(&self, id: &str, reason: &str) -> Result<(), Error> {
        self.may_be_changed()?;
        // It is kept, also in the files of the run.
        let reason = self.redactor.text(reason);
        let asked = self.store.request_cancel(&run_id(id)?, &reason, self.env.now()).await;
        if let Err(source) = asked {
            return Err(self.not_changed(id, "cancel the run", source).await);
        }
        self.end_if_asked(&run_id(id)?).await
    }

    /// Why a run was not changed. One that has ended never can be, and whoever asks again while the same may succeed later would ask forever.
    async fn not_changed(&self, id: &str, doing: &'static str, source: StoreError) -> Error {
        let has_ended = source.is_refusal() && self.get(id).await.is_ok_and(|run| run.status.is_terminal());
        if has_ended { Error::Refused(format!("cannot {doing}: {source}")) } else { Error::store(doing)(source) }
    }

    /// Waits until nobody works on a run: it ended, stopped, waits for a person, or its process died ([`Runs::unfinished`] has it then). What drives
    /// it may be another process. A run that nobody has begun is not waited for.
    ///
    /// # Errors
    /// [`Error::Id`], [`Error::NoSuchRun`], [`Error::Store`].
    pub async fn wait(&self, id: &str) -> Result<RunRecord, Error> {
        loop {
            // In this order: whoever drives a run writes how it ended before letting go of it.
            let is_driven = self.is_driven(id)?;
            let run = self.get(id).await?;
            if !is_driven || !matches!(run.status, RunStatus::Running | RunStatus::Queued) {
                return Ok(run);
            }
            self.env.clock.sleep(LOOK).await;
        }
    }
}

impl std::fmt::Debug for Runs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runs").field("folder", &self.folder).finish_non_exhaustive()
    }
}

fn run_id(id: &str) -> Result<RunId, Error> {
    RunId::parse(id).map_err(|cause| Error::Id { id: id.to_owned(), cause })
}

/// A folder in which servers are asked for their tools: nobody can guess its name, and one that a killed process left goes with the next.
#[cfg(feature = "mcp")]
fn asked_in(folder: &Path) -> std::io::Result<ua_files::OwnedFolder> {
    const ASKED: &str = ".asked_";
    /// How many files and folders are looked at before this.
    const STEPS: usize = 1000;
    // What cannot be removed is in nobody's way.
    let _cleared = ua_files::clear_abandoned(folder, ASKED, STEPS);
    ua_files::OwnedFolder::make(folder, ASKED)
}

/// The folder, absolute, there.
fn made(folder: &Path) -> Result<PathBuf, Error> {
    let path = absolute(folder)?;
    std::fs::create_dir_all(&path).map_err(|cause| Error::Folder { path: folder.to_path_buf(), cause })?;
    Ok(path)
}

fn absolute(folder: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(folder).map_err(|cause| Error::Folder { path: folder.to_path_buf(), cause })
}
