//! A job file: reading it, and starting the run it describes, or resuming the one that is named.

mod anew;
mod beginning;
mod done_before;
mod earlier_text;
mod unfinished;

use std::path::PathBuf;
use std::sync::Arc;

use crate::Database;
use ua_core::{CallId, Message, Origin, RunId, RunSpec, RunStatus};
use ua_runner::RunLock;
use ua_store::{NewBlob, NewRun, QueueEntry, RunQuery, RunRecord, RunStore, Store, StoreError};

pub(crate) use self::beginning::Beginning;
use self::beginning::Seen;
pub(crate) use self::done_before::done_before;
pub use self::unfinished::left_as;
pub(crate) use self::unfinished::{Foretold, in_another_place, refusal};
use self::unfinished::{LOOKED_AT, in_the_way};
use crate::alert::Alerts;
use crate::consent;
use crate::elsewhere::Elsewhere;
use crate::error::{HostError, Kind};
use crate::hint::{Word, text};
use crate::home;
use crate::host::Host;
use crate::input_files;
use crate::job_file::{parse, read};
use crate::launch::{Configured, Launch, LaunchOptions};
use crate::mcp_files;
use crate::obstacles::Obstacles;
use crate::people::{People, Presence, Unfinished, WhichRun};
use crate::restart;
use crate::resume::{self, Changes};
use crate::selectors;
use crate::servers::Handover;
use crate::session::{self, Ending, Taking};
use crate::standing::standing;
use crate::text::line;

/// A job, as somebody asks for it.
#[derive(Debug, Clone, Default)]
pub struct JobRequest {
    /// The job file; `-` for a job that came another way.
    pub file: PathBuf,
    /// The job's text, when it is in no file: what it names beside itself lies in the current folder.
    pub text: Option<String>,
    /// Name of the run; one that exists is resumed if it was made of the same job.
    pub run_id: Option<RunId>,
    /// Run the job once more although the run of its job key succeeded.
    pub again: bool,
    /// Start a run of its own although an earlier one of the same job is not finished.
    pub new: bool,
    /// The key of the job, in the place of its own.
    pub job_key: Option<String>,
    /// It is stored for a worker, and not driven here: messages name `ua submit`.
    pub for_queue: bool,
    /// It is an instant of a schedule, which made the key: the run that has the key is the one that is meant, whatever the job says by now.
    pub is_instant: bool,
    /// Do it in iterations, as the job says and these.
    pub iterations: Option<Iterations>,
    /// How many minutes a reply is waited for while its provider cannot answer, in the place of what the job says.
    pub max_provider_wait_minutes: Option<u32>,
    /// How to start it.
    pub launch: LaunchOptions,
    /// How it is started, as it was configured elsewhere; instead of `launch` and of what is configured here. Whoever drives the run looks whether
    /// all of it is there.
    pub configured: Option<Configured>,
}

/// How a job is done in several contexts; what is not given is as the job file says.
#[derive(Debug, Clone, Default)]
pub struct Iterations {
    /// The most that may begin.
    pub max: Option<u32>,
    /// What the model has to say between `<promise>` tags when the job is done.
    pub completion_promise: Option<String>,
}

impl JobRequest {
    /// How a refusal ends.
    fn nothing_done(&self) -> Word {
        if self.for_queue { text("nothing was queued") } else { Word::NothingBegun }
    }
}

/// What whoever begins a run that was stored just now has for it.
#[derive(Debug)]
pub(crate) struct Begins {
    /// The right to.
    pub(crate) beginning: Beginning,
    /// The tool servers that run already.
    pub(crate) servers: Handover,
}

/// A job that was looked at, and what there is of it.
enum Found {
    /// A run of it was stored just now.
    New(Database, RunRecord, Box<Launch>, Begins),
    /// The run that the request names, of the same job.
    Named(Database, RunRecord),
    /// The run that succeeded under its key.
    Done(Database, RunRecord, Vec<String>),
    /// A run of it that was begun and not finished, and what somebody changes about it.
    Left(Database, RunRecord, Changes),
    /// The run that has its key and has not succeeded.
    Taken(Database, RunRecord),
}

