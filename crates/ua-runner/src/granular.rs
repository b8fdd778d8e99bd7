//! The library face: one step of turns that a program defines in Rust and runs as often as it takes.
//!
//! Granular Execution PRD §9 and §10. A [`GranularStep`] is the definition; [`GranularStep::run`] starts it under a run id, or goes
//! on with it when that id is known: the same loop as a job's, over the same records. The same id with another definition is
//! refused. What a caller has to plan for (a question, a limit, a cancel) is a [`StepOutcome`], which `?` cannot take for
//! an error; a [`StepError`] means that the step could not be driven, and that what is stored is as it was.
//!
//! Proved by: this crate's tests `granular`, and the example `granular_step` under kill.

mod definition;
mod error;
mod fits;
mod outcome;
mod run;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use ua_classify::Classifier;
use ua_core::{Budgets, Component, Constraints, Env, Escalation, PriceTable, Redactor, Settings, StopCondition};
use ua_dispatch::{StopSignal, ToolTransport};
use ua_llm::{LlmProvider, ModelExtras};
use ua_store::Store;

pub use definition::{Differs, input_of};
pub use error::{StepError, words_of_a_step};
pub use outcome::{StepOutcome, question_of_a_program};

use crate::ports::ResultCheck;
use crate::retry::RetryPolicy;
use crate::watch::{RunEvent, Watcher};
use crate::workspace::Workspace;

/// Who carries a step out: a model and what it may use.
#[derive(Clone)]
pub struct Agent {
    /// The model's provider.
    pub provider: Arc<dyn LlmProvider>,
    /// The provider's name of the model.
    pub model: String,
    /// The system prompt.
    pub system: String,
    /// The most output tokens of one reply.
    pub max_output_tokens: u32,
    /// Nobody said how many: a run that is there keeps those that it was begun with.
    pub max_output_is_default: bool,
    /// Sampling temperature, in thousandths.
    pub temperature_milli: Option<u32>,
    /// What sampling starts from; refused with a provider that takes no seed.
    pub seed: Option<u64>,
    /// How the model is to work, as its provider was told. Part of the definition; refused with a provider that does not read it.
    pub extras: ModelExtras,
    /// Whether the model reads images: those in tool results are sent along then.
    pub images: bool,
    /// Whether the model writes a reply by a JSON Schema ([`ModelFacts::structured`](ua_llm::ModelFacts)).
    pub structured: bool,
    /// What tokens cost; empty leaves requests unpriced.
    pub prices: PriceTable,
    /// The most tokens of history that the model reads, where that is known; a smaller limit of the step counts.
    pub history_tokens: Option<u64>,
    /// How often the model is asked for one reply, and how patiently.
    pub retry: RetryPolicy,
    /// The tools: [`LocalTools`](ua_dispatch::LocalTools), MCP servers, or anything else that is a transport.
    pub tools: Arc<dyn ToolTransport>,
    /// What kind of thing each tool call is, and so what happens when its outcome is lost.
    pub classifier: Arc<Classifier>,
}

impl Agent {
    /// An agent with an empty system prompt, 8192 output tokens a reply, and no prices.
    pub fn new(
        provider: Arc<dyn LlmProvider>,
        model: impl Into<String>,
        tools: Arc<dyn ToolTransport>,
        classifier: Arc<Classifier>,
    ) -> Self {
        Self {
            provider,
            model: model.into(),
            system: String::new(),
            max_output_tokens: 8192,
            max_output_is_default: false,
            temperature_milli: None,
            seed: None,
            extras: ModelExtras::default(),
            images: false,
            structured: false,
            prices: PriceTable::default(),
            history_tokens: None,
            retry: RetryPolicy::default(),
            tools,
            classifier,
        }
    }
}

/// A step: what an agent is to reach, within which limits (Granular Execution PRD §10).
#[derive(Clone)]
pub struct GranularStep {
    /// What the step is called.
    pub name: String,
    /// Who carries it out.
    pub agent: Agent,
    /// What is asked of the agent: a text, or any other JSON value, which it reads under the step's name.
    pub input: Value,
    /// The most turns, committed ones counted over all runs of the same id.
    pub max_turns: u32,
    /// The most tokens of history, system prompt included, that a request carries; beyond it the middle is left out.
    pub history_max_tokens: u64,
    /// Results over this many bytes are kept as blobs, and the history refers to them.
    pub blob_threshold_bytes: u64,
    /// Every tool that does harm when repeated has to take an idempotency key; with one that cannot, nothing starts.
    pub enforce_idempotency: bool,
    /// Go on when the blob of a call that may be repeated is gone, with a note in its place.
    pub degraded_replay: bool,
    /// The JSON Schema of the step's result: the last message has to be a value that fits it, and is asked for again until it is. A text
    /// when missing.
    pub output_schema: Option<Value>,
    /// What a result has to pass beside its schema; what does not is told to the model and asked for again. No part of the definition, since
    /// it says what the schema cannot say of the same type. Not asked without a schema.
    pub accepts: Option<ResultCheck>,
    /// What must hold, over receipts and files, before the step counts as complete.
    pub stop_conditions: Vec<StopCondition>,
    /// Further limits. Its `max_turns` is not read: the step has its own.
    pub budgets: Budgets,
    /// What must not happen.
    pub constraints: Constraints,
    /// When a person is asked.
    pub escalation: Escalation,
}

