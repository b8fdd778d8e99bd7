//! Spans of writes: one for the caller, from the moment it asks until the commit is there, and one for the thread that commits.
//!
//! Durable Jobs v1 spec §10. They are `debug`: a turn makes about ten. Their fields say nothing of what is stored.

use std::any::type_name;

use tracing::Span;
use ua_core::signed;
use ua_store::Durability;

/// The span of a write whose work is of the type `F`.
pub(crate) fn of_write<F>(durability: Durability) -> Span {
    tracing::debug_span!(
        "store.write",
        db.system.name = "sqlite",
        db.operation.name = operation(type_name::<F>()),
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

/// The method that wrote the closure: the last name in its type that is none of the compiler's. Every method of the store
/// hands the writer one closure, so it need not repeat its own name; were the compiler to write types in another way, spans
/// would lose their operation and nothing else.
fn operation(closure: &'static str) -> &'static str {
    let mut names = closure.rsplit("::").filter(|name| !name.starts_with('{'));
    let method = names.next().and_then(|name| name.split('<').next()); // without its lifetimes
    method
        .filter(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
        .filter(|name| !name.is_empty())
        .unwrap_or("write")
}

#[cfg(test)]
mod tests {
    use super::*;

    trait Port {
        fn commit_turn(&self) -> &'static str;
    }

    impl Port for () {
        fn commit_turn(&self) -> &'static str {
            let future = async {
                let work = |_: u8| 1;
                name_of(&work)
            };
            drop(future);
            let work = |_: u8| 1;
            name_of(&work)
        }
    }

    fn name_of<F>(_work: &F) -> &'static str {
        operation(type_name::<F>())
    }

    #[test]
    fn a_write_is_named_after_the_method_that_makes_it() {
        assert_eq!(().commit_turn(), "commit_turn");
        let inner = "<ua_store_sqlite::store::SqliteStore as ua_store::run_store::RunStore>::commit_turn<'_, '_>::{{closure}}::{{closure}}";
        assert_eq!(operation(inner), "commit_turn");
        assert_eq!(operation("fn(i32) -> i32"), "write");
    }
}
