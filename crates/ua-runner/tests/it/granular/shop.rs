//! A shop with a model that follows a script, and tools that count.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use ua_classify::{Classifier, Lists, PolicyRules};
use ua_core::{Env, ModelTurn, RunId, StopReason, ToolAnnotations, ToolName, ToolNamespace, ToolSpec, Usage};
use ua_dispatch::{LocalCall, LocalFailure, LocalTools, StopSignal};
use ua_llm::{
    Ending, LlmError, LlmProvider, ModelRequest, Script, ScriptedProvider, Status, StreamObserver,
    estimate_input_tokens,
};
use ua_runner::{Agent, GranularStep, RunEvent, StepError, StepHost, StepOutcome};
use ua_store::{Choice, MemStore, NewAnswer, QuestionRecord, RunRecords, RunStore as _};

/// A script of three turns: a read, an order, the last word.
pub(crate) const SCRIPT: &str = r#"{"turns": [
  {"tools": [{"name": "mcp__shop__list_stock", "input": {}}]},
  {"tools": [{"name": "mcp__shop__place_order", "input": {"article": "pen"}}]},
  {"text": "Ordered."}
]}"#;

/// Nobody says anything about the tools.
pub(crate) const POLICY: &str = "";

/// How a model says that a request was too long for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overflow {
    /// In words that are known.
    Said,
    /// In these words, which say nothing of it.
    Unsaid(&'static str),
    /// By an empty reply that says so at its end.
    FullContext,
    /// By an empty reply that was cut at its limit before anything of it.
    NoRoom,
}

/// A model that counts how often it is asked.
pub(crate) struct Counted {
    inner: ScriptedProvider,
    pub(crate) requests: AtomicU32,
    /// The most tokens that it takes; 0 for any.
    pub(crate) context: AtomicU64,
    /// The most tokens that it reads, and counts, of a request that has more, without saying so; 0 for all.
    pub(crate) reads: AtomicU64,
    /// The estimated tokens of the last request.
    pub(crate) last_estimate: AtomicU64,
    /// How it says that a request has more.
    pub(crate) overflow: Mutex<Overflow>,
    /// After how many requests each is too long, whatever its length; 0 for never.
    pub(crate) refuses_all_after: AtomicU32,
    /// How many connections end before an answer.
    pub(crate) closed: AtomicU32,
    /// How many requests find nobody.
    pub(crate) outage: AtomicU32,
    /// How many requests leave and are not answered.
    pub(crate) silence: AtomicU32,
    /// Whether nobody says what a reply took.
    pub(crate) uncounted: AtomicBool,
    /// The longest reply that it may be asked for; 0 for any.
    pub(crate) longest_reply: AtomicU32,
    /// How many requests had the schema of their reply.
    pub(crate) schemas: AtomicU32,
    /// The words in which it refuses one; none where it takes them.
    pub(crate) refuses_schemas: Mutex<Option<&'static str>>,
}

#[async_trait]
impl LlmProvider for Counted {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn complete(&self, request: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        let number = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
        self.schemas.fetch_add(u32::from(request.output_schema.is_some()), Ordering::SeqCst);
        let is_out = |left: u32| left.checked_sub(1);
        if self.outage.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_out).is_ok() {
            return Err(LlmError::Unreachable { host: "nobody".into(), why: "refused".into() });
        }
        if self.closed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_out).is_ok() {
            observer.sent();
            return Err(LlmError::Unanswered { source: "connection reset".into() });
        }
        if self.silence.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_out).is_ok() {
            observer.sent();
            return Err(LlmError::Timeout { idle: Duration::from_mins(5) });
        }
        let longest = self.longest_reply.load(Ordering::SeqCst);
        if longest > 0 && request.max_output_tokens > longest {
            let asked = request.max_output_tokens;
            let message =
                format!("max_tokens is too large: {asked}. This model supports at most {longest} completion tokens");
            return Err(LlmError::InvalidRequest { status: Status::Http(400), message });
        }
        let refused = self.refuses_schemas.lock().unwrap().filter(|_| request.output_schema.is_some());
        if let Some(message) = refused {
            return Err(LlmError::InvalidRequest { status: Status::Http(400), message: message.to_owned() });
        }
        let context = self.context.load(Ordering::SeqCst);
        let refuses_all_after = self.refuses_all_after.load(Ordering::SeqCst);
        let is_too_long = context > 0 && estimate_input_tokens(request) > context;
        if is_too_long || (refuses_all_after > 0 && number > refuses_all_after) {
            let overflow = *self.overflow.lock().unwrap();
            let message = match overflow {
                Overflow::Said => {
                    return Err(LlmError::TooLong { status: Status::Http(400), message: "prompt is too long".into() });
                }
                Overflow::Unsaid(message) => message.to_owned(),
                Overflow::FullContext | Overflow::NoRoom => {
                    let context_is_full = overflow == Overflow::FullContext;
                    observer.ended(&Ending { said: "full".into(), context_is_full });
                    let usage = Usage { input_tokens: estimate_input_tokens(request), ..Usage::default() };
                    return Ok(ModelTurn {
                        blocks: Vec::new(),
                        stop_reason: StopReason::MaxTokens,
                        usage: Some(usage),
                        model: "m".into(),
                        response_id: None,
                    });
                }
            };
            return Err(LlmError::InvalidRequest { status: Status::Http(400), message });
        }
        let mut reply = self.inner.complete(request, observer).await?;
        let reads = self.reads.load(Ordering::SeqCst);
        self.last_estimate.store(estimate_input_tokens(request), Ordering::SeqCst);
        if let Some(usage) = reply.usage.as_mut().filter(|_| reads > 0) {
            usage.input_tokens = estimate_input_tokens(request).min(reads);
        }
        if self.uncounted.load(Ordering::SeqCst) {
            reply.usage = None;
        }
        Ok(reply)
    }
}

