//! Tool calls that a tool server goes on with as a task: they are followed here until the task has ended, and clients wait for them as for every
//! other call.
//!
//! What a call continues with is stored with its attempt before anything is asked of the task, so whichever broker runs next asks that task and
//! sends nothing again. Tasks are between the gateway and the tool server alone: no client is told that there are any, since a client that has
//! one in hand has no answer of its call, and the ledger would not know which of the two it asks for next time.
//!
//! Invariants: a call is settled by what its task ended with, never by its name; a task that was cancelled, or that is not known any more,
//! leaves its call in doubt; asking a task changes nothing, however often.
//! Proved by: `tests/it/tasks.rs`.

use std::time::Duration;

use serde_json::{Map, Value, json};
use ua_core::{Handle, Outcome, RawReply, SideEffectClass, unreadable_result};
use ua_dispatch::{Permit, TransportError};
use ua_mcp::{
    TASKS, TaskStands, is_unknown_task, of_task, task_begun, task_error, task_result, task_stands, task_wait,
};

use super::process::{Process, Unanswered};
use super::transport::MOST_ROUNDS;
use super::{PATIENCE, Upstream, lock};
use crate::era::{self, CAPABILITIES};

/// Where a handle keeps which requests of a task were answered, to which process of the tool server, and how often a task took no answer.
const ANSWERED: &str = "answered";
const ANSWERED_TO: &str = "answered_to";
const REFUSED: &str = "refused";

/// The methods by which a client would speak of tasks.
pub(crate) fn is_about_tasks(method: &str) -> bool {
    method.starts_with("tasks/")
}

/// Whether a tool server tells how a task stands, of which its client knows nothing.
pub(crate) fn tells_of_tasks(message: &Value) -> bool {
    matches!(message["method"].as_str(), Some("notifications/tasks" | "notifications/tasks/status"))
}

/// Takes out of what a tool server says of itself that calls can be made as tasks: they can, and the gateway does it.
pub(crate) fn withhold_tasks(said: &mut Value) {
    if let Some(capabilities) = said.get_mut("capabilities").and_then(Value::as_object_mut) {
        capabilities.remove("tasks");
        if let Some(extensions) = capabilities.get_mut("extensions").and_then(Value::as_object_mut) {
            extensions.remove(TASKS);
            if extensions.is_empty() {
                capabilities.remove("extensions");
            }
        }
    }
}

/// The same of a page of its tools.
pub(crate) fn withhold_task_support(page: &mut Value) {
    for tool in page.get_mut("tools").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(tool) = tool.as_object_mut() else { continue };
        let Some(execution) = tool.get_mut("execution").and_then(Value::as_object_mut) else { continue };
        if execution.remove("taskSupport").is_some() && execution.is_empty() {
            tool.remove("execution");
        }
    }
}

impl Upstream {
    /// Says in a request whether we follow tasks: where the tool server has them, and whatever the client says of itself.
    pub(super) fn says_tasks(&self, params: &mut Value, follows: bool) {
        let Some(capabilities) = params.get_mut("_meta").and_then(|meta| meta.get_mut(CAPABILITIES)) else { return };
        let Some(capabilities) = capabilities.as_object_mut() else { return };
        if follows && self.has("/capabilities/extensions", TASKS) {
            let extensions = capabilities.entry("extensions").or_insert_with(|| json!({}));
            if let Some(extensions) = extensions.as_object_mut() {
                extensions.entry(TASKS).or_insert_with(|| json!({}));
            }
        } else if let Some(extensions) = capabilities.get_mut("extensions").and_then(Value::as_object_mut) {
            extensions.remove(TASKS);
        }
    }

    /// Asks for a task where the tool does nothing without one, as revision 2025-11-25 has it.
    pub(super) fn ask_for_task(&self, process: &Process, tool: &str, params: &mut Value) {
        let makes = !process.is_stateless() && self.has("/capabilities/tasks/requests/tools", "call");
        if makes && lock(&self.only_as_tasks).contains(tool) {
            params["task"] = json!({});
        }
    }