impl GranularStep {
    /// A step with the defaults of the PRD: 20 turns, 128,000 tokens of history, blobs over 20,000 bytes, no enforcement;
    /// further limits are those of a job.
    pub fn new(name: impl Into<String>, agent: Agent, input: impl Into<Value>) -> Self {
        let Settings { blob_threshold_bytes, history_max_tokens, degraded_replay, enforce_idempotency, .. } =
            Settings::default();
        Self {
            name: name.into(),
            agent,
            input: input.into(),
            max_turns: 20,
            history_max_tokens,
            blob_threshold_bytes,
            enforce_idempotency,
            degraded_replay,
            output_schema: None,
            accepts: None,
            stop_conditions: Vec::new(),
            budgets: Budgets::default(),
            constraints: Constraints::default(),
            escalation: Escalation::default(),
        }
    }
}

/// Where a step runs: its storage, its folder, its time.
#[derive(Clone)]
pub struct StepHost {
    /// The runtime database.
    pub store: Arc<dyn Store>,
    /// The run's folder; made when it is not there. It belongs to one run.
    pub workspace: PathBuf,
    /// The folder of run locks, for example `locks` beside the database. With it, one process drives a run, whatever
    /// happens. Without it a process that is seen to be alive on this machine is respected, but two tasks of one process, or
    /// two machines, are kept apart by the epoch alone: what one of them has under way when the other takes the run is not
    /// ended. Beside it stands `late_replies.log`, where answers are kept while the database does not take them.
    pub locks: Option<PathBuf>,
    /// The folder that `ua --root` names to find these runs, which every command that a person is told has; `None` is the one that the workspace
    /// lies in.
    pub root: Option<PathBuf>,
    /// Clock and entropy: `ua_core::system::env()` in a real process.
    pub env: Env,
    /// Who watches.
    pub watcher: Watcher,
    /// What must not be kept of what tools and the model answer: the values of keys that this process knows.
    pub redactor: Redactor,
    /// How to ask the step to stop.
    pub stop: StopSignal,
    /// Changes to what a run is pinned to that are accepted: changed tools, a changed policy. Only those that
    /// [`Component::may_be_accepted`] allows; another model or prompt is another definition.
    pub accept: Vec<Component>,
}

impl StepHost {
    /// A host without run locks, which nobody watches.
    pub fn new(store: Arc<dyn Store>, workspace: impl Into<PathBuf>, env: Env) -> Self {
        Self {
            store,
            workspace: workspace.into(),
            locks: None,
            root: None,
            env,
            watcher: Arc::new(|_: RunEvent| {}),
            redactor: Redactor::default(),
            stop: StopSignal::default(),
            accept: Vec::new(),
        }
    }

    /// The same, accepting changes of these to what a run is pinned to.
    #[must_use]
    pub fn accepting(mut self, components: impl IntoIterator<Item = Component>) -> Self {
        self.accept.extend(components);
        self
    }

    /// The same, keeping nothing that `redactor` knows.
    #[must_use]
    pub fn with_redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }

    /// The same for runs that `ua --root ROOT` finds.
    #[must_use]
    pub fn with_root(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = Some(root.into());
        self
    }

    /// The workspace in `folder` with the commands that a person is told there. The program names the folder of its runs itself: no command finds it
    /// by default.
    fn with_commands(&self, workspace: Workspace, folder: &Path) -> Workspace {
        match self.root.as_deref().or_else(|| folder.parent()) {
            Some(root) => workspace.with_commands(ua_resume::Commands::naming(root)),
            None => workspace,
        }
    }

    /// The same with run locks in `locks`.
    #[must_use]
    pub fn with_locks(mut self, locks: impl Into<PathBuf>) -> Self {
        self.locks = Some(locks.into());
        self
    }
}
