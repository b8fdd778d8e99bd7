//! The wait for a tool server that is there and cannot serve yet when a process takes a run, as for one that is away in the middle of it.
//!
//! A server that is being started, or whose proxy has nobody behind it, says so (HTTP 503) and is asked again, as the model's provider is. One
//! that cannot be reached at all is not waited for here: at the start that is mostly an address which somebody has to correct. Nothing was sent.
//! Proved by: `ua-runner`'s `granular::away`.

use std::sync::Arc;
use std::time::Duration;

use ua_core::{Timestamp, chain, span_in_words};
use ua_dispatch::TransportError;
use ua_ledger::Outbox;
use ua_store::{RunStore as _, budgets_with};

use crate::desk::{Desk, DeskError, Opened};
use crate::error::RunError;
use crate::ports::RunSettings;
use crate::retry::Tries;
use crate::watch::RunEvent;

/// How often it is looked whether somebody said that the run is to end.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Opens the desk, and waits for tool servers that cannot serve now: as long as the job's patience and its time last, until a signal, and until
/// somebody says that the run is to end.
pub(crate) async fn open_patiently(
    desk: &Desk,
    outbox: &Arc<Outbox>,
    settings: &RunSettings,
    acquired_at: Timestamp,
) -> Result<Opened, DeskError> {
    let (env, run) = (&desk.ports.env, &desk.ports.run);
    let mut tries = Tries::default();
    loop {
        let began = env.now();
        let opened = desk.open(outbox).await?;
        let Opened::Unreachable(TransportError::Away { server, why }) = opened else { return Ok(opened) };
        let overrides =
            desk.ports.store.overrides(&run.run_id).await.map_err(RunError::at("read the run's budgets"))?;
        let budgets = budgets_with(&run.spec.budgets, &overrides);
        let retry = settings.retry.within(Duration::from_mins(budgets.max_provider_wait_minutes.into()));
        let held = Duration::from_millis(run.held_millis) + env.now().since(acquired_at);
        let to_the_end = Duration::from_secs(budgets.max_wallclock_minutes.saturating_mul(60)).saturating_sub(held);
        tries = tries.and_away(env.now().since(began));
        let random = env.entropy.next_u64();
        let wait = retry.wait_for_server(&tries, random).filter(|_| !to_the_end.is_zero());
        let Some(wait) = wait.map(|wait| wait.min(to_the_end)) else {
            let waited = tries.waited;
            let why =
                if waited.is_zero() { why } else { format!("{why}; it was waited for, for {}", span_in_words(waited)) };
            return Ok(Opened::Unreachable(TransportError::Away { server, why }));
        };
        let left = retry.left(&tries).saturating_sub(wait);
        let error = TransportError::Away { server, why };
        tracing::debug!(attempt = tries.attempts, %error, "a tool server cannot serve yet, trying again");
        (desk.watcher)(RunEvent::ToolServerAway {
            attempt: tries.attempts,
            why: chain(&error),
            wait_millis: in_millis(wait),
            left_millis: in_millis(left),
            ends_in_millis: (to_the_end <= wait.saturating_add(left)).then(|| in_millis(to_the_end)),
        });
        tries.waited = tries.waited.saturating_add(wait);
        if let Some(ended) = sit_out(desk, wait, error).await? {
            return Ok(ended);
        }
    }
}

/// Lets a wait pass; what came of the start where something else came first.
async fn sit_out(desk: &Desk, wait: Duration, error: TransportError) -> Result<Option<Opened>, RunError> {
    let (store, env) = (&desk.ports.store, &desk.ports.env);
    let mut left = wait;
    while !left.is_zero() {
        let piece = left.min(LOOK_EVERY);
        tokio::select! {
            biased;
            () = desk.ports.stop.stopping() => return Ok(Some(Opened::Interrupted)),
            () = env.clock.sleep(piece) => left -= piece,
        }
        let alive = store.note_alive(&desk.ports.lease, Duration::ZERO, env.now()).await;
        alive.map_err(RunError::at("say that the run is driven"))?;
        let run = store.run(&desk.ports.lease.run_id).await.map_err(RunError::at("read the run"))?;
        if run.end_mark().is_some() {
            return Ok(Some(Opened::Unreachable(error)));
        }
    }
    Ok(None)
}

fn in_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
