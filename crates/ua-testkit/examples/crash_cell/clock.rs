//! The clock of a life, which may be ahead of that of the lives before it.

use std::sync::Arc;
use std::time::Duration;

use ua_core::{Clock, Env, Sleep, Timestamp};

use crate::options::{Options, Outcome};

/// The real clock, so much later.
#[derive(Debug)]
struct Ahead {
    inner: Arc<dyn Clock>,
    by: Duration,
}

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        self.inner.now().plus(self.by)
    }

    fn sleep(&self, span: Duration) -> Sleep {
        self.inner.sleep(span)
    }

    fn passes_by_itself(&self) -> bool {
        self.inner.passes_by_itself()
    }
}

/// The environment of a life: with `--clock-ahead SECONDS`, of one that comes so much later.
pub(crate) fn env(options: &Options) -> Outcome<Env> {
    let real = ua_core::system::env();
    let Some(seconds) = options.get("clock-ahead") else { return Ok(real) };
    let by = Duration::from_secs(seconds.parse()?);
    Ok(Env { clock: Arc::new(Ahead { inner: real.clock, by }), entropy: real.entropy })
}
