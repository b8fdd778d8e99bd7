//! Tasks: what a tool server answers in the place of a result, and what one says when it is asked how it stands.
//!
//! Revision 2025-11-25 has them on request (`task` in `tools/call`, the result by `tasks/result`), the extension
//! `io.modelcontextprotocol/tasks` of 2026-07-28 in the place of any result (the result in the answer to `tasks/get`). One reading of both, for
//! all who send calls. Invariant: the name of a task is never a result; neither is what is said of one that is still at work, has been
//! cancelled, or is not known.

use std::time::Duration;

use serde_json::{Map, Value, json};
use ua_core::{Handle, Outcome, RawReply};

/// The extension of revision 2026-07-28, by which a client says that it follows tasks.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// How long is waited before a task is asked that does not say how often it wants to be, at first and at most.
const FIRST_POLL: Duration = Duration::from_secs(1);
const LAST_POLL: Duration = Duration::from_secs(30);
/// The least and the most that a task's own wish counts.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_mins(5);

/// When a task was made, as the other side has it: names may come again behind a restart, and then it is another task.
const MADE: &str = "createdAt";

/// How a task stands that was asked.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskStands {
    /// It has ended, with this.
    Ended(Outcome),
    /// Its result is to be had by `tasks/result`, and so is what it asks for before.
    HasResult,
    /// It asks for something.
    Asks,
    /// It is at work; where it is followed from now on ([`Handle::place`]).
    Works(Value),
}

/// A task in the place of a result, as what its call continues with; `None` for every other result.
pub fn task_begun(result: &Value) -> Option<Outcome> {
    let (task, wish) = match result.get("resultType").and_then(Value::as_str) {
        Some("task") => (result, "pollIntervalMs"),
        Some(_) | None => match result.get("task").filter(|_| result.get("content").is_none()) {
            Some(task) if name_of(task).is_some() => (task, "pollInterval"),
            Some(_) | None => return None,
        },
    };
    Some(match name_of(task) {
        Some(name) => {
            let mut place = poll_place(task, wish);
            if let Some(made) = task.get(MADE) {
                place[MADE] = made.clone();
            }
            Outcome::Continues(Box::new(Handle { task: Some(name), place, ..Handle::default() }))
        }
        None => Outcome::Lost { why: "the tool continued in a task without a name".to_owned() },
    })
}

/// Reads the answer to `tasks/get`. `is_new`: whether the server is asked as revision 2026-07-28 has it.
pub fn task_stands(state: &Value, place: &Value, is_new: bool) -> TaskStands {
    let status = state.get("status").and_then(Value::as_str).unwrap_or_default();
    if let (Some(then), Some(now)) = (place.get(MADE), state.get(MADE))
        && then != now
    {
        return TaskStands::Ended(Outcome::Lost {
            why: "the other side has another task under this name now, so nobody knows what became of the one of this call".to_owned(),
        });
    }
    match status {
        "completed" if is_new => TaskStands::Ended(task_result(state.get("result").cloned().unwrap_or_default())),
        "failed" if is_new => TaskStands::Ended(failed(state)),
        "cancelled" => TaskStands::Ended(Outcome::Lost {
            why: "the other side cancelled the task; how far it came is not known".to_owned(),
        }),
        "input_required" if is_new => TaskStands::Asks,
        // One that asks does so on the stream that will bring its result.
        "completed" | "failed" | "input_required" => TaskStands::HasResult,
        _ => {
            let (_, next) = interval(place);
            let mut place = if place.is_object() { place.clone() } else { json!({}) };
            let wish = poll_place(state, if is_new { "pollIntervalMs" } else { "pollInterval" });
            match wish.get("poll_ms") {
                Some(wish) => place["poll_ms"] = wish.clone(),
                None => place["next_ms"] = json!(next),
            }
            TaskStands::Works(place)
        }
    }
}

/// What a task ended with. One that ends in another task, or in a question, has no result.
pub fn task_result(result: Value) -> Outcome {
    if task_begun(&result).is_some() || result.get("resultType").is_some_and(|kind| kind == "input_required") {
        return Outcome::Lost { why: "the task ended with something that is no result".to_owned() };
    }
    Outcome::Raw(RawReply::ToolResult { result })
}

/// What is said to a question about a task: the task is not known there any more.
pub fn is_unknown_task(code: i64) -> bool {
    matches!(code, -32602 | -32601 | -32002 | -32001)
}

/// An error that `tasks/result` is answered with. What means *not done* of a request does not mean that of a task.
pub fn task_error(code: i64, message: String) -> Outcome {
    let code = if matches!(code, -32601 | -32602) { -32603 } else { code };
    Outcome::Raw(RawReply::RpcError { code, message })
}

/// How long to wait before a task is asked again.
pub fn task_wait(place: &Value) -> Duration {
    interval(place).0
}

/// The parameters of a question about a task.
pub fn of_task<const N: usize>(task: &str, more: [(&str, Value); N]) -> Map<String, Value> {
    let more = more.into_iter().map(|(name, value)| (name.to_owned(), value));
    std::iter::once(("taskId".to_owned(), json!(task))).chain(more).collect()
}

