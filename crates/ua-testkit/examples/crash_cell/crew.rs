//! What one life drives a run with, and the runs of its sub-agents: the same tool server, model and store for all of them.

use std::collections::HashSet;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use ua_classify::{Classifier, Lists, PolicyRules};
use ua_core::{Env, PriceTable, RunId, Trace};
use ua_gateway::{
    Catalog, Fence, Rules, StopSignal, SubAgentError, SubAgents, ToolGateway, ToolTransport, WorkspaceFiles, task_tool,
};
use ua_ledger::{Ledger, LedgerConfig};
use ua_llm::LlmProvider;
use ua_runner::{
    ChildDriver, ChildRuns, Conclusion, PinSettings, Ports, RetryPolicy, RunSettings, Signal, Workspace, drive,
    effect_limits, owner_stamp, top_of_tree,
};
use ua_store::{RunLease, RunRecord, Store};
use ua_store_sqlite::SqliteStore;
use ua_testkit::BrokenRule;

/// What a life has for all runs of a tree.
#[derive(Clone)]
pub(crate) struct Crew {
    pub(crate) store: Arc<dyn Store>,
    /// The database behind it, which knows what it has forgotten.
    pub(crate) database: Arc<SqliteStore>,
    pub(crate) transport: Arc<dyn ToolTransport>,
    pub(crate) llm: Arc<dyn LlmProvider>,
    /// The policy file.
    pub(crate) policy: String,
    pub(crate) broken: Option<BrokenRule>,
    pub(crate) env: Env,
    pub(crate) trace: Trace,
}

type Driven = Pin<Box<dyn Future<Output = Result<(Conclusion, RunRecord), SubAgentError>> + Send>>;

#[async_trait]
impl ChildDriver for Crew {
    async fn drive(
        &self,
        above: &RunLease,
        child: RunRecord,
        stop: &StopSignal,
    ) -> Result<(Conclusion, RunRecord), SubAgentError> {
        // As the command line does.
        if !self.database.forgotten_attempts(&child.run_id).await?.is_empty() {
            return Err(format!("the database has forgotten what {} sent", child.run_id).into());
        }
        self.clone().drive_run(child.run_id, Some(above.clone()), stop.clone()).await
    }
}

impl Crew {
    /// Takes a run and drives it to this life's conclusion.
    pub(crate) fn drive_run(self, run: RunId, above: Option<RunLease>, stop: StopSignal) -> Driven {
        Box::pin(self.carry(run, above, stop))
    }

    async fn carry(
        self,
        run: RunId,
        above: Option<RunLease>,
        stop: StopSignal,
    ) -> Result<(Conclusion, RunRecord), SubAgentError> {
        let crew = self.clone();
        let Self { store, database: _, transport, llm, policy, broken, env, trace } = self;
        let workspace = Workspace::create(Path::new(&store.run(&run).await?.workspace_dir))?;
        let acquired_at = env.now();
        let owner = owner_stamp(trace.clone());
        let (lease, record) = match above {
            Some(above) => store.acquire_task_run(&above, &run, &owner, acquired_at).await?,
            None => store.acquire_run(&run, &owner, acquired_at).await?,
        };
        if let Fence::Alive { detail } = transport.fence_earlier().await {
            return Err(detail.into());
        }
        let policy = broken.map_or(policy.clone(), |rule| rule.policy(&policy));
        let policy = PolicyRules::parse(&policy, "cell.toml")?;
        let classifier = Arc::new(Classifier::new(vec![policy], &Lists::default(), HashSet::new())?);
        let rules = Rules::of(&record.spec)?;
        let mut tools = transport.list().await?;
        if record.spec.subagents.is_some() {
            tools.push(task_tool());
        }
        let catalog = Catalog::new(tools, &classifier, &rules)?;
        let config = LedgerConfig {
            no_duplicate_external_actions: record.spec.constraints.no_duplicate_external_actions,
            max_retries: record.spec.budgets.max_retries_per_tool_call,
            max_effects: effect_limits(&top_of_tree(store.as_ref(), &record).await?.spec),
        };
        let ledger = Ledger::new(store.clone(), lease.clone(), record.root_run_id.clone(), config, env.clone(), trace);
        let files = WorkspaceFiles::open(workspace.root())?;
        let driver: Arc<dyn ChildDriver> = Arc::new(crew);
        let agents = ChildRuns::new(store.clone(), lease.clone(), workspace.clone(), env.clone(), driver.clone());
        let agents: Arc<dyn SubAgents> = Arc::new(agents);
        let agents = match broken {
            Some(rule) => rule.sub_agents(agents, store.clone(), lease.clone(), driver),
            None => agents,
        };
        let gateway = ToolGateway::new(catalog, classifier, rules, ledger, transport, files, Box::new(|_| {}))
            .with_sub_agents(agents);
        let watcher = Arc::new(|_: Signal| {});
        let ports = Ports { store, llm, gateway, lease, workspace, env, watcher, stop };
        let settings = RunSettings {
            model: "scripted".into(),
            system: "You do each thing once.".into(),
            max_output_tokens: 100,
            history_tokens: None,
            images: false,
            temperature_milli: None,
            prices: PriceTable::default(),
            retry: RetryPolicy::default(),
            pins: PinSettings::default(),
        };
        Ok(Box::pin(drive(&ports, &settings, acquired_at)).await?)
    }
}
