//! What a reply means: the one place in which an outcome is classified.
//!
//! | reply | meaning |
//! |---|---|
//! | an answer of a composite tool | what its one result says; without one, what the whole answer says |
//! | a tool result | succeeded |
//! | a result that is none: no object, or one without the list `content` that every revision requires, and without `structuredContent` beside it | unknown; of a read, failed, reported |
//! | `isError: true`, or an envelope with `successful: false`; of an effect, one with `ok` or `success: false` and an error | failed, reported; it may have happened unless a policy says otherwise |
//! | the same in other words (`words`), of an effect outside: it says at its top that it failed, or is an error, or begins as errors do | the same |
//! | either of these without `isError`, where the policy says that only that counts (`only_is_error`) | succeeded |
//! | the same with `_meta["dev.universal-agent/changed-files"]`, where the policy says that errors are without effect | failed, definite: nothing was sent, because a file is not what the call was decided about |
//! | `isError` that is neither true nor false | unknown: it says neither that it happened nor that it did not |
//! | a refusal by a tool in this process, before it began | failed, definite |
//! | JSON-RPC −32601 | failed, definite |
//! | JSON-RPC −32602 | failed, definite for calls that may be repeated; else reported |
//! | JSON-RPC −32020 and −32022 of revision 2026-07-28 with HTTP 400 | that status: the request was refused before anybody began with it |
//! | any other JSON-RPC error | unknown, also −32021 with HTTP 400: a tool may find in the middle of its work that its client cannot be asked |
//! | HTTP 400, 401, 403, 404, 405, 413, 415 | failed, definite |
//! | HTTP 429, and what says that the session of MCP is over (404 in one), for a call that may simply be made again, and where the policy says that errors are without effect | failed, definite; another attempt, in another session, may be let in |
//! | the same for any other call | unknown: it says that the request was turned away unread, and proves nothing |
//! | HTTP 404 or 405 with a page, for a call with an effect | unknown: no server of tools answers so. A proxy does, which shows a page of its own to a request that it has passed on and had no answer to |
//! | any other HTTP status | unknown (408 and 409 may mean done, 502 to 504 come from a proxy that may have handed the request on) |
//! | a person's statement, or what a probe found | succeeded |
//!
//! Who says that a request was turned away unread (404 in a session, 429) may not be who got it: a load balancer repeats a request whose server
//! crashed in the middle of it, and the next one knows no such session. Where the policy says that errors of the tool are without effect, a call that
//! may not simply be made again is sent once more after it, at most [`MOST_BELIEVED`] times; then that one is in doubt as well.

use std::time::Duration;

use serde_json::Value;
use ua_core::{
    CallPolicy, CallStatus, OnUnknown, PossibleEffect, RawReply, Settlement, SideEffectClass, ToolContent,
    span_in_words, unreadable_result,
};
use ua_store::CallRecord;

mod words;

/// How often one call that may not simply be made again, and whose errors are without effect as its policy says, is sent once more because the other
/// side says that it turned it away unread.
pub(crate) const MOST_BELIEVED: usize = 2;

/// The error code of a call that was refused because a file that it sends had changed since it was looked at. Another attempt looks at it anew.
const FILE_CHANGED: &str = "file_changed";

/// Under which a refusal names the files that had changed.
const CHANGED_FILES: &str = "dev.universal-agent/changed-files";

/// The error code of a call that its tool, a part of this program, refused before it began.
const NOT_BEGUN: &str = "not_begun";

/// The error code of a call that may have been made, although its server says that it turned it away unread: its detail is our sentence about that,
/// and not what came with a status.
const REJECTED_UNREAD: &str = "rejected_unread";

/// The same where its policy believes that, and its server says it once more.
const REJECTED_AGAIN: &str = "rejected_again";

/// What came with an HTTP status when nothing did.
const NOTHING_SAID: &str = "its server said nothing about it";

/// The error code of a call whose session was over.
const SESSION_OVER: &str = "session_over";

/// The error code of a call whose result says neither that it happened nor that it did not.
const UNCLEAR_RESULT: &str = "unclear_result";

/// The most of a refusal's body that stands in a sentence.
const MAX_QUOTED: usize = 200;

/// The most text of one result that a model is given; the receipt keeps all of it.
const MAX_TEXT: usize = 200_000;

/// The most of a failure's words that is kept with the call; the receipt keeps all of them.
const MAX_DETAIL: usize = 2_000;

