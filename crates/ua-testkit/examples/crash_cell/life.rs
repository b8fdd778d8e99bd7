//! One life of the runner.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::Pid;
use ua_core::{Env, Message, ModelTurn, Origin, RunId, RunSpec, RunStatus, Trace};
use ua_dispatch::{StopSignal, ToolTransport};
use ua_llm::{LlmError, LlmProvider, ModelRequest, Script, ScriptedProvider, StreamObserver};
use ua_runner::{ForkPlace, ForkPlan, RunLock, owner_stamp};
use ua_store::{
    Choice, LedgerStore, NewAnswer, NewRun, PastStore as _, QuestionKind, QuestionRecord, QuestionStatus,
    RunStore as _, Store,
};
use ua_store_sqlite::{SqliteConfig, SqliteStore};
use ua_testkit::{BrokenRule, Crossing, KillPoint, Plan, Seam, StoreSeam};

use crate::attendant::{Attendant, elicited};
use crate::clock;
use crate::options::{Job, Options, Outcome};
use crate::replaced::Successor;
use crate::server::kill;
use crate::state;
use crate::transport::Servers;
use crate::tree_driver::TreeDriver;

/// The exit code of a life that ended with a question.
const WAITING: u8 = 75;

/// The exit code of a life that another owner replaced.
const REPLACED: u8 = 76;

/// The exit code of a life that was to fork a run which was never stored.
const NOTHING_TO_FORK: u8 = 77;

/// The exit code of a life that would not drive a run of which more was sent than the database knows.
const FORGOTTEN: u8 = 74;

/// The copy of the database that `--copy` makes and the role `restore` puts back.
const COPY: &str = "copy.db";
/// The file that says that a life stands where `--stand` has it, and the one that lets it go on.
const STANDS: &str = "stands";
const GO_ON: &str = "go-on";

pub(crate) fn run(options: &Options) -> Outcome<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(live(options))
}

/// Several plans at one seam.
struct Plans(Vec<Arc<dyn Plan>>);

#[async_trait]
impl Plan for Plans {
    async fn before(&self, crossing: &Crossing) {
        for plan in &self.0 {
            plan.before(crossing).await;
        }
    }

    async fn after(&self, crossing: &Crossing) {
        for plan in &self.0 {
            plan.after(crossing).await;
        }
    }
}

/// A model whose requests are counted outside the runner's database, before it answers.
struct CountedModel {
    inner: ScriptedProvider,
    log: PathBuf,
}

#[async_trait]
impl LlmProvider for CountedModel {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn complete(&self, request: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        // A count that cannot be kept would be a wrong verdict later; the harness compares it with the database.
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(&self.log);
        if opened.and_then(|mut file| file.write_all(b"request\n")).is_err() {
            eprintln!("life: a request to the model was not counted");
        }
        self.inner.complete(request, observer).await
    }
}

async fn live(options: &Options) -> Outcome<ExitCode> {
    let folder = PathBuf::from(options.need("folder")?);
    let life = options.need("life")?;
    let job = options.job()?;
    let broken = options.get("broken").map(|name| BrokenRule::parse(name).ok_or("no such rule")).transpose()?;
    std::fs::create_dir_all(folder.join("locks"))?;

    let servers = Arc::new(Servers::new(options, &job, &folder, life)?);
    let sqlite = Arc::new(SqliteStore::open(SqliteConfig::new(database(&folder)))?);
    let (env, run) = (clock::env(options)?, RunId::parse(options.get("run").unwrap_or("run_cell"))?);
    let is_fork = options.get("fork-of").is_some();
    if let Some(parent) = options.get("fork-of")
        && sqlite.run(&RunId::parse(parent)?).await.is_err()
    {
        return Ok(ExitCode::from(NOTHING_TO_FORK));
    }
    // As the command line does before it drives a run.
    if !sqlite.forgotten(&run).await?.is_empty() {
        return Ok(ExitCode::from(FORGOTTEN));
    }
    let successor = Successor::new(sqlite.clone(), run.clone(), env.clone(), &job.tools);
    let mut points = points(options, &folder, &servers, &successor)?;
    if job.is_attended {
        // Last, so that a life that dies behind the question leaves it unanswered.
        points.push(Arc::new(Attendant { store: sqlite.clone(), env: env.clone() }));
    }
    let plan = Arc::new(Plans(points));
    let seam = StoreSeam::new(sqlite.clone(), plan.clone());
    let store: Arc<dyn Store> = Arc::new(match broken.and_then(BrokenRule::writes) {
        Some(writes) => seam.with_writes(writes),
        None if broken == Some(BrokenRule::NoEpochCheck) => seam.ignoring_epochs(),
        None => seam,
    });
    let transport: Arc<dyn ToolTransport> = servers.clone();
    let transport = broken.map_or(transport.clone(), |rule| rule.transport(transport));
    let transport: Arc<dyn ToolTransport> = Arc::new(Seam::new(transport, plan.clone()));
    let script = Script::parse(&job.script.replace("{{life}}", options.get("words").unwrap_or(life)))?;
    let model = CountedModel { inner: ScriptedProvider::new(script), log: folder.join("model.log") };
    let model: Arc<dyn LlmProvider> = Arc::new(model);
    let model = broken.map_or(model.clone(), |rule| rule.model(model));
    let llm: Arc<dyn LlmProvider> = Arc::new(Seam::new(model, plan));

    let this = Life { options, job: &job, folder: &folder, database: sqlite.clone(), env, run: run.clone() };
    let ended = Box::pin(drive_run(&this, store, transport, llm)).await;
    if let Some(after) = successor.compare().await? {
        state::write(&folder, "replaced.json", &after)?;
        return Ok(ExitCode::from(REPLACED));
    }
    let status = ended?;
    let name = if is_fork { "fork.json" } else { "state.json" };
    state::write(&folder, name, &state::of_tree(sqlite.as_ref(), &run).await?)?;
    Ok(match status {
        RunStatus::Succeeded => ExitCode::SUCCESS,
        RunStatus::WaitingForHuman => ExitCode::from(WAITING),
        RunStatus::Queued | RunStatus::Running | RunStatus::Stopped | RunStatus::Failed | RunStatus::Cancelled => {
            ExitCode::FAILURE
        }
    })
}

