//! From an error answer to the error a caller sees.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::{Value, json};

use crate::error::{LlmError, Status};
use crate::http::lasting::{Lasting, quoted_status};
use crate::http::{too_long, waiting};

/// Whether an error says that a filter kept back what was said, or what was asked: another reply may be another.
pub(crate) fn is_withheld(kind: &str, message: &str) -> bool {
    const KINDS: [&str; 5] = [
        "content_filter",
        "content_policy_violation",
        "data_inspection_failed",
        "guardrail_intervened",
        "invalid_prompt",
    ];
    const WORDS: [&str; 10] = [
        "been flagged",
        "content exists risk",
        "content filter",
        "content management policy",
        "content policy",
        "guardrail",
        "inappropriate content",
        "prohibited content",
        "safety system",
        "was flagged",
    ];
    let said = message.to_ascii_lowercase().replace('_', " ");
    KINDS.contains(&kind) || WORDS.iter().any(|words| said.contains(words))
}

/// The event that an error in the place of a reply would have been in a stream, if it says that a filter kept the reply back.
pub(crate) fn withheld(status: u16, body: &str) -> Option<Vec<String>> {
    let body = &*alone(body);
    let error = error_in(body).filter(|_| matches!(status, 400 | 403 | 422))?;
    let kind = [&error["code"], &error["type"]].into_iter().find_map(Value::as_str).unwrap_or_default();
    let message = message_in(body);
    is_withheld(kind, &message).then(|| {
        let error = json!({"type": kind, "code": kind, "message": message});
        vec![json!({"type": "error", "error": error}).to_string()]
    })
}

/// Sorts an HTTP status other than 200. `body` is what the provider said with it.
pub(crate) fn by_status(status: u16, retry_after: Option<Duration>, body: &str, model: &str) -> LlmError {
    sorted(Status::Http(status), retry_after, body, model)
}

fn sorted(came: Status, retry_after: Option<Duration>, body: &str, model: &str) -> LlmError {
    let (status, body) = (came.number(), &*alone(body));
    let message = message_in(body);
    if matches!(status, 400..=403 | 429) && says_unpaid(body, &message) {
        // Not a matter of time: nothing is answered until somebody pays.
        return LlmError::Unpaid { status: came, message };
    }
    if status == 413 || too_long::says_so(status, body, &message) || (status == 429 && too_long::never_fits(&message)) {
        return LlmError::TooLong { status: came, message };
    }
    if status == 429 && says_of_a_day(body, &message, retry_after) {
        // A matter of more time than a run waits.
        return LlmError::Unpaid { status: came, message: with_quota(message, body) };
    }
    if let Some(inner) = wrapped_in(status, &message) {
        return by_status_and_message(Status::Like(inner), retry_after, message, model);
    }
    // Whatever the status: no model has begun, and none will.
    match Lasting::behind(status, &message) {
        Some(Lasting::KeyBehind) => return LlmError::Unauthorized { status: Status::Like(401), message },
        Some(
            Lasting::NoTools
            | Lasting::Grammar
            | Lasting::Roles
            | Lasting::Template
            | Lasting::Memory
            | Lasting::NoRoute
            | Lasting::NoneTakesIt,
        ) => return LlmError::InvalidRequest { status: came, message },
        None => {}
    }
    if status == 404 && !is_about_model(&message, body, model) {
        return LlmError::NoEndpoint { status: came, message };
    }
    match status {
        400 if has_reason(body, &["API_KEY_INVALID", "invalid_api_key"]) => {
            LlmError::Unauthorized { status: came, message }
        }
        400 if says_no_such_model(body, &message) => LlmError::NotFound { model: model.to_owned(), message },
        400 if says_none_is_free(&message) => {
            LlmError::Overloaded { retry_after: retry_after.or_else(|| waiting::asked_in_words(&message)), message }
        }
        403 if is_page(body) => {
            LlmError::NotAReply { what: "an HTML page that forbids it (HTTP 403)".to_owned(), is_foreign: false }
        }
        403 if is_about_what_was_asked(body, &message) => LlmError::InvalidRequest { status: came, message },
        _ => by_status_and_message(came, retry_after, message, model),
    }
}

/// The same of an error that came without a status of its own: inside a stream, or in the place of a reply that came with a success.
pub(crate) fn like_status(status: u16, retry_after: Option<Duration>, body: &str, model: &str) -> LlmError {
    sorted(Status::Like(status), retry_after, body, model)
}

/// What an answer has under `error`; `None` where it is no object, whatever else it is: a text, a list, a page.
pub(crate) fn error_in(body: &str) -> Option<Value> {
    match serde_json::from_str::<Value>(&alone(body)).ok()? {
        Value::Object(mut answer) => Some(answer.remove("error").unwrap_or_default()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
    }
}

/// An answer by itself, where a server gives a list with one in it, as Gemini's door does.
fn alone(body: &str) -> Cow<'_, str> {
    match serde_json::from_str::<Value>(body) {
        Ok(Value::Array(answers)) if answers.len() == 1 && answers[0].is_object() => Cow::Owned(answers[0].to_string()),
        Ok(_) | Err(_) => Cow::Borrowed(body),
    }
}

/// Whether an error has one of these reasons or codes, wherever it stands.
fn has_reason(body: &str, reasons: &[&str]) -> bool {
    serde_json::from_str::<Value>(body).is_ok() && reasons.iter().any(|reason| body.contains(&format!("\"{reason}\"")))
}

