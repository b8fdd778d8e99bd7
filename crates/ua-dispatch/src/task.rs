//! `task`: the model hands a part of its job to a sub-agent, and what that comes to is the tool's result.
//!
//! Durability Architecture (Task relaunch rules); Durable Jobs v1 spec §8.3. The road of a task is that of any call (catalog, schema,
//! rules, admission, approval, RUNNING, receipt), but no tool server stands at its end: a child run does, made with RUNNING. The wall
//! is [`SubAgents`]: whoever drives runs says what the child run is to be and drives it; nothing of a turn is known behind it, nothing
//! of a child in front of it. A task that cannot go on now (a person has to answer, its provider is away) stays RUNNING and goes on
//! with the next process: nothing of it is sent twice, because the child finishes its open turn as any run does.

use async_trait::async_trait;
use globset::{Glob, GlobSet, GlobSetBuilder};
use serde_json::json;
use ua_core::{CallStatus, Outcome, RawReply, Resolution, RunStop, TaskOrder, ToolAnnotations, ToolName, ToolSpec};
use ua_ledger::{Permit, Prepared};
use ua_store::{CallRecord, NewRun, QuestionRecord};

use crate::dispatcher::{CallProgress, Dispatched, Dispatcher};
use crate::error::{DispatchError, SubAgentError};
use crate::spans;
use crate::stop::StopSignal;

/// How many sub-agents of one run work at the same time.
pub(crate) const TASKS_AT_ONCE: usize = 4;

/// What a child run came to in this process.
#[derive(Debug, Clone, PartialEq)]
pub enum Carried {
    /// It has ended, well or not: this is what its task is answered with.
    Answered(RawReply),
    /// It waits for a person.
    Waiting(Box<QuestionRecord>),
    /// It stopped for a reason that a resume may lift.
    Parked {
        /// The reason.
        reason: RunStop,
        /// In words.
        detail: String,
    },
    /// A stop was asked for.
    Stopped,
}

/// Whoever makes and drives child runs.
#[async_trait]
pub trait SubAgents: Send + Sync {
    /// The child run for a task that is about to start, or, in words for the model, why there is to be none. `allow` are the names of
    /// the only tools that it is offered; `None` for those of its parent.
    async fn plan(
        &self,
        call: &CallRecord,
        allow: Option<Vec<String>>,
    ) -> Result<Result<NewRun, String>, SubAgentError>;

    /// Drives the child run of a task that is RUNNING from wherever it stands. One that has ended is not driven again: what it came
    /// to is told anew from its records.
    async fn carry_on(&self, call: &CallRecord, stop: &StopSignal) -> Result<Carried, SubAgentError>;
}

/// The tool as a model sees it. Whether it is offered is a matter of the job (`subagents`).
pub fn task_tool() -> ToolSpec {
    ToolSpec {
        name: ToolName::task(),
        description: "Hands a task to a sub-agent, which works on it in a conversation and a folder of its own, and answers with its \
                      final words, its files and what it did outside. It knows nothing but the prompt: put everything into it. Tasks \
                      that do not depend on each other belong in one reply; they are worked on at the same time. What a sub-agent \
                      uses counts for this job's budgets, and what it sent counts as sent by this job: do not send it again."
            .to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "description": {
                    "type": "string", "minLength": 1, "maxLength": 200,
                    "description": "The task in a few words, for people who watch."
                },
                "prompt": {
                    "type": "string", "minLength": 1, "maxLength": 100_000,
                    "description": "Everything the sub-agent has to know and do, and what it is to answer with."
                },
                "expected_outputs": {
                    "type": "array", "maxItems": 50, "items": {"type": "string", "minLength": 1, "maxLength": 500},
                    "description": "Files that it must have written, relative to its own folder, for example work_products/part.md."
                },
                "tools": {
                    "type": "array", "maxItems": 50, "items": {"type": "string", "minLength": 1, "maxLength": 200},
                    "description": "The tools it may use, by name or with `*`; all of yours when left out."
                }
            },
            "required": ["description", "prompt"],
            "additionalProperties": false
        }),
        annotations: ToolAnnotations::default(),
    }
}

/// What a task under a permit is about to become.
enum Begun {
    Started(Box<Permit>),
    Settled(Box<CallRecord>),
    /// The store refused for a reason that a new admission can settle.
    Again,
}

impl Dispatcher {
    /// Starts a task that was admitted, and carries it on. `None` when it has to be admitted again.
    pub(crate) async fn start_task(
        &self,
        prepared: Prepared,
        stop: &StopSignal,
    ) -> Result<Option<Dispatched>, DispatchError> {
        Ok(match Box::pin(self.begin_task(prepared)).await? {
            Begun::Started(permit) => Some(self.finish_task(*permit, stop).await?),
            Begun::Settled(call) => {
                self.tell(CallProgress::Settled { call: call.clone() });
                Some(Dispatched::Settled(call))
            }
            Begun::Again => None,
        })
    }

