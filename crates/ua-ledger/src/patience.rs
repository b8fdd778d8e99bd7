//! How long a write is tried again while another process uses the database.
//!
//! What has come back from outside (an answer, a paid reply) is in nobody's hands but this process's: giving it up costs a person a
//! question, or money. So the write that stores it is repeated while the database says "later". The answer of a tool waits for room on a full
//! disk, too, which a person has to make. A repeated write changes nothing (`ua_store`'s conformance, `lost_answers`), and one that is refused
//! because it was done before counts as done.
//! Proved by: `identity::busy`, `xtask findings` 7.

use async_trait::async_trait;
use ua_core::Timestamp;
use ua_store::{Retry, StoreError};

/// How often a write was tried again, and since when.
#[derive(Debug, Clone, Default)]
pub struct Tries {
    /// How often; 0 before anything failed.
    pub count: u32,
    /// When it was first put off.
    pub since: Option<Timestamp>,
    /// What whoever waits was told last of why.
    pub told: Option<String>,
    /// Whether what is to be written is in nobody's hands but this process's, an answer that is kept nowhere else: whoever gives it up loses it.
    pub is_alone: bool,
}

/// Who waits, and decides when it has been long enough.
#[async_trait]
pub trait Patience: Send + Sync {
    /// Waits before a write is made again that the database put off for the reason `why`; `tries` counts it already. False when it is given
    /// up.
    async fn wait(&self, doing: &str, why: &str, tries: &mut Tries) -> bool;

    /// The same where no room is left for what the write stores, an answer that nobody else has. Whoever does not say so does not wait.
    async fn wait_for_room(&self, _doing: &str, _why: &str, _tries: &mut Tries) -> bool {
        false
    }

    /// Whether nothing new is begun any more, a stop having been asked for: an answer that waits is written without the start behind it.
    fn begins_nothing(&self) -> bool {
        false
    }

    /// When what goes out with the next try is begun; `None` leaves it at when it was first tried.
    fn begins_at(&self) -> Option<Timestamp> {
        None
    }

    /// Comes back when a write has taken so long that what it stores is kept elsewhere, too; never, where nobody looks at the time.
    async fn too_long(&self) {
        std::future::pending::<()>().await;
    }
}

/// Gives up at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPatience;

#[async_trait]
impl Patience for NoPatience {
    async fn wait(&self, _doing: &str, _why: &str, _tries: &mut Tries) -> bool {
        false
    }
}

/// Whether the write that failed with `error` is made again: only when the database said "later", and after a wait.
pub async fn again(patience: &dyn Patience, doing: &str, error: &StoreError, tries: &mut Tries) -> bool {
    let StoreError::Unavailable { why, retry: Retry::Later, .. } = error else { return false };
    tries.count += 1;
    patience.wait(doing, why, tries).await
}

/// The same of a write that stores what a tool answered: that waits until there is room for it, too.
pub(crate) async fn again_with_an_answer(
    patience: &dyn Patience,
    doing: &str,
    error: &StoreError,
    tries: &mut Tries,
) -> bool {
    let StoreError::Unavailable { why, retry: Retry::WithRoom, .. } = error else {
        return again(patience, doing, error, tries).await;
    };
    tries.count += 1;
    patience.wait_for_room(doing, why, tries).await
}
