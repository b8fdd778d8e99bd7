//! Diagnostics on standard error, when `UA_LOG` asks for them (`UA_LOG=debug`, `UA_LOG=ua_mcp=trace`).

use tracing_subscriber::EnvFilter;

/// Without `UA_LOG`: warnings, but not those of the model client, whose retries are lines of progress already.
const DEFAULT: &str = "warn,ua_llm=error";

/// Installs the subscriber.
pub(crate) fn init() {
    let filter = crate::env::var("UA_LOG").unwrap_or_else(|| DEFAULT.to_owned());
    let filter = EnvFilter::try_new(&filter).unwrap_or_else(|_| EnvFilter::new("warn"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(crate::terminal::LogWriter::new)
        .without_time()
        .with_ansi(false)
        .log_internal_errors(false);
    // A second initialisation (a test that calls `main` twice) keeps the first.
    let _already_set = subscriber.try_init().is_err();
}
