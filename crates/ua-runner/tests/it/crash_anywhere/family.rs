//! A run and its sub-agents in a world that counts, driven by processes that may die.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ua_core::{Env, Message, RunId, RunStatus};
use ua_dispatch::{StopSignal, SubAgentError};
use ua_llm::{LlmError, LlmProvider, ModelRequest, Script, ScriptedProvider, StreamObserver, check_history};
use ua_runner::{ChildDriver, Conclusion, RunError, Workspace};
use ua_store::{
    Answer, CallRecord, Choice, LedgerStore as _, MemStore, NewAnswer, QuestionRecord, RunLease, RunRecord, RunRecords,
    RunStore as _, Store, invariants,
};
use ua_testkit::{CrashAt, CrashPlan, Crossing, Honours, Plan, StoreSeam, World, foreign_tool, own_tool};

use super::process::{Process, folder, new_run};

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

/// Tools that take their time: whoever works beside a call gets on while it is under way.
struct SlowTools(Arc<CrashPlan>);

#[async_trait]
impl Plan for SlowTools {
    async fn before(&self, crossing: &Crossing) {
        self.0.before(crossing).await;
        if crossing.is("tool.invoke") {
            for _ in 0..40 {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn after(&self, crossing: &Crossing) {
        self.0.after(crossing).await;
    }
}

/// What every process of the family shares: the world, the store, the model. One process is one `Life`.
pub(crate) struct Family {
    pub(crate) world: Arc<World>,
    pub(crate) store: Arc<MemStore>,
    llm: Arc<Counting>,
    pub(crate) env: Env,
    job: serde_json::Value,
    has_slow_tools: bool,
    is_outrun: bool,
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
    /// Whether somebody who owned its sub-agents before ends each of them just before it would.
    is_outrun: bool,
}

#[async_trait]
impl ChildDriver for Life {
    async fn drive(
        &self,
        above: &RunLease,
        child: RunRecord,
        _: Workspace,
        stop: &StopSignal,
    ) -> Result<(Conclusion, RunRecord), SubAgentError> {
        assert!(!child.status.is_terminal(), "a sub-agent that has ended is not driven again");
        let life = Self { stop: stop.clone(), ..self.clone() };
        let driven = life.run(child.run_id, Some(above.clone())).await?;
        if self.is_outrun {
            return Err("the run has ended already".into());
        }
        Ok(driven)
    }
}

impl Life {
    fn run(self, run_id: RunId, above: Option<RunLease>) -> Driven {
        Box::pin(self.drive_run(run_id, above))
    }

    async fn drive_run(self, run_id: RunId, above: Option<RunLease>) -> Result<(Conclusion, RunRecord), RunError> {
        let process = Process {
            tools: self.world.clone(),
            store: self.store.clone(),
            llm: self.llm.clone(),
            plan: self.plan.clone(),
            env: self.env.clone(),
            stop: self.stop.clone(),
            policy: None,
            model: "scripted",
            prices: None,
            above,
        };
        process.drive(&run_id, |people| people, Some(Arc::new(self))).await
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
            has_slow_tools: false,
            is_outrun: false,
            root: RunId::parse("run_root").unwrap(),
            folder: folder(),
        }
    }

    /// The same with tools that take their time.
    pub(crate) fn with_slow_tools(script: &str, job: &str) -> Self {
        Self { has_slow_tools: true, ..Self::new(script, job) }
    }

    /// The same with somebody who ends each sub-agent between a look at it and its being taken.
    pub(crate) fn with_outrun_parent(script: &str, job: &str) -> Self {
        Self { is_outrun: true, ..Self::new(script, job) }
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
            store: Arc::new(StoreSeam::new(self.store.clone(), plan.clone())),
            llm: self.llm.clone(),
            env: self.env.clone(),
            plan: if self.has_slow_tools { Arc::new(SlowTools(plan.clone())) } else { plan.clone() },
            stop,
            is_outrun: self.is_outrun,
        };
        let ended = tokio::select! {
            biased;
            () = plan.death() => None,
            ended = life.run(self.root.clone(), None) => Some(ended.unwrap().1),
        };
        (ended, plan.crossings())
    }

    async fn submit(&self) {
        let run = new_run(&self.root, &self.job, &self.workspace(), &self.env);
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
            answer: Answer { text: (!text.is_empty()).then(|| text.to_owned()), ..Answer::new(choice) },
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
            assert_eq!(invariants::check_agreement(&records, &events), [], "{run} {at}");
            let committed = records.messages.into_iter().filter(|m| m.turn <= records.run.turn_index);
            let history: Vec<Message> = committed.map(|m| m.message).collect();
            assert_eq!(check_history(&history), Ok(()), "{run} {at}");
        }
    }
}
