//! One job in a world that counts, driven by processes that may die.

use std::path::Path;
use std::sync::Arc;

use ua_classify::Classifier;
use ua_core::{Block, Env, Message, Origin, RunId, RunSpec, RunStatus, Trace};
use ua_gateway::{Catalog, Rules, StopSignal, ToolGateway, ToolTransport, WorkspaceFiles};
use ua_ledger::{Ledger, LedgerConfig};
use ua_llm::{LlmProvider, Script, ScriptedProvider, check_history};
use ua_runner::{
    Conclusion, PinSettings, Ports, RunError, RunSettings, Signal, Workspace, drive, effect_limits, owner_stamp,
};
use ua_store::{
    CallRecord, Choice, LedgerStore as _, MemStore, NewAnswer, NewRun, QuestionRecord, RunRecord, RunRecords,
    RunStore as _, Store,
};
use ua_testkit::{CrashAt, CrashPlan, Honours, LedgerWrites, Plan, Seam, World, foreign_tool, own_tool};

/// How a person answers a question about an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answers {
    /// By looking outside.
    Truth,
    /// By not caring.
    Skip,
}

/// The model words its e-mail differently each time it is asked: `{{request}}` is the number of the request.
const SCRIPT: &str = r#"{"turns": [
  {"text": "Reading.", "tools": [
    {"name": "mcp__ua__read_local_file", "input": {"path": "a.txt"}},
    {"name": "mcp__ua__list_directory", "input": {"path": "."}}]},
  {"tools": [{"name": "mcp__ua__write_local_file", "input": {"path": "report.md", "content": "report {{request}}"}},
             {"name": "mcp__ua__upload", "input": {"path": "report.md", "destination": "file:///store/{{request}}"}}]},
  {"tools": [{"name": "mcp__ua__send_email", "input": {"to": ["a@example.test"], "subject": "Report", "body": "Version {{request}}"}}]},
  {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "Done, says request {{request}}"}},
             {"name": "mcp__ua__notify", "input": {"message": "done {{request}}"}}]},
  {"text": "All done."}
]}"#;

const JOB: &str =
    r#"{"objective": "Do everything once.", "stop_conditions": ["email_sent_once", "final_notification_sent"]}"#;

pub(crate) struct Scenario {
    pub(crate) world: Arc<World>,
    store: Arc<MemStore>,
    llm: Arc<dyn LlmProvider>,
    env: Env,
    run_id: RunId,
    folder: tempfile::TempDir,
    /// The model that the next process asks.
    pub(crate) model: &'static str,
}

impl Scenario {
    pub(crate) fn new() -> Self {
        let own = ["write_local_file", "upload", "send_email", "notify"].map(|tool| (own_tool(tool), Honours::Keys));
        let reads = ["read_local_file", "list_directory"].map(|tool| (own_tool(tool), Honours::Nothing));
        let opaque = [(foreign_tool("forum", "post_comment"), Honours::Nothing)];
        Self {
            world: Arc::new(World::new(own.into_iter().chain(reads).chain(opaque))),
            store: Arc::new(MemStore::default()),
            llm: Arc::new(ScriptedProvider::new(Script::parse(SCRIPT).unwrap())),
            env: Env::simulated(42),
            run_id: RunId::parse("run_scenario").unwrap(),
            folder: tempfile::tempdir().unwrap(),
            model: "scripted",
        }
    }

    /// Runs to the end and returns how many crossings that took.
    pub(crate) async fn run_without_crash(&self) -> (u64, RunRecord) {
        let plan = Arc::new(CrashPlan::new(None));
        let (_, run) = self.live(plan.clone(), None).await.expect("nothing kills it");
        (plan.crossings(), run)
    }

    /// Starts or resumes the run and dies at `at`; a run that ends before is fine too.
    pub(crate) async fn crash(&self, at: CrashAt) {
        self.crash_with(at, None).await;
    }