/// Whether a refusal is one of the model's name.
fn says_no_such_model(body: &str, message: &str) -> bool {
    const WORDS: [&str; 6] = [
        "not a valid model",
        "invalid model name",
        "invalid model:",
        "model not exist",
        "no such model",
        "unknown model",
    ];
    let said = message.to_ascii_lowercase();
    has_reason(body, &["model_not_found"])
        || WORDS.iter().any(|words| said.contains(words))
        || (said.starts_with("the model ") && said.contains("does not exist"))
}

/// The status of a refusal that a router hands on as a failure of its own (`LiteLLM`, with status 500). What was wrong stays wrong.
fn wrapped_in(status: u16, message: &str) -> Option<u16> {
    if status != 500 {
        return None;
    }
    quoted_status(&message.to_ascii_lowercase()).filter(|inner| matches!(inner, 400..=404 | 422))
}

fn is_page(body: &str) -> bool {
    body.trim_start().starts_with('<')
}

/// Whether what is forbidden is what was asked, or from where, and not who asks: a country, what a filter found.
fn is_about_what_was_asked(body: &str, message: &str) -> bool {
    let said = message.to_ascii_lowercase();
    has_reason(body, &["unsupported_country_region_territory", "flagged_input"])
        || ["country", "flagged", "moderation"].iter().any(|word| said.contains(word))
}

/// What a refusal is where replies came from before, if it is none of the API that gave them: a page, whatever its status says (a server that shows
/// one to a POST while it is kept up says 405), or what knows nothing of the address. What is too long, too much at once or not signed in to a proxy
/// is that, page or not; and what comes with a 400 or 422, page or not, may be all that somebody says of a request that is too long.
pub(crate) fn stands_in(status: u16, body: &str, error: &LlmError) -> Option<LlmError> {
    let is_open = matches!(status, 400..=499) && !matches!(status, 400 | 401 | 407 | 408 | 413 | 422 | 425 | 429 | 431);
    if !is_open || matches!(error, LlmError::TooLong { .. }) {
        return None;
    }
    let what = if is_page(body) {
        "an HTML page in its place"
    } else if matches!(error, LlmError::NoEndpoint { .. }) {
        "an answer that knows nothing of this address"
    } else if is_of_an_api(body) || status == 403 {
        return None;
    } else {
        "something else in its place"
    };
    Some(LlmError::NotAReply { what: format!("{what} (HTTP {status})"), is_foreign: false })
}

/// Whether an answer is one of an API, and not a page of something in front of it.
fn is_of_an_api(body: &str) -> bool {
    serde_json::from_str::<Value>(&alone(body)).is_ok_and(|body| body.is_object())
}

/// Whether an API says of a 404 that it is the model which is not there. Another page, or an API that knows no such path, does not.
fn is_about_model(message: &str, body: &str, model: &str) -> bool {
    let is_json = serde_json::from_str::<Value>(body).is_ok_and(|body| body.is_object());
    let said = message.to_ascii_lowercase();
    let names_it = !model.is_empty() && said.contains(&model.to_ascii_lowercase());
    is_json && (names_it || ["model", "deployment", "no endpoints found"].iter().any(|word| said.contains(word)))
}

/// What an answer with status 200 is that is no stream of events.
///
/// An error of an API is none of these where it says which one it is ([`status_of_error`]).
pub(crate) fn not_a_stream(content_type: &str, body: &str) -> LlmError {
    const SHOWN: usize = 120;
    let content_type = content_type.split(';').next().unwrap_or_default().trim();
    let start = || body.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(SHOWN).collect::<String>();
    let named = if content_type.is_empty() { "no content type" } else { content_type };
    let body = &*alone(body);
    let trimmed = body.trim_start();
    let mut is_foreign = false;
    let what = match serde_json::from_str::<Value>(body) {
        Ok(read) if ["error", "detail"].iter().any(|field| read.get(field).is_some_and(|value| !value.is_null())) => {
            format!("an error in place of one: {}", message_in(body))
        }
        // Whoever wrote it has written, and may bill it.
        Ok(read) if ["choices", "content", "output", "usage"].iter().any(|field| read.get(field).is_some()) => {
            return LlmError::Protocol {
                why: "it looks like a whole reply as JSON and cannot be read as one".to_owned(),
            };
        }
        Ok(_) => {
            is_foreign = true;
            format!("JSON of something else: {}", start())
        }
        Err(_) if content_type.eq_ignore_ascii_case("text/html") || trimmed.starts_with('<') => {
            is_foreign = true;
            format!("an HTML page: {}", start())
        }
        Err(_) if trimmed.is_empty() => format!("an empty answer ({named})"),
        Err(_) => format!("something else ({named}): {}", start()),
    };
    LlmError::NotAReply { what, is_foreign }
}

/// The status that an error would have come with which came with a success, in the place of a reply: by the number or the name that it has, whoever
/// put it there, or by words that are those of a request which is too long. `None` of what is no error, or one that says nothing that is known.
pub(crate) fn status_of_error(body: &str) -> Option<u16> {
    let body = &*alone(body);
    let read: Value = serde_json::from_str(body).ok().filter(Value::is_object)?;
    let is_bare = [&read["type"], &read["object"]].iter().any(|word| **word == "error");
    let below = Some(&read["error"]).filter(|error| !error.is_null());
    let error = below.or(Some(&read).filter(|_| is_bare))?;
    let too_long = || too_long::says_so(500, body, &message_in(body)).then_some(400);
    status_of(&kind_of(error)).or_else(too_long)
}

