//! Spans of writes: one for the caller, from the moment it asks until the commit is there, and one for the thread that commits.
//!
//! Durable Jobs v1 spec §10. They are `debug`: a turn makes about ten. Their fields say nothing of what is stored.

use tracing::Span;
use ua_core::signed;
use ua_store::Durability;

/// The span of a write.
pub(crate) fn of_write(operation: &str, durability: Durability) -> Span {
    tracing::debug_span!(
        "store.write",
        db.system.name = "sqlite",
        db.operation.name = operation,
        ua.store.durability = word(durability)
    )
}

/// The span of a transaction of the writer thread, below that of the first write in it.
pub(crate) fn of_batch(first: &Span, members: usize, durability: Durability) -> Span {
    let parent = first.id();
    tracing::debug_span!(parent: parent, "store.commit", ua.store.members = signed(members), ua.store.durability = word(durability))
}

fn word(durability: Durability) -> &'static str {
    match durability {
        Durability::Synced => "synced",
        Durability::Relaxed => "relaxed",
    }
}
