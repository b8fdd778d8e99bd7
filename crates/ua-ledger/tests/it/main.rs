//! The ledger from the outside, on the store in memory.

mod identity;
#[path = "../../../ua-testkit/tests/it/one_binary.rs"]
mod one_binary;
mod outbox;