/// What an error is called, of all that it is called: what is known comes first, and a number or a name that says more than its class.
pub(crate) fn kind_of(error: &Value) -> String {
    let told = [&error["code"], &error["type"], &error["status"]];
    let told = told.into_iter().filter_map(|told| match told {
        Value::Number(number) => Some(number.to_string()),
        Value::String(name) if !name.is_empty() && name != "error" => Some(name.clone()),
        Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => None,
    });
    let told: Vec<String> = told.collect();
    let is_known = |kind: &&String| too_long::is_code_of_too_long(kind) || status_of(kind).is_some();
    told.iter().find(is_known).or(told.first()).cloned().unwrap_or_default()
}

/// The status that goes with what an API calls an error, which may be the number itself. All wires share the names: gateways translate replies from
/// one to the other, and errors only half.
fn status_of(kind: &str) -> Option<u16> {
    if let Ok(status @ 400..=599) = kind.parse::<u16>() {
        return Some(status);
    }
    Some(match kind {
        "invalid_request_error" | "BadRequestError" | "INVALID_ARGUMENT" | "invalid_prompt" | "invalid_image" => 400,
        "authentication_error" | "AuthenticationError" | "UNAUTHENTICATED" | "invalid_api_key" => 401,
        "billing_error" | "insufficient_quota" => 402,
        "permission_error" | "PermissionDeniedError" | "PERMISSION_DENIED" => 403,
        "not_found_error" | "NotFoundError" | "NOT_FOUND" | "model_not_found" => 404,
        "request_too_large" => 413,
        "rate_limit_error"
        | "RateLimitError"
        | "RESOURCE_EXHAUSTED"
        | "rate_limit_exceeded"
        | "requests"
        | "tokens" => 429,
        "api_error" | "InternalServerError" | "INTERNAL" | "server_error" => 500,
        "ServiceUnavailableError" | "UNAVAILABLE" | "server_is_overloaded" | "slow_down" => 503,
        "timeout_error" | "DEADLINE_EXCEEDED" => 504,
        "overloaded_error" => 529,
        _ if is_of_the_request(kind) => 400,
        _ => return None,
    })
}

/// Whether what an API calls an error is one of what it was asked: `unsupported_parameter`, `missing_required_parameter`, `string_above_max_length`.
fn is_of_the_request(kind: &str) -> bool {
    // `invalid_response` is of what stands behind a gateway.
    let begins =
        ["invalid_", "unsupported_", "missing_required_", "unknown_parameter"].iter().any(|of| kind.starts_with(of));
    let bounds = ["_above_max_length", "_below_min_length", "_above_max_value", "_below_min_value"];
    (begins && !kind.starts_with("invalid_response")) || bounds.iter().any(|of| kind.ends_with(of))
}

/// Sorts an error inside a stream, by the number or the name that its server has given it: what it means is what it would mean in front of one.
pub(crate) fn reported(kind: &str, message: String, model: &str) -> LlmError {
    let body = json!({"error": {"code": kind, "message": message}}).to_string();
    let too_long = || too_long::says_so(500, &body, &message).then_some(400);
    let Some(status) = status_of(kind).or_else(too_long) else { return unsorted(kind, message) };
    let error = like_status(status, None, &body, model);
    // It is an answer of the API, so what is not there is the model. The stream had begun, and what it brought may be billed: that the same status in
    // front of one would be free says nothing here.
    if matches!(error, LlmError::NoEndpoint { .. }) {
        LlmError::NotFound { model: model.to_owned(), message }
    } else if matches!(error, LlmError::Server { .. }) {
        unsorted(kind, message)
    } else {
        error
    }
}

/// What the provider's advice makes of an error: `x-should-retry` says of this very answer whether asking again may help.
pub(crate) fn as_advised(
    error: LlmError,
    status: u16,
    retry_after: Option<Duration>,
    should_retry: Option<bool>,
) -> LlmError {
    let message = |mut error: LlmError| error.words_mut().map(std::mem::take).unwrap_or_default();
    match should_retry {
        Some(false) if error.may_retry() && !matches!(error, LlmError::SessionForgotten { .. }) => {
            LlmError::Hopeless { status, message: message(error) }
        }
        // With the same request nothing would be won.
        Some(true) if !error.may_retry() && status < 500 && !matches!(error, LlmError::TooLong { .. }) => {
            LlmError::Overloaded { retry_after, message: message(error) }
        }
        Some(_) | None => error,
    }
}

/// An error inside a stream whose kind says nothing that is known: it may pass. The kind is said where there is one.
fn unsorted(kind: &str, message: String) -> LlmError {
    let message = if kind.is_empty() { message } else { format!("{kind}: {message}") };
    LlmError::Server { status: None, retry_after: None, message }
}

