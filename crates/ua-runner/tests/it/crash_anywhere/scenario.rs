//! One job in a world that counts, driven by processes that may die.

use std::sync::Arc;

use ua_checkpoint::{MeasuredHistory, Window, estimate_tokens};
use ua_core::{Block, Env, Message, RunId, RunSpec, RunStatus};
use ua_dispatch::StopSignal;
use ua_ledger::PeopleRules;
use ua_llm::{LlmProvider, Script, ScriptedProvider, check_history};
use ua_runner::{Conclusion, ForkPlace, ForkPlan, RunError};
use ua_store::{
    Answer, Blob, CallRecord, Choice, LedgerStore as _, MemStore, NewAnswer, QuestionKind, QuestionRecord, RunRecord,
    RunRecords, RunStore as _, Store, invariants, whole_reply,
};
use ua_testkit::{CrashAt, CrashPlan, Honours, Plan, StoreSeam, World, Writes, foreign_tool, own_tool};

use super::billed::Billed;
use super::own_loop::{Agent, Manners};
use super::process::{Process, folder, new_run};

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

const PRICES: &str = "[providers.scripted.scripted]\ninput = 3\noutput = 15\ncache_read = 0.3\n";

const JOB: &str =
    r#"{"objective": "Do everything once.", "stop_conditions": ["email_sent_once", "final_notification_sent"]}"#;

/// The bytes that each answer of a world with large results has more.
const PADDING: usize = 1_500;

/// Another process that asks for the run's end.
pub(crate) struct Canceller {
    store: Arc<MemStore>,
    run: RunId,
    env: Env,
}

impl Canceller {
    pub(crate) async fn cancel(&self) {
        self.store.request_cancel(&self.run, "enough", self.env.now()).await.unwrap();
    }
}

pub(crate) struct Scenario {
    pub(crate) world: Arc<World>,
    job: serde_json::Value,
    store: Arc<MemStore>,
    llm: Arc<Billed>,
    /// Another model to ask instead.
    provider: Option<Arc<dyn LlmProvider>>,
    pub(crate) env: Env,
    pub(crate) stop: StopSignal,
    policy: Option<String>,
    run_id: RunId,
    folder: tempfile::TempDir,
    /// The model that the next process asks.
    pub(crate) model: &'static str,
    /// An agent that owns its loop, in the place of a model.
    agent: Option<Arc<Agent>>,
}

impl Scenario {
    /// The same effects by an agent that owns its loop.
    pub(crate) fn with_agent(manners: Manners) -> Self {
        Self { agent: Some(Agent::new(manners)), ..Self::new() }
    }

    /// The same job with answers that are kept as blobs, each of which the model has to see whole, and with a window that is too
    /// small for all of its turns.
    pub(crate) fn with_large_results() -> Self {
        let mut script: serde_json::Value = serde_json::from_str(SCRIPT).unwrap();
        for turn in script["turns"].as_array_mut().unwrap().iter_mut().skip(1) {
            turn["expect"] = serde_json::json!({"contains": ["x".repeat(PADDING)]});
        }
        let mut scenario = Self::new();
        scenario.job["settings"] = serde_json::json!({"blob_threshold_bytes": 400, "history_max_tokens": 1_500});
        scenario.llm = Arc::new(Billed::new(ScriptedProvider::new(Script::parse(&script.to_string()).unwrap())));
        scenario.world = Arc::new(Arc::into_inner(scenario.world).unwrap().padded(PADDING));
        scenario
    }

    pub(crate) fn new() -> Self {
        let own = ["write_local_file", "upload", "send_email", "notify"].map(|tool| (own_tool(tool), Honours::Keys));
        let reads = ["read_local_file", "list_directory"].map(|tool| (own_tool(tool), Honours::Nothing));
        let opaque = [(foreign_tool("forum", "post_comment"), Honours::Nothing)];
        let world = World::new(own.into_iter().chain(reads).chain(opaque));
        Self::with(world, Env::simulated(42), SCRIPT, JOB, None)
    }

