//! Spans of writes, from the moment the caller asks until the commit is there.
//!
//! Durable Jobs v1 spec §10. They are `debug`: a turn makes about ten. Their fields say nothing of what is stored.

use tracing::Span;
use ua_store::Durability;

/// The span of a write.
pub(crate) fn of_write(operation: &str, durability: Durability) -> Span {
    let word = match durability {
        Durability::Synced => "synced",
        Durability::Relaxed => "relaxed",
    };
    tracing::debug_span!(
        "store.write",
        db.system.name = "postgresql",
        db.operation.name = operation,
        ua.store.durability = word
    )
}