    fn has(&self, place: &str, name: &str) -> bool {
        let known = lock(&self.known);
        let said = known.as_ref().and_then(|(_, said)| said.pointer(place));
        said.is_some_and(|said| said.get(name).is_some())
    }

    /// What came back for a call: its result; what it continues with; or that it is nothing that is known.
    pub(super) fn outcome_of(process: &Process, result: Value) -> Result<Outcome, Unanswered> {
        if let Some(begun) = task_begun(&result) {
            return Ok(begun);
        }
        let kind = result.get("resultType").filter(|_| process.is_stateless());
        match kind.filter(|kind| *kind != "complete") {
            Some(kind) => Err(Unanswered::Unreadable(format!("its result is of a kind that is not known, {kind}"))),
            None => match unreadable_result(&result) {
                Some(why) => Err(Unanswered::Unreadable(format!("its answer cannot be read: {why}"))),
                None => Ok(Outcome::Raw(RawReply::ToolResult { result })),
            },
        }
    }

    /// One step with a call that continues: asks its task how it stands, as late as it wants to be asked.
    pub(super) async fn follow(&self, permit: &Permit, handle: &Handle) -> Result<Outcome, TransportError> {
        let Some(task) = &handle.task else {
            return Ok(Outcome::Lost { why: "the tool server named nothing that could be continued".to_owned() });
        };
        // Between two looks, too, a task is under way.
        let at_work = self.process.lock().await.clone().filter(|_| !permit.call().policy.is_free_read());
        let _effect = at_work.map(|process| process.effects.one());
        self.env.clock.sleep(task_wait(&handle.place)).await;
        let process = self.running_process().await.map_err(|why| self.not_reached(why))?;
        self.is_there(&process, permit).await?;
        let state = match self.ask_task(&process, "tasks/get", of_task(task, [])).await {
            Ok(state) => state,
            Err(TaskUnanswered::Unknown(why)) => {
                self.launch.horizon.given_up(&process.generation);
                return Ok(Outcome::Lost { why: format!("the tool server no longer knows its task ({why})") });
            }
            Err(TaskUnanswered::NotNow(why)) => return Err(self.not_reached(why)),
        };
        tracing::debug!(task, status = %state["status"], "task");
        let continues = |place: Value| {
            let own = self.generation_of(&process);
            let generation = if own == permit.generation() { handle.generation.clone() } else { Some(own) };
            Outcome::Continues(Box::new(Handle { place, generation, ..handle.clone() }))
        };
        let is_new = process.is_stateless() || state.get("resultType").is_some();
        let outcome = match task_stands(task, &state, &handle.place, is_new) {
            TaskStands::Works(place) => return Ok(continues(place)),
            TaskStands::Ended(outcome) => outcome,
            TaskStands::HasResult => {
                // What asks before it has a result takes as long as a person does. What has ended has it by now.
                let patience = (state["status"] != "input_required").then_some(PATIENCE);
                self.result_of(&process, permit, task, patience).await?
            }
            TaskStands::Asks => {
                if let Some(place) = self.answer_task(&process, permit, handle, task, &state).await? {
                    return Ok(continues(place));
                }
                self.abandon(permit, handle).await;
                Outcome::Lost { why: "its task asked for something that nobody could answer".to_owned() }
            }
        };
        // A read whose answer cannot be read would be made again, and be answered so again.
        let is_read = permit.call().policy.class == SideEffectClass::ReadOnly;
        let unread = state.get("result").filter(|_| is_new && is_read).and_then(unreadable_result);
        let outcome = match (outcome, unread) {
            (Outcome::Lost { why }, Some(_)) => task_error(-32700, why),
            (outcome, _) => outcome,
        };
        if let Some(data) = state.pointer("/error/data").filter(|_| is_new) {
            self.keep_error_data(&permit.call().call_id, data);
        }
        if !matches!(outcome, Outcome::Raw(RawReply::ToolResult { .. })) {
            self.launch.horizon.given_up(&process.generation);
        }
        Ok(outcome)
    }