/// Starts a job and drives its run to a conclusion of this process.
pub async fn run(host: &Host, people: &Arc<dyn People>, request: &JobRequest) -> Result<Ending, HostError> {
    match find(host, people, request).await? {
        Found::New(store, run, launch, begins) => {
            Box::pin(session::run(host, people, store, run, &launch, Taking::Begun(begins))).await
        }
        Found::Named(store, run) => {
            resume::resume(host, people, store, run, &request.launch, Changes::default(), false).await
        }
        Found::Done(store, done, changed) => {
            let key = done.job_key.as_deref().unwrap_or_default();
            people.tell(&format!("the job key {key:?} was used already; `--again` runs the job once more"));
            tell_changed(people.as_ref(), &changed);
            home::close(store);
            let looked = host.home().open_read_only()?;
            resume::found(host, people, looked, &done, &request.launch, Changes::default(), false).await
        }
        Found::Left(store, left, changes) => {
            home::close(store);
            let looked = host.home().open_read_only()?;
            // Somebody finishes what was begun, and a run keeps its model: another one was named for the run that is not started now.
            let options = LaunchOptions { provider: None, model: None, ..request.launch.clone() };
            resume::found(host, people, looked, &left, &options, changes, false).await
        }
        Found::Taken(store, earlier) => Err(taken_key(host, &store, &earlier).await?),
    }
}

/// Says that what is shown is not what the job says now.
fn tell_changed(people: &dyn People, changed: &[String]) {
    if !changed.is_empty() {
        people.tell(&format!(
            "warning: the job has changed since that run ({}); what follows is the result of the job as it was",
            line(&changed.join(", "), 200)
        ));
    }
}

/// Stores a run of a job for others to drive, or finds the one that answers for its name or its key. A new one is to be in the queue before
/// the right to begin it is dropped.
pub(crate) async fn stored(
    host: &Host,
    people: &Arc<dyn People>,
    request: &JobRequest,
) -> Result<(Database, RunRecord, Option<Beginning>), HostError> {
    Ok(match find(host, people, request).await? {
        Found::New(store, run, _, begins) => {
            begins.servers.end().await;
            (store, run, Some(begins.beginning))
        }
        Found::Named(store, run)
        | Found::Done(store, run, _)
        | Found::Left(store, run, _)
        | Found::Taken(store, run) => (store, run, None),
    })
}

/// What becomes of a job of which nothing is known to be wrong, by the runs that are stored already. `ua job` acts on it, and
/// `ua job --check` says what that comes to.
pub(crate) enum Fate {
    /// A run of it is stored; `earlier` is the one that succeeded under its key, where it is done once more.
    Start {
        /// The run that had its key before.
        earlier: Option<RunRecord>,
    },
    /// The run that the request names goes on.
    Named(RunRecord),
    /// The run that succeeded under its key is shown.
    Done(RunRecord),
    /// A run of it was begun and not finished: somebody says what is to become of it.
    Left(RunRecord),
    /// A run of it is being driven by a process: nothing is started beside it.
    AtWork(RunRecord),
    /// A run of it was begun at another place of the same database, and has not ended: nobody can tell here whether it is being driven.
    Elsewhere(RunRecord, Elsewhere),
    /// A run of it is in the queue: a worker drives it, or will.
    Queued(RunRecord, Box<QueueEntry>),
    /// Its key is that of a run that has not succeeded.
    Taken(RunRecord),
    /// A run of it ended with a call of which nobody knows what came of it, this one first: to start it again may do that again.
    InDoubt(RunRecord, CallId),
}