/// The same as [`by_status`] for a status whose message has been read already.
fn by_status_and_message(status: Status, retry_after: Option<Duration>, message: String, model: &str) -> LlmError {
    match status.number() {
        402 => LlmError::Unpaid { status, message },
        401 | 403 => LlmError::Unauthorized { status, message },
        404 => LlmError::NotFound { model: model.to_owned(), message },
        429 => LlmError::RateLimited { retry_after, until_reset: None, message },
        // Too early: it was not begun.
        425 | 503 | 529 => LlmError::Overloaded { retry_after, message },
        // What it was passed on to failed, or whoever passed it on gave up.
        408 | 409 | 424 | 499 | 500..=599 => LlmError::Server { status: Some(status), retry_after, message },
        // Whatever stands in for the provider meanwhile (a page that says so, a sign-in) stands there for a while.
        number @ (302 | 303 | 307) => {
            LlmError::NotAReply { what: format!("a redirect to somewhere else (HTTP {number})"), is_foreign: false }
        }
        300..=399 => {
            LlmError::NoEndpoint { status, message: "it redirects elsewhere, which is not followed".to_owned() }
        }
        400..=499 => LlmError::InvalidRequest { status, message },
        // Whoever has nothing to say now.
        number @ 200..=299 => LlmError::NotAReply { what: format!("nothing (HTTP {number})"), is_foreign: false },
        _ => LlmError::NoEndpoint { status, message },
    }
}

/// Whether a router says of a request that none of the models behind it takes one now (`LiteLLM`, with status 400).
fn says_none_is_free(message: &str) -> bool {
    message.to_ascii_lowercase().contains("no deployments available")
}

/// Whether an API says that the account has no credit left, or may use no more of it. Anthropic says so as of a bad request (400).
fn says_unpaid(body: &str, message: &str) -> bool {
    const KINDS: [&str; 5] =
        ["insufficient_quota", "billing_error", "billing_not_active", "billing_hard_limit_reached", "budget_exceeded"];
    const WORDS: [&str; 6] = [
        "credit balance is too low",
        "insufficient balance",
        "insufficient credit",
        "specified api usage limits",
        "budget has been exceeded",
        "exceededbudget",
    ];
    let said = message.to_ascii_lowercase();
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let is_kind = |word: &&Value| word.as_str().is_some_and(|word| KINDS.contains(&word));
    [&body["error"]["code"], &body["error"]["type"]].iter().any(is_kind)
        || (body.is_object() && WORDS.iter().any(|words| said.contains(words)))
}

/// Whether a limit that is reached is one of a day, or one of nothing at all: it does not come back while a run waits. Google names the quota, with
/// a wait of seconds that is none of it (`RetryInfo`), or names none and asks for no wait; others say it in words. Who asks to wait for a limit of a
/// day (Groq, `OpenAI`) gives back some of it by then, and is waited for as it asks.
fn says_of_a_day(body: &str, message: &str, retry_after: Option<Duration>) -> bool {
    const NAMED: [&str; 3] = ["PerDay", "per_day", "free-models-per-day"];
    const WORDS: [&str; 3] = ["per day", "daily limit", "daily quota"];
    const OF_A_MINUTE: [&str; 4] = ["PerMinute", "per_minute", "per minute", "PerSecond"];
    if error_in(body).is_none() {
        return false;
    }
    let (said, has) = (message.to_ascii_lowercase(), |words: &[&str]| words.iter().any(|word| body.contains(word)));
    let is_nothing = said
        .match_indices("limit: 0")
        .any(|(at, zero)| !said[at + zero.len()..].starts_with(|c: char| c.is_ascii_digit() || c == '.'));
    if has(&NAMED) || (is_nothing && said.contains("quota")) {
        return true;
    }
    let asks = retry_after.or_else(|| waiting::asked_in_body(429, body)).or_else(|| waiting::asked_in_words(message));
    let is_unnamed = body.contains("RESOURCE_EXHAUSTED") && said.contains("exceeded your current quota");
    asks.is_none() && !has(&OF_A_MINUTE) && (is_unnamed || WORDS.iter().any(|words| said.contains(words)))
}

/// A message with the name of the quota of a day that was reached, where it stands beside it alone.
fn with_quota(message: String, body: &str) -> String {
    let error = error_in(body).unwrap_or_default();
    let details = error["details"].as_array().into_iter().flatten();
    let mut named = details
        .flat_map(|detail| detail["violations"].as_array().into_iter().flatten())
        .filter_map(|violation| violation["quotaId"].as_str().or(violation["quotaMetric"].as_str()));
    match named.find(|name| name.to_ascii_lowercase().replace('_', "").contains("perday")) {
        Some(name) if !message.contains(name) => format!("{message} (quota `{name}`)"),
        Some(_) | None => message,
    }
}

/// What the provider behind a router says, where the router hands it on beside an error of its own (OpenRouter: `metadata.raw`, with its name).
pub(crate) fn behind_a_router(error: &Value) -> Option<String> {
    let metadata = &error["metadata"];
    let raw = metadata["raw"].as_str().map(str::trim).filter(|raw| !raw.is_empty())?;
    let said = message_in(raw);
    let router = error["message"].as_str().unwrap_or("an error of its provider");
    let name = metadata["provider_name"].as_str().map_or_else(String::new, |name| format!(", {name}"));
    Some(format!("{said} ({router}{name})"))
}

/// What is said of a refusal without a word.
const NO_REASON: &str = "no explanation was given";
/// What is said of a refusal with a page instead of the API's words.
const A_PAGE: &str = "an HTML page instead of a reason";

/// Whether a refusal gives no reason that anybody could correct: it says nothing, repeats its status, or is the page of something in front.
pub(crate) fn names_no_reason(message: &str) -> bool {
    let said = message.trim().trim_end_matches('.').to_ascii_lowercase();
    let is_bare =
        ["", "{}", "[]", "null", "bad request", "400 bad request", "error", "invalid request", "unprocessable entity"]
            .contains(&said.as_str());
    is_bare || message.starts_with(NO_REASON) || message.starts_with(A_PAGE)
}