    /// Another job in another world, with a policy file of the user's.
    pub(crate) fn with(world: World, env: Env, script: &str, job: &str, policy: Option<&str>) -> Self {
        Self {
            world: Arc::new(world),
            store: Arc::new(MemStore::default()),
            llm: Arc::new(Billed::new(ScriptedProvider::new(Script::parse(script).unwrap()))),
            provider: None,
            env,
            stop: StopSignal::default(),
            job: serde_json::from_str(job).unwrap(),
            policy: policy.map(str::to_owned),
            run_id: RunId::parse("run_scenario").unwrap(),
            folder: folder(),
            model: "scripted",
            agent: None,
        }
    }

    /// Who thinks in the next process.
    fn mind(&self) -> Arc<dyn LlmProvider> {
        match (&self.agent, &self.provider) {
            (Some(agent), _) => agent.process(),
            (None, Some(provider)) => provider.clone(),
            (None, None) => self.llm.clone(),
        }
    }

    /// The same scenario with another model.
    pub(crate) fn asking(mut self, provider: Arc<dyn LlmProvider>) -> Self {
        self.provider = Some(provider);
        self
    }

    /// The same scenario with its model behind another one.
    pub(crate) fn with_model(self, wrapped: impl FnOnce(Arc<dyn LlmProvider>) -> Arc<dyn LlmProvider>) -> Self {
        let provider = wrapped(self.llm.clone());
        self.asking(provider)
    }

    /// Another job for a run that was not started.
    pub(crate) fn set_job(&mut self, job: serde_json::Value) {
        self.job = job;
    }

    /// The scenario of a fork of this run at its last committed turn, in the same world; `None` while there is no run.
    pub(crate) async fn forked(&self, id: &str) -> Option<Self> {
        let plan = ForkPlan::new(self.store.as_ref(), &self.run_id, None, None).await.ok()?;
        Some(self.carried_out(plan, id).await)
    }

    /// The scenario of a fork at a turn, with another job.
    pub(crate) async fn forked_with(&self, id: &str, at_turn: u32, change: impl FnOnce(&mut RunSpec)) -> Self {
        let mut spec = std::sync::Arc::unwrap_or_clone(self.records().await.run.spec);
        change(&mut spec);
        let plan = ForkPlan::new(self.store.as_ref(), &self.run_id, Some(at_turn), Some(spec)).await.unwrap();
        self.carried_out(plan, id).await
    }

    async fn carried_out(&self, mut plan: ForkPlan, id: &str) -> Self {
        let folder = super::process::folder();
        let run_id = RunId::parse(id).unwrap();
        let place = ForkPlace {
            run_id: run_id.clone(),
            root: folder.path(),
            locks: &folder.path().join("locks"),
            workspace_dir: folder.path().join("ws"),
            launch: serde_json::Value::Null,
            entrypoint: "library".to_owned(),
        };
        plan.carry_out(self.store.as_ref(), place, &self.env).await.unwrap();
        Self {
            world: self.world.clone(),
            store: self.store.clone(),
            llm: self.llm.clone(),
            provider: self.provider.clone(),
            env: self.env.clone(),
            stop: StopSignal::default(),
            job: self.job.clone(),
            policy: self.policy.clone(),
            run_id,
            folder,
            model: self.model,
            agent: self.agent.clone(),
        }
    }

    /// Resumes until the run is finished; a person looks outside before each answer.
    pub(crate) async fn finish_by_looking(&self) -> RunRecord {
        for _ in 0..12 {
            let run = self.resume().await;
            if run.status != RunStatus::WaitingForHuman {
                return run;
            }
            for question in self.store.open_questions(Some(&self.run_id)).await.unwrap() {
                let call = self.store.call(question.call_id.as_ref().expect("a question about a call")).await.unwrap();
                let choice = match (question.kind, self.world.count(&call.name.tool) > 0) {
                    (QuestionKind::NearDuplicate, true) if !question.choices.contains(&Choice::Happened) => {
                        Choice::Skip
                    }
                    (_, true) => Choice::Happened,
                    (_, false) => Choice::Execute,
                };
                self.choose(&question, choice).await;
            }
        }
        panic!("the run never ends");
    }

