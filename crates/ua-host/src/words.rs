//! What a person writes that is stored as it is: answers, reasons, names.
//!
//! Security model S3. Invariant: none of it holds a secret that this process can know. What is stored stands in files for people and goes to the
//! model's provider, and nobody who writes it down means that.

use ua_store::RunRecord;

use crate::credentials;
use crate::database::Database;
use crate::error::HostError;
use crate::host::Host;
use crate::launch::Launch;
use crate::servers;

/// Refuses words that contain a secret. `what` says what they are: "reason", "job key".
///
/// # Errors
/// The refusal, with the name of the secret.
pub fn without_secrets(host: &Host, what: &str, words: &str) -> Result<(), HostError> {
    credentials::learn_own(host.settings(), host.redactor());
    // Of secrets that cannot be read nothing is known; whoever needs them says so.
    if let Err(error) = host.secrets() {
        tracing::debug!(%error, "the secrets cannot be read, so they are not looked for");
    }
    let values = || serde_json::from_str(words).ok().and_then(|value| host.redactor().found_in_json(&value));
    match host.redactor().found_in(words).or_else(values) {
        None => Ok(()),
        Some(name) => Err(HostError::usage(format!("the {what} contains the value of {name}; nothing was stored"))
            .hint(
                "leave it out: what is said is stored, shown to others and sent to the model. A tool gets a secret by `${secret:NAME}`, as \
                 docs/guide/secrets.md explains",
            )),
    }
}

/// The same of what is said about a run, whose tool servers may be given secrets of their own.
///
/// # Errors
/// The refusal.
pub(crate) async fn about_run(
    host: &Host,
    store: &Database,
    run: &RunRecord,
    what: &str,
    words: &str,
) -> Result<(), HostError> {
    // A session of the gateway has none that are stored, and of a run whose configuration is not there nothing more is known.
    if let Ok(launch) = Launch::of_run(store, run).await
        && let Ok(servers) = launch.configured_servers(host, &run.spec)
    {
        servers::redactor(host, &servers).ok();
    }
    without_secrets(host, what, words)
}
