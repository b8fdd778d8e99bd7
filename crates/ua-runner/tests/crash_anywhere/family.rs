//! A run and its sub-agents in a world that counts, driven by processes that may die.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ua_classify::{Classifier, Lists};
use ua_core::{Env, Message, Origin, PriceTable, RunId, RunSpec, RunStatus, Trace};
use ua_gateway::{
    Catalog, Rules, StopSignal, SubAgentError, ToolGateway, ToolTransport, WithAskUser, WorkspaceFiles, task_tool,
};
use ua_ledger::{Ledger, LedgerConfig, PeopleRules};
use ua_llm::{LlmError, LlmProvider, ModelRequest, Script, ScriptedProvider, StreamObserver, check_history};
use ua_runner::{
    ChildDriver, ChildRuns, Conclusion, PinSettings, Ports, RetryPolicy, RunError, RunSettings, Signal, Workspace,
    drive, effect_limits, owner_stamp, top_of_tree,
};
use ua_store::{
    CallRecord, Choice, LedgerStore as _, MemStore, NewAnswer, NewRun, QuestionRecord, RunRecord, RunRecords,
    RunStore as _, Store, invariants,
};
use ua_testkit::{CrashAt, CrashPlan, Honours, Plan, Seam, World, foreign_tool, own_tool};

/// The scripted model, which counts the requests of each conversation and lets others run while it thinks.
struct Counting {
    script: Script,
    inner: ScriptedProvider,
    seen: Mutex<BTreeMap<String, u32>>,
}

#[async_trait]
impl LlmProvider for Counting {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn complete(
        &self,
        request: &ModelRequest,
        observer: &dyn StreamObserver,
    ) -> Result<ua_core::ModelTurn, LlmError> {
        let name = self.script.conversation_of(&request.messages).map_or("main", |of| of.when.as_str()).to_owned();
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_insert(0) += 1;
        tokio::task::yield_now().await;
        let reply = self.inner.complete(request, observer).await;
        tokio::task::yield_now().await;
        reply
    }
}

/// What every process of the family shares: the world, the store, the model. One process is one `Life`.
pub(crate) struct Family {
    pub(crate) world: Arc<World>,
    pub(crate) store: Arc<MemStore>,
    llm: Arc<Counting>,
    pub(crate) env: Env,
    job: serde_json::Value,
    pub(crate) root: RunId,
    folder: tempfile::TempDir,
}

type Driven = Pin<Box<dyn Future<Output = Result<(Conclusion, RunRecord), RunError>> + Send>>;

/// What one process drives runs with.
#[derive(Clone)]
struct Life {
    world: Arc<World>,
    store: Arc<dyn Store>,
    llm: Arc<Counting>,
    env: Env,
    plan: Arc<dyn Plan>,
    stop: StopSignal,
}

#[async_trait]
impl ChildDriver for Life {
    async fn drive(&self, child: RunRecord, stop: &StopSignal) -> Result<(Conclusion, RunRecord), SubAgentError> {
        assert!(!child.status.is_terminal(), "a sub-agent that has ended is not driven again");
        let life = Self { stop: stop.clone(), ..self.clone() };
        Ok(life.run(child.run_id).await?)
    }
}

impl Life {
    fn run(self, run_id: RunId) -> Driven {
        Box::pin(self.drive_run(run_id))
    }