/// The words of a page without its tags.
fn text_of(page: &str) -> String {
    let mut text = String::new();
    let mut is_tag = false;
    for c in page.chars() {
        match c {
            '<' => is_tag = true,
            '>' if is_tag => {
                is_tag = false;
                text.push(' ');
            }
            c if !is_tag => text.push(c),
            _ => {}
        }
    }
    let mut words: Vec<&str> = text.split_whitespace().collect();
    // The title is the heading as well.
    let half = words.len() / 2;
    if let Some(again) = (1..=half).rev().find(|count| words[..*count] == words[*count..*count * 2]) {
        words.drain(..again);
    }
    words.join(" ")
}

/// A message with the parameter that it is about, where the error says that beside it alone. What was said so far is no parameter.
fn with_parameter(message: &str, read: &Value) -> String {
    let named = [&read["error"]["param"], &read["param"]].into_iter().find_map(Value::as_str);
    // A word like `stream` may stand there as English; in quotation marks, or of two parts, it is a name.
    let is_said = |name: &str| {
        let mut words = message.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.')));
        let quoted = ['\'', '"', '`'].iter().any(|mark| message.contains(&format!("{mark}{name}{mark}")));
        quoted || (name.contains(['_', '.']) && words.any(|word| word.trim_end_matches('.') == name))
    };
    let is_one = |name: &&str| {
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && !["messages", "input", "prompt", "model", "null", "none"].iter().any(|other| name.starts_with(other))
            && !is_said(name)
    };
    named.filter(is_one).map_or_else(|| message.to_owned(), |name| format!("{message} (`{name}`)"))
}