    /// Runs to the end and returns how many crossings that took.
    pub(crate) async fn run_without_crash(&self) -> (u64, RunRecord) {
        let plan = Arc::new(CrashPlan::new(None));
        let (_, run) = self.live(plan.clone(), None).await.expect("nothing kills it");
        (plan.crossings(), run)
    }

    /// One process's life that nothing ends: how it left the run.
    pub(crate) async fn resume(&self) -> RunRecord {
        match self.store.run(&self.run_id).await {
            Ok(run) if run.status.is_terminal() => run,
            Ok(_) | Err(_) => self.live(Arc::new(CrashPlan::new(None)), None).await.expect("nothing kills it").1,
        }
    }

    /// Starts or resumes the run and dies at `at`; a run that ends before is fine too.
    pub(crate) async fn crash(&self, at: CrashAt) {
        self.crash_with(at, None).await;
    }

    pub(crate) async fn crash_with(&self, at: CrashAt, writes: Option<Arc<dyn Writes>>) {
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
        self.choose(question, choice).await;
    }

    pub(crate) async fn choose(&self, question: &QuestionRecord, choice: Choice) {
        self.say(question, choice, "").await;
    }

    /// The same with words.
    pub(crate) async fn say(&self, question: &QuestionRecord, choice: Choice, text: &str) {
        let answer = NewAnswer {
            question_id: question.question_id.clone(),
            answer: Answer { text: (!text.is_empty()).then(|| text.to_owned()), ..Answer::new(choice) },
            by: "a tester".into(),
            at: self.env.now(),
        };
        self.store.insert_answer(answer).await.unwrap();
    }

    /// One process's life: `None` if it died.
    async fn live(&self, plan: Arc<CrashPlan>, writes: Option<Arc<dyn Writes>>) -> Option<(Conclusion, RunRecord)> {
        let seam = StoreSeam::new(self.store.clone(), plan.clone());
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
        writes: Option<Arc<dyn Writes>>,
    ) -> Result<(Conclusion, RunRecord), RunError> {
        let seam = StoreSeam::new(self.store.clone(), plan.clone());
        let store: Arc<dyn Store> = Arc::new(match writes {
            Some(writes) => seam.with_writes(writes),
            None => seam,
        });
        self.drive(store, plan).await
    }

    /// What asks for the run's end, as `ua runs cancel` does from another process.
    pub(crate) fn canceller(&self) -> Canceller {
        Canceller { store: self.store.clone(), run: self.run_id.clone(), env: self.env.clone() }
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
        if self.store.run(&self.run_id).await.is_err() {
            store.submit_run(new_run(&self.run_id, &self.job, &self.workspace(), &self.env)).await.unwrap();
        }
        let process = Process {
            tools: self.world.clone(),
            store,
            llm: self.mind(),
            plan,
            env: self.env.clone(),
            stop: self.stop.clone(),
            policy: self.policy.clone(),
            model: self.model,
            prices: Some(PRICES),
            above: None,
        };
        // Recipients are the business of other tests; the jobs here write to addresses that none of them names.
        let people = |people: PeopleRules| PeopleRules { taint: people.taint, ..PeopleRules::default() };
        process.drive(&self.run_id, people, None).await
    }

    pub(crate) async fn calls(&self) -> Vec<CallRecord> {
        self.store.calls(&self.run_id, None).await.unwrap_or_default()
    }

    pub(crate) async fn questions(&self) -> Vec<QuestionRecord> {
        self.store.load(&self.run_id).await.unwrap().questions.into_iter().filter(|q| q.call_id.is_some()).collect()
    }

    /// The same while there may be no run yet.
    pub(crate) async fn questions_so_far(&self) -> Vec<QuestionRecord> {
        if self.store.run(&self.run_id).await.is_ok() { self.questions().await } else { Vec::new() }
    }