/// The database of a cell.
fn database(folder: &Path) -> PathBuf {
    folder.join("state/runtime_state.db")
}

/// Puts the copy back that a life made, as `ua db restore` does. Nobody may live.
pub(crate) fn restore(options: &Options) -> Outcome<()> {
    let folder = PathBuf::from(options.need("folder")?);
    ua_store_sqlite::restore(&folder.join(COPY), &database(&folder), ua_core::system::env().now())?;
    Ok(())
}

/// Says that this life stands where it is, and waits until the harness lets it go on.
fn stand(folder: &Path) {
    if let Err(error) = std::fs::write(folder.join(STANDS), "") {
        eprintln!("life: {error}");
    }
    while !folder.join(GO_ON).exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Where this life is to die, where its tool server is, where another owner takes the run over, where the database is copied, and where
/// it stands until it is let go.
fn points(
    options: &Options,
    folder: &Path,
    servers: &Servers,
    successor: &Arc<Successor>,
) -> Outcome<Vec<Arc<dyn Plan>>> {
    let read = |text: &str| KillPoint::parse(text).ok_or_else(|| format!("{text:?} is no kill point"));
    let mut points: Vec<Arc<dyn Plan>> = vec![successor.clone()];
    if let Some(text) = options.get("kill") {
        points.push(Arc::new(read(text)?));
    }
    if let Some(text) = options.get("kill-server") {
        let pid = Arc::clone(&servers.pid);
        points.push(Arc::new(read(text)?.instead(move || {
            if let Some(pid) = Pid::from_raw(pid.load(Ordering::SeqCst)) {
                kill(pid);
            }
        })));
    }
    if let Some(text) = options.get("replace") {
        let successor = Arc::clone(successor);
        points.push(Arc::new(read(text)?.instead(move || successor.take_the_run())));
    }
    if let Some(text) = options.get("copy") {
        let folder = folder.to_owned();
        points.push(Arc::new(read(text)?.instead(move || {
            if let Err(error) = ua_store_sqlite::backup(&database(&folder), &folder.join(COPY)) {
                eprintln!("life: {error}");
            }
        })));
    }
    if let Some(text) = options.get("stand") {
        let folder = folder.to_owned();
        points.push(Arc::new(read(text)?.instead(move || stand(&folder))));
    }
    Ok(points)
}

/// What stays the same through one life.
struct Life<'a> {
    options: &'a Options,
    job: &'a Job,
    folder: &'a Path,
    database: Arc<SqliteStore>,
    env: Env,
    run: RunId,
}

