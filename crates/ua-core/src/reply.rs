//! What an attempt brought back, before and after it is understood.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::blob::ToolText;
use crate::charge::ToolCharge;
use crate::env::Timestamp;
use crate::handle::Handle;
use crate::status::CallStatus;

/// How one dispatch ended, as the transport saw it. The ledger alone decides what that means.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The request never left us: nothing can have happened.
    NotSent {
        /// Why.
        why: String,
    },
    /// It left, or may have left, and no answer came: it may have happened.
    Lost {
        /// Why.
        why: String,
    },
    /// It was answered.
    Raw(RawReply),
    /// The tool has it and is not done: it goes on with this, which is stored before anything else happens.
    Continues(Box<Handle>),
}

/// A reply as it came over the wire; stored before it is interpreted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RawReply {
    /// The `result` of an MCP `tools/call`.
    ToolResult {
        /// The result object.
        result: Value,
    },
    /// A JSON-RPC error.
    RpcError {
        /// The code.
        code: i64,
        /// The message.
        message: String,
    },
    /// An HTTP status from the endpoint itself, outside any protocol of ours.
    HttpStatus {
        /// The status code.
        status: u16,
        /// The body, as far as it was read.
        body: String,
        /// The status is about the session that the request came in, not about the request: another session may be let in.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        of_session: bool,
        /// For how many seconds the other side asks to be left alone (`Retry-After`), if it says.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<u64>,
    },
    /// A tool in this process refused the call before it began anything. No other one can say this: what comes over a wire proves less.
    Refused {
        /// Why.
        why: String,
    },
    /// Not a reply at all: a person vouches that it happened.
    Statement {
        /// Who says so.
        by: String,
        /// The other side's name for what happened, when the person gave one.
        proof: Option<String>,
    },
    /// Not the call's own reply either: a read-only tool was asked afterwards and found what the call did.
    Found {
        /// The tool that was asked, by its qualified name.
        tool: String,
        /// The other side's name for what was found.
        id: Option<String>,
        /// What was found, as the tool answered it.
        item: Value,
        /// By what it was known, as a clause: `by its key`; `None` in receipts of earlier versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
}

/// Why what stands in the place of a tool's result is none, whatever else it says; `None` where it is one. By every revision of the protocol a result
/// is an object with the list `content`. What stands beside it may stand alone: servers leave an empty list out beside structured content, and the
/// first revision had `toolResult`; and whoever says that it failed need not say more.
pub fn unreadable_result(result: &Value) -> Option<&'static str> {
    let Some(fields) = result.as_object() else { return Some("its result is no object") };
    let has = |field: &str| fields.get(field).is_some_and(|value| !value.is_null());
    let says_failed = ["isError", "is_error"].iter().any(|field| fields.get(*field) == Some(&Value::Bool(true)));
    match fields.get("content").filter(|content| !content.is_null()) {
        Some(content) if content.is_array() => None,
        Some(_) if says_failed => None,
        Some(_) => Some("the content of its result is no list"),
        None if has("structuredContent") || has("toolResult") || says_failed => None,
        None => Some("its result has no content"),
    }
}

impl RawReply {
    /// A status with its body, of which nothing more is known.
    pub fn http(status: u16, body: impl Into<String>) -> Self {
        Self::HttpStatus { status, body: body.into(), of_session: false, retry_after: None }
    }

    /// How long the other side asks to be left alone before the next request.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::HttpStatus { retry_after, .. } => retry_after.map(Duration::from_secs),
            Self::ToolResult { .. }
            | Self::RpcError { .. }
            | Self::Refused { .. }
            | Self::Statement { .. }
            | Self::Found { .. } => None,
        }
    }

    /// Whether it says that the request was turned away before anything was made of it, for a reason that may be over at the next one: there
    /// is no such session (404 in a session), or there are too many requests (429).
    pub fn turns_away(&self) -> bool {
        match self {
            Self::HttpStatus { status, of_session, .. } => *of_session || *status == 429,
            Self::ToolResult { .. }
            | Self::RpcError { .. }
            | Self::Refused { .. }
            | Self::Statement { .. }
            | Self::Found { .. } => false,
        }
    }
}

/// Longer than anybody waits: ten years. What asks for more asks for this.
const LONGEST_WAIT: Duration = Duration::from_hours(10 * 365 * 24);

/// Reads `Retry-After`: seconds, whole or not, or an HTTP date counted from `now`. However large the number is, it asks to wait. A number that would
/// be more than thirty years is a point in time, in seconds or milliseconds since 1970.
pub fn retry_after(header: &str, now: Timestamp) -> Option<Duration> {
    const SECONDS: f64 = 1e9;
    const MILLIS: f64 = 1e12;
    const NO_TIME: f64 = 1e13;
    let header = header.trim();
    let until = |at: Timestamp| at.since(now).min(LONGEST_WAIT);
    let Ok(number) = header.parse::<f64>() else {
        return Timestamp::parse_http_date(header).map(until);
    };
    let of_1970 = |seconds: f64| Some(Timestamp::from_millis(0).plus(Duration::try_from_secs_f64(seconds).ok()?));
    match number {
        SECONDS..MILLIS => of_1970(number).map(until),
        MILLIS..NO_TIME => of_1970(number / 1000.0).map(until),
        _ => wait_of(number),
    }
}

/// Reads `retry-after-ms`: milliseconds, whole or not.
pub fn retry_after_millis(header: &str) -> Option<Duration> {
    wait_of(header.trim().parse::<f64>().ok()? / 1000.0)
}