/// Looks for the runs that answer for a job. Nothing is stored, and nobody is asked.
pub(crate) async fn fate(
    host: &Host,
    store: &Database,
    request: &JobRequest,
    spec: &RunSpec,
    launch: &Launch,
) -> Result<Foretold, HostError> {
    if let Some(id) = &request.run_id {
        match store.run(id).await {
            Ok(existing) => {
                refuse_deleted(store, id).await?;
                refuse_another(&existing, spec)?;
                return Ok(Fate::Named(existing).into());
            }
            Err(StoreError::NotFound { .. }) => refuse_reserved(id)?,
            Err(error) => return Err(HostError::store("look for the run", &error)),
        }
    }
    if let Some(earlier) = holder(store, spec.job_key.as_deref()).await? {
        let has_succeeded = earlier.status == RunStatus::Succeeded;
        let fate = match (has_succeeded, request.again) {
            (true, true) => Fate::Start { earlier: Some(earlier) },
            (true, false) => Fate::Done(earlier),
            (false, _) => Fate::Taken(earlier),
        };
        return Ok(fate.into());
    }
    // A run that is named is another one on purpose.
    if !request.new
        && !request.again
        && request.run_id.is_none()
        && let Some(found) = in_the_way(host, store, spec, launch).await?
    {
        return Ok(found);
    }
    Ok(Fate::Start { earlier: None }.into())
}

async fn find(host: &Host, people: &Arc<dyn People>, request: &JobRequest) -> Result<Found, HostError> {
    let env = host.env();
    let Prepared { spec, launch, files } = prepare(host, people.as_ref(), request).await?;

    // Where no job was run yet, one that is refused leaves no root behind it: later commands would look for runs there.
    if let Some(wanted) = spec.artifacts.workspace_dir.as_deref().filter(|_| host.home().is_unused()) {
        let run_id = request.run_id.clone().unwrap_or_else(|| RunId::new(env));
        host.home().workspace_for(&run_id, Some(wanted), env.now())?;
    }
    let store = host.home().open()?;
    if let Some(warning) = host.home().unnoted() {
        people.tell(&warning);
    }
    if let Some(place) = host.home().found_elsewhere() {
        people.remark(&place);
    }
    let seen = Seen::now(host, &store).await?;
    let mut is_new = request.new || request.again || request.run_id.is_some() || spec.job_key.is_some();
    let mut foretold = fate(host, &store, request, &spec, &launch).await?;
    // One that is stored and not begun may be about to be: whoever begins it holds the right to until it is taken.
    if matches!(&foretold.fate, Fate::Left(left) if left.status == RunStatus::Queued) {
        drop(Beginning::take(host, &store, &spec).await?);
        foretold = fate(host, &store, request, &spec, &launch).await?;
    }
    let earlier = match foretold.fate {
        Fate::Named(existing) => return Ok(Found::Named(store, existing)),
        // The key is a promise, which is lifted by the word for that alone; a key that was given with the word is another matter.
        Fate::Done(done) if request.new && request.job_key.is_none() => return Err(new_of_a_done_key(&done)),
        Fate::Done(done) => {
            refuse_key_of_another(request, &done, &spec)?;
            let changed = ua_resume::job_changes(&done.spec, &spec).into_iter().map(|change| change.field).collect();
            return Ok(Found::Done(store, done, changed));
        }
        Fate::Taken(earlier) => {
            refuse_new_of_a_taken_key(request, &earlier)?;
            refuse_key_of_another(request, &earlier, &spec)?;
            return Ok(Found::Taken(store, earlier));
        }
        Fate::AtWork(_) | Fate::Elsewhere(..) | Fate::Queued(..) | Fate::InDoubt(..) => {
            return Err(refused_for(host, &store, request, &launch, &foretold).await?);
        }
        Fate::Left(ref left) => {
            // One that only another run gets further is not offered to be finished.
            let next = restart::next_step(&store, left).await?;
            let is_here = people.presence() == Presence::Here && next.is_resume();
            let standing = standing(host.home(), &store, left).await?;
            if is_here && let Some(others) = foretold.others_in_words() {
                people.tell(&format!("there is more than one run of this job: {others}"));
            }
            let how = left_as(left, &standing, foretold.answers.as_deref());
            let unfinished =
                Unfinished { run: left, standing: &standing, how: &how, is_in_doubt: foretold.is_in_doubt };
            let answer = if is_here { people.ask_which_run(&unfinished).await? } else { WhichRun::Neither };
            match answer {
                WhichRun::Resume(changes) => return Ok(Found::Left(store, left.clone(), changes)),
                WhichRun::New => {
                    is_new = true;
                    None
                }
                WhichRun::Neither => return Err(refused_for(host, &store, request, &launch, &foretold).await?),
            }
        }
        Fate::Start { earlier } => {
            if earlier.is_none()
                && let Some(refused) = in_another_place(host, request, &spec, &launch).await?
            {
                return Err(refused);
            }
            earlier
        }
    };
    let run_id = request.run_id.clone().unwrap_or_else(|| RunId::new(env));
    let listed = if earlier.is_none() && request.configured.is_none() {
        // Whoever drives a run that is queued starts its servers.
        let takes_over = (!request.for_queue).then_some(&run_id);
        selectors::check(host, people.as_ref(), &launch, &spec, takes_over).await?
    } else {
        None
    };
    let servers = Handover::of(listed);
    let wanted = Wanted { run_id, prepared: Prepared { spec, launch, files }, earlier, seen, is_new };
    let found = Box::pin(store_new(host, people, request, store, wanted, &servers)).await;
    // Only a run that was stored takes them over.
    if !matches!(found, Ok(Found::New(..))) {
        servers.end().await;
    }
    found
}

