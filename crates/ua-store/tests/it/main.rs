//! The contract of every store, kept by the in-memory model.

mod conformance;
mod fleet_model;
#[path = "../../../ua-testkit/tests/it/one_binary.rs"]
mod one_binary;
mod queue_turns;
mod said;
