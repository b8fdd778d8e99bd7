//! The wait for a tool server that is away in the middle of a run, as for the model's provider.
//!
//! A server that is restarted, or whose machine is, is away for seconds or minutes. Nothing had been sent to it, so the calls of the group are
//! taken up again where they stand, as a resume would: what has ended meanwhile is not sent again. Proved by: `ua-runner`'s `granular::away`.

use std::time::Duration;

use ua_core::chain;
use ua_dispatch::TransportError;

use super::Driver;
use crate::error::RunError;
use crate::machine::Event;
use crate::waiting::{Away, GivenUp};

impl Driver<'_> {
    /// Waits before the calls are taken up again; the event that ends the work on them, when that comes first, or when nothing is to be waited for.
    /// `took` is how long it took to find out.
    pub(super) async fn wait_for_server(
        &self,
        error: &TransportError,
        took: Duration,
        away: &mut Away,
    ) -> Result<Option<Event>, RunError> {
        if self.time_left().is_some_and(|left| left.is_zero()) {
            // Whatever is away, this is what ends the run.
            return Ok(Some(Event::OutOfTime { held_millis: self.run.held_millis + self.held_for() }));
        }
        let random = self.ports.env.entropy.next_u64();
        let again = if error.may_pass() {
            away.again(took, &self.machine.retry(), random, self.time_left())
        } else {
            Err(GivenUp::Final)
        };
        let pause = match again {
            Ok(pause) => pause,
            Err(given_up) => {
                let detail = away.in_words(&chain(error), given_up, self.machine.limits());
                return Ok(Some(Event::ToolServerDown { detail }));
            }
        };
        away.tell(&self.ports.watcher, error, pause, self.ends_within(pause.wait, pause.left));
        let event = self.sit_out(pause.wait).await?;
        Ok((event != Event::Waited).then_some(event))
    }
}
