//! One POST to a person's webhook, for the program that drives runs: the same client and the same care as `notify`, and no tool.

use std::time::Duration;

use crate::web;

/// Posts a JSON text to `url` with `key` as its `Idempotency-Key`, once, and waits `within` for the status.
///
/// # Errors
/// A sentence about what went wrong; it does not name the address, which may hold a token.
pub async fn post_alert(url: &str, key: &str, json: Vec<u8>, within: Duration) -> Result<(), String> {
    let client = web::client().map_err(|error| error.to_string())?;
    let request = client.post(url).header("Content-Type", "application/json").header("Idempotency-Key", key).body(json);
    let host = web::shown(url);
    match tokio::time::timeout(within, request.send()).await {
        Err(_) => Err(format!("{host} did not answer within {within:?}")),
        Ok(Err(error)) => Err(format!("{host}: {}", web::root_cause(&error.without_url()))),
        Ok(Ok(response)) if response.status().is_success() => Ok(()),
        Ok(Ok(response)) => Err(format!("{host} answered {}", response.status())),
    }
}