    /// Carries on a task that was started before.
    pub(crate) async fn carry_on_task(&self, permit: Permit, stop: &StopSignal) -> Result<Dispatched, DispatchError> {
        let turn = self.tasks_at_once.acquire().await;
        if turn.is_err() || stop.is_stopping() {
            return Ok(Dispatched::Stopped);
        }
        self.finish_task(permit, stop).await
    }

    async fn begin_task(&self, prepared: Prepared) -> Result<Begun, DispatchError> {
        let call = prepared.call().clone();
        let refusal = match self.tools_of_child(&call) {
            Err(why) => why,
            Ok(allow) => match self.sub_agents()?.plan(&call, allow).await.map_err(at(&call))? {
                Err(why) => why,
                Ok(child) => {
                    return Ok(match self.ledger.start_task(prepared, child).await? {
                        Some(permit) => Begun::Started(Box::new(permit)),
                        None => Begun::Again,
                    });
                }
            },
        };
        let refused = self.ledger.cancel(&call, Resolution::Refused, "task_refused", &refusal).await?;
        Ok(Begun::Settled(Box::new(refused)))
    }

    async fn finish_task(&self, permit: Permit, stop: &StopSignal) -> Result<Dispatched, DispatchError> {
        self.ledger.confirm(&permit).await?; // a child run has no key that is forgotten
        self.tell(CallProgress::Sending { call: Box::new(permit.call().clone()) });
        // A stop reaches the child as well, which drains its own calls and says where it was left.
        let carried = self.sub_agents()?.carry_on(permit.call(), stop).await.map_err(at(permit.call()))?;
        Ok(match carried {
            Carried::Answered(raw) => {
                let outcome = Outcome::Raw(raw);
                spans::answered(&outcome);
                self.tell_answered(&permit, &outcome);
                let call = Box::new(self.ledger.settle(permit, outcome).await?);
                self.tell(CallProgress::Settled { call: call.clone() });
                Dispatched::Settled(call)
            }
            Carried::Waiting(question) => Dispatched::Held(question),
            Carried::Parked { reason, detail } => Dispatched::Parked { reason, detail },
            Carried::Stopped => Dispatched::Stopped,
        })
    }

    fn sub_agents(&self) -> Result<&dyn SubAgents, DispatchError> {
        self.agents.as_deref().ok_or_else(|| DispatchError::Configuration {
            tool: ToolName::task().raw,
            why: "nothing here drives sub-agents; leave `subagents` out of the job".to_owned(),
        })
    }

    /// The only tools that the child run of a task is offered; `None` when it is offered all of its parent's. In words for the model
    /// when what it asks for comes to nothing.
    fn tools_of_child(&self, call: &CallRecord) -> Result<Option<Vec<String>>, String> {
        let order = TaskOrder::of(&call.arguments);
        let by_job = self.rules.tools_of_sub_agents();
        if order.tools.is_empty() && by_job.is_none() {
            return Ok(None);
        }
        let wanted =
            patterns(&order.tools).map_err(|why| format!("Not run: `tools` has {why}. Correct it and ask again."))?;
        let offered: Vec<&str> = self
            .catalog
            .offers()
            .map(|offer| offer.name.as_str())
            .filter(|name| *name != ToolName::task().raw)
            .collect();
        let bare = |name: &str| name.rsplit("__").next().unwrap_or(name).to_owned();
        let fits = |set: &GlobSet, name: &str| set.is_match(name) || set.is_match(bare(name));
        let allowed: Vec<&str> = offered.into_iter().filter(|name| by_job.is_none_or(|set| fits(set, name))).collect();
        let chosen: Vec<String> = allowed
            .iter()
            .filter(|name| order.tools.is_empty() || fits(&wanted, name))
            .map(|name| (*name).to_owned())
            .collect();
        if chosen.is_empty() {
            return Err(format!(
                "Not run: none of the tools that a sub-agent may use fits `tools`. It may use {}. Ask again with some of these, or \
                 leave `tools` out.",
                if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") }
            ));
        }
        Ok(Some(chosen))
    }
}

fn at(call: &CallRecord) -> impl FnOnce(SubAgentError) -> DispatchError {
    let call = call.call_id.clone();
    move |source| DispatchError::SubAgent { call, source }
}

pub(crate) fn patterns(globs: &[String]) -> Result<GlobSet, String> {
    let mut set = GlobSetBuilder::new();
    for pattern in globs {
        set.add(Glob::new(pattern).map_err(|error| format!("the pattern {pattern:?}: {}", error.kind()))?);
    }
    set.build().map_err(|error| error.to_string())
}

/// Whether a call is a task that is under way.
pub fn is_task_under_way(call: &CallRecord) -> bool {
    call.name.is_task() && call.status == CallStatus::Running
}