/// Says what `raw` means for a call with this policy. Total: every reply means something.
pub fn interpret(raw: &RawReply, policy: &CallPolicy) -> Settlement {
    match raw {
        RawReply::ToolResult { result } => interpret_result(result, policy),
        RawReply::RpcError { code: -32601, message } => {
            failed(CallStatus::FailedDefinite, "method_not_found", message, None)
        }
        RawReply::RpcError { code: -32602, message } => {
            if matches!(policy.on_unknown, OnUnknown::Redo) {
                failed(CallStatus::FailedDefinite, "invalid_params", message, None)
            } else {
                failed(CallStatus::FailedReported, "invalid_params", message, Some(possible_effect(policy, message)))
            }
        }
        RawReply::RpcError { code, message } => failed(CallStatus::Unknown, &format!("rpc_{code}"), message, None),
        RawReply::HttpStatus { status: status @ (404 | 405), body, .. } if policy.class.has_effect() && is_page(body) => {
            failed(CallStatus::Unknown, &format!("http_{status}"), body.trim_start(), None)
        }
        RawReply::HttpStatus { status, body, of_session, .. } => {
            let said = of_status(*status, body, *of_session, raw.retry_after());
            let is_cleared = || possible_effect(policy, body.trim()) == PossibleEffect::None;
            if !raw.turns_away() || policy.may_simply_be_repeated() || is_cleared() {
                return said;
            }
            let why = "its server says that it rejected it unread, which does not prove that it has no effect";
            in_doubt(REJECTED_UNREAD, why, raw, &said)
        }
        RawReply::Refused { why } => Settlement {
            content: Some(ToolContent {
                text: shortened(&format!("Not run: {why}"), MAX_TEXT).into(),
                is_error: true,
            }),
            ..failed(CallStatus::FailedDefinite, NOT_BEGUN, why, None)
        },
        RawReply::Statement { by, proof } => Settlement {
            status: CallStatus::Succeeded,
            content: Some(ToolContent {
                text: match proof {
                    Some(proof) => {
                        format!("{by} confirmed that this call happened; reference: {proof}. Its answer is not known.")
                            .into()
                    }
                    None => format!("{by} confirmed that this call happened. Its answer is not known.").into(),
                },
                is_error: false,
            }),
            external_correlation_id: proof.clone(),
            possible_effect: None,
            error_code: None,
            error_detail: None,
            charge: None,
        },
        RawReply::Found { tool, id, item, by } => Settlement {
            status: CallStatus::Succeeded,
            content: Some(ToolContent {
                text: shortened(&format!(
                    "This call happened: its answer was lost, but `{tool}` was asked afterwards and found it{}{}. What was found: {item}",
                    id.as_ref().map_or_else(String::new, |id| format!(" ({id})")),
                    by.as_ref().map_or_else(String::new, |by| format!(" {by}")),
                ), MAX_TEXT).into(),
                is_error: false,
            }),
            external_correlation_id: id.clone(),
            possible_effect: None,
            error_code: None,
            error_detail: None,
            charge: None,
        },
    }
}

/// The same for an attempt of a call of which `earlier` ones were answered and did nothing: what was believed often enough is no proof any more.
pub(crate) fn interpret_again(raw: &RawReply, policy: &CallPolicy, earlier: usize) -> Settlement {
    let settlement = interpret(raw, policy);
    let is_believed = raw.turns_away() && settlement.status == CallStatus::FailedDefinite;
    if !is_believed || policy.may_simply_be_repeated() || earlier < MOST_BELIEVED {
        return settlement;
    }
    let why = format!(
        "its server rejected it again after {earlier} failed attempts, which no longer proves that it has no effect"
    );
    in_doubt(REJECTED_AGAIN, &why, raw, &settlement)
}

/// What it means that a request was turned away unread, where that is not believed: `why`, with what was said.
fn in_doubt(code: &str, why: &str, raw: &RawReply, said: &Settlement) -> Settlement {
    let status = match raw {
        RawReply::HttpStatus { status, of_session: false, .. } => format!("HTTP status {status}: "),
        RawReply::HttpStatus { .. }
        | RawReply::ToolResult { .. }
        | RawReply::RpcError { .. }
        | RawReply::Refused { .. }
        | RawReply::Statement { .. }
        | RawReply::Found { .. } => String::new(),
    };
    let said = said.error_detail.as_deref().unwrap_or_default();
    let said: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_QUOTED).collect();
    failed(CallStatus::Unknown, code, &format!("{why} ({status}{})", said.trim()), None)
}

/// What an HTTP status means, with what came beside it, as far as it is believed.
fn of_status(status: u16, body: &str, of_session: bool, retry_after: Option<Duration>) -> Settlement {
    if of_session {
        let said = if body.trim().is_empty() { String::new() } else { format!(": {body}") };
        let detail = format!("its session is over (HTTP status {status}){said}");
        return failed(CallStatus::FailedDefinite, SESSION_OVER, &detail, None);
    }
    let definite = matches!(status, 400 | 401 | 403 | 404 | 405 | 413 | 415 | 429);
    let means = if definite { CallStatus::FailedDefinite } else { CallStatus::Unknown };
    let said = body.trim();
    let hint = match status {
        401 | 403 => Some(HEADERS_HINT),
        301 | 302 | 303 | 307 | 308 => Some(REDIRECT_HINT),
        _ => None,
    };
    let detail = match (said.is_empty(), hint) {
        // The status is the code's to say.
        (true, None) => NOTHING_SAID.to_owned(),
        (true, Some(hint)) => hint.to_owned(),
        (false, None) => said.to_owned(),
        (false, Some(hint)) => format!("{said} ({hint})"),
    };
    // What it asks for may be longer than anybody waits here; whoever is told of the failure can come back then.
    let detail = match retry_after.filter(|span| !span.is_zero()) {
        Some(span) => format!("{detail} (it asks to wait {} before the next call)", span_in_words(span)),
        None => detail,
    };
    failed(means, &format!("http_{status}"), &detail, None)
}

/// Whether the last that a call's server said is that it turned it away unread.
pub(crate) fn was_turned_away(call: &CallRecord) -> bool {
    matches!(call.error_code.as_deref(), Some(SESSION_OVER | REJECTED_UNREAD | REJECTED_AGAIN | "http_429"))
}

/// What to do when a tool server does not let the caller in; the model cannot, so it is told whom to tell.
const HEADERS_HINT: &str = "the tool server refused the credentials; a person has to correct its `headers` in the MCP configuration, or to log in there";

/// The same when it has moved.
const REDIRECT_HINT: &str = "the tool server redirects elsewhere, which is not followed: a person has to write the final address into the MCP configuration";

fn failed(status: CallStatus, code: &str, detail: &str, possible_effect: Option<PossibleEffect>) -> Settlement {
    let text = format!("The tool call failed ({code}): {detail}");
    Settlement {
        status,
        content: Some(ToolContent { text: shortened(&text, MAX_TEXT).into(), is_error: true }),
        external_correlation_id: None,
        possible_effect,
        error_code: Some(code.to_owned()),
        error_detail: Some(shortened(detail, MAX_DETAIL)),
        charge: None,
    }
}