    pub(crate) async fn crash_with(&self, at: CrashAt, writes: Option<Arc<dyn LedgerWrites>>) {
        let is_over = self.store.run(&self.run_id).await.is_ok_and(|run| run.status.is_terminal());
        if !is_over {
            self.live(Arc::new(CrashPlan::new(Some(at))), writes).await;
        }
    }

    /// Resumes until the run is finished, answering what is asked.
    pub(crate) async fn resume_to_the_end(&self, answers: Answers) -> RunRecord {
        for _ in 0..8 {
            let run = match self.store.run(&self.run_id).await {
                Ok(run) if run.status.is_terminal() => return run,
                Ok(_) | Err(_) => self.live(Arc::new(CrashPlan::new(None)), None).await.expect("nothing kills it").1,
            };
            if run.status != RunStatus::WaitingForHuman {
                return run;
            }
            for question in self.store.open_questions(Some(&self.run_id)).await.unwrap() {
                if question.call_id.is_none() {
                    return run; // the model ends without what was skipped; a person would decide
                }
                self.answer(&question, answers).await;
            }
        }
        panic!("the run never ends");
    }

    async fn answer(&self, question: &QuestionRecord, answers: Answers) {
        let happened = self.world.count("post_comment") > 0;
        let choice = match answers {
            Answers::Skip => Choice::Skip,
            Answers::Truth if happened => Choice::Happened,
            Answers::Truth => Choice::Execute,
        };
        let answer = NewAnswer {
            question_id: question.question_id.clone(),
            choice,
            proof: None,
            text: None,
            by: "a tester".into(),
            at: self.env.now(),
        };
        self.store.insert_answer(answer).await.unwrap();
    }

    /// One process's life: `None` if it died.
    async fn live(
        &self,
        plan: Arc<CrashPlan>,
        writes: Option<Arc<dyn LedgerWrites>>,
    ) -> Option<(Conclusion, RunRecord)> {
        let seam = Seam::new(self.store.clone() as Arc<dyn Store>, plan.clone());
        let store: Arc<dyn Store> = Arc::new(match writes {
            Some(writes) => seam.with_writes(writes),
            None => seam,
        });
        tokio::select! {
            biased;
            () = plan.death() => None,
            ended = self.drive(store, plan.clone()) => Some(ended.unwrap()),
        }
    }

    /// One process's life under any plan and with any writes, to its conclusion or its error.
    pub(crate) async fn drive_with(
        &self,
        plan: Arc<dyn Plan>,
        writes: Option<Arc<dyn LedgerWrites>>,
    ) -> Result<(Conclusion, RunRecord), RunError> {
        let seam = Seam::new(self.store.clone() as Arc<dyn Store>, plan.clone());
        let store: Arc<dyn Store> = Arc::new(match writes {
            Some(writes) => seam.with_writes(writes),
            None => seam,
        });
        self.drive(store, plan).await
    }

    /// Whether a step was opened, and so pinned.
    pub(crate) async fn has_a_step(&self) -> bool {
        self.store.load(&self.run_id).await.is_ok_and(|records| !records.steps.is_empty())
    }

    /// Everything that is stored.
    pub(crate) async fn records(&self) -> RunRecords {
        self.store.load(&self.run_id).await.unwrap()
    }

