//! Tasks: what a tool server answers in the place of a result, and what one says when it is asked how it stands.
//!
//! Revision 2025-11-25 has them on request (`task` in `tools/call`, the result by `tasks/result`), the extension
//! `io.modelcontextprotocol/tasks` of 2026-07-28 in the place of any result (the result in the answer to `tasks/get`). One reading of both, for
//! all who send calls. Invariant: the name of a task is never a result; neither is what is said of one that is still at work, has been
//! cancelled, or is not known. What says nothing that can be understood of a task is waited for as long as [`UNCLEAR`], and no longer.

use std::time::Duration;

use serde_json::{Map, Value, json};
use ua_core::{Handle, Outcome, RawReply, unreadable_result};

/// The extension of revision 2026-07-28, by which a client says that it follows tasks.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// How long is waited before a task is asked that does not say how often it wants to be, at first and at most.
const FIRST_POLL: Duration = Duration::from_secs(1);
const LAST_POLL: Duration = Duration::from_secs(30);
/// The least and the most that a task's own wish counts.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_mins(5);

/// How long is waited while what is said of a task tells nobody how it stands.
const UNCLEAR: Duration = Duration::from_mins(10);
/// How long that has been so, in what is kept of it.
const UNCLEAR_MS: &str = "unclear_ms";

/// What a task says that has no end.
const OPEN: [&str; 2] = ["working", "input_required"];

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

