//! What a drive reaches the world through, how it is set, and how a run is parked that cannot be driven.

use std::collections::BTreeMap;
use std::sync::Arc;

use ua_core::{EffectKind, Env, PriceTable, QuestionId, QuestionText, RunStatus, RunStop, StopCondition, Timestamp};
use ua_dispatch::{Dispatcher, StopSignal};
use ua_ledger::{Outbox, Patience};
use ua_llm::LlmProvider;
use ua_store::{Choice, NewQuestion, QuestionKind, QuestionRecord, RunEnd, RunLease, RunRecord, RunStore, Store};

use crate::alive::Stillness;
use crate::drive::is_unread;
use crate::error::RunError;
use crate::machine::Conclusion;
use crate::pin::PinSettings;
use crate::retry::RetryPolicy;
use crate::spans;
use crate::watch::Watcher;
use crate::workspace::Workspace;

/// A check of a result that fits the job's `output_schema` and may be none all the same: a schema says less than the type that a program
/// reads it as. The error is told to the model, which is asked again; it says in words what is wrong, without a full stop.
pub type ResultCheck = Arc<dyn Fn(&serde_json::Value) -> Result<(), String> + Send + Sync>;

/// Everything the loop reaches the world through.
pub(crate) struct Ports {
    /// The runtime database, as the run's owner sees it.
    pub store: Arc<Outbox>,
    /// The model.
    pub llm: Arc<dyn LlmProvider>,
    /// The road to the tools.
    pub dispatcher: Dispatcher,
    /// Proof of ownership.
    pub lease: RunLease,
    /// The run's folder.
    pub workspace: Workspace,
    /// Clock and entropy.
    pub env: Env,
    /// Who watches.
    pub watcher: Watcher,
    /// How to ask the loop to end.
    pub stop: StopSignal,
    /// How long what came back waits for a busy database.
    pub patience: Arc<dyn Patience>,
    /// How long the process stood still.
    pub still: Arc<Stillness>,
    /// What a typed result has to pass beside its schema.
    pub accepts: Option<ResultCheck>,
}

/// How the model is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSettings {
    /// The provider's name of the model.
    pub model: String,
    /// The system prompt.
    pub system: String,
    /// The most output tokens of one reply.
    pub max_output_tokens: u32,
    /// The most tokens of history that the model takes beside its reply, if that is known. The contract's
    /// `settings.history_max_tokens` counts when it is less.
    pub history_tokens: Option<u64>,
    /// Whether the model reads images: those that tools answered are sent along then.
    pub images: bool,
    /// Whether the model writes a reply by a JSON Schema. Otherwise the job's `output_schema` is said in its first message alone, and
    /// checked as it is for every model.
    pub structured: bool,
    /// Sampling temperature, in thousandths.
    pub temperature_milli: Option<u32>,
    /// What sampling starts from, for a provider that takes it.
    pub seed: Option<u64>,
    /// What tokens cost.
    pub prices: PriceTable,
    /// How often the model is asked for one reply, and how patiently.
    pub retry: RetryPolicy,
    /// What else shapes the run, and what a person accepts about it.
    pub pins: PinSettings,
}

/// The most effects of each kind that a run's stop conditions allow.
pub(crate) fn effect_limits(spec: &ua_core::RunSpec) -> BTreeMap<String, u32> {
    let mut limits = BTreeMap::new();
    for condition in spec.all_stop_conditions().map(StopCondition::expanded) {
        if let StopCondition::Effect { effect, max: Some(max), .. } = condition
            && let Some(kind) = EffectKind::parse(&effect)
        {
            // Several phases may name one effect; what the strictest allows is what all allow.
            limits
                .entry(kind.as_str().to_owned())
                .and_modify(|least: &mut u32| *least = max.min(*least))
                .or_insert(max);
        }
    }
    limits
}