/// The meaning of what is no result: who sent it says neither that the call happened nor that it did not. A read that was answered so would be
/// answered so again, and the model is told.
fn no_result(why: &str, result: &Value, policy: &CallPolicy) -> Settlement {
    let said = format!("its answer cannot be read: {why} ({})", shortened(&result.to_string(), MAX_QUOTED));
    if policy.class.has_effect() {
        return failed(CallStatus::Unknown, UNCLEAR_RESULT, &said, None);
    }
    failed(CallStatus::FailedReported, UNCLEAR_RESULT, &said, Some(PossibleEffect::None))
}

fn interpret_result(result: &Value, policy: &CallPolicy) -> Settlement {
    if let Some(why) = unreadable_result(result) {
        return no_result(why, result, policy);
    }
    let whole_text = result_text(result);
    let whole = result.get("structuredContent").cloned().or_else(|| serde_json::from_str(&whole_text).ok());
    let own = policy.via.as_ref().zip(whole.as_ref()).and_then(|(via, whole)| via.answer(whole)).cloned();
    // Some write the field as their own language does.
    let is_error = match result.get("isError").or_else(|| result.get("is_error")) {
        Some(Value::Bool(is_error)) => *is_error,
        // What is not said is said by no word.
        None | Some(Value::Null) => false,
        Some(other) => {
            let said = format!(
                "it says `isError: {}`, which is neither true nor false",
                shortened(&other.to_string(), MAX_QUOTED)
            );
            return failed(CallStatus::Unknown, UNCLEAR_RESULT, &said, None);
        }
    };
    // Beside a text that says less (`3 results`) a model reads what it is about.
    let whole_text = match result.get("structuredContent") {
        Some(structured) if !is_error && !says(&whole_text, structured) => format!("{whole_text}\n\n{structured}"),
        Some(_) | None => whole_text,
    };
    let text = own.as_ref().map_or(whole_text, |own| own.as_str().map_or_else(|| own.to_string(), str::to_owned));
    let is_action = own.is_some();
    let structured = own.or(whole);
    let envelope_failed = structured.as_ref().is_some_and(|envelope| says_failed(envelope, is_action));
    let reads_as_failed = !policy.only_is_error
        && match policy.class {
            SideEffectClass::External => words::say_failed(structured.as_ref(), &text),
            // What a program prints may be an error of something else.
            SideEffectClass::Local | SideEffectClass::Memory => words::names_error(structured.as_ref()),
            // So may what a read finds.
            SideEffectClass::ReadOnly => false,
        };
    if is_error || envelope_failed || reads_as_failed {
        let effect = possible_effect(policy, &text);
        let names_changed = result.get("_meta").and_then(|meta| meta.get(CHANGED_FILES)).is_some_and(Value::is_array);
        // Whose errors say nothing about its effect proves nothing by this one either.
        if is_error && names_changed && effect == PossibleEffect::None {
            return failed(CallStatus::FailedDefinite, FILE_CHANGED, &text, None);
        }
        return Settlement {
            status: CallStatus::FailedReported,
            content: Some(ToolContent { text: shortened(&text, MAX_TEXT).into(), is_error: true }),
            external_correlation_id: None,
            possible_effect: Some(effect),
            error_code: Some("tool_error".to_owned()),
            error_detail: Some(first_line(&text)),
            charge: None,
        };
    }
    Settlement {
        status: CallStatus::Succeeded,
        content: Some(ToolContent { text: shortened(&text, MAX_TEXT).into(), is_error: false }),
        external_correlation_id: structured.as_ref().and_then(correlation_id),
        possible_effect: None,
        error_code: None,
        error_detail: None,
        charge: None,
    }
}

/// Whether an envelope reports a failure. The result of an action may do that without saying `successful`: by its error alone.
fn says_failed(envelope: &Value, is_action: bool) -> bool {
    match envelope.get("successful") {
        Some(successful) => *successful == Value::Bool(false),
        None => is_action && envelope.get("error").and_then(Value::as_str).is_some_and(|error| !error.is_empty()),
    }
}

/// Reads and calls that a policy clears had no effect; every other reported failure may have had one.
fn possible_effect(policy: &CallPolicy, text: &str) -> PossibleEffect {
    let cleared = policy
        .errors_without_effect
        .iter()
        .any(|pattern| regex::Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text)));
    if cleared || policy.class == SideEffectClass::ReadOnly { PossibleEffect::None } else { PossibleEffect::Maybe }
}

/// The text of a result: its text blocks, with a line for each block that is not text.
pub(crate) fn result_text(result: &Value) -> String {
    // A result may be structured only.
    let structured = result.get("structuredContent").is_some();
    let blocks = result.get("content").and_then(Value::as_array).filter(|blocks| !(structured && blocks.is_empty()));
    let Some(blocks) = blocks else {
        let first_revision = || {
            let said = result.get("toolResult")?;
            Some(said.as_str().map_or_else(|| said.to_string(), str::to_owned))
        };
        let structured = result.get("structuredContent").map(Value::to_string);
        // Of one that says that it failed.
        let plain = || result.get("content").and_then(Value::as_str).map(str::to_owned);
        return structured.or_else(first_revision).or_else(plain).unwrap_or_default();
    };
    let parts: Vec<String> = blocks
        .iter()
        .map(|block| match (block.get("type").and_then(Value::as_str), block.get("text").and_then(Value::as_str)) {
            (Some("text"), Some(text)) => text.to_owned(),
            (Some("resource"), _) => block
                .pointer("/resource/text")
                .and_then(Value::as_str)
                .map_or_else(|| described("resource", block.get("resource").unwrap_or(block)), str::to_owned),
            (Some(kind), _) => described(kind, block),
            (None, _) => "[content of no type]".to_owned(),
        })
        .collect();
    parts.join("\n\n")
}

