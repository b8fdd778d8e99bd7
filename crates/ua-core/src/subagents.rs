//! Sub-agents: what a job says about tasks that its model hands to runs of their own.
//!
//! Durability Architecture (Task relaunch rules). A *task* is a call of the tool `task`; the run that works on it is a *child run*,
//! whose id follows from the call's, so that whoever finds the call finds the run. Off unless a job asks for it: a child costs
//! what a run costs, and a tool that is offered belongs to what a run is pinned to.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::id::{CallId, RunId};
use crate::spec::{Budgets, RunSpec};

/// The `run_mode` of a child run.
pub const TASK_MODE: &str = "task";

/// The folder of a workspace in which each task has one of its own, named by its call.
pub const TASK_FOLDER: &str = "subagent_outputs";

/// Whether and how a job's model may hand tasks to sub-agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Subagents {
    /// How deep tasks may be nested: 1 lets the job's own run start tasks, and these none.
    pub max_depth: u32,
    /// The most tasks of the whole job, those of sub-agents included.
    pub max_tasks: u32,
    /// The most turns of one sub-agent. What is left of the job's own budgets bounds it as well.
    pub max_turns: u32,
    /// Globs over tool names; only these are offered to sub-agents when not empty. A task may ask for fewer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
}

impl Default for Subagents {
    fn default() -> Self {
        Self { max_depth: 1, max_tasks: 10, max_turns: 50, tools: Vec::new() }
    }
}

impl Subagents {
    /// A value that cannot be worked with: the field, and what is wrong with it.
    pub(crate) fn problem(&self) -> Option<(&'static str, &'static str)> {
        let zero = [
            ("subagents.max_depth", self.max_depth),
            ("subagents.max_tasks", self.max_tasks),
            ("subagents.max_turns", self.max_turns),
        ];
        if let Some((field, _)) = zero.into_iter().find(|(_, value)| *value == 0) {
            return Some((field, "is 0: leave `subagents` out to have no sub-agents"));
        }
        (self.max_depth > 5).then_some(("subagents.max_depth", "is above the limit of 5"))
    }
}

/// What a model asks a sub-agent to do: the arguments of a `task` call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskOrder {
    /// What it is about, in a few words.
    pub description: String,
    /// Everything the sub-agent has to know; it sees nothing of its parent's history.
    pub prompt: String,
    /// Files that must be there at the end, relative to the sub-agent's folder.
    pub expected_outputs: Vec<String>,
    /// Globs over the tools it may use.
    pub tools: Vec<String>,
}

impl TaskOrder {
    /// Reads the arguments of a call, which its schema has let through.
    pub fn of(arguments: &Value) -> Self {
        serde_json::from_value(arguments.clone()).unwrap_or_default()
    }
}

impl RunId {
    /// The child run that works on a task.
    pub fn of_task(call: &CallId) -> Self {
        let bare = call.as_str().strip_prefix("call_").unwrap_or(call.as_str());
        Self::of_text(format!("run_task_{bare}"))
    }
}

impl RunSpec {
    /// The contract of a child run that works on `order`: the parent's, but for what it is to reach, with which budgets, and which
    /// tasks it may hand on itself. Its model's words decide nothing that a person has to: limits of effects and known recipients
    /// stay those of the job.
    #[must_use]
    pub fn of_task(
        &self,
        order: &TaskOrder,
        budgets: Budgets,
        subagents: Subagents,
        allow: Option<Vec<String>>,
    ) -> Self {
        let mut spec = self.clone();
        spec.objective =
            if order.description.trim().is_empty() { "Work on a task.".to_owned() } else { order.description.clone() };
        spec.prompt = Some(order.prompt.clone());
        spec.inputs = Map::new();
        spec.files = Vec::new();
        spec.budgets = budgets;
        spec.stop_conditions = Vec::new();
        spec.output_schema = None;
        spec.phases = Vec::new();
        spec.constraints.must_cite_sources = false;
        // What a sub-agent cannot do is its parent's to know, not a person's.
        spec.escalation.ask_human_on_repeated_failures = false;
        spec.artifacts.workspace_dir = None;
        spec.artifacts.expected_outputs.clone_from(&order.expected_outputs);
        spec.job_key = None;
        spec.subagents = Some(subagents);
        if let Some(allow) = allow {
            spec.tools.allow = allow;
        }
        spec
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_run_is_named_by_its_call() {
        let call = CallId::parse("call_019abc").unwrap();
        assert_eq!(RunId::of_task(&call).as_str(), "run_task_019abc");
        assert_eq!(RunId::of_task(&CallId::parse("x").unwrap()).as_str(), "run_task_x");
    }

    #[test]
    fn a_task_takes_over_the_job_but_for_what_it_is_about() {
        let job = RunSpec::parse(
            r#"{"objective": "o", "job_key": "k", "output_schema": {"type": "object"}, "stop_conditions": ["email_sent_once"], "inputs": {"a": 1}, "subagents": {"max_depth": 2},
                "phases": [{"name": "one", "instructions": "x"}], "constraints": {"forbidden_actions": ["x"], "must_cite_sources": true}}"#,
        )
        .unwrap();
        let order = TaskOrder {
            description: "d".into(),
            prompt: "p".into(),
            expected_outputs: vec!["a.md".into()],
            tools: vec![],
        };
        let left = Subagents { max_depth: 1, ..job.subagents.clone().unwrap() };
        let child = job.of_task(&order, Budgets::default(), left, Some(vec!["t".into()]));
        assert_eq!((child.objective.as_str(), child.prompt.as_deref()), ("d", Some("p")));
        assert_eq!(child.artifacts.expected_outputs, ["a.md"]);
        assert_eq!(child.constraints.forbidden_actions, ["x"]);
        assert_eq!(child.tools.allow, ["t"]);
        assert!(child.phases.is_empty() && child.stop_conditions.is_empty() && child.inputs.is_empty());
        assert!(child.output_schema.is_none(), "what the job comes to is its own");
        assert!(child.job_key.is_none() && !child.constraints.must_cite_sources);
        assert_eq!(child.subagents.unwrap().max_depth, 1);
    }

    #[test]
    fn sub_agents_are_off_unless_asked_for_and_nothing_of_them_is_zero() {
        assert_eq!(RunSpec::parse(r#"{"objective": "o"}"#).unwrap().subagents, None);
        assert_eq!(
            RunSpec::parse(r#"{"objective": "o", "subagents": {}}"#).unwrap().subagents,
            Some(Subagents::default())
        );
        for wrong in [
            r#"{"max_depth": 0}"#,
            r#"{"max_tasks": 0}"#,
            r#"{"max_turns": 0}"#,
            r#"{"max_depth": 6}"#,
            r#"{"deep": 1}"#,
        ] {
            let job = format!(r#"{{"objective": "o", "subagents": {wrong}}}"#);
            assert!(RunSpec::parse(&job).is_err(), "{wrong}");
        }
    }
}