/// A wait of so many seconds; `None` of what is no number of seconds (negative, infinite, no number).
fn wait_of(seconds: f64) -> Option<Duration> {
    let is_wait = seconds.is_finite() && seconds >= 0.0;
    is_wait.then(|| Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT))
}

/// How well a receipt is vouched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceLevel {
    /// The tool said so.
    Reported,
    /// A probe or a person found it afterwards.
    Reconciled,
    /// An independent check saw it.
    Verified,
}

/// Whether a reported failure may have had its effect all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PossibleEffect {
    /// A policy says that this error means nothing happened.
    None,
    /// It may have happened: SDKs turn time-outs after sending into reported errors.
    Maybe,
}

/// What the model is given for a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolContent {
    /// The text; a large one is a reference.
    pub text: ToolText,
    /// Whether the tool called it an error.
    pub is_error: bool,
}

/// A raw reply, understood.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settlement {
    /// `succeeded`, `failed_definite`, `failed_reported` or `unknown`.
    pub status: CallStatus,
    /// What the model is given, when the tool answered.
    pub content: Option<ToolContent>,
    /// The other side's name for what happened: a message id, an object's URL.
    pub external_correlation_id: Option<String>,
    /// For a reported failure, whether it may have happened.
    pub possible_effect: Option<PossibleEffect>,
    /// A short code for the failure.
    pub error_code: Option<String>,
    /// The failure in words.
    pub error_detail: Option<String>,
    /// What the tool paid for it, when it is one that pays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charge: Option<Box<ToolCharge>>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = Timestamp::parse("2026-01-02T03:04:05Z").unwrap();
        assert_eq!(retry_after(" 7 ", now), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("Fri, 02 Jan 2026 03:04:35 GMT", now), Some(Duration::from_secs(30)));
        assert_eq!(retry_after("Fri, 02 Jan 2026 03:00:00 GMT", now), Some(Duration::ZERO));
        // The two older forms of a date, which have to be understood.
        assert_eq!(retry_after("Friday, 02-Jan-26 03:04:35 GMT", now), Some(Duration::from_secs(30)));
        assert_eq!(retry_after("Fri Jan  2 03:04:35 2026", now), Some(Duration::from_secs(30)));
        assert_eq!(retry_after("Sunday, 06-Nov-94 08:49:37 GMT", now), Some(Duration::ZERO));
        assert_eq!(
            (retry_after("soon", now), retry_after("Friday, soon", now), retry_after("", now)),
            (None, None, None)
        );
        assert_eq!(retry_after("3.5", now), Some(Duration::from_millis(3_500)));
        assert_eq!((retry_after("-1", now), retry_after("NaN", now), retry_after("inf", now)), (None, None, None));
    }

    #[test]
    fn a_wait_may_be_a_point_in_time() {
        let now = Timestamp::from_millis(1_795_000_000_000);
        let of = |header: &str| retry_after(header, now).map(|wait| wait.as_secs());
        assert_eq!((of("7"), of("1795000030"), of("1795000030000")), (Some(7), Some(30), Some(30)));
        assert_eq!((of("1795000030.25"), of("1795000030000.5"), of("1.79500003e9")), (Some(30), Some(30), Some(30)));
        assert_eq!(
            (of("1700000000"), of("999999999")),
            (Some(0), Some(315_360_000)),
            "it is over; or as long as any wait"
        );
        assert_eq!(of("99999999999999"), Some(315_360_000), "no time at all, so a long wait");
    }

    /// A number that is too large for a clock is no reason to come back at once.
    #[test]
    fn a_longer_wait_is_never_read_as_a_shorter_one() {
        let now = Timestamp::parse("2026-01-02T03:04:05Z").unwrap();
        let mut longest = Duration::ZERO;
        for digits in 1..=300 {
            let nines = "9".repeat(digits);
            for wait in [retry_after(&nines, now), retry_after_millis(&format!("{nines}000"))] {
                let wait = wait.unwrap();
                assert!(wait >= longest && wait <= LONGEST_WAIT, "{nines}: {wait:?}");
                longest = wait;
            }
        }
        assert_eq!(longest, LONGEST_WAIT);
        assert_eq!(retry_after_millis(" 0.5"), Some(Duration::from_micros(500)));
        assert_eq!((retry_after_millis("1200"), retry_after_millis("x")), (Some(Duration::from_millis(1_200)), None));
        assert!(now.plus(longest) > now);
    }

    /// Receipts of earlier versions say neither, and one that has nothing to say about them is written as it was.
    #[test]
    fn a_status_says_what_it_is_about_only_where_it_does() {
        let plain = json!({"kind": "http_status", "status": 429, "body": "slow down"});
        assert_eq!(serde_json::to_value(RawReply::http(429, "slow down")).unwrap(), plain);
        let read: RawReply = serde_json::from_value(plain).unwrap();
        assert_eq!((read.turns_away(), read.retry_after()), (true, None));
        let full = json!({"kind": "http_status", "status": 404, "body": "", "of_session": true, "retry_after": 2});
        let read: RawReply = serde_json::from_value(full.clone()).unwrap();
        assert_eq!((read.turns_away(), read.retry_after()), (true, Some(Duration::from_secs(2))));
        assert_eq!(serde_json::to_value(read).unwrap(), full);
        for status in [400, 401, 403, 404, 500, 502, 503] {
            assert!(!RawReply::http(status, "").turns_away(), "{status}");
        }
    }
}