/// Whether a text says what a structured content holds: it is the same JSON, or every value of it stands there.
fn says(text: &str, structured: &Value) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|said| said == *structured)
        || values(structured).take(MOST_COMPARED).all(|value| match value {
            Value::String(value) => {
                // As it is, and as it stands in a text of JSON.
                let escaped = Value::from(value.as_str()).to_string();
                text.contains(value.trim()) || text.contains(&escaped[1..escaped.len() - 1])
            }
            Value::Number(_) | Value::Bool(_) => text.contains(&value.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => true,
        })
}

/// How many values of a structured content are looked for in its text. One that has these has the others.
const MOST_COMPARED: usize = 300;

/// Every value in a value that holds no other one.
fn values(value: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match value {
        Value::Array(inner) => Box::new(inner.iter().flat_map(values)),
        Value::Object(inner) => Box::new(inner.values().flat_map(values)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Box::new(std::iter::once(value)),
    }
}

/// What a part of an answer is that is no text: its kind, name, address, form and size, as far as they are told. The receipt has it whole.
fn described(kind: &str, part: &Value) -> String {
    let told = ["name", "uri", "mimeType", "description"]
        .into_iter()
        .filter_map(|field| part.get(field).and_then(Value::as_str));
    let data = part.get("data").or_else(|| part.get("blob")).and_then(Value::as_str);
    let size = data.map(|data| format!("{} bytes", data.len() / 4 * 3));
    let told: Vec<String> = told.map(|text| shortened(text, 300)).chain(size).collect();
    if told.is_empty() { format!("[{kind} content]") } else { format!("[{kind}: {}]", told.join(", ")) }
}

/// The other side's name for what happened, under the names that servers use for it.
fn correlation_id(structured: &Value) -> Option<String> {
    const NAMES: [&str; 7] = ["message_id", "messageId", "external_id", "id", "url", "object_url", "html_url"];
    let inner = structured.get("data").filter(|data| data.is_object()).unwrap_or(structured);
    let inner = inner.get("response_data").filter(|data| data.is_object()).unwrap_or(inner);
    NAMES.iter().find_map(|name| match inner.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    })
}

/// Whether another attempt of a call that failed definitely may end otherwise: one that never left may, one that was refused for what
/// it is (its form, its credentials, its place) will be refused again.
pub(crate) fn another_attempt_may_help(error_code: Option<&str>) -> bool {
    const FINAL: [&str; 10] = [
        "http_400",
        "http_401",
        "http_403",
        "http_404",
        "http_405",
        "http_413",
        "http_415",
        "method_not_found",
        "invalid_params",
        NOT_BEGUN,
    ];
    error_code.is_none_or(|code| !FINAL.contains(&code))
}

/// Whether the last that was said of a call is that its arguments are refused, or the call as it is: the same again brings the same.
pub(crate) fn is_refused_as_it_is(call: &CallRecord) -> bool {
    matches!(call.error_code.as_deref(), Some(NOT_BEGUN | "invalid_params"))
}

/// Whether a body is a page for people.
fn is_page(body: &str) -> bool {
    body.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}').starts_with('<')
}

/// The first line that says something, with the next one where it only announces that: the reason is what a person is told.
fn first_line(text: &str) -> String {
    let mut lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    match lines.next().filter(|_| first.ends_with(':')) {
        Some(reason) => shortened(&format!("{first} {}", reason.trim_start()), MAX_DETAIL),
        None => shortened(first, MAX_DETAIL),
    }
}

