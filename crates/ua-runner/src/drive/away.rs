//! The wait for a tool server that is away in the middle of a run, as for the model's provider.
//!
//! A server that is restarted, or whose machine is, is away for seconds or minutes. Nothing had been sent to it, so the calls of the group are
//! taken up again where they stand, as a resume would: what has ended meanwhile is not sent again. Proved by: `ua-runner`'s `granular::away`.

use std::time::Duration;

use ua_core::{chain, span_in_words};
use ua_dispatch::TransportError;

use super::Driver;
use super::think::in_millis;
use crate::error::RunError;
use crate::machine::Event;
use crate::retry::Tries;
use crate::watch::RunEvent;

/// How often the servers of one group of calls could not be reached, and for how long.
#[derive(Debug, Default)]
pub(super) struct Away {
    tries: Tries,
}

impl Driver<'_> {
    /// Waits before the calls are taken up again; the event that ends the work on them, when that comes first, or when nothing is to be waited for.
    /// `took` is how long it took to find out.
    pub(super) async fn wait_for_server(
        &self,
        error: &TransportError,
        took: Duration,
        away: &mut Away,
    ) -> Result<Option<Event>, RunError> {
        let retry = self.machine.retry();
        away.tries = away.tries.and_away(took);
        let random = self.ports.env.entropy.next_u64();
        let Some(wait) = error.may_pass().then(|| retry.wait_for_server(&away.tries, random)).flatten() else {
            let detail = chain(error);
            let detail = if away.tries.waited.is_zero() {
                detail
            } else {
                format!("{detail}; it was waited for, for {}", span_in_words(away.tries.waited))
            };
            return Ok(Some(Event::ToolServerDown { detail }));
        };
        let left = retry.left(&away.tries).saturating_sub(wait);
        tracing::debug!(attempt = away.tries.attempts, %error, "a tool server is away, trying again");
        (self.ports.watcher)(RunEvent::ToolServerAway {
            attempt: away.tries.attempts,
            why: chain(error),
            wait_millis: in_millis(wait),
            left_millis: in_millis(left),
            ends_in_millis: self.ends_within(wait, left),
        });
        away.tries.waited = away.tries.waited.saturating_add(wait);
        let event = self.sit_out(wait).await?;
        Ok((event != Event::Waited).then_some(event))
    }
}
