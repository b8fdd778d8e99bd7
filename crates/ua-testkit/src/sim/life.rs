//! One process's life: it takes the run, and drives it to a conclusion of its own unless the stage ends it before.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use ua_classify::{Classifier, Lists, PolicyRules};
use ua_core::{Env, Message, Origin, PriceTable, RunId, RunSpec, RunStatus, Trace};
use ua_gateway::{Catalog, Fence, Rules, StopSignal, ToolGateway, ToolTransport, WorkspaceFiles};
use ua_ledger::{Ledger, LedgerConfig};
use ua_llm::LlmProvider;
use ua_runner::{
    PinSettings, Ports, RetryPolicy, RunSettings, Signal, Workspace, drive, effect_limits, owner_stamp, park_for_orphan,
};
use ua_store::{NewRun, Store, StoreError};

use super::gates::LifePlan;
use super::job::POLICY;
use super::model::SimModel;
use super::servers::Reach;
use crate::broken::BrokenRule;
use crate::seams::Seam;

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What a process is started with.
pub(super) struct Life {
    pub(super) run: RunId,
    pub(super) job: Value,
    pub(super) folder: PathBuf,
    pub(super) store: Arc<dyn Store>,
    pub(super) model: Arc<SimModel>,
    pub(super) reach: Reach,
    pub(super) plan: Arc<LifePlan>,
    pub(super) env: Env,
    pub(super) stop: StopSignal,
    pub(super) broken: Option<BrokenRule>,
}

impl Life {
    /// Drives the run, and says how this process left it.
    pub(super) async fn live(self) -> Result<RunStatus, BoxError> {
        let seam = Seam::new(Arc::clone(&self.store), self.plan.clone());
        let store: Arc<dyn Store> = Arc::new(match self.broken.and_then(BrokenRule::writes) {
            Some(writes) => seam.with_writes(writes),
            None if self.broken == Some(BrokenRule::NoEpochCheck) => seam.ignoring_epochs(),
            None => seam,
        });
        if self.store.run(&self.run).await.is_err() {
            self.submit(store.as_ref()).await?;
        }
        let trace = Trace::new(&self.env);
        let acquired_at = self.env.now();
        let (lease, record) = store.acquire_run(&self.run, &owner_stamp(trace.clone()), acquired_at).await?;
        let workspace = Workspace::create(&self.folder)?;

        let transport: Arc<dyn ToolTransport> = Arc::new(self.reach);
        let transport = self.broken.map_or(transport.clone(), |rule| rule.transport(transport));
        let transport: Arc<dyn ToolTransport> = Arc::new(Seam::new(transport, self.plan.clone()));
        if let Fence::Alive { detail } = transport.fence_earlier().await {
            return Ok(park_for_orphan(store.as_ref(), &lease, &self.env, &detail).await?.1.status);
        }
        let classifier = classifier(self.broken)?;
        let rules = Rules::of(&record.spec)?;
        let catalog = Catalog::new(transport.list().await?, &classifier, &rules)?;
        let config = LedgerConfig {
            no_duplicate_external_actions: record.spec.constraints.no_duplicate_external_actions,
            max_retries: record.spec.budgets.max_retries_per_tool_call,
            max_effects: effect_limits(&record.spec),
        };
        let root = record.root_run_id.clone();
        let ledger = Ledger::new(store.clone(), lease.clone(), root, config, self.env.clone(), trace);
        let files = WorkspaceFiles::open(workspace.root())?;
        let gateway = ToolGateway::new(catalog, classifier, rules, ledger, transport, files, Box::new(|_| {}));
        let model: Arc<dyn LlmProvider> = self.model;
        let model = self.broken.map_or(model.clone(), |rule| rule.model(model));
        let llm: Arc<dyn LlmProvider> = Arc::new(Seam::new(model, self.plan));
        let ports = Ports {
            store,
            llm,
            gateway,
            lease,
            workspace,
            env: self.env,
            watcher: Arc::new(|_: Signal| {}),
            stop: self.stop,
        };
        let settings = RunSettings {
            model: "simulated".into(),
            system: "You do each thing once.".into(),
            max_output_tokens: 100,
            history_tokens: None,
            images: false,
            temperature_milli: None,
            prices: PriceTable::default(),
            retry: RetryPolicy::default(),
            pins: PinSettings::default(),
        };
        Ok(Box::pin(drive(&ports, &settings, acquired_at)).await?.1.status)
    }

    async fn submit(&self, store: &dyn Store) -> Result<(), BoxError> {
        let spec = RunSpec::parse(&self.job.to_string())?;
        let run = NewRun {
            run_id: self.run.clone(),
            created_at: self.env.now(),
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
        match store.submit_run(run).await {
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
