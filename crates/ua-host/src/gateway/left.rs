//! Calls of the gateway of which nobody knows what came, and about which no person was asked yet: what a broker left that ended in the middle of
//! them. Whoever looks before the next one is there is not to conclude that nothing went out.

use std::path::Path;

use ua_core::CallStatus;
use ua_resume::Commands;
use ua_store::{CallQuery, CallRecord, RunStore as _, Store as _};

use crate::error::HostError;
use crate::home::Home;
use crate::host::Host;

/// At most so many calls are looked at.
const LOOKED_AT: u32 = 10_000;
/// At most so many are named.
const NAMED: usize = 5;

/// The calls with an effect that a broker left, the newest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Left {
    calls: Vec<CallRecord>,
    /// Whether a broker runs, which has found out by now what can be found out without a client.
    is_served: bool,
}

impl Left {
    /// As sentences, one a line; `None` where nothing was left. `commands` makes commands complete.
    pub fn in_words(&self, commands: &Commands) -> Option<String> {
        let first = self.calls.first()?;
        let count = ua_core::counted(self.calls.len(), "call");
        let (was, its) = if self.calls.len() == 1 { ("was", "it") } else { ("were", "them") };
        let name =
            |call: &CallRecord| format!("`{}` of `{}` (call {})", call.name.tool, call.name.server, call.call_id);
        let mut names: Vec<String> = self.calls.iter().take(NAMED).map(name).collect();
        if let Some(more) = self.calls.len().checked_sub(NAMED).filter(|more| *more > 0) {
            names.push(format!("{more} more"));
        }
        let what = format!(
            "{count} of the gateway {was} under way when its broker ended, and what happened to {its} is not known: {}",
            names.join(", ")
        );
        let resolve = format!("`ua calls resolve {} --as happened --reason TEXT`", first.call_id);
        let then = if self.is_served {
            format!("Its client finds out when it asks for the same again; if you know it, record it: {resolve}")
        } else {
            "The next broker finds out, or asks you: `ua gateway start`, or a client, starts it".to_owned()
        };
        Some(format!("{what}\n{}", commands.complete(&then)))
    }
}

/// What a broker of the gateway left in doubt, and what makes commands about it complete. Nothing where nobody uses a gateway.
///
/// # Errors
/// Its database is there and cannot be read.
pub async fn left(host: &Host, named: Option<&Path>) -> Result<(Commands, Left), HostError> {
    let root = super::root(host.settings(), named)?;
    let commands = Commands::naming(&root);
    let none = Left::default();
    if !root.is_dir() {
        return Ok((commands, none));
    }
    let home = Home::new(host.settings(), Some(&root), host.known_secrets())?;
    if home.is_unused() {
        return Ok((commands, none));
    }
    // One that says nothing now is there all the same.
    let is_served = !matches!(super::ask(host, named, false).await, Ok(None));
    let store = home.open_read_only()?;
    let fail = |error| HostError::store("read the calls of the gateway", &error);
    let asked = store.open_questions(None).await.map_err(fail)?;
    let all = store.find_calls(&CallQuery { limit: LOOKED_AT, ..CallQuery::default() }).await.map_err(fail)?;
    let mut calls = Vec::new();
    for call in all {
        let is_left = match call.status {
            CallStatus::Running => !is_served,
            CallStatus::Unknown => call.resolution.is_none(),
            CallStatus::Prepared
            | CallStatus::Succeeded
            | CallStatus::FailedDefinite
            | CallStatus::FailedReported
            | CallStatus::Cancelled => false,
        };
        let is_asked = asked.iter().any(|question| question.call_id.as_ref() == Some(&call.call_id));
        if is_left && !is_asked && call.policy.class.has_effect() {
            let run = store.run(&call.run_id).await.map_err(fail)?;
            if ua_store::is_gateway(&run) && !ua_store::is_over(&run) {
                calls.push(call);
            }
        }
    }
    crate::home::close(store);
    Ok((commands, Left { calls, is_served }))
}

/// The same in words, for whoever looks at other runs: `None` when these are the gateway's own, or when the gateway cannot be looked at now.
pub async fn left_beside(host: &Host) -> Option<String> {
    super::home_beside(host)?;
    match left(host, None).await {
        Ok((commands, left)) => left.in_words(&commands),
        Err(error) => {
            tracing::debug!(%error, "what the gateway left in doubt cannot be read");
            None
        }
    }
}
