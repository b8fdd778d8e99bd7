//! One process's life: it takes a run, and drives it and the runs of its sub-agents to a conclusion of its own unless the stage ends it
//! before.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use serde_json::Value;
use ua_classify::{Classifier, Lists, PolicyRules};
use ua_core::{Clock, Env, Message, Origin, PriceTable, RunId, RunSpec, RunStatus, SeededEntropy, Trace};
use ua_dispatch::{StopSignal, SubAgentError, SubAgents, ToolTransport};
use ua_ledger::{LateReplies, PeopleRules};
use ua_llm::LlmProvider;
use ua_runner::{
    ChildDriver, Conclusion, Desk, DeskPorts, PastKnown, PinSettings, RetryPolicy, RunSettings, Seams, WorkError,
    Worker, Workspace, owner_stamp,
};
use ua_store::conformance::StoreSeam;
use ua_store::{LateReply, NewRun, RunLease, RunRecord, RunStore, Store, StoreError};

use super::gates::{Gates, LifePlan};
use super::job::POLICY;
use super::locked;
use super::model::{AskedBy, SimModel};
use super::servers::{Reach, Servers};
use crate::broken::BrokenRule;
use crate::seams::Seam;

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What a process is started with, and has for every run of its tree.
#[derive(Clone)]
pub(super) struct Life {
    pub(super) number: usize,
    pub(super) seed: u64,
    /// The run at the top.
    pub(super) run: RunId,
    pub(super) job: Value,
    pub(super) folder: PathBuf,
    pub(super) store: Arc<dyn Store>,
    pub(super) model: Arc<SimModel>,
    pub(super) servers: Arc<Servers>,
    pub(super) gates: Arc<Gates>,
    /// Answers that the database did not take: they lie beside it, whichever copy of it is used.
    pub(super) late: Arc<Late>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) stop: StopSignal,
    pub(super) broken: Option<BrokenRule>,
}

/// What `late_replies.log` is to the processes of a root.
#[derive(Debug, Default)]
pub(super) struct Late(Mutex<Vec<LateReply>>);

#[async_trait]
impl LateReplies for Late {
    async fn keep(&self, late: &LateReply) -> Result<(), String> {
        locked(&self.0).push(late.clone());
        Ok(())
    }

    fn all(&self) -> Vec<LateReply> {
        locked(&self.0).clone()
    }
}

/// The file that is uploaded.
const UPLOAD: &str = "a.txt";

type Driven = Pin<Box<dyn Future<Output = Result<(Conclusion, RunRecord), SubAgentError>> + Send>>;

/// The seams of one process: each crossing waits at its gates, and a broken rule stands behind them.
struct Crossings {
    plan: Arc<LifePlan>,
    broken: Option<BrokenRule>,
}

impl Seams for Crossings {
    fn transport(&self, transport: Arc<dyn ToolTransport>) -> Arc<dyn ToolTransport> {
        let transport = self.broken.map_or(transport.clone(), |rule| rule.transport(transport));
        Arc::new(Seam::new(transport, self.plan.clone()))
    }

    fn llm(&self, llm: Arc<dyn LlmProvider>) -> Arc<dyn LlmProvider> {
        let llm = self.broken.map_or(llm.clone(), |rule| rule.model(llm));
        Arc::new(Seam::new(llm, self.plan.clone()))
    }

    fn sub_agents(
        &self,
        agents: Arc<dyn SubAgents>,
        store: &Arc<dyn Store>,
        lease: &RunLease,
        driver: &Arc<dyn ChildDriver>,
    ) -> Arc<dyn SubAgents> {
        match self.broken {
            Some(rule) => rule.sub_agents(agents, store.clone(), lease.clone(), driver.clone()),
            None => agents,
        }
    }
}

#[async_trait]
impl ChildDriver for Life {
    async fn drive(
        &self,
        above: &RunLease,
        child: RunRecord,
        workspace: Workspace,
        stop: &StopSignal,
    ) -> Result<(Conclusion, RunRecord), SubAgentError> {
        PastKnown::of(self.store.as_ref(), &child).await?;
        let life = Self { stop: stop.clone(), ..self.clone() };
        life.drive_run(child.run_id, child.spec.objective.clone(), Some((above.clone(), workspace))).await
    }
}

impl Life {
    /// Drives the run, and says how this process left it.
    pub(super) async fn live(self) -> Result<RunStatus, BoxError> {
        if let Err(StoreError::NotFound { .. }) = self.store.run(&self.run).await {
            self.submit().await?;
        }
        let run = self.run.clone();
        Ok(self.drive_run(run, String::new(), None).await?.1.status)
    }

    /// Chance and time of one run in this life: what its sub-agents draw meanwhile changes nothing of it.
    fn env(&self, run: &RunId) -> Env {
        let words = format!("{} {} {run}", self.seed, self.number);
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        let seed = words.bytes().fold(0xCBF2_9CE4_8422_2325_u64, mix);
        Env { clock: Arc::clone(&self.clock), entropy: Arc::new(SeededEntropy::new(seed)) }
    }