/// The provider's message; the start of the body when it has another form, as a proxy's page has.
fn message_in(body: &str) -> String {
    const SHOWN: usize = 300;
    let read: Value = serde_json::from_str(body).unwrap_or_default();
    if let Some(message) = behind_a_router(&read["error"]) {
        return message;
    }
    let places = [&read["error"]["message"], &read["error"], &read["message"], &read["detail"]];
    match (places.iter().find_map(|place| place.as_str()), read["request_id"].as_str()) {
        (Some(message), Some(id)) => format!("{message} (request {id})"),
        (Some(message), None) => with_parameter(message, &read),
        (None, _) if body.trim().is_empty() => NO_REASON.to_owned(),
        (None, _) if is_page(body) => format!("{A_PAGE}: {}", text_of(body).chars().take(SHOWN).collect::<String>()),
        (None, _) => {
            let words: Vec<&str> = body.split_whitespace().collect();
            words.join(" ").chars().take(SHOWN).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_without_a_reason_is_final_and_its_hint_says_where_to_look() {
        let page = "<html><head><title>400 Bad Request</title></head><body><center><h1>400 Bad Request</h1></center>\
                    <hr><center>nginx</center></body></html>";
        for (body, message) in [
            ("", "no explanation was given"),
            (page, "an HTML page instead of a reason: 400 Bad Request nginx"),
            ("{}", "{}"),
            ("Bad Request", "Bad Request"),
        ] {
            let error = by_status(400, None, body, "m");
            assert!(matches!(&error, LlmError::InvalidRequest { message: said, .. } if said == message), "{error:?}");
            assert!(error.is_final() && !error.may_retry(), "{error}");
            let hint = error.hint("openai").unwrap();
            assert!(hint.contains("gives no reason") && hint.contains("OPENAI_BASE_URL"), "{hint}");
        }
        let named = by_status(400, None, r#"{"error":{"message":"temperature: too high"}}"#, "m");
        assert!(named.hint("openai").unwrap().starts_with("correct what the provider names"));
    }

    #[test]
    fn every_status_has_its_error() {
        let name = |status| match by_status(status, None, "", "m") {
            LlmError::Unauthorized { .. } => "unauthorized",
            LlmError::Unpaid { .. } => "unpaid",
            LlmError::NotFound { .. } => "not found",
            LlmError::RateLimited { .. } => "rate limited",
            LlmError::Overloaded { .. } => "overloaded",
            LlmError::Server { .. } => "server",
            LlmError::InvalidRequest { .. } => "invalid",
            LlmError::Protocol { .. } => "protocol",
            LlmError::SessionForgotten { .. } => "forgotten",
            LlmError::TooLong { .. } => "too long",
            LlmError::Hopeless { .. } => "hopeless",
            LlmError::Garbled { .. } => "garbled",
            LlmError::NoEndpoint { .. } => "no endpoint",
            LlmError::NotAReply { .. } => "no reply",
            LlmError::Setup { .. }
            | LlmError::NotRecorded { .. }
            | LlmError::Unreachable { .. }
            | LlmError::BadTool { .. }
            | LlmError::Unanswered { .. }
            | LlmError::Timeout { .. }
            | LlmError::Endless { .. }
            | LlmError::Cut { .. } => "no answer",
        };
        let cases = [
            (202, "no reply"),
            (204, "no reply"),
            (206, "no reply"),
            (301, "no endpoint"),
            (302, "no reply"),
            (307, "no reply"),
            (308, "no endpoint"),
            (400, "invalid"),
            (401, "unauthorized"),
            (402, "unpaid"),
            (403, "unauthorized"),
            (404, "no endpoint"),
            (408, "server"),
            (409, "server"),
            (413, "too long"),
            (422, "invalid"),
            (424, "server"),
            (425, "overloaded"),
            (429, "rate limited"),
            (499, "server"),
            (500, "server"),
            (503, "overloaded"),
            (504, "server"),
            (529, "overloaded"),
        ];
        for (status, expected) in cases {
            assert_eq!(name(status), expected, "HTTP {status}");
        }
    }

    #[test]
    fn a_router_without_a_free_model_is_waited_for() {
        let body = r#"{"error":{"message":"No deployments available for selected model, Try again in 5 seconds. Passed model=m"}}"#;
        let error = by_status(400, None, body, "m");
        assert!(error.may_retry() && error.retry_after() == Some(Duration::from_secs(5)), "{error}");
        assert_eq!(by_status(400, Some(Duration::from_secs(9)), body, "m").retry_after(), Some(Duration::from_secs(9)));
    }

    #[test]
    fn only_an_api_that_speaks_of_a_model_says_that_it_knows_none() {
        for body in [
            r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-x"}}"#,
            r#"{"error":{"message":"The model `gpt-x` does not exist","code":"model_not_found"}}"#,
            r#"{"object":"error","message":"qwen-x is not served here","code":404}"#,
            r#"{"error":{"code":"DeploymentNotFound","message":"The API deployment does not exist."}}"#,
        ] {
            assert!(matches!(by_status(404, None, body, "qwen-x"), LlmError::NotFound { .. }), "{body}");
        }
        for body in ["404 page not found", "<html>no such model page</html>", r#"{"detail":"Not Found"}"#, ""] {
            let error = by_status(404, None, body, "qwen-x");
            assert!(matches!(error, LlmError::NoEndpoint { .. }), "{body}: {error}");
            assert!(error.was_refused() && error.is_final() && error.hint("anthropic").unwrap().contains("base URL"));
        }
    }

    #[test]
    #[expect(clippy::wildcard_enum_match_arm, reason = "whatever else it is, the test fails")]
    fn errors_are_read_in_the_shapes_and_words_of_routers_and_geminis_door() {
        let kind = |status: u16, body: &str| match by_status(status, None, body, "m") {
            LlmError::Unauthorized { .. } => "credentials",
            LlmError::NotFound { .. } => "model",
            LlmError::InvalidRequest { .. } => "request",
            LlmError::Overloaded { .. } => "busy",
            LlmError::NotAReply { .. } => "no reply",
            LlmError::NoEndpoint { .. } => "address",
            other => panic!("{other:?}"),
        };
        for (status, body, wanted) in [
            (503, r#"[{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}]"#, "busy"),
            (404, r#"[{"error":{"code":404,"message":"models/m is not found for API version v1main"}}]"#, "model"),
            (
                400,
                r#"[{"error":{"code":400,"message":"API key not valid.","details":[{"reason":"API_KEY_INVALID"}]}}]"#,
                "credentials",
            ),
            (404, r#"{"error":{"code":404,"message":"No endpoints found that support tool use."}}"#, "request"),
            (400, r#"{"error":{"code":400,"message":"m is not a valid model ID"}}"#, "model"),
            (
                403,
                r#"{"error":{"code":403,"message":"Input was flagged","metadata":{"reasons":["violence"]}}}"#,
                "request",
            ),
            (403, r#"{"error":{"code":"unsupported_country_region_territory","message":"not supported"}}"#, "request"),
            (403, "<!DOCTYPE html><title>Just a moment...</title>", "no reply"),
            (403, r#"{"error":{"message":"Key limit exceeded"}}"#, "credentials"),
            (400, r#"{"error":{"code":400,"message":"bad temperature"}}"#, "request"),
            (404, "404 page not found", "address"),
        ] {
            assert_eq!(kind(status, body), wanted, "{status} {body}");
            assert!(!message_in(&alone(body)).starts_with(['[', '{']), "{body}");
        }
    }

    /// What no model has written is not charged, and it is called what it is.
    #[test]
    fn an_answer_that_is_no_stream_is_told_and_charged_by_what_it_is() {
        let page = "<!doctype html>\n<title>Sign in</title>";
        let proxied = r#"{"error":{"message":"no upstream"}}"#;
        for (content_type, body, says, is_free) in [
            ("text/html; charset=utf-8", page, "an HTML page: <!doctype html> <title>Sign in", true),
            ("", page, "an HTML page", true),
            ("application/json", "{\"status\": \"ok\"}", "JSON of something else: {\"status\": \"ok\"}", true),
            ("application/json", proxied, "an error in place of one: no upstream", true),
            ("text/plain", "Welcome", "something else (text/plain): Welcome", true),
            ("text/plain", " ", "an empty answer (text/plain)", true),
            ("application/json", r#"{"choices":[],"usage":{"prompt_tokens":9}}"#, "a whole reply as JSON", false),
        ] {
            let error = not_a_stream(content_type, body);
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!((error.left_us(), error.was_refused()), (true, is_free), "{error}");
            let is_foreign = says.starts_with("an HTML page") || says.starts_with("JSON of something else");
            assert_eq!(error.is_foreign(), is_foreign, "{error}");
        }
    }

    /// An error inside a stream, or in the place of a reply, is sorted as with the status that goes with it, which is not said to have come.
    #[test]
    fn a_status_that_goes_with_an_error_is_none_that_came() {
        for status in 400..600 {
            let body = json!({"error": {"code": status, "message": "it says no"}}).to_string();
            let (inside, came) = (like_status(status, None, &body, "m"), by_status(status, None, &body, "m"));
            assert_eq!(std::mem::discriminant(&inside), std::mem::discriminant(&came), "{status}");
            assert_eq!((inside.class(), inside.was_refused()), (came.class(), came.was_refused()), "{status}");
            let said = inside.to_string();
            assert!(!said.contains("HTTP") && said.contains("it says no"), "{status}: {said}");
        }
    }

    #[test]
    fn a_failure_without_a_reply_is_free_and_a_wait_that_was_given_up_is_not() {
        for (status, is_free) in
            [(408, false), (409, true), (500, true), (501, true), (502, false), (503, true), (504, false)]
        {
            assert_eq!(by_status(status, None, "", "m").was_refused(), is_free, "HTTP {status}");
        }
    }

    #[test]
    fn the_message_is_the_providers_or_the_start_of_the_page() {
        let api =
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"too long"},"request_id":"req_1"}"#;
        assert_eq!(message_in(api), "too long (request req_1)");
        // What it is about is often said beside the message alone.
        let about = |param: &str| {
            message_in(&json!({"error": {"message": "Not supported with include.", "param": param}}).to_string())
        };
        assert_eq!(about("text.format"), "Not supported with include. (`text.format`)");
        // As an English word it names nothing; in quotation marks it does.
        assert_eq!(about("include"), "Not supported with include. (`include`)");
        let quoted = json!({"error": {"message": "'include' is not supported", "param": "include"}});
        assert_eq!(message_in(&quoted.to_string()), "'include' is not supported");
        for param in ["messages[1].content", "model", "None", ""] {
            assert_eq!(about(param), "Not supported with include.", "{param}");
        }
        assert_eq!(message_in(" <html>bad gateway</html> "), "an HTML page instead of a reason: bad gateway");
        assert_eq!(message_in(""), "no explanation was given");
        let behind = |raw: &str| {
            let metadata = serde_json::json!({"raw": raw, "provider_name": "OpenAI"});
            let error = serde_json::json!({"code": 400, "message": "Provider returned error", "metadata": metadata});
            message_in(&serde_json::json!({ "error": error }).to_string())
        };
        for raw in [r#"{"error":{"message":"Invalid schema for function a"}}"#, "Invalid schema for function a"] {
            assert_eq!(behind(raw), "Invalid schema for function a (Provider returned error, OpenAI)");
        }
        assert_eq!(behind(" "), "Provider returned error");
        for other in [r#"{"error":"busy"}"#, r#"{"message":"busy","object":"error"}"#, r#"{"detail":"busy"}"#] {
            assert_eq!(message_in(other), "busy");
        }
    }

    #[test]
    fn an_account_without_credit_is_not_a_rate_limit() {
        let body = r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#;
        assert!(matches!(by_status(429, None, body, "m"), LlmError::Unpaid { status: Status::Http(429), .. }));
        let body = r#"{"error":{"message":"slow down","type":"requests","code":"rate_limit_exceeded"}}"#;
        assert!(matches!(by_status(429, None, body, "m"), LlmError::RateLimited { .. }));
    }

    #[test]
    fn an_account_that_cannot_pay_is_one_in_whatever_words_and_with_whatever_status() {
        let said = |kind: &str, message: &str| {
            serde_json::json!({"type": "error", "error": {"type": kind, "message": message}}).to_string()
        };
        for (status, kind, message) in [
            (400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API."),
            (
                400,
                "invalid_request_error",
                "You have reached your specified API usage limits. You will regain access on 1 May.",
            ),
            (400, "billing_not_active", "Your account is not active"),
            (402, "unknown", "Insufficient credits"),
            (402, "unknown", "whatever"),
            (402, "billing_error", "pay"),
            (403, "permission_error", "Your credit balance is too low to access the API."),
            (401, "insufficient_quota", "no"),
            (429, "unknown", "Insufficient balance"),
            (429, "insufficient_quota", "You exceeded your current quota"),
        ] {
            let error = by_status(status, None, &said(kind, message), "m");
            assert!(
                matches!(error, LlmError::Unpaid { status: its, .. } if its == Status::Http(status)),
                "{message}: {error}"
            );
        }
        // Words of a limit per minute, and a page.
        let other =
            by_status(429, None, &said("requests", "You exceeded your current quota, please check your plan"), "m");
        assert!(matches!(other, LlmError::RateLimited { .. }), "{other}");
        let page = by_status(400, None, "Insufficient credit", "m");
        assert!(matches!(page, LlmError::InvalidRequest { .. }), "{page}");
    }

    #[test]
    fn what_the_provider_advises_wins_over_the_status() {
        let advised = |status, should_retry| as_advised(by_status(status, None, "", "m"), status, None, should_retry);
        assert!(advised(500, None).may_retry() && !advised(400, None).may_retry());
        let hopeless = advised(500, Some(false));
        assert!(!hopeless.may_retry() && hopeless.was_refused() && advised(529, Some(false)).was_refused());
        assert!(advised(400, Some(true)).may_retry() && advised(400, Some(true)).was_refused());
    }

    #[test]
    fn what_never_passes_is_told_from_what_may() {
        let said = |message: &str, kind: &str| json!({"error": {"message": message, "type": kind}}).to_string();
        for (status, message, kind, wanted) in [
            (
                400,
                "litellm.BadRequestError: Invalid model name passed in model=foo. Call `/v1/models` to view available models",
                "",
                "model",
            ),
            (400, "Invalid model: foo", "", "model"),
            (400, "Model Not Exist", "", "model"),
            (400, "The model `foo` does not exist or you do not have access to it.", "", "model"),
            (400, "Budget has been exceeded! Current cost: 0.5, Max budget: 0.1", "budget_exceeded", "unpaid"),
            (429, "ExceededBudget: User=x over budget.", "", "unpaid"),
            (
                429,
                "Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 free model requests per day",
                "",
                "unpaid",
            ),
            (404, "No endpoints found that support tool use.", "", "request"),
            (400, "registry.ollama.ai/library/gemma:latest does not support tools", "", "request"),
            (500, "model requires more system memory (5.5 GiB) than is available (3.1 GiB)", "", "request"),
            (
                500,
                "litellm.InternalServerError: OpenAIException - Error code: 400 - {'error': {'message': 'no'}}",
                "",
                "request",
            ),
            (500, "litellm.APIError: Error code: 401 - no", "", "credentials"),
            (500, "litellm.APIError: Error code: 429 - slow down", "", "may pass"),
            (500, "Internal error", "", "may pass"),
            (404, "No endpoints found for foo.", "", "model"),
        ] {
            let error = by_status(status, None, &said(message, kind), "foo");
            let kinds = [
                ("model", matches!(error, LlmError::NotFound { .. })),
                ("unpaid", matches!(error, LlmError::Unpaid { .. })),
                ("request", matches!(error, LlmError::InvalidRequest { .. })),
                ("credentials", matches!(error, LlmError::Unauthorized { .. })),
                ("may pass", error.may_retry()),
            ];
            let is: Vec<&str> = kinds.into_iter().filter(|(_, is)| *is).map(|(kind, _)| kind).collect();
            assert_eq!((is.as_slice(), error.was_refused()), (&[wanted][..], true), "{status} {message}: {error:?}");
            let hint = error.hint("openai-chat").unwrap();
            assert_eq!(
                hint.contains("calls no tools"),
                Lasting::of(message) == Some(Lasting::NoTools),
                "{message}: {hint}"
            );
        }
    }

    /// The refusals of a quota as they were seen: those of a day, or of nothing at all, and beside them those that pass.
    #[test]
    fn a_quota_of_a_day_is_not_waited_for_and_one_of_a_minute_is() {
        const CURRENT: &str = "You exceeded your current quota, please check your plan and billing details.";
        let of_google = |message: &str, quotas: &[&str], retries: Option<&str>| {
            let violations: Vec<Value> = quotas.iter().map(|quota| json!({"quotaId": quota})).collect();
            let mut details = vec![json!({"@type": "type.googleapis.com/google.rpc.Help"})];
            if !violations.is_empty() {
                details.push(json!({"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": violations}));
            }
            details.extend(
                retries.map(|delay| json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay})),
            );
            json!({"error": {"code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": details}})
        };
        let said = |message: &str| json!({"error": {"message": message, "code": 429}});
        let (day, minute) = (
            "GenerateRequestsPerDayPerProjectPerModel-FreeTier",
            "GenerateRequestsPerMinutePerProjectPerModel-FreeTier",
        );
        let of_user = "Quota exceeded for quota metric 'Gemini 2.5 Pro Requests' and limit 'Gemini 2.5 Pro Requests per day per user per tier' of service \
                       'cloudcode-pa.googleapis.com'";
        let nothing = "You exceeded your current quota. * Quota exceeded for metric: generativelanguage.googleapis.com/generate_content_free_tier_requests, \
                       limit: 0, model: gemini-3.1-pro Please retry in 25.46s.";
        for (body, is_of_a_day) in [
            (of_google(CURRENT, &[day], Some("34s")), true),
            (json!([of_google(CURRENT, &[minute, day], Some("34s"))]), true),
            (of_google(CURRENT, &[day], None), true),
            // Nothing is named, and no wait is asked for.
            (of_google(CURRENT, &[], None), true),
            (of_google(of_user, &[], None), true),
            (of_google(nothing, &[], Some("25s")), true),
            (
                said(
                    "Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 free model requests per day",
                ),
                true,
            ),
            (said("Tokens per day limit exceeded - too many tokens processed."), true),
            (of_google(CURRENT, &[minute], Some("34s")), false),
            (of_google(CURRENT, &[minute], None), false),
            (of_google(CURRENT, &[], Some("34s")), false),
            (of_google(&format!("{CURRENT} Please retry in 20.04466179s."), &[], None), false),
            (of_google(&nothing.replace("limit: 0,", "limit: 0.5,"), &[], None), false),
            (of_google("Resource has been exhausted (e.g. check quota).", &[], None), false),
            (
                said(
                    "Rate limit reached for model `llama-3.3-70b-versatile` on tokens per day (TPD): Limit 100000, Used 97050, Requested 3619. Please \
                      try again in 9m38.016s.",
                ),
                false,
            ),
            (said("Tokens per minute limit exceeded - too many tokens processed."), false),
            (said(CURRENT), false),
        ] {
            let error = by_status(429, None, &body.to_string(), "m");
            let is_unpaid = matches!(error, LlmError::Unpaid { .. });
            assert_eq!((is_unpaid, error.may_retry()), (is_of_a_day, !is_of_a_day), "{body}");
            assert_eq!(error.to_string().contains(day), body.to_string().contains(day), "{error}");
            let hint = error.hint("openai-chat").unwrap();
            assert_eq!(hint.contains("a quota of a day comes back"), is_of_a_day, "{error}: {hint}");
        }
        // A page says nothing of a quota.
        assert!(by_status(429, None, "<p>PerDay</p>", "m").may_retry());
    }
}