/// A run that is to be stored.
struct Wanted {
    run_id: RunId,
    prepared: Prepared,
    /// The run that succeeded under its key, where it is done once more.
    earlier: Option<RunRecord>,
    /// The runs that were there when it was looked for one of the same job.
    seen: Seen,
    /// It is a run of its own, whatever others there are.
    is_new: bool,
}

/// Stores a run of a job, unless another process was faster.
async fn store_new(
    host: &Host,
    people: &Arc<dyn People>,
    request: &JobRequest,
    store: Database,
    wanted: Wanted,
    servers: &Handover,
) -> Result<Found, HostError> {
    let Wanted { run_id, prepared: Prepared { spec, launch, files }, earlier, seen, is_new } = wanted;
    let (file, env) = (&request.file, host.env());
    let workspace = host.home().workspace_for(&run_id, spec.artifacts.workspace_dir.as_deref(), env.now())?;
    if spec.artifacts.workspace_dir.is_some() {
        host.home().refuse_shared(&store, &run_id, &workspace).await?;
    }
    let stored = launch.stored_for(host, &run_id);
    let run = NewRun {
        run_id,
        created_at: env.now(),
        entrypoint: host.entrypoint().to_owned(),
        run_mode: if spec.harness.is_some() { "harness" } else { "job" }.to_owned(),
        opening: Message::user(Origin::Prompt, spec.opening_prompt()),
        job_path: Some(file.to_string_lossy().into_owned()),
        workspace_dir: workspace.to_string_lossy().into_owned(),
        launch: stored,
        parent_run_id: None,
        spec,
        files,
    };
    launch.tell_unknown_model(host.settings(), people.as_ref());
    launch.tell_uncounted(host.settings(), people.as_ref(), &store).await;
    consent::tell_lifted_questions(people.as_ref(), &run.spec);
    earlier_text::tell(host, people.as_ref(), &store, &run.spec, &launch, file).await?;
    let name = run.run_id.clone();
    let key = run.spec.job_key.clone();
    // Whoever names the run, or asks for a new one, knows that it is another one.
    if earlier.is_none()
        && key.is_none()
        && request.run_id.is_none()
        && !request.new
        && let Some(before) = done_before(host, &store, &run.spec).await?
    {
        people.tell(&before);
    }
    let beginning = Beginning::take(host, &store, &run.spec).await?;
    // Whoever wants a run of its own begins it beside any other, and a key is looked at where it is stored.
    if !is_new {
        if let Some(run) = seen.begun_since(host, &store, &run.spec).await? {
            return Err(begun_meanwhile(request, &run));
        }
        // What was between its row and its lock when it was looked for has one or the other now.
        if let Some(found) = in_the_way(host, &store, &run.spec, &launch).await? {
            return Err(refused_for(host, &store, request, &launch, &found).await?);
        }
    }
    let spec = run.spec.clone();
    let submitted = match &earlier {
        Some(earlier) => store.submit_again(run, &earlier.run_id).await,
        None => store.submit_run(run).await,
    };
    match submitted {
        Ok(run) => {
            let begins = Begins { beginning, servers: servers.clone() };
            Ok(Found::New(store, run, Box::new(launch), begins))
        }
        Err(StoreError::Exists { row }) if row.table() == "deleted_runs" => Err(deleted_name(&name)),
        // Another process was faster.
        Err(error @ (StoreError::Exists { .. } | StoreError::Conflict { .. })) => {
            match holder(&store, key.as_deref()).await? {
                Some(holder) => {
                    refuse_new_of_a_taken_key(request, &holder)?;
                    refuse_key_of_another(request, &holder, &spec)?;
                    Ok(Found::Taken(store, holder))
                }
                // It was told to begin the run of the same name: what there is of that now is what there was a moment later.
                None => match store.run(&name).await {
                    Ok(existing) => {
                        refuse_another(&existing, &spec)?;
                        Ok(Found::Named(store, existing))
                    }
                    Err(_) => Err(HostError::store("store the run", &error)),
                },
            }
        }
        Err(error) => Err(HostError::store("store the run", &error)),
    }
}