    fn seam(&self, plan: &Arc<LifePlan>) -> Arc<dyn Store> {
        let seam = StoreSeam::new(Arc::clone(&self.store), plan.clone());
        Arc::new(match self.broken.and_then(BrokenRule::writes) {
            Some(writes) => seam.with_writes(writes),
            None if self.broken == Some(BrokenRule::NoEpochCheck) => seam.ignoring_epochs(),
            None => seam,
        })
    }

    fn drive_run(self, run: RunId, label: String, above: Option<(RunLease, Workspace)>) -> Driven {
        Box::pin(self.carry(run, label, above))
    }

    async fn carry(
        self,
        run: RunId,
        label: String,
        above: Option<(RunLease, Workspace)>,
    ) -> Result<(Conclusion, RunRecord), SubAgentError> {
        let env = self.env(&run);
        let plan = LifePlan::new(self.number, run.clone(), label, Arc::clone(&self.gates), self.servers.clock());
        let store = self.seam(&plan);
        let trace = Trace::new(&env);
        let acquired_at = env.now();
        let owner = owner_stamp(trace.clone());
        let (lease, record) = match &above {
            Some((above, _)) => store.acquire_task_run(above, &run, &owner, acquired_at).await?,
            None => store.acquire_run(&run, &owner, acquired_at).await?,
        };
        let workspace = match &above {
            Some((_, workspace)) => workspace.clone(),
            None => Workspace::create(Path::new(&record.workspace_dir))?,
        };
        let upload = workspace.path(UPLOAD);
        if !upload.exists() {
            std::fs::write(upload, "what is uploaded")?; // every folder of the tree has it from the beginning
        }

        let ask_on_auth_failure = record.spec.escalation.ask_human_on_auth_failure;
        let people = PeopleRules { ask_on_auth_failure, ..PeopleRules::default() };
        let servers = Arc::clone(&self.servers);
        let reach = Reach { life: self.number, run: run.clone(), servers, plan: plan.clone() };
        let ports = DeskPorts {
            store,
            lease,
            past: PastKnown::of(self.store.as_ref(), &record).await?,
            run: record,
            workspace,
            tools: Arc::new(reach),
            classifier: classifier(self.broken)?,
            env,
            trace,
            stop: self.stop.clone(),
        };
        let seams = Crossings { plan, broken: self.broken };
        let desk = Desk::new(ports)
            .with_people(people)
            .with_seams(Arc::new(seams))
            .with_late_replies(Arc::clone(&self.late) as Arc<dyn LateReplies>);
        let model = Arc::new(AskedBy::new(Arc::clone(&self.model), self.number, run));
        let settings = RunSettings {
            model: "simulated".into(),
            system: "You do each thing once.".into(),
            max_output_tokens: 100,
            history_tokens: None,
            images: false,
            structured: false,
            temperature_milli: None,
            seed: None,
            prices: PriceTable::default(),
            retry: RetryPolicy::default(),
            pins: PinSettings::default(),
        };
        let worker = Worker::new(desk.with_sub_agents(Arc::new(self)), model, settings, acquired_at);
        let worked = worker.work().await.map_err(WorkError::into_source)?;
        Ok((worked.conclusion, worked.run))
    }

    async fn submit(&self) -> Result<(), BoxError> {
        let plan =
            LifePlan::new(self.number, self.run.clone(), String::new(), Arc::clone(&self.gates), self.servers.clock());
        let spec = RunSpec::parse(&self.job.to_string())?;
        let run = NewRun {
            run_id: self.run.clone(),
            created_at: self.clock.now(),
            entrypoint: "library".into(),
            run_mode: "job".into(),
            opening: Message::user(Origin::Prompt, spec.opening_prompt()),
            spec,
            files: Vec::new(),
            job_path: None,
            workspace_dir: self.folder.display().to_string(),
            launch: Value::Null,
            parent_run_id: None,
        };
        match self.seam(&plan).submit_run(run).await {
            Ok(_) | Err(StoreError::Exists { .. }) => Ok(()), // another process was faster
            Err(error) => Err(error.into()),
        }
    }
}

/// What is known about the tools; read once, since thousands of processes ask.
fn classifier(broken: Option<BrokenRule>) -> Result<Arc<Classifier>, BoxError> {
    static SOUND: OnceLock<Arc<Classifier>> = OnceLock::new();
    let policy = broken.map_or_else(|| POLICY.to_owned(), |rule| rule.policy(POLICY));
    if policy == POLICY
        && let Some(sound) = SOUND.get()
    {
        return Ok(Arc::clone(sound));
    }
    let rules = PolicyRules::parse(&policy, "sim.toml")?;
    let classifier = Arc::new(Classifier::new(vec![rules], &Lists::default(), HashSet::new())?);
    Ok(if policy == POLICY { Arc::clone(SOUND.get_or_init(|| classifier)) } else { classifier })
}

/// An error and its causes on one line.
pub(super) fn words_of(error: &BoxError) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        words = format!("{words}: {inner}");
        cause = inner.source();
    }
    words
}