/// Cuts text at a character boundary and says so.
fn shortened(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut end = limit;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}\n[cut: {} of {} bytes shown]", &text[..end], end, text.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What is announced is the reason.
    #[test]
    fn the_first_line_of_an_error_has_its_reason() {
        for (text, first) in [
            ("not found\nlook elsewhere", "not found"),
            (
                "no page could be fetched:\nhttp://10.0.0.1/: refused\nmore",
                "no page could be fetched: http://10.0.0.1/: refused",
            ),
            ("\n\n  why:  \n", "  why:"),
            ("", ""),
        ] {
            assert_eq!(first_line(text), first, "{text:?}");
        }
    }

    fn policy(on_unknown: OnUnknown) -> CallPolicy {
        CallPolicy { on_unknown, ..CallPolicy::unclassified() }
    }

    /// What services answer, and servers hand on as a result like any other: it counted as done.
    #[test]
    fn an_effect_that_a_service_refused_in_its_own_envelope_failed() {
        let refusals = [
            json!({"ok": false, "error": "channel_not_found"}),
            json!({"success": false, "error": {"code": 402, "message": "card declined"}}),
            json!({"success": false, "errors": ["no such project"]}),
        ];
        let no_refusals = [
            json!({"ok": true, "error": "none"}),
            json!({"error": "in the log", "lines": 3}),
            json!([{"ok": false, "error": "x"}]),
        ];
        let means = |envelope: &Value, class: SideEffectClass| {
            let policy = CallPolicy { class, ..policy(OnUnknown::Hold) };
            let text = json!({"content": [{"type": "text", "text": envelope.to_string()}]});
            let structured = json!({"content": [], "structuredContent": envelope});
            let both = [text, structured].map(|result| interpret(&RawReply::ToolResult { result }, &policy));
            assert_eq!(both[0].status, both[1].status, "{envelope}");
            let [settled, _] = both;
            settled
        };
        for envelope in &refusals {
            let settled = means(envelope, SideEffectClass::External);
            assert_eq!(settled.status, CallStatus::FailedReported, "{envelope}");
            assert_eq!(settled.possible_effect, Some(PossibleEffect::Maybe), "it proves nothing: {envelope}");
            assert!(settled.content.unwrap().is_error);
            assert_eq!(
                means(envelope, SideEffectClass::ReadOnly).status,
                CallStatus::Succeeded,
                "that is what was found"
            );
        }
        for envelope in &no_refusals {
            assert_eq!(means(envelope, SideEffectClass::External).status, CallStatus::Succeeded, "{envelope}");
        }
        // What a program on this machine printed may speak of something else.
        for envelope in [json!({"ok": false, "error": null}), json!({"status": "error", "message": "in the log"})] {
            assert_eq!(means(&envelope, SideEffectClass::External).status, CallStatus::FailedReported, "{envelope}");
            assert_eq!(means(&envelope, SideEffectClass::Local).status, CallStatus::Succeeded, "{envelope}");
        }
        // A policy that knows the tool better overrules all of it, and never what its server says by `isError`.
        for class in [SideEffectClass::External, SideEffectClass::Local, SideEffectClass::Memory] {
            let plain = CallPolicy { class, only_is_error: true, ..policy(OnUnknown::Hold) };
            let said = [json!({"ok": false, "error": "x"}), json!({"status": "failed", "id": 7}), json!("Error: x")];
            for envelope in said.iter().chain(&refusals) {
                let of = |result: Value| interpret(&RawReply::ToolResult { result }, &plain).status;
                let text = envelope.as_str().map_or_else(|| envelope.to_string(), str::to_owned);
                let content = json!([{"type": "text", "text": text}]);
                assert_eq!(of(json!({"content": content})), CallStatus::Succeeded, "{envelope}");
                assert_eq!(of(json!({"content": content, "isError": true})), CallStatus::FailedReported, "{envelope}");
            }
        }
        let spelt = |said: Value| RawReply::ToolResult { result: json!({"content": [], "is_error": said}) };
        let external = CallPolicy { class: SideEffectClass::External, ..policy(OnUnknown::Hold) };
        assert_eq!(interpret(&spelt(json!(true)), &external).status, CallStatus::FailedReported);
        assert_eq!(interpret(&spelt(json!(false)), &external).status, CallStatus::Succeeded);
        assert_eq!(interpret(&spelt(json!("yes")), &external).status, CallStatus::Unknown);
    }

    /// Whoever reads it, a model or a person, has nothing else to go by.
    #[test]
    fn a_refusal_over_http_is_told_with_what_it_says_or_with_its_status() {
        let told = |status, body: &str| {
            let settled = interpret(&RawReply::http(status, body), &policy(OnUnknown::Redo));
            (settled.error_detail.unwrap(), settled.content.unwrap().text.as_str().to_owned())
        };
        for status in [204, 302, 400, 401, 403, 409, 429, 500, 502] {
            for body in ["", " \n"] {
                let (detail, text) = told(status, body);
                assert!(detail.len() > 20 && text.contains(&status.to_string()), "{status}: {detail:?} {text:?}");
                assert!(!detail.contains(&status.to_string()), "the status is the code's to say: {detail:?}");
            }
            let (detail, text) = told(status, "boom ");
            assert!(detail.starts_with("boom") && text.contains("boom"), "{status}: {detail:?}");
            assert!(detail == "boom" || detail.starts_with("boom ("), "two sentences are told apart: {detail:?}");
        }
        assert_eq!(told(502, "").0, NOTHING_SAID);
        for (body, said) in [("", NOTHING_SAID), ("busy", "busy")] {
            let raw = |retry_after| RawReply::HttpStatus {
                status: 429,
                body: body.to_owned(),
                of_session: false,
                retry_after,
            };
            let detail = |raw| interpret(&raw, &policy(OnUnknown::Redo)).error_detail.unwrap_or_default();
            assert_eq!(detail(raw(Some(900))), format!("{said} (it asks to wait 15 min before the next call)"));
            assert_eq!((detail(raw(Some(0))), detail(raw(None))), (said.to_owned(), said.to_owned()));
        }
        assert!(told(302, "").0.contains("final address") && told(403, "no").0.contains("`headers`"));
    }

    #[test]
    fn every_kind_of_reply_has_its_meaning() {
        use CallStatus as S;
        let rpc = |code| RawReply::RpcError { code, message: "m".into() };
        let http = |status| RawReply::http(status, "");
        let ok = RawReply::ToolResult { result: json!({"content": [{"type": "text", "text": "hi"}]}) };
        let err =
            RawReply::ToolResult { result: json!({"isError": true, "content": [{"type": "text", "text": "no"}]}) };
        let envelope = RawReply::ToolResult {
            result: json!({"content": [{"type": "text", "text": "{\"successful\": false, \"error\": \"x\"}"}]}),
        };
        let odd = RawReply::ToolResult { result: json!({"something": "else"}) };
        let text = |text: &str| RawReply::ToolResult { result: json!({"content": [{"type": "text", "text": text}]}) };
        let structured = RawReply::ToolResult {
            result: json!({"content": [], "structuredContent": {"successful": false, "error": "x"}}),
        };
        let empty = RawReply::ToolResult { result: json!({"content": []}) };
        let not_an_object = RawReply::ToolResult { result: json!(null) };
        let said = RawReply::Statement { by: "ada".into(), proof: None };
        let found = RawReply::Found { tool: "t".into(), id: None, item: json!({}), by: None };
        let table = [
            (ok, S::Succeeded),
            (empty, S::Succeeded),
            (odd, S::Unknown),
            (not_an_object, S::Unknown),
            (text("{\"successful\": true}"), S::Succeeded),
            (text("{\"error\": null, \"data\": {}}"), S::Succeeded),
            (text(""), S::Succeeded),
            (text("the word successful: false in prose"), S::Succeeded),
            (said, S::Succeeded),
            (found, S::Succeeded),
            (err, S::FailedReported),
            (envelope, S::FailedReported),
            (structured, S::FailedReported),
            (RawReply::Refused { why: "no such order".into() }, S::FailedDefinite),
            (rpc(-32601), S::FailedDefinite),
            (rpc(-32600), S::Unknown),
            (rpc(-32603), S::Unknown),
            (rpc(-32700), S::Unknown),
            (rpc(-32000), S::Unknown),
            (rpc(1), S::Unknown),
        ];
        for (raw, expected) in table {
            // What was meant to happen in doubt changes nothing about whether there is a doubt.
            for on_unknown in OnUnknown::ALL {
                assert_eq!(interpret(&raw, &policy(*on_unknown)).status, expected, "{raw:?} {on_unknown}");
            }
        }
        // A call that may be repeated is, with what it may have changed; for any other the model has to see the error.
        for on_unknown in OnUnknown::ALL {
            let expected = if *on_unknown == OnUnknown::Redo { S::FailedDefinite } else { S::FailedReported };
            assert_eq!(interpret(&rpc(-32602), &policy(*on_unknown)).status, expected, "{on_unknown}");
        }
        for status in 100..600 {
            let definite = [400, 401, 403, 404, 405, 413, 415, 429].contains(&status);
            let expected = if definite { S::FailedDefinite } else { S::Unknown };
            assert_eq!(interpret(&http(status), &policy(OnUnknown::Redo)).status, expected, "{status}");
            let expected = if status == 429 { S::Unknown } else { expected };
            assert_eq!(interpret(&http(status), &policy(OnUnknown::Hold)).status, expected, "{status}");
        }
    }

    /// What a proxy shows in the place of an answer says nothing of a request that it may have passed on, in a session or not.
    #[test]
    fn a_page_is_no_word_of_a_tool_server() {
        let page = "\r\n<html><head><title>405 Not Allowed</title></head></html>";
        for class in SideEffectClass::ALL {
            let policy = CallPolicy { class: *class, ..policy(OnUnknown::Hold) };
            for of_session in [false, true] {
                for status in [404, 405] {
                    for body in
                        [page, "<!DOCTYPE html>", "\u{feff}<html>", "no such session", "", r#"{"jsonrpc":"2.0"}"#]
                    {
                        let of_session = of_session && status == 404;
                        let raw = RawReply::HttpStatus { status, body: body.to_owned(), of_session, retry_after: None };
                        let is_no_proof = (body.contains('<') || of_session) && class.has_effect();
                        let expected = if is_no_proof { CallStatus::Unknown } else { CallStatus::FailedDefinite };
                        assert_eq!(interpret(&raw, &policy).status, expected, "{class} {status} {of_session} {body}");
                        assert_eq!(interpret_again(&raw, &policy, 1).status, expected, "{class} {status} {body}");
                    }
                }
            }
        }
    }

    fn session_is_over() -> RawReply {
        RawReply::HttpStatus { status: 404, body: "who?".to_owned(), of_session: true, retry_after: None }
    }

    /// Who turns a request away unread may not be who got it: it proves nothing of a call that may not simply be made again. Where a policy says that
    /// the tool's errors are without effect it is believed twice, and of what may simply be made again for ever.
    #[test]
    fn what_is_turned_away_proves_nothing_of_what_may_not_be_made_again() {
        use CallStatus as S;
        for raw in [session_is_over(), RawReply::http(429, "who?"), RawReply::http(429, "")] {
            for class in SideEffectClass::ALL {
                for on_unknown in OnUnknown::ALL {
                    for is_cleared in [false, true] {
                        let errors_without_effect = if is_cleared { vec![".*".to_owned()] } else { Vec::new() };
                        let policy = CallPolicy { class: *class, errors_without_effect, ..policy(*on_unknown) };
                        for earlier in 0..6 {
                            let read = interpret_again(&raw, &policy, earlier);
                            let may_be_repeated = *class == SideEffectClass::ReadOnly
                                || matches!(on_unknown, OnUnknown::Redo | OnUnknown::RedoKeyed);
                            let is_believed = may_be_repeated || (is_cleared && earlier < 2);
                            let expected = if is_believed { S::FailedDefinite } else { S::Unknown };
                            let case = format!("{raw:?} {class} {on_unknown} {is_cleared} {earlier}");
                            assert_eq!(read.status, expected, "{case}");
                            assert!(another_attempt_may_help(read.error_code.as_deref()), "{case}");
                            let again = matches!(read.error_code.as_deref(), Some(REJECTED_AGAIN));
                            assert_eq!(again, read.status == S::Unknown && is_cleared, "{case}");
                        }
                    }
                }
            }
        }
        // What is refused for what it is will be refused again, and did nothing however often.
        assert_eq!(interpret_again(&RawReply::http(404, ""), &policy(OnUnknown::Hold), 5).status, S::FailedDefinite);
    }

    /// Whoever is asked reads what the server said, and that it says so does not prove it.
    #[test]
    fn what_is_turned_away_is_told_in_the_words_of_its_server() {
        let cleared =
            |errors: &str| CallPolicy { errors_without_effect: vec![errors.to_owned()], ..policy(OnUnknown::Probe) };
        let busy = RawReply::http(429, "slow\ndown");
        let told = |raw: &RawReply, policy: &CallPolicy, earlier| {
            let read = interpret_again(raw, policy, earlier);
            (read.error_code.unwrap(), read.error_detail.unwrap())
        };
        let (code, detail) = told(&busy, &policy(OnUnknown::Hold), 0);
        let unread = "its server says that it rejected it unread, which does not prove";
        assert_eq!(code, REJECTED_UNREAD);
        assert!(detail.starts_with(unread) && detail.ends_with("(HTTP status 429: slow down)"), "{detail}");
        let (_, detail) = told(&session_is_over(), &policy(OnUnknown::Probe), 0);
        assert!(detail.starts_with(unread), "{detail}");
        assert!(detail.ends_with("(its session is over (HTTP status 404): who?)"), "{detail}");
        // An error that a policy clears by its words is one that says these.
        assert_eq!(told(&busy, &cleared("^slow"), 1).0, "http_429");
        assert_eq!(told(&busy, &cleared("^quota"), 1).0, REJECTED_UNREAD);
        let (code, detail) = told(&busy, &cleared("^slow"), 2);
        assert_eq!(code, REJECTED_AGAIN);
        assert!(detail.contains("after 2 failed attempts") && detail.ends_with("429: slow down)"), "{detail}");
    }

    #[test]
    fn only_a_policy_or_a_read_makes_a_reported_failure_harmless() {
        use SideEffectClass as C;
        let error = RawReply::ToolResult {
            result: json!({"isError": true, "content": [{"type": "text", "text": "quota exceeded"}]}),
        };
        let refused = RawReply::RpcError { code: -32602, message: "quota exceeded".into() };
        let patterns = |patterns: &[&str]| patterns.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>();
        let (none, maybe) = (Some(PossibleEffect::None), Some(PossibleEffect::Maybe));
        let table = [
            (C::External, patterns(&[]), maybe),
            (C::External, patterns(&["^quota"]), none),
            (C::External, patterns(&["denied", ".*"]), none),
            (C::External, patterns(&["denied"]), maybe),
            (C::Local, patterns(&[]), maybe),
            (C::Memory, patterns(&[]), maybe),
            (C::ReadOnly, patterns(&[]), none),
        ];
        for (class, errors_without_effect, expected) in table {
            let policy = CallPolicy { class, errors_without_effect, ..policy(OnUnknown::Hold) };
            for raw in [&error, &refused] {
                assert_eq!(interpret(raw, &policy).possible_effect, expected, "{class} {raw:?}");
            }
        }
        // A lost outcome and a definite failure say nothing of the kind: their status does.
        let lost = RawReply::RpcError { code: -32603, message: String::new() };
        assert_eq!(interpret(&lost, &policy(OnUnknown::Hold)).possible_effect, None);
    }

    /// Whoever answers a call with nothing has not said that it was made: a model would go on as if it had been.
    #[test]
    fn what_is_no_result_is_no_success() {
        let read = |result: &Value, class| {
            let policy = CallPolicy { class, ..policy(OnUnknown::Hold) };
            let settled = interpret(&RawReply::ToolResult { result: result.clone() }, &policy);
            (settled.status, settled.possible_effect, settled.error_code)
        };
        let none = [
            json!(null),
            json!(true),
            json!("sent"),
            json!([{"type": "text", "text": "sent"}]),
            json!({}),
            json!({"resultType": "complete"}),
            json!({"content": null}),
            json!({"content": "sent"}),
            json!({"content": {}}),
            json!({"isError": false}),
            json!({"structuredContent": null, "id": 1}),
        ];
        for result in none {
            assert!(unreadable_result(&result).is_some(), "{result}");
            for class in SideEffectClass::ALL {
                let expected = if class.has_effect() {
                    (CallStatus::Unknown, None)
                } else {
                    (CallStatus::FailedReported, Some(PossibleEffect::None))
                };
                let (status, effect, code) = read(&result, *class);
                assert_eq!(
                    (status, effect, code.as_deref()),
                    (expected.0, expected.1, Some(UNCLEAR_RESULT)),
                    "{result}"
                );
            }
        }
        let external = SideEffectClass::External;
        for (result, expected) in [
            (json!({"content": []}), CallStatus::Succeeded),
            (json!({"structuredContent": {"id": 1}}), CallStatus::Succeeded),
            (json!({"content": null, "structuredContent": []}), CallStatus::Succeeded),
            (json!({"toolResult": "sent"}), CallStatus::Succeeded),
            (json!({"isError": true}), CallStatus::FailedReported),
            (json!({"is_error": true, "content": null}), CallStatus::FailedReported),
        ] {
            assert_eq!((read(&result, external).0, unreadable_result(&result)), (expected, None), "{result}");
        }
        let of_the_first_revision = RawReply::ToolResult { result: json!({"toolResult": "sent"}) };
        let told = interpret(&of_the_first_revision, &policy(OnUnknown::Hold)).content.unwrap();
        assert_eq!(told.text.to_string(), "sent");
    }

    #[test]
    fn a_result_that_does_not_say_plainly_whether_it_failed_is_unknown() {
        for (said, status) in [
            (json!("true"), CallStatus::Unknown),
            (json!("false"), CallStatus::Unknown),
            (json!(1), CallStatus::Unknown),
            (json!({}), CallStatus::Unknown),
            (json!(null), CallStatus::Succeeded),
            (json!(false), CallStatus::Succeeded),
            (json!(true), CallStatus::FailedReported),
        ] {
            let content = json!([{"type": "text", "text": "x"}]);
            let raw = RawReply::ToolResult { result: json!({"isError": said, "content": content}) };
            assert_eq!(interpret(&raw, &policy(OnUnknown::Hold)).status, status, "{said}");
        }
    }

    #[test]
    fn a_reported_failure_may_have_happened_unless_a_policy_clears_it() {
        let raw = RawReply::ToolResult {
            result: json!({"isError": true, "content": [{"type": "text", "text": "recipient refused"}]}),
        };
        assert_eq!(interpret(&raw, &policy(OnUnknown::Hold)).possible_effect, Some(PossibleEffect::Maybe));
        let cleared = CallPolicy { errors_without_effect: vec!["refused".into()], ..policy(OnUnknown::Hold) };
        assert_eq!(interpret(&raw, &cleared).possible_effect, Some(PossibleEffect::None));
    }

    #[test]
    fn the_other_sides_id_is_found() {
        let raw = RawReply::ToolResult {
            result: json!({"content": [], "structuredContent": {"data": {"id": "m-1"}, "successful": true}}),
        };
        assert_eq!(interpret(&raw, &CallPolicy::unclassified()).external_correlation_id.as_deref(), Some("m-1"));
    }

    fn action() -> CallPolicy {
        let layout = ua_core::Composite {
            list: "tools".into(),
            name: "tool_slug".into(),
            arguments: "arguments".into(),
            results: Some("data.results".into()),
            response: Some("response".into()),
            upper_case: true,
        };
        let tool = ua_core::ToolName::qualified(ua_core::ToolNamespace::Composio, "composio", "MULTI");
        let arguments = json!({"tools": [{"tool_slug": "GMAIL_SEND_EMAIL"}]});
        let mut apart = layout.take_apart(&tool, arguments.as_object().unwrap()).unwrap();
        CallPolicy { via: Some(Box::new(apart.actions.remove(0).via)), ..policy(OnUnknown::Hold) }
    }

    /// What a model reads holds what the tool answered, once: in the text, or beside it.
    #[test]
    fn structured_content_is_read_unless_the_text_says_it() {
        let rows =
            json!({"rows": [{"id": 17, "name": "Zoë \"Z\" Ünal"}, {"id": 18, "name": "two\nlines", "ok": true}]});
        let read = |text: &str, structured: &Value| {
            let result = json!({"content": [{"type": "text", "text": text}], "structuredContent": structured});
            interpret(&RawReply::ToolResult { result }, &policy(OnUnknown::Hold)).content.unwrap().text.to_string()
        };
        assert_eq!(read("2 results", &rows), format!("2 results\n\n{rows}"));
        let table = "17: Zoë \"Z\" Ünal\n18: two\nlines (true)";
        for whole in [&rows.to_string(), &serde_json::to_string_pretty(&rows).unwrap(), table] {
            assert_eq!(read(whole, &rows), *whole);
        }
        for wrapped in ["plain words", "", "two\nlines"] {
            assert_eq!(read(wrapped, &json!({"result": wrapped})), wrapped);
        }
        // Whatever one of its values is, a text without it does not stand for it.
        for field in ["/rows/0/id", "/rows/0/name", "/rows/1/name"] {
            let mut other = rows.clone();
            *other.pointer_mut(field).unwrap() = json!("only here");
            assert!(read(table, &other).ends_with(&other.to_string()), "{field}");
        }
        let failed = json!({"isError": true, "content": [{"type": "text", "text": "no"}], "structuredContent": rows});
        let failed = interpret(&RawReply::ToolResult { result: failed }, &policy(OnUnknown::Hold));
        assert_eq!(failed.content.unwrap().text.to_string(), "no");
    }

    /// The envelope of a composite tool comes as one text block (and sometimes structured), with the action's own inside.
    #[test]
    fn the_answer_of_an_action_is_read_out_of_the_envelope() {
        use CallStatus as S;
        let sent = json!({"successful": true, "error": null, "data": {"id": "m-1", "threadId": "t"}});
        let older = json!({"successful": true, "data": {"response_data": {"id": "m-2"}}});
        let failed = json!({"successful": false, "error": "Invalid recipient", "data": {}});
        let result = |response: &Value| json!({"successful": true, "data": {"results": [{"tool_slug": "X", "response": response}]}});
        let partly = |response: &Value| json!({"successful": false, "error": "1 of 1 failed", "data": {"results": [{"response": response}]}});
        let table = [
            (result(&sent), S::Succeeded, Some("m-1"), "threadId"),
            (result(&older), S::Succeeded, Some("m-2"), "response_data"),
            (result(&failed), S::FailedReported, None, "Invalid recipient"),
            (partly(&failed), S::FailedReported, None, "Invalid recipient"),
            // What the action says of itself wins over what is said about the batch.
            (partly(&sent), S::Succeeded, Some("m-1"), "threadId"),
            (
                json!({"data": {"results": [{"error": "Tool not found", "index": 0}]}}),
                S::FailedReported,
                None,
                "Tool not found",
            ),
            (json!({"successful": false, "error": "no session", "data": {}}), S::FailedReported, None, "no session"),
            (json!({"successful": true, "data": {"results": []}}), S::Succeeded, None, "results"),
        ];
        for (envelope, status, id, word) in table {
            let text = json!({"content": [{"type": "text", "text": envelope.to_string()}]});
            let structured = json!({"content": [], "structuredContent": envelope});
            for result in [text, structured] {
                let settlement = interpret(&RawReply::ToolResult { result }, &action());
                assert_eq!(
                    (settlement.status, settlement.external_correlation_id.as_deref()),
                    (status, id),
                    "{envelope}"
                );
                let shown = settlement.content.unwrap();
                assert!(
                    shown.text.contains(word) && shown.is_error == (status != S::Succeeded),
                    "{envelope}: {shown:?}"
                );
            }
        }
    }

    /// A server of others may say it too; only whose errors are known to be without effect proves anything by it.
    #[test]
    fn a_refusal_because_a_file_changed_is_definite_where_errors_are_without_effect() {
        let changed = |is_error: bool| RawReply::ToolResult {
            result: json!({
                "isError": is_error, "content": [{"type": "text", "text": "a.txt has changed"}],
                "_meta": {CHANGED_FILES: ["a.txt"]},
            }),
        };
        let vouched = CallPolicy { errors_without_effect: vec![".*".to_owned()], ..policy(OnUnknown::RedoKeyed) };
        let refused = interpret(&changed(true), &vouched);
        assert_eq!((refused.status, refused.error_code.as_deref()), (CallStatus::FailedDefinite, Some(FILE_CHANGED)));
        assert!(another_attempt_may_help(refused.error_code.as_deref()));
        assert_eq!(interpret(&changed(true), &policy(OnUnknown::RedoKeyed)).status, CallStatus::FailedReported);
        assert_eq!(interpret(&changed(false), &vouched).status, CallStatus::Succeeded);
    }

    #[test]
    fn only_what_another_attempt_may_change_is_tried_again() {
        for (code, may) in [
            (None, true),
            (Some("not_sent"), true),
            (Some("http_429"), true),
            (Some("http_400"), false),
            (Some("http_401"), false),
            (Some("http_403"), false),
            (Some("http_404"), false),
            (Some("http_405"), false),
            (Some("http_413"), false),
            (Some("http_415"), false),
            (Some("method_not_found"), false),
            (Some("invalid_params"), false),
        ] {
            assert_eq!(another_attempt_may_help(code), may, "{code:?}");
        }
    }
}