    /// Tells the tool server that nobody wants what its task does.
    pub(super) async fn abandon(&self, permit: &Permit, handle: &Handle) {
        let Some(task) = &handle.task else { return };
        let Ok(process) = self.running_process().await else { return };
        if self.is_there(&process, permit).await.is_err() {
            return; // somebody else's task may have that name
        }
        if let Err(TaskUnanswered::Unknown(why) | TaskUnanswered::NotNow(why)) =
            self.ask_task(&process, "tasks/cancel", of_task(task, [])).await
        {
            tracing::info!(task, why, "a task could not be cancelled");
        }
    }

    /// Whether the task would be asked as whom its call was made.
    async fn is_there(&self, process: &Process, permit: &Permit) -> Result<(), TransportError> {
        let there = self.check_login(process, permit.destination()).await;
        there.map_err(|why| TransportError::Elsewhere { server: self.launch.name.clone(), why })
    }

    fn not_reached(&self, why: String) -> TransportError {
        TransportError::NotReached { server: self.launch.name.clone(), why }
    }

    /// A question about a task, which changes nothing that asking again would change twice.
    async fn ask_task(
        &self,
        process: &Process,
        method: &str,
        params: Map<String, Value>,
    ) -> Result<Value, TaskUnanswered> {
        let mut params = self.prepared(process, Value::Object(params));
        self.says_tasks(&mut params, true);
        let answer = tokio::select! {
            answer = process.request(method, params) => answer,
            () = self.env.clock.sleep(PATIENCE) => {
                return Err(TaskUnanswered::NotNow(format!("it did not answer {method} in time")));
            }
        };
        let mut answer = answer.map_err(|why| TaskUnanswered::of(&why))?;
        match (answer.get_mut("result").map(Value::take), answer.get("error")) {
            (Some(result), _) => Ok(result),
            (None, Some(error)) if error["code"].as_i64().is_some_and(is_unknown_task) => {
                Err(TaskUnanswered::Unknown(error["message"].as_str().unwrap_or_default().to_owned()))
            }
            (None, error) => Err(TaskUnanswered::NotNow(error.map_or_else(
                || "it answered nothing".to_owned(),
                |error| format!("it answered {method} with an error: {}", error["message"]),
            ))),
        }
    }

    /// Fetches what a task of revision 2025-11-25 ended with, within `patience`, or however long it takes to end. It may ask on the connection
    /// before.
    async fn result_of(
        &self,
        process: &Process,
        permit: &Permit,
        task: &str,
        patience: Option<Duration>,
    ) -> Result<Outcome, TransportError> {
        let params = self.prepared(process, Value::Object(of_task(task, [])));
        let answer = tokio::select! {
            answer = process.request("tasks/result", params) => answer,
            () = self.env.sleep_or_never(patience) => {
                return Err(self.not_reached("its task has ended, and it did not answer tasks/result in time".to_owned()));
            }
        };
        let mut answer = match answer {
            Ok(answer) => answer,
            Err(Unanswered::Unreadable(why)) => {
                let is_read = permit.call().policy.class == SideEffectClass::ReadOnly;
                return Ok(if is_read { task_error(-32700, why) } else { Outcome::Lost { why } });
            }
            Err(why @ (Unanswered::NotSent(_) | Unanswered::Lost(_) | Unanswered::Refused { .. })) => {
                return Err(self.not_reached(why.to_string()));
            }
        };
        match (answer.get_mut("result").map(Value::take), answer.get("error")) {
            (Some(result), _) => {
                let is_unread = unreadable_result(&result).is_some();
                let is_read = permit.call().policy.class == SideEffectClass::ReadOnly;
                Ok(match (task_result(result), is_unread && is_read) {
                    (Outcome::Lost { why }, true) => task_error(-32700, why),
                    (outcome, _) => outcome,
                })
            }
            (None, Some(error)) => {
                if let Some(data) = error.get("data") {
                    self.keep_error_data(&permit.call().call_id, data);
                }
                let message = error["message"].as_str().unwrap_or_default().to_owned();
                Ok(task_error(error["code"].as_i64().unwrap_or(0), message))
            }
            (None, None) => Err(self.not_reached("it answered neither a result nor an error".to_owned())),
        }
    }