/// Why nothing is begun beside what there is of a job.
async fn refused_for(
    host: &Host,
    store: &Database,
    request: &JobRequest,
    launch: &Launch,
    found: &Foretold,
) -> Result<HostError, HostError> {
    let standing = match &found.fate {
        Fate::Left(run) => Some(standing(host.home(), store, run).await?),
        Fate::Elsewhere(..)
        | Fate::AtWork(_)
        | Fate::Queued(..)
        | Fate::Start { .. }
        | Fate::Named(_)
        | Fate::Done(_)
        | Fate::Taken(_)
        | Fate::InDoubt(..) => None,
    };
    let refused = refusal(host, request, launch, found, standing.as_ref());
    Ok(refused.unwrap_or_else(|| HostError::waiting("another run of the same job is not finished")))
}

/// A job of which nothing is known to be wrong.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) spec: RunSpec,
    pub(crate) launch: Launch,
    /// What is in the files that it is given.
    pub(crate) files: Vec<NewBlob>,
}

/// A job that was looked at, with whatever is in its way.
#[derive(Debug)]
pub(crate) struct Looked {
    pub(crate) prepared: Prepared,
    /// What is wrong with it.
    pub(crate) obstacles: Obstacles,
    /// Nothing of that is in the way of its tool servers, which may be started.
    pub(crate) has_servers: bool,
}

/// Everything that can be known to be wrong is found before anything is stored or started.
pub(crate) async fn prepare(host: &Host, people: &dyn People, request: &JobRequest) -> Result<Prepared, HostError> {
    let mut looked = look(host, people, request).await?;
    looked.obstacles.end()?;
    Ok(looked.prepared)
}