    async fn drive(&self, store: Arc<dyn Store>, plan: Arc<dyn Plan>) -> Result<(Conclusion, RunRecord), RunError> {
        let folder = self.folder.path().join("ws");
        if self.store.run(&self.run_id).await.is_err() {
            let spec = RunSpec::parse(JOB).unwrap();
            let run = NewRun {
                run_id: self.run_id.clone(),
                created_at: self.env.now(),
                entrypoint: "library".into(),
                run_mode: "job".into(),
                opening: Message::user(Origin::Prompt, spec.opening_prompt()),
                spec,
                job_path: None,
                workspace_dir: folder.display().to_string(),
                launch: serde_json::Value::Null,
                parent_run_id: None,
            };
            store.submit_run(run).await.unwrap();
        }
        let trace = Trace::new(&self.env);
        let now = self.env.now();
        let (lease, run) = store.acquire_run(&self.run_id, &owner_stamp(trace.clone()), now).await.unwrap();
        let workspace = Workspace::create(Path::new(&run.workspace_dir)).unwrap();
        let transport: Arc<dyn ToolTransport> =
            Arc::new(Seam::new(self.world.clone() as Arc<dyn ToolTransport>, plan.clone()));
        let classifier = Arc::new(Classifier::shipped().unwrap());
        let rules = Rules::of(&run.spec).unwrap();
        let catalog = Catalog::new(transport.list().await.unwrap(), &classifier, &rules).unwrap();
        let config = LedgerConfig {
            no_duplicate_external_actions: true,
            max_retries: run.spec.budgets.max_retries_per_tool_call,
            max_effects: effect_limits(&run.spec),
        };
        let ledger =
            Ledger::new(store.clone(), lease.clone(), run.root_run_id.clone(), config, self.env.clone(), trace);
        let files = WorkspaceFiles::open(workspace.root()).unwrap();
        let gateway = ToolGateway::new(catalog, classifier, rules, ledger, transport, files, Box::new(|_| {}));
        let ports = Ports {
            store,
            llm: Arc::new(Seam::new(self.llm.clone(), plan)),
            gateway,
            lease,
            workspace,
            env: self.env.clone(),
            watcher: Arc::new(|_: Signal| {}),
            stop: StopSignal::default(),
        };
        let settings = RunSettings {
            model: self.model.into(),
            system: "s".into(),
            max_output_tokens: 100,
            temperature_milli: None,
            pins: PinSettings::default(),
        };
        Box::pin(drive(&ports, &settings, now)).await
    }

    pub(crate) async fn calls(&self) -> Vec<CallRecord> {
        self.store.calls(&self.run_id, None).await.unwrap_or_default()
    }

    pub(crate) async fn questions(&self) -> Vec<QuestionRecord> {
        self.store.load(&self.run_id).await.unwrap().questions.into_iter().filter(|q| q.call_id.is_some()).collect()
    }

    /// The result that the model was given for a tool's first call.
    pub(crate) async fn told_the_model(&self, tool: &str) -> String {
        let call = self.calls().await.into_iter().find(|call| call.name.tool == tool).unwrap();
        let history = self.store.history(&self.run_id).await.unwrap();
        let blocks = history.into_iter().flat_map(|m| m.message.blocks);
        let told = blocks.filter_map(|block| match block {
            Block::ToolResult { tool_use_id, content, .. } if tool_use_id == call.tool_use_id => Some(content),
            Block::ToolResult { .. } | Block::Text { .. } | Block::ToolUse(_) | Block::Opaque { .. } => None,
        });
        told.collect::<Vec<_>>().join("\n")
    }

    /// What must hold of the records, wherever the process died: five turns, each call of each turn once, a history that a
    /// provider accepts, every request charged exactly once.
    pub(crate) async fn check_records(&self, at: &str) {
        let records = self.store.load(&self.run_id).await.unwrap();
        assert_eq!(records.run.turn_index, 5, "{at}");
        assert_eq!(records.turns.iter().map(|turn| turn.turn).collect::<Vec<_>>(), [1, 2, 3, 4, 5], "{at}");
        assert_eq!(records.calls.len(), 7, "{at}");
        assert!(records.calls.iter().all(|call| call.status.is_settled()), "{at}");
        let history: Vec<Message> = records.messages.into_iter().map(|m| m.message).collect();
        assert_eq!(check_history(&history), Ok(()), "{at}");
        assert!(records.requests.iter().all(|request| request.status != ua_store::RequestStatus::Reserved), "{at}");
    }
}