async fn drive_run(
    life: &Life<'_>,
    store: Arc<dyn Store>,
    transport: Arc<dyn ToolTransport>,
    llm: Arc<dyn LlmProvider>,
) -> Outcome<RunStatus> {
    let Life { options, job, folder, database, env, run } = life;
    let trace = Trace::new(env);
    let owner = owner_stamp(trace.clone());
    // A fork takes its lock while it is made, and lets it go.
    if options.get("fork-of").is_some() && store.run(run).await.is_err() {
        fork(life, store.as_ref()).await?;
    }
    let _lock = RunLock::take(&folder.join("locks"), run, &owner)?;
    if let Ok(records) = store.load(run).await {
        state::write(folder, &format!("found.{}.json", options.need("life")?), &state::found(&records, &job.subject))?;
        if records.run.status.is_terminal() {
            return Ok(records.run.status);
        }
        answer(life, &store).await?;
    } else {
        let spec = RunSpec::parse(&job.spec.to_string())?;
        let submitted = NewRun {
            run_id: run.clone(),
            created_at: env.now(),
            entrypoint: "library".into(),
            run_mode: "job".into(),
            opening: Message::user(Origin::Prompt, spec.opening_prompt()),
            spec,
            files: Vec::new(),
            job_path: None,
            workspace_dir: folder.join("ws").display().to_string(),
            launch: serde_json::Value::Null,
            parent_run_id: None,
        };
        store.submit_run(submitted).await?;
    }
    let broken = options.get("broken").and_then(BrokenRule::parse);
    let policy = job.policy.clone();
    let database = Arc::clone(database);
    let driver = TreeDriver { store, database, transport, llm, policy, broken, env: env.clone(), trace };
    let (_, record) = driver
        .drive_run(run.clone(), None, StopSignal::default())
        .await
        .map_err(|error| -> Box<dyn std::error::Error> { error })?;
    Ok(record.status)
}

/// Makes the fork that this life is to drive.
async fn fork(life: &Life<'_>, store: &dyn Store) -> Outcome<()> {
    let parent = RunId::parse(life.options.need("fork-of")?)?;
    let place = ForkPlace {
        run_id: life.run.clone(),
        root: life.folder,
        locks: &life.folder.join("locks"),
        workspace_dir: life.folder.join("ws_fork"),
        launch: serde_json::Value::Null,
        entrypoint: "library".to_owned(),
    };
    let spec = match life.options.get("fork-prompt") {
        Some(prompt) => {
            let mut spec = life.job.spec.clone();
            spec["prompt"] = prompt.into();
            Some(RunSpec::parse(&spec.to_string())?)
        }
        None => None,
    };
    ForkPlan::new(store, &parent, None, spec).await?.carry_out(store, place, &life.env).await?;
    Ok(())
}

/// What a person says who looks outside: `happened` names the tools whose effect is there.
async fn by_looking(store: &dyn Store, question: &QuestionRecord, happened: &str) -> Outcome<Choice> {
    let call = store.call(question.call_id.as_ref().ok_or("a question about no call")?).await?;
    let is_there = happened.split(',').any(|tool| tool == call.name.tool);
    Ok(match (question.kind, is_there) {
        (QuestionKind::AuthFailure, _) | (QuestionKind::NearDuplicate, true) => Choice::Skip,
        (_, true) => Choice::Happened,
        (_, false) => Choice::Execute,
    })
}

/// Answers what the last life asked, as the harness says.
async fn answer(life: &Life<'_>, store: &Arc<dyn Store>) -> Outcome<()> {
    // A sub-agent's question is its run's; whoever answers sees those of the whole tree.
    let is_tree = store.run(&life.run).await?.spec.subagents.is_some();
    for question in store.open_questions(Some(&life.run).filter(|_| !is_tree)).await? {
        if question.status != QuestionStatus::Open {
            continue; // answered by a life that was killed before it acted on it
        }
        let looked = life.options.get("happened");
        let Some(word) = life.options.get("answer").or(looked) else { continue };
        let choice = match (question.kind, word) {
            (QuestionKind::Elicitation, _) => {
                store.insert_answer(elicited(question.question_id, life.env.now())).await?;
                continue;
            }
            (_, happened) if looked.is_some() => by_looking(store.as_ref(), &question, happened).await?,
            (QuestionKind::NearDuplicate | QuestionKind::AuthFailure, _) => Choice::Skip,
            (_, "happened") => Choice::Happened,
            (_, "execute") => Choice::Execute,
            (_, other) => return Err(format!("{other:?} is no answer").into()),
        };
        // Whoever lets a call go looks when the question says that a look counts.
        if choice == Choice::Execute
            && let Some(until) = ua_ledger::look_after(&question)
        {
            life.env.clock.sleep(until.since(life.env.now())).await;
        }
        let answer = NewAnswer {
            question_id: question.question_id,
            answer: choice.into(),
            by: "the harness".into(),
            at: life.env.now(),
        };
        store.insert_answer(answer).await?;
    }
    Ok(())
}
