//! HTTP to receivers that a person configured: no redirects, no retries, and what an answer says about the effect.

use std::time::Duration;

use reqwest::StatusCode;
use reqwest::redirect::Policy;
use url::Url;

use crate::error::ToolServerError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A client that sends each request once: one retry layer is enough, and it belongs to the caller's ledger.
pub(crate) fn client() -> Result<reqwest::Client, ToolServerError> {
    reqwest::Client::builder()
        .redirect(Policy::none())
        .retry(reqwest::retry::never())
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(ANSWER_TIMEOUT)
        .build()
        .map_err(|source| ToolServerError::Http { source })
}

/// Whether an HTTP status says that the request had no effect. Others may come from a proxy behind which it was done.
pub(crate) fn means_not_done(status: StatusCode) -> bool {
    matches!(status.as_u16(), 307 | 308 | 400 | 401 | 403 | 404 | 405 | 413 | 415 | 429)
}

/// Whether the request never left this machine.
pub(crate) fn never_left(error: &reqwest::Error) -> bool {
    error.is_connect() || error.is_builder()
}

/// The innermost cause, which names what happened; the outer ones repeat the address.
pub(crate) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

/// Whether the host of `url` is this machine itself, so that nobody can listen in between.
pub(crate) fn is_loopback(url: &Url) -> bool {
    // Hosts of schemes like smtp: are not parsed as addresses by the URL standard.
    url.host_str().is_some_and(|host| {
        let host = host.trim_matches(['[', ']']);
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}
