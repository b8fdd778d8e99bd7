//! Results that say themselves that nothing was done, where their server does not set `isError`: the error of a service as it came, or its text.
//!
//! For effects alone, and of those that stay inside only a plain no with its error ([`names_error`]). Taking a failure for a success loses the
//! effect, and the record says that it happened; taking a success for a failure leaves open whether it happened, and of a declared effect a person
//! is asked before the same goes out again.
//! Proved by: the tables in this file's tests.

use std::borrow::Cow;
use std::sync::OnceLock;

use regex::Regex;
use serde_json::{Map, Value};

/// Fields that name an error.
const ERRORS: [&str; 6] = ["error", "errors", "error_message", "errorMessage", "error_code", "errorCode"];

/// What stands beside an error and is no result: how it is told, and where.
const BESIDE: [&str; 26] = [
    "message",
    "msg",
    "code",
    "status",
    "statusCode",
    "status_code",
    "statusText",
    "detail",
    "details",
    "description",
    "error_description",
    "error_type",
    "errorType",
    "type",
    "title",
    "name",
    "reason",
    "hint",
    "help",
    "request_id",
    "requestId",
    "timestamp",
    "path",
    "documentation_url",
    "jsonrpc",
    "tool",
];

/// Whether a result says that it failed. `structured` is what it says as data, if it does.
pub(super) fn say_failed(structured: Option<&Value>, text: &str) -> bool {
    match said(structured, text) {
        Said::Fields(fields) => is_failure(&fields),
        Said::Text(text) => begins_as_error(&text),
        Said::Other => false,
    }
}

/// Whether a result says no, and why: `{"ok": false, "error": "channel_not_found"}`.
pub(super) fn names_error(structured: Option<&Value>) -> bool {
    match said(structured, "") {
        Said::Fields(fields) => is_no_with_error(&fields),
        Said::Text(_) | Said::Other => false,
    }
}

/// What a result says, without what was put around it.
enum Said<'a> {
    Fields(Cow<'a, Map<String, Value>>),
    Text(Cow<'a, str>),
    Other,
}

fn said<'a>(structured: Option<&'a Value>, text: &'a str) -> Said<'a> {
    match structured {
        // A library of servers puts what a function returns under this name, so that it is an object.
        Some(Value::Object(fields)) if fields.len() == 1 && fields.contains_key("result") => {
            said(fields.get("result"), text)
        }
        Some(Value::Object(fields)) => Said::Fields(Cow::Borrowed(fields)),
        Some(Value::String(words)) => match serde_json::from_str::<Value>(words) {
            Ok(inner @ (Value::Object(_) | Value::String(_))) => match said(Some(&inner), words) {
                Said::Fields(fields) => Said::Fields(Cow::Owned(fields.into_owned())),
                Said::Text(text) => Said::Text(Cow::Owned(text.into_owned())),
                Said::Other => Said::Other,
            },
            Ok(_) | Err(_) => Said::Text(Cow::Borrowed(words)),
        },
        None => Said::Text(Cow::Borrowed(text)),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_)) => Said::Other,
    }
}

fn is_failure(fields: &Map<String, Value>) -> bool {
    let answers = answers(fields);
    if answers.contains(&Some(true)) {
        return is_no_with_error(fields);
    }
    answers.contains(&Some(false)) || has_failed_status(fields) || is_error(fields)
}

/// What it says by each of the fields that say yes or no.
fn answers(fields: &Map<String, Value>) -> [Option<bool>; 3] {
    ["ok", "success", "succeeded"].map(|field| fields.get(field).and_then(as_bool))
}

fn is_no_with_error(fields: &Map<String, Value>) -> bool {
    answers(fields).contains(&Some(false)) && ERRORS.iter().any(|field| says(fields.get(*field)))
}

