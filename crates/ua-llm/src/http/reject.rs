//! From an error answer to the error a caller sees.

use std::time::Duration;

use serde_json::Value;
use ua_core::Timestamp;

use crate::error::LlmError;

/// Sorts an HTTP status other than 200. `body` is what the provider said with it.
pub(crate) fn by_status(status: u16, retry_after: Option<Duration>, body: &str, model: &str) -> LlmError {
    let message = message_in(body);
    if status == 429 && says_unpaid(body) {
        // Not a matter of time: nothing is answered until somebody pays.
        return LlmError::Unauthorized { status, message };
    }
    by_status_and_message(status, retry_after, message, model)
}

/// The same for a status whose message has been read already.
pub(crate) fn by_status_and_message(
    status: u16,
    retry_after: Option<Duration>,
    message: String,
    model: &str,
) -> LlmError {
    match status {
        401..=403 => LlmError::Unauthorized { status, message },
        404 => LlmError::NotFound { model: model.to_owned(), message },
        429 => LlmError::RateLimited { retry_after, message },
        503 | 529 => LlmError::Overloaded { retry_after, message },
        408 | 409 | 500..=599 => LlmError::Server { status: Some(status), retry_after, message },
        300..=399 => LlmError::Protocol { why: format!("it redirects (HTTP {status}), which is not followed") },
        400..=499 => LlmError::InvalidRequest { status, message },
        _ => LlmError::Protocol { why: format!("its status is HTTP {status}: {message}") },
    }
}

/// Whether an error of OpenAI's shape says that the account has no credit left.
fn says_unpaid(body: &str) -> bool {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    [&body["error"]["code"], &body["error"]["type"]].iter().any(|word| **word == "insufficient_quota")
}

/// The provider's message; the start of the body when it has another form, as a proxy's page has.
fn message_in(body: &str) -> String {
    const SHOWN: usize = 300;
    let read: Value = serde_json::from_str(body).unwrap_or_default();
    let places = [&read["error"]["message"], &read["error"], &read["message"], &read["detail"]];
    match (places.iter().find_map(|place| place.as_str()), read["request_id"].as_str()) {
        (Some(message), Some(id)) => format!("{message} (request {id})"),
        (Some(message), None) => message.to_owned(),
        (None, _) if body.trim().is_empty() => "no explanation was given".to_owned(),
        (None, _) => body.trim().chars().take(SHOWN).collect(),
    }
}

/// Reads `Retry-After`: seconds, or an HTTP date counted from `now`.
pub(crate) fn retry_after(header: &str, now: Timestamp) -> Option<Duration> {
    let header = header.trim();
    if let Ok(seconds) = header.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(header).ok()?;
    Some(Timestamp::from_millis(at.as_millisecond()).since(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_error() {
        let name = |status| match by_status(status, None, "", "m") {
            LlmError::Unauthorized { .. } => "unauthorized",
            LlmError::NotFound { .. } => "not found",
            LlmError::RateLimited { .. } => "rate limited",
            LlmError::Overloaded { .. } => "overloaded",
            LlmError::Server { .. } => "server",
            LlmError::InvalidRequest { .. } => "invalid",
            LlmError::Protocol { .. } => "protocol",
            LlmError::SessionForgotten { .. } => "forgotten",
            LlmError::Setup { .. }
            | LlmError::NotRecorded { .. }
            | LlmError::Unreachable { .. }
            | LlmError::Timeout { .. }
            | LlmError::Endless { .. }
            | LlmError::Cut { .. } => "no answer",
        };
        let cases = [
            (204, "protocol"),
            (307, "protocol"),
            (400, "invalid"),
            (401, "unauthorized"),
            (402, "unauthorized"),
            (403, "unauthorized"),
            (404, "not found"),
            (408, "server"),
            (409, "server"),
            (413, "invalid"),
            (422, "invalid"),
            (429, "rate limited"),
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
    fn the_message_is_the_providers_or_the_start_of_the_page() {
        let api =
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"too long"},"request_id":"req_1"}"#;
        assert_eq!(message_in(api), "too long (request req_1)");
        assert_eq!(message_in(" <html>bad gateway</html> "), "<html>bad gateway</html>");
        assert_eq!(message_in(""), "no explanation was given");
        for other in [r#"{"error":"busy"}"#, r#"{"message":"busy","object":"error"}"#, r#"{"detail":"busy"}"#] {
            assert_eq!(message_in(other), "busy");
        }
    }

    #[test]
    fn an_account_without_credit_is_not_a_rate_limit() {
        let body = r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#;
        assert!(matches!(by_status(429, None, body, "m"), LlmError::Unauthorized { status: 429, .. }));
        let body = r#"{"error":{"message":"slow down","type":"requests","code":"rate_limit_exceeded"}}"#;
        assert!(matches!(by_status(429, None, body, "m"), LlmError::RateLimited { .. }));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = Timestamp::parse("2026-01-02T03:04:05Z").unwrap();
        assert_eq!(retry_after(" 7 ", now), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("Fri, 02 Jan 2026 03:04:35 GMT", now), Some(Duration::from_secs(30)));
        assert_eq!(retry_after("Fri, 02 Jan 2026 03:00:00 GMT", now), Some(Duration::ZERO));
        assert_eq!(retry_after("soon", now), None);
    }
}