/// The same for whoever wants to know all of it.
///
/// # Errors
/// The job cannot be read, or nobody knows with which model it would be started: then nothing else of it is known.
pub(crate) async fn look(host: &Host, people: &dyn People, request: &JobRequest) -> Result<Looked, HostError> {
    let spec = match &request.text {
        Some(text) => parse(host.settings(), &request.file, text)?,
        None => read(host.settings(), &request.file)?,
    };
    let mut spec = in_iterations(spec, request.iterations.as_ref())?;
    consent::keep_questions(host.settings(), &mut spec);
    if let Some(minutes) = request.max_provider_wait_minutes {
        spec.budgets.max_provider_wait_minutes = minutes;
    }
    if let Some(key) = &request.job_key {
        spec = spec.under_key(key).map_err(|error| {
            HostError::usage(format!("cannot use --job-key: {error}")).hint(
                "name what is to be done once, for example report-2026-11, or leave --job-key out; nothing was queued",
            )
        })?;
    }
    let mut launch = match &request.configured {
        Some(configured) => Launch::of(host.settings(), &request.file, &spec, configured.clone())?,
        None => Launch::new(host.settings(), &request.file, &spec, &request.launch)?,
    };
    // Before anything of the job is stored or sent, whichever of them it uses.
    host.known_secrets().learn_servers(launch.mcp_file().as_ref());
    // A worker asks where it is told to.
    if !request.for_queue {
        launch.keep_server(host.settings());
    }
    let mut obstacles = Obstacles::default();
    let mut has_servers = true;
    if request.configured.is_none() {
        consent::ask_about(host, people, &launch, &spec).await?;
        consent::tell_untrusted_policies(host, people, &launch);
        let servers = if request.for_queue {
            let (servers, lacking) = launch.look_for_queue(host, &spec, &mut obstacles);
            if let Some(lacking) = lacking {
                people.tell(&format!("the worker that takes the run needs what is not here: {}", lacking.message()));
            }
            servers
        } else {
            launch.look(host, &spec, &mut obstacles)
        };
        let servers = servers.and_then(|servers| obstacles.past(mcp_files::check_programs(&servers)));
        has_servers = servers.is_some();
    }
    obstacles.past(refuse_secrets(host, &spec));
    obstacles.past(launch.without_secrets(host));
    if let Some(name) = &request.run_id {
        obstacles.past(crate::words::without_secrets(host, "name of the run", name.as_str()));
    }
    if request.configured.is_none() {
        // Where a person is told is read when the run begins: what is wrong with it is found before there is one.
        obstacles.past(Alerts::from_settings(host.settings(), host.home()));
    }
    let files = obstacles.past(input_files::take(host, &mut spec, launch.job_dir()));
    if files.is_some() {
        obstacles.past(launch.check_files(&spec));
    }
    let prepared = Prepared { spec, launch, files: files.unwrap_or_default() };
    Ok(Looked { prepared, obstacles, has_servers })
}

/// The refusal of a job of which another process began a run while this one made its own ready.
fn begun_meanwhile(request: &JobRequest, run: &RunRecord) -> HostError {
    HostError::waiting(format!("another process has just begun run {} of the same job", run.run_id))
        .hint([
            text(format!(
                "`ua runs show {}` shows it; {} {} another run, which repeats what that run does outside; ",
                run.run_id,
                request.anew_in_words(),
                if request.for_queue { "queues" } else { "starts" },
            )),
            request.nothing_done(),
        ])
        .field("kind", "run_at_work")
        .field("run_id", &run.run_id)
        .field("status", run.status)
}

/// The refusal of a new run of a job whose key was done.
fn new_of_a_done_key(done: &RunRecord) -> HostError {
    let (id, key) = (&done.run_id, done.job_key.as_deref().unwrap_or_default());
    HostError::usage(format!(
        "run {id} succeeded under the job key {key:?}, and `--new` starts no second run of a key: it is a promise that the job is done once"
    ))
    .hint(format!(
        "`--again` instead does the job once more; without `--new` the result is shown, as `ua runs show {id}` does"
    )).not_begun()
    .field("kind", "job_key_done")
    .field("job_key", key)
    .field("run_id", id)
    .field("status", done.status)
}

