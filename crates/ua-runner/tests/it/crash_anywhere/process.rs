//! What every process of these tests drives a run with: the real gateway, ledger and machine over a world that counts.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ua_classify::{Classifier, Lists, PolicyRules};
use ua_core::{Env, Message, Origin, PriceTable, RunId, RunSpec, Trace};
use ua_gateway::{
    Catalog, Rules, StopSignal, SubAgents, ToolGateway, ToolTransport, WithAskUser, WorkspaceFiles, task_tool,
};
use ua_ledger::{Ledger, LedgerConfig, PeopleRules};
use ua_llm::LlmProvider;
use ua_runner::{
    Conclusion, PinSettings, Ports, RetryPolicy, RunError, RunSettings, Signal, Workspace, drive, effect_limits,
    owner_stamp, top_of_tree,
};
use ua_store::{NewRun, RunLease, RunRecord, Store};
use ua_testkit::{Plan, Seam, World};

/// One process.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) world: Arc<World>,
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

/// Whoever drives the sub-agents of a run, once it is taken.
pub(crate) type AgentsOf = Box<dyn FnOnce(&RunLease, &Workspace) -> Arc<dyn SubAgents> + Send>;

impl Process {
    /// Takes a run and drives it to this process's conclusion. `people` says which rules about people hold, given those of the job.
    pub(crate) async fn drive(
        self,
        run_id: &RunId,
        people: fn(PeopleRules) -> PeopleRules,
        agents: Option<AgentsOf>,
    ) -> Result<(Conclusion, RunRecord), RunError> {
        let Self { world, store, llm, plan, env, stop, policy, model, prices, above } = self;
        let trace = Trace::new(&env);
        let now = env.now();
        let owner = owner_stamp(trace.clone());
        let (lease, run) = match above {
            Some(above) => store.acquire_task_run(&above, run_id, &owner, now).await.unwrap(),
            None => store.acquire_run(run_id, &owner, now).await.unwrap(),
        };
        let job = top_of_tree(store.as_ref(), &run).await?.spec;
        let workspace = Workspace::create(Path::new(&run.workspace_dir)).unwrap();
        let tools = Arc::new(WithAskUser::new(world, store.clone()));
        let transport: Arc<dyn ToolTransport> = Arc::new(Seam::new(tools as Arc<dyn ToolTransport>, plan.clone()));
        let classifier = classifier(policy.as_deref());
        let rules = Rules::of(&run.spec).unwrap();
        let mut specs = transport.list().await.unwrap();
        if agents.is_some() {
            specs.push(task_tool());
        }
        let catalog = Catalog::new(specs, &classifier, &rules).unwrap();
        let config = LedgerConfig {
            no_duplicate_external_actions: true,
            max_retries: run.spec.budgets.max_retries_per_tool_call,
            max_effects: effect_limits(&job),
        };
        let ledger = Ledger::new(store.clone(), lease.clone(), run.root_run_id.clone(), config, env.clone(), trace);
        let prices = prices.map_or_else(PriceTable::default, |text| PriceTable::parse("prices", text).unwrap());
        let ledger = ledger.with_people(people(PeopleRules::of(&job))).with_prices(prices.clone());
        let files = WorkspaceFiles::open(workspace.root()).unwrap();
        let mut gateway = ToolGateway::new(catalog, classifier, rules, ledger, transport, files, Box::new(|_| {}));
        if let Some(agents) = agents {
            gateway = gateway.with_sub_agents(agents(&lease, &workspace));
        }
        let llm = Arc::new(Seam::new(llm, plan));
        let watcher = Arc::new(|_: Signal| {});
        let ports = Ports { store, llm, gateway, lease, workspace, env, watcher, stop };
        let settings = RunSettings {
            model: model.into(),
            system: "s".into(),
            max_output_tokens: 100,
            history_tokens: None,
            images: false,
            temperature_milli: None,
            prices,
            retry: RetryPolicy::default(),
            pins: PinSettings::default(),
        };
        Box::pin(drive(&ports, &settings, now)).await
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