    async fn drive_run(self, run_id: RunId) -> Result<(Conclusion, RunRecord), RunError> {
        let (store, env) = (self.store.clone(), self.env.clone());
        let trace = Trace::new(&env);
        let now = env.now();
        let (lease, run) = store.acquire_run(&run_id, &owner_stamp(trace.clone()), now).await.unwrap();
        let job = top_of_tree(store.as_ref(), &run).await?.spec;
        let workspace = Workspace::create(Path::new(&run.workspace_dir)).unwrap();
        let tools = Arc::new(WithAskUser::new(self.world.clone(), store.clone()));
        let transport: Arc<dyn ToolTransport> = Arc::new(Seam::new(tools as Arc<dyn ToolTransport>, self.plan.clone()));
        let classifier = Arc::new(Classifier::new(Vec::new(), &Lists::default(), HashSet::new()).unwrap());
        let rules = Rules::of(&run.spec).unwrap();
        let specs = transport.list().await.unwrap().into_iter().chain([task_tool()]).collect();
        let catalog = Catalog::new(specs, &classifier, &rules).unwrap();
        let config = LedgerConfig {
            no_duplicate_external_actions: true,
            max_retries: run.spec.budgets.max_retries_per_tool_call,
            max_effects: effect_limits(&job),
        };
        let ledger = Ledger::new(store.clone(), lease.clone(), run.root_run_id.clone(), config, env.clone(), trace)
            .with_people(PeopleRules::of(&job));
        let files = WorkspaceFiles::open(workspace.root()).unwrap();
        let agents =
            ChildRuns::new(store.clone(), run.run_id.clone(), workspace.clone(), env.clone(), Arc::new(self.clone()));
        let gateway = ToolGateway::new(catalog, classifier, rules, ledger, transport, files, Box::new(|_| {}))
            .with_sub_agents(Arc::new(agents));
        let ports = Ports {
            store: store.clone(),
            llm: Arc::new(Seam::new(self.llm.clone() as Arc<dyn LlmProvider>, self.plan.clone())),
            gateway,
            lease,
            workspace,
            env: env.clone(),
            watcher: Arc::new(|_: Signal| {}),
            stop: self.stop.clone(),
        };
        let settings = RunSettings {
            model: "scripted".into(),
            system: "s".into(),
            max_output_tokens: 100,
            history_tokens: None,
            images: false,
            temperature_milli: None,
            prices: PriceTable::default(),
            retry: RetryPolicy::default(),
            pins: PinSettings::default(),
        };
        Box::pin(drive(&ports, &settings, now)).await
    }
}

