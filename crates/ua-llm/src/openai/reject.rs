//! From an error of the Responses API to the error a caller sees.

use serde::Deserialize;

use crate::error::{LlmError, Status};
use crate::http::lenient;
use crate::http::reject::reported;
use crate::session::KnownPrefix;

#[derive(Deserialize)]
struct ErrorBody {
    #[serde(default, deserialize_with = "lenient::maybe")]
    error: Option<ErrorDetail>,
    /// Older vLLM and its kin: the error is the whole body.
    #[serde(flatten)]
    whole: ErrorDetail,
}

#[derive(Default, Deserialize)]
struct ErrorDetail {
    #[serde(default, deserialize_with = "lenient::text")]
    code: Option<String>,
    #[serde(default, deserialize_with = "lenient::text")]
    param: Option<String>,
    #[serde(default, deserialize_with = "lenient::text")]
    message: Option<String>,
    /// What FastAPI says in the place of all that.
    #[serde(default, deserialize_with = "lenient::text")]
    detail: Option<String>,
}

/// Looks whether a client error of the API means something that its status alone does not say; `error` otherwise.
pub(crate) fn refine(error: LlmError, status: u16, body: &str, known: Option<&KnownPrefix>) -> LlmError {
    let Ok(ErrorBody { error: below, whole }) = serde_json::from_str::<ErrorBody>(body) else { return error };
    let detail = below.unwrap_or(whole);
    let code = detail.code.as_deref().unwrap_or_default();
    let message = detail.message.or(detail.detail).unwrap_or_default();
    match (status, known) {
        (400 | 404 | 410 | 422, Some(known))
            if is_forgotten(status, code, detail.param.as_deref(), &message, known) =>
        {
            forgotten(known, message)
        }
        // In words that the status alone was not read with; whether it came is not known here.
        (429, _) if code == "insufficient_quota" && !matches!(error, LlmError::Unpaid { .. }) => {
            LlmError::Unpaid { status: Status::Like(status), message }
        }
        _ => error,
    }
}

/// Sorts an error inside a stream.
pub(crate) fn by_code(code: &str, message: String, model: &str, known: Option<&KnownPrefix>) -> LlmError {
    let status = code.parse::<u16>().ok().filter(|status| (400..600).contains(status));
    match known {
        Some(known) if is_forgotten(status.unwrap_or_default(), code, None, &message, known) => {
            forgotten(known, message)
        }
        // Its name says nothing that is not said anyway.
        Some(_) | None => reported(if code == "server_error" { "" } else { code }, message, model),
    }
}

/// Whether a refusal may be of the reply that was named. Whatever is wrong with it, the whole history does not need it, and costs nothing that a reply
/// would not: so an API that says that something is not there is taken to speak of that.
fn is_forgotten(status: u16, code: &str, param: Option<&str>, message: &str, known: &KnownPrefix) -> bool {
    let said = message.to_ascii_lowercase();
    let says_so = || said.contains("previous response") && said.contains("not found");
    code == "previous_response_not_found"
        || param == Some("previous_response_id")
        || matches!(status, 404 | 410)
        || message.contains(&known.response_id)
        || says_so()
}

