//! What every process of these tests drives a run with: the real dispatcher, ledger and machine over a world that counts.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ua_classify::{Classifier, Lists, PolicyRules};
use ua_core::{Env, Message, Origin, PriceTable, RunId, RunSpec, Trace};
use ua_dispatch::{StopSignal, ToolTransport};
use ua_ledger::PeopleRules;
use ua_llm::LlmProvider;
use ua_runner::{
    ChildDriver, Conclusion, Desk, DeskPorts, PastKnown, PinSettings, RetryPolicy, RunError, RunSettings, Seams,
    WorkError, Worker, Workspace, owner_stamp, top_of_tree,
};
use ua_store::{NewRun, RunLease, RunRecord, RunStore, Store};
use ua_testkit::{Plan, Seam};

/// One process.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) tools: Arc<dyn ToolTransport>,
    /// The store behind this process's seam.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) llm: Arc<dyn LlmProvider>,
    pub(crate) plan: Arc<dyn Plan>,
    pub(crate) env: Env,
    pub(crate) stop: StopSignal,
    /// A policy file of the user's.
    pub(crate) policy: Option<String>,
    pub(crate) model: &'static str,
    pub(crate) prices: Option<&'static str>,
    /// The lease of the run above, when it is a sub-agent that is driven.
    pub(crate) above: Option<RunLease>,
}

impl Process {
    /// Takes a run and drives it to this process's conclusion. `people` says which rules about people hold, given those of the job.
    pub(crate) async fn drive(
        self,
        run_id: &RunId,
        people: fn(PeopleRules) -> PeopleRules,
        agents: Option<Arc<dyn ChildDriver>>,
    ) -> Result<(Conclusion, RunRecord), RunError> {
        let Self { tools, store, llm, plan, env, stop, policy, model, prices, above } = self;
        let trace = Trace::new(&env);
        let now = env.now();
        let owner = owner_stamp(trace.clone());
        let (lease, run) = match above {
            Some(above) => store.acquire_task_run(&above, run_id, &owner, now).await.unwrap(),
            None => store.acquire_run(run_id, &owner, now).await.unwrap(),
        };
        let past = PastKnown::of(store.as_ref(), &run).await.unwrap();
        let job = top_of_tree(store.as_ref(), &run).await?.spec;
        let workspace = Workspace::create(Path::new(&run.workspace_dir)).unwrap();
        let prices = prices.map_or_else(PriceTable::default, |text| PriceTable::parse("prices", text).unwrap());
        let ports = DeskPorts {
            store,
            lease,
            run,
            past,
            workspace,
            tools,
            classifier: classifier(policy.as_deref()),
            env,
            trace,
            stop,
        };
        let desk = Desk::new(ports).with_seams(Arc::new(Crossings(plan))).with_people(people(PeopleRules::of(&job)));
        let desk = match agents {
            Some(agents) => desk.with_sub_agents(agents),
            None => desk,
        };
        let settings = RunSettings {
            model: model.into(),
            system: "s".into(),
            max_output_tokens: 100,
            history_tokens: None,
            images: false,
            structured: false,
            temperature_milli: None,
            seed: None,
            prices,
            retry: RetryPolicy::default(),
            pins: PinSettings::default(),
        };
        match Worker::new(desk, llm, settings, now).work().await {
            Ok(worked) => Ok((worked.conclusion, worked.run)),
            Err(WorkError::Run(error)) => Err(error),
            Err(WorkError::Tools(error)) => panic!("the tools of this world fit together: {error}"),
        }
    }
}

/// The seams of one process, each crossing of which is a place to die.
struct Crossings(Arc<dyn Plan>);

impl Seams for Crossings {
    fn transport(&self, transport: Arc<dyn ToolTransport>) -> Arc<dyn ToolTransport> {
        Arc::new(Seam::new(transport, self.0.clone()))
    }
    fn llm(&self, llm: Arc<dyn LlmProvider>) -> Arc<dyn LlmProvider> {
        Arc::new(Seam::new(llm, self.0.clone()))
    }
}

/// What is known about the tools, read once for each policy file: reading the shipped rules takes longer than a whole run.
fn classifier(policy: Option<&str>) -> Arc<Classifier> {
    static READ: OnceLock<Mutex<HashMap<Option<String>, Arc<Classifier>>>> = OnceLock::new();
    let mut read = READ.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let made = read.entry(policy.map(str::to_owned)).or_insert_with(|| {
        let rules = policy.iter().map(|text| PolicyRules::parse(text, "policy.toml").unwrap()).collect();
        Arc::new(Classifier::new(rules, &Lists::default(), HashSet::new()).unwrap())
    });
    Arc::clone(made)
}

/// A job as it is submitted.
pub(crate) fn new_run(run_id: &RunId, job: &serde_json::Value, workspace: &Path, env: &Env) -> NewRun {
    let spec = RunSpec::parse(&job.to_string()).unwrap();
    NewRun {
        run_id: run_id.clone(),
        created_at: env.now(),
        entrypoint: "library".into(),
        run_mode: "job".into(),
        opening: Message::user(Origin::Prompt, spec.opening_prompt()),
        spec,
        files: Vec::new(),
        job_path: None,
        workspace_dir: workspace.display().to_string(),
        launch: serde_json::Value::Null,
        parent_run_id: None,
    }
}

/// A folder in memory where there is one: thousands of workspaces are made here, and none has to outlive the test.
pub(crate) fn folder() -> tempfile::TempDir {
    let in_memory = Path::new("/dev/shm");
    let made = if in_memory.is_dir() { tempfile::tempdir_in(in_memory) } else { tempfile::tempdir() };
    made.or_else(|_| tempfile::tempdir()).unwrap()
}
