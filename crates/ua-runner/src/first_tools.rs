//! The wait for a tool server that is there and cannot serve yet when a process takes a run, as for one that is away in the middle of it.
//!
//! A server that is being started, or whose proxy has nobody behind it, says so (HTTP 503) and is asked again, as the model's provider is. One
//! that cannot be reached at all is not waited for here: at the start that is mostly an address which somebody has to correct. Nothing was sent.
//! Proved by: `ua-runner`'s `granular::away`.

use std::sync::Arc;
use std::time::Duration;

use ua_core::{Audience, Timestamp};
use ua_dispatch::TransportError;
use ua_ledger::Outbox;
use ua_store::{RunStore as _, budgets_with};

use crate::budget::Limits;
use crate::desk::{Desk, DeskError, Opened};
use crate::error::RunError;
use crate::ports::RunSettings;
use crate::waiting::{Away, Cut, Lookout, in_millis};

/// Opens the desk, and waits for tool servers that cannot serve now: as long as the job's patience and its time last, until a signal, and until
/// somebody says that the run is to end.
pub(crate) async fn open_patiently(
    desk: &Desk,
    outbox: &Arc<Outbox>,
    settings: &RunSettings,
    acquired_at: Timestamp,
) -> Result<Opened, DeskError> {
    let (env, run) = (&desk.ports.env, &desk.ports.run);
    let lookout = Lookout { store: desk.ports.store.as_ref(), lease: &desk.ports.lease, env, stop: &desk.ports.stop };
    let mut away = Away::default();
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
        let (took, random) = (env.now().since(began), env.entropy.next_u64());
        let pause = match away.again(took, &retry, random, Some(to_the_end)) {
            Ok(pause) => pause,
            Err(given_up) => {
                let limits = Limits { audience: Audience::of(&run.entrypoint), ..Limits::of(&run.spec, &budgets) };
                let why = away.in_words(&why, given_up, &limits);
                return Ok(Opened::Unreachable(TransportError::Away { server, why }));
            }
        };
        let error = TransportError::Away { server, why };
        let is_last = to_the_end <= pause.wait.saturating_add(pause.left);
        away.tell(&desk.watcher, &error, pause, is_last.then(|| in_millis(to_the_end)));
        // It was begun because it is over before the run's time is.
        match lookout.sit_out(pause.wait, || None).await? {
            None => {}
            Some(Cut::Interrupted) => return Ok(Opened::Interrupted),
            Some(Cut::Marked(_) | Cut::OutOfTime { .. }) => return Ok(Opened::Unreachable(error)),
        }
    }
}