fn as_bool(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(is_so) => Some(*is_so),
        Value::String(word) if word.eq_ignore_ascii_case("false") => Some(false),
        Value::String(word) if word.eq_ignore_ascii_case("true") => Some(true),
        Value::String(_) | Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// By a word for it, or by a status of HTTP with a reason beside it.
fn has_failed_status(fields: &Map<String, Value>) -> bool {
    const WORDS: [&str; 6] = ["error", "errored", "failed", "failure", "fail", "fatal"];
    let is_word = |field: &&str| {
        let word = fields.get(*field).and_then(Value::as_str);
        word.is_some_and(|word| WORDS.iter().any(|one| word.trim().eq_ignore_ascii_case(one)))
    };
    let number = |field: &str| match fields.get(field)? {
        Value::Number(number) => number.as_u64(),
        Value::String(digits) => digits.parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    let is_refusal = |field: &&str| number(field).is_some_and(|status| (400..600).contains(&status));
    let has_reason = ["message", "error", "detail", "title", "reason"].iter().any(|field| says(fields.get(*field)));
    ["status", "state", "result", "outcome"].iter().any(is_word)
        || (has_reason && ["status", "statusCode", "status_code", "code"].iter().any(is_refusal))
}

/// It is an error, and nothing else.
fn is_error(fields: &Map<String, Value>) -> bool {
    let is_beside = |field: &str| {
        ERRORS.contains(&field) || BESIDE.contains(&field) || (field == "id" && fields.contains_key("jsonrpc"))
    };
    ERRORS.iter().any(|field| says(fields.get(*field)))
        && fields.iter().all(|(field, value)| is_beside(field) || !super::values(value).any(|value| !value.is_null()))
}

/// Whether a field says something.
fn says(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::Bool(true)) => true,
        Some(Value::String(text)) => !matches!(text.trim().to_ascii_lowercase().as_str(), "" | "none" | "null"),
        Some(Value::Number(number)) => number.as_f64() != Some(0.0),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(fields)) => !fields.is_empty(),
    }
}