impl Family {
    pub(crate) fn new(script: &str, job: &str) -> Self {
        let own = ["write_local_file", "send_email", "notify"].map(|tool| (own_tool(tool), Honours::Keys));
        let reads = [(own_tool("read_local_file"), Honours::Nothing)];
        let opaque = [(foreign_tool("forum", "post_comment"), Honours::Nothing)];
        let script = Script::parse(script).unwrap();
        Self {
            world: Arc::new(World::new(own.into_iter().chain(reads).chain(opaque))),
            store: Arc::new(MemStore::default()),
            llm: Arc::new(Counting { inner: ScriptedProvider::new(script.clone()), script, seen: Mutex::default() }),
            env: Env::simulated(42),
            job: serde_json::from_str(job).unwrap(),
            root: RunId::parse("run_root").unwrap(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// One process's life: `None` if it died.
    pub(crate) async fn live(&self, at: Option<CrashAt>) -> Option<RunRecord> {
        self.live_until(at, StopSignal::default()).await.0
    }

    async fn live_until(&self, at: Option<CrashAt>, stop: StopSignal) -> (Option<RunRecord>, u64) {
        match self.store.run(&self.root).await {
            Ok(run) if run.status.is_terminal() => return (Some(run), 0),
            Ok(_) => {}
            Err(_) => self.submit().await,
        }
        let plan = Arc::new(CrashPlan::new(at));
        let life = Life {
            world: self.world.clone(),
            store: Arc::new(Seam::new(self.store.clone() as Arc<dyn Store>, plan.clone())),
            llm: self.llm.clone(),
            env: self.env.clone(),
            plan: plan.clone(),
            stop,
        };
        let ended = tokio::select! {
            biased;
            () = plan.death() => None,
            ended = life.run(self.root.clone()) => Some(ended.unwrap().1),
        };
        (ended, plan.crossings())
    }

    async fn submit(&self) {
        let spec = RunSpec::parse(&self.job.to_string()).unwrap();
        let run = NewRun {
            run_id: self.root.clone(),
            created_at: self.env.now(),
            entrypoint: "cli".into(),
            run_mode: "job".into(),
            opening: Message::user(Origin::Prompt, spec.opening_prompt()),
            spec,
            files: Vec::new(),
            job_path: None,
            workspace_dir: self.folder.path().join("ws").display().to_string(),
            launch: serde_json::Value::Null,
            parent_run_id: None,
        };
        self.store.submit_run(run).await.unwrap();
    }

    /// A clean run, and the points at which it may die.
    pub(crate) async fn crash_points(&self) -> (RunRecord, Vec<CrashAt>) {
        let (run, crossings) = self.live_until(None, StopSignal::default()).await;
        (run.unwrap(), (0..crossings).flat_map(|n| [CrashAt::Before(n), CrashAt::After(n)]).collect())
    }

    /// A life that is asked to stop before it begins anything.
    pub(crate) async fn interrupted(&self) -> RunRecord {
        let stop = StopSignal::default();
        stop.stop_gently();
        self.live_until(None, stop).await.0.unwrap()
    }

    /// Resumes until the run has ended; a person looks outside before each answer.
    pub(crate) async fn finish(&self) -> RunRecord {
        for _ in 0..8 {
            let run = self.live(None).await.unwrap();
            if run.status != RunStatus::WaitingForHuman {
                return run;
            }
            for question in self.questions().await {
                let call = self.store.call(question.call_id.as_ref().expect("a question about a call")).await.unwrap();
                let happened = self.world.count(&call.name.tool) > 0;
                self.choose(&question, if happened { Choice::Happened } else { Choice::Execute }, "").await;
            }
        }
        panic!("the run never ends");
    }

    pub(crate) async fn questions(&self) -> Vec<QuestionRecord> {
        self.store.open_questions(None).await.unwrap()
    }

    pub(crate) async fn choose(&self, question: &QuestionRecord, choice: Choice, text: &str) {
        let answer = NewAnswer {
            question_id: question.question_id.clone(),
            choice,
            proof: None,
            text: (!text.is_empty()).then(|| text.to_owned()),
            by: "a tester".into(),
            at: self.env.now(),
        };
        self.store.insert_answer(answer).await.unwrap();
    }

    pub(crate) async fn records(&self) -> RunRecords {
        self.store.load(&self.root).await.unwrap()
    }

    pub(crate) async fn tasks(&self) -> Vec<CallRecord> {
        let calls = self.store.calls(&self.root, None).await.unwrap_or_default();
        calls.into_iter().filter(|call| call.name.is_task()).collect()
    }

    /// The runs of the root's tasks, in the order of these.
    pub(crate) async fn children(&self) -> Vec<RunRecord> {
        let mut found = Vec::new();
        for task in self.tasks().await {
            found.extend(self.store.run(&RunId::of_task(&task.call_id)).await);
        }
        found
    }

    /// How often the model was asked in a conversation.
    pub(crate) fn requests(&self, conversation: &str) -> u32 {
        self.llm.seen.lock().unwrap_or_else(PoisonError::into_inner).get(conversation).copied().unwrap_or(0)
    }

    pub(crate) fn workspace(&self) -> std::path::PathBuf {
        self.folder.path().join("ws")
    }

    /// What the model was told for a task.
    pub(crate) async fn told(&self, task: &CallRecord) -> String {
        let receipt = self.store.receipt(&task.call_id).await.unwrap();
        let content = receipt.and_then(|receipt| receipt.settlement).and_then(|settlement| settlement.content);
        content.map(|content| content.text.to_string()).or_else(|| task.error_detail.clone()).unwrap_or_default()
    }

    /// No statement about the run, nor about any below it, is broken, and a provider accepts every history.
    pub(crate) async fn check(&self, at: &str) {
        let mut runs = vec![self.root.clone()];
        runs.extend(self.records().await.lineage.sub_agents.into_iter().map(|child| child.run_id));
        for run in runs {
            let records = self.store.load(&run).await.unwrap();
            let mut events = Vec::new();
            for call in &records.calls {
                events.extend(self.store.events(&call.call_id).await.unwrap());
            }
            assert_eq!(invariants::check(&records, &events), [], "{run} {at}");
            let committed = records.messages.into_iter().filter(|m| m.turn <= records.run.turn_index);
            let history: Vec<Message> = committed.map(|m| m.message).collect();
            assert_eq!(check_history(&history), Ok(()), "{run} {at}");
        }
    }
}