    /// Where it is stored.
    pub(crate) fn store(&self) -> Arc<MemStore> {
        self.store.clone()
    }

    /// The run's folder.
    pub(crate) fn workspace(&self) -> std::path::PathBuf {
        self.folder.path().join("ws")
    }

    pub(crate) async fn turn_index(&self) -> u32 {
        self.store.run(&self.run_id).await.map_or(0, |run| run.turn_index)
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
        told.map(|text| text.to_string()).collect::<Vec<_>>().join("\n")
    }

    /// What must hold of the records, wherever the process died: five turns, each call of each turn once, a history that a
    /// provider accepts, every request charged exactly once.
    pub(crate) async fn check_records(&self, at: &str) {
        let records = self.store.load(&self.run_id).await.unwrap();
        assert_eq!(records.run.turn_index, 5, "{at}");
        assert_eq!(records.turns.iter().map(|turn| turn.turn).collect::<Vec<_>>(), [1, 2, 3, 4, 5], "{at}");
        assert_eq!(records.calls.len(), 7, "{at}");
        assert!(records.calls.iter().all(|call| call.status.is_settled()), "{at}");
        self.llm.check_against(&records.requests, at);
        self.check_invariants(at).await;
        let history: Vec<Message> = records.messages.into_iter().map(|m| m.message).collect();
        assert_eq!(check_history(&history), Ok(()), "{at}");
    }

    /// Every request that the provider saw is charged exactly once.
    pub(crate) fn check_bill(&self, records: &RunRecords, at: &str) {
        self.llm.check_against(&records.requests, at);
    }

    /// Stores what a person changed about the run.
    pub(crate) async fn change(&self, change: ua_store::NewOverride) {
        self.store.insert_override(change).await.unwrap();
    }

    /// No statement about stored runs is broken, not even those that are known to be broken elsewhere.
    pub(crate) async fn check_invariants(&self, at: &str) {
        assert_eq!(self.broken().await, [], "{at}");
    }

    /// The statements about the run, and about the runs of its family, that are broken.
    pub(crate) async fn broken(&self) -> Vec<invariants::Violation> {
        let records = self.store.load(&self.run_id).await.unwrap();
        let mut events = Vec::new();
        for call in &records.calls {
            events.extend(self.store.events(&call.call_id).await.unwrap());
        }
        let mut broken = invariants::check(&records, &events);
        broken.extend(invariants::check_agreement(&records, &events));
        let mut family = Vec::new();
        for run in self.store.runs(u32::MAX).await.unwrap() {
            family.push(self.store.load(&run.run_id).await.unwrap());
        }
        broken.extend(invariants::check_family(&family));
        broken
    }

    /// What must hold of large results: every result of the history is a reference, what it names is there, and receipts come back
    /// whole. The requests were too small for all of them.
    pub(crate) async fn check_blobs(&self, at: &str) {
        let records = self.store.load(&self.run_id).await.unwrap();
        let mut history = MeasuredHistory::new(estimate_tokens);
        history.extend(records.messages.iter().map(|record| record.message.clone()));
        assert!(history.view(Window { max_tokens: 1_500, system_tokens: 1 }).omitted > 0, "{at}");
        let mut referred = 0;
        for blob in records.messages.iter().flat_map(|record| record.message.blobs()) {
            assert!(matches!(self.store.blob(blob).await.unwrap(), Blob::Here(_)), "{at}");
            referred += 1;
        }
        assert!(referred >= 6, "{at}: {referred}");
        for receipt in &records.receipts {
            let whole = whole_reply(self.store.as_ref(), receipt).await.unwrap();
            let is_statement = matches!(whole, ua_core::RawReply::Statement { .. });
            assert!(is_statement || format!("{whole:?}").contains(&"x".repeat(PADDING)), "{at}");
            assert!(format!("{receipt:?}").len() < PADDING, "{at}: the receipt holds what its blobs hold");
        }
    }
}