/// Parks a run whose earlier tool servers are still alive and could not be ended: nothing can be decided about their calls,
/// so a person is asked. Called instead of driving it, when [`ToolTransport::fence_earlier`](ua_dispatch::ToolTransport::fence_earlier)
/// says so.
pub(crate) async fn park_for_orphan(
    store: &dyn Store,
    lease: &RunLease,
    env: &Env,
    detail: &str,
) -> Result<(Conclusion, RunRecord), RunError> {
    let question = ask_about_orphan(store, lease, env, detail).await?;
    let end = run_end(RunStatus::WaitingForHuman, Some(question.text.clone()), 0, env.now());
    let run = store.end_run(lease, end).await.map_err(RunError::at("park the run"))?;
    Ok((Conclusion::Waiting { question: Box::new(question) }, run))
}

/// Asks a person to end what an earlier process left alive. There is one such question at a time: it was just looked again, so an earlier
/// one that says something else, or was answered `continue`, has had its consequence.
pub(crate) async fn ask_about_orphan(
    store: &dyn Store,
    lease: &RunLease,
    env: &Env,
    detail: &str,
) -> Result<QuestionRecord, RunError> {
    let text = format!(
        "A tool server that an earlier process started is still alive and could not be ended: {detail}. End it; then the run can go on."
    );
    let open = store.open_questions(Some(&lease.run_id)).await.map_err(RunError::at("read the questions"))?;
    for earlier in
        open.iter().filter(|question| question.call_id.is_none() && question.kind == QuestionKind::OrphanAlive)
    {
        let is_over = match &earlier.answer {
            None => earlier.text != QuestionText::new(&text).as_str(),
            // What was said beside an answer is for the model, which is told it when it is asked again.
            Some(answer) => answer.choice != Choice::Abort && !is_unread(earlier),
        };
        if is_over {
            let closed = store.close_question(lease, &earlier.question_id, env.now()).await;
            closed.map_err(RunError::at("close a question"))?;
        }
    }
    raise_run_question(store, lease, env, QuestionKind::OrphanAlive, &text).await
}

/// Parks a run whose tool servers could not be started: nothing was sent, and a resume may find them.
pub async fn park_for_tool_server(
    store: &dyn Store,
    lease: &RunLease,
    env: &Env,
    detail: &str,
) -> Result<(Conclusion, RunRecord), RunError> {
    let end = RunEnd {
        stop_reason: Some(RunStop::ToolServer),
        ..run_end(RunStatus::Stopped, Some(detail.to_owned()), 0, env.now())
    };
    let run = store.end_run(lease, end).await.map_err(RunError::at("park the run"))?;
    Ok((Conclusion::Stopped { reason: RunStop::ToolServer, detail: detail.to_owned() }, run))
}

pub(crate) async fn raise_run_question(
    store: &dyn Store,
    lease: &RunLease,
    env: &Env,
    kind: QuestionKind,
    text: &str,
) -> Result<QuestionRecord, RunError> {
    let choices = vec![Choice::Continue, Choice::Abort];
    raise_run_question_with(store, lease, env, (kind, serde_json::Value::Null, choices), text).await
}

/// The same with a detail and with other choices.
pub(crate) async fn raise_run_question_with(
    store: &dyn Store,
    lease: &RunLease,
    env: &Env,
    (kind, detail, choices): (QuestionKind, serde_json::Value, Vec<Choice>),
    text: &str,
) -> Result<QuestionRecord, RunError> {
    let question = NewQuestion {
        question_id: QuestionId::new(env),
        call_id: None,
        kind,
        text: QuestionText::new(text),
        detail,
        choices,
        at: env.now(),
    };
    let asked = store.raise_question(lease, question).await.map_err(RunError::at("ask a person"))?;
    spans::asked(&asked);
    Ok(asked)
}

pub(crate) fn run_end(status: RunStatus, detail: Option<String>, held_millis: u64, at: Timestamp) -> RunEnd {
    RunEnd {
        status,
        stop_reason: None,
        detail,
        final_output: None,
        final_artifact_ref: None,
        step_end: None,
        cancels: Vec::new(),
        closes: Vec::new(),
        held_millis,
        at,
    }
}