/// A task in the place of a result, as what its call continues with; `None` for every other result. One whose name cannot be read is no result
/// either: nobody can ask it what it came to.
pub fn task_begun(result: &Value) -> Option<Outcome> {
    let (task, wish) = match (result.get("resultType").and_then(Value::as_str), result.get("task")) {
        (Some("task"), _) => (result, "pollIntervalMs"),
        // Beside a result, what has ended or has no name is a field of the tool's own.
        (_, Some(task)) if !has_result(result) && !task.is_null() => (task, "pollInterval"),
        (_, Some(task)) if is_open(task) && task.get("taskId").is_some() => (task, "pollInterval"),
        (None, None) if !has_result(result) && is_open(result) && result.get("taskId").is_some() => {
            (result, "pollInterval")
        }
        (_, _) => return None,
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

/// Whether something has what only the result of a tool has.
fn has_result(result: &Value) -> bool {
    ["content", "structuredContent"].iter().any(|field| result.get(field).is_some())
}

/// Why a result of a revision that has kinds of results is none: it is of one that is not known, and who knows what that leaves open.
pub(crate) fn unknown_kind(result: &Value) -> Option<String> {
    let kind = result.get("resultType")?;
    let is_known = matches!(kind.as_str(), Some("complete" | "task" | "input_required"));
    (!is_known).then(|| format!("its result is of a kind that is not known, {}", shortened(&kind.to_string())))
}

/// Reads the answer to `tasks/get` about this task. `is_new`: whether the server is asked as revision 2026-07-28 has it.
pub fn task_stands(task: &str, state: &Value, place: &Value, is_new: bool) -> TaskStands {
    if state.get("taskId").is_some_and(|named| named != task) {
        return unclear(place, "it answers for another task");
    }
    let status = state.get("status").and_then(Value::as_str).unwrap_or_default();
    if let (Some(then), Some(now)) = (place.get(MADE), state.get(MADE))
        && then != now
    {
        return TaskStands::Ended(Outcome::Lost {
            why: "the other side has another task under this name now, so nobody knows what became of the one of this call".to_owned(),
        });
    }
    match status {
        "completed" if is_new => {
            let result = state.get("result").cloned().unwrap_or_default();
            TaskStands::Ended(match unknown_kind(&result) {
                Some(why) => Outcome::Lost { why: format!("the task ended with an answer that cannot be read: {why}") },
                None => task_result(result),
            })
        }
        "failed" if is_new => TaskStands::Ended(failed(state)),
        "cancelled" => TaskStands::Ended(Outcome::Lost {
            why: "the other side cancelled the task; how far it came is not known".to_owned(),
        }),
        "input_required" if is_new => TaskStands::Asks,
        // One that asks does so on the stream that will bring its result.
        "completed" | "failed" | "input_required" => TaskStands::HasResult,
        "working" => TaskStands::Works(next_place(
            place,
            &poll_place(state, if is_new { "pollIntervalMs" } else { "pollInterval" }),
        )),
        "" => unclear(place, "it names no status"),
        other => unclear(place, &format!("it names a status that is not known, `{}`", shortened(other))),
    }
}

/// Where a task is followed from now on, which says so how often it wants to be asked.
fn next_place(place: &Value, wish: &Value) -> Value {
    let (_, next) = interval(place);
    let mut place = if place.is_object() { place.clone() } else { json!({}) };
    match wish.get("poll_ms") {
        Some(wish) => place["poll_ms"] = wish.clone(),
        None => place["next_ms"] = json!(next),
    }
    if let Some(place) = place.as_object_mut() {
        place.remove(UNCLEAR_MS);
    }
    place
}

/// Nobody knows how the task stands. It may be at work, so it is asked again, less and less often, and not for ever.
fn unclear(place: &Value, what: &str) -> TaskStands {
    let before = place.get(UNCLEAR_MS).and_then(Value::as_u64);
    let waited = before.map_or(Duration::ZERO, |before| Duration::from_millis(before) + interval(place).0);
    if waited >= UNCLEAR {
        let minutes = UNCLEAR.as_secs() / 60;
        return TaskStands::Ended(Outcome::Lost {
            why: format!(
                "for {minutes} minutes the other side has not said how the task stands ({what}), and nobody knows how far it came"
            ),
        });
    }
    let mut place = if place.is_object() { place.clone() } else { json!({}) };
    if let Some(place) = place.as_object_mut() {
        // How often it wants to be asked is for a task that says how it stands.
        place.remove("poll_ms");
    }
    let mut place = next_place(&place, &Value::Null);
    place[UNCLEAR_MS] = json!(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
    TaskStands::Works(place)
}

/// So much of what the other side says that it fits into a reason.
fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Whether a task says of itself that it has no end yet.
fn is_open(task: &Value) -> bool {
    task.get("status").and_then(Value::as_str).is_some_and(|status| OPEN.contains(&status))
}

/// What a task ended with. One that ends in another task, in a question, or in something that cannot be read has no result.
pub fn task_result(result: Value) -> Outcome {
    if task_begun(&result).is_some() || result.get("resultType").is_some_and(|kind| kind == "input_required") {
        return Outcome::Lost { why: "the task ended with something that is no result".to_owned() };
    }
    if let Some(why) = unreadable_result(&result) {
        return Outcome::Lost { why: format!("the task ended with an answer that cannot be read: {why}") };
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
            let TaskStands::Works(next) = task_stands("t", &json!({"status": "working"}), &place, true) else {
                panic!()
            };
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
                    task_stands("1", &state, &handle.place, is_new)
                };
                let is_another = |stands: TaskStands| matches!(stands, TaskStands::Ended(Outcome::Lost { why }) if why.contains("another task"));
                assert!(is_another(state(Some("2026-01-02T00:00:00Z"))), "{status}");
                assert!(!is_another(state(Some("2026-01-01T00:00:00Z"))) && !is_another(state(None)), "{status}");
            }
        }
        // It is kept as long as the task is followed.
        let working = json!({"taskId": "1", "status": "working"});
        let TaskStands::Works(place) = task_stands("1", &working, &handle.place, true) else { panic!() };
        assert_eq!(place["createdAt"], json!("2026-01-01T00:00:00Z"));
    }

    /// Over all that a task can say of itself, in both eras: only an end with a result, or with an error, is an answer to the call.
    #[test]
    fn only_the_end_of_a_task_is_an_answer() {
        let result = json!({"content": [{"type": "text", "text": "sent"}]});
        let handle = json!({"resultType": "task", "taskId": "u", "status": "working"});
        let old_handle = json!({"task": {"taskId": "u", "status": "working"}});
        let asks = json!({"resultType": "input_required", "inputRequests": {}});
        let odd = [
            json!("sent"),
            json!(7),
            json!([]),
            json!({"content": "sent"}),
            json!({"resultType": "partial", "content": []}),
        ];
        for status in ["working", "completed", "failed", "cancelled", "input_required", "submitted", ""] {
            let told = [Value::Null, result.clone(), handle.clone(), old_handle.clone(), asks.clone()];
            for within in told.into_iter().chain(odd.clone()) {
                for is_new in [true, false] {
                    let state = json!({"taskId": "t", "status": status, "result": within, "error": {"code": -32602, "message": "m"}});
                    let stands = task_stands("t", &state, &json!({}), is_new);
                    let is_answered = matches!(stands, TaskStands::Ended(Outcome::Raw(_)));
                    let may_be = is_new && (status == "failed" || (status == "completed" && within == result));
                    assert_eq!(is_answered, may_be, "{state} {is_new}: {stands:?}");
                    let works = matches!(stands, TaskStands::Works(_));
                    assert_eq!(works, matches!(status, "working" | "submitted" | ""), "{state} {is_new}: {stands:?}");
                }
            }
        }
    }

    /// Whatever it says instead of how it stands, for itself or for another task: it is asked for some minutes, and what it says is the reason then.
    #[test]
    fn a_task_that_does_not_say_how_it_stands_is_not_waited_for_without_end() {
        for (state, word) in [
            (json!({"status": "paused", "pollIntervalMs": 100}), "`paused`"),
            (json!({"taskId": "t", "pollInterval": 300_000}), "no status"),
            (json!({"status": 7}), "no status"),
            (json!({"status": "completed", "taskId": "u", "result": {"content": []}}), "another task"),
            (json!(null), "no status"),
        ] {
            for (is_new, first) in [
                (true, json!({})),
                (false, json!({"poll_ms": 100, "createdAt": "x"})),
                (true, json!({"poll_ms": 300_000})),
            ] {
                let (mut place, mut waited, mut looks) = (first, Duration::ZERO, 0);
                let why = loop {
                    match task_stands("t", &state, &place, is_new) {
                        TaskStands::Works(next) => place = next,
                        TaskStands::Ended(Outcome::Lost { why }) => break why,
                        TaskStands::Ended(_) | TaskStands::HasResult | TaskStands::Asks => panic!("{state}"),
                    }
                    waited += task_wait(&place);
                    looks += 1;
                };
                assert!(why.contains(word), "{state}: {why}");
                assert!((UNCLEAR..UNCLEAR + LAST_POLL).contains(&waited) && looks < 40, "{state}: {waited:?} {looks}");
            }
        }
        // One that says it again is at work, however long that was so.
        let place = json!({"unclear_ms": 599_000, "next_ms": 30_000});
        let TaskStands::Works(place) = task_stands("t", &json!({"status": "working"}), &place, true) else { panic!() };
        assert_eq!(place.get("unclear_ms"), None);
    }

    /// Whatever the type of its name: a task that nobody can ask is never a result, and what a tool says beside its result is none.
    #[test]
    fn a_task_whose_name_cannot_be_read_is_no_result() {
        for name in [json!(7), json!(u64::MAX), json!(null), json!({}), json!(["t"]), json!(true)] {
            for task in [json!({"taskId": name, "status": "working"}), json!({"taskId": name}), json!({}), json!("t")] {
                let begun = task_begun(&json!({ "task": task }));
                assert!(matches!(begun, Some(Outcome::Lost { .. })), "{task}: {begun:?}");
                assert_eq!(task_begun(&json!({"structuredContent": {}, "task": {"status": "working"}})), None);
            }
            for open in [
                json!({"content": [], "task": {"taskId": name, "status": "working"}}),
                json!({"taskId": name, "status": "working"}),
                json!({"resultType": "task", "taskId": name}),
            ] {
                assert!(matches!(task_begun(&open), Some(Outcome::Lost { .. })), "{open}");
            }
            assert_eq!(task_begun(&json!({"content": [], "task": {"taskId": name, "status": "completed"}})), None);
        }
        for result in [json!({"content": [], "taskId": "t", "status": "working"}), json!({"task": null}), json!({})] {
            assert_eq!(task_begun(&result), None, "{result}");
        }
        let flat = task_begun(&json!({"taskId": "t", "status": "working"}));
        assert!(matches!(flat, Some(Outcome::Continues(handle)) if handle.task.as_deref() == Some("t")));
    }

    #[test]
    fn a_result_of_a_kind_that_is_not_known_is_said_to_be_one() {
        for known in
            [json!({}), json!({"content": []}), json!({"resultType": "complete"}), json!({"resultType": "task"})]
        {
            assert_eq!(unknown_kind(&known), None, "{known}");
        }
        for kind in [json!("partial"), json!(null), json!(7), json!(""), json!("Complete"), json!({})] {
            let why = unknown_kind(&json!({"resultType": kind, "content": []})).unwrap();
            assert!(why.contains("kind that is not known"), "{why}");
        }
    }

    /// What a task says of itself beside an empty content is no result while it has no end.
    #[test]
    fn a_task_with_content_beside_it_is_a_task_while_it_is_open() {
        for (status, is_task) in [("working", true), ("input_required", true), ("completed", false), ("mine", false)] {
            for content in [json!([]), json!([{"type": "text", "text": "begun"}])] {
                let begun = task_begun(&json!({"content": content, "task": {"taskId": "t", "status": status}}));
                assert_eq!(matches!(begun, Some(Outcome::Continues(_))), is_task, "{status}");
            }
        }
    }
}
