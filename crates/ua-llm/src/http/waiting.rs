//! How long a provider asks to be left alone, where it says so elsewhere than in `Retry-After`.
//!
//! Google has it in the body (`RetryInfo`), `OpenAI` and whoever speaks like it in the message, also inside a stream, and in headers that say when a limit is whole again.
//! The latter is an upper bound, and no request to stay away for hours: of it no more is taken than is waited anyway, and no run ends for it.

use std::time::Duration;

use super::reject::error_in;

/// The kinds of limits that have headers of their own.
const LIMITS: [&str; 2] = ["requests", "tokens"];
/// The longest wait until a limit is whole again.
const LONGEST_RESET: Duration = Duration::from_mins(2);

/// Whether an answer of this status says that it is too early for the next request.
fn is_too_early(status: u16) -> bool {
    matches!(status, 429 | 503 | 529)
}

/// What the body of a refusal asks for.
pub(super) fn asked_in_body(status: u16, body: &str) -> Option<Duration> {
    let error = error_in(body).filter(|_| is_too_early(status))?;
    let mut details = error["details"].as_array().into_iter().flatten();
    let of_google = details.find_map(|detail| span(detail["retryDelay"].as_str()?));
    of_google.or_else(|| asked_in_words(error["message"].as_str().or(error.as_str())?))
}

/// What a message asks for (`Please try again in 1.2s`, `Please retry in 20.04466179s`).
pub(super) fn asked_in_words(message: &str) -> Option<Duration> {
    let said = message.to_ascii_lowercase();
    ["try again in ", "retry in "].iter().find_map(|words| span(said.split_once(words)?.1))
}

/// How long it takes, by the headers of a refusal, until a limit that is used up is whole again.
pub(super) fn until_reset<'a>(status: u16, header: impl Fn(&str) -> Option<&'a str>) -> Option<Duration> {
    let used_up = |limit: &&str| {
        let left = header(&format!("x-ratelimit-remaining-{limit}"));
        left.is_none_or(|left| left.trim().parse::<f64>().is_ok_and(|left| left <= 0.0))
    };
    let waits = LIMITS.iter().filter(|limit| used_up(limit));
    let waits = waits.filter_map(|limit| span(header(&format!("x-ratelimit-reset-{limit}"))?));
    waits.max().filter(|_| status == 429).map(|wait| wait.min(LONGEST_RESET))
}

/// The span of time that a text begins with, number and unit in turn: `4s`, `6m0s`, `1.5 seconds`, `120ms`.
fn span(text: &str) -> Option<Duration> {
    let (mut rest, mut seconds) = (text.trim_start(), None);
    loop {
        let behind = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let Ok(number) = rest[..rest.len() - behind.len()].parse::<f64>() else { break };
        let unit_on = behind.trim_start();
        let behind = unit_on.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match &unit_on[..unit_on.len() - behind.len()] {
            "ms" | "millisecond" | "milliseconds" => 0.001,
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3_600.0,
            "d" | "day" | "days" => 86_400.0,
            _ => break,
        };
        seconds = Some(seconds.unwrap_or(0.0) + number * unit);
        rest = behind.trim_start();
    }
    Duration::try_from_secs_f64(seconds?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_span_is_read_as_servers_write_it() {
        let millis = |text| span(text).map(|wait| wait.as_millis());
        for (text, expected) in [
            ("4s", Some(4_000)),
            ("17.5s", Some(17_500)),
            ("6m0s", Some(360_000)),
            ("1h2m3s", Some(3_723_000)),
            ("120ms.", Some(120)),
            ("20s. Visit https://example.org", Some(20_000)),
            ("1.5 seconds", Some(1_500)),
            ("2 hours", Some(7_200_000)),
            ("1 minute 30 seconds", Some(90_000)),
            ("soon", None),
            ("5", None),
            ("3 apples", None),
            ("", None),
        ] {
            assert_eq!(millis(text), expected, "{text}");
        }
    }

    #[test]
    fn what_google_and_openai_say_in_a_body_is_heard() {
        let info = json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "4s"});
        let error = json!({"error": {"code": 429, "message": "quota", "details": [{"reason": "x"}, info]}});
        for body in [error.to_string(), json!([error]).to_string()] {
            assert_eq!(asked_in_body(429, &body), Some(Duration::from_secs(4)), "{body}");
            assert_eq!(asked_in_body(503, &body), Some(Duration::from_secs(4)));
            assert_eq!(asked_in_body(500, &body), None, "it says nothing of when");
        }
        let said = json!({"error": {"message": "Rate limit reached for m. Please try again in 1.2s. Visit …"}});
        assert_eq!(asked_in_body(429, &said.to_string()), Some(Duration::from_millis(1_200)));
        let said = json!({"error": {"message": "You exceeded your current quota.\nPlease retry in 20.5s."}});
        assert_eq!(asked_in_body(429, &said.to_string()), Some(Duration::from_millis(20_500)));
        for nothing in
            ["", "<html>", "{}", "[]", r#"{"error":{"message":"slow"}}"#, r#"{"error":{"details":[{"retryDelay":4}]}}"#]
        {
            assert_eq!(asked_in_body(429, nothing), None, "{nothing}");
        }
    }

    #[test]
    fn a_limit_that_is_used_up_is_waited_for_and_never_for_long() {
        let wait = |headers: &'static [(&str, &str)]| {
            let header = |name: &str| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
            until_reset(429, header).map(|wait| wait.as_secs())
        };
        assert_eq!(wait(&[("x-ratelimit-reset-requests", "3s")]), Some(3));
        assert_eq!(wait(&[("x-ratelimit-reset-requests", "3s"), ("x-ratelimit-remaining-requests", "7")]), None);
        let both = &[
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-reset-tokens", "6s"),
            ("x-ratelimit-remaining-tokens", "0"),
        ];
        assert_eq!(wait(both), Some(6));
        assert_eq!(wait(&[("x-ratelimit-reset-tokens", "8h0m")]), Some(120), "an upper bound is no wish");
        assert_eq!((wait(&[]), wait(&[("x-ratelimit-reset-tokens", "soon")])), (None, None));
        assert_eq!(until_reset(500, |_| Some("3s")), None);
    }
}