/// Refuses to queue a new run of a job whose key another run has: that one would stay the only one, and look like a second. `ua job`
/// refuses every key that is taken.
fn refuse_new_of_a_taken_key(request: &JobRequest, holder: &RunRecord) -> Result<(), HostError> {
    // A key that was given beside the word, as by a library, says itself which run is meant.
    if !request.for_queue || !request.new || request.job_key.is_some() {
        return Ok(());
    }
    let (id, key) = (&holder.run_id, holder.job_key.as_deref().unwrap_or_default());
    Err(HostError::usage(format!(
        "run {id} has the job key {key:?}, and `--new` queues no second run of a key: it is a promise that the job is done once"
    ))
    .hint(format!(
        "`ua runs show {id}` shows that run; `--job-key KEY` instead of `--new` queues another one under a key of its own; nothing \
         was queued"
    ))
    .field("kind", "job_key_taken")
    .field("job_key", key)
    .field("run_id", id)
    .field("status", holder.status))
}

/// The word that stands for the newest run wherever a run is named.
pub const LAST: &str = "last";

/// Refuses a name for a new run that means another run to every command that takes one.
pub(crate) fn refuse_reserved(run: &RunId) -> Result<(), HostError> {
    if run.as_str() != LAST {
        return Ok(());
    }
    Err(HostError::usage(format!("`{LAST}` cannot be the name of a run: to every command it means the newest one"))
        .hint("choose another --run-id, or leave it out")
        .not_begun())
}

/// The name of a run is good for one run for ever: keys and locks are made of it.
fn deleted_name(run: &RunId) -> HostError {
    HostError::usage(format!("the name `{run}` is taken: a run of that name was deleted"))
        .hint("choose another --run-id, or leave it out")
}

/// Refuses the name of a run that a person deleted. Its row stays as long as its lineage has others, and is shown to nobody.
async fn refuse_deleted(store: &Database, run: &RunId) -> Result<(), HostError> {
    let query = RunQuery { prefix: run.to_string(), limit: u32::MAX, ..RunQuery::default() };
    let found = store.find_runs(&query).await.map_err(|e| HostError::store("look for the run", &e))?;
    if found.iter().any(|head| head.run_id == *run) { Ok(()) } else { Err(deleted_name(run)) }
}

/// The run that answers for a job key.
pub(crate) async fn holder(store: &Database, key: Option<&str>) -> Result<Option<RunRecord>, HostError> {
    let Some(key) = key else { return Ok(None) };
    // Letters and their marks are one character in a key; a run of an older version may have it as the file had it.
    for key in std::iter::once(key.to_owned()).chain(ua_core::job_key_apart(key)) {
        let found = store.run_by_job_key(&key).await;
        if let Some(run) = found.map_err(|e| HostError::store("look for the job key", &e))? {
            return Ok(Some(run));
        }
    }
    Ok(None)
}

/// Refuses to resume a run by the job of another one.
fn refuse_another(existing: &RunRecord, spec: &RunSpec) -> Result<(), HostError> {
    if let Some(files) = input_files::differing(&existing.spec, spec).filter(|files| !files.is_empty()) {
        return Err(HostError::usage(format!(
            "run {} exists and was started with other files: {}",
            existing.run_id,
            line(&files.join(", "), 400)
        ))
        .hint(
            format!(
                "`ua resume {}` continues with what it was started with; choose another --run-id for the files as they are now",
                existing.run_id
            ),
        ));
    }
    if *existing.spec != *spec {
        return Err(HostError::usage(format!("run {} exists and was made of another job", existing.run_id)).hint(
            format!(
                "a run's job never changes: choose another --run-id, or resume that run with `ua resume {}`",
                existing.run_id
            ),
        ));
    }
    Ok(())
}