fn forgotten(known: &KnownPrefix, message: String) -> LlmError {
    LlmError::SessionForgotten { response_id: known.response_id.clone(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> KnownPrefix {
        KnownPrefix { response_id: "resp_1".into(), messages: 2 }
    }

    fn other() -> LlmError {
        LlmError::InvalidRequest { status: Status::Http(400), message: "as the status says".into() }
    }

    #[test]
    fn a_reply_that_the_provider_does_not_know_any_more_is_told_from_other_refusals() {
        let bodies = [
            r#"{"error": {"message": "Previous response with id 'resp_1' not found.", "param": "previous_response_id", "code": "previous_response_not_found"}}"#,
            r#"{"error": {"message": "Invalid 'previous_response_id': 'msg_1'.", "param": "previous_response_id", "code": "invalid_value"}}"#,
            r#"{"error": {"message": "Previous response with id 'resp_1' not found."}}"#,
            r#"{"error": {"message": "Response with id 'resp_1' not found.", "param": "response_id", "code": 404}}"#,
            r#"{"object": "error", "message": "Response with id 'resp_1' not found.", "type": "invalid_request_error", "param": null, "code": 404}"#,
            r#"{"error": null, "message": "x", "param": "previous_response_id", "code": 400}"#,
            r#"{"detail": "Previous response with id 'resp_1' not found."}"#,
        ];
        for body in bodies {
            for status in [400, 404] {
                let error = refine(other(), status, body, Some(&known()));
                assert!(matches!(&error, LlmError::SessionForgotten { response_id, .. } if response_id == "resp_1"));
                assert!(error.left_us() && error.was_refused(), "it costs nothing");
            }
            assert!(matches!(refine(other(), 400, body, None), LlmError::InvalidRequest { .. }), "nothing was named");
            assert!(matches!(refine(other(), 500, body, Some(&known())), LlmError::InvalidRequest { .. }));
        }
        for status in [404, 410] {
            let error = refine(other(), status, r#"{"error": {"message": "Not found", "code": null}}"#, Some(&known()));
            assert!(matches!(error, LlmError::SessionForgotten { .. }), "{error:?}");
        }
        let bare = r#"{"object": "error", "message": "Not found", "code": 404}"#;
        assert!(matches!(refine(other(), 404, bare, Some(&known())), LlmError::SessionForgotten { .. }));
        let unrelated = r#"{"object": "error", "message": "max_output_tokens is too large", "param": "max_output_tokens", "code": 400}"#;
        assert!(matches!(refine(other(), 400, unrelated, Some(&known())), LlmError::InvalidRequest { .. }));
        let unrelated = r#"{"error": {"message": "No tool output found for function call a.", "param": "input"}}"#;
        assert!(matches!(refine(other(), 400, unrelated, Some(&known())), LlmError::InvalidRequest { .. }));
        assert!(matches!(refine(other(), 400, "<html>", Some(&known())), LlmError::InvalidRequest { .. }));
    }

    #[test]
    fn an_account_that_cannot_pay_is_not_asked_to_wait() {
        let body = r#"{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}"#;
        let limited = LlmError::RateLimited { retry_after: None, until_reset: None, message: String::new() };
        assert!(!refine(limited, 429, body, None).may_retry());
        assert!(!by_code("insufficient_quota", String::new(), "m", None).may_retry());
    }

    #[test]
    fn errors_inside_a_stream_are_sorted_like_those_before_it() {
        let of = |code: &str| by_code(code, "m".into(), "gpt-x", Some(&known()));
        assert!(matches!(of("previous_response_not_found"), LlmError::SessionForgotten { .. }));
        assert!(matches!(of("404"), LlmError::SessionForgotten { .. }));
        assert!(
            matches!(by_code("404", "m".into(), "gpt-x", None), LlmError::NotFound { model, .. } if model == "gpt-x")
        );
        assert!(matches!(of("rate_limit_exceeded"), LlmError::RateLimited { .. }));
        assert!(matches!(of("server_error"), LlmError::Server { status: None, .. }));
        assert!(matches!(of("context_length_exceeded"), LlmError::TooLong { .. }));
        for code in [
            "invalid_encrypted_content",
            "unsupported_parameter",
            "invalid_value",
            "invalid_function_parameters",
            "missing_required_parameter",
            "unknown_parameter",
            "string_above_max_length",
            "integer_below_min_value",
        ] {
            assert!(matches!(of(code), LlmError::InvalidRequest { .. }), "{code}: no wait helps");
        }
        for code in ["invalid_response_error", "vector_store_timeout", "something_new"] {
            assert!(of(code).may_retry(), "{code}");
        }
    }
}