/// How `place_order` answers; called with the calls it got so far, this one included.
pub(crate) type Answer = fn(&[LocalCall]) -> Result<Value, LocalFailure>;

/// What `place_order` was called with, in order.
pub(crate) type Orders = Arc<Mutex<Vec<LocalCall>>>;

pub(crate) struct Shop {
    pub(crate) step: GranularStep,
    pub(crate) host: StepHost,
    pub(crate) store: Arc<MemStore>,
    pub(crate) model: Arc<Counted>,
    pub(crate) orders: Orders,
    folder: tempfile::TempDir,
}

impl Shop {
    pub(crate) fn new(script: &str, policy: &str, answer: Answer) -> Self {
        Self::with_tools(script, policy, answer, |tools, _| tools)
    }

    pub(crate) fn with_tools(
        script: &str,
        policy: &str,
        answer: Answer,
        more: impl FnOnce(LocalTools, Orders) -> LocalTools,
    ) -> Self {
        let env = Env::simulated(7);
        let orders = Orders::default();
        let log = orders.clone();
        let tools = LocalTools::new(env.clone())
            .with(spec("list_stock", &json!({})), async |_: LocalCall| Ok(json!({"articles": ["pen"]})))
            .with(spec("place_order", &json!({"article": {"type": "string"}})), move |call: LocalCall| {
                let log = log.clone();
                async move {
                    let calls = {
                        let mut log = log.lock().unwrap();
                        log.push(call);
                        log.clone()
                    };
                    answer(&calls)
                }
            });
        let tools = more(tools, orders.clone());
        let rules = PolicyRules::parse(policy, "policy.toml").unwrap();
        let classifier = Classifier::new(vec![rules], &Lists::default(), tools.servers()).unwrap();
        let inner = ScriptedProvider::new(Script::parse(script).unwrap());
        let model = Arc::new(Counted {
            inner,
            requests: AtomicU32::new(0),
            context: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            last_estimate: AtomicU64::new(0),
            overflow: Mutex::new(Overflow::Said),
            refuses_all_after: AtomicU32::new(0),
            closed: AtomicU32::new(0),
            outage: AtomicU32::new(0),
            silence: AtomicU32::new(0),
            longest_reply: AtomicU32::new(0),
            schemas: AtomicU32::new(0),
            refuses_schemas: Mutex::new(None),
            uncounted: AtomicBool::new(false),
        });
        let agent = Agent::new(model.clone(), "scripted", Arc::new(tools), Arc::new(classifier));
        let store = Arc::new(MemStore::default());
        let folder = tempfile::tempdir().unwrap();
        let host = StepHost::new(store.clone(), folder.path().join("ws"), env).with_locks(folder.path().join("locks"));
        Self { step: GranularStep::new("restock", agent, "Restock."), host, store, model, orders, folder }
    }

    pub(crate) async fn run(&self) -> Result<StepOutcome, StepError> {
        self.step.run(&self.host, &run_id()).await
    }

    /// Runs the step until that turn is committed, and leaves the rest to another process.
    pub(crate) async fn leave_after_turn(&self, turn: u32) {
        let mut host = self.host.clone();
        let stop = StopSignal::default();
        host.stop = stop.clone();
        host.watcher = Arc::new(move |event| {
            if matches!(event, RunEvent::Committed { turn: now } if now == turn) {
                stop.stop_gently();
            }
        });
        let outcome = self.step.run(&host, &run_id()).await.unwrap();
        assert!(matches!(outcome, StepOutcome::Stopped { .. }), "{outcome:?}");
    }

    pub(crate) fn requests(&self) -> u32 {
        self.model.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn orders(&self) -> Vec<LocalCall> {
        self.orders.lock().unwrap().clone()
    }

    pub(crate) async fn records(&self) -> RunRecords {
        self.store.load(&run_id()).await.unwrap()
    }

    pub(crate) fn locks(&self) -> std::path::PathBuf {
        self.folder.path().join("locks")
    }

    pub(crate) async fn answer(&self, question: &QuestionRecord, choice: Choice) {
        self.answer_with(question, choice.into()).await;
    }

    pub(crate) async fn answer_with(&self, question: &QuestionRecord, answer: ua_store::Answer) {
        let answer = NewAnswer {
            question_id: question.question_id.clone(),
            answer,
            by: "a tester".into(),
            at: self.host.env.now(),
        };
        self.store.insert_answer(answer).await.unwrap();
    }
}

pub(crate) fn run_id() -> RunId {
    RunId::parse("run_restock").unwrap()
}

pub(crate) fn spec(tool: &str, properties: &Value) -> ToolSpec {
    ToolSpec {
        name: ToolName::qualified(ToolNamespace::Local, "shop", tool),
        description: format!("The {tool} of a shop."),
        input_schema: json!({"type": "object", "properties": properties}),
        annotations: ToolAnnotations { read_only: Some(tool.starts_with("list")), ..ToolAnnotations::default() },
    }
}

/// A tool that does what it is asked.
#[expect(clippy::unnecessary_wraps, reason = "the shape of `Answer`")]
pub(crate) fn done(_: &[LocalCall]) -> Result<Value, LocalFailure> {
    Ok(json!({"order": 1}))
}
