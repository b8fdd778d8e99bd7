//! Tools of the world that are not done when they answer: one goes on in a task, one asks for something first.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use ua_core::{Handle, Input};

/// How often a task says that it is still at work before it is done.
const POLLS: u32 = 2;

/// How a tool answers before it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfinished {
    /// It does its work, in a task, and says later what came of it.
    Task,
    /// It asks a person first, and does its work when it is answered.
    Asks,
    /// The same, and it waits for the answer on its connection.
    Waits,
}

/// The tasks of a world: what each answers in the end, and how often it was asked.
#[derive(Debug, Default)]
pub(crate) struct Tasks(BTreeMap<String, (Value, u32)>);

impl Tasks {
    /// A new task that will answer with `result`.
    pub(crate) fn begin(&mut self, tool: &str, result: Value) -> Handle {
        let id = format!("task-{}-{tool}", self.0.len() + 1);
        self.0.insert(id.clone(), (result, 0));
        Handle { task: Some(id), place: json!({"poll_ms": 1000}), ..Handle::default() }
    }

    /// What a task came to, if it is done; an error when there is no such task.
    pub(crate) fn ask(&mut self, id: &str) -> Result<Option<Value>, String> {
        let (result, asked) = self.0.get_mut(id).ok_or_else(|| format!("no task is called {id}"))?;
        *asked += 1;
        Ok((*asked > POLLS).then(|| result.clone()))
    }
}

/// What a tool asks for that asks.
pub(crate) fn question(key: &str) -> Handle {
    let params = json!({"message": "Which size?", "requestedSchema": {
        "type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}});
    let requests = BTreeMap::from([("size".to_owned(), json!({"method": "elicitation/create", "params": params}))]);
    let input = Input { requests, state: Some(format!("sealed {key}")), round: 1, ..Input::default() };
    Handle { input: Some(input), ..Handle::default() }
}

/// The same of a tool that waits on its connection.
pub(crate) fn live_question(key: &str) -> Handle {
    let mut handle = question(key);
    if let Some(input) = &mut handle.input {
        input.is_live = true;
    }
    handle
}