    /// Has what a task asks for answered, and hands it over. Where it is followed from now on; `None` when nobody could answer.
    async fn answer_task(
        &self,
        process: &Process,
        permit: &Permit,
        handle: &Handle,
        task: &str,
        state: &Value,
    ) -> Result<Option<Value>, TransportError> {
        let mut place = handle.place.clone();
        // What another process of the tool server was told may have ended with it: that one says again that it asks.
        let process_now = json!(self.generation_of(process));
        let was_told = place[ANSWERED_TO] == process_now;
        let mut known: Vec<Value> = place[ANSWERED].as_array().filter(|_| was_told).cloned().unwrap_or_default();
        let mut open = era::requests_of(state);
        // Until it has read the answers it says that it asks.
        open.retain(|name, _| !known.iter().any(|known| known == name));
        if open.is_empty() {
            return Ok(Some(place));
        }
        let refused = place[REFUSED].as_u64().unwrap_or_default();
        if known.len() as u64 + refused >= u64::from(MOST_ROUNDS) {
            return Ok(None);
        }
        let live = lock(&self.live).get(&permit.call().call_id).cloned();
        let Some(live) = live else { return Ok(None) };
        let names: Vec<Value> = open.keys().map(|name| json!(name)).collect();
        let Some(answers) = live.ask_for(open, &self.env).await else { return Ok(None) };
        match self.ask_task(process, "tasks/update", of_task(task, [("inputResponses", Value::Object(answers))])).await
        {
            Ok(_) => {
                known.extend(names);
                place[ANSWERED] = Value::Array(known);
                place[ANSWERED_TO] = process_now;
            }
            // It says itself how it stands, and asks again if it wants another answer.
            Err(TaskUnanswered::Unknown(why)) => {
                tracing::info!(task, why, "a task did not take what it had asked for");
                place[REFUSED] = json!(refused + 1);
            }
            Err(TaskUnanswered::NotNow(why)) => return Err(self.not_reached(why)),
        }
        Ok(Some(place))
    }
}

/// Why a task did not say how it stands.
enum TaskUnanswered {
    /// It is not known there.
    Unknown(String),
    /// It cannot be asked now.
    NotNow(String),
}

impl TaskUnanswered {
    fn of(why: &Unanswered) -> Self {
        match why {
            Unanswered::Refused { status: 400 | 404 | 405 | 410, of_session: false, .. } => {
                Self::Unknown(why.to_string())
            }
            Unanswered::NotSent(_) | Unanswered::Lost(_) | Unanswered::Unreadable(_) | Unanswered::Refused { .. } => {
                Self::NotNow(why.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_not_told_of_tasks_and_of_all_else() {
        let mut said = json!({"capabilities": {"tools": {}, "tasks": {"list": {}},
            "extensions": {TASKS: {}, "io.example/other": {"x": 1}}}, "serverInfo": {"name": "s"}});
        withhold_tasks(&mut said);
        assert_eq!(said["capabilities"], json!({"tools": {}, "extensions": {"io.example/other": {"x": 1}}}));
        let mut alone = json!({"capabilities": {"extensions": {TASKS: {}}}});
        withhold_tasks(&mut alone);
        assert_eq!(alone, json!({"capabilities": {}}));
        for (execution, left) in [
            (json!({"taskSupport": "required"}), None),
            (json!({"taskSupport": "optional", "x": 1}), Some(json!({"x": 1}))),
            (json!({"x": 1}), Some(json!({"x": 1}))),
            (json!({}), Some(json!({}))),
            (json!(7), Some(json!(7))),
        ] {
            let mut page = json!({"tools": [{"name": "t", "execution": execution}, 7]});
            withhold_task_support(&mut page);
            assert_eq!(page["tools"][0].get("execution").cloned(), left);
        }
    }
}
