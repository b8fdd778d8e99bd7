//! A second answer to a call, on the stream on which the first one came.
//!
//! A stream ends with its answer, so nobody reads on behind one. Behind one that says that the call was not begun somebody does, for a moment: whoever
//! believes it makes the call again, and a result behind it says that this would be the second time.

use std::sync::{Mutex, OnceLock, PoisonError};

use tokio::sync::Notify;
use ua_core::Env;

use super::Reply;
use super::endpoint::Failure;
use crate::exchange::answered_twice;
use crate::wire::{SECOND_PATIENCE, Says};

/// The answers to one call.
#[derive(Default)]
pub(super) struct Twice {
    /// The first one, if it says that the call was not begun.
    first: Mutex<Option<Reply>>,
    /// What another one says, if it says the contrary.
    denied_by: OnceLock<Says>,
    /// Told when there is a first one.
    held: Notify,
}

impl Twice {
    /// Takes the next answer; returns it, unless one more is waited for.
    pub(super) fn take(&self, reply: Reply) -> Option<Reply> {
        let next = says(&reply);
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        match first.as_ref().map(says) {
            None if next == Says::NotBegun => {
                *first = Some(reply);
                self.held.notify_one();
                None
            }
            None => Some(reply),
            Some(known) if known.is_denied_by(next) => {
                self.denied_by.get_or_init(|| next);
                Some(reply)
            }
            Some(_) => None,
        }
    }

    /// Until no second answer is waited for any more; for ever where none is.
    pub(super) async fn over(&self, env: &Env) {
        self.held.notified().await;
        env.clock.sleep(SECOND_PATIENCE).await;
    }

    /// What the call was answered with, after its stream came to `followed`.
    pub(super) fn answer(&self, followed: Result<Reply, Failure>) -> Result<Reply, Failure> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (first, self.denied_by.get()) {
            (Some(first), Some(second)) => Err(Failure::Lost(answered_twice(says(&first), *second))),
            (Some(first), None) => Ok(first),
            (None, _) => followed,
        }
    }
}

fn says(reply: &Reply) -> Says {
    match reply {
        Reply::Result(result, _) => Says::of_result(result),
        Reply::Error { code, .. } => Says::of_error((*code).into()),
        Reply::Status { .. } => Says::Failed,
    }
}
