//! What one life drives a run with, and the runs of its sub-agents: the same tool server, model and store for all of them.

use std::collections::HashSet;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use ua_classify::{Classifier, Lists, PolicyRules};
use ua_core::{Env, PriceTable, RunId, Trace};
use ua_dispatch::{StopSignal, SubAgentError, SubAgents, ToolTransport};
use ua_ledger::PeopleRules;
use ua_llm::LlmProvider;
use ua_runner::{
    ChildDriver, Conclusion, Desk, DeskPorts, PastKnown, PinSettings, RetryPolicy, RunSettings, Seams, WorkError,
    Worked, Worker, Workspace, owner_stamp,
};
use ua_store::{PastStore as _, RunLease, RunRecord, RunStore, Store};
use ua_store_sqlite::SqliteStore;
use ua_testkit::BrokenRule;

/// What a life has for all runs of a tree.
#[derive(Clone)]
pub(crate) struct TreeDriver {
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
impl ChildDriver for TreeDriver {
    async fn drive(
        &self,
        above: &RunLease,
        child: RunRecord,
        workspace: Workspace,
        stop: &StopSignal,
    ) -> Result<(Conclusion, RunRecord), SubAgentError> {
        // As the command line does.
        if !self.database.forgotten(&child.run_id).await?.is_empty() {
            return Err(format!("the database has forgotten what {} sent", child.run_id).into());
        }
        self.clone().drive_run(child.run_id, Some((above.clone(), workspace)), stop.clone()).await
    }
}

impl TreeDriver {
    /// Takes a run and drives it to this life's conclusion.
    pub(crate) fn drive_run(self, run: RunId, above: Option<(RunLease, Workspace)>, stop: StopSignal) -> Driven {
        Box::pin(self.carry(run, above, stop))
    }

    async fn carry(
        self,
        run: RunId,
        above: Option<(RunLease, Workspace)>,
        stop: StopSignal,
    ) -> Result<(Conclusion, RunRecord), SubAgentError> {
        let workspace = match &above {
            Some((_, workspace)) => workspace.clone(),
            None => Workspace::create(Path::new(&self.store.run(&run).await?.workspace_dir))?,
        };
        let acquired_at = self.env.now();
        let owner = owner_stamp(self.trace.clone());
        let (lease, run) = match above {
            Some((above, _)) => self.store.acquire_task_run(&above, &run, &owner, acquired_at).await?,
            None => self.store.acquire_run(&run, &owner, acquired_at).await?,
        };
        let past = PastKnown::of(self.store.as_ref(), &run).await?;
        let policy = self.broken.map_or(self.policy.clone(), |rule| rule.policy(&self.policy));
        let policy = PolicyRules::parse(&policy, "cell.toml")?;
        let ports = DeskPorts {
            store: self.store.clone(),
            lease,
            run,
            past,
            workspace,
            tools: self.transport.clone(),
            classifier: Arc::new(Classifier::new(vec![policy], &Lists::default(), HashSet::new())?),
            env: self.env.clone(),
            trace: self.trace.clone(),
            stop,
        };
        let desk = Desk::new(ports)
            .with_people(PeopleRules::default())
            .with_seams(Arc::new(Broken(self.broken)))
            .with_heartbeat(self.database.clone());
        let settings = RunSettings {
            model: "scripted".into(),
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
        let llm = self.llm.clone();
        let worker = Worker::new(desk.with_sub_agents(Arc::new(self)), llm, settings, acquired_at);
        let Worked { conclusion, run, is_driven } = worker.work().await.map_err(WorkError::into_source)?;
        // Each life ends its tool servers before the next begins, so none of them is ever an orphan.
        if is_driven { Ok((conclusion, run)) } else { Err(format!("the run was not driven: {conclusion:?}").into()) }
    }
}

/// A rule about sub-agents that is broken on purpose.
struct Broken(Option<BrokenRule>);

impl Seams for Broken {
    fn sub_agents(
        &self,
        agents: Arc<dyn SubAgents>,
        store: &Arc<dyn Store>,
        lease: &RunLease,
        driver: &Arc<dyn ChildDriver>,
    ) -> Arc<dyn SubAgents> {
        match self.0 {
            Some(rule) => rule.sub_agents(agents, store.clone(), lease.clone(), driver.clone()),
            None => agents,
        }
    }
}