/// As servers write errors as text.
fn begins_as_error(text: &str) -> bool {
    static BEGINNINGS: OnceLock<Option<Regex>> = OnceLock::new();
    const PATTERN: &str = concat!(
        r"(?i)^[\s❌✗✖⚠🚫\u{fe0f}*#`]*(?:",
        r"(?P<before>(?:[\w.]+ ){0,3})\w*(?:error|exception)\b(?: \(?\d{3}\)?)?\**\s*:\**\s*(?P<rest>\S[^\n]*)",
        r"|error \(?(?:\d{3}\b|executing|calling|while|sending|creating|updating|deleting|posting|in |from |occurred|during|processing|performing|invoking|running)",
        r"|(?:error|errored|failed|failure|fail|fatal)[.!]?\s*$",
        r"|(?:failed to|unable to|could not|couldn't) \w",
        r"|(?:request|operation|call|tool execution|execution|send|sending) failed\b",
        r"|traceback \(most recent call last\)",
        r"|(?:internal server error|bad gateway|service unavailable|gateway timeout|unauthorized|forbidden|access denied|permission denied|rate limit exceeded|rate limited)\b",
        r"|(?:http|status)(?: error| status| code)?[ :]+[45]\d\d\b",
        r")",
    );
    let beginnings = BEGINNINGS.get_or_init(|| Regex::new(PATTERN).ok()).as_ref();
    let Some(found) = beginnings.and_then(|beginnings| beginnings.captures(text)) else { return false };
    let part = |name| {
        found.name(name).map_or_else(String::new, |part| part.as_str().trim().trim_end_matches('.').to_lowercase())
    };
    let is_none = matches!(part("rest").as_str(), "none" | "null" | "no" | "0" | "-");
    !is_none && !part("before").split(' ').any(|word| matches!(word.trim_end_matches('.'), "no" | "without"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_says_that_it_failed_is_no_success() {
        let failures = [
            json!({"success": false, "message": "no"}),
            json!({"success": "false", "reason": "x"}),
            json!({"success": false, "failures": 3}),
            json!({"ok": false}),
            json!({"status": "error", "message": "quota exceeded"}),
            json!({"status": "FAILED", "id": "pi_1"}),
            json!({"error": "bad"}),
            json!({"error": {"code": 402, "message": "card declined"}}),
            json!({"error": true, "message": "x"}),
            json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "x"}}),
            json!({"errors": [{"message": "x"}], "data": null}),
            json!({"errors": [{"message": "x"}], "data": {"createIssue": null}}),
            json!({"message": "Validation Failed", "errors": [{"field": "title"}], "documentation_url": "x", "status": "422"}),
            json!({"message": "Not Found", "status": 404}),
            json!({"statusCode": 503, "message": "later"}),
            json!("Error: no such channel"),
            json!({"result": "failed"}),
            json!({"state": "failure", "id": 7}),
        ];
        for failure in failures {
            let wrapped = [json!({"result": failure}), json!({"result": failure.to_string()})];
            for said in [&failure, &wrapped[0], &wrapped[1]] {
                assert!(say_failed(Some(said), ""), "{said}");
            }
        }
        let texts = [
            "Error: 500 Internal Server Error",
            "error: quota exceeded",
            "❌ Error: not sent",
            "**Error**: not sent",
            "ValueError: no such address",
            "API error: 429",
            "Slack API Error: channel_not_found",
            "Error executing tool send_email: timed out",
            "Error 500",
            "failed",
            "Error (403): forbidden",
            "Failed to send message: no such user",
            "Unable to create the issue",
            "Could not post: not in channel",
            "Request failed with status code 422",
            "Traceback (most recent call last):\n  File",
            "Internal Server Error",
            "HTTP 502: Bad Gateway",
            "Status: 401 Unauthorized",
            "  Permission denied",
        ];
        for text in texts {
            assert!(say_failed(None, text), "{text}");
            assert!(say_failed(Some(&json!({"result": text})), text), "{text}");
        }
    }

    /// What stays inside is judged by a plain no with its error alone, and whatever is judged so there is a failure outside as well.
    #[test]
    fn a_no_that_names_its_error_is_one_wherever_it_is_read() {
        let named = [
            json!({"ok": false, "error": "channel_not_found"}),
            json!({"success": false, "errors": [{"message": "x"}]}),
            json!({"success": "false", "error_message": "x"}),
            json!({"ok": false, "errorCode": 7}),
            json!({"ok": true, "success": false, "error": "x"}),
        ];
        for result in named {
            let wrapped = [json!({"result": result}), json!({"result": result.to_string()}), json!(result.to_string())];
            for said in [&result, &wrapped[0], &wrapped[1], &wrapped[2]] {
                assert!(names_error(Some(said)) && say_failed(Some(said), ""), "{said}");
            }
        }
        let others = [
            json!({"ok": false}),
            json!({"ok": false, "error": ""}),
            json!({"ok": false, "errors": []}),
            json!({"ok": false, "error": null}),
            json!({"ok": true, "error": "x"}),
            json!({"error": "x"}),
            json!({"status": "error", "error": "x"}),
            json!("Error: x"),
        ];
        assert!(others.iter().all(|result| !names_error(Some(result))) && !names_error(None));
    }

    #[test]
    fn what_speaks_of_errors_is_none() {
        let results = [
            json!({"ok": true, "error": "none"}),
            json!({"success": true, "error": "a warning"}),
            json!({"error": null, "data": {}}),
            json!({"error": "", "id": 7}),
            json!({"errors": []}),
            json!({"errors": 0, "status": "sent"}),
            json!({"error": false, "errors": {}}),
            json!({"success": true, "status": "error"}),
            json!({"error_count": 0, "sent": 3}),
            json!({"error": "in the log", "lines": 3}),
            json!({"errors": ["one address was left out"], "data": {"id": 7}}),
            json!({"status": "failed_over", "id": 1}),
            json!({"status": "sent", "message": "no error"}),
            json!({"code": 200, "message": "done"}),
            json!({"code": 404}),
            json!({"id": 404, "message": "sent"}),
            json!({"isError": false}),
            json!([{"ok": false, "error": "x"}]),
            json!(null),
            json!(false),
            json!("sent"),
        ];
        for result in results {
            let wrapped = [json!({"result": result}), json!({"result": result.to_string()})];
            for said in [&result, &wrapped[0], &wrapped[1]] {
                assert!(!say_failed(Some(said), ""), "{said}");
            }
        }
        let texts = [
            "",
            "Sent. No error.",
            "Message sent: \"Error: the build is red\"",
            "Errors: 0",
            "Error: none",
            "No error: it was sent",
            "Created issue \"Failed to start\" (#7)",
            "error-tracking was enabled",
            "Failed: 0, passed: 12",
            "Failover done",
            "status: 200 OK",
            "HTTP 201",
            "The e-mail could not be opened by anybody else",
            "Forbiddance policy stored",
        ];
        for text in texts {
            assert!(!say_failed(None, text), "{text}");
            assert!(!say_failed(Some(&json!({"result": text})), text), "{text}");
        }
    }
}