fn name_of(task: &Value) -> Option<String> {
    task.get("taskId").and_then(Value::as_str).map(str::to_owned)
}

/// How often a task wants to be asked, as it says itself.
fn poll_place(task: &Value, field: &str) -> Value {
    match task.get(field).and_then(Value::as_u64) {
        Some(millis) => json!({ "poll_ms": millis }),
        None => json!({}),
    }
}

/// A task's failure, as an error of the protocol.
fn failed(state: &Value) -> Outcome {
    let error = state.get("error").cloned().unwrap_or_default();
    let code = error.get("code").and_then(Value::as_i64).unwrap_or(-32603);
    let message = error.get("message").and_then(Value::as_str).unwrap_or("the task failed").to_owned();
    task_error(code, message)
}

/// How long to wait before a task is asked, and how long the next time if it still does not say.
fn interval(place: &Value) -> (Duration, u64) {
    let millis = |field: &str| place.get(field).and_then(Value::as_u64).map(Duration::from_millis);
    if let Some(wish) = millis("poll_ms") {
        return (wish.clamp(SHORTEST, LONGEST), 0);
    }
    let wait = millis("next_ms").unwrap_or(FIRST_POLL).clamp(FIRST_POLL, LAST_POLL);
    (wait, u64::try_from((wait * 2).min(LAST_POLL).as_millis()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_asked_as_often_as_it_wants_within_bounds_and_else_less_and_less() {
        let wait = |place: Value| interval(&place).0.as_millis();
        assert_eq!(wait(json!({"poll_ms": 700})), 700);
        assert_eq!((wait(json!({"poll_ms": 0})), wait(json!({"poll_ms": u64::MAX}))), (100, 300_000));
        let mut place = json!({});
        let mut waits = Vec::new();
        for _ in 0..7 {
            waits.push(task_wait(&place).as_secs());
            let TaskStands::Works(next) = task_stands(&json!({"status": "working"}), &place, true) else { panic!() };
            place = next;
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    }

    #[test]
    fn a_failed_task_is_never_read_as_not_begun() {
        let failed = |code: i64| super::failed(&json!({"error": {"code": code, "message": "m"}}));
        let rpc = |code| Outcome::Raw(RawReply::RpcError { code, message: "m".into() });
        assert_eq!((failed(-32601), failed(-32602), failed(-32000)), (rpc(-32603), rpc(-32603), rpc(-32000)));
    }

    /// Whatever the one says that has the name now: it is no answer to the call of another.
    #[test]
    fn a_task_that_was_made_at_another_time_is_another_task() {
        let begun = json!({"resultType": "task", "taskId": "1", "createdAt": "2026-01-01T00:00:00Z"});
        let Some(Outcome::Continues(handle)) = task_begun(&begun) else { panic!() };
        for status in ["working", "completed", "failed", "cancelled", "input_required"] {
            for is_new in [true, false] {
                let state = |made: Option<&str>| {
                    let mut state = json!({"taskId": "1", "status": status, "result": {"content": []}});
                    if let Some(made) = made {
                        state["createdAt"] = json!(made);
                    }
                    task_stands(&state, &handle.place, is_new)
                };
                let is_another = |stands: TaskStands| matches!(stands, TaskStands::Ended(Outcome::Lost { why }) if why.contains("another task"));
                assert!(is_another(state(Some("2026-01-02T00:00:00Z"))), "{status}");
                assert!(!is_another(state(Some("2026-01-01T00:00:00Z"))) && !is_another(state(None)), "{status}");
            }
        }
        // It is kept as long as the task is followed.
        let working = json!({"taskId": "1", "status": "working"});
        let TaskStands::Works(place) = task_stands(&working, &handle.place, true) else { panic!() };
        assert_eq!(place["createdAt"], json!("2026-01-01T00:00:00Z"));
    }

    /// Over all that a task can say of itself, in both eras: only an end with a result, or with an error, is an answer to the call.
    #[test]
    fn only_the_end_of_a_task_is_an_answer() {
        let result = json!({"content": [{"type": "text", "text": "sent"}]});
        let handle = json!({"resultType": "task", "taskId": "u", "status": "working"});
        let old_handle = json!({"task": {"taskId": "u", "status": "working"}});
        let asks = json!({"resultType": "input_required", "inputRequests": {}});
        for status in ["working", "completed", "failed", "cancelled", "input_required", "submitted", ""] {
            for within in [Value::Null, result.clone(), handle.clone(), old_handle.clone(), asks.clone()] {
                for is_new in [true, false] {
                    let state = json!({"taskId": "t", "status": status, "result": within, "error": {"code": -32602, "message": "m"}});
                    let stands = task_stands(&state, &json!({}), is_new);
                    let is_answered = matches!(stands, TaskStands::Ended(Outcome::Raw(_)));
                    let may_be = is_new
                        && (status == "failed" || (status == "completed" && (within == result || within.is_null())));
                    assert_eq!(is_answered, may_be, "{state} {is_new}: {stands:?}");
                    let works = matches!(stands, TaskStands::Works(_));
                    assert_eq!(works, matches!(status, "working" | "submitted" | ""), "{state} {is_new}: {stands:?}");
                }
            }
        }
    }
}