/// Refuses to queue a job under the key of a run of another one: it would be taken for queued, or for done, and nobody would do it. `ua job`
/// shows the run of a key, and says what changed.
fn refuse_key_of_another(request: &JobRequest, holder: &RunRecord, spec: &RunSpec) -> Result<(), HostError> {
    if !request.for_queue || request.is_instant {
        return Ok(());
    }
    let (id, key) = (&holder.run_id, holder.job_key.as_deref().unwrap_or_default());
    // One key may be stored in two forms.
    let of_holder = RunSpec { job_key: spec.job_key.clone(), ..RunSpec::clone(&holder.spec) };
    let how = match input_files::differing(&holder.spec, spec).filter(|files| !files.is_empty()) {
        Some(files) => format!("started with other files: {}", line(&files.join(", "), 400)),
        None if of_holder != *spec => "made of another job".to_owned(),
        None => return Ok(()),
    };
    Err(HostError::usage(format!("the job key {key:?} is that of run {id}, which was {how}"))
        .hint(format!(
            "a key names one job: give this one another key, or add `--again` once that run succeeded to do the job as it is now under \
             this key; `ua runs show {id}` shows that run; nothing was queued"
        ))
        .field("kind", "job_key_of_another")
        .field("job_key", key)
        .field("run_id", id)
        .field("status", holder.status))
}

/// The refusal of a job whose key is that of a run that did not succeed.
///
/// # Errors
/// A store that fails.
pub(crate) async fn taken_key(host: &Host, store: &Database, earlier: &RunRecord) -> Result<HostError, HostError> {
    let (id, key) = (&earlier.run_id, earlier.job_key.as_deref().unwrap_or_default());
    let hint = match earlier.status {
        RunStatus::Succeeded => format!("it succeeded; see `ua runs show {id}`"),
        RunStatus::Failed | RunStatus::Cancelled => {
            format!(
                "it is {}; `ua fork {id}` continues from its last turn, `ua runs show {id}` shows it",
                earlier.status
            )
        }
        RunStatus::Queued | RunStatus::Running | RunStatus::WaitingForHuman | RunStatus::Stopped => {
            if RunLock::is_held(&host.home().locks(), id) {
                format!("a process is working on it; `ua runs tail {id}` follows it")
            } else {
                let next = restart::next_step(store, earlier).await?;
                format!("it is not finished: {} {}", next.who(), next.does())
            }
        }
    };
    // One that is not finished is resumed later; another one is a mistake of whoever starts it again.
    let kind = if earlier.status.is_terminal() { Kind::Usage } else { Kind::Waiting };
    Ok(HostError::new(kind, format!("the job key {key:?} has already been used by run {id}"))
        .hint(hint)
        .field("kind", "job_key_taken")
        .field("job_key", key)
        .field("run_id", id)
        .field("status", earlier.status))
}

/// Refuses a job that holds a secret itself: it would be stored, and sent to the model.
pub(crate) fn refuse_secrets(host: &Host, spec: &RunSpec) -> Result<(), HostError> {
    let grants = host.secrets()?.grants();
    let job = serde_json::to_value(spec).unwrap_or_default();
    if let Some(name) = grants.unknown_in(&job) {
        return Err(HostError::usage(format!("the job refers to the secret `{name}`, which does not exist"))
            .hint("docs/guide/secrets.md says where secrets are kept and who may have them")
            .not_begun());
    }
    match host.redactor().found_in_json(&job) {
        None => Ok(()),
        Some(name) => Err(HostError::usage(format!("the job contains the value of {name}"))
            .hint("remove it: a model writes `${secret:NAME}` where a tool needs it, as docs/guide/secrets.md explains")
            .not_begun()),
    }
}

/// The job with what is asked for about iterations.
fn in_iterations(spec: RunSpec, wanted: Option<&Iterations>) -> Result<RunSpec, HostError> {
    let Some(wanted) = wanted else { return Ok(spec) };
    let mut harness = spec.harness.clone().unwrap_or_default();
    harness.max_iterations = wanted.max.unwrap_or(harness.max_iterations);
    harness.completion_promise = wanted.completion_promise.clone().or(harness.completion_promise);
    spec.in_iterations(harness).map_err(|error| {
        HostError::usage(error.to_string())
            .hint("docs/guide/long-runs.md says how a job is done in iterations")
            .not_begun()
    })
}
