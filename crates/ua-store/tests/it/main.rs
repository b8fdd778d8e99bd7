//! The contract of every store, kept by the in-memory model.

mod conformance;
#[path = "../../../ua-testkit/tests/it/one_binary.rs"]
mod one_binary;
