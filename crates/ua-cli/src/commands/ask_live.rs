//! A tool server that asks in the middle of a call and waits on its connection: the person at the terminal is asked right there.
//!
//! Durable Jobs v1 spec §6 (escalation); MCP elicitation. The answer goes the same way as one given with `ua answer`, from whichever
//! process: the run reads it from the database.

use std::sync::Arc;
use std::time::Duration;

use ua_gateway::{Elicitations, Notice};
use ua_runner::{Signal, Watcher};
use ua_store_sqlite::SqliteStore;

use crate::error::CliError;

/// How long the person at the terminal has to answer.
const ATTENDED: Duration = Duration::from_hours(1);

/// A watcher that also asks.
pub(crate) fn watcher(store: Arc<SqliteStore>, inner: Watcher) -> Watcher {
    Arc::new(move |signal| {
        let asking =
            if let Signal::Call(Notice::Asking { question, .. }) = &signal { Some(question.clone()) } else { None };
        inner(signal);
        if let Some(question) = asking {
            let store = store.clone();
            tokio::spawn(async move {
                if let Err(error) = super::ask::one(&store, &question).await {
                    error.print();
                }
            });
        }
    })
}

/// How long a tool server that waits is kept waiting: `UA_ELICITATION_WAIT` seconds, by default an hour for the person at the terminal
/// and five minutes for somebody elsewhere; without anybody who may be asked it is told *no* at once.
pub(crate) fn patience(is_attended: bool, no_input: bool) -> Result<Elicitations, CliError> {
    let live_wait = match crate::env::var("UA_ELICITATION_WAIT") {
        Some(text) => text.parse().map(Duration::from_secs).map_err(|_| {
            CliError::usage(format!(
                "UA_ELICITATION_WAIT (tools.elicitation_wait) is a number of seconds, not {text:?}"
            ))
        })?,
        None if is_attended => ATTENDED,
        None if no_input => Duration::ZERO,
        None => Elicitations::default().live_wait,
    };
    Ok(Elicitations { live_wait })
}
